"""What rings is a write. Where no line tells reads from writes, the time that an access takes may."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.frames.accesskinds import CHAIN_US
from pcitrace.traffic.csr import LookedAt

__all__ = ["reads_back", "slow"]

MOST, SOME = 0.5, 0.25
"""Shares of accesses: most of them, and so many that they are no exception. Reads of two RTL8139 (`realcards` 26) took
another time than most in 35 and 39 % of all; writes behind writes on three cards of another maker (csr-descriptors,
reread, ring) in none of 155, and behind reads (cut-through) in none of 43."""


def reads_back(rings: Integers, csr: LookedAt) -> Booleans:
    """Return of which sends the last access may be a read, which only sees to it that the ring before it arrives.

    `rings`: the last access of each send; -1 for none. Nothing is said of those beyond what was read, and of those
    whose data, or those of the access before, were not seen.

    Drivers read a register behind a posted write for that (PCI 2.2, 3.2.5). Without C/BE# it shows in nothing but its
    time: a read has a clock more for the turn of the bus (3.3.1), and the card has to fetch the value; one that is
    retried takes longer than one that is not. Where most last accesses took longer than the one just before, or they
    take now so long and now so while those do not, all may be reads. Of a VIA Rhine and a BCM570x so driven, 16
    channels, each time of the last access was that of the read; and of an RTL8139, whose writes took 3 clocks, its
    reads 2 or 3.
    """
    behind, slower = (np.zeros(len(rings), dtype=bool) for _ in range(2))
    if (csr.address >= 0).any():
        return behind
    sends = np.flatnonzero((rings > 0) & (rings < len(csr)))
    sends = sends[csr.first_attempt_us[rings[sends]] - csr.end_us[rings[sends] - 1] <= CHAIN_US]
    sends = sends[np.minimum(csr.latency_clks[rings[sends]], csr.latency_clks[rings[sends] - 1]) >= 0]
    last, before = rings[sends], rings[sends] - 1
    behind[sends] = True
    slower[sends] = csr.latency_clks[last] > csr.latency_clks[before]
    slower[sends] &= csr.attempts[last] >= csr.attempts[before]
    varies = _varying(csr.latency_clks[last]) - _varying(csr.latency_clks[before])
    return behind if slower.sum() >= MOST * behind.sum() or varies >= SOME else slower


def slow(rings: Integers, csr: LookedAt) -> Booleans:
    """Return for which sends what rings takes longer than most rings do: it may be a read. See :func:`reads_back`.

    Where what rings takes now so long and now so, any may be. Of a host (`realcards`, sk98 27, 16 channels) whose
    doorbells took a clock a read of 5 clocks seemed to ring once; of a VIA Rhine (62) a read of 3 to 5 for each send,
    and the write behind it, which took 2, did.
    """
    known = (rings >= 0) & (rings < len(csr))
    known[known] = csr.latency_clks[rings[known]] >= 0
    may = np.zeros(len(rings), dtype=bool)
    if known.any():
        clks = csr.latency_clks[rings[known]]
        may[known] = (clks > np.bincount(clks).argmax()) | (_varying(clks) >= SOME)
    return may


def _varying(clks: Integers) -> float:
    """Return the share of some times that are not the one that most are."""
    return 1 - np.bincount(clks).max() / len(clks) if len(clks) else 0.0
