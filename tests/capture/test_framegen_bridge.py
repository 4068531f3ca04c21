"""framegen through the impairment bridge, which knows the truth: counts exactly, times by their medians."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network import impaired, read_log
from pcicap.latency import median_error, one_way

from pcitrace.estimate import Estimate
from pcitrace.latency import LatencyFit

QUIET: dict[str, float] = {}
SIZES = "64,300,600,900,1200,1500"

# From the sender's stamp into the bridge, out of it to the receiver's: what the bridge does not see. 3 to 20 µs were
# seen, idle and under load, as the caches were; it is the same for all frames of a size more than for all sizes.
PASSAGE_US, PASSAGE_SIGMA_US = 10.0, 5.0


def reordered(order: list[int]) -> int:
    """RFC 4737, section 3.3, from the order in which the bridge let go: first copies that a later number overtook."""
    highest, seen, count = -1, set(), 0
    for sequence in order:
        if sequence in seen:
            continue
        seen.add(sequence)
        count += sequence < highest
        highest = max(highest, sequence)
    return count


def assert_true(flow: dict[str, Any], truth: dict[str, Any]) -> None:
    """The flow's counts are those of the bridge."""
    order = truth["sent"]
    assert flow["sent"] == truth["arrived"]
    assert flow["received"] == len(set(order))
    assert flow["lost"] == len(truth["lost"]) + len(truth["dropped"])
    assert flow["duplicated"] == len(order) - len(set(order))
    assert flow["reordered"] == reordered(order)
    assert flow["corrupt"] == 0
    assert flow["loss"] == {"sender": 0, "network": flow["lost"], "kernel": 0, "application": 0}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_loss_duplication_and_reordering_are_counted_exactly(tmp_path: Path, seed: int) -> None:
    there = {"loss": 0.03, "duplication": 0.02, "reordering": 0.05, "reorder_us": 3000, "fixed_us": 100}
    back = {"loss": 0.01, "duplication": 0.05, "reordering": 0.02, "reorder_us": 5000}
    with impaired(there, back, seed) as network:
        network.right.serve()
        summary = network.left.test(
            "stream", network.right, "--direction", "both", "--count", 2000, "--spacing-us", 500, "-o", tmp_path
        )
        truth = network.truth()
    to_right, to_left = summary["points"][0]["flows"]
    assert_true(to_right, truth["to_right"])
    assert_true(to_left, truth["to_left"])
    # The log is the order of arrival itself, copies flagged.
    log = read_log(tmp_path, summary, 1, "received")
    assert log["sequence"].tolist() == truth["to_right"]["sent"]
    assert int((log["flags"] & 2 != 0).sum()) == to_right["duplicated"]
    assert min(len(truth["to_right"][kind]) for kind in ("lost", "sent")) > 0


def test_lost_and_doubled_answers(tmp_path: Path) -> None:
    there, back = {"loss": 0.05, "duplication": 0.05}, {"loss": 0.05, "duplication": 0.05}
    with impaired(there, back, 4) as network:
        network.right.serve()
        words = ["--count", 400, "--timeout-ms", 20]
        summary = network.left.test("request-response", network.right, *words, "-o", tmp_path)
        truth = network.truth()
    requests, responses = summary["points"][0]["flows"]
    assert_true(requests, truth["to_right"])
    # A doubled request is answered twice: the responder sent what the bridge saw come.
    assert responses["sent"] == truth["to_left"]["arrived"] == len(truth["to_right"]["sent"])
    answered = set(truth["to_left"]["sent"])
    assert responses["received"] == len(answered)
    assert responses["duplicated"] == len(truth["to_left"]["sent"]) - len(answered)
    assert summary["points"][0]["round_trip_us"][0]["n"] == len(answered)


def test_a_full_queue_behind_a_paused_port(tmp_path: Path) -> None:
    there = {"queue_limit": 64, "pause_from_s": 0.2, "pause_s": 0.4}
    with impaired(there, QUIET) as network:
        network.right.serve()
        words = ["--count", 1000, "--spacing-us", 1000, "--drain-ms", 1000]
        summary = network.left.test("stream", network.right, *words, "-o", tmp_path)
        truth = network.truth()
    (flow,) = summary["points"][0]["flows"]
    assert_true(flow, truth["to_right"])
    # 400 frames came during the pause where the CPU was ours, and 64 could wait.
    assert 0 < len(truth["to_right"]["dropped"]) < 420
    received = read_log(tmp_path, summary, 1, "received")
    # The longest silence is the pause.
    assert 0.35 < np.diff(received["receive_ns"]).max() / 1e9 < 1


def lines(rows: list[tuple[int, float, float]], ways: list[dict[str, Any]]) -> tuple[LatencyFit, LatencyFit]:
    """T(b) through measured latencies, and through what the bridge did to those very frames.

    ``rows``: bytes, median, standard error. ``ways``: the directions of which the latencies are the mean. The same
    errors weight both lines.
    """
    sizes, latency, sigma = (np.array(column) for column in zip(*rows, strict=True))
    sigma = np.hypot(sigma, PASSAGE_SIGMA_US)
    held = np.mean([[held_us(way, size) for size in sizes] for way in ways], axis=0)
    return LatencyFit.of(sizes, latency - PASSAGE_US, sigma), LatencyFit.of(sizes, held, sigma)


