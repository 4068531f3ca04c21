"""The best of several numbers that differ by chance alone is better than they are: then their mean is told."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["alike", "no_different"]

CHANCE = 0.05
"""Probability of a larger scatter from which on numbers differ by chance alone."""


def alike(values: npt.ArrayLike, sigma: npt.ArrayLike) -> tuple[int, float, float]:
    """Return how many numbers, from the first on, are no different, and their mean with its standard error.

    Parameters
    ----------
    values, sigma : arrays of float, shape (n,)
        The most extreme first.

    Examples
    --------
    >>> alike([1.3, 1.2, 1.1, 0.2], [0.1, 0.1, 0.1, 0.1])[0]
    3
    """
    from scipy.special import chdtrc

    x, s = np.asarray(values, dtype=np.float64), np.asarray(sigma, dtype=np.float64)
    weight = 1 / np.maximum(s, np.spacing(np.abs(x))) ** 2
    many = 1
    for some in range(2, len(x) + 1):
        mean = np.average(x[:some], weights=weight[:some])
        if chdtrc(some - 1, (weight[:some] * (x[:some] - mean) ** 2).sum()) < CHANCE:
            break
        many = some
    mean = np.average(x[:many], weights=weight[:many])
    return many, float(mean), float(1 / np.sqrt(weight[:many].sum()))


def no_different(many: int) -> str:
    """Return what a reason says of so many that are alike; nothing of one."""
    others = many - 1
    return f", and {others} that {'are' if others > 1 else 'is'} no different: their mean" if others else ""
