"""Where a clock jumped while frames were under way: their times change at once, and stay so."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pcitrace.network.pieces import pieces

__all__ = ["clock_jump"]

BLOCK = 20
"""Frames whose median stands for all of them."""

LEAST_US, LEAST_UNPLANNED_US = 200.0, 100_000.0
"""No path of a laboratory changes by the first for good; frames sent as fast as they go may wait in a queue that never
empties, so that of these only the second cannot be."""

CLEAR = 5.0
"""By how much more than they scatter on either side the times must change."""

AT_ONCE = 5
"""Frames on either side of the place between whose medians half of the change must lie: a queue that fills because
frames come faster than they leave takes many frames to do so."""

DRAINS = 0.9
"""Frames that waited follow one another faster than they were sent, by this at least."""


def clock_jump(
    delays_us: npt.NDArray[np.float64],
    departure_ns: npt.NDArray[np.int64],
    arrival_ns: npt.NDArray[np.int64],
    planned: bool,
) -> tuple[int, float] | None:
    """Return at which frame the times change for good, and by how much; None where they do not.

    Parameters
    ----------
    delays_us : array of float, shape (n,)
        One-way times, in the order of arrival.
    departure_ns, arrival_ns : array of int64, shape (n,)
        Of the same frames.
    planned : bool
        Whether there was a time between frames: a queue that fills at once empties again then.
    """
    blocks = len(delays_us) // BLOCK
    if blocks < 3:
        return None
    by_block = delays_us[: blocks * BLOCK].reshape(blocks, BLOCK)
    middle = np.concatenate([np.median(by_block[here], axis=1) for here in pieces(blocks)])
    # The block in which it happens may have a median of either side.
    change = middle[2:] - middle[:-2]
    largest = int(np.abs(change).argmax())
    least = LEAST_US if planned else LEAST_UNPLANNED_US
    if abs(change[largest]) < least / 2:
        return None
    inside = slice(largest * BLOCK, (largest + 3) * BLOCK)
    at = inside.start + 1 + int(np.abs(np.diff(delays_us[inside])).argmax())
    before, after = delays_us[:at], delays_us[at:]
    if min(len(before), len(after)) < BLOCK:
        return None
    size = float(np.median(after) - np.median(before))
    scatter = max(float(np.ptp(np.quantile(side, [0.05, 0.95]))) for side in (before, after))
    if abs(size) < max(least, CLEAR * scatter):
        return None
    here = float(np.median(after[:AT_ONCE]) - np.median(before[-AT_ONCE:]))
    if abs(here) < abs(size) / 2:
        return None
    following = slice(at, at + BLOCK)
    arrived, sent = (float(np.median(np.diff(times[following]))) for times in (arrival_ns, departure_ns))
    return None if size > 0 and arrived < DRAINS * sent else (at, size)
