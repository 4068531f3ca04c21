"""NIC transactions -> DMA bursts, where AD was captured.

What each transaction is follows from where it reads or writes: the rings and buffers that the run or the trace names,
else what the data itself shows. Pieces whose addresses follow each other are then one burst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pandas as pd

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Integers
from pcitrace.facts import FRAME_US, PAGE_BYTES, READS, WRITES
from pcitrace.facts import LEAST_FRAME_BYTES as SHORTEST_RECEIVED
from pcitrace.profiles import Descriptor, Profile
from pcitrace.traffic.csr import Accesses
from pcitrace.traffic.phases import Phases

__all__ = ["KINDS", "REASONS", "SHORTEST_RECEIVED", "Dma", "Kind", "Memory", "by_address", "moved_twice"]


class Kind(IntEnum):
    """What a DMA burst carries."""

    UNKNOWN = 0
    DESCRIPTOR_FETCH = 1
    SEND_DATA = 2
    RECEIVE_DATA = 3
    STATUS_WRITE = 4


KINDS = ("unknown", "descriptor_fetch", "send_data", "receive_data", "status_write")
"""Names of the kinds, in the order of :class:`Kind`."""

REASONS = (
    "nothing tells what it is",
    "in the descriptor ring the trace or the run names",
    "in the buffers the run names",
    "in the status block the run names",
    "at a buffer address that a descriptor or register holds",
    "holds the address of a later burst",
    "writes into a descriptor that was read",
    "long read outside the descriptors",
    "long write outside the descriptors",
    "write shorter than any received frame",
    "read that begins with the sender's own address",
    "short read, no descriptors in host memory",
    "short read: a descriptor or a short frame",
    "no data moved",
    "neither a memory read nor a memory write",
    "its lengths add up to the frame on the wire",
    "shorter than a frame and part of none on the wire",
    "no frame on the wire has room for it",
    "joined by burst limit and pauses; no wire was captured",
    "its lengths add up to the frame on the wire, with another piece as long as the last too",
    "part of a frame in the cheapest reading of all pieces",
    "part of no frame in the cheapest reading of all pieces",
)
"""What a kind rests on; indices into this are stored."""
(
    NOTHING,
    IN_RING,
    IN_BUFFERS,
    IN_STATUS,
    AT_POINTER,
    HOLDS_POINTER,
    INTO_DESCRIPTOR,
    LONG_READ,
    LONG_WRITE,
    SHORT_WRITE,
    OWN_ADDRESS,
    NO_DESCRIPTORS,
    SHORT_READ,
    NO_DATA,
    NOT_MEMORY,
    WIRE_LENGTHS,
    SHORT_NO_FRAME,
    NO_ROOM,
    BY_RULE,
    EITHER_TAIL,
    CHEAPEST,
    LEFT_OVER,
) = range(len(REASONS))

Ranges = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Memory:
    """Windows of host memory that the run names, as [base, size] lists."""

    send_buffers: Ranges = ()
    receive_buffers: Ranges = ()
    send_descriptors: Ranges = ()
    receive_descriptors: Ranges = ()
    status: Ranges = ()


@dataclass(frozen=True)
class Dma:
    """NIC transactions with their kinds and the bursts they form.

    Attributes
    ----------
    bus : BusTable
        The NIC's transactions, in order of time.
    write : array of int
        1 write (towards memory), 0 read, -1 unknown.
    kind, reason : arrays of int
        Values of :class:`Kind`, indices into :data:`REASONS`.
    burst : array of int
        Number of the burst each belongs to, from 0 in order of the first attempts.
    """

    bus: BusTable
    write: Integers
    kind: Integers
    reason: Integers
    burst: Integers


def directions(bus: BusTable) -> Integers:
    """Return 1 for writes, 0 for reads, -1 where C/BE# was not captured or it is neither."""
    command = bus.command
    return np.where(np.isin(command, WRITES), 1, np.where(np.isin(command, READS), 0, -1)).astype(np.int8)


