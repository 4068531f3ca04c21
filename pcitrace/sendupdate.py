"""Which access is the driver's update of its sent queue after each send."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Booleans, Floats, pick_us
from pcitrace.csr import CONFIGURATION, Accesses
from pcitrace.starts import BEFORE_CAPTURE, LAG_US, MOST, NEARLY_ALL, NEXT, Starts, following

__all__ = ["updates"]

FEW = 0.02
"""Share of the receives up to which accesses at one delay after them are there by chance."""


def updates(csr: Accesses, starts: Starts, dma_end_us: Floats, received_us: Floats) -> Floats:
    """Return when the driver updated its sent queue, for each send.

    Parameters
    ----------
    csr : Accesses
    starts : Starts
    dma_end_us : array of float
        Last data phase of each send, ascending.
    received_us : array of float
        Last data phase of each receive, ascending.

    Returns
    -------
    array of float
        First attempt of the access; NaN where there is none or another one may be it. Where a register is accessed
        once after each send, or the profile names the register, it is that one's; else the access that starts no
        send, is not of the receive side, and comes when updates usually come.
    """
    unknown = np.full(len(dma_end_us), np.nan)
    if not len(csr) or not len(dma_end_us):
        return unknown
    free = (starts.send < 0) & (csr.reason != CONFIGURATION) & ~csr.doorbell
    free &= ~csr.plays("receive_doorbell", "receive_buffer")
    free[starts.undecided] = True
    named = csr.plays("send_update")
    if named.any():
        done_us = _own_register(csr, named, dma_end_us, received_us[:0])
        return unknown if done_us is None else done_us
    done_us = _own_register(csr, free & (csr.address >= 0), dma_end_us, received_us)
    if done_us is None:
        done_us = _alone(csr.first_attempt_us[free], dma_end_us, received_us)
    return np.where(np.isin(done_us, csr.first_attempt_us[starts.undecided]), np.nan, done_us)


def _in_step(access_us: Floats, dma_end_us: Floats) -> Floats | None:
    """Give each send an access after it, in order; None if that does not come out.

    Sends that ended before the capture began may have their accesses in it, and the last ones have none if it ends too
    early. The accesses then have to come at their usual delay.
    """
    count, found = len(dma_end_us), len(access_us)
    least = NEARLY_ALL * count - BEFORE_CAPTURE
    for early in range(max(found - count, 0), min(BEFORE_CAPTURE, int(found - max(least, 1))) + 1):
        own = access_us[early:]
        lag = own - dma_end_us[: len(own)]
        if (lag > 0).all() and (len(own) == found == count or _usual(lag[:, None], NEARLY_ALL) is not None):
            return np.r_[own, np.full(count - len(own), np.nan)]
    return None


def _usual(lag: Floats, share: float) -> tuple[float, float] | None:
    """Return the shortest delay, from and to, that at least a share of the rows of delays have; None if there is none."""
    lags = np.sort(lag[np.isfinite(lag)])
    within = np.searchsorted(lags, lags + LAG_US, side="right") - np.arange(len(lags))
    enough = np.flatnonzero(within >= share * len(lag))
    if not len(enough):
        return None
    near = enough[lags[enough] <= lags[enough[0]] + LAG_US]
    low = float(lags[near[within[near].argmax()]])
    return low, low + LAG_US


def _own_register(csr: Accesses, usable: Booleans, dma_end_us: Floats, received_us: Floats) -> Floats | None:
    """Return the accesses of the register that is accessed once after each send, if there is one.

    Not one that comes sooner after receives than after sends.
    """
    best, least = None, np.inf
    for address in np.unique(csr.address[usable]):
        access_us = csr.first_attempt_us[usable & (csr.address == address)]
        done_us = _in_step(access_us, dma_end_us)
        if done_us is None:
            continue
        lag = float(np.nanmedian(done_us - dma_end_us))
        behind = np.searchsorted(received_us, access_us) - 1
        since = access_us[behind >= 0] - received_us[behind[behind >= 0]]
        of_receives = len(since) > MOST * len(access_us) and float(np.median(since)) < lag
        if lag < least and not of_receives:
            best, least = done_us, lag
    return best


def _alone(access_us: Floats, dma_end_us: Floats, received_us: Floats) -> Floats:
    """Give each send the access that comes after it at the usual delay, if it is the only one and can be nothing else.

    NaN where it could belong to another send or, for it comes as late after a receive as other accesses do, to that.
    """
    behind, lag = following(access_us, dma_end_us)
    usual = _usual(lag, MOST)
    if usual is None:
        return np.full(len(dma_end_us), np.nan)
    hit = (lag >= usual[0]) & (lag <= usual[1])
    row = np.where(hit.sum(axis=1) == 1, behind[np.arange(len(behind)), hit.argmax(axis=1)], -1)
    taken = np.bincount(behind[hit], minlength=len(access_us))
    row[taken[row] > 1] = -1
    row[_of_receives(access_us, taken == 0, received_us)[row]] = -1
    return pick_us(access_us, row)


def _of_receives(access_us: Floats, known: Booleans, received_us: Floats) -> Booleans:
    """Return which accesses come as late after a receive as some do that are known not to be updates of sends."""
    if not len(received_us) or not known.any():
        return np.zeros(len(access_us), dtype=bool)
    before = np.searchsorted(received_us, access_us)[:, None] - 1 - np.arange(NEXT)
    since = access_us[:, None] - np.where(before >= 0, received_us[np.maximum(before, 0)], -np.inf)
    usual = np.sort(since[known, 0])
    alike = np.searchsorted(usual, since + LAG_US / 2) - np.searchsorted(usual, since - LAG_US / 2)
    return np.asarray((np.isfinite(since) & (alike > FEW * len(received_us))).any(axis=1))
