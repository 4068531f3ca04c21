"""The whole bench: two hosts, the link, and the applications that send the frames of a test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from random import Random
from typing import Protocol

from pcitrace.simulate.bus import Bus, BusLog
from pcitrace.simulate.config import Simulation, TestParameters
from pcitrace.simulate.events import Process, Scheduler
from pcitrace.simulate.frame import Frame
from pcitrace.simulate.host import CsrLog, Host
from pcitrace.simulate.nic import US, BurstLog, Nic


class BenchLog(BusLog, BurstLog, CsrLog, Protocol):
    """Everything that a bench reports."""

    def frame(self, frame: Frame) -> None:
        """Take a new frame; its times fill in as they happen."""


class Bench:
    """Hosts A and B. `run` advances time; what happened goes to the log and to the buses' line changes."""

    def __init__(self, simulation: Simulation, seed: int, log: BenchLog) -> None:
        self.simulation = simulation
        self.scheduler = Scheduler()
        self._log = log
        self._random = Random(f"{seed} applications")
        self._frames = 0
        self._sequence = {"A": 0, "B": 0}
        wires = simulation.analyser.wires
        self.hosts: dict[str, Host] = {}
        nics = []
        for name, host in (("A", simulation.a), ("B", simulation.b)):
            # Each part draws from its own stream, so that a parameter of one does not shift the others.
            bus = Bus(
                name,
                host.bus,
                host.nic,
                self.scheduler,
                Random(f"{seed} bus {name}"),
                log,
                command_captured=wires in ("command", "full"),
            )
            nic = Nic(
                name,
                host.nic,
                bus,
                simulation.link,
                self.scheduler,
                Random(f"{seed} nic {name}"),
                log,
                contents=wires == "full",
            )
            self.hosts[name] = Host(name, host, bus, nic, self.scheduler, Random(f"{seed} host {name}"), log)
            nic.host = self.hosts[name]
            nics.append(nic)
        nics[0].peer, nics[1].peer = nics[1], nics[0]
        self.scheduler.spawn(self._start())

    @property
    def buses(self) -> list[Bus]:
        """The buses of A and B."""
        return [host.bus for host in self.hosts.values()]

    def run(self, until_us: float) -> bool:
        """Advance to a time; False once nothing more can happen."""
        return self.scheduler.run(until_us * US)

    def _start(self) -> Process:
        test = self.simulation.test
        yield 2.0 * US
        if test.configure:
            for host in self.hosts.values():
                self.scheduler.spawn(host.configure())
        yield max(0.0, test.start_us * US - self.scheduler.now_ns)
        if test.kind in ("request-response", "ping-pong"):
            self.hosts["A"].on_delivery = self._reply_received
            self.hosts["B"].on_delivery = self._serve
            self.scheduler.spawn(self._requests(test))
        else:
            self.scheduler.spawn(self._stream("A", "B", test))
            if test.kind == "bidirectional":
                self.scheduler.spawn(self._stream("B", "A", test))

    def _new_frame(self, sender: str, length_bytes: int, reply_to: Frame | None = None) -> Frame:
        receiver = "B" if sender == "A" else "A"
        frame = Frame(self._frames, sender, receiver, self._sequence[sender], length_bytes, reply_to)
        self._frames += 1
        self._sequence[sender] += 1
        self._log.frame(frame)
        return frame

    # --- request-response and ping-pong: A asks, B answers

    def _requests(self, test: TestParameters) -> Process:
        for _, size in zip(range(test.count), cycle(test.sizes), strict=False):
            ping = test.kind == "ping-pong"
            request = self._new_frame("A", size if ping else test.request_bytes)
            request.wanted_bytes = size
            self.scheduler.spawn(self.hosts["A"].send(request))
            self.scheduler.at(self.scheduler.now_ns + test.timeout_us * US, self._give_up, request)
            yield request.done
            yield test.turnaround_us * US

    def _serve(self, request: Frame) -> None:
        self.scheduler.spawn(self.hosts["B"].send(self._new_frame("B", request.wanted_bytes, request)))

    def _reply_received(self, reply: Frame) -> None:
        request = reply.reply_to
        if request is not None and not request.done.fired:
            request.done.fire()

    def _give_up(self, request: Frame) -> None:
        if not request.done.fired:
            request.done.fire()

    # --- streams

    def _stream(self, sender: str, receiver: str, test: TestParameters) -> Process:
        host = self.hosts[sender]
        due_ns = self.scheduler.now_ns
        for _, size, gap_us in zip(range(test.count), cycle(test.sizes), self._gaps(test), strict=False):
            yield max(0.0, due_ns - self.scheduler.now_ns)
            self.scheduler.spawn(host.send(self._new_frame(sender, size)))
            due_ns += gap_us * US
        yield 0.0  # the last call has been made
        host.flush()

    def _gaps(self, test: TestParameters) -> Iterator[float]:
        while True:
            if test.arrivals == "poisson":
                yield self._random.expovariate(1.0 / test.spacing_us)
            else:
                yield test.spacing_us
