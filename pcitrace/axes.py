"""The run's one time axis, where several captures have clocks of their own.

What ``run.toml`` states is taken, and is a finding where the frames contradict it. What it does not state is
estimated from the frames, in three steps: the buses are analysed each on its own axis; the sends and receives of both
give a coarse offset (:mod:`pcitrace.frames.offsets`); with it frames are matched, and those that waited for nothing
give the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import hypot, sqrt

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans
from pcitrace.estimate import SIGNIFICANT, Estimate, unknown
from pcitrace.frames import Frames
from pcitrace.frames.ends import HostTraffic, Link
from pcitrace.frames.offsets import Coarse, coarse, passing, refined
from pcitrace.run import Run
from pcitrace.traffic.dma import Kind

__all__ = ["contradiction", "off_axis", "place"]

ONE_WAY = "frames go one way only, so that nothing tells an offset from a longer way; state offset_us in run.toml"
NO_FRAMES = "which receives are the frames that were sent cannot be told both ways; state offset_us in run.toml"
REFERENCE = "the run's time axis is that of this capture"

CLEAR_US = 0.05
"""How much earlier than it was sent a frame may seem to arrive: several sampling steps."""

SENDING = (
    "csr_first_us", "csr_last_us", "csr_done_us", "dma_start_us", "dma_end_us", "status_us", "wire_start_us",
    "wire_end_us",
)  # fmt: skip
RECEIVING = ("rx_dma_start_us", "rx_dma_end_us", "rx_status_us", "rx_csr_us")
BETWEEN = ("gap_us", "t_nic_us", "t_nic_rx_us")
"""Columns of times on the sender's axis, on the receiver's, and differences of both."""


def place(
    run: Run, host: Callable[[str], HostTraffic], matched: Callable[[dict[str, HostTraffic]], Frames]
) -> list[Estimate]:
    """Put every capture of a run on its time axis.

    Parameters
    ----------
    run : Run
        Is moved to the axis that comes out.
    host : callable
        Analyses the bus of a host on the axis on which it is.
    matched : callable
        Follows the frames between hosts.

    Returns
    -------
    list of Estimate
        The offset of each capture.
    """
    if run.folder is None:
        return [Estimate(0.0, 0.0, 0, "given", unit="us") for _ in run.captures]
    entries = run.folder.run["captures"]
    found = [
        Estimate(entry["offset_us"], entry.get("offset_sigma_us", 0.0 if number == 0 else None), 0, "given", unit="us")
        if run.folder.placed(number)
        else unknown(NO_FRAMES)
        for number, entry in enumerate(entries)
    ]
    names = run.folder.bus_hosts
    where = [run.folder.run["hosts"][name]["capture"] for name in names]
    if len(names) != 2 or where[0] == where[1] or all(run.folder.placed(number) for number in where):
        return found
    if run.folder.placed(where[1]):
        names, where = names[::-1], where[::-1]
    first, second = (host(name) for name in names)
    link = _link_of(run)
    bounds = coarse(passing(first, second, link), passing(second, first, link))
    if (bounds is None or not bounds.both_ways) and _sends(first) and _sends(second):
        there, back = passing(first, second, link, pieces=True), passing(second, first, link, pieces=True)
        bounds = coarse(there, back) or bounds
    if bounds is None:
        return found
    stated = "drift_ppm" in entries[where[1]]
    drift_ppm = entries[where[1]]["drift_ppm"] if stated else bounds.drift_ppm
    run.move(run.folder.with_offset(where[1], bounds.offset_us, drift_ppm))
    if not bounds.both_ways:
        both = all(_sends(one) for one in (first, second))
        found[where[1]] = unknown(NO_FRAMES if both else ONE_WAY)
        return found
    found[where[1]] = _refine(
        run, where[1], matched({name: host(name) for name in run.folder.bus_hosts}), names, stated
    )
    return found


def _link_of(run: Run) -> Link | None:
    link = run.folder.run.get("link") if run.folder is not None else None
    return Link(link["rate_mbit_s"], link["preamble_bytes"], link["gap_bytes"]) if link else None


def _refine(run: Run, capture: int, frames: Frames, names: Sequence[str], stated: bool) -> Estimate:
    """Move a capture by what its coarse offset lacks; return the offset."""
    assert run.folder is not None
    entry = run.folder.run["captures"][capture]
    steps = [_step_us(run, name) for name in names]
    # Half of the difference of two transits, each between two edges.
    floor_us = hypot(*steps) / sqrt(24)
    lacks, drift, about_us = refined(frames.table, names[1], floor_us)
    if lacks.value is None or drift.value is None or lacks.sigma is None or drift.sigma is None:
        return unknown(lacks.reason)
    drift_ppm = 0.0 if stated else drift.value
    # Around the middle of the frames: t + lacks + drift (t - about).
    rate = 1 + drift_ppm * 1e-6
    offset_us = float(entry["offset_us"] * rate + lacks.value - drift_ppm * 1e-6 * about_us)
    drift_sigma_ppm = entry.get("drift_sigma_ppm", 0.0) if stated else drift.sigma
    run.move(
        run.folder.with_offset(
            capture,
            offset_us,
            ((1 + entry["drift_ppm"] * 1e-6) * rate - 1) * 1e6,
            offset_sigma_us=lacks.sigma,
            drift_sigma_ppm=drift_sigma_ppm,
            about_us=about_us,
        )
    )
    # The offset is that at time 0, where the drift's uncertainty counts too.
    sigma = hypot(lacks.sigma_measurement or 0.0, drift_sigma_ppm * 1e-6 * about_us)
    return replace(lacks, value=offset_us, sigma_measurement=sigma)


def _sends(host: HostTraffic) -> bool:
    """Return whether a host sends any frames."""
    wired = host.wire is not None and len(host.wire) > 0
    return wired or bool((host.traffic.joined.kind == Kind.SEND_DATA).any())


def _step_us(run: Run, name: str) -> float:
    assert run.folder is not None
    capture = run.captures[run.folder.run["hosts"][name]["capture"]]
    return 1e6 / capture.rate_hz if capture.sample_count is not None and capture.rate_hz else 0.0


def contradiction(run: Run, hosts: dict[str, HostTraffic], link: Link | None, placed: list[Estimate]) -> list[Estimate]:
    """Take back an offset that is stated and cannot be: frames would arrive before they were sent.

    Returns
    -------
    list of Estimate
        As `placed`, with the offset that is contradicted not known.
    """
    if run.folder is None or len(hosts) != 2:
        return placed
    names = list(hosts)
    first, second = (run.folder.run["hosts"][name]["capture"] for name in names)
    if first == second or placed[second].source != "given":
        return placed
    bounds = coarse(
        passing(hosts[names[0]], hosts[names[1]], link), passing(hosts[names[1]], hosts[names[0]], link), stated=True
    )
    if bounds is None or not bounds.both_ways or bounds.least_us > bounds.most_us:
        return placed
    entry = run.folder.run["captures"][second]
    spare_us = CLEAR_US + SIGNIFICANT * entry.get("offset_sigma_us", 0.0)
    early_us = max(bounds.least_us, -bounds.most_us)
    if early_us <= spare_us:
        return placed
    direction = f"{names[0]} to {names[1]}" if bounds.least_us > 0 else f"{names[1]} to {names[0]}"
    stated_us, better_us = entry["offset_us"], entry["offset_us"] + _middle(bounds, hosts)
    reason = (
        f"run.toml states {stated_us:.6g} us, but frames from {direction} would then arrive {early_us:.4g} us before "
        f"they were sent; with {better_us:.6g} us frames take equally long both ways"
    )
    return [unknown(reason) if number == second else one for number, one in enumerate(placed)]


def _middle(bounds: Coarse, hosts: dict[str, HostTraffic]) -> float:
    """Return the offset in the middle of the run."""
    times_us = list(hosts.values())[1].traffic.joined.first_data_us
    return bounds.offset_us + bounds.drift_ppm * 1e-6 * float(np.nanmedian(times_us))


def off_axis(frames: Frames, run: Run, placed: Sequence[Estimate]) -> Frames:
    """Leave out times of captures of which nobody knows where they are; say what is estimated."""
    assert run.folder is not None
    table, findings = frames.table, list(frames.findings)
    for number, (entry, offset) in enumerate(zip(run.folder.run["captures"], placed, strict=True)):
        if offset.source == "given":
            continue
        if offset.value is not None:
            text = f"offset_us of {entry['file']} is not stated; the frames give {offset} us"
            findings.insert(0, f"{text}, if they take equally long both ways")
            continue
        lost = [name for name in run.folder.bus_hosts if run.folder.run["hosts"][name]["capture"] == number]
        findings.insert(0, f"offset_us of {entry['file']} is not known: {offset.reason}")
        table = table.copy()
        sent, received = (table[side].isin(lost).to_numpy(dtype=bool) for side in ("sender", "receiver"))
        _forget(table, sent, SENDING)
        _forget(table, received, RECEIVING)
        _forget(table, sent | received, BETWEEN)
    return replace(frames, table=table, findings=tuple(findings))


def _forget(table: pd.DataFrame, rows: Booleans, columns: Sequence[str]) -> None:
    for name in columns:
        table.loc[rows, name] = None
