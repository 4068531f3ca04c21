"""A capture judged by the rules: which were kept, broken by which transactions, or could not be evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.columns import Integers, integers, strings
from pcitrace.decode import to_arrow
from pcitrace.instrument.causes import Cause, Look, look, of_accesses, of_lines
from pcitrace.instrument.names import Names
from pcitrace.instrument.rules import FIRST, Masks, Result, Rule, State, Violation, catalogue, seen, select

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["Found", "Judged", "Judging", "check", "judge", "judging"]

_UNGRANTED = 0.1
"""From this share of transactions without any GNT# on, that of an agent is taken to be missing (rule A03)."""

_SLOWEST_66_NS = 29.0
"""A median period of CLK from here on is judged as 33 MHz."""

MASKED = "masked"
"""Why a rule is not evaluated that nobody asked for."""

_AFTERWARDS = 2
"""Clocks after a transaction that still speak of it: PERR#, released lines."""


@dataclass(frozen=True)
class Judged:
    """Violations of one bus.

    Attributes
    ----------
    violations : pyarrow.Table
        ``rule``, ``clk``, ``time_us``, ``asserted``, ``asserted_before``, ``value``, ``transaction``, ``initiator``,
        ``target``.
    counts : dict of str to int
        Of each rule, also those that the table no longer has.
    seen : Look
        Clocks that were judged, transactions, and how often each control line was asserted.
    causes : list of Cause
        What is wrong with where accesses go.
    """

    violations: pa.Table
    counts: Mapping[str, int]
    seen: Look
    causes: list[Cause]

    def result(self, rule: Rule, excepted: Sequence[tuple[str | None, str | None]]) -> Result:
        """What was found of one rule; `excepted` are initiators and targets whose violations do not count."""
        if not self.counts[rule.id]:
            return Result(rule, State.OK)
        rows = self.violations.filter(pc.equal(self.violations["rule"], rule.id))
        kept = rows.num_rows
        for initiator, target in excepted:
            mine = pa.array(np.ones(rows.num_rows, dtype=bool))
            for name, value in (("initiator", initiator), ("target", target)):
                if value is not None:
                    mine = pc.and_(mine, pc.fill_null(pc.equal(rows[name], value), False))
            rows = rows.filter(pc.invert(mine))
        count = self.counts[rule.id] - (kept - rows.num_rows)
        if not count:
            return Result(rule, State.OK)
        first = [
            Violation(
                one["clk"],
                one["time_us"],
                one["transaction"],
                one["initiator"],
                one["target"],
                rule.sentence,
                seen(one["asserted"], one["asserted_before"], one["value"], rule.id),
            )
            for one in rows.slice(0, FIRST).to_pylist()
        ]
        return Result(rule, State.VIOLATED, count, None, first, _counted(rows["initiator"]), _counted(rows["target"]))


class Found(list[Result]):
    """What a capture says of every rule, in the order of the catalogue.

    Attributes
    ----------
    causes : list of Cause
        What is wrong where no rule says it, what was seen first before the rest.
    """

    causes: list[Cause]


@dataclass(frozen=True)
class Judging:
    """How a bus is to be judged, by a first look at it.

    Attributes
    ----------
    rules : dict of str to str or None
        All ids; None where the rule is evaluated, else why it is not.
    bus_mhz : int or None
        33 or 66: whose limits CLK has to keep.
    causes : list of Cause
        What is wrong with the lines themselves.
    """

    rules: dict[str, str | None]
    bus_mhz: int | None
    causes: list[Cause]

    @property
    def wanted(self) -> list[str]:
        """The rules that are evaluated and told."""
        return [id for id, reason in self.rules.items() if reason is None]

    @property
    def possible(self) -> list[str]:
        """The rules that are evaluated; some are masked, and what the decoder says of the same is not told either."""
        return [id for id, reason in self.rules.items() if reason in (None, MASKED)]


def judging(bus: Bus, masks: Masks | None = None, bus_mhz: int | None = None) -> Judging:
    """Tell which rules can be evaluated on a bus, and look at the beginning of the capture for what is wrong with it.

    Parameters
    ----------
    bus : pcitrace.Bus
    masks : Masks, optional
        Which rules count; default: all.
    bus_mhz : int, optional
        33 or 66: whose limits CLK has to keep; default: by its period.
    """
    masks = masks or select()
    reasons = {id: _missing(rule, bus, masks) for id, rule in catalogue().items()}
    if bus_mhz is None and bus.clock_mhz is not None:
        bus_mhz = 33 if 1e3 / bus.clock_mhz >= _SLOWEST_66_NS else 66
    causes = []
    if not bus.capture.decoder.together:
        # A pipe is read once, and has no beginning to look at first.
        possible = [id for id, rule in catalogue().items() if _missing(rule, bus, select()) is None]
        seen = look(bus, possible, bus_mhz)
        causes = of_lines(bus, seen, possible, bus_mhz)
        reasons["A03"] = reasons["A03"] or _no_grants(seen)
    return Judging(reasons, bus_mhz, causes)


