"""Figures. Each takes a run first and ``ax=``, returns its Axes, and says where the run is simulated.

Colours follow figure 3.1 of the ATLAS note (Hughes-Jones and Saka, 2000): red where data moves by DMA, green for all
that happens on the bus, control accesses included.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pcitrace.analysis import on_axis
from pcitrace.errors import FrameMatchError

try:
    from matplotlib import pyplot
    from matplotlib.axes import Axes
    from matplotlib.ticker import FuncFormatter
except ImportError as error:
    raise ImportError(f"figures need matplotlib: pip install 'pcitrace[plot]' ({error})") from error

if TYPE_CHECKING:
    from pcitrace.run import Run

__all__ = ["budget", "exchange", "histogram", "lanes", "line", "occupancy", "timeline"]

Floats = npt.NDArray[np.float64]

DATA, CONTROL, WIRE, INK, FAINT = "#c0392b", "#2e8b57", "#2f6db3", "#333333", "#8a8f98"
BUS_COLOURS = ("#2f6db3", "#d9822b")
PARTS = ("#2f6db3", "#d9822b", "#2e8b57", "#c0392b", "#8e6bb0", "#8a8f98")


def lanes(run: Run, start_us: float | None = None, end_us: float | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw what happens on each bus: red bars where the NIC moves data, green bars for data and control accesses.

    Parameters
    ----------
    run : Run
    start_us, end_us : float, optional
        Part of the run's time axis in us; default: all of it.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = _axes(ax, (9.0, 3.4))
    start, end = _span(run, start_us, end_us)
    places = _places(run)
    for name in run.buses:
        bars = _within(on_axis(run, name, run[name].transactions), start, end)
        _bars(ax, bars["start_us"], bars["end_us"], places[f"{name} control"], CONTROL)
        traffic = run.frames.hosts[name].pieces.dropna(subset=["first_data_us"])
        pieces = _within(traffic.assign(end_us=traffic["last_data_us"]), start, end)
        _bars(ax, pieces["first_data_us"], pieces["last_data_us"], places[f"{name} data"], DATA)
        if "wire" in places:
            sent = run.frames.table.query("sender == @name").dropna(subset=["wire_start_us", "wire_end_us"])
            wire = _within(sent.assign(start_us=sent["wire_start_us"], end_us=sent["wire_end_us"]), start, end)
            _bars(ax, wire["start_us"], wire["end_us"], places["wire"], WIRE)
    labels = {"control": "data and control", "data": "data"}
    ax.set_yticks(
        list(places.values()),
        [f"{name.split()[0]}: {labels[name.split()[1]]}" if " " in name else name for name in places],
    )
    ax.set_ylim(min(places.values()) - 0.7, max(places.values()) + 0.7)
    ax.set_xlim(start, end)
    ax.set_xlabel("time (µs)")
    ax.tick_params(axis="y", length=0)
    return _finish(run, ax)


def exchange(run: Run, frame: int | None = None, count: int = 2, *, ax: Axes | None = None) -> Axes:
    """Draw some frames on their way from memory to memory as in figure 3.1, with the times between their steps.

    Parameters
    ----------
    run : Run
    frame : int, optional
        Row of ``run.frames.table`` to begin with; default: the first that was followed to the other host and waited
        for none.
    count : int
        Frames to show; 2 are a request and its response.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    FrameMatchError
        There is no such frame.
    """
    table = run.frames.table
    if frame is None:
        followed = table[table["rx_dma_end_us"].notna() & table["dma_start_us"].notna()]
        fluent = followed[~followed["queued"].astype(bool)]
        frame = next(iter((fluent if len(fluent) else followed)["frame"]), None)
        if frame is None:
            raise FrameMatchError(f"{run.path}: no frame was followed from one host to the other")
    rows = table[(table["frame"] >= frame) & (table["frame"] < frame + count)]
    if rows.empty:
        raise FrameMatchError(f"{run.path}: no frame {frame}; there are {len(table)}, from 0")
    times = _numbers(rows.filter(like="_us").drop(columns=[name for name in rows if name in _DURATIONS]))
    start, end = float(np.nanmin(times)), float(np.nanmax(times))
    margin = 0.06 * (end - start)
    ax = lanes(run, start - margin, end + margin, ax=_axes(ax, (9.0, 4.2)))
    places = _places(run)
    hosts = list(run.buses)
    for _, row in rows.iterrows():
        for host, steps in ((row["sender"], _SEND_STEPS), (row["receiver"], _RECEIVE_STEPS)):
            if host not in hosts:
                continue
            side = 1 if host == hosts[0] else -1
            for first, last, level in steps:
                _measure(ax, row[first], row[last], places[f"{host} control"] + side * (0.5 + 0.36 * level), side)
        if row["receiver"] in hosts:
            _follow(ax, row, places)
    low, high = min(places.values()), max(places.values())
    ax.set_ylim(low - (1.5 if len(hosts) == 2 else 0.7), high + 1.5)
    lengths = ", ".join(f"{row['sender']}: {row['length_bytes']} bytes" for _, row in rows.iterrows())
    ax.set_title(
        f"frames {rows['frame'].iloc[0]} to {rows['frame'].iloc[-1]} ({lengths})", loc="left", fontsize="small"
    )
    return ax


_DURATIONS = ("dma_us", "gap_us", "rx_dma_us", "wire_us", "t_nic_us", "t_nic_tx_us", "t_nic_rx_us")
_SEND_STEPS = (
    ("csr_first_us", "csr_last_us", 1),
    ("csr_last_us", "dma_start_us", 0),
    ("dma_end_us", "csr_done_us", 0),
)
_RECEIVE_STEPS = (("rx_dma_end_us", "rx_csr_us", 0),)


def _follow(ax: Axes, row: pd.Series[Any], places: dict[str, float]) -> None:
    """Mark the gap between the DMA of both sides, and what of it the wire takes."""
    if pd.isna(row["gap_us"]):
        return
    sent, received = places[f"{row['sender']} data"], places[f"{row['receiver']} data"]
    middle = (sent + received) / 2
    for time, lane in ((row["dma_end_us"], sent), (row["rx_dma_start_us"], received)):
        ax.plot([time, time], [lane, middle], color=FAINT, lw=0.7, ls=":", zorder=1)
    _measure(ax, row["dma_end_us"], row["rx_dma_start_us"], middle + 0.42, 1, "gap {:.2f}")
    if not pd.isna(row["wire_start_us"]):
        _measure(ax, row["dma_end_us"], row["wire_start_us"], middle - 0.42, -1)
        _measure(ax, row["wire_end_us"], row["rx_dma_start_us"], middle - 0.42, -1)


def _measure(ax: Axes, first: Any, last: Any, y: float, side: int, text: str = "{:.2f}") -> None:
    """Draw a span with its length in us; nothing where an end is not known."""
    if pd.isna(first) or pd.isna(last):
        return
    ax.plot([first, last], [y, y], color=INK, lw=0.8, marker="|", markersize=5, zorder=3)
    ax.annotate(
        text.format(last - first),
        ((first + last) / 2, y),
        (0, 2 if side > 0 else -2),
        textcoords="offset points",
        ha="center",
        va="bottom" if side > 0 else "top",
        fontsize=8,
        color=INK,
    )


def timeline(run: Run, start_us: float | None = None, end_us: float | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the transactions of each bus with what was decoded: command, address, data, how they ended.

    Zoom and pan with the tools of the window: the closer, the more is written into the bars.

    Parameters
    ----------
    run : Run
    start_us, end_us : float, optional
        Part of the run's time axis in us to begin with; default: the first 20 transactions.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = _axes(ax, (9.0, 1.2 + 1.2 * len(run.buses)))
    if start_us is None and end_us is None:
        begin = [on_axis(run, name, run[name].transactions.head(20)) for name in run.buses]
        shown = pd.concat(begin)
        start_us, end_us = (float(shown["start_us"].min()), float(shown["end_us"].max())) if len(shown) else (0.0, 1.0)
        start_us, end_us = start_us - 0.02 * (end_us - start_us), end_us + 0.02 * (end_us - start_us)
    start, end = _span(run, start_us, end_us)
    drawn: list[Any] = []
    tables = {name: (_described(run, name), on_axis(run, name, run[name].data_phases)) for name in run.buses}

    def draw(axes: Axes) -> None:
        for artist in drawn:
            artist.remove()
        drawn.clear()
        low, high = axes.get_xlim()
        pixels = axes.get_window_extent().width / max(high - low, 1e-12)
        for lane, (transactions, phases) in enumerate(tables.values()):
            y = -1.5 * lane
            rows = _within(transactions, low, high)
            for kind, colour in (("control", CONTROL), ("data", DATA), ("unknown", FAINT)):
                some = rows[rows["lane"] == kind]
                drawn.append(_bars(axes, some["start_us"], some["end_us"], y, colour, 0.6))
            if len(rows) <= 400:
                for start_, end_, text in rows[["start_us", "end_us", "text"]].itertuples(index=False):
                    _write(axes, drawn, max(start_, low), min(end_, high), y, text, pixels)
            ticks = _within(phases.assign(start_us=phases["time_us"], end_us=phases["time_us"]), low, high)
            if 0 < len(ticks) <= 2000:
                drawn.append(axes.vlines(_numbers(ticks["time_us"]), y - 0.55, y - 0.35, color=INK, lw=0.7))
            if 0 < len(ticks) <= 60 and "data" in ticks:
                _write_data(axes, drawn, ticks, y - 0.58, pixels)

    ax.set_yticks([-1.5 * lane for lane in range(len(tables))], list(tables))
    ax.set_ylim(-1.5 * len(tables) + 0.45, 0.55)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time (µs); ticks below the bars: data phases")
    ax.set_xlim(start, end)
    ax.callbacks.connect("xlim_changed", draw)
    draw(ax)
    return _finish(run, ax)


def _described(run: Run, name: str) -> pd.DataFrame:
    """Return the transactions of a bus with the lane colour and the text that a timeline shows."""
    table = on_axis(run, name, run[name].transactions)
    pieces = run.frames.hosts[name].pieces["transaction"]
    lane = pd.Series("control", index=table.index).mask(table["transaction"].isin(pieces), "data")
    return table.assign(lane=lane, text="").assign(text=lambda rows: [_text(row) for row in rows.itertuples()])


def _text(row: Any) -> str:
    parts = [] if pd.isna(row.command_name) else [row.command_name.replace("_", " ")]
    parts += [] if pd.isna(row.address) else [f"{row.address:#010x}"]
    parts.append(f"{row.data_phases} ph.")
    return "  ".join(parts + ([] if row.termination == "completion" else [row.termination.replace("_", " ")]))


def _write(ax: Axes, drawn: list[Any], start: float, end: float, y: float, text: str, pixels: float) -> None:
    """Write a text into a bar, as much of it as the bar has room for, by whole words."""
    room = (end - start) * pixels / 5.2
    words = text.split("  ")
    while words and len("  ".join(words)) > room:
        words.pop()
    if words:
        drawn.append(ax.text((start + end) / 2, y, "  ".join(words), ha="center", va="center", color="w", fontsize=7))


def _write_data(ax: Axes, drawn: list[Any], ticks: pd.DataFrame, y: float, pixels: float) -> None:
    """Write the data of data phases below their ticks where there is room for eight digits."""
    known = ticks.dropna(subset=["data"])
    times = _numbers(known["time_us"])
    if len(times) > 1 and min(b - a for a, b in pairwise(times)) * pixels < 48:
        return
    for time, value in zip(times, known["data"], strict=True):
        drawn.append(ax.text(time, y, f"{value:08x}", ha="center", va="top", fontsize=6, color=INK))


def occupancy(run: Run, window_us: float | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw how much of each bus's time is used: lines for occupied, filled for moving data; a second bus downwards.

    Occupancy: clocks in which FRAME# or IRDY# is asserted, over all clocks whose state is known.

    Parameters
    ----------
    run : Run
    window_us : float, optional
        Length of a window in us; default: about 200 windows.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = _axes(ax, (9.0, 3.0))
    start, end = _span(run, None, None)
    window = window_us or _round_up((end - start) / 200)
    for colour, side, name in zip(BUS_COLOURS, (100, -100), run.buses, strict=False):
        clocks = on_axis(run, name, run[name].clocks(window))
        edges = np.append(_numbers(clocks["start_us"]), _numbers(clocks["end_us"])[-1:]) / 1e3
        ax.stairs(side * _numbers(clocks["data_occupancy"]), edges, color=colour, alpha=0.4, fill=True, lw=0)
        ax.stairs(side * _numbers(clocks["occupancy"]), edges, color=colour, lw=1, label=name)
    ax.set_xlabel("time (ms)")
    ax.set_ylabel(f"clocks in use (%)\nper {window:g} µs")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g}"))
    ax.axhline(0, color=INK, lw=0.8)
    ax.margins(x=0, y=0.12)
    ax.legend(title="filled: data moves", frameon=False, ncols=2, fontsize="small", title_fontsize="small")
    return _finish(run, ax)


def histogram(run: Run, quantity: str = "t_nic_us", where: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw how a time of the frames is distributed, with mean, standard deviation and full width at half maximum.

    Parameters
    ----------
    run : Run
    quantity : str
        Column of ``run.frames.table``, or an expression of columns: ``rx_dma_end_us - csr_first_us`` is the latency
        from the first CSR access to the last word in the receiver's memory.
    where : str, optional
        Only frames that fulfil this condition, such as ``"not queued and length_bytes == 64"``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = _axes(ax, (6.0, 3.2))
    frames = run.frames if where is None else run.frames[where]
    try:
        values = _numbers(pd.Series(frames.table.eval(quantity)))
    except (NameError, SyntaxError, TypeError, ValueError) as error:
        raise FrameMatchError(f"{quantity!r} is no time of frames: {error}") from error
    values = values[np.isfinite(values)]
    ax.set_xlabel(f"{quantity.removesuffix('_us')} (µs)" if quantity.isidentifier() else f"{quantity} (µs)")
    ax.set_ylabel("frames")
    if not len(values):
        ax.text(0.5, 0.5, "no frame has this time", transform=ax.transAxes, ha="center", color=FAINT)
        return _finish(run, ax)
    counts, edges = np.histogram(values, _edges(values))
    ax.stairs(counts, edges, fill=True, color=WIRE, alpha=0.85)
    mean, sigma = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    ax.axvline(mean, color=DATA, lw=1)
    high = edges[:-1][counts >= counts.max() / 2]
    fwhm = float(high[-1] - high[0] + edges[1] - edges[0])
    ax.text(
        0.98,
        0.95,
        f"n {len(values)}\nmean {mean:.3f}\nsigma {sigma:.3f}\nFWHM {fwhm:.3f}",
        transform=ax.transAxes,
        ha="right",
        va="top",
        fontsize="small",
        linespacing=1.4,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8},
    )
    ax.set_title(where or "", loc="left", fontsize="small")
    return _finish(run, ax)


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
        The residuals are drawn below it, half as high.

    Returns
    -------
    Axes
        That of the points; the residuals' is its ``child_axes[0]``.
    """
    ax = _axes(ax, (6.0, 4.2))
    at, values = _numbers(x), _numbers(y)
    errors = None if sigma is None else np.nan_to_num(_numbers(sigma))
    ends = np.array([at.min(), at.max()]) if len(at) else np.array([0.0, 1.0])
    below = ax.inset_axes((0, -0.48, 1, 0.4), sharex=ax)
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
    below.set_ylabel("residual")
    for side in ("top", "right"):
        below.spines[side].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    return _finish(run, ax)


