"""A VCD that a simulator is writing, as samples."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pcitrace import _kernel
from pcitrace.errors import CaptureFormatError
from pcitrace.live.sources import PIECE, Follower
from pcitrace.run import Capture
from pcitrace.wiring import Wiring, WiringSource, resolve_wiring
from pcitrace.wiring.bitnames import bit_names

__all__ = ["RATE_HZ", "GrowingVcd"]

RATE_HZ = 500e6
"""Samples a second unless stated: 7 a clock at 66 MHz."""

LONGEST = 1 << 26
"""Samples over which nothing changes that are left out, as a gap."""

TIME = re.compile(rb"#(\S*)\s")
"""Changes may stand in the line of their time, as sigrok writes them."""

SAMPLED = b"$timescale 1 s $end\n"
"""One tick a sample, in what the kernel is given."""


class GrowingVcd(Follower):
    """A VCD that grows: its changes are sampled as they come.

    What is neither 0 nor 1 is 1, as the bus is pulled up; `unknown` counts the changes to ``x``.

    Parameters
    ----------
    path : pathlib.Path
    idle_s : float or None
        As of a file of samples.
    rate_hz : float or None
        Samples a second, about: a sample is a whole number of the file's units.
    wiring : WiringSource or None
        Names the bits of vectors.
    """

    def __init__(self, path: Path, idle_s: float | None, rate_hz: float | None, wiring: WiringSource | None) -> None:
        super().__init__(path, idle_s)
        self.unknown = 0
        self._folder = tempfile.TemporaryDirectory(prefix="pcitrace-watch-")
        self._place = Path(self._folder.name) / "part.vcd"
        head, self._begin = self._head()
        self._place.write_bytes(head + b"#0\n")
        capture = Capture(self._place, wiring)
        assert capture.tick_s is not None  # a VCD lists changes
        self._step = max(round(1 / (capture.tick_s * (rate_hz or RATE_HZ))), 1)
        self.rate_hz = 1 / (capture.tick_s * self._step)
        self.channels = _names(capture.wiring)
        self.unit_size = -(-len(self.channels) // 8)
        # The names and widths of its variables, without the unit of its times.
        before, _, behind = head.partition(b"$timescale")
        self._names = SAMPLED + before + behind.partition(b"$end")[2]
        # The last value of each variable, as it stands in the file.
        self._values: dict[bytes, bytes] = {}
        self._given = 0

    def _head(self) -> tuple[bytes, int]:
        """Return what stands before the changes, once it is there, and where they begin."""
        text = b""
        with self._open() as file:
            while (at := text.find(b"$enddefinitions")) < 0 or (end := text.find(b"$end", at + 4)) < 0:
                some = self._read(file, 1)
                if some is None or len(text) > 64 * PIECE:
                    raise CaptureFormatError(f"{self._path}: a VCD without $enddefinitions", self._path)
                text += some + (file.read(PIECE) or b"")
        return text[:at] + b"$enddefinitions $end\n", end + len(b"$end")

    def blocks(self) -> Iterator[bytes | int | None]:
        """Yield samples up to the last time of which all changes are there; at the end also those of the last."""
        text, time = b"", 0
        with self._open() as file:
            file.seek(self._begin)
            while not self._closed.is_set():
                some = file.read(PIECE) or self._read(file, 1)
                text += some or b""
                cut = text.rfind(b"\n#") + 1 if some else len(text)
                at = TIME.match(text, cut) if some else None
                if not cut or (some and at is None):
                    if some:
                        continue
                    break
                last = self._time(at[1]) if at else None
                yield from self._sampled(text[:cut], time, last)
                if last is None:
                    break
                time, text = last, text[cut:]
        self._folder.cleanup()

    def _sampled(self, text: bytes, time: int, until: int | None) -> Iterator[bytes | int | None]:
        """Sample changes that begin at a time, up to before another."""
        first, at = self._given, max(-(-time // self._step) - self._given, 0)
        out = [self._names, b"#0\n", *self._values.values()]
        if at:
            out.append(f"#{at}\n".encode())
        tokens = iter(text.split())
        for token in tokens:
            kind = token[:1]
            if kind == b"#":
                now = -(-self._time(token[1:]) // self._step) - first
                if now > at:
                    at = now
                    out.append(f"#{at}\n".encode())
            elif kind in b"01xXzZ":
                self._values[token[1:]] = change = token + b"\n"
                out.append(change)
            elif kind in b"bB":
                name = next(tokens, b"")
                self._values[name] = change = token + b" " + name + b"\n"
                out.append(change)
            elif kind in b"rRsS":
                next(tokens, b"")
            elif token == b"$comment":
                for word in tokens:
                    if word == b"$end":
                        break
        end = at + 1 if until is None else -(-until // self._step) - first
        if end <= 0:
            return
        self._given += end
        if end > LONGEST:
            yield end * self.unit_size
            return
        self._place.write_bytes(b"".join(out) + (f"#{end - 1}\n".encode() if end - 1 > at else b""))
        pieces: list[bytes] = []
        unknown, _ = _kernel.write_samples(_kernel.open(str(self._place)), 1, pieces.append)
        self.unknown += unknown
        left = end * self.unit_size
        for piece in pieces:
            yield piece[:left]
            left -= min(len(piece), left)

    def _time(self, text: bytes) -> int:
        try:
            return int(text)
        except ValueError:
            said = os.fsdecode(text[:20])
            raise CaptureFormatError(f"{self._path}: #{said}: no time of a VCD", self._path) from None


def _names(wiring: Wiring) -> list[str]:
    """Return a name for every bit, from which the same buses are read again, by their own names where that can be."""
    named = bit_names(wiring, with_bus=True)
    again = resolve_wiring([(name, 1) for name in named])
    return named if set(again.complete) == set(wiring.complete) else bit_names(wiring)
