"""Moments of a capture, as users state them: ``1.5ms``, ``3000clk``, ``120000sample``; and the rows between two."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from pcitrace.errors import ConditionError
from pcitrace.instrument.conditions import Condition, condition
from pcitrace.schema import Table

__all__ = ["AROUND_US", "Moment", "Unit", "around", "between", "bounds", "duration_us", "moment"]

AROUND_US = 10.0
"""How far ``--around`` looks either way unless told: some 300 clocks of 33 MHz, a screen of transactions."""

_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6, "": 1.0}
_TEXT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zµμ]*)\s*")


class Unit(StrEnum):
    """What a moment counts; the value is the column of `transactions` that has it."""

    TIME = "start_us"
    CLOCK = "start_clk"
    SAMPLE = "start_sample"


_COUNTED = {
    **dict.fromkeys(("clk", "clks", "clock", "clocks"), Unit.CLOCK),
    **dict.fromkeys(("sample", "samples"), Unit.SAMPLE),
}
_TIMES = {
    "bursts": ("start_us",),
    "pieces": ("start_us",),
    "csr_accesses": ("first_attempt_us",),
    "data_phases": ("time_us",),
    "frames": ("dma_start_us", "csr_first_us", "wire_start_us", "rx_dma_start_us"),
}
"""The columns that place the rows of other tables in time: the first that is known does."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in a capture: microseconds from its start, or a number of a clock or sample."""

    value: float
    unit: Unit

    def __str__(self) -> str:
        return f"{self.value:.17g}" if self.unit is Unit.TIME else f"{int(self.value)}"


def moment(text: str) -> Moment:
    """Read a moment; a bare number is microseconds. ConditionError if it is none."""
    found = _TEXT.fullmatch(text)
    if found is None or found[2] not in {**_US, **_COUNTED}:
        raise ConditionError(
            f"{text!r} is no moment: write a number with ns, us, ms, s, clk or sample, such as 1.5ms or 3000clk", text
        )
    if found[2] in _US:
        return Moment(float(found[1]) * _US[found[2]], Unit.TIME)
    if not found[1].isdigit():
        raise ConditionError(f"{text!r} is no moment: clocks and samples are whole numbers", text)
    return Moment(int(found[1]), _COUNTED[found[2]])


def duration_us(text: str) -> float:
    """Read a length of time in us; ConditionError if it is none."""
    found = moment(text)
    if found.unit is not Unit.TIME:
        raise ConditionError(f"{text!r} is no length of time: write a number with ns, us, ms or s, such as 5us", text)
    return found.value


def between(table: Table, start: Moment | None, stop: Moment | None) -> Condition | None:
    """The condition that a row begins at `start` or later and before `stop`; None where neither is given."""
    limits = ((start, ">="), (stop, "<"))
    parts = [_placed(_columns(table, limit), f"{sign} {limit}") for limit, sign in limits if limit is not None]
    return condition(" and ".join(parts), table) if parts else None


def around(table: Table, text: str) -> Condition:
    """The condition that a row begins near a moment: ``1.5ms``, or ``1.5ms,50us`` for 50 us either way."""
    low_us, high_us = _near_us(text)
    whole = between(table, Moment(low_us, Unit.TIME), Moment(high_us, Unit.TIME))
    assert whole is not None  # both limits were given
    return whole


def bounds(
    start: str | None, stop: str | None, near: str | None, sample_us: float | None = None
) -> tuple[tuple[float, float], tuple[float, float]]:
    """From when to when, in us and in clocks; samples where it is known how long one is, else they leave nothing."""
    if near is not None:
        return _near_us(near), (0.0, math.inf)
    us, clks = [0.0, math.inf], [0.0, math.inf]
    for end, limit in enumerate(moment(text) if text is not None else None for text in (start, stop)):
        if limit is None:
            continue
        if limit.unit is Unit.CLOCK:
            clks[end] = limit.value
        elif limit.unit is Unit.TIME:
            us[end] = limit.value
        elif sample_us is None:
            us = [0.0, 0.0]
        else:
            # Between two samples: a time is rounded.
            us[end] = (limit.value - 0.5) * sample_us
    return (us[0], us[1]), (clks[0], clks[1])


def _near_us(text: str) -> tuple[float, float]:
    at, _, reach = text.partition(",")
    middle = moment(at)
    if middle.unit is not Unit.TIME:
        raise ConditionError(f"{text!r}: --around takes a time, such as 1.5ms or 1.5ms,50us", text)
    reach_us = duration_us(reach) if reach else AROUND_US
    return max(middle.value - reach_us, 0.0), middle.value + reach_us


def _columns(table: Table, limit: Moment) -> tuple[str, ...]:
    """The columns that place a row of the table on the scale of the limit."""
    if limit.unit in table.column_names:
        return (limit.unit,)
    if limit.unit is Unit.TIME and table.name in _TIMES:
        return _TIMES[table.name]
    raise ConditionError(f"{table.name} cannot be chosen by {limit.unit.name.lower()}; use --where", str(limit))


def _placed(columns: tuple[str, ...], limit: str) -> str:
    """The text of the condition that the first known of some columns keeps a limit."""
    first, rest = columns[0], columns[1:]
    return f"{first} {limit}" if not rest else f"({first} {limit} or {first} is None and {_placed(rest, limit)})"
