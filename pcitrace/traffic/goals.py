"""What the frames of one direction may be on a wire, and how much of memory each then takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.lattice import STRAY, Goals, Learner, Reading, in_nats, segment_units
from pcitrace.traffic.content import FCS, HEADER, WireFrames
from pcitrace.traffic.dma import SHORTEST_RECEIVED
from pcitrace.traffic.pieces import Pieces

__all__ = [
    "BLOCK",
    "BUFFERS",
    "MISFIT",
    "RECEIVE",
    "SEND",
    "Claimed",
    "Layout",
    "Target",
    "first_units",
    "goals_of",
    "layouts",
    "may_be_parted",
    "most_added",
    "phase_bytes",
    "unknown_layout",
    "with_skips",
]

SEND, RECEIVE = 0, 1
"""The two tracks of a host's pieces."""

UNSEEN = {SEND: 1e-13, RECEIVE: 1e-6}
"""Share of targets without a segment: what is on the wire was read from memory; how often frames get lost, is seen."""

FCS_BYTES = {SEND: (0,), RECEIVE: (0, FCS)}
"""Bytes of check sequence in memory: never of what is sent; of what is received with some cards."""

LONGEST_US = 20.0
"""Longer pauses inside a frame are not learned: a card that holds the bus's other end fetches or writes on at once."""

LOST, FIRM, LEAST_SKIP = 0.02, 30.0, 0.1
"""Share of frames that are expected to get lost on their way, and how many observations that is worth; what the loss of
one costs at least, in nats. Judgements: no captures were counted for them."""

ODD, BLOCKS, AGAIN, OVERLAPS, BUFFERS, MISFIT = 7.0, 3.0, 3.0, 5.0, 7.0, 4.0
"""Nats that rare layouts cost: a buffer at an odd byte, reading on to the end of a block, reading again after a cut,
wire and DMA that overlap, header and data in buffers of their own; and each frame that is in none. Judgements: no
captures were counted for them. Two buffers are taken for as rare as an odd byte; were they not, ways to misread a card
whose last words come one by one were sure enough to be given (`cardbench`, ring 1140)."""

BLOCK = (8, 16, 32)
"""Bytes of the blocks to whose end a card may read on."""

LINES, PIECE = (16, 32, 64), 1 << 20
"""Bytes of the lines from whose beginning a card may read again what was cut; longer than any frame: from the beginning
of the piece."""

COMPARED = 1 << 13
"""Segments and layouts that are compared at once: all of a host with 100 frames. One layout after the other took an
eighth of the analysis of a small capture; eight times as many at once were 1.6 MB of a capture of 42,000 transactions,
above what `tests/test_long_captures.py` allows a transaction."""

WHOLE = 0.95
"""Share of a track's frames whose wire and DMA are apart, from which on the card stores and forwards. Short frames of
one that does not are apart, too, and where it is said to do so no other frame is read: the 13 longest of 52 were lost,
or were the next ones (a card of another maker, cut-through). Fewer may be mistakes. On 100 cards of two other makers
all frames were apart in all 293 directions of hosts that store and forward, fewer than this in 16 of 23 others."""

LONGEST_BYTES = 1 << 16
"""More bytes than any frame has."""

WIDE_BYTES = 6.0
"""Bytes a data phase above which a card is of 64 bits: the middle of 4 and 8, learned from no capture. What lies around
frames, or is read again, makes it less in some than it is; the median of all counts."""

BACK_TO_BACK = 1.5
"""Gaps up to so many times the shortest: the frame waited for the wire, not for its data."""


@dataclass(frozen=True)
class Target:
    """What the frames of one direction are elsewhere: on the wire, or in the other host's memory.

    Attributes
    ----------
    start_us, end_us : arrays of float
    least, most : arrays of int
        Bytes of the frame without check sequence.
    seen : bool
        Whether they are frames on a wire; else what was taken for them in the other host's memory.
    """

    start_us: Floats
    end_us: Floats
    least: Integers
    most: Integers
    seen: bool = True

    @classmethod
    def on_wire(cls, wire: WireFrames) -> Target:
        """Take frames on the wire; what of them was cut by the capture lies outside it."""
        known = wire.length >= 0
        return cls(
            np.where(np.isnan(wire.start_us), -np.inf, wire.start_us),
            np.where(np.isnan(wire.end_us), np.inf, wire.end_us),
            np.where(known, np.maximum(wire.least, SHORTEST_RECEIVED), HEADER),
            np.where(known, np.maximum(wire.most, SHORTEST_RECEIVED), LONGEST_BYTES),
        )

    def first(self, count: int) -> Target:
        """Return the first so many."""
        return Target(self.start_us[:count], self.end_us[:count], self.least[:count], self.most[:count], self.seen)

    @property
    def alike(self) -> bool:
        """Whether all may be of one length."""
        return bool(self.least.max(initial=0) <= self.most.min(initial=LONGEST_BYTES))

    def __len__(self) -> int:
        return len(self.start_us)


