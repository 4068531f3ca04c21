"""Time between frames, and the throughput that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcitrace.errors import FitError
from pcitrace.network.pieces import squares_apart

__all__ = ["Spacing", "spacing"]

Integers = npt.NDArray[np.int64]

LAGS = 20
"""Longest distance between frames that is looked at, as a part of all frames."""

CLEAR = 3.0
"""Standard deviations by which the scatter of distant frames must exceed that of neighbours to be a wandering."""


@dataclass(frozen=True)
class Spacing:
    """Mean time between frames.

    Attributes
    ----------
    mean_us, sigma_us : float
        Over the N - 1 intervals between N frames.
    intervals : int
    """

    mean_us: float
    sigma_us: float
    intervals: int

    def mbit_s(self, bytes_each: float) -> tuple[float, float]:
        """Return the throughput of frames of so many bytes, decimal Mbit/s, and its uncertainty."""
        value = bytes_each * 8 / self.mean_us
        return value, value * self.sigma_us / self.mean_us


def spacing(times_ns: Integers, arrivals: str = "regular") -> Spacing:
    """Return the mean time between frames.

    Parameters
    ----------
    times_ns : array of int64, shape (n,)
        In their order.
    arrivals : str
        How frames were planned. Of independent intervals (``poisson``) the mean scatters with their root. Regular
        frames are each off their own slot, so that the mean of the intervals is far better known than that: only the
        first and the last count, and how far the slots themselves wander, which distant frames show.

    Raises
    ------
    FitError
        Fewer than two frames, or all at one time.
    """
    n = len(times_ns)
    if n < 2 or times_ns[-1] <= times_ns[0]:
        raise FitError(f"{n} frames: a time between frames needs two that arrived one after the other")
    mean = float(times_ns[-1] - times_ns[0]) / (n - 1)
    if n < 4:
        return Spacing(mean / 1e3, mean / 1e3 / math.sqrt(n - 1), n - 1)
    each = squares_apart(times_ns, 1, mean) / (n - 2)
    if arrivals in ("poisson", "burst", "file"):
        return Spacing(mean / 1e3, math.sqrt(each / (n - 1)) / 1e3, n - 1)
    wander = _wander(times_ns, mean, each)
    square = max(each - wander, 0.0) + (n - 1) * wander
    return Spacing(mean / 1e3, max(math.sqrt(square), STEP_NS) / (n - 1) / 1e3, n - 1)


STEP_NS = 0.5
"""Least uncertainty of two readings of a clock."""


def _wander(times_ns: Integers, mean: float, each: float) -> float:
    """Return the variance, an interval, of how far the slots wander; 0 where none is seen."""
    lag = len(times_ns) // LAGS
    if lag < 4:
        return 0.0
    distant = len(times_ns) - lag
    wide = squares_apart(times_ns, lag, lag * mean) / distant
    noise = each * math.sqrt(4 * lag / distant)
    return max(0.0, (wide - each) / (lag - 1)) if wide - each > CLEAR * noise else 0.0
