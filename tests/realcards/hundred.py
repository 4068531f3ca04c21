"""Cards of 10 and 100 Mbit/s, by their data sheets and the Linux 2.4 drivers.

Where a data sheet leaves it open when a card reads or writes (it does often) both ways that are known are drawn.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar

from cardbench.events import Process

from .nic import Nic, WireFrame, pack


class Rtl8139(Nic):
    """Realtek RTL8139C: four send descriptors that are registers, one receive ring of bytes (8139too)."""

    registers: ClassVar = {"TSD": 0x10, "TSAD": 0x20, "CR": 0x37, "CAPR": 0x38, "ISR": 0x3E}
    RATES, IO, SLOTS, PAD, TX_ALIGN = (10, 100, 100), True, 4, True, (0,)

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": rng.choice((256, 1024, 1024, 2048)),  # MXDMA
            "tx_threshold": rng.choice((256, 256, 0)),  # ERTXTH
            "rx_threshold": rng.choice((0, 0, 256)),  # RXFTH, 0 a whole packet
            "mrl": rng.random() < 0.3,
            "fcs": True,
            "tsad_each": rng.random() < 0.4,  # buffers of the stack, not the driver's four
            "flush": rng.random() < 0.3,
            "rx_slots": 18,
        }

    def set_up(self) -> Process:
        for slot in range(4):
            yield from self.io("TSAD", True, self.map["tx"] + slot * 0x600, 4, 4 * slot)

    def ring(self, frame: WireFrame, slot: int) -> Process:
        if not self.drawn["tsad_each"]:
            frame.buffers["data"] = self.map["tx"] + slot * 0x600
        bells = []
        if self.drawn["tsad_each"]:
            bells.append((yield from self.io("TSAD", True, frame.buffers["data"], 4, 4 * slot)))
        value = 0x80000 | len(frame.sending)
        bells.append((yield from self.io("TSD", True, value, 4, 4 * slot, lambda: self.release(frame))))
        if self.drawn["flush"]:
            yield from self.io("TSD", False, 0, 4, 4 * slot)
        return bells

    def transmitter(self) -> Process:
        while True:
            frame = yield from self.next_released()
            yield self.wait("tx_gap")
            yield from self.load(frame, frame.buffers["data"], frame.sending, len(frame.sending))

    def receiver(self) -> Process:
        at, size = 0, 0x8000
        while True:
            frame = yield from self.next_incoming()
            data = self.memory_of(frame)
            header = pack(len(data) << 16 | 1)
            if self.drawn["rx_threshold"]:  # "early": FFF0h first, the length when it is known
                yield from self.store(frame, self.map["rx"] + at, pack(0xFFF00001) + data, 4)
                yield from self.write(self.map["rx"] + at, header, "rx_status")
            else:
                yield from self.store(frame, self.map["rx"] + at, header + data, 4)
            at = (at + 4 + len(data) + 3) // 4 * 4 % size
            self.capr = at
            self.taken(frame)
            self.notify()

    def service(self) -> Process:
        self.raised = False
        while True:
            sent = len(self.completed)
            some = bool(sent or self.fresh)
            yield from self.io("ISR", False, 0, 2)
            if not some:
                return
            yield from self.io("ISR", True, 5, 2)
            while True:
                yield from self.io("CR", False, 0, 1)
                if not self.fresh:
                    break
                yield from self.take()
                yield from self.io("CAPR", True, self.capr - 16, 2)
            if sent:
                first = self.handed - self.in_ring
                for slot in range(first, first + len(self.completed) + (self.in_ring > len(self.completed))):
                    yield from self.io("TSD", False, 0, 4, 4 * (slot % 4))
                self.reclaim()


class Ring(Nic):
    """Descriptors in memory with an OWN bit; the card stops at one that is not its own until a poll demand."""

    IO = True
    DESCRIPTOR, STATUS_AT, RX_OFFSET = 16, 0, 0
    FETCH: ClassVar[int] = 16

    def tx_at(self, index: int) -> int:
        return self.map["tx_ring"] + index % self.drawn["slots"] * self.DESCRIPTOR

    def rx_at(self, index: int) -> int:
        return self.map["rx_ring"] + index % self.drawn["rx_slots"] * self.DESCRIPTOR

    def rx_buffer(self, index: int) -> int:
        return self.map["rx"] + index % self.drawn["rx_slots"] * 0x800 + self.RX_OFFSET

    def fetch_tx(self, index: int) -> Process:
        """Read a send descriptor; gives whether the card owns it, by what was in memory when it was read."""
        owned, self.kicked = bool(self.released), False
        frame = self.released[0] if owned else None
        length = len(frame.sending) if frame else 0
        buffer = frame.buffers["data"] if frame else 0
        words = pack((1 << 31) * owned, 0x60000000 | length, buffer, self.tx_at(index + 1))
        yield from self.read(self.tx_at(index), words[: self.FETCH], "tx_desc")
        return owned

    def fetch_rx(self, index: int) -> Process:
        words = pack(1 << 31, 0x01000600, self.rx_buffer(index), self.rx_at(index + 1))
        yield from self.read(self.rx_at(index), words[: self.FETCH], "rx_desc")

    def transmitter(self) -> Process:
        index = 0
        while True:
            while not self.kicked:
                yield self.tx_work
            yield self.wait("tx_gap")
            while (yield from self.fetch_tx(index)):
                frame = self.released.popleft()
                frame.buffers["slot"] = index
                yield self.bus.clocks(self.rng.randint(2, 8))
                yield from self.load(frame, frame.buffers["data"], frame.sending, len(frame.sending))
                index += 1
                yield from self.loaded(frame)
                yield self.wait("tx_gap")

    def loaded(self, frame: WireFrame) -> Process:
        """What the card does when a frame is in its FIFO."""
        yield 0.0

    def finish(self, frame: WireFrame) -> Process:
        yield from self.write(self.tx_at(frame.buffers["slot"]) + self.STATUS_AT, pack(0), "tx_status")

    def receiver(self) -> Process:
        if self.drawn["show_configuration"]:
            yield 3000.0
            yield from self.fetch_rx(0)
        index = 0
        while True:
            frame = yield from self.next_incoming()
            yield from self.store(frame, self.rx_buffer(index), self.memory_of(frame))
            yield self.bus.clocks(self.rng.randint(4, 12))
            yield from self.rx_status(frame, index)
            self.taken(frame)
            self.notify()
            index += 1
            yield self.bus.clocks(self.rng.randint(2, 12))
            yield from self.fetch_rx(index)

    def rx_status(self, frame: WireFrame, index: int) -> Process:
        yield from self.write(self.rx_at(index) + self.STATUS_AT, pack(len(frame.on_wire) << 16 | 0x320), "rx_status")


class Tulip(Ring):
    """DEC 21140/21143: bursts of PBL dwords that end at lines (CAL), cut-through both ways (tulip)."""

    registers: ClassVar = {"CSR1": 0x08, "CSR5": 0x28, "CSR0": 0x00, "CSR3": 0x18, "CSR4": 0x20, "CSR6": 0x30}
    RATES, TX_ALIGN, SLOTS, RX_FIFO = (10, 100, 100), (0, 2), 16, 3072

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        burst = rng.choice((32, 64, 128))
        return {
            "burst": burst,  # PBL 8, 16, 32
            "cut": rng.choice((0, 32, 64, 128)),  # CAL 8, 16, 32
            "mrm": rng.random() < 0.4,
            "mrl": rng.random() < 0.4,
            "mwi": rng.random() < 0.3,
            "tx_threshold": rng.choice((128, 256, 512, 0)),
            "rx_threshold": burst,
            "fcs": True,
            "tx_every": rng.choice((1, 8)),
            "setup": rng.random() < 0.5,
        }

    def set_up(self) -> Process:
        yield from self.io("CSR0", True, 0x01A04800)
        yield from self.io("CSR3", True, self.map["rx_ring"])
        yield from self.io("CSR4", True, self.map["tx_ring"])
        yield from self.io("CSR6", True, 0x02202002)
        if self.drawn["setup"]:  # a setup frame: 192 bytes of addresses, never on the wire
            yield from self.io("CSR1", True, 0)
            at, data = self.map["status"], bytes(192)
            yield from self.read(self.tx_at(15), pack(1 << 31, 0x08000000 | 192, at, 0), "tx_desc")
            while data:
                _, count = yield from self.move(at, data, False, "setup")
                at, data = at + count, data[count:]
            yield from self.write(self.tx_at(15), pack(0x7FFFFFFF), "tx_status")

    def ring(self, frame: WireFrame, slot: int) -> Process:
        self.own(frame)
        return [(yield from self.io("CSR1", True, 0, then=self.kick))]

    def service(self) -> Process:
        while True:
            some = bool(self.completed or self.fresh)
            yield from self.io("CSR5", False)
            if not some:
                break
            yield from self.io("CSR5", True, 0x1FFFF)
            while self.fresh:
                yield from self.take()
            self.reclaim()
        self.raised = False


class Rhine(Ring):
    """VIA VT86C100A and VT6102: send buffers at dwords, bursts of the DMA length (via-rhine)."""

    registers: ClassVar = {"CMD1": 0x09, "ISR": 0x0C, "PAR": 0x00}
    RATES, TX_ALIGN = (10, 100), (0,)

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        burst = rng.choice((64, 128, 256, 512))
        return {
            "burst": burst,
            "mrl": rng.random() < 0.3,
            "tx_threshold": rng.choice((128, 256, 0)),
            "rx_threshold": rng.choice((64, 256, 0)),
            "fcs": True,
            "rx_slots": 16,
            "flush": rng.random() < 0.6,
        }

    def ring(self, frame: WireFrame, slot: int) -> Process:
        self.own(frame)
        bell = yield from self.io("CMD1", True, 0x20, 1, then=self.kick)
        if self.drawn["flush"]:
            yield from self.io("PAR", False, 0, 1)
        return [bell]

    def service(self) -> Process:
        while True:
            some = bool(self.completed or self.fresh)
            yield from self.io("ISR", False, 0, 2)
            if not some:
                break
            yield from self.io("ISR", True, 3, 2)
            while self.fresh:
                yield from self.take()
            self.reclaim()
        self.raised = False


class PcNet(Ring):
    """AMD Am79C970A/C971: looks at its descriptors by itself, bursts of up to 16 dwords (pcnet32, SWSTYLE 2)."""

    registers: ClassVar = {"RDP": 0x10, "RAP": 0x12}
    RATES, TX_ALIGN, STATUS_AT, SLOTS = (10, 100), (0, 2), 4, 16
    TX_FIFO, RX_FIFO = 1600, 2048

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": 64,
            "tx_threshold": rng.choice((64, 112, 0)),  # XMTSP
            "rx_threshold": rng.choice((64, 112)),  # RCVFW
            "fcs": True,
            "rx_slots": 32,
            "single": rng.random() < 0.6,  # descriptors dword by dword
            "io": True,  # pcnet32 knows no other way
            "base": 0xE400,
        }

    def engines(self) -> list[Process]:
        return [*super().engines(), self.poll()]

    def poll(self) -> Process:
        """Every 1.6 ms."""
        yield self.rng.uniform(0, 1.6e6)
        while True:
            self.kick()
            yield 1.6e6

    def fetch_tx(self, index: int) -> Process:
        owned, self.kicked = bool(self.released), False
        buffer = self.released[0].buffers["data"] if owned else 0
        yield from self.pair(self.tx_at(index), buffer, 0x8300F000 * owned, "tx_desc", owned)
        return owned

    def fetch_rx(self, index: int) -> Process:
        yield from self.pair(self.rx_at(index), self.rx_buffer(index), 0x8000F9F0, "rx_desc", True)

    def pair(self, at: int, buffer: int, flags: int, kind: str, owned: bool) -> Process:
        """MD1 with OWN first, then MD0, the address; both in one burst where that is drawn."""
        if not self.drawn["single"]:
            yield from self.read(at, pack(buffer, flags), kind)
            return
        yield from self.read(at + 4, pack(flags), kind)
        if owned:
            yield self.bus.clocks(2)
            yield from self.read(at, pack(buffer), kind)

    def rx_status(self, frame: WireFrame, index: int) -> Process:
        at = self.rx_at(index)
        yield from self.write(at + 8, pack(len(frame.on_wire)), "rx_status")
        yield from self.write(at + 4, pack(0x0300F9F0), "rx_status")

    def ring(self, frame: WireFrame, slot: int) -> Process:
        self.own(frame)
        first = yield from self.io("RAP", True, 0, 2)
        return [first, (yield from self.io("RDP", True, 0x48, 2, then=self.kick))]

    def service(self) -> Process:
        yield from self.io("RAP", False, 0, 2)
        while True:
            some = bool(self.completed or self.fresh)
            yield from self.io("RAP", True, 0, 2)
            yield from self.io("RDP", False, 0, 2)
            if not some:
                break
            yield from self.io("RAP", True, 0, 2)
            yield from self.io("RDP", True, 0x7940, 2)
            while self.fresh:
                yield from self.take()
            self.reclaim()
        self.raised = False
        yield from self.io("RAP", True, 0, 2)
        yield from self.io("RDP", True, 0x7940, 2)
        yield from self.io("RAP", True, 0, 2)


class Eepro100(Ring):
    """Intel 82557/82558: command blocks with buffer descriptors, receive frames lie behind their RFD (eepro100)."""

    registers: ClassVar = {"STATUS": 0x00, "ACK": 0x01, "COMMAND": 0x02}
    RATES, SLOTS, TX_ALIGN, RX_OFFSET = (10, 100, 100), 32, (0, 2), 16
    DESCRIPTOR, FETCH = 32, 16

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        extended = rng.random() < 0.5
        return {
            "extended": extended,  # 82558: block and buffer descriptors in one read
            "burst": rng.choice((64, 128, 508, 4096)),
            "mwi": extended and rng.random() < 0.5,
            "mrm": extended and rng.random() < 0.5,
            "tx_threshold": rng.choice((256, 896, 0)),
            "rx_threshold": rng.choice((32, 64, 128)),
            "tx_every": rng.choice((1, 8)),
            "wait_command": rng.random() < 0.8,
        }

    def rx_at(self, index: int) -> int:
        return self.rx_buffer(index) - 16

    def fetch_tx(self, index: int) -> Process:
        owned, self.kicked = bool(self.released), False
        if not owned:  # it suspends by the S bit of the block before, it does not look
            return False
        frame, at = self.released[0], self.tx_at(index)
        block = pack(0x000C0000, self.tx_at(index + 1), at + 16, 0x02208000)
        array = pack(frame.buffers["data"], len(frame.sending))
        if self.drawn["extended"]:
            yield from self.read(at, block + array + pack(0, 0), "tx_desc")
        else:
            yield from self.read(at, block, "tx_desc")
            yield self.bus.clocks(self.rng.randint(2, 6))
            yield from self.read(at + 16, array, "tx_desc")
        return True

    def loaded(self, frame: WireFrame) -> Process:
        yield from self.write(self.tx_at(frame.buffers["slot"]), b"\0\xa0", "tx_status")

    def finish(self, frame: WireFrame) -> Process:
        yield 0.0

    def rx_status(self, frame: WireFrame, index: int) -> Process:
        at = self.rx_at(index)
        yield from self.write(at + 12, (0xC000 | len(frame.on_wire) - 4).to_bytes(2, "little"), "rx_status")
        yield from self.write(at, b"\x20\xa0", "rx_status")

    def ring(self, frame: WireFrame, slot: int) -> Process:
        bells = []
        self.own(frame)
        if self.drawn["wait_command"]:
            bells.append((yield from self.io("COMMAND", False, 0, 1)))
        bells.append((yield from self.io("COMMAND", True, 0x20, 1, then=self.kick)))
        return bells

    def service(self) -> Process:
        while True:
            some = bool(self.completed or self.fresh)
            yield from self.io("STATUS", False, 0, 2)
            if not some:
                break
            yield from self.io("ACK", True, 0x50, 1)
            while self.fresh:
                yield from self.take()
            self.reclaim()
        self.raised = False


class Boomerang(Ring):
    """3Com 3C905B: download and upload lists, stalled while the driver changes them (3c59x)."""

    registers: ClassVar = {"CMD": 0x0E, "DNLIST": 0x24}
    RATES, RX_OFFSET, STATUS_AT = (10, 100, 100), 2, 4

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": rng.choice((64, 128, 256, 512)),
            "mrl": rng.random() < 0.5,
            "mrm": rng.random() < 0.5,
            "mwi": rng.random() < 0.3,
            "tx_threshold": rng.choice((256, 512, 0)),
            "rx_threshold": rng.choice((64, 256, 0)),
            "complete": rng.random() < 0.7,  # dnComplete is written to memory
        }

    def fetch_tx(self, index: int) -> Process:
        self.kicked = False
        if not self.released:  # the next pointer of the block before was 0
            return False
        frame = self.released[0]
        words = pack(0, 0x80000000 | len(frame.sending), frame.buffers["data"], 0x80000000 | len(frame.sending))
        yield from self.read(self.tx_at(index), words, "tx_desc")
        return True

    def loaded(self, frame: WireFrame) -> Process:
        if self.drawn["complete"]:
            yield from self.write(self.tx_at(frame.buffers["slot"]) + 4, pack(0x80010000), "tx_status")
        yield 0.0

    def finish(self, frame: WireFrame) -> Process:
        yield 0.0

    def rx_status(self, frame: WireFrame, index: int) -> Process:
        yield from self.write(self.rx_at(index) + 4, pack(0x8000 | len(frame.on_wire) - 4), "rx_status")

    def ring(self, frame: WireFrame, slot: int) -> Process:
        empty = bool(self.tx_work.waiting)
        bells = [(yield from self.io("CMD", True, 0x3002, 2)), (yield from self.io("CMD", False, 0, 2))]
        bells.append((yield from self.io("DNLIST", False)))
        if empty:
            bells.append((yield from self.io("DNLIST", True, self.tx_at(slot))))
        bells.append((yield from self.io("CMD", True, 0x3003, 2, then=lambda: self.release(frame))))
        return bells

    def service(self) -> Process:
        yield from self.io("CMD", False, 0, 2)
        while True:
            if self.fresh:
                yield from self.io("CMD", True, 0x6C10, 2)
                while self.fresh:
                    yield from self.take()
            if self.completed:
                yield from self.io("CMD", True, 0x6A00, 2)
                yield from self.io("DNLIST", False)
                self.reclaim()
            yield from self.io("CMD", True, 0x6801, 2)
            some = bool(self.completed or self.fresh)
            yield from self.io("CMD", False, 0, 2)
            if not some:
                break
        self.raised = False


class Dp83815(Ring):
    """National DP83815: descriptors linked by pointers, link read again when it is told to go on (natsemi)."""

    registers: ClassVar = {"CR": 0x00, "ISR": 0x10}
    RATES, IO, DESCRIPTOR, FETCH, STATUS_AT = (10, 100), False, 16, 12, 4

    @staticmethod
    def draw(rng: random.Random) -> dict[str, Any]:
        return {
            "burst": rng.choice((64, 128, 256)),  # MXDMA
            "tx_threshold": rng.choice((256, 512, 0)),  # drain threshold
            "rx_threshold": rng.choice((64, 128, 248)),
            "fcs": True,
            "mrl": rng.random() < 0.3,
            "tx_every": rng.choice((1, 4)),
        }

    def fetch_tx(self, index: int) -> Process:
        owned, self.kicked = bool(self.released), False
        if owned and self.stopped:
            yield from self.read(self.tx_at(index - 1), pack(self.tx_at(index)), "tx_desc")
            yield self.bus.clocks(self.rng.randint(2, 6))
        frame = self.released[0] if owned else None
        length, buffer = (len(frame.sending), frame.buffers["data"]) if frame else (0, 0)
        yield from self.read(
            self.tx_at(index), pack(self.tx_at(index + 1), (1 << 31) * owned | length, buffer), "tx_desc"
        )
        self.stopped = not owned
        return owned

    stopped = True

    def fetch_rx(self, index: int) -> Process:
        yield from self.read(self.rx_at(index), pack(self.rx_at(index + 1), 0x600, self.rx_buffer(index)), "rx_desc")

    def rx_status(self, frame: WireFrame, index: int) -> Process:
        yield from self.write(self.rx_at(index) + 4, pack(0x88000000 | len(frame.on_wire)), "rx_status")

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
        self.raised = False
