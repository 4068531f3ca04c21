"""What is not told of frames whose edges are not sure: lengths that nothing measures, beginnings that contents deny."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import Booleans
from pcitrace.facts import LEAST_USER_BYTES
from pcitrace.frames.margins import COLUMNS, EDGES, wired
from pcitrace.traffic.asked import SURE
from pcitrace.traffic.content import HEADER, begins_inside, unlike
from pcitrace.traffic.goals import RECEIVE, SEND

if TYPE_CHECKING:
    from pcitrace.frames.ends import Ends

__all__ = ["beginnings", "lengths"]


def beginnings(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Make null where frames begin whose first data were found later in the other memory: they began before.

    And both edges of a receive that begins with the addresses of another frame than its send: it is not that frame. Two
    hosts wrote the first 72 bytes in pieces of their own (`cardbench`, scatter-gather 10, 40 frames), and the rest of
    each receive was as long as the frame three before.

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts, judged.
    """
    for name, end in ends.items():
        other = next((one for one in ends if one != name), None)
        received = ends[other].receive_head if other is not None else None
        if end.send_head is None or received is None:
            continue
        both = (columns["sender"] == name) & (columns["send_row"] >= 0) & (columns["receive_row"] >= 0)
        rows = np.flatnonzero(both)
        sent = end.send_head.take(columns["send_row"][rows])
        received = received.take(columns["receive_row"][rows])
        strange = unlike(received, sent)
        for side, inside in ((SEND, begins_inside(sent, received)), (RECEIVE, begins_inside(received, sent))):
            columns[EDGES[side][0]][rows[inside]] = np.nan
            columns[COLUMNS[side][2]][rows[inside]] = 0.0
            strange &= ~inside
        for column in EDGES[RECEIVE]:
            columns[column][rows[strange]] = np.nan
        columns[COLUMNS[RECEIVE][2]][rows[strange]] = 0.0


def lengths(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Take back what only memory that is not sure says of lengths.

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts, read again and judged; `length_bytes` becomes -1 and `length_exact` false where so.
    """
    weighed = ~np.isnan(columns["margin_match"])
    whole = [~np.isnan(columns[first]) & ~np.isnan(columns[last]) for first, last in EDGES.values()]
    measured = _measured(ends, columns)
    # Where the wire does not, only a whole segment tells how long a frame is.
    untold = ~measured & weighed & ~(whole[SEND] | whole[RECEIVE])
    columns["length_bytes"] = np.where(untold, -1, columns["length_bytes"])
    columns["length_exact"] = columns["length_exact"] & ~untold
    _as_on_the_wire(ends, columns, measured & weighed & ~(whole[SEND] & whole[RECEIVE]))
    # How much of a short frame is data only its send tells.
    short = (columns["length_bytes"] >= 0) & (columns["length_bytes"] <= LEAST_USER_BYTES)
    cut = ~np.isnan(columns["margin_send"]) & ~whole[SEND]
    columns["length_exact"] = columns["length_exact"] & ~(short & cut)
    loose = short & ~columns["length_exact"] & ~(columns["margin_send"] >= SURE)
    columns["length_bytes"] = np.where(loose, LEAST_USER_BYTES, columns["length_bytes"])


def _measured(ends: Mapping[str, Ends], columns: dict[str, Any]) -> Booleans:
    """Return of which frames the wire tells the length: it does not where its rate is not known, or not believed."""
    out = np.zeros(len(columns["sender"]), dtype=bool)
    for name in wired(ends):
        wire = ends[name].wire
        rows = np.flatnonzero((columns["sender"] == name) & (columns["wire_row"] >= 0))
        if wire is not None:
            out[rows] = wire.length[columns["wire_row"][rows]] >= 0
    return out


def _as_on_the_wire(ends: Mapping[str, Ends], columns: dict[str, Any], loose: Booleans) -> None:
    """Give the lengths of some frames as the times of their wires tell them: where they lie in memory is not sure."""
    for name in wired(ends):
        wire = ends[name].wire
        rows = np.flatnonzero(loose & (columns["sender"] == name))
        if wire is not None and wire.head is None:
            # Of a short frame the wire does not tell data from padding.
            rows = rows[wire.length[columns["wire_row"][rows]] > HEADER + LEAST_USER_BYTES]
            at = columns["wire_row"][rows]
            columns["length_bytes"][rows] = wire.length[at] - HEADER
            columns["length_exact"][rows] = wire.least[at] == wire.most[at]
