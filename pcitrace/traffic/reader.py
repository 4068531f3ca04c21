"""Reads the pieces of one host again and again: from many beginnings, each time by what the reading before taught.

Each round learns the cost table from the reading before (`costs`) and reads again (`pcitrace.lattice`). The cheapest
end counts; no margin is larger than what the others cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.facts import HEADER_BYTES
from pcitrace.lattice import (
    BEGINS,
    CLOSER,
    COST,
    STATES,
    WHOSE,
    Costs,
    Goals,
    Learner,
    Limits,
    Reading,
    Sequence,
    Table,
    read,
)
from pcitrace.traffic import costs
from pcitrace.traffic.alone import Alone
from pcitrace.traffic.asked import AGREED, FAR, SURE
from pcitrace.traffic.goals import (
    BLOCK,
    LINES,
    PIECE,
    RECEIVE,
    SEND,
    Claimed,
    Layout,
    Target,
    goals_of,
    layouts,
    may_be_parted,
    unknown_layout,
    with_skips,
)
from pcitrace.traffic.named import Words
from pcitrace.traffic.peaks import peaked, peaks
from pcitrace.traffic.period import as_well_later
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.spare import (
    AS_WELL,
    BEGIN,
    BEGIN_AND_END,
    END,
    NEARLY_ALL,
    exchanges,
    from_inside,
    may_turn,
    moved_on,
    not_needed,
    torn,
    unlike_others,
    without,
)
from pcitrace.traffic.stated import Stated
from pcitrace.traffic.variants import ALIKE_WAYS, Able, read_again, shifts, variants

__all__ = ["FEW", "NOTHING", "TINY", "How", "Reader", "Targets", "cost_of", "only", "until"]

ROUNDS, FEW, OTHERWISE = 6, 2, 3
"""Readings at most, each of which learns from the one before; those that tell whether a start is worth more; and
whether a layout is: on a host whose frames are read on to blocks of 32 bytes (`cardbench`, mixed 1142) the third
reading was 90 nats cheaper than the second."""

PEAKS, SETTLED = 3, 3
"""Lags that are tried of each track, and starts that are followed to their ends."""

TRIED = ((True, PEAKS, 0), (False, FEW, 0), (True, 1, BLOCK[-1]))
"""Layouts that lags are tried with: whole or not, how many lags, and the block to whose end a card may read on. The
last are sends' alone: their frames are longer in memory than is looked for else."""

HALVES, TURNS, TINY = 8, 3, 400
"""Readings that begin with half of what the cheapest teaches, how often, and the pieces up to which there are any:
where more was seen, few pieces do not make themselves likely. On the host of which `by_halves` speaks two of eight
found the truth; on one whose frames overlap and are cut anywhere the first eight found nothing, the second 17 nats."""

WIDE, SURELY = 256, 1024
"""States an item where little is known yet, and where margins count; so many where pieces are few.

No margin is told beyond the best state that was left out. With 256 those of a whole host stopped at 10.7 nats
(`cardbench`, batched-status 1249, control lines alone) that are 13.8; with 3,000 they were the same as with 1,024."""

SMALL = 2500
"""Pieces up to which there is time for everything: 2,350 of one host and 1,644 of the other took 17 s. It bounds time,
and is no size of any card. Of one that cuts its bursts at lines 60 frames are as many; with 800 a reading of 1,093 (a
card of another maker, cacheline, 16 channels), in which each frame began at a later line, was 280 nats dearer than the
truth."""

WIDEST, FORCED = 1536, 48
"""States an item where fewer lost the way, and where the labels are given. Many are needed where sends and receives
take turns piece by piece."""

DOUBTS = (AGREED, WHOSE), (SURE, WHOSE), (SURE, BEGINS), (FAR, BEGINS)
"""Nats below which what a reading says is read otherwise, all at once, and of what: whose a piece is, or where a
segment begins. The nats are those that answers ask for. Readings begin here, and what they cost decides. Which pairs
are tried was chosen on generated cards alone (`cardbench` 1257 and 1258); with (`FAR`, `WHOSE`) half of a bus could be
read otherwise (equal-lengths 1257), dearer by 120 to 4,200 nats."""

HARDLY = 3.0
"""Nats a frame by which another way to cut all of them must be dearer; else which is right is not told. The truth was
dearer by 2.2 a frame on the host that it was learned on; on four that were right the other way was by 3.8 to 11.5."""

