"""How long things took on a bus, and who waited for whom: data, retried accesses, DMA after a doorbell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.columns import Booleans, Floats, Integers, floats, integers, strings
from pcitrace.instrument.names import Names

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["latencies"]

_WRITES = (0x3, 0x7, 0xB, 0xF)
_WAITS = ("turnaround", "decode", "both", "target", "initiator")
_NO_ADDRESS = "AD or C/BE# not captured"


def latencies(bus: Bus, grants: Mapping[str, str] | None = None, chosen: pa.Table | None = None) -> dict[str, Any]:
    """Tell how long things took on a bus.

    Parameters
    ----------
    bus : pcitrace.Bus
    grants : mapping of str to str, optional
        GNT# line -> name of the initiator.
    chosen : pyarrow.Table, optional
        Only these transactions; arbitration, acquisition and waits are those of all.

    Returns
    -------
    dict
        ``latency_us``: by kind ``n``, ``min``, ``median``, ``p99``, ``max`` in us; null with a ``reason`` where it
        cannot be told. ``first_data``: address phase to the first data. ``next_data``: from one data phase to the next.
        ``retry_to_completion``: first attempt of an access that was retried to its data. ``doorbell_to_dma``: a write
        to a device's window to the next transaction that this device begins. ``arbitration``: the first clock with REQ#
        to the first one with GNT#. ``acquisition``: from there to the address phase.
        ``waits``: ``by`` (clocks by who caused them) and ``initiators`` (name -> clocks that it made wait, and waited).
        ``delayed``: accesses that were retried, and what became of them.
    """
    table = bus.arrow("transactions") if chosen is None else chosen
    has_address = {"AD0", "CBE0#"} <= set(bus.lines)
    names = Names(grants)
    start, first = floats(table, "start_us"), floats(table, "first_data_us")
    found: dict[str, Any] = {
        **_requests(bus),
        "first_data": _distribution(first - start),
        "next_data": _distribution(_next_data(bus, None if chosen is None else table)),
        "retry_to_completion": _unknown(_NO_ADDRESS),
        "doorbell_to_dma": _unknown(_NO_ADDRESS),
    }
    delayed: dict[str, Any] | None = None
    if has_address:
        names.learn(bus.arrow("transactions"), bus.arrow("data_phases"))
        delayed, found["retry_to_completion"] = _delayed(table, start, first)
        found["doorbell_to_dma"] = _doorbells(table, start, names)
    return {"latency_us": found, "waits": _waits(bus, table, names), "delayed": delayed}


def _distribution(values: Floats) -> dict[str, Any]:
    known = values[~np.isnan(values)]
    if not len(known):
        return _unknown("there was none")
    return {
        "n": len(known),
        "min": float(known.min()),
        "median": float(np.median(known)),
        "p99": float(np.percentile(known, 99)),
        "max": float(known.max()),
    }


def _unknown(reason: str) -> dict[str, Any]:
    return {"n": 0, "min": None, "median": None, "p99": None, "max": None, "reason": reason}


def _requests(bus: Bus) -> dict[str, Any]:
    """From REQ# to GNT#, and from there to the address phase, of all agents whose lines were captured."""
    agents = [line for line in bus.lines if line.startswith("GNT")]
    asking = [line for line in agents if line.replace("GNT", "REQ", 1) in bus.lines]
    missing = "GNT# not captured" if not agents else "REQ# not captured" if not asking else None
    decoder, mhz = bus.capture.decoder, bus.mean_clock_mhz
    if missing is None and decoder.together:
        missing = "a pipe is read once, and this takes a pass of its own"
    if missing is not None or mhz is None:
        return dict.fromkeys(("arbitration", "acquisition"), _unknown(missing or "CLK has no two edges"))
    found = zip(("arbitration", "acquisition"), decoder.requests(bus.spec), strict=True)
    return {
        kind: _distribution(np.repeat(np.array([*counts], dtype=float), [*counts.values()]) / mhz)
        for kind, counts in found
    }


def _next_data(bus: Bus, chosen: pa.Table | None) -> Floats:
    """From each data phase to the next one of the same transaction."""
    phases = bus.arrow("data_phases")
    if chosen is not None:
        phases = phases.filter(pc.is_in(phases["transaction"], chosen["transaction"].combine_chunks()))
    number, time = integers(phases, "transaction"), floats(phases, "time_us")
    same: Booleans = number[1:] == number[:-1]
    steps: Floats = np.diff(time)[same]
    return steps


def _delayed(table: pa.Table, start: Floats, first: Floats) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attempts of one access: the same initiator, address and direction, up to the first that was not retried."""
    command, address = integers(table, "command"), integers(table, "address")
    who, _ = strings(table, "initiator")
    ended, terminations = strings(table, "termination")
    retried = ended == (terminations.index("retry") if "retry" in terminations else -2)
    order = np.lexsort((np.arange(len(start)), np.isin(command, _WRITES), address, who))
    key = np.stack([who, address, np.isin(command, _WRITES)])[:, order]
    goes_on = retried[order][:-1] & (key[:, 1:] == key[:, :-1]).all(axis=0)
    access = np.concatenate([[0], np.cumsum(~goes_on)]) if len(start) else np.zeros(0, dtype=np.int64)
    attempts = np.bincount(access)
    head = np.cumsum(attempts) - attempts
    last = order[head + attempts - 1] if len(attempts) else order
    some = retried[order[head]] if len(head) else np.zeros(0, dtype=bool)
    done = some & ~np.isnan(first[last])
    took = np.where(done, first[last] - start[order[head]], np.nan) if len(head) else np.zeros(0)
    told = {
        "accesses": int(some.sum()),
        "attempts": int(attempts[some].sum()),
        "most_attempts": int(attempts[some].max(initial=0)),
        "completed": int(done.sum()),
        "aborted": int((some & ~done & ~retried[last]).sum()),
        "never_completed": int((some & retried[last]).sum()),
    }
    return told, _distribution(took[some] if len(took) else took)


def _doorbells(table: pa.Table, start: Floats, names: Names) -> dict[str, Any]:
    """The last write to a device's window before a transaction that the device begins, where they follow each other."""
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
        steps.append(start[event[pairs + 1]] - start[event[pairs]])
    if not steps:
        return _unknown("no initiator is known to be a device with a window; --grant NAME=GNT2# names one")
    return _distribution(np.concatenate(steps))


def _waits(bus: Bus, table: pa.Table, names: Names) -> dict[str, Any]:
    """Clocks in which nothing moved, by who caused them; how long each initiator waited and made others wait."""
    [clocks] = bus.arrow("clocks").to_pylist()
    code, lines = strings(table, "initiator")
    waited, made = integers(table, "target_wait_clks", missing=0), integers(table, "initiator_wait_clks")
    known = bool(table["target_wait_clks"].null_count == 0)
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
    }
