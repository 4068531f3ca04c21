"""What the frames of a run say about cards and buses: t_nic, R_PCI, the cost of CSR accesses; each with its error.

The definitions are those of R. Hughes-Jones and F. Saka (ATLAS note, 2000), section 3.1: the gap between the end of
the sending DMA and the start of the receiving DMA is the wire time and the transit of both cards,
``t_nic = (gap - wire time)/2``; R_PCI is the slope of a frame's DMA duration against its b + 14 bytes on the bus.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from pcitrace.columns import Integers
from pcitrace.estimate import ALIKE, SIGNIFICANT, Errors, Estimate, Line, difference, line, mean, unknown
from pcitrace.frames import Frames
from pcitrace.run import Run
from pcitrace.timing import pcirate
from pcitrace.timing.frametimes import Clockwork, FrameTimes
from pcitrace.timing.pcirate import Rate
from pcitrace.traffic.dma import Kind

__all__ = ["Forwarding", "Timing", "measure"]


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
    "send_csr": ("csr_first_us", "csr_last_us"),
    "csr_to_dma": ("csr_last_us", "dma_start_us"),
    "dma_to_update": ("dma_end_us", "csr_done_us"),
    "receive_to_csr": ("rx_dma_end_us", "rx_csr_us"),
}
"""Costs of CSR accesses: from one column of `frames` to another, on the bus of one host."""


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
    hosts = {name: Clockwork.of(run, name, traffic.dma.bus.start_us) for name, traffic in chosen.hosts.items()}
    link = run.folder.run.get("link") if run.folder is not None else None
    return _Measurement(FrameTimes(chosen, hosts, 8 / link["rate_mbit_s"] if link else None)).result()


class _Measurement:
    """The steps of the measurement, which share the frames and what there is to report."""

    def __init__(self, times: FrameTimes) -> None:
        self.times = times
        self.r_net = times.r_net
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
            send=pcirate.measure(self.times, "send", self.findings),
            receive=pcirate.measure(self.times, "receive", self.findings),
            by_length=self.by_length(),
            csr_costs=self.csr_costs(),
            findings=tuple(self.findings),
        )

    # --- transit of the cards

    def forwarding(self) -> tuple[Line, Forwarding]:
        """Compare the slope of the gap with that of the wire."""
        rows = np.flatnonzero(self.times.clean)
        if self.r_net is None:
            reason = "the rate of the link is not known; add [link] rate_mbit_s to run.toml"
            return Line(unknown(reason), unknown(reason), np.zeros(0)), Forwarding.UNKNOWN
        errors = self.times.errors("dma_end_us", "rx_dma_start_us")
        errors = self.times.length_errors(errors, self.r_net)
        on_wire = self.times.wire_us[rows] / self.r_net
        gap = line(on_wire, self.times.us["gap_us"][rows], errors[rows], x_sigma=self.times.length_sigma[rows])
        slope = gap.slope
        if slope.value is None:
            early = mean(self.times.transit_us[rows], errors.scaled(0.5)[rows])
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
        times = self.times
        errors = times.errors("dma_end_us", "rx_dma_start_us")
        return times.length_errors(errors.scaled(0.5), (self.r_net or 0.0) / 2)

    def t_nic_line(self) -> Line:
        """Return t_nic against user bytes."""
        rows = np.flatnonzero(self.times.clean)
        length, blur = self.times.length[rows].astype(float), self.times.length_sigma[rows]
        return line(length, self.times.transit_us[rows], self.t_nic_errors()[rows], x_sigma=blur)

    def t_nic(self, forwarding: Forwarding, against: Line) -> tuple[Estimate, Estimate]:
        """Return t_nic of the frames that waited for none, and of those that waited."""
        errors = self.t_nic_errors()
        self.compare_directions(errors, np.flatnonzero(self.times.clean))
        both = ~np.isnan(self.times.us["t_nic_us"])
        clean, waited = np.flatnonzero(self.times.clean), np.flatnonzero(both & self.times.queued)
        unclear = self.times.transit_us[both & self.times.unclear]
        queued = mean(self.times.transit_us[waited], errors[waited], "no frame waited")
        if forwarding is Forwarding.OVERLAP:
            return unknown("wire and DMA overlap", len(clean)), queued
        if not len(clean):
            return unknown(self.why_no_t_nic(len(waited))), queued
        transit = self.times.transit_us[clean]
        # So may receives of which the frame is not known: they took as long as others do.
        hosts = self.times.receiver[clean]
        without, _ = self.times.without(Kind.RECEIVE_DATA, self.times.us["t_nic_us"], hosts)
        unclear = np.r_[unclear, np.full(len(without), transit.mean() + transit.std())]
        t_nic = mean(transit, errors[clean], unclear=unclear)
        bounded = int(self.times.bounded[clean].sum())
        if bounded:
            spare = self.times.spare_bytes[self.times.bounded].max()
            self.findings.append(
                f"the lengths of {bounded} of {len(clean)} frames are upper bounds; t_nic takes them to be {spare:g} "
                "bytes shorter in the mean, which is part of its sigma; a wire probe or AD makes them exact"
            )
        if forwarding is Forwarding.UNKNOWN and against.slope.value is None:
            self.findings.append(f"whether the cards store and forward cannot be tested: {against.slope.reason}")
        return t_nic, queued

    def compare_directions(self, errors: Errors, rows: Integers) -> None:
        """Report directions that are not alike: two analysers that are apart make one as much longer as one shorter."""
        transit, back = self.times.transit_us[rows], self.times.sender[rows] == 1
        apart = difference(transit, errors[rows], back, self.times.length[rows])
        # One frame each way does not say how far they vary.
        if apart.value is None or apart.scatter is None or not apart.total:
            return
        if abs(apart.value) <= max(SIGNIFICANT * apart.total, ALIKE * transit.mean()):
            return
        one, two = list(self.times.hosts)
        captures = {host.capture for host in self.times.hosts.values()}
        why = (
            f"the cards differ, or offset_us is wrong by {abs(apart.value):.3g} us"
            if len(captures) > 1
            else "the cards differ"
        )
        self.findings.append(
            f"the directions differ: t_nic is {transit[~back].mean():.3f} us from {one} to {two} and "
            f"{transit[back].mean():.3f} from {two} to {one}: {why}"
        )

    def why_no_t_nic(self, waited: int) -> str:
        """Say why there is no frame to take t_nic from."""
        if self.r_net is None:
            return "the rate of the link is not known; add [link] rate_mbit_s to run.toml"
        if len(self.times.hosts) == 1:
            return "one host only: the receiving DMA was not captured"
        if waited:
            return f"all {waited} frames waited for an earlier one"
        return "no frame was seen on both buses"

    def sides(self) -> tuple[Estimate, Estimate]:
        """Return the transit of the sending and of the receiving side, over the frames that waited for none."""
        found = []
        for column, begin, end, what in (
            ("t_nic_tx_us", "dma_end_us", "wire_start_us", "sending"),
            ("t_nic_rx_us", "wire_end_us", "rx_dma_start_us", "receiving"),
        ):
            values, errors = self.times.us[column], self.times.errors(begin, end)
            known = ~np.isnan(values)
            rows = np.flatnonzero(known & ~self.times.queued & ~self.times.unclear)
            found.append(
                mean(values[rows], errors[rows], unclear=values[known & self.times.unclear])
                if known.any()
                else unknown("the frames on the wire were not captured")
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
        table = pd.DataFrame({name: self.times.us[name][self.times.clean] for name in columns})
        groups = table.groupby(self.times.length[self.times.clean])
        summary = pd.DataFrame({"n": groups.size()})
        for name in columns:
            summary[name] = groups[name].mean()
            summary[name.replace("_us", "_sem_us")] = groups[name].sem()
        return summary.rename_axis("length_bytes").reset_index()

    def csr_costs(self) -> pd.DataFrame:
        """Return what the CSR accesses cost on each host."""
        found = []
        for what, (begin, end) in CSR_INTERVALS.items():
            took = self.times.us[end] - self.times.us[begin]
            errors = self.times.errors(begin, end)
            for number, name in enumerate(self.times.hosts):
                rows = np.flatnonzero((self.times.host(end) == number) & ~np.isnan(took))
                one = mean(took[rows], errors[rows])
                found.append((name, what, one.value, one.sigma, one.scatter, one.n))
        return pd.DataFrame(found, columns=["host", "what", "value", "sigma", "scatter", "n"])
