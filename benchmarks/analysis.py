"""Measures the analysis, from decoded tables to constants, of a run of each preset, into docs/benchmarks.md.

The runs are simulated first, which takes half an hour; existing run folders `PRESET.WIRES` can be given instead. Every
figure is the best of five runs on two processors.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from long import PAGE, put

import pcitrace
from pcitrace import results
from pcitrace.simulate import PRESETS

HEADING = "## Analysis of the presets"
WIRES = {"full": "AD and C/BE#", "control16": "control lines"}
FRAMES = 20_000


def simulated(preset: str, wires: str, path: Path) -> None:
    """Simulate one run, unless it is there."""
    if not path.exists():
        values = [f"test.count={FRAMES}", "truth=frames", f"analyser.wires={wires}"]
        command = [sys.executable, "-m", "pcitrace", "simulate", preset, "-o", str(path), "--set", *values]
        subprocess.run(command, check=True)


def analysed(path: Path, times: int = 5) -> tuple[int, int, float]:
    """Return how many transactions and frames there are, and the seconds that their analysis takes."""
    took = []
    for _ in range(times):
        run = pcitrace.open(path)
        transactions = 0
        for name, bus in run.buses.items():
            has_address = any(line.startswith("AD") for line in bus.lines)
            transactions += len(run.table(name, data_phases=has_address))
            _ = bus.wire, bus.data_phases if has_address else None
        start = time.perf_counter()
        found = results.of_run(run)
        took.append(time.perf_counter() - start)
    return transactions, len(found.frames), min(took)


def main() -> None:
    """Measure, and put the section into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    parser.add_argument("--runs", type=Path, help="a folder of existing run folders; what is not there is simulated")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for preset in PRESETS:
            for wires, captured in WIRES.items():
                path = (args.runs or Path(folder)) / f"{preset}.{wires}"
                simulated(preset, wires, path)
                transactions, frames, took = analysed(path)
                speed = transactions / took / 1e6
                rows.append(f"| `{preset}` | {captured} | {transactions:,} | {frames:,} | {took:.2f} | {speed:.2f} |")
    head = "| preset | captured | transactions | frames | s | M transactions/s |\n|---|---|---|---|---|---|"
    text = "Simulated. From decoded tables to constants: traffic, frames, timing. Aimed at: 1 M transactions/s or more."
    put(args.output, HEADING, "\n".join([HEADING, "", text, "", head, *rows, ""]))


if __name__ == "__main__":
    main()
