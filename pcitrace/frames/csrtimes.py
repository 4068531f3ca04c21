"""The accesses of each frame: which start its send, which follows it, and whether that is sure.

Two things answer. Rules (`sendstart`) find the accesses of each send. Then all accesses are read at the least cost
(`doorbells`), from the rules' answer, from nothing and from what may be mistaken for it. What both say is given; where
they differ, or only one has an answer, its margin decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers, packed_if_equal, pick, pick_us, spread_us
from pcitrace.facts import WRITES
from pcitrace.frames import sendstart
from pcitrace.frames.accesskinds import CHAIN_US, Kinds, commands, on_any_host
from pcitrace.frames.believed import BELLS, believed
from pcitrace.frames.doorbellcosts import Known, Usual, heads, waiting
from pcitrace.frames.doorbells import Doorbells, find
from pcitrace.frames.doorbellstarts import AGREED, ANSWERED, NEARLY_ALL, RULED_OUT, WHOLE
from pcitrace.frames.margins import TOLD
from pcitrace.frames.reads import reads_back, slow
from pcitrace.frames.sends import Sends, descriptor_us, of_host, ways, with_unread
from pcitrace.frames.sendupdate import updates
from pcitrace.frames.starts import CardTimes, Starts
from pcitrace.frames.turns import freed
from pcitrace.freed import give_back
from pcitrace.sidebyside import each
from pcitrace.traffic.asked import SURE as SURE_SEND
from pcitrace.traffic.csr import Accesses, LookedAt
from pcitrace.traffic.dma import Kind

if TYPE_CHECKING:
    from pcitrace.frames.ends import Ends

__all__ = ["Labels", "add"]

ALONE, AGAINST = 12.0, RULED_OUT
"""Nats from which on an answer is given: `AGREED` where rules and reading agree; `ANSWERED` where the rules have none
for this and most others, for a send that answered its doorbell at once, on a host where most did; else, where they have
none, `ALONE`; and `AGAINST` where they have another, if no line shows registers or all sends waited.

Of the generated cards of `cardbench` seeds 1121, 1123, 1124 and 1125 (16 channels, their own profiles) where both agree
none of 689 answers was wrong, 36 of them below 6 nats; on the ten cards of another maker none from 0.5 nats on. Where
the rules have none, and nothing follows the ring at once, 7 of 39 were wrong from 6 to 8 nats, 9 of 40 from 8 to 10,
5 of 45 from 10 to 12, and 7 of 92 above, all of one host. Where they have another one 17 of 35 were wrong from 5 to 10
nats, none of 7 above.

