"""Violations that do not count: those of single initiators and targets, as the masks of a bench say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.columns import Booleans, integers
from pcitrace.instrument.names import Names, of_bus

if TYPE_CHECKING:
    from pcitrace import _kernel
    from pcitrace.instrument.rules import Masks
    from pcitrace.run import Bus

__all__ = ["Exceptions", "excepted"]

_ROW = ("transaction", "command", "address", "initiator")
"""What is looked at of a transaction."""


def excepted(masks: Masks, violations: pa.Table) -> Booleans:
    """Tell which violations do not count.

    Parameters
    ----------
    masks : Masks
    violations : pyarrow.Table
        ``rule``, ``grant`` (the GNT# line), ``initiator`` and ``target`` (by name); null where not known.

    Returns
    -------
    array of bool, shape (violations,)
        What is not known is no exception.
    """

    def equal(name: str, value: str) -> Booleans:
        return np.asarray(pc.fill_null(pc.equal(violations[name], value), False), dtype=bool)

    found = np.zeros(violations.num_rows, dtype=bool)
    for rule, initiator, target in masks.excepted:
        mine = equal("rule", rule)
        if initiator is not None:
            mine &= equal("grant", initiator) | equal("initiator", initiator)
        if target is not None:
            mine &= equal("target", target)
        found |= mine
    return found


class Exceptions:
    """Takes the violations that do not count out of the parts of a capture.

    Who is who is told as :func:`pcitrace.instrument.judged.check` does, by all of the capture: where masks name devices
    the capture is decoded once before.

    Parameters
    ----------
    buses : sequence of Bus
    masks : Masks
    grants : mapping of str to mapping
        Names of initiators as the user states them: bus -> GNT# line -> name.
    """

    def __init__(self, buses: Sequence[Bus], masks: Masks, grants: Mapping[str, Mapping[str, str]]) -> None:
        self._masks = masks
        self._names: dict[str, Names] = {}
        self._before: dict[str, pa.Table] = {}
        for bus in buses:
            stated = grants.get(bus.name, {})
            told = {None, *bus.lines, *stated.values()}
            known = all(target is None and initiator in told for _, initiator, target in masks.excepted)
            self._names[bus.name] = Names(stated) if known else of_bus(bus, stated)

    def out_of(self, part: _kernel.Part) -> _kernel.Part:
        """The part without them."""
        problems, rows = pa.table(part.problems), pa.table(part.transactions)
        told = np.ones(problems.num_rows, dtype=bool)
        for bus, names in self._names.items():
            mine = rows.filter(pc.equal(rows["bus"], bus)).select(_ROW)
            # A problem comes with its transaction, or with the next part.
            near = pa.concat_tables([self._before[bus], mine]) if bus in self._before else mine
            self._before[bus] = near.slice(max(near.num_rows - 1, 0))
            at = np.flatnonzero(np.asarray(pc.equal(problems["bus"], bus)))
            if len(at):
                told[at] = ~excepted(self._masks, _told_of(problems.take(at), near, names))
        return part if told.all() else part.tell(told.astype(np.uint8).tobytes())


def _told_of(problems: pa.Table, rows: pa.Table, names: Names) -> pa.Table:
    """The problems of one bus as violations, each with the initiator and target of its transaction."""
    numbers, wanted = integers(rows, "transaction"), integers(problems, "transaction")
    row = np.searchsorted(numbers, wanted)
    there = row < len(numbers)
    there[there] = numbers[row[there]] == wanted[there]
    at = pa.array(row, mask=~there)
    grant = rows["initiator"].cast(pa.string())
    called = pa.array([names.initiator(line) for line in grant.to_pylist()], pa.string())
    target = names.targets(rows, everywhere=True).cast(pa.string())
    return pa.table(
        {"rule": problems["kind"], "grant": grant.take(at), "initiator": called.take(at), "target": target.take(at)}
    )
