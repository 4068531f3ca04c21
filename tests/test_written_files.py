"""What is written to CSV, JSON lines and Parquet is what is in the tables, value by value, nulls included."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import buses
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import waveforms
from decoding import Tables, assert_same_rows, decode
from test_run import write_sr

from pcitrace import _kernel, schema
from pcitrace.wiring import resolve_wiring

DENSE = ["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "C/BE0#", "C/BE1#"]

TABLES = {"transactions": schema.TRANSACTIONS, "data_phases": schema.DATA_PHASES, "problems": schema.PROBLEMS}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 64-bit bus with unknown levels and illegal traffic: every kind of null and the largest numbers."""
    rng = Random(4)
    clocks = buses.disturb(buses.long_run(9, 150, wide_bus=True).clocks, rng, unknown=True, flips=40)
    changes, _ = waveforms.waves(waveforms.wires(clocks, fill=rng), rng)
    return waveforms.write_vcd(tmp_path_factory.mktemp("written") / "a.vcd", changes)


@pytest.fixture(scope="module")
def tables(source: Path) -> Tables:
    """The same in memory."""
    return decode(source)


def read(path: Path, table: schema.Table) -> list[dict]:
    """Rows of a written file; in CSV an empty field is null, but in a text column of the problems' it is text."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    kinds = {column.name: column.dtype for column in table.columns}

    def value(name: str, text: str) -> Any:
        if text == "":
            return None
        if kinds[name] == "bool":
            return {"true": True, "false": False}[text]
        return text if kinds[name] == "string" else float(text) if kinds[name] == "double" else int(text)

    with path.open(newline="") as file:
        return [{name: value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_files_equal_tables(suffix: str, source: Path, tables: Tables, tmp_path: Path) -> None:
    capture = _kernel.open(str(source))
    paths = {name: tmp_path / f"{name}.{suffix}" for name in TABLES}
    summary = _kernel.decode_to_files(
        capture, [resolve_wiring(capture.channels).bus().spec()], **{name: str(path) for name, path in paths.items()}
    )
    for name, table in TABLES.items():
        wanted = getattr(tables, name)
        assert wanted
        rows = read(paths[name], table)
        assert [*rows[0]] == [column.name for column in table.columns]
        assert_same_rows(rows, wanted)
    assert summary["PCI"]["transactions"] == len(tables.transactions)
    assert summary["PCI"]["problems"] == len(tables.problems)
    first = tables.problems[0]
    assert summary["PCI"]["first_problem"] == {name: first[name] for name in summary["PCI"]["first_problem"]}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(path.name for path in paths.values())


def test_files_of_many_chunks_equal_tables(tmp_path: Path) -> None:
    """Every chunk has a decoder of its own, whose numbers begin anew."""
    clocks = waveforms.settle(buses.long_run(5, 400).clocks, Random(3))
    sampled, _ = waveforms.timing_mode(waveforms.wires(clocks), Random(4))
    path = waveforms.write_sr(tmp_path / "a.sr", sampled, chunk_bytes=[20_000] * 6)
    capture = _kernel.open(str(path))
    written = {name: tmp_path / f"{name}.parquet" for name in ("transactions", "data_phases")}
    names = {name: str(file) for name, file in written.items()}
    _kernel.decode_to_files(capture, [resolve_wiring(capture.channels).bus().spec()], threads=3, **names)
    wanted = decode(path, threads=1)
    for name, file in written.items():
        assert_same_rows(read(file, TABLES[name]), getattr(wanted, name))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_go_on_where_several_decoders_share_a_capture(suffix: str, tmp_path: Path) -> None:
    """Of a single dense bus whole blocks of rows are written as they are, with numbers that count from each block."""
    # A clock a sample: idle, address, data.
    block = bytes([0b111111, 0b111101, 0b100011]) * 20_000
    path = write_sr(tmp_path / "dense.sr", DENSE, block, rate="33 MHz")
    with zipfile.ZipFile(path, "a") as session:
        for number in range(2, 6):
            session.writestr(f"logic-1-{number}", block)
    capture = _kernel.open(str(path))
    spec = resolve_wiring(capture.channels, {"clock_mhz": 33.0}).bus().spec()
    files = {name: tmp_path / f"{name}.{suffix}" for name in ("transactions", "data_phases")}
    written = {name: str(path) for name, path in files.items()}
    _kernel.decode_to_files(capture, [spec], **written, clock_mhz=33.0, threads=4)
    for name, file in files.items():
        numbers = pq.read_table(file) if suffix == "parquet" else pa.csv.read_csv(file)
        assert np.array_equal(numbers["transaction"].to_numpy(), np.arange(100_000)), name


@pytest.mark.parametrize("threads", [1, 3])
def test_problems_are_written_while_they_are_found(threads: int, tmp_path: Path) -> None:
    """Of two buses whose lines are noise, in many chunks: the rows of each as in memory, all in order of time."""
    lines = ("FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#")
    path = tmp_path / "noise.sr"
    probes = "".join(f"probe{bit + 1}=D{bit}\n" for bit in range(8))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "2")
        archive.writestr("metadata", f"[device 1]\ncapturefile=logic-1\nsamplerate=33 MHz\nunitsize=1\n{probes}")
        for number in range(1, 41):
            # Now and then hardly anything happens: a row that goes on for long is open while others are closed.
            quiet = b"\xff\xfd" * 1000 if number % 5 == 0 else b""
            archive.writestr(f"logic-1-{number}", Random(number).randbytes(3000) + quiet)
    capture = _kernel.open(str(path))
    specs = [
        {"name": name, "width": None, "lines": {line: ((bit + by) % 8, 0, True) for bit, line in enumerate(lines)}}
        for name, by in (("A", 0), ("B", 4))
    ]
    out = tmp_path / "problems.parquet"
    names = {"transactions": str(tmp_path / "t.parquet"), "problems": str(out)}
    summary = _kernel.decode_to_files(capture, specs, clock_mhz=33.0, threads=threads, **names)
    rows = read(out, schema.PROBLEMS)
    times = [row["time_us"] for row in rows]
    assert times == sorted(times)
    for spec, decoded in zip(specs, _kernel.decode(capture, specs, clock_mhz=33.0, threads=1), strict=True):
        wanted = pa.table(decoded.problems).to_pylist()
        assert len(wanted) > 10_000
        assert_same_rows([row for row in rows if row["bus"] == spec["name"]], wanted)
        assert summary[spec["name"]]["problems"] == len(wanted)
        assert summary[spec["name"]]["first_problem"]["time_us"] == wanted[0]["time_us"]


def test_columns_are_those_of_the_schema(source: Path) -> None:
    capture = _kernel.open(str(source))
    spec = resolve_wiring(capture.channels).bus().spec()
    [decoded] = _kernel.decode(capture, [spec], data_phases=True)
    for name, table in (*TABLES.items(), ("clocks", schema.CLOCKS)):
        got = pa.table(getattr(decoded, name)).schema
        assert got.names == [column.name for column in table.columns]
        for column in table.columns:
            kind = got.field(column.name).type
            text = kind.value_type if pa.types.is_dictionary(kind) else kind
            assert str(text).replace("large_", "").replace("_view", "") == column.dtype, column.name


def test_no_null_where_the_schema_promises_none(tables: Tables) -> None:
    for name, table in (*TABLES.items(), ("clocks", schema.CLOCKS)):
        for column in table.columns:
            values = [row[column.name] for row in getattr(tables, name)]
            assert column.nullable or None not in values, f"{name}.{column.name}"
