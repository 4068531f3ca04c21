"""What a profile says of registers, as far as what was sent bears it out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pcitrace.columns import Integers
from pcitrace.profiles import Profile
from pcitrace.traffic.csr import Accesses

if TYPE_CHECKING:
    from pcitrace.frames.ends import Ends

__all__ = ["BELLS", "believed", "never_rings"]

BELLS = 5
"""Doorbells from which on it is learned what one looks like, and sends without one from which on it is none.

Of 90 cards of two strangers and another maker (16 channels) seven of 159 readings of hosts had fewer. One of them was
sure by 8 nats of what rang for six sends, and wrong of four (a stranger's card, scatter-gather 103); the others were
sure of none."""


def believed(end: Ends) -> Ends:
    """Return the ends without what the sends contradict."""
    return _without_counts(_without_names(end))


def _without_names(end: Ends) -> Ends:
    """Return the ends without the roles of registers if the profile names a doorbell that never rings: it is of another
    card.

    The doorbell there is had a role of that one which starts no send, so that another register seemed to ring
    (`cardbench`, groups 46: 40 of 46 times were wrong).
    """
    csr = end.host.traffic.csr
    if not never_rings(csr, end.host.profile, len(end.sends)):
        return end
    nameless = replace(csr, role=np.broadcast_to(np.int32(-1), len(csr)))
    return replace(end, host=replace(end.host, traffic=replace(end.host.traffic, csr=nameless)))


def _without_counts(end: Ends) -> Ends:
    """Return the ends without what the values of doorbells say if some sends lie in more buffers than others.

    A ring's tail counts descriptors, of one buffer or two each. A driver gave long frames two (a card of another maker,
    scatter-gather): from there on each of 25 sends had the ring before its own.
    """
    several, profile = _buffers(end), end.host.profile
    if not len(several) or several.min() == several.max():
        return end
    registers = tuple(replace(one, value=None) for one in profile.registers)
    return replace(end, host=replace(end.host, profile=replace(profile, registers=registers)))


def _buffers(end: Ends) -> Integers:
    """Return in how many places of memory each send lies; nothing where no address shows it."""
    dma = end.host.traffic.dma
    rows = np.flatnonzero(np.isin(dma.burst, end.sends) & (dma.bus.data_phases > 0) & (dma.bus.address >= 0))
    rows = rows[np.argsort(dma.burst[rows], kind="stable")]
    bus, burst = dma.bus.take(rows), dma.burst[rows]
    elsewhere = np.append(True, ((bus.address & ~3)[1:] != bus.behind[:-1]) & ~bus.moved_again[1:])[: len(rows)]
    _, which = np.unique(burst, return_inverse=True)
    return np.bincount(which, weights=elsewhere | (np.diff(burst, prepend=-1) > 0)).astype(np.int64)


def never_rings(csr: Accesses, profile: Profile, sends: int) -> bool:
    """Return whether so many frames were sent without a doorbell that the profile names, where registers are seen."""
    named = any(one.role == "send_doorbell" for one in profile.registers)
    seen = bool((csr.role >= 0).any()) and not csr.plays("send_doorbell").any()
    return named and seen and sends >= BELLS
