"""``pcitrace decode``: the transactions of a capture, written as they come. Imports neither numpy nor pandas."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcitrace.cli.choice import add_choice, choice, tell_why_none
from pcitrace.cli.options import (
    add_capture,
    add_json,
    add_rules,
    add_strict,
    choose_buses,
    masks_of,
    open_run,
    print_json,
)
from pcitrace.cli.tables import output
from pcitrace.decode import describe_problems
from pcitrace.errors import WiringError
from pcitrace.printable import printable

if TYPE_CHECKING:
    from pcitrace.instrument.conditions import Condition
    from pcitrace.instrument.rules import Masks
    from pcitrace.run import Bus

HERE = Path("-")
"""A table that is written to standard output."""

_EPILOG = """\
examples:
  pcitrace decode capture.sr | head                        the first transactions, as CSV
  pcitrace decode capture.sr -o t.parquet                  all of them, compact
  pcitrace decode bus.vcd.gz -o t.csv --data-phases d.csv  and every data phase
  pcitrace decode state.csv --clock-mhz 33.33 -o t.csv     the analyser was clocked by the bus
  pcitrace decode bus.vcd.gz --where 'command == config_write'
  pcitrace decode bus.vcd.gz --problems -                  what was wrong, instead of the transactions
  pcitrace decode bus.vcd.gz --problems - --rules all      by all rules of the bus (`pcitrace check`)

The columns are explained in the table reference of the documentation.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=output, help="transactions: .csv, .parquet or .jsonl (default: CSV here)"
    )
    parser.add_argument("--data-phases", metavar="OUT", type=output, help="data phases, likewise")
    parser.add_argument(
        "--problems", metavar="OUT", type=output_or_here, help="problems, likewise; - for here, instead of transactions"
    )
    parser.add_argument("--events", metavar="OUT", type=output, help="changes of INTA#-INTD# and LOCK#, likewise")
    add_choice(parser)
    add_rules(parser)
    add_strict(parser)
    add_json(parser, "with -o: print the summary as JSON; without: print the transactions as JSON lines")
    parser.epilog = _EPILOG


def output_or_here(text: str) -> Path:
    """Argument type: a file to write, or standard output."""
    return HERE if text == "-" else output(text)


def run(args: argparse.Namespace) -> int:
    """Decode, write, and say in a line a bus what was found."""
    _check_outputs(args)
    from pcitrace.instrument.stream import TRANSACTIONS

    condition = choice(args, TRANSACTIONS)
    judged = args.rules is not None or args.ignore or args.masks is not None
    if (condition is not None or judged) and args.events is not None:
        raise argparse.ArgumentError(
            None,
            "--events are no transactions, which --where chooses, and no rule judges them; write them by themselves",
        )
    buses = choose_buses(open_run(args), args.bus)
    if len({id(bus.capture) for bus in buses}) > 1:
        names = ", ".join(bus.name for bus in buses)
        raise WiringError(f"{args.file}: the buses {names} are in several captures; name one with --bus")
    with tempfile.TemporaryDirectory(prefix="pcitrace-") as folder:
        here = Path(folder) / ("table.jsonl" if args.json else "table.csv")
        other = Path(folder) / "transactions.csv"
        problems = here if args.problems == HERE else args.problems
        transactions = args.output or (other if problems is here else here)
        files = {"transactions": transactions, "data_phases": args.data_phases, "problems": problems}
        if condition is None and not judged:
            specs = [bus.spec for bus in buses]
            summary = buses[0].capture.decoder.write(specs, **files, events=args.events)
        else:
            summary = _chosen(buses, condition, files, masks_of(args) if judged else None)
        if here in (transactions, problems):
            with here.open("rb") as file:
                sys.stdout.flush()
                shutil.copyfileobj(file, sys.stdout.buffer)
        elif args.output is not None:
            _show(summary, args)
    return _strict(summary) if args.strict else 0


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse to write two tables into one file, or one over the capture."""
    outputs = {
        "-o": args.output,
        "--data-phases": args.data_phases,
        "--problems": None if args.problems == HERE else args.problems,
        "--events": args.events,
    }
    taken = {Path(args.file).resolve(): "the capture"}
    for option, path in outputs.items():
        other = option if path is None else taken.setdefault(path.resolve(), option)
        if other != option:
            raise argparse.ArgumentError(None, f"{option} {path} is {other} too; give it a name of its own")


def _chosen(
    buses: list[Bus],
    condition: Condition | None,
    files: dict[str, Path],
    masks: Masks | None,
) -> dict[str, Any]:
    """The same with what fulfils a condition only, or with what was wrong by the rules."""
    from pcitrace.instrument.chosen import write
    from pcitrace.instrument.stream import Choice

    choice = Choice(condition)
    found = write(buses, choice, files, masks)
    tell_why_none(choice)
    return {name: vars(bus) for name, bus in found.items()}


def _show(summary: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        print_json({name: {k: v for k, v in bus.items() if k != "first_problem"} for name, bus in summary.items()})
        return
    for name, bus in summary.items():
        found = f"{bus['transactions']} transactions, {bus['problems']} problems"
        print(f"bus {printable(name)}: {found} -> {args.output}")


def _strict(summary: dict[str, Any]) -> int:
    bad = {name: bus for name, bus in summary.items() if bus["problems"]}
    for name, bus in bad.items():
        said = describe_problems(bus["first_problem"], bus["problems"])
        print(f"pcitrace: bus {printable(name)}: {said} (--strict)", file=sys.stderr)
    return 1 if bad else 0
