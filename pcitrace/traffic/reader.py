"""Reads the pieces of one host again and again, each time by what the reading before taught.

Each round learns the cost table from the reading before (`costs`) and reads again (`pcitrace.lattice`). From what
readings begin, and which of them counts, is in :mod:`pcitrace.traffic.search`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.lattice import CLOSER, COST, STATES, Costs, Goals, Learner, Limits, Reading, Sequence, Table, read
from pcitrace.traffic import costs
from pcitrace.traffic.alone import Alone
from pcitrace.traffic.goals import RECEIVE, SEND, Claimed, Layout, Target, goals_of, layouts, with_skips
from pcitrace.traffic.named import Words
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.spare import NEARLY_ALL
from pcitrace.traffic.stated import Stated

__all__ = [
    "FEW",
    "HARDLY",
    "NOTHING",
    "SETTLED",
    "SMALL",
    "TINY",
    "WIDE",
    "WIDEST",
    "Fixed",
    "How",
    "Reader",
    "Targets",
    "cost_of",
    "nothing",
    "only",
    "sequence_of",
    "until",
]

ROUNDS, FEW, SETTLED = 6, 2, 3
"""Readings at most, each of which learns from the one before; those that tell whether a beginning is worth more; and
beginnings that are followed to their ends."""

WIDE, SURELY = 256, 1024
"""States an item where little is known yet, and where margins count; so many where pieces are few.

