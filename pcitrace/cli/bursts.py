"""``pcitrace bursts``: the DMA bursts of the NICs, pieces joined."""

from __future__ import annotations

import argparse

from pcitrace.cli.choice import add_choice, check, chosen
from pcitrace.cli.options import add_capture, add_grants, open_run
from pcitrace.cli.tables import add_output, emit, output, write
from pcitrace.cli.traffic import add_profile, of_buses, rows, show
from pcitrace.schema import BURSTS

_EPILOG = """\
examples:
  pcitrace bursts RUN -o bursts.csv
  pcitrace bursts capture.sr --profile acenic          a bare capture: nothing but the card has to be said
  pcitrace bursts RUN -o bursts.csv --pieces pieces.csv  and every DMA transaction before joining

kind: descriptor_fetch, send_data, receive_data, status_write or unknown; the column why says what that rests on.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    add_profile(parser)
    add_choice(parser)
    add_grants(parser)
    parser.add_argument("--pieces", metavar="OUT", type=output, help="every DMA transaction, before joining")
    add_output(parser, "bursts")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Tell what the transactions are, write the bursts."""
    check(args, BURSTS)  # a wrong condition is said before the work, not after it
    run = open_run(args)
    found = of_buses(run, args)
    emit(chosen(rows(found, "bursts"), args, BURSTS, run), args)
    if args.pieces is not None:
        write(rows(found, "pieces"), args.pieces)
    show(found, args, {name: f"{len(traffic.joined)} bursts" for name, traffic in found.items()})
    return 0
