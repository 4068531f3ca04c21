"""``pcitrace info``: what is in a capture, and how it was understood."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from pcitrace.cli.options import add_capture, add_json, open_run, print_json
from pcitrace.errors import WiringError
from pcitrace.printable import printable
from pcitrace.run import Capture
from pcitrace.wiring import BusWiring, Line, Wiring
from pcitrace.wiring.linenames import MINIMUM_LINES, normal_active_low

_MOST_NAMES = 100
"""Names shown of the channels that are not used: a waveform of a design has millions."""

_EPILOG = """\
examples:
  pcitrace info capture.sr
  pcitrace info capture.sr --wiring w.toml       what my wiring file changes

A wiring file names the lines that channel names do not show:
  [bus.A]
  "CLK" = "D0"
  "FRAME#" = "D1"
  "AD" = "P4[31:0]"
  "GNT_NIC#" = { channel = "D7", active_low = false }
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    add_json(parser, "print JSON")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Show captures, buses and wiring."""
    opened = open_run(args)
    shown = [(capture, list(capture.wiring.buses.values())) for capture in opened.captures]
    if args.bus is not None:
        bus = opened[args.bus]
        shown = [(bus.capture, [bus.wiring])]
    if args.json:
        print_json({"path": str(opened.path), "captures": [_as_dict(capture, buses) for capture, buses in shown]})
        return 0
    for capture, buses in shown:
        print(f"{printable(str(capture.path))}: {capture.summary}")
        for wiring in buses:
            _show(capture, wiring)
        if not any(bus.pci for bus in capture.wiring.buses.values()):
            print(f"no PCI bus: no channel is named {' '.join(MINIMUM_LINES)} or alike; see --wiring in --help")
        if capture.wiring.unused:
            print(f"not used: {_some(capture.wiring.unused)}")
    return 0


def _show(capture: Capture, bus: BusWiring) -> None:
    clock = _clock_mhz(capture, bus)
    print(f"\nbus {printable(bus.name)}{'' if clock is None else f', clock {clock:.4g} MHz'}{_state(bus)}")
    rows = _rows(capture.wiring, bus)
    width = max(len(row[0]) for row in rows) if rows else 0
    channels = max(len(row[1]) for row in rows) if rows else 0
    for line, channel, note in rows:
        print(f"  {line:<{width}}  {channel:<{channels}}  {note}".rstrip())


def _state(bus: BusWiring) -> str:
    try:
        bus.require(())
    except WiringError:
        what = [*(f"no {line}" for line in bus.missing), *(f"several channels for {line}" for line in bus.ambiguous)]
        return f"; cannot be decoded: {', '.join(what)}" if bus.pci else ", wire only"
    return ""


def _clock_mhz(capture: Capture, bus: BusWiring) -> float | None:
    rated = capture.sample_count is None or capture.rate_hz is not None or capture.clock_mhz is not None
    return capture.measure_clock_mhz(bus) if "CLK" in bus.lines and rated else None


def _rows(wiring: Wiring, bus: BusWiring) -> list[tuple[str, str, str]]:
    """Lines, their channels and what is to be said of them; the bits of a vector on one row."""
    rows = []
    entries = list(bus.lines.items())
    while entries:
        name, line = entries.pop(0)
        last = name
        while entries and _continues(line, entries[0][1], wiring):
            last, line = entries.pop(0)
        stem = name if last == name else f"{name.rstrip('#')} to {last}"
        rows.append((stem, _channel(wiring, line, last != name), _note(name, line)))
    rows += [
        (name, " or ".join(map(printable, channels)), "several channels have this name")
        for name, channels in bus.ambiguous.items()
    ]
    return rows


def _some(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return " ".join(map(printable, names[:_MOST_NAMES])) + more


def _continues(line: Line, after: Line, wiring: Wiring) -> bool:
    wide = wiring.channels[line.channel].width > 1
    same = (after.channel, after.active_low, after.source) == (line.channel, line.active_low, line.source)
    return wide and same and after.bit == line.bit + 1


def _channel(wiring: Wiring, line: Line, whole: bool) -> str:
    channel = wiring.channels[line.channel]
    name = printable(channel.name)
    return name if whole or channel.width == 1 else f"{name} bit {line.bit}"


def _note(name: str, line: Line) -> str:
    notes = [] if not line.active_low else ["active low"]
    if line.active_low != normal_active_low(name):
        notes = ["inverted by the probe"]
    if line.source == "given":
        notes.append("as stated")
    if line.source == "shared":
        notes.append("shared")
    return ", ".join(notes)


def _as_dict(capture: Capture, buses: Sequence[BusWiring]) -> dict[str, Any]:
    wiring = capture.wiring
    return {
        "path": str(capture.path),
        "format": capture.format,
        "notes": capture.notes,
        "channels": [{"name": channel.name, "width": channel.width} for channel in wiring.channels],
        "rate_hz": capture.rate_hz,
        "clock_mhz": capture.clock_mhz,
        "samples": capture.sample_count,
        "duration_s": capture.duration_s,
        "buses": {
            bus.name: {
                "complete": bus.name in wiring.complete,
                "missing": list(bus.missing),
                "ambiguous": {line: list(channels) for line, channels in bus.ambiguous.items()},
                "clock_mhz": _clock_mhz(capture, bus),
                "width": bus.width,
                "lines": {
                    line: {
                        "channel": wiring.channels[where.channel].name,
                        "bit": where.bit,
                        "active_low": where.active_low,
                        "source": where.source,
                    }
                    for line, where in bus.lines.items()
                },
            }
            for bus in buses
        },
        "unused": list(wiring.unused),
    }
