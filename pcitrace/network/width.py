"""Width of a histogram's peak by binned likelihood, with the step of the clock that the times were read from.

A time that is the difference of two readings of a clock with a coarse step is spread over a triangle of two steps.
Half of the height of such a histogram says more of the clock than of the peak: with a step of 2 us it makes 3.38 us of
2.59.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pcitrace.errors import FitError
from pcitrace.network.sizes import correlation

__all__ = ["FWHM", "Peak", "Width", "peaks", "width"]

Floats = npt.NDArray[np.float64]

FWHM = 2 * math.sqrt(2 * math.log(2))
"""Full width at half maximum of a normal distribution, in standard deviations."""

LEAST = 50
"""Values from which on a peak is fitted."""

BINS = 200
"""Bins at most; those of a coarse clock are as wide as its step, or a whole number of steps."""

LEAST_BINS = 48

REACH = 6.0
"""Standard deviations around the peak that are fitted: what lies beyond is counted as outside."""

BACKGROUND = 9.0
"""By how much a background must lower chi-square to be there."""

DOUBTFUL = 0.1
"""Probability of the peak alone below which a background is tried."""

LEAST_IN_BIN = 5.0

PLACES = 16
"""Places between two steps of a clock that are told apart."""

CLEAR = 5.0
"""Standard deviations by which a peak must stand above the dip beside it."""


@dataclass(frozen=True)
class Width:
    """The main peak of a distribution: normal, on a flat background.

    Attributes
    ----------
    centre_us, sigma_us, fwhm_us : (float, float)
        Value and standard uncertainty.
    background : float
        Share of the fitted values that are not of the peak.
    outside : int
        Values too far away to be fitted.
    n : int
    step_us : float
        Of the clock.
    p_value : float
        Probability of a worse description, if the peak is normal (chi-square of the bins).
    """

    centre_us: tuple[float, float]
    sigma_us: tuple[float, float]
    fwhm_us: tuple[float, float]
    background: float
    outside: int
    n: int
    step_us: float
    p_value: float

    @property
    def normal(self) -> bool:
        """Whether a normal peak describes the values."""
        return self.p_value > 1e-4


@dataclass(frozen=True)
class Peak:
    """A peak of a histogram.

    Attributes
    ----------
    at_us : float
        Mean of the values in the five bins around it.
    count : int
        How many these are.
    """

    at_us: float
    count: int


def width(values_us: npt.ArrayLike, step_us: float = 0.001, readings: int = 2, *, in_order: bool = True) -> Width:
    """Fit the main peak.

    Parameters
    ----------
    values_us : array of float, shape (n,)
    step_us : float
        Step of the clock.
    readings : int
        2: each value is the difference of two readings of a clock that runs by itself (frame logs); 1: one reading, of
        a counter that was started with the frame, or a value that was rounded.
    in_order : bool
        False: the values are in no order, so that whether they follow one another is not seen.

    Returns
    -------
    Width

    Raises
    ------
    FitError
        Fewer than 50 values, or all alike.
    """
    values = np.asarray(values_us, dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(values) < LEAST:
        raise FitError(f"{len(values)} times: the width of a peak needs {LEAST} or more")
    low, middle, high = _core(values)
    spread = max((high - low) / 1.349, step_us / math.sqrt(12))
    inside = values[np.abs(values - middle) <= REACH * spread + step_us]
    bins = min(BINS, max(LEAST_BINS, len(inside) // 5))
    size = max(1, math.ceil(2 * REACH * spread / bins / step_us)) * step_us
    coarse = size < 1.5 * step_us
    first = math.floor((middle - REACH * spread) / size) * size - size / 2
    edges = first + size * np.arange(math.ceil((inside.max() - first) / size + 1e-9) + 1)
    places, counts = _by_place(inside, edges, PLACES if coarse else 1)
    if (counts.sum(axis=0) > 0).sum() < 2:
        raise FitError(f"all {len(values)} times are alike: the clock's step of {step_us:g} us hides the width")
    found = _fit(_Shape(edges, places, counts, step_us, readings, coarse), middle, spread, len(values))
    if not in_order:
        return found
    off = inside - found.centre_us[0]
    centre, wide = (math.sqrt(correlation(one)) for one in (off, off**2))
    return replace(
        found,
        centre_us=(found.centre_us[0], centre * found.centre_us[1]),
        sigma_us=(found.sigma_us[0], wide * found.sigma_us[1]),
        fwhm_us=(found.fwhm_us[0], wide * found.fwhm_us[1]),
    )


def _by_place(values: Floats, edges: Floats, kinds: int) -> tuple[Floats, Floats]:
    """Return where in a bin values lie, and how many of each such kind are in each bin.

    Times that were corrected for the drift of a clock lie no longer all alike between the steps of it.
    """
    size = edges[1] - edges[0]
    bins = np.clip(((values - edges[0]) / size).astype(np.int64), 0, len(edges) - 2)
    places = (values - edges[bins]) / size
    kind = np.clip((places * kinds).astype(np.int64), 0, kinds - 1)
    table = np.bincount(kind * (len(edges) - 1) + bins, minlength=kinds * (len(edges) - 1))
    many = np.bincount(kind, minlength=kinds)
    means = np.bincount(kind, places, minlength=kinds) / np.maximum(many, 1)
    return means[many > 0], table.reshape(kinds, -1)[many > 0].astype(np.float64)


def peaks(values_us: npt.ArrayLike, step_us: float = 0.001) -> tuple[Peak, ...]:
    """Return the peaks of a distribution, in their order in time.

    A peak stands out of the dips beside it by five standard deviations of its count, after smoothing over three bins.
    """
    from scipy.signal import find_peaks

    values = np.asarray(values_us, dtype=np.float64)
    if len(values) < LEAST:
        return ()
    low, high = np.quantile(values, [0.001, 0.999])
    quarters = float(np.subtract(*np.quantile(values, [0.75, 0.25])))
    size = max(1, round(max(quarters / len(values) ** (1 / 3), (high - low) / BINS) / step_us)) * step_us
    edges = np.arange(low - 2 * size, high + 3 * size, size)
    counts = np.histogram(values, edges)[0]
    smooth = np.convolve(counts, [0.25, 0.5, 0.25], "same")
    at, found = find_peaks(smooth, prominence=0)
    clear = found["prominences"] > CLEAR * np.sqrt(np.maximum(smooth[at], 1.0))
    peak_list = []
    for place in at[clear]:
        near = slice(max(0, place - 2), place + 3)
        centres = (edges[:-1] + edges[1:])[near] / 2
        weight = counts[near]
        peak_list.append(Peak(float((centres * weight).sum() / weight.sum()), int(weight.sum())))
    return tuple(peak_list)


def _core(values: Floats) -> tuple[float, float, float]:
    """Return the quartiles of the values around the median, without far ones."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    near = values[np.abs(values - middle) <= 5 * max(high - low, 1e-9)]
    quarters = np.quantile(near, [0.25, 0.5, 0.75])
    return float(quarters[0]), float(quarters[1]), float(quarters[2])


