"""Cells that do not begin with the first user byte: a switch that puts a header of its own into the first cell of a
frame, ``int((x - 1 + h)/c)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcitrace.network.scan import ALIKE, FLAT, LEVEL

__all__ = ["Early", "early"]

Floats = npt.NDArray[np.float64]

LEAST_CELLS, LEAST_SIZES = 8, 3
"""Cells among the sizes, and sizes in a cell: a staircase of few steps, free in place, goes through any size that lies
off the line.
"""


@dataclass(frozen=True)
class Early:
    """Cells that begin before the first user byte.

    Attributes
    ----------
    cell_bytes : int
    early_bytes : (int, int)
        At least and at most: sizes in steps of several bytes do not tell which.
    p_value : float
        Probability of a step as clear in times without one, at most.
    alike : int
        How many lengths of a cell explain the times as well.
    """

    cell_bytes: int
    early_bytes: tuple[int, int]
    p_value: float
    alike: int

    def counted(self, sizes: Floats) -> Floats:
        """Return how many cells more than one each loop takes."""
        return np.asarray(((sizes - 1 + self.early_bytes[0]) // self.cell_bytes).sum(axis=1))


def early(
    base: Floats, sizes: Floats, lengths: npt.NDArray[np.int64], times: tuple[Floats, Floats], gained: float
) -> Early | None:
    """Look for cells that begin before the first user byte; None where none explain the times clearly better.

    Parameters
    ----------
    base : array of float, shape (points, terms)
        Columns of the line.
    sizes : array of float, shape (points, legs)
    lengths : array of int
        Of cells that are tried.
    times : (array of float, array of float)
        And their errors.
    gained : float
        By how much cells that begin with the first byte lower chi-square, at best.
    """
    from scipy.special import fdtrc

    several = np.unique(sizes)
    widest = (several[-1] - several[0]) / LEAST_CELLS
    lengths = lengths[(lengths <= widest) & (lengths >= LEAST_SIZES * np.median(np.diff(several)))]
    if not len(lengths):
        return None
    y, sigma = times
    free = len(y) - base.shape[1] - 1
    around = np.linalg.qr(base / sigma[:, None])[0]
    residual = y / sigma
    residual = residual - around @ (around.T @ residual)
    best = np.zeros((len(lengths), 3))
    for place, c in enumerate(lengths.tolist()):
        columns = ((sizes[None] - 1 + np.arange(c)[:, None, None]) // c).sum(axis=2) / sigma
        # What of a column the line does not explain; its part along the residual is what it gains.
        left = (columns**2).sum(axis=1) - ((columns @ around) ** 2).sum(axis=1)
        told = left > FLAT * np.maximum((columns**2).sum(axis=1), np.finfo(float).tiny)
        gain = (columns @ residual) ** 2 / np.where(told, left, np.inf)
        same = np.flatnonzero(gain >= gain.max() * (1 - ALIKE))
        best[place] = gain.max(), same[0], same[-1]
    most = int(best[:, 0].argmax())
    gain, tried = float(best[most, 0]), int(lengths.sum())
    chi2 = float((residual**2).sum())
    p_value = tried * float(fdtrc(1, free, gain * free / max(chi2 - gain, np.finfo(float).eps * gain)))
    # As many candidates gain 2 ln n by chance. With errors too small by a factor, so much more.
    scale = max(1.0, (chi2 - gain) / free)
    if p_value >= LEVEL or gain - gained < 2 * math.log(tried) * scale:
        return None
    alike = int((best[:, 0] >= gain * (1 - ALIKE)).sum())
    return Early(int(lengths[most]), (int(best[most, 1]), int(best[most, 2])), p_value, alike)
