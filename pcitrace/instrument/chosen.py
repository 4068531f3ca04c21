"""Transactions that fulfil a condition, written to files while they are decoded, with what was wrong by the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pcitrace import _kernel
from pcitrace.instrument.exceptions import Exceptions
from pcitrace.instrument.judging import judging
from pcitrace.instrument.rules import catalogue
from pcitrace.instrument.stream import Choice, parts
from pcitrace.schema import PROBLEMS

if TYPE_CHECKING:
    from pcitrace.instrument.rules import Masks
    from pcitrace.run import Bus

__all__ = ["Chosen", "write"]

_EVENT = "event"
"""What the kernel calls a change of INTA# to INTD# or LOCK# among the problems of a part: nothing is wrong."""


@dataclass
class Chosen:
    """What was written of one bus.

    Attributes
    ----------
    transactions : int
        How many were written.
    problems : int
        How many those transactions have.
    first_problem : dict or None
        ``schema.PROBLEMS``, of the first of them.
    """

    transactions: int = 0
    problems: int = 0
    first_problem: dict[str, Any] | None = None


def write(
    buses: Sequence[Bus], choice: Choice, files: Mapping[str, Path | None], masks: Masks | None = None
) -> dict[str, Chosen]:
    """Decode some buses of one capture, and write what fulfils a condition.

    Parameters
    ----------
    buses : sequence of Bus
    choice : Choice
        Which transactions are written.
    files : mapping of str to path or None
        ``transactions`` (CSV, Parquet or JSON lines by suffix), ``data_phases`` and ``problems`` of these.
    masks : Masks, optional
        Judge every clock by these rules: where one is broken is a problem.

    Returns
    -------
    dict of str to Chosen
        By bus.
    """
    writers = {table: _kernel.Writer(str(path), table) for table, path in files.items() if path is not None}
    how = [judging(bus, masks) for bus in buses] if masks is not None else []
    # What is masked is judged too: the decoder is not to tell it in its own words.
    rules = sorted({id for one in how for id in one.possible}) if masks is not None else None
    masked = sorted({*(rules or ())} - {id for one in how for id in one.wanted})
    bus_mhz = [one.bus_mhz for one in how]
    of_bus = {bus.name: Chosen() for bus in buses}
    troubles = writers.pop("problems", None)
    before: dict[str, pa.Array] = {}
    with_phases = "data_phases" in writers
    exceptions = Exceptions(buses, masks, {}) if masks is not None and masks.excepted else None
    for part in parts(buses, None, choice=choice, data_phases=with_phases, rules=rules, bus_mhz=bus_mhz):
        for table, writer in writers.items():
            writer.write(getattr(part, table))
        told = part if exceptions is None else exceptions.out_of(part)
        rows, found = pa.table(part.transactions), _told(pa.table(told.problems), masked)
        of_part = {name: rows["transaction"].filter(pc.equal(rows["bus"], name)).combine_chunks() for name in of_bus}
        for name, numbers in of_part.items():
            chosen = of_bus[name]
            chosen.transactions += len(numbers)
            if not found.num_rows:
                continue
            concerned = pc.equal(found["bus"], name)
            if choice.condition is not None:
                # A problem comes with its transaction, or with the next part.
                near = pa.concat_arrays([numbers, before[name]]) if name in before else numbers
                concerned = pc.and_(concerned, pc.is_in(found["transaction"], near))
            mine = found.filter(concerned)
            if mine.num_rows:
                chosen.problems += mine.num_rows
                chosen.first_problem = chosen.first_problem or mine.slice(0, 1).to_pylist()[0]
                if troubles is not None:
                    troubles.write(mine)
        before = of_part
    for writer in (*writers.values(), *([] if troubles is None else [troubles])):
        writer.close()
    return of_bus


def _schema() -> pa.Schema:
    return pa.schema([(column.name, pa.type_for_alias(column.dtype)) for column in PROBLEMS.columns])


def _told(problems: pa.Table, masked: Sequence[str]) -> pa.Table:
    """The problems of a part as the table has them: no events, no rule that is masked, and a broken rule in words."""
    left_out = pc.is_in(problems["kind"], pa.array([_EVENT, *masked], pa.string()))
    problems = problems.select(list(PROBLEMS.column_names)).filter(pc.invert(left_out))
    ids = [*catalogue()]
    place = pc.index_in(problems["kind"], pa.array(ids, pa.string()))
    sentences = pa.array([one.sentence for one in catalogue().values()], pa.string())
    text = pc.coalesce(sentences.take(place), problems["text"])
    return problems.set_column(problems.column_names.index("text"), "text", text).cast(_schema())