@dataclass(frozen=True)
class _Shape:
    edges: Floats
    places: Floats
    counts: Floats
    step: float
    readings: int
    coarse: bool

    def shares(self, centre: float, sigma: float, background: float) -> Floats:
        """Return the probability of each bin, in a row for each place in a bin."""
        from scipy.special import ndtr

        if self.coarse:
            # A value stands for all that the clock reads so: one step around it, or a triangle of two readings, which
            # is the second difference of the integral of the normal distribution function.
            values = self.edges[:-1] + (self.edges[1] - self.edges[0]) * self.places[:, None]
            ends = np.array([-1.0, 0.0, 1.0]) if self.readings == 2 else np.array([-0.5, 0.5])
            z = (values[..., None] + self.step * ends - centre) / sigma
            if self.readings == 2:
                whole = sigma * (z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)) / self.step
                peak = whole[..., 0] - 2 * whole[..., 1] + whole[..., 2]
            else:
                peak = ndtr(z[..., 1]) - ndtr(z[..., 0])
        else:
            # Readings of a step that is much finer than a bin widen the peak by no more than its own variance.
            wide = math.sqrt(sigma**2 + self.readings * self.step**2 / 12)
            peak = np.diff(ndtr((self.edges - centre) / wide))[None, :]
        share = np.maximum(peak, 0.0) / np.maximum(peak.sum(axis=1, keepdims=True), 1e-12)
        return np.asarray((1 - background) * share + background / share.shape[1])

    def expected(self, centre: float, sigma: float, background: float) -> Floats:
        """Return how many are expected in each bin, in a row for each place in a bin."""
        return np.asarray(self.counts.sum(axis=1, keepdims=True) * self.shares(centre, sigma, background))


def _fit(shape: _Shape, middle: float, spread: float, n: int) -> Width:
    from iminuit import Minuit

    def cost(centre: float, sigma: float, background: float) -> float:
        expected = np.maximum(shape.expected(centre, sigma, background), 1e-12)
        seen = shape.counts > 0
        terms = expected - shape.counts
        terms[seen] += shape.counts[seen] * np.log(shape.counts[seen] / expected[seen])
        return float(2 * terms.sum())

    minimum = Minuit(cost, centre=middle, sigma=spread, background=0.0)
    minimum.errordef = Minuit.LEAST_SQUARES
    minimum.limits["sigma"] = (1e-3 * shape.step + 1e-9, float(np.ptp(shape.edges)))
    minimum.limits["background"] = (0.0, 1.0)
    minimum.strategy = 1
    minimum.fixed["background"] = True
    minimum.migrad()
    alone, found = minimum.fval or 0.0, minimum.values.to_dict()
    if _goodness(shape.counts, shape.expected(found["centre"], found["sigma"], 0.0)) < DOUBTFUL:
        minimum.fixed["background"] = False
        minimum.values["background"] = 0.01
        minimum.migrad()
        if alone - (minimum.fval or 0.0) < BACKGROUND:
            # A background that is not seen takes the tails of the peak and makes it narrow.
            for name, value in found.items():
                minimum.values[name] = value
            minimum.fixed["background"] = True
            minimum.migrad()
    if not minimum.valid:
        raise FitError("the width of the peak cannot be told: the fit of a normal peak does not converge")
    values, errors = minimum.values, minimum.errors
    inside = shape.counts.sum()
    expected = shape.expected(values["centre"], values["sigma"], values["background"])
    return Width(
        (values["centre"], errors["centre"]),
        (values["sigma"], errors["sigma"]),
        (FWHM * values["sigma"], FWHM * errors["sigma"]),
        float(values["background"]),
        n - int(inside),
        n,
        shape.step,
        _goodness(shape.counts, expected),
    )


def _goodness(counts: Floats, expected: Floats) -> float:
    """Return the probability of a larger chi-square, bins joined until five are expected in each."""
    from scipy.special import chdtrc

    counts, expected = counts.sum(axis=0), expected.sum(axis=0)
    group = np.floor(np.cumsum(expected) / LEAST_IN_BIN).astype(np.int64)
    group = np.unique(group, return_inverse=True)[1]
    seen, wanted = np.bincount(group, counts), np.bincount(group, expected)
    free = len(seen) - 4
    return float(chdtrc(free, ((seen - wanted) ** 2 / wanted).sum())) if free > 0 else 1.0
