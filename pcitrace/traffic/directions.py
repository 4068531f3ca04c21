"""Which transactions write and which read, where C/BE# was not captured: told by how well frames come out with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Integers
from pcitrace.traffic.ahead import Expected
from pcitrace.traffic.lengths import parse
from pcitrace.traffic.parser import PENDING
from pcitrace.traffic.plan import Plan

__all__ = ["directions"]

TRIALS = 150
"""Frames of each side that are tried to find where reads begin and writes end."""

TRIAL_PIECES = 30
"""Transactions a frame that are looked at for it."""

SLOW_WRITE = 4
"""Clocks before the first data of most writes at most; reads take longer."""

SLOWEST = 64
"""Clocks before the first data from which all are taken alike."""


def directions(pieces: BusTable, plan: Plan, write: Integers, enough: float = -1.0) -> tuple[Integers, float]:
    """Tell writes from reads, and how well frames come out with it; what cannot come out better than `enough` is left.

    Where C/BE# does not tell, the clocks before the first data do: the limit with which most frames come out whole.
    """
    # Frames that are not tried account for no piece; but those that are may come late.
    sides = [side for side in (plan.sends, plan.receives) if side is not None and len(side)]
    needed_us = max((side.time_us(TRIALS + PENDING) for side in sides), default=np.inf)
    needed = int(np.searchsorted(pieces.last_data_us, needed_us, side="right"))
    trial = pieces.take(np.arange(min(needed, TRIALS * TRIAL_PIECES)))
    until_us = float(trial.last_data_us[-1]) if len(trial) < len(pieces) else np.inf
    tried = [side.until(until_us, TRIALS) for side in sides]
    if not (write < 0).any():
        return write, _score(trial, tried, write[: len(trial)] == 1, 0.0, enough)
    latency = pieces.latency_clks
    values = np.flatnonzero(np.bincount(np.minimum(latency, SLOWEST)))
    # A limit between any two values that occur, or none: the host may only send, or only receive.
    limits = np.r_[0.0, (values[:-1] + values[1:]) / 2, values[-1] + 1.0]
    bonus = np.empty(len(limits))
    for number, limit in enumerate(limits.tolist()):
        # Where there is only one kind, how slow it is tells.
        bonus[number] = 0.02 * ((latency < limit) == (latency <= SLOW_WRITE)).mean()
        # Where frames hardly tell, a gap in the latencies does: memory is slower to be read than to be written.
        if 0 < number < len(values):
            bonus[number] += 0.05 * min(values[number] - values[number - 1] - 1, 4) / 4
    best, chosen = enough, 0.0
    # The likeliest first: then most others need not be looked at.
    for number in np.argsort(-bonus, kind="stable").tolist():
        limit = limits.item(number)
        score = _score(trial, tried, latency[: len(trial)] < limit, bonus.item(number), best)
        if score > best:
            best, chosen = score, limit
    return (latency < chosen).astype(np.int8), best


def _score(pieces: BusTable, tried: Sequence[Expected], write: Booleans, bonus: float, enough: float) -> float:
    """Return how well these pieces and the frames that are tried tell each other, 0 to 3, and a bonus.

    It is the share of frames that come out whole, summed over both sides, and the share of pieces that need not be of
    a frame or are. Reads among writes make frames too, out of what is left of others: then more pieces are left over.
    What cannot be more than `enough` is not looked at further; what is returned then is no more either.
    """
    sides = [pieces.take(write != expected.sending) for expected in tried]
    possible = [_most_whole(some, expected) for some, expected in zip(sides, tried, strict=True)]
    score = left = 0.0
    for number, (some, expected) in enumerate(zip(sides, tried, strict=True)):
        most = score + sum(possible[number:]) + 1 - left / max(len(pieces), 1) + bonus
        if most <= enough:
            return most
        found, _ = parse(some, some.start_us, expected, trial=True)
        score += float(found.max(initial=-1) + 1) / max(len(expected), 1)
        left += np.count_nonzero((found < 0) & ~np.isin(some.data_phases, list(expected.optional)))
    return score + 1 - left / max(len(pieces), 1) + bonus


def _most_whole(pieces: BusTable, tried: Expected) -> float:
    """Return the share of frames that can come out whole at most: those for which there are data phases enough in time.

    One more may have begun before the capture.
    """
    if not len(pieces) or not len(tried):
        return 0.0
    in_time = (pieces.first_data_us >= tried.earliest.min()) & (pieces.last_data_us <= tried.latest.max())
    needed = np.cumsum(np.sort(np.minimum(tried.least, tried.shortest)))
    whole = int(np.searchsorted(needed, pieces.data_phases[in_time].sum(), side="right")) + 1
    return min(whole / len(needed), 1.0)
