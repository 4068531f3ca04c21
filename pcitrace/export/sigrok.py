"""For sigrok and PulseView: the capture as ``.sr``, and beside it what happened, for the decoder ``pci``."""

from __future__ import annotations

import zipfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcitrace import _kernel
from pcitrace.errors import DecodeError
from pcitrace.export.annotations import Kind, Stretches, stretches
from pcitrace.export.kinds import Exported, Options
from pcitrace.export.packed import Packed, decimals, joined
from pcitrace.export.source import Source
from pcitrace.export.whole import appearing, written
from pcitrace.printable import printable
from pcitrace.run import Capture
from pcitrace.wiring.bitnames import bit_names

__all__ = ["channel_names", "sidecar_of", "write", "write_samples"]

_SAMPLES_A_CLOCK = 8
"""Of a capture of changes: a line that moves within an eighth of a clock of an edge may be read on its other side."""

_DEFAULT_RATE_HZ = 100_000_000
_PULSEVIEW_CHANNELS = 64
"""PulseView ends with an error at a file of more."""

_MEMBER = 4 << 20
_ROWS = ("transaction", "data", "burst", "frame", "problem")


def sidecar_of(path: Path) -> Path:
    """The file of annotations beside a ``.sr``."""
    return path.with_name(path.name + ".pci.tsv")


def write(source: Source, path: Path, options: Options, to: str) -> Exported:
    """Write the samples of one capture, and the annotations."""
    capture = source.only_capture()
    rate_hz = _rate_hz(source, capture, options)
    write_samples(source, capture, path, rate_hz)
    rows = dict.fromkeys(_ROWS, 0)
    gaps = 0
    sidecar = sidecar_of(path)
    with written(sidecar) as file:
        file.write(b"# pcitrace annotations 1: first sample, last sample, row, bus, text\n")
        clocks = [rate_hz / 1e6 / (bus.clock_mhz or 33.3) for bus in source.buses]
        names = [bus.name.encode() for bus in source.buses]
        for some in stretches(source, capture) if source.buses else ():
            file.write(_lines(some, rate_hz, np.array(clocks), names))
            for kind, count in zip(*np.unique(some.kind, return_counts=True), strict=True):
                rows[_ROWS[kind]] += int(count)
            gaps += _gaps(some)
    if (count := len(_written_bits(source, capture))) > (most := _PULSEVIEW_CHANNELS):
        said = f"PulseView: opens no more than {most} channels, and these are {count}; sigrok-cli reads all"
        one_bus = f"; --bus {source.buses[0].name} writes those of one bus" if len(source.buses) > 1 else ""
        source.left_out.append(said + one_bus)
    if gaps:
        source.left_out.append(f"gaps: samples follow each other; {gaps} gaps of the capture are annotations only")
    source.say_without_bus()
    return Exported((path, sidecar), rows, tuple(source.left_out), (_hint(source, capture, path, sidecar),))


def channel_names(source: Source, capture: Capture) -> list[str]:
    """A name for every bit: as in the file, those of PCI lines of vectors by the line."""
    channels = capture.wiring.channels
    if capture.sample_count is not None or all(channel.width == 1 for channel in channels):
        return [channel.name for channel in channels]
    return bit_names(capture.wiring)


def _written_bits(source: Source, capture: Capture) -> list[int]:
    """Which bits of the capture are written: all; of more than PulseView takes those of the bus that was chosen."""
    channels = capture.wiring.channels
    begins = [0, *accumulate(channel.width for channel in channels)]
    if source.bus is None or begins[-1] <= _PULSEVIEW_CHANNELS:
        return list(range(begins[-1]))
    lines = source.buses[0].wiring.lines.values()
    return sorted({begins[line.channel] + line.bit for line in lines})


