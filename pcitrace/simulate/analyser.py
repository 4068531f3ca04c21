"""The simulated logic analyser: changes of lines -> samples.

The samples are a running XOR: each change flips its bits in the sample that first sees it. So the work is per
change, not per sample, and a capture is made piece by piece in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from pcitrace.simulate.bus import Bus, LineHistory
from pcitrace.simulate.config import AnalyserParameters
from pcitrace.simulate.lines import Changes, ContentChanges, control_changes
from pcitrace.simulate.pci import LINES

Samples = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
JITTER_TABLE = 65521  # prime, so that lines and clocks do not fall into step with it


@dataclass(slots=True)
class Probe:
    """A line, or a bundle of lines that change together, and its changes that are not in a sample yet."""

    line: str
    channels: int
    first_channel: int
    delay_ns: float  # from the rise of CLK to the analyser
    salt: int
    level: int
    samples: Samples = field(default_factory=lambda: np.empty(0, np.int64))
    flips: Words = field(default_factory=lambda: np.empty(0, np.uint64))

    def add(self, samples: Samples, flips: Words) -> None:
        """Note changes: the sample that sees them first, and the bits that flip."""
        self.samples = np.concatenate([self.samples, samples])
        self.flips = np.concatenate([self.flips, flips])


def _wiring(
    buses: list[Bus], parameters: AnalyserParameters, *, wire: bool
) -> Iterator[tuple[Bus, str, list[str], int]]:
    """Yield bus, line, channel names and idle level, in the order of the channels."""
    full = parameters.wires == "full"
    for bus in sorted(buses, key=lambda bus: -bus.parameters.width) if full else ():
        # The wide ones come first: no bundle may cross a 64-bit word of the sample.
        yield bus, "AD", [f"AD{n}" for n in range(bus.parameters.width)], 0
    for bus in buses:
        if parameters.mode == "timing":
            yield bus, "CLK", ["CLK"], 0
        for line in (*LINES, "GNT_NIC#"):
            yield bus, line, [line], 1
    for bus in buses if parameters.wires in ("command", "full") else ():
        yield bus, "CBE", [f"CBE{n}#" for n in range(bus.parameters.width // 8 if full else 4)], 0
    for bus in buses if full else ():
        wide = ("PAR64", "REQ64#", "ACK64#") if bus.parameters.width == 64 else ()
        for line in ("PAR", "IDSEL", "REQ_NIC#", *wide):
            yield bus, line, [line], int(line.endswith("#"))
    for bus in buses if wire else ():
        yield bus, "TXEN", ["TXEN"], 0


class Recorder:
    """Records some buses (and wires) into one capture."""

    def __init__(
        self,
        buses: list[Bus],
        parameters: AnalyserParameters,
        random: Random,
        *,
        wire: bool,
        start_ns: float = 0.0,
        drift_ppm: float = 0.0,
    ) -> None:
        self.state_mode = parameters.mode == "state"
        self.names: list[str] = []
        self._parameters = parameters
        self._random = random
        self._rate = parameters.rate_mhz / 1e3 / (1 + drift_ppm * 1e-6)  # samples a ns
        self._start_ns = start_ns
        self._start_clk = buses[0].next_clk(start_ns)  # state mode: the clock of the first sample
        self._table = np.clip(np.random.default_rng(random.getrandbits(64)).normal(size=JITTER_TABLE), -3, 3)
        self._written = 0
        self._initial = 0
        self._buses = {bus.name: bus for bus in buses}
        self._clks_done = dict.fromkeys(self._buses, 0)
        self._contents = {name: ContentChanges() for name in self._buses}
        self._probes: dict[str, dict[str, Probe]] = {name: {} for name in self._buses}
        for bus, line, names, level in _wiring(buses, parameters, wire=wire):
            self._connect(bus, line, names, level)
        channels = len(self.names)
        self._lanes = -(-channels // 64)
        types = (np.uint8, np.uint16, np.uint32)
        self._dtype = next((kind for kind in types if channels <= 8 * kind().itemsize), np.uint64)
        self.unit_bytes = self._dtype().itemsize if self._lanes == 1 else -(-channels // 8)
        words = [self._initial >> 64 * lane & (1 << 64) - 1 for lane in range(self._lanes)]
        self._carry = np.array(words, self._dtype)  # the sample before the next slice

    def _connect(self, bus: Bus, line: str, names: list[str], level: int) -> None:
        """Put a line, or a bundle, on the next channels."""
        first = len(self.names)
        delay_ns = self._random.uniform(0.0, self._parameters.skew_ns)
        if line not in ("CLK", "TXEN"):
            delay_ns += bus.parameters.tval_ns
        self._initial |= level << first
        self.names += [f"{bus.name}_{name}" for name in names]
        salt = self._random.randrange(JITTER_TABLE)
        self._probes[bus.name][line] = Probe(line, len(names), first, delay_ns, salt, level)

    @property
    def samples(self) -> int:
        """Samples recorded so far."""
        return self._written

    def take(self, bus: Bus, history: LineHistory) -> None:
        """Take what the lines of a bus did."""
        lines: dict[str, Changes] = control_changes(history)
        if self._parameters.wires in ("command", "full"):
            lines |= self._contents[bus.name].take(history)
        for line, probe in self._probes[bus.name].items():
            if line not in lines:
                continue
            changes = lines[line]
            mask = np.uint64((1 << probe.channels) - 1)
            values = changes.values & mask
            flips = values ^ np.concatenate([np.array([probe.level], np.uint64), values[:-1]])
            if len(values):
                probe.level = int(values[-1])
            real = flips != 0
            clks = changes.clks[real]
            probe.add(self._first_sample(bus, probe, clks - 1, 0.0), flips[real])

    def take_wire(self, bus: Bus, edges_ns: list[float]) -> None:
        """Take rises and falls of TX_EN."""
        probe = self._probes[bus.name].get("TXEN")
        if probe is None:
            return
        times = np.array(edges_ns) + probe.delay_ns
        probe.add(self._sample_after(times), np.ones(len(times), np.uint64))

    def _first_sample(self, bus: Bus, probe: Probe, clks: Samples, after_ns: float) -> Samples:
        """Return the first sample that sees what a rise of CLK brought about."""
        if self.state_mode:
            return clks + 1 - self._start_clk
        times = bus.parameters.phase_ns + clks * bus.period_ns + (probe.delay_ns + after_ns)
        if bus.parameters.clock_jitter_ns:
            times = times + self._table[clks % JITTER_TABLE] * bus.parameters.clock_jitter_ns
        if self._parameters.jitter_ns:
            drawn = self._table[(clks * 31 + probe.salt + int(after_ns)) % JITTER_TABLE]
            times = times + drawn * self._parameters.jitter_ns
        return self._sample_after(times)

    def _sample_after(self, times_ns: npt.NDArray[np.floating[Any]]) -> Samples:
        # The small amount keeps a change that falls on a sample's own time from slipping to the next.
        samples: Samples = np.ceil((times_ns - self._start_ns) * self._rate - 1e-6).astype(np.int64)
        return samples

    def _clock(self, bus: Bus, until_clk: int) -> None:
        """Let CLK run up to a clock."""
        probe = self._probes[bus.name].get("CLK")
        clks = np.arange(self._clks_done[bus.name], until_clk, dtype=np.int64)
        self._clks_done[bus.name] = max(until_clk, self._clks_done[bus.name])
        if probe is None or not len(clks):
            return
        both = np.empty(2 * len(clks), np.int64)
        both[0::2] = self._first_sample(bus, probe, clks, 0.0)
        both[1::2] = self._first_sample(bus, probe, clks, bus.period_ns / 2)
        probe.add(both, np.ones(len(both), np.uint64))

    def samples_until(self, time_ns: float) -> bytes:
        """Return the samples before a time up to which everything was taken."""
        if self.state_mode:
            bus = next(iter(self._buses.values()))
            end = bus.next_clk(time_ns) - self._start_clk
        else:
            end = int((time_ns - self._start_ns) * self._rate)
            for bus in self._buses.values():
                self._clock(bus, bus.next_clk(time_ns) + 4)
        count = end - self._written
        if count <= 0:
            return b""
        out = np.zeros((count, self._lanes), self._dtype)
        for probes in self._probes.values():
            for probe in probes.values():
                self._flip(out[:, probe.first_channel // 64], probe, end)
        out[0] ^= self._carry
        np.bitwise_xor.accumulate(out, axis=0, out=out)
        self._carry = out[-1].copy()
        self._written = end
        if self._lanes == 1:
            return out.tobytes()
        return out.view(np.uint8).reshape(count, -1)[:, : self.unit_bytes].tobytes()

    def clocks(self, bus: Bus) -> int:
        """Return the clocks of a bus whose rise is in the samples so far, counted from its first."""
        if self.state_mode:
            return self._start_clk + self._written
        near = bus.next_clk(self._start_ns + self._written / self._rate)
        clks = np.arange(max(0, near - 8), near + 8, dtype=np.int64)
        seen = clks[self._first_sample(bus, self._probes[bus.name]["CLK"], clks, 0.0) < self._written]
        return int(seen[-1]) + 1 if len(seen) else 0

    def _flip(self, lane: npt.NDArray[np.unsignedinteger], probe: Probe, end: int) -> None:
        now = probe.samples < end
        # Before the capture's start counts as in its first sample.
        samples = np.maximum(probe.samples[now] - self._written, 0)
        flips = (probe.flips[now] << np.uint64(probe.first_channel % 64)).astype(lane.dtype)
        probe.samples, probe.flips = probe.samples[~now], probe.flips[~now]
        if np.all(samples[1:] > samples[:-1]):
            lane[samples] ^= flips
        else:  # two changes in one sample: the analyser is too slow to tell them apart
            np.bitwise_xor.at(lane, samples, flips)
