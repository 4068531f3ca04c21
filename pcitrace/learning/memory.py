"""How a frame lies in memory: check sequence, place within a data phase, padding, buffers; and when its wire runs."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.facts import FCS_BYTES, HEADER_BYTES, LEAST_FRAME_BYTES
from pcitrace.learning.evidence import LEAST, SURE, Fact, Value, chosen, unseen
from pcitrace.learning.observed import Side

__all__ = ["buffers", "cut_through", "in_memory"]

FEW = "too few frames whose length the wire tells are known to lie in one buffer"

LINE = 64
"""Bytes behind a multiple of which buffers begin."""

BLOCKS = (8, 16, 32)
"""Blocks to whose ends reads may go on, in bytes."""

MANY = 12
"""Frames from which on something is said where it is not known where they lie."""

LONG = 200
"""Bytes of a frame that has more than a header."""


STEADY = 0.1
"""Share of a frame's time up to which the beginning of what overlaps with it may vary."""

HELD_US = 1.5
"""A frame whose wire begins so soon after the one before it waited for that, not for its data."""

TELLING = 1000
"""Bytes of a frame that a card which cuts through would not wait for."""


def in_memory(side: Side) -> dict[str, Value]:
    """Learn how many bytes a frame takes: with its check sequence or without, behind an offset, up to a block's end."""
    prefix = "send" if side.sends else "receive"
    names = [f"{prefix}_shift_bytes", f"{prefix}_offset_bytes", "padding_bytes" if side.sends else "receive_fcs"]
    # What a driver pads a short frame with is not on the wire; what was moved again is no part of the length.
    use = (side.least > (LEAST_FRAME_BYTES if side.sends else 0)) & (side.most >= side.least)
    split = np.bincount(side.frame[side.jump], minlength=len(side)) > 0
    use &= ~split
    if side.sends:
        use &= ~side.with_cut
    known = bool((side.bus.address >= 0).all())
    if not known:
        use &= _alike(side)
    n = int(use.sum())
    if n < (LEAST if known else MANY):
        return dict.fromkeys(names, unseen(FEW, n))
    table = _table(side, use)
    shifts: dict[Fact | None, int] = {}
    third: dict[Fact | None, int] = {}
    for (behind, more), off in table.items():
        shifts[behind] = min(off, shifts.get(behind, n))
        third[more] = min(off, third.get(more, n))
    shift = chosen(shifts, n)
    return {names[0]: shift, names[1]: _offset(side, use, shift), names[2]: chosen(third, n)}


def _alike(side: Side) -> Booleans:
    """Return which frames moved in pieces that are as long as each other, but for the last: in one buffer, that is."""
    most = np.zeros(len(side), np.int64)
    np.maximum.at(most, side.frame, side.bus.data_phases)
    short = ~side.last & (side.bus.data_phases < most[side.frame])
    return np.asarray(np.bincount(side.frame[short], minlength=len(side)) == 0)


