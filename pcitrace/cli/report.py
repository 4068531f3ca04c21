"""``pcitrace report``: everything that a run tells, as a page or as JSON."""

from __future__ import annotations

import argparse
import ctypes
import sys

from pcitrace.cli.options import add_capture, add_grants, add_json, counting, open_run, print_json
from pcitrace.errors import PciTraceError

_EPILOG = """\
examples:
  pcitrace report RUN -o report.html       one page with figures, tables and definitions; needs no other file
  pcitrace report RUN -o report.pdf        the same, printed by Chromium or Chrome
  pcitrace report RUN --json               all numbers, each with value, sigma, n and source
  pcitrace report RUN --profile card.toml -o report.html    with what `pcitrace learn` wrote, or the data sheet says
  pcitrace report RUN --json --scheduler tcp://head:8786    frames are followed in windows, on all its workers

RUN is a run folder; of a bare capture the link is not known, so there is no t_nic.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument(
        "-o", "--output", metavar="REPORT.html", help="write the page; as PDF where the name ends in .pdf"
    )
    add_json(parser, "print all numbers as JSON")
    parser.add_argument("--profile", metavar="NIC", help="NIC profile instead of what run.toml says: a name or a .toml")
    add_grants(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--scheduler", metavar="ADDRESS", help="follow the frames on the workers of this Dask scheduler")
    where.add_argument("--workers", metavar="N", type=counting, help="the same on so many processes of this machine")
    parser.epilog = _EPILOG


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Ref: mallopt(3)."""


def run(args: argparse.Namespace) -> int:
    """Work out the numbers, write the page, say what was found."""
    from pcitrace import granted, results

    if args.output is None and not args.json:
        print("pcitrace report: give -o REPORT.html, --json, or both", file=sys.stderr)
        return 2
    elsewhere = args.scheduler is not None or args.workers is not None
    if args.profile is not None and elsewhere:
        print("pcitrace report: windows take the profiles of run.toml: put --profile there", file=sys.stderr)
        return 2
    _give_back_arrays()
    opened = open_run(args)
    granted.settle(opened, args.grant, args.profile)
    if elsewhere:
        from pcitrace.campaign import windows

        windows.frames(opened, args.scheduler, args.workers, lambda line: print(f"pcitrace: {line}", file=sys.stderr))
    found = results.of_run(opened)
    if args.output is not None:
        try:
            from pcitrace import report
        except ImportError as error:
            raise PciTraceError(str(error)) from error
        report.write(found, args.output)
    if args.json:
        print_json(found.as_dict())
    else:
        for name, one in found.constants.items():
            print(f"{name:<24}{found.timing.transit if name == 't_nic_us' else one}")
        print(f"-> {args.output}")
    for finding in found.findings:
        print(f"pcitrace: finding: {finding}", file=sys.stderr)
    return 0


def _give_back_arrays() -> None:
    """Have glibc give arrays of some MB back to the system when they are freed, and use the memory of others again.

    By itself it keeps them, up to 32 MB each, of which the columns of a long capture are just short: a tenth of the
    memory of its report. Of what is smaller it gives back the last 128 KiB and more, and the next array takes fresh
    pages, which costs more than to fill it; :mod:`pcitrace.freed` does that between two steps. Threads that share one
    heap leave fewer holes, and so does Arrow, which has one of its own. Other C libraries have no mallopt.
    """
    import pyarrow as pa

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 4 << 20)
        mallopt(M_TRIM_THRESHOLD, 64 << 20)
        mallopt(M_ARENA_MAX, 1)
        pa.set_memory_pool(pa.system_memory_pool())
