"""Steps of a search: ``write BAR0+0x18``, ``dma read within 5us``, or any condition.

A step is words or a condition (:mod:`pcitrace.instrument.conditions`), and ``within TIME`` behind either: how soon
after the step before. Words are told from conditions by there being nothing else: each of them is a kind of command, a
place, or a termination.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcitrace.errors import ConditionError
from pcitrace.instrument.conditions import condition
from pcitrace.instrument.moments import duration_us
from pcitrace.instrument.stream import TARGET, TRANSACTIONS
from pcitrace.schema import COMMAND_NAMES, Column, Table, Termination

if TYPE_CHECKING:
    from pcitrace.instrument.conditions import Condition

__all__ = ["PLACED", "Step", "step"]

WINDOW = Column("window", "string", "", "Base address register that holds the address: `BAR0`.", True)
OFFSET = Column("offset", "uint64", "bytes", "From where that register places its window.", True)
REGISTER = Column(
    "register", "string", "", "Register there, as a profile or register file names it; of configuration, its own.", True
)
DMA = Column("dma", "bool", "", "Whether it goes to memory outside all windows, and not from the host.", True)

PLACED = Table("transactions", TRANSACTIONS.row, (*TRANSACTIONS.columns, WINDOW, OFFSET, REGISTER, DMA))
"""What steps are about: transactions, with what is known of their places."""

_KINDS = {
    "read": "command in (io_read, memory_read, config_read, memory_read_multiple, memory_read_line)",
    "write": "command in (io_write, memory_write, config_write, memory_write_invalidate)",
    "config": "command in (config_read, config_write)",
    "io": "command in (io_read, io_write)",
    "memory": "command in (memory_read, memory_write, memory_read_multiple, memory_read_line, memory_write_invalidate)",
    "dma": "dma",
}
_CONFIGURATION = frozenset({"config", "config_read", "config_write"})
_WITHIN = re.compile(r"(.*?)\s+within\s+(\S+\s*[a-zµ]*)\s*", re.DOTALL)
_PLACE = re.compile(r"(?:(\w[\w:.]*)[.:])?(BAR[0-5]|ROM)(?:\+(0[xX][0-9a-fA-F]+|\d+))?")
_ADDRESS = re.compile(r"0[xX][0-9a-fA-F]+|[0-9a-f]{8}|[0-9a-f]{16}")
"""Also as the listing writes it."""
_WORD = re.compile(r"[A-Za-z_][\w.:+-]*|[\da-f]{2}:[01][\da-f]\.[0-7]")


@dataclass(frozen=True)
class Step:
    """One step of a search.

    Attributes
    ----------
    text : str
        As it was written.
    condition : Condition
        On :data:`PLACED`.
    within_us : float or None
        Most time since the step before.
    """

    text: str
    condition: Condition
    within_us: float | None = None


def step(text: str, devices: Sequence[str] = (), registers: Sequence[str] = ()) -> Step:
    """Read a step.

    Parameters
    ----------
    text : str
        Words or a condition, and how soon after the step before.
    devices, registers : sequence of str
        Names that words may be.

    Raises
    ------
    ConditionError
        It is neither; the message says what is allowed.
    """
    found = _WITHIN.fullmatch(text)
    what, within_us = (found[1], duration_us(found[2])) if found else (text, None)
    words = what.split()
    configuring = not _CONFIGURATION.isdisjoint(words)
    parts = [_word(word, devices, registers, configuring) for word in words]
    if parts and None not in parts:
        return Step(text, condition(" and ".join(f"({part})" for part in parts), PLACED), within_us)
    try:
        return Step(text, condition(what, PLACED), within_us)
    except ConditionError as error:
        strange = [word for word, part in zip(words, parts, strict=True) if part is None]
        if len(strange) == len(words) or any(not (_WORD.fullmatch(word) or _PLACE.fullmatch(word)) for word in words):
            raise
        names = ", ".join([*_KINDS, *devices, *registers])
        raise ConditionError(
            f"step {text!r}: {strange[0]!r} is none of the words {names}, a command, a termination, an address, "
            f"or a place such as BAR0+0x18; a condition is allowed, too",
            text,
        ) from error


def _word(word: str, devices: Sequence[str], registers: Sequence[str], configuring: bool) -> str | None:
    """The condition that one word stands for; None if it is no such word.

    Beside `config` a base address register is meant itself, not its window.
    """
    if word in _KINDS:
        return _KINDS[word]
    if word in COMMAND_NAMES:
        return f"command == {word}"
    if word in list(Termination):
        return f"termination == '{word}'"
    if word in devices:
        return f"{TARGET.name} == {word!r}"
    if word in registers:
        return f"register == {word!r}"
    if _ADDRESS.fullmatch(word):
        return f"address == {int(word, 16)}"
    place = _PLACE.fullmatch(word)
    if place is None or (place[1] is not None and place[1] not in devices):
        return None
    parts = [f"{'register' if configuring else 'window'} == '{place[2]}'"]
    if place[3] is not None:
        parts.append(f"offset == {int(place[3], 0)}")
    if place[1] is not None:
        parts.append(f"{TARGET.name} == {place[1]!r}")
    return " and ".join(parts)
