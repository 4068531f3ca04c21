"""How fast and how exact framegen is, beside plain Python, over one veth pair and in one run.

    sudo python benchmarks/framegen.py [--seconds 1] [--repeats 5] [--framegen PATH]

Prints a table of figures with their goals and exits with 1 if a goal is missed. It needs root for the two network
namespaces, and two CPUs to itself. Each figure is the best of --repeats: other processes can only make it worse, and
the last line says how busy they were.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

INTERFACE = "fgbench0"
ADDRESSES = ("198.18.0.1", "198.18.0.2")
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
# SCHED_FIFO for both sides, framegen's and Python's: ahead of whatever else the machine does.
PRIORITY = "50"
GOAL_FRAMES_PER_S = 400_000
GOAL_P50_US = 0.1
GOAL_P99_US = 1.0
GOAL_ROUND_TRIP = 0.6

# What one writes in Python: blocking sockets. With `spin` the same without ever sleeping in the kernel.
PYTHON_ECHO = """
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B6))
s.bind(("{interface}", 0x88B6)); s.setblocking(not {spin})
print("ready", flush=True)
while True:
    try:
        frame = s.recv(2048)
    except BlockingIOError:
        continue
    s.send(frame[6:12] + frame[:6] + frame[12:])
"""

PYTHON_ROUND_TRIPS = """
import socket, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B6))
s.bind(("{interface}", 0x88B6)); s.settimeout(0 if {spin} else 0.1)
frame = bytes.fromhex("{to}{own}88b6") + bytes(64)
trips = []
for _ in range({count}):
    begin = time.perf_counter_ns()
    s.send(frame)
    while time.perf_counter_ns() - begin < 100_000_000:
        try:
            s.recv(2048)
            break
        except (BlockingIOError, TimeoutError):
            pass
    trips.append((time.perf_counter_ns() - begin) / 1e3)
print(*trips)
"""

# The same over UDP, as udpmon asks and answers; blocking.
UDP_ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("{there}", 9))
print("ready", flush=True)
while True:
    data, address = s.recvfrom(2048)
    s.sendto(data, address)
"""

UDP_ROUND_TRIPS = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("{there}", 9)); s.settimeout(0.1)
trips = []
for _ in range({count}):
    begin = time.perf_counter_ns()
    s.send(bytes(64))
    try:
        s.recv(2048)
    except TimeoutError:
        pass
    trips.append((time.perf_counter_ns() - begin) / 1e3)
print(*trips)
"""

PYTHON_SENDER = """
import socket, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.bind(("{interface}", 0))
frame = bytes.fromhex("{to}{own}88b7") + bytes(64)
begin, count = time.perf_counter(), 0
while time.perf_counter() - begin < {seconds}:
    s.send(frame)
    count += 1
print(count / (time.perf_counter() - begin))
"""


def run(*command: str, **options: Any) -> str:
    """Run a command that must succeed."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, **options).stdout


