"""PCI traffic for the benchmarks, made in memory: 33.33 MHz at 100 MS/s.

:func:`samples` is a network card under load: a third of the clocks busy, bursts of 95 and 379 data phases, single
register accesses, retries, disconnects and master aborts. :func:`dense` is the other end: the transactions of a bridge
under test (the fixture `blue33_seq6`, a simulation of its RTL), one after another, all 16 channels wired.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Bits of the per-clock control word, 1 = asserted.
FRAME, IRDY, TRDY, DEVSEL, STOP = (1 << bit for bit in range(5))

CLOCK_MHZ = 100 / 3.0003
RATE_MHZ = 100.0

#: A sample of 16 channels with every line released, CLK low.
IDLE = 0xFFFE


def _transaction(phases: int, *, waits: int, stop: bool = False, claimed: bool = True) -> list[int]:
    """Control words of one transaction, clock by clock."""
    if not claimed:
        return [FRAME, *[IRDY] * 5]
    target = DEVSEL | TRDY
    words = [FRAME, FRAME | IRDY, *[FRAME | IRDY | DEVSEL] * waits]
    words += [FRAME | IRDY | target] * (phases - 1)
    if stop and phases == 0:
        return [*words, FRAME | IRDY | DEVSEL | STOP, IRDY | DEVSEL | STOP]
    return [*words, IRDY | target | (STOP if stop else 0)]


def clocks(count: int, seed: int = 1) -> NDArray[np.uint8]:
    """Control words of `count` clocks, about 34 % of them busy."""
    rng = np.random.default_rng(seed)
    words: list[int] = []
    # One stretch of 300,000 different clocks, repeated: long enough that no branch predictor learns it.
    while len(words) < 300_000:
        kind = rng.random()
        waits = int(rng.integers(1, 8))
        if kind < 0.25:
            made = _transaction(95, waits=waits)
        elif kind < 0.33:
            made = _transaction(379, waits=waits)
        elif kind < 0.80:
            made = _transaction(1, waits=waits)
        elif kind < 0.90:
            made = _transaction(0, waits=waits, stop=True)
        elif kind < 0.97:
            made = _transaction(int(rng.integers(2, 40)), waits=waits, stop=True)
        else:
            made = _transaction(0, waits=0, claimed=False)
        words += made
        words += [0] * int(rng.integers(1, 2 * 2 * len(made) if len(made) > 50 else 250))
    stretch = np.array(words, np.uint8)
    return np.tile(stretch, count // len(stretch) + 1)[:count]


def _data_lines(clock: NDArray[np.int64], control: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """AD, C/BE# and PAR at the given clocks, in their places in a 64-bit sample."""

    def driven(clock: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        ad = clock.astype(np.uint64) * np.uint64(0x9E3779B1) & np.uint64(0xFFFFFFFF)
        before = control[np.maximum(clock - 1, 0)]
        address = (control[clock] & FRAME != 0) & (before & (FRAME | IRDY) == 0)
        return ad, np.where(address, np.uint64(7), np.uint64(0))

    ad, cbe = driven(clock)
    ad_before, cbe_before = driven(np.maximum(clock - 1, 0))
    par = (np.bitwise_count(ad_before) + np.bitwise_count(cbe_before)).astype(np.uint64) & np.uint64(1)
    return ad << np.uint64(16) | cbe << np.uint64(48) | par << np.uint64(52)


def samples(count: int, dtype: type[np.unsignedinteger] = np.uint16, seed: int = 1) -> NDArray[np.unsignedinteger]:
    """`count` samples: bit 0 CLK, bits 1-5 FRAME# IRDY# TRDY# DEVSEL# STOP#, the rest of 16 bits high.

    With 64-bit samples, bits 16-47 hold AD, 48-51 C/BE# (memory writes, all bytes enabled) and 52 PAR.
    """
    per_clock = RATE_MHZ / CLOCK_MHZ
    control = clocks(int(count / per_clock) + 2, seed)
    out = np.empty(count, dtype)
    step = 1 << 22
    for start in range(0, count, step):
        time = np.arange(start, min(start + step, count)) / per_clock
        clock = time.astype(np.int64)
        high = time - clock < 0.5
        # What is driven after one rise is there at the next.
        lines = (~control[clock] & 0x1F).astype(dtype)
        part = high.astype(dtype) | lines << dtype(1) | dtype(0xFFC0)
        if dtype is np.uint64:
            part |= _data_lines(clock, control)
        out[start : start + len(part)] = part
    return out


#: Names of the channels of :func:`samples`, bit 0 first.
CONTROL = ["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#"]
CHANNELS_16 = [*CONTROL, *(f"spare{i}" for i in range(6, 16))]
CHANNELS_64 = [*CHANNELS_16, *(f"AD{i}" for i in range(32)), *(f"CBE{i}#" for i in range(4)), "PAR"]


#: The channels of :func:`dense`, bit 0 first.
CHANNELS_DENSE = [
    *("CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "GNT0#", "GNT1#", "GNT2#", "GNT3#"),
    *("CBE0#", "CBE1#", "CBE2#", "CBE3#", "PERR#", "SERR#"),
]
_DENSE = Path(__file__).parent.parent / "fixtures" / "traces" / "blue33_seq6" / "ctl_100MSs.sr"
#: FRAME# and IRDY# of these channels.
_BUSY = 0b110
#: Bytes of a member of a session, about as sigrok writes them.
MEMBER = 4 << 20
#: Samples that are made anew; longer captures repeat them. Deflate looks back 16,384 of them.
_STRETCH = 10_000_000


def _dense_clocks(count: int, idle: int | None, seed: int) -> NDArray[np.uint16]:
    """Words of `count` clocks: transactions drawn from the fixture; `idle` as of :func:`dense`."""
    with zipfile.ZipFile(_DENSE) as session:
        recorded = np.concatenate([np.frombuffer(session.read(name), "<u2") for name in _members(session)])
    clk = recorded & 1
    words = recorded[np.flatnonzero((clk[:-1] == 0) & (clk[1:] == 1))]
    busy = (words & _BUSY) != _BUSY
    starts = np.flatnonzero(busy[1:] & ~busy[:-1]) + 1
    rng = np.random.default_rng(seed)
    pieces: list[NDArray[np.uint16]] = []
    made = 0
    while made < count:
        # A transaction with the clock behind it, in which its PERR# and SERR# come, and more in which nothing does.
        drawn = int(rng.integers(0, len(starts) - 1))
        piece = words[starts[drawn] : starts[drawn + 1]]
        piece = piece[: int(busy[starts[drawn] : starts[drawn + 1]].sum()) + 2]
        more = int(rng.integers(0, 17)) if idle is None else idle - 2
        pieces += [piece, np.full(more, IDLE, np.uint16)]
        made += len(piece) + more
    return np.concatenate(pieces)[:count]


def _members(session: zipfile.ZipFile) -> list[str]:
    logic = [name for name in session.namelist() if name.startswith("logic-1-")]
    return sorted(logic, key=lambda name: int(name.rsplit("-", 1)[1]))


def dense(count: int, *, idle: int | None = None, jitter: bool = False, seed: int = 1) -> NDArray[np.uint16]:
    """`count` samples of a dense bus, about 47 a transaction (with 2 idle clocks 25).

    Parameters
    ----------
    count : int
        Samples.
    idle : int, optional
        Idle clocks between two transactions, 2 at least, as close as most come; else 2 to 18.
    jitter : bool
        Each change of each line is seen one sample later, half the time; CLK's by half a sample.
    seed : int
        Of the order of the transactions.
    """
    per_clock = RATE_MHZ / CLOCK_MHZ
    made = min(count, _STRETCH)
    rng = np.random.default_rng(seed)
    words = _dense_clocks(int(made / per_clock) + 3, idle, seed)
    time = np.arange(made) / per_clock
    if jitter:
        time += rng.random(made) * 0.5 / per_clock
    clock = time.astype(np.int64)
    # What is driven after one rise is there at the next, and changes a fifth of a clock after it.
    lines = words[(time + 0.8).astype(np.int64)] & ~np.uint16(1)
    if jitter:
        late = rng.integers(0, 1 << 16, made, np.uint16)
        lines[1:] = lines[1:] & ~late[1:] | lines[:-1] & late[1:]
    out = lines & ~np.uint16(1) | (time - clock < 0.5)
    return np.tile(out, -(-count // made))[:count]


def write(path: Path, samples: bytes, unit: int, channels: list[str]) -> None:
    """Samples of `unit` bytes, whose bit `k` is channel `k`, as a session of sigrok."""
    probes = "".join(f"probe{bit + 1}={name}\n" for bit, name in enumerate(channels))
    metadata = (
        f"[global]\nsigrok version=0.5.2\n\n[device 1]\ncapturefile=logic-1\ntotal probes={len(channels)}\n"
        f"samplerate=100 MHz\ntotal analog=0\n{probes}unitsize={unit}\n"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as session:
        session.writestr("version", "2")
        session.writestr("metadata", metadata)
        for number, start in enumerate(range(0, len(samples), MEMBER), 1):
            session.writestr(f"logic-1-{number}", samples[start : start + MEMBER])


def clock(count: int) -> NDArray[np.uint16]:
    """CLK in bit 0 of `count` samples."""
    time = np.arange(count) * (CLOCK_MHZ / RATE_MHZ)
    return (time % 1 < 0.5).astype(np.uint16)


def in_units(samples: NDArray[np.unsignedinteger], unit: int) -> bytes:
    """The lowest `unit` bytes of each sample."""
    return np.ascontiguousarray(samples.view(np.uint8).reshape(len(samples), -1)[:, :unit]).tobytes()
