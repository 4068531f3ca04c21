"""Cards of 1 Gbit/s, by their data sheets and the Linux drivers. They store and forward."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from cardbench.events import Process

from .hundred import Ring
from .nic import Nic, WireFrame, pack


class E1000(Nic):
    """Intel 82540/82544/82545: legacy descriptors of 16 bytes, several in one read, tails (e1000)."""

    registers: ClassVar = {"STATUS": 0x08, "ICR": 0xC0, "IMS": 0xD0, "IMC": 0xD8, "RDT": 0x2818, "TDT": 0x3818}
    RATES, WIDE, SLOTS, TX_ALIGN, TX_FIFO, RX_FIFO = (1000, 1000, 100), True, 80, (0, 2), 16384, 32768

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": rng.choice((256, 512, 4096)),
            "cut": rng.choice((0, 0, 32, 64)),
            "mrm": True,
            "mrl": True,
            "mwi": rng.random() < 0.5,
            "line": rng.choice((32, 64)),
            "rx_slots": 64,
            "prefetch": rng.choice((1, 8, 32)),
            "rx_prefetch": rng.choice((8, 32)),
            "status": rng.choice((4, 16)),
            "fcs": rng.random() < 0.4,  # SECRC
            "napi": rng.random() < 0.5,
            "refill": rng.choice((1, 4, 16)),
            "tx_every": rng.choice((1, 1, 4)),
            "irq_gap": rng.choice((0.0, 0.0, 125000.0)),  # ITR: 8000 interrupts a second
        }

    def set_up(self) -> Process:
        self.rdt = self.drawn["rx_slots"] - 1
        yield from self.io("IMS", True, 0x9D)
        yield from self.io("RDT", True, self.rdt)

    rdt = 63
    taken_count = 0

    def ring(self, frame: WireFrame, slot: int) -> Process:
        return [(yield from self.io("TDT", True, (slot + 1) % self.drawn["slots"], then=lambda: self.release(frame)))]

    def transmitter(self) -> Process:
        have, index, slots = 0, 0, self.drawn["slots"]
        while True:
            if not have:
                while not self.released:
                    yield self.tx_work
                yield self.wait("tx_gap")
                have = min(len(self.released), self.drawn["prefetch"], slots - index % slots)
                words = b"".join(
                    pack(f.buffers["data"], 0, 0x0B000000 | len(f.sending), 0) for f in list(self.released)[:have]
                )
                yield from self.read(self.map["tx_ring"] + index % slots * 16, words, "tx_desc")
                yield self.bus.clocks(self.rng.randint(3, 9))
            frame = self.released.popleft()
            frame.buffers["index"] = index
            yield from self.load(frame, frame.buffers["data"], frame.sending, len(frame.sending))
            have, index = have - 1, index + 1

    def finish(self, frame: WireFrame) -> Process:
        """RS: status when the frame is in the FIFO or gone; here when it is gone."""
        at = self.map["tx_ring"] + frame.buffers["index"] % self.drawn["slots"] * 16
        if self.drawn["status"] == 4:
            yield from self.write(at + 12, b"\x01", "tx_status")
        else:
            yield from self.write(at, pack(frame.buffers["data"], 0, 0x0B000000 | len(frame.sending), 1), "tx_status")

    def receiver(self) -> Process:
        slots, have, index = self.drawn["rx_slots"], self.drawn["rx_prefetch"] // 2, 0
        while True:
            frame = yield from self.next_incoming()
            at = self.map["rx"] + index % slots * 0x800 + 2
            yield from self.store(frame, at, self.memory_of(frame))
            yield self.bus.clocks(self.rng.randint(3, 12))
            status = pack(at, 0, len(self.memory_of(frame)), 3)
            yield from self.write(self.map["rx_ring"] + index % slots * 16, status, "rx_status")
            self.taken(frame)
            self.notify()
            have, index = have - 1, index + 1
            if have <= self.drawn["rx_prefetch"] // 4:
                more = min(self.drawn["rx_prefetch"] - have, slots - (index + have) % slots)
                first = (index + have) % slots
                words = b"".join(pack(self.map["rx"] + i * 0x800 + 2, 0, 0, 0) for i in range(first, first + more))
                yield from self.read(self.map["rx_ring"] + first * 16, words, "rx_desc")
                have += more

    last_interrupt = -1e9

    def notify(self) -> None:
        if not self.raised:
            self.raised = True
            at = max(self.world.now, self.last_interrupt + self.drawn["irq_gap"])
            self.last_interrupt = at
            self.world.at(at + self.wait("irq_latency"), self._interrupt)

    def service(self) -> Process:
        napi = self.drawn["napi"]
        yield from self.io("ICR", False)
        if napi:
            yield from self.io("IMC", True, 0xFFFFFFFF)
            yield from self.io("STATUS", False)
            yield self.rng.uniform(500, 2000)
        self.raised = napi
        while True:
            self.reclaim()
            count = 0
            while self.fresh:
                yield from self.take()
                self.taken_count += 1
                count += 1
                if self.taken_count % self.drawn["refill"] == 0:
                    self.rdt = (self.rdt + self.drawn["refill"]) % self.drawn["rx_slots"]
                    yield from self.io("RDT", True, self.rdt)
            if not count:
                break
        if napi:
            self.raised = False
            yield from self.io("IMS", True, 0x9D)
            if self.fresh or self.completed:
                self.notify()


class R8169(Ring):
    """Realtek 8169/8110S: 16-byte descriptors, one register that polls (r8169)."""

    registers: ClassVar = {"TXPOLL": 0x38, "ISR": 0x3E, "IMR": 0x3C}
    RATES, WIDE, SLOTS, TX_ALIGN, TX_FIFO, RX_FIFO = (1000, 1000, 100), True, 64, (0, 2), 8192, 16384
    PAD = True

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": rng.choice((256, 512, 1024, 4096)),
            "mrl": rng.random() < 0.3,
            "mwi": rng.random() < 0.3,
            "fcs": True,
            "rx_slots": 64,
            "status": rng.choice((4, 8)),
            "mask": rng.random() < 0.4,
        }

    def ring(self, frame: WireFrame, slot: int) -> Process:
        self.own(frame)
        return [(yield from self.io("TXPOLL", True, 0x40, 1, then=self.kick))]

    def rx_status(self, frame: WireFrame, index: int) -> Process:
        words = pack(0x30000000 | len(frame.on_wire), 0)
        yield from self.write(self.rx_at(index), words[: self.drawn["status"]], "rx_status")

    def service(self) -> Process:
        while True:
            some = bool(self.completed or self.fresh)
            yield from self.io("ISR", False, 0, 2)
            if not some:
                break
            if self.drawn["mask"]:
                yield from self.io("IMR", True, 0, 2)
            yield from self.io("ISR", True, 5, 2)
            self.reclaim()
            while self.fresh:
                yield from self.take()
            if self.drawn["mask"]:
                yield from self.io("IMR", True, 0x803F, 2)
        self.raised = False


class Dp83820(Ring):
    """National DP83820: linked descriptors with extended status, command and status in one dword (ns83820)."""

    registers: ClassVar = {"CR": 0x00, "ISR": 0x10, "RXDP": 0x30}
    RATES, IO, WIDE, SLOTS, TX_FIFO, RX_FIFO = (1000,), False, True, 64, 8192, 32768
    STATUS_AT, TX_ALIGN = 8, (0, 2)

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": rng.choice((256, 512, 1024)),
            "mrl": True,
            "mrm": rng.random() < 0.5,
            "mwi": rng.random() < 0.5,
            "fcs": True,
            "tx_every": rng.choice((1, 8)),
            "rx_slots": 64,
            "status": rng.choice((4, 8)),
        }

    def fetch_tx(self, index: int) -> Process:
        owned, self.kicked = bool(self.released), False
        frame = self.released[0] if owned else None
        length, buffer = (len(frame.sending), frame.buffers["data"]) if frame else (0, 0)
        words = pack(self.tx_at(index + 1), buffer, (1 << 31) * owned | length, 0)
        yield from self.read(self.tx_at(index), words, "tx_desc")
        return owned

    def fetch_rx(self, index: int) -> Process:
        words = pack(self.rx_at(index + 1), self.rx_buffer(index), 0x600, 0)
        yield from self.read(self.rx_at(index), words, "rx_desc")

    def rx_status(self, frame: WireFrame, index: int) -> Process:
        words = pack(0x88000000 | len(frame.on_wire), 0)
        yield from self.write(self.rx_at(index) + 8, words[: self.drawn["status"]], "rx_status")

    def ring(self, frame: WireFrame, slot: int) -> Process:
        self.own(frame)
        return [(yield from self.io("CR", True, 1, then=self.kick))]

    def service(self) -> Process:
        while True:
            some = bool(self.completed or self.fresh)
            yield from self.io("ISR", False)
            if not some:
                break
            self.reclaim()
            while self.fresh:
                yield from self.take()
                if not self.rx_count % 16:
                    yield from self.io("CR", True, 4)
        self.raised = False


class Sk98(Ring):
    """SysKonnect SK-9843 (GEnesis): descriptors of 32 bytes read whole, control and status written back (sk98lin)."""

    registers: ClassVar = {"B0_ISRC": 0x08, "B0_SP_ISRC": 0x10, "B4_XA1_CSR": 0x634, "B4_R1_CSR": 0x434}
    RATES, IO, WIDE, SLOTS, TX_FIFO, RX_FIFO = (1000,), False, True, 64, 65536, 65536
    DESCRIPTOR, RX_OFFSET, TX_ALIGN = 32, 2, (0, 2)

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": rng.choice((128, 256, 512)),
            "mrm": True,
            "mrl": True,
            "mwi": rng.random() < 0.6,
            "rx_slots": 64,
            "status": rng.choice((4, 8, 24)),
            "tx_every": rng.choice((1, 4)),
            "start_receive": rng.random() < 0.6,
        }

    def fetch_tx(self, index: int) -> Process:
        owned, self.kicked = bool(self.released), False
        frame = self.released[0] if owned else None
        length, buffer = (len(frame.sending), frame.buffers["data"]) if frame else (0, 0)
        words = pack((0xE0550000 if owned else 0) | length, self.tx_at(index + 1), buffer, 0, 0, 0, 0, 0)
        yield from self.read(self.tx_at(index), words, "tx_desc")
        return owned

    def fetch_rx(self, index: int) -> Process:
        words = pack(0xA0550600, self.rx_at(index + 1), self.rx_buffer(index), 0, 0, 0, 0, 0)
        yield from self.read(self.rx_at(index), words, "rx_desc")

    def loaded(self, frame: WireFrame) -> Process:
        """The control word comes back when the frame is in the RAM buffer."""
        yield from self.write(self.tx_at(frame.buffers["slot"]), pack(0x60550000 | len(frame.sending)), "tx_status")

    def finish(self, frame: WireFrame) -> Process:
        yield 0.0

    def rx_status(self, frame: WireFrame, index: int) -> Process:
        words = pack(0x60550000 | len(frame.on_wire) - 4, self.rx_at(index + 1), self.rx_buffer(index), 0, 0x100, 0)
        count = self.drawn["status"]
        if count == 8:  # status first, then control
            yield from self.write(self.rx_at(index) + 16, words[16:20], "rx_status")
            count = 4
        yield from self.write(self.rx_at(index), words[:count], "rx_status")

    def ring(self, frame: WireFrame, slot: int) -> Process:
        self.own(frame)
        return [(yield from self.io("B4_XA1_CSR", True, 0x10, then=self.kick))]

    def service(self) -> Process:
        yield from self.io("B0_SP_ISRC", False)
        while True:
            while self.fresh:
                yield from self.take()
                if self.drawn["start_receive"]:
                    yield from self.io("B4_R1_CSR", True, 0x10)
            if self.completed:
                yield from self.io("B4_XA1_CSR", True, 0x2)
                self.reclaim()
            some = bool(self.completed or self.fresh)
            yield from self.io("B0_ISRC", False)
            if not some:
                break
        self.raised = False


class Tg3(Nic):
    """Broadcom BCM5701/5703: mailboxes, buffer descriptors read in blocks, one status block (tg3)."""

    registers: ClassVar = {"INTERRUPT_0": 0x204, "SEND_PROD_0": 0x304, "RX_PROD": 0x26C, "RX_CONS_0": 0x284}
    RATES, WIDE, SLOTS, TX_ALIGN, TX_FIFO, RX_FIFO = (1000, 1000, 100), True, 128, (0, 2), 16384, 32768

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": rng.choice((128, 256, 512, 4096)),
            "cut": rng.choice((0, 64, 128)),  # DMA read/write boundary
            "mrm": True,
            "mrl": True,
            "mwi": rng.random() < 0.3,
            "rx_slots": 64,
            "rx_block": rng.choice((8, 8, 1)),
            "status": rng.choice((24, 80)),  # minimal status block or whole
            "ticks": rng.choice((0.0, 0.0, 20000.0)),  # coalescing
            "flush": rng.random() < 0.5,
            "irq_again": rng.random() < 0.7,
        }

    def ring(self, frame: WireFrame, slot: int) -> Process:
        value = (slot + 1) % self.drawn["slots"]
        bell = yield from self.io("SEND_PROD_0", True, value, then=lambda: self.release(frame))
        if self.drawn["flush"]:
            yield from self.io("SEND_PROD_0", False)
        return [bell]

    def engines(self) -> list[Process]:
        self.news = False
        return [*super().engines(), self.status_block()]

    def transmitter(self) -> Process:
        have, index, slots = 0, 0, self.drawn["slots"]
        while True:
            if not have:
                while not self.released:
                    yield self.tx_work
                yield self.wait("tx_gap")
                have = min(len(self.released), 8, slots - index % slots)
                words = b"".join(
                    pack(0, f.buffers["data"], len(f.sending) << 16 | 4, 0) for f in list(self.released)[:have]
                )
                yield from self.read(self.map["tx_ring"] + index % slots * 16, words, "tx_desc")
                yield self.bus.clocks(self.rng.randint(6, 20))
            frame = self.released.popleft()
            yield from self.load(frame, frame.buffers["data"], frame.sending, len(frame.sending))
            have, index = have - 1, index + 1

    def finisher(self) -> Process:
        while True:
            while not self.gone:
                yield self.tx_done
            self.completed.append(self.gone.popleft())
            self.tell()

    def tell(self) -> None:
        self.news = True
        self.rx_told.fire()

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.rx_told = type(self.work)(self.world)
        self.tag = 0

    def status_block(self) -> Process:
        """Written when something happened and the coalescing ticks are over; then INTA#."""
        while True:
            while not self.news:
                yield self.rx_told
            yield self.drawn["ticks"] + self.rng.uniform(200, 600)
            self.news = False
            self.tag += 1
            words = pack(1, self.tag, self.rx_count, 0, self.rx_count << 16 | self.sent_count, 0) + bytes(56)
            yield from self.write(self.map["status"], words[: self.drawn["status"]], "status")
            self.notify()

    def receiver(self) -> Process:
        slots, block, have, index = self.drawn["rx_slots"], self.drawn["rx_block"], 8, 0
        while True:
            frame = yield from self.next_incoming()
            at = self.map["rx"] + index % slots * 0x800 + 2
            yield from self.store(frame, at, self.memory_of(frame))
            yield self.bus.clocks(self.rng.randint(3, 12))
            status = pack(0, at, index % slots << 16 | len(frame.on_wire), 4, 0, 0, 0, index % slots)
            yield from self.write(self.map["rx_ring"] + 0x4000 + index % slots * 32, status, "rx_status")
            self.taken(frame)
            self.tell()
            have, index = have - 1, index + 1
            if have <= 8 - block:
                first = (index + have) % slots
                words = b"".join(
                    pack(0, self.map["rx"] + i % slots * 0x800 + 2, 1536, 4, 0, 0, 0, i)
                    for i in range(first, first + block)
                )
                yield from self.read(self.map["rx_ring"] + first * 32, words[: (slots - first) * 32], "rx_desc")
                have += min(block, slots - first)

    def service(self) -> Process:
        yield from self.io("INTERRUPT_0", True, 1)
        yield from self.io("INTERRUPT_0", False)
        count = 0
        self.reclaim()
        while self.fresh:
            yield from self.take()
            count += 1
        if count:
            yield from self.io("RX_CONS_0", True, self.rx_count % 1024)
            yield from self.io("RX_PROD", True, (self.rx_count + 63) % 512)
        self.raised = False
        yield from self.io("INTERRUPT_0", True, 0)
        if self.drawn["irq_again"]:
            yield from self.io("INTERRUPT_0", False)
        if self.fresh or self.completed:
            self.notify()
