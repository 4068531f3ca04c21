"""Which items release which targets: segments of a sequence, each before the targets that it releases, in their order.

The second reading of the lattice (:mod:`pcitrace.lattice` has the first). A segment of one or more items releases one
or more targets. What comes after something is the same problem in reversed time. Costs are negative logarithms of
probabilities, those of times of densities (1/us), so that what explains a time well may cost less than nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pcitrace import _kernel
from pcitrace.columns import Floats, Integers
from pcitrace.lattice import BINS, Costs, Learner, bins, centres_us, in_nats

__all__ = ["PLACES", "Items", "Released", "Table", "Targets", "broad", "read", "shares", "times"]

PLACES = 4
"""Places in a segment that costs tell apart, counted from its last item."""

NODES, LIMIT = 48, 40.0
"""Bounds of the search: readings kept an item, nats beyond the best; no margin is larger."""

KNOWN = 4.0
"""Observed times that a first guess is worth."""

Unsigned = npt.NDArray[np.uint32]


@dataclass
class Items:
    """Items in order of time, one value an item in each column.

    Attributes
    ----------
    time_us : array of float
    other : array of float32
        Cost of being in no segment.
    beyond : array of float32
        The same where all targets are dealt with: it may be in the segment of one that was not seen.
    place : array of float32, shape (items, PLACES)
        Cost of being in one, by place from its end.
    joins : array of float32
        Cost of going on with the segment of the item before.
    count : array of uint32
        How many targets a segment that ends here releases; 0 if nothing says so.
    key : array of uint64
        What names a target; 0 for none.
    """

    time_us: Floats
    other: Costs
    beyond: Costs
    place: Costs
    joins: Costs
    count: Unsigned
    key: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.time_us)


@dataclass
class Targets:
    """Targets in order of time.

    Attributes
    ----------
    time_us, ready_us : arrays of float
        When each happened; when it could have, had nothing been in its way.
    free_us : array of float
        When the one before was done with: what is released sooner waits.
    waited : array of float32
        Cost of when it happened, where it waited for the one before.
    skip : array of float32
        Cost of not being released by anything.
    key : array of uint64
    """

    time_us: Floats
    ready_us: Floats
    free_us: Floats
    waited: Costs
    skip: Costs
    key: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.time_us)


@dataclass
class Table:
    """Costs of segments.

    Attributes
    ----------
    lag : array of float32, shape (BINS,)
        Time from a segment to its first target, where that did not wait.
    shape : array of float32
        By targets released (rows) and items (columns).
    keys : tuple of float
        A segment has its target's key, or not.
    miscount : float
        It releases another number than its items say.
    before : float
        Each target that was released before the first item.
    """

    lag: Costs
    shape: Costs
    keys: tuple[float, float] = (0.0, 0.0)
    miscount: float = 12.0
    before: float = 1.0

    @property
    def longest(self) -> int:
        """Most items of a segment."""
        return int(self.shape.shape[1])


@dataclass
class Released:
    """First and last item of the segment that releases each target, -1 if none does, and their margins in nats, which
    are 0 if they were not asked for.

    Attributes
    ----------
    first, last : arrays of int
    margins : array of float32, shape (targets, 2)
    item : array of float32
        Of each item: how much more the best reading costs in which it is something else.
    cost : float
    learned : float
        How much of that learning the table was.
    surely : callable or None
        Reads it again, with margins; None if they are there, or if it was not read.
    """

    first: Integers
    last: Integers
    margins: Costs
    item: Costs
    cost: float
    learned: float = 0.0
    surely: Callable[[], Released] | None = None


def read(items: Items, targets: Targets, table: Table, margins: bool = True) -> Released:
    """Read a sequence at the least cost; without margins the reading is the same, and found sooner."""
    first, last, nats, item, cost = _kernel.read_releases(
        items, targets, table, nodes=NODES, cost=LIMIT, margins=margins
    )
    begins, ends = (np.frombuffer(one, np.int32).astype(np.int64) for one in (first, last))
    return Released(begins, ends, np.frombuffer(nats, np.float32).reshape(-1, 2), np.frombuffer(item, np.float32), cost)


@cache
def _widths() -> Floats:
    """The logarithm of how long each bin of positive times is, in us; the shortest are a few ns."""
    steps = np.abs(np.arange(BINS) - BINS // 2)
    widths = centres_us()[BINS // 2 + steps] * (2 ** (1 / 16) - 2 ** (-1 / 16))
    return np.asarray(np.log(np.maximum(widths, 0.004)))


def times(values_us: Floats, prior: Floats, learner: Learner) -> Costs:
    """Return the costs of times as a density (1/us), learned from some; the prior is worth `KNOWN` of them."""
    return np.asarray(learner.density(bins(values_us), in_nats(prior), weight=KNOWN) + _widths(), np.float32)


def shares(values_us: Floats, prior: Floats) -> Floats:
    """Return the shares of bins of times that are learned from some, to be a prior for others."""
    share = np.exp(-Learner().density(bins(values_us), in_nats(prior), weight=KNOWN).astype(float))
    return np.asarray(share / share.sum())


def broad(least_us: float, most_us: float) -> Floats:
    """A prior over bins of times: any octave is as likely, those outside hardly."""
    centre = centres_us()
    share = np.where((centre >= least_us) & (centre <= most_us), 1.0, 1e-4) * (centre > 0)
    return np.asarray(share / share.sum())
