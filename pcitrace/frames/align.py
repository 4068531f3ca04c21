"""Matching two sequences of frames that keep their order: what was sent with what was seen later.

Frames with a content that occurs once are matched by it; what is left between them by order, length and time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.traffic.content import Keys

__all__ = [
    "ALIKE_US",
    "LONGEST_LAG_US",
    "UNDER_WAY",
    "WIDEST",
    "Side",
    "densest",
    "longest_lag",
    "match",
    "possible",
]

SKIP = 1.0
"""Cost of leaving one frame of either side unmatched."""

LONGEST_LAG_US = 50_000.0
"""A frame that comes later than this after it was sent is another one."""

BLOCK, AT_ONCE = 256, 128
"""Frames of the later side that are matched together, and how many such blocks at once."""

WIDEST = 48
"""Most frames that one frame is compared with, where nothing but order and time tells them apart."""

UNDER_WAY, SAMPLE = 32, 4000
"""Frames that may be under way at once, and how many at either end of a capture are looked at to find the usual lag."""

ALIKE_US = 0.6
"""Lags that differ by less are alike."""


@dataclass(frozen=True)
class Side:
    """One of the two sequences, in order of time.

    Attributes
    ----------
    start_us, end_us : arrays of float
        When each frame begins and ends here.
    shortest, longest : arrays of int
        Bounds of its length in bytes.
    key : array of uint64
        Key of its content, 0 if not known.
    damaged : array of bool
        Whether its content may differ from the same frame's elsewhere.
    """

    start_us: Floats
    end_us: Floats
    shortest: Integers
    longest: Integers
    key: Keys
    damaged: Booleans

    def __len__(self) -> int:
        return len(self.start_us)


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


def densest(lags: Floats) -> float:
    """Return the lag that most of some lags, which ascend, are alike to."""
    count = np.searchsorted(lags, lags + ALIKE_US, side="right") - np.arange(len(lags))
    best = int(count.argmax())
    return float(np.median(lags[best : best + count[best]]))


def longest_lag(lag: float, lags: Floats) -> float:
    """Return how late a frame may come: it may have waited twice as long behind the usual lag as any seems to have."""
    return lag + 2 * float(max(lags.max() - lag, 0.0)) + ALIKE_US


def possible(earlier: Side, later: Side, i: Integers, j: Integers, after_end: bool) -> Booleans:
    """Return which of the pairs can be one frame: by time, by length, by content."""
    begins = earlier.end_us[i] if after_end else earlier.start_us[i]
    time = (later.start_us[j] >= begins) & (later.end_us[j] >= earlier.end_us[i])
    time &= later.start_us[j] - earlier.end_us[i] <= LONGEST_LAG_US
    length = (earlier.shortest[i] <= later.longest[j]) & (later.shortest[j] <= earlier.longest[i])
    if not (earlier.key.any() and later.key.any()):
        return np.asarray(time & length)
    a, b = earlier.key[i], later.key[j]
    content = (a == b) | (a == 0) | (b == 0) | earlier.damaged[i] | later.damaged[j]
    # A damaged frame may have been cut short as well.
    length |= (earlier.damaged[i] | later.damaged[j]) & (a == b) & (a != 0)
    return np.asarray(time & length & content)


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
    if in_order and (latest - np.arange(len(i)) < WIDEST).all():
        # There is no other way to match all of them.
        return i, j
    rows = np.arange(len(i)) if in_order else latest if fits.all() and (np.diff(latest) > 0).all() else None
    if rows is not None and len(j) > BLOCK:
        return i[rows], j
    if lag is None:
        lag = _usual_lag(earlier, later, i, j, after_end)
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
    way = _cheapest if len(j) <= BLOCK else _in_blocks
    found = way(earlier, later, i, j, after_end, lag)
    seen = np.sort(later.start_us[found[1]] - (earlier.end_us if after_end else earlier.start_us)[found[0]])
    seen = seen[np.isfinite(seen)]
    if len(seen) and abs(densest(seen) - lag) > ALIKE_US:
        # Of frames that come at equal distances, one is as late behind any; a match leaves each only one.
        lag = densest(seen)
        found = way(earlier, later, i, j, after_end, lag)
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
    # But one before it that has no match may have waited, if this comes as soon as the receiver is done with the last.
    free = np.r_[0, at[:-1] + 1]
    done_us = np.where(found_j > 0, later.end_us[found_j - 1], -np.inf)
    soon = starts - done_us < (starts - done_us).min() + ALIKE_US
    sure &= ~(soon & (free < at) & (begins[free] + lag < done_us + ALIKE_US))
    longest = longest_lag(lag, lags)
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


def _in_blocks(
    earlier: Side, later: Side, i: Integers, j: Integers, after_end: bool, lag: float
) -> tuple[Integers, Integers]:
    """Match a long stretch piece by piece; each piece looks half a block further than it decides.

    Many pieces are matched at once as if no frame before them had a partner; where that took one twice, again.
    """
    half = BLOCK // 2
    found = np.full(len(j), -1)
    free, count = 0, -(-(len(j) - BLOCK) // half)
    for first in range(0, count, AT_ONCE):
        blocks = range(first, min(first + AT_ONCE, count))
        rows = j[first * half : (blocks[-1] + 2) * half]
        high, price = _prices(earlier, later, i, rows, after_end, lag, BLOCK)
        many_high = sliding_window_view(high, BLOCK)[::half]
        many_price = sliding_window_view(price, BLOCK, axis=0)[::half].transpose(0, 2, 1)
        floor = np.maximum(many_high[:, 0] - WIDEST, 0)
        low, redo = floor.copy(), np.arange(len(blocks))
        many = np.full(many_high.shape, -1)
        while len(redo):
            many[redo] = _least(many_high[redo], many_price[redo], low[redo])
            # What the pieces before have decided is taken.
            taken = np.maximum.accumulate(np.r_[free, many[:, :half].max(axis=1) + 1])
            free_from = np.maximum(floor, taken[:-1])
            begin = np.where(many >= 0, many, len(i)).min(axis=1)
            redo = np.flatnonzero((begin < free_from) | (free_from < low))
            low[redo] = free_from[redo]
        found[first * half : (blocks[-1] + 1) * half] = many[:, :half].ravel()
        free = int(taken[-1])
    rest = j[count * half :]
    high, price = _prices(earlier, later, i, rest, after_end, lag, len(rest))
    [found[count * half :]] = _least(high[None], price[None], np.maximum(high[:1] - WIDEST, free))
    there = found >= 0
    return i[found[there]], j[there]


def _cheapest(
    earlier: Side, later: Side, i: Integers, j: Integers, after_end: bool, lag: float
) -> tuple[Integers, Integers]:
    """Match at the least cost: every frame left out costs, and a little every lag that is unlike the others."""
    high, price = _prices(earlier, later, i, j, after_end, lag, len(j))
    [found] = _least(high[None], price[None], np.zeros(1, dtype=np.int64))
    there = found >= 0
    return i[found[there]], j[there]


def _prices(
    earlier: Side, later: Side, i: Integers, j: Integers, after_end: bool, lag: float, together: int
) -> tuple[Integers, Floats]:
    """Return up to where frames had begun when each later one came, and what it costs with each of the last of them.

    `together` is how many are matched together: as many as can be; among those the lags most like the others.
    """
    begins = earlier.end_us[i] if after_end else earlier.start_us[i]
    starts = later.start_us[j]
    high = np.searchsorted(begins, starts, side="right")
    compared = high[:, None] + np.arange(-WIDEST, 0)
    pairs = np.maximum(compared, 0)
    fit = possible(earlier, later, i[pairs], j[:, None], after_end) & (compared >= 0)
    off = np.abs(starts[:, None] - begins[pairs] - lag) / (20 * (abs(lag) + 1.0))
    return high, np.where(fit, 0.5 * SKIP / together * np.minimum(off, 1.0), np.inf)


def _least(high: Integers, price: Floats, low: Integers) -> Integers:
    """Return the partner of each later frame (columns) of some blocks (rows) that are apart; -1 for none.

    Dynamic programming over the later frames; each is compared with the frames that had begun before it, those before
    `low` apart.
    """
    blocks, rows = high.shape
    partner = np.full((blocks, rows), -1)
    if not np.isfinite(price).any():
        return partner
    # Blocks lie next to each other in memory: what is done along the columns is done for all of them at once.
    price = np.ascontiguousarray(price.transpose(1, 2, 0))
    order = np.arange(WIDEST + 1, dtype=np.int8)[:, None]
    each = np.arange(blocks)
    # best[c]: least cost of the later frames so far with the first high - WIDEST + c earlier ones dealt with.
    dealt = order + (high[:, 0] - WIDEST - low)
    best = np.where(dealt >= 0, dealt * SKIP, np.inf)
    matched = np.zeros((rows, WIDEST, blocks), dtype=bool)
    origin = np.zeros((rows, WIDEST + 1, blocks), dtype=np.int8)
    for row in range(rows):
        further = high[:, row] - high[:, max(row - 1, 0)]
        if further.any():
            column = order + further
            best = best[np.minimum(column, WIDEST), each]
            best += np.maximum(column - WIDEST, 0) * SKIP
        steps = (order + (high[:, row] - WIDEST - low)) * SKIP
        new = best + SKIP
        cost = best[:-1] + price[row]
        np.less(cost, new[1:], out=matched[row])
        np.minimum(cost, new[1:], out=new[1:])
        # Earlier frames left out after this one: carry the least cost onwards.
        best = np.minimum.accumulate(new - steps) + steps
        np.maximum.accumulate(order * (new <= best + 1e-12), out=origin[row])
    at = high[:, -1]
    for row in range(rows - 1, -1, -1):
        column = origin[row, np.minimum(at - high[:, row], 0) + WIDEST, each].astype(np.int64)
        match = (column > 0) & matched[row, np.maximum(column - 1, 0), each]
        at = high[:, row] - WIDEST + column - match
        partner[match, row] = at[match]
    return partner
