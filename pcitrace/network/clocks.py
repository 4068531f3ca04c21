"""Two hosts' clocks compared by exchanges of frames.

Every exchange says between what the peer's clock is ahead of ours: by less than the request's way seen by both clocks,
by more than the reply's taken negatively. A straight line that keeps away from both as far as it can is the comparison
(two-way hull). Nothing of this sees whether one direction takes longer than the other: half the distance between the
two sides bounds that.

Sources: S. B. Moon, P. Skelly, D. Towsley, INFOCOM 1999, for lines under one-way delays; the papers' method, midpoints
of the quickest exchanges and a linear fit: R. Hughes-Jones and F. Saka, ATLAS note, 2000.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pcitrace.errors import FitError
from pcitrace.network.clocklines import LARGEST_DRIFT_PPM, apart, lines, sides, steps, widest
from pcitrace.network.logs import FARTHEST_NS
from pcitrace.network.sizes import clock_step

__all__ = ["Clock", "Segment", "fit", "of_summary"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LEAST_SPAN_NS = 50e6
"""Exchanges over less time tell no drift."""

OFTEN, SEVERAL = 20, 5
"""Exchanges for each step, and steps, from which on it is no clock that steps but one that runs differently."""

HALVES = 24
"""Random halves of the exchanges: how far their fits are from that of all shows how far that one is from the truth."""

TOUCHING = 1.35
"""By how much halves scatter more than all: 1 where every exchange counts alike, 2 where only the quickest do;
between."""

LEAST_FOR_SCATTER = 32
"""Exchanges below which only the bound is known."""

QUICKER = 3.0
"""Times by how much a tenth of the exchanges is quicker than half of them that none can be quicker than these."""

FEW = 0.05

GROUP, KEEP = 40, 4
"""The papers' method: of 40 exchanges in a row the quarter with the shortest round trips."""


@dataclass(frozen=True)
class Segment:
    """Peer's clock = t + base + beside + drift (t - reference), t on ours, from a time on.

    Attributes
    ----------
    start_ns, end_ns : int
        First and last time of ours at which it was seen to be so.
    reference_ns : int
    base_ns : int
        Of all segments alike: clocks may be decades apart, of which a float tells no ns.
    beside_us, offset_sigma_us : float
    drift_ppm, drift_sigma_ppm : float
        0, and all that it may be, where the exchanges span too little time.
    bound_us : float
        The offset is off by this at most, if all of the way's time were in one direction.
    bent : bool
        It goes on where the one before ended, as far as is seen: the clock changed its rate, and did not step.
    """

    start_ns: int
    end_ns: int
    reference_ns: int
    base_ns: int
    beside_us: float
    offset_sigma_us: float
    drift_ppm: float
    drift_sigma_ppm: float
    bound_us: float
    bent: bool = False

    @property
    def offset_us(self) -> float:
        """By how much the peer's clock is ahead at the reference, as far as a float tells it."""
        return self.base_ns / 1e3 + self.beside_us


