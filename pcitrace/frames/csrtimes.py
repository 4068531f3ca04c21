"""The accesses of each frame: which start its send, which follows it, and whether that is sure.

Two things answer. Rules (`sendstart`) find the accesses of each send. Then all accesses are read at the least cost
(`doorbells`), from the rules' answer, from nothing and from what may be mistaken for it. What both say is given; where
they differ, or only one has an answer, its margin decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers, pick, pick_us
from pcitrace.frames import sendstart
from pcitrace.frames.doorbells import CHAIN_US, WHOLE, Doorbells, Sends, find
from pcitrace.frames.margins import SURE as SURE_SEND
from pcitrace.frames.margins import TOLD
from pcitrace.frames.sendupdate import updates
from pcitrace.frames.starts import CardTimes, Starts
from pcitrace.frames.turns import freed
from pcitrace.freed import give_back
from pcitrace.sidebyside import each
from pcitrace.traffic.csr import Accesses
from pcitrace.traffic.dma import Kind

if TYPE_CHECKING:
    from pcitrace.frames.ends import Ends

__all__ = ["Labels", "add"]

AGREED, ANSWERED, ALONE, AGAINST = 4.0, 8.0, 12.0, 20.0
"""Nats from which on an answer is given: where rules and reading agree; where the rules have none for this and most
others, for a send that answered its doorbell at once, on a host where most did; else where they have none; and where
they have another, if no line shows registers or all sends waited.

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
"""Where the rules know the accesses of nearly all sends (`doorbells.WHOLE`), a reading of smaller margin does not
contradict which access rings, nor when its doorbell begins."""

CHECKED = 2000
"""Accesses that are read: in a longer capture the first of them say whether the rules hold."""

CUT = 16
"""Sends before the end of that part whose accesses it may cut."""

BELLS, AT_ONCE = 5, 2
"""Doorbells from which on it is learned what one looks like, where no line shows registers; or fewer of which half, and
at least so many, were answered at once. On `cardbench` seeds 901 and 902 a host with one such doorbell of three and one
with one of four had wrong ones; their other sends waited."""

A_CLOCK_US = 0.03
"""A clock of 33 MHz: what differs by less is as regular."""

TIMES = ("csr_first_us", "csr_last_us")


@dataclass(frozen=True)
class Labels:
    """What the accesses of one host are.

    Attributes
    ----------
    frame : array of int
        The first frame that each starts; -1 for none, or if that is not sure.
    margin : array of float
        How sure that is, in nats; NaN where nothing was decided.
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
    # Each host writes to the rows of its own frames.
    labels = dict(zip(ends, each(lambda one: _of_host(*one, columns), ends.items()), strict=True))
    _as_the_other(ends, columns)
    # What does not ring for sure has no beginning.
    columns[TIMES[0]][np.isnan(columns[TIMES[1]])] = np.nan
    return labels


def _as_the_other(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Make null when doorbells began that have more accesses than those of the other host, if that sends too.

    Where no register is known to be the doorbell, what a handler did just before it answered looks like a part of it.
    The driver of the host that asks rings alone. Where that is the one with more, they are no handler's: any may ring.
    """
    first, last = (columns[name] for name in TIMES)
    rows, before, asked_us = dict[str, Integers](), dict[str, Integers](), dict[str, float]()
    for name, end in ends.items():
        rows[name] = np.flatnonzero((columns["sender"] == name) & ~np.isnan(first) & ~np.isnan(last))
        at, until = (np.searchsorted(end.host.traffic.csr.first_attempt_us, one[rows[name]]) for one in (first, last))
        before[name] = until - at
        asked_us[name] = np.nanmin(np.where(columns["sender"] == name, last, np.nan), initial=np.inf)
    for name, other in ((one, two) for one in ends for two in ends if one != two):
        csr = ends[name].host.traffic.csr
        # Where no wire shows what it sends, its frames may have been left out.
        sends = (columns["sender"] == other).any() or (ends[other].wire is None and len(ends[other].sends) > 0)
        if sends and not csr.doorbell.any():
            usual = np.median(before[other]) if len(before[other]) else 0.0
            more = rows[name][before[name] > usual]
            asks = asked_us[name] < asked_us[other]
            first[more] = np.nan
            # A register tells what a handler does; without any the other host must show how its driver rings.
            if asks and (len(before[other]) or not (csr.address >= 0).any()):
                last[more] = np.nan


