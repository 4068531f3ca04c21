"""What is drawn: a card, its driver, both hosts and the traffic. One function a family; FAMILIES lists them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

Drawn = dict[str, Any]


def _span(rng: random.Random, low: float, high: float) -> tuple[float, float]:
    """A range of delays in ns, somewhere between `low` and `high` (log-uniform), narrow or wide."""
    middle = math.exp(rng.uniform(math.log(low), math.log(high)))
    width = rng.choice((0.02, 0.1, 0.3, 0.6))
    return round(middle * (1 - width), 1), round(middle * (1 + width), 1)


def _memory(rng: random.Random) -> Drawn:
    low = rng.randint(2, 8)
    write_low = rng.randint(0, 2)
    return {
        "devsel": rng.choice((1, 2, 2, 3)),
        "read_first": (low, min(14, low + rng.choice((0, 1, 2, 4, 6)))),
        "write_first": (write_low, write_low + rng.randint(0, 2)),
        "each": rng.choice((0,) * 9 + (1,)),
        "wait": rng.choice((0, 0, 0.005, 0.02, 0.05)),
        "retry": rng.choice((0, 0, 0, 0.02, 0.06)),
        "disconnect": 0.0,
        "boundary": rng.choice((0, 0, 4096, 4096, 1024, 512)),
        "stop": rng.choice(("TS", "S")),
    }


def _registers(rng: random.Random) -> Drawn:
    low = rng.randint(1, 6)
    return {
        "devsel": rng.choice((1, 2, 3)),
        "read_wait": (low, low + rng.randint(0, 4)),
        "write_wait": rng.randint(0, 3),
        "delay": rng.choice((0, 0, 0, 250, 600, 1100)),
        "retry": rng.choice((0, 0, 0, 0.04)),
        "act": rng.choice((None, None, "TS")),
    }


def _card(rng: random.Random) -> Drawn:
    descriptor = rng.choice((8, 16, 16, 24, 32))
    return {
        "place": "host_memory",
        "descriptor": descriptor,
        "address_at": rng.choice((0, 4)),
        "fetch": rng.choice((1, 1, 2, 4, 8)),
        "fetch_full": rng.random() < 0.3,
        "rx_fetch": rng.choice((1, 2, 4, 8)),
        "doorbell": rng.choice(("tail", "tail", "argument", "kick", "read", "pair")),
        "slots": rng.choice((8, 16, 32)),
        "rx_slots": rng.choice((16, 32, 64)),
        "tx_status": rng.choice((0, 0, 4, 4, 8, 16)),
        "rx_status": rng.choice((0, 4, 4, 8, 16)),
        "tx_batch": 1,
        "rx_batch": 1,
        "status_place": rng.choice(("descriptor", "ring", "block")),
        "status_after_wire": rng.random() < 0.3,
        "burst": rng.choice((64, 128, 256, 380, 512, 1024, 2048, 4096)),
        "cut": rng.choice((0, 0, 0, 64, 128)),
        "cut_4k": rng.random() < 0.5,
        "single_tail": 0,
        "reread": "continue",
        "line": rng.choice((16, 32, 64)),
        "latency_timer": rng.choice((0, 0, 32, 64, 248)),
        "urgent_receive": rng.random() < 0.5,
        "piece_gap": rng.choice((0, 0, 1, 2, 4, 12)),
        "retry_gap": rng.choice((2, 3, 6, 10)),
        "pad": rng.choice((0, 0, 0, 8)),
        "exact_enables": rng.random() < 0.6,
        "read_commands": rng.choice((("MR",), ("MRL",), ("MR", "MRL", "MRM"))),
        "mwi": rng.random() < 0.15,
        "initiator_wait": rng.choice((0, 0, 0, 0.01, 0.03)),
        "fetch_delay": _span(rng, 60, 600),
        "tx_start": _span(rng, 60, 1000),
        "tx_next": _span(rng, 40, 300),
        "tx_latency": _span(rng, 150, 9000),
        "rx_latency": _span(rng, 150, 9000),
        "tx_threshold": 0,
        "rx_chunk": 0,
        "tx_fifo": rng.choice((2048, 4096, 8192, 16384)),
        "rx_fifo": rng.choice((8192, 16384, 32768)),
        "split": 0,
        "rx_split": 0,
        "tx_offset": rng.choice((0, 0, 2)),
        "rx_offset": rng.choice((0, 0, 2)),
        "split_offset": 0,
        "fcs": rng.random() < 0.3,
        "vendor": rng.choice((0x1234, 0x10EE, 0x104C, 0x1A2B)),
        "device": rng.randint(0x1000, 0x1FFF),
        "base": rng.choice((0xE9000000, 0xFD100000, 0xF3F02000)),
    }


def _driver(rng: random.Random) -> Drawn:
    return {
        "cpu_send": _span(rng, 300, 2500),
        "cpu_receive": _span(rng, 300, 2500),
        "irq": rng.choice(("ack", "ack", "mask", "read", "block", "poll")),
        "irq_latency": _span(rng, 1000, 6000),
        "tx_interrupt": rng.random() < 0.3,
        "poll": round(rng.uniform(4000, 14000)),
        "poll_register": rng.random() < 0.6,
        "refill": rng.choice((1, 1, 4, 8)),
        "refill_register": rng.random() < 0.6,
        "cpu_gap": rng.randint(2, 10),
        "show_configuration": rng.random() < 0.5,
    }


def _traffic(rng: random.Random) -> Drawn:
    kind = rng.choice(("request-response", "ping-pong", "stream", "stream", "bidirectional"))
    return {
        "kind": kind,
        "arrivals": rng.choice(("regular", "poisson", "saturating")),
        "sizes": rng.choice(([64], [256], [1500], [64, 512, 1024, 1500], [46, 200, 900], "sweep", "any", "short")),
        "frames": rng.randint(36, 64),
        "together": 1,
        "spacing": round(rng.uniform(0.7, 3.0), 2),
        "think": _span(rng, 3000, 25000),
        "loss": rng.choice((0, 0, 0.02, 0.06)),
    }


def _bench(rng: random.Random) -> Drawn:
    return {
        "rate": rng.choice((100, 1000, 1000)),
        "width": 32,
        "mhz": 33.0,
        "phy_delay": rng.choice((0, 0, 60, 350, 900)),
        "clock_ppm": [round(rng.uniform(-60, 60), 2) for _ in "AB"],
        "sr_ppm": round(rng.uniform(-60, 60), 3),
        "sr_rate": rng.choice((100, 100, 125, 200)),
        "jitter": 0.5,
        "vcd_unit": rng.choice((1.0, 0.1, 0.001)),
        "park": rng.choice(("last", "none")),
        "arbiter_wait": rng.choice((0, 0, 1, 2)),
        "sequence": rng.random() < 0.5,
        "other_rate": 0.0,
        "other_beats": 8,
        "other_grant": True,
        "graphics_rate": 0.0,
        "reads_rate": 0.0,
        "begin": 0.0,
        "hosts": "AB",
        "memory": {host: _memory(rng) for host in "AB"},
        "registers": _registers(rng),
    }


def draw(family: str, seed: int) -> Drawn:
    """Everything about one run; same family and seed, same run."""
    if family not in FAMILIES:
        raise ValueError(f"no family {family}; there are {', '.join(FAMILIES)}")
    rng = random.Random(f"{family} {seed}")
    drawn = {"family": family, "seed": seed, **_bench(rng), **_card(rng), **_driver(rng), **_traffic(rng)}
    FAMILIES[family](drawn, rng)
    if drawn["tx_threshold"] or (drawn["kind"] == "stream" and drawn["sizes"] == [1500] and drawn["rate"] == 100):
        drawn["frames"] = min(drawn["frames"], 40)
    # A driver that rings once for several frames has room for all of them.
    drawn["together"] = min(drawn["together"], drawn["slots"])
    return drawn


def _ring(drawn: Drawn, rng: random.Random) -> None:
    """Descriptor rings in host memory, fetched one by one or several; buffers at odd dwords; status written back."""
    drawn["tx_offset"], drawn["rx_offset"] = rng.choice((0, 2, 4, 12, 14, 20)), rng.choice((0, 2, 4, 10))
    drawn["tx_status"] = drawn["tx_status"] or 4
    drawn["single_tail"] = rng.choice((0, 0, 1))


def _csr_descriptors(drawn: Drawn, rng: random.Random) -> None:
    """Descriptors are registers of the card; no descriptor DMA, and no status DMA or little."""
    drawn.update(place="card", doorbell=rng.choice(("descriptor", "descriptor", "kick")), slots=16, rx_slots=16)
    drawn.update(tx_status=0, rx_status=rng.choice((0, 0, 4)), status_place="block", tx_interrupt=rng.random() < 0.6)


def _cacheline(drawn: Drawn, rng: random.Random) -> None:
    """Bursts end at cache lines, or are no longer than one; often descriptors have the same length."""
    line = rng.choice((16, 32, 32, 64))
    drawn.update(burst=rng.choice((line, line, 2 * line, 4096)), cut=line, line=line)
    drawn["descriptor"] = rng.choice((line if line > 8 else 8, drawn["descriptor"]))
    drawn["tx_offset"], drawn["rx_offset"] = rng.choice((0, 2, 13, 21)), rng.choice((0, 2))
    if drawn["sizes"] == [1500]:
        drawn["sizes"] = "short"


def _reread(drawn: Drawn, rng: random.Random) -> None:
    """After a disconnect data are read again: from the start of the line, of the block between cuts, of the piece."""
    drawn["reread"] = rng.choice(("line", "cut", "piece"))
    drawn["cut"] = rng.choice((0, 64, 128)) if drawn["reread"] != "cut" else rng.choice((32, 64, 128))
    drawn["cpu_gap"] = rng.randint(4, 20)
    for memory in drawn["memory"].values():
        memory.update(boundary=0, retry=rng.choice((0.03, 0.1, 0.2)), disconnect=rng.choice((0.004, 0.01, 0.03)))


def _scatter_gather(drawn: Drawn, rng: random.Random) -> None:
    """The header lies in a buffer of its own when sent, when received, or both."""
    drawn["split"], drawn["rx_split"] = rng.choice(((14, 0), (54, 0), (34, 14), (14, 14), (54, 128), (42, 64), (0, 64)))
    drawn["tx_offset"], drawn["rx_offset"] = rng.choice((0, 2)), rng.choice((0, 2))
    drawn["split_offset"] = rng.choice((0, 2, 4, 6))


def _cut_through(drawn: Drawn, rng: random.Random) -> None:
    """The wire starts while the frame is read, memory is written while it comes, or both."""
    way = rng.choice(("send", "receive", "both"))
    if way != "receive":
        drawn.update(tx_threshold=rng.choice((64, 128, 256, 512)), tx_latency=_span(rng, 100, 800))
        drawn["rate"] = 100
    if way != "send":
        drawn.update(rx_chunk=rng.choice((4, 16, 64, 64, 128, 256)), rx_latency=_span(rng, 100, 900))
        if drawn["rx_chunk"] < 64:
            drawn["rate"] = 100
    drawn["burst"] = max(drawn["burst"], 128)
    drawn["sizes"] = rng.choice(([64, 512, 1024, 1500], [1500], "sweep", "any"))


def _tiny(drawn: Drawn, rng: random.Random) -> None:
    """1 to 60 user bytes: many frames are as long as a descriptor or a status."""
    drawn.update(sizes="tiny", burst=rng.choice((16, 32, 64, 512, 4096)))


def _overload(drawn: Drawn, rng: random.Random) -> None:
    """Streams that saturate processor, bus or wire; the card's memory overflows, and the wire loses frames."""
    drawn.update(kind=rng.choice(("stream", "bidirectional")), arrivals="saturating", cpu_send=_span(rng, 150, 500))
    drawn.update(
        sizes=rng.choice(([1500], [1024], [64], "any")), rx_slots=rng.choice((8, 16)), rx_fifo=rng.choice((2048, 4096))
    )
    drawn.update(cpu_receive=_span(rng, 2000, 20000), together=rng.choice((1, 1, 4)), loss=rng.choice((0, 0.03)))


