"""A part of a capture as a capture of its own: small enough to send to somebody, cut where the bus is idle.

A sampled capture (sigrok, DSView, sigrok's CSV) becomes a sigrok file with the same channels; a VCD stays one.
"""

from __future__ import annotations

import gzip
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tomli_w

from pcitrace.errors import CaptureFormatError
from pcitrace.wiring import Line

if TYPE_CHECKING:
    from pcitrace.run import Bus, Capture

__all__ = ["Excerpt", "cut", "idle_limits", "write_session"]

_MEMBER = 4 << 20  # bytes of samples in a member, as sigrok itself writes them
_PIECE = 256 << 20  # bytes of samples that are in memory at once: each goes over what is before it again
_IDLE_CLKS = 3
"""Clocks that are kept on either side: a decoder is in step after one idle clock, and parity comes one clock late."""


@dataclass(frozen=True)
class Excerpt:
    """What was cut: the files, and from where to where in samples (ticks of a capture of changes)."""

    path: Path
    wiring: Path | None
    first: int
    last: int


def idle_limits(bus: Bus, start_us: float, stop_us: float) -> tuple[float, float]:
    """Widen a time to where the bus is idle.

    Parameters
    ----------
    bus : pcitrace.Bus
    start_us, stop_us : float

    Returns
    -------
    float, float
        In us: no transaction goes on at either.
    """
    rows = bus.arrow("transactions", columns=["start_us", "end_us"])
    clock_us = 1 / (bus.clock_mhz or 33.3)
    margin = _IDLE_CLKS * clock_us
    starts, ends = rows["start_us"].to_numpy(), rows["end_us"].to_numpy()
    # To before the transaction that goes on, and before those that it follows without enough idle clocks.
    row = int(np.searchsorted(starts, start_us + margin)) - 1
    while row >= 0 and ends[row] + margin > start_us:
        start_us = min(start_us, starts[row] - margin)
        row -= 1
    row = int(np.searchsorted(ends, stop_us - margin))
    while row < len(starts) and starts[row] - margin < stop_us:
        stop_us = max(stop_us, ends[row] + margin)
        row += 1
    return max(start_us, 0.0), stop_us


def cut(bus: Bus, start_us: float, stop_us: float, path: Path) -> Excerpt:
    """Write a part of a bus's capture, with all its channels, cut where the bus is idle.

    Parameters
    ----------
    bus : pcitrace.Bus
    start_us, stop_us : float
        What has to be in it.
    path : pathlib.Path
        ``.sr`` for a sampled capture, ``.vcd`` for a VCD.

    Returns
    -------
    Excerpt
        Beside the capture lies its wiring, where the names of the channels do not say it.

    Raises
    ------
    CaptureFormatError
        The format cannot be cut, or the suffix is another one.
    """
    capture = bus.capture
    start_us, stop_us = idle_limits(bus, start_us, stop_us)
    sampled = capture.sample_count is not None
    if not sampled and capture.format != "vcd":
        raise CaptureFormatError(
            f"{capture.path}: a {capture.format} capture cannot be cut; convert it to VCD first", capture.path
        )
    suffix = ".sr" if sampled else ".vcd"
    if path.suffix != suffix:
        raise CaptureFormatError(f"{path}: a part of a {capture.format} capture is a {suffix} file", path)
    first, last = _sr(capture, start_us, stop_us, path) if sampled else _vcd(capture, start_us, stop_us, path)
    return Excerpt(path, _wiring(bus, path), first, last)


def _wiring(bus: Bus, path: Path) -> Path | None:
    """Write what the names of the channels do not say, and that every sample is a clock."""
    channels = bus.capture.wiring.channels

    def named(line: Line) -> str:
        name, width = channels[line.channel]
        return f"{name}[{line.bit}]" if width > 1 else name

    stated = {
        name: {"channel": named(line), "active_low": line.active_low}
        for name, line in bus.wiring.lines.items()
        if line.source == "given"
    }
    clock_mhz = bus.capture.clock_mhz
    said: dict[str, Any] = {} if clock_mhz is None else {"clock_mhz": clock_mhz}
    if stated:
        said["bus"] = {bus.wiring.name: stated}
    if not said:
        return None
    place = path.with_suffix(".wiring.toml")
    place.write_text(tomli_w.dumps(said), encoding="utf-8")
    return place


