"""Many times of one size, in a few numbers: mean, median, low quantile, each with its standard error."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pcitrace.errors import FitError
from pcitrace.network.pieces import squares

__all__ = ["LOW_QUANTILE", "STATISTICS", "clock_step", "mean", "quantile", "statistic"]

Floats = npt.NDArray[np.float64]

LOW_QUANTILE = 0.1
"""Below most of the queueing, above the few that a clock's step or a lucky poll made too short."""

STATISTICS = ("median", "mean", "q10")
"""What a line is laid through, the usual one first: a single interruption of a host is worth a hundred loops in a
mean."""

LEAST = 3
"""Values from which on a standard error can be told."""


def statistic(name: str, values: Floats, step: float = 0.0) -> tuple[float, float]:
    """Return one of :data:`STATISTICS` and its standard error, in the unit of the values.

    Parameters
    ----------
    name : str
        ``mean``, ``median`` or ``q10``.
    values : array of float, shape (n,)
    step : float
        What the values are rounded to.

    Raises
    ------
    FitError
        Fewer than three values.
    """
    return mean(values) if name == "mean" else quantile(values, 0.5 if name == "median" else LOW_QUANTILE, step)


def mean(values: Floats) -> tuple[float, float]:
    """Return the mean and its standard error."""
    _enough(values)
    n, average = len(values), float(values.mean())
    return average, math.sqrt(squares(values, average) / (n - 1) / n)


def quantile(values: Floats, q: float, step: float = 0.0, *, ordered: bool = False) -> tuple[float, float]:
    """Return a quantile and its standard error.

    Values that are rounded to a step are taken as spread evenly over it, so that the quantile does not jump by steps.
    The error is half the distance between the order statistics one binomial standard deviation below and above, which
    needs no assumption on the distribution. `ordered` says that the values are sorted already.
    """
    _enough(values)
    n = len(values)
    rising = values if ordered else np.sort(values)
    wide = math.sqrt(n * q * (1 - q))
    places = np.clip(np.array([n * q - wide, n * q, n * q + wide]), 0.5, n - 0.5)
    low, middle, high = (_at(rising, float(place), step) for place in places)
    least = step / math.sqrt(12 * n)
    return middle, max((high - low) * wide / float(places[2] - places[0]), least, float(np.spacing(abs(middle))))


def clock_step(times_ns: npt.NDArray[np.int64]) -> int:
    """Return the step of a clock in ns: the largest number that divides all differences of its readings.

    Readings that are all equally far apart are those of frames that were planned so, and tell no step: 1.

    Examples
    --------
    >>> clock_step(np.array([1000, 3000, 9000]))
    2000
    """
    if len(times_ns) < 2:
        return 1
    some = times_ns[:: max(1, len(times_ns) // 4096)]
    apart = np.diff(some)
    return 1 if (apart == apart[0]).all() else max(1, int(np.gcd.reduce(np.abs(apart))))


def _at(rising: Floats, place: float, step: float) -> float:
    """Return the value with `place` values below it, each value spread over its step."""
    if step <= 0:
        below = max(0, min(len(rising) - 2, math.floor(place - 0.5)))
        return float(rising[below] + (place - 0.5 - below) * (rising[below + 1] - rising[below]))
    here = float(rising[min(len(rising) - 1, int(place))])
    first, last = np.searchsorted(rising, [here - step / 2, here + step / 2])
    return here + float((place - first) / (last - first) - 0.5) * step


def _enough(values: Floats) -> None:
    if len(values) < LEAST:
        raise FitError(f"{len(values)} times: an uncertainty needs {LEAST} or more")
