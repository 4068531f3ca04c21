"""Clocks -> what an analyser or a simulator would record of them, and the files it would write.

`settle` and `wires` give the level of every channel at every clock. From these `state_mode`, `timing_mode` make
samples (`Sampled`), and `waves` makes changes with their times (`Changes`); the `write_*` functions write either.
"""

from __future__ import annotations

import itertools
import struct
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from buses import GRANTS
from oracle import ALL_LINES, Clock

X, Z = 2, 3  # codes of an unknown and an undriven level, beside 0 and 1

SCALARS = {
    "FRAME#": "frame", "IRDY#": "irdy", "TRDY#": "trdy", "DEVSEL#": "devsel", "STOP#": "stop", "PAR": "par",
    "PERR#": "perr", "SERR#": "serr", "REQ64#": "req64", "ACK64#": "ack64", "RST#": "rst",
}  # fmt: skip
VECTORS = {
    "AD": ("ad", [f"AD{bit}" for bit in range(32)]),
    "AD_HIGH": ("ad_high", [f"AD{bit}" for bit in range(32, 64)]),
    "C/BE#": ("cbe", [f"CBE{bit}#" for bit in range(4)]),
    "C/BE_HIGH#": ("cbe_high", [f"CBE{bit}#" for bit in range(4, 8)]),
}
PULLED_UP = {"frame", "irdy", "trdy", "devsel", "stop", "perr", "serr", "req64", "ack64", "rst"}


@dataclass
class Wires:
    """Level codes of the channels, without CLK: one row a clock."""

    names: list[str]
    levels: np.ndarray  # uint8, clocks x channels


@dataclass
class Sampled:
    """What a logic analyser took: one row a sample, bits 0 and 1."""

    names: list[str]
    bits: np.ndarray  # uint8, samples x channels
    rate_hz: float | None

    def units(self, unit_size: int, places: Sequence[int]) -> bytes:
        """The samples as units of so many bytes, little endian; channel k is bit `places[k]`, the others are 0."""
        unit = np.zeros((len(self.bits), 8 * unit_size), np.uint8)
        # One behind the other, as nearly always, they are copied in a tenth of the time.
        unit[:, slice(len(places)) if places == range(len(places)) else list(places)] = self.bits
        return np.packbits(unit, axis=1, bitorder="little").tobytes()


@dataclass
class Changes:
    """What a simulator wrote: times in ps, and which channels have which level from then on."""

    names: list[str]
    initial: np.ndarray  # level code of each channel at the start
    times: list[int]
    changes: list[list[tuple[int, int]]]  # (channel, level code) at each time
    end: int


def settle(clocks: Sequence[Clock], fill: Random) -> list[Clock]:
    """Give every unknown level a value, as an analyser's threshold does."""
    bits = {"ad": 32, "ad_high": 32, "cbe": 4, "cbe_high": 4}
    settled = []
    for clock in clocks:
        changes = {}
        for name in (*SCALARS.values(), *(attribute for attribute, _ in VECTORS.values())):
            if getattr(clock, name) is None:
                changes[name] = fill.getrandbits(bits.get(name, 1))
        if None in clock.gnt:
            changes["gnt"] = tuple(fill.getrandbits(1) if level is None else level for level in clock.gnt)
        settled.append(replace(clock, **changes) if changes else clock)
    return settled


