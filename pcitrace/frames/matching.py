"""The frames that one host sends, matched with the wire and with what the other host receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.columns import Floats, Integers, alike, next_us, pick, pick_us
from pcitrace.frames.align import match
from pcitrace.frames.delays import busy_since
from pcitrace.frames.droplog import WIDE_SPARE, Received, dropped
from pcitrace.frames.identity import ROUNDED, SequenceField, other_lengths, sequence_numbers, user_lengths
from pcitrace.frames.sides import Side
from pcitrace.frames.strays import cut_off, due, undisturbed
from pcitrace.frames.turns import PAUSE_US, bus_busy, receives_first
from pcitrace.profiles import Profile
from pcitrace.traffic import Bursts, Traffic
from pcitrace.traffic.content import FCS, Heads, Keys, WireFrames, fcs_in_memory, heads, keys, own_keys, wire_frames
from pcitrace.traffic.csr import CONFIGURATION
from pcitrace.traffic.dma import NO_ROOM, SHORTEST_RECEIVED, Kind
from pcitrace.traffic.phases import Phases

__all__ = ["Ends", "HostTraffic", "Link", "Matched", "match_hosts", "one_direction"]

STRAY = 0.1
"""Share of the sends that may be on no wire and are then no frames; a read on no wire is a descriptor."""

CLEARLY = 0.1
"""Share of frames that must have a partner only if wire and DMA overlap."""


@dataclass(frozen=True)
class Link:
    """What is between the hosts."""

    rate_mbit_s: float
    preamble_bytes: int = 8
    gap_bytes: int = 12

    @property
    def byte_us(self) -> float:
        """Time of one byte."""
        return 8 / self.rate_mbit_s


@dataclass(frozen=True)
class HostTraffic:
    """One host of a run.

    Attributes
    ----------
    traffic : Traffic
        Of its bus, times on the run's axis.
    profile : Profile
        Of its NIC.
    data_phases : Phases or None
        Of its bus, where AD was captured.
    wire : pandas.DataFrame or None
        What it sent on the wire: `start_us`, `end_us`, `bytes`.
    step_us : float
        Sampling step of the wire's capture; 0 where changes are exact.
    begin_us : float
        When its capture begins, on the run's axis; -inf if that is not known.
    """

    traffic: Traffic
    profile: Profile
    data_phases: Phases | None = None
    wire: pd.DataFrame | None = None
    step_us: float = 0.0
    begin_us: float = -np.inf


@dataclass(frozen=True)
class Ends:
    """What one host shows of frames: sends and receives on its bus, its sends on the wire."""

    sends: Integers
    receives: Integers
    send_head: Heads | None
    receive_head: Heads | None
    wire: WireFrames | None
    host: HostTraffic
    receive_busy_us: Floats
    send_busy_us: Floats
    wire_busy_us: Floats

    @property
    def claims_sent(self) -> Integers | None:
        """Which frame each of its bursts sends, where a reading says so."""
        return self.host.traffic.claims.sent if self.host.traffic.claims is not None else None

    @property
    def claims_received(self) -> Integers | None:
        """Which frame each of its bursts receives, where a reading says so."""
        return self.host.traffic.claims.received if self.host.traffic.claims is not None else None

    @classmethod
    def of(cls, host: HostTraffic, link: Link | None) -> Ends:
        """Collect what a host shows."""
        joined = host.traffic.joined
        moved = joined.data_phases > 0
        sends = np.flatnonzero((joined.kind == Kind.SEND_DATA) & moved)
        receives = np.flatnonzero((joined.kind == Kind.RECEIVE_DATA) & moved)
        sends = sends[np.argsort(joined.first_data_us[sends], kind="stable")]
        receives = receives[np.argsort(joined.first_data_us[receives], kind="stable")]
        send_head = receive_head = None
        if host.data_phases is not None and len(host.data_phases):
            send_head = _heads(host.traffic, host.data_phases, sends)
            receive_head = _heads(host.traffic, host.data_phases, receives)
        wire, wire_busy_us = None, np.zeros(0)
        if host.wire is not None:
            byte_us = link.byte_us if link else None
            wire = wire_frames(host.wire, byte_us, link.preamble_bytes if link else 8, host.step_us)
            gap_us = link.gap_bytes * link.byte_us if link else 0.0
            wire_busy_us = busy_since(wire.start_us, wire.end_us, gap_us + PAUSE_US)
        bus = host.traffic.dma.bus
        order = np.argsort(bus.start_us, kind="stable")
        start_us, end_us = bus.start_us[order], bus.end_us[order]
        busy_us = bus_busy(
            start_us, end_us, host.traffic.csr, np.r_[joined.first_data_us[receives], joined.start_us[sends]]
        )
        receive_busy_us, send_busy_us = busy_us[: len(receives)], busy_us[len(receives) :]
        busy = receive_busy_us, send_busy_us, wire_busy_us
        return cls(sends, receives, send_head, receive_head, wire, host, *busy)


def _heads(traffic: Traffic, phases: Phases, bursts: Integers) -> Heads:
    order = np.argsort(bursts)
    head = heads(traffic.dma, phases, bursts[order])
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return Heads(head.data[back], head.length[back])


Matched = tuple[dict[str, Ends], dict[str, Any], list[dict[str, Any]]]
"""The ends of all hosts, the columns of all frames in order of time, what was dropped of each host's sends."""


