"""Every command that README and the pages show is one that works: each is run, on files of the names that are shown.

Commands that need other machines, hours or hardware are only parsed, and so are those that simulate a run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

import pcitrace
from pcitrace.cli import COMMANDS, main, parser_of
from pcitrace.simulate import simulate

sys.path.insert(0, str(REPOSITORY / "docs"))
import commands

FIXTURES = REPOSITORY / "fixtures"
FILES = {
    "bus.vcd.gz": FIXTURES / "traces" / "nic_g_a" / "bus.vcd.gz",
    "capture.vcd": FIXTURES / "traces" / "nic_g_a" / "bus.vcd.gz",
    "capture.sr": FIXTURES / "faults" / "missing-turnaround.sr",
    "board.vcd": FIXTURES / "traces" / "blue33_seq6" / "bus.vcd.gz",
    "simulation.vcd": FIXTURES / "traces" / "blue33_seq6" / "bus.vcd.gz",
    "silicon.sr": FIXTURES / "traces" / "blue33_seq6" / "bus.vcd.gz",
}
RUNS = ("run", "RUN", "fig3.1", "try")
PAGES = [
    REPOSITORY / "README.md",
    *(REPOSITORY / "docs").glob("*.md"),
    *(REPOSITORY / "docs" / "capture").glob("*.md"),
]
ONLY_PARSED = ("simulate", "campaign", "watch", "network", "model")
GENERATED = ("commands.md", "rules.md", "gallery.md", "tables.md")
_COMMAND = re.compile(r"^(?:\$ )?(pcitrace .*?)(?: {2,}#.*| +\|.*)?$", re.MULTILINE)
_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown(path: Path) -> list[str]:
    """The commands in the code blocks of a page, without what they are piped into."""
    blocks = "\n".join(_BLOCK.findall(path.read_text(encoding="utf-8")))
    return [command for command in _COMMAND.findall(blocks) if shlex.split(command)[1] in COMMANDS]


def all_shown() -> list[str]:
    """Each command once: those that differ in the name of the same run, or of what they write, are one."""
    pages = [page for page in PAGES if page.name not in GENERATED]
    commands = {}
    for command in sorted({command for page in pages for command in shown(page)}):
        same = re.sub(rf"(?<= )({'|'.join(map(re.escape, RUNS))})(?= |$)", RUNS[0], command)
        commands.setdefault(re.sub(r"-o \S+?(?=(\.\w+)?( |$))", "-o out", same), command)
    return list(commands.values())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and runs that pages name."""
    folder = tmp_path_factory.mktemp("shown")
    for name, source in FILES.items():
        shutil.copy(source, folder / name)
    simulate("acenic-fig3.1", folder / "run", test__count=3, analyser__wires="full")
    for name in RUNS[1:]:
        (folder / name).symlink_to("run")
    for name in ("fixtures", "docs"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


def test_there_are_commands() -> None:
    assert len(all_shown()) > 50


@pytest.mark.parametrize("command", all_shown())
def test_a_shown_command_works(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_DATA_HOME", str(place / "share"))
    monkeypatch.setenv("HOME", str(place))
    [name, *arguments] = shlex.split(command)[1:]
    parser_of(name).parse_args([name, *arguments])
    named = [part for part in arguments if part.startswith("runs/")]
    if name in ONLY_PARSED or named:
        return
    status = main([name, *arguments])
    assert status == (1 if "--strict" in arguments and "broken" in capsys.readouterr().err else 0)


def test_the_picture_of_the_page_for_data_scientists(place: Path) -> None:
    text = (REPOSITORY / "docs" / "for-data-scientists.md").read_text(encoding="utf-8")
    [program] = re.findall(r'^\$ python -c "(.*)"$', text, re.MULTILINE)
    subprocess.run([sys.executable, "-c", program], cwd=place, env={"MPLBACKEND": "agg", "PATH": ""}, check=True)
    assert (place / "busy.png").stat().st_size > 5000


@pytest.mark.parametrize("page", commands.pages(), ids=lambda page: page.stem)
def test_a_page_has_what_its_commands_print(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert commands.filled(text) == text, "python docs/commands.py writes what they print today"


def test_readme_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first block, line by line, up to where one is cut with dots; of the table each row is one of the file."""
    shutil.copy(FIXTURES / "traces" / "blue33_seq6" / "bus.vcd.gz", tmp_path)
    monkeypatch.chdir(tmp_path)
    block = _BLOCK.findall((REPOSITORY / "README.md").read_text(encoding="utf-8"))[0]
    commands = re.findall(r"^\$ pcitrace (.*)$", block, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert main(shlex.split(command)) == 0
    printed = re.sub(r"\s+", " ", capsys.readouterr().out)
    rows = [line.split(",") for line in Path("transactions.csv").read_text(encoding="utf-8").splitlines()]
    wanted, table = [], []
    for line in block.splitlines():
        in_table = bool(re.match(r"start_us|[\d.]+ ", line))
        if line and not line.startswith(("$", "transactions.csv")):
            (table if in_table else wanted).append(re.sub(r"\s+", " ", line.partition("...")[0]).strip())
    assert len(wanted) == 7
    assert len(table) == 7
    assert [line for line in wanted if line not in printed] == []
    assert [line for line in table if not any(set(line.split()) <= set(row) for row in rows)] == []


def test_readme_shows_the_constants_of_the_run(tmp_path: Path) -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    simulate("acenic-fig3.1", tmp_path / "run")
    results = pcitrace.open(tmp_path / "run").results
    found = {name: str(one) for name, one in results.constants.items()} | {"t_nic_us": str(results.timing.transit)}
    shown = re.findall(r"^(\w+) +(\S*±.*)$", text, re.MULTILINE)
    assert len(shown) == 4
    assert [(name, value) for name, value in shown if found[name] != value] == []
