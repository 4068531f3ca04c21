"""Two hosts and what is sent between them, and the truth of it."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any

import numpy as np

from .bus import Bus, Memory, Registers, Transaction
from .cards import draw
from .events import Process, Signal, World
from .frame import Frame
from .host import Host


class Bench:
    """One run: what was drawn, and everything that happened; `frames`: so many, instead of the number drawn.

    Attributes
    ----------
    drawn : dict
        See :mod:`cardbench.cards`.
    hosts : dict of str to Host
        Each with its `bus`, whose `done` are the transactions in order.
    frames : list of Frame
    begin, end : float
        Times in ns between which the capture runs.
    """

    def __init__(self, family: str, seed: int, frames: int | None = None) -> None:
        self.drawn = drawn = draw(family, seed)
        drawn["frames"] = frames or drawn["frames"]
        self.rng = random.Random(f"{family} {seed} traffic")
        self.world = World()
        self.hosts: dict[str, Host] = {}
        for name, ppm in zip("AB", drawn["clock_ppm"], strict=True):
            period = (30.0 if drawn["mhz"] == 33.0 else 15.0) * (1 + ppm * 1e-6)
            bus = Bus(
                self.world, period, self.rng.uniform(0, period), drawn["arbiter_wait"], random.Random(f"{seed} {name}")
            )
            self.hosts[name] = Host(name, self.world, drawn, bus)
        a, b = self.hosts["A"], self.hosts["B"]
        a.peer, b.peer = b, a
        self.frames: list[Frame] = []
        self.open = 0
        self.finished = False
        self.changed = Signal(self.world)
        for host in self.hosts.values():
            host.concluded = self.conclude
            host.arrived = self.arrive
            host.start()
            self.neighbours(host)
        self.world.start(self.traffic())
        self.world.end = 4e7  # a run that hangs ends, and is an error
        self.world.run()
        if self.open or not self.finished:
            raise RuntimeError(f"{family} {seed}: {self.open} of {len(self.frames)} frames never arrived")
        self._window()

    # Traffic

    def size(self, number: int) -> int:
        sizes, rng = self.drawn["sizes"], self.rng
        if isinstance(sizes, list):
            return int(sizes[number % len(sizes)])
        if sizes == "sweep":
            return 46 + number * 24 % 1455
        low, high = {"any": (46, 1500), "short": (46, 300), "tiny": (1, 60)}[sizes]
        return rng.randint(low, high)

    def new(self, sender: str, number: int, user_bytes: int) -> Frame:
        frame = Frame(sender, number, user_bytes)
        self.frames.append(frame)
        self.open += 1
        return frame

    def traffic(self) -> Process:
        yield 8000.0 if not self.drawn["show_configuration"] else 12000.0
        kind = self.drawn["kind"]
        if kind in ("stream", "bidirectional"):
            senders = "AB" if kind == "bidirectional" else "A"
            self.streams = len(senders)
            for sender in senders:
                self.world.start(self.stream(sender, self.drawn["frames"] // len(senders)))
            while self.streams:
                yield self.changed
        else:
            yield from self.requests()
        while self.open:
            yield self.changed
        self.finished = True
        self.world.end = self.world.now + self.rng.uniform(4000, 20000)

    def stream(self, sender: str, count: int) -> Process:
        drawn, rng, host = self.drawn, self.rng, self.hosts[sender]
        together, number = drawn["together"], 0
        byte = 8.0 if drawn["rate"] == 1000 else 80.0
        while number < count:
            many = min(together, count - number)
            frames = [self.new(sender, number + i, self.size(number + i)) for i in range(many)]
            number += many
            host.do(host.send(frames))
            load = sum(frame.wire_bytes + 12 for frame in frames) * byte
            gap = drawn["spacing"] * max(load, many * 3000)
            if drawn["arrivals"] == "saturating":
                while host.tasks:
                    yield 200.0
                yield 200.0
            else:
                yield gap if drawn["arrivals"] == "regular" else rng.expovariate(1 / gap)
        self.streams -= 1
        self.changed.fire()

    def requests(self) -> Process:
        """A sends; B answers when it has seen it; then A thinks."""
        drawn, number = self.drawn, 0
        while len(self.frames) < drawn["frames"]:
            a = self.hosts["A"]
            ping = drawn["kind"] == "ping-pong"
            a.do(a.send([self.new("A", number, self.size(number) if ping else self.request)]))
            number += 1
            while self.open:
                yield self.changed
            yield self.rng.uniform(*drawn["think"])

    @cached_property
    def request(self) -> int:
        """User bytes of a request."""
        return self.rng.randint(1, 60) if self.drawn["sizes"] == "tiny" else self.rng.choice((46, 64, 100))

    def arrive(self, host: Host, frame: Frame) -> None:
        if self.drawn["kind"] in ("request-response", "ping-pong") and host.name == "B":
            size = frame.user_bytes if self.drawn["kind"] == "ping-pong" else self.size(frame.number)
            host.do(host.send([self.new("B", frame.number, size)]))
        self.conclude(frame)

    def conclude(self, frame: Frame) -> None:
        self.open -= 1
        self.changed.fire()

    # What else uses a bus

    def neighbours(self, host: Host) -> None:
        drawn = self.drawn
        for rate, what in (
            (drawn["other_rate"], "X"),
            (drawn["graphics_rate"], "screen"),
            (drawn["reads_rate"], "reads"),
        ):
            if rate:
                self.world.start(self.neighbour(host, rate, what))

    def neighbour(self, host: Host, rate: float, what: str) -> Process:
        rng = random.Random(f"{self.drawn['seed']} {host.name} {what}")
        memory = Memory(
            {**self.drawn["memory"][host.name], "initiator_wait": 0.02, "disconnect": 0.0},
            rng,
            np.random.default_rng(rng.getrandbits(32)),
        )
        device = Registers(
            {"devsel": rng.choice((1, 2)), "read_wait": (2, 6), "write_wait": 1, "delay": 0, "retry": 0, "act": None},
            rng,
        )
        at = host.map["other"]
        while True:
            yield rng.expovariate(rate) * 1e9
            count = (
                rng.choice((1, self.drawn["other_beats"]))
                if what == "X"
                else rng.choice((1, 1, 2, 8))
                if what == "screen"
                else 1
            )
            write = what == "screen" or (what == "X" and rng.random() < 0.5)
            address = (
                at + rng.randrange(0, 0x4000, 4 * count) if what == "X" else 0xC0000000 + rng.randrange(0, 1 << 20, 4)
            )
            words = np.array([rng.getrandbits(32) for _ in range(count)], np.uint64)
            answer = memory.answer if what == "X" else device.answer
            command = "MW" if write else "MRM" if count > 8 else "MR"
            while True:
                txn = Transaction(
                    "X" if what == "X" else "HOST", command, address, words, np.zeros(count, np.uint8), answer, what
                )
                txn.latency_timer = 64
                yield host.bus.request(txn)
                if not txn.retried:
                    break
                yield host.bus.clocks(4)

    # Truth

    def _window(self) -> None:
        """Begin and end of the capture: both buses are idle where it begins, and neither is for good."""
        ends = [max(host.bus.time(txn.last_clock) for txn in host.bus.done) for host in self.hosts.values()]
        last = max(ends)
        self.end = max(self.world.end, last + 500)
        self.begin = 0.0
        if self.drawn["begin"]:
            wanted, busy, gaps = self.drawn["begin"] * last, 0.0, []
            spans = [
                (host.bus.time(txn.clock - 3), host.bus.time(txn.last_clock + 3))
                for host in self.hosts.values()
                for txn in host.bus.done
            ]
            for start, stop in sorted(spans):
                if start > busy:
                    gaps.append(min(max(wanted, busy), start))
                busy = max(busy, stop)
            gaps = [time for time in gaps if time < min(ends)]
            self.begin = min(gaps, key=lambda time: abs(time - wanted), default=0.0)

    def pieces(self, host: Host, txns: list[Transaction]) -> list[list[Any]]:
        ends = {None: 0, "TS": 2, "S": 3}
        return [
            [
                self.stamp(host, txn.clock),
                self.stamp(host, txn.clock + int(txn.data_clocks[-1])),
                f"0x{txn.address:08x}",
                txn.moved,
                "W" if txn.write else "R",
                ends[txn.plan.stop if txn.plan else None],
            ]
            for txn in txns
            if txn.moved
        ]

    def moment(self, time: float | None) -> float | None:
        """A time in the capture, ns."""
        return None if time is None else round(time - self.begin, 3)

    def stamp(self, host: Host, clock: int) -> float:
        """Time of a clock in the capture, ns."""
        return round(float(host.bus.time(clock)) - self.begin, 3)

    def truth(self) -> list[dict[str, Any]]:
        """One dict a frame, with the keys of `truth.jsonl.gz` (docs: see the package)."""
        rows = [self._row(frame) for frame in self.frames]
        return sorted(
            (row for row in rows if row["tx_dma_first_ns"] is not None), key=lambda row: row["driver_submit_ns"]
        )

    def _row(self, frame: Frame) -> dict[str, Any]:
        mine = self.hosts[frame.sender]
        peer = mine.peer
        times: dict[str, Any] = {}
        for key, host, txns in (("tx", mine, frame.sent), ("rx", peer, frame.received)):
            moved = [txn for txn in txns if txn.moved]
            times[f"{key}_dma_first_ns"] = (
                self.stamp(host, moved[0].clock + int(moved[0].data_clocks[0])) if moved else None
            )
            times[f"{key}_dma_last_ns"] = (
                self.stamp(host, moved[-1].clock + int(moved[-1].data_clocks[-1])) if moved else None
            )
            times[f"{key}_dma_dwords"] = sum(txn.moved * (2 if txn.wide else 1) for txn in moved)
            times[f"{key}_dma_bursts"] = self.pieces(host, txns)
        first = frame.sent[0].clock if frame.sent else 0
        before = mine.bus.time(first)
        bells = {time for other in self.frames if other.sender == frame.sender for time in other.doorbell}
        could = [time for time in sorted(bells) if frame.doorbell and frame.doorbell[0] <= time < before]
        own = [time for access in frame.accesses for time in access]
        known = [times["tx_dma_first_ns"], self.moment(frame.wire_start), *(self.moment(t) for t in own)]
        partial = any(time is not None and time < 0 for time in known)
        return {
            "type": "frame",
            "dir": f"{frame.sender}->{peer.name}",
            "seq": frame.number,
            "user_bytes": frame.user_bytes,
            "frame_bytes_no_fcs": len(frame.on_wire) - 4,
            "wire_bytes_incl_preamble": frame.wire_bytes,
            "driver_submit_ns": self.moment(frame.submit),
            "csr_first_ns": [self.moment(time) for time in sorted({*own, *could})],
            "csr_last_ns": [self.moment(time) for time in could],
            "csr_own_first_ns": self.moment(min(own)) if own else None,
            "doorbell_first_attempt_ns": self.moment(frame.doorbell[0]) if frame.doorbell else None,
            "doorbell_last_attempt_ns": self.moment(frame.doorbell[-1]) if frame.doorbell else None,
            "release_ns": self.moment(frame.release),
            "wire_start_ns": self.moment(frame.wire_start),
            "wire_end_ns": self.moment(frame.wire_end),
            "rx_driver_seen_ns": self.moment(frame.seen),
            "rx_ok": bool(frame.received) and not partial and not frame.lost and not frame.dropped,
            "lost": frame.lost,
            "dropped": frame.dropped,
            "partial": partial,
            "rx_bytes_in_memory": len(frame.on_wire) - (0 if self.drawn["fcs"] else 4),
            **times,
        }
