"""Sums over long columns, a piece at a time: a column's worth of memory for each step costs more than the step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["absolute_change", "differences_us", "least_difference", "pieces", "squares", "squares_apart"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PIECE = 1 << 17
"""Values that are worked on at a time: they stay in the cache, and in memory that the process has already."""


def pieces(n: int) -> Iterator[slice]:
    """Yield the parts of a column of n values, one after the other."""
    for start in range(0, n, PIECE):
        yield slice(start, min(start + PIECE, n))


def differences_us(times_ns: Integers) -> Floats:
    """Return the time from each of them to the next, in us."""
    out = np.empty(max(0, len(times_ns) - 1))
    for here in pieces(len(out)):
        np.subtract(times_ns[here.start + 1 : here.stop + 1], times_ns[here], out=out[here], casting="unsafe")
        out[here] /= 1e3
    return out


def least_difference(values: Integers) -> tuple[int, int]:
    """Return by how much a value exceeds the one before it at the least, and the first place of the latter."""
    least, at = int(np.iinfo(np.int64).max), 0
    for here in pieces(len(values) - 1):
        change = values[here.start + 1 : here.stop + 1] - values[here]
        place = int(change.argmin())
        if int(change[place]) < least:
            least, at = int(change[place]), here.start + place
    return least, at


def squares(values: Floats, mean: float) -> float:
    """Return the sum of the squares of what values are off their mean."""
    total = 0.0
    for here in pieces(len(values)):
        off = values[here] - mean
        total += _sum_of_squares(off)
    return total


def squares_apart(times: Integers, lag: int, mean: float) -> float:
    """Return the sum of the squares of what values `lag` places apart differ by, less `mean`."""
    total = 0.0
    for here in pieces(len(times) - lag):
        off = (times[here.start + lag : here.stop + lag] - times[here]).astype(np.float64) - mean
        total += _sum_of_squares(off)
    return total


def _sum_of_squares(off: Floats) -> float:
    """Return it, and leave squares in place: the threads of ``np.dot`` cost more than they save."""
    np.multiply(off, off, out=off)
    return float(off.sum())


def absolute_change(values: Floats) -> float:
    """Return the mean of the absolute difference between a value and the next."""
    n = len(values) - 1
    total = sum(float(np.abs(values[here.start + 1 : here.stop + 1] - values[here]).sum()) for here in pieces(n))
    return total / n
