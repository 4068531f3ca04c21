"""``pcitrace model``: constants of card, bus and switch for other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pcitrace.cli.options import whole
from pcitrace.errors import PciTraceError

_EPILOG = """\
examples:
  pcitrace model DIRECT SWITCH -o model.json        what the runs tell, each with sigma and source
  pcitrace model model.json --inet network.ini      the same for OMNeT++ with INET
  pcitrace model model.json --simulate out          two hosts and the switch in SimPy: out/direct, out/switch
"""

_SIZES = range(64, 1501, 4)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="run folders as for `pcitrace network`, or one model.json"
    )
    parser.add_argument("-o", "--output", metavar="MODEL.json", help="write the constants")
    parser.add_argument("--inet", metavar="FILE.ini", help="write them for OMNeT++ with INET")
    parser.add_argument(
        "--simulate", metavar="FOLDER", help="simulate ping-pongs with them, as run folders (needs simpy)"
    )
    parser.add_argument("--seed", type=whole, default=1, help="of the simulation (default: 1)")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Collect, write, simulate."""
    from pcitrace.analysed import bus_constants
    from pcitrace.network import constants, of_paths
    from pcitrace.network.constants import bench, render

    if len(args.runs) == 1 and args.runs[0].endswith(".json"):
        found = constants.load(args.runs[0])
    else:
        network = of_paths(args.runs, bus_constants=bus_constants)
        found = constants.of_results(network.results)
        for finding in network.findings:
            print(f"pcitrace: finding: {finding}", file=sys.stderr)
    for name, one in found.values.items():
        shown = f"unknown: {one.source}" if one.value is None else f"{one.value:.8g} +- {one.sigma or 0:.2g}"
        print(f"{name:<24}{shown}")
    if args.output is not None:
        constants.write(found, args.output)
    if args.inet is not None:
        Path(args.inet).write_text(render.inet_ini(found), encoding="utf-8")
    if args.simulate is not None:
        try:
            for name, switch in (("direct", False), ("switch", True)):
                bench.simulate(found, Path(args.simulate) / name, sizes=_SIZES, switch=switch, seed=args.seed)
        except ImportError as error:
            raise PciTraceError(f"the simulation needs simpy: pip install 'pcitrace[network]' ({error})") from error
    return 0
