"""Which frames had to wait for an earlier one: they say nothing about the transit time of the cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.frames.ends import HostTraffic, Link
from pcitrace.sidebyside import each
from pcitrace.traffic.dma import Kind

__all__ = ["queued"]

SLACK_BYTES = 0.25
"""Bytes of wire time by which frames that follow each other directly may be further apart than the gap."""

ACCESS_US = 0.3
"""How long a CSR access may hold up a DMA that waits for no frame."""


def queued(columns: Mapping[str, Any], hosts: Mapping[str, HostTraffic], link: Link | None) -> Integers:
    """Tell which frames waited for another one.

    Parameters
    ----------
    columns : mapping
        Columns of `frames` as arrays, in order of time.
    hosts : mapping of str to HostTraffic
    link : Link or None

    Returns
    -------
    array of int
        1 where a frame follows another directly, on the wire or on the receiving bus; and where the wire, or the
        card on the receiving bus, was busy with another when it came and it took longer than any that found it free.
        Without a wire probe: where a wire that is handed frames at the ends of their DMA would still be busy.
        -1 where it cannot be told, else 0.
    """
    found = np.zeros(len(columns["sender"]), dtype=np.int8)
    unclear = np.zeros(len(found), dtype=bool)
    for waited in each(lambda named: _at_host(columns, *named, link), hosts.items()):
        for rows, did, may_have in waited:
            found[rows] |= did
            unclear[rows] |= may_have
    return np.where(unclear & (found == 0), np.int8(-1), found)


def _at_host(
    columns: Mapping[str, Any], name: str, host: HostTraffic, link: Link | None
) -> list[tuple[Integers, Booleans, Booleans]]:
    """Return rows of frames, which of them waited, and of which it is unclear: for a host's wire, and on its bus."""
    sent = np.flatnonzero(columns["sender"] == name)
    got = np.flatnonzero((columns["receiver"] == name) & (columns["receive_burst"] >= 0))
    wire = [] if link is None else [(sent, *_on_the_wire(columns, sent, link, host.step_us))]
    return [*wire, (got, *_on_the_bus(columns, got, host))]


def _on_the_wire(columns: Mapping[str, Any], sent: Integers, link: Link, step_us: float) -> tuple[Booleans, Booleans]:
    """Tell which frames of one sender waited for the wire, and of which that is unclear."""
    start, end, ready = (columns[name][sent] for name in ("wire_start_us", "wire_end_us", "dma_end_us"))
    found = np.zeros(len(sent), dtype=bool)
    seen = np.flatnonzero(~np.isnan(start))
    seen = seen[np.argsort(start[seen])]
    apart = start[seen[1:]] - end[seen[:-1]]
    # Of two sampled times the difference is wrong by less than a step.
    slack_us = SLACK_BYTES * link.byte_us + step_us
    found[seen[1:]] = apart <= link.gap_us + slack_us
    busy = np.zeros(len(sent), dtype=bool)
    busy[seen[1:]] = end[seen[:-1]] > ready[seen[1:]]
    transit = start - ready
    # One that follows as if it had waited, but was as fast as one that had not, may have come at that very moment.
    free = transit[~busy & ~found & ~np.isnan(transit)]
    unclear = found & (transit < free.max(initial=-np.inf) + slack_us)
    found &= ~unclear
    found |= _held_up(transit, busy)
    took = columns["wire_us"][sent] + link.gap_us
    unseen = np.flatnonzero(np.isnan(start) & ~np.isnan(ready) & ~np.isnan(took))
    unseen = unseen[np.argsort(ready[unseen])]
    if len(unseen) > 1:
        found[unseen[1:]] |= _busy_until(ready[unseen], took[unseen])[:-1] > ready[unseen][1:]
    return found, unclear


def _held_up(transit: Floats, busy: Booleans) -> Booleans:
    """Tell which transits of those that found it busy took longer than all that found it free."""
    free = transit[~busy & ~np.isnan(transit)]
    if not len(free):
        return busy & ~np.isnan(transit)
    return np.asarray(busy & (transit > free.max() + max(float(np.ptp(free)), ACCESS_US)))


def _busy_until(ready: Floats, took: Floats) -> Floats:
    """Return until when a server is busy after each customer: it takes them in order, each as soon as it is ready."""
    served = np.cumsum(took)
    return served + np.maximum.accumulate(ready - (served - took))


def _on_the_bus(columns: Mapping[str, Any], got: Integers, host: HostTraffic) -> tuple[Booleans, Booleans]:
    """Tell which frames that one host receives waited for what its card did for another, and of which it is unclear."""
    if not len(got):
        return np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
    dma = host.traffic.dma
    bursts = columns["receive_burst"][got]
    bus, burst = dma.bus, dma.burst
    moves, rows = bus.data_phases > 0, np.arange(len(bus), dtype=np.int32)
    busy_period = bus.busy_period
    count = int(burst.max()) + 1 if len(burst) else 0
    opening, asked = np.full((2, count), len(rows), dtype=np.int32)
    np.minimum.at(opening, burst[moves], rows[moves])
    np.minimum.at(asked, burst, rows)
    behind = np.zeros(len(burst), dtype=bool)
    # Accesses of the host in between wait for the bus as well.
    behind[1:] = (busy_period[1:] == busy_period[:-1]) & (burst[1:] != burst[:-1])
    # Every attempt up to the one in which data moved may have been held up.
    directly = np.zeros(count, dtype=bool)
    directly[burst[behind & (rows <= opening[burst])]] = True
    # When the last frame before was done with: its pieces may be those of a send.
    frames = np.isin(dma.kind, (Kind.SEND_DATA, Kind.RECEIVE_DATA)) & moves
    last = np.maximum.accumulate(np.where(frames, rows, np.int32(-1))) if len(burst) else opening
    before = last[np.maximum(opening[bursts] - 1, 0)]
    done = np.where((opening[bursts] > 0) & (before >= 0), bus.take(np.maximum(before, 0)).end_us, -np.inf)
    arrived = columns["wire_end_us"][got]
    arrived = np.where(np.isnan(arrived), columns["dma_end_us"][got] + columns["wire_us"][got], arrived)
    # Up to the first attempt: the card is ready then, and what the target retries waits for no frame.
    found = np.asarray(directly[bursts]) | _held_up(bus.take(asked[bursts]).start_us - arrived, done > arrived)
    # Unless it was an attempt to go on with what had begun before, for which the frame waited then.
    closing = np.full(count + 1, -1, dtype=np.int32)
    np.maximum.at(closing, burst[moves], rows[moves])
    under_way = burst[last[np.maximum(asked[bursts] - 1, 0)]] if len(burst) else bursts
    either = (asked[bursts] < opening[bursts]) & (asked[bursts] > 0) & (closing[under_way] > opening[bursts])
    return found, either & (bus.take(asked[bursts]).command < 0)
