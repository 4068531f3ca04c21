"""Options that several subcommands share."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pcitrace.run import Bus, Run, open

__all__ = ["add_capture", "add_json", "add_strict", "choose_buses", "open_run", "positive", "print_json"]


def positive(text: str) -> float:
    """Argument type: a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def add_capture(parser: argparse.ArgumentParser) -> None:
    """Add the file, and what may have to be said about it."""
    parser.add_argument("file", metavar="FILE", help="capture file, or run folder")
    parser.add_argument("--bus", metavar="NAME", help="only this bus (default: all that are complete)")
    parser.add_argument("--wiring", metavar="W.toml", help="which channel is which line, over what the names say")
    parser.add_argument("--rate", metavar="HZ", type=positive, help="sampling rate, if the file has none: 100e6")
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


def open_run(args: argparse.Namespace) -> Run:
    """Open what the arguments name, as they say."""
    with _remarks_on_stderr():
        return open(
            args.file,
            wiring=args.wiring,
            rate_hz=args.rate,
            clock_mhz=args.clock_mhz,
            recover_clock=args.recover_clock,
        )


@contextmanager
def _remarks_on_stderr() -> Iterator[None]:
    """Keep standard output for our tables: wellen prints remarks there on some nets of FST files."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def choose_buses(run: Run, name: str | None) -> list[Bus]:
    """The bus called `name`, or all; WiringError if there is none."""
    if name is not None:
        return [run[name]]
    return list(run.buses.values()) or [run.bus]


def print_json(value: Any) -> None:
    """Print as JSON; what is not a number is null."""
    print(json.dumps(value, indent=2, allow_nan=False, default=str))
