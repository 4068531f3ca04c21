"""Frames of the trace and frames in the logs of their hosts: numbers and exact lengths for those that are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.columns import floats
from pcitrace.facts import HEADER_BYTES, LEAST_USER_BYTES
from pcitrace.frames import Frames, Link
from pcitrace.runfolder import RunFolder, read_frame_log
from pcitrace.traffic.dma import Kind

__all__ = ["with_logs"]

LOG_BYTES = 7
"""By how many bytes a length told from data phases may differ from the one in a log: 64 bits hold so much more."""

OTHER_LOG = "it is the log of another run or host"
NOT_JOINED = f"they are not joined: {OTHER_LOG}, or the hosts are wired the other way round"
PART = "the capture shows a part of the run"

ASKED = ["length_bytes", "length_exact", "sequence", "sequence_source"]
"""Columns that are held against those of a log."""


def with_logs(found: Frames, folder: RunFolder, link: Link | None) -> Frames:
    """Give frames the numbers and the lengths of the logs of their senders, where the frames of the logs are those.

    They are if there are as many of them, and each has the log's length and, if it carries one, its number. Where
    they are not, that is a finding and nothing is joined.
    """
    if not folder.run["frames_on_bus"]:
        return found
    table, findings, logged = found.table.copy(), list(found.findings), []
    place = folder.run.get("frames", {}).get("sequence")
    for host in folder.bus_hosts:
        findings += _received_as_logged(found, host, _log(folder, host, "received"))
        log = _log(folder, host, "sent")
        if log is None:
            continue
        log = log[np.argsort(log["send_ns"], kind="stable")]
        rows = table.index[table["sender"] == host]
        why = _why_not_joined(table.loc[rows, ASKED], log, place)
        if why:
            findings.append(f"{host}: {why}")
            continue
        order = (table.loc[rows, "sequence_source"] == "order").to_numpy(dtype=bool)
        table.loc[rows[order], "sequence"] = log["sequence"][order]
        table.loc[rows[order], "sequence_source"] = "log"
        table.loc[rows, "length_bytes"] = log["length_bytes"]
        table.loc[rows, "length_exact"] = True
        logged.append(host)
    if link is not None and logged:
        _wire_times(table, table["sender"].isin(logged).to_numpy(dtype=bool), link)
    return replace(found, table=table, findings=tuple(findings), logged=tuple(logged))


def _why_not_joined(mine: pd.DataFrame, log: Any, place: dict[str, Any] | None) -> str:
    """Say why the frames of a host are not those of its log; empty if they are."""
    if len(log) != len(mine):
        return f"its frame log has {len(log)} frames, the trace {len(mine)}; {NOT_JOINED}, or {PART}"
    # Shorter frames are padded, and where only the wire shows them they are as long as that.
    length = mine["length_bytes"].to_numpy(dtype=float, na_value=np.nan)
    off = np.abs(np.maximum(length, LEAST_USER_BYTES) - np.maximum(log["length_bytes"], LEAST_USER_BYTES))
    exact = mine["length_exact"].fillna(False).to_numpy(dtype=bool)
    other = int((off > np.where(exact, 0, LOG_BYTES)).sum())
    if other:
        return f"{other} frames of its log have other lengths than in the trace; {NOT_JOINED}"
    carried = (mine["sequence_source"] == "frame").to_numpy(dtype=bool)
    if place and carried.any():
        number = mine["sequence"].to_numpy(dtype=np.int64) - log["sequence"]
        other = int(((number % 2 ** (8 * place["bytes"]) != 0) & carried).sum())
        if other:
            return f"{other} frames carry other numbers than in its log; {NOT_JOINED}"
    return ""


def _wire_times(table: pd.DataFrame, rows: Any, link: Link) -> None:
    """Put the wire time of the lengths that are known now, and what follows from it, into some rows."""
    wire_us = link.wire_us(np.maximum(floats(table, "length_bytes"), LEAST_USER_BYTES) + HEADER_BYTES)
    for name, values in (("wire_us", wire_us), ("t_nic_us", (floats(table, "gap_us") - wire_us) / 2)):
        known = rows & ~np.isnan(values)
        table.loc[known, name] = values[known]


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
    most = max(len(joined.of_kind(Kind.RECEIVE_DATA)), sure)
    if sure <= len(log) <= most:
        return []
    why = "frames were lost in the host" if len(log) < sure else PART
    return [f"{host}: its log has {len(log)} frames received, the trace {sure}: {why}, or {OTHER_LOG}"]
