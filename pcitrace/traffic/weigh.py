"""A host's DMA read at the least cost: from a first reading, and from nothing, with what the card itself teaches.

Each round learns the cost table from the reading before (`costs`) and reads again (`pcitrace.lattice`). The cheaper of
the two ends counts; no margin is larger than what the other costs more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pcitrace.columns import Integers
from pcitrace.lattice import Costs, Learner, Reading, Sequence, read
from pcitrace.traffic import costs
from pcitrace.traffic.alone import Alone
from pcitrace.traffic.dma import SHORTEST_RECEIVED, Dma
from pcitrace.traffic.goals import (
    RECEIVE,
    SEND,
    Layout,
    Target,
    fitting,
    goals_of,
    layout_of,
    layouts,
    unknown_layout,
    with_skips,
)
from pcitrace.traffic.peaks import peaked, peaks
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.reading import claiming
from pcitrace.traffic.variants import shifts, variants

__all__ = ["Found", "alike", "confirmed", "weigh"]

ROUNDS, FEW = 6, 2
"""Readings at most, each of which learns from the one before; those that tell whether a start is worth more."""

PEAKS, SETTLED = 3, 3
"""Lags that are tried of each track, and starts that are followed to their ends."""

WIDE, SMALL = 256, 800
"""States an item where little is known yet and where margins count, and the pieces up to which so many are kept."""

ALL = 0.98
"""Share of the frames found so far that must have the data phases of their frames on the wire, in one layout.

On generated cards (`tests/cardbench`, seed 101, control lines) all frames had that of hosts whose reading was right; of
the hosts with wrong frames about half had less."""

LOOKED_AT, CONFIRMED = 300, 0.98
"""Pieces of a host of which the rules' reading is held against the cheapest near it, and the share of edges that must
be the same: on generated cards (`tests/cardbench`, seeds 402 and 403, control lines) that was so of all hosts whose
reading was right but one, and of one of the nine that had wrong frames."""

CHECKED = 20_000
"""Transactions of a host up to which this is looked at: the time that it takes is bounded."""

OTHERS = 4
"""Layouts that are tried beside the best."""

NOTHING = 0.5
"""Nats by which a reading has to be cheaper to be looked at further."""

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
    first, reader = _started(pieces, dma, found, targets)
    reading = reader.best(first)
    return pieces, reading if None in targets else claiming(reading)


def alike(dma: Dma, found: tuple[Found, Found], targets: tuple[Target | None, Target | None]) -> bool:
    """Return whether nearly all sends found so far have the data phases of their frames on the wire, in one layout.

    Not receives: of those that an overloaded card drops it is not known which frames they are.
    """
    if len(dma.bus) > CHECKED or targets == (None, None):
        return True
    first, reader = _started(Pieces.of(dma.bus), dma, found, targets)
    return reader.agreeing(SEND, first) >= ALL


def confirmed(dma: Dma, found: tuple[Found, Found], targets: tuple[Target | None, Target | None]) -> bool:
    """Return whether the cheapest reading near what was found so far says the same of the host's first pieces."""
    if targets == (None, None):
        return True
    pieces = Pieces.of(dma.bus)
    head = pieces.take(np.arange(min(len(pieces), LOOKED_AT)))
    if not len(head):
        return True
    first = _first_reading(head, dma, found, targets)
    until_us = float(head.bus.last_data_us[-1])
    near = [
        None
        if one is None
        else one.first(max(int(np.searchsorted(one.start_us, until_us)), first.last_target(side) + 1))
        for side, one in enumerate(targets)
    ]
    first, reader = _started(head, dma, found, (near[SEND], near[RECEIVE]))
    cheapest = min(reader.near(first), key=_cost)
    edges = first.edges()
    return len(edges & cheapest.edges()) >= CONFIRMED * len(edges)


def _started(
    pieces: Pieces, dma: Dma, found: tuple[Found, Found], targets: tuple[Target | None, Target | None]
) -> tuple[Reading, _Reader]:
    """Return what was found so far as a reading, and what reads on from it."""
    first = _first_reading(pieces, dma, found, targets)
    return first, _Reader(pieces, dma.write[pieces.rows], targets, _width(dma, pieces, first, targets))


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
class _Guess:
    """A layout of the frames of one track, and the bin of the lag that most have; None if nothing tells."""

    layout: Layout
    lag: int | None


