"""The zoomable figure of the page: the view of the run, as text that costs nothing until it is looked at."""

from __future__ import annotations

import json
from dataclasses import dataclass

from markupsafe import Markup

from pcitrace.results import Results
from pcitrace.view.bundle import asset, script
from pcitrace.view.contents import contents

__all__ = ["Embedded", "embedded"]

WITH_LINES, ROWS_ALONE = 20_000, 150_000
"""Transactions up to which the view stands in the page with its control lines; and without: about 2 MB."""


@dataclass(frozen=True)
class Embedded:
    """What the page needs to show the view; `note` says what is not there."""

    note: str
    about: str = ""
    packed: str = ""
    script: str = ""
    css: str = ""


def embedded(results: Results) -> Embedded:
    """Return the view of a run, or where it would make the page too large the command that writes it."""
    run = results.run
    rows = sum(len(run.table(name)) for name in run.buses)
    if not rows:
        return Embedded("No transaction was found, so there is nothing to zoom into.")
    command = f"pcitrace view {run.path.name} -o view.html"
    if rows > ROWS_ALONE:
        return Embedded(
            f"{rows:,} transactions are too many for this page. {command} writes them as a page of their own."
        )
    about, packed = contents(run, lines=rows <= WITH_LINES)
    note = "" if rows <= WITH_LINES else f"Without the lines as waveforms: {command} shows them, too."
    if len(results.frames) < (about["frames"] or {"n": 0})["n"]:
        note += " All frames of the run are shown, not only those that the numbers are of."
    text = json.dumps(about, separators=(",", ":")).replace("<", "\\u003c")
    return Embedded(note.strip(), Markup(text), packed, Markup(script()), Markup(asset("view.css")))
