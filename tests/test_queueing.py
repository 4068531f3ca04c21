"""Which frames waited for another, against the simulated truth and against a queue worked out one by one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcitrace
from pcitrace import results, timing
from pcitrace.frames import Link
from pcitrace.frames.queueing import _busy_until, _held_up, _on_the_wire
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


@pytest.mark.parametrize("seed", [7, 15, 16, 23, 65, 135, 152, 2130, 92138, 100127])
def test_queued_frames_are_those_that_waited(tmp_path: Path, seed: int) -> None:
    # Bidirectional, at random times; in 65, 135 and 152 an access of the host, or a retried attempt, stands between a
    # send and the receive that waits for it; in 2130 retries alone hold up a receive, those of a read in 92138, where
    # its command tells it, and in 100127, where it comes too soon before the receive to be repeated by it.
    queued, waited = queued_and_waited(tmp_path / "run", random_bench(seed, wires=SHOWN), seed)
    assert 0 < waited.sum() < len(waited)
    assert queued.tolist() == waited.tolist()


def test_an_attempt_that_may_be_of_what_had_begun_before_tells_nothing(tmp_path: Path) -> None:
    """Without C/BE#: a send was under way, an attempt was retried, and the receive came behind it."""
    run = tmp_path / "run"
    simulate(random_bench(171029, wires=SHOWN), run, seed=171029)
    found, true = pcitrace.open(run).frames.table, pd.read_csv(run / "truth" / "frames.csv")
    [unclear] = np.flatnonzero(found["queued"].isna())
    order = true.sort_values("dma_start_us")["waited"].to_numpy(dtype=bool)
    assert order[unclear]
    assert np.delete(found["queued"].fillna(False).to_numpy(dtype=bool) != order, unclear).sum() == 0


@pytest.mark.parametrize("rate_mhz", [200.0, 250.0, 500.0])
def test_frames_at_the_gap_of_the_wire_waited_however_it_was_sampled(tmp_path: Path, rate_mhz: float) -> None:
    """Two sampled edges may seem a step further apart than they are: 96 ns is seen as 100 at 200 MS/s."""
    values = {"analyser.rate_mhz": rate_mhz, "test.count": 60}
    simulate("sk9843-10us", tmp_path / "run", seed=3, values=values)
    true = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv").sort_values("wire_start_us")
    apart_us = true["wire_start_us"].to_numpy()[1:] - true["wire_end_us"].to_numpy()[:-1]
    behind = true["frame"].to_numpy()[1:][apart_us < 0.0961]
    assert len(behind) > 20
    table = pcitrace.open(tmp_path / "run").frames.table.sort_values("wire_start_us").reset_index(drop=True)
    queued = table["queued"].to_numpy(dtype=object)[np.isin(true["frame"].to_numpy(), behind)]
    assert all(one is not False and one != 0 for one in queued.tolist())


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


def test_a_frame_that_follows_directly_but_was_fast_may_have_come_at_that_moment() -> None:
    """The wire is free 0.096 us after each frame: 2, 4 and 5 begin just then, after 1.6, 1.9 and 1.75 us."""
    start = np.array([0.0, 100.0, 101.096, 200.0, 201.096, 202.192])
    columns = {"wire_start_us": start, "wire_end_us": start + 1.0, "wire_us": np.ones(6)}
    columns["dma_end_us"] = start - np.array([1.7, 1.8, 1.6, 1.75, 1.9, 1.75])
    waited, unclear = _on_the_wire(columns, np.arange(6), Link(1000.0), 0.002)
    assert waited.tolist() == [False, False, False, False, True, False]
    assert unclear.tolist() == [False, False, True, False, False, True]


def test_frames_a_sampling_step_further_apart_than_the_gap_follow_directly() -> None:
    """Each step of 0.01 us, of two sampled edges one may be seen so much later: 0.106 us apart they may be 0.096."""
    start = np.array([0.0, 100.0, 200.0, 201.106, 300.0, 301.116])
    columns = {"wire_start_us": start, "wire_end_us": start + 1.0, "wire_us": np.ones(6)}
    columns["dma_end_us"] = start - np.array([1.7, 1.8, 1.75, 3.0, 1.75, 3.0])
    columns["dma_end_us"][[3, 5]] = start[[2, 4]] + 1.05  # not before the wire was free, so nothing else tells
    waited, unclear = _on_the_wire(columns, np.arange(6), Link(1000.0), 0.01)
    assert (waited | unclear).tolist() == [False, False, False, True, False, False]
    waited, unclear = _on_the_wire(columns, np.arange(6), Link(1000.0), 0.001)
    assert not (waited | unclear).any()


def test_a_frame_that_may_have_waited_is_part_of_the_uncertainty(tmp_path: Path) -> None:
    # In 9197 one frame began on the wire half a nanosecond after the gap behind the one before.
    simulate(random_bench(9197, wires=SHOWN), tmp_path / "run", seed=9197)
    run = pcitrace.open(tmp_path / "run")
    true = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv")
    assert run.frames.table["queued"].isna().sum() == 1
    t_nic = timing.measure(run).t_nic
    assert t_nic.value is not None
    assert t_nic.sigma_measurement is not None
    assert abs(t_nic.value - true.loc[~true["waited"], "t_nic_us"].mean()) < 2 * t_nic.sigma_measurement


@pytest.mark.parametrize(
    ("seed", "wires", "name"),
    [
        (90009, SHOWN, "t_nic_us"),  # receives that may be another frame's
        (
            95035,
            ("control16",),
            "R_PCI_recv_us_per_byte",
        ),  # a frame whose end may be a status, with a long pause before
    ],
)
def test_what_is_left_out_is_part_of_the_uncertainty(
    tmp_path: Path, seed: int, wires: tuple[str, ...], name: str
) -> None:
    simulate(random_bench(seed, wires=wires), tmp_path / "run", seed=seed)
    run = pcitrace.open(tmp_path / "run")
    true = json.loads((tmp_path / "run" / "truth" / "truth.json").read_text())["constants"][name]["value"]
    assert run.frames.table["rx_dma_start_us"].isna().any()
    found = results.of_run(run).constants[name]
    assert found.value is not None
    assert found.sigma_measurement is not None
    assert abs(found.value - true) < 2 * found.sigma_measurement
