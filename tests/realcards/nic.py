"""What all cards have: a bus master, two FIFOs, a MAC; and what all drivers have: a processor that does one thing.

A design (`hundred`, `gigabit`) says what is read and written in which order, and which registers its driver touches.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, ClassVar

import numpy as np
from cardbench.bus import Bus, Memory, Registers, Transaction, access_row
from cardbench.events import Process, Signal, World
from cardbench.frame import Frame


class WireFrame(Frame):
    """A frame, and which words of its transactions carry its bytes."""

    carried: dict[str, list[tuple[Transaction, int, int]]]
    loaded: int
    stored: int
    sending: bytes

    def __post_init__(self) -> None:
        super().__post_init__()
        self.carried = {"sent": [], "received": []}
        self.loaded = self.stored = 0
        self.sending = self.memory


class Nic(ABC):
    """One host: processor, driver, card. `arrived` and `concluded` are the bench's."""

    arrived: Any
    concluded: Any
    peer: Nic

    registers: ClassVar[dict[str, int]] = {}
    """Name and offset of each register that the driver touches."""

    RATES: ClassVar[tuple[int, ...]] = (100,)
    WIDE: ClassVar[bool] = False
    IO: ClassVar[bool] = False
    """Whether drivers reach the registers by I/O."""

    SLOTS: ClassVar[int] = 16
    PAD: ClassVar[bool] = False
    """Whether the driver pads short frames."""

    TX_ALIGN: ClassVar[tuple[int, ...]] = (0, 2)
    TX_FIFO: ClassVar[int] = 2048
    RX_FIFO: ClassVar[int] = 2048

    @staticmethod
    @abstractmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        """Settings of card and driver that differ from machine to machine; `burst` and `cut` are bytes."""

    def __init__(self, name: str, world: World, drawn: dict[str, Any], bus: Bus) -> None:
        self.name, self.world, self.drawn, self.bus = name, world, drawn, bus
        self.rng = random.Random(f"{drawn['design']} {drawn['seed']} {name}")
        self.memory = Memory(drawn["memory"][name], self.rng, np.random.default_rng([drawn["seed"], ord(name)]))
        self.card = Registers(drawn["registers"], self.rng)
        base = 0x01000000 if name == "A" else 0x02400000
        self.map = {
            "tx": base,
            "tx_ring": base + 0x100000,
            "rx_ring": base + 0x110000,
            "status": base + 0x120000,
            "rx": base + 0x200000,
            "other": base + 0x400000,
        }
        self.csr_log: list[dict[str, Any]] = []
        self.tasks: deque[Process] = deque()
        self.work, self.tx_work, self.rx_work, self.freed = (Signal(world) for _ in range(4))
        self.tx_done = Signal(world)
        self.pending = self.raised = self.busy = False
        self.urgent = 0
        self.handed = self.in_ring = self.sent_count = 0
        self.rx_count = self.rx_free = 0
        self.released: deque[WireFrame] = deque()
        self.in_fifo: list[WireFrame] = []
        self.incoming: deque[WireFrame] = deque()
        self.fresh: deque[WireFrame] = deque()
        self.completed: deque[WireFrame] = deque()
        self.gone: deque[WireFrame] = deque()
        self.wire_free = 0.0
        self.byte = 8000.0 / drawn["rate"]
        self.tick = {10: 400.0, 100: 40.0, 1000: 8.0}[drawn["rate"]]
        self.wire_phase = self.rng.uniform(0, self.tick)

    def start(self) -> None:
        self.rx_free = self.drawn["rx_slots"]
        for process in (self.processor(), self.transmitter(), self.receiver(), *self.engines()):
            self.world.start(process)

    def engines(self) -> list[Process]:
        """What else the card does at all times."""
        return [self.finisher()]

    # Bus master

    def limit(self, at: int, write: bool) -> int:
        """Bytes of the next burst at most: burst limit, and lines where bursts end."""
        drawn = self.drawn
        most = drawn["burst"] - at % (8 if drawn["width"] == 64 else 4)
        cut = drawn["cut"]
        if cut and at + most - (at + most) % cut > at:
            most -= (at + most) % cut
        return max(1, most)

    def command(self, at: int, count: int, write: bool) -> str:
        drawn, line = self.drawn, self.drawn["line"]
        if write:
            return "MWI" if drawn["mwi"] and not at % line and not count % line else "MW"
        if drawn["mrm"] and at // line != (at + count - 1) // line:
            return "MRM"
        return "MRL" if drawn["mrl"] and count > line // 2 else "MR"

    def words(self, at: int, data: bytes, write: bool) -> tuple[int, Any, Any, bool]:
        """Address, words, byte enables of a burst, and whether it is one of 64 bit."""
        wide = self.drawn["width"] == 64 and len(data) > 8
        size = 8 if wide else 4
        lead = at % size
        tail = -(lead + len(data)) % size
        words = np.frombuffer(bytes(lead) + data + bytes(tail), f"<u{size}").astype(np.uint64)
        off = np.ones((len(words), size), np.uint8)
        off.reshape(-1)[lead : lead + len(data)] = 0
        if not write:
            off[:] = 0
        enables = (off << np.arange(size, dtype=np.uint8)).sum(1).astype(np.uint8)
        return at - lead, words, enables, wide

    def own_bus(self, urgent: bool) -> Process:
        self.urgent += urgent
        while self.busy or (self.urgent and not urgent):
            yield self.freed
        self.urgent -= urgent
        self.busy = True

    def move(self, at: int, data: bytes, write: bool, kind: str, limit: int | None = None) -> Process:
        """One transaction, repeated until data move; gives it and the bytes that were moved."""
        yield from self.own_bus(write)
        data = data[: limit or self.limit(at, write)]
        address, words, enables, wide = self.words(at, data, write)
        while True:
            command = self.command(at, len(data), write)
            txn = Transaction("NIC", command, address, words, enables, self.memory.answer, kind, wide)
            txn.latency_timer = self.drawn["latency_timer"]
            txn.urgent = write and self.drawn["rx_first"]
            yield self.bus.request(txn)
            if txn.moved:
                break
            yield self.bus.clocks(self.drawn["retry_gap"])
        yield self.bus.clocks(self.rng.randint(*self.drawn["piece_gap"]))
        self.busy = False
        self.freed.fire()
        return txn, min(len(data), txn.moved * (8 if wide else 4) - (at - address))

    def dma(self, at: int, data: bytes, write: bool, kind: str) -> Process:
        """Descriptors and status: as few transactions as the bus lets it."""
        while data:
            _, count = yield from self.move(at, data, write, kind, self.drawn.get("small_burst") or len(data))
            at, data = at + count, data[count:]

    def read(self, at: int, data: bytes, kind: str) -> Process:
        yield from self.dma(at, data, False, kind)

    def write(self, at: int, data: bytes, kind: str) -> Process:
        yield from self.dma(at, data, True, kind)

    @staticmethod
    def carry(frame: WireFrame, way: str, txn: Transaction, span: tuple[int, int]) -> None:
        """Note which words of a transaction carry bytes of the frame that lie at `span` in memory."""
        size = 8 if txn.wide else 4
        first = max(0, (span[0] - txn.address) // size)
        last = min(txn.moved - 1, (span[1] - 1 - txn.address) // size)
        (frame.sent if way == "sent" else frame.received).append(txn)
        if first <= last:
            frame.carried[way].append((txn, first, last))

    # Sending

    def room(self) -> float:
        """Bytes that are free in the send FIFO."""
        now, used = self.world.now, 0.0
        for frame in self.in_fifo:
            gone = 0.0 if frame.wire_start is None else max(0.0, (now - frame.wire_start) / self.byte - 8)
            used += max(0.0, frame.loaded - gone)
        self.in_fifo = [f for f in self.in_fifo if f.wire_end is None or f.wire_end > now]
        return self.drawn["tx_fifo"] - used

    def load(self, frame: WireFrame, at: int, data: bytes, total: int) -> Process:
        """Read a buffer of a frame into the FIFO; the wire starts at the threshold or behind the last byte."""
        if frame not in self.in_fifo:
            self.in_fifo.append(frame)
        span, threshold = (at, at + len(data)), self.drawn["tx_threshold"] or 1 << 20
        while data:
            want = min(len(data), self.limit(at, False))
            while self.room() < min(want, self.drawn["tx_fifo"]):
                yield 4 * self.byte + 100
            while want:  # a burst that the target cuts goes on
                txn, count = yield from self.move(at, data, False, "tx_data", want)
                self.carry(frame, "sent", txn, span)
                before, frame.loaded = frame.loaded, frame.loaded + count
                goal = min(threshold, total)
                if before < goal <= frame.loaded:
                    index = min(txn.moved - 1, (goal - before - 1 + at % 4) // (8 if txn.wide else 4))
                    self.on_wire(frame, self.bus.time(txn.clock + int(txn.data_clocks[index])))
                at, data, want = at + count, data[count:], 0 if self.drawn["rewait"] else want - count
        need = self.bus.time(txn.clock + int(txn.data_clocks[-1]))
        if frame.wire_start is not None and need > frame.wire_start + (8 + frame.loaded) * self.byte:
            raise RuntimeError("underrun")

    def wait(self, key: str) -> float:
        return self.rng.uniform(*self.drawn[key])

    def on_wire(self, frame: WireFrame, ready: float) -> None:
        start = max(ready + self.wait("tx_latency"), self.wire_free + 12 * self.byte)
        start = math.ceil((start - self.wire_phase) / self.tick) * self.tick + self.wire_phase
        frame.wire_start, frame.wire_end = start, start + frame.wire_bytes * self.byte
        self.wire_free = frame.wire_end
        self.world.at(frame.wire_end, self.left, frame)
        if self.rng.random() < self.drawn["loss"]:
            frame.lost = True
            self.world.at(frame.wire_end, self.concluded, frame)
        else:
            self.world.at(start, self.peer.comes, frame)

    def left(self, frame: WireFrame) -> None:
        """The last bit of a frame is on the wire."""
        self.gone.append(frame)
        self.tx_done.fire()

    def finisher(self) -> Process:
        """Report each sent frame in the order in which they went."""
        while True:
            while not self.gone:
                yield self.tx_done
            frame = self.gone.popleft()
            yield self.rng.uniform(100, 500)
            yield from self.finish(frame)
            self.completed.append(frame)
            self.sent_count += 1
            if not self.sent_count % self.drawn["tx_every"]:
                self.notify()

    def finish(self, frame: WireFrame) -> Process:
        """What the card writes of a sent frame."""
        yield 0.0

    def next_released(self) -> Process:
        while not self.released:
            yield self.tx_work
        return self.released.popleft()

    @abstractmethod
    def transmitter(self) -> Process:
        """The engine that sends."""

    # Receiving

    def comes(self, frame: WireFrame) -> None:
        waiting = sum(min(len(f.on_wire), self.came(f)) - f.stored for f in self.incoming)
        full = waiting > self.drawn["rx_fifo"] - min(len(frame.on_wire), 512)
        if full or self.rx_free <= len(self.incoming):
            frame.dropped = True
            self.world.at(frame.wire_end or 0, self.concluded, frame)
            return
        self.incoming.append(frame)
        self.rx_work.fire()

    def here(self, frame: WireFrame, count: int) -> float:
        """When so many bytes of the frame are in the FIFO."""
        return (frame.wire_start or 0) + self.drawn["phy_delay"] + (8 + min(count, len(frame.on_wire))) * self.byte

    def came(self, frame: WireFrame) -> int:
        """Bytes of the frame that have come until now."""
        return max(0, int((self.world.now - (frame.wire_start or 0) - self.drawn["phy_delay"]) / self.byte - 8))

    def until(self, time: float) -> Process:
        if time > self.world.now:
            yield time - self.world.now

    def store(self, frame: WireFrame, at: int, data: bytes, lead: int = 0) -> Process:
        """Write a frame to memory, from its threshold on or when it is complete, behind `lead` bytes of the card's."""
        threshold, total, done = self.drawn["rx_threshold"], len(data), 0
        span = (at + lead, at + len(data))
        if not threshold:
            yield from self.until(self.here(frame, 1 << 20) + self.wait("rx_latency"))
        while done < total:
            most = self.limit(at + done, True)
            if threshold:
                need = max(1, min(threshold, total - done))
                last = done + need >= total
                yield from self.until(self.here(frame, 1 << 20 if last else done + need) + (100 if last else 30))
                got = self.came(frame)
                if got < len(frame.on_wire):
                    end = at + min(total, got)
                    most = min(most, max(4, end - end % 4 - at - done))
            most = min(most, total - done)
            while most:
                txn, count = yield from self.move(at + done, data[done:], True, "rx_data", most)
                self.carry(frame, "received", txn, span)
                done, most = done + count, 0 if self.drawn["rewait"] else most - count
                frame.stored = min(done, len(frame.on_wire))

    @abstractmethod
    def receiver(self) -> Process:
        """The engine that receives."""

    def next_incoming(self) -> Process:
        """The frame that comes next; it stays in the FIFO until `taken`."""
        while not self.incoming:
            yield self.rx_work
        return self.incoming[0]

    def taken(self, frame: WireFrame) -> None:
        self.incoming.popleft()
        self.rx_count += 1
        self.rx_free -= 1
        self.fresh.append(frame)

    def memory_of(self, frame: WireFrame) -> bytes:
        return frame.on_wire if self.drawn["fcs"] else frame.on_wire[:-4]

    # Processor

    def processor(self) -> Process:
        if self.drawn["show_configuration"]:
            yield 500.0
            yield from self.set_up()
        while True:
            if self.pending:
                yield from self.interrupted()
            elif self.tasks:
                yield from self.tasks.popleft()
            else:
                yield self.work

    def do(self, task: Process) -> None:
        self.tasks.append(task)
        self.work.fire()

    def set_up(self) -> Process:
        """What the driver writes once."""
        yield 0.0

    def notify(self) -> None:
        """The card asserts INTA#."""
        if not self.raised:
            self.raised = True
            self.world.at(self.world.now + self.wait("irq_latency"), self._interrupt)

    def _interrupt(self) -> None:
        self.pending = True
        self.work.fire()

    def interrupted(self) -> Process:
        self.pending = False
        yield from self.service()

    @abstractmethod
    def service(self) -> Process:
        """The interrupt handler; it clears `raised` where the card lets INTA# go."""

    def io(
        self, register: str, write: bool, value: int = 0, size: int = 4, index: int = 0, then: Any = None
    ) -> Process:
        """One access of a register, gives the address phases of its attempts; `then` happens with its data."""
        at = self.drawn["base"] + self.registers[register] + index
        lane = at % 4
        space = self.drawn["io"]
        enables = 15 & ~(((1 << size) - 1) << lane)
        command = ("IOW" if write else "IOR") if space else ("MW" if write else "MR")
        if not write:
            value = self.rng.getrandbits(8 * size)
        attempts: list[float] = []
        while True:
            word = np.array([(value & (1 << 8 * size) - 1) << 8 * lane], np.uint64)
            address = at if space else at - lane
            txn = Transaction("HOST", command, address, word, np.array([enables], np.uint8), self.card.answer, "csr")
            yield self.bus.request(txn)
            attempts.append(self.bus.time(txn.clock))
            if not txn.retried:
                break
            yield self.bus.clocks(self.drawn["cpu_gap"])
        row = {"addr": f"0x{at:08x}", "value": f"0x{int(word[0]):08x}", "register": register}
        self.csr_log.append(access_row(self.name, self.bus, txn, attempts) | row)
        if then is not None:
            then()
        yield self.drawn["cpu_access"]
        return attempts

    def send(self, frames: list[WireFrame]) -> Process:
        """The driver's transmit routine, once a frame; where the ring is full it waits for the handler to free it."""
        for frame in frames:
            while self.in_ring >= self.drawn["slots"]:
                if self.pending:
                    yield from self.interrupted()
                else:
                    yield self.work
            self.in_ring += 1
            frame.submit = self.world.now
            yield self.wait("cpu_send")
            slot = self.handed % self.drawn["slots"]
            self.handed += 1
            frame.buffers = {"slot": slot, "data": self.map["tx"] + slot * 0x800 + self.drawn["tx_offset"]}
            if self.PAD:
                frame.sending = frame.memory.ljust(60, b"\0")
            bells = yield from self.ring(frame, slot)
            frame.accesses = bells
            frame.doorbell = bells[-1] if bells else []
            if self.pending:
                yield from self.interrupted()

    def own(self, frame: WireFrame) -> None:
        """Give a descriptor in memory to the card, which may come by before it is told."""
        frame.release = self.world.now
        self.released.append(frame)

    def release(self, frame: WireFrame) -> None:
        """The card is told of a frame by the access itself."""
        self.own(frame)
        self.kick()

    kicked = False

    def kick(self) -> None:
        """The card is told to look for work; it forgets that when it next looks."""
        self.kicked = True
        self.tx_work.fire()

    @abstractmethod
    def ring(self, frame: WireFrame, slot: int) -> Process:
        """What the driver writes to send one frame; gives the attempts of each access, the doorbell last."""

    def reclaim(self) -> int:
        """Free the slots of sent frames; gives how many."""
        count = len(self.completed)
        self.in_ring -= count
        self.completed.clear()
        return count

    def take(self) -> Process:
        """One received frame goes up."""
        frame = self.fresh.popleft()
        yield self.wait("cpu_receive")
        frame.seen = self.world.now
        self.arrived(self, frame)
        self.rx_free += 1


def pack(*words: int) -> bytes:
    """Little-endian dwords."""
    return b"".join((word & 0xFFFFFFFF).to_bytes(4, "little") for word in words)