def wires(clocks: Sequence[Clock], captured: Iterable[str] = ALL_LINES, fill: Random | None = None) -> Wires:
    """The level of every captured line at every clock; an unknown one is x, or z where that is unknown too."""
    captured = set(captured)
    fill = fill or Random(0)
    names: list[str] = []
    columns: list[np.ndarray] = []
    for name, attribute in SCALARS.items():
        if name in captured:
            levels = [getattr(clock, attribute) for clock in clocks]
            pulled_up = attribute in PULLED_UP
            unknown = (X,) if pulled_up else (X, Z)
            column = [fill.choice(unknown) if level is None else level for level in levels]
            if pulled_up and any(level is None for level in levels):
                column = [Z if level == 1 and fill.random() < 0.2 else level for level in column]
            names.append(name)
            columns.append(np.array(column, np.uint8))
    for name, (attribute, channels) in VECTORS.items():
        if name in captured:
            values = [getattr(clock, attribute) for clock in clocks]
            numbers = np.array([0 if value is None else value for value in values], np.uint64)
            bits = (numbers[:, None] >> np.arange(len(channels), dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
            for n, value in enumerate(values):
                if value is None:  # one bit is enough to make the whole unknown
                    whole = fill.random() < 0.5
                    bits[n, slice(None) if whole else fill.randrange(len(channels))] = fill.choice((X, Z))
            names += channels
            columns += list(bits.T)
    if "GNT#" in captured:
        for agent, name in enumerate(GRANTS):
            levels = [clock.gnt[agent] for clock in clocks]
            names.append(name)
            columns.append(np.array([X if level is None else level for level in levels], np.uint8))
    return Wires(names, np.stack(columns, axis=1) if clocks else np.zeros((0, len(names)), np.uint8))


def state_mode(bus: Wires) -> Sampled:
    """One sample a clock, as an analyser clocked by the bus takes them; CLK is not among the channels."""
    return Sampled(list(bus.names), bus.levels, None)


def timing_mode(
    bus: Wires,
    rng: Random,
    *,
    rate_mhz: float = 100.0,
    clock_mhz: float = 33.0,
    jitter_ns: float = 0.5,
    valid_ns: tuple[float, float] = (2.0, 11.0),
    lead_samples: float = 2.5,
) -> tuple[Sampled, np.ndarray]:
    """Samples of an analyser with its own clock, and for each clock the first sample with CLK high.

    Each line changes its own time within `valid_ns` after the edge (T_val of the specification), each edge comes up
    to `jitter_ns` early or late. CLK is channel 0.
    """
    count = len(bus.levels)
    noise = np.random.default_rng(rng.getrandbits(64))
    period = 1000.0 / clock_mhz
    step = 1000.0 / rate_mhz
    assert max(valid_ns) + 2 * jitter_ns < period - step, "lines would change in the last sample before an edge"
    assert period / 2 > step + 2 * jitter_ns, "a phase of CLK would be missed"
    edges = lead_samples * step + np.arange(count) * period + noise.uniform(-jitter_ns, jitter_ns, count)
    edges = np.maximum(edges, 1.01 * step)  # the first sample sees CLK low
    times = np.arange(int((edges[-1] + period) / step) + 1) * step
    bits = np.empty((len(times), 1 + len(bus.names)), np.uint8)
    number = np.searchsorted(edges, times, side="right")  # edges that are not after each sample
    since = times - edges[np.maximum(number - 1, 0)]
    bits[:, 0] = (number > 0) & (since < period / 2)
    for k in range(len(bus.names)):
        delay = noise.uniform(*valid_ns)
        at = np.minimum(np.searchsorted(edges + delay, times, side="right"), count - 1)
        bits[:, k + 1] = bus.levels[at, k]
    return Sampled(["CLK", *bus.names], bits, rate_mhz * 1e6), np.searchsorted(times, edges, side="left")


def waves(
    bus: Wires,
    rng: Random,
    *,
    clock_ps: int = 30_000,
    valid_ps: tuple[int, int] = (2_000, 11_000),
    start_ps: int = 40_000,
    tick_ps: int = 1,
) -> tuple[Changes, list[int]]:
    """Changes as a simulator writes them, and the time of every rise of CLK; CLK is channel 0.

    Some lines change at the very time of the edge: the value just before it counts.
    """
    count = len(bus.levels)
    edges = [(start_ps + n * clock_ps) // tick_ps * tick_ps for n in range(count)]
    changes: dict[int, list[tuple[int, int]]] = {}
    for edge in edges:
        changes.setdefault(edge, []).append((0, 1))
        changes.setdefault((edge + clock_ps // 2) // tick_ps * tick_ps, []).append((0, 0))
    for k in range(len(bus.names)):
        delay = rng.choice((0, rng.randint(*valid_ps)))
        column = bus.levels[:, k]
        for n in np.flatnonzero(column[1:] != column[:-1]):
            time = (edges[n] + delay) // tick_ps * tick_ps
            here = changes.setdefault(time, [])
            here.insert(rng.randint(0, len(here)), (k + 1, int(column[n + 1])))
    initial = np.concatenate(([0], bus.levels[0])) if count else np.zeros(1 + len(bus.names), np.uint8)
    times = sorted(changes)
    return Changes(["CLK", *bus.names], initial, times, [changes[t] for t in times], times[-1]), edges


def sampled_changes(sampled: Sampled, tick_ps: int) -> Changes:
    """The changes between samples."""
    bits = sampled.bits
    at = np.flatnonzero((bits[1:] != bits[:-1]).any(axis=1)) + 1
    lists = [[(int(k), int(bits[n, k])) for k in np.flatnonzero(bits[n] != bits[n - 1])] for n in at]
    return Changes(list(sampled.names), bits[0], [int(n) * tick_ps for n in at], lists, (len(bits) - 1) * tick_ps)


def write_sr(
    path: Path,
    sampled: Sampled,
    *,
    unit_size: int | None = None,
    places: Sequence[int] | None = None,
    chunk_bytes: Sequence[int] | None = None,
    single: bool = False,
    version: int = 2,
    rate: str | None = None,
) -> Path:
    """A sigrok session file.

    `places` are the bits of the channels in a sample (probe numbers less 1), by default 0, 1, 2 ...; `chunk_bytes` are
    the lengths of all but the last chunk (they may cut a sample); `single` writes one member `logic-1`; `rate` replaces
    the samplerate line's value, "" leaves the line out.
    """
    places = range(len(sampled.names)) if places is None else places
    unit_size = unit_size or max(places) // 8 + 1
    data = sampled.units(unit_size, places)
    if rate is None:
        rate = "" if sampled.rate_hz is None else f"{sampled.rate_hz:.0f} Hz"
    metadata = ["[global]", "sigrok version=0.5.2", "", "[device 1]", "capturefile=logic-1"]
    metadata += [f"total probes={max(places) + 1}", *([f"samplerate={rate}"] if rate else []), "total analog=0"]
    metadata += [f"probe{place + 1}={name}" for place, name in zip(places, sampled.names, strict=True)] + [
        f"unitsize={unit_size}",
        "",
    ]
    members = [data]
    if chunk_bytes is not None:
        members, rest = [], data
        for length in chunk_bytes:
            members.append(rest[:length])
            rest = rest[length:]
        members.append(rest)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("version", str(version))
        archive.writestr("metadata", "\n".join(metadata))
        for number, member in enumerate(members, 1):
            archive.writestr("logic-1" if single else f"logic-1-{number}", member)
    return path


def write_sigrok_csv(path: Path, sampled: Sampled) -> Path:
    """Comma-separated values as sigrok-cli writes them, one row a sample."""
    assert sampled.rate_hz is not None
    count = len(sampled.names)
    lines = [
        "; CSV generated by libsigrok 0.5.2",
        "; from Session-emulating driver on Sat Nov 21 15:16:50 2026",
        f"; Channels ({count}/{count}): {', '.join(sampled.names)}",
        f"; Samplerate: {sampled.rate_hz / 1e6:g} MHz",
        ",".join(["logic"] * count),
    ]
    lines += [",".join(map(str, row)) for row in sampled.bits.tolist()]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_saleae_csv(path: Path, sampled: Sampled) -> Path:
    """Comma-separated values as Logic 2 exports them: a row where something changed."""
    assert sampled.rate_hz is not None
    bits = sampled.bits
    keep = np.flatnonzero(np.concatenate(([True], (bits[1:] != bits[:-1]).any(axis=1))))
    lines = [",".join(["Time [s]", *sampled.names])]
    lines += [f"{n / sampled.rate_hz:.9f}," + ",".join(map(str, bits[n].tolist())) for n in keep]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_saleae_binary(folder: Path, sampled: Sampled, version: int, cuts: Sequence[int] = ()) -> Path:
    """One `digital_N.bin` a channel as Logic 2 exports them.

    `cuts` (version 1) are samples at which a new chunk begins; the chunk before ends one sample earlier, so that
    there is a gap.
    """
    assert sampled.rate_hz is not None
    folder.mkdir(parents=True, exist_ok=True)
    total = len(sampled.bits)
    bounds = [0, *cuts, total]
    spans = [(a, b - (1 if b != total else 0)) for a, b in itertools.pairwise(bounds)]
    for k in range(len(sampled.names)):
        out = b"<SALEAE>" + struct.pack("<ii", version, 0)
        if version == 1:
            out += struct.pack("<Q", len(spans))
        for first, last in spans:
            column = sampled.bits[first:last, k]
            at = np.flatnonzero(column[1:] != column[:-1]) + 1 + first
            out += struct.pack("<I", int(column[0]))
            if version == 1:
                out += struct.pack("<d", sampled.rate_hz)
            out += struct.pack("<ddQ", first / sampled.rate_hz, last / sampled.rate_hz, len(at))
            out += (at / sampled.rate_hz).astype("<f8").tobytes()
        (folder / f"digital_{k}.bin").write_bytes(out)
    return folder


def write_dsl(path: Path, sampled: Sampled, block_samples: int = 1 << 24) -> Path:
    """A DSView session file: each channel apart, one bit a sample."""
    assert sampled.rate_hz is not None
    total = len(sampled.bits)
    blocks = range(0, max(total, 1), block_samples)
    header = [
        "[version]", "version = 3", "[header]", "driver = DSLogic", "device mode = 0", "capturefile = data",
        f"total samples = {total}", f"total probes = {len(sampled.names)}", f"total blocks = {len(blocks)}",
        f"samplerate = {sampled.rate_hz / 1e6:g} MHz", "trigger time = 1700000000", "trigger pos = 0",
        *(f"probe{k} = {name}" for k, name in enumerate(sampled.names)), "",
    ]  # fmt: skip
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header", "\n".join(header))
        for k in range(len(sampled.names)):
            for number, first in enumerate(blocks):
                column = sampled.bits[first : first + block_samples, k]
                archive.writestr(f"L-{k}/{number}", np.packbits(column, bitorder="little").tobytes())
    return path


def write_vcd(path: Path, changes: Changes, *, tick_ps: int = 1, scope: str = "PCI", vectors: bool = True) -> Path:
    """A value change dump; `vectors` writes AD and CBE# as one net each, else every bit is a net."""
    units = {1: "1 ps", 10: "10 ps", 100: "100 ps", 1_000: "1 ns", 10_000: "10 ns", 1_000_000: "1 us"}
    nets: list[tuple[str, list[int]]] = []  # declaration and its channels, least significant first
    grouped: dict[str, list[int]] = {}
    for k, name in enumerate(changes.names):
        base = "AD" if name.startswith("AD") else "CBE" if name.startswith("CBE") else None
        if vectors and base:
            grouped.setdefault(base, []).append(k)
        else:
            nets.append((name, [k]))
    nets += [(f"{base} [{len(channels) - 1}:0]", channels) for base, channels in grouped.items()]
    net_of = {k: n for n, (_, channels) in enumerate(nets) for k in channels}

    state = changes.initial.tolist()

    def value(n: int) -> str:
        channels = nets[n][1]
        text = "".join("01xz"[state[k]] for k in reversed(channels))
        return f"{text}{_code(n)}" if len(channels) == 1 else f"b{text} {_code(n)}"

    lines = [f"$timescale {units[tick_ps]} $end", f"$scope module {scope} $end"]
    lines += [f"$var wire {len(channels)} {_code(n)} {name} $end" for n, (name, channels) in enumerate(nets)]
    lines += ["$upscope $end", "$enddefinitions $end", "#0", "$dumpvars", *map(value, range(len(nets))), "$end"]
    for time, here in zip(changes.times, changes.changes, strict=True):
        for k, level in here:
            state[k] = level
        lines.append(f"#{time // tick_ps}")
        lines += [value(n) for n in dict.fromkeys(net_of[k] for k, _ in here)]
    if changes.times and changes.end > changes.times[-1]:
        lines.append(f"#{changes.end // tick_ps}")
    path.write_text("\n".join(lines) + "\n")
    return path


def _code(n: int) -> str:
    """The n-th identifier code: printable characters, least significant first."""
    text = ""
    while True:
        text += chr(33 + n % 94)
        n = n // 94 - 1
        if n < 0:
            return text


def samples_to_clocks(sampled: Sampled) -> tuple[list[Clock], list[int], list[bool | None]]:
    """What a capture in timing mode says, sample by sample.

    Returns the clocks (the last sample with CLK low before each rise), the first sample with CLK high of each, and
    whether F I T S D differ between the last two samples before the edge.
    """
    column = {name: k for k, name in enumerate(sampled.names)}
    rows = sampled.bits.tolist()
    clocks, edges, suspect = [], [], []
    watched = [column[name] for name in ("FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#") if name in column]
    for n in range(1, len(rows)):
        before, now = rows[n - 1], rows[n]
        if before[column["CLK"]] == 0 and now[column["CLK"]] == 1:
            clocks.append(clock_of(before, column))
            edges.append(n)
            suspect.append(n >= 2 and any(rows[n - 2][k] != before[k] for k in watched))
    return clocks, edges, suspect


def clock_of(bits: Sequence[int], column: dict[str, int]) -> Clock:
    """The clock that one row of 0 and 1 says."""
    clock = Clock()
    for name, attribute in SCALARS.items():
        if name in column:
            setattr(clock, attribute, bits[column[name]])
    for attribute, channels in VECTORS.values():
        if channels[0] in column:
            setattr(clock, attribute, sum(bits[column[name]] << k for k, name in enumerate(channels)))
    clock.gnt = tuple(bits[column[name]] if name in column else 1 for name in GRANTS)
    return clock
