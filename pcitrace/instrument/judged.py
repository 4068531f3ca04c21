"""A capture judged by the rules: which were kept, broken by which transactions, or could not be evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.columns import Booleans, Integers, floats, integers, strings
from pcitrace.decode import progress, to_arrow
from pcitrace.errors import DecodeError
from pcitrace.instrument.accesses import Accesses
from pcitrace.instrument.causes import Cause, Look
from pcitrace.instrument.configspace import DWORDS
from pcitrace.instrument.exceptions import excepted
from pcitrace.instrument.judging import judging, no_grants, not_kept
from pcitrace.instrument.names import Names
from pcitrace.instrument.rules import (
    FIRST,
    Masks,
    Parameters,
    Result,
    Rule,
    State,
    Violation,
    catalogue,
    seen,
    select,
    why_not,
)

if TYPE_CHECKING:
    from pcitrace import _kernel
    from pcitrace.run import Bus
    from pcitrace.streaming import Stream

__all__ = ["Found", "Judged", "check", "check_stream", "judge"]

_ROW = ("transaction", "start_clk", "clocks", "command", "address", "initiator")
"""What is looked at of a transaction to tell who broke a rule."""

_AFTERWARDS = 2
"""Clocks after a transaction that still speak of it: PERR#, released lines."""


_TYPES = {
    "transaction": pa.int64(), "start_clk": pa.int64(), "clocks": pa.int64(), "command": pa.uint8(),
    "address": pa.uint64(), "initiator": pa.string(),
}  # fmt: skip


