"""Two sequences of frames, and what can be said of a pair of them before they are matched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.traffic.content import Keys

__all__ = [
    "ALIKE_US", "LONGEST_LAG_US", "UNDER_WAY", "WIDEST",
    "Matches", "Pair", "Side", "densest", "longest_lag", "whenever",
]  # fmt: skip

LONGEST_LAG_US = 50_000.0
"""A frame that comes later than this after it was sent is another one."""

WIDEST = 48
"""Most frames that one frame is compared with, where nothing but order and time tells them apart."""

UNDER_WAY = 32
"""Frames that may be under way at once."""

ALIKE_US = 0.6
"""Lags that differ by less are alike."""


@dataclass(frozen=True)
class Side:
    """One of the two sequences, in order of time.

    Attributes
    ----------
    start_us, end_us : arrays of float
        When each frame begins and ends here.
    shortest, longest : arrays of int
        Bounds of its length in bytes.
    key : array of uint64
        Key of its content, 0 if not known.
    damaged : array of bool
        Whether its content may differ from the same frame's elsewhere.
    busy_us : array of float
        Since when there was something else in the way of each frame, without a long pause, as it began here: its own
        beginning where there was nothing; NaN where that is not known.
    ended_us : array of float, shape (2, frames)
        Since when and until when each ended on the later side, as something else shows; infinite where nothing does.
    """

    start_us: Floats
    end_us: Floats
    shortest: Integers
    longest: Integers
    key: Keys
    damaged: Booleans
    busy_us: Floats
    ended_us: Floats

    def __len__(self) -> int:
        return len(self.start_us)

    def part(self, rows: slice) -> Side:
        """Return some of the frames."""
        return Side(*(values[..., rows] for values in vars(self).values()))


@dataclass(frozen=True)
class Pair:
    """Two sides between which frames pass, in their order.

    Attributes
    ----------
    earlier, later : Side
        A frame begins and ends on the later side no sooner than on the earlier one.
    begins_us : array of float
        Of each earlier frame, from when on it may begin on the later side.
    done_us : array of float
        Of each later frame, when the one before it had ended there.
    """

    earlier: Side
    later: Side
    begins_us: Floats
    done_us: Floats

    @classmethod
    def of(cls, earlier: Side, later: Side, after_end: bool) -> Pair:
        """Put two sides together; `after_end`: frames begin on the later only after they ended on the earlier one."""
        done_us = np.append(-np.inf, later.end_us[:-1])[: len(later)]
        return cls(earlier, later, earlier.end_us if after_end else earlier.start_us, done_us)

    def part(self, i: slice, j: slice) -> Pair:
        """Return some frames of either side."""
        return Pair(self.earlier.part(i), self.later.part(j), self.begins_us[i], self.done_us[j])

    def lag_us(self, i: Integers, j: Integers) -> Floats:
        """Return how long after it could each pair, if it is one frame, began on the later side."""
        return self.later.start_us[j] - self.begins_us[i]

    def idle_us(self, i: Integers, j: Integers, lag_us: float) -> Floats:
        """Return for how long each pair, if it is one frame, waited beyond the usual lag with nothing in its way.

        What waits for others begins when they are done. So a frame that was due long before what it is on got busy was
        not this one: cards do not leave frames lying.
        """
        return np.fmax(self.later.busy_us[j] - self.begins_us[i] - lag_us - ALIKE_US, 0.0)

    def possible(self, i: Integers, j: Integers) -> Booleans:
        """Return which of the pairs can be one frame: by time, by length, by content."""
        earlier, later, time, length = self.earlier, self.later, self._in_time(i, j), self._as_long(i, j)
        if not (earlier.key.any() and later.key.any()):
            return np.asarray(time & length)
        a, b = earlier.key[i], later.key[j]
        damaged = earlier.damaged[i] | later.damaged[j]
        # A damaged frame may have been cut short as well.
        length |= damaged & (a == b) & (a != 0)
        return np.asarray(time & length & ((a == b) | (a == 0) | (b == 0) | damaged))

    def fitting(self, i: Integers, j: Integers) -> Booleans:
        """Return which of the pairs can be one frame by time and by length, whatever their content."""
        return self._in_time(i, j) & self._as_long(i, j)

    def _in_time(self, i: Integers, j: Integers) -> Booleans:
        earlier, later = self.earlier, self.later
        time = (later.start_us[j] >= self.begins_us[i]) & (later.end_us[j] >= earlier.end_us[i])
        since_us, until_us = earlier.ended_us
        time &= (later.end_us[j] >= since_us[i]) & (later.end_us[j] <= until_us[i])
        return np.asarray(time & (later.start_us[j] - earlier.end_us[i] <= LONGEST_LAG_US))

    def _as_long(self, i: Integers, j: Integers) -> Booleans:
        earlier, later = self.earlier, self.later
        return np.asarray((earlier.shortest[i] <= later.longest[j]) & (later.shortest[j] <= earlier.longest[i]))


@dataclass(frozen=True)
class Matches:
    """Pairs that were found: rows `i` of the earlier side are rows `j` of the later one, both ascending."""

    pair: Pair
    i: Integers
    j: Integers

    @classmethod
    def of(cls, earlier: Side, later: Side, i: Integers, j: Integers) -> Matches:
        """Put two sides together as what was found shows them: frames begin after they ended, or do not."""
        after_end = bool((later.start_us[j] >= earlier.end_us[i]).all())
        return cls(Pair.of(earlier, later, after_end), i, j)

    @property
    def start_us(self) -> Floats:
        """When each begins on the later side."""
        return self.pair.later.start_us[self.j]

    @property
    def lag_us(self) -> Floats:
        """How long after it could each began there."""
        return self.pair.lag_us(self.i, self.j)


def densest(lags: Floats) -> float:
    """Return the lag that most of some lags are alike to; of those only that are known; NaN if none is."""
    lags = np.sort(lags[np.isfinite(lags)])
    if not len(lags):
        return np.nan
    count = np.searchsorted(lags, lags + ALIKE_US, side="right") - np.arange(len(lags))
    best = int(count.argmax())
    return float(np.median(lags[best : best + count[best]]))


def whenever(count: int) -> Floats:
    """Return the `ended_us` of frames of which nothing shows it."""
    return np.broadcast_to([[-np.inf], [np.inf]], (2, count))


def longest_lag(lag: float, lags: Floats) -> float:
    """Return how late a frame may come: it may have waited twice as long behind the usual lag as any seems to have."""
    return lag + 2 * float(max(lags.max() - lag, 0.0)) + ALIKE_US
