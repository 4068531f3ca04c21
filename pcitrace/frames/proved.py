"""Frames of which contents, bytes and times leave nothing open, whatever other frames look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.facts import BYTES_PER_PHASE, LEAST_FRAME_BYTES, LEAST_USER_BYTES
from pcitrace.frames.sides import UNDER_WAY
from pcitrace.traffic import Traffic
from pcitrace.traffic.content import FCS, HEADER, keys, numbers
from pcitrace.traffic.dma import Dma
from pcitrace.traffic.goals import RECEIVE, SEND

if TYPE_CHECKING:
    from pcitrace.frames.ends import Ends

__all__ = ["proved"]


def proved(ends: Mapping[str, Ends], columns: Mapping[str, Any], told: Booleans) -> dict[int, Booleans]:
    """Return of which frames both edges in either memory are proved.

    Both memories have the same content from the first byte on, and no other frame has it: so it begins there. The bytes
    that were moved, one behind the other in one buffer or two, are those of its frame on the wire: so it ends there. In
    one buffer whose first byte is the frame's they may be less than a data phase more; else some that are missing at
    the end could be others. A short frame is padded on the wire; its length field says what of it was read. And only
    one frame of that length was on the wire between the two.

    Example: all frames of a host were of 270 bytes, each read and written before the next one. That each is the frame
    before on the wire was dearer by 7 nats, too little for any to be given (`cardbench`, cacheline 37).

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : mapping of str to arrays
        The frames of all hosts.
    told : array of bool
        Which of them have a content in both memories that no other has.

    Returns
    -------
    dict of int to array of bool
        Of each direction, as seen from the host.
    """
    out = {side: np.zeros(len(told), dtype=bool) for side in (SEND, RECEIVE)}
    for name, end in ends.items():
        wire, other = end.wire, next((one for one in ends.values() if one is not end), None)
        if wire is None or other is None:
            continue
        rows = np.flatnonzero(told & (columns["sender"] == name) & (columns["wire_row"] >= 0))
        rows = rows[_alone(end, other, columns, rows)]
        least = wire.least[columns["wire_row"][rows]]
        written = least + (FCS if other.host.profile.receive_fcs else 0)
        read, alike = _without_padding(end, columns, rows, least), _alike(end, other, columns, rows)
        for side, host, which, size in ((SEND, end, "send", read), (RECEIVE, other, "receive", written)):
            dma, bursts = host.host.traffic.dma, columns[f"{which}_burst"][rows]
            if dma.bus.bytes_exact and len(rows):
                more, buffers = columns[f"{which}_bytes"][rows] - size, _buffers(dma, bursts)
                whole = (more == 0) | ((more >= 0) & (more < BYTES_PER_PHASE) & (buffers == 1) & alike)
                frames = columns[f"{which}_burst"][columns["sender"] == name]
                once = _moved_once(host.host.traffic, frames, bursts)
                out[side][rows[whole & (buffers > 0) & (size > 0) & once]] = True
    return out


def _moved_once(traffic: Traffic, frames: Integers, bursts: Integers) -> Booleans:
    """Return of which bursts, of all frames that went that way, nothing left over was moved where they lie in memory.

    Between the frame before and the one behind it, that is. Else they may be all that was moved again: a card that
    begins anew after each disconnect had begun to read two frames 11 us before (`cardbench`, reread 49).
    """
    joined, dma = traffic.joined, traffic.dma
    mine = np.isin(dma.burst, frames)
    write = dma.write[np.flatnonzero(np.isin(dma.burst, bursts))[0]]
    left = np.flatnonzero(~mine & (dma.bus.data_phases > 0) & (dma.write == write))
    left = left[np.argsort(dma.bus.first_data_us[left])]
    left_us, address = dma.bus.first_data_us[left], dma.bus.address[left].astype(np.int64)
    ended_us, begun_us = (np.sort(one[bursts]) for one in (joined.last_data_us, joined.first_data_us))
    since = np.searchsorted(ended_us, joined.first_data_us[bursts]) - 1
    until = np.searchsorted(begun_us, joined.last_data_us[bursts], side="right")
    low = np.searchsorted(left_us, np.append(ended_us, -np.inf)[since])
    high = np.searchsorted(left_us, np.append(begun_us, np.inf)[until])
    out, order = np.ones(len(bursts), dtype=bool), np.argsort(dma.burst, kind="stable")
    begin, end = (np.searchsorted(dma.burst[order], bursts, side=edge) for edge in ("left", "right"))
    for at in np.flatnonzero(low < high):
        pieces = order[begin[at] : end[at]]
        start = dma.bus.address[pieces].astype(np.int64)
        near = address[low[at] : high[at], None]
        size = dma.bus.bytes[left[low[at] : high[at]], None]
        out[at] = not ((near < start + dma.bus.bytes[pieces]) & (start < near + size)).any()
    return out


def _without_padding(end: Ends, columns: Mapping[str, Any], rows: Integers, least: Integers) -> Integers:
    """Return of how many bytes frames are in the sender's memory: a short one as it says itself; 0 if it does not."""
    if end.send_head is None:
        return np.where(least > LEAST_FRAME_BYTES, least, 0)
    said, there = numbers(end.send_head.take(columns["send_row"][rows]), HEADER - 2, 2, True)
    short = np.where(there & (said < LEAST_USER_BYTES), HEADER + said, 0)
    return np.where(least > LEAST_FRAME_BYTES, least, short)


