"""Stretches of a capture: cut anywhere, decoded alone and put together, they are the whole."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pcitrace
from pcitrace import _kernel, stretches
from pcitrace.bustable import CODED, TIMES, WIDTHS
from pcitrace.cli import main
from pcitrace.decode import to_pandas
from pcitrace.errors import CaptureFormatError, DecodeError
from pcitrace.stretches import Rows, Spread, Stretch

PRESETS = {"acenic-fig3.1": "full", "acenic-fig4.2a": "command"}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def make(preset: str) -> Path:
        if preset not in made:
            made[preset] = folder = tmp_path_factory.mktemp("stretches") / preset
            wires = f"analyser.wires={PRESETS[preset]}"
            assert main(["simulate", preset, "-o", str(folder), "--set", "test.count=12", wires]) == 0
        return made[preset]

    return make


def in_members(folder: Path, cuts: Sequence[int], change: Callable[[bytes], bytes] = bytes) -> None:
    """Store the samples of a run's capture, changed, in members that end at these bytes."""
    path = folder / "bus.sr"
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in ("version", "metadata")}
        names = sorted(
            (one for one in archive.namelist() if one.startswith("logic-1")), key=lambda one: (len(one), one)
        )
        samples = change(b"".join(archive.read(name) for name in names))
    edges = [0, *sorted({cut % len(samples) for cut in cuts} - {0}), len(samples)]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
        for number, (begin, end) in enumerate(pairwise(edges), 1):
            archive.writestr(f"logic-1-{number}", samples[begin:end], zipfile.ZIP_DEFLATED)


def here(tasks: Sequence[Stretch]) -> list[Rows]:
    return [task() for task in tasks]


def tables(path: Path, spread: Spread | None) -> dict[str, Any]:
    """All that an analysis reads of a run."""
    run = pcitrace.open(path)
    for capture in run.captures:
        capture.decoder.spread = spread
    found: dict[str, Any] = {}
    for name, bus in run.buses.items():
        has_data = any(line.startswith("AD") for line in bus.lines)
        rows = run.table(name, has_data)
        columns = {column: getattr(rows, column) for column in (*TIMES, *WIDTHS)}
        columns |= {one: np.array([*getattr(rows, f"{one}s"), ""])[getattr(rows, one)] for one in CODED}
        found[f"{name} transactions"] = pd.DataFrame(columns)
        found[f"{name} wire"] = bus.wire
        found[f"{name} numbers"] = pd.DataFrame({"numbers": [bus.mean_clock_mhz, rows.clock_us, rows.bytes_exact]})
        for table in ("problems", "clocks", *["data_phases"] * has_data):
            found[f"{name} {table}"] = to_pandas(bus.arrow(table))
    return found


def glitches(samples: bytes) -> bytes:
    """Turn a bit over in one of 200 bytes."""
    random = np.random.default_rng(16)
    bits = np.where(random.random(len(samples)) < 0.005, 1 << random.integers(0, 8, len(samples)), 0)
    return (np.frombuffer(samples, np.uint8) ^ bits.astype(np.uint8)).tobytes()


@pytest.mark.parametrize("change", [bytes, glitches], ids=["as it is", "with glitches"])
@pytest.mark.parametrize("preset", PRESETS)
def test_cut_anywhere_they_are_the_whole(
    preset: str,
    change: Callable[[bytes], bytes],
    simulated: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also within a sample, a transaction and a frame, and where a stretch has no place to begin at."""
    folder, random = shutil.copytree(simulated(preset), tmp_path / "run"), Random(16)
    in_members(folder, [], change)
    monkeypatch.setattr(stretches, "LEAST_BYTES", 1)
    for many in (2, 40, 400, 400):
        in_members(folder, [random.randrange(1 << 40) for _ in range(many)])
        asked: list[int] = []

        def counted(tasks: Sequence[Stretch], asked: list[int] = asked) -> list[Rows]:
            asked.append(len(tasks))
            return here(tasks)

        whole, found = tables(folder, None), tables(folder, Spread(counted, many))
        assert [many // 4 < count <= 2 * many for count in asked] == [True]
        assert found.keys() == whole.keys()
        for name, table in whole.items():
            pd.testing.assert_frame_equal(found[name], table, obj=name)
        assert sum(map(len, whole.values())) > 100


def test_what_a_stretch_is_too_short_for(simulated: Callable[[str], Path]) -> None:
    capture = pcitrace.open(simulated("acenic-fig3.1")).captures[0]
    assert stretches.edges(capture._kernel, 100) == [0]


def test_another_file_is_not_decoded_for_it(simulated: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = simulated("acenic-fig4.2a")
    monkeypatch.setattr(stretches, "LEAST_BYTES", 1)
    in_members(folder, range(0, 100_000, 10_000))

    def replaced(tasks: Sequence[Stretch]) -> list[Rows]:
        os.utime(tasks[0].path, (0, 0))
        return here(tasks)

    with pytest.raises(CaptureFormatError, match="not the file that was opened"):
        tables(folder, Spread(replaced, 4))


def test_what_is_wrong_with_the_whole_is_told(simulated: Callable[[str], Path]) -> None:
    run = pcitrace.open(simulated("acenic-fig4.2a"))
    specs = [next(iter(run.buses.values())).spec]
    with pytest.raises(DecodeError, match="CLK never rises"):
        _kernel.join_stretches(run.captures[0]._kernel, specs, [])
    with pytest.raises(DecodeError, match="left is damaged"):
        _kernel.join_stretches(run.captures[0]._kernel, specs, [[b"{}"]])


def test_a_report_by_workers_that_decode_is_the_same(
    simulated: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = simulated("acenic-fig3.1")
    in_members(folder, range(0, 10_000_000, 100_003))
    capsys.readouterr()
    assert main(["report", str(folder), "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(stretches, "LEAST_BYTES", 1)
    whole = _kernel.decode
    monkeypatch.setattr(_kernel, "decode", lambda *args, **options: pytest.fail("it was decoded whole"))
    assert main(["report", str(folder), "--json", "--workers", "1"]) == 0
    monkeypatch.setattr(_kernel, "decode", whole)
    assert json.loads(capsys.readouterr().out) == alone


def test_members_too_large_to_hold_are_cut_between(
    simulated: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(simulated("acenic-fig4.2a"), tmp_path / "run")
    in_members(folder, [34 << 20 | 1], lambda samples: samples + samples[-200:] * 360_000)
    monkeypatch.setattr(stretches, "LEAST_BYTES", 1)
    spans: list[tuple[int, int | None]] = []

    def counted(tasks: Sequence[Stretch]) -> list[Rows]:
        spans.extend(task.span for task in tasks)
        return here(tasks)

    whole, found = tables(folder, None), tables(folder, Spread(counted, 3))
    assert spans == [(0, 34 << 20 | 1), (34 << 20 | 1, None)]
    for name, table in whole.items():
        pd.testing.assert_frame_equal(found[name], table, obj=name)
