"""Rules that two clocks decide, on noise: each line changes when it likes, and a few lines say what is broken."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import rule_traffic
import test_rules
import waveforms
from test_run import write_sr

import pcitrace
from pcitrace.instrument.judged import judge
from pcitrace.instrument.rules import catalogue
from pcitrace.instrument.stream import parts

LINES = ["FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#", "GNT0#", "GNT1#", "GNT2#"]
LOCAL = ("M01", "M02", "M03", "T02", "A01")


def noise(rng: Random) -> list[set[str]]:
    """The lines that are asserted, clock by clock; two clocks are idle at first."""
    odds = {line: rng.choice([0.05, 0.2, 0.5]) for line in LINES}
    clocks: list[set[str]] = [set(), set()]
    for _ in range(1500):
        lines = clocks[-1] ^ {line for line in LINES if rng.random() < odds[line]}
        clocks.append(lines - {"FRAME#", "IRDY#"} if rng.random() < 0.15 else lines)
    return clocks


def broken(clocks: list[set[str]]) -> set[tuple[str, int]]:
    """Rules and clocks; what lasts is said once."""
    found = set()
    for clk in range(1, len(clocks)):
        now, before = clocks[clk], clocks[clk - 1]
        risen, gone = now - before, before - now
        unclaimed, lasts = ("TRDY#" in one and "DEVSEL#" not in one for one in (now, before))
        grants, grants_before = (sum(line.startswith("GNT") for line in one) for one in (now, before))
        said = {
            "M01": "FRAME#" in gone and "IRDY#" not in now,
            "M02": "FRAME#" in risen and "IRDY#" in now,
            "M03": "IRDY#" in risen and "FRAME#" not in before,
            "T02": unclaimed and not lasts,
            "A01": grants > 1 >= grants_before,
        }
        found |= {(rule, clk) for rule, is_broken in said.items() if is_broken}
    return found


@pytest.mark.parametrize("seed", range(8))
def test_what_noise_breaks(seed: int, tmp_path: Path) -> None:
    clocks = noise(Random(seed))
    samples = bytes(sum((line not in asserted) << bit for bit, line in enumerate(LINES)) for asserted in clocks)
    path = write_sr(tmp_path / "noise.sr", LINES, samples, "33 MHz")
    bus = pcitrace.open(path, clock_mhz=33.0).bus
    found = judge(bus, LOCAL, 33, None, every=LOCAL).violations
    assert set(zip(found["rule"].to_pylist(), found["clk"].to_pylist(), strict=True)) == broken(clocks)
    assert {rule for rule, _ in broken(clocks)} == set(LOCAL)


def problems(path: Path) -> list[dict[str, Any]]:
    """All rows that say what was wrong, whichever part they came with; changes of LOCK# are nothing wrong."""
    bus = pcitrace.open(path, clock_mhz=33.0).bus
    found = [pa.table(part.problems) for part in parts([bus], ["transaction"], rules=[*catalogue()])]
    return sorted((row for row in pa.concat_tables(found).to_pylist() if row["kind"] != "event"), key=repr)


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_the_same_however_often_they_are_asked_for(seed: int, tmp_path: Path) -> None:
    """What is broken in a transaction is told while that goes on, here in many small members, or at once."""
    rng = Random(seed)
    clocks = test_rules.noise(rng, 2000, 0.8)
    for begin in range(100, 2000, 500):
        for clock in clocks[begin : begin + rng.randrange(450)]:
            clock.f, clock.i, clock.known = True, False, True
    capture = rule_traffic.sampled(clocks)
    whole = waveforms.write_sr(tmp_path / "whole.sr", capture)
    unit = -(-len(capture.names) // 8)
    members = [rng.randrange(1, 200) * unit for _ in range(12)]
    cut = waveforms.write_sr(tmp_path / "cut.sr", capture, chunk_bytes=members)
    assert problems(cut) == problems(whole)
    assert len(problems(whole)) > 100
