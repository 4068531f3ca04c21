"""The cost table of a card's DMA: what each cost means, what it is before anything was seen, how it is learned.

Every cost is the negative logarithm of a probability. What was not seen yet has a broad first guess, which goes on as a
prior that is worth `BROAD` observations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.lattice import (
    BINS,
    CONTEXTS,
    CUT,
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
)

__all__ = ["SIZES", "first", "learned"]

SIZES = 1024
"""Sizes in data phases that are told apart; the last stands for all larger."""

EXCESS_BELOW, EXCESS = 6, 264
"""Data phases by which a segment may fall short of its target, and by which it may exceed it and be counted."""

EARLY = 1e-4
"""Share of times that are negative where they should not be: two clocks of two captures, a sample's rounding."""

PAUSE_US = 1.0
"""Pauses inside a frame are mostly not much longer: a card that holds the data fetches or writes on."""

TOO_LONG = 12.0
"""What a pause inside a frame costs at least that is longer than any expected, in nats."""

TWO = (0, 1)


def first(sizes: Integers, back: int, unit: int) -> Table:
    """Return the table before anything was learned.

    Parameters
    ----------
    sizes : array of int
        Data phases of the pieces.
    back : int
        Bytes by which a read may go back after a disconnect.
    unit : int
        Bytes a data phase.
    """
    seen = np.bincount(np.minimum(sizes, SIZES - 1), minlength=SIZES) / max(len(sizes), 1)
    size = 0.5 * seen + 0.5 / SIZES
    pause = _shares((1 + np.abs(centres_us()) / PAUSE_US) ** -2.0)
    wide = _shares(np.ones(BINS))
    middle = np.stack([_cost(_full()), _cost(size)])
    tracks = tuple(
        Track(
            goes_on=_rows(pause, 2),
            begins=_rows(wide, CONTEXTS),
            lag=_rows(wide, 2),
            excess=np.stack([_cost(_excess(cut)) for cut in (False, True)]),
            excess_zero=EXCESS_BELOW,
            middle=middle,
            unclaimed=_cost(size),
            places=_cost(np.array([0.985, 0.01, 0.005])),
        )
        for side in TWO
    )
    small = (1 + np.arange(SIZES) / 8) ** -2.0
    return Table(
        (tracks[0], tracks[1]),
        _rows(wide, CONTEXTS),
        _rows(small / small.sum(), CONTEXTS),
        _cost(_follows()),
        back,
        unit,
    )


def _follows() -> Floats:
    """Anything follows anything; but what was cut is gone on with."""
    share = np.full((CONTEXTS, 5), 0.2)
    share[CUT] = (0.9, 0.025, 0.025, 0.025, 0.025)
    return share


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
    return np.asarray(share / share.sum())


def _shares(weight: Floats) -> Floats:
    share = weight.copy()
    share[:ZERO] *= EARLY
    return np.asarray(share / share.sum())


def _cost(share: Floats) -> Costs:
    return -np.log(share).astype(np.float32)


def _rows(share: Floats, count: int) -> Costs:
    return np.repeat(_cost(share)[None], count, axis=0)


def _prior(cost: Costs) -> Floats:
    return np.asarray(np.exp(-cost.astype(float)))


@dataclass(frozen=True)
class _Seen:
    """Items with what a reading says of them, and the context of each: what the item before is."""

    sequence: Sequence
    reading: Reading
    context: Integers
    pause: Integers
    learner: Learner

    @classmethod
    def of(cls, sequence: Sequence, reading: Reading, learner: Learner) -> _Seen:
        inside = reading.track >= 0
        is_now = np.where(inside, 1 + 2 * reading.track + reading.ends, 0)
        pause = np.zeros(len(sequence))
        pause[1:] = sequence.begin_us[1:] - sequence.end_us[:-1]
        return cls(
            sequence, reading, np.concatenate([[0], _contexts(is_now, sequence.cut > 0)[:-1]]), bins(pause), learner
        )

    def by_context(self, rows: Booleans, usual: Floats) -> Costs:
        """Learn the pauses before some items, by what is before them."""
        return np.stack(
            [self.learner.density(self.pause[rows & (self.context == one)], usual) for one in range(CONTEXTS)]
        )


def _contexts(is_now: Integers, cut: Booleans) -> Integers:
    """Return the context behind each item, as the kernel counts it: what was last in a segment, and how long ago."""
    order = np.arange(len(is_now))
    left_cut = (is_now == 0) & cut
    last = np.maximum.accumulate(np.where((is_now > 0) | left_cut, order, -1))
    base, since = np.where((last >= 0) & ~left_cut[last], is_now[last], 0), order - last
    out = np.where((since == 0) | (base == 0), base, np.where(since <= 2, 2 + 2 * base + since, 0))
    return np.where(left_cut, CUT, out)


