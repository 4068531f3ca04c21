"""Any words on the command line give a result or one clear line: never a traceback."""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

import pytest
from conftest import REPOSITORY
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from pcitrace.cli import COMMANDS, main, parser_of

CAPTURE = REPOSITORY / "fixtures" / "faults" / "missing-turnaround.sr"
NUMBERS = ("0", "-1", "1e999", "nan", "1/0", "9" * 9, "9" * 30, "1us,0", "10us")
FILES = ("x.csv", "x.html", "x.sr", "x.toml", "-", "capture.sr", "empty", "no/such", ".")
VALUES = (*NUMBERS, *FILES, "", "A", "A,,B", "GNT0#", "data", "length_bytes & 1", "[", "=", "µ", "\udcff", "a\nb")
# Options that start a program or serve for ever; what they do with bad values is tested where they are.
LEFT_OUT = {"--command", "--metrics", "--scheduler", "--http", "--dashboard"}
# These work for minutes on good input; here they get none.
NO_INPUT = ("campaign", "watch", "simulate")


def options(command: str) -> list[argparse.Action]:
    [commands] = [one for one in parser_of(command)._actions if isinstance(one, argparse._SubParsersAction)]
    return [one for one in commands.choices[command]._actions if not LEFT_OUT & {*one.option_strings}]


@st.composite
def lines(draw: st.DrawFn, command: str) -> list[str]:
    """A command line: the capture, often, and some of the command's options with values that are mostly wrong."""
    words = [] if command in NO_INPUT or draw(st.integers(0, 9)) == 0 else ["capture.sr"]
    named = [one for one in options(command) if one.option_strings and one.dest != "help"]
    for action in draw(st.lists(st.sampled_from(named), max_size=3)) if named else []:
        words.append(draw(st.sampled_from(action.option_strings)))
        if action.nargs != 0:
            right = [str(one) for one in action.choices or ()]
            words.append(draw(st.sampled_from([*right, *VALUES])))
    return words + draw(st.lists(st.sampled_from(VALUES), max_size=1))


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_line_gives_a_traceback(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copy(CAPTURE, "capture.sr")
    Path("empty").touch()

    @seed(15)
    @settings(max_examples=8, database=None, suppress_health_check=[*HealthCheck])
    @given(lines(command))
    def check(words: list[str]) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
        capfd.readouterr()
        try:
            status = main([command, *words])
        except SystemExit as stop:
            status = int(stop.code or 0)
        said = capfd.readouterr().err
        assert status in (0, 1, 2, 3), (words, said)
        assert "Traceback" not in said, words
        if status == 3:
            assert [line for line in said.splitlines() if line.startswith("pcitrace")], (words, said)
        shutil.copy(CAPTURE, "capture.sr")  # some options write, even here
        Path("empty").write_bytes(b"")

    check()


NEEDED = {
    "diff": ["capture.sr"], "export": ["--to", "ftr", "-o", "x.ftr"], "find": ["read"], "report": ["-o", "x.html"],
    "sql": ["select 1"], "view": ["-o", "x.html"],
}  # fmt: skip


@pytest.mark.parametrize("command", [one for one in COMMANDS if one not in NO_INPUT])
def test_every_option_takes_what_it_cannot_take(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each by itself, with bytes that are no text, with nothing, and with what is too much."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(CAPTURE, "capture.sr")
    valued = [one for one in options(command) if one.option_strings and one.nargs != 0]
    for action in valued:
        for value in ("\udcff", "", "9" * 30):
            words = [command, "capture.sr", *NEEDED.get(command, []), f"{action.option_strings[-1]}={value}"]
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
            try:
                status = main(words)
            except SystemExit as stop:
                status = int(stop.code or 0)
            assert status in (0, 1, 2, 3), words
            assert "Traceback" not in capfd.readouterr().err, words
    assert valued


def test_names_that_are_no_utf8_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux allows any bytes; Python hands them on as lone surrogates."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(CAPTURE, "a\udcff.sr")
    assert main(["decode", "a\udcff.sr", "-o", "b\udcff.csv", "--data-phases", "c\udcff.csv"]) == 0
    assert Path("b\udcff.csv").stat().st_size > 0 < Path("c\udcff.csv").stat().st_size
    assert main(["diff", "a\udcff.sr", "a\udcff.sr"]) == 0
    assert main(["diff", "a\udcff.sr", "\udcff"]) == 3
