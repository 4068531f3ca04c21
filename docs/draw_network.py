"""Draws the network half of the published figures from runs on the emulated switch, the published values beside them.

The plans hold the published constants: that a figure shows them again says that the analysis is right, not that the
constants are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from pcitrace import network
from pcitrace.network.budget import slope_budget
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
    makers = (alteon, modules, uplink, slope, histogram, loaded, streaming, pairs, latencies, senders, rates, between)
    makers += (
        paths,
        losses,
        fan_in,
        group,
        multicast,
        cells,
        buffer,
        blocked,
        pattern,
        udp,
        arrivals,
        netpipe,
        hops,
        windows,
    )
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


def uplink(bench: Bench) -> Axes:
    """Figure 3.8: from 100 Mbit/s to gigabit."""
    switch = '[switch]\nname = "uplink"\nlatency_us = 6.4\nbackplane_mbit_s = 935.7\n'
    rates = "[[ports]]\nrate_mbit_s = 100\n[[ports]]\nrate_mbit_s = 1000\n"
    run = bench.run("3.8", hosts(FAST, "A"), hosts(ATLAS, "B"), switch, rates, asked("ping-pong", SIZES, 100))
    found = network.of_paths([run])
    ax = draw.latency([one for one in found.results if one.latency is not None])
    x = np.array([64, 1500])
    ax.plot(x, 2 * (37.4 + 0.105 * x), **PUBLISHED, label="published: 37.4 + 0.105 b")
    ax.legend(frameon=False, fontsize="small")
    return ax


def slope(bench: Bench) -> Axes:
    """Figure 3.8's budget: the published terms beside the published slope."""
    del bench
    terms = {"100 Mbit": 0.08, "switch": 0.0099, "gigabit": 0.008, "receiving bus": 0.00775}
    ax = draw.slope_budget(slope_budget(terms))
    ax.axvline(0.105, **PUBLISHED, label="published slope: 0.105")
    ax.legend(frameon=False, fontsize="small")
    return ax


LOAD = """[[tests]]
kind = "background"
steering = "C"
peers = ["{peer}"]
name = "load"
role = "background"
sizes = [1500]
spacing_us = 28
seconds = {seconds}
"""


def loaded(bench: Bench) -> Axes:
    """Figure 3.5: the same round trips while 1500 bytes every 28 us pass through the same backplane."""
    test = asked("request-response", [1024], 2000, request_bytes=64)
    switch = '[switch]\nname = "{}"\nlatency_us = 5.9\nbackplane_mbit_s = 2286\n'
    nodes = hosts(ATLAS, "ABCD", jitter_us=0.4)
    quiet = bench.run("3.5/quiet", nodes, switch.format("quiet"), test)
    busy = bench.run("3.5/busy", nodes, switch.format("with background"), test, LOAD.format(peer="D", seconds=0.3))
    return draw.histogram(network.of_paths([quiet, busy]).results[:2])


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


def _pair(spacing: float) -> str:
    """The same stream between two other hosts."""
    more = {"spacing_us": spacing, "arrivals": "poisson", "seed": 9, "name": "pair", "role": "pair"}
    test = asked("stream", [1024], 2000, "D", **more)
    return test.replace('steering = "A"', 'steering = "C"')


def pairs(bench: Bench) -> Axes:
    """Figure 4.8: one pair, and two at the same time, of frames that cross the backplane one after the other."""
    fabric = "[switch]\nlatency_us = 5.911\nbackplane_mbit_s = 1545.7\n"
    for spacing in (22.3, 26, 32, 40, 60, 100):
        test = asked("stream", [1024], 2000, spacing_us=spacing, arrivals="poisson")
        bench.run(f"4.8/one pair/{spacing}", hosts(ATLAS, "ABCD"), fabric, test)
        bench.run(f"4.8/two pairs/{spacing}", hosts(ATLAS, "ABCD"), fabric, test, _pair(spacing))
    found = [network.of_paths([bench.place / "4.8" / name]).results[0] for name in ("one pair", "two pairs")]
    one, two = (replace(each, path=name) for each, name in zip(found, ("one pair", "two pairs"), strict=True))
    return draw.latency_against_spacing(one, [two])


