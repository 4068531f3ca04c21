"""Options that several subcommands share."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcitrace.analysed import AnalysedRun, open
from pcitrace.printable import printable
from pcitrace.run import Bus, Run

if TYPE_CHECKING:
    from pcitrace.instrument.rules import Masks

__all__ = [
    "add_capture",
    "add_grants",
    "add_json",
    "add_rules",
    "add_strict",
    "choose_buses",
    "counting",
    "masks_of",
    "open_run",
    "positive",
    "print_json",
    "print_notes",
    "read_as",
    "whole",
]


_MOST_THREADS = 1024
"""More than any machine runs at once; each takes memory of its own."""


def positive(text: str) -> float:
    """Argument type: a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def whole(text: str) -> int:
    """Argument type: a whole number, 0 or more, of at most nine digits."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    if len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text} is too large: nine digits at most")
    return int(text)


def counting(text: str) -> int:
    """Argument type: a whole number, 1 or more."""
    if whole(text) == 0:
        raise argparse.ArgumentTypeError("0 is too few: at least 1 is needed")
    return int(text)


def _threads(text: str) -> int:
    if whole(text) > _MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text} is too many: {_MOST_THREADS} at most")
    return int(text)


def add_capture(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """Add the file, and what may have to be said about it."""
    parser.add_argument("file", metavar="FILE", nargs="?" if optional else None, help="capture file, or run folder")
    parser.add_argument("--bus", metavar="NAME", help="only this bus (default: all that are complete)")
    parser.add_argument("--wiring", metavar="W.toml", help="which channel is which line, over what the names say")
    parser.add_argument("--rate", metavar="HZ", type=positive, help="sampling rate, if the file has none: 100e6")
    parser.add_argument(
        "--threads", metavar="N", type=_threads, default=0, help="decode on N threads (default: all cores)"
    )
    parser.add_argument("--format", choices=["binary"], help="raw samples; FILE may be a pipe or - then")
    parser.add_argument("--channels", metavar="A,B,..", help="of raw samples: names from bit 0 on")
    parser.add_argument("--unit-size", metavar="BYTES", type=whole, help="of raw samples (default: as channels need)")
    parser.add_argument("--timescale", metavar="UNIT", help="time unit of a VCD that states none: 1ns")
    clock = parser.add_mutually_exclusive_group()
    clock.add_argument(
        "--clock-mhz", metavar="MHZ", type=positive, help="state mode: every sample is one clock of this frequency"
    )
    clock.add_argument(
        "--recover-clock", action="store_true", help="recover CLK from noisy samples (at least 6 samples a clock)"
    )


def add_strict(parser: argparse.ArgumentParser) -> None:
    """Add --strict."""
    parser.add_argument("--strict", action="store_true", help="exit with 1 if there are problems on the bus")


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help=what)


def add_grants(parser: argparse.ArgumentParser) -> None:
    """Add --grant."""
    parser.add_argument(
        "--grant",
        metavar="NAME=GNT2#",
        action="append",
        default=[],
        help="name the initiator with this GNT#; several may be given (default: told by what they do)",
    )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add which rules count."""
    parser.add_argument("--rules", metavar="M,T07", help="only these rules: ids, what ids begin with, or all")
    parser.add_argument("--ignore", metavar="M10,M12", default="", help="without these rules")
    parser.add_argument("--masks", metavar="BENCH.toml", type=Path, help="rules that count on this bench")


def masks_of(args: argparse.Namespace) -> Masks:
    """The rules that the arguments choose."""
    from pcitrace.instrument.rules import select

    def listed(text: str) -> list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]

    if args.rules is not None and not listed(args.rules):
        raise argparse.ArgumentError(None, "--rules names no rule; leave it out for all")
    return select(listed(args.rules) if args.rules is not None else None, listed(args.ignore), args.masks)


def open_run(args: argparse.Namespace) -> AnalysedRun:
    """Open what the arguments name, as they say."""
    if (args.format is None) != (args.channels is None):
        raise argparse.ArgumentError(None, "raw samples need both --format binary and --channels")
    if args.file == "-" and args.format is None:
        raise argparse.ArgumentError(
            None, "- is standard input, for raw samples: say --format binary --channels A,B,.. --rate HZ"
        )
    if args.unit_size is not None and args.format is None:
        raise argparse.ArgumentError(None, "--unit-size is of raw samples (--format binary)")
    args.opened = open(
        args.file,
        wiring=args.wiring,
        **read_as(args),
        **(raw(args.channels, args.unit_size) if args.channels is not None else {}),
    )
    run: AnalysedRun = args.opened
    return run


def read_as(args: argparse.Namespace) -> dict[str, Any]:
    """What the arguments say of how any capture is read, as `open` takes it."""
    return {
        "rate_hz": args.rate,
        "clock_mhz": args.clock_mhz,
        "recover_clock": args.recover_clock,
        "threads": args.threads,
        "timescale": args.timescale,
    }


def raw(channels: str, unit_size: int | None) -> dict[str, Any]:
    """What arguments say of raw samples, as `open` takes it."""
    if unit_size is not None and unit_size < 1:
        raise argparse.ArgumentError(None, "a sample has a byte at least")
    return {"channels": channels.split(","), "unit_size": unit_size}


def print_notes(args: argparse.Namespace) -> None:
    """Say what had to be settled to read the captures that were opened."""
    for capture in args.opened.captures if "opened" in args else ():
        for note in capture.notes:
            print(f"pcitrace: {printable(str(capture.path))}: {printable(note)}", file=sys.stderr)


def choose_buses(run: Run, name: str | None) -> list[Bus]:
    """The bus called `name`, or all; WiringError if there is none."""
    if name is not None:
        return [run[name]]
    return list(run.buses.values()) or [run.bus]


def print_json(value: Any) -> None:
    """Print as JSON; what is not a number is null."""
    print(json.dumps(value, indent=2, allow_nan=False, default=str))
