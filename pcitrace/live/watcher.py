"""What is known of the bus until now: totals, the last seconds, the last transactions."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pcitrace.instrument.rules import catalogue, select, why_not
from pcitrace.live.frames import Bench
from pcitrace.live.recent import Recent
from pcitrace.streaming import Found, Stream

__all__ = ["BusStatus", "Status", "Watcher"]

CLASSES = ("total", "unknown", "idle", "address", "data", "stop", "abort", "wait", "busy", "bytes")
"""Columns of the clock accounting that are added up."""


@dataclass
class BusStatus:
    """One bus.

    Attributes
    ----------
    clocks : Counter
        Clocks by class and bytes, since the start.
    recent : deque
        The same of each window of the last seconds: start, end (us), counts.
    transactions, terminations, problems : Counter
        By command, by the way they ended, by kind; since the start.
    latest : deque
        Time and counts by command of the transactions of the last seconds.
    """

    clocks: Counter[str] = field(default_factory=Counter)
    recent: deque[tuple[float, float, Counter[str]]] = field(default_factory=deque)
    transactions: Counter[str] = field(default_factory=Counter)
    terminations: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    latest: deque[tuple[float, Counter[str]]] = field(default_factory=deque)


@dataclass(frozen=True)
class Status:
    """What is known now; ``as_dict`` is a line of ``pcitrace watch --json``."""

    time_us: float
    latency_s: float
    skipped_samples: int
    gaps: int
    buses: dict[str, dict[str, Any]]
    last: tuple[str, ...]
    frames: dict[str, Any] | None = None
    over: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "time_us": self.time_us,
            "latency_s": round(self.latency_s, 4),
            "skipped_samples": self.skipped_samples,
            "gaps": self.gaps,
            "buses": self.buses,
            "last": list(self.last),
            "frames": self.frames,
            "end": self.over,
        }


class Watcher:
    """Decodes samples as they come and keeps count.

    Parameters
    ----------
    stream : Stream
        With windows of the clock accounting, so that the last seconds are known.
    recent : Recent
        Keeps the last samples.
    seconds : float
        How long "the last seconds" are, in time of the bus.
    """

    def __init__(self, stream: Stream, recent: Recent, seconds: float = 5.0) -> None:
        self.stream, self.recent, self._span_us = stream, recent, seconds * 1e6
        self._buses = {name: BusStatus() for name in stream.buses}
        self._came = time.monotonic()
        self.gaps = self.skipped = 0
        self._latency_s = 0.0
        self.over = False

    def feed(self, samples: bytes, came: float) -> Found:
        """Decode the next samples, which came at that moment; return the rows that are complete."""
        found = self.stream.feed(samples)
        self.recent.add(samples)
        self._count(found)
        self._came = came
        self._latency_s = time.monotonic() - came
        return found

    def gap(self, samples: int | None) -> Found:
        """Samples are missing: so many, or None where nobody knows."""
        found = self.stream.gap(samples or 0)
        self.recent.gap(samples or 0)
        self.gaps += 1
        self.skipped += samples or 0
        self._count(found)
        return found

    def finish(self) -> Found:
        """Nothing more comes."""
        found = self.stream.finish()
        self._count(found)
        self.over = True
        return found

    def status(self, bench: Bench | None = None) -> Status:
        """Return what is known now, of the frames of a bench, too."""
        broken = self._broken()
        buses = {name: self._of_bus(one) | {"violations": broken.get(name, {})} for name, one in self._buses.items()}
        lines, frames = self.recent.lines(), bench.look(self.recent, self.over) if bench is not None else None
        return Status(
            self.recent.time_us, self._latency_s, self.skipped, self.gaps, buses, lines, frames, over=self.over
        )

    def _count(self, found: Found) -> None:
        self._count_transactions(found.transactions)
        for problem in found.problems.select(["bus", "kind", "count"]).to_pylist():
            self._buses[problem["bus"]].problems[problem["kind"]] += problem["count"]
        for window in found.clocks.to_pylist():
            counts = Counter({key: window[key] or 0 for key in CLASSES})
            one = self._buses[window["bus"]]
            one.clocks.update(counts)
            one.recent.append((window["start_us"], window["end_us"], counts))
        for one in self._buses.values():
            self._forget(one)
        self.recent.ended(found)

    def _count_transactions(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        kinds = ["bus", "command_name", "termination"]
        counted = rows.select([*kinds, "end_us"]).group_by(kinds).aggregate([("end_us", "max"), ([], "count_all")])
        latest: dict[str, tuple[float, Counter[str]]] = {}
        for row in counted.to_pylist():
            one, count = self._buses[row["bus"]], row["count_all"]
            command = row["command_name"] or "unknown"
            one.transactions[command] += count
            one.terminations[row["termination"] or "unknown"] += count
            end_us, commands = latest.get(row["bus"], (row["end_us_max"], Counter()))
            commands[command] += count
            latest[row["bus"]] = max(end_us, row["end_us_max"]), commands
        for bus, last in latest.items():
            self._buses[bus].latest.append(last)

    def _forget(self, one: BusStatus) -> None:
        since = self.recent.time_us - self._span_us
        while one.recent and one.recent[0][1] < since:
            one.recent.popleft()
        while one.latest and one.latest[0][0] < since:
            one.latest.popleft()

    def _broken(self) -> dict[str, dict[str, int]]:
        """Return how often each rule was broken; not that of CLK's edges, whose limits are not known yet."""
        found, masks = {}, select()
        for bus, (_, told) in zip(self.stream.buses, self.stream.judged(), strict=False):
            lines = self.stream.lines[bus]
            judged = {id for id, rule in catalogue().items() if why_not(rule, lines, masks, "not known") is None}
            found[bus] = {id: count for id, count in told["counts"].items() if count and id in judged}
        return found

    def _of_bus(self, one: BusStatus) -> dict[str, Any]:
        recent: Counter[str] = Counter()
        for _, _, counts in one.recent:
            recent.update(counts)
        span_us = one.recent[-1][1] - one.recent[0][0] if one.recent else 0.0
        latest: Counter[str] = Counter()
        for _, commands in one.latest:
            latest.update(commands)
        seconds = min(self._span_us, self.recent.time_us) * 1e-6
        return {
            "occupancy": _share(recent["busy"], recent["total"] - recent["unknown"]),
            "data_occupancy": _share(recent["data"], recent["total"] - recent["unknown"]),
            "throughput_mb_s": _share(recent["bytes"], span_us),
            "transactions_per_s": {key: _share(count, seconds) for key, count in sorted(latest.items())},
            "total": {
                "transactions": sum(one.transactions.values()),
                "commands": dict(sorted(one.transactions.items())),
                "terminations": dict(sorted(one.terminations.items())),
                "clocks": {key: one.clocks[key] for key in CLASSES},
                "occupancy": _share(one.clocks["busy"], one.clocks["total"] - one.clocks["unknown"]),
            },
            "problems": dict(sorted(one.problems.items())),
        }


def _share(count: float, of: float) -> float | None:
    return count / of if of > 0 else None
