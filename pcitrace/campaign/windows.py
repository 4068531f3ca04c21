"""One capture on all workers of a Dask cluster: its frames are followed in windows, each of which is a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pcitrace import windowed
from pcitrace.campaign.cluster import connect

if TYPE_CHECKING:
    from distributed import Client

    from pcitrace.frames import Frames
    from pcitrace.run import Run

__all__ = ["frames"]

EACH, LEAST = 4, 20_000
"""Windows a worker, so that all end at about the same time; and transactions below which a task is not worth it."""


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
    transactions = sum(len(run.table(name)) for name in run.buses)
    with connect(scheduler, workers, say) as client:
        many = EACH * max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)
        return windowed.frames(run, lambda windows: _done(client, windows, say), max(transactions // many, LEAST))


def _done(client: Client, windows: list[windowed.Window], say: Callable[[str], None]) -> Iterator[windowed.Found]:
    """Have windows done, in their order; here what no worker could do."""
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    futures = [client.submit(windowed.Window.__call__, client.scatter(one), pure=False) for one in windows]
    for number, (window, future) in enumerate(zip(windows, futures, strict=True)):
        try:
            found = future.result()
        except (FutureCancelledError, KilledWorker, OSError) as error:
            say(f"window {number + 1} of {len(windows)} is done here: {error}")
            found = window()
        future.release()
        yield found
