"""Units as short as a descriptor at either end of a frame: whether they belong to it.

Where the frame's length leaves that open, the other frames tell: how long the card pauses between the pieces of one
frame, between a descriptor and its frame, and between a frame and its status.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers, pick_us

__all__ = ["Units", "settle"]

LEAST_US, MOST_US = 0.01, 1e6
"""Pauses beyond these are alike."""

FEW = 0.1
"""Share of the gaps between frames that may have fewer short units than all others: where the capture missed some, or a
frame took one."""

WITHIN, OUTSIDE = (log(0.3), 1.0), (log(10.0), 2.0)
"""Pauses (us) within a frame and at its ends before any was seen: mean and deviation of their logarithms."""


BLUR, ENOUGH = 0.1, 200
"""A pause that was seen stands for those so near (ratio, as its logarithm); of more than so many some will do."""


CLEARLY = 1.0
"""By how much likelier (logarithm) a unit must be the tail than the one that comes first."""

ALIKE = 6
"""Digits of the logarithm of a pause (us) that count."""


@dataclass(frozen=True)
class Units:
    """Pieces of one direction, those that the target cut short put together, in order of time.

    Attributes
    ----------
    count : array of int
        Data phases.
    asked_us, first_us, last_us : arrays of float
        First attempt, first and last data phase.
    short : array of bool
        Whether it may be a descriptor or a status.
    ending : array of bool
        Whether some bytes of its last data phase are seen to be disabled.
    period : array of int
        Number of the time in which the bus went from one transaction to the next without a rest.
    foreign : array of int
        Data phases at its end that may be of no frame.
    """

    count: Integers
    asked_us: Floats
    first_us: Floats
    last_us: Floats
    short: Booleans
    ending: Booleans
    period: Integers
    foreign: Integers


def settle(
    units: Units, number: Integers, least: Integers, most: Integers, latest_us: Floats, sending: bool
) -> tuple[Integers, Booleans]:
    """Decide which short units at the ends of frames belong to them.

    Parameters
    ----------
    units : Units
    number : array of int
        The frame of each unit, ascending; -1 for none.
    least, most : arrays of int
        Bounds of the data phases of each frame.
    latest_us : array of float
        When each frame ends at the latest.
    sending : bool
        Whether they are frames to be sent: none of these is another one than it was taken for.

    Returns
    -------
    number : array of int
        With short units added, taken out, or exchanged for one at the other end.
    either : array of bool
        Of each frame, whether another unit as long may be its tail.
    """
    inside = np.flatnonzero(number >= 0)
    frames = int(number.max(initial=-1)) + 1
    if not frames:
        return number, np.zeros(0, dtype=bool)
    owner = number[inside]
    head = inside[np.searchsorted(owner, np.arange(frames))]
    end = np.searchsorted(owner, np.arange(frames), side="right") - 1
    tail, before_tail = inside[end], inside[end - 1]
    total = np.bincount(owner, weights=units.count[inside], minlength=frames).astype(np.int64)
    del inside, owner, end
    free = np.r_[units.short & (number < 0), False]
    count = np.r_[units.count, 0]
    ahead, behind = np.where(free[head - 1], head - 1, -1), np.where(free[tail + 1], tail + 1, -1)
    first, final = units.short[head] & (tail > head), units.short[tail] & (tail > head)
    least, most = np.minimum(least, total), np.maximum(most, total)
    skipped = np.r_[np.int32(0), np.cumsum(free[:-1], dtype=np.int32)]
    between = np.r_[skipped[head], skipped[-1]] - np.r_[0, skipped[tail + 1]]

    # Ways to change each frame: (unit at the head that leaves or comes, the same at the tail).
    def fits(change: Integers) -> Booleans:
        return (total + change >= least) & (total + change <= most)

    comes_ahead, comes_behind = count[ahead], count[behind]
    in_time = pick_us(units.last_us, behind) <= latest_us
    # Nothing goes on behind a data phase that was not whole, unless it was the first too.
    in_time &= ~units.ending[tail] | (tail == head)
    leaves_first, leaves_final = -units.count[head], -units.count[tail]
    ways = (
        (0, 1, (behind >= 0) & in_time & fits(comes_behind)),
        (1, 0, (ahead >= 0) & fits(comes_ahead)),
        (-1, 0, first & fits(leaves_first)),
        (0, -1, final & fits(leaves_final)),
        (-1, 1, first & (behind >= 0) & in_time & fits(leaves_first + comes_behind)),
        (1, -1, final & (ahead >= 0) & fits(leaves_final + comes_ahead)),
    )
    forced = ~np.any([possible for *_, possible in ways], axis=0)
    # A status of another frame may have come between, so that another unit as long is the tail.
    other = final & (behind >= 0) & in_time & (comes_behind == -leaves_final)
    # What always stands between two frames is of neither.
    told = forced[1:] & forced[:-1]
    known = between[1:-1][told]
    spare = between > (int(np.quantile(known, FEW, method="lower")) if len(known) else 0)
    # Where there is always one behind a frame that does not end with one, one of the few that do and have none took it:
    # it passed for one that was lost and is as long as both.
    long = between[1:-1][told & ~final[:-1]]
    took = final & np.append(between[1:-1] < (long.min() if len(long) else 0), False)
    took &= np.count_nonzero(took) <= FEW * len(long) * (not sending)
    # What came between the pieces may be a status as well, and what is behind them the tail.
    between_pieces = _between_pieces(units, number, head, tail, comes_behind) & (behind >= 0) & in_time & spare[1:]
    either = np.zeros(frames, dtype=bool)
    if forced.all() and not (other | took | between_pieces).any():
        return number, either
    usual = np.log(np.bincount(known, minlength=int(between.max()) + 2) + 1.0)
    pause = _logarithm(np.r_[MOST_US, units.asked_us[1:] - units.last_us[:-1], MOST_US])
    # Frames that can be cut in one way only tell what the pauses are.
    follows = np.flatnonzero((number[1:] == number[:-1]) & (number[1:] >= 0)) + 1
    within = _Pauses(pause[follows[forced[number[follows]]]], pause, *WITHIN)
    outside = np.delete(pause, follows)
    before = _Pauses(pause[head[forced & (ahead >= 0)]], outside, *OUTSIDE)
    after = _Pauses(pause[tail[forced & (behind >= 0)] + 1], outside, *OUTSIDE)
    # Cards cut frames at a limit, so that what is short comes last, unless the other frames show something else; how
    # often anything short does, they show too. Frames of one length end alike: together they tell it once.
    lengths = np.unique(total[forced])
    short_head, short_tail = (
        log((n + 0.5) / (told - n + rather_not))
        for n, told, rather_not in (
            (int((first & forced).sum()), int(forced.sum()), 1.5),
            (len(np.unique(total[final & forced])), len(lengths), 0.5),
        )
    )
    goes_on = _goes_on(units.count, number, forced, tail)
    best = np.zeros(frames)
    chosen = np.zeros((frames, 2), dtype=np.int64)
    for at_head, at_tail, possible in ways:
        if at_head + at_tail > 0:
            possible = possible & (spare[:-1] if at_head else spare[1:])
        rows = np.flatnonzero(possible)
        cost = np.zeros(len(rows))
        if at_head:
            at = pause[head[rows] + (at_head < 0)]
            cost += at_head * (before.likelihood(at) - within.likelihood(at) - short_head)
        if at_tail:
            at = pause[tail[rows] + (at_tail > 0)]
            gain = within.likelihood(at) - after.likelihood(at)
            if not at_head:
                gain += short_tail + goes_on[(tail if at_tail > 0 else before_tail)[rows]]
            cost -= at_tail * gain
        # How many stand between two frames elsewhere tells how many do here.
        gap, left = between[rows], between[rows + 1]
        cost -= np.where(rows > 0, usual[gap - at_head] - usual[gap], 0.0)
        cost -= np.where(rows < frames - 1, usual[left - at_tail] - usual[left], 0.0)
        better = cost < best[rows]
        best[rows[better]] = cost[better]
        chosen[rows[better]] = at_head, at_tail
    rows = np.flatnonzero(other & spare[1:] & (chosen[:, 1] == 0))
    # A piece follows the one before as soon as pieces do: neither later, nor sooner than the card asks for the bus.
    since = _logarithm(units.asked_us[behind[rows]] - units.last_us[before_tail[rows]])
    so_far = pause[tail[rows]]
    sooner = within.likelihood(since) - within.likelihood(so_far) > CLEARLY
    # One that comes later than a piece did may have waited for the bus.
    sooner &= so_far < within.seen.min(initial=np.inf)
    # Of two that wait for the bus the arbiter takes either first: with no rest between them nothing tells which it is.
    either[rows] = ~sooner & (units.period[tail[rows]] == units.period[behind[rows]])
    either &= between[1:] > (np.quantile(between[1:-1], FEW, method="lower") if frames > 1 else 0)
    out = number.copy()
    out[tail[rows[sooner]]], out[behind[rows[sooner]]] = -1, rows[sooner]
    rows = np.flatnonzero(between_pieces & ~chosen.any(axis=1))
    at = pause[tail[rows] + 1]
    either[rows] |= within.likelihood(at) > after.likelihood(at)
    each = np.arange(frames)
    chosen[took & ~chosen.any(axis=1)] = 0, -1
    for side, (coming, leaving) in enumerate(((ahead, head), (behind, tail))):
        comes, leaves = chosen[:, side] > 0, chosen[:, side] < 0
        out[leaving[leaves]] = -1
        out[coming[comes]] = each[comes]
    return out, either


def _between_pieces(units: Units, number: Integers, head: Integers, tail: Integers, behind: Integers) -> Booleans:
    """Return which frames have something between their pieces that is as long as the unit behind them.

    What the target cut is told to be whole by its length: then what it goes on with is no other's.
    """
    rows = np.flatnonzero((number >= 0) & (units.short | (units.foreign > 0)))
    rows = rows[(rows != tail[number[rows]]) & ((rows != head[number[rows]]) | (units.foreign[rows] > 0))]
    rows = rows[units.count[rows] < units.count.max()]
    size = np.where(units.foreign[rows] > 0, units.foreign[rows], units.count[rows])
    found = np.zeros(len(behind), dtype=bool)
    found[number[rows[size == behind[number[rows]]]]] = True
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
