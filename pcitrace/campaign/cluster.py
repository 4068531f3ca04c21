"""The runs of a campaign as tasks of a Dask cluster."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
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
"""How long a scheduler may be away, and all workers before it is said."""

FETCH_S = 30.0
"""How long it may take to fetch a status, some bytes, from its worker before it is asked for again. A judgement."""

GIVEN_BACK = ("long", "taken")
"""States of a run that somebody has to do again."""


def dask_setup(worker: object) -> None:
    """Have a worker of this machine import what runs need while the others start; Dask calls this by its name."""
    forks.warm()


def gather(
    client: Client, tasks: Sequence[Task], destination: str, say: Callable[[str], None] = lambda line: None
) -> Iterator[dict[str, Any]]:
    """Have runs analysed and yield the status of each as it comes.

    A worker that finds a long one gives it back: all do it together then, one such run after the other. One that
    another campaign is at is given back, too, and waited for when there is nothing else to do. Told to `say` is that no
    worker is left: the scheduler waits for some.

    Raises
    ------
    CampaignError
        The scheduler went away, a worker has another version, or the destination cannot be written.
    """
    under_way = _UnderWay(client, destination, say)
    turns = _Turns(len(tasks), client.scheduler.address)
    for task in tasks:
        under_way.submit(replace(task, together=True, patient=False))
    left = len(tasks)
    while left:
        task, status = under_way.next(left)
        for again in turns.after(task, status["state"]):
            under_way.submit(again)
        if status["state"] not in GIVEN_BACK:
            yield status
            left -= 1


class _UnderWay:
    """Tasks that a client has, and what comes of them."""

    def __init__(self, client: Client, destination: str, say: Callable[[str], None]) -> None:
        self._client, self._destination, self._say = client, destination, say
        self._alone_s = 0.0
        self._ended: queue.Queue[Future] = queue.Queue()
        self._tasks: dict[str, Task] = {}

    def submit(self, task: Task) -> None:
        """Have a worker do it."""
        by = task.options.by(task.version)
        again = "-long" * (task.together is not True) + "-late" * task.patient
        name = f"pcitrace-{Source(task.url).id}-{by}-{self._client.id}{again}"
        future = self._client.submit(work.one, task, self._destination, key=name, pure=False)
        self._tasks[future.key] = task
        future.add_done_callback(self._ended.put)

    def next(self, left: int) -> tuple[Task, dict[str, Any]]:
        """Wait for a task to end; what became of it."""
        while True:
            future = self._wait(left)
            task = self._tasks[future.key]
            try:
                status = _result(future, task, self._destination)
            except CancelledError:
                raise _gone(left) from None
            except TimeoutError:  # the worker that had it died: another does it again
                future.add_done_callback(self._ended.put)
                continue
            future.release()
            return task, status

    def _wait(self, left: int) -> Future:
        away = 0.0
        while True:
            try:
                return self._ended.get(timeout=1.0)
            except queue.Empty:
                away = 0.0 if self._client.status == "running" else away + 1.0
                if away >= GONE_S:
                    raise _gone(left) from None
                if not away:
                    self._look_for_workers(left)

    def _look_for_workers(self, left: int) -> None:
        """Say that no worker has been there for so long, once."""
        with suppress(OSError):  # the scheduler goes away just now
            there = self._client.scheduler_info(n_workers=-1)["workers"]
            self._alone_s = 0.0 if there else self._alone_s + 1.0
            if self._alone_s == GONE_S:
                address = self._client.scheduler.address
                self._say(
                    f"no worker is there, with {left} runs to go: `dask worker {address} --nthreads 1` starts one"
                )


class _Turns:
    """When tasks that were given back have their turn: long ones one after the other, those that others are at in the
    end.
    """

    def __init__(self, untried: int, scheduler: str) -> None:
        self._untried, self._scheduler = untried, scheduler
        self._long: list[Task] = []
        self._taken: list[Task] = []

    def after(self, task: Task, state: str) -> list[Task]:
        """Return the tasks whose turn it is, now that this one has come so far."""
        self._untried -= not task.patient
        turn = []
        if state == "taken":
            self._taken.append(replace(task, patient=True))
        elif state == "long":
            self._long.append(replace(task, together=self._scheduler, patient=True))
            turn += self._long if len(self._long) == 1 else []
        elif task in self._long:
            self._long.remove(task)
            turn += self._long[:1]
        if self._untried == 0:
            turn += reversed(self._taken)
            self._taken.clear()
        return turn


def _result(future: Future, task: Task, destination: str) -> dict[str, Any]:
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker

    try:
        return dict(future.result(timeout=FETCH_S))
    except CommClosedError:  # the scheduler went away while it was asked
        raise CancelledError from None
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
