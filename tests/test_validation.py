"""The validation: some of its runs here, and that its page says what it found."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from math import sqrt
from statistics import fmean, pstdev
from types import ModuleType
from typing import Any

import pytest
from conftest import REPOSITORY
from scipy.stats import chi2, norm

PAGE = REPOSITORY / "docs" / "validation.md"
SEEDS = range(1000, 1012)
"""Not those of the page."""

HARD = (49, 175, 1100, 2085, 5048)
"""Runs in which pieces that are no part of a frame are as long as if they were: some frames were wrong once."""

CHANCE = 1e-4
"""That a test of good pulls would fail if its seeds were others."""


@pytest.fixture(scope="module")
def validate() -> ModuleType:
    """Return tools/validate.py."""
    spec = importlib.util.spec_from_file_location("validate", REPOSITORY / "tools" / "validate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["validate"] = module
    spec.loader.exec_module(module)
    return module


@cache
def one_run(validate: ModuleType, seed: int) -> Any:
    """Do one run for all tests."""
    return validate.one_run(seed)


@pytest.mark.parametrize("seed", [*SEEDS, *HARD])
def test_a_random_bench_is_recovered(validate: ModuleType, seed: int) -> None:
    run = one_run(validate, seed)
    assert run.bad == ""
    # A frame may be null of which another beginning or end is about as likely: 1010 has one.
    assert run.matched >= validate.MATCHED * run.frames - 1 > 40
    assert set(run.pulls) == set(validate.CONSTANTS)
    # 36 numbers near N(0, 1): one beyond 4.5 in 4000 such sets.
    assert all(abs(pull) < 4.5 for pull in run.pulls.values()), run.pulls


def test_nearly_all_frames_of_all_runs_are_given(validate: ModuleType) -> None:
    runs = [one_run(validate, seed) for seed in [*SEEDS, *HARD]]
    assert sum(run.matched for run in runs) >= validate.MATCHED * sum(run.frames for run in runs)


def test_pulls_keep_the_limits_that_so_many_runs_can_tell(validate: ModuleType) -> None:
    n = len(SEEDS)
    narrow, wide = validate.PULL_WIDTH
    for name in validate.CONSTANTS:
        pulls = [one_run(validate, seed).pulls[name] for seed in SEEDS]
        assert abs(fmean(pulls)) < validate.PULL_MEAN + norm.isf(CHANCE) / sqrt(n), name
        low, high = (sqrt(chi2.ppf(share, n - 1) / n) for share in (CHANCE, 1 - CHANCE))
        assert narrow * low < pstdev(pulls) < wide * high, name


def test_a_wrong_frame_is_noticed(validate: ModuleType, tmp_path) -> None:
    """Receives given to the next frame count as wrong, and constants that are off as pulls."""
    import pandas as pd

    import pcitrace
    from pcitrace.simulate import random_bench, simulate

    simulate(random_bench(1001, count=20), tmp_path / "run", seed=1)
    frames = pcitrace.open(tmp_path / "run").frames
    columns = ["rx_dma_start_us", "rx_dma_end_us"]
    shifted = frames.table.assign(**{name: frames.table[name].shift(1) for name in columns})
    run = validate.Run(1001, "shifted")
    truth = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv")
    validate.frames_against(type(frames)(shifted, frames.drop_log, frames.hosts, ()), truth, 0.03, run)
    assert run.wrong >= run.frames - 2
    assert run.matched == 0
    good = validate.Run(1, "", pulls=dict.fromkeys(validate.CONSTANTS, 0.0), frames=100, matched=100)
    bad = validate.Run(2, "", pulls=dict.fromkeys(validate.CONSTANTS, 9.0), frames=100, matched=99, wrong=1)
    assert len(validate.failures([good, bad])) == 1 + len(validate.CONSTANTS)


def test_an_access_of_another_frame_is_noticed(validate: ModuleType, tmp_path) -> None:
    """CSR times of the next frame count as wrong, and those left out as null."""
    import pandas as pd

    import pcitrace
    from pcitrace.simulate import random_bench, simulate

    simulate(random_bench(1001, count=20), tmp_path / "run", seed=1)
    frames = pcitrace.open(tmp_path / "run").frames
    truth = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv")

    def counts(columns: list[str], shifted: int) -> tuple[int, int, int]:
        run = validate.Run(1001, "shifted")
        table = frames.table.assign(**{name: frames.table[name].shift(shifted) for name in columns})
        validate.frames_against(type(frames)(table, frames.drop_log, frames.hosts, ()), truth, 0.03, run)
        return run.csr_right, run.csr_null, run.csr_wrong

    right, null, wrong = counts(list(validate.CSR_TIMES), 0)
    assert wrong == 0
    assert right + null == truth[list(validate.CSR_TIMES)].notna().sum().sum()
    assert counts(["csr_done_us"], 1)[2] == len(truth) - 1
    assert counts(["csr_last_us"], len(truth)) == (right - len(truth), null + len(truth), 0)
    off = validate.Run(1, "", csr_wrong=2)
    assert off.bad == "2 CSR times of frames are those of other accesses"


def test_the_page_is_of_200_runs_that_keep_every_limit(validate: ModuleType) -> None:
    text, _, _ = PAGE.read_text(encoding="utf-8").partition("\n## Control lines only")
    assert text.startswith("# Validation\n")
    assert "\n200 simulated runs" in text
    assert text.rstrip().endswith("All limits are kept.")
    rows = re.findall(r"^\| (t_nic|R_PCI \w+) \| 200 \| (\S+) \| (\S+) \|", text, re.MULTILINE)
    assert [title for title, *_ in rows] == list(validate.CONSTANTS.values())
    for _, mean, width in rows:
        assert abs(float(mean)) <= 0.2
        assert 0.8 <= float(width) <= 1.2
    matched, frames = map(int, re.search(r"were matched \| (\d+) of (\d+)", text).groups())
    assert matched >= 0.995 * frames
    null, times = map(int, re.search(r"times of frames that are null: .* \| (\d+) of (\d+)", text).groups())
    assert null <= 0.02 * times
    for what in (
        "frames given to a wrong one",
        "those of another access",
        "clocks of all classes, total difference",
        "difference of counts",
    ):
        assert re.search(rf"{what} \| 0 \| 0 \|", text), what
