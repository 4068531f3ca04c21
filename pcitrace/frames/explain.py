"""Why a row of ``frames`` is what it is: what it rests on, what else its pieces could be, and what each would cost.

The costs are those of :mod:`pcitrace.traffic.costs`, learned from the frames that were given: how often a pause, a
size, a time between memory and wire is seen. The runner-up is the cheapest of the readings next to the one given: one
that begins or ends a piece sooner or later, or that is the frame before or behind on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.columns import Floats, Integers, floats, integers
from pcitrace.errors import FrameMatchError
from pcitrace.facts import FCS_BYTES
from pcitrace.frames import Frames
from pcitrace.lattice import BINS, Costs, Learner, bins, even, in_nats
from pcitrace.traffic import Traffic
from pcitrace.traffic.asked import AGREED, STATED, SURE
from pcitrace.traffic.costs import EXCESS_BELOW, SIZES, first
from pcitrace.traffic.dma import BY_RULE, CHEAPEST, KINDS, LEFT_OVER, REASONS, WIRE_LENGTHS
from pcitrace.traffic.goals import phase_bytes
from pcitrace.traffic.pieces import Pieces

__all__ = ["explain"]

NONE: Integers = np.zeros(0, np.int64)

WIDTH = 100
"""Columns of the text."""

TERMS = (
    "data phases beyond those of the wire's bytes",
    "time between memory and wire",
    "pause before its beginning",
    "pauses between its pieces",
    "sizes of its pieces before the last",
    "sizes of the pieces that are left over",
)
"""What is weighed, in the order of the text."""

AGAINST = "what else the capture shows leaves it open, or speaks against it"
"""Why an edge with no margin at all is null: no threshold decides there, and its neighbours need not doubt it."""

EDGES = {
    "send": ("sender", "dma_start_us", "dma_end_us", "send_burst", "margin_send"),
    "receive": ("receiver", "rx_dma_start_us", "rx_dma_end_us", "receive_burst", "margin_receive"),
}
"""Columns of each side of a frame: host, edges, burst, margin."""


@dataclass(frozen=True)
class _Reading:
    """One way to read a frame: from its first to its last piece, as a frame on the wire (-1: none)."""

    head: int
    tail: int
    wire: int
    what: str


class _Side:
    """All frames of one host and direction, and what they teach."""

    def __init__(self, frames: Frames, host: str, side: str) -> None:
        self.side, self.receives = side, side == "receive"
        whose, _, _, burst, _ = EDGES[side]
        self.table = frames.table[frames.table[whose] == host].reset_index(drop=True)
        traffic: Traffic = frames.hosts[host]
        self.dma = traffic.dma
        self.pieces = Pieces.of(self.dma.bus)
        self.of = self.dma.burst[self.pieces.rows]
        self.burst = integers(self.table, burst)
        self.wire_us = np.stack([floats(self.table, f"wire_{edge}_us") for edge in ("start", "end")])
        link = frames.link
        self.wire_bytes = np.full(len(self.table), -1)
        if link is not None:
            size = np.diff(self.wire_us, axis=0)[0] / link.byte_us - link.preamble_bytes - FCS_BYTES
            self.wire_bytes = np.where(np.isnan(size), -1, np.rint(np.nan_to_num(size))).astype(np.int64)
        self.units = self.pieces.bus.data_phases.astype(np.int64)
        there = self.burst >= 0
        moved = np.bincount(self.of, weights=self.units)[self.burst[there]].astype(np.int64)
        self.unit = phase_bytes(self.dma.bus, self.wire_bytes[there], moved)
        self.begin_us, self.end_us = self.pieces.begin_us, self.pieces.bus.last_data_us
        self.excess_cost = first(self.units, 64, self.unit).tracks[self.receives].excess[0]

    def reading(self, row: int) -> _Reading | None:
        """Return how a frame was read; None where it has no burst."""
        mine = np.flatnonzero(self.of == self.burst[row]) if self.burst[row] >= 0 else np.zeros(0, np.int64)
        if not len(mine):
            return None
        return _Reading(int(mine[0]), int(mine[-1]), row if self.wire_bytes[row] >= 0 else -1, "as given")

    @cached_property
    def readings(self) -> list[_Reading]:
        """How all frames were read."""
        found = (self.reading(row) for row in range(len(self.table)))
        return [one for one in found if one is not None]

    def inside(self, one: _Reading) -> Integers:
        """Return the pieces of a reading: those of its burst, and what no frame has."""
        rows = np.arange(one.head, one.tail + 1)
        free = ~np.isin(self.of[rows], self.burst)
        given = self.of[rows] == self.of[one.head] if one.what == "as given" else np.zeros(len(rows), bool)
        return np.asarray(rows[free | given | np.isin(self.of[rows], np.unique(self.of[[one.head, one.tail]]))])

    def excess(self, one: _Reading) -> int:
        """Return by how many data phases a reading exceeds those of its bytes on the wire."""
        return int(self.units[self.inside(one)].sum() - -(-self.wire_bytes[one.wire] // self.unit))

    def lag_us(self, one: _Reading) -> float:
        """Return the time between memory and wire."""
        if self.receives:
            return float(self.begin_us[one.head] - self.wire_us[1, one.wire])
        return float(self.wire_us[0, one.wire] - self.end_us[one.tail])

    def pauses_us(self, one: _Reading) -> Floats:
        """Return the pauses between the pieces of a reading."""
        rows = self.inside(one)
        return self.begin_us[rows[1:]] - self.end_us[rows[:-1]]

    def before_us(self, one: _Reading) -> float:
        """Return the pause before a reading's first piece."""
        return float(self.begin_us[one.head] - self.end_us[one.head - 1]) if one.head else 1e6

    def places(self, one: _Reading, left: Integers) -> list[Integers | None]:
        """Return where each term of a reading is in its table of costs; None for what is not known.

        `left` are the pieces that it leaves over.
        """
        known = one.wire >= 0
        return [
            _clipped(np.array([self.excess(one)]) + EXCESS_BELOW, len(self.excess_cost)) if known else None,
            bins(np.array([self.lag_us(one)])) if known else None,
            bins(np.array([self.before_us(one)])),
            bins(self.pauses_us(one)),
            _clipped(self.units[self.inside(one)[:-1]], SIZES),
            _clipped(self.units[left], SIZES),
        ]

    @cached_property
    def costs(self) -> list[Costs]:
        """What each term costs, as the frames that were given show."""
        seen = [self.places(one, NONE) for one in self.readings]
        seen.append([None] * 5 + [_clipped(self.units[~np.isin(self.of, self.burst)], SIZES)])
        small = (1 + np.arange(SIZES) / 8) ** -2.0
        priors = (
            (self.excess_cost, False),
            *[(even(BINS), True)] * 3,
            (even(SIZES), False),
            (in_nats(small / small.sum()), False),
        )
        return [
            Learner().density(np.concatenate([NONE, *(rows for rows in term if rows is not None)]), prior, smooth)
            for term, (prior, smooth) in zip(zip(*seen, strict=True), priors, strict=True)
        ]

    def weigh(self, one: _Reading, window: Integers) -> list[float | None]:
        """Return what each term of a reading costs; None for what is not known."""
        places = self.places(one, np.setdiff1d(window, self.inside(one)))
        return [
            None if rows is None else float(table[rows].sum()) for table, rows in zip(self.costs, places, strict=True)
        ]

    def others(self, one: _Reading) -> list[_Reading]:
        """Return the readings next to one: its edges moved by a piece, or another frame on the wire."""
        free = ~np.isin(self.of, self.burst)
        out = []
        if one.head < one.tail:
            out += [_Reading(one.head + 1, one.tail, one.wire, "it begins a piece later")]
            out += [_Reading(one.head, one.tail - 1, one.wire, "it ends a piece sooner")]
        if one.head and free[one.head - 1]:
            out.append(_Reading(one.head - 1, one.tail, one.wire, "it begins a piece sooner"))
        if one.tail + 1 < len(free) and free[one.tail + 1]:
            out.append(_Reading(one.head, one.tail + 1, one.wire, "it ends a piece later"))
        if one.wire >= 0:
            for step, which in ((-1, "before"), (1, "behind")):
                wire = one.wire + step
                if 0 <= wire < len(self.wire_bytes) and self.wire_bytes[wire] >= 0:
                    out.append(_Reading(one.head, one.tail, wire, f"it is the frame {which} it on the wire"))
        return out


