"""A timing diagram: the lines of one bus as the analyser saw them, and what each clock is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pcitrace.analysis import on_axis
from pcitrace.errors import DecodeError
from pcitrace.plot.style import CONTROL, DATA, FAINT, INK, WIRE, Floats, axes_for, finish, numbers, time_span, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from pcitrace.run import Bus, Run

__all__ = ["waveform"]

_WORDS = {"AD": re.compile(r"AD(\d+)"), "C/BE#": re.compile(r"CBE(\d)#")}
_UNKNOWN = 2
_MOST_CLOCKS = 400
"""Clocks beyond which nothing can be read in a figure."""
_KINDS = {"address": CONTROL, "data": DATA, "wait": FAINT}


def waveform(
    run: Run,
    start_us: float,
    end_us: float,
    *,
    bus: str | None = None,
    lines: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw lines of a bus against time, as a timing diagram: low is low, and lines with # are asserted when low.

    Above the lines stands what each clock is: the address, data that moves, a wait. AD and C/BE# are drawn as words
    where all their lines were captured.

    Parameters
    ----------
    run : Run
    start_us, end_us : float
        Part of the run's time axis in us, at most 400 clocks.
    bus : str, optional
        Which bus; default: the only one.
    lines : sequence of str, optional
        Which lines, from above: names such as ``FRAME#``, or ``AD`` and ``C/BE#``. Default: those of a transaction.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    DecodeError
        The time is longer than 400 clocks, or a line was not captured.
    """
    shown = run.bus if bus is None else run[bus]
    start, end = time_span(run, start_us, end_us)
    clk = _wave(run, shown, "CLK", start, end)
    rises = clk[0][1:][clk[1][1:] == 1]
    if len(rises) > _MOST_CLOCKS:
        raise DecodeError(f"{len(rises)} clocks from {start:g} to {end:g} us: more than {_MOST_CLOCKS} cannot be read")
    names = _rows(shown, lines)
    ax = axes_for(ax, (9.0, 0.9 + 0.34 * len(names)))
    ax.vlines(rises, -len(names) + 0.3, 0.9, color=FAINT, lw=0.4, alpha=0.6)
    for row, name in enumerate(names):
        if name in _WORDS:
            _draw_words(ax, *_word(run, shown, name, start, end), -row)
        else:
            times, levels = _wave(run, shown, name, start, end)
            known = np.where(levels == _UNKNOWN, 0.5, levels)
            ax.step(times, -row - 0.3 + 0.6 * known, where="post", color=INK, lw=1.1)
    _say_clocks(run, shown, ax, rises)
    ax.set_yticks([-row for row in range(len(names))], names)
    ax.set_ylim(-len(names) + 0.3, 1.6)
    ax.set_xlim(start, end)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time (µs); thin lines: rising edges of CLK")
    return finish(run, ax)


def _rows(bus: Bus, lines: Sequence[str] | None) -> list[str]:
    """The lines that are drawn."""
    there = {*bus.lines, *(word for word, bits in _WORDS.items() if any(map(bits.fullmatch, bus.lines)))}
    usual = ["CLK", "FRAME#", "AD", "C/BE#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#"]
    if lines is None:
        return [name for name in usual if name in there]
    missing = [name for name in lines if name not in there]
    if missing:
        raise DecodeError(f"{', '.join(missing)} of bus {bus.name}: not captured; there are {', '.join(sorted(there))}")
    return list(lines)


def _wave(run: Run, bus: Bus, line: str, start: float, end: float) -> tuple[Floats, Floats]:
    """When a line changes from `start` to `end`, and the levels from then on; both ends included."""
    capture = bus.capture
    [(stamps, levels)] = capture.waves(capture.wiring.bus(bus.name), [line])
    per_us = 1e-6 / capture.tick_s if capture.tick_s else (capture.clock_mhz or (capture.rate_hz or 0) * 1e-6)
    times = numbers(on_axis(run, bus.name, pd.DataFrame({"time_us": stamps / per_us}))["time_us"])
    first, last = np.searchsorted(times, [start, end])
    begin = levels[first - 1] if first else _UNKNOWN
    after = levels[last - 1] if last else _UNKNOWN
    return np.array([start, *times[first:last], end]), np.array([begin, *levels[first:last], after], dtype=float)


def _word(run: Run, bus: Bus, name: str, start: float, end: float) -> tuple[Floats, list[int | None]]:
    """When a word changes, and its values from then on; None where a bit of it is unknown."""
    bits = {int(found[1]): line for line in bus.lines if (found := _WORDS[name].fullmatch(line))}
    waves = {bit: _wave(run, bus, line, start, end) for bit, line in bits.items()}
    times = np.unique(np.concatenate([moments for moments, _ in waves.values()]))
    values: list[int | None] = []
    for moment in times[:-1]:
        at = {bit: int(level[np.searchsorted(when, moment, "right") - 1]) for bit, (when, level) in waves.items()}
        values.append(None if _UNKNOWN in at.values() else sum(level << bit for bit, level in at.items()))
    return times, values


def _draw_words(ax: Axes, times: Floats, values: list[int | None], y: float) -> None:
    """Draw a band that is cut where the word changes, with the words that find room."""
    width = (times[-1] - times[0]) / 90
    for start, end, value in zip(times[:-1], times[1:], values, strict=True):
        lean = min(width / 4, (end - start) / 2)
        outline = [(start, y), (start + lean, y + 0.3), (end - lean, y + 0.3), (end, y), (end - lean, y - 0.3)]
        ax.fill(*zip(*outline, (start + lean, y - 0.3), strict=True), facecolor="#eef2f7", edgecolor=INK, lw=0.8)
        text = "?" if value is None else f"{value:x}"
        if end - start > width * len(text):
            ax.text((start + end) / 2, y, text, ha="center", va="center", fontsize=7, color=WIRE)


def _say_clocks(run: Run, bus: Bus, ax: Axes, rises: Floats) -> None:
    """Write above each clock what it is."""
    if len(rises) < 2:
        return
    near = (rises[1] - rises[0]) / 4
    rows = within(on_axis(run, bus.name, bus.transactions), rises[0] - near, rises[-1] + near)
    phases = numbers(on_axis(run, bus.name, bus.data_phases)["time_us"])
    for first, last in zip(numbers(rows["start_us"]), numbers(rows["end_us"]), strict=True):
        for at in rises[(rises > first - near) & (rises < last + near)]:
            moved = np.abs(phases - at).min(initial=np.inf) < near
            kind = "address" if abs(at - first) < near else "data" if moved else "wait"
            if kind != "wait" or at < phases[phases < last + near].max(initial=-np.inf):
                ax.text(at, 1.0, kind, rotation=60, ha="left", va="bottom", fontsize=7, color=_KINDS[kind])
