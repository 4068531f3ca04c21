"""A host's DMA read at the least cost: what there is to read, from a first reading, and from nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.lattice import Reading
from pcitrace.profiles import Profile
from pcitrace.sidebyside import each
from pcitrace.traffic import ways
from pcitrace.traffic.beginnings import as_taught
from pcitrace.traffic.dma import Dma, directions
from pcitrace.traffic.goals import LONGEST_BYTES, RECEIVE, SEND, phase_bytes
from pcitrace.traffic.named import Words
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.reader import NOTHING, Reader, Targets
from pcitrace.traffic.reading import begun_again, claiming
from pcitrace.traffic.search import best, of_head
from pcitrace.traffic.spare import BEGIN
from pcitrace.traffic.stated import Stated

__all__ = ["Found", "Problem", "as_likely", "first_reading", "lengthened", "started", "weigh"]


@dataclass(frozen=True)
class Found:
    """Frames of one direction that were found: one value a frame in each column.

    Attributes
    ----------
    burst : array of int
        The burst; -1 for none.
    target : array of int
        Its number among the targets of this direction; -1 for none.
    certain : array of bool
        Whether its content says so.
    """

    burst: Integers
    target: Integers
    certain: Booleans


@dataclass(frozen=True)
class Problem:
    """What there is to read of one host.

    Attributes
    ----------
    dma : Dma
        Its NIC's transactions, and the bursts that they were taken for.
    found : pair of Found
        The frames that it sends and receives, as far as they were found.
    targets : pair of Target or None
        What its sends come before, and what its receives come after; None where nothing tells.
    profile : Profile or None
        What is known of the card.
    words : Words or None
        What it was told, where data were captured.
    """

    dma: Dma
    found: tuple[Found, Found]
    targets: Targets
    profile: Profile | None = None
    words: Words | None = None

    @property
    def told(self) -> bool:
        """Whether anything tells what the pieces are."""
        return self.targets != (None, None)


def weigh(problem: Problem, like: tuple[Problem, Reading] | None = None) -> tuple[Pieces, Reading]:
    """Read the pieces of one host at the least cost, from what was found so far; and as another host was read.

    Two hosts mostly have cards and drivers of the same kind. Of three generated hosts (`cardbench`) whose readings were
    81, 173 and 400 nats dearer than the truth, that which the other host teaches was as cheap as the truth.
    """
    pieces = Pieces.of(problem.dma.bus)
    first = first_reading(pieces, problem)
    if not problem.told:
        # What was found is not sure.
        return pieces, first
    readings = (_not_begun_again(pieces, one) for one in _best(pieces, first, problem, like))
    seen = all(target is not None and target.seen for target in problem.targets)
    reading, by_content = (claiming(one) if seen else one for one in readings)
    return pieces, replace(reading, by_content=by_content)


def _best(
    pieces: Pieces, first: Reading, problem: Problem, like: tuple[Problem, Reading] | None
) -> tuple[Reading, Reading]:
    """Return the cheapest reading, and by the frames whose content is certain alone.

    A card of 32 bits may be in a slot of 64: where no line shows how many bytes its data phases have, both are tried;
    of many pieces with the first.
    """
    certain = np.isin(first.segment, np.concatenate([one.burst[one.certain] for one in problem.found]))
    sure = certain & first.begins & (first.target >= 0)
    readers = [_reader(pieces, problem, unit) for unit in _widths(problem, pieces, first)]
    if len(readers) > 1 and not readers[0].small:
        readers = [min(readers, key=lambda one: of_head(one, first)[1].cost)]
    found = each(lambda one: best(one, first, sure, _as_another(one, like)), readers)
    (reading, by_content), *others = sorted(found, key=lambda one: one[0].cost)
    for other, _ in others:
        reading, by_content = reading.against(other), by_content.against(other)
    return reading, by_content


def _not_begun_again(pieces: Pieces, reading: Reading) -> Reading:
    margins = reading.margins.copy()
    margins[begun_again(pieces, reading), BEGIN] = 0.0
    return replace(reading, margins=margins)


def as_likely(
    problem: Problem, found: tuple[Pieces, Reading], like: tuple[Problem, Reading] | None
) -> tuple[Pieces, Reading]:
    """Return what was found of a host, held against how another was read; read again where that is cheaper."""
    pieces, reading = found
    if not problem.told:
        return found
    others = _as_another(_reader(pieces, problem, _width(problem, pieces, reading)), like)
    if any(other.cost < reading.cost - NOTHING for other in others):
        return weigh(problem, like)
    for other in others:
        reading = replace(reading.against(other), by_content=reading.by_content)
    return pieces, reading


def _as_another(reader: Reader, like: tuple[Problem, Reading] | None) -> list[Reading]:
    """Return the reading that comes of what another host's reading teaches, if its data phases are as wide."""
    if like is None:
        return []
    problem, reading = like
    pieces = Pieces.of(problem.dma.bus)
    unit = _width(problem, pieces, reading)
    return [as_taught(reader, _reader(pieces, problem, unit), reading)] if unit == reader.unit else []


