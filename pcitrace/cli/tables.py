"""What the subcommands that give one table of the analysis share: their output."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["add_output", "emit", "output", "write"]

_SUFFIXES = (".csv", ".parquet", ".jsonl")


def output(text: str) -> Path:
    """Argument type: a file to write."""
    path = Path(text)
    if path.suffix not in _SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r} must end in {', '.join(_SUFFIXES)}")
    if path.exists() and not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular file, and cannot be replaced by one")
    return path


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """Add -o and --json."""
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=output, help=f"{what}: .csv, .parquet or .jsonl (default: CSV here)"
    )
    parser.add_argument(
        "--json", action="store_true", help="with -o: print the summary as JSON; without: print the rows as JSON lines"
    )


def emit(table: pd.DataFrame, args: argparse.Namespace) -> None:
    """Write the table where the arguments say: into a file, or as CSV or JSON lines on standard output."""
    if args.output is not None:
        write(table, args.output)
    elif args.json:
        # pandas writes an empty line for no rows, which is no JSON.
        if len(table):
            table.to_json(sys.stdout, orient="records", lines=True, double_precision=15)
    else:
        with tempfile.TemporaryDirectory(prefix="pcitrace-") as folder:
            path = Path(folder) / "table.csv"
            write(table, path)
            sys.stdout.write(path.read_text(encoding="utf-8"))


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a table by the suffix of its file, whole or not at all."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as error:
        # The user named the table, not the file that it is written to first.
        error.filename = str(path)
        raise
    os.close(handle)
    temporary = Path(name)
    try:
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(arrow, name, pyarrow.csv.WriteOptions(quoting_style="needed"))
        elif path.suffix == ".parquet":
            pyarrow.parquet.write_table(arrow, name)
        else:
            table.to_json(name, orient="records", lines=True, double_precision=15)
        # A temporary file is private; the table is as readable as any file the user writes.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
