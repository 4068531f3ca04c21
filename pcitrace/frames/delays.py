"""How long after a send accesses come: what most have in common tells which of them belong to the sends."""

from __future__ import annotations

from math import ceil

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers, pick_us

__all__ = [
    "AT_ONCE_US",
    "BEFORE_CAPTURE",
    "LAG_US",
    "MOST",
    "NEARLY_ALL",
    "SET_UP",
    "as_after",
    "crowded",
    "filled",
    "following",
    "in_step",
    "usual",
    "waited",
]

BEFORE_CAPTURE = 4
"""Sends that may have been started before the capture began, or runs before the first send that start none."""

LAG_US = 0.6
"""By how much the time from a send to the access that completes it may vary."""

NEXT = 8
"""Accesses behind a send of which one may be that."""

NEARLY_ALL = 0.9
"""Share of the sends that must have it; the capture may end before the others'."""

MOST = 0.5
"""Share of the cases from which on something may be the rule."""

FEW = 0.05
"""Share of the cases up to which accesses at one delay are there by chance."""

SET_UP = 16
"""Accesses that may come before the first send, or after the last, without starting one."""

AT_ONCE_US = 0.5
"""An access that comes sooner after a transaction of the card had waited for the bus."""


def following(access_us: Floats, time_us: Floats) -> tuple[Integers, Floats]:
    """Return the rows of the next accesses after each time, and how long after it they come: inf where none does."""
    behind = np.searchsorted(access_us, time_us, side="right")[:, None] + np.arange(NEXT)
    return behind, np.r_[access_us, np.full(NEXT, np.inf)][np.minimum(behind, len(access_us))] - time_us[:, None]


def crowded(times_us: Floats, least: int) -> tuple[Integers, Integers]:
    """Return from which of some times, which ascend, on so many at least lie within `LAG_US`, and how many do."""
    begins = np.flatnonzero(times_us[least - 1 :] <= times_us[: max(len(times_us) - least + 1, 0)] + LAG_US)
    return begins, np.searchsorted(times_us, times_us[begins] + LAG_US, side="right") - begins


def usual(delay_us: Floats, share: float) -> tuple[float, float] | None:
    """Return the shortest delay, from and to, that at least a share of the rows of delays have; None if none is."""
    some, least = delay_us[np.isfinite(delay_us) & (delay_us >= AT_ONCE_US)], max(ceil(share * len(delay_us)), 1)
    if len(some) < least:
        return None
    # It is mostly among the shortest: the others need not be sorted then.
    for reach in (np.partition(some, least - 1)[least - 1] + 2 * LAG_US, np.inf):
        delays = np.sort(some[some <= reach])
        begins, within = crowded(delays, least)
        if len(begins) and delays[begins[0]] + 2 * LAG_US <= reach:
            break
    if not len(begins):
        return None
    near = delays[begins] <= delays[begins[0]] + LAG_US
    low = float(delays[begins[near][within[near].argmax()]])
    return low, low + LAG_US


def in_step(access_us: Floats, time_us: Floats) -> Floats | None:
    """Give each time an access after it, in order; None if that does not come out.

    Where there are not as many as times, some may belong to what was before the first or after the last of these, and
    the last times have none if the capture ends too early: nearly all have to come at a usual delay then, and the
    others are NaN.
    """
    count, found = len(time_us), len(access_us)
    if count == found and (access_us > time_us).all():
        return access_us
    least = max(NEARLY_ALL * count - BEFORE_CAPTURE, 1)
    for early in range(min(BEFORE_CAPTURE, int(found - least)) + 1 if found <= count + SET_UP else 0):
        own = access_us[early:][:count]
        delay = own - time_us[: len(own)]
        window = usual(delay[:, None], NEARLY_ALL)
        if window is not None and (delay > 0).all():
            found_us = np.full(count, np.nan)
            found_us[: len(own)] = np.where((delay >= window[0]) & (delay <= window[1]), own, np.nan)
            return found_us
    return None


def as_after(access_us: Floats, known: Booleans, time_us: Floats) -> Booleans:
    """Return which accesses come as late after one of the times as several do of which that is known."""
    if not len(time_us) or not known.any():
        return np.zeros(len(access_us), dtype=bool)
    before = np.searchsorted(time_us, access_us)[:, None] - 1 - np.arange(NEXT)
    since = access_us[:, None] - np.where(before >= 0, time_us[np.maximum(before, 0)], -np.inf)
    others = np.sort(since[known, 0])
    # Where more than a few of the others are near: between ends that overlap, one behind the other.
    few = int(FEW * len(time_us))
    low, high = others[few:] - LAG_US / 2, others[: max(len(others) - few, 0)] + LAG_US / 2
    low, high = low[low < high], high[low < high]
    begins = np.flatnonzero(np.r_[True, low[1:] > high[:-1]][: len(low)])
    low, high = low[begins], high[np.r_[begins[1:], len(high)][: len(begins)] - 1]
    near = since <= np.r_[-np.inf, high][np.searchsorted(low, since)]
    return np.asarray((np.isfinite(since) & near).any(axis=1))


def waited(access_us: Floats, end_us: Floats, freed_us: Floats) -> Booleans:
    """Return which accesses had to wait for the bus, or for the end of the one before: they come at no usual delay."""
    if not len(freed_us):
        return np.zeros(len(access_us), dtype=bool)
    before = np.searchsorted(freed_us, access_us, side="right") - 1
    behind_us = np.fmax(pick_us(freed_us, before), np.r_[-np.inf, end_us[:-1]])
    return np.asarray(access_us - behind_us < AT_ONCE_US)


def filled(rows: Integers, left: Booleans, late: Booleans) -> Integers:
    """Fill gaps: between two known rows the unknown ones, -1, are those that are left there, if these are as many.

    Not where an access came late.
    """
    missing, known = np.flatnonzero(rows < 0), np.flatnonzero(rows >= 0)
    if (np.diff(rows[known]) <= 0).any():
        return rows
    open_rows = np.flatnonzero(left)
    open_rows = open_rows[~np.isin(open_rows, rows)]
    gap, open_gap = np.searchsorted(known, missing), np.searchsorted(rows[known], open_rows)
    wanted, there = (np.bincount(one, minlength=len(known) + 1) for one in (gap, open_gap))
    disturbed = np.bincount(np.searchsorted(rows[known], np.flatnonzero(late)), minlength=len(known) + 1) > 0
    agree = (wanted == there) & ~disturbed
    out = rows.copy()
    out[missing[agree[gap]]] = open_rows[agree[open_gap]]
    return out
