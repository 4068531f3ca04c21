"""One run from beginning to end: what a worker of the cluster does, and ``pcitrace campaign one`` by itself."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pcitrace
from pcitrace.campaign import supervise
from pcitrace.campaign.errors import CampaignError
from pcitrace.campaign.layout import Destination
from pcitrace.campaign.sources import Source, stamp
from pcitrace.campaign.storage import Store
from pcitrace.campaign.supervise import Task

__all__ = ["lost", "one"]

LEASE_S = 15.0
RENEW_S = 5.0
LOOK_S = 0.5
"""Time after which is looked again whether another campaign is still at a run."""


def one(task: Task, destination: str) -> dict[str, Any]:
    """Analyse a run, if its result is not there, and write what became of it.

    Parameters
    ----------
    task : Task
    destination : str

    Returns
    -------
    dict
        The row of the table ``status``. Of a run that is left to all workers the state is ``long``, of one that
        another campaign is at, and that is not waited for, ``taken``: nothing is written then.

    Raises
    ------
    CampaignError
        This worker has another version.
    DestinationError
        The result cannot be written.
    """
    if pcitrace.__version__ != task.version:
        raise CampaignError(
            f"a worker has pcitrace {pcitrace.__version__}, the campaign {task.version}: install the same on all"
        )
    if isinstance(task.together, str):
        # This worker is needed for the tasks of this run, too.
        from distributed import secede

        secede()
    place = Destination(Store(destination), task.options.by(task.version))
    source = Source(task.url)
    mark, trouble = _stamp(source)
    while (lease := place.take(source.id, LEASE_S, task.campaign)) is None:
        if not task.patient:
            return {"state": "taken"}
        time.sleep(LOOK_S)
    try:
        return _leased(task, place, source, (mark, trouble), lease)
    finally:
        place.release(lease)


def _leased(
    task: Task, place: Destination, source: Source, state: tuple[str | None, str], lease: str
) -> dict[str, Any]:
    """Analyse a run that nobody else is at: what another campaign has done meanwhile is there now."""
    mark, trouble = state
    before = place.marker(source.id)
    if before is not None and mark is not None and before["stamp"] == mark:
        return before
    started = time.time()
    if trouble:
        return _failed(place, task, {"kind": "input", "reason": trouble, "started": started, "stamp": None})
    known = before["key"] if before is not None else None
    renewed = [time.monotonic()]

    def alive() -> None:
        if time.monotonic() - renewed[0] > RENEW_S:
            renewed[0] = time.monotonic()
            place.renew(lease, LEASE_S, task.campaign)

    outcome = supervise.run(replace(task, known=known), alive)
    status = _status(task, outcome.told | {"started": started, "stamp": mark})
    if outcome.told["state"] == "known":
        assert before is not None
        status = before | {"stamp": mark}
        place.mark(source.id, status)
    elif outcome.told["state"] != "long":
        names = {place.result(source.id): outcome.results, place.page(source.id): outcome.page}
        files = {name: content for name, content in names.items() if content is not None}
        place.record(source.id, status, outcome.constants, files)
    return status


def lost(task: Task, destination: str, reason: str) -> dict[str, Any]:
    """Note that a run failed with its worker."""
    place = Destination(Store(destination), task.options.by(task.version))
    return _failed(place, task, {"kind": "worker", "reason": reason, "started": time.time(), "stamp": None})


def _stamp(source: Source) -> tuple[str | None, str]:
    try:
        return stamp(source), ""
    except (CampaignError, OSError) as error:
        return None, " ".join(str(error).split())


def _failed(place: Destination, task: Task, told: dict[str, Any]) -> dict[str, Any]:
    status = _status(task, {"state": "failed", "findings": [], "key": None, "seconds": 0.0, "peak_mib": None} | told)
    place.record(Source(task.url).id, status, None, {})
    return status


def _status(task: Task, told: dict[str, Any]) -> dict[str, Any]:
    return {"run": task.url, "version": task.version, "findings": [], "kind": None, "reason": None, **told}
