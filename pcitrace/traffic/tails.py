"""Units as short as a descriptor at either end of a frame: whether they belong to it.

Where the frame's length leaves that open, the other frames tell: how long the card pauses between the pieces of one
frame, between a descriptor and its frame, and between a frame and its status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers, pick_us
from pcitrace.traffic.ahead import Expected, Units

__all__ = ["settle"]

LEAST_US, MOST_US = 0.01, 1e6
"""Pauses beyond these are alike."""

FEW = 0.1
"""Share of the gaps between frames that may have fewer short units than all others: where the capture missed some, or a
frame took one."""

WITHIN, OUTSIDE = (log(0.3), 1.0), (log(10.0), 2.0)
"""Pauses (us) within a frame and at its ends before any was seen: mean and deviation of their logarithms."""

BLUR, ENOUGH = 0.1, 200
"""A pause that was seen stands for those so near (ratio, as its logarithm); of more than so many some will do."""

LIKELIER = 1.0
"""By how much likelier (logarithm) a unit must be the tail than the one that comes first."""

WAYS = ((0, 1), (1, 0), (-1, 0), (0, -1), (-1, 1), (1, -1))
"""Ways to change a frame at its head and its tail, in the order in which they are preferred."""

ALIKE = 6
"""Digits of the logarithm of a pause (us) that count."""


def settle(units: Units, number: Integers, expected: Expected) -> tuple[Integers, Booleans]:
    """Decide which short units at the ends of frames belong to them.

    Parameters
    ----------
    units : Units
    number : array of int
        The frame of each unit, ascending; -1 for none.
    expected : Expected
        These frames. Of those that are sent none is another one than it was taken for.

    Returns
    -------
    number : array of int
        With short units added, taken out, or exchanged for one at the other end.
    either : array of bool
        Of each frame, whether another unit as long may be its tail.
    """
    frames = int(number.max(initial=-1)) + 1
    if not frames:
        return number, np.zeros(0, dtype=bool)
    ends = _Ends.of(units, number, expected)
    ways = ends.ways(units, expected)
    forced = ~np.any([possible for *_, possible in ways], axis=0)
    head, tail, behind, between = ends.head, ends.tail, ends.behind, ends.between
    # A status of another frame may have come between, so that another unit as long is the tail.
    other = ends.final & ends.follows & (units.count[behind] == units.count[tail])
    # What always stands between two frames is of neither.
    told = forced[1:] & forced[:-1]
    known = between[1:-1][told]
    spare = between > (int(np.quantile(known, FEW, method="lower")) if len(known) else 0)
    # Where there is always one behind a frame that does not end with one, one of the few that do and have none took it:
    # it passed for one that was lost and is as long as both.
    long = between[1:-1][told & ~ends.final[:-1]]
    took = ends.final & np.append(between[1:-1] < (long.min() if len(long) else 0), False)
    took &= np.count_nonzero(took) <= FEW * len(long) * (not expected.sending)
    # What came between the pieces may be a status as well, and what is behind them the tail.
    between_pieces = _between_pieces(units, number, ends) & ends.follows & spare[1:]
    either = np.zeros(frames, dtype=bool)
    if forced.all() and not (other | took | between_pieces).any():
        return number, either
    usual = np.log(np.bincount(known, minlength=int(between.max()) + 2) + 1.0)
    seen = _Seen.of(units, number, ends, forced)
    chosen = _cheapest(ends, ways, spare, seen, usual)
    rows = np.flatnonzero(other & spare[1:] & (chosen[:, 1] == 0))
    # A piece follows the one before as soon as pieces do: neither later, nor sooner than the card asks for the bus.
    since = _logarithm(units.asked_us[behind[rows]] - units.last_us[ends.before_tail[rows]])
    so_far = seen.pause[tail[rows]]
    sooner = seen.within.likelihood(since) - seen.within.likelihood(so_far) > LIKELIER
    # One that comes later than a piece did may have waited for the bus.
    sooner &= so_far < seen.within.seen.min(initial=np.inf)
    # Of two that wait for the bus the arbiter takes either first: with no rest between them nothing tells which it is.
    either[rows] = ~sooner & (units.period[tail[rows]] == units.period[behind[rows]])
    either &= between[1:] > (np.quantile(between[1:-1], FEW, method="lower") if frames > 1 else 0)
    out = number.copy()
    out[tail[rows[sooner]]], out[behind[rows[sooner]]] = -1, rows[sooner]
    unchanged = ~chosen.any(axis=1)
    rows = np.flatnonzero(between_pieces & unchanged)
    at = seen.pause[tail[rows] + 1]
    either[rows] |= seen.within.likelihood(at) > seen.after.likelihood(at)
    chosen[took & unchanged] = 0, -1
    for side, (coming, leaving) in enumerate(((ends.ahead, head), (behind, tail))):
        out[leaving[chosen[:, side] < 0]] = -1
        comes = chosen[:, side] > 0
        out[coming[comes]] = np.flatnonzero(comes)
    return out, either


@dataclass(frozen=True)
class _Ends:
    """What stands at either end of each frame, and between frames.

    Of each frame its first unit, its last, and the last but one; the short unit of no frame just before it and just
    behind it, -1 for none; whether its first or its last is short and not the only one; its data phases; how many short
    units of no frame are before it, and behind the last one; and whether the one behind may be its own, by its time and
    by what was seen to be the end.
    """

    head: Integers
    tail: Integers
    before_tail: Integers
    ahead: Integers
    behind: Integers
    first: Booleans
    final: Booleans
    total: Integers
    between: Integers
    follows: Booleans

    @classmethod
    def of(cls, units: Units, number: Integers, expected: Expected) -> _Ends:
        """Look at the ends of frames; the parameters are those of :func:`settle`."""
        inside = np.flatnonzero(number >= 0)
        owner = number[inside]
        frames = np.arange(len(expected))
        head = inside[np.searchsorted(owner, frames)]
        end = np.searchsorted(owner, frames, side="right") - 1
        tail = inside[end]
        total = np.bincount(owner, weights=units.count[inside], minlength=len(frames)).astype(np.int64)
        free = np.r_[units.short & (number < 0), False]
        ahead, behind = np.where(free[head - 1], head - 1, -1), np.where(free[tail + 1], tail + 1, -1)
        skipped = np.r_[np.int32(0), np.cumsum(free[:-1], dtype=np.int32)]
        between = np.r_[skipped[head], skipped[-1]] - np.r_[0, skipped[tail + 1]]
        several = tail > head
        # Nothing goes on behind a data phase that was not whole, unless it was the first too.
        follows = (pick_us(units.last_us, behind) <= expected.latest) & (~units.ending[tail] | ~several)
        first, final = units.short[head] & several, units.short[tail] & several
        return cls(head, tail, inside[end - 1], ahead, behind, first, final, total, between, follows & (behind >= 0))

    def ways(self, units: Units, expected: Expected) -> list[tuple[int, int, Booleans]]:
        """Return the ways to change a frame, and which can be changed so.

        A way is what happens at the head and at the tail: a unit comes (1), or leaves (-1).
        """
        least, most = np.minimum(expected.least, self.total), np.maximum(expected.most, self.total)
        count, stays = units.count, (np.ones(len(least), dtype=bool), np.zeros_like(least))
        heads = {0: stays, 1: (self.ahead >= 0, count[self.ahead]), -1: (self.first, -count[self.head])}
        tails = {0: stays, 1: (self.follows, count[self.behind]), -1: (self.final, -count[self.tail])}
        out = []
        for at_head, at_tail in WAYS:
            (able, more), (also, beside) = heads[at_head], tails[at_tail]
            total = self.total + more + beside
            out.append((at_head, at_tail, able & also & (total >= least) & (total <= most)))
        return out


def _cheapest(
    ends: _Ends, ways: Sequence[tuple[int, int, Booleans]], spare: Booleans, seen: _Seen, usual: Floats
) -> Integers:
    """Return the likeliest way to change each frame, zeros for none: shape (frames, 2).

    `spare` is of each gap whether more short units are in it than always are, `usual` how often there are so many, as
    a logarithm.
    """
    frames = len(ends.head)
    best, chosen = np.zeros(frames), np.zeros((frames, 2), dtype=np.int64)
    for at_head, at_tail, possible in ways:
        if at_head + at_tail > 0:
            possible = possible & (spare[:-1] if at_head else spare[1:])
        rows = np.flatnonzero(possible)
        cost = np.zeros(len(rows))
        if at_head:
            at = seen.pause[ends.head[rows] + (at_head < 0)]
            cost += at_head * (seen.before.likelihood(at) - seen.within.likelihood(at) - seen.short_head)
        if at_tail:
            at = seen.pause[ends.tail[rows] + (at_tail > 0)]
            gain = seen.within.likelihood(at) - seen.after.likelihood(at)
            if not at_head:
                gain += seen.short_tail + seen.goes_on[(ends.tail if at_tail > 0 else ends.before_tail)[rows]]
            cost -= at_tail * gain
        # How many stand between two frames elsewhere tells how many do here.
        gap, left = ends.between[rows], ends.between[rows + 1]
        cost -= np.where(rows > 0, usual[gap - at_head] - usual[gap], 0.0)
        cost -= np.where(rows < frames - 1, usual[left - at_tail] - usual[left], 0.0)
        better = cost < best[rows]
        best[rows[better]] = cost[better]
        chosen[rows[better]] = at_head, at_tail
    return chosen


@dataclass(frozen=True)
class _Seen:
    """What frames that can be cut in one way only tell of the others.

    The pause before each unit, and behind the last, as its logarithm; what pauses are within frames, before and behind
    them; logarithms of the odds that a frame begins, or ends, with a short unit, and that it goes on behind each.
    """

    pause: Floats
    within: _Pauses
    before: _Pauses
    after: _Pauses
    short_head: float
    short_tail: float
    goes_on: Floats

    @classmethod
    def of(cls, units: Units, number: Integers, ends: _Ends, forced: Booleans) -> _Seen:
        """Look at the frames that are `forced`."""
        pause = _logarithm(np.r_[MOST_US, units.asked_us[1:] - units.last_us[:-1], MOST_US])
        follows = np.flatnonzero((number[1:] == number[:-1]) & (number[1:] >= 0)) + 1
        outside = np.delete(pause, follows)
        # Cards cut frames at a limit, so that what is short comes last, unless the other frames show something else;
        # how often anything short does, they show too. Frames of one length end alike: together they tell it once.
        lengths = len(np.unique(ends.total[forced]))
        short = int((ends.first & forced).sum()), len(np.unique(ends.total[ends.final & forced]))
        return cls(
            pause,
            _Pauses(pause[follows[forced[number[follows]]]], pause, *WITHIN),
            _Pauses(pause[ends.head[forced & (ends.ahead >= 0)]], outside, *OUTSIDE),
            _Pauses(pause[ends.tail[forced & (ends.behind >= 0)] + 1], outside, *OUTSIDE),
            log((short[0] + 0.5) / (int(forced.sum()) - short[0] + 1.5)),
            log((short[1] + 0.5) / (lengths - short[1] + 0.5)),
            _goes_on(units.count, number, forced, ends.tail),
        )


def _between_pieces(units: Units, number: Integers, ends: _Ends) -> Booleans:
    """Return which frames have something between their pieces that is as long as the unit behind them.

    What the target cut is told to be whole by its length: then what it goes on with is no other's.
    """
    rows = np.flatnonzero((number >= 0) & (units.short | (units.foreign > 0)))
    frame, foreign = number[rows], units.foreign[rows]
    size = np.where(foreign > 0, foreign, units.count[rows])
    alike = (rows != ends.tail[frame]) & ((rows != ends.head[frame]) | (foreign > 0))
    alike &= (units.count[rows] < units.count.max()) & (size == np.r_[units.count, 0][ends.behind[frame]])
    found = np.zeros(len(ends.head), dtype=bool)
    found[frame[alike]] = True
    return found


def _goes_on(count: Integers, number: Integers, forced: Booleans, tail: Integers) -> Floats:
    """Return for each unit the logarithm of the odds that its size gives for its frame going on behind it.

    A card ends a piece before its limit only where the frame ends, or, if its latency timer does that too, wherever the
    frames show it: those that can be cut in one way only tell how many units are full that are last, and that are not.
    """
    rows = np.flatnonzero(number >= 0)
    rows = rows[forced[number[rows]]]
    last = np.isin(rows, tail)
    inner = count[rows[~last]]
    full = count >= (np.median(inner) if len(inner) else np.inf)
    n_inner, n_last = len(inner), int(last.sum())
    share_inner = (np.count_nonzero(full[rows[~last]]) + 0.5) / (n_inner + 1)
    share_last = (np.count_nonzero(full[rows[last]]) + 0.5) / (n_last + 1)
    return np.where(full, log(share_inner / share_last), log((1 - share_inner) / (1 - share_last)))


def _logarithm(pause_us: Floats) -> Floats:
    return np.asarray(np.log(np.clip(pause_us, LEAST_US, MOST_US)))


@dataclass(frozen=True)
class _Pauses:
    """How likely pauses of one kind are, on a logarithmic scale: some that were seen, and a guess as one more.

    The guess is half like pauses that others have, for what arbitration makes of them differs little: any pauses for
    those within frames, pauses outside of frames for the others.
    """

    seen: Floats
    every: Floats
    center: float
    spread: float

    def likelihood(self, pause: Floats) -> Floats:
        """Return the logarithm of the density at some pauses."""
        # Sampled pauses are few: each is worked out once.
        alike, which = np.unique(pause.round(ALIKE), return_inverse=True)
        guess = np.exp(-(((alike - self.center) / self.spread) ** 2) / 2) / self.spread
        guess = (guess + _mean(self.every, alike)) / 2
        count = len(self.seen)
        density = (count * _mean(self.seen, alike) + guess) / (count + 1) if count else guess
        return np.asarray(np.log(np.maximum(density, np.finfo(float).tiny)))[which]


def _mean(seen: Floats, pause: Floats) -> Floats:
    """Return the density of some pauses that were seen, at others."""
    some = seen[:: len(seen) // ENOUGH + 1]
    return np.asarray(np.exp(-(((pause[:, None] - some) / BLUR) ** 2) / 2).mean(axis=1) / BLUR)
