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
    ZERO,
    Costs,
    Goals,
    Reading,
    Sequence,
    Table,
    Track,
    bins,
    centres_us,
    density,
)

__all__ = ["SIZES", "first", "learned"]

SIZES = 1024
"""Sizes in data phases that are told apart; the last stands for all larger."""

EXCESS_BELOW, EXCESS = 6, 264
"""Data phases by which a segment may fall short of its target, and by which it may exceed it and be counted."""

BROAD = 3.0
"""Observations that a first guess is worth."""

EARLY = 1e-4
"""Share of times that are negative where they should not be: two clocks of two captures, a sample's rounding."""

PAUSE_US = 1.0
"""Pauses inside a frame are mostly not much longer: a card that holds the data fetches or writes on."""

LONGEST_US = 20.0
"""Longer pauses inside a frame are not learned: a card that holds the bus's other end fetches or writes on at once."""

TOO_LONG = 12.0
"""What a longer one costs at least, in nats."""

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
    pause = _shares((1 + np.abs(centres_us()) / PAUSE_US) ** -1.5)
    wide = _shares(np.ones(BINS))
    track = Track(
        goes_on=_rows(pause, 2),
        begins=_rows(wide, CONTEXTS),
        lag=_rows(wide, 2),
        excess=np.stack([_cost(_excess(cut)) for cut in (False, True)]),
        excess_zero=EXCESS_BELOW,
        middle=_rows(size, 2),
        unclaimed=_cost(size),
        places=_cost(np.array([0.985, 0.01, 0.005])),
    )
    small = (1 + np.arange(SIZES) / 8) ** -2.0
    return Table(
        (track, track),
        _rows(wide, CONTEXTS),
        _rows(small / small.sum(), CONTEXTS),
        _cost(np.full((CONTEXTS, 5), 0.2)),
        back,
        unit,
    )


def _excess(cut: bool) -> Floats:
    """Frames have the data phases of their targets, or a few more; after a cut some may have been moved again."""
    share = np.full(EXCESS_BELOW + EXCESS, 1e-7)
    share[EXCESS_BELOW - 1 : EXCESS_BELOW + 5] = (0.01, 0.85, 0.05, 0.03, 0.005, 0.002)
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

    @classmethod
    def of(cls, sequence: Sequence, reading: Reading) -> _Seen:
        inside = reading.track >= 0
        is_now = np.where(inside, 1 + 2 * reading.track + reading.ends, 0)
        pause = np.zeros(len(sequence))
        pause[1:] = sequence.begin_us[1:] - sequence.end_us[:-1]
        return cls(sequence, reading, np.concatenate([[0], is_now[:-1]]), bins(pause))

    def by_context(self, rows: Booleans, prior: Costs) -> Costs:
        """Learn the pauses before some items, by what is before them."""
        return np.stack(
            [density(self.pause[rows & (self.context == one)], _prior(prior[one]), BROAD) for one in range(CONTEXTS)]
        )


def learned(
    sequence: Sequence, goals: tuple[Goals, Goals], reading: Reading, start: Table, longest_us: tuple[float, float]
) -> Table:
    """Return the table that a reading shows, with the first guess `start` as its prior.

    `longest_us` are the pauses inside frames of each track beyond which none is expected.
    """
    seen = _Seen.of(sequence, reading)
    inside = reading.track >= 0
    step = np.where(inside, 1 + reading.track + 2 * ~reading.begins, 0)
    follows = np.stack(
        [density(step[seen.context == one], np.full(5, 0.2), BROAD, smooth=False) for one in range(CONTEXTS)]
    )
    tracks = tuple(_track(number, seen, goals[number], start) for number in TWO)
    for track, most_us in zip(tracks, longest_us, strict=True):
        track.goes_on[:, centres_us() > most_us] = np.maximum(track.goes_on[:, centres_us() > most_us], TOO_LONG)
    return Table(
        (tracks[0], tracks[1]),
        seen.by_context(~inside, start.other),
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
    everywhere = _prior(density(size[rows], _prior(start.other_units[0]), BROAD, smooth=False))
    return np.stack(
        [density(size[rows & (seen.context == one)], everywhere, BROAD, smooth=False) for one in range(CONTEXTS)]
    )


def _track(number: int, seen: _Seen, goals: Goals, start: Table) -> Track:
    sequence, reading, prior = seen.sequence, seen.reading, start.tracks[number]
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
    return Track(
        goes_on=np.stack([density(gap[cut[later - 1] == one], _prior(prior.goes_on[one]), BROAD) for one in TWO]),
        begins=seen.by_context(mine & reading.begins, prior.begins),
        lag=np.stack([density(lag[held == one], _prior(prior.lag[one]), BROAD) for one in TWO]),
        excess=np.stack(
            [density(off[whole.was_cut[some] == one], _prior(prior.excess[one]), BROAD, smooth=False) for one in TWO]
        ),
        excess_zero=EXCESS_BELOW,
        middle=np.stack(
            [density(size[~ends & (cut == one)], _prior(prior.middle[one]), BROAD, smooth=False) for one in TWO]
        ),
        unclaimed=density(np.minimum(whole.units[target < 0], SIZES - 1), _prior(prior.unclaimed), BROAD, smooth=False),
        places=density(
            _places(sequence, rows[later - 1], rows[later], start), _prior(prior.places), BROAD, smooth=False
        ),
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
