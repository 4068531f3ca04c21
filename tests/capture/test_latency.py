"""One-way latencies from round trips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pcicap import latency


def summary(kind: str, request: int | None, sizes: list[int], n: int = 4001, seed: int = 1) -> dict[str, Any]:
    """Round trips of T(b) = 26.32 + 0.0235 b each way, with noise of 0.5 µs and a few interruptions."""
    random = np.random.default_rng(seed)
    points = []
    for size in sizes:
        ways = [request if kind == "request-response" and request else size, size]
        trips = sum(26.32 + 0.0235 * way for way in ways) + random.normal(0, 0.5, n)
        trips[:20] += 5000
        p10, p50, p90 = np.percentile(trips, [10, 50, 90])
        points.append(
            {"length_bytes": size, "round_trip_us": [{"node": 1, "n": n, "p10": p10, "p50": p50, "p90": p90}]}
        )
    return {"test": {"kind": kind, "request_bytes": request}, "points": points}


@pytest.mark.parametrize(("kind", "request_bytes"), [("ping-pong", None), ("request-response", 64)])
def test_known_latencies_come_back(kind: str, request_bytes: int | None) -> None:
    pulls = []
    for seed in range(40):
        for size, value, sigma, n in latency.one_way(summary(kind, request_bytes, [64, 512, 1500], seed=seed)):
            assert n == 4001
            pulls.append((value - 26.32 - 0.0235 * size) / sigma)
    # 0.5 % of the trips are interrupted: medians move by 0.01 sigma of a trip, half a standard error of a median
    assert abs(np.mean(pulls)) < 0.7
    assert 0.7 < np.std(pulls) < 1.3


def test_the_request_must_be_known(tmp_path: Path) -> None:
    assert latency.one_way(summary("request-response", 64, [512])) == []
    assert not latency.write(tmp_path / "latency.csv", summary("stream", None, [64]))
    assert not (tmp_path / "latency.csv").exists()


def test_the_table(tmp_path: Path) -> None:
    assert latency.write(tmp_path / "latency.csv", summary("ping-pong", None, [64, 1500]))
    lines = (tmp_path / "latency.csv").read_text().splitlines()
    assert lines[0] == "length_bytes,latency_us,sigma_us,n"
    assert [line.split(",")[0] for line in lines[1:]] == ["64", "1500"]