def _sr(capture: Capture, start_us: float, stop_us: float, path: Path) -> tuple[int, int]:
    """Write samples as sigrok does (format 2: metadata, version, logic-1-1 ...)."""
    rate_hz = capture.clock_mhz * 1e6 if capture.clock_mhz else capture.rate_hz
    if rate_hz is None or capture.sample_count is None:
        raise CaptureFormatError(f"{capture.path}: states no sample rate; give it with --rate", capture.path)
    first = max(int(start_us * rate_hz / 1e6), 0)
    last = min(int(stop_us * rate_hz / 1e6) + 1, capture.sample_count)
    unit = capture.samples(first, first).shape[1]
    step = _PIECE // unit
    pieces = (capture.samples(at, min(at + step, last)) for at in range(first, last, step))
    write_session(path, pieces, unit, capture.channels, rate_hz)
    return first, last


def write_session(
    path: Path, pieces: Iterable[npt.NDArray[np.uint8]], unit: int, channels: Sequence[str], rate_hz: float
) -> None:
    """Write samples as a sigrok session.

    Parameters
    ----------
    path : pathlib.Path
    pieces : iterable of array of uint8, each of shape (samples, unit)
    unit : int
        Bytes a sample.
    channels : sequence of str
        From bit 0 on.
    rate_hz : float
    """
    lines = [
        "[global]",
        "sigrok version=0.5.2",
        "",
        "[device 1]",
        "capturefile=logic-1",
        f"total probes={len(channels)}",
        f"samplerate={_rate(rate_hz)}",
        "total analog=0",
        *(f"probe{number}={name}" for number, name in enumerate(channels, 1)),
        f"unitsize={unit}",
        "",
    ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("version", "2")
        archive.writestr("metadata", "\n".join(lines))
        number = 0
        for samples in pieces:
            for begin in range(0, len(samples), _MEMBER // unit):
                number += 1
                archive.writestr(f"logic-1-{number}", samples[begin : begin + _MEMBER // unit].tobytes())


def _rate(rate_hz: float) -> str:
    """A rate as sigrok writes it."""
    for unit, size in (("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3)):
        if rate_hz >= size and (rate_hz / size).is_integer():
            return f"{rate_hz / size:.0f} {unit}"
    return f"{rate_hz:.0f} Hz"


def _vcd(capture: Capture, start_us: float, stop_us: float, path: Path) -> tuple[int, int]:
    """Write the header, the values at the start, and the changes until the end."""
    tick_us = (capture.tick_s or 1.0) * 1e6
    first, last = int(start_us / tick_us), int(stop_us / tick_us)
    opener = gzip.open if capture.path.read_bytes()[:2] == b"\x1f\x8b" else Path.open
    values: dict[str, str] = {}
    with opener(capture.path, "rt", encoding="latin-1") as source, path.open("w", encoding="latin-1") as target:
        for line in source:
            target.write(line)
            if "$enddefinitions" in line:
                break
        begun = False
        for time, changes in _changes(source):
            if time > last:
                break
            if time >= first and not begun:
                _dump(target, first, values)
                begun = True
            values |= changes
            if begun:
                target.write(f"#{time}\n" + "".join(f"{value}\n" for value in changes.values()))
        if not begun:
            _dump(target, first, values)
        target.write(f"#{last}\n")
    return first, last


def _dump(target: IO[str], time: int, values: dict[str, str]) -> None:
    target.write(f"#{time}\n$dumpvars\n" + "".join(f"{value}\n" for value in values.values()) + "$end\n")


def _changes(source: IO[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The changes at each time: identifier -> its line."""
    time, changes = 0, dict[str, str]()
    words = re.compile(r"\s+")
    for line in source:
        text = line.strip()
        if text.startswith("#"):
            yield time, changes
            time, changes = int(text[1:]), {}
        elif text and text[0] in "01xXzZuUwWlLhH-":
            changes[text[1:]] = text
        elif text and text[0] in "bBrRsS":
            changes[words.split(text)[-1]] = text
    yield time, changes
