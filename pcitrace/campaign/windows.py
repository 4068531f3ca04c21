"""One capture on all workers of a Dask cluster: decoded in stretches, its frames followed in windows: all are tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pcitrace import windowed
from pcitrace.campaign.connection import connect
from pcitrace.errors import CaptureFormatError
from pcitrace.stretches import Spread

if TYPE_CHECKING:
    from distributed import Client

    from pcitrace.frames import Frames
    from pcitrace.run import Run

__all__ = ["frames"]

T = TypeVar("T")

EACH, LEAST = 4, 20_000
"""Tasks a worker, so that all end at about the same time; and transactions below which a window is not worth one."""

FIRST = 10
"""Priority of these tasks before those of other runs: somebody waits for them."""


def frames(
    run: Run, scheduler: str | None, workers: int | None, say: Callable[[str], None] = lambda line: None
) -> Frames:
    """Follow the frames of a run on the workers of a cluster; ``run.frames`` is what comes of it.

    Parameters
    ----------
    run : Run
    scheduler : str or None
        Address of a Dask scheduler; None: processes of this machine.
    workers : int or None
        How many of these.
    say : callable
        Told what a user should know meanwhile.

    Raises
    ------
    CampaignError
        The scheduler does not answer, or Dask is not installed.
    """
    with connect(scheduler, workers, say) as client:
        many = EACH * max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)
        do = partial(_done, client, say=say)
        with _spread(run, Spread(do, many)):
            transactions = sum(len(run.table(name, data_phases=_has_data(run, name))) for name in run.buses)
            return windowed.frames(run, do, max(transactions // many, LEAST))


def _has_data(run: Run, name: str) -> bool:
    return any(line.startswith("AD") for line in run[name].lines)


@contextmanager
def _spread(run: Run, spread: Spread) -> Iterator[None]:
    """Have the captures of a run decoded in stretches."""
    for capture in run.captures:
        capture.decoder.spread = spread
    try:
        yield
    finally:
        for capture in run.captures:
            capture.decoder.spread = None


def _done(client: Client, tasks: Sequence[Callable[[], T]], say: Callable[[str], None]) -> Iterator[T]:
    """Have stretches or windows done, in their order; here what no worker could do."""
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    futures = [client.submit(_do, client.scatter(one), pure=False, priority=FIRST) for one in tasks]
    here, why = 0, ""
    for task, future in zip(tasks, futures, strict=True):
        try:
            found = future.result()
        except (FutureCancelledError, KilledWorker, OSError, CaptureFormatError) as error:
            here, why = here + 1, str(error)
            found = task()
        future.release()
        yield found
    if here:
        say(f"{here} of {len(tasks)} parts were done here: {why}")


def _do(task: Callable[[], T]) -> T:
    return task()
