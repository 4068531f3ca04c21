"""``pcitrace check``: the rules of the bus, each of them kept, broken, or not evaluated."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING

from pcitrace.cli.options import (
    add_capture,
    add_grants,
    add_json,
    add_rules,
    add_strict,
    choose_buses,
    masks_of,
    open_run,
    positive,
    print_json,
    whole,
)
from pcitrace.cli.text import filled
from pcitrace.printable import printable

if TYPE_CHECKING:
    from pcitrace.instrument.judged import Found

_EPILOG = """\
examples:
  pcitrace check bus.vcd.gz
  pcitrace check bus.vcd.gz --rules M,T --ignore M10,M12     rules of initiators and targets, without two of them
  pcitrace check bus.vcd.gz --masks bench.toml --strict      what this bench is to keep; exit 1 where it does not
  pcitrace check --explain M07                               a rule in words, with its section of the specification

A file of masks:
  ignore = ["M10"]
  [[except]]
  rule = "M12"
  initiator = "GNT1#"

Rules rest until the first idle clock, after a gap and during RST#. What a missing line makes unknowable is not
evaluated, and the line is named.
"""

_SHOWN = 3
"""Places of a rule, and causes of a kind, that are shown; all are counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser, optional=True)
    add_rules(parser)
    parser.add_argument(
        "--limits",
        metavar="MHZ",
        type=int,
        choices=(33, 66),
        help="CLK keeps the limits of 33 or 66 MHz (default: by its period)",
    )
    parser.add_argument(
        "--repeat-within",
        metavar="N",
        type=whole,
        default=16,
        help="M23: a retried access was given up after N other transactions of its initiator (default: 16)",
    )
    parser.add_argument(
        "--clock-tolerance",
        metavar="PPM",
        type=positive,
        default=1000.0,
        help="E01: how much shorter than its limit CLK may be (default: 1000)",
    )
    parser.add_argument("--explain", metavar="RULE", help="say what a rule means, and exit; `all` for all")
    add_grants(parser)
    add_strict(parser)
    add_json(parser, "print JSON")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Judge, and show what was found."""
    from pcitrace.instrument.judged import check
    from pcitrace.instrument.names import check_grants
    from pcitrace.instrument.rules import Parameters, State

    if args.explain is not None:
        return _explain(args.explain)
    if args.file is None:
        raise argparse.ArgumentError(None, "name a capture FILE, or a rule with --explain")
    masks = masks_of(args)
    parameters = Parameters(args.repeat_within, args.clock_tolerance * 1e-6)
    results = {}
    for bus in choose_buses(open_run(args), args.bus):
        grants = check_grants(args.grant, bus.lines)
        results[bus.name] = check(bus, masks, bus_mhz=args.limits, grants=grants, parameters=parameters)
    if args.json:
        print_json(
            {
                name: {
                    "causes": [one.as_dict() for one in found.causes],
                    "rules": [one.as_dict() for one in found],
                }
                for name, found in results.items()
            }
        )
    else:
        print("\n\n".join("\n".join([f"bus {printable(name)}", *_lines(found)]) for name, found in results.items()))
    broken = sum(one.state is State.VIOLATED for found in results.values() for one in found)
    causes = sum(len(found.causes) for found in results.values())
    if args.strict and (broken or causes):
        print(f"pcitrace: {args.file}: {broken} rules are broken, {causes} causes found (--strict)", file=sys.stderr)
        return 1
    return 0


def _explain(wanted: str) -> int:
    from pcitrace.instrument.rules import catalogue, select

    chosen = select(None if wanted == "all" else [wanted]).rules
    for id, rule in catalogue().items():
        if id in chosen:
            print(filled(f"{id}  {rule.sentence}", 0, 5))
            print(filled(f"PCI 2.3, {rule.section}; needs {' '.join(rule.needs)}", 5, 5))
            if rule.note:
                print(filled(rule.note, 5, 5))
    return 0


def _lines(found: Found) -> list[str]:
    """Causes and broken rules, what was first before the rest; how many were kept, and what was not evaluated."""
    from pcitrace.instrument.rules import State

    broken = sorted((one for one in found if one.state is State.VIOLATED), key=lambda one: one.first[0].clk)
    causes = list(found.causes)
    of_kind = Counter(cause.kind for cause in causes)
    shown: Counter[str] = Counter()
    lines = []

    def tell(before_us: float) -> None:
        while causes and causes[0].time_us <= before_us:
            cause = causes.pop(0)
            shown[cause.kind] += 1
            if shown[cause.kind] > _SHOWN:
                continue
            lines.append(filled(f"!    {cause.text}", 2, 7))
            lines.append(f"       {cause.time_us:12.3f} us  {cause.count} x")
            if shown[cause.kind] == _SHOWN < of_kind[cause.kind]:
                lines.append(f"       and {of_kind[cause.kind] - _SHOWN} more like this (--json has all)")

    for one in broken:
        tell(one.first[0].time_us)
        text = f"{one.rule.id}  {one.count} x  {one.rule.sentence}"
        lines.append(filled(text, 2, 7))
        for place in one.first[:_SHOWN]:
            who = " -> ".join(filter(None, (place.initiator, place.target)))
            number = "" if place.transaction is None else f"  transaction {place.transaction}"
            lines.append(f"       {place.time_us:12.3f} us  clock {place.clk}{number}{f'  {who}' if who else ''}")
            lines.append(filled(place.seen, 24, 24))
        for what, counts in (("initiators", one.initiators), ("targets", one.targets)):
            if len(counts) > 1:
                # Not all are kept of a rule that is broken very often.
                some = "" if one.count <= one.kept else f" of the first {one.kept}"
                text = f"{what}{some}: " + ", ".join(f"{name} {count}" for name, count in counts.items())
                lines.append(filled(text, 7, 9))
    tell(float("inf"))
    kept = [one.rule.id for one in found if one.state is State.OK]
    lines.append(f"  kept           {len(kept)} of {len(found)} rules" + ("" if broken else ", none is broken"))
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.reason is not None:
            reasons.setdefault(one.reason, []).append(one.rule.id)
    for reason, ids in reasons.items():
        text = f"not evaluated  {' '.join(ids)}: {reason}"
        lines.append(filled(text, 2, 17))
    return lines
