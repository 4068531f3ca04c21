"""Whether `pcitrace watch` keeps up: 100 MS/s x 16 channels of ordinary traffic on one core.

    python benchmarks/watch.py [--preset acenic-fig4.2a]

A simulated run of two hosts is repeated through a pipe at exactly its rate, as an analyser would stream it, and
`pcitrace watch -` has one processor; its clock begins when the watch begins to read. Limits: nothing is skipped, and
less than 0.5 s pass from a sample to what counts it, a line of `--json` or the picture in a terminal. The same samples
in a file, of which nothing is ever skipped at first, say how much of a processor it takes, and whether the numbers are
those of decoding the file.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import pcitrace
from pcitrace.cli import main as cli
from pcitrace.records import records

LIMIT_S = 0.5
PIECE_S = 0.01
"""An analyser on USB or PCIe gives its samples in pieces of some milliseconds."""


PRESETS = {
    "acenic-fig3.1": ["test.count=100", "test.configure=false", "sweep.loops=2"],
    "acenic-fig4.2a": ["test.count=2000", "truth=frames"],
}
"""Ordinary traffic, request and response; and frames one behind the other, the most that there is."""


class Raw:
    """The samples of a capture, and what `watch` has to be told of them."""

    def __init__(self, path: Path) -> None:
        [capture] = pcitrace.open(path).captures
        samples = capture.samples()
        assert capture.rate_hz is not None
        self.channels, self.rate_hz, self.samples = capture.channels, capture.rate_hz, samples.tobytes()
        self.per_second = self.rate_hz * samples.shape[1]
        self.options = ["--channels", ",".join(self.channels), "--rate", f"{self.rate_hz:g}"]


class Watched(NamedTuple):
    """What became of a watch: its last line, processor time, the longest way to the screen."""

    line: dict[str, Any]
    cpu_s: float
    longest_s: float


def simulated(preset: str, folder: Path) -> Path:
    """Simulate a run of two hosts; return its capture."""
    assert cli(["simulate", preset, "-o", str(folder / "run"), "--set", *PRESETS[preset]]) == 0
    return folder / "run" / "bus.sr"


def paced(samples: bytes, count: int, per_second: float, to: IO[bytes], marks: list[tuple[float, float]]) -> None:
    """Write samples `count` times over at so many bytes a second; note when which time of the bus went out."""
    size = min(int(per_second * PIECE_S), len(samples))
    whole = len(samples) * count
    begin = time.monotonic()
    for at in range(0, whole, size):
        wait = begin + (at + size) / per_second - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        elif at == size:
            # More than a pipe holds is gone: the watch is there.
            begin = time.monotonic() - at / per_second
        start = at % len(samples)
        piece = (samples[start : start + size] + samples[: max(start + size - len(samples), 0)])[: whole - at]
        to.write(piece)
        marks.append((time.monotonic(), (at + len(piece)) / per_second * 1e6))
    to.close()


def watched(raw: Raw, count: int, options: list[str]) -> Watched:
    """Watch samples that come through a pipe `count` times over, at their rate."""
    process = start(["-", *raw.options, *options, "--json"], subprocess.PIPE, subprocess.PIPE)
    assert process.stdout is not None
    marks = sent(raw, count, process)
    return followed(process, told_lines(process.stdout), marks)


def watched_in_a_terminal(raw: Raw, count: int, options: list[str]) -> Watched:
    """The same, of which the picture in a terminal is read."""
    terminal, inside = pty.openpty()
    process = start(["-", *raw.options, *options], subprocess.PIPE, inside)
    os.close(inside)
    marks = sent(raw, count, process)
    return followed(process, told_pictures(terminal), marks)


def sent(raw: Raw, count: int, process: subprocess.Popen[bytes]) -> list[tuple[float, float]]:
    """Begin to write samples at their rate; return the list in which it is noted what went when."""
    assert process.stdin is not None
    marks: list[tuple[float, float]] = []
    arguments = (raw.samples, count, raw.per_second, process.stdin, marks)
    threading.Thread(target=paced, args=arguments, daemon=True).start()
    return marks


def start(arguments: list[str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    """Start a watch on one processor."""
    core = str(max(os.sched_getaffinity(0)))
    command = ["taskset", "--cpu-list", core, sys.executable, "-m", "pcitrace", "watch", *arguments]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, env={**os.environ, "COLUMNS": "120", "LINES": "40"})


def told_lines(out: IO[bytes]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the lines of `--json`, each with when it came."""
    for text in out:
        yield time.monotonic(), json.loads(text)


