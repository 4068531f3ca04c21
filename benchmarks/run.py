"""Measures decoding against the memory limit and other ways to do it, all in one run, into docs/benchmarks.md.

Every figure is the best of several runs; what is compared ran in the same minute. Nothing here is a test: figures vary
from machine to machine, ratios less so. Wants a quiet machine and about 4 GB of memory.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import peers
import traffic
from numpy.typing import NDArray

from pcitrace import _kernel
from pcitrace.wiring import resolve_wiring

REPOSITORY = Path(__file__).parent.parent
PCITRACE = Path(sys.executable).with_name("pcitrace")


def best(work: Callable[[], object], times: int = 15) -> float:
    """The shortest of several runs, in seconds."""
    return in_turn([work], times)[0]


def in_turn(works: Sequence[Callable[[], object]], times: int) -> list[float]:
    """The shortest of several runs of each, in seconds; run in turn, so that what disturbs the machine disturbs all."""
    shortest = [math.inf] * len(works)
    for _ in range(times):
        for number, work in enumerate(works):
            start = time.perf_counter()
            work()
            shortest[number] = min(shortest[number], time.perf_counter() - start)
    return shortest


@dataclass
class Row:
    """One line of a table of results."""

    what: str
    seconds: float
    samples: int
    limit: float | None = None

    def __str__(self) -> str:
        """As Markdown."""
        ratio = "" if self.limit is None else f"{self.seconds / self.limit:.2f}"
        return f"| {self.what} | {self.seconds * 1e3:,.1f} | {self.samples / self.seconds / 1e6:,.0f} | {ratio} |"


HEAD = "| decode | ms | MS/s | time / limit |\n|---|---|---|---|"


def spec(channels: list[str]) -> dict[str, object]:
    """The wiring of the traffic's channels."""
    lines = {name: (bit, 0, name.endswith("#")) for bit, name in enumerate(channels) if not name.startswith("spare")}
    return {"name": "PCI", "width": None, "lines": lines}


def kernel(samples: NDArray[np.unsignedinteger], channels: list[str], what: str) -> list[Row]:
    """Samples in memory to transactions, against one thread that reads the same buffer."""
    data = samples.tobytes()
    # The same memory for all; numpy's own arrays lie in large pages.
    words, large = np.frombuffer(data, np.uint64), samples.view(np.uint64)
    halves = np.array_split(words, 2)
    capture = _kernel.from_samples(data, samples.itemsize, channels, traffic.RATE_MHZ * 1e6)
    bus = spec(channels)
    with ThreadPoolExecutor(2) as pool:
        ways: dict[str, Callable[[], object]] = {
            f"limit: one thread XORs the {what} buffer": lambda: np.bitwise_xor.reduce(words),
            "the same on two threads": lambda: list(pool.map(np.bitwise_xor.reduce, halves)),
            "a copy in pages of 2 MB, one thread": lambda: np.bitwise_xor.reduce(large),
            f"kernel, {what}, 1 thread": partial(_kernel.decode, capture, [bus], threads=1),
            f"kernel, {what}, 2 threads": partial(_kernel.decode, capture, [bus], threads=2),
        }
        took_each = in_turn(list(ways.values()), 50)
    limit = took_each[0]
    rows = [Row(way, took, len(samples), limit) for way, took in zip(ways, took_each, strict=True)]
    took = best(lambda: _kernel.decode(capture, [bus], threads=1, portable=True), 3)
    rows.append(Row(f"kernel, {what}, 1 thread, without vector instructions", took, len(samples), limit))
    return rows


