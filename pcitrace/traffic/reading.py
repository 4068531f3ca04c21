"""A reading of a host's pieces as its DMA: which bursts there are, and what each carries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pcitrace.columns import Integers
from pcitrace.lattice import Reading
from pcitrace.traffic.csr import join_attempts
from pcitrace.traffic.dma import CHEAPEST, EITHER_TAIL, LEFT_OVER, Dma, Kind
from pcitrace.traffic.goals import SEND
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.spare import SEVERAL

__all__ = ["FRAME_KINDS", "Claims", "as_read", "begun_again", "claiming", "claims"]

FRAME_KINDS = (Kind.SEND_DATA, Kind.RECEIVE_DATA)
"""What segments of the two tracks carry."""

LEFT_KINDS = {0: Kind.DESCRIPTOR_FETCH, 1: Kind.STATUS_WRITE, -1: Kind.UNKNOWN}
"""What is no part of a frame, by its direction."""


@dataclass(frozen=True)
class Claims:
    """Which frame each burst of a host is, of those that it sends and receives; -1 for none.

    By the number on its wire, or, where that was not captured, in the other host's memory; None where no reading of the
    pieces says so, or that changed.
    """

    sent: Integers | None = None
    received: Integers | None = None


def claims(dma: Dma, pieces: Pieces, reading: Reading) -> Claims:
    """Return what the bursts of a reading, put into `dma` by :func:`as_read`, claim."""
    out = []
    for track in (0, 1):
        mine = reading.track == track
        target = np.full(int(dma.burst.max()) + 1, -1)
        target[dma.burst[pieces.rows[mine]]] = reading.target[mine]
        out.append(target)
    return Claims(out[0], out[1])


def claiming(reading: Reading) -> Reading:
    """Return the reading without the segments that claim nothing: what is on no wire is no frame."""
    idle = (reading.track >= 0) & (reading.target < 0)
    none = np.where(idle, -1, reading.track)
    return replace(
        reading,
        track=none,
        begins=reading.begins & ~idle,
        ends=reading.ends & ~idle,
        segment=np.where(idle, -1, reading.segment),
    )


def begun_again(pieces: Pieces, reading: Reading) -> Integers:
    """Return the pieces that seem to begin a frame, but what was left over just before them was cut; at their address,
    if that is known, and else of sends, at any.

    A card reads again what was cut: then the frame began with that. Where addresses do not tell, it may be what the
    target stopped with its last data, too. Of 28 sends of a host (of another maker, reread, 16 channels) one seemed to
    begin with its second attempt. Where more than a few have that before them, something that is always read there ends
    where the target stops.
    """
    order = np.arange(len(pieces))
    address, known = pieces.bus.address, pieces.bus.has_address
    if known:
        order = np.lexsort((order, address))
    before, here = order[:-1], order[1:]
    begun = reading.begins[here]
    if known:
        # Of a frame that claims nothing on a wire it is no surer that it is one.
        begun &= (reading.target[before] < 0) & (address[before] == address[here]) & (address[here] >= 0)
        again = begun & pieces.cut[before]
    else:
        begun &= (reading.track[before] < 0) & (reading.track[here] == SEND)
        stopped = begun & pieces.bus.stopped[before]
        few = stopped.sum() <= SEVERAL * (reading.begins & (reading.track == SEND)).sum()
        again = begun & pieces.cut[before] | stopped & few
    return np.asarray(here[again])


def as_read(dma: Dma, pieces: Pieces, reading: Reading) -> Dma:
    """Return the DMA with the bursts of a reading.

    What the reading leaves over keeps the burst that it had, unless that is now a frame of fewer pieces.
    """
    kind, reason, write = dma.kind.copy(), dma.reason.copy(), dma.write.copy()
    burst = dma.burst.astype(np.int64)
    was_frame = np.isin(kind, FRAME_KINDS)
    alone = int(burst.max(initial=-1)) + 1 + np.arange(len(burst))
    burst = np.where(was_frame, alone, burst)
    rows, inside = pieces.rows, reading.track >= 0
    left = rows[~inside & was_frame[rows]]
    kind[left] = np.select([write[left] == way for way in LEFT_KINDS], list(LEFT_KINDS.values()))
    reason[left] = LEFT_OVER
    mine = rows[inside]
    track = reading.track[inside]
    kind[mine] = np.array(FRAME_KINDS)[track]
    changed = burst[mine] != dma.burst[mine]
    write[mine] = track
    base = int(alone[-1]) + 1 if len(alone) else 0
    burst[mine] = base + reading.segment[inside]
    same = _unchanged(dma, mine, reading.segment[inside])
    reason[mine[(changed & ~same) | (reason[mine] == EITHER_TAIL)]] = CHEAPEST
    _follow(dma, pieces, (burst, kind, reason, write))
    return replace(dma, kind=kind, reason=reason, write=write, burst=_numbered(dma, burst))


def _unchanged(dma: Dma, rows: Integers, segment: Integers) -> np.ndarray:
    """Return which rows are in a segment that is just the burst it was."""
    if not len(rows):
        return np.zeros(0, dtype=bool)
    count = int(segment.max()) + 1
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(low, segment, dma.burst[rows])
    np.maximum.at(high, segment, dma.burst[rows])
    moved = np.bincount(dma.burst[dma.bus.data_phases > 0], minlength=int(dma.burst.max()) + 1)
    whole = (low == high) & (np.bincount(segment, minlength=count) == moved[np.minimum(low, len(moved) - 1)])
    return np.asarray(whole[segment])


def _follow(dma: Dma, pieces: Pieces, columns: Iterable[Integers]) -> None:
    """Let attempts that moved nothing belong to what they came to."""
    number = join_attempts(dma.bus)
    came_to = np.full(int(number.max(initial=-1)) + 1, -1)
    came_to[number[pieces.rows]] = pieces.rows
    at = came_to[number]
    tried = np.flatnonzero((dma.bus.data_phases == 0) & (at >= 0))
    for column in columns:
        column[tried] = column[at[tried]]


def _numbered(dma: Dma, burst: Integers) -> Integers:
    """Number bursts from 0 in the order of their first attempts."""
    _, which = np.unique(burst, return_inverse=True)
    first_us = np.full(int(which.max(initial=-1)) + 1, np.inf)
    np.minimum.at(first_us, which, dma.bus.start_us)
    rank = np.empty(len(first_us), dtype=np.int32)
    rank[np.argsort(first_us, kind="stable")] = np.arange(len(first_us))
    return rank[which]
