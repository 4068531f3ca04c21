"""From what a reading of the accesses begins, and in what it ends: the cheapest of several, and how sure that is.

A reading learns from the one before. So it ends near where it began, and a mistake may make itself likely. Therefore
readings begin from what rules say, from nothing, and from what is easily mistaken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from pcitrace.columns import Floats, Integers
from pcitrace.frames.accesskinds import SOME, as_often
from pcitrace.frames.doorbellcosts import IDLE_BELL, LONGEST, MOST, Reader
from pcitrace.releases import Released
from pcitrace.traffic.asked import READ_AGAIN

__all__ = ["AGREED", "ANSWERED", "NEARLY_ALL", "RULED_OUT", "WHOLE", "against", "settle"]

ROUNDS, SETTLED = 6, 3
"""Readings; each learns from the one before. In so many a first guess holds."""

NEARLY_ALL, WHOLE = 0.9, 0.97
"""Share of the sends that a register starts if it is the doorbell; and that the rules know if they know this driver.

That is all but one that the capture cuts. Of a generated host (`cardbench`, groups 1120) they knew 10 of 12, all wrong;
of a card of another maker (card_scatter-gather) 18 of 19, of which two were wrong."""

TRIED, NEAREST = 4, 3
"""Registers that are tried as doorbells; and how many accesses the doorbell may have that is nearest to its send."""

ALIKE = 8.0
"""Segments that differ in the same way count as so many: they are not independent evidence."""

FIRST, FEW = 48, 3
"""Sends that are read from all starts first, and how many times as many then, while there are as many times the
accesses in all.

