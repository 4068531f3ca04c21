"""``pcitrace simulate``: a run folder from the simulated test bench."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Any

from pcitrace import runfolder
from pcitrace.cli.options import whole
from pcitrace.simulate import PRESETS, SimulationError, find_preset, simulate

_EPILOG = """\
examples:
  pcitrace simulate --list
  pcitrace simulate acenic-fig3.1 -o runs/fig3.1
  pcitrace simulate acenic-fig4.2a -o runs/long --set test.count=10000 --set analyser.wires=command
  pcitrace simulate acenic-fig3.1 -o runs/slower --set host.bus.memory_read_first_clks=12 --set link.loss=0.01

A key is a field of the bench by its dotted name (docs/simulate.md lists them all); `host.` stands for both hosts, `a.`
and `b.` for one. What the folder holds is marked as simulated; truth/ in it says what really happened.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("preset", metavar="PRESET", nargs="?", help="which bench; see --list")
    parser.add_argument("-o", "--output", metavar="RUN", help="the run folder; new or empty")
    parser.add_argument("--seed", metavar="N", type=whole, default=1, help="one seed, one run (default: 1)")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="values",
        action="extend",
        nargs="+",
        default=[],
        help="change fields of the bench",
    )
    parser.add_argument("--list", action="store_true", help="explain the presets, with their published figures")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Simulate, or list the presets."""
    if args.list:
        for preset in PRESETS.values():
            print(f"{preset.name}\n  {preset.title}")
            print(textwrap.fill(f"published: {preset.published}", 110, initial_indent="  ", subsequent_indent="    "))
        return 0
    if args.preset is None or args.output is None:
        print("pcitrace: simulate needs a PRESET and -o RUN; pcitrace simulate --list explains the presets",
              file=sys.stderr)  # fmt: skip
        return 2
    values = {}
    for item in args.values:
        name, equals, value = item.partition("=")
        if not equals:
            raise SimulationError(f"--set {item}: write KEY=VALUE, such as test.count=50")
        values[name.strip()] = value.strip()
    progress = _show if sys.stderr.isatty() else None
    folder = simulate(find_preset(args.preset), args.output, args.seed, values=values, progress=progress)
    if progress is not None:
        print("\r\033[K", end="", file=sys.stderr)
    print(f"{folder}: simulated run of {args.preset}, seed {args.seed}; truth in {folder / 'truth'}")
    described = runfolder.load(folder).run
    for number, capture in enumerate(described["captures"]):
        clocks_mhz = [host["clock_mhz"] for host in described["hosts"].values() if host["capture"] == number]
        print(f"  {_capture_line(capture, max(clocks_mhz))}")
    return 0


def _capture_line(capture: dict[str, Any], clock_mhz: float) -> str:
    """What an analyser needs for this capture: memory and rate."""
    samples = capture["samples"]
    if "rate_hz" not in capture:
        return f"{capture['file']}: {samples} samples, one a clock of {clock_mhz:g} MHz"
    rate_mhz = capture["rate_hz"] / 1e6
    each = rate_mhz / clock_mhz
    line = f"{capture['file']}: {samples} samples at {rate_mhz:g} MS/s ({samples / rate_mhz / 1e3:.2f} ms)"
    line += f", {each:.2f} samples a clock"
    return line if each >= 3 else f"{line}: too few, edges will be missed; take at least 3"


def _show(now_us: float) -> None:
    """Say on the terminal how far the bench is."""
    print(f"\rsimulated {now_us / 1e3:.1f} ms", end="", file=sys.stderr, flush=True)
