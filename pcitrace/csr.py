"""Host transactions -> CSR accesses: retried attempts are one access, registers have names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.phases import Phases
from pcitrace.windows import Windows

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
    register, role : lists of str or None
        Name and role of the register.
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
    command: Integers
    address: Integers
    value: Integers
    byte_enables: Integers
    attempts: Integers
    register: list[str | None]
    role: list[str | None]
    index: Integers
    doorbell: Booleans
    reason: Integers

    def __len__(self) -> int:
        return len(self.first_attempt_us)

    def take(self, rows: Integers) -> Self:
        """Return the given rows."""
        columns: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            columns[item.name] = value[rows] if isinstance(value, np.ndarray) else [value[row] for row in rows]
        return type(self)(**columns)

    def of_role(self, role: str) -> Integers:
        """Return the rows whose register has a role."""
        return np.flatnonzero(np.fromiter((one == role for one in self.role), dtype=bool, count=len(self.role)))


def join_attempts(bus: BusTable) -> Integers:
    """Number the accesses: a retried attempt and what repeats it have one number.

    What repeats an attempt has its address and command. Without AD it is the next transaction of the same initiator:
    PCI obliges it to repeat what was retried.
    """
    key = bus.address * 16 + np.maximum(bus.command, 0) if bus.has_address else np.zeros(len(bus), dtype=np.int64)
    order = np.lexsort((bus.start_us, key))
    key, retried = key[order], bus.retried[order]
    begins = np.ones(len(bus), dtype=bool)
    begins[1:] = (key[1:] != key[:-1]) | ~retried[:-1]
    number = np.empty(len(bus), dtype=np.int64)
    number[order] = np.cumsum(begins) - 1
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
    number = join_attempts(hosts)
    count = int(number.max()) + 1 if len(hosts) else 0
    first = np.full(count, np.inf)
    np.minimum.at(first, number, hosts.start_us)
    last_row = np.zeros(count, dtype=np.int64)
    order = np.argsort(hosts.start_us, kind="stable")
    last_row[number[order]] = order
    attempts = np.bincount(number, minlength=count)

    # One row a data phase of the attempt that moved data; one row also where no data moved.
    row_of = last_row
    data_us, value, enables = hosts.first_data_us[last_row], np.full(count, -1), np.full(count, -1)
    offset = np.zeros(count, dtype=np.int64)
    access = np.arange(count)
    if phases is not None and len(phases):
        begin, length = phases.ranges(hosts.transaction[last_row])
        repeat = np.maximum(length, 1)
        access = np.repeat(access, repeat)
        row_of = last_row[access]
        offset = np.arange(len(access)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
        has = np.repeat(length > 0, repeat)
        at = np.where(has, np.repeat(begin, repeat) + offset, 0)
        data_us = np.where(has, phases.time_us[at], np.nan)
        value = np.where(has, phases.data[at], -1)
        enables = np.where(has, phases.byte_enables[at], -1)
    address = hosts.address[row_of]
    address = np.where(address >= 0, address + offset * 4, -1)
    command = hosts.command[row_of]
    inside = windows.contain(hosts.take(row_of))
    reason = _reasons(command, address, np.isnan(data_us), inside)
    order = np.lexsort((offset, first[access]))
    register, role, index, doorbell = _registers(windows, address[order], command[order], value[order], enables[order])
    return Accesses(
        first_attempt_us=first[access][order],
        last_attempt_us=hosts.start_us[row_of][order],
        data_us=data_us[order],
        command=command[order],
        address=address[order],
        value=value[order],
        byte_enables=enables[order],
        attempts=attempts[access][order],
        register=register,
        role=role,
        index=index,
        doorbell=doorbell,
        reason=reason[order],
    )


def _reasons(command: Integers, address: Integers, no_data: Booleans, inside: Booleans | None) -> Integers:
    unplaced = np.where(address >= 0, NO_WINDOW, NO_ADDRESS)
    reason = unplaced if inside is None else np.where(inside, WINDOW, OUTSIDE)
    reason = np.where(np.isin(command, CONFIG_COMMANDS), CONFIGURATION, reason)
    return np.where(no_data, NO_DATA, reason)


def _registers(
    windows: Windows, address: Integers, command: Integers, value: Integers, enables: Integers
) -> tuple[list[str | None], list[str | None], Integers, Booleans]:
    """Name the register of every access; each pair of address and byte enables is looked up once."""
    config = np.isin(command, CONFIG_COMMANDS)
    lanes = np.where(enables < 0, 0, enables & 0xF)
    key = np.where((address >= 0) & ~config, address * 16 + lanes, -1)
    unique, which = np.unique(key, return_inverse=True)
    names: list[str | None] = []
    found = []
    for one in unique.tolist():
        names.append(windows.label(one >> 4, one & 0xF) if one >= 0 else None)
        found.append(windows.register(one >> 4, one & 0xF) if one >= 0 else None)
    roles = [entry[0].role if entry else None for entry in found]
    index = np.array([entry[1] if entry else -1 for entry in found], dtype=np.int64)
    bell = np.array([role == "send_doorbell" for role in roles], dtype=bool)
    mask = np.array([(entry[0].mask or 0) if entry else 0 for entry in found], dtype=np.int64)
    written = np.isin(command, (0x3, 0x7, 0xF)) & (value >= 0)
    doorbell = bell[which] & written & ((mask[which] == 0) | (value & mask[which] != 0))
    return [names[i] for i in which], [roles[i] for i in which], index[which], doorbell
