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

from pcitrace.network import clocks, of_paths
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


def test_clocks_that_are_decades_apart_lose_no_ns(tmp_path: Path) -> None:
    """One counts from 1970, the other from when its host was started: a float of that difference is 256 ns off."""
    points = [netlogs.Stream(100, 50.0, latency_us=30.0, sigma_us=0.01)]
    folder = netlogs.stream(tmp_path / "run", points, clock=(1e4, 5.0))
    near = of_paths([folder])["stream"]
    far = of_paths([decades_later(folder)])["stream"]
    for name in ("latency_us", "sigma_us", "spacing_us"):
        one, other = near.parameters[name], far.parameters[name]
        assert other.value == pytest.approx(one.value, abs=2e-3), name
        assert other.sigma == pytest.approx(one.sigma, rel=0.2), name


def decades_later(folder: Path) -> Path:
    """Set the clock of node 1 to 1.7e18 ns later."""
    for name, columns in (
        ("p000-node1-received.npy", ("receive_ns",)),
        ("node1-clock.npy", ("request_received_ns", "reply_sent_ns")),
    ):
        records = np.load(folder / name)
        for column in columns:
            records[column] += 1_700_000_000_000_000_123
        np.save(folder / name, records)
    return folder


def test_a_clock_that_runs_apart_makes_no_steps(tmp_path: Path) -> None:
    """300 ppm: seen in exchanges before and after, of which too few are apart to look like many steps."""
    random = np.random.default_rng(4)
    folder = netlogs.Folder(tmp_path / "run", {"kind": "stream", "sizes": [100], "spacing_us": 50.0})
    sent, came = netlogs.sent_and_received(netlogs.Stream(100, 50.0), random)
    came["receive_ns"] += netlogs.ahead_ns(came["receive_ns"], (0.0, 300.0))
    folder.log(0, 0, "sent", sent)
    folder.log(0, 1, "received", came)
    folder.compare(1, netlogs.exchanges(random, 400, (0.0, 300.0), seconds=0.3))
    found = of_paths([folder.write()])["stream"]
    assert found.parameters["latency_us"].value is None
    assert "runs apart" in found.findings[0]
    assert "compared with no other" in found.parameters["spacing_us"].reason


def test_where_a_clock_stepped_no_width_is_given(tmp_path: Path) -> None:
    """Between two steps lie two exchanges: how far their comparison is off would be in the width."""
    random = np.random.default_rng(4)
    folder = netlogs.Folder(tmp_path / "run", {"kind": "stream", "sizes": [100], "spacing_us": 50.0})
    sent, came = netlogs.sent_and_received(netlogs.Stream(100, 50.0, 4000, sigma_us=0.1), random)
    exchanges = netlogs.exchanges(random, 40, (0.0, 0.0), seconds=0.2)
    for times in (came["receive_ns"], exchanges["request_received_ns"], exchanges["reply_sent_ns"]):
        times += 10**6 * (times > netlogs.START_NS + 10**8)
    folder.log(0, 0, "sent", sent)
    folder.log(0, 1, "received", came)
    folder.compare(1, exchanges)
    found = of_paths([folder.write()])["stream"].parameters
    assert found["latency_us"].value == pytest.approx(30, abs=2 * (found["latency_us"].sigma or 0))
    assert "stepped" in found["sigma_us"].reason
    assert found["sigma_us"].value is None