def learned(sequence: Sequence, goals: tuple[Goals, Goals], reading: Reading, start: Table, learner: Learner) -> Table:
    """Return the table that a reading shows, with the first guess `start` as its prior."""
    seen = _Seen.of(sequence, reading, learner)
    inside = reading.track >= 0
    step = np.where(inside, 1 + reading.track + 2 * ~reading.begins, 0)
    follows = np.stack(
        [
            learner.density(step[seen.context == one], _prior(start.follows[one]), smooth=False)
            for one in range(CONTEXTS)
        ]
    )
    # What is rarely in a place comes as it does elsewhere.
    usual = _prior(learner.density(seen.pause[~inside | reading.begins], _prior(start.other[0])))
    tracks = tuple(_track(number, seen, goals[number], start, usual) for number in TWO)
    for track, goal in zip(tracks, goals, strict=True):
        long = centres_us() > goal.longest_us
        track.goes_on[:, long] = np.maximum(track.goes_on[:, long], TOO_LONG)
    return Table(
        (tracks[0], tracks[1]),
        seen.by_context(~inside, usual),
        _left_over(seen, ~inside, start),
        follows,
        start.back,
        start.unit,
    )


def _left_over(seen: _Seen, rows: Booleans, start: Table) -> Costs:
    """Learn the data phases of what is left over, by what is before it: a status has its size, a descriptor another.

    What is rarely in a place is as likely to be of any size that is left over elsewhere.
    """
    size = np.minimum(seen.sequence.units, SIZES - 1).astype(np.int64)
    density = seen.learner.density
    everywhere = _prior(density(size[rows], _prior(start.other_units[0]), smooth=False))
    return np.stack([density(size[rows & (seen.context == one)], everywhere, smooth=False) for one in range(CONTEXTS)])


def _track(number: int, seen: _Seen, goals: Goals, start: Table, usual: Floats) -> Track:
    sequence, reading, prior, density = seen.sequence, seen.reading, start.tracks[number], seen.learner.density
    mine = reading.track == number
    rows = np.flatnonzero(mine)
    rows = rows[np.argsort(reading.segment[rows], kind="stable")]
    begins, ends = reading.begins[rows], reading.ends[rows]
    size, cut = np.minimum(sequence.units[rows], SIZES - 1), sequence.cut[rows] > 0
    later = np.flatnonzero(~begins)
    gap = bins(sequence.begin_us[rows[later]] - sequence.end_us[rows[later - 1]])
    whole = _Segments.of(sequence, rows, begins)
    target = reading.target[whole.head]
    some = np.flatnonzero(target >= 0)
    off = _excess_of(whole.units[some], goals, target[some])
    lag, held = _lags(sequence, goals, whole, some, target[some])
    excess = np.stack(
        [density(off[whole.was_cut[some] == one], _prior(prior.excess[one]), smooth=False) for one in TWO]
    )
    # That a frame is shorter in memory than on the wire is not learned: it cannot be.
    excess[:, :EXCESS_BELOW] = np.maximum(excess[:, :EXCESS_BELOW], prior.excess[:, :EXCESS_BELOW])
    return Track(
        goes_on=np.stack([density(gap[cut[later - 1] == one], _prior(prior.goes_on[one])) for one in TWO]),
        begins=seen.by_context(mine & reading.begins & ~(goals.after & (reading.target >= 0)), usual),
        lag=np.stack([density(lag[held == one], _prior(prior.lag[one])) for one in TWO]),
        excess=excess,
        excess_zero=EXCESS_BELOW,
        middle=np.stack([density(size[~ends & (cut == one)], _prior(prior.middle[one]), smooth=False) for one in TWO]),
        unclaimed=density(np.minimum(whole.units[target < 0], SIZES - 1), _prior(prior.unclaimed), smooth=False),
        places=density(_places(sequence, rows[later - 1], rows[later], start), _prior(prior.places), smooth=False),
    )


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
    def of(cls, sequence: Sequence, rows: Integers, begins: Booleans) -> _Segments:
        at = np.flatnonzero(begins)
        count = len(at)
        tail = np.concatenate([at[1:] - 1, [len(rows) - 1]])[:count].astype(np.int64)
        number = np.cumsum(begins) - 1
        is_tail = np.zeros(len(rows), dtype=bool)
        is_tail[tail] = True
        units = np.bincount(number, weights=sequence.units[rows], minlength=count).astype(np.int64)
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
