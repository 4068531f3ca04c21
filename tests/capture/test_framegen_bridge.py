"""framegen through the impairment bridge, which knows the truth: counts exactly, times by their medians."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network import impaired, read_log

CPUS = sorted(os.sched_getaffinity(0))
QUIET: dict[str, float] = {}


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


def test_delay_per_byte_comes_out_as_slope_and_intercept() -> None:
    there = {"fixed_us": 300, "per_byte_us": 5}
    back = {"fixed_us": 500, "per_byte_us": 3}
    sizes = [64, 400, 800, 1200, 1500]
    with impaired(there, back) as network:
        network.right.serve("--clock-offset-us", 4_000_000, "--clock-drift-ppm", 60)
        words = ["--sizes", ",".join(map(str, sizes)), "--count", 200, "--spacing-us", 3000, "--direction", "both"]
        summary = network.left.test("stream", network.right, *words)
        network.truth()
    (clock,) = summary["clocks"]
    truth_us = 4_000_000 + 60e-6 * clock["reference_ns"] / 1e3
    # The two directions of the shortest exchange differ, and the offset is off by half of that. Frames of the
    # exchange are 50 + 14 bytes there and about 94 + 14 back.
    assert abs(clock["offset_us"] - truth_us) <= clock["asymmetry_bound_us"]
    assert abs(clock["drift_ppm"] - 60) < 20
    shift = clock["offset_us"] - truth_us
    for index, (setting, sign) in enumerate(((there, -1), (back, 1))):
        # Not the median: on a busy machine more than half the frames wait for a CPU, but some do not.
        latencies = [point["flows"][index]["latency_us"]["min"] for point in summary["points"]]
        slope, intercept = np.polyfit(np.array(sizes) + 14, latencies, 1)
        assert slope == pytest.approx(setting["per_byte_us"], rel=0.1)
        # The wrong half goes to one direction and comes from the other; the rest is what the bridge itself needs.
        assert -50 < intercept - sign * shift - setting["fixed_us"] < 300


def test_round_trip_adds_both_directions_whatever_the_clocks_say() -> None:
    there, back = {"fixed_us": 400, "quantum_us": 20}, {"per_byte_us": 5}
    with impaired(there, back) as network:
        # Two that spin must not share a CPU, nor wait for others; the bridge goes before them.
        network.right.serve("--clock-offset-us", -1e9, "--cpu", CPUS[-1], "--priority", 5)
        words = [
            "--cpu",
            CPUS[0],
            "--priority",
            5,
            "--sizes",
            "64,1500",
            "--request-bytes",
            1000,
            "--count",
            200,
            "--spacing-us",
            1000,
        ]
        summary = network.left.test("request-response", network.right, *words)
        network.truth()
    # The quickest: other processes only add.
    small, large = (point["round_trip_us"][0]["min"] for point in summary["points"])
    assert large - small == pytest.approx((1500 - 64) * 5, rel=0.1)
    assert 0 < small - (400 + 16 * 20 + 5 * 78) < 1000


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
