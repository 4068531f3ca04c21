"""What is known now, for people: a view in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from pcitrace.live.watcher import Status

__all__ = ["render", "squeezed"]

WRONG = 5
"""Lines of what was wrong last."""


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
        kinds = "  ".join(
            f"{kind} {_number(rate)}" for kind, rate in bus["transactions_per_s"].items() if rate is not None
        )
        shares = [_percent(bus["occupancy"]), _percent(bus["data_occupancy"]), _number(bus["throughput_mb_s"])]
        table.add_row(name, *shares, kinds or "none")
    parts: list[Any] = [Text(head + lost, style="bold" if not status.gaps else "bold yellow"), table]
    for name, bus in status.buses.items():
        for what in ("problems", "violations"):
            if bus[what]:
                told = "  ".join(f"{kind} {count}" for kind, count in bus[what].items())
                parts.append(Text(f"{name}: {what}: {told}", style="red"))
    parts += [_line(Text(_told(row), style="red")) for row in status.wrong[-WRONG:]]
    if status.frames:
        parts.append(Text("frames: " + "  ".join(f"{key} {value}" for key, value in status.frames.items())))
    parts += [_line(Text(line)) for line in squeezed(status.last)]
    return Group(*parts)


def squeezed(lines: Sequence[str]) -> list[str]:
    """Return lines without the columns that are blank in all of them, but for two between what is left of them."""
    width = max(map(len, lines), default=0)
    blank = [all(line[at : at + 1] in ("", " ") for line in lines) for at in range(width)]
    kept = [at for at in range(width) if not (at > 1 and all(blank[at - 2 : at + 1]))]
    return ["".join(line[at] for at in kept if at < len(line)) for line in lines]


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _told(row: dict[str, Any]) -> str:
    """Say what was wrong, in the form of the listing."""
    times = f" ({row['count']} times)" if row["count"] > 1 else ""
    return f"! {row['time_us']:14.3f} us  {row['bus']}  {row['kind']}: {row['text']}{times}"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.3g} %"


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"
