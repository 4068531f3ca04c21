"""An impairment bridge between two namespaces: loses, doubles, delays and reorders frames as its seed says, and tells.

    python bridge.py '{"seed": 1, "to_right": {...}, "to_left": {...}}'

runs between the interfaces `left` and `right`, prints `ready`, and at SIGTERM prints what it did as JSON: what became
of every test frame, and how long it was held. Settings of a direction, all 0 unless given:

fixed_us                   delay of every frame
per_byte_us                further delay of test frames: per_byte * user bytes
quantum_us                 the same per begun 64 user bytes, as a switch that moves cells
jitter_us                  mean of an exponential delay on top; order is kept
loss, duplication          probabilities
reordering, reorder_us     probability of an extra delay during which later frames overtake
queue_limit                frames waiting at once; more are dropped
pause_from, pause_frames   the port sends nothing from its test frame pause_from on until pause_frames more have come

Control frames (type < 16) only have the fixed delay.

A frame is held from the kernel's stamp at its arrival, which with veth comes while its sender is still in the system
call that sends it, to the kernel's stamp at its departure. What the bridge was late is in that: it is what was done to
the frame, not what was meant to be done.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any

MAGIC = bytes.fromhex("6c4647b1")
OUTGOING = 4
SO_TIMESTAMPING = 37
SO_RCVBUFFORCE = 33
SOFTWARE_STAMPS = 1 << 1 | 1 << 3 | 1 << 4  # of departures, of arrivals, given in software


@dataclass
class Port:
    """One direction."""

    settings: dict[str, float]
    random: random.Random
    sink: socket.socket
    waiting: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    last_release_ns: int = 0
    number: int = 0
    test_frames_waiting: int = 0
    arrived: int = 0
    lost: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    user_bytes: list[int] = field(default_factory=list)
    held_us: list[float] = field(default_factory=list)

    def get(self, name: str) -> float:
        """A setting."""
        return self.settings.get(name, 0.0)

    def take(self, frame: bytes, arrival_ns: int) -> None:
        """Decide what happens to a frame."""
        user = frame[14:]
        test_frame = user[:4] == MAGIC and user[5] >= 16
        delay_us = self.get("fixed_us")
        if test_frame:
            delay_us += self.get("per_byte_us") * len(user) + self.get("quantum_us") * math.ceil(len(user) / 64)
            if self.get("jitter_us"):
                delay_us += self.random.expovariate(1 / self.get("jitter_us"))
        release_ns = max(arrival_ns + round(delay_us * 1e3), self.last_release_ns)
        copies = 1
        if test_frame:
            sequence = int.from_bytes(user[16:20], "big")
            self.arrived += 1
            if self.random.random() < self.get("loss"):
                self.lost.append(sequence)
                return
            if self.get("queue_limit") and self.test_frames_waiting >= self.get("queue_limit"):
                self.dropped.append(sequence)
                return
            copies += self.random.random() < self.get("duplication")
        if test_frame and self.random.random() < self.get("reordering"):
            release_ns += round(self.get("reorder_us") * 1e3)
        else:
            self.last_release_ns = release_ns
        for _ in range(copies):
            heapq.heappush(self.waiting, (release_ns, self.number, arrival_ns, frame))
            self.number += 1
            self.test_frames_waiting += test_frame

    def paused(self) -> bool:
        """Whether the port sends nothing now."""
        return 0 <= self.arrived - self.get("pause_from") - 1 < self.get("pause_frames")

    def give(self) -> None:
        """Send what is due."""
        while not self.paused() and self.waiting and self.waiting[0][0] <= time.time_ns():
            _, _, arrival_ns, frame = heapq.heappop(self.waiting)
            self.sink.send(frame)
            _, departure_ns, _ = receive(self.sink, socket.MSG_ERRQUEUE)
            if frame[14:18] == MAGIC and frame[19] >= 16:
                self.test_frames_waiting -= 1
                self.sent.append(int.from_bytes(frame[30:34], "big"))
                self.user_bytes.append(len(frame) - 14)
                self.held_us.append((departure_ns - arrival_ns) / 1e3)

    def truth(self) -> dict[str, Any]:
        """What was done to the test frames; those sent in the order they went."""
        names = ("arrived", "lost", "dropped", "sent", "user_bytes", "held_us")
        return {name: getattr(self, name) for name in names}


def receive(port: socket.socket, flags: int = 0) -> tuple[bytes, int, Any]:
    """A frame, when the kernel saw it (CLOCK_REALTIME, ns), and its address, if it is one that arrived."""
    frame, extras, _, address = port.recvmsg(2048, 256, flags)
    seconds, nanoseconds = next(struct.unpack("qq", data[:16]) for _, kind, data in extras if kind == SO_TIMESTAMPING)
    return frame, seconds * 1_000_000_000 + nanoseconds, address


def open_port(name: str) -> socket.socket:
    """A packet socket that sees every frame of an interface."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
    port.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SOFTWARE_STAMPS)
    port.bind((name, 3))
    port.setblocking(False)
    return port


def main(settings: dict[str, Any]) -> None:
    """Bridge until SIGTERM."""
    # Delays are only as good as this process is punctual. It sleeps in between: spinning it would hold up the kernel's
    # own work on its CPU, and with it the frames.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    left, right = open_port("left"), open_port("right")
    ports = {
        left: Port(settings["to_right"], random.Random(settings["seed"]), right),
        right: Port(settings["to_left"], random.Random(settings["seed"] + 1), left),
    }
    ended = False

    def end(number: int, frame: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    while not ended:
        now_ns = time.time_ns()
        ready = [port.waiting[0][0] for port in ports.values() if port.waiting and not port.paused()]
        due_ns = min(ready, default=now_ns + 10_000_000)
        select.select([left, right], [], [], max(0, due_ns - now_ns) / 1e9)
        for source, port in ports.items():
            for _ in range(16):
                try:
                    frame, arrival_ns, address = receive(source)
                except BlockingIOError:
                    break
                if address[2] != OUTGOING:
                    port.take(frame, arrival_ns)
            port.give()
    print(json.dumps({"to_right": ports[left].truth(), "to_left": ports[right].truth()}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