def match_hosts(hosts: Mapping[str, HostTraffic], link: Link | None, sequence: SequenceField | None) -> Matched:
    """Match what all hosts show; return their ends, the columns of all frames in order of time, what was dropped."""
    names = list(hosts)
    ends = {name: Ends.of(hosts[name], link) for name in names}
    parts, drops = [], []
    for name in names:
        other = next((one for one in names if one != name), None)
        part, dropped = one_direction(name, other, ends, sequence)
        parts.append(part)
        drops.append(dropped)
    counts = [len(part["order_us"]) for part in parts]
    order = np.argsort(np.concatenate([part.pop("order_us") for part in parts]), kind="stable")
    columns = {key: np.concatenate([part.pop(key) for part in parts])[order] for key in list(parts[0])}
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    base = 0
    for count, dropped in zip(counts, drops, strict=True):
        dropped["frame"] = pick(rank, np.where(dropped["frame"] >= 0, dropped["frame"] + base, -1))
        base += count
    return ends, columns, drops


def one_direction(
    sender: str, receiver: str | None, ends: Mapping[str, Ends], sequence: SequenceField | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Match what one host sends with what is on the wire and what the other host receives."""
    mine = ends[sender]
    theirs = ends[receiver] if receiver is not None else None
    joined = mine.host.traffic.joined
    send = _memory_side(joined, mine.sends, 0, 0)
    wire = mine.wire
    n_send, n_wire = len(mine.sends), len(wire) if wire is not None else 0
    n_receive = len(theirs.receives) if theirs is not None else 0

    references = _reference_keys(wire, theirs)
    send = replace(send, key=own_keys(mine.send_head, references, n_send))
    wire_side = _wire_side(wire, mine.wire_busy_us) if wire is not None else None
    store_and_forward = mine.host.profile.send == "store_and_forward"
    wire_of_send = np.full(n_send, -1)
    send_of_wire = np.full(n_wire, -1)
    if wire_side is not None:
        if mine.claims_sent is not None:
            i, j = _claimed(mine.claims_sent[mine.sends])
        else:
            i, j = _match(send, wire_side, store_and_forward, lossless=True)
        wire_of_send[i], send_of_wire[j] = j, i
        # A wire whose bytes were not captured has the content of what was read for it.
        inherited = np.where(wire_side.key == 0, pick_keys(send.key, send_of_wire), wire_side.key)
        wire_side = replace(wire_side, key=inherited)

    doubtful_wire = doubtful = np.zeros(0, dtype=np.int64)
    receive_of_send = np.full(n_send, -1)
    receive_of_wire = np.full(n_wire, -1)
    if theirs is not None:
        receive = _memory_side(theirs.host.traffic.joined, theirs.receives, *fcs_in_memory(theirs.host.profile))
        known = np.union1d(send.key, wire_side.key) if wire_side is not None else send.key
        receive = replace(receive, key=own_keys(theirs.receive_head, known, n_receive))
        after_end = theirs.host.profile.receive == "store_and_forward"
        if wire_side is not None and theirs.claims_received is not None:
            bursts, loose = theirs.host.traffic.joined, np.zeros(0, dtype=np.int64)
            loose_us = np.zeros(0)
            j, i = _claimed(theirs.claims_received[theirs.receives])
            receive_of_wire[i] = j
            both = send_of_wire[i] >= 0
            receive_of_send[send_of_wire[i[both]]] = j[both]
        elif wire_side is not None:
            bursts = theirs.host.traffic.joined
            receive, arriving = replace(receive, busy_us=theirs.receive_busy_us), _arriving(wire_side, after_end)
            i, j = _match(arriving, receive, after_end)
            send_us = bursts.start_us[theirs.sends]
            busy_us = receive.busy_us
            if len(i) < len(wire_side):
                busy_us = receives_first(arriving, receive, i, j, send_us, theirs.send_busy_us)
            if (busy_us > receive.busy_us).any():
                receive = replace(receive, busy_us=busy_us)
                i, j = _match(arriving, receive, after_end)
            loose = np.flatnonzero((bursts.write == 1) & (bursts.kind != Kind.RECEIVE_DATA) & (bursts.data_phases > 0))
            loose_us = bursts.first_data_us[loose]
            loose, loose_us = loose[np.argsort(loose_us)], np.sort(loose_us)
            stray = bursts.reason[loose] == NO_ROOM
            stray &= ~cut_off(wire_side, receive, i, j, loose_us, bursts.bytes[loose], stray)
            certain = undisturbed(wire_side, receive, i, j, loose_us[stray])
            certain &= due(wire_side, receive, i, j, loose_us, bursts.bytes[loose])
            doubtful_wire, doubtful, i, j = i[~certain], j[~certain], i[certain], j[certain]
            receive_of_wire[i] = j
            both = send_of_wire[i] >= 0
            receive_of_send[send_of_wire[i[both]]] = j[both]
        else:
            if theirs.claims_received is not None:
                j, i = _claimed(theirs.claims_received[theirs.receives])
            elif mine.claims_sent is not None:
                i, j = _claimed(mine.claims_sent[mine.sends])
            else:
                i, j = _match(send, receive, store_and_forward and after_end)
            receive_of_send[i] = j

    only_wire = np.flatnonzero(send_of_wire < 0) if wire is not None else np.zeros(0, dtype=np.int64)
    used = np.zeros(n_receive, dtype=bool)
    used[receive_of_send[receive_of_send >= 0]] = True
    used[receive_of_wire[receive_of_wire >= 0]] = True
    rows = _columns(sender, receiver, mine, theirs, wire_of_send, receive_of_send, only_wire, receive_of_wire)
    if wire is not None and n_send and not _read(wire, int(wire_of_send[-1]), store_and_forward):
        rows["dma_end_us"][n_send - 1] = np.nan
        rows["send_bytes"][n_send - 1] = rows["send_phases"][n_send - 1] = -1
    rows["open"] = np.zeros(len(rows["send_row"]), dtype=bool)
    if wire is not None and theirs is not None and not theirs.host.traffic.dma.bus.has_address:
        total = np.append(0, np.cumsum(bursts.data_phases[loose]))
        since, until = (total[np.searchsorted(loose_us, rows[f"rx_dma_{edge}_us"])] for edge in ("start", "end"))
        other, rows["open"] = other_lengths(rows, wire, until - since, mine.host.traffic.dma, theirs.host.traffic.dma)
        for name in ("receive_bytes", "receive_phases"):
            rows[name] = np.where(other, -1, rows[name])
        for name in ("rx_dma_start_us", "rx_dma_end_us", "rx_status_us", "rx_csr_us"):
            rows[name] = np.where(rows["open"], np.nan, rows[name])
    user_lengths(rows, mine, theirs)
    sequence_numbers(rows, mine, theirs, sequence)
    rows["doubtful"] = np.isin(rows["wire_row"], doubtful_wire)
    if wire is not None:
        rows = _on_wire(rows, wire)
    if theirs is not None:
        bursts, receives = theirs.host.traffic.joined, theirs.receives
        received = Received(bursts, receives, receives[~used], receives[doubtful], theirs.host.begin_us)
    else:
        received = Received(joined, mine.receives, mine.receives, doubtful, mine.host.begin_us)
    return rows, dropped(sender, receiver, rows, wire, received)


def _on_wire(rows: dict[str, Any], wire: WireFrames) -> dict[str, Any]:
    """Leave out the few reads that became no frame on the wire although later ones did: descriptors, not frames.

    Where many became none, the wire is another's or the reading of the bus is wrong, and all is shown.
    """
    last_us = np.nanmax(wire.start_us, initial=-np.inf)
    idle = (rows["send_row"] >= 0) & (rows["wire_row"] < 0) & (rows["receive_row"] < 0)
    idle &= rows["dma_start_us"] < last_us
    if not idle.any() or idle.sum() > max(1.0, STRAY * len(idle)):
        return rows
    return {name: values[~idle] for name, values in rows.items()}


def _read(wire: WireFrames, row: int, store_and_forward: bool) -> bool:
    """Return whether all of the last frame had been read when the capture ended: its row on the wire tells, -1 if none.

    Of those before it the next one tells.
    """
    return row >= 0 and not bool(np.isnan((wire.start_us if store_and_forward else wire.end_us)[row]))


def _claimed(wire: Integers) -> tuple[Integers, Integers]:
    """Return which bursts claim a frame on the wire, and which."""
    rows = np.flatnonzero(wire >= 0)
    return rows, wire[rows]


def pick_keys(key: Keys, rows: Integers) -> Keys:
    """Return the keys at rows; 0 where the row is -1."""
    return np.where(rows >= 0, key[np.maximum(rows, 0)], np.uint64(0)) if len(key) else np.zeros(len(rows), np.uint64)


def _match(earlier: Side, later: Side, after_end: bool, lossless: bool = False) -> tuple[Integers, Integers]:
    """Match two sides; where wire and DMA overlap although the profile says they do not, the trace is right.

    It shows in more frames that match or, without contents, in as many that come much sooner; or, between memory and
    wire of the sender, where none is lost, in every one having a partner, of which a good share had none.
    """
    i, j = match(earlier, later, after_end)
    by_content = bool((earlier.key != 0).any() and (later.key != 0).any())
    if not after_end or (by_content and len(i) == min(len(earlier), len(later))):
        return i, j
    other_i, other_j = match(earlier, later, False)
    if by_content or len(other_i) < len(i) or not len(other_i):
        return (other_i, other_j) if len(other_i) > len(i) else (i, j)
    if lossless and len(j) and other_j[-1] < j[-1]:
        # What went over the wire last was read, too.
        return i, j
    if lossless and len(other_i) == min(len(earlier), len(later)) and len(i) < (1 - CLEARLY) * len(other_i):
        return other_i, other_j
    sooner = float(np.median(later.end_us[other_j] - earlier.end_us[other_i]))
    if not len(i) or sooner < 0.5 * float(np.median(later.end_us[j] - earlier.end_us[i])):
        return other_i, other_j
    return i, j


def _memory_side(joined: Bursts, bursts: Integers, fcs_least: int, fcs_most: int) -> Side:
    """Describe DMA bursts for matching; their lengths are those the frames have on the wire."""
    size, phases = (one[bursts] for one in joined.once)
    spare = np.where(size > 4 * phases, 2 * WIDE_SPARE, 2 * ROUNDED)
    return Side(
        start_us=joined.first_data_us[bursts],
        end_us=joined.last_data_us[bursts],
        shortest=np.maximum(size - spare - fcs_most, SHORTEST_RECEIVED),
        longest=np.maximum(size - fcs_least, SHORTEST_RECEIVED),
        key=np.zeros(len(bursts), dtype=np.uint64),
        damaged=np.zeros(len(bursts), dtype=bool),
        busy_us=np.full(len(bursts), np.nan),
    )


def _wire_side(wire: WireFrames, busy_us: Floats) -> Side:
    known = wire.length >= 0
    return Side(
        start_us=np.where(np.isnan(wire.start_us), -np.inf, wire.start_us),
        end_us=np.where(np.isnan(wire.end_us), np.inf, wire.end_us),
        shortest=np.where(known, wire.least, 0),
        longest=np.where(known, wire.most, np.iinfo(np.int64).max),
        key=keys(wire.head) if wire.head is not None else np.zeros(len(wire), dtype=np.uint64),
        damaged=wire.fcs_ok == 0,
        busy_us=busy_us,
    )


def _arriving(wire: Side, after_end: bool) -> Side:
    """Let a cut-through receiver be done with a frame's data before its check sequence has gone by."""
    if after_end:
        return wire
    length = np.where(wire.longest < np.iinfo(np.int64).max, wire.longest, 0)
    byte_us = np.where(length > 0, (wire.end_us - wire.start_us) / np.maximum(length, 1), 0.0)
    return replace(wire, end_us=wire.end_us - 2 * FCS * np.where(np.isfinite(byte_us), byte_us, 0.0))


def _reference_keys(wire: WireFrames | None, theirs: Ends | None) -> Keys:
    parts = [np.zeros(0, dtype=np.uint64)]
    if wire is not None and wire.head is not None:
        parts.append(keys(wire.head))
    if theirs is not None and theirs.receive_head is not None:
        parts.append(keys(theirs.receive_head))
    return np.concatenate(parts)


def _columns(
    sender: str,
    receiver: str | None,
    mine: Ends,
    theirs: Ends | None,
    wire_of_send: Integers,
    receive_of_send: Integers,
    only_wire: Integers,
    receive_of_wire: Integers,
) -> dict[str, Any]:
    """Put the rows of one sender together: every send, and every frame on the wire whose send was not seen."""
    joined = mine.host.traffic.joined
    none = np.full(len(only_wire), -1)
    send = np.r_[np.arange(len(mine.sends)), none]
    wire = np.r_[wire_of_send, only_wire]
    receive = np.r_[receive_of_send, receive_of_wire[only_wire]]
    burst = pick(mine.sends, send)
    size, phases = joined.once
    dma_end = pick_us(joined.known_last_us, burst)
    wire_end = pick_us(mine.wire.end_us, wire) if mine.wire is not None else np.full(len(send), np.nan)
    status = joined.first_data_us[np.flatnonzero((joined.kind == Kind.STATUS_WRITE) & (joined.data_phases > 0))]
    done_from = np.fmax(dma_end, wire_end) if mine.host.profile.send == "store_and_forward" else dma_end
    status_us = next_us(np.sort(status), done_from)
    rows: dict[str, Any] = {
        "sender": alike(len(send), sender),
        "receiver": alike(len(send), receiver),
        "dma_start_us": pick_us(joined.first_data_us, burst),
        "dma_end_us": dma_end,
        "status_us": status_us,
        "wire_start_us": pick_us(mine.wire.start_us, wire) if mine.wire is not None else np.full(len(send), np.nan),
        "wire_end_us": wire_end,
        "fcs_ok": pick(mine.wire.fcs_ok, wire) if mine.wire is not None else np.full(len(send), -1),
        "pieces": pick(joined.pieces, burst),
        "send_burst": burst,
        "send_bytes": pick(size, burst),
        "send_phases": pick(phases, burst),
        "wire_row": wire,
        "send_row": send,
        "receive_row": receive,
    }
    if theirs is not None:
        other = theirs.host.traffic.joined
        got = pick(theirs.receives, receive)
        got_size, got_phases = other.once
        end = pick_us(other.known_last_us, got)
        status = other.first_data_us[np.flatnonzero((other.kind == Kind.STATUS_WRITE) & (other.data_phases > 0))]
        reads = theirs.host.traffic.csr
        rows |= {
            "rx_dma_start_us": pick_us(other.first_data_us, got),
            "rx_dma_end_us": end,
            "rx_status_us": next_us(np.sort(status), end),
            "rx_csr_us": next_us(reads.first_attempt_us[reads.reason != CONFIGURATION], end),
            "rx_pieces": pick(other.pieces, got),
            "receive_burst": got,
            "receive_bytes": pick(got_size, got),
            "receive_phases": pick(got_phases, got),
        }
    else:
        nothing = np.full(len(send), np.nan)
        rows |= dict.fromkeys(("rx_dma_start_us", "rx_dma_end_us", "rx_status_us", "rx_csr_us"), nothing)
        rows |= {
            name: np.full(len(send), -1) for name in ("rx_pieces", "receive_burst", "receive_bytes", "receive_phases")
        }
    first_us = np.where(np.isnan(rows["dma_start_us"]), rows["wire_start_us"], rows["dma_start_us"])
    rows["order_us"] = first_us
    return rows
