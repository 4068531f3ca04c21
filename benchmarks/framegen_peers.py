"""framegen beside iperf3, nuttcp, trafgen and sockperf, over one veth pair and in one run, taking turns.

    sudo python benchmarks/framegen_peers.py [--seconds 1] [--repeats 3] [--framegen PATH]

Frames have 64 user bytes, which are 36 bytes of UDP data. All run under SCHED_FIFO, each side on its own CPU. Each
figure is the best of --repeats. Exits with 1 if a goal is missed; a peer that is not installed is left out, and said.

Over a veth pair the sender's CPU does the receiving kernel's work too, which two hosts do not: rates are measured so,
and with the receiving side's work steered to its own CPU (rps_cpus), for framegen and peer alike. Both have the goal.

framegen's frames have an EtherType here. Those with a length field go through Linux's LLC as well, where its module is
loaded (bridges load it), but after they came to framegen; their round trip is told beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from framegen import ADDRESSES, INTERFACE, MACS, PRIORITY, Table, background, network, run

DATA = 64 - 28
NOBODY = "02:00:00:00:00:7f"


@dataclass
class Bench:
    """Two namespaces, each side on a CPU."""

    framegen: str
    seconds: float
    here: str
    there: str
    cpus: tuple[int, int]
    figures: dict[str, list[float]] = field(default_factory=dict)

    def at(self, side: int, *command: str) -> tuple[str, ...]:
        """A command in a namespace, on its CPU."""
        place = ("ip", "netns", "exec", (self.here, self.there)[side])
        return (*place, "taskset", "-c", str(self.cpus[side]), "chrt", "-f", PRIORITY, *command)

    def ours(self, *options: str, framing: tuple[str, ...] = ("--ethertype",)) -> dict[str, object]:
        """The only point of a test."""
        common = ("-i", INTERFACE, "--json", "--cpu", str(self.cpus[0]), "--priority", PRIORITY, *framing)
        out = run("ip", "netns", "exec", self.here, self.framegen, *options, *common)
        return json.loads(out.splitlines()[-1])["summary"]["points"][0]

    def serving(self):
        """`framegen serve` at the other end."""
        words = ("--cpu", str(self.cpus[1]), "--priority", PRIORITY, "--max-rate-mbit", "10000")
        place = ("ip", "netns", "exec", self.there)
        return background(*place, self.framegen, "serve", "-i", INTERFACE, *words, "--max-frames", "20000000")

    def received(self) -> float:
        """Frames a second that framegen sent and received."""
        with self.serving():
            words = ("max-rate", "-p", MACS[1], "--seconds", f"{self.seconds}", "--max-rate-mbit", "10000")
            return float(self.ours(*words)["flows"][0]["received_rate"]["frames_per_s"])

    def unheard(self) -> float:
        """Frames a second that framegen sent to nobody."""
        words = ("max-rate", "-p", NOBODY, "--allow-unknown", "--seconds", f"{self.seconds}")
        return float(self.ours(*words, "--max-rate-mbit", "10000")["flows"][0]["sent_rate"]["frames_per_s"])

    def round_trip(self) -> float:
        """Median round trip, µs."""
        return self._round_trip()

    def with_length(self) -> float:
        """The same of frames with a length field."""
        return self._round_trip(framing=())

    def _round_trip(self, **how: tuple[str, ...]) -> float:
        with self.serving():
            point = self.ours("ping-pong", "-p", MACS[1], "--count", "20000", **how)
        return float(point["round_trip_us"][0]["p50"])

    def iperf3(self) -> float:
        """Datagrams a second that its server received."""
        with self.server("iperf3", "-s", "-1", "-B", ADDRESSES[1]):
            words = ("-u", "-b", "0", "-l", f"{DATA}", "-t", f"{max(1, round(self.seconds))}", "-J")
            end = json.loads(run(*self.at(0, "iperf3", "-c", ADDRESSES[1], *words)))["end"]["sum"]
        return float((end["packets"] - end["lost_packets"]) / end["seconds"])

    def nuttcp(self) -> float:
        """The same of nuttcp."""
        with self.server("nuttcp", "-S", "-1", "--nofork"):
            words = ("-u", "-Ru", f"-l{DATA}", f"-T{max(1, round(self.seconds))}", "-fparse")
            out = run(*self.at(0, "nuttcp", *words, ADDRESSES[1]))
        said = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", out.splitlines()[-1])}
        return (said["pkt"] - said["drop"]) / said["real_seconds"]

    def trafgen(self) -> float:
        """Frames a second that trafgen sent to nobody."""
        frame = [f"0x{byte}" for byte in (NOBODY + ":" + MACS[0]).split(":")] + ["0x00", "0x40", "fill(0x55, 64)"]
        count = int(300_000 * self.seconds)
        words = ("-o", INTERFACE, "-n", f"{count}", "-P", "1", "{ " + ", ".join(frame) + " }")
        begin, before = time.monotonic(), self.sent()
        out = run(*self.at(0, "trafgen", *words))
        took = re.search(r"(\d+) sec, (\d+) usec on CPU", out)
        seconds = int(took[1]) + int(took[2]) / 1e6 if took else time.monotonic() - begin
        return (self.sent() - before) / seconds

    def sent(self) -> int:
        """Frames that left the interface so far."""
        said = json.loads(run("ip", "-n", self.here, "-j", "-s", "link", "show", INTERFACE))
        return int(said[0]["stats64"]["tx"]["packets"])

    def sockperf(self) -> float:
        """Median round trip of sockperf, both sides spinning, µs."""
        with self.server("sockperf", "sr", "-i", ADDRESSES[1], "--nonblocked"):
            words = ("-i", ADDRESSES[1], "--nonblocked", "-t", f"{max(1, round(self.seconds))}", "-m", f"{DATA}")
            out = run(*self.at(0, "sockperf", "pp", *words))
        found = re.search(r"percentile 50.000 =\s*([\d.]+)", out)
        assert found, out
        return 2 * float(found[1])

    def server(self, *command: str):
        """A peer's server, given time to listen: not all say a line."""
        return _Server(self.at(1, *command))

    def steer(self, own: bool) -> None:
        """Let the receiving host's kernel work on its own CPU, or on the sender's."""
        cpus = f"{1 << self.cpus[1] if own else 0:x}"
        file = f"/sys/class/net/{INTERFACE}/queues/rx-0/rps_cpus"
        run("ip", "netns", "exec", self.there, "sh", "-c", f"echo {cpus} > {file}")

    def best(self, name: str, measure: Callable[[], float], least: bool = False) -> float:
        """Measure once more; the best so far."""
        values = self.figures.setdefault(name, [])
        values.append(measure())
        return min(values) if least else max(values)


