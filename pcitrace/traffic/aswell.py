"""What lengths and layouts leave open: a frame may as well lie elsewhere, without a cost that tells it.

The edges that may are not sure. Each question is in :mod:`pcitrace.traffic.spare`; here is of what it is asked.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcitrace.facts import HEADER_BYTES
from pcitrace.lattice import Reading
from pcitrace.traffic.goals import RECEIVE, SEND, Claimed, Layout, layouts
from pcitrace.traffic.period import as_well_later
from pcitrace.traffic.reader import FEW, HARDLY, Reader
from pcitrace.traffic.spare import (
    AS_WELL,
    BEGIN,
    BEGIN_AND_END,
    END,
    exchanges,
    from_inside,
    may_turn,
    moved_on,
    not_needed,
    torn,
    unlike_others,
    without,
)

__all__ = ["by_lengths"]


def by_lengths(reader: Reader, reading: Reading) -> Reading:
    """Return a reading with no edge that is sure where the length of frames on their wire speaks against it."""
    for side in (SEND, RECEIVE):
        target = reader.targets[side]
        if target is None or not target.seen:
            continue
        lies = reader.layout(side, reading)
        bare = replace(lies, added=reader.stated.added(side), spare=0, block=0, again=0)
        goals = reader.goals(side, lies)
        if side == SEND and _later(reader, reading):
            reading = replace(reading, margins=np.where((reading.track == SEND)[:, None], 0.0, reading.margins))
        header = -(-HEADER_BYTES // reader.unit) if lies.buffers > 1 else 0
        reading = not_needed(reader.pieces, reading, side, (goals, reader.goals(side, bare)), header)
        reading = unlike_others(reader.pieces, reading, side, goals)
        reading = _as_well_exchanged(reader, reading, side)
        reading = _as_well_from_inside(reader, reading, side)
        reading = _as_well_without_blocks(reader, reading, side, lies)
        reading = may_turn(reader.pieces, reading, side, goals, reader.write != 1 - side)
        if side == SEND and lies.whole:
            reading = torn(reader.pieces, reading)
    return reading


def _as_well_exchanged(reader: Reader, reading: Reading, side: int) -> Reading:
    """Return a reading with no edge that is sure of the frames of a track that may have a piece beside them instead
    of one as large, if that is hardly less likely.

    Addresses tell what is part of a frame. Before each receive of a host, all of 64 bytes, eight descriptors of two
    words were read; its header of 14 bytes was written, and then the sixteen words of the rest (a card of another
    maker, scatter-gather, 16 channels). With the descriptors for its rest, and the rest left over, a reading was 31
    nats cheaper than the truth. Of another such host these eight words were taken for the last of every second.
    """
    if reader.pieces.bus.has_address:
        return reading
    for one, frames in exchanges(reader.pieces, reading, side, reader.write != 1 - side):
        if reader.as_it_is(one).cost < reading.cost + HARDLY * frames:
            reading = without(without(reading, one, side, BEGIN), one, side, END)
    return reading


def _as_well_from_inside(reader: Reader, reading: Reading, side: int) -> Reading:
    """Return a reading with no edge that is sure if nearly all frames of a track may have it where a piece inside
    is no part of them: so they lie in memory in a layout, too.

    Addresses tell what is part of a frame. On a host (a card of another maker, scatter-gather, 16 channels) two
    descriptors were read before each receive, whose header of 66 bytes lay in a buffer of its own. They seemed to
    be the header: with them a receive was as long but for a word, and the header was left over.
    """
    target, claimed = reader.targets[side], reading.target[(reading.track == side) & reading.begins]
    claimed = claimed[claimed >= 0]
    if target is None or not len(claimed) or reader.pieces.bus.has_address:
        return reading
    # Equal frames fit wherever they begin.
    lies = reader.layout(side, reading)
    if 2 * np.unique(reader.goals(side, lies).least[claimed], return_counts=True)[1].max() > len(claimed):
        return reading
    some = layouts(side, lies.whole, reader.unit, True)
    found = reading
    for column in BEGIN_AND_END:
        for other in from_inside(reading, side, reader.write != 1 - side, column):
            fits = Claimed(side, reader.pieces, other, target, reader.unit).fitting(some)
            moved = reading.segment[(reading.track == side) & (reading.track != other.track)]
            if len(np.unique(moved)) >= AS_WELL * len(claimed) and fits.mean(axis=1).max(initial=0.0) >= AS_WELL:
                found = without(found, other, side, column)
    return found


def _as_well_without_blocks(reader: Reader, reading: Reading, side: int, lies: Layout) -> Reading:
    """Return a reading with no edge that is sure if frames go on to the end of a block, but nearly all would not
    without their first piece and with some that follow them.

    Addresses tell what is part of a frame. A card (of another maker, scatter-gather, 16 channels) read the last
    words of each send one by one; these were left over, and its descriptor, of a block, was the beginning.
    """
    target = reader.targets[side]
    claimed = reading.target[(reading.track == side) & reading.begins & (reading.target >= 0)]
    if target is None or not lies.block or not len(claimed) or reader.pieces.bus.has_address:
        return reading
    mine, more = moved_on(reader.pieces, reading, side, reader.write != 1 - side)
    goals = reader.goals(side, replace(lies, added=lies.added % reader.unit, block=0))
    size = mine[:, None] + more
    fits = (more > 0) & (size >= goals.least[claimed, None]) & (size <= goals.most[claimed, None])
    # Some that are always as many may be the next descriptor.
    if fits.any(axis=1).mean() < AS_WELL or len(np.unique(more[fits])) < FEW:
        return reading
    return replace(reading, margins=np.where((reading.track == side)[:, None], 0.0, reading.margins))


def _later(reader: Reader, reading: Reading) -> bool:
    """Return whether all sends may as well be later frames on the wire: see :mod:`pcitrace.traffic.period`."""
    target, bus = reader.targets[SEND], reader.pieces.bus
    head = np.flatnonzero((reading.track == SEND) & (reading.target >= 0) & reading.begins)
    if target is None or not len(head) or bus.has_address:
        return False
    head = head[np.argsort(reading.target[head], kind="stable")]
    seen_us = float(bus.first_data_us[0]), float(bus.last_data_us[-1])
    return as_well_later(target, reading.target[head], bus.first_data_us[head], seen_us)
