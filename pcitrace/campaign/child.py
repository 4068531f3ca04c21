"""The process in which one run is analysed: it may crash, hang or eat memory, and takes nothing with it.

It reads ``task.json`` in its folder, and leaves there ``outcome.json``, ``constants.parquet``, ``results.json`` and
``page.html``. :mod:`pcitrace.campaign.forks` starts it, :mod:`pcitrace.campaign.supervise` watches it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcitrace.campaign.errors import is_full
from pcitrace.campaign.inputs import Inputs
from pcitrace.campaign.options import Limits, Options
from pcitrace.errors import PciTraceError

if TYPE_CHECKING:
    from pcitrace.analysed import AnalysedRun

__all__ = ["FULL", "main", "peak_mib"]

PR_SET_PDEATHSIG = 1
"""Ref: prctl(2)."""

MEMORY = "memory"

FULL = 75
"""Exit status where the disk of the scratch is full: then nothing can be left there. Ref: sysexits(3), EX_TEMPFAIL."""


def main(folder: Path, parent: int) -> None:
    """Analyse the run that ``task.json`` names, as long as the parent lives."""
    task = json.loads((folder / "task.json").read_text())
    _die_with(parent)
    limits, options = Limits(**task["limits"]), Options(**task["options"])
    # The supervisor watches what is resident; this stops what grows faster than it looks.
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(limits.memory_mib * (1 << 20)), most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        outcome = _analyse(folder, task, limits, options)
    except Exception as error:
        # To say what happened takes memory, too.
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        outcome = _failed(error)
    outcome["peak_mib"] = peak_mib("self")
    _leave(folder / "outcome.json", outcome)


def _failed(error: Exception) -> dict[str, Any]:
    """Return what is to be said of an error; it is raised where the disk is full."""
    if isinstance(error, MemoryError | SystemError):
        # C code that gets no memory may fail without saying why: a SystemError.
        return {"state": "failed", "kind": MEMORY, "reason": ""}
    if isinstance(error, PciTraceError | OSError):
        if is_full(error):
            raise error
        return {"state": "failed", "kind": "input", "reason": " ".join(str(error).split())}
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return {"state": "failed", "kind": "error", "reason": f"{type(error).__name__}: {error} ({where}); a defect"}


def peak_mib(process: int | str) -> float | None:
    """Return the most memory that a process held, in MiB; None where the system does not tell."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)


def _analyse(folder: Path, task: dict[str, Any], limits: Limits, options: Options) -> dict[str, Any]:
    inputs = Inputs(task["url"], folder / "files", limits.scratch_mib)
    key = inputs.key(task["version"], options)
    _leave(folder / "key.json", key)
    if key == task["known"]:
        return {"state": "known", "key": key}
    import pyarrow.parquet as pq

    from pcitrace.campaign import analyse, numbers

    run = analyse.opened(inputs, options, folder)
    if task["together"] and analyse.has_bus(run) and analyse.is_long(run, limits.long_samples):
        if task["together"] is True:
            return {"state": "long", "key": key}
        _followed_by_all(run, task["together"])
    results, network = analyse.everything(run, task["url"])
    table = numbers.table(task["url"], results, network, inputs.run, analyse.cards(run))
    pq.write_table(table, folder / "constants.parquet")
    told = dict(results) | ({} if network is None else {"network": network})
    _leave(folder / "results.json", told)
    findings = list(dict.fromkeys([*results.get("findings", ()), *(network or {}).get("findings", ())]))
    outcome = {"state": "done", "key": key, "findings": findings, "kind": None, "reason": None}
    if options.pages and analyse.has_bus(run):
        analyse.page(run, folder / "page.html")
    return outcome


def _followed_by_all(run: AnalysedRun, scheduler: str) -> None:
    """Have the workers of a cluster decode a run and follow its frames; what they cannot do is done here then."""
    from pcitrace.campaign import windows
    from pcitrace.campaign.errors import CampaignError

    with contextlib.suppress(CampaignError):
        windows.frames(run, scheduler, None)


def _leave(path: Path, told: Any) -> None:
    path.write_text(json.dumps(told, allow_nan=False, default=str))


def _die_with(parent: int) -> None:
    """Have the system kill this process when the one that watches it dies, whatever it dies of."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
