"""Bursts by length and by bytes, as transactions and as what disconnects cut: logical bursts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from pcitrace.columns import Integers, integers, strings
from pcitrace.instrument import spread

__all__ = ["burst_lengths", "joined", "logical"]

_WRITES = (0x3, 0x7, 0xB, 0xF)
_DISCONNECTS = ("disconnect_with_data", "disconnect_without_data")


def joined(table: pa.Table) -> tuple[Integers, Integers]:
    """Put together what disconnects cut.

    A transaction goes on with the one before if that is the last of the same initiator that moved data, goes in the
    same direction, was disconnected, and ended where this one begins.

    Parameters
    ----------
    table : pyarrow.Table
        Transactions in order of time.

    Returns
    -------
    rows, begins : arrays of int
        Rows that moved data, of each initiator in order of time; places among them at which a logical burst begins.
    """
    moved = np.flatnonzero(integers(table, "data_phases") > 0)
    who, _ = strings(table, "initiator")
    order = moved[np.argsort(who[moved], kind="stable")]
    address, phases, size = (integers(table, name)[order] for name in ("address", "data_phases", "bytes"))
    ended, names = strings(table, "termination")
    cut = np.isin(ended[order], [n for n, name in enumerate(names) if name in _DISCONNECTS])
    write = np.isin(integers(table, "command")[order], _WRITES)
    # 64 bits wide where more moved than 4 bytes each.
    behind = (address & ~3) + np.where(size > 4 * phases, 8, 4) * phases
    goes_on = (
        cut[:-1]
        & (who[order][1:] == who[order][:-1])
        & (write[1:] == write[:-1])
        & (address[1:] == behind[:-1])
        & (address[1:] >= 0)
    )
    begins = np.flatnonzero(np.concatenate([[True], ~goes_on])) if len(order) else np.zeros(0, dtype=np.int64)
    return order, begins


def logical(table: pa.Table) -> tuple[Integers, Integers]:
    """Count what each logical burst moved: ``data_phases`` and ``bytes``; parameters are those of :func:`joined`."""
    order, begins = joined(table)
    phases, size = integers(table, "data_phases")[order], integers(table, "bytes")[order]
    return (np.add.reduceat(phases, begins), np.add.reduceat(size, begins)) if len(begins) else (phases, size)


def burst_lengths(table: pa.Table) -> list[dict[str, Any]]:
    """Count transactions that moved data by their length in bins that double, and logical bursts likewise.

    Returns
    -------
    list of dict
        ``from``, ``to`` (included), and how many have so many ``data_phases``, ``bytes``, ``logical_data_phases``,
        ``logical_bytes``.
    """
    phases, size = integers(table, "data_phases"), integers(table, "bytes")
    moved = phases > 0
    if not moved.any():
        return []
    whole_phases, whole_size = logical(table)
    columns = {
        "data_phases": phases[moved],
        "bytes": size[moved],
        "logical_data_phases": whole_phases,
        "logical_bytes": whole_size,
    }
    # Powers of two belong to the bin that they end: 3 to 4, 5 to 8.
    limits = spread.edges(max(int(one.max()) for one in columns.values()))
    counts = {name: spread.counted(one, limits) for name, one in columns.items()}
    rows = [
        {"from": first, "to": after - 1, **{name: one[n] for name, one in counts.items()}}
        for n, (first, after) in enumerate(itertools.pairwise(limits.tolist()))
    ]
    return [row for row in rows if any(row[name] for name in columns)]
