"""One-way delays and the order of arrival, in the terms of RFC 5481 and RFC 4737."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcitrace.network.pieces import absolute_change
from pcitrace.network.sizes import LEAST, LOW_QUANTILE, batched, mean, quantile, taken
from pcitrace.network.width import Peak, peaks

__all__ = ["COARSE_US", "Bins", "Delay", "Order", "delay", "order"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


COARSE_US = 0.01
"""Step of a clock from which on it always matters."""

BINS = 120
"""Bins of a histogram at most; each is a whole number of the clock's steps wide."""


PEAKED = 200_000
"""Times in which peaks are looked for."""


@dataclass(frozen=True)
class Bins:
    """A histogram; what lies below or above is counted in the first or last bin.

    Attributes
    ----------
    edges_us : array of float, shape (bins + 1,)
    counts : array of int, shape (bins,)
    """

    edges_us: Floats
    counts: Integers


@dataclass(frozen=True)
class Delay:
    """Delays of the frames of a flow, or loops.

    Attributes
    ----------
    n : int
    least_us, largest_us : float
    mean_us, median_us, low_us : (float, float)
        Mean, median and 10 % quantile, each with its standard error; NaN where the delays are too few for one.
    p99_us, p999_us : float
    variation_p999_us : float
        99.9 % of delay minus least delay (RFC 5481, section 4.2: PDV).
    between_us : float
        Mean of the absolute difference between one frame's delay and the next one's (RFC 5481, section 4.1: IPDV).
    step_us : float
        Of the clock.
    alike : bool
        They scatter over less than two steps of the clock, so that it hides how long they were.
    effect, batched : float
        By what factor the median's variance is taken to be larger because they follow one another; and by what it was
        in batches of them, less than 1 by chance.
    peaks : tuple of Peak
        In their order in time; none where too few were measured.
    bins : Bins
        From below the least delay to beyond the 99 % quantile by as much as that lies above the median.
    """

    n: int
    least_us: float
    largest_us: float
    mean_us: tuple[float, float]
    median_us: tuple[float, float]
    low_us: tuple[float, float]
    p99_us: float
    p999_us: float
    variation_p999_us: float
    between_us: float
    step_us: float
    alike: bool
    effect: float
    batched: float
    peaks: tuple[Peak, ...]
    bins: Bins

    def statistic(self, name: str) -> tuple[float, float]:
        """Return ``median``, ``mean`` or ``q10`` with its standard error."""
        return {"median": self.median_us, "mean": self.mean_us, "q10": self.low_us}[name]


@dataclass(frozen=True)
class Order:
    """Frames that a later one overtook (RFC 4737).

    Attributes
    ----------
    reordered : int
    largest_extent : int
        Frames that arrived between an overtaken frame and the first that overtook it, and that one, at most (section
        4.2.1).
    n_reordering : dict of int to int
        How many frames n later ones, arrived just before, overtook (section 5.4): a receiver of n duplicate
        acknowledgements takes them for lost.
    """

    reordered: int
    largest_extent: int
    n_reordering: dict[int, int]


def delay(delays_us: Floats, step_us: float, *, shared_us: float = 0.0, in_order: bool = True) -> Delay | None:
    """Return what describes the delays; None for fewer than six.

    Parameters
    ----------
    delays_us : array of float, shape (n,)
        In the order of arrival.
    step_us : float
        Of the clock.
    shared_us : float
        Standard uncertainty that all of them share: of readings that lie alike in the clock's step.
    in_order : bool
        False: in no order, so that whether they follow one another is not seen.
    """
    n = len(delays_us)
    if n < LEAST:
        return None
    ordered = np.sort(delays_us)
    # Many times average the clock's step only where they scatter over it: those that are all alike are all wrong alike.
    alike = bool(_of(ordered, 0.9) - _of(ordered, 0.1) < 2 * step_us)
    least = math.hypot(shared_us, step_us / math.sqrt(12.0 if alike else 12.0 * n))
    high, higher = _of(ordered, 0.99), _of(ordered, 0.999)
    quantiles = (LOW_QUANTILE, 0.5)
    batches = [batched(delays_us <= _of(ordered, q)) if in_order else (1.0, n) for q in quantiles]
    effects = [taken(*one) for one in batches]
    low, middle = (
        _at_least(quantile(ordered, q, _tied(ordered, q, step_us), ordered=True, effect=effect), least)
        for q, effect in zip(quantiles, effects, strict=True)
    )
    return Delay(
        n,
        float(ordered[0]),
        float(ordered[-1]),
        _at_least(mean(delays_us, in_order=in_order), least),
        middle,
        low,
        high,
        higher,
        higher - float(ordered[0]),
        absolute_change(delays_us),
        step_us,
        alike,
        effects[1],
        batches[1][0],
        peaks(ordered[:: max(1, n // PEAKED)], max(step_us, 0.001)),
        _bins(ordered, high, step_us),
    )


def _tied(ordered: Floats, q: float, step_us: float) -> float:
    """Return the clock's step where it matters to a quantile, else 0.

    It does where the values within the quantile's own error are a few steps apart: of many they are all alike, and
    seem to have no error.
    """
    wide = math.sqrt(q * (1 - q) / len(ordered))
    around = _of(ordered, min(1.0, q + wide)) - _of(ordered, max(0.0, q - wide))
    return step_us if step_us > COARSE_US or around < 4 * step_us else 0.0


def _bins(ordered: Floats, high: float, step_us: float) -> Bins:
    """Return the histogram of sorted delays."""
    least, step = float(ordered[0]), max(step_us, 1e-3)
    reach = min(float(ordered[-1]), 2 * high - _of(ordered, 0.5)) - least
    wide = step * max(1, math.ceil(reach / BINS / step))
    places = np.arange(max(1, math.ceil((reach + step) / wide)) + 1, dtype=np.float64)
    edges = np.asarray(least - step / 2 + wide * places)
    inner = np.searchsorted(ordered, edges[1:-1])
    return Bins(edges, np.diff(np.concatenate([[0], inner, [len(ordered)]])))


def _at_least(number: tuple[float, float], sigma: float) -> tuple[float, float]:
    return number[0], number[1] if math.isnan(number[1]) else max(number[1], float(sigma))


def order(sequence: npt.NDArray[np.uint32], extents: Integers) -> Order:
    """Return how far frames were overtaken.

    Parameters
    ----------
    sequence : array of uint32, shape (n,)
        Of the first copies, in the order of arrival.
    extents : array of int64
        Of the reordered ones: see :class:`pcitrace.network.account.Account`.
    """
    if not len(extents):
        return Order(0, 0, {})
    overtaken = np.flatnonzero(sequence[1:] < np.maximum.accumulate(sequence)[:-1]) + 1
    degree, still = {}, overtaken
    for n in range(1, MOST_N + 1):
        still = still[still >= n]
        still = still[sequence[still - n] > sequence[still]]
        if not len(still):
            break
        degree[n] = len(still)
    return Order(len(extents), int(extents.max()), degree)


MOST_N = 10
"""Largest n of n-reordering that is counted: three make a TCP sender send again."""


def _of(ordered: Floats, q: float) -> float:
    """Return a quantile of sorted values."""
    at = q * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (at - below))
