"""For Perfetto (ui.perfetto.dev): a track a bus, initiator and device, counters, and arrows along each frame's way.

Ref: protos/perfetto/trace/{trace,trace_packet}.proto and track_event/*.proto of Perfetto. Names are interned: a packet
has their numbers, and the first one that uses a name has the name itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from pcitrace.export.kinds import Exported, Options
from pcitrace.export.packed import Packed, codes, values, varints
from pcitrace.export.source import Source
from pcitrace.export.whole import written

__all__ = ["write"]

_SEQUENCE = 1
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_SLICE_BEGIN, _SLICE_END, _COUNTER = 1, 2, 4
_NUMBERS = ("transaction", "address", "data_phases", "bytes", "wait_clks")
_COLUMNS = (
    "bus", "transaction", "start_us", "end_us", "clocks", "command_name", "address", "data_phases", "bytes",
    "wait_clks", "termination", "initiator",
)  # fmt: skip
_WINDOW_US = 100.0
"""Of the counters: occupancy and throughput are those of windows of this length."""


def write(source: Source, path: Path, options: Options, to: str) -> Exported:
    """Write all buses of a run on its axis."""
    source.need_bus()
    rows = {"transactions": 0, "bursts": 0, "csr_accesses": 0, "frames": 0, "wire": 0, "flows": 0, "counters": 0}
    with written(path) as file:
        trace = _Trace(file)
        for bus in source.buses:
            trace.track(("bus", bus.name), f"bus {bus.name}", None)
        for capture in source.captures:
            for some in source.rows(capture, _COLUMNS, on_axis=True):
                _transactions(trace, some.transactions)
                rows["transactions"] += len(some.transactions)
        for bus in source.buses:
            rows["counters"] += _counters(trace, source, bus)
        if source.frames is not None:
            _analysed(trace, source, rows)
    return Exported(
        (path,), rows, tuple(source.left_out), (f"open {path} in https://ui.perfetto.dev (it stays in the browser)",)
    )


def _varint(number: int) -> bytes:
    field, there = varints(np.array([number], dtype=np.uint64))
    return field[there].tobytes()


def _field(number: int, content: bytes | int) -> bytes:
    """A field of a message: a number, or bytes with their length."""
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


class _Trace:
    """Packets in a file; names are numbered, tracks are told before they are used."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._names: dict[str, dict[bytes, int]] = {"event": {}, "argument": {}, "value": {}}
        self._tracks: dict[Any, int] = {}
        self._packet(_field(13, _STATE_CLEARED) + _field(87, 0))

    def _packet(self, content: bytes) -> None:
        content += _field(10, _SEQUENCE)
        self._file.write(_field(1, content))

    def track(self, key: tuple[Any, ...], name: str, parent: tuple[Any, ...] | None, unit: str | None = None) -> int:
        """The number of a track, told when it is asked for first; with a unit it is a counter."""
        if key not in self._tracks:
            number = self._tracks[key] = zlib.crc32(repr(key).encode()) << 16 | len(self._tracks) + 1
            content = _field(1, number) + _field(2, name.encode())
            if parent is not None:
                content += _field(5, self._tracks[parent])
            if unit is not None:
                content += _field(8, _field(6, unit.encode()))
            self._packet(_field(60, content))
        return self._tracks[key]

    def names(self, kind: str, texts: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """The numbers of names, told when they are used first: of events, of arguments, or values of arguments."""
        known = self._names[kind]
        field = {"event": 2, "argument": 3, "value": 29}[kind]
        new = b""
        for text in texts:
            if text not in known:
                known[text] = len(known) + 1
                new += _field(field, _field(1, known[text]) + _field(2, text))
        if new:
            self._packet(_field(12, new) + _field(13, _NEEDS_STATE))
        return np.array([known[text] for text in texts], dtype=np.int64)

    def events(self, stamps: npt.NDArray[np.int64], event: Packed) -> Packed:
        """Packets with track events."""
        body = Packed(len(stamps)).fixed(_varint(8 << 3)).varint(stamps)
        body.fixed(_field(13, _NEEDS_STATE) + _field(10, _SEQUENCE) + _varint(11 << 3 | 2)).varint(event.length())
        body.inside(event)
        return Packed(len(stamps)).fixed(_varint(1 << 3 | 2)).varint(body.length()).inside(body)

    def slices(
        self, start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], tracks: npt.NDArray[Any], begin: Packed
    ) -> None:
        """Write slices: begin (its fields behind type and track are given) and end."""
        event = Packed(len(start)).fixed(_field(9, _SLICE_BEGIN) + _varint(11 << 3)).varint(tracks).inside(begin)
        ending = Packed(len(end)).fixed(_field(9, _SLICE_END) + _varint(11 << 3)).varint(tracks)
        # Begin and end of a slice stand together: of those of equal times the order in the file counts.
        both = self.events(start, event).inside(self.events(np.maximum(end, start), ending))
        self._file.write(both.joined())

    def counts(self, stamps: npt.NDArray[np.int64], track: int, numbers: npt.NDArray[np.float64]) -> None:
        """Write values of a counter."""
        event = Packed(len(stamps)).fixed(_field(9, _COUNTER) + _field(11, track) + _varint(44 << 3 | 1))
        self._file.write(self.events(stamps, event.number(numbers, "<f8")).joined())


