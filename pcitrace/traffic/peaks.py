"""How late frames usually are: the peaks of the times between pieces and the frames on a wire, before anything is read.

A card that stores and forwards sends a frame so long after it has read its last piece, and writes its first so long
after the frame has come. Whatever the pieces are, there is then a time that has a piece for nearly every frame. Other
things that come as regularly (the descriptor, the status, the pieces before) have peaks of their own.
"""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Floats, Integers
from pcitrace.lattice import BINS, ZERO, Costs, bins

__all__ = ["peaked", "peaks"]

LOOKED_AT = 48
"""Pieces before or after a frame that are compared with it."""

WIDTH = 2
"""Bins either side of a peak that are part of it: a bin is 9 % of a time."""

AROUND = 12
"""Bins either side that say how many would be there by chance."""

SHARE = 0.9
"""Share of frames that are expected in a peak; the rest has any lag."""


def peaks(times_us: Floats, edges_us: Floats, after: bool, count: int) -> Integers:
    """Return the bins of the likeliest lags between targets and edges of pieces, the likeliest first.

    Parameters
    ----------
    times_us : array of float
        The targets, ascending.
    edges_us : array of float
        Beginnings or ends of pieces, ascending.
    after : bool
        Whether pieces come after their targets.
    count : int
        How many at most.
    """
    times_us = times_us[np.isfinite(times_us)]
    if not len(times_us) or not len(edges_us):
        return np.zeros(0, dtype=np.int64)
    at = np.searchsorted(edges_us, times_us, side="left" if after else "right")
    pairs = at[:, None] + (np.arange(LOOKED_AT) if after else -1 - np.arange(LOOKED_AT))
    inside = (pairs >= 0) & (pairs < len(edges_us))
    lag = np.abs(edges_us[np.clip(pairs, 0, len(edges_us) - 1)] - times_us[:, None])
    which = bins(lag.ravel()).reshape(lag.shape)
    seen = np.zeros((len(times_us), BINS), dtype=bool)
    rows = np.broadcast_to(np.arange(len(times_us))[:, None], lag.shape)
    seen[rows[inside], which[inside]] = True
    # A frame counts once, however many pieces it has in a peak.
    near = np.any([np.roll(seen, step, axis=1) for step in range(-WIDTH, WIDTH + 1)], axis=0)
    share = near.mean(axis=0)
    usual = np.convolve(share, np.ones(2 * AROUND + 1) / (2 * AROUND + 1), "same")
    worth = np.where(np.arange(BINS) >= ZERO, share - 0.5 * usual, 0.0)
    found = []
    for _ in range(count):
        best = int(worth.argmax())
        if worth[best] <= 0:
            break
        found.append(best)
        worth[max(best - 2 * WIDTH, 0) : best + 2 * WIDTH + 1] = 0.0
    return np.array(found, dtype=np.int64)


def peaked(lag: Costs, at: int) -> Costs:
    """Return costs of lags with a peak at a bin."""
    shape = np.zeros(BINS)
    shape[max(at - 2 * WIDTH, 0) : at + 2 * WIDTH + 1] = 1.0
    share = SHARE * shape / shape.sum() + (1 - SHARE) * np.exp(-lag.astype(float))
    return np.asarray(-np.log(share), np.float32)
