"""A run: two hosts with one design of card, the traffic of cardbench, and the truth in its form."""

from __future__ import annotations

import random
from typing import Any

from cardbench.bench import Bench
from cardbench.bus import Bus
from cardbench.events import Signal, World

from .drawn import draw
from .nic import Nic, WireFrame


class RealBench(Bench):
    """As cardbench's, with a card that exists. A draw in which a card underruns is no run: RuntimeError.

    `over`: keys of what is drawn, and ``boundary``, where both bridges cut bursts.
    """

    def __init__(self, design: type[Nic], seed: int, frames: int | None = None, **over: Any) -> None:
        self.drawn = drawn = draw(design, seed) | over
        for memory in drawn["memory"].values():
            memory["boundary"] = over.get("boundary", memory["boundary"])
        drawn["frames"] = frames or drawn["frames"]
        self.rng = random.Random(f"{drawn['design']} {seed} traffic")
        self.world = World()
        self.hosts: dict[str, Any] = {}
        for name, ppm in zip("AB", drawn["clock_ppm"], strict=True):
            period = (30.0 if drawn["mhz"] == 33.0 else 15.0) * (1 + ppm * 1e-6)
            wait = random.Random(f"{seed} {name}")
            bus = Bus(self.world, period, self.rng.uniform(0, period), drawn["arbiter_wait"], wait)
            self.hosts[name] = design(name, self.world, drawn, bus)
        a, b = self.hosts["A"], self.hosts["B"]
        a.peer, b.peer = b, a
        self.frames = []
        self.open = 0
        self.finished = False
        self.changed = Signal(self.world)
        for host in self.hosts.values():
            host.concluded = self.conclude
            host.arrived = self.arrive
            host.start()
            self.neighbours(host)
        self.world.start(self.traffic())
        self.world.end = 1e8
        self.world.run()
        if self.open or not self.finished:
            raise RuntimeError(f"{drawn['design']} {seed}: {self.open} of {len(self.frames)} frames never arrived")
        self._window()

    loose = False
    """Whether a card's own header that it writes in front of a frame, in the same burst, is part of the frame."""

    def new(self, sender: str, number: int, user_bytes: int) -> WireFrame:
        frame = WireFrame(sender, number, user_bytes)
        self.frames.append(frame)
        self.open += 1
        return frame

    def _row(self, frame: Any) -> dict[str, Any]:
        """First and last data phase are those that carry bytes of the frame: not what lies before it in a burst."""
        row = super()._row(frame)
        if self.loose:
            return row
        mine = self.hosts[frame.sender]
        for key, way, host in (("tx", "sent", mine), ("rx", "received", mine.peer)):
            carried = frame.carried[way]
            if carried:
                txn, first, _ = carried[0]
                row[f"{key}_dma_first_ns"] = self.stamp(host, txn.clock + int(txn.data_clocks[first]))
                txn, _, last = carried[-1]
                row[f"{key}_dma_last_ns"] = self.stamp(host, txn.clock + int(txn.data_clocks[last]))
        return row
