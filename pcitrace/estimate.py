"""A measured number with its uncertainty, and how it follows from the times of many frames.

Every constant here is a linear combination of measured times: a mean, or a coefficient of a straight line. So its
uncertainty follows from that of the times without further assumptions, and two kinds of it are kept apart:

- ``sigma``: of the measurement. How far the value may be from what these very frames did, because the analyser
  samples, because two analysers' clocks were matched, because a length is only known to a few bytes.
- ``scatter``: of the frames. How far the mean of other frames like these would be from it (standard error). What the
  sampling alone makes the times scatter is left out, so that `sigma` and `scatter` add in quadrature to ``total``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = [
    "ALIKE", "SIGNIFICANT", "Comb", "Errors", "Estimate", "Line", "Shared", "difference", "line", "mean", "unknown",
]  # fmt: skip

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

SIGNIFICANT = 3.0
"""Standard uncertainties from which on a deviation is reported."""

ALIKE = 0.01
"""Relative difference up to which two hosts count as alike."""

BLUR = 20.0
"""How many times its uncertainty a length has to vary for a slope: at 20 it is too flat by 1/400."""

LEAST = 0.5
"""Share of the variance of edges by themselves that stays where their places between the samples say that their errors
cancel: the places are known to a fifth of a step, for CLK jitters."""

PLACES = 4096
"""Places between two samples that are told apart, much finer than they are known."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its uncertainty, count and source.

    Attributes
    ----------
    value : float or None
        None: not known; `reason` says why.
    sigma : float or None
        Standard uncertainty of the measurement (sampling step, clock offset, lengths).
    scatter : float or None
        Standard error that the differences between the frames leave; None for a given value or a single frame.
    n : int
        Frames, pieces or points it rests on.
    source : str
        ``measured``, ``given``, ``derived`` or ``unknown``.
    reason : str
        Why the value is not known.
    """

    value: float | None
    sigma: float | None
    n: int
    source: str = "measured"
    scatter: float | None = None
    reason: str = ""

    @property
    def total(self) -> float | None:
        """Uncertainty as a constant of card and host: `sigma` and `scatter` in quadrature."""
        return None if self.sigma is None else hypot(self.sigma, self.scatter or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return what ``report --json`` prints."""
        told: dict[str, Any] = {"value": self.value, "sigma": self.sigma, "scatter": self.scatter, "n": self.n}
        return told | {"source": self.source} | ({"reason": self.reason} if self.reason else {})

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown ({self.reason})"
        from uncertainties import ufloat

        total = self.total or 0.0
        return f"{ufloat(self.value, total):P}" if total > 0 else f"{self.value:.6g}"


def unknown(reason: str, n: int = 0) -> Estimate:
    """Return an estimate without a value."""
    return Estimate(None, None, n, "unknown", reason=reason)


@dataclass(frozen=True)
class Shared:
    """An error that frames have in common.

    Attributes
    ----------
    amount : array of float, shape (frames,)
        How much one standard deviation of the common cause moves each time.
    cause : array of int, shape (frames,)
        Frames with the same number share one cause.
    """

    amount: Floats
    cause: Integers


@dataclass(frozen=True)
class Comb:
    """Edges of one periodic clock, each seen at the next of samples that are as regular.

    How far an edge is from its sample is a sawtooth of its place between two samples. Edges that lie alike between
    their samples are wrong alike, and where the frames' spacing brings that about, their mean is as wrong as each.

    Attributes
    ----------
    amount : array of float, shape (edges, frames)
        How much later an edge that is later by a sampling step makes each time, times that step.
    place : array of int, shape (edges, frames)
        Place of each edge between two samples, 0 to `PLACES` - 1, from a place that is not known.
    """

    amount: Floats
    place: Integers

    def together(self, coefficients: Floats) -> float:
        """Return by how much the variance of a linear combination differs from that of edges wrong each by itself.

        With the common place unknown, two edges of which one lies d behind the other have the covariance
        (d**2 - d + 1/6)/2, which is 1/12 where they lie alike. Its sum over all pairs needs only how much lies where.
        """
        alone = 0.0
        amount = np.zeros(PLACES)
        for one, place in zip(self.amount, self.place, strict=True):
            each = coefficients * one
            alone += _dot(each, each)
            amount += np.bincount(place, weights=each, minlength=PLACES)
        moment = amount * np.arange(PLACES) / PLACES
        total, first = float(amount.sum()), float(moment.sum())
        distances = _dot(moment, np.cumsum(amount)) - _dot(amount, np.cumsum(moment))
        squares = total * _dot(moment, np.arange(PLACES) / PLACES) - first**2
        return (total**2 - alone) / 12 + squares - distances


