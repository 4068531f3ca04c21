"""``pcitrace diff``: two captures of the same thing, aligned by what happens."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from pcitrace.analysed import open
from pcitrace.cli.options import add_capture, add_json, open_run, print_json
from pcitrace.run import Bus, printable

_EPILOG = """\
examples:
  pcitrace diff before.sr after.sr
  pcitrace diff simulation.vcd silicon.sr --ignore-time          an FPGA core and its test bench
  pcitrace diff a.sr b.sr --mask 0xe8001000-0xe80010ff           without the registers that count

Transactions go together by command, address and initiator. Exit status: 0 equal, 1 different, 3 not to be compared.
"""
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument("other", metavar="OTHER", help="the capture it is compared with")
    parser.add_argument("--other-bus", metavar="NAME", help="its bus, if it has several or another name")
    parser.add_argument("--other-wiring", metavar="W.toml", help="its wiring (default: --wiring)")
    parser.add_argument(
        "--ignore-time", action="store_true", help="leave out waits, DEVSEL# speed, retries and how transactions ended"
    )
    parser.add_argument(
        "--mask", metavar="FIRST-LAST", action="append", type=_range, default=[], help="addresses that are left out"
    )
    add_json(parser, "print JSON: equal, first, inserted, missing, changed")
    parser.epilog = _EPILOG


def _range(text: str) -> tuple[int, int]:
    """Argument type: the first and the last of some addresses."""
    found = re.fullmatch(r"(\w+)-(\w+)", text)
    try:
        first, last = (int(found[1], 0), int(found[2], 0)) if found else (int(text, 0), int(text, 0))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} are no addresses; write 0xe8001000-0xe8001fff") from None
    if not 0 <= first <= last < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins, or is no address")
    return first, last


def run(args: argparse.Namespace) -> int:
    """Compare, print; 1 if they differ."""
    from pcitrace.instrument.compare import compare

    opened = open_run(args)
    other = open(
        args.other,
        wiring=args.other_wiring or (None if Path(args.other).is_dir() else args.wiring),
        rate_hz=args.rate,
        clock_mhz=args.clock_mhz,
        recover_clock=args.recover_clock,
    )
    one = opened[args.bus] if args.bus else opened.bus
    name = args.other_bus or (args.bus if args.bus in other.buses else None)
    found = compare(one, other[name] if name else other.bus, ignore_time=args.ignore_time, masks=args.mask)
    if args.json:
        print_json(found.as_dict())
    elif found.equal:
        print(f"equal: {_named(one)} and {args.other}")
    else:
        print(f"{len(found.missing)} missing, {len(found.inserted)} inserted, {len(found.changed)} changed")
        if found.first is not None:
            print(f"first: {', '.join(found.first['what'])}")
            _show(found.first)
        for title, differences in (
            ("missing in the second", [{"a": row, "b": None} for row in found.missing]),
            ("inserted in the second", [{"a": None, "b": row} for row in found.inserted]),
            ("changed", found.changed),
        ):
            _list(title, differences)
    return 0 if found.equal else 1


def _named(bus: Bus) -> str:
    return printable(f"{bus.capture.path}, bus {bus.name}")


def _list(title: str, differences: list[dict[str, Any]]) -> None:
    if not differences:
        return
    print(f"{title}:")
    for difference in differences[:_SHOWN]:
        if "what" in difference:
            print(f"  {', '.join(difference['what'])}")
        _show(difference)
    if len(differences) > _SHOWN:
        print(f"  and {len(differences) - _SHOWN} more (--json has all)")


def _show(difference: dict[str, Any]) -> None:
    for sign, row in (("-", difference["a"]), ("+", difference["b"])):
        if row is not None:
            address = "" if row["address"] is None else f" {row['address']:08x}"
            who = row["initiator"] or ""
            what = row["command_name"] or "transaction"
            print(
                f"  {sign}{row['start_us']:14.3f} us #{row['transaction']:<7} {who:<6} {what}{address}"
                f"  {row['bytes']} bytes  {row['wait_clks']} waits  {row['termination']}"
            )