@contextmanager
def network() -> Iterator[tuple[str, str]]:
    """Two namespaces and a veth pair, gone afterwards."""
    names = (f"fgbench-{os.getpid()}-a", f"fgbench-{os.getpid()}-b")
    try:
        for name in names:
            run("ip", "netns", "add", name)
        words = ["type", "veth", "peer", "name", INTERFACE, "netns", names[1], "address", MACS[1]]
        run("ip", "link", "add", INTERFACE, "netns", names[0], "address", MACS[0], *words)
        for name, address in zip(names, ADDRESSES, strict=True):
            run("ip", "-n", name, "address", "add", f"{address}/30", "dev", INTERFACE)
            run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv6.conf.{INTERFACE}.disable_ipv6=1")
            run("ip", "-n", name, "link", "set", INTERFACE, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextmanager
def background(*command: str) -> Iterator[None]:
    """A process that has said its first line, until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            sys.exit(f"{' '.join(command[:6])} did not start")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)


def busy() -> float:
    """CPU seconds that everything on this machine has used so far."""
    user, nice, system = (int(word) for word in Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


class Table:
    """The figures, each beside its goal."""

    def __init__(self) -> None:
        self.missed = 0

    def line(self, name: str, figure: str, goal: str = "", reached: bool = True) -> None:
        """Print one figure."""
        self.missed += not reached
        print(f"{name:<52} {figure:>22}   {goal} {'' if reached else '  MISSED'}", flush=True)


def measure(framegen: str, seconds: float, repeats: int, here: str, there: str, cpus: tuple[int, int]) -> int:
    """All figures; the number of goals missed."""
    at_here = ("ip", "netns", "exec", here, "taskset", "-c", str(cpus[0]), "chrt", "-f", PRIORITY)
    at_there = ("ip", "netns", "exec", there, "taskset", "-c", str(cpus[1]), "chrt", "-f", PRIORITY)
    words: dict[str, Any] = {"interface": INTERFACE, "own": MACS[0].replace(":", ""), "to": MACS[1].replace(":", "")}
    table = Table()
    # framegen pins its own threads, so that its control threads are free to go elsewhere.
    serve = ("ip", "netns", "exec", there, framegen, "serve", "-i", INTERFACE)
    with background(
        *serve, "--cpu", str(cpus[1]), "--priority", PRIORITY, "--max-rate-mbit", "10000", "--max-frames", "20000000"
    ):

        def test(*options: str) -> list[dict[str, Any]]:
            common = ("-i", INTERFACE, "-p", MACS[1], "--json", "--cpu", str(cpus[0]), "--priority", PRIORITY)
            points = []
            for _ in range(repeats):
                out = run("ip", "netns", "exec", here, framegen, *options, *common)
                points += json.loads(out.splitlines()[-1])["summary"]["points"]
            return points

        for transmit in ("send", "ring"):
            points = test("max-rate", "--seconds", str(seconds), "--max-rate-mbit", "10000", "--transmit", transmit)
            flows = [point["flows"][0] for point in points]
            rate = max(flow["received_rate"]["frames_per_s"] for flow in flows)
            lost, sent = (sum(flow[name] for flow in flows) for name in ("lost", "sent"))
            name = f"64-byte frames sent and received a second, {transmit}"
            table.line(name, f"{rate:,.0f}", f">= {GOAL_FRAMES_PER_S:,}", rate >= GOAL_FRAMES_PER_S)
            table.line("  lost in all repeats", f"{lost} of {sent}", "0", lost == 0)
        for spacing in (12.5, 22, 100):
            points = test("stream", "--spacing-us", str(spacing), "--count", str(int(seconds * 1e6 / spacing)))
            distributions = [point["flows"][0]["send_spacing_us"] for point in points]
            middle = min((d["p50"] - spacing for d in distributions), key=abs)
            upper = min((d["p99"] - spacing for d in distributions), key=abs)
            name = f"spacing {spacing} µs: p50 off by"
            table.line(name, f"{middle:+.3f} µs", f"within {GOAL_P50_US}", abs(middle) <= GOAL_P50_US)
            table.line("  p99 off by", f"{upper:+.3f} µs", f"within {GOAL_P99_US}", abs(upper) <= GOAL_P99_US)
        ours = min(point["round_trip_us"][0]["p50"] for point in test("ping-pong", "--count", "20000"))
    table.line("64-byte round trip p50: framegen", f"{ours:.2f} µs")
    for spin in (False, True):
        with background(*at_there, sys.executable, "-c", PYTHON_ECHO.format(spin=spin, **words)):
            trips = [
                run(*at_here, sys.executable, "-c", PYTHON_ROUND_TRIPS.format(count=20000, spin=spin, **words))
                for _ in range(repeats)
            ]
        python = min(statistics.median(map(float, out.split())) for out in trips)
        ratio = ours / python
        table.line(f"  Python, {'spinning' if spin else 'blocking'}", f"{python:.2f} µs")
        goal = "" if spin else f"<= {GOAL_ROUND_TRIP}"
        table.line("  framegen / Python", f"{ratio:.2f}", goal, spin or ratio <= GOAL_ROUND_TRIP)
    with background(*at_there, sys.executable, "-c", UDP_ECHO.format(there=ADDRESSES[1])):
        script = UDP_ROUND_TRIPS.format(there=ADDRESSES[1], count=20000)
        trips = [run(*at_here, sys.executable, "-c", script) for _ in range(repeats)]
    table.line(
        "  Python over UDP, blocking", f"{min(statistics.median(map(float, out.split())) for out in trips):.2f} µs"
    )
    script = PYTHON_SENDER.format(seconds=seconds, **words)
    rate = max(float(run(*at_here, sys.executable, "-c", script)) for _ in range(repeats))
    table.line("64-byte frames sent a second: Python, nobody receiving", f"{rate:,.0f}")
    return table.missed


def main() -> int:
    """Measure; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framegen", default=shutil.which("framegen"), help="the binary to measure")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each figure")
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("two CPUs are needed, one for each side")
    parser.add_argument("--cpus", default=f"{allowed[-2]},{allowed[-1]}", help="CPUs of the two sides (%(default)s)")
    options = parser.parse_args()
    if options.framegen is None:
        sys.exit("framegen is not on the PATH; --framegen names it")
    first, second = (int(word) for word in options.cpus.split(","))
    begin, used, own = time.monotonic(), busy(), os.times()
    with network() as (here, there):
        missed = measure(options.framegen, options.seconds, options.repeats, here, there, (first, second))
    now = os.times()
    ours = sum(now[:4]) - sum(own[:4])
    others = max(0.0, busy() - used - ours) / (time.monotonic() - begin)
    print(f"others used {others:.1f} of {os.cpu_count()} CPUs meanwhile")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
