"""The cost table of a card's DMA: what each cost means, what it is before anything was seen, how it is learned.

Every cost is the negative logarithm of a probability. What was not seen yet has a broad first guess, which goes on as a
prior that is worth `BROAD` observations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.facts import HEADER_BYTES
from pcitrace.lattice import (
    BINS,
    CONTEXTS,
    CUT,
    KIND,
    KIND_TIME,
    ZERO,
    Costs,
    Goals,
    Learner,
    Reading,
    Sequence,
    Table,
    Track,
    bins,
    centres_us,
    in_nats,
    likeliest,
    segment_units,
)
from pcitrace.traffic.goals import MISFIT, SEND

__all__ = ["SIZES", "first", "learned", "parted", "pausing"]

SIZES = 1024
"""Sizes in data phases that are told apart; the last stands for all larger."""

EXCESS_BELOW, EXCESS = 6, 264
"""Data phases by which a segment may fall short of its target, and by which it may exceed it and be counted."""

LINE = 16
"""Data phases up to which a card may move again after a cut, from the beginning of a line of 64 bytes; seldom more."""

EARLY = 1e-4
"""Share of times that are negative where they should not be: two clocks of two captures, a sample's rounding."""

PAUSE_US = 1.0
"""Pauses inside a frame are mostly not much longer: a card that holds the data fetches or writes on."""

TOO_LONG = 12.0
"""What a pause inside a frame costs at least that is longer than any expected, in nats."""

CANNOT = 1e-9
"""Share of what cannot be."""

DESCRIPTORS = 64
"""Data phases that no descriptors and no status take: as many as 16 descriptors of 16 bytes. A judgement."""

IN_PLACE, PARTED = np.array([0.985, 0.01, 0.005]), np.array([0.90, 0.02, 0.08])
"""Share of the pieces of frames that go on in place, a little before it, or elsewhere; and where it is not known yet
whether each frame goes on in a second buffer. Judgements."""

TWO = (0, 1)

FIRST = 2
"""The row of a track's `middle` for first pieces."""


def first(sizes: Integers, back: int, unit: int, header: int = 0) -> Table:
    """Return the table before anything was learned.

    Parameters
    ----------
    sizes : array of int
        Data phases of the pieces.
    back : int
        Bytes by which a read may go back after a disconnect.
    unit : int
        Bytes a data phase.
    header : int
        Units of the first buffer of sends that lie in two, if that is said and either ends in single units; else 0.
    """
    seen = np.bincount(np.minimum(sizes, SIZES - 1), minlength=SIZES) / max(len(sizes), 1)
    size = 0.5 * seen + 0.5 / SIZES
    pause = _shares((1 + np.abs(centres_us()) / PAUSE_US) ** -2.0)
    wide = _shares(np.ones(BINS))
    middle = np.stack([in_nats(_full()), in_nats(size), in_nats(_full())])
    tracks = tuple(
        Track(
            goes_on=_rows(pause, 2),
            resumes=_rows(pause, 2),
            after_others=in_nats(pause),
            begins=_rows(wide, CONTEXTS),
            lag=_rows(wide, 2),
            excess=np.stack([in_nats(_excess(cut)) for cut in (False, True)]),
            excess_zero=EXCESS_BELOW,
            middle=middle,
            unclaimed=in_nats(size),
            places=in_nats(IN_PLACE),
            header=header,
        )
        for side in TWO
    )
    small = (1 + np.arange(SIZES) / 8) ** -2.0
    return Table(
        (tracks[0], tracks[1]),
        _rows(wide, 2 * CONTEXTS),
        _rows(np.repeat(small / small.sum() / 2, 2), CONTEXTS),
        in_nats(_follows()),
        back,
        unit,
        joined=HEADER_BYTES,
    )


def _follows() -> Floats:
    """Anything follows anything that can; but what was cut is gone on with.

    A row for each context and each way in which the tracks may have a segment open: only an open one goes on, and only
    where none is open one begins.
    """
    share = np.full((CONTEXTS, 4, 5), CANNOT)
    share[:, :, 0] = 1 / 3
    for track in TWO:
        for opened in range(4):
            share[:, opened, 1 + track + 2 * (opened >> track & 1)] = 1 / 3
    share[CUT, :, 0] = 0.9
    share[CUT, :, 1:] *= 0.15
    return share.reshape(-1, 5)


