"""Which access is the driver's update of its sent queue after each send."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Booleans, Floats, pick_us
from pcitrace.frames.delays import AT_ONCE_US, MOST, NEARLY_ALL, as_after, filled, following, in_step, usual, waited
from pcitrace.frames.starts import CardTimes, Starts
from pcitrace.traffic.csr import CONFIGURATION, Accesses

__all__ = ["updates"]


def updates(csr: Accesses, starts: Starts, card: CardTimes) -> Floats:
    """Return when the driver updated its sent queue, for each send.

    Returns
    -------
    array of float
        First attempt of the access; NaN where there is none or another one may be it. Where a register is accessed
        once after each send, or the profile names the register, it is that one's; else the access that starts no
        send, is not of the receive side, and comes when updates usually come.
    """
    dma_end_us, received_us = card.dma_end_us, card.received_us
    unknown = np.full(len(dma_end_us), np.nan)
    if not len(csr) or not len(dma_end_us):
        return unknown
    free = (starts.send < 0) & (csr.reason != CONFIGURATION) & ~csr.doorbell
    free &= ~csr.plays("receive_doorbell", "receive_buffer")
    named = csr.plays("send_update")
    if named.any():
        done_us = _own_register(csr, named, dma_end_us, received_us[:0])
        return unknown if done_us is None else done_us
    done_us = _own_register(csr, free & (csr.address >= 0), dma_end_us, received_us)
    if done_us is None:
        # The undecided ones have their place in the order: if one is no update, another of them is.
        late = free & (csr.first_attempt_us > dma_end_us[0])
        done_us = None if len(received_us) else in_step(csr.first_attempt_us[late], dma_end_us)
    if done_us is None:
        free[starts.undecided] = True
        causes = free & csr.plays("interrupt")
        some = causes if causes.any() else free
        done_us = _alone(csr.first_attempt_us[some], csr.end_us[some], card)
    done_us = np.where(np.isin(done_us, csr.first_attempt_us[starts.undecided]), np.nan, done_us)
    # A driver that makes nearly all updates with one command makes the others with it too.
    known = np.flatnonzero(~np.isnan(done_us))
    command = csr.command[np.searchsorted(csr.first_attempt_us, done_us[known])]
    usual, often = np.unique(command, return_counts=True)
    if len(often) and often.max() >= NEARLY_ALL * len(known):
        done_us[known[command != usual[often.argmax()]]] = np.nan
    return done_us


def _own_register(csr: Accesses, usable: Booleans, dma_end_us: Floats, received_us: Floats) -> Floats | None:
    """Return the accesses of the register that is accessed once after each send, if there is one.

    Not one that comes sooner after receives than after sends.
    """
    best, least = None, np.inf
    for address in np.unique(csr.address[usable]):
        access_us = csr.first_attempt_us[usable & (csr.address == address)]
        done_us = in_step(access_us, dma_end_us)
        if done_us is None:
            continue
        lag = float(np.nanmedian(done_us - dma_end_us))
        behind = np.searchsorted(received_us, access_us) - 1
        since = access_us[behind >= 0] - received_us[behind[behind >= 0]]
        of_receives = len(since) > MOST * len(access_us) and float(np.median(since)) < lag
        if lag < least and not of_receives:
            best, least = done_us, lag
    return best


def _alone(access_us: Floats, end_us: Floats, card: CardTimes) -> Floats:
    """Give each send the access that comes after it at the usual delay, if it is the only one and can be nothing else.

    Without a usual delay that is the next one. NaN where it may belong to another send or, for it comes as late after a
    receive as other accesses do, to that.
    """
    dma_end_us, received_us = card.dma_end_us, card.received_us
    if not len(access_us):
        return np.full(len(dma_end_us), np.nan)
    behind, lag = following(access_us, dma_end_us)
    window = usual(lag, MOST)
    # What comes at once had waited for the bus: something else led to it.
    next_one = (lag == lag[:, :1]) & np.isfinite(lag) & (lag >= AT_ONCE_US)
    hit = next_one if window is None else (lag >= window[0]) & (lag <= window[1])
    # An update may be several accesses, or something may always follow it: as many as most have, and the first of them.
    many = hit.sum(axis=1)
    normal = (many > 0) & (many == np.bincount(many[many > 0], minlength=1).argmax())
    row = np.where(normal, behind[np.arange(len(behind)), hit.argmax(axis=1)], -1)
    # With a receive between, it is that one's: if it is so mostly, the driver makes no updates.
    got = np.diff(np.searchsorted(received_us, np.c_[dma_end_us, access_us[row]]))[:, 0]
    if window is not None and (got[row >= 0] > 0).mean() >= MOST:
        return np.full(len(dma_end_us), np.nan)
    taken = np.bincount(behind[hit], minlength=len(access_us))
    received = as_after(access_us, taken == 0, received_us)
    if window is None:
        # Nothing but their order tells them: of several sends the first, and none that a receive may have caused.
        received |= np.diff(np.searchsorted(received_us, access_us), prepend=0) > 0
        row[np.r_[False, row[1:] == row[:-1]] | received[row]] = -1
        return pick_us(access_us, row)
    late = waited(access_us, end_us, card.freed_us)
    row[(taken[row] > 1) | late[row]] = -1
    # An access of a receive stands in for an update only where that one comes later than usual: as one that nothing
    # explains, up to the next update, or because it had to wait for this very access.
    strange = np.r_[np.flatnonzero((taken == 0) & ~received), len(access_us)]
    known = np.r_[row[row >= 0], len(access_us), len(access_us)]
    unexplained = strange[np.searchsorted(strange, row)] < known[np.searchsorted(known[:-1], row, side="right")]
    row[received[row] & (unexplained | np.r_[late[1:], False][row])] = -1
    row = filled(row, ~received & (taken == 0) & (access_us > dma_end_us[0]), late)
    done_us = pick_us(access_us, row)
    return np.where(done_us > dma_end_us, done_us, np.nan)
