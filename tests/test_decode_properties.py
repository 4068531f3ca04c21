"""The kernel equals the oracle on any traffic, and what must not matter does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import buses
import numpy as np
import oracle
import pytest
import waveforms
from decoding import Tables, assert_equals_oracle, assert_same_rows, decode, expected
from hypothesis import given, settings
from hypothesis import strategies as st

ANALYSERS = [  # sampling rate in MS/s, clock in MHz, T_val in ns
    (100.0, 33.0, (2.0, 11.0)),
    (200.0, 33.333, (2.0, 11.0)),
    (200.0, 66.0, (2.0, 6.0)),
    (400.0, 66.6, (2.0, 6.0)),
    (200.0, 25.0, (2.0, 11.0)),
]

subsets = st.sets(st.sampled_from(sorted(oracle.ALL_LINES))).map(
    # The minimum is always there; a half of AD or C/BE# is not recorded without the other half.
    lambda lines: (
        frozenset(lines | {"FRAME#", "IRDY#", "TRDY#"})
        - ({"AD_HIGH"} if "AD" not in lines else set())
        - ({"C/BE_HIGH#"} if "C/BE#" not in lines else set())
    )
)
seeds = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@given(buses.legal(), subsets, st.sampled_from(ANALYSERS), seeds)
def test_timing_mode_equals_oracle(
    folder: Path,
    traffic: buses.Traffic,
    captured: frozenset[str],
    analyser: tuple[float, float, tuple[float, float]],
    seed: int,
) -> None:
    rng = Random(seed)
    clocks = waveforms.settle(traffic.clocks, rng)
    rate_mhz, clock_mhz, valid_ns = analyser
    sampled, edges = waveforms.timing_mode(
        waveforms.wires(clocks, captured), rng, rate_mhz=rate_mhz, clock_mhz=clock_mhz, valid_ns=valid_ns
    )
    seen, stamps, suspect = waveforms.samples_to_clocks(sampled)
    assert stamps == edges.tolist()  # no clock was lost on the way to the analyser
    unit_size = rng.choice((None, 11, 17, 23))
    tables = decode(waveforms.write_sr(folder / "timing.sr", sampled, unit_size=unit_size))
    assert_equals_oracle(tables, seen, captured, stamps, 1 / rate_mhz, suspect)


@given(buses.legal(), seeds)
def test_generated_transactions_come_back(folder: Path, traffic: buses.Traffic, seed: int) -> None:
    rng = Random(seed)
    changes, edges = waveforms.waves(waveforms.wires(traffic.clocks, fill=rng), rng)
    tables = decode(waveforms.write_vcd(folder / "back.vcd", changes, vectors=rng.random() < 0.5))
    columns = [*traffic.transactions[0]]
    assert_same_rows([{key: row[key] for key in columns} for row in tables.transactions], traffic.transactions)
    assert [row["start_sample"] for row in tables.transactions] == [
        edges[row["start_clk"]] for row in traffic.transactions
    ]
    assert_same_rows(
        [{key: value for key, value in row.items() if key not in ("bus", "time_us")} for row in tables.data_phases],
        [{key: value for key, value in row.items() if key != "clk"} for row in traffic.data_phases],
    )


@given(buses.illegal(unknown=False), subsets, seeds, st.sampled_from((None, 64)))
def test_illegal_traffic_in_state_mode_equals_oracle(
    folder: Path, clocks: list[oracle.Clock], captured: frozenset[str], seed: int, width: int | None
) -> None:
    clocks = waveforms.settle(clocks, Random(seed))
    sampled = waveforms.state_mode(waveforms.wires(clocks, captured))
    path = waveforms.write_sr(folder / "state.sr", sampled)
    tables = decode(path, wiring=width and {"width": width}, clock_mhz=33.0)
    assert_equals_oracle(tables, clocks, captured, range(len(clocks)), 1 / 33.0, width=width)


@given(buses.illegal(unknown=True), subsets, seeds)
def test_illegal_and_unknown_levels_equal_oracle(
    folder: Path, clocks: list[oracle.Clock], captured: frozenset[str], seed: int
) -> None:
    rng = Random(seed)
    changes, edges = waveforms.waves(waveforms.wires(clocks, captured, rng), rng)
    tables = decode(waveforms.write_vcd(folder / "unknown.vcd", changes, vectors=rng.random() < 0.5))
    assert_equals_oracle(tables, clocks, captured, edges, 1e-6)


@given(seeds, st.integers(2, 400), st.floats(0.05, 0.95))
def test_noise_in_every_sample_equals_oracle(folder: Path, seed: int, count: int, density: float) -> None:
    """No clock, no protocol: every sample of every channel is random."""
    noise = np.random.default_rng(seed)
    names = ["CLK", *waveforms.wires([oracle.Clock(gnt=(1, 1, 1))]).names]
    bits = (noise.random((count, len(names))) < density).astype(np.uint8)
    bits[:2, 0] = 0, 1  # at least one clock
    sampled = waveforms.Sampled(names, bits, 1e8)
    clocks, stamps, suspect = waveforms.samples_to_clocks(sampled)
    tables = decode(waveforms.write_sr(folder / "noise.sr", sampled))
    assert_equals_oracle(tables, clocks, oracle.ALL_LINES, stamps, 0.01, suspect)


@pytest.fixture(scope="module")
def long_capture() -> waveforms.Sampled:
    """Thousands of transactions in timing mode, several hundred thousand samples."""
    traffic = buses.long_run(seed=11, count=1500)
    bus = waveforms.wires(waveforms.settle(traffic.clocks, Random(3)), oracle.ALL_LINES - {"AD_HIGH", "C/BE_HIGH#"})
    sampled, _ = waveforms.timing_mode(bus, Random(4))
    return waveforms.Sampled(sampled.names, np.tile(sampled.bits, (6, 1)), sampled.rate_hz)


@pytest.fixture(scope="module")
def long_tables(folder: Path, long_capture: waveforms.Sampled) -> Tables:
    """As one thread makes them of one chunk."""
    return decode(waveforms.write_sr(folder / "whole.sr", long_capture, single=True), threads=1, window_us=100)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("chunks", ["one", "odd", "tiny"])
def test_chunks_threads_and_processor_change_nothing(
    folder: Path, long_capture: waveforms.Sampled, long_tables: Tables, threads: int, portable: bool, chunks: str
) -> None:
    rng = Random(threads)
    total = len(long_capture.bits) * 8
    lengths = {
        "one": None,
        "odd": [rng.randrange(1, total // 10) for _ in range(8)],
        "tiny": [rng.randrange(0, 5000) for _ in range(300)],
    }[chunks]
    path = folder / f"{chunks}{threads}.sr"
    if not path.exists():  # it is the same for both processors
        waveforms.write_sr(path, long_capture, chunk_bytes=lengths)
    assert decode(path, threads=threads, portable=portable, window_us=100) == long_tables


@given(buses.illegal(unknown=False), seeds, st.integers(1, 4), st.booleans())
def test_cutting_anywhere_changes_nothing(
    folder: Path, clocks: list[oracle.Clock], seed: int, threads: int, portable: bool
) -> None:
    rng = Random(seed)
    sampled = waveforms.state_mode(waveforms.wires(waveforms.settle(clocks, rng)))
    whole = decode(waveforms.write_sr(folder / "a.sr", sampled, single=True), clock_mhz=66.0, threads=1)
    lengths = [rng.randrange(0, 200) for _ in range(rng.randrange(20))]
    cut = waveforms.write_sr(folder / "b.sr", sampled, chunk_bytes=lengths)
    assert decode(cut, clock_mhz=66.0, threads=threads, portable=portable) == whole


@given(seeds, st.integers(0, 40), st.booleans(), st.booleans())
def test_transactions_counted_side_by_side_are_those_of_the_state_machine(
    folder: Path, seed: int, flips: int, in_state_mode: bool, portable: bool
) -> None:
    rng = Random(seed)
    clocks = buses.disturb(buses.long_run(seed, 120).clocks, rng, unknown=False, flips=flips)
    # With these each data phase is looked at by itself.
    lines = oracle.ALL_LINES - {"AD_HIGH", "C/BE_HIGH#", "PAR", "REQ64#", "ACK64#"}
    lines -= set(rng.sample(sorted(lines - {"FRAME#", "IRDY#", "TRDY#"}), rng.randrange(5)))
    wires = waveforms.wires(waveforms.settle(clocks, rng), lines)
    sampled = waveforms.state_mode(wires) if in_state_mode else waveforms.timing_mode(wires, rng)[0]
    often = waveforms.Sampled(sampled.names, np.tile(sampled.bits, (4, 1)), sampled.rate_hz)
    path = waveforms.write_sr(folder / "side_by_side.sr", often, unit_size=rng.choice((None, 8, 11)))
    options = {"data_phases": False, "portable": portable, **({"clock_mhz": 33.0} if in_state_mode else {})}
    # Judged by rules, if only by none, every clock goes through the state machine.
    assert decode(path, **options) == decode(path, rules=[], **options)


CLASSES = ("unknown", "idle", "address", "data", "stop", "abort", "wait")
WAITS = ("turnaround", "decode", "both", "target", "initiator")


def assert_windows_equal_oracle(
    windows: list[dict[str, Any]], counted: list[str], edges_ps: Sequence[int], window_ps: int
) -> None:
    """There is a row for each window with a clock, in order, and each counts the clocks in it."""
    inside: dict[int, list[str]] = {}
    for of_clock, edge in zip(counted, edges_ps, strict=True):
        inside.setdefault(int(edge) // window_ps, []).append(of_clock)
    assert [round(row["start_us"] * 1e6 / window_ps) for row in windows] == list(inside)
    for row, clocks in zip(windows, inside.values(), strict=True):
        expected = oracle.account(clocks)
        assert {key: row[key] for key in (*CLASSES, *WAITS)} == {key: expected[key] for key in (*CLASSES, *WAITS)}


@given(buses.illegal(unknown=True), st.integers(20, 3000), seeds)
def test_windows_sum_to_the_whole(folder: Path, clocks: list[oracle.Clock], window_ns: int, seed: int) -> None:
    rng = Random(seed)
    changes, edges = waveforms.waves(waveforms.wires(clocks, fill=rng), rng)
    path = waveforms.write_vcd(folder / "windows.vcd", changes)
    [whole] = decode(path).clocks
    windows = decode(path, window_us=window_ns / 1000).clocks
    for row in (whole, *windows):
        assert sum(row[name] for name in CLASSES) == row["total"]
        assert sum(row[name] for name in WAITS) == row["wait"]
        assert row["busy"] == row["total"] - row["idle"] - row["unknown"]
        known = row["total"] - row["unknown"]
        assert row["occupancy"] == row["utilisation"] == (row["busy"] / known if known else None)
        assert row["data_occupancy"] == (row["data"] / known if known else None)
        assert row["efficiency"] == (row["data"] / row["busy"] if row["busy"] else None)
    assert whole["total"] == len(clocks)
    counted = oracle.decode(clocks, grants=buses.GRANTS).classes
    assert_windows_equal_oracle(windows, counted, edges, window_ns * 1000)
    for name in (*CLASSES, *WAITS, "total", "busy"):
        assert sum(row[name] for row in windows) == whole[name]


@given(buses.legal(), st.integers(1, 300), st.sampled_from((1, 3)), seeds)
def test_windows_of_samples(folder: Path, traffic: buses.Traffic, window: int, threads: int, seed: int) -> None:
    """Windows of a few samples and of many, most of them with no clock or one; chunks cut anywhere."""
    rng = Random(seed)
    wires = waveforms.wires(waveforms.settle(traffic.clocks, rng))
    sampled, _ = waveforms.timing_mode(wires, rng)
    seen, stamps, _ = waveforms.samples_to_clocks(sampled)
    cuts = [rng.randrange(0, 900) for _ in range(rng.randrange(9))]
    path = waveforms.write_sr(folder / "windows.sr", sampled, chunk_bytes=cuts)
    tick_ps = round(1e12 / sampled.rate_hz)
    windows = decode(path, window_us=window * tick_ps / 1e6, threads=threads).clocks
    counted = oracle.decode(seen, grants=buses.GRANTS).classes
    assert_windows_equal_oracle(windows, counted, [stamp * tick_ps for stamp in stamps], window * tick_ps)


@given(buses.illegal(unknown=False), seeds)
def test_control_columns_do_not_need_ad(folder: Path, clocks: list[oracle.Clock], seed: int) -> None:
    clocks = waveforms.settle(clocks, Random(seed))
    full = waveforms.state_mode(waveforms.wires(clocks))
    bare = waveforms.state_mode(waveforms.wires(clocks, oracle.ALL_LINES - {"AD", "AD_HIGH"}))
    a = decode(waveforms.write_sr(folder / "full.sr", full), clock_mhz=33.0)
    b = decode(waveforms.write_sr(folder / "bare.sr", bare), clock_mhz=33.0)
    assert b.transactions == [row | {"address": None, "address_parity_ok": None} for row in a.transactions]
    assert b.data_phases == [row | {"data": None, "parity_ok": None} for row in a.data_phases]
    assert b.clocks == a.clocks


@given(buses.legal(), seeds)
def test_without_byte_enables_one_address_phase_is_assumed(folder: Path, traffic: buses.Traffic, seed: int) -> None:
    clocks = waveforms.settle(traffic.clocks, Random(seed))
    control = waveforms.state_mode(waveforms.wires(clocks, oracle.CONTROL | {"GNT#", "PERR#", "SERR#"}))
    rows = decode(waveforms.write_sr(folder / "control.sr", control), clock_mhz=33.0).transactions
    assert len(rows) == len(traffic.transactions)
    for got, meant in zip(rows, traffic.transactions, strict=True):
        late = 1 if meant["dac"] else 0  # the second address phase looks like a wait
        for column in ("start_clk", "clocks", "data_phases", "initiator", "fast_back_to_back"):
            assert got[column] == meant[column]
        for column in ("wait_clks", "initiator_wait_clks"):
            assert got[column] == meant[column] + late
        claimed = meant["devsel_clks"]
        assert got["devsel_clks"] == (None if claimed is None else claimed + late)
        # What nobody claimed is called a master abort: that it was a special cycle cannot be told.
        unclaimed = {"special_cycle": "master_abort"}
        assert got["termination"] == unclaimed.get(meant["termination"], meant["termination"])
        for column in ("command", "command_name", "dac", "address", "address_parity_ok"):
            assert got[column] is None
        assert got["bytes"] == 4 * got["data_phases"]
        assert got["bytes_exact"] == (got["data_phases"] == 0)


@given(buses.illegal(unknown=False), seeds)
def test_oversampling_and_shifting_change_only_times(folder: Path, clocks: list[oracle.Clock], seed: int) -> None:
    rng = Random(seed)
    sampled, _ = waveforms.timing_mode(waveforms.wires(waveforms.settle(clocks, rng)), rng)
    plain = decode(waveforms.write_sr(folder / "plain.sr", sampled))
    assert sampled.rate_hz is not None
    twice = waveforms.Sampled(sampled.names, np.repeat(sampled.bits, 2, axis=0), 2 * sampled.rate_hz)
    late = rng.randint(1, 300)
    shifted = waveforms.Sampled(
        sampled.names, np.vstack([np.repeat(sampled.bits[:1], late, axis=0), sampled.bits]), sampled.rate_hz
    )
    times = ("start_us", "end_us", "first_data_us", "last_data_us")
    moved = [
        {**row, **{key: None if row[key] is None else row[key] + late * 0.01 for key in times}}
        | {"start_sample": row["start_sample"] + late, "end_sample": row["end_sample"] + late}
        for row in plain.transactions
    ]
    # The sample before a first edge may be new: then there is one more pair to compare.
    without = [{key: value for key, value in row.items() if key != "suspect"} for row in moved]
    got = decode(waveforms.write_sr(folder / "shifted.sr", shifted)).transactions
    assert_same_rows([{key: value for key, value in row.items() if key != "suspect"} for row in got], without)
    doubled = [
        row | {"start_sample": 2 * row["start_sample"], "end_sample": 2 * row["end_sample"], "suspect": False}
        for row in plain.transactions
    ]
    assert_same_rows(decode(waveforms.write_sr(folder / "twice.sr", twice)).transactions, doubled)


@settings(max_examples=30)
@given(buses.legal(), seeds)
def test_recovered_clock_survives_glitches(folder: Path, traffic: buses.Traffic, seed: int) -> None:
    """Single wrong samples on CLK, away from its edges, make clocks for a decoder that trusts every edge."""
    rng = Random(seed)
    quiet = [replace(traffic.clocks[0]) for _ in range(40)]  # a clock is learned from its first 32 rises
    clocks = waveforms.settle(quiet + traffic.clocks, rng)
    sampled, edges = waveforms.timing_mode(waveforms.wires(clocks), rng, rate_mhz=500.0, lead_samples=20)
    clean = decode(waveforms.write_sr(folder / "clean.sr", sampled), recover_clock=True)
    assert [row["start_clk"] - 40 for row in clean.transactions] == [row["start_clk"] for row in traffic.transactions]
    assert [row["termination"] for row in clean.transactions] == [row["termination"] for row in traffic.transactions]
    bits = sampled.bits.copy()
    for edge in edges[:-1]:
        if rng.random() < 0.2:
            bits[edge + 3, 0] ^= 1  # in the middle of the high phase: 7 samples long at 500 MS/s
    glitched = waveforms.Sampled(sampled.names, bits, sampled.rate_hz)
    again = decode(waveforms.write_sr(folder / "glitched.sr", glitched), recover_clock=True)
    for column in ("start_clk", "clocks", "command", "address", "data_phases", "termination", "wait_clks"):
        assert [row[column] for row in again.transactions] == [row[column] for row in clean.transactions]


@given(buses.legal(most=6), buses.illegal(unknown=False), seeds, st.booleans())
def test_two_buses_of_one_capture_do_not_touch_each_other(
    folder: Path, traffic: buses.Traffic, clocks: list[oracle.Clock], seed: int, own_clocks: bool
) -> None:
    rng = Random(seed)
    sides = {}
    for name, side, clock_mhz in (("A", traffic.clocks, 33.0), ("B", clocks, 31.7 if own_clocks else 33.0)):
        bus = waveforms.wires(waveforms.settle(side, rng))
        sides[name], _ = waveforms.timing_mode(bus, rng, clock_mhz=clock_mhz)
    length = min(len(sampled.bits) for sampled in sides.values())
    names = [f"{bus}_{name}" for bus, sampled in sides.items() for name in sampled.names]
    both = waveforms.Sampled(names, np.hstack([sampled.bits[:length] for sampled in sides.values()]), 1e8)
    path = waveforms.write_sr(folder / "both.sr", both)
    for bus, sampled in sides.items():
        clocks, stamps, suspect = waveforms.samples_to_clocks(
            waveforms.Sampled(sampled.names, sampled.bits[:length], sampled.rate_hz)
        )
        rows, phases = expected(oracle.decode(clocks, grants=buses.GRANTS), stamps, 0.01, suspect, bus)
        tables = decode(path, bus=bus)
        assert_same_rows(tables.transactions, rows)
        assert_same_rows(tables.data_phases, phases)
