"""How long `pcitrace network` takes for a log of 10 million frames, sent and received, and how much memory.

    python benchmarks/network.py [--frames 10000000] [--repeats 3]

A stream of 64-byte frames 3 µs apart, 0.02 % of them lost, with clock exchanges: all results of it, in fresh processes.
Processor time is held against the goal, the best of --repeats: other work on the machine does not count as ours. Exits
with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from framegen import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from netlogs import EXCHANGE, START_NS, Folder, records

GOAL_SECONDS = 5.0
GOAL_BYTES = 1.5e9


def write(path: Path, frames: int) -> None:
    """The run folder of the stream."""
    random = np.random.default_rng(1)
    folder = Folder(path, {"kind": "stream", "sizes": [64], "count": frames, "spacing_us": 3.0})
    sent = records(frames, 64)
    sent["send_ns"] = START_NS + np.arange(frames) * 3000 + random.integers(0, 200, frames)
    folder.log(0, 0, "sent", sent)
    arrived = sent["send_ns"] + 10_000 + random.exponential(1000, frames).astype(np.int64)
    sent["receive_ns"] = np.maximum.accumulate(arrived)
    folder.log(0, 1, "received", np.delete(sent, random.integers(0, frames, frames // 5000)))
    exchanges = np.zeros(400, EXCHANGE)
    at = START_NS + np.arange(400) * (frames * 3000 // 400)
    for name in EXCHANGE.names or ():
        exchanges[name] = at
        at = at + 5000 + random.exponential(500, 400).astype(np.int64)
    folder.compare(1, exchanges)
    folder.write()


def analysed(folder: Path) -> tuple[float, float, float]:
    """Processor time, time, s, and memory, bytes, of one analysis."""
    begin = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "pcitrace", "network", folder, "--json"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"pcitrace network ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begin, usage.ru_maxrss * 1024.0


def main() -> int:
    """Measure; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), options.frames)
        runs = [analysed(Path(name)) for _ in range(options.repeats)]
    processor, elapsed, memory = (min(column) for column in zip(*runs, strict=True))
    table.line(f"{options.frames:,} frames: processor time", f"{processor:.1f} s", "< 5 s", processor < GOAL_SECONDS)
    table.line("  elapsed", f"{elapsed:.1f} s")
    table.line("  memory", f"{memory / 1e9:.2f} GB", "< 1.5 GB", memory < GOAL_BYTES)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