def test_one_late_frame_of_a_regular_stream_makes_no_coarse_clock(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    folder = netlogs.Folder(tmp_path / "run", {"kind": "stream", "sizes": [100], "spacing_us": 50.0})
    sent, came = netlogs.sent_and_received(netlogs.Stream(100, 50.0, sigma_us=0.1), random)
    for log, columns in ((sent, ("send_ns",)), (came, ("send_ns", "receive_ns"))):
        for column in columns:
            log[column][500:] += 50_000
    folder.log(0, 0, "sent", sent)
    folder.log(0, 1, "received", came)
    folder.compare(1, netlogs.exchanges(random, 400, (0.0, 0.0)))
    found = of_paths([folder.write()])["stream"].parameters
    assert found["sigma_us"].value == pytest.approx(0.1, abs=0.01)
    assert (found["latency_us"].sigma or 0) < 0.1


def test_the_line_of_a_multicast_is_that_of_one_node(tmp_path: Path) -> None:
    """Node 1 answers the first size only; without a summary, requests are those of every node."""
    test = {"kind": "one-to-many", "sizes": [64, 512, 1500], "request_bytes": 64}
    folder = netlogs.Folder(tmp_path / "run", test, hosts=3)
    random = np.random.default_rng(1)
    for point, size in enumerate((64, 512, 1500)):
        out = netlogs.records(100, 64)
        out["send_ns"] = netlogs.START_NS + np.cumsum(random.integers(200_000, 300_000, 100))
        answers = []
        for node in (1, 2) if point == 0 else (2,):
            back = netlogs.records(100, size, stream=100 + node, node=node)
            back["receive_ns"] = out["send_ns"] + 1000 * (20 * node + 0.02 * (64 + size)) + random.normal(0, 100, 100)
            answers.append(back)
        came = np.concatenate(answers)
        folder.log(point, 0, "sent", out)
        folder.log(point, 0, "received", came[np.argsort(came["receive_ns"], kind="stable")])
    found = of_paths([folder.write()])["one-to-many"].parameters
    assert found["slope_us_per_byte"].value == pytest.approx(0.02, abs=3 * (found["slope_us_per_byte"].sigma or 0))
    assert "of node 2" in found["slope_us_per_byte"].reason
    assert [found[name].value for name in ("sent", "received", "lost")] == [400, 400, 0]


def test_exchanges_that_no_path_allows_do_not_set_the_clock() -> None:
    """Three of 400 readings are 4 us early: the line between both sides would touch these three."""
    exchanges = netlogs.exchanges(np.random.default_rng(1), 400, (100.0, 5.0))
    exchanges["request_received_ns"][[50, 200, 350]] -= 4000
    found = clocks.fit(1, exchanges)
    [one] = found.segments
    truth = 100 + 5e-6 * (one.reference_ns - netlogs.START_NS) / 1e3
    assert abs(one.offset_us - truth) < 0.1
    assert "3 exchanges were quicker than the path allows" in found.findings[0]


def test_a_drift_that_was_not_measured_is_uncertain(tmp_path: Path) -> None:
    """All exchanges within 10 ms, 20 ppm, frames for a second: times and rates are off by that."""
    random = np.random.default_rng(4)
    folder = netlogs.Folder(tmp_path / "run", {"kind": "stream", "sizes": [100], "spacing_us": 50.0})
    sent, came = netlogs.sent_and_received(netlogs.Stream(100, 50.0, 20_000, sigma_us=0.1), random)
    came["receive_ns"] += netlogs.ahead_ns(came["receive_ns"], (0.0, 20.0))
    folder.log(0, 0, "sent", sent)
    folder.log(0, 1, "received", came)
    folder.compare(1, netlogs.exchanges(random, 400, (0.0, 20.0), seconds=0.01))
    found = of_paths([folder.write()])["stream"].parameters
    for name, truth in (("latency_us", 30), ("spacing_us", 50), ("sigma_us", 0.1)):
        assert found[name].value is None or found[name].value == pytest.approx(truth, abs=2 * (found[name].sigma or 0))
    assert (found["spacing_us"].sigma or 0) > 50e-6 * 20


@pytest.mark.parametrize("how", ["cut", "short"])
def test_a_log_that_lacks_frames_tells_no_number_of_them(how: str, tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(100, 50.0, 1000, lost=[5, 600])])
    file = folder / "p000-node0-sent.npy"
    if how == "cut":
        file.write_bytes(file.read_bytes()[:20_000])
    else:
        np.save(file, np.load(file)[:500])
    found = of_paths([folder])["stream"]
    assert found.parameters["received"].value == 998
    for name in ("sent", "lost", "loss_ratio"):
        assert found.parameters[name].value is None, name
    assert any("sender's log does not have" in text for text in found.findings)


def test_sizes_whose_times_follow_one_another_make_no_bend(tmp_path: Path) -> None:
    """How much they do is not known of 200 loops of one size; of all sizes together it is."""
    pulls, bends = [], 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        folder = netlogs.Folder(tmp_path / str(seed), {"kind": "ping-pong", "sizes": list(SIZES), "count": 200})
        for point, size in enumerate(SIZES):
            out, back = netlogs.records(200, size), netlogs.records(200, size, node=1)
            out["send_ns"] = netlogs.START_NS + np.cumsum(random.integers(200_000, 300_000, 200))
            trip_us = 40 + 0.04 * size + 0.2 * lasting(random, 200)
            back["receive_ns"] = out["send_ns"] + np.rint(1000 * trip_us)
            folder.log(point, 0, "sent", out)
            folder.log(point, 0, "received", back)
        found = of_paths([folder.write()])["ping-pong"]
        slope = found.parameters["slope_us_per_byte"]
        assert slope.value is not None
        pulls.append((slope.value - 0.02) / (slope.sigma or 0))
        bends += "shorter frames" in " ".join(found.findings)
    assert np.std(pulls) < 1.3
    assert bends <= 3


def test_the_largest_shift_of_many_sizes_alike_is_no_larger_than_theirs(tmp_path: Path) -> None:
    """Of 40 sizes that nothing shifts, the largest was 2.2 of its standard deviations."""
    sizes = range(64, 1264, 30)
    alone, beside = (
        netlogs.loops(tmp_path / name, "ping-pong", sizes, lambda length: 30 + 0.02 * length, seed=seed)
        for seed, name in enumerate(("alone", "beside"))
    )
    netlogs.stream(beside / "companions" / "load", [netlogs.Stream(500, 40.0, 200)])
    for folder in (alone, beside):
        with (folder / "run.toml").open("a") as file:
            file.write('[path]\nkind = "switch"\n')
    with (beside / "run.toml").open("a") as file:
        file.write('[[companions]]\nfolder = "companions/load"\nrole = "background"\n')
    found = of_paths([alone, beside])["shift"]
    table, most = found.tables["shift"], found.parameters["shift_us"]
    assert (table["shift_us"] / table["shift_sigma_us"]).max() > 1.5
    assert most.value is not None
    assert most.sigma is not None
    assert abs(most.value) < 3 * most.sigma
    assert most.sigma < table["shift_sigma_us"].min() / 3
    assert "no different: their mean" in most.reason
