"""The exact clock accounting of a simulated bus, from its own log."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pcitrace.simulate.bus import Bus, Runs
from pcitrace.simulate.pci import Clock

COLUMNS = tuple(kind.name.lower() for kind in Clock)


class Accounting:
    """Counts the clocks of one bus by class, in windows of equal length."""

    def __init__(self, bus: Bus, window_us: float, first_clk: int) -> None:
        self._bus = bus
        self.window_us = window_us
        self._first_clk = self._next_clk = first_clk
        self._class = int(Clock.IDLE)
        self._ahead = Runs(np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.uint8))
        self._windows: list[npt.NDArray[np.int64]] = []

    def add(self, runs: Runs, until_clk: int) -> None:
        """Take more runs and count up to a clock; what lies beyond it waits."""
        runs = self._ahead.then(runs)
        now = runs.clks < until_clk
        self._ahead = runs.where(~now)
        runs = runs.where(now)
        if until_clk <= self._next_clk:
            self._class = int(runs.classes[-1]) if len(runs.classes) else self._class
            return
        first = self._window(self._next_clk)
        last = self._window(until_clk - 1)
        bounds = [self._bus.next_clk(number * self.window_us * 1e3) for number in range(first + 1, last + 1)]
        starts = np.unique(np.concatenate([[self._next_clk], runs.clks, np.array(bounds, np.int64)]))
        starts = starts[(starts >= self._next_clk) & (starts < until_clk)]
        known_clks = np.concatenate([[self._next_clk], runs.clks])
        known = np.concatenate([[self._class], runs.classes])
        classes = known[np.searchsorted(known_clks, starts, side="right") - 1]
        lengths = np.diff(starts, append=until_clk)
        windows = np.searchsorted(np.array(bounds, np.int64), starts, side="right")
        size = (last - first + 1) * len(Clock)
        counts = np.bincount(windows * len(Clock) + classes, weights=lengths, minlength=size).astype(np.int64)
        while len(self._windows) <= last:
            self._windows.append(np.zeros(len(Clock), np.int64))
        for number, row in enumerate(counts.reshape(-1, len(Clock)), start=first):
            self._windows[number] += row
        self._class = int(known[-1])
        self._next_clk = until_clk

    def _window(self, clk: int) -> int:
        # A clock belongs to the window in which its rise lies.
        number = int(self._bus.edge_ns(clk) / 1e3 / self.window_us)
        return number if self._bus.next_clk(number * self.window_us * 1e3) <= clk else number - 1

    def rows(self) -> list[dict[str, float | int | str]]:
        """Return one row a window."""
        width = self.window_us
        return [self._row(n * width, (n + 1) * width, counts) for n, counts in enumerate(self._windows)]

    def total(self) -> dict[str, float | int | str]:
        """Return the counts of all clocks."""
        counts = np.sum(self._windows, axis=0) if self._windows else np.zeros(len(Clock), np.int64)
        return self._row(self._bus.edge_ns(self._first_clk) / 1e3, self._bus.edge_ns(self._next_clk) / 1e3, counts)

    def _row(self, start_us: float, end_us: float, counts: npt.NDArray[np.int64]) -> dict[str, float | int | str]:
        named = {name: int(count) for name, count in zip(COLUMNS, counts, strict=True)}
        total = sum(named.values())
        busy = total - named["idle"]
        return {
            "bus": self._bus.name,
            "start_us": start_us,
            "end_us": end_us,
            "total": total,
            **named,
            "busy": busy,
            "occupancy": busy / total if total else 0.0,
            "data_occupancy": named["data"] / total if total else 0.0,
        }
