"""A wire that was not captured: what the memory of the other host shows of the frames on it.

A frame that one host reads from memory the other host writes to memory, after its time on the wire. So what was found
in one memory is what the DMA of the other host is held against.
"""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Floats
from pcitrace.facts import LEAST_FRAME_BYTES
from pcitrace.frames.ends import Ends, Link
from pcitrace.traffic.content import UNALIGNED, fcs_in_memory
from pcitrace.traffic.dma import SHORTEST_RECEIVED
from pcitrace.traffic.goals import RECEIVE, SEND, Target

__all__ = ["shown_by"]


def shown_by(other: Ends, side: int, link: Link | None) -> Target:
    """Return the frames of one direction as the other host's memory shows them.

    Parameters
    ----------
    other : Ends
        The other host.
    side : int
        `SEND` for the frames that the other host received, `RECEIVE` for those that it sent.
    link : Link or None
        Without it frames take no time on the wire.
    """
    joined = other.host.traffic.joined
    bursts = other.receives if side == SEND else other.sends
    size = joined.bytes[bursts].astype(np.int64)
    unit = np.where(size > 4 * joined.data_phases[bursts], 8, 4)
    fcs_least, fcs_most = fcs_in_memory(other.host.profile) if side == SEND else (0, 0)
    least = np.maximum(size - unit + 1 - UNALIGNED - fcs_most, SHORTEST_RECEIVED)
    most = np.maximum(size - fcs_least, SHORTEST_RECEIVED)
    if link is None:
        lasts_us = gap_us = np.zeros(len(bursts))
    else:
        lasts_us, gap_us = link.wire_us(np.maximum(most, LEAST_FRAME_BYTES)), np.full(len(bursts), link.gap_us)
    if side == RECEIVE:
        start_us = _one_by_one(joined.last_data_us[bursts], lasts_us + gap_us)
        return Target(start_us, start_us + lasts_us, least, most, seen=False)
    end_us = joined.first_data_us[bursts]
    return Target(end_us - lasts_us, end_us, least, most, seen=False)


def _one_by_one(ready_us: Floats, each_us: Floats) -> Floats:
    """Return when frames begin on a wire that takes them one by one, each as soon as it is ready."""
    before_us = np.cumsum(each_us) - each_us
    return np.asarray(np.maximum.accumulate(ready_us - before_us) + before_us)
