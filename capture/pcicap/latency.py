"""One-way latencies for Equation 2.1 from the round trips that framegen measured: ``latency.csv`` of a run folder."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_P10_TO_P90 = 2.5631
"""Distance of the 10 % and 90 % points of a normal distribution, in standard deviations."""
_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for a normal distribution."""


def one_way(summary: Mapping[str, Any]) -> list[tuple[int, float, float, int]]:
    """T(b) for every size of a test with round trips.

    Ping-pong: half the round trip. Request-response: the round trip less the request's way, which is half the round
    trip at the size of the request; without that size among the sizes nothing is known. Medians, because a single
    interruption of a host is worth a hundred frames in a mean.

    Parameters
    ----------
    summary : mapping
        framegen's ``summary.json``.

    Returns
    -------
    list of (int, float, float, int)
        User bytes, one-way latency and its standard error in µs, number of loops.
    """
    test = summary["test"]
    trips = {
        point["length_bytes"]: trip
        for point in summary["points"]
        for trip in point["round_trip_us"][:1]
        if trip["n"] > 1
    }
    if test["kind"] == "ping-pong":
        return [(size, trip["p50"] / 2, median_error(trip) / 2, trip["n"]) for size, trip in trips.items()]
    request = trips.get(test["request_bytes"])
    if test["kind"] != "request-response" or request is None:
        return []
    rows = []
    for size, trip in trips.items():
        own = median_error(trip)
        sigma = own / 2 if trip is request else math.hypot(own, median_error(request) / 2)
        rows.append((size, trip["p50"] - request["p50"] / 2, sigma, trip["n"]))
    return rows


def write(path: Path, summary: Mapping[str, Any]) -> bool:
    """Write the table; False, and no file, where the test tells no latency."""
    rows = one_way(summary)
    if not rows:
        return False
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("length_bytes", "latency_us", "sigma_us", "n"))
        writer.writerows((size, f"{latency:.4f}", f"{sigma:.4f}", n) for size, latency, sigma, n in rows)
    return True


def median_error(times: Mapping[str, Any]) -> float:
    """Standard error of the median of one of framegen's distributions, in its unit.

    That of a normal distribution with the same 10 % and 90 % points, so that a few interruptions do not count.
    """
    return float(_MEDIAN * (times["p90"] - times["p10"]) / _P10_TO_P90 / math.sqrt(times["n"]))
