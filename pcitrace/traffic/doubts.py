"""What a reading doubts is read otherwise: all of it at once, each edge by itself, or by half of what it
teaches. What comes of that is cheaper, or bounds how sure the reading is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.lattice import BEGINS, ENDS, STATES, WHOSE, Goals, Learner, Reading, Sequence, Table, read
from pcitrace.traffic.asked import AGREED, FAR, READ_AGAIN, SURE
from pcitrace.traffic.goals import RECEIVE, SEND, Layout
from pcitrace.traffic.reader import FEW, NOTHING, Reader, cost_of

__all__ = ["TURNS", "by_halves", "doubted_otherwise", "each_otherwise"]

HALVES, TURNS = 8, 3
"""Readings that begin with half of what the cheapest teaches; and how often anything is looked for beside that one. On
the host of which `by_halves` speaks two of eight found the truth; on one whose frames overlap and are cut anywhere the
first eight found nothing, the second 17 nats."""

DOUBTS = (AGREED, WHOSE), (SURE, WHOSE), (SURE, BEGINS), (FAR, BEGINS)
"""Nats below which what a reading says is read otherwise, all at once, and of what: whose a piece is, or where a
segment begins. The nats are those that answers ask for. Readings begin here, and what they cost decides. Which pairs
are tried was chosen on generated cards alone (`cardbench` 1257 and 1258); with (`FAR`, `WHOSE`) half of a bus could be
read otherwise (equal-lengths 1257), dearer by 120 to 4,200 nats."""

At = tuple[Booleans, Integers] | tuple[int, int]
"""Items, and of each the column of what it costs by itself."""

DIGITS = 3
"""Decimal digits in which two margins are equal that are the same reading's: single precision tells no more."""


class Taught(NamedTuple):
    """What a reading teaches (:meth:`pcitrace.traffic.reader.Reader.taught`), and how its frames lie in memory."""

    sequence: Sequence
    goals: tuple[Goals, Goals]
    table: Table
    lie: tuple[Layout, Layout]

    @classmethod
    def by(cls, reader: Reader, now: Reading) -> Taught:
        lie = reader.lying(now, (None, None))
        return cls(*reader.taught(now, lie, Learner()), lie)


def doubted_otherwise(reader: Reader, now: Reading) -> list[Reading]:
    """Return what comes of a reading where all that is doubted is read otherwise, at once; again, where that is
    cheaper.

    A mistake that is alike in some frames makes itself likely: each of them alone is dearer without it, all of them
    together need not be. On a generated host (`cardbench`, equal-lengths 1257, 300 frames) every eighth send seemed
    to begin with the descriptors that are read between its first pieces. Each was surer than 2 to 16 nats; without
    all of them the reading was 9 to 13 nats cheaper. On five simulated hosts whose sends and receives take turns,
    all right, what it came to was dearer by 4 to 150; on overloaded receivers it may be far cheaper, and wrong.
    """
    found, best = list[Reading](), now
    for _ in range(FEW):
        now = best
        found += [one for one in _otherwise(reader, now) if _keeps(now, one)]
        best = min([now, *found], key=cost_of)
        if best.cost >= now.cost - NOTHING:
            break
    return found


def _otherwise(reader: Reader, now: Reading) -> Iterator[Reading]:
    """Give what comes of a reading where it is dearer by so many nats that a piece is whose it seems to be, or a
    beginning where one seems to be, if that is not surer.
    """
    now = reader.settle(now, rounds=1, margins=True)
    taught = Taught.by(reader, now)
    for nats, what in DOUBTS:
        known = np.minimum(now.bound, nats)
        doubted = now.begins & (now.margins[:, 1] < known) if what == BEGINS else now.margins[:, 0] < known
        if doubted.any():
            yield _dearer(reader, taught, (doubted, what + now.track[doubted]), nats, reader.wide)