def write_sr(path: Path, samples: NDArray[np.uint16], chunk: int = 2 << 20) -> None:
    """A sigrok session of 16 channels, in members of `chunk` samples."""
    names = "".join(f"probe{bit + 1}={name}\n" for bit, name in enumerate(traffic.CHANNELS_16))
    metadata = (
        "[global]\nsigrok version=0.5.2\n\n[device 1]\ncapturefile=logic-1\ntotal probes=16\n"
        f"samplerate=100 MHz\ntotal analog=0\n{names}unitsize=2\n"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as session:
        session.writestr("version", "2")
        session.writestr("metadata", metadata)
        for number, start in enumerate(range(0, len(samples), chunk), 1):
            session.writestr(f"logic-1-{number}", samples[start : start + chunk].tobytes())


def table_of(path: Path, threads: int = 2) -> int:
    """A capture file to the table of transactions in memory; its rows."""
    capture = _kernel.open(str(path))
    [decoded] = _kernel.decode(capture, [spec(traffic.CHANNELS_16)], threads=threads)
    return decoded.transactions.num_rows


def everything_of(vcd: Path) -> int:
    """A waveform file to the tables of transactions and data phases; their rows."""
    capture = _kernel.open(str(vcd))
    bus = resolve_wiring(capture.channels).bus()
    [decoded] = _kernel.decode(capture, [bus.spec()], data_phases=True)
    return decoded.transactions.num_rows + decoded.data_phases.num_rows


def machine() -> str:
    """Processor, cores, system and commit."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    model = said.get("model name", platform.processor())
    if "cpu family" in said:
        # Machines of one name differ by half: a cloud's "AMD EPYC" may be of any generation.
        model += f" (family {said['cpu family']}, model {said['model']})"
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout.strip()
    cores = os.cpu_count()
    return f"{model}, {cores} logical processors, {platform.system()}, Python {platform.python_version()}, {commit}"


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=REPOSITORY / "docs" / "benchmarks.md")
    parser.add_argument("--samples", type=int, default=100_000_000, help="of the 16-bit trace (default: %(default)s)")
    args = parser.parse_args()
    count = args.samples
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])

    page = ["# Benchmarks", "", __doc__.split("\n\n")[1], "", f"`make bench` on: {machine()}, two of them used.", ""]
    u16 = traffic.samples(count)
    rows = kernel(u16, traffic.CHANNELS_16, "u16")
    part, limit = u16[: count // 5], rows[0].seconds / 5
    rows.append(Row("numpy, vectorised", best(lambda: peers.with_numpy(part), 3), len(part), limit))
    page += ["## Samples in memory", "", HEAD, *map(str, rows)]
    u64 = traffic.samples(count // 4, np.uint64)
    page += map(str, kernel(u64, traffic.CHANNELS_64, "u64"))
    del u64
    page += [
        "",
        "The kernel's time is from samples to rows; the u64 trace has AD, C/BE# and PAR, whose parity is checked.",
        "",
    ]

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        whole, ten, small = work / "whole.sr", work / "ten.sr", work / "small.sr"
        write_sr(whole, u16)
        write_sr(ten, u16[:10_000_000])
        write_sr(small, u16[:2_000_000])
        took = best(lambda: table_of(whole))
        sigrok = best(lambda: peers.with_sigrok(small), 2)
        csv = work / "small.csv"
        with csv.open("w") as out:
            subprocess.run(["sigrok-cli", "-i", str(small), "-O", "csv"], stdout=out, check=True)
        pandas = best(lambda: peers.with_pandas(csv), 2)
        recorded = count / (traffic.RATE_MHZ * 1e6)
        page += [
            "## A capture file to its table",
            "",
            "| what | ms | MS/s | times real time (100 MS/s) |",
            "|---|---|---|---|",
        ]
        for what, seconds, samples in [
            (f"`.sr`, {whole.stat().st_size / 1e6:.0f} MB deflated, to Arrow, 2 threads", took, count),
            ("a Python protocol decoder in sigrok-cli", sigrok, 2_000_000),
            ("pandas on the CSV that sigrok-cli exports (export not counted)", pandas, 2_000_000),
        ]:
            speed = samples / seconds / 1e6
            page.append(f"| {what} | {seconds * 1e3:,.1f} | {speed:,.1f} | {speed / 100:,.2f} |")
        ratio = (count / took) / (2_000_000 / sigrok)
        page += ["", f"{recorded / took:,.0f} times real time; {ratio:,.0f} times the sigrok decoder.", ""]

        page += ["## A fresh process, 10 M samples", "", "| command | ms |", "|---|---|"]
        for ending in ("csv", "parquet"):
            command = [str(PCITRACE), "decode", str(ten), "-o", str(work / f"out.{ending}")]
            took = best(partial(subprocess.run, command, check=True, capture_output=True), 5)
            page.append(f"| `pcitrace decode 10M.sr -o out.{ending}` | {took * 1e3:,.0f} |")

        trace = REPOSITORY / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"
        vcd = work / "bus.vcd"
        subprocess.run(["gzip", "-dc", str(trace)], stdout=vcd.open("wb"), check=True)
        ours = best(lambda: everything_of(vcd))
        theirs = best(lambda: peers.with_pywellen(vcd, "holdout_top.pci"), 3)
        page += [
            "",
            "## VCD",
            "",
            f"{vcd.stat().st_size / 1e6:.1f} MB, 17 nets: transactions and data phases with all their fields in "
            f"{ours * 1e3:.1f} ms; a decoder in Python on pywellen, of seven nets, "
            f"{theirs * 1e3:.1f} ms: {theirs / ours:.1f} times as long.",
            "",
        ]
    args.output.write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    main()
