"""The rules of the bus as data, which of them count, and what a capture says of one.

The catalogue is ``rules.toml``; the kernel evaluates the rules on every clock in the pass that decodes.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pcitrace.errors import ConfigurationError

__all__ = [
    "MASKED", "Masks", "Parameters", "Result", "Rule", "State", "Violation", "catalogue", "seen", "select", "why_not",
]  # fmt: skip

FIRST = 100
"""Places that are told of one rule; all are counted."""

MASKED = "masked"
"""Why a rule is not evaluated that nobody asked for."""

_NOT_KNOWN = 1 << 7
_LINES = ("FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#")


class State(StrEnum):
    """What is known of a rule."""

    OK = "ok"
    VIOLATED = "violated"
    NOT_EVALUATED = "not_evaluated"


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes
    ----------
    id : str
        ``M07``: M of initiators, T of targets, A of arbitration, P of parity, W of 64 bits, L of LOCK#, E of the clock.
    sentence : str
        What holds on a bus.
    section : str
        Of the PCI Local Bus Specification 2.3.
    needs : tuple of str
        Lines without which it is not evaluated.
    note : str
        What the specification says beyond the sentence, or where the rule can mislead.
    """

    id: str
    sentence: str
    section: str
    needs: tuple[str, ...]
    note: str = ""


@cache
def catalogue() -> dict[str, Rule]:
    """All rules by their ids."""
    text = (resources.files("pcitrace.instrument") / "rules.toml").read_text(encoding="utf-8")
    return {
        id: Rule(id, one["sentence"], one["section"], tuple(one["needs"]), one.get("note", ""))
        for id, one in tomllib.loads(text).items()
    }


@dataclass(frozen=True)
class Violation:
    """One place where a rule was broken."""

    clk: int
    time_us: float
    transaction: int | None
    initiator: str | None
    target: str | None
    expected: str
    seen: str


@dataclass(frozen=True)
class Result:
    """What a capture says of one rule.

    Attributes
    ----------
    rule : Rule
    state : State
    count : int
        Violations; 0 where it was not evaluated.
    reason : str or None
        Why it was not evaluated.
    first : list of Violation
        The first of them, 100 at most.
    initiators, targets : dict of str to int
        How many violations each has, of those that were kept; unknown ones are left out.
    kept : int
        Of so many of them it is known whose they are: of the first 20,000, of a rule with exceptions of all.
    """

    rule: Rule
    state: State
    count: int = 0
    reason: str | None = None
    first: list[Violation] = field(default_factory=list)
    initiators: dict[str, int] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    kept: int = 0

    def as_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {
            "id": self.rule.id,
            "state": str(self.state),
            "count": self.count,
            "reason": self.reason,
            "needs": list(self.rule.needs),
            "initiators": self.initiators,
            "targets": self.targets,
            "kept": self.kept,
            "first": [vars(one) for one in self.first],
        }


@dataclass(frozen=True)
class Masks:
    """Which rules count.

    Attributes
    ----------
    rules : frozenset of str
        The ids that are evaluated.
    excepted : tuple of (str, str or None, str or None)
        Rule, initiator (its GNT# line or its name), target: violations that do not count; None for any.
    """

    rules: frozenset[str]
    excepted: tuple[tuple[str, str | None, str | None], ...] = ()


@dataclass(frozen=True)
class Parameters:
    """What the specification leaves open.

    Attributes
    ----------
    repeat_within : int
        M23: after so many other transactions of its initiator a retried access was given up, and the next one to the
        same address is another. The specification wants it repeated until it completes; test benches give up.
    clock_tolerance : float
        E01: so much shorter than the limit, as a share, is not told: a nominal 33.33 MHz is a few ppm faster than 33.
    """

    repeat_within: int = 16
    clock_tolerance: float = 1e-3


def why_not(rule: Rule, captured: Sequence[str], masks: Masks, clock: str | None) -> str | None:
    """Why a rule cannot be evaluated on a bus with these lines, or is not to be; `clock`: why CLK cannot be judged."""
    if rule.id not in masks.rules:
        return MASKED
    if rule.id == "E01" and clock is not None:
        return clock
    lines = set(captured)
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
    if rule.id in ("A01", "A02", "A03") and len(grants) == 1:
        return f"only {grants[0]} was captured, not those of the others"
    return None


