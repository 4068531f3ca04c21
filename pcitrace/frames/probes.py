"""Whether the probe of a host's wire is on the wire of the other host: what came before and after each frame tells.

A frame on the wire of A was read from A's memory just before, and is written to B's just after. If it always comes
sooner after a send of B, and sooner before a receive of A, then it is B's frame. Lengths do not tell it where all are
equal.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pcitrace.columns import Floats, floats
from pcitrace.frames.ends import HostTraffic
from pcitrace.traffic.dma import Kind

__all__ = ["on_other_wire"]

SHORTER = 0.5
"""The other way round has to fit so much better: to have half of the time between memory and wire."""

LONGEST_US = 500.0
"""What took longer is another frame."""

FEWEST = 5
"""Fewer frames may come together by chance."""

SAME_US = 0.5
"""Frames on two wires that begin no further apart may be one, seen in two captures. The shortest frame takes longer, so
no two of one wire do: with its preamble 0.576 us at 1 Gbit/s (IEEE 802.3, clause 4)."""


def on_other_wire(hosts: Mapping[str, HostTraffic]) -> list[str]:
    """Say whose TX_EN is that of the other host.

    Parameters
    ----------
    hosts : mapping of str to HostTraffic
        Two hosts, their times on one axis.
    """
    found, starts = [], {name: _starts_us(host) for name, host in hosts.items()}
    for (name, host), other in zip(hosts.items(), reversed([*hosts.values()]), strict=True):
        if len(starts[name]) < FEWEST:
            continue
        stated, swapped = _between(starts[name], host, other), _between(starts[name], other, host)
        if swapped < SHORTER * stated:
            found.append(name)
    if not found:
        return []
    names = " and ".join(hosts)
    if len(found) == 2:
        return [f"TX_EN of {names} are swapped: frames on either wire follow the other host's sends"]
    [name] = found
    [other_us] = (one for other, one in starts.items() if other != name)
    if len(other_us) and not _same(starts[name], other_us):
        # Two wires have frames of their own: the other host's come so often that one of them is always near.
        return []
    return [f"TX_EN of {name} is the other host's: its frames follow that host's sends; see the wiring of {names}"]


def _starts_us(host: HostTraffic) -> Floats:
    start_us = floats(host.wire, "start_us") if host.wire is not None else np.zeros(0)
    return np.sort(start_us[~np.isnan(start_us)])


def _same(one_us: Floats, other_us: Floats) -> bool:
    """Return whether most frames of one wire are on another at the same time."""
    around = np.concatenate([[-np.inf], other_us, [np.inf]])
    behind = np.searchsorted(other_us, one_us)
    nearest_us = np.minimum(one_us - around[behind], around[behind + 1] - one_us)
    return bool(np.median(nearest_us) <= SAME_US)


def _between(wire_us: Floats, sender: HostTraffic, receiver: HostTraffic) -> float:
    """Return the usual time from a send of one host over the wire to a receive of the other."""
    sent = sender.traffic.joined.begins_us(Kind.SEND_DATA)
    received = receiver.traffic.joined.begins_us(Kind.RECEIVE_DATA)
    if not len(sent):
        return np.inf
    before = np.searchsorted(sent, wire_us, side="right") - 1
    took_us = wire_us - sent[np.maximum(before, 0)]
    known = before >= 0
    if len(received):
        behind = np.searchsorted(received, wire_us)
        took_us += received[np.minimum(behind, len(received) - 1)] - wire_us
        known &= behind < len(received)
    if 2 * known.sum() < len(wire_us):
        return np.inf
    usual_us = float(np.median(took_us[known]))
    return usual_us if usual_us < LONGEST_US else np.inf
