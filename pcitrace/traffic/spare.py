"""Frames whose length says that an edge is not sure: without a piece there they are as long as on the wire, or they are
unlike others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.lattice import Goals, Reading, segment_units
from pcitrace.traffic.goals import SEND, first_units
from pcitrace.traffic.pieces import Pieces

__all__ = [
    "AS_WELL",
    "BEGIN",
    "BEGIN_AND_END",
    "END",
    "NEARLY_ALL",
    "SEVERAL",
    "exchanges",
    "from_inside",
    "may_turn",
    "moved_on",
    "not_needed",
    "torn",
    "unlike_others",
    "without",
]

BEGIN, END = BEGIN_AND_END = (1, 2)
"""Columns of a reading's margins: beginnings, ends."""

NEARLY_ALL = 0.9
"""Share of a track's frames that have a piece at an edge which the bytes on the wire leave over, if all may be no part
of them; or a piece inside that is none of theirs, if all may begin there. Where more lies around frames that have no
such piece, it is theirs. All frames had it on hosts of `realcards` that were wrong (r8169 29, tg3 32, eepro100 39, and
36 of 37 of dp83815 59), 5 of 8 on one of `cardbench` (tiny 1) that was right. A judgement."""

AS_WELL = 0.75
"""Share of a track's frames that may all begin, or end, at a piece inside, from which on none is sure to begin where it
seems to. Two of 13 frames of the host that :func:`from_inside` was written for had a piece too many. A judgement."""

BEHIND = 8
"""Pieces behind a frame that are looked at: what is left of a line of 32 bytes, a word each. A judgement."""

SEVERAL = 0.25
"""Share of frames from which on something is no exception. Of a track's frames that are unlike the others none is sure
then: 31 and 36 % were on two hosts that were wrong (`cardbench` mixed 81, `realcards` rtl8139 27), 10 % on a right one
of another maker (scatter-gather)."""

LONGEST = 1 << 12
"""Data phases that no frame has: one that may be as long is of a wire whose rate is not known, and no length tells."""


def not_needed(pieces: Pieces, reading: Reading, track: int, claims: tuple[Goals, Goals], header: int) -> Reading:
    """Return the reading with no edge that is sure where a track's frames have a piece that none of them needs.

    `claims` are what they may claim: as the reading says that they lie in memory, and with nothing around their bytes
    but what the profile states. `header` has the data phases of a header that lies in a buffer of its own; 0 if none
    does. Read word by word, it needs the first word if it were shorter without.

    Lengths on a sampled wire are known to a byte or two, and a buffer may begin at any byte of a word, so a frame may
    have a data phase more or not. That one alone, in a transaction of its own, may as well be a status or a descriptor.
    Where a frame has a piece of that size there that it does need, such pieces are parts of frames. On a generated host
    (`cardbench`, batched-status 70) the status that is written behind every fourth send was its last word, in a reading
    that was 70 nats cheaper than the truth: that such a status comes at all costs more than that frames have a rest.

    Where nearly all frames have such a piece beyond their bytes on the wire, that more lies around them is said by
    nothing but this reading. Of two RTL8169, that sent each other frames at once, the status of the last send was
    written before each receive: as a header of one word, 46 nats cheaper. Of two BCM570x each send seemed to begin with
    its descriptor, 36 nats cheaper. Addresses tell what is part of a frame.
    """
    rows, head, tail = _segments(reading, track)
    if not len(rows) or pieces.bus.has_address:
        return reading
    begins, size = reading.begins[rows], pieces.bus.data_phases[rows].astype(np.int64)
    target = reading.target[rows[head]]
    spare, beyond = (
        segment_units(size, pieces.cut[rows], begins, one.again) - one.least[target].astype(np.int64) for one in claims
    )
    several = (tail > head) & (claims[0].most[target] < LONGEST)
    of_header = (size[head] == 1) & (first_units(size, begins) == header)
    margins = reading.margins.copy()
    for column, at in zip(BEGIN_AND_END, (head, tail), strict=True):
        doubted, around = (_none_needs(size[at], one, several) for one in (spare, beyond))
        if around.sum() >= NEARLY_ALL * several.sum():
            doubted |= around
        if column == BEGIN:
            doubted &= ~of_header
        margins[rows[at[doubted]], column] = 0.0
    return replace(reading, margins=margins)


