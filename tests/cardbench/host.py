"""One host: its processor and driver, and its card."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .bus import Bus, Registers, Transaction, access_row
from .card import Card
from .events import Process, Signal, World
from .frame import Frame

REGISTERS = (
    "INTERRUPT",
    "ACK",
    "MASK",
    "STATUS",
    "TX_BASE",
    "TX_SIZE",
    "RX_BASE",
    "RX_SIZE",
    "TX_TAIL",
    "RX_TAIL",
    "TX_ARG",
    "COMMAND",
)


class Host(Card):
    """Processor, driver and card."""

    arrived: Callable[[Host, Frame], None]

    def __init__(self, name: str, world: World, drawn: dict[str, Any], bus: Bus) -> None:
        super().__init__(name, world, drawn, bus)
        self.card = Registers(drawn["registers"], self.rng)
        own = random.Random(f"{drawn['family']} {drawn['seed']} registers")
        offsets = own.sample(range(0, 0x100, 4), len(REGISTERS))
        self.registers = dict(zip(REGISTERS, offsets, strict=True))
        self.csr_log: list[dict[str, Any]] = []
        self.tasks: deque[Process] = deque()
        self.work = Signal(world)
        self.handed = self.refill = 0
        self.interrupting = False

    def start(self) -> None:
        super().start()
        self.world.start(self.processor())
        if self.drawn["irq"] == "poll":
            self.world.start(self.poller())

    # The processor

    def processor(self) -> Process:
        if self.drawn["show_configuration"]:
            yield from self.configure()
        while True:
            while not self.tasks:
                yield self.work
            yield from self.tasks.popleft()

    def do(self, task: Process) -> None:
        self.tasks.append(task)
        self.work.fire()

    def access(self, register: str, write: bool, value: int = 0, address: int | None = None) -> Process:
        """One access of a register with all its attempts; gives their address phases in ns."""
        target = self.drawn["base"] + self.registers[register] if address is None else address
        command = ("CFGW" if write else "CFGR") if register == "CONFIG" else ("MW" if write else "MR")
        attempts: list[float] = []
        while True:
            words, enables = np.array([value & 0xFFFFFFFF], np.uint64), np.zeros(1, np.uint8)
            txn = Transaction("HOST", command, target, words, enables, self.card.answer, "csr")
            yield self.bus.request(txn)
            attempts.append(self.bus.time(txn.clock))
            if not txn.retried:
                break
            yield self.bus.clocks(self.drawn["cpu_gap"])
        row = {"addr": f"0x{target:08x}", "value": f"0x{value & 0xFFFFFFFF:08x}", "register": register}
        self.csr_log.append(access_row(self.name, self.bus, txn, attempts) | row)
        return attempts

    def configure(self) -> Process:
        """What a driver does once: read who the card is, place its window, tell it its rings."""
        drawn, slot = self.drawn, 1 << 20
        yield from self.access("CONFIG", False, drawn["device"] << 16 | drawn["vendor"], slot)
        yield from self.access("CONFIG", True, drawn["base"], slot + 0x10)
        yield from self.access("CONFIG", True, 6, slot + 4)
        if drawn["place"] == "host_memory":
            for way, slots in (("TX", "slots"), ("RX", "rx_slots")):
                yield from self.access(f"{way}_BASE", True, self.map[f"{way.lower()}_ring"])
                yield from self.access(f"{way}_SIZE", True, drawn[slots])

    def send(self, frames: list[Frame]) -> Process:
        """Hand frames to the card: descriptors into memory or the card, then the doorbell."""
        drawn = self.drawn
        for frame in frames:
            while self.in_ring >= drawn["slots"]:
                yield self.slot_free
            self.in_ring += 1
            frame.submit = self.world.now
            yield self.wait("cpu_send")
            slot = self.handed % drawn["slots"]
            self.handed += 1
            frame.buffers = {"data": self.map["tx_buffers"] + slot * 0x1000 + drawn["tx_offset"], "slot": slot}
            if drawn["place"] == "card":
                at = drawn["base"] + 0x400 + 8 * slot
                address = yield from self.access("TX_BD_ADDR", True, frame.buffers["data"], at + 4)
                ready = 0x8000 if drawn["doorbell"] == "descriptor" else 0
                control = yield from self.access("TX_BD_CTRL", True, len(frame.memory) << 16 | ready, at)
                frame.accesses = [address, control]
                if drawn["doorbell"] == "descriptor":
                    self.release([frame], control)
        if drawn["doorbell"] != "descriptor":
            before: list[list[float]] = []
            kind = drawn["doorbell"]
            if kind == "argument":
                before.append((yield from self.access("TX_ARG", True, len(frames[-1].memory))))
            elif kind == "read":
                before.append((yield from self.access("STATUS", False, self.rng.getrandbits(32))))
            elif kind == "pair":
                before.append((yield from self.access("TX_ARG", True, self.handed >> 16)))
            register = "COMMAND" if kind in ("kick", "read") else "TX_TAIL"
            value = 1 if register == "COMMAND" else self.handed % drawn["slots"]
            bell = yield from self.access(register, True, value)
            for frame in frames:
                frame.accesses = [*frame.accesses, *before, bell]
            self.release(frames, bell)

    def release(self, frames: Iterable[Frame], doorbell: list[float]) -> None:
        for frame in frames:
            frame.doorbell = doorbell
            frame.release = self.world.now
            self.released.append(frame)
        self.tx_work.fire()

    def notify(self) -> None:
        """The card asks for the driver."""
        if not self.interrupting and self.drawn["irq"] != "poll":
            self.interrupting = True
            self.world.at(self.world.now + self.wait("irq_latency"), self.do, self.service())

    def poller(self) -> Process:
        while True:
            yield self.drawn["poll"]
            if not self.interrupting:
                self.interrupting = True
                self.do(self.service())

    def service(self) -> Process:
        """The interrupt handler: ask the card or memory what there is, then take the frames."""
        way = self.drawn["irq"]
        if way in ("ack", "mask", "read"):
            yield from self.access("INTERRUPT", False, self.rng.getrandbits(32))
        if way == "ack":
            yield from self.access("ACK", True, 0xFF)
        elif way == "mask":
            yield from self.access("MASK", True, 0)
        elif way == "poll" and self.drawn["poll_register"]:
            yield from self.access("STATUS", False, self.rng.getrandbits(32))
        self.interrupting = False
        while self.fresh:
            frame = self.fresh.pop(0)
            yield self.wait("cpu_receive")
            frame.seen = self.world.now
            self.refill += 1
            if self.refill >= self.drawn["refill"]:
                if self.drawn["refill_register"]:
                    yield from self.access("RX_TAIL", True, self.rx_count % self.drawn["rx_slots"])
                self.rx_slots += self.refill
                self.refill = 0
                self.rx_room.fire()
            self.arrived(self, frame)
        if way == "mask":
            yield from self.access("MASK", True, 0xFF)
