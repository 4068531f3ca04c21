"""Draws the views of `pcitrace stats` from a trace of the repository, of a modelled bus with several initiators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib import pyplot
from matplotlib.axes import Axes

import pcitrace
from pcitrace import plot

TRACE = Path(__file__).resolve().parent.parent / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"
DRAWN: dict[str, Callable[[pcitrace.Run], Axes]] = {
    "shares": lambda run: plot.shares(run, by="commands"),
    "latency": lambda run: plot.latency(run, kind="first_data"),
    "bursts": lambda run: plot.bursts(run, of="bytes"),
    "terminations": lambda run: plot.terminations(run, by="initiators"),
    "waits": plot.waits,
    "held_up": plot.held_up,
    "delayed": plot.delayed,
}


def draw(folder: Path) -> None:
    """Write all figures as SVG."""
    run = pcitrace.open(TRACE)
    for name, figure in DRAWN.items():
        ax = figure(run)
        ax.figure.savefig(folder / f"stats-{name}.svg")
        pyplot.close(ax.figure)
