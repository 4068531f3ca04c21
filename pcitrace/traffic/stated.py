"""What a profile says of a card's DMA, as costs: a reading that says otherwise needs a profile that is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcitrace.columns import Integers
from pcitrace.lattice import Reading
from pcitrace.profiles import Profile
from pcitrace.traffic.content import FCS
from pcitrace.traffic.goals import OVERLAPS, RECEIVE, SEND, Layout

__all__ = ["MISSING", "OTHERWISE", "Stated"]

MISSING = 3.0
"""Nats for each descriptor that is read, or status that is written, so the profile, and that a reading has no room for.
A judgement: a profile may be of another card, so it is no more than a rare layout costs."""

OTHERWISE = 7.0
"""Nats for a layout that is not what the profile says: as rare as a buffer at an odd byte. A judgement."""


@dataclass(frozen=True)
class Stated:
    """What is known of a card before its bus is looked at.

    Attributes
    ----------
    profile : Profile or None
        None: nothing.
    """

    profile: Profile | None = None

    def otherwise(self, side: int, layout: Layout) -> float:
        """Return what it costs that a track's frames lie in memory or overlap with the wire otherwise than stated."""
        if self.profile is None:
            return 0.0
        mode = self.profile.receive if side == RECEIVE else self.profile.send
        cost = 0.0
        if mode == "cut_through":
            # Overlaps are not rare for this card.
            cost = OTHERWISE if layout.whole else -OVERLAPS
        elif mode == "store_and_forward" and not layout.whole:
            cost = OTHERWISE
        if side == RECEIVE and self.profile.receive_fcs not in (None, layout.added >= FCS):
            cost += OTHERWISE
        return cost

    def added(self, side: int) -> int:
        """Return how many bytes more than those of a frame lie in memory for sure."""
        return FCS if side == RECEIVE and self.profile is not None and self.profile.receive_fcs else 0

    def missing(self, reading: Reading, phases: Integers, write: Integers, unit: int) -> float:
        """Return what it costs that a reading has no room for descriptors and status that the card moves.

        Parameters
        ----------
        reading : Reading
        phases, write : arrays of int
            The data phases of each piece, and whether it is a write (1).
        unit : int
            Bytes of a data phase.
        """
        if self.profile is None:
            return 0.0
        sends, receives = (int(((reading.track == side) & reading.begins).sum()) for side in (SEND, RECEIVE))
        left = reading.track < 0
        unread = self._unread(sends, receives, phases[left & (write != 1)], unit)
        return unread + self._unwritten(sends, receives, phases[left & (write != 0)], write[left & (write != 0)], unit)

    def _unread(self, sends: int, receives: int, phases: Integers, unit: int) -> float:
        assert self.profile is not None
        fetched, posted = self.profile.send_descriptor, self.profile.receive_descriptor
        if self.profile.descriptors != "host_memory" or fetched is None or not sends:
            return 0.0
        # Some may have been read before the capture began.
        wanted, size = max(sends - fetched.fetch_max, 0), fetched.size_bytes
        if posted is not None and posted.size_bytes == size:
            # Those of frames to come are as long.
            wanted += max(receives - posted.fetch_max, 0)
        each = max(size // unit, 1)
        there = int(phases[phases % each == 0].sum()) // each
        return MISSING * max(wanted - there, 0)

    def _unwritten(self, sends: int, receives: int, phases: Integers, write: Integers, unit: int) -> float:
        """Of status: one write may be for many frames, so only a reading without any has no room for it.

        As long as descriptors are as many of them as frames have descriptors, where it is not seen what was written.
        """
        assert self.profile is not None
        read = ((self.profile.send_descriptor, sends), (self.profile.receive_descriptor, receives))
        fetched = {max(one.size_bytes // unit, 1) for one, _ in read if one is not None}
        sizes = [max(size // unit, 1) for size in self.profile.status_bytes]
        wanted = sum(many for one, many in read if one is not None)
        descriptors = np.zeros(len(phases), dtype=bool)
        for size in fetched:
            descriptors |= (write < 0) & (phases % size == 0)
        may_be = any((phases[~descriptors] % size == 0).any() for size in sizes)
        may_be |= int(phases[descriptors].sum()) // min(fetched, default=1) > wanted
        return MISSING * receives if sizes and not may_be else 0.0
