"""What the frames of a run say about cards and buses: t_nic, R_PCI, the cost of CSR accesses; each with its error.

The definitions are those of R. Hughes-Jones and F. Saka (ATLAS note, 2000), section 3.1: the gap between the end of
the sending DMA and the start of the receiving DMA is the wire time and the transit of both cards,
``t_nic = (gap - wire time)/2``; R_PCI is the slope of a frame's DMA duration against its b + 14 bytes on the bus.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans, Floats, Integers, booleans, floats, integers
from pcitrace.content import HEADER
from pcitrace.dma import Kind
from pcitrace.estimate import Errors, Estimate, Line, line, mean, unknown
from pcitrace.frames import Frames
from pcitrace.run import Run
from pcitrace.traffic import Traffic

__all__ = ["Clockwork", "Forwarding", "Rate", "Timing", "measure"]

SIGNIFICANT = 3.0
"""Standard uncertainties from which on a deviation is reported."""

UNIFORM = 1 / 12
"""Variance of a time of which only the sampling step is known, in steps squared."""


class Forwarding(StrEnum):
    """What the slope of the gap against the bytes on the wire says about the cards."""

    STORE_AND_FORWARD = "store_and_forward"
    """The gap grows like the wire time."""

    DEVIATES = "deviates"
    """It grows differently, but by more than half: t_nic depends on the length."""

    OVERLAP = "overlap"
    """It grows by less than half: wire and DMA run at the same time, and (gap - wire time)/2 is no transit time."""

    UNKNOWN = "unknown"
    """Too few frames or lengths to tell."""


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
    """

    step_us: float
    capture: int = 0
    offset_sigma_us: float = 0.0
    drift_sigma_ppm: float = 0.0

    @classmethod
    def of(cls, run: Run, host: str) -> Clockwork:
        """Return that of a host of a run."""
        number = run.folder.run["hosts"][host]["capture"] if run.folder is not None else 0
        entry = run.folder.run["captures"][number] if run.folder is not None else {}
        capture = run.captures[number]
        if capture.clock_mhz is not None:
            step_us = 0.0
        elif capture.sample_count is not None:
            step_us = 1e6 / capture.rate_hz if capture.rate_hz else 0.0
        else:
            # A capture of changes: its samples are ticks of the file's timescale, to which times are rounded.
            last = run[host].transactions[["end_us", "end_sample"]].tail(1)
            tick = float(last["end_sample"].iloc[0]) if len(last) else 0.0
            step_us = float(last["end_us"].iloc[0]) / tick if tick else 0.0
        return cls(step_us, number, entry.get("offset_sigma_us", 0.0), entry.get("drift_sigma_ppm", 0.0))


@dataclass(frozen=True)
class Rate:
    """How fast one kind of DMA goes.

    Attributes
    ----------
    effective : Estimate
        Slope of a frame's first to last data phase against its bytes b + 14, pieces and the pauses between them
        included (us/byte): R_PCI of Equation 2.1.
    overhead : Estimate
        What is left of that line at 0 bytes (us).
    burst : Estimate
        (last - first data phase) / bytes moved after the first phase, over all pieces (us/byte); n counts pieces.
    by_host : dict of str to Estimate
        `effective` of each host.
    """

    effective: Estimate
    overhead: Estimate
    burst: Estimate
    by_host: dict[str, Estimate]


