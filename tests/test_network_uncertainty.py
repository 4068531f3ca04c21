"""Uncertainties hold where the times are not what textbooks take them for: correlated, few, in two peaks, of a coarse
clock, at regular times; or there is no number, and the reason why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import netlogs
import numpy as np
import pytest
from numpy.typing import NDArray

from pcitrace.network import of_paths
from pcitrace.network.delays import delay
from pcitrace.network.lines import line
from pcitrace.network.loss import loss_ratio
from pcitrace.network.sizes import quantile
from pcitrace.network.width import width

SEEDS = 200
SIZES = tuple(range(64, 1501, 76))

Times = Callable[[np.random.Generator, int], NDArray[np.float64]]


def lasting(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Each time has much of the one before: a correlation time of 19 loops."""
    noise, found = random.normal(0, np.sqrt(1 - 0.9**2), n), np.empty(n)
    found[0] = random.normal()
    for i in range(1, n):
        found[i] = 0.9 * found[i - 1] + noise[i]
    return found


def two_peaks(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Four apart and as high; the median of many lies anywhere between."""
    return np.where(random.random(n) < 0.5, 2.0, -2.0) + random.normal(0, 0.5, n)


def usual(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    return random.normal(0, 1, n)


@pytest.mark.parametrize(("times", "n"), [(usual, 6), (usual, 20), (usual, 1000), (lasting, 1000), (two_peaks, 200)])
def test_a_median_is_within_twice_its_error_for_95_of_100(times: Times, n: int) -> None:
    random = np.random.default_rng(3)
    within = []
    for _ in range(SEEDS):
        one = delay(times(random, n), 0.001)
        assert one is not None
        within.append(abs(one.median_us[0]) < 2 * one.median_us[1])
    assert np.mean(within) >= 0.91


def test_a_low_quantile_of_few_times_has_no_error() -> None:
    random = np.random.default_rng(1)
    assert np.isnan(quantile(random.normal(size=20), 0.1)[1])
    assert quantile(random.normal(size=200), 0.1)[1] > 0


def test_five_loops_give_no_latency_and_say_why(tmp_path: Path) -> None:
    found = of_paths([netlogs.loops(tmp_path / "few", "ping-pong", SIZES, lambda b: 20 + 0.02 * b, count=5)])
    parameters = found["ping-pong"].parameters
    assert parameters["intercept_us"].value is None
    assert found["ping-pong"].points[0].parameters["latency_us"].reason == "5 loops: a latency needs six"


def wandering(sizes: Sequence[int], random: np.random.Generator) -> tuple[float, ...]:
    """Return pulls of a line through times that shift from size to size by half as much again as their errors."""
    at = np.asarray(sizes, dtype=np.float64)
    true = 20 + 0.02 * at
    found = line(at, true + random.normal(0, 0.1, len(at)) + random.normal(0, 0.15, len(at)), np.full(len(at), 0.1))
    return tuple(
        (value.nominal_value - truth) / value.std_dev
        for value, truth in ((found.intercept_us, 20), (found.slope_us_per_byte, 0.02))
    )


@pytest.mark.parametrize("sizes", [(64, 256, 512, 1024, 1500), SIZES])
def test_a_line_through_times_that_shift_from_size_to_size_is_as_uncertain_as_they(sizes: Sequence[int]) -> None:
    random = np.random.default_rng(5)
    pulls = np.array([wandering(sizes, random) for _ in range(SEEDS)])
    assert (pulls.std(axis=0) < 1.35).all()
    assert (np.mean(np.abs(pulls) < 1.96, axis=0) > 0.85).all()


@pytest.mark.parametrize("step_us", [1.0, 4.0])
def test_a_coarse_clock_makes_no_step_and_no_error_that_is_too_small(tmp_path: Path, step_us: float) -> None:
    """Round trips that rise by less than the clock's step: their medians are a staircase."""
    for seed in range(10):
        folder = tmp_path / f"{step_us}-{seed}"
        path = netlogs.loops(
            folder, "ping-pong", SIZES, lambda b: 20 + 0.02 * b, sigma_us=0.2, step_ns=int(1000 * step_us), seed=seed
        )
        found = of_paths([path])["ping-pong"].parameters
        assert found["step_bytes"].value is None
        assert "looks like one" in found["step_bytes"].reason
        for name, truth in (("intercept_us", 20), ("slope_us_per_byte", 0.02)):
            assert found[name].value == pytest.approx(truth, abs=2 * (found[name].sigma or 0))


def test_loops_at_regular_times_tell_how_coarse_the_clock_may_be(tmp_path: Path) -> None:
    """Every request leaves at a whole step of the clock, every answer is seen at the same one: nothing scatters."""
    test = {"kind": "ping-pong", "sizes": [64], "count": 100}
    folder = netlogs.Folder(tmp_path / "regular", test)
    out, back = netlogs.records(100, 64), netlogs.records(100, 64, node=1)
    out["send_ns"] = netlogs.START_NS + 100_000 * np.arange(100)
    back["receive_ns"] = (out["send_ns"] + 42_560) // 4000 * 4000
    folder.log(0, 0, "sent", out)
    folder.log(0, 0, "received", back)
    found = of_paths([folder.write()])["ping-pong"].parameters["latency_us"]
    assert found.value == pytest.approx(42.56, abs=2 * (found.sigma or 0))


@pytest.mark.parametrize("coarse", ["receiver", "sender", "both"])
def test_the_width_is_that_of_the_peak_whichever_clock_is_coarse(coarse: str) -> None:
    """Frames at random times; their delays are corrected for a drift, so that they lie on no grid."""
    pulls = []
    for seed in range(50):
        random = np.random.default_rng(seed)
        left = np.cumsum(random.exponential(50, 2000))
        came = left * (1 + 8e-6) + 30 + random.normal(0, 0.4, len(left))
        left = left if coarse == "receiver" else np.floor(left)
        came = came if coarse == "sender" else np.floor(came)
        found = width(came - left - 8e-6 * left, 1.0, 2 if coarse == "both" else 1)
        pulls.append((found.sigma_us[0] - 0.4) / found.sigma_us[1])
    assert abs(np.mean(pulls)) < 0.35
    assert 0.7 < np.std(pulls) < 1.3


def test_the_least_spacing_of_many_alike_is_no_less_than_theirs(tmp_path: Path) -> None:
    """Of ten points that differ by chance alone the least one is too small."""
    pulls = []
    for seed in range(30):
        points = [netlogs.Stream(100, 50.0, count=300) for _ in range(10)]
        found = of_paths([netlogs.stream(tmp_path / str(seed), points, seed=seed)])["stream"].parameters["spacing_us"]
        assert found.value is not None
        pulls.append((found.value - 50) / (found.sigma or 0))
    assert abs(np.mean(pulls)) < 0.6


def test_the_least_spacing_of_different_ones_is_the_least(tmp_path: Path) -> None:
    points = [netlogs.Stream(100, spacing, count=300) for spacing in (50.0, 20.0, 30.0)]
    found = of_paths([netlogs.stream(tmp_path / "run", points)])["stream"].parameters["spacing_us"]
    assert found.value == pytest.approx(20, abs=3 * (found.sigma or 0))
    assert found.reason == "least of 3 points: 100 bytes every 50 us"


def test_the_error_of_few_losses_is_that_of_their_interval() -> None:
    """The root of a small count is too small an error: of one loss the truth may well be five."""
    random = np.random.default_rng(2)
    pulls = []
    for _ in range(SEEDS):
        lost = np.flatnonzero(random.random(10_000) < 3e-4)
        found = loss_ratio(lost, 10_000)
        pulls.append((found.value - 3e-4) / found.sigma)
    assert np.std(pulls) < 1.2
