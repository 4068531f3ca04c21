"""What frames hold, as far as it is seen: their first bytes, a key made of them, their length.

The same frame read from memory, sent on the wire and written to memory has the same bytes; so it has the same key.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.columns import Booleans, Floats, Integers, floats
from pcitrace.facts import ADDRESS_BYTES
from pcitrace.facts import FCS_BYTES as FCS
from pcitrace.facts import HEADER_BYTES as HEADER
from pcitrace.profiles import Profile
from pcitrace.traffic.dma import Dma, moved_twice
from pcitrace.traffic.phases import Phases

__all__ = [
    "FCS", "HEADER", "UNALIGNED", "Heads", "WireFrames", "begins_alike", "behind_us", "briefly", "heads",
    "in_common", "keys", "lies_inside", "once", "own_keys", "unlike", "wire_frames",
]  # fmt: skip

KEY_BYTES = 60
"""Bytes that make up a key: what every frame has on the wire, check sequence apart."""

HEAD = KEY_BYTES + 8
"""Bytes kept of each frame: a key may begin up to 7 bytes later, where a buffer is not aligned."""

BRIEF_BYTES = HEADER + 4
"""Bytes that tell frames apart in which fewer than those of a key are data: a header and a number. A judgement: cards
move whole words, and what tells frames apart mostly comes first."""

START_OF_FRAME = 0xD5

CLOCKS_APART = 150e-6
"""By what share the analyser's clock and that of the wire (within 100 ppm, IEEE 802.3) may differ."""

# Powers of an odd multiplier modulo 2**64: a polynomial hash of bytes, computed as one matrix product.
_POWERS = np.cumprod(np.full(KEY_BYTES, 0x9E3779B97F4A7C15, dtype=np.uint64), dtype=np.uint64)

Bytes = npt.NDArray[np.uint8]
Keys = npt.NDArray[np.uint64]

UNALIGNED, WIDELY = 3, 7
"""Bytes before a frame whose buffer is not aligned, where whole dwords are read; and where a data phase may
be of 64 bits (PCI 2.2, 3.8)."""


def fcs_in_memory(profile: Profile) -> tuple[int, int]:
    """Return the least and the most bytes of frame check sequence that a card writes behind a received frame."""
    return FCS if profile.receive_fcs else 0, 0 if profile.receive_fcs is False else FCS


@dataclass(frozen=True)
class Heads:
    """First bytes of frames: `data` has shape (frames, HEAD), `length` says how many are there."""

    data: Bytes
    length: Integers

    def __len__(self) -> int:
        return len(self.length)

    def take(self, rows: Integers) -> Heads:
        """Return those of some frames."""
        return Heads(self.data[rows], self.length[rows])


def keys(head: Heads, offset: int = 0, size: int = KEY_BYTES) -> Keys:
    """Return a key of each frame's first 60 bytes, or of fewer; 0 where they are not all there."""
    value = head.data[:, offset : offset + size].astype(np.uint64) @ _POWERS[:size]
    value[value == 0] = 1
    value[head.length < size + offset] = 0
    return np.asarray(value)


def own_keys(head: Heads | None, references: Keys, count: int) -> Keys:
    """Return keys of bursts; a buffer that is not aligned begins where the key is one seen elsewhere."""
    if head is None:
        return np.zeros(count, dtype=np.uint64)
    chosen = keys(head)
    strange = np.flatnonzero(~pd.Index(chosen).isin(references) | (chosen == 0))
    for offset in range(1, UNALIGNED + 1):
        shifted = keys(Heads(head.data[strange], head.length[strange]), offset)
        found = pd.Index(shifted).isin(references) & (shifted != 0)
        chosen[strange[found]] = shifted[found]
        strange = strange[~found]
    return chosen


