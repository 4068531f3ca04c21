"""A number with its uncertainty: the one type in which pcitrace gives what it measured.

Three uncertainties are kept apart, because they answer different questions:

- ``sigma_measurement``: how far the value may be from what these very frames did. The analyser samples, two analysers'
  clocks were matched, a length is only known to a few bytes.
- ``sigma_frames``: how far the mean of other frames like these would be from it: a standard error.
- ``sigma``: both in quadrature. Who compares the value with a constant of card and host takes this one.

``scatter`` is no uncertainty of the value. It is the standard deviation of the single frames, without what the sampling
adds to it: how much one frame differs from the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from math import hypot, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pcitrace.uncertainty import Errors, dot

if TYPE_CHECKING:
    from uncertainties import UFloat

__all__ = ["ALIKE", "SIGNIFICANT", "Estimate", "Line", "difference", "line", "mean", "unknown"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

SIGNIFICANT = 3.0
"""Standard uncertainties from which on a deviation is reported."""

ALIKE = 0.01
"""Relative difference up to which two numbers count as alike, however well they are known."""

BLUR = 20.0
"""How many times its uncertainty a length has to vary for a slope: at 20 it is too flat by 1/400."""

LEAST_SIGMA = 1e-12
"""An uncertainty below this is none: it is what rounding leaves of a number without one."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its uncertainty, unit, count and source.

    Attributes
    ----------
    value : float or None
        None: not known; `reason` says why.
    sigma_measurement : float or None
        Standard uncertainty of the measurement: sampling step, clock offset, lengths.
    n : int
        Frames, pieces or points it rests on; 0 for a given value.
    source : str
        ``measured``, ``derived`` (from other numbers), ``given`` (not measured here), ``estimated`` (under a stated
        assumption) or ``unknown``.
    sigma_frames : float or None
        Standard error that the differences between the frames leave; None for a given value or a single frame.
    scatter : float or None
        Standard deviation of the single frames.
    unit : str
        ``us``, ``us/byte``, ``ppm``.
    reason : str
        Why the value is not known.
    """

    value: float | None
    sigma_measurement: float | None
    n: int
    source: str = "measured"
    sigma_frames: float | None = None
    scatter: float | None = None
    unit: str = ""
    reason: str = ""

    @classmethod
    def of_ufloat(cls, number: UFloat, source: str, n: int, unit: str) -> Estimate:
        """Return a number of the model, whose parts are not kept apart, as an estimate."""
        return cls(float(number.nominal_value), float(number.std_dev), n, source, unit=unit)

    @property
    def sigma(self) -> float | None:
        """Total standard uncertainty: `sigma_measurement` and `sigma_frames` in quadrature."""
        return None if self.sigma_measurement is None else hypot(self.sigma_measurement, self.sigma_frames or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return what ``report --json`` prints."""
        told: dict[str, Any] = {
            "value": self.value,
            "sigma": self.sigma,
            "sigma_measurement": self.sigma_measurement,
            "sigma_frames": self.sigma_frames,
            "scatter": self.scatter,
            "n": self.n,
            "source": self.source,
            "unit": self.unit,
        }
        return told | ({"reason": self.reason} if self.reason else {})

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown ({self.reason})"
        sigma = self.sigma or 0.0
        if sigma < LEAST_SIGMA:
            return f"{self.value:.6g}"
        from uncertainties import ufloat

        return f"{ufloat(self.value, sigma):P}"

    def __repr__(self) -> str:
        if self.value is None:
            return f"<Estimate {self}>"
        return f"<Estimate {self} {self.unit}, {self.basis}>".replace(" ,", ",")

    @property
    def basis(self) -> str:
        """What the value rests on, in words."""
        return self.source + (f", n = {self.n}" if self.n else "")

    def _repr_html_(self) -> str:
        if self.value is None:
            return f"unknown <small>({escape(self.reason)})</small>"
        value = str(self).replace("±", " ± ")
        return f"{escape(value)} {escape(self.unit)} <small>({escape(self.basis)})</small>"


def unknown(reason: str, n: int = 0) -> Estimate:
    """Return an estimate without a value."""
    return Estimate(None, None, n, "unknown", reason=reason)


