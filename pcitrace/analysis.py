"""From an opened run to its traffic and its frames: what ``run.toml`` says, put to use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.errors import FrameMatchError
from pcitrace.frames import Frames, build
from pcitrace.frames.identity import LEAST_USER_BYTES, SequenceField
from pcitrace.frames.matching import HostTraffic, Link
from pcitrace.profiles import Profile
from pcitrace.profiles import load as load_profile
from pcitrace.run import Run
from pcitrace.runfolder import RunFolder, read_frame_log
from pcitrace.traffic import Traffic, analyse
from pcitrace.traffic.content import WireFrames, wire_frames
from pcitrace.traffic.dma import Kind, Memory
from pcitrace.traffic.phases import Phases

__all__ = ["frames", "on_axis", "traffic"]

LOG_BYTES = 7
"""By how many bytes a length told from data phases may differ from the one in a log."""

OTHER_LOG = "it is the log of another run or host"
NOT_JOINED = f"they are not joined: {OTHER_LOG}, or the hosts are wired the other way round"
PART = "the capture shows a part of the run"

CLOCK_OFF = 0.05
"""Relative difference between the clock of a bus and what ``run.toml`` says that nominal values do not explain."""

TIMES = ("start_us", "end_us", "first_data_us", "last_data_us", "time_us")
"""Columns that are moved to the run's time axis."""


def traffic(run: Run, bus: str, *, profile: Profile | str | None = None) -> Traffic:
    """Tell what the transactions of one bus are: CSR accesses and DMA bursts.

    Parameters
    ----------
    run : Run
        A run folder or a bare capture.
    bus : str
        Name of the host or bus.
    profile : Profile or str, optional
        Of the NIC; default: what ``run.toml`` says, for a bare capture the generic one.

    Returns
    -------
    Traffic

    Raises
    ------
    WiringError
        The bus is not complete, or nothing tells which GNT# is the NIC's.
    ConfigurationError
        There is no such profile.
    """
    return _host(run, bus, profile).traffic


def frames(run: Run, *, profile: Profile | str | None = None) -> Frames:
    """Follow every frame of a run from the sender's memory to the receiver's.

    Parameters
    ----------
    run : Run
        A run folder; of a bare capture the buses are the hosts, and the link is not known.
    profile : Profile or str, optional
        Of the NICs, instead of what ``run.toml`` says.

    Returns
    -------
    Frames

    Raises
    ------
    FrameMatchError
        The run has more than two buses, or none.
    """
    names = list(run.folder.run["hosts"]) if run.folder is not None else list(run.buses)
    if not 1 <= len(names) <= 2:
        raise FrameMatchError(
            f"{run.path}: frames are followed between two hosts; there are {len(names)} buses: {', '.join(names)}. "
            "Name the hosts in a run.toml"
        )
    place = run.folder.run.get("frames", {}).get("sequence") if run.folder is not None else None
    found = build(
        {name: _host(run, name, profile) for name in names},
        link=_link(run),
        sequence=SequenceField(**place) if place else None,
    )
    if run.folder is None:
        return found
    return _with_logs(replace(found, findings=(*_as_captured(run, run.folder), *found.findings)), run.folder)


def _as_captured(run: Run, folder: RunFolder) -> list[str]:
    """Say where the captures are not what ``run.toml`` says of them."""
    found = []
    for entry, capture in zip(folder.run["captures"], run.captures, strict=True):
        if capture.sample_count is not None and entry.get("samples", capture.sample_count) != capture.sample_count:
            text = f"{entry['file']} has {capture.sample_count} samples, run.toml says {entry['samples']}"
            found.append(f"{text}: is it the capture of this run, and whole?")
    for name, host in folder.run["hosts"].items():
        seen, said = run[name].mean_clock_mhz, host.get("clock_mhz")
        if seen is not None and said is not None and abs(seen / said - 1) > CLOCK_OFF:
            text = f"{name}: run.toml says a bus clock of {said:g} MHz, the capture shows {seen:.4g}"
            found.append(f"{text}: are clock_mhz of the host and the sampling rate right?")
    return found


def _with_logs(found: Frames, folder: RunFolder) -> Frames:
    """Number frames as the logs of their senders do, where the frames of the logs are those of the trace."""
    if not folder.run["frames_on_bus"]:
        return found
    table, findings = found.table.copy(), list(found.findings)
    place = folder.run.get("frames", {}).get("sequence")
    for host in folder.run["hosts"]:
        findings += _received_as_logged(found, host, _log(folder, host, "received"))
        log = _log(folder, host, "sent")
        if log is None:
            continue
        log = log[np.argsort(log["send_ns"], kind="stable")]
        rows = table.index[table["sender"] == host]
        if len(log) != len(rows):
            findings.append(
                f"{host}: its frame log has {len(log)} frames, the trace {len(rows)}; {NOT_JOINED}, or {PART}"
            )
            continue
        mine = table.loc[rows, ["length_bytes", "length_exact", "sequence", "sequence_source"]]
        # Shorter frames are padded, and where only the wire shows them they are as long as that.
        length = mine["length_bytes"].to_numpy(dtype=float, na_value=np.nan)
        off = np.abs(np.maximum(length, LEAST_USER_BYTES) - np.maximum(log["length_bytes"], LEAST_USER_BYTES))
        other = int((off > np.where(mine["length_exact"].fillna(False).to_numpy(dtype=bool), 0, LOG_BYTES)).sum())
        if other:
            findings.append(f"{host}: {other} frames of its log have other lengths than in the trace; {NOT_JOINED}")
            continue
        carried = (mine["sequence_source"] == "frame").to_numpy(dtype=bool)
        if place and carried.any():
            number = mine["sequence"].to_numpy(dtype=np.int64) - log["sequence"]
            other = int(((number % 2 ** (8 * place["bytes"]) != 0) & carried).sum())
            if other:
                findings.append(f"{host}: {other} frames carry other numbers than in its log; {NOT_JOINED}")
                continue
        order = (mine["sequence_source"] == "order").to_numpy(dtype=bool)
        table.loc[rows[order], "sequence"] = log["sequence"][order]
        table.loc[rows[order], "sequence_source"] = "log"
    return replace(found, table=table, findings=tuple(findings))