def _other_master(drawn: Drawn, rng: random.Random) -> None:
    """Another device does DMA, the processor draws on a screen; the GNT# of the other device may not be captured."""
    drawn.update(other_rate=rng.choice((5e3, 2e4, 6e4)), other_beats=rng.choice((1, 4, 8, 16, 64)))
    drawn.update(other_grant=rng.random() < 0.5, graphics_rate=rng.choice((0, 2e4)), reads_rate=rng.choice((0, 1e4)))
    drawn["latency_timer"] = rng.choice((0, 16, 32, 64))


def _wide66(drawn: Drawn, rng: random.Random) -> None:
    """64 bit and 66 MHz, or one of the two."""
    width, mhz = rng.choice(((64, 66.0), (64, 66.0), (64, 33.0), (32, 66.0)))
    drawn.update(
        width=width, mhz=mhz, rate=1000, sr_rate=200 if mhz == 66.0 else 100, vcd_unit=rng.choice((0.1, 0.001))
    )
    drawn["tx_offset"], drawn["rx_offset"] = rng.choice((0, 2, 4, 6)), rng.choice((0, 2))


def _latency_timer(drawn: Drawn, rng: random.Random) -> None:
    """A short latency timer and a busy bus: bursts end wherever the timer runs out."""
    _other_master(drawn, rng)
    drawn.update(latency_timer=rng.choice((8, 16, 24, 32, 48)), other_rate=rng.choice((6e4, 2e5)), burst=4096, cut=0)
    drawn.update(kind=rng.choice(("stream", "bidirectional")), other_grant=rng.random() < 0.7)


