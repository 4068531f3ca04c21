"""What receives say of which send a frame on the wire is: by their content, and by the order in which they come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.frames.sides import UNDER_WAY, Pair, Side
from pcitrace.traffic.content import in_common

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

    def as_received(self) -> Followed:
        """Return the same where a send is the frame that was received with its content.

        That is so where the receive of its frame has another content, and one frame on the wire that no other send is
        was received with this one, and was there in time. A frame that was damaged may differ from its own send.

        Example: the first frames on the wire were read before the capture began. By lengths alone the first send that
        is seen was one of them, with a part of it read twice (`cardbench`, mid-stream 3).
        """
        wires, damaged = self.wire_of_send.copy(), np.append(self.on_wire.damaged, False)
        receive = np.append(self.receive_of_wire, -1)[wires]
        mine, theirs = self.send.key, np.append(self.receive.key, np.uint64(0))[receive]
        differs = (mine != theirs) & (mine != 0) & (theirs != 0) & ~damaged[wires]
        arrived = np.flatnonzero(self.receive_of_wire >= 0)
        content = self.receive.key[self.receive_of_wire[arrived]]
        rows = np.flatnonzero(differs)
        # A send that has the frame behind its own is free to move when that one has moved; or the one before it.
        for send in (*rows[::-1], *rows):
            own = arrived[content == mine[send]]
            if len(own) == 1 and own[0] not in wires and self.on_wire.end_us[own[0]] >= self.send.end_us[send]:
                wires[send] = own[0]
        # Or when that one has its own no more, where most were received with the content of another. Where few were, it
        # may be the receive that is another's.
        own, sends = (
            side[at] for side, at in zip((arrived, np.arange(len(mine))), in_common(content, mine), strict=True)
        )
        there = self.on_wire.end_us[own] >= self.send.end_us[sends]
        taken = differs[sends] & there & (wires[sends] != own)
        taken &= 2 * taken.sum() > len(own)
        wires[np.isin(wires, own[taken])] = -1
        wires[sends[taken]] = own[taken]
        return replace(self, wire_of_send=wires)

    def in_order(self) -> Followed:
        """Return the same where frames arrive in the order in which they were on the wire.

        A receive that no frame fits was on the wire between the frames that came before and behind it. Where these are
        next to each other there, one of the two is its own; and the sends from there to a frame on the wire that no
        send fits are each the next one. That is so only where it fits all of them, one way and not the other, and of no
        more than may be under way at once.

        Example: a send is not found in memory. Its frame on the wire is as long as the next, and is given to the next
        send, whose receive has its content. The frame behind it on the wire seems not to have arrived, and what the
        first one was received as seems to be no frame (`cardbench`, reread 3).
        """
        now, loose = self, np.flatnonzero(~np.isin(np.arange(len(self.receive)), self.receive_of_wire))
        for one in loose[self._crowded(loose)]:
            if now._crowded(one[None]).all():
                [(before, behind)] = now._around(one[None]).tolist()
                ways = now._moved(int(one), behind, 1), now._moved(int(one), before, -1)
                found = [way for way in ways if way is not None]
                now = found[0] if len(found) == 1 else now
        return now

    def _crowded(self, receives: Integers) -> Booleans:
        """Return whether the frames that came before and behind some receives are next to each other on the wire."""
        before, behind = self._around(receives).T
        return np.asarray((before >= 0) & (behind == before + 1))

    def _around(self, receives: Integers) -> Integers:
        """Return the frame on the wire that came before each of some receives, and the one behind it; -1 for none."""
        arrived = np.append(np.flatnonzero(self.receive_of_wire >= 0), -1)
        behind = np.searchsorted(self.receive_of_wire[arrived[:-1]], receives)
        return np.stack([arrived[behind - 1], arrived[behind]], axis=1)

    def _moved(self, one: int, at: int, by: int) -> Followed | None:
        """Return what the sends are from a frame on the wire on if that is a receive's; None if they cannot be that."""
        end = at
        while 0 <= end < len(self.on_wire) and self._sent[end] >= 0 and abs(end - at) < UNDER_WAY:
            end += by
        if end == at or not 0 <= end < len(self.on_wire) or self._sent[end] >= 0 or self.receive_of_wire[end] >= 0:
            return None
        row = np.arange(at, end, by)
        sends, wires, receives = self._sent[row], self.wire_of_send.copy(), self.receive_of_wire.copy()
        wires[sends] = row + by
        receives[row + by], receives[at] = self.receive_of_wire[row], one
        content = int(self.send.key[sends[0]])
        told = content == self.receive.key[self.receive_of_wire[at]] and content not in (0, self.receive.key[one])
        got = np.append(row, end)
        got = got[receives[got] >= 0]
        left, came = (Pair.of(*sides, False) for sides in ((self.send, self.on_wire), (self.on_wire, self.receive)))
        fits = left.fitting(sends, row + by).all() and came.fitting(got, receives[got]).all()
        return replace(self, wire_of_send=wires, receive_of_wire=receives) if told and fits else None

    @cached_property
    def _sent(self) -> Integers:
        """Which send each frame on the wire is, -1 for none."""
        sent, sends = np.full(len(self.on_wire), -1), np.flatnonzero(self.wire_of_send >= 0)
        sent[self.wire_of_send[sends]] = sends
        return sent