def _log(folder: RunFolder, host: str, kind: str) -> Any:
    """Return the records of the logs of one kind of a host; None if there are none."""
    logs = [one for one in folder.run.get("frame_logs", ()) if one["host"] == host and one["kind"] == kind]
    return np.concatenate([read_frame_log(folder.path / one["file"]) for one in logs]) if logs else None


def _received_as_logged(found: Frames, host: str, log: Any) -> list[str]:
    """Say where a host's log has fewer frames than it surely received, or more than were written to its memory."""
    if log is None or host not in found.hosts:
        return []
    sure = int((found.table["receiver"] == host)[found.table["rx_dma_start_us"].notna()].sum())
    joined = found.hosts[host].joined
    most = max(int(np.count_nonzero((joined.kind == Kind.RECEIVE_DATA) & (joined.data_phases > 0))), sure)
    if sure <= len(log) <= most:
        return []
    why = "frames were lost in the host" if len(log) < sure else PART
    return [f"{host}: its log has {len(log)} frames received, the trace {sure}: {why}, or {OTHER_LOG}"]


def _link(run: Run) -> Link | None:
    link = run.folder.run.get("link") if run.folder is not None else None
    return Link(link["rate_mbit_s"], link["preamble_bytes"], link["gap_bytes"]) if link else None


def _host(run: Run, name: str, profile: Profile | str | None) -> HostTraffic:
    host = run.folder.run["hosts"][name] if run.folder is not None else {}
    chosen = _profile(run, name, profile)
    bus = run[name]
    has_address = any(line.startswith("AD") for line in bus.lines)
    transactions = run.table(name, data_phases=has_address)
    data_phases = Phases.of(on_axis(run, name, bus.data_phases), transactions) if has_address else None
    others = [one for one in (run.folder.run["hosts"] if run.folder is not None else run.buses) if one != name]
    sent, step_us = _wire(run, name)
    received = _wire(run, others[0])[0] if len(others) == 1 else None
    link = _link(run)
    found = analyse(
        transactions,
        data_phases,
        bus=name,
        profile=chosen,
        lines=bus.lines,
        nic_grant=host.get("nic_grant"),
        memory=Memory(**host.get("memory", {})),
        sent=_wire_frames(sent, link, step_us),
        received=_wire_frames(received, link, step_us),
    )
    begin_us = run.folder.run_time_us(host["capture"], 0.0) if run.folder is not None else 0.0
    return HostTraffic(found, chosen, data_phases, sent, step_us, begin_us)


def _profile(run: Run, name: str, profile: Profile | str | None) -> Profile:
    if isinstance(profile, Profile):
        return profile
    if profile is not None:
        return load_profile(profile, folder=Path())
    return run.folder.profile(name) if run.folder is not None else load_profile("generic")


def _wire(run: Run, name: str) -> tuple[pd.DataFrame | None, float]:
    """Return the wire of a host on the run's axis with the sampling step of its capture; None if not captured."""
    source = _source(run, name)
    if source is None:
        return None, 0.0
    capture, bus = source
    wiring = capture.wiring.buses.get(bus)
    if wiring is None or "TXEN" not in wiring.lines:
        return None, 0.0
    step_us = 1e6 / capture.rate_hz if capture.sample_count is not None and capture.rate_hz else 0.0
    return on_axis(run, name, capture.wire(bus)), step_us


def _source(run: Run, name: str) -> tuple[Any, str] | None:
    """Return the capture in which a host's wire is, and its name there."""
    if run.folder is None:
        return run.captures[0], name
    host = run.folder.run["hosts"][name]
    return run.captures[host["capture"]], host["bus"]


def on_axis(run: Run, name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Move the times of a table to the run's time axis."""
    if run.folder is None:
        return table
    number = run.folder.run["hosts"][name]["capture"]
    entry = run.folder.run["captures"][number]
    if entry["offset_us"] == 0 and entry["drift_ppm"] == 0:
        return table
    moved = {column: run.folder.run_time_us(number, table[column]) for column in TIMES if column in table.columns}
    return table.assign(**moved)


def _wire_frames(wire: pd.DataFrame | None, link: Link | None, step_us: float) -> WireFrames | None:
    if wire is None or (link is None and wire["bytes"].isna().all()):
        return None
    return wire_frames(wire, link.byte_us if link else None, link.preamble_bytes if link else 8, step_us)