RARELY, LEAST_VALLEY_US = 0.05, 0.2
"""Share of the shortest and of the longest pauses that tell no valley, and the shortest that may."""

NEVER = 1e4
"""Nats for what is not to be."""
OTHERS = 8
"""Layouts that are tried beside the best."""

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


@dataclass(frozen=True)
class _Guess:
    """A layout of the frames of one track, and the bin of the lag that most have; None if nothing tells."""

    layout: Layout
    lag: int | None


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

    def best(self, first: Reading, certain: Booleans, starts: list[Reading]) -> tuple[Reading, Reading]:
        """Return the cheapest of all readings that are tried, no surer than the others leave it; and than those alone
        that give each piece whose content is certain to the target that the first reading gives it to.

        Where a header may end in single words, what is come to if it does is a beginning, too. No other one led to the
        truth, 260 nats cheaper, on a host whose headers were read word by word (a card of another maker,
        scatter-gather, 16 channels).
        """
        if self.small and not self.header:
            for header in self.headers():
                parted = replace(self, header=header, known={}, given={})
                starts = [*starts, self.settle(parted.cheapest(parted.tried(first, starts)))]
        tried = self.shown(self.tried(first, starts))
        best = by_content = self.settle(min(tried, key=cost_of), margins=True)
        for other in tried:
            best = best.against(other)
            claims = certain & (other.track == first.track) & (other.target >= 0)
            if not (claims & (other.target != first.target)).any():
                by_content = by_content.against(other)
        return self.by_lengths(best), self.by_lengths(by_content)

    def headers(self) -> list[int]:
        """Return the data phases that most sends may have in a buffer of their own whose end is read as single words:
        an Ethernet header, word by word, or what is mostly there.
        """
        size, header = self.pieces.bus.data_phases.astype(np.int64), -(-HEADER_BYTES // self.unit)
        order = np.arange(len(size))
        larger = np.flatnonzero((size[:-1] == 1) & (size[1:] > 1)) + 1
        singles = (order - np.maximum.accumulate(np.where(size > 1, order, -1)))[larger - 1]
        before = larger - singles - 1
        whole = (size[before] + singles)[before >= 0]
        many = np.bincount(whole[whole > header], minlength=1)
        often = {header: int(np.count_nonzero(singles >= header)), int(many.argmax()): int(many.max())}
        return [units for units, count in often.items() if 2 * count > self.count(SEND) > 0]

    def tried(self, first: Reading, starts: list[Reading]) -> list[Reading]:
        """Return what is come to from many beginnings, and what is cheaper beside it."""
        tried = (
            [self.settle(first), *self.from_peaks(), *self.each_way_alone()]
            if self.small
            else [self.settle(first, rounds=FEW), self.from_head(first)]
        ) + starts
        for _ in range(FEW if self.small else 1):
            best = self.cheapest(tried)
            found = self.other_ways(best)
            tried += found
            if min(found, key=cost_of, default=best).cost >= best.cost - NOTHING:
                break
            tried.append(self.settle(min(found, key=cost_of)))
        for turn in range(TURNS if len(self.pieces) <= TINY else 0):
            best = self.cheapest(tried)
            tried += self.by_halves(best, turn * HALVES)
            if self.cheapest(tried).cost < best.cost - NOTHING:
                tried += self.other_ways(self.cheapest(tried))
        if self.small:
            best = self.cheapest(tried)
            tried += [one for one in self.doubted_otherwise(best) if one.cost < best.cost]
        return tried

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

    def by_lengths(self, reading: Reading) -> Reading:
        """Return a reading with no edge that is sure where the length of frames on their wire speaks against it."""
        for side in (SEND, RECEIVE):
            target = self.targets[side]
            if target is None or not target.seen:
                continue
            lies = self.layout(side, reading)
            bare = replace(lies, added=self.stated.added(side), spare=0, block=0, again=0)
            goals = self.goals(side, lies)
            if side == SEND and self.later(reading):
                reading = replace(reading, margins=np.where((reading.track == SEND)[:, None], 0.0, reading.margins))
            header = -(-HEADER_BYTES // self.unit) if lies.buffers > 1 else 0
            reading = not_needed(self.pieces, reading, side, (goals, self.goals(side, bare)), header)
            reading = unlike_others(self.pieces, reading, side, goals)
            reading = self.as_well_exchanged(reading, side)
            reading = self.as_well_from_inside(reading, side)
            reading = self.as_well_without_blocks(reading, side, lies)
            reading = may_turn(self.pieces, reading, side, goals, self.write != 1 - side)
            if side == SEND and lies.whole:
                reading = torn(self.pieces, reading)
        return reading

    def as_well_exchanged(self, reading: Reading, side: int) -> Reading:
        """Return a reading with no edge that is sure of the frames of a track that may have a piece beside them instead
        of one as large, if that is hardly less likely.

        Addresses tell what is part of a frame. Before each receive of a host, all of 64 bytes, eight descriptors of two
        words were read; its header of 14 bytes was written, and then the sixteen words of the rest (a card of another
        maker, scatter-gather, 16 channels). With the descriptors for its rest, and the rest left over, a reading was 31
        nats cheaper than the truth. Of another such host these eight words were taken for the last of every second.
        """
        if self.pieces.bus.has_address:
            return reading
        for one, frames in exchanges(self.pieces, reading, side, self.write != 1 - side):
            if self.as_it_is(one).cost < reading.cost + HARDLY * frames:
                reading = without(without(reading, one, side, BEGIN), one, side, END)
        return reading

    def as_well_from_inside(self, reading: Reading, side: int) -> Reading:
        """Return a reading with no edge that is sure if nearly all frames of a track may have it where a piece inside
        is no part of them: so they lie in memory in a layout, too.

        Addresses tell what is part of a frame. On a host (a card of another maker, scatter-gather, 16 channels) two
        descriptors were read before each receive, whose header of 66 bytes lay in a buffer of its own. They seemed to
        be the header: with them a receive was as long but for a word, and the header was left over.
        """
        target, claimed = self.targets[side], reading.target[(reading.track == side) & reading.begins]
        claimed = claimed[claimed >= 0]
        if target is None or not len(claimed) or self.pieces.bus.has_address:
            return reading
        # Equal frames fit wherever they begin.
        lies = self.layout(side, reading)
        if 2 * np.unique(self.goals(side, lies).least[claimed], return_counts=True)[1].max() > len(claimed):
            return reading
        some = layouts(side, lies.whole, self.unit, True)
        found = reading
        for column in BEGIN_AND_END:
            for other in from_inside(reading, side, self.write != 1 - side, column):
                fits = Claimed(side, self.pieces, other, target, self.unit).fitting(some)
                moved = reading.segment[(reading.track == side) & (reading.track != other.track)]
                if len(np.unique(moved)) >= AS_WELL * len(claimed) and fits.mean(axis=1).max(initial=0.0) >= AS_WELL:
                    found = without(found, other, side, column)
        return found

    def as_well_without_blocks(self, reading: Reading, side: int, lies: Layout) -> Reading:
        """Return a reading with no edge that is sure if frames go on to the end of a block, but nearly all would not
        without their first piece and with some that follow them.

        Addresses tell what is part of a frame. A card (of another maker, scatter-gather, 16 channels) read the last
        words of each send one by one; these were left over, and its descriptor, of a block, was the beginning.
        """
        target = self.targets[side]
        claimed = reading.target[(reading.track == side) & reading.begins & (reading.target >= 0)]
        if target is None or not lies.block or not len(claimed) or self.pieces.bus.has_address:
            return reading
        mine, more = moved_on(self.pieces, reading, side, self.write != 1 - side)
        goals = self.goals(side, replace(lies, added=lies.added % self.unit, block=0))
        size = mine[:, None] + more
        fits = (more > 0) & (size >= goals.least[claimed, None]) & (size <= goals.most[claimed, None])
        # Some that are always as many may be the next descriptor.
        if fits.any(axis=1).mean() < AS_WELL or len(np.unique(more[fits])) < FEW:
            return reading
        return replace(reading, margins=np.where((reading.track == side)[:, None], 0.0, reading.margins))

    def later(self, reading: Reading) -> bool:
        """Return whether all sends may as well be later frames on the wire: see :mod:`pcitrace.traffic.period`."""
        target, bus = self.targets[SEND], self.pieces.bus
        head = np.flatnonzero((reading.track == SEND) & (reading.target >= 0) & reading.begins)
        if target is None or not len(head) or bus.has_address:
            return False
        head = head[np.argsort(reading.target[head], kind="stable")]
        seen_us = float(bus.first_data_us[0]), float(bus.last_data_us[-1])
        return as_well_later(target, reading.target[head], bus.first_data_us[head], seen_us)

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

    def near(self, first: Reading) -> list[Reading]:
        """Return what a reading comes to, and those that differ from it alike in every frame.

        The cheapest of these are read on: what the costs were learned from is not yet what was read.
        """
        found = list[Reading]()
        for side in (SEND, RECEIVE):
            found += [self.settle(one, rounds=1) for one in self.varied(first, side)]
        itself = self.settle(first, rounds=FEW)
        others = sorted((one for one in found if not one.same(itself)), key=cost_of)
        cheapest = list({one.labels(): one for one in others}.values())[:SETTLED]
        return [itself, *found, *(self.settle(one, rounds=FEW) for one in cheapest)]

    def other_ways(self, best: Reading) -> list[Reading]:
        """Return the readings that settle where all frames of a track are read otherwise, each in the same way."""
        if not self.small:
            return self.as_in_the_head(best)
        found = []
        for side in (SEND, RECEIVE):
            found += [self.settle(best, only(side, layout), OTHERWISE) for layout in self.other_layouts(side, best)]
            lies = self.layout(side, best)
            found.append(self.settle(best, only(side, replace(lies, whole=not lies.whole)), OTHERWISE))
            found += [self.settle(one, rounds=FEW) for one in self.varied(best, side)]
        return found + [self.settle(joined, way, FEW) for joined, way in self.cut_and_read_again(best)]

    def as_in_the_head(self, best: Reading) -> list[Reading]:
        """Return of these readings only those that differ in the way that is cheapest of the first pieces.

        And those in which frames are another frame: of lost ones the first pieces need not know. On a generated host
        with 1,075 pieces (`cardbench`, cacheline 100, no profile) each receive had the status behind it; a reading
        without was 176 nats cheaper, and not tried.
        """
        near, first = self.head(best)
        now, found = near.settle(first, rounds=FEW).cost, list[Reading]()
        for side in (SEND, RECEIVE):
            nats = [near.settle(one, rounds=FEW).cost for one in islice(near.varied(first, side), ALIKE_WAYS)]
            if min(nats, default=np.inf) < now - NOTHING:
                at = int(np.argmin(nats))
                found += [self.settle(one, rounds=FEW) for one in islice(self.varied(best, side), at, at + 1)]
            others = shifts(best, side, self.count(side), self.able(best, side))
            found += [self.settle(one, rounds=1) for one in others]
        nats = [near.settle(joined, way, FEW).cost for joined, way in near.cut_and_read_again(first)]
        if min(nats, default=np.inf) < now - NOTHING:
            joined, way = self.cut_and_read_again(best)[int(np.argmin(nats))]
            found.append(self.settle(joined, way, FEW))
        return found

    def doubted_otherwise(self, now: Reading) -> list[Reading]:
        """Return what comes of a reading where all that is doubted is read otherwise, at once; again, where that is
        cheaper.

        A mistake that is alike in some frames makes itself likely: each of them alone is dearer without it, all of them
        together need not be. On a generated host (`cardbench`, equal-lengths 1257, 300 frames) every eighth send seemed
        to begin with the descriptors that are read between its first pieces. Each was surer than 2 to 16 nats; without
        all of them the reading was 9 to 13 nats cheaper. On five simulated hosts whose sends and receives take turns,
        all right, what it came to was dearer by 4 to 150; on overloaded receivers it may be far cheaper, and wrong.
        """
        found, best = list[Reading](), now
        for _ in range(FEW):
            now = best
            found += [one for one in self.otherwise(now) if _keeps(now, one)]
            best = min([now, *found], key=cost_of)
            if best.cost >= now.cost - NOTHING:
                break
        return found

    def otherwise(self, now: Reading) -> Iterator[Reading]:
        """Give what comes of a reading where it is dearer by so many nats that a piece is whose it seems to be, or a
        beginning where one seems to be, if that is not surer.
        """
        now = self.settle(now, rounds=1, margins=True)
        sequence, goals, table = self.taught(now, self.lying(now, (None, None)), Learner())
        for nats, what in DOUBTS:
            known = np.minimum(now.bound, nats)
            doubted = now.begins & (now.margins[:, 1] < known) if what == BEGINS else now.margins[:, 0] < known
            if doubted.any():
                alone = sequence.alone.copy()
                alone[doubted, what + now.track[doubted]] += nats
                taught = replace(sequence, alone=alone), goals, table
                yield self.settle(read(*taught, self.limits(self.wide), margins=False), rounds=FEW)

    def cut_and_read_again(self, best: Reading) -> list[tuple[Reading, Fixed]]:
        """Return the reading in which what was cut and is left over is part of the send that follows it; and in which
        layouts a card does that.
        """
        cut = self.pieces.cut
        if self.targets[SEND] is None or not (cut & (best.track < 0)).any():
            return []
        joined, lies = read_again(best, SEND, cut), self.layout(SEND, best)
        return [(joined, only(SEND, replace(lies, again=line))) for line in (*LINES, PIECE)]

    def lengthened(self, first: Reading, side: int) -> dict[int, float]:
        """Return what it costs that all frames of a track have more data phases, by how many."""
        target, out = self.targets[side], dict[int, float]()
        if target is None or target.seen or not (first.track == side).any():
            return out
        layout = self.layout(side, first)
        now = self.settle(first, only(side, layout), FEW)
        for one in self.varied(first, side):
            more = self.more(side, first, one)
            if more:
                there = replace(layout, added=layout.added + more * self.unit)
                other = self.settle(one, only(side, there), FEW)
                if self.more(side, first, other) == more:
                    out[more] = min(out.get(more, np.inf), now.against_by(other))
        return out

    def more(self, side: int, one: Reading, other: Reading) -> int:
        """Return how many data phases more most frames of a track have in another reading."""
        sizes = []
        for reading in (one, other):
            mine = (reading.track == side) & (reading.target >= 0)
            units = self.pieces.bus.data_phases[mine]
            sizes.append(np.bincount(reading.target[mine], weights=units, minlength=len(self.pieces)))
        count = min(map(len, sizes))
        both = (sizes[0][:count] > 0) & (sizes[1][:count] > 0)
        return round(float(np.median((sizes[1][:count] - sizes[0][:count])[both]))) if both.any() else 0

    def varied(self, reading: Reading, side: int) -> Iterator[Reading]:
        """Give the readings that differ from one alike in all frames of a track."""
        bus = self.pieces.bus
        pause_us = np.append(np.inf, self.pieces.begin_us[1:] - bus.last_data_us[:-1])[: len(self.pieces)]
        return variants(reading, side, self.count(side), pause_us, self.able(reading, side))

    def count(self, side: int) -> int:
        """Return how many targets a track has."""
        target = self.targets[side]
        return len(target) if target is not None else 0

    def able(self, reading: Reading, side: int) -> Able:
        """Return whether each piece's segment could be the target before its own in time, and the one behind it.

        In the other host's memory nothing is seen of that: two captures may lie otherwise on one axis.
        """
        target, bus, count = self.targets[side], self.pieces.bus, self.count(side)
        mine = (reading.track == side) & (reading.target >= 0)
        out = np.ones((2, len(mine)), dtype=bool)
        if target is None or not target.seen or not mine.any():
            return out[0], out[1]
        whole = self.layout(side, reading).whole
        first_us, last_us = np.full((2, count), np.nan)
        first_us[reading.target[mine & reading.begins]] = bus.first_data_us[mine & reading.begins]
        last_us[reading.target[mine & reading.ends]] = bus.last_data_us[mine & reading.ends]
        for by in (-1, 1):
            at = reading.target[mine]
            other = np.clip(at + by, 0, count - 1)
            if side == RECEIVE:
                soon = first_us[at] < (target.end_us if whole else target.start_us)[other]
            else:
                soon = (last_us if whole else first_us)[at] > target.start_us[other]
            out[int(by > 0), mine] = ~soon
        return out[0], out[1]

    def head(self, reading: Reading) -> tuple[Reader, Reading]:
        """Return what reads the first pieces, and what a reading says of them."""
        head, first = self.pieces.take(np.arange(SMALL)), reading.first(SMALL)
        targets = until(head, first, self.targets)
        return Reader(head, self.write[:SMALL], targets, self.unit, self.stated, self.words, self.header), first

    def from_head(self, reading: Reading) -> Reading:
        """Return the reading that settles from what the first pieces teach, for which there is time for everything.

        On a host of 4,600 pieces (`cardbench`, mixed 1181, control lines), whose card writes and reads while the wire
        goes on, the likeliest lags of all pieces took reads for receives; those of the first 800 did not.
        """
        return self.as_taught(*self.of_head(reading))

    def of_head(self, reading: Reading) -> tuple[Reader, Reading]:
        """Return what reads the first pieces, and the cheapest reading of them."""
        near, first = self.head(reading)
        key = "head", first.labels()
        if key not in self.known:
            self.known[key], _ = near.best(first, np.zeros(SMALL, dtype=bool), [])
        return near, self.known[key]

    def as_taught(self, other: Reader, taught: Reading) -> Reading:
        """Return the reading that settles from what a reading of other pieces teaches.

        No piece is known yet. On a host whose sends and receives take turns (`cardbench`, scatter-gather 1189) 256
        states an item lost the way, and what it came to was 360 nats dearer.
        """
        lie = other.lying(taught, (None, None))
        table = other.taught(taught, lie, Learner())[2]
        sends, receives = (self.goals(side, lie[side]) for side in (SEND, RECEIVE))
        alone = self.alone.costs(_nothing(len(self.pieces)), (sends, receives), Learner())
        states = WIDEST if self.small else WIDE
        sequence = _sequence(self.pieces, alone, self.unit)
        first = read(sequence, (sends, receives), table, self.limits(states), margins=False)
        return self.settle(first, lie, FEW)

    def from_peaks(self) -> list[Reading]:
        """Return the readings that settle from the likeliest lags of both tracks.

        A card whose sends overlap with the wire mostly receives like that, too: neither is likely without the other.
        """
        sends, receives = (self.guesses(side) for side in (SEND, RECEIVE))
        alone = [(send, receives[0]) for send in sends] + [(sends[0], receive) for receive in receives[1:]]
        both = list(product(*([one for one in some if not one.layout.whole] for some in (sends, receives))))
        tried = [self.from_guess(*pair) for pair in alone + both]
        costs_ = [one.cost for one in tried[: len(alone)]]
        send = sends[int(np.argmin(costs_[: len(sends)]))]
        receive = [receives[0], *receives[1:]][int(np.argmin([costs_[0], *costs_[len(sends) :]]))]
        if (send, receive) not in alone + both:
            tried.append(self.from_guess(send, receive))
        tried.sort(key=cost_of)
        return [self.settle(one) for one in tried[:SETTLED]] + tried[SETTLED:]

    def each_way_alone(self) -> list[Reading]:
        """Return the reading that settles where what is read and what is written are read by themselves, if both are.

        Where sends and receives take turns on the bus, and pieces are read again, the likeliest lags of both at once
        lead astray. On two hosts of another maker (reread, 16 channels) it came near the truth, 185 and 210 nats
        cheaper than what all other beginnings came to. Addresses tell what goes on with what.
        """
        ways = np.where(self.write >= 0, self.write, self.alone.soon)
        if len(np.unique(ways)) < 2 or self.pieces.bus.has_address:
            return []
        track, target = np.full((2, len(ways)), -1)
        begins, ends = np.zeros((2, len(ways)), dtype=bool)
        for side in (SEND, RECEIVE):
            rows = np.flatnonzero(ways == side)
            targets = (self.targets[SEND], None) if side == SEND else (None, self.targets[RECEIVE])
            alone = Reader(self.pieces.take(rows), ways[rows], targets, self.unit, self.stated, self.words, self.header)
            found = alone.cheapest(alone.from_peaks())
            mine, rows = found.track == side, rows[found.track == side]
            track[rows], target[rows] = side, found.target[mine]
            begins[rows], ends[rows] = found.begins[mine], found.ends[mine]
        return [self.settle(Reading(track, begins, ends, target, np.zeros((len(ways), 4), np.float32), np.inf))]

    def guesses(self, side: int) -> list[_Guess]:
        """Return the likeliest lags of a track, with the layout in which they are such."""
        target, after = self.targets[side], side == RECEIVE
        out = []
        if target is not None and len(target):
            bus = self.pieces.bus
            for whole, count, block in TRIED[:2] if after else TRIED:
                edges_us = self.pieces.begin_us if after or not whole else bus.last_data_us
                times_us = target.end_us if after and whole else target.start_us
                layout = unknown_layout(side, whole, self.unit, block)
                order = np.argsort(edges_us, kind="stable")
                out += [_Guess(layout, int(at)) for at in peaks(times_us, edges_us[order], after, count)]
        return [_Guess(unknown_layout(side, True, self.unit), None), *out]

    def from_guess(self, *guesses: _Guess) -> Reading:
        """Return the cheaper of what two guesses of the longest pause inside a frame come to."""
        tried = [self.settle(self.guessed(longest_us, *guesses), rounds=FEW) for longest_us in (np.inf, self.valley_us)]
        return min(tried, key=cost_of)

    @cached_property
    def valley_us(self) -> float:
        """A pause that is rare, between shorter and longer ones: where most pauses inside frames may end."""
        bus = self.pieces.bus
        pauses = np.sort(self.pieces.begin_us[1:] - bus.last_data_us[:-1])
        pauses = pauses[int(len(pauses) * RARELY) : int(len(pauses) * (1 - RARELY))]
        pauses = pauses[pauses >= LEAST_VALLEY_US]
        if len(pauses) < FEW:
            return float(np.inf)
        widest = int(np.argmax(pauses[1:] / pauses[:-1]))
        return float(np.sqrt(pauses[widest] * pauses[widest + 1]))

    def guessed(self, longest_us: float, *guesses: _Guess) -> Reading:
        """Return the cheapest reading where nothing is known but the lags, and the longest pause inside a frame."""
        table = self.first
        tracks = tuple(
            costs.pausing(
                track
                if guess.lag is None
                else replace(track, lag=np.stack([peaked(track.lag[0], guess.lag), track.lag[1]])),
                longest_us,
            )
            for track, guess in zip(map(costs.parted, table.tracks), guesses, strict=True)
        )
        nothing = _nothing(len(self.pieces))
        sends, receives = (self.goals(side, guesses[side].layout) for side in (SEND, RECEIVE))
        sequence = _sequence(self.pieces, self.alone.costs(nothing, (sends, receives), Learner()), self.unit)
        table, limits = replace(table, tracks=(tracks[0], tracks[1])), self.limits(self.wide)
        return read(sequence, (sends, receives), table, limits, margins=False)

    def other_layouts(self, side: int, reading: Reading) -> list[Layout]:
        """Return the layouts that a track could have instead."""
        target = self.targets[side]
        if target is None or not (reading.track == side).any():
            return []
        now = self.layout(side, reading)
        parted = may_be_parted(side, self.pieces, reading, self.unit)
        # Of those that ask for as many data phases of every frame one is enough.
        asking = {self._asking(side, one): one for one in [*layouts(side, now.whole, self.unit, parted)[::-1], now]}
        others = [one for one in reversed(asking.values()) if one != now]
        fits = Claimed(side, self.pieces, reading, target, self.unit).fitting(others).sum(axis=1)
        return [others[at] for at in np.argsort(-fits, kind="stable")[:OTHERS]]

    def _asking(self, side: int, layout: Layout) -> tuple[bytes, bytes, int]:
        """Return what a layout says of how much each frame of a track has, to be compared."""
        goals = self.goals(side, layout)
        return goals.least.tobytes(), goals.most.tobytes(), goals.again if self.pieces.cut.any() else 0

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

    def by_halves(self, best: Reading, first: int) -> list[Reading]:
        """Return what comes of the cheapest reading where half of what it teaches is forgotten.

        What is alike in a few segments only makes itself likely: on a host with 12 frames three reads of descriptors
        were received frames, each because the other two were.
        """
        found = []
        for seed in range(first, first + HALVES):
            learner = Learner(forgets=np.random.default_rng(seed))
            taught = self.taught(best, self.lying(best, (None, None)), learner)
            found.append(self.settle(read(*taught, self.limits(self.wide), margins=False), rounds=FEW))
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
        sequence = _sequence(self.pieces, self.alone.costs(now, goals, learner), self.unit)
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


def _keeps(now: Reading, other: Reading) -> bool:
    """Return whether another reading has at least half the segments of each track: one without explains nothing.

    Frames that all look alike cost least where none of them is a frame: all receives of a simulated host
    ("acenic-fig3.1", 45 frames) could be left over for 70 nats less.
    """
    return all(
        2 * np.count_nonzero(other.begins & (other.track == side)) >= np.count_nonzero(now.begins & (now.track == side))
        for side in (SEND, RECEIVE)
    )


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


def _nothing(count: int) -> Reading:
    """Return a reading that leaves everything over."""
    none, no = np.full(count, -1), np.zeros(count, dtype=bool)
    return Reading(none, no, no, none, np.zeros((count, 4), np.float32), np.inf, none)


def _sequence(pieces: Pieces, alone: Costs, unit: int) -> Sequence:
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
