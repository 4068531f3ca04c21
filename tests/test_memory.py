"""Memory does not grow with the capture: members are inflated as a stream, tables are written as they come."""

from __future__ import annotations

import zipfile
from pathlib import Path
from random import Random

import buses
import oracle
import pytest
import waveforms
from conftest import peak_memory
from idle_captures import stretch

from pcitrace.cli import main

SAMPLES = 100_000_000  # of 2 bytes


def write_long(path: Path, members: int) -> int:
    """A capture of SAMPLES samples, mostly idle, in so many members; returns the number of transactions in it."""
    traffic = buses.long_run(seed=3, count=20)
    quiet = [oracle.Clock(gnt=(1, 1, 1))] * 5000
    clocks = waveforms.settle(quiet + traffic.clocks + quiet, Random(1))
    captured = oracle.CONTROL | {"C/BE#", "GNT#", "PERR#", "SERR#"}
    sampled, _ = waveforms.timing_mode(waveforms.wires(clocks, captured), Random(2))
    small = waveforms.write_sr(path.with_name("small.sr"), sampled)
    with zipfile.ZipFile(small) as archive:
        metadata, piece = archive.read("metadata"), archive.read("logic-1-1")
    repeats = 2 * SAMPLES // len(piece)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("version", "2")
        archive.writestr("metadata", metadata)
        for number in range(members):
            with archive.open("logic-1" if members == 1 else f"logic-1-{number + 1}", "w", force_zip64=True) as out:
                for _ in range(repeats * number // members, repeats * (number + 1) // members):
                    out.write(piece)
    return repeats * len(traffic.transactions)


@pytest.mark.parametrize("members", [1, 25])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_is_bounded(members: int, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "long.sr"
    transactions = write_long(path, members)
    out = tmp_path / f"t.{suffix}"
    status, stdout, kib = peak_memory(["decode", str(path), "-o", str(out)])
    assert status == 0
    assert f": {transactions} transactions" in stdout
    assert kib < 150_000, "the samples are 200 MB"


@pytest.fixture(scope="module")
def mostly_idle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two hosts, three times in 200 million samples (400 MB)."""
    folder = tmp_path_factory.mktemp("sparse")
    command = ["simulate", "acenic-fig3.1", "-o", str(folder / "once"), "--set", "test.count=2", "sweep.loops=2"]
    assert main(command) == 0
    assert 199_000_000 < stretch(folder / "once", folder / "long", 200_000_000, 3) <= 200_000_000
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["list", "{long}"],
        ["check", "{long}", "--json"],
        ["export", "{long}", "-o", "{out}.json", "--to", "perfetto"],
        ["report", "{long}", "--json"],
    ],
    ids=lambda command: command[0],
)
def test_memory_does_not_grow_with_idle_time(command: list[str], mostly_idle: Path, tmp_path: Path) -> None:
    """Beside what the same command needs for the run once."""
    needed = {}
    for which in ("once", "long"):
        filled = [one.format(long=mostly_idle / which, out=tmp_path / which) for one in command]
        status, _, needed[which] = peak_memory(filled)
        assert status == 0
    assert needed["long"] < needed["once"] + 60_000, "the samples are 400 MB"
