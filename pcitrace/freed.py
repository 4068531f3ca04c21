"""Memory that the kernel frees, given back to the system: its own allocator keeps it."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["give_back", "given_back"]

TOGETHER = 1 << 17
"""Transactions that are gone through together: of fewer the calls would cost more than the work."""

EVERY = 1 << 20
"""Transactions after which it is worth the time: of 70 bytes each."""

WORTH_BYTES = 70 * EVERY
"""As many bytes more than there were in memory before are worth the time, too: what is given back and used again is
cleared by the system once more, which took a third of the analysis of a run of 260,000 transactions, and half of one of
980,000."""


def give_back() -> None:
    """Have glibc give back what is free, if that may be much.

    By itself it gives back only what lies at the end of each thread's heap, and the tables that the kernel's threads
    made, in columns of some 100 kB, seldom do. Arrays have memory of their own and never use it again. Other C
    libraries have no malloc_trim.
    """
    trim = _trim()
    if trim is not None:
        trim()


@cache
def _trim() -> _Trim | None:
    there = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")
    return _Trim(ctypes.CDLL(None).malloc_trim) if there else None


@dataclass
class _Trim:
    """Trims the heap if much more is in memory than the least since it last did."""

    trim: Any
    least_bytes: int = 0

    def __call__(self) -> None:
        there = _in_memory_bytes()
        if there - self.least_bytes >= WORTH_BYTES:
            self.trim(0)
            self.least_bytes = _in_memory_bytes()
        self.least_bytes = min(self.least_bytes, there)


def _in_memory_bytes() -> int:
    """Return how much of this process is in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def given_back(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Give the parts of a table, some together; who keeps none of them has only the rest of it in memory."""
    import pyarrow as pa

    parts, rows = iter(parts), 0
    while some := list(_some(parts)):
        yield pa.Table.from_batches(some)
        rows += sum(map(len, some))
        del some
        if rows >= EVERY:
            rows = 0
            give_back()
    give_back()


def _some(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    while rows < TOGETHER and (part := next(parts, None)) is not None:
        rows += len(part)
        yield part
