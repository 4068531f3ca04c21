"""Two sequences of frames, and what can be said of a pair of them before they are matched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.traffic.content import Keys

__all__ = ["ALIKE_US", "LONGEST_LAG_US", "UNDER_WAY", "WIDEST", "Side", "densest", "idle_us", "longest_lag", "possible"]

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
    """

    start_us: Floats
    end_us: Floats
    shortest: Integers
    longest: Integers
    key: Keys
    damaged: Booleans
    busy_us: Floats

    def __len__(self) -> int:
        return len(self.start_us)


def possible(earlier: Side, later: Side, i: Integers, j: Integers, after_end: bool) -> Booleans:
    """Return which of the pairs can be one frame: by time, by length, by content."""
    begins = earlier.end_us[i] if after_end else earlier.start_us[i]
    time = (later.start_us[j] >= begins) & (later.end_us[j] >= earlier.end_us[i])
    time &= later.start_us[j] - earlier.end_us[i] <= LONGEST_LAG_US
    length = (earlier.shortest[i] <= later.longest[j]) & (later.shortest[j] <= earlier.longest[i])
    if not (earlier.key.any() and later.key.any()):
        return np.asarray(time & length)
    a, b = earlier.key[i], later.key[j]
    content = (a == b) | (a == 0) | (b == 0) | earlier.damaged[i] | later.damaged[j]
    # A damaged frame may have been cut short as well.
    length |= (earlier.damaged[i] | later.damaged[j]) & (a == b) & (a != 0)
    return np.asarray(time & length & content)


def idle_us(earlier: Side, later: Side, i: Integers, j: Integers, after_end: bool, lag: float) -> Floats:
    """Return for how long each pair, if it is one frame, waited beyond the usual lag with nothing in its way.

    What waits for others begins when they are done. So a frame that was due long before what it is on got busy was not
    this one: cards do not leave frames lying.
    """
    begins = earlier.end_us[i] if after_end else earlier.start_us[i]
    return np.fmax(later.busy_us[j] - begins - lag - ALIKE_US, 0.0)


def densest(lags: Floats) -> float:
    """Return the lag that most of some lags, which ascend, are alike to."""
    count = np.searchsorted(lags, lags + ALIKE_US, side="right") - np.arange(len(lags))
    best = int(count.argmax())
    return float(np.median(lags[best : best + count[best]]))


def longest_lag(lag: float, lags: Floats) -> float:
    """Return how late a frame may come: it may have waited twice as long behind the usual lag as any seems to have."""
    return lag + 2 * float(max(lags.max() - lag, 0.0)) + ALIKE_US
