"""``pcitrace decode``: the transactions of a capture, written as they come. Imports neither numpy nor pandas."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from pcitrace.cli.options import add_capture, add_json, add_strict, choose_buses, open_run, print_json
from pcitrace.cli.tables import output
from pcitrace.decode import describe_problems
from pcitrace.errors import WiringError
from pcitrace.run import Bus

_EPILOG = """\
examples:
  pcitrace decode capture.sr | head                        the first transactions, as CSV
  pcitrace decode capture.sr -o t.parquet                  all of them, compact
  pcitrace decode bus.vcd.gz -o t.csv --data-phases d.csv  and every data phase
  pcitrace decode state.csv --clock-mhz 33.33 -o t.csv     the analyser was clocked by the bus

The columns are explained in the table reference of the documentation.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=output, help="transactions: .csv, .parquet or .jsonl (default: CSV here)"
    )
    parser.add_argument("--data-phases", metavar="OUT", type=output, help="data phases, likewise")
    parser.add_argument("--problems", metavar="OUT", type=output, help="problems, likewise")
    parser.add_argument("--events", metavar="OUT", type=output, help="changes of INTA#-INTD# and LOCK#, likewise")
    add_strict(parser)
    add_json(parser, "with -o: print the summary as JSON; without: print the transactions as JSON lines")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Decode, write, and say in a line a bus what was found."""
    _check_outputs(args)
    buses = choose_buses(open_run(args), args.bus)
    if len({id(bus.capture) for bus in buses}) > 1:
        names = ", ".join(bus.name for bus in buses)
        raise WiringError(f"{args.file}: the buses {names} are in several captures; name one with --bus")
    if args.output is not None:
        summary = _decode(buses, args, args.output)
        _show(summary, args)
    else:
        with tempfile.TemporaryDirectory(prefix="pcitrace-") as folder:
            path = Path(folder) / ("transactions.jsonl" if args.json else "transactions.csv")
            summary = _decode(buses, args, path)
            with path.open("rb") as file:
                sys.stdout.flush()
                shutil.copyfileobj(file, sys.stdout.buffer)
    return _strict(summary) if args.strict else 0


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse to write two tables into one file, or one over the capture."""
    outputs = {
        "-o": args.output,
        "--data-phases": args.data_phases,
        "--problems": args.problems,
        "--events": args.events,
    }
    taken = {Path(args.file).resolve(): "the capture"}
    for option, path in outputs.items():
        other = option if path is None else taken.setdefault(path.resolve(), option)
        if other != option:
            raise argparse.ArgumentError(None, f"{option} {path} is {other} too; give it a name of its own")


def _decode(buses: list[Bus], args: argparse.Namespace, output: Path) -> dict[str, Any]:
    return buses[0].capture.decoder.write(
        [bus.spec for bus in buses],
        transactions=output,
        data_phases=args.data_phases,
        problems=args.problems,
        events=args.events,
    )


def _show(summary: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        print_json({name: {**bus, "problems": len(bus["problems"])} for name, bus in summary.items()})
        return
    for name, bus in summary.items():
        print(f"bus {name}: {bus['transactions']} transactions, {len(bus['problems'])} problems -> {args.output}")


def _strict(summary: dict[str, Any]) -> int:
    bad = {name: bus["problems"] for name, bus in summary.items() if bus["problems"]}
    for name, problems in bad.items():
        print(f"pcitrace: bus {name}: {describe_problems(problems)} (--strict)", file=sys.stderr)
    return 1 if bad else 0
