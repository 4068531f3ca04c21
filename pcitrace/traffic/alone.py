"""What a piece costs by itself: its place, how soon its data came, and how soon it came after a frame on a wire."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.facts import PAGE_BYTES
from pcitrace.lattice import (
    ALONE,
    BINS,
    KIND,
    KIND_TIME,
    STRAY,
    Costs,
    Goals,
    Learner,
    Reading,
    bins,
    cheapest_within,
    even,
    in_nats,
    likeliest,
    widths,
)
from pcitrace.traffic.goals import RECEIVE, SEND, Target
from pcitrace.traffic.named import Naming, goes_on
from pcitrace.traffic.pieces import Pieces

__all__ = ["Alone"]

OUTSIDE = 0.05
"""Share of segments that claim no target, of those before the first or after the last."""

SLOWEST_CLKS = 40
"""Clocks to the first data that are told apart."""

BY_CHANCE, ELSEWHERE = 0.001, 0.02
"""Share of the pieces of frames that name an address of the card by chance; and, where nothing named its address, of
those that go on with a frame in a second buffer, or begin one just where the piece before ended. The card may have been
told of it before the capture. Judgements."""

NAMED, FIRM = 0.9, 20.0
"""Share of frames that are expected to begin where something named them, and how many observations that is worth: what
a card was told before the capture is not known, but what it is told of is mostly frames. Judgements."""


class Alone:
    """What each piece costs by itself.

    Its page, by what it is; what its address and its data name; its clocks to the first data, by the way it goes; and
    the time of what is left over, if a frame on a wire ended since the piece before: a card writes its status when a
    frame has gone, or has come.
    """

    def __init__(
        self,
        pieces: Pieces,
        write: Integers,
        targets: tuple[Target | None, Target | None],
        naming: Naming | None = None,
    ) -> None:
        self.naming = naming
        self.clocks = np.clip(pieces.bus.latency_clks, 0, SLOWEST_CLKS - 1)
        self.size = pieces.bus.data_phases
        self.write, self.begin_us = write, pieces.begin_us
        # Rings, status blocks and buffers lie in pages of their own.
        page = np.where(pieces.bus.address >= 0, pieces.bus.address // PAGE_BYTES, -1)
        _, self.page = np.unique(page, return_inverse=True)
        self.pages = int(self.page.max(initial=0)) + 1
        self.in_place = goes_on(pieces, write)
        self.since = [_Since.of(pieces, target) for target in targets if target is not None and len(target)]

    @property
    def soon(self) -> Integers:
        """Which way each piece goes if two kinds of clocks to the first data are told apart as well as can be (Otsu,
        IEEE Transactions on Systems, Man, and Cybernetics 9, 1979): 1 for the sooner, for what is written is taken at
        once, what is read has to be fetched; 0 if all are alike.
        """
        count = np.bincount(self.clocks, minlength=SLOWEST_CLKS)
        sooner, clocks = np.cumsum(count), np.cumsum(count * np.arange(SLOWEST_CLKS))
        later = sooner[-1] - sooner
        apart = clocks[-1] * sooner - clocks * sooner[-1]
        between = apart.astype(float) ** 2 / np.maximum(sooner * later, 1)
        return np.where(later[np.argmax(between)] > 0, self.clocks <= np.argmax(between), 0).astype(np.int64)

    def costs(self, reading: Reading, goals: tuple[Goals, Goals], learner: Learner) -> Costs:
        """Learn from a reading."""
        out = np.zeros((len(self.clocks), ALONE), np.float32)
        # From nothing there is nothing to learn: that everything is left over is no observation.
        known = bool((reading.track >= 0).any())
        ways = self._ways(reading) if known else self.write
        first = np.stack([self._first_data(ways == way, learner)[self.clocks] for way in (SEND, RECEIVE)], axis=1)
        out[:, 1:3] = out[:, KIND] = first
        self._placed(out, reading, known, learner)
        if self.naming is not None:
            out += self._told(self.naming, reading, known, learner)
        for track, wrong in ((SEND, 1), (RECEIVE, 0)):
            for columns in (out[:, 1:3], out[:, KIND]):
                columns[self.write == wrong, track] += -np.log(STRAY)
            out[:, 5 + track] = _unclaimed(goals[track], self.begin_us)
        out[:, KIND_TIME] = np.inf
        for since in self.since:
            for way in (SEND, RECEIVE):
                nats = since.costs(self.size, (reading.track < 0) & known & (ways == way), learner)
                out[:, KIND_TIME][:, way] = np.minimum(out[:, KIND_TIME][:, way], nats)
        return out

    def _placed(self, out: Costs, reading: Reading, known: bool, learner: Learner) -> None:
        """Add what the page of each piece costs, by what it is.

        Of one that begins where another ended the page is told by that. A segment goes on in place or not, which the
        table of costs knows; here is whether what is left over does.
        """
        pages, elsewhere = even(self.pages), ~self.in_place
        for column, track in enumerate((-1, SEND, RECEIVE)):
            mine = (reading.track == track) & known & elsewhere
            out[elsewhere, column] += learner.density(self.page[mine], pages, smooth=False)[self.page[elsewhere]]
        if self.in_place.any():
            on = self.in_place.astype(np.int64)
            out[:, 0] += learner.density(on[(reading.track < 0) & known], even(2), smooth=False)[on]

    def _told(self, naming: Naming, reading: Reading, known: bool, learner: Learner) -> Costs:
        """Return what it costs that the address of each piece was named or was not, and that it names another's."""
        named = naming.named.astype(np.int64)
        out = np.zeros((len(named), ALONE), np.float32)
        # All four together: most descriptors name a buffer, and those of some cards are named themselves.
        both = named + 2 * naming.names
        left = known & (reading.track < 0)
        out[:, 0] = learner.density(both[left], even(4), smooth=False)[both]
        names = -np.log(np.where(naming.names, BY_CHANCE, 1 - BY_CHANCE))
        apart, on = (-np.log(np.where(odd, ELSEWHERE, 1 - ELSEWHERE)) for odd in (naming.apart, naming.on))
        for side in (SEND, RECEIVE):
            first = known & (reading.track == side) & reading.begins
            out[:, 1 + side] = names + apart
            begins = learner.density(named[first], in_nats(np.array([1 - NAMED, NAMED])), smooth=False, weight=FIRM)
            out[:, 3 + side] = begins[named] + on - apart
        return out

    def _ways(self, reading: Reading) -> Integers:
        """Return which way each piece goes: 0 for reads, 1 for writes.

        What is left over and tells nothing goes the way whose first data usually comes as late.
        """
        ways = np.where(self.write >= 0, self.write, reading.track)
        usual = np.stack([self._first_data(ways == way, Learner()) for way in (SEND, RECEIVE)], axis=1)
        rows = ways < 0
        ways[rows] = likeliest(usual[self.clocks[rows]], self.size[rows])
        return ways

    def _first_data(self, rows: Booleans, learner: Learner) -> Costs:
        return learner.density(self.clocks[rows], even(SLOWEST_CLKS), smooth=False)


