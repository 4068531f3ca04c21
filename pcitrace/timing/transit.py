"""t_nic: how long a frame takes through the cards, over which frames, and whether it depends on their length.

``gap = first data phase of the receiving DMA - last data phase of the sending DMA`` and ``t_nic = (gap - wire time)/2``
(R. Hughes-Jones and F. Saka, ATLAS note, 2000, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from pcitrace.columns import Floats, Integers
from pcitrace.estimate import ALIKE, SIGNIFICANT, Estimate, Line, difference, line, mean, unknown
from pcitrace.timing.frametimes import FrameTimes
from pcitrace.traffic.dma import Kind
from pcitrace.uncertainty import Errors, dot

__all__ = ["Forwarding", "Transit", "by_length", "forwarding", "sides", "transit"]

NO_LINK = "the rate of the link is not known; add [link] rate_mbit_s to run.toml"
OVERLAP = "wire and DMA overlap"

CLEARLY_OFF = 5.0
"""Standard uncertainties by which one of many lengths has to be off the mean of all; chance alone makes 3 of some."""


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
class Transit:
    """What the frames that waited for no other say about t_nic.

    Attributes
    ----------
    mean : Estimate
        Mean of (gap - wire time)/2 (us). Not known where DMA and wire overlap, and where it depends on the length: a
        mean over whatever lengths were sent is a property of the test, not of the card.
    queued : Estimate
        The same mean over the frames that waited; n counts them.
    line : Line
        t_nic against user bytes.
    at : pandas.DataFrame
        One row a length: ``length_bytes``, ``n``, ``value``, ``sigma``, ``sigma_measurement``, ``sigma_frames`` (us).
    depends : bool
        Whether t_nic depends on the length; false where there is no t_nic.
    """

    mean: Estimate
    queued: Estimate
    line: Line
    at: pd.DataFrame
    depends: bool

    def __str__(self) -> str:
        if self.mean.value is None and self.line.slope.value is not None and self.depends:
            return f"{self.line.intercept} + {self.line.slope} b"
        return str(self.mean)


def forwarding(times: FrameTimes, findings: list[str]) -> tuple[Line, Forwarding]:
    """Compare the slope of the gap with that of the wire; what there is to report is added to `findings`."""
    if times.r_net is None:
        return Line(unknown(NO_LINK), unknown(NO_LINK), np.zeros(0)), Forwarding.UNKNOWN
    rows = np.flatnonzero(times.clean)
    errors = times.length_errors(times.errors("dma_end_us", "rx_dma_start_us"), times.r_net)
    on_wire = times.wire_us[rows] / times.r_net
    gap = line(on_wire, times.us["gap_us"][rows], errors[rows], x_sigma=times.length_sigma[rows])
    slope = gap.slope
    if slope.value is None or slope.sigma is None:
        early = mean(times.transit_us[rows], errors.scaled(0.5)[rows])
        if early.value is not None and early.value < -SIGNIFICANT * (early.sigma or 0.0):
            findings.append(
                f"{OVERLAP}: (gap - wire time)/2 is {early.value:.3f} us over {early.n} frames; t_nic is not given"
            )
            return gap, Forwarding.OVERLAP
        return gap, Forwarding.UNKNOWN
    off = slope.value - times.r_net
    sigmas = abs(off) / slope.sigma if slope.sigma else np.inf
    text = f"the gap's slope is {slope.value:.6f} us/byte over {slope.n} frames, the wire's {times.r_net:.6f}"
    if slope.value < times.r_net / 2:
        if sigmas > SIGNIFICANT:
            findings.append(f"{OVERLAP}: {text}; t_nic is not given")
            return gap, Forwarding.OVERLAP
        findings.append(f"whether the cards store and forward cannot be told: {text}, known to {slope.sigma:.6f} only")
        return gap, Forwarding.UNKNOWN
    if sigmas > SIGNIFICANT:
        findings.append(
            f"not strictly store and forward: {text} ({sigmas:.1f} sigma apart); "
            f"t_nic changes by {off / 2 * 1e3:.3f} us per 1000 bytes"
        )
        return gap, Forwarding.DEVIATES
    return gap, Forwarding.STORE_AND_FORWARD


def transit(times: FrameTimes, kind: Forwarding, findings: list[str]) -> Transit:
    """Measure t_nic; what there is to report is added to `findings`."""
    errors = times.length_errors(times.errors("dma_end_us", "rx_dma_start_us").scaled(0.5), (times.r_net or 0.0) / 2)
    rows = np.flatnonzero(times.clean)
    _compare_directions(times, errors, rows, findings)
    length, blur = times.length[rows].astype(float), times.length_sigma[rows]
    against = line(length, times.transit_us[rows], errors[rows], x_sigma=blur)
    at = _at_each_length(times, errors, rows)
    waited = np.flatnonzero(~np.isnan(times.us["t_nic_us"]) & times.queued)
    queued = mean(times.transit_us[waited], errors[waited], "no frame waited")
    if kind is Forwarding.OVERLAP:
        return Transit(unknown(OVERLAP, len(rows)), queued, against, at, depends=False)
    if not len(rows):
        return Transit(unknown(_why_none(times, len(waited))), queued, against, at, depends=False)
    found = mean(times.transit_us[rows], errors[rows], unclear=_unclear(times, rows))
    bounded = int(times.bounded[rows].sum())
    if bounded:
        spare = times.spare_bytes[times.bounded].max()
        findings.append(
            f"the lengths of {bounded} of {len(rows)} frames are upper bounds; t_nic takes them to be {spare:g} "
            "bytes shorter in the mean, which is part of its sigma; a wire probe, AD or a frame log makes them exact"
        )
    if kind is Forwarding.UNKNOWN and against.slope.value is None:
        findings.append(f"whether the cards store and forward cannot be tested: {against.slope.reason}")
    depends = _depends(found, against, at)
    if depends:
        low, high = at.iloc[0], at.iloc[-1]
        reason = (
            f"it depends on the length: {low['value']:.4g} us at {low['length_bytes']:.0f} bytes, {high['value']:.4g} "
            f"at {high['length_bytes']:.0f}; a mean would be that of the lengths that were sent"
        )
        found = unknown(reason, len(rows))
    return Transit(found, queued, against, at, depends)


def _unclear(times: FrameTimes, rows: Integers) -> Floats:
    """Return the transits of frames that may have waited, and may not."""
    both = ~np.isnan(times.us["t_nic_us"])
    some = times.transit_us[both & times.unclear]
    # So may receives of which the frame is not known: they took as long as others do.
    without, _ = times.without(Kind.RECEIVE_DATA, times.us["t_nic_us"], times.receiver[rows])
    usual = times.transit_us[rows]
    return np.concatenate([some, np.full(len(without), usual.mean() + usual.std())])


def _at_each_length(times: FrameTimes, errors: Errors, rows: Integers) -> pd.DataFrame:
    """Return t_nic at each length. How much single frames differ is taken from all lengths together."""
    length, values = times.length[rows], times.transit_us[rows]
    lengths, which = np.unique(length, return_inverse=True)
    count = np.bincount(which, minlength=len(lengths))
    means = np.bincount(which, weights=values, minlength=len(lengths)) / np.maximum(count, 1)
    off, free = values - means[which], len(rows) - len(lengths)
    own = max(dot(off, off) / free - float(errors.variance[rows].mean()), 0.0) if free > 0 else np.nan
    sigmas = [errors[rows[which == one]].sigma(np.full(n, 1 / n)) for one, n in enumerate(count.tolist())]
    measurement, among = np.array(sigmas, dtype=float), np.sqrt(own / np.maximum(count, 1))
    return pd.DataFrame(
        {
            "length_bytes": lengths,
            "n": count,
            "value": means,
            "sigma": np.hypot(measurement, np.nan_to_num(among)),
            "sigma_measurement": measurement,
            "sigma_frames": among,
        }
    )


def _depends(found: Estimate, against: Line, at: pd.DataFrame) -> bool:
    """Return whether t_nic depends on the length: significantly, and by more than two cards alike may differ."""
    if found.value is None or len(at) < 2 or found.scatter is None:
        return False
    least_us = ALIKE * abs(found.value)
    slope = against.slope
    if slope.value is not None and slope.sigma is not None:
        change_us = abs(slope.value) * float(np.ptp(at["length_bytes"]))
        if change_us > least_us and abs(slope.value) > SIGNIFICANT * slope.sigma:
            return True
    off = (at["value"] - found.value).abs()
    return bool(((off > CLEARLY_OFF * at["sigma"]) & (off > least_us) & at["sigma_frames"].notna()).any())


def _compare_directions(times: FrameTimes, errors: Errors, rows: Integers, findings: list[str]) -> None:
    """Report directions that are not alike: two analysers that are apart make one as much longer as one shorter."""
    found, back = times.transit_us[rows], times.sender[rows] == 1
    apart = difference(found, errors[rows], back, times.length[rows])
    # One frame each way does not say how far they vary.
    if apart.value is None or apart.sigma_frames is None or not apart.sigma:
        return
    if abs(apart.value) <= max(SIGNIFICANT * apart.sigma, ALIKE * found.mean()):
        return
    one, two = list(times.hosts)
    captures = {host.capture for host in times.hosts.values()}
    why = (
        f"the cards differ, or offset_us is wrong by {abs(apart.value):.3g} us"
        if len(captures) > 1
        else "the cards differ"
    )
    findings.append(
        f"the directions differ: t_nic is {found[~back].mean():.3f} us from {one} to {two} and "
        f"{found[back].mean():.3f} from {two} to {one}: {why}"
    )


def _why_none(times: FrameTimes, waited: int) -> str:
    """Say why there is no frame to take t_nic from."""
    if times.r_net is None:
        return NO_LINK
    if len(times.hosts) == 1:
        return "one host only: the receiving DMA was not captured"
    for name, host in times.hosts.items():
        if host.lost:
            return f"the offset of {name}'s capture is not known: {host.lost}"
    if waited:
        return f"all {waited} frames waited for an earlier one"
    return "no frame was seen on both buses"


def sides(times: FrameTimes, findings: list[str]) -> tuple[Estimate, Estimate]:
    """Return the transit of the sending and of the receiving side, over the frames that waited for none."""
    found = []
    for column, begin, end, what in (
        ("t_nic_tx_us", "dma_end_us", "wire_start_us", "sending"),
        ("t_nic_rx_us", "wire_end_us", "rx_dma_start_us", "receiving"),
    ):
        values, errors = times.us[column], times.errors(begin, end)
        known = ~np.isnan(values)
        rows = np.flatnonzero(known & ~times.queued & ~times.unclear)
        found.append(
            mean(values[rows], errors[rows], unclear=values[known & times.unclear])
            if known.any()
            else unknown("the frames on the wire were not captured")
        )
        early = known & (values < -SIGNIFICANT * np.sqrt(errors.variance))
        if early.any():
            findings.append(
                f"{what} side: DMA and wire overlap in {int(early.sum())} of {int(known.sum())} frames "
                f"({column} down to {values[early].min():.3f} us): the card is cut-through there"
            )
    return found[0], found[1]


def by_length(times: FrameTimes) -> pd.DataFrame:
    """Summarise the frames that waited for none by their length: mean, standard error, standard deviation."""
    columns = ("gap_us", "t_nic_us", "t_nic_tx_us", "t_nic_rx_us")
    table = pd.DataFrame({name: times.us[name][times.clean] for name in columns}, copy=False)
    groups = table.groupby(times.length[times.clean])
    summary = pd.DataFrame({"n": groups.size()})
    for name in columns:
        summary[name] = groups[name].mean()
        summary[name.replace("_us", "_sem_us")] = groups[name].sem()
        summary[name.replace("_us", "_sd_us")] = groups[name].std()
    return summary.rename_axis("length_bytes").reset_index()
