"""Frames that are longer than a receive buffer: the parts in several buffers are one burst."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcitrace.traffic.content import WireFrames
from pcitrace.traffic.dma import Dma, Kind

__all__ = ["over_buffers"]

ROUNDED = 7
"""Bytes by which whole data phases can exceed a frame at its end."""


def over_buffers(dma: Dma, received: WireFrames | None, fcs_bytes: tuple[int, int]) -> Dma:
    """Join receive bursts in different buffers that the frames on the wire show to be one frame.

    A card goes on in another buffer only where one is full, so that all parts but the last are as long as any burst is.
    Where most of what comes of it has the lengths of frames on the wire that are longer than any burst, that is how
    they came; what has no such length stays apart.
    """
    moved = np.flatnonzero((dma.kind == Kind.RECEIVE_DATA) & (dma.bus.data_phases > 0))
    if received is None or not len(moved):
        return dma
    size = np.bincount(dma.burst[moved], weights=dma.bus.bytes[moved]).astype(np.int64)
    bursts = np.flatnonzero(size)
    size = size[bursts]
    known = received.length >= 0
    fcs_least, fcs_most = fcs_bytes
    least, most = np.sort(received.least[known] + fcs_least), np.sort(received.most[known] + fcs_most)
    if not (least > size.max()).any():
        return dma
    goes_on = np.r_[False, size[:-1] == size.max()]
    frame = np.cumsum(~goes_on) - 1
    whole = np.bincount(frame, weights=size).astype(np.int64)
    many = np.bincount(frame) > 1
    below = np.searchsorted(least, whole, side="right") - 1
    fits = many & (below >= 0) & (most[below] >= whole - ROUNDED)
    if 2 * np.count_nonzero(fits) <= np.count_nonzero(many):
        return dma
    first = bursts[np.searchsorted(frame, frame)]
    one = np.arange(int(dma.burst.max()) + 1)
    one[bursts] = np.where(fits[frame], first, bursts)
    return replace(dma, burst=np.unique(one[dma.burst], return_inverse=True)[1].astype(np.int32))