No margin is told beyond the best state that was left out. With 256 those of a whole host stopped at 10.7 nats
(`cardbench`, batched-status 1249, control lines alone) that are 13.8; with 3,000 they were the same as with 1,024."""

TINY = 400
"""Pieces up to which half of what a reading teaches is forgotten: where more was seen, few do not make themselves
likely."""

SMALL = 2500
"""Pieces up to which there is time for everything: 2,350 of one host and 1,644 of the other took 17 s. It bounds time,
and is no size of any card. Of one that cuts its bursts at lines 60 frames are as many; with 800 a reading of 1,093 (a
card of another maker, cacheline, 16 channels), in which each frame began at a later line, was 280 nats dearer than the
truth."""

WIDEST, FORCED = 1536, 48
"""States an item where fewer lost the way, and where the labels are given. Many are needed where sends and receives
take turns piece by piece."""

HARDLY = 3.0
"""Nats a frame by which another way to cut all of them must be dearer; else which is right is not told. The truth was
dearer by 2.2 a frame on the host that it was learned on; on four that were right the other way was by 3.8 to 11.5."""

NEVER = 1e4
"""Nats for what is not to be."""

NOTHING = 0.5
"""Nats by which a reading has to be cheaper to be looked at further; one that is not dearer by more is as likely."""

BACK_BYTES = 64
"""A read that was disconnected may be begun again so much before: a cache line."""

Fixed = tuple[Layout | None, Layout | None]
"""The layouts of both tracks that are given; None for that which a reading shows."""

NOTHING_GIVEN: tuple[float, Fixed] = (np.inf, (None, None))
"""What a reading costs to which nothing led, and the layouts that were given for it."""

Targets = tuple[Target | None, Target | None]
"""What sends come before and what receives come after; None where nothing tells."""


class How(NamedTuple):
    """How a reading is taken: no dearer than the one before, with the labels of that one, with margins."""

    firm: bool
    given: bool
    margins: bool


@dataclass(frozen=True)
class Reader:
    """Reads the pieces of one host again and again, each time by what the reading before taught.

    `header` has the data phases of the first buffer of sends, if it is said that they lie in two. What came after a
    reading is `known`, by its labels, the layouts that were fixed and how it was read; what is `claimable` by the
    layout; how frames lie by what a reading says of their track; and what was `given` of that where a reading was come
    to at the least cost.
    """

    pieces: Pieces
    write: Integers
    targets: Targets
    unit: int
    stated: Stated
    words: Words | None
    header: int = 0
    known: dict[object, Reading] = field(default_factory=dict)
    claimable: dict[tuple[int, Layout], Goals] = field(default_factory=dict)
    lies: dict[tuple[int, bytes], Layout] = field(default_factory=dict)
    given: dict[bytes, tuple[float, Fixed]] = field(default_factory=dict)

    @cached_property
    def alone(self) -> Alone:
        """What each piece costs by itself."""
        naming = self.words.naming(self.pieces, self.write) if self.words is not None else None
        return Alone(self.pieces, self.write, self.targets, naming)

    @cached_property
    def first(self) -> Table:
        """The costs before anything was learned."""
        return costs.first(self.pieces.bus.data_phases, BACK_BYTES, self.unit, self.header)

    def agreeing(self, side: int, reading: Reading) -> float:
        """Return the share of a track's segments that have the data phases of their targets, in one layout."""
        target = self.targets[side]
        if target is None or not len(target):
            return 1.0
        fits = self.fitting(side, target, reading)
        return float(fits.mean()) if fits.size else 1.0

    def fitting(self, side: int, target: Target, reading: Reading) -> Booleans:
        """Return which segments of a track have the data phases of their targets, in one layout."""
        return Claimed(side, self.pieces, reading, target, self.unit).fitting([self.layout(side, reading)])

    def cheapest(self, tried: list[Reading]) -> Reading:
        """Return the cheapest of some readings that is shown."""
        return min(self.shown(tried), key=cost_of)

    def shown(self, tried: list[Reading]) -> list[Reading]:
        """Return those of some readings in which no card reads on to the end of a block, where its frames are equal and
        one of these readings explains nearly all that the cheapest does, for hardly more; else all.

        With blocks any descriptor before frames of one length is part of them, and nothing but addresses shows that it
        is. Of 138 hosts of a stranger's generated cards (16 channels) such readings were, on 12, all that made the
        beginnings of sends doubtful; on two that were looked at they were 9 and 23 nats cheaper than the truth.
        """
        best = min(tried, key=cost_of)
        equal = [
            (side, target, NEARLY_ALL * self.fitting(side, target, best).sum())
            for side, target in enumerate(self.targets)
            if target is not None and target.seen and target.alike and not self.pieces.bus.has_address
        ]
        plain = [one for one in tried if all(self.lies_plainly(side, target, one) for side, target, _ in equal)]
        most = best.cost + HARDLY * sum(self.fitting(side, target, best).sum() for side, target, _ in equal)
        explains = any(
            one.cost < most and all(self.fitting(side, target, one).sum() >= least for side, target, least in equal)
            for one in plain
        )
        return plain if explains else tried

    def lies_plainly(self, side: int, target: Target, reading: Reading) -> bool:
        """Return whether no block is needed for a track's segments: as many fit without, in one buffer."""
        lies = self.layout(side, reading)
        if not lies.block:
            return True
        others = [one for one in layouts(side, lies.whole, self.unit, False) if not one.block]
        fits = Claimed(side, self.pieces, reading, target, self.unit).fitting(others).sum(axis=1)
        return bool(fits.max(initial=0) >= self.fitting(side, target, reading).sum())

    @property
    def small(self) -> bool:
        """Whether there is time for everything."""
        return len(self.pieces) <= SMALL

    @property
    def wide(self) -> int:
        """States an item where little is known yet."""
        return WIDE if self.small else STATES

    def limits(self, states: int) -> Limits:
        """Return what the search keeps: where pieces are many, nothing much dearer than the best."""
        return Limits(states, COST if self.small else CLOSER)

    def count(self, side: int) -> int:
        """Return how many targets a track has."""
        target = self.targets[side]
        return len(target) if target is not None else 0

    def head(self, reading: Reading) -> tuple[Reader, Reading]:
        """Return what reads the first pieces, and what a reading says of them."""
        head, first = self.pieces.take(np.arange(SMALL)), reading.first(SMALL)
        targets = until(head, first, self.targets)
        return Reader(head, self.write[:SMALL], targets, self.unit, self.stated, self.words, self.header), first

    def settle(
        self,
        now: Reading,
        fixed: Fixed = (None, None),
        rounds: int = ROUNDS,
        given: bool = False,
        margins: bool = False,
    ) -> Reading:
        """Return the last of some readings, each of which learns from the one before; its cost has what was learned."""
        how = How(firm=rounds == ROUNDS, given=given, margins=margins and self.small)
        for _ in range(rounds):
            before, now = now, self.after(now, fixed, how)
            if now.same(before):
                break
        return self.after(now, fixed, how._replace(margins=True)) if margins > how.margins else now

    def after(self, now: Reading, fixed: Fixed, how: How) -> Reading:
        """Return the reading that learns from another one; of few pieces from each once, as many starts come to one."""
        learner, lie = Learner(), self.lying(now, fixed)
        key = (now.labels(), lie, how) if self.small else None
        if key in self.known:
            return self.known[key]
        taught = self.taught(now, lie, learner)
        limits = self.limits(SURELY if how.margins and self.small else STATES)
        if how.given:
            found = _as_labelled(*taught, now)
        elif how.firm:
            found = _read_on(partial(read, *taught, margins=how.margins), _as_labelled(*taught, now), limits)
        else:
            found = read(*taught, limits, how.margins)
        found.cost += learner.nats + sum(layout.cost for layout in lie)
        found.cost += sum(self.stated.otherwise(side, lie[side]) for side in (SEND, RECEIVE))
        found.cost += self.stated.missing(found, self.pieces.bus.data_phases, self.write, self.unit)
        if key is not None:
            self.known[key] = found
            least, _ = self.given.get(found.labels(), NOTHING_GIVEN)
            if found.cost < least:
                self.given[found.labels()] = found.cost, fixed
        return found

    def lying(self, now: Reading, fixed: Fixed) -> tuple[Layout, Layout]:
        """Return how the frames of both tracks lie in memory."""
        return fixed[SEND] or self.layout(SEND, now), fixed[RECEIVE] or self.layout(RECEIVE, now)

    def goals(self, side: int, layout: Layout) -> Goals:
        """Return what the segments of a track may claim, if frames lie in memory like this."""
        if (side, layout) not in self.claimable:
            self.claimable[side, layout] = goals_of(side, self.targets[side], layout, self.unit)
        return self.claimable[side, layout]

    def taught(
        self, now: Reading, lie: tuple[Layout, Layout], learner: Learner
    ) -> tuple[Sequence, tuple[Goals, Goals], Table]:
        """Return the pieces, what they may claim, and the costs that a reading teaches."""
        sends, receives = (self.goals(side, lie[side]) for side in (SEND, RECEIVE))
        target = self.targets[SEND]
        if target is not None and not target.seen:
            sends = with_skips(SEND, sends, now, learner)
        goals = (sends, with_skips(RECEIVE, receives, now, learner))
        sequence = sequence_of(self.pieces, self.alone.costs(now, goals, learner), self.unit)
        return sequence, goals, costs.learned(sequence, goals, now, self.first, learner)

    def as_it_is(self, reading: Reading) -> Reading:
        """Return a reading with what it costs by what it teaches itself."""
        return self.settle(reading, rounds=1, given=True)

    def layout(self, side: int, reading: Reading) -> Layout:
        """Return the layout in which most frames of a track agree with the wire; or that with which a reading was
        read, if it was given and nothing led to the same for less.

        Where pieces are cut and read again, more frames agree in a layout that is dearer in all.
        """
        target = self.targets[side]
        if target is None or not len(target):
            return Layout(0, 0, True)
        _, given = self.given.get(reading.labels(), NOTHING_GIVEN) if self.small else NOTHING_GIVEN
        fixed = given[side]
        if fixed is not None:
            return fixed
        key = (side, reading.labels_of(side)) if self.small else None
        if key is None or key not in self.lies:
            claimed = Claimed(side, self.pieces, reading, target, self.unit)
            lies = claimed.layout(partial(self.stated.otherwise, side))
            if key is None:
                return lies
            self.lies[key] = lies
        return self.lies[key]


