"""The data phases of one bus as numpy arrays, found by transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from pcitrace.columns import Floats, Integers, floats, integers

__all__ = ["Phases"]


@dataclass(frozen=True)
class Phases:
    """Data phases of one bus, in order of their transactions; -1 stands for null.

    64-bit data wraps to negative numbers from 2**63 on; what is unknown is told by `byte_enables` or `known`.
    """

    transaction: Integers
    time_us: Floats
    data: Integers
    byte_enables: Integers

    @classmethod
    def of(cls, data_phases: pd.DataFrame) -> Self:
        """Read the table `data_phases` of one bus."""
        return cls(
            integers(data_phases, "transaction"),
            floats(data_phases, "time_us"),
            integers(data_phases, "data"),
            integers(data_phases, "byte_enables"),
        )

    def __len__(self) -> int:
        return len(self.time_us)

    def ranges(self, transactions: Integers) -> tuple[Integers, Integers]:
        """Return first row and number of rows of each of the given transactions."""
        begin = np.searchsorted(self.transaction, transactions, side="left")
        return begin, np.searchsorted(self.transaction, transactions, side="right") - begin

    def first(self, transactions: Integers) -> Integers:
        """Return the first data of each of the given transactions; -1 where none moved."""
        if not len(self):
            return np.full(len(transactions), -1)
        begin, length = self.ranges(transactions)
        return np.where(length > 0, self.data[np.minimum(begin, len(self) - 1)], -1)

    def source_address(self, transactions: Integers) -> Integers:
        """Return bytes 6 to 11 of frames that begin with the given transactions; -1 where they end before that."""
        begin, length = self.ranges(transactions)
        at = np.minimum(begin, max(len(self) - 3, 0))
        source = (self.data[at + 1] >> 16 & 0xFFFF) << 32 | self.data[at + 2] & 0xFFFFFFFF
        return np.where(length >= 3, source, -1)

    def usual_source_address(self, transactions: Integers) -> int | None:
        """Return the source address that nearly all frames have which begin with the given transactions."""
        sources = self.source_address(transactions)
        values, counts = np.unique(sources[sources >= 0], return_counts=True)
        return int(values[counts.argmax()]) if len(values) and counts.max() >= 0.9 * counts.sum() else None
