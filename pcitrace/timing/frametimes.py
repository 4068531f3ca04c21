"""The times of frames as arrays, and how wrong they may be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np
import pandas as pd

from pcitrace.analysis import offsets
from pcitrace.columns import Floats, Integers, booleans, floats, integers
from pcitrace.frames import Frames
from pcitrace.run import Run
from pcitrace.traffic import Traffic
from pcitrace.traffic.ahead import APART_US
from pcitrace.traffic.dma import NO_ROOM, SHORT_NO_FRAME, Kind
from pcitrace.uncertainty import PLACES, Comb, Errors

__all__ = ["UNIFORM", "Clockwork", "FrameTimes", "period_of", "phase_bytes"]

UNIFORM = 1 / 12
"""Variance of a time of which only the sampling step is known, in steps squared."""

EDGES, PERIODS = 1024, 257
"""Edges of CLK that its period is told by, and periods that are tried."""


@dataclass(frozen=True)
class Clockwork:
    """How well the times of one host are known.

    Attributes
    ----------
    step_us : float
        Sampling step of its capture; 0 in state mode.
    capture : int
        Number of the capture it is in: times of one capture share their offset.
    offset_sigma_us, drift_sigma_ppm : float
        Uncertainty of the capture's place on the run's axis.
    skew_us : float
        Largest delay between its channels.
    clock_us : float or None
        Period of CLK, on the run's axis.
    about_us : float
        When the capture's place on the axis is known best: the uncertainty of its drift counts from there.
    lost : str
        Why the capture's place on the run's axis is not known; empty if it is.
    """

    step_us: float
    capture: int = 0
    offset_sigma_us: float = 0.0
    drift_sigma_ppm: float = 0.0
    skew_us: float = 0.0
    clock_us: float | None = None
    about_us: float = 0.0
    lost: str = ""

    @classmethod
    def of(cls, run: Run, host: str, edges_us: Floats) -> Clockwork:
        """Return that of a host of a run, of whose CLK some edges were seen at these times."""
        number = run.folder.run["hosts"][host]["capture"] if run.folder is not None else 0
        entry = run.folder.run["captures"][number] if run.folder is not None else {}
        capture = run.captures[number]
        if capture.clock_mhz is not None:
            step_us = 0.0
        elif capture.sample_count is not None:
            step_us = 1e6 / capture.rate_hz if capture.rate_hz else 0.0
        else:
            # A capture of changes: its times are rounded to the file's unit.
            step_us = 1e6 * (capture.tick_s or 0.0)
        sigmas = entry.get("offset_sigma_us", 0.0), entry.get("drift_sigma_ppm", 0.0)
        mhz = run[host].mean_clock_mhz
        clock_us = period_of(edges_us, (1 + entry.get("drift_ppm", 0.0) * 1e-6) / mhz, step_us) if mhz else None
        offset = offsets(run)[number]
        lost = offset.reason if offset.value is None else ""
        return cls(step_us, number, *sigmas, entry.get("skew_us", 0.0), clock_us, entry.get("about_us", 0.0), lost)

    def place(self, time_us: Floats, edge_us: float) -> Floats:
        """Return where edges of CLK lie between two samples, in sampling steps, all from the same unknown place.

        `edge_us` is some edge in the middle of the capture.
        """
        if not self.clock_us:
            return np.full_like(time_us, np.nan)
        clocks = np.rint((time_us - edge_us) / self.clock_us)
        return np.asarray(clocks * self.clock_us / self.step_us % 1)


class FrameTimes:
    """Columns of `frames` as arrays, one element a frame, and the errors of the times between them.

    Parameters
    ----------
    frames : Frames
    hosts : dict of str to Clockwork
    r_net : float or None
        Time of a byte on the wire (us).

    Attributes
    ----------
    sender, receiver : array of int
        Number of the host in `hosts`; -1 for none.
    us : dict of str to array of float
        Every column of times.
    length : array of int
        User bytes; -1 where not known.
    bounded : array of bool
        Whether the length is an upper bound.
    spare_bytes : array of float
        By how much the length in whole bytes exceeds the real one in the mean: half of what a data phase holds where it
        is an upper bound; where the wire tells it, what rounding added to its duration.
    length_sigma : array of float
        Uncertainty of the length (bytes).
    wire_us, transit_us : array of float
        Wire time and (gap - wire time)/2 with that taken off: what stands in `frames` where lengths are exact.
    queued, unclear : arrays of bool
        Waited for another frame; may have.
    clean : array of bool
        Seen on both buses, and waited for no other frame.
    """

    def __init__(self, frames: Frames, hosts: dict[str, Clockwork], r_net: float | None) -> None:
        self.frames = frames
        self.hosts = hosts
        self.r_net = r_net
        names = list(hosts)
        table = frames.table
        self.sender = _codes(table["sender"], names)
        self.receiver = _codes(table["receiver"], names)
        self._senders, self._receivers = (set(np.unique(one).tolist()) for one in (self.sender, self.receiver))
        self.us = {name: floats(table, name) for name in table.columns if name.endswith("_us")}
        self.length = integers(table, "length_bytes")
        self.exact = booleans(table, "length_exact")
        self.queued = booleans(table, "queued")
        self.unclear = booleans(table, "queued", True) & ~self.queued
        self.clean = ~np.isnan(self.us["t_nic_us"]) & ~self.queued & ~self.unclear
        # Lengths that are upper bounds are taken as what they are in the mean: half a data phase shorter.
        width = max((phase_bytes(traffic) for traffic in frames.hosts.values()), default=4)
        on_wire_us = self.us["wire_end_us"] - self.us["wire_start_us"]
        self.bounded = ~self.exact & np.isnan(self.us["wire_end_us"])
        # The wire tells a length by its two edges, to a part of a byte. Rounding that to whole bytes, or taking those
        # as exact of which the data phases leave one only, is wrong alike for all frames of a length; the duration is
        # wrong for each by itself. Enabled bytes and a wire that is sampled often enough need no rounding.
        step = max((one.step_us for one in hosts.values()), default=0.0)
        told = np.array([traffic.dma.bus.bytes_exact for traffic in frames.hosts.values()] + [False])[self.receiver]
        told |= np.array([name in frames.logged for name in names] + [False])[self.sender]
        by_wire = ~np.isnan(on_wire_us) & ~(self.exact & told) & (self.length >= 0)
        by_wire &= r_net is not None and step >= r_net / 2
        rounded = (self.us["wire_us"] - on_wire_us) / (r_net or 1.0)
        self.spare_bytes = np.where(by_wire, rounded, np.where(self.bounded, (width - 1) / 2, 0.0))
        edges = step * sqrt(2 * UNIFORM) / (r_net or 1.0)
        by_bound = sqrt((width**2 - 1) * UNIFORM)
        self.length_sigma = np.where(by_wire, edges, np.where(self.bounded, by_bound, 0.0))
        self.wire_us = self.us["wire_us"] - self.spare_bytes * (r_net or 0.0)
        self.transit_us = (self.us["gap_us"] - self.wire_us) / 2
        # Most intervals share an end with another one.
        self._places, self._middle_us = cache(self._places_of), cache(self._middle_of)

    def host(self, column: str) -> Integers:
        """Return the number of the host on whose bus or wire a column of times was seen."""
        return self.receiver if column.startswith("rx_") else self.sender

    def errors(self, begin: str, end: str) -> Errors:
        """Return the errors of the time from one column to another."""
        clockworks = list(self.hosts.values())
        step = np.array([one.step_us for one in clockworks] + [0.0])
        capture = np.array([one.capture for one in clockworks] + [-1])
        begun, ended = self.host(begin), self.host(end)
        variance = step[begun] ** 2
        variance += step[ended] ** 2
        variance *= UNIFORM
        found = Errors(variance, (), self._combs(begin, end))
        for one in {each.capture: each for each in clockworks}.values():
            if not (one.offset_sigma_us or one.drift_sigma_ppm):
                continue
            together = np.zeros(len(begun), dtype=np.int64)
            # + where the interval ends on this capture's clock, - where it begins there.
            ends = (capture[ended] == one.capture).astype(float)
            begins = (capture[begun] == one.capture).astype(float)
            if one.offset_sigma_us:
                found = found.with_shared((ends - begins) * one.offset_sigma_us, together)
            if one.drift_sigma_ppm:
                moved = ends * (self.us[end] - one.about_us) - begins * (self.us[begin] - one.about_us)
                moved = np.nan_to_num(moved)
                found = found.with_shared(moved * one.drift_sigma_ppm * 1e-6, together)
        # What is seen through one channel comes late by the same delay for all frames.
        for number, clockwork in enumerate(clockworks):
            for wire in (False, True) if clockwork.skew_us else ():
                edges = self._edges(begin, end, number, wire)
                if len(edges) == 2 and begun is ended:
                    continue  # both are as late
                late = np.zeros(len(begun))
                for sign, column in edges:
                    late += sign * (self.host(column) == number)
                if late.any():
                    together = np.zeros(len(begun), dtype=np.int64)
                    found = found.with_shared(late * clockwork.skew_us * sqrt(UNIFORM), together)
        return found

    def _edges(self, begin: str, end: str, number: int, wire: bool) -> list[tuple[float, str]]:
        """Return which ends of an interval are seen on the bus of a host, or on its wire, of any frame; with sign."""
        ends = [(-1.0, begin), (1.0, end)]
        return [
            (sign, column)
            for sign, column in ends
            if column.startswith("wire") is wire
            and number in (self._receivers if column.startswith("rx_") else self._senders)
        ]

    def _combs(self, begin: str, end: str) -> tuple[Comb, ...]:
        """Return the edges of CLK and of TX_EN of each host that these times lie at."""
        found = []
        for number, clockwork in enumerate(self.hosts.values()):
            for wire in (False, True):
                edges = self._edges(begin, end, number, wire) if clockwork.step_us else []
                if edges and (wire or clockwork.clock_us):
                    amount = np.empty((len(edges), len(self.sender)))
                    for of_edge, (sign, column) in zip(amount, edges, strict=True):
                        np.multiply(sign * clockwork.step_us, self.host(column) == number, out=of_edge)
                    # TX_EN follows the clock of the wire. Its period may be shorter than a sampling step, so that its
                    # edges do not tell where they lie between the samples: it may be always the same place.
                    alike = np.zeros(len(self.sender), dtype=np.int16)
                    places = [alike if wire else self._places(column, number) for _, column in edges]
                    found.append(Comb(amount, np.array(places)))
        return tuple(found)

    def _middle_of(self, number: int) -> float:
        """Return an edge of one host's CLK in the middle of its frames; NaN if there is none."""
        seen = [self.us[column][self.host(column) == number] for column in ("dma_start_us", "rx_dma_start_us")]
        known = np.sort(np.concatenate(seen))
        return float(known[np.count_nonzero(~np.isnan(known)) // 2]) if len(known) else np.nan

    def _places_of(self, column: str, number: int) -> Integers:
        """Return where the edges of one host's CLK lie that one of its columns of times was seen at; else 0."""
        time_us = np.where(self.host(column) == number, self.us[column], np.nan)
        place = list(self.hosts.values())[number].place(time_us, self._middle_us(number))
        return np.asarray((np.nan_to_num(place) * PLACES).astype(np.int16))

    def without(self, kind: Kind, value: Floats, hosts: Integers) -> tuple[Floats, Floats]:
        """Return bytes and duration of what is of one kind, on some hosts, but of no frame of which a value is known.

        Bursts of no frame or of one of which it is null; and pieces that add up to no frame, as far as they follow each
        other: they are what is left of one. Each once more with what is short behind it, which may be its tail.
        """
        null = self.frames.table["frame"].to_numpy()[np.isnan(value)]
        size, took = [np.zeros(0)], [np.zeros(0)]
        for number, traffic in enumerate(self.frames.hosts.values()):
            one, frame = traffic.joined, traffic.burst_frame
            if frame is None or not (hosts == number).any():
                continue
            stray = (one.reason == NO_ROOM) & (one.write == (kind == Kind.RECEIVE_DATA))
            rows = (one.kind == kind) & ((frame < 0) | np.isin(frame, null)) | stray
            rows = np.flatnonzero(rows & (one.data_phases > 0))
            rows = rows[np.argsort(one.first_data_us[rows])]
            follows = stray[rows[1:]] & stray[rows[:-1]]
            follows &= one.first_data_us[rows[1:]] - one.last_data_us[rows[:-1]] < APART_US
            begins = np.flatnonzero(np.r_[True, ~follows][: len(rows)])
            ends = np.r_[begins[1:], len(rows)][: len(begins)] - 1
            # Whole data phases hold as much more than the frame in the mean as the upper bounds of other lengths.
            size.append(
                np.add.reduceat(one.bytes[rows], begins) - (phase_bytes(traffic) - 1) / 2 if len(rows) else size[0]
            )
            begun_us, ended_us = one.first_data_us[rows[begins]], one.last_data_us[rows[ends]]
            took.append(ended_us - begun_us)
            short = np.flatnonzero((one.reason == SHORT_NO_FRAME) & (one.write == (kind == Kind.RECEIVE_DATA)))
            short = short[np.argsort(one.first_data_us[short])]
            behind = np.searchsorted(one.first_data_us[short], ended_us)
            near = np.flatnonzero(behind < len(short))
            tail = short[behind[near]]
            soon = one.first_data_us[tail] - ended_us[near] < APART_US
            size.append((size[-1][near] + one.bytes[tail])[soon])
            took.append((one.last_data_us[tail] - begun_us[near])[soon])
        return np.concatenate(size), np.concatenate(took)

    def length_errors(self, errors: Errors, us_per_byte: float) -> Errors:
        """Add what inexact lengths do to times that depend on them.

        Lengths that the wire tells are wrong each by itself, upper bounds equally for all frames of one length.
        """
        own = np.where(self.bounded, 0.0, self.length_sigma * us_per_byte)
        together = np.where(self.bounded, self.length_sigma * us_per_byte, 0.0)
        found = Errors(errors.variance + own**2, errors.shared, errors.combs)
        return found.with_shared(together, np.maximum(self.length, 0)) if self.bounded.any() else found


def period_of(edges_us: Floats, clock_us: float, step_us: float) -> float:
    """Return the period of CLK, which two edges give to a step over all of the capture, as closely as some edges do.

    Each is seen at the next sample: less than a step later, with the right period. Where edges lie alike between the
    samples several periods are possible; it is then the middle of them.
    """
    some = edges_us[:: len(edges_us) // EDGES + 1]
    if len(some) < 2:
        return clock_us
    since_us = some - some[len(some) // 2]
    clocks = np.rint(since_us / clock_us)
    tried_us = clock_us + np.linspace(-2, 2, PERIODS) * step_us / np.ptp(clocks)
    vary_us = np.ptp(since_us[:, None] - clocks[:, None] * tried_us, axis=0)
    return float(tried_us[vary_us <= max(step_us, vary_us.min())].mean())


def _codes(column: pd.Series[str], names: list[str]) -> Integers:
    """Return the number of each host; -1 for none."""
    found = np.full(len(column), -1, dtype=np.int8)
    for number, name in enumerate(names):
        found[(column == name).fillna(False).to_numpy(dtype=bool)] = number
    return found


def phase_bytes(traffic: Traffic) -> int:
    """Return the bytes of the widest data phase of the card's DMA."""
    return 8 if traffic.dma.bus.wide.any() else 4
