"""Times as numbers of samples: a third of the memory, where that gives back exactly these times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcitrace.columns import Floats, Integers

__all__ = ["TIMES", "Samples", "Times"]

TIMES = ("start_us", "end_us", "first_data_us", "last_data_us")
"""Columns of `transactions`; of the last two NaN is null."""

IN_CACHE = 1 << 15
"""Times that are made at once: in the nearest caches they are gone through several times at little cost."""

EXACT = 1 << 52
"""Below, every whole number is one of floating point."""


@dataclass(frozen=True)
class Samples:
    """The sampling of a capture, as the kernel makes times of samples.

    Attributes
    ----------
    rate_hz : float
    axis : callable or None
        Moves times to another axis.
    """

    rate_hz: float
    axis: Callable[[Floats], Floats] | None

    def us(self, samples: Integers, later: Integers | None = None) -> Floats:
        """Return the times of samples, on the axis (us); or of those that come so many later, NaN where negative."""
        us = self._us(samples, later)
        if self.axis is not None:
            us = self.axis(us)
        if later is not None and later.size and later.min() < 0:
            us[later < 0] = np.nan
        return us

    def at(self, us: Floats) -> Integers | None:
        """Return the samples at times as the kernel gives them; None if any is not exactly at one, or is NaN."""
        number = us * self.rate_hz
        number /= 1e6
        np.rint(number, out=number)
        if not ((number >= 0) & (number < EXACT)).all():
            return None
        samples = number.astype(np.int64)
        return samples if (self._us(samples) == us).all() else None

    def _us(self, samples: Integers, later: Integers | None = None) -> Floats:
        out = np.empty(len(samples))
        for first in range(0, len(out), IN_CACHE):
            some = slice(first, first + IN_CACHE)
            us = out[some]
            us[:] = samples[some]
            if later is not None:
                us += later[some]
            # In this order, as the kernel does: else the last digit may be another one.
            us *= 1e6
            us /= self.rate_hz
        return out


class Times:
    """The times of transactions as they come, part by part: as samples as long as all of them are exactly at one.

    Attributes
    ----------
    columns : dict of str to array
        Where there are `samples`, `start_us` is the sample, and the others are how many samples later: -1 for NaN. Else
        they are times, on the axis.
    samples : Samples or None
    """

    def __init__(self, count: int, samples: Samples | None, axis: Callable[[Floats], Floats] | None) -> None:
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self.samples, self._count, self._axis = samples, count, axis

    def add(self, first: int, us: Mapping[str, Floats]) -> None:
        """Add the times, on no other axis, of the transactions from one on."""
        if not self.columns:
            self.columns = {name: np.empty(self._count, np.int16 if self.samples else float) for name in TIMES}
        found: dict[str, Any] | None = self._at_samples(us) if self.samples else None
        if found is None:
            self._as_times(first)
            found = {name: self._axis(us[name]) if self._axis else us[name] for name in TIMES}
        rows = slice(first, first + len(us["start_us"]))
        for name, values in found.items():
            self.columns[name] = _wide_enough(self.columns[name], values)
            self.columns[name][rows] = values

    def _at_samples(self, us: Mapping[str, Floats]) -> dict[str, Integers] | None:
        assert self.samples is not None
        start = self.samples.at(us["start_us"])
        if start is None:
            return None
        found = {"start_us": start}
        for name in TIMES[1:]:
            known: Any = ~np.isnan(us[name])
            if known.all():
                known = slice(None)
            there = self.samples.at(us[name][known])
            if there is None or (there < start[known]).any():
                return None
            found[name] = np.full(len(start), -1, np.int64)
            found[name][known] = there - start[known]
        return found

    def _as_times(self, count: int) -> None:
        """Make times of the samples of the first transactions."""
        if self.samples is not None:
            start, *others = (self.columns[name][:count] for name in TIMES)
            us = [self.samples.us(start, later) for later in (None, *others)]
            self.columns = {name: np.empty(self._count) for name in TIMES}
            for name, values in zip(TIMES, us, strict=True):
                self.columns[name][:count] = values
            self.samples = None


def _wide_enough(column: npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of integers, in as few bits as it needs for these values too: 16, 32 or 64."""
    most = values.max(initial=0)
    while column.dtype.kind == "i" and most > np.iinfo(column.dtype).max:
        column = column.astype(f"i{2 * column.itemsize}")
    return column
