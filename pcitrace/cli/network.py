"""``pcitrace network``: lines, histograms, loss and buffers from frame logs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pcitrace.cli.options import add_json, print_json
from pcitrace.errors import PciTraceError

if TYPE_CHECKING:
    from pcitrace.network import Result

_EPILOG = """\
examples:
  pcitrace network RUN                       the fits, each number with its uncertainty
  pcitrace network DIRECT SWITCH             what the switch takes: both paths in one fit
  pcitrace network SWEEP -o report.html      a folder of runs is one sweep; the page has the curves
  pcitrace network iperf3.json ping.txt      what other programs measured

FOLDER is a run folder, a folder that framegen wrote, or a folder of such.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths", metavar="FOLDER|FILE", nargs="+", help="run folder, sweep, or another program's output"
    )
    parser.add_argument("-o", "--output", metavar="REPORT.html", help="write the page")
    parser.add_argument(
        "--clocks",
        choices=("hull", "midpoints"),
        default="hull",
        help="how clocks are compared: lines between both directions (default), or the papers' quickest midpoints",
    )
    add_json(parser, "print JSON")
    parser.epilog = _EPILOG


WIDEST, LONGEST = 8, 24
"""Columns and rows of a table that a terminal has room for."""


def _print_tables(result: Result) -> None:
    """Print small tables, and name those that JSON and page have."""
    others = []
    for name, table in result.all_tables.items():
        if table.shape[1] > WIDEST or len(table) > LONGEST:
            others.append(name)
            continue
        lines = table.to_string(index=False, na_rep="", float_format="{:.6g}".format).splitlines()
        print(f"  {name}:", *lines, sep="\n    ")
    if others:
        print(f"  tables beside (--json, -o): {', '.join(others)}")


def run(args: argparse.Namespace) -> int:
    """Analyse, print, write the page."""
    from pcitrace import network
    from pcitrace.analysed import buses

    bus_constants, bus_frames = buses()
    found = network.of_paths(args.paths, clock_method=args.clocks, bus_constants=bus_constants, bus_frames=bus_frames)
    if args.output is not None:
        try:
            from pcitrace.report import network as report
        except ImportError as error:
            raise PciTraceError(str(error)) from error
        report.write(found, args.output)
    if args.json:
        print_json(found.as_dict())
    else:
        for result in found.results:
            print(f"{result.kind} over {result.path}")
            for name, one in result.parameters.items():
                print(f"  {name:<22}{one}")
            _print_tables(result)
        if args.output is not None:
            print(f"-> {args.output}")
    for finding in found.findings:
        print(f"pcitrace: finding: {finding}", file=sys.stderr)
    return 0
