"""R_PCI: how long a byte takes on the bus, sending and receiving."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from pcitrace.columns import Floats
from pcitrace.estimate import ALIKE, SIGNIFICANT, Estimate, difference, line, unknown
from pcitrace.facts import HEADER_BYTES
from pcitrace.freed import give_back
from pcitrace.timing.frametimes import UNIFORM, FrameTimes, phase_bytes
from pcitrace.traffic.dma import Dma, Kind
from pcitrace.uncertainty import PLACES, Comb, Errors

__all__ = ["Rate", "measure"]


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


def measure(times: FrameTimes, side: str, findings: list[str]) -> Rate:
    """Measure R_PCI of one direction.

    Parameters
    ----------
    times : FrameTimes
    side : str
        ``send`` or ``receive``.
    findings : list of str
        What there is to report is added.
    """
    give_back()
    if side == "receive" and len(times.hosts) == 1:
        return _received_alone(times)
    kind = Kind.SEND_DATA if side == "send" else Kind.RECEIVE_DATA
    burst = _burst(times, kind)  # of all pieces: before there is anything of the frames
    give_back()
    if side == "send":
        duration, host = times.us["dma_us"], times.sender
        errors = times.errors("dma_start_us", "dma_end_us")
    else:
        duration, host = times.us["rx_dma_us"], times.receiver
        errors = times.errors("rx_dma_start_us", "rx_dma_end_us")
    known = ~np.isnan(duration) & (times.length >= 0) & (host >= 0)
    size: Floats = times.length + (HEADER_BYTES - times.spare_bytes)
    # Where only their pauses part the frames, what came out alike on both hosts is one; another may be two, or a part.
    alone = known & times.bounded & np.isnan(times.us["gap_us"]) & (len(times.hosts) == 2)
    known &= ~alone
    rows = np.flatnonzero(known)
    blur = times.length_sigma[rows]
    slope = line(size[rows], duration[rows], errors[rows], x_sigma=blur).slope
    if slope.value is not None:
        errors = times.length_errors(errors, slope.value)
    # The constant is the slope over frames that could not be told too. Leaving them out is no fair choice: what makes a
    # DMA long makes its frame hard to tell.
    loose_size, loose_took = times.without(kind, duration, host[rows])
    unclear = np.r_[loose_size, size[alone]], np.r_[loose_took, duration[alone]]
    whole = line(size[rows], duration[rows], errors[rows], x_sigma=blur, unclear=unclear)
    by_host = {}
    for number, name in enumerate(times.hosts):
        mine = np.flatnonzero(known & (host == number))
        by_host[name] = line(size[mine], duration[mine], errors[mine], x_sigma=times.length_sigma[mine]).slope
    if rows.size and whole.slope.value is None:
        findings.append(f"R_PCI ({side}) is not known: {whole.slope.reason}")
    apart = difference(duration[rows], errors[rows], host[rows] == 1, times.length[rows])
    usual = float(np.abs(duration[rows]).mean()) if rows.size else 0.0
    findings += _compare(side, by_host, apart, usual)
    return Rate(whole.slope, whole.intercept, burst, by_host)


def _received_alone(times: FrameTimes) -> Rate:
    """Measure R_PCI of receiving where the sender's bus was not captured: of the bursts, for there are no frames."""
    [(name, traffic)], [clockwork] = times.frames.hosts.items(), times.hosts.values()
    joined, width = traffic.joined, phase_bytes(traffic)
    rows = np.flatnonzero((joined.kind == Kind.RECEIVE_DATA) & (joined.data_phases > 0))
    size, bounded = joined.bytes[rows], 0.0 if traffic.dma.bus.bytes_exact else 1.0
    edges = np.stack([joined.first_data_us[rows], joined.last_data_us[rows]])
    errors = Errors(np.full(len(rows), 2 * UNIFORM * clockwork.step_us**2))
    if clockwork.clock_us and clockwork.step_us and len(rows):
        amount = np.outer([-clockwork.step_us, clockwork.step_us], np.ones(len(rows)))
        place = clockwork.place(edges, float(edges[0, len(rows) // 2]))
        errors = Errors(errors.variance, (), (Comb(amount, (place * PLACES).astype(np.int64)),))
    blur = np.full(len(rows), bounded * sqrt((width**2 - 1) * UNIFORM))
    x, y = size.astype(np.float64) - bounded * (width - 1) / 2, edges[1] - edges[0]
    found = line(x, y, errors, "receives", x_sigma=blur)
    if found.slope.value is not None:
        found = line(x, y, errors.with_shared(blur * found.slope.value, size), "receives", x_sigma=blur)
    return Rate(found.slope, found.intercept, _burst(times, Kind.RECEIVE_DATA), {name: found.slope})


def _compare(side: str, by_host: dict[str, Estimate], apart: Estimate, usual_us: float) -> list[str]:
    """Report hosts that are not alike: Equation 2.1 has one constant for both."""
    known = [(name, one, one.value) for name, one in by_host.items() if one.value is not None]
    if len(known) == 2:
        (one, first, low), (two, second, high) = known
        sigma = sqrt((first.sigma or 0.0) ** 2 + (second.sigma or 0.0) ** 2)
        if abs(low - high) > max(SIGNIFICANT * sigma, ALIKE * abs(low)):
            return [
                f"the hosts differ: R_PCI ({side}) is {first} us/byte on {one} and {second} on {two}; the constant is "
                "the slope over all frames together"
            ]
    if apart.value is None or apart.sigma_frames is None or not apart.sigma:
        return []
    if abs(apart.value) <= max(SIGNIFICANT * apart.sigma, ALIKE * usual_us):
        return []
    short, long = by_host if apart.value > 0 else reversed(by_host)
    alone = "".join(f"; {name} alone has {value}" for name, value, _ in known)
    return [
        f"the hosts differ: the {side} DMA of a frame takes {abs(apart.value):.3g} us more on {long} than of one "
        f"as long on {short}; R_PCI ({side}) is the slope over all frames together{alone}"
    ]


def _burst(times: FrameTimes, kind: Kind) -> Estimate:
    """Return the burst rate over all pieces of one kind."""
    of_hosts, variance = [], 0.0
    for name, traffic in times.frames.hosts.items():
        of_hosts.append(_pieces(traffic.dma, kind))
        variance += 2 * UNIFORM * times.hosts[name].step_us ** 2 * len(of_hosts[-1][0])
    # Mostly one host has them all: they are not copied.
    some = [one for one in of_hosts if len(one[0])] or of_hosts[:1]
    duration, moved = (one[0] if len(one) == 1 else np.concatenate(one) for one in zip(*some, strict=True))
    del of_hosts, some
    n, total = len(duration), float(moved.sum())
    if not n:
        return unknown(f"no {kind.name.lower().replace('_', ' ')} moved more than one data phase")
    value = float(duration.sum()) / total
    moved *= value
    duration -= moved
    np.multiply(duration, duration, out=moved)
    own = max(float(moved.sum()) * n / max(n - 1, 1) - variance, 0.0)
    error = sqrt(own) / total if n > 1 else None
    return Estimate(value, sqrt(variance) / total, n, sigma_frames=error, unit="us/byte")


def _pieces(dma: Dma, kind: Kind) -> tuple[Floats, Floats]:
    """Return of each piece of one kind what it took from its first data phase to its last, and the bytes after it."""
    pieces = dma.bus.take((dma.kind == kind) & (dma.bus.data_phases > 1))
    took = pieces.last_data_us - pieces.first_data_us
    # Whole phases: the last one takes its clock however many of its bytes are enabled.
    moved = np.where(pieces.wide, 8.0, 4.0)
    moved *= pieces.data_phases - 1
    return took, moved
