"""Exports, each read back by the program it is for and compared row by row, both ways."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from conftest import REPOSITORY, needed_program, shared_dir
from test_run import write_sr

import pcitrace
from pcitrace import analysis, schema
from pcitrace.cli import main
from pcitrace.export import FORMATS, install

CHANNELS = [
    "CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "GNT0#", "GNT1#", "GNT2#", "GNT3#", "CBE0#", "CBE1#",
    "CBE2#", "CBE3#", "PERR#", "SERR#",
]  # fmt: skip
TRACE = REPOSITORY / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"
CARD = REPOSITORY / "fixtures" / "traces" / "nic_g_a" / "bus.vcd.gz"


@pytest.fixture(scope="module")
def trace() -> pcitrace.Run:
    return pcitrace.open(TRACE)


def phrases(run: pcitrace.Run) -> list[str]:
    """What a transaction is called, written the slow way."""
    texts = []
    for row in run.bus.arrow("transactions").to_pylist():
        address = row["address"]
        where = "" if address is None else f" 0x{address:0{16 if address >> 32 else 8}x}"
        phases = f"{row['data_phases']} data phase{'' if row['data_phases'] == 1 else 's'}"
        texts.append(f"{row['command_name'] or 'transaction'}{where}: {phases}, {row['termination']}")
    return texts


def words(run: pcitrace.Run) -> list[str]:
    """What a data phase is called."""
    texts = []
    for row in run.bus.arrow("data_phases").to_pylist():
        if row["data"] is None:
            texts.append("?")
            continue
        lanes = 8 if row["data"] >> 32 or (row["byte_enables"] or 0) >> 4 else 4
        pairs = [f"{row['data'] >> 8 * lane & 0xFF:02x}" for lane in range(lanes - 1, -1, -1)]
        off = [(row["byte_enables"] or 0) >> lane & 1 for lane in range(lanes - 1, -1, -1)]
        texts.append("".join(".." if gone else pair for pair, gone in zip(pairs, off, strict=True)))
    return texts


def export(*arguments: str | Path) -> None:
    assert main(["export", *map(str, arguments)]) == 0


# ---- Parquet and Arrow


@pytest.mark.parametrize("table", ["transactions", "data_phases", "problems", "clocks"])
@pytest.mark.parametrize("to", ["parquet", "arrow"])
def test_tables_come_back_with_units_and_meanings(to: str, table: str, trace: pcitrace.Run, tmp_path: Path) -> None:
    path = tmp_path / f"t.{to}"
    export(TRACE, "--to", to, "--table", table, "-o", path)
    read = pa.parquet.read_table(path) if to == "parquet" else pa.ipc.open_file(path).read_all()
    wanted = trace.bus.arrow(table)
    assert read.column_names == list(schema.TABLES[table].column_names)
    assert read.to_pylist() == wanted.to_pylist()
    for column in schema.TABLES[table].columns:
        metadata = read.schema.field(column.name).metadata
        assert metadata[b"description"].decode() == column.meaning
        assert metadata.get(b"unit", b"").decode() == column.unit


@pytest.fixture(scope="module")
def frames() -> analysis.Frames:
    return analysis.frames(pcitrace.open(CARD), profile="generic")


@pytest.mark.parametrize("table", ["bursts", "pieces", "csr_accesses", "frames", "drop_log"])
@pytest.mark.parametrize("to", ["parquet", "arrow"])
def test_what_the_card_did_comes_back(to: str, table: str, frames: analysis.Frames, tmp_path: Path) -> None:
    """Row by row both ways, each cell with its null, and of DuckDB as of Arrow itself."""
    path = tmp_path / f"t.{to}"
    export(CARD, "--to", to, "--table", table, "--profile", "generic", "-o", path)
    read = pa.parquet.read_table(path) if to == "parquet" else pa.ipc.open_file(path).read_all()
    of_run = {"frames": frames.table, "drop_log": frames.drop_log}
    made = [of_run[table]] if table in of_run else [getattr(frames.hosts[name], table) for name in sorted(frames.hosts)]
    names = list(schema.TABLES[table].column_names)
    wanted = [
        {name: None if value is pd.NA or value != value else value for name, value in row.items()}
        for one in made
        for row in one.astype(object).to_dict("records")
    ]
    rows = read.to_pylist()
    assert read.column_names == names
    assert len(wanted) > 10 or table == "drop_log"
    assert rows == wanted
    answer = duckdb.sql("select * from read").fetchall()
    assert [dict(zip(names, row, strict=True)) for row in answer] == wanted
    for column in schema.TABLES[table].columns:
        assert read.schema.field(column.name).type == pa.type_for_alias(column.dtype)
        assert read.schema.field(column.name).metadata.get(b"unit", b"").decode() == column.unit


def test_duckdb_reads_parquet(trace: pcitrace.Run, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    export(TRACE, "--to", "parquet", "-o", path)
    rows = duckdb.sql(f"select start_us, address, termination from '{path}' order by start_us, transaction").fetchall()
    wanted = trace.bus.arrow("transactions")
    columns = (wanted[name].to_pylist() for name in ("start_us", "address", "termination"))
    assert rows == list(zip(*columns, strict=True))


# ---- sigrok


@pytest.fixture
def decoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder as it is installed for a user."""
    monkeypatch.setenv("SIGROKDECODE_DIR", str(tmp_path / "decoders"))
    assert main(["export", "--install-sigrok-decoder"]) == 0
    assert (tmp_path / "decoders" / "pci" / "pd.py").is_file()


