"""The cheapest of all readings of a host's pieces that are tried, and how sure it is.

Readings begin in many ways (`beginnings`). What is cheaper beside the cheapest is looked for: all frames read another
way (`ways`), and what it doubts read otherwise (`doubts`). No margin is larger than what the others cost more, and none
is left where lengths speak against it (`aswell`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcitrace.columns import Booleans
from pcitrace.lattice import Reading
from pcitrace.traffic.aswell import by_lengths
from pcitrace.traffic.beginnings import as_taught, each_way_alone, from_peaks, headers
from pcitrace.traffic.doubts import TURNS, by_halves, doubted_otherwise, each_otherwise
from pcitrace.traffic.reader import FEW, NOTHING, TINY, Reader, cost_of
from pcitrace.traffic.ways import other_ways

__all__ = ["best", "of_head"]


def best(reader: Reader, first: Reading, certain: Booleans, starts: list[Reading]) -> tuple[Reading, Reading]:
    """Return the cheapest of all readings that are tried, no surer than the others leave it; and than those alone
    that give each piece whose content is certain to the target that the first reading gives it to.

    Where a header may end in single words, what is come to if it does is a beginning, too. No other one led to the
    truth, 260 nats cheaper, on a host whose headers were read word by word (a card of another maker,
    scatter-gather, 16 channels).
    """
    if reader.small and not reader.header:
        for header in headers(reader):
            parted = replace(reader, header=header, known={}, given={})
            starts = [*starts, reader.settle(parted.cheapest(_tried(parted, first, starts)))]
    tried = reader.shown(_tried(reader, first, starts))
    found = by_content = reader.settle(min(tried, key=cost_of), margins=True)
    for other in tried:
        found = found.against(other)
        claims = certain & (other.track == first.track) & (other.target >= 0)
        if not (claims & (other.target != first.target)).any():
            by_content = by_content.against(other)
    return by_lengths(reader, found), by_lengths(reader, by_content)


def _tried(reader: Reader, first: Reading, starts: list[Reading]) -> list[Reading]:
    """Return what is come to from many beginnings, and what is cheaper beside it."""
    tried = (
        [reader.settle(first), *from_peaks(reader), *each_way_alone(reader)]
        if reader.small
        else [reader.settle(first, rounds=FEW), _from_head(reader, first)]
    ) + starts
    for _ in range(FEW if reader.small else 1):
        cheapest = reader.cheapest(tried)
        found = other_ways(reader, cheapest)
        tried += found
        if min(found, key=cost_of, default=cheapest).cost >= cheapest.cost - NOTHING:
            break
        tried.append(reader.settle(min(found, key=cost_of)))
    for turn in range(TURNS if len(reader.pieces) <= TINY else 0):
        cheapest = reader.cheapest(tried)
        tried += by_halves(reader, cheapest, turn)
        if reader.cheapest(tried).cost < cheapest.cost - NOTHING:
            tried += other_ways(reader, reader.cheapest(tried))
    if reader.small:
        cheapest = reader.cheapest(tried)
        tried += [one for one in doubted_otherwise(reader, cheapest) if one.cost < cheapest.cost]
    if reader.small and not reader.pieces.bus.has_address:
        tried += each_otherwise(reader, tried)
    return tried


def of_head(reader: Reader, reading: Reading) -> tuple[Reader, Reading]:
    """Return what reads the first pieces, and the cheapest reading of them."""
    head, first = reader.head(reading)
    key = "head", first.labels()
    if key not in reader.known:
        reader.known[key], _ = best(head, first, np.zeros(len(head.pieces), dtype=bool), [])
    return head, reader.known[key]


def _from_head(reader: Reader, reading: Reading) -> Reading:
    """Return the reading that settles from what the first pieces teach, for which there is time for everything.

    On a host of 4,600 pieces (`cardbench`, mixed 1181, control lines), whose card writes and reads while the wire
    goes on, the likeliest lags of all pieces took reads for receives; those of the first 800 did not.
    """
    return as_taught(reader, *of_head(reader, reading))
