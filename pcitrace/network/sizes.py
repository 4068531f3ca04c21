"""Many times of one size, in a few numbers: mean, median, low quantile, each with its standard error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pcitrace.errors import FitError
from pcitrace.network.pieces import squares

__all__ = [
    "LEAST",
    "LOW_QUANTILE",
    "STATISTICS",
    "WIDE",
    "batched",
    "clock_step",
    "correlation",
    "mean",
    "quantile",
    "statistic",
]

Floats = npt.NDArray[np.float64]

LOW_QUANTILE = 0.1
"""Below most of the queueing, above the few that a clock's step or a lucky poll made too short."""

STATISTICS = ("median", "mean", "q10")
"""What a line is laid through, the usual one first: a single interruption of a host is worth a hundred loops in a
mean."""

LEAST = 6
"""Values from which on a median has an uncertainty: of five, one in sixteen times all are on one side of the truth."""

WIDE = 1.96
"""Standard deviations to either side of 95 %."""

LEAST_IN_ORDER = 32
"""Values from which on it can be told whether they follow one another."""

LEAST_BATCHES = 5


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
        Fewer than six values.
    """
    return mean(values) if name == "mean" else quantile(values, 0.5 if name == "median" else LOW_QUANTILE, step)


def mean(values: Floats, *, in_order: bool = False) -> tuple[float, float]:
    """Return the mean and its standard error; `in_order`: widened by the values' :func:`correlation`."""
    _enough(values)
    n, average = len(values), float(values.mean())
    variance = squares(values, average) / n
    return average, math.sqrt((correlation(values, variance) if in_order else 1.0) * variance / (n - 1))


def quantile(
    values: Floats, q: float, step: float = 0.0, *, ordered: bool = False, effect: float = 1.0
) -> tuple[float, float]:
    """Return a quantile and its standard error, NaN where the values are too few for one.

    Values that are rounded to a step are taken as spread evenly over it, so that the quantile does not jump by steps.
    The error follows from the order statistics between which the quantile lies with 95 %, which needs no assumption on
    the distribution. Where they lie closer on one side, as beside a gap in the distribution, the far one counts for
    more than the near one. `ordered` says that the values are sorted already, `effect` is the :func:`correlation` of
    whether they are below the quantile.
    """
    _enough(values)
    n = len(values)
    rising = values if ordered else np.sort(values)
    wide = WIDE * math.sqrt(n * q * (1 - q))
    middle = _at(rising, min(max(n * q, 0.5), n - 0.5), step)
    if wide > min(n * q, n * (1 - q)) - 0.5:
        return middle, math.nan
    wide *= math.sqrt(effect)
    # Of values that follow one another so long that few are independent, their range is all there is to go by.
    down, up = (min(wide, side - 0.5) for side in (n * q, n * (1 - q)))
    below, above = (_at(rising, n * q - down, step), _at(rising, n * q + up, step))
    sides = [(middle - below) * wide / down, (above - middle) * wide / up]
    sigma = math.hypot(*sides) / math.sqrt(2) / WIDE
    return middle, max(sigma, step / math.sqrt(12 * n), float(np.spacing(abs(middle))))


def correlation(values: npt.NDArray[Any], variance: float | None = None) -> float:
    """Return by what factor the variance of a mean is taken to exceed that of a mean of independent values: 1 or more.

    Student's factor for as many batches as there are is in it.

    Examples
    --------
    >>> correlation(np.tile([0.0, 1.0], 50)), correlation(np.arange(400.0)) > 50
    (1.0, True)
    """
    return taken(*batched(values, variance))


def taken(effect: float, batches: int) -> float:
    """Return what is taken for the factor that so many batches show."""
    from scipy.special import stdtrit

    return effect * (float(stdtrit(batches - 1, 0.975)) / WIDE) ** 2 if effect > 1 else 1.0


def batched(values: npt.NDArray[Any], variance: float | None = None) -> tuple[float, int]:
    """Return by what factor the variance of a mean exceeds that of independent values, and how many batches show it.

    From means of batches of b values in a row: b is doubled until ``b^3 > 2 n effect^2``, where what batches still
    share is as small as the uncertainty of their scatter. Source: R. M. Lee et al., Phys. Rev. E 83 (2011) 066706.
    """
    n = len(values)
    if n < LEAST_IN_ORDER:
        return 1.0, n
    if variance is None:
        average = float(values.mean())
        variance = average * (1 - average) if values.dtype == np.bool_ else squares(values, average) / n
    if variance == 0:
        return 1.0, n
    size = 2 ** math.ceil(math.log2(2 * n) / 3)
    batches = n // size
    together = values[: batches * size].reshape(batches, size)
    means = np.count_nonzero(together, axis=1) / size if values.dtype == np.bool_ else together.mean(axis=1)
    while True:
        effect = size * float(means.var(ddof=1)) / variance
        if size**3 > 2 * n * max(effect, 1.0) ** 2 or len(means) < 2 * LEAST_BATCHES:
            return effect, len(means)
        size *= 2
        means = means[: len(means) // 2 * 2].reshape(-1, 2).mean(axis=1)


def clock_step(times_ns: npt.NDArray[np.int64]) -> int | None:
    """Return the step of a clock in ns: the largest number that divides all differences of its readings.

    Readings that are all equally far apart are those of frames that were planned so, and tell no step: None.

    Examples
    --------
    >>> clock_step(np.array([1000, 3000, 9000]))
    2000
    """
    if len(times_ns) < 2:
        return None
    some = times_ns[:: max(1, len(times_ns) // 4096)]
    apart = np.diff(some)
    return None if (apart == apart[0]).all() else max(1, int(np.gcd.reduce(np.abs(apart))))


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