def briefly(key: Keys, sent: Heads | None, received: Heads | None) -> Keys:
    """Return keys of sends, of which some had none: where fewer bytes are data, the rest of them is padding.

    It is the key of the receive that begins with the same `BRIEF_BYTES`, if no other does, and no other send either;
    and whose other bytes are the same, as far as there are any but those that fill up the last word. Two sends of 34
    and 42 bytes were not found in a memory, and 25 frames before them, whose data no key told apart, had the wires of
    others (`cardbench`, tiny 48).
    """
    short = np.flatnonzero(key == 0)
    if sent is None or received is None or not len(short):
        return key
    theirs, offset = keys(received, size=BRIEF_BYTES), np.zeros(len(key), dtype=np.int64)
    mine, out = keys(sent, size=BRIEF_BYTES), key.copy()
    for more in range(1, UNALIGNED + 1):
        strange = short[~np.isin(mine[short], theirs)]
        moved = keys(sent.take(strange), more, BRIEF_BYTES)
        known = np.isin(moved, theirs)
        mine[strange[known]], offset[strange[known]] = moved[known], more
    for one, other in zip(*in_common(mine, theirs), strict=True):
        begin, end = offset[one], sent.length[one] - UNALIGNED
        there = sent.data[one, begin:end] == received.data[other, : max(end - begin, 0)]
        if key[one] == 0 and there.all():
            out[one] = keys(received.take(np.array([other])))[0]
    return out


def once(key: Keys) -> tuple[Keys, Integers]:
    """Return the keys that occur once, and where."""
    known = np.flatnonzero(key)
    values, first, count = np.unique(key[known], return_index=True, return_counts=True)
    return values[count == 1], known[first[count == 1]]


def in_common(one: Keys, other: Keys) -> tuple[Integers, Integers]:
    """Return where the keys are on two sides that occur once on either."""
    (mine, i), (theirs, j) = once(one), once(other)
    _, rows, other_rows = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    return i[rows], j[other_rows]


ENOUGH = 24
"""Bytes that are not equal by chance: an Ethernet header and ten more. A judgement: it need only be far more than
one data phase."""


def lies_inside(one: Heads, other: Heads) -> Integers:
    """Return how many bytes of the other are before first bytes that are inside it, behind its first data phase; 0
    where they are not.

    Parameters
    ----------
    one, other : Heads
        The same frames, a row each.
    """

    def same(some: Integers, offset: int) -> Booleans:
        there = np.minimum(one.length[some], other.length[some] - offset)
        differs = one.data[some, : HEAD - offset] != other.data[some, offset:]
        return np.asarray((there >= ENOUGH) & ~(differs & (np.arange(HEAD - offset) < there[:, None])).any(axis=1))

    out = np.zeros(len(one), dtype=np.int64)
    # What was read again begins alike; a buffer that is not aligned begins within its first data phase.
    unlike = np.flatnonzero((one.data[:, : UNALIGNED + 1] != other.data[:, : UNALIGNED + 1]).any(axis=1))
    for offset in range(UNALIGNED + 1):
        unlike = unlike[~same(unlike, offset)]
    for offset in range(UNALIGNED + 1, HEAD - ENOUGH + 1):
        found = same(unlike, offset)
        out[unlike[found]] = offset
        unlike = unlike[~found]
    return out


