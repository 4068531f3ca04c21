"""``pcitrace export``: a capture or a run for PulseView, Wireshark, GTKWave, Surfer, Perfetto, DuckDB."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pcitrace import schema
from pcitrace.cli.options import add_capture, add_json, open_run, positive, print_json
from pcitrace.export.kinds import Exported, Options

_FORMATS = ("sigrok", "pcapng", "vcd", "fst", "ftr", "perfetto", "parquet", "arrow")

_EPILOG = """\
formats (--to):
  sigrok     PulseView, sigrok-cli: the samples as .sr, and beside it what happened, for the decoder pci
  pcapng     Wireshark, tshark: frames of DMA and wire as Ethernet, transactions as packets of their own
  vcd, fst   GTKWave, Surfer: the lines with texts beside them, and a .gtkw that arranges them
  ftr        Surfer: transactions, bursts and frames as streams
  perfetto   ui.perfetto.dev: a track a bus, initiator and device; arrows along each frame's way
  parquet, arrow   DuckDB, polars, pandas: one table (--table), units and descriptions in its metadata

examples:
  pcitrace export capture.vcd.gz --to sigrok -o capture.sr
  pcitrace export RUN --to pcapng -o run.pcapng
  pcitrace export RUN --to parquet --table frames -o frames.parquet
  pcitrace export --install-sigrok-decoder       once, for PulseView and sigrok-cli
  pcitrace export --install-wireshark-dissector  once, for Wireshark and tshark
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser, optional=True)
    parser.add_argument("--to", metavar="FORMAT", choices=_FORMATS, help=f"one of {', '.join(_FORMATS)}")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="the file to write")
    parser.add_argument("--profile", metavar="NIC", help="NIC profile, for bursts and frames: a name or a .toml")
    parser.add_argument(
        "--table", choices=list(schema.TABLES), default="transactions", help="of parquet and arrow: which table"
    )
    parser.add_argument(
        "--sample-rate",
        metavar="HZ",
        type=positive,
        help="of sigrok, where the capture lists changes: samples a second (default: 8 a clock, 100e6 at least)",
    )
    add_json(parser, "print what was written, and what is left out, as JSON")
    parser.add_argument("--install-sigrok-decoder", action="store_true", help="install the decoder pci, and exit")
    parser.add_argument("--install-wireshark-dissector", action="store_true", help="install the dissector, and exit")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Export, or install."""
    from pcitrace import export

    if args.install_sigrok_decoder or args.install_wireshark_dissector:
        _install(args)
        if args.file is None:
            return 0
    for value, name in ((args.file, "FILE"), (args.to, "--to"), (args.output, "-o")):
        if value is None:
            raise argparse.ArgumentError(None, f"{name} is missing: pcitrace export RUN --to FORMAT -o FILE")
    opened = open_run(args)
    if args.output.resolve() in {capture.path.resolve() for capture in opened.captures}:
        raise argparse.ArgumentError(None, f"-o {args.output} is the capture; give it another name")
    options = Options(args.table, None if args.sample_rate is None else round(args.sample_rate))
    made = export.export(opened, args.to, args.output, bus=args.bus, profile=args.profile, options=options)
    _say(made, args)
    return 0


def _say(made: Exported, args: argparse.Namespace) -> None:
    if args.json:
        files = [str(file) for file in made.files]
        print_json({"format": args.to, "files": files, "rows": made.rows, "left_out": list(made.left_out)})
        return
    rows = ", ".join(f"{count} {what}" for what, count in made.rows.items())
    print(f"{' and '.join(str(file) for file in made.files)}: {rows}")
    for text in made.left_out:
        print(f"pcitrace: left out: {text}", file=sys.stderr)
    for hint in made.hints:
        print(f"open it: {hint}")


def _install(args: argparse.Namespace) -> None:
    import shutil

    from pcitrace.export import install

    wanted = (
        (args.install_sigrok_decoder, install.sigrok_decoder, "sigrok-cli"),
        (args.install_wireshark_dissector, install.wireshark_dissector, "tshark"),
    )
    for asked, put, program in wanted:
        if asked:
            print(f"installed: {put()}")
            if shutil.which(program) is None:
                print(f"pcitrace: {program} is not installed here: apt-get install {program}", file=sys.stderr)