def _full() -> Floats:
    """A card cuts its bursts where they are full: at a power of two, or else always at the same sizes."""
    share = np.full(SIZES, 0.4 / SIZES)
    share[2 ** np.arange(2, 10)] += 0.6 / 8
    return share


def _excess(cut: bool) -> Floats:
    """Frames have the data phases of their targets, or a few more; after a cut some may have been moved again."""
    share = np.full(EXCESS_BELOW + EXCESS, 1e-7)
    share[EXCESS_BELOW - 1] = 1e-4
    share[EXCESS_BELOW : EXCESS_BELOW + 3] = (0.93, 0.03, 0.001)
    if cut:
        share[EXCESS_BELOW:] += 0.1 / EXCESS
        share[EXCESS_BELOW : EXCESS_BELOW + LINE] += 0.3 / LINE
    return np.asarray(share / share.sum())


def _shares(weight: Floats) -> Floats:
    share = weight.copy()
    share[:ZERO] *= EARLY
    return np.asarray(share / share.sum())


def _rows(share: Floats, count: int) -> Costs:
    return np.repeat(in_nats(share)[None], count, axis=0)


def _each(row: Costs, count: int) -> Costs:
    """Return one row for each of so many groups."""
    return np.broadcast_to(row, (count, len(row)))


@dataclass(frozen=True)
class _Seen:
    """Items with what a reading says of them, and the context of each: what the item before is.

    Of what is left over also which way it goes, 0 for reads and 1 for writes.
    """

    sequence: Sequence
    reading: Reading
    context: Integers
    way: Integers
    following: Integers
    pause: Integers
    learner: Learner

    @classmethod
    def of(cls, sequence: Sequence, reading: Reading, learner: Learner) -> _Seen:
        inside = reading.track >= 0
        is_now = np.where(inside, 1 + 2 * reading.track + reading.ends, 0)
        pause = np.zeros(len(sequence))
        pause[1:] = sequence.begin_us[1:] - sequence.end_us[:-1]
        context = np.concatenate([[0], _contexts(is_now, sequence.cut > 0)[:-1]])
        following = 4 * context + _open(reading, 0) + 2 * _open(reading, 1)
        way = likeliest(sequence.alone[:, KIND], (2 * context + inside) * SIZES + np.minimum(sequence.units, SIZES - 1))
        return cls(sequence, reading, context, way, following, bins(pause), learner)

    def by_context(self, rows: Booleans, usual: Costs) -> Costs:
        """Learn the pauses before some items, by what is before them."""
        return self.learner.densities(self.pause[rows], self.context[rows], _each(usual, CONTEXTS))


def _contexts(is_now: Integers, cut: Booleans) -> Integers:
    """Return the context behind each item, as the kernel counts it: what was last in a segment, and how long ago."""
    order = np.arange(len(is_now))
    left_cut = (is_now == 0) & cut
    last = np.maximum.accumulate(np.where((is_now > 0) | left_cut, order, -1))
    base, since = np.where((last >= 0) & ~left_cut[last], is_now[last], 0), order - last
    out = np.where((since == 0) | (base == 0), base, np.where(since <= 2, 2 + 2 * base + since, 0))
    return np.where(left_cut, CUT, out)


def _open(reading: Reading, track: int) -> Integers:
    """Return whether a segment of a track is open before each item: one began, and has not ended."""
    order = np.arange(len(reading.track))
    last = np.maximum.accumulate(np.where(reading.track == track, order, -1))
    before = np.concatenate([[-1], last[:-1]])
    return np.asarray((before >= 0) & ~reading.ends[before], np.int64)


