"""From one measurement to its result: points one after the other, then what only all of them tell."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from pcitrace.errors import FitError
from pcitrace.extras import need_fits
from pcitrace.network import clocks, hosts
from pcitrace.network.buffers import depth
from pcitrace.network.clocks import Clock
from pcitrace.network.extremes import alike, no_different
from pcitrace.network.families import family, knee_parameters, patterns
from pcitrace.network.flows import COUNTS, FlowResult, LoopResult, flow_result, loop_result
from pcitrace.network.hostload import counters, host_load, load_parameters
from pcitrace.network.latency import Latency, of_points
from pcitrace.network.measurement import ASKING, Flow, Measurement, Point, Wire
from pcitrace.network.parameter import UNITS, Parameter, counted, measured, unknown
from pcitrace.network.result import PointResult, Result
from pcitrace.network.width import Peak, Width

__all__ = ["analyse"]

MEASURED = (*ASKING, "stream", "bidirectional", "max-rate", "many-to-one")
"""Tests that leave logs."""

IMPOSSIBLE = 5.0
"""Standard deviations below zero from which on a slope is no chance."""


def analyse(one: Measurement, *, clock_method: str = "hull") -> Result:
    """Work out what a measurement says.

    Parameters
    ----------
    one : Measurement
    clock_method : str
        ``hull`` or ``midpoints``: how raw clock exchanges are fitted.

    Returns
    -------
    Result
    """
    need_fits("lines, widths and losses of a network")
    findings = list(one.findings)
    known: list[Clock] = []
    points: tuple[PointResult, ...] = ()
    for part in one.parts or (one,):
        compared = _clocks(part, clock_method, findings)
        known += compared.values()
        points += tuple(_point(part, point, compared, findings) for point in part.points)
    latency = _latency(one, points)
    parameters = _whole(one, points)
    if not points and one.kind in MEASURED:
        why = "no frame log and no summary: nothing was measured"
        findings.append(f"{one.folder}: {why}")
        parameters = {name: unknown(name, why) for name in COUNTS}
    if one.points and one.points[0].requests is not None:
        parameters |= _of_all_sizes(one.points[0], parameters["received"])
    if latency is not None:
        shared = max((flow.clock_sigma_us for point in points for flow in point.flows), default=0.0)
        line = _line_parameters(latency, findings)
        if one.kind not in ASKING:
            line["intercept_us"] = _with_clocks(line["intercept_us"], shared)
        parameters = {**line, **parameters}
        parameters["t_sw_us"] = unknown("t_sw_us", "no bus was recorded: t_sw needs t_nic and R_PCI beside the latency")
    if one.kind == "clock":
        parameters |= _clock_parameters(known)
    kept = [flow.held for point in points for flow in point.flows if flow.held is not None]
    if kept or one.run.get("pauses"):
        parameters |= depth(kept)
    tables = _tables(one, points)
    if "streams" in tables and one.kind == "stream":
        parameters |= knee_parameters(tables["streams"])
    if one.run.get("host_states"):
        tables |= {"hosts": _hosts(one, points), "counters": counters(one)}
        parameters |= load_parameters(tables["hosts"])
    findings += [text for clock in known for text in clock.findings]
    told = tuple(dict.fromkeys(findings))
    return Result(one.kind, one.path.name, one.folder, parameters, points, latency, one, tables, told)


def _hosts(one: Measurement, points: Sequence[PointResult]) -> pd.DataFrame:
    """Return what each run cost each host, with the spacing where the runs are a sweep."""
    if not one.parts:
        return host_load(one, points)
    tables, begin = [], 0
    for part in one.parts:
        mine = points[begin : begin + len(part.points)]
        begin += len(part.points)
        table = host_load(part, mine)
        table.insert(0, "spacing_us", mine[0].spacing_us if mine else None)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _tables(one: Measurement, points: Sequence[PointResult]) -> dict[str, pd.DataFrame]:
    """Return what has a row a stream, a sender or a node."""
    if one.kind in ASKING:
        return {"answers": hosts.answers(points)} if one.kind == "one-to-many" else {}
    tables = {"streams": family(points), "patterns": patterns(points)}
    if one.kind == "many-to-one":
        tables["shares"] = hosts.shares(points)
    flooded = hosts.flooding(one)
    return tables | ({"flooding": flooded} if len(flooded) else {})


def _clocks(one: Measurement, method: str, findings: list[str]) -> dict[int, Clock]:
    """Return the clock of every node on node 0's: from the raw exchanges, else as the sender fitted it."""
    found = {int(said["node"]): clocks.of_summary(said) for said in one.clocks}
    for node, exchanges in one.exchanges.items():
        try:
            found[node] = clocks.fit(node, exchanges, method)
        except FitError as error:
            findings.append(f"{one.folder}: {error}")
    return found


