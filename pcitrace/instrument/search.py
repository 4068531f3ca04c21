"""A search for sequences: steps that follow each other within stated times, as a trigger would find them.

A match begins at each transaction that fulfils the first step and after which the others can be fulfilled in order,
each within its time of the one before; it takes the earliest of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pcitrace.columns import Booleans, Floats, Integers, floats
from pcitrace.errors import ConditionError
from pcitrace.instrument.steps import DMA, OFFSET, REGISTER, WINDOW, Step, step
from pcitrace.instrument.stream import TARGET

if TYPE_CHECKING:
    import pyarrow as pa

    from pcitrace.instrument.names import Names
    from pcitrace.instrument.registers import Registers
    from pcitrace.run import Bus

__all__ = ["Matches", "find", "sequences"]

_CONFIGURATION = (0xA, 0xB)
_MEMORY = (0x6, 0x7, 0xC, 0xE, 0xF)
_DECIMALS = 6
"""Of a time between two, in us: what the difference of two floats is wrong by is less than a ps."""
_ROUNDING_US = 10.0**-_DECIMALS
_FOR_PLACES = ("transaction", "command", "address", "initiator")


@dataclass(frozen=True)
class Matches:
    """Where a sequence was found on one bus.

    Attributes
    ----------
    bus : str
    steps : tuple of Step
    transactions : array of int, shape (matches, steps)
        Numbers of the transactions.
    start_us : array of float, shape (matches, steps)
        When they begin, in us.
    fulfilled : tuple of int
        How many transactions fulfil each step, by itself.
    unknown : tuple of tuple of str
        Columns that each step looks at and that are known of no transaction: a comparison with them is not fulfilled.
    """

    bus: str
    steps: tuple[Step, ...]
    transactions: Integers
    start_us: Floats
    fulfilled: tuple[int, ...]
    unknown: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.transactions)

    @property
    def times_us(self) -> Floats:
        """Time from each step to the next, in us; shape (matches, steps - 1)."""
        return np.diff(self.start_us, axis=1).round(_DECIMALS)

    def histogram(self, number: int, bins: int = 10) -> tuple[Integers, Floats]:
        """Count the times from the step before to step `number` (from 1): counts, and edges in us.

        Times that are all the same are one bin.
        """
        times = self.times_us[:, number - 1]
        if len(times) and np.ptp(times) <= 1e-6 * times.max():
            return np.array([len(times)]), np.array([times.min(), times.max()])
        return np.histogram(times, bins)

    def as_list(self) -> list[dict[str, Any]]:
        """As ``--json`` has them."""
        return [
            {"bus": self.bus, "start_us": start[0], "parts": parts, "times_us": times}
            for start, parts, times in zip(
                self.start_us.tolist(), self.transactions.tolist(), self.times_us.tolist(), strict=True
            )
        ]

    def __repr__(self) -> str:
        return f"<Matches of {' -> '.join(step.text for step in self.steps)} on {self.bus}: {len(self)}>"


def find(
    bus: Bus,
    steps: Sequence[str],
    *,
    names: Names | None = None,
    registers: Registers | None = None,
) -> Matches:
    """Find sequences of transactions on a bus.

    Parameters
    ----------
    bus : pcitrace.Bus
    steps : sequence of str
        As :func:`pcitrace.instrument.steps.step` reads them.
    names : Names, optional
        Who is who; learned from the capture where a step asks for it.
    registers : Registers, optional
        What profiles and register files know.

    Raises
    ------
    ConditionError
        A step cannot be read, or asks for what was not captured.
    """
    if not steps:
        raise ConditionError("a search needs a step, such as 'write BAR0+0x18'", "")
    if names is None and bus_has_data(bus):
        from pcitrace.instrument.names import of_bus

        names = of_bus(bus)
    devices = sorted({one.device for one in names.windows} | {d.name for d in names.space.devices}) if names else []
    known = [one.name for block in registers.blocks for one in block.registers] if registers else []
    read = tuple(step(text, devices, known) for text in steps)
    if read[0].within_us is not None:
        raise ConditionError(
            f"step {read[0].text!r} is the first: there is none before it to be `within` a time of", steps[0]
        )
    needed = frozenset().union(*(one.condition.columns for one in read))
    rows = _rows(bus, needed, names, registers)
    fulfilled = [one.condition.fulfilled(rows) for one in read]
    start_us = floats(rows, "start_us")
    # Exactly so long is within: what the differences of two times are wrong by does not count.
    within_us = [None if one.within_us is None else one.within_us + _ROUNDING_US for one in read]
    found = sequences(fulfilled, start_us, within_us)
    numbers = rows["transaction"].to_numpy().astype(np.int64)
    counts = tuple(int(one.sum()) for one in fulfilled)
    unknown = tuple(tuple(sorted(_unknown(rows, one.condition.columns))) for one in read)
    return Matches(bus.name, read, numbers[found], start_us[found], counts, unknown)


def _unknown(rows: pa.Table, columns: Iterable[str]) -> list[str]:
    """Which of the columns are null in every row, where there are rows."""
    return [name for name in columns if len(rows) and rows[name].null_count == len(rows)]


def bus_has_data(bus: Bus) -> bool:
    """Whether addresses and commands were captured."""
    return "AD0" in bus.lines and "CBE0#" in bus.lines


def sequences(fulfilled: Sequence[Booleans], start_us: Floats, within_us: Sequence[float | None]) -> Integers:
    """Find the sequences.

    Parameters
    ----------
    fulfilled : sequence of array of bool, shape (rows,)
        Which rows fulfil each step.
    start_us : array of float, shape (rows,)
        Ascending.
    within_us : sequence of float or None
        Most time since the step before.

    Returns
    -------
    array of int, shape (matches, steps)
        Rows, a match a line, in order of their first rows.
    """
    # From the last step to the first: rows from which the rest can be fulfilled, and the first row that goes on.
    rows = np.flatnonzero(fulfilled[-1])
    chains: npt.NDArray[np.int64] = rows[:, None]
    for now, within in zip(reversed(fulfilled[:-1]), reversed(within_us[1:]), strict=True):
        before = np.flatnonzero(now)
        after = np.searchsorted(rows, before, side="right")
        there = after < len(rows)
        before, after = before[there], after[there]
        if within is not None:
            # The first row that goes on is the soonest: where it is too late, all are.
            soon = start_us[rows[after]] - start_us[before] <= within
            before, after = before[soon], after[soon]
        chains = np.column_stack([before, chains[after]])
        rows = before
    return chains


def _rows(bus: Bus, needed: frozenset[str], names: Names | None, registers: Registers | None) -> pa.Table:
    """The columns of the transactions that the steps look at."""
    derived = needed & {TARGET.name, WINDOW.name, OFFSET.name, REGISTER.name, DMA.name}
    if derived and names is None:
        raise ConditionError(
            f"bus {bus.name}: {', '.join(sorted(derived))} cannot be told without AD and C/BE#; not all of them were "
            "captured",
            bus.name,
        )
    wanted = {"transaction", "start_us", *needed} - derived | ({*_FOR_PLACES} if derived else set())
    [(batches, _)] = bus.capture.decoder.transactions([bus.spec], sorted(wanted), False)
    rows = batches.read_all()
    if derived and names is not None:
        for name, values in _places(rows, names, registers).items():
            if name in derived:
                rows = rows.append_column(name, values)
    return rows


def _places(rows: pa.Table, names: Names, registers: Registers | None) -> dict[str, pa.Array]:
    """What is known of the places of transactions."""
    import pyarrow as pa

    from pcitrace.columns import integers, strings

    window, offset = names.locate(rows)
    outside = window < 0
    windows = pa.array([one.name for one in names.windows], pa.string())
    code, lines = strings(rows, "initiator")
    host = [n for n, line in enumerate(lines) if names.initiator(line) == "host"]
    memory = np.isin(integers(rows, "command"), _MEMORY)
    return {
        TARGET.name: names.targets(rows).cast(pa.string()),
        WINDOW.name: windows.take(pa.array(window, mask=outside)),
        OFFSET.name: pa.array(offset.astype(np.uint64), mask=outside),
        REGISTER.name: _registers(rows, window, offset, names, registers),
        DMA.name: pa.array(memory & outside & ~np.isin(code, host)),
    }


def _registers(
    rows: pa.Table, window: Integers, offset: Integers, names: Names, registers: Registers | None
) -> pa.Array:
    """The register of each transaction."""
    import pyarrow as pa

    from pcitrace.columns import integers
    from pcitrace.instrument.configspace import Place, register_name

    found = np.full(len(window), -1)
    labels: list[str] = []
    for n, one in enumerate(names.windows):
        for at, size, name, _ in registers.of_window(names, one) if registers else ():
            found[(window == n) & (offset >= at) & (offset < at + size)] = len(labels)
            labels.append(name)
    address = integers(rows, "address")
    configuring = np.isin(integers(rows, "command"), _CONFIGURATION)
    for one in np.unique(address[configuring]).tolist():
        if (place := Place.of(one)) is not None:
            device = names.space.device(place)
            found[configuring & (address == one)] = len(labels)
            labels.append(register_name(one, device.header_type if device else None))
    return pa.array(labels, pa.string()).take(pa.array(found, mask=found < 0))
