"""NIC transactions -> DMA bursts, where AD was not captured.

The wire says how long each frame is; so the pieces that add up to it, in order and in time, are its DMA. Whether a
transaction reads or writes shows in the clocks before its first data: a read waits for memory and for a turnaround.
Without a wire probe pieces are joined by the burst limit and the pauses between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pcitrace.bustable import BACK_TO_BACK_CLKS, BusTable
from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.profiles import Descriptor, Profile
from pcitrace.traffic.ahead import Expected
from pcitrace.traffic.content import FCS, WireFrames
from pcitrace.traffic.dma import (
    BY_RULE,
    NO_DATA,
    NO_ROOM,
    SHORT_NO_FRAME,
    SHORTEST_RECEIVED,
    WIRE_LENGTHS,
    Dma,
    Kind,
)
from pcitrace.traffic.lengths import parse
from pcitrace.traffic.parser import PENDING

__all__ = ["by_lengths"]

HEADER, WORD = 14, 4
PAUSE_US = 3.0
"""Without a wire probe, pieces of one frame have shorter pauses between them,"""

OVERLAP_PAUSE_US = 50.0
"""or such where the card waits for the wire in between,"""

CLOSE_US = 1.0
"""and such where a piece is not full."""

LONGEST = range(1514, 1534)
"""Bytes in memory of the longest frames but jumbo ones, in whole data phases: no card's burst limit."""

TRIALS = 150
"""Frames of each side that are tried to find where reads begin and writes end."""

CLEARLY = 0.1
"""Share of frames by which something else than what is stated must fit better."""

TRIAL_PIECES = 30
"""Transactions a frame that are looked at for it."""

SLOW_WRITE = 4
"""Clocks before the first data of most writes at most; reads take longer."""

SLOWEST = 64
"""Clocks before the first data from which all are taken alike."""


@dataclass(frozen=True)
class _Plan:
    """What to look for, if a data phase carries `per_phase` bytes."""

    per_phase: int
    sends: Expected | None
    receives: Expected | None
    fetch: frozenset[int]
    status: frozenset[int]


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
    moved = np.flatnonzero(bus.data_phases > 0)
    pieces = bus.take(moved)
    # What the profile states comes first; that wire and DMA overlap is tried too, for the trace may show it.
    stated = [profile, replace(profile, send=None, receive=None)] if profile.send or profile.receive else [profile]
    plans = [_plan(one, sent, received, per_phase) for per_phase in _phase_widths(pieces) for one in stated]
    plan = plans[0]
    direction, whole = _directions(pieces, plan, write[moved])
    for other in plans[1:]:
        told, better = _directions(pieces, other, write[moved], whole + CLEARLY)
        if better > whole + CLEARLY:
            plan, direction, whole = other, told, better

    owner = _owners(bus, moved, write, np.arange(len(moved)))
    # What was retried had been asked for: pauses are counted up to the first attempt.
    asked_us = pieces.start_us.copy()
    np.minimum.at(asked_us, owner[owner < len(moved)], bus.start_us[owner < len(moved)])
    burst = np.full(len(moved), -1, dtype=np.int32)
    kind = np.zeros(len(moved), dtype=np.int8)
    reason = np.zeros(len(moved), dtype=np.int8)
    total = 0
    written = 0
    for side, expected, what, optional, aside in (
        (1, plan.receives, Kind.RECEIVE_DATA, plan.status, Kind.STATUS_WRITE),
        (0, plan.sends, Kind.SEND_DATA, plan.fetch, Kind.DESCRIPTOR_FETCH),
    ):
        rows = np.flatnonzero(direction == side)
        some = pieces.take(rows)
        if expected is not None:
            found = parse(some, asked_us[rows], expected, optional, side == 0)
            why = WIRE_LENGTHS
        else:
            if side == 0:
                optional = _fetches(some, asked_us[rows], plan, profile, written)
            found = _join(
                some, asked_us[rows], optional, plan.per_phase, side == 1 and profile.receive == "cut_through"
            )
            why = BY_RULE
        written = int(found.max(initial=-1)) + 1
        in_frame = found >= 0
        burst[rows[in_frame]] = found[in_frame] + total
        total += int(found.max()) + 1 if in_frame.any() else 0
        kind[rows[in_frame]] = what
        reason[rows[in_frame]] = why
        left = rows[~in_frame]
        small = pieces.data_phases[left] <= max(optional, default=0)
        kind[left[small]] = aside
        reason[left[small]] = SHORT_NO_FRAME
        reason[left[~small]] = NO_ROOM
    return _whole(bus, _owners(bus, moved, write, burst), direction, kind, reason, burst)


