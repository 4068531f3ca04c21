"""Clocks that are no line: they step by less than a drift explains, or run faster as they warm up."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netlogs
import numpy as np
import pytest
from numpy.typing import NDArray

from pcitrace import network
from pcitrace.errors import FitError
from pcitrace.network import clocks
from pcitrace.runfolder import CLOCK_EXCHANGES

AheadNs = Callable[[NDArray[np.float64]], NDArray[np.float64]]
LATENCY_US = 30.0


def exchanges(begin_s: NDArray[np.float64], ahead_ns: AheadNs, seed: int = 1) -> NDArray[Any]:
    """Exchanges with a clock that is so far ahead at a time; both ways take 2 us and more."""
    random = np.random.default_rng(seed)
    there, back = (2e-6 + random.exponential(5e-7, len(begin_s)) for _ in range(2))
    times = begin_s + np.stack([0 * there, there, there + 1.5e-6, there + 1.5e-6 + back])
    times_ns = times * 1e9
    times_ns[1:3] += ahead_ns(times[1:3])
    found = np.zeros(len(begin_s), CLOCK_EXCHANGES)
    for name, column in zip(found.dtype.names, times_ns, strict=True):
        found[name] = netlogs.START_NS + np.rint(column).astype(np.int64)
    return found


def stream(path: Path, seconds: float, count: int, ahead_ns: AheadNs, compared_s: NDArray[np.float64]) -> Path:
    """Frames that are 30 us under way to a host with such a clock."""
    sent = netlogs.records(count, 500)
    begin_s = np.arange(count) * seconds / count
    arrive_s = begin_s + 1e-6 * (LATENCY_US + np.random.default_rng(2).normal(0, 0.3, count))
    sent["send_ns"] = netlogs.START_NS + np.rint(begin_s * 1e9)
    came = sent.copy()
    came["receive_ns"] = netlogs.START_NS + np.rint(arrive_s * 1e9 + ahead_ns(arrive_s))
    test = {"kind": "stream", "sizes": [500], "spacing_us": 1e6 * seconds / count}
    folder = netlogs.Folder(path, test)
    folder.log(0, 0, "sent", sent)
    folder.log(0, 1, "received", came)
    folder.compare(1, exchanges(compared_s, ahead_ns))
    return folder.write()


def before_and_after(seconds: float) -> NDArray[np.float64]:
    """Times of 200 exchanges before and 200 after, as framegen makes them."""
    return np.concatenate([np.linspace(-0.3, -0.1, 200), np.linspace(seconds + 0.1, seconds + 0.3, 200)])


@pytest.mark.parametrize("step_us", [20.0, -50.0, 150.0])
def test_a_step_that_a_drift_could_explain_gives_no_times(step_us: float, tmp_path: Path) -> None:
    """Nothing was exchanged for 0.2 s, in which 200 ppm are 40 us: only that two lines do not meet tells the step."""
    folder = stream(
        tmp_path / "run", 0.01, 1000, lambda at: np.where(at > 0.004, step_us * 1e3, 0.0), before_and_after(0.01)
    )
    [result] = network.of_paths([folder]).results
    for name in ("latency_us", "fwhm_us", "spacing_us", "user_mbit_s"):
        assert result.parameters[name].value is None, name
    assert "a clock stepped while these frames were under way" in result.parameters["latency_us"].reason
    [text] = [one for one in result.findings if "the clock of node 1 steps by" in one]
    assert float(text.split("steps by ")[1].split()[0]) == pytest.approx(step_us, abs=0.5)
    assert result.parameters["received"].value == 1000


@pytest.mark.parametrize("ppm_per_s", [0.01, 0.1])
def test_a_clock_that_warms_up_is_several_lines(ppm_per_s: float, tmp_path: Path) -> None:
    """One line through a minute of it was 1.2 us off at 0.01 ppm/s and 12 us at 0.1, and said that nothing was."""
    compared_s = np.sort(np.concatenate([before_and_after(60.0), np.arange(0, 60, 0.25)]))
    folder = stream(tmp_path / "run", 60.0, 6000, lambda at: 1e3 * (5 * at + ppm_per_s / 2 * at**2), compared_s)
    [result] = network.of_paths([folder]).results
    found = result.parameters["latency_us"]
    assert abs(found.value - LATENCY_US) < min(0.5, 2 * found.sigma)
    assert "may be off by 2.02 us" in found.reason
    assert result.parameters["spacing_us"].value == pytest.approx(1e4, rel=1e-6)
    assert "changed its rate" in result.parameters["fwhm_us"].reason
    told = [float(one.split("its rate by ")[1].split()[0]) for one in result.findings if "its rate by" in one]
    # from the middle of the first line to that of the last
    assert 0.4 * ppm_per_s * 60 < sum(told) < ppm_per_s * 60
    assert not any("steps" in one for one in result.findings)


def test_of_a_clock_that_is_no_line_the_shortest_trip_bounds_all(tmp_path: Path) -> None:
    begin_s = np.linspace(0, 3600, 14400)
    made = exchanges(begin_s, lambda at: 1e3 * 0.1 * 900 / math.tau * np.sin(math.tau * at / 900))
    clock = clocks.fit(1, made)
    trip_us = ((made["reply_received_ns"] - made["request_sent_ns"]) - 1500).min() / 1e3
    assert 9 < len(clock.segments) < 30
    assert all(one.bound_us >= trip_us / 2 - 1e-9 for one in clock.segments)
    at_s = np.linspace(1, 3599, 1000)
    ours = netlogs.START_NS + np.rint(at_s * 1e9).astype(np.int64)
    ahead = 1e3 * 0.1 * 900 / math.tau * np.sin(math.tau * at_s / 900)
    off_us = (clock.base_ns + clock.minus_ours_ns(ours + np.rint(ahead).astype(np.int64), ours) - ahead) / 1e3
    assert np.abs(off_us).max() < trip_us / 2
    assert abs(off_us.mean()) < 0.1


def test_exchanges_that_no_two_clocks_make_are_told(tmp_path: Path) -> None:
    made = exchanges(np.linspace(0, 2, 400), lambda at: 0 * at)
    made["reply_received_ns"][:150] = 0
    clock = clocks.fit(1, made)
    assert clock.findings == ("the clock of node 1: 150 exchanges show times that no two clocks do; left out",)


def test_one_exchange_sets_the_offset_and_tells_no_drift() -> None:
    made = exchanges(np.zeros(1), lambda at: 0 * at + 5000)
    made["reply_received_ns"] += 100_000_000
    [segment] = clocks.fit(1, made).segments
    assert segment.offset_us == pytest.approx(5 - 50_000, abs=2)
    assert segment.bound_us == pytest.approx(50_000, abs=3)
    assert segment.drift_ppm == 0


@pytest.mark.parametrize("method", ["hull", "midpoints"])
def test_whatever_a_damaged_file_shows_is_a_clock_or_an_error(method: str) -> None:
    for seed in range(200):
        random = np.random.default_rng(seed)
        made = np.zeros(random.integers(0, 60), CLOCK_EXCHANGES)
        for name in made.dtype.names or ():
            reach = (10, 2**62, 10**9)[seed % 3]
            made[name] = np.sort(random.integers(-reach, reach, len(made)))
        try:
            clock = clocks.fit(1, made, method)
        except FitError:
            continue
        told = [(one.beside_us, one.offset_sigma_us, one.drift_ppm, one.bound_us) for one in clock.segments]
        assert np.isfinite(told).all(), seed