def _point(one: Measurement, point: Point, compared: Mapping[int, Clock], findings: list[str]) -> PointResult:
    arrivals = None if one.kind in ASKING else str(one.test.get("arrivals", "regular"))
    flows = tuple(flow_result(point, flow, compared, arrivals, _compared(one, flow)) for flow in point.flows)
    findings += [f"{one.folder}: {point.length_bytes} bytes: {text}" for flow in flows for text in flow.findings]
    loops: tuple[LoopResult, ...] = ()
    if one.kind in ASKING:
        nodes = {flow.source for flow in point.flows if flow.to == 0} | set(point.counts)
        nodes = nodes or {flow.to for flow in point.flows if flow.source == 0}
        step = next((clock.ours_step_ns for clock in compared.values()), None)
        loops = tuple(loop_result(point, node, step) for node in sorted(nodes))
        parameters = _asked(point, flows, loops)
    else:
        parameters = _streamed(one.wire, point, flows, compared)
    return PointResult(point.length_bytes, point.spacing_us, flows, loops, parameters)


def _compared(one: Measurement, flow: Flow) -> npt.NDArray[np.int64] | None:
    """Return when frames that compare clocks left and arrived on the way of a flow; None where no port was paused."""
    if not one.run.get("pauses"):
        return None
    for peer, way in ((flow.to, "request"), (flow.source, "reply")):
        if {flow.source, flow.to} == {0, peer} and peer in one.exchanges:
            return np.stack([one.exchanges[peer][f"{way}_{end}_ns"] for end in ("sent", "received")])
    return np.empty((2, 0), np.int64)


def _asked(point: Point, flows: Sequence[FlowResult], loops: Sequence[LoopResult]) -> dict[str, Parameter]:
    """Return the numbers of a point with round trips: a loop without its answer is lost."""
    asked, answered = (_sum(getattr(loop, name) for loop in loops) for name in ("asked", "answered"))
    lost = None if asked is None or answered is None else max(0, asked - answered)
    counts = {"sent": asked, "received": answered, "lost": lost}
    counts |= {name: _sum(flow.counts[name] for flow in flows) for name in ("duplicated", "reordered")}
    parameters = {name: counted(name, counts[name], asked or 0, "no log and no summary tells it") for name in COUNTS}
    if len(loops) == 1 and loops[0].delay is not None:
        parameters["latency_us"] = measured(
            "latency_us", loops[0].delay.median_us, loops[0].delay.n, "round trip, median"
        )
        return parameters | _widths(loops[0].width, loops[0].delay.peaks)
    why = "several nodes answer: each has its own distribution" if len(loops) > 1 else "no loop was measured"
    if len(loops) == 1:
        why = loops[0].undelayed
    return parameters | {"latency_us": unknown("latency_us", why)} | _widths(why)


