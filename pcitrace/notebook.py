"""How tables and numbers show themselves in a notebook: one line as text; numbers with unit and source as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pcitrace.estimate import Estimate

if TYPE_CHECKING:
    from pcitrace.traffic import Traffic

__all__ = ["Rows", "average", "bursts", "csr", "frames", "numbers_html"]

SHOWN = 8
"""Rows of a table that a notebook shows; all of them are in the table."""


class Rows(pd.DataFrame):
    """A table that says in one line what it holds, and in a notebook what it comes to.

    It is a DataFrame like any other: what is chosen from it or calculated with it is a plain one.
    """

    _metadata = ["summary", "numbers"]  # noqa: RUF012 (pandas asks for it so)

    def __init__(self, table: pd.DataFrame, summary: str, numbers: Sequence[tuple[str, Estimate]] = ()) -> None:
        super().__init__(table)  # type: ignore[call-arg]
        self.summary = summary
        self.numbers = numbers

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a plain DataFrame."""
        return pd.DataFrame(self)

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    def _repr_html_(self) -> str:
        shown = str(pd.DataFrame(self.head(SHOWN)).to_html(border=0))
        more = f"<p>{len(self) - SHOWN} more rows</p>" if len(self) > SHOWN else ""
        return numbers_html(self.summary, self.numbers) + shown + more


def numbers_html(title: str, numbers: Iterable[tuple[str, Estimate]]) -> str:
    """Return numbers as a table: name, value with its uncertainty, unit, what it rests on."""
    rows = []
    for name, one in numbers:
        value = f"unknown: {one.reason}" if one.value is None else str(one).replace("±", " ± ")
        cells = (name, value, "" if one.value is None else one.unit, one.basis)
        rows.append("<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells) + "</tr>")
    heading = "".join(f"<th style='text-align:left'>{name}</th>" for name in ("", "value", "unit", "source"))
    table = f"<table><thead><tr>{heading}</tr></thead><tbody>{''.join(rows)}</tbody></table>" if rows else ""
    return f"<p><b>{escape(title)}</b></p>{table}"


def average(values: Any, unit: str) -> Estimate:
    """Return the mean of what is known of some values, with its standard error."""
    known = np.asarray(pd.Series(values).dropna(), dtype=np.float64)
    n = len(known)
    if n < 2:
        return Estimate(float(known[0]) if n else None, 0.0 if n else None, n, unit=unit, reason="" if n else "none")
    scatter = float(known.std(ddof=1))
    return Estimate(float(known.mean()), 0.0, n, sigma_frames=scatter / n**0.5, scatter=scatter, unit=unit)


def bursts(traffic: Traffic) -> Rows:
    """Return the DMA bursts of a bus."""
    table = traffic.bursts
    kinds = table["kind"].value_counts()
    told = ", ".join(f"{count} {str(kind).replace('_', ' ')}" for kind, count in kinds.items())
    numbers = []
    for kind in ("send_data", "receive_data"):
        mine = table[table["kind"] == kind]
        if len(mine):
            name = kind.replace("_", " ")
            numbers.append((f"{name}: bytes", average(mine["bytes"], "bytes")))
            numbers.append((f"{name}: first to last data phase", average(_span(mine), "us")))
    return Rows(table, f"Bursts of bus {traffic.bus}: {told or 'none'}", numbers)


def _span(table: pd.DataFrame) -> pd.Series[float]:
    return table["last_data_us"] - table["first_data_us"]


def csr(traffic: Traffic) -> Rows:
    """Return the CSR accesses of a bus."""
    table = traffic.csr_accesses
    retried = int((table["attempts"] > 1).sum())
    took = table["data_us"] - table["first_attempt_us"]
    summary = f"CSR accesses of bus {traffic.bus}: {len(table)}, {retried} of them retried"
    return Rows(table, summary, [("address phase to data", average(took, "us"))] if len(table) else [])


DURATIONS = ("dma_us", "gap_us", "wire_us", "rx_dma_us")


def frames(table: pd.DataFrame, summary: str) -> str:
    """Return the table `frames` as HTML: the means of its durations, and its first rows."""
    numbers = [(f"mean {name.removesuffix('_us')}", average(table[name], "us")) for name in DURATIONS]
    return Rows(table, summary, [(name, one) for name, one in numbers if one.n])._repr_html_()
