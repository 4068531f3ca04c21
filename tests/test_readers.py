"""One capture, every format: all readers must make the same transactions of it."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import buses
import numpy as np
import oracle
import pytest
import slow_vcd
import waveforms
from bad_files import archive, members
from conftest import REPOSITORY, needed_program
from decoding import Tables, assert_equals_oracle, assert_same_rows, decode
from hypothesis import given
from hypothesis import strategies as st

import pcitrace
from pcitrace.wiring import resolve_wiring

CAPTURED = oracle.ALL_LINES - {"AD_HIGH", "C/BE_HIGH#", "REQ64#", "ACK64#"}
READERS = REPOSITORY / "fixtures" / "readers"


def capture(seed: int = 5, count: int = 30, captured: frozenset[str] = CAPTURED) -> waveforms.Sampled:
    """A capture in timing mode at 100 MS/s, with some illegal traffic in it."""
    rng = Random(seed)
    traffic = buses.long_run(seed, count)
    clocks = buses.disturb(traffic.clocks, rng, unknown=False, flips=10)
    sampled, _ = waveforms.timing_mode(waveforms.wires(waveforms.settle(clocks, rng), captured), rng)
    return sampled


def through_sigrok(folder: Path, sampled: waveforms.Sampled, output: str) -> Path:
    """The capture as sigrok-cli itself exports it."""
    source = waveforms.write_sr(folder / "source.sr", sampled)
    path = folder / f"by_sigrok.{output.split(':')[0]}"
    subprocess.run([needed_program("sigrok-cli"), "-i", source, "-O", output, "-o", path], check=True)
    return path


def gzipped(path: Path) -> Path:
    """The file, compressed."""
    return_path = path.with_name(path.name + ".gz")
    return_path.write_bytes(gzip.compress(path.read_bytes()))
    return return_path


SAMPLED: dict[str, Callable[[Path, waveforms.Sampled], Path]] = {
    "sr": lambda f, s: waveforms.write_sr(f / "a.sr", s),
    "sr of one member": lambda f, s: waveforms.write_sr(f / "a.sr", s, single=True),
    "sr version 1": lambda f, s: waveforms.write_sr(f / "a.sr", s, single=True, version=1),
    "sr with 17 bytes a sample": lambda f, s: waveforms.write_sr(f / "a.sr", s, unit_size=17),
    "sr of odd chunks": lambda f, s: waveforms.write_sr(f / "a.sr", s, chunk_bytes=[1, 2, 0, 333, 4096, 77]),
    "sr with holes": lambda f, s: waveforms.write_sr(f / "a.sr", s, places=[3 * k for k in range(len(s.names))]),
    "DSView": lambda f, s: waveforms.write_dsl(f / "a.dsl", s),
    "sigrok CSV": lambda f, s: waveforms.write_sigrok_csv(f / "a.csv", s),
    "sigrok CSV by sigrok-cli": lambda f, s: through_sigrok(f, s, "csv"),
}
CHANGES: dict[str, Callable[[Path, waveforms.Sampled], Path]] = {
    "VCD": lambda f, s: waveforms.write_vcd(f / "a.vcd", waveforms.sampled_changes(s, 10_000)),
    "VCD of scalars": lambda f, s: waveforms.write_vcd(
        f / "a.vcd", waveforms.sampled_changes(s, 10_000), vectors=False
    ),
    "VCD in 10 ns": lambda f, s: waveforms.write_vcd(f / "a.vcd", waveforms.sampled_changes(s, 10_000), tick_ps=10_000),
    "VCD gzipped": lambda f, s: gzipped(waveforms.write_vcd(f / "a.vcd", waveforms.sampled_changes(s, 10_000))),
    "VCD by sigrok-cli": lambda f, s: through_sigrok(f, s, "vcd"),
    "Saleae CSV": lambda f, s: waveforms.write_saleae_csv(f / "a.csv", s),
    "Saleae binary 0": lambda f, s: waveforms.write_saleae_binary(f / "bin", s, 0) / "digital_0.bin",
    "Saleae binary 1": lambda f, s: waveforms.write_saleae_binary(f / "bin", s, 1) / "digital_3.bin",
}


def digital_wiring(names: list[str]) -> dict[str, str]:
    """Saleae's binary export has no names: channel k is digital_k."""
    return {name: f"digital_{k}" for k, name in enumerate(names)}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[waveforms.Sampled, Tables]:
    """A capture and its tables by way of the plainest format; these equal the oracle's."""
    sampled = capture()
    path = waveforms.write_sr(tmp_path_factory.mktemp("reference") / "a.sr", sampled)
    tables = decode(path)
    clocks, stamps, suspect = waveforms.samples_to_clocks(sampled)
    assert_equals_oracle(tables, clocks, CAPTURED, stamps, 0.01, suspect)
    return sampled, tables


