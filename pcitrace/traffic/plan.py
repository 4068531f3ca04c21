"""What is looked for among transactions of which only lengths and times are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Integers
from pcitrace.profiles import Descriptor, Profile
from pcitrace.traffic.ahead import Expected
from pcitrace.traffic.content import FCS, HEADER, WireFrames, fcs_in_memory
from pcitrace.traffic.dma import SHORTEST_RECEIVED

__all__ = ["WORD", "Plan", "fetch_sizes", "phase_widths"]

WORD = 4


@dataclass(frozen=True)
class Plan:
    """What to look for, if a data phase carries `per_phase` bytes.

    Attributes
    ----------
    per_phase : int
    sends, receives : Expected or None
        Frames that this host reads from its memory and writes to it; None where no wire shows them.
    fetch, status : frozenset of int
        Data phases that reads of descriptors and writes of status may have.
    """

    per_phase: int
    sends: Expected | None
    receives: Expected | None
    fetch: frozenset[int]
    status: frozenset[int]

    @classmethod
    def of(cls, profile: Profile, sent: WireFrames | None, received: WireFrames | None, per_phase: int) -> Plan:
        """Plan for frames on the wire, and what a profile says of the card."""
        fetch, status = fetch_sizes(profile, per_phase), _status_sizes(profile, per_phase)
        return cls(
            per_phase,
            _expected_sends(sent, profile, per_phase, fetch) if sent is not None else None,
            _expected_receives(received, profile, per_phase, status) if received is not None else None,
            fetch,
            status,
        )


def phase_widths(pieces: BusTable) -> tuple[int, ...]:
    """Return the bytes that a data phase may carry, the likeliest first.

    That of a wide bus is not known where neither REQ64# nor all byte enables were captured: the card may be narrow.
    """
    long = pieces.data_phases > 1
    wide = long.any() and pieces.wide[long].mean() > 0.5
    return (8, 4) if wide else (4,)


def _expected_sends(wire: WireFrames, profile: Profile, per_phase: int, fetch: frozenset[int]) -> Expected:
    """Return what the sends of these frames must look like: read before, or where it cuts through during, the wire."""
    least, most = _phases(wire, per_phase, 0, 0)
    padded = (wire.length >= 0) & (wire.least <= SHORTEST_RECEIVED)
    shortest = np.where(padded, -(-HEADER // per_phase), least)
    # What was on the wire when the capture began had been read by then; what still is when it ends may not have been.
    before = np.where(np.isnan(wire.start_us), -np.inf, wire.start_us)
    during = np.where(np.isnan(wire.end_us), np.inf, wire.end_us)
    latest = before if profile.send == "store_and_forward" else during
    return Expected(least, most, shortest, np.full(len(wire), -np.inf), latest, fetch, sending=True)


def _expected_receives(wire: WireFrames, profile: Profile, per_phase: int, status: frozenset[int]) -> Expected:
    """Return what the receives of these frames must look like: written after, or during, the wire."""
    least, most = _phases(wire, per_phase, *fcs_in_memory(profile))
    after = np.where(np.isnan(wire.end_us), np.inf, wire.end_us)
    # No word is written before it has come.
    byte_us = (wire.end_us - wire.start_us) / np.maximum(wire.length + wire.preamble_bytes + FCS, 1)
    word_us = wire.start_us + np.where(wire.length >= 0, (wire.preamble_bytes + WORD) * byte_us, 0.0)
    during = np.where(np.isnan(wire.start_us), -np.inf, word_us)
    earliest = after if profile.receive == "store_and_forward" else during
    return Expected(least, most, least, earliest, np.full(len(wire), np.inf), status, sending=False)


def _phases(wire: WireFrames, per_phase: int, fcs_least: int, fcs_most: int) -> tuple[Integers, Integers]:
    """Return how many data phases frames take at least and at most, if their buffers are aligned."""
    known = wire.length >= 0
    least = -(-(wire.least + fcs_least) // per_phase)
    most = -(-(wire.most + fcs_most) // per_phase)
    return np.where(known, least, 1), np.where(known, most, 0)


def fetch_sizes(profile: Profile, per_phase: int) -> frozenset[int]:
    """Return the data phases that a read of descriptors may have."""
    if profile.descriptors in ("card", "none"):
        return frozenset()
    descriptors = [one for one in (profile.send_descriptor, profile.receive_descriptor) if one is not None]
    if not descriptors:
        descriptors = [Descriptor(8, 8)]
    return frozenset(
        -(-count * one.size_bytes // per_phase) for one in descriptors for count in range(1, one.fetch_max + 1)
    )


def _status_sizes(profile: Profile, per_phase: int) -> frozenset[int]:
    """Return the data phases that a status write may have."""
    if profile.status_bytes:
        return frozenset(-(-size // per_phase) for size in profile.status_bytes)
    if profile.descriptors in ("card", "none"):
        return frozenset()
    return frozenset(range(1, 32 // per_phase + 1))
