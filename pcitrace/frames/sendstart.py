"""Which CSR accesses start which send: doorbells and buffer registers where they are known, else groups of accesses."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.facts import WRITES
from pcitrace.frames.delays import MOST, NEARLY_ALL
from pcitrace.frames.sendtimes import by_group, by_lag, by_run
from pcitrace.frames.starts import GROUP_US, CardTimes, Starts, once_each
from pcitrace.profiles import Profile
from pcitrace.traffic.csr import CONFIGURATION, Accesses

__all__ = ["NOT_STARTING", "find", "sends_of"]

OFTEN = 0.25
"""Share of the writes of a register right before doorbells from which on that is no coincidence."""

NOT_STARTING = ("interrupt", "send_update", "receive_doorbell", "receive_buffer", "receive_ring", "receive_ring_size")
"""Roles of registers that start no send."""


def find(csr: Accesses, profile: Profile, card: CardTimes, address: Integers) -> Starts:
    """Find the CSR accesses that start each send.

    Parameters
    ----------
    csr : Accesses
        In order of time.
    profile : Profile
    card : CardTimes
    address : array of int
        Where in memory each send's data begins; -1 if not known.

    Returns
    -------
    Starts
    """
    dma_start_us = card.dma_start_us
    if not len(csr) or not len(dma_start_us):
        return Starts.unknown(len(dma_start_us), len(csr))
    if csr.doorbell.any() and len(csr.of_role("send_buffer")):
        return _by_buffer(csr, dma_start_us, address)
    if csr.doorbell.any():
        ahead = sends_of(_released(csr, profile), len(dma_start_us))
        if not ahead.any():
            return Starts.unknown(len(dma_start_us), len(csr))
        return _by_doorbell(csr, np.flatnonzero(csr.doorbell), ahead, dma_start_us)
    written = np.isin(csr.command, WRITES) & (csr.address >= 0) & (csr.reason != CONFIGURATION)
    bells = once_each(csr, written, dma_start_us)
    if bells is not None:
        return _by_doorbell(csr, bells, np.ones(len(bells), dtype=np.int64), dma_start_us)
    return by_run(csr, card) or by_lag(csr, card) or by_group(csr, card)


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
    released_by = np.repeat(np.arange(len(bells)), ahead)
    rung = csr.first_attempt_us[bells]
    count = len(dma_start_us)
    # Sends released before the capture began have no doorbell: as few as let every doorbell come before its DMA.
    low, high = 0, count
    while low < high:
        early = (low + high) // 2
        which = released_by[: count - early]
        if len(which) == count - early and (rung[which] <= dma_start_us[early:]).all():
            high = early
        else:
            low = early + 1
    which = released_by[: count - low]
    unknown = np.full(low, -1)
    begin, bell_of, undecided = _written_for(csr, bells)
    # Of values for one place numpy keeps the last: of sends that share a doorbell the first.
    send_of = np.full(len(bells) + 1, -1, dtype=np.int32)
    send_of[which[::-1]] = np.arange(low, count, dtype=np.int32)[::-1]
    return Starts(np.r_[unknown, begin[which]], np.r_[unknown, bells[which]], send_of[bell_of], undecided)


def _written_for(csr: Accesses, bells: Integers) -> tuple[Integers, Integers, Integers]:
    """Find the writes that belong to doorbells, such as descriptors on the card.

    A register that is written for every send has nearly all its writes right before doorbells. One that is written at
    another time, such as after a send, comes there only now and then, and is none of theirs.

    Return the first access of each doorbell (-1 if not known), for each access the doorbell it belongs to, counted from
    0 (-1 for none), and the accesses that may belong to a doorbell or not.
    """
    every = np.arange(len(csr))
    usable = np.isin(csr.command, WRITES) & (csr.reason != CONFIGURATION) & ~csr.plays(*NOT_STARTING)
    usable[bells] = False
    end_us = csr.end_us
    leads = usable & np.r_[csr.first_attempt_us[1:] - end_us[:-1] < GROUP_US, False]
    run_of = np.maximum.accumulate(np.where(np.r_[False, leads[:-1]], 0, every))[bells]
    next_bell = np.searchsorted(bells, every)
    behind = next_bell == len(bells)
    in_run = usable & ~behind & (every >= np.r_[run_of, len(csr)][next_bell])
    # What comes before the first doorbell's run may set the card up.
    rows = np.flatnonzero(usable & (every >= run_of[0]))
    sure, maybe = _start_registers(csr.address[rows], next_bell[rows], rows, bells, leads)
    own, unclear = np.zeros(len(csr), dtype=bool), np.zeros(len(csr), dtype=bool)
    own[rows], unclear[rows] = sure & ~behind[rows], maybe & in_run[rows]

    def counted(of: Booleans) -> Integers:
        return np.bincount(next_bell[of], minlength=len(bells))

    all_own, run_own = counted(own), counted(own & in_run)
    usual = np.bincount(all_own).argmax()
    regular = (all_own == usual).mean() >= NEARLY_ALL
    # Apart from the run by a pause: the bus was busy, or it is there for something else. The usual number tells.
    whole = (all_own == usual) if regular else (all_own == run_own)
    part = regular & (run_own == usual)
    taken = own & np.where(whole[np.minimum(next_bell, len(bells) - 1)], True, in_run)
    taken[bells] = True
    begin = np.full(len(bells), -1)
    begin[next_bell[taken][::-1]] = np.flatnonzero(taken)[::-1]
    begin[~(whole | part) | (counted(unclear) > 0)] = -1
    bell_of = np.where(taken, next_bell, -1)
    return begin, bell_of, np.flatnonzero(unclear | (own & ~taken))


def _start_registers(
    address: Integers, next_bell: Integers, rows: Integers, bells: Integers, leads: Booleans
) -> tuple[Booleans, Booleans]:
    """Return which of some writes are to registers that start sends, and of which that may be so.

    Of the writes there are the address, the doorbell behind, counted from 0, and which accesses they are; `bells` are
    the accesses that are doorbells, `leads` says of every access whether the next one follows in the same group.
    """
    register = pd.factorize(address)[0]
    writes = np.bincount(register)
    behind = next_bell == len(bells)
    cut = np.bincount(register, behind) > 0
    # Once before each doorbell, whatever pauses a busy bus makes.
    pairs, times = np.unique((register * len(bells) + next_bell)[~behind], return_counts=True)
    even = np.bincount(pairs // len(bells), times == 1, minlength=len(writes)) >= NEARLY_ALL * len(bells)
    sure, share = np.zeros(len(writes), dtype=bool), np.zeros(len(writes))
    target = np.zeros(len(leads) + 1, dtype=bool)
    target[bells] = True
    for _ in writes:
        share = np.bincount(register, leads[rows] & target[rows + 1]) / writes
        found = ((share >= NEARLY_ALL) | ((share >= OFTEN) & even)) & ~cut
        if (found == sure).all():
            break
        sure = found
        target[rows] |= sure[register]
    return sure[register], ((share >= MOST) & ~sure)[register]


def _released(csr: Accesses, profile: Profile) -> Integers:
    """Return how much each doorbell releases: one send, or as much as its value is ahead of the one before."""
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


def sends_of(ahead: Integers, sends: int) -> Integers:
    """Return how many sends doorbells release that release so many descriptors: of each send there may be several.

    Where some sends have more of them than others, that is not told: 0. A driver gave 11 frames two descriptors and the
    next ones three (a card of another maker, scatter-gather): the second ring seemed to be for two sends. The first
    value says nothing of that.
    """
    each = round(int(ahead.sum()) / max(sends, 1))
    if each < 2:
        return ahead
    if (ahead[1:] % each > 0).any():
        return np.zeros_like(ahead)
    return np.append((ahead[:1] + (each - 1)) // each, ahead[1:] // each).astype(ahead.dtype)
