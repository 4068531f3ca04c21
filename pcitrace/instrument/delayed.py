"""Retried accesses, paired with what became of them: delayed transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pcitrace.columns import Booleans, Floats, Integers, floats, integers, strings
from pcitrace.decode import to_arrow
from pcitrace.instrument.names import Names
from pcitrace.instrument.rules import catalogue, select, why_not
from pcitrace.schema import COMMAND_NAMES

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["Delayed", "changed_transactions", "delayed"]

_WRITES = (0x3, 0x7, 0xB, 0xF)
_TOLD = 100
"""Accesses that are told one by one, the longest first; all are counted."""


@dataclass(frozen=True)
class Delayed:
    """Accesses that were retried; one value an access.

    Attributes
    ----------
    table : pyarrow.Table
        All transactions of the bus.
    first, last : array of int
        Its rows of the first and the last attempt.
    attempts : array of int
    took_us : array of float
        From the first attempt to the data; NaN where none came.
    outcome : array of str
        ``completed``, ``aborted`` or ``never_completed``.
    between_transactions, between_bytes : array of int
        What others did on the bus from the first attempt to the last one.
    changed : array of bool, or None
        An attempt had another command, other byte enables or write data than the one before; None where not known.
    """

    table: pa.Table
    first: Integers
    last: Integers
    attempts: Integers
    took_us: Floats
    outcome: Any
    between_transactions: Integers
    between_bytes: Integers
    changed: Booleans | None

    def as_dict(self, names: Names) -> dict[str, Any]:
        """What ``--json`` has, with places in words."""
        counts = {name: int((self.outcome == name).sum()) for name in ("completed", "aborted", "never_completed")}
        return {
            "accesses": len(self.first),
            "attempts": int(self.attempts.sum()),
            "most_attempts": int(self.attempts.max(initial=0)),
            **counts,
            "changed": None if self.changed is None else int(self.changed.sum()),
            "between_transactions": int(self.between_transactions.sum()),
            "between_bytes": int(self.between_bytes.sum()),
            "longest": self._longest(names),
        }

    def _longest(self, names: Names) -> list[dict[str, Any]]:
        start = floats(self.table, "start_us")
        lasted = np.where(np.isnan(self.took_us), start[self.last] - start[self.first], self.took_us)
        chosen = np.argsort(-lasted, kind="stable")[:_TOLD]
        rows = self.table.take(pa.array(self.first[chosen]))
        targets = names.targets(rows, everywhere=True).cast(pa.string()).to_pylist()
        columns = ["transaction", "start_us", "initiator", "command", "address"]
        return [
            {
                "transaction": one["transaction"],
                "time_us": one["start_us"],
                "initiator": names.initiator(one["initiator"]),
                "target": target,
                "command": None if one["command"] is None else COMMAND_NAMES[one["command"]],
                "address": one["address"],
                "attempts": int(self.attempts[n]),
                "took_us": None if np.isnan(self.took_us[n]) else float(self.took_us[n]),
                "outcome": str(self.outcome[n]),
                "changed": None if self.changed is None else bool(self.changed[n]),
                "between_transactions": int(self.between_transactions[n]),
                "between_bytes": int(self.between_bytes[n]),
            }
            for one, target, n in zip(rows.select(columns).to_pylist(), targets, chosen.tolist(), strict=True)
        ]


def delayed(table: pa.Table, changed: Integers | None = None, chosen: Booleans | None = None) -> Delayed:
    """Pair attempts of one access: the same initiator, address and direction, up to the first that was not retried.

    Parameters
    ----------
    table : pyarrow.Table
        All transactions of a bus in order of time: what became of an access another one tells.
    changed : array of int, optional
        Of :func:`changed_transactions`.
    chosen : array of bool, optional
        Only accesses of which one of these rows is an attempt.
    """
    start, first_data = floats(table, "start_us"), floats(table, "first_data_us")
    command, address = integers(table, "command"), integers(table, "address")
    who, _ = strings(table, "initiator")
    ended, terminations = strings(table, "termination")
    retried = ended == (terminations.index("retry") if "retry" in terminations else -2)
    order = np.lexsort((np.arange(len(start)), np.isin(command, _WRITES), address, who))
    key = np.stack([who, address, np.isin(command, _WRITES)])[:, order]
    goes_on = retried[order][:-1] & (key[:, 1:] == key[:, :-1]).all(axis=0)
    access = np.concatenate([[0], np.cumsum(~goes_on)]) if len(start) else np.zeros(0, dtype=np.int64)
    attempts = np.bincount(access)
    head = np.cumsum(attempts) - attempts
    some = retried[order[head]] if len(head) else np.zeros(0, dtype=bool)
    if chosen is not None:
        some &= np.bincount(access, weights=chosen[order]) > 0
    attempts, head = attempts[some], head[some]
    first, last = order[head], order[head + attempts - 1]
    # To the ps: the difference of two floats has digits that mean nothing.
    took = (first_data[last] - start[first]).round(6)
    completed = ~np.isnan(took)
    outcome = np.where(completed, "completed", np.where(retried[last], "never_completed", "aborted"))
    moved = np.cumsum(integers(table, "bytes", missing=0))
    own = np.where(completed, moved[last] - np.where(last > 0, moved[last - 1], 0), 0)
    between = moved[last] - moved[first] - own if len(first) else np.zeros(0, dtype=np.int64)
    differs = None
    if changed is not None:
        flagged = np.concatenate([[0], np.cumsum(np.isin(integers(table, "transaction"), changed)[order])])
        differs = flagged[head + attempts] > flagged[head]
    return Delayed(table, first, last, attempts, took, outcome, last - first - (attempts - 1), between, differs)


def changed_transactions(bus: Bus) -> Integers | None:
    """Numbers of transactions that repeat a retried access with another command, other byte enables or write data.

    None where that cannot be told. It is rule M23, in a pass of its own.
    """
    if bus.capture.decoder.together or why_not(catalogue()["M23"], bus.lines, select(["M23"]), None) is not None:
        return None
    judged = bus.capture.decoder.judge(
        bus.spec, ["M23"], None, ["transaction", "start_clk"], data_phases=False, every=["M23"]
    )
    begun = integers(to_arrow(judged.transactions), "start_clk")
    clk = integers(to_arrow(judged.violations), "clk")
    numbers: Integers = np.searchsorted(begun, clk, side="right") - 1
    return numbers
