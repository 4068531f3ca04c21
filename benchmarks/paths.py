"""What the spectrum leaves out, each path beside a limit of its own, into docs/benchmarks.md.

Waveforms are opened (limit: to count the line ends of the file), wires are read and clocks recovered (limit: one thread
that XORs the samples), data phases are written (limit: the same rows to memory). `to reach` is what the kernel is meant
to do at least on a quiet machine with two processors.

Where other processes use the machine (a load average above 2), processor time stands for time, and nothing is said of
two threads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import traffic
from long import PAGE, put
from numpy.typing import NDArray
from spectrum import BUSY, WHILE_BUSY, Shape, in_turn

from pcitrace import _kernel

HEADING = "## Waveforms, wires, recovered clocks and files"
RATE_HZ = traffic.RATE_MHZ * 1e6
THREADS = 1 if BUSY else 2
A_CLOCK = 9
"""Samples a clock where it is recovered: a third more than are needed at least."""

OPENED = """
import sys
from pcitrace import _kernel
def peak():
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])
before = peak()
capture = _kernel.open(sys.argv[1])
print(peak() - before)
"""


def vcd(path: Path, samples: NDArray[np.uint16], channels: list[str]) -> None:
    """Samples as a waveform, 10 ns apart: at each time what changes there."""
    codes = [chr(ord("!") + bit) for bit in range(len(channels))]
    names = "".join(f"$var wire 1 {code} {name} $end\n" for code, name in zip(codes, channels, strict=True))
    changed = np.concatenate([[0], np.flatnonzero(np.diff(samples)) + 1])
    levels = samples[changed].tolist()
    with path.open("w") as out:
        out.write(f"$timescale 1ns $end\n$scope module top $end\n{names}$upscope $end\n$enddefinitions $end\n")
        for at, now, last in zip(changed.tolist(), levels, [~levels[0], *levels[:-1]], strict=True):
            out.write(f"#{10 * at}\n")
            out.writelines(f"{now >> bit & 1}{code}\n" for bit, code in enumerate(codes) if (now ^ last) >> bit & 1)


def wire(count: int) -> Shape:
    """Frames of 1,520 bytes one after another, in nibbles: 100 Mbit/s at 100 MS/s."""
    time = np.arange(count)
    data = np.random.default_rng(1).integers(0, 16, count // 4 + 1, np.uint16).repeat(4)[:count]
    samples = (time // 2 % 2 | (time % 13_000 < 12_160) << 1).astype(np.uint16) | data << np.uint16(2)
    channels = ["TXCLK", "TXEN", *(f"TXDATA{bit}" for bit in range(4))]
    return Shape("wire", samples.tobytes(), 2, channels)


def faster(shape: Shape, per: int) -> Shape:
    """The same bus with so many times as many samples."""
    data = np.frombuffer(shape.data, np.uint16).repeat(per).tobytes()
    return Shape(shape.name, data, shape.unit, shape.channels)


def line(what: str, amount: float, unit: str, works: Sequence[Callable[[], object]], aim: str, times: int) -> str:
    """One path and its limit, in millions of `unit` a second."""
    took = in_turn({str(number): work for number, work in enumerate(works)}, times)
    speed, limit = (amount / 1e6 / seconds for seconds in took.values())
    return f"| {what} | {speed:,.0f} {unit} | {limit:,.0f} {unit} | {limit / speed:.1f} | {aim} |"


def xor(data: bytes) -> object:
    return np.bitwise_xor.reduce(np.frombuffer(data[: len(data) // 8 * 8], np.uint64))


def of_waveforms(folder: Path, count: int, times: int) -> list[str]:
    path = folder / "dense.vcd"
    vcd(path, traffic.dense(count), traffic.CHANNELS_DENSE)
    size = path.stat().st_size
    opening = [lambda: _kernel.open(str(path)), lambda: path.read_bytes().count(b"\n")]
    done = subprocess.run([sys.executable, "-c", OPENED, str(path)], check=True, capture_output=True, text=True)
    return [
        line(f"VCD of {size / 1e6:.0f} MB opened, one thread", size, "MB/s", opening, "700", times),
        f"| its peak memory above start-up | {int(done.stdout) / size:.2f} B a byte | | | at most 1 |",
    ]


def of_samples(count: int, times: int) -> list[str]:
    frames = wire(count)
    capture = _kernel.from_samples(frames.data, frames.unit, frames.channels, RATE_HZ)
    lines = {name: (bit, 0, False) for bit, name in enumerate(frames.channels)}

    def read() -> object:
        return _kernel.Wire(capture, lines).read(capture)

    slow = Shape("", traffic.dense(count // 3, jitter=True).tobytes(), 2, traffic.CHANNELS_DENSE)
    noisy = faster(slow, A_CLOCK // 3)
    clocked = _kernel.from_samples(noisy.data, noisy.unit, noisy.channels, RATE_HZ * (A_CLOCK // 3))

    def recover() -> object:
        return _kernel.decode(clocked, [noisy.spec], threads=1, columns=[], recover_clock=True)

    what = f"recovered clock, {A_CLOCK} samples each, a dense bus without columns"
    return [
        line("frames of a wire with TXDATA", frames.samples, "MS/s", [read, partial(xor, frames.data)], "1,000", times),
        line(what, noisy.samples, "MS/s", [recover, partial(xor, noisy.data)], "400", times),
    ]


def of_files(folder: Path, count: int, times: int) -> list[str]:
    wide = traffic.samples(count // 4, np.uint64)
    bus = Shape("full bus", wide.tobytes(), 8, traffic.CHANNELS_64, data_phases=True)
    capture = _kernel.from_samples(bus.data, bus.unit, bus.channels, RATE_HZ)

    def to_memory() -> object:
        return _kernel.decode(capture, [bus.spec], threads=THREADS, data_phases=True)

    def to_file(ending: str) -> object:
        rows, phases = (str(folder / f"{name}.{ending}") for name in ("rows", "phases"))
        return _kernel.decode_to_files(capture, [bus.spec], transactions=rows, data_phases=phases, threads=THREADS)

    threads = "one thread" if BUSY else "two threads"
    what = "full bus, units of 8, data phases to {}, " + threads
    kinds = [("Parquet", "213-330"), ("CSV", "123-180")]
    return [
        line(what.format(kind), bus.samples, "MS/s", [partial(to_file, kind.lower()), to_memory], aim, times)
        for kind, aim in kinds
    ]


def main() -> None:
    """Measure, and put the section into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000_000, help="of each trace (default: %(default)s)")
    parser.add_argument("--times", type=int, default=9, help="runs of each (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    args = parser.parse_args()
    load = f"Measured at a load average of {os.getloadavg()[0]:.1f}. {WHILE_BUSY if BUSY else ''}"
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            *of_waveforms(Path(folder), args.samples, args.times),
            *of_samples(args.samples, args.times),
            *of_files(Path(folder), args.samples, args.times),
        ]
    head = ["| path | measured | limit | limit / measured | to reach |", "|---|---|---|---|---|"]
    put(args.output, HEADING, "\n".join([HEADING, "", load.rstrip(), "", *head, *rows, ""]))


if __name__ == "__main__":
    main()
