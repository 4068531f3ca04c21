"""How long things took on a bus, and who waited for whom: data, retried accesses, DMA after a doorbell."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.columns import Booleans, Floats, Integers, floats, integers, strings
from pcitrace.instrument import spread
from pcitrace.instrument.delayed import Delayed, changed_transactions, delayed
from pcitrace.instrument.names import Names
from pcitrace.stats import why_no_retries

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["KINDS", "Measured", "latencies", "measure"]

KINDS = ("arbitration", "acquisition", "first_data", "next_data", "retry_to_completion", "doorbell_to_dma")
"""What is measured, in this order."""

_WRITES = (0x3, 0x7, 0xB, 0xF)
_WAITS = ("turnaround", "decode", "both", "target", "initiator")
_NO_ADDRESS = "AD or C/BE# not captured"


@dataclass
class Measured:
    """What was measured of a bus.

    Attributes
    ----------
    table : pyarrow.Table
        The transactions.
    names : Names
        Who is who.
    values_us : dict of str to array
        By kind (:data:`KINDS`) one latency each, in us, as they came; arbitration and acquisition in no order.
    reasons : dict of str to str
        Why there are none of a kind.
    held_clks : dict or None
        Who asked for the bus, and whose transaction was on it, by GNT# -> for how many clocks; None where REQ# was not
        captured.
    delayed : Delayed or None
        Accesses that were retried; None where addresses or retries are not known.
    clock_mhz : float or None
    """

    table: pa.Table
    names: Names
    values_us: dict[str, Floats] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    held_clks: dict[tuple[str, str], int] | None = None
    delayed: Delayed | None = None
    clock_mhz: float | None = None

    def add(self, kind: str, found: Floats | str) -> None:
        """Note the latencies of a kind, or why there are none."""
        known = found if isinstance(found, str) else found[~np.isnan(found)]
        if isinstance(known, str):
            self.reasons[kind] = known
        elif len(known):
            self.values_us[kind] = known
        else:
            self.reasons[kind] = "there was none"

    def clks(self, kind: str) -> Integers:
        """The latencies of a kind in clocks."""
        rounded: Integers = np.rint(self.values_us[kind] * (self.clock_mhz or 0.0)).astype(np.int64)
        return rounded


def measure(bus: Bus, grants: Mapping[str, str] | None = None, chosen: pa.Table | None = None) -> Measured:
    """Measure how long things took on a bus.

    Parameters
    ----------
    bus : pcitrace.Bus
    grants : mapping of str to str, optional
        GNT# line -> name of the initiator.
    chosen : pyarrow.Table, optional
        Only these transactions; arbitration, acquisition and who held whom up are those of all. What takes several
        transactions, retried accesses and DMA after a doorbell, counts where one of them is among these.
    """
    table = bus.arrow("transactions") if chosen is None else chosen
    found = Measured(table, Names(grants), clock_mhz=bus.mean_clock_mhz)
    start, first = floats(table, "start_us"), floats(table, "first_data_us")
    _requests(bus, found)
    found.add("first_data", first - start)
    found.add("next_data", _next_data(bus, None if chosen is None else table))
    if not {"AD0", "CBE0#"} <= set(bus.lines):
        found.add("retry_to_completion", _NO_ADDRESS)
        found.add("doorbell_to_dma", _NO_ADDRESS)
        return found
    whole = bus.arrow("transactions")
    some = None if chosen is None else np.isin(integers(whole, "transaction"), integers(table, "transaction"))
    found.names.learn(whole, bus.arrow("data_phases"))
    found.add("doorbell_to_dma", _doorbells(whole, found.names, some))
    [clocks] = bus.arrow("clocks").to_pylist()
    if (missing := why_no_retries(clocks)) is not None:
        found.add("retry_to_completion", missing)
        return found
    accesses = delayed(whole, chosen=some)
    if len(accesses.first):
        accesses = delayed(whole, changed_transactions(bus), some)
    found.delayed = accesses
    found.add("retry_to_completion", accesses.took_us)
    return found


def latencies(bus: Bus, grants: Mapping[str, str] | None = None, chosen: pa.Table | None = None) -> dict[str, Any]:
    """Tell how long things took on a bus.

    Parameters
    ----------
    bus, grants, chosen
        As for :func:`measure`.

    Returns
    -------
    dict
        ``latency_us``: by kind ``n``, ``min``, ``median``, ``p99``, ``max`` in us; null with a ``reason`` where it
        cannot be told. ``first_data``: address phase to the first data. ``next_data``: from one data phase to the next.
        ``retry_to_completion``: first attempt of an access that was retried to its data. ``doorbell_to_dma``: a write
        to a device's window to the next transaction that this device begins. ``arbitration``: the first clock with REQ#
        to the first one with GNT#. ``acquisition``: from there to the address phase.
        ``latency_percentiles_us``: by kind ``p10`` to ``p99.9``. ``latency_histogram``: rows with ``from_clks``,
        ``to_clks`` (included) and how often each kind was measured so long.
        ``waits``: ``by`` (clocks by who caused them), ``initiators`` (name -> clocks that it made wait, and waited),
        ``pairs`` (the same of each initiator with each target), ``held_up`` (who asked for the bus while whose
        transaction was on it, in clocks).
        ``delayed``: accesses that were retried, what became of them, what went on between, and the longest ones.
    """
    return tell(bus, measure(bus, grants, chosen))


def tell(bus: Bus, found: Measured) -> dict[str, Any]:
    """Summarise what was measured of a bus, as :func:`latencies` returns it."""
    accesses = found.delayed
    values = found.values_us
    return {
        "latency_us": {
            kind: spread.summary(values[kind]) if kind in values else _unknown(found.reasons[kind]) for kind in KINDS
        },
        "latency_percentiles_us": {kind: spread.percentiles(values[kind]) for kind in KINDS if kind in values},
        "latency_histogram": _histogram(found),
        "waits": _waits(bus, found),
        "delayed": None if accesses is None else accesses.as_dict(found.names),
    }


def _unknown(reason: str) -> dict[str, Any]:
    return {"n": 0, "min": None, "median": None, "p99": None, "max": None, "reason": reason}


def _histogram(found: Measured) -> list[dict[str, int]]:
    """Rows of a histogram of all kinds, in clocks; those below and above all values are left out."""
    if found.clock_mhz is None or not found.values_us:
        return []
    clks = {kind: found.clks(kind) for kind in KINDS if kind in found.values_us}
    limits = spread.edges(max(int(one.max()) for one in clks.values()))
    counts = {kind: spread.counted(one, limits) for kind, one in clks.items()}
    rows = [
        {"from_clks": first, "to_clks": after - 1, **{kind: one[n] for kind, one in counts.items()}}
        for n, (first, after) in enumerate(itertools.pairwise(limits.tolist()))
    ]
    filled = [n for n, row in enumerate(rows) if any(row[kind] for kind in counts)]
    return rows[filled[0] : filled[-1] + 1]


def _requests(bus: Bus, found: Measured) -> None:
    """From REQ# to GNT#, and from there to the address phase, of all agents whose lines were captured."""
    agents = [line for line in bus.lines if line.startswith("GNT")]
    asking = [line for line in agents if line.replace("GNT", "REQ", 1) in bus.lines]
    missing = "GNT# not captured" if not agents else "REQ# not captured" if not asking else None
    decoder, mhz = bus.capture.decoder, found.clock_mhz
    if missing is None and decoder.together:
        missing = "a pipe is read once, and this takes a pass of its own"
    if missing is not None or mhz is None:
        for kind in ("arbitration", "acquisition"):
            found.add(kind, missing or "CLK has no two edges")
        return
    *counted, found.held_clks = decoder.requests(bus.spec)
    for kind, counts in zip(("arbitration", "acquisition"), counted, strict=True):
        found.add(kind, np.repeat(np.array([*counts], dtype=float), [*counts.values()]) / mhz)


