"""The values in a condition: what kind each is, and how Arrow compares two of them and calculates with them exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.schema import COMMAND_NAMES, Column

__all__ = ["Kind", "Operand", "arithmetic", "compare", "constant", "of_column", "word"]


class Kind(StrEnum):
    """What a value is."""

    TRUTH = "truth value"
    TEXT = "text"
    WHOLE = "whole number"
    """A column of unsigned integers, or a constant."""
    SUM = "calculated whole number"
    """An Arrow decimal: exact, and of any sign."""
    REAL = "number"


_WHOLE_DIGITS = 20  # of 2**64 - 1
_DECIMAL128_DIGITS = 38
_DECIMAL256_DIGITS = 76
_NUMBERS = (Kind.WHOLE, Kind.SUM, Kind.REAL)

_EXACT: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_BITS: Mapping[str, tuple[Callable[[int, int], int], str]] = {
    "&": (operator.and_, "bit_wise_and"),
    "|": (operator.or_, "bit_wise_or"),
    "^": (operator.xor, "bit_wise_xor"),
    "<<": (operator.lshift, "shift_left"),
    ">>": (operator.rshift, "shift_right"),
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A value in a condition.

    Attributes
    ----------
    kind : Kind
    expression : pyarrow.compute.Expression
    digits : int
        Most digits of a whole number.
    constant : bool, int, float, str or None
        Its value where it is the same in every row.
    number : int or None
        Of a word that stands for a number beside numbers: a command's.
    column : str
        Of a column: its name.
    """

    kind: Kind
    expression: Any
    digits: int = _WHOLE_DIGITS
    constant: bool | int | float | str | None = None
    number: int | None = None
    column: str = ""


def of_column(column: Column) -> Operand:
    """The operand of a column."""
    field = pc.field(column.name)
    if column.dtype == "string":
        return Operand(Kind.TEXT, field, column=column.name)
    if column.dtype == "bool":
        return Operand(Kind.TRUTH, field)
    if column.dtype == "double":
        return Operand(Kind.REAL, field)
    if column.dtype.startswith("uint"):
        return Operand(Kind.WHOLE, field.cast(pa.uint64()), column=column.name)
    return Operand(Kind.SUM, field.cast(pa.decimal128(_WHOLE_DIGITS, 0)))


def constant(value: bool | int | float | str) -> Operand:
    """The operand of a value that stands in the condition."""
    if isinstance(value, bool):
        return Operand(Kind.TRUTH, pc.scalar(value), constant=value)
    if isinstance(value, str):
        return Operand(Kind.TEXT, pc.scalar(value), constant=value)
    if isinstance(value, float):
        return Operand(Kind.REAL, pc.scalar(value), constant=value)
    if 0 <= value < 1 << 64:
        return Operand(Kind.WHOLE, pc.scalar(pa.scalar(value, pa.uint64())), len(str(value)), value)
    digits = len(str(abs(value)))
    if digits > _DECIMAL128_DIGITS:
        raise ValueError(f"a number of more than {_DECIMAL128_DIGITS} digits is too large")
    return Operand(Kind.SUM, pc.scalar(pa.scalar(Decimal(value), pa.decimal128(digits, 0))), digits, value)


def word(name: str, number: int | None) -> Operand:
    """The operand of a name that stands for itself, or beside numbers for its number."""
    return Operand(Kind.TEXT, pc.scalar(name), constant=name, number=number)


def compare(left: Operand, op: Callable[[Any, Any], Any], right: Operand) -> Any:
    """The Arrow expression of a comparison; TypeError where the two cannot be compared."""
    left, right = _as_number(left, right), _as_number(right, left)
    if left.kind is right.kind is Kind.TRUTH:
        if op not in (operator.eq, operator.ne):
            raise TypeError("true and false have no order; use == or !=")
        return op(left.expression, right.expression)
    if left.kind is right.kind and left.kind is not Kind.SUM:
        return op(left.expression, right.expression)
    if left.kind in _NUMBERS and right.kind in _NUMBERS:
        if Kind.REAL in (left.kind, right.kind):
            return op(_real(left), _real(right))
        return op(*_decimals(left, right, max(left.digits, right.digits)))
    raise TypeError(f"a {left.kind} cannot be compared with a {right.kind}")


