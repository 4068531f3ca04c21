"""How values are spread: percentiles, and counts in bins that double, as analysers show them."""

from __future__ import annotations

from typing import Any

import numpy as np

from pcitrace.columns import Floats, Integers

__all__ = ["PERCENTILES", "counted", "edges", "percentiles", "summary"]

PERCENTILES = (10, 50, 90, 99, 99.9)


def summary(values: Floats) -> dict[str, Any]:
    """Return ``n``, ``min``, ``median``, ``p99`` and ``max``; there is one value at least."""
    found = (values.min(), np.median(values), np.percentile(values, 99), values.max())
    return {"n": len(values), **dict(zip(("min", "median", "p99", "max"), map(_plain, found), strict=True))}


def percentiles(values: Floats) -> dict[str, float]:
    """Return :data:`PERCENTILES` as ``p10`` ... ``p99.9``; there is one value at least."""
    return {
        f"p{share:g}": _plain(one) for share, one in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)
    }


def _plain(us: float) -> float:
    """A time in us to show: its last digits are noise where it is a difference, and none is finer than 1 ps."""
    return round(float(us), 6)


def edges(highest: int) -> Integers:
    """Return where bins begin: 0, 1, 2, 3, 5, 9, 17 ..., and where the last one ends, up to above `highest`."""
    doubled = 1 + 2 ** np.arange(max(int(highest) - 1, 1).bit_length() + 1)
    return np.concatenate([[0, 1], doubled]).astype(np.int64)


def counted(values: Integers, limits: Integers) -> list[int]:
    """Count whole numbers in bins from each limit up to the next one."""
    counts: list[int] = np.histogram(values, limits - 0.5)[0].tolist()
    return counts