def latencies(bench: Bench) -> Axes:
    """Figures 4.3, 4.5, 4.7: the probability of each latency, Poisson arrivals."""
    slow = "[switch]\nlatency_us = 5.911\nport_frames = 100\n[[ports]]\n[[ports]]\nrate_mbit_s = 381.67\n"
    for spacing in (23, 25, 28, 32, 36, 40, 50, 60):
        test = asked("stream", [1024], 2000, spacing_us=spacing, arrivals="poisson")
        bench.run(f"4.3/{spacing:02}", hosts(ATLAS), slow, test)
    return draw.probability(network.of_paths([bench.place / "4.3"]).results[0])


def senders(bench: Bench) -> Axes:
    """Figures 4.9, 4.10: how wide one-way latencies get when two and three hosts send to one."""
    runs = []
    for count in (1, 2, 3):
        peers = "BCD"[:count]
        test = asked("many-to-one", [512, 1024], 2000, peers, spacing_us=30, arrivals="poisson")
        runs.append(bench.run(f"4.9/{count}", hosts(ATLAS, "A" + peers, jitter_us=0.5), "[switch]", test))
    return draw.width_against_senders(network.of_paths(runs).results)


def between(bench: Bench) -> Axes:
    """Figure 4.11: time between received frames against size, with the calculated times."""
    sizes = [64, 256, 512, 768, 1024, 1280, 1500]
    run = bench.run("4.11", hosts(ATLAS), "[switch]", asked("max-rate", sizes, 1000))
    return draw.spacing(network.of_paths([run]).results[0], "length_bytes", calculated=(0.008, 0.00758, 1024))


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


def paths(bench: Bench) -> Axes:
    """Figure 4.15: throughput against size over 100 Mbit/s, one module of a switch and two."""
    sizes = [64, 128, 256, 384, 512, 700, 900, 1024, 1200, 1500]
    switch = '[switch]\nname = "{}"\nbackplane_mbit_s = {}\n'
    ways = {
        "same module": (ports(100, 2, (0, 0)), 987.65),
        "other module, 60 Mbit/s between": (ports(100, 2, (0, 1)), 60),
    }
    runs = [bench.run("4.15/direct", hosts(FAST), ports(100), asked("max-rate", sizes, 2000))]
    for number, (name, (joined, backplane)) in enumerate(ways.items()):
        plan = switch.format(name, backplane)
        runs.append(bench.run(f"4.15/{number}", hosts(FAST), plan, joined, asked("max-rate", sizes, 2000)))
    direct, *others = (one for one in network.of_paths(runs).results if one.kind == "max-rate")
    return draw.throughput(direct, "length_bytes", others)


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
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def group(bench: Bench) -> Axes:
    """Figures 5.1 to 5.4: multicast and broadcast, through a cable and a switch that takes longer for them."""
    results = []
    for how, address in (("multicast", "03:00:00:46:47:01"), ("broadcast", "ff:ff:ff:ff:ff:ff")):
        test = asked("one-to-many", SIZES[::3], 100, request_bytes="same", answers="group", group=address)
        switch = '[switch]\nname = "Alteon"\nlatency_us = 5.911\nbackplane_mbit_s = 2285.7\n'
        slower = hosts(ATLAS | {"intercept_us": 27.94})
        runs = [bench.run(f"5.1/{how}-direct", slower, test), bench.run(f"5.1/{how}", slower, switch, test)]
        results += network.of_paths(runs).results[:2]
    ax = draw.latency(results)
    _published(ax, {"multicast, direct: 27.94 + 0.0235 b": (27.94, 0.0235)}, 2)
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


def blocked(bench: Bench) -> Axes:
    """Head of line: a stream to a free port beside one to a paused port; this switch pauses the sender of both."""
    fabric = "[switch]\nport_frames = 50\npause_above_frames = 20\n"
    free = asked("stream", [512, 1024, 1500], 1000, spacing_us=40)
    held = free.replace('peers = ["B"]', 'peers = ["C"]\nname = "held"\nrole = "other"')
    pause = '[[pauses]]\nnode = "C"\nstart_us = 5000\nduration_us = 20000\n'
    alone = bench.run("hol/alone", hosts(ATLAS, "ABC"), fabric, free)
    together = bench.run("hol/beside", hosts(ATLAS, "ABC"), fabric, free, held, pause)
    ax = draw.beside(network.of_paths([alone, together])["head-of-line"])
    ax.axhline(1, **PUBLISHED, label="published (LHCb): no head-of-line blocking")
    ax.legend(frameon=False, fontsize="small")
    return ax


