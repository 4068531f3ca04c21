"""pcapng, read back by the real tshark as a user who is not root, with the dissector as it is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY, needed_program, shared_dir

import pcitrace
from pcitrace.cli import main

TRACE = REPOSITORY / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"
NOBODY = 65534


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder in which that user may read and write; the dissector is installed in it."""
    with tempfile.TemporaryDirectory(prefix="pcitrace-wireshark-") as name:
        home = Path(name)
        before = os.environ.get("HOME")
        os.environ["HOME"] = name
        try:
            assert main(["export", "--install-wireshark-dissector"]) == 0
        finally:
            os.environ["HOME"] = before or ""
        for path in [home, *home.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        yield home


def tshark(folder: Path, *arguments: str) -> str:
    """What tshark prints; root loads no Lua, so it is another user then."""
    command = [needed_program("tshark"), *arguments]
    if os.getuid() == 0:
        options = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        command = [needed_program("setpriv"), *options, *command]
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def exported(folder: Path, source: Path, *arguments: str) -> Path:
    path = folder / f"{source.parent.name}.pcapng"
    assert main(["export", str(source), "--to", "pcapng", "-o", str(path), *arguments]) == 0
    return path


FIELDS = {
    "pcibus.transaction": "transaction",
    "pcibus.cmd": "command",
    "pcibus.command": "command_name",
    "pcibus.address": "address",
    "pcibus.initiator": "initiator",
    "pcibus.termination": "termination",
    "pcibus.start_clk": "start_clk",
    "pcibus.clocks": "clocks",
    "pcibus.data_phases": "data_phases",
    "pcibus.bytes": "bytes",
    "pcibus.wait": "wait_clks",
    "pcibus.target_wait": "target_wait_clks",
    "pcibus.initiator_wait": "initiator_wait_clks",
    "pcibus.devsel": "devsel_clks",
    "pcibus.fast_back_to_back": "fast_back_to_back",
    "pcibus.bytes_exact": "bytes_exact",
    "pcibus.dac": "dac",
    "pcibus.address_parity_ok": "address_parity_ok",
    "pcibus.perr": "perr",
    "pcibus.serr": "serr",
    "pcibus.suspect": "suspect",
}


def text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def test_every_transaction_comes_back(folder: Path) -> None:
    path = exported(folder, TRACE)
    names = ["frame.time_epoch", *FIELDS, "pcibus.data", "pcibus.data.byte_enables"]
    lines = tshark(folder, "-r", str(path), "-T", "fields", *(word for name in names for word in ("-e", name)))
    bus = pcitrace.open(TRACE).bus
    rows = bus.arrow("transactions").to_pylist()
    moved: dict[int, list[dict]] = {}
    for phase in bus.arrow("data_phases").to_pylist():
        moved.setdefault(phase["transaction"], []).append(phase)
    read = [line.split("\t") for line in lines.splitlines()]
    assert len(read) == len(rows)
    for fields, row in zip(read, rows, strict=True):
        assert round(float(fields[0]) * 1e9) == round(row["start_us"] * 1e3)
        found = dict(zip(names, fields, strict=True))
        if found["pcibus.address"]:
            found["pcibus.address"] = str(int(found["pcibus.address"], 16))
        assert [found[name] for name in FIELDS] == [text(row[column]) for column in FIELDS.values()]
        phases = moved.get(row["transaction"], [])
        for name, column in (("pcibus.data", "data"), ("pcibus.data.byte_enables", "byte_enables")):
            values = [int(one, 16) for one in found[name].split(",") if one]
            assert values == [phase[column] for phase in phases if phase[column] is not None]


def test_filters_columns_and_statistics(folder: Path, capsys: pytest.CaptureFixture) -> None:
    path = exported(folder, TRACE)
    rows = pcitrace.open(TRACE).bus.where("command == 12 and clocks > 10")
    lines = tshark(folder, "-r", str(path), "-Y", "pcibus.cmd == 12 && pcibus.clocks > 10").splitlines()
    assert len(lines) == len(rows) > 0
    assert all("memory_read_multiple" in line and "PCI" in line for line in lines)
    total = int(pcitrace.open(TRACE).bus.transactions["bytes"].sum())
    statistics = tshark(folder, "-r", str(path), "-q", "-z", "io,stat,0,SUM(pcibus.bytes)pcibus.bytes")
    assert f" {total} |" in statistics
    comments = tshark(folder, "-r", str(path), "-T", "fields", "-e", "frame.comment").splitlines()
    assert len(comments) == 5976
    assert "5976 transactions, 337 problems" in capsys.readouterr().out
    problems = pcitrace.open(TRACE).bus.problems["kind"]
    assert sum(comment.count("data_parity: ") for comment in comments) == int((problems == "data_parity").sum()) > 0


def test_problems_of_no_transaction_are_packets(folder: Path) -> None:
    source = REPOSITORY / "fixtures" / "faults" / "irdy-inverted.sr"
    path = exported(folder, source)
    problems = pcitrace.open(source).bus.problems
    alone = problems[problems["transaction"].isna()].sort_values("time_us", kind="stable")
    names = ("frame.time_epoch", "pcibus.bus", "pcibus.problem", "pcibus.start_clk", "frame.comment")
    lines = tshark(folder, "-r", str(path), "-T", "fields", *(word for name in names for word in ("-e", name)))
    expected = [
        [str(round(row["time_us"] * 1e3)), "PCI", row["kind"], str(row["first_clk"]), f"{row['kind']}: {row['text']}"]
        for row in alone.to_dict("records")
    ]
    read = [line.split("\t") for line in lines.splitlines()]
    assert [[str(round(float(time) * 1e9)), *rest] for time, *rest in read] == expected
    assert len(expected) == 2


def test_frames_in_memory_are_those_on_the_wire(folder: Path, capsys: pytest.CaptureFixture) -> None:
    """Both directions, every byte, held against the wire, whose check sequences are right."""
    source = shared_dir() / "traces" / "nic_g_a" / "bus.vcd.gz"
    path = exported(folder, source, "--profile", "generic")
    assert "320 frames, 160 wire" in capsys.readouterr().out
    lines = tshark(folder, "-r", str(path), "-Y", "eth", "-T", "json", "-x")
    at: dict[str, list[bytes]] = {}
    for packet in json.loads(lines):
        layers = packet["_source"]["layers"]
        name = layers["frame"]["frame.interface_id_tree"]["frame.interface_name"]
        at.setdefault(name, []).append(bytes.fromhex(layers["frame_raw"][0]))
    assert set(at) == {"A memory", "B memory", "A wire", "B wire"}
    sent = []
    for name in ("A wire", "B wire"):
        assert len(at[name]) == 80
        for frame in at[name]:
            assert zlib.crc32(frame[:-4]) == int.from_bytes(frame[-4:], "little")
            sent.append(frame[:-4])
    # Each frame is read from one memory and written to the other, without the padding of the wire.
    assert sorted(at["A memory"]) == sorted(at["B memory"])
    assert len(at["A memory"]) == 160
    for frame in at["A memory"]:
        assert any(wire.startswith(frame) and len(wire) == max(len(frame), 60) for wire in sent)


def test_without_bytes_no_frame_is_made_up(folder: Path, capsys: pytest.CaptureFixture) -> None:
    """Control lines tell when frames are, not what is in them."""
    exported(folder, shared_dir() / "traces" / "nic_g_a" / "control16.sr", "--profile", "generic")
    captured = capsys.readouterr()
    assert "0 frames, 0 wire" in captured.out
    assert re.search(r"frames received: of 160 the bytes or the length are not all known", captured.err)