@dataclass(frozen=True)
class Clock:
    """A peer's clock on ours.

    Attributes
    ----------
    node : int
    method : str
        ``hull``, ``midpoints`` or ``summary`` (the sender's own fit).
    segments : tuple of Segment
        One, or one more than steps were seen.
    exchanges : int
    ours_step_ns, step_ns : int or None
        Steps in which our clock and the peer's are read; None where nothing tells them.
    too_quick, impossible : int
        Exchanges that were left out: no path is suddenly so much shorter; no two clocks make such.
    """

    node: int
    method: str
    segments: tuple[Segment, ...]
    exchanges: int
    ours_step_ns: int | None = None
    step_ns: int | None = None
    too_quick: int = 0
    impossible: int = 0

    @property
    def bound_us(self) -> float:
        """By how much a one-way time may be wrong because the directions differ."""
        return max(segment.bound_us for segment in self.segments)

    @property
    def findings(self) -> tuple[str, ...]:
        """The clock's steps, each by how much and when, and what was left out."""
        out = (
            (self.too_quick, "were quicker than the path allows"),
            (self.impossible, "show times that no two clocks do"),
        )
        left = (f"the clock of node {self.node}: {many} exchanges {why}; left out" for many, why in out if many)
        return (*left, *self._steps())

    def _steps(self) -> Iterator[str]:
        for before, after in itertools.pairwise(self.segments):
            at_s = (after.start_ns - self.segments[0].start_ns) / 1e9
            what = f"steps by {_step_us(before, after):.3f} us"
            if after.bent:
                what = f"changes its rate by {after.drift_ppm - before.drift_ppm:.3f} ppm"
            yield f"the clock of node {self.node} {what} at {at_s:.3f} s"

    @property
    def base_ns(self) -> int:
        """By how much the peer's clock is ahead of ours, roughly."""
        return self.segments[0].base_ns

    def minus_ours_ns(self, peer_ns: Integers, ours_ns: Integers | None = None) -> Floats:
        """Return by how much more than :attr:`base_ns` the peer's clock is ahead when it shows these times, in ns.

        Parameters
        ----------
        peer_ns : array of int64, shape (n,)
        ours_ns : array of int64, shape (n,), optional
            Our clock at nearly the same times, where it is known: what the peer's shows is not enough where it stepped
            back. NaN is returned between the last exchange before a step and the first one after it.
        """
        like_ours_ns = peer_ns - np.int64(self.base_ns)
        if len(self.segments) == 1:
            which = np.zeros(len(peer_ns), np.int64)
        elif ours_ns is None:
            starts = np.array([one.start_ns + _at(one, one.start_ns) * 1e3 for one in self.segments[1:]])
            which = np.searchsorted(starts, like_ours_ns, side="right")
        else:
            which = np.searchsorted([one.start_ns for one in self.segments[1:]], ours_ns, side="right")
            ends = np.array([*(one.end_ns for one in self.segments[:-1]), FARTHEST_NS])
            which[ours_ns > ends[which]] = -1
        out = np.full(len(peer_ns), np.nan)
        for number, one in enumerate(self.segments):
            mine = which == number
            drift = one.drift_ppm * 1e-6
            since = (like_ours_ns[mine] - np.int64(one.reference_ns)).astype(np.float64) - one.beside_us * 1e3
            out[mine] = one.beside_us * 1e3 + drift / (1 + drift) * since
        return out

    def sigma_us(self, at_ns: float) -> float:
        """Return the standard uncertainty of the comparison at a time of ours, without the bound, in us."""
        one = next((each for each in reversed(self.segments) if each.start_ns <= at_ns), self.segments[0])
        return math.hypot(one.offset_sigma_us, one.drift_sigma_ppm * (at_ns - one.reference_ns) / 1e9)