def _no_grants(seen: Look) -> str | None:
    """Why nothing can be said about GNT# before an address phase."""
    if seen.ungranted < max(3, _UNGRANTED * seen.address_phases):
        return None
    return f"{seen.ungranted} of {seen.address_phases} transactions have no GNT#: that of an agent was not captured"


def check(
    bus: Bus,
    masks: Masks | None = None,
    *,
    bus_mhz: int | None = None,
    grants: Mapping[str, str] | None = None,
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
    found = judge(bus, how.wanted, how.bus_mhz, grants)
    reasons = dict(how.rules)
    if found.seen.clocks == 0:
        reasons = {
            id: reason or "no idle clock was captured, so no clock can be judged" for id, reason in reasons.items()
        }
    reasons["A03"] = reasons["A03"] or _no_grants(found.seen)
    results = Found(
        Result(rule, State.NOT_EVALUATED, reason=reasons[id])
        if reasons[id]
        else found.result(rule, [(i, t) for excepted, i, t in masks.excepted if excepted == id])
        for id, rule in catalogue().items()
    )
    # Where a line lies, so does everything that is read by it.
    results.causes = how.causes or sorted(found.causes, key=lambda cause: cause.time_us)
    return results


def _missing(rule: Rule, bus: Bus, masks: Masks) -> str | None:
    """Why a rule cannot be evaluated on a bus, or is not to be."""
    if rule.id not in masks.rules:
        return MASKED
    if rule.id == "E01" and (bus.capture.clock_mhz is not None or bus.capture.decoder.options["recover_clock"]):
        return "state mode: every sample is a clock" if bus.capture.clock_mhz is not None else "CLK was recovered"
    lines = set(bus.lines)
    grants = sorted(line for line in lines if line.startswith("GNT"))
    parts = {
        "AD": [f"AD{n}" for n in range(32)],
        "C/BE#": [f"CBE{n}#" for n in range(4)],
        "GNT#": grants or ["GNT#"],
        "REQ#": [line.replace("GNT", "REQ", 1) for line in grants] or ["REQ#"],
    }
    missing = [need for need in rule.needs if not set(parts.get(need, [need])) <= lines]
    if "REQ#" in missing and any(line in lines for line in parts["REQ#"]):
        # The agents whose REQ# is there are judged.
        missing.remove("REQ#")
    if missing:
        return f"{', '.join(missing)} not captured"
    if rule.id == "A03" and len(grants) == 1:
        return f"only {grants[0]} was captured, not those of the others"
    return None


def judge(bus: Bus, rules: Sequence[str], bus_mhz: int | None, grants: Mapping[str, str] | None) -> Judged:
    """Evaluate rules in the pass that decodes; a rule's violations get the transaction in which they lie."""
    decoder = bus.capture.decoder
    has_address = any(line.startswith("AD") for line in bus.lines)
    columns = ["transaction", "start_us", "start_clk", "clocks", "command", "address", "initiator", "termination"]
    decoded = decoder.judge(bus.spec, rules, bus_mhz, columns, data_phases=has_address)
    transactions = to_arrow(decoded.transactions)
    names = Names(grants)
    if has_address:
        names.learn(transactions, to_arrow(decoded.data_phases))
    found = to_arrow(decoded.violations)
    row = _rows(integers(found, "clk"), integers(transactions, "start_clk"), integers(transactions, "clocks"))
    at = pa.array(row, mask=row < 0)
    code, lines = strings(transactions, "initiator")
    called = pa.DictionaryArray.from_arrays(
        pa.array(code, mask=code < 0), pa.array([names.initiator(line) for line in lines], pa.string())
    )
    violations = (
        found.append_column("transaction", at)
        .append_column("initiator", called.cast(pa.string()).take(at))
        .append_column("target", names.targets(transactions, everywhere=True).cast(pa.string()).take(at))
    )
    told = decoded.judged
    return Judged(violations, told["counts"], Look(**told), of_accesses(names, transactions) if has_address else [])


def _rows(clk: Integers, start: Integers, clocks: Integers) -> Integers:
    """The transaction that each clock lies in or shortly after; -1 for none."""
    row = np.searchsorted(start, clk, side="right") - 1
    ends = (start + clocks)[row] if len(start) else np.zeros(len(clk), dtype=np.int64)
    return np.where((row >= 0) & (clk < ends + _AFTERWARDS), row, -1)


def _counted(column: pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(column.drop_null()).to_pylist()
    return {one["values"]: one["counts"] for one in sorted(counted, key=lambda one: -one["counts"])}