def _padding(drawn: Drawn, rng: random.Random) -> None:
    """Reads go on to the end of a block of 8 to 32 bytes; buffers begin at any byte."""
    drawn["pad"] = rng.choice((8, 16, 32))
    drawn["tx_offset"], drawn["rx_offset"] = rng.randint(0, 31), rng.randint(0, 7)
    drawn["exact_enables"] = False


def _groups(drawn: Drawn, rng: random.Random) -> None:
    """Several frames a doorbell, several descriptors a read."""
    drawn.update(
        kind=rng.choice(("stream", "bidirectional")), together=rng.choice((2, 3, 4, 6)), fetch=rng.choice((2, 4, 8))
    )
    drawn["spacing"] = 2.5


def _batched_status(drawn: Drawn, rng: random.Random) -> None:
    """One status write for several frames, sent or received."""
    drawn.update(tx_batch=rng.choice((1, 2, 4)), rx_batch=rng.choice((2, 3, 4)))
    drawn["tx_status"], drawn["rx_status"] = drawn["tx_status"] or 4, drawn["rx_status"] or 8


def _fcs(drawn: Drawn, rng: random.Random) -> None:
    """The frame check sequence is written to memory; sizes at which four bytes are a dword more or are not."""
    drawn.update(fcs=True, sizes=rng.choice(("any", "short", [61, 62, 63, 64], [128, 129, 130])))