@pytest.mark.parametrize("name", list(SAMPLED))
def test_sampled_formats_agree(name: str, tmp_path: Path, reference: tuple[waveforms.Sampled, Tables]) -> None:
    sampled, tables = reference
    path = SAMPLED[name](tmp_path, sampled)
    assert decode(path) == tables
    [opened] = pcitrace.open(path).captures
    assert opened.channels == sampled.names
    assert opened.rate_hz == sampled.rate_hz
    assert opened.sample_count == len(sampled.bits)
    samples = np.unpackbits(opened.samples(), axis=1, bitorder="little")
    places = [3 * k for k in range(len(sampled.names))] if "holes" in name else range(len(sampled.names))
    assert (samples[:, list(places)] == sampled.bits).all()


@pytest.mark.parametrize("name", list(CHANGES))
def test_formats_of_changes_agree(name: str, tmp_path: Path, reference: tuple[waveforms.Sampled, Tables]) -> None:
    sampled, tables = reference
    path = CHANGES[name](tmp_path, sampled)
    got = decode(path, wiring=digital_wiring(sampled.names) if "binary" in name else None)
    # A capture of changes knows no samples: nothing can be suspect, and stamps are in its own ticks. A bus is named
    # after its scope.
    ours = ("start_sample", "end_sample", "suspect", "bus")
    assert_same_rows(
        [{key: value for key, value in row.items() if key not in ours} for row in got.transactions],
        [{key: value for key, value in row.items() if key not in ours} for row in tables.transactions],
    )
    assert {row["suspect"] for row in got.transactions} == {None}
    for name in ("data_phases", "problems"):
        mine, theirs = ([row | {"bus": ""} for row in getattr(each, name)] for each in (got, tables))
        assert_same_rows(mine, [row for row in theirs if row.get("kind") != "suspect"])
    counts = [name for name, value in tables.clocks[0].items() if isinstance(value, int)]
    assert {key: got.clocks[0][key] for key in counts} == {key: tables.clocks[0][key] for key in counts}


