"""The simulated NIC: doorbell, send DMA, wire, receive DMA, status; and the link between two of them."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Protocol

from pcitrace.simulate.bus import Bus, Request, Transaction
from pcitrace.simulate.config import LinkParameters, NicParameters
from pcitrace.simulate.events import Process, Scheduler, Signal
from pcitrace.simulate.frame import CRC_BYTES, Frame
from pcitrace.simulate.pci import MEMORY_READ, MEMORY_WRITE, READ_LINE
from pcitrace.simulate.values import SimulationError

US = 1e3  # ns
RETRY_CLKS = 4  # STOP# to the next request for the bus
SLOT_BYTES = 0x800
SLOTS = 64
# Host memory, the same in both hosts.
SEND_DESCRIPTORS, RECEIVE_DESCRIPTORS, SEND_BUFFERS, RECEIVE_BUFFERS = 0x80000, 0x90000, 0x100000, 0x200000
STATUS_BLOCK = 0xA0000


class BurstLog(Protocol):
    """Where a NIC reports its DMA bursts."""

    def burst(self, bus: str, kind: str, read: bool, address: int, pieces: list[Transaction], frame: int) -> None:
        """Take a logical burst with the transactions that moved it."""


class Driver(Protocol):
    """Who is told what the NIC has received."""

    def received(self, frame: Frame) -> None:
        """Take a frame that is in memory."""


class Nic:
    """One NIC, on one bus, with one link to its peer."""

    def __init__(
        self,
        name: str,
        parameters: NicParameters,
        bus: Bus,
        link: LinkParameters,
        scheduler: Scheduler,
        random: Random,
        log: BurstLog,
        *,
        contents: bool,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.bus = bus
        self.host: Driver
        self.peer: Nic
        self.byte_ns = 8e3 / link.rate_mbit_s
        self._link = link
        self._scheduler = scheduler
        self._random = random
        self._log = log
        self._contents = contents
        self.outstanding = 0  # frames taken and not yet sent
        self.sent = Signal()  # fires with each frame that has left
        self._to_send: deque[Frame] = deque()
        self._wake_sender = Signal()
        self._to_wire: deque[tuple[Frame, float]] = deque()
        self._wake_wire = Signal()
        self.wire_edges_ns: list[float] = []  # rises and falls of TX_EN, until the analyser takes them
        self._fifo_bytes = 0
        self._fifo_space = Signal()
        self._wire_free_ns = 0.0
        self._to_memory: deque[tuple[Frame, float]] = deque()
        self._wake_receiver = Signal()
        self._descriptors = 0
        self._received = 0
        self._receiving = False
        scheduler.spawn(self._sender())
        scheduler.spawn(self._wire())
        scheduler.spawn(self._receiver())

    # --- sending

    def doorbell(self, frame: Frame) -> None:
        """Take a frame that the driver has given to the NIC."""
        self.outstanding += 1
        self._to_send.append(frame)
        wake, self._wake_sender = self._wake_sender, Signal()
        wake.fire()

    def _sender(self) -> Process:
        nic = self.parameters
        next_ns = 0.0
        while True:
            if not self._to_send:
                yield self._wake_sender
                yield nic.send_start_us * US
            frame = self._to_send.popleft()
            if frame.held is not None:
                yield frame.held
            if self._scheduler.now_ns < next_ns:
                yield next_ns - self._scheduler.now_ns
            if nic.descriptor_bytes and not self._descriptors:
                self._descriptors = min(nic.descriptors_per_fetch, len(self._to_send) + 1)
                slot = frame.sequence % SLOTS
                self._descriptors = min(self._descriptors, SLOTS - slot)
                address = SEND_DESCRIPTORS + slot * nic.descriptor_bytes
                yield from self._dma("descriptor", address, nic.descriptor_bytes * self._descriptors, frame)
                yield nic.descriptor_to_data_us * US
            self._descriptors = max(0, self._descriptors - 1)
            while self._fifo_bytes and self._fifo_bytes + frame.pci_bytes > nic.send_fifo_bytes:
                yield self._fifo_space
            self._fifo_bytes += frame.pci_bytes
            next_ns = self._scheduler.now_ns + nic.send_interval_us * US
            address = SEND_BUFFERS + frame.sequence % SLOTS * SLOT_BYTES
            yield from self._dma("send", address, frame.pci_bytes, frame, nic.send_burst_limit_bytes)
            frame.sent.fire()
            if nic.status_bytes and nic.send_status:
                yield nic.status_us * US
                yield from self._dma("send_status", STATUS_BLOCK, nic.status_bytes, frame)

    def _transit(self, us: float) -> float:
        jitter = self.parameters.transit_jitter_us
        return max(0.0, us + (self._random.uniform(-jitter, jitter) if jitter else 0.0)) * US

    def _wire(self) -> Process:
        while True:
            if not self._to_wire:
                yield self._wake_wire
            frame, ready_ns = self._to_wire.popleft()
            start_ns = max(ready_ns, self._wire_free_ns)
            frame.waited = frame.waited or self._wire_free_ns > ready_ns
            if start_ns > self._scheduler.now_ns:
                yield start_ns - self._scheduler.now_ns
            frame.wire_start_ns = start_ns
            preamble_ns = self._link.preamble_bytes * self.byte_ns
            frame.wire_end_ns = start_ns + preamble_ns + frame.wire_bytes * self.byte_ns
            self.wire_edges_ns += (start_ns, frame.wire_end_ns)
            self._wire_free_ns = frame.wire_end_ns + self._link.gap_bytes * self.byte_ns
            self.peer.arriving(frame, start_ns + preamble_ns)
            yield frame.wire_end_ns - start_ns
            self._fifo_bytes -= frame.pci_bytes
            space, self._fifo_space = self._fifo_space, Signal()
            space.fire()
            self.outstanding -= 1
            sent, self.sent = self.sent, Signal()
            sent.fire()

    # --- receiving

    def arriving(self, frame: Frame, first_byte_ns: float) -> None:
        """Take a frame whose first byte is on the wire."""
        frame.lost = frame.lost or self._random.random() < self._link.loss
        if frame.lost:
            return
        nic = self.parameters
        per_byte = nic.receive_transit_us_per_byte * frame.length_bytes
        transit_ns = self._transit(nic.receive_transit_us + per_byte)
        received = frame.wire_bytes
        if nic.cut_through_receive_bytes is not None:
            received = min(received, nic.cut_through_receive_bytes)
        ready_ns = first_byte_ns + received * self.byte_ns + transit_ns
        self._scheduler.at(ready_ns, self._ready, (frame, first_byte_ns))

    def _ready(self, item: tuple[Frame, float]) -> None:
        item[0].waited = item[0].waited or self._receiving or bool(self._to_memory)
        self._to_memory.append(item)
        wake, self._wake_receiver = self._wake_receiver, Signal()
        wake.fire()

    def _receiver(self) -> Process:
        nic = self.parameters
        while True:
            if not self._to_memory:
                self._receiving = False
                yield self._wake_receiver
            self._receiving = True
            frame, first_byte_ns = self._to_memory.popleft()
            size = frame.wire_bytes - (0 if nic.receive_fcs else CRC_BYTES)  # padded as it came
            slot = self._received % SLOTS
            self._received += 1
            address = RECEIVE_BUFFERS + slot * SLOT_BYTES
            yield from self._dma("receive", address, size, frame, nic.burst_limit_bytes, first_byte_ns)
            if nic.status_bytes and nic.receive_status:
                yield nic.status_us * US
                address = RECEIVE_DESCRIPTORS + slot * nic.status_bytes
                yield from self._dma("receive_status", address, nic.status_bytes, frame)
            self.host.received(frame)

    # --- the bus

    def _dma(
        self, kind: str, address: int, size: int, frame: Frame, limit: int | None = None, first_byte_ns: float = 0.0
    ) -> Process:
        """Move a block between the card and memory: pieces of at most `limit` bytes, resumed where they are cut."""
        nic = self.parameters
        read = kind in ("send", "descriptor")
        phase_bytes = self.bus.width_bytes["nic"]
        limit = max(limit // phase_bytes * phase_bytes, phase_bytes) if limit else size
        moved: list[Transaction] = []
        position = 0
        while position < size:
            goal = min(position + limit, size)
            if position:
                pause = nic.piece_pause_us + self._random.uniform(0, nic.piece_pause_jitter_us)
                yield pause * US
            if kind == "receive":
                # What has not come in yet cannot be written (only a cut-through NIC has to wait here).
                arrived_ns = first_byte_ns + goal * self.byte_ns
                yield max(0.0, arrived_ns - self._scheduler.now_ns)
            while position < goal:
                left = goal - position
                command = (MEMORY_READ if left <= phase_bytes else READ_LINE) if read else MEMORY_WRITE
                request = Request("nic", command, address + position, left, kind, frame.number)
                if self._contents:
                    request.data = self._content(kind, position, left, frame)
                done: Transaction = yield self.bus.ask(request)
                if kind == "receive" and not position:
                    frame.waited = frame.waited or done.directly_behind
                if done.moved_bytes:
                    moved.append(done)
                    position += done.moved_bytes
                if done.termination != "completion":
                    yield RETRY_CLKS * self.bus.period_ns
            if kind == "send":
                self._send_progress(frame, position, size, moved)
        if kind == "receive":
            frame.rx_dma_start_ns, frame.rx_dma_end_ns = moved[0].first_data_ns, moved[-1].last_data_ns
        self._log.burst(self.bus.name, kind, read, address, moved, frame.number)

    def _send_progress(self, frame: Frame, position: int, size: int, moved: list[Transaction]) -> None:
        """Hand the frame to the wire when enough of it is on the card."""
        enough = self.parameters.cut_through_send_bytes
        before = position - moved[-1].moved_bytes
        if frame.wire_start_ns is not None:
            needed_ns = frame.wire_start_ns + (self._link.preamble_bytes + before) * self.byte_ns
            if needed_ns < (moved[-1].first_data_ns or 0.0):
                raise SimulationError(
                    f"host {self.name}: the wire ran out of data in frame {frame.number}: "
                    "raise nic.cut_through_send_bytes or leave it out"
                )
        if position == size:
            frame.dma_start_ns, frame.dma_end_ns = moved[0].first_data_ns, moved[-1].last_data_ns
        if not frame.on_card and (position == size or (enough is not None and position >= enough)):
            frame.on_card = True
            self._to_wire.append((frame, self._scheduler.now_ns + self._transit(self.parameters.send_transit_us)))
            wake, self._wake_wire = self._wake_wire, Signal()
            wake.fire()

    def _content(self, kind: str, position: int, size: int, frame: Frame) -> bytes:
        """Return what lies in memory: the frame, its descriptors or its status."""
        if kind in ("send", "receive"):
            return frame.content(position, size)
        if kind == "descriptor":
            queued = [frame, *self._to_send][: self._descriptors]
            return b"".join(self._descriptor(of) for of in queued)[position : position + size]
        words = (1, frame.pci_bytes << 16 | 1, frame.sequence & 0xFFFF_FFFF, 0)
        return b"".join(word.to_bytes(4, "little") for word in words).ljust(position + size, b"\0")[position:][:size]

    def _descriptor(self, frame: Frame) -> bytes:
        nic = self.parameters
        entry = bytearray(nic.descriptor_bytes)
        address = SEND_BUFFERS + frame.sequence % SLOTS * SLOT_BYTES
        for offset, value, size in (
            (nic.descriptor_address_offset, address, 4),
            (nic.descriptor_length_offset, frame.pci_bytes, 2),
        ):
            entry[offset : offset + size] = value.to_bytes(size, "little")
        return bytes(entry)
