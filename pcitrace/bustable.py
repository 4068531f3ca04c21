"""The columns of ``transactions`` that the analysis works with, as numpy arrays of one bus."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans, Floats, Integers, floats, integers, strings
from pcitrace.schema import Termination

__all__ = ["READS", "WRITES", "BusTable"]

READS = (0x0, 0x2, 0x6, 0xA, 0xC, 0xE)
"""Commands that read: the target drives the data."""

WRITES = (0x3, 0x7, 0xB, 0xF)
"""Commands that write."""


@dataclass(frozen=True)
class BusTable:
    """Transactions of one bus; -1 stands for null in the integer columns, NaN in times."""

    transaction: Integers
    start_us: Floats
    end_us: Floats
    first_data_us: Floats
    last_data_us: Floats
    clocks: Integers
    data_phases: Integers
    bytes: Integers
    address: Integers
    command: Integers
    devsel_clks: Integers
    retried: Booleans
    cut: Booleans
    initiator: Integers
    initiators: list[str]
    clock_us: float
    bytes_exact: bool

    @classmethod
    def of(cls, transactions: pd.DataFrame) -> Self:
        """Read the table `transactions` of one bus."""
        termination, names = strings(transactions, "termination")
        initiator, initiators = strings(transactions, "initiator")
        start, end = floats(transactions, "start_us"), floats(transactions, "end_us")
        clocks = integers(transactions, "clocks", width=32)
        long = clocks > 1
        lookup = {name: code for code, name in enumerate(names)}
        cuts = (Termination.RETRY, Termination.DISCONNECT_WITH_DATA, Termination.DISCONNECT_WITHOUT_DATA)
        return cls(
            transaction=integers(transactions, "transaction", width=32),
            start_us=start,
            end_us=end,
            first_data_us=floats(transactions, "first_data_us"),
            last_data_us=floats(transactions, "last_data_us"),
            clocks=clocks,
            data_phases=integers(transactions, "data_phases", width=32),
            bytes=integers(transactions, "bytes", width=32),
            address=integers(transactions, "address"),
            command=integers(transactions, "command", width=16),
            devsel_clks=integers(transactions, "devsel_clks", width=16),
            retried=termination == lookup.get(Termination.RETRY, -2),
            cut=np.isin(termination, [lookup[name] for name in cuts if name in lookup]),
            initiator=initiator,
            initiators=initiators,
            clock_us=float(np.median((end - start)[long] / (clocks - 1)[long])) if long.any() else float("nan"),
            bytes_exact=bool(transactions["bytes_exact"].all()) if len(transactions) else True,
        )

    def __len__(self) -> int:
        return len(self.start_us)

    def take(self, rows: Integers | Booleans) -> Self:
        """Return the given rows."""
        at = np.flatnonzero(rows) if rows.dtype == bool else rows
        columns: dict[str, Any] = {
            item.name: value.take(at) if isinstance(value := getattr(self, item.name), np.ndarray) else value
            for item in fields(self)
        }
        return type(self)(**columns)

    @property
    def has_address(self) -> bool:
        """Whether AD was captured."""
        return bool((self.address >= 0).any())

    @property
    def latency_clks(self) -> Integers:
        """Clocks from the address phase to the first data; -1 where no data moved."""
        latency = np.rint((self.first_data_us - self.start_us) / self.clock_us)
        return np.where(np.isnan(latency), -1, latency).astype(np.int64)