def _nanoseconds(times_us: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    # Perfetto has no times before 0; a run's axis hardly has.
    return np.maximum(np.rint(times_us * 1e3), 0).astype(np.int64)


def _transactions(trace: _Trace, rows: pa.Table) -> None:
    """Slices on the track of each bus's initiator, with what is known as arguments."""
    clocks = values(rows, "clocks").astype(float)
    start_us, end_us = values(rows, "start_us"), values(rows, "end_us")
    # To the clock behind the last one, so that transactions of one clock are seen.
    clock_us = np.where(clocks > 1, (end_us - start_us) / np.maximum(clocks - 1, 1), 0.0)
    start, end = _nanoseconds(start_us), _nanoseconds(end_us + clock_us)
    buses, bus, _ = codes(rows, "bus")
    initiators, initiator, known = codes(rows, "initiator")
    pair = bus.astype(np.int64) * (len(initiators) + 1) + np.where(known, initiator, len(initiators))
    tracks = np.zeros(len(buses) * (len(initiators) + 1), dtype=np.uint64)
    for number in np.unique(pair):
        of, who = divmod(int(number), len(initiators) + 1)
        name = initiators[who].decode() if who < len(initiators) else "initiator not known"
        host = buses[of].decode()
        tracks[number] = trace.track(("initiator", host, name), name, ("bus", host))
    texts, code, named = codes(rows, "command_name")
    numbers = trace.names("event", [*texts, b"transaction"])
    begin = Packed(len(rows)).fixed(_varint(10 << 3)).varint(np.where(named, numbers[code], numbers[-1]))
    for name in _NUMBERS:
        [number] = trace.names("argument", [name.encode()])
        argument = Packed(len(rows)).fixed(_field(1, int(number)) + _varint(3 << 3)).varint(values(rows, name))
        _argument(begin, argument, np.asarray(rows[name].is_valid()))
    [number] = trace.names("argument", [b"termination"])
    texts, code, _ = codes(rows, "termination")
    ended = trace.names("value", texts)
    _argument(begin, Packed(len(rows)).fixed(_field(1, int(number)) + _varint(17 << 3)).varint(ended[code]), None)
    trace.slices(start, end, tracks[pair], begin)


def _argument(event: Packed, argument: Packed, where: npt.NDArray[np.bool_] | None) -> None:
    """Add an argument to events."""
    event.fixed(_varint(4 << 3 | 2), where).varint(argument.length(), where).inside(argument, where)


def _counters(trace: _Trace, source: Source, bus: Any) -> int:
    """Occupancy and throughput of a bus, window by window."""
    clocks = bus.clocks(_WINDOW_US)
    moved = clocks.copy(deep=False)
    folder = source.run.folder
    start = moved["start_us"].to_numpy(dtype=float)
    if folder is not None:
        start = folder.run_time_us(source.run.captures.index(bus.capture), start)
    written = 0
    for column, unit, scale in (("occupancy", "%", 100.0), ("throughput_mb_s", "MB/s", 1.0)):
        number = moved[column].to_numpy(dtype=float, na_value=np.nan) * scale
        known = ~np.isnan(number)
        track = trace.track((column, bus.name), f"{column.split('_')[0]} ({unit})", ("bus", bus.name), unit)
        trace.counts(_nanoseconds(start[known]), track, number[known])
        written += int(known.sum())
    return written


def _analysed(trace: _Trace, source: Source, rows: dict[str, int]) -> None:
    """What the analysis found, and a flow a frame: doorbell, DMA, wire, memory."""
    frames = source.frames
    assert frames is not None
    for name in (bus.name for bus in source.buses):
        if name not in frames.hosts:
            continue
        device = ("device", name)
        trace.track(device, "network card", ("bus", name))
        csr = frames.hosts[name].csr_accesses
        csr = csr.assign(name=csr["register"].fillna("register"))
        last = csr["data_us"].fillna(csr["last_attempt_us"])
        rows["csr_accesses"] += _rows(trace, device, "register accesses", csr, ("first_attempt_us", last))
        bursts = frames.hosts[name].bursts
        last = bursts["last_data_us"].fillna(bursts["start_us"])
        rows["bursts"] += _rows(trace, device, "DMA bursts", bursts.assign(name=bursts["kind"]), ("start_us", last))
        table = frames.table[(frames.table["sender"] == name).fillna(False) & frames.table["wire_start_us"].notna()]
        names = "frame " + table["frame"].astype(str)
        last = table["wire_end_us"].fillna(table["wire_start_us"])
        rows["wire"] += _rows(trace, device, "wire", table.assign(name=names), ("wire_start_us", last))
    rows["frames"] = len(frames.table)
    rows["flows"] = int(frames.table["dma_start_us"].notna().sum())


def _rows(trace: _Trace, parent: tuple[Any, ...], title: str, table: pd.DataFrame, span: tuple[str, Any]) -> int:
    """Slices of the rows of a table, on as many tracks as they overlap; those of one frame are one flow."""
    if not len(table):
        return 0
    start = _nanoseconds(table[span[0]].to_numpy(dtype=float))
    end = np.maximum(_nanoseconds(span[1].to_numpy(dtype=float)), start + 1)
    order = np.argsort(start, kind="stable")
    start, end, table = start[order], end[order], table.iloc[order]
    lanes = _lanes(start, end)
    tracks = np.array([trace.track((title, *parent, lane), title, parent) for lane in range(int(lanes.max()) + 1)])
    names = trace.names("event", [str(one).encode() for one in table["name"]])
    begin = Packed(len(table)).fixed(_varint(10 << 3)).varint(names)
    there = table["frame"].notna().to_numpy(dtype=bool)
    flow = table["frame"].fillna(0).to_numpy(dtype=np.uint64) + np.uint64(1)
    begin.fixed(_varint(47 << 3 | 1), there).number(flow, "<u8", there)
    for column in ("address", "bytes", "frame", "value", "length_bytes"):
        if column in table.columns:
            [number] = trace.names("argument", [column.encode()])
            known = table[column].notna().to_numpy(dtype=bool)
            content = table[column].fillna(0).to_numpy(dtype=np.uint64)
            argument = Packed(len(table)).fixed(_field(1, int(number)) + _varint(3 << 3)).varint(content)
            _argument(begin, argument, known)
    trace.slices(start, end, tracks[lanes], begin)
    return len(table)


def _lanes(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first lane that is free for each stretch: slices of one track may not cross."""
    free: list[int] = []
    lanes = np.zeros(len(start), dtype=np.int64)
    for nth, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        lane = next((number for number, since in enumerate(free) if since <= begin), len(free))
        if lane == len(free):
            free.append(0)
        free[lane] = until
        lanes[nth] = lane
    return lanes
