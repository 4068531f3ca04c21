"""The scheduler of the simulated bench: processes are generators, time is in ns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count
from typing import Any

Process = Generator[Any, Any, Any]


class Signal:
    """Something that happens once. A process that yields it goes on when it fires, with its value."""

    __slots__ = ("fired", "value", "waiting")

    def __init__(self) -> None:
        self.fired = False
        self.value: Any = None
        self.waiting: list[tuple[Scheduler, Process]] = []

    def fire(self, value: Any = None) -> None:
        """Let everything that waits go on."""
        self.fired, self.value = True, value
        waiting, self.waiting = self.waiting, []
        for scheduler, process in waiting:
            scheduler.resume(process, value)


class Scheduler:
    """Runs processes in order of time.

    A process yields a number (wait so many ns) or a `Signal` (wait until it fires). Events of one time run in the
    order in which they were made, so a run depends on its seed alone.
    """

    def __init__(self) -> None:
        self.now_ns = 0.0
        self._heap: list[tuple[float, int, Callable[..., None] | Process, Any]] = []
        self._order = count()

    def at(self, time_ns: float, call: Callable[[Any], None], value: Any = None) -> None:
        """Call `call(value)` at a time."""
        heappush(self._heap, (max(time_ns, self.now_ns), next(self._order), call, value))

    def spawn(self, process: Process) -> None:
        """Start a process now."""
        heappush(self._heap, (self.now_ns, next(self._order), process, None))

    def resume(self, process: Process, value: Any) -> None:
        """Let a process go on until it waits again."""
        try:
            wanted = process.send(value)
        except StopIteration:
            return
        if not isinstance(wanted, Signal):
            heappush(self._heap, (self.now_ns + wanted, next(self._order), process, None))
        elif wanted.fired:
            heappush(self._heap, (self.now_ns, next(self._order), process, wanted.value))
        else:
            wanted.waiting.append((self, process))

    def run(self, until_ns: float) -> bool:
        """Run all events up to a time; False when nothing is left to happen."""
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            self.now_ns, _, what, value = heappop(heap)
            if callable(what):
                what(value)
            else:
                self.resume(what, value)
        if heap:
            self.now_ns = max(self.now_ns, until_ns)
        return bool(heap)


class Lock:
    """One holder at a time, first come first served: the CPU of a host."""

    __slots__ = ("_held", "_queue")

    def __init__(self) -> None:
        self._held = False
        self._queue: deque[Signal] = deque()

    def acquire(self) -> Process:
        """Use as ``yield from lock.acquire()``."""
        if self._held:
            turn = Signal()
            self._queue.append(turn)
            yield turn
        self._held = True

    def release(self) -> None:
        """Hand over to the next in the queue."""
        if self._queue:
            self._queue.popleft().fire()
        else:
            self._held = False
