"""Draws the network half of the published figures from runs on the emulated switch, the published values beside them.

The plans hold the published constants: that a figure shows them again says that the analysis is right, not that the
constants are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from pcitrace import network
from pcitrace.plot import network as draw

REPOSITORY = Path(__file__).resolve().parent.parent
SIZES = [64, 128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1400, 1500]
ATLAS = {"intercept_us": 26.32, "slope": 0.0235, "rate": 1000}
FAST = {"intercept_us": 33.4, "slope": 0.0814, "rate": 100}
LHCB = {"intercept_us": 5.706, "slope": 0.0139, "rate": 1000}
RESPOND_US = 4.0
"""Half of it is in each one-way time, as in the papers."""

PUBLISHED = {"color": "#888888", "ls": "--", "lw": 1}


class Bench:
    """Virtual runs in a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, name: str, *parts: str) -> Path:
        """Carry out a plan; its run folder."""
        (self.place / name).parent.mkdir(parents=True, exist_ok=True)
        file = self.place / f"{name}.toml"
        file.write_text("\n".join(["format = 1", f"seed = {sum(name.encode())}", *parts]))
        program = Path(sys.executable).with_name("framegen")
        command = [str(program), "switch", "--plan", str(file), "--virtual", "-o", str(self.place / name)]
        subprocess.run(command, check=True, capture_output=True)
        return self.place / name


def hosts(constants: dict[str, float], names: str = "AB", **more: float) -> str:
    """Nodes whose one-way line is that of `constants`, the wire's part of it taken off."""
    per_byte = 8 / constants["rate"]
    own = constants["intercept_us"] - 26 * per_byte - RESPOND_US / 2
    keys = {"send_us": own / 2, "receive_us": own / 2, "respond_us": RESPOND_US, "jitter_us": 0.1} | more
    keys["send_us_per_byte"] = round(constants["slope"] - per_byte, 9)
    clock = "clock_offset_us = 4321.0\nclock_drift_ppm = 7.5\n"
    lines = "\n".join(f"{key} = {value}" for key, value in keys.items())
    return "".join(f'[[nodes]]\nname = "{name}"\n{lines}\n{clock if name != "A" else ""}' for name in names)


def asked(kind: str, sizes: Sequence[int], count: int, peers: str = "B", **more: object) -> str:
    """One test."""
    options = {"sizes": list(sizes), "count": count, "peers": list(peers)} | more
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
    return f'[[tests]]\nkind = "{kind}"\nsteering = "A"\n{lines}'


def ports(rate: float, count: int = 2, modules: Sequence[int] = ()) -> str:
    """Ports of one rate."""
    each = [f"[[ports]]\nrate_mbit_s = {rate}\n" for _ in range(count)]
    return "".join(one + (f"module = {modules[i]}\n" if modules else "") for i, one in enumerate(each))


def figures(folder: Path, place: Path) -> None:
    """Write all of them as SVG."""
    bench = Bench(place)
    makers = (alteon, modules, histogram, streaming, rates, losses, fan_in, multicast, cells, buffer, pattern, netpipe)
    for make in makers:
        ax = make(bench)
        ax.figure.savefig(folder / f"network-{make.__name__}.svg")
        pyplot.close(ax.figure)


def _published(ax: Axes, lines: dict[str, tuple[float, float]], legs: int = 1, request: float = 0.0) -> None:
    """Add published one-way lines as they are in what is drawn."""
    x = np.array([64, 1500])
    for number, (intercept, slope) in enumerate(lines.values()):
        both = legs * intercept + slope * ((legs if not request else 1) * x + request)
        ax.plot(x, both, **PUBLISHED, label=None if number else "published: " + "; ".join(lines))
    ax.legend(frameon=False, fontsize="small")


