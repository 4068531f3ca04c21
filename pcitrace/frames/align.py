"""Matching two sequences of frames that keep their order: what was sent with what was seen later.

Frames with a content that occurs once are matched by it; what is left between them by order, length and time.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import numpy as np

from pcitrace.columns import Booleans, Integers, spread_us
from pcitrace.frames.leastcost import BLOCK, SKIP, cheapest, waiting
from pcitrace.frames.sides import ALIKE_US, UNDER_WAY, WIDEST, Pair, Side, densest, longest_lag
from pcitrace.traffic.content import in_common

__all__ = ["match"]

SAMPLE = 500
"""Frames at either end of a capture that are looked at to find the usual lag."""


def match(earlier: Side, later: Side, after_end: bool) -> tuple[Integers, Integers]:
    """Match the frames of two sides.

    Parameters
    ----------
    earlier, later : Side
        A frame begins and ends on the later side no sooner than on the earlier one.
    after_end : bool
        Whether it also begins there only after it has ended on the earlier side (store and forward).

    Returns
    -------
    i, j : arrays of int
        Matched rows of both sides, both ascending.
    """
    pair = Pair.of(earlier, later, after_end)
    anchors = _anchors(pair)
    lags = pair.lag_us(*anchors)
    # Of a frame that the capture began in the middle of, only the end is known.
    lags = lags[np.isfinite(lags)]
    lag = float(np.median(lags)) if len(lags) else None
    found = [anchors]
    edges_i, edges_j = (np.r_[-1, rows, len(side)] for rows, side in zip(anchors, (earlier, later), strict=True))
    for hole in np.flatnonzero((np.diff(edges_i) > 1) & (np.diff(edges_j) > 1)).tolist():
        first_i, first_j = edges_i.item(hole) + 1, edges_j.item(hole) + 1
        between = pair.part(slice(first_i, edges_i[hole + 1]), slice(first_j, edges_j[hole + 1]))
        i, j = _between(between, lag)
        found.append((i + first_i, j + first_j))
    i, j = (np.concatenate(rows) for rows in zip(*found, strict=True))
    order = np.argsort(i, kind="stable")
    return i[order], j[order]


def _anchors(pair: Pair) -> tuple[Integers, Integers]:
    """Return pairs whose content occurs once on each side, in the same order on both."""
    i, j = in_common(pair.earlier.key, pair.later.key)
    order = np.argsort(i)
    i, j = i[order], j[order]
    able = pair.possible(i, j)
    i, j = i[able], j[able]
    keep = _rising(j)
    return i[keep], j[keep]


def _rising(values: Integers) -> Integers:
    """Return the rows of a longest rising subsequence."""
    if len(values) < 2 or (np.diff(values) > 0).all():
        return np.arange(len(values))
    tails: list[int] = []
    rows: list[int] = []
    before = np.full(len(values), -1)
    for row, value in enumerate(values.tolist()):
        at = bisect_left(tails, value)
        before[row] = rows[at - 1] if at else -1
        if at == len(tails):
            tails.append(value)
            rows.append(row)
        else:
            tails[at] = value
            rows[at] = row
    out = []
    row = rows[-1]
    while row >= 0:
        out.append(row)
        row = int(before[row])
    return np.array(out[::-1], dtype=np.int64)


def _between(pair: Pair, lag: float | None) -> tuple[Integers, Integers]:
    """Match frames that content does not single out: one to one if that fits, else at the least cost."""
    n, starts, begins = len(pair.later), pair.later.start_us, pair.begins_us
    j = np.arange(n)
    # The last frame that had begun when this one came, if they are all different ones that fit; or each in its order.
    latest = np.searchsorted(begins, starts, side="right") - 1
    fits = (latest >= 0) & pair.possible(np.maximum(latest, 0), j)
    in_order = len(pair.earlier) == n and bool(pair.possible(j, j).all())
    rows = j if in_order else latest if fits.all() and (np.diff(latest) > 0).all() else None
    if lag is None:
        lag = _usual_lag(pair)
    left_out = None
    if rows is not None and waiting(pair.idle_us(rows, j, lag), lag).sum() >= 2 * SKIP:
        # There may be a better way, with a frame left out on either side: one in which they come more regularly.
        left_out = cheapest(pair, lag)
        if spread_us(pair.lag_us(rows, j)) <= spread_us(pair.lag_us(*left_out)) + ALIKE_US:
            return rows, j
        rows = None
    if rows is not None and (n > BLOCK or (in_order and (latest - rows < WIDEST).all())):
        # There is no other way to match all of them, or not one that is looked at.
        return rows, j
    if rows is not None and (np.abs(pair.lag_us(rows, j) - lag) < ALIKE_US).all():
        return rows, j
    plain, other = np.flatnonzero(fits), np.flatnonzero(~fits)
    usual = (np.abs(pair.lag_us(latest[plain], plain) - lag) < ALIKE_US).all()
    if n > BLOCK and (usual or len(plain) == len(pair.earlier)) and (np.diff(latest[plain]) > 0).all():
        compared = latest[other, None] + np.arange(1 - WIDEST, 1)
        if not (pair.possible(np.maximum(compared, 0), other[:, None]) & (compared >= 0)).any():
            # What is none of the frames is left out; all others have the usual lag, or are as many as there are frames.
            return _decided(pair, latest[plain], plain, lag)
    found = left_out or cheapest(pair, lag)
    seen = densest(pair.lag_us(*found))
    if abs(seen - lag) > ALIKE_US:
        # Of frames that come at equal distances, one is as late behind any; a match leaves each only one.
        lag, found = seen, cheapest(pair, seen)
    return _decided(pair, *found, lag)


def _decided(pair: Pair, i: Integers, j: Integers, lag: float) -> tuple[Integers, Integers]:
    """Keep the matches that hold in whatever way the frames are matched.

    Between two that are sure there may be more earlier frames than later ones: which were lost is then told only if
    every later frame has the same partner as early and as late as can be.
    """
    if not len(i):
        return i, j
    n, longest = len(i), longest_lag(lag, pair.lag_us(i, j))
    # Where no match leaves a frame lying, the card does not: neither does any other way to match them.
    prompt = not pair.idle_us(i, j, lag).any()

    def fitting(row: int, ones: range) -> int:
        """Return the first of some earlier frames that this later one can be."""
        mine = j[row : row + 1]
        for some in (np.array(ones[at : at + WIDEST]) for at in range(0, len(ones), WIDEST)):
            fits = pair.possible(some, mine) & (pair.lag_us(some, mine) <= longest)
            if prompt:
                fits &= pair.idle_us(some, mine, lag) == 0
            if fits.any():
                return int(some[fits.argmax()])
        raise AssertionError("it has been matched with one of them")

    keep = np.ones(n, dtype=bool)
    edges = np.r_[-1, np.flatnonzero(_sure(pair, i, j, lag)), n]
    for before, behind in pairwise(edges.tolist()):
        rows = range(before + 1, behind)
        low = int(i[before]) + 1 if before >= 0 else 0
        stop = int(i[behind]) if behind < n else len(pair.earlier)
        if not rows or stop - low == len(rows):
            continue
        first, free = {}, low
        for row in rows:
            first[row] = fitting(row, range(free, stop))
            free = first[row] + 1
        free = stop
        for row in reversed(rows):
            last = fitting(row, range(low, free)[::-1])
            keep[row] = first[row] == last
            free = last
    return i[keep], j[keep]


def _sure(pair: Pair, i: Integers, j: Integers, lag: float) -> Booleans:
    """Return which matches are sure by themselves: they have the usual lag, which no other earlier frame would have."""
    begins, starts = pair.begins_us, pair.later.start_us[j]
    high = np.searchsorted(begins, starts - (lag - ALIKE_US), side="right")
    alone = high - np.searchsorted(begins, starts - (lag + ALIKE_US), side="left") == 1
    sure = alone & (np.abs(pair.lag_us(i, j) - lag) < ALIKE_US)
    # But one before it that has no match may have waited: if this comes as soon as the receiver is done with the last,
    # or if there was something in the way ever since that one was due. So may one that has a match, if that is another.
    free, done_us, ahead = np.r_[0, i[:-1] + 1], pair.done_us[j], np.maximum(i - 1, 0)
    soon = starts - done_us < (starts - done_us).min() + ALIKE_US
    other = soon & (begins[np.minimum(free, ahead)] + lag < done_us + ALIKE_US)
    other |= begins[ahead] + lag > pair.later.busy_us[j] - ALIKE_US
    begun = np.flatnonzero(~other | (free < i) | (i == 0))
    since = begun[np.searchsorted(begun, np.arange(len(i)), side="right") - 1]
    return np.asarray(sure & ~(other & other[since] & (i[since] > 0)))


def _usual_lag(pair: Pair) -> float:
    """Return the lag that most of the later frames have to some earlier frame that they can be."""
    n = len(pair.later)
    j = np.arange(n) if n <= 2 * SAMPLE else np.r_[:SAMPLE, n - SAMPLE : n]
    back = np.searchsorted(pair.begins_us, pair.later.start_us[j], side="right")[:, None] - np.arange(1, UNDER_WAY + 1)
    i, j = np.maximum(back, 0), j[:, None]
    usual = densest(pair.lag_us(i, j)[pair.possible(i, j) & (back >= 0)])
    return 0.0 if np.isnan(usual) else usual