def by_address(bus: BusTable, phases: Phases | None, profile: Profile, csr: Accesses, memory: Memory) -> Dma:
    """Find kinds and bursts of NIC transactions whose addresses are known.

    Parameters
    ----------
    bus : BusTable
        Transactions that the NIC began, in order of time.
    phases : Phases or None
        Data phases of the whole bus.
    profile : Profile
    csr : Accesses
        CSR accesses of the same bus: they teach rings and buffer addresses.
    memory : Memory

    Returns
    -------
    Dma
    """
    write = directions(bus)
    kinds = _Kinds(bus, phases, profile)
    read, written, address = write == 0, write == 1, bus.address
    rings = [*memory.send_descriptors, *memory.receive_descriptors, *_rings(profile, csr)]
    in_ring = _inside(address, rings)
    kinds.settle(in_ring & read, Kind.DESCRIPTOR_FETCH, IN_RING)
    kinds.settle(in_ring & written, Kind.STATUS_WRITE, IN_RING)
    kinds.settle(_inside(address, memory.status) & written, Kind.STATUS_WRITE, IN_STATUS)
    kinds.settle(_inside(address, memory.send_buffers) & read, Kind.SEND_DATA, IN_BUFFERS)
    kinds.settle(_inside(address, memory.receive_buffers) & written, Kind.RECEIVE_DATA, IN_BUFFERS)
    kinds.reason[write < 0] = NOT_MEMORY

    # What is left is told by its shape and its data: first as chains of addresses that follow each other.
    starts = _pointers(bus, phases, profile, csr, kinds.kind)
    kinds.settle_reads(_Chained.of(kinds, np.flatnonzero(read & (kinds.kind == 0)), starts, is_write=False))
    kinds.settle_writes(_Chained.of(kinds, np.flatnonzero(written & (kinds.kind == 0)), starts, is_write=True))
    kinds.reason[(kinds.kind == Kind.UNKNOWN) & (bus.data_phases == 0) & (kinds.reason == NOTHING)] = NO_DATA
    return Dma(bus, write, kinds.kind, kinds.reason, _bursts(bus, kinds.kind, starts))


def _bursts(bus: BusTable, kind: Integers, starts: Mapping[bool, Integers]) -> Integers:
    """Number the bursts in order of time.

    Descriptors and status writes are joined only where one was cut short; frame data also over pauses.
    """
    join_always = np.isin(kind, (Kind.SEND_DATA, Kind.RECEIVE_DATA))
    burst = np.empty(len(bus), dtype=np.int32)
    first_us = [np.zeros(0)]
    total = 0
    for what in Kind:
        rows = np.flatnonzero(kind == what)
        chain, heads = _chains(bus.take(rows), starts, ~join_always[rows])
        burst[rows] = chain + total
        first_us.append(bus.take(rows[heads]).start_us)
        total += len(heads)
    rank = np.empty(total, dtype=np.int32)
    rank[np.argsort(np.concatenate(first_us), kind="stable")] = np.arange(total)
    return rank[burst]


def _inside(address: Integers, ranges: Ranges) -> Booleans:
    inside = np.zeros(len(address), dtype=bool)
    for base, size in ranges:
        inside |= (address >= base) & (address < base + size)
    return inside


def _rings(profile: Profile, csr: Accesses) -> list[list[int]]:
    """Return the descriptor rings that were written into ring registers."""
    rings = []
    for side, descriptor in (("send", profile.send_descriptor), ("receive", profile.receive_descriptor)):
        sizes = [row for row in csr.of_role(f"{side}_ring_size").tolist() if _is_write(csr, row)]
        unit = next((r.unit_bytes for r in profile.registers if r.role == f"{side}_ring_size"), 1)
        for row in csr.of_role(f"{side}_ring").tolist():
            base = int(csr.value[row])
            if not _is_write(csr, row) or base <= 0:
                continue
            # The size is the one in force when the ring is used: written about the same time as its base.
            near = min(sizes, key=lambda size: abs(size - row), default=None)
            one = descriptor.size_bytes if descriptor else 16
            rings.append([base, int(csr.value[near]) * unit if near is not None else one * 256])
    return rings


def _is_write(csr: Accesses, row: int) -> bool:
    return csr.command[row] in WRITES and csr.value[row] >= 0