def _as_number(value: Operand, beside: Operand) -> Operand:
    """A command's name beside a number as its number."""
    if value.kind is not Kind.TEXT or value.constant is None or beside.kind not in _NUMBERS:
        return value
    if value.number is not None:
        return constant(value.number)
    if beside.column == "command" and value.constant in COMMAND_NAMES:
        return constant(COMMAND_NAMES.index(str(value.constant)))
    return value


def arithmetic(left: Operand, sign: str, right: Operand) -> Operand:
    """What two numbers give; TypeError, ValueError or ZeroDivisionError where that cannot be.

    Sums, differences and products of whole numbers are exact, a quotient is a float64; bits and remainders are taken
    of columns and constants.
    """
    for value in (left, right):
        if value.kind not in _NUMBERS:
            raise TypeError(f"{sign} needs numbers, and this is a {value.kind}")
    if sign in ("/", "//", "%") and right.constant == 0:
        raise ZeroDivisionError("division by zero")
    if sign == "/":
        return _quotient(left, right)
    if sign in _EXACT:
        return _exact(left, sign, right)
    if Kind.WHOLE is not left.kind or Kind.WHOLE is not right.kind:
        raise TypeError(f"{sign} takes columns of whole numbers and whole numbers from 0 to 2**64 - 1")
    return _remainder(left, sign, right) if sign in ("//", "%") else _bits(left, sign, right)


def _quotient(left: Operand, right: Operand) -> Operand:
    if left.constant is not None and right.constant is not None:
        return constant(float(left.constant) / float(right.constant))
    return Operand(Kind.REAL, pc.divide(_real(left), _real(right)))


def _exact(left: Operand, sign: str, right: Operand) -> Operand:
    op = _EXACT[sign]
    if left.constant is not None and right.constant is not None:
        return constant(op(left.constant, right.constant))
    if Kind.REAL in (left.kind, right.kind):
        return Operand(Kind.REAL, op(_real(left), _real(right)))
    digits = left.digits + right.digits if sign == "*" else max(left.digits, right.digits)
    return Operand(Kind.SUM, op(*_decimals(left, right, digits + 1)), digits + 1)


def _bits(left: Operand, sign: str, right: Operand) -> Operand:
    op, function = _BITS[sign]
    if sign in ("<<", ">>") and not (isinstance(right.constant, int) and right.constant < 64):
        raise ValueError(f"{sign} takes a number of bits below 64")
    if isinstance(left.constant, int) and isinstance(right.constant, int):
        return constant(op(left.constant, right.constant))
    return Operand(Kind.WHOLE, getattr(pc, function)(left.expression, right.expression))


def _remainder(left: Operand, sign: str, right: Operand) -> Operand:
    if not isinstance(right.constant, int):
        raise TypeError(f"{sign} takes a number behind it, no column")
    if isinstance(left.constant, int):
        return constant(left.constant // right.constant if sign == "//" else left.constant % right.constant)
    # Both are not negative, so cutting off is rounding down.
    floor = pc.divide(left.expression, right.expression)
    return Operand(Kind.WHOLE, floor if sign == "//" else left.expression - floor * right.expression)


def _real(value: Operand) -> Any:
    return value.expression if value.kind is Kind.REAL else value.expression.cast(pa.float64(), safe=False)


def _decimals(left: Operand, right: Operand, digits: int) -> tuple[Any, Any]:
    """Two whole numbers as Arrow decimals wide enough for a result of so many digits."""
    if digits > _DECIMAL256_DIGITS:
        raise ValueError("the result may have too many digits; make the numbers smaller first, or divide")
    kind = pa.decimal128 if digits <= _DECIMAL128_DIGITS else pa.decimal256
    first, second = (
        (value.expression.cast(pa.decimal128(_WHOLE_DIGITS, 0)) if value.kind is Kind.WHOLE else value.expression).cast(
            kind(value.digits, 0)
        )
        for value in (left, right)
    )
    return first, second
