"""Equation 2.1: the one-way latency of a frame as the sum of what software, cards, wire and PCI take.

``T(b) = 2 t_sw + 2 t_nic + R_net (b + 18 + P) + (R_PCI_send + R_PCI_recv) (b + 14)``

Source: R. Hughes-Jones and F. Saka, ATLAS note, 2000, equation 2.1, which has one R_PCI for both hosts; here sender and
receiver have their own. b are the user bytes, P the 8 bytes of the preamble; on the wire a frame has at least 46.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from uncertainties import UFloat, covariance_matrix, ufloat

from pcitrace.errors import FitError
from pcitrace.estimate import Estimate
from pcitrace.facts import FCS_BYTES, HEADER_BYTES, LEAST_USER_BYTES, PREAMBLE_BYTES
from pcitrace.latency import LatencyFit, Points

__all__ = ["TERMS", "LatencyModel", "Term"]

Floats = npt.NDArray[np.float64]

TERMS = {
    "t_sw_us": "2 t_sw",
    "t_nic_us": "2 t_nic",
    "R_net_us_per_byte": "R_net (b + 18 + P)",
    "R_PCI_send_us_per_byte": "R_PCI_send (b + 14)",
    "R_PCI_recv_us_per_byte": "R_PCI_recv (b + 14)",
}
"""The terms of Equation 2.1, in its order, and how each stands in it."""


@dataclass(frozen=True, repr=False)
class Term:
    """One term of the model.

    Attributes
    ----------
    name : str
        One of :data:`TERMS`.
    number : uncertainties.UFloat
        With its correlations to the other terms: what the model calculates with.
    source : str
        ``measured``, ``given`` or ``derived``.
    n : int
        Frames or points it rests on; 0 for a given one.
    """

    name: str
    number: UFloat
    source: str
    n: int = 0

    @classmethod
    def measured(cls, name: str, estimate: Estimate) -> Term:
        """Return a term from an estimate; FitError if it is not known."""
        if estimate.value is None:
            raise FitError(f"{name} is not known: {estimate.reason}")
        return cls(name, _uncertain(estimate.value, estimate.sigma or 0.0), estimate.source, estimate.n)

    @classmethod
    def given(cls, name: str, value: float, sigma: float = 0.0) -> Term:
        """Return a term that was not measured here."""
        return cls(name, _uncertain(value, sigma), "given")

    @property
    def estimate(self) -> Estimate:
        """The term with its uncertainty."""
        return Estimate.of_ufloat(self.number, self.source, self.n, "us/byte" if self.name.endswith("_byte") else "us")

    def __repr__(self) -> str:
        return f"<Term {self.name} = {self.estimate} {self.estimate.unit}, {self.source}>"


class LatencyModel:
    """Equation 2.1 with its terms, their covariance, and where each came from.

    Parameters
    ----------
    terms : iterable of Term
        All of :data:`TERMS`.
    preamble_bytes : int
        P.

    Attributes
    ----------
    terms : dict of str to Term
        In the order of :data:`TERMS`.
    preamble_bytes : int

    Raises
    ------
    FitError
        A term is missing; the message names it.

    Examples
    --------
    >>> model = LatencyModel.given(t_sw_us=8.70, t_nic_us=4.25, R_net_us_per_byte=0.008,
    ...                            R_PCI_send_us_per_byte=0.00775, R_PCI_recv_us_per_byte=0.00775)
    >>> print(f"{model.latency_us(1500).value:.2f} us")
    61.58 us
    """

    def __init__(self, terms: Iterable[Term], preamble_bytes: int = PREAMBLE_BYTES) -> None:
        known = {term.name: term for term in terms}
        missing = [name for name in TERMS if name not in known]
        if missing:
            raise FitError(f"Equation 2.1 needs {' and '.join(missing)}: measure or give it")
        self.terms = {name: known[name] for name in TERMS}
        self.preamble_bytes = preamble_bytes

    @classmethod
    def given(cls, *, preamble_bytes: int = PREAMBLE_BYTES, **values: float) -> Self:
        """Return the model of given values, each under its name in :data:`TERMS`, without uncertainties."""
        return cls([Term.given(name, value) for name, value in values.items()], preamble_bytes)

    @classmethod
    def from_latency(cls, fit: LatencyFit, terms: Iterable[Term], preamble_bytes: int = PREAMBLE_BYTES) -> Self:
        """Derive t_sw as what the intercept of a measured latency leaves when all other terms are taken away.

        Parameters
        ----------
        fit : LatencyFit
        terms : iterable of Term
            All but t_sw.
        preamble_bytes : int

        Returns
        -------
        LatencyModel
            Its t_sw is correlated with the other terms, so that their errors do not count twice.
        """
        known = list(terms)
        rest = cls([*known, Term.given("t_sw_us", 0.0)], preamble_bytes)
        t_sw = (fit.intercept - rest.intercept) / 2
        return cls([*known, Term("t_sw_us", t_sw, "derived", fit.n)], preamble_bytes)

    @classmethod
    def fit(
        cls,
        length_bytes: npt.ArrayLike,
        latency_us: npt.ArrayLike,
        sigma_us: npt.ArrayLike | None = None,
        *,
        free: Iterable[str],
        terms: Iterable[Term] = (),
        preamble_bytes: int = PREAMBLE_BYTES,
    ) -> Self:
        """Fit some terms to measured latencies and hold the others.

        Parameters
        ----------
        length_bytes, latency_us, sigma_us : arrays of float, shape (n,)
            As for :meth:`LatencyFit.of`.
        free : iterable of str
            Names of the terms to fit.
        terms : iterable of Term
            The others. Their errors are carried into the fitted ones.
        preamble_bytes : int

        Returns
        -------
        LatencyModel

        Raises
        ------
        FitError
            The latencies do not determine the free terms; the message names them. A latency is a line in b: it
            tells at most two numbers, never t_sw from t_nic, and no two rates beside one of these.
        """
        wanted, held = tuple(free), list(terms)
        strange = [name for name in wanted if name not in TERMS]
        if strange or not wanted:
            raise FitError(f"free terms {', '.join(strange) or 'missing'}: Equation 2.1 has {', '.join(TERMS)}")
        rest = cls(
            [*(term for term in held if term.name not in wanted), *(Term.given(name, 0.0) for name in wanted)],
            preamble_bytes,
        )
        points = Points.of(length_bytes, latency_us, sigma_us)
        design = {name: rest.factor(name, points.length) for name in TERMS}
        others = [name for name in TERMS if name not in wanted]
        known = np.sum([rest.terms[name].number.nominal_value * design[name] for name in others], axis=0)
        points = replace(points, latency=points.latency - known)
        columns = np.column_stack([design[name] for name in wanted])
        found, _, _ = points.fit(columns, wanted)
        # What the held terms may be wrong by goes into the fitted ones, which keeps them correlated.
        moved = points.solution(columns) @ np.column_stack([design[name] for name in others])
        off = [rest.terms[name].number - rest.terms[name].number.nominal_value for name in others]
        fitted = [
            Term(name, value - sum(a * b for a, b in zip(row, off, strict=True)), "derived", len(points.length))
            for name, value, row in zip(wanted, found, moved.tolist(), strict=True)
        ]
        return cls([*(rest.terms[name] for name in others), *fitted], preamble_bytes)

    def factor(self, name: str, length_bytes: npt.ArrayLike) -> Floats:
        """Return by what a term is multiplied in T(b), for each length."""
        b = np.asarray(length_bytes, dtype=np.float64)
        if name in ("t_sw_us", "t_nic_us"):
            return np.full_like(b, 2.0)
        if name == "R_net_us_per_byte":
            return np.asarray(np.maximum(b, LEAST_USER_BYTES) + HEADER_BYTES + FCS_BYTES + self.preamble_bytes)
        return np.asarray(b + HEADER_BYTES)

    @property
    def intercept(self) -> UFloat:
        """T of the line at b = 0, correlated with the terms (from 46 bytes on T is this line)."""
        return self._at(LEAST_USER_BYTES) - LEAST_USER_BYTES * self.slope

    @property
    def slope(self) -> UFloat:
        """R_net + R_PCI_send + R_PCI_recv, correlated with the terms."""
        return sum(term.number for name, term in self.terms.items() if name.startswith("R_"))

    def _at(self, length_bytes: float) -> UFloat:
        return sum(float(self.factor(name, length_bytes)) * term.number for name, term in self.terms.items())

    @property
    def intercept_us(self) -> Estimate:
        """T of the line at b = 0 (from 46 bytes on T is this line)."""
        return Estimate.of_ufloat(self.intercept, "derived", 0, "us")

    @property
    def slope_us_per_byte(self) -> Estimate:
        """R_net + R_PCI_send + R_PCI_recv."""
        return Estimate.of_ufloat(self.slope, "derived", 0, "us/byte")

    def latency_us(self, length_bytes: float) -> Estimate:
        """Return T(b) with its uncertainty."""
        return Estimate.of_ufloat(self._at(length_bytes), "derived", 0, "us")

    def predict(self, length_bytes: npt.ArrayLike) -> pd.DataFrame:
        """Return T for many lengths: ``length_bytes``, ``latency_us``, ``sigma_us``."""
        lengths = np.atleast_1d(np.asarray(length_bytes, dtype=np.float64))
        matrix = np.column_stack([self.factor(name, lengths) for name in TERMS])
        values = np.array([term.number.nominal_value for term in self.terms.values()])
        variance = np.einsum("ij,jk,ik->i", matrix, self.covariance.to_numpy(), matrix)
        sigma = np.sqrt(np.maximum(variance, 0.0))
        return pd.DataFrame({"length_bytes": lengths, "latency_us": matrix @ values, "sigma_us": sigma})

    @property
    def covariance(self) -> pd.DataFrame:
        """Covariance of the terms, named by rows and columns."""
        matrix = covariance_matrix([term.number for term in self.terms.values()])
        return pd.DataFrame(matrix, index=list(TERMS), columns=list(TERMS))

    def contributions(self, fit: LatencyFit | None = None) -> pd.DataFrame:
        """Return what each term gives to intercept and slope, beside a measured fit.

        Returns
        -------
        pandas.DataFrame
            Rows: the terms as they stand in Equation 2.1, their ``sum``, and with a fit ``measured`` and
            ``difference``. Columns: ``intercept_us``, ``intercept_sigma_us``, ``slope_us_per_byte``,
            ``slope_sigma_us_per_byte``, ``source``, ``n``.
        """
        low, high = LEAST_USER_BYTES, LEAST_USER_BYTES + 1
        rows = []
        for name, term in self.terms.items():
            at_low, at_high = float(self.factor(name, low)), float(self.factor(name, high))
            slope = at_high - at_low
            rows.append((TERMS[name], (at_low - low * slope) * term.number, slope * term.number, term.source, term.n))
        rows.append(("sum", self.intercept, self.slope, "", 0))
        if fit is not None:
            rows.append(("measured", fit.intercept, fit.slope, "measured", fit.n))
            left = (fit.intercept - self.intercept, fit.slope - self.slope)
            rows.append(("difference", *left, "", 0))
        return pd.DataFrame(
            [
                (what, a.nominal_value, a.std_dev, b.nominal_value, b.std_dev, source, n)
                for what, a, b, source, n in rows
            ],
            columns=[
                "term",
                "intercept_us",
                "intercept_sigma_us",
                "slope_us_per_byte",
                "slope_sigma_us_per_byte",
                "source",
                "n",
            ],
        ).set_index("term")

    def __repr__(self) -> str:
        return f"<LatencyModel: T(b) = {self.intercept_us} us + {self.slope_us_per_byte} us/byte b>"


def _uncertain(value: float, sigma: float) -> UFloat:
    """Return a number with its uncertainty; one without is no variable of its own."""
    return ufloat(value, sigma) if sigma > 0 else value + 0 * ufloat(1.0, 1.0)