def _table(side: Side, use: Booleans) -> dict[tuple[int, int | bool], int]:
    """Return of every shift and check sequence, or block, how many frames they do not explain."""
    least, most, phases = side.least[use], side.most[use], side.phases[use]
    unit, address = side.unit, side.bus.address.astype(np.int64)[side.head][use]
    table: dict[tuple[int, int | bool], int] = {}
    if not side.sends:
        exact = side.bus.bytes_exact and bool((side.bus.command >= 0).all())
        for fcs in (False, True):
            added = FCS_BYTES * fcs
            for shift in range(unit):
                wrong = _outside(phases, least + added + shift, most + added + shift, unit)
                if exact:
                    wrong |= (side.bytes[use] < least + added) | (side.bytes[use] > most + added)
                table[shift, fcs] = int(wrong.sum())
        return table
    known = bool((address >= 0).all())
    for block in (0, *(size for size in BLOCKS if size > unit)):
        step = block or unit
        for start in range(unit if known or not block else block):
            base = (address & -unit) % step + start if known else np.full(len(least), start)
            head = base // unit * unit
            low, high = (-(-(base + size) // step) * step - head for size in (least, most))
            wrong = (phases * unit < low) | (phases * unit > high)
            key = (start % unit, block)
            table[key] = min(int(wrong.sum()), table.get(key, len(least)))
    return table


def _outside(phases: Integers, least: Integers, most: Integers, unit: int) -> Booleans:
    return (phases < -(-least // unit)) | (phases > -(-most // unit))


def _offset(side: Side, use: Booleans, shift: Value) -> Value:
    """Return how far behind a line of 64 bytes buffers begin, where addresses and the shift are known."""
    address = side.bus.address.astype(np.int64)[side.head][use]
    if not (address >= 0).all():
        return unseen("without addresses only its rest by a data phase can be told", len(address))
    if not isinstance(shift.value, int):
        return unseen(f"not known within a data phase: {shift.reason}", len(address))
    behind = (address & -side.unit) % LINE + shift.value
    values = range(shift.value, LINE, side.unit)
    return chosen({value: int((behind != value).sum()) for value in values}, len(address))


def buffers(side: Side) -> Value:
    """Learn whether frames lie in one buffer, or header and data in two."""
    address = side.bus.address
    if not len(side) or not (address >= 0).all():
        return unseen("without addresses it cannot be told where frames lie", len(side))
    # What is in one buffer: all since the frame began, or since it went on elsewhere.
    begins = np.append(True, (side.frame[1:] != side.frame[:-1]) | side.jump[:-1])
    buffer = np.cumsum(begins) - 1
    size = np.bincount(buffer, weights=side.unit * side.bus.data_phases)[buffer]
    jumps = np.bincount(side.frame[side.jump & (size >= HEADER_BYTES - 2)], minlength=len(side))
    long = side.phases * side.unit >= LONG
    if not long.any():
        return unseen("no frame is longer than a header", len(side))
    if (side.bytes[long] < side.least[long]).any():
        return unseen(
            "of some frames less was read or written than is on the wire: a buffer of theirs is not known", len(side)
        )
    return chosen({many: int((jumps[long] != many - 1).sum()) for many in (1, 2, 3)}, int(long.sum()))


def cut_through(side: Side) -> Value:
    """Learn whether wire and memory overlap.

    Where they never do, the card may still begin before it has the whole: then what follows comes at a constant time
    after the beginning of what is before it, not after its end.
    """
    early_start, early_end = side.start_us, side.end_us
    late = side.wire_start_us
    if not side.sends:
        early_start, early_end, late = side.wire_start_us, side.wire_end_us, side.start_us
    known = ~np.isnan(early_start) & ~np.isnan(early_end) & ~np.isnan(late)
    early_start, early_end, late = early_start[known], early_end[known], late[known]
    n = len(late)
    if n < LEAST:
        return unseen("no frames of which wire and memory are known", n)
    overlap = (late < early_end) & (late > early_start)
    if overlap.any():
        # A card that cuts through does so with every frame that is longer than its threshold.
        took = early_end - early_start
        if side.sends:
            behind = np.append(np.inf, late[1:] - side.wire_end_us[known][:-1])
            overlap &= behind > HELD_US
        if not overlap.any():
            return unseen("wire and memory overlap in frames alone that waited for the wire", n)
        long = took >= took[overlap].min()
        if overlap.sum() >= LEAST and _scatter((late - early_start)[overlap]) > STEADY * np.median(took[overlap]):
            return unseen("wire and memory overlap, but not as a card does that cuts through", int(overlap.sum()))
        through, whole = int((long & ~overlap).sum()), int(overlap.sum())
        found = chosen({"cut_through": through, "store_and_forward": whole}, int(long.sum()))
        return found if found.value != "store_and_forward" else unseen("wire and memory overlap in few frames", n)
    order = np.argsort(early_start, kind="stable")
    return _without_overlap(early_start[order], early_end[order], late[order], side)


def _without_overlap(start_us: Floats, end_us: Floats, late_us: Floats, side: Side) -> Value:
    """Compare how steady the lag to the end is with how steady it is to the beginning."""
    # A frame that waits for the one before it says nothing.
    free = np.append(True, late_us[:-1] < end_us[1:])
    start_us, end_us, late_us = start_us[free], end_us[free], late_us[free]
    n = len(late_us)
    if n < MANY:
        return unseen("too few frames that did not wait for the one before them", n)
    if side.unit * side.phases.max() < TELLING:
        return unseen("no overlap, but no frame is longer than what a card that cuts through would wait for", n)
    least_us = side.bus.clock_us
    to_end, to_start = (_scatter(late_us - edge) + least_us for edge in (end_us, start_us))
    margin = float(n * np.log(to_start / to_end))
    if margin < SURE:
        return Value(None, n, max(margin, 0.0), "no overlap, and lengths do not tell what the lag is to")
    return Value("store_and_forward", n, margin)


def _scatter(values: Floats) -> float:
    return float(np.abs(values - np.median(values)).mean())
