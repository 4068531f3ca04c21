"""Two analysers on one time axis: offset and drift from a line that both of them recorded.

The computer knows to 0.1 s when an analyser begins. A line that is wired to two of them, and that changes at irregular
times (FRAME# of a busy bus does), tells to a fraction of a sample: each of its edges is seen by both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcicap.srfile import read_info, read_samples

Floats = NDArray[np.float64]

_PATTERN_EDGES = 64
_MOST_EDGES = 200_000
_FEWEST_MATCHED = 32
_CRYSTAL_PPM = 200.0
"""No two crystal oscillators differ by more."""


@dataclass(frozen=True)
class Alignment:
    """How the time of one capture relates to that of another.

    ``time in the other = time * (1 + drift_ppm * 1e-6) + offset_us``, each with its standard uncertainty; `edges` were
    seen by both.
    """

    offset_us: float
    offset_sigma_us: float
    drift_ppm: float
    drift_sigma_ppm: float
    edges: int


def line_edges(path: Path, line: str, rate_hz: float) -> Floats:
    """Times of the edges of a line in µs, rises positive and falls negative in sign of the second column.

    Parameters
    ----------
    path : Path
        ``.sr`` file.
    line : str
        Name of its channel.
    rate_hz : float
        Samples a second.

    Returns
    -------
    array of float, shape (edges, 2)
        Time, half a sample before the first sample that shows the new level, and +1 or -1.

    Raises
    ------
    ValueError
        The capture has no such channel.
    """
    info = read_info(path)
    bits = {name: bit for bit, name in info.channels.items()}
    if line not in bits:
        raise ValueError(f"{path.name} has no line {line}")
    found: list[Floats] = []
    rest, last, seen = b"", None, 0
    for block in read_samples(path):
        block = rest + block
        whole = len(block) - len(block) % info.unit_size
        block, rest = block[:whole], block[whole:]
        column = np.frombuffer(block, np.uint8)[bits[line] // 8 :: info.unit_size]
        level = (column >> bits[line] % 8 & 1).astype(np.int8)
        steps = np.diff(level, prepend=level[:1] if last is None else np.array([last], np.int8))
        at = np.flatnonzero(steps)
        found.append(np.column_stack(((seen + at - 0.5) / rate_hz * 1e6, steps[at])))
        seen += len(level)
        last = level[-1] if len(level) else last
    return np.concatenate(found)[:_MOST_EDGES]


def align(edges: Floats, reference: Floats, step_us: float, reference_step_us: float) -> Alignment | None:
    """Match the edges of a line in two captures.

    Parameters
    ----------
    edges, reference : array of float, shape (n, 2)
        From `line_edges`.
    step_us, reference_step_us : float
        Time from sample to sample in each.

    Returns
    -------
    Alignment or None
        None where too few edges are common to both, or where they fit in more than one way, as those of a clock do.
    """
    if min(len(edges), len(reference)) < _FEWEST_MATCHED:
        return None
    middle = max(0, (len(edges) - _PATTERN_EDGES) // 2)
    pattern = edges[middle : middle + _PATTERN_EDGES]
    tolerance = 1.5 * (step_us + reference_step_us)
    span = pattern[-1, 0] - pattern[0, 0]
    width = 2 * tolerance + _CRYSTAL_PPM * 1e-6 * span
    start = _offset(pattern, reference, width)
    if start is None:
        return None
    # From the pattern outwards: the better the drift is known, the farther it reaches.
    centre, offset, drift, reach = float(pattern[:, 0].mean()), start, 0.0, max(span, 1.0)
    everything = float(np.ptp(edges[:, 0])) + 1
    slack = width
    while True:
        near = edges[np.abs(edges[:, 0] - centre) <= reach]
        predicted = near[:, 0] + offset + drift * (near[:, 0] - centre)
        matched = _nearest(predicted, near[:, 1], reference, slack)
        time, gap = near[matched >= 0, 0], (reference[matched[matched >= 0], 0] - near[matched >= 0, 0])
        if len(time) < _FEWEST_MATCHED / 2:
            return None
        away = time - centre
        if np.ptp(away) > 0:
            drift, offset = (float(value) for value in np.polyfit(away, gap, 1))
        if reach >= everything:
            break
        reach *= 2
        slack = tolerance
    if len(time) < _FEWEST_MATCHED:
        return None
    # Each edge lies anywhere in the sample before it is seen, in both captures.
    sigma = math.sqrt((step_us**2 + reference_step_us**2) / 12)
    spread = float(((time - time.mean()) ** 2).sum())
    return Alignment(
        offset_us=offset - drift * centre,
        offset_sigma_us=sigma * math.sqrt(1 / len(time) + float(time.mean()) ** 2 / spread),
        drift_ppm=drift * 1e6,
        drift_sigma_ppm=sigma / math.sqrt(spread) * 1e6,
        edges=len(time),
    )


def _offset(pattern: Floats, reference: Floats, width: float) -> float | None:
    """Shift by which the pattern is found in the reference; None unless there is just one."""
    gaps = [reference[reference[:, 1] == sign, 0] - time for time, sign in pattern]
    shifts = np.sort(np.concatenate(gaps))
    # number of edges that one shift explains: all that lie within `width` of each other
    counts = np.searchsorted(shifts, shifts + width, side="right") - np.arange(len(shifts))
    best = int(counts.argmax())
    others = counts[np.abs(shifts - shifts[best]) > 2 * width]
    if counts[best] < 0.8 * len(pattern) or (len(others) and others.max() > 0.6 * counts[best]):
        return None
    return float(np.median(shifts[best : best + counts[best]]))


def _nearest(times: Floats, signs: Floats, reference: Floats, slack: float) -> NDArray[np.intp]:
    """Index of the edge of the reference nearest to each time; -1 where none of its sign is within `slack`."""
    right = np.searchsorted(reference[:, 0], times).clip(1, len(reference) - 1)
    index = np.where(times - reference[right - 1, 0] < reference[right, 0] - times, right - 1, right)
    good = (np.abs(reference[index, 0] - times) <= slack) & (reference[index, 1] == signs)
    return np.where(good, index, -1)
