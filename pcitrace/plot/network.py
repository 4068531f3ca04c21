"""Figures of the network half. Each takes a result (or several) first and ``ax=``, and returns its Axes.

Where no real wire stands behind the numbers it says *simulated*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pcitrace.errors import FitError
from pcitrace.network.delays import Delay
from pcitrace.network.families import calculated_minimum_us
from pcitrace.network.hosts import widths
from pcitrace.network.result import Result
from pcitrace.network.width import Width
from pcitrace.plot.style import BUS_COLOURS, DATA, FAINT, INK, WIRE, axes_for, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = [
    "beside",
    "buffer_depth",
    "histogram",
    "host_load",
    "latency",
    "latency_against_spacing",
    "loss",
    "loss_pattern",
    "netpipe",
    "order",
    "order_of_answers",
    "peak",
    "ping",
    "probability",
    "shares",
    "slope_budget",
    "spacing",
    "step_search",
    "switch",
    "tcp",
    "throughput",
    "width_against_senders",
]

COLOURS = (*BUS_COLOURS, "#2e8b57", "#8e5ea2", INK, "#c2517f", "#a8830f", "#58a4c9")
"""One a node or path; more than eight begin again."""


def latency(results: Sequence[Result], statistic: str = "median", *, ax: Axes | None = None) -> Axes:
    """Draw loops against size with the lines through them, a colour a path (figures 3.2, 3.6, 3.8, 5.1 to 5.4; LHCb's
    ping-pong).
    """
    ax = axes_for(ax, (6.0, 4.0))
    for colour, one in zip(_colours(), _with_latency(results), strict=False):
        assert one.latency is not None
        sizes = numbers(one.latency.table["length_bytes"])
        values, sigma = one.latency.loop(statistic)
        ax.errorbar(sizes, values, sigma, fmt="o", ms=3, color=colour, elinewidth=1, label=_way(one))
        best = one.latency.best
        if best is not None:
            legs = one.latency.legs
            drawn = (
                legs.shape[1] * best.intercept_us.nominal_value
                + legs.sum(axis=1) * best.slope_us_per_byte.nominal_value
            )
            step = one.latency.step
            if step is not None and step.step_bytes is not None and step.step_us is not None:
                cells = (legs - 1 + step.early_bytes) // step.step_bytes.nominal_value
                drawn += cells.sum(axis=1) * step.step_us.nominal_value
            if one.latency.change is not None:
                drawn += one.latency.change.added_us(legs)
            ax.plot(sizes, drawn, color=colour, lw=1)
    ax.set_xlabel("user bytes")
    ax.set_ylabel(f"{statistic} of a loop (µs)")
    return _finish(results, ax, legend=True)


def step_search(one: Result, *, ax: Axes | None = None) -> Axes:
    """Draw how much each length of a step explains: a peak stands out where there is one, and its multiples beside
    it.
    """
    ax = axes_for(ax, (6.0, 3.0))
    found = None if one.latency is None else one.latency.step
    if found is None or found.gain is None:
        raise FitError("no step was looked for: that needs latencies of four sizes or more")
    ax.plot(np.arange(2, 2 + len(found.gain)), found.gain, color=WIRE, lw=1)
    if found.step_bytes is not None:
        ax.axvline(found.step_bytes.nominal_value, color=DATA, lw=1, label=f"{found.step_bytes.nominal_value:g} bytes")
    ax.set_xlabel("length of the step (bytes)")
    ax.set_ylabel("lowers chi-square by")
    return _finish([one], ax, legend=found.step_bytes is not None)


def switch(one: Result, *, ax: Axes | None = None) -> Axes:
    """Draw what a switch takes by the papers' T_s and by RFC 1242 (result of a subtraction)."""
    ax = axes_for(ax, (6.0, 3.4))
    table = one.tables["switch_latency"]
    sizes = numbers(table["length_bytes"])
    ax.plot(sizes, numbers(table["switch_us"]), color=INK, label="T_s: with its second way over a wire")
    if table["rfc1242_us"].notna().any():
        ax.plot(
            sizes, numbers(table["rfc1242_us"]), color=WIRE, ls="--", label="RFC 1242: last bit in to first bit out"
        )
    ax.set_xlabel("user bytes")
    ax.set_ylabel(f"{one.path} (µs)")
    return _finish([one], ax, legend=True)


