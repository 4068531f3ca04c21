"""Which CSR accesses start which send: doorbells and buffer registers where they are known, else groups of accesses."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pcitrace.bustable import WRITES
from pcitrace.columns import Booleans, Floats, Integers, next_us, pick
from pcitrace.csr import CONFIGURATION, Accesses
from pcitrace.profiles import Profile

__all__ = ["Starts", "find", "updates"]

GROUP_US = 1.0
"""Accesses of the host with shorter pauses between them belong to one group."""

PAUSES_US = (0.8, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
"""Pauses that may part the runs of accesses of one send from the next and from others, tried in this order."""

BEFORE_CAPTURE = 4
"""Sends that may have been started before the capture began, or runs before the first send that start none."""

LAG_US = 0.6
"""By how much the time from a send to the access that completes it may vary."""

NEXT = 8
"""Accesses behind a send of which one may be that."""

NEARLY_ALL = 0.9
"""Share of the sends that must have it; the capture may end before the others'."""

SET_UP = 16
"""Accesses that may come before the first send without starting one."""

NOT_STARTING = ("interrupt", "receive_doorbell", "receive_buffer", "receive_ring", "receive_ring_size")
"""Roles of registers that start no send."""


@dataclass(frozen=True)
class Starts:
    """The CSR accesses that start sends.

    Attributes
    ----------
    first, last : arrays of int
        For each send the first and last access that start it, as rows of `Accesses`; -1 if not known.
    send : array of int
        For each access the send it starts, the first of them if it starts several; -1 for none.
    undecided : array of int
        Accesses of which some start a send and some complete one, but nothing tells which.
    """

    first: Integers
    last: Integers
    send: Integers
    undecided: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def find(csr: Accesses, profile: Profile, dma_start_us: Floats, dma_end_us: Floats, address: Integers) -> Starts:
    """Find the CSR accesses that start each send.

    Parameters
    ----------
    csr : Accesses
        In order of time.
    profile : Profile
    dma_start_us : array of float
        First data phase of each send, ascending.
    dma_end_us : array of float
        Last data phase of each.
    address : array of int
        Where in memory each send's data begins; -1 if not known.

    Returns
    -------
    Starts
    """
    if not len(csr) or not len(dma_start_us):
        none = np.full(len(dma_start_us), -1)
        return Starts(none, none.copy(), np.full(len(csr), -1, dtype=np.int32))
    if csr.doorbell.any() and len(csr.of_role("send_buffer")):
        return _by_buffer(csr, dma_start_us, address)
    if csr.doorbell.any():
        return _by_doorbell(csr, np.flatnonzero(csr.doorbell), _released(csr, profile), dma_start_us)
    bells = _unnamed_doorbell(csr, dma_start_us)
    if bells is not None:
        return _by_doorbell(csr, bells, np.ones(len(bells), dtype=np.int64), dma_start_us)
    return _by_run(csr, dma_start_us) or _by_lag(csr, dma_start_us, dma_end_us) or _by_group(csr, dma_start_us)


