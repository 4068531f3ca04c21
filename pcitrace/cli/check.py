"""``pcitrace check``: the rules of the bus, each of them kept, broken, or not evaluated."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from pcitrace.cli.options import add_capture, add_grants, add_json, add_strict, choose_buses, open_run, print_json

if TYPE_CHECKING:
    from pcitrace.instrument.rules import Result

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser, optional=True)
    parser.add_argument("--rules", metavar="M,T07", help="only these rules: ids, or what ids begin with")
    parser.add_argument("--ignore", metavar="M10,M12", default="", help="without these rules")
    parser.add_argument("--masks", metavar="BENCH.toml", type=Path, help="rules that count on this bench")
    parser.add_argument(
        "--limits",
        metavar="MHZ",
        type=int,
        choices=(33, 66),
        help="CLK keeps the limits of 33 or 66 MHz (default: by its period)",
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
    from pcitrace.instrument.rules import State, select

    if args.explain is not None:
        return _explain(args.explain)
    if args.file is None:
        raise argparse.ArgumentError(None, "name a capture FILE, or a rule with --explain")
    masks = select(_listed(args.rules) if args.rules is not None else None, _listed(args.ignore), args.masks)
    results = {
        bus.name: check(bus, masks, bus_mhz=args.limits, grants=check_grants(args.grant, bus.lines))
        for bus in choose_buses(open_run(args), args.bus)
    }
    if args.json:
        print_json({name: {"rules": [one.as_dict() for one in found]} for name, found in results.items()})
    else:
        print("\n\n".join("\n".join([f"bus {name}", *_lines(found)]) for name, found in results.items()))
    broken = [one for found in results.values() for one in found if one.state is State.VIOLATED]
    if args.strict and broken:
        print(f"pcitrace: {args.file}: {len(broken)} rules are broken (--strict)", file=sys.stderr)
        return 1
    return 0


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _explain(wanted: str) -> int:
    from pcitrace.instrument.rules import catalogue, select

    chosen = select(None if wanted == "all" else [wanted]).rules
    for id, rule in catalogue().items():
        if id in chosen:
            print(f"{id}  {textwrap.fill(rule.sentence, 94, subsequent_indent='     ')}")
            print(f"     PCI 2.3, {rule.section}; needs {' '.join(rule.needs)}")
            if rule.note:
                print(textwrap.fill(rule.note, 99, initial_indent="     ", subsequent_indent="     "))
    return 0


def _lines(found: list[Result]) -> list[str]:
    """The broken rules, the first one to be broken first; then how many were kept, and what was not evaluated."""
    from pcitrace.instrument.rules import State

    broken = sorted((one for one in found if one.state is State.VIOLATED), key=lambda one: one.first[0].clk)
    lines = []
    for one in broken:
        lines.append(f"  {one.rule.id}  {one.count} x  {one.rule.sentence}")
        for place in one.first[:_SHOWN]:
            who = " -> ".join(filter(None, (place.initiator, place.target)))
            number = "" if place.transaction is None else f"  transaction {place.transaction}"
            lines.append(f"       {place.time_us:12.3f} us  clock {place.clk}{number}{f'  {who}' if who else ''}")
            lines.append(f"                        {place.seen}")
        for what, counts in (("initiators", one.initiators), ("targets", one.targets)):
            if len(counts) > 1:
                lines.append(f"       {what}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    kept = [one.rule.id for one in found if one.state is State.OK]
    lines.append(f"  kept           {len(kept)} of {len(found)} rules" + ("" if broken else ", none is broken"))
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.reason is not None:
            reasons.setdefault(one.reason, []).append(one.rule.id)
    for reason, ids in reasons.items():
        text = f"{' '.join(ids)}: {reason}"
        lines.append(textwrap.fill(text, 98, initial_indent="  not evaluated  ", subsequent_indent=" " * 17))
    return lines
