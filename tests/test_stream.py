"""Samples that are pushed give the rows that the whole capture gives, wherever they are cut; so does a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

import bad_files
import buses
import oracle
import pyarrow as pa
import pytest
import waveforms
from conftest import REPOSITORY
from hypothesis import given, settings
from hypothesis import strategies as st

import pcitrace
from pcitrace import _kernel
from pcitrace.cli import main
from pcitrace.errors import DecodeError, WiringError
from pcitrace.streaming import Found
from pcitrace.wiring import resolve_wiring

PROGRAM = Path(sys.executable).with_name("pcitrace")


@pytest.fixture(scope="module")
def sampled() -> waveforms.Sampled:
    traffic = buses.disturb(buses.long_run(6, 60).clocks, Random(1), unknown=False, flips=20)
    lines = oracle.CONTROL | {"C/BE#", "GNT#", "PAR", "AD"}
    capture, _ = waveforms.timing_mode(waveforms.wires(waveforms.settle(traffic, Random(1)), lines), Random(2))
    return capture


def raw(sampled: waveforms.Sampled) -> bytes:
    """The samples as sigrok-cli writes them."""
    import numpy as np

    return np.packbits(np.asarray(sampled.bits, np.uint8), axis=1, bitorder="little").tobytes()


def whole(data: bytes, sampled: waveforms.Sampled, window_us: float | None) -> dict[str, list[dict]]:
    """The tables of all samples at once."""
    unit = -(-len(sampled.names) // 8)
    capture = _kernel.from_samples(data, unit, sampled.names, sampled.rate_hz)
    spec = resolve_wiring(capture.channels).bus().spec()
    [decoded] = _kernel.decode(capture, [spec], data_phases=True, window_us=window_us)
    return {name: pa.table(getattr(decoded, name)).to_pylist() for name in Found._fields}


def joined(found: Sequence[Found]) -> dict[str, list[dict]]:
    """The rows of several parts; problems in order of time, as they come when they are over."""
    tables = {name: pa.concat_tables([getattr(part, name) for part in found]).to_pylist() for name in Found._fields}
    tables["problems"].sort(key=lambda row: row["time_us"])
    return tables


@settings(deadline=None, max_examples=40)
@given(data=st.data(), window=st.sampled_from([None, 0.3, 5.0]))
def test_pushed_equals_whole_wherever_it_is_cut(
    data: st.DataObject, window: float | None, sampled: waveforms.Sampled
) -> None:
    samples = raw(sampled)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(samples)), max_size=12)))
    live = pcitrace.stream(sampled.names, sampled.rate_hz, data_phases=True, window_us=window)
    found = [live.feed(samples[a:b]) for a, b in zip([0, *cuts], [*cuts, len(samples)], strict=True)]
    found.append(live.finish())
    wanted = whole(samples, sampled, window)
    got = joined(found)
    for name in ("transactions", "data_phases", "clocks"):
        assert got[name] == wanted[name], name
    key = lambda row: (row["time_us"], row["kind"], row["text"], row["transaction"] or 0)  # noqa: E731
    assert sorted(got["problems"], key=key) == sorted(wanted["problems"], key=key)


def test_chosen_columns_are_those_of_all(sampled: waveforms.Sampled) -> None:
    names, samples = ["termination", "end_us", "command_name"], raw(sampled)
    tables, streams = [], []
    for columns in (None, names):
        live = pcitrace.stream(sampled.names, sampled.rate_hz, rules=True, columns=columns)
        found = [live.feed(samples[:5001]), live.feed(samples[5001:])]
        streams.append([told for _, told in live.judged()])
        assert live.counted() == streams[-1]
        found.append(live.finish())
        assert live.counted() == [told for _, told in live.judged()]
        tables.append(pa.concat_tables([part.transactions for part in found]))
    assert tables[1].column_names == ["bus", *names]
    assert tables[1].to_pylist() == tables[0].select(["bus", *names]).to_pylist()
    assert streams[0] == streams[1]
    assert sum(streams[0][0]["counts"].values()) > 0


def test_rows_come_while_samples_come(sampled: waveforms.Sampled) -> None:
    samples, live = raw(sampled), pcitrace.stream(sampled.names, sampled.rate_hz)
    first = live.feed(samples[: len(samples) // 2]).transactions
    second = live.feed(samples[len(samples) // 2 :]).transactions
    assert min(first.num_rows, second.num_rows) > 10
    assert second["transaction"][0].as_py() == first.num_rows


@pytest.mark.parametrize("missing", [0, 1000])
def test_a_gap_cuts_what_is_on_the_bus_and_is_said(missing: int, sampled: waveforms.Sampled) -> None:
    samples, live = raw(sampled), pcitrace.stream(sampled.names, sampled.rate_hz)
    half = len(samples) // 2 // live.unit_size * live.unit_size
    before = live.feed(samples[: half + 1])
    gap, again, after = live.gap(missing), live.gap(), live.feed(samples[half:])
    rows = joined([before, gap, again, after, live.finish()])
    gaps = [row for row in rows["problems"] if row["kind"] == "gap"]
    assert sum(row["count"] for row in gaps) == 2
    assert len(gaps) == 1
    at_us = (half // live.unit_size) / sampled.rate_hz * 1e6
    assert gaps[0]["time_us"] == pytest.approx(at_us, abs=0.1)
    shifted = [row for row in rows["transactions"] if row["start_us"] > at_us]
    again = pcitrace.stream(sampled.names, sampled.rate_hz)
    alone = joined([again.feed(samples[half:]), again.finish()])["transactions"]
    offset = at_us + missing / sampled.rate_hz * 1e6
    assert len(shifted) == len(alone) > 10
    assert shifted[5]["start_us"] - offset == pytest.approx(alone[5]["start_us"], abs=1e-6)


def test_what_cannot_be_streamed_is_said(sampled: waveforms.Sampled) -> None:
    with pytest.raises(DecodeError, match="rate"):
        pcitrace.stream(sampled.names)
    with pytest.raises(WiringError, match="FRAME#"):
        pcitrace.stream(["SDA", "SCL"], 1e6)
    with pytest.raises(DecodeError, match="need samples of"):
        pcitrace.stream(sampled.names, 1e6, unit_size=1)
    live = pcitrace.stream(sampled.names, 1e6)
    with pytest.raises(DecodeError, match="CLK never rises"):
        live.finish()
    with pytest.raises(DecodeError, match="finished"):
        live.feed(b"")


def test_memory_of_a_stream_does_not_grow(sampled: waveforms.Sampled) -> None:
    """A dead bus on which IRDY# toggles for 64 M clocks: nothing is kept."""
    names = ["FRAME#", "IRDY#", "TRDY#"]
    live = pcitrace.stream(names, clock_mhz=33.0)
    piece = bytes([0b111, 0b101]) * (1 << 19)
    live.feed(piece)
    before = resident()
    for _ in range(64):
        live.feed(piece)
    assert resident() - before < 4 << 20, "0.06 bytes a sample"
    [row] = live.finish().problems.to_pylist()
    assert row["count"] == 65 << 19


