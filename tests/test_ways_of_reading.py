"""However samples are packed, cut and read, the rows are the same; and some columns are those of the whole table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import buses
import numpy as np
import oracle
import pyarrow as pa
import pytest
import waveforms
from decoding import Tables, assert_equals_oracle, decode
from hypothesis import given, settings
from hypothesis import strategies as st

import pcitrace
from pcitrace import _kernel
from pcitrace.errors import DecodeError

CONTROL = frozenset(oracle.ALL_LINES) - {"AD", "AD_HIGH", "C/BE_HIGH#", "PAR"}
NARROW = oracle.ALL_LINES - {"AD_HIGH", "C/BE_HIGH#"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


def sampled(captured: frozenset[str], count: int = 300) -> waveforms.Sampled:
    clocks = waveforms.settle(buses.long_run(seed=7, count=count).clocks, Random(3))
    return waveforms.timing_mode(waveforms.wires(clocks, captured), Random(4))[0]


@pytest.fixture(scope="module")
def path(folder: Path) -> Path:
    return waveforms.write_sr(folder / "columns.sr", sampled(NARROW), chunk_bytes=[30_000] * 5)


class TestUnits:
    @pytest.mark.parametrize("captured", [CONTROL, NARROW], ids=["control", "with AD"])
    def test_any_size_gives_the_same_rows(self, folder: Path, captured: frozenset[str]) -> None:
        bus = sampled(captured)
        least = (len(bus.names) + 7) // 8
        wanted: Tables | None = None
        for unit in range(least, 12):
            for threads, portable in ((1, False), (2, False), (1, True)):
                path = waveforms.write_sr(folder / "unit.sr", bus, unit_size=unit, chunk_bytes=[40_000] * 4)
                got = decode(path, threads=threads, portable=portable)
                wanted = wanted or got
                assert got == wanted, (unit, threads, portable)
        assert wanted is not None
        assert len(wanted.transactions) > 250

    def test_few_lines_in_one_to_three_bytes(self, folder: Path) -> None:
        bus = sampled(frozenset({"FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#"}))
        rows = [decode(waveforms.write_sr(folder / "few.sr", bus, unit_size=unit)) for unit in (1, 2, 3)]
        assert rows[0] == rows[1] == rows[2]


class TestSaturatedBus:
    """One idle clock between two transactions is enough to begin at, whatever PERR# and SERR# still say."""

    @settings(max_examples=15)
    @given(st.integers(0, 2**32), st.integers(0, 2))
    def test_cuts_and_threads_change_nothing(self, folder: Path, seed: int, idle: int) -> None:
        rng = Random(seed)
        busy = buses.long_run(seed, 60).clocks
        clocks: list[oracle.Clock] = []
        resting = 0
        for clock in busy:
            resting = resting + 1 if clock.frame == 1 and clock.irdy == 1 else 0
            if resting <= idle:
                # Errors in every place where one may be told.
                clocks.append(replace(clock, perr=rng.choice((0, 1, 1)), serr=rng.choice((0, 1, 1))))
        clocks = waveforms.settle(clocks, rng)
        bus = waveforms.state_mode(waveforms.wires(clocks, NARROW))
        whole = decode(waveforms.write_sr(folder / "whole.sr", bus), clock_mhz=33.0, threads=1)
        assert_equals_oracle(whole, clocks, NARROW, range(len(clocks)), 1 / 33.0)
        lengths = [rng.randrange(1, 400) for _ in range(30)]
        path = waveforms.write_sr(folder / "cut.sr", bus, chunk_bytes=lengths)
        for threads in (1, 2, 3):
            assert decode(path, clock_mhz=33.0, threads=threads) == whole


