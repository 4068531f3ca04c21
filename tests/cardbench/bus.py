"""One PCI bus: who is next, and the control lines of each transaction clock by clock.

PCI Local Bus Specification 2.2, chapter 3. Only transactions cost work; an idle clock costs nothing.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .events import Signal, World

Ints = npt.NDArray[np.int64]

FRAME, IRDY, TRDY, DEVSEL, STOP = 1, 2, 4, 8, 16
"""Bits of the lines of a clock; a set bit is an asserted line."""

COMMANDS = {"IOR": 2, "IOW": 3, "MR": 6, "MW": 7, "CFGR": 10, "CFGW": 11, "MRM": 12, "MRL": 14, "MWI": 15}


@dataclass(slots=True)
class Plan:
    """How the two sides behave: waits of each data phase that moves data, and how the target stops.

    `stop` is None, "TS" (with the last data) or "S" (in a phase of its own, `stop_wait` clocks after its start).
    """

    devsel: int
    initiator: Ints
    target: Ints
    stop: str | None = None
    stop_wait: int = 0


@dataclass(slots=True, eq=False)
class Transaction:
    """What an initiator wants, and after its grant what became of it."""

    owner: str
    command: str
    address: int
    words: npt.NDArray[np.uint64]
    enables: npt.NDArray[np.uint8]
    answer: Callable[[Transaction, float], Plan]
    kind: str = ""
    wide: bool = False
    latency_timer: int = 0
    urgent: bool = False
    clock: int = -1
    plan: Plan | None = None
    lines: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    data_clocks: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def write(self) -> bool:
        return self.command in ("MW", "MWI", "IOW", "CFGW")

    @property
    def moved(self) -> int:
        return len(self.data_clocks)

    @property
    def last_clock(self) -> int:
        return self.clock + len(self.lines) - 1

    @property
    def retried(self) -> bool:
        return self.plan is not None and self.plan.stop == "S" and not self.moved


def shape(plan: Plan, ends: bool) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Lines of each clock, and clocks in which data moves; `ends`: the plan's last phase is the initiator's last."""
    if len(plan.initiator) > 2:
        return _shape(plan, ends)
    return _short(plan.devsel, tuple(plan.initiator), tuple(plan.target), (plan.stop, plan.stop_wait, ends))


