"""``pcitrace diff``: two captures of the same thing, aligned by what happens."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from pcitrace.analysed import open
from pcitrace.cli.options import add_capture, add_json, open_run, positive, print_json, raw, read_as, whole
from pcitrace.printable import printable
from pcitrace.run import Bus

_EPILOG = """\
examples:
  pcitrace diff before.sr after.sr
  pcitrace diff simulation.vcd silicon.sr --ignore-time          an FPGA core and its test bench
  pcitrace diff a.sr b.sr --mask 0xe8001000-0xe80010ff           without the registers that count
  pcitrace diff a.bin b.bin --format binary --channels CLK,FRAME#,IRDY#,TRDY# --rate 100e6 --other-format binary

Transactions go together by command, address and initiator. Exit status: 0 equal, 1 different, 3 not to be compared.
"""
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument("other", metavar="OTHER", help="the capture it is compared with")
    parser.add_argument("--other-bus", metavar="NAME", help="its bus, if it has several or another name")
    parser.add_argument("--other-wiring", metavar="W.toml", help="its wiring (default: --wiring)")
    parser.add_argument("--other-format", choices=["binary"], help="it is raw samples, too")
    parser.add_argument("--other-channels", metavar="A,B,..", help="of its raw samples (default: --channels)")
    parser.add_argument("--other-unit-size", metavar="BYTES", type=whole, help="of its raw samples")
    parser.add_argument("--other-rate", metavar="HZ", type=positive, help="its sampling rate (default: --rate)")
    parser.add_argument(
        "--ignore-time",
        action="store_true",
        help="leave out waits, DEVSEL# speed, retries, ends and where disconnects cut",
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
    wiring = args.other_wiring or (None if Path(args.other).is_dir() else args.wiring)
    other = open(args.other, wiring=wiring, **_read_other_as(args))
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
            print(f"first: {_what(found.first)}")
            _show(found.first)
        for title, differences in (
            ("missing in the second", [{"a": row, "b": None} for row in found.missing]),
            ("inserted in the second", [{"a": None, "b": row} for row in found.inserted]),
            ("changed", found.changed),
        ):
            _list(title, differences)
    return 0 if found.equal else 1


def _read_other_as(args: argparse.Namespace) -> dict[str, Any]:
    """What the arguments say of how the other capture is read, as `open` takes it."""
    read = {**read_as(args), "rate_hz": args.other_rate or args.rate}
    channels = args.other_channels or args.channels
    if args.other_format is None:
        if args.other_channels is not None or args.other_unit_size is not None:
            raise argparse.ArgumentError(
                None, "--other-channels and --other-unit-size are of raw samples (--other-format binary)"
            )
        return read
    if channels is None:
        raise argparse.ArgumentError(None, "--other-format binary needs --other-channels, or --channels of both")
    return {**read, **raw(channels, args.other_unit_size)}


def _named(bus: Bus) -> str:
    return printable(f"{bus.capture.path}, bus {bus.name}")


def _list(title: str, differences: list[dict[str, Any]]) -> None:
    if not differences:
        return
    print(f"{title}:")
    for difference in differences[:_SHOWN]:
        if "what" in difference:
            print(f"  {_what(difference)}")
        _show(difference)
    if len(differences) > _SHOWN:
        print(f"  and {len(differences) - _SHOWN} more (--json has all)")


def _what(difference: dict[str, Any]) -> str:
    """What differs, with both values."""
    a, b = difference["a"], difference["b"]
    said = []
    for what in difference["what"]:
        if what == "data":
            said.append(_data(difference))
        elif what == "waits":
            said.append(f"waits {a['wait_clks']} -> {b['wait_clks']}")
        elif what == "devsel":
            said.append(f"DEVSEL# after {a['devsel_clks'] or 'no'} -> {b['devsel_clks'] or 'no'} clocks")
        elif what == "termination":
            said.append(f"{_words(a['termination'])} -> {_words(b['termination'])}")
        else:
            said.append(what)
    return ", ".join(said)


def _data(difference: dict[str, Any]) -> str:
    phase = difference.get("phase")
    if phase is None or phase["a"] is None or phase["b"] is None:
        return f"data phases {difference['a']['data_phases']} -> {difference['b']['data_phases']}"
    return f"data phase {phase['number']}: {_word(phase['a'])} -> {_word(phase['b'])}"


def _word(phase: dict[str, Any]) -> str:
    """Data of one phase, bytes that were not enabled as dots."""
    data, enables = phase["data"], phase["byte_enables"] or 0
    lanes = 8 if data >> 32 else 4
    return "".join(".." if enables >> lane & 1 else f"{data >> 8 * lane & 0xFF:02x}" for lane in reversed(range(lanes)))


def _words(name: str | None) -> str:
    return "unknown" if name is None else name.replace("_", " ")


def _show(difference: dict[str, Any]) -> None:
    for sign, row in (("-", difference["a"]), ("+", difference["b"])):
        if row is not None:
            place = row["address"]
            address = "" if place is None else f" {place:08x}" if place < 1 << 32 else f" {place:016x}"
            what = "transaction" if row["command_name"] is None else _words(row["command_name"])
            waits = "1 wait" if row["wait_clks"] == 1 else f"{row['wait_clks']} waits"
            who = row["initiator"] or ""
            print(
                f"  {sign}{row['start_us']:14.3f} us #{row['transaction']:<7} {who:<6} {what}{address}"
                f"  {row['bytes']} bytes  {waits}  {_words(row['termination'])}"
            )