def alteon(bench: Bench) -> Axes:
    """Figure 3.2."""
    test = asked("request-response", SIZES, 100, request_bytes=64)
    switch = '[switch]\nname = "Alteon"\nlatency_us = 5.911\nbackplane_mbit_s = 2285.7\n'
    found = network.of_paths(
        [bench.run("3.2/direct", hosts(ATLAS), test), bench.run("3.2/alteon", hosts(ATLAS), switch, test)]
    )
    ax = draw.latency(found.results[:2])
    _published(ax, {"26.32 + 0.0235 b": (26.32, 0.0235), "32.436 + 0.0351 b": (32.436, 0.0351)}, 2, 64)
    return ax


def modules(bench: Bench) -> Axes:
    """Figure 3.6 and Table 3.1: the first three rows."""
    test = asked("ping-pong", SIZES, 100)
    switch = '[switch]\nname = "{}"\nlatency_us = 2.82\nbackplane_mbit_s = 987.65\ncell_header_bytes = 432\n'
    paths = [
        bench.run("3.6/direct", hosts(FAST), ports(100), test),
        bench.run("3.6/same", hosts(FAST), switch.format("same module"), ports(100, 2, (0, 0)), test),
        bench.run("3.6/other", hosts(FAST), switch.format("other module"), ports(100, 2, (0, 1)), test),
    ]
    ax = draw.latency([one for one in network.of_paths(paths).results if one.latency is not None])
    lines = {"33.4 + .0814 b": (33.4, 0.0814), "38.3 + .1614 b": (38.3, 0.1614), "41.8 + .1695 b": (41.8, 0.1695)}
    _published(ax, lines, 2)
    return ax


def histogram(bench: Bench) -> Axes:
    """Figure 3.3: one size, sigma 1.1 us."""
    test = asked("request-response", [64], 5000, request_bytes=64)
    ax = draw.peak(network.of_paths([bench.run("3.3", hosts(ATLAS, jitter_us=0.492), test)]).results[0])
    ax.text(0.98, 0.75, "published: FWHM 2.6, sigma 1.1", transform=ax.transAxes, ha="right", va="top", color="#888888")
    return ax


def streaming(bench: Bench) -> Axes:
    """Figures 4.1, 4.4, 4.6: regular frames of 1024 bytes through an output that manages one every 22.26 us."""
    slow = "[switch]\nlatency_us = 5.911\nport_frames = 100\n[[ports]]\n[[ports]]\nrate_mbit_s = 381.67\n"
    for spacing in (14, 18, 20, 21, 22, 23, 25, 30, 40, 60):
        test = asked("stream", [1024], 600, spacing_us=spacing)
        bench.run(f"4.1/{spacing:02}", hosts(ATLAS), slow, test)
    ax = draw.latency_against_spacing(network.of_paths([bench.place / "4.1"]).results[0])
    ax.axvline(22.26, **PUBLISHED, label="published: 22.26 (Table 4.1), 21.16 (48.4 MB/s)")
    ax.axvline(1024 / 48.4, **PUBLISHED)
    ax.legend(frameon=False, fontsize="small")
    return ax


def rates(bench: Bench) -> Axes:
    """Figure 4.12: throughput against size, of a host that manages a frame every 12.5 us."""
    sizes = [64, 128, 256, 384, 512, 575, 700, 900, 1024, 1200, 1472]
    run = bench.run("4.12", hosts(ATLAS, spacing_us=12.5), "[switch]", asked("max-rate", sizes, 2000))
    ax = draw.throughput(network.of_paths([run]).results[0], "length_bytes")
    x = np.array([64.0, 575.0])
    ax.plot(x, 8 * x / 12.5, **PUBLISHED, label="published: 12.5 µs a frame to about 575 bytes")
    ax.plot([1024, 1500], [8 * 48.4, 8 * 70], "s", ms=4, color="#888888", label="published: 48.4 and 70 MB/s")
    ax.legend(frameon=False, fontsize="small")
    return ax


def losses(bench: Bench) -> Axes:
    """Figure 4.13: frames for an address that nobody learned, through a port that is slower than the sender."""
    sizes = [64, 128, 256, 512, 768, 1024, 1280, 1500]
    plan = "[switch]\nlearn = false\nport_frames = 64\n[[ports]]\n[[ports]]\nrate_mbit_s = 400"
    run = bench.run("4.13", hosts(ATLAS, spacing_us=12.5), plan, asked("max-rate", sizes, 2000))
    return draw.loss(network.of_paths([run]).results[0], "length_bytes")


