"""Changes of INTA# to INTD# and LOCK#, and IDSEL: equal to a look at every clock, in every way of reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import buses
import numpy as np
import oracle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import waveforms
from hypothesis import given, settings
from hypothesis import strategies as st

import pcitrace
from pcitrace.cli import main
from pcitrace.instrument.stream import parts

LINES = ("INTA#", "INTB#", "INTC#", "INTD#", "LOCK#")


def beside(sampled: waveforms.Sampled, rng: Random, every: int, idsels: int = 0) -> waveforms.Sampled:
    """The same samples with lines that change about once in `every` of them, and with IDSEL lines."""
    noise = np.random.default_rng(rng.randrange(2**32))
    count = len(sampled.bits)
    flips = noise.random((count, len(LINES))) < 1 / every
    levels = (np.cumsum(flips, axis=0) + 1) % 2
    names = [*sampled.names, *LINES, *(f"IDSEL{n}" for n in range(idsels))]
    high = noise.random((count, idsels)) < 0.5
    return waveforms.Sampled(names, np.hstack([sampled.bits, levels, high]).astype(np.uint8), sampled.rate_hz)


def expected(sampled: waveforms.Sampled, clocks: int | None, rows: list[dict]) -> list[dict]:
    """A look at every clock: `clocks` counts them in state mode; `rows` are the transactions."""
    bits = np.asarray(sampled.bits, int)
    column = {name: n for n, name in enumerate(sampled.names)}
    if clocks is None:
        clk = bits[:, column["CLK"]]
        seen = np.flatnonzero((clk[:-1] == 0) & (clk[1:] == 1))
        stamps = seen + 1
    else:
        seen = stamps = np.arange(clocks)
    found = []
    for n in range(1, len(seen)):
        number = next((r["transaction"] for r in rows if r["start_clk"] <= n < r["start_clk"] + r["clocks"]), None)
        for line in LINES:
            before, now = bits[seen[n - 1], column[line]], bits[seen[n], column[line]]
            if before != now:
                edge = "rising" if now else "falling"
                found.append({"clk": n, "line": line, "edge": edge, "transaction": number, "sample": int(stamps[n])})
    return found


def assert_events(got: list[dict], wanted: list[dict], tick_us: float) -> None:
    assert [{key: row[key] for key in ("clk", "line", "edge", "transaction")} for row in got] == [
        {key: row[key] for key in ("clk", "line", "edge", "transaction")} for row in wanted
    ]
    assert [row["time_us"] for row in got] == pytest.approx([row["sample"] * tick_us for row in wanted])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


def timing(seed: int, count: int, every: int, captured: frozenset[str] = oracle.CONTROL) -> waveforms.Sampled:
    traffic = buses.disturb(buses.long_run(seed, count).clocks, Random(seed), unknown=False, flips=4)
    bus = waveforms.wires(waveforms.settle(traffic, Random(seed)), captured)
    return beside(waveforms.timing_mode(bus, Random(seed))[0], Random(seed), every)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**20), every=st.sampled_from([3, 20, 400]), threads=st.sampled_from([1, 2, 5]))
def test_events_equal_a_look_at_every_clock(folder: Path, seed: int, every: int, threads: int) -> None:
    sampled = timing(seed, 30, every)
    rng = Random(seed)
    lengths = [rng.randrange(1, 3000) for _ in range(300)]
    path = waveforms.write_sr(folder / "timing.sr", sampled, chunk_bytes=lengths, unit_size=rng.choice((None, 3, 7, 8)))
    bus = pcitrace.open(path, threads=threads).bus
    wanted = expected(sampled, None, bus.arrow("transactions").to_pylist())
    assert_events(bus.arrow("events").to_pylist(), wanted, 1e6 / sampled.rate_hz)


@settings(deadline=None, max_examples=15)
@given(clocks=buses.illegal(unknown=False), seed=st.integers(0, 2**20))
def test_events_of_any_traffic_in_state_mode(folder: Path, clocks: list[oracle.Clock], seed: int) -> None:
    wires = waveforms.wires(waveforms.settle(clocks, Random(seed)), oracle.CONTROL | {"C/BE#"})
    sampled = beside(waveforms.state_mode(wires), Random(seed), 5)
    bus = pcitrace.open(waveforms.write_sr(folder / "state.sr", sampled), clock_mhz=33.0).bus
    wanted = expected(sampled, len(clocks), bus.arrow("transactions").to_pylist())
    assert_events(bus.arrow("events").to_pylist(), wanted, 1 / 33.0)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**20), every=st.sampled_from([3, 20, 400]), threads=st.sampled_from([1, 2]))
def test_events_in_parts_are_the_same_however_a_capture_is_cut(
    folder: Path, seed: int, every: int, threads: int
) -> None:
    sampled, rng = timing(seed, 30, every), Random(seed)

    def listed(lengths: list[int] | None) -> tuple[list[dict], int]:
        path = waveforms.write_sr(folder / "parts.sr", sampled, chunk_bytes=lengths)
        bus = pcitrace.open(path, threads=threads).bus
        rows = [row for part in parts([bus], (), rules=()) for row in pa.table(part.problems).to_pylist()]
        found = [row for row in rows if row["kind"] == "event"]
        return sorted(found, key=lambda row: (row["first_clk"], row["text"])), bus.arrow("events").num_rows

    whole, changes = listed(None)
    assert sum(row["count"] for row in whole) == changes
    assert listed([rng.randrange(1, 3000) for _ in range(300)]) == (whole, changes)


def test_every_reader_says_the_same(folder: Path) -> None:
    sampled = timing(3, 60, 30)
    changes = waveforms.sampled_changes(sampled, 10_000)
    paths = [
        waveforms.write_sr(folder / "a.sr", sampled),
        waveforms.write_sigrok_csv(folder / "a.csv", sampled),
        waveforms.write_vcd(folder / "a.vcd", changes, tick_ps=10_000, scope="PCI"),
    ]
    tables = [pcitrace.open(path).bus.arrow("events").drop(["bus"]).to_pylist() for path in paths]
    assert len(tables[0]) > 100
    for table in tables[1:]:
        assert [(row["clk"], row["line"], row["edge"], row["transaction"]) for row in table] == [
            (row["clk"], row["line"], row["edge"], row["transaction"]) for row in tables[0]
        ]


def test_pushed_written_and_asked_for_in_sql_are_the_same(folder: Path) -> None:
    sampled = timing(5, 80, 25)
    path = waveforms.write_sr(folder / "b.sr", sampled)
    run = pcitrace.open(path)
    wanted = run.bus.arrow("events")
    assert wanted.num_rows > 100
    assert run.bus.events.equals(wanted.to_pandas(types_mapper=__import__("pandas").ArrowDtype))
    assert len(run.bus.where("line == 'INTA#'", table="events")) == sum(wanted["line"].to_numpy(False) == "INTA#")

    live = pcitrace.stream(sampled.names, sampled.rate_hz)
    samples = np.packbits(sampled.bits, axis=1, bitorder="little").tobytes()
    pieces = [live.feed(samples[at : at + 4999]).events for at in range(0, len(samples), 4999)]
    assert pa.concat_tables([*pieces, live.finish().events]).to_pylist() == wanted.to_pylist()

    for ending in ("csv", "parquet"):
        out = folder / f"events.{ending}"
        assert main(["decode", str(path), "-o", str(folder / "t.csv"), "--events", str(out)]) == 0
    assert pq.read_table(folder / "events.parquet").to_pylist() == wanted.to_pylist()
    assert len((folder / "events.csv").read_text().splitlines()) == wanted.num_rows + 1
    assert "--events" in _usage_error(["decode", str(path), "-o", str(folder / "t.csv"), "--events", str(path)])


def _usage_error(arguments: list[str]) -> str:
    import contextlib
    import io

    shown = io.StringIO()
    with contextlib.redirect_stderr(shown), pytest.raises(SystemExit, match="2"):
        main(arguments)
    return shown.getvalue()


def test_unknown_levels_and_gaps_are_no_change(folder: Path) -> None:
    """A line that is unknown for a while has changed where it is known again; one that is not driven is high."""
    vcd = folder / "x.vcd"
    lines = {"CLK": "c", "FRAME#": "f", "IRDY#": "i", "TRDY#": "t", "INTA#": "a", "LOCK#": "l"}
    head = "".join(f"$var wire 1 {code} {name} $end\n" for name, code in lines.items())
    body = ["#0 0c 1f 1i 1t xa zl"]
    for clk, change in enumerate(["", "1a", "xa", "0a 0l", "xa", "0a zl", "1a"]):
        body.append(f"#{clk * 30 + 5} {change} 0c\n#{clk * 30 + 15} 1c")
    vcd.write_text(f"$timescale 1 ns $end\n{head}$enddefinitions $end\n" + "\n".join(body) + "\n")
    rows = pcitrace.open(vcd).bus.arrow("events").to_pylist()
    assert [(row["clk"], row["line"], row["edge"], row["transaction"]) for row in rows] == [
        (3, "INTA#", "falling", None),
        (3, "LOCK#", "falling", None),
        (5, "LOCK#", "rising", None),
        (6, "INTA#", "rising", None),
    ]


def test_idsel_names_the_line_of_a_configuration_access(folder: Path) -> None:
    traffic = buses.long_run(9, 400)
    wires = waveforms.wires(waveforms.settle(traffic.clocks, Random(9)), oracle.CONTROL | {"AD", "C/BE#"})
    sampled = beside(waveforms.state_mode(wires), Random(9), 1000, idsels=2)
    rows = pcitrace.open(waveforms.write_sr(folder / "i.sr", sampled), clock_mhz=33.0).bus.arrow("transactions")
    rows = rows.to_pylist()
    column = {name: n for n, name in enumerate(sampled.names)}
    assert {None, "IDSEL0", "IDSEL1"} == {row["idsel"] for row in rows}
    for row in rows:
        last_address = row["start_clk"]
        high = [name for name in ("IDSEL0", "IDSEL1") if sampled.bits[last_address, column[name]]]
        is_configuration = row["command"] in (0xA, 0xB) and not row["dac"]
        assert row["idsel"] == (high[0] if is_configuration and len(high) == 1 else None)


def test_nothing_is_kept_where_nobody_asks(folder: Path) -> None:
    from pcitrace import _kernel
    from pcitrace.wiring import resolve_wiring

    capture = _kernel.open(str(waveforms.write_sr(folder / "n.sr", timing(1, 30, 5))))
    spec: Mapping[str, Any] = resolve_wiring(capture.channels).bus().spec()
    [decoded] = _kernel.decode(capture, [spec])
    assert decoded.events.num_rows == 0
