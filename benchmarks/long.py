"""Measures a streaming capture of 10 s, from file to report, into docs/benchmarks.md.

The capture is simulated first, which takes some minutes; an existing run folder can be given instead. Every figure is
the best of three runs on two processors.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pcitrace
from pcitrace import report, results

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEADING = "## A long capture"
PRESET = "acenic-fig4.2a"
FRAMES_A_SECOND = 44_600

WHOLE = """\
import sys, time
start = time.perf_counter()
from pcitrace.cli import main
assert main(["report", sys.argv[1], "-o", sys.argv[2]]) == 0
took = time.perf_counter() - start
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(took, peak)
"""


def simulated(folder: Path, seconds: float) -> Path:
    """Simulate the capture."""
    values = [f"test.count={int(seconds * FRAMES_A_SECOND)}", "truth=frames"]
    command = [sys.executable, "-m", "pcitrace", "simulate", PRESET, "-o", str(folder / "run"), "--set", *values]
    subprocess.run(command, check=True)
    return folder / "run"


def steps(path: Path, page: Path) -> dict[str, float]:
    """From file to report in this process; seconds of each step, and counts."""
    times = [time.perf_counter()]
    run = pcitrace.open(path)
    transactions = sum(len(run.table(name)) for name in run.buses)
    times.append(time.perf_counter())
    for bus in run.buses.values():
        _ = bus.wire
    times.append(time.perf_counter())
    found = results.of_run(run)
    times.append(time.perf_counter())
    report.write(found, page)
    times.append(time.perf_counter())
    names = ("decode", "wire", "analysis", "page")
    took = dict(zip(names, (after - before for before, after in pairwise(times)), strict=True))
    samples = sum(capture.sample_count or 0 for capture in run.captures)
    return took | {"transactions": transactions, "frames": len(found.frames), "samples": samples}


def section(path: Path, page: Path, times: int = 3) -> str:
    """Measure everything and return the part of the page."""
    runs = [steps(path, page) for _ in range(times)]
    least = {name: min(run[name] for run in runs) for name in runs[0]}
    fresh = []
    for _ in range(times):
        command = [sys.executable, "-c", WHOLE, str(path), str(page)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        fresh.append([float(number) for number in out.splitlines()[-1].split()])
    took, kib = (min(column) for column in zip(*fresh, strict=True))
    samples, transactions, frames = (int(least[name]) for name in ("samples", "transactions", "frames"))
    rows = [
        ("decode both buses", "decode", f"{samples / least['decode'] / 1e6:,.0f} M samples/s"),
        ("the frames on both wires", "wire", f"{samples / least['wire'] / 1e6:,.0f} M samples/s"),
        (
            "analysis: traffic, frames, timing",
            "analysis",
            f"{transactions / least['analysis'] / 1e6:.1f} M transactions/s",
        ),
        ("report: figures and page", "page", ""),
    ]
    return "\n".join(
        [
            HEADING,
            "",
            f"Simulated, `{PRESET}`: {samples:,} samples of 16 channels, two buses, {transactions:,} transactions, "
            f"{frames:,} frames. `pcitrace report RUN -o report.html`, a fresh process, takes {took:.1f} s and at most "
            f"{kib / 1024:,.0f} MiB. Its steps:",
            "",
            "| step | s | |",
            "|---|---|---|",
            *(f"| {what} | {least[name]:.2f} | {speed} |" for what, name, speed in rows),
            "",
        ]
    )


def put(page: Path, heading: str, made: str) -> None:
    """Put a section into a page, in place of the one that it had."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    others = re.sub(rf"{heading}\n.*?(?=\n## |\Z)", "", text, flags=re.DOTALL).rstrip()
    page.write_text(f"{others}\n\n{made}", encoding="utf-8")
    print(made)


def main() -> None:
    """Measure, and put the section into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    parser.add_argument("--run", type=Path, help="an existing run folder instead of a simulated one")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the simulated capture (default 10)")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with tempfile.TemporaryDirectory() as folder:
        path = args.run or simulated(Path(folder), args.seconds)
        made = section(path, Path(folder) / "report.html")
    put(args.output, HEADING, made)


if __name__ == "__main__":
    main()