def _of_host(name: str, end: Ends, columns: dict[str, Any]) -> Labels:
    csr, joined, sends = end.host.traffic.csr, end.host.traffic.joined, _sends(end)
    received_us = np.sort(joined.last_data_us[end.receives])
    rules, done_us = _by_rules(end, received_us)
    give_back()
    first, last, margins, read = _weighed(end, rules, sends, received_us)
    rows = np.flatnonzero((columns["sender"] == name) & (columns["send_row"] >= 0))
    send = columns["send_row"][rows]
    # When a send was started does not hang on where exactly it begins and ends.
    unsure = np.isnan(columns["dma_start_us"][rows]) & np.isnan(columns["dma_end_us"][rows])
    unsure &= ~(columns["margin_place"][rows] >= SURE_SEND)
    unsure |= (columns["margin_send"][rows] < SURE_SEND) & (margins[send] < AGREED)
    if not csr.doorbell.any() and _caused_otherwise(last, csr, sends, end):
        unsure[:] = True
    for column, row in zip(TIMES, (first, last), strict=True):
        columns[column][rows] = np.where(unsure, np.nan, pick_us(csr.first_attempt_us, row)[send])
    # What starts a send is no update.
    begun_us = csr.first_attempt_us[read.send >= 0]
    columns["csr_done_us"][rows] = np.where(unsure | np.isin(done_us[send], begun_us), np.nan, done_us[send])
    columns["margin_csr"][rows] = margins[send]
    frame_of_send = np.full(len(sends), -1, dtype=np.int32)
    given = ~unsure & (last[send] >= 0)
    frame_of_send[send[given]] = rows[given]
    frame = pick(frame_of_send, rules.send)
    frame[rules.undecided] = -1
    return Labels(frame, read.sure)


def _by_rules(end: Ends, received_us: Floats) -> tuple[Starts, Floats]:
    """Return which accesses start the sends, and when each was followed by an update, by rules."""
    joined, bus = end.host.traffic.joined, end.host.traffic.dma.bus.in_time
    freed_us = freed(bus.start_us, bus.end_us)
    fetched_us = np.sort(joined.first_data_us[(joined.kind == Kind.DESCRIPTOR_FETCH) & (joined.data_phases > 0)])
    first_us, last_us = joined.first_data_us[end.sends], joined.last_data_us[end.sends]
    card = CardTimes(first_us, last_us, received_us, fetched_us, freed_us)
    starts = sendstart.find(end.host.traffic.csr, end.host.profile, card, joined.address[end.sends])
    return starts, updates(end.host.traffic.csr, starts, card)