def fit(node: int, exchanges: npt.NDArray[np.void], method: str = "hull") -> Clock:
    """Compare two clocks.

    Parameters
    ----------
    node : int
        Whose clock.
    exchanges : array of records, shape (n,)
        As in ``run.toml`` [[clock_exchanges]]: :data:`pcitrace.runfolder.CLOCK_EXCHANGES`.
    method : str
        ``hull``, or ``midpoints`` for the papers' method.

    Returns
    -------
    Clock

    Raises
    ------
    FitError
        There is no exchange that two clocks can have made, or they run apart by more than clocks do.
    """
    names = ("request_sent_ns", "request_received_ns", "reply_sent_ns", "reply_received_ns")
    times = np.stack([exchanges[name] for name in names]).astype(np.int64)
    times = times[:, ((times > -FARTHEST_NS) & (times < FARTHEST_NS)).all(axis=0)]
    times = times[:, np.argsort(times[0], kind="stable")]
    possible = (times[3] - times[0]) - (times[2] - times[1]) >= 0
    times = times[:, possible & (times[3] >= times[0])]
    if times.shape[1] == 0:
        raise FitError(
            f"node {node}: no exchange of clocks that is possible, of {len(exchanges)}: one-way times are not known"
        )
    ours, theirs = (clock_step(np.concatenate([times[a], times[b]])) for a, b in ((0, 3), (1, 2)))
    quick = _too_quick(times, 2 * ((ours or 1) + (theirs or 1)))
    times = times[:, ~quick]
    stepped = steps(times)
    if len(stepped) >= max(SEVERAL, times.shape[1] / OFTEN) or (len(stepped) > 1 and apart(times)):
        raise FitError(
            f"node {node}: its clock steps {len(stepped)} times in {times.shape[1]} exchanges, or runs apart from that "
            f"of node 0 by more than {LARGEST_DRIFT_PPM:g} ppm: one-way times are not known"
        )
    cuts = [0, *stepped, times.shape[1]]
    make = _hull if method == "hull" else _midpoints
    base = int(times[1, 0] - times[0, 0])
    times[1:3] -= base
    shortest = float(((times[3] - times[0]) - (times[2] - times[1])).min())
    reading = (ours or 1) + (theirs or 1)
    ends = [a + end for a, b in itertools.pairwise(cuts) for end in lines(times[:, a:b], reading, shortest)]
    if len(ends) >= max(SEVERAL, times.shape[1] / OFTEN):
        raise FitError(
            f"node {node}: {times.shape[1]} exchanges of clocks lie on no fewer than {len(ends)} lines: one-way times "
            "are not known"
        )
    segments = [_segment(times[:, a:b], base, make) for a, b in itertools.pairwise([0, *ends])]
    impossible = len(exchanges) - len(quick)
    joined = _joined(segments, shortest / 2e3)
    return Clock(node, method, joined, len(exchanges), ours, theirs, int(quick.sum()), impossible)


def of_summary(said: Mapping[str, Any]) -> Clock:
    """Return the fit that the sender made, where the exchanges themselves were not kept."""
    drift, sigma = said.get("drift_ppm"), said.get("drift_sigma_ppm")
    segment = Segment(
        -FARTHEST_NS,
        FARTHEST_NS,
        int(said["reference_ns"]),
        0,
        float(said["offset_us"]),
        float(said["offset_sigma_us"]),
        float(drift or 0.0),
        LARGEST_DRIFT_PPM / math.sqrt(3) if drift is None else float(sigma or 0.0),
        float(said["asymmetry_bound_us"]),
    )
    return Clock(int(said["node"]), "summary", (segment,), int(said.get("exchanges", 0)))


def _at(segment: Segment, ours_ns: float) -> float:
    """Return the offset beside the base at a time of ours, in us."""
    return segment.beside_us + segment.drift_ppm * (ours_ns - segment.reference_ns) * 1e-9


def _too_quick(times: Integers, reading_ns: int) -> npt.NDArray[np.bool_]:
    """Return which exchanges took less time than the others by far: of these some reading is wrong, and the line would
    rest on them alone. Where there are many of them the path is as short as that.
    """
    trip = (times[3] - times[0]) - (times[2] - times[1])
    low, middle = np.quantile(trip, [0.1, 0.5])
    quick = trip < low - max(QUICKER * (middle - low), reading_ns)
    return quick if quick.sum() < FEW * len(trip) else np.zeros(len(trip), np.bool_)


