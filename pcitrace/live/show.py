"""What is known now, for people: a view in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group

    from pcitrace.live.watcher import Status

__all__ = ["render"]


def render(status: Status, title: str) -> Group:
    """Return the view."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = f"{title}   {status.time_us / 1e6:.3f} s   late by {status.latency_s * 1e3:.0f} ms"
    lost = f"   {status.gaps} gaps, {status.skipped_samples} samples skipped" if status.gaps else ""
    table = Table(expand=True, pad_edge=False)
    for name in ("bus", "occupancy", "data", "MB/s", "transactions/s"):
        table.add_column(name, justify="left" if name in ("bus", "transactions/s") else "right")
    for name, bus in status.buses.items():
        kinds = "  ".join(f"{kind} {rate:.4g}" for kind, rate in bus["transactions_per_s"].items() if rate is not None)
        shares = [_percent(bus["occupancy"]), _percent(bus["data_occupancy"]), _number(bus["throughput_mb_s"])]
        table.add_row(name, *shares, kinds or "none")
    parts: list[Any] = [Text(head + lost, style="bold" if not status.gaps else "bold yellow"), table]
    for name, bus in status.buses.items():
        for what in ("problems", "violations"):
            if bus[what]:
                told = "  ".join(f"{kind} {count}" for kind, count in bus[what].items())
                parts.append(Text(f"{name}: {what}: {told}", style="red"))
    if status.frames:
        parts.append(Text("frames: " + "  ".join(f"{key} {value}" for key, value in status.frames.items())))
    parts += [Text(line, no_wrap=True, overflow="ellipsis") for line in status.last]
    return Group(*parts)


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.3g} %"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