@dataclass(frozen=True)
class Errors:
    """How wrong the times of some frames may be.

    Attributes
    ----------
    variance : array of float, shape (frames,)
        Of each by itself: the sampling of its edges.
    shared : tuple of Shared
        What frames have in common: the offset between two analysers, a length known to a few bytes.
    combs : tuple of Comb
        Edges in `variance` that are not wrong each by itself.
    """

    variance: Floats
    shared: tuple[Shared, ...] = ()
    combs: tuple[Comb, ...] = ()

    def __getitem__(self, rows: Any) -> Errors:
        shared = tuple(Shared(one.amount[rows], one.cause[rows]) for one in self.shared)
        combs = tuple(Comb(one.amount[:, rows], one.place[:, rows]) for one in self.combs)
        return Errors(self.variance[rows], shared, combs)

    def scaled(self, factor: float) -> Errors:
        """Return the errors of the times multiplied by a factor."""
        shared = tuple(Shared(one.amount * factor, one.cause) for one in self.shared)
        combs = tuple(Comb(one.amount * factor, one.place) for one in self.combs)
        return Errors(self.variance * factor**2, shared, combs)

    def with_shared(self, amount: Floats, cause: Integers) -> Errors:
        """Add an error that frames have in common."""
        return Errors(self.variance, (*self.shared, Shared(amount, cause)), self.combs)

    def sigma(self, coefficients: Floats) -> float:
        """Return the standard uncertainty of a linear combination."""
        alone = _dot(coefficients**2, self.variance)
        square = max(alone + sum(one.together(coefficients) for one in self.combs), LEAST * alone)
        for one in self.shared:
            square += float((np.bincount(one.cause, weights=coefficients * one.amount) ** 2).sum())
        return sqrt(square)


@dataclass(frozen=True)
class Line:
    """A straight line through measured points.

    Attributes
    ----------
    slope, intercept : Estimate
    residuals : array of float
    """

    slope: Estimate
    intercept: Estimate
    residuals: Floats


def mean(
    values: Floats, errors: Errors, none: str = "there is no such frame", *, unclear: Floats | None = None
) -> Estimate:
    """Return the mean.

    Parameters
    ----------
    values : array of float, shape (n,)
    errors : Errors
    none : str
        The reason where there is no value.
    unclear : array of float, optional
        Values of which it is not known whether they belong to the others: each might move the mean.
    """
    n = len(values)
    if n == 0:
        return unknown(none)
    each = np.full(n, 1 / n)
    value = float(values.mean())
    moved = 0.0 if unclear is None else sqrt(_dot(unclear - value, unclear - value)) / n
    return Estimate(value, hypot(errors.sigma(each), moved), n, scatter=_scatter(values - value, errors, each, 1))


