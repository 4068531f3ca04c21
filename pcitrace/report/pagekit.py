"""What a page is made of: sections, entries, numbers as text, figures as SVG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pandas as pd

from pcitrace.estimate import Estimate

try:
    import jinja2
    import matplotlib as mpl
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
except ImportError as error:
    raise ImportError(f"the report needs jinja2 and matplotlib: pip install 'pcitrace[plot]' ({error})") from error

__all__ = [
    "Entry", "Section", "Table", "Value", "figure", "grouped", "micro", "percent", "plus_minus", "rendered", "rows_of",
    "told",
]  # fmt: skip


@dataclass(frozen=True)
class Value:
    """One number: as text without its unit, its unit, what it rests on, and of what it is (a host, or nothing)."""

    text: str
    unit: str = ""
    basis: str = ""
    of: str = ""


@dataclass(frozen=True)
class Entry:
    """One row of a list of numbers: what it is, how it is defined, and its values."""

    name: str
    meaning: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    """A table: what it is, the titles of its columns with units, its rows. A folded one is opened by a click."""

    caption: str
    head: list[str]
    rows: list[list[str]]
    folded: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Which columns are numbers and nothing else: they are aligned to the right."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.head)
        return [any(column) and all(_NUMBER.fullmatch(one) for one in column if one) for column in columns]


_NUMBER = re.compile(r"[-−+(]*[\d.,]+(e[-+]?\d+)?( ± [\d.,]+(e[-+]?\d+)?)?\)?(e[-+]?\d+|×10[⁻⁰¹²³⁴-⁹]+)?( %)?")


@dataclass(frozen=True)
class Section:
    """One part of the page. A figure is its caption, which states the result, and its picture."""

    title: str
    text: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    figures: tuple[tuple[str, Markup], ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def name(self) -> str:
        """How the section is named in the page's address."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


def told(estimate: Estimate, unit: str, of: str = "") -> Value:
    """Return a value with its uncertainty and unit, and what it rests on."""
    if estimate.value is None:
        return Value("unknown", "", estimate.reason, of)
    parts = [f"{estimate.source}, n = {grouped(estimate.n)}"]
    sigmas = ((estimate.sigma_measurement, " (measurement)"), (estimate.sigma_frames, " (frames)"))
    shares = [(_two_digits(sigma), what) for sigma, what in sigmas if sigma]
    numbers = [(f"sigma {sigma}" if nth == 0 else sigma, what) for nth, (sigma, what) in enumerate(shares)]
    if estimate.scatter:
        numbers.append((f"scatter {_two_digits(estimate.scatter)}", ""))
    if numbers:
        # The unit stands once, with the last of them.
        *others, (last, what) = numbers
        parts.append(", ".join([*map("".join, others), f"{last} {unit}{what}"]))
    return Value(spaced(estimate), unit, "; ".join(parts), of)


def _two_digits(value: float) -> str:
    """An uncertainty as values are written: 5×10⁻⁸, not 5e-08."""
    digits, _, exponent = f"{value:.2g}".partition("e")
    return digits + (f"×10{str(int(exponent)).translate(_RAISED)}" if exponent else "")


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def micro(text: str) -> str:
    """Return a text with the sign µ where it says us."""
    return _US.sub("µs", text)


_US = re.compile(r"(?<![\w/.\-])us(?!\w|\.\w|-)|(?<=\d)us(?!\w)")


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


def percent(value: float | None) -> Value:
    """Return a share in percent."""
    return Value("unknown") if value is None or math.isnan(value) else Value(f"{100 * value:.3g}", "%")


def rows_of(table: pd.DataFrame, columns: dict[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the columns that have any value."""
    kept = {name: title for name, title in columns.items() if table[name].notna().any()}
    rows = [
        ["" if pd.isna(one) else f"{one:.3f}" if isinstance(one, float) else grouped(int(one)) for one in row]
        for row in table[list(kept)].itertuples(index=False)
    ]
    return list(kept.values()), rows


def rendered(template: str, **what: Any) -> str:
    """Return a page of one of the templates beside this file, in the style of all; it refers to nothing outside."""
    files = resources.files("pcitrace.report")
    loader = jinja2.FunctionLoader(lambda name: files.joinpath(name).read_text("utf-8"))
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["micro"] = micro
    css = Markup(files.joinpath("page.css").read_text("utf-8"))
    return environment.get_template(template).render(css=css, **what)


def figure(draw: Callable[..., Axes], wide: tuple[float, float], narrow: tuple[float, float]) -> Markup:
    """Draw a figure for wide and for narrow screens, as SVG to stand in the page."""
    return Markup(f'<div class="wide">{_svg(draw, wide)}</div><div class="narrow">{_svg(draw, narrow)}</div>')


_THEMED = {
    "#333333": "ink", "#000000": "ink", "#6f757e": "faint", "#ffffff": "back",
    "#bf4500": "data", "#00785a": "control", "#2f6db3": "wire", "#9a5b00": "warn",
}  # fmt: skip
"""Colours that a page may set to others, as on a dark ground, by variables of these names."""


def _svg(draw: Callable[..., Axes], size: tuple[float, float]) -> str:
    salt = f"{id(draw)}{size}"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9, "font.family": "sans-serif"}):
        layout = ConstrainedLayoutEngine()
        page = Figure(figsize=size, layout=layout)
        draw(ax=page.subplots())
        # Laid out by itself, it is not drawn once more for that.
        FigureCanvasSVG(page)
        layout.execute(page)
        page.set_layout_engine("none")
        text = io.StringIO()
        page.savefig(
            text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")), transparent=True
        )
    found = text.getvalue()
    found = re.sub("|".join(_THEMED), lambda one: f"var(--{_THEMED[one[0]]}, {one[0]})", found[found.index("<svg") :])
    return found.replace(f'width="{size[0] * 72:g}pt" height="{size[1] * 72:g}pt" ', 'role="img" ', 1)
