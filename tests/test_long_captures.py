"""What keeps a capture of seconds in memory and time: few columns, narrow, decoded once."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pcitrace
from pcitrace import DecodeError, _kernel, freed, report, results
from pcitrace.bustable import BusTable, wanted
from pcitrace.columns import packed_if_equal, strings
from pcitrace.frames import align
from pcitrace.run import Bus
from pcitrace.schema import TRANSACTIONS
from pcitrace.simulate import simulate
from pcitrace.simulate.presets import PRESETS

VCD = Path(__file__).resolve().parent.parent / "fixtures" / "traces" / "nic_g_a" / "bus.vcd.gz"
COLUMNS = ["transaction", "start_us", "end_us", "first_data_us", "last_data_us", "data_phases", "bytes", "address"]
COLUMNS += ["command", "devsel_clks"]


def streaming(folder: Path, count: int) -> Path:
    """A run of frames one behind the other, in 16 channels without AD, 14 transactions a frame."""
    simulate(PRESETS["acenic-fig4.2a"], folder, 1, values={"test.count": count, "truth": "frames"})
    return folder


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return streaming(tmp_path_factory.mktemp("long") / "run", 2000)


def bus_of(path: Path) -> Bus:
    return next(iter(pcitrace.open(path).buses.values()))


def decoded(bus: Bus, **options: Any) -> _kernel.Decoded:
    [one] = _kernel.decode(_kernel.open(str(bus.capture.path)), [bus.spec], **options)
    return one


@pytest.mark.parametrize("names", [TRANSACTIONS.column_names, ("termination", "bus", "initiator"), ()])
def test_some_columns_are_those_of_the_whole_table(names: tuple[str, ...], run_folder: Path) -> None:
    for bus in (bus_of(run_folder), bus_of(VCD)):
        whole = pa.table(decoded(bus).transactions)
        part = pa.table(some := decoded(bus, columns=names).transactions)
        assert part.schema.names == list(names)
        assert some.num_rows == whole.num_rows > 500
        for name in names:
            column = part[name]
            if whole.schema.field(name).type == pa.string():
                assert pa.types.is_dictionary(column.type)
                column = column.cast(pa.string())
            assert column.combine_chunks().equals(whole[name].combine_chunks()), name


def test_a_column_that_does_not_exist_is_named() -> None:
    with pytest.raises(DecodeError, match="there is no column colour"):
        decoded(bus_of(VCD), columns=["start_us", "colour"])


def test_the_table_of_arrays_is_that_of_the_rows(run_folder: Path) -> None:
    for path in (run_folder, VCD):
        run = pcitrace.open(path)
        for name in run.buses:
            few, all_columns = run.table(name), BusTable.of(run[name].transactions)
            assert len(few) == len(all_columns) > 500
            rows = np.arange(5, 400, 7)
            for column in COLUMNS:
                assert np.array_equal(getattr(few, column), getattr(all_columns, column), equal_nan=True), column
                chosen = getattr(few.take(rows).take(np.array([3, 1])), column)
                assert np.array_equal(chosen, getattr(few, column)[[26, 12]], equal_nan=True), column
            told = run[name].transactions["termination"].tolist()
            assert [few.terminations[code] for code in few.termination] == told
            assert few.clock_us == pytest.approx(1 / run[name].mean_clock_mhz, rel=1e-3)


def test_what_is_unknown_in_every_row_takes_no_memory() -> None:
    unknown = packed_if_equal(np.full(1_000_000, -1))
    assert unknown.strides == (0,)
    assert unknown[999_999] == -1
    mixed = np.array([1, 1, 2])
    assert packed_if_equal(mixed) is mixed


def test_a_report_analyses_the_capture_in_one_pass(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(*args: Any, decode: Any = _kernel.decode, **options: Any) -> Any:
        asked.append(([spec["name"] for spec in args[1]], options["columns"]))
        return decode(*args, **options)

    monkeypatch.setattr(_kernel, "decode", counted)
    run = pcitrace.open(run_folder)
    found = results.of_run(run)
    assert asked == [(["A", "B"], wanted(run["A"].lines))]
    # The view in the page shows all columns of a short run.
    report.write(found, tmp_path / "report.html")
    assert asked[1:] == [(["A"], None), (["B"], None)]


def test_memory_of_the_analysis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 10 s capture has about 6 million transactions; it is to be analysed in less than 1 GB."""
    # What is looked at of either end of a capture does not grow with it, but would hide here what does.
    monkeypatch.setattr(align, "SAMPLE", 50)

    def measure(count: int) -> tuple[int, int, int]:
        folder = streaming(tmp_path / str(count), count)
        run = pcitrace.open(folder)
        tracemalloc.start()
        try:
            found = results.of_run(run)
            gc.collect()  # when Python looks for cycles depends on which tests ran before
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(found.frames) == count
        return sum(len(run.table(name)) for name in run.buses), kept, peak

    measure(100)  # what is imported and cached only once
    # Of fewer frames, what does not grow is the most of the peak, and that depends on when Python looks for cycles.
    less, more = (np.array(measure(count)) for count in (3000, 9000))
    transactions, kept, peak = more - less
    assert transactions == 6000 * 14
    assert kept / transactions < 65
    assert peak / transactions < 85


def test_memory_is_given_back_where_much_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed, there, in_use = [], [0], [0]
    monkeypatch.setattr(freed, "_in_memory_bytes", lambda: there[0] << 20)

    def given_back(_: int) -> None:
        trimmed.append(there[0])
        there[0] = 50 + in_use[0]

    trim = freed._Trim(given_back, lambda: in_use[0] << 20)
    # Free beside programs of 50 MiB; what is in use does not matter.
    for free, in_use[0] in ((25, 20), (69, 400), (90, 400), (69, 20), (70, 20), (0, 900)):
        there[0] = 50 + in_use[0] + free
        trim()
    assert trimmed == [95, 540, 140]


def test_what_is_in_use_is_known() -> None:
    trim = freed._trim()
    assert trim is not None, "the C library does not say what is free: glibc does from 2.33 on"
    before, some = trim.in_use_bytes(), bytearray(50 << 20)
    assert 50 << 20 <= trim.in_use_bytes() - before < 51 << 20
    assert len(some) == 50 << 20


def test_rows_that_become_tables_as_they_come_are_small(run_folder: Path) -> None:
    bus = bus_of(run_folder)
    table = pa.table(decoded(bus, columns=wanted(bus.lines)).transactions)
    assert table.num_rows > 8192
    assert table.nbytes / table.num_rows < 70


def test_what_was_decoded_whole_is_not_decoded_again(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = pcitrace.open(run_folder)
    tables: dict[str, pd.DataFrame] = {name: run[name].transactions for name in run.buses}
    monkeypatch.setattr(_kernel, "decode", None)
    assert len(run.frames) == 2000
    assert all(len(run[name].problems) == 0 for name in tables)


def test_a_text_has_one_code() -> None:
    """Where parts were put together, their dictionary may have a text twice; chunks stay chunks of Arrow."""
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 3]), pa.array(["a", "b", "b", "a"]))
    for column in (twice, pa.chunked_array([twice.slice(0, 2), twice.slice(2)])):
        codes, texts = strings(pa.table({"text": column}), "text")
        assert (codes.tolist(), texts) == ([0, 1, -1, 1, 0], ["a", "b"])
