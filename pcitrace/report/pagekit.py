"""What a page is made of: sections, entries, numbers as text, figures as SVG."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pcitrace.estimate import Estimate

try:
    import matplotlib as mpl
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError(f"the report needs jinja2 and matplotlib: pip install 'pcitrace[plot]' ({error})") from error

__all__ = ["Entry", "Section", "figure", "grouped", "percent", "plus_minus", "rows_of", "told"]


@dataclass(frozen=True)
class Entry:
    """One row of a list of numbers: what it is, how it is defined, and its values, each with what it rests on."""

    name: str
    meaning: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    title: str
    text: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    figures: tuple[tuple[str, Markup], ...] = ()
    tables: tuple[tuple[str, list[str], list[list[str]]], ...] = ()
    zoom: str = ""


def told(estimate: Estimate, unit: str) -> tuple[str, str]:
    """Return a value with its uncertainty and unit, and what it rests on."""
    if estimate.value is None:
        return "unknown", estimate.reason
    parts = [f"{estimate.source}, n = {grouped(estimate.n)}"]
    parts += [f"sigma {estimate.sigma_measurement:.2g} (measurement)"] if estimate.sigma_measurement else []
    parts += [f"{estimate.sigma_frames:.2g} (standard error of the frames)"] if estimate.sigma_frames else []
    parts += [f"scatter of single frames {estimate.scatter:.2g}"] if estimate.scatter else []
    return f"{spaced(estimate)} {unit}", ", ".join(parts)


def grouped(count: int) -> str:
    """Return a count, its digits in threes from five on."""
    return f"{count:,}" if count >= 10_000 else str(count)


def spaced(estimate: Estimate) -> str:
    return " ± ".join(part.strip() for part in str(estimate).replace("+/-", "±").split("±"))


def plus_minus(value: Any, sigma: Any) -> str:
    """Return a value with its uncertainty where it has one."""
    if pd.isna(value):
        return ""
    if pd.isna(sigma) or not sigma > 1e-12:
        return short(value)
    return spaced(Estimate(float(value), float(sigma), 1))


def short(value: Any) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.3g}" if abs(value) < 1 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """Return a share in percent."""
    return "unknown" if value is None or math.isnan(value) else f"{100 * value:.3g} %"


def rows_of(table: pd.DataFrame, columns: dict[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the columns that have any value."""
    kept = {name: title for name, title in columns.items() if table[name].notna().any()}
    rows = [
        ["" if pd.isna(one) else f"{one:.3f}" if isinstance(one, float) else grouped(int(one)) for one in row]
        for row in table[list(kept)].itertuples(index=False)
    ]
    return list(kept.values()), rows


def figure(draw: Callable[..., Axes], wide: tuple[float, float], narrow: tuple[float, float]) -> Markup:
    """Draw a figure for wide and for narrow screens, as SVG to stand in the page."""
    return Markup(f'<div class="wide">{_svg(draw, wide)}</div><div class="narrow">{_svg(draw, narrow)}</div>')


def _svg(draw: Callable[..., Axes], size: tuple[float, float]) -> str:
    salt = f"{id(draw)}{size}"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9, "font.family": "sans-serif"}):
        page = Figure(figsize=size, layout="constrained")
        draw(ax=page.subplots())
        text = io.StringIO()
        page.savefig(
            text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")), transparent=True
        )
    found = text.getvalue()
    start = found.index("<svg")
    return found[start:].replace(f'width="{size[0] * 72:g}pt" height="{size[1] * 72:g}pt" ', 'role="img" ', 1)