@functools.cache
def _short(
    devsel: int, initiator: tuple[int, ...], target: tuple[int, ...], end: tuple[str | None, int, bool]
) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Most transactions are short, and alike."""
    stop, stop_wait, ends = end
    return _shape(Plan(devsel, np.array(initiator, np.int64), np.array(target, np.int64), stop, stop_wait), ends)


def _shape(plan: Plan, ends: bool) -> tuple[npt.NDArray[np.uint8], Ints]:
    moved = len(plan.initiator)
    last = 1 + np.cumsum(1 + np.maximum(plan.initiator, plan.target)) - 1
    first = np.concatenate([[1], last + 1])
    end = int(last[-1]) if moved else 0
    lines = np.zeros(end + 3 + plan.stop_wait, np.uint8)
    for bit, waits in ((IRDY, plan.initiator), (TRDY, plan.target)):
        turns = np.bincount(first[:-1] + waits, minlength=len(lines)) - np.bincount(last + 1, minlength=len(lines))
        lines[np.cumsum(turns) > 0] |= bit
    frame_ends = len(lines)
    if ends and plan.stop != "S":
        frame_ends = int(first[moved - 1] + plan.initiator[-1])
    if plan.stop == "TS":
        lines[first[moved - 1] + plan.target[-1] : end + 1] |= STOP
        if not ends and plan.initiator[-1] > plan.target[-1]:  # STOP# is seen before IRDY# is asserted
            frame_ends = int(first[moved - 1] + plan.initiator[-1])
        elif not ends:
            end += 1
            frame_ends = end
            lines[end] |= IRDY | STOP
    elif plan.stop == "S":
        start, end = end + 1, end + 1 + plan.stop_wait
        lines[start : end + 1] |= IRDY
        lines[end] |= STOP
        frame_ends = start
        if not ends:
            end += 1
            frame_ends = end
            lines[end] |= IRDY | STOP
    lines[:frame_ends] |= FRAME
    lines[plan.devsel : end + 1] |= DEVSEL
    return lines[: end + 1], last


class Bus:
    """Arbiter and clock of one bus; `done` holds its transactions in order."""

    def __init__(self, world: World, period: float, phase: float, wait: int, rng: random.Random) -> None:
        self.world, self.period, self.phase, self.wait, self.rng = world, period, phase, wait, rng
        self.done: list[Transaction] = []
        self._queue: list[tuple[Transaction, Signal]] = []
        self._current: tuple[Transaction, Signal] | None = None
        self._free = 4
        self._version = 0
        self._due = False

    def time(self, clock: int | npt.NDArray[np.integer[Any]]) -> Any:
        """Rising edge of a clock, ns."""
        return self.phase + clock * self.period

    def clocks(self, count: int) -> float:
        return count * self.period

    def request(self, txn: Transaction) -> Signal:
        """Ask for the bus; the signal fires with the transaction when it is over."""
        over = Signal(self.world)
        self._queue.append((txn, over))
        if self._current is not None:
            self._cut(self._current[0])
        else:
            self._arbitrate()
        return over

    def _arbitrate(self) -> None:
        if self._current is None and self._queue and not self._due:
            self._due = True
            now = math.ceil((self.world.now - self.phase) / self.period + 1e-6)
            clock = max(self._free, now + 1) + self.rng.randint(0, self.wait)
            self.world.at(self.time(clock), self._grant, clock)

    def _grant(self, clock: int) -> None:
        self._due = False
        before = self.done[-1].owner if self.done else ""
        order = sorted(
            range(len(self._queue)), key=lambda i: (not self._queue[i][0].urgent, self._queue[i][0].owner == before)
        )
        txn, over = self._queue.pop(order[0])
        txn.clock = clock
        txn.plan = txn.answer(txn, self.world.now)
        wanted = len(txn.words)
        txn.lines, txn.data_clocks = shape(txn.plan, len(txn.plan.initiator) + (txn.plan.stop == "S") >= wanted)
        self._current = txn, over
        self.done.append(txn)
        self._schedule()
        if any(other.owner != txn.owner for other, _ in self._queue):
            self._cut(txn)

    def _schedule(self) -> None:
        assert self._current is not None
        self._version += 1
        self.world.at(self.time(self._current[0].last_clock), self._finish, self._version)

    def _cut(self, txn: Transaction) -> None:
        """Another initiator wants the bus: when its latency timer has run out, the owner ends with the next phase."""
        plan = txn.plan
        if not txn.latency_timer or plan is None or all(other.owner == txn.owner for other, _ in self._queue):
            return
        now = math.ceil((self.world.now - self.phase) / self.period) - txn.clock
        keep = int(np.searchsorted(txn.data_clocks, max(txn.latency_timer, now + 2), "left")) + 2
        if keep >= txn.moved:
            return
        txn.plan = Plan(plan.devsel, plan.initiator[:keep], plan.target[:keep])
        txn.lines, txn.data_clocks = shape(txn.plan, True)
        self._schedule()

    def _finish(self, version: int) -> None:
        if version != self._version or self._current is None:
            return
        (txn, over), self._current = self._current, None
        self._free = txn.last_clock + 2
        over.fire(txn)
        self.world.at(self.world.now, self._arbitrate)


class Memory:
    """Host memory behind its bridge: waits, retries and disconnects as drawn."""

    def __init__(self, drawn: dict[str, Any], rng: random.Random, bits: np.random.Generator) -> None:
        self.drawn, self.rng, self.bits = drawn, rng, bits
        self._retries = 0
        self._calm = 0

    def answer(self, txn: Transaction, now: float) -> Plan:
        drawn, rng = self.drawn, self.rng
        devsel = drawn["devsel"]
        least = max(devsel - 1, 0 if txn.write else 1)
        none = np.zeros(0, np.int64)
        if self._retries < 3 and rng.random() < drawn["retry"]:
            self._retries += 1
            return Plan(devsel, none, none, "S", max(least, rng.randint(0, 4)))
        self._retries = 0
        moved, stop = self._stop(txn)
        target = np.where(self.bits.random(max(moved, 1)) < drawn["wait"], self.bits.integers(1, 4, max(moved, 1)), 0)
        target += drawn["each"]
        initiator = np.zeros(len(target), np.int64)
        if drawn["initiator_wait"] and moved > 1:
            initiator[1:] = np.where(
                self.bits.random(moved - 1) < drawn["initiator_wait"], self.bits.integers(1, 3, moved - 1), 0
            )
        target[0] = max(least, rng.randint(*drawn["write_first" if txn.write else "read_first"]))
        return Plan(devsel, initiator[:moved], target[:moved], stop, rng.randint(0, 2) if moved else int(target[0]))

    def _stop(self, txn: Transaction) -> tuple[int, str | None]:
        """Words that move, and how the target stops the rest; a burst that was cut is not cut at once again."""
        size, moved, stop = 8 if txn.wide else 4, len(txn.words), None
        boundary = self.drawn["boundary"]
        if boundary:
            room = (boundary - txn.address % boundary) // size
            if 0 < room < moved:
                moved, stop = room, self.drawn["stop"]
        self._calm = max(0, self._calm - 1)
        if self.drawn["disconnect"] and not self._calm:
            at = int(self.bits.geometric(self.drawn["disconnect"]))
            if at < moved:
                moved, stop = at, self.rng.choice(("TS", "S"))
                self._calm = self.rng.randint(2, 4)
        return moved, stop


class Registers:
    """The card, or another device, as a target: single words, reads delayed by retries if drawn so."""

    def __init__(self, drawn: dict[str, Any], rng: random.Random) -> None:
        self.drawn, self.rng = drawn, rng
        self._since: dict[int, float] = {}

    def answer(self, txn: Transaction, now: float) -> Plan:
        drawn, rng = self.drawn, self.rng
        devsel, none = drawn["devsel"], np.zeros(0, np.int64)
        least = max(devsel - 1, 0 if txn.write else 1)
        delayed = not txn.write and now - self._since.setdefault(txn.address, now) < drawn["delay"]
        if delayed or rng.random() < drawn["retry"]:
            return Plan(devsel, none, none, "S", least)
        self._since.pop(txn.address, None)
        wait = max(least, drawn["write_wait"] if txn.write else rng.randint(*drawn["read_wait"]))
        target = np.zeros(len(txn.words), np.int64)
        target[0] = wait
        return Plan(devsel, np.zeros(len(target), np.int64), target, drawn["act"] if len(target) == 1 else None)


def access_row(pc: str, bus: Bus, txn: Transaction, attempts: list[float]) -> dict[str, Any]:
    """What truth says of one access of a register, by its last attempt; which register it was is added."""
    return {
        "type": "csr",
        "pc": pc,
        "first_attempt_ns": attempts[0],
        "last_attempt_ns": attempts[-1],
        "data_phase_ns": bus.time(txn.clock + int(txn.data_clocks[0])),
        "cmd": txn.command,
        "rw": txn.command[-1],
        "retries": len(attempts) - 1,
    }
