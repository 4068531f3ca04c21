"""Why what was seen makes no whole frame: the drop log of one direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.frames.sides import LONGEST_LAG_US, WIDEST
from pcitrace.traffic import Bursts
from pcitrace.traffic.content import FCS, HEADER, WireFrames
from pcitrace.traffic.dma import SHORTEST_RECEIVED

__all__ = ["Received", "dropped"]

WIDE_SPARE = 7
"""Bytes by which whole 64-bit data phases can exceed a frame at either end."""

LOG_TYPES = {"host": object, "kind": object, "time_us": float, "length_bytes": int, "frame": int, "reason": object}
"""Columns of the drop log."""

COMPARED_TOGETHER = 4096
"""Receives that are compared with lost frames at a time."""


@dataclass(frozen=True)
class Received:
    """Receives of one host: all bursts of its bus, which of them are receives, those without a frame, and among these
    those whose frame is not certain; and when the capture of its bus begins.
    """

    bursts: Bursts
    rows: Integers
    unused: Integers
    doubtful: Integers
    begin_us: float


def dropped(
    sender: str, receiver: str | None, rows: dict[str, Any], wire: WireFrames | None, received: Received
) -> dict[str, Any]:
    """Say why what was seen makes no whole frame.

    Parameters
    ----------
    sender, receiver : str
        Names of the hosts.
    rows : dict of str to arrays
        The frames; `doubtful` tells those whose receive is not certain, `open` those of which only its edges are not.
    wire : WireFrames or None
        What was seen on the sender's wire.
    received : Received
        Of the receiver; of the sender itself where it is the only host.

    Returns
    -------
    dict of str to arrays
        Columns of the drop log.
    """
    log: list[tuple[Any, ...]] = []
    length = rows["length_bytes"]
    off_wire = np.flatnonzero((rows["wire_row"] < 0) & (wire is not None))
    late = rows["send_row"][off_wire] > rows["send_row"][rows["wire_row"] >= 0].max(initial=-1)
    reason = np.where(late, "the capture ends before it is on the wire", "no frame on the wire fits it")
    log.append((sender, "send_data", rows["dma_start_us"][off_wire], length[off_wire], off_wire, reason))
    first_send = np.nanmin(rows["dma_start_us"]) if np.isfinite(rows["dma_start_us"]).any() else -np.inf
    unsent = np.flatnonzero(rows["send_row"] < 0)
    early = rows["wire_start_us"][unsent] < first_send
    reason = np.where(early, "its send was before the capture began", "no send fits it")
    log.append((sender, "wire", rows["wire_start_us"][unsent], length[unsent], unsent, reason))
    other, unused = received.bursts, received.unused
    why: Any = "the bus of its sender was not captured"
    if receiver is not None:
        ends = other.last_data_us[received.rows]
        last_receive = ends.max() if len(ends) else -np.inf
        sent_us = np.fmax(rows["dma_end_us"], rows["wire_end_us"])
        receives_alike, frames_alike = _alike(rows, sent_us, other, unused)
        frames_alike |= rows["doubtful"]
        receives_alike |= np.isin(unused, received.doubtful)
        lost = np.flatnonzero(rows["receive_row"] < 0)
        reason = np.select(
            [
                rows["fcs_ok"][lost] == 0,
                sent_us[lost] < received.begin_us,
                sent_us[lost] > last_receive,
                frames_alike[lost],
            ],
            [
                "not received: its frame check sequence is wrong on the wire",
                "its receive may be before that capture begins",
                "not received before the capture ends",
                "not received, or a receive that may be another frame's as well",
            ],
            "not received",
        )
        kind = np.where(rows["send_row"][lost] >= 0, "send_data", "wire")
        log.append((sender, kind, rows["order_us"][lost], length[lost], lost, reason))
        some = np.flatnonzero(rows["open"])
        open_edges = "a status word beside it may be its own, or one of its words a status"
        begin = other.first_data_us[rows["receive_burst"][some]]
        log.append((receiver, "receive_data", begin, length[some], some, open_edges))
        first = np.nanmin(rows["order_us"]) if len(rows["order_us"]) else np.inf
        why = np.select(
            [other.first_data_us[unused] < first, receives_alike],
            ["sent before the capture began", "may be one of several frames, of which some were lost"],
            "no frame that was sent fits it",
        )
    log.append((receiver or sender, "receive_data", other.first_data_us[unused], other.bytes[unused] - HEADER, -1, why))
    return {
        name: np.concatenate([np.broadcast_to(np.asarray(one[at], dtype=kind), one[2].shape) for one in log])
        for at, (name, kind) in enumerate(LOG_TYPES.items())
    }


def _alike(rows: dict[str, Any], sent_us: Floats, bursts: Bursts, unused: Integers) -> tuple[Booleans, Booleans]:
    """Return which receives without a frame could be a frame without a receive, and which frames those are."""
    lost = np.flatnonzero((rows["receive_row"] < 0) & (rows["length_bytes"] >= 0))
    lost = lost[np.argsort(sent_us[lost], kind="stable")]
    least = np.maximum(rows["length_bytes"] + HEADER, SHORTEST_RECEIVED)
    receives, frames = np.zeros(len(unused), dtype=bool), np.zeros(len(sent_us), dtype=bool)
    stop = np.searchsorted(sent_us[lost], bursts.first_data_us[unused])
    for first in range(0, len(unused) if len(lost) else 0, COMPARED_TOGETHER):
        some = slice(first, first + COMPARED_TOGETHER)
        compared = stop[some, None] + np.arange(-WIDEST, 0)
        frame, burst = lost[np.maximum(compared, 0)], unused[some, None]
        spare = bursts.bytes[burst] - least[frame]
        fit = (compared >= 0) & (spare >= 0) & (spare <= FCS + 2 * WIDE_SPARE)
        fit &= bursts.first_data_us[burst] - sent_us[frame] <= LONGEST_LAG_US
        receives[some] = fit.any(axis=1)
        frames[frame[fit]] = True
    return receives, frames
