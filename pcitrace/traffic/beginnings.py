"""From what readings of a host's pieces begin: where frames may lie, and how long after the wire, is guessed at.

A reading learns from the one before, so it ends near where it began.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from pcitrace.facts import HEADER_BYTES
from pcitrace.lattice import Learner, Reading, read
from pcitrace.traffic import costs
from pcitrace.traffic.goals import BLOCK, RECEIVE, SEND, Layout, unknown_layout
from pcitrace.traffic.peaks import peaked, peaks
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.reader import FEW, SETTLED, WIDE, WIDEST, Reader, cost_of, nothing, sequence_of

__all__ = ["as_taught", "each_way_alone", "from_peaks", "headers"]

PEAKS = 3
"""Lags that are tried of each track."""

TRIED = ((True, PEAKS, 0), (False, FEW, 0), (True, 1, BLOCK[-1]))
"""Layouts that lags are tried with: whole or not, how many lags, and the block to whose end a card may read on. The
last are sends' alone: their frames are longer in memory than is looked for else."""

RARELY, LEAST_VALLEY_US = 0.05, 0.2
"""Share of the shortest and of the longest pauses that tell no valley, and the shortest that may."""


@dataclass(frozen=True)
class _Guess:
    """A layout of the frames of one track, and the bin of the lag that most have; None if nothing tells."""

    layout: Layout
    lag: int | None


def from_peaks(reader: Reader) -> list[Reading]:
    """Return the readings that settle from the likeliest lags of both tracks.

    A card whose sends overlap with the wire mostly receives like that, too: neither is likely without the other.
    """
    sends, receives = (_guesses(reader, side) for side in (SEND, RECEIVE))
    alone = [(send, receives[0]) for send in sends] + [(sends[0], receive) for receive in receives[1:]]
    both = list(product(*([one for one in some if not one.layout.whole] for some in (sends, receives))))
    longest_us = np.inf, _valley_us(reader.pieces)
    tried = [_from_guess(reader, longest_us, *pair) for pair in alone + both]
    costs_ = [one.cost for one in tried[: len(alone)]]
    send = sends[int(np.argmin(costs_[: len(sends)]))]
    receive = [receives[0], *receives[1:]][int(np.argmin([costs_[0], *costs_[len(sends) :]]))]
    if (send, receive) not in alone + both:
        tried.append(_from_guess(reader, longest_us, send, receive))
    tried.sort(key=cost_of)
    return [reader.settle(one) for one in tried[:SETTLED]] + tried[SETTLED:]


def each_way_alone(reader: Reader) -> list[Reading]:
    """Return the reading that settles where what is read and what is written are read by themselves, if both are.

    Where sends and receives take turns on the bus, and pieces are read again, the likeliest lags of both at once
    lead astray. On two hosts of another maker (reread, 16 channels) it came near the truth, 185 and 210 nats
    cheaper than what all other beginnings came to. Addresses tell what goes on with what.
    """
    ways = np.where(reader.write >= 0, reader.write, reader.alone.soon)
    if len(np.unique(ways)) < 2 or reader.pieces.bus.has_address:
        return []
    track, target = np.full((2, len(ways)), -1)
    begins, ends = np.zeros((2, len(ways)), dtype=bool)
    for side in (SEND, RECEIVE):
        rows = np.flatnonzero(ways == side)
        targets = (reader.targets[SEND], None) if side == SEND else (None, reader.targets[RECEIVE])
        alone = Reader(
            reader.pieces.take(rows), ways[rows], targets, reader.unit, reader.stated, reader.words, reader.header
        )
        found = alone.cheapest(from_peaks(alone))
        mine, rows = found.track == side, rows[found.track == side]
        track[rows], target[rows] = side, found.target[mine]
        begins[rows], ends[rows] = found.begins[mine], found.ends[mine]
    return [reader.settle(Reading(track, begins, ends, target, np.zeros((len(ways), 4), np.float32), np.inf))]