def _clipped(values: Integers, count: int) -> Integers:
    return np.clip(values.astype(np.int64), 0, count - 1)


def explain(frames: Frames, row: int) -> str:
    """Say what a frame rests on, what else it could be, and what each costs.

    Parameters
    ----------
    frames : Frames
    row : int
        Its number in the column ``frame``.

    Returns
    -------
    str
        Lines of up to 100 columns.

    Raises
    ------
    FrameMatchError
        There is no such row.
    """
    at = np.flatnonzero(integers(frames.table, "frame") == row)
    if not len(at):
        raise FrameMatchError(f"no frame {row}: there are {len(frames)}, from 0 on")
    frame = frames.table.iloc[int(at[0])]
    lines = [_heading(frame), "costs as the frames that were given show them, in nats"]
    for side in EDGES:
        host = frame[EDGES[side][0]]
        if not pd.isna(host) and host in frames.hosts:
            mine = frames.table[frames.table[EDGES[side][0]] == host]
            lines += ["", *_of_side(_Side(frames, str(host), side), frame, int((mine["frame"] < row).sum()), side)]
    lines += ["", *_accesses(frame)]
    indents = [" " * (len(line) - len(line.lstrip()) + 4) for line in lines]
    return "\n".join(fill(line, WIDTH, subsequent_indent=more) for line, more in zip(lines, indents, strict=True))


