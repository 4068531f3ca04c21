"""NIC transactions -> DMA bursts, where AD was not captured.

The wire says how long each frame is; so the pieces that add up to it, in order and in time, are its DMA. Whether a
transaction reads or writes shows in the clocks before its first data: a read waits for memory and for a turnaround.
Without a wire probe pieces are joined by the burst limit and the pauses between them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcitrace.bustable import BACK_TO_BACK_CLKS, BusTable
from pcitrace.columns import Floats, Integers
from pcitrace.profiles import Profile
from pcitrace.traffic.content import WireFrames
from pcitrace.traffic.directions import directions
from pcitrace.traffic.dma import (
    BY_RULE,
    EITHER_TAIL,
    NO_DATA,
    NO_ROOM,
    SHORT_NO_FRAME,
    WIRE_LENGTHS,
    Dma,
    Kind,
)
from pcitrace.traffic.lengths import parse
from pcitrace.traffic.plan import Plan, phase_widths

__all__ = ["by_lengths"]

CLEARLY = 0.1
"""Share of frames by which something else than what is stated must fit better."""

PAUSE_US = 3.0
"""Without a wire probe, pieces of one frame have shorter pauses between them,"""

OVERLAP_PAUSE_US = 50.0
"""or such where the card waits for the wire in between,"""

CLOSE_US = 1.0
"""and such where a piece is not full."""

LONGEST = range(1514, 1534)
"""Bytes in memory of the longest frames but jumbo ones, in whole data phases: no card's burst limit."""


def by_lengths(
    bus: BusTable, profile: Profile, sent: WireFrames | None, received: WireFrames | None, write: Integers
) -> Dma:
    """Find kinds and bursts of NIC transactions whose addresses are not known.

    Parameters
    ----------
    bus : BusTable
        Transactions that the NIC began, in order of time.
    profile : Profile
    sent, received : WireFrames or None
        Frames on the wire that this host sends and receives; None where they were not captured.
    write : array of int
        Direction where C/BE# was captured; -1 where not.

    Returns
    -------
    Dma
    """
    moved = np.flatnonzero(bus.data_phases > 0).astype(np.int32)
    pieces = bus.take(moved)
    # What the profile states comes first; that wire and DMA overlap is tried too, for the trace may show it.
    stated = [profile, replace(profile, send=None, receive=None)] if profile.send or profile.receive else [profile]
    plans = [Plan.of(one, sent, received, per_phase) for per_phase in phase_widths(pieces) for one in stated]
    plan = plans[0]
    direction, whole = directions(pieces, plan, write[moved])
    for other in plans[1:]:
        told, better = directions(pieces, other, write[moved], whole + CLEARLY)
        if better > whole + CLEARLY:
            plan, direction, whole = other, told, better

    asked_us = _asked(bus, pieces, _owners(bus, moved, write, np.arange(len(moved))))
    burst = np.full(len(moved), -1, dtype=np.int32)
    kind = np.zeros(len(moved), dtype=np.int8)
    reason = np.zeros(len(moved), dtype=np.int8)
    total = 0
    written = 0
    for side, expected, what, optional, aside in (
        (1, plan.receives, Kind.RECEIVE_DATA, plan.status, Kind.STATUS_WRITE),
        (0, plan.sends, Kind.SEND_DATA, plan.fetch, Kind.DESCRIPTOR_FETCH),
    ):
        rows = np.flatnonzero(direction == side).astype(np.int32)
        some = pieces.take(rows)
        if expected is not None:
            found, either = parse(some, asked_us if len(rows) == len(pieces) else asked_us[rows], expected)
            why = np.where(either, EITHER_TAIL, WIRE_LENGTHS)
        else:
            if side == 0:
                optional = _fetches(some, asked_us[rows], plan, profile, written)
            found = _join(
                some, asked_us[rows], optional, plan.per_phase, side == 1 and profile.receive == "cut_through"
            )
            why = np.full(int(found.max(initial=-1)) + 1, BY_RULE)
        written = int(found.max(initial=-1)) + 1
        in_frame = found >= 0
        burst[rows[in_frame]] = found[in_frame] + total
        total += int(found.max()) + 1 if in_frame.any() else 0
        kind[rows[in_frame]] = what
        reason[rows[in_frame]] = why[found[in_frame]]
        left = rows[~in_frame]
        small = pieces.data_phases[left] <= max(optional, default=0)
        kind[left[small]] = aside
        reason[left[small]] = SHORT_NO_FRAME
        reason[left[~small]] = NO_ROOM
    return _whole(bus, _owners(bus, moved, write, burst), Dma(pieces, direction, kind, reason, burst))