def _streamed(
    wire: Wire, point: Point, flows: Sequence[FlowResult], compared: Mapping[int, Clock]
) -> dict[str, Parameter]:
    """Return the numbers of a point with streams."""
    counts = {name: _sum(flow.counts[name] for flow in flows) for name in COUNTS}
    n = counts["sent"] or 0
    parameters = {name: counted(name, counts[name], n, "no log and no summary tells it") for name in COUNTS}
    parameters["loss_ratio"] = _loss_ratio(flows, counts)
    parameters |= _rates(wire, flows, compared)
    if len(flows) != 1:
        why = f"{len(flows)} streams: each has its own"
        return parameters | {"latency_us": unknown("latency_us", why)} | _widths(why)
    flow = flows[0]
    refused = _refused(flow, compared)
    if refused or flow.delay is None:
        parameters["latency_us"] = unknown("latency_us", refused or flow.undelayed)
        return parameters | _widths(refused if _before_sent(flow, compared) else flow.width)
    why = f"median; may be off by {_bound_us(flow, compared):.3g} us if the directions of the clock exchanges differ"
    sigma = math.hypot(flow.delay.median_us[1], flow.clock_sigma_us)
    parameters["latency_us"] = measured("latency_us", (flow.delay.median_us[0], sigma), flow.delay.n, why)
    return parameters | _widths(flow.width, flow.delay.peaks)


def _refused(flow: FlowResult, compared: Mapping[int, Clock]) -> str:
    """Return why a one-way latency is not given: it is smaller than what the clocks' comparison may be off by."""
    if flow.delay is None or flow.delay.median_us[0] >= (bound := _bound_us(flow, compared)):
        return ""
    if _before_sent(flow, compared):
        return (
            f"frames arrive {-flow.delay.median_us[0]:.3g} us before they were sent: these are not times of the clocks "
            "that were compared"
        )
    return f"{flow.delay.median_us[0]:.3g} us is below the {bound:.3g} us that the clocks may be apart unseen"


def _before_sent(flow: FlowResult, compared: Mapping[int, Clock]) -> bool:
    """Return whether frames arrive before they were sent, and no asymmetry of the clocks' comparison explains it."""
    return flow.delay is not None and flow.delay.median_us[0] < -_bound_us(flow, compared)


def _bound_us(flow: FlowResult, compared: Mapping[int, Clock]) -> float:
    """Return by how much the one-way times of a flow may be off because directions differ."""
    return max((compared[node].bound_us for node in (flow.flow.source, flow.flow.to) if node != 0), default=0.0)


def _loss_ratio(flows: Sequence[FlowResult], counts: Mapping[str, int | None]) -> Parameter:
    """Return the probability of a loss, of all flows together."""
    if counts["sent"] == 0:
        return unknown("loss_ratio", "no frame was sent")
    if not flows or any(flow.losses is None for flow in flows):
        return unknown(
            "loss_ratio", "the places of the losses are not known: sent or received log missing, cut or full"
        )
    every = [flow.losses for flow in flows if flow.losses is not None]
    n = sum(one.frames for one in every)
    value = sum(one.count for one in every) / n
    sigma = math.sqrt(sum((one.ratio.sigma * one.frames) ** 2 for one in every)) / n
    if len(every) > 1:
        return measured("loss_ratio", (value, sigma), n, f"of {len(every)} streams together")
    ratio = every[0].ratio
    why = f"95 %: {ratio.low:.3g} to {ratio.high:.3g}, {ratio.method}"
    why += f"; independent losses stand together as much with probability {ratio.independent_p:.2g}"
    return measured("loss_ratio", (value, sigma), n, why)


def _rates(wire: Wire, flows: Sequence[FlowResult], compared: Mapping[int, Clock]) -> dict[str, Parameter]:
    """Return the throughput of all flows together, and the time between frames of a single one."""
    known = [(flow.spacing, flow.flow.length_bytes) for flow in flows if flow.spacing is not None]
    if not flows or len(known) < len(flows):
        why = next((flow.untimed for flow in flows if flow.untimed), "the stream is not described")
        return {name: unknown(name, why) for name in ("user_mbit_s", "wire_mbit_s", "spacing_us")}
    n = sum(one.intervals for one, _ in known)
    own = any(flow.flow.to not in (0, *compared) for flow in flows)
    why = "by the clock of the host that received, which was compared with no other" if own else ""
    user = [one.mbit_s(length) for one, length in known]
    taken = [one.mbit_s(float(wire.frame_bytes(length))) for one, length in known]
    parameters = {
        name: measured(name, (sum(value for value, _ in parts), math.hypot(*(sigma for _, sigma in parts))), n, why)
        for name, parts in (("user_mbit_s", user), ("wire_mbit_s", taken))
    }
    if len(known) == 1:
        parameters["spacing_us"] = measured("spacing_us", (known[0][0].mean_us, known[0][0].sigma_us), n, why)
    else:
        parameters["spacing_us"] = unknown("spacing_us", f"{len(known)} streams: each has its own", n)
    return parameters


