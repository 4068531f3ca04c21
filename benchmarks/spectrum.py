"""Decoding from an idle bus to a saturated one, each beside the limit of that very memory or file.

The limit in memory is one thread that XORs the same buffer; that of a file is to inflate it and do nothing else. The
serial share of a path follows from its times on one and on two threads (Amdahl), and from it the speed-up on more.

Where other processes use the machine (a load average above 2), processor time stands for time, and nothing is said of
two threads.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import struct
import subprocess
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import deflate
import numpy as np
import peers
import traffic
from long import PAGE, put
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from pcitrace import _kernel

HEADING = "## From idle to saturated"
BUSY = os.getloadavg()[0] > 2
WHILE_BUSY = "Others used the processors: times are processor time, of one thread, and nothing is said of two."
FIVE = ["start_us", "end_us", "data_phases", "bytes", "termination"]
"""What somebody asks for who wants rates and bursts."""


@dataclass
class Shape:
    """A trace of the spectrum: samples of `unit` bytes whose bit `k` is channel `k`."""

    name: str
    data: bytes
    unit: int
    channels: list[str]
    data_phases: bool = False

    @property
    def samples(self) -> int:
        return len(self.data) // self.unit

    @property
    def spec(self) -> dict[str, Any]:
        """Its bus as the kernel takes it."""
        lines = {
            name: (bit, 0, name.endswith("#")) for bit, name in enumerate(self.channels) if not name.startswith("spare")
        }
        return {"name": "PCI", "width": None, "lines": lines}


def shapes(count: int) -> list[Shape]:
    """The spectrum, `count` samples of two bytes each, or as many bytes of wider ones."""

    def of(name: str, samples: NDArray[np.uint16], channels: list[str]) -> Shape:
        return Shape(name, samples.tobytes(), 2, channels)

    dense = partial(traffic.dense, count)
    wide = traffic.samples(count // 4, np.uint64)
    # As sigrok packs a full bus: its lines side by side.
    control = [name for name in traffic.CHANNELS_64 if not name.startswith("spare")]
    packed = wide & np.uint64(0x3F) | wide >> np.uint64(16) << np.uint64(6)
    full = [
        Shape(f"full bus, units of {unit} bytes", traffic.in_units(samples, unit), unit, channels)
        for unit, samples, channels in ((6, packed, control), (7, packed, control), (8, wide, traffic.CHANNELS_64))
    ]
    last = full[-1]
    return [
        of("idle", np.full(count, traffic.IDLE, np.uint16) | traffic.clock(count), traffic.CHANNELS_16),
        of("a card under load", traffic.samples(count).astype(np.uint16), traffic.CHANNELS_16),
        of("dense", dense(), traffic.CHANNELS_DENSE),
        of("dense, one-sample jitter", dense(jitter=True), traffic.CHANNELS_DENSE),
        of("saturated", dense(idle=2), traffic.CHANNELS_DENSE),
        *full,
        Shape("full bus, units of 8, with data phases", last.data, 8, last.channels, data_phases=True),
    ]


def now() -> float:
    """Seconds; of processors, those of programs that were run included, where others use them."""
    if not BUSY:
        return time.perf_counter()
    of_programs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + of_programs.ru_utime + of_programs.ru_stime


def in_turn(works: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """The shortest of several runs of each, in seconds; in turn, so that what disturbs the machine disturbs all."""
    shortest = dict.fromkeys(works, math.inf)
    for _ in range(times):
        for name, work in works.items():
            start = now()
            work()
            shortest[name] = min(shortest[name], now() - start)
    return shortest


def predicted(one: float, two: float) -> str:
    """The serial share of a path, and its speed-up on 16 and 64 cores."""
    if BUSY:
        return "not measured"
    share = min(max(2 * two / one - 1, 0.0), 1.0)
    speed = [1 / (share + (1 - share) / cores) for cores in (16, 64)]
    return f"{100 * share:.0f} %: {speed[0]:.1f}, {speed[1]:.1f}"


def on_threads(ratio: float, way: str) -> str:
    """A ratio; of two threads only where they could run."""
    return "" if BUSY and way == "two" else f"{ratio:.1f}"


def in_memory(shape: Shape, times: int) -> str:
    """A line of the table of decoding from memory to Arrow."""
    words = np.frombuffer(shape.data[: len(shape.data) // 8 * 8], np.uint64)
    capture = _kernel.from_samples(shape.data, shape.unit, shape.channels, traffic.RATE_MHZ * 1e6)

    def decode(threads: int, columns: list[str] | None) -> int:
        [one] = _kernel.decode(capture, [shape.spec], threads=threads, columns=columns, data_phases=shape.data_phases)
        return one.transactions.num_rows

    took = in_turn(
        {
            "limit": lambda: np.bitwise_xor.reduce(words),
            "none": lambda: decode(1, []),
            "all": lambda: decode(1, None),
            "two": lambda: decode(2, None),
        },
        times,
    )
    rows = decode(2, [])
    each = f"{took['none'] / rows * 1e9:,.0f} | {took['all'] / rows * 1e9:,.0f}" if rows else " | "
    ratios = " | ".join(on_threads(took[way] / took["limit"], way) for way in ("none", "all", "two"))
    return (
        f"| {shape.name} | {rows:,} | {shape.samples / took['limit'] / 1e6:,.0f} | {ratios} | {each} "
        f"| {predicted(took['all'], took['two'])} |"
    )


def from_file(shape: Shape, folder: Path, times: int) -> str:
    """A line of the table of decoding from a session of sigrok to Arrow."""
    path = folder / "shape.sr"
    write(path, shape)
    capture = _kernel.open(str(path))

    def decode(threads: int, columns: list[str] | None) -> object:
        [one] = _kernel.decode(capture, [shape.spec], threads=threads, columns=columns, data_phases=shape.data_phases)
        return one.transactions

    took = in_turn(
        {
            "inflate": lambda: capture.read_samples(),
            "one": lambda: decode(1, None),
            "two": lambda: decode(2, None),
            "five": lambda: decode(1 if BUSY else 2, FIVE),
        },
        times,
    )
    alone = in_turn({name: partial(inflate_with, path, inflate) for name, inflate in INFLATORS.items()}, min(times, 3))
    recorded = shape.samples / (traffic.RATE_MHZ * 1e6)
    times_real = " | ".join(on_threads(recorded / took[way], way) for way in ("inflate", "one", "two", "five"))
    return (
        f"| {shape.name} | {len(shape.data) / path.stat().st_size:.0f} : 1 "
        f"| {' | '.join(f'{recorded / seconds:.1f}' for seconds in alone.values())} | {times_real} "
        f"| {predicted(took['one'], took['two'])} |"
    )


def write(path: Path, shape: Shape) -> None:
    """A shape as a session of sigrok."""
    traffic.write(path, shape.data, shape.unit, shape.channels)


def inflate_with(path: Path, inflate: Callable[[bytes, int], bytes | bytearray]) -> int:
    """Inflate the samples of a session by another library, a member at a time; the number of bytes."""
    count = 0
    with zipfile.ZipFile(path) as session, path.open("rb") as file:
        for member in session.infolist():
            if member.filename.startswith("logic"):
                file.seek(member.header_offset + 26)
                # Behind the local header are the name and what else it says, as long as it says (APPNOTE 4.3.7).
                file.seek(sum(struct.unpack("<HH", file.read(4))), 1)
                count += len(inflate(file.read(member.compress_size), member.file_size))
    return count


INFLATORS: dict[str, Callable[[bytes, int], bytes | bytearray]] = {
    "zlib": lambda packed, _: zlib.decompress(packed, -15),
    "zlib-ng": lambda packed, _: zlib_ng.decompress(packed, -15),
    "libdeflate": lambda packed, size: deflate.deflate_decompress(packed, size),
}
"""Raw deflate and its inflated length to bytes, by the library."""


def peers_of(shape: Shape, folder: Path, samples: int) -> list[str]:
    """A dense bus by other programs, over a part of the trace that they can be waited for."""
    part = Shape(shape.name, shape.data[: samples * shape.unit], shape.unit, shape.channels)
    path, csv = folder / "peers.sr", folder / "peers.csv"
    write(path, part)
    with csv.open("w") as out:
        subprocess.run(["sigrok-cli", "-i", str(path), "-O", "csv"], stdout=out, check=True)
    took = in_turn(
        {
            "pcitrace, `.sr` to Arrow, all columns, one thread": lambda: _kernel.decode(
                _kernel.open(str(path)), [part.spec], threads=1
            ),
            "a Python protocol decoder in sigrok-cli": lambda: peers.with_sigrok(path),
            "pandas on the CSV that sigrok-cli exports (export not counted)": lambda: peers.with_pandas(csv),
        },
        2,
    )
    recorded = samples / (traffic.RATE_MHZ * 1e6)
    return [
        f"The trace `{shape.name}`, {samples:,} samples of 16 channels.\n",
        "| what | ms | times real time |",
        "|---|---|---|",
        *(f"| {what} | {1e3 * seconds:,.1f} | {recorded / seconds:.3g} |" for what, seconds in took.items()),
        "",
    ]


def page(count: int, folder: Path, times: int) -> list[str]:
    """Both tables in Markdown."""
    lines = [
        HEADING,
        "",
        f"Measured at a load average of {os.getloadavg()[0]:.1f}. " + (WHILE_BUSY if BUSY else ""),
        "",
        "Memory to Arrow. Time over the limit (one thread XORs the same buffer), and what a transaction costs on one "
        "thread in ns. The "
        "last column is the serial share of the whole path, from its times on one and two threads, and the speed-up on "
        "16 and 64 cores that follows.",
        "",
        "| trace | transactions | limit, MS/s | no column | all columns | all, 2 threads | ns each: none | all "
        "| serial share: x 16, x 64 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    traces = shapes(count)
    lines += [in_memory(shape, times) for shape in traces]
    lines += [
        "",
        "`.sr` to Arrow. Times real time (100 MS/s). Beside them the limits of the very file, on one thread: to "
        f"inflate it and do nothing else, with zlib {zlib.ZLIB_RUNTIME_VERSION}, zlib-ng and libdeflate, and "
        "`samples()` of pcitrace, which copies the members into one piece of memory, too.",
        "",
        "| trace | deflated | zlib only | zlib-ng only | libdeflate only | read and joined | all, 1 thread "
        "| all, 2 threads "
        f"| five columns, {'1 thread' if BUSY else '2 threads'} "
        "| serial share: x 16, x 64 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [from_file(shape, folder, max(times // 3, 3)) for shape in traces]
    jittered = next(shape for shape in traces if "jitter" in shape.name)
    return [*lines, "", *peers_of(jittered, folder, min(count, 1_000_000))]


def main() -> None:
    """Measure, and put the section into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000_000, help="of each trace (default: %(default)s)")
    parser.add_argument("--times", type=int, default=15, help="runs of each (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        put(args.output, HEADING, "\n".join(page(args.samples, Path(folder), args.times)))


if __name__ == "__main__":
    main()
