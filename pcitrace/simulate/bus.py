"""A simulated PCI bus: arbiter, memory target, the NIC's registers as a target, and what was on its lines."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, replace
from math import ceil, log
from operator import itemgetter
from random import Random
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pcitrace.simulate.config import BusParameters, NicParameters
from pcitrace.simulate.events import Scheduler, Signal
from pcitrace.simulate.pci import CLASS_BITS, CODE_BITS, READS, Shape, Wait, shape

ARBITRATION_CLKS = 3  # REQ# to the address phase where GNT# has to move
BACK_TO_BACK_CLKS = 3  # from the last clock of a transaction to the address phase of one that was waiting for it


@dataclass(slots=True)
class Request:
    """What an initiator asks of the bus: one transaction, of as many data phases as the target will take."""

    agent: str  # host | nic
    command: int
    address: int
    size_bytes: int
    purpose: str
    frame: int | None = None
    target: str = "memory"  # memory | registers | configuration
    data: bytes | None = None  # what moves, where AD is captured
    retried: bool = False  # the target of a delayed read is not ready yet


@dataclass(slots=True)
class Transaction:
    """One transaction as it was on the bus."""

    number: int
    request: Request
    start_clk: int
    shape: Shape
    termination: str
    moved_bytes: int  # enabled ones
    wide: bool  # 64-bit data phases
    phase_bytes: int
    start_ns: float
    end_ns: float
    first_data_ns: float | None
    last_data_ns: float | None
    directly_behind: bool  # since the same agent did something for another frame the bus had no rest


@dataclass(slots=True)
class _Active:
    """The transaction under way, with its planned course."""

    request: Request
    done: Signal
    start_clk: int
    plan: Shape
    termination: str
    phase_bytes: int
    waits: tuple[Wait, ...] = ()


class Runs(NamedTuple):
    """Equal clocks in a row: the first clock of each run, the lines asserted in it, its class."""

    clks: npt.NDArray[np.int64]
    codes: npt.NDArray[np.uint8]
    classes: npt.NDArray[np.uint8]

    def then(self, later: Runs) -> Runs:
        """Append later runs."""
        return Runs(
            np.concatenate([self.clks, later.clks]),
            np.concatenate([self.codes, later.codes]),
            np.concatenate([self.classes, later.classes]),
        )

    def where(self, wanted: npt.NDArray[np.bool_]) -> Runs:
        """Return some of the runs."""
        return Runs(self.clks[wanted], self.codes[wanted], self.classes[wanted])


class Steps(NamedTuple):
    """From a clock on, a value."""

    clks: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]


class LineHistory(NamedTuple):
    """What the lines of a bus did; final, and given out once."""

    runs: Runs
    grants: Steps  # 1: the NIC's GNT# is asserted
    requests: Steps  # +1: the NIC wants the bus once more; -1: it has it
    transactions: list[Transaction]  # where C/BE# is captured


class BusLog(Protocol):
    """Where a bus reports its transactions."""

    def transaction(self, bus: str, done: Transaction) -> None:
        """Take a finished transaction."""


class Bus:
    """One bus. Initiators call `ask` and wait for the signal it returns."""

    def __init__(
        self,
        name: str,
        parameters: BusParameters,
        nic: NicParameters,
        scheduler: Scheduler,
        random: Random,
        log: BusLog,
        *,
        command_captured: bool,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.period_ns = 1e3 / parameters.clock_mhz
        self.nic = nic
        self.width_bytes = {"host": 4, "nic": nic.bus_width // 8}
        self._scheduler = scheduler
        self._random = random
        self._log = log
        self._command_captured = command_captured
        self._queue: deque[tuple[int, Request, Signal]] = deque()
        self._active: _Active | None = None
        self._generation = 0  # a transaction cut short by the latency timer voids its planned end
        self._granted: str | None = "host"
        self._free_clk = 2
        self._count = 0
        self._last_clk = 0  # of the last transaction
        self._without_rest: set[tuple[str, int | None]] = set()  # agents and frames since the bus last had a rest
        # What changed on the lines, and at which clock, until `take_history`.
        self._runs = array("q")  # packed: first clock, lines, class
        self._grants: list[tuple[int, int]] = []
        self._requests: list[tuple[int, int]] = []
        self._transactions: list[Transaction] = []

    def edge_ns(self, clk: int) -> float:
        """Time of a rise of CLK."""
        return self.parameters.phase_ns + clk * self.period_ns

    def next_clk(self, time_ns: float) -> int:
        """Return the first rise of CLK at or after a time."""
        return max(0, ceil((time_ns - self.parameters.phase_ns) / self.period_ns - 1e-9))

    def settled_clk(self, now_ns: float) -> int:
        """Clocks before this one can no longer change, now that nothing happens before `now_ns`."""
        clk = self.next_clk(now_ns)
        return max(0, (min(clk, self._active.start_clk) if self._active else clk) - ARBITRATION_CLKS - 1)

    def ask(self, request: Request) -> Signal:
        """Ask for the bus; the signal fires with the `Transaction` in its last clock."""
        done = Signal()
        clk = self.next_clk(self._scheduler.now_ns)
        self._queue.append((clk, request, done))
        if request.agent == "nic":
            self._requests.append((clk, 1))
        if self._active is None:
            self._decide()
        elif self.parameters.latency_timer_clks is not None and self._active.request.agent != request.agent:
            self._preempt(clk)
        return done

    def take_history(self, before_clk: int) -> LineHistory:
        """Hand out what happened before a clock that is settled, and forget it."""
        count = bisect_left(self._runs, before_clk << CLASS_BITS + CODE_BITS)
        runs = np.array(self._runs[:count], np.int64)
        del self._runs[:count]
        grants = _take(self._grants, before_clk)
        requests = _take(self._requests, before_clk)
        done = [item for item in self._transactions if item.start_clk < before_clk]
        del self._transactions[: len(done)]
        return LineHistory(
            Runs(
                runs >> CLASS_BITS + CODE_BITS,
                (runs >> CLASS_BITS & (1 << CODE_BITS) - 1).astype(np.uint8),
                (runs & (1 << CLASS_BITS) - 1).astype(np.uint8),
            ),
            Steps(grants[:, 0], grants[:, 1]),
            Steps(requests[:, 0], requests[:, 1]),
            done,
        )

    def _grant(self, clk: int, agent: str | None) -> None:
        """GNT# as the initiators sample it from a clock on."""
        self._granted = agent
        self._grants.append((clk, int(agent == "nic")))

    def _decide(self) -> None:
        """Give the idle bus to the next in turn: the other agent first, where both ask."""
        if not self._queue:
            return
        last = self._granted
        turn = next((n for n, item in enumerate(self._queue) if item[1].agent != last), 0)
        clk, request, done = self._queue[turn]
        del self._queue[turn]
        if self._granted == request.agent:
            start = max(clk + 1, self._free_clk)
        else:
            start = max(clk + ARBITRATION_CLKS, self._free_clk)
            # A clock with nobody granted lies between two grants.
            self._grant(start - 2, None)
            self._grant(start - 1, request.agent)
        if request.agent == "nic":
            self._requests.append((start + 1, -1))
        plan = self._plan_memory if request.target == "memory" else self._plan_registers
        self._begin(plan(request, done, start))

    def _begin(self, active: _Active) -> None:
        self._active = active
        self._generation += 1
        self._scheduler.at(self.edge_ns(active.start_clk + active.plan.clocks - 1), self._finish, self._generation)

    def _plan_memory(self, request: Request, done: Signal, start_clk: int) -> _Active:
        """Draw what the memory and the initiator will do."""
        bus = self.parameters
        phase_bytes = self.width_bytes[request.agent]
        wanted = phases = ceil((request.address % phase_bytes + request.size_bytes) / phase_bytes)
        termination = "completion"
        if bus.retry_probability and self._random.random() < bus.retry_probability:
            phases, termination = 0, "retry"
        else:
            if bus.disconnect_boundary_bytes:
                room = bus.disconnect_boundary_bytes - request.address % bus.disconnect_boundary_bytes
                if ceil(room / phase_bytes) < phases:
                    phases, termination = ceil(room / phase_bytes), "disconnect_with_data"
            cut = self._geometric(bus.disconnect_probability)
            if cut < phases - 1:
                phases = cut + 1
                termination = "disconnect_with_data" if self._random.random() < 0.5 else "disconnect_without_data"
        waits = self._waits(phases)
        plan = self._memory_shape(request, phases, waits, termination, single=wanted == 1)
        return _Active(request, done, start_clk, plan, termination, phase_bytes, waits)

    def _memory_shape(
        self, request: Request, phases: int, waits: tuple[Wait, ...], termination: str, *, single: bool
    ) -> Shape:
        bus = self.parameters
        read = request.command in READS
        return shape(
            phases,
            read=read,
            devsel_clks=bus.memory_devsel_clks,
            target_first_clks=bus.memory_read_first_clks if read else bus.memory_write_first_clks,
            waits=waits,
            termination=termination,
            single=single,
            turnaround=self._command_captured,
        )

    def _plan_registers(self, request: Request, done: Signal, start_clk: int) -> _Active:
        """Registers and configuration space: one dword, which a delayed read retries until it has it."""
        nic = self.nic
        read = request.command in READS
        termination = "retry" if request.retried else "completion"
        plan = shape(
            0 if request.retried else 1,
            read=read,
            devsel_clks=nic.csr_devsel_clks,
            target_first_clks=nic.csr_read_first_clks if read and not request.retried else nic.csr_write_first_clks,
            termination=termination,
            single=True,
            turnaround=self._command_captured,
        )
        return _Active(request, done, start_clk, plan, termination, 4)

    def _geometric(self, probability: float) -> int:
        """Draw how many phases pass before something of this probability happens."""
        if not probability:
            return 1 << 30
        return int(log(1.0 - self._random.random()) / log(1.0 - probability))

    def _waits(self, phases: int) -> tuple[Wait, ...]:
        bus = self.parameters
        if phases < 2 or not (bus.wait_probability or bus.initiator_wait_probability):
            return ()
        waits: dict[int, list[int]] = {}
        for who, probability in enumerate((bus.initiator_wait_probability, bus.wait_probability)):
            phase = 1 + self._geometric(probability)
            while phase < phases:
                waits.setdefault(phase, [0, 0])[who] = self._random.randint(*bus.wait_clks)
                phase += 1 + self._geometric(probability)
        return tuple(Wait(phase, *waits[phase]) for phase in sorted(waits))

    def _preempt(self, clk: int) -> None:
        """Take GNT# away; when the latency timer has run out too, the initiator ends after the next phase."""
        active = self._active
        timer = self.parameters.latency_timer_clks
        assert active is not None
        assert timer is not None
        if self._granted == active.request.agent:
            self._grant(max(clk + 1, active.start_clk), None)
        cut = max(clk + 1, active.start_clk + timer) - active.start_clk
        # The phase under way keeps FRAME#; the one after it is the last.
        phases = sum(1 for end in active.plan.phase_ends if end <= cut) + 2
        if active.request.target != "memory" or phases >= len(active.plan.phase_ends):
            return
        waits = tuple(wait for wait in active.waits if wait.phase < phases)
        plan = self._memory_shape(active.request, phases, waits, "completion", single=False)
        self._begin(replace(active, plan=plan, waits=waits, termination="completion"))

    def _finish(self, generation: int) -> None:
        active = self._active
        if generation != self._generation or active is None:
            return
        request, start, plan, phase_bytes = active.request, active.start_clk, active.plan, active.phase_bytes
        end = start + plan.clocks
        base = start << CLASS_BITS + CODE_BITS
        self._runs.extend([base + run for run in plan.packed_runs])
        self._runs.append(end << CLASS_BITS + CODE_BITS)
        ends = plan.phase_ends
        first = request.address % phase_bytes
        transaction = Transaction(
            number=self._count,
            request=request,
            start_clk=start,
            shape=plan,
            termination=active.termination,
            moved_bytes=min(request.size_bytes, len(ends) * phase_bytes - first) if ends else 0,
            wide=phase_bytes == 8,
            phase_bytes=phase_bytes,
            start_ns=self.edge_ns(start),
            end_ns=self.edge_ns(end - 1),
            first_data_ns=self.edge_ns(start + ends[0]) if ends else None,
            last_data_ns=self.edge_ns(start + ends[-1]) if ends else None,
            directly_behind=self._behind(request, start),
        )
        self._last_clk = end - 1
        self._without_rest.add((request.agent, request.frame))
        self._count += 1
        self._active = None
        self._free_clk = end + 1  # one idle clock between transactions
        if self._command_captured:  # what AD and C/BE# carry is worked out from these
            self._transactions.append(transaction)
        self._log.transaction(self.name, transaction)
        if self._queue:
            self._decide()
        elif self.parameters.park != "last" and self._granted == "nic":
            self._grant(end, None)
            if self.parameters.park == "host":
                self._grant(end + 1, "host")
        active.done.fire(transaction)

    def _behind(self, request: Request, start_clk: int) -> bool:
        if start_clk - self._last_clk > BACK_TO_BACK_CLKS:
            self._without_rest.clear()
        return any(agent == request.agent and frame != request.frame for agent, frame in self._without_rest)


def _take(rows: list[tuple[int, int]], before_clk: int) -> npt.NDArray[np.int64]:
    """Cut the rows before a clock off a list, in order of their clocks."""
    rows.sort(key=itemgetter(0))
    count = bisect_left(rows, before_clk, key=itemgetter(0))
    taken = np.array(rows[:count], np.int64)
    del rows[:count]
    return taken if count else np.empty((0, 2), np.int64)
