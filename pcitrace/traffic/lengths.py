"""Which pieces are one frame, told by their lengths alone: pieces that add up to a frame that is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Floats, Integers, packed_if_equal
from pcitrace.freed import give_back
from pcitrace.traffic.ahead import Ahead, Expected, Units
from pcitrace.traffic.parser import AHEAD, PENDING, Parser
from pcitrace.traffic.tails import settle

__all__ = ["parse"]

BEGINNING, IN_TRIALS, FIRST, FEW = 1024, 256, 128, 4
"""Units with which it is found where the first whole frame begins, and in trials; of those at which it may begin, so
many; and runs at which it is tried in any case."""


def parse(pieces: BusTable, asked_us: Floats, expected: Expected, trial: bool = False) -> tuple[Integers, Booleans]:
    """Number the pieces by the frame they make up.

    Parameters
    ----------
    pieces : BusTable
        Transactions of one direction in which data moved, in order of time.
    asked_us : array of float
        First attempt of each.
    expected : Expected
        The frames.
    trial : bool
        Whether it is only asked how well pieces and frames fit, so that the first frame need not be found at any cost.

    Returns
    -------
    number : array of int
        Ascending number of the frame, -1 for pieces of none. It says only which pieces are one frame; which frame it
        is where some were lost is for :mod:`pcitrace.frames.align` to find.
    either : array of bool
        Of each frame, whether another piece of as many data phases may be its last.
    """
    if not len(pieces):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
    # What the target cut short goes on in the next transaction: together they are one unit.
    unit = np.cumsum(np.r_[False, ~pieces.cut[:-1]], dtype=np.int32)
    heads = np.flatnonzero(np.r_[True, unit[1:] != unit[:-1]]).astype(np.int32)
    tails = np.append(heads[1:] - 1, np.int32(len(pieces) - 1))
    count = np.add.reduceat(pieces.data_phases, heads, dtype=np.int32)
    # But a descriptor or status may come in between, and then the unit's end may be none of the frame's.
    final, optional = pieces.data_phases[tails], list(expected.optional)
    short = np.isin(count, optional)
    foreign = np.where(
        (tails > heads) & np.isin(final, optional) & ~np.isin(count - final, optional), final, np.int32(0)
    )
    foreign = packed_if_equal(foreign)
    del final  # as long as all pieces, as are the columns of the units
    units = Units(
        count,
        foreign,
        # Only the first and the last data phase of a frame can have bytes disabled.
        pieces.bytes[tails] % 4 > 0,
        short,
        asked_us if len(heads) == len(pieces) else asked_us[heads],
        pieces.first_data_us[heads],
        pieces.last_data_us[tails],
        pieces.busy_period[tails],
    )
    parser = Parser(units, expected)
    _begin(parser, trial)
    parser.go(len(count), len(count))
    number, frame, parted = parser.numbers(len(count)), np.array(parser.found, dtype=np.int64), parser.parted
    either = np.zeros(len(frame), dtype=bool)
    del parser
    give_back()
    if optional:
        units = replace(units, count=count - foreign * parted, foreign=foreign * ~parted)
        number, either = settle(units, number, expected.take(frame))
    out = number[unit]
    out[tails[parted]] = -1
    return out, either


class _Against(NamedTuple):
    """What speaks against the first whole frame beginning at a unit.

    Units of no frame and frames on the wire that are not found (`missing`), and seams of frames, of so many units. A
    frame does begin then at the unit `begins`.
    """

    missing: float
    seams: float
    units: int
    begins: int


def _begin(parser: Parser, trial: bool) -> None:
    """Let a parser begin where the first whole frame does.

    The capture may begin in the middle of a frame, and what is left of it may fit others, or with some of the next
    one: the first whole frame is where least speaks against the frames of the beginning. How many seams a unit has
    is the card's way, so only what is more than that where they are fewest speaks against anything.
    """
    # What was tried with one beginning mostly comes again with the next: each frame's seams are counted once.
    units = IN_TRIALS if trial else BEGINNING
    ahead = Ahead.of(parser.units.part(0, units + 1), parser.optional, parser.full)
    seams = cache(partial(ahead.seams, stop=len(ahead.count)))
    tried = {0: _against(parser, 0, units, np.inf, seams)}
    if not (tried[0].missing or tried[0].seams):
        return
    heads = parser.run_head[: np.searchsorted(parser.run_head, FIRST)]
    heads = heads[heads > 0]
    pause_us = np.r_[-np.inf, parser.first[heads] - parser.last[heads - 1]]
    # It is one of the first, or comes behind a longer pause than there was before.
    likely = pause_us[1:] > np.maximum.accumulate(pause_us)[:-1]
    likely[:FEW] = True
    # Among single data phases nothing needs to tell where a frame begins.
    single = (parser.count[:FIRST] == 1) & ~parser.short[:FIRST]
    among = np.flatnonzero(single[1:] & single[:-1] & (not trial)) + 1
    begins = tried[0].begins
    for head in np.union1d(heads[likely], among).tolist():
        if head >= begins:
            most = min(one.missing + one.seams for one in tried.values())
            tried[head] = _against(parser, head, units, most, seams)
            begins = tried[head].begins
    usual = min((one.seams / one.units for one in tried.values() if one.units), default=0.0)
    parser.reset(min(tried, key=lambda head: tried[head].missing + tried[head].seams - usual * tried[head].units))


def _against(parser: Parser, head: int, units: int, most: float, seams: Callable[[Sequence[int]], float]) -> _Against:
    """Count what speaks, among so many units, against the first whole frame beginning at one of them, up to `most`.

    Before it there may be what is left of one.
    """
    short, expected = parser.short, parser.expected
    parser.reset(head)
    before = parser.count[:head][~short[:head]]
    missing = np.count_nonzero(np.cumsum(before[::-1]) >= expected.most.max(initial=0)) + 2.0 * (head > 0)
    missing += _whole_before(parser, head)
    parser.go(min(units, len(parser.count)), most - missing)
    number = parser.numbers(units)
    missing += np.count_nonzero((number[head:] < 0) & ~short[head:units])
    missing += parser.found[-1] + 1 - len(parser.found) if parser.found else 0
    rows = np.flatnonzero(number >= 0).tolist()
    own = sum(seams(tuple(members)) for _, members in groupby(rows, number.tolist().__getitem__))
    return _Against(missing, own, len(rows), rows[0] if rows else head)


def _whole_before(parser: Parser, head: int) -> int:
    """Count the runs before a unit that are as long as a frame that is due: what is left of one is no such run."""
    runs = slice(0, np.searchsorted(parser.run_head, head))
    first, last = parser.first[parser.run_head[runs], None], parser.last[parser.run_tail[runs], None]
    due = slice(0, AHEAD if parser.sending else PENDING)
    return int(np.count_nonzero(parser.expected.allow(due, parser.run_size[runs, None], first, last).any(axis=1)))
