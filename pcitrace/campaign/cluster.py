"""The runs of a campaign as tasks of a Dask cluster."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pcitrace.campaign import forks, work
from pcitrace.campaign.connection import KILLS
from pcitrace.campaign.errors import CampaignError
from pcitrace.campaign.sources import Source
from pcitrace.campaign.supervise import Task

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["gather"]

GONE_S = 10.0
"""How long a scheduler may be away."""


def dask_setup(worker: object) -> None:
    """Have a worker of this machine import what runs need while the others start; Dask calls this by its name."""
    forks.warm()


def gather(client: Client, tasks: Sequence[Task], destination: str) -> Iterator[dict[str, Any]]:
    """Have runs analysed and yield the status of each as it comes.

    A worker that finds a long one gives it back: all do it together then, one such run after the other. One that
    another campaign is at is given back, too, and waited for when there is nothing else to do.

    Raises
    ------
    CampaignError
        The scheduler went away, a worker has another version, or the destination cannot be written.
    """
    ended: queue.Queue[Future] = queue.Queue()
    futures: dict[str, Task] = {}

    def submit(task: Task) -> None:
        by = task.options.by(task.version)
        again = "-long" * (task.together is not True) + "-late" * task.patient
        name = f"pcitrace-{Source(task.url).id}-{by}-{client.id}{again}"
        future = client.submit(work.one, task, destination, key=name, pure=False)
        futures[future.key] = task
        future.add_done_callback(ended.put)

    for task in tasks:
        submit(replace(task, together=True, patient=False))
    left, away = len(tasks), 0.0
    first = len(tasks)
    long: list[Task] = []
    taken: list[Task] = []
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
        task = futures[future.key]
        status = _result(future, task, destination)
        future.release()
        first -= not task.patient
        if status["state"] == "taken":
            taken.append(replace(task, patient=True))
        if first == 0:
            while taken:
                submit(taken.pop())
        if status["state"] == "taken":
            continue
        if status["state"] == "long":
            long.append(replace(task, together=client.scheduler.address, patient=True))
            if len(long) == 1:
                submit(long[0])
            continue
        if task in long:
            long.remove(task)
            if long:
                submit(long[0])
        yield status
        left -= 1


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
