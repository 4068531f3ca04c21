"""What the numbers look like: use of the buses, distributions, lines with their residuals, budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.ticker import FuncFormatter

from pcitrace import analysis
from pcitrace.analysis import on_axis
from pcitrace.errors import FrameMatchError
from pcitrace.plot.style import (
    BUS_COLOURS,
    CLEAR,
    DATA,
    FAINT,
    INK,
    WIRE,
    Floats,
    axes_for,
    duration,
    finish,
    numbers,
    round_up,
    time_span,
)
from pcitrace.timing.usage import Usage, of_bus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pcitrace.frames import Frames
    from pcitrace.run import Run

__all__ = ["budget", "histogram", "line", "occupancy"]

LONG_US = 2e6
"""Length of a run from which on its time is shown in seconds."""


def occupancy(
    run: Run,
    window_us: float | None = None,
    *,
    usage: Mapping[str, Usage] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how much of each bus's time is used: lines for occupied, filled for moving data; a second bus downwards.

    Occupancy: clocks in which FRAME# or IRDY# is asserted, over all clocks whose state is known.

    Parameters
    ----------
    run : Run
    window_us : float, optional
        Length of a window in us; default: about 200 windows.
    usage : mapping of str to Usage, optional
        By bus, as in :class:`pcitrace.results.Results`, where it is there already.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = axes_for(ax, (9.0, 3.0))
    start, end = time_span(run, None, None)
    window = window_us or round_up((end - start) / 200)
    unit, per_us = ("s", 1e6) if end - start >= LONG_US else ("ms", 1e3)
    for colour, (side, where), name in zip(BUS_COLOURS, ((100, "up"), (-100, "down")), run.buses, strict=False):
        clocks = _series(run, name, window, usage[name] if usage is not None else None)
        edges = np.append(numbers(clocks["start_us"]), numbers(clocks["end_us"])[-1:]) / per_us
        ax.stairs(side * numbers(clocks["data_occupancy"]), edges, color=colour, alpha=0.4, fill=True, lw=0)
        ax.stairs(side * numbers(clocks["occupancy"]), edges, color=colour, lw=1, label=f"{name} ({where})")
    ax.set_xlabel(f"time ({unit})")
    ax.set_ylabel(f"clocks in use (%)\nper {duration(window)}; filled: data")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g}"))
    ax.axhline(0, color=INK, lw=0.8)
    ax.margins(x=0, y=0.12)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, ncols=2, fontsize="small", borderpad=0)
    return finish(run, ax)


def _series(run: Run, name: str, window_us: float, usage: Usage | None) -> pd.DataFrame:
    """Return the use of a bus in windows.

    Where the state of every clock is known the transactions tell it; else the capture is decoded again with windows, so
    that clocks whose state is not known are left out.
    """
    if run[name].clocks()["unknown"].sum() == 0:
        used = of_bus(run, name) if usage is None else usage
        return run.once(f"use of {name} in windows of {window_us} us", lambda: used.series(window_us))
    return on_axis(run, name, run[name].clocks(window_us))


def histogram(
    run: Run,
    quantity: str = "t_nic_us",
    where: str | None = None,
    *,
    frames: Frames | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how a time of the frames is distributed, with mean, standard deviation and full width at half maximum.

    Parameters
    ----------
    run : Run
    quantity : str
        Column of ``run.frames.table``, or an expression of columns: ``rx_dma_end_us - csr_first_us`` is the latency
        from the first CSR access to the last word in the receiver's memory.
    where : str, optional
        Only frames that fulfil this condition, such as ``"not queued and length_bytes == 64"``.
    frames : Frames, optional
        Some of the run's frames; default: all.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = axes_for(ax, (6.0, 3.2))
    some = analysis.frames(run) if frames is None else frames
    chosen = slice(None) if where is None else some.fulfil(where)
    try:
        values = numbers(pd.Series(some.table.eval(quantity)))[chosen]
    except (NameError, SyntaxError, TypeError, ValueError) as error:
        raise FrameMatchError(f"{quantity!r} is no time of frames: {error}") from error
    values = values[np.isfinite(values)]
    ax.set_xlabel(f"{quantity.removesuffix('_us')} (µs)" if quantity.isidentifier() else f"{quantity} (µs)")
    ax.set_ylabel("frames")
    if not len(values):
        ax.text(0.5, 0.5, "no frame has this time", transform=ax.transAxes, ha="center", color=FAINT)
        return finish(run, ax)
    counts, edges = np.histogram(values, _edges(values))
    ax.stairs(counts, edges, fill=True, color=WIRE, alpha=0.85)
    mean, sigma = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    ax.axvline(mean, ymax=0.86, color=DATA, lw=1)
    high = edges[:-1][counts >= counts.max() / 2]
    fwhm = float(high[-1] - high[0] + edges[1] - edges[0])
    ax.set_ylim(top=1.22 * float(counts.max()))
    ax.text(
        0.01,
        0.97,
        f"n {len(values)}, mean {mean:.3f}, sigma {sigma:.3f}, FWHM {fwhm:.3f} µs",
        transform=ax.transAxes,
        va="top",
        fontsize="small",
        bbox=CLEAR,
    )
    ax.set_title(where or "", loc="left", fontsize="small")
    return finish(run, ax)


def _edges(values: Floats) -> Floats:
    """Return bins by the rule of Freedman and Diaconis, in whole steps of what the values are rounded to."""
    low, high = float(values.min()), float(values.max())
    quarter = float(np.subtract(*np.percentile(values, [75, 25])))
    width = 2 * quarter / len(values) ** (1 / 3) or (high - low) / 30 or 0.01
    width = max(width, (high - low) / 200)
    steps = np.diff(np.unique(values.round(6)))
    steps = steps[steps > 1e-6]
    if len(steps) and steps.min() > width / 20:
        width = float(np.ceil(width / steps.min()) * steps.min())
        low -= float(steps.min()) / 2
    return np.asarray(low + width * np.arange(int((high - low) / width) + 2), dtype=np.float64)


def line(
    run: Run,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    sigma: npt.ArrayLike | None = None,
    *,
    intercept: float,
    slope: float,
    label: str = "fit",
    other: tuple[float, float, str] | None = None,
    names: tuple[str, str] = ("", ""),
    ax: Axes | None = None,
) -> Axes:
    """Draw points, a straight line through them, and what the points are off it.

    Parameters
    ----------
    run : Run
    x, y : array of float, shape (n,)
        Points.
    sigma : array of float, shape (n,), optional
        Standard uncertainties of `y`; drawn where known.
    intercept, slope : float
        The line.
    label : str
        What the line is.
    other : (float, float, str), optional
        Intercept, slope and label of a line to compare with.
    names : (str, str)
        Labels of both axes.
    ax : Axes, optional
        Made by ``subplots()``; the lower part of its place is for the residuals.

    Returns
    -------
    Axes
        That of the points; the residuals' is the last of its figure.

    Raises
    ------
    ValueError
        `ax` was not made by ``subplots()``.
    """
    ax = axes_for(ax, (6.0, 4.2))
    at, values = numbers(x), numbers(y)
    errors = None if sigma is None else np.nan_to_num(numbers(sigma))
    ends = np.array([at.min(), at.max()]) if len(at) else np.array([0.0, 1.0])
    place = ax.get_subplotspec()
    if place is None or ax.figure is None:
        raise ValueError("a line needs Axes made by subplots(): a part of their place is for the residuals")
    halves = place.subgridspec(2, 1, height_ratios=[5, 2])
    ax.set_subplotspec(halves[0])
    below = ax.figure.add_subplot(halves[1], sharex=ax)
    for axes, level in ((ax, values), (below, values - intercept - slope * at)):
        axes.errorbar(at, level, errors, fmt="o", ms=3.5, color=INK, ecolor=FAINT, elinewidth=1, zorder=3)
    ax.plot(ends, intercept + slope * ends, color=DATA, lw=1.2, label=label)
    below.axhline(0, color=DATA, lw=1)
    if other is not None:
        start, rise, name = other
        ax.plot(ends, start + rise * ends, color=WIRE, lw=1.2, ls="--", label=name)
        below.plot(ends, start - intercept + (rise - slope) * ends, color=WIRE, lw=1, ls="--")
    ax.tick_params(labelbottom=False)
    ax.set_ylabel(names[1])
    below.set_xlabel(names[0])
    unit = names[1].rpartition(" (")
    below.set_ylabel(f"residual ({unit[2]}" if unit[1] else "residual")
    for side in ("top", "right"):
        below.spines[side].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    return finish(run, ax)


def budget(run: Run, parts: pd.Series[float], whole: float | None = None, *, unit: str, ax: Axes | None = None) -> Axes:
    """Draw what contributes how much: each bar begins where the one above it ends; the last is their sum.

    Parameters
    ----------
    run : Run
    parts : Series of float
        Contributions by name, from the top.
    whole : float, optional
        What was measured of the sum.
    unit : str
        Of the numbers.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = axes_for(ax, (7.0, 0.9 + 0.32 * len(parts)))
    values = np.append(numbers(parts), parts.sum())
    starts = np.append(np.cumsum(values[:-1]) - values[:-1], 0.0)
    rows = -np.arange(len(values))
    ax.barh(rows, values, left=starts, height=0.62, color=[WIRE] * len(parts) + [INK])
    reach = max(float((starts + values).max()), whole or 0.0)
    for row, start, value in zip(rows, starts, values, strict=True):
        ax.annotate(
            f"{value:.4g}",
            (max(start, start + value), row),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox=CLEAR,
        )
    if whole is not None:
        ax.axvline(whole, color=DATA, lw=1.2)
        ax.annotate(
            f"measured: {whole:.4g}",
            (whole, 0.62),
            (-3, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            color=DATA,
        )
    ax.set_yticks(rows, [*map(str, parts.index), "sum"])
    ax.set_xlim(min(0.0, float(starts.min())), 1.12 * reach)
    ax.set_ylim(rows[-1] - 0.6, 1.1 if whole is not None else 0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"contribution ({unit})")
    return finish(run, ax)
