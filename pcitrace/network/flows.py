"""A flow, and the loops of an asking test, from their logs to numbers; the logs themselves are let go then."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pcitrace.errors import ConfigurationError, FitError
from pcitrace.network.account import Account, account
from pcitrace.network.buffers import Held, held
from pcitrace.network.clocks import Clock
from pcitrace.network.delays import Delay, Order, delay, order
from pcitrace.network.logs import FARTHEST_NS, UNKNOWN_NS, Log, empty, untimed
from pcitrace.network.loss import Losses, of_places
from pcitrace.network.measurement import Flow, Point
from pcitrace.network.pieces import differences_us, pieces
from pcitrace.network.rates import Spacing, spacing
from pcitrace.network.sizes import clock_step, quantile
from pcitrace.network.steps import clock_jump
from pcitrace.network.width import FWHM, Width, width

__all__ = ["FlowResult", "LoopResult", "flow_result", "loop_result"]

Floats = npt.NDArray[np.float64]

COUNTS = ("sent", "received", "lost", "duplicated", "reordered")

SAMPLE = 1_000_000
"""Frames from which on a width is fitted to every so many of them: its error is far below the clock's step then."""

LEAST_RESTED = 100
"""Frames of which a tenth tells a median."""

STEPPED = "a clock stepped while these frames were under way"
BENT = "a clock changed its rate while these frames were under way"


@dataclass(frozen=True)
class FlowResult:
    """What became of a flow.

    Attributes
    ----------
    flow : Flow
    counts : dict of str to int or None
        ``sent``, ``received``, ``lost``, ``duplicated``, ``reordered``, ``corrupt``.
    losses : Losses or None
        None where the places of the losses are not known.
    spacing : Spacing or None
        Between frames as they arrived; in node 0's time where clocks were compared.
    busy : Spacing or None
        Between the later half of them, taken as regular: what comes as fast as it can waits in a queue by then.
    next_us : float or None
        Mean time between the arrivals of frames that were sent one after the other: losses do not lengthen it.
    sent_spacing : Spacing or None
    delay : Delay or None
        One way; None where clocks were not compared.
    rested_us : (float, float) or None
        Median and its standard error of the delays of those that left longest after the one before, where frames
        are not regular: they wait for no other.
    clock_sigma_us : float
        Standard uncertainty that all delays share: of the comparison of the clocks.
    width : Width or str
        Of the one-way delays, or why there is none.
    order : Order or None
    between : Delay or None
        Time between one arrival and the next.
    held : Held or None
        What a paused port kept of it; None where no pause was asked for, or none is seen.
    untimed : str
        Why there is no time between frames; empty where there is.
    undelayed : str
        Why there is no one-way time.
    findings : tuple of str
    """

    flow: Flow
    counts: Mapping[str, int | None]
    losses: Losses | None
    spacing: Spacing | None = None
    busy: Spacing | None = None
    next_us: float | None = None
    sent_spacing: Spacing | None = None
    delay: Delay | None = None
    rested_us: tuple[float, float] | None = None
    clock_sigma_us: float = 0.0
    width: Width | str = ""
    order: Order | None = None
    between: Delay | None = None
    held: Held | None = None
    untimed: str = ""
    undelayed: str = ""
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoopResult:
    """Round trips with one answering node.

    Attributes
    ----------
    node : int
    delay : Delay or None
        Of whole loops, the asking host's clock.
    width : Width or str
    asked, answered : int or None
    undelayed : str
        Why there is no delay, where there is none.
    """

    node: int
    delay: Delay | None
    width: Width | str
    asked: int | None
    answered: int | None
    undelayed: str = ""


