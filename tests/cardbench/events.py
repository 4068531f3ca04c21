"""A clock for generators: a process yields nanoseconds to sleep, or a Signal to be woken by."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from typing import Any

Process = Generator[Any, Any, Any]


class Signal:
    """Wakes every process that waits for it; who waits for a condition looks again after it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[Process] = []

    def fire(self, value: Any = None) -> None:
        waiting, self.waiting = self.waiting, []
        for process in waiting:
            self.world.at(self.world.now, self.world.step, process, value)


class World:
    """Events in order of time; `now` in ns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.end = float("inf")
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(time, self.now), self._count, call, arguments))

    def start(self, process: Process) -> None:
        self.at(self.now, self.step, process, None)

    def step(self, process: Process, value: Any) -> None:
        try:
            wait = process.send(value)
        except StopIteration:
            return
        if isinstance(wait, Signal):
            wait.waiting.append(process)
        else:
            self.at(self.now + wait, self.step, process, None)

    def run(self) -> None:
        while self._events and self._events[0][0] <= self.end:
            self.now, _, call, arguments = heapq.heappop(self._events)
            call(*arguments)