@dataclass(frozen=True)
class Layout:
    """How the frames of one direction lie in memory.

    Attributes
    ----------
    added : int
        Bytes that are moved beyond those of the frame: before it, in its first word, and its check sequence.
    spare : int
        Up to so many more, where that is not known.
    whole : bool
        Store and forward; else wire and DMA overlap.
    block : int
        The card moves on to the end of a block of so many bytes of memory; 0: of a data phase.
    again : int
        The card reads a piece that was cut again from the beginning of a line of so many bytes, but not what was before
        the piece; 0: it goes on at the cut.
    buffers : int
        In so many buffers they lie; each may begin and end inside a word.
    """

    added: int
    spare: int
    whole: bool
    block: int = 0
    again: int = 0
    buffers: int = 1

    @cached_property
    def cost(self) -> float:
        """Nats by which such a layout is rarer than the usual ones."""
        blocks = BLOCKS + float(np.log(self.block)) if self.block else 0.0
        odd = ODD if self.added % 2 else 0.0
        parted = BUFFERS if self.buffers > 1 else 0.0
        return odd + blocks + parted + (AGAIN if self.again else 0.0) + (0.0 if self.whole else OVERLAPS)


def unknown_layout(side: int, whole: bool, unit: int, block: int = 0) -> Layout:
    """Return the layout of which only this is known, and that the card may read on to the end of a block."""
    return Layout(0, max(unit - 1, 2 * (block - 1)) + FCS_BYTES[side][-1], whole)


@cache
def layouts(side: int, whole: bool, unit: int, parted: bool) -> tuple[Layout, ...]:
    """Return all that can be: one or two buffers that begin at any byte of a word, a check sequence or none."""
    one, two = unit + FCS_BYTES[side][-1], most_added(unit) + FCS_BYTES[side][-1] + 1
    found = [Layout(added, 0, whole) for added in range(one)]
    found += [Layout(added, 0, whole, buffers=2) for added in range(one, two if parted else one)]
    if side == SEND:
        found += [replace(layout, again=line) for layout in found for line in (*LINES, PIECE)]
        found += [Layout(added, 0, whole, block) for block in BLOCK if block > unit for added in range(block)]
    return tuple(found)


def may_be_parted(side: int, pieces: Pieces, reading: Reading, unit: int) -> bool:
    """Return whether the frames of a track may lie in two buffers: most have a piece that lies elsewhere.

    Where no addresses were captured the first piece of most, or the single words that it begins with, hold a whole
    header: a shorter one may be a descriptor. On a host whose descriptors are of 8 bytes all sends began with one, in
    two buffers that each began inside a word.
    Where a frame is one piece it lies in one buffer: with two, frames whose headers were left over had the lengths of
    those before them (`cardbench`, scatter-gather 1234).
    """
    rows = np.flatnonzero((reading.track == side) & (reading.segment >= 0))
    rows = rows[np.argsort(reading.segment[rows], kind="stable")]
    before, now = rows[:-1], rows[1:]
    parts = reading.segment[before] == reading.segment[now]
    bus = pieces.bus
    if bus.has_address:
        parts &= (bus.address[now] < bus.address[before]) | (bus.address[now] > bus.behind[before])
    elif not _mostly(first_units(bus.data_phases[rows], reading.begins[rows]) * unit >= HEADER):
        return False
    several = np.unique(reading.segment[now[parts]])
    return 2 * len(several) >= int(np.count_nonzero(reading.begins[rows]))


def phase_bytes(bus: BusTable, frame_bytes: Integers, units: Integers) -> int:
    """Return how many bytes a data phase has, 4 or 8: where no line shows it, as the data phases of frames do.

    Parameters
    ----------
    bus : BusTable
    frame_bytes, units : arrays of int
        Bytes of some frames on the wire, and their data phases; of short ones, which may be padded, nothing is told.
    """
    wide = bool(bus.wide.any())
    long = (units > 0) & (frame_bytes > 2 * SHORTEST_RECEIVED)
    if bus.bytes_exact or not long.any():
        return 8 if wide else 4
    return 8 if np.median(frame_bytes[long] / units[long]) > WIDE_BYTES else 4


