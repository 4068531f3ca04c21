"""From the history of a simulated bus to the changes of each of its lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pcitrace.simulate.bus import LineHistory, Transaction
from pcitrace.simulate.host import IDSEL_BIT
from pcitrace.simulate.pci import LINES, READS

Array = npt.NDArray[np.int64]


class Changes(NamedTuple):
    """Levels of one line, or of a bundle as one number: from this clock on, this value."""

    clks: Array
    values: npt.NDArray[np.uint64]


def control_changes(history: LineHistory) -> dict[str, Changes]:
    """Levels of the control lines and the NIC's GNT# (all active low)."""
    runs = history.runs
    changes = {name: _low(runs.clks, runs.codes >> bit & 1) for bit, name in enumerate(LINES)}
    changes["GNT_NIC#"] = _low(history.grants.clks, history.grants.values)
    return changes


class ContentChanges:
    """AD, C/BE#, PAR, IDSEL, REQ64#, ACK64# and REQ_NIC#; remembers how many requests are open."""

    def __init__(self) -> None:
        self._requests = 0

    def take(self, history: LineHistory) -> dict[str, Changes]:
        """Levels during the transactions of a history; what is not driven keeps its level."""
        rows = [_contents(transaction) for transaction in history.transactions]
        changes = {}
        for name in ("AD", "CBE", "PAR", "PAR64", "IDSEL", "REQ64#", "ACK64#"):
            parts = [row[name] for row in rows]
            changes[name] = Changes(
                np.concatenate([part.clks for part in parts] or [np.empty(0, np.int64)]),
                np.concatenate([part.values for part in parts] or [np.empty(0, np.uint64)]),
            )
        open_requests = self._requests + np.cumsum(history.requests.values)
        self._requests = int(open_requests[-1]) if len(open_requests) else self._requests
        changes["REQ_NIC#"] = _low(history.requests.clks, open_requests > 0)
        return changes


def _low(clks: Array, asserted: npt.NDArray[np.generic]) -> Changes:
    return Changes(clks, (asserted == 0).astype(np.uint64))


def phase_data(transaction: Transaction) -> list[tuple[int, int, int]]:
    """Return clock, data and byte enables (as on the bus, active low) of each phase in which data moved."""
    size = transaction.phase_bytes
    first = transaction.request.address % size
    content = bytes(first) + (transaction.request.data or b"")
    end = first + transaction.request.size_bytes
    rows = []
    for phase, clk in enumerate(transaction.shape.phase_ends):
        begin = phase * size
        enabled = (1 << min(end - begin, size)) - (1 << max(first - begin, 0))
        data = int.from_bytes(content[begin : begin + size], "little")
        rows.append((transaction.start_clk + clk, data, ~enabled & ((1 << size) - 1)))
    return rows


def _contents(transaction: Transaction) -> dict[str, Changes]:
    """Lay out what AD and its companions carry, clock by clock."""
    request, plan, start = transaction.request, transaction.shape, transaction.start_clk
    clocks = np.arange(start, start + plan.clocks, dtype=np.int64)
    size = transaction.phase_bytes
    rows = phase_data(transaction)
    first = request.address % size
    lanes = (1 << size) - 1
    unmoved = ~((1 << min(size, first + request.size_bytes)) - (1 << first)) & lanes
    if not rows:  # nothing moves, but a write shows its data and byte enables all the same
        data = int.from_bytes((bytes(first) + (request.data or b""))[:size], "little")
        rows = [(start + plan.clocks - 1, data, unmoved)]
    ends = np.array([row[0] - start for row in rows])
    spans = np.diff(ends, prepend=0)
    address = request.address & ~3
    ad = np.repeat(np.array([address, *(row[1] for row in rows)], np.uint64), [1, *spans])
    cbe = np.repeat(np.array([request.command, *(row[2] for row in rows)], np.uint64), [1, *spans])
    after = plan.clocks - len(ad)
    ad, cbe = np.append(ad, np.full(after, ad[-1])), np.append(cbe, np.full(after, cbe[-1]))
    if request.command in READS and plan.clocks > 1:
        ad[1] = address  # the turnaround: nobody drives AD yet
    wide = transaction.wide
    low = (np.bitwise_count(ad & np.uint64(0xFFFF_FFFF)) + np.bitwise_count(cbe & np.uint64(0xF))) & 1
    high = (np.bitwise_count(ad >> np.uint64(32)) + np.bitwise_count(cbe >> np.uint64(4))) & 1
    codes = np.repeat([run[1] for run in plan.runs], np.diff([run[0] for run in plan.runs], append=plan.clocks)).astype(
        np.uint64
    )
    idle = np.array([start + plan.clocks], np.int64)
    one = np.ones(1, np.uint64)
    selected = request.target == "configuration" and address >> IDSEL_BIT & 1
    frame_low, devsel_low = codes & 1, codes >> np.uint64(4) & 1
    until_idle = np.concatenate([clocks, idle])
    return {
        "AD": Changes(clocks, ad),
        "CBE": Changes(clocks, cbe),
        "PAR": Changes(clocks + 1, low.astype(np.uint64)),
        "PAR64": Changes(clocks + 1, high.astype(np.uint64)),
        "IDSEL": Changes(until_idle[[0, 1]], np.array([selected, 0], np.uint64)),
        "REQ64#": Changes(until_idle, np.concatenate([1 - frame_low if wide else np.ones_like(codes), one])),
        "ACK64#": Changes(until_idle, np.concatenate([1 - devsel_low if wide else np.ones_like(codes), one])),
    }