def line(
    x: Floats,
    y: Floats,
    errors: Errors,
    what: str = "frames",
    *,
    x_sigma: Floats | None = None,
    unclear: tuple[Floats, Floats] | None = None,
) -> Line:
    """Return the least-squares line y = intercept + slope x, every point with the same weight.

    Parameters
    ----------
    x, y : arrays of float, shape (n,)
    errors : Errors
        Of `y`.
    what : str
        What is counted, for the reason where there is no line.
    x_sigma : array of float, shape (n,), optional
        Uncertainty of `x`. Where `x` hardly varies more than that, there is no line: it would be too flat. What it does
        to points on the line is part of `errors`.
    unclear : pair of arrays of float, optional
        `x` and `y` of points of which it is not known whether they belong to the others: each might move the line.
    """
    n = len(x)
    vary = n > 0 and x.min() < x.max()
    if vary and x_sigma is not None and x.std() < BLUR * sqrt(_dot(x_sigma, x_sigma) / n):
        reason = f"the lengths of the {n} {what} vary little more than their uncertainty; a slope needs other lengths"
        return Line(unknown(reason, n), unknown(reason, n), np.zeros(n))
    if not vary:
        alike = f"the {n} {what} have one length" if n > 1 else f"there is only one of these {what}"
        reason = f"there are no such {what}" if n == 0 else f"{alike}; a slope needs two lengths"
        return Line(unknown(reason, n), unknown(reason, n), np.zeros(n))
    # The linear combinations of `y` that give the coefficients.
    at_mean, far = np.full(n, 1 / n), x - x.mean()
    slope = far / _dot(far, far)
    value = _dot(slope, y)
    at_zero = at_mean - slope * x.mean()
    residuals = y - y.mean() - value * far
    # A point off the line weighs more or less where its x is wrong.
    moved = np.zeros(n) if x_sigma is None else residuals * x_sigma
    lever = sqrt(_dot(moved, moved)) * _dot(slope, slope)
    sigma, zero_sigma = hypot(errors.sigma(slope), lever), hypot(errors.sigma(at_zero), lever * float(x.mean()))
    if unclear is not None:
        # One more point moves a least-squares line by its distance from it, less the more it weighs itself.
        beyond = unclear[0] - x.mean()
        off = unclear[1] - y.mean() - value * beyond
        spread = _dot(slope, slope)
        off /= 1 + 1 / n + beyond**2 * spread
        tilts = off * beyond * spread
        shifts = off / n - tilts * x.mean()
        sigma, zero_sigma = hypot(sigma, sqrt(_dot(tilts, tilts))), hypot(zero_sigma, sqrt(_dot(shifts, shifts)))
    return Line(
        Estimate(value, sigma, n, scatter=_scatter(residuals, errors, slope, 2)),
        Estimate(_dot(at_zero, y), zero_sigma, n, scatter=_scatter(residuals, errors, at_zero, 2)),
        residuals,
    )


def difference(values: Floats, errors: Errors, second: Booleans, alike: Integers) -> Estimate:
    """Return by how much a second group exceeds the first, each value compared with those that are alike otherwise.

    Parameters
    ----------
    values : array of float, shape (n,)
    errors : Errors
    second : array of bool, shape (n,)
    alike : array of int, shape (n,)
        What must be equal: the length of a frame.
    """
    cell = pd.factorize(alike)[0]
    count = np.stack([np.bincount(cell[side], minlength=cell.max(initial=0) + 1) for side in (~second, second)])
    weight = count[0] * count[1] / np.maximum(count.sum(axis=0), 1)
    if not weight.any():
        return unknown("they have no length in common")
    each = (
        weight[cell] / weight.sum() / np.maximum(count[second.astype(np.int64), cell], 1) * np.where(second, 1.0, -1.0)
    )
    kind = 2 * cell + second
    size = np.bincount(kind)
    average = np.bincount(kind, weights=values) / np.maximum(size, 1)
    scatter = _scatter(values - average[kind], errors, each, int(np.count_nonzero(size)))
    return Estimate(_dot(each, values), errors.sigma(each), int(count[:, weight > 0].sum()), scatter=scatter)


def _scatter(residuals: Floats, errors: Errors, coefficients: Floats, parameters: int) -> float | None:
    """Return the standard error that the frames' own differences leave, without what the sampling adds to them."""
    free = len(residuals) - parameters
    if free < 1:
        return None
    own = _dot(residuals, residuals) / free - float(errors.variance.mean())
    return sqrt(max(own, 0.0) * _dot(coefficients, coefficients))


def _dot(a: Floats, b: Floats) -> float:
    """Return the sum of products. `@` shares it out to threads, and then its last digits depend on their number."""
    return float((a * b).sum())
