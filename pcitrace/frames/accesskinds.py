"""Of which kind an access is: by its register and what is written, or by what the bus shows.

Most registers have one use. Registers that are written in turn have one together, as the four of a Realtek RTL8139
that release a frame each; and a command register has one for each value, as the one of a 3Com 3C905 that stalls a
queue, lets it go on and acknowledges interrupts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.facts import PAGE_BYTES, WRITES
from pcitrace.traffic.csr import Accesses, LookedAt

__all__ = ["CHAIN_US", "SOME", "Kinds", "as_often", "commands", "in_array", "in_turn", "of_lanes", "on_any_host"]

CHAIN_US = 1.0
"""The driver goes on with a doorbell within this time. A judgement: some ten accesses of a PCI bus of 33 MHz."""

SOME, MORE = 1.1, 8
"""Times as often as sends a doorbell may be written, and a few times more: some sends may not be found, and the last
doorbells may ring for some that the capture has no more. Judgements."""

SPACINGS = (4, 8, 16, 32)
"""Bytes from a register to the next one of the same use: from a double word, as on the RTL8139, to the eight of the
longest descriptors in use, as the SK-98xx has. A judgement: cards with such descriptors of their own were not seen."""

SEEN = 4
"""Times that a value was written on average, if values are commands. A judgement: of rarer ones nothing is learned."""


def as_often(sends: int) -> float:
    """Return how often a doorbell is written at most."""
    return SOME * sends + MORE


@dataclass(frozen=True)
class Kinds:
    """Accesses that look alike have one number: by the register where it is known, else by what the bus shows.

    `entry` says of which accesses the register may be an entry of an array: all of these with their place in it are of
    one kind.
    """

    number: Integers
    count: int
    entry: Booleans

    @classmethod
    def of(cls, csr: LookedAt, count: int) -> Kinds:
        """Number the accesses by kind, where `count` frames were sent."""
        known, entry = csr.address >= 0, np.zeros(len(csr), dtype=bool)
        if known.any():
            role, written = np.asarray(csr.role, np.int64), np.isin(csr.command, WRITES)
            address, entry = _registers(csr, count)
            place = np.where(entry, _in_entry(address), address)
            place = np.where(role >= 0, -2 - role, place)
            key = pd.factorize(place * 32 + np.maximum(csr.command, 0))[0]
            key[written] = commands(key[written], csr.value[written].astype(np.int64), as_often(count))
        else:
            looks = [np.clip(csr.devsel_clks, 0, 7), np.clip(csr.latency_clks, 0, 31), np.clip(csr.data_phases, 0, 3)]
            key = (looks[0].astype(np.int64) * 32 + looks[1]) * 4 + looks[2]
            key = key * 2 + (csr.attempts > 1)
        number, unique = pd.factorize(key)
        return cls(number, len(unique), entry)


def _registers(csr: Accesses, count: int) -> tuple[Integers, Booleans]:
    """Return the address of the register of each access, the first of those that are written in turn; and which of them
    may be entries of an array.
    """
    address = of_lanes(csr.address.astype(np.int64), csr.byte_enables)
    written, time_us = np.isin(csr.command, WRITES), csr.first_attempt_us
    address[written] = in_turn(address[written], time_us[written], as_often(count))
    return address, in_array(address, count / 10 + 2)


def on_any_host(csr: Accesses, count: int) -> Integers:
    """Return a number for the register of each access, the same on every host, and another one for reads of it; -1 if
    no address is known: it is told by where in a page it lies.
    """
    address, entry = _registers(csr, count)
    offset = address & PAGE_BYTES - 1
    place = np.where(entry, _in_entry(offset), offset)
    return np.where(csr.address >= 0, 2 * place + np.isin(csr.command, WRITES), -1)


def of_lanes(address: Integers, byte_enables: Integers) -> Integers:
    """Return the address of the first byte that each access is of: registers may be bytes of one double word.

    In I/O space the address says that (PCI 2.2, 3.2.2.1), in memory space the byte enables do; they are active low.
    """
    first = np.array([next((lane for lane in range(4) if not enables >> lane & 1), 0) for enables in range(16)])
    told = (byte_enables >= 0) & (address >= 0) & (address & 3 == 0)
    return address + np.where(told, first[byte_enables.astype(np.int64) & 15], 0)


def in_turn(address: Integers, time_us: Floats, most: float) -> Integers:
    """Return the address of the first register of those that are written in turn, for the writes of these.

    They lie at the same distance and are written one after the other, never two at once; and all together no more often
    than `most`: an acknowledgement and a doorbell come in turn, too, but are more.
    """
    registers, at, count = np.unique(address, return_inverse=True, return_counts=True)
    place = {int(one): row for row, one in enumerate(registers)}
    banks = []
    for spacing in SPACINGS:
        for row, register in enumerate(registers.tolist()):
            bank = [row]
            while (following := place.get(register + spacing * len(bank))) is not None:
                if not _cycles(at, [*bank, following], time_us):
                    break
                bank.append(following)
            banks.append(bank)
    first, free = registers.copy(), np.ones(len(registers), dtype=bool)
    # Two words of neighbours come in turn, too; the same words of all come in longer banks.
    for bank in sorted(banks, key=len, reverse=True):
        if free[bank].all():
            first[bank], free[bank] = registers[bank[0]] if count[bank].sum() <= most else registers[bank], False
    return np.asarray(first[at])


def _cycles(at: Integers, bank: list[int], time_us: Floats) -> bool:
    """Return whether the registers of a bank are written in turn again and again, no two of them as one doorbell."""
    rows = np.flatnonzero(np.isin(at, bank))
    steps = np.diff(np.searchsorted(bank, at[rows]))
    together = (np.diff(rows) == 1) & (np.diff(time_us[rows]) <= CHAIN_US)
    return bool(len(steps) > len(bank) and (steps % len(bank) == 1).all() and not together.any())


def commands(register: Integers, value: Integers, most: float) -> Integers:
    """Return the number of each write: one for each value of a register that is written few of them, and more often
    than a doorbell.

    Which of them release a frame, their values say: of a 3Com 3C905 the register was none because of what else it does,
    and one that is written just before it was taken for the doorbell.
    """
    writes = np.bincount(register)[register]
    values = pd.DataFrame({"register": register, "value": value}).groupby("register")["value"].transform("nunique")
    split = (writes > most) & (writes >= SEEN * values.to_numpy())
    return register + np.where(split, (pd.factorize(value)[0] + 1) << 32, 0)


def _in_entry(address: Integers) -> Integers:
    """Return where in an entry of an array of registers each address is, as a number that is no address."""
    return (address >> 8) * 8 + (address & 7) + (1 << 40)


def in_array(address: Integers, most: float) -> Booleans:
    """Return which accesses are of registers that may be entries of an array, each of them written at most so often.

    These are known by where in an entry they are. Entries are written in turn, each as often as the others or once
    more: what is written more often than the others is none. A doorbell that rang four times was taken for an entry, as
    two registers that were written once (`cardbench`, groups 2, 24 frames, `generic`): these rang, too, and 30 of 46
    times were wrong.
    """
    registers, at, count = np.unique(address, return_inverse=True, return_counts=True)
    entry, rare = _in_entry(registers), count <= most
    for one in np.unique(entry[rare]):
        mine = np.flatnonzero(rare & (entry == one))
        mine = mine[np.argsort(-count[mine], kind="stable")]
        fewer = np.append(count[mine][1:], count[mine][-1:])
        rare[mine] = ~np.logical_and.accumulate(count[mine] > fewer + 1)
    return np.asarray(rare[at])