def _next_data(bus: Bus, chosen: pa.Table | None) -> Floats:
    """From each data phase to the next one of the same transaction."""
    phases = bus.arrow("data_phases")
    if chosen is not None:
        phases = phases.filter(pc.is_in(phases["transaction"], chosen["transaction"].combine_chunks()))
    number, time = integers(phases, "transaction"), floats(phases, "time_us")
    same: Booleans = number[1:] == number[:-1]
    steps: Floats = np.diff(time)[same]
    return steps


def _doorbells(table: pa.Table, names: Names, chosen: Booleans | None) -> Floats | str:
    """The last write to a device's window before a transaction that the device begins, where they follow each other."""
    start = floats(table, "start_us")
    code, lines = strings(table, "initiator")
    called = [names.initiator(line) for line in lines]
    window, _ = names.locate(table)
    writes = np.isin(integers(table, "command"), _WRITES)
    steps: list[Floats] = []
    for device in {one.device for one in names.windows}:
        if device not in called:
            continue
        mine = code == called.index(device)
        ours: Integers = np.array([n for n, one in enumerate(names.windows) if one.device == device])
        event = np.flatnonzero(mine | np.isin(window, ours) & writes)
        rings = ~mine[event]
        pairs = np.flatnonzero(rings[:-1] & ~rings[1:])
        if chosen is not None:
            pairs = pairs[chosen[event[pairs]] | chosen[event[pairs + 1]]]
        steps.append(start[event[pairs + 1]] - start[event[pairs]])
    if not steps:
        return "no initiator is known to be a device with a window; --grant NAME=GNT2# names one"
    return np.concatenate(steps)


