"""Records of several sources put in one order of time, with no more of each in memory than is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Timed", "in_order"]

Timed = tuple[npt.NDArray[Any], pa.LargeBinaryArray]
"""Some records of a source in order of time, and their times."""


def in_order(sources: Sequence[Iterator[Timed]]) -> Iterator[pa.LargeBinaryArray]:
    """Give the records of all sources in order of time; of equal times those of the first source come first.

    Parameters
    ----------
    sources : sequence of iterators
        Each gives records in order of time.
    """
    waiting: list[Timed | None] = [next(source, None) for source in sources]
    while any(some is not None for some in waiting):
        # What comes later than the end of some source's records may have to wait for its next ones.
        until = min(some[0][-1] if len(some[0]) else -np.inf for some in waiting if some is not None)
        times, records, left = [], [], list(waiting)
        for number, some in enumerate(waiting):
            if some is None:
                continue
            count = int(np.searchsorted(some[0], until, side="right"))
            times.append(some[0][:count])
            records.append(some[1].slice(0, count))
            rest = some[0][count:], some[1].slice(count)
            left[number] = rest if len(rest[0]) else next(sources[number], None)
        waiting = left
        order = np.argsort(np.concatenate(times), kind="stable")
        yield pa.concat_arrays(records).take(pa.array(order))
