"""Of which kind an access is: by its register, or by what the bus shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans, Integers
from pcitrace.traffic.csr import LookedAt

__all__ = ["Kinds", "in_array"]


@dataclass(frozen=True)
class Kinds:
    """Accesses that look alike have one number: the register where it is known, else what the bus shows.

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
            role = np.asarray(csr.role, np.int64)
            address = csr.address.astype(np.int64)
            entry = in_array(address, count / 10 + 2)
            place = np.where(entry, _in_entry(address), address)
            place = np.where(role >= 0, -2 - role, place)
            key = place * 32 + np.maximum(csr.command, 0)
        else:
            looks = [np.clip(csr.devsel_clks, 0, 7), np.clip(csr.latency_clks, 0, 31), np.clip(csr.data_phases, 0, 3)]
            key = (looks[0].astype(np.int64) * 32 + looks[1]) * 4 + looks[2]
            key = key * 2 + (csr.attempts > 1)
        number, unique = pd.factorize(key)
        return cls(number, len(unique), entry)


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
