"""What a piece costs by itself: its place and how soon its data came, by what it is taken for."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Floats, Integers
from pcitrace.lattice import Costs, Goals, Reading, density
from pcitrace.traffic import costs
from pcitrace.traffic.goals import RECEIVE, SEND
from pcitrace.traffic.pieces import Pieces

__all__ = ["Alone"]

STRAY, OUTSIDE = 1e-7, 0.05
"""Share of segments that claim no target: among the targets, and before the first or after the last."""

SLOWEST_CLKS = 40
"""Clocks to the first data that are told apart."""

PAGE_BITS = 12
"""Pages of 4 KiB: rings, status blocks and buffers lie in pages of their own."""


class Alone:
    """What each piece costs by itself: its page and its clocks to the first data, by what it is."""

    def __init__(self, pieces: Pieces, write: Integers) -> None:
        self.clocks = np.clip(pieces.bus.latency_clks, 0, SLOWEST_CLKS - 1)
        self.write, self.begin_us = write, pieces.begin_us
        page = np.where(pieces.bus.address >= 0, pieces.bus.address >> PAGE_BITS, -1)
        _, self.page = np.unique(page, return_inverse=True)
        self.pages = int(self.page.max(initial=0)) + 1

    def costs(self, reading: Reading, goals: tuple[Goals, Goals]) -> Costs:
        """Learn from a reading."""
        out = np.zeros((len(self.clocks), 7), np.float32)
        clocks, pages = np.full(SLOWEST_CLKS, 1 / SLOWEST_CLKS), np.full(self.pages, 1 / self.pages)
        # From nothing there is nothing to learn: that everything is left over is no observation.
        known = bool((reading.track >= 0).any())
        for column, track in enumerate((-1, SEND, RECEIVE)):
            mine = (reading.track == track) & known
            out[:, column] += density(self.clocks[mine], clocks, costs.BROAD, smooth=False)[self.clocks]
            out[:, column] += density(self.page[mine], pages, costs.BROAD, smooth=False)[self.page]
        for track, wrong in ((SEND, 1), (RECEIVE, 0)):
            out[self.write == wrong, 1 + track] += -np.log(STRAY)
            out[:, 5 + track] = _unclaimed(goals[track], self.begin_us)
        return out


def _unclaimed(goals: Goals, begin_us: Floats) -> Costs:
    """Return what it costs to begin a segment that claims nothing: little only where its target is not captured."""
    if goals.unknown:
        return np.zeros(len(begin_us), np.float32)
    if not len(goals):
        return np.full(len(begin_us), -np.log(STRAY), np.float32)
    outside = begin_us < goals.time_us[0] if goals.after else begin_us > goals.time_us[-1]
    cost: Costs = np.where(outside, -np.log(OUTSIDE), -np.log(STRAY)).astype(np.float32)
    return cost
