"""How sure each frame is: what was found is weighed against everything else that the pieces could be.

Where the frames that were found first do not account for the frames on a wire, the pieces of both hosts are read again
at the least cost (`pcitrace.traffic.weigh`). That reading has margins; an edge of a frame whose margin is below `SURE`
is null: another reading is about as likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import Floats, Integers
from pcitrace.frames.identity import LEAST_USER_BYTES
from pcitrace.lattice import Reading
from pcitrace.traffic.dma import Dma
from pcitrace.traffic.goals import RECEIVE, SEND, Target
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.weigh import Found, alike, confirmed, weigh

if TYPE_CHECKING:
    from pcitrace.frames.matching import Ends, HostTraffic

__all__ = ["SURE", "burst_margins", "judge", "read_again"]

SURE, AGREED = 12.0, 6.0
"""Nats by which any other reading must be dearer, else an edge is null; and where the rules, which know nothing of
these costs, had found the same edge.

Learned on generated cards (`tests/cardbench`, control lines, `generic`; all families but cut-through, seeds 402, 403):
of 1,165 edges with margins of 12 and more 3 were wrong (two of frames of one byte, one beside another device's DMA); of
346 from 6 to 12 that the rules had too 2 were wrong, of the 178 that they had not 11."""

TOLD = 0.25
"""Where a smaller share of a host's frames of one direction are sure at both edges, none is: the table has not learned
this card. On the tiny frames among those ten cards, 2 of the 49 edges that stood out were wrong."""

COMPLETE, FEW = 0.95, 1
"""Where a smaller share of the frames on the wire and of the sends are each other's, the first reading is doubted; one
that the capture cuts is no reason."""


EDGES = {SEND: ("dma_start_us", "dma_end_us"), RECEIVE: ("rx_dma_start_us", "rx_dma_end_us")}
"""The columns of a frame's edges, by direction."""

COLUMNS = {SEND: ("sender", "send_burst", "margin_send"), RECEIVE: ("receiver", "receive_burst", "margin_receive")}
"""The columns of a frame's host, burst and margin, by direction."""


def read_again(
    hosts: Mapping[str, HostTraffic], ends: Mapping[str, Ends], columns: dict[str, Any]
) -> dict[str, tuple[Pieces, Reading]]:
    """Return the cheapest reading of each host's pieces where the frames found so far do not account for the wires."""
    problems = {
        name: _problem(name, host, ends, columns)
        for name, host in hosts.items()
        if (host.traffic.dma.bus.data_phases > 0).any()
    }
    complete = all(_complete(columns, name, ends) for name in hosts)
    known = complete and all(alike(*one) for one in problems.values())
    # Addresses, or a profile that describes the DMA, tell the rules more than these costs know.
    guessed = [
        one
        for name, one in problems.items()
        if hosts[name].profile == hosts[name].profile.registers_only() and not one[0].bus.has_address
    ]
    if known and all(confirmed(*one) for one in guessed):
        return {}
    return {name: weigh(*problem) for name, problem in problems.items()}


def _problem(
    name: str, host: HostTraffic, ends: Mapping[str, Ends], columns: dict[str, Any]
) -> tuple[Dma, tuple[Found, Found], tuple[Target | None, Target | None]]:
    """Return a host's DMA, the frames found in it so far, and what they are on the wires."""
    found, targets = [], []
    for side in (SEND, RECEIVE):
        rows = _rows(columns, name, side)
        found.append(Found(columns[COLUMNS[side][1]][rows], columns["wire_row"][rows]))
        sender = name if side == SEND else next((one for one in ends if one != name), None)
        wire = ends[sender].wire if sender is not None else None
        targets.append(Target.on_wire(wire) if wire is not None else None)
    return host.traffic.dma, (found[SEND], found[RECEIVE]), (targets[SEND], targets[RECEIVE])


def _rows(columns: dict[str, Any], name: str, side: int) -> Integers:
    return np.flatnonzero(columns[COLUMNS[side][0]] == name)


def _complete(columns: dict[str, Any], name: str, ends: Mapping[str, Ends]) -> bool:
    """Return whether nearly all frames on a host's wire were read on its bus, and hardly anything else was."""
    wire = ends[name].wire
    if wire is None:
        return True
    mine = columns["sender"] == name
    claimed = int((mine & (columns["wire_row"] >= 0) & (columns["send_row"] >= 0)).sum())
    most = max(len(wire), len(ends[name].sends))
    return most - claimed <= max(FEW, (1 - COMPLETE) * most)


def judge(
    hosts: Mapping[str, HostTraffic],
    columns: dict[str, Any],
    readings: Mapping[str, tuple[Pieces, Reading]],
    before: dict[str, Any],
) -> None:
    """Add the margins of frames to their columns, and make null what is not sure.

    Parameters
    ----------
    hosts : mapping of str to HostTraffic
    columns : dict of str to arrays
        The frames of all hosts; `margin_send`, `margin_receive` and `margin_match` are added, NaN where nothing was
        weighed.
    readings : mapping of str to Pieces and Reading
        Of each host that was read again.
    before : dict of str to arrays
        The frames as the rules found them.
    """
    match, was = [], _rows_before(before, columns) if readings else np.zeros(0, np.int64)
    for side in (SEND, RECEIVE):
        margins = np.full((len(columns["sender"]), 2), np.nan)
        least = np.full(margins.shape, SURE)
        for edge, column in enumerate(EDGES[side]):
            same = columns[column][was >= 0] == before[column][was[was >= 0]]
            least[np.flatnonzero(was >= 0)[same], edge] = AGREED
        for name, (pieces, reading) in readings.items():
            rows = _rows(columns, name, side)
            found = Found(columns[COLUMNS[side][1]][rows], columns["wire_row"][rows])
            mine = _margins(found, pieces.rows, hosts[name].traffic.dma, reading, side)
            some = ~np.isnan(mine).any(axis=1)
            told = (mine[some] >= least[rows][some]).all(axis=1)
            margins[rows] = np.minimum(mine, 0.0) if some.any() and told.mean() < TOLD else mine
        for edge, column in enumerate(EDGES[side]):
            columns[column] = np.where(margins[:, edge] < least[:, edge], np.nan, columns[column])
        columns[COLUMNS[side][2]] = margins.min(axis=1)
        # Each edge is one of this frame on the wire: a reading in which the segment is another frame's differs in both.
        match.append(margins.max(axis=1))
    columns["margin_match"] = np.fmin(*match)
    if readings:
        # How much of a short frame is data only its send tells.
        short = (columns["length_bytes"] >= 0) & (columns["length_bytes"] <= LEAST_USER_BYTES)
        unsure = short & ~columns["length_exact"] & ~(columns["margin_send"] >= SURE)
        columns["length_bytes"] = np.where(unsure, LEAST_USER_BYTES, columns["length_bytes"])


def _rows_before(before: dict[str, Any], columns: dict[str, Any]) -> Integers:
    """Return which row each frame on a wire was before; -1 for none."""
    at = {key: row for row, key in enumerate(zip(before["sender"], before["wire_row"], strict=True)) if key[1] >= 0}
    return np.array([at.get(key, -1) for key in zip(columns["sender"], columns["wire_row"], strict=True)], np.int64)


def burst_margins(dma: Dma, pieces: Pieces, reading: Reading) -> Floats:
    """Return the margin of each burst: of what its pieces are, and of where a frame begins and ends."""
    edges = np.where(reading.begins, reading.margins[:, 1], np.inf)
    edges = np.minimum(edges, np.where(reading.ends, reading.margins[:, 2], np.inf))
    out = np.full(int(dma.burst.max(initial=-1)) + 1, np.inf)
    np.minimum.at(out, dma.burst[pieces.rows], np.minimum(reading.margins[:, 0], edges))
    return np.where(np.isfinite(out), out, np.nan)


def _margins(found: Found, rows: Integers, dma: Dma, reading: Reading, side: int) -> Floats:
    """Return the margins of both edges of each frame; 0 where the reading has another edge, NaN without a burst."""
    burst, order = dma.burst[rows], np.arange(len(rows))
    count = int(dma.burst.max()) + 1
    edges = np.full(count, len(rows)), np.full(count, -1)
    np.minimum.at(edges[0], burst, order)
    np.maximum.at(edges[1], burst, order)
    out = np.full((len(found.burst), 2), np.nan)
    some = np.flatnonzero(found.burst >= 0)
    for column, (at, is_edge) in enumerate(zip(edges, (reading.begins, reading.ends), strict=True)):
        row = at[found.burst[some]]
        same = (reading.track[row] == side) & is_edge[row] & (reading.target[row] == found.target[some])
        out[some, column] = np.where(same, reading.margins[row, 1 + column], 0.0)
    return out