def _read_on(reading_with: Callable[[Limits], Reading], before: Reading, limits: Limits) -> Reading:
    """Read within such limits; what is found is no dearer than what was before, or that again, and nothing of it sure.

    Where it is dearer, the search has lost its way: it looks again and keeps more states, of few pieces also dearer
    ones. Of a capture that began inside a send the first pieces, left over, were 31 nats dearer than another way until
    later ones told (a card of another maker, cut-through, 16 channels): no edge of that host was sure.
    """
    while True:
        found = reading_with(limits)
        if found.cost <= before.cost + NOTHING:
            return found
        if limits.states >= WIDEST:
            return before
        limits = Limits(4 * limits.states, limits.nats if limits.nats < COST else 2 * limits.nats)


def _as_labelled(sequence: Sequence, goals: tuple[Goals, Goals], table: Table, reading: Reading) -> Reading:
    """Read with the track of each piece given."""
    labels = sequence.alone.copy()
    for column, track in enumerate((-1, SEND, RECEIVE)):
        labels[reading.track != track, column] += NEVER
    return read(replace(sequence, alone=labels), goals, table, Limits(FORCED), margins=False)


def only(side: int, layout: Layout) -> Fixed:
    """Fix the layout of one track."""
    return (layout, None) if side == SEND else (None, layout)


def cost_of(reading: Reading) -> float:
    """Return what a reading costs, to compare them by."""
    return reading.cost


def nothing(count: int) -> Reading:
    """Return a reading that leaves everything over."""
    none, no = np.full(count, -1), np.zeros(count, dtype=bool)
    return Reading(none, no, no, none, np.zeros((count, 4), np.float32), np.inf, none)


def sequence_of(pieces: Pieces, alone: Costs, unit: int) -> Sequence:
    """Return pieces as the lattice reads them, with what each costs by itself."""
    bus = pieces.bus
    place = np.where(bus.address >= 0, bus.address & ~3, -1).astype(np.int64)
    behind = (bus.address & ~np.int64(unit - 1)) + unit * bus.data_phases.astype(np.int64)
    return Sequence(
        np.ascontiguousarray(pieces.begin_us, np.float64),
        np.ascontiguousarray(pieces.ready_us, np.float64),
        np.ascontiguousarray(bus.last_data_us, np.float64),
        bus.data_phases.astype(np.uint32),
        pieces.cut.astype(np.uint8),
        np.ascontiguousarray(place),
        np.where(place >= 0, behind, -1),
        np.ascontiguousarray(alone),
    )


def until(head: Pieces, first: Reading, targets: Targets) -> Targets:
    """Return the targets up to the end of the first pieces, and all that what was found of these claims."""
    until_us = float(head.bus.last_data_us[-1])
    sends, receives = (
        None
        if one is None
        else one.first(max(int(np.searchsorted(one.start_us, until_us)), first.last_target(side) + 1))
        for side, one in enumerate(targets)
    )
    return sends, receives