@dataclass(frozen=True)
class Timing:
    """The constants of a run.

    Attributes
    ----------
    t_nic : Estimate
        Mean of (gap - wire time)/2 over the frames that waited for no other (us). Not known where DMA and wire
        overlap.
    t_nic_tx, t_nic_rx : Estimate
        Transit of the sending and of the receiving side (us), over the same frames; need a wire probe.
    t_nic_queued : Estimate
        The same mean over the frames that waited; n counts them.
    gap : Line
        Gap against the bytes on the wire (us/byte, us).
    t_nic_line : Line
        t_nic against user bytes: its dependence on length.
    r_net_us_per_byte : float or None
        Of the link.
    forwarding : Forwarding
        Whether the cards store and forward, by the slope of `gap`.
    send, receive : Rate
    by_length : pandas.DataFrame
        One row a length, of the frames that waited for none: ``length_bytes``, ``n``, and mean and standard error of
        ``gap_us``, ``t_nic_us``, ``t_nic_tx_us``, ``t_nic_rx_us`` (null where not captured).
    csr_costs : pandas.DataFrame
        One row a host and interval: ``host``, ``what``, ``value``, ``sigma``, ``scatter``, ``n`` (us).
    findings : tuple of str
    """

    t_nic: Estimate
    t_nic_tx: Estimate
    t_nic_rx: Estimate
    t_nic_queued: Estimate
    gap: Line
    t_nic_line: Line
    r_net_us_per_byte: float | None
    forwarding: Forwarding
    send: Rate
    receive: Rate
    by_length: pd.DataFrame
    csr_costs: pd.DataFrame
    findings: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"<Timing: t_nic {self.t_nic} us, R_PCI send {self.send.effective}, receive {self.receive.effective} "
            f"us/byte, {self.forwarding}>"
        )


CSR_INTERVALS = {
    "send_csr": ("csr_first_us", "csr_last_us", "sender"),
    "csr_to_dma": ("csr_last_us", "dma_start_us", "sender"),
    "dma_to_update": ("dma_end_us", "csr_done_us", "sender"),
    "receive_to_csr": ("rx_dma_end_us", "rx_csr_us", "receiver"),
}
"""Costs of CSR accesses: from one column of `frames` to another, on the bus of that host."""


def measure(run: Run, frames: Frames | None = None) -> Timing:
    """Measure the constants of a run.

    Parameters
    ----------
    run : Run
    frames : Frames, optional
        Some of its frames, such as ``run.frames["sender == 'A'"]``; default: all.

    Returns
    -------
    Timing

    Raises
    ------
    WiringError, FrameMatchError
        As :attr:`Run.frames`.

    Examples
    --------
    >>> timing.measure(pcitrace.open("run")).t_nic.value                    # doctest: +SKIP
    4.307
    """
    chosen = run.frames if frames is None else frames
    hosts = {name: Clockwork.of(run, name) for name in chosen.hosts}
    link = run.folder.run.get("link") if run.folder is not None else None
    return _Measurement(chosen, hosts, 8 / link["rate_mbit_s"] if link else None).result()


