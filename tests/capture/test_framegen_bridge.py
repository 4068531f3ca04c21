"""framegen through the impairment bridge, which knows the truth: counts exactly, times by what must have been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network import impaired, read_log
from numpy.typing import NDArray
from pcicap.latency import one_way

QUIET: dict[str, float] = {}
SIZES = "64,300,600,900,1200,1500"
STAMPS_US = 50.0
"""What the kernel's stamps may be wrong: two of its clocks are read one after the other to bring them to one time."""


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
        words = ["--count", 200, "--timeout-ms", 200]
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
    there = {"queue_limit": 64, "pause_from": 200, "pause_frames": 400}
    with impaired(there, QUIET) as network:
        network.right.serve()
        words = ["--count", 1000, "--spacing-us", 1000, "--drain-ms", 1000]
        summary = network.left.test("stream", network.right, *words, "-o", tmp_path)
        truth = network.truth()
    (flow,) = summary["points"][0]["flows"]
    assert_true(flow, truth["to_right"])
    # 400 frames came during the pause, and 64 could wait, with those that waited when it began.
    assert len(truth["to_right"]["dropped"]) >= 400 - 64


def held_us(way: dict[str, Any]) -> dict[tuple[int, int], float]:
    """How long the bridge held a frame, by its size and number."""
    frames = zip(way["user_bytes"], way["sent"], way["held_us"], strict=True)
    return {(size, sequence): held for size, sequence, held in frames}


def longer_than_held(log: NDArray[Any], took_us: NDArray[Any], held: dict[tuple[int, int], float]) -> None:
    """From stamp to stamp frames were at least as long on their way as the bridge held them."""
    waited = [held[size, sequence] for size, sequence in zip(log["length_bytes"], log["sequence"], strict=True)]
    assert np.median(took_us - np.array(waited)) > -STAMPS_US


def test_latencies_by_the_clocks_are_longer_than_the_delays_of_the_bridge(tmp_path: Path) -> None:
    there, back = {"fixed_us": 300, "per_byte_us": 5}, {"fixed_us": 500, "per_byte_us": 3}
    with impaired(there, back) as network:
        network.right.serve("--clock-offset-us", 4_000_000, "--clock-drift-ppm", 60)
        words = ["--sizes", SIZES, "--count", 200, "--spacing-us", 3000, "--direction", "both", "-o", tmp_path]
        summary = network.left.test("stream", network.right, *words)
        truth = network.truth()
    (clock,) = summary["clocks"]
    error_us = clock["offset_us"] - (4_000_000 + 60e-6 * clock["reference_ns"] / 1e3)
    assert abs(error_us) <= clock["asymmetry_bound_us"]
    assert abs(clock["drift_ppm"] - 60) <= clock["drift_bound_ppm"]
    for index, (name, peer_ns, own_ns) in enumerate(
        (("to_right", "receive_ns", "send_ns"), ("to_left", "send_ns", "receive_ns"))
    ):
        held = held_us(truth[name])
        sign = 1 if index == 0 else -1
        for point in summary["points"]:
            log = read_log(tmp_path, summary, 1 - index, "received", point["point"])
            # Both hosts are this one: the peer's clock without its error, and as the exchanges say.
            right = (log[peer_ns] - 4e9) / (1 + 60e-6)
            since = log[peer_ns] - clock["reference_ns"] - clock["offset_us"] * 1e3
            fitted = clock["reference_ns"] + since / (1 + clock["drift_ppm"] * 1e-6)
            longer_than_held(log, sign * (right - log[own_ns]) / 1e3, held)
            by_clock = np.quantile(sign * (fitted - log[own_ns]) / 1e3, 0.5)
            assert point["flows"][index]["latency_us"]["p50"] == pytest.approx(by_clock, abs=0.05)


def test_round_trips_are_longer_than_the_delays_of_the_bridge(tmp_path: Path) -> None:
    """And T(b) as `pcicap record` writes it is half of them, whatever the clocks say."""
    with impaired({"fixed_us": 400, "quantum_us": 20}, {"fixed_us": 200, "per_byte_us": 2}) as network:
        network.right.serve("--clock-offset-us", -1e9)
        words = ["--sizes", SIZES, "--count", 100, "--receive", "batch", "--timeout-ms", 10_000, "-o", tmp_path]
        summary = network.left.test("ping-pong", network.right, *words)
        truth = network.truth()
    there, back = held_us(truth["to_right"]), held_us(truth["to_left"])
    both = {key: there[key] + held for key, held in back.items()}
    halves = []
    for point in range(6):
        asked, answered = (read_log(tmp_path, summary, 0, kind, point) for kind in ("sent", "received"))
        assert np.array_equal(asked["sequence"], answered["sequence"])
        trips = (answered["receive_ns"] - asked["send_ns"]) / 1e3
        longer_than_held(answered, trips, both)
        halves.append(np.quantile(trips, 0.5) / 2)
    assert [row[1] for row in one_way(summary)] == pytest.approx(halves)


def test_a_bound_that_only_shows_while_it_runs() -> None:
    """A loop takes 4 ms and more, which no plan can know: 1000 of them do not fit into 2 s."""
    with impaired({"fixed_us": 2000}, {"fixed_us": 2000}) as network:
        network.right.serve()
        words = ["--count", 1000, "--max-seconds", 2]
        done = network.left.framegen("ping-pong", "-p", network.right.mac, *words)
    assert done.status == 1
    assert done.summary["reason"] == "the limit of time (--max-seconds) came before the last loop"
    assert 0 < done.summary["points"][0]["flows"][0]["sent"] <= 2 / 4e-3


def test_jitter_is_in_the_histogram(tmp_path: Path) -> None:
    with impaired({"fixed_us": 200, "jitter_us": 2000}, QUIET, 6) as network:
        network.right.serve()
        words = ["--count", 800, "--spacing-us", 1500, "-o", tmp_path]
        summary = network.left.test("stream", network.right, *words)
        truth = network.truth()
    (flow,) = summary["points"][0]["flows"]
    latency = flow["latency_us"]
    histogram = latency["histogram"]
    assert sum(histogram["counts"]) + histogram["below"] + histogram["above"] == latency["n"] == 800
    log = read_log(tmp_path, summary, 1, "received")
    longer_than_held(log, (log["receive_ns"] - log["send_ns"]) / 1e3, held_us(truth["to_right"]))
