"""CSV and raw samples as people save and say them: each is read right, or refused by a line that says what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bad_files
import numpy as np
import pytest
import waveforms
from decoding import decode

import pcitrace
from pcitrace import PciTraceError

SAMPLED = bad_files.sampled(6)
CHANGED = [0, *(1 + np.flatnonzero(np.diff(SAMPLED.bits, axis=0).any(axis=1)))]
WANTED = ["clocks", "command", "data_phases", "bytes", "termination"]


def timed(separator: str = ",", decimal: str = ".", head: str = "Time [s]", scale: float = 1.0, end: str = "\n") -> str:
    """A row for each sample that differs from the one before."""
    lines = [separator.join([head, *SAMPLED.names])]
    for number in CHANGED:
        time = f"{number / SAMPLED.rate_hz * scale:.10f}".replace(".", decimal)
        lines.append(separator.join([time, *(str(int(bit)) for bit in SAMPLED.bits[number])]))
    return "".join(line + end for line in lines)


def plain(rate: str = "100 MHz", separator: str = ",", end: str = "\n") -> str:
    """A row for each sample, with sigrok's comments."""
    count = len(SAMPLED.names)
    lines = [f"; Channels ({count}/{count}): {', '.join(SAMPLED.names)}", f"; Samplerate: {rate}"]
    lines += [separator.join(SAMPLED.names)]
    lines += [separator.join(str(int(bit)) for bit in row) for row in SAMPLED.bits]
    return "".join(line + end for line in lines)


def with_line(text: str, number: int, edit: Callable[[list[str]], list[str]]) -> str:
    """The text with the cells of one line edited."""
    lines = text.split("\n")
    lines[number] = ",".join(edit(lines[number].split(",")))
    return "\n".join(lines)


def with_time(time: str, line: int) -> str:
    return with_line(timed(), line, lambda cells: [time, *cells[1:]])


def with_cell(cell: str, text: str) -> str:
    return with_line(text, 30, lambda cells: [*cells[:3], cell, *cells[4:]])


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    rows = decode(waveforms.write_sr(tmp_path_factory.mktemp("odd") / "a.sr", SAMPLED)).transactions
    assert len(rows) == 6
    return rows


MIXED = "".join(line + ("\r\n" if number % 3 else "\n") for number, line in enumerate(timed().splitlines()))
READ = {
    "byte order mark": "\ufeff" + timed(),
    "; and decimal commas": timed(";", ","),
    "; and decimal points": timed(";"),
    "tabs": timed("\t"),
    "a separator that is stated": "sep=;\n" + timed(";", ","),
    "blanks": timed(", "),
    "line ends of Windows": timed(end="\r\n"),
    "mixed line ends": MIXED,
    "blank lines": timed().replace("\n", "\n\n"),
    "no last line end": timed().rstrip("\n"),
    "quoted names": ",".join(f'"{name}"' for name in ["Time [s]", *SAMPLED.names]) + "\n" + timed().split("\n", 1)[1],
    "milliseconds": timed(head="Time (milliseconds)", scale=1e3),
    "seconds": timed(head="Time (seconds)"),
    "sec": timed(head="time_sec"),
    "samples with ;": plain(separator=";"),
    "samples with blanks": plain(separator=" , "),
    "samples without a last line end": plain().rstrip("\n"),
}


