"""What bad input gets: one clear line with file, place and remedy, exit 3, no traceback, no partial output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import waveforms
from bad_files import (
    CASES,
    corrupt_member,
    sampled,
    wrong_magic,
    zip_bomb_in_metadata,
    zip_member_larger_than_declared,
)  # fmt: skip
from conftest import peak_memory

import pcitrace
from pcitrace.cli import main
from pcitrace.simulate import Simulation, simulate


@pytest.mark.parametrize("name", list(CASES))
def test_bad_file(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make, message = CASES[name]
    source = tmp_path / "in"
    source.mkdir()
    path = make(source)
    out = tmp_path / "out"
    out.mkdir()
    status = main(["decode", str(path), "-o", str(out / "t.csv"), "--data-phases", str(out / "d.parquet")])
    captured = capfd.readouterr()
    assert status == 3, captured
    assert_one_clear_line(captured.err, path, message)
    assert captured.out == ""
    assert list(out.iterdir()) == []


def assert_one_clear_line(stderr: str, path: Path, message: str) -> None:
    """One line that names the file and says what was found."""
    assert stderr.startswith("pcitrace: ")
    assert stderr.count("\n") == 1, stderr
    assert path.name in stderr
    rest = stderr.replace(str(path), "")
    assert re.search(message, rest, re.I), f"{rest!r} does not match {message!r}"
    assert "Traceback" not in stderr
    assert "panicked" not in stderr


BUS_QUESTIONS = ("rate_absent", "line_missing", "no_clock_channel", "no_pci_at_all", "no_clock_edge")


@pytest.mark.parametrize("name", BUS_QUESTIONS)
def test_readable_captures_open_although_no_bus_can_be_decoded(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = CASES[name][0](tmp_path)
    [capture] = pcitrace.open(path).captures
    assert len(capture.samples()) == len(sampled().bits)
    assert main(["info", str(path)]) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("command", ["decode", "info", "stats"])
def test_exit_status_of_the_installed_command(command: str, tmp_path: Path) -> None:
    path = wrong_magic(tmp_path)
    program = Path(sys.executable).with_name("pcitrace")
    result = subprocess.run([program, command, path], capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert_one_clear_line(result.stderr, path, "format|not a capture|recogni")


@pytest.mark.parametrize("command", ["decode", "bursts"])
def test_output_that_cannot_be_written(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = waveforms.write_sr(tmp_path / "good.sr", sampled())
    out = tmp_path / "no" / "such" / "folder" / "t.csv"
    assert main([command, str(path), "-o", str(out)]) == 3
    assert_one_clear_line(capfd.readouterr().err, out, "No such file")


def test_a_failed_decode_keeps_the_output_of_the_one_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.csv"
    assert main(["decode", str(waveforms.write_sr(tmp_path / "good.sr", sampled())), "-o", str(out)]) == 0
    before = out.read_bytes()
    bad = corrupt_member(tmp_path)
    assert main(["decode", str(bad), "-o", str(out)]) == 3
    assert out.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".sr"] == ["t.csv"]
    capfd.readouterr()


@pytest.mark.parametrize("make", [zip_bomb_in_metadata, zip_member_larger_than_declared])
def test_zip_bombs_take_no_memory(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    status, _, kib = peak_memory(["decode", str(path), "-o", str(tmp_path / "t.csv")])
    assert status == 3
    assert kib < 80_000  # the interpreter alone takes about 20 MB


@pytest.mark.parametrize("wires", ["control16", "full"])
def test_an_idle_bus_is_a_finding(tmp_path: Path, wires: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing happens before the capture ends: not one transaction."""
    values = {"analyser.wires": wires, "analyser.duration_us": 15.0, "test.configure": False}
    run = simulate(Simulation(), tmp_path / "run", values=values)
    for command in ("frames", "bursts", "csr"):
        assert main([command, str(run), "-o", str(tmp_path / "out.csv")]) == 0
    assert main(["stats", str(run), "--profile", "generic"]) == 0
    capsys.readouterr()
    assert main(["report", str(run), "-o", str(tmp_path / "r.html"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert all(one["value"] is None and one["reason"] for one in told["constants"].values())
    assert told["buses"]["A"]["transactions"] == 0
    assert sum("no transaction was begun by the NIC" in finding for finding in told["findings"]) == 2
