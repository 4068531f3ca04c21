"""What it costs that an access of the host starts some sends; and a reading of all of them at these costs.

An access begins the doorbell of some sends, goes on in it, rings, or is something else. What it costs:

==================================  ==================================================================
time from the ring to the DMA       the card takes as long as usual
time since the send before          a send that had to wait follows that one as usual, whatever rang for it
time since what is nearest          an access comes as usual after the access, receive or send before it
register, or how the access looks   so often such an access begins a doorbell; doorbells have such accesses
accesses a doorbell, sends a ring   as usual
address written                     the one from which the card reads (where AD was captured)
values of the doorbells             they go on by the sends that they release, as a ring's tail does
what learning all this cost         as for DMA (`lattice.Learner`)
==================================  ==================================================================

All of it is learned from the reading before. What a profile says of registers is certain.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.facts import WRITES
from pcitrace.frames.accesskinds import CHAIN_US, Kinds
from pcitrace.frames.sends import Sends
from pcitrace.frames.sendstart import NOT_STARTING, sends_of
from pcitrace.lattice import Learner, bins, cheapest_within, in_nats
from pcitrace.profiles import Profile
from pcitrace.releases import PLACES, Items, Released, Table, Targets, broad, read, shares, times
from pcitrace.traffic.csr import Accesses, LookedAt

__all__ = ["IDLE_BELL", "LONGEST", "MOST", "Known", "Reader", "Usual", "heads", "waiting"]

NEVER_STARTING = (*NOT_STARTING, "send_ring", "send_ring_size")
"""Roles of registers that start no send."""

COUNTING = 4
"""Doorbells whose values go on as a ring's end does, from which on that tells which register it is: four steps, in the
order of the sends, of two sizes at least or ahead of the receives. A judgement, learned from no capture."""

AGAIN = 0.2
"""Share of the doorbells, at most, with which a ring begins again: none has as few as five entries. The smallest ring
of 100 cards of two other makers has 16, and a doorbell may ring for several. A judgement."""

LONGEST, MOST = 16, 8
"""Accesses of a doorbell, and sends that one rings for unless its value says more."""

AMONG, PRIOR = 0.03, 200.0
"""Share of the doorbells that begin, or end, among accesses that follow each other at once; what this guess weighs."""

GUESS = 1.0
"""What the guess weighs that accesses of each kind are as all are."""

AT_MOST = 4
"""Sends a doorbell that is an entry of an array: what was set up once looks like that, too (`cardbench`, padding 7)."""

IN_STEP, STEPS, RING = 12.0, 2, 1 << 16
"""Nats by which a reading is likelier where the values of its doorbells go on by the sends that they release, as those
of a ring's tail do; steps from which on that is seen; and the bytes of a ring, at most. Other registers do so only
where they count the same, as receives that are as many, or tell where buffers are: these lie above 64 KiB, for what is
below belongs to a PC's BIOS (Linux, X86_RESERVE_LOW). A judgement: as much as an answer needs that nothing else gives
(`csrtimes.ALONE`); and two steps are the fewest that can agree."""

RARE = 2.5
"""What was seen so often only is no rule of the driver."""

SKIP, IDLE_BELL, NEVER = 20.0, 10.0, 1e4
"""Nats: a send that nothing starts; a doorbell that starts none; what cannot be."""

FEW_WAIT = 0.1
"""Doorbells that wait for their sends at a time, before any was seen. A judgement: most cards send at once."""

LEAST_US, MOST_US = 0.01, 1e4
"""Times between these are told apart."""

ANY_TIME = broad(LEAST_US, MOST_US)
"""A first guess at when something comes."""

OF_ACCESSES = (
    *("time_us", "end_us", "pause_us", "since_us", "since", "near", "kind", "value"),
    *("possible", "write", "bell", "count", "key"),
)
OF_SENDS = ("target_key", "gap_us", "free_us")
"""What a reader has one value for each access of, and for each send."""


@dataclass(frozen=True)
class Usual:
    """How doorbells usually are, before any of a host was read: shares of bins of times, and of shapes.

    Attributes
    ----------
    lag : array of float
        Time from a doorbell to the send that it starts at once.
    waited : array of float
        Time from a send to the next one that waited for it.
    since : tuple of tuple of array of float
        Time since the nearest access, receive or send before (columns), of an access by itself, of one that begins a
        doorbell, and of one that goes on in it (rows).
    shape : array of float, shape (MOST, LONGEST)
        Sends of a doorbell, and its accesses.
    """

    lag: Floats
    waited: Floats
    since: tuple[tuple[Floats, ...], ...]
    shape: Floats

    @classmethod
    def anything(cls) -> Usual:
        """Return what is said where nothing was seen yet."""
        return cls(broad(0.05, 1e3), ANY_TIME, ((ANY_TIME,) * 3,) * 3, _first_shape())


@dataclass(frozen=True)
class _Looks:
    """What its looks cost each access: in no doorbell, as one that begins it, as one that goes on; and as the last of
    one, or one before.
    """

    other: Floats
    begins: Floats
    goes_on: Floats
    last: Floats
    before: Floats


def heads(last: Integers) -> Booleans:
    """Return which sends are the first of their doorbell, by the last access of each; -1 for none."""
    return np.asarray((last >= 0) & (np.append(-1, last)[: len(last)] != last))


def waiting(last: Integers, time_us: Floats, sends: Sends) -> float:
    """Return how many doorbells wait for their sends at a time, on average: all the time that they do, of all."""
    first = heads(last)
    waits_us = np.maximum(sends.start_us[first] - time_us[last[first]], 0.0)
    return float(waits_us.sum() / max(sends.start_us[-1] - time_us[0], 1.0))


@dataclass(frozen=True)
class Known:
    """What is known of the accesses of one host before they are read.

    Attributes
    ----------
    csr : LookedAt
        In order of time.
    profile : Profile
    received_us : array of float
        Last data phase of each receive, ascending.
    usual : Usual
        How doorbells are, as far as that is known.
    """

    csr: LookedAt
    profile: Profile
    received_us: Floats
    usual: Usual


class Reader:
    """Reads the accesses of one host again and again.

    `bell` says which of them are doorbells for certain, `possible` which may have which place in one.
    """

    def __init__(self, known: Known, rows: Integers, sends: Sends) -> None:
        csr = known.csr
        self.sends, self.received_us, self.usual = sends, known.received_us, known.usual
        self.time_us, self.end_us = csr.first_attempt_us[rows], csr.end_us[rows]
        ready_us = np.maximum(csr.ready_us[rows][1:], self.end_us[:-1])
        self.pause_us = np.append(np.inf, np.maximum(np.minimum(self.time_us[1:], ready_us) - self.end_us[:-1], 0.02))
        self.since_us, self.near = self._since()
        self.since = bins(self.since_us)
        kinds = Kinds.of(csr, len(sends))
        self.kind, self.kinds = kinds.number[rows], kinds.count
        self.named = bool((csr.address >= 0).any())
        self.possible = _possible(csr, rows)
        self.write = np.isin(csr.command[rows], WRITES)
        self.bell, self.value = np.asarray(csr.doorbell[rows]), csr.value[rows].astype(np.int64)
        self.count = np.zeros(len(rows), np.uint32)
        if self.bell.any():
            self.count[self.bell] = sends_of(_released(csr, np.flatnonzero(csr.doorbell), known.profile), len(sends))
        elif self.named:
            # What is written less often sets the card up.
            often = np.bincount(self.kind, minlength=self.kinds)[self.kind]
            self.possible[often * np.where(kinds.entry[rows], AT_MOST, MOST) < len(sends), 0] = False
        # A time is told by so much better than it is by chance.
        self.log_rate = np.float32(np.log(len(sends) / max(sends.start_us[-1] - sends.start_us[0], 1.0)))
        self.key, self.target_key = _keys(csr, rows, sends)
        self.gap_us = np.append(np.inf, sends.start_us[1:] - sends.end_us[:-1])
        self.free_us = np.append(-np.inf, sends.end_us[:-1])
        self.taught: dict[tuple[bytes, ...], Released] = {}

    def leading(self) -> float:
        """Return what it costs that the data of sends follow their descriptors as they do."""
        lead_us, learner = self.sends.lead_us[~np.isnan(self.sends.lead_us)], Learner()
        cost = times(lead_us, ANY_TIME, learner)[bins(lead_us)] + self.log_rate
        return float(cost.sum()) + learner.nats

    def _since(self) -> tuple[Floats, Integers]:
        """Return how long ago the nearest of the access before (0), a receive (1) and a send (2) ended."""
        past = [np.append(-np.inf, self.end_us[:-1])]
        for ended_us in (self.received_us, np.sort(self.sends.end_us)):
            ended_us = np.append(-np.inf, ended_us)
            past.append(ended_us[np.searchsorted(ended_us, self.time_us, side="right") - 1])
        near = np.argmax(past, axis=0)
        since_us = np.where(near == 0, self.pause_us, self.time_us - np.max(past, axis=0))
        return np.clip(since_us, LEAST_US, MOST_US), near

    def of_kind(self, kind: int) -> Reader:
        """Return the reader for whom the doorbells are of one kind, of which hardly any is anything else."""
        other = copy(self)
        other.bell, other.possible, other.taught = self.kind == kind, self.possible.copy(), {}
        other.possible[:, 0] &= other.bell
        other.possible[other.bell, 1:] = False
        other.count = np.zeros_like(self.count)
        other.count[other.bell] = _as_a_tail(self.value[other.bell], len(self.sends))
        return other

    def of_first(self, sends: int) -> Reader:
        """Return the reader of the first sends, and of the accesses before the next one."""
        other, accesses = copy(self), int(np.searchsorted(self.time_us, self.sends.start_us[sends]))
        other.sends, other.taught = self.sends.take(np.arange(sends)), {}
        for columns, count in ((OF_ACCESSES, accesses), (OF_SENDS, sends)):
            for name in columns:
                setattr(other, name, getattr(self, name)[:count])
        return other

    def after(self, found: Released | None, shape: Floats | float = 1.0) -> Released:
        """Return what is read with what a reading teaches; many starts come to readings from which others went on."""
        begins = b"" if found is None else found.first.tobytes() + found.last.tobytes()
        key = begins, np.asarray(shape).tobytes()
        if key not in self.taught:
            self.taught[key] = self._read(found, shape, margins=False)
        return self.taught[key]

    def otherwise(self, found: Released, ring: int, nats: float) -> Released:
        """Return what is read with what a reading teaches, where it is dearer by so much that an access rings."""
        learner = Learner()
        items, table = self.items(found, learner), self.table(found, learner)
        items.place[ring, 0] += nats
        return read(items, self.targets(found, learner), table, margins=False)

    def _read(self, found: Released | None, shape: Floats | float, margins: bool) -> Released:
        """Read with what a reading teaches; margins only of what is an answer, for they take as long as the reading."""
        learner = Learner()
        table = self.table(found, learner)
        table.shape -= np.log(shape, dtype=np.float32)
        read_now = read(self.items(found, learner), self.targets(found, learner), table, margins)
        cost = read_now.cost + learner.nats - IN_STEP * self.in_step(read_now) - self.told(read_now)
        surely = None if margins else partial(self._read, found, shape, margins=True)
        return replace(read_now, cost=cost, learned=learner.nats, surely=surely)

    def in_step(self, found: Released) -> bool:
        """Return whether the values of the doorbells go on by as much a send."""
        sent = found.last[found.last >= 0]
        rings, many = np.unique(sent, return_counts=True)
        if not self.named or len(np.unique(self.kind[rings])) > 1:
            return False
        step = np.diff(self.value[rings])
        # Where the value begins again it says nothing.
        on = step >= 0
        each = step[on] / many[1:][on]
        return bool(len(each) >= STEPS and each[0] > 0 and np.ptp(each) == 0 and self.value[rings].max() < RING)

    @property
    def counts(self) -> bool:
        """Whether the values of the doorbells count the sends, and none is read before its own.

        So does what counts receives, if these are as many. But that neither goes on by now more, now fewer, as the host
        rings; nor is it ahead of them.
        """
        bells = np.flatnonzero(self.bell)
        count = self.count[bells].astype(np.int64)
        ahead = np.cumsum(count) > np.searchsorted(self.received_us, self.time_us[bells])
        ahead &= self.time_us[bells] > self.sends.start_us[0]
        if np.count_nonzero(count) < COUNTING or (
            np.unique(count[count > 0]).size < STEPS and np.count_nonzero(ahead) < COUNTING
        ):
            return False
        # As many as are sent in the end.
        before = len(self.sends) - np.cumsum(count[::-1])[::-1]
        return bool((np.searchsorted(self.sends.start_us, self.time_us[bells[1:]]) <= before[1:]).all())

    def proved(self, found: Released) -> bool:
        """Return whether the values of the doorbells count all sends from the first on, as the reading has them."""
        rings, many = np.unique(found.last, return_counts=True)
        if not self.named or not len(rings) or rings[0] < 0 or len(np.unique(self.kind[rings])) > 1:
            return False
        value = self.value[rings]
        each = value[0] // many[0]
        return self.of_kind(int(self.kind[rings[0]])).counts and bool((value == each * np.cumsum(many)).all())

    def told(self, found: Released) -> float:
        """Return how unlikely it is, in nats, that doorbells release by chance as many sends as their values say."""
        rings, many = np.unique(found.last[found.last >= 0], return_counts=True)
        stated = self.count[self.count > 0]
        right = many[self.count[rings] == many]
        share = np.bincount(stated, minlength=int(many.max(initial=0)) + 1) / max(len(stated), 1)
        return float(-np.log(share[right]).sum())

    def inside(self, found: Released | None) -> Integers:
        """Return the place of each access in its doorbell, from its end; -1 for others."""
        place = np.full(len(self.time_us), -1)
        bells = set() if found is None else {*zip(found.first.tolist(), found.last.tolist(), strict=True)} - {(-1, -1)}
        if bells:
            first, last = np.array([*bells]).T
            size = last - first + 1
            before_last = np.repeat(np.cumsum(size), size) - 1 - np.arange(size.sum())
            place[np.repeat(last, size) - before_last] = np.minimum(before_last, PLACES - 1)
        return place

    def items(self, found: Released | None, learner: Learner) -> Items:
        """Return the accesses with what they cost: how often one that looks like this, or comes so soon, is something.

        How well accesses predict each other counts for no label: interrupt handlers are as regular as doorbells.
        """
        looks = self._looks(found)
        other, cost = looks.other, np.column_stack([looks.last, *[looks.before] * (PLACES - 1)])
        if self.bell.any():
            other = np.where(self.bell, other + IDLE_BELL, other)
        cost = np.where(self.possible, cost, NEVER)
        lone, begins, joins = self._times(found, learner)
        joins = np.where((self.pause_us <= CHAIN_US) | self.named, joins, NEVER)
        joins[1:][self.named & (self.kind[1:] == self.kind[:-1])] = NEVER
        edge, ends = self._edges(found)
        begins = begins + edge + looks.begins
        cost += begins[:, None]
        cost[:, 0] += ends
        joins += looks.goes_on - begins
        other = other + lone
        return Items(
            self.time_us,
            other.astype(np.float32),
            np.minimum(other, cost.min(axis=1) + self._pending(found)).astype(np.float32),
            np.ascontiguousarray(cost, np.float32),
            joins.astype(np.float32),
            self.count,
            self.key,
        )

    def _pending(self, found: Released | None) -> float:
        """Return what it costs that one more of the last doorbells rings for a send that the capture has no more.

        At any time so many doorbells wait for their sends as do on average (Little's law). A full ring has them always:
        of a stream with 14 waiting (`sk9843-10us`) all doorbells were given to later sends, so that none was left over.
        """
        seen, count = (
            (0.0, 0) if found is None else (waiting(found.last, self.time_us, self.sends), heads(found.last).sum())
        )
        usual = (seen * count + FEW_WAIT) / (count + 1.0)
        return float(np.log1p(1.0 / usual))

    def _times(self, found: Released | None, learner: Learner) -> tuple[Floats, Floats, Floats]:
        """Return what it costs that each access comes when it does: by itself, as the first of a doorbell, as the next.

        Each time is told by what is nearest: the access before, or a frame that was received or sent.
        """
        out = []
        for seen, usual in zip(self._seen_since(found), self.usual.since, strict=True):
            cost = np.zeros(len(self.time_us))
            for near in range(3):
                rows = self.near == near
                cost[rows] = times(seen[near], usual[near], learner)[self.since[rows]]
            out.append(cost)
        return out[0], out[1], out[2]

    def _seen_since(self, found: Released | None) -> list[list[Floats]]:
        """Return the times since what is nearest, as in `Usual.since`, that a reading shows."""
        if found is None:
            return [[np.zeros(0)] * 3] * 3
        place = self.inside(found)
        goes_on = np.append(False, (place[1:] >= 0) & (place[:-1] > 0))
        labels = np.where(place < 0, 0, np.where(goes_on, 2, 1))
        return [[self.since_us[(self.near == near) & (labels == label)] for near in range(3)] for label in range(3)]

    def _looks(self, found: Released | None) -> _Looks:
        """Return what its looks cost each access.

        How many accesses a doorbell has is told by its size. So of one that goes on only unusual looks cost anything:
        of some that look alike one in five begins a doorbell, but what comes behind that surely goes on.
        """
        if found is None:
            even, none = np.full(len(self.kind), np.log(2)), np.zeros(len(self.kind))
            return _Looks(even, even, none, none, none)
        place = self.inside(found)
        member, closes, opens = place >= 0, place == 0, np.zeros(len(place), dtype=bool)
        opens[found.first[found.first >= 0]] = True
        outside, everything = opens | ~member, np.ones(len(place), dtype=bool)
        return _Looks(
            self._share(~member, outside),
            self._share(opens, outside),
            *(self._unusual(*one) for one in ((member, everything), (closes, member), (member & ~closes, member))),
        )

    def _unusual(self, some: Booleans, among: Booleans) -> Floats:
        """Return by how much it costs each access more, by its kind, to be one of some than it costs any."""
        usual = -np.log((some.sum() + 0.5) / (among.sum() + 1.0))
        return np.asarray(np.maximum(self._share(some, among) - usual, 0.0))

    def _share(self, some: Booleans, among: Booleans) -> Floats:
        """Return what it costs each access, by its kind, to be one of some; the share of all is the guess."""
        every = np.bincount(self.kind[among], minlength=self.kinds)
        mine = np.bincount(self.kind[some], minlength=self.kinds)
        share = (some.sum() + 0.5) / (among.sum() + 1.0)
        return np.asarray(-np.log((mine + GUESS * share) / (every + GUESS))[self.kind])

    def _edges(self, found: Released | None) -> tuple[Floats, Floats]:
        """Return what it costs that a doorbell begins with each access, and that it ends with each."""
        chained = self.pause_us <= CHAIN_US
        out = []
        for there, edge in ((chained, "first"), (np.append(chained[1:], False), "last")):
            among, count = 0.0, 0
            if found is not None:
                rows = np.unique(getattr(found, edge)[found.last >= 0])
                among, count = float(there[rows].sum()), len(rows)
            share = (among + AMONG * PRIOR) / (count + PRIOR)
            usual = (there.sum() + 1.0) / (len(there) + 2.0)
            out.append(np.where(there, -np.log(share / usual), -np.log((1 - share) / (1 - usual))))
        return out[0], out[1]

    def targets(self, found: Released | None, learner: Learner) -> Targets:
        """Return the sends with what it costs that they waited for the one before: then they follow it as usual."""
        told, gap = self.sends.found, bins(self._gaps_us())
        table = times(self._waited(found), self.usual.waited, learner)
        cost = cheapest_within(table, np.where(told, gap, 0), gap) + self.log_rate
        count = len(self.sends)
        return Targets(
            self.sends.start_us,
            self.sends.ready_us,
            self.free_us,
            cost.astype(np.float32),
            np.full(count, SKIP, np.float32),
            self.target_key,
        )

    def _gaps_us(self) -> Floats:
        """Return the time since the send before of each; of one that was not found it is the longest that it may be."""
        return np.asarray(np.clip(self.gap_us, LEAST_US, MOST_US))

    def _waited(self, found: Released | None) -> Floats:
        """Return the times since the send before of those that waited for it in a reading."""
        if found is None:
            return np.zeros(0)
        known = np.flatnonzero(found.last >= 0)
        follows = np.append(False, found.last[1:] == found.last[:-1])
        waits = known[follows[known] | (self.time_us[found.last[known]] < self.free_us[known])]
        waits = np.append(np.arange(1, known[0]) if len(known) else known, waits)
        return np.asarray(self._gaps_us()[waits[self.sends.found[waits]]])

    def table(self, found: Released | None, learner: Learner) -> Table:
        """Return what doorbells cost."""
        shape, keys = self.usual.shape, (0.0, 0.0)
        if found is not None:
            many, size = self._shapes(found)
            learner.density((many - 1) * LONGEST + size, in_nats(shape.ravel()), smooth=False)
            shape = self._shaped(many, size)
        if self.key.any():
            keys = (0.1, 8.0)
        lag = times(self._lags(found), self.usual.lag, learner) + self.log_rate
        return Table(lag, -np.log(shape).astype(np.float32), keys)

    def _lags(self, found: Released | None) -> Floats:
        """Return the times from doorbells to sends that did not wait for the one before."""
        if found is None:
            return np.zeros(0)
        rows = np.flatnonzero(heads(found.last))
        ring_us = self.time_us[found.last[rows]]
        at_once = (self.free_us[rows] <= ring_us) & self.sends.found[rows]
        return np.maximum(self.sends.start_us[rows] - ring_us, 0.01)[at_once]

    def _shapes(self, found: Released) -> tuple[Integers, Integers]:
        """Return how many sends each doorbell is for, and how many accesses it has beside its last."""
        rows = np.flatnonzero(heads(found.last))
        many = np.bincount(found.last[found.last >= 0], minlength=1)[found.last[rows]]
        return np.minimum(many, MOST), np.minimum(found.last[rows] - found.first[rows], LONGEST - 1)

    def _shaped(self, many: Integers, size: Integers) -> Floats:
        """Return the shares of shapes, of which some were seen."""
        counts = np.zeros_like(self.usual.shape)
        np.add.at(counts, (many - 1, size), 1)
        counts = np.maximum(counts - RARE, 0.0)
        return np.asarray((counts + 0.5 * self.usual.shape) / (counts.sum() + 0.5))

    def teaches(self, found: Released) -> Usual:
        """Return what a reading says of how doorbells usually are."""
        since = zip(self._seen_since(found), self.usual.since, strict=True)
        return Usual(
            shares(self._lags(found), self.usual.lag),
            shares(self._waited(found), self.usual.waited),
            tuple(tuple(map(shares, seen, usual)) for seen, usual in since),
            self._shaped(*self._shapes(found)),
        )


def _first_shape() -> Floats:
    """Return a first guess at how many accesses a doorbell has (columns) for so many sends (rows)."""
    sends, accesses = np.arange(MOST)[:, None], np.arange(LONGEST)[None, :]
    share = 0.25**sends * 0.6 ** (accesses / (sends + 1))
    return np.asarray(share / share.sum())


def _possible(csr: Accesses, rows: Integers) -> Booleans:
    """Return which accesses may have which place in a doorbell."""
    command, reads = csr.command[rows], ~np.isin(csr.command[rows], WRITES)
    possible = np.ones((len(rows), PLACES), dtype=bool)
    possible[csr.plays(*NEVER_STARTING)[rows]] = False
    possible[csr.data_phases[rows] > 2] = False
    possible[(command >= 0) & reads, 0] = False
    if csr.doorbell.any():
        possible[:, 0] = csr.doorbell[rows]
        possible[csr.doorbell[rows], 1:] = False
    return possible


def _released(csr: Accesses, bells: Integers, profile: Profile) -> Integers:
    """Return how many sends each doorbell releases by its value; 0 if that does not say it."""
    register = next((one for one in profile.registers if one.role == "send_doorbell"), None)
    if register is None or register.value != "tail" or profile.send_descriptor is None:
        return np.zeros(len(bells), np.uint32)
    sizes = csr.of_role("send_ring_size")
    unit = next((one.unit_bytes for one in profile.registers if one.role == "send_ring_size"), 1)
    entries = int(csr.value[sizes[-1]]) * unit // profile.send_descriptor.size_bytes if len(sizes) else 0
    ahead = np.diff(csr.value[bells].astype(np.int64), prepend=csr.value[bells][:1])
    if not entries and (ahead[1:][ahead[1:] >= 0] == 1).all():
        # Where all else goes on one by one, the ring begins again behind the largest value.
        entries = int(csr.value[bells].max(initial=0)) + 1
    ahead = np.mod(ahead, entries) if entries else np.maximum(ahead, 0)
    # The first value seen says how far it went only from a known start: a ring just set up begins at 0.
    ahead[0] = csr.value[bells[0]] if len(sizes) > 0 and sizes[0] < bells[0] else 0
    return np.where(ahead > 64, 0, ahead).astype(np.uint32)


def _as_a_tail(value: Integers, sends: int) -> Integers:
    """Return how many sends each doorbell releases if its values go on as those of a ring's end; 0 where they do not.

    They go on by as much as there are sends, but for what was rung for before the capture or is sent behind it: as many
    as one doorbell releases. A driver of a card of another maker (tiny) rang for up to five sends at once: three of
    these had the doorbell behind theirs.
    """
    ahead = np.diff(value)
    on = ahead[ahead >= 0]
    if len(on) < STEPS or len(ahead) - len(on) > AGAIN * len(ahead) or (on == 0).any() or value.max() >= RING:
        return np.zeros(len(value), np.uint32)
    for each in range(int(np.gcd.reduce(on)), 0, -1):
        if np.abs(sends - on.sum() / each) <= (on.max() / each + 1) * (1 + len(ahead) - len(on)):
            return np.append(0, np.where(ahead > 0, ahead // each, 0)).astype(np.uint32)
    return np.zeros(len(value), np.uint32)


def _keys(csr: Accesses, rows: Integers, sends: Sends) -> tuple[np.ndarray, np.ndarray]:
    """Return what names the sends in the values that are written, and in the sends; zeros if nothing does."""
    none = np.zeros(len(rows), np.uint64), np.zeros(len(sends), np.uint64)
    value, address = csr.value[rows].astype(np.int64), sends.address.astype(np.int64)
    if not (value > 0xFFF).any() or not (address >= 0).any():
        return none
    written = np.where((value > 0xFFF) & np.isin(csr.command[rows], WRITES), value & ~3, 0)
    wanted = np.where(address >= 0, address & ~3, 0)
    if np.isin(wanted, written[written > 0]).mean() < 0.5:
        return none
    return written.astype(np.uint64), wanted.astype(np.uint64)
