"""The report of a campaign: an overview, and a page a run."""

from __future__ import annotations

import html
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pcitrace.campaign import combine
from pcitrace.campaign.sources import Source
from pcitrace.estimate import Estimate

if TYPE_CHECKING:
    from pcitrace.campaign.campaign import Campaign

__all__ = ["write"]

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; }} th, td {{ padding: .15rem .9rem .15rem 0; text-align: left; }}
td {{ vertical-align: top; }}
th {{ border-bottom: 1px solid #8888; }} .number {{ text-align: right; white-space: nowrap; }}
.scroll {{ overflow-x: auto; }} small, .why {{ opacity: .75; }}
.marked {{ color: #8a5000; color: light-dark(#8a5000, #f0b35a); font-weight: bold; }}
@media (max-width: 40rem) {{
  table {{ font-size: .8rem; line-height: 1.3; }} th, td {{ padding-right: .5rem; }}
  td:first-child {{ overflow-wrap: anywhere; min-width: 7rem; }} .number {{ white-space: normal; }}
}}
</style></head><body><h1>{title}</h1>
"""
_END = "</body></html>\n"
_NUMBERS = {"value", "tau", "n", "number of runs", "seconds", "MiB"}
"""Columns that are aligned to the right."""


def write(campaign: Campaign, folder: Path) -> Path:
    """Write ``index.html`` and ``runs/``; return the path of the former.

    Parameters
    ----------
    campaign : Campaign
    folder : pathlib.Path
    """
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    status = campaign.status()["runs"]
    table = campaign.constants
    pages = {}
    for place, source in campaign.places():
        content = campaign.store.read(place.page(source.id))
        numbers = campaign.store.read(place.result(source.id))
        if content is None and numbers is not None:
            of_run = table[table["run"] == source.url]
            content = "".join(_of_run(source, of_run, json.loads(numbers))).encode()
        if content is not None:
            pages[source.url] = f"runs/{source.id}.html"
            (folder / pages[source.url]).write_bytes(content)
    index = folder / "index.html"
    index.write_text("".join(_overview(campaign, status, table, pages)), encoding="utf-8")
    return index


def _overview(
    campaign: Campaign, status: Sequence[dict[str, Any]], table: pd.DataFrame, pages: dict[str, str]
) -> Iterator[str]:
    yield _HEAD.format(title=f"Campaign: {html.escape(Path(campaign.store.url).name)}")
    counts = Counter(one["state"] for one in status)
    yield f"<p>{len(status)} runs: " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts)) + "</p>\n"
    if "test.origin" in table and (simulated := table["test.origin"] == "simulated").any():
        number = table["run"][simulated].nunique()
        yield f'<p class="marked">Simulated: no real bus stands behind {number} of these runs.</p>\n'
    sections = {
        "Failed": list(_failed(status)),
        "Findings": list(_findings(table, pages)),
        "Constants over the runs": list(_constants(combine.combined(table))) if len(table) else [],
        "Runs": list(_table(("run", "state", "seconds", "MiB", "reason"), (_row(one, pages) for one in status))),
    }
    there = {title: body for title, body in sections.items() if body}
    yield "<p>" + " · ".join(f'<a href="#{_anchor(title)}">{title}</a>' for title in there) + "</p>\n"
    for title, body in there.items():
        yield f'<h2 id="{_anchor(title)}">{title}</h2>\n'
        yield from body
    yield _END


def _anchor(title: str) -> str:
    return title.partition(" ")[0].lower()


def _failed(status: Sequence[dict[str, Any]]) -> Iterator[str]:
    failed: dict[str, list[str]] = defaultdict(list)
    for one in status:
        if one["state"] == "failed":
            failed[str(one["reason"]).replace(one["run"], "the run")].append(one["run"])
    if failed:
        yield from _table(("reason", "runs"), ((html.escape(why), _runs(runs)) for why, runs in failed.items()))


def _findings(table: pd.DataFrame, pages: dict[str, str]) -> Iterator[str]:
    findings: dict[str, list[str]] = defaultdict(list)
    for run, said in table.drop_duplicates("run")[["run", "findings"]].itertuples(index=False):
        for finding in said:
            findings[_kind(finding)].append(run)
    if findings:
        yield "<p>Alike but for their numbers.</p>\n"
        yield from _table(
            ("finding", "runs"), ((html.escape(_micro(text)), _runs(runs, pages)) for text, runs in findings.items())
        )


def _constants(together: pd.DataFrame) -> Iterator[str]:
    yield "<p>Random-effects means; tau is the standard deviation between runs.</p>\n"
    known = together[together["value"].notna()] if "value" in together else together
    at_length: list[tuple[str, float, tuple[str, ...]]] = []
    rows = []
    for one in known.to_dict("records"):
        value = Estimate(one["value"], one["sigma"], int(one["runs"]))
        unit = one["unit"] if isinstance(one["unit"], str) else ""
        row = (
            html.escape(one["constant"]),
            _text(one["host"]),
            str(value).replace("±", " ±\N{NO-BREAK SPACE}"),
            html.escape(_micro(unit)),
            _number(one["tau"]),
            str(one["runs"]),
            _text(one["card"]),
            "<br>".join(html.escape(line) for line in one["outliers"]),
        )
        name, at, length = one["constant"].partition(".at_")
        if at:
            at_length.append((name, float(length), row))
        else:
            rows.append(row)
    head = ("constant", "host", "value", "unit", "tau", "number of runs", "card", "outliers")
    yield from _table(head, rows)
    if at_length:
        yield f"<details><summary>By length of the frames ({len(at_length)} rows)</summary>\n"
        yield from _table(head, (row for _, _, row in sorted(at_length)))
        yield "</details>\n"


def _of_run(source: Source, table: pd.DataFrame, numbers: dict[str, Any]) -> Iterator[str]:
    """A page of one run from its numbers; the whole report, with figures, comes with ``run --pages``."""
    yield _HEAD.format(title=html.escape(Path(source.url).name))
    yield f"<p>{html.escape(source.url)}</p>\n"
    if numbers.get("simulated"):
        yield '<p class="marked">Simulated: no real bus stands behind these numbers.</p>\n'
    for finding in numbers.get("findings", ()):
        yield f"<p>Finding: {html.escape(_micro(finding))}</p>\n"
    rows = []
    for one in table.to_dict("records"):
        value = None if pd.isna(one["value"]) else one["value"]
        sigma = None if pd.isna(one["sigma"]) else one["sigma"]
        unit = one["unit"] if isinstance(one["unit"], str) else ""
        told = "unknown" if value is None else str(Estimate(value, sigma, 1)).replace("±", " ±\N{NO-BREAK SPACE}")
        count = "" if pd.isna(one["n"]) else str(int(one["n"]))
        rows.append(
            (
                html.escape(one["constant"]),
                _text(one["host"]),
                told,
                html.escape(_micro(unit)),
                count,
                _text(one["reason"]),
            )
        )
    yield from _table(("number", "host", "value", "unit", "n", "why not known"), rows)
    yield _END


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table, without the columns that are empty in every row."""
    told = list(rows)
    kept = [n for n in range(len(head)) if not told or any(row[n] for row in told)]
    style = [' class="number"' if head[n] in _NUMBERS else "" for n in kept]
    yield '<div class="scroll"><table><tr>'
    yield "".join(f"<th{of}>{head[n]}</th>" for n, of in zip(kept, style, strict=True)) + "</tr>\n"
    for row in told:
        yield "<tr>" + "".join(f"<td{of}>{row[n]}</td>" for n, of in zip(kept, style, strict=True)) + "</tr>\n"
    yield "</table></div>\n"


def _row(one: dict[str, Any], pages: dict[str, str]) -> tuple[str, ...]:
    seconds, held = one["seconds"], one["peak_mib"]
    return (
        _link(one["run"], pages),
        one["state"],
        "" if seconds is None else f"{seconds:.2f}",
        "" if held is None else f"{held:.0f}",
        html.escape(str(one["reason"] or "")),
    )


def _link(run: str, pages: dict[str, str]) -> str:
    name = html.escape(Path(run).name)
    return f'<a href="{html.escape(pages[run])}">{name}</a>' if run in pages else name


def _runs(runs: Iterable[str], pages: dict[str, str] | None = None) -> str:
    named = [_link(run, pages or {}) for run in runs]
    return ", ".join(named[:12]) + (f" and {len(named) - 12} more" if len(named) > 12 else "")


def _kind(finding: str) -> str:
    """A finding without its numbers, so that the same one of many runs is one."""
    return re.sub(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "…", finding)


def _micro(text: str) -> str:
    """A unit or a sentence with the sign µ where it says us."""
    return re.sub(r"(?<![\w.])us(?!\w)", "µs", text)


def _text(value: Any) -> str:
    return html.escape(value) if isinstance(value, str) else ""


def _number(value: Any) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.2g}"