def _weighed(
    end: Ends, rules: Starts, sends: Sends, received_us: Floats
) -> tuple[Integers, Integers, Floats, Doorbells]:
    """Return the first and last access of each send, how sure they are, and the reading of all accesses."""
    csr, count = end.host.traffic.csr, len(sends)
    reach_us = csr.first_attempt_us[CHECKED] if len(csr) > CHECKED else np.inf
    seen = int(np.searchsorted(sends.start_us, reach_us))
    head = csr.take(np.arange(min(len(csr), CHECKED + 1))).looked_at(end.host.traffic.dma.bus)
    accesses = np.arange(min(len(csr), CHECKED))
    ways = [sends, *_fetched(end, sends)]
    read = find(
        head.take(accesses),
        end.host.profile,
        [way.until(seen) for way in ways],
        received_us[received_us < reach_us],
        *(np.where(one[:seen] < len(accesses), one[:seen], -1) for one in (rules.first, rules.last)),
    )
    sends = read.sends
    registers = bool((csr.address[accesses] >= 0).any())
    learned = registers or _learned(read, head, sends)
    # What the end of the part cuts is judged as what lies beyond it.
    seen = seen if len(csr) <= CHECKED else max(seen - CUT, 0)
    once, shared = _answered(read, head, sends)
    # Where all waited for the send before, registers do not tell what rang for them either.
    tells = registers and bool(_at_once(read, head, sends).any())
    clear = registers | _rings_last(read, head, sends)
    out, margins = [], np.full(count, np.nan)
    for at, (rule, found) in enumerate(((rules.first, read.first[:seen]), (rules.last, read.last[:seen]))):
        mine, margin = rule[:seen], np.minimum(read.margins[:, at], shared[:, at])[:seen]
        other = (mine >= 0) & (mine != found) & (margin >= OPEN)
        told = once & _apart(read, head) if at == 0 else once
        kept, taken = _decided(mine, found, other, np.where(learned, margin, 0.0), tells, told[:seen])
        taken &= clear[:seen]
        # Some drivers always write something behind the ring; of others it is where something came between.
        kept &= clear[:seen] | (clear[:seen].sum() < MOSTLY * seen)
        whole = np.where(kept, mine, np.where(taken, found, -1))
        # Beyond what was read the rules stand if they did before.
        stands = np.count_nonzero((mine < 0) | kept) >= WHOLE * seen
        out.append(np.append(whole, rule[seen:] if stands else np.full(count - seen, -1)))
        margins[:seen] = np.fmin(margins[:seen], np.where((kept & (mine == found)) | taken, margin, 0.0))
    margins[:seen][(out[0][:seen] < 0) & (out[1][:seen] < 0) & (read.last[:seen] < 0)] = np.nan
    return out[0], out[1], margins, _spread(read, len(csr))


def _caused_otherwise(last: Integers, csr: Accesses, sends: Sends, end: Ends) -> bool:
    """Return whether the sends come more regularly after what the card did before than after their doorbells.

    What a doorbell starts is as regular after it as the card is; after the send before, or a frame that left, it is
    less so by the driver's own time. A card whose queue is full starts when there is room, and its interrupt handler
    runs between: then it is the accesses that are less regular. On such a card the handler's were taken for doorbells.
    """
    rows = np.flatnonzero(last >= 0)
    rows = rows[(rows > 0) & (np.append(-1, last[:-1])[rows] != last[rows])]
    rung_us, free_us = csr.first_attempt_us[last[rows]], sends.end_us[rows - 1]
    rows, rung_us = rows[rung_us >= free_us], rung_us[rung_us >= free_us]
    if len(rows) < BELLS:
        return False
    before = [sends.end_us[rows - 1]]
    if end.wire is not None and len(end.wire):
        left_us = np.sort(end.wire.end_us)
        before.append(left_us[np.maximum(np.searchsorted(left_us, sends.ready_us[rows], side="right") - 1, 0)])
    spread_us = [float(np.subtract(*np.percentile(sends.ready_us[rows] - one, (75, 25)))) for one in (rung_us, *before)]
    return spread_us[0] > min(spread_us[1:]) + A_CLOCK_US


def _learned(read: Doorbells, csr: Accesses, sends: Sends) -> bool:
    """Return whether there are enough doorbells, or enough that a send answered which did not wait for another one."""
    heads = np.count_nonzero((read.last >= 0) & (np.append(-1, read.last[:-1]) != read.last))
    at_once = np.count_nonzero(_at_once(read, csr, sends))
    return bool(heads >= BELLS or at_once >= max(AT_ONCE, heads / 2))


def _at_once(read: Doorbells, csr: Accesses, sends: Sends) -> Booleans:
    """Return which sends are the first of their doorbell and did not wait for the send before.

    One that came as soon after it as those that waited may have waited, too: doorbells ring whenever the driver likes.
    """
    heads = (read.last >= 0) & (np.append(-1, read.last[:-1]) != read.last)
    free_us = np.append(-np.inf, sends.end_us)[: len(heads)]
    once = heads & (pick_us(csr.first_attempt_us, read.last) >= free_us)
    gap_us = sends.ready_us[: len(heads)] - free_us
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


def _apart(read: Doorbells, csr: Accesses) -> Booleans:
    """Return of which sends the doorbell is one access, or nothing comes just before its first one.

    Else that may be the first, and what was taken for it something between two accesses of the doorbell.
    """
    before_us = np.append(-np.inf, csr.end_us[:-1])[: len(csr)]
    pause_us = pick_us(csr.first_attempt_us - before_us, read.first)
    return np.asarray((read.first == read.last) | (pause_us > CHAIN_US))


