"""What happens on the buses: lanes as in figure 3.1, frames followed from memory to memory, a timeline to zoom into."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pcitrace import analysis
from pcitrace.analysis import on_axis
from pcitrace.errors import FrameMatchError
from pcitrace.plot.style import (
    CLEAR,
    CONTROL,
    DATA,
    FAINT,
    INK,
    WIRE,
    axes_for,
    draw_bars,
    finish,
    numbers,
    time_span,
    within,
)
from pcitrace.schema import COMMAND_NAMES, Termination
from pcitrace.timing.csrcosts import queue_updates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pcitrace.frames import Frames
    from pcitrace.run import Run

__all__ = ["described", "exchange", "lanes", "timeline", "typical"]


MOST_DESCRIBED = 3000
"""Transactions up to which each is described."""


def lanes(
    run: Run,
    start_us: float | None = None,
    end_us: float | None = None,
    *,
    frames: Frames | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what happens on each bus: one lane where the NIC moves data, one for data and control accesses.

    Parameters
    ----------
    run : Run
    start_us, end_us : float, optional
        Part of the run's time axis in us; default: all of it.
    frames : Frames, optional
        Those whose way over the wire is drawn; default: all.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = axes_for(ax, (9.0, 3.4))
    start, end = time_span(run, start_us, end_us)
    some = analysis.frames(run) if frames is None else frames
    places = _places(run, some)
    for name in run.buses:
        bars = run.table(name).between(start, end)
        draw_bars(ax, bars.start_us, bars.end_us, places[f"{name} control"], CONTROL)
        pieces = some.hosts[name].dma.bus.between(start, end)
        shown = (pieces.last_data_us >= start) & (pieces.first_data_us <= end)
        draw_bars(ax, pieces.first_data_us[shown], pieces.last_data_us[shown], places[f"{name} data"], DATA)
        if "wire" in places:
            wire = within(some.table, start, end, "wire_start_us", "wire_end_us")
            wire = wire[wire["sender"] == name]
            draw_bars(ax, wire["wire_start_us"], wire["wire_end_us"], places["wire"], WIRE)
    labels = {"control": "data\nand control", "data": "data"}
    ax.set_yticks(
        list(places.values()),
        [f"{name.split()[0]}: {labels[name.split()[1]]}" if " " in name else name for name in places],
    )
    ax.set_ylim(min(places.values()) - 0.7, max(places.values()) + 0.7)
    ax.set_xlim(start, end)
    ax.set_xlabel("time (µs)")
    ax.tick_params(axis="y", length=0)
    return finish(run, ax)


def exchange(
    run: Run,
    frame: int | None = None,
    count: int | None = None,
    *,
    frames: Frames | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw some frames on their way from memory to memory as in figure 3.1, with the times between their steps.

    Parameters
    ----------
    run : Run
    frame : int, optional
        Row of ``run.frames.table`` to begin with; default: the longest frame that was followed to the other host and
        waited for none, with the request before it if it is a response.
    count : int, optional
        Frames to show; default: 2 if the second goes back, as a response does, else 1.
    frames : Frames, optional
        Some of the run's frames, of which these are chosen; default: all.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    FrameMatchError
        There is no such frame.
    """
    some = analysis.frames(run) if frames is None else frames
    table = some.table
    if frame is None:
        frame = typical(run, table)
    if count is None:
        senders = table["sender"][table["frame"].isin((frame, frame + 1))].tolist()
        count = len(set(senders)) or 1
    rows = table[(table["frame"] >= frame) & (table["frame"] < frame + count)]
    if rows.empty:
        raise FrameMatchError(f"{run.path}: no frame {frame}; there are {len(table)}")
    queued_us = dict(zip(rows["frame"], queue_updates(some, rows), strict=True))
    times = numbers(rows.filter(like="_us").drop(columns=[name for name in rows if name in _DURATIONS]))
    seen = [*times.ravel(), *(queued_us[frame] for frame in rows["frame"])]
    start, end = float(np.nanmin(seen)), float(np.nanmax(seen))
    margin = 0.06 * (end - start)
    ax = lanes(run, start - margin, end + margin, frames=some, ax=axes_for(ax, (9.0, 4.2)))
    places = _places(run, some)
    hosts = list(run.buses)
    for _, row in rows.iterrows():
        row = row.copy()
        row["rx_queue_us"] = queued_us[row["frame"]]
        for host, steps in ((row["sender"], _SEND_STEPS), (row["receiver"], _RECEIVE_STEPS)):
            if host not in hosts:
                continue
            side = 1 if host == hosts[0] else -1
            for first, last, level in steps:
                y = places[f"{host} control"] + side * (0.5 + 0.36 * level)
                _measure(ax, row[first], row[last], y, "above" if side > 0 else "below")
        if row["receiver"] in hosts:
            _follow(ax, row, places)
    low, high = min(places.values()), max(places.values())
    ax.set_ylim(low - (2.6 if len(hosts) == 2 else 0.7), high + 2.6)
    ax.set_xlabel("time (µs); spans in µs")
    lengths = ", ".join(f"{row['sender']}: {row['length_bytes']} bytes" for _, row in rows.iterrows())
    ax.set_title(f"from frame {rows['frame'].iloc[0]}: {lengths}", loc="left", fontsize="small")
    return ax