@pytest.mark.parametrize("name", READ)
def test_a_csv_that_is_read(name: str, truth: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(READ[name].encode())
    rows = decode(tmp_path / "a.csv").transactions
    assert [[row[key] for key in WANTED] for row in rows] == [[row[key] for key in WANTED] for row in truth]
    assert [row["start_us"] for row in rows] == pytest.approx([row["start_us"] for row in truth], abs=1e-6)


REFUSED = {
    **{
        f"time {time!r}": (with_time(time, -2), r"is not a time")
        for time in ("nan", "-inf", "1e400", "0x10", "", "1_0")
    },
    **{f"begins at {time!r}": (with_time(time, 1), r"is not a time") for time in ("nan", "1e300", "9" * 30, "1e", "٣")},
    **{
        f"cell {cell!r} of {what}": (with_cell(cell, text), r"line 31: .*neither 0 nor 1")
        for cell in ("2", "-1", "x", "", "nan", "1.0", "01", "true", "\0", "+1")
        for what, text in (("times", timed()), ("samples", plain()))
    },
    "a cell less": (with_line(timed(), 30, lambda cells: cells[:-1]), r"line 31: 12 values where the first row has 13"),
    "a cell more": (with_line(timed(), 30, lambda cells: [*cells, "0"]), r"line 31: 14 values"),
    "a name less": (with_line(timed(), 0, lambda cells: cells[:-1]), r"14 cells where the row of names has 13"),
    "no names": (timed().split("\n", 1)[1], r"the first column holds `0\.0000000000`, no sample; if it is a time"),
    "a time by another name": (timed(head="Timestamp"), r"the first column `Timestamp` holds `0\.0000000000`"),
    "minutes": (timed(head="Time [min]"), r"the first column `Time \[min\]` holds"),
    "a time without unit": (timed(head="Time"), r"the time column has no unit"),
    "line ends of the first Macintosh": (timed(end="\r"), r"there is no row of samples"),
    "names alone": (timed().split("\n")[0], r"there is no row of samples"),
    "no FRAME#": (timed().replace("FRAME#", "X", 1), r"no channel for FRAME#"),
    "cut within a row": (timed()[:-5], r"11 values where the first row has 13"),
    "cut within a cell": (plain()[:-2], r"value 13 is ``"),
    "zeros of a lost block": (timed() + "\0" * 512, r"is not a time"),
    "two files in one": (timed() + timed(), r"`Time \[s\]` is not a time"),
    "backwards": ("\n".join(np.array(timed().split("\n"))[[0, 1, 3, 2]]) + "\n", r"time runs backwards"),
    "a comma in the rate": (plain("100,0 MHz"), r"not a positive rate"),
    "no unit that there is": (plain("100 XHz"), r"not a positive rate"),
    "a rate of nothing": (plain("0 Hz"), r"not a positive rate"),
    "a rate that nothing has": (plain("0." + 300 * "0" + "1 Hz"), r"a rate of 1e-301 Hz is not possible; give one of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_csv_that_is_refused(name: str, tmp_path: Path) -> None:
    text, pattern = REFUSED[name]
    (tmp_path / "a.csv").write_bytes(text.encode())
    with pytest.raises(PciTraceError, match=pattern):
        decode_all(tmp_path / "a.csv")


def decode_all(path: Path, **options: Any) -> int:
    return pcitrace.open(path, **options).bus.arrow("transactions").num_rows


@pytest.mark.parametrize("value", [1e-320, 1e300])
@pytest.mark.parametrize("name", ["rate_hz", "clock_mhz"])
def test_a_rate_whose_times_are_no_numbers(name: str, value: float, tmp_path: Path) -> None:
    """Their times were infinite, or 0 in each row."""
    impossible = r"a rate of \S+ Hz is not possible; give one of 1e-6 to 1e15 Hz"
    path = waveforms.write_sr(tmp_path / "a.sr", SAMPLED)
    with pytest.raises(PciTraceError, match=rf"a\.sr: {impossible}"):
        decode_all(path, **{name: value})
    options: dict[str, Any] = {name: value}
    with pytest.raises(PciTraceError, match=impossible):
        pcitrace.stream(SAMPLED.names, **options)


def raw(folder: Path, more: bytes, *options: str, stdin: bool) -> subprocess.CompletedProcess[str]:
    """`pcitrace decode` of the samples in units of two bytes, with bytes behind them."""
    path = folder / "a.bin"
    path.write_bytes(SAMPLED.units(2, range(len(SAMPLED.names))) + more)
    command = [sys.executable, "-m", "pcitrace", "decode", "-" if stdin else str(path), "--format", "binary"]
    command += ["--channels", ",".join(SAMPLED.names), "-o", str(folder / "out.csv"), *options]
    with path.open("rb") as source:
        return subprocess.run(command, stdin=source, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("stdin", [False, True])
@pytest.mark.parametrize(
    ("more", "options", "status", "pattern"),
    [
        (b"", ["--rate", "100e6"], 0, r"6 transactions, 0 problems"),
        (b"\0", ["--rate", "100e6"], 0, r"6 transactions, 1 problems"),
        (b"", ["--rate", "100e6", "--unit-size", "3"], 0, r"transactions, [1-9]\d* problems"),
        (b"", ["--rate", "100e6", "--unit-size", "1"], 3, r"13 channels do not fit into samples of 1 bytes"),
        (b"", ["--rate", "0"], 2, r"'0' is not a positive number"),
        (b"", ["--rate", "1e-320"], 3, r"a rate of 1e-320 Hz is not possible"),
        (b"", [], 3, r"states no sample rate; give it with --rate"),
    ],
)
def test_raw_samples(more: bytes, options: list[str], status: int, pattern: str, stdin: bool, tmp_path: Path) -> None:
    done = raw(tmp_path, more, *options, stdin=stdin)
    assert done.returncode == status
    assert re.search(pattern, done.stdout + done.stderr)
    assert "Traceback" not in done.stderr
