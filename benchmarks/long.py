"""Measures a streaming capture of 10 s, from file to report, into docs/benchmarks.md.

The capture is simulated first, which takes some minutes; an existing run folder can be given instead. Every figure is
the best of three runs on two processors. `--sparse 10e9` reports so many samples in which little happens instead, and
prints the memory it took: at most 1 GiB.
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
SPARSE_MIB = 1024
SPARSE_EVERY = 33e6
"""Samples from 18 requests with their answers to the next 18."""

HEADING = "## A long capture"
PRESET = "acenic-fig4.2a"
FRAMES_A_SECOND = 44_600

WHOLE = """\
import resource, sys, time
start = time.perf_counter()
from pcitrace.cli import main
if __name__ == "__main__":
    assert main(["report", *sys.argv[1:]]) == 0
    took = time.perf_counter() - start
    # What getrusage says of itself begins with what its parent held.
    own = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("", took, own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
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
    _ = [bus.wire for bus in run.buses.values()]
    times.append(time.perf_counter())
    found = results.of_run(run)
    times.append(time.perf_counter())
    report.write(found, page)
    times.append(time.perf_counter())
    names = ("decode", "analysis", "page")
    took = dict(zip(names, (after - before for before, after in pairwise(times)), strict=True))
    samples = sum(capture.sample_count or 0 for capture in run.captures)
    return took | {"transactions": transactions, "frames": len(found.frames), "samples": samples}


def whole(path: Path, *options: str) -> list[float]:
    """Report in a fresh process; return its seconds, and the most memory that it and any of its children held (KiB)."""
    command = [sys.executable, "-c", WHOLE, str(path), *options]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(number) for number in out.splitlines()[-1].split()]


def sparse(folder: Path, samples: int, workers: int | None) -> None:
    """Report a long capture in which little happens; exit with 1 where it takes too much memory."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from idle_captures import stretch

    values = ["test.count=18", "sweep.loops=2"]
    command = [sys.executable, "-m", "pcitrace", "simulate", "acenic-fig3.1", "-o", str(folder / "once"), "--set"]
    subprocess.run([*command, *values], check=True, stdout=subprocess.DEVNULL)
    count = stretch(folder / "once", folder / "long", samples, max(int(samples / SPARSE_EVERY), 1))
    options = ["--json", *([] if workers is None else ["--workers", str(workers)])]
    took, *kib = whole(folder / "long", *options)
    mib = [one / 1024 for one in kib]
    worker = "" if workers is None else f", each worker {mib[1]:.0f} MiB"
    said = f"at most {mib[0]:.0f} MiB{worker} (limit {SPARSE_MIB})"
    print(f"{count:,} samples: `pcitrace report {' '.join(options)}` in {took:.0f} s, {said}")
    if max(mib) > SPARSE_MIB:
        sys.exit("the limit is not kept")


def section(path: Path, page: Path, times: int = 3) -> str:
    """Measure everything and return the part of the page."""
    runs = [steps(path, page) for _ in range(times)]
    least = {name: min(run[name] for run in runs) for name in runs[0]}
    fresh = [whole(path, "-o", str(page)) for _ in range(times)]
    took, kib, _ = (min(column) for column in zip(*fresh, strict=True))
    samples, transactions, frames = (int(least[name]) for name in ("samples", "transactions", "frames"))
    rows = [
        ("decode both buses and wires", "decode", f"{samples / least['decode'] / 1e6:,.0f} M samples/s"),
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
    section = re.compile(rf"^{heading}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    if not section.search(text):
        text = f"{text.rstrip()}\n\n{heading}\n"
    page.write_text(section.sub(lambda _: f"{made.rstrip()}\n\n", text).rstrip() + "\n", encoding="utf-8")
    print(made)


def main() -> None:
    """Measure, and put the section into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    parser.add_argument("--run", type=Path, help="an existing run folder instead of a simulated one")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the simulated capture (default 10)")
    parser.add_argument("--sparse", type=float, metavar="SAMPLES", help="report so many samples, most of them idle")
    parser.add_argument("--workers", type=int, help="report these on so many processes")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with tempfile.TemporaryDirectory() as folder:
        if args.sparse is not None:
            sparse(Path(folder), int(args.sparse), args.workers)
            return
        path = args.run or simulated(Path(folder), args.seconds)
        made = section(path, Path(folder) / "report.html")
    put(args.output, HEADING, made)


if __name__ == "__main__":
    main()
