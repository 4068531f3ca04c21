"""``pcitrace cut``: a part of a capture, to send to somebody."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pcitrace.cli.options import add_capture, open_run, whole
from pcitrace.errors import DecodeError
from pcitrace.run import Bus

_EPILOG = """\
examples:
  pcitrace cut capture.sr --from 1.2ms --to 1.5ms -o part.sr
  pcitrace cut capture.sr --transaction 4711 --around 200us -o part.sr
  pcitrace cut bus.vcd.gz --from 3000clk --to 4000clk -o part.vcd     or part.sr, for PulseView

The part begins and ends where the bus is idle, and has all channels. What the channels' names do not say about the
wiring is written beside it, for --wiring.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument("--from", dest="start", metavar="TIME", help="from here: 1.5ms, 3000clk, 120000sample")
    parser.add_argument("--to", dest="stop", metavar="TIME", help="to here, likewise")
    parser.add_argument("--transaction", metavar="N", type=whole, help="this transaction instead, with --around")
    parser.add_argument(
        "--around", metavar="TIME", default="10us", help="how much before and behind the transaction (default: 10us)"
    )
    parser.add_argument(
        "-o", "--output", metavar="PART", type=Path, required=True, help="part.sr; of a VCD also part.vcd"
    )
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Cut."""
    from pcitrace.instrument.excerpt import cut

    if (args.transaction is None) == (args.start is None and args.stop is None):
        raise argparse.ArgumentError(None, "say either --from and --to, or --transaction")
    opened = open_run(args)
    bus = opened[args.bus] if args.bus else next(iter(opened.buses.values()), None) or opened.bus
    if args.output.resolve() == bus.capture.path.resolve():
        raise argparse.ArgumentError(None, f"-o {args.output} is the capture; give it another name")
    others = [one for one in opened.buses.values() if one is not bus]
    buses, limits = [bus, *others], _limits_us(args, bus)
    left_out: tuple[str, ...] = ()
    if bus.capture.format == "vcd" and args.output.suffix == ".sr":
        from pcitrace.export.part import cut_as_samples

        made, left_out = cut_as_samples(buses, *limits, args.output, args.timescale)
    else:
        made = cut(buses, *limits, args.output)
    with_wiring = f", wiring in {made.wiring}" if made.wiring is not None else ""
    unit = "samples" if bus.capture.sample_count is not None else "ticks"
    print(f"{made.path}: {unit} {made.first} to {made.last}{with_wiring}")
    for text in left_out:
        print(f"pcitrace: left out: {text}", file=sys.stderr)
    return 0


def _limits_us(args: argparse.Namespace, bus: Bus) -> tuple[float, float]:
    """From when to when the arguments ask for."""
    from pcitrace.instrument.moments import Unit, duration_us, moment

    if args.transaction is not None:
        rows = bus.arrow("transactions", columns=["start_us", "end_us"])
        if not 0 <= args.transaction < len(rows):
            raise DecodeError(f"{args.file}: no transaction {args.transaction}; there are {len(rows)}")
        chosen = rows.slice(args.transaction, 1).to_pylist()[0]
        reach_us = duration_us(args.around)
        return float(chosen["start_us"]) - reach_us, float(chosen["end_us"]) + reach_us

    def at_us(text: str | None, default: float) -> float:
        if text is None:
            return default
        stated = moment(text)
        if stated.unit is Unit.TIME:
            return stated.value
        if stated.unit is Unit.CLOCK:
            return stated.value / (bus.mean_clock_mhz or bus.clock_mhz or 33.3)
        tick_us = 1e6 * (bus.capture.tick_s or 1 / (bus.capture.rate_hz or 1e6))
        return stated.value * tick_us

    whole = (bus.capture.duration_s or 0.0) * 1e6
    limits = at_us(args.start, 0.0), at_us(args.stop, whole)
    if limits[0] >= limits[1]:
        raise DecodeError(f"{args.file}: from {limits[0]:g} us to {limits[1]:g} us there is nothing to cut")
    return limits