class _Measurement:
    """Columns of the frames as arrays, and the errors of their times."""

    def __init__(self, frames: Frames, hosts: dict[str, Clockwork], r_net: float | None) -> None:
        self.frames = frames
        self.hosts = hosts
        self.r_net = r_net
        names = list(hosts)
        table = frames.table
        self.sender = _codes(table["sender"], names)
        self.receiver = _codes(table["receiver"], names)
        self.us = {name: floats(table, name) for name in table.columns if name.endswith("_us")}
        self.length = integers(table, "length_bytes")
        self.exact = booleans(table, "length_exact")
        self.queued = booleans(table, "queued")
        self.clean = ~np.isnan(self.us["t_nic_us"]) & ~self.queued
        self.findings: list[str] = []

    def result(self) -> Timing:
        """Measure everything."""
        gap, forwarding = self.forwarding()
        t_nic_line = self.t_nic_line()
        t_nic, waited = self.t_nic(forwarding, t_nic_line)
        t_nic_tx, t_nic_rx = self.sides()
        return Timing(
            t_nic=t_nic,
            t_nic_tx=t_nic_tx,
            t_nic_rx=t_nic_rx,
            t_nic_queued=waited,
            gap=gap,
            t_nic_line=t_nic_line,
            r_net_us_per_byte=self.r_net,
            forwarding=forwarding,
            send=self.rate("send", self.us["dma_us"], self.sender, Kind.SEND_DATA),
            receive=self.rate("receive", self.us["rx_dma_us"], self.receiver, Kind.RECEIVE_DATA),
            by_length=self.by_length(),
            csr_costs=self.csr_costs(),
            findings=tuple(self.findings),
        )

    # --- errors of times

    def errors(self, begin: tuple[str, Integers], end: tuple[str, Integers]) -> Errors:
        """Return the errors of the time from one column on one host to another on another."""
        clockworks = list(self.hosts.values())
        step = np.array([one.step_us for one in clockworks] + [0.0])
        capture = np.array([one.capture for one in clockworks] + [-1])
        found = Errors(UNIFORM * (step[begin[1]] ** 2 + step[end[1]] ** 2))
        for one in {each.capture: each for each in clockworks}.values():
            # + where the interval ends on this capture's clock, - where it begins there.
            ends = (capture[end[1]] == one.capture).astype(float)
            begins = (capture[begin[1]] == one.capture).astype(float)
            together = np.zeros(len(ends), dtype=np.int64)
            if one.offset_sigma_us:
                found = found.with_shared((ends - begins) * one.offset_sigma_us, together)
            if one.drift_sigma_ppm:
                moved = np.nan_to_num(ends * self.us[end[0]] - begins * self.us[begin[0]])
                found = found.with_shared(moved * one.drift_sigma_ppm * 1e-6, together)
        return found

    def length_errors(self, errors: Errors, us_per_byte: float) -> Errors:
        """Add what inexact lengths do to times that depend on them.

        Data phases give an upper bound: the length is too long by 0 to width - 1 bytes, and equally so for all frames
        of one length. The wire gives it to a part of a byte.
        """
        if self.exact.all():
            return errors
        width = max((_phase_bytes(traffic) for traffic in self.frames.hosts.values()), default=4)
        bound = sqrt((width - 1) * (2 * width - 1) / 6)
        wired = ~np.isnan(self.us["wire_end_us"])
        steps = max((one.step_us for one in self.hosts.values()), default=0.0)
        by_wire = min(1.0, steps / self.r_net * sqrt(2 * UNIFORM)) if self.r_net else 0.0
        found = replace(errors, variance=errors.variance + np.where(wired & ~self.exact, by_wire * us_per_byte, 0) ** 2)
        amount = np.where(wired | self.exact, 0.0, bound * us_per_byte)
        return found.with_shared(amount, np.maximum(self.length, 0)) if amount.any() else found

    # --- transit of the cards

    def forwarding(self) -> tuple[Line, Forwarding]:
        """Compare the slope of the gap with that of the wire."""
        rows = np.flatnonzero(self.clean)
        if self.r_net is None:
            reason = "the rate of the link is not known; add [link] rate_mbit_s to run.toml"
            return Line(unknown(reason), unknown(reason), np.zeros(0)), Forwarding.UNKNOWN
        errors = self.errors(("dma_end_us", self.sender), ("rx_dma_start_us", self.receiver))
        errors = self.length_errors(errors, self.r_net)
        gap = line(self.us["wire_us"][rows] / self.r_net, self.us["gap_us"][rows], errors[rows])
        slope = gap.slope
        if slope.value is None:
            early = mean(self.us["t_nic_us"][rows], errors.scaled(0.5)[rows])
            if early.value is not None and early.value < -SIGNIFICANT * (early.total or 0.0):
                self.findings.append(
                    f"wire and DMA overlap: (gap - wire time)/2 is {early.value:.3f} us over {early.n} frames; "
                    "t_nic is not given"
                )
                return gap, Forwarding.OVERLAP
            return gap, Forwarding.UNKNOWN
        off = slope.value - self.r_net
        sigmas = abs(off) / slope.total if slope.total else np.inf
        text = f"the gap's slope is {slope.value:.6f} us/byte over {slope.n} frames, the wire's {self.r_net:.6f}"
        if sigmas > SIGNIFICANT and slope.value < self.r_net / 2:
            self.findings.append(f"wire and DMA overlap: {text}; t_nic is not given")
            return gap, Forwarding.OVERLAP
        if slope.value < self.r_net / 2:
            self.findings.append(
                f"whether the cards store and forward cannot be told: {text}, known to {slope.total:.6f} only"
            )
            return gap, Forwarding.UNKNOWN
        if sigmas > SIGNIFICANT:
            self.findings.append(
                f"not strictly store and forward: {text} ({sigmas:.1f} sigma apart); "
                f"t_nic changes by {off / 2 * 1e3:.3f} us per 1000 bytes"
            )
            return gap, Forwarding.DEVIATES
        return gap, Forwarding.STORE_AND_FORWARD

    def t_nic_errors(self) -> Errors:
        """Return the errors of (gap - wire time)/2."""
        errors = self.errors(("dma_end_us", self.sender), ("rx_dma_start_us", self.receiver)).scaled(0.5)
        return self.length_errors(errors, (self.r_net or 0.0) / 2)

    def t_nic_line(self) -> Line:
        """Return t_nic against user bytes."""
        rows = np.flatnonzero(self.clean)
        return line(self.length[rows].astype(float), self.us["t_nic_us"][rows], self.t_nic_errors()[rows])

    def t_nic(self, forwarding: Forwarding, against: Line) -> tuple[Estimate, Estimate]:
        """Return t_nic of the frames that waited for none, and of those that waited."""
        errors = self.t_nic_errors()
        both = ~np.isnan(self.us["t_nic_us"])
        clean, waited = np.flatnonzero(self.clean), np.flatnonzero(both & self.queued)
        queued = mean(self.us["t_nic_us"][waited], errors[waited], "frames that waited")
        if forwarding is Forwarding.OVERLAP:
            return unknown("wire and DMA overlap", len(clean)), queued
        if not len(clean):
            return unknown(self.why_no_t_nic(len(waited))), queued
        t_nic = mean(self.us["t_nic_us"][clean], errors[clean])
        inexact = int((~self.exact[clean] & np.isnan(self.us["wire_end_us"][clean])).sum())
        if inexact:
            self.findings.append(
                f"the lengths of {inexact} of {len(clean)} frames are upper bounds: t_nic may be too short by "
                "the wire time of a few bytes (part of its sigma); a wire probe or AD makes them exact"
            )
        if forwarding is Forwarding.UNKNOWN and against.slope.value is None:
            self.findings.append(f"whether the cards store and forward cannot be tested: {against.slope.reason}")
        return t_nic, queued

    def why_no_t_nic(self, waited: int) -> str:
        """Say why there is no frame to take t_nic from."""
        if self.r_net is None:
            return "the rate of the link is not known; add [link] rate_mbit_s to run.toml"
        if len(self.hosts) == 1:
            return "one host only: the receiving DMA was not captured"
        if waited:
            return f"all {waited} frames waited for an earlier one"
        return "no frame was seen on both buses"

    def sides(self) -> tuple[Estimate, Estimate]:
        """Return the transit of the sending and of the receiving side, over the frames that waited for none."""
        found = []
        for column, begin, end, what in (
            ("t_nic_tx_us", ("dma_end_us", self.sender), ("wire_start_us", self.sender), "sending"),
            ("t_nic_rx_us", ("wire_end_us", self.sender), ("rx_dma_start_us", self.receiver), "receiving"),
        ):
            values, errors = self.us[column], self.errors(begin, end)
            known = ~np.isnan(values)
            rows = np.flatnonzero(known & ~self.queued)
            found.append(
                mean(values[rows], errors[rows]) if known.any() else unknown("the frames on the wire were not captured")
            )
            early = known & (values < -SIGNIFICANT * np.sqrt(errors.variance))
            if early.any():
                self.findings.append(
                    f"{what} side: DMA and wire overlap in {int(early.sum())} of {int(known.sum())} frames "
                    f"({column} down to {values[early].min():.3f} us): the card is cut-through there"
                )
        return found[0], found[1]

    def by_length(self) -> pd.DataFrame:
        """Summarise the frames that waited for none by their length."""
        columns = ("gap_us", "t_nic_us", "t_nic_tx_us", "t_nic_rx_us")
        table = pd.DataFrame({name: self.us[name][self.clean] for name in columns})
        groups = table.groupby(self.length[self.clean])
        summary = pd.DataFrame({"n": groups.size()})
        for name in columns:
            summary[name] = groups[name].mean()
            summary[name.replace("_us", "_sem_us")] = groups[name].sem()
        return summary.rename_axis("length_bytes").reset_index()

    # --- PCI

    def rate(self, what: str, duration: Floats, host: Integers, kind: Kind) -> Rate:
        """Measure R_PCI of one direction."""
        known = ~np.isnan(duration) & (self.length >= 0) & (host >= 0)
        size = (self.length + HEADER).astype(float)
        step = np.array([one.step_us for one in self.hosts.values()] + [0.0])
        errors = Errors(2 * UNIFORM * step[host] ** 2)
        rows = np.flatnonzero(known)
        first = line(size[rows], duration[rows], errors[rows])
        if first.slope.value is not None:
            errors = self.length_errors(errors, first.slope.value)
        whole = line(size[rows], duration[rows], errors[rows])
        by_host = {}
        for number, name in enumerate(self.hosts):
            mine = np.flatnonzero(known & (host == number))
            by_host[name] = line(size[mine], duration[mine], errors[mine]).slope
        self.compare_hosts(what, by_host)
        if rows.size and whole.slope.value is None:
            self.findings.append(f"R_PCI ({what}) is not known: {whole.slope.reason}")
        return Rate(whole.slope, whole.intercept, self.burst(kind), by_host)

    def compare_hosts(self, what: str, by_host: dict[str, Estimate]) -> None:
        """Report hosts that are not alike: Equation 2.1 has one constant for both."""
        known = {name: one for name, one in by_host.items() if one.value is not None}
        if len(known) < 2:
            return
        (one, first), (two, second) = known.items()
        apart = abs((first.value or 0.0) - (second.value or 0.0))
        sigma = sqrt((first.total or 0.0) ** 2 + (second.total or 0.0) ** 2)
        if apart > SIGNIFICANT * sigma and apart > 0.01 * abs(first.value or 0.0):
            self.findings.append(
                f"the hosts differ: R_PCI ({what}) is {first} us/byte on {one} and {second} on {two}; "
                "the constant is that of all frames together"
            )

    def burst(self, kind: Kind) -> Estimate:
        """Return the burst rate over all pieces of one kind."""
        duration, moved, variance, pieces = 0.0, 0.0, 0.0, 0
        rates = []
        for name, traffic in self.frames.hosts.items():
            dma = traffic.dma
            rows = np.flatnonzero((dma.kind == kind) & (dma.bus.data_phases > 1))
            if not len(rows):
                continue
            # Whole phases: the last one takes its clock however many of its bytes are enabled.
            size = (dma.bus.data_phases[rows] - 1) * np.where(dma.bus.bytes[rows] > 4 * dma.bus.data_phases[rows], 8, 4)
            took = dma.bus.last_data_us[rows] - dma.bus.first_data_us[rows]
            duration, moved, pieces = duration + float(took.sum()), moved + float(size.sum()), pieces + len(rows)
            variance += 2 * UNIFORM * self.hosts[name].step_us ** 2 * len(rows)
            rates.append((took, size))
        if not pieces:
            return unknown(f"no {kind.name.lower()} moved more than one data phase")
        value = duration / moved
        residual = sum(float(((took - value * size) ** 2).sum()) for took, size in rates)
        own = max(residual - variance, 0.0) * pieces / max(pieces - 1, 1)
        return Estimate(value, sqrt(variance) / moved, pieces, scatter=sqrt(own) / moved)

    def csr_costs(self) -> pd.DataFrame:
        """Return what the CSR accesses cost on each host."""
        found = []
        for what, (begin, end, side) in CSR_INTERVALS.items():
            host = self.sender if side == "sender" else self.receiver
            took = self.us[end] - self.us[begin]
            errors = self.errors((begin, host), (end, host))
            for number, name in enumerate(self.hosts):
                rows = np.flatnonzero((host == number) & ~np.isnan(took))
                one = mean(took[rows], errors[rows])
                found.append((name, what, one.value, one.sigma, one.scatter, one.n))
        return pd.DataFrame(found, columns=["host", "what", "value", "sigma", "scatter", "n"])


def _codes(column: pd.Series[str], names: list[str]) -> Integers:
    """Return the number of each host; -1 for none."""
    found = np.full(len(column), -1, dtype=np.int64)
    for number, name in enumerate(names):
        found[(column == name).fillna(False).to_numpy(dtype=bool)] = number
    return found


def _phase_bytes(traffic: Traffic) -> int:
    """Return the bytes of the widest data phase of the card's DMA."""
    bus = traffic.dma.bus
    wide: Booleans = bus.bytes > 4 * bus.data_phases
    return 8 if wide.any() else 4
