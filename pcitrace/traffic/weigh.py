"""A host's DMA read at the least cost: from a first reading, and from nothing, with what the card itself teaches.

Each round learns the cost table from the reading before (`costs`) and reads again (`pcitrace.lattice`). The cheaper of
the two ends counts; no margin is larger than what the other costs more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcitrace.columns import Integers
from pcitrace.lattice import Costs, Goals, Reading, Sequence, read
from pcitrace.traffic import costs
from pcitrace.traffic.alone import Alone
from pcitrace.traffic.dma import SHORTEST_RECEIVED, Dma
from pcitrace.traffic.goals import RECEIVE, SEND, Target, goals_of, with_skips
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.reading import claiming

__all__ = ["Found", "weigh"]

ROUNDS = 4
"""Readings; each learns from the one before."""

WIDE_BYTES = 6.0
"""Bytes a data phase, between those of a bus of 32 and of 64 bits."""

BACK_BYTES = 64
"""A read that was disconnected may be begun again so much before: a cache line."""


@dataclass(frozen=True)
class Found:
    """Frames of one direction that were found: one value a frame in each column.

    Attributes
    ----------
    burst : array of int
        The burst; -1 for none.
    target : array of int
        Its number among the targets of this direction; -1 for none.
    """

    burst: Integers
    target: Integers


def weigh(dma: Dma, found: tuple[Found, Found], targets: tuple[Target | None, Target | None]) -> tuple[Pieces, Reading]:
    """Read the pieces of one host at the least cost, from what was found so far.

    Parameters
    ----------
    dma : Dma
        The host's NIC transactions and the bursts that they were taken for.
    found : pair of Found
        The frames that it sends and receives, as far as they were found.
    targets : pair of Target or None
        What its sends come before, and what its receives come after; None where nothing tells.
    """
    pieces = Pieces.of(dma.bus)
    first = _first_reading(pieces, dma, found, targets)
    unit = _width(dma, pieces, first, targets)
    reader = _Reader(pieces, dma.write[pieces.rows], targets, unit)
    # What was found so far may be a bad start, and so may nothing at all: the cheaper end counts.
    ends = [reader.settle(first), reader.settle(None)]
    reading, other = sorted(ends, key=lambda end: end.cost)
    reading = reading.against(other)
    return pieces, reading if None in targets else claiming(reading)


def _width(dma: Dma, pieces: Pieces, reading: Reading, targets: tuple[Target | None, Target | None]) -> int:
    """Return the bytes of a data phase: without C/BE# by how many the frames on the wire have a data phase."""
    wide = bool((dma.bus.bytes > 4 * dma.bus.data_phases).any())
    if dma.bus.bytes_exact or wide:
        return 8 if wide else 4
    ratios = [np.zeros(0)]
    for side in (SEND, RECEIVE):
        target = targets[side]
        mine = (reading.track == side) & (reading.target >= 0)
        if target is not None and len(target) and mine.any():
            units = np.bincount(reading.target[mine], weights=pieces.bus.data_phases[mine], minlength=len(target))
            long = (units > 0) & (target.most < 1 << 16) & (target.least > 2 * SHORTEST_RECEIVED)
            ratios.append(target.least[long] / units[long])
    seen = np.concatenate(ratios)
    return 8 if len(seen) and np.median(seen) > WIDE_BYTES else 4


@dataclass(frozen=True)
class _Reader:
    """Reads the pieces of one host again and again, each time by what the reading before taught."""

    pieces: Pieces
    write: Integers
    targets: tuple[Target | None, Target | None]
    unit: int

    def settle(self, reading: Reading | None) -> Reading:
        """Return the last of some readings, the first of which learns from the one given; None: from nothing."""
        start = costs.first(self.pieces.bus.data_phases, BACK_BYTES, self.unit)
        alone = Alone(self.pieces, self.write)
        table, now = start, reading if reading is not None else _nothing(len(self.pieces))
        for number in range(ROUNDS):
            sends, receives = (
                goals_of(side, self.pieces, now, self.targets[side], self.unit) for side in (SEND, RECEIVE)
            )
            goals = (sends, with_skips(receives, now) if number else receives)
            sequence = _sequence(self.pieces, alone.costs(now, goals), self.unit)
            if number or reading is not None:
                table = costs.learned(sequence, goals, now, start, self.longest_us(goals))
            now = read(sequence, goals, table)
        return now

    def longest_us(self, goals: tuple[Goals, Goals]) -> tuple[float, float]:
        """Return the longest pauses inside frames: where wire and DMA overlap the card waits for the wire."""
        out = []
        for target, goal in zip(self.targets, goals, strict=True):
            longest = costs.LONGEST_US
            if target is not None and not goal.whole:
                wire_us = target.end_us - target.start_us
                longest = max(longest, float(wire_us[np.isfinite(wire_us)].max(initial=0.0)))
            out.append(longest)
        return out[SEND], out[RECEIVE]


def _nothing(count: int) -> Reading:
    """Return a reading that leaves everything over."""
    none, no = np.full(count, -1), np.zeros(count, dtype=bool)
    return Reading(none, no, no, none, np.zeros((count, 3), np.float32), np.inf, none)


def _first_reading(
    pieces: Pieces, dma: Dma, found: tuple[Found, Found], targets: tuple[Target | None, Target | None]
) -> Reading:
    """Return the reading that the bursts and frames found so far are."""
    burst = dma.burst[pieces.rows]
    count = int(dma.burst.max(initial=-1)) + 1
    track, target = np.full(count, -1), np.full(count, -1)
    for side in (SEND, RECEIVE):
        # Where targets were captured, what claims none is no frame at all, or one at the capture's end.
        some = (found[side].burst >= 0) & ((found[side].target >= 0) | (targets[side] is None))
        track[found[side].burst[some]] = side
        target[found[side].burst[some]] = found[side].target[some]
    order = np.arange(len(pieces))
    first, last = np.full(count, len(pieces)), np.full(count, -1)
    np.minimum.at(first, burst, order)
    np.maximum.at(last, burst, order)
    inside = track[burst] >= 0
    return Reading(
        track=track[burst],
        begins=inside & (first[burst] == order),
        ends=inside & (last[burst] == order),
        target=np.where(inside, target[burst], -1),
        margins=np.zeros((len(pieces), 3), np.float32),
        cost=np.inf,
        segment=np.where(inside, burst, -1),
    )


def _sequence(pieces: Pieces, alone: Costs, unit: int) -> Sequence:
    bus = pieces.bus
    place = np.where(bus.address >= 0, bus.address & ~3, -1).astype(np.int64)
    behind = (bus.address & ~np.int64(unit - 1)) + unit * bus.data_phases.astype(np.int64)
    return Sequence(
        np.ascontiguousarray(pieces.begin_us, np.float64),
        np.ascontiguousarray(pieces.ready_us, np.float64),
        np.ascontiguousarray(bus.last_data_us, np.float64),
        bus.data_phases.astype(np.uint32),
        bus.cut.astype(np.uint8),
        np.ascontiguousarray(place),
        np.where(place >= 0, behind, -1),
        np.ascontiguousarray(alone),
    )