def budget(run: Run, parts: pd.Series[float], whole: float | None = None, *, unit: str, ax: Axes | None = None) -> Axes:
    """Draw what contributes how much, side by side in one bar, with the measured sum where there is one.

    Parameters
    ----------
    run : Run
    parts : Series of float
        Contributions by name; negative ones are drawn to the left of 0.
    whole : float, optional
        What was measured of the sum.
    unit : str
        Of the numbers.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = _axes(ax, (9.0, 1.9))
    left = right = 0.0
    for colour, (name, value) in zip(PARTS * len(parts), parts.items(), strict=False):
        start = right if value >= 0 else left
        ax.barh(0, value, left=start, height=0.6, color=colour, edgecolor="white", label=f"{name} {value:.4g}")
        right, left = (right + value, left) if value >= 0 else (right, left + value)
    if whole is not None:
        ax.axvline(whole, color=INK, lw=1.4, label=f"measured {whole:.4g}")
    ax.set_yticks([])
    ax.set_xlabel(unit)
    ax.margins(x=0.02)
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.5), ncols=3, frameon=False, fontsize="small")
    return _finish(run, ax)


# --- what they share


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    return ax if ax is not None else pyplot.subplots(figsize=size, layout="constrained")[1]


def _finish(run: Run, ax: Axes) -> Axes:
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


def _places(run: Run) -> dict[str, float]:
    """Return the height of each lane: the first host above, the second below, the wire between them."""
    first, *others = run.buses
    places = {f"{first} control": 5.0, f"{first} data": 4.0}
    for name in others:
        places |= {f"{name} data": 2.0, f"{name} control": 1.0}
    wired = run.frames.table["wire_start_us"].notna().any()
    return places | ({"wire": 3.0 if others else 3.2} if wired else {})


def _bars(ax: Axes, start: Any, end: Any, y: float, colour: str, height: float = 0.7) -> Any:
    """Draw bars; a thin edge keeps short ones visible."""
    begin = _numbers(start)
    spans = list(zip(begin.tolist(), (_numbers(end) - begin).tolist(), strict=True))
    return ax.broken_barh(spans, (y - height / 2, height), facecolors=colour, edgecolors=colour, linewidth=0.5)


def _span(run: Run, start_us: float | None, end_us: float | None) -> tuple[float, float]:
    """Return the part of the time axis that was asked for, else from the first to the last clock of any bus."""
    clocks = [on_axis(run, name, run[name].clocks()) for name in run.buses]
    start = min(float(one["start_us"].iloc[0]) for one in clocks) if start_us is None else start_us
    end = max(float(one["end_us"].iloc[-1]) for one in clocks) if end_us is None else end_us
    return start, end


def _within(table: pd.DataFrame, start: float, end: float) -> pd.DataFrame:
    return table[(table["end_us"] >= start) & (table["start_us"] <= end)] if "start_us" in table else table


def _numbers(values: Any) -> Floats:
    """Return values as float64, null as NaN."""
    if isinstance(values, pd.Series | pd.DataFrame):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(values, dtype=np.float64)


def _round_up(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= value))
