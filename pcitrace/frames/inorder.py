"""Frames arrive in the order in which they were on the wire: what that says where a send was not found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pcitrace.columns import Integers
from pcitrace.frames.sides import Side

__all__ = ["Followed"]


@dataclass(frozen=True)
class Followed:
    """What one host sends, followed over its wire to the other host.

    Attributes
    ----------
    send, on_wire, receive : Side
    wire_of_send, receive_of_wire : arrays of int
        Which frame on the wire each send is, and which receive each of these; -1 for none.
    """

    send: Side
    on_wire: Side
    receive: Side
    wire_of_send: Integers
    receive_of_wire: Integers

    def in_order(self) -> Followed:
        """Return the same where frames arrive in the order in which they were on the wire.

        A receive that no frame fits was on the wire between the frames that came before and behind it. Where these are
        next to each other there, one of the two is its own; and the sends from there to a frame on the wire that no
        send fits are each the next one. That is so only where it fits all of them, one way and not the other.

        Example: a send is not found in memory. Its frame on the wire is as long as the next, and is given to the next
        send, whose receive has its content. The frame behind it on the wire seems not to have arrived, and what the
        first one was received as seems to be no frame (`cardbench`, reread 3).
        """
        now = self
        if (np.isin(np.arange(len(self.on_wire)), self.wire_of_send)).all():
            return now
        for one in np.flatnonzero(~np.isin(np.arange(len(self.receive)), self.receive_of_wire)).tolist():
            arrived = np.flatnonzero(now.receive_of_wire >= 0)
            behind = int(np.searchsorted(now.receive_of_wire[arrived], one))
            if 0 < behind < len(arrived) and arrived[behind] == arrived[behind - 1] + 1:
                around = (int(arrived[behind]), 1), (int(arrived[behind - 1]), -1)
                ways = [way for at, by in around for way in now._moved(one, at, by)]
                now = ways[0] if len(ways) == 1 else now
        return now

    def _moved(self, one: int, at: int, by: int) -> Iterator[Followed]:
        """Give what the sends are from a frame on the wire on if that is some receive, where they can be that."""
        sent = np.full(len(self.on_wire), -1)
        sends = np.flatnonzero(self.wire_of_send >= 0)
        sent[self.wire_of_send[sends]] = sends
        end = at
        while 0 <= end < len(sent) and sent[end] >= 0:
            end += by
        if end == at or not 0 <= end < len(sent) or self.receive_of_wire[end] >= 0:
            return
        row = np.arange(at, end, by)
        wires, receives = self.wire_of_send.copy(), self.receive_of_wire.copy()
        wires[sent[row]] = row + by
        receives[row + by], receives[at] = self.receive_of_wire[row], one
        content = int(self.send.key[sent[at]])
        told = content == self.receive.key[self.receive_of_wire[at]] and content not in (0, self.receive.key[one])
        got = np.flatnonzero(receives >= 0)
        if (
            told
            and _fit(self.send, sent[row], self.on_wire, row + by)
            and _fit(self.on_wire, got, self.receive, receives[got])
        ):
            yield replace(self, wire_of_send=wires, receive_of_wire=receives)


def _fit(earlier: Side, i: Integers, later: Side, j: Integers) -> bool:
    """Return whether each frame on one side can be one on a later side, by its length and its times."""
    long = (earlier.shortest[i] <= later.longest[j]) & (later.shortest[j] <= earlier.longest[i])
    return bool((long & (earlier.start_us[i] <= later.start_us[j]) & (earlier.end_us[i] <= later.end_us[j])).all())
