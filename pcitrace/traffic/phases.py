"""The data phases of one bus, found by transaction.

They are many: the columns stay as they were decoded, in chunks, and only the rows that are asked for are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from pcitrace.bustable import BusTable
from pcitrace.columns import Integers, floats, integers

__all__ = ["Phases"]


@dataclass(frozen=True)
class _Column:
    """A column in chunks; `column[rows]` are its values at some rows."""

    chunks: Sequence[npt.NDArray[Any]]
    begin: Integers
    dtype: npt.DTypeLike

    @classmethod
    def of(cls, data_phases: pd.DataFrame, name: str, dtype: npt.DTypeLike) -> _Column:
        array = pa.array(data_phases[name], from_pandas=True)
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        if array.null_count or array.type not in (pa.uint64(), pa.uint8(), pa.float64()):
            # -1 or NaN stands for null.
            values = [(floats if dtype is np.float64 else integers)({"": chunk}, "") for chunk in chunks]
        else:
            values = [chunk.to_numpy() for chunk in chunks]
        return cls(values, np.cumsum([0, *map(len, values)], dtype=np.int64), dtype)

    def __getitem__(self, rows: Integers) -> npt.NDArray[Any]:
        if not (rows[1:] >= rows[:-1]).all():
            ascending, where = np.unique(rows, return_inverse=True)
            return self[ascending][where]
        edges = np.searchsorted(rows, self.begin)
        within = rows - np.repeat(self.begin[:-1], np.diff(edges))
        # There are many chunks: little is done with each.
        parts = [
            chunk.take(within[start:stop])
            for chunk, (start, stop) in zip(self.chunks, pairwise(edges.tolist()), strict=True)
            if start < stop
        ]
        return np.concatenate([np.empty(0, dtype=self.dtype), *parts], dtype=self.dtype, casting="unsafe")

    def part(self, first: int, last: int) -> _Column:
        """Return the values of some rows, as a column whose rows begin with 0."""
        cuts = [np.clip([first - begin, last - begin], 0, None) for begin in self.begin[:-1].tolist()]
        chunks = [chunk[a:b] for chunk, (a, b) in zip(self.chunks, cuts, strict=True) if len(chunk[a:b])]
        return _Column(chunks, np.cumsum([0, *map(len, chunks)], dtype=np.int64), self.dtype)


@dataclass(frozen=True)
class Phases:
    """Data phases of one bus, in order of their transactions; -1 stands for null, NaN for no time.

    64-bit data wraps to negative numbers from 2**63 on; what is unknown is told by `byte_enables`.

    Attributes
    ----------
    begin : array of int
        First row of each transaction, by its number, and the number of rows.
    time_us, data, byte_enables : columns
        What is asked of them by rows is an array.
    """

    begin: Integers
    time_us: _Column
    data: _Column
    byte_enables: _Column

    @classmethod
    def of(cls, data_phases: pd.DataFrame, transactions: BusTable) -> Phases:
        """Read the table `data_phases` of one bus; ValueError if it is not that of these transactions."""
        numbers = transactions.transaction
        begin = np.zeros(int(numbers.max(initial=-1)) + 2, dtype=np.int64)
        begin[numbers + 1] = transactions.data_phases
        np.cumsum(begin, out=begin)
        if begin[-1] != len(data_phases):
            raise ValueError(f"{len(data_phases)} data phases, but the transactions have {begin[-1]}")
        return cls(
            begin,
            _Column.of(data_phases, "time_us", np.float64),
            _Column.of(data_phases, "data", np.int64),
            _Column.of(data_phases, "byte_enables", np.int16),
        )

    def __len__(self) -> int:
        return int(self.begin[-1])

    def part(self, first: int, last: int) -> Phases:
        """Return those of the transactions from one number to before another, whose numbers then begin with 0."""
        begin = self.begin[first : last + 1]
        columns = (one.part(*begin[[0, -1]].tolist()) for one in (self.time_us, self.data, self.byte_enables))
        return Phases(begin - begin[0], *columns)

    def ranges(self, transactions: Integers) -> tuple[Integers, Integers]:
        """Return first row and number of rows of each of the given transactions."""
        begin = self.begin[transactions]
        return begin, self.begin[1:][transactions] - begin

    def first(self, transactions: Integers) -> Integers:
        """Return the first data of each of the given transactions; -1 where none moved."""
        if not len(self):
            return np.full(len(transactions), -1)
        begin, length = self.ranges(transactions)
        return np.where(length > 0, self.data[np.minimum(begin, len(self) - 1)], -1)

    def source_address(self, transactions: Integers) -> Integers:
        """Return bytes 6 to 11 of frames that begin with the given transactions; -1 where they end before that."""
        begin, length = self.ranges(transactions)
        out = np.full(len(begin), -1)
        long = length >= 3
        middle, last = self.data[(begin[long, None] + np.array([1, 2])).ravel()].reshape(-1, 2).T
        out[long] = (middle >> 16 & 0xFFFF) << 32 | last & 0xFFFFFFFF
        return out

    def usual_source_address(self, transactions: Integers) -> int | None:
        """Return the source address that nearly all frames have which begin with the given transactions."""
        sources = self.source_address(transactions)
        values, counts = np.unique(sources[sources >= 0], return_counts=True)
        return int(values[counts.argmax()]) if len(values) and counts.max() >= 0.9 * counts.sum() else None