def first_units(size: Integers, begins: Booleans) -> Integers:
    """Return the data phases of the first piece of each segment, or of the single ones that it begins with."""
    head = np.flatnonzero(begins)
    apart = np.append(np.flatnonzero(begins | (size > 1)), len(size))
    behind = apart[np.searchsorted(apart, head, side="right")]
    return np.where(size[head] > 1, size[head], behind - head)


def most_added(unit: int) -> int:
    """Return the most bytes that frames in two buffers have in memory beyond their own and those of their last word.

    Each buffer may begin inside a word of `unit` bytes, and the first end inside one.
    """
    return 3 * (unit - 1)


@dataclass(frozen=True)
class Claimed:
    """The segments of one track of a reading, and what they may claim."""

    side: int
    pieces: Pieces
    reading: Reading
    target: Target
    unit: int

    def layout(self, otherwise: Callable[[Layout], float]) -> Layout:
        """Return the layout with which most of the segments agree.

        `otherwise` says what it costs that the profile states another one.
        """
        bus, side = self.pieces.bus, self.side
        mine = (self.reading.track == side) & (self.reading.target >= 0)
        # Store and forward, or wire and DMA overlap: of short frames they need not.
        if side == RECEIVE:
            head = np.flatnonzero(mine & self.reading.begins)
            apart = bus.first_data_us[head] >= self.target.end_us[self.reading.target[head]]
        else:
            tail = np.flatnonzero(mine & self.reading.ends)
            apart = bus.last_data_us[tail] <= self.target.start_us[self.reading.target[tail]]
        whole = not len(apart) or bool(apart.mean() >= WHOLE)
        parted = may_be_parted(side, self.pieces, self.reading, self.unit)
        some = layouts(side, whole, self.unit, parted)
        exactly, in_two = self.word_by_word
        if exactly:
            some = tuple(one for one in some if not one.block)
        misfits = np.count_nonzero(~self.fitting(some), axis=1)
        nats = [one.cost + otherwise(one) - (BUFFERS if in_two and one.buffers > 1 else 0.0) for one in some]
        return some[int(np.argmin(MISFIT * misfits + nats))]

    @property
    def word_by_word(self) -> tuple[bool, bool]:
        """Whether most sends have single data phases one behind the other, uncut; and whether most have a larger piece
        behind such a one.

        A card that reads the last words of a buffer one by one reads what it needs and no more, so it does not go on to
        the end of a block; and what is behind them is in another buffer.
        """
        if self.side == RECEIVE:
            return False, False
        reading = self.reading
        rows = np.flatnonzero((reading.track == SEND) & (reading.target >= 0))
        rows = rows[np.argsort(reading.segment[rows], kind="stable")]
        size = self.pieces.bus.data_phases[rows]
        behind = (size[:-1] == 1) & ~self.pieces.cut[rows[:-1]] & ~reading.begins[rows[1:]]
        segment, half = reading.segment[rows[1:]], int(np.count_nonzero(reading.begins[rows])) / 2
        single, larger = (len(np.unique(segment[behind & one])) > half for one in (size[1:] == 1, size[1:] > 1))
        return single, larger

    def fitting(self, some: Sequence[Layout]) -> Booleans:
        """Return which segments have the data phases of their targets, a row for each of some layouts."""
        rows = np.flatnonzero((self.reading.track == self.side) & (self.reading.target >= 0))
        rows = rows[np.argsort(self.reading.segment[rows], kind="stable")]
        units, cut = self.pieces.bus.data_phases[rows], self.pieces.cut[rows]
        begins = self.reading.begins[rows]
        claimed = self.reading.target[rows[begins]]
        least, most = self.target.least[claimed], self.target.most[claimed]
        moved = {again: segment_units(units, cut, begins, again) for again in {one.again // self.unit for one in some}}
        # Many are alike: one of each is compared.
        one_of, which = _unlike(least, most, *moved.values())
        least, most, moved = least[one_of], most[one_of], {again: size[one_of] for again, size in moved.items()}
        fits = [np.empty((0, len(one_of)), dtype=bool)]
        step = max(COMPARED // max(len(one_of), 1), 1)
        for few in (some[at : at + step] for at in range(0, len(some), step)):
            low, high = _units(self.side, least, most, few, self.unit)
            there = np.array([moved[one.again // self.unit] for one in few])
            fits.append((there >= low) & (there <= high))
        return np.concatenate(fits)[:, which]


def _unlike(*columns: Integers) -> tuple[Integers, Integers]:
    """Return of rows that are alike in some columns one each, and for every row which of these it is like."""
    one_of = which = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        code = which * (int(column.max(initial=0)) + 1) + column
        _, one_of, which = np.unique(code, return_index=True, return_inverse=True)
    return one_of, which


def goals_of(side: int, target: Target | None, layout: Layout, unit: int) -> Goals:
    """Say what the segments of one track may claim, if frames lie in memory like this."""
    after, whole = side == RECEIVE, layout.whole
    if target is None or not len(target):
        return replace(Goals.none(after, 1.0 if target is None else STRAY), longest_us=LONGEST_US)
    least, most = (bounds[0] for bounds in _units(side, target.least, target.most, [layout], unit))
    time_us = target.end_us if after and whole else target.start_us
    gap = target.start_us[1:] - target.end_us[:-1]
    least_gap = np.min(gap[np.isfinite(gap)], initial=np.inf)
    held = np.zeros(len(target), np.uint8)
    held[1:] = (gap < BACK_TO_BACK * least_gap) & (target.seen and not after)
    skip = np.full(len(target), -np.log(UNSEEN[side if target.seen else RECEIVE]), np.float32)
    return Goals(
        time_us,
        least.astype(np.uint32),
        most.astype(np.uint32),
        held,
        skip,
        after,
        at_begin=after or not whole,
        bound_us=_bound_us(target, after),
        stray=STRAY if target.seen else LOST,
        longest_us=LONGEST_US if whole else max(LONGEST_US, _longest(target.end_us - target.start_us)),
        again=layout.again // unit,
    )


def _bound_us(target: Target, after: bool) -> Floats:
    """Return when at the earliest a receive has all of each frame, and until when a send has read it.

    The last word and the check sequence may still be on the wire when what was before them is written. Where the wire
    was not captured nothing is known of it.
    """
    if not target.seen:
        return np.full(len(target), -np.inf if after else np.inf)
    if not after:
        return target.end_us
    whole = np.isfinite(target.start_us) & np.isfinite(target.end_us)
    bound_us = np.full(len(target), -np.inf)
    byte_us = (target.end_us[whole] - target.start_us[whole]) / (target.least[whole] + FCS)
    bound_us[whole] = target.end_us[whole] - 2 * FCS * byte_us
    return bound_us


def _longest(times_us: Floats) -> float:
    """Return the longest of the times that are known: where wire and DMA overlap the card waits for the wire."""
    return float(times_us[np.isfinite(times_us)].max(initial=0.0))


def _mostly(true: Booleans) -> bool:
    return not len(true) or bool(true.mean() >= 0.5)


def _units(side: int, least: Integers, most: Integers, some: Sequence[Layout], unit: int) -> tuple[Integers, Integers]:
    """Return bounds of the data phases of targets, a row a layout: of their bytes, and what lies around them."""
    low = np.where(least <= SHORTEST_RECEIVED, np.minimum(least, HEADER + 1), least) if side == SEND else least
    added, spare, blocks = (
        np.reshape([getattr(one, name) for one in some], (-1, 1)) for name in ("added", "spare", "block")
    )
    block = np.where(blocks > 0, blocks, unit)
    before = np.where(blocks > 0, added // unit, 0)
    bounds = (
        np.maximum(-(-(bound + more) // block) * (block // unit) - before, 1)
        for bound, more in ((low, added), (most, added + spare))
    )
    return next(bounds), next(bounds)


def with_skips(side: int, goals: Goals, reading: Reading, learner: Learner) -> Goals:
    """Learn how often nothing claims a target: a frame was not received, or the target is none."""
    if not len(goals):
        return goals
    claimed = len(np.unique(reading.target[(reading.track == side) & (reading.target >= 0)]))
    gone = (np.arange(len(goals)) >= claimed).astype(np.int64)
    there, lost = learner.density(gone, in_nats(np.array([1 - LOST, LOST])), smooth=False, weight=FIRM)
    return replace(goals, skip=np.full(len(goals), max(lost - there, LEAST_SKIP), np.float32))
