"""How long each frame is and which number it has: from the wire, from memory, from what the frame itself says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import pick
from pcitrace.content import FCS, HEADER, numbers
from pcitrace.dma import SHORTEST_RECEIVED

if TYPE_CHECKING:
    from pcitrace.matching import Ends

__all__ = ["LEAST_USER_BYTES", "ROUNDED", "SequenceField", "sequence_numbers", "user_lengths"]

LEAST_USER_BYTES = 46
"""User bytes of the shortest frame; shorter ones are padded on the wire (IEEE 802.3)."""

LARGEST_LENGTH = 1500
"""Largest value of the type field that is a length (IEEE 802.3)."""

ROUNDED = 3
"""Bytes by which whole dwords can exceed a frame at its end."""


@dataclass(frozen=True)
class SequenceField:
    """Where the sender writes the number of a frame, in bytes from the start of the user data."""

    offset: int
    bytes: int
    byte_order: str = "big"


def user_lengths(rows: dict[str, Any], mine: Ends, theirs: Ends | None) -> None:
    """Give each frame its user bytes, and say whether they are exact."""
    n = len(rows["send_row"])
    # Bounds of the frame without check sequence, padding included, from every place that saw it.
    low, high = np.zeros(n, dtype=np.int64), np.full(n, np.iinfo(np.int64).max)
    read = rows["send_bytes"] > 0
    np.copyto(high, np.maximum(rows["send_bytes"], SHORTEST_RECEIVED), where=read)
    if theirs is not None:
        fcs = theirs.host.profile.receive_fcs
        got = rows["receive_bytes"] > 0
        np.copyto(high, np.minimum(high, rows["receive_bytes"] - (FCS if fcs else 0)), where=got)
    np.copyto(low, high - ROUNDED, where=(read | (rows["receive_bytes"] > 0)))
    if mine.wire is not None:
        wire = rows["wire_row"]
        on_wire = (wire >= 0) & (pick(mine.wire.length, wire) >= 0)
        length, slack = pick(mine.wire.length, wire), pick(mine.wire.slack, wire)
        seen = on_wire & (slack == 0)
        low[seen], high[seen] = length[seen], length[seen]
        near = on_wire & (slack > 0)
        low[near] = np.maximum(low[near], (length - slack)[near])
        high[near] = np.minimum(high[near], (length + slack)[near])
        apart = near & (low > high)
        low[apart], high[apart] = (length - slack)[apart], (length + slack)[apart]
        middle = near & ~apart
        best = np.where(middle, np.clip(length, low, high), high)
    else:
        best = high
    known = best < np.iinfo(np.int64).max
    exact = known & (low == high)
    user = np.where(known, best - HEADER, -1)
    # What the frame itself says: an IEEE 802.3 length field, which also tells padding from data.
    for head, row in ((mine.send_head, rows["send_row"]), (mine.wire.head if mine.wire else None, rows["wire_row"])):
        if head is None:
            continue
        value, there = numbers(head, HEADER - 2, 2, True)
        says = (row >= 0) & pick(there.astype(np.int64), row).astype(bool) & (pick(value, row) <= LARGEST_LENGTH)
        field_bytes = pick(value, row)
        agrees = says & known & (np.maximum(field_bytes, LEAST_USER_BYTES) <= np.maximum(user, LEAST_USER_BYTES))
        agrees &= np.maximum(field_bytes, LEAST_USER_BYTES) >= user - ROUNDED
        user = np.where(agrees, field_bytes, user)
        exact |= agrees
    # A padded frame without a length field: memory says how much of it is data, up to a dword.
    padded = known & (user == LEAST_USER_BYTES) & (rows["send_bytes"] > 0) & (rows["send_bytes"] < SHORTEST_RECEIVED)
    user = np.where(padded, np.minimum(user, rows["send_bytes"] - HEADER), user)
    exact &= ~padded
    rows["length_bytes"] = user
    rows["length_exact"] = exact


def sequence_numbers(rows: dict[str, Any], mine: Ends, theirs: Ends | None, place: SequenceField | None) -> None:
    """Number the frames: by what they carry, else by their order."""
    n = len(rows["send_row"])
    order = np.empty(n, dtype=np.int64)
    order[np.argsort(rows["order_us"], kind="stable")] = np.arange(n)
    value, source = order, np.full(n, "order", dtype=object)
    if place is not None:
        heads_of = [(mine.wire.head if mine.wire else None, "wire_row"), (mine.send_head, "send_row")]
        heads_of.append((theirs.receive_head if theirs else None, "receive_row"))
        found = np.full(n, -1)
        for head, name in heads_of:
            if head is None:
                continue
            number, there = numbers(head, HEADER + place.offset, place.bytes, place.byte_order == "big")
            usable = (rows[name] >= 0) & (found < 0) & (pick(there.astype(np.int64), rows[name]) > 0)
            found = np.where(usable, pick(number, rows[name]), found)
        if (found >= 0).all():
            value, source = found, np.full(n, "frame", dtype=object)
    rows["sequence"] = value
    rows["sequence_source"] = source
