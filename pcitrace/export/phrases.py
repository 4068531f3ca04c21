"""Rows in words, the same in every program: a transaction, a data phase."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pcitrace.export.packed import Bytes, Mask, Packed, codes, decimals, hexes, values
from pcitrace.schema import COMMAND_NAMES

__all__ = ["COLUMNS", "add_transaction", "data_words"]

COLUMNS = ("bus", "transaction", "start_us", "end_us", "command", "address", "data_phases", "termination")
"""Columns of transactions that their phrases need."""

_COMMANDS = [*(name.encode() for name in COMMAND_NAMES), b"transaction"]


def add_transaction(packed: Packed, rows: pa.Table) -> Packed:
    """Add the phrase of each transaction: ``memory_read 0xfee00000: 4 data phases, completion``."""
    known = np.asarray(rows["command"].is_valid())
    packed.text(_COMMANDS, np.where(known, values(rows, "command"), 16))
    known = np.asarray(rows["address"].is_valid())
    address = values(rows, "address").astype(np.uint64)
    wide = address >> np.uint64(32) != 0
    packed.fixed(b" 0x", known)
    packed.add(hexes(address, 16), wide[:, None] | (np.arange(16) >= 8), known)
    count = values(rows, "data_phases")
    packed.fixed(b": ").add(*decimals(count)).fixed(b" data phase")
    packed.fixed(b"s", count != 1).fixed(b", ")
    texts, code, _ = codes(rows, "termination")
    return packed.text(texts, code)


def data_words(phases: pa.Table) -> tuple[Bytes, Mask]:
    """The data of each phase in hexadecimal digits, bytes that were not enabled as dots; ``?`` where it is not known.

    Returns
    -------
    arrays, shape (phases, 16)
        The digits, and which of them each has: 8, or 16 where the upper half of the bus took part.
    """
    data = values(phases, "data").astype(np.uint64)
    enables = values(phases, "byte_enables").astype(np.uint64)
    out = hexes(data, 16)
    lane = np.repeat(np.arange(7, -1, -1), 2)
    known = np.asarray(phases["byte_enables"].is_valid())
    wide = (enables >> np.uint64(4) != 0) | (data >> np.uint64(32) != 0)
    out[(enables[:, None] >> lane.astype(np.uint64) & np.uint64(1) == 1) & known[:, None]] = ord(".")
    there: npt.NDArray[np.bool_] = (lane < 4) | wide[:, None]
    unknown = ~np.asarray(phases["data"].is_valid())
    out[unknown, -1] = ord("?")
    there[unknown] = False
    there[unknown, -1] = True
    return out, there