def _keeps(now: Reading, other: Reading) -> bool:
    """Return whether another reading has at least half the segments of each track: one without explains nothing.

    Frames that all look alike cost least where none of them is a frame: all receives of a simulated host
    ("acenic-fig3.1", 45 frames) could be left over for 70 nats less.
    """
    return all(
        2 * np.count_nonzero(other.begins & (other.track == side)) >= np.count_nonzero(now.begins & (now.track == side))
        for side in (SEND, RECEIVE)
    )


def each_otherwise(reader: Reader, tried: list[Reading]) -> list[Reading]:
    """Return what comes of the cheapest of some readings where one edge of a frame that is not sure by far is read
    otherwise, each by itself; again, where that is cheaper.

    A margin is told by the costs that the reading taught: it is no larger than what the other costs more by what
    that one teaches. On a host of 40 frames (a card of another maker, reread, 16 channels) whose reads were begun
    again a frame began a piece late by 14 nats; with all that follows from it the truth was dearer by 8. Of eight
    such cards five values were wrong, now one; and of two of their hosts a cheaper reading came of it. Addresses
    tell what goes on with what.

    Edges that are no answer count, too, for others rest on them. On a host whose sends and receives take turns, and
    whose reads are begun again (a card of another maker, reread, seed 114, 16 channels), two places were wrong by
    less than 5 nats; with them read otherwise the truth was 56 nats cheaper, and five values had been given wrong.
    """
    found, left = list[Reading](), READ_AGAIN // len(reader.pieces)
    for _ in range(TURNS):
        best = reader.cheapest([*tried, *found])
        now = reader.settle(best, rounds=1, margins=True)
        taught = Taught.by(reader, now)
        doubts = _doubts(now)[:left]
        found += [_dearer(reader, taught, at, FAR, STATES) for at in doubts]
        left -= len(doubts)
        if reader.cheapest([*tried, *found]).cost >= best.cost - NOTHING:
            break
    return found


def _dearer(reader: Reader, taught: Taught, at: At, nats: float, states: int) -> Reading:
    """Return what comes of a reading where what it says of some items is dearer by so many nats.

    Frames lie as they do in that reading. Where pieces are cut and read again, more of them may agree in a layout that
    is dearer in all, and then whatever was read otherwise was dearer by as much: by 65 nats on the host of which
    :func:`each_otherwise` speaks.
    """
    alone = taught.sequence.alone.copy()
    alone[at] += nats
    sequence = replace(taught.sequence, alone=alone)
    other = read(sequence, taught.goals, taught.table, reader.limits(states), margins=False)
    return reader.settle(other, taught.lie, FEW)


def _doubts(now: Reading) -> list[tuple[int, int]]:
    """Return the edges of frames that are not sure by far: each item and the column of its cost; what is least sure
    first.

    Both edges of a frame that are as sure are doubted for one reading.
    """
    found = dict[tuple[int, float], tuple[float, int, int]]()
    for there, column, first in ((now.begins, 1, BEGINS), (now.ends, 2, ENDS)):
        nats = now.margins[:, column]
        unsure = there & (now.target >= 0) & (nats < np.minimum(now.bound, FAR))
        for item in np.flatnonzero(unsure).tolist():
            known = now.segment[item], round(float(nats[item]), DIGITS)
            found.setdefault(known, (float(nats[item]), item, first + int(now.track[item])))
    return [(item, column) for _, item, column in sorted(found.values())]


def by_halves(reader: Reader, best: Reading, turn: int) -> list[Reading]:
    """Return what comes of the cheapest reading where half of what it teaches is forgotten, each turn another half.

    What is alike in a few segments only makes itself likely: on a host with 12 frames three reads of descriptors
    were received frames, each because the other two were.
    """
    found = []
    for seed in range(turn * HALVES, (turn + 1) * HALVES):
        learner = Learner(forgets=np.random.default_rng(seed))
        taught = reader.taught(best, reader.lying(best, (None, None)), learner)
        found.append(reader.settle(read(*taught, reader.limits(reader.wide), margins=False), rounds=FEW))
    return found
