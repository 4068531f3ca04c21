"""Which frames waited for another, against the simulated truth and against a queue worked out one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcitrace
from pcitrace.frames.queueing import _busy_until, _held_up
from pcitrace.simulate import PRESETS, Simulation, random_bench, simulate

SHOWN = ("control16", "command", "full")
"""Wires among which TX_EN of both hosts is."""


def queued_and_waited(run: Path, bench: Simulation, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `queued` and the truth's `waited` of every frame that was received."""
    simulate(bench, run, seed=seed)
    found, true = pcitrace.open(run).frames.table, pd.read_csv(run / "truth" / "frames.csv")
    both = []
    for sender in "AB":
        mine = found[(found["sender"] == sender) & found["rx_dma_start_us"].notna()].sort_values("dma_start_us")
        known = true[(true["sender"] == sender) & true["rx_dma_start_us"].notna()].sort_values("dma_start_us")
        assert len(mine) == len(known)
        both.append((mine["queued"].to_numpy(dtype=bool), known["waited"].to_numpy(dtype=bool)))
    return np.concatenate([one for one, _ in both]), np.concatenate([one for _, one in both])


@pytest.mark.parametrize("seed", [7, 15, 16, 23, 65, 135, 152, 2130])
def test_queued_frames_are_those_that_waited(tmp_path: Path, seed: int) -> None:
    # Bidirectional, at random times; in 65, 135 and 152 an access of the host, or a retried attempt, stands between a
    # send and the receive that waits for it; in 2130 retries alone hold up a receive.
    queued, waited = queued_and_waited(tmp_path / "run", random_bench(seed, wires=SHOWN), seed)
    assert 0 < waited.sum() < len(waited)
    assert queued.tolist() == waited.tolist()


def test_frames_that_come_faster_than_the_line_all_wait(tmp_path: Path) -> None:
    queued, waited = queued_and_waited(tmp_path / "run", PRESETS["pro1000-p4dp6-8us"], 1)
    assert waited.sum() == len(waited) - 1
    assert queued.tolist() == waited.tolist()


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 20)), min_size=1, max_size=30))
def test_a_server_takes_its_customers_in_order(customers: list[tuple[float, float]]) -> None:
    ready = np.sort([one for one, _ in customers])
    took = np.array([one for _, one in customers])
    free, expected = -np.inf, []
    for one, length in zip(ready, took, strict=True):
        free = max(free, one) + length
        expected.append(free)
    assert _busy_until(ready, took) == pytest.approx(expected)


def test_only_what_took_longer_than_the_free_ones_was_held_up() -> None:
    transit = np.array([1.0, 1.2, 1.1, 1.3, 5.0, 5.0, np.nan])
    busy = np.array([False, False, False, True, True, False, True])
    # 5.0 was seen with nothing in the way, too: nothing can be said then.
    assert not _held_up(transit, busy).any()
    transit[5] = 1.15
    assert _held_up(transit, busy).tolist() == [False, False, False, False, True, False, False]
    # Nothing ever found it free: whatever came may have waited.
    assert _held_up(transit, np.ones(7, dtype=bool)).tolist() == [True] * 6 + [False]
