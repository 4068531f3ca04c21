"""Matching at the least cost, by dynamic programming."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pcitrace.columns import Floats, Integers
from pcitrace.frames.sides import WIDEST, Pair

__all__ = ["BLOCK", "SKIP", "cheapest", "waiting"]

SKIP = 1.0
"""Cost of leaving one frame of either side unmatched."""

WAITED = 0.5 * SKIP
"""Most that a frame costs that waited for nothing: of a few that did, none is left out for it."""

BLOCK, AT_ONCE = 256, 128
"""Frames of the later side that are matched together, and how many such blocks at once."""


def waiting(idle: Floats, lag: float) -> Floats:
    """Return what frames cost that waited so long (us) with nothing in their way."""
    return np.asarray(WAITED * np.minimum(idle / (abs(lag) + 1.0), 1.0))


def cheapest(pair: Pair, lag: float) -> tuple[Integers, Integers]:
    """Match at the least cost: every frame left out costs, every one that waited for nothing, and a little every lag.

    Parameters
    ----------
    pair : Pair
    lag : float
        The usual lag.

    Returns
    -------
    i, j : arrays of int
        Matched rows of both sides, both ascending.
    """
    if len(pair.later) > BLOCK:
        found = _in_blocks(pair, lag)
    else:
        high, price = _prices(pair, lag, len(pair.later))
        [found] = _least(high[None], price[None], np.zeros(1, dtype=np.int64))
    j = np.flatnonzero(found >= 0)
    return found[j], j


def _in_blocks(pair: Pair, lag: float) -> Integers:
    """Return the partners of a long stretch, block by block; each block looks half a block further than it decides.

    Many blocks are matched at once as if no frame before them had a partner; where that took one twice, again.
    """
    half, n, every = BLOCK // 2, len(pair.later), slice(None)
    found = np.full(n, -1)
    free, count = 0, -(-(n - BLOCK) // half)
    for first in range(0, count, AT_ONCE):
        blocks = range(first, min(first + AT_ONCE, count))
        rows = slice(first * half, (blocks[-1] + 2) * half)
        high, price = _prices(pair.part(every, rows), lag, BLOCK)
        many_high = sliding_window_view(high, BLOCK)[::half]
        many_price = sliding_window_view(price, BLOCK, axis=0)[::half].transpose(0, 2, 1)
        floor = np.maximum(many_high[:, 0] - WIDEST, 0)
        low, redo = floor.copy(), np.arange(len(blocks))
        many = np.full(many_high.shape, -1)
        while len(redo):
            many[redo] = _least(many_high[redo], many_price[redo], low[redo])
            # What the blocks before have decided is taken.
            taken = np.maximum.accumulate(np.r_[free, many[:, :half].max(axis=1) + 1])
            free_from = np.maximum(floor, taken[:-1])
            begin = np.where(many >= 0, many, len(pair.earlier)).min(axis=1)
            redo = np.flatnonzero((begin < free_from) | (free_from < low))
            low[redo] = free_from[redo]
        found[first * half : (blocks[-1] + 1) * half] = many[:, :half].ravel()
        free = int(taken[-1])
    rest = slice(count * half, n)
    high, price = _prices(pair.part(every, rest), lag, n - count * half)
    [found[rest]] = _least(high[None], price[None], np.maximum(high[:1] - WIDEST, free))
    return found


def _prices(pair: Pair, lag: float, together: int) -> tuple[Integers, Floats]:
    """Return up to where frames had begun when each later one came, and what it costs with each of the last of them.

    `together` is how many are matched together: as many as can be; among those the lags most like the others.
    """
    high = np.searchsorted(pair.begins_us, pair.later.start_us, side="right")
    compared = high[:, None] + np.arange(-WIDEST, 0)
    i, j = np.maximum(compared, 0), np.arange(len(high))[:, None]
    fit = pair.possible(i, j) & (compared >= 0)
    off = np.abs(pair.lag_us(i, j) - lag) / (20 * (abs(lag) + 1.0))
    cost = 0.5 * SKIP / together * np.minimum(off, 1.0) + waiting(pair.idle_us(i, j, lag), lag)
    return high, np.where(fit, cost, np.inf)


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