def fan_in(bench: Bench) -> Axes:
    """Table 4.2: 1024 bytes from six fast-Ethernet senders into one gigabit port."""
    plan = f"[switch]\n[[ports]]\nrate_mbit_s = 391\n{ports(100, 6)}"
    test = asked("many-to-one", [1024], 600, "BCDEFG", spacing_us=85)
    ax = draw.shares(network.of_paths([bench.run("4.2", hosts(FAST, "ABCDEFG"), plan, test)]).results[0])
    ax.axhline(8 * 47.125, **PUBLISHED, label="published: 47.125 MB/s of six")
    ax.legend(frameon=False, fontsize="small", ncols=2)
    return ax


def multicast(bench: Bench) -> Axes:
    """Figure 5.5: who answers a multicast request, and when."""
    late = {"B": 20, "C": 35.5, "D": 51}
    nodes = hosts(ATLAS, "A") + "".join(hosts(ATLAS, name, respond_us=respond) for name, respond in late.items())
    test = asked("one-to-many", [1024], 300, "BCD", request_bytes=64)
    ax = draw.order_of_answers(
        network.of_paths([bench.run("5.5", nodes, "[switch]\nlatency_us = 5.911", test)]).results[0]
    )
    first = ax.lines[0].get_ydata()[0]
    ax.plot([1, 2, 3], first + 15.5 * np.arange(3), "s", ms=5, mfc="none", color="#888888", label="published: 15.5 µs")
    ax.legend(frameon=False, fontsize="small")
    return ax


def cells(bench: Bench) -> Axes:
    """LHCb's single blade: which length of a cell explains the latencies."""
    test = asked("ping-pong", range(64, 700, 5), 60)
    # The published slope holds what the wire takes, 0.008; the rest is the blade's.
    blade = hosts(LHCB | {"slope": 0.0139 + 0.030}, jitter_us=0.03)
    switch = f"[switch]\nname = 'blade'\nlatency_us = 0.294\nbackplane_mbit_s = {64 * 8 / 0.035:.1f}\ncell_bytes = 64"
    ax = draw.step_search(network.of_paths([bench.run("step", blade, switch, test)]).results[0])
    ax.axvline(64, **PUBLISHED, label="published: 64 bytes, 0.035 µs")
    ax.legend(frameon=False, fontsize="small")
    return ax


def buffer(bench: Bench) -> Axes:
    """LHCb's output buffer: 1024 frames and 1 MiB."""
    test = asked("stream", [64, 300, 600, 900, 1050, 1150, 1250, 1350, 1400, 1450, 1500], 1600, spacing_us=15)
    pause = '[[pauses]]\nnode = "B"\nstart_us = 1000\nduration_us = 60000'
    plan = "[switch]\nport_frames = 1024\nport_bytes = 1048576"
    ax = draw.buffer_depth(network.of_paths([bench.run("buffer", hosts(LHCB), plan, test, pause)]).results[0])
    sizes = np.linspace(950, 1500)
    ax.plot(sizes, 1e6 / (sizes + 18), **PUBLISHED, label="published: 1024 frames and “1 MB”, here 10⁶ bytes")
    ax.legend(frameon=False, fontsize="small")
    return ax


def pattern(bench: Bench) -> Axes:
    """UDPmon's loss pattern: how many are lost in a row."""
    plan = "[switch]\n[[ports]]\nloss = 0.02\nloss_burst = 3\n[[ports]]"
    run = bench.run("pattern", hosts(ATLAS), plan, asked("stream", [1400], 10000, spacing_us=30))
    return draw.loss_pattern(network.of_paths([run]).results[0])


def netpipe(bench: Bench) -> Axes:
    """NetPIPE's signature, from an output of NPtcp over the loopback of a PC."""
    del bench
    return draw.netpipe(network.of_paths([REPOSITORY / "fixtures/network/np.out"]).results[0], signature=True)
