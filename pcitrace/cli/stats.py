"""``pcitrace stats``: what happened on the buses of a capture, counted."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from pcitrace.cli.choice import add_choice, choice
from pcitrace.cli.options import (
    add_capture,
    add_grants,
    add_json,
    add_strict,
    choose_buses,
    open_run,
    positive,
    print_json,
    whole,
)
from pcitrace.cli.traffic import of_buses
from pcitrace.run import format_duration, printable

if TYPE_CHECKING:
    from pcitrace.instrument.conditions import Condition
    from pcitrace.run import Bus

_EPILOG = """\
examples:
  pcitrace stats capture.sr
  pcitrace stats capture.sr --window-us 100      the use of the bus every 100 us as well
  pcitrace stats capture.sr --profile acenic     and what the NIC had to do with it
  pcitrace stats capture.sr --top 10             who and what keeps the bus busy, and what waited longest
  pcitrace stats capture.sr --where 'command == memory_read' --from 1ms --to 2ms
  pcitrace stats capture.sr --json

Occupancy: clocks in which FRAME# or IRDY# is asserted, over all clocks whose state is known. Efficiency: clocks in
which data moves, over those. Every clock is counted in exactly one class. What --where and the like choose are the
transactions; clocks, problems and arbitration are those of the whole capture.
"""

_COLUMNS = 100
_CLASSES = ("idle", "address", "data", "stop", "abort", "wait", "unknown")
_WAITS = ("turnaround", "decode", "both", "target", "initiator")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument(
        "--window-us", metavar="US", type=positive, help="count clocks in windows of this length as well"
    )
    parser.add_argument(
        "--profile", metavar="NIC", help="tell DMA from CSR accesses with this NIC profile: name or .toml"
    )
    add_choice(parser)
    parser.add_argument(
        "--top",
        metavar="N",
        type=whole,
        help="the N busiest initiators, targets, commands and places, the N longest waits",
    )
    add_grants(parser)
    add_strict(parser)
    add_json(parser, "print JSON")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Count and print."""
    from pcitrace.instrument.names import check_grants
    from pcitrace.instrument.stream import TRANSACTIONS
    from pcitrace.stats import traffic_statistics, window_records

    opened = open_run(args)
    buses = choose_buses(opened, args.bus)
    condition = choice(args, TRANSACTIONS)
    result = {}
    for bus in buses:
        grants = check_grants(args.grant, bus.lines)
        result[bus.name] = _statistics(bus, grants, condition, args.top is not None)
    if args.profile is not None:
        for name, traffic in of_buses(opened, args).items():
            result[name]["traffic"] = traffic_statistics(traffic)
    if args.window_us is not None:
        for bus in buses:
            result[bus.name]["windows"] = window_records(bus, args.window_us)
    if args.json:
        print_json(result)
    else:
        shown = {name: "\n".join(map(_wrapped, _lines(told, args.top))) for name, told in result.items()}
        print("\n\n".join(f"bus {printable(name)}\n{lines}" for name, lines in shown.items()))
    found = sum(statistics["problems"] for statistics in result.values())
    if args.strict and found:
        print(f"pcitrace: {args.file}: {found} problems (--strict)", file=sys.stderr)
        return 1
    return 0


def _statistics(bus: Bus, grants: dict[str, str], condition: Condition | None, with_views: bool) -> dict[str, Any]:
    """All that is counted of a bus, of the transactions that fulfil the condition."""
    from pcitrace.instrument.latencies import latencies
    from pcitrace.instrument.views import named, views
    from pcitrace.stats import bus_statistics

    if condition is None and not with_views:
        return bus_statistics(bus) | latencies(bus, grants)
    table = named(bus, bus.arrow("transactions"), grants)
    if condition is None:
        return bus_statistics(bus) | latencies(bus, grants) | {"top": views(table)}
    from pcitrace.decode import to_pandas

    table = condition.filter(table)
    told = bus_statistics(bus, to_pandas(table)) | latencies(bus, grants, table)
    return told | {"top": views(table)} if with_views else told


def _wrapped(line: str) -> str:
    """The line within 100 columns; what goes on stands below what it is said of."""
    if len(line) <= _COLUMNS:
        return line
    return textwrap.fill(line, _COLUMNS, subsequent_indent=" " * 16, drop_whitespace=True, break_on_hyphens=False)