def told_pictures(terminal: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield what the first line of each picture in a terminal says, with when it was drawn whole."""
    waiting = b""
    while True:
        try:
            waiting += os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            return
        # The picture's last line ends it: what follows a head is drawn in the same write.
        heads = list(HEAD.finditer(waiting))
        if heads:
            found = heads[-1]
            yield time.monotonic(), {"time_us": float(found[1]) * 1e6, "skipped_samples": int(found[2] or 0)}
            waiting = waiting[found.end() :]


HEAD = re.compile(rb" ([0-9.]+) s   late by [0-9]+ ms(?:   [0-9]+ gaps, ([0-9]+) samples skipped)?")
"""The first line of the view."""


def followed(
    process: subprocess.Popen[bytes], told: Iterator[tuple[float, dict[str, Any]]], marks: list[tuple[float, float]]
) -> Watched:
    """Read what a watch says until it ends."""
    longest, line, shown_us = 0.0, {}, 0.0
    for now, line in told:
        # The oldest sample that this is the first to count.
        went = next((went for went, us in marks if us > shown_us), now)
        longest, shown_us = max(longest, now - went), line["time_us"]
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    return Watched(line, used.ru_utime + used.ru_stime, longest)


def recorded(raw: Raw, path: Path, count: int) -> float:
    """Write samples `count` times over; return how long they are (s)."""
    with path.open("wb") as file:
        for _ in range(count):
            file.write(raw.samples)
    return path.stat().st_size / raw.per_second


def expected(raw: Raw, path: Path) -> dict[str, Any]:
    """Return what a file of samples says when it is decoded."""
    run = pcitrace.open(path, channels=raw.channels, rate_hz=raw.rate_hz)
    found = {}
    for name, bus in run.buses.items():
        [clocks] = records(bus.clocks())
        problems = {str(kind): int(n) for kind, n in bus.problems.groupby("kind")["count"].sum().items()}
        found[name] = (len(run.table(name)), clocks["total"], clocks["data"], clocks["bytes"], problems)
    return found


def told(line: dict[str, Any]) -> dict[str, Any]:
    """Return the same of the last line of a watch."""
    found = {}
    for name, bus in line["buses"].items():
        total = bus["total"]
        clocks = [total["clocks"][key] for key in ("total", "data", "bytes")]
        found[name] = (total["transactions"], *clocks, bus["problems"])
    return found


def main() -> None:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of the bus (default 3)")
    parser.add_argument("--preset", choices=[*PRESETS], default="acenic-fig3.1", help="what the traffic is")
    parser.add_argument("--no-rules", action="store_true", help="as of `pcitrace watch`")
    args = parser.parse_args()
    options = ["--no-rules"] if args.no_rules else []
    with tempfile.TemporaryDirectory() as name:
        raw, path = Raw(simulated(args.preset, Path(name))), Path(name) / "samples.bin"
        count = max(round(args.seconds * raw.per_second / len(raw.samples)), 2)
        live, drawn = watched(raw, count, options), watched_in_a_terminal(raw, count, options)
        used = []
        for repeats in (1, count):
            seconds = recorded(raw, path, repeats)
            arguments = [str(path), *raw.options, "--idle", "0.1", *options, "--json"]
            process = start(arguments, subprocess.DEVNULL, subprocess.PIPE)
            assert process.stdout is not None
            whole = followed(process, told_lines(process.stdout), [])
            used.append((seconds, whole.cpu_s))
        afterwards = expected(raw, path)
    (short, begin), (seconds, all_) = used
    busy = (all_ - begin) / (seconds - short)
    transactions = sum(one[0] for one in afterwards.values()) / seconds
    print(f"{seconds:.2f} s of {len(raw.channels)} channels at {raw.rate_hz / 1e6:g} MS/s, {transactions:.0f} tx/s")
    print(f"from a file: {busy:.2f} s of processor a second of the bus (limit 1)")
    same = told(whole.line) == afterwards and not whole.line["skipped_samples"]
    print(f"from a file: numbers equal those of the recording: {same}")
    kept = same and busy <= 1
    for how, one in (("--json", live), ("a terminal", drawn)):
        skipped = one.line["skipped_samples"]
        kept = kept and not skipped and one.longest_s <= LIMIT_S
        print(
            f"from a pipe at its rate, to {how}: skipped {skipped} samples (limit 0), "
            f"at most {one.longest_s:.2f} s from a sample to what shows it (limit {LIMIT_S})"
        )
    if not kept:
        sys.exit("a limit is not kept; on a machine with other work only the processor's time says something")


if __name__ == "__main__":
    main()