def peak(one: Result, point: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the normal peak of a point's times with its width (figures 3.3, 3.5; singletons)."""
    ax = axes_for(ax, (6.0, 3.0))
    chosen = one.points[point]
    found = chosen.loops[0].width if chosen.loops else chosen.flows[0].width
    if not isinstance(found, Width):
        raise FitError(found)
    (centre, _), (sigma, _), (fwhm, error) = found.centre_us, found.sigma_us, found.fwhm_us
    at = centre + np.linspace(-5, 5, 300) * sigma
    height = np.exp(-(((at - centre) / sigma) ** 2) / 2) * (1 - found.background)
    ax.fill_between(at, height, color=WIRE, alpha=0.5, lw=0)
    ax.hlines(0.5 * (1 - found.background), centre - fwhm / 2, centre + fwhm / 2, color=DATA, lw=1.5)
    ax.text(0.98, 0.95, f"FWHM {fwhm:.3g} ± {error:.2g} µs\nn {found.n}", transform=ax.transAxes, ha="right", va="top")
    ax.set_xlabel(f"{chosen.length_bytes} bytes: time (µs)")
    ax.set_ylabel("of the maximum")
    return _finish([one], ax)


def histogram(results: Sequence[Result], point: int = 0, *, between: bool = False, ax: Axes | None = None) -> Axes:
    """Draw how often each time was measured, a colour a result: round trips or one way with the normal peak that comes
    nearest (figures 3.3, 3.5: by itself and under load), or the time between received frames (UDPmon).
    """
    ax = axes_for(ax, (6.0, 3.0))
    size = 0
    for colour, one in zip(_colours(), results, strict=False):
        chosen = one.points[point]
        size, each = chosen.length_bytes, chosen.loops[0] if chosen.loops else chosen.flows[0]
        found = chosen.flows[0].between if between else each.delay
        if found is None:
            raise FitError(f"{one.path}: no time of {chosen.length_bytes} bytes is known")
        edges, share = found.bins.edges_us, found.bins.counts / found.n
        ax.stairs(share, edges, fill=True, color=colour, alpha=0.35)
        ax.stairs(share, edges, color=colour, lw=1, label=f"{_way(one)}, {found.n}")
        if isinstance(each.width, Width) and not between:
            (centre, _), (sigma, _) = each.width.centre_us, each.width.sigma_us
            inside = 1 - each.width.background - each.width.outside / each.width.n
            at = centre + np.linspace(-4, 4, 200) * sigma
            height = inside * np.exp(-(((at - centre) / sigma) ** 2) / 2) / sigma / np.sqrt(2 * np.pi)
            ax.plot(at, height * float(edges[1] - edges[0]), color=colour, lw=1, ls="--")
    ax.set_xlabel(f"{size} bytes: {'time between received frames' if between else 'time'} (µs)")
    ax.set_ylabel("share of the frames")
    return _finish(results, ax, legend=True)


def probability(one: Result, *, ax: Axes | None = None) -> Axes:
    """Draw the probability of a one-way latency against the time between frames (figures 4.3, 4.5, 4.7)."""
    from matplotlib.colors import LogNorm

    ax = axes_for(ax, (6.0, 3.4))
    known = [
        (point.spacing_us, point.flows[0].delay)
        for point in one.points
        if point.spacing_us is not None and len(point.flows) == 1 and point.flows[0].delay is not None
    ]
    rows = sorted(((at, delay) for at, delay in known if delay is not None), key=lambda row: row[0])
    if len(rows) < 2:
        raise FitError(f"{one.path}: latencies of {len(rows)} spacings; a map needs two or more")
    low, high = (f(getattr(d, name) for _, d in rows) for f, name in ((min, "least_us"), (max, "p99_us")))
    edges = np.linspace(low, high + (high - low) * 0.05 + 1e-6, 81)
    image = np.array(
        [np.histogram(_middles(delay), edges, weights=delay.bins.counts)[0] / delay.n for _, delay in rows]
    )
    at = np.array([spacing for spacing, _ in rows])
    sides = np.concatenate([[at[0] - (at[1] - at[0]) / 2], (at[1:] + at[:-1]) / 2, [at[-1] + (at[-1] - at[-2]) / 2]])
    drawn = ax.pcolormesh(sides, edges, np.where(image > 0, image, np.nan).T, norm=LogNorm(), cmap="cividis")
    ax.figure.colorbar(drawn, ax=ax, label="probability")
    ax.set_xlabel("planned time between frames (µs)")
    ax.set_ylabel("one way (µs)")
    return _finish([one], ax)


def width_against_senders(results: Sequence[Result], *, ax: Axes | None = None) -> Axes:
    """Draw the width of one-way latencies against the number of hosts that send to one (figures 4.9, 4.10)."""
    ax = axes_for(ax, (6.0, 3.0))
    table = widths(results)
    if not len(table):
        raise FitError("the width of no stream is known")
    for colour, (length, mine) in zip(_colours(), table.groupby("length_bytes"), strict=False):
        senders, wide, sigma = (numbers(mine[name]) for name in ("senders", "fwhm_us", "fwhm_sigma_us"))
        ax.errorbar(senders, wide, sigma, fmt="o", ms=3, color=colour, label=f"{length} bytes, a point a sender")
        mean = mine.groupby("senders")["fwhm_us"].mean()
        ax.plot(mean.index.to_numpy(), mean.to_numpy(), color=colour, lw=1)
    ax.set_ylim(0, None)
    ax.set_xticks(sorted(table["senders"].unique()))
    ax.set_xlabel("senders")
    ax.set_ylabel("FWHM of one way (µs)")
    return _finish(results, ax, legend=True)


def slope_budget(table: DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the terms of a slope, each from where the one above ends, and the measured slope (figure 3.8).

    `table` is that of :func:`pcitrace.network.budget.slope_budget`, or ``slope_budget`` of a result with a bus.
    """
    ax = axes_for(ax, (6.0, 2.6))
    end, names = 0.0, [name for name in table.index if name != "difference"]
    for number, name in enumerate(names):
        value, sigma = (float(table.loc[name, column]) for column in ("slope_us_per_byte", "sigma"))
        whole = name in ("sum", "measured")
        ax.barh(number, value, left=0.0 if whole else end, xerr=sigma or None, color=INK if whole else WIRE)
        ax.text((value if whole else end + value), number, f" {value:.5g}", va="center", fontsize="small")
        end += 0.0 if whole else value
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.25 * float(table.loc[names, "slope_us_per_byte"].max()))
    ax.set_xlabel("slope (µs/byte)")
    return _finish([], ax)


def beside(one: Result, *, ax: Axes | None = None) -> Axes:
    """Draw what a stream keeps of its throughput beside others (result of the kind ``head-of-line``)."""
    ax = axes_for(ax, (6.0, 3.0))
    table = one.tables["head_of_line"]
    sizes = numbers(table["length_bytes"])
    ax.errorbar(sizes, numbers(table["ratio"]), numbers(table["ratio_sigma"]), fmt="o", ms=4, color=INK)
    ax.axhline(1, color=FAINT, lw=1)
    ax.set_ylim(0, 1.2)
    ax.set_xlabel("user bytes")
    ax.set_ylabel("throughput beside others / alone")
    return _finish([one], ax)


def order(one: Result, against: str = "spacing_us", *, ax: Axes | None = None) -> Axes:
    """Draw how many frames a later one overtook (RFC 4737; UDPmon)."""
    return _family(one, "reordered", against, "frames overtaken", ax)


def host_load(one: Result, *, ax: Axes | None = None) -> Axes:
    """Draw the CPU time that a frame costs each host, against the time between frames (UDPmon)."""
    ax = axes_for(ax, (6.0, 3.0))
    table = one.tables.get("hosts")
    if table is None or "spacing_us" not in table or not table["cpu_us_per_frame"].notna().any():
        raise FitError(f"{one.path}: the hosts of no sweep of spacings said what they did")
    for colour, (host, mine) in zip(
        _colours(), table.dropna(subset=["cpu_us_per_frame"]).groupby("host"), strict=False
    ):
        mine = mine.sort_values("spacing_us")
        each = (numbers(mine[name]) for name in ("spacing_us", "cpu_us_per_frame"))
        ax.plot(*each, "o-", ms=3, lw=1, color=colour, label=str(host))
    ax.set_xlabel("planned time between frames (µs)")
    ax.set_ylabel("CPU time a frame, whole host (µs)")
    return _finish([one], ax, legend=True)


def throughput(
    one: Result, against: str = "spacing_us", others: Sequence[Result] = (), *, ax: Axes | None = None
) -> Axes:
    """Draw user throughput against planned spacing or size, a colour a size or a path (figures 4.12, 4.15; UDPmon)."""
    return _family(one, "user_mbit_s", against, "user data (Mbit/s)", ax, others)


def spacing(
    one: Result,
    against: str = "spacing_us",
    *,
    calculated: tuple[float, float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the time between received frames (figure 4.11; UDPmon).

    `calculated`: R_net and R_PCI in µs/byte, and the size at which the calculated times are made equal to the measured
    one; they are drawn beside.
    """
    ax = _family(one, "received_spacing_us", against, "time between received frames (µs)", ax)
    if calculated is not None:
        network, bus, at = calculated
        table = one.tables["streams"].dropna(subset=["received_spacing_us"]).sort_values("length_bytes")
        sizes, measured = numbers(table["length_bytes"]), numbers(table["received_spacing_us"])
        if at not in sizes:
            raise FitError(
                f"{one.path}: {at:g} bytes were not measured: {', '.join(f'{size:g}' for size in sizes)} were"
            )
        times = calculated_minimum_us(sizes, network, bus)
        times *= measured[sizes == at].mean() / times[sizes == at].mean()
        ax.plot(sizes, times, "x", color=DATA, label=f"calculated, made equal at {at:g} bytes")
        ax.legend(frameon=False, fontsize="small")
    return ax


def loss(one: Result, against: str = "spacing_us", *, ax: Axes | None = None) -> Axes:
    """Draw the probability of a loss with its interval of 95 % (figure 4.13; UDPmon)."""
    ax = _family(one, "loss_ratio", against, "probability of a loss", ax)
    table = one.tables["streams"].dropna(subset=["loss_ratio", against])
    ax.vlines(
        numbers(table[against]), numbers(table["loss_low"]), numbers(table["loss_high"]), color=FAINT, lw=1, zorder=0
    )
    return ax


def latency_against_spacing(one: Result, others: Sequence[Result] = (), *, ax: Axes | None = None) -> Axes:
    """Draw one-way latency against the time between frames (figures 4.1, 4.4, 4.6): floor and knee.

    `others`: further results on the same axes, such as that of two pairs of hosts at the same time (figure 4.8).
    """
    ax = _family(one, "latency_us", "spacing_us", "one way, median (µs)", ax, others)
    for name, axis in (("floor_us", ax.axhline), ("knee_us", ax.axvline)):
        known = one.parameters.get(name)
        if known is not None and known.value is not None:
            axis(known.value, color=DATA, lw=1, ls=":")
    return ax


def loss_pattern(one: Result, point: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw how long runs of lost frames are (RFC 3357), beside independent losses of the same number."""
    ax = axes_for(ax, (6.0, 3.0))
    found = one.points[point].flows[0].losses
    if found is None:
        raise FitError("the places of the losses are not known: a log is missing, cut or full")
    lengths = np.bincount(found.periods, minlength=2)[1:]
    at = np.arange(1, len(lengths) + 1)
    ax.bar(at, lengths, color=WIRE, label=f"{found.count} of {found.frames} lost")
    ratio = found.ratio.value
    ax.plot(at, len(found.periods) * (1 - ratio) * ratio ** (at - 1), "o", ms=3, color=DATA, label="independent")
    ax.set_xlabel("frames lost in a row")
    ax.set_ylabel("runs")
    return _finish([one], ax, legend=True)


def shares(one: Result, *, ax: Axes | None = None) -> Axes:
    """Draw what each sender got of a port that several share (Table 4.2; figures 4.9, 4.10)."""
    ax = axes_for(ax, (6.0, 3.0))
    table = one.tables["shares"]
    bottom = np.zeros(table["length_bytes"].nunique())
    names = [str(length) for length in sorted(table["length_bytes"].unique())]
    for colour, (source, mine) in zip(_colours(), table.groupby("source"), strict=False):
        values = numbers(mine.sort_values("length_bytes")["user_mbit_s"])
        ax.bar(names, values, bottom=bottom, color=colour, edgecolor="white", label=f"node {source}")
        bottom = bottom + values
    ax.set_ylim(0, 1.1 * float(bottom.max()))
    ax.set_xlabel("user bytes")
    ax.set_ylabel("user data (Mbit/s)")
    _finish([one], ax)
    # Beside the bars, in their order.
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def order_of_answers(one: Result, *, ax: Axes | None = None) -> Axes:
    """Draw the round trips to every node that answers a multicast (figure 5.5)."""
    ax = axes_for(ax, (6.0, 3.0))
    for colour, (length, mine) in zip(_colours(), one.tables["answers"].groupby("length_bytes"), strict=False):
        ax.errorbar(
            numbers(mine["node"]),
            numbers(mine["median_us"]),
            numbers(mine["median_sigma_us"]),
            fmt="o",
            color=colour,
            label=f"{length} bytes",
        )
    ax.set_xticks(sorted(one.tables["answers"]["node"].unique()))
    ax.set_xlabel("node that answers")
    ax.set_ylabel("round trip, median (µs)")
    return _finish([one], ax, legend=True)


def buffer_depth(one: Result, *, ax: Axes | None = None) -> Axes:
    """Draw how many frames a paused port kept, by size, with the limits in frames and bytes that explain it (LHCb)."""
    ax = axes_for(ax, (6.0, 3.2))
    bursts = [flow.held for point in one.points for flow in point.flows if flow.held is not None]
    if not bursts:
        raise FitError("no port was paused")
    ax.plot([each.length_bytes for each in bursts], [each.frames for each in bursts], "o", ms=4, color=INK)
    sizes = np.linspace(46, max(each.length_bytes for each in bursts), 200)
    frames, room = (one.parameters[name].value for name in ("buffer_frames", "buffer_bytes"))
    if frames is not None:
        ax.axhline(frames, color=DATA, lw=1, label=f"{frames:g} frames")
    if room is not None:
        ax.plot(sizes, room / (sizes + 18), color=WIRE, lw=1, label=f"{room:.0f} bytes")
    ax.set_ylim(0, 1.2 * max(each.frames for each in bursts))
    ax.set_xlabel("user bytes")
    ax.set_ylabel("frames kept")
    return _finish([one], ax, legend=frames is not None or room is not None)


def netpipe(one: Result, signature: bool = False, *, ax: Axes | None = None) -> Axes:
    """Draw NetPIPE's throughput against block size, or its signature, against time."""
    ax = axes_for(ax, (6.0, 3.4))
    table = one.tables["netpipe"]
    ax.plot(numbers(table["time_us" if signature else "block_bytes"]), numbers(table["user_mbit_s"]), ".-", color=WIRE)
    ax.set_xscale("log")
    ax.set_xlabel("time of a block (µs)" if signature else "block (bytes)")
    ax.set_ylabel("Mbit/s (decimal)")
    return _finish([one], ax)


def ping(results: Sequence[Result], *, ax: Axes | None = None) -> Axes:
    """Draw ping's round trips against size with the lines through them, a colour a path: how many hops lie between."""
    ax = axes_for(ax, (6.0, 3.4))
    for colour, one in zip(_colours(), results, strict=False):
        table = one.tables["ping"]
        sizes = numbers(table["length_bytes"])
        times, sigma = numbers(table["latency_us"]), numbers(table["sigma_us"])
        ax.errorbar(sizes, times, sigma, fmt="o", ms=3, color=colour, elinewidth=1, label=one.path)
        line = [one.parameters.get(name) for name in ("intercept_us", "slope_us_per_byte")]
        values = [each.value for each in line if each is not None and each.value is not None]
        if len(values) == 2:
            ax.plot(sizes, 2 * (values[0] + values[1] * sizes), color=colour, lw=1)
    ax.set_xlabel("ping's user bytes")
    ax.set_ylabel("round trip (µs)")
    return _finish(results, ax, legend=True)


_VARIED = {"window": "window (bytes)", "block": "block (bytes)", "streams": "streams"}


def tcp(results: Sequence[Result], label: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw throughput against what was varied from call to call of iperf3 or nuttcp: window, block, streams.

    What that is the commands tell; where they do not, `label` may.
    Where the program told the round trip, a line marks the product of bandwidth and delay.
    """
    ax = axes_for(ax, (6.0, 3.4))
    varied = {str(name) for one in results for name in one.tables["calls"]["varied"]}
    label = label or (_VARIED.get(varied.pop()) if len(varied) == 1 else None) or "value given to the program"
    for colour, one in zip(_colours(), results, strict=False):
        table = one.tables["calls"].dropna(subset=["user_mbit_s"]).sort_values("value")
        value, rate, sigma = (numbers(table[name]) for name in ("value", "user_mbit_s", "user_mbit_s_sigma"))
        ax.errorbar(value, rate, sigma, fmt="o-", ms=3, lw=1, color=colour, label=f"{one.kind}, {one.path}")
        product = table["bandwidth_delay_bytes"].dropna()
        if len(product) and label == "window (bytes)":
            ax.axvline(float(product.min()), color=colour, lw=1, ls=":", label="bandwidth x delay")
    ax.set_xscale("log", base=2)
    ax.set_xlabel(label)
    ax.set_ylabel("user data (Mbit/s, decimal)")
    return _finish(results, ax, legend=True)


def _middles(delay: Delay) -> npt.NDArray[np.float64]:
    return np.asarray((delay.bins.edges_us[1:] + delay.bins.edges_us[:-1]) / 2)


def _family(one: Result, column: str, against: str, label: str, ax: Axes | None, others: Sequence[Result] = ()) -> Axes:
    ax = axes_for(ax, (6.0, 3.4))
    colours = iter(_colours())
    for result in (one, *others):
        table = result.tables["streams"]
        if column not in table or against not in table:
            raise FitError(f"{result.path}: no {column} against {against} was measured")
        known = table.dropna(subset=[column, against])
        for name, mine in known.groupby("length_bytes" if against == "spacing_us" else "stream"):
            mine = mine.sort_values(against)
            title = f"{name} bytes" if against == "spacing_us" else f"stream {name}"
            title += f", {_way(result)}" if others else ""
            ax.plot(numbers(mine[against]), numbers(mine[column]), "o-", ms=3, lw=1, color=next(colours), label=title)
    ax.set_xlabel("planned time between frames (µs)" if against == "spacing_us" else "user bytes")
    ax.set_ylabel(label)
    return _finish([one, *others], ax, legend=True)


def _way(one: Result) -> str:
    """Return what a curve is called: as its path, or by the devices on it where the path has no name of its own."""
    way = None if one.measurement is None else one.measurement.path
    named = way.devices if way is not None and one.path == way.kind else ()
    how = one.kind
    if one.measurement is not None and how == "one-to-many":
        test = one.measurement.test
        how = "broadcast" if test.get("group") == "ff:ff:ff:ff:ff:ff" else "multicast"
        how += ", answered so" if test.get("answers") == "group" else ""
    return f"{how}, {' + '.join(named) or one.path}"


def _with_latency(results: Sequence[Result]) -> list[Result]:
    known = [one for one in results if one.latency is not None and len(one.latency.table)]
    if not known:
        raise FitError("none of these results has a latency against size")
    return known


def _colours() -> list[str]:
    return [*COLOURS] * 50


def _finish(results: Sequence[Result], ax: Axes, *, legend: bool = False) -> Axes:
    """Leave the frame away, and say so where no wire stands behind the picture."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if legend and ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize="small")
    if any(one.measurement is not None and one.measurement.simulated for one in results):
        ax.set_title("simulated", loc="right", fontsize="small", color="#9a5b00", weight="bold")
    return ax
