"""The latency sweep of a bench: requests and replies of many sizes, timed by the application and not captured."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import hypot, sqrt
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

from pcitrace.simulate.bench import Bench
from pcitrace.simulate.bus import Transaction
from pcitrace.simulate.config import AnalyserParameters, Simulation
from pcitrace.simulate.frame import Frame


class _Stopwatch:
    """Keeps the frames, ignores the buses."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def frame(self, frame: Frame) -> None:
        self.frames.append(frame)

    def transaction(self, bus: str, done: Transaction) -> None:
        pass

    def burst(self, bus: str, kind: str, read: bool, address: int, pieces: list[Transaction], frame: int) -> None:
        pass

    def csr(self, bus: str, register: str, value: int, attempts: list[Transaction], frame: int | None) -> None:
        pass


def write(simulation: Simulation, seed: int, path: Path) -> dict[str, Any]:
    """Measure one-way latencies as the published method does and write them.

    The round trip of a request of `request_bytes` and a reply of b bytes is T(request) + T(b). The request's part is
    half of the round trip in which both have the request's size.

    Returns
    -------
    dict
        What went in: loops, noise.
    """
    sweep, test = simulation.sweep, simulation.test
    sizes = tuple(dict.fromkeys((test.request_bytes, *sweep.sizes)))
    bench = Bench(
        replace(
            simulation,
            test=replace(test, kind="request-response", sizes=sizes, count=len(sizes) * sweep.loops, configure=False),
            link=replace(simulation.link, loss=0.0),
            analyser=AnalyserParameters(wires="control14"),
        ),
        seed,
        watch := _Stopwatch(),
    )
    while bench.run(bench.scheduler.now_ns / 1e3 + 1e5):
        # Nothing looks at the lines here.
        for bus in bench.buses:
            bus.take_history(bus.settled_clk(bench.scheduler.now_ns))
    noise = Random(f"{seed} latency")
    trips: dict[int, list[float]] = defaultdict(list)
    for frame in watch.frames:
        request = frame.reply_to
        if request is not None and frame.deliver_ns is not None:
            trip_us = (frame.deliver_ns - request.call_ns) / 1e3
            trips[frame.length_bytes].append(trip_us + noise.gauss(0.0, sweep.noise_us))

    def error_us(size: int) -> float:
        """The standard error of the mean round trip, as its trips show it; of a single one its noise is known."""
        several = trips[size]
        return (stdev(several) if len(several) > 1 else sweep.noise_us) / sqrt(len(several))

    request_us, request_sigma = fmean(trips[test.request_bytes]) / 2, error_us(test.request_bytes) / 2
    lines = ["length_bytes,latency_us,sigma_us,n"]
    for size in sorted(trips):
        count = len(trips[size])
        if size == test.request_bytes:
            latency_us, sigma_us = request_us, request_sigma
        else:
            latency_us = fmean(trips[size]) - request_us
            sigma_us = hypot(error_us(size), request_sigma)
        lines.append(f"{size},{latency_us:.6f},{sigma_us:.6f},{count}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"loops": sweep.loops, "noise_us": sweep.noise_us, "request_bytes": test.request_bytes}
