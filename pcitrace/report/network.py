"""The page of the network half: every result with its numbers, its figures, and what must not be overlooked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pcitrace.errors import PciTraceError
from pcitrace.network import Network, Parameter, Result
from pcitrace.plot import network as draw
from pcitrace.records import records
from pcitrace.report.pagekit import Entry, Section, Table, Value, figure, grouped, micro, rendered

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["page", "write"]

WIDE, NARROW = (7.0, 3.4), (3.6, 3.0)

Drawing = tuple[str, Callable[..., Any]]
"""What a figure shows, and what draws it."""


def write(found: Network, path: str | Path) -> None:
    """Write the page; it needs no other file."""
    Path(path).write_text(page(found), encoding="utf-8")


def page(found: Network) -> str:
    """Return the page as HTML."""
    sections = [_section(one) for one in found.results]
    lines = [one for one in found.results if one.latency is not None and len(one.latency.table)]
    if len(lines) > 1:
        drawn = _drawn([("Median of a loop against its user bytes, a line a path.", _of(draw.latency, lines))])
        sections.insert(0, Section("Latency of all paths", figures=tuple(drawn)))
    simulated = any(one.measurement is not None and one.measurement.simulated for one in found.results)
    return rendered(
        "network.html",
        title="Network",
        simulated=simulated,
        notes=["Simulated: no real wire stands behind some of these numbers."] if simulated else [],
        findings=found.findings,
        sections=sections,
    )


def _section(one: Result) -> Section:
    entries = tuple(Entry(name, "", (_value(number),)) for name, number in one.parameters.items())
    tables = tuple(_table(name, table) for name, table in one.all_tables.items())
    return Section(f"{one.kind} over {one.path}", entries=entries, figures=tuple(_drawn(_figures(one))), tables=tables)


def _table(name: str, table: DataFrame) -> Table:
    """Return a table, folded away: most of it is in a figure."""
    rows = [[_cell(value) for value in row.values()] for row in records(table)]
    return Table(name, [str(column) for column in table.columns], rows, folded=True)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _value(number: Parameter) -> Value:
    """Return a number as the page shows it: without its unit, which has a column."""
    if number.value is None:
        return Value("unknown", "", number.reason)
    text = str(number).removesuffix(f" {number.unit}").replace("±", " ± ")
    counts = f"n = {grouped(number.n)}" if number.n else ""
    return Value(
        text, "" if number.unit == "1" else micro(number.unit), "; ".join(filter(None, (number.reason, counts)))
    )


def _of(function: Callable[..., Any], *what: Any, **options: Any) -> Callable[..., Any]:
    return lambda ax: function(*what, **options, ax=ax)


def _figures(one: Result) -> list[Drawing]:
    """Return what draws a result, with what each shows."""

    def said(name: str) -> str:
        """Return a number of the result in a sentence."""
        number = one.parameters.get(name)
        return "unknown" if number is None or number.value is None else micro(str(number))

    figures: list[Drawing] = []
    if one.latency is not None:
        figures += [
            (f"Median of a loop against its user bytes. One way: {said('intercept_us')}, and "
             f"{said('slope_us_per_byte')} more.", _of(draw.latency, [one])),
            (f"How much a step of each length would explain beyond the line. A step: {said('step_bytes')}.",
             _of(draw.step_search, one)),
        ]  # fmt: skip
    if len(one.points) == 1:
        figures += [
            (f"How often each time was measured; its width at half of the height: {said('fwhm_us')}.",
             _of(draw.histogram, [one])),
            (f"How many frames were lost in a row, beside as many independent losses. Lost: {said('lost')}.",
             _of(draw.loss_pattern, one)),
        ]  # fmt: skip
    if "streams" in one.tables and len(one.points) > 1:
        spacings = {point.spacing_us for point in one.points}
        against = "spacing_us" if len(spacings) > 1 else "length_bytes"
        figures += [
            (f"What arrives of a stream. The most: {said('user_mbit_s')}.", _of(draw.throughput, one, against)),
            (f"Time between received frames. The least: {said('spacing_us')}.", _of(draw.spacing, one, against)),
            (f"How likely a frame is lost, with intervals of 95 %. Lost: {said('lost')} of {said('sent')}.",
             _of(draw.loss, one, against)),
        ]  # fmt: skip
        if len(spacings) > 1:
            figures += [
                (f"One-way latency against the time between frames. Floor: {said('floor_us')}; it rises below "
                 f"{said('knee_us')}.", _of(draw.latency_against_spacing, one)),
                ("How likely each one-way latency is, for each time between frames.", _of(draw.probability, one)),
                (f"CPU time that a frame costs each host. The most: {said('cpu_us_per_frame')}.",
                 _of(draw.host_load, one)),
            ]  # fmt: skip
    by_table: dict[str, Drawing] = {
        "slope_budget": ("The terms of the slope, each from where the one above ends, and the measured slope.",
                         lambda ax: draw.slope_budget(one.tables["slope_budget"], ax=ax)),
        "switch_latency": ("What the switch takes: by the papers' T_s and by RFC 1242.", _of(draw.switch, one)),
        "shares": ("What each sender got of the port that they share.", _of(draw.shares, one)),
        "answers": ("Round trips to every node that answers.", _of(draw.order_of_answers, one)),
        "netpipe": ("Throughput of each size of block.", _of(draw.netpipe, one)),
        "head_of_line": (f"What the stream keeps of its throughput beside others: {said('beside_ratio')}.",
                         _of(draw.beside, one)),
        "calls": ("Throughput against what was varied from call to call.", _of(draw.tcp, [one])),
        "ping": ("Round trips of ping against size.", _of(draw.ping, [one])),
    }  # fmt: skip
    figures += [drawing for name, drawing in by_table.items() if name in one.tables]
    if "buffer_frames" in one.parameters:
        figures.append((f"How many frames a paused port kept, by size. Limits: {said('buffer_frames')}, "
                        f"{said('buffer_bytes')}.", _of(draw.buffer_depth, one)))  # fmt: skip
    return figures


def _drawn(figures: list[Drawing]) -> Iterator[tuple[str, Markup]]:
    """Yield the figures that there is something for."""
    for caption, each in figures:
        try:
            yield caption, figure(each, WIDE, NARROW)
        except (IndexError, PciTraceError):
            continue
