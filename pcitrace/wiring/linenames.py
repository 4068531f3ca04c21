"""What PCI line the name of a channel means: ``A_FRAME#``, ``pc1.frame_n``, ``C/BE[3:0]``, ``nIRDY`` ...

Line names are those of the PCI specification, written one way: active-low lines end in ``#``
(``FRAME#``, ``CBE0#``), numbered lines carry their number (``AD31``), arbitration lines the number or the name of their
agent (``GNT2#``, ``REQ_NIC#``, ``IDSEL0``). ``TXEN``, ``TXCLK`` and ``TXDATA0`` ... are the wire behind a NIC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pcitrace.printable import printable

__all__ = [
    "AGENT_LINES",
    "MINIMUM_LINES",
    "LineName",
    "describe_lines",
    "normal_active_low",
    "parse_name",
]

MINIMUM_LINES = ("CLK", "FRAME#", "IRDY#", "TRDY#")
"""Without these four nothing can be decoded."""

_PLAIN = {
    **{name: f"{name}#" for name in ("RST", "FRAME", "IRDY", "TRDY", "DEVSEL", "STOP", "LOCK", "PERR", "SERR")},
    **{name: f"{name}#" for name in ("REQ64", "ACK64", "INTA", "INTB", "INTC", "INTD")},
    **{name: name for name in ("CLK", "PAR", "PAR64", "TXEN", "TXCLK")},
    # Spellings seen on probes and in published figures.
    "DEVSL": "DEVSEL#",
    "PCICLK": "CLK",
    "TX_EN": "TXEN",
    "TX_CLK": "TXCLK",
}
_NUMBERED = {"AD": ("AD", "", 64), "CBE": ("CBE", "#", 8), "TXD": ("TXDATA", "", 8), "TXDATA": ("TXDATA", "", 8)}
AGENT_LINES = {"GNT": "#", "REQ": "#", "IDSEL": ""}
"""Lines that exist once an agent, and the suffix of their names."""

_MOST_BITS = 64
"""No vector of PCI lines has more."""

_NOT = r"\#|\*|-|~|_?N|_L|_BAR"
_NAME = re.compile(
    rf"""
    (?P<prefix>(?:.*?[_:/\-\s\\])??)
    (?P<not0>N_?|[/!~])?
    (?:(?P<plain>{"|".join(sorted(_PLAIN, key=len, reverse=True))})
     |(?P<numbered>AD|C[/_]?BE|TX_?DATA|TX_?D)
     |(?P<agent_line>GNT|REQ|IDSEL))
    (?P<not1>{_NOT})?
    (?(plain)|(?:_?(?P<number>\d{{1,9}})|_(?P<agent>[A-Z][A-Z0-9_]*?))?)
    (?P<not2>{_NOT})?
    (?:\s*[\[(<](?P<left>\d{{1,9}})(?:(?::|\.\.)(?P<right>\d{{1,9}}))?[\])>])?
    (?P<not3>{_NOT})?
    """,
    re.IGNORECASE | re.VERBOSE,
)


_RANGE = re.compile(r"[\[(<]\d+(?:(?::|\.\.)\d+)?[\])>][^.\[\](<>)]*$")


@dataclass(frozen=True, slots=True)
class LineName:
    """One line that a channel carries.

    Attributes
    ----------
    group : tuple of str
        What tells one bus of a capture from another: the scopes above the name and its prefix.
    line : str
        The line, such as ``FRAME#`` or ``AD7``.
    bit : int
        Bit of the channel, 0 the least significant.
    active_low : bool
        Polarity as the name says it.
    """

    group: tuple[str, ...]
    line: str
    bit: int
    active_low: bool


def normal_active_low(line: str) -> bool:
    """Whether a line is active low on the bus: those whose name ends in ``#`` are."""
    return line.endswith("#")


def describe_lines() -> str:
    """All line names in one sentence, for messages."""
    plain = " ".join(dict.fromkeys(_PLAIN.values()))
    return f"{plain} AD0-AD63 CBE0#-CBE7# TXDATA0-TXDATA7, and GNT REQ IDSEL with an agent (GNT2#, REQ_NIC#)"


def parse_name(name: str, width: int = 1) -> list[LineName]:
    """Read the name of a channel.

    Parameters
    ----------
    name : str
        With its scopes, joined by points, as far as it has any: ``top.pc1.AD[31:0]``.
    width : int
        Number of bits of the channel; 1 for a wire.

    Returns
    -------
    list of LineName
        One a bit, from bit 0; empty if the name is not that of a PCI or wire line.

    Examples
    --------
    >>> parse_name("A_FRAME#")
    [LineName(group=('A',), line='FRAME#', bit=0, active_low=True)]
    >>> [line.line for line in parse_name("top.pci.CBE[3:0]", 4)]
    ['CBE0#', 'CBE1#', 'CBE2#', 'CBE3#']
    >>> parse_name("MISO")
    []
    """
    # Points of a range and brackets of a scope (`slot[0].AD[31..0]`) part nothing.
    ranged = _RANGE.search(name)
    stem = name[: ranged.start()] if ranged else name
    scope, _, leaf = stem.rpartition(".")
    match = _NAME.fullmatch(leaf.strip() + name[len(stem) :].rstrip())
    if match is None:
        return []
    part = match.groupdict()
    prefix = part["prefix"].strip("_:/- \t\\!~")
    group = (*(scope.split(".") if scope else ()), *([prefix] if prefix else ()))
    # Buses are called after it, and what they are called is printed, written and asked for.
    group = tuple(map(printable, group))
    inverted = any(part[key] for key in ("not0", "not1", "not2", "not3"))
    lines = _lines(part, width)
    return [LineName(group, line, bit, inverted or normal_active_low(line)) for bit, line in enumerate(lines)]


def _lines(part: dict[str, str | None], width: int) -> list[str]:
    """Lines that the bits of a channel carry, from bit 0; empty if range and width do not make sense for the line."""
    if part["plain"]:
        return [_PLAIN[part["plain"].upper()]] if width == 1 and part["left"] is None else []
    if part["numbered"]:
        base, suffix, count = _NUMBERED[re.sub(r"[/_]", "", part["numbered"].upper())]
        numbers = _numbers(part, width)
        if base == "TXDATA" and width == 1 and part["number"] is part["left"] is None:
            numbers = [0]  # a serial wire has no number
        if part["agent"] or not numbers or max(numbers) >= count:
            return []
        return [f"{base}{number}{suffix}" for number in numbers]
    base = str(part["agent_line"]).upper()
    if part["agent"]:
        return [f"{base}_{part['agent']}{AGENT_LINES[base]}"] if width == 1 and part["left"] is None else []
    if width == 1 and part["number"] is None and part["left"] is None:
        return [f"{base}{AGENT_LINES[base]}"]
    return [f"{base}{number}{AGENT_LINES[base]}" for number in _numbers(part, width)]


def _numbers(part: dict[str, str | None], width: int) -> list[int]:
    """Line numbers of the bits of a channel, from bit 0, which is the rightmost of a range."""
    if part["number"] is not None:
        return [int(part["number"])] if width == 1 and part["left"] is None else []
    if width > _MOST_BITS:
        return []
    if part["left"] is None:
        return list(range(width)) if width > 1 else []
    left = int(part["left"])
    right = left if part["right"] is None else int(part["right"])
    numbers = range(right, left + 1) if left >= right else range(right, left - 1, -1)
    return list(numbers) if len(numbers) == width else []
