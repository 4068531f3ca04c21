"""An interactive view of a run: one page that holds everything, or a widget in Jupyter."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcitrace.view.bundle import asset, script
from pcitrace.view.contents import contents

if TYPE_CHECKING:
    from pcitrace.run import Run

__all__ = ["page", "widget", "write"]


def page(run: Run, *, lines: bool = True, data: bool = False) -> str:
    """Return a page that shows a run: lanes to zoom into, what was decoded at a click, search; it needs no other file.

    Parameters
    ----------
    run : Run
        A capture or a run folder, as :func:`pcitrace.open` gives it.
    lines : bool
        With the control lines as waveforms: about twice the size.
    data : bool
        With the data words of all data phases: some bytes more a data phase.

    Returns
    -------
    str
        HTML.
    """
    about, packed = contents(run, lines=lines, data=data)
    title = html.escape(f"{about['title']}{' (simulated)' if about['simulated'] else ''}")
    return asset("page.html").format(
        title=title, css=asset("view.css"), about=_in_script(about), packed=packed, script=script()
    )


def write(run: Run, path: Path | str, *, lines: bool = True, data: bool = False) -> None:
    """Write the page of :func:`page`."""
    Path(path).write_text(page(run, lines=lines, data=data), encoding="utf-8")


def widget(run: Run, *, lines: bool = True, data: bool = False) -> Any:
    """Return the view as a widget of Jupyter.

    Raises
    ------
    ImportError
        anywidget is not installed.
    """
    from pcitrace.view.jupyter import ViewWidget

    about, packed = contents(run, lines=lines, data=data)
    return ViewWidget(about=about, packed=packed)


def _in_script(value: Any) -> str:
    """Return JSON that may stand in a script element, whatever its texts are."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