def _widths(found: Width | str, peaks: Sequence[Peak] = ()) -> dict[str, Parameter]:
    if isinstance(found, str):
        return {name: unknown(name, found) for name in ("fwhm_us", "sigma_us")}
    why = "" if found.normal else "the peak is not normal: this is the width of the normal one that comes nearest"
    if len(peaks) > 1:
        at = ", ".join(f"{one.at_us:.4g}" for one in peaks)
        apart = min(after.at_us - before.at_us for before, after in itertools.pairwise(peaks))
        which = "that in the middle" if found.fwhm_us[0] < apart else "as if they were one"
        why = f"of {len(peaks)} peaks, at {at} us, {which}" + (f"; {why}" if why else "")
    return {
        "fwhm_us": measured("fwhm_us", found.fwhm_us, found.n, why),
        "sigma_us": measured("sigma_us", found.sigma_us, found.n, why),
    }


def _latency(one: Measurement, points: Sequence[PointResult]) -> Latency | None:
    """Return latency against size; None for a test that has none."""
    if one.kind in ASKING:
        loops = [(point.length_bytes, loop) for point in points for loop in point.loops]
        many = Counter(loop.node for _, loop in loops if loop.delay is not None)
        node = max(sorted(many), key=lambda each: many[each], default=0)
        mine = [(length, loop) for length, loop in loops if loop.node == node]
        found = of_points(one.kind, one.request_bytes, mine, one.wire.header_bytes)
        return found if len(many) < 2 else replace(found, one_way=f"of node {node}, {found.one_way}")
    single = [(point.length_bytes, point.flows[0]) for point in points if len(point.flows) == 1]
    spacings = {point.spacing_us for point in points}
    if len({length for length, _ in single}) < 2 or len(spacings) > 1:
        return None
    if one.run.get("pauses") or any(point.parameters["latency_us"].value is None for point in points):
        return None
    return of_points(one.kind, None, single, one.wire.header_bytes)


def _line_parameters(latency: Latency, findings: list[str]) -> dict[str, Parameter]:
    best, step = latency.best, latency.step
    if best is None:
        return {
            name: unknown(name, latency.reason)
            for name in ("intercept_us", "slope_us_per_byte", "step_bytes", "step_us")
        }
    slope = best.slope_us_per_byte
    if slope.nominal_value < -IMPOSSIBLE * slope.std_dev:
        why = (
            f"the line falls by {-slope.nominal_value:.3g} us/byte: no path is quicker for longer frames, so the times "
            "were disturbed: more loops, a quiet host"
        )
        findings.append(why)
        names = ("intercept_us", "slope_us_per_byte", "step_bytes", "step_us")
        return {name: unknown(name, why, best.n) for name in names}
    if best.scatter > 1:
        findings.append(
            f"the medians scatter {best.scatter:.3g} times as much about the line as their errors say; "
            "the line's errors are widened by that"
        )
    if latency.change is not None:
        findings.append(f"{latency.change}: intercept and slope are those of shorter frames")
    why = f"one way, {latency.one_way}; through medians"
    parameters = {
        "intercept_us": measured("intercept_us", best.intercept_us, best.n, why),
        "slope_us_per_byte": measured("slope_us_per_byte", best.slope_us_per_byte, best.n, why),
    }
    if step is None or step.step_bytes is None or step.step_us is None:
        reason = "it was not looked for" if step is None else step.reason
        return parameters | {name: unknown(name, reason, best.n) for name in ("step_bytes", "step_us")}
    findings.append(f"a step every {step.step_bytes.nominal_value:.0f} bytes: intercept and slope are those beside it")
    chance = f"by chance with probability {step.p_value:.2g}" + (f"; {step.reason}" if step.reason else "")
    return parameters | {
        "step_bytes": measured("step_bytes", step.step_bytes, best.n, chance),
        "step_us": measured("step_us", step.step_us, best.n, chance),
    }


