"""The tables are what schema.py says of them: columns, types, and which may be null."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pcitrace
from pcitrace import _kernel, schema

TRACES = Path(__file__).resolve().parent.parent / "fixtures" / "traces"
CAPTURES = ("blue33_seq6/bus.vcd.gz", "blue33_seq6/ctl_250MSs.sr", "nic_g_a/control16.sr")
DECODED = ("transactions", "data_phases", "problems", "events", "clocks")
UNITS = {"", "us", "clocks", "bytes", "samples", "MB/s", "nats"}


@pytest.fixture(scope="module", params=CAPTURES)
def bus(request: pytest.FixtureRequest) -> pcitrace.Bus:
    return next(iter(pcitrace.open(TRACES / request.param).buses.values()))


@pytest.mark.parametrize("table", DECODED)
def test_columns_and_types_are_as_documented(bus: pcitrace.Bus, table: str) -> None:
    columns = schema.TABLES[table].columns
    arrow = bus.arrow(table)
    assert [field.name for field in arrow.schema] == [column.name for column in columns]
    assert {field.name: str(field.type) for field in arrow.schema} == {column.name: column.dtype for column in columns}


@pytest.mark.parametrize("table", DECODED)
def test_only_nullable_columns_have_nulls(bus: pcitrace.Bus, table: str) -> None:
    arrow = bus.arrow(table)
    for column in schema.TABLES[table].columns:
        assert column.nullable or arrow[column.name].null_count == 0, column.name


def test_columns_without_lines_are_null_whoever_else_is_decoded() -> None:
    path = str(TRACES / CAPTURES[1])
    names = pcitrace.open(path).captures[0].channels
    lines = {name: (bit, 0, name.endswith("#")) for bit, name in enumerate(names)}
    control = ("CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#")
    few = {"name": "few", "width": None, "lines": {name: lines[name] for name in control}}
    many = {"name": "many", "width": None, "lines": lines}

    def tables(*buses: dict[str, Any]) -> list[pa.Table]:
        decoded = _kernel.decode(_kernel.open(path), list(buses), data_phases=True)
        return [pa.table(table) for bus in decoded for table in (bus.transactions, bus.data_phases)]

    together, alone = tables(few, many), tables(few) + tables(many)
    for one, other in zip(together, alone, strict=True):
        one.validate(full=True)
        assert one.num_rows > 1000
        assert one.equals(other)
    few_rows, few_phases, many_rows, many_phases = alone
    of_many = {"command", "command_name", "dac", "initiator", "perr", "serr"}
    nowhere = {"address", "address_parity_ok", "device", "idsel"}
    for table, null in [
        (few_rows, of_many | nowhere),
        (many_rows, nowhere),
        (few_phases, {"data", "byte_enables", "parity_ok"}),
        (many_phases, {"data", "parity_ok"}),
    ]:
        assert {name for name in table.column_names if table[name].null_count == table.num_rows} == null


def test_values_are_among_those_documented() -> None:
    transactions = pcitrace.open(TRACES / CAPTURES[0]).bus.transactions
    assert set(transactions["termination"]) <= set(schema.Termination)
    assert len(set(transactions["termination"])) > 4
    names = transactions["command"].map(lambda command: schema.COMMAND_NAMES[command])
    assert (names == transactions["command_name"]).all()


def test_frames_keep_arrow_types(bus: pcitrace.Bus) -> None:
    frame = bus.transactions
    for column in schema.TRANSACTIONS.columns:
        assert str(frame[column.name].dtype.pyarrow_dtype) == column.dtype, column.name


@pytest.mark.parametrize("table", schema.TABLES.values(), ids=list(schema.TABLES))
def test_every_column_is_explained(table: schema.Table) -> None:
    assert len(set(table.column_names)) == len(table.columns) > 0
    assert table.row.endswith(".")
    for column in table.columns:
        assert column.meaning.endswith("."), column.name
        assert column.unit in UNITS, column.name
        assert pa.type_for_alias(column.dtype) is not None
        assert column.name.endswith("_us") == (column.unit == "us"), column.name