def _heading(frame: pd.Series) -> str:
    length = "length unknown"
    if not pd.isna(frame["length_bytes"]):
        length = f"{'' if frame['length_exact'] else 'up to '}{frame['length_bytes']} user bytes"
    receiver = "?" if pd.isna(frame["receiver"]) else frame["receiver"]
    return f"frame {frame['frame']}: {frame['sender']} -> {receiver}, {length}, number by {frame['sequence_source']}"


def _of_side(side: _Side, frame: pd.Series, row: int, name: str) -> list[str]:
    _, start, end, _, margin = EDGES[name]
    one = side.reading(row)
    if one is None:
        return [f"{name}: no burst of this host is known to be this frame"]
    rows = side.inside(one)
    dma = side.dma
    reason, kind = (int(values[side.pieces.rows[one.head]]) for values in (dma.reason, dma.kind))
    steps = (STATED, SURE) if pd.isna(frame["wire_start_us"]) else (AGREED, SURE)
    edges = " to ".join("unknown" if pd.isna(frame[key]) else f"{frame[key]:.3f}" for key in (start, end))
    lines = [
        f"{name}: {edges} us, burst {side.burst[row]}: {len(rows)} pieces, {side.units[rows].sum()} data phases",
        f"  rests on: {REASONS[reason]} ({_evidence(reason)}; {KINDS[kind]})",
        f"  {_margin(frame[margin], not frame[[start, end]].isna().any(), steps)}",
    ]
    if one.wire >= 0:
        lag = "later" if side.receives else "before"
        edge = "ends" if side.receives else "begins"
        lines.append(
            f"  wire: {side.wire_bytes[one.wire]} bytes without check sequence; memory {side.lag_us(one):.3f} us "
            f"{lag} {'than it ' if side.receives else 'it '}{edge}"
        )
    return lines + _weighed(side, one)


def _evidence(reason: int) -> str:
    if reason in (CHEAPEST, LEFT_OVER):
        return "weighed"
    if reason == BY_RULE:
        return "by rule: order and pauses"
    return "by rule: lengths on the wire" if reason >= WIRE_LENGTHS else "by rule: addresses and data"


def _margin(margin: Any, given: bool, steps: tuple[float, ...]) -> str:
    """Say whether a margin is enough, and for which of the thresholds that there are."""
    if pd.isna(margin):
        return "margin: none, nothing was weighed where the rules account for the wire"
    above = [step for step in steps if margin < step]
    enough = given or not above
    if margin <= 0 and not enough:
        return f"margin: 0 nats, null: {AGAINST}"
    least = max((step for step in steps if margin >= step), default=steps[0]) if enough else above[0]
    return f"margin: {margin:.1f} nats, {'given' if enough else 'null'} (threshold {least:g})"


def _weighed(side: _Side, one: _Reading) -> list[str]:
    """Return the table of costs, beside the cheapest reading next to the one given."""
    window = np.arange(max(one.head - 1, 0), min(one.tail + 2, len(side.units)))
    window = window[~np.isin(side.of[window], side.burst) | (side.of[window] == side.of[one.head])]
    mine = side.weigh(one, window)
    others = [(other, side.weigh(other, window)) for other in side.others(one)]
    if not others:
        return ["  no other reading lies next to it"]
    best, theirs = min(others, key=lambda pair: _sum(pair[1]))
    lines = [f"  runner-up of {len(others)}: {best.what}", f"  {'cost':48}{'given':>10}{'runner-up':>12}"]
    for term, cost, other in zip(TERMS, mine, theirs, strict=True):
        if cost is not None and other is not None:
            lines.append(f"  {term:48}{cost:10.1f}{other:12.1f}")
    total, more = _sum(mine), _sum(theirs)
    said = "worse" if more >= total else "better here"
    lines.append(f"  {'all':48}{total:10.1f}{more:12.1f}   {abs(more - total):.1f} {said}")
    return lines


def _sum(costs: list[float | None]) -> float:
    return sum(cost for cost in costs if cost is not None)


def _accesses(frame: pd.Series) -> list[str]:
    names = {"csr_first_us": "first access", "csr_last_us": "last before its DMA", "csr_done_us": "update of the queue"}
    said = [f"{name} {'unknown' if pd.isna(frame[key]) else f'{frame[key]:.3f} us'}" for key, name in names.items()]
    margin = "none, nothing was weighed" if pd.isna(frame["margin_csr"]) else f"{frame['margin_csr']:.1f} nats"
    return [f"accesses that start it: {', '.join(said)}", f"  margin: {margin}"]
