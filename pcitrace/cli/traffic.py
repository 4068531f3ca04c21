"""What ``pcitrace bursts`` and ``pcitrace csr`` share: the traffic of the buses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pcitrace.cli.options import choose_buses, print_json
from pcitrace.run import printable

if TYPE_CHECKING:
    from pcitrace.run import Run
    from pcitrace.traffic import Traffic

__all__ = ["add_profile", "of_buses", "show"]


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add --profile."""
    parser.add_argument(
        "--profile", metavar="NIC", help="NIC profile: a name or a .toml (default: run.toml, or generic)"
    )


def of_buses(run: Run, args: argparse.Namespace) -> dict[str, Traffic]:
    """The traffic of the buses that were asked for; with frames where both hosts are there."""
    from pcitrace import analysis

    names = [bus.name for bus in choose_buses(run, args.bus)]
    if run.folder is not None:
        hosts = analysis.frames(run, profile=args.profile).hosts
        return {name: hosts[name] for name in names}
    return {name: analysis.traffic(run, name, profile=args.profile) for name in names}


def show(found: Mapping[str, Traffic], args: argparse.Namespace, counts: Mapping[str, str]) -> None:
    """Say what was found, and what could not be told."""
    for name, traffic in found.items():
        for finding in traffic.findings:
            print(f"pcitrace: finding: {printable(name)}: {printable(str(finding))}", file=sys.stderr)
    if args.output is None:
        return
    if args.json:
        print_json({name: {"summary": counts[name], "unknown": traffic.unknown} for name, traffic in found.items()})
        return
    for name, traffic in found.items():
        unknown = "".join(f"; {count} transactions unknown: {reason}" for reason, count in traffic.unknown.items())
        print(f"bus {printable(name)}: {counts[name]}{unknown} -> {args.output}")
