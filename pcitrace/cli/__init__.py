"""The command ``pcitrace``.

Each subcommand is a module of this package with ``add_arguments(parser)`` and ``run(args) -> int``. Only the module of
the command that was asked for is imported, and none imports pandas before it makes a table: short jobs stay short.
"""

from __future__ import annotations

import argparse
import codecs
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pcitrace.errors import PciTraceError

__all__ = ["COMMANDS", "main", "parser_of"]

COMMANDS = {
    "info": "what is in a capture: channels, buses, and which channel is which line",
    "decode": "write the transactions of a capture to CSV, Parquet or JSON lines",
    "list": "list what happened, one line a transaction, for people",
    "find": "find sequences of transactions and the times between them, as a trigger would",
    "diff": "compare two captures of the same thing: what happens in one only, other data, other waits",
    "sql": "ask a question in SQL, where DuckDB is installed",
    "cut": "write a part of a capture, cut where the bus is idle, to send to somebody",
    "export": "write for other programs: PulseView, Wireshark, GTKWave, Surfer, Perfetto, DuckDB",
    "stats": "count: use of the bus, commands, terminations, burst lengths, retries, throughput",
    "devices": "list the devices that configuration accesses show: who, where, base address registers",
    "check": "judge every clock by 53 rules of the bus: kept, broken and where, or not evaluated and why",
    "frames": "follow every frame from memory to memory: one row a frame",
    "learn": "learn from its traffic what a card does, and write it as a NIC profile",
    "bursts": "list the DMA bursts of the NICs, their pieces joined",
    "csr": "list the accesses to the NICs' registers, retried attempts joined",
    "network": "latency, loss, throughput and buffers from frame logs, with or without a bus",
    "model": "constants of card, bus and switch for other programs: model.json, INET, SimPy",
    "report": "work out the constants of NIC, PCI and software; write them as one page or as JSON",
    "campaign": "analyse hundreds of runs, here or on a cluster: each once, whatever dies meanwhile",
    "view": "write one page to look at: lanes to zoom into, waveforms, search, what each row means",
    "compare": "show runs side by side: their numbers, and what differs in their set-ups",
    "watch": "show the bus while it runs: occupancy, throughput, transactions, what is wrong",
    "simulate": "simulate a test bench: two hosts, their NICs and a link; writes a run folder with its truth",
}
"""Subcommands in the order of the help, each with its line there."""

_EPILOG = """\
examples:
  pcitrace info capture.sr                       is everything wired as I think?
  pcitrace decode capture.sr -o transactions.csv
  pcitrace list capture.sr | less -R             what happened, line by line
  pcitrace stats capture.sr --window-us 1000     how busy is the bus, millisecond by millisecond?

Captures: sigrok (.sr), VCD, FST, GHW, CSV (sigrok, Saleae), DSView (.dsl), Saleae (.bin); told by their content.
Exit status: 0 well (bad traffic on the bus included), 1 problems found and --strict given, 2 wrong usage, 3 bad input.
"""


_PLAIN = dict(zip("µμ±×·…–−≤≥→", ("u", "u", "+-", "x", "*", "...", "-", "-", "<=", ">=", "->"), strict=True))
"""Characters in the output of commands, for those who cannot show them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    arguments = sys.argv[1:] if argv is None else [*argv]  # the module cli.list hides the word here
    _print_anything()
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    parser = parser_of(next((word for word in arguments if word in COMMANDS), None))
    args = parser.parse_args(arguments)
    try:
        status = int(import_module(f"pcitrace.cli.{args.command}").run(args))
        sys.stdout.flush()
        import_module("pcitrace.cli.options").print_notes(args)
        return status
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough; Python must not complain when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("pcitrace: interrupted", file=sys.stderr)
        return 130
    except argparse.ArgumentError as error:
        parser.error(str(error))
    except (PciTraceError, OSError) as error:
        print(f"pcitrace: {_one_line(error)}", file=sys.stderr)
        return 3


def _complete() -> None:
    """Answer the shell, which asks how the line that is typed may go on; does not return where argcomplete is there."""
    try:
        import argcomplete
    except ImportError:
        return
    typed = os.environ.get("COMP_LINE", "").split()
    argcomplete.autocomplete(parser_of(next((word for word in typed if word in COMMANDS), None)))


def _print_anything() -> None:
    """Let streams that know few characters, such as ASCII only, or are closed, take all as best they can."""
    codecs.register_error("pcitrace", _nearest)
    # Closed by who started us, a stream is None; what is opened later would take its place.
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="pcitrace")


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(one, "?") for one in error.object[error.start : error.end]), error.end


def parser_of(command: str | None) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of one subcommand only: the others need not be imported."""
    parser = argparse.ArgumentParser(
        prog="pcitrace",
        description="Exact PCI transactions from logic-analyser captures, and what follows from them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, line in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=line,
            description=f"{line[0].upper()}{line[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == command:
            import_module(f"pcitrace.cli.{name}").add_arguments(sub)
    return parser


class _Version(argparse.Action):
    """Looks up the version only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import pcitrace

        print(f"pcitrace {pcitrace.__version__}")
        parser.exit()


def _one_line(error: Exception) -> str:
    from pcitrace.printable import printable

    if isinstance(error, OSError) and error.filename is not None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(" ".join(str(error).split()))
