"""Transactions that fulfil a condition, written to files while they are decoded, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

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
    before: dict[str, pa.Array] = {}
    for part in parts(buses, None, choice=Choice(condition), data_phases="data_phases" in writers):
        for table, writer in writers.items():
            writer.write(getattr(part, table))
        rows, problems = pa.table(part.transactions), pa.table(part.problems)
        of_part = {name: rows["transaction"].filter(pc.equal(rows["bus"], name)).combine_chunks() for name in found}
        for name, numbers in of_part.items():
            found[name]["transactions"] += len(numbers)
            if not problems.num_rows:
                continue
            # A problem comes with its transaction, or with the next part.
            near = pa.concat_arrays([numbers, before[name]]) if name in before else numbers
            concerned = pc.and_(pc.equal(problems["bus"], name), pc.is_in(problems["transaction"], near))
            found[name]["problems"] += problems.filter(concerned).to_pylist()
        before = of_part
    for writer in writers.values():
        writer.close()
    return found