def lengthened(problem: Problem) -> tuple[dict[int, float], dict[int, float]]:
    """Return what it costs, in nats, that all frames of a track have more data phases, by how many; or fewer.

    Only where the wire was not captured. Then it is no other length that speaks against it: the frames in the other
    memory may have as many more.
    """
    first, reader = started(Pieces.of(problem.dma.bus), problem)
    return ways.lengthened(reader, first, SEND), ways.lengthened(reader, first, RECEIVE)


def started(pieces: Pieces, problem: Problem) -> tuple[Reading, Reader]:
    """Return what was found so far as a reading, and what reads on from it."""
    first = first_reading(pieces, problem)
    return first, _reader(pieces, problem, _width(problem, pieces, first))


def _reader(pieces: Pieces, problem: Problem, unit: int) -> Reader:
    write = directions(pieces.bus)
    return Reader(pieces, write, problem.targets, unit, Stated(problem.profile), problem.words)


def _widths(problem: Problem, pieces: Pieces, reading: Reading) -> tuple[int, ...]:
    """Return the bytes that a data phase may have."""
    bus = problem.dma.bus
    return (8, 4) if bus.wide.any() and not bus.bytes_exact else (_width(problem, pieces, reading),)


def _width(problem: Problem, pieces: Pieces, reading: Reading) -> int:
    """Return the bytes of a data phase, by what was found of frames on the wire."""
    least, units = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for side in (SEND, RECEIVE):
        target = problem.targets[side]
        mine = (reading.track == side) & (reading.target >= 0)
        if target is not None and len(target) and mine.any():
            moved = np.bincount(reading.target[mine], weights=pieces.bus.data_phases[mine], minlength=len(target))
            known = target.most < LONGEST_BYTES
            least.append(target.least[known])
            units.append(moved[known].astype(np.int64))
    return phase_bytes(problem.dma.bus, np.concatenate(least), np.concatenate(units))


def first_reading(pieces: Pieces, problem: Problem) -> Reading:
    """Return the reading that the bursts and frames found so far are."""
    dma, found = problem.dma, problem.found
    burst = dma.burst[pieces.rows]
    count = int(dma.burst.max(initial=-1)) + 1
    track, target = np.full(count, -1), np.full(count, -1)
    for side in (SEND, RECEIVE):
        # Where targets were captured, what claims none is no frame at all, or one at the capture's end.
        some = (found[side].burst >= 0) & ((found[side].target >= 0) | (problem.targets[side] is None))
        track[found[side].burst[some]] = side
        target[found[side].burst[some]] = found[side].target[some]
    order = np.arange(len(pieces))
    first, last = np.full(count, len(pieces)), np.full(count, -1)
    np.minimum.at(first, burst, order)
    np.maximum.at(last, burst, order)
    inside = track[burst] >= 0
    return Reading(
        track=track[burst],
        begins=inside & (first[burst] == order),
        ends=inside & (last[burst] == order),
        target=np.where(inside, target[burst], -1),
        margins=np.zeros((len(pieces), 4), np.float32),
        cost=np.inf,
        segment=np.where(inside, burst, -1),
    )
