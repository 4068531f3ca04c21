"""A save file of GTKWave: the lines of each bus with the texts that say what they do."""

from __future__ import annotations

import math
from pathlib import Path

from pcitrace.export.source import Source
from pcitrace.export.vcdnames import TEXTS, ranged, text_scope
from pcitrace.run import Capture

__all__ = ["save_file"]

_BIT = "@28"
_HEX = "@22"
_TEXT = "@820"  # ASCII
_COMMENT = "@200"
_WINDOW = 4
"""How wide the window's picture is, in the 200 pixels that GTKWave's zoom counts in."""


def save_file(source: Source, capture: Capture, path: Path, shown_first: tuple[int, int]) -> str:
    """The content of a ``.gtkw`` for the dump at `path`, which opens at a tick, and shows so many."""
    start, ticks = shown_first
    lines = ["[*] GTKWave save file, written by pcitrace", f'[dumpfile] "{path.resolve()}"', f"[timestart] {start}"]
    lines.append(f"*{-math.log2(ticks / _WINDOW):.6f} -1")  # the zoom; no marker
    channels = capture.wiring.channels
    shown: set[int] = set()

    def trace(number: int) -> list[str]:
        name, width = channels[number]
        shown.add(number)
        return [_HEX if width > 1 else _BIT, ranged(name, width)]

    for bus in source.buses:
        lines += [_COMMENT, f"-bus {bus.name}", _TEXT]
        lines += [f"{text_scope(bus.name)}.{name}" for name in TEXTS]
        for number in dict.fromkeys(line.channel for line in bus.wiring.lines.values()):
            lines += trace(number)
    rest = [number for number in range(len(channels)) if number not in shown]
    if rest:
        lines += [_COMMENT, "-other channels"]
        for number in rest:
            lines += trace(number)
    return "\n".join(lines) + "\n"
