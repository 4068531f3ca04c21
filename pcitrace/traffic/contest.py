"""What the rules found of a host held against what else its pieces could be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.lattice import Reading
from pcitrace.traffic.asked import AGREED, SURE
from pcitrace.traffic.doubts import by_halves, doubted_otherwise
from pcitrace.traffic.goals import RECEIVE, SEND, goals_of
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.reader import FEW, SMALL, TINY, Reader, cost_of, until
from pcitrace.traffic.reading import begun_again
from pcitrace.traffic.ways import near
from pcitrace.traffic.weigh import Problem, first_reading, started

__all__ = ["alike", "contested"]

Edge = tuple[int, int, int, bool]
"""An edge as :meth:`pcitrace.lattice.Reading.edges` gives it: item, track, target, whether it begins."""

ALL = 0.98
"""Share of the frames found so far that must have the data phases of their frames on the wire, in one layout.

On generated cards (`tests/cardbench`, seed 101, control lines) all frames had that of hosts whose reading was right; of
the hosts with wrong frames about half had less."""

LOOKED_AT, CONFIRMED = 300, 0.98
"""Pieces of a host of which the rules' reading is held against those near it (of few all), and the share of edges that
must be the same: on generated cards (`tests/cardbench`, seeds 402 and 403, control lines) that was so of all hosts
whose reading was right but one, and of one of the nine that had wrong frames."""

FRAMES = round(0.5 / (1 - CONFIRMED))
"""Frames among these pieces, if the first `SMALL` have so many: of fewer edges the share that may differ is less than
one."""

MOST = 0.5
"""Share of the frames that were looked at: with a profile those behind them are doubted only where most of these are.
Which of equal frames got lost is doubted of the few beside it. And a reading that finds so many more is against the
rules: of an overloaded card they leave some that are not told. A judgement: most is more than half."""

CLEARLY = 3.5
"""Nats from which on a reading is against what the rules found.