def select(rules: Sequence[str] | None = None, ignore: Sequence[str] = (), file: Path | None = None) -> Masks:
    """Choose rules by id, or by what ids begin with (``M``, ``P0``).

    Parameters
    ----------
    rules : sequence of str, optional
        Only these, ``all`` for all; default: what the file says, else all.
    ignore : sequence of str
        None of these, besides those of the file.
    file : pathlib.Path, optional
        A bench's own masks: ``rules``, ``ignore``, and ``[[except]]`` with ``rule``, ``initiator``, ``target``.

    Raises
    ------
    ConfigurationError
        There is no such rule.
    """
    from pcitrace import configuration

    said: dict[str, Any] = {} if file is None else configuration.load(file, "instrument/rule-masks.schema.json")
    where = "--rules" if file is None else str(file)
    wanted = _ids(rules, "--rules") if rules is not None else _ids(said.get("rules", [""]), where)
    unwanted = _ids(ignore, "--ignore") | _ids(said.get("ignore", []), where)
    excepted = [
        (id, one.get("initiator"), one.get("target"))
        for one in said.get("except", [])
        for id in sorted(_ids([one["rule"]], where))
    ]
    return Masks(frozenset(wanted - unwanted), tuple(excepted))


def _ids(texts: Iterable[str], where: str) -> set[str]:
    known = catalogue()
    found: set[str] = set()
    for text in texts:
        named = {id for id in known if text == "all" or id.startswith(text.upper())}
        if not named:
            near = difflib.get_close_matches(text.upper(), known, n=4, cutoff=0.3) or list(known)[:4]
            raise ConfigurationError(f"{where}: there is no rule {text}; the nearest are {', '.join(near)}", where)
        found |= named
    return found


_BROKEN: Mapping[str, str] = {
    "M16": "REQ# asserted",
    "M17": "GNT# gone since the clock after the address",
    "A02": "another GNT# than in the clock before",
    "A03": "no GNT# in the clock before",
    "A06": "REQ# and GNT# asserted for 17 clocks",
    "P04": "PERR# asserted",
    "P05": "SERR# asserted",
    "L01": "LOCK# asserted",
    "L02": "LOCK# asserted",
    "L03": "LOCK# asserted",
}
"""What other lines than the control lines show wherever such a rule is broken."""
_FOLLOWS = {"W01": "REQ64#", "W02": "ACK64#"}
_REPEATED = ("command", "byte enables", "data")
"""What M23 found changed, by bit."""


def seen(asserted: int, before: int, value: int | None, rule: str, unit_ns: float | None = None) -> str:
    """What the lines showed, in words; a sample or tick of the capture takes so many ns."""
    now, then = (
        " ".join(name for n, name in enumerate(_LINES) if word >> n & 1) or "none" for word in (asserted, before)
    )
    if rule == "E01":
        long = f"{value} samples or ticks" if value is None or unit_ns is None else f"{value * unit_ns:.6g} ns"
        return f"{long} between edges of CLK"
    text = f"asserted: {now}" if before & _NOT_KNOWN else f"asserted: {now}; the clock before: {then}"
    if rule in _BROKEN:
        return f"{_BROKEN[rule]}; {text}"
    if value is None:
        return text
    if rule in _FOLLOWS:
        return f"{_FOLLOWS[rule]} {'asserted' if value else 'not asserted'}; {text}"
    if rule == "M23":
        return f"other {' and '.join(name for bit, name in enumerate(_REPEATED) if value >> bit & 1)}; {text}"
    if rule == "M14":
        return f"C/BE# {value >> 4:04b} -> {value & 15:04b}; {text}"
    if rule in ("M18", "M19"):
        return f"C/BE# {value:04b}; {text}"
    if rule in ("M15", "T14"):
        return f"bits {value:08x} of AD changed; {text}"
    if rule in ("P01", "P02", "P03"):
        line = "PAR64" if value >> 1 else "PAR"
        return f"{line} in the next clock is {value & 1}, even parity needs {~value & 1}; {text}"
    if rule == "A01":
        return f"{value.bit_count()} GNT# asserted; {text}"
    return text