def held_us(way: dict[str, Any], size: int) -> float:
    """How long the bridge held the frames of a size: the median."""
    return float(np.median(np.array(way["held_us"])[np.array(way["user_bytes"]) == size]))


def assert_within(value: Estimate, truth: float) -> None:
    """The value is the truth within five of its own standard deviations."""
    assert value.value is not None
    assert value.sigma is not None
    assert abs(value.value - truth) < 5 * value.sigma, (value, truth)


def test_latencies_by_the_clocks_are_the_delays_of_the_bridge() -> None:
    there, back = {"fixed_us": 300, "per_byte_us": 5}, {"fixed_us": 500, "per_byte_us": 3}
    with impaired(there, back) as network:
        network.right.serve("--clock-offset-us", 4_000_000, "--clock-drift-ppm", 60)
        words = ["--sizes", SIZES, "--count", 200, "--spacing-us", 3000, "--direction", "both"]
        summary = network.left.test("stream", network.right, *words)
        truth = network.truth()
    (clock,) = summary["clocks"]
    error_us = clock["offset_us"] - (4_000_000 + 60e-6 * clock["reference_ns"] / 1e3)
    assert abs(error_us) <= clock["asymmetry_bound_us"]
    assert abs(clock["drift_ppm"] - 60) <= clock["drift_bound_ppm"]
    # Closer than these bounds, as the bridge's asymmetry is known: half of it is in the offset.
    assert error_us == pytest.approx((there["fixed_us"] - back["fixed_us"]) / 2, abs=5 * PASSAGE_SIGMA_US)
    assert clock["drift_ppm"] == pytest.approx(60, abs=5)
    for index, (name, setting, sign) in enumerate((("to_right", there, -1), ("to_left", back, 1))):
        rows = []
        for point in summary["points"]:
            latency, by_clock = (point["flows"][index][key] for key in ("latency_us", "latency_sigma_us"))
            rows.append((point["length_bytes"], latency["p50"], np.hypot(median_error(latency), by_clock)))
        measured, true = lines(rows, [truth[name]])
        assert_within(measured.slope_us_per_byte, true.slope_us_per_byte.value)
        # What the clocks are wrong goes to one direction and comes from the other.
        assert_within(measured.intercept_us, true.intercept_us.value + sign * error_us)
        assert true.slope_us_per_byte.value == pytest.approx(setting["per_byte_us"], rel=0.1)


def test_latencies_by_round_trips_are_the_delays_of_the_bridge() -> None:
    """T(b) as `pcicap record` writes it and `pcitrace` fits it, whatever the clocks say."""
    with impaired({"fixed_us": 400, "quantum_us": 20}, {"fixed_us": 200, "per_byte_us": 2}) as network:
        # The one who answers spins: it must not lose its CPU meanwhile. The one who asks sleeps, and leaves its own.
        network.right.serve("--clock-offset-us", -1e9, "--priority", 5)
        words = ["--sizes", SIZES, "--count", 100, "--receive", "batch", "--priority", 5]
        summary = network.left.test("ping-pong", network.right, *words)
        truth = network.truth()
    measured, true = lines([row[:3] for row in one_way(summary)], [truth["to_right"], truth["to_left"]])
    assert_within(measured.slope_us_per_byte, true.slope_us_per_byte.value)
    assert_within(measured.intercept_us, true.intercept_us.value)
    assert true.slope_us_per_byte.value == pytest.approx((20 / 64 + 2) / 2, rel=0.1)


def test_a_bound_that_only_shows_while_it_runs() -> None:
    """A loop takes 4 ms and more, which no plan can know: 1000 of them do not fit into 2 s."""
    with impaired({"fixed_us": 2000}, {"fixed_us": 2000}) as network:
        network.right.serve()
        words = ["--count", 1000, "--max-seconds", 2]
        done = network.left.framegen("ping-pong", "-p", network.right.mac, *words)
    assert done.status == 1
    assert done.summary["reason"] == "the limit of time (--max-seconds) came before the last loop"
    assert 0 < done.summary["points"][0]["flows"][0]["sent"] <= 2 / 4e-3


def test_jitter_is_in_the_histogram() -> None:
    with impaired({"fixed_us": 200, "jitter_us": 2000}, QUIET, 6) as network:
        network.right.serve()
        summary = network.left.test("stream", network.right, "--count", 800, "--spacing-us", 1500)
    (flow,) = summary["points"][0]["flows"]
    latency = flow["latency_us"]
    histogram = latency["histogram"]
    assert sum(histogram["counts"]) + histogram["below"] + histogram["above"] == latency["n"] == 800
    # Frames keep their order, so a long delay holds up the next ones: at least the width of the exponential.
    assert latency["p90"] - latency["p10"] > 0.8 * np.log(9) * 2000
    assert latency["fwhm"] is not None
