"""What ``pcitrace bursts``, ``csr``, ``frames`` and ``sql`` share: whose traffic is meant on each bus."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pcitrace import granted
from pcitrace.cli.options import choose_buses, print_json
from pcitrace.printable import printable

if TYPE_CHECKING:
    import pandas as pd

    from pcitrace.frames import Frames
    from pcitrace.run import Run
    from pcitrace.traffic import Traffic

__all__ = ["add_profile", "frames_of", "of_buses", "rows", "show"]


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add --profile."""
    parser.add_argument(
        "--profile", metavar="NIC", help="NIC profile: a name or a .toml (default: run.toml, or generic)"
    )


def of_buses(run: Run, args: argparse.Namespace) -> dict[str, Traffic]:
    """The traffic of the buses that were asked for; with frames where both hosts are there.

    Where several agents of a bare capture may be meant, each has its own: ``pci GNT2#``.
    """
    from pcitrace import analysis

    buses = choose_buses(run, args.bus)
    if run.folder is not None:
        hosts = analysis.frames(run, profile=args.profile).hosts
        return {bus.name: hosts[bus.name] for bus in buses}
    found = {}
    for bus in buses:
        agents, hosts_ = granted.agents(bus, args.grant)
        for line, name in agents.items():
            label = bus.name if len(agents) == 1 else f"{bus.name} {name}"
            found[label] = analysis.traffic(run, bus.name, profile=args.profile, nic_grant=line, host_grants=hosts_)
    return found


def frames_of(run: Run, args: argparse.Namespace) -> Frames:
    """The frames of a run; of a bare capture between the one NIC of each bus, which --grant or its traffic tells."""
    from pcitrace import analysis

    if run.folder is not None:
        return analysis.frames(run, profile=args.profile)
    buses = [bus.name for bus in choose_buses(run, args.bus)]
    return granted.frames(run, args.grant, buses=buses, profile=args.profile)


def rows(found: Mapping[str, Traffic], table: str) -> pd.DataFrame:
    """A table of all that was found, each row with whose it is.

    A row that may be of any agent of its bus, such as what the host reads of a card whose GNT# nothing tells, is there
    once, and has the name of the bus alone.
    """
    import pandas as pd

    parts = [getattr(traffic, table) for traffic in found.values()]
    named = [
        part.assign(bus=pd.Series(name, index=part.index, dtype=part["bus"].dtype))
        for name, part in zip(found, parts, strict=True)
    ]
    whole: pd.DataFrame = pd.concat(named, ignore_index=True)
    buses = whole["bus"].map({name: traffic.bus for name, traffic in found.items()})
    of_any = whole.assign(bus=buses)
    repeated = of_any.duplicated()
    whole["bus"] = whole["bus"].where(~of_any.duplicated(keep=False), buses).astype(whole["bus"].dtype)
    return whole[~repeated].reset_index(drop=True)


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
