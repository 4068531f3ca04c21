"""Memory that the kernel frees, given back to the system: its own allocator keeps it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["give_back", "given_back"]

TOGETHER = 1 << 17
"""Transactions that are gone through together: of fewer the calls would cost more than the work."""

EVERY = 1 << 20
"""Transactions after which it is worth the time: of 70 bytes each."""


def give_back() -> None:
    """Have glibc give back what is free.

    By itself it gives back only what lies at the end of each thread's heap, and the tables that the kernel's threads
    made, in columns of some 100 kB, seldom do. Arrays have memory of their own and never use it again. Other C
    libraries have no malloc_trim.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


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