A send that waited says nothing of when its doorbell rang. One that did not is told by that time, and where most did not
the reading has learned it from them: of such (`cardbench` seeds 951 and 952, all families but two) none of 187 above 8
nats was wrong. On five buses of the simulator, of whose sends the rules knew most, some of those that they did not know
were wrong at 8 to 10: those are the sends that differ (one doorbell for several, a handler's accesses). With AD none of
58 answers above 8 nats was wrong that contradict the rules.
"""

MOSTLY = 0.5
"""Share of the sends that answered their doorbells at once, if most did; or that the rules know, if they know most."""

OPEN = 2.0
"""Where the rules know the accesses of nearly all sends (`doorbellstarts.WHOLE`), a reading of smaller margin does not
contradict which access rings, nor when its doorbell begins."""

CHECKED = 2000
"""Accesses that are read: in a longer capture the first of them say whether the rules hold."""

CUT = 16
"""Sends before the end of that part whose accesses it may cut."""

AT_ONCE = 2
"""Fewer doorbells than `BELLS` teach what one looks like, where no line shows registers, if half of them, and at least
so many, were answered at once. On `cardbench` seeds 901 and 902 a host with one such doorbell of three and one
with one of four had wrong ones; their other sends waited. So had the stranger's host of which `BELLS` speaks, with one
of three."""

TIMES_AS = 2.0
"""What comes so many times sooner, or later, than any other does comes otherwise. A judgement."""

A_CLOCK_US = 0.03
"""A clock of 33 MHz: what differs by less is as regular."""

NONE: Integers = np.zeros(0, dtype=np.int64)

TIMES = ("csr_first_us", "csr_last_us")


@dataclass(frozen=True)
class Labels:
    """What the accesses of one host are.

    Attributes
    ----------
    frame : array of int
        The first frame that each starts; -1 for none, or if that is not sure.
    margin : array of float
        How sure that is, in nats, of the first accesses; NaN where nothing was decided, as of all others.
    """

    frame: Integers
    margin: Floats


def add(ends: Mapping[str, Ends], columns: dict[str, Any]) -> dict[str, Labels]:
    """Add the times of their accesses to the frames; return what the accesses of each host are.

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        Of all frames; `csr_first_us`, `csr_last_us`, `csr_done_us` and `margin_csr` are added. What is not sure, or
        belongs to a send that is not, is NaN.
    """
    for name in (*TIMES, "csr_done_us", "margin_csr"):
        columns[name] = np.full(len(columns["sender"]), np.nan)
    ends, columns = _one_by_one(ends, columns)
    # One after the other: each needs much memory.
    asked = {name: _Asked.of(name, end, columns) for name, end in ends.items()}
    give_back()
    alone = dict(zip(asked, each(lambda one: _read(one, Usual.anything()), asked.values()), strict=True))
    answers = {name: _answered_by(one, alone[name], alone[name]) for name, one in asked.items()}
    if len(asked) == 2 and not any(one.end.host.traffic.csr.doorbell.any() for one in asked.values()):
        _surer_together(asked, alone, answers)
    # Each host writes to the rows of its own frames.
    labels = {name: _give(name, asked[name], answer, columns) for name, answer in answers.items()}
    _as_the_other(asked, answers, columns)
    # What does not ring for sure has no beginning.
    columns[TIMES[0]][np.isnan(columns[TIMES[1]])] = np.nan
    return labels


def _one_by_one(ends: Mapping[str, Ends], columns: dict[str, Any]) -> tuple[dict[str, Ends], dict[str, Any]]:
    """Return the ends without what is of no frame and was still under way when the next send began.

    That was read for something else, so nothing rang for it. On a generated host (`cardbench`, fcs 1236) it took 96 us
    behind the second frame, and that one had the doorbell of the first.
    """
    kept, send_row = {}, columns["send_row"].copy()
    for name, end in ends.items():
        mine = (columns["sender"] == name) & (send_row >= 0)
        joined = end.host.traffic.joined
        next_us = np.append(joined.first_data_us[end.sends][1:], np.inf)
        ended = joined.last_data_us[end.sends] <= next_us
        ended[send_row[mine]] = True
        kept[name] = replace(end, sends=end.sends[ended])
        send_row[mine] = np.cumsum(ended)[send_row[mine]] - 1
    return kept, {**columns, "send_row": send_row}


def _surer_together(asked: Mapping[str, _Asked], alone: Mapping[str, Doorbells], answers: dict[str, _Answer]) -> None:
    """Let each of two hosts make surer what the other one shows: both mostly have cards and drivers of the same kind.

    Who is surer how it was rung for teaches the other first, and is taught then. What is known already is not asked,
    nor what the other one could not make surer.
    """
    if all(answer.by_itself.all() for answer in answers.values()):
        return
    surer, other = sorted(asked, key=lambda name: -alone[name].sureness())
    usual = alone[surer].usual
    for name in (other, surer):
        if answers[name].taught or answers[surer].taught:
            again = _read(asked[name], usual)
            answers[name], usual = _answered_by(asked[name], alone[name], again), again.usual


def _as_the_other(asked: Mapping[str, _Asked], answers: Mapping[str, _Answer], columns: dict[str, Any]) -> None:
    """Make null when doorbells began that have more than the other host shows to be part of one.

    Where no register is known to be the doorbell, what a handler did just before it answered looks like a part of it.
    The driver of the host that asks rings alone. Where that is the one with more, they are no handler's: any may ring.
    Registers that a host uses which sends nothing have another use.
    """
    ends = {name: one.end for name, one in asked.items()}
    first, last = (columns[name] for name in TIMES)
    rows, before, shown = dict[str, Integers](), dict[str, Integers](), dict[str, Integers]()
    parts, asked_us = dict[str, _Parts](), dict[str, float]()
    for name, end in ends.items():
        rows[name] = np.flatnonzero((columns["sender"] == name) & ~np.isnan(first) & ~np.isnan(last))
        at, until = (np.searchsorted(end.host.traffic.csr.first_attempt_us, one[rows[name]]) for one in (first, last))
        before[name] = until - at
        # What is sure by the other host alone is no news to it.
        known = answers[name].by_itself[columns["send_row"][rows[name]]]
        shown[name] = before[name][known]
        parts[name] = _Parts.of(asked[name], at, until, known)
        # By its sends, for of some of these it is not known what rang.
        asked_us[name] = float(asked[name].sends.start_us.min(initial=np.inf))
    for name, other in ((one, two) for one in ends for two in ends if one != two):
        csr = ends[name].host.traffic.csr
        # Where no wire shows what it sends, its frames may have been left out.
        sends = (columns["sender"] == other).any() or (ends[other].wire is None and len(ends[other].sends) > 0)
        if not csr.doorbell.any():
            usual = (np.median(shown[other]) if len(shown[other]) else 0.0) if sends else np.inf
            more = rows[name][(before[name] > usual) | parts[name].other_than(parts[other], sends)]
            asks = asked_us[name] < asked_us[other]
            first[more] = np.nan
            # A register tells what a handler does; without any the other host must show how its driver rings.
            if asks and (len(shown[other]) or not (csr.address >= 0).any()):
                last[more] = np.nan


@dataclass(frozen=True)
class _Parts:
    """Which registers come before the last access of each doorbell.

    Attributes
    ----------
    bell, register : arrays of int
        A row for each such access: which doorbell, and which register (`accesskinds.on_any_host`).
    known : array of bool
        Of each doorbell, whether the other host tells nothing of it.
    used : array of int
        All registers that the host uses.
    """

    bell: Integers
    register: Integers
    known: Booleans
    used: Integers

    @classmethod
    def of(cls, asked: _Asked, at: Integers, until: Integers, known: Booleans) -> _Parts:
        """Collect them: the accesses from `at` to `until` of each doorbell."""
        csr = asked.end.host.traffic.csr
        if not (csr.address >= 0).any():
            return cls(NONE, NONE, known, NONE)
        register, size = on_any_host(csr, len(asked.sends)), until - at
        bell = np.repeat(np.arange(len(at)), size)
        access = np.arange(size.sum()) + np.repeat(at - (np.cumsum(size) - size), size)
        return cls(bell, register[access], known, np.unique(register[register >= 0]))

    def other_than(self, other: _Parts, sends: bool) -> Booleans:
        """Return in which doorbells a register is that the other host has not in its own, or uses without sending."""
        if sends:
            sure, bells = other.known[other.bell], len(other.known)
            of_bell = np.unique((other.register * bells + other.bell)[sure])
            register, count = np.unique(of_bell // bells, return_counts=True)
            strange = ~np.isin(self.register, register[count >= NEARLY_ALL * other.known.sum()])
        else:
            strange = np.isin(self.register, other.used)
        out = np.zeros(len(self.known), dtype=bool)
        out[self.bell[strange & (self.register >= 0)]] = True
        return out


@dataclass(frozen=True)
class _Asked:
    """What is asked of the accesses of one host: what starts these sends.

    `place` says where the sends that were found in memory are among all, `rules` and `done_us` what rules say of those.
    """

    end: Ends
    sends: Sends
    place: Integers
    received_us: Floats
    rules: Starts
    done_us: Floats

    @classmethod
    def of(cls, name: str, end: Ends, columns: Mapping[str, Any]) -> _Asked:
        """Collect it."""
        end = believed(end)
        received_us = np.sort(end.host.traffic.joined.last_data_us[end.receives])
        return cls(end, *with_unread(of_host(end), name, columns), received_us, *_by_rules(end, received_us))

    @cached_property
    def told_us(self) -> Floats:
        """When the card began to read the descriptor of each send; NaN where that was not seen."""
        return descriptor_us(self.end, self.sends)

    @cached_property
    def by_rules(self) -> Integers:
        """The first and the last access of each send by the rules, a row each; -1 for none."""
        found = np.full((2, len(self.sends)), -1)
        found[:, self.place] = self.rules.first, self.rules.last
        return found

    @cached_property
    def head(self) -> LookedAt:
        """The accesses that are read, and one more."""
        csr, bus = self.end.host.traffic.csr, self.end.host.traffic.dma.bus
        return csr.take(np.arange(min(len(csr), CHECKED + 1))).looked_at(bus)

    @cached_property
    def reach_us(self) -> float:
        """When the last access is that is read."""
        csr = self.end.host.traffic.csr
        return float(csr.first_attempt_us[CHECKED]) if len(csr) > CHECKED else np.inf

    @property
    def seen(self) -> int:
        """How many sends are before that."""
        return int(np.searchsorted(self.sends.start_us, self.reach_us))


@dataclass(frozen=True)
class _Answer:
    """What starts the sends that were found.

    Attributes
    ----------
    first, last : arrays of int
        The first and the last access; -1 where it is not sure.
    margins : array of float
        How sure they are, in nats.
    by_itself : array of bool
        Whether that is so without the other host.
    read : Doorbells
        The reading of the first accesses.
    taught : bool
        Whether the other host can make any of it surer.
    """

    first: Integers
    last: Integers
    margins: Floats
    by_itself: Booleans
    read: Doorbells
    taught: bool


def _give(name: str, asked: _Asked, answer: _Answer, columns: dict[str, Any]) -> Labels:
    csr, rules, last = asked.end.host.traffic.csr, asked.rules, answer.last
    rows = np.flatnonzero((columns["sender"] == name) & (columns["send_row"] >= 0))
    send = columns["send_row"][rows]
    # When a send was started does not hang on where exactly it begins and ends.
    unsure = np.isnan(columns["dma_start_us"][rows]) & np.isnan(columns["dma_end_us"][rows])
    unsure &= ~(columns["margin_place"][rows] >= SURE_SEND)
    unsure |= (columns["margin_send"][rows] < SURE_SEND) & (answer.margins[send] < AGREED)
    unsure |= _adrift(answer.read, asked, _first_is_unread(name, columns))
    start_us, end_us = (columns[name][rows] for name in ("dma_start_us", "dma_end_us"))
    # Where most have no sure edge, all sends may be elsewhere, or be more or fewer: what rang may be another's.
    told = np.count_nonzero(~np.isnan(start_us) | ~np.isnan(end_us)) >= MOSTLY * len(rows)
    unsure |= (answer.margins[send] < ALONE) & (not told)
    # Values that count the sends tell what rings, as does a register that is known to.
    if not csr.doorbell.any() and not answer.read.in_step:
        unsure |= np.isnan(start_us) & _rung_inside(asked, answer)[send]
        unsure |= _caused_otherwise(last, csr, asked) | _rung_before(answer.read, asked)[send]
        last = np.where(_of_parts(answer.read, asked), -1, last)
    first = np.where(_of_another(answer.first, last), -1, answer.first)
    for column, row in zip(TIMES, (first, last), strict=True):
        columns[column][rows] = np.where(unsure, np.nan, pick_us(csr.first_attempt_us, row)[send])
    # What starts a send is no update.
    begun = _may_wait(asked, answer.read)
    begun[: len(answer.read.send)] |= answer.read.send >= 0
    begun_us = csr.first_attempt_us[: len(begun)][begun]
    done_us = asked.done_us[send]
    columns["csr_done_us"][rows] = np.where(unsure | np.isin(done_us, begun_us), np.nan, done_us)
    columns["margin_csr"][rows] = answer.margins[send]
    frame_of_send = np.full(len(asked.place), -1, dtype=np.int32)
    given = ~unsure & (last[send] >= 0)
    frame_of_send[send[given]] = rows[given]
    frame = pick(frame_of_send, rules.send)
    frame[rules.undecided] = -1
    return Labels(packed_if_equal(frame), answer.read.sure)


def _rung_inside(asked: _Asked, answer: _Answer) -> Booleans:
    """Return within which sends there is an access of no known use that looks like a ring.

    If such a send began later, that may have rung for it. Two sends seemed to begin 4.5 us too early, before their
    doorbells (`cardbench`, cacheline 1219): that these beginnings were not sure said nothing of what rang for them.
    """
    joined, sends, head = asked.end.host.traffic.joined, asked.end.sends, asked.head
    looks = Kinds.of(head, len(sends)).number
    rings = answer.last[(answer.last >= 0) & (answer.last < len(head))]
    left = np.isin(looks, looks[rings])
    left[: len(answer.read.send)] &= answer.read.send < 0
    left_us = head.first_attempt_us[left]
    until, since = (np.searchsorted(left_us, one[sends]) for one in (joined.last_data_us, joined.first_data_us))
    return np.asarray(until > since)


def _by_rules(end: Ends, received_us: Floats) -> tuple[Starts, Floats]:
    """Return which accesses start the sends, and when each was followed by an update, by rules."""
    joined, bus = end.host.traffic.joined, end.host.traffic.dma.bus.in_time
    freed_us = freed(bus.start_us, bus.end_us)
    fetched_us = np.sort(joined.first_data_us[(joined.kind == Kind.DESCRIPTOR_FETCH) & (joined.data_phases > 0)])
    first_us, last_us = joined.first_data_us[end.sends], joined.last_data_us[end.sends]
    card = CardTimes(first_us, last_us, received_us, fetched_us, freed_us)
    starts = sendstart.find(end.host.traffic.csr, end.host.profile, card, joined.address[end.sends])
    return starts, updates(end.host.traffic.csr, starts, card)


def _read(asked: _Asked, usual: Usual) -> Doorbells:
    """Read the accesses of one host at the least cost, where doorbells are as usual; of many the first."""
    accesses, sends = np.arange(min(len(asked.head), CHECKED)), np.arange(asked.seen)
    first, last = (np.where(one[sends] < len(accesses), one[sends], -1) for one in asked.by_rules)
    received_us = asked.received_us[asked.received_us < asked.reach_us]
    known = Known(asked.head.take(accesses), asked.end.host.profile, received_us, usual)
    return find(known, [way.take(sends) for way in ways(asked.end, asked.sends, asked.told_us)], first, last)


def _answered_by(asked: _Asked, read: Doorbells, again: Doorbells) -> _Answer:
    """Return which access starts each send, by the rules and a reading.

    What is read `again` as the other host was makes surer what was read, and changes nothing; and only where rules and
    reading agree on some sends, not most. Where the rules knew none both hosts were wrong alike: of generated cards
    (`cardbench` 1181, 1192, 1198, 1204, 1211 and 1212, 16 channels, their own profiles) 22 of the 56 that became sure
    so were wrong, of eight hosts; of the 31 of nine hosts where they agreed none was. Where they know most, those that
    they do not know differ: on a bus of the simulator (7024) two were wrong.
    """
    csr, place, count, sends = asked.end.host.traffic.csr, asked.place, len(asked.sends), read.sends
    rules, seen, head = asked.by_rules, asked.seen, asked.head
    registers = bool((csr.address[:CHECKED] >= 0).any())
    rung = _rung_for(read, sends)
    learned = rung and (registers or _learned(read, head, sends))
    # What the end of the part cuts is judged as what lies beyond it.
    seen = seen if len(csr) <= CHECKED else max(seen - CUT, 0)
    once, shared = _answered(read, head, sends)
    _, too = _answered(again, head, again.sends)
    # Where all waited for the send before, registers do not tell what rang for them either.
    tells = registers and bool(_at_once(read, head, sends).any())
    clear = csr.doorbell.any() | _rings_last(read, head, sends)
    out, margins, by_itself, taught = [], np.full(count, np.nan), np.ones(count, dtype=bool), False
    for at, (rule, edge) in enumerate(zip(rules, ("first", "last"), strict=True)):
        mine, found, as_other = rule[:seen], getattr(read, edge)[:seen], getattr(again, edge)[:seen]
        margin, more = (np.minimum(*two)[:seen, at] for two in ((read.margins, shared), (again.margins, too)))
        other = (mine >= 0) & (mine != found) & (margin >= OPEN) & rung
        told = once & _apart(read, head) if at == 0 else once
        said = _Said(mine, found, other, told[:seen], tells, read.in_step and edge == "last")
        kept, taken = said.given(np.where(learned, margin, 0.0))
        by_itself[:seen] &= kept | taken
        if learned and TOLD * len(kept) <= kept.sum() and np.count_nonzero(mine >= 0) <= MOSTLY * len(kept):
            taught = True
            agreed = np.append(kept, np.zeros(len(read.last) - seen, dtype=bool))
            surer = (found == as_other) & _ordinary(read, head, agreed)[:seen] & (margin >= AGREED)
            margin = np.where(surer, np.fmax(margin, more), margin)
            taken = said.given(margin)[1]
        taken &= clear[:seen]
        # Some drivers always write something behind the ring; of others it is where something came between.
        kept &= clear[:seen] | (clear[:seen].sum() < MOSTLY * seen)
        if edge == "last":
            kept, taken = kept & ~reads_back(mine, head), taken & ~reads_back(found, head) & ~_with_more(read)[:seen]
        whole = np.where(kept, mine, np.where(taken, found, -1))
        # Beyond what was read the rules stand if they did before, for enough sends.
        stands = seen >= BELLS and np.count_nonzero((mine < 0) | kept) >= WHOLE * seen
        out.append(np.append(whole, rule[seen:] if stands else np.full(count - seen, -1)))
        margins[:seen] = np.fmin(margins[:seen], np.where((kept & (mine == found)) | taken, margin, 0.0))
    if not csr.doorbell.any():
        kind = Kinds.of(head, count).number
        odd = _of_a_rare_kind(out[1], kind) if registers else slow(out[1], head)
        odd |= registers & (not read.in_step) & _of_a_rare_value(out[1], commands(kind, head.value, 0.0))
        odd[:seen] |= learned & kept & said.weak(margin) & (not _queued(rules[1][: len(read.last)], head, sends))
        out, margins[odd] = [np.where(odd, -1, one) for one in out], 0.0
    margins[:seen][(out[0][:seen] < 0) & (out[1][:seen] < 0) & (read.last[:seen] < 0)] = np.nan
    return _Answer(out[0][place], out[1][place], margins[place], by_itself[place], read, taught)


def _of_a_rare_kind(rings: Integers, kind: Integers) -> Booleans:
    """Return for which sends what rings is of a kind that few of the rings are, where registers tell kinds.

    A driver rings by one register. Of a host (`realcards`, r8169 29) that had rung for 15 frames in 44 us, so that they
    waited for the wire, the acknowledgements of interrupts just before three of them were taken for rings.
    """
    known = (rings >= 0) & (rings < len(kind))
    count = np.bincount(kind[rings[known]], minlength=1)
    rare = np.zeros(len(rings), dtype=bool)
    rare[known] = count[kind[rings[known]]] < MOSTLY * known.sum()
    return rare


def _of_a_rare_value(rings: Integers, command: Integers) -> Booleans:
    """Return for which sends something else is written where nearly all rings write one value to one register.

    A 1 in a register of a host (`realcards`, dp83820 66) lets its sends go on, a 4 what it receives. It had rung 19
    times for 19 sends, and once with a 4, which was taken for the ring of the last one.
    """
    known = (rings >= 0) & (rings < len(command))
    _, at, count = np.unique(command[rings[known]], return_inverse=True, return_counts=True)
    rare = np.zeros(len(rings), dtype=bool)
    rare[known] = (count[at] < count.max(initial=0)) & (count.max(initial=0) >= NEARLY_ALL * known.sum())
    return rare


def _of_another(first: Integers, last: Integers) -> Booleans:
    """Return for which sends the first access of their doorbell may be that of another one, before them.

    A doorbell of several sends, with an access or more before its last for each: the driver writes a descriptor each
    into the card, then rings once (`cardbench`, mixed 1236: 14 of 18 seemed to begin with another one's).
    """
    _, at, count = np.unique(last, return_inverse=True, return_counts=True)
    count = count[at]
    leads = np.append(True, (last[:-1] >= 0) & (last[:-1] != last[1:]))
    each = (last >= 0) & (last - first >= count)
    return np.asarray(each & ~leads & (count[last >= 0].max(initial=0) > 1))


def _caused_otherwise(last: Integers, csr: Accesses, asked: _Asked) -> bool:
    """Return whether the sends come more regularly after what the card did before than after their doorbells.

    What a doorbell starts is as regular after it as the card is; after the send before, or a frame that left, it is
    less so by the driver's own time. A card whose queue is full starts when there is room, and its interrupt handler
    runs between: then it is the accesses that are less regular. On such a card the handler's were taken for doorbells.
    """
    end = asked.end
    sent_us, ready_us = (one[asked.place] for one in (asked.sends.end_us, asked.sends.ready_us))
    rows = np.flatnonzero(last >= 0)
    rows = rows[(rows > 0) & (np.append(-1, last[:-1])[rows] != last[rows])]
    rung_us, free_us = csr.first_attempt_us[last[rows]], sent_us[rows - 1]
    rows, rung_us = rows[rung_us >= free_us], rung_us[rung_us >= free_us]
    if len(rows) < BELLS:
        return False
    before = [sent_us[rows - 1]]
    if end.wire is not None and len(end.wire):
        left_us = np.sort(end.wire.end_us)
        before.append(left_us[np.maximum(np.searchsorted(left_us, ready_us[rows], side="right") - 1, 0)])
    irregular_us = [spread_us(ready_us[rows] - one) for one in (rung_us, *before)]
    return irregular_us[0] > min(irregular_us[1:]) + A_CLOCK_US


def _rung_before(read: Doorbells, asked: _Asked) -> Booleans:
    """Return which sends come more regularly after the first access of their doorbells than after the last.

    Asked is where neither registers nor rules tell. Then what rings is not the last one: something else came between.
    Of a generated card that was polled while it fetched descriptors (`cardbench`, other-master 1232) four sends seemed
    to be rung for by the poll.
    """
    csr, seen = asked.end.host.traffic.csr, slice(len(read.last))
    by_reading_alone = asked.sends.found[seen] & (asked.by_rules[1][seen] != read.last)
    rows = np.flatnonzero((read.last > read.first) & by_reading_alone)
    sooner = np.zeros(len(asked.sends), dtype=bool)
    if len(rows) >= BELLS and not (csr.address >= 0).any():
        ready_us = asked.sends.ready_us[rows]
        first, last = (spread_us(ready_us - csr.first_attempt_us[one[rows]]) for one in (read.first, read.last))
        sooner[rows] = first + A_CLOCK_US < last
    return sooner[asked.place]


def _first_is_unread(name: str, columns: Mapping[str, Any]) -> bool:
    """Return whether the first frame on a host's wire was read before the capture began, or not found in memory."""
    rows = np.flatnonzero((columns["sender"] == name) & ~np.isnan(columns["wire_start_us"]))
    return bool(len(rows)) and bool(columns["send_row"][rows[np.argmin(columns["wire_start_us"][rows])]] < 0)


def _adrift(read: Doorbells, asked: _Asked, unread: bool) -> bool:
    """Return whether all sends may have been rung for later: doorbells wait, also before the capture, none is answered.

    A capture that begins while a card sends what it had read does not show how many more had been rung for. That each
    send has the first doorbell that can be its own is a guess: of 16 sends of a card of another maker (wide66) that
    had six in its queue each was given one that rang for a later one, by two or three. Of another (cacheline) the first
    frame on the wire was `unread`: the card had it when the capture began, 1 us before the first ring.

    Sends behind the last that any doorbell rings for say the same: something rang for them, too. Of a host (a card of
    another maker, overload) that rang 13 times for four frames each, and sent them at 100 Mbit/s, the last ring was
    said to be for eight frames, the one before for five, and the last seven frames had none.
    """
    sends, wire, rung = read.sends, asked.end.wire, np.flatnonzero(read.last >= 0)
    if not len(rung) or not _queued(read.last, asked.head, sends):
        return False
    begun_us = sends.start_us[sends.found].min(initial=np.inf)
    under_way = unread or rung[0] > 0 or (wire is not None and not bool((wire.start_us >= begun_us).all()))
    return (under_way or rung[-1] + 1 < len(sends)) and not _at_once(read, asked.head, sends)[rung[0] + 1 :].any()


def _of_parts(read: Doorbells, asked: _Asked) -> Booleans:
    """Return which sends may be rung for by a part of their doorbell, where no line shows registers.

    A doorbell of several sends that has as many accesses for each may be as many doorbells, one behind the other: then
    only the last send is rung for by the last access. A driver wrote two descriptors, each with a ring, within a
    microsecond (a card of another maker, csr-descriptors): six accesses seemed to ring once for both.
    """
    parts = np.zeros(len(asked.sends), dtype=bool)
    if not (asked.end.host.traffic.csr.address >= 0).any():
        rung = read.last >= 0
        many = np.bincount(read.last[rung], minlength=1)[read.last]
        behind = np.append(read.last[1:] == read.last[:-1], np.zeros(min(len(read.last), 1), dtype=bool))
        parts[: len(rung)] = rung & behind & ((read.last - read.first + 1) % np.maximum(many, 1) == 0)
    return parts[asked.place]


def _may_wait(asked: _Asked, read: Doorbells) -> Booleans:
    """Return which of the accesses that are read, and one more, may be doorbells of sends that the capture has no more.

    They are behind the last doorbell, and like those before. That is where doorbells wait for their sends. Of a stream
    of which the capture has the beginning (`sk9843-10us`, control lines) two of those that waited at the end were taken
    for updates of the last sends.
    """
    csr, head, rings = asked.end.host.traffic.csr, asked.head, read.last[read.last >= 0]
    may = np.zeros(len(head), dtype=bool)
    if csr.doorbell.any() or not len(rings) or waiting(read.last, head.first_attempt_us, read.sends) < MOSTLY:
        return may
    looks = Kinds.of(head, len(asked.end.sends)).number
    like, behind = np.isin(looks, looks[rings]), np.arange(len(head)) > rings.max()
    # Where updates look like doorbells before that, looks do not tell.
    if not (like & ~behind & np.isin(head.first_attempt_us, asked.done_us)).any():
        may = like & behind
    return may


def _queued(last: Integers, csr: Accesses, sends: Sends) -> bool:
    """Return whether doorbells wait for their sends most of the time."""
    return bool((last >= 0).any()) and waiting(last, csr.first_attempt_us, sends) >= MOSTLY


def _rung_for(read: Doorbells, sends: Sends) -> bool:
    """Return whether something rings for most sends of a reading; else it knows no doorbell.

    One of a generated card (`cardbench`, wide66 1229, data captured, `generic`) had something for 3 of 12 sends, and
    was believed against the rules, which were right.
    """
    rung = read.last[sends.found] >= 0
    return bool(rung.mean() >= MOSTLY) if len(rung) else True


def _learned(read: Doorbells, csr: Accesses, sends: Sends) -> bool:
    """Return whether there are enough doorbells, or enough that a send answered which did not wait for another one."""
    rings = np.count_nonzero(heads(read.last))
    at_once = np.count_nonzero(_at_once(read, csr, sends))
    return bool(rings >= BELLS or at_once >= max(AT_ONCE, rings / 2))


def _at_once(read: Doorbells, csr: Accesses, sends: Sends) -> Booleans:
    """Return which sends are the first of their doorbell and did not wait for the send before.

    One that came as soon after it as those that waited may have waited, too: doorbells ring whenever the driver likes.
    """
    free_us = np.append(-np.inf, sends.end_us)[: len(read.last)]
    once = heads(read.last) & (pick_us(csr.first_attempt_us, read.last) >= free_us)
    gap_us = sends.ready_us[: len(read.last)] - free_us
    return np.asarray(once & (gap_us > gap_us[(read.last >= 0) & ~once].max(initial=0.0)))


def _answered(read: Doorbells, csr: Accesses, sends: Sends) -> tuple[Booleans, Floats]:
    """Return which sends answered at once where most did, and the least margins of all sends of one doorbell.

    The others follow the first: of none is it surer which doorbell that was.
    """
    once = _at_once(read, csr, sends)
    bell, least = read.last + 1, np.full((len(csr) + 1, 2), np.inf)
    known = read.last >= 0
    np.minimum.at(least, bell[known], read.margins[known])
    return once & (once.sum() >= MOSTLY * len(once)), least[bell]


def _with_more(read: Doorbells) -> Booleans:
    """Return of which sends the doorbell has several accesses although others ring by one: any of them may ring.

    Of an RTL8169 (`realcards` 37, 16 channels) whose handler ran just behind some rings, to read and to acknowledge an
    interrupt, the acknowledgement was the last access of four of 13.
    """
    several, rung = read.last > read.first, read.last >= 0
    return several & (np.count_nonzero(rung & ~several) >= AT_ONCE)


def _apart(read: Doorbells, csr: Accesses) -> Booleans:
    """Return of which sends the doorbell is one access, or nothing comes just before its first one.

    Else that may be the first, and what was taken for it something between two accesses of the doorbell.
    """
    before_us = np.append(-np.inf, csr.end_us[:-1])[: len(csr)]
    pause_us = pick_us(csr.first_attempt_us - before_us, read.first)
    return np.asarray((read.first == read.last) | (pause_us > CHAIN_US))


def _rings_last(read: Doorbells, csr: LookedAt, sends: Sends) -> Booleans:
    """Return of which sends nothing that may ring follows the ring at once before they begin.

    Else any of what follows may ring: a card starts as regularly after each of some accesses that come one after the
    other. Of a driver that writes three words a send the first was taken for the ring, the others for something else;
    of one that stalls a queue (3Com 3C905), adds to it and lets it go on, the stall. Where registers are seen, reads
    ring for nothing, nor does what is of another doorbell, or comes there only now and then.
    """
    named, rung, time_us = (csr.address >= 0).any(), read.last >= 0, np.append(csr.first_attempt_us, np.inf)
    of_none = np.append(read.send < 0, np.ones(len(csr) - len(read.send), dtype=bool))
    may = (np.isin(csr.command, WRITES) & of_none) | ~named
    group = np.append(np.cumsum(np.append(np.inf, time_us[1:-1] - csr.end_us[:-1])[: len(csr)] > CHAIN_US), -1)
    rows = np.flatnonzero(may)
    follows = np.append(rows, len(csr))[np.searchsorted(rows, read.last, side="right")]
    at_once = rung & (group[follows] == group[read.last])
    at_once &= time_us[follows] < sends.start_us[: len(read.last)]
    if named and at_once.any():
        kind = np.append(Kinds.of(csr, len(sends)).number, -1)[follows]
        at_once &= np.bincount(kind[at_once], minlength=kind.max() + 1)[kind] >= MOSTLY * rung.sum()
    return np.asarray(~at_once)


def _ordinary(read: Doorbells, csr: Accesses, agreed: Booleans) -> Booleans:
    """Return of which sends the doorbell is like those on which rules and reading agree.

    It has no more accesses than most. Else something came between, or behind, and any but the first may ring: of six
    such on a card of another maker (card_scatter-gather) five rang with the last but one, one with the last. And the
    send comes about as long after it. One of a generated card (`cardbench`, other-master 1213) was read as rung for by
    the doorbell before, 27 us earlier, where the others began after 1 to 3: its descriptor was fetched before that.
    Nor did it begin with the fetch of a descriptor so much earlier than those: what was fetched then was another's. One
    of `cardbench`, tiny 1245, that came 3.9 us after a fetch, the others 0.5, was read as rung for before that fetch.
    """
    size, known = read.last - read.first, read.last >= 0
    usual = np.bincount(size[known]).argmax() if known.any() else 0
    after_us = read.sends.start_us - pick_us(csr.first_attempt_us, read.last)
    least_us, most_us = after_us[agreed].min(initial=np.inf), after_us[agreed].max(initial=-np.inf)
    soon = (after_us >= least_us / TIMES_AS) & (after_us <= most_us * TIMES_AS)
    lead_us = np.nan_to_num(read.sends.lead_us)
    return np.asarray((size <= usual) & soon & (lead_us <= lead_us[agreed].max(initial=0.0) * TIMES_AS))


@dataclass(frozen=True)
class _Said:
    """What rules and a reading say of the first access of each doorbell, or of the last.

    Attributes
    ----------
    rule, found : arrays of int
        The access by the rules, and by the reading; -1 for none.
    other : array of bool
        Whether the reading contradicts the rules.
    once : array of bool
        Whether the send answered its doorbell at once.
    tells : bool
        Whether registers tell what rings.
    counted : bool
        Whether the values of the doorbells tell how many sends each is for.
    """

    rule: Integers
    found: Integers
    other: Booleans
    once: Booleans
    tells: bool
    counted: bool = False

    def given(self, margin: Floats) -> tuple[Booleans, Booleans]:
        """Return for which sends the rules' answer is given, and for which the reading's.

        Where the rules do not know nearly all sends, that both agree is not enough: a margin has to be there, too. On a
        card that was rung for several frames at once the rules gave each of the last sends a doorbell of its own, and
        the reading some of the same.
        """
        known, there = self.rule >= 0, self.found >= 0
        same = known & (self.rule == self.found) & ~self.other
        share = known.mean() if len(known) else 0.0
        coherent = share >= WHOLE
        # Where they know most, the others differ: something else came just as a doorbell does.
        least = np.where(self.counted | (self.once & (share <= MOSTLY)), ANSWERED, ALONE)
        # Where they mostly differ they agree by chance: one counts from the first send, the other from the last.
        alike = np.count_nonzero(same) >= MOSTLY * np.count_nonzero(known & there)
        kept = (same & (margin >= AGREED) & alike) | (known & ~self.other & coherent)
        taken = ~kept & there & (margin >= np.where(known & (not self.tells), AGAINST, least))
        # A reading that hardly knows anything has not learned this driver.
        taken &= taken.sum() >= TOLD * np.count_nonzero(~kept)
        enough = coherent or self.tells or np.count_nonzero(kept | taken) >= TOLD * len(known)
        return kept & enough, taken & enough

    def weak(self, margin: Floats) -> Booleans:
        """Return of which sends the reading does not say, surely enough, what the rules say, where registers tell.

        Then it knows what rings as well as the rules do. Of 156 runs of cards that exist (`realcards` 46 to 58) and 57
        of `cardbench` (82 to 84), `generic`, AD captured, the rules knew what rang for nearly all sends of 151 hosts.
        Where the reading had another access, on six hosts, 59 of 172 times were wrong, on three of them: a 3C905's
        queue is let go on by what is written behind its list. Where it had the same, but at less than 4 nats, 16 of 211
        were, all of one RTL8139 that received a frame before each that it sent; above that none of 5,640. Where
        doorbells wait for their sends by the rules, they tell more: the reading takes what comes just before each.
        """
        return np.asarray((self.rule >= 0) & self.tells & ((self.rule != self.found) | (margin < AGREED)))
