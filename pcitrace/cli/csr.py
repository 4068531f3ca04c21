"""``pcitrace csr``: the host's accesses to the NIC's registers and configuration space."""

from __future__ import annotations

import argparse

from pcitrace.cli.choice import add_choice, check, chosen
from pcitrace.cli.options import add_capture, add_grants, open_run
from pcitrace.cli.tables import add_output, emit
from pcitrace.cli.traffic import add_profile, of_buses, rows, show
from pcitrace.schema import CSR_ACCESSES

_EPILOG = """\
examples:
  pcitrace csr RUN -o csr.csv
  pcitrace csr bus.vcd.gz --profile mycard.toml        what did my driver do, register by register?

One row an access: a read that was retried is one access with its attempts.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    add_profile(parser)
    add_choice(parser)
    add_grants(parser)
    add_output(parser, "CSR accesses")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Tell what the transactions are, write the CSR accesses."""
    check(args, CSR_ACCESSES)  # a wrong condition is said before the work, not after it
    run = open_run(args)
    found = of_buses(run, args)
    emit(chosen(rows(found, "csr_accesses"), args, CSR_ACCESSES, run), args)
    show(found, args, {name: f"{len(traffic.csr)} CSR accesses" for name, traffic in found.items()})
    return 0