Judgements, for speed: so read, 36 simulated streams lost none of the CSR times that all starts give. Captures of other
makers are too short to tell."""

RULED_OUT = 20.0
"""Nats for each segment that differs from which on a reading is out: no answer asks for a larger margin."""

AGREED, ANSWERED = 4.0, 8.0
"""Nats from which on an answer is given if the rules say the same; and where they have none, at the least. `csrtimes`
says of what these were learned. Of answers that the rules share none was wrong: what replaces one that is no surer than
others must be counts only if it is cheaper. Held against them it made four right ones of the ten cards of another maker
null."""

TURNS = 3
"""How often what is given is doubted, at most: it bounds time, and was learned from no capture. A judgement."""

ANY_KIND = -1
"""Doorbells may be of any kind."""

Start = tuple[object, ...]
"""From what a reading begins: the kind of doorbells, and what names the first guess."""


def settle(reader: Reader, first: Integers, last: Integers) -> Released:
    """Return the cheapest of the readings in which several starts end.

    Of many sends the first are read from all starts, then more of them and in the end all; where a start leads nowhere,
    no more is read from it. Of few each ring that is given, but not by far, is doubted by itself, where no line shows
    registers: these tell.

    Parameters
    ----------
    reader : Reader
    first, last : arrays of int
        The first and last access of each send by rules; -1 for none.
    """
    only, many = None, FIRST
    while many < len(reader.sends):
        part = reader.of_first(many)
        count = len(part.time_us)
        if FEW * count > len(reader.time_us):
            break
        begins, rings = (np.where(last[:many] < count, one[:many], -1) for one in (first, last))
        only = _leading(_ends(part, begins, rings, only))
        many *= FEW
    ends = list(_ends(reader, first, last, only).values())
    best = _surely(min(ends, key=_cost))
    if only is None and not reader.named:
        best, ends = _doubted(reader, best, ends)
    for end in ends:
        best = against(best, end)
    return best


def _doubted(reader: Reader, best: Released, ends: list[Released]) -> tuple[Released, list[Released]]:
    """Return the cheapest reading, and all others, with those that come of it where one ring is another access; what is
    cheaper is doubted again.

    A margin is told by the costs that the reading taught: it is no larger than what the other costs more by what that
    one teaches. On a host (a card of another maker, scatter-gather, 16 channels) two of eleven rings were wrong by 20
    nats; of another one what came of it was cheaper, and rang for 31 sends more that were right.
    """
    left = READ_AGAIN // len(reader.time_us)
    for _ in range(TURNS):
        doubts = _doubts(best)[:left]
        left -= len(doubts)
        found = [(nats, _from(reader, reader.otherwise(best, ring, RULED_OUT))) for ring, nats in doubts]
        ends = ends + [end for nats, end in found if nats >= ANSWERED or end.cost < best.cost]
        cheapest = min(ends, key=_cost)
        if cheapest.cost >= best.cost:
            break
        best = _surely(cheapest)
    return best, ends


def _cost(end: Released) -> float:
    return end.cost


def _surely(end: Released) -> Released:
    """Return a reading with its margins."""
    return end if end.surely is None else end.surely()


def _doubts(best: Released) -> list[tuple[int, float]]:
    """Return the accesses that ring, but not by far, and by how many nats; the least sure first."""
    sure = best.margins[:, 1]
    doubted = np.flatnonzero((best.last >= 0) & (sure >= AGREED) & (sure < RULED_OUT))
    order = doubted[np.argsort(-sure[doubted], kind="stable")]
    nats = dict(zip(best.last[order].tolist(), sure[order].tolist(), strict=True))
    return sorted(nats.items(), key=lambda one: one[1])


def _ends(reader: Reader, first: Integers, last: Integers, only: set[Start] | None = None) -> dict[Start, Released]:
    """Return in what readings starts end; `only` some, and what rules say.

    Where registers are known each that may be the doorbell is tried.
    """
    known = (first >= 0) & (last >= 0)
    ends: dict[Start, Released] = {}
    if known.any():
        ends["rules",] = _from(reader, _guess(reader, np.where(known, first, -1), np.where(known, last, -1)))
    if reader.named and not reader.bell.any():
        for kind in _candidates(reader).tolist():
            ends |= _ends_with(reader.of_kind(kind), kind, only)
    # Rules that know all sends know this driver; what a reading makes of fewer may be a mistake of both.
    told = any((end.last >= 0).mean() >= NEARLY_ALL for end in ends.values())
    if not (told if reader.named else known.mean() >= WHOLE):
        ends |= _ends_with(reader, ANY_KIND, only)
    return ends or _ends_with(reader, ANY_KIND, None)


def _candidates(reader: Reader) -> Integers:
    """Return the kinds of accesses that may be doorbells, by how many there are; those alone whose values tell so.

    What an interrupt is masked with comes as regularly before sends that wait for the wire. On a host that had rung for
    30 sends in 30 us (a card of another maker, overload) it was cheaper by 20 nats than the ring, whose values went on
    by 1 to 4 up to 30.
    """
    count = np.bincount(reader.kind[reader.write], minlength=reader.kinds)
    sends = len(reader.sends)
    fit = np.flatnonzero((count >= sends / MOST) & (count <= as_often(sends)))
    counting = [kind for kind in fit.tolist() if reader.of_kind(kind).counts]
    return np.array(counting) if counting else fit[np.argsort(np.abs(count[fit] - sends), kind="stable")][:TRIED]


def _ends_with(reader: Reader, kind: int, only: set[Start] | None) -> dict[Start, Released]:
    """Return in what readings several starts end with doorbells of one kind.

    What a table that was learned from a reading says for this reading is no proof: no margin is larger than what
    another end costs more, for each segment in which it differs.
    """
    if only is not None and all(start[0] != kind for start in only):
        return {}
    first = _from(reader, None)
    starts: dict[Start, Callable[[], Released]] = {(kind, "free"): lambda: first}
    bells = int(reader.bell.sum()) or len(np.unique(first.last[first.last >= 0]))
    many = min(max(round(len(reader.sends) / max(bells, 1)), 1), MOST)
    several = {many, 2, 3, 4} if many > 1 or len(reader.sends) > SOME * bells else set()
    for sends, accesses in {(1, 1), (1, 2), (1, 3)} | {(one, None) for one in several}:
        shape = np.full((MOST, LONGEST), np.exp(-IDLE_BELL))
        shape[sends - 1, slice(None) if accesses is None else accesses - 1] = 1.0
        starts[kind, "shape", sends, accesses] = partial(_from, reader, None, shape)
    rings = np.flatnonzero(reader.bell) if reader.bell.any() else np.unique(first.last[first.last >= 0])
    sizes = np.bincount((first.last - first.first)[first.last >= 0], minlength=2)
    for each in sorted({1, many}):
        for size in (0, int(sizes[1:].argmax()) + 1):
            starts[kind, "in order", each, size > 0] = partial(_from_order, reader, rings, each, size)
    starts[kind, "all in order"] = partial(_from_order, reader, np.flatnonzero(reader.possible[:, 0]), 1, 0)
    for number, near in enumerate(_nearest(reader)):
        starts[kind, "nearest", number] = partial(_from, reader, near)
    for by in (-1, 1):
        starts[kind, "shifted", by] = partial(_from, reader, _shifted(first, by))
    return {start: end() for start, end in starts.items() if only is None or start in only}


def _from_order(reader: Reader, rings: Integers, many: int, before: int) -> Released:
    """Return what readings settle at from the one of `_in_order`."""
    return _from(reader, _in_order(reader, rings, many, before))


def _in_order(reader: Reader, rings: Integers, many: int, before: int) -> Released:
    """Return the reading in which the doorbells release the sends in their order, so many each or as they say.

    `before` accesses of each come before its last. As few sends as possible were released before the first of them.
    """
    stated = reader.count[rings].astype(np.int64)
    which = np.repeat(rings, np.where(stated > 0, stated, many))
    for early in range(len(reader.sends)):
        mine = which[: len(reader.sends) - early]
        if (reader.time_us[mine] <= reader.sends.start_us[early : early + len(mine)]).all():
            break
    last = np.full(len(reader.sends), -1)
    last[early : early + len(mine)] = mine
    first = np.where(last >= 0, np.maximum(last - before, 0), -1)
    return _guess(reader, first, last)


def _nearest(reader: Reader) -> Iterator[Released]:
    """Give the readings in which the last access before each send rings, if each send has one of its own.

    On a generated host (`cardbench`, scatter-gather 1198) whose handler does as many as its doorbell has, some
    doorbells were the handler's in all other readings; this one came to the truth, which was cheaper.
    """
    last = np.searchsorted(reader.time_us, reader.sends.start_us) - 1
    if last[0] < NEAREST or not (np.diff(last) > 0).all():
        return
    yield from (_guess(reader, last - before, last) for before in range(NEAREST))


def _guess(reader: Reader, first: Integers, last: Integers) -> Released:
    """Return a reading that was not read: what one begins from."""
    margins, item = np.zeros((len(last), 2), np.float32), np.zeros(len(reader.time_us), np.float32)
    return Released(first, last, margins, item, 0.0)


def _from(reader: Reader, found: Released | None, shape: Floats | float = 1.0) -> Released:
    """Return what readings settle at, from one or from nothing; doorbells have a shape as guessed at first."""
    ends: list[Released] = []
    for number in range(ROUNDS):
        before, found = found, reader.after(found, shape if number < SETTLED else 1.0)
        if number >= SETTLED:
            ends.append(found)
            if before is not None and (before.last == found.last).all():
                break
    return min(ends, key=_cost)


def _leading(ends: dict[Start, Released]) -> set[Start]:
    """Return the starts whose ends the cheapest one does not rule out.

    What learning costs more does not grow with what is read. Starts that end alike here may not where more is read.
    """
    best = min(ends.values(), key=_cost)
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


def against(best: Released, other: Released) -> Released:
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
