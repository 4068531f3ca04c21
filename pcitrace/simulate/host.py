"""CPU, driver and application of a simulated host."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from pcitrace.simulate.bus import Bus, Request, Transaction
from pcitrace.simulate.config import Access, HostParameters
from pcitrace.simulate.events import Lock, Process, Scheduler, Signal
from pcitrace.simulate.frame import Frame
from pcitrace.simulate.nic import SLOTS, US, Nic
from pcitrace.simulate.pci import CONFIG_READ, CONFIG_WRITE, MEMORY_READ, MEMORY_WRITE

RETRY_CLKS = 4  # a host bridge repeats a retried read so soon
IDSEL_BIT = 20  # the NIC's IDSEL is AD[20]


class CsrLog(Protocol):
    """Where a CPU reports its accesses."""

    def csr(self, bus: str, register: str, value: int, attempts: list[Transaction], frame: int | None) -> None:
        """Take a finished access with all its attempts."""


class Host:
    """One computer: applications call `send`; `on_delivery` is called with each frame that reaches them."""

    def __init__(
        self,
        name: str,
        parameters: HostParameters,
        bus: Bus,
        nic: Nic,
        scheduler: Scheduler,
        random: Random,
        log: CsrLog,
    ) -> None:
        self.name = name
        self.driver = parameters.driver
        self.on_delivery: Callable[[Frame], None] = lambda frame: None
        self.bus = bus
        self.nic = nic
        self._scheduler = scheduler
        self._random = random
        self._log = log
        self._cpu = Lock()
        self._calling = Lock()
        self._grouped: list[Frame] = []
        self._group_size = self._draw_group()
        self._sending_group = Lock()
        self._updated = Signal()  # the sent queue, as often as sends were begun before
        self._updated.fire()
        self._received: list[Frame] = []
        self._wake_handler = Signal()
        scheduler.spawn(self._handler())

    # --- sending

    def send(self, frame: Frame) -> Process:
        """Send a frame: a process that ends when the call returns."""
        driver = self.driver
        frame.call_ns = self._scheduler.now_ns
        if driver.group_frames > 1:
            self._grouped.append(frame)
            if len(self._grouped) >= self._group_size:
                self.flush()
            return
        yield from self._calling.acquire()
        while self.nic.outstanding >= driver.ring_frames:
            yield self.nic.sent
        yield self._wait(driver.call_us)
        yield from self._cpu.acquire()
        yield from self._write_send(frame)
        self.nic.doorbell(frame)
        self._cpu.release()
        if driver.blocking:
            yield from self._update_sent(frame)
        else:
            self._scheduler.spawn(self._update_sent(frame))
        self._calling.release()

    def flush(self) -> None:
        """Give the frames of an unfinished group to the NIC."""
        group, self._grouped = self._grouped, []
        self._group_size = self._draw_group()
        if group:
            self._scheduler.spawn(self._send_group(group))

    def _draw_group(self) -> int:
        spread = self.driver.group_spread
        return self.driver.group_frames + (self._random.randint(-spread, spread) if spread else 0)

    def _send_group(self, group: list[Frame]) -> Process:
        driver = self.driver
        released = Signal()
        yield from self._sending_group.acquire()
        yield from self._cpu.acquire()
        for frame in group:
            start_ns = self._scheduler.now_ns
            frame.held = released
            yield from self._write_send(frame)
            self.nic.doorbell(frame)
            self._scheduler.spawn(self._update_sent(frame))
            if frame is not group[-1]:
                yield max(0.0, self._wait(driver.group_frame_us) - (self._scheduler.now_ns - start_ns))
        self._cpu.release()
        hold_us = self._random.uniform(*driver.group_hold_us)
        if self._random.random() < driver.group_long_hold_probability:
            hold_us = driver.group_long_hold_us
        yield hold_us * US
        released.fire()
        yield group[-1].sent
        self._sending_group.release()

    def _write_send(self, frame: Frame) -> Process:
        for number, access in enumerate(self.driver.send):
            if number:
                yield self._spacing()
            last = number == len(self.driver.send) - 1
            done = yield from self._access(access, self._doorbell(frame) if last else self._value(access, frame), frame)
            if number == 0:
                frame.csr_first_ns = done[0].start_ns
            frame.csr_last_ns = done[-1].start_ns

    def _doorbell(self, frame: Frame) -> int:
        value = self.driver.doorbell_value
        return (frame.sequence + 1) % SLOTS if value is None else value

    def _value(self, access: Access, frame: Frame) -> int:
        """What the driver writes before the doorbell: a stand-in that differs from register to register."""
        return (access.offset << 16 | frame.pci_bytes) & 0xFFFF_FFFF

    def _update_sent(self, frame: Frame) -> Process:
        before, self._updated = self._updated, Signal()
        updated = self._updated
        if not frame.sent.fired:
            yield frame.sent
        if self.driver.sent_update_us is None:
            return
        yield self._wait(self.driver.sent_update_us)
        # A queue is updated in its order.
        if not before.fired:
            yield before
        yield from self._cpu.acquire()
        for access in self.driver.sent_update:
            done = yield from self._access(access, (frame.sequence + 1) % SLOTS, frame)
            if frame.csr_done_ns is None:
                frame.csr_done_ns = done[0].start_ns
        self._cpu.release()
        updated.fire()

    # --- receiving

    def received(self, frame: Frame) -> None:
        """Take a frame that is wholly in memory: the interrupt."""
        self._received.append(frame)
        wake, self._wake_handler = self._wake_handler, Signal()
        wake.fire()

    def _handler(self) -> Process:
        driver = self.driver
        while True:
            if not self._received:
                yield self._wake_handler
            first = self._received[0]
            assert first.rx_dma_end_ns is not None
            at_ns = first.rx_dma_end_ns + self._wait(driver.receive_us)
            yield max(0.0, at_ns - self._scheduler.now_ns)
            yield from self._cpu.acquire()
            frames, self._received = self._received, []
            start_ns: float | None = None
            for access in driver.receive:
                done = yield from self._access(access, len(frames), frames[0])
                start_ns = done[0].start_ns if start_ns is None else start_ns
            self._cpu.release()
            for frame in frames:
                frame.served_ns = start_ns
                assert frame.rx_dma_end_ns is not None
                deliver_us = driver.deliver_us + driver.deliver_us_per_byte * frame.length_bytes
                self._scheduler.at(frame.rx_dma_end_ns + self._wait(deliver_us), self._deliver, frame)
            if driver.queue_update_us is not None:
                yield self._wait(driver.queue_update_us)
                # The driver is one thread: while a blocking send runs, the receive queue waits.
                yield from self._calling.acquire()
                yield from self._cpu.acquire()
                for access in driver.queue_update:
                    yield from self._access(access, (frames[-1].sequence + 1) % SLOTS, frames[-1])
                self._cpu.release()
                self._calling.release()

    def _deliver(self, frame: Frame) -> None:
        frame.deliver_ns = self._scheduler.now_ns
        self.on_delivery(frame)

    # --- the bus

    def configure(self) -> Process:
        """Find the NIC and set its base address, as a BIOS does."""
        base = self.nic.parameters.base_address
        steps = (
            ("VENDOR_ID", 0x00, False, self.nic.parameters.device_id),
            ("CLASS_CODE", 0x08, False, 0x0200_0001),
            ("BAR0", 0x10, True, 0xFFFF_FFFF),
            ("BAR0", 0x10, False, ~(self.nic.parameters.register_bytes - 1) & 0xFFFF_FFFF),
            ("BAR0", 0x10, True, base),
            ("COMMAND", 0x04, True, 0x0000_0106),
        )
        yield from self._cpu.acquire()
        for name, offset, write, value in steps:
            address = 1 << IDSEL_BIT | offset
            command = CONFIG_WRITE if write else CONFIG_READ
            yield from self._transfer(name, command, address, "configuration", value, None, 0)
            yield self._spacing()
        self._cpu.release()

    def _access(self, access: Access, value: int, frame: Frame) -> Process:
        nic = self.nic.parameters
        retries = 0 if access.write else self._random.randint(*nic.csr_read_retries)
        command = MEMORY_WRITE if access.write else MEMORY_READ
        address = nic.base_address + access.offset
        done = yield from self._transfer(access.register, command, address, "registers", value, frame.number, retries)
        return done

    def _transfer(
        self,
        register: str,
        command: int,
        address: int,
        target: str,
        value: int,
        frame: int | None,
        retries: int,
    ) -> Process:
        attempts = []
        for attempt in range(retries + 1):
            request = Request("host", command, address, 4, "csr", frame, target, value.to_bytes(4, "little"))
            request.retried = attempt < retries
            attempts.append((yield self.bus.ask(request)))
            if request.retried:
                yield RETRY_CLKS * self.bus.period_ns
        self._log.csr(self.bus.name, register, value, attempts, frame)
        return attempts

    def _spacing(self) -> float:
        return self._wait(self.driver.access_spacing_us)

    def _wait(self, us: float) -> float:
        jitter = self.driver.jitter_us
        return max(0.0, us + (self._random.uniform(-jitter, jitter) if jitter else 0.0)) * US
