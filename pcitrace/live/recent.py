"""The last samples: from them the last transactions are listed, and what led to a condition is kept."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from pcitrace import _kernel
from pcitrace.streaming import Found

__all__ = ["Recent"]

LISTED = 1 << 18
"""Samples that are decoded once more to list the last transactions."""


class Recent:
    """The samples of the last seconds.

    Parameters
    ----------
    channels : sequence of str
        From bit 0 of a sample on.
    unit : int
        Bytes a sample.
    rate_hz : float
        Samples a second; clocks in state mode.
    specs : list of mapping
        The buses, as the kernel takes them.
    state : bool
        Every sample is one clock.
    bound : int
        Samples that are kept.
    """

    def __init__(
        self, channels: list[str], unit: int, rate_hz: float, specs: list[dict[str, Any]], *, state: bool, bound: int
    ) -> None:
        self.channels, self.unit, self.rate_hz = channels, unit, rate_hz
        self._specs, self._state, self._bound = specs, state, max(bound, LISTED)
        # Number of the first sample, and the bytes of whole samples.
        self._kept: deque[tuple[int, bytes]] = deque()
        self._samples = self._kept_samples = 0
        self._rest = b""
        self._shown: tuple[str, ...] = ()
        self._last_us = self._listed_us = -1.0

    @property
    def time_us(self) -> float:
        """How long the samples are until now, those that are missing included."""
        return self._samples / self.rate_hz * 1e6

    def add(self, samples: bytes) -> None:
        """Keep the next bytes."""
        some = self._rest + samples
        whole = len(some) - len(some) % self.unit
        self._rest, some = some[whole:], some[:whole]
        if some:
            count = whole // self.unit
            self._kept.append((self._samples, some))
            self._samples += count
            self._kept_samples += count
            while len(self._kept) > 1 and self._kept_samples - len(self._kept[0][1]) // self.unit >= self._bound:
                self._kept_samples -= len(self._kept.popleft()[1]) // self.unit

    def gap(self, samples: int) -> None:
        """Samples are missing."""
        self._rest = b""
        self._samples += samples

    def ended(self, found: Found) -> None:
        """Note when the last transaction ended."""
        if found.transactions.num_rows:
            self._last_us = max(self._last_us, pc.max(found.transactions["end_us"]).as_py())

    def between(self, first: int, last: int) -> bytes:
        """Return the samples from one number to another, as far as they are kept and without a gap before the last."""
        some, joined = b"", last
        for begin, block in reversed(self._kept):
            end = begin + len(block) // self.unit
            if begin >= last:
                continue
            if end <= first or (some and end != joined):
                break
            some = block[max(first - begin, 0) * self.unit : max(last - begin, 0) * self.unit] + some
            joined = begin
        return some

    def lines(self, count: int = 12) -> tuple[str, ...]:
        """Return the last transactions as ``pcitrace list`` writes them."""
        if self._last_us > self._listed_us:
            last = min(int(self._last_us * self.rate_hz / 1e6) + LISTED // 64, self._samples)
            some = self.between(last - LISTED, last)
            begin = last - len(some) // self.unit
            found = self._list(some, begin)
            self._shown = (*self._shown, *found)[-count:] if len(found) < count else found[-count:]
            self._listed_us = self._last_us
        return self._shown

    def _list(self, samples: bytes, begin: int) -> tuple[str, ...]:
        """List the transactions in some samples that end after those that are listed."""
        capture = _kernel.from_samples(samples, self.unit, self.channels, None if self._state else self.rate_hz)
        since_us = begin / self.rate_hz * 1e6
        grants = [line for spec in self._specs for line in spec["lines"] if line.startswith("GNT")]
        width = max(map(len, grants), default=0)
        buses = max(len(spec["name"]) for spec in self._specs) if len(self._specs) > 1 else 0
        listing = _kernel.Listing(zero_us=-since_us, bus_width=buses, initiator_width=width)
        mhz = self.rate_hz / 1e6 if self._state else None
        text = b""
        columns = list(dict.fromkeys([*_kernel.Listing.columns(), "end_us"]))
        has_data = any("AD0" in spec["lines"] for spec in self._specs)
        for part in _kernel.parts(capture, self._specs, clock_mhz=mhz, columns=columns, data_phases=has_data):
            ends = pc.add(_table(part)["end_us"], since_us).to_pylist()
            listing.begin(part)
            for row, end_us in enumerate(ends):
                line = listing.lines(part, row, row + 1)
                if end_us > self._listed_us + 1e-6:
                    text += line
        return tuple(line for line in text.decode().splitlines() if line.strip())

    def save(self, path: Path, first: int, last: int) -> int:
        """Write samples as a sigrok session; return how many."""
        import numpy as np

        from pcitrace.instrument.excerpt import write_session

        some = np.frombuffer(self.between(first, last), np.uint8).reshape(-1, self.unit)
        write_session(path, [some], self.unit, self.channels, self.rate_hz)
        return len(some)


def _table(part: _kernel.Part) -> Any:
    import pyarrow as pa

    return pa.table(part.transactions)
