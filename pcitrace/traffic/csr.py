"""Host transactions -> CSR accesses: retried attempts are one access, registers have names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import pandas as pd

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Floats, Integers, packed_if_equal
from pcitrace.traffic.phases import Phases
from pcitrace.traffic.windows import Windows

__all__ = ["REASONS", "Accesses", "accesses"]

CONFIG_COMMANDS = (0xA, 0xB)

REASONS = (
    "host access in a window of the NIC",
    "configuration access",
    "host access; AD not captured, so every one counts as an access of the NIC",
    "host access; no window of the NIC is known",
    "host access outside the windows of the NIC",
    "no data moved: nobody claimed it, or the capture ends",
)
WINDOW, CONFIGURATION, NO_ADDRESS, NO_WINDOW, OUTSIDE, NO_DATA = range(len(REASONS))


@dataclass(frozen=True)
class Accesses:
    """CSR accesses of one bus in the order of their first attempts; -1 or NaN where unknown.

    Attributes
    ----------
    first_attempt_us, last_attempt_us, data_us : arrays of float
    command, address, value, byte_enables, attempts : arrays of int
    first_row, last_row : arrays of int
        Which transactions of the whole bus its first and last attempts are.
    data_phases, devsel_clks : arrays of int
        Of its transaction: how it looks without AD.
    register, role : arrays of int
        Name and role of the register: indices into `registers` and `roles`; -1 for none.
    registers, roles : tuples of str
    index : array of int
        Index within an array of registers.
    doorbell : array of bool
        Whether it lets the card start a send.
    reason : array of int
        Index into :data:`REASONS`.
    """

    first_attempt_us: Floats
    last_attempt_us: Floats
    data_us: Floats
    first_row: Integers
    last_row: Integers
    command: Integers
    address: Integers
    value: Integers
    byte_enables: Integers
    attempts: Integers
    data_phases: Integers
    devsel_clks: Integers
    register: Integers
    registers: tuple[str, ...]
    role: Integers
    roles: tuple[str, ...]
    index: Integers
    doorbell: Booleans
    reason: Integers

    def __len__(self) -> int:
        return len(self.first_attempt_us)

    @property
    def end_us(self) -> Floats:
        """Its data, or the last attempt where none was seen."""
        return np.where(np.isnan(self.data_us), self.last_attempt_us, self.data_us)

    def take(self, rows: Integers) -> Self:
        """Return the given rows."""
        columns: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        chosen = {name: value[rows] for name, value in columns.items() if isinstance(value, np.ndarray)}
        return type(self)(**columns | chosen)

    def plays(self, *roles: str) -> Booleans:
        """Return where the register has one of these roles."""
        return np.isin(self.role, [code for code, role in enumerate(self.roles) if role in roles])

    def of_role(self, role: str) -> Integers:
        """Return the rows whose register has a role."""
        return np.flatnonzero(self.plays(role))

    def looked_at(self, bus: BusTable) -> LookedAt:
        """Return the same with more of what their transactions show; `bus` has some of those of the same bus."""
        first, last = (bus.whole.take(rows) for rows in (self.first_row, self.last_row))
        columns: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        return LookedAt(**columns, ready_us=first.busy_since_us, latency_clks=last.latency_clks)


@dataclass(frozen=True)
class LookedAt(Accesses):
    """Some accesses, with what of a long capture's would be much memory.

    Attributes
    ----------
    ready_us : array of float
        Since when the bus had been busy, without a rest, as each began.
    latency_clks : array of int
        Of its transaction: a write is answered sooner than a read.
    """

    ready_us: Floats
    latency_clks: Integers


def join_attempts(bus: BusTable) -> Integers:
    """Number the accesses: a retried attempt and what repeats it have one number.

    What repeats an attempt has its address and command. Without AD it is the next transaction of the same initiator:
    PCI obliges it to repeat what was retried.
    """
    key = bus.address * 16 + np.maximum(bus.command, 0) if bus.has_address else np.zeros(len(bus), dtype=np.int8)
    order = np.lexsort((bus.start_us, key))
    key, retried = key[order], bus.retried[order]
    begins = np.ones(len(bus), dtype=bool)
    begins[1:] = (key[1:] != key[:-1]) | ~retried[:-1]
    number = np.empty(len(bus), dtype=np.int32)
    number[order] = np.cumsum(begins, dtype=np.int32) - 1
    return number


def accesses(hosts: BusTable, phases: Phases | None, windows: Windows) -> Accesses:
    """Build CSR accesses from the transactions of the host.

    Parameters
    ----------
    hosts : BusTable
        Transactions that the host began.
    phases : Phases or None
        Their data phases; None where they were not decoded: every access is then one row with unknown value.
    windows : Windows

    Returns
    -------
    Accesses
        One row an access; an access of several data phases (a burst into registers) is one row a data phase.
    """
    start_us = hosts.start_us
    first = last = np.argsort(start_us, kind="stable").astype(np.int32)
    attempts = np.ones(len(hosts), dtype=np.int32)
    if hosts.retried.any():
        # The first and the last attempt of each: of rows that are given several times numpy keeps the last.
        order, number = first, join_attempts(hosts)
        attempts = np.bincount(number).astype(np.int32)
        first, last = np.empty_like(attempts), np.empty_like(attempts)
        first[number[order[::-1]]], last[number[order]] = order[::-1], order
        in_time = np.argsort(start_us[first], kind="stable")
        first, last, attempts = first[in_time], last[in_time], attempts[in_time]

    value = enables = np.broadcast_to(np.int64(-1), len(last))
    offset = np.broadcast_to(np.int64(0), len(last))
    moved = hosts.take(last)
    data_us = moved.first_data_us
    if phases is not None and len(phases):
        # One row a data phase of the attempt that moved data; one row also where no data moved.
        begin, length = phases.ranges(moved.transaction)
        repeat = np.maximum(length, 1)
        first, last, attempts = (np.repeat(one, repeat) for one in (first, last, attempts))
        offset = np.arange(len(last)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
        has = np.repeat(length > 0, repeat)
        at = np.where(has, np.repeat(begin, repeat) + offset, 0)
        data_us = np.where(has, phases.time_us[at], np.nan)
        value = np.where(has, phases.data[at], -1)
        enables = np.where(has, phases.byte_enables[at], np.int16(-1))
        moved = hosts.take(last)
    address, command = moved.address, moved.command
    if offset.any():
        # A word of more than 32 bits tells that all of its transaction are of 64.
        wide = moved.wide | (enables > 0xF) | (value >> 32 > 0) | (value < -1)
        wide = np.bincount(moved.transaction, wide)[moved.transaction] > 0
        address = np.where(address >= 0, address + offset * np.where(wide, 8, 4), -1)
    reason = _reasons(command, address, np.isnan(data_us), windows.contain(moved))
    first_us = start_us[first]
    del start_us  # as long as all that the host began
    columns = _registers(windows, address, command, value, enables) | {
        "first_attempt_us": first_us,
        "last_attempt_us": moved.start_us if (attempts > 1).any() else first_us,
        "data_us": data_us,
        "first_row": moved.rows if first is last else hosts.rows[first],
        "last_row": moved.rows,
        "command": command,
        "address": address,
        "value": value,
        "byte_enables": enables,
        "attempts": attempts,
        "data_phases": moved.data_phases,
        "devsel_clks": moved.devsel_clks,
        "reason": reason,
    }
    arrays = {name: packed_if_equal(one) for name, one in columns.items() if isinstance(one, np.ndarray)}
    return Accesses(**columns | arrays)


def _reasons(command: Integers, address: Integers, no_data: Booleans, inside: Booleans | None) -> Integers:
    reason = np.full(len(command), NO_ADDRESS, dtype=np.int8)
    reason[address >= 0] = NO_WINDOW
    if inside is not None:
        reason[:] = OUTSIDE
        reason[inside] = WINDOW
    reason[np.isin(command, CONFIG_COMMANDS)] = CONFIGURATION
    reason[no_data] = NO_DATA
    return reason


def _registers(
    windows: Windows, address: Integers, command: Integers, value: Integers, enables: Integers
) -> dict[str, Any]:
    """Name the register of every access; each pair of address and byte enables is looked up once."""
    known = (address >= 0) & ~np.isin(command, CONFIG_COMMANDS)
    if not known.any():
        none = np.broadcast_to(np.int8(-1), len(known))
        doorbell = np.broadcast_to(np.False_, len(known))
        return {"register": none, "registers": (), "role": none, "roles": (), "index": none, "doorbell": doorbell}
    lanes = np.where(enables < 0, 0, enables & 0xF)
    key = np.where(known, address * 16 + lanes, -1)
    which, unique = pd.factorize(key)
    labels = [windows.label(one >> 4, one & 0xF) if one >= 0 else None for one in unique.tolist()]
    found = [windows.register(one >> 4, one & 0xF) if one >= 0 else None for one in unique.tolist()]
    register, registers = _coded(labels)
    role, roles = _coded([entry[0].role if entry else None for entry in found])
    index = np.array([entry[1] if entry else -1 for entry in found], dtype=np.int32)
    bell = role == (roles.index("send_doorbell") if "send_doorbell" in roles else -2)
    mask = np.array([(entry[0].mask or 0) if entry else 0 for entry in found], dtype=np.int64)
    written = np.isin(command, (0x3, 0x7, 0xF)) & (value >= 0)
    return {
        "register": register[which],
        "registers": registers,
        "role": role[which],
        "roles": roles,
        "index": index[which],
        "doorbell": bell[which] & written & ((mask[which] == 0) | (value & mask[which] != 0)),
    }


def _coded(texts: Sequence[str | None]) -> tuple[Integers, tuple[str, ...]]:
    """Return the texts as numbers, -1 for none, and what the numbers stand for."""
    names = {text: number for number, text in enumerate(sorted({text for text in texts if text is not None}))}
    return np.array([-1 if text is None else names[text] for text in texts], dtype=np.int32), tuple(names)
