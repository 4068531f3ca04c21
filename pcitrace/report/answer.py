"""What the page says first: the constants, each with its uncertainty and definition."""

from __future__ import annotations

import re

from pcitrace.report.pagekit import Entry, Value, grouped, plus_minus, told
from pcitrace.results import Results

__all__ = ["constants"]

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


def constants(results: Results) -> tuple[Entry, ...]:
    """Return the constants of Equation 2.1, and how many frames they rest on."""
    entries = []
    for (name, unit, meaning), (key, estimate) in zip(CONSTANTS.values(), results.constants.items(), strict=True):
        values: tuple[Value, ...] = (told(estimate, unit),)
        if key == "t_nic_us" and estimate.value is None and results.timing.transit.depends:
            values = _by_length(results)
        entries.append(Entry(name, meaning, values))
    table = results.frames.table
    whole = int((table["dma_end_us"].notna() & table["rx_dma_start_us"].notna()).sum())
    waited = f"{grouped(int(table['queued'].sum()))} waited for an earlier one and give no t_nic"
    followed = Value(f"{grouped(whole)} of {grouped(len(table))}", "", waited)
    return (*entries, Entry("frames", "Followed from the sender's memory to the receiver's.", (followed,)))


def _by_length(results: Results) -> tuple[Value, ...]:
    """Return t_nic of the shortest and of the longest frames, where it depends on the length."""
    at = results.timing.transit.at
    reason = re.sub(r": .*?; ", "; ", results.timing.t_nic.reason, count=1)
    reason = reason[:1].upper() + reason[1:] + "."
    ends = [at.iloc[0], at.iloc[-1]] if len(at) > 1 else [at.iloc[0]]
    return tuple(
        Value(
            plus_minus(one["value"], one["sigma"]),
            "µs",
            "" if number + 1 < len(ends) else reason,
            f"{grouped(int(one['length_bytes']))} bytes",
        )
        for number, one in enumerate(ends)
    )