On generated cards (`tests/cardbench`, seeds 911, 912 and 915 to 917, 16 channels, with profiles) the rules had wrong
frames on 52 of the 74 hosts with 12 nats and more, on 6 of the 13 with 3.5 to 12, and on 5 of the 98 with less."""

LEFT = 0.1
"""Share of the edges that may be elsewhere in a likelier reading of a card with a profile and many pieces: the rules
know it, and one frame of an overloaded card may as well be the next. Three buses of the simulator whose rules were
right had 3 of 104, 4 of 135 and 3 of 59. Of the 23 such hosts of generated cards (`tests/cardbench` 1200 to 1203, 80
frames, more than 400 pieces) 20 had none, one with right rules had 15 %, two with wrong ones 23 and 47; one more with
wrong ones had 20 (cut-through 1217): anything between would do there."""

DEARER = AGREED
"""Nats by which any reading near must be dearer than what the rules found without a profile, as much as an edge's own
margin must be. With 3.5, of 33 hosts whose nearest other reading was dearer none had a wrong
frame (`generic`, seeds 961 to 964), and of 4 where it was less 3 had; but later one had 12 at 3.9 (scatter-gather 1180,
a status as the end of equal frames)."""

READ_ON = 5_000
"""Pieces up to which all are read once more to be held against the rules' reading, 0.03 ms each on a simulated bench:
the time of a long analysis is bounded. Of more only the first pieces say whether the rules hold."""

CHECKED = 20_000
"""Transactions of a host up to which this is looked at: the time that it takes is bounded."""


def alike(problem: Problem) -> bool:
    """Return whether nearly all sends found so far have the data phases of their frames on the wire, in one layout.

    Not receives: of those that an overloaded card drops it is not known which frames they are.
    """
    if len(problem.dma.bus) > CHECKED or not problem.told:
        return True
    first, reader = started(Pieces.of(problem.dma.bus), problem)
    return reader.agreeing(SEND, first) >= ALL


def contested(problem: Problem, described: bool) -> Floats | None:
    """Return how much dearer any reading near what was found so far is that puts an edge of it elsewhere.

    Near are those that differ alike in every frame; and, of few pieces, those that differ in a frame or two, as the
    margins say of what it settles at, and those that forget half. On a host that fetched descriptors two at a time, as
    long as its frames of one length, the rules took two fetches for frames, and each frame behind them for the one
    before: no reading that differs alike in every frame was cheaper, three that forgot half were. Of many pieces the
    rules are not doubted for that: of an overloaded card that sends and receives at once half of what is learned leads
    the reading astray, and the search keeps too few states to tell such margins.

    Returns
    -------
    array of float, shape (bursts, 2), or None
        Nats, for the beginning and the end of each burst; infinite where nothing was weighed. None if a reading is
        clearly likelier: then what was found so far is not to be believed.
    """
    pieces = Pieces.of(problem.dma.bus)
    nats = np.full((int(problem.dma.burst.max(initial=-1)) + 1, 2), np.inf)
    if not len(pieces) or not problem.told:
        return nats
    head, first, reader = _head(pieces, problem)
    burst = problem.dma.burst[head.rows]
    # What may be cut off at the end tells nothing.
    last = [np.flatnonzero(first.begins & (first.track == side)).max(initial=0) for side in (SEND, RECEIVE)]
    everything = first.edges()
    whole = {edge for edge in everything if edge[0] < last[edge[1]]}
    edges = whole if len(head) < len(pieces) else everything
    others = near(reader, first)
    if len(pieces) <= TINY:
        others += by_halves(reader, others[0], 0)
    others = reader.shown(others)
    moved = [(edges - there, there - everything) for there in (one.edges() for one in others)]
    # The cheapest that puts no edge elsewhere: where no target shows a frame, what they found may be read otherwise.
    same = [one for one, (differs, more) in zip(others, moved, strict=True) if not differs and not more]
    itself = min([reader.as_it_is(first), *same], key=cost_of)
    few = LEFT if described and len(pieces) > TINY else 1 - CONFIRMED
    for other, (differs, more) in zip(others, moved, strict=True):
        many = len(differs) > few * len(edges) or len(more) > MOST * len(edges)
        if many and other.against_by(itself) >= CLEARLY:
            return None
        dearer = itself.against_by(other)
        # With a profile the rules know most frames; what it is of another card shows in many.
        if (many and dearer <= 0.0) if described else dearer < DEARER:
            for item, _, _, begins in differs:
                at = burst[item], int(not begins)
                nats[at] = min(nats[at], dearer)
    if len(pieces) <= TINY:
        now = reader.settle(first, rounds=FEW, margins=True)
        for item, _, _, begins in whole & now.edges():
            at = burst[item], int(not begins)
            nats[at] = min(nats[at], now.margins[item, 1 + at[1]])
        _where_elsewhere(nats, burst, whole, now)
    else:
        seen = np.zeros(nats.shape, dtype=bool)
        for item, _, _, begins in edges:
            seen[burst[item], int(not begins)] = True
        _as_in_the_head(nats, problem, seen, MOST if described else 1 - CONFIRMED)
        if len(pieces) <= READ_ON:
            _as_read_on(nats, pieces, problem)
    if len(pieces) <= READ_ON:
        _as_long_as_others(nats, pieces, problem)
        again = begun_again(pieces, first_reading(pieces, problem))
        nats[problem.dma.burst[pieces.rows[again]], 0] = 0.0
    return nats


def _as_in_the_head(nats: Floats, problem: Problem, seen: Booleans, share: float) -> None:
    """Doubt the beginnings, or the ends, of all frames of a track if a larger share is of those that were looked at."""
    for found in problem.found:
        bursts = found.burst[found.burst >= 0]
        for column in (0, 1):
            there = seen[bursts, column]
            known = nats[bursts[there], column]
            if np.count_nonzero(np.isfinite(known)) > share * len(known):
                nats[bursts[~there], column] = known.min()


def _as_read_on(nats: Floats, pieces: Pieces, problem: Problem) -> None:
    """Doubt the edges at which nothing begins or ends in a clearly likelier reading of all pieces; see `_elsewhere`.

    What holds where one looked need not hold behind it: once a single word of a receive was left over, and every frame
    after it was given a word of the next; once the last 20 sends of 300 were each another frame on the wire.
    """
    first, reader = started(pieces, problem)
    itself, now = reader.as_it_is(first), reader.settle(first, rounds=FEW)
    burst, gone = problem.dma.burst[pieces.rows], _elsewhere(first.edges(), now)
    if not gone:
        _where_doubted(nats, burst, first, min(itself, now, key=cost_of), reader)
    elif now.against_by(itself) >= CLEARLY:
        _doubt(nats, burst, gone)


def _where_doubted(nats: Floats, burst: Integers, first: Reading, itself: Reading, reader: Reader) -> None:
    """Doubt what is elsewhere in a clearly likelier reading where all that is doubted is read otherwise, at once.

    And what that reading is not sure of: the rules made a mistake of a kind that is likely here. One that puts many
    edges elsewhere has lost its way, and one that is unsure of many tells nothing of each. It is asked where a reading
    that settles from what was found has its edges; overloaded receivers show that one which has not leads astray.
    """
    edges = first.edges()
    others = [(one, _elsewhere(edges, one)) for one in doubted_otherwise(reader, itself)]
    others = [(one, gone) for one, gone in others if len(gone) <= LEFT * len(edges)]
    itself = min([itself, *(one for one, gone in others if not gone)], key=cost_of)
    likelier = [(one, gone) for one, gone in others if gone and one.against_by(itself) >= CLEARLY]
    if likelier:
        best, gone = min(likelier, key=lambda one: one[0].cost)
        now = reader.settle(best, rounds=1, margins=True)
        least = np.minimum(now.bound, SURE)
        unsure = [edge for edge in edges & now.edges() if now.margins[edge[0], 1 + int(not edge[3])] < least[edge[0]]]
        _doubt(nats, burst, gone + (unsure if len(unsure) <= LEFT * len(edges) else []))


def _doubt(nats: Floats, burst: Integers, edges: Iterable[Edge]) -> None:
    for item, _, _, begins in edges:
        nats[burst[item], int(not begins)] = 0.0


def _elsewhere(edges: set[Edge], reading: Reading) -> list[Edge]:
    """Return the edges at which nothing of that track begins or ends in a reading, or a send that is another frame.

    Of receives it is not asked which frame they are: of equal frames of which some got lost other things tell it.
    """
    there = reading.edges()
    begun = {(item, track, begins) for item, track, _, begins in there}
    return [
        edge for edge in edges if (edge not in there if edge[1] == SEND else (edge[0], edge[1], edge[3]) not in begun)
    ]


def _where_elsewhere(nats: Floats, burst: Integers, edges: set[Edge], reading: Reading) -> None:
    """Doubt the few edges that the reading which is taught by all of them puts elsewhere.

    Two sends of generated cards (`cardbench`, 16 channels, their own profiles: cacheline 1247, overload 1243) began or
    ended a piece beside what the reading said. Rules that know a card are right of most frames: a reading that is not
    likelier and puts many elsewhere has lost its way. Of many pieces it does so on overloaded cards, and single frames
    of the simulator's ("both directions") that were right seemed to begin elsewhere.
    """
    gone = _elsewhere(edges, reading)
    if len(gone) <= LEFT * len(edges):
        _doubt(nats, burst, gone)


def _as_long_as_others(nats: Floats, pieces: Pieces, problem: Problem) -> None:
    """Doubt both edges of a frame that has fewer data phases than it must have if it lies in memory as most do.

    And of a receive that has more, and one more a piece: what was written is not written again. Of 30 receives that lay
    in memory two bytes behind the beginning of a word (`cardbench`, ring 1242) two ended a word too soon by the rules.
    """
    first, reader = started(pieces, problem)
    for side, target in enumerate(problem.targets):
        mine = np.flatnonzero((first.track == side) & (first.target >= 0))
        if target is None or not target.seen or not len(mine):
            continue
        burst = problem.dma.burst[pieces.rows[mine]]
        moved, parts = np.bincount(burst, weights=pieces.bus.data_phases[mine]), np.bincount(burst)
        goals = goals_of(side, target, reader.layout(side, first), reader.unit)
        least, most = goals.least[first.target[mine]], goals.most[first.target[mine]] + parts[burst]
        odd = (moved[burst] < least) | ((moved[burst] > most) & (side == RECEIVE))
        if reader.agreeing(side, first) > MOST:
            nats[burst[odd]] = 0.0


def _head(pieces: Pieces, problem: Problem) -> tuple[Pieces, Reading, Reader]:
    """Return the pieces that are looked at, what was found of them so far, and what reads on from it."""
    head = pieces.take(np.arange(_looked_at(pieces, problem)))
    first = first_reading(head, problem)
    return head, *started(head, replace(problem, targets=until(head, first, problem.targets)))


def _looked_at(pieces: Pieces, problem: Problem) -> int:
    """Return how many pieces are looked at: all of few, else so many that they have frames enough.

    Of a card that writes its frames four words at a time the first 300 pieces have 14 frames, too few to see that a
    third of all were wrong (`cardbench`, cut-through 1259, 300 frames).
    """
    if len(pieces) <= TINY:
        return len(pieces)
    for many in (SMALL, len(pieces)):  # mostly these few tell it, and a reading of all of them is much memory
        first = first_reading(pieces.take(np.arange(min(many, len(pieces)))), problem)
        frames = np.flatnonzero(first.begins & (first.target >= 0))[:FRAMES]
        if len(frames) == FRAMES:
            break
    return min(max(LOOKED_AT, int(frames.max(initial=0)) + 1), SMALL, len(pieces))