def unlike_others(pieces: Pieces, reading: Reading, track: int, goals: Goals) -> Reading:
    """Return the reading with no edge that is sure of the frames that do not have the data phases of those on the wire,
    as most lie in memory; of none of the track if these are many.

    Frames of one card lie alike. Where some do not, a piece is missing or is another's; and which of two ways is right
    the reading does not say. What was cut may be read again. Two RTL8139 gave frames of up to 256 bytes to memory when
    they were whole, longer ones as they came: these were one frame sooner on the wire, 128 us and not 0.6 before their
    receives, and 24 bytes longer than that one. Of 16 sends of a generated card (`cardbench`, mixed 81) 11 lacked their
    first ten words and had a status of four in their middle. Addresses tell what is part of a frame.
    """
    rows, head, tail = _segments(reading, track)
    if not len(rows) or pieces.bus.has_address:
        return reading
    cut = pieces.cut[rows]
    units = segment_units(pieces.bus.data_phases[rows], cut, reading.begins[rows], goals.again)
    target, cuts = reading.target[rows[head]], np.add.reduceat(cut, head, dtype=np.int64)
    least, most = (one[target].astype(np.int64) for one in (goals.least, goals.most))
    odd = (units < least) | (units > most + cuts)
    if track == SEND:
        odd &= cuts == 0
    margins, doubted = reading.margins.copy(), odd | (odd.mean() >= SEVERAL)
    for column, at in zip(BEGIN_AND_END, (head, tail), strict=True):
        margins[rows[at[doubted]], column] = 0.0
    return replace(reading, margins=margins)


def may_turn(pieces: Pieces, reading: Reading, track: int, goals: Goals, like: Booleans) -> Reading:
    """Return the reading with no edge that is sure of equal frames if nearly all have inside their shortest piece, and
    what is no part of them: each may begin behind that, and end with what seems to be the beginning of the next.

    `like` are the pieces that go the same way as the track's. A National DP83815 that sent a stream of equal frames
    (`realcards` 59, 16 channels) read each while the one before was on the wire, and then waited 42 us. That each ended
    just before it was on the wire, as the first one did, with the descriptor in its middle, was 123 nats cheaper.
    Addresses tell what is part of a frame, lengths which piece is the last.
    """
    rows, head, tail = _segments(reading, track)
    if not len(rows) or pieces.bus.has_address:
        return reading
    target, left = reading.target[rows[head]], np.cumsum((reading.track < 0) & like)
    size = pieces.bus.data_phases[rows]
    inside = (left[rows[tail]] > left[rows[head]]) & (size[tail] > np.minimum.reduceat(size, head))
    margins = reading.margins.copy()
    if goals.least[target].max() <= goals.most[target].min() and inside.mean() >= NEARLY_ALL:
        margins[rows] = 0.0
    return replace(reading, margins=margins)


def torn(pieces: Pieces, reading: Reading) -> Reading:
    """Return the reading with no edge of a send that is sure if over half of those of several pieces pause inside more
    than twice as long as before them and behind: each may be the end of one and the beginning of the next.

    A card that stores what it sends reads it in one go. Both cards of a run (of another maker, scatter-gather, 16
    channels) read the last words of each send one by one. These seemed to be the beginning of the next one, 14 us
    later, for 85 nats less than the truth; and 13 and 14 of 22 sends pause so. On the hosts of 130 other generated
    cards that were right at most 41 % did; of a card that reads one send behind the other all pause half as long again
    inside (`cardbench`, groups 902). Addresses tell what is part of a frame.
    """
    rows, head, tail = _segments(reading, SEND)
    if not len(rows) or pieces.bus.has_address:
        return reading
    begin_us, end_us = pieces.begin_us[rows], pieces.bus.last_data_us[rows]
    pause_us = np.append(0.0, begin_us[1:] - end_us[:-1])
    beside_us = np.append(pause_us[head[1:]], 0.0)
    beside_us[1:] = np.maximum(beside_us[1:], beside_us[:-1])
    pause_us[head] = 0.0
    longer = np.maximum.reduceat(pause_us, head) > 2 * beside_us
    if 2 * np.count_nonzero(longer) <= np.count_nonzero(tail > head):
        return reading
    return replace(reading, margins=np.where((reading.track == SEND)[:, None], 0.0, reading.margins))


