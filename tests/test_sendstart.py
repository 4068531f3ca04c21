"""Which accesses start a send and which follow it, from control lines alone, where many sends are under way at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pcitrace
from pcitrace.simulate import PRESETS, Simulation, random_bench, simulate

SENT = ("csr_first_us", "csr_last_us", "csr_done_us")


def right_and_unknown(found: pd.Series, true: pd.Series) -> tuple[int, int]:
    """Count values within a sample of truth, and nulls."""
    off = np.abs(found.to_numpy(dtype=float) - true.to_numpy(dtype=float))
    return int((off < 0.012).sum()), int(np.isnan(off).sum())


@pytest.mark.parametrize(
    ("preset", "unknown"),
    [
        ("acenic-fig3.1", 0),
        ("acenic-fig4.2a", 5),
        ("acenic-fig4.2b", 0),
        ("acenic-fig4.2c", 0),
        ("acenic-fig4.2d", 0),
        ("sk9843-100us", 0),
        ("sk9843-10us", 6),
        ("pro1000-370dle-11us", 0),
        ("pro1000-p4dp6-8us", 5),
    ],
)
def test_accesses_of_queued_sends_are_right_or_unknown(tmp_path: Path, preset: str, unknown: int) -> None:
    """Batches, doorbells that run ahead of the line, interrupts right behind one: an access may be another send's."""
    simulate(PRESETS[preset], tmp_path / "run", seed=1)
    found = pcitrace.open(tmp_path / "run").frames.table
    true = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv")
    found, true = (table[table["sender"] == "A"].sort_values("dma_start_us") for table in (found, true))
    assert len(found) == len(true) >= 70
    for column in SENT:
        right, null = right_and_unknown(found[column], true[column])
        assert right + null == len(true), column
        assert null <= unknown, column


def wrong_and_null(folder: Path, bench: Simulation, seed: int) -> tuple[int, int]:
    """Count the times of CSR accesses, of frames whose DMA is found, that are another access's, and those not given."""
    simulate(bench, folder, seed=seed)
    run = pcitrace.open(folder)
    truth = pd.read_csv(folder / "truth" / "frames.csv")
    wrong = null = 0
    for sender, found in run.frames.table.groupby("sender"):
        clock_us = 1 / run[sender].clock_mhz
        true = truth[truth["sender"] == sender].sort_values("dma_start_us")
        found = found.sort_values("dma_start_us")
        assert len(found) == len(true)
        for column in (*SENT, "rx_csr_us"):
            off = np.abs(found[column].to_numpy(dtype=float, na_value=np.nan) - true[column].to_numpy())
            wrong += int((off > clock_us).sum())
            null += int((found[column].isna().to_numpy() & true[column].notna().to_numpy()).sum())
    return wrong, null


@pytest.mark.parametrize("seed", [2100, 2104, 2121, 2125, 2130, 2134, 2140, 2146, 2154, 2156])
def test_with_registers_every_access_is_known(tmp_path: Path, seed: int) -> None:
    """An update right before a doorbell, or after the end of the next DMA; a read that was tried before the receive."""
    assert wrong_and_null(tmp_path / "run", random_bench(seed, wires=("full",)), seed) == (0, 0)


@pytest.mark.parametrize("seed", [2100, 2121, 2134])
def test_registers_that_no_profile_names(tmp_path: Path, seed: int) -> None:
    """Doorbell, update and the registers of the receive side are told by how often and when they are accessed."""
    wrong, null = wrong_and_null(tmp_path / "run", random_bench(seed, wires=("full",)), seed)
    assert (wrong, null) == (0, 0)
    run = pcitrace.open(tmp_path / "run", profile="generic")