def _pointers(
    bus: BusTable, phases: Phases | None, profile: Profile, csr: Accesses, kind: Integers
) -> dict[bool, Integers]:
    """Return the addresses at which buffers start, for writes (True) and reads (False), as far as they are told."""
    found: dict[bool, list[Integers]] = {False: [], True: []}
    for is_write, role in ((False, "send_buffer"), (True, "receive_buffer")):
        rows = csr.of_role(role)
        rows = rows[np.isin(csr.command[rows], WRITES) & (csr.value[rows] > 0)]
        found[is_write].append(csr.value[rows])
    if phases is not None:
        fetches = np.flatnonzero(kind == Kind.DESCRIPTOR_FETCH)
        for is_write, descriptor in ((False, profile.send_descriptor), (True, profile.receive_descriptor)):
            if descriptor is not None and descriptor.address_offset is not None and len(fetches):
                found[is_write].append(_words(phases, bus.transaction[fetches], descriptor, bus.address[fetches]))
    return {is_write: np.unique(np.concatenate(parts)) for is_write, parts in found.items()}


def _words(phases: Phases, transactions: Integers, descriptor: Descriptor, address: Integers) -> Integers:
    """Return the word at the descriptor's address field, of every descriptor read."""
    assert descriptor.address_offset is not None
    begin, length = phases.ranges(transactions)
    per = descriptor.size_bytes // 4
    # A fetch cut in the middle of a descriptor goes on inside it.
    skip = (descriptor.address_offset // 4 - address // 4) % per
    many = np.maximum(-(-(length - skip) // per), 0)
    return np.asarray(phases.data[np.repeat(begin + skip, many) + per * _expand(np.zeros_like(begin), many)])


def _chains(bus: BusTable, starts: Mapping[bool, Integers], only_if_cut: Booleans) -> tuple[Integers, Integers]:
    """Number the chains of transactions of which each goes on where an earlier one ended; return also their first ones.

    Other transactions may come between. What goes on where is the latest that ended there and that nothing else has
    gone on from; so a buffer that is used again begins a new chain. What was cut may be moved again, from its beginning
    or from inside it, sooner than another frame could follow. No write goes on behind another frame.
    """
    n = len(bus)
    row = np.arange(n)
    address, phases = bus.address, bus.data_phases
    # Beginnings and ends in one order: by address, then by row, a beginning before the end of the same row.
    edge = np.empty(2 * n, dtype=np.int64)
    edge[::2] = address & ~3
    edge[1::2] = bus.behind
    order = np.argsort(edge, kind="stable")
    edge, rows, is_end = edge[order], order >> 1, order & 1 == 1
    follows = np.flatnonzero(is_end[:-1] & ~is_end[1:] & (edge[:-1] == edge[1:]))
    before = np.full(n, -1)
    before[rows[follows + 1]] = rows[follows]
    linked = before >= 0
    linked &= ~only_if_cut | bus.cut[before]
    buffers = np.union1d(starts[False], starts[True])
    linked &= ~(np.isin(address, buffers) & (phases > 0)[before])
    linked &= ~(np.isin(bus.command, WRITES) & _behind_another(bus, np.where(linked, before, row)))
    again = bus.moved_again
    linked |= again
    before = np.where(again, row - 1, before)
    # Each row points at the one it goes on from; following the pointers, doubling, gives the head of its chain.
    head = np.where(linked, before, row)
    while True:
        further = head[head]
        if (further == head).all():
            break
        head = further
    first = head == row
    return (np.cumsum(first) - 1)[head], np.flatnonzero(first)


def _behind_another(bus: BusTable, before: Integers) -> Booleans:
    """Return which writes go on where an earlier one ended (`before`; themselves if nowhere) although another frame was
    written in one go since.

    A card writes one frame after the other. One that writes frame behind frame into one ring, and four bytes before
    each when it is there (a card of another maker, csr-descriptors), writes those of the next frame where the last one
    ended: 53 receives ended with their next one.
    """
    row = np.arange(len(bus))
    run = np.cumsum(before != row - 1) - 1
    begins = np.flatnonzero(np.diff(run, prepend=-1))
    whole = np.bincount(run, weights=bus.bytes) >= SHORTEST_RECEIVED
    whole &= before[begins] == begins
    ended = np.zeros(len(bus) + 1, dtype=np.int64)
    ended[np.append(begins[1:], len(bus))[whole]] = 1
    ended = np.cumsum(ended)
    return np.asarray(ended[row] > ended[before + 1])


def moved_twice(dma: Dma, rows: Integers) -> Integers:
    """Return how many bytes of transactions, in order of bursts, the next one of their burst moves again."""
    before, now = rows[:-1], rows[1:]
    out = np.zeros(len(rows), dtype=np.int64)
    out[:-1] = np.where(dma.burst[before] == dma.burst[now], dma.bus.moved_twice(before, now), 0)
    return out


def _too_fast(bus: BusTable, chain: Integers, heads: Integers) -> Booleans:
    """Whether single data phases follow each other sooner than the frames could of which they would be the status."""
    phases, start_us = bus.data_phases, bus.start_us
    pieces, words = (np.bincount(chain, weights=one) for one in (phases > 0, phases))
    last_us = np.empty(len(heads))
    last_us[chain] = start_us  # of rows that are given several times numpy keeps the last
    return np.asarray((words == pieces) & (last_us - start_us[heads] < FRAME_US * (pieces - 1)))


def _by_themselves(bus: BusTable, rows: Integers, chain: Integers, count: int) -> Booleans:
    """Return which of so many chains of writes have nothing between their pieces that these could be the status of.

    A status is written for each frame that was sent or received: it was read before, or written. So a chain of them has
    other writes between, or as many reads. A card that writes what it receives 16 bytes at a time, whenever it has as
    many, has neither (`cardbench`, cut-through 64: 1.3 us apart, none of them a frame).
    """
    moved = np.flatnonzero(bus.data_phases[rows] > 0)
    chain, start_us = chain[moved], bus.start_us[rows[moved]]
    pieces = np.bincount(chain, minlength=count)
    side_by_side = np.bincount(chain[1:][chain[1:] == chain[:-1]], minlength=count)
    first_us, last_us = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first_us, chain, start_us)
    np.maximum.at(last_us, chain, start_us)
    others = np.delete(np.arange(len(bus)), rows)
    read_us = np.sort(bus.start_us[others[bus.data_phases[others] > 0]])
    reads = np.searchsorted(read_us, last_us) - np.searchsorted(read_us, first_us)
    # Where nothing was read no frame may be seen at all.
    return np.asarray((side_by_side == pieces - 1) & (2 * reads < pieces) & (len(read_us) > 0))


LONGEST_FETCH = 256
"""Bytes; a longer read is not taken for descriptors unless its place says so."""

LONGEST_STATUS = 16
"""Bytes; a chain of pieces no longer than this is not taken for a frame."""


class _Kinds:
    """What each transaction of a NIC carries, told step by step: what was told first stands.

    Attributes
    ----------
    kind, reason : arrays of int
        As in :class:`Dma`.
    """

    def __init__(self, bus: BusTable, phases: Phases | None, profile: Profile) -> None:
        self.bus, self.phases, self.profile = bus, phases, profile
        self.kind = np.zeros(len(bus), dtype=np.int8)
        self.reason = np.zeros(len(bus), dtype=np.int8)

    def settle(self, rows: Booleans, what: Kind, why: int) -> None:
        """Say what some transactions carry of which that is not known yet, and what it rests on."""
        rows = rows & (self.kind == Kind.UNKNOWN)
        self.kind[rows] = what
        self.reason[rows] = why

    def settle_reads(self, left: _Chained) -> None:
        """Tell reads of descriptors from reads of frames, by what the chain they belong to shows."""
        self.settle(left.among(np.isin(self.bus.address[left.head], left.starts)), Kind.SEND_DATA, AT_POINTER)
        if self.profile.descriptors in ("card", "none"):
            self.settle(left.among(left.size > 0), Kind.SEND_DATA, NO_DESCRIPTORS)
            return
        long = left.size >= SHORTEST_RECEIVED
        if self.phases is not None:
            self._settle_pointers(left.rows, self.phases)
            sends = np.unique(left.head[long & (self.kind[left.rows] != Kind.DESCRIPTOR_FETCH)])
            own = self.phases.usual_source_address(self.bus.transaction[sends])
            if own is not None:
                source = self.phases.source_address(self.bus.transaction[left.head])
                self.settle(left.among(~long & (source == own)), Kind.SEND_DATA, OWN_ADDRESS)
                # Several descriptors are as long as a short frame, but do not come from the card's own address.
                long &= (source == own) | (source < 0) | (left.size > LONGEST_FETCH)
        self.settle(left.among(long), Kind.SEND_DATA, LONG_READ)
        self.settle(left.among(left.size > 0), Kind.UNKNOWN, SHORT_READ)

    def _settle_pointers(self, rows: Integers, phases: Phases) -> None:
        """Tell descriptors: one holds the address at which another burst begins.

        What frames carry may be such a number as well, but not in most of them: so most short reads of a page that
        holds descriptors have one.
        """
        bus = self.bus
        small = rows[bus.bytes[rows] <= LONGEST_FETCH]
        begin, length = phases.ranges(bus.transaction[small])
        heads = np.setdiff1d(bus.address[(bus.data_phases > 0) & (self.kind != Kind.DESCRIPTOR_FETCH)], [0])
        found = np.flatnonzero(pd.Index(phases.data[_expand(begin, length)]).isin(heads))
        holds = np.zeros(len(small), dtype=bool)
        holds[np.searchsorted(np.cumsum(length), found, side="right")] = True
        _, page = np.unique(bus.address[small] // PAGE_BYTES, return_inverse=True)
        most = 2 * np.bincount(page, weights=holds) >= np.bincount(page)
        self.settle(_marked(len(bus), small[most[page]]), Kind.DESCRIPTOR_FETCH, HOLDS_POINTER)

    def settle_writes(self, left: _Chained) -> None:
        """Tell status writes from frames, by what the chain they belong to shows."""
        bus, profile = self.bus, self.profile
        self.settle(left.among(np.isin(bus.address[left.head], left.starts)), Kind.RECEIVE_DATA, AT_POINTER)
        fetched = np.flatnonzero(self.kind == Kind.DESCRIPTOR_FETCH)
        words = _expand(bus.address[fetched] // 4, bus.data_phases[fetched])
        in_descriptor = np.isin(bus.address[left.rows] // 4, np.unique(words))
        self.settle(left.among(in_descriptor), Kind.STATUS_WRITE, INTO_DESCRIPTOR)
        self.settle(left.among(left.size >= SHORTEST_RECEIVED), Kind.RECEIVE_DATA, LONG_WRITE)
        if profile.descriptors == "card" and not profile.status_bytes:
            self.settle(left.among(left.size > 0), Kind.RECEIVE_DATA, NO_DESCRIPTORS)
        self.settle(left.among(left.size > 0), Kind.STATUS_WRITE, SHORT_WRITE)


@dataclass(frozen=True)
class _Chained:
    """Transactions of one direction of which it is not known yet what they carry.

    Attributes
    ----------
    count : int
        How many transactions there are in all.
    rows : array of int
    size : array of int
        Bytes of the chain that each belongs to, fewer than any frame's where that cannot be one.
    head : array of int
        The row with which that chain begins.
    starts : array of int
        Addresses at which buffers start.
    """

    count: int
    rows: Integers
    size: Integers
    head: Integers
    starts: Integers

    @classmethod
    def of(cls, kinds: _Kinds, rows: Integers, starts: Mapping[bool, Integers], is_write: bool) -> _Chained:
        """Join them to chains."""
        left, size = kinds.bus.take(rows), kinds.bus.bytes[rows]
        chain, heads = _chains(left, starts, np.zeros(len(rows), dtype=bool))
        # Neighbouring descriptors or status words form chains too, but of short pieces only, and one a frame.
        frames = np.zeros(len(heads), dtype=bool)
        frames[chain[size > LONGEST_STATUS]] = True
        if is_write:
            frames |= _too_fast(left, chain, heads) | _by_themselves(kinds.bus, rows, chain, len(heads))
        whole = np.bincount(chain, weights=size, minlength=len(heads))
        whole = np.where(frames, whole, np.minimum(whole, SHORTEST_RECEIVED - 1))[chain]
        return cls(len(kinds.bus), rows, whole, rows[heads][chain], starts[is_write])

    def among(self, which: Booleans) -> Booleans:
        """Return a mask over all transactions that is set for some of these."""
        return _marked(self.count, self.rows[which])


def _marked(count: int, rows: Integers) -> Booleans:
    """Return a mask over so many transactions that is set for some rows."""
    marked = np.zeros(count, dtype=bool)
    marked[rows] = True
    return marked


def _expand(begin: Integers, length: Integers) -> Integers:
    """Return the integers of ranges one behind the other."""
    behind = np.cumsum(length)
    return np.arange(int(behind[-1]) if len(behind) else 0) + np.repeat(begin - behind + length, length)