def learned(sequence: Sequence, goals: tuple[Goals, Goals], reading: Reading, start: Table, learner: Learner) -> Table:
    """Return the table that a reading shows, with the first guess `start` as its prior.

    Each time is learned where it is told from nearest: the pause before what is left over unless a frame on a wire
    ended since; the pause before a receive if a piece was after the end of its frame.
    """
    seen = _Seen.of(sequence, reading, learner)
    inside = reading.track >= 0
    step = np.where(inside, 1 + reading.track + 2 * ~reading.begins, 0)
    follows = learner.densities(step, seen.following, start.follows, smooth=False)
    # What is rarely in a place comes as it does elsewhere.
    usual = learner.density(seen.pause[~inside | reading.begins], start.other[0])
    tracks = tuple(_track(number, seen, goals[number], start, usual) for number in TWO)
    tracks = tuple(pausing(track, goal.longest_us) for track, goal in zip(tracks, goals, strict=True))
    return Table(
        (tracks[0], tracks[1]),
        _left_over_pauses(seen, ~inside, usual),
        _left_over(seen, ~inside, start),
        follows,
        start.back,
        start.unit,
        joined=start.joined,
    )


def pausing(track: Track, longest_us: float) -> Track:
    """Return the costs of a track where a segment hardly pauses for longer."""
    long = centres_us() > longest_us
    goes_on, resumes = (np.where(long, np.maximum(one, TOO_LONG), one) for one in (track.goes_on, track.resumes))
    return replace(track, goes_on=goes_on.astype(np.float32), resumes=resumes.astype(np.float32))


def parted(track: Track) -> Track:
    """Return the costs of a track of which it is not known yet whether its frames lie in several buffers."""
    return replace(track, places=in_nats(PARTED))


def _left_over_pauses(seen: _Seen, rows: Booleans, usual: Costs) -> Costs:
    """Learn the pauses before what is left over, where nothing else tells when it comes, by what is before it."""
    untold = rows & ~np.isfinite(np.take_along_axis(seen.sequence.alone[:, KIND_TIME], seen.way[:, None], axis=1)[:, 0])
    group = 2 * seen.context[untold] + seen.way[untold]
    return seen.learner.densities(seen.pause[untold], group, _each(usual, 2 * CONTEXTS))


def _left_over(seen: _Seen, rows: Booleans, start: Table) -> Costs:
    """Learn the data phases of what is left over and which way it goes, by what is before it.

    A status is written and has its size, a descriptor is read and has another; or both have the same, and only what is
    before them tells which is which. What is rarely in a place is as likely to be any that is left over elsewhere. That
    a card moves much that is part of no frame is not learned.
    """
    size = 2 * np.minimum(seen.sequence.units[rows], SIZES - 1).astype(np.int64) + seen.way[rows]
    everywhere = seen.learner.density(size, start.other_units[0], smooth=False)
    found = seen.learner.densities(size, seen.context[rows], _each(everywhere, CONTEXTS), smooth=False)
    found[:, 2 * DESCRIPTORS :] = np.maximum(found[:, 2 * DESCRIPTORS :], start.other_units[:, 2 * DESCRIPTORS :])
    return found


def _track(number: int, seen: _Seen, goals: Goals, start: Table, usual: Costs) -> Track:
    sequence, reading, prior = seen.sequence, seen.reading, start.tracks[number]
    density, densities = seen.learner.density, seen.learner.densities
    mine = reading.track == number
    rows = np.flatnonzero(mine)
    rows = rows[np.argsort(reading.segment[rows], kind="stable")]
    begins, ends = reading.begins[rows], reading.ends[rows]
    size, cut = np.minimum(sequence.units[rows], SIZES - 1), sequence.cut[rows] > 0
    later = np.flatnonzero(~begins)
    gap = bins(sequence.begin_us[rows[later]] - sequence.end_us[rows[later - 1]])
    after_cut, between = cut[later - 1].astype(np.int64), rows[later] > rows[later - 1] + 1
    whole = _Segments.of(sequence, rows, begins, goals.again)
    target = reading.target[whole.head]
    some = np.flatnonzero(target >= 0)
    off = _excess_of(whole.units[some], goals, target[some])
    lag, held = _lags(sequence, goals, whole, some, target[some])
    excess = densities(off, whole.was_cut[some].astype(np.int64), prior.excess, smooth=False)
    # That a frame is shorter in memory than on the wire is not learned: it cannot be.
    excess[:, :EXCESS_BELOW] = np.maximum(excess[:, :EXCESS_BELOW], prior.excess[:, :EXCESS_BELOW])
    # Nor that one is longer, unless something cut it: a layout says how long frames are.
    excess[0, EXCESS_BELOW + 1 :] = np.maximum(excess[0, EXCESS_BELOW + 1 :], MISFIT)
    one_by_one = _one_by_one(size, cut, (begins, ends), start) if number == SEND else None
    sizes, header = one_by_one or (size, 0)
    heads = begins & (one_by_one is None)
    return Track(
        goes_on=densities(gap[~between], after_cut[~between], prior.goes_on),
        resumes=_relative(densities(gap[between], after_cut[between], prior.resumes)),
        after_others=density(seen.pause[rows[later[between]]], prior.after_others),
        begins=seen.by_context(mine & reading.begins & ~_by_target(sequence, goals, reading), usual),
        lag=densities(lag, held, prior.lag),
        excess=excess,
        excess_zero=EXCESS_BELOW,
        middle=_before_last(sizes[~ends], cut[~ends], heads[~ends], prior.middle, seen.learner),
        singles=one_by_one is not None,
        header=header,
        unclaimed=density(np.minimum(whole.units[target < 0], SIZES - 1), prior.unclaimed, smooth=False),
        places=density(_places(sequence, rows[later - 1], rows[later], start), prior.places, smooth=False),
    )


