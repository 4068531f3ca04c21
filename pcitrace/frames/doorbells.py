"""Which accesses of the host start which sends: the cheapest reading of all of them, and how sure each is.

An access begins the doorbell of some sends, goes on in it, rings, or is something else. What it costs:

==================================  ==================================================================
time from the ring to the DMA       the card takes as long as usual
time since the send before          a send that had to wait follows that one as usual, whatever rang for it
time since what is nearest          an access comes as usual after the access, receive or send before it
register, or how the access looks   so often such an access begins a doorbell; doorbells have such accesses
accesses a doorbell, sends a ring   as usual
address written                     the one from which the card reads (where AD was captured)
what learning all this cost         as for DMA (`lattice.Learner`)
==================================  ==================================================================

All of it is learned from the reading before. What a profile says of registers is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.facts import WRITES
from pcitrace.frames.sends import Sends
from pcitrace.frames.sendstart import NOT_STARTING
from pcitrace.lattice import Learner, bins, cheapest_within
from pcitrace.profiles import Profile
from pcitrace.releases import PLACES, Items, Released, Table, Targets, broad, read, shares, times
from pcitrace.traffic.csr import CONFIGURATION, NO_DATA, Accesses, LookedAt

__all__ = ["Doorbells", "Usual", "find"]

NEVER_STARTING = (*NOT_STARTING, "send_ring", "send_ring_size")
"""Roles of registers that start no send."""

ROUNDS, SETTLED = 6, 3
"""Readings; each learns from the one before. In so many a first guess holds."""

LONGEST, MOST = 16, 8
"""Accesses of a doorbell, and sends that one rings for unless its value says more."""

CHAIN_US = 1.0
"""The driver goes on with a doorbell within this time."""

AMONG, PRIOR = 0.03, 200.0
"""Share of the doorbells that begin, or end, among accesses that follow each other at once; what this guess weighs."""

GUESS = 1.0
"""What the guess weighs that accesses of each kind are as all are."""

AT_MOST = 4
"""Sends a doorbell whose register nothing names: what is written less often sets the card up."""

NEARLY_ALL, WHOLE = 0.9, 0.97
"""Share of the sends that a register starts if it is the doorbell; and that the rules know if they know this driver.