def _udp_runs(bench: Bench) -> network.Result:
    """UDPmon's sweeps: three sizes, spacings down to what the bench does not manage."""
    if not (bench.place / "udpmon").exists():
        fabric = (
            "[switch]\nport_frames = 60\n[[ports]]\nreorder = 0.002\nreorder_us = 40\n[[ports]]\nrate_mbit_s = 690\n"
        )
        for spacing in (6, 8, 10, 12, 14, 16, 18, 20, 24, 30, 40):
            test = asked("stream", [200, 800, 1400], 500, spacing_us=spacing)
            bench.run(f"udpmon/{spacing:02}", hosts(ATLAS, jitter_us=0.3), fabric, test)
    return network.of_paths([bench.place / "udpmon"]).results[0]


def udp(bench: Bench) -> Axes:
    """UDPmon's curves against spacing: throughput, loss, frames out of order, received spacing."""
    one = _udp_runs(bench)
    _, axes = pyplot.subplots(2, 2, figsize=(9, 6), layout="constrained")
    for draws, ax in zip((draw.throughput, draw.loss, draw.order, draw.spacing), axes.flat, strict=True):
        draws(one, ax=ax)
    axes[0, 0].axhline(690, **PUBLISHED)
    return axes[0, 0]


def arrivals(bench: Bench) -> Axes:
    """UDPmon's histogram of the time between received frames, 1400 bytes every 20 us."""
    one = _udp_runs(bench)
    point = next(i for i, p in enumerate(one.points) if (p.length_bytes, p.spacing_us) == (1400, 20))
    return draw.histogram([one], point, between=True)


def pattern(bench: Bench) -> Axes:
    """UDPmon's loss pattern: how many are lost in a row."""
    plan = "[switch]\n[[ports]]\nloss = 0.02\nloss_burst = 3\n[[ports]]"
    run = bench.run("pattern", hosts(ATLAS), plan, asked("stream", [1400], 10000, spacing_us=30))
    return draw.loss_pattern(network.of_paths([run]).results[0])


def netpipe(bench: Bench) -> Axes:
    """NetPIPE's signature, from an output of NPtcp over the loopback of a PC."""
    del bench
    return draw.netpipe(network.of_paths([REPOSITORY / "fixtures/network/np.out"]).results[0], signature=True)


FARRELL = {
    "direct": (43, 60, 78, 114, 145),
    "3508G": (82, 135, 214, 359, 485),
    "5500": (51, 67, 90, 130, 167),
}
"""Published averages of 10,000 flood pings, us."""


def hops(bench: Bench) -> Axes:
    """Ping against size through nothing, a small switch and a large one: lines through the published averages."""
    folder = bench.place / "ping"
    folder.mkdir(parents=True)
    for name, averages in FARRELL.items():
        for size, us in zip((56, 250, 500, 1024, 1460), averages, strict=True):
            (folder / f"{name}-{size}.txt").write_text(
                f"PING {name} (192.0.2.1) {size}({size + 28}) bytes of data.\n"
                "10000 packets transmitted, 10000 received, 0% packet loss\n"
                f"rtt min/avg/max/mdev = {us / 1e3:.3f}/{us / 1e3:.3f}/{us / 1e3:.3f}/0.100 ms\n"
            )
    ax = draw.ping(network.of_paths(sorted(folder.iterdir())).results)
    x = np.array([56, 1460])
    for intercept, slope in ((40.9, 0.0716), (66.1, 0.2871), (47.0, 0.0821)):
        ax.plot(x, intercept + slope * x, **PUBLISHED)
    ax.set_title("published averages", loc="right", fontsize="small")
    return ax


def windows(bench: Bench) -> Axes:
    """TCP throughput against the window, from calls of iperf3 over the loopback of a PC."""
    del bench
    [found] = network.of_paths([REPOSITORY / "fixtures/network-windows"]).results
    return draw.tcp([replace(found, path="loopback")])