NAMES = ["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "PERR#", "SERR#", "GNT0#", "GNT1#"]
NAMES += ["CBE0#", "CBE1#", "CBE2#", "CBE3#"]
FRAME, IRDY, TRDY, DEVSEL, STOP, PERR, SERR, GNT0, GNT1 = (1 << bit for bit in range(1, 10))
CBE = 0xF << 10


def tables_of(capture: Any, spec: dict[str, Any], **how: Any) -> list[list[dict[str, Any]]]:
    """Return the rows of a bus: transactions, clocks and problems."""
    [found] = _kernel.decode(capture, [spec], threads=1, **how)
    return [pa.table(table).to_pylist() for table in (found.transactions, found.clocks, found.problems)]


def far_apart(noise: np.random.Generator, broken: float) -> np.ndarray:
    """Clocks of transactions of all lengths with pauses of all lengths; so many of them are not as they should be."""
    words: list[int] = []
    moves = FRAME | IRDY | TRDY | DEVSEL
    for _ in range(300):
        waits = [FRAME | IRDY | DEVSEL] * int(noise.integers(0, 6))
        pause = [FRAME | TRDY | DEVSEL] * int(noise.integers(0, 3)) if noise.random() < 0.2 else []
        parts = [[moves] * int(noise.choice((0, 1, 2, 20, 90, 300))) for _ in range(int(noise.integers(1, 3)))]
        ends = {
            "completion": [IRDY | TRDY | DEVSEL],
            "disconnect": [FRAME | IRDY | DEVSEL | STOP | TRDY, IRDY | DEVSEL | STOP],
            "retry": [FRAME | IRDY | DEVSEL | STOP, IRDY | DEVSEL | STOP],
            "abort": [IRDY] * 4,
        }
        words += [FRAME, FRAME | IRDY, *waits, *parts[0], *pause, *parts[-1], *ends[str(noise.choice([*ends]))]]
        words += [0] * int(noise.choice((0, 1, 2, 3, 10, 40, 250)))
    clocks = np.array(words, np.uint64)
    clocks |= np.repeat(noise.integers(0, 4, 1 + len(clocks) // 7).astype(np.uint64), 7)[: len(clocks)] * GNT0
    seldom = noise.random(len(clocks)) < 0.01
    clocks[seldom] |= noise.choice([PERR, SERR, CBE, CBE & CBE << 2], int(seldom.sum())).astype(np.uint64)
    wrong = noise.random(len(clocks)) < broken
    clocks[wrong] ^= noise.choice([FRAME, IRDY, TRDY, DEVSEL, STOP], int(wrong.sum())).astype(np.uint64)
    return clocks


def in_samples(noise: np.random.Generator, clocks: np.ndarray, unit: int, most: int) -> bytes:
    """Levels of lines at clocks as samples: some with CLK low, then some with CLK high, and what is seen late."""
    low, high = noise.integers(1, most, len(clocks)), noise.integers(1, most, len(clocks))
    if most == 40:
        low, high = np.full_like(low, low[0]), np.full_like(high, high[0])
    lines = np.repeat(clocks, low + high)
    phase = np.arange(len(lines)) - np.repeat(np.cumsum(low + high) - low - high, low + high)
    late = np.roll(lines, 1)
    jitter = noise.random(len(lines)) < 0.01
    lines = np.where(jitter, late, lines)
    data = lines | (phase >= np.repeat(low, low + high)).astype(np.uint64)
    return np.ascontiguousarray(data.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :unit]).tobytes()


@settings(max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from((2, 4, 8, 3)),
    st.sampled_from((0, 0.0005, 0.01)),
    st.sampled_from((3, 7, 40)),
    st.sets(st.sampled_from(NAMES[4:])),
)
def test_clocks_that_are_left_out_are_counted(
    seed: int, unit: int, broken: float, most: int, not_captured: set[str]
) -> None:
    """What rests, or goes on in a burst, is only counted: with the rows of who looks at every clock."""
    noise = np.random.default_rng(seed)
    packed = in_samples(noise, ~far_apart(noise, broken) & np.uint64(0x3FFE), unit, most)
    wired = {name: (bit, 0, name.endswith("#")) for bit, name in enumerate(NAMES) if name not in not_captured}
    if not {f"CBE{lane}#" for lane in range(4)} <= wired.keys():
        wired = {name: place for name, place in wired.items() if not name.startswith("CBE")}
    capture = _kernel.from_samples(packed, unit, NAMES, 1e8)
    tables = partial(tables_of, capture, {"name": "PCI", "width": None, "lines": wired})
    for window_us in (None, 7.0):
        assert tables(window_us=window_us) == tables(window_us=window_us, portable=True)


@settings(max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from((6, 7, 8)),
    st.sampled_from((0, 0.0005)),
    st.sampled_from((0, 0.0005, 0.02)),
    st.sampled_from((3, 7, 40)),
    st.sets(st.sampled_from(NAMES[4:10])),
)
def test_parity_of_clocks_that_are_left_out_is_checked(
    seed: int, unit: int, broken: float, odd: float, most: int, not_captured: set[str]
) -> None:
    """Data phases of bursts are only counted, too: with the rows, and the parity errors, of who lists each."""
    noise = np.random.default_rng(seed)
    clocks = far_apart(noise, broken)
    first = (clocks & np.uint64(FRAME) != 0) & (np.roll(clocks, 1) & np.uint64(FRAME | IRDY) == 0)
    command = noise.choice((0x6, 0x7, 0xA, 0xC, 0xD, 0x1), len(clocks), p=(0.3, 0.3, 0.2, 0.1, 0.05, 0.05))
    levels = ~clocks & np.uint64(0x3FFE) ^ np.uint64(CBE)
    levels |= np.where(first, command.astype(np.uint64) << np.uint64(10), np.uint64(0))
    levels |= noise.integers(0, 1 << 32, len(clocks)).astype(np.uint64) << np.uint64(14)
    par = np.roll(np.bitwise_count(levels >> np.uint64(10)) & 1, 1) ^ (noise.random(len(clocks)) < odd)
    packed = in_samples(noise, levels | par.astype(np.uint64) << np.uint64(46), unit, most)
    names = [*NAMES, *(f"AD{bit}" for bit in range(32)), "PAR"]
    wired = {name: (bit, 0, name.endswith("#")) for bit, name in enumerate(names) if name not in not_captured}
    capture = _kernel.from_samples(packed, unit, names, 1e8)
    tables = partial(tables_of, capture, {"name": "PCI", "width": None, "lines": wired})
    for window_us in (None, 7.0):
        rows = tables(window_us=window_us)
        assert rows == tables(window_us=window_us, portable=True)
        assert rows == tables(window_us=window_us, data_phases=True)


class TestColumns:
    @pytest.mark.parametrize("threads", [1, 2])
    def test_some_are_those_of_the_whole_table(self, path: Path, threads: int) -> None:
        whole = pcitrace.open(path).bus.arrow("transactions")
        for names in (["termination", "start_us", "transaction", "start_clk"], whole.schema.names[::-1], []):
            few = pcitrace.open(path, threads=threads).bus.arrow("transactions", columns=names)
            assert few.equals(whole.select(names))
            assert len(few) == len(whole)

    def test_they_are_taken_of_a_table_that_is_there(self, path: Path) -> None:
        bus = pcitrace.open(path).bus
        whole = bus.arrow("transactions")
        clocks = bus.arrow("transactions", columns=["clocks"])["clocks"]
        assert clocks.chunk(0).buffers()[1].address == whole["clocks"].chunk(0).buffers()[1].address
        assert bus.arrow("clocks", columns=["idle"]).equals(bus.arrow("clocks").select(["idle"]))

    def test_one_that_does_not_exist_is_named(self, path: Path) -> None:
        with pytest.raises(DecodeError, match="transactions has no column 'colour'; it has bus, transaction"):
            pcitrace.open(path).bus.arrow("transactions", columns=["clocks", "colour"])

    def test_threads_are_a_number(self, path: Path) -> None:
        with pytest.raises(DecodeError, match="threads = -1"):
            pcitrace.open(path, threads=-1)


def frames_by_hand(bits: np.ndarray) -> list[tuple[int | None, int | None, bytes | None]]:
    """Frames of TXEN, TXCLK and eight data lines, sample by sample."""
    frames: list[tuple[int | None, int | None, bytes | None]] = []
    start, symbols, enabled = None, bytearray(), None
    for number, (enable, clock, *_) in enumerate(bits):
        if number and bits[number - 1][1] and not clock and enabled:
            symbols.append(sum(int(bit) << place for place, bit in enumerate(bits[number - 1][2:])))
        if enabled is False and enable:
            start, symbols = number, bytearray()
        elif enabled and not enable:
            frames.append((start, number, None if start is None else bytes(symbols)))
            start = None
        enabled = bool(enable)
    if enabled:
        frames.append((start, None, None))
    return frames


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from((2, 3, 5, 8, 11)), st.integers(1, 700))
def test_frames_on_the_wire_are_read_as_by_hand(seed: int, unit: int, count: int) -> None:
    noise = np.random.default_rng(seed)
    bits = noise.integers(0, 2, (count, 10), dtype=np.uint8)
    # TXEN lasts; the rest is noise.
    bits[:, 0] = np.repeat(noise.integers(0, 2, count), noise.integers(1, 150, count))[:count]
    places = noise.permutation(8 * unit)[:10]
    data = np.zeros((count, 8 * unit), dtype=np.uint8)
    data[:, places] = bits
    samples = np.packbits(data, axis=1, bitorder="little").tobytes()
    names = [f"channel {bit}" for bit in range(8 * unit)]
    lines: Mapping[str, Any] = dict(
        zip(["TXEN", "TXCLK", *(f"TXDATA{i}" for i in range(8))], places.tolist(), strict=True)
    )
    wiring = {name: (place, 0, False) for name, place in lines.items()}
    capture = _kernel.from_samples(samples, unit, names, 1e6)
    table = pa.table(_kernel.Wire(capture, wiring).read(capture))
    got = list(zip(*(table[name].to_pylist() for name in ("start_us", "end_us", "bytes")), strict=True))
    assert got == frames_by_hand(bits)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from((1, 2, 5)), st.integers(1, 4000))