def _rate_hz(source: Source, capture: Capture, options: Options) -> int:
    """Samples a second of the file."""
    if capture.sample_count is not None:
        rate = capture.clock_mhz * 1e6 if capture.clock_mhz else capture.rate_hz
        if rate is None:
            raise DecodeError(f"{capture.path}: states no sampling rate; give it with --rate 100e6")
        if options.sample_rate_hz is not None and options.sample_rate_hz != round(rate):
            raise DecodeError(
                f"{capture.path}: has samples, {rate:.0f} a second, which are exported as they are; "
                "leave out --sample-rate"
            )
        return round(rate)
    if options.sample_rate_hz is not None:
        return options.sample_rate_hz
    fastest = max((bus.clock_mhz or 0.0 for bus in source.buses), default=0.0)
    rate = max(_SAMPLES_A_CLOCK * fastest * 1e6, _DEFAULT_RATE_HZ)
    step = 50_000_000
    return -(-round(rate) // step) * step


def write_samples(source: Source, capture: Capture, path: Path, rate_hz: int | None = None) -> None:
    """Write the samples alone; of a capture of changes so many a second that none of a bus is lost."""
    with appearing(path) as temporary:
        _samples(source, capture, temporary, rate_hz or _rate_hz(source, capture, Options()))


def _samples(source: Source, capture: Capture, path: Path, rate_hz: int) -> None:
    names = channel_names(source, capture)
    read = unit = capture._kernel.unit_size or -(-len(names) // 8)
    # A channel of a sampled capture stays at its bit.
    bits = capture._kernel.bits or range(len(names))
    wanted = _written_bits(source, capture)
    chosen = [bits[one] for one in wanted]
    all_of_them = len(wanted) == len(names)
    if not all_of_them:
        names = [names[one] for one in wanted]
        unit, bits = -(-len(names) // 8), range(len(names))
    probes = [f"probe{bit + 1}={name}" for bit, name in sorted(zip(bits, names, strict=True))]
    metadata = ["[global]", "sigrok version=0.5.2", "", "[device 1]", "capturefile=logic-1"]
    metadata += [f"total probes={max(bits, default=-1) + 1}", f"samplerate={rate_hz} Hz", "total analog=0", *probes]
    metadata += [f"unitsize={unit}", ""]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("version", b"2")
        archive.writestr("metadata", "\n".join(metadata).encode())
        members = 0

        def member(samples: bytes) -> None:
            nonlocal members
            members += 1
            archive.writestr(f"logic-1-{members}", samples if all_of_them else _of_bits(samples, read, chosen))

        blocks = _Blocks(member, _MEMBER // read * read)
        unknown, high_z = _kernel.write_samples(capture._kernel, rate_hz, blocks.write)
        blocks.finish()
    for count, what in ((unknown, "x"), (high_z, "z")):
        if count:
            source.left_out.append(f"{what}: samples are 0 or 1; {count} changes to {what} are written as 1")


def _of_bits(samples: bytes, unit: int, chosen: list[int]) -> bytes:
    """The samples with these bits alone, in their order."""
    bits = np.unpackbits(np.frombuffer(samples, dtype=np.uint8).reshape(-1, unit), axis=1, bitorder="little")
    return np.packbits(bits[:, chosen], axis=1, bitorder="little").tobytes()


class _Blocks:
    """Puts samples together to members of equal size, as sigrok itself writes them."""

    def __init__(self, member: Any, size: int) -> None:
        self._member = member
        self._size = size
        self._waiting = bytearray()

    def write(self, samples: bytes) -> None:
        self._waiting += samples
        while len(self._waiting) >= self._size:
            self._member(bytes(self._waiting[: self._size]))
            del self._waiting[: self._size]

    def finish(self) -> None:
        if self._waiting:
            self._member(bytes(self._waiting))


def _lines(some: Stretches, rate_hz: int, clocks: Any, names: list[bytes]) -> bytes:
    """The lines of the sidecar: samples count up to the first with CLK high."""
    first = np.ceil(some.start_us * (rate_hz / 1e6) - 1e-6)
    last = np.ceil(some.end_us * (rate_hz / 1e6) - 1e-6)
    # A data phase is a clock long, and so is a problem at least.
    short = (some.kind == Kind.DATA) | (some.kind == Kind.PROBLEM) & (last <= first)
    last = np.where(short, np.maximum(first + np.floor(clocks[some.bus]), first + 1), np.maximum(last, first))
    packed = Packed(len(some)).add(*decimals(first)).fixed(b"\t").add(*decimals(last)).fixed(b"\t")
    packed.text([row.encode() for row in _ROWS], some.kind).fixed(b"\t").text(names, some.bus).fixed(b"\t")
    return joined(packed.array(), some.text, b"\n")


def _gaps(some: Stretches) -> int:
    """How many of them say that nothing was recorded."""
    problems = some.text.filter(pa.array(some.kind == Kind.PROBLEM))
    return sum(text.startswith(b"gap:") for text in problems.to_pylist())


def _hint(source: Source, capture: Capture, path: Path, sidecar: Path) -> str:
    """How sigrok-cli shows it."""
    names = channel_names(source, capture)
    clk = names[0]
    if source.buses and "CLK" in source.buses[0].wiring.lines:
        place = source.buses[0].wiring.lines["CLK"]
        before = sum(channel.width for channel in capture.wiring.channels[: place.channel])
        clk = names[before + place.bit]
    command = f"sigrok-cli -i {path} -P pci:clk={clk}:file={sidecar} -A pci   (after --install-sigrok-decoder)"
    return printable(command)