def _lines(statistics: dict[str, Any], top: int | None) -> list[str]:
    clocks = statistics["clocks"]
    span = format_duration((clocks["end_us"] - clocks["start_us"]) * 1e-6)
    bound = " at most (C/BE# not captured)" if statistics["throughput_is_upper_bound"] else ""
    lines = [
        f"  {'window':<14}{clocks['start_us']:.3f} to {clocks['end_us']:.3f} us ({span}), {clocks['total']} clocks",
        f"  {'clocks':<14}" + ", ".join(_share(clocks, name) for name in _CLASSES if clocks[name]),
    ]
    if clocks["wait"]:
        lines.append(f"  {'of the waits':<14}" + ", ".join(_share(clocks, name) for name in _WAITS if clocks[name]))
    lines += [
        f"  {'occupancy':<14}{_percent(clocks['occupancy'])}, with data {_percent(clocks['data_occupancy'])}; "
        f"efficiency {_percent(clocks['efficiency'])}",
        f"  {'throughput':<14}{_number(clocks['throughput_mb_s'])} MB/s{bound}, {clocks['bytes']} bytes",
        f"  {'transactions':<14}{statistics['transactions']}",
    ]
    for title, key in (("commands", "commands"), ("ended by", "terminations"), ("initiators", "initiators")):
        lines.append(f"  {title:<14}{_listed(statistics[key])}")
    for title, key, unit in (
        ("bursts", "burst_data_phases", "data phases"),
        ("", "burst_bytes", f"bytes{bound}"),
        ("first data", "first_data_clks", "clocks after the address phase"),
    ):
        if statistics[key] is not None:
            lines.append(f"  {title:<14}{_distribution(statistics[key])} {unit}")
    retry = statistics["retry_rate"]
    lines.append(
        f"  {'retries':<14}{_percent(retry['per_attempt'])} of the attempts, {_number(retry['per_completed'])} a "
        f"transaction that moved data, {_number(retry['per_second'])} a second"
    )
    lines += _latency_lines(statistics)
    lines.append(f"  {'problems':<14}{_listed(statistics['problem_kinds'])}")
    if "traffic" in statistics:
        lines += _traffic_lines(statistics["traffic"])
    if top is not None:
        lines += _top_lines(statistics["top"], top)
    if "windows" in statistics:
        lines.append(f"  {'start us':>14}{'clocks':>10}{'occupancy':>12}{'data':>9}{'MB/s':>9}")
        lines += [
            f"  {window['start_us']:>14.3f}{window['total']:>10}{_percent(window['occupancy']):>12}"
            f"{_percent(window['data_occupancy']):>9}{_number(window['throughput_mb_s']):>9}"
            for window in statistics["windows"]
        ]
    return lines


def _top_lines(views: dict[str, list[dict[str, Any]]], top: int) -> list[str]:
    """The busiest of each view, and what waited longest."""
    lines = []
    for view, rows in views.items():
        if view == "slowest" or not rows:
            continue
        heads = "".join(f"{head:>13}" for head in ("transactions", "bytes", "clocks", "waits", "retries"))
        lines.append(f"  {'busiest ' + view:<28}{heads}")
        for one in rows[:top]:
            keys = ("transactions", "bytes", "clocks", "wait_clks", "retries")
            lines.append(f"    {one['name'][:25]:<26}" + "".join(f"{one[key]:>13}" for key in keys))
    if views["slowest"]:
        lines.append(f"  {'longest waits':<24}{'us':>14}{'clocks':>8}")
    for one in views["slowest"][:top]:
        who = " -> ".join(filter(None, (one["initiator"], one["target"])))
        at = "" if one["address"] is None else f" {one['address']:08x}"
        text = f"    {'#' + str(one['transaction']):<20}{one['time_us']:>16.3f}{one['wait_clks']:>8}"
        lines.append(f"{text}  {one['command'] or ''}{at}  {who}"[:100].rstrip())
    return lines


def _latency_lines(statistics: dict[str, Any]) -> list[str]:
    """Latencies in us, who waited for whom, and what became of retried accesses; what is not known is left out."""
    lines = []
    known = {name: one for name, one in statistics["latency_us"].items() if one["n"]}
    if known:
        lines.append(f"  {'latency us':<22}{'n':>8}{'min':>10}{'median':>10}{'p99':>10}{'max':>10}")
        for name, one in known.items():
            values = "".join(f"{one[key]:>10.3f}" for key in ("min", "median", "p99", "max"))
            lines.append(f"    {name.replace('_', ' '):<20}{one['n']:>8}{values}")
    for name, one in statistics["waits"]["initiators"].items():
        waited = "unknown" if one["waited_clks"] is None else one["waited_clks"]
        lines.append(f"  {name:<14}waited {waited} clocks for targets, made them wait {one['made_wait_clks']}")
    delayed = statistics["delayed"]
    if delayed is not None and delayed["accesses"]:
        became = ", ".join(
            f"{delayed[key]} {key.replace('_', ' ')}" for key in ("completed", "aborted", "never_completed")
        )
        lines.append(f"  {'retried':<14}{delayed['accesses']} accesses in {delayed['attempts']} attempts: {became}")
    return lines


def _traffic_lines(traffic: dict[str, Any]) -> list[str]:
    lines = [f"  {'CSR accesses':<14}{traffic['csr_accesses']} in {traffic['csr_attempts']} attempts"]
    if traffic["registers"]:
        lines.append(f"  {'registers':<14}{_listed(traffic['registers'])}")
    for title, (kind, burst) in zip(["DMA bursts"] + [""] * 9, traffic["bursts"].items(), strict=False):
        lines.append(f"  {title:<14}{kind} {burst['n']}: {burst['bytes']} bytes in {burst['pieces']} transactions")
    lines.append(f"  {'not told':<14}{_listed(traffic['unknown'])}")
    return lines


def _share(clocks: dict[str, Any], name: str) -> str:
    return f"{name} {clocks[name]} ({100 * clocks[name] / clocks['total']:.3g} %)"


def _distribution(values: dict[str, Any]) -> str:
    return f"{values['min']} to {values['max']}, median {values['median']:g}, mean {values['mean']:.4g}"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.3g} %"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
