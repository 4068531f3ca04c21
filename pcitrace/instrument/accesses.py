"""Causes that no rule names: accesses that nobody claims or ever completes, windows that overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pcitrace.columns import Integers, floats, integers, strings
from pcitrace.instrument.causes import Cause
from pcitrace.instrument.names import Names

__all__ = ["PERSISTENT", "of_accesses"]

PERSISTENT = 64
"""Attempts of one access from which on it is taken never to be completed; the listing has the same number."""


def of_accesses(names: Names, transactions: pa.Table) -> list[Cause]:
    """What is wrong with where accesses go.

    Parameters
    ----------
    names : Names
        Learned from these transactions.
    transactions : pyarrow.Table
        With ``transaction``, ``start_us``, ``command``, ``address``, ``initiator``, ``termination``.
    """
    start_us = floats(transactions, "start_us")
    return [
        *_overlaps(names, start_us),
        *_unclaimed(names, transactions, start_us),
        *_unanswered(transactions, start_us),
    ]


def _overlaps(names: Names, start_us: Any) -> list[Cause]:
    """Windows of two base address registers that were in the same place at the same time."""
    pairs = []
    there: list[int] = []
    for n in sorted(range(len(names.windows)), key=lambda n: names.windows[n].since):
        one = names.windows[n]
        there = [m for m in there if (until := names.windows[m].until) is None or one.since < until]
        if one.until is None or one.since < one.until:
            pairs += [(max(n, m), min(n, m)) for m in there]
            there.append(n)
    found = []
    for n, m in sorted(pairs):
        one, other = names.windows[n], names.windows[m]
        apart = one.base >= other.base + other.size or other.base >= one.base + one.size
        same = (one.device, one.name) == (other.device, other.name)
        if one.space == other.space and not apart and not same:
            since = max(one.since, other.since)
            time_us = float(start_us[since]) if since < len(start_us) else 0.0
            text = (
                f"{one.device} {one.name} at {one.base:08x} ({one.size} bytes) overlaps "
                f"{other.device} {other.name} at {other.base:08x} ({other.size} bytes)"
            )
            found.append(Cause("overlap", time_us, 1, text))
    return found


def _unclaimed(names: Names, transactions: pa.Table, start_us: Any) -> list[Cause]:
    """Accesses to memory and I/O that nobody claimed, by the page that they lie in."""
    if not names.windows:
        return []
    command, address = integers(transactions, "command"), integers(transactions, "address")
    code, terminations = strings(transactions, "termination")
    aborted = code == (terminations.index("master_abort") if "master_abort" in terminations else -2)
    rows = np.flatnonzero(aborted & np.isin(command, (2, 3, 6, 7, 0xC, 0xE, 0xF)) & (address >= 0))
    window, _ = names.locate(transactions.take(pa.array(rows)))
    found = []
    pages, first, counts = np.unique(address[rows] >> 12, return_index=True, return_counts=True)
    for _, nth, count in zip(pages, first, counts, strict=True):
        row = int(rows[nth])
        at = f"nobody claims {int(address[row]):08x}"
        if window[nth] >= 0:
            one = names.windows[window[nth]]
            covers = "covers it" if one.size_known else "may cover it (its size was not read)"
            text = f"{at}, though {one.device} {one.name} {covers}: is the device enabled to answer?"
        else:
            near = min(names.windows, key=lambda one: _away(one.base, one.size, int(address[row])))
            end = f"to {near.base + near.size - 1:08x}" if near.size_known else "on, of a size that was not read"
            text = (
                f"{at}: no base address register covers it; nearest is {near.device} {near.name}, {near.base:08x} {end}"
            )
        found.append(Cause("unclaimed", float(start_us[row]), int(count), text))
    return found


def _away(base: int, size: int, address: int) -> int:
    return max(base - address, address - (base + size - 1), 0)


def _unanswered(transactions: pa.Table, start_us: Any) -> list[Cause]:
    """Accesses that were retried again and again, and nothing else until the end."""
    code, terminations = strings(transactions, "termination")
    if "retry" not in terminations:
        return []
    retried = code == terminations.index("retry")
    command, address = integers(transactions, "command"), integers(transactions, "address")
    who, _ = strings(transactions, "initiator")
    # Of addresses where nothing was ever retried there is nothing to tell, and these are most.
    rows = np.flatnonzero((command >= 0) & (address >= 0) & np.isin(address, np.unique(address[retried])))
    order = rows[np.lexsort((rows, address[rows], command[rows], who[rows]))]
    key: Integers = np.stack([who[order], command[order], address[order]])
    ends = np.flatnonzero(np.append((key[:, 1:] != key[:, :-1]).any(axis=0), True)) if len(order) else order
    place = np.arange(len(order))
    other = np.maximum.accumulate(np.where(retried[order], -1, place)) if len(order) else place
    begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    first = np.maximum(other[ends] + 1, begins) if len(ends) else ends
    found = []
    for begin, end in zip(first, ends, strict=True):
        count = int(end - begin) + 1
        if count >= PERSISTENT:
            row = order[begin]
            name = COMMANDS.get(int(command[row]), "access")
            text = f"never completed: {name} {int(address[row]):08x} was retried {count} times"
            found.append(Cause("never_completed", float(start_us[row]), count, text))
    return found


COMMANDS = {
    0x2: "io read", 0x3: "io write", 0x6: "memory read", 0x7: "memory write", 0xA: "config read", 0xB: "config write",
    0xC: "memory read multiple", 0xE: "memory read line", 0xF: "memory write and invalidate",
    0x0: "interrupt acknowledge",
}  # fmt: skip
