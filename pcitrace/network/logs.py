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

__all__ = ["CORRUPT", "DUPLICATE", "UNKNOWN_NS", "Log", "empty", "read", "read_exchanges", "streams"]

UNKNOWN_NS = np.iinfo(np.int64).min
"""A time that is not known."""

CORRUPT, DUPLICATE = 1, 2
"""Flags of a record: the frame was damaged on the way; it is a copy of one already received."""

COLUMNS = ("sequence", "send_ns", "receive_ns", "flags", "stream", "node", "length_bytes")

NARROW = {"flags": np.dtype(np.uint8), "length_bytes": np.dtype(np.uint16)}
"""Columns that need less than they have in the file."""

CHUNK = 1 << 18
"""Records that are turned into columns at a time: they fit the cache."""


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
    findings = () if whole >= rows else (f"{path}: cut off: {whole} of {rows} records are whole",)
    count = min(rows, whole)
    columns: dict[str, Any] = {
        name: np.empty(count, np.uint8 if name == "flags" else FRAME_LOG[name]) for name in COLUMNS
    }
    for at, records in _chunks(path, start, count):
        here = slice(at, at + len(records))
        for name, column in columns.items():
            column[here] = records[name] & np.iinfo(column.dtype).max if name in NARROW else records[name]
    return Log(path, findings=findings, **columns)


def empty(path: Path) -> Log:
    """Return the log of a host that received nothing, which writes none."""
    columns: dict[str, Any] = {name: np.empty(0, NARROW.get(name, FRAME_LOG[name])) for name in COLUMNS}
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
        both = (records["stream"].astype(np.uint32) << 16) | records["node"]
        alike = bool((both == both[0]).all())
        for one in both[:1].tolist() if alike else np.unique(both).tolist():
            mine = records["length_bytes"] if alike else records["length_bytes"][both == one]
            counts = np.bincount(mine & np.iinfo(np.uint16).max, minlength=1 << 16)
            lengths[one] = lengths.get(one, 0) + counts
    return [(one >> 16, one & 0xFFFF, int(counts.argmax())) for one, counts in sorted(lengths.items())]


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
    with path.open("rb") as file:
        file.seek(start)
        at = 0
        while at < count:
            records = np.fromfile(file, FRAME_LOG, min(CHUNK, count - at))
            if not len(records):
                return
            yield at, records
            at += len(records)