@dataclass(frozen=True)
class Line:
    """A straight line through measured points.

    Attributes
    ----------
    slope, intercept : Estimate
    residuals : array of float
    covariance : float
        Of intercept and slope, measurement and frames together.
    """

    slope: Estimate
    intercept: Estimate
    residuals: Floats
    covariance: float = 0.0

    def as_dict(self) -> dict[str, Any] | None:
        """Return intercept, slope and their covariance matrix as plain numbers; None where there is no line."""
        if self.slope.value is None or self.intercept.value is None:
            return None
        first, second = (one.sigma or 0.0 for one in (self.intercept, self.slope))
        matrix = [[first**2, self.covariance], [self.covariance, second**2]]
        return {"intercept": self.intercept.value, "slope": self.slope.value, "covariance": matrix, "n": self.slope.n}


def mean(
    values: Floats, errors: Errors, none: str = "there is no such frame", *, unclear: Floats | None = None
) -> Estimate:
    """Return the mean of some times.

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
    moved = 0.0 if unclear is None else sqrt(dot(unclear - value, unclear - value)) / n
    own = _own_variance(values - value, errors, 1)
    return Estimate(
        value,
        hypot(errors.sigma(each), moved),
        n,
        sigma_frames=_standard_error(own, each),
        scatter=None if own is None else sqrt(own),
        unit="us",
    )


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
        Bytes and us.
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
    why_not = _why_no_line(x, x_sigma, what)
    if why_not:
        return Line(unknown(why_not, n), unknown(why_not, n), np.broadcast_to(0.0, n))
    # The linear combinations of `y` that give the coefficients.
    far = x - x.mean()
    slope = far / dot(far, far)
    value = dot(slope, y)
    at_zero = 1 / n - slope * x.mean()
    residuals = y - y.mean() - value * far
    # A point off the line weighs more or less where its x is wrong.
    moved = np.zeros(n) if x_sigma is None else residuals * x_sigma
    lever = sqrt(dot(moved, moved)) * dot(slope, slope)
    tilts, shifts = _moves(x, y, value, unclear) if unclear is not None else (np.zeros(0), np.zeros(0))
    sigma = hypot(errors.sigma(slope), lever, sqrt(dot(tilts, tilts)))
    zero_sigma = hypot(errors.sigma(at_zero), lever * float(x.mean()), sqrt(dot(shifts, shifts)))
    own = _own_variance(residuals, errors, 2)
    both = errors.covariance(at_zero, slope) - lever**2 * float(x.mean()) + dot(shifts, tilts)
    both += (own or 0.0) * dot(at_zero, slope)
    scatter = None if own is None else sqrt(own)
    found = Estimate(value, sigma, n, sigma_frames=_standard_error(own, slope), scatter=scatter, unit="us/byte")
    error = _standard_error(own, at_zero)
    zero = replace(found, value=dot(at_zero, y), sigma_measurement=zero_sigma, sigma_frames=error, unit="us")
    return Line(found, zero, residuals, both)


def _why_no_line(x: Floats, x_sigma: Floats | None, what: str) -> str:
    """Say why there is no line through points with these x; empty if there is one."""
    n = len(x)
    if n == 0:
        return f"there are no such {what}"
    if x.min() == x.max():
        return (
            f"the {n} {what} have one length; a slope needs two lengths"
            if n > 1
            else (f"there is only one of these {what}; a slope needs two lengths")
        )
    if x_sigma is not None and x.std() < BLUR * sqrt(dot(x_sigma, x_sigma) / n):
        return f"the lengths of the {n} {what} vary little more than their uncertainty; a slope needs other lengths"
    return ""


def _moves(x: Floats, y: Floats, slope: float, unclear: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return by how much each of some further points would tilt a line, and shift its value at 0.

    One more point moves a least-squares line by its distance from it, less the more it weighs itself.
    """
    beyond = unclear[0] - x.mean()
    off = unclear[1] - y.mean() - slope * beyond
    spread = 1 / dot(x - x.mean(), x - x.mean())
    off = off / (1 + 1 / len(x) + beyond**2 * spread)
    tilts = off * beyond * spread
    return tilts, off / len(x) - tilts * x.mean()


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
    own = _own_variance(values - average[kind], errors, int(np.count_nonzero(size)))
    n = int(count[:, weight > 0].sum())
    error = _standard_error(own, each)
    return Estimate(dot(each, values), errors.sigma(each), n, sigma_frames=error, unit="us")


def _own_variance(residuals: Floats, errors: Errors, parameters: int) -> float | None:
    """Return the variance of single frames, without what the sampling adds; None without degrees of freedom."""
    free = len(residuals) - parameters
    if free < 1:
        return None
    return max(dot(residuals, residuals) / free - float(errors.variance.mean()), 0.0)


def _standard_error(own: float | None, coefficients: Floats) -> float | None:
    """Return the standard error of a linear combination of frames that each have this variance."""
    return None if own is None else sqrt(own * dot(coefficients, coefficients))
