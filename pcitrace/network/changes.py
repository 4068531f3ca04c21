"""A line that is another one from a size on: its slope changes, or the times jump.

A driver that copies short frames and maps long ones, a switch that turns from one way to another, a host whose clock
rate changed half-way through the sizes: then what is told is the line of the shorter frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from uncertainties import UFloat

from pcitrace.network.lines import LatencyLine, as_legs, base_of, fitted
from pcitrace.network.scan import Scan, scan

__all__ = ["Bend", "Jump", "bend", "jump"]

Floats = npt.NDArray[np.float64]

LEAST_ASIDE = 3
"""Sizes on either side of such a place: two tell a slope, and nothing of whether it is one."""

ROUNDS = 20
"""Of the search for the size at which the slope changes; a few are enough."""


@dataclass(frozen=True)
class Bend:
    """A line whose slope changes.

    Attributes
    ----------
    at_bytes : uncertainties.UFloat
        Size beyond which it does.
    change_us_per_byte : uncertainties.UFloat
        By how much the slope is larger beyond.
    line : LatencyLine
        Of the shorter frames.
    """

    at_bytes: UFloat
    change_us_per_byte: UFloat
    line: LatencyLine

    TERMS = 4

    def __str__(self) -> str:
        return f"the slope changes by {self.change_us_per_byte:.2uS} us/byte at {self.at_bytes:.2uS} bytes"

    def added_us(self, legs: Floats) -> Floats:
        """Return what it adds to loops."""
        over = np.maximum(legs - self.at_bytes.nominal_value, 0.0).sum(axis=1)
        return np.asarray(over * self.change_us_per_byte.nominal_value)


@dataclass(frozen=True)
class Jump:
    """A line that jumps, and may have another slope beyond.

    Attributes
    ----------
    below_bytes, beyond_bytes : float
        The measured sizes between which it does.
    change_us, change_us_per_byte : uncertainties.UFloat
        By how much the times are longer at the first of them, and the slope is larger beyond.
    line : LatencyLine
        Of the shorter frames.
    """

    below_bytes: float
    beyond_bytes: float
    change_us: UFloat
    change_us_per_byte: UFloat
    line: LatencyLine

    TERMS = 5

    def __str__(self) -> str:
        return f"the times jump by {self.change_us:.2uS} us from {self.below_bytes:g} to {self.beyond_bytes:g} bytes"

    def added_us(self, legs: Floats) -> Floats:
        """Return what it adds to loops."""
        step, over = _beyond(legs, self.below_bytes)
        return np.asarray(step * self.change_us.nominal_value + over * self.change_us_per_byte.nominal_value)


def bend(legs: npt.ArrayLike, loop_us: npt.ArrayLike, sigma_us: npt.ArrayLike, *, seed: int = 1) -> Bend | None:
    """Look for a size at which the slope changes; None where no change is seen.

    Parameters
    ----------
    legs, loop_us, sigma_us
        As for :func:`pcitrace.network.lines.line`.
    seed : int
        Of the bootstrap.

    Notes
    -----
    The best of the measured sizes is where the search for the place begins: a further column, 1 beyond the place, tells
    how far it must move. Source: V. M. R. Muggeo, Statistics in Medicine 22 (2003) 3055.
    """
    sizes = as_legs(legs)
    y, sigma = np.asarray(loop_us, dtype=np.float64), np.asarray(sigma_us, dtype=np.float64)
    inner, tried = _tried(sizes, 1, y, sigma, seed)
    if tried is None:
        return None
    at = float(inner[tried.best])
    for _ in range(ROUNDS):
        step, over = _beyond(sizes, at)
        columns = np.column_stack([base_of(sizes), over, step])
        found, terms = fitted(columns, y, sigma, ("intercept", "slope", "change", "moved"))
        place = at - terms[3] / terms[2].nominal_value
        # Between two measured sizes the fit is the same wherever it begins.
        below = float(inner[max(0, int(np.searchsorted(inner, place.nominal_value, side="right")) - 1)])
        if below == at:
            break
        at = below
    last = np.unique(sizes)[-LEAST_ASIDE]
    return Bend(place, terms[2], found) if inner[0] <= place.nominal_value <= last else None


def jump(legs: npt.ArrayLike, loop_us: npt.ArrayLike, sigma_us: npt.ArrayLike, *, seed: int = 1) -> Jump | None:
    """Look for a size beyond which all times are longer, or shorter; None where there is none.

    Parameters
    ----------
    legs, loop_us, sigma_us, seed
        As for :func:`bend`.
    """
    sizes = as_legs(legs)
    y, sigma = np.asarray(loop_us, dtype=np.float64), np.asarray(sigma_us, dtype=np.float64)
    inner, tried = _tried(sizes, 0, y, sigma, seed)
    if tried is None:
        return None
    # That there is one shows without a change of slope; where it is, only with it.
    below = min(inner.tolist(), key=lambda at: _left(sizes, at, y, sigma))
    columns = np.column_stack([base_of(sizes), *_beyond(sizes, below)])
    found, terms = fitted(columns, y, sigma, ("intercept", "slope", "jump", "change"))
    beyond = float(sizes[sizes > below].min())
    at_beyond = terms[2] + terms[3] * (beyond - below)
    return Jump(below, beyond, at_beyond, terms[3], found)


def _tried(sizes: Floats, column: int, y: Floats, sigma: Floats, seed: int) -> tuple[Floats, Scan | None]:
    """Return the sizes at which a change may be, and the scan over them where it found one."""
    inner = np.unique(sizes)[LEAST_ASIDE - 1 : -LEAST_ASIDE]
    if len(inner) < 2:
        return inner, None
    tried = scan(base_of(sizes), np.stack([_beyond(sizes, at)[column] for at in inner]), y, sigma, seed)
    return inner, tried if tried is not None and tried.found else None


def _left(sizes: Floats, at: float, y: Floats, sigma: Floats) -> float:
    """Return the chi-square that a jump and a change of slope at a size leave."""
    around = np.linalg.qr(np.column_stack([base_of(sizes), *_beyond(sizes, at)]) / sigma[:, None])[0]
    residual = y / sigma
    return float(((residual - around @ (around.T @ residual)) ** 2).sum())


def _beyond(sizes: Floats, at: float) -> tuple[Floats, Floats]:
    """Return how many legs of each loop are beyond a size, and by how much in all."""
    return (sizes > at).sum(axis=1).astype(np.float64), np.maximum(sizes - at, 0.0).sum(axis=1)