def flow_result(
    point: Point,
    flow: Flow,
    clocks: Mapping[int, Clock],
    arrivals: str | None,
    compared_ns: npt.NDArray[np.int64] | None = None,
) -> FlowResult:
    """Return what became of a flow.

    `arrivals` is how frames were planned; None in a test of round trips, of which each way is only counted: its times
    are those of the loops.
    `compared_ns`, where the port that it leaves by was paused: when frames that compare clocks left and arrived by the
    same way.
    """
    findings: list[str] = []
    sent, received = (
        _log(point, node, kind, flow, findings) for node, kind in ((flow.source, "sent"), (flow.to, "received"))
    )
    found = account(sent, received, flow.name)
    findings += found.findings
    counts, places = _counts(found, flow, sent, received, findings)
    losses = of_places(found.lost_at, found.sent) if places and found.sent else None
    in_order = None if received is None else order(found.sequence, found.extents)
    if arrivals is None:
        trips = "round trips: their times are those of the loops"
        return FlowResult(
            flow, counts, losses, width=trips, order=in_order, untimed=trips, undelayed=trips, findings=tuple(findings)
        )
    timed, delays, why = _delays_us(found, flow, clocks)
    untimed = _clock_fault(timed, delays, point.spacing_us is not None, flow)
    if untimed.startswith("one-way"):
        findings.append(f"{flow.name}: {untimed}")
        delays, why = None, untimed
    if why == STEPPED or len(timed.arrival_ns) < len(found.arrival_ns):
        untimed = untimed or STEPPED
    arrived = None if untimed else _spacing(found.arrival_ns, arrivals)
    step, shared, readings = _step_us(found, flow, clocks)
    stepped = "" if delays is None else _stepped(timed, flow, clocks)
    return FlowResult(
        flow,
        counts,
        losses,
        _on_reference(arrived, timed, flow, clocks.get(flow.to)),
        _on_reference(
            None if untimed else _spacing(found.arrival_ns[len(found.arrival_ns) // 2 :], "regular"),
            timed,
            flow,
            clocks.get(flow.to),
        ),
        _next_us(found),
        None if sent is None else _spacing(sent.send_ns, arrivals),
        None if delays is None else delay(delays, step, shared_us=shared),
        None if delays is None or arrivals == "regular" else _rested(delays, timed),
        0.0 if delays is None else _clock_sigma_us(timed, flow, clocks),
        why if delays is None else _width(delays, step, readings, stepped, _drifted_us(timed, flow, clocks)),
        in_order,
        None if untimed else delay(differences_us(found.arrival_ns), step, in_order=False),
        held(found, flow.length_bytes, compared_ns) if compared_ns is not None and places else None,
        "" if arrived is not None else untimed or "fewer than two frames of a stream have a time of arrival",
        why or f"{len(found.delay_ns)} frames arrived: a latency needs six",
        tuple(findings),
    )


def loop_result(point: Point, node: int, step_ns: int | None = None) -> LoopResult:
    """Return the round trips between node 0 and one that answers.

    `step_ns` is that of the clock of node 0, where anything else tells it than the loops.
    """
    asking = sorted((flow for flow in point.flows if flow.source == 0), key=lambda flow: flow.to != node)
    # A request to a group is one frame, of which a log without a summary does not tell who gets it.
    out = point.requests or next(iter(asking), None)
    back = next((flow for flow in point.flows if flow.source == node and flow.to == 0), None)
    if node in point.counts:
        low, count = point.counts[node]
        loops = np.repeat(low + point.bin_ns / 2, count) / 1e3
        asked = None if out is None else out.stated.get("sent")
        step = point.bin_ns / 1e3
        few = f"{len(loops)} loops: a latency needs six"
        wide = _tried(loops, step, 1, in_order=False)
        return LoopResult(node, delay(loops, step, in_order=False), wide, asked, len(loops), few)
    findings: list[str] = []
    requests = None if out is None else _log(point, 0, "sent", out, findings)
    answers = _log(point, 0, "received", back or Flow(0, node, 0, point.length_bytes), findings)
    if requests is None or answers is None:
        why = f"no log of requests and answers of node {node}"
        asked, answered = (
            None if one is None else one.stated.get(name) for one, name in ((out, "sent"), (back, "received"))
        )
        return LoopResult(node, None, why, asked, answered, why)
    # When the other host sent its answer need not be known: the clock of a loop is that of the host that asks.
    found = account(None, replace(answers, send_ns=answers.receive_ns))
    at = _found(requests.sequence, found.sequence)
    known = at >= 0
    loops_ns = found.arrival_ns[known] - requests.send_ns[at[known]]
    left, came = clock_step(requests.send_ns), clock_step(found.arrival_ns)
    if left is None and came is None and step_ns is None and len(loops_ns):
        # Loops that are all alike, at regular times: the clock may be as coarse as all of these allow.
        step_ns = math.gcd(int(loops_ns[0]), *np.abs(np.diff(requests.send_ns[:2])).tolist())
    # Requests at nearly regular times look like those of a clock as coarse as their spacing.
    step = (came or left or step_ns or 1) / 1e3
    shared = 0.0 if left else step / math.sqrt(12)
    loops = loops_ns / 1e3
    readings = 2 if left == came else 1
    asked, answered = len(requests), int(known.sum())
    if out is not None and back is not None:
        # A damaged log hides loops that there were; the summary counted them.
        asked = max(asked, int(out.stated.get("sent") or 0))
        answered = max(answered, int(back.stated.get("received") or 0))
    # A request does not say which size it asked for.
    all_asked = asked if point.requests is None else None
    few = f"{len(loops)} loops: a latency needs six"
    wide = _tried(loops, step, readings)
    return LoopResult(node, delay(loops, step, shared_us=shared), wide, all_asked, answered, few)


def _log(point: Point, node: int, kind: str, flow: Flow, findings: list[str]) -> Log | None:
    try:
        log = point.log(node, kind)
    except ConfigurationError as error:
        findings.append(f"{error}; left out")
        return None
    if log is None and kind == "received" and flow.stated.get("received") == 0:
        return empty(Path(f"node {node}"))
    if log is None:
        return None
    mine = log.of(flow.stream, flow.source)
    one_of_several = point.requests is not None and flow is not point.requests
    return mine[mine.length_bytes == flow.length_bytes] if one_of_several else mine


def _found(known: npt.NDArray[np.uint32], wanted: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return where each wanted number stands, -1 where it does not."""
    by_number = np.argsort(known, kind="stable")
    at = np.searchsorted(known, wanted, sorter=by_number)
    inside = at < len(known)
    place = np.full(len(wanted), -1, np.int64)
    place[inside] = by_number[at[inside]]
    place[inside] = np.where(known[place[inside]] == wanted[inside], place[inside], -1)
    return place


def _counts(
    found: Account, flow: Flow, sent: Log | None, received: Log | None, findings: list[str]
) -> tuple[dict[str, int | None], bool]:
    """Return the counts, and whether the places of the losses are known.

    A log that holds fewer frames than the sender's summary counted was cut or full: the summary counts then, for frames
    without a record are not lost.
    """
    counts: dict[str, int | None] = {name: getattr(found, name) for name in (*COUNTS, "corrupt")}
    whole = not any("cut off" in one for one in found.findings)
    for log, name in ((sent, "sent"), (received, "received")):
        stated = flow.stated.get(name)
        if stated is None or counts[name] == stated:
            continue
        if log is not None and counts[name] is not None:
            findings.append(f"{flow.name}: the log has {counts[name]} frames {name}, the summary counted {stated}")
        if counts[name] is None or int(stated) > int(counts[name] or 0):
            counts[name] = int(stated)
            whole = False
    if not whole or counts["lost"] is None:
        for name in ("duplicated", "reordered", "corrupt"):
            counts[name] = flow.stated.get(name, counts[name])
        known = counts["sent"] is not None and counts["received"] is not None and "sent" in flow.stated
        counts["lost"] = max(0, int(counts["sent"] or 0) - int(counts["received"] or 0)) if known else None
    # What a log that was cut held is not known without a summary, nor what one did that lacks frames that arrived.
    for log, name in ((sent, "sent"), (received, "received")):
        if log is not None and log.findings and "cut off" in log.findings[0] and name not in flow.stated:
            counts[name] = counts["lost"] = None
    if found.strange and "sent" not in flow.stated:
        counts["sent"] = counts["lost"] = None
        whole = False
    return counts, whole and found.lost is not None


def _spacing(times_ns: npt.NDArray[np.int64], arrivals: str) -> Spacing | None:
    known = times_ns[times_ns != UNKNOWN_NS] if untimed(times_ns) else times_ns
    try:
        return spacing(known, arrivals)
    except FitError:
        return None


def _on_reference(spacing: Spacing | None, found: Account, flow: Flow, clock: Clock | None) -> Spacing | None:
    """Return a time between frames in node 0's time: clocks run apart by more than such a mean is uncertain by."""
    if spacing is None or clock is None or len(found.arrival_ns) < 2:
        return spacing
    ends = found.arrival_ns[[0, -1]]
    ours = found.departure_ns[[0, -1]] if flow.source == 0 else None
    slower = 1 - float(np.diff(clock.minus_ours_ns(ends, ours))[0]) / float(ends[1] - ends[0])
    drift = 1e-6 * max(segment.drift_sigma_ppm for segment in clock.segments)
    sigma = math.hypot(spacing.sigma_us * slower, spacing.mean_us * drift)
    return Spacing(spacing.mean_us * slower, sigma, spacing.intervals)


def _next_us(found: Account) -> float | None:
    """Return the mean time between the arrivals of frames whose numbers follow each other; None where none do."""
    n = len(found.arrival_ns)
    if n > 1 and not len(found.extents) and int(found.sequence[-1]) - int(found.sequence[0]) == n - 1:
        return float(found.arrival_ns[-1] - found.arrival_ns[0]) / (n - 1) / 1e3
    total = count = 0
    for here in pieces(max(0, n - 1)):
        number, time = (one[here.start : here.stop + 1] for one in (found.sequence, found.arrival_ns))
        following = np.diff(number) == 1
        total, count = total + int(np.diff(time)[following].sum()), count + int(following.sum())
    return total / count / 1e3 if count else None


def _delays_us(found: Account, flow: Flow, clocks: Mapping[int, Clock]) -> tuple[Account, Floats | None, str]:
    """Return one-way delays with both clocks brought to node 0's; None where a clock is not known, and why.

    Frames that were under way while a clock stepped have none, and are left out of the account that is returned.
    """
    if any(node not in clocks for node in (flow.source, flow.to) if node != 0):
        return found, None, "the clocks of both hosts were not compared"
    if not len(found.delay_ns):
        return found, None, "of no frame that arrived both times are logged"
    delays = np.empty(len(found.delay_ns))
    bases = {node: clock.base_ns for node, clock in clocks.items()} | {0: 0}
    for here in pieces(len(delays)):
        part = (found.delay_ns[here] - np.int64(bases[flow.to] - bases[flow.source])).astype(np.float64)
        if flow.to != 0:
            ours = found.departure_ns[here] if flow.source == 0 else None
            part -= clocks[flow.to].minus_ours_ns(found.arrival_ns[here], ours)
        if flow.source != 0:
            ours = found.arrival_ns[here] if flow.to == 0 else None
            part += clocks[flow.source].minus_ours_ns(found.departure_ns[here], ours)
        delays[here] = part / 1e3
    known = ~np.isnan(delays)
    if known.all():
        return found, delays, ""
    if not known.any():
        return found, None, STEPPED
    names = ("arrival_ns", "delay_ns", "departure_ns", "sequence")
    return replace(found, **{name: getattr(found, name)[known] for name in names}), delays[known], ""


def _rested(delays_us: Floats, found: Account) -> tuple[float, float] | None:
    """Return the median delay of the tenth of the frames that left longest after the one before."""
    order = np.argsort(found.departure_ns, kind="stable")
    apart = np.diff(found.departure_ns[order])
    if len(apart) < LEAST_RESTED:
        return None
    return quantile(delays_us[order][1:][apart >= np.quantile(apart, 0.9)], 0.5)


def _clock_fault(found: Account, delays_us: Floats | None, planned: bool, flow: Flow) -> str:
    """Return why times of arrival do not follow one another as the frames did; empty where they do."""
    back = next((text for text in found.findings if "clock goes back" in text), "")
    if delays_us is None:
        delays_us = found.delay_ns / 1e3
    jump = clock_jump(delays_us, found.departure_ns, found.arrival_ns, planned)
    if jump is None:
        return back.removeprefix(f"{flow.name}: ")
    at, size = jump
    return (
        f"one-way times change by {size:.6g} us at frame {int(found.sequence[at])} and stay so: a clock jumped; "
        "no times between frames and no latencies are given"
    )


def _clock_sigma_us(found: Account, flow: Flow, clocks: Mapping[int, Clock]) -> float:
    """Return how uncertain the comparison is in the middle of the frames, or at most where a clock stepped."""
    n = len(found.departure_ns)
    at = (0, n // 2, n - 1) if _stepped(found, flow, clocks) else (n // 2,)
    times = [_ours_ns(found, flow)[place] for place in at]
    return max(
        math.hypot(*(clocks[node].sigma_us(float(time)) for node in (flow.source, flow.to) if node != 0))
        for time in times
    )


def _ours_ns(found: Account, flow: Flow) -> npt.NDArray[np.int64]:
    """Return when the frames passed by the clock of node 0, where one end of the flow has it."""
    return found.arrival_ns if flow.to == 0 else found.departure_ns


def _stepped(found: Account, flow: Flow, clocks: Mapping[int, Clock]) -> str:
    """Return what a clock did while the frames were under way, or between two others than node 0 ever; empty where it
    is one line.
    """
    ours = _ours_ns(found, flow)
    first, last = (-FARTHEST_NS, FARTHEST_NS) if 0 not in (flow.source, flow.to) else (ours[0], ours[-1])
    nodes = [clocks[node] for node in (flow.source, flow.to) if node in clocks]
    bent = [one.bent for clock in nodes for one in clock.segments[1:] if first < one.start_ns <= last]
    return "" if not bent else BENT if all(bent) else STEPPED


def _step_us(found: Account, flow: Flow, clocks: Mapping[int, Clock]) -> tuple[float, float, int]:
    """Return the coarser step of both clocks, what all delays share of it, and how many of the two readings of a delay
    are spread over it.

    Where the readings themselves do not tell a step, those that compared the clocks do. Frames that leave at regular
    times all lie alike in the step of their clock: that spreads no delay, and moves them all.
    """
    ours = next((clock.ours_step_ns for clock in clocks.values() if clock.ours_step_ns is not None), None)
    known = {0: ours} | {node: clock.step_ns for node, clock in clocks.items()}
    came, left = clock_step(found.arrival_ns), clock_step(found.departure_ns)
    # Frames at nearly regular times look like those of a clock as coarse as their spacing.
    came_at, left_at = (
        math.gcd(one or 0, known.get(node) or 0) or 1 for one, node in ((came, flow.to), (left, flow.source))
    )
    regular = left is None or left > left_at
    step = max(came_at, left_at)
    shared = left_at / math.sqrt(12) if regular else 0.0
    return step / 1e3, shared / 1e3, 2 if not regular and min(came_at, left_at) >= step / 2 else 1


def _drifted_us(found: Account, flow: Flow, clocks: Mapping[int, Clock]) -> float:
    """Return how far the frames' times may be spread because the clocks' drift is not known better: a standard
    deviation.
    """
    if len(found.arrival_ns) < 2:
        return 0.0
    span_us = float(found.arrival_ns[-1] - found.arrival_ns[0]) / 1e3
    ppm = [one.drift_sigma_ppm for node in (flow.source, flow.to) if node in clocks for one in clocks[node].segments]
    return math.hypot(*ppm) * 1e-6 * span_us / math.sqrt(12)


def _width(delays: Floats, step: float, readings: int, stepped: str, drifted_us: float) -> Width | str:
    if stepped:
        return f"{stepped}: what the comparison before and after is off by is in the width"
    found = _tried(delays, step, readings)
    if isinstance(found, str):
        return found
    value, sigma = found.sigma_us
    sigma = math.hypot(sigma, math.hypot(value, drifted_us) - value)
    return replace(found, sigma_us=(value, sigma), fwhm_us=(FWHM * value, FWHM * sigma))


def _tried(values: Floats, step: float, readings: int, *, in_order: bool = True) -> Width | str:
    try:
        return width(values[:: max(1, len(values) // SAMPLE)], max(step, 0.001), readings, in_order=in_order)
    except FitError as error:
        return str(error)