def _by_buffer(csr: Accesses, dma_start_us: Floats, address: Integers) -> Starts:
    """Descriptors on the card: the one that holds the buffer's address is the frame's own."""
    rows = csr.of_role("send_buffer")
    rows = rows[np.isin(csr.command[rows], WRITES) & (csr.value[rows] >= 0)]
    sends = pd.DataFrame({"time": dma_start_us, "address": address, "send": np.arange(len(address))})
    buffers = pd.DataFrame({"time": csr.first_attempt_us[rows], "address": csr.value[rows], "buffer": rows})
    index = csr.index.astype(np.int64)
    buffers["index"] = index[rows]
    found = pd.merge_asof(sends, buffers.sort_values("time"), on="time", by="address")
    bells = np.flatnonzero(csr.doorbell)
    doorbells = pd.DataFrame({"time": csr.first_attempt_us[bells], "index": index[bells], "bell": bells})
    found["index"] = found["index"].fillna(-1).astype(np.int64)
    found = pd.merge_asof(found, doorbells.sort_values("time"), on="time", by="index").sort_values("send")
    buffer = found["buffer"].fillna(-1).to_numpy(dtype=np.int64)
    bell = found["bell"].fillna(-1).to_numpy(dtype=np.int64)
    # An address that stays in its register from one frame to the next is not written for this one.
    stale = pd.Series(bell).groupby(buffer).shift(fill_value=-1).to_numpy() >= 0
    own = np.where(stale | (buffer < 0), bell, buffer)
    first = np.where(bell < 0, -1, np.minimum(own, bell))
    last = np.where(bell < 0, -1, np.maximum(own, bell))
    send = np.full(len(csr), -1, dtype=np.int32)
    for which in (own, bell):
        known = (which >= 0) & (bell >= 0)
        send[which[known][::-1]] = np.flatnonzero(known)[::-1]
    return Starts(first, last, send)


def _by_doorbell(csr: Accesses, bells: Integers, ahead: Integers, dma_start_us: Floats) -> Starts:
    """Take the doorbells in order: each releases as many sends as `ahead` says."""
    released = np.cumsum(ahead)
    rung = csr.first_attempt_us[bells]
    count = len(dma_start_us)
    # Sends released before the capture began have no doorbell: as few as let every doorbell come before its DMA.
    low, high = 0, count
    while low < high:
        early = (low + high) // 2
        which = np.searchsorted(released, np.arange(count - early), side="right")
        if (which < len(bells)).all() and (rung[which] <= dma_start_us[early:]).all():
            high = early
        else:
            low = early + 1
    which = np.searchsorted(released, np.arange(count - low), side="right")
    last = np.r_[np.full(low, -1), bells[which]]
    # Writes just before a doorbell, such as descriptors on the card, belong to it.
    writes = np.isin(csr.command, WRITES) & (csr.reason != CONFIGURATION)
    usable = writes & ~csr.plays(*NOT_STARTING)
    usable[bells] = False
    end_us = np.where(np.isnan(csr.data_us), csr.last_attempt_us, csr.data_us)
    near = np.r_[False, (csr.first_attempt_us[1:] - end_us[:-1] < GROUP_US) & usable[:-1]]
    begin = np.maximum.accumulate(np.where(near, 0, np.arange(len(csr))))
    first = np.where(last >= 0, begin[np.maximum(last, 0)], -1)
    return Starts(first, last, _started(len(csr), first, last))


def _started(count: int, first: Integers, last: Integers) -> Integers:
    """Return for each of `count` accesses the first send of whose accesses, from `first` to `last`, it is; else -1."""
    known = np.flatnonzero(last >= 0)
    length = (last - first)[known] + 1
    owner = np.repeat(known.astype(np.int32), length)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length - first[known], length)
    send = np.full(count, -1, dtype=np.int32)
    # Of values for one place numpy keeps the last.
    send[place[::-1]] = owner[::-1]
    return send


def _released(csr: Accesses, profile: Profile) -> Integers:
    """Return how many sends each doorbell releases: one, or as many as its value is ahead of the one before."""
    bells = np.flatnonzero(csr.doorbell)
    register = next((one for one in profile.registers if one.role == "send_doorbell"), None)
    if register is None or register.value != "tail" or profile.send_descriptor is None:
        return np.ones(len(bells), dtype=np.int64)
    sizes = csr.of_role("send_ring_size")
    unit = next((one.unit_bytes for one in profile.registers if one.role == "send_ring_size"), 1)
    entries = int(csr.value[sizes[-1]]) * unit // profile.send_descriptor.size_bytes if len(sizes) else 0
    value = csr.value[bells]
    ahead = np.diff(value, prepend=value[:1])
    ahead = ahead % entries if entries else np.where(ahead < 0, 1, ahead)
    # The first value seen says how far it went only from a known start: a ring just set up begins at 0.
    fresh = len(sizes) > 0 and sizes[0] < bells[0]
    ahead[0] = value[0] if fresh else 1
    return ahead


