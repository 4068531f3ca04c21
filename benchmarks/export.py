"""Exports of many transactions: time, CPU time and memory of each format, into docs/benchmarks.md.

usage: python benchmarks/export.py [--transactions N] [--to FORMAT ...]
The trace is a dense one of `traffic.dense`, 16 channels. A format whose memory does not grow with the capture has
the same peak for both. (Problems are kept by the kernel until the end: some 60 bytes each.)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import traffic
from long import PAGE, put

from pcitrace.export import FORMATS

HEADING = "## Exports"
SAMPLES_A_TRANSACTION = 47  # of traffic.dense: about; the rows that were written are said

# VmHWM, not ru_maxrss: that one begins with what the process that started it holds.
EXPORT = """
import json, resource, sys, time
from pcitrace.cli import main
began = time.perf_counter()
status = main(sys.argv[1:])
took = time.perf_counter() - began
own = resource.getrusage(resource.RUSAGE_SELF)
[peak] = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
told = {"status": status, "s": took, "cpu_s": own.ru_utime + own.ru_stime, "mib": peak / 1024}
print(json.dumps(told), file=sys.stderr)
"""


def exported(capture: Path, to: str, folder: Path) -> dict[str, Any]:
    """Export in a fresh process; return what it took, and the bytes of what it wrote."""
    folder.mkdir()
    out = folder / f"out{FORMATS[to].suffix}"
    done = subprocess.run(
        [sys.executable, "-c", EXPORT, "export", str(capture), "--to", to, "-o", str(out), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    assert told["status"] == 0, done.stderr
    told["mb"] = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    told["rows"] = json.loads(done.stdout)["rows"]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    parser.add_argument("--to", nargs="+", choices=FORMATS, default=list(FORMATS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        captures = []
        for name, count in (("once", args.transactions), ("twice", 2 * args.transactions)):
            samples = traffic.dense(count * SAMPLES_A_TRANSACTION)
            captures.append(Path(place) / f"{name}.sr")
            traffic.write(captures[-1], samples.tobytes(), 2, traffic.CHANNELS_DENSE)
        lines = [
            "| format | transactions | s | CPU s | MB written | MiB at most | of twice as many |",
            "|---|---|---|---|---|---|---|",
        ]
        for to in args.to:
            once, twice = (exported(capture, to, Path(place) / "out") for capture in captures)
            lines.append(
                f"| `{to}` | {max(once['rows'].values()):,} | {once['s']:.1f} | {once['cpu_s']:.1f} "
                f"| {once['mb']:.0f} | {once['mib']:.0f} | {twice['mib']:.0f} |"
            )
    text = (
        "A dense bus, 16 channels at 100 MS/s, each export in a fresh process (`benchmarks/export.py`). "
        f"The load average was {os.getloadavg()[0]:.1f}: above 2 the CPU time counts, which FST spends on two threads."
    )
    put(args.output, HEADING, "\n".join([HEADING, "", text, "", *lines, ""]))


if __name__ == "__main__":
    main()