def _phase_widths(pieces: BusTable) -> tuple[int, ...]:
    """Return the bytes that a data phase may carry, the likeliest first.

    That of a wide bus is not known where neither REQ64# nor all byte enables were captured: the card may be narrow.
    """
    long = pieces.data_phases > 1
    wide = long.any() and (pieces.bytes > 4 * pieces.data_phases)[long].mean() > 0.5
    return (8, 4) if wide else (4,)


def _plan(profile: Profile, sent: WireFrames | None, received: WireFrames | None, per_phase: int) -> _Plan:
    return _Plan(
        per_phase,
        _expected_sends(sent, profile, per_phase) if sent is not None else None,
        _expected_receives(received, profile, per_phase) if received is not None else None,
        _fetch_sizes(profile, per_phase),
        _status_sizes(profile, per_phase),
    )


def _expected_sends(wire: WireFrames, profile: Profile, per_phase: int) -> Expected:
    """Return what the sends of these frames must look like: read before, or where it cuts through during, the wire."""
    least, most = _phases(wire, per_phase, 0, 0)
    padded = (wire.length >= 0) & (wire.least <= SHORTEST_RECEIVED)
    shortest = np.where(padded, -(-HEADER // per_phase), least)
    # What was on the wire when the capture began had been read by then; what still is when it ends may not have been.
    before = np.where(np.isnan(wire.start_us), -np.inf, wire.start_us)
    during = np.where(np.isnan(wire.end_us), np.inf, wire.end_us)
    latest = before if profile.send == "store_and_forward" else during
    return Expected(least, most, shortest, np.full(len(wire), -np.inf), latest)


def _expected_receives(wire: WireFrames, profile: Profile, per_phase: int) -> Expected:
    """Return what the receives of these frames must look like: written after, or during, the wire."""
    fcs = {True: (FCS, FCS), False: (0, 0), None: (0, FCS)}[profile.receive_fcs]
    least, most = _phases(wire, per_phase, *fcs)
    after = np.where(np.isnan(wire.end_us), np.inf, wire.end_us)
    # No word is written before it has come.
    byte_us = (wire.end_us - wire.start_us) / np.maximum(wire.length + wire.preamble_bytes + FCS, 1)
    word_us = wire.start_us + np.where(wire.length >= 0, (wire.preamble_bytes + WORD) * byte_us, 0.0)
    during = np.where(np.isnan(wire.start_us), -np.inf, word_us)
    earliest = after if profile.receive == "store_and_forward" else during
    return Expected(least, most, least, earliest, np.full(len(wire), np.inf))


def _phases(wire: WireFrames, per_phase: int, fcs_least: int, fcs_most: int) -> tuple[Integers, Integers]:
    """Return how many data phases frames take at least and at most, if their buffers are aligned."""
    known = wire.length >= 0
    least = -(-(wire.least + fcs_least) // per_phase)
    most = -(-(wire.most + fcs_most) // per_phase)
    return np.where(known, least, 1), np.where(known, most, 0)


def _fetch_sizes(profile: Profile, per_phase: int) -> frozenset[int]:
    """Return the data phases that a read of descriptors may have."""
    if profile.descriptors in ("card", "none"):
        return frozenset()
    descriptors = [one for one in (profile.send_descriptor, profile.receive_descriptor) if one is not None]
    if not descriptors:
        descriptors = [Descriptor(8, 8)]
    return frozenset(
        -(-count * one.size_bytes // per_phase) for one in descriptors for count in range(1, one.fetch_max + 1)
    )


def _status_sizes(profile: Profile, per_phase: int) -> frozenset[int]:
    """Return the data phases that a status write may have."""
    if profile.status_bytes:
        return frozenset(-(-size // per_phase) for size in profile.status_bytes)
    if profile.descriptors in ("card", "none"):
        return frozenset()
    return frozenset(range(1, 32 // per_phase + 1))


def _directions(pieces: BusTable, plan: _Plan, write: Integers, enough: float = -1.0) -> tuple[Integers, float]:
    """Tell writes from reads, and how well frames come out with it; what cannot come out better than `enough` is left.

    Where C/BE# does not tell, the clocks before the first data do: the limit with which most frames come out whole.
    """
    # Frames that are not tried account for no piece; but those that are may come late.
    sides = [side for side in (plan.sends, plan.receives) if side is not None and len(side.least)]
    needed_us = max((side.time_us(TRIALS + PENDING) for side in sides), default=np.inf)
    needed = int(np.searchsorted(pieces.last_data_us, needed_us, side="right"))
    trial = pieces.take(np.arange(min(needed, TRIALS * TRIAL_PIECES)))
    until_us = float(trial.last_data_us[-1]) if len(trial) < len(pieces) else np.inf
    if not (write < 0).any():
        return write, _told(trial, until_us, plan, write[: len(trial)] == 1, 0.0, enough)
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
        score = _told(trial, until_us, plan, latency[: len(trial)] < limit, bonus.item(number), best)
        if score > best:
            best, chosen = score, limit
    return (latency < chosen).astype(np.int8), best


def _told(pieces: BusTable, until_us: float, plan: _Plan, write: Booleans, bonus: float, enough: float) -> float:
    """Return how well these pieces and the frames until then tell each other, 0 to 3, and a bonus.

    It is the share of frames that come out whole, summed over both sides, and the share of pieces that need not be of
    a frame or are. Reads among writes make frames too, out of what is left of others: then more pieces are left over.
    What cannot be more than `enough` is not looked at further; what is returned then is no more either.
    """
    sides = []
    for side, expected, optional in ((0, plan.sends, plan.fetch), (1, plan.receives, plan.status)):
        if expected is not None and len(expected.least):
            tried = expected.until(until_us, TRIALS)
            sides.append((side, pieces.take(write == bool(side)), tried, optional))
    possible = [_most_whole(some, tried) for _, some, tried, _ in sides]
    score = left = 0.0
    for number, (side, some, tried, optional) in enumerate(sides):
        most = score + sum(possible[number:]) + 1 - left / max(len(pieces), 1) + bonus
        if most <= enough:
            return most
        found = parse(some, some.start_us, tried, optional, side == 0, trial=True)
        score += float(found.max(initial=-1) + 1) / max(len(tried.least), 1)
        left += np.count_nonzero((found < 0) & ~np.isin(some.data_phases, list(optional)))
    return score + 1 - left / max(len(pieces), 1) + bonus


def _most_whole(pieces: BusTable, tried: Expected) -> float:
    """Return the share of frames that can come out whole at most: those for which there are data phases enough in time.

    One more may have begun before the capture.
    """
    if not len(pieces) or not len(tried.least):
        return 0.0
    in_time = (pieces.first_data_us >= tried.earliest.min()) & (pieces.last_data_us <= tried.latest.max())
    needed = np.cumsum(np.sort(np.minimum(tried.least, tried.shortest)))
    whole = int(np.searchsorted(needed, pieces.data_phases[in_time].sum(), side="right")) + 1
    return min(whole / len(needed), 1.0)


def _fetches(reads: BusTable, asked_us: Floats, plan: _Plan, profile: Profile, received: int) -> frozenset[int]:
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
    close = (
        np.maximum.reduceat(pause_unit, np.minimum(solid[:-1] + 1, len(phases) - 1)) if len(before) else pause_unit[:0]
    )
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
    out = np.full(len(bus), len(moved))
    out[moved] = np.arange(len(moved))
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


def _whole(
    bus: BusTable, owner: Integers, direction: Integers, kind: Integers, reason: Integers, burst: Integers
) -> Dma:
    """Put attempts with what repeats them, number the bursts in order of time."""
    n = len(bus)
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
        np.where(repeated, direction[owner], -1),
        np.where(repeated, kind[owner], np.int8(Kind.UNKNOWN)),
        np.where(repeated, reason[owner], np.int8(NO_DATA)),
        rank[whole_burst],
    )
