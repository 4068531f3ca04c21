"""Any arguments of `pcitrace export`: a file, or one clear line; never a traceback, never half a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY
from hypothesis import given, settings
from hypothesis import strategies as st

import pcitrace
from pcitrace.cli import main

SMALL = REPOSITORY / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"
TEXT = """--to sigrok vcd ftr perfetto parquet pcapng
-o --bus pci nobody --profile generic --table frames clocks
--sample-rate -1 1e6 nan --json
--rate 0 --clock-mhz 33 --recover-clock --wiring /nowhere /nowhere/x --threads --format binary
--channels CLK,,A --unit-size \x00 é --grant -"""
WORDS = st.sampled_from(TEXT.split())


@settings(max_examples=60)
@given(words=st.lists(WORDS, max_size=6), capture=st.sampled_from([None, "/nowhere.sr", str(REPOSITORY / "README.md")]))
def test_any_words_end_with_a_status(words: list[str], capture: str | None) -> None:
    arguments = ["export", *([capture] if capture is not None else []), *words]
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status in (0, 2, 3)


@pytest.mark.parametrize("to", ["sigrok", "pcapng", "vcd", "fst", "ftr", "perfetto", "parquet", "arrow"])
def test_a_capture_without_a_bus_says_what_is_missing(to: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    capture = tmp_path / "no-bus.vcd"
    capture.write_text("$timescale 1 ns $end $var wire 1 ! a $end $enddefinitions $end\n#0 0!\n#5 1!\n#9 0!\n")
    path = tmp_path / f"out.{to}"
    status = main(["export", str(capture), "--to", to, "-o", str(path)])
    said = capsys.readouterr().err
    if to in ("sigrok", "vcd", "fst"):
        # Its lines are there all the same.
        assert status == 0
        assert path.stat().st_size > 0
        assert "no PCI bus" in said
    else:
        assert status == 3
        assert "no PCI bus" in said
        assert not path.exists()
    assert "Traceback" not in said


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["export", str(SMALL), "--to", "vcd", "-o", str(tmp_path / "no" / "x.vcd")]) == 3
    assert str(tmp_path / "no" / "x.vcd") in capsys.readouterr().err


def test_a_profile_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "x.ftr"
    assert main(["export", str(SMALL), "--to", "ftr", "--profile", "nonsense", "-o", str(path)]) == 3
    assert "nonsense" in capsys.readouterr().err
    assert not path.exists()


def test_gaps_are_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Nothing was recorded for a while: in the VCD it still is not, samples cannot say so."""
    header = "$timescale 1 ns $end\n"
    lines = ("CLK", "FRAME#", "IRDY#", "TRDY#")
    header += "".join(f"$var wire 1 {chr(33 + n)} {name} $end\n" for n, name in enumerate(lines))
    body = '$enddefinitions $end\n#0 0! 1" 1# 1$\n'
    for tick in range(15, 3000, 30):
        body += '#1000\n$dumpoff x! x" x# x$ $end\n#1300\n$dumpon 0! 1" 1# 1$ $end\n' if tick == 1005 else ""
        body += f"#{tick} 1!\n#{tick + 15} 0!\n" if not 990 < tick < 1300 else ""
    capture = tmp_path / "gap.vcd"
    capture.write_text(header + body)
    problems = pcitrace.open(capture).bus.arrow("problems").to_pylist()
    assert [row["kind"] for row in problems] == ["gap"]
    assert main(["export", str(capture), "--to", "sigrok", "-o", str(tmp_path / "x.sr")]) == 0
    assert "1 gaps of the capture" in capsys.readouterr().err
    assert main(["export", str(capture), "--to", "vcd", "-o", str(tmp_path / "x.vcd")]) == 0
    assert pcitrace.open(tmp_path / "x.vcd").bus.arrow("problems").to_pylist() == problems


def test_a_terminal_without_the_characters_is_no_error() -> None:
    code = "from pcitrace.cli import main; main(['info', sys.argv[1]]); print('5 µs ± 1, ≤ 2 … 日')"
    command = [sys.executable, "-c", f"import sys; {code}", str(SMALL)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run(command, capture_output=True, env=environment, check=True).stdout
    assert found.splitlines()[-1] == b"5 us +- 1, <= 2 ... ?"


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "pcitrace", "export", "--help"]
    assert b"--to FORMAT" in subprocess.run(command, capture_output=True, check=True).stdout


@pytest.mark.parametrize("to", ["sigrok", "pcapng", "vcd", "fst", "ftr", "perfetto", "parquet", "arrow"])
@pytest.mark.parametrize("levels", [0b11111, 0b11110, 0b00000], ids=["idle", "FRAME# stuck", "all stuck"])
def test_a_bus_that_is_stuck_is_exported(to: str, levels: int, tmp_path: Path) -> None:
    (tmp_path / "stuck.bin").write_bytes(bytes([levels]) * 50)
    lines = "FRAME#,IRDY#,TRDY#,DEVSEL#,STOP#"
    raw = ["--format", "binary", "--channels", lines, "--clock-mhz", "33"]
    out = tmp_path / ("x" if to in ("parquet", "arrow") else "x.out")
    assert main(["export", str(tmp_path / "stuck.bin"), *raw, "--to", to, "-o", str(out)]) in (0, 3)