@dataclass(frozen=True)
class _Since:
    """When pieces came after the last frame on one wire had ended."""

    nearest: Booleans
    low: Integers
    high: Integers
    pause: Integers

    @classmethod
    def of(cls, pieces: Pieces, target: Target) -> _Since:
        """Take the times since the last end; they count where that was later than the end of the piece before."""
        ends_us = np.sort(target.end_us[np.isfinite(target.end_us)])
        last_us = np.append(-np.inf, ends_us)[np.searchsorted(ends_us, pieces.begin_us, side="right")]
        before_us = np.append(-np.inf, pieces.bus.last_data_us[:-1])[: len(pieces)]
        nearest = last_us > before_us
        since = np.where(nearest, last_us, pieces.begin_us)
        ready_us = np.maximum(pieces.ready_us, since)
        pause_us = np.where(np.isfinite(before_us), pieces.begin_us - before_us, 0.0)
        return cls(nearest, bins(ready_us - since), bins(pieces.begin_us - since), bins(pause_us))

    def costs(self, size: Integers, left_over: Booleans, learner: Learner) -> Floats:
        """Learn them for what is left over, by its size; infinite for sizes that the pause before tells better."""
        wide = even(BINS)
        usual = Learner().density(self.pause[left_over], wide)
        out = np.full(len(size), np.inf)
        rows = left_over & self.nearest
        for one in np.unique(size[rows]):
            mine = rows & (size == one)
            since, pause = Learner(), Learner()
            table = since.density(self.high[mine], wide) + widths()
            other = pause.density(self.pause[mine], usual) + widths()
            if since.nats + table[self.high[mine]].sum() < pause.nats + other[self.pause[mine]].sum():
                learner.nats += since.nats
                same = self.nearest & (size == one)
                out[same] = cheapest_within(table, self.low[same], self.high[same])
        return out


def _unclaimed(goals: Goals, begin_us: Floats) -> Costs:
    """Return what it costs to begin a segment that claims nothing: little only where its target is not captured."""
    inside = -np.log(goals.stray)
    if not len(goals):
        return np.full(len(begin_us), inside, np.float32)
    outside = begin_us < goals.time_us[0] if goals.after else begin_us > goals.time_us[-1]
    cost: Costs = np.where(outside, min(-np.log(OUTSIDE), inside), inside).astype(np.float32)
    return cost