def _rings_last(read: Doorbells, csr: Accesses, sends: Sends) -> Booleans:
    """Return of which sends nothing follows the ring at once before they begin.

    Else any of what follows may ring: a card starts as regularly after each of some accesses that come one after the
    other. Of a driver that writes three words a send the first was taken for the ring, the others for something else.
    """
    next_us = np.append(csr.first_attempt_us, np.inf)[read.last + 1]
    pause_us = next_us - pick_us(csr.end_us, read.last)
    return ~((pause_us <= CHAIN_US) & (next_us < sends.start_us[: len(read.last)]))


def _decided(
    rule: Integers, found: Integers, other: Booleans, margin: Floats, tells: bool, once: Booleans
) -> tuple[Booleans, Booleans]:
    """Return for which sends the rules' answer is given, and for which the reading's.

    Where the rules do not know nearly all sends, that both agree is not enough: a margin has to be there, too. On a
    card that was rung for several frames at once the rules gave each of the last sends a doorbell of its own, and the
    reading some of the same.
    """
    known, there = rule >= 0, found >= 0
    same = known & (rule == found) & ~other
    share = known.mean() if len(known) else 0.0
    coherent = share >= WHOLE
    # Where they know most, the others differ: something else came just as a doorbell does.
    least = np.where(once & (share <= MOSTLY), ANSWERED, ALONE)
    kept = (same & (margin >= AGREED)) | (known & ~other & coherent)
    taken = ~kept & there & (margin >= np.where(known & (not tells), AGAINST, least))
    # A reading that hardly knows anything has not learned this driver.
    taken &= taken.sum() >= TOLD * np.count_nonzero(~kept)
    enough = coherent or tells or np.count_nonzero(kept | taken) >= TOLD * len(known)
    return kept & enough, taken & enough


def _spread(read: Doorbells, count: int) -> Doorbells:
    """Return a reading of the first accesses as one of all: of the others nothing was decided."""
    send = np.full(count, -1, np.int32)
    sure: Any = np.full(count, np.nan, np.float32)
    send[: len(read.send)], sure[: len(read.sure)] = read.send, read.sure
    return Doorbells(read.first, read.last, read.margins, send, sure, read.sends)


def _sends(end: Ends) -> Sends:
    """Return what a host sends, as the search for its accesses needs it."""
    joined = end.host.traffic.joined
    start_us = np.minimum(joined.start_us[end.sends], joined.first_data_us[end.sends])
    start_us = np.minimum.accumulate(start_us[::-1])[::-1]
    ended_us = np.maximum.accumulate(joined.last_data_us[end.sends])
    lead_us = np.full(len(start_us), np.nan)
    return Sends(start_us, _ready(end, start_us), ended_us, joined.address[end.sends], lead_us)


def _ready(end: Ends, start_us: Floats) -> Floats:
    """Return when what began at some times could have, had the card not used the bus."""
    bus = end.host.traffic.dma.bus.in_time
    if not len(bus) or not len(start_us):
        return start_us
    at = np.minimum(np.searchsorted(bus.start_us, start_us), len(bus) - 1)
    return np.minimum(bus.take(at).busy_since_us, start_us)


def _fetched(end: Ends, sends: Sends) -> Iterator[Sends]:
    """Give the sends as they begin with the last fetch of a descriptor after the send before, if there are any."""
    joined = end.host.traffic.joined
    fetched_us = np.sort(joined.start_us[joined.kind == Kind.DESCRIPTOR_FETCH])
    before_us = pick_us(fetched_us, np.searchsorted(fetched_us, sends.start_us) - 1)
    begins = before_us > np.append(-np.inf, sends.end_us[:-1])
    if begins.any():
        start_us = np.where(begins, before_us, sends.start_us)
        ready_us = np.where(begins, _ready(end, start_us), sends.ready_us)
        lead_us = np.where(begins, sends.start_us - before_us, np.nan)
        yield replace(sends, start_us=start_us, ready_us=ready_us, lead_us=lead_us)
