"""The condition language: the rows that pandas chooses, exact integers, and errors that name the place."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcitrace
from pcitrace import schema
from pcitrace.cli import main
from pcitrace.errors import ConditionError
from pcitrace.instrument.conditions import condition
from pcitrace.instrument.moments import around, between, duration_us, moment

FIXTURES = Path(__file__).parent.parent / "fixtures"
VCD = FIXTURES / "traces" / "blue33_seq6" / "bus.vcd.gz"

TABLE = schema.Table(
    "things",
    "One thing.",
    (
        schema.Column("count", "uint64", "", "Never null."),
        schema.Column("address", "uint64", "", "May be null.", True),
        schema.Column("small", "uint8", "", "May be null.", True),
        schema.Column("time_us", "double", "us", "May be null.", True),
        schema.Column("flag", "bool", "", "May be null.", True),
        schema.Column("kind", "string", "", "May be null.", True),
    ),
)
KINDS = ("retry", "completion", "x")


def table(rows: list[dict[str, object]]) -> pa.Table:
    fields = [pa.field(column.name, pa.type_for_alias(column.dtype)) for column in TABLE.columns]
    return pa.Table.from_pylist(rows, pa.schema(fields))


numbers = st.integers(0, 40)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "count": numbers,
            "address": st.none() | numbers,
            "small": st.none() | numbers,
            "time_us": st.none() | st.integers(-80, 80).map(lambda value: value / 4),
            "flag": st.none() | st.booleans(),
            "kind": st.none() | st.sampled_from(KINDS),
        }
    ),
    max_size=12,
)


def brackets(text: str) -> str:
    return f"({text})"


whole = st.sampled_from(["count", "address", "small"]) | numbers.map(str) | numbers.map(hex)
value = st.recursive(
    whole | st.sampled_from(["time_us", "-time_us", "2.5"]),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(" ".join).map(brackets),
    max_leaves=4,
)
compared = st.tuples(value, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), value).map(" ".join)
chained = st.tuples(value, st.sampled_from(["<", "<="]), whole, st.sampled_from([">", "<="]), value).map(" ".join)
texts = st.tuples(st.just("kind"), st.sampled_from(["==", "!="]), st.sampled_from([repr(kind) for kind in KINDS]))
members = st.lists(numbers, min_size=1, max_size=3).map(lambda them: f"count in ({', '.join(map(str, them))},)")
bits = st.tuples(whole, st.sampled_from(["&", "|", "^"]), whole).map(lambda three: f"({' '.join(three)}) == 8")
truth = st.recursive(
    compared | chained | texts.map(" ".join) | members | st.just("flag") | bits,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join).map(brackets)
        | inner.map(lambda one: f"(not ({one}))")
    ),
    max_leaves=5,
)


def by_pandas(text: str, rows: pa.Table) -> list[bool]:
    """What pandas chooses: nulls are nulls there too, and integers signed, so that they do not overflow."""
    frame = rows.to_pandas(types_mapper=pd.ArrowDtype)
    for name in ("count", "address", "small"):
        frame[name] = frame[name].astype("int64[pyarrow]")
    names = {name: frame[name] for name in frame}
    chosen = eval(compile(_AsPandas().visit(ast.parse(text, mode="eval")), "", "eval"), {}, names)
    if isinstance(chosen, bool | np.bool_):
        return [bool(chosen)] * len(frame)
    return chosen.astype("bool[pyarrow]").fillna(False).tolist()


class _AsPandas(ast.NodeTransformer):
    """`and`, `or`, `not`, `in` and chains as pandas wants them written."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        left, right = (self.visit(one) for one in node.values)
        return self.located(ast.BinOp(left, ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr(), right), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        inner = self.visit(node.operand)
        if not isinstance(node.op, ast.Not):
            return self.located(ast.UnaryOp(node.op, inner), node)
        return self.located(ast.BinOp(inner, ast.BitXor(), ast.Constant(True)), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [self.visit(one) for one in (node.left, *node.comparators)]
        if isinstance(node.ops[0], ast.In):
            call = ast.Call(ast.Attribute(sides[0], "isin", ast.Load()), [sides[1]], [])
            return self.located(call, node)
        links = [ast.Compare(sides[i], [op], [sides[i + 1]]) for i, op in enumerate(node.ops)]
        whole: ast.expr = links[0]
        for link in links[1:]:
            whole = ast.BinOp(whole, ast.BitAnd(), link)
        return self.located(whole, node)

    @staticmethod
    def located(made: ast.expr, node: ast.AST) -> ast.expr:
        return ast.fix_missing_locations(ast.copy_location(made, node))


@given(truth, rows)
def test_it_chooses_the_rows_that_pandas_chooses(text: str, rows: list[dict[str, object]]) -> None:
    things = table(rows)
    read = condition(text, TABLE)
    expected = by_pandas(text, things)
    assert read.fulfilled(things).tolist() == expected
    assert read.filter(things).to_pylist() == [row for row, chosen in zip(rows, expected, strict=True) if chosen]
    assert read.fulfilled(things.to_pandas(types_mapper=pd.ArrowDtype)).tolist() == expected


large = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1])


