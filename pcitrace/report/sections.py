"""The sections of the report, each from the results of a run."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pandas as pd

from pcitrace import plot
from pcitrace.estimate import Estimate
from pcitrace.plot.bus import described
from pcitrace.plot.style import duration
from pcitrace.report.pagekit import Entry, Section, figure, grouped, percent, plus_minus, rows_of, told
from pcitrace.results import Results
from pcitrace.run import Run
from pcitrace.runfolder import read_frame_log
from pcitrace.timing import Forwarding
from pcitrace.traffic.dma import Kind

__all__ = ["SECTIONS"]

MOST_ROWS = 24
"""Rows of a table on the page; all of them are in ``pcitrace report --json``."""

FEWEST_FRAMES = 5
"""Frames from which on a distribution is drawn."""

MOST_TRANSACTIONS = 3000
"""Transactions of each bus in the timeline that can be zoomed."""

CONSTANTS = {
    "t_nic_us": (
        "t_nic",
        "µs",
        "Transit of one card: half of what the gap between the end of the sending DMA and the start of the receiving "
        "DMA has more than the wire time (max(b, 46) + 18 + P) R_net. From frames that waited for no other.",
    ),
    "R_PCI_send_us_per_byte": (
        "R_PCI, sending",
        "µs/byte",
        "Slope of the sending DMA's first to last data phase against the b + 14 bytes on the bus, pieces and the "
        "pauses between them included.",
    ),
    "R_PCI_recv_us_per_byte": ("R_PCI, receiving", "µs/byte", "The same for the receiving DMA."),
    "t_sw_us": (
        "t_sw",
        "µs",
        "Software of one host: half of what the intercept of the measured latency leaves when all other terms of "
        "Equation 2.1 are taken away.",
    ),
}

CSR_COSTS = {
    "send_csr": ("CSR accesses that start a send", "Address phase of the first to that of the last."),
    "csr_to_dma": ("CSR to DMA", "Address phase of the last of them to the first data phase of the frame's DMA."),
    "dma_to_update": ("DMA to update", "Last data phase of the sending DMA to the next CSR access."),
    "receive_to_csr": ("receive to CSR", "Last data phase of the receiving DMA to the next CSR access."),
}

FORWARDING = {
    Forwarding.STORE_AND_FORWARD: (
        "The gap grows like the wire time, R_net a byte: a card has the whole frame before it passes it on.",
        (("yes", ""),),
    ),
    Forwarding.DEVIATES: (
        "The gap grows differently from the wire time, but by more than half of it: t_nic depends on the length.",
        (("not strictly", ""),),
    ),
    Forwarding.OVERLAP: (
        "The gap grows by less than half of the wire time: they overlap, and (gap - wire time)/2 is no transit.",
        (("no: overlap", ""),),
    ),
    Forwarding.UNKNOWN: ("Whether the gap grows like the wire time.", (("unknown", "too few frames or lengths"),)),
}


def constants(results: Results) -> Section:
    entries = [
        Entry(name, meaning, (told(estimate, unit),))
        for (name, unit, meaning), estimate in zip(CONSTANTS.values(), results.constants.values(), strict=True)
    ]
    table = results.frames.table
    whole = int((table["dma_end_us"].notna() & table["rx_dma_start_us"].notna()).sum())
    followed = (
        f"{grouped(whole)} of {grouped(len(table))}",
        f"{grouped(int(table['queued'].sum()))} waited for an earlier one and give no t_nic",
    )
    entries.append(Entry("frames", "Followed from the sender's memory to the receiver's.", (followed,)))
    return Section("Constants", entries=tuple(entries))


def path_of_a_frame(results: Results) -> Section | None:
    table = results.frames.table
    if not (table["rx_dma_end_us"].notna() & table["dma_start_us"].notna()).any():
        costs = _csr_costs(results)
        return Section("From memory to memory", ("No frame was seen on both buses.",), costs) if costs else None
    caption = (
        "Red: the NIC moves the frame's data. Green: all transactions, control accesses included. Blue: the frame on "
        "the wire. Spans in µs: the CSR accesses that start the send, from them to the DMA, the gap between the DMA "
        "of both hosts, from the DMA to the update."
    )
    drawn = figure(partial(plot.exchange, results.run, frames=results.frames), (9.0, 4.3), (4.6, 4.6))
    return Section("From memory to memory", figures=((caption, drawn),), entries=_csr_costs(results))


GROUPS = ("groups of sends", "Sends that the driver hands over before the card begins the DMA of the first of them.")


def _csr_costs(results: Results) -> tuple[Entry, ...]:
    costs: dict[str, list[tuple[str, str]]] = {}
    for row in results.timing.csr_costs.to_dict("records"):
        if row["n"]:
            keys = ("value", "sigma_measurement", "sigma_frames", "scatter")
            value, sigma, error, scatter = (None if pd.isna(row[key]) else row[key] for key in keys)
            reason = "" if pd.isna(row["reason"]) else row["reason"]
            one = Estimate(value, sigma, row["n"], sigma_frames=error, scatter=scatter, reason=reason)
            mean, basis = told(one, "µs")
            costs.setdefault(row["what"], []).append((f"{row['host']}: {mean}", basis))
    grouped_sends = []
    for name in results.frames.hosts:
        found = results.groups(name)
        if found["of_several"]:
            means = (
                f"{found['csr_us']:.3g} µs of CSR accesses, {found['idle_us']:.3g} µs from the last of them to the DMA"
            )
            basis = f"{found['of_several']} groups of several frames among {found['groups']}; means: {means}"
            grouped_sends.append((f"{name}: {found['frames']:.3g} frames", basis))
    groups = (Entry(*GROUPS, tuple(grouped_sends)),) if grouped_sends else ()
    return tuple(Entry(*CSR_COSTS[what], tuple(values)) for what, values in costs.items()) + groups


def transit(results: Results) -> Section | None:
    timing, run = results.timing, results.run
    if timing.by_length.empty:
        return None
    entries = [
        Entry(name, meaning, (told(estimate, unit),))
        for name, meaning, estimate, unit in (
            ("t_nic, sending side", "TX_EN rises - last data phase of the sending DMA.", timing.t_nic_tx, "µs"),
            ("t_nic, receiving side", "First data phase of the receiving DMA - TX_EN falls.", timing.t_nic_rx, "µs"),
            ("t_nic of frames that waited", "The same mean over these.", timing.t_nic_queued, "µs"),
            ("t_nic against the length", "Its value at 0 bytes.", timing.t_nic_line.intercept, "µs"),
            ("", "What a user byte adds to it.", timing.t_nic_line.slope, "µs/byte"),
            ("slope of the gap", "Gap against the bytes on the wire.", timing.gap.slope, "µs/byte"),
        )
        if estimate.n
    ]
    entries.append(Entry("store and forward?", *FORWARDING[timing.forwarding]))
    table = timing.by_length
    figures = []
    if table["n"].sum() >= FEWEST_FRAMES:
        drawn = figure(
            partial(plot.histogram, run, "t_nic_us", "not queued", frames=results.frames), (7.0, 3.0), (4.6, 3.2)
        )
        figures.append(("t_nic of the frames that waited for no other. Line: mean.", drawn))
    gap, r_net = timing.gap, timing.r_net_us_per_byte
    if gap.slope.value is not None and gap.intercept.value is not None and r_net:
        intercept, slope = gap.intercept.value, gap.slope.value
        lengths = np.maximum(table["length_bytes"].to_numpy(dtype=float), 46) + 18 + _preamble(run)
        other = (intercept, r_net, f"the wire's {r_net:g} µs/byte")
        draw = partial(
            plot.line,
            run,
            lengths,
            table["gap_us"],
            table["gap_sem_us"],
            intercept=intercept,
            slope=slope,
            label=f"{intercept:.4g} + {slope:.6f} x",
            other=other,
            names=("bytes on the wire", "gap (µs)"),
        )
        caption = "Mean gap of each length with its standard error, the line through all frames, and what is off it."
        figures.append((caption, figure(draw, (7.0, 4.4), (4.6, 4.4))))
    shown = table.iloc[np.unique(np.linspace(0, len(table) - 1, min(len(table), MOST_ROWS)).astype(int))]
    less = "" if len(shown) == len(table) else f" ({len(shown)} of {len(table)} lengths; all in --json)"
    columns = {
        "length_bytes": "b (bytes)",
        "n": "n",
        "gap_us": "gap (µs)",
        "t_nic_us": "t_nic (µs)",
        "t_nic_tx_us": "sending (µs)",
        "t_nic_rx_us": "receiving (µs)",
    }
    return Section(
        "Transit of the cards",
        entries=tuple(entries),
        figures=tuple(figures),
        tables=((f"Means by user bytes{less}", *rows_of(shown, columns)),),
    )


def pci(results: Results) -> Section | None:
    timing = results.timing
    entries = []
    for name, rate in (("sending", timing.send), ("receiving", timing.receive)):
        if rate.burst.value is not None:
            meaning = "(last - first data phase) / bytes moved after the first phase, over all pieces."
            entries.append(Entry(f"burst rate, {name}", meaning, (told(rate.burst, "µs/byte"),)))
        by_host = {host: told(one, "µs/byte") for host, one in rate.by_host.items() if one.value is not None}
        if by_host:
            hosts = tuple((f"{host}: {value}", basis) for host, (value, basis) in by_host.items())
            entries.append(Entry(f"R_PCI, {name}, by host", "The slope on each bus.", hosts))
    rows = []
    for host, traffic in results.frames.hosts.items():
        bursts, csr = traffic.joined, traffic.csr
        for kind in np.unique(bursts.kind):
            mine = bursts.kind == kind
            sums = (mine.sum(), bursts.bytes[mine].sum(), bursts.pieces[mine].sum())
            rows.append([host, Kind(kind).name.lower().replace("_", " "), *(grouped(one) for one in sums)])
        if len(csr):
            rows.append([host, "CSR accesses", grouped(len(csr)), "", grouped(csr.attempts.sum())])
    if not rows and not entries:
        return None
    head = ["host", "what", "number", "bytes", "transactions"]
    return Section("PCI", entries=tuple(entries), tables=(("DMA bursts, their pieces joined", head, rows),))


def model(results: Results) -> Section | None:
    run, model, fit = results.run, results.model, results.fit
    text = [
        "T(b) = 2 t_sw + 2 t_nic + R_net (b + 18 + P) + R_PCI_send (b + 14) + R_PCI_recv (b + 14)"
        f", P = {_preamble(run)} bytes of preamble (Equation 2.1, one R_PCI for each host)."
    ]
    figures = []
    if results.latency is not None and fit is not None:
        line = (fit.intercept.nominal_value, fit.slope.nominal_value)
        latency = results.latency
        draw = partial(
            plot.line,
            run,
            latency["length_bytes"],
            latency["latency_us"],
            latency["sigma_us"],
            intercept=line[0],
            slope=line[1],
            label=f"{line[0]:.2f} + {line[1]:.5f} b",
            names=("user bytes b", "latency (µs)"),
        )
        probability = "" if fit.p_value is None else f", p = {fit.p_value:.2g}"
        figures.append(
            (
                f"Measured one-way latency and the line through it: chi2 {fit.chi2:.1f} for {fit.ndof} degrees of "
                f"freedom{probability}.",
                figure(draw, (7.0, 4.4), (4.6, 4.4)),
            )
        )
    if model is None:
        text.append(f"It cannot be put together: {results.t_sw.reason}.")
        return Section("Equation 2.1", tuple(text), figures=tuple(figures))
    table = model.contributions(fit)
    parts = table.loc[[name for name in table.index if name not in ("sum", "measured", "difference")]]
    for column, unit, what in (("intercept_us", "µs", "intercept"), ("slope_us_per_byte", "µs/byte", "slope")):
        some = parts[column][parts[column].abs() > 0]
        whole = None if fit is None else float(table[column]["measured"])
        figures.append(
            (
                f"What contributes to the {what}; the red line is the measured sum.",
                figure(
                    partial(plot.budget, run, some, whole, unit=unit),
                    (8.0, 0.9 + 0.3 * len(some)),
                    (4.6, 1.0 + 0.32 * len(some)),
                ),
            )
        )
    if model.terms["t_sw_us"].source == "derived":
        text.append("t_sw is derived from the measured intercept, so that the intercepts agree by construction.")
    rows = [
        [
            str(name),
            plus_minus(row["intercept_us"], row["intercept_sigma_us"]),
            plus_minus(row["slope_us_per_byte"], row["slope_sigma_us_per_byte"]),
            str(row["source"]),
            str(row["n"]) if row["n"] else "",
        ]
        for name, row in table.iterrows()
    ]
    head = ["term", "intercept (µs)", "slope (µs/byte)", "source", "n"]
    return Section("Equation 2.1", tuple(text), figures=tuple(figures), tables=(("Contributions", head, rows),))


def occupancy(results: Results) -> Section:
    buses = results.as_dict()["buses"]
    occupied, data = [], []
    periods: dict[str, list[tuple[str, str]]] = {"send_periods": [], "receive_periods": []}
    for name, bus in buses.items():
        clock = "" if bus["clock_mhz"] is None else f", {bus['clock_mhz']:.4g} MHz"
        window = f"{grouped(bus['transactions'])} transactions in {duration(bus['window_us'])}{clock}"
        occupied.append((f"{name}: {percent(bus['occupancy'])}", window))
        data.append((f"{name}: {percent(bus['data_occupancy'])}", ""))
        for column, values in periods.items():
            one = bus[column]
            if one["periods"]:
                basis = (
                    f"{grouped(one['periods'])} periods of {one['period_us']:.2f} µs, of which {one['busy_us']:.2f} µs "
                    f"busy, {one['data_us']:.2f} µs with data"
                )
                values.append((f"{name}: {percent(one['occupancy'])}", basis))
    whole = "Busy clocks from the DMA of one frame to that of the next, over the time between them."
    entries = [
        Entry("occupancy", "Clocks with FRAME# or IRDY# asserted, over all whose state is known.", tuple(occupied)),
        Entry("data occupancy", "Clocks in which data moves, over the same.", tuple(data)),
        Entry("over whole periods between sends", whole, tuple(periods["send_periods"])),
        Entry("over whole periods between receives", whole, tuple(periods["receive_periods"])),
    ]
    drawn = figure(partial(plot.occupancy, results.run, usage=results.usage), (9.0, 3.0), (4.6, 3.4))
    caption = "Use of the buses over the run; the first bus upwards, the second downwards. Filled: data moves."
    return Section(
        "Use of the buses", entries=tuple(entry for entry in entries if entry.values), figures=((caption, drawn),)
    )


def timeline(results: Results) -> Section | None:
    """The transactions as data for the zoomable picture of the page: the part around the first frame."""
    run = results.run
    buses = []
    for name in results.frames.hosts:
        ends = run.table(name).end_us[:MOST_TRANSACTIONS]
        shown = described(run, name, -math.inf, float(ends[-1]) if len(ends) else -math.inf)
        rows = [
            [round(start, 4), round(end, 4), int(lane == "data"), *text.split("\n")]
            for start, end, lane, text in shown.itertuples(index=False)
        ]
        buses.append({"name": name, "rows": rows})
    if not any(bus["rows"] for bus in buses):
        return None
    text = (
        f"The first {MOST_TRANSACTIONS} transactions of each bus. Wheel or pinch zooms, dragging moves, a tap on a bar "
        "tells what it is. Red: DMA of the NIC; green: the rest.",
    )
    return Section("Transactions", text, zoom=json.dumps(buses, separators=(",", ":")).replace("</", "<\\/"))


def left_out(results: Results) -> Section:
    rows = [
        [str(host), str(kind).replace("_", " "), str(reason), grouped(len(some))]
        for (host, kind, reason), some in results.frames.drop_log.groupby(["host", "kind", "reason"])
    ]
    rows += [
        [host, "transactions", reason, grouped(count)]
        for host, traffic in results.frames.hosts.items()
        for reason, count in traffic.unknown.items()
    ]
    for name in results.frames.hosts:
        problems = results.run[name].problems
        counts = problems.groupby("kind")["count"].sum()
        rows += [[name, "problem on the bus", str(kind), grouped(int(count))] for kind, count in counts.items()]
    if not rows:
        return Section("Left out, and why", ("Nothing: every burst belongs to a frame, and the buses kept the rules.",))
    head = ["host", "what", "why", "number"]
    return Section("Left out, and why", tables=(("", head, rows),))


def frame_logs(results: Results) -> Section | None:

    folder = results.run.folder
    entries = folder.run.get("frame_logs", []) if folder is not None else []
    if folder is None or not entries:
        return None
    rows = []
    for entry in entries:
        log = read_frame_log(folder.path / entry["file"])
        lengths = log["length_bytes"]
        size = " to ".join(map(str, sorted({lengths.min(), lengths.max()}))) if len(log) else ""
        rows.append([entry["host"], entry["kind"], grouped(len(log)), size, entry["file"]])
    text = () if folder.run.get("frames_on_bus", True) else ("These frames are not those on the bus.",)
    head = ["host", "kind", "frames", "user bytes", "file"]
    return Section("Frame logs", text, tables=(("", head, rows),))


def _preamble(run: Run) -> int:
    return int(run.folder.run.get("link", {}).get("preamble_bytes", 8)) if run.folder is not None else 8


SECTIONS = (
    constants,
    path_of_a_frame,
    transit,
    pci,
    model,
    occupancy,
    timeline,
    left_out,
    frame_logs,
)
"""In the order of the page; each takes the results and returns a section, or None where there is nothing to say."""