def _guesses(reader: Reader, side: int) -> list[_Guess]:
    """Return the likeliest lags of a track, with the layout in which they are such."""
    target, after = reader.targets[side], side == RECEIVE
    out = []
    if target is not None and len(target):
        bus = reader.pieces.bus
        for whole, count, block in TRIED[:2] if after else TRIED:
            edges_us = reader.pieces.begin_us if after or not whole else bus.last_data_us
            times_us = target.end_us if after and whole else target.start_us
            layout = unknown_layout(side, whole, reader.unit, block)
            order = np.argsort(edges_us, kind="stable")
            out += [_Guess(layout, int(at)) for at in peaks(times_us, edges_us[order], after, count)]
    return [_Guess(unknown_layout(side, True, reader.unit), None), *out]


def _from_guess(reader: Reader, longest_us: tuple[float, float], *guesses: _Guess) -> Reading:
    """Return the cheaper of what two guesses of the longest pause inside a frame come to."""
    return min((reader.settle(_guessed(reader, one_us, *guesses), rounds=FEW) for one_us in longest_us), key=cost_of)


def _valley_us(pieces: Pieces) -> float:
    """Return a pause that is rare, between shorter and longer ones: where most pauses inside frames may end."""
    bus = pieces.bus
    pauses = np.sort(pieces.begin_us[1:] - bus.last_data_us[:-1])
    pauses = pauses[int(len(pauses) * RARELY) : int(len(pauses) * (1 - RARELY))]
    pauses = pauses[pauses >= LEAST_VALLEY_US]
    if len(pauses) < FEW:
        return float(np.inf)
    widest = int(np.argmax(pauses[1:] / pauses[:-1]))
    return float(np.sqrt(pauses[widest] * pauses[widest + 1]))


def _guessed(reader: Reader, longest_us: float, *guesses: _Guess) -> Reading:
    """Return the cheapest reading where nothing is known but the lags, and the longest pause inside a frame."""
    table = reader.first
    tracks = tuple(
        costs.pausing(
            track
            if guess.lag is None
            else replace(track, lag=np.stack([peaked(track.lag[0], guess.lag), track.lag[1]])),
            longest_us,
        )
        for track, guess in zip(map(costs.parted, table.tracks), guesses, strict=True)
    )
    sends, receives = (reader.goals(side, guesses[side].layout) for side in (SEND, RECEIVE))
    alone = reader.alone.costs(nothing(len(reader.pieces)), (sends, receives), Learner())
    sequence = sequence_of(reader.pieces, alone, reader.unit)
    table, limits = replace(table, tracks=(tracks[0], tracks[1])), reader.limits(reader.wide)
    return read(sequence, (sends, receives), table, limits, margins=False)


def headers(reader: Reader) -> list[int]:
    """Return the data phases that most sends may have in a buffer of their own whose end is read as single words:
    an Ethernet header, word by word, or what is mostly there.
    """
    size, header = reader.pieces.bus.data_phases.astype(np.int64), -(-HEADER_BYTES // reader.unit)
    order = np.arange(len(size))
    larger = np.flatnonzero((size[:-1] == 1) & (size[1:] > 1)) + 1
    singles = (order - np.maximum.accumulate(np.where(size > 1, order, -1)))[larger - 1]
    before = larger - singles - 1
    whole = (size[before] + singles)[before >= 0]
    many = np.bincount(whole[whole > header], minlength=1)
    often = {header: int(np.count_nonzero(singles >= header)), int(many.argmax()): int(many.max())}
    return [units for units, count in often.items() if 2 * count > reader.count(SEND) > 0]


def as_taught(reader: Reader, other: Reader, taught: Reading) -> Reading:
    """Return the reading that settles from what a reading of other pieces teaches.

    No piece is known yet. On a host whose sends and receives take turns (`cardbench`, scatter-gather 1189) 256
    states an item lost the way, and what it came to was 360 nats dearer.
    """
    lie = other.lying(taught, (None, None))
    table = other.taught(taught, lie, Learner())[2]
    sends, receives = (reader.goals(side, lie[side]) for side in (SEND, RECEIVE))
    alone = reader.alone.costs(nothing(len(reader.pieces)), (sends, receives), Learner())
    states = WIDEST if reader.small else WIDE
    sequence = sequence_of(reader.pieces, alone, reader.unit)
    first = read(sequence, (sends, receives), table, reader.limits(states), margins=False)
    return reader.settle(first, lie, FEW)
