"""Writes tables.md, the table reference, from pcitrace/schema.py."""

from __future__ import annotations

from pathlib import Path

from pcitrace.schema import TABLES, Table

HEAD = """\
# Tables

Every table that pcitrace gives, in Python as a DataFrame and in the files that the commands write, with the same names
in the same order. This page is generated from `pcitrace/schema.py`; tests hold the tables to it.

Types are those of Arrow. A column marked *null* can be unknown; unknown is never a number. All times are in
microseconds: `transactions`, `data_phases`, `problems`, `events` and `clocks` count from the start of their capture,
the others are on the run's one axis (the same thing unless `run.toml` gives the capture an offset).
"""


def write(path: Path) -> None:
    """Write the page, but only if it changes: Sphinx then rebuilds nothing."""
    text = "\n".join([HEAD, *(_section(table) for table in TABLES.values())])
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _section(table: Table) -> str:
    rows = [
        f"| `{column.name}` | {column.dtype}{', *null*' if column.nullable else ''} | {column.unit} | "
        f"{column.meaning.replace('|', chr(92) + '|')} |"
        for column in table.columns
    ]
    return "\n".join(
        [f"## {table.name}", "", table.row, "", "| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""]
    )