class Found(list[Result]):
    """What a capture says of every rule, in the order of the catalogue.

    Attributes
    ----------
    causes : list of Cause
        What is wrong where no rule says it, what was seen first before the rest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.causes: list[Cause] = []


@dataclass(frozen=True)
class Judged:
    """Violations of one bus.

    Attributes
    ----------
    violations : pyarrow.Table
        ``rule``, ``clk``, ``time_us``, ``asserted``, ``asserted_before``, ``value``, ``transaction``, ``grant`` (the
        GNT# line), ``initiator`` and ``target`` (by name).
    counts : dict of str to int
        Of each rule, also those that the table no longer has.
    seen : Look
        Clocks that were judged, transactions, and how often each control line was asserted.
    causes : list of Cause
        What is wrong with where accesses go.
    unit_ns : float or None
        How long a sample or tick of the capture is.
    """

    violations: pa.Table
    counts: Mapping[str, int]
    seen: Look
    causes: list[Cause]
    unit_ns: float | None = None

    def results(self, reasons: Mapping[str, str | None], masks: Masks, lines: Sequence[str]) -> Found:
        """What was found of all rules on a bus with these lines; `reasons` say why some are not evaluated."""
        if self.seen.clocks == 0:
            no_clock = "no idle clock was captured, so no clock can be judged"
            reasons = {id: reason or no_clock for id, reason in reasons.items()}
        reasons = {**reasons, "A03": reasons["A03"] or no_grants(self.seen)}
        unknowable = not_kept(self.seen, lines)
        left_out = excepted(masks, self.violations)
        with_exceptions = {id for id, *_ in masks.excepted}
        found = Found()
        for id, rule in catalogue().items():
            reason = reasons[id]
            if reason is not None:
                found.append(Result(rule, State.NOT_EVALUATED, reason=reason))
                continue
            result = self._result(rule, left_out, id in with_exceptions)
            if result.state is State.OK and id in unknowable:
                result = Result(rule, State.NOT_EVALUATED, reason=unknowable[id])
            found.append(result)
        return found

    def _result(self, rule: Rule, left_out: Booleans, with_exceptions: bool) -> Result:
        """What was found of one rule; violations that are left out do not count."""
        of_rule = np.asarray(pc.equal(self.violations["rule"], rule.id), dtype=bool)
        rows = self.violations.filter(pa.array(of_rule & ~left_out))
        kept = np.count_nonzero(of_rule)
        count, reason = rows.num_rows, None
        if more := self.counts[rule.id] - kept:
            # Of a stream: its masks are not known while violations come.
            if with_exceptions:
                left = f"{kept - count} of the first {kept} violations are excepted"
                reason = f"{left}, and of {more} more it is not known whose they are"
            else:
                count += more
        if not count:
            return Result(rule, State.OK if reason is None else State.NOT_EVALUATED, reason=reason)
        first = [
            Violation(
                one["clk"],
                one["time_us"],
                one["transaction"],
                one["initiator"],
                one["target"],
                rule.sentence,
                seen(one["asserted"], one["asserted_before"], one["value"], rule.id, self.unit_ns),
            )
            for one in rows.slice(0, FIRST).to_pylist()
        ]
        initiators, targets = _counted(rows["initiator"]), _counted(rows["target"])
        return Result(rule, State.VIOLATED, count, reason, first, initiators, targets, rows.num_rows)


def check(
    bus: Bus,
    masks: Masks | None = None,
    *,
    bus_mhz: int | None = None,
    grants: Mapping[str, str] | None = None,
    parameters: Parameters | None = None,
) -> Found:
    """Judge every clock of a bus by the rules.

    Parameters
    ----------
    bus : pcitrace.Bus
    masks : Masks, optional
        Which rules count; default: all.
    bus_mhz : int, optional
        33 or 66: whose limits CLK has to keep; default: by its period.
    grants : mapping of str to str, optional
        GNT# line -> name of the initiator.
    parameters : Parameters, optional
        What the specification leaves open.

    Returns
    -------
    Found
        A Result for each rule, in the order of the catalogue, and causes beyond the rules.

    Notes
    -----
    Rules rest until the first idle clock, after a gap, and while RST# is asserted or a control line has no known level.
    """
    masks = masks or select()
    how = judging(bus, masks, bus_mhz)
    # Whose violations are left out has to be known of each of them.
    every = sorted({id for id, *_ in masks.excepted})
    found = judge(bus, how.wanted, how.bus_mhz, grants, parameters, every)
    results = found.results(how.rules, masks, bus.lines)
    # Where a line lies, so does everything that is read by it.
    results.causes = how.causes or sorted(found.causes, key=lambda cause: cause.time_us)
    return results


def check_stream(live: Stream, masks: Masks | None = None) -> dict[str, Found]:
    """Tell how the rules were kept by what was fed to a stream so far.

    Parameters
    ----------
    live : pcitrace.Stream
        Made with ``rules=True``.
    masks : Masks, optional
        Which rules count; default: all.

    Returns
    -------
    dict of str to Found
        By bus. The first violations have their transactions and the GNT# that began these; who is addressed is not
        known of a stream.

    Raises
    ------
    DecodeError
        The stream does not judge.
    """
    masks = masks or select()
    told = live.judged()
    if not told:
        raise DecodeError("the stream does not judge its clocks; make it with pcitrace.stream(..., rules=True)")
    clock = "state mode: every sample is a clock" if live.options["clock_mhz"] is not None else None
    if live.options["bus_mhz"] is None:
        clock = clock or "the stream was not told whose limits CLK has to keep (bus_mhz)"
    found = {}
    for bus, (violations, counts) in zip(live.buses, told, strict=True):
        held = live.holders[bus].rows if live.holders else {}
        none = (None, None)
        rows = [held.get(clk, none) for clk in integers(violations, "clk").tolist()] if held else []
        rows = rows or [none] * violations.num_rows
        violations = (
            violations.append_column("transaction", pa.array([number for number, _ in rows], pa.int64()))
            .append_column("grant", pa.array([grant for _, grant in rows], pa.string()))
            .append_column("initiator", pa.array([grant for _, grant in rows], pa.string()))
            .append_column("target", pa.nulls(violations.num_rows, pa.string()))
        )
        reasons = {id: why_not(rule, live.lines[bus], masks, clock) for id, rule in catalogue().items()}
        of_bus = Judged(violations, counts["counts"], Look(**counts), [], _unit_ns(None, live.options["rate_hz"]))
        found[bus] = of_bus.results(reasons, masks, live.lines[bus])
    return found


def _unit_ns(tick_s: float | None, rate_hz: float | None) -> float | None:
    """How long a tick is, or a sample."""
    if tick_s is not None:
        return tick_s * 1e9
    return None if rate_hz is None else 1e9 / rate_hz


def judge(
    bus: Bus,
    rules: Sequence[str],
    bus_mhz: int | None,
    grants: Mapping[str, str] | None,
    parameters: Parameters | None = None,
    every: Sequence[str] = (),
) -> Judged:
    """Evaluate rules in the pass that decodes; a rule's violations get the transaction in which they lie.

    The first 20,000 of a rule are kept, of the rules in `every` all.
    """
    stated = None if parameters is None else (parameters.repeat_within, parameters.clock_tolerance)
    look = _Pass(bus, Names(grants))
    columns = [*_ROW, "start_us", "termination"]
    decoded = look.judge(rules, bus_mhz, columns, every, stated)
    found = to_arrow(decoded.violations)
    holders = look.holders(integers(found, "clk"))
    names = look.names
    code, lines = strings(holders, "initiator")
    called = pa.array([names.initiator(line) for line in lines], pa.string())
    violations = (
        found.append_column("transaction", holders["transaction"])
        .append_column("grant", holders["initiator"])
        .append_column("initiator", called.take(pa.array(code, mask=code < 0)))
        .append_column("target", names.targets(holders, everywhere=True).cast(pa.string()))
    )
    told = decoded.judged
    assert told is not None  # rules were asked for
    causes = look.accesses.causes(names, look.placed_us) if look.has_address else []
    return Judged(violations, told["counts"], Look(**told), causes, _unit_ns(bus.capture.tick_s, bus.capture.rate_hz))


_KEPT = 1 << 21
"""Transactions of which some columns are kept, 80 MB at most, so that the capture need not be read twice."""


class _Pass:
    """Goes through a capture in parts, and once more for who is who where rules were broken.

    Some columns of a part are kept for that: of few transactions, and of a pipe, which gives its samples once.

    Attributes
    ----------
    names : Names
    accesses : Accesses
        What is wrong with where accesses go.
    placed_us : dict
        When the transactions began that say where windows are.
    has_address : bool
    """

    def __init__(self, bus: Bus, names: Names) -> None:
        self._bus = bus
        self._decoder = bus.capture.decoder
        self._kept: list[pa.Table] | None = []
        self.names = names
        self.accesses = Accesses()
        self.placed_us: dict[int, float] = {}
        self.has_address = any(line.startswith("AD") for line in bus.lines)

    def judge(
        self,
        rules: Sequence[str],
        bus_mhz: int | None,
        columns: Sequence[str],
        every: Sequence[str],
        parameters: tuple[int, float] | None,
    ) -> _kernel.Decoded:
        """Judge every clock; learn where windows are, and look at where accesses go."""
        parts = self._decoder.parts(
            [self._bus.spec],
            columns,
            self.has_address,
            most_phases=DWORDS,
            rules=rules,
            keep_violations=True,
            every=every,
            bus_mhz=[bus_mhz],
            parameters=parameters,
            problems=False,
        )
        end_us = (self._bus.capture.duration_s or 0.0) * 1e6
        count = 0
        with progress(f"check {self._decoder.path.name}") as report:
            for part in parts:
                rows = to_arrow(part.transactions)
                if self.has_address and rows.num_rows:
                    start_us = floats(rows, "start_us")
                    if report is not None and end_us:
                        report(min(float(start_us[-1]) / end_us, 1.0))
                    self.accesses.add(rows)
                    first = integers(rows, "transaction")[0]
                    for access in self.names.place(rows, to_arrow(part.data_phases)):
                        self.placed_us[access.transaction] = float(start_us[access.transaction - first])
                count += rows.num_rows
                if count > _KEPT and not self._decoder.together:
                    self._kept = None
                if self._kept is not None:
                    self._kept.append(_alone(rows))
        [decoded] = parts.decoded()
        return decoded

    def holders(self, clk: Integers) -> pa.Table:
        """The transaction in which each of these clocks lies or shortly after which, with nulls where in none.

        Who is who is learned as these are looked for.
        """
        order = np.argsort(clk, kind="stable")
        ascending = clk[order]
        row, found, count = np.full(len(clk), -1), [], 0
        for rows in self._rows() if len(clk) or self.names.windows else ():
            if self.has_address:
                self.names.watch(rows)
            start, clocks = integers(rows, "start_clk"), integers(rows, "clocks")
            near = slice(*np.searchsorted(ascending, [start[0], start[-1] + clocks[-1] + _AFTERWARDS]))
            if near.start == near.stop:
                continue
            holds = _holders(ascending[near], start, clocks)
            wanted = np.unique(holds[holds >= 0])
            row[near] = np.where(holds >= 0, count + np.searchsorted(wanted, holds), -1)
            found.append(rows.take(pa.array(wanted)))
            count += len(wanted)
        back = np.empty_like(row)
        back[order] = row
        table = pa.concat_tables(found) if found else pa.table({name: pa.nulls(0, _TYPES[name]) for name in _ROW})
        return table.take(pa.array(back, mask=back < 0))

    def _rows(self) -> Iterator[pa.Table]:
        """The transactions again, in parts."""
        if self._kept is not None:
            yield from (rows for rows in self._kept if rows.num_rows)
            return
        for part in self._decoder.parts([self._bus.spec], _ROW, problems=False):
            if len(part):
                yield to_arrow(part.transactions)


def _alone(rows: pa.Table) -> pa.Table:
    """What is looked at of transactions, in memory of its own: all columns of a part lie in one piece."""
    few = rows.select(_ROW).take(pa.array(np.arange(rows.num_rows)))
    return few.set_column(few.column_names.index("initiator"), "initiator", few["initiator"].dictionary_encode())


def _holders(clk: Integers, start: Integers, clocks: Integers) -> Integers:
    """The row that each clock lies in or shortly after; -1 for none."""
    row = np.searchsorted(start, clk, side="right") - 1
    return np.where((row >= 0) & (clk < (start + clocks)[row] + _AFTERWARDS), row, -1)


def _counted(column: pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(column.drop_null()).to_pylist()
    return {one["values"]: one["counts"] for one in sorted(counted, key=lambda one: -one["counts"])}