def resident() -> int:
    """Bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_raw_samples_of_a_file_equal_a_session(sampled: waveforms.Sampled, tmp_path: Path) -> None:
    session = pcitrace.open(waveforms.write_sr(tmp_path / "a.sr", sampled)).bus
    (tmp_path / "a.bin").write_bytes(raw(sampled))
    bus = pcitrace.open(tmp_path / "a.bin", channels=sampled.names, rate_hz=sampled.rate_hz).bus
    assert bus.transactions.equals(session.transactions)
    assert bus.data_phases.equals(session.data_phases)


@pytest.mark.parametrize("command", ["stats", "decode"])
@pytest.mark.parametrize("named", [False, True])
def test_a_pipe_is_read(command: str, named: bool, sampled: waveforms.Sampled, tmp_path: Path) -> None:
    session = waveforms.write_sr(tmp_path / "a.sr", sampled)
    options = ["--format", "binary", "--channels", ",".join(sampled.names), "--rate", str(sampled.rate_hz)]
    wanted = subprocess.run([PROGRAM, command, session, "--json"], capture_output=True, check=True).stdout
    if named:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        writer = threading.Thread(target=lambda: fifo.write_bytes(raw(sampled)))
        writer.start()
        got = subprocess.run([PROGRAM, command, fifo, "--json", *options], capture_output=True, check=True)
        writer.join()
    else:
        got = subprocess.run(
            [PROGRAM, command, "-", "--json", *options], input=raw(sampled), capture_output=True, check=True
        )
    # Whether retried accesses were changed takes a pass of its own, for which a pipe cannot be read again.
    assert re.sub(rb'"changed": \w+', b'"changed": null', wanted) == got.stdout
    assert got.stderr == b""


def test_options_of_raw_samples_belong_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bad_files.written(tmp_path / "a.bin", b"\x00\x01")
    for options in (["--format", "binary"], ["--channels", "CLK"], ["--unit-size", "2"]):
        with pytest.raises(SystemExit, match="2"):
            main(["info", str(path), *options])
    capsys.readouterr()
    many = ",".join(f"D{n}" for n in range(9))
    assert main(["info", str(path), "--format", "binary", "--channels", many, "--unit-size", "1"]) == 3
    assert "--unit-size" in capsys.readouterr().err


def test_what_sigrok_cli_pipes_equals_its_session() -> None:
    """The real sigrok-cli writes the samples, and pcitrace reads them as they come."""
    session = REPOSITORY / "fixtures" / "traces" / "blue33_seq6" / "ctl_250MSs.sr"
    [capture] = pcitrace.open(session).captures
    options = ["--format", "binary", "--channels", ",".join(capture.channels), "--rate", str(capture.rate_hz)]
    with subprocess.Popen(["sigrok-cli", "-i", session, "-O", "binary"], stdout=subprocess.PIPE) as writer:
        piped = subprocess.run(
            [PROGRAM, "stats", "-", "--json", *options], stdin=writer.stdout, capture_output=True, check=True
        )
    assert writer.returncode == 0
    wanted = subprocess.run([PROGRAM, "stats", session, "--json"], capture_output=True, check=True)
    assert piped.stdout == wanted.stdout
    assert b'"transactions": 0' not in piped.stdout


@pytest.mark.parametrize("command", ["stats", "decode"])
def test_a_pipe_that_gives_no_sample_is_not_a_clock_that_stands(
    command: str, sampled: waveforms.Sampled, tmp_path: Path
) -> None:
    options = ["--format", "binary", "--channels", ",".join(sampled.names), "--rate", "1e8"]
    empty = subprocess.run([PROGRAM, command, "-", *options], input=b"", capture_output=True, check=False)
    assert empty.returncode == 3
    assert b"ended without a sample" in empty.stderr


def test_windows_of_a_pipe(sampled: waveforms.Sampled, tmp_path: Path) -> None:
    """What is counted window by window and as a whole comes from one pass."""
    session = waveforms.write_sr(tmp_path / "a.sr", sampled)
    options = ["--format", "binary", "--channels", ",".join(sampled.names), "--rate", str(sampled.rate_hz)]
    asked = ["--json", "--window-us", "3"]
    wanted = subprocess.run([PROGRAM, "stats", session, *asked], capture_output=True, check=True).stdout
    got = subprocess.run(
        [PROGRAM, "stats", "-", *asked, *options], input=raw(sampled), capture_output=True, check=True
    ).stdout
    assert re.sub(rb'"changed": \w+', b'"changed": null', wanted) == got
    assert got.count(b'"start_us"') > 3


def test_standard_input_is_raw_samples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["stats", "-"])
    assert "--format binary" in capsys.readouterr().err


def test_a_stated_size_of_a_sample_does_not_decide_about_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bad_files.written(tmp_path / "a.bin", b"\x00\x01" * 100)
    options = ["--format", "binary", "--channels", "CLK,FRAME#,IRDY#,TRDY#", "--rate", "1e8"]
    assert main(["stats", str(path), *options, "--unit-size", "999999999"]) == 3
    assert "--unit-size of 4096 at most" in capsys.readouterr().err
    with pytest.raises(DecodeError, match="4096"):
        pcitrace.stream(["CLK", "FRAME#", "IRDY#", "TRDY#"], 1e8, unit_size=999_999_999)