@given(large, large, st.sampled_from(["+", "-", "*"]), st.integers(-(2**66), 2**66))
def test_integers_of_64_bits_are_exact(a: int, b: int, sign: str, limit: int) -> None:
    one = table([{"count": a, "address": b}])
    for comparison in ("<", "==", ">="):
        text = f"count {sign} address {comparison} {limit}"
        expected = eval(text, {"count": a, "address": b})
        assert condition(text, TABLE).fulfilled(one).tolist() == [expected], text


@given(large, st.integers(1, 2**32))
def test_remainders_and_shifts_are_those_of_python(a: int, by: int) -> None:
    one = table([{"count": a}])
    for text in (f"count % {by} == {a % by}", f"count // {by} == {a // by}", f"count >> 3 == {a >> 3}"):
        assert condition(text, TABLE).fulfilled(one).tolist() == [True], text


def test_null_is_neither_in_nor_not_in() -> None:
    one = table([{"count": 1, "address": None}])
    for text in ("address in (1, 2)", "address not in (1, 2)", "address == None or True"):
        if "None" in text:
            with pytest.raises(ConditionError, match="is None"):
                condition(text, TABLE)
        else:
            assert condition(text, TABLE).fulfilled(one).tolist() == [False]
    assert condition("address is None and count is not None", TABLE).fulfilled(one).tolist() == [True]