def typical(run: Run, table: pd.DataFrame) -> int:
    """Return the frame to begin a picture with where none was asked for: see :func:`exchange`."""
    followed = (table["rx_dma_end_us"].notna() & table["dma_start_us"].notna()).to_numpy(dtype=bool)
    if not followed.any():
        raise FrameMatchError(f"{run.path}: no frame was followed from one host to the other")
    fluent = followed & ~table["queued"].fillna(value=True).to_numpy(dtype=bool)
    rows = np.flatnonzero(fluent if fluent.any() else followed)
    row = table.iloc[rows[int(np.argmax(numbers(table["length_bytes"].fillna(0))[rows]))]]
    before = table[table["frame"] == row["frame"] - 1]
    answers = len(before) > 0 and before["sender"].iloc[0] == row["receiver"]
    return int(row["frame"]) - int(answers)


_DURATIONS = ("dma_us", "gap_us", "rx_dma_us", "wire_us", "t_nic_us", "t_nic_tx_us", "t_nic_rx_us")
_SEND_STEPS = (
    ("csr_first_us", "csr_done_us", 3.9),
    ("csr_first_us", "csr_last_us", 2),
    ("csr_last_us", "dma_start_us", 1),
    ("dma_end_us", "csr_done_us", 0),
)
_RECEIVE_STEPS = (("rx_dma_end_us", "rx_csr_us", 0), ("rx_csr_us", "rx_queue_us", 1))


def _follow(ax: Axes, row: pd.Series[Any], places: dict[str, float]) -> None:
    """Mark the gap between the DMA of both sides, and what of it the wire takes."""
    if pd.isna(row["gap_us"]):
        return
    sent, received = places[f"{row['sender']} data"], places[f"{row['receiver']} data"]
    middle = (sent + received) / 2
    for time, lane in ((row["dma_end_us"], sent), (row["rx_dma_start_us"], received)):
        ax.plot([time, time], [lane, middle], color=FAINT, lw=0.7, ls=":", zorder=1)
    _measure(ax, row["dma_end_us"], row["rx_dma_start_us"], middle + 0.42, "above", "gap {:.2f}")
    if not pd.isna(row["wire_start_us"]):
        _measure(ax, row["dma_end_us"], row["wire_start_us"], middle - 0.5, "before")
        _measure(ax, row["wire_end_us"], row["rx_dma_start_us"], middle - 0.5, "behind")


_TEXT_PLACES: dict[str, tuple[float, tuple[int, int], str, str]] = {
    "above": (0.5, (0, 2), "center", "bottom"),
    "below": (0.5, (0, -2), "center", "top"),
    "before": (0.0, (-4, 0), "right", "center"),
    "behind": (1.0, (4, 0), "left", "center"),
}
"""Where the length of a span is written: share of the span, offset in points, alignment."""


def _measure(ax: Axes, first: Any, last: Any, y: float, place: str, text: str = "{:.2f}") -> None:
    """Draw a span with its length in us; nothing where an end is not known or both are one."""
    if pd.isna(first) or pd.isna(last) or first == last:
        return
    ax.plot([first, last], [y, y], color=INK, lw=0.8, marker="|", markersize=5, zorder=3)
    share, offset, ha, va = _TEXT_PLACES[place]
    at = (first + share * (last - first), y)
    written = text.format(last - first)
    ax.annotate(written, at, offset, textcoords="offset points", ha=ha, va=va, fontsize=8, color=INK, bbox=CLEAR)


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
    ax = axes_for(ax, (9.0, 1.2 + 1.2 * len(run.buses)))
    if start_us is None and end_us is None:
        begin = [run.table(name) for name in run.buses if len(run.table(name))]
        start_us = min((float(one.start_us[0]) for one in begin), default=0.0)
        end_us = max((float(one.end_us[:20][-1]) for one in begin), default=1.0)
        start_us, end_us = start_us - 0.02 * (end_us - start_us), end_us + 0.02 * (end_us - start_us)
    start, end = time_span(run, start_us, end_us)
    drawn: list[Any] = []
    phases = {name: on_axis(run, name, run[name].data_phases) for name in run.buses}

    def draw(axes: Axes) -> None:
        for artist in drawn:
            artist.remove()
        drawn.clear()
        low, high = axes.get_xlim()
        pixels = axes.get_window_extent().width / max(high - low, 1e-12)
        for lane, name in enumerate(run.buses):
            y = -1.5 * lane
            rows = described(run, name, low, high)
            for kind, (_, colour, height) in _KINDS.items():
                some = rows[rows["lane"] == kind]
                drawn.append(draw_bars(axes, some["start_us"], some["end_us"], y, colour, height))
            for start_, end_, kind, text in rows.itertuples(index=False):
                fitting = "\n".join(text.split("\n")[: 5 if kind == "data" else 3])
                _write(axes, drawn, (max(start_, low), min(end_, high)), y, fitting, pixels)
            ticks = within(phases[name], low, high, "time_us", "time_us")
            if 0 < len(ticks) <= 2000:
                drawn.append(axes.vlines(numbers(ticks["time_us"]), y - 0.55, y - 0.35, color=INK, lw=0.7))
            if 0 < len(ticks) <= 60 and "data" in ticks:
                _write_data(axes, drawn, ticks, y - 0.58, pixels)

    ax.set_yticks([-1.5 * lane for lane in range(len(run.buses))], list(run.buses))
    ax.set_ylim(-1.5 * len(run.buses) + 0.45, 0.55)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time (µs); ticks below the bars: data phases")
    ax.set_xlim(start, end)
    ax.callbacks.connect("xlim_changed", draw)
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=label) for label, colour, _ in _KINDS.values()]
    ax.legend(handles=handles, ncols=2, frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1))
    draw(ax)
    return finish(run, ax)


