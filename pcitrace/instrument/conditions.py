"""The condition language: a Python expression over the columns of a table, as an Arrow expression.

The text is read with `ast` and never executed. `condition` reads one; `docs/conditions.md` explains it to users.

Integers are exact: 64-bit addresses stay integers, and arithmetic on them is done on decimals, which neither round nor
wrap. A comparison with null is null, `and`, `or` and `not` follow Kleene, and null fulfils no condition.
"""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pcitrace.errors import ConditionError
from pcitrace.instrument.operands import Kind, Operand, arithmetic, compare, constant, of_column, word
from pcitrace.schema import COMMAND_NAMES, Table, Termination

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from pcitrace.columns import Booleans

__all__ = ["ALLOWED", "WORDS", "Condition", "condition"]

ALLOWED = "columns, numbers, texts, comparisons, in (...), is None, and, or, not, + - * / // % & | ^ << >>"
"""What a condition may be made of, for messages."""

WORDS: Mapping[str, int | None] = {name: number for number, name in enumerate(COMMAND_NAMES)} | {
    str(one): None for one in Termination if str(one) not in COMMAND_NAMES
}
"""Names that stand for themselves: commands (also for their number, beside a column of numbers) and terminations."""

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_LONGEST = 10_000  # characters; nobody types more, and the parser's stack is finite


@dataclass(frozen=True)
class Condition:
    """A condition on the rows of a table.

    Attributes
    ----------
    text : str
        As it was written.
    expression : pyarrow.compute.Expression
        True, false or null for a row.
    columns : frozenset of str
        The columns that it looks at.
    """

    text: str
    expression: Any
    columns: frozenset[str]

    def filter(self, table: pa.Table) -> pa.Table:
        """Return the rows that fulfil the condition.

        By one thread: Arrow's others may hold columns that are numpy's after the result is there, and let go of them
        while the interpreter ends, which aborts the process (apache/arrow issues 34314, 45017).
        """
        import pyarrow as pa
        from pyarrow.acero import Declaration, FilterNodeOptions, TableSourceNodeOptions

        source = Declaration("table_source", TableSourceNodeOptions(table))
        chosen = Declaration("filter", FilterNodeOptions(self.expression), [source])
        try:
            return chosen.to_table(use_threads=False)
        except pa.ArrowInvalid as error:
            raise ConditionError(f"{self.text!r} cannot be worked out: {error}", self.text) from error

    def fulfilled(self, table: pa.Table | pd.DataFrame) -> Booleans:
        """Return which rows fulfil the condition, as an array of bool."""
        import numpy as np
        import pyarrow as pa

        if not isinstance(table, pa.Table):
            chosen = table[sorted(self.columns)] if self.columns else table.iloc[:, :1]
            table = pa.Table.from_pandas(chosen, preserve_index=False)
        number = pa.array(np.arange(len(table)))
        looked_at = pa.table([*(table[name] for name in sorted(self.columns)), number],
                             names=[*sorted(self.columns), ""])  # fmt: skip
        fulfilled = np.zeros(len(table), dtype=bool)
        fulfilled[self.filter(looked_at)[""].to_numpy()] = True
        return fulfilled

    def __and__(self, other: Condition | None) -> Condition:
        """Return the condition that both are fulfilled; None is fulfilled by every row."""
        if other is None:
            return self
        text = f"({self.text}) and ({other.text})"
        return Condition(text, self.expression & other.expression, self.columns | other.columns)


def condition(text: str, table: Table) -> Condition:
    """Read a condition on the rows of a table.

    Parameters
    ----------
    text : str
        A Python expression over the table's columns, such as ``0xe8000000 <= address < 0xe8001000 and not dac``.
    table : pcitrace.schema.Table
        What the columns are.

    Returns
    -------
    Condition

    Raises
    ------
    ConditionError
        It is no such expression; the message names the place and what is allowed.

    Examples
    --------
    >>> from pcitrace import schema
    >>> sorted(condition("command in (config_read, config_write) and bytes > 2", schema.TRANSACTIONS).columns)
    ['bytes', 'command']
    """
    reader = _Reader(text, table)
    expression = reader.read()
    return Condition(text, expression, frozenset(reader.columns))


