"""Draws the figures of the site from simulated runs, so that they show what the code does today."""

from __future__ import annotations

import tempfile
from pathlib import Path

import draw_instrument
import draw_lattice
import draw_network
import draw_primer
import matplotlib as mpl
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

import pcitrace
from pcitrace import plot, results
from pcitrace.simulate import simulate


def draw(folder: Path) -> None:
    """Write all figures as SVG."""
    mpl.use("svg")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, mpl.rc_context({"svg.fonttype": "none", "font.size": 9}):
        place = Path(temporary)
        simulate("acenic-fig3.1", place / "fig3.1")
        simulate("acenic-fig4.2b", place / "fig4.2b", test__count=100)
        simulate("acenic-fig3.1", place / "full", test__count=4, analyser__wires="full")
        run = pcitrace.open(place / "fig3.1")
        _save(plot.exchange(run), folder / "exchange.svg")
        _save(plot.occupancy(run), folder / "occupancy.svg")
        _save(plot.histogram(run, "t_nic_us", "not queued"), folder / "histogram.svg")
        _save(plot.lanes(pcitrace.open(place / "fig4.2b"), 0, 2000), folder / "lanes.svg")
        full = pcitrace.open(place / "full")
        start = float(full.frames.table["csr_first_us"].iloc[0])
        _save(plot.timeline(full, start - 0.06, start + 0.62), folder / "timeline.svg")
        _equation(run, folder)
        draw_primer.draw(folder)
        draw_instrument.draw(folder)
        draw_network.figures(folder, place)
        draw_lattice.draw(draw_lattice.generated(place / "reread"), "B", folder / "lattice.svg")


def _equation(run: pcitrace.Run, folder: Path) -> None:
    found = results.of_run(run)
    timing, table = found.timing, found.model.contributions(found.fit)
    means = timing.by_length
    gap = plot.line(
        run,
        np.maximum(means["length_bytes"].to_numpy(float), 46) + 26,
        means["gap_us"],
        means["gap_sem_us"],
        intercept=timing.gap.intercept.value,
        slope=timing.gap.slope.value,
        label=f"{timing.gap.intercept.value:.2f} + {timing.gap.slope.value:.5f} x",
        other=(timing.gap.intercept.value, 0.008, "the wire's 0.008 µs/byte"),
        names=("bytes on the wire", "gap (µs)"),
    )
    _save(gap, folder / "gap.svg")
    for name, column, unit in (("budget", "intercept_us", "µs"), ("slope", "slope_us_per_byte", "µs/byte")):
        parts = table[column].drop(["sum", "measured", "difference"])
        _save(plot.budget(run, parts[parts != 0], float(table[column]["measured"]), unit=unit), folder / f"{name}.svg")


def _save(ax: Axes, path: Path) -> None:
    ax.figure.savefig(path)
    pyplot.close(ax.figure)
