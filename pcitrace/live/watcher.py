"""What is known of the bus until now: totals, the last seconds, the last transactions."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pcitrace.columns import Integers, floats, strings
from pcitrace.instrument.rules import catalogue, select, why_not
from pcitrace.live.frames import Bench
from pcitrace.live.recent import Recent
from pcitrace.live.wrong import Wrong
from pcitrace.streaming import Found, Stream

__all__ = ["COUNTED", "BusStatus", "Status", "Watcher"]

COUNTED = ("command_name", "termination", "end_us")
"""Columns of transactions that are looked at."""

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
    wrong: tuple[dict[str, Any], ...] = ()
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
            "wrong": list(self.wrong),
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
        self._wrong = Wrong(stream, {name: _rules_on(stream.lines[name]) for name in stream.buses})
        self._came = time.monotonic()
        self.gaps = self.skipped = 0
        self._latency_s = 0.0
        self.over = False

    def feed(self, samples: bytes, came: float) -> Found:
        """Decode the next samples, which came at that moment; return the rows that are complete, with broken rules."""
        found = self.stream.feed(samples)
        self.recent.add(samples)
        found = self._count(found)
        self._came = came
        self._latency_s = time.monotonic() - came
        return found

    def gap(self, samples: int | None) -> Found:
        """Samples are missing: so many, or None where nobody knows."""
        found = self.stream.gap(samples or 0)
        self.recent.gap(samples or 0)
        self.gaps += 1
        self.skipped += samples or 0
        return self._count(found)

    def finish(self) -> Found:
        """Nothing more comes."""
        self.over = True
        return self._count(self.stream.finish())

    def status(self, bench: Bench | None = None) -> Status:
        """Return what is known now, of the frames of a bench, too."""
        broken = self._wrong.violations
        buses = {name: self._of_bus(one) | {"violations": broken[name]} for name, one in self._buses.items()}
        lines, frames = self.recent.lines(), bench.look(self.recent, self.over) if bench is not None else None
        return Status(
            self.recent.time_us,
            self._latency_s,
            self.skipped,
            self.gaps,
            buses,
            lines,
            tuple(self._wrong.last()),
            frames,
            over=self.over,
        )

    def _count(self, found: Found) -> Found:
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
        return found._replace(problems=self._wrong.new(found.problems))

    def _count_transactions(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        coded = {name: strings(rows, name) for name in ("bus", "command_name", "termination")}
        ends_us = floats(rows, "end_us")
        (bus_code, buses), (command, commands), (termination, terminations) = coded.values()
        for code, name in enumerate(buses):
            mine = bus_code == code
            one, latest = self._buses[name], _counted(command[mine], commands)
            one.transactions.update(latest)
            one.terminations.update(_counted(termination[mine], terminations))
            if latest:
                one.latest.append((float(ends_us[mine].max()), latest))

    def _forget(self, one: BusStatus) -> None:
        since = self.recent.time_us - self._span_us
        while one.recent and one.recent[0][1] < since:
            one.recent.popleft()
        while one.latest and one.latest[0][0] < since:
            one.latest.popleft()

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


def _rules_on(lines: Sequence[str]) -> set[str]:
    """Return the rules that can be judged on a bus with these lines."""
    masks = select()
    return {id for id, rule in catalogue().items() if why_not(rule, lines, masks, "not known") is None}


def _counted(codes: Integers, names: Sequence[str]) -> Counter[str]:
    """Count names by their codes; -1 is unknown."""
    counts = np.bincount(codes + 1, minlength=len(names) + 1).tolist()
    return Counter({name: count for name, count in zip(["unknown", *names], counts, strict=True) if count})


def _share(count: float, of: float) -> float | None:
    return count / of if of > 0 else None