@dataclass(frozen=True)
class _Reader:
    """Reads the pieces of one host again and again, each time by what the reading before taught."""

    pieces: Pieces
    write: Integers
    targets: tuple[Target | None, Target | None]
    unit: int

    @cached_property
    def alone(self) -> Alone:
        """What each piece costs by itself."""
        return Alone(self.pieces, self.write)

    def agreeing(self, side: int, reading: Reading) -> float:
        """Return the share of a track's segments that have the data phases of their targets, in one layout."""
        target = self.targets[side]
        if target is None or not len(target):
            return 1.0
        fits = fitting(side, self.pieces, reading, target, self.layout(side, reading), self.unit)
        return float(fits.mean()) if len(fits) else 1.0

    def best(self, first: Reading) -> Reading:
        """Return the cheapest of all readings that are tried, no surer than the others leave it."""
        tried = [self.settle(first), *self.from_peaks()]
        for _ in range(FEW if self.small else 1):
            best = min(tried, key=_cost)
            found = self.other_ways(best)
            tried += found
            if min(found, key=_cost, default=best).cost >= best.cost - NOTHING:
                break
            tried.append(self.settle(min(found, key=_cost)))
        best = self.settle(min(tried, key=_cost), states=self.wide)
        for other in tried:
            best = best.against(other)
        return best

    @property
    def small(self) -> bool:
        """Whether there is time for everything."""
        return len(self.pieces) <= SMALL

    @property
    def wide(self) -> int:
        """States an item where little is known yet, and where margins count."""
        return WIDE if self.small else 0

    def near(self, first: Reading) -> list[Reading]:
        """Return what a reading comes to, and those that differ from it alike in every frame."""
        found = [self.settle(first, rounds=FEW)]
        for side in (SEND, RECEIVE):
            target = self.targets[side]
            count = len(target) if target is not None else 0
            found += [self.settle(one, rounds=1) for one in variants(first, side, count)]
        return found

    def other_ways(self, best: Reading) -> list[Reading]:
        """Return the readings that settle where all frames of a track are read otherwise, each in the same way."""
        found = []
        for side in (SEND, RECEIVE):
            target = self.targets[side]
            for layout in self.other_layouts(side, best) if self.small else ():
                fixed = (layout, None) if side == SEND else (None, layout)
                found.append(self.settle(best, fixed, FEW))
            count = len(target) if target is not None else 0
            ways = variants if self.small else shifts
            found += [self.settle(one, rounds=FEW) for one in ways(best, side, count)]
        return found

    def from_peaks(self) -> list[Reading]:
        """Return the readings that settle from the likeliest lags of both tracks."""
        sends, receives = (self.guesses(side) for side in (SEND, RECEIVE))
        pairs = [(send, receives[0]) for send in sends] + [(sends[0], receive) for receive in receives[1:]]
        tried = [self.settle(self.guessed(*pair), rounds=FEW) for pair in pairs]
        costs_ = [one.cost for one in tried]
        send = sends[int(np.argmin(costs_[: len(sends)]))]
        receive = [receives[0], *receives[1:]][int(np.argmin([costs_[0], *costs_[len(sends) :]]))]
        if (send, receive) not in pairs:
            tried.append(self.settle(self.guessed(send, receive), rounds=FEW))
        tried.sort(key=_cost)
        return [self.settle(one) for one in tried[:SETTLED]] + tried[SETTLED:]

    def guesses(self, side: int) -> list[_Guess]:
        """Return the likeliest lags of a track, with the layout in which they are such."""
        target, after = self.targets[side], side == RECEIVE
        out = []
        if target is not None and len(target):
            bus = self.pieces.bus
            for whole, count in ((True, PEAKS), (False, FEW)):
                edges_us = self.pieces.begin_us if after or not whole else bus.last_data_us
                times_us = target.end_us if after and whole else target.start_us
                layout = unknown_layout(side, whole, self.unit)
                order = np.argsort(edges_us, kind="stable")
                out += [_Guess(layout, int(at)) for at in peaks(times_us, edges_us[order], after, count)]
        return [_Guess(unknown_layout(side, True, self.unit), None), *out][: None if self.small else FEW]

    def guessed(self, *guesses: _Guess) -> Reading:
        """Return the cheapest reading where nothing is known but the lags."""
        table = costs.first(self.pieces.bus.data_phases, BACK_BYTES, self.unit)
        tracks = tuple(
            track
            if guess.lag is None
            else replace(track, lag=np.stack([peaked(track.lag[0], guess.lag), track.lag[1]]))
            for track, guess in zip(table.tracks, guesses, strict=True)
        )
        nothing = _nothing(len(self.pieces))
        sends, receives = (
            goals_of(side, self.targets[side], guesses[side].layout, self.unit) for side in (SEND, RECEIVE)
        )
        sequence = _sequence(self.pieces, self.alone.costs(nothing, (sends, receives), Learner()), self.unit)
        return read(sequence, (sends, receives), replace(table, tracks=(tracks[0], tracks[1])), self.wide)

    def other_layouts(self, side: int, reading: Reading) -> list[Layout]:
        """Return the layouts that a track could have instead."""
        target = self.targets[side]
        if target is None or not (reading.track == side).any():
            return []
        now = self.layout(side, reading)
        others = [one for one in layouts(side, now.whole, self.unit) if one != now]
        others.sort(key=lambda one: -fitting(side, self.pieces, reading, target, one, self.unit).sum())
        return others[:OTHERS]

    def settle(
        self,
        now: Reading,
        fixed: tuple[Layout | None, Layout | None] = (None, None),
        rounds: int = ROUNDS,
        states: int = 0,
    ) -> Reading:
        """Return the last of some readings, each of which learns from the one before; its cost has what was learned."""
        start = costs.first(self.pieces.bus.data_phases, BACK_BYTES, self.unit)
        for _ in range(rounds):
            before, learner = now, Learner()
            lie = [fixed[side] or self.layout(side, now) for side in (SEND, RECEIVE)]
            sends, receives = (goals_of(side, self.targets[side], lie[side], self.unit) for side in (SEND, RECEIVE))
            goals = (sends, with_skips(receives, now, learner))
            sequence = _sequence(self.pieces, self.alone.costs(now, goals, learner), self.unit)
            table = costs.learned(sequence, goals, now, start, learner)
            now = read(sequence, goals, table, states)
            now.cost += learner.nats + sum(layout.cost for layout in lie)
            if now.same(before):
                break
        return now

    def layout(self, side: int, reading: Reading) -> Layout:
        """Return the layout in which most frames of a track agree with the wire."""
        return layout_of(side, self.pieces, reading, self.targets[side], self.unit)


def _cost(reading: Reading) -> float:
    return reading.cost


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
