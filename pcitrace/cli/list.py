"""``pcitrace list``: a capture as lines for people. Neither numpy nor pandas unless rows are chosen or named."""

from __future__ import annotations

import argparse
import codecs
import os
import shutil
import sys
from typing import TYPE_CHECKING

from pcitrace.cli.choice import add_choice, choice, limits, tell_why_none
from pcitrace.cli.options import add_capture, add_rules, choose_buses, masks_of, open_run
from pcitrace.errors import ConditionError
from pcitrace.instrument.listing import Layer, Settings, lines
from pcitrace.instrument.stream import TRANSACTIONS, Choice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pcitrace.instrument.registers import Registers
    from pcitrace.run import Bus, Run

_EPILOG = """\
examples:
  pcitrace list capture.sr | less -R
  pcitrace list bus.vcd.gz --where 'target == "eth0"'        what goes to that device
  pcitrace list bus.vcd.gz --around 1.5ms --data all         what happened there, every data phase
  pcitrace list bus.vcd.gz --layer accesses                  retries and disconnects put together
  pcitrace list bus.vcd.gz --layer clocks --around 1.5ms,1us every clock there, with all lines
  pcitrace list bus.vcd.gz --profile i82558 --two-pass       registers by name, from the first line on

A line: time, initiator, command, address, data (bytes that were not enabled as dots), bytes moved, clocks without data,
how it ended. Lines that begin with ! say what was wrong, at its place: M07 and the like are rules of the bus, which
`pcitrace check --explain M07` explains. Targets are named as configuration accesses have
placed them until that line.
"""


CLOCKS = "clocks"
"""The layer of the clocks: a state listing, which shares nothing with the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    add_choice(parser)
    layers = [*map(str, Layer), CLOCKS]
    parser.add_argument("--layer", choices=layers, default="transactions", help="what one line is")
    parser.add_argument(
        "--time",
        choices=("absolute", "delta", "trigger"),
        default="absolute",
        help="times from the start of the capture, from the line before, or from the trigger",
    )
    parser.add_argument("--trigger", metavar="TIME", help="when that was, if run.toml does not say it: 1.5ms")
    parser.add_argument("--data", choices=("some", "all"), default="some", help="the first data phases, or all")
    parser.add_argument("--raw", action="store_true", help="each retry by itself")
    parser.add_argument("--two-pass", action="store_true", help="name every target in every line; decodes twice")
    add_names(parser)
    add_rules(parser)
    parser.add_argument(
        "--colour", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal, without NO_COLOR"
    )
    parser.epilog = _EPILOG


def add_names(parser: argparse.ArgumentParser) -> None:
    """Add what says who is who."""
    parser.add_argument(
        "--grant", metavar="NAME=GNT#", action="append", default=[], help="name an initiator: --grant eth0=GNT2#"
    )
    parser.add_argument("--profile", metavar="NIC", help="registers of this NIC profile: a name or a .toml")
    parser.add_argument(
        "--registers",
        metavar="FILE",
        action="append",
        default=[],
        help="a register file: TOML, SVD, SystemRDL, IP-XACT",
    )


def run(args: argparse.Namespace) -> int:
    """List."""
    opened = open_run(args)
    buses = choose_buses(opened, args.bus)
    chosen = Choice(None if args.layer == CLOCKS else choice(args, TRANSACTIONS), grants_of(args, buses))
    written = _clocks(args, buses) if args.layer == CLOCKS else _lines(args, opened, buses, chosen)
    for some in written:
        if _is_utf8():
            sys.stdout.buffer.write(some)
        else:
            sys.stdout.write(some.decode())
        sys.stdout.flush()
    tell_why_none(chosen)
    return 0


def _is_utf8() -> bool:
    """Whether whoever reads the lines knows all their characters."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def _lines(args: argparse.Namespace, opened: Run, buses: list[Bus], chosen: Choice) -> Iterator[bytes]:
    """The listing of transactions, data phases or accesses."""
    terminal = sys.stdout.isatty()
    # The mark of a cut takes three columns in ASCII.
    columns = shutil.get_terminal_size().columns - (0 if _is_utf8() else 2)
    of_us, of_clks = _problems_of(args, buses)
    settings = Settings(
        layer=Layer(args.layer),
        zero_us=_zero_us(args, opened, buses[0]),
        width=columns if terminal else None,
        colour=args.colour == "always" or (args.colour == "auto" and terminal and not os.environ.get("NO_COLOR")),
        all_data=args.data == "all",
        raw=args.raw,
        two_pass=args.two_pass,
        grants=grants_of(args, buses),
        registers=registers_of(args),
        problems_of_us=of_us,
        problems_of_clks=of_clks,
        masks=masks_of(args),
    )
    return lines(buses, settings, chosen)


def _clocks(args: argparse.Namespace, buses: list[Bus]) -> Iterator[bytes]:
    """The state listing of one bus."""
    from pcitrace.instrument.clocklist import clock_lines
    from pcitrace.instrument.moments import Moment, Unit, bounds

    names = [bus.name for bus in buses]
    if len(buses) > 1:
        raise argparse.ArgumentError(None, f"--layer clocks lists one bus; name one of {', '.join(names)} with --bus")
    if args.where is not None:
        raise argparse.ArgumentError(
            None, "--where chooses transactions; clocks are chosen with --from, --to or --around"
        )
    if args.around is not None:
        (start_us, stop_us), _ = bounds(None, None, args.around)
        return clock_lines(buses[0], Moment(start_us, Unit.TIME), Moment(stop_us, Unit.TIME))
    return clock_lines(buses[0], *limits(args))


def grants_of(args: argparse.Namespace, buses: list[Bus]) -> dict[str, dict[str, str]]:
    """What --grant states, by bus."""
    if not args.grant:
        return {}
    from pcitrace.instrument.names import check_grants

    return {bus.name: check_grants(args.grant, bus.lines) for bus in buses}


def registers_of(args: argparse.Namespace) -> Registers | None:
    """What the profile and the register files know."""
    if args.profile is None and not args.registers:
        return None
    from pcitrace.instrument.registers import Registers

    return Registers.load(args.profile, args.registers)


def _zero_us(args: argparse.Namespace, opened: Run, bus: Bus) -> float | None:
    """What the times count from."""
    if args.time != "trigger":
        return None if args.time == "delta" else 0.0
    if args.trigger is not None:
        from pcitrace.instrument.moments import duration_us

        return duration_us(args.trigger)
    number = opened.captures.index(bus.capture)
    described = opened.folder.run["captures"][number] if opened.folder is not None else {}
    sample, rate_hz = described.get("trigger_sample"), bus.capture.rate_hz
    if sample is None or rate_hz is None:
        raise ConditionError("the capture does not say when its trigger was; say it with --trigger TIME", "trigger")
    return float(sample / rate_hz * 1e6)


def _problems_of(
    args: argparse.Namespace, buses: list[Bus]
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """From where to where problems of no transaction are listed, in us and clocks; None where all transactions are."""
    if args.where or not (args.start or args.stop or args.around):
        return ((0.0, 0.0) if args.where else None), None
    from pcitrace.instrument.moments import bounds

    capture = buses[0].capture
    rate_hz = capture.clock_mhz * 1e6 if capture.clock_mhz else capture.rate_hz
    sample_s = capture.tick_s or (1 / rate_hz if rate_hz else None)
    return bounds(args.start, args.stop, args.around, None if sample_s is None else sample_s * 1e6)
