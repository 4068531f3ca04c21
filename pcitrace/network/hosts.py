"""Many hosts: who got how much, in which order answers came, and what reached hosts it was not for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from pcitrace.errors import ConfigurationError, FitError
from pcitrace.network.flows import FlowResult
from pcitrace.network.measurement import Measurement, Point
from pcitrace.network.result import PointResult, Result
from pcitrace.network.width import peaks

__all__ = ["answers", "flooding", "head_of_line", "peak_separations", "separations", "shares"]


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
        A row a size: ``length_bytes``, ``alone_mbit_s``, ``beside_mbit_s``, ``ratio`` and its sigma. Without
        head-of-line blocking the ratio is 1.
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
        rows.append((point.length_bytes, first.value, second.value, ratio, sigma))
    return pd.DataFrame(rows, columns=["length_bytes", "alone_mbit_s", "beside_mbit_s", "ratio", "ratio_sigma"])


def peak_separations(values_us: npt.ArrayLike) -> list[float]:
    """Return the distances between the peaks of a distribution, in us (Table 5.1)."""
    found = peaks(values_us)
    return [after.at_us - before.at_us for before, after in itertools.pairwise(found)]


def _rate(one: FlowResult) -> float:
    assert one.spacing is not None
    return one.spacing.mbit_s(one.flow.length_bytes)[0]
