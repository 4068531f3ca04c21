"""Benches with constants drawn at random: what the analysis has to recover (`make validate`)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pcitrace.simulate.config import Simulation

WIRES = ("control14", "control16", "command", "full")


def random_bench(seed: int, *, count: int = 60, wires: Sequence[str] = WIRES) -> Simulation:
    """Draw a bench.

    Parameters
    ----------
    seed : int
        One seed, one bench; give `simulate` the same or another.
    count : int
        Frames a sender, or loops.
    wires : sequence of str
        What the analyser may be wired to; one is drawn.

    Returns
    -------
    Simulation
        t_nic 1 to 30 us, wait states, burst limits 64 to 1514 bytes, 33 or 66 MHz, 32 or 64 bit, at least 3 samples a
        clock, jitter, retries, loss up to 5 %. Both hosts are alike, so that a run has one R_PCI for each direction.
        What went in is in `given`.
    """
    random = Random(f"bench {seed}")
    clock_mhz = random.choice((33.0, 33.333, 66.0, 66.666))
    fast = clock_mhz > 40
    width = random.choice((32, 64))
    period_ns = 1e3 / clock_mhz
    rates = [rate for rate in (100.0, 125.0, 200.0, 250.0, 400.0, 500.0) if rate * period_ns / 1e3 >= 3.0]
    rate_mhz = random.choice(rates)
    t_nic_us = random.uniform(1.0, 30.0)
    send_share = random.uniform(0.2, 0.8)
    kind = random.choice(("request-response", "ping-pong", "stream", "bidirectional"))
    sizes = tuple(sorted(random.sample(range(46, 1501), 6)))
    # Far enough apart that most frames wait for no other.
    spacing_us = 2 * t_nic_us + random.uniform(60.0, 120.0)
    values = {
        "name": f"random-{seed}",
        "title": f"bench with constants drawn at random (seed {seed})",
        "given": {"t_nic_us": t_nic_us, "clock_mhz": clock_mhz},
        "a.bus.clock_mhz": clock_mhz,
        # Two crystals are never quite alike.
        "b.bus.clock_mhz": round(clock_mhz * (1 + random.uniform(-50e-6, 50e-6)), 6),
        "host.bus.width": width,
        "host.bus.tval_ns": random.uniform(2.5, 5.0) if fast else random.uniform(3.0, 10.0),
        "host.bus.clock_jitter_ns": random.uniform(0.0, 0.1),
        "a.bus.phase_ns": random.uniform(1.0, period_ns),
        "b.bus.phase_ns": random.uniform(1.0, period_ns),
        "host.bus.memory_devsel_clks": random.randint(1, 3),
        "host.bus.memory_read_first_clks": (read_clks := random.randint(4, 14)),
        # Memory is slower to be read than to be written; control lines alone show the direction by nothing else.
        "host.bus.memory_write_first_clks": min(random.randint(1, 4), read_clks - 1),
        "host.bus.wait_probability": random.choice((0.0, random.uniform(0.0, 0.1))),
        "host.bus.initiator_wait_probability": random.choice((0.0, random.uniform(0.0, 0.03))),
        "host.bus.retry_probability": random.choice((0.0, random.uniform(0.0, 0.3))),
        "host.bus.disconnect_probability": random.choice((0.0, random.uniform(0.0, 0.01))),
        "host.bus.park": random.choice(("last", "host", "none")),
        "host.nic.bus_width": width,
        "host.nic.burst_limit_bytes": random.randint(64, 1514),
        "host.nic.send_burst_limit_bytes": random.choice((None, random.randint(64, 1514))),
        "host.nic.piece_pause_us": random.uniform(0.0, 0.2),
        "host.nic.piece_pause_jitter_us": random.uniform(0.0, 0.1),
        "host.nic.descriptor_bytes": random.choice((0, 16)),
        "host.nic.status_bytes": random.choice((0, 4, 16)),
        "host.nic.receive_status": True,
        "host.nic.send_status": random.random() < 0.5,
        "host.nic.send_start_us": random.uniform(0.5, 5.0),
        "host.nic.send_transit_us": 2 * t_nic_us * send_share,
        "host.nic.receive_transit_us": 2 * t_nic_us * (1 - send_share),
        "host.nic.transit_jitter_us": random.uniform(0.0, 0.2),
        "host.nic.csr_read_retries": (0, random.randint(0, 2)),
        "host.driver.deliver_us": random.uniform(8.0, 14.0),
        "host.driver.jitter_us": random.uniform(0.0, 0.3),
        "link.loss": random.choice((0.0, random.uniform(0.0, 0.05))),
        "test.kind": kind,
        "test.sizes": sizes,
        "test.count": count,
        "test.spacing_us": spacing_us,
        "test.arrivals": random.choice(("regular", "poisson")),
        "analyser.rate_mhz": rate_mhz,
        "analyser.wires": random.choice(tuple(wires)),
        "analyser.jitter_ns": random.uniform(0.0, 0.2),
        "analyser.skew_ns": random.uniform(0.0, 0.5),
    }
    return Simulation().with_values(values)