def _mid_stream(drawn: Drawn, rng: random.Random) -> None:
    """The capture begins while frames are queued in the card, on the wire, on the other bus."""
    drawn.update(kind=rng.choice(("stream", "bidirectional")), begin=rng.uniform(0.15, 0.45))
    drawn["arrivals"] = rng.choice(("saturating", "poisson"))
    drawn.update(spacing=1.1, slots=rng.choice((2, 4, 8)))


def _one_host(drawn: Drawn, rng: random.Random) -> None:
    """Only the bus of A, and its wire, is captured."""
    drawn["hosts"] = "A"


def _equal_lengths(drawn: Drawn, rng: random.Random) -> None:
    """All frames have one length, in both directions."""
    drawn.update(sizes=[rng.choice((1, 46, 50, 64, 100, 320, 1000, 1500, rng.randint(1, 1500)))])
    drawn["kind"] = rng.choice(("request-response", "ping-pong", "bidirectional"))


def _mixed(drawn: Drawn, rng: random.Random) -> None:
    """Up to three other families at once."""
    drawn["mixed"] = rng.sample(sorted(set(FAMILIES) - {"mixed", "one-host"}), rng.randint(2, 3))
    for name in drawn["mixed"]:
        FAMILIES[name](drawn, rng)


FAMILIES: dict[str, Callable[[Drawn, random.Random], None]] = {
    "ring": _ring,
    "csr-descriptors": _csr_descriptors,
    "cacheline": _cacheline,
    "reread": _reread,
    "scatter-gather": _scatter_gather,
    "cut-through": _cut_through,
    "tiny": _tiny,
    "overload": _overload,
    "other-master": _other_master,
    "wide66": _wide66,
    "latency-timer": _latency_timer,
    "padding": _padding,
    "groups": _groups,
    "batched-status": _batched_status,
    "fcs": _fcs,
    "mid-stream": _mid_stream,
    "one-host": _one_host,
    "equal-lengths": _equal_lengths,
    "mixed": _mixed,
}
