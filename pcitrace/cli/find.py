"""``pcitrace find``: sequences of transactions, as a trigger would find them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pcitrace.cli.list import add_names, grants_of, registers_of
from pcitrace.cli.options import add_capture, add_json, choose_buses, open_run, print_json

if TYPE_CHECKING:
    from pcitrace.instrument.search import Matches

_EPILOG = """\
examples:
  pcitrace find bus.vcd.gz 'write BAR0+0x18' 'dma read within 5us'     doorbell to DMA
  pcitrace find bus.vcd.gz retry 'not dac and bytes > 64 within 1us'
  pcitrace find bus.vcd.gz 'config write' --json

A step is words (read, write, config, io, memory, dma, a command, a termination, a device, a register, an address, a
place such as BAR0+0x18 or eth0.BAR0; beside config BAR0 is the register itself), or a condition on the columns;
`within TIME` limits the time since the step before. A match takes the earliest transactions that fulfil the steps in
order.
"""
_BINS = 10
_BAR = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument("steps", metavar="STEP", nargs="+", help="what has to happen, in this order")
    add_names(parser)
    add_json(parser, "print every match as JSON: bus, start_us, parts (transactions), times_us (between them)")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Search, print."""
    from pcitrace.instrument.names import of_bus
    from pcitrace.instrument.search import bus_has_data, find

    buses = choose_buses(open_run(args), args.bus)
    grants, registers = grants_of(args, buses), registers_of(args)
    found = []
    for bus in buses:
        names = of_bus(bus, grants.get(bus.name)) if bus_has_data(bus) else None
        found.append(find(bus, args.steps, names=names, registers=registers))
    if args.json:
        print_json([one for matches in found for one in matches.as_list()])
        return 0
    for matches in found:
        _show(matches)
    return 0


def _show(matches: Matches) -> None:
    print(f"bus {matches.bus}: {len(matches)} {'match' if len(matches) == 1 else 'matches'}")
    if not len(matches):
        for step, count, unknown in zip(matches.steps, matches.fulfilled, matches.unknown, strict=True):
            why = f"; {', '.join(unknown)}: not known of any transaction" if unknown and not count else ""
            print(f"  {step.text!r} alone: {count} transactions{why}")
    for start, parts, times in zip(matches.start_us, matches.transactions, matches.times_us, strict=True):
        rest = "".join(f"  +{time:.3f} us #{part}" for time, part in zip(times, parts[1:], strict=True))
        print(f"  {start[0]:14.3f} us #{parts[0]}{rest}")
    for number, step in enumerate(matches.steps[1:], 1):
        if len(matches):
            print(f"  times to {step.text!r}:")
            counts, edges = matches.histogram(number, _BINS)
            for count, low, high in zip(counts, edges, edges[1:], strict=False):
                print(
                    f"    {low:10.3f} to {high:10.3f} us {count:8} {'#' * round(_BAR * count / counts.max())}".rstrip()
                )
