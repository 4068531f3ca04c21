"""The four tables of a reference trace, to the letter: `pytest --update-golden` writes what is compared here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import REPOSITORY
from decoding import decode

from pcitrace.cli import main

GOLDEN = Path(__file__).parent / "golden"
TRACE = REPOSITORY / "fixtures" / "traces" / "blue33_seq1"
CAPTURES = {"vcd": "bus.vcd.gz", "sr": "ctl_250MSs.sr"}
TABLES = ("transactions", "data_phases", "problems", "clocks")


def tables(capture: Path, folder: Path) -> dict[str, str]:
    """The tables as text: three as the command writes them, the accounting in windows of 5 us."""
    paths = {name: folder / f"{name}.csv" for name in TABLES[:3]}
    arguments = ["--data-phases", str(paths["data_phases"]), "--problems", str(paths["problems"])]
    assert main(["decode", str(capture), "-o", str(paths["transactions"]), *arguments]) == 0
    texts = {name: path.read_text() for name, path in paths.items()}
    bus = "pci" if capture.name.endswith("vcd.gz") else "PCI"
    rows = decode(capture, bus=bus, window_us=5.0).clocks
    return texts | {"clocks": "".join(json.dumps(row) + "\n" for row in rows)}


def golden_file(kind: str, table: str) -> Path:
    """Where the text of a table is kept."""
    return GOLDEN / f"{TRACE.name}.{kind}.{table}.{'jsonl' if table == 'clocks' else 'csv'}"


@pytest.mark.parametrize("kind", list(CAPTURES))
def test_tables_equal_golden(kind: str, tmp_path: Path, update_golden: bool) -> None:
    for table, text in tables(TRACE / CAPTURES[kind], tmp_path).items():
        file = golden_file(kind, table)
        if update_golden:
            GOLDEN.mkdir(exist_ok=True)
            file.write_text(text)
        assert text.splitlines() == file.read_text().splitlines(), file.name


def test_every_golden_is_compared() -> None:
    assert {file.name for file in GOLDEN.iterdir()} == {golden_file(k, t).name for k in CAPTURES for t in TABLES}
