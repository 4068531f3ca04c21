"""`fixtures/faults`: the first `!` line of each listing and the first row of each check name the cause."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY

import pcitrace
from pcitrace.cli import main
from pcitrace.instrument.judged import check
from pcitrace.instrument.listing import Settings, lines
from pcitrace.instrument.rules import State, select

FAULTS = REPOSITORY / "fixtures" / "faults"
sys.path.insert(0, str(FAULTS.parent))

import make_faults  # noqa: E402

CAUSES = {
    "irdy-inverted": r"IRDY# looks inverted",
    "devsel-stuck": r"DEVSEL# is asserted in every clock: it is stuck low",
    "no-completion": r"T11\b.*TRDY# or STOP# at the latest 16 clocks after FRAME#",
    "endless-retry": r"never completed: memory read e800002c was retried 150 times",
    "bad-parity": r"P03\b.*parity in every clock with TRDY#",
    "wrong-bar": r"nobody claims e8100008: no base address register covers it; nearest is eth0 BAR0",
    "missing-turnaround": r"T10\b.*turnaround of AD",
    "two-grants": r"A01\b.*At most one GNT# is asserted",
    "changing-enables": r"M14\b.*C/BE# does not change within a data phase",
    "clk-ringing": r"E01\b.*period of at least 30 ns",
}
"""Capture -> what is wrong with it, as a listing and a check have to say it first."""


def listed(path: Path) -> list[str]:
    """The `!` lines of a listing."""
    text = b"".join(lines([pcitrace.open(path).bus], Settings(masks=select()))).decode()
    return [line for line in text.splitlines() if line.startswith("!")]


def test_there_are_ten_and_each_is_tested() -> None:
    assert {path.stem for path in FAULTS.glob("*.sr")} == CAUSES.keys() == make_faults.FAULTS.keys()
    assert len(CAUSES) == 10


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_comes_first(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = FAULTS / f"{name}.sr"
    assert re.search(CAUSES[name], listed(path)[0])
    assert main(["check", str(path)]) == 0
    rows = capsys.readouterr().out.splitlines()
    # A row goes on in lines that are indented further.
    first = " ".join([rows[1].strip(), rows[2].strip()])
    assert re.search(CAUSES[name], first)
    assert max(map(len, rows)) <= 100


@pytest.mark.parametrize("name", CAUSES)
def test_a_fixture_is_what_its_generator_writes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_faults, "OUT", tmp_path)
    happens, arrives = make_faults.FAULTS[name]
    bench = make_faults.Bench()
    happens(bench)
    make_faults.write(name, arrives(make_faults.samples(bench.finish())))
    with zipfile.ZipFile(tmp_path / f"{name}.sr") as made, zipfile.ZipFile(FAULTS / f"{name}.sr") as kept:
        assert made.namelist() == kept.namelist()
        assert all(made.read(member) == kept.read(member) for member in made.namelist())


def well() -> np.ndarray:
    bench = make_faults.Bench()
    make_faults.well(bench)
    return make_faults.samples(bench.finish())


def written(rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(make_faults, "OUT", tmp_path)
    make_faults.write("made", rows)
    return tmp_path / "made.sr"


def test_where_nothing_is_wrong_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(well(), tmp_path, monkeypatch)
    assert listed(path) == []
    found = check(pcitrace.open(path).bus)
    assert found.causes == []
    assert [one.rule.id for one in found if one.state is State.VIOLATED] == []


@pytest.mark.parametrize("line", ["FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#"])
def test_any_control_line_inverted_or_stuck(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STOP# is never asserted here: inverted it is as if it were stuck low."""
    column = make_faults.CHANNELS.index(line)
    rows = well()
    rows[:, column] ^= 1
    path = written(rows, tmp_path, monkeypatch)
    wanted = f"{line} is asserted in every clock" if line == "STOP#" else f"{line} looks inverted"
    assert wanted in listed(path)[0]
    assert wanted in check(pcitrace.open(path).bus).causes[0].text
    rows[:, column] = 0
    path = written(rows, tmp_path, monkeypatch)
    assert f"{line} is asserted in every clock" in listed(path)[0]


@pytest.mark.parametrize("line", ["FRAME#", "IRDY#", "TRDY#", "DEVSEL#"])
def test_a_probe_without_contact(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = well()
    rows[:, make_faults.CHANNELS.index(line)] = 1
    assert f"{line} is never asserted" in listed(written(rows, tmp_path, monkeypatch))[0]


@pytest.mark.parametrize("line", ["PAR", "AD7", "CBE2#"])
def test_an_inverted_line_of_the_parity(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = well()
    rows[:, make_faults.CHANNELS.index(line)] ^= 1
    first = listed(written(rows, tmp_path, monkeypatch))[0]
    assert "parity is wrong in" in first
    assert "PAR or a line of AD or C/BE# is inverted" in first


def test_what_is_masked_is_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FAULTS / "bad-parity.sr")
    assert main(["list", path, "--ignore", "P"]) == 0
    assert "!" not in capsys.readouterr().out
    assert main(["list", path, "--rules", "M"]) == 0
    assert "!" not in capsys.readouterr().out


def test_names_are_known_where_what_placed_them_is_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FAULTS / "wrong-bar.sr")
    assert main(["list", path, "--from", "10us", "--to", "11.5us"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert "memory read e8000008 eth0 BAR0+0x8" in rows[1]
    assert re.search(CAUSES["wrong-bar"], next(row for row in rows if row.startswith("!")))
