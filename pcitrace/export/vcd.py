"""For GTKWave and any other viewer: the lines of a capture as VCD, and what happened as texts beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pcitrace import _kernel
from pcitrace.export.annotations import Stretches, stretches
from pcitrace.export.gtkw import save_file
from pcitrace.export.kinds import Exported, Options
from pcitrace.export.source import Source
from pcitrace.export.vcdnames import TEXTS, ranged, text_scope
from pcitrace.export.whole import written
from pcitrace.run import Capture

__all__ = ["header", "write", "write_body"]

Texts = Iterator[tuple[bytes, bytes, bytes, bytes]]
"""Parts of the texts: ticks, signals, ends of each text, and the texts."""

_MOST_TICKS_HZ = 10**12
"""Of sampled captures: no sample is further than half a picosecond from its time."""

_CLOCKS_BEFORE, _CLOCKS_SHOWN = 4, 64
"""Of what GTKWave shows first: before the first text, and in all. So a text of a few clocks can be read."""

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps"), (1e-15, "fs"))


def write(source: Source, path: Path, options: Options, to: str) -> Exported:
    """Write the lines of one capture with the texts of its buses, and a save file for GTKWave."""
    capture = source.only_capture()
    with written(path) as file:
        file.write(header(source, capture))
        ids = [_identifier(number) for number in range(len(capture.channels) + len(source.buses) * len(TEXTS))]

        def write_lines(rate_hz: float, ticks_hz: float, texts: Texts) -> None:
            _kernel.write_vcd(capture._kernel, ids, rate_hz, ticks_hz, texts, file.write)

        rows, shown = write_body(source, capture, write_lines)
    save = path.with_suffix(".gtkw")
    with written(save) as file:
        file.write(save_file(source, capture, path, shown).encode())
    return Exported((path, save), rows, tuple(source.left_out), (f"gtkwave {save}",))


def header(source: Source, capture: Capture) -> bytes:
    """The declarations, channels in their scopes, the texts in one of their own a bus."""
    import pcitrace

    channels = capture.wiring.channels
    lines = [f"$version pcitrace {pcitrace.__version__} $end", f"$timescale {_timescale(capture)} $end"]
    scope: list[str] = []
    for number, (name, width) in enumerate(channels):
        *scopes, leaf = ranged(name, width).split(".")
        lines += _to_scope(scope, scopes)
        scope = scopes
        # The range stands apart from the name, and belongs to it.
        lines.append(f"$var wire {width} {_identifier(number)} {leaf[0] + leaf[1:].replace('[', ' [', 1)} $end")
    lines += _to_scope(scope, [])
    for number, bus in enumerate(source.buses):
        lines.append(f"$scope module {text_scope(bus.name)} $end")
        for kind, name in enumerate(TEXTS):
            lines.append(f"$var string 1 {_identifier(len(channels) + number * len(TEXTS) + kind)} {name} $end")
        lines.append("$upscope $end")
    return ("\n".join([*lines, "$enddefinitions $end"]) + "\n").encode()


def write_body(
    source: Source, capture: Capture, write: Callable[[float, float, Texts], None]
) -> tuple[dict[str, int], tuple[int, int]]:
    """Write the changes of the lines, and the texts among them.

    `write` takes the samples and the ticks a second, and the texts as the kernel takes them. Returned are how many
    texts of what there are, and the ticks to be shown first: some clocks from the first text on, all without one.
    """
    counts = dict.fromkeys(TEXTS, 0)
    texts = _Texts(source, len(capture.channels), 1e6 * _tick_s(capture))
    write(_rate_hz(capture), _ticks_hz(capture), texts.all(capture, counts))
    source.say_without_bus()
    if texts.first_us is None:
        return counts, (0, max(round((capture.duration_s or 0.0) / _tick_s(capture)), 1))
    first, clock = (time / texts.tick_us for time in (texts.first_us, texts.clock_us.max()))
    return counts, (max(round(first - _CLOCKS_BEFORE * clock), 0), max(round(_CLOCKS_SHOWN * clock), 1))


class _Texts:
    """The texts as the kernel puts them among the changes: each from the begin of its stretch to the clock after it."""

    def __init__(self, source: Source, channels: int, tick_us: float) -> None:
        self._source = source
        self.tick_us = tick_us
        # Where the first text begins.
        self.first_us: float | None = None
        self.clock_us = np.array([1 / (bus.clock_mhz or 33.3) for bus in source.buses])
        count = len(source.buses) * len(TEXTS)
        self._first = channels
        # Of each text: the tick at which the last stretch ends, which was not yet written.
        self._open = np.full(count, np.iinfo(np.int64).max)

    def all(self, capture: Capture, counts: dict[str, int]) -> Texts:
        """All texts, in order of their ticks."""
        every = np.arange(len(self._open))
        if len(every):
            yield self._batch(np.zeros_like(every), every, _empty(len(every)))
        for some in stretches(self._source, capture) if len(every) else ():
            for kind, count in zip(*np.unique(some.kind, return_counts=True), strict=True):
                counts[TEXTS[kind]] += int(count)
            if self.first_us is None and len(some):
                self.first_us = float(some.start_us[0])
            yield self._of(some)
        yield self._rest(np.iinfo(np.int64).max - 1)

    def _of(self, some: Stretches) -> tuple[bytes, bytes, bytes, bytes]:
        """The texts of some stretches, and their ends where nothing else begins there."""
        import pyarrow as pa

        begin = np.rint(some.start_us / self.tick_us).astype(np.int64)
        end = np.rint((some.end_us + self.clock_us[some.bus]) / self.tick_us).astype(np.int64)
        which = some.bus.astype(np.int64) * len(TEXTS) + some.kind
        ends, ended = self._ends(begin, end, which)
        ticks = np.r_[ends, begin]
        # An end comes before what begins at the same time.
        order = np.argsort(ticks, kind="stable")
        texts = pa.concat_arrays([_empty(len(ended)), some.text]).take(pa.array(order))
        return self._batch(ticks[order], np.r_[ended, which][order], texts)

    def _ends(self, begin: Any, end: Any, which: Any) -> tuple[Any, Any]:
        """Where texts end before the next of their kind begins: ticks, and which text."""
        if not len(begin):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        order = np.lexsort((begin, which))
        begin, end, which = begin[order], end[order], which[order]
        last = np.r_[which[1:] != which[:-1], True]
        following = np.r_[begin[1:], 0]
        apart = ~last & (end < following)
        first = np.r_[True, last[:-1]]
        before = self._open[which[first]]
        due = before < begin[first]
        ends, ended = [end[apart], before[due]], [which[apart], which[first][due]]
        self._open[which[first]] = end[last]
        # What ended long ago is written now, not at the end of the capture.
        late = np.flatnonzero(self._open < begin.max(initial=0))
        ends.append(self._open[late])
        ended.append(late)
        self._open[late] = np.iinfo(np.int64).max
        return np.concatenate(ends), np.concatenate(ended)

    def _rest(self, until: int) -> tuple[bytes, bytes, bytes, bytes]:
        late = np.flatnonzero(self._open < until)
        order = late[np.argsort(self._open[late], kind="stable")]
        return self._batch(self._open[order], order, _empty(len(order)))

    def _batch(self, ticks: Any, which: Any, texts: Any) -> tuple[bytes, bytes, bytes, bytes]:
        ends = np.frombuffer(texts.buffers()[1], dtype="<i8")[texts.offset :][: len(texts) + 1]
        content = (texts.buffers()[2] or b"") if len(texts) else b""
        signals = (self._first + which).astype("<u8")
        return ticks.astype("<u8").tobytes(), signals.tobytes(), ends[1:].tobytes(), bytes(content)


def _empty(count: int) -> Any:
    import pyarrow as pa

    return pa.array([b""] * count, pa.large_binary())


def _identifier(number: int) -> str:
    """A short code of printable characters."""
    code = ""
    while True:
        code += chr(33 + number % 94)
        number = number // 94 - 1
        if number < 0:
            return code


def _rate_hz(capture: Capture) -> float:
    """Samples a second."""
    return (capture.clock_mhz * 1e6 if capture.clock_mhz else capture.rate_hz) or _MOST_TICKS_HZ


def _ticks_hz(capture: Capture) -> float:
    """The unit of a sampled capture: the longest power of ten in which each sample lies; else a picosecond."""
    ticks, period = _MOST_TICKS_HZ, _MOST_TICKS_HZ / _rate_hz(capture)
    while ticks > 1 and period.is_integer() and period % 10 == 0:
        ticks, period = ticks // 10, period / 10
    return float(ticks)


def _tick_s(capture: Capture) -> float:
    return 1 / _ticks_hz(capture) if capture.sample_count is not None else (capture.tick_s or 1.0)


def _timescale(capture: Capture) -> str:
    tick_s = _tick_s(capture)
    for size, unit in _UNITS:
        for factor in (100, 10, 1):
            if abs(tick_s / (size * factor) - 1) < 1e-9:
                return f"{factor} {unit}"
    return f"{round(tick_s / 1e-15)} fs"


def _to_scope(now: list[str], wanted: list[str]) -> list[str]:
    """The lines from one scope to another."""
    common = 0
    while common < min(len(now), len(wanted)) and now[common] == wanted[common]:
        common += 1
    return ["$upscope $end"] * (len(now) - common) + [f"$scope module {name} $end" for name in wanted[common:]]