def test_frames_of_the_same_pass_as_a_bus_are_those_of_their_own(
    folder: Path, seed: int, threads: int, most: int
) -> None:
    """Wherever the capture is cut, and on however many threads."""
    noise = np.random.default_rng(seed)
    count = 20_000
    bits = noise.integers(0, 2, (count, 12), dtype=np.uint8)
    bits[:, 4] = np.repeat(noise.integers(0, 2, count), noise.integers(1, 900, count))[:count]
    names = ["CLK", "FRAME#", "IRDY#", "TRDY#", "TXEN", "TXCLK", *(f"TXDATA{i}" for i in range(4)), "spare0", "spare1"]
    sampled = waveforms.Sampled(names, bits, 1e8)
    lengths = noise.integers(1, most + 1, 2 * count // most + 1).tolist()
    path = waveforms.write_sr(folder / "wire.sr", sampled, chunk_bytes=lengths)
    run = pcitrace.open(path, threads=threads)
    [capture] = run.captures
    [wire] = capture.decoder.wires.values()
    alone = pa.table(wire.read(capture._kernel)).to_pylist()
    assert wire.frames is None
    capture.decoder.transactions([run.bus.spec], ["start_us"], data_phases=False)
    assert wire.frames is not None
    assert pa.table(wire.frames).to_pylist() == alone
    assert len(alone) > 2
