"""Sends whose lengths come again on the wire: which frame each is, only the ends of a capture tell."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Floats, Integers
from pcitrace.traffic.goals import BACK_TO_BACK, Target

__all__ = ["as_well_later"]

LONGEST, NEARLY_ALL = 16, 0.95
"""Frames after which lengths may come again, and the share of them that do then: all but what a capture cuts. Seen were
three in turn, on one generated card; both are judgements. Where they are too small nothing is asked."""


def as_well_later(target: Target, at: Integers, begun_us: Floats, seen_us: tuple[float, float]) -> bool:
    """Return whether all sends may as well be frames one period later on the wire.

    That is where lengths come again, frames wait for the wire, the capture begins within one on it, and what lacks in
    such a reading lies beyond the capture. Three lengths in turn, from the middle of a saturated stream: each of 10
    sends was six frames too soon on the wire, by 18 to 28 nats (`cardbench`, mid-stream 81, 16 channels). A receive is
    not asked: a card has no reason to keep it.

    Parameters
    ----------
    target : Target
        Frames on a wire.
    at : array of int
        The frame that each send claims, ascending.
    begun_us : array of float
        When each send begins.
    seen_us : pair of float
        When anything was first and last seen on the bus.
    """
    by = _period(target)
    if not by or len(at) <= by or np.isfinite(target.start_us[0]):
        return False
    gap_us = target.start_us[1:] - target.end_us[:-1]
    if not (gap_us < BACK_TO_BACK * np.nanmin(gap_us)).mean() >= NEARLY_ALL:
        return False
    there = at + by < len(target)
    step_us = target.start_us[at[there] + by] - target.start_us[at[there]]
    step_us = step_us[np.isfinite(step_us)]
    if not len(step_us) or (begun_us[there] > target.start_us[at[there] + by]).any():
        return False
    period_us = float(np.median(step_us))
    first_us = min(seen_us[0], target.end_us[0])
    last_us = max(seen_us[1], target.end_us[np.isfinite(target.end_us)].max(initial=-np.inf))
    # Where the last sends would be on the wire, and where the first frames on the wire were sent.
    on_wire_us, sent_us = target.start_us[at[~there]] + period_us, begun_us[at < at[0] + by] - period_us
    return bool((on_wire_us >= last_us).all() and (sent_us <= first_us).all())


def _period(target: Target) -> int:
    """Return how far it is from each frame to the next one as long, if that is as far of nearly all; else 0."""
    for by in range(1, min(LONGEST, len(target) // 2) + 1):
        alike = (target.least[by:] <= target.most[:-by]) & (target.most[by:] >= target.least[:-by])
        if alike.mean() >= NEARLY_ALL:
            return by
    return 0