That is all but one that the capture cuts. Of a generated host (`cardbench`, groups 1120) they knew 10 of 12, all wrong;
of a card of another maker (card_scatter-gather) 18 of 19, of which two were wrong."""

TRIED, NEAREST = 4, 3
"""Registers that are tried as doorbells; and how many accesses the doorbell may have that is nearest to its send."""

SOME = 1.1
"""Sends a doorbell from which on it may be several each; and times as often as sends a doorbell may be written, and a
few times more."""

ALIKE = 8.0
"""Segments that differ in the same way count as so many: they are not independent evidence."""

FIRST, FEW = 48, 3
"""Sends that are read from all starts first, where there are so many times as many accesses in all."""

RULED_OUT = 20.0
"""Nats for each segment that differs from which on a reading is out: no answer asks for a larger margin."""

ANY_KIND = -1
"""Doorbells may be of any kind."""

Start = tuple[object, ...]
"""From what a reading begins: the kind of doorbells, and what names the first guess."""

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
class Doorbells:
    """The accesses that start sends.

    Attributes
    ----------
    first, last : arrays of int
        For each send the first and last access that start it, as rows of `Accesses`; -1 if none does.
    margins : array of float, shape (sends, 2)
        How sure either is, in nats.
    send : array of int
        For each access the first send that it starts; -1 for none.
    sure : array of float
        Of each access, how much worse the best reading is in which it is something else; NaN where none was tried.
    sends : Sends
        What was read as released.
    usual : Usual
        What they teach of other doorbells.
    """

    first: Integers
    last: Integers
    margins: Floats
    send: Integers
    sure: Floats
    sends: Sends
    usual: Usual

    def sureness(self) -> float:
        """Return how sure it is of most sends, in nats."""
        least = self.margins.min(axis=1)
        return float(np.nanmedian(least)) if len(least) and not np.isnan(least).all() else 0.0


@dataclass(frozen=True)
class Kinds:
    """Accesses that look alike have one number: the register where it is known, else what the bus shows."""

    number: Integers
    count: int

    @classmethod
    def of(cls, csr: LookedAt, count: int) -> Kinds:
        """Number the accesses by kind, where `count` frames were sent."""
        known = csr.address >= 0
        if known.any():
            role = np.asarray(csr.role, np.int64)
            seen = pd.Series(csr.address).map(pd.Series(csr.address).value_counts()).to_numpy()
            # Of arrays of registers each is rare: they are known by where in an entry they are.
            address = csr.address.astype(np.int64)
            place = np.where(seen > count / 10 + 2, address, (address >> 8) * 8 + (address & 7) + (1 << 40))
            place = np.where(role >= 0, -2 - role, place)
            key = place * 32 + np.maximum(csr.command, 0)
        else:
            looks = [np.clip(csr.devsel_clks, 0, 7), np.clip(csr.latency_clks, 0, 31), np.clip(csr.data_phases, 0, 3)]
            key = (looks[0].astype(np.int64) * 32 + looks[1]) * 4 + looks[2]
            key = key * 2 + (csr.attempts > 1)
        number, unique = pd.factorize(key)
        return cls(number, len(unique))


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


def find(
    csr: LookedAt,
    profile: Profile,
    ways: Sequence[Sends],
    received_us: Floats,
    first: Integers,
    last: Integers,
    usual: Usual,
) -> Doorbells:
    """Find the CSR accesses that start each send.

    Parameters
    ----------
    csr : LookedAt
        In order of time.
    profile : Profile
    ways : sequence of Sends
        The same sends, as they may be read.
    received_us : array of float
        Last data phase of each receive, ascending.
    first, last : arrays of int
        The first and last access of each send by other rules, to begin with; -1 for none.
    usual : Usual
        How doorbells are, as far as that is known before.
    """
    rows = np.flatnonzero((csr.reason != CONFIGURATION) & (csr.reason != NO_DATA))
    none, unsure = np.full(len(ways[0]), -1), np.full((len(ways[0]), 2), np.nan)
    send, sure = np.full(len(csr), -1), np.full(len(csr), np.nan)
    starts = Doorbells(none, none.copy(), unsure, send, sure, ways[0], Usual.anything())
    if not len(rows) or not len(none):
        return starts
    place = np.full(len(csr) + 1, -1)
    place[rows] = np.arange(len(rows))
    ends = []
    for sends in ways:
        reader = _Reader(csr, rows, profile, sends, received_us, usual)
        end = reader.settle(place[first], place[last])
        ends.append((replace(end, cost=end.cost + reader.leading()), reader))
    (found, reader), *others = sorted(ends, key=lambda one: one[0].cost)
    for other, _ in others:
        found = _against(found, other)
    known = np.flatnonzero(found.last >= 0)
    first, last = none.copy(), none.copy()
    first[known], last[known] = rows[found.first[known]], rows[found.last[known]]
    for send in known[::-1]:
        starts.send[rows[found.first[send] : found.last[send] + 1]] = send
    starts.sure[rows] = found.item
    margins = found.margins.astype(float)
    return Doorbells(first, last, margins, starts.send, starts.sure, reader.sends, reader.teaches(found))


class _Reader:
    """Reads the accesses of one host again and again."""

    def __init__(
        self, csr: LookedAt, rows: Integers, profile: Profile, sends: Sends, received_us: Floats, usual: Usual
    ) -> None:
        self.sends, self.received_us, self.usual = sends, received_us, usual
        self.time_us, self.end_us = csr.first_attempt_us[rows], csr.end_us[rows]
        ready_us = np.maximum(csr.ready_us[rows][1:], self.end_us[:-1])
        self.pause_us = np.append(np.inf, np.maximum(np.minimum(self.time_us[1:], ready_us) - self.end_us[:-1], 0.02))
        self.since_us, self.near = self._since()
        kinds = Kinds.of(csr, len(sends))
        self.kind, self.kinds = kinds.number[rows], kinds.count
        self.named = bool((csr.address >= 0).any())
        self.possible = _possible(csr, rows)
        self.write = np.isin(csr.command[rows], WRITES)
        self.bell = np.asarray(csr.doorbell[rows])
        self.count = np.zeros(len(rows), np.uint32)
        if self.bell.any():
            self.count[self.bell] = _scaled(_released(csr, np.flatnonzero(csr.doorbell), profile), len(sends))
        elif self.named:
            often = np.bincount(self.kind, minlength=self.kinds) * AT_MOST >= len(sends)
            self.possible[~often[self.kind], 0] = False
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

    def settle(self, first: Integers, last: Integers) -> Released:
        """Return the cheapest of the readings in which several starts end.

        Of many accesses the first are read from all starts. From those that lead nowhere there the rest is not read.
        """
        part, only = self._part(), None
        if part is not None:
            known = last[: len(part.sends)] < len(part.time_us)
            begins, rings = (np.where(known, one[: len(known)], -1) for one in (first, last))
            only = _leading(part._ends(begins, rings))
        best, *others = sorted(self._ends(first, last, only).values(), key=lambda end: end.cost)
        for other in others:
            best = _against(best, other)
        return best

    def _part(self) -> _Reader | None:
        """Return the reader of the first accesses, if they are few of all."""
        if len(self.sends) <= FIRST:
            return None
        count = int(np.searchsorted(self.time_us, self.sends.start_us[FIRST]))
        if FEW * count > len(self.time_us):
            return None
        part = copy(self)
        part.sends, part.taught = self.sends.take(np.arange(FIRST)), {}
        for name in ("time_us", "end_us", "pause_us", "since_us", "near", "kind", "possible", "write", "bell", "count"):
            setattr(part, name, getattr(self, name)[:count])
        part.key, part.target_key = self.key[:count], self.target_key[:FIRST]
        part.gap_us, part.free_us = self.gap_us[:FIRST], self.free_us[:FIRST]
        return part

    def _ends(self, first: Integers, last: Integers, only: set[Start] | None = None) -> dict[Start, Released]:
        """Return in what readings starts end; `only` some, and what rules say.

        A register that is a doorbell is hardly written for anything else. So where registers are known each that may be
        it is tried.
        """
        known = (first >= 0) & (last >= 0)
        no_margins = np.zeros((len(first), 2), np.float32), np.zeros(len(self.time_us), np.float32)
        start = Released(np.where(known, first, -1), np.where(known, last, -1), *no_margins, 0.0)
        ends: dict[Start, Released] = {("rules",): self._from(start, 1.0)} if known.any() else {}
        possible, bell = self.possible, self.bell
        if self.named and not bell.any():
            for kind in self._candidates().tolist():
                self.bell = self.kind == kind
                self.possible = possible.copy()
                self.possible[:, 0] &= self.bell
                self.possible[self.bell, 1:] = False
                ends |= self._ends_with(kind, only)
            self.possible, self.bell = possible, bell
        # Rules that know all sends know this driver; what a reading makes of fewer may be a mistake of both.
        told = any((end.last >= 0).mean() >= NEARLY_ALL for end in ends.values())
        if not (told if self.named else known.mean() >= WHOLE):
            ends |= self._ends_with(ANY_KIND, only)
        return ends or self._ends_with(ANY_KIND, None)

    def _candidates(self) -> Integers:
        """Return the kinds of accesses that may be doorbells, by how many there are."""
        count = np.bincount(self.kind[self.write], minlength=self.kinds)
        sends = len(self.sends)
        fit = np.flatnonzero((count >= sends / MOST) & (count <= SOME * sends + MOST))
        return fit[np.argsort(np.abs(count[fit] - sends), kind="stable")][:TRIED]

    def _ends_with(self, kind: int, only: set[Start] | None) -> dict[Start, Released]:
        """Return in what readings several starts end with doorbells of one kind.

        What a table that was learned from a reading says for this reading is no proof: no margin is larger than what
        another end costs more, for each segment in which it differs.
        """
        if only is not None and all(start[0] != kind for start in only):
            return {}
        first = self._from(None, 1.0)
        starts: dict[Start, Callable[[], Released]] = {(kind, "free"): lambda: first}
        bells = int(self.bell.sum()) or len(np.unique(first.last[first.last >= 0]))
        many = min(max(round(len(self.sends) / max(bells, 1)), 1), MOST)
        several = {many, 2, 3, 4} if many > 1 or len(self.sends) > SOME * bells else set()
        for sends, accesses in {(1, 1), (1, 2), (1, 3)} | {(one, None) for one in several}:
            shape = np.full((MOST, LONGEST), np.exp(-IDLE_BELL))
            shape[sends - 1, slice(None) if accesses is None else accesses - 1] = 1.0
            starts[kind, "shape", sends, accesses] = partial(self._from, None, shape)
        rings = np.flatnonzero(self.bell) if self.bell.any() else np.unique(first.last[first.last >= 0])
        sizes = np.bincount((first.last - first.first)[first.last >= 0], minlength=2)
        for each in sorted({1, many}):
            for size in (0, int(sizes[1:].argmax()) + 1):
                starts[kind, "in order", each, size > 0] = partial(self._from_order, rings, each, size)
        for number, near in enumerate(self._nearest()):
            starts[kind, "nearest", number] = partial(self._from, near, 1.0)
        for by in (-1, 1):
            starts[kind, "shifted", by] = partial(self._from, _shifted(first, by), 1.0)
        return {start: end() for start, end in starts.items() if only is None or start in only}

    def _from_order(self, rings: Integers, many: int, before: int) -> Released:
        """Return what readings settle at from the one of `_in_order`."""
        return self._from(self._in_order(rings, many, before), 1.0)

    def _in_order(self, rings: Integers, many: int, before: int) -> Released:
        """Return the reading in which the doorbells release the sends in their order, so many each or as they say.

        `before` accesses of each come before its last. As few sends as possible were released before the first of them.
        """
        stated = self.count[rings].astype(np.int64)
        which = np.repeat(rings, np.where(stated > 0, stated, many))
        for early in range(len(self.sends)):
            mine = which[: len(self.sends) - early]
            if (self.time_us[mine] <= self.sends.start_us[early : early + len(mine)]).all():
                break
        last = np.full(len(self.sends), -1)
        last[early : early + len(mine)] = mine
        first = np.where(last >= 0, np.maximum(last - before, 0), -1)
        return Released(first, last, np.zeros((len(last), 2), np.float32), np.zeros(len(self.time_us), np.float32), 0.0)

    def _nearest(self) -> Iterator[Released]:
        """Give the readings in which the last access before each send rings, if each send has one of its own.

        On a generated host (`cardbench`, scatter-gather 1198) whose handler does as many as its doorbell has, some
        doorbells were the handler's in all other readings; this one came to the truth, which was cheaper.
        """
        last = np.searchsorted(self.time_us, self.sends.start_us) - 1
        if last[0] < NEAREST or not (np.diff(last) > 0).all():
            return
        no_margins = np.zeros((len(last), 2), np.float32), np.zeros(len(self.time_us), np.float32)
        yield from (Released(last - before, last, *no_margins, 0.0) for before in range(NEAREST))

    def _from(self, found: Released | None, shape: Floats | float) -> Released:
        """Return what readings settle at, from one or from nothing; doorbells have a shape as guessed at first."""
        ends: list[Released] = []
        for number in range(ROUNDS):
            before, found = found, self._next(found, shape if number < SETTLED else 1.0)
            if number >= SETTLED:
                ends.append(found)
                if before is not None and (before.last == found.last).all():
                    break
        return min(ends, key=lambda end: end.cost)

    def _next(self, found: Released | None, shape: Floats | float) -> Released:
        """Return what is read with what a reading teaches; many starts come to readings from which others went on."""
        begins = b"" if found is None else found.first.tobytes() + found.last.tobytes()
        key = begins, self.bell.tobytes(), np.asarray(shape).tobytes()
        if key not in self.taught:
            learner = Learner()
            table = self.table(found, learner)
            table.shape -= np.log(shape, dtype=np.float32)
            read_now = read(self.items(found, learner), self.targets(found, learner), table)
            self.taught[key] = replace(read_now, cost=read_now.cost + learner.nats, learned=learner.nats)
        return self.taught[key]

    def inside(self, found: Released | None) -> Integers:
        """Return the place of each access in its doorbell, from its end; -1 for others."""
        place = np.full(len(self.time_us), -1)
        if found is not None:
            for first, last in {*zip(found.first.tolist(), found.last.tolist(), strict=True)} - {(-1, -1)}:
                place[first : last + 1] = np.minimum(np.arange(last - first, -1, -1), PLACES - 1)
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
            np.minimum(other, cost.min(axis=1) + self._waiting(found)).astype(np.float32),
            np.ascontiguousarray(cost, np.float32),
            joins.astype(np.float32),
            self.count,
            self.key,
        )

    def _waiting(self, found: Released | None) -> float:
        """Return what it costs that one more of the last doorbells rings for a send that the capture has no more.

        At any time so many doorbells wait for their sends as do on average (Little's law). A full ring has them always:
        of a stream with 14 waiting (`sk9843-10us`) all doorbells were given to later sends, so that none was left over.
        """
        waiting, count = 0.0, 0
        if found is not None:
            heads = self._heads(found)
            waits_us = np.maximum(self.sends.start_us[heads] - self.time_us[found.last[heads]], 0.0)
            waiting, count = float(waits_us.sum() / max(self.sends.start_us[-1] - self.time_us[0], 1.0)), len(heads)
        usual = (waiting * count + FEW_WAIT) / (count + 1.0)
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
                cost[rows] = times(seen[near], usual[near], learner)[bins(self.since_us[rows])]
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
            learner.density((many - 1) * LONGEST + size, shape.ravel(), smooth=False)
            shape = self._shaped(many, size)
        if self.key.any():
            keys = (0.1, 8.0)
        lag = times(self._lags(found), self.usual.lag, learner) + self.log_rate
        return Table(lag, -np.log(shape).astype(np.float32), keys)

    def _heads(self, found: Released) -> Integers:
        """Return the first send of each doorbell."""
        return np.flatnonzero((found.last >= 0) & (np.append(-1, found.last[:-1]) != found.last))

    def _lags(self, found: Released | None) -> Floats:
        """Return the times from doorbells to sends that did not wait for the one before."""
        if found is None:
            return np.zeros(0)
        heads = self._heads(found)
        ring_us = self.time_us[found.last[heads]]
        at_once = (self.free_us[heads] <= ring_us) & self.sends.found[heads]
        return np.maximum(self.sends.start_us[heads] - ring_us, 0.01)[at_once]

    def _shapes(self, found: Released) -> tuple[Integers, Integers]:
        """Return how many sends each doorbell is for, and how many accesses it has beside its last."""
        heads = self._heads(found)
        many = np.minimum([int((found.last == found.last[h]).sum()) for h in heads], MOST).astype(np.int64)
        return many, np.minimum(found.last[heads] - found.first[heads], LONGEST - 1)

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


def _leading(ends: dict[Start, Released]) -> set[Start]:
    """Return the starts whose ends the cheapest one does not rule out.

    What learning costs more does not grow with what is read. Starts that end alike here may not where more is read.
    """
    best = min(ends.values(), key=lambda end: end.cost)
    return {start for start, end in ends.items() if _most(best, end, end.learned - best.learned) < RULED_OUT}


def _most(best: Released, other: Released, but: float = 0.0) -> float:
    """Return what another reading costs more for each segment that differs, `but` for some of its cost."""
    differs = (best.first != other.first) | (best.last != other.last)
    return max(other.cost - best.cost - but, 0.0) / max(1.0, len(np.unique(best.last[differs])) / ALIKE)


def _shifted(found: Released, by: int) -> Released:
    """Return a reading in which each send has the doorbell of the one before it, or behind it."""
    first, last = np.full_like(found.first, -1), np.full_like(found.last, -1)
    if by > 0:
        first[by:], last[by:] = found.first[:-by], found.last[:-by]
    else:
        first[:by], last[:by] = found.first[-by:], found.last[-by:]
    return Released(first, last, found.margins, found.item, found.cost)


def _against(best: Released, other: Released) -> Released:
    """Return a reading with no margin larger than what another one costs more for each segment that differs."""
    differs = np.stack([best.first != other.first, best.last != other.last], axis=1)
    rows = differs.any(axis=1)
    most = _most(best, other)
    margins = np.where(differs, np.minimum(best.margins, most), best.margins)
    item = best.item.copy()
    for one in (best, other):
        at = one.last[rows & (one.last >= 0)]
        item[at] = np.minimum(item[at], most)
    return Released(best.first, best.last, margins.astype(np.float32), item, best.cost)


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
    ahead = np.mod(ahead, entries) if entries else np.maximum(ahead, 0)
    # The first value seen says how far it went only from a known start: a ring just set up begins at 0.
    ahead[0] = csr.value[bells[0]] if len(sizes) > 0 and sizes[0] < bells[0] else 0
    return np.where(ahead > 64, 0, ahead).astype(np.uint32)


def _scaled(count: Integers, sends: int) -> Integers:
    """Return how many sends doorbells release, where each send may take several descriptors."""
    each = round(int(count.sum()) / max(sends, 1))
    if each < 2 or (count % each > 0).any():
        return count
    return np.asarray(count // each, np.uint32)


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
