"""Where a card ends its transactions: at a limit, at cache lines, when its latency timer runs out; where it goes on.

Only what the card itself ended tells: the last piece of a frame ends with the frame, and one that the target cut says
nothing but that it was no longer than it might have been.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.learning.evidence import LEAST, MISS, Fact, Value, chosen, unseen
from pcitrace.learning.observed import Side

__all__ = ["cuts", "rereads", "timer_cuts"]

LINES = (16, 32, 64, 128)
"""Cache lines, in bytes."""

SIZES = 6
"""Lengths of pieces that are tried as the limit: the most frequent ones and the longest."""

MANY = 20
"""Pieces from which on something is said where it is not known where they lie."""

NONE = 1 << 20
"""A limit that no piece reaches, in data phases."""


@dataclass(frozen=True)
class _Ends:
    """Pieces with the place of each in memory, as far as it is known, and who ended it."""

    size: Integers
    place: Integers
    by_card: Booleans
    clks: Integers
    known: bool
    unit: int

    @classmethod
    def of(cls, side: Side) -> _Ends:
        size = side.bus.data_phases.astype(np.int64)
        address = side.bus.address.astype(np.int64)
        known = bool(len(address)) and bool((address >= 0).all())
        # What follows a cut may be the rest of the burst that was cut: where the card ends it says nothing.
        goes_on = np.append(False, (side.cut & ~side.last)[:-1])[: len(size)]
        by_card = ~side.ending & ~side.cut & ~side.jump & ~goes_on
        clks = np.rint((side.bus.last_data_us - side.bus.start_us) / side.bus.clock_us).astype(np.int64)
        if known:
            return cls(size, address & -side.unit, by_card, clks, True, side.unit)
        # Where a frame goes on after a cut is not known without addresses: what follows is left out.
        ended: Integers = np.asarray(np.cumsum(side.cut) - side.cut.astype(np.int64), np.int64)
        before: Integers = ended - ended[side.head][side.frame] if len(size) else ended
        start = np.cumsum(size) - size
        place = side.unit * (start - start[side.head][side.frame]) if len(size) else start
        keep = np.asarray(before == 0)
        return cls(size[keep], place[keep], by_card[keep], clks[keep], False, side.unit)

    def misses(self, limit: int, line: int) -> int:
        """Pieces that a limit (data phases) and a line (bytes; 0 for none) do not explain, at the best offset."""
        if not line or self.known:
            return self._misses(limit, line, 0)
        return min(self._misses(limit, line, offset) for offset in range(0, line, self.unit))

    def _misses(self, limit: int, line: int, offset: int) -> int:
        most = np.full(len(self.size), limit)
        if line:
            most = np.minimum(most, (line - (self.place + offset) % line) // self.unit)
        wrong = np.where(self.by_card, self.size != most, self.size > most)
        return int(wrong.sum())


def cuts(both: Iterable[Side]) -> dict[str, Value]:
    """Learn the burst limit and the cache line at which transactions end.

    Without addresses a limit as long as a line cannot be told from the line.
    """
    ends = [_Ends.of(side) for side in both if len(side)]
    told = sum(int(one.by_card.sum()) for one in ends)
    if told < LEAST:
        longest = max((int(one.size.max(initial=0)) * one.unit for one in ends), default=0)
        why = f"frames in one transaction each, of up to {longest} bytes: no limit was reached"
        return {"burst_limit_bytes": unseen(why, told), "cut_bytes": unseen(why, told)}
    unit = max(one.unit for one in ends)
    size = np.concatenate([one.size[one.by_card] for one in ends])
    counts = np.bincount(size)
    longest = max(int(one.size.max()) for one in ends)
    limits = {longest, *np.argsort(-counts)[:SIZES].tolist(), NONE} - {0}
    limits = {limit for limit in limits if limit >= longest}
    table = {
        (limit, line): sum(one.misses(limit, line) for one in ends)
        for limit in limits
        for line in (0, *(line for line in LINES if line > unit))
    }
    by_limit: dict[Fact | None, int] = {
        None if limit == NONE else limit * unit: min(off for key, off in table.items() if key[0] == limit)
        for limit in limits
    }
    by_line: dict[Fact | None, int] = {
        line: min(off for key, off in table.items() if key[1] == line) for line in {key[1] for key in table}
    }
    limit = chosen(by_limit, told)
    if limit.value is None and not limit.reason:
        limit = unseen(f"no limit was reached: cuts end transactions before it, the longest has {longest * unit}", told)
    line = chosen(by_line, told)
    full = np.concatenate([one.clks[one.by_card & (one.size == longest)] for one in ends])
    if limit.value is not None and len(full) and (full == full[0]).all():
        limit = unseen(f"each burst of {longest * unit} bytes took as long: a limit, or the latency timer", told)
    if not all(one.known for one in ends) and (longest * unit in LINES or line.value != 0 or told < MANY):
        why = f"transactions of up to {longest * unit} bytes: a limit or a line, which addresses tell"
        alike = unseen(why if longest * unit in LINES else line.reason or f"{told} are too few without addresses", told)
        return {"burst_limit_bytes": alike, "cut_bytes": alike}
    return {"burst_limit_bytes": limit, "cut_bytes": line}


def timer_cuts(both: Iterable[Side], limits: dict[str, Value]) -> Value:
    """Learn whether the card's latency timer ends transactions: at places that no limit and no line explains.

    That it does not cannot be learned: the timer runs out only where another device asks for the bus.
    """
    sizes = [np.zeros(0, np.int64)]
    for side in both:
        ends = ~side.ending & ~side.cut & ~side.jump
        sizes.append(side.bus.data_phases[ends].astype(np.int64))
    size = np.concatenate(sizes)
    kinds = len(np.unique(size))
    if len(size) < LEAST or any(one.value is not None for one in limits.values()):
        return unseen("transactions end at limits and lines alone", len(size))
    usual = int(np.bincount(size).max())
    if kinds < LEAST or len(size) < MANY or usual > len(size) / 2:
        return unseen("too few transactions end at odd places", len(size))
    return Value(True, len(size), MISS * (len(size) - usual))


def rereads(side: Side) -> dict[str, Value]:
    """Learn where the card goes on after the target cut a read: behind it, at the line, or at the piece again."""
    names = ("reread", "reread_line_bytes")
    rows = np.flatnonzero(side.cut & ~side.last & ~side.jump)
    rows = rows[side.behind[rows] >= 0]
    if not len(rows):
        cut = int((side.cut & ~side.last).sum())
        why = "no read was cut inside a frame" if not cut else "without addresses it cannot be told where reads go on"
        return dict.fromkeys(names, unseen(why, cut))
    behind = side.behind[rows]
    begin = side.behind[rows] - side.unit * side.bus.data_phases[rows]
    start = (side.bus.address.astype(np.int64) & -side.unit)[side.head][side.frame[rows]]
    again = side.bus.address.astype(np.int64)[rows + 1] & -side.unit
    off: dict[Fact | None, int] = {"cut": int((again != behind).sum()), "piece": int((again != begin).sum())}
    lines: dict[Fact | None, int] = {
        line: int((again != np.maximum(behind // line * line, start)).sum()) for line in LINES if line > side.unit
    }
    off["line"] = min(lines.values())
    # A line is told from "behind it" only by reads that were cut inside one, and so on: the rest counts for all.
    value = chosen(off, len(rows))
    if value.value != "line":
        why = "reads do not go back to a line" if value.value else value.reason
        return {names[0]: value, names[1]: unseen(why, len(rows))}
    return {names[0]: value, names[1]: chosen(lines, len(rows))}
