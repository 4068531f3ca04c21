"""Which accesses start which send: what rules and the cheapest reading agree on, and what is null."""

from pathlib import Path

import numpy as np
import pytest
from cardbench import Bench, score, write

import pcitrace
from pcitrace.lattice import BINS
from pcitrace.releases import Items, Table, Targets, read


@pytest.mark.parametrize(("family", "seed"), [("latency-timer", 3), ("reread", 3)])
def test_no_csr_time_is_wrong_that_the_rules_had_wrong(tmp_path: Path, family: str, seed: int) -> None:
    """Of these runs 62 and 4 values were another send's doorbell, because a send had been read in parts."""
    bench = Bench(family, seed)
    write(bench, tmp_path, vcd=True)
    frames = pcitrace.open(tmp_path).frames
    found = score(bench, frames.table, "vcd").total("csr_first", "csr_last")
    assert not found["wrong"]
    assert found["right"] > 0
    given = frames.table["csr_last_us"].notna()
    assert frames.table["margin_csr"][given].notna().all()
    margins = frames.hosts["A"].csr_accesses["margin"]
    assert (margins.dropna().astype(float) >= 0).all()
    assert margins.notna().any()


def items(times: list[float]) -> Items:
    count = len(times)
    zeros = np.zeros(count, np.float32)
    return Items(
        np.array(times), zeros, np.zeros((count, 4), np.float32), zeros, np.zeros(count, np.uint32),
        np.zeros(count, np.uint64),
    )  # fmt: skip


def targets(times: list[float]) -> Targets:
    count = len(times)
    us, zeros = np.array(times), np.zeros(count, np.float32)
    return Targets(
        us, us, np.full(count, -np.inf), zeros, zeros, np.full(count, 9, np.float32), np.zeros(count, np.uint64)
    )


def test_margin_is_what_the_next_best_reading_costs_more() -> None:
    """Two items may release one target: the later one costs 1, the earlier one 3, none of them 9."""
    table = Table(np.zeros((2, BINS), np.float32), np.zeros((1, 1), np.float32))
    here = items([1.0, 2.0])
    here.place[0], here.place[1] = 3.0, 1.0
    found = read(here, targets([3.0]), table)
    assert found.last.tolist() == [1]
    assert found.cost == pytest.approx(1.0)
    assert found.margins.tolist() == [[2.0, 2.0]]
    assert found.item.tolist() == [2.0, 2.0]


def test_nothing_releases_what_came_before_it() -> None:
    table = Table(np.zeros((2, BINS), np.float32), np.zeros((1, 1), np.float32), before=20.0)
    found = read(items([5.0]), targets([3.0]), table)
    assert found.last.tolist() == [-1]
    assert found.first.tolist() == [-1]
