"""How long each frame is and which number it has: from the wire, from memory, from what the frame itself says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcitrace.columns import Booleans, Integers, alike, pick
from pcitrace.facts import LARGEST_LENGTH_FIELD as LARGEST_LENGTH
from pcitrace.facts import LEAST_USER_BYTES
from pcitrace.frames.ends import Ends
from pcitrace.traffic.content import FCS, HEADER, WireFrames, fcs_in_memory, numbers
from pcitrace.traffic.dma import SHORTEST_RECEIVED, Dma
from pcitrace.traffic.goals import BLOCK, RECEIVE, SEND, most_added

__all__ = ["SequenceField", "other_lengths", "sequence_numbers", "user_lengths"]

FEW = 0.1
"""Share of the frames that may have been written with a status word, or without one of theirs."""

UNBOUNDED = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SequenceField:
    """Where the sender writes the number of a frame, in bytes from the start of the user data."""

    offset: int
    bytes: int
    byte_order: str = "big"


def user_lengths(rows: dict[str, Any], mine: Ends, theirs: Ends | None, told: tuple[Booleans, Booleans]) -> None:
    """Give each frame its user bytes, and say whether they are exact.

    `told` says of which frames data phases tell the length where bytes do not, as they were read and written. Between
    the pieces of others there is one of no frame: it may be theirs. Of 39 frames that a DP83820 received (`realcards`
    38, 16 channels) five lacked a word so, and four of them seemed to be a byte shorter, exactly.
    """
    bounds = _Bounds(len(rows["send_row"]))
    if mine.wire is not None:
        at = rows["wire_row"]
        bounds.narrow(pick(mine.wire.length, at) >= 0, pick(mine.wire.least, at), pick(mine.wire.most, at))
    if theirs is not None:
        _as_written(bounds, rows, theirs, told[RECEIVE])
    _as_read(bounds, rows, mine, told[SEND])
    best = bounds.high
    if mine.wire is not None:
        length = pick(mine.wire.length, rows["wire_row"])
        best = np.where(length >= 0, np.clip(length, bounds.low, bounds.high), best)
    known = bounds.high < UNBOUNDED
    user, size = np.where(known, best - HEADER, -1), rows["send_bytes"]
    said_exactly = np.zeros(len(user), dtype=bool)
    # What the frame itself says: an IEEE 802.3 length field, which also tells padding from data.
    for head, row in ((mine.send_head, rows["send_row"]), (mine.wire.head if mine.wire else None, rows["wire_row"])):
        if head is None:
            continue
        value, there = numbers(head, HEADER - 2, 2, True)
        said = pick(value, row)
        says = known & (row >= 0) & (pick(there.astype(np.int64), row) > 0) & (said <= LARGEST_LENGTH)
        on_wire = np.maximum(said, LEAST_USER_BYTES) + HEADER
        agrees = says & (on_wire >= bounds.low) & (on_wire <= bounds.high)
        # Any small number agrees with a padded frame: where no longer frame has the field, no short one has it.
        longer = known & (row >= 0) & (bounds.low > SHORTEST_RECEIVED)
        agrees &= bool((longer & agrees).any()) or not longer.any()
        user = np.where(agrees, said, user)
        said_exactly |= agrees
    # A padded frame without a length field: memory says how much of it is data, up to a dword.
    padded = known & ~said_exactly & (bounds.low <= SHORTEST_RECEIVED)
    rows["length_bytes"] = np.where(padded & (size > 0), np.minimum(user, np.maximum(size - HEADER, 0)), user)
    rows["length_exact"] = ((known & (bounds.low == bounds.high)) | said_exactly) & ~padded


def _as_written(bounds: _Bounds, rows: dict[str, Any], theirs: Ends, told: Booleans) -> None:
    """Narrow the bounds by what the receiver wrote."""
    size, written = rows["receive_bytes"], rows["receive_bytes"] > 0
    least, most = fcs_in_memory(theirs.host.profile)
    if not theirs.host.traffic.dma.bus.bytes_exact:
        bounds.hold(written & told, size, rows["receive_phases"], (least, most))
        return
    # Written with byte enables: exact, but for the check sequence where nobody says whether it is written.
    for fcs in {least, most}:
        fits = written & (size - fcs >= bounds.low) & (size - fcs <= bounds.high) & bounds.seen
        bounds.narrow(fits, size - fcs, size - fcs)
    bounds.narrow(written & ~bounds.seen, size - most, size - least)


def _as_read(bounds: _Bounds, rows: dict[str, Any], mine: Ends, told: Booleans) -> None:
    """Narrow the bounds by what the sender read."""
    size, read, reads = rows["send_bytes"], rows["send_bytes"] > 0, mine.host.traffic.dma
    most = np.maximum(size, SHORTEST_RECEIVED)
    if reads.bus.bytes_exact:
        # Whole data phases can exceed a frame; not if not all bytes were enabled.
        width = np.where(size > 4 * rows["send_phases"], 8, 4)
        rounded = np.where(size % width == 0, width - 1, 0)
        bounds.narrow(read, np.maximum(size - rounded, SHORTEST_RECEIVED), most)
        return
    # Of what was cut some may have been read twice.
    cut = np.isin(rows["send_burst"], reads.burst[reads.bus.cut])
    bounds.hold(read & told & ~cut, size, rows["send_phases"], (0, 0), BLOCK)
    bounds.narrow(read & cut, np.zeros_like(size), most)


def other_lengths(
    rows: dict[str, Any], wire: WireFrames, inside: Integers, reads: Dma, writes: Dma
) -> tuple[Booleans, Booleans]:
    """Return which frames were written with other data phases than what was read tells, and which edges that moves.

    Frames lie in memory alike on both sides, so that what is written has as many data phases as what is read, or always
    some more: how many is seen where the wire leaves only one number. Short frames are padded to be written; where a
    read was cut and is longer than its frame some of it was read twice, and tells nothing. What differs was given a
    status word at either end, or a word of it was taken for status; not one in its middle, where that moves no edge: of
    the `inside` data phases that were left out, or, if neither end is as short, a piece of its own.
    """
    read, written = rows["send_phases"], rows["receive_phases"]
    width = np.where(rows["receive_bytes"] > 4 * written, 8, 4)
    least, most = (-(-pick(bound, rows["wire_row"]) // width) for bound in (wire.least, wire.most))
    both = (read > 0) & (written > 0) & (pick(wire.length, rows["wire_row"]) >= 0)
    both &= (read <= most) | ~np.isin(rows["send_burst"], reads.burst[reads.bus.cut])
    more = written - np.maximum(read, -(-SHORTEST_RECEIVED // width))
    one = both & (least == most)
    # The check sequence, a word, is written of all frames or of none.
    alike = np.flatnonzero(one & (width == FCS) & (pick(wire.least, rows["wire_row"]) > SHORTEST_RECEIVED))
    value, count = np.unique(more[alike], return_counts=True)
    rare = np.zeros_like(both)
    rare[alike] = np.isin(more[alike], value[count <= FEW * len(alike)])
    told = np.unique(more[one & ~rare])
    if not len(told):
        return np.zeros_like(both), np.zeros_like(both)
    at = np.searchsorted(told, more)
    next_one = pick(told, at % len(told))
    other = both & ((least < most) | rare) & ((at == len(told)) | (next_one > more))
    moved = other & ((at == len(told)) | (next_one > more + inside))
    some = np.flatnonzero(moved & (at > 0))
    moved[some] = ~_in_the_middle(writes, rows["receive_burst"][some], (more - told[at - 1])[some])
    return other, moved


def _in_the_middle(writes: Dma, bursts: Integers, phases: Integers) -> Booleans:
    """Return which bursts have a piece of so many data phases in their middle, and none at either end."""
    order = np.argsort(bursts)
    pieces = np.flatnonzero(np.isin(writes.burst, bursts) & (writes.bus.data_phases > 0))
    pieces = pieces[np.argsort(writes.burst[pieces], kind="stable")]
    begin = np.searchsorted(writes.burst[pieces], bursts[order])
    end = np.searchsorted(writes.burst[pieces], bursts[order], side="right")
    which = np.repeat(order, end - begin)
    alike = writes.bus.data_phases[pieces] == phases[which]
    out = np.zeros(len(bursts), dtype=bool)
    out[which[alike]] = True
    out[order] &= ~alike[begin] & ~alike[end - 1]
    return out


class _Bounds:
    """Bounds of the frames' bytes on the wire, check sequence apart, narrowed by every place that saw them."""

    def __init__(self, count: int) -> None:
        self.low = np.zeros(count, dtype=np.int64)
        self.high = np.full(count, UNBOUNDED)
        self.seen = np.zeros(count, dtype=bool)

    def narrow(self, rows: Booleans, low: Integers, high: Integers) -> None:
        """Take what one place says of some frames, where it does not contradict what is known."""
        rows = rows & (low <= self.high) & (high >= self.low)
        self.low = np.where(rows, np.maximum(self.low, low), self.low)
        self.high = np.where(rows, np.minimum(self.high, high), self.high)
        self.seen |= rows

    def hold(
        self, rows: Booleans, size: Integers, phases: Integers, fcs: tuple[int, int], blocks: tuple[int, ...] = ()
    ) -> None:
        """Take what data phases say, whose bytes are not known: up to all of them.

        Frames of one card begin at the same byte of a word, with a check sequence or without, lie in one buffer or two,
        and go on to the end of a word, or all to the end of a block: what nearly all of them on the wire leave
        possible. Of a frame that it does not fit it says nothing: that one may have been written with a status word.
        Frames that began at the first or the third byte of a word (a card of another maker, overload) all could begin
        at the second; 3 of 56 lengths were said to be exact, and a byte short.
        """
        width = int(np.where(size > 4 * phases, 8, 4)[rows].max(initial=4))
        seen = rows & self.seen & (self.low > SHORTEST_RECEIVED)
        alike = (block for block in blocks if block > width and len(np.unique(size[seen] % block)) == 1)
        low, high = size, np.zeros_like(size)
        for block in (width, *alike):
            more = np.arange(fcs[0], fcs[1] + most_added(width) + 1)
            if seen.any():
                fits = self._left(seen, size, more, block)
                usual = np.array([fit.mean() >= 1 - FEW for fit in fits])
                rows = rows.copy()
                rows[seen] &= np.logical_and.reduce([fits[at] for at in np.flatnonzero(usual)], initial=True)
                more = more[usual]
                if len(more) and (more % 2).all():
                    # That no frame begins at an even byte is rarer than that they begin at different ones.
                    more = np.arange(max(more[0] - 1, fcs[0]), more[-1] + 2)
            if len(more):
                low, high = np.minimum(low, size - more[-1] - block + 1), np.maximum(high, size - more[0])
        self.narrow(rows & (low <= high), *(np.maximum(bound, SHORTEST_RECEIVED) for bound in (low, high)))

    def _left(self, rows: Booleans, size: Integers, more: Integers, block: int) -> list[Booleans]:
        """Return which of some frames may be of so many bytes less at most, and of more than a block less than that."""
        low, high, size = self.low[rows], self.high[rows], size[rows]
        return [(size - added >= low) & (size - added - block < high) for added in more.tolist()]


def sequence_numbers(rows: dict[str, Any], mine: Ends, theirs: Ends | None, place: SequenceField | None) -> None:
    """Number the frames: by what they carry, else by their order."""
    n = len(rows["send_row"])
    order = np.empty(n, dtype=np.int64)
    order[np.argsort(rows["order_us"], kind="stable")] = np.arange(n)
    value, source = order, alike(n, "order")
    if place is not None:
        heads_of = [(mine.wire.head if mine.wire else None, "wire_row"), (mine.send_head, "send_row")]
        heads_of.append((theirs.receive_head if theirs else None, "receive_row"))
        found = np.full(n, -1)
        for head, name in heads_of:
            if head is None:
                continue
            number, there = numbers(head, HEADER + place.offset, place.bytes, place.byte_order == "big")
            usable = (rows[name] >= 0) & (found < 0) & (pick(there.astype(np.int64), rows[name]) > 0)
            found = np.where(usable, pick(number, rows[name]), found)
        if (found >= 0).all():
            value, source = found, alike(n, "frame")
    rows["sequence"] = value
    rows["sequence_source"] = source
