"""Many hosts: who got how much, in which order answers came, and what reached hosts it was not for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from pcitrace.errors import ConfigurationError, FitError
from pcitrace.network.extremes import alike, no_different
from pcitrace.network.flows import FlowResult
from pcitrace.network.measurement import Measurement, Point
from pcitrace.network.parameter import measured, unknown
from pcitrace.network.result import PointResult, Result
from pcitrace.network.width import Width

__all__ = [
    "alone_and_beside",
    "answers",
    "blocking",
    "flooding",
    "head_of_line",
    "separations",
    "shares",
    "widths",
]

SURELY = 3.0
"""Standard deviations by which a stream must be slower beside another to be held up by it."""

STILL = 10.0
"""By what factor the longest time between two arrivals must be longer, otherwise: one interruption makes the mean
uncertain."""

LEAST_SHARE = 0.01
"""And by how much, relatively: clocks run apart, and a host that sends two streams is a little later with each."""


def shares(points: Sequence[PointResult]) -> pd.DataFrame:
    """Return what each sender got through a port that several share (fan-in).

    Returns
    -------
    pandas.DataFrame
        A row a point and sender: ``length_bytes``, ``source``, ``user_mbit_s``, ``share`` of the total, ``loss_ratio``.
    """
    rows = []
    for point in points:
        into = [one for one in point.flows if one.spacing is not None]
        rates = [_rate(one) for one in into]
        for one, rate in zip(into, rates, strict=True):
            lost = None if one.losses is None else one.losses.ratio.value
            rows.append((point.length_bytes, one.flow.source, rate, rate / sum(rates), lost))
    return pd.DataFrame(rows, columns=["length_bytes", "source", "user_mbit_s", "share", "loss_ratio"])


def answers(points: Sequence[PointResult]) -> pd.DataFrame:
    """Return the round trips to every node that answers a multicast: ``length_bytes``, ``node``, ``median_us`` ..."""
    rows = [
        (point.length_bytes, loop.node, loop.delay.n, *loop.delay.median_us, loop.delay.least_us)
        for point in points
        for loop in point.loops
        if loop.delay is not None
    ]
    return pd.DataFrame(rows, columns=["length_bytes", "node", "n", "median_us", "median_sigma_us", "least_us"])


def separations(point: Point) -> pd.DataFrame:
    """Return in which order the nodes' answers came, and how far apart.

    Parameters
    ----------
    point : Point
        Of a one-to-many test.

    Returns
    -------
    pandas.DataFrame
        A row a place in the order of arrival, from 1: ``after_us`` median time since the answer before (null for the
        first), and
        ``node_N``, how often each node's answer came at this place.

    Raises
    ------
    FitError
        The asking host's log is not there.
    """
    log = point.log(0, "received")
    if log is None or not len(log):
        raise FitError("the order of answers needs the asking host's received log")
    mine = log[(log.flags == 0) & (log.node != 0)]
    order = np.lexsort((mine.receive_ns, mine.sequence))
    sequence, node, came = mine.sequence[order], mine.node[order], mine.receive_ns[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(sequence.astype(np.int64)) != 0]))
    place = np.arange(len(sequence)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(sequence)]])))
    rows = []
    for nth in range(int(place.max()) + 1):
        here = np.flatnonzero(place == nth)
        after = np.nan if nth == 0 else float(np.median(came[here] - came[here - 1])) / 1e3
        counts = {f"node_{number}": int((node[here] == number).sum()) for number in np.unique(node).tolist()}
        rows.append({"place": nth + 1, "after_us": after} | counts)
    return pd.DataFrame(rows)


def flooding(one: Measurement) -> pd.DataFrame:
    """Return the frames that reached nodes they were not for: a switch that has not learned an address floods it.

    Returns
    -------
    pandas.DataFrame
        A row a point, stream and bystander: ``length_bytes``, ``stream``, ``source``, ``bystander``, ``frames``.
    """
    rows = []
    for point in one.points:
        meant = {
            (flow.stream, flow.source): {other.to for other in point.flows if other.stream == flow.stream}
            for flow in point.flows
        }
        for node, kind in sorted(point.files):
            if all(node in to for to in meant.values()):  # no bystander: its log need not be read again
                continue
            try:
                log = point.log(node, kind) if kind == "received" else None
            except ConfigurationError:  # a finding already, of the flow whose log it is
                continue
            if log is None:
                continue
            for (stream, source), to in meant.items():
                frames = int(((log.stream == stream) & (log.node == source)).sum())
                if frames and node not in to:
                    rows.append((point.length_bytes, stream, source, node, frames))
    return pd.DataFrame(rows, columns=["length_bytes", "stream", "source", "bystander", "frames"])


def head_of_line(alone: Result, beside: Result) -> pd.DataFrame:
    """Return what a stream to a free port loses while another from the same host goes to a port that is held up.

    Parameters
    ----------
    alone, beside : Result
        The stream to the free port by itself, and with the other one.

    Returns
    -------
    pandas.DataFrame
        A row a size: ``length_bytes``, ``alone_mbit_s``, ``beside_mbit_s``, ``ratio`` and its sigma;
        ``alone_longest_us``, ``beside_longest_us``, the longest time between two arrivals. Without head-of-line
        blocking the ratio is 1.
    """
    rows = []
    with_it = {point.length_bytes: point for point in beside.points}
    for point in alone.points:
        other = with_it.get(point.length_bytes)
        first, second = (None if each is None else each.parameters["user_mbit_s"] for each in (point, other))
        if first is None or second is None or not first.value or second.value is None:
            continue
        ratio = second.value / first.value
        sigma = ratio * np.hypot((first.sigma or 0) / first.value, (second.sigma or 0) / max(second.value, 1e-12))
        longest = (_longest(point), None if other is None else _longest(other))
        rows.append((point.length_bytes, first.value, second.value, ratio, sigma, *longest))
    columns = ["length_bytes", "alone_mbit_s", "beside_mbit_s", "ratio", "ratio_sigma"]
    return pd.DataFrame(rows, columns=[*columns, "alone_longest_us", "beside_longest_us"])


def blocking(results: Sequence[Result]) -> list[Result]:
    """Return what streams lose beside others: the same stream by itself and with companions, over one path.

    Returns
    -------
    list of Result
        One a pair, of the kind ``head-of-line``; none where no stream was measured both ways.
    """
    return [_blocked(alone, beside) for alone, beside in alone_and_beside(results, ("stream", "max-rate"))]


def alone_and_beside(results: Sequence[Result], kinds: Collection[str]) -> list[tuple[Result, Result]]:
    """Return the same test over one path by itself and with companions, in pairs."""
    told = [(one, one.measurement) for one in results if one.kind in kinds and one.measurement is not None]
    by_itself = [one for one, measurement in told if not measurement.companions]
    return [
        (alone, beside)
        for beside, measurement in told
        if measurement.companions
        for alone in by_itself
        if _same_test(alone, beside)
    ]


def _same_test(alone: Result, beside: Result) -> bool:
    def what(one: Result) -> tuple[object, ...]:
        assert one.measurement is not None
        points = [(point.length_bytes, point.spacing_us) for point in one.points]
        return one.kind, one.measurement.path.kind, one.path, one.measurement.request_bytes, points

    return what(alone) == what(beside)


def _blocked(alone: Result, beside: Result) -> Result:
    table = head_of_line(alone, beside)
    if not len(table):
        reason = "no throughput of a size is known both ways"
        return Result("head-of-line", beside.path, None, {"beside_ratio": unknown("beside_ratio", reason)})
    ranked = table.sort_values("ratio", ignore_index=True)
    many, ratio, sigma = alike(ranked["ratio"], ranked["ratio_sigma"])
    worst = ranked.iloc[0]
    where = f"least of {len(table)} sizes: {int(worst['length_bytes'])} bytes{no_different(many)}"
    where += "; throughput beside the others over alone"
    findings: tuple[str, ...] = ()
    alone_us, beside_us = float(worst["alone_longest_us"]), float(worst["beside_longest_us"])
    if 1 - ratio > max(LEAST_SHARE, SURELY * sigma) or (1 - ratio > LEAST_SHARE and beside_us > STILL * alone_us):
        said = f"beside its companions the stream has {ratio:.3g} of its throughput"
        said += f", and stood still for up to {beside_us:.6g} us (alone {alone_us:.6g}): it was held up"
        findings = (f"{beside.path}: {said}",)
    parameters = {"beside_ratio": measured("beside_ratio", (ratio, sigma), len(table), where)}
    return Result("head-of-line", beside.path, None, parameters, tables={"head_of_line": table}, findings=findings)


def widths(results: Sequence[Result]) -> pd.DataFrame:
    """Return how wide one-way latencies are by how many hosts send to one at the same time.

    Returns
    -------
    pandas.DataFrame
        A row a stream: ``senders``, ``length_bytes``, ``source``, ``fwhm_us`` and its sigma.
    """
    rows = [
        (len(point.flows), flow.flow.length_bytes, flow.flow.source, *flow.width.fwhm_us)
        for one in results
        for point in one.points
        for flow in point.flows
        if isinstance(flow.width, Width)
    ]
    return pd.DataFrame(rows, columns=["senders", "length_bytes", "source", "fwhm_us", "fwhm_sigma_us"])


def _longest(point: PointResult) -> float | None:
    known = [flow.between.largest_us for flow in point.flows if flow.between is not None]
    return max(known, default=None)


def _rate(one: FlowResult) -> float:
    assert one.spacing is not None
    return one.spacing.mbit_s(one.flow.length_bytes)[0]
