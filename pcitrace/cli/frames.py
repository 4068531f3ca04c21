"""``pcitrace frames``: one row a frame, from the sender's memory to the receiver's."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from pcitrace.cli.choice import add_choice, choice, chosen
from pcitrace.cli.options import add_capture, add_grants, open_run, print_json, whole
from pcitrace.cli.tables import add_output, emit, output, write
from pcitrace.cli.traffic import frames_of
from pcitrace.schema import FRAMES

_EPILOG = """\
examples:
  pcitrace frames RUN -o frames.csv
  pcitrace frames RUN -o big.parquet --where "length_bytes >= 1000 and not queued"
  pcitrace frames RUN -o frames.csv --drop-log dropped.csv      and why the rest was left out
  pcitrace frames RUN --explain 12                  what row 12 rests on, and what else it could be

RUN is a run folder: its run.toml names the hosts, their NIC profiles and the link. Times are on the run's one axis;
what is not known is empty. The columns are explained in the table reference of the documentation.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument("--profile", metavar="NIC", help="NIC profile instead of what run.toml says: a name or a .toml")
    add_choice(parser)
    add_grants(parser)
    parser.add_argument("--drop-log", metavar="OUT", type=output, help="what belongs to no whole frame, and why")
    parser.add_argument("--explain", metavar="ROW", type=whole, help="say why this row of frames is what it is")
    add_output(parser, "frames")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Match, write, and say what was found."""
    choice(args, FRAMES)  # a wrong condition is said before the work, not after it
    frames = frames_of(open_run(args), args)
    if args.explain is not None:
        from pcitrace.frames.explain import explain

        print(explain(frames, args.explain))
        return 0
    frames = replace(frames, table=chosen(frames.table, args, FRAMES))
    emit(frames.table, args)
    if args.drop_log is not None:
        write(frames.drop_log, args.drop_log)
    for finding in frames.findings:
        print(f"pcitrace: finding: {finding}", file=sys.stderr)
    if args.output is None:
        return 0
    received = int(frames.table["rx_dma_start_us"].notna().sum())
    dropped = {str(reason): int(count) for reason, count in frames.drop_log["reason"].value_counts().items()}
    if args.json:
        print_json({"frames": len(frames), "received": received, "dropped": dropped, "findings": list(frames.findings)})
    else:
        why = "".join(f"; {count} x {reason}" for reason, count in dropped.items())
        print(f"{len(frames)} frames, {received} received{why} -> {args.output}")
    return 0
