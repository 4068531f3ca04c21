"""Pieces that are of no frame: which matches still hold near them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.frames.sides import ALIKE_US, UNDER_WAY, Matches, densest, longest_lag
from pcitrace.traffic import Bursts
from pcitrace.traffic.dma import NO_ROOM
from pcitrace.traffic.reading import FRAME_KINDS

__all__ = ["Loose", "certain", "timely"]

IN_A_ROW = 3
"""So many frames with the usual lag, or with the lengths of no other frames, one behind the other are no chance."""


@dataclass(frozen=True)
class Loose:
    """What a card wrote, or read, and is no frame, in order of time.

    Attributes
    ----------
    time_us : array of float
    bytes, data_phases : arrays of int
    stray : array of bool
        Whether it is no status either.
    """

    time_us: Floats
    bytes: Integers
    data_phases: Integers
    stray: Booleans

    @classmethod
    def of(cls, bursts: Bursts, side: int) -> Loose:
        """Take it from the bursts of a bus: what is written where frames are received, or read where they are sent."""
        of_none = (bursts.write == side) & (bursts.kind != FRAME_KINDS[side])
        rows = np.flatnonzero(of_none & (bursts.data_phases > 0))
        rows = rows[np.argsort(bursts.first_data_us[rows])]
        return cls(
            bursts.first_data_us[rows], bursts.bytes[rows], bursts.data_phases[rows], bursts.reason[rows] == NO_ROOM
        )

    def within(self, start_us: Floats, end_us: Floats) -> Integers:
        """Return how many data phases of it are between some times."""
        total = np.append(0, np.cumsum(self.data_phases))
        return np.asarray(total[np.searchsorted(self.time_us, end_us)] - total[np.searchsorted(self.time_us, start_us)])


def certain(matches: Matches, loose: Loose) -> Booleans:
    """Return which matches of frames on a wire with receives hold although what is of no frame was seen among these."""
    stray = loose.stray & ~_cut_off(matches, loose)
    return _undisturbed(matches, loose.time_us[stray]) & _due(matches, loose) & timely(matches)


def timely(matches: Matches) -> Booleans:
    """Return which matches are not of a frame on the wire that the capture begins in, and sooner than all others.

    How long such a frame is was not seen, so any receive has its length. One that was on the wire before is received
    after the capture began, too. A host (a card of another maker, wide66) received one 2.1 us after such a frame had
    ended, where the others took 3.1: it was the one before, and that one had got lost.
    """
    earlier, lag_us = matches.pair.earlier, matches.lag_us
    cut = np.isneginf(earlier.start_us[matches.i]) & np.isfinite(lag_us)
    known = (earlier.key[matches.i] != 0) & (earlier.key[matches.i] == matches.pair.later.key[matches.j])
    return np.asarray(known | ~cut | (lag_us >= lag_us[~cut & np.isfinite(lag_us)].min(initial=np.inf)))


def _undisturbed(matches: Matches, stray_us: Floats) -> Booleans:
    """Return which matches hold although pieces that are of no frame were seen on the later side.

    Where such pieces are, those around them were not told apart rightly, and one frame that is taken for another moves
    all behind it. So no match near them holds, until a row of frames has the usual lag again, for then none is pending,
    or the lengths of no other row of frames that may still be pending.
    """
    earlier, later, i, j = matches.pair.earlier, matches.pair.later, matches.i, matches.j
    keep = np.ones(len(i), dtype=bool)
    if not len(stray_us):
        return keep
    if len(i) < IN_A_ROW:
        return ~keep
    usual = np.zeros(len(i), dtype=bool)
    for begins in (earlier.start_us[i], earlier.end_us[i]):
        lags = matches.start_us - begins
        alike = np.abs(lags - densest(lags)) < ALIKE_US
        usual = alike if np.count_nonzero(alike) > np.count_nonzero(usual) else usual
    # Each came when the one before it was done with.
    usual[1:] &= later.end_us[j[:-1]] <= earlier.end_us[i[1:]]
    row = _in_a_row(usual) | ~_exchangeable(matches)
    edges = np.flatnonzero(np.convolve(row, np.ones(IN_A_ROW, dtype=int)))
    behind = np.unique(np.searchsorted(matches.start_us[edges], stray_us))
    for first, stop in zip(np.r_[-1, edges][behind] + 1, np.r_[edges, len(i)][behind], strict=True):
        keep[first:stop] = False
    # Whose they are is one of the two that they stand between, even where it is certain which frames these are.
    next_one = np.searchsorted(later.start_us, stray_us)
    return keep & ~np.isin(j, [next_one - 1, next_one])


def _in_a_row(which: Booleans) -> Booleans:
    """Whether a row of matches, from each one on, are all such."""
    return np.asarray(sliding_window_view(which, IN_A_ROW).all(axis=1))


def _exchangeable(matches: Matches) -> Booleans:
    """Whether a row of matches, from each one on, may as well be of frames that came before them, or behind."""
    pair, i, j = matches.pair, matches.i, matches.j
    lags = np.sort(matches.lag_us[np.isfinite(pair.begins_us[i])])
    # Where one between them has no match it may be another that has none.
    exchangeable = ~_in_a_row(np.r_[True, np.diff(i) == 1])
    if not len(lags):
        return np.ones_like(exchangeable)
    longest = longest_lag(lags[0], lags)
    for step in (-1, 1):
        for moved in range(step, step * (UNDER_WAY + 1), step):
            other = np.clip(i + moved, 0, len(pair.earlier) - 1)
            lag_us = pair.lag_us(other, j)
            in_time = (other == i + moved) & (lag_us >= 0) & (lag_us <= longest)
            if not in_time.any():
                break
            exchangeable |= _in_a_row(in_time & pair.possible(other, j))
    return exchangeable


def _due(matches: Matches, loose: Loose) -> Booleans:
    """Return which matches hold although the later frame came when another was due, of which nothing else was seen.

    With what is short behind it, taken for status, it is as long as that one: its tail may have been cut off, so that
    it has the length of a frame that was lost before.
    """
    pair, i, starts, lags = matches.pair, matches.i, matches.start_us, matches.lag_us
    keep = np.ones(len(i), dtype=bool)
    missing = np.ones(len(pair.earlier), dtype=bool)
    missing[i] = False
    lost = np.flatnonzero(missing)
    usual = densest(lags)
    if not len(lost) or np.isnan(usual):
        return keep
    due_us = pair.begins_us[lost] + usual
    at = np.searchsorted(starts, due_us - ALIKE_US)
    inside = at < len(i)
    lost, due_us, at = lost[inside], due_us[inside], at[inside]
    total = np.append(0, np.cumsum(loose.bytes))
    until = total[np.searchsorted(loose.time_us, np.append(starts, np.inf))]
    mine, shortest = matches.j[at], pair.earlier.shortest[lost]
    longest = pair.later.longest[mine]
    longer = (longest < shortest) & (shortest <= longest + until[at + 1] - until[at])
    longer &= (starts[at] < due_us + ALIKE_US) & (lags[at] > usual + ALIKE_US)
    keep[at[longer & (pair.later.key[mine] == 0)]] = False
    return keep


def _cut_off(matches: Matches, loose: Loose) -> Booleans:
    """Return which pieces of no frame are of frames that the capture began or ended within.

    Such pieces come before all frames, and are too few for any whose arrival was seen; or behind all, and are fewer
    than one that may still come has. Nothing was told wrongly where they are.
    """
    earlier, later, come_us = matches.pair.earlier, matches.pair.later, matches.pair.begins_us
    found = np.zeros(len(loose.time_us), dtype=bool)
    if not len(later) or not len(matches.i):
        return found
    whole = np.isfinite(earlier.start_us) & np.isfinite(earlier.end_us)
    before = loose.time_us < later.start_us[0]
    since = np.cumsum((loose.bytes * before)[::-1])[::-1]
    since = np.append(since, 0)[np.searchsorted(loose.time_us, come_us[whole])]
    if (since < np.maximum(earlier.shortest[whole], 1)).all():
        found |= before
    behind = loose.time_us > later.end_us[-1]
    if loose.stray[behind].any():
        to_come = (np.arange(len(earlier)) > matches.i[-1]) & (come_us <= loose.time_us[behind & loose.stray][0])
        if (loose.bytes[behind].sum() < earlier.longest[to_come]).any():
            found |= behind
    return found
