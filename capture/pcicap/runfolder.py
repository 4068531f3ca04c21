"""The run folder: ``NAME.partial`` while it is written, renamed to ``NAME`` when it is whole or marked incomplete.

From the first moment it has a run.toml that says ``complete = false``. Samples and frame records are appended as they
come, so that whatever ends the recording, `recover` can make a readable folder of what is there.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcicap import srfile, tomlfile
from pcicap.errors import CaptureFileError, RunFolderError

FORMAT = 2
KILLED = "pcicap was killed before the recording ended"
_RESERVE_BYTES = 1 << 20
_FRAME_LOG = re.compile(r"p(\d+)-node(\d+)-(sent|received)\.npy")
_CLOCK = re.compile(r"node(\d+)-clock\.npy")
_STATE = re.compile(r"node(\d+)-(before|after)\.json")
_PAUSES = re.compile(r"node(\d+)-pauses\.csv")


class RunFolder:
    """A run folder being written.

    Parameters
    ----------
    target : Path
        The folder's name once it is done; must not exist.
    plan : str
        Text of the plan; kept in the folder.
    """

    def __init__(self, target: Path, plan: str) -> None:
        self.target = target
        self.path = partial(target)
        if target.exists():
            raise RunFolderError(f"{target}: exists; choose another name, a recording is never written over")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir()
        except FileExistsError:
            raise RunFolderError(
                f"{self.path}: exists; another pcicap is writing it, or was killed: then 'pcicap recover {self.path}' "
                "completes it"
            ) from None
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be made ({error.strerror}); choose another place") from None
        try:
            self._warden = subprocess.Popen(
                [sys.executable, "-m", "pcicap.warden", str(self.path.resolve())],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            (self.path / "captures").mkdir()
            (self.path / "frames").mkdir()
            (self.path / "plan.toml").write_text(plan, encoding="utf-8")
            # Space that is given back at the end: on a full disk it holds the directories and run.toml.
            with (self.path / "reserve").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
        except OSError as error:
            self.abandon()
            raise RunFolderError(f"{self.path}: cannot be written ({error.strerror}); make room for it") from None

    def begin(self, run: Mapping[str, Any]) -> None:
        """Write run.toml as it will be read should nothing come after it."""
        tomlfile.write(self.path / "run.toml", {**run, "complete": False, "reason": KILLED})

    def release(self) -> None:
        """Give the reserved space back: the last files of a recording find room on a full disk."""
        (self.path / "reserve").unlink(missing_ok=True)

    def finish(self, run: Mapping[str, Any]) -> None:
        """Write the final run.toml and give the folder its name."""
        close(self.path, self.target, run)
        self._dismiss()

    def abandon(self) -> None:
        """Remove a folder in which nothing was recorded yet."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._dismiss()

    def _dismiss(self) -> None:
        assert self._warden.stdin
        with contextlib.suppress(BrokenPipeError):
            self._warden.stdin.write(b"done")
            self._warden.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            self._warden.stdin.close()
        self._warden.wait()


def partial(target: Path) -> Path:
    """Name of the folder while it is written."""
    return target.with_name(target.name + ".partial")