def _fetches(reads: BusTable, asked_us: Floats, plan: Plan, profile: Profile, received: int) -> frozenset[int]:
    """Return the data phases that reads of descriptors have, of those that they may have, where no wire tells.

    A card that may fetch many at once seldom does, and pieces of frames are as long. But every frame has a descriptor:
    as many are fetched as frames are sent, and as are received at most.
    """
    each = profile.send_descriptor.size_bytes if profile.send_descriptor else 8
    best, chosen = np.inf, plan.fetch
    for limit in [*sorted(plan.fetch & set(reads.data_phases.tolist()), reverse=True), 0]:
        tried = frozenset(size for size in plan.fetch if size <= limit)
        sent = int(_join(reads, asked_us, tried, plan.per_phase, False).max(initial=-1)) + 1
        phases = reads.data_phases[np.isin(reads.data_phases, list(tried))]
        fetched = int((phases * plan.per_phase // each).sum())
        off = max(sent - fetched, fetched - sent - received)
        if off < best:
            best, chosen = off, tried
        if best <= 0:
            break
    return chosen


def _join(pieces: BusTable, asked_us: Floats, optional: frozenset[int], per_phase: int, cut_through: bool) -> Integers:
    """Join pieces where no wire tells the lengths: a full piece goes on, and so do single data phases close together.

    Between two frames there are always as many descriptors or status words; what is more belongs to the frame's end.
    """
    if not len(pieces):
        return np.zeros(0, dtype=np.int64)
    size, cut = pieces.data_phases, pieces.cut
    full = size == size.max()
    pause = np.r_[np.inf, asked_us[1:] - pieces.end_us[:-1]]
    unit_begins = np.r_[True, ~cut[:-1]]
    unit = np.cumsum(unit_begins) - 1
    phases = np.bincount(unit, weights=size).astype(np.int64)
    heads = np.flatnonzero(unit_begins)
    tails = np.r_[heads[1:] - 1, len(pieces) - 1]
    full_unit = full[tails] | (phases == size.max())
    pause_unit = pause[heads]
    solid = np.flatnonzero(~np.isin(phases, list(optional)))
    if not len(solid):
        return np.full(len(pieces), -1)
    # Where nothing is shorter nothing was cut, and what is as long as the longest frame is one.
    if phases[solid].min() >= size.max() or size.max() * per_phase in LONGEST:
        full_unit[:] = False
    # Solid units that go on: next to each other, and the one before full, or a short head, or single data phases.
    before, after = solid[:-1], solid[1:]
    close = np.maximum.reduceat(pause_unit[: solid[-1] + 1], before + 1) if len(before) else pause_unit[:0]
    next_to = after == before + 1
    goes_on = full_unit[before] & (close < (OVERLAP_PAUSE_US if cut_through else PAUSE_US)) & next_to
    goes_on |= ~full_unit[before] & full_unit[after] & next_to & (close < CLOSE_US)
    goes_on |= (phases[before] == 1) & (phases[after] == 1) & next_to & (close < CLOSE_US)
    run = np.cumsum(np.r_[True, ~goes_on]) - 1
    out = np.full(len(phases), -1)
    out[solid] = run
    # Short units behind a run that ended full: all but those that stand between any two runs.
    ends = solid[np.r_[np.flatnonzero(np.diff(run)), len(solid) - 1]]
    begins = solid[np.r_[0, np.flatnonzero(np.diff(run)) + 1]]
    between = np.r_[begins[1:], len(phases)] - ends - 1
    usual = int(np.quantile(between[:-1], 0.1)) if len(between) > 1 else 1
    for number in np.flatnonzero((between > usual) & full_unit[ends]).tolist():
        for extra in range(int(ends[number]) + 1, int(ends[number]) + 1 + int(between[number]) - usual):
            if pause_unit[extra] > PAUSE_US:
                break
            out[extra] = number
    return np.asarray(out[unit])


def _owners(bus: BusTable, moved: Integers, write: Integers, burst: Integers) -> Integers:
    """Return for each transaction the number of the one among `moved` that it is, or is an attempt of; else theirs.

    A retried attempt belongs to the next transaction that moved data the same way, as far as that was captured: PCI
    obliges its initiator to repeat it. What follows too soon to be the repetition waited for the bus meanwhile: then it
    belongs to the next one of another burst, for the pieces of one come in their order.
    """
    out = np.full(len(bus), len(moved), np.int32)
    out[moved] = np.arange(len(moved), dtype=np.int32)
    attempts = np.flatnonzero(bus.data_phases == 0)
    after = np.minimum(attempts + 1, len(bus) - 1)
    soon = (bus.start_us[after] - bus.end_us[attempts] <= BACK_TO_BACK_CLKS * bus.clock_us) & (
        bus.data_phases[after] > 0
    )
    soon &= write[after] == write[attempts]
    for way in np.unique(write[attempts]).tolist():
        mine = write[attempts] == way
        numbers = np.flatnonzero(write[moved] == way)
        begins = np.flatnonzero((np.diff(burst[numbers], prepend=-1) != 0) | (burst[numbers] < 0))
        other = np.append(begins, len(numbers))[np.searchsorted(begins, np.arange(len(numbers) + 1), side="right")]
        owner = np.searchsorted(moved[numbers], attempts[mine])
        out[attempts[mine]] = np.append(numbers, len(moved))[np.where(soon[mine], other[owner], owner)]
    return out


def _asked(bus: BusTable, moved: BusTable, owner: Integers) -> Floats:
    """Return the first attempt of each transaction that moved data: what was retried had been asked for."""
    asked_us = moved.start_us.copy()
    if len(moved) < len(bus):
        attempts = owner < len(moved)
        np.minimum.at(asked_us, owner[attempts], bus.start_us[attempts])
    return asked_us


def _whole(bus: BusTable, owner: Integers, moved: Dma) -> Dma:
    """Put attempts with what repeats them, number the bursts in order of time."""
    n, burst = len(bus), moved.burst
    single = np.flatnonzero(burst < 0)
    burst[single] = (burst.max(initial=-1)) + 1 + np.arange(len(single))
    if not len(burst):
        none = np.full(n, -1)
        return Dma(bus, none, np.zeros(n, dtype=np.int64), np.full(n, NO_DATA), np.arange(n))
    repeated = owner < len(burst)
    owner = np.minimum(owner, len(burst) - 1)
    whole_burst = np.where(repeated, burst[owner], burst.max() + 1 + np.arange(n))
    starts = np.full(int(whole_burst.max()) + 1, np.inf)
    np.minimum.at(starts, whole_burst, bus.start_us)
    used = np.flatnonzero(np.isfinite(starts))
    rank = np.empty(len(starts), dtype=np.int32)
    rank[used[np.argsort(starts[used], kind="stable")]] = np.arange(len(used))
    return Dma(
        bus,
        np.where(repeated, moved.write[owner], -1),
        np.where(repeated, moved.kind[owner], np.int8(Kind.UNKNOWN)),
        np.where(repeated, moved.reason[owner], np.int8(NO_DATA)),
        rank[whole_burst],
    )
