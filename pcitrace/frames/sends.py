"""What a host sends, for the search for the accesses that start it: what was found in memory, and what was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers, pick_us
from pcitrace.traffic.dma import Kind
from pcitrace.traffic.named import last_named_us

if TYPE_CHECKING:
    from pcitrace.frames.ends import Ends

__all__ = ["Sends", "descriptor_us", "of_host", "ways", "with_unread"]


@dataclass(frozen=True)
class Sends:
    """What the card reads to send, in order of time.

    Attributes
    ----------
    start_us, ready_us, end_us : arrays of float
        Its first attempt; when that could have been, had the bus been free; its last data.
    address : array of int
        Where in memory; -1 if not known.
    lead_us : array of float
        How long before its data a send began with the fetch of its descriptor; NaN for one that began with its data.
    found : array of bool
        Whether it was found in memory. Of one that only the wire shows `ready_us` and `start_us` bound when it began,
        and `end_us` is that of the send before.
    """

    start_us: Floats
    ready_us: Floats
    end_us: Floats
    address: Integers
    lead_us: Floats
    found: Booleans

    def __len__(self) -> int:
        return len(self.start_us)

    def take(self, rows: Integers) -> Sends:
        """Return some of them."""
        return Sends(**{name: column[rows] for name, column in vars(self).items()})


def of_host(end: Ends) -> Sends:
    """Return what a host sends, as the search for its accesses needs it."""
    joined = end.host.traffic.joined
    start_us = np.minimum(joined.start_us[end.sends], joined.first_data_us[end.sends])
    start_us = np.minimum.accumulate(start_us[::-1])[::-1]
    ended_us = np.maximum.accumulate(joined.last_data_us[end.sends])
    lead_us, found = np.full(len(start_us), np.nan), np.ones(len(start_us), dtype=bool)
    return Sends(start_us, _ready(end, start_us), ended_us, joined.address[end.sends], lead_us, found)


def with_unread(sends: Sends, name: str, columns: Mapping[str, Any]) -> tuple[Sends, Integers]:
    """Return the sends with those that were not found in memory, but behind others on the wire; and where those are.

    Something rang for these, too. Without them the doorbell of such a send was given to the next one, and so on to the
    end (`cardbench`, tiny 1211: with AD and the card's profile, four of twelve).
    """
    mine = columns["sender"] == name
    wire_us = columns["wire_start_us"]
    both = np.flatnonzero(mine & (columns["send_row"] >= 0) & ~np.isnan(wire_us))
    both = both[np.argsort(wire_us[both], kind="stable")]
    unread_us = np.sort(wire_us[mine & (columns["send_row"] < 0) & ~np.isnan(wire_us)])
    behind = np.searchsorted(wire_us[both], unread_us)
    unread_us, before = unread_us[behind > 0], columns["send_row"][both[behind[behind > 0] - 1]]
    next_us = np.append(sends.start_us, np.inf)[before + 1]
    ended_us = sends.end_us[before]
    here = unread_us > ended_us
    before, ended_us, until_us = before[here], ended_us[here], np.minimum(unread_us, next_us)[here]
    nothing = np.full(len(before), np.nan)
    more = Sends(until_us, ended_us, ended_us, np.full(len(before), -1), nothing, np.zeros(len(before), dtype=bool))
    order = np.argsort(np.append(np.arange(len(sends)), before + 0.5), kind="stable")
    both_of = {key: np.append(column, vars(more)[key])[order] for key, column in vars(sends).items()}
    return Sends(**both_of), np.flatnonzero(order < len(sends))


def ways(end: Ends, sends: Sends, told_us: Floats) -> list[Sends]:
    """Return the sends as they may be read: as beginning with their data, or with their descriptor: the one that names
    their address, if that was seen (:func:`descriptor_us`), else the last that was fetched after the send before.
    """
    joined = end.host.traffic.joined
    fetched_us = np.sort(joined.start_us[joined.kind == Kind.DESCRIPTOR_FETCH])
    before_us = pick_us(fetched_us, np.searchsorted(fetched_us, sends.start_us) - 1)
    before_us = np.where(np.isnan(told_us), before_us, told_us)
    begins = sends.found & (before_us > np.append(-np.inf, sends.end_us[:-1]))
    if not begins.any():
        return [sends]
    start_us = np.where(begins, before_us, sends.start_us)
    ready_us = np.where(begins, _ready(end, start_us), sends.ready_us)
    lead_us = np.where(begins, sends.start_us - before_us, np.nan)
    return [sends, replace(sends, start_us=start_us, ready_us=ready_us, lead_us=lead_us)]


def descriptor_us(end: Ends, sends: Sends) -> Floats:
    """Return when the descriptor began to be read that names the address of each send; NaN where it was not seen."""
    host, known = end.host, np.flatnonzero(sends.address >= 0)
    out = np.full(len(sends), np.nan)
    if len(known) and host.data_phases is not None and len(host.data_phases):
        out[known] = last_named_us(host.traffic.dma, host.data_phases, sends.address[known], sends.start_us[known])
    return out


def _ready(end: Ends, start_us: Floats) -> Floats:
    """Return when what began at some times could have, had the card not used the bus."""
    bus = end.host.traffic.dma.bus.in_time
    if not len(bus) or not len(start_us):
        return start_us
    at = np.minimum(np.searchsorted(bus.start_us, start_us), len(bus) - 1)
    return np.minimum(bus.take(at).busy_since_us, start_us)
