"""The card of one host: its DMA, and its end of the wire."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .bus import Bus, Memory, Transaction
from .events import Process, Signal, World
from .frame import Frame

PLACES = ("tx_ring", "rx_ring", "tx_buffers", "rx_buffers", "tx_headers", "rx_headers", "status", "block", "other")
"""What lies in host memory."""


class Card:
    """Reads descriptors and frames, sends, receives, writes frames and status; `notify` asks for the driver."""

    peer: Card
    concluded: Callable[[Frame], None]
    notify: Callable[[], None]

    def __init__(self, name: str, world: World, drawn: dict[str, Any], bus: Bus) -> None:
        self.name, self.world, self.drawn, self.bus = name, world, drawn, bus
        self.rng = random.Random(f"{drawn['family']} {drawn['seed']} {name}")
        bits = np.random.default_rng(zlib.crc32(f"{drawn['family']} {drawn['seed']} {name}".encode()))
        self.memory = Memory({**drawn["memory"][name], "initiator_wait": drawn["initiator_wait"]}, self.rng, bits)
        pages = self.rng.sample(range(0x100, 0x1F00), len(PLACES))
        self.map = {place: page << 16 for place, page in zip(PLACES, pages, strict=True)}
        self.released: deque[Frame] = deque()
        self.in_ring = 0
        self.tx_work, self.tx_room, self.slot_free = Signal(world), Signal(world), Signal(world)
        self.tx_used = 0
        self.to_wire: deque[tuple[Frame, float]] = deque()
        self.wire_work = Signal(world)
        self.sent = 0
        self.rx_fetched = 0
        self.rx_slots, self.rx_cached, self.rx_used, self.rx_count = drawn["rx_slots"], 0, 0, 0
        self.rx_queue: deque[tuple[Frame, float]] = deque()
        self.rx_work, self.rx_room = Signal(world), Signal(world)
        self.unreported: list[Frame] = []
        self.fresh: list[Frame] = []

    def start(self) -> None:
        for process in (self.transmitter(), self.wire(), self.receiver()):
            self.world.start(process)

    def wait(self, key: str) -> float:
        return self.rng.uniform(*self.drawn[key])

    # The card's DMA

    def move(self, write: bool, address: int, data: bytes, kind: str) -> Process:
        """Move bytes from or to memory in as many transactions as it takes; gives those that moved data."""
        drawn = self.drawn
        wide = drawn["width"] == 64
        size = 8 if wide else 4
        start = address & -size
        end = -(-(address + len(data)) // size) * size
        if kind == "tx_data" and drawn["pad"] > size:
            end = -(-end // drawn["pad"]) * drawn["pad"]
        raw = (b"\0" * (address - start) + data).ljust(end - start, b"\0")
        words = np.frombuffer(raw, np.uint64 if wide else np.uint32).astype(np.uint64)
        enables = np.zeros(len(words), np.uint8)
        if write or drawn["exact_enables"]:
            enables[0] |= (1 << (address - start)) - 1
            kept = address + len(data) - (end - size)
            if 0 < kept < size:
                enables[-1] |= (1 << size) - 1 & -(1 << kept)
        at, pieces = 0, []
        while at < len(words):
            many = self.piece(start + at * size, len(words) - at, size, kind)
            txn = Transaction(
                "NIC",
                self.command(write, many),
                start + at * size,
                words[at : at + many],
                enables[at : at + many],
                self.memory.answer,
                kind,
            )
            txn.wide, txn.latency_timer = wide, drawn["latency_timer"]
            txn.urgent = drawn["urgent_receive"] and kind == "rx_data"
            yield self.bus.request(txn)
            pieces.append(txn)
            short = txn.moved < many
            stopped = short and not write and txn.plan is not None and txn.plan.stop is not None
            at = self.again(start, at, txn.moved, size) if stopped else at + txn.moved
            if at < len(words):
                yield self.bus.clocks(drawn["retry_gap"] if short else drawn["piece_gap"])
        return pieces

    def piece(self, address: int, left: int, size: int, kind: str) -> int:
        """Words of the next transaction."""
        drawn = self.drawn
        many = min(left, max(1, drawn["burst"] // size))
        for boundary in (drawn["cut"], 4096 if drawn["cut_4k"] else 0):
            if boundary:
                many = min(many, (boundary - address % boundary) // size)
        if kind == "tx_data" and drawn["single_tail"]:  # the last words one by one
            many = min(many, left - 3) if left > 3 else 1
        return max(1, many)

    def again(self, start: int, at: int, moved: int, size: int) -> int:
        """Word to go on with after a transaction was stopped: a card that reads again goes back."""
        drawn, to = self.drawn, at + moved
        if drawn["reread"] == "piece":
            return at
        if drawn["reread"] in ("line", "cut") and moved:
            block = drawn["line"] if drawn["reread"] == "line" else drawn["cut"]
            if block:  # a card that cuts nowhere goes on where it was stopped
                return max(0, ((start + to * size) // block * block - start) // size)
        return to

    def command(self, write: bool, many: int) -> str:
        if write:
            return "MWI" if self.drawn["mwi"] and many >= 8 and many % 8 == 0 else "MW"
        commands = self.drawn["read_commands"]
        return str(commands[min(len(commands) - 1, (many > 2) + (many > 16))])

    def transmitter(self) -> Process:
        drawn = self.drawn
        while True:
            while not self.released:
                yield self.tx_work
            yield self.wait("fetch_delay")
            group = 1
            if drawn["place"] == "host_memory":
                group = min(len(self.released), drawn["fetch"])
                yield from self.fetch("tx", drawn["fetch"] if drawn["fetch_full"] else group)
            for number in range(group):
                frame = self.released.popleft()
                yield self.wait("tx_next" if number else "tx_start")
                while self.tx_used and self.tx_used + len(frame.memory) > drawn["tx_fifo"]:
                    yield self.tx_room
                self.tx_used += len(frame.memory)
                yield from self.read(frame)
                if not drawn["status_after_wire"]:
                    yield from self.tell_sent()

    def fetch(self, way: str, count: int) -> Process:
        """Read descriptors; they end at the end of the ring."""
        drawn = self.drawn
        slots = drawn["slots" if way == "tx" else "rx_slots"]
        done = self.released[0].buffers["slot"] if way == "tx" else self.rx_fetched
        count = min(count, slots - done % slots)
        buffers = 2 if drawn["split" if way == "tx" else "rx_split"] and drawn["descriptor"] < 16 else 1
        size = drawn["descriptor"] * buffers
        entry = bytearray(self.rng.randbytes(size * count))
        pitch = 0x1000
        for i in range(count):
            offset = drawn[f"{way}_offset"]
            base = self.map[f"{way}_buffers"] + (done + i) % slots * pitch + offset
            entry[i * size + drawn["address_at"] : i * size + drawn["address_at"] + 4] = base.to_bytes(4, "little")
        yield from self.move(False, self.map[f"{way}_ring"] + done % slots * size, bytes(entry), f"{way}_desc")
        if way == "rx":
            self.rx_fetched += count
            self.rx_cached += count

    def read(self, frame: Frame) -> Process:
        """Read a frame's buffers; a card that cuts through lets the wire start at its threshold."""
        drawn = self.drawn
        parts = [(frame.buffers["data"], frame.memory)]
        if drawn["split"] and len(frame.memory) > drawn["split"]:
            slot = frame.buffers["slot"]
            header = self.map["tx_headers"] + slot * 0x100 + drawn["tx_offset"]
            rest = self.map["tx_buffers"] + slot * 0x1000 + drawn["split_offset"]
            parts = [(header, frame.memory[: drawn["split"]]), (rest, frame.memory[drawn["split"] :])]
        through = drawn["tx_threshold"] and len(frame.memory) > drawn["tx_threshold"]
        for address, data in parts:
            if through and len(data) > drawn["tx_threshold"]:
                edge = drawn["tx_threshold"] - address % 4
                frame.sent += yield from self.move(False, address, data[:edge], "tx_part")
                self.to_wire.append((frame, self.world.now))
                self.wire_work.fire()
                frame.sent += yield from self.move(False, address + edge, data[edge:], "tx_data")
            else:
                frame.sent += yield from self.move(False, address, data, "tx_data")
        if not any(queued is frame for queued, _ in self.to_wire) and frame.wire_start is None:
            self.to_wire.append((frame, self.world.now))
            self.wire_work.fire()
        self.in_ring -= 1
        self.slot_free.fire()

    def tell_sent(self) -> Process:
        """Status of sent frames to memory, one write for a batch, and an interrupt if the card does that."""
        self.sent += 1
        if self.sent % self.drawn["tx_batch"] == 0:
            if self.drawn["tx_status"]:
                yield from self.status("tx", self.sent, self.drawn["tx_status"])
            if self.drawn["tx_interrupt"]:
                self.notify()

    def status(self, way: str, count: int, size: int) -> Process:
        place, drawn = self.drawn["status_place"], self.drawn
        if place == "descriptor" and drawn["place"] == "host_memory":
            slots = drawn["slots" if way == "tx" else "rx_slots"]
            place_at = max(0, drawn["descriptor"] - size)
            at = self.map[f"{way}_ring"] + (count - 1) % slots * drawn["descriptor"] + place_at
        elif place == "ring":
            at = self.map["status"] + (0x8000 if way == "rx" else 0) + (count - 1) % 64 * size
        else:
            at = self.map["block"] + (64 if way == "rx" else 0)
        yield from self.move(True, at, self.rng.randbytes(size), "status")

    # The wire

    def wire(self) -> Process:
        rate = self.drawn["rate"]
        byte, tick = (8.0, 8.0) if rate == 1000 else (80.0, 40.0)
        phase, free = self.rng.uniform(0, tick), 0.0
        while True:
            while not self.to_wire:
                yield self.wire_work
            frame, ready = self.to_wire.popleft()
            start = max(ready + self.wait("tx_latency"), free, self.world.now)
            start = phase + -(-(start - phase) // tick) * tick
            frame.wire_start, frame.wire_end = start, start + frame.wire_bytes * byte
            yield start - self.world.now
            free = frame.wire_end + 12 * byte
            delay = self.drawn["phy_delay"]
            begins = self.drawn["rx_chunk"] > 0
            self.world.at((start if begins else frame.wire_end) + delay, self.peer.accept, frame, start + delay, byte)
            yield frame.wire_end - self.world.now
            self.tx_used -= len(frame.memory)
            self.tx_room.fire()
            if self.drawn["status_after_wire"]:
                self.world.start(self.tell_sent())

    def accept(self, frame: Frame, start: float, byte: float) -> None:
        """A frame comes: it is lost, does not fit into the card's memory, or is stored."""
        if self.rng.random() < self.drawn["loss"]:
            frame.lost = True
        elif self.rx_used + len(frame.on_wire) > self.drawn["rx_fifo"]:
            frame.dropped = True
        else:
            self.rx_used += len(frame.on_wire)
            self.rx_queue.append((frame, start + 8 * byte))
            self.rx_work.fire()
            return
        self.concluded(frame)

    def receiver(self) -> Process:
        drawn = self.drawn
        byte = 8.0 if drawn["rate"] == 1000 else 80.0
        while True:
            while not self.rx_queue:
                yield self.rx_work
            frame, first = self.rx_queue.popleft()
            data = frame.on_wire if drawn["fcs"] else frame.on_wire[:-4]
            latency = self.wait("rx_latency")
            while not self.rx_slots:
                yield self.rx_room
            self.rx_slots -= 1
            if not self.rx_cached:
                if drawn["place"] == "host_memory":
                    yield from self.fetch("rx", min(drawn["rx_fetch"], self.rx_slots + 1))
                else:
                    self.rx_cached = 1
            self.rx_cached -= 1
            slot = self.rx_count % drawn["rx_slots"]
            self.rx_count += 1
            buffer = self.map["rx_buffers"] + slot * 0x1000 + drawn["rx_offset"]
            parts = [(buffer, data)]
            if drawn["rx_split"] and len(data) > drawn["rx_split"]:
                header = self.map["rx_headers"] + slot * 0x100 + drawn["rx_offset"]
                rest = self.map["rx_buffers"] + slot * 0x1000 + drawn["split_offset"]
                parts = [(header, data[: drawn["rx_split"]]), (rest, data[drawn["rx_split"] :])]
            frame.buffers["rx"] = parts[0][0]
            yield from self.store(frame, parts, (first + latency, byte))
            self.rx_used -= len(frame.on_wire)
            yield from self.tell_received(frame)

    def store(self, frame: Frame, parts: list[tuple[int, bytes]], arrival: tuple[float, float]) -> Process:
        """Write a frame to memory, whole or as it comes."""
        first, byte = arrival
        before = 0
        for address, data in parts:
            chunk = self.drawn["rx_chunk"] or len(data)
            at = 0
            while at < len(data):
                last = len(frame.on_wire) if not self.drawn["rx_chunk"] else 0
                size = len(data) - at
                if self.drawn["rx_chunk"]:
                    there = int((self.world.now - first) / byte) - before - at
                    size = min(size, max(chunk, there // chunk * chunk) - (address + at) % 4)
                due = first + max(before + at + size, last) * byte
                yield max(0.0, due - self.world.now)
                frame.received += yield from self.move(True, address + at, data[at : at + size], "rx_data")
                at += size
            before += len(data)

    def tell_received(self, frame: Frame) -> Process:
        """Status of received frames to memory, one write for a batch, then the interrupt; no batch waits for long."""
        drawn = self.drawn
        self.unreported.append(frame)
        if len(self.unreported) < drawn["rx_batch"]:
            mark = frame
            self.world.at(self.world.now + 12000, self.flush, mark)
            return
        yield from self.report()

    def flush(self, mark: Frame) -> None:
        if mark in self.unreported:
            self.world.start(self.report())

    def report(self) -> Process:
        frames, self.unreported = self.unreported, []
        if self.drawn["rx_status"]:
            yield from self.status("rx", self.rx_count, self.drawn["rx_status"])
        self.fresh += frames
        self.notify()
