"""The sections on what the times come from: the bus, Equation 2.1, the use of the buses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from pcitrace import plot
from pcitrace.plot.style import duration
from pcitrace.report.pagekit import Entry, Section, Table, Value, figure, grouped, percent, plus_minus, told
from pcitrace.report.passage import preamble
from pcitrace.results import Results
from pcitrace.traffic.dma import Kind

__all__ = ["model", "occupancy", "pci"]


def pci(results: Results) -> Section | None:
    """Show what the bus takes for a byte, and what moved on it."""
    timing = results.timing
    entries = []
    for name, rate in (("sending", timing.send), ("receiving", timing.receive)):
        if rate.burst.value is not None:
            meaning = "(last - first data phase) / bytes moved after the first phase, over all pieces."
            entries.append(Entry(f"burst rate, {name}", meaning, (told(rate.burst, "µs/byte"),)))
        hosts = tuple(told(one, "µs/byte", host) for host, one in rate.by_host.items() if one.value is not None)
        if hosts:
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
    return Section("PCI", entries=tuple(entries), tables=(Table("DMA bursts, their pieces joined", head, rows),))


def model(results: Results) -> Section | None:
    """Show Equation 2.1: its measured line, and what contributes to it."""
    run, model, fit = results.run, results.model, results.fit
    text = [
        "T(b) = 2 t_sw + 2 t_nic + R_net (b + 18 + P) + R_PCI_send (b + 14) + R_PCI_recv (b + 14)"
        f", P = {preamble(run)} bytes of preamble (Equation 2.1, one R_PCI for each host)."
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
                f"A user byte adds {line[1]:.4g} µs to {line[0]:.4g} µs. Dots: measured one-way latency; the line "
                f"through it has chi2 {fit.chi2:.1f} for {fit.ndof} degrees of freedom{probability}.",
                figure(draw, (9.0, 4.4), (4.6, 4.4)),
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
                f"{_largest(some, unit)} of the {what}. Each bar begins where the one above ends; the line: measured.",
                figure(
                    partial(plot.budget, run, some, whole, unit=unit),
                    (8.0, 1.2 + 0.3 * len(some)),
                    (4.6, 1.3 + 0.32 * len(some)),
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
    return Section("Equation 2.1", tuple(text), figures=tuple(figures), tables=(Table("Contributions", head, rows),))


def _largest(parts: pd.Series[float], unit: str) -> str:
    """Say which part of a sum is the largest."""
    name, whole = str(parts.abs().idxmax()), float(parts.sum())
    return f"{name} is the largest part, {parts[name]:.3g} of {whole:.3g} {unit} ({100 * parts[name] / whole:.0f} %),"


def occupancy(results: Results) -> Section:
    """Show how much of the buses' clocks is used."""
    occupied, data = [], []
    periods: dict[str, list[Value]] = {"send_periods": [], "receive_periods": []}
    for name, bus in results.buses.items():
        clock = "" if bus["clock_mhz"] is None else f", {bus['clock_mhz']:.4g} MHz"
        window = f"{grouped(bus['transactions'])} transactions in {duration(bus['window_us'])}{clock}"
        occupied.append(replace(percent(bus["occupancy"]), of=name, basis=window))
        data.append(replace(percent(bus["data_occupancy"]), of=name))
        for column, values in periods.items():
            one = bus[column]
            if one["periods"]:
                basis = (
                    f"{grouped(one['periods'])} periods of {one['period_us']:.2f} µs, of which {one['busy_us']:.2f} µs "
                    f"busy, {one['data_us']:.2f} µs with data"
                )
                values.append(replace(percent(one["occupancy"]), of=name, basis=basis))
    whole = "Busy clocks from the DMA of one frame to that of the next, over the time between them."
    entries = [
        Entry("occupancy", "Clocks with FRAME# or IRDY# asserted, over all whose state is known.", tuple(occupied)),
        Entry("data occupancy", "Clocks in which data moves, over the same.", tuple(data)),
        Entry("over whole periods between sends", whole, tuple(periods["send_periods"])),
        Entry("over whole periods between receives", whole, tuple(periods["receive_periods"])),
    ]
    drawn = figure(partial(plot.occupancy, results.run, usage=results.usage), (9.0, 3.0), (4.6, 3.4))
    used = ", ".join(f"{one.of}'s bus is in use for {one.text} {one.unit}".rstrip() for one in occupied)
    caption = f"{used} of its clocks. The first bus upwards, the second downwards; filled: data moves."
    return Section(
        "Use of the buses", entries=tuple(entry for entry in entries if entry.values), figures=((caption, drawn),)
    )
