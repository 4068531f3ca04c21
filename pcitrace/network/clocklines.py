"""Which exchanges of two clocks lie on one line: between what is surely above it and what is surely below it.

The clocks differ by less than a request's way as both clocks saw it, and by more than a reply's taken negatively. Of
each side only the corners of its convex hull can be touched by a line (Moon, Skelly and Towsley, INFOCOM 1999).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST_DRIFT_PPM", "apart", "lines", "sides", "steps", "widest"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LARGEST_DRIFT_PPM = 200.0
"""Two crystals differ by no more; what differs more is a step."""

CLEARANCE = 0.5
"""Of the shortest way there and back, that a line must leave between both sides where one is not enough: a bent clock's
line would touch both, as far off as it can be. A judgement."""

FIRST = 64
"""Exchanges that are tried first; how many changes the time that it takes, and nothing else."""


def steps(times: Integers) -> list[int]:
    """Return at which exchanges a step of the clock must have come before: no drift explains both sides of it."""
    base = times[1, 0] - times[0, 0]
    high = (times[1] - times[0] - base).astype(np.float64)
    low = (times[2] - times[3] - base).astype(np.float64)
    allowed = LARGEST_DRIFT_PPM * 1e-6
    found, least, most = [], low[0], high[0]
    gaps = np.diff(times[0], prepend=times[0, 0]) * allowed
    for i in range(1, times.shape[1]):
        least, most = max(least - gaps[i], low[i]), min(most + gaps[i], high[i])
        if least > most:
            found.append(i)
            least, most = low[i], high[i]
    return found


def lines(times: Integers, reading_ns: int, shortest_ns: float) -> list[int]:
    """Return where each of the fewest lines ends that these exchanges lie on: one, or more where a clock changes its
    rate, or steps by less than the largest drift explains.
    """
    if _on_line(times, -reading_ns):
        return [times.shape[1]]
    ends: list[int] = []
    start, clear_ns = 0, CLEARANCE * shortest_ns
    while start < times.shape[1]:
        end = start + _reach(times[:, start:], clear_ns)
        if ends:
            # The line may begin earlier as well: the other ended where nothing was exchanged for longest.
            first = ends[-2] if len(ends) > 1 else 0
            backwards = -times[::-1, first:end][:, ::-1]
            places = np.arange(max(first, end - _reach(backwards, clear_ns) - 1) + 1, start + 1)
            ends[-1] = int(places[np.argmax(times[0, places] - times[3, places - 1])])
        ends.append(end)
        start = end
    return ends


def _reach(times: Integers, apart_ns: float) -> int:
    """Return how many exchanges from the first on lie on one line, at least one."""
    n, least, most = int(times.shape[1]), 1, FIRST
    while most < n and _on_line(times[:, :most], apart_ns):
        least, most = most, 2 * most
    most = min(most, n)
    if _on_line(times[:, :most], apart_ns):
        return most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if _on_line(times[:, :middle], apart_ns) else (least, middle)
    return least


def _on_line(times: Integers, apart_ns: float) -> bool:
    """Return whether lines pass between both sides of all exchanges, that are so far apart."""
    origin, base = int(times[0, 0]), int(times[1, 0] - times[0, 0])
    upper, lower = sides(times, origin, base)
    slope = widest(upper, lower, LARGEST_DRIFT_PPM * 1e-6)
    return _between(upper, lower, slope) >= apart_ns


def apart(times: Integers) -> bool:
    """Return whether one line explains all exchanges, at whatever drift: no steps, but a clock that runs apart."""
    origin, base = int(times[0, 0]), int(times[1, 0] - times[0, 0])
    upper, lower = sides(times, origin, base)
    slope = widest(upper, lower, math.inf)
    return _between(upper, lower, slope) >= 0


def sides(times: Integers, origin: int, base: int) -> tuple[Floats, Floats]:
    """Return the points between which the line of a clock must pass: those below which, and those above which."""
    above = np.column_stack([times[0] - origin, times[1] - times[0] - base]).astype(np.float64)
    below = np.column_stack([times[3] - origin, times[2] - times[3] - base]).astype(np.float64)
    return _chain(above, lower=True), _chain(below, lower=False)


def _between(upper: Floats, lower: Floats, slope: float) -> float:
    """Return how far both sides are apart along lines of a slope; less than 0 where none passes between them."""
    return float((upper[:, 1] - slope * upper[:, 0]).min() - (lower[:, 1] - slope * lower[:, 0]).max())


def _chain(points: Floats, lower: bool) -> Floats:
    """Return the points that bound a set from below (or above): the only ones that a line can touch."""
    sign = 1.0 if lower else -1.0
    kept: list[tuple[float, float]] = []
    order = np.lexsort((sign * points[:, 1], points[:, 0]))
    for x, y in (points[order] * [1.0, sign]).tolist():
        if kept and kept[-1][0] == x:
            continue
        while len(kept) > 1 and _turns(kept[-2], kept[-1], (x, y)):
            kept.pop()
        kept.append((x, y))
    return np.array(kept) * [1.0, sign]


def _turns(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Return whether the middle of three points is not below the line through the others."""
    return (middle[1] - first[1]) * (last[0] - first[0]) >= (last[1] - first[1]) * (middle[0] - first[0])


def widest(upper: Floats, lower: Floats, limit: float) -> float:
    """Return the slope for which the two sides are farthest apart: the distance is concave, its corners the chains'
    edges.
    """
    edges = [np.diff(one[:, 1]) / np.diff(one[:, 0]) for one in (upper, lower)]
    corners = np.unique(np.concatenate([*(each[np.abs(each) < limit] for each in edges), [0.0]]))
    top = (upper[:, 1] - np.outer(corners, upper[:, 0])).min(axis=1)
    bottom = (lower[:, 1] - np.outer(corners, lower[:, 0])).max(axis=1)
    return float(corners[int((top - bottom).argmax())])
