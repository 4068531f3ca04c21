"""The sections on a frame's way: from memory to memory, and through the cards."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from pcitrace import plot
from pcitrace.estimate import Estimate
from pcitrace.plot.bus import typical
from pcitrace.report.pagekit import Entry, Section, Table, Value, figure, rows_of, told
from pcitrace.results import Results
from pcitrace.run import Run
from pcitrace.timing import Forwarding

__all__ = ["path_of_a_frame", "preamble", "transit"]

MOST_ROWS = 24
"""Rows of a table on the page; all of them are in ``pcitrace report --json``."""

FEWEST_FRAMES = 5
"""Frames from which on a distribution is drawn."""

CSR_COSTS = {
    "send_csr": ("CSR accesses that start a send", "Address phase of the first to that of the last."),
    "csr_to_dma": ("CSR to DMA", "Address phase of the last of them to the first data phase of the frame's DMA."),
    "dma_to_update": ("DMA to update", "Last data phase of the sending DMA to the next CSR access."),
    "send_whole": ("whole send", "First of these accesses to the update: all that the bus sees of a send."),
    "receive_to_csr": ("receive to CSR", "Last data phase of the receiving DMA to the next CSR access."),
    "csr_to_queue": ("CSR to queue update", "From that access to the next, where it is no send's."),
}

FORWARDING = {
    Forwarding.STORE_AND_FORWARD: (
        "The gap grows like the wire time, R_net a byte: a card has the whole frame before it passes it on.",
        (Value("yes"),),
    ),
    Forwarding.DEVIATES: (
        "The gap grows differently from the wire time, but by more than half of it: t_nic depends on the length.",
        (Value("not strictly"),),
    ),
    Forwarding.OVERLAP: (
        "The gap grows by less than half of the wire time: they overlap, and (gap - wire time)/2 is no transit.",
        (Value("no: overlap"),),
    ),
    Forwarding.UNKNOWN: (
        "Whether the gap grows like the wire time.",
        (Value("unknown", "", "too few frames or lengths"),),
    ),
}


def path_of_a_frame(results: Results) -> Section | None:
    """Show a frame on its way from memory to memory, and what the CSR accesses around it cost."""
    table = results.frames.table
    if not (table["rx_dma_end_us"].notna() & table["dma_start_us"].notna()).any():
        costs = _csr_costs(results)
        return Section("From memory to memory", ("No frame was seen on both buses.",), costs) if costs else None
    frame = typical(results.run, table)
    caption = (
        f"{_took(results, frame)} Lanes, from the middle outwards: the frame on the wire, the data that the NIC moves, "
        "all transactions with the control accesses. Spans outside of them, from the lanes outwards: from the DMA to "
        "the update or to the next access, from the accesses to the DMA or to the update of the receive queue, the "
        "accesses that start a send, the whole send."
    )
    drawn = figure(partial(plot.exchange, results.run, frame, frames=results.frames), (9.0, 4.5), (4.6, 5.4))
    return Section("From memory to memory", figures=((caption, drawn),), entries=_csr_costs(results))


def _took(results: Results, frame: int) -> str:
    """Say how long the first frame of the picture took, and how much of that its data moved."""
    table = results.frames.table
    row = table[table["frame"] == frame].iloc[0]
    words = [f"{int(row['length_bytes'])} bytes from {row['sender']} to {row['receiver']}:"]
    whole, sent = row["rx_dma_end_us"] - row["csr_first_us"], row["csr_done_us"] - row["csr_first_us"]
    moved = f"data moves on the buses in {row['dma_us'] + row['rx_dma_us']:.2f} µs"
    if pd.notna(whole):
        words.append(f"{whole:.1f} µs from the first access to the last word in memory, of which {moved}.")
    else:
        words.append(f"{moved}.")
    if pd.notna(sent):
        words.append(f"The sender is done after {sent:.1f} µs.")
    return " ".join(words)


GROUPS = ("groups of sends", "Sends that the driver hands over before the card begins the DMA of the first of them.")


def _csr_costs(results: Results) -> tuple[Entry, ...]:
    costs: dict[str, list[Value]] = {}
    for row in results.timing.csr_costs.to_dict("records"):
        if row["n"]:
            keys = ("value", "sigma_measurement", "sigma_frames", "scatter")
            value, sigma, error, scatter = (None if pd.isna(row[key]) else row[key] for key in keys)
            reason = "" if pd.isna(row["reason"]) else row["reason"]
            one = Estimate(value, sigma, row["n"], sigma_frames=error, scatter=scatter, reason=reason)
            costs.setdefault(row["what"], []).append(told(one, "µs", str(row["host"])))
    grouped_sends = []
    for name, bus in results.buses.items():
        found = bus["groups"]
        if found["of_several"]:
            means = (
                f"{found['csr_us']:.3g} µs of CSR accesses, {found['idle_us']:.3g} µs from the last of them to the DMA"
            )
            basis = f"{found['of_several']} groups of several frames among {found['groups']}; means: {means}"
            grouped_sends.append(Value(f"{found['frames']:.3g}", "frames", basis, name))
    groups = (Entry(*GROUPS, tuple(grouped_sends)),) if grouped_sends else ()
    return tuple(Entry(*CSR_COSTS[what], tuple(values)) for what, values in _in_order(costs)) + groups


def _in_order(costs: dict[str, list[Value]]) -> list[tuple[str, list[Value]]]:
    return [(what, costs[what]) for what in CSR_COSTS if what in costs]


def _spread(results: Results) -> str:
    """Say what t_nic is over the frames of the histogram."""
    chosen = results.frames.table["t_nic_us"][results.frames.fulfil("not queued")].dropna()
    mean, sigma = float(chosen.mean()), float(chosen.std(ddof=1))
    return f"A frame that waits for no other passes a card in {mean:.3f} µs (standard deviation {sigma:.3f} µs)."


def transit(results: Results) -> Section | None:
    """Show what a frame spends in the cards."""
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
            ("t_nic a byte", "What a user byte adds to it.", timing.t_nic_line.slope, "µs/byte"),
            ("slope of the gap", "Gap against the bytes on the wire.", timing.gap.slope, "µs/byte"),
        )
        if estimate.n
    ]
    entries.append(Entry("store and forward?", *FORWARDING[timing.forwarding]))
    table = timing.by_length
    figures = []
    if table["n"].sum() >= FEWEST_FRAMES:
        drawn = figure(
            partial(plot.histogram, run, "t_nic_us", "not queued", frames=results.frames), (7.0, 4.4), (4.6, 4.4)
        )
        figures.append((f"{_spread(results)} Line: mean.", drawn))
    gap, r_net = timing.gap, timing.r_net_us_per_byte
    if gap.slope.value is not None and gap.intercept.value is not None and r_net:
        intercept, slope = gap.intercept.value, gap.slope.value
        lengths = np.maximum(table["length_bytes"].to_numpy(dtype=float), 46) + 18 + preamble(run)
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
        off = 100 * (slope / r_net - 1)
        caption = (
            f"A byte on the wire lengthens the gap by {slope:.4g} µs, {abs(off):.2g} % {'more' if off > 0 else 'less'} "
            "than it takes on the wire. Dots: mean gap of each length with its standard error; below: off the line."
        )
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
        tables=(Table(f"Means by user bytes{less}", *rows_of(shown, columns)),),
    )


def preamble(run: Run) -> int:
    """Return the bytes of the preamble on the run's link; 8 where it does not say."""
    return int(run.folder.run.get("link", {}).get("preamble_bytes", 8)) if run.folder is not None else 8
