"""What can be counted of one host: its frames that are known at both edges, and the pieces in which they moved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Floats, Integers, floats, integers
from pcitrace.facts import FCS_BYTES, HEADER_BYTES, LEAST_FRAME_BYTES
from pcitrace.frames import Frames
from pcitrace.frames.ends import Link
from pcitrace.traffic import Traffic

__all__ = ["Side", "sides"]

MOST = 2000
"""Frames of each direction that are looked at: more say nothing new."""

CLOCKS_APART = 150e-6
"""By what share the analyser's clock and that of the wire (within 100 ppm, IEEE 802.3) may differ."""

WIDE_BYTES = 6.0
"""Bytes a data phase on the wire, between those of a bus of 32 and of 64 bits."""


@dataclass(frozen=True)
class Side:
    """Frames that a host sends or receives, each with both edges of its DMA, and their pieces; NaN where not known.

    Attributes
    ----------
    sends : bool
    start_us, end_us : arrays of float
        First and last data phase.
    wire_start_us, wire_end_us : arrays of float
    least, most : arrays of int
        Bounds of the bytes on the wire without preamble and check sequence; -1 if not known.
    bus : BusTable
        The pieces, frame by frame, each in order of time.
    frame : array of int
        Which frame each piece is of.
    unit : int
        Bytes a data phase.
    """

    sends: bool
    start_us: Floats
    end_us: Floats
    wire_start_us: Floats
    wire_end_us: Floats
    least: Integers
    most: Integers
    bus: BusTable
    frame: Integers
    unit: int

    def __len__(self) -> int:
        return len(self.start_us)

    @cached_property
    def phases(self) -> Integers:
        """Data phases of each frame."""
        return np.bincount(self.frame, weights=self.bus.data_phases, minlength=len(self)).astype(np.int64)

    @cached_property
    def bytes(self) -> Integers:
        """Bytes that the byte enables of each frame say."""
        return np.bincount(self.frame, weights=self.bus.bytes, minlength=len(self)).astype(np.int64)

    @cached_property
    def last(self) -> Booleans:
        """Which pieces are the last of their frame."""
        return np.append(self.frame[1:] != self.frame[:-1], True)[: len(self.frame)]

    @cached_property
    def ending(self) -> Booleans:
        """Which pieces are the last of their frame, or have only single words behind them."""
        more = np.where(self.last, 0, np.append(self.bus.data_phases[1:], 0)[: len(self.frame)] > 1)
        behind = np.cumsum(more[::-1])[::-1]
        end = np.append(behind, 0)[1:]
        stop = end[self.last]
        return np.asarray(behind - (stop[self.frame] if len(stop) else behind) == 0)

    @cached_property
    def cut(self) -> Booleans:
        """Which pieces the target ended."""
        return self.bus.cut

    @cached_property
    def head(self) -> Integers:
        """First piece of each frame."""
        return np.flatnonzero(np.append(True, self.frame[1:] != self.frame[:-1])[: len(self.frame)])

    @cached_property
    def behind(self) -> Integers:
        """Address behind each piece; -1 if not known."""
        address = self.bus.address.astype(np.int64)
        return np.where(address >= 0, (address & -self.unit) + self.unit * self.bus.data_phases, -1)

    @cached_property
    def jump(self) -> Booleans:
        """Which pieces are followed by one of the same frame in another buffer."""
        following = np.append(self.bus.address[1:].astype(np.int64), -1)[: len(self.frame)]
        apart = np.abs((following & -self.unit) - self.behind)
        return np.asarray(~self.last & (self.behind >= 0) & (apart > BUFFER_APART))

    @cached_property
    def with_cut(self) -> Booleans:
        """Frames of which a piece before the last was ended by the target: part of it may have been moved again."""
        return np.asarray(np.bincount(self.frame[self.cut & ~self.last], minlength=len(self)) > 0)


NEEDED = [
    "sender", "receiver", "send_burst", "receive_burst",
    "dma_start_us", "dma_end_us", "rx_dma_start_us", "rx_dma_end_us", "wire_start_us", "wire_end_us",
]  # fmt: skip
"""Columns of frames that tell what is sent and received."""

BUFFER_APART = 256
"""Bytes from which on a piece that does not go on where the last one ended is in another buffer, not read again."""


def sides(frames: Frames, host: str, steps_us: tuple[float, float]) -> tuple[Side, Side]:
    """Return what a host sends and what it receives.

    `steps_us` are the sampling steps of its own wire and of the wire on which it receives.
    """
    # To choose rows of every column takes longer than all that follows.
    table, traffic = frames.table[NEEDED], frames.hosts[host]
    sent = _side(table[table["sender"] == host], traffic, frames.link, steps_us[0], sends=True)
    received = _side(table[table["receiver"] == host], traffic, frames.link, steps_us[1], sends=False)
    return sent, received


def _side(table: pd.DataFrame, traffic: Traffic, link: Link | None, step_us: float, *, sends: bool) -> Side:
    edges = ("dma_start_us", "dma_end_us") if sends else ("rx_dma_start_us", "rx_dma_end_us")
    burst = integers(table, "send_burst" if sends else "receive_burst")
    start, end = (floats(table, name) for name in edges)
    known = np.flatnonzero((burst >= 0) & ~np.isnan(start) & ~np.isnan(end))[:MOST]
    dma = traffic.dma
    number = np.full(int(dma.burst.max(initial=-1)) + 1, -1)
    number[burst[known]] = np.arange(len(known))
    rows = np.flatnonzero((dma.bus.data_phases > 0) & (number[dma.burst] >= 0)) if len(number) else np.zeros(0, int)
    rows = rows[np.lexsort((dma.bus.start_us[rows], number[dma.burst[rows]]))]
    wire_start, wire_end = floats(table, "wire_start_us")[known], floats(table, "wire_end_us")[known]
    least, most = _lengths(wire_end - wire_start, link, step_us)
    side = Side(
        sends,
        start[known],
        end[known],
        wire_start,
        wire_end,
        least,
        most,
        dma.bus.take(rows),
        number[dma.burst[rows]] if len(number) else rows,
        4,
    )
    return replace(side, unit=_unit(side))


def _lengths(took_us: Floats, link: Link | None, step_us: float) -> tuple[Integers, Integers]:
    """Return bounds of the bytes of frames, without preamble and check sequence; -1 if not known."""
    if link is None:
        return np.full(len(took_us), -1), np.full(len(took_us), -1)
    size = took_us / link.byte_us
    off = step_us / link.byte_us + CLOCKS_APART * size + 0.1
    apart = link.preamble_bytes + FCS_BYTES
    known = ~np.isnan(size)
    least = np.where(known, np.ceil(np.where(known, size - off, 0)) - apart, -1)
    most = np.where(known, np.floor(np.where(known, size + off, 0)) - apart, -1)
    return np.maximum(least, -1).astype(np.int64), most.astype(np.int64)


def _unit(side: Side) -> int:
    """Return the bytes of a data phase: without C/BE# by how many the frames on the wire have a data phase."""
    if side.bus.wide.any():
        return 8
    long = side.least > HEADER_BYTES + 2 * LEAST_FRAME_BYTES
    if side.bus.bytes_exact or not long.any():
        return 4
    return 8 if np.median(side.least[long] / np.maximum(side.phases[long], 1)) > WIDE_BYTES else 4