def _one_by_one(
    size: Integers, cut: Booleans, edges: tuple[Booleans, Booleans], start: Table
) -> tuple[Integers, int] | None:
    """Return the sizes that tell of a card that reads the last units of its buffers one by one, and the units of the
    first buffer if frames lie in two, else 0; None if it does not.

    What is before single ones has the size that is left: where it differs with each length it teaches nothing and costs
    much. On a host whose frames had all lengths (`cardbench`, ring 1183) a descriptor was taken for the beginning of
    each, and its data for the next one's. Nothing larger comes behind single ones, then; but where what ends in them is
    mostly as long, and holds a header, it lies in a buffer of its own. Where all such sizes are alike they tell as much
    as the single ones do; and where few frames end like that, one that does was cut there by chance. A single unit that
    is written behind a received frame is its status.
    """
    (begins, ends), prior = edges, start.tracks[SEND]
    head = np.flatnonzero(begins)
    tail = np.append(head[1:], len(size))[: len(head)] - 1
    before = np.maximum.accumulate(np.where(size > 1, np.arange(len(size)), -1))[tail]
    left = before[(before >= head) & (before < tail) & ~cut[before]]
    if 2 * len(left) <= np.count_nonzero(tail > head):
        return None
    goes_on = ~cut[:-1] & ~begins[1:]
    larger = np.flatnonzero((size[:-1] == 1) & (size[1:] > 1) & goes_on) + 1
    buffer = np.append(larger, len(size))[np.searchsorted(larger, head)]
    units = np.append(0, np.cumsum(size, dtype=np.int64))
    header = prior.header or _mostly((units[buffer] - units[head])[buffer <= tail], start.unit, len(left))
    single = size.copy()
    single[np.flatnonzero((size[:-1] > 1) & (size[1:] == 1) & goes_on) if header else left] = 1
    row = cut[~ends].astype(np.int64)
    plainly, singly = (_nats(one[~ends], row, prior.middle) for one in (size, single))
    return (single, header) if singly < plainly else None


def _mostly(units: Integers, unit: int, frames: int) -> int:
    """Return the units that the first buffers of most of some frames have, if they hold a header; else 0."""
    many = np.bincount(units[unit * units >= HEADER_BYTES], minlength=1)
    return int(many.argmax()) if 2 * many.max() > frames else 0


def _before_last(sizes: Integers, cut: Booleans, first: Booleans, prior: Costs, learner: Learner) -> Costs:
    """Learn the sizes of pieces that are not the last of a segment.

    A card that cuts its bursts where lines of memory begin has a first piece that is what is left of one. Where that is
    always as large it tells as little as a full one does: on a host whose buffers all begin in the last word of a line
    (`cardbench`, cacheline 71) each send seemed to begin a piece later, for 4.9 nats a frame. Where the pieces behind
    the first are no full lines, one of another size may be a descriptor, and tells more.
    """
    size, row = sizes.astype(np.int64), cut.astype(np.int64)
    if _cut_at_lines(size[~first & ~cut], int(first.sum())):
        apart = np.where(first & ~cut, FIRST, row)
        if _nats(size, apart, prior) < _nats(size, row, prior):
            return learner.densities(size, apart, prior, smooth=False)
    alike = learner.densities(size, row, prior[:FIRST], smooth=False)
    return np.stack([alike[0], alike[1], alike[0]])


