"""``pcitrace stats``: what happened on the buses of a capture, counted."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pcitrace.cli.choice import add_choice, choice, tell_why_none
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
from pcitrace.cli.statslines import view_lines
from pcitrace.cli.text import filled, number
from pcitrace.cli.traffic import of_buses
from pcitrace.printable import printable
from pcitrace.run import format_duration

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
transactions; clocks, problems and arbitration are those of the whole capture. A retried access counts with all its
attempts where one of them is chosen.
"""

_TOP = 5
"""Rows of a view, unless --top says how many."""

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
        help="the N first rows of each view (default: 5), and the N longest waits",
    )
    parser.add_argument(
        "--by",
        choices=("clocks", "transactions", "bytes", "wait_clks", "retries"),
        default="clocks",
        help="what counts most in the views (default: clocks)",
    )
    add_grants(parser)
    add_strict(parser)
    add_json(parser, "print JSON")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Count and print."""
    from pcitrace.instrument.names import check_grants
    from pcitrace.instrument.stream import TRANSACTIONS
    from pcitrace.stats import over_time, traffic_statistics, window_records

    opened = open_run(args)
    buses = choose_buses(opened, args.bus)
    condition = choice(args, TRANSACTIONS)
    # First: who decodes in windows has all of it, too, and a pipe is read once.
    windows = {bus.name: window_records(bus, args.window_us) for bus in buses if args.window_us is not None}
    result = {}
    for bus in buses:
        grants = check_grants(args.grant, bus.lines)
        result[bus.name] = _statistics(bus, grants, condition, args.by)
        if args.top is not None:
            result[bus.name]["top"] = result[bus.name]["views"]
    if args.profile is not None:
        for name, traffic in of_buses(opened, args).items():
            told = traffic_statistics(traffic)
            if name in result:
                result[name]["traffic"] = told
            else:
                # One of several agents: `pci GNT2#`.
                result[traffic.bus].setdefault("traffic_of", {})[name.removeprefix(f"{traffic.bus} ")] = told
    for name, rows in windows.items():
        result[name]["windows"] = rows
    if not windows and not args.json:
        for bus in buses:
            result[bus.name]["over_time"] = over_time(bus)
    if args.json:
        print_json(result)
    else:
        shown = {name: "\n".join(_lines(told, args.top)) for name, told in result.items()}
        print("\n\n".join(f"bus {printable(name)}\n{lines}" for name, lines in shown.items()))
    found = sum(statistics["problems"] for statistics in result.values())
    if args.strict and found:
        print(f"pcitrace: {args.file}: {found} problems (--strict)", file=sys.stderr)
        return 1
    return 0


def _statistics(bus: Bus, grants: dict[str, str], condition: Condition | None, by: str) -> dict[str, Any]:
    """All that is counted of a bus, of the transactions that fulfil the condition."""
    from pcitrace.decode import to_pandas
    from pcitrace.instrument.burstlengths import burst_lengths
    from pcitrace.instrument.latencies import latencies
    from pcitrace.instrument.stream import Choice
    from pcitrace.instrument.views import named, terminations, views
    from pcitrace.stats import bus_statistics

    table = named(bus, bus.arrow("transactions"), grants)
    chosen = None
    if condition is not None:
        choice = Choice(condition)
        choice.note(table, (chosen := condition.filter(table)).num_rows > 0)
        tell_why_none(choice)
        table = chosen
    counted = bus_statistics(bus, None if chosen is None else to_pandas(chosen))
    return (
        counted
        | latencies(bus, grants, chosen)
        | {
            "views": views(table, counted["clocks"], by),
            "terminations_by": terminations(table),
            "burst_lengths": burst_lengths(table),
        }
    )


def _lines(statistics: dict[str, Any], top: int | None) -> list[str]:
    clocks = statistics["clocks"]
    span = format_duration((clocks["end_us"] - clocks["start_us"]) * 1e-6)
    bound = " at most (C/BE# not captured)" if statistics["throughput_is_upper_bound"] else ""
    lines = [
        f"{'window':<14}{clocks['start_us']:.3f} to {clocks['end_us']:.3f} us ({span}), {clocks['total']} clocks",
        f"{'clocks':<14}" + ", ".join(_share(clocks, name) for name in _CLASSES if clocks[name]),
    ]
    if clocks["wait"]:
        lines.append(f"{'of the waits':<14}" + ", ".join(_share(clocks, name) for name in _WAITS if clocks[name]))
    lines += [
        f"{'occupancy':<14}{_percent(clocks['occupancy'])}, with data {_percent(clocks['data_occupancy'])}; "
        f"efficiency {_percent(clocks['efficiency'])}",
        f"{'throughput':<14}{number(clocks['throughput_mb_s'])} MB/s{bound}, {clocks['bytes']} bytes",
        f"{'transactions':<14}{statistics['transactions']}",
    ]
    for title, key in (("commands", "commands"), ("ended by", "terminations"), ("initiators", "initiators")):
        lines.append(f"{title:<14}{_listed(statistics[key])}")
    for title, key, unit in (
        ("bursts", "burst_data_phases", "data phases"),
        ("", "burst_bytes", f"bytes{bound}"),
        ("first data", "first_data_clks", "clocks after the address phase"),
    ):
        if statistics[key] is not None:
            lines.append(f"{title:<14}{_distribution(statistics[key])} {unit}")
    lines.append(f"{'retries':<14}{_retries(statistics)}")
    lines = [filled(line, 2, 16) for line in lines]
    lines += view_lines(statistics, _TOP if top is None else top, top is not None)
    lines.append(filled(f"{'problems':<14}{_listed(statistics['problem_kinds'])}", 2, 16))
    if "traffic" in statistics:
        lines += [filled(line, 2, 16) for line in _traffic_lines(statistics["traffic"])]
    for agent, traffic in statistics.get("traffic_of", {}).items():
        lines += [filled(line, 2, 16) for line in [f"{'traffic of':<14}{printable(agent)}", *_traffic_lines(traffic)]]
    return lines


def _retries(statistics: dict[str, Any]) -> str:
    from pcitrace.stats import why_no_retries

    if (missing := why_no_retries(statistics["clocks"])) is not None:
        return f"unknown: {missing}"
    rate = statistics["retry_rate"]
    return (
        f"{_percent(rate['per_attempt'])} of the attempts, {number(rate['per_completed'])} a transaction that moved "
        f"data, {number(rate['per_second'])} a second"
    )


def _traffic_lines(traffic: dict[str, Any]) -> list[str]:
    lines = [f"{'CSR accesses':<14}{traffic['csr_accesses']} in {traffic['csr_attempts']} attempts"]
    if traffic["registers"]:
        lines.append(f"{'registers':<14}{_listed(traffic['registers'])}")
    for title, (kind, burst) in zip(["DMA bursts"] + [""] * 9, traffic["bursts"].items(), strict=False):
        lines.append(f"{title:<14}{kind} {burst['n']}: {burst['bytes']} bytes in {burst['pieces']} transactions")
    lines.append(f"{'not told':<14}{_listed(traffic['unknown'])}")
    return lines


def _share(clocks: dict[str, Any], name: str) -> str:
    return f"{name} {clocks[name]} ({100 * clocks[name] / clocks['total']:.3g} %)"


def _distribution(values: dict[str, Any]) -> str:
    return f"{values['min']} to {values['max']}, median {values['median']:g}, mean {number(values['mean'])}"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.3g} %"
