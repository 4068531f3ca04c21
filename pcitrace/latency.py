"""Measured latencies and the straight line through them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from uncertainties import UFloat, correlated_values

from pcitrace.errors import FitError
from pcitrace.estimate import Estimate
from pcitrace.extras import need_fits

__all__ = ["LatencyFit", "Points", "read"]

Floats = npt.NDArray[np.float64]

COLUMNS = ("length_bytes", "latency_us", "sigma_us", "n")
"""Columns of a latency file: user bytes, one-way latency, its standard error, number of loops."""


def read(path: str | Path) -> pd.DataFrame:
    """Read a latency file.

    Parameters
    ----------
    path : str or pathlib.Path
        A CSV file with the columns :data:`COLUMNS`; ``sigma_us`` and ``n`` may be empty.

    Returns
    -------
    pandas.DataFrame
        One row a length; null where not known.

    Raises
    ------
    FitError
        The file is no such table.
    """
    try:
        table = pd.read_csv(path, dtype="float64")
    except (OSError, ValueError) as error:
        raise FitError(f"{path}: not a table of latencies: {error}") from error
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise FitError(f"{path}: no column {', '.join(missing)}; a latency file has {', '.join(COLUMNS)}")
    if not len(table) or table[["length_bytes", "latency_us"]].isna().any(axis=None):
        raise FitError(f"{path}: every row needs length_bytes and latency_us, and there must be one")
    for name, low in (("length_bytes", 0.0), ("latency_us", 0.0)):
        if (table[name] < low).any():
            raise FitError(f"{path}: {name}: {table[name].min():g} is negative")
    return table[list(COLUMNS)]


@dataclass(frozen=True, repr=False)
class LatencyFit:
    """A straight line through measured latencies.

    Attributes
    ----------
    intercept, slope : uncertainties.UFloat
        Correlated with each other: what the model calculates with.
    chi2, ndof : float, int
    p_value : float or None
        Probability of a larger chi2; None without errors of the points or without degrees of freedom.
    n : int
        Points.
    residuals_us : array of float, shape (n,)
        Measured minus fitted.
    """

    intercept: UFloat
    slope: UFloat
    chi2: float
    ndof: int
    p_value: float | None
    n: int
    residuals_us: Floats

    @classmethod
    def of(cls, length_bytes: npt.ArrayLike, latency_us: npt.ArrayLike, sigma_us: npt.ArrayLike | None = None) -> Self:
        """Fit a line.

        Parameters
        ----------
        length_bytes : array of float, shape (n,)
            User bytes b.
        latency_us : array of float, shape (n,)
            One-way latencies.
        sigma_us : array of float, shape (n,), optional
            Their standard errors; without them the points' own scatter about the line is taken, which needs three.

        Returns
        -------
        LatencyFit

        Raises
        ------
        FitError
            Fewer than two lengths, or errors that are not positive.

        Examples
        --------
        >>> fit = LatencyFit.of([64, 512, 1024, 1500], [27.83, 38.35, 50.38, 61.57], [0.05] * 4)
        >>> print(f"{fit.intercept_us} + {fit.slope_us_per_byte} b")
        26.32±0.05 + 0.02350±0.00005 b
        """
        points = Points.of(length_bytes, latency_us, sigma_us)
        lengths = len(np.unique(points.length))
        if lengths < 2:
            raise FitError(f"intercept and slope are not determined by {lengths} length: measure two or more")
        ones = np.ones(len(points.length))
        found, chi2, residuals = points.fit(np.column_stack([ones, points.length]), ("intercept", "slope"))
        ndof = len(ones) - 2
        p_value = points.p_value(chi2, ndof)
        return cls(found[0], found[1], chi2, ndof, p_value, len(ones), residuals)

    @property
    def intercept_us(self) -> Estimate:
        """Latency of the line at 0 bytes."""
        return Estimate.of_ufloat(self.intercept, "measured", self.n, "us")

    @property
    def slope_us_per_byte(self) -> Estimate:
        """What a byte adds to the latency."""
        return Estimate.of_ufloat(self.slope, "measured", self.n, "us/byte")

    def __repr__(self) -> str:
        return f"<LatencyFit: {self.intercept_us} us + {self.slope_us_per_byte} us/byte b, {self.n} points>"


@dataclass(frozen=True)
class Points:
    """Latencies to fit."""

    length: Floats
    latency: Floats
    sigma: Floats | None

    @classmethod
    def of(cls, length_bytes: npt.ArrayLike, latency_us: npt.ArrayLike, sigma_us: npt.ArrayLike | None) -> Self:
        """Check the points."""
        x, y = np.asarray(length_bytes, dtype=np.float64), np.asarray(latency_us, dtype=np.float64)
        sigma = None if sigma_us is None else np.asarray(sigma_us, dtype=np.float64)
        if x.ndim != 1 or not len(x) or x.shape != y.shape or (sigma is not None and sigma.shape != x.shape):
            raise FitError(f"lengths of shape {x.shape} and latencies of shape {y.shape}; give as many of each")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise FitError("a length or a latency is not a finite number")
        if sigma is not None and not (np.isfinite(sigma) & (sigma > 0)).all():
            raise FitError("an error of a latency is not positive; where errors are not known, give none")
        return cls(x, y, sigma)

    @property
    def errors(self) -> Floats:
        """Errors for weighting."""
        return np.ones(len(self.length)) if self.sigma is None else self.sigma

    def solution(self, columns: Floats) -> Floats:
        """Return the matrix that gives the least-squares coefficients from latencies."""
        return np.asarray(np.linalg.pinv(columns / self.errors[:, None]) / self.errors)

    def fit(self, columns: Floats, names: tuple[str, ...]) -> tuple[tuple[UFloat, ...], float, Floats]:
        """Fit latency = columns @ coefficients; return these, chi2 and the residuals."""
        need_fits("the line through measured latencies")
        from iminuit import Minuit
        from iminuit.cost import LeastSquares

        scale = np.abs(columns).max(axis=0)
        weighted = columns / scale / self.errors[:, None]
        _, weights, directions = np.linalg.svd(weighted)
        rank = int((weights > 1e-9 * weights[0]).sum())
        if rank < len(names):
            # Directions in which coefficients can change together and no latency changes.
            free = np.abs(directions[rank:]).max(axis=0) > 1e-6
            which = " and ".join(name for name, one in zip(names, free, strict=True) if one)
            lengths = len(np.unique(self.length))
            raise FitError(
                f"latencies of {lengths} lengths do not tell {which} apart: hold all but one, or measure more"
            )
        ndof = len(self.length) - len(names)
        if self.sigma is None and ndof < 1:
            raise FitError(
                f"{len(self.length)} latencies without errors determine {', '.join(names)} but no uncertainty"
            )
        rows = np.arange(len(self.length))
        cost = LeastSquares(rows, self.latency, self.errors, lambda i, p: (columns / scale)[i.astype(int)] @ p)
        minimum = Minuit(cost, self.solution(columns / scale) @ self.latency)
        minimum.strategy = 2
        minimum.migrad().hesse()
        if not minimum.valid or minimum.covariance is None:
            raise FitError(f"the fit of {', '.join(names)} did not converge")
        values = np.asarray(minimum.values) / scale
        covariance = np.asarray(minimum.covariance) / np.outer(scale, scale)
        chi2 = float(minimum.fval or 0.0)
        if self.sigma is None:
            covariance *= chi2 / ndof
        found = correlated_values(values, covariance)
        return tuple(found), chi2, self.latency - columns @ values

    def p_value(self, chi2: float, ndof: int) -> float | None:
        """Return the probability of a larger chi2."""
        from scipy.special import chdtrc

        return float(chdtrc(ndof, chi2)) if self.sigma is not None and ndof > 0 else None
