"""One run in a child process: started, watched, ended where it takes too much, and what became of it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcitrace.campaign.child import FULL, peak_mib
from pcitrace.campaign.errors import DestinationError
from pcitrace.campaign.forks import Forker, forker
from pcitrace.campaign.options import Limits, Options

__all__ = ["Outcome", "Task", "run"]

LOOK_S = 0.05
PREFIX = "pcitrace-campaign-"
NO_MEMORY = ("memory allocation", "memoryerror", "cannot allocate memory", "bad_alloc", "out of memory")
"""Last words of Rust, Python, C and OpenBLAS when there is no memory."""


@dataclass(frozen=True)
class Task:
    """One run and how it is analysed.

    Attributes
    ----------
    url : str
    version : str
        Of pcitrace.
    known : str or None
        Key of the result that is there: only what has another is analysed.
    options : Options
    limits : Limits
    scratch : str or None
        Folder for temporary files.
    together : bool or str
        Whether a long run is to be left to all workers; the address of their scheduler, if they are to do it now.
    campaign : str
        Which campaign does it: another one that comes to the same run leaves it to this one.
    patient : bool
        Whether to wait for another campaign that is at the run; else the task is given back.
    """

    url: str
    version: str
    known: str | None
    options: Options
    limits: Limits
    scratch: str | None = None
    together: bool | str = False
    campaign: str = ""
    patient: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes
    ----------
    told : dict
        state (done, failed, known, long), kind, reason, key, findings, seconds, peak_mib.
    results, page : bytes or None
    constants : object or None
        An Arrow table.
    """

    told: dict[str, Any]
    results: bytes | None = None
    page: bytes | None = None
    constants: Any = None


def run(task: Task, alive: Callable[[], None]) -> Outcome:
    """Analyse a run in a child process.

    Parameters
    ----------
    task : Task
    alive : callable
        Called again and again meanwhile.

    Raises
    ------
    DestinationError
        There is no scratch, or it is full.
    """
    with _scratch(task.scratch) as folder:
        started = time.monotonic()
        try:
            (folder / "task.json").write_text(json.dumps(asdict(task)))
        except OSError as error:
            raise _no_scratch(folder.parent, error.strerror) from error
        ended, status, peak = _watched(folder, task.limits, alive)
        if status == FULL:
            raise _no_scratch(folder.parent, os.strerror(errno.ENOSPC))
        found = _outcome(folder, status, ended, task.limits)
        found["seconds"] = time.monotonic() - started
        found["peak_mib"] = max((one for one in (peak, found.get("peak_mib")) if one is not None), default=None)
        return _collected(folder, found)


def _watched(folder: Path, limits: Limits, alive: Callable[[], None]) -> tuple[str, int, float | None]:
    """Have a child analyse; return why it was ended, if it was, its exit status, and the most memory it held."""
    try:
        with forker() as forks:
            return _watch(forks, forks.begin(folder), limits, alive)
    except EOFError:
        return "", -signal.SIGKILL, None  # its parent is gone, and so is it


def _watch(forks: Forker, process: int, limits: Limits, alive: Callable[[], None]) -> tuple[str, int, float | None]:
    """Wait for a child and end it where it takes too much; the same."""
    started = time.monotonic()
    peak: float | None = None
    ended = ""
    while True:
        peak = peak_mib(process) or peak
        if not ended and (ended := _exceeded(limits, peak, time.monotonic() - started - _waited_s(process))):
            forks.kill()
        try:
            status = forks.answer(LOOK_S)
        except TimeoutError:
            alive()
            continue
        return ended, status, peak


def _exceeded(limits: Limits, peak_mib: float | None, seconds: float) -> str:
    """Return which limit a child exceeds."""
    if peak_mib is not None and peak_mib > limits.memory_mib:
        return "memory"
    return "time" if seconds > limits.seconds else ""


def _waited_s(process: int) -> float:
    """Return how long a process was ready and found no free processor, which is not its fault; 0 where not told.

    Ref: Linux, Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat.
    """
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


def _outcome(folder: Path, status: int, ended: str, limits: Limits) -> dict[str, Any]:
    """Return what the child said, or what is to be said of it."""
    failed: dict[str, Any] = {"state": "failed", "findings": [], "key": _read(folder / "key.json")}
    too_much = f"memory: needs more than the {limits.memory_mib:g} MiB it may take (--memory-limit)"
    if ended == "memory":
        return failed | {"kind": "memory", "reason": too_much}
    if ended == "time":
        return failed | {"kind": "time", "reason": f"took longer than the {limits.seconds:g} s it may (--time-limit)"}
    found = _read(folder / "outcome.json")
    if found is not None:
        found = {**failed, **found}
        return {**found, **({"reason": too_much} if found.get("kind") == "memory" else {})}
    words = (folder / "words").read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(words) if line.strip()), "")[:300]
    if any(word in last.lower() for word in NO_MEMORY):
        return failed | {"kind": "memory", "reason": too_much}
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return failed | {"kind": "crash", "reason": f"crashed: {how}" + (f", last words: {last}" if last else "")}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _collected(folder: Path, told: dict[str, Any]) -> Outcome:
    if told["state"] != "done":
        return Outcome(told)
    import pyarrow.parquet as pq

    page = folder / "page.html"
    return Outcome(
        told,
        (folder / "results.json").read_bytes(),
        page.read_bytes() if page.exists() else None,
        pq.read_table(folder / "constants.parquet"),
    )


@contextmanager
def _scratch(place: str | None) -> Iterator[Path]:
    """A folder for one run; those of processes that are no more are removed."""
    root = Path(place or tempfile.gettempdir())
    for old in root.glob(f"{PREFIX}*-*"):
        owner = old.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists() and sys.platform == "linux":
            shutil.rmtree(old, ignore_errors=True)
    try:
        folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=root, ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_scratch(root, error.strerror) from error
    with folder as name:
        yield Path(name)


def _no_scratch(root: Path, why: str | None) -> DestinationError:
    return DestinationError(
        f"{root} on {socket.gethostname()}: no scratch: {why} (--scratch names another folder); what is done is kept: "
        "run the same command again to go on"
    )
