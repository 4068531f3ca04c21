"""``frames --explain ROW``: what a row rests on, the runner-up, and what each cost said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cardbench import Bench, write

import pcitrace
from pcitrace.cli import main
from pcitrace.frames.explain import AGAINST, TERMS, _margin, explain
from pcitrace.simulate import simulate
from pcitrace.traffic.asked import AGREED, SURE


def analysed(family: str, seed: int, folder: Path, capture: str) -> Path:
    bench = Bench(family, seed, frames=24)
    write(bench, folder, vcd=False, control14=True)
    (folder / "run.toml").write_text((folder / capture).read_text().replace('"card.toml"', '"generic"'))
    return folder


def test_a_weighed_row(tmp_path: Path) -> None:
    frames = pcitrace.open(analysed("reread", 3, tmp_path, "run-control16.toml")).frames
    table = frames.table
    known = table[table["margin_receive"] >= SURE]
    known = known.nlargest(1, "margin_receive")
    row = int(known["frame"].iloc[0])
    text = explain(frames, row)
    assert text.startswith(f"frame {row}: {known['sender'].iloc[0]} -> ")
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "rests on: " in text
    assert f"margin: {known['margin_receive'].iloc[0]:.1f} nats, given (threshold {SURE:g})" in text
    assert all(term in text for term in TERMS)
    assert re.search(r"runner-up of \d: it ", text)
    # The sum is that of the terms, and it is said which costs less: neighbours alone do not decide.
    receive = text.partition("\nreceive: ")[2]
    numbers = [tuple(map(float, pair)) for pair in re.findall(r"  +(-?\d+\.\d) +(-?\d+\.\d)", receive)]
    *terms, (given, other) = numbers
    assert ("worse" if given <= other else "better here") in receive
    assert sum(one for one, _ in terms) == pytest.approx(given, abs=0.4)
    assert sum(two for _, two in terms) == pytest.approx(other, abs=0.4)
    assert f"{abs(other - given):.1f}"[:-2] in receive


def test_a_row_that_rules_decided(tmp_path: Path) -> None:
    simulate("acenic-fig4.2b", tmp_path / "run", values={"analyser.wires": "control14", "test.count": 8})
    frames = pcitrace.open(tmp_path / "run").frames
    row = int(frames.table["frame"][frames.table["dma_start_us"].notna()].iloc[0])
    text = explain(frames, row)
    assert "margin: none" in text
    assert "by rule: " in text
    assert "time between memory and wire" not in text


def test_a_margin_of_nothing_names_no_threshold() -> None:
    thresholds = AGREED, SURE
    assert _margin(0.0, False, thresholds) == f"margin: 0 nats, null: {AGAINST}"
    assert _margin(3.0, False, thresholds) == f"margin: 3.0 nats, null (threshold {AGREED:g})"
    assert _margin(8.0, True, thresholds) == f"margin: 8.0 nats, given (threshold {AGREED:g})"
    assert _margin(SURE, False, thresholds) == f"margin: {SURE:.1f} nats, given (threshold {SURE:g})"


def test_every_row_of_a_run_is_explained(tmp_path: Path) -> None:
    frames = pcitrace.open(analysed("mid-stream", 2, tmp_path, "run-control16.toml")).frames
    for row in frames.table["frame"]:
        text = explain(frames, int(row))
        assert all(len(line) <= 100 for line in text.splitlines())
        assert "nan" not in text


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = analysed("ring", 1, tmp_path, "run-control16.toml")
    assert main(["frames", str(folder), "--explain", "3"]) == 0
    assert capsys.readouterr().out.startswith("frame 3: ")
    assert main(["frames", str(folder), "--explain", "999"]) == 3
    assert "no frame 999" in capsys.readouterr().err
