"""What a test costs its hosts: CPU time and interrupts a frame, and what their counters say went wrong.

From the states that hosts tell before and after (``run.toml`` [[host_states]]). They are of the whole host: whatever
else it did is in them, and a sender or receiver that polls keeps its CPU busy without an interrupt.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from pcitrace.network.measurement import Measurement
from pcitrace.network.parameter import Parameter, measured, unknown
from pcitrace.network.result import PointResult, Result

__all__ = ["counters", "host_load", "load_parameters", "with_hosts"]

IDLE = ("idle", "iowait", "steal")
"""States in which a CPU did nothing for this host."""

TICK_US = 10_000.0
"""Step in which Linux counts CPU time, with the usual 100 a second; two readings are off by a step each."""

TROUBLE = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_missed", "carrier_changes")

COLUMNS = (
    "host",
    "seconds",
    "frames",
    "cpu_busy_us",
    "cpu_us_per_frame",
    "interrupts",
    "interrupts_per_frame",
    "nic_interrupts",
    "context_switches",
    *TROUBLE,
)


def host_load(one: Measurement, points: Sequence[PointResult]) -> pd.DataFrame:
    """Return what each host did from before the test until after it.

    Parameters
    ----------
    one : Measurement
    points : sequence of PointResult
        For how many frames each host sent and received; without any, as its interface counted them.

    Returns
    -------
    pandas.DataFrame
        A row a host whose two states are there: ``host``; ``seconds`` between them; ``frames`` of the test that it sent
        and received; ``cpu_busy_us``, of all its CPUs, and ``cpu_us_per_frame``; ``interrupts``, all of them, and
        ``interrupts_per_frame``; ``nic_interrupts``, those whose line names the interface; ``context_switches``; what
        its interface counted of errors. What a host did not tell, or what ran backwards (it was started anew), is null.
    """
    rows = []
    nodes = {name: int(host.get("node", number)) for number, (name, host) in enumerate(_hosts(one).items())}
    for host, before, after in _both_states(one):
        frames = _frames(points, nodes.get(host, -1)) if points else _passed(before, after)
        rows.append({"host": host} | _difference(before, after, frames))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def counters(one: Measurement) -> pd.DataFrame:
    """Return what the hosts' protocols and drivers counted meanwhile.

    Returns
    -------
    pandas.DataFrame
        A row a counter that grew: ``host``, ``of`` (``snmp``, ``ethtool``), ``counter`` and ``grown``, over all runs of
        a sweep.
    """
    grown: Counter[tuple[str, str, str]] = Counter()
    for part in one.parts or (one,):
        for host, before, after in _both_states(part):
            for of, path in _counted(after):
                grown[host, of, ".".join(path)] += int(_grown(before, after, of, *path) or 0)
    rows = [(*whose, many) for whose, many in grown.items() if many]
    return pd.DataFrame(rows, columns=["host", "of", "counter", "grown"])


def _counted(state: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the counters of a state."""
    protocols, driver = (state.get(name) for name in ("snmp", "ethtool"))
    for protocol, names in (protocols if isinstance(protocols, dict) else {}).items():
        yield from (("snmp", (protocol, name)) for name in (names if isinstance(names, dict) else ()))
    yield from (("ethtool", (name,)) for name in (driver if isinstance(driver, dict) else ()))


def with_hosts(result: Result, one: Measurement) -> Result:
    """Return the result of another program with what its calls, all together, cost the hosts."""
    table = host_load(one, ())
    known = {
        name: replace(value, reason=f"{value.reason}; of all frames that its interface counted, in all calls")
        for name, value in load_parameters(table).items()
    }
    return replace(
        result,
        parameters={**result.parameters, **known},
        tables={**result.tables, "hosts": table, "counters": counters(one)},
    )


def load_parameters(load: pd.DataFrame) -> dict[str, Parameter]:
    """Return CPU time and interrupts a frame, of the host that has most of each."""
    parameters = {}
    for name, error in (("cpu_us_per_frame", TICK_US / math.sqrt(6)), ("interrupts_per_frame", 0.0)):
        known = load.dropna(subset=[name]).to_dict("records")
        if not known:
            parameters[name] = unknown(name, "no host told its state before and after, or no frame passed")
            continue
        each = ", ".join(f"{row['host']} {row[name]:.3g}" for row in known)
        most = max(known, key=lambda row: float(row[name]))
        why = f"of the busier host, whatever else it did included: {each}"
        parameters[name] = measured(name, (float(most[name]), error / most["frames"]), int(most["frames"]), why)
    return parameters


def _hosts(one: Measurement) -> Mapping[str, Any]:
    return dict(one.run.get("hosts", {}))


def _both_states(one: Measurement) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the hosts that told their state before and after, and both."""
    for entry in one.run.get("host_states", ()):
        if "before" in entry and "after" in entry:
            before, after = (_state(one.folder / str(entry[name])) for name in ("before", "after"))
            if before and after:
                yield str(entry["host"]), before, after


def _state(file: Path) -> Mapping[str, Any]:
    """Return a state; empty where there is none that can be read."""
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _frames(points: Sequence[PointResult], node: int) -> int:
    """Return the frames that a node sent and received, as far as they were counted."""
    flows = [flow for point in points for flow in point.flows]
    sent = sum(flow.counts["sent"] or 0 for flow in flows if flow.flow.source == node)
    return sent + sum(flow.counts["received"] or 0 for flow in flows if flow.flow.to == node)


def _passed(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Return the frames that an interface sent and received, of whomever."""
    return int(sum(_grown(before, after, "interface", f"{way}_packets") or 0.0 for way in ("rx", "tx")))


def _difference(before: Mapping[str, Any], after: Mapping[str, Any], frames: int) -> dict[str, float | None]:
    ms = [_grown(before, after, "cpu_ms", state) for state in (before.get("cpu_ms") or {}) if state not in IDLE]
    busy = None if not ms or any(one is None for one in ms) else 1e3 * sum(one or 0.0 for one in ms)
    interrupts = _grown(before, after, "interrupts_total")
    ns = _grown(before, after, "unix_ns")
    row = {"seconds": None if ns is None else ns / 1e9, "frames": frames, "cpu_busy_us": busy, "interrupts": interrupts}
    row |= {"nic_interrupts": _of_nic(before, after), "context_switches": _grown(before, after, "context_switches")}
    for name, value in (("cpu_us_per_frame", busy), ("interrupts_per_frame", interrupts)):
        row[name] = None if value is None or not frames else value / frames
    return row | {name: _grown(before, after, "interface", name) for name in TROUBLE}


def _of_nic(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return the interrupts of lines that name the interface; None where none does."""
    interface = ((before.get("facts") or {}).get("interface") or {}).get("name")
    lines = after.get("interrupts") or {}
    mine = [number for number, line in lines.items() if interface and str(interface) in str(line.get("name", ""))]
    if not mine:
        return None
    earlier = before.get("interrupts") or {}
    grown = [lines[number]["count"] - earlier.get(number, {}).get("count", 0) for number in mine]
    return None if any(one < 0 for one in grown) else float(sum(grown))


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], *keys: str) -> float | None:
    """Return by how much a counter grew; None where it is not told, or ran backwards."""
    ends = []
    for state in (before, after):
        value: Any = state
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        ends.append(value)
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in ends) or ends[1] < ends[0]:
        return None
    return float(ends[1] - ends[0])
