"""What ``pcitrace stats`` prints of the views: tables of at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pcitrace.run import printable

__all__ = ["view_lines"]

_WIDTH = 100
_COLUMNS = 7
"""Kinds of endings beside each other."""
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
    return [
        line[:_WIDTH].rstrip()
        for part in (
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
        for line in part
    ]


def _name(text: str | None, width: int) -> str:
    """A name in a column of so many characters."""
    known = printable(text or "unknown")
    return f"{known if len(known) <= width else known[: width - 3] + '...':<{width}}"


def _shares(told: Mapping[str, Any], top: int) -> Iterable[str]:
    """Use of the bus by initiator, target, command and address window."""
    for view, title in _SHOWN_VIEWS.items():
        rows = told["views"][view]
        if not rows:
            continue
        heads = ("transact.", "bytes", "MB/s", "clocks", "of all", "data", "waits", "retries")
        yield f"  {title:<22}" + "".join(f"{head:>{9 if n else 10}}" for n, head in enumerate(heads))
        for one in rows[:top]:
            cells = (
                f"{one['transactions']:>10}",
                f"{_count(one['bytes']):>9}",
                f"{_figure(one['throughput_mb_s']):>9}",
                f"{_count(one['clocks']):>9}",
                f"{_percent(one['utilisation']):>9}",
                f"{_percent(one['efficiency']):>9}",
                f"{_count(one['wait_clks']):>9}",
                f"{_count(one['retries']):>9}",
            )
            yield f"    {_name(one['name'], 20)}" + "".join(cells)
        yield from _more(len(rows), top)


def _more(count: int, top: int) -> Iterable[str]:
    if count > top:
        yield f"    and {count - top} more: --top {count}"


def _terminations(by: Mapping[str, Mapping[str, Mapping[str, int]]], top: int) -> Iterable[str]:
    for view, title in (("initiators", "ended, of initiator"), ("targets", "ended, at target")):
        rows = by[view]
        kinds = [kind for kind in _TERMINATIONS if any(kind in ended for ended in rows.values())]
        shown = kinds if len(kinds) <= _COLUMNS else kinds[: _COLUMNS - 1]
        if not rows:
            continue
        heads = [_TERMINATIONS[kind] for kind in shown] + ["others"] * (len(shown) < len(kinds))
        yield f"  {title:<22}" + "".join(f"{head:>10}" for head in heads)
        order = sorted(rows, key=lambda name: -sum(rows[name].values()))
        for name in order[:top]:
            counts = [rows[name].get(kind, 0) for kind in shown]
            counts += [sum(rows[name].values()) - sum(counts)] * (len(shown) < len(kinds))
            yield f"    {_name(name, 20)}" + "".join(f"{count:>10}" for count in counts)
        yield from _more(len(order), top)


def _latencies(told: Mapping[str, Any]) -> Iterable[str]:
    known = {kind: one for kind, one in told["latency_us"].items() if one["n"]}
    if not known:
        return
    heads = ("min", "p10", "median", "p90", "p99", "max")
    yield f"  {'latency us':<22}{'n':>10}" + "".join(f"{head:>10}" for head in heads)
    for kind, one in known.items():
        shares = told["latency_percentiles_us"][kind]
        values = (one["min"], shares["p10"], one["median"], shares["p90"], one["p99"], one["max"])
        yield f"    {kind.replace('_', ' '):<20}{one['n']:>10}" + "".join(f"{value:>10.3f}" for value in values)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _histogram(rows: Sequence[Mapping[str, int]]) -> Iterable[str]:
    if not rows:
        return
    kinds = [kind for kind in _KINDS if kind in rows[0]]
    yield f"  {'latency clocks':<22}" + "".join(f"{_KINDS[kind]:>12}" for kind in kinds)
    for row in rows:
        yield f"    {_range(row['from_clks'], row['to_clks']):<20}" + "".join(
            f"{row[kind] or '-':>12}" for kind in kinds
        )


def _bursts(rows: Sequence[Mapping[str, int]]) -> Iterable[str]:
    if not rows:
        return
    heads = ("data phases", "logical", "bytes", "logical")
    yield f"  {'bursts of':<22}" + "".join(f"{head:>13}" for head in heads)
    for row in rows:
        counts = (row["data_phases"], row["logical_data_phases"], row["bytes"], row["logical_bytes"])
        yield f"    {_range(row['from'], row['to']):<20}" + "".join(f"{count or '-':>13}" for count in counts)


def _waits(waits: Mapping[str, Any], top: int) -> Iterable[str]:
    pairs = [one for one in waits["pairs"] if one["target_wait_clks"] or one["initiator_wait_clks"]]
    if pairs:
        yield f"  {'waits of':<22}{'with':<22}{'transact.':>10}{'clocks waited':>16}{'made it wait':>16}"
    for one in pairs[:top]:
        waited = "unknown" if one["target_wait_clks"] is None else one["target_wait_clks"]
        who = f"    {_name(one['initiator'], 20)}{_name(one['target'], 22)}"
        yield f"{who}{one['transactions']:>10}{waited:>16}{one['initiator_wait_clks']:>16}"
    yield from _more(len(pairs), top)
    for one in (waits["held_up"] or [])[:top]:
        yield f"    {_name(one['waiting'], 20)}asked for {one['clks']} clocks while {one['for']} had the bus"


def _delayed(delayed: Mapping[str, Any] | None, top: int) -> Iterable[str]:
    if delayed is None or not delayed["accesses"]:
        return
    became = ", ".join(f"{delayed[key]} {key.replace('_', ' ')}" for key in ("completed", "aborted", "never_completed"))
    yield f"  {'retried':<14}{delayed['accesses']} accesses in {delayed['attempts']} attempts: {became}"
    if delayed["changed"]:
        yield f"  {'':<14}{delayed['changed']} of them repeated with other data, byte enables or command (M23)"
    between = f"{delayed['between_transactions']} transactions with {delayed['between_bytes']} bytes"
    yield f"  {'':<14}between first and last attempts others made {between}"
    yield f"    {'longest':<12}{'address':>16}{'us':>12}{'attempts':>10}{'between':>9}  outcome, from -> to"
    for one in delayed["longest"][:top]:
        took = "-" if one["took_us"] is None else f"{one['took_us']:.3f}"
        at = "" if one["address"] is None else f"{one['address']:08x}"
        who = " -> ".join(filter(None, (one["initiator"], one["target"])))
        yield (
            f"    {'#' + str(one['transaction']):<12}{at:>16}{took:>12}{one['attempts']:>10}"
            f"{one['between_transactions']:>9}  {one['outcome'].replace('_', ' ')}, {who}"
        )


def _slowest(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    if rows:
        yield f"  {'longest waits':<24}{'us':>14}{'clocks':>8}"
    for one in rows:
        who = " -> ".join(filter(None, (one["initiator"], one["target"])))
        at = "" if one["address"] is None else f" {one['address']:08x}"
        text = f"    {'#' + str(one['transaction']):<20}{one['time_us']:>16.3f}{one['wait_clks']:>8}"
        yield f"{text}  {one['command'] or ''}{at}  {who}"


def _over_time(windows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    if not windows:
        return
    yield f"  {'over time, from us':<22}{'clocks':>10}{'occupancy':>12}{'data':>10}{'efficiency':>12}{'MB/s':>10}"
    for one in windows:
        shares = (
            f"{_percent(one['occupancy']):>12}{_percent(one['data_occupancy']):>10}{_percent(one['efficiency']):>12}"
        )
        yield f"    {one['start_us']:<20.3f}{one['total']:>10}{shares}{_figure(one['throughput_mb_s']):>10}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{_rounded(100 * value, 3, 6)} %"


def _figure(value: float | None) -> str:
    return "-" if value is None else _rounded(value, 4, 8)


def _count(value: int) -> str:
    """A whole number that leaves a space free in a column of nine."""
    return str(value) if value < 10**8 else f"{value:.3g}"


def _rounded(value: float, digits: int, width: int) -> str:
    """A number of so many digits, of fewer where it would be wider than that."""
    text = f"{value:.{digits}g}"
    return text if len(text) <= width else f"{value:.1g}"
