"""Which accesses start a send and which follow it, from control lines alone, where many sends are under way at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pcitrace
from pcitrace.simulate import PRESETS, simulate


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
    for column in ("csr_first_us", "csr_last_us", "csr_done_us"):
        right, null = right_and_unknown(found[column], true[column])
        assert right + null == len(true), column
        assert null <= unknown, column
