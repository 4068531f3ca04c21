"""The report of a run: one HTML page that stands alone, with figures, tables, and the definition of every number.

What the page shows is what :mod:`pcitrace.results` holds; nothing is computed here but counts and pictures.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pcitrace import analysis
from pcitrace.freed import give_back
from pcitrace.plot.style import duration
from pcitrace.report.answer import constants
from pcitrace.report.embedded import embedded
from pcitrace.report.pagekit import grouped, rendered
from pcitrace.report.pdf import browser, write_pdf
from pcitrace.report.provenance import provenance
from pcitrace.report.sections import SECTIONS
from pcitrace.results import Results
from pcitrace.sidebyside import each

__all__ = ["page", "write"]


def write(results: Results, path: str | Path) -> None:
    """Write the report.

    Parameters
    ----------
    results : pcitrace.results.Results
    path : str or pathlib.Path
        The HTML file; a PDF where its name ends in ``.pdf``.

    Raises
    ------
    PciTraceError
        A PDF was asked for, and there is no browser to print it.
    """
    if Path(path).suffix.lower() == ".pdf":
        program = browser(Path(path))  # before the page is made, which takes seconds
        write_pdf(program, page(results), Path(path))
    else:
        Path(path).write_text(page(results), encoding="utf-8")


def page(results: Results) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    results : pcitrace.results.Results

    Returns
    -------
    str
        A whole page; it refers to nothing outside of itself.
    """
    run = results.run
    said = run.folder.run if run.folder is not None else {}
    # To read the captures for their hashes takes as long as some of the figures.
    made_of, sections = each(lambda make: make(), (partial(provenance, results), partial(_sections, results)))
    return rendered(
        "page.html",
        title=said.get("title") or run.path.resolve().name,
        simulated=run.folder is not None and run.folder.simulated,
        facts=_facts(results),
        notes=_notes(results, said),
        answer=constants(results),
        findings=list(results.findings),
        sections=sections,
        view=embedded(results),
        provenance=made_of,
    )


def _sections(results: Results) -> list[Any]:
    made = []
    for make in SECTIONS:
        made.append(make(results))
        give_back()
    return [section for section in made if section is not None]


def _facts(results: Results) -> str:
    """Return what the run is, in one line."""
    run = results.run
    buses = [
        f"{name}: {grouped(len(run.table(name)))} transactions"
        + ("" if run[name].clock_mhz is None else f" at {run[name].clock_mhz:.4g} MHz")
        for name in run.buses
    ]
    whole = max((used.end_us - used.start_us for used in results.usage.values()), default=0.0)
    return " · ".join([*buses, f"{grouped(len(results.frames))} frames", duration(whole)])


def _notes(results: Results, said: dict[str, Any]) -> list[str]:
    """Return what the reader must know before the first number."""
    run, frames = results.run, results.frames
    notes = []
    if said.get("origin") == "replayed":
        notes.append(
            f"Replayed: the bus traffic is that of {said.get('source', 'another capture')} "
            f"({said.get('source_origin', 'origin not stated')}), played back while other frames passed. Trace and "
            "frame logs stand side by side and are joined in nothing."
        )
    if run.folder is not None and run.folder.simulated:
        notes.append(
            "Simulated: no real bus stands behind these numbers. That the analysis gives back what the simulation was "
            "fed shows that the analysis is right, not that the constants are."
        )
    if not said.get("complete", True):
        notes.append(f"Incomplete: {said.get('reason', 'no reason stated')}. The numbers are of what is there.")
    notes += [
        f"The capture {capture['file']} is incomplete: {capture.get('reason', 'no reason stated')}."
        for capture in said.get("captures", ())
        if not capture.get("complete", True)
    ]
    if len(frames.hosts) == 1:
        notes.append("One host: what the other bus would tell (receive side, gap, t_nic) is not known.")
    every = len(analysis.frames(run))
    if len(frames) < every:
        notes.append(f"Some of the frames: {len(frames)} of {every}. The use of the buses is that of the whole run.")
    if not every:
        notes.append("No frame was found on the buses: only what the transactions tell is given.")
    return notes
