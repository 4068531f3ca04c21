"""How far clocks that were compared by frames are off, where one analyser captured the buses of both hosts.

A host stamps a frame some time before its DMA starts. The analyser sees both hosts' DMAs on one timebase: if both hosts
take as long from stamp to DMA, what the stamps are apart there is what the clocks are apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pcitrace.errors import PciTraceError
from pcitrace.network import clocks
from pcitrace.network.measurement import Measurement
from pcitrace.network.parameter import measured
from pcitrace.network.result import Result
from pcitrace.network.sizes import quantile

__all__ = ["BusFrames", "with_timebase"]

BusFrames = Callable[[Path], pd.DataFrame]
"""Gives the frames that the buses of a run folder show: the table `frames`. PciTraceError if they show none."""

LEAST = 10
"""Frames of each host from which on a line is laid through its stamps."""

Floats = npt.NDArray[np.float64]


def with_timebase(one: Result, bus_frames: BusFrames | None, method: str) -> Result:
    """Return a result with `clock_off_us`, where one analyser captured both hosts and clocks were compared."""
    measurement = one.measurement
    if measurement is None or bus_frames is None or not measurement.exchanges or not _one_analyser(measurement.run):
        return one
    node = min(measurement.exchanges)
    try:
        clock = clocks.fit(node, measurement.exchanges[node], method)
        frames = bus_frames(measurement.folder)
    except PciTraceError:
        return one  # a finding, or t_sw_us, says why
    stamps = {
        each: _stamped(measurement, each, frames[frames["sender"] == name])
        for each, name in enumerate(_nodes(measurement.run))
    }
    if any(each not in stamps or len(stamps[each][0]) < LEAST for each in (0, node)):
        return one
    (ours_us, ours_ns), (theirs_us, theirs_ns) = stamps[0], stamps[node]
    middle = float(ours_us.mean())
    lag = ours_ns / 1e3 - ours_us
    rate, base = np.polyfit(ours_us - middle, lag, 1)
    rest = lag - base - rate * (ours_us - middle)
    brought = (theirs_ns - np.int64(clock.base_ns) - clock.minus_ours_ns(theirs_ns)) / 1e3 - theirs_us
    off = brought - base - rate * (theirs_us - middle)
    value, sigma = quantile(off, 0.5)
    sigma = math.hypot(sigma, float(rest.std(ddof=2)) / math.sqrt(len(rest)))
    why = (
        f"node {node}, by the analyser that captured both buses, if both hosts take as long from stamp to DMA; "
        f"the exchanges bound it by {clock.bound_us:.3g} us"
    )
    found = measured("clock_off_us", (value, sigma), len(off), why)
    return replace(one, parameters={**one.parameters, "clock_off_us": found})


def _one_analyser(run: Mapping[str, Any]) -> bool:
    """Return whether both hosts' buses are in one capture."""
    captures = {host.get("capture") for host in run.get("hosts", {}).values()}
    return len(captures) == 1 and None not in captures and len(run["hosts"]) == 2


def _nodes(run: Mapping[str, Any]) -> list[str]:
    """Return the names of the hosts by their nodes."""
    known = {int(host.get("node", number)): name for number, (name, host) in enumerate(run["hosts"].items())}
    return [known[node] for node in sorted(known)]


def _stamped(one: Measurement, node: int, frames: pd.DataFrame) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return when the DMAs of a host's frames started, us on the analyser, and their stamps; of numbers that only one
    frame has.
    """
    by_file = {point.files[node, "sent"]: point for point in one.points if (node, "sent") in point.files}
    logs = [log for point in by_file.values() if (log := point.log(node, "sent")) is not None]
    known = frames.dropna(subset=["dma_start_us", "sequence"]).drop_duplicates("sequence", keep=False)
    if not logs:
        return np.empty(0), np.empty(0, np.int64)
    numbers = np.concatenate([log.sequence for log in logs]).astype(np.int64)
    stamps = np.concatenate([log.send_ns for log in logs])
    unique, at, count = np.unique(numbers, return_index=True, return_counts=True)
    unique, at = unique[count == 1], at[count == 1]
    _, mine, theirs = np.intersect1d(
        unique, known["sequence"].to_numpy(dtype=np.int64), assume_unique=True, return_indices=True
    )
    return known["dma_start_us"].to_numpy(dtype=np.float64)[theirs], stamps[at[mine]]
