"""Draws the timing diagrams of the primer from traces of the repository, which are of modelled buses."""

from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot

import pcitrace
from pcitrace import plot

TRACES = Path(__file__).resolve().parent.parent / "fixtures" / "traces"
ENDS = {
    "retry": (37.2, 37.5),
    "disconnect_with_data": (28.8, 29.2),
    "target_abort": (29.31, 29.64),
    "master_abort": (61.08, 61.38),
}
"""Where blue33_seq6 has each end by itself."""


def draw(folder: Path) -> None:
    """Write all figures as SVG."""
    card, all_ends = (pcitrace.open(TRACES / name / "bus.vcd.gz") for name in ("nic_g_a", "blue33_seq6"))
    for name, run, bus, start, end in (("read", card, "A", 26.2, 26.62), ("write", all_ends, None, 93.6, 93.95)):
        figure, ax = pyplot.subplots(figsize=(9, 3.4), layout="constrained")
        plot.waveform(run, start, end, bus=bus, ax=ax)
        _save(figure, folder / f"primer-{name}.svg")
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), layout="constrained")
    for ax, (name, (start, end)) in zip(axes.flat, ENDS.items(), strict=True):
        plot.waveform(all_ends, start, end, lines=["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#"], ax=ax)
        rows = all_ends.bus.transactions
        within = rows[(rows["start_us"] >= start) & (rows["end_us"] <= end)]
        assert within["termination"].tolist() == [name], f"{name} is not what the trace has there"
        ax.set_title(name.replace("_", " "), loc="left", fontsize=10, pad=14)
    _save(figure, folder / "primer-ends.svg")


def _save(figure: pyplot.Figure, path: Path) -> None:
    figure.savefig(path)
    pyplot.close(figure)
