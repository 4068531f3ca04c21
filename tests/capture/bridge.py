"""An impairment bridge between two namespaces: loses, doubles, delays and reorders frames as its seed says, and tells.

    python bridge.py '{"seed": 1, "to_right": {...}, "to_left": {...}}'

runs between the interfaces `left` and `right`, prints `ready`, and at SIGTERM prints what it did as JSON. Settings of a
direction, all 0 unless given:

fixed_us, per_byte_us      delay of every frame: fixed + per_byte * length (without FCS)
quantum_us                 the same per begun 64 bytes, as a switch that moves cells
jitter_us                  mean of an exponential delay on top; order is kept
loss, duplication          probabilities
reordering, reorder_us     probability of an extra delay during which later frames overtake
queue_limit                frames waiting at once; more are dropped
pause_from_s, pause_s      the port sends nothing for pause_s, from pause_from_s after its first test frame

Loss, duplication, reordering, the limit and the pause are for test frames (type >= 16);
control frames are only delayed.
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
import sys
import time
from dataclasses import dataclass, field
from typing import Any

MAGIC = bytes.fromhex("6c4647b1")
OUTGOING = 4


@dataclass
class Port:
    """One direction."""

    settings: dict[str, float]
    random: random.Random
    sink: socket.socket
    waiting: list[tuple[float, int, bytes]] = field(default_factory=list)
    last_release: float = 0.0
    number: int = 0
    test_frames_waiting: int = 0
    first_test_frame: float | None = None
    arrived: int = 0
    lost: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def get(self, name: str) -> float:
        """A setting."""
        return self.settings.get(name, 0.0)

    def take(self, frame: bytes, now: float) -> None:
        """Decide what happens to a frame."""
        user = frame[14:]
        test_frame = user[:4] == MAGIC and user[5] >= 16
        delay_us = self.get("fixed_us") + self.get("per_byte_us") * len(frame)
        delay_us += self.get("quantum_us") * math.ceil(len(frame) / 64)
        if self.get("jitter_us"):
            delay_us += self.random.expovariate(1 / self.get("jitter_us"))
        release = max(now + delay_us * 1e-6, self.last_release)
        copies = 1
        if test_frame:
            sequence = int.from_bytes(user[16:20], "big")
            self.arrived += 1
            if self.first_test_frame is None:
                self.first_test_frame = now
            if self.random.random() < self.get("loss"):
                self.lost.append(sequence)
                return
            if self.get("queue_limit") and self.test_frames_waiting >= self.get("queue_limit"):
                self.dropped.append(sequence)
                return
            copies += self.random.random() < self.get("duplication")
            paused_from = self.first_test_frame + self.get("pause_from_s")
            if paused_from <= release < paused_from + self.get("pause_s"):
                release = paused_from + self.get("pause_s")
        if test_frame and self.random.random() < self.get("reordering"):
            release += self.get("reorder_us") * 1e-6
        else:
            self.last_release = release
        for _ in range(copies):
            heapq.heappush(self.waiting, (release, self.number, frame))
            self.number += 1
            self.test_frames_waiting += test_frame

    def give(self, now: float) -> None:
        """Send what is due."""
        while self.waiting and self.waiting[0][0] <= now:
            frame = heapq.heappop(self.waiting)[2]
            self.sink.send(frame)
            if frame[14:18] == MAGIC and frame[19] >= 16:
                self.test_frames_waiting -= 1
                self.sent.append(int.from_bytes(frame[30:34], "big"))

    def truth(self) -> dict[str, Any]:
        """What was done to the test frames; sequences in the order they went."""
        return {"arrived": self.arrived, "lost": self.lost, "dropped": self.dropped, "sent": self.sent}


def open_port(name: str) -> socket.socket:
    """A packet socket that sees every frame of an interface."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 25)
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
        now = time.perf_counter()
        due = min((port.waiting[0][0] for port in ports.values() if port.waiting), default=now + 0.01)
        select.select([left, right], [], [], max(0.0, due - now))
        for source, port in ports.items():
            for _ in range(16):
                try:
                    frame, address = source.recvfrom(2048)
                except BlockingIOError:
                    break
                if address[2] != OUTGOING:
                    port.take(frame, time.perf_counter())
            port.give(time.perf_counter())
    print(json.dumps({"to_right": ports[left].truth(), "to_left": ports[right].truth()}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