class _Reader:
    """Reads one condition: a method for each kind of node that may be in it."""

    def __init__(self, text: str, table: Table) -> None:
        self.text = text
        self.code = " ".join(text.splitlines()).strip()
        self.table = table
        self.columns: set[str] = set()

    def read(self) -> Any:
        text = self.code
        if not text:
            raise self.refused(None, "it is empty")
        if len(text) > _LONGEST:
            raise self.refused(None, f"it is longer than {_LONGEST} characters")
        try:
            tree = ast.parse(text, mode="eval")
            return self.truth(tree.body)
        except SyntaxError as error:
            raise self.refused(error.offset, error.msg) from None
        except (RecursionError, MemoryError, ValueError) as error:
            why = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
            raise self.refused(None, why) from None

    def refused(self, place: ast.expr | int | None, why: str) -> ConditionError:
        """The error that says where the condition is wrong, and why."""
        where = ""
        if isinstance(place, ast.expr):
            segment = ast.get_source_segment(self.code, place) or ""
            where = f"at character {place.col_offset + 1}, {segment!r}: "
        elif isinstance(place, int):
            where = f"at character {place}: " if place else "at its end: "
        return ConditionError(f"{self.text!r} is no condition on {self.table.name}: {where}{why}", self.text)

    def truth(self, node: ast.expr) -> Any:
        """An expression that is true, false or null."""
        match node:
            case ast.BoolOp(op=ast.And() | ast.Or() as op, values=values):
                parts = [self.truth(value) for value in values]
                whole = parts[0]
                for part in parts[1:]:
                    whole = whole & part if isinstance(op, ast.And) else whole | part
                return whole
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self.truth(operand)
            case ast.Compare():
                return self.comparisons(node)
        value = self.operand(node)
        if value.kind is not Kind.TRUTH:
            raise self.refused(node, f"it is a {value.kind}, neither true nor false; compare it with something")
        return value.expression

    def comparisons(self, node: ast.Compare) -> Any:
        """A chain: every link of it holds."""
        whole = None
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            link = self.comparison(node, left, op, right)
            whole = link if whole is None else whole & link
            left = right
        return whole

    def comparison(self, node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
        match op:
            case ast.In() | ast.NotIn():
                found = self.member(left, right)
                return ~found if isinstance(op, ast.NotIn) else found
            case ast.Is() | ast.IsNot():
                if not (isinstance(right, ast.Constant) and right.value is None):
                    raise self.refused(right, "`is` asks for None only: write `is None` or `is not None`")
                missing = self.operand(left).expression.is_null()
                return ~missing if isinstance(op, ast.IsNot) else missing
        return self.compared(node, self.operand(left), _COMPARISONS[type(op)], self.operand(right))

    def member(self, left: ast.expr, right: ast.expr) -> Any:
        """Whether a value is one of several; of a null value that is not known."""
        if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
            raise self.refused(right, "`in` needs values in parentheses, such as (config_read, config_write)")
        value = self.operand(left)
        whole = None
        for element in right.elts:
            link = self.compared(element, value, operator.eq, self.operand(element))
            whole = link if whole is None else whole | link
        return whole

    def compared(self, node: ast.expr, left: Operand, op: Callable[[Any, Any], Any], right: Operand) -> Any:
        try:
            return compare(left, op, right)
        except TypeError as error:
            raise self.refused(node, str(error)) from None

    def operand(self, node: ast.expr) -> Operand:
        """A value: a column, a constant, or what is worked out from them."""
        match node:
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return constant(value)
            case ast.Constant(value=None):
                raise self.refused(node, "nothing equals None: write `is None` or `is not None`")
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=inner):
                operand = self.operand(inner)
                return self.worked_out(node, constant(0), "-", operand) if isinstance(op, ast.USub) else operand
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self.worked_out(node, self.operand(left), _ARITHMETIC[type(op)], self.operand(right))
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return Operand(Kind.TRUTH, self.truth(node))
        raise self.refused(node, f"this is not allowed here; allowed are {ALLOWED}")

    def worked_out(self, node: ast.expr, left: Operand, sign: str, right: Operand) -> Operand:
        try:
            return arithmetic(left, sign, right)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise self.refused(node, str(error)) from None

    def name(self, node: ast.expr, name: str) -> Operand:
        found = next((column for column in self.table.columns if column.name == name), None)
        if found is not None:
            self.columns.add(name)
            return of_column(found)
        if name in WORDS:
            return word(name, WORDS[name])
        near = difflib.get_close_matches(name, {*self.table.column_names, *WORDS}, 3, cutoff=0)
        columns = ", ".join(self.table.column_names)
        raise self.refused(
            node, f"there is no column {name!r}; the nearest: {', '.join(near)}; the columns are {columns}"
        )