def now() -> str:
    """Time of creation for run.toml."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def close(path: Path, target: Path, run: Mapping[str, Any]) -> None:
    """Write run.toml, put everything on the disk and rename `path` to `target`."""
    (path / "reserve").unlink(missing_ok=True)
    frames = path / "frames"
    if frames.is_dir() and not any(frames.iterdir()):
        frames.rmdir()
    tomlfile.write(path / "run.toml", run)
    for folder in (path, path.parent):
        _sync_folder(folder)
    path.rename(target)
    _sync_folder(target.parent)


def frame_tables(path: Path, hosts: Sequence[str]) -> dict[str, Any]:
    """The tables of run.toml about what framegen left in ``frames``.

    Parameters
    ----------
    path : Path
        Run folder.
    hosts : sequence of str
        Name of node 0, 1, ...; what is of further nodes is left out.

    Returns
    -------
    dict
        ``frame_logs``, ``clock_exchanges``; ``host_states``, ``pauses``, ``histograms`` and ``frame_summary`` where
        there are such.
    """
    frames = path / "frames"
    files = [file.name for file in sorted(frames.glob("*"))]

    def matches(pattern: re.Pattern[str], node: int) -> Iterator[tuple[str, re.Match[str]]]:
        found = ((f"frames/{name}", pattern.fullmatch(name)) for name in files)
        return ((name, match) for name, match in found if match and int(match[node]) < len(hosts))

    tables: dict[str, Any] = {
        "frame_logs": [
            {"file": name, "host": hosts[int(match[2])], "kind": match[3], "point": int(match[1])}
            for name, match in matches(_FRAME_LOG, 2)
        ],
        "clock_exchanges": [
            {"file": name, "host": hosts[int(match[1])], "reference": hosts[0]} for name, match in matches(_CLOCK, 1)
        ],
    }
    states: dict[str, dict[str, str]] = {}
    for name, match in matches(_STATE, 1):
        states.setdefault(hosts[int(match[1])], {})[match[2]] = name
    if states:
        tables["host_states"] = [{"host": host, **ends} for host, ends in states.items()]
    if pauses := [{"host": hosts[int(match[1])], "file": name} for name, match in matches(_PAUSES, 1)]:
        tables["pauses"] = pauses
    with contextlib.suppress(OSError, ValueError):
        told = tomllib.loads((frames / "run.toml").read_text(encoding="utf-8"))
        if histograms := told.get("histograms"):
            tables["histograms"] = [{**entry, "file": f"frames/{entry['file']}"} for entry in histograms]
    if "summary.json" in files:
        tables["frame_summary"] = "frames/summary.json"
    return tables


def sha256(path: Path) -> str:
    """Digest of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recover(path: Path) -> Path | None:
    """Make a readable run folder, marked incomplete, of one whose recording was killed.

    Parameters
    ----------
    path : Path
        ``NAME.partial``.

    Returns
    -------
    Path or None
        The folder ``NAME``; None where nothing had been recorded and `path` was removed.

    Raises
    ------
    RunFolderError
        `path` is no such folder, or ``NAME`` exists.
    """
    target = path.with_name(path.name.removesuffix(".partial"))
    if target == path or not path.is_dir():
        raise RunFolderError(f"{path}: not an unfinished run folder; those are called NAME.partial")
    if target.exists():
        raise RunFolderError(f"{target}: exists already; move it away first")
    try:
        run = tomllib.loads((path / "run.toml").read_text(encoding="utf-8"))
    except OSError:
        shutil.rmtree(path)
        return None
    if run["complete"]:  # all that was missing is the name
        close(path, target, run)
        return target
    (path / "reserve").unlink(missing_ok=True)
    for capture in run.get("captures", ()):
        _recover_capture(path / capture["file"], capture)
    hosts = [name for name, _ in sorted(run["hosts"].items(), key=lambda item: item[1].get("node", len(run["hosts"])))]
    run |= frame_tables(path, hosts)
    close(path, target, run)
    return target


def _recover_capture(file: Path, capture: dict[str, Any]) -> None:
    try:
        size = srfile.salvage(file)
    except (CaptureFileError, FileNotFoundError):
        file.unlink(missing_ok=True)
        bits = {int(bit): line for bit, line in capture["analyser"]["settings"]["bits"].items()}
        empty_capture(file, bits, capture.get("rate_hz"))
        size = 0
    info = srfile.read_info(file) if size else None
    capture.update(samples=info.samples if info else 0, sha256=sha256(file), complete=False, reason=KILLED)


def empty_capture(file: Path, bits: Mapping[int, str], rate_hz: float | None) -> None:
    """Write a capture without samples: the analyser never delivered any."""
    srfile.SrFile(file, bits, max(bits) // 8 + 1, rate_hz).close()


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
