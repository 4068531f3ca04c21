"""Memory that the kernel frees, given back to the system: its own allocator keeps it."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["give_back", "given_back"]

TOGETHER = 1 << 16
"""Transactions that are gone through together: of fewer the calls would cost more than the work, and twice as many took
30 MiB more of a report of 6.2 M."""

EVERY = 1 << 20
"""Transactions after which it is worth the time: of 70 bytes each."""

WORTH_BYTES = 70 * EVERY
"""As many free bytes in memory are worth the time, too: what is given back and used again is cleared by the system
once more. With 32 MiB the analysis of runs of 280,000 and 980,000 transactions took 13 and 17 % longer; with 100 MiB a
report of 6.2 M took 10 MiB more, and no less time."""


def give_back() -> None:
    """Have glibc give back what is free, if that is much.

    By itself it gives back only what lies at the end of each thread's heap, and the tables that the kernel's threads
    made, in columns of some 100 kB, seldom do. Arrays have memory of their own and never use it again. Other C
    libraries have no malloc_trim.
    """
    trim = _trim()
    if trim is not None:
        trim()


@cache
def _trim() -> _Trim | None:
    libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "malloc_trim") or not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = _Info
    return _Trim(libc.malloc_trim, lambda: libc.mallinfo2().in_use)


class _Info(ctypes.Structure):
    """What mallinfo2(3) says: ten sizes."""

    _fields_ = (("bytes", ctypes.c_size_t * 10),)

    @property
    def in_use(self) -> int:
        """What is allocated on the heap, and as maps of their own."""
        return int(self.bytes[7] + self.bytes[4])


@dataclass
class _Trim:
    """Trims the heap if much more is in memory beside what is in use than after it last did."""

    trim: Callable[[int], Any]
    in_use_bytes: Callable[[], int]
    least_bytes: int = 0

    def __call__(self) -> None:
        if self._beside_bytes() - self.least_bytes >= WORTH_BYTES:
            self.trim(0)
            self.least_bytes = self._beside_bytes()

    def _beside_bytes(self) -> int:
        """Return how much of this process is in memory that is not in use: what is free, and programs."""
        return _in_memory_bytes() - self.in_use_bytes()


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