def _alike(end: Ends, other: Ends, columns: Mapping[str, Any], rows: Integers) -> Booleans:
    """Return which frames are in both memories from the first byte of their first data phase on."""
    if not len(rows) or end.send_head is None or other.receive_head is None:
        return np.zeros(len(rows), dtype=bool)
    sent, received = (
        keys(head.take(columns[one][rows]))
        for head, one in ((end.send_head, "send_row"), (other.receive_head, "receive_row"))
    )
    return np.asarray((sent == received) & (sent != 0))


def _buffers(dma: Dma, bursts: Integers) -> Integers:
    """Return in how many buffers bursts lie: one, or two, the first with as many bytes as most have; 0 for others."""
    rows = np.flatnonzero(np.isin(dma.burst, bursts) & (dma.bus.data_phases > 0))
    rows = rows[np.argsort(dma.burst[rows], kind="stable")]
    burst, address = dma.burst[rows], dma.bus.address[rows].astype(np.int64)
    size = dma.bus.bytes[rows].astype(np.int64)
    begins = np.append(True, burst[1:] != burst[:-1])
    run = np.cumsum(begins | np.append(True, address[1:] != (address + size)[:-1])) - 1
    first = np.append(np.flatnonzero(np.diff(run, prepend=-1)), len(run))[:-1]
    mine, length = burst[first], np.bincount(run, weights=size).astype(np.int64)
    several = np.bincount(mine)
    leads = np.append(True, mine[1:] != mine[:-1])
    header = np.zeros(len(several), dtype=np.int64)
    header[mine[leads]] = length[leads]
    two = several[bursts] == 2
    usual = np.bincount(header[bursts[two]]).argmax() if two.any() else 0
    return np.where((several[bursts] == 1) | (two & (header[bursts] == usual)), several[bursts], 0)


def _alone(end: Ends, other: Ends, columns: Mapping[str, Any], rows: Integers) -> Booleans:
    """Return of which frames no other one of that length was on the wire between the two memories."""
    wire, sent, received = end.wire, end.host.traffic.joined, other.host.traffic.joined
    assert wire is not None
    begin_us, end_us = np.nan_to_num(wire.start_us, nan=-np.inf), np.nan_to_num(wire.end_us, nan=np.inf)
    mine, send, receive = (columns[one][rows] for one in ("wire_row", "send_burst", "receive_burst"))
    # A card that cuts through has a frame on the wire before it has read all of it, or in memory before its end.
    since_us, until_us = sent.last_data_us[send], received.first_data_us[receive]
    if not (begin_us[mine] >= since_us).all():
        since_us = sent.first_data_us[send]
    left_us = end_us
    if not (end_us[mine] <= until_us).all():
        left_us, until_us = begin_us, received.last_data_us[receive]
    near = np.searchsorted(begin_us, since_us)[:, None] + np.arange(UNDER_WAY)
    there, near = near < len(wire), np.minimum(near, len(wire) - 1)
    alike = (wire.least[near] <= wire.most[mine][:, None]) & (wire.most[near] >= wire.least[mine][:, None])
    within = there & (left_us[near] <= until_us[:, None])
    only = (within & alike).sum(axis=1) == 1
    return np.asarray(only & ~within[:, -1] & (within & (near == mine[:, None])).any(axis=1))
