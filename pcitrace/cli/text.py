"""Text for people: as wide as they can read, numbers as they write them, tables."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

__all__ = ["filled", "number", "table", "width"]

_WIDEST = 100
_NAME = 20
"""Columns of a name in a table; of one that is longer beginning and end are shown."""
_LEAST = 12
"""What is left of a name where the numbers beside it need the room."""
_SPACE = "\N{NO-BREAK SPACE}"


def width() -> int:
    """Columns that a line may have: 100, fewer on a narrow terminal."""
    return min(_WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _WIDEST


def filled(text: str, first: int = 0, rest: int = 0) -> str:
    """A text in lines, the first indented by so many columns, the others by `rest`; a share stays with its %."""
    joined = text.replace(" %", f"{_SPACE}%")
    whole = textwrap.fill(
        joined, width(), initial_indent=" " * first, subsequent_indent=" " * rest, break_on_hyphens=False
    )
    return whole.replace(_SPACE, " ")


def number(value: float | None, unknown: str = "unknown") -> str:
    """Four digits of a number, without an exponent: 171,300."""
    if value is None:
        return unknown
    text = f"{value:.4g}"
    return text if "e+" not in text else f"{float(text):,.0f}"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], names: int = 1) -> Iterator[str]:
    """Rows below their heads: names first, then numbers, each column as wide as what is in it.

    Where a line has no room for all columns, the others follow below, behind the same names.

    Parameters
    ----------
    title : str
        Head of the first column.
    heads : sequence of str
        Of the other columns.
    rows : sequence of sequences
    names : int
        Columns of names; all others stand to the right.
    """
    cells = [[title, *heads], *([str(cell) for cell in row] for row in rows)]
    wide = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    # Rows stand further to the right than the title.
    wide[0] = max(len(title), 2 + max((len(row[0]) for row in cells[1:]), default=0))
    wide[:names] = [min(one, 2 + _NAME) for one in wide[:names]]
    room = width() - 2 * names - sum(min(one, _LEAST) for one in wide[:names])
    first = names
    while first < len(wide):
        last = first + 1
        while last < len(wide) and sum(2 + one for one in wide[first : last + 1]) <= room:
            last += 1
        numbers = sum(2 + one for one in wide[first:last])
        most = max(_LEAST, (width() - 2 * names - numbers) // names)
        for at, row in enumerate(cells):
            indent = 4 if at else 2
            shown = [_name(row[n], min(wide[n], most) + (2 - indent) * (n == 0)) for n in range(names)]
            shown += [f"{row[n]:>{wide[n]}}" for n in range(first, last)]
            yield f"{' ' * indent}{'  '.join(shown)}".rstrip()
        first = last


def _name(text: str, columns: int) -> str:
    shown = text if len(text) <= columns else f"{text[: columns - 7]}...{text[-4:]}"
    return f"{shown:<{columns}}"
