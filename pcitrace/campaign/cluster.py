"""The runs of a campaign on Dask: on this machine, or on the workers of a scheduler."""

from __future__ import annotations

import logging
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pcitrace.campaign import work
from pcitrace.campaign.errors import CampaignError, needs
from pcitrace.campaign.sources import Source
from pcitrace.campaign.supervise import Task

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["connect", "gather"]

CONNECT_S = 10.0
GONE_S = 10.0
"""How long a scheduler may be away."""

KILLS = 3
"""Workers that may die under one run, before it is taken for the cause."""


QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
"""Workers wait for children: a profile of them, every 10 ms, tells nothing and takes time from these."""


@contextmanager
def connect(scheduler: str | None, workers: int | None, say: Callable[[str], None]) -> Iterator[Client]:
    """Give a client of a scheduler, or of a cluster of this machine that lives as long.

    Parameters
    ----------
    scheduler : str or None
        Its address, such as ``tcp://host:8786``; None: a cluster of our own.
    workers : int or None
        Processes of that; as many as the machine runs at once by default.
    say : callable
        Told where the dashboard is.

    Raises
    ------
    CampaignError
        The scheduler does not answer, or Dask is not installed.
    """
    with needs("a campaign"):
        import dask
        import distributed
    for name in ("distributed", "tornado", "asyncio", "bokeh"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    cluster = None
    dask.config.set({"distributed.scheduler.allowed-failures": KILLS, **QUIET})
    try:
        if scheduler is None:
            # A run has a process of its own, with its own limits: Dask need not watch the memory of the worker.
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                preload=[__name__],
            )
        client = distributed.Client(cluster or scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        if cluster is not None:
            cluster.close()
        raise CampaignError(
            f"the scheduler {scheduler or 'of this machine'} does not answer ({error}); is its address right, and is "
            "`dask scheduler` running there?"
        ) from error
    try:
        say(f"dashboard: {client.dashboard_link}")
        if scheduler is not None and not client.scheduler_info(n_workers=-1)["workers"]:
            say(f"the scheduler {scheduler} has no workers yet: `dask worker {scheduler} --nthreads 1` starts one")
        yield client
    finally:
        client.close(timeout=2)
        if cluster is not None:
            cluster.close(timeout=10)


def dask_setup(worker: object) -> None:
    """Have a worker of this machine leave Ctrl-C to who started it; Dask calls this by its name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def gather(client: Client, tasks: Sequence[Task], destination: str) -> Iterator[dict[str, Any]]:
    """Have runs analysed and yield the status of each as it comes.

    Raises
    ------
    CampaignError
        The scheduler went away, a worker has another version, or the destination cannot be written.
    """
    ended: queue.Queue[Future] = queue.Queue()
    futures = {}
    for task in tasks:
        name = f"pcitrace-{Source(task.url).id}-{client.id}"
        future = client.submit(work.one, task, destination, key=name, pure=False)
        futures[future.key] = task
        future.add_done_callback(ended.put)
    left, away = len(futures), 0.0
    while left:
        try:
            future = ended.get(timeout=1.0)
        except queue.Empty:
            away = 0.0 if client.status == "running" else away + 1.0
            if away >= GONE_S:
                raise _gone(left) from None
            continue
        if future.status in ("cancelled", "lost"):
            raise _gone(left)
        yield _result(future, futures[future.key], destination)
        left -= 1
        future.release()


def _result(future: Future, task: Task, destination: str) -> dict[str, Any]:
    from distributed.scheduler import KilledWorker

    try:
        return dict(future.result(timeout=30))
    except KilledWorker:
        return work.lost(task, destination, f"{KILLS + 1} workers died while they analysed it: `retry` tries again")
    except CampaignError:
        raise
    except (ModuleNotFoundError, AttributeError) as error:
        raise CampaignError(
            f"a worker cannot do it: {error}; install pcitrace[campaign] of the same version on all workers"
        ) from error


def _gone(left: int) -> CampaignError:
    return CampaignError(
        f"the scheduler went away, with {left} runs to go; what is done is kept: start it, and run the same command "
        "again to go on"
    )