def updates(csr: Accesses, starts: Starts, dma_end_us: Floats) -> Floats:
    """Return when the driver updated its sent queue, for each send.

    Parameters
    ----------
    csr : Accesses
    starts : Starts
    dma_end_us : array of float
        Last data phase of each send, ascending.

    Returns
    -------
    array of float
        First attempt of the access: of the register that is accessed once after each send if there is one, else the
        first access after the DMA that starts no send and is not of the receive side, as far as AD tells.
        NaN where there is none or it is undecided; without AD also where the next send had ended by then, unless there
        are as many such accesses as sends.
    """
    free = (starts.send < 0) & (csr.reason != CONFIGURATION)
    if (csr.address >= 0).any():
        free &= ~csr.plays("receive_doorbell", "receive_buffer")
        own = _once_each(csr, free & (csr.address >= 0), dma_end_us, after=True)
        if own is not None:
            return csr.first_attempt_us[own]
        done_us = next_us(csr.first_attempt_us[free], dma_end_us)
    else:
        done_us = _in_turn(csr.first_attempt_us[free], dma_end_us)
    return np.where(np.isin(done_us, csr.first_attempt_us[starts.undecided]), np.nan, done_us)


def _in_turn(access_us: Floats, dma_end_us: Floats) -> Floats:
    """Give each send an access after it: in turn where that comes out, else the next one if it can be no other's."""
    after = access_us[access_us > dma_end_us[0]] if len(dma_end_us) else access_us
    if len(after) == len(dma_end_us) and (after > dma_end_us).all():
        return after
    found = next_us(access_us, dma_end_us)
    return np.where(found < np.r_[dma_end_us[1:], np.inf], found, np.nan)


def _unnamed_doorbell(csr: Accesses, dma_start_us: Floats) -> Integers | None:
    """Return the writes of a register that is written once before each send, if there is one."""
    written = np.isin(csr.command, WRITES) & (csr.address >= 0) & (csr.reason != CONFIGURATION)
    return _once_each(csr, written, dma_start_us, after=False)


def _once_each(csr: Accesses, usable: Booleans, time_us: Floats, after: bool) -> Integers | None:
    """Return the accesses of the register that is accessed once before, or after, each of the given times."""
    best, least = None, np.inf
    for address in np.unique(csr.address[usable]):
        rows = np.flatnonzero(usable & (csr.address == address))
        if len(rows) != len(time_us):
            continue
        lag = csr.first_attempt_us[rows] - time_us
        lag = lag if after else -lag
        if (lag > 0).all() and np.median(lag) < least:
            best, least = rows, float(np.median(lag))
    return best


def _by_run(csr: Accesses, dma_start_us: Floats) -> Starts | None:
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


def _by_lag(csr: Accesses, dma_start_us: Floats, dma_end_us: Floats) -> Starts | None:
    """Each send is started by one access and completed by another, always about as long after it.

    Those that complete sends are told by that; the others start one send each, in order, before its DMA. None if that
    does not come out, or in more than one way.
    """
    usable = np.flatnonzero(csr.reason != CONFIGURATION)
    access_us, count = csr.first_attempt_us[usable], len(dma_end_us)
    behind = np.searchsorted(access_us, dma_end_us, side="right")[:, None] + np.arange(NEXT)
    lag = np.r_[access_us, np.full(NEXT, np.inf)][np.minimum(behind, len(access_us))] - dma_end_us[:, None]
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


def _by_group(csr: Accesses, dma_start_us: Floats) -> Starts:
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
    send[usable] = _started(len(usable), first, last)
    unknown = np.isin(first, undecided) | np.isin(last, undecided)
    first, last = np.where(unknown, -1, first), np.where(unknown, -1, last)
    return Starts(pick(usable, first), pick(usable, last), send, usable[undecided])
