"""How wrong measured times may be: each by itself, and together.

Every constant is a linear combination of measured times: a mean, or a coefficient of a straight line. Its uncertainty
follows from that of the times alone. What matters is which errors the times share, because a shared error does not
become smaller in a mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST", "PLACES", "Comb", "Errors", "Shared", "dot"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LEAST = 0.5
"""Share of the variance of edges by themselves that stays where their places between the samples say that their errors
cancel: the places are known to a fifth of a step, for CLK jitters."""

PLACES = 4096
"""Places between two samples that are told apart, much finer than they are known."""


def dot(a: Floats, b: Floats) -> float:
    """Return the sum of products. `@` shares it out to threads, and then its last digits depend on their number."""
    return float((a * b).sum())


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
            alone += dot(each, each)
            amount += np.bincount(place, weights=each, minlength=PLACES)
        moment = amount * np.arange(PLACES) / PLACES
        total, first = float(amount.sum()), float(moment.sum())
        distances = dot(moment, np.cumsum(amount)) - dot(amount, np.cumsum(moment))
        squares = total * dot(moment, np.arange(PLACES) / PLACES) - first**2
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
        every = np.arange(len(self.variance))
        if np.array_equal(every[rows], every):
            return self  # mostly all frames are chosen
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
        alone = dot(coefficients**2, self.variance)
        square = max(alone + sum(one.together(coefficients) for one in self.combs), LEAST * alone)
        for one in self.shared:
            square += float((np.bincount(one.cause, weights=coefficients * one.amount) ** 2).sum())
        return sqrt(square)

    def covariance(self, first: Floats, second: Floats) -> float:
        """Return the covariance of two linear combinations."""
        # They may differ by orders of magnitude: one is a mean, the other a slope.
        scale = sqrt(dot(first, first) / (dot(second, second) or 1.0)) or 1.0
        one, two = self.sigma(first), self.sigma(second * scale)
        both = (self.sigma(first + second * scale) ** 2 - one**2 - two**2) / 2
        return float(np.clip(both, -one * two, one * two)) / scale