class _Server:
    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command

    def __enter__(self) -> None:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, stdin=quiet, stdout=quiet, stderr=quiet)
        time.sleep(0.3)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)


PAIRS = (
    ("frames/s received", "received", "iperf3", False, 2.5),
    ("frames/s received, steered", "received", "iperf3", True, 2.5),
    ("frames/s received", "received", "nuttcp", False, 2.5),
    ("frames/s received, steered", "received", "nuttcp", True, 2.5),
    ("frames/s sent, nobody receiving", "unheard", "trafgen", False, 0.9),
    ("round trip, µs", "round_trip", "sockperf", False, 0.5),
)
"""What, framegen's measurement, the peer's, whether steered, and the goal of their ratio: at least, for a round trip at
most.
"""


def compare(bench: Bench, repeats: int) -> int:
    """All pairs in turn; how many goals were missed."""
    table = Table()
    for name, ours, peer, steered, goal in PAIRS:
        if shutil.which(peer) is None:
            table.line(f"{name}: {peer}", "not installed: left out")
            continue
        least = ours == "round_trip"
        bench.steer(steered)
        for _ in range(repeats):
            own = bench.best(f"{name} {peer} ours", getattr(bench, ours), least)
            other = bench.best(f"{name} {peer}", getattr(bench, peer), least)
            if least:
                by_length = bench.best("with a length field", bench.with_length, least)
        ratio = own / other
        form = "{:.2f}" if least else "{:,.0f}"
        table.line(f"64-byte {name}: framegen", form.format(own))
        table.line(f"  {peer}", form.format(other))
        reached = ratio <= goal if least else ratio >= goal
        table.line(f"  framegen / {peer}", f"{ratio:.2f}", f"{'<=' if least else '>='} {goal}", reached)
        if least:
            table.line("  framegen, frames with a length field", form.format(by_length))
    return table.missed


def main() -> int:
    """Measure; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framegen", default=shutil.which("framegen"), help="the binary to measure")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each figure")
    options = parser.parse_args()
    if options.framegen is None:
        sys.exit("framegen is not on the PATH; --framegen names it")
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("two CPUs are needed, one for each side")
    with network() as (here, there):
        missed = compare(
            Bench(options.framegen, options.seconds, here, there, (allowed[-2], allowed[-1])), options.repeats
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
