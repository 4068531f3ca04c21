"""A client of a Dask cluster: of a scheduler, or of one of this machine that lives as long."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pcitrace.campaign.errors import CampaignError, needs

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["KILLS", "connect"]

CONNECT_S = 10.0
"""How long a scheduler may take to answer, before it is taken for absent."""

KILLS = 3
"""Workers that may die under one run, before it is taken for the cause."""

QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
"""Workers wait for children: a profile of them, every 10 ms, tells nothing and takes time from these."""


@contextmanager
def connect(
    scheduler: str | None, workers: int | None, say: Callable[[str], None], preload: Sequence[str] = ()
) -> Iterator[Client]:
    """Give a client of a scheduler, or of a cluster of this machine that lives as long.

    Parameters
    ----------
    scheduler : str or None
        Its address, such as ``tcp://host:8786``; None: a cluster of our own.
    workers : int or None
        Processes of that; as many as the machine runs at once by default.
    say : callable
        Told where the dashboard is.
    preload : sequence of str
        Modules that the processes of this machine begin with.

    Raises
    ------
    CampaignError
        The scheduler does not answer, its address is none, no worker is asked for or begins, or Dask is not installed.
    """
    if workers is not None and workers < 1:
        raise CampaignError(f"{workers} workers analyse nothing: at least 1 is needed")
    with needs("a campaign"):
        import dask
        import distributed
    for name in logging.root.manager.loggerDict:  # distributed.client has a level of its own
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio", "bokeh"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    if scheduler is not None:
        _reach(scheduler)
    cluster = client = None
    dask.config.set({"distributed.scheduler.allowed-failures": KILLS, **QUIET})
    try:
        try:
            if scheduler is None:
                # A run has a process of its own, with its own limits: Dask need not watch the memory of the worker.
                with _interrupts_later():
                    cluster = distributed.LocalCluster(
                        n_workers=workers,
                        threads_per_worker=1,
                        memory_limit=0,
                        dashboard_address="127.0.0.1:0",
                        silence_logs=logging.CRITICAL,
                        preload=[__name__, *preload],
                    )
            client = distributed.Client(cluster or scheduler, timeout=CONNECT_S, set_as_default=False)
        except RuntimeError as error:
            raise CampaignError(
                f"the processes of this machine did not begin ({error}); a script needs to be a file, with "
                '`if __name__ == "__main__":` around what it does'
            ) from error
        except (OSError, TypeError, ValueError) as error:
            raise _absent(scheduler or "of this machine", error) from error
        say(f"dashboard: {client.dashboard_link}")
        if scheduler is not None and not client.scheduler_info(n_workers=-1)["workers"]:
            say(f"the scheduler {scheduler} has no workers yet: `dask worker {scheduler} --nthreads 1` starts one")
        yield client
    finally:
        if client is not None:
            client.close(timeout=2)
        if cluster is not None:
            cluster.close(timeout=10)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Keep Ctrl-C until the end, here and from processes that begin meanwhile: half a cluster cannot be closed."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python tells the main thread alone
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    resource_tracker.ensure_running()  # where it begins later it lets signals through again
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a process inherits it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def _reach(scheduler: str) -> None:
    """See that somebody listens at an address: a client of Dask that found nobody does not end in order."""
    try:
        parts = urlsplit(scheduler if "://" in scheduler else f"tcp://{scheduler}")
        place = (parts.hostname or "", parts.port or 0)
    except ValueError:
        place = ("", 0)
    if not all(place) or parts.scheme not in ("tcp", "tls"):
        raise CampaignError(f"{scheduler!r} is no address of a scheduler: write tcp://host:8786")
    until = time.monotonic() + CONNECT_S
    while True:
        try:
            socket.create_connection(place, CONNECT_S).close()
            return
        except (OSError, UnicodeError) as error:
            if time.monotonic() > until:
                raise _absent(scheduler, error) from error
        time.sleep(0.2)


def _absent(scheduler: str, error: Exception) -> CampaignError:
    return CampaignError(
        f"the scheduler {scheduler} does not answer ({error}); is its address right, and is `dask scheduler` running "
        "there?"
    )


def dask_setup(worker: object) -> None:
    """Have a worker of this machine leave Ctrl-C to who started it; Dask calls this by its name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