def behind_us(dma: Dma, phases: Phases, bursts: Integers, offset: Integers) -> Floats:
    """Return how long after the first data phase of each burst the one comes that moves the byte behind so many; NaN
    where that is not in its first transaction.
    """
    moved = np.flatnonzero(dma.bus.data_phases > 0)
    _, first = np.unique(dma.burst[moved], return_index=True)
    rows = moved[first[np.searchsorted(dma.burst[moved][first], bursts)]]
    begin, length = phases.ranges(dma.bus.transaction[rows])
    nth = np.arange(HEAD // 4 + 1)
    at = begin[:, None] + np.minimum(nth, length[:, None] - 1)
    enables, time_us = (column[at.ravel()].reshape(at.shape) for column in (phases.byte_enables, phases.time_us))
    lanes = np.where(dma.bus.wide[rows], 8, 4)[:, None, None]
    lane = np.arange(8)
    width = ((np.maximum(enables, 0)[..., None] >> lane & 1 == 0) & (lane < lanes)).sum(axis=2)
    before = (np.cumsum(width, axis=1) <= offset[:, None]).sum(axis=1)
    there_us = time_us[np.arange(len(at)), np.minimum(before, len(nth) - 1)] - time_us[:, 0]
    return np.where(before < np.minimum(length, len(nth)), there_us, np.nan)


def begins_alike(one: Heads, other: Heads) -> Booleans:
    """Return which first bytes are those of the other, `ENOUGH` of them, wherever in its first data phase each begins.

    Parameters
    ----------
    one, other : Heads
        What is taken for the same frames, a row each. The last word of `one` may hold more than the frame.
    """
    size, out = HEAD - UNALIGNED, np.zeros(len(one), dtype=bool)
    for here, there in product(range(UNALIGNED + 1), repeat=2):
        many = np.minimum(one.length - here - UNALIGNED, other.length - there)
        differs = one.data[:, here : here + size] != other.data[:, there : there + size]
        out |= (many >= ENOUGH) & ~(differs & (np.arange(size) < many[:, None])).any(axis=1)
    return out


def unlike(one: Heads, other: Heads) -> Booleans:
    """Return which first bytes cannot be those of the other: their addresses differ, wherever a frame may begin in its
    first data phase. Behind these a card may add a tag, or fill in a sum.

    Parameters
    ----------
    one, other : Heads
        What is taken for the same frames, a row each.
    """
    strange = np.flatnonzero(np.minimum(one.length, other.length) >= ADDRESS_BYTES + WIDELY)
    for here, there in product(range(WIDELY + 1), repeat=2):
        first = one.data[strange, here : here + ADDRESS_BYTES]
        strange = strange[(first != other.data[strange, there : there + ADDRESS_BYTES]).any(axis=1)]
    return np.isin(np.arange(len(one)), strange)


def heads(dma: Dma, phases: Phases, bursts: Integers) -> Heads:
    """Return the first bytes of DMA bursts, enabled byte lanes only.

    Parameters
    ----------
    dma : Dma
    phases : Phases
        Data phases of the same bus.
    bursts : array of int
        Numbers of the bursts wanted.

    Returns
    -------
    Heads
        One row a burst.
    """
    rows = np.flatnonzero(np.isin(dma.burst, bursts) & (dma.bus.data_phases > 0))
    rows = rows[np.argsort(dma.burst[rows], kind="stable")]
    order = np.argsort(bursts)
    which = order[np.searchsorted(bursts[order], dma.burst[rows])]
    begin, length = phases.ranges(dma.bus.transaction[rows])
    # Of what was moved again only the second time counts.
    wide = dma.bus.wide[rows]
    length = np.maximum(length - moved_twice(dma, rows) // np.where(wide, 8, 4), 0)
    before = _within(which, length)
    most = HEAD // 4 + 1
    length = np.clip(most - before, 0, length)
    nth = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    at = np.repeat(begin, length) + nth
    data = phases.data[at].view(np.uint64)
    enables = np.maximum(phases.byte_enables[at], 0)
    width = 8 if wide[length > 0].all() else 4
    if (width == 8 or not wide[length > 0].any()) and not (enables & (1 << width) - 1).any():
        # Whole data phases, as most cards move them, take their places as they are.
        words = np.zeros((len(bursts), most), dtype=f"<u{width}")
        words.ravel()[np.repeat(most * which + before, length) + nth] = data
        there = width * np.bincount(which, weights=length, minlength=len(bursts)).astype(np.int64)
        return Heads(words.view(np.uint8)[:, :HEAD], np.minimum(there, HEAD))
    wide, burst = np.repeat(wide, length), np.repeat(which, length)
    lanes = np.arange(8)
    byte = (data[:, None] >> (8 * lanes).astype(np.uint64) & np.uint64(0xFF)).astype(np.uint8)
    enabled = (enables[:, None] >> lanes & 1 == 0) & ((lanes < 4) | wide[:, None])
    burst = np.repeat(burst, 8).reshape(-1, 8)[enabled]
    place = _within(burst, np.ones(len(burst), dtype=np.int64))
    out = np.zeros((len(bursts), HEAD), dtype=np.uint8)
    fits = place < HEAD
    out[burst[fits], place[fits]] = byte[enabled][fits]
    return Heads(out, np.minimum(np.bincount(burst, minlength=len(bursts)), HEAD))


def _within(group: Integers, amount: Integers) -> Integers:
    """Return for each row the sum of the amounts of the rows before it in its group; groups are in one piece each."""
    total = np.cumsum(amount) - amount
    starts = np.r_[True, group[1:] != group[:-1]] if len(group) else np.zeros(0, dtype=bool)
    base = total[starts]
    return total - base[np.cumsum(starts) - 1] if len(group) else total


@dataclass(frozen=True)
class WireFrames:
    """Frames on the wire of one sender, in order of time; NaN and -1 where not known.

    Attributes
    ----------
    start_us, end_us : arrays of float
        Rise and fall of TX_EN.
    length : array of int
        Bytes of the frame without preamble and frame check sequence, padding included.
    least, most : arrays of int
        Bounds of `length`, equal where the bytes were captured.
    head : Heads or None
        First bytes, where they were captured.
    fcs_ok : array of int
        1 right, 0 wrong, -1 not known.
    preamble_bytes : int
        Preamble and start of frame.
    """

    start_us: Floats
    end_us: Floats
    length: Integers
    least: Integers
    most: Integers
    head: Heads | None
    fcs_ok: Integers
    preamble_bytes: int = 8

    def __len__(self) -> int:
        return len(self.start_us)


def wire_frames(wire: pd.DataFrame, byte_us: float | None, preamble_bytes: int, step_us: float) -> WireFrames:
    """Read the table of a wire probe.

    Parameters
    ----------
    wire : pandas.DataFrame
        Columns `start_us`, `end_us`, `bytes`; rows that the capture cuts have nulls.
    byte_us : float or None
        Time of one byte on the wire; None if the link is not described.
    preamble_bytes : int
        Preamble and start of frame.
    step_us : float
        Sampling step of the capture: how far each edge of TX_EN may be off.

    Returns
    -------
    WireFrames
    """
    start, end = floats(wire, "start_us"), floats(wire, "end_us")
    contents = pa.array(wire["bytes"], pa.binary(), from_pandas=True)
    seen = np.flatnonzero(np.asarray(pc.binary_length(contents).fill_null(0)))
    n = len(wire)
    length = np.full(n, -1)
    least, most = length.copy(), length.copy()
    fcs = np.full(n, -1)
    if byte_us is not None:
        known = ~np.isnan(start) & ~np.isnan(end)
        size = (end - start)[known] / byte_us
        off = step_us / byte_us + CLOCKS_APART * size
        length[known] = np.rint(size) - (preamble_bytes + FCS)
        # The duration is wrong by less than a step; some whole number of bytes there is all the same.
        least[known] = np.minimum(np.ceil(size - off) - (preamble_bytes + FCS), length[known])
        most[known] = np.maximum(np.floor(size + off) - (preamble_bytes + FCS), length[known])
    data = np.zeros((n, HEAD), dtype=np.uint8)
    there = np.zeros(n, dtype=np.int64)
    for row, content in zip(seen.tolist(), contents.take(pa.array(seen)).to_pylist(), strict=True):
        sfd = content.find(START_OF_FRAME, 0, 16)
        frame = content[sfd + 1 :]
        length[row] = least[row] = most[row] = max(len(frame) - FCS, 0)
        fcs[row] = int(len(frame) > FCS and zlib.crc32(frame[:-FCS]) == int.from_bytes(frame[-FCS:], "little"))
        part = frame[: min(HEAD, max(len(frame) - FCS, 0))]
        data[row, : len(part)] = np.frombuffer(part, dtype=np.uint8)
        there[row] = len(part)
    head = Heads(data, there) if len(seen) else None
    return WireFrames(start, end, length, least, most, head, fcs, preamble_bytes)


def numbers(head: Heads, at: int, size: int, big: bool) -> tuple[Integers, Booleans]:
    """Read an unsigned number at a place in the frame; return the numbers and where they are known."""
    known = head.length >= at + size
    parts = head.data[:, at : at + size].astype(np.int64)
    order: Sequence[int] = range(size - 1, -1, -1) if big else range(size)
    value = sum((parts[:, i] << 8 * shift for shift, i in enumerate(order)), np.zeros(len(head), dtype=np.int64))
    return value, known
