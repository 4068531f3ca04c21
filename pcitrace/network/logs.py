"""Frame logs as columns: what was written is read as far as it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from pcitrace.errors import ConfigurationError
from pcitrace.runfolder import CLOCK_EXCHANGES, FRAME_LOG

__all__ = [
    "CORRUPT",
    "DUPLICATE",
    "FARTHEST_NS",
    "UNKNOWN_NS",
    "Log",
    "empty",
    "read",
    "read_exchanges",
    "streams",
    "untimed",
]

UNKNOWN_NS = np.iinfo(np.int64).min
"""A time that is not known."""

FARTHEST_NS = 1 << 61
"""73 years: no clock that starts with its host, or in 1970, shows more; differences of what is nearer to 0 do not
overflow."""

CORRUPT, DUPLICATE = 1, 2
"""Flags of a record: the frame was damaged on the way; it is a copy of one already received."""

COLUMNS = ("sequence", "send_ns", "receive_ns", "flags", "stream", "node", "length_bytes")

READ = np.dtype(
    [
        ("sequence", "<u4"),
        ("stream", "<u2"),
        ("node", "<u2"),
        ("length_bytes", "<u2"),
        ("", "V2"),
        ("flags", "<u1"),
        ("", "V3"),
        ("send_ns", "<i8"),
        ("receive_ns", "<i8"),
        ("", "V4"),
    ]
)
"""The records of a log, narrow columns by their lowest bytes."""

CHUNK = 1 << 13
"""Records that are turned into columns at a time: they fit the cache."""

WHOSE = np.dtype([("", "V4"), ("whose", "<u4"), ("length_bytes", "<u4"), ("", "V24")])
"""The same records: stream and node as one number, the stream in its lower half."""


@dataclass(frozen=True)
class Log:
    """A frame log, or those records of it that belong to one stream.

    Attributes
    ----------
    path : Path
    sequence : array of uint32, shape (frames,)
    send_ns, receive_ns : arrays of int64, shape (frames,)
    flags : array of uint8, shape (frames,)
    stream, node : arrays of uint16, shape (frames,)
        Who sent a frame, in which of its streams.
    length_bytes : array of uint16, shape (frames,)
        User bytes.
    findings : tuple of str

    Columns that hold one number throughout take no memory, and cannot be written to.
    """

    path: Path
    sequence: npt.NDArray[np.uint32]
    send_ns: npt.NDArray[np.int64]
    receive_ns: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    stream: npt.NDArray[np.uint16]
    node: npt.NDArray[np.uint16]
    length_bytes: npt.NDArray[np.uint16]
    findings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sequence)

    def of(self, stream: int, node: int) -> Log:
        """Return the records of one stream of one node."""
        if len(self) and not (self.stream.flags.writeable or self.node.flags.writeable):
            whole = (int(self.stream[0]), int(self.node[0])) == (stream, node)
            return self if whole else self[np.zeros(len(self), np.bool_)]
        mine = (self.stream == stream) & (self.node == node)
        return self if mine.all() else self[mine]

    def __getitem__(self, rows: npt.NDArray[np.bool_]) -> Log:
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})


def read(path: Path) -> Log:
    """Read a frame log.

    Parameters
    ----------
    path : Path
        A ``.npy`` file of records of type :data:`pcitrace.runfolder.FRAME_LOG`.

    Returns
    -------
    Log
        A file that was cut gives its whole records, and a finding.

    Raises
    ------
    ConfigurationError
        The file is no frame log, or of another version.
    """
    start, rows = _head(path)
    whole = max(0, path.stat().st_size - start) // FRAME_LOG.itemsize
    findings = [] if whole >= rows else [f"{path}: cut off: {whole} of {rows} records are whole"]
    count = min(rows, whole)
    columns: dict[str, Any] = {name: np.empty(0, READ[name]) for name in COLUMNS}
    for at, records in _chunks(path, start, count):
        for name, column in columns.items():
            columns[name] = _filled(column, at, records.view(READ)[name], count)
    for name in ("send_ns", "receive_ns"):
        columns[name], strange = _possible(columns[name])
        if strange:
            findings.append(f"{path}: {strange} times ({name}) that no clock shows: taken as not known")
    return Log(path, findings=tuple(findings), **columns)


def _possible(times_ns: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Return times with those that no clock shows as not known, and how many these are."""
    if times_ns.max(initial=0) < FARTHEST_NS and times_ns.min(initial=0) > -FARTHEST_NS:
        return times_ns, 0
    strange = ((times_ns >= FARTHEST_NS) | (times_ns <= -FARTHEST_NS)) & (times_ns != UNKNOWN_NS)
    return (np.where(strange, UNKNOWN_NS, times_ns) if strange.any() else times_ns), int(strange.sum())


