"""How far apart the clocks of two captures are, told by the frames that pass between them.

A frame arrives after it was sent. So every frame from A to B gives a lower bound of the offset of B's capture, and
every frame from B to A an upper one; the frames that took shortest give the tightest bounds. Between them nothing
tells but an assumption: that a frame takes equally long both ways. The offset is then the middle. NTP assumes the
same (RFC 5905, section 8), and it is said wherever the offset is given.

Which send is which receive is not known at first. With the right offset nearly all frames take equally long, so that
the differences of all pairs crowd there. Where frames are sent regularly they crowd at other offsets too, a period
apart; the right one is that with the shortest way there and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np
import pandas as pd

from pcitrace.columns import Floats, Integers, booleans, floats
from pcitrace.estimate import ALIKE, Estimate, unknown
from pcitrace.facts import FCS_BYTES, LEAST_FRAME_BYTES
from pcitrace.frames.ends import HostTraffic, Link
from pcitrace.traffic.dma import Kind

__all__ = ["Coarse", "Passing", "coarse", "passing", "refined"]

CROWD_US = 2.0
"""How far the transits of frames that wait for nothing are apart at most: transit jitter, and a busy bus."""

MOST_LEFT, MOST_ARRIVED = 200, 20_000
"""Frames of one direction that are compared at a time, and those they are compared with: the work stays bounded."""

NEARLY = 0.8
"""An offset counts if so large a share of the frames crowd there as where most do."""

MOST_CROWDS = 40
"""Offsets that are looked at more closely."""

LONGEST_WIRE_US = 130.0
"""Longest time of a frame on the wire: 1518 bytes at 100 Mbit/s."""

SHARPEST_US = 0.01
"""Frames that are less apart fit no better: it is about a sampling step."""

LEAST_SHARE, LEAST_PAIRS = 0.2, 3
"""Fewer pairs than this share of the frames, or than this number, are no crowd."""

PASSING_BYTES = 8 + FCS_BYTES
"""By how many bytes a send and the receive of the same frame may differ: data phases of 64 bits, the check sequence."""


@dataclass(frozen=True)
class Passing:
    """Frames of one direction, each end on the clock of its own capture.

    Attributes
    ----------
    left_us, left_bytes : arrays
        When each had left the sender, at its last bit on the wire, and its bytes without check sequence.
    arrived_us, arrived_bytes : arrays
        When the receiving DMA began, and the bytes it wrote; -1 where that is not known.
    """

    left_us: Floats
    left_bytes: Integers
    arrived_us: Floats
    arrived_bytes: Integers


@dataclass(frozen=True)
class Coarse:
    """What is to be added to the times of the second capture, to some us.

    Attributes
    ----------
    least_us, most_us : float
        Bounds of the offset by the frames there and by those back; -inf or inf where there are none.
    drift_ppm : float
        Of the second clock against the first.
    """

    least_us: float
    most_us: float
    drift_ppm: float = 0.0

    @property
    def both_ways(self) -> bool:
        """Whether frames went both ways, so that the offset can be told."""
        return isfinite(self.least_us) and isfinite(self.most_us)

    @property
    def offset_us(self) -> float:
        """The middle of the bounds; with one bound only, that bound: frames then arrive as soon as they can."""
        if self.both_ways:
            return (self.least_us + self.most_us) / 2
        return self.least_us if isfinite(self.least_us) else self.most_us


def passing(sender: HostTraffic, receiver: HostTraffic, link: Link | None, *, pieces: bool = False) -> Passing | None:
    """Return the frames from one host to another; None if there are none, or nothing tells how long the wire took.

    Without AD the wires tell what is a receive, and on another clock they do not. With `pieces` anything may be one
    that the card moved and that is no send.
    """
    if link is None:
        return None
    if sender.wire is not None and len(sender.wire):
        start_us, end_us = (floats(sender.wire, name) for name in ("start_us", "end_us"))
        known = ~np.isnan(start_us) & ~np.isnan(end_us)
        left_us = end_us[known]
        size = np.rint((end_us - start_us)[known] / link.byte_us).astype(np.int64) - link.preamble_bytes - FCS_BYTES
    else:
        mine = sender.traffic.joined
        sends = mine.of_kind(Kind.SEND_DATA)
        size = np.maximum(mine.bytes[sends], LEAST_FRAME_BYTES)
        left_us = mine.last_data_us[sends] + link.wire_us(size)
    if pieces:
        dma = receiver.traffic.dma
        arrived_us = np.sort(dma.bus.first_data_us[(dma.bus.data_phases > 0) & (dma.kind != Kind.SEND_DATA)])
        arrived_bytes = np.full(len(arrived_us), -1)
    else:
        theirs = receiver.traffic.joined
        receives = theirs.of_kind(Kind.RECEIVE_DATA)
        arrived_us, arrived_bytes = theirs.first_data_us[receives], theirs.bytes[receives]
    return Passing(left_us, size, arrived_us, arrived_bytes) if len(left_us) and len(arrived_us) else None


def coarse(there: Passing | None, back: Passing | None, *, stated: bool = False) -> Coarse | None:
    """Return the offset of a second capture; None where no frame passed between the hosts.

    Parameters
    ----------
    there : Passing or None
        Frames from the host of the first capture to that of the second.
    back : Passing or None
        The others.
    stated : bool
        Whether the times are on one axis already, as somebody stated: then bounds with 0 between them are taken if
        nearly as many frames fit as to any others.
    """
    # Seen from the second capture a frame back is one there: its bound is the other one, with the other sign.
    lower = [_fit(there, one) for one in _crowds(there)] if there is not None else []
    upper = [_fit(back, one) for one in _crowds(back)] if back is not None else []
    if not lower and not upper:
        return None
    if not upper:
        best = max(lower, key=lambda one: one.score)
        return Coarse(best.bound_us, np.inf, best.drift_ppm)
    if not lower:
        best = max(upper, key=lambda one: one.score)
        return Coarse(-np.inf, -best.bound_us, -best.drift_ppm)
    width = np.array([[-two.bound_us - one.bound_us for two in upper] for one in lower])
    # A cut-through card has frames in memory before the wire is done with them: the way seems shorter than nothing.
    width[width < -LONGEST_WIRE_US] = np.inf
    if not np.isfinite(width).any():
        return None
    # What repeats both ways alike is as wide at every period: how many frames fit decides there, and how well.
    score = np.array([[one.score + two.score for two in upper] for one in lower])
    score[np.abs(width) > np.abs(width).min() + 2 * CROWD_US] = -np.inf
    if stated:
        between = np.array([[one.bound_us <= 0 <= -two.bound_us for two in upper] for one in lower])
        score[between & (score >= NEARLY * score.max())] = np.inf
    i, j = np.unravel_index(int(score.argmax()), score.shape)
    return Coarse(lower[i].bound_us, -upper[j].bound_us, (lower[i].drift_ppm - upper[j].drift_ppm) / 2)


@dataclass(frozen=True)
class _Fit:
    """How well the frames of one direction fit to one offset, which is that of the shortest way at time 0."""

    bound_us: float
    drift_ppm: float
    score: float


def _fit(passed: Passing, bound_us: float) -> _Fit:
    """Follow an offset through the run: frames that fit count the more, the less they are apart."""
    near_us, offsets_us = _followed(passed, bound_us)
    slope = float(np.polyfit(near_us, offsets_us, 1)[0]) if len(near_us) > LEAST_PAIRS and np.ptp(near_us) else 0.0
    left_us, arrived_us = passed.left_us[:MOST_ARRIVED], passed.arrived_us[:MOST_ARRIVED]
    about_us = float(np.median(near_us)) if len(near_us) else 0.0
    expected_us = bound_us + slope * (left_us - bound_us - about_us)
    at = np.clip(np.searchsorted(arrived_us, left_us - expected_us - CROWD_US / 4), 0, len(arrived_us) - 1)
    off_us = left_us - arrived_us[at] - expected_us
    fits = np.abs(off_us) <= CROWD_US
    n = int(fits.sum())
    apart_us = float(np.abs(off_us[fits] - np.median(off_us[fits])).mean()) if n else CROWD_US
    score = n * np.log(CROWD_US / max(apart_us, SHARPEST_US))
    highest_us = bound_us + (float(off_us[fits].max()) if n else 0.0)
    return _Fit(highest_us - slope * about_us, 1e6 * slope, float(score))


def _some(passed: Passing) -> slice:
    """Return frames that follow each other, from the middle of what is compared."""
    n = min(len(passed.left_us), MOST_ARRIVED)
    begin = max((n - MOST_LEFT) // 2, 0)
    return slice(begin, begin + MOST_LEFT)


def _crowds(passed: Passing) -> Floats:
    """Return the offsets at which most frames take equally long, the most crowded one first.

    Each is that of the frames there that took shortest.
    """
    some = _some(passed)
    left_us, left_bytes = passed.left_us[some], passed.left_bytes[some]
    arrived_us, arrived_bytes = passed.arrived_us[:MOST_ARRIVED], passed.arrived_bytes[:MOST_ARRIVED]
    alike = np.abs(left_bytes[:, None] - np.maximum(arrived_bytes, LEAST_FRAME_BYTES)[None, :]) <= PASSING_BYTES
    alike |= (arrived_bytes < 0)[None, :]
    offsets = np.sort((left_us[:, None] - arrived_us[None, :])[alike])
    if not len(offsets):
        return offsets
    count = np.searchsorted(offsets, offsets + CROWD_US, side="right") - np.arange(len(offsets))
    most = int(count.max())
    if most < max(LEAST_PAIRS, LEAST_SHARE * min(len(left_us), len(arrived_us))):
        return np.zeros(0)
    # Every frame has one partner: of the crowds that overlap the fullest is kept.
    found: list[int] = []
    for place in np.flatnonzero(count >= NEARLY * most)[np.argsort(-count[count >= NEARLY * most], kind="stable")]:
        if all(abs(offsets[place] - offsets[other]) > CROWD_US for other in found):
            found.append(int(place))
    return np.array([offsets[place + count[place] - 1] for place in found[:MOST_CROWDS]])


def _followed(passed: Passing, bound_us: float) -> tuple[Floats, Floats]:
    """Return when some frames arrived and the offset that each gives, from the middle of them outwards."""
    some = _some(passed)
    rows = np.arange(some.start, min(some.stop, len(passed.left_us)))
    middle = len(rows) // 2
    times: list[float] = []
    found: list[float] = []
    for steps in (rows[middle:], rows[:middle][::-1]):
        expected_us = bound_us
        for row in steps.tolist():
            near = int(np.searchsorted(passed.arrived_us, passed.left_us[row] - expected_us - CROWD_US / 4))
            if near < len(passed.arrived_us):
                offset_us = float(passed.left_us[row] - passed.arrived_us[near])
                if abs(offset_us - expected_us) <= CROWD_US:
                    times.append(float(passed.arrived_us[near]))
                    found.append(offset_us)
                    expected_us += 0.1 * (offset_us - expected_us)
    return np.array(times), np.array(found)


def refined(table: pd.DataFrame, second: str, floor_us: float) -> tuple[Estimate, Estimate, float]:
    """Return what is left of the offset and of the drift of a second capture, from frames that were matched with both.

    Parameters
    ----------
    table : pandas.DataFrame
        The table `frames`, its times on one axis by a coarse offset.
    second : str
        The host of the second capture.
    floor_us : float
        How well the edges themselves are known.

    Returns
    -------
    offset : Estimate
        To be added to the times of the second capture (us) at the time that is returned as well.
    drift : Estimate
        To be added to its drift (ppm).
    about_us : float
        The middle of the frames: offset and drift are independent of each other there.

    Notes
    -----
    A frame from the first host to the second takes T - d, one back T + d, where d is what the offset lacks. T is the
    gap without the wire time. Where both wires were captured it is the time from the wire to the receiving DMA, so that
    the sending sides may differ. It may grow with the length.
    """
    us = {name: floats(table, name) for name in ("gap_us", "wire_us", "t_nic_tx_us", "t_nic_rx_us", "dma_end_us")}
    sign = np.where((table["sender"] == second).fillna(False).to_numpy(dtype=bool), 1.0, -1.0)
    free = ~booleans(table, "queued", True)
    took, doubt_us = us["gap_us"] - us["wire_us"], 0.0
    behind = free & ~np.isnan(us["t_nic_rx_us"])
    if all((behind & (sign == side)).sum() >= LEAST_PAIRS for side in (-1, 1)):
        took = us["t_nic_rx_us"]
        ahead = [np.nanmean(us["t_nic_tx_us"][free & (sign == side)]) for side in (-1, 1)]
        # Cards that differ in sending may differ in receiving as much.
        doubt_us = abs(ahead[1] - ahead[0]) / 2 if abs(ahead[1] - ahead[0]) > ALIKE * max(map(abs, ahead)) else 0.0
    rows = np.flatnonzero(free & ~np.isnan(took) & ~np.isnan(us["dma_end_us"]))
    if min((sign[rows] < 0).sum(), (sign[rows] > 0).sum()) < LEAST_PAIRS:
        return unknown("too few frames went both ways without waiting"), unknown("the offset is not known"), 0.0
    side, time_us = sign[rows], us["dma_end_us"][rows]
    about_us = float(time_us.mean())
    length = floats(table, "length_bytes")[rows]
    columns = [side, side * (time_us - about_us), np.ones(len(rows)), length - length.mean()]
    if np.linalg.matrix_rank(np.column_stack([column / (np.abs(column).max() or 1.0) for column in columns])) < 4:
        columns.pop()
    scale = np.array([np.abs(column).max() or 1.0 for column in columns])
    design = np.column_stack(columns) / scale
    inverse = np.linalg.pinv(design)
    left = took[rows] - design @ (inverse @ took[rows])
    variance = float((left**2).sum()) / max(len(rows) - len(columns), 1) * (inverse**2).sum(axis=1) / scale**2
    value = inverse @ took[rows] / scale
    measured = float(np.hypot(floor_us, doubt_us))
    error = np.sqrt(variance)
    n = len(rows)
    return (
        Estimate(float(value[0]), measured, n, "estimated", sigma_frames=float(error[0]), unit="us"),
        Estimate(float(value[1] * 1e6), 0.0, n, "estimated", sigma_frames=float(error[1] * 1e6), unit="ppm"),
        about_us,
    )
