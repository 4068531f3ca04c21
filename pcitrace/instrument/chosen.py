"""Transactions that fulfil a condition, written to files while they are decoded, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pcitrace import _kernel
from pcitrace.instrument.stream import Choice, parts

if TYPE_CHECKING:
    from pcitrace.instrument.conditions import Condition
    from pcitrace.run import Bus

__all__ = ["write"]


def write(buses: Sequence[Bus], condition: Condition, files: Mapping[str, Path | None]) -> dict[str, Any]:
    """Decode some buses of one capture, and write what fulfils a condition.

    Parameters
    ----------
    buses : sequence of Bus
    condition : Condition
        On :data:`pcitrace.instrument.stream.TRANSACTIONS`.
    files : mapping of str to path or None
        ``transactions`` (CSV, Parquet or JSON lines by suffix), and ``data_phases`` of these.

    Returns
    -------
    dict
        By bus ``transactions`` (count of what was written) and ``problems`` (rows that concern these).
    """
    writers = {table: _kernel.Writer(str(path), table) for table, path in files.items() if path is not None}
    found: dict[str, Any] = {bus.name: {"transactions": 0, "problems": []} for bus in buses}
    before: set[tuple[str, int]] = set()
    for part in parts(buses, None, choice=Choice(condition), data_phases="data_phases" in writers):
        for table, writer in writers.items():
            writer.write(getattr(part, table))
        rows = pa.table(part.transactions)
        of_part = set(zip(rows["bus"].to_pylist(), rows["transaction"].to_pylist(), strict=True))
        for bus, _ in of_part:
            found[bus]["transactions"] += 1
        # A problem comes with its transaction, or with the next part.
        for problem in pa.table(part.problems).to_pylist():
            if (problem["bus"], problem["transaction"]) in of_part | before:
                found[problem["bus"]]["problems"].append(problem)
        before = of_part
    for writer in writers.values():
        writer.close()
    return found
