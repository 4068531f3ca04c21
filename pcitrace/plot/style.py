"""What all figures share: colours, the mark of simulated runs, tables as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pcitrace.analysis import on_axis
from pcitrace.run import format_duration

try:
    from matplotlib.axes import Axes
except ImportError as error:
    raise ImportError(f"figures need matplotlib: pip install 'pcitrace[plot]' ({error})") from error

if TYPE_CHECKING:
    from pcitrace.run import Run

__all__ = [
    "BUS_COLOURS",
    "CLEAR",
    "CONTROL",
    "DATA",
    "FAINT",
    "INK",
    "WIRE",
    "Floats",
    "axes_for",
    "draw_bars",
    "duration",
    "finish",
    "numbers",
    "round_up",
    "time_span",
    "within",
]

Floats = npt.NDArray[np.float64]

DATA, CONTROL, WIRE, INK, FAINT = "#bf4500", "#00785a", "#2f6db3", "#333333", "#6f757e"
"""Told apart by those who do not tell red from green; white text on the first three has a contrast of 4.5 or more."""
BUS_COLOURS = (WIRE, DATA)
CLEAR = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
"""Box behind a text that must stay readable on bars and lines."""


def axes_for(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the Axes that were given, else those of a new figure of this size (inches)."""
    if ax is not None:
        return ax
    from matplotlib import pyplot  # which a page with figures does without

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def finish(run: Run, ax: Axes) -> Axes:
    """Leave the frame away, and say so where no bus stands behind the picture."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if run.folder is not None and run.folder.simulated and not any(text.get_text() == "simulated" for text in ax.texts):
        ax.annotate(
            "simulated",
            (1, 1),
            (0, 3),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            fontsize="small",
            color="#9a5b00",
            weight="bold",
        )
    return ax


def draw_bars(ax: Axes, start: Any, end: Any, y: float, colour: str, height: float = 0.7) -> Any:
    """Draw bars; a thin edge keeps short ones visible."""
    begin = numbers(start)
    spans = list(zip(begin.tolist(), (numbers(end) - begin).tolist(), strict=True))
    return ax.broken_barh(spans, (y - height / 2, height), facecolors=colour, edgecolors=colour, linewidth=0.5)


def time_span(run: Run, start_us: float | None, end_us: float | None) -> tuple[float, float]:
    """Return the part of the time axis that was asked for, else from the first to the last clock of any bus."""
    clocks = [on_axis(run, name, run[name].clocks()) for name in run.buses]
    start = min(float(one["start_us"].iloc[0]) for one in clocks) if start_us is None else start_us
    end = max(float(one["end_us"].iloc[-1]) for one in clocks) if end_us is None else end_us
    return start, end


def within(
    table: pd.DataFrame, start: float, end: float, first: str = "start_us", last: str = "end_us"
) -> pd.DataFrame:
    """Return the rows that have a part of `start` to `end`; two columns say from when to when each is."""
    return table[(numbers(table[last]) >= start) & (numbers(table[first]) <= end)]


def numbers(values: Any) -> Floats:
    """Return values as float64, null as NaN."""
    if isinstance(values, pd.Series | pd.DataFrame):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(values, dtype=np.float64)


def duration(us: float) -> str:
    """Return a length of time with the unit that suits it."""
    return format_duration(us * 1e-6).replace("us", "µs")


def round_up(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= value))
