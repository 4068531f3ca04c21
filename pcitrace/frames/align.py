"""Matching two sequences of frames that keep their order: what was sent with what was seen later.

Frames with a content that occurs once are matched by it; what is left between them by order, length and time.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from pcitrace.columns import Integers
from pcitrace.frames.leastcost import BLOCK, SKIP, cheapest, waiting
from pcitrace.frames.sides import ALIKE_US, UNDER_WAY, WIDEST, Side, densest, idle_us, longest_lag, possible
from pcitrace.traffic.content import Keys

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
    lag_from = earlier.end_us if after_end else earlier.start_us
    anchors = _anchors(earlier, later, after_end)
    lags = later.start_us[anchors[1]] - lag_from[anchors[0]]
    # Of a frame that the capture began in the middle of, only the end is known.
    lags = lags[np.isfinite(lags)]
    lag = np.median(lags) if len(lags) else None
    i_parts, j_parts = [anchors[0]], [anchors[1]]
    edges_i = np.r_[-1, anchors[0], len(earlier)]
    edges_j = np.r_[-1, anchors[1], len(later)]
    holes = np.flatnonzero((np.diff(edges_i) > 1) & (np.diff(edges_j) > 1))
    for hole in holes.tolist():
        rows_i = np.arange(edges_i[hole] + 1, edges_i[hole + 1])
        rows_j = np.arange(edges_j[hole] + 1, edges_j[hole + 1])
        found = _between(earlier, later, rows_i, rows_j, after_end, lag)
        i_parts.append(found[0])
        j_parts.append(found[1])
    i, j = np.concatenate(i_parts), np.concatenate(j_parts)
    order = np.argsort(i, kind="stable")
    return i[order], j[order]


def _anchors(earlier: Side, later: Side, after_end: bool) -> tuple[Integers, Integers]:
    """Return pairs whose content occurs once on each side, in the same order on both."""
    (keys, i), (other_keys, j) = _once(earlier.key), _once(later.key)
    _, rows, other_rows = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
    i, j = i[rows], j[other_rows]
    order = np.argsort(i)
    i, j = i[order], j[order]
    able = possible(earlier, later, i, j, after_end)
    i, j = i[able], j[able]
    keep = _rising(j)
    return i[keep], j[keep]


def _once(key: Keys) -> tuple[Keys, Integers]:
    """Return the keys that occur once, and where."""
    keys, first, count = np.unique(key, return_index=True, return_counts=True)
    single = (count == 1) & (keys != 0)
    return keys[single], first[single]


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


def _between(
    earlier: Side, later: Side, i: Integers, j: Integers, after_end: bool, lag: float | None
) -> tuple[Integers, Integers]:
    """Match frames that content does not single out: one to one if that fits, else at the least cost."""
    begins = earlier.end_us[i] if after_end else earlier.start_us[i]
    starts = later.start_us[j]
    # The last frame that had begun when this one came, if they are all different ones that fit; or each in its order.
    latest = np.searchsorted(begins, starts, side="right") - 1
    fits = (latest >= 0) & possible(earlier, later, i[np.maximum(latest, 0)], j, after_end)
    in_order = len(i) == len(j) and bool(possible(earlier, later, i, j, after_end).all())
    rows = np.arange(len(i)) if in_order else latest if fits.all() and (np.diff(latest) > 0).all() else None
    if lag is None:
        lag = _usual_lag(earlier, later, i, j, after_end)
    if rows is not None and waiting(idle_us(earlier, later, i[rows], j, after_end, lag), lag).sum() >= 2 * SKIP:
        # There may be a better way, with a frame left out on either side.
        rows = None
    if rows is not None and (len(j) > BLOCK or (in_order and (latest - rows < WIDEST).all())):
        # There is no other way to match all of them, or not one that is looked at.
        return i[rows], j
    if rows is not None and (np.abs(starts - begins[rows] - lag) < ALIKE_US).all():
        return i[rows], j
    plain, other = np.flatnonzero(fits), np.flatnonzero(~fits)
    usual = (np.abs(starts[plain] - begins[latest[plain]] - lag) < ALIKE_US).all()
    if len(j) > BLOCK and (usual or len(plain) == len(i)) and (np.diff(latest[plain]) > 0).all():
        compared = latest[other, None] + np.arange(1 - WIDEST, 1)
        able = possible(earlier, later, i[np.maximum(compared, 0)], j[other, None], after_end) & (compared >= 0)
        if not able.any():
            # What is none of the frames is left out; all others have the usual lag, or are as many as there are frames.
            return _decided(earlier, later, i, i[latest[plain]], j[plain], after_end, lag)
    found = cheapest(earlier, later, i, j, after_end, lag)
    seen = np.sort(later.start_us[found[1]] - (earlier.end_us if after_end else earlier.start_us)[found[0]])
    seen = seen[np.isfinite(seen)]
    if len(seen) and abs(densest(seen) - lag) > ALIKE_US:
        # Of frames that come at equal distances, one is as late behind any; a match leaves each only one.
        lag = densest(seen)
        found = cheapest(earlier, later, i, j, after_end, lag)
    return _decided(earlier, later, i, *found, after_end, lag)


def _decided(
    earlier: Side, later: Side, i: Integers, found_i: Integers, found_j: Integers, after_end: bool, lag: float
) -> tuple[Integers, Integers]:
    """Keep the matches that hold in whatever way the frames are matched.

    Between two that have the usual lag, which no other frame would have, there may be more earlier frames than later
    ones: which were lost is then told only if every later frame has the same partner as early and as late as can be.
    """
    n = len(found_i)
    if not n:
        return found_i, found_j
    begins_all = earlier.end_us if after_end else earlier.start_us
    begins, starts = begins_all[i], later.start_us[found_j]
    at = np.searchsorted(i, found_i)
    lags = starts - begins[at]
    high = np.searchsorted(begins, starts - (lag - ALIKE_US), side="right")
    alone = high - np.searchsorted(begins, starts - (lag + ALIKE_US), side="left") == 1
    sure = alone & (np.abs(lags - lag) < ALIKE_US)
    # But one before it that has no match may have waited: if this comes as soon as the receiver is done with the last,
    # or if there was something in the way ever since that one was due. So may one that has a match, if that is another.
    free = np.r_[0, at[:-1] + 1]
    done_us = np.where(found_j > 0, later.end_us[found_j - 1], -np.inf)
    soon = starts - done_us < (starts - done_us).min() + ALIKE_US
    ahead = np.maximum(at - 1, 0)
    other = soon & (begins[np.minimum(free, ahead)] + lag < done_us + ALIKE_US)
    other |= begins[ahead] + lag > later.busy_us[found_j] - ALIKE_US
    begun = np.flatnonzero(~other | (free < at) | (at == 0))
    since = begun[np.searchsorted(begun, np.arange(n), side="right") - 1]
    sure &= ~(other & other[since] & (at[since] > 0))
    longest = longest_lag(lag, lags)
    # Where no match leaves a frame lying, the card does not: neither does any other way to match them.
    prompt = not idle_us(earlier, later, found_i, found_j, after_end, lag).any()
    keep = np.ones(n, dtype=bool)
    edges = np.r_[-1, np.flatnonzero(sure), n]
    for before, behind in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = range(before + 1, behind)
        low = int(at[before]) + 1 if before >= 0 else 0
        stop = int(at[behind]) if behind < n else len(i)
        if not rows or stop - low == len(rows):
            continue

        def fitting(row: int, ones: range) -> int:
            """Return the first of some earlier frames that this later one can be."""
            for some in (np.array(ones[at : at + WIDEST]) for at in range(0, len(ones), WIDEST)):
                fits = possible(earlier, later, i[some], found_j[row : row + 1], after_end)
                fits &= starts[row] - begins[some] <= longest
                if prompt:
                    fits &= idle_us(earlier, later, i[some], found_j[row : row + 1], after_end, lag) == 0
                if fits.any():
                    return int(some[fits.argmax()])
            raise AssertionError("it has been matched with one of them")

        first, free = {}, low
        for row in rows:
            first[row] = fitting(row, range(free, stop))
            free = first[row] + 1
        free = stop
        for row in reversed(rows):
            last = fitting(row, range(low, free)[::-1])
            keep[row] = first[row] == last
            free = last
    return found_i[keep], found_j[keep]


def _usual_lag(earlier: Side, later: Side, i: Integers, j: Integers, after_end: bool) -> float:
    """Return the lag that most of the later frames have to some earlier frame that they can be."""
    some = j if len(j) <= 2 * SAMPLE else np.r_[j[:SAMPLE], j[-SAMPLE:]]
    begins = earlier.end_us[i] if after_end else earlier.start_us[i]
    starts = later.start_us[some]
    back = np.searchsorted(begins, starts, side="right")[:, None] - np.arange(1, UNDER_WAY + 1)
    pairs = np.maximum(back, 0)
    able = possible(earlier, later, i[pairs.ravel()], np.repeat(some, UNDER_WAY), after_end).reshape(pairs.shape)
    lags = np.sort((starts[:, None] - begins[pairs])[able & (back >= 0)])
    lags = lags[np.isfinite(lags)]
    return densest(lags) if len(lags) else 0.0
