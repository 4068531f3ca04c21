"""Every single violation that is put into clean recorded traffic is found under its own id, with what it implies."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random

import numpy as np
import pytest
import rule_injector
import waveforms
from conftest import REPOSITORY
from rule_injector import INJECTIONS, PARITY, Clocks, with_parity

import pcitrace
from pcitrace.instrument.judged import check
from pcitrace.instrument.rules import State, catalogue

TRACE = REPOSITORY / "fixtures" / "traces" / "nic_g_a" / "bus.vcd.gz"
EACH = 5
"""Places a rule."""


def found(path: Path, clocks: Clocks) -> set[str]:
    """The rules that are broken, as `check` tells of a capture by an analyser clocked by the bus."""
    words = [name for name in clocks[0] if name not in ("AD", "CBE")]
    names = [*words, *(f"AD{n}" for n in range(32)), *(f"CBE{n}#" for n in range(4))]
    rows = [
        [
            *(one[name] for name in words),
            *(one["AD"] >> n & 1 for n in range(32)),
            *(one["CBE"] >> n & 1 for n in range(4)),
        ]
        for one in clocks
    ]
    waveforms.write_sr(path, waveforms.Sampled(names, np.array(rows, np.uint8), None))
    results = check(pcitrace.open(path, clock_mhz=33.0).bus)
    assert {one.rule.id for one in results if one.state is State.NOT_EVALUATED} == {"E01"}
    return {one.rule.id for one in results if one.state is State.VIOLATED}


@pytest.fixture(scope="module")
def clean() -> Clocks:
    """A stretch of the recorded bus with accesses to the card, long and short DMA both ways, and disconnects."""
    return with_parity(rule_injector.recorded(TRACE, "A", 1700, 12_000))


def test_the_recorded_traffic_is_clean(clean: Clocks, tmp_path: Path) -> None:
    assert found(tmp_path / "clean.sr", clean) == set()
    commands = {place.command for place in rule_injector.places(clean)}
    assert {0x6, 0x7} <= commands


def test_every_rule_has_an_injection() -> None:
    assert INJECTIONS.keys() | {"E01"} == catalogue().keys()


@pytest.mark.parametrize("rule", INJECTIONS)
def test_what_is_put_in_is_found(rule: str, clean: Clocks, tmp_path: Path) -> None:
    inject, implied = INJECTIONS[rule]
    rng = Random(zlib.crc32(rule.encode()))
    everywhere = list(rule_injector.places(clean))
    rng.shuffle(everywhere)
    done = 0
    for anywhere in everywhere:
        clocks, place = rule_injector.around(clean, anywhere)
        if inject(clocks, place, rng):
            ids = found(tmp_path / "injected.sr", clocks if rule in PARITY else with_parity(clocks))
            assert rule in ids, f"not found in {anywhere}; {sorted(ids)}"
            assert ids <= {rule} | implied, f"{sorted(ids - {rule} - implied)} besides, in {anywhere}"
            done += 1
        if done == EACH:
            return
    assert done, "it fits nowhere"