@given(seed=st.integers(0, 2**32), data=st.data())
def test_any_unit_size_and_chunking(tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject) -> None:
    sampled = capture(seed, count=3)
    folder = tmp_path_factory.mktemp("chunks")
    total = data.draw(st.integers((len(sampled.names) + 7) // 8, 40), label="unit size")
    places = data.draw(st.permutations(range(8 * total)), label="places")[: len(sampled.names)]
    chunks = data.draw(st.lists(st.integers(0, 3000), max_size=12), label="chunks")
    path = waveforms.write_sr(folder / "a.sr", sampled, unit_size=total, places=sorted(places), chunk_bytes=chunks)
    assert decode(path) == decode(waveforms.write_sr(folder / "b.sr", sampled))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_last_sample_that_is_cut_is_left_out_and_said(threads: int, tmp_path: Path) -> None:
    sampled = capture(count=3)
    short = waveforms.Sampled(sampled.names, sampled.bits[:-1], sampled.rate_hz)
    path = waveforms.write_sr(tmp_path / "a.sr", sampled)
    parts = members(path)
    cut = decode(archive(path, parts | {"logic-1-1": parts["logic-1-1"][:-1]}), threads=threads)
    whole = decode(waveforms.write_sr(tmp_path / "b.sr", short), threads=threads)
    assert (cut.transactions, cut.data_phases, cut.clocks) == (whole.transactions, whole.data_phases, whole.clocks)
    [said] = [row for row in cut.problems if row not in whole.problems]
    assert (said["kind"], said["transaction"]) == ("truncated", None)
    assert said["time_us"] == pytest.approx(len(short.bits) / 100)
    assert "ends within a sample" in said["text"]
    [opened] = pcitrace.open(path).captures
    assert opened.sample_count == len(opened.samples()) == len(short.bits)


def test_dsview_of_several_blocks(tmp_path: Path) -> None:
    """Blocks hold 2^24 samples of a channel; the transactions across their border must be whole."""
    sampled = capture(seed=8, count=2000, captured=oracle.CONTROL)
    times = (1 << 24) // len(sampled.bits) + 1
    long = waveforms.Sampled(sampled.names, np.tile(sampled.bits, (times, 1)), sampled.rate_hz)
    assert len(long.bits) > 1 << 24
    options = {"data_phases": False, "window_us": 1000.0}
    got = decode(waveforms.write_dsl(tmp_path / "a.dsl", long), **options)
    assert got == decode(waveforms.write_sr(tmp_path / "a.sr", long), **options)
    assert len(got.transactions) > 2000


def test_gap_in_a_saleae_capture(tmp_path: Path) -> None:
    """Nothing spans a gap: what it cuts is truncated, and the bus is unknown until the next idle clock."""
    sampled = capture(seed=6, count=40)
    cuts = [1000, 2501]
    folder = waveforms.write_saleae_binary(tmp_path / "gaps", sampled, 1, cuts)
    tables = decode(folder / "digital_0.bin", wiring=digital_wiring(sampled.names))
    clocks, stamps = [], []
    for first, last in zip([0, *cuts], [cut - 1 for cut in cuts] + [len(sampled.bits)], strict=True):
        part = waveforms.Sampled(sampled.names, sampled.bits[first:last], sampled.rate_hz)
        some, at, _ = waveforms.samples_to_clocks(part)
        some[0].gap = first > 0
        clocks += some
        stamps += [first + n for n in at]
    decoded = oracle.decode(clocks, CAPTURED, buses.GRANTS)
    ours = ("clocks", "command", "address", "data_phases", "termination", "wait_clks", "fast_back_to_back", "perr")
    assert_same_rows(
        [{key: row[key] for key in (*ours, "start_us")} for row in tables.transactions],
        [
            {key: row[key] for key in ours} | {"start_us": stamps[row["start_clk"]] / 100}
            for row in decoded.transactions
        ],
    )
    assert [row["kind"] for row in tables.problems].count("gap") == len(cuts)
    assert {k: tables.clocks[0][k] for k in ("total", "unknown", "data")} == {
        k: oracle.account(decoded.classes)[k] for k in ("total", "unknown", "data")
    }


def fixture_clocks() -> tuple[list[oracle.Clock], list[int]]:
    """The clocks of fixtures/readers by the plain Python reader."""
    level = {"0": 0, "1": 1, "z": 1}
    clocks, times = [], []
    for time, values in slow_vcd.edges(READERS / "bus.vcd.gz", "CLK"):
        clock = oracle.Clock()
        for name, attribute in waveforms.SCALARS.items():
            if name in values:
                known = level if attribute in waveforms.PULLED_UP else {"0": 0, "1": 1}
                setattr(clock, attribute, known.get(values[name]))
        clock.ad, clock.cbe = (int(v, 2) if set(v) <= {"0", "1"} else None for v in (values["AD"], values["CBE"]))
        clock.gnt = tuple(level.get(values[name]) for name in buses.GRANTS)
        clocks.append(clock)
        times.append(time)
    return clocks, times


@pytest.mark.parametrize(
    ("file", "unpack"),
    [("bus.vcd.gz", False), ("bus.vcd.gz", True), ("bus.fst", False), ("bus.ghw.gz", False), ("bus.ghw.gz", True)],
)
def test_waveform_files_of_other_programs_equal_oracle(file: str, unpack: bool, tmp_path: Path) -> None:
    path = READERS / file
    if unpack:
        path = tmp_path / path.stem
        path.write_bytes(gzip.decompress((READERS / file).read_bytes()))
    clocks, times = fixture_clocks()
    opened = pcitrace.open(path)
    [bus] = opened.buses
    decoded = oracle.decode(clocks, CAPTURED, buses.GRANTS)
    tables = decode(path, bus=bus)
    columns = [*(set(decoded.transactions[0]) - {"first_data_clk", "last_data_clk"})]
    assert_same_rows(
        [
            # VHDL knows no capital letters: the agent of GNT_NIC# is called as the file has it.
            {key: row[key] for key in columns}
            | {"time": row["start_us"], "initiator": row["initiator"] and row["initiator"].upper()}
            for row in tables.transactions
        ],
        [{key: row[key] for key in columns} | {"time": times[row["start_clk"]] * 1e-6} for row in decoded.transactions],
    )
    assert [row["data"] for row in tables.data_phases] == [phase["data"] for phase in decoded.data_phases]
    assert any(row["termination"] == "truncated" for row in tables.transactions)  # where TRDY# is unknown


def test_scopes_and_names_survive(tmp_path: Path) -> None:
    """Names come with their scope, so that two buses of one file are told apart."""
    rng = Random(1)
    changes, _ = waveforms.waves(waveforms.wires(buses.long_run(1, 3).clocks, CAPTURED), rng)
    path = waveforms.write_vcd(tmp_path / "a.vcd", changes, scope="pc1")
    [opened] = pcitrace.open(path).captures
    assert "pc1.FRAME#" in opened.channels
    assert list(resolve_wiring([(c.name, c.width) for c in opened.wiring.channels]).buses) == ["pc1"]


SPELLINGS: dict[str, Callable[[str], str]] = {
    "lines end in CR LF": lambda t: t.replace("\n", "\r\n"),
    "no $dumpvars": lambda t: t.replace("$dumpvars\n", "").replace("\n$end\n#4", "\n#4"),
    "a comment among the changes": lambda t: t.replace("#0\n", "#0\n$comment none\nof them $end\n"),
    "nets of other kinds": lambda t: t.replace(
        "$upscope", "$var real 64 zz temperature $end\n$var string 1 zy state $end\n$upscope"
    ).replace("$dumpvars\n", "$dumpvars\nr1.5 zz\nsidle zy\n"),
    "a range without a space": lambda t: t.replace("AD [31:0]", "AD[31:0]"),
    "an escaped name": lambda t: t.replace(" CLK ", " \\CLK "),
    "capital B": lambda t: t.replace("\nb", "\nB"),
    "the header in one line": lambda t: t.replace("$end\n$var", "$end $var"),
    "leading zeros left out": lambda t: re.sub(r"\nb0+([01]\w*)", r"\nb\1", t),
}


@pytest.mark.parametrize("spelling", list(SPELLINGS))
def test_vcd_may_be_spelt_otherwise(spelling: str, tmp_path: Path) -> None:
    changes, _ = waveforms.waves(waveforms.wires(buses.long_run(1, 8).clocks, CAPTURED), Random(1))
    path = waveforms.write_vcd(tmp_path / "a.vcd", changes)
    plain, text = decode(path), path.read_text()
    path.write_bytes(SPELLINGS[spelling](text).encode())
    assert path.read_bytes() != text.encode()
    assert decode(path) == plain


@pytest.mark.parametrize(("unit", "us"), [("1 fs", 1e-9), ("100fs", 1e-7), ("10 ns", 1e-2), ("1ms", 1e3), ("1 s", 1e6)])
def test_any_timescale(unit: str, us: float, tmp_path: Path) -> None:
    changes, edges = waveforms.waves(waveforms.wires(buses.long_run(1, 8).clocks, CAPTURED), Random(1))
    path = waveforms.write_vcd(tmp_path / "a.vcd", changes)
    path.write_text(path.read_text().replace("$timescale 1 ps", f"$timescale {unit}"))
    for row in decode(path).transactions:
        assert row["start_sample"] == edges[row["start_clk"]]
        assert row["start_us"] == pytest.approx(row["start_sample"] * us, rel=1e-12)


def test_an_ascending_range_counts_from_the_left(tmp_path: Path) -> None:
    """`AD [0:31]`: the leftmost bit of the value is AD0."""
    changes, _ = waveforms.waves(waveforms.wires(buses.long_run(1, 8).clocks, CAPTURED), Random(1))
    path = waveforms.write_vcd(tmp_path / "a.vcd", changes)
    plain = decode(path).transactions
    path.write_text(path.read_text().replace("AD [31:0]", "AD [0:31]"))
    for got, row in zip(decode(path).transactions, plain, strict=True):
        if not row["dac"]:
            assert f"{got['address']:032b}" == f"{row['address']:032b}"[::-1]
