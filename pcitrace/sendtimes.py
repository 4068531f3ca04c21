"""Which accesses start which send where nothing names them: told by when they come and how many there are."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Floats, Integers, pick
from pcitrace.csr import CONFIGURATION, Accesses
from pcitrace.starts import BEFORE_CAPTURE, GROUP_US, LAG_US, NEARLY_ALL, Starts, following, started

__all__ = ["by_group", "by_lag", "by_run"]

PAUSES_US = (0.8, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
"""Pauses that may part the runs of accesses of one send from the next and from others, tried in this order."""

SET_UP = 16
"""Accesses that may come before the first send without starting one."""


def by_run(csr: Accesses, dma_start_us: Floats) -> Starts | None:
    """Nothing names the registers, but each send is started by a run of equally many accesses in quick succession.

    The runs are told from other accesses by their number: with some pause between runs and some length of theirs there
    is one for each send, in order, each before its DMA. None if there are no such pause and length. Where another
    access stands with a run and its pause does not tell on which side, neither end of the run is known.
    """
    usable = np.flatnonzero(csr.reason != CONFIGURATION)
    if len(usable) < 2:
        return None
    start_us = csr.first_attempt_us[usable]
    end_us = np.where(np.isnan(csr.data_us), csr.last_attempt_us, csr.data_us)[usable]
    pause = np.r_[np.inf, start_us[1:] - end_us[:-1], np.inf]
    for limit in PAUSES_US:
        heads = np.flatnonzero(pause[:-1] >= limit)
        size = np.diff(np.r_[heads, len(usable)])
        place = np.arange(len(usable)) - np.repeat(heads, size)
        best, least = None, (BEFORE_CAPTURE + 1, False)
        for length in np.unique(size[size > 1]).tolist():
            # Another access may stand right before or behind a run: beyond a pause as there is none within runs.
            joined = size == length + 1
            runs = joined | (size == length)
            within = np.repeat(runs, size) & (place > np.repeat(joined, size)) & (place < length)
            own = pause[:-1][within]
            odd = (pause < own.min()) | (pause > own.max())
            ahead, behind = odd[heads + 1], odd[np.minimum(heads + length, len(usable))]
            first = (heads + (joined & ahead))[runs]
            unclear = heads[joined & (ahead == behind)]
            missing = len(dma_start_us) - len(first)
            # Runs too many are no sends but what came first, such as the set-up of the card.
            first = first[max(-missing, 0) :]
            last = first + length - 1
            if (abs(missing), missing > 0) >= least or (start_us[last] > dma_start_us[max(missing, 0) :]).any():
                continue
            either = np.r_[unclear, unclear + length]
            best, least = (first, last, either), (abs(missing), missing > 0)
        if best is not None:
            first, last, either = best
            unknown = np.full(len(dma_start_us) - len(first), -1)
            return _among(usable, len(csr), np.r_[unknown, first], np.r_[unknown, last], either)
    return None


def by_lag(csr: Accesses, dma_start_us: Floats, dma_end_us: Floats) -> Starts | None:
    """Each send is started by one access and completed by another, always about as long after it.

    Those that complete sends are told by that; the others start one send each, in order, before its DMA. None if that
    does not come out, or in more than one way.
    """
    usable = np.flatnonzero(csr.reason != CONFIGURATION)
    access_us, count = csr.first_attempt_us[usable], len(dma_end_us)
    behind, lag = following(access_us, dma_end_us)
    lags = np.sort(lag[np.isfinite(lag)])
    within = np.searchsorted(lags, lags + LAG_US, side="right") - np.arange(len(lags))
    found: list[Starts] = []
    while len(within) and (best := int(within.argmax())) >= 0 and within[best] >= NEARLY_ALL * count:
        low, high = lags[best], lags[best] + LAG_US
        within[(lags > low - LAG_US) & (lags <= high)] = 0
        hit = (lag >= low) & (lag <= high)
        nearest = np.where(hit, np.abs(lag - np.median(lag[hit])), np.inf).argmin(axis=1)
        completes = behind[np.arange(count), nearest][hit.any(axis=1)]
        both = np.zeros(len(access_us), dtype=bool)
        both[behind[hit & (hit.sum(axis=1) > 1)[:, None]]] = True
        either = np.flatnonzero(both)
        starts = np.delete(np.arange(len(usable)), completes)
        surplus = len(starts) - count
        starts = starts[max(surplus, 0) :]
        first = np.r_[np.full(max(-surplus, 0), -1), usable[starts]]
        in_time = access_us[starts] <= dma_start_us[max(-surplus, 0) :]
        if -BEFORE_CAPTURE <= surplus <= SET_UP and (np.diff(completes) > 0).all() and in_time.all():
            send = np.full(len(csr), -1)
            send[usable[starts]] = np.arange(max(-surplus, 0), count)
            # Of two that came at such a time one starts a send.
            first[np.isin(first, usable[either])] = -1
            found.append(Starts(first, first.copy(), send, usable[either]))
    return found[0] if len(found) == 1 else None


def by_group(csr: Accesses, dma_start_us: Floats) -> Starts:
    """Nothing names the registers: the group of accesses before the DMA starts it; a batch shares its group evenly.

    Unknown where there are not as many accesses as before most.
    """
    usable = np.flatnonzero(csr.reason != CONFIGURATION)
    if not len(usable):
        none = np.full(len(dma_start_us), -1)
        return Starts(none, none.copy(), np.full(len(csr), -1, dtype=np.int32))
    end_us = np.where(np.isnan(csr.data_us), csr.last_attempt_us, csr.data_us)[usable]
    begins = np.r_[True, csr.first_attempt_us[usable][1:] - end_us[:-1] >= GROUP_US]
    group_start = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    before = np.searchsorted(csr.first_attempt_us[usable], dma_start_us, side="right") - 1
    known = before >= 0
    own = np.where(known, group[np.maximum(before, 0)], -1)
    first = np.where(known, group_start[np.maximum(own, 0)], -1)
    last = before.copy()
    # Sends of one group, in order: the k-th of n has the k-th n-th part of it, if it divides.
    run_start = np.flatnonzero(np.r_[True, own[1:] != own[:-1]])
    length = np.diff(np.r_[run_start, len(own)])
    for start, many in zip(run_start[length > 1].tolist(), length[length > 1].tolist(), strict=True):
        if own[start] < 0:
            continue
        size = last[start] - first[start] + 1
        if size % many == 0:
            part = size // many
            begin = first[start] + part * np.arange(many)
            first[start : start + many], last[start : start + many] = begin, begin + part - 1
        else:
            last[start : start + many] = last[start]
    heads = run_start[known[run_start]]
    undecided = _unusual(csr.first_attempt_us[usable], dma_start_us[heads], first[heads], last[heads])
    return _among(usable, len(csr), first, last, undecided)


def _unusual(access_us: Floats, dma_start_us: Floats, first: Integers, last: Integers) -> Integers:
    """Return the accesses before sends that are more, or fewer, than before most of them.

    Counted back to the start of the group, or to a pause longer before the DMA than the last access usually is: another
    access may have come between that one and the DMA.
    """
    if not len(first):
        return first
    reach_us = float(np.median(dma_start_us - access_us[last])) + GROUP_US
    low = np.minimum(first, np.searchsorted(access_us, dma_start_us - reach_us))
    many = last + 1 - low
    strange = many != np.bincount(many).argmax()
    rows = [np.arange(*ends) for ends in zip(low[strange], last[strange] + 1, strict=True)]
    return np.concatenate(rows) if rows else first[:0]


def _among(usable: Integers, count: int, first: Integers, last: Integers, undecided: Integers) -> Starts:
    """Return the starts of sends that were found among the usable ones of `count` accesses.

    A send that may begin or end with an undecided one is not known to begin or end anywhere.
    """
    send = np.full(count, -1, dtype=np.int32)
    send[usable] = started(len(usable), first, last)
    unknown = np.isin(first, undecided) | np.isin(last, undecided)
    first, last = np.where(unknown, -1, first), np.where(unknown, -1, last)
    return Starts(pick(usable, first), pick(usable, last), send, usable[undecided])
