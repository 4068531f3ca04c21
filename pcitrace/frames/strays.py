"""Pieces that are of no frame: which matches still hold near them."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.frames.sides import ALIKE_US, UNDER_WAY, Side, densest, longest_lag, possible

__all__ = ["cut_off", "due", "undisturbed"]

IN_A_ROW = 3
"""So many frames with the usual lag, or with the lengths of no other frames, one behind the other are no chance."""


def undisturbed(earlier: Side, later: Side, i: Integers, j: Integers, stray_us: Floats) -> Booleans:
    """Return which matches hold although pieces that are of no frame were seen on the later side.

    Where such pieces are, those around them were not told apart rightly, and one frame that is taken for another moves
    all behind it. So no match near them holds, until a row of frames has the usual lag again, for then none is pending,
    or the lengths of no other row of frames that may still be pending.
    """
    keep = np.ones(len(i), dtype=bool)
    if not len(stray_us):
        return keep
    if len(i) < IN_A_ROW:
        return ~keep
    starts = later.start_us[j]
    usual = np.zeros(len(i), dtype=bool)
    for begins in (earlier.start_us[i], earlier.end_us[i]):
        lags = starts - begins
        known = np.sort(lags[np.isfinite(lags)])
        alike = np.abs(lags - (densest(known) if len(known) else np.nan)) < ALIKE_US
        usual = alike if np.count_nonzero(alike) > np.count_nonzero(usual) else usual
    # Each came when the one before it was done with.
    usual[1:] &= later.end_us[j[:-1]] <= earlier.end_us[i[1:]]
    row = _in_a_row(usual) | ~_exchangeable(earlier, later, i, j)
    edges = np.flatnonzero(np.convolve(row, np.ones(IN_A_ROW, dtype=int)))
    behind = np.unique(np.searchsorted(starts[edges], stray_us))
    for first, stop in zip(np.r_[-1, edges][behind] + 1, np.r_[edges, len(i)][behind], strict=True):
        keep[first:stop] = False
    # Whose they are is one of the two that they stand between, even where it is certain which frames these are.
    next_one = np.searchsorted(later.start_us, stray_us)
    return keep & ~np.isin(j, [next_one - 1, next_one])


def _in_a_row(which: Booleans) -> Booleans:
    """Whether a row of matches, from each one on, are all such."""
    return np.asarray(sliding_window_view(which, IN_A_ROW).all(axis=1))


def _exchangeable(earlier: Side, later: Side, i: Integers, j: Integers) -> Booleans:
    """Whether a row of matches, from each one on, may as well be of frames that came before them, or behind."""
    starts = later.start_us[j]
    after_end = bool((starts >= earlier.end_us[i]).all())
    begins = earlier.end_us if after_end else earlier.start_us
    lags = np.sort((starts - begins[i])[np.isfinite(begins[i])])
    # Where one between them has no match it may be another that has none.
    exchangeable = ~_in_a_row(np.r_[True, np.diff(i) == 1])
    if not len(lags):
        return np.ones_like(exchangeable)
    longest = longest_lag(lags[0], lags)
    for step in (-1, 1):
        for moved in range(step, step * (UNDER_WAY + 1), step):
            other = np.clip(i + moved, 0, len(earlier) - 1)
            in_time = (other == i + moved) & (starts >= begins[other]) & (starts - begins[other] <= longest)
            if not in_time.any():
                break
            exchangeable |= _in_a_row(in_time & possible(earlier, later, other, j, after_end))
    return exchangeable


def due(earlier: Side, later: Side, i: Integers, j: Integers, loose_us: Floats, size: Integers) -> Booleans:
    """Return which matches hold although the later frame came when another was due, of which nothing else was seen.

    With what is short behind it, taken for status, it is as long as that one: its tail may have been cut off, so that
    it has the length of a frame that was lost before. Loose pieces are given in order of time, with their bytes.
    """
    keep = np.ones(len(i), dtype=bool)
    unseen = np.ones(len(earlier), dtype=bool)
    unseen[i] = False
    lost = np.flatnonzero(unseen)
    starts = later.start_us[j]
    come_us = earlier.end_us if (starts >= earlier.end_us[i]).all() else earlier.start_us
    lags = starts - come_us[i]
    if not len(lost) or not np.isfinite(lags).any():
        return keep
    usual = densest(np.sort(lags[np.isfinite(lags)]))
    at = np.searchsorted(starts, come_us[lost] + usual - ALIKE_US)
    lost, at = lost[at < len(i)], at[at < len(i)]
    total = np.append(0, np.cumsum(size))
    until = total[np.searchsorted(loose_us, np.append(starts, np.inf))]
    longest = later.longest[j[at]]
    longer = (longest < earlier.shortest[lost]) & (earlier.shortest[lost] <= longest + until[at + 1] - until[at])
    longer &= (starts[at] < come_us[lost] + usual + ALIKE_US) & (lags[at] > usual + ALIKE_US)
    keep[at[longer & (later.key[j[at]] == 0)]] = False
    return keep


def cut_off(
    earlier: Side, later: Side, i: Integers, j: Integers, loose_us: Floats, size: Integers, stray: Booleans
) -> Booleans:
    """Return which pieces of no frame, in order of time, are of frames that the capture began or ended within.

    Such pieces come before all frames, and are too few for any whose arrival was seen; or behind all, and are fewer
    than one that may still come has. Those that are `stray` are no status. Nothing was told wrongly where they are.
    """
    found = np.zeros(len(loose_us), dtype=bool)
    if not len(later) or not len(i):
        return found
    after_end = (later.start_us[j] >= earlier.end_us[i]).all()
    come_us = earlier.end_us if after_end else earlier.start_us
    whole = np.isfinite(earlier.start_us) & np.isfinite(earlier.end_us)
    before = loose_us < later.start_us[0]
    since = np.append(np.cumsum((size * before)[::-1])[::-1], 0)[np.searchsorted(loose_us, come_us[whole])]
    if (since < np.maximum(earlier.shortest[whole], 1)).all():
        found |= before
    behind = loose_us > later.end_us[-1]
    if stray[behind].any():
        to_come = (np.arange(len(earlier)) > i[-1]) & (come_us <= loose_us[behind & stray][0])
        if (size[behind].sum() < earlier.longest[to_come]).any():
            found |= behind
    return found