def exchanges(pieces: Pieces, reading: Reading, track: int, like: Booleans) -> Iterator[tuple[Reading, int]]:
    """Give the readings in which frames of a track have the piece beyond their first, or their last, instead of one as
    large, that which is farthest from it; and how many do: all that can.

    `like` are the pieces that may go the same way as the track's.
    """
    rows, head, tail = _segments(reading, track)
    size, left = np.append(pieces.bus.data_phases, 0), np.append((reading.track < 0) & like, False)
    for edge, by in ((head, -1), (tail, 1)):
        found = {name: getattr(reading, name).copy() for name in ("track", "begins", "ends", "target")}
        count = 0
        for at in np.flatnonzero(left[rows[edge] + by]) if len(rows) else ():
            mine, come = rows[head[at] : tail[at] + 1][::by], rows[edge[at]] + by
            same = np.flatnonzero(size[mine] == size[come])
            if not len(same) or len(mine) == 1:
                continue
            gone = mine[same[0]]
            found["track"][come], found["target"][come] = track, reading.target[gone]
            found["track"][gone], found["target"][gone] = -1, -1
            kept = np.append(mine[mine != gone], come)
            found["begins"][mine], found["ends"][mine] = False, False
            found["begins"][kept.min()], found["ends"][kept.max()] = True, True
            count += 1
        if count:
            yield Reading(**found, margins=reading.margins, cost=np.inf), count


def moved_on(pieces: Pieces, reading: Reading, track: int, like: Booleans) -> tuple[Integers, Integers]:
    """Return how many data phases a track's frames have without their first piece; and with more and more of the pieces
    behind that are no part of it, a column for each further one, `BEHIND` of them.

    `like` are the pieces that may go the same way as the track's.
    """
    rows, head, tail = _segments(reading, track)
    size, left = np.append(pieces.bus.data_phases, 0).astype(np.int64), np.append((reading.track < 0) & like, False)
    before = np.append(0, np.cumsum(size[rows]))
    at = np.minimum(rows[tail][:, None] + np.arange(1, BEHIND + 1), len(like))
    behind = np.where(np.logical_and.accumulate(left[at], axis=1), size[at], 0)
    return before[tail + 1] - before[head + 1], np.cumsum(behind, axis=1)


def from_inside(reading: Reading, track: int, like: Booleans, column: int) -> Iterator[Reading]:
    """Give the readings in which each frame of a track begins with the first piece inside that is no part of it, or
    ends with the last, and what lies beyond is no part of it: that piece alone is, or all that are left over inside.

    `like` are the pieces that may go the same way as the track's.
    """
    rows, head, tail = _segments(reading, track)
    if not len(rows):
        return
    loose = (reading.track < 0) & like
    left = np.append(np.flatnonzero(loose), len(reading.track))
    if column == BEGIN:
        edge = left[np.searchsorted(left, rows[head])]
        edge = np.where(edge < rows[tail], edge, rows[head])
    else:
        edge = left[np.searchsorted(left, rows[tail]) - 1]
        edge = np.where((edge > rows[head]) & (edge < rows[tail]), edge, rows[tail])
    of_row = np.repeat(edge, tail - head + 1)
    beyond = rows[rows < of_row] if column == BEGIN else rows[rows > of_row]
    found = {name: getattr(reading, name).copy() for name in ("track", "begins", "ends", "target")}
    found["track"][beyond], found["target"][beyond] = -1, -1
    found["begins"][beyond] = found["ends"][beyond] = False
    found["begins" if column == BEGIN else "ends"][edge] = True
    first, last = (edge, rows[tail]) if column == BEGIN else (rows[head], edge)
    for alone in (True, False):
        more = edge
        if not alone:
            inside = np.concatenate([np.arange(one, other + 1) for one, other in zip(first, last, strict=True)])
            more = np.union1d(edge, inside[loose[inside]])
        found["track"][more] = track
        found["target"][more] = reading.target[rows[head[np.searchsorted(rows[head], more, side="right") - 1]]]
        yield Reading(**{name: one.copy() for name, one in found.items()}, margins=reading.margins, cost=np.inf)


def without(reading: Reading, other: Reading, track: int, column: int) -> Reading:
    """Return the reading with no edge of a track that is sure where another one has it elsewhere."""
    name = "begins" if column == BEGIN else "ends"
    margins = reading.margins.copy()
    margins[(reading.track == track) & getattr(reading, name) & ~getattr(other, name), column] = 0.0
    return replace(reading, margins=margins)


def _segments(reading: Reading, track: int) -> tuple[Integers, Integers, Integers]:
    """Return the pieces of a track's frames, one frame behind the other, and where in these each begins and ends."""
    rows = np.flatnonzero((reading.track == track) & (reading.target >= 0))
    rows = rows[np.argsort(reading.segment[rows], kind="stable")]
    head = np.flatnonzero(reading.begins[rows])
    return rows, head, np.append(head[1:], len(rows)) - 1


def _none_needs(size: Integers, spare: Integers, several: Booleans) -> Booleans:
    """Return which edges have a piece that its frame does not need, and none a piece of that size that it needs."""
    needed = np.unique(size[several & (size > spare)])
    return several & (size <= spare) & ~np.isin(size, needed)
