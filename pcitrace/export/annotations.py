"""What happened on the buses of a capture as stretches of time with a text, in order of their starts.

PulseView and GTKWave show the same: transactions, data, bursts, frames, problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from pcitrace.export.packed import Packed, codes, values
from pcitrace.export.phrases import COLUMNS, add_transaction, data_words
from pcitrace.export.source import Rows, Source

__all__ = ["Kind", "Stretches", "stretches"]

Floats = npt.NDArray[np.float64]


class Kind(IntEnum):
    """What a stretch is."""

    TRANSACTION = 0
    DATA = 1
    BURST = 2
    FRAME = 3
    PROBLEM = 4


@dataclass(frozen=True)
class Stretches:
    """Some stretches in order of their starts.

    Attributes
    ----------
    start_us, end_us : arrays of float
        On the capture's own axis; the end is the rising edge of the last clock.
    kind : array of int
        Values of :class:`Kind`.
    bus : array of int
        Numbers of the buses in `Source.buses`.
    text : pyarrow.LargeBinaryArray
        UTF-8.
    """

    start_us: Floats
    end_us: Floats
    kind: npt.NDArray[np.int8]
    bus: npt.NDArray[np.int16]
    text: pa.LargeBinaryArray

    def __len__(self) -> int:
        return len(self.start_us)

    def take(self, rows: npt.NDArray[Any]) -> Stretches:
        """Some of them."""
        return Stretches(
            self.start_us[rows], self.end_us[rows], self.kind[rows], self.bus[rows], self.text.take(pa.array(rows))
        )


def stretches(source: Source, capture: Any) -> Iterator[Stretches]:
    """What happened on the buses of one capture, on its own axis.

    Parameters
    ----------
    source : Source
    capture : pcitrace.run.Capture
    """
    names = [bus.name for bus in source.buses]
    waiting = _analysed(source, capture, names)
    for rows in source.rows(capture, COLUMNS):
        found = _of_rows(rows, names, {bus.name: 1 / (bus.clock_mhz or 33.3) for bus in source.buses})
        until = values(rows.transactions, "start_us").max(initial=-np.inf)
        due = np.searchsorted(waiting.start_us, until, side="right")
        yield _sorted([*found, waiting.take(np.arange(due))])
        waiting = waiting.take(np.arange(due, len(waiting)))
    if len(waiting):
        yield waiting


def _of_rows(rows: Rows, names: list[str], clock_us: dict[str, float]) -> list[Stretches]:
    transactions, phases, problems = rows.transactions, rows.data_phases, rows.problems
    start, end = values(transactions, "start_us"), values(transactions, "end_us")
    text = add_transaction(Packed(len(transactions)), transactions).array()
    found = [_made(start, end, Kind.TRANSACTION, _buses(transactions, names), text)]
    if len(phases):
        time = values(phases, "time_us")
        text = Packed(len(phases)).add(*data_words(phases)).array()
        found.append(_made(time, time, Kind.DATA, _buses(phases, names), text))
    problems = problems.filter(problems["time_us"].is_valid())
    if len(problems):
        time, bus = values(problems, "time_us"), _buses(problems, names)
        clocks = values(problems, "last_clk") - values(problems, "first_clk").astype(np.int64)
        # Where the clock's frequency is not known there is no length, only a beginning.
        period = np.array([clock_us[name] for name in names])[bus]
        lines = zip(*(problems[name].to_pylist() for name in ("kind", "text", "count")), strict=True)
        texts = [f"{kind}: {text}" + (f" ({count} times)" if count > 1 else "") for kind, text, count in lines]
        text = pa.array([one.encode() for one in texts], pa.large_binary())
        found.append(_made(time, time + clocks * period, Kind.PROBLEM, bus, text))
    return found


def _made(start: Floats, end: Floats, kind: Kind, bus: npt.NDArray[Any], text: pa.LargeBinaryArray) -> Stretches:
    return Stretches(start, end, np.full(len(start), kind, dtype=np.int8), bus.astype(np.int16), text)


def _buses(table: pa.Table, names: list[str]) -> npt.NDArray[Any]:
    texts, code, _ = codes(table, "bus")
    numbers = [names.index(text.decode()) if text.decode() in names else 0 for text in texts]
    return np.asarray(np.array(numbers)[code])


def _sorted(found: list[Stretches]) -> Stretches:
    start = np.concatenate([one.start_us for one in found])
    order = np.argsort(start, kind="stable")
    together = Stretches(
        start,
        np.concatenate([one.end_us for one in found]),
        np.concatenate([one.kind for one in found]),
        np.concatenate([one.bus for one in found]),
        pa.concat_arrays([one.text for one in found]),
    )
    return together.take(order)


def _analysed(source: Source, capture: Any, names: list[str]) -> Stretches:
    """Bursts and frames of the buses of a capture, on its own axis."""
    found = [_made(np.zeros(0), np.zeros(0), Kind.BURST, np.zeros(0), pa.array([], pa.large_binary()))]
    frames = source.frames
    back = _back(source, capture)
    for number, bus in enumerate(source.buses):
        if frames is None or bus.capture is not capture or bus.name not in frames.hosts:
            continue
        bursts = frames.hosts[bus.name].bursts
        text = [_burst(row) for row in bursts.to_dict("records")]
        times = back(bursts["start_us"]), back(bursts["last_data_us"].fillna(bursts["start_us"]))
        found.append(_of_texts(*times, Kind.BURST, number, text))
        for name, start, end in (
            ("sender", "dma_start_us", "dma_end_us"),
            ("receiver", "rx_dma_start_us", "rx_dma_end_us"),
        ):
            mine = frames.table[(frames.table[name] == bus.name).fillna(False) & frames.table[start].notna()]
            text = [_frame(row, name) for row in mine.to_dict("records")]
            times = back(mine[start]), back(mine[end].fillna(mine[start]))
            found.append(_of_texts(*times, Kind.FRAME, number, text))
    return _sorted(found)


def _back(source: Source, capture: Any) -> Any:
    """From the run's axis to the capture's own."""
    folder = source.run.folder
    number = source.run.captures.index(capture)

    def back(times: pd.Series) -> Floats:
        array = times.to_numpy(dtype=float)
        if folder is None:
            return array
        zero, one = folder.run_time_us(number, 0.0), folder.run_time_us(number, 1.0)
        return np.asarray((array - zero) / (one - zero))

    return back


def _of_texts(start: Floats, end: Floats, kind: Kind, bus: int, texts: list[str]) -> Stretches:
    text = pa.array([one.encode() for one in texts], pa.large_binary())
    return _made(start, end, kind, np.full(len(start), bus), text)


def _burst(row: Mapping[Any, Any]) -> str:
    address = "" if pd.isna(row["address"]) else f" 0x{int(row['address']):08x}"
    size = "" if pd.isna(row["bytes"]) else f": {int(row['bytes'])} bytes"
    frame = "" if pd.isna(row["frame"]) else f", frame {int(row['frame'])}"
    return f"{row['kind']}{address}{size}{frame}"


def _frame(row: Mapping[Any, Any], role: str) -> str:
    size = "" if pd.isna(row["length_bytes"]) else f", {int(row['length_bytes'])} bytes"
    other = row["receiver" if role == "sender" else "sender"]
    way = "" if pd.isna(other) else f" to {other}" if role == "sender" else f" from {other}"
    return f"frame {int(row['frame'])} {'sent' if role == 'sender' else 'received'}{way}{size}"