def test_names_of_commands_and_terminations_stand_for_themselves() -> None:
    rows = pcitrace.open(VCD).bus.arrow("transactions")
    reads = condition("command in (config_read, config_write)", schema.TRANSACTIONS)
    names = rows["command_name"].to_pylist()
    assert reads.filter(rows).num_rows == sum(name in ("config_read", "config_write") for name in names) > 100
    for same in ("command == 10", "command == 'config_read'", "command_name == config_read"):
        assert condition(same, schema.TRANSACTIONS).filter(rows).num_rows == names.count("config_read")
    assert condition("termination == retry", schema.TRANSACTIONS).filter(rows).num_rows > 100
    assert reads.columns == {"command"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "adress > 3",
            r"character 1, 'adress': there is no column 'adress'; the nearest: address, .*columns are count",
        ),
        ("count & 1", "whole number, neither true nor false"),
        ("1/0", "division by zero"),
        ("count > 1/0", "character 9, '1/0': division by zero"),
        ("count % 0 == 1", "division by zero"),
        ("count ==", "no condition on things: at its end: invalid syntax"),
        ("", "it is empty"),
        ("__import__('os').system('true')", "not allowed here; allowed are columns, numbers"),
        ("count.real > 3", "character 1, 'count.real': this is not allowed"),
        ("[x for x in (1,)]", "not allowed"),
        ("lambda: 1", "not allowed"),
        ("count if flag else small", "not allowed"),
        ("count ** 2 > 1", "not allowed"),
        ("kind == 3", "a text cannot be compared with a whole number"),
        ("flag < True", "no order"),
        ("count in 3", "needs values in parentheses"),
        ("count in ()", "needs values in parentheses"),
        ("count << 64 > 1", "number of bits below 64"),
        ("count << small > 1", "number of bits below 64"),
        ("(count - 1) % 4 == 0", "takes columns of whole numbers"),
        ("kind + 'x' == 'yx'", "needs numbers, and this is a text"),
        ("count * count * count * count > 1", "too many digits"),
        ("count > 1" + "0" * 50, "more than 38 digits"),
        ("count > 1\0", "null"),
        ("count is 3", "asks for None only"),
        ("(" * 300 + "count" + ")" * 300, "nested"),
        ("not " * 4000 + "flag", "longer than|nested"),
        ("not " * 2400 + "flag", "nested"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        condition(text, TABLE)


def test_moments() -> None:
    assert (moment("1.5ms").value, moment("12").value, moment("3e3 ns").value) == (1500.0, 12.0, pytest.approx(3.0))
    rows = pcitrace.open(VCD).bus.transactions
    for low, high, column in (("100us", "0.2ms", "start_us"), ("3000clk", "5000clk", "start_clk")):
        chosen = between(schema.TRANSACTIONS, moment(low), moment(high))
        assert chosen is not None
        expected = rows[(rows[column] >= moment(low).value) & (rows[column] < moment(high).value)]
        assert len(expected) > 100
        assert rows[chosen.fulfilled(rows)].equals(expected)
    near = around(schema.TRANSACTIONS, "500us,20us").fulfilled(rows)
    assert near.tolist() == ((rows["start_us"] >= 480) & (rows["start_us"] < 520)).tolist()
    for wrong in ("x", "1.5 weeks", "", "-3", "1.5clk", "inf"):
        with pytest.raises(ConditionError, match="is no moment"):
            moment(wrong)
    with pytest.raises(ConditionError, match="no length of time"):
        duration_us("5clk")
    with pytest.raises(ConditionError, match="bursts cannot be chosen by clock"):
        between(schema.BURSTS, moment("5clk"), None)


def test_frames_are_placed_by_the_first_time_that_is_known() -> None:
    later = between(schema.FRAMES, moment("10"), None)
    assert later is not None
    names = ("dma_start_us", "csr_first_us", "wire_start_us", "rx_dma_start_us")
    frames = pd.DataFrame(
        [(11.0, None, None, None), (None, 9.0, 20.0, None), (None, None, None, 12.0), (None,) * 4], columns=names
    ).astype("double[pyarrow]")
    assert later.fulfilled(frames).tolist() == [True, False, True, False]


def test_where_of_a_bus() -> None:
    bus = pcitrace.open(VCD).bus
    chosen = bus.where("bytes > 8 and not perr")
    rows = bus.transactions
    assert chosen["transaction"].tolist() == rows["transaction"][(rows["bytes"] > 8) & ~rows["perr"]].tolist()
    assert len(bus.where("parity_ok", "data_phases")) == int(bus.data_phases["parity_ok"].sum())
    with pytest.raises(pcitrace.DecodeError, match="not of 'frames'"):
        bus.where("bytes > 1", "frames")


def test_where_of_a_bus_knows_devices_bursts_and_registers(capsys: pytest.CaptureFixture[str]) -> None:
    """The same rows as `--where` of the command line gives."""
    path = FIXTURES / "traces" / "nic_g_a" / "bus.vcd.gz"
    bus = pcitrace.open(path)["A"]
    for command, table, text in (
        ("decode", "transactions", "target == 'eth0' and command == config_write"),
        ("bursts", "bursts", "bytes > 300 and kind == 'receive_data'"),
        ("csr", "csr_accesses", "address == 0xe800002c"),
    ):
        assert main([command, str(path), "--bus", "A", "--json", "--where", text]) == 0
        said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        chosen = bus.where(text, table)
        assert len(chosen) > 0
        key = {"transactions": "transaction", "bursts": "burst", "csr_accesses": "first_attempt_us"}[table]
        assert chosen[key].tolist() == [row[key] for row in said]


def test_the_command_line_says_it_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [("csr", "--where", "length_bytes & 1"), ("csr", "--where", "1/0"), ("csr", "--from", "soon")]
    for command, *arguments in [*wrong, ("frames", "--from", "3clk")]:
        assert main([command, str(VCD), *arguments]) == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("pcitrace: ")
        assert captured.err.count("\n") == 1
    nonsense = [("csr", "--around", "1ms", "--to", "3"), ("list", "--from", "5us", "--to", "5us")]
    for command, *arguments in [*nonsense, ("frames", "--from", "9clk", "--to", "8clk"), ("check", "--rules", ",")]:
        with pytest.raises(SystemExit) as stop:
            main([command, str(VCD), *arguments])
        assert stop.value.code == 2
    assert main(["list", str(VCD), "--from", "5us", "--to", "9clk"]) == 0
