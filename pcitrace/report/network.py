"""The page of the network half: every result with its numbers, its figures, and what must not be overlooked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from pcitrace.errors import PciTraceError
from pcitrace.network import Network, Result
from pcitrace.plot import network as draw
from pcitrace.records import records
from pcitrace.report.pagekit import figure

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["page", "write"]

WIDE, NARROW = (7.0, 3.4), (3.6, 3.0)

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
table {{ border-collapse: collapse; }} td {{ padding: .15rem .8rem .15rem 0; vertical-align: top; }}
th {{ text-align: left; font-size: .8em; padding-right: .8rem; }} details {{ overflow-x: auto; margin: .4rem 0; }}
td.why {{ color: #666; font-size: .9em; }} svg {{ max-width: 100%; height: auto; }} .narrow {{ display: none; }}
.simulated {{ color: #9a5b00; font-weight: bold; }}
@media (max-width: 600px) {{ .wide {{ display: none; }} .narrow {{ display: block; }} }}
</style></head><body><h1>{title}</h1>
"""


def write(found: Network, path: str | Path) -> None:
    """Write the page; it needs no other file."""
    Path(path).write_text(page(found), encoding="utf-8")


def page(found: Network) -> str:
    """Return the page as HTML."""
    parts = [_HEAD.format(title="Network")]
    if any(one.measurement is not None and one.measurement.simulated for one in found.results):
        parts.append('<p class="simulated">Simulated: no real wire stands behind some of these numbers.</p>\n')
    if found.findings:
        parts.append(
            "<h2>Not to be overlooked</h2><ul>"
            + "".join(f"<li>{escape(one)}</li>" for one in found.findings)
            + "</ul>\n"
        )
    lines = [one for one in found.results if one.latency is not None and len(one.latency.table)]
    if len(lines) > 1:
        parts += ["<h2>Latency of all paths</h2>", *_drawn([lambda ax: draw.latency(lines, ax=ax)])]
    for one in found.results:
        parts.append(f"<h2>{escape(one.kind)} over {escape(one.path)}</h2>\n<table>")
        for name, number in one.parameters.items():
            value = "unknown" if number.value is None else str(number)
            parts.append(
                f'<tr><td>{name}</td><td>{escape(value)}</td><td class="why">{escape(number.reason)}</td></tr>'
            )
        parts += ["</table>\n", *_drawn(_figures(one)), *(_table(*each) for each in one.all_tables.items())]
    return "\n".join([*parts, "</body></html>\n"])


def _table(name: str, table: DataFrame) -> str:
    """Return a table, folded away: most of it is in a figure."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
        for row in records(table)
    )
    return f"<details><summary>{escape(name)}</summary><table>\n<tr>{head}</tr>{rows}</table></details>"


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _figures(one: Result) -> list[Callable[..., Any]]:
    """Return what draws a result."""
    figures: list[Callable[..., Any]] = []
    if one.latency is not None:
        figures += [lambda ax: draw.latency([one], ax=ax), lambda ax: draw.step_search(one, ax=ax)]
    if len(one.points) == 1:
        figures += [lambda ax: draw.histogram([one], ax=ax), lambda ax: draw.loss_pattern(one, ax=ax)]
    if "streams" in one.tables and len(one.points) > 1:
        spacings = {point.spacing_us for point in one.points}
        against = "spacing_us" if len(spacings) > 1 else "length_bytes"
        figures += [
            lambda ax: draw.throughput(one, against, ax=ax),
            lambda ax: draw.spacing(one, against, ax=ax),
            lambda ax: draw.loss(one, against, ax=ax),
        ]
        if len(spacings) > 1:
            figures += [
                lambda ax: draw.latency_against_spacing(one, ax=ax),
                lambda ax: draw.probability(one, ax=ax),
                lambda ax: draw.host_load(one, ax=ax),
            ]
    by_table = {
        "slope_budget": lambda one, ax: draw.slope_budget(one.tables["slope_budget"], ax=ax),
        "switch_latency": draw.switch,
        "shares": draw.shares,
        "answers": draw.order_of_answers,
        "netpipe": draw.netpipe,
        "head_of_line": draw.beside,
        "calls": lambda one, ax: draw.tcp([one], ax=ax),
        "ping": lambda one, ax: draw.ping([one], ax=ax),
    }
    figures += [
        lambda ax, function=function: function(one, ax=ax) for name, function in by_table.items() if name in one.tables
    ]
    if "buffer_frames" in one.parameters:
        figures.append(lambda ax: draw.buffer_depth(one, ax=ax))
    return figures


def _drawn(figures: list[Callable[..., Any]]) -> Iterator[Markup]:
    """Yield the figures that there is something for."""
    for each in figures:
        try:
            yield figure(each, WIDE, NARROW)
        except (IndexError, PciTraceError):
            continue
