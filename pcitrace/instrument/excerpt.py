"""A part of a capture as a capture of its own: small enough to send to somebody, cut where the bus is idle.

A sampled capture (sigrok, DSView, sigrok's CSV) becomes a sigrok file with the same channels, a VCD stays one;
:mod:`pcitrace.export.part` makes samples of it.
"""

from __future__ import annotations

import gzip
import math
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tomli_w

from pcitrace.errors import CaptureFormatError, DecodeError
from pcitrace.wiring import Line

if TYPE_CHECKING:
    from pcitrace.run import Bus, Capture

__all__ = ["Excerpt", "cut", "idle_limits", "write_session", "write_wiring"]

_MEMBER = 4 << 20  # bytes of samples in a member, as sigrok itself writes them
_PIECE = 256 << 20  # bytes of samples that are in memory at once: each goes over what is before it again
_IDLE_CLKS = 3
"""Clocks that are kept on either side where there are so many: a decoder is in step after one idle clock, and PERR#
comes two clocks late."""
_ROUNDS = 100


@dataclass(frozen=True)
class Excerpt:
    """What was cut: the files, and from where to where in samples (ticks of a capture of changes)."""

    path: Path
    wiring: Path | None
    first: int
    last: int


def idle_limits(buses: Sequence[Bus], start_us: float, stop_us: float) -> tuple[float, float]:
    """Widen a time to where the buses are idle.

    Parameters
    ----------
    buses : sequence of pcitrace.Bus
    start_us, stop_us : float

    Returns
    -------
    float, float
        In us: no transaction goes on at either, and an idle clock comes before the first one. Of buses that are hardly
        ever idle together, the later ones may be cut elsewhere.
    """
    gaps = [_Gaps(bus) for bus in buses]
    for _ in range(_ROUNDS):
        before = start_us, stop_us
        for one in reversed(gaps):
            start_us, stop_us = one.start(start_us), one.stop(stop_us)
        if (start_us, stop_us) == before:
            break
    return max(start_us, 0.0), stop_us


class _Gaps:
    """Where the transactions of a bus lie."""

    def __init__(self, bus: Bus) -> None:
        rows = bus.arrow("transactions", columns=["start_us", "end_us"])
        self.starts, self.ends = rows["start_us"].to_numpy(), rows["end_us"].to_numpy()
        self.clock_us = 1 / (bus.mean_clock_mhz or bus.clock_mhz or 33.3)

    def start(self, wanted_us: float) -> float:
        """To half a clock before idle clocks, before the transaction that goes on and those that it follows at once."""
        row = int(np.searchsorted(self.ends, wanted_us - self.clock_us / 4))
        while 0 < row < len(self.starts) and not self._apart(row):
            row -= 1
        first = self.starts[row] if row < len(self.starts) else np.inf
        last = self.ends[row - 1] if row else -np.inf
        return max(min(wanted_us, first - (_IDLE_CLKS + 0.5) * self.clock_us), last + self.clock_us / 2)

    def stop(self, wanted_us: float) -> float:
        """To half a clock before the next transaction that does not follow at once."""
        row = int(np.searchsorted(self.starts, wanted_us + self.clock_us / 4))
        while 0 < row < len(self.starts) and not self._apart(row):
            row += 1
        first = self.starts[row] if row < len(self.starts) else np.inf
        last = self.ends[row - 1] if row else -np.inf
        return min(max(wanted_us, last + (_IDLE_CLKS + 0.5) * self.clock_us), first - self.clock_us / 2)

    def _apart(self, row: int) -> bool:
        """Whether there is an idle clock before a transaction."""
        return bool(self.starts[row] - self.ends[row - 1] > 1.75 * self.clock_us)


def cut(buses: Sequence[Bus], start_us: float, stop_us: float, path: Path, *, from_zero: bool = False) -> Excerpt:
    """Write a part of a capture, with all its channels, cut where its buses are idle.

    Parameters
    ----------
    buses : sequence of pcitrace.Bus
        Of one capture; the first is the one that matters most.
    start_us, stop_us : float
        What has to be in it.
    path : pathlib.Path
        ``.sr`` for a sampled capture, ``.vcd`` for a VCD.
    from_zero : bool
        Times of a VCD count from the beginning of the part, as those of samples do, and not as in the whole.

    Returns
    -------
    Excerpt
        Beside the capture lies its wiring, where the names of the channels do not say it.

    Raises
    ------
    CaptureFormatError
        The format cannot be cut, or the suffix is another one.
    DecodeError
        The capture ends before.
    """
    capture = buses[0].capture
    sampled = capture.sample_count is not None
    if not sampled and capture.format != "vcd":
        raise CaptureFormatError(
            f"{capture.path}: a {capture.format} capture cannot be cut; make one that can be of it: "
            f"pcitrace export {capture.path} --to sigrok -o whole.sr",
            capture.path,
        )
    suffix = ".sr" if sampled else ".vcd"
    if path.suffix != suffix:
        other = "" if sampled else ", or a .sr of its samples"
        raise CaptureFormatError(f"{path}: a part of a {capture.format} capture is a {suffix} file{other}", path)
    end_us = (capture.duration_s or np.inf) * 1e6
    if start_us >= end_us:
        raise DecodeError(f"{capture.path}: nothing to cut from {start_us:g} us on, the capture ends at {end_us:g} us")
    start_us, stop_us = idle_limits(buses, start_us, min(stop_us, end_us))
    if sampled:
        first, last = _sr(capture, start_us, stop_us, path)
    else:
        first, last = _vcd(capture, start_us, stop_us, path, from_zero)
    return Excerpt(path, write_wiring(buses, path), first, last)


def write_wiring(buses: Sequence[Bus], path: Path, named: Callable[[Line], str] | None = None) -> Path | None:
    """Write beside a capture what the names of its channels do not say, and that every sample is a clock.

    Parameters
    ----------
    buses : sequence of pcitrace.Bus
    path : pathlib.Path
        The capture.
    named : callable, optional
        Gives the channel of a line by name; default: as in the capture of the buses.

    Returns
    -------
    pathlib.Path or None
        None where nothing has to be said.
    """
    channels = buses[0].capture.wiring.channels

    def as_captured(line: Line) -> str:
        name, width = channels[line.channel]
        return f"{name}[{line.bit}]" if width > 1 else name

    named = named or as_captured
    stated = {
        bus.wiring.name: {
            name: {"channel": named(line), "active_low": line.active_low}
            for name, line in bus.wiring.lines.items()
            if line.source == "given"
        }
        for bus in buses
    }
    clock_mhz = buses[0].capture.clock_mhz
    said: dict[str, Any] = {} if clock_mhz is None else {"clock_mhz": clock_mhz}
    if any(stated.values()):
        said["bus"] = {bus: lines for bus, lines in stated.items() if lines}
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
    first = math.ceil(start_us * rate_hz / 1e6)
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


def _vcd(capture: Capture, start_us: float, stop_us: float, path: Path, from_zero: bool) -> tuple[int, int]:
    """Write the header, the values at the start, and the changes until the end."""
    tick_us = (capture.tick_s or 1.0) * 1e6
    first, last = int(start_us / tick_us), int(stop_us / tick_us)
    zero = first if from_zero else 0
    with capture.path.open("rb") as raw:
        opener = gzip.open if raw.read(2) == b"\x1f\x8b" else Path.open
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
                _dump(target, first - zero, values)
                begun = True
            values |= changes
            if begun:
                target.write(f"#{time - zero}\n" + "".join(f"{value}\n" for value in changes.values()))
        if not begun:
            _dump(target, first - zero, values)
        target.write(f"#{last - zero}\n")
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
