"""Pieces at an edge that no frame needs: with each of them a frame has the length of the wire, and without it too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.lattice import Goals, Reading, segment_units
from pcitrace.traffic.pieces import Pieces

__all__ = ["not_needed"]

BEGIN_AND_END = (1, 2)
"""Columns of a reading's margins: beginnings, ends."""

MOSTLY = 0.5
"""Share of a track's frames that have a piece at an edge which the bytes on the wire leave over, if most have one."""

LONGEST = 1 << 12
"""Data phases that no frame has: one that may be as long is of a wire whose rate is not known, and no length tells."""


def not_needed(pieces: Pieces, reading: Reading, track: int, goals: Goals, bare: Goals) -> Reading:
    """Return the reading with no edge that is sure where a track's frames have a piece that none of them needs.

    `goals` and `bare` are what they may claim: as the reading says that they lie in memory, and with nothing around
    their bytes.

    Lengths on a sampled wire are known to a byte or two, and a buffer may begin at any byte of a word, so a frame may
    have a data phase more or not. That one alone, in a transaction of its own, may as well be a status or a descriptor.
    Where a frame has a piece of that size there that it does need, such pieces are parts of frames. On a generated host
    (`cardbench`, batched-status 70) the status that is written behind every fourth send was its last word, in a reading
    that was 70 nats cheaper than the truth: that such a status comes at all costs more than that frames have a rest.
    Addresses tell what is part of a frame.
    """
    rows = np.flatnonzero((reading.track == track) & (reading.target >= 0))
    if not len(rows) or pieces.bus.has_address:
        return reading
    rows = rows[np.argsort(reading.segment[rows], kind="stable")]
    begins, size = reading.begins[rows], pieces.bus.data_phases[rows].astype(np.int64)
    head = np.flatnonzero(begins)
    tail = np.append(head[1:], len(rows)) - 1
    target = reading.target[rows[head]]
    spare, beyond = (
        segment_units(size, pieces.cut[rows], begins, one.again) - one.least[target].astype(np.int64)
        for one in (goals, bare)
    )
    several = (tail > head) & (goals.most[target] < LONGEST)
    margins = reading.margins.copy()
    for column, at in zip(BEGIN_AND_END, (head, tail), strict=True):
        doubted, around = (_none_needs(size[at], one, several) for one in (spare, beyond))
        if around.sum() > MOSTLY * several.sum():
            doubted |= around
        margins[rows[at[doubted]], column] = 0.0
    return replace(reading, margins=margins)


def _none_needs(size: Integers, spare: Integers, several: Booleans) -> Booleans:
    """Return which edges have a piece that its frame does not need, and none a piece of that size that it needs."""
    needed = np.unique(size[several & (size > spare)])
    return several & (size <= spare) & ~np.isin(size, needed)
