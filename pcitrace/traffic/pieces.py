"""The NIC's transactions as a sequence of pieces: each moved data, attempts that were retried before are part of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.traffic.csr import join_attempts

__all__ = ["Pieces"]


@dataclass(frozen=True)
class Pieces:
    """Pieces in order of time.

    Attributes
    ----------
    rows : array of int
        The transactions that moved data, as rows of the NIC's.
    bus : BusTable
        These transactions.
    begin_us : array of float
        Address phase of the first attempt.
    ready_us : array of float
        When that could have been, had nothing been on the bus.
    """

    rows: Integers
    bus: BusTable
    begin_us: Floats
    ready_us: Floats

    @classmethod
    def of(cls, nics: BusTable) -> Pieces:
        """Put the attempts of each piece and what they came to together."""
        start_us, number = nics.start_us, join_attempts(nics)
        rows = np.flatnonzero(nics.data_phases > 0).astype(np.int32)
        rows = rows[np.argsort(start_us[rows], kind="stable")]
        again = np.bincount(number, minlength=1)[number[rows]] > 1
        begin_us, ready_us = (_first(one, number, rows, again) for one in (start_us, nics.busy_since_us))
        return cls(rows, nics.take(rows), begin_us, np.minimum(ready_us, begin_us, out=ready_us))

    @cached_property
    def cut(self) -> Booleans:
        """Whether the target ended each before the initiator did, or with it and the next one moves its data again."""
        cut = self.bus.cut.copy()
        cut[:-1] |= self.bus.moved_again[1:]
        return cut

    def take(self, which: Integers) -> Pieces:
        """Return some of the pieces."""
        return Pieces(self.rows[which], self.bus.take(which), self.begin_us[which], self.ready_us[which])

    def __len__(self) -> int:
        return len(self.rows)


def _first(time_us: Floats, number: Integers, rows: Integers, again: Booleans) -> Floats:
    """Return a time of some transactions, the least of all with the same number where there are others."""
    out = time_us[rows]
    if again.any():
        least = np.full(int(number.max()) + 1, np.inf)
        np.minimum.at(least, number, time_us)
        out[again] = least[number[rows[again]]]
    return np.asarray(out)
