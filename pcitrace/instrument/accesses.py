"""Causes that no rule names: accesses that nobody claims or ever completes, windows that overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pcitrace.columns import Booleans, Floats, Integers, floats, integers, strings
from pcitrace.instrument.causes import Cause
from pcitrace.instrument.names import Names

__all__ = ["PERSISTENT", "Accesses"]

PERSISTENT = 64
"""Attempts of one access from which on it is taken never to be completed; the listing has the same number."""

_MEMORY_AND_IO = (0x2, 0x3, 0x6, 0x7, 0xC, 0xE, 0xF)


@dataclass
class _Unclaimed:
    """Accesses to one page that nobody claimed: the first of them, and how many."""

    transaction: int
    command: int
    address: int
    time_us: float
    count: int = 0


@dataclass
class _Retried:
    """Attempts of one access, all of which were retried so far."""

    time_us: float
    count: int = 0


class Accesses:
    """What is wrong with where accesses go, of transactions that come in parts."""

    def __init__(self) -> None:
        self._pages: dict[int, _Unclaimed] = {}
        # By initiator, command and address.
        self._retried: dict[tuple[str | None, int, int], _Retried] = {}

    def add(self, transactions: pa.Table) -> None:
        """Take note of the next transactions.

        They have ``transaction``, ``start_us``, ``command``, ``address``, ``initiator`` and ``termination``.
        """
        code, terminations = strings(transactions, "termination")

        def ended(by: str) -> Booleans:
            found: Booleans = code == (terminations.index(by) if by in terminations else -2)
            return found

        command, address = integers(transactions, "command"), integers(transactions, "address")
        start_us = floats(transactions, "start_us")
        unclaimed = np.flatnonzero(ended("master_abort") & np.isin(command, _MEMORY_AND_IO) & (address >= 0))
        if len(unclaimed):
            self._note_unclaimed(unclaimed, integers(transactions, "transaction"), command, address, start_us)
        retried = ended("retry")
        if self._retried or retried.any():
            self._note_retried(retried, strings(transactions, "initiator"), command, address, start_us)

    def _note_unclaimed(
        self, rows: Integers, number: Integers, command: Integers, address: Integers, start_us: Floats
    ) -> None:
        pages, first, counts = np.unique(address[rows] >> 12, return_index=True, return_counts=True)
        for page, row, count in zip(pages.tolist(), rows[first].tolist(), counts.tolist(), strict=True):
            if page not in self._pages:
                self._pages[page] = _Unclaimed(
                    int(number[row]), int(command[row]), int(address[row]), float(start_us[row])
                )
            self._pages[page].count += count

    def _note_retried(
        self,
        retried: Booleans,
        initiator: tuple[Integers, list[str]],
        command: Integers,
        address: Integers,
        start_us: Floats,
    ) -> None:
        who, names = initiator
        # Of addresses where nothing was retried there is nothing to tell, and these are most.
        before = np.array([address for _, _, address in self._retried], dtype=np.int64)
        some = np.unique(np.concatenate([address[retried], before]))
        rows = np.flatnonzero((command >= 0) & (address >= 0) & np.isin(address, some))
        if not len(rows):
            return
        order = rows[np.lexsort((rows, address[rows], command[rows], who[rows]))]
        key: Integers = np.stack([who[order], command[order], address[order]])
        ends = np.flatnonzero(np.append((key[:, 1:] != key[:, :-1]).any(axis=0), True))
        begins = np.concatenate([[0], ends[:-1] + 1])
        # The place of the last attempt up to each that was not retried.
        other = np.maximum.accumulate(np.where(retried[order], -1, np.arange(len(order))))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            row = order[end]
            access = (names[who[row]] if who[row] >= 0 else None, int(command[row]), int(address[row]))
            first = int(other[end]) + 1
            if first > begin:
                self._retried.pop(access, None)
            first = max(first, begin)
            if first <= end:
                found = self._retried.setdefault(access, _Retried(float(start_us[order[first]])))
                found.count += end - first + 1

    def causes(self, names: Names, placed_us: dict[int, float]) -> list[Cause]:
        """What is wrong.

        Parameters
        ----------
        names : Names
            Learned from these transactions.
        placed_us : dict
            When each transaction began that placed a window.
        """
        return [*_overlaps(names, placed_us), *self._unclaimed(names), *self._unanswered()]

    def _unclaimed(self, names: Names) -> list[Cause]:
        """Accesses to memory and I/O that nobody claimed, by the page that they lie in."""
        if not names.windows or not self._pages:
            return []
        found = sorted(self._pages.values(), key=lambda one: one.transaction)
        columns = {
            "transaction": [one.transaction for one in found],
            "command": [one.command for one in found],
            "address": pa.array([one.address for one in found], pa.uint64()),
        }
        window, _ = names.locate(pa.table(columns))
        causes = []
        for one, nth in sorted(zip(found, window.tolist(), strict=True), key=lambda pair: pair[0].address):
            at = f"nobody claims {one.address:08x}"
            if nth >= 0:
                where = names.windows[nth]
                covers = "covers it" if where.size_known else "may cover it (its size was not read)"
                text = f"{at}, though {where.device} {where.name} {covers}: is the device enabled to answer?"
            else:
                near = min(names.windows, key=lambda window: _away(window.base, window.size, one.address))
                end = f"to {near.base + near.size - 1:08x}" if near.size_known else "on, of a size that was not read"
                text = (
                    f"{at}: no base address register covers it; nearest is {near.device} {near.name}, "
                    f"{near.base:08x} {end}"
                )
            causes.append(Cause("unclaimed", one.time_us, one.count, text))
        return causes

    def _unanswered(self) -> list[Cause]:
        """Accesses that were retried again and again, and nothing else until the end."""
        found = []
        for (_, command, address), one in self._retried.items():
            if one.count >= PERSISTENT:
                name = COMMANDS.get(command, "access")
                text = f"never completed: {name} {address:08x} was retried {one.count} times"
                found.append(Cause("never_completed", one.time_us, one.count, text))
        return found


def _overlaps(names: Names, placed_us: dict[int, float]) -> list[Cause]:
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
            text = (
                f"{one.device} {one.name} at {one.base:08x} ({one.size} bytes) overlaps "
                f"{other.device} {other.name} at {other.base:08x} ({other.size} bytes)"
            )
            found.append(Cause("overlap", placed_us.get(max(one.since, other.since), 0.0), 1, text))
    return found


def _away(base: int, size: int, address: int) -> int:
    return max(base - address, address - (base + size - 1), 0)


COMMANDS = {
    0x2: "io read", 0x3: "io write", 0x6: "memory read", 0x7: "memory write", 0xA: "config read", 0xB: "config write",
    0xC: "memory read multiple", 0xE: "memory read line", 0xF: "memory write and invalidate",
    0x0: "interrupt acknowledge",
}  # fmt: skip
