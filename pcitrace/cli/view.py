"""``pcitrace view``: an interactive page of a capture or a run."""

from __future__ import annotations

import argparse

from pcitrace.cli.options import add_capture, open_run

_EPILOG = """\
examples:
  pcitrace view capture.sr -o view.html        open it in a browser, send it to a colleague: it needs no other file
  pcitrace view RUN -o view.html --data        with the words of all data phases

The page: wheel, pinch or + and - zoom, dragging or the arrow keys move, a click says what a row is, n and p go on,
m sets a marker, / searches with the condition language of the other commands. Its address keeps the place.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument("-o", "--output", metavar="VIEW.html", required=True, help="the page to write")
    parser.add_argument("--no-lines", action="store_true", help="leave out the waveforms: half the size")
    parser.add_argument("--data", action="store_true", help="with the words of all data phases")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    from pcitrace import view

    view.write(open_run(args), args.output, lines=not args.no_lines, data=args.data)
    print(f"-> {args.output}")
    return 0