def _filled(column: npt.NDArray[Any], at: int, values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return a column of `count` values with these from place `at` on: one value for all while they are alike."""
    if at == 0:
        column = np.broadcast_to(values[0].copy(), count)
    if not column.flags.writeable:
        if bool((values == column[0]).all()):
            return column
        alike, column = column, np.empty(count, column.dtype)
        column[:at] = alike[0]
    column[at : at + len(values)] = values
    return column


def untimed(times_ns: npt.NDArray[np.int64]) -> bool:
    """Return whether any of these times is not known."""
    return bool(times_ns.min(initial=0) == UNKNOWN_NS)


def empty(path: Path) -> Log:
    """Return the log of a host that received nothing, which writes none."""
    columns: dict[str, Any] = {name: np.empty(0, READ[name]) for name in COLUMNS}
    return Log(path, **columns)


def read_exchanges(path: Path) -> tuple[npt.NDArray[np.void], tuple[str, ...]]:
    """Read the raw exchanges between two clocks as far as they are whole; a file that was cut gives a finding.

    Parameters
    ----------
    path : Path
        A ``.npy`` file of records of type :data:`pcitrace.runfolder.CLOCK_EXCHANGES`.

    Returns
    -------
    array of records, and tuple of str

    Raises
    ------
    ConfigurationError
        The file holds none.
    """
    start, rows = _head(path, CLOCK_EXCHANGES, "file of clock exchanges")
    with path.open("rb") as file:
        file.seek(start)
        records = np.fromfile(file, CLOCK_EXCHANGES, rows)
    cut = f"{path}: cut off: {len(records)} of {rows} exchanges are whole"
    return records, () if len(records) == rows else (cut,)


def streams(path: Path) -> list[tuple[int, int, int]]:
    """Return the streams of a log without keeping it: number, node that sent it, and the length that most frames have.

    Raises
    ------
    ConfigurationError
        As for :func:`read`.
    """
    start, rows = _head(path)
    lengths: dict[int, npt.NDArray[np.int64]] = {}
    for _, records in _chunks(path, start, min(rows, max(0, path.stat().st_size - start) // FRAME_LOG.itemsize)):
        both, length = (records.view(WHOSE)[name] for name in ("whose", "length_bytes"))
        alike = bool((both == both[0]).all())
        for one in both[:1].tolist() if alike else np.unique(both).tolist():
            mine = length if alike else length[both == one]
            counts = lengths.setdefault(one, np.zeros(1 << 16, np.int64))
            if bool((mine == mine[0]).all()):
                counts[mine[0] & np.iinfo(np.uint16).max] += len(mine)
            else:
                counts += np.bincount(mine & np.iinfo(np.uint16).max, minlength=1 << 16)
    found = ((one & 0xFFFF, one >> 16, int(counts.argmax())) for one, counts in lengths.items())
    return sorted(found)


def _head(path: Path, record: np.dtype[np.void] = FRAME_LOG, what: str = "frame log") -> tuple[int, int]:
    """Return where the records begin, and how many the header counts."""
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ConfigurationError(f"{path}: not a {what}: NumPy format {version}, expected (1, 0)", path)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            start = file.tell()
    except (ValueError, EOFError, SyntaxError, TokenError) as error:
        raise ConfigurationError(f"{path}: not a {what}: no whole NumPy .npy header", path) from error
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}", path) from error
    if dtype != record or len(shape) != 1 or shape[0] < 0:
        names = ", ".join(record.names or ())
        raise ConfigurationError(f"{path}: not a {what}: records are {dtype}; expected the fields {names}", path)
    return start, int(shape[0])


def _chunks(path: Path, start: int, count: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """Yield records and where they stand; each time in the same memory."""
    room = np.empty(min(CHUNK, count), FRAME_LOG)
    with path.open("rb") as file:
        file.seek(start)
        at = 0
        while at < count:
            records = room[: min(CHUNK, count - at)]
            got = file.readinto(records.view(np.uint8).data) // FRAME_LOG.itemsize
            if not got:
                return
            yield at, records[:got]
            at += got
