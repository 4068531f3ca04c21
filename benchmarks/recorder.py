"""How fast captures are written, beside zipfile and sigrok-cli's own writer, in one run.

    python benchmarks/recorder.py [--seconds 1] [--repeats 3]

The samples are 16-bit at 100 MS/s: bus traffic of a simulated run, repeated, and noise, the worst case. 200 MB/s is
what a streaming analyser delivers; the recorder has to be faster. `record` is the whole path: replay server,
sigrok-cli, pipe, recorder, file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pcicap.samplewriter import SampleWriter
from pcicap.srfile import SrFile

RATE_MHZ = 100
UNIT_BYTES = 2
CHANNELS = {bit: f"A_L{bit}" for bit in range(14)}
PIECE_BYTES = 1 << 20


def bus_traffic(size: int) -> bytes:
    """Two clocks at a third of the rate, twelve lines that change in a third of the time."""
    random = np.random.default_rng(1)
    count = 2_000_000
    samples = ((np.arange(count) % 3 == 0) * 0x0081).astype(np.uint16)
    busy = np.repeat(random.random(count // 1000) < 1 / 3, 1000)
    clocks = np.repeat(random.integers(0, 1 << 12, count // 3 + 1), 3)[:count]
    lines = (clocks & np.repeat(random.integers(0, 1 << 12, count // 30 + 1), 30)[:count]) * busy
    samples |= ((lines & 0x3F) << 1 | (lines >> 6) << 8).astype(np.uint16)
    return (samples.tobytes() * (size // samples.nbytes + 1))[:size]


def noise(size: int) -> bytes:
    """Samples that nothing can be said about in fewer bits."""
    return np.random.default_rng(2).integers(0, 1 << 14, size // UNIT_BYTES, np.uint16).tobytes()


def write_recorder(path: Path, data: bytes) -> None:
    """As `pcicap record` writes what arrives."""
    writer = SampleWriter(SrFile(path, CHANNELS, UNIT_BYTES, RATE_MHZ * 1e6), UNIT_BYTES)
    for begin in range(0, len(data), PIECE_BYTES):
        writer.feed(data[begin : begin + PIECE_BYTES])
    writer.close()


def write_zipfile(path: Path, data: bytes) -> None:
    """The same chunks with zipfile at its fastest deflate, one thread."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number, begin in enumerate(range(0, len(data), 4 << 20)):
            archive.writestr(f"logic-1-{number + 1}", data[begin : begin + (4 << 20)])


def write_sigrok(path: Path, data: bytes) -> None:
    """sigrok-cli's own session writer, which rewrites the file for every packet."""
    raw = path.with_suffix(".raw")
    raw.write_bytes(data)
    form = f"binary:numchannels=16:samplerate={RATE_MHZ}000000"
    subprocess.run(["sigrok-cli", "-i", str(raw), "-I", form, "-o", str(path)], check=True, stdin=subprocess.DEVNULL)


def record(path: Path, _: bytes) -> None:
    """The whole path, through the real sigrok-cli; its start-up is in the figure."""
    source = path.with_name("source.sr")
    plan = path.with_suffix(".toml")
    plan.write_text(
        f'format = 1\n[[analysers]]\nname = "la"\n[analysers.replay]\nsource = "{source}"\n'
        '[hosts.A]\nwiring = { CLK = "A_L0" }\n'
    )
    subprocess.run([sys.executable, "-m", "pcicap", "record", "-q", plan, "-o", path.with_suffix("")], check=True)


def measure(write: Callable[[Path, bytes], None], path: Path, data: bytes) -> tuple[float, float]:
    """MB/s, and the size of the file over that of the samples."""
    begin = time.perf_counter()
    write(path, data)
    rate = len(data) / 1e6 / (time.perf_counter() - begin)
    written = path if path.exists() else path.with_suffix("") / "captures/la.sr"
    ratio = written.stat().st_size / len(data)
    written.unlink()
    return rate, ratio


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of the capture (default 1)")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many (default 3)")
    options = parser.parse_args()
    size = int(options.seconds * RATE_MHZ * 1e6) * UNIT_BYTES
    print(f"{size / 1e6:.0f} MB of samples, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<48}{'MB/s':>8}{'x real time':>13}{'file/samples':>14}")
    for kind, make in (("bus traffic", bus_traffic), ("noise", noise)):
        data = make(size)
        with tempfile.TemporaryDirectory() as folder:
            write_recorder(Path(folder) / "source.sr", data)
            cases = (
                ("recorder", write_recorder, 1.0),
                ("zipfile, level 1", write_zipfile, 1.0),
                # quadratic in the length: a tenth is enough to be seen
                ("sigrok-cli -o .sr, a tenth of it", write_sigrok, 0.1),
                ("record, replayed to sigrok-cli", record, 1.0),
            )
            for number, (name, write, share) in enumerate(cases):
                part = data[: int(len(data) * share) // UNIT_BYTES * UNIT_BYTES]
                rate, ratio = max(
                    measure(write, Path(folder) / f"{number}-{n}.sr", part) for n in range(options.repeats)
                )
                print(f"{kind}: {name:<{46 - len(kind)}}{rate:8.0f}{rate / RATE_MHZ / UNIT_BYTES:13.2f}{ratio:14.2f}")


if __name__ == "__main__":
    main()
