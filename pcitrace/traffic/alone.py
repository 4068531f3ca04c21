"""What a piece costs by itself: its place and how soon its data came, by what it is taken for."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.lattice import Costs, Goals, Learner, Reading
from pcitrace.traffic.goals import RECEIVE, SEND
from pcitrace.traffic.pieces import Pieces

__all__ = ["Alone"]

STRAY, OUTSIDE = 1e-7, 0.05
"""Share of segments that claim no target: among the targets, and before the first or after the last."""

SLOWEST_CLKS = 40
"""Clocks to the first data that are told apart."""

LARGE = 32
"""Data phases of left-over pieces that are told apart; the last stands for all larger."""

PAGE_BITS = 12
"""Pages of 4 KiB: rings, status blocks and buffers lie in pages of their own."""


class Alone:
    """What each piece costs by itself: its page, by what it is; its clocks to the first data, by the way it goes."""

    def __init__(self, pieces: Pieces, write: Integers) -> None:
        self.clocks = np.clip(pieces.bus.latency_clks, 0, SLOWEST_CLKS - 1)
        self.size = np.minimum(pieces.bus.data_phases, LARGE)
        self.write, self.begin_us = write, pieces.begin_us
        page = np.where(pieces.bus.address >= 0, pieces.bus.address >> PAGE_BITS, -1)
        _, self.page = np.unique(page, return_inverse=True)
        self.pages = int(self.page.max(initial=0)) + 1

    def costs(self, reading: Reading, goals: tuple[Goals, Goals], learner: Learner) -> Costs:
        """Learn from a reading."""
        out = np.zeros((len(self.clocks), 7), np.float32)
        # From nothing there is nothing to learn: that everything is left over is no observation.
        known = bool((reading.track >= 0).any())
        ways = self._ways(reading) if known else self.write
        first = np.stack([self._first_data(ways == way, learner)[self.clocks] for way in (SEND, RECEIVE)], axis=1)
        out[:, 1:3] = first
        for size in np.unique(self.size):
            rows = self.size == size
            mine = rows & (reading.track < 0) & (ways >= 0) & known
            way = learner.density(ways[mine], np.array([0.5, 0.5]), smooth=False)
            out[rows, 0] = (first[rows] + way).min(axis=1)
        pages = np.full(self.pages, 1 / self.pages)
        for column, track in enumerate((-1, SEND, RECEIVE)):
            mine = (reading.track == track) & known
            out[:, column] += learner.density(self.page[mine], pages, smooth=False)[self.page]
        for track, wrong in ((SEND, 1), (RECEIVE, 0)):
            out[self.write == wrong, 1 + track] += -np.log(STRAY)
            out[:, 5 + track] = _unclaimed(goals[track], self.begin_us)
        return out

    def _ways(self, reading: Reading) -> Integers:
        """Return which way each piece goes: 0 for reads, 1 for writes.

        What is left over and tells nothing goes the way whose first data usually comes as late, all of one size
        together.
        """
        ways = np.where(self.write >= 0, self.write, reading.track)
        usual = np.stack([self._first_data(ways == way, Learner()) for way in (SEND, RECEIVE)])
        for size in np.unique(self.size[ways < 0]):
            rows = (self.size == size) & (ways < 0)
            ways[rows] = int(np.argmin(usual[:, self.clocks[rows]].sum(axis=1)))
        return ways

    def _first_data(self, rows: Booleans, learner: Learner) -> Costs:
        return learner.density(self.clocks[rows], np.full(SLOWEST_CLKS, 1 / SLOWEST_CLKS), smooth=False)


def _unclaimed(goals: Goals, begin_us: Floats) -> Costs:
    """Return what it costs to begin a segment that claims nothing: little only where its target is not captured."""
    if goals.unknown:
        return np.zeros(len(begin_us), np.float32)
    if not len(goals):
        return np.full(len(begin_us), -np.log(STRAY), np.float32)
    outside = begin_us < goals.time_us[0] if goals.after else begin_us > goals.time_us[-1]
    cost: Costs = np.where(outside, -np.log(OUTSIDE), -np.log(STRAY)).astype(np.float32)
    return cost
