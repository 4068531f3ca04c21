"""All frames of a track read another way, each in the same: in another layout, or as other frames.

How readings differ alike is in :mod:`pcitrace.traffic.variants`; here each is read, and learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from pcitrace.lattice import Reading
from pcitrace.traffic.goals import LINES, PIECE, RECEIVE, SEND, Claimed, Layout, layouts, may_be_parted
from pcitrace.traffic.reader import FEW, NOTHING, SETTLED, Fixed, Reader, cost_of, only
from pcitrace.traffic.variants import ALIKE_WAYS, Able, read_again, shifts, variants

__all__ = ["lengthened", "near", "other_ways"]

OTHERWISE = 3
"""Readings that tell whether a layout is worth more: on a host whose frames are read on to blocks of 32 bytes
(`cardbench`, mixed 1142) the third reading was 90 nats cheaper than the second."""

OTHERS = 8
"""Layouts that are tried beside the best."""


def near(reader: Reader, first: Reading) -> list[Reading]:
    """Return what a reading comes to, and those that differ from it alike in every frame.

    The cheapest of these are read on: what the costs were learned from is not yet what was read.
    """
    found = list[Reading]()
    for side in (SEND, RECEIVE):
        found += [reader.settle(one, rounds=1) for one in _varied(reader, first, side)]
    itself = reader.settle(first, rounds=FEW)
    others = sorted((one for one in found if not one.same(itself)), key=cost_of)
    cheapest = list({one.labels(): one for one in others}.values())[:SETTLED]
    return [itself, *found, *(reader.settle(one, rounds=FEW) for one in cheapest)]


def other_ways(reader: Reader, best: Reading) -> list[Reading]:
    """Return the readings that settle where all frames of a track are read otherwise, each in the same way."""
    if not reader.small:
        return _as_in_the_head(reader, best)
    found = []
    for side in (SEND, RECEIVE):
        found += [reader.settle(best, only(side, layout), OTHERWISE) for layout in _other_layouts(reader, side, best)]
        lies = reader.layout(side, best)
        found.append(reader.settle(best, only(side, replace(lies, whole=not lies.whole)), OTHERWISE))
        found += [reader.settle(one, rounds=FEW) for one in _varied(reader, best, side)]
    return found + [reader.settle(joined, way, FEW) for joined, way in _cut_and_read_again(reader, best)]


def _as_in_the_head(reader: Reader, best: Reading) -> list[Reading]:
    """Return of these readings only those that differ in the way that is cheapest of the first pieces.

    And those in which frames are another frame: of lost ones the first pieces need not know. On a generated host
    with 1,075 pieces (`cardbench`, cacheline 100, no profile) each receive had the status behind it; a reading
    without was 176 nats cheaper, and not tried.
    """
    head, first = reader.head(best)
    now, found = head.settle(first, rounds=FEW).cost, list[Reading]()
    for side in (SEND, RECEIVE):
        nats = [head.settle(one, rounds=FEW).cost for one in islice(_varied(head, first, side), ALIKE_WAYS)]
        if min(nats, default=np.inf) < now - NOTHING:
            at = int(np.argmin(nats))
            found += [reader.settle(one, rounds=FEW) for one in islice(_varied(reader, best, side), at, at + 1)]
        others = shifts(best, side, reader.count(side), _able(reader, best, side))
        found += [reader.settle(one, rounds=1) for one in others]
    nats = [head.settle(joined, way, FEW).cost for joined, way in _cut_and_read_again(head, first)]
    if min(nats, default=np.inf) < now - NOTHING:
        joined, way = _cut_and_read_again(reader, best)[int(np.argmin(nats))]
        found.append(reader.settle(joined, way, FEW))
    return found


def _other_layouts(reader: Reader, side: int, reading: Reading) -> list[Layout]:
    """Return the layouts that a track could have instead."""
    target = reader.targets[side]
    if target is None or not (reading.track == side).any():
        return []
    now = reader.layout(side, reading)
    parted = may_be_parted(side, reader.pieces, reading, reader.unit)
    # Of those that ask for as many data phases of every frame one is enough.
    asking = {_asking(reader, side, one): one for one in [*layouts(side, now.whole, reader.unit, parted)[::-1], now]}
    others = [one for one in reversed(asking.values()) if one != now]
    fits = Claimed(side, reader.pieces, reading, target, reader.unit).fitting(others).sum(axis=1)
    return [others[at] for at in np.argsort(-fits, kind="stable")[:OTHERS]]


def _asking(reader: Reader, side: int, layout: Layout) -> tuple[bytes, bytes, int]:
    """Return what a layout says of how much each frame of a track has, to be compared."""
    goals = reader.goals(side, layout)
    return goals.least.tobytes(), goals.most.tobytes(), goals.again if reader.pieces.cut.any() else 0


def _cut_and_read_again(reader: Reader, best: Reading) -> list[tuple[Reading, Fixed]]:
    """Return the reading in which what was cut and is left over is part of the send that follows it; and in which
    layouts a card does that.
    """
    cut = reader.pieces.cut
    if reader.targets[SEND] is None or not (cut & (best.track < 0)).any():
        return []
    joined, lies = read_again(best, SEND, cut), reader.layout(SEND, best)
    return [(joined, only(SEND, replace(lies, again=line))) for line in (*LINES, PIECE)]


def _varied(reader: Reader, reading: Reading, side: int) -> Iterator[Reading]:
    """Give the readings that differ from one alike in all frames of a track."""
    bus = reader.pieces.bus
    pause_us = np.append(np.inf, reader.pieces.begin_us[1:] - bus.last_data_us[:-1])[: len(reader.pieces)]
    return variants(reading, side, reader.count(side), pause_us, _able(reader, reading, side))


def _able(reader: Reader, reading: Reading, side: int) -> Able:
    """Return whether each piece's segment could be the target before its own in time, and the one behind it.

    In the other host's memory nothing is seen of that: two captures may lie otherwise on one axis.
    """
    target, bus, count = reader.targets[side], reader.pieces.bus, reader.count(side)
    mine = (reading.track == side) & (reading.target >= 0)
    out = np.ones((2, len(mine)), dtype=bool)
    if target is None or not target.seen or not mine.any():
        return out[0], out[1]
    whole = reader.layout(side, reading).whole
    first_us, last_us = np.full((2, count), np.nan)
    first_us[reading.target[mine & reading.begins]] = bus.first_data_us[mine & reading.begins]
    last_us[reading.target[mine & reading.ends]] = bus.last_data_us[mine & reading.ends]
    for by in (-1, 1):
        at = reading.target[mine]
        other = np.clip(at + by, 0, count - 1)
        if side == RECEIVE:
            soon = first_us[at] < (target.end_us if whole else target.start_us)[other]
        else:
            soon = (last_us if whole else first_us)[at] > target.start_us[other]
        out[int(by > 0), mine] = ~soon
    return out[0], out[1]


def lengthened(reader: Reader, first: Reading, side: int) -> dict[int, float]:
    """Return what it costs that all frames of a track have more data phases, by how many."""
    target, out = reader.targets[side], dict[int, float]()
    if target is None or target.seen or not (first.track == side).any():
        return out
    layout = reader.layout(side, first)
    now = reader.settle(first, only(side, layout), FEW)
    for one in _varied(reader, first, side):
        more = _more(reader, side, first, one)
        if more:
            there = replace(layout, added=layout.added + more * reader.unit)
            other = reader.settle(one, only(side, there), FEW)
            if _more(reader, side, first, other) == more:
                out[more] = min(out.get(more, np.inf), now.against_by(other))
    return out


def _more(reader: Reader, side: int, one: Reading, other: Reading) -> int:
    """Return how many data phases more most frames of a track have in another reading."""
    sizes = []
    for reading in (one, other):
        mine = (reading.track == side) & (reading.target >= 0)
        units = reader.pieces.bus.data_phases[mine]
        sizes.append(np.bincount(reading.target[mine], weights=units, minlength=len(reader.pieces)))
    count = min(map(len, sizes))
    both = (sizes[0][:count] > 0) & (sizes[1][:count] > 0)
    return round(float(np.median((sizes[1][:count] - sizes[0][:count])[both]))) if both.any() else 0
