"""Readings that differ from one in the same way in every frame: what else the card could be doing.

A search that learns its costs from its own reading keeps what it began with: that a status is the frame's last piece,
that each frame is the one before it on the wire. So these are tried as well; those that hold are other ways to explain
everything, and the cheapest counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.lattice import Reading

__all__ = ["ALIKE_WAYS", "Able", "read_again", "shifts", "variants"]

Able = tuple[Booleans, Booleans]
"""Whether each piece could be of the target before its own, and of the one behind it."""

ALIKE_WAYS = 18
"""Readings that :func:`variants` gives, always in the same order, before those of :func:`shifts`."""


def variants(reading: Reading, side: int, targets: int, pause_us: Floats, able: Able) -> Iterator[Reading]:
    """Give the readings in which all segments of a track are longer or shorter, have no gaps, or are another frame.

    Longer by a piece, or by all that come as soon as pieces do inside them; without their second piece or their last
    but one, or with what is left over inside and without the edge; longer at one end and shorter at the other, or
    without what was its edge; another frame: the one before or after.

    Parameters
    ----------
    reading : Reading
    side : int
        The track.
    targets : int
        How many targets it has.
    pause_us : array of float
        The pause before each piece.
    able : pair of array of bool
        Whether the segment of each piece could be the target before its own in time, or the one behind it.
    """
    if not (reading.track == side).any():
        return
    yield _stretched(reading, side, pause_us)
    for at_end in (False, True):
        yield _longer(reading, side, at_end)
        yield _shorter(reading, side, at_end)
        yield _hollow(reading, side, at_end)
    filled = _filled(reading, side)
    yield filled
    for at_end in (False, True):
        # A descriptor that is taken for a segment's edge leaves over what is that edge.
        yield _shorter(filled, side, at_end)
    later = _shorter(_stretched(reading, side, pause_us), side, at_end=False)
    yield later
    yield _shorter(later, side, at_end=True)
    for at_end in (False, True):
        # What is nearest to a segment of one piece is there for it to move to before it leaves its own.
        yield _shorter(_longer(reading, side, at_end), side, not at_end)
        yield _longer(_shorter(reading, side, not at_end), side, at_end)
        # What was its edge may be something else that came between.
        yield _hollow(_longer(reading, side, at_end), side, at_end)
    yield from shifts(reading, side, targets, able)


def shifts(reading: Reading, side: int, targets: int, able: Able) -> Iterator[Reading]:
    """Give the readings in which segments of a track are the frame before or after: all, or those next to a lost one.

    Where frames of one length got lost it is hardly told which. Of all, those that could be that frame in time: once
    the receive before a lost frame came too soon to be the next one, and all behind it were the frames before theirs.
    """
    mine = (reading.track == side) & (reading.target >= 0)
    if not (reading.track == side).any():
        return
    for by in (-1, 1):
        yield _shifted(reading, mine & _from_there(reading, mine, able[by > 0], by), by, targets)
    lost = np.setdiff1d(np.arange(targets), reading.target[mine])
    edges = np.concatenate([[-1], lost, [targets]])
    longest = np.argsort(-np.maximum(np.diff(edges)[:-1], np.diff(edges)[1:]), kind="stable")[:STRETCHES]
    for before, at, after in zip(edges[longest], lost[longest], edges[longest + 2], strict=True):
        for by, low, high in ((1, before, at), (1, -1, at), (-1, at, after), (-1, at, targets)):
            some = mine & (reading.target > low) & (reading.target < high)
            if some.any():
                yield _shifted(reading, some, by, targets)


def _from_there(reading: Reading, mine: Booleans, able: Booleans, by: int) -> Booleans:
    """Return which segments are behind the last one that cannot be a later target, or before the first that cannot be
    an earlier one.
    """
    stays = reading.target[mine & ~able]
    if by > 0:
        return np.asarray(reading.target > stays.max(initial=-1))
    return np.asarray(reading.target < stays.min(initial=np.iinfo(np.int64).max))


STRETCHES = 2
"""Lost frames beside which this is tried: those with most frames between them and the next lost one."""

USUAL = 0.9
"""Share of the pauses inside segments that are not longer than usual."""


def _stretched(reading: Reading, side: int, pause_us: Floats) -> Reading:
    """Let all that is left over behind each segment be part of it, as long as it comes as soon as pieces do inside."""
    mine = reading.track == side
    inner = pause_us[mine & ~reading.begins]
    usual_us = float(np.quantile(inner, USUAL)) if len(inner) else 0.0
    order = np.arange(len(reading.track))
    stop = (reading.track >= 0) | (pause_us > usual_us)
    last = np.maximum.accumulate(np.where(stop, order, -1))
    tail = (reading.track < 0) & (last >= 0) & reading.ends[last] & (reading.track[last] == side)
    ends = reading.ends.copy()
    ends[last[tail]] = False
    ends |= tail & ~np.append(tail[1:], False)
    return _joining(reading, np.flatnonzero(tail), last[tail], ends=ends)


def read_again(reading: Reading, side: int, cut: Booleans) -> Reading:
    """Let what was cut and is left over just before a segment be part of it: the card reads that again."""
    begins, to = reading.begins.copy(), np.arange(len(cut))
    for at in np.flatnonzero((reading.track == side) & reading.begins)[::-1]:
        first = at
        while first > 0 and cut[first - 1] and reading.track[first - 1] < 0:
            first -= 1
        to[first:at] = at
        begins[at], begins[first] = False, True
    return _joining(reading, np.arange(len(cut)), to, begins=begins)


def _joining(reading: Reading, rows: Integers, to: Integers, **edges: Any) -> Reading:
    """Let pieces be part of the segments of others, or left over where these are, with other beginnings or ends."""
    track, target, segment = (column.copy() for column in (reading.track, reading.target, reading.segment))
    for column in (track, target, segment):
        column[rows] = column[to]
    return replace(reading, track=track, target=target, segment=segment, cost=np.inf, **edges)


def _left_over(reading: Reading, rows: Integers | Booleans, **edges: Any) -> Reading:
    """Let pieces be of no segment, with other beginnings or ends."""
    track, target, segment = (column.copy() for column in (reading.track, reading.target, reading.segment))
    for column in (track, target, segment):
        column[rows] = -1
    return replace(reading, track=track, target=target, segment=segment, cost=np.inf, **edges)


def _longer(reading: Reading, side: int, at_end: bool) -> Reading:
    """Let what is left over just behind each segment, or before it, be part of it."""
    step, name = (1, "ends") if at_end else (-1, "begins")
    marks = getattr(reading, name).copy()
    edge = np.flatnonzero((reading.track == side) & marks)
    edge = edge[(edge + step >= 0) & (edge + step < len(reading.track))]
    edge = edge[reading.track[edge + step] < 0]
    marks[edge], marks[edge + step] = False, True
    return _joining(reading, edge + step, edge, **{name: marks})


def _shorter(reading: Reading, side: int, at_end: bool) -> Reading:
    """Leave over the last piece of each segment that has several, or the first."""
    step, name = (-1, "ends") if at_end else (1, "begins")
    marks = getattr(reading, name).copy()
    edge = np.flatnonzero((reading.track == side) & ~(reading.begins & reading.ends) & marks)
    rows = _by_segment(reading, side)
    at = np.empty(len(reading.track), dtype=np.int64)
    at[rows] = np.arange(len(rows))
    # A segment that the capture ends in has no end.
    inner = rows[np.clip(at[edge] + step, 0, len(rows) - 1)]
    edge, inner = (column[reading.segment[inner] == reading.segment[edge]] for column in (edge, inner))
    marks[edge], marks[inner] = False, True
    return _left_over(reading, edge, **{name: marks})


def _hollow(reading: Reading, side: int, at_end: bool) -> Reading:
    """Leave over the piece behind the first of each segment, or before the last: something else came between."""
    rows = _by_segment(reading, side)
    edge = reading.ends[rows] if at_end else reading.begins[rows]
    inner = rows[np.append(edge[1:], False) if at_end else np.append(False, edge[:-1])]
    return _left_over(reading, inner[~reading.begins[inner] & ~reading.ends[inner]])


def _by_segment(reading: Reading, side: int) -> Integers:
    """Return the pieces of a track, segment by segment."""
    rows = np.flatnonzero(reading.track == side)
    return rows[np.argsort(reading.segment[rows], kind="stable")]


def _filled(reading: Reading, side: int) -> Reading:
    """Let what is left over between the first and the last piece of a segment be part of it."""
    last = np.maximum.accumulate(np.where(reading.track == side, np.arange(len(reading.track)), -1))
    inside = (reading.track < 0) & (last >= 0) & ~reading.ends[last]
    return _joining(reading, np.flatnonzero(inside), last[inside])


def _shifted(reading: Reading, mine: Booleans, by: int, targets: int) -> Reading:
    """Let each of some segments be a later frame, or an earlier one."""
    target = np.where(mine, reading.target + by, reading.target)
    gone = mine & ((target < 0) | (target >= targets))
    return _left_over(replace(reading, target=target), gone, begins=reading.begins & ~gone, ends=reading.ends & ~gone)