def _segment(times: Integers, base_ns: int, make: Any) -> Segment:
    """Fit one stretch without steps, the base taken off already, and its scatter from interleaved parts of it."""
    origin, base = int(times[0, 0]), int(times[1, 0] - times[0, 0])
    n = times.shape[1]
    offset, drift, bound = make(times, origin, base)
    middle = float((times[0, 0] + times[3, -1]) / 2 - origin)
    offset += drift * middle
    bare = bound / math.sqrt(3)
    unknown = LARGEST_DRIFT_PPM * 1e-6 / math.sqrt(3)
    told = times[3, -1] - times[0, 0] >= LEAST_SPAN_NS
    offset_sigma, drift_sigma = bare, min(bare / max(middle, 1.0), unknown) if told else unknown
    if n >= LEAST_FOR_SCATTER:
        random = np.random.default_rng(n)
        halves = (np.sort(random.permutation(n)[: n // 2]) for _ in range(HALVES))
        parts = np.array([make(times[:, rows], origin, base)[:2] for rows in halves])
        parts[:, 0] += parts[:, 1] * middle - offset
        parts[:, 1] -= drift
        offset_sigma, scatter = (float(one) / TOUCHING for one in np.sqrt((parts**2).mean(axis=0)))
        drift_sigma = scatter if told else unknown
    return Segment(
        origin,
        int(times[0, -1]),
        origin + int(middle),
        base_ns,
        (base + offset) / 1e3,
        offset_sigma / 1e3,
        drift * 1e6,
        drift_sigma * 1e6,
        bound / 1e3,
    )


def _joined(segments: list[Segment], half_trip_us: float) -> tuple[Segment, ...]:
    """Return the segments of a clock, and which of them go on where the one before ended.

    Of a clock that is no line, half of the shortest way there and back is all that bounds its lines; as much as both
    sides are nearer to one, it may be bent along it.
    """
    if len(segments) < 2:
        return tuple(segments)
    joined: list[Segment] = []
    for one in segments:
        here = replace(one, bound_us=max(one.bound_us, half_trip_us))
        if joined and abs(_step_us(joined[-1], here)) <= joined[-1].bound_us + here.bound_us:
            joined[-1] = replace(joined[-1], end_ns=here.start_ns)
            here = replace(here, bent=True)
        joined.append(here)
    bent = [a.bent or b.bent for a, b in itertools.pairwise([*joined, joined[0]])]
    return tuple(
        replace(one, offset_sigma_us=math.hypot(one.offset_sigma_us, (one.bound_us - before.bound_us) / math.sqrt(3)))
        if curved
        else one
        for one, before, curved in zip(joined, segments, bent, strict=True)
    )


def _step_us(before: Segment, after: Segment) -> float:
    """Return by how much a clock stepped from one segment to the next."""
    return _at(after, after.start_ns) - _at(before, after.start_ns)


def _hull(times: Integers, origin: int, base: int) -> tuple[float, float, float]:
    """Return offset (ns, at the origin) and drift of the line between both sides, and half their distance."""
    upper, lower = sides(times, origin, base)
    slope = 0.0
    if times[3, -1] - times[0, 0] >= LEAST_SPAN_NS:
        slope = widest(upper, lower, LARGEST_DRIFT_PPM * 1e-6)
    top = float((upper[:, 1] - slope * upper[:, 0]).min())
    bottom = float((lower[:, 1] - slope * lower[:, 0]).max())
    return (top + bottom) / 2, slope, max(0.0, (top - bottom) / 2)


def _midpoints(times: Integers, origin: int, base: int) -> tuple[float, float, float]:
    """Return the same by the papers' method."""
    trip = (times[3] - times[0]) - (times[2] - times[1])
    kept = []
    for start in range(0, len(trip), GROUP):
        group = np.arange(start, min(start + GROUP, len(trip)))
        kept.append(group[np.argsort(trip[group], kind="stable")][: -(-len(group) // KEEP)])
    rows = np.concatenate(kept)
    rows = rows[trip[rows] <= 2.0 * trip[rows].min() + 2000]
    at = ((times[0] - origin) / 2 + (times[3] - origin) / 2)[rows]
    offset = ((times[1] - times[0] - base) / 2 + (times[2] - times[3] - base) / 2)[rows]
    slope = 0.0
    if len(rows) >= 8 and np.ptp(at) >= LEAST_SPAN_NS:
        slope = float(np.polyfit(at - at.mean(), offset - offset.mean(), 1)[0])
    return float(offset.mean() - slope * at.mean()), slope, float(trip[rows].mean() / 2)