def sigrok(*arguments: str | Path) -> list[str]:
    command = [needed_program("sigrok-cli"), *map(str, arguments), "--protocol-decoder-samplenum"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def shown(lines: list[str]) -> list[tuple[int, int, str]]:
    """Annotations as sigrok-cli prints them: first and last sample, and the text."""
    found = []
    for line in lines:
        span, _, text = line.partition(" pci-1: ")
        first, last = map(int, span.split("-"))
        found.append((first, last, text))
    return found


def own_rows(run: pcitrace.Run) -> list[tuple[int, int, str]]:
    """Transactions of a sampled capture as annotations."""
    rows = run.bus.arrow("transactions").to_pylist()
    return [(row["start_sample"], row["end_sample"], text) for row, text in zip(rows, phrases(run), strict=True)]


@pytest.mark.usefixtures("decoders")
def test_the_sidecar_shows_exactly_our_rows(trace: pcitrace.Run, tmp_path: Path) -> None:
    path = tmp_path / "x.sr"
    export(TRACE, "--to", "sigrok", "-o", path)
    options = f"pci:clk=CLK:file={path}.pci.tsv"
    transactions = shown(sigrok("-i", path, "-P", options, "-A", "pci=transaction"))
    # 300 MS/s of a file in picoseconds: the first sample with CLK high.
    ticks = [(row["start_sample"], row["end_sample"]) for row in trace.bus.arrow("transactions").to_pylist()]
    spans = [tuple(-(-tick * 3 // 10_000) for tick in pair) for pair in ticks]
    assert transactions == [(*span, text) for span, text in zip(spans, phrases(trace), strict=True)]
    data = shown(sigrok("-i", path, "-P", options, "-A", "pci=data"))
    assert [text for *_, text in data] == words(trace)
    problems = shown(sigrok("-i", path, "-P", options, "-A", "pci=problem"))
    assert len(problems) == len(trace.bus.problems)


@pytest.mark.usefixtures("decoders")
@pytest.mark.parametrize("name", ["blue33_seq6", "blue66_seq1"])
def test_the_decoder_alone_reads_the_values_before_the_edge(name: str) -> None:
    path = sorted((shared_dir() / "traces" / name).glob("ctl_*.sr"))[-1]
    run = pcitrace.open(path)
    lines = ("FRAME", "IRDY", "TRDY", "DEVSEL", "STOP", "CBE0", "CBE1", "CBE2", "CBE3")
    options = ":".join(["pci", "clk=CLK", *(f"{line.lower()}={line}#" for line in lines)])
    found = shown(sigrok("-i", path, "-P", options, "-A", "pci=transaction"))
    assert sorted(found) == sorted(own_rows(run))
    [note] = shown(sigrok("-i", path, "-P", options, "-A", "pci=note"))
    assert "slow" in note[2]


@pytest.mark.usefixtures("decoders")
def test_the_decoder_alone_reads_addresses_and_data(tmp_path: Path) -> None:
    path = tmp_path / "x.sr"
    export(TRACE, "--to", "sigrok", "-o", path)
    run = pcitrace.open(path)
    lines = ["FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "RST#", *(f"AD{n}" for n in range(32))]
    lines += [f"CBE{n}#" for n in range(4)]
    options = ":".join(["pci", "clk=CLK", *(f"{line.lower().rstrip('#')}={line}" for line in lines)])
    assert sorted(shown(sigrok("-i", path, "-P", options, "-A", "pci=transaction"))) == sorted(own_rows(run))
    assert [text for *_, text in shown(sigrok("-i", path, "-P", options, "-A", "pci=data"))] == words(run)


@pytest.mark.parametrize("name", ["ir_bose_button1_hold", "kc85-20mhz", "zp_a0_uart_a_115200_unitsize4"])
def test_samples_of_any_capture_are_the_same_to_sigrok(name: str, tmp_path: Path) -> None:
    source, path = shared_dir() / "captures" / f"{name}.sr", tmp_path / "x.sr"
    export(source, "--to", "sigrok", "-o", path)
    before, after = pcitrace.open(source).captures[0], pcitrace.open(path).captures[0]
    assert (after.channels, after.rate_hz) == (before.channels, before.rate_hz)
    command = [needed_program("sigrok-cli"), "-O", "csv:header=false", "-i"]
    read = [subprocess.run([*command, str(one)], capture_output=True, check=True).stdout for one in (source, path)]
    assert read[0] == read[1]


def test_of_more_channels_than_pulseview_opens_there_are_those_of_a_bus(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Two buses with all lines have more: that is said, and one bus alone is decoded as from the capture."""
    whole, one = tmp_path / "whole.sr", tmp_path / "one.sr"
    export(CARD, "--to", "sigrok", "-o", whole, "--profile", "generic")
    said = capsys.readouterr().err
    count = len(pcitrace.open(whole).captures[0].channels)
    assert f"PulseView: opens no more than 64 channels, and these are {count}; sigrok-cli reads all; --bus A" in said
    export(CARD, "--to", "sigrok", "-o", one, "--profile", "generic", "--bus", "B")
    assert "PulseView" not in capsys.readouterr().err
    channels = pcitrace.open(one).captures[0].channels
    assert len(channels) <= 64 < count
    rows = [pcitrace.open(path)["B"].transactions.drop(columns="bus") for path in (whole, one)]
    pd.testing.assert_frame_equal(*rows)
    assert len(rows[0]) > 100
    command = [needed_program("sigrok-cli"), "-i", str(one), "--show"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"Channels: {len(channels)}" in shown


# ---- VCD and FST


def test_vcd_has_the_lines_and_the_texts(trace: pcitrace.Run, tmp_path: Path) -> None:
    path = tmp_path / "x.vcd"
    export(TRACE, "--to", "vcd", "-o", path)
    for table in ("transactions", "data_phases", "problems"):
        assert pcitrace.open(path).bus.arrow(table).equals(trace.bus.arrow(table))
    assert texts_of(path) == expected_texts(trace)
    assert "pci_decoded.transaction" in path.with_suffix(".gtkw").read_text()


def test_fst_and_back_is_the_same(trace: pcitrace.Run, tmp_path: Path) -> None:
    path, back, plain = tmp_path / "x.fst", tmp_path / "back.vcd", tmp_path / "x.vcd"
    export(TRACE, "--to", "fst", "-o", path)
    export(TRACE, "--to", "vcd", "-o", plain)
    assert pcitrace.open(path).bus.arrow("transactions").equals(trace.bus.arrow("transactions"))
    subprocess.run([needed_program("fst2vcd"), "-f", path, "-o", back], check=True, capture_output=True)
    assert texts_of(back) == expected_texts(trace)
    assert changes_of(back) == changes_of(plain)


SEEN = """
set out [open told.txt w]
puts $out "[gtkwave::getWindowStartTime] [gtkwave::getWindowEndTime]"
gtkwave::setMarker MARKER
for {set i 0} {$i < [gtkwave::getTotalNumTraces]} {incr i} {
  puts $out "[gtkwave::getTraceNameFromIndex $i]|[gtkwave::getTraceValueAtMarkerFromIndex $i]"
}
close $out
gtkwave::/File/Quit
"""


@pytest.mark.parametrize("to", ["vcd", "fst"])
def test_gtkwave_opens_at_the_first_texts_and_shows_them(to: str, trace: pcitrace.Run, tmp_path: Path) -> None:
    """The save file, in the program itself: what its window shows, and what stands in each row at a time."""
    path = tmp_path / f"x.{to}"
    export(TRACE, "--to", to, "-o", path)
    rows = trace.bus.transactions
    (tmp_path / "seen.tcl").write_text(SEEN.replace("MARKER", str(rows["start_sample"][0] + 1)))
    screen, program = needed_program("xvfb-run"), needed_program("gtkwave")
    command = [screen, "--auto-servernum", program, "--script", "seen.tcl", "x.gtkw"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=600)
    window, *traces = (tmp_path / "told.txt").read_text().splitlines()
    start, end = map(int, window.split())
    assert start < rows["start_sample"][0] < rows["end_sample"][0] < end
    clocks = (end - start) / 30_000  # of 30 ns, in ps; how wide the window is, is GTKWave's
    assert 20 < clocks < 200
    said = dict(line.split("|") for line in traces)
    assert said["transaction"].replace("\\x20", " ") == phrases(trace)[0]
    assert {"data", "burst", "frame", "problem", "CLK", "FRAME"} <= {name.split(".")[-1] for name in said}


@pytest.mark.parametrize("capture", ["vectors", "sections", "gaps"])
def test_every_change_is_in_the_fst(capture: str, tmp_path: Path) -> None:
    """Vectors and unknown levels, a file of several sections, a capture with a gap: as GTKWave reads it."""
    if capture == "vectors":
        source = REPOSITORY / "fixtures" / "traces" / "blue33_seq1" / "bus.vcd.gz"
    elif capture == "sections":
        source = write_sr(tmp_path / "long.sr", CHANNELS, np.random.default_rng(3).bytes(1_120_000), unit_size=2)
    else:
        source = tmp_path / "gap.vcd"
        plain = gzip.decompress((REPOSITORY / "fixtures" / "traces" / "blue33_seq1" / "bus.vcd.gz").read_bytes())
        head, _, rest = plain.partition(b"#5001000\n")
        assert rest
        source.write_bytes(head + b"#5000001\n$dumpoff\n$end\n#5000900\n$dumpon\n$end\n#5001000\n" + rest)
    path, back, plain = tmp_path / "x.fst", tmp_path / "back.vcd", tmp_path / "x.vcd"
    export(source, "--to", "fst", "-o", path)
    export(source, "--to", "vcd", "-o", plain)
    subprocess.run([needed_program("fst2vcd"), "-f", path, "-o", back], check=True, capture_output=True)
    found = changes_of(back)
    assert found == changes_of(plain)
    assert sum(map(len, found.values())) > 1000


def changes_of(path: Path) -> dict[str, list[tuple[int, str]]]:
    """Of each signal of a VCD its values with their times, read by nothing of ours; a value that stays is none."""
    names: dict[str, tuple[str, int]] = {}
    found: dict[str, list[tuple[int, str]]] = {}
    scopes, tick = [], 0
    with path.open(encoding="latin-1") as file:
        for line in file:
            if line.startswith("$scope"):
                scopes.append(line.split()[2])
            elif line.startswith("$upscope"):
                scopes.pop()
            elif line.startswith("$var"):
                word = line.split()
                name = ".".join([*scopes, "".join(word[4:-1])])
                names[word[3]] = (name, int(word[2]))
                found[name] = []
            elif line[0] == "#":
                tick = int(line[1:])
            elif line[0] in "01xzbs":
                value, _, code = (
                    line[1:].rstrip("\n").rpartition(" ") if line[0] in "bs" else (line[0], "", line[1:].strip())
                )
                name, width = names[code]
                if line[0] == "b":
                    value = value.rjust(width, value[0] if value[0] in "xz" else "0")
                elif line[0] == "s":
                    value = value.replace("\\040", " ").replace("\\x20", " ")
                before = found[name][-1] if found[name] else None
                if before is not None and before[0] == tick:
                    found[name].pop()
                    before = found[name][-1] if found[name] else None
                if before is None or before[1] != value:
                    found[name].append((tick, value))
    # What is not known at the beginning needs no change, and a text is empty there.
    return {name: [one for n, one in enumerate(all) if n or one[1].strip("x")] for name, all in found.items()}


def expected_texts(run: pcitrace.Run) -> list[tuple[int, str]]:
    """The transactions as texts with their ticks."""
    rows = run.bus.arrow("transactions").to_pylist()
    return [(row["start_sample"], text) for row, text in zip(rows, phrases(run), strict=True)]


def texts_of(path: Path) -> list[tuple[int, str]]:
    """The texts called `transaction` of a VCD with their times, read by nothing of ours; empty ones left out."""
    found, tick, code = [], 0, None
    for line in path.read_text().splitlines():
        if line.startswith("$var string") and line.split()[4] == "transaction":
            code = line.split()[3]
        elif line.startswith("#"):
            tick = int(line[1:])
        elif line.startswith("s"):
            text, _, name = line[1:].rpartition(" ")
            if name == code and text:
                found.append((tick, text.replace("\\x20", " ").replace("\\040", " ")))
    return found


def test_a_pipe_or_device_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "pipe.vcd"
    os.mkfifo(path)
    assert main(["export", str(TRACE), "--to", "vcd", "-o", str(path)]) == 3
    assert capsys.readouterr().err.endswith("pipe.vcd: is not a regular file, and cannot be replaced by one\n")
    assert path.is_fifo()
    assert [*tmp_path.iterdir()] == [path]
    table = tmp_path / "pipe.csv"
    os.mkfifo(table)
    with pytest.raises(SystemExit, match="2"):
        main(["decode", str(TRACE), "-o", str(table)])
    assert table.is_fifo()


# ---- what is said


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["export", str(TRACE), "--to", "sigrok", "-o", str(tmp_path / "x.sr"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"]["transaction"] == 5976
    assert [text.split(":")[0] for text in said["left_out"]] == ["x", "z", "bursts and frames"]


@pytest.mark.parametrize("arguments", [["--to", "vcd"], ["-o", "x"], ["--to", "excel", "-o", "x"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", str(TRACE), *arguments])
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_every_format_is_on_the_command_line(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert set(FORMATS) <= set(capsys.readouterr().out.replace(",", " ").split())


def test_installs_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SIGROKDECODE_DIR", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert install.sigrok_decoder() == tmp_path / ".local/share/libsigrokdecode/decoders/pci"
    assert (tmp_path / ".local/share/libsigrokdecode/decoders/pci/pd.py").is_file()
