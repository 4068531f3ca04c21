"""Which accesses of the host start which sends: the cheapest reading of all of them, and how sure each is.

What a reading costs is in :mod:`pcitrace.frames.doorbellcosts`, from what readings begin in
:mod:`pcitrace.frames.doorbellstarts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pcitrace.columns import Floats, Integers
from pcitrace.frames.doorbellcosts import Known, Reader, Usual
from pcitrace.frames.doorbellstarts import RULED_OUT, against, settle
from pcitrace.frames.sends import Sends
from pcitrace.traffic.csr import CONFIGURATION, NO_DATA

__all__ = ["Doorbells", "find"]


@dataclass(frozen=True)
class Doorbells:
    """The accesses that start sends.

    Attributes
    ----------
    first, last : arrays of int
        For each send the first and last access that start it, as rows of `Accesses`; -1 if none does.
    margins : array of float, shape (sends, 2)
        How sure either is, in nats.
    send : array of int
        For each access the first send that it starts; -1 for none.
    sure : array of float
        Of each access, how much worse the best reading is in which it is something else; NaN where none was tried.
    sends : Sends
        What was read as released.
    usual : Usual
        What they teach of other doorbells.
    in_step : bool
        Whether their values go on by the sends that they release.
    """

    first: Integers
    last: Integers
    margins: Floats
    send: Integers
    sure: Floats
    sends: Sends
    usual: Usual
    in_step: bool = False

    def sureness(self) -> float:
        """Return how sure it is of most sends, in nats."""
        least = self.margins.min(axis=1)
        return float(np.nanmedian(least)) if len(least) and not np.isnan(least).all() else 0.0


def find(known: Known, ways: Sequence[Sends], first: Integers, last: Integers) -> Doorbells:
    """Find the CSR accesses that start each send.

    Parameters
    ----------
    known : Known
    ways : sequence of Sends
        The same sends, as they may be read.
    first, last : arrays of int
        The first and last access of each send by other rules, to begin with; -1 for none.
    """
    csr = known.csr
    rows = np.flatnonzero((csr.reason != CONFIGURATION) & (csr.reason != NO_DATA))
    none, unsure = np.full(len(ways[0]), -1), np.full((len(ways[0]), 2), np.nan)
    send, sure = np.full(len(csr), -1), np.full(len(csr), np.nan)
    starts = Doorbells(none, none.copy(), unsure, send, sure, ways[0], Usual.anything())
    if not len(rows) or not len(none):
        return starts
    place = np.full(len(csr) + 1, -1)
    place[rows] = np.arange(len(rows))
    ends = []
    for sends in ways:
        reader = Reader(known, rows, sends)
        end = settle(reader, place[first], place[last])
        ends.append((replace(end, cost=end.cost + reader.leading()), reader))
    (found, reader), *others = sorted(ends, key=lambda one: one[0].cost)
    for other, _ in others:
        found = against(found, other)
    rung = np.flatnonzero(found.last >= 0)
    first, last = none.copy(), none.copy()
    first[rung], last[rung] = rows[found.first[rung]], rows[found.last[rung]]
    for send in rung[::-1]:
        starts.send[rows[found.first[send] : found.last[send] + 1]] = send
    starts.sure[rows] = found.item
    margins = found.margins.astype(float)
    if reader.proved(found):
        margins[:, 1] = np.maximum(margins[:, 1], RULED_OUT)
    taught = reader.teaches(found)
    return Doorbells(first, last, margins, starts.send, starts.sure, reader.sends, taught, reader.in_step(found))
