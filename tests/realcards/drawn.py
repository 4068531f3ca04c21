"""What differs from machine to machine: bus, bridge, driver times, traffic. The card's settings are its design's."""

from __future__ import annotations

import random
from typing import Any

from .nic import Nic


def draw(design: type[Nic], seed: int) -> dict[str, Any]:
    name = design.__name__.lower()
    rng = random.Random(f"realcards {name} {seed}")
    rate = rng.choice(design.RATES)
    fast = design.WIDE and rng.random() < 0.3
    kind = rng.choice(("stream", "ping-pong", "request-response", "bidirectional"))
    many = rng.random() < 0.06 and rate > 10

    def bridge() -> dict[str, Any]:
        read = rng.randint(3, 9)
        return {
            "devsel": rng.choice((1, 2, 2)),
            "retry": rng.choice((0.0, 0.0, 0.01, 0.1)),
            "wait": rng.choice((0.0, 0.01, 0.03)),
            "each": 0,
            "initiator_wait": rng.choice((0.0, 0.0, 0.01)),
            "write_first": (0, rng.choice((0, 1, 2))),
            "read_first": (read, read + rng.choice((0, 2, 6))),
            "boundary": rng.choice((4096, 4096, 1024, 256, 64, 32)),
            "stop": rng.choice(("TS", "TS", "S")),
            "disconnect": rng.choice((0.0, 0.0, 0.003)),
        }

    same = bridge()
    busy = rng.random() < 0.15
    first_send = rng.uniform(800, 3000)
    drawn: dict[str, Any] = {
        "design": name,
        "family": name,
        "seed": seed,
        "rate": rate,
        "width": 64 if fast and rng.random() < 0.6 else 32,
        "mhz": 66.0 if fast else 33.0,
        "hosts": "AB",
        "clock_ppm": [rng.uniform(-60, 60), rng.uniform(-60, 60)],
        "arbiter_wait": rng.choice((0, 1, 2)),
        "park": rng.choice(("last", "none")),
        "memory": {"A": same, "B": bridge() if rng.random() < 0.3 else same},
        "registers": {
            "devsel": rng.choice((1, 2, 2)),
            "read_wait": rng.choice(((1, 2), (2, 4), (4, 8))),
            "write_wait": rng.choice((0, 0, 1, 2)),
            "delay": 0,
            "retry": 0,
            "act": rng.choice((None, None, "TS")),
        },
        "base": 0xFEB00000,
        "io": design.IO and rng.random() < 0.6,
        "line": rng.choice((32, 32, 64)),
        "latency_timer": rng.choice((32, 64, 64, 248)),
        "retry_gap": rng.choice((2, 3, 5)),
        "piece_gap": rng.choice(((1, 1), (2, 3), (4, 6), (8, 9))),
        "rx_first": rng.random() < 0.7,
        "rewait": False,  # whether a burst that was cut waits for its FIFO again before it goes on
        "mwi": False,
        "mrl": False,
        "mrm": False,
        "burst": 4096,
        "cut": 0,
        "tx_fifo": design.TX_FIFO,
        "rx_fifo": design.RX_FIFO,
        "tx_threshold": 0,
        "rx_threshold": 0,
        "tx_latency": rng.choice(((300, 340), (900, 1200), (400, 1500))),
        "rx_latency": rng.choice(((200, 300), (800, 1100), (300, 1500))),
        "phy_delay": 2.5 * 8000 / rate + rng.uniform(100, 200),
        "fcs": False,
        "slots": design.SLOTS,
        "tx_every": 1,
        "tx_gap": rng.choice(((90, 150), (300, 600), (200, 1200))),
        "rx_slots": 32,
        "tx_offset": rng.choice(design.TX_ALIGN),
        "cpu_gap": rng.choice((4, 8)),
        "cpu_access": rng.choice((30.0, 90.0, 300.0)),
        "cpu_send": (first_send, first_send * rng.choice((1.1, 2.0))),
        "cpu_receive": (1000.0, rng.choice((1500.0, 4000.0))),
        "irq_latency": (1500.0, rng.choice((2500.0, 8000.0))),
        "show_configuration": rng.random() < 0.2,
        "loss": rng.choice((0.0, 0.0, 0.0, 0.02)),
        "kind": kind,
        "frames": 200 if many else rng.randint(24, 40),
        "sizes": rng.choice(([50], [1500], "any", "any", "sweep", [64, 512, 1024, 1500])),
        "think": rng.choice(((2000.0, 9000.0), (20000.0, 60000.0))),
        "together": rng.choice((1, 1, 1, 3)),
        "spacing": rng.choice((0.9, 1.3, 3.0)),
        "arrivals": rng.choice(("regular", "poisson", "saturating")),
        "other_rate": 40000.0 if busy else 0,
        "other_grant": rng.random() < 0.5,
        "other_beats": 16,
        "graphics_rate": 20000.0 if busy and rng.random() < 0.5 else 0,
        "reads_rate": 0,
        "begin": 0.0,
        "sequence": True,
        "vcd_unit": rng.choice((1.0, 0.1)),
        "sr_rate": 200 if fast else 100,
        "sr_ppm": rng.uniform(-40, 40),
        "jitter": 0.5,
    }
    if drawn["io"]:
        drawn["base"] = 0xE400
    return drawn | design.draw(rng)