_KINDS = {"control": ("low bars: other", CONTROL, 0.38), "data": ("high bars: DMA of the NIC", DATA, 0.64)}
"""What a lane of the timeline tells apart: label, colour, height."""


def described(run: Run, name: str, start_us: float, end_us: float) -> pd.DataFrame:
    """Return the transactions of a part of the time with what a timeline shows of them: ``lane`` and ``text``.

    ``lane`` is ``data`` for the NIC's DMA, else ``control``; the lines of ``text`` say what the transaction is. Of more
    than 3000 transactions the text is empty: no picture has room for it.
    """
    table = run.table(name).between(start_us, end_us)
    traffic = analysis.frames(run).hosts[name]
    lane = np.where(np.isin(table.transaction, traffic.dma.bus.transaction), "data", "control")
    rows = pd.DataFrame({"start_us": table.start_us, "end_us": table.end_us, "lane": lane, "text": ""})
    if len(table) > MOST_DESCRIBED:
        return rows
    csr = traffic.csr
    shown = np.flatnonzero((csr.last_attempt_us >= start_us) & (csr.last_attempt_us <= end_us) & (csr.register >= 0))
    registers = dict(zip(csr.last_attempt_us[shown].tolist(), csr.register[shown].tolist(), strict=True))
    columns = (table.start_us, table.command, table.address, table.data_phases, table.termination)
    rows["text"] = [
        "\n".join(
            _describe(
                csr.registers[registers[start]] if start in registers else None,
                COMMAND_NAMES[command].replace("_", " ") if command >= 0 else None,
                address,
                phases,
                table.terminations[termination],
            )
        )
        for start, command, address, phases, termination in zip(*(one.tolist() for one in columns), strict=True)
    ]
    return rows


def _describe(
    register: str | None, command: str | None, address: int, data_phases: int, termination: str
) -> Iterator[str]:
    """Say what a transaction is: what is most telling first; an address of -1 is not known."""
    if register is not None:
        yield register
    if command is not None:
        yield command
    if address != -1:
        yield f"{address % (1 << 64):#010x}"
    yield "1 data phase" if data_phases == 1 else f"{data_phases} data phases"
    if termination != Termination.COMPLETION:
        yield termination.replace("_", " ")


def _write(ax: Axes, drawn: list[Any], ends: tuple[float, float], y: float, text: str, pixels: float) -> None:
    """Write a text into a bar, the lines for which it is wide enough."""
    room = (ends[1] - ends[0]) * pixels / 5.2
    fitting = [line for line in text.split("\n") if len(line) <= room]
    if fitting:
        where = ((ends[0] + ends[1]) / 2, y)
        drawn.append(ax.text(*where, "\n".join(fitting), ha="center", va="center", color="w", fontsize=7))


def _write_data(ax: Axes, drawn: list[Any], ticks: pd.DataFrame, y: float, pixels: float) -> None:
    """Write the data of data phases below their ticks where there is room for eight digits."""
    known = ticks.dropna(subset=["data"])
    times = numbers(known["time_us"])
    if len(times) > 1 and min(b - a for a, b in pairwise(times)) * pixels < 48:
        return
    for time, value in zip(times, known["data"], strict=True):
        drawn.append(ax.text(time, y, f"{value:08x}", ha="center", va="top", fontsize=6, color=INK))


def _places(run: Run, frames: Frames) -> dict[str, float]:
    """Return the height of each lane: the first host above, the second below, the wire between them."""
    first, *others = run.buses
    places = {f"{first} control": 5.0, f"{first} data": 4.0}
    for name in others:
        places |= {f"{name} data": 2.0, f"{name} control": 1.0}
    wired = frames.table["wire_start_us"].notna().any()
    return places | ({"wire": 3.0 if others else 3.2} if wired else {})
