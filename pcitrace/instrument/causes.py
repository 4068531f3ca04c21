"""Causes that no rule names: lines that are not what they say they are, accesses that nobody answers.

A stuck or inverted line breaks rule after rule, none of which is the point. So the control lines are looked at by
themselves, and where little is right the bus is judged once more with each of them inverted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pcitrace.columns import Integers, floats, integers, strings
from pcitrace.instrument.names import Names

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["Cause", "Look", "look", "of_accesses", "of_lines"]

CONTROL = ("FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#")
"""The lines that the kernel counts, in its order."""

_SAMPLES = 1 << 19
_US = 2000.0
"""How far a first look goes: so many samples, or so much time of a capture of changes; milliseconds of work."""

_FEW = 64
"""Clocks; of fewer nothing is said about a line."""

_BAD = 0.02
"""Broken rules a clock from which on the lines themselves are doubted. The worst test bench of the reference traces has
0.004; an inverted line gives 0.1 and more."""

_BETTER = 0.1
"""A line is called inverted if inverting it leaves no more than this share of the broken rules."""

_WRONG = 0.9
"""Address phases with bad parity, as a share of all, from which on a line is taken to be inverted, not disturbed."""

PERSISTENT = 64
"""Attempts of one access from which on it is taken never to be completed; the listing has the same number."""


@dataclass(frozen=True)
class Cause:
    """What is wrong, where no rule says it.

    Attributes
    ----------
    kind : str
        ``line_inverted``, ``line_stuck``, ``line_silent``, ``parity_line``, ``unclaimed``, ``overlap``,
        ``never_completed``.
    time_us : float
        Where it was seen first.
    count : int
        How often.
    text : str
    """

    kind: str
    time_us: float
    count: int
    text: str

    def as_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return vars(self)


@dataclass(frozen=True)
class Look:
    """What judging a capture counts.

    Attributes
    ----------
    counts : mapping of str to int
        Broken rules.
    clocks, address_phases, ungranted : int
        Clocks that were judged; transactions, and those without any GNT#.
    census : mapping
        ``clocks``, and by control line ``asserted`` and ``changes``.
    """

    counts: Mapping[str, int]
    clocks: int
    address_phases: int
    ungranted: int
    census: Mapping[str, Any]

    @property
    def broken(self) -> float:
        """Broken rules of initiators and targets, a clock."""
        count = sum(count for id, count in self.counts.items() if id[0] in "MT")
        return count / max(int(self.census["clocks"]), 1)

    @property
    def judged(self) -> float:
        """Share of the clocks that could be judged."""
        return self.clocks / max(int(self.census["clocks"]), 1)


def look(bus: Bus, rules: Sequence[str], bus_mhz: int | None, spec: Mapping[str, Any] | None = None) -> Look:
    """Judge the beginning of a capture; `spec` is another wiring than the bus has."""
    capture = bus.capture
    until = _SAMPLES if capture.sample_count is not None else int(_US * 1e-6 / (capture.tick_s or 1e-12))
    decoded = capture.decoder.judge(spec or bus.spec, rules, bus_mhz, ["transaction"], data_phases=False, until=until)
    return Look(**decoded.judged)


def of_lines(bus: Bus, seen: Look, rules: Sequence[str], bus_mhz: int | None) -> list[Cause]:
    """What is wrong with the lines themselves, by a first look at the bus."""
    clocks = seen.census["clocks"]
    if clocks < _FEW:
        return []
    asserted = dict(zip(CONTROL, seen.census["asserted"], strict=True))
    captured = [line for line in CONTROL if line in bus.lines]
    stuck = [line for line in captured if asserted[line] == clocks]
    if stuck:
        text = "is asserted in every clock: it is stuck low, or its probe is on ground or inverted"
        return [Cause("line_stuck", 0.0, clocks, f"{line} {text}") for line in stuck]
    inverted = _inverted(bus, seen, captured, rules, bus_mhz)
    if inverted is not None:
        text = "looks inverted: with the other polarity the bus keeps the rules; say so in the wiring"
        return [Cause("line_inverted", 0.0, clocks, f"{inverted} {text}")]
    return [*_silent(seen, captured, asserted), *_parity(seen)]


def _silent(seen: Look, captured: Sequence[str], asserted: Mapping[str, int]) -> list[Cause]:
    """Lines that never do what the others show must be done."""
    clocks = seen.census["clocks"]
    found = []
    begun = asserted["FRAME#"] > 0
    never = "is never asserted: its probe has no contact, or nobody drives it"
    if not begun and asserted["IRDY#"]:
        found.append(f"FRAME# {never}")
    if begun and not asserted["IRDY#"]:
        found.append(f"IRDY# {never}")
    if "DEVSEL#" in captured and not asserted["DEVSEL#"] and asserted["TRDY#"]:
        found.append(f"DEVSEL# {never}")
    if "DEVSEL#" in captured and seen.address_phases and asserted["DEVSEL#"] and not asserted["TRDY#"]:
        refused = "STOP#" in captured and asserted["STOP#"]
        if not refused:
            found.append("TRDY# is never asserted, though transactions are claimed: no contact, or no target completes")
    return [Cause("line_silent", 0.0, clocks, text) for text in found]


def _parity(seen: Look) -> list[Cause]:
    """All parity wrong: not the data is."""
    wrong = seen.counts["P01"]
    if wrong < 8 or wrong < _WRONG * seen.address_phases:
        return []
    text = (
        f"parity is wrong in {wrong} of {seen.address_phases} address phases: PAR or a line of AD or C/BE# is inverted"
    )
    return [Cause("parity_line", 0.0, wrong, text)]


def _inverted(bus: Bus, seen: Look, captured: Sequence[str], rules: Sequence[str], bus_mhz: int | None) -> str | None:
    """The control line with whose other polarity nearly all rules are kept; None where the bus is well as it is."""
    if seen.broken < _BAD and seen.judged > 0.5:
        return None
    best, least = None, _BETTER * max(seen.broken, _BAD)
    for line in captured:
        channel, bit, active_low = bus.spec["lines"][line]
        other = {**bus.spec, "lines": {**bus.spec["lines"], line: (channel, bit, not active_low)}}
        turned = look(bus, rules, bus_mhz, other)
        if turned.broken < least and turned.judged > 0.9 and turned.address_phases:
            best, least = line, turned.broken
    return best


def of_accesses(names: Names, transactions: pa.Table) -> list[Cause]:
    """What is wrong with where accesses go.

    Parameters
    ----------
    names : Names
        Learned from these transactions.
    transactions : pyarrow.Table
        With ``transaction``, ``start_us``, ``command``, ``address``, ``initiator``, ``termination``.
    """
    start_us = floats(transactions, "start_us")
    return [
        *_overlaps(names, start_us),
        *_unclaimed(names, transactions, start_us),
        *_unanswered(transactions, start_us),
    ]


def _overlaps(names: Names, start_us: Any) -> list[Cause]:
    """Windows of two base address registers that were in the same place at the same time."""
    found = []
    for n, one in enumerate(names.windows):
        for other in names.windows[:n]:
            since = max(one.since, other.since)
            together = all(window.until is None or since < window.until for window in (one, other))
            apart = one.base >= other.base + other.size or other.base >= one.base + one.size
            same = (one.device, one.name) == (other.device, other.name)
            if one.space == other.space and together and not apart and not same:
                time_us = float(start_us[since]) if since < len(start_us) else 0.0
                text = (
                    f"{one.device} {one.name} at {one.base:08x} ({one.size} bytes) overlaps "
                    f"{other.device} {other.name} at {other.base:08x} ({other.size} bytes)"
                )
                found.append(Cause("overlap", time_us, 1, text))
    return found


def _unclaimed(names: Names, transactions: pa.Table, start_us: Any) -> list[Cause]:
    """Accesses to memory and I/O that nobody claimed, by the page that they lie in."""
    if not names.windows:
        return []
    command, address = integers(transactions, "command"), integers(transactions, "address")
    code, terminations = strings(transactions, "termination")
    aborted = code == (terminations.index("master_abort") if "master_abort" in terminations else -2)
    rows = np.flatnonzero(aborted & np.isin(command, (2, 3, 6, 7, 0xC, 0xE, 0xF)) & (address >= 0))
    window, _ = names.locate(transactions)
    found = []
    pages, first, counts = np.unique(address[rows] >> 12, return_index=True, return_counts=True)
    for _, nth, count in zip(pages, first, counts, strict=True):
        row = int(rows[nth])
        at = f"nobody claims {int(address[row]):08x}"
        if window[row] >= 0:
            one = names.windows[window[row]]
            text = f"{at}, though {one.device} {one.name} covers it: is the device enabled to answer?"
        else:
            near = min(names.windows, key=lambda one: _away(one.base, one.size, int(address[row])))
            last = near.base + near.size - 1
            text = (
                f"{at}: no base address register covers it; nearest is {near.device} {near.name}, "
                f"{near.base:08x} to {last:08x}"
            )
        found.append(Cause("unclaimed", float(start_us[row]), int(count), text))
    return found


def _away(base: int, size: int, address: int) -> int:
    return max(base - address, address - (base + size - 1), 0)


def _unanswered(transactions: pa.Table, start_us: Any) -> list[Cause]:
    """Accesses that were retried again and again, and nothing else until the end."""
    code, terminations = strings(transactions, "termination")
    if "retry" not in terminations:
        return []
    retried = code == terminations.index("retry")
    command, address = integers(transactions, "command"), integers(transactions, "address")
    who, _ = strings(transactions, "initiator")
    known = (command >= 0) & (address >= 0)
    rows = np.flatnonzero(known)
    order = rows[np.lexsort((rows, address[rows], command[rows], who[rows]))]
    key: Integers = np.stack([who[order], command[order], address[order]])
    ends = np.flatnonzero(np.append((key[:, 1:] != key[:, :-1]).any(axis=0), True)) if len(order) else order
    place = np.arange(len(order))
    other = np.maximum.accumulate(np.where(retried[order], -1, place)) if len(order) else place
    begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    first = np.maximum(other[ends] + 1, begins) if len(ends) else ends
    found = []
    for begin, end in zip(first, ends, strict=True):
        count = int(end - begin) + 1
        if count >= PERSISTENT:
            row = order[begin]
            name = COMMANDS.get(int(command[row]), "access")
            text = f"never completed: {name} {int(address[row]):08x} was retried {count} times"
            found.append(Cause("never_completed", float(start_us[row]), count, text))
    return found


COMMANDS = {
    0x2: "io read", 0x3: "io write", 0x6: "memory read", 0x7: "memory write", 0xA: "config read", 0xB: "config write",
    0xC: "memory read multiple", 0xE: "memory read line", 0xF: "memory write and invalidate",
    0x0: "interrupt acknowledge",
}  # fmt: skip
