"""Writes commands.md, the command reference, from the parsers of the commands."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pcitrace.cli import COMMANDS, parser_of

HEAD = """\
# Commands

Every subcommand of `pcitrace` as `pcitrace COMMAND --help` shows it. This page is generated from the parsers.
`python -m pcitrace` is the same command. Exit status: 0 well (bad traffic on the bus included), 1 problems found and
`--strict` given, 2 wrong usage, 3 bad input.
"""


def write(path: Path) -> None:
    """Write the page, but only if it changes: Sphinx then rebuilds nothing."""
    os.environ["COLUMNS"] = "110"
    text = "\n".join([HEAD, *(_section(name, line) for name, line in COMMANDS.items())])
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _section(name: str, line: str) -> str:
    [commands] = [one for one in parser_of(name)._actions if isinstance(one, argparse._SubParsersAction)]
    shown = commands.choices[name].format_help().rstrip()
    return f"## {name}\n\n{line[0].upper()}{line[1:]}.\n\n```text\n{shown}\n```\n"
