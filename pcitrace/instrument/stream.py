"""Transactions of a capture in parts, in order of time, of which only those go on that fulfil a condition.

Memory does not grow with the capture, and the first part is there at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pcitrace import _kernel, schema
from pcitrace.errors import WiringError
from pcitrace.instrument.configspace import DWORDS
from pcitrace.schema import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from pcitrace.instrument.conditions import Condition
    from pcitrace.instrument.names import Names
    from pcitrace.run import Bus

__all__ = ["TRANSACTIONS", "Choice", "parts"]

TARGET = Column("target", "string", "", "Device that is addressed, as configuration accesses named it.", True)

TRANSACTIONS = Table("transactions", schema.TRANSACTIONS.row, (*schema.TRANSACTIONS.columns, TARGET))
"""What conditions on transactions are about: the table, and the target by name."""

_FOR_TARGETS = ("transaction", "command", "address", "initiator")


class Choice:
    """The transactions that fulfil a condition, part by part.

    Parameters
    ----------
    condition : Condition, optional
        On :data:`TRANSACTIONS`; without it all go on.
    grants : mapping of str to mapping, optional
        GNT# line -> name, by bus.
    """

    def __init__(
        self, condition: Condition | None = None, grants: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.condition = condition
        self._chosen = False
        # Columns of the condition that were null in every row so far.
        self._unknown = set(condition.columns) if condition is not None else set()
        self._names: dict[str, Names] = {}
        self._grants = grants or {}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of transactions that are needed to choose."""
        needed = self.condition.columns if self.condition is not None else frozenset()
        if TARGET.name in needed:
            needed = needed - {TARGET.name} | {"bus", *_FOR_TARGETS}
        return tuple(sorted(needed))

    @property
    def needs_data(self) -> bool:
        """Whether data phases are needed to choose."""
        return self.condition is not None and TARGET.name in self.condition.columns

    def of(self, part: _kernel.Part) -> _kernel.Part:
        """The part with those transactions only that are wanted."""
        wanted = self.wanted(part)
        return part if wanted is None else part.choose(wanted)

    def wanted(self, part: _kernel.Part) -> bytes | None:
        """A byte for each transaction of the part that says whether it is wanted; None for all."""
        if self.condition is None:
            return None
        rows = self.table(part)
        fulfilled = self.condition.fulfilled(rows)
        self.note(rows, bool(fulfilled.any()))
        return fulfilled.tobytes()

    def note(self, rows: pa.Table, chosen: bool) -> None:
        """Note what is known of the columns that the condition looks at, and whether any of these rows fulfils it."""
        self._chosen = self._chosen or chosen
        self._unknown = {name for name in self._unknown if rows[name].null_count == len(rows)}

    @property
    def why_none(self) -> str | None:
        """Why no row was chosen; None where some were."""
        if self._chosen or self.condition is None:
            return None
        if not self._unknown:
            return "nothing was chosen: no transaction fulfils the condition"
        names = ", ".join(sorted(self._unknown))
        return f"nothing was chosen; {names}: not known of any transaction, so that no comparison with it is fulfilled"

    def table(self, part: _kernel.Part) -> pa.Table:
        """The transactions of a part, with their targets where the condition asks for them."""
        import pyarrow as pa

        rows = pa.table(part.transactions)
        if self.condition is not None and TARGET.name in self.condition.columns:
            rows = rows.append_column(TARGET.name, self._targets(rows, pa.table(part.data_phases)))
        return rows

    def _targets(self, rows: pa.Table, phases: pa.Table) -> pa.Array:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from pcitrace.instrument.names import Names

        found = np.full(len(rows), None, dtype=object)
        for bus in pc.unique(rows["bus"].cast(pa.string())).to_pylist():
            names = self._names.setdefault(bus, Names(self._grants.get(bus)))
            of_bus = pc.equal(rows["bus"].cast(pa.string()), bus)
            mine = rows.filter(of_bus)
            names.learn(mine, phases.filter(pc.equal(phases["bus"], bus)))
            found[np.asarray(of_bus)] = names.targets(mine).cast(pa.string()).to_pylist()
        return pa.array(found, pa.string())


def parts(
    buses: Sequence[Bus],
    columns: Sequence[str] | None,
    *,
    choice: Choice | None = None,
    data_phases: bool = False,
    rules: Sequence[str] | None = None,
    bus_mhz: Sequence[int | None] | None = None,
    whole: bool = False,
    most_phases: int | None = None,
) -> Iterator[_kernel.Part]:
    """Decode some buses of one capture and give their transactions in parts.

    Parameters
    ----------
    buses : sequence of Bus
        Of one capture.
    columns : sequence of str or None
        Columns of transactions that are wanted, or all; those of `choice` come with them.
    choice : Choice, optional
        Which transactions go on.
    data_phases : bool
        Whether the parts have data phases.
    rules : sequence of str, optional
        Ids of rules; where one is broken is a problem of the part, and its kind is the rule's id. Changes of INTA# to
        INTD# and LOCK# are among the problems then, as ``event``.
    bus_mhz : sequence of int or None, optional
        33 or 66, of each bus: whose limits CLK has to keep.
    whole : bool
        Leave it to the caller to choose: the parts have all transactions, and the columns that `choice` needs.
    most_phases : int, optional
        No more data phases of each transaction: one may go on and on.

    Raises
    ------
    WiringError
        The buses are in several captures.
    """
    choice = choice or Choice()
    capture = buses[0].capture
    if any(bus.capture is not capture for bus in buses):
        names = ", ".join(bus.name for bus in buses)
        raise WiringError(f"{capture.path}: the buses {names} are in several captures; name one with --bus")
    wanted = None if columns is None else [*columns, *(name for name in choice.columns if name not in columns)]
    specs = [bus.spec for bus in buses]
    judging = {} if rules is None else {"rules": list(rules), "bus_mhz": bus_mhz, "events": True}
    has_data = data_phases or choice.needs_data
    # Where only `choice` needs them, it is to name targets by what configuration accesses moved.
    most = most_phases if data_phases else DWORDS
    for part in capture.decoder.parts(specs, wanted, has_data, most_phases=most, **judging):
        chosen = part if whole else choice.of(part)
        if len(chosen) or len(part) == 0:
            yield chosen
