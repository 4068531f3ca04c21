"""Causes that no rule names: lines that are not what they say they are.

A stuck or inverted line breaks rule after rule, none of which is the point. So the control lines are looked at by
themselves, and where little is right the bus is judged once more with each of them inverted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pcitrace.errors import DecodeError

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["Cause", "Look", "look", "of_lines"]

CONTROL = ("FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#")
"""The lines that the kernel counts, in its order."""

_SAMPLES = 1 << 16
_US = 200.0
"""How far a first look goes: so many samples, or so much time of a capture of changes; milliseconds of work."""

_FURTHER = 16
"""So many times as far where CLK does not run yet."""

_FEW = 64
"""Clocks; of fewer nothing is said about a line."""

_BAD = 0.02
"""Broken rules a clock from which on the lines themselves are doubted. The worst test bench of the reference traces has
0.004; an inverted line gives 0.1 and more."""

_BETTER = 0.1
"""A line is called inverted if inverting it leaves no more than this share of the broken rules."""

_WRONG = 0.9
"""Address phases with bad parity, as a share of all, from which on a line is taken to be inverted, not disturbed."""


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
    unjudged : mapping of str to int
        Places of a rule that could not be judged, because whose they are or whether it asked is not known.
    """

    counts: Mapping[str, int]
    clocks: int
    address_phases: int
    ungranted: int
    census: Mapping[str, Any]
    unjudged: Mapping[str, int] = field(default_factory=dict)

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
    """Judge the beginning of a capture; `spec` is another wiring than the bus has.

    Where CLK does not run yet, as of a machine that is switched on, or of a part of a capture with the times of the
    whole, it looks on until it does.
    """
    capture = bus.capture
    tick_s = capture.tick_s or 1e-12
    until = _SAMPLES if capture.sample_count is not None else int(_US * 1e-6 / tick_s)
    end = capture.sample_count or int((capture.duration_s or 0.0) / tick_s)
    while True:
        try:
            decoded = capture.decoder.judge(
                spec or bus.spec, rules, bus_mhz, ["transaction"], data_phases=False, until=until
            )
        except DecodeError:
            if until >= end:
                raise
        else:
            seen = Look(**decoded.judged)
            if until >= end or seen.census["clocks"] >= _FEW:
                return seen
        until *= _FURTHER


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
