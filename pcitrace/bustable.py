"""The columns of ``transactions`` that the analysis works with, as numpy arrays of one bus."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from pcitrace.columns import Booleans, Floats, Integers, booleans, floats, integers, packed_if_equal, strings
from pcitrace.facts import BYTES_PER_PHASE, FRAME_US
from pcitrace.samples import TIMES, Samples, Times
from pcitrace.schema import Termination

__all__ = ["BACK_TO_BACK_CLKS", "BusTable", "wanted"]

BACK_TO_BACK_CLKS = 3.5
"""A transaction begins so soon after another if it was waiting for it: an idle clock, GNT#, FRAME#.

What repeats a retried one comes later: its initiator has to release REQ# for two clocks (PCI 2.2, 3.3.3.2.2).
"""

LINES = {"address": "AD", "command": "CBE", "devsel_clks": "DEVSEL#", "initiator": "GNT"}
"""Columns that are null unless such lines were captured."""

WIDTHS = {"data_phases": 32, "bytes": 32, "address": 64, "command": 8, "devsel_clks": 16}
"""Bits that the values of each column of integers need."""
COUNTS = ("data_phases", "bytes")
"""Columns that are given in 32 bits, which sums and products need, and kept in 16 where they are no larger."""
CODED = ("termination", "initiator")
COUNTED = ("clocks", "bytes_exact")
"""Columns that are summed up."""

REFUSED = (Termination.RETRY, Termination.DISCONNECT_WITHOUT_DATA)
"""Ends at data that the target did not take or give, so that the initiator must come back for it."""


def wanted(lines: Iterable[str]) -> list[str]:
    """Return the columns of `transactions` that a bus with these lines can tell, as far as they are needed."""
    known = [name for name, stem in LINES.items() if any(line.startswith(stem) for line in lines)]
    there = [name for name in (*WIDTHS, *CODED) if name not in LINES]
    return [*TIMES, *there, *COUNTED, *known]


class BusTable:
    """Transactions of one bus, or some of them; -1 stands for null in the columns of integers, NaN in times.

    A capture of seconds has millions of transactions. So every column is as narrow as its values allow, and the rows
    that :meth:`take` chooses share the columns of the whole bus: what is chosen is put together whenever a column is
    read. Times of a sampled capture are kept as the sample at which a transaction starts, and how many samples later.

    Attributes
    ----------
    start_us, end_us, first_data_us, last_data_us, data_phases, bytes, address, command, devsel_clks
        As in the table `transactions`.
    termination, initiator : arrays of int
        Indices into `terminations` and `initiators`; -1 for null.
    terminations, initiators : lists of str
    clock_us : float
        Period of CLK, over all clocks of the whole bus's transactions; NaN where there are none.
    bytes_exact : bool
        Whether all bytes were counted from the byte enables.
    """

    start_us: Floats
    end_us: Floats
    first_data_us: Floats
    last_data_us: Floats
    data_phases: Integers
    bytes: Integers
    address: Integers
    command: Integers
    devsel_clks: Integers
    termination: Integers
    initiator: Integers

    def __init__(
        self,
        columns: dict[str, npt.NDArray[Any]],
        terminations: list[str],
        initiators: list[str],
        clock_us: float,
        bytes_exact: bool,
        samples: Samples | None = None,
        rows: Integers | None = None,
        shared: dict[str, Booleans] | None = None,
    ) -> None:
        self._columns, self._samples, self._rows = columns, samples, rows
        self._shared = {} if shared is None else shared
        self.terminations, self.initiators = terminations, initiators
        self.clock_us, self.bytes_exact = clock_us, bytes_exact

    @classmethod
    def of(cls, transactions: pd.DataFrame) -> Self:
        """Read the table `transactions` of one bus."""
        return cls.of_parts([transactions], len(transactions))

    @classmethod
    def of_parts(
        cls,
        parts: Iterable[pd.DataFrame | pa.Table],
        count: int,
        axis: Callable[[Floats], Floats] | None = None,
        rate_hz: float | None = None,
    ) -> Self:
        """Read `count` transactions part by part, of which none is kept; what columns they do not have is unknown.

        `axis` moves the times to another axis. With `rate_hz` they are at samples.
        """
        kept = Times(count, Samples(rate_hz, axis) if rate_hz else None, axis)
        columns: dict[str, npt.NDArray[Any]] = {}
        terminations: list[str] = []
        initiators: list[str] = []
        took_us, periods, exact, at = 0.0, 0, True, 0
        for part in parts:
            there = part.columns if isinstance(part, pd.DataFrame) else part.column_names
            times = {name: floats(part, name) for name in TIMES}
            kept.add(at, times)
            start_us, end_us = (axis(times[name]) if axis else times[name] for name in ("start_us", "end_us"))
            read: dict[str, npt.NDArray[Any]] = {
                name: integers(part, name, width=width) for name, width in WIDTHS.items() if name in there
            }
            if "transaction" in there:
                read["transaction"] = integers(part, "transaction", width=32)
            for name, names in (("termination", terminations), ("initiator", initiators)):
                if name in there:
                    read[name] = _recoded(*strings(part, name), names)
            for name, values in read.items():
                columns.setdefault(name, np.empty(count, values.dtype))[at : at + len(part)] = values
            took_us += float((end_us - start_us).sum())
            periods += int((integers(part, "clocks") - 1).sum())
            exact &= bool(booleans(part, "bytes_exact").all())
            at += len(part)
        for name, width in (WIDTHS | dict.fromkeys(CODED, 8)).items():
            columns.setdefault(name, np.broadcast_to(np.array(-1, f"i{width // 8}"), count))
        columns |= kept.columns or dict.fromkeys(TIMES, np.empty(count))  # of an idle bus there is no part
        for name in COUNTS:
            if columns[name].max(initial=0) <= np.iinfo(np.int16).max:
                columns[name] = columns[name].astype(np.int16)
        packed = {name: packed_if_equal(values) for name, values in columns.items()}
        clock_us = took_us / periods if periods else float("nan")
        return cls(packed, terminations, initiators, clock_us, exact, kept.samples if kept.columns else None)

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("_columns", ()):
            raise AttributeError(f"transactions have no column {name}")
        if name in COUNTS:
            return self._chosen(name).astype(np.int32, copy=False)
        if self._samples is None or name not in TIMES:
            return self._chosen(name)
        return self._samples.us(self._chosen(TIMES[0]), None if name == TIMES[0] else self._chosen(name))

    def _chosen(self, name: str) -> npt.NDArray[Any]:
        column = self._columns[name]
        if self._rows is None:
            return column
        return np.broadcast_to(column[:1], self._rows.shape) if column.strides == (0,) else column.take(self._rows)

    def __len__(self) -> int:
        return len(self._columns["start_us"] if self._rows is None else self._rows)

    @property
    def rows(self) -> Integers:
        """Which rows of the whole bus these are."""
        return np.arange(len(self), dtype=np.int32) if self._rows is None else self._rows

    def part(self, first: int, last: int) -> Self:
        """Return the rows of the whole bus from one to before another as a bus of its own, with copies of its columns.

        Their transactions are numbered from 0.
        """
        columns = {name: packed_if_equal(values[first:last].copy()) for name, values in self._columns.items()}
        if "transaction" in columns:
            columns["transaction"] = columns["transaction"] - self._columns["transaction"][first:last].min(initial=0)
        return self._with(columns, None, {})

    def take(self, rows: Integers | Booleans) -> Self:
        """Return the given rows."""
        at = np.flatnonzero(rows) if rows.dtype == bool else rows
        at = at.astype(np.int32) if self._rows is None else self._rows[at]
        return self._with(self._columns, at, self._shared)

    @property
    def in_time(self) -> Self:
        """The same rows in order of their starts, as they most often are."""
        start_us = self.start_us
        ascend = (start_us[1:] >= start_us[:-1]).all()
        return self if ascend else self.take(np.argsort(start_us, kind="stable"))

    def _with(self, columns: dict[str, npt.NDArray[Any]], rows: Integers | None, shared: dict[str, Booleans]) -> Self:
        names = self.terminations, self.initiators
        return type(self)(columns, *names, self.clock_us, self.bytes_exact, self._samples, rows, shared)

    @property
    def whole(self) -> Self:
        """All transactions of the bus."""
        return self if self._rows is None else self._with(self._columns, None, self._shared)

    def with_initiators(self, names: list[str]) -> Self:
        """The same rows, with other names for `initiators`, in their order."""
        out = self._with(self._columns, self._rows, self._shared)
        out.initiators = names
        return out

    @property
    def transaction(self) -> Integers:
        """Numbers of the transactions within the bus; those of a whole bus are its rows."""
        if "transaction" in self._columns:
            return np.asarray(self.__getattr__("transaction"))
        return np.arange(len(self), dtype=np.int32) if self._rows is None else self._rows

    def between(self, start_us: float, end_us: float) -> Self:
        """Return the transactions of which a part lies in a span of time; they are in its order."""

        def time_us(name: str) -> Callable[[int], float]:
            return lambda row: float(getattr(self.take(np.array([row])), name)[0])

        rows = range(len(self))
        first = bisect_left(rows, start_us, key=time_us("end_us"))
        return self.take(np.arange(first, bisect_right(rows, end_us, lo=first, key=time_us("start_us"))))

    @property
    def retried(self) -> Booleans:
        """Whether the target answered with retry."""
        return self._ended(Termination.RETRY)

    @property
    def wide(self) -> Booleans:
        """Whether each moved 8 bytes a data phase, not 4."""
        return np.asarray(self.bytes > 4 * self.data_phases)

    @property
    def cut(self) -> Booleans:
        """Whether the target ended it, by retry or disconnect, before the initiator did.

        A STOP# that comes with the last data cuts nothing: FRAME# was high by then. Else the initiator has to release
        it first, which takes a clock more (PCI 2.2, 3.3.3.2.1).
        """
        cut = self._ended(*REFUSED)
        with_data = np.flatnonzero(self._ended(Termination.DISCONNECT_WITH_DATA))
        some = self.take(with_data)
        cut[with_data] = some.end_us > some.last_data_us
        return cut

    @property
    def stopped(self) -> Booleans:
        """Whether the target ended it, or would have: a disconnect may come with what the initiator ends with."""
        return self._ended(*REFUSED, Termination.DISCONNECT_WITH_DATA)

    @property
    def behind(self) -> Integers:
        """Where what goes on with each would begin: behind its last data phase, whatever is enabled; -1 if unknown."""
        phases, address = self.data_phases.astype(np.int64), self.address.astype(np.int64)
        unit = np.where(self.bytes > BYTES_PER_PHASE * phases, 2 * BYTES_PER_PHASE, BYTES_PER_PHASE)
        return np.where(address >= 0, (address & -unit) + unit * phases, -1)

    def moved_twice(self, before: Integers | slice, now: Integers | slice) -> Integers:
        """Return how many bytes of transactions that the target stopped others move again that begin inside them.

        It does not matter whether the initiator would have gone on: a card that loses the bus as the target disconnects
        ends by itself, and moves the data again all the same.
        """
        place, size = self.address.astype(np.int64), self.bytes.astype(np.int64)
        back = place[now] - place[before]
        inside = self.stopped[before] & (place[before] >= 0) & (back >= 0) & (back < size[before])
        return np.where(inside, size[before] - back, 0)

    @property
    def moved_again(self) -> Booleans:
        """Which begin inside the one before that was stopped, before that can be another frame's buffer."""
        out, before, now = np.zeros(len(self), dtype=bool), slice(None, -1), slice(1, None)
        pause_us = self.start_us[now] - self.last_data_us[before]
        out[now] = (self.moved_twice(before, now) > 0) & (pause_us < FRAME_US)
        return out

    def _ended(self, *how: Termination) -> Booleans:
        termination, found = self.termination, np.zeros(len(self), dtype=bool)
        for code, name in enumerate(self.terminations):
            if name in how:
                found |= termination == code
        return found

    @property
    def busy_period(self) -> Integers:
        """Number of the time in which the whole bus went from one transaction to the next without a rest."""
        number = np.cumsum(self._begins, dtype=np.int32)
        number -= 1
        return number if self._rows is None else number.take(self._rows)

    @property
    def _begins(self) -> Booleans:
        """Which transactions of the whole bus begin such a time: found once, for many ask."""
        if "begins" not in self._shared:
            self._shared["begins"] = self._found_begins()
        return self._shared["begins"]

    def _found_begins(self) -> Booleans:
        whole = self.whole
        begins = np.ones(len(whole), dtype=bool)
        rest_us = whole.start_us[1:]
        rest_us = np.subtract(rest_us, whole.end_us[:-1], out=rest_us if self._samples else None)
        begins[1:] = rest_us > BACK_TO_BACK_CLKS * self.clock_us
        return begins

    @property
    def busy_since_us(self) -> Floats:
        """When the time began in which the whole bus went on without a rest, up to each transaction."""
        begins = self._begins[: self.rows.max(initial=-1) + 1]
        number = np.cumsum(begins, dtype=np.int32)
        number -= 1
        number = number if self._rows is None else number.take(self._rows)
        return np.asarray(self.whole.take(np.flatnonzero(begins).astype(np.int32)[number]).start_us)

    @property
    def has_address(self) -> bool:
        """Whether AD was captured."""
        return bool((self.address >= 0).any())

    @property
    def latency_clks(self) -> Integers:
        """Clocks from the address phase to the first data, up to 32767; -1 where no data moved."""
        latency = self.first_data_us - self.start_us
        latency /= self.clock_us
        np.rint(latency, out=latency)
        return np.where(np.isnan(latency), -1, np.minimum(latency, 32767)).astype(np.int16)


def _recoded(codes: Integers, texts: list[str], names: list[str]) -> Integers:
    """Return the codes of texts in a list of names, to which new ones are added."""
    names += [text for text in texts if text not in names]
    return np.array([*map(names.index, texts), -1], dtype=np.int8)[codes]