def _waits(bus: Bus, found: Measured) -> dict[str, Any]:
    """Clocks in which nothing moved, by who caused them; how long each initiator waited and made others wait."""
    [clocks] = bus.arrow("clocks").to_pylist()
    table, names = found.table, found.names
    code, lines = strings(table, "initiator")
    waited, made = integers(table, "target_wait_clks", missing=0), integers(table, "initiator_wait_clks")
    known = bool(table["target_wait_clks"].null_count == 0)
    targets = names.targets(table, everywhere=True).cast(pa.string())
    return {
        "by": {name: clocks[name] for name in _WAITS},
        "initiators": {
            str(names.initiator(line)): {
                "transactions": int((code == n).sum()),
                "waited_clks": int(waited[code == n].sum()) if known else None,
                "made_wait_clks": int(made[code == n].sum()),
            }
            for n, line in enumerate(lines)
        },
        "pairs": _pairs(table, names, targets, known),
        "held_up": None if found.held_clks is None else _held_up(found.held_clks, names),
    }


def _pairs(table: pa.Table, names: Names, targets: pa.Array, known: bool) -> list[dict[str, Any]]:
    """Each initiator with each target: clocks that the one waited for the other, the longest first."""
    rows = pa.table(
        {
            "initiator": table["initiator"].cast(pa.string()),
            "target": targets,
            "target_waits": table["target_wait_clks"],
            "initiator_waits": table["initiator_wait_clks"],
        }
    )
    sums = [("target_waits", "sum"), ("initiator_waits", "sum"), ([], "count_all")]
    grouped = rows.group_by(["initiator", "target"], use_threads=False).aggregate(sums).to_pylist()
    found = [
        {
            "initiator": names.initiator(one["initiator"]),
            "target": one["target"],
            "transactions": one["count_all"],
            "target_wait_clks": one["target_waits_sum"] if known else None,
            "initiator_wait_clks": one["initiator_waits_sum"],
        }
        for one in grouped
    ]
    return sorted(found, key=lambda one: -((one["target_wait_clks"] or 0) + one["initiator_wait_clks"]))


def _held_up(held: Mapping[tuple[str, str], int], names: Names) -> list[dict[str, Any]]:
    """Who asked for the bus while whose transaction was on it, the longest first."""
    found = [
        {"waiting": names.initiator(asks), "for": names.initiator(has), "clks": clks}
        for (asks, has), clks in held.items()
    ]
    return sorted(found, key=lambda one: -one["clks"])