def _cut_at_lines(size: Integers, frames: int) -> bool:
    """Return whether pieces between the first and the last of frames are mostly of one size, a power of two; and more
    than one a frame: a single one may be the whole frame between a descriptor and a status.
    """
    full = int(np.bincount(size).argmax()) if len(size) else 0
    lines = np.count_nonzero(size == full)
    return bool(full > 1 and full & (full - 1) == 0 and 2 * lines > len(size) and lines > frames)


def _nats(size: Integers, row: Integers, prior: Costs) -> float:
    """Return what the sizes of pieces that are not the last cost, and learning them."""
    learner, size = Learner(), size.astype(np.int64)
    cost = learner.densities(size, row, prior, smooth=False)
    return learner.nats + float(cost[row, size].sum())


def _by_target(sequence: Sequence, goals: Goals, reading: Reading) -> Booleans:
    """Return which items have a target that comes before them, and later than the item before."""
    if not (goals.after and len(goals)):
        return np.zeros(len(sequence), dtype=bool)
    before_us = np.append(-np.inf, sequence.end_us[:-1])[: len(sequence)]
    claims = np.flatnonzero(reading.target >= 0)
    found = np.zeros(len(sequence), dtype=bool)
    # The other track's targets have numbers of their own.
    mine = claims[reading.target[claims] < len(goals)]
    found[mine] = goals.time_us[reading.target[mine]] > before_us[mine]
    return found


def _relative(rows: Costs) -> Costs:
    """Return rows of costs against the cheapest of each: that a segment goes on at all is told by what follows what."""
    relative: Costs = rows - rows.min(axis=1, keepdims=True)
    return relative


def _places(sequence: Sequence, before: Integers, rows: Integers, table: Table) -> Integers:
    """Return whether pieces go on in place (0), a little before it (1) or elsewhere (2), where that is known."""
    expected, place = sequence.next_place[before], sequence.place[rows]
    back = (expected - place)[(expected >= 0) & (place >= 0)]
    return np.where(back == 0, 0, np.where((back > 0) & (back <= table.back), 1, 2))


@dataclass(frozen=True)
class _Segments:
    """Segments of one track: first and last item, data phases, whether an item before the last was cut."""

    head: Integers
    tail: Integers
    units: Integers
    was_cut: Booleans

    @classmethod
    def of(cls, sequence: Sequence, rows: Integers, begins: Booleans, again: int) -> _Segments:
        at = np.flatnonzero(begins)
        count = len(at)
        tail = np.concatenate([at[1:] - 1, [len(rows) - 1]])[:count].astype(np.int64)
        number = np.cumsum(begins) - 1
        is_tail = np.zeros(len(rows), dtype=bool)
        is_tail[tail] = True
        units = segment_units(sequence.units[rows].astype(np.int64), sequence.cut[rows] > 0, begins, again)
        cuts = np.bincount(number[~is_tail], weights=sequence.cut[rows[~is_tail]], minlength=count) > 0
        return cls(rows[at], rows[tail], units, cuts)


def _excess_of(units: Integers, goals: Goals, target: Integers) -> Integers:
    least, most = goals.least[target].astype(np.int64), goals.most[target].astype(np.int64)
    return np.clip(units - np.clip(units, least, most) + EXCESS_BELOW, 0, EXCESS_BELOW + EXCESS - 1)


def _lags(
    sequence: Sequence, goals: Goals, whole: _Segments, some: Integers, target: Integers
) -> tuple[Integers, Integers]:
    """Return the lags between segments and their targets, in bins, and which table each belongs to."""
    edge = sequence.begin_us[whole.head[some]] if goals.at_begin else sequence.end_us[whole.tail[some]]
    time_us, held = goals.time_us[target], goals.held[target] > 0
    if goals.after:
        free_us = np.concatenate([[-np.inf], sequence.end_us[whole.tail][:-1]])[some]
        return bins(edge - time_us), (held | (free_us > time_us)).astype(np.int64)
    return bins(time_us - edge), held.astype(np.int64)