def _of_all_sizes(point: Point, received: Parameter) -> dict[str, Parameter]:
    """Return what was asked and lost in a test whose requests are in one log for all sizes."""
    assert point.requests is not None
    log = point.log(0, "sent")
    if log is None or received.value is None:
        return {}
    sent = len(log.of(point.requests.stream, point.requests.source))
    return {name: counted(name, count, sent) for name, count in (("sent", sent), ("lost", sent - int(received.value)))}


def _with_clocks(intercept: Parameter, sigma_us: float) -> Parameter:
    """Return the intercept of one-way times: the clocks' comparison moves all of them together."""
    if intercept.sigma is None:
        return intercept
    return replace(intercept, sigma=math.hypot(intercept.sigma, sigma_us))


def _whole(one: Measurement, points: Sequence[PointResult]) -> dict[str, Parameter]:
    """Return the numbers of all points together: counts add up; of rates and spacings the best is told, with its
    point.
    """
    if not points:
        return {}
    if len(points) == 1:
        return dict(points[0].parameters)
    parameters: dict[str, Parameter] = {}
    for name in points[0].parameters:
        every = [point.parameters[name] for point in points if name in point.parameters]
        n = sum(each.n for each in every)
        if name in COUNTS:
            parameters[name] = counted(name, _sum(each.value for each in every), n, "not known of every point")
        elif name in ("user_mbit_s", "wire_mbit_s", "spacing_us"):
            parameters[name] = _extreme(name, points)
        else:
            parameters[name] = unknown(name, f"{len(points)} points: each has its own", n)
    return parameters


def _extreme(name: str, points: Sequence[PointResult]) -> Parameter:
    """Return the largest throughput or the least spacing, and where it was.

    Of those that are alike it is the mean.
    """
    known = [point for point in points if point.parameters[name].value is not None]
    if not known:
        return points[0].parameters[name]
    sign = 1 if name == "spacing_us" else -1
    known.sort(key=lambda point: sign * (point.parameters[name].value or 0.0))
    values, sigma = ([getattr(point.parameters[name], part) for point in known] for part in ("value", "sigma"))
    many, mean, error = alike(values, sigma)
    where = f"{'least' if sign > 0 else 'largest'} of {len(known)} points: {known[0].length_bytes} bytes"
    if known[0].spacing_us is not None:
        where += f" every {known[0].spacing_us:g} us"
    if many == 1:
        found = known[0].parameters[name]
        return Parameter(found.value, found.sigma, UNITS[name], found.n, where)
    n = sum(point.parameters[name].n for point in known[:many])
    return measured(name, (mean, error), n, where + no_different(many))


def _clock_parameters(compared: Sequence[Clock]) -> dict[str, Parameter]:
    if not compared:
        return {
            name: unknown(name, "no clock was compared") for name in ("offset_us", "drift_ppm", "asymmetry_bound_us")
        }
    clock = min(compared, key=lambda one: one.node)
    last = clock.segments[-1]
    return {
        "offset_us": measured("offset_us", (last.offset_us, last.offset_sigma_us), clock.exchanges, clock.method),
        "drift_ppm": measured("drift_ppm", (last.drift_ppm, last.drift_sigma_ppm), clock.exchanges, clock.method),
        "asymmetry_bound_us": measured("asymmetry_bound_us", (clock.bound_us, 0.0), clock.exchanges),
    }


def _sum(values: Iterable[float | None]) -> int | None:
    found = list(values)
    return None if not found or any(one is None for one in found) else int(sum(one or 0 for one in found))
