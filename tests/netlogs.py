"""Run folders of format 2 made from constants that are known: written for the tests of the analysis, sharing nothing
with it.

Times are those of an ideal network, ``a + b x`` and a step a cell, with jitter; every frame's fate is decided here, so
what the analysis must find is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray

LOG = np.dtype(
    [
        ("sequence", "<u4"),
        ("stream", "<u2"),
        ("node", "<u2"),
        ("length_bytes", "<u4"),
        ("flags", "<u4"),
        ("send_ns", "<i8"),
        ("receive_ns", "<i8"),
        ("lateness_ns", "<i4"),
    ]
)
EXCHANGE = np.dtype(
    [(f"{name}_ns", "<i8") for name in ("request_sent", "request_received", "reply_sent", "reply_received")]
)
UNKNOWN_NS, UNKNOWN_LATENESS = np.iinfo(np.int64).min, np.iinfo(np.int32).min
START_NS = 10**12


@dataclass
class Folder:
    """A run folder under construction."""

    path: Path
    test: dict[str, Any]
    hosts: int = 2
    way: Mapping[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    logs: list[dict[str, Any]] = field(default_factory=list)
    exchanges: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def log(self, point: int, node: int, kind: str, records: NDArray[Any]) -> None:
        name = f"p{point:03}-node{node}-{kind}.npy"
        np.save(self.path / name, records)
        self.logs.append({"file": name, "host": f"node{node}", "kind": kind, "point": point})

    def compare(self, node: int, records: NDArray[Any]) -> None:
        name = f"node{node}-clock.npy"
        np.save(self.path / name, records)
        self.exchanges.append({"file": name, "host": f"node{node}", "reference": "node0"})

    def write(self) -> Path:
        run: dict[str, Any] = {"format": 2, "origin": "imported", "test": self.test, **self.extra}
        run["hosts"] = {f"node{node}": {"node": node} for node in range(self.hosts)}
        if self.way is not None:
            run["path"] = dict(self.way)
        run["frame_logs"] = self.logs
        if self.exchanges:
            run["clock_exchanges"] = self.exchanges
        (self.path / "run.toml").write_text(tomli_w.dumps(run))
        return self.path


def records(count: int, length: int, *, stream: int = 1, node: int = 0) -> NDArray[Any]:
    """Records of frames that were sent; when and when they came is for the caller."""
    found = np.zeros(count, LOG)
    found["sequence"], found["stream"], found["node"], found["length_bytes"] = np.arange(count), stream, node, length
    found["receive_ns"], found["lateness_ns"] = UNKNOWN_NS, UNKNOWN_LATENESS
    return found


def one_way_us(length: float, a: float, b: float, cell: int = 0, d: float = 0.0) -> float:
    """Latency of a frame: a line, and a step a cell."""
    return a + b * length + (((length - 1) // cell) * d if cell else 0.0)


def loops(
    path: Path,
    kind: str,
    sizes: Sequence[int],
    latency_us: Callable[[float], float],
    *,
    count: int = 100,
    sigma_us: float = 0.1,
    request: int = 64,
    seed: int = 1,
    queueing: tuple[float, float] = (0.0, 0.0),
    step_ns: int = 1,
    lost: Sequence[int] = (),
    way: Mapping[str, Any] | None = None,
) -> Path:
    """A request-response or ping-pong test; a share of the loops waits in a queue, exponentially long."""
    random = np.random.default_rng(seed)
    test: dict[str, Any] = {"kind": kind, "sizes": [int(size) for size in sizes], "count": count}
    if kind == "request-response":
        test["request_bytes"] = request
    folder = Folder(path, test, way=way)
    for point, size in enumerate(sizes):
        asked = request if kind == "request-response" else size
        trip = latency_us(asked) + latency_us(size) + random.normal(0, sigma_us, count)
        waits = random.random(count) < queueing[0]
        trip += np.where(waits, random.exponential(queueing[1], count) if queueing[1] else 0.0, 0.0)
        out = records(count, asked)
        begin = START_NS + np.cumsum(np.rint(1000 * (trip + 20 + 10 * random.random(count)))).astype(np.int64)
        end = begin + np.rint(1000 * trip).astype(np.int64)
        out["send_ns"] = begin // step_ns * step_ns
        back = records(count, size, node=1)
        back["send_ns"], back["receive_ns"] = begin + 1000, end // step_ns * step_ns
        folder.log(point, 0, "sent", out)
        folder.log(point, 0, "received", np.delete(back, list(lost)))
    return folder.write()


@dataclass
class Stream:
    """One point of a stream."""

    length: int
    spacing_us: float
    count: int = 1000
    latency_us: float = 30.0
    sigma_us: float = 0.3
    lost: Sequence[int] = ()
    duplicated: Sequence[int] = ()
    late: Mapping[int, int] = field(default_factory=dict)
    arrivals: str = "regular"
    least_us: float = 0.0


def sent_and_received(one: Stream, random: np.random.Generator, *, stream: int = 1, node: int = 0) -> tuple[Any, Any]:
    """Logs of both ends of a stream: frames wait until the one before has gone ``least_us`` ago."""
    sent = records(one.count, one.length, stream=stream, node=node)
    gaps = (
        random.exponential(one.spacing_us, one.count)
        if one.arrivals == "poisson"
        else np.full(one.count, one.spacing_us)
    )
    begin = START_NS + np.rint(1000 * np.cumsum(gaps)).astype(np.int64)
    sent["send_ns"], sent["lateness_ns"] = begin, 0
    leaves = begin.astype(np.float64)
    if one.least_us:
        index = np.arange(one.count) * one.least_us * 1000
        leaves = np.maximum.accumulate(leaves - index) + index
    arrive = leaves + 1000 * (one.latency_us + random.normal(0, one.sigma_us, one.count))
    came = sent.copy()
    came["receive_ns"], came["lateness_ns"] = np.rint(arrive), UNKNOWN_LATENESS
    place = np.arange(one.count, dtype=np.float64)
    for number, places in one.late.items():
        place[number] += places + 0.5
    copies = came[list(one.duplicated)]
    copies["flags"] = 2
    order = np.argsort(np.concatenate([place, np.asarray(one.duplicated) + 0.25]), kind="stable")
    gone = np.isin(np.concatenate([np.arange(one.count), np.full(len(copies), -1)]), list(one.lost))
    came = np.concatenate([came, copies])[order][~gone[order]]
    came["receive_ns"] = np.maximum.accumulate(came["receive_ns"])
    return sent, came


def stream(
    path: Path, points: Sequence[Stream], *, seed: int = 1, clock: tuple[float, float] = (0.0, 0.0), **more: Any
) -> Path:
    """A stream from node 0 to node 1, whose clock is ahead by an offset (us) and drifts (ppm)."""
    random = np.random.default_rng(seed)
    first = points[0]
    test = {
        "kind": "stream",
        "sizes": [one.length for one in points],
        "spacing_us": float(first.spacing_us),
        "arrivals": first.arrivals,
    }
    folder = Folder(path, test, **more)
    for point, one in enumerate(points):
        sent, came = sent_and_received(one, random)
        came["receive_ns"] += ahead_ns(came["receive_ns"], clock)
        folder.log(point, 0, "sent", sent)
        folder.log(point, 1, "received", came)
    folder.compare(1, exchanges(random, 400, clock))
    return folder.write()


def ahead_ns(ours_ns: NDArray[Any], clock: tuple[float, float]) -> NDArray[Any]:
    """By how much the peer's clock is ahead at these times of ours."""
    return np.rint(clock[0] * 1000 + clock[1] * 1e-6 * (ours_ns - START_NS)).astype(np.int64)


def exchanges(
    random: np.random.Generator, count: int, clock: tuple[float, float], *, way_us: float = 2.0, seconds: float = 2.0
) -> NDArray[Any]:
    """Exchanges of frames between two clocks, both directions alike."""
    found = np.zeros(count, EXCHANGE)
    begin = START_NS + np.sort(random.integers(0, int(seconds * 1e9), count))
    there, back = (np.rint(1000 * (way_us + random.exponential(0.5, count))).astype(np.int64) for _ in range(2))
    found["request_sent_ns"] = begin
    found["request_received_ns"] = begin + there + ahead_ns(begin + there, clock)
    answer = begin + there + 1500
    found["reply_sent_ns"] = answer + ahead_ns(answer, clock)
    found["reply_received_ns"] = answer + back
    return found
