"""What ``pcitrace stats`` prints of the views: a table of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pcitrace.cli.text import filled, number, table
from pcitrace.printable import printable

__all__ = ["view_lines"]

_TERMINATIONS = {
    "completion": "completed",
    "disconnect_with_data": "disc data",
    "disconnect_without_data": "disc none",
    "retry": "retried",
    "target_abort": "tgt abort",
    "master_abort": "mst abort",
    "special_cycle": "special",
    "truncated": "truncated",
    "unknown": "unknown",
}
_SHOWN_VIEWS = {"initiators": "initiator", "targets": "target", "commands": "command", "places": "address window"}
_KINDS = {
    "arbitration": "arbitration",
    "acquisition": "acquisition",
    "first_data": "first data",
    "next_data": "next data",
    "retry_to_completion": "retried",
    "doorbell_to_dma": "doorbell",
}


def view_lines(told: Mapping[str, Any], top: int, with_slowest: bool) -> list[str]:
    """All views of one bus, the first `top` rows of each."""
    parts = (
        _shares(told, top),
        _terminations(told["terminations_by"], top),
        _latencies(told),
        _histogram(told["latency_histogram"]),
        _bursts(told["burst_lengths"]),
        _waits(told["waits"], top),
        _delayed(told["delayed"], top if with_slowest else min(top, 3)),
        _slowest(told["views"]["slowest"][:top]) if with_slowest else (),
        _over_time(told.get("windows") or told.get("over_time") or ()),
    )
    return [line for part in parts for line in part]


def _name(text: str | None) -> str:
    return printable(text or "unknown")


def _shares(told: Mapping[str, Any], top: int) -> Iterable[str]:
    """Use of the bus by initiator, target, command and address window."""
    heads = ("transact.", "bytes", "MB/s", "clocks", "of all", "data", "waits", "retries")
    for view, title in _SHOWN_VIEWS.items():
        rows = told["views"][view]
        if not rows:
            continue
        cells = [
            (
                _name(one["name"]),
                one["transactions"],
                one["bytes"],
                number(one["throughput_mb_s"], "-"),
                one["clocks"],
                _percent(one["utilisation"]),
                _percent(one["efficiency"]),
                one["wait_clks"],
                "-" if one["retries"] is None else one["retries"],
            )
            for one in rows[:top]
        ]
        yield from table(title, heads, cells)
        yield from _more(len(rows), top)


def _more(count: int, top: int) -> Iterable[str]:
    if count > top:
        yield f"    and {count - top} more: --top {count}"


def _terminations(by: Mapping[str, Mapping[str, Mapping[str, int]]], top: int) -> Iterable[str]:
    for view, title in (("initiators", "ended, of initiator"), ("targets", "ended, at target")):
        rows = by[view]
        kinds = [kind for kind in _TERMINATIONS if any(kind in ended for ended in rows.values())]
        order = sorted(rows, key=lambda name: -sum(rows[name].values()))
        cells = [(_name(name), *(rows[name].get(kind, 0) for kind in kinds)) for name in order[:top]]
        if rows:
            yield from table(title, [_TERMINATIONS[kind] for kind in kinds], cells)
            yield from _more(len(order), top)


def _latencies(told: Mapping[str, Any]) -> Iterable[str]:
    cells = []
    for kind, one in told["latency_us"].items():
        if one["n"]:
            shares = told["latency_percentiles_us"][kind]
            values = (one["min"], shares["p10"], one["median"], shares["p90"], one["p99"], one["max"])
            cells.append((kind.replace("_", " "), one["n"], *(f"{value:.3f}" for value in values)))
    if cells:
        yield from table("latency us", ("n", "min", "p10", "median", "p90", "p99", "max"), cells)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _histogram(rows: Sequence[Mapping[str, int]]) -> Iterable[str]:
    if rows:
        kinds = [kind for kind in _KINDS if kind in rows[0]]
        cells = [(_range(row["from_clks"], row["to_clks"]), *(row[kind] or "-" for kind in kinds)) for row in rows]
        yield from table("latency clocks", [_KINDS[kind] for kind in kinds], cells)


def _bursts(rows: Sequence[Mapping[str, int]]) -> Iterable[str]:
    if rows:
        kinds = ("data_phases", "logical_data_phases", "bytes", "logical_bytes")
        cells = [(_range(row["from"], row["to"]), *(row[kind] or "-" for kind in kinds)) for row in rows]
        yield from table("bursts of", ("data phases", "logical", "bytes", "logical"), cells)


def _waits(waits: Mapping[str, Any], top: int) -> Iterable[str]:
    pairs = [one for one in waits["pairs"] if one["target_wait_clks"] or one["initiator_wait_clks"]]
    cells = [
        (
            _name(one["initiator"]),
            _name(one["target"]),
            one["transactions"],
            "unknown" if one["target_wait_clks"] is None else one["target_wait_clks"],
            one["initiator_wait_clks"],
        )
        for one in pairs[:top]
    ]
    if cells:
        yield from table("waits of", ("with", "transact.", "clocks waited", "made it wait"), cells, names=2)
    yield from _more(len(pairs), top)
    for one in (waits["held_up"] or [])[:top]:
        text = f"{_name(one['waiting'])} asked for {one['clks']} clocks while {_name(one['for'])} had the bus"
        yield filled(text, 4, 6)


def _delayed(delayed: Mapping[str, Any] | None, top: int) -> Iterable[str]:
    if delayed is None or not delayed["accesses"]:
        return
    became = ", ".join(f"{delayed[key]} {key.replace('_', ' ')}" for key in ("completed", "aborted", "never_completed"))
    yield filled(f"{'retried':<14}accesses {delayed['accesses']}, attempts {delayed['attempts']}: {became}", 2, 16)
    if delayed["changed"]:
        yield filled(f"{delayed['changed']} of them repeated with other data, byte enables or command (M23)", 16, 16)
    between = f"transactions {delayed['between_transactions']}, bytes {delayed['between_bytes']}"
    yield filled(f"of others, between first and last attempts: {between}", 16, 16)
    cells = [
        (
            f"#{one['transaction']}",
            _pair(one),
            one["outcome"].replace("_", " "),
            "" if one["address"] is None else f"{one['address']:08x}",
            "-" if one["took_us"] is None else f"{one['took_us']:.3f}",
            one["attempts"],
            one["between_transactions"],
        )
        for one in delayed["longest"][:top]
    ]
    yield from table("longest", ("from -> to", "outcome", "address", "us", "attempts", "between"), cells, names=3)


def _pair(one: Mapping[str, Any]) -> str:
    return " -> ".join(printable(name) for name in (one["initiator"], one["target"]) if name)


def _slowest(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    cells = [
        (
            f"#{one['transaction']}",
            _pair(one),
            (one["command"] or "").replace("_", " "),
            "" if one["address"] is None else f"{one['address']:08x}",
            f"{one['time_us']:.3f}",
            one["wait_clks"],
        )
        for one in rows
    ]
    if rows:
        yield from table("longest waits", ("from -> to", "command", "address", "us", "clocks"), cells, names=3)


def _over_time(windows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    cells = [
        (
            f"{one['start_us']:.3f}",
            one["total"],
            _percent(one["occupancy"]),
            _percent(one["data_occupancy"]),
            _percent(one["efficiency"]),
            number(one["throughput_mb_s"], "-"),
        )
        for one in windows
    ]
    if cells:
        yield from table("over time, from us", ("clocks", "occupancy", "data", "efficiency", "MB/s"), cells)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"
