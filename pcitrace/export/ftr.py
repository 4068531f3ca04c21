"""For Surfer: transactions, bursts and frames as streams of an FTR file.

Ref: MINRES, LWTR4SC, the format as the comment of its writer has it (README and writer differ in the info chunk).
CBOR, RFC 8949: a tagged array of chunks; strings are in dictionaries, times in picoseconds from the run's start.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from pcitrace.export.kinds import Exported, Options
from pcitrace.export.packed import Packed, codes, values
from pcitrace.export.source import Source
from pcitrace.export.whole import written

__all__ = ["write"]

_PICOSECONDS = -12
_INFO, _DICTIONARY, _DIRECTORY, _TRANSACTIONS, _RELATIONS = 6, 8, 10, 12, 14
_STREAM, _GENERATOR = 16, 17
_UNSIGNED, _STRING = 3, 10
_BEGIN_ATTRIBUTE, _END_ATTRIBUTE = 7, 9

_COLUMNS = (
    "bus", "transaction", "start_us", "end_us", "command_name", "address", "data_phases", "bytes", "wait_clks",
    "termination", "initiator",
)  # fmt: skip


def write(source: Source, path: Path, options: Options, to: str) -> Exported:
    """Write a stream a bus, and where a run is analysed one of its bursts and one of the frames."""
    source.need_bus()
    shift_ps = _shift_ps(source)
    with written(path) as file:
        ftr = _File(file)
        rows = {"transactions": 0, "bursts": 0, "frames": 0, "relations": 0}
        for bus in source.buses:
            ftr.stream(bus.name, "PCI bus")
        for capture in source.captures:
            for some in source.rows(capture, _COLUMNS, on_axis=True):
                for number, bus in enumerate(source.buses):
                    mine = _of_bus(some.transactions, bus.name)
                    if len(mine):
                        ftr.block(number + 1, _transactions(ftr, number + 1, mine, shift_ps))
                        rows["transactions"] += len(mine)
        if source.frames is not None:
            _analysed(ftr, source, shift_ps, rows)
        ftr.end()
    return Exported((path,), rows, tuple(source.left_out), (f"surfer {path}",))


def _shift_ps(source: Source) -> int:
    """By what times are put off, so that none is negative."""
    folder = source.run.folder
    if folder is None:
        return 0
    starts = [float(folder.run_time_us(number, 0.0)) for number in range(len(source.run.captures))]
    shift_us = -min(0.0, *starts)
    if shift_us:
        source.left_out.append(f"negative times: all times are {shift_us:g} us later than on the run's axis")
    return round(shift_us * 1e6)


def cbor(kind: int, number: int) -> bytes:
    """The head of a CBOR item of one of the eight kinds."""
    for limit, code, form in ((24, None, ""), (1 << 8, 24, ">B"), (1 << 16, 25, ">H"), (1 << 32, 26, ">I")):
        if number < limit:
            return (
                bytes([kind << 5 | number]) if code is None else bytes([kind << 5 | code]) + struct.pack(form, number)
            )
    return bytes([kind << 5 | 27]) + struct.pack(">Q", number)


def add_unsigned(packed: Packed, numbers: npt.NDArray[Any], where: npt.NDArray[np.bool_] | None = None) -> Packed:
    """Add a CBOR number to each record, as short as it may be."""
    array = numbers.astype(np.uint64)
    field = np.empty((len(array), 9), dtype=np.uint8)
    field[:, 1:] = array.astype(">u8").view(np.uint8).reshape(-1, 8)
    limits = [array < 24, array < 1 << 8, array < 1 << 16, array < 1 << 32]
    size = np.select(limits, [0, 1, 2, 4], 8)
    field[:, 0] = np.select(limits, [(array & np.uint64(31)).astype(np.int64), 24, 25, 26], 27)
    place = np.arange(9)
    return packed.add(field, (place == 0) | (place > 8 - size[:, None]), where)


@dataclass(frozen=True)
class _Block:
    """Transactions of one stream, encoded, and from when to when they go."""

    content: bytes
    start_ps: int
    end_ps: int


class _File:
    """The chunks of a file, in order; strings and generators are told before they are used."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._strings: dict[bytes, int] = {b"": 0}
        self._told = 0
        self._streams = 0
        self._generators: dict[tuple[int, bytes], int] = {}
        self._directory: list[bytes] = []
        self.next_id = 1
        file.write(cbor(6, 55799) + b"\x9f")
        # The creation time is left at 0, so that the same run gives the same file.
        self._chunk(_INFO, cbor(4, 2) + bytes([0x20 | -_PICOSECONDS - 1]) + cbor(6, 1) + cbor(0, 0))

    def string(self, text: bytes) -> int:
        """The number of a string."""
        return self._strings.setdefault(text, len(self._strings))

    def strings(self, texts: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """The numbers of some strings."""
        return np.array([self.string(text) for text in texts], dtype=np.int64)

    def stream(self, name: str, kind: str) -> int:
        """Begin a stream; return its number."""
        self._streams += 1
        entry = cbor(0, self._streams) + cbor(0, self.string(name.encode())) + cbor(0, self.string(kind.encode()))
        self._directory.append(cbor(6, _STREAM) + cbor(4, 3) + entry)
        return self._streams

    def generator(self, stream: int, name: bytes) -> int:
        """The number of the generator of a stream with this name."""
        number = self._generators.get((stream, name))
        if number is None:
            # Numbers of generators are apart from those of streams.
            number = self._generators[stream, name] = 1000 + len(self._generators)
            entry = cbor(0, number) + cbor(0, self.string(name)) + cbor(0, stream)
            self._directory.append(cbor(6, _GENERATOR) + cbor(4, 3) + entry)
        return number

    def block(self, stream: int, block: _Block) -> None:
        """Write transactions of a stream."""
        self._tell()
        content = b"\x9f" + block.content + b"\xff"
        head = cbor(0, stream) + cbor(0, block.start_ps) + cbor(0, block.end_ps)
        self._file.write(cbor(6, _TRANSACTIONS) + cbor(4, 4) + head + cbor(2, len(content)))
        self._file.write(content)

    def relations(self, name: str, pairs: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> None:
        """Write relations from (stream, transaction) to (stream, transaction)."""
        number = cbor(0, self.string(name.encode()))
        self._tell()
        entries = [
            cbor(4, 5) + number + cbor(0, one[1]) + cbor(0, other[1]) + cbor(0, one[0]) + cbor(0, other[0])
            for one, other in pairs
        ]
        self._chunk(_RELATIONS, b"\x9f" + b"".join(entries) + b"\xff")

    def end(self) -> None:
        """Write what is left."""
        self._tell()
        self._file.write(b"\xff")

    def _tell(self) -> None:
        new = list(self._strings.items())[self._told :]
        if new:
            entries = b"".join(cbor(0, number) + cbor(3, len(text)) + text for text, number in new)
            self._chunk(_DICTIONARY, cbor(5, len(new)) + entries)
            self._told = len(self._strings)
        if self._directory:
            self._chunk(_DIRECTORY, b"\x9f" + b"".join(self._directory) + b"\xff")
            self._directory = []

    def _chunk(self, tag: int, content: bytes) -> None:
        self._file.write(cbor(6, tag) + cbor(2, len(content)) + content)


def _of_bus(table: pa.Table, name: str) -> pa.Table:
    texts, code, _ = codes(table, "bus")
    if texts == [name.encode()]:
        return table
    wanted = [number for number, text in enumerate(texts) if text == name.encode()]
    return table.filter(pa.array(np.isin(code, wanted)))


def _picoseconds(times_us: npt.NDArray[Any], shift_ps: int) -> npt.NDArray[np.int64]:
    return np.rint(times_us * 1e6).astype(np.int64) + shift_ps


def _begun(
    ftr: _File,
    generators: npt.NDArray[Any],
    start: npt.NDArray[Any],
    end: npt.NDArray[Any],
    attributes: npt.NDArray[Any],
) -> Packed:
    """The heads of transactions with so many attributes each; their numbers go on."""
    count = len(start)
    packed = Packed(count)
    packed.number(0x80 + 1 + attributes, "u1").fixed(cbor(6, 6) + cbor(4, 4))
    add_unsigned(packed, np.arange(ftr.next_id, ftr.next_id + count))
    ftr.next_id += count
    return add_unsigned(add_unsigned(add_unsigned(packed, generators), start), end)


def _transactions(ftr: _File, stream: int, rows: pa.Table, shift_ps: int) -> _Block:
    """The transactions of a bus, each made by the generator of its command."""
    start = _picoseconds(values(rows, "start_us"), shift_ps)
    end = _picoseconds(values(rows, "end_us"), shift_ps)
    texts, code, known = codes(rows, "command_name")
    numbers = np.array([ftr.generator(stream, text) for text in texts if text] or [0])
    unknown = ftr.generator(stream, b"transaction") if not known.all() else 0
    attributes = [
        (name, np.asarray(rows[name].is_valid()))
        for name in ("transaction", "address", "data_phases", "bytes", "wait_clks", "initiator", "termination")
    ]
    count = np.sum([there for _, there in attributes], axis=0)
    packed = _begun(ftr, np.where(known, numbers[code], unknown), start, end, count)
    for name, there in attributes:
        tag = _END_ATTRIBUTE if name in ("bytes", "data_phases", "wait_clks", "termination") else _BEGIN_ATTRIBUTE
        packed.fixed(cbor(6, tag) + cbor(4, 3) + cbor(0, ftr.string(name.encode())), there)
        if name in ("initiator", "termination"):
            texts, code, _ = codes(rows, name)
            packed.fixed(cbor(0, _STRING), there)
            add_unsigned(packed, ftr.strings(texts)[code], there)
        else:
            packed.fixed(cbor(0, _UNSIGNED), there)
            add_unsigned(packed, values(rows, name), there)
    return _Block(packed.joined(), int(start.min()), int(end.max()))


def _analysed(ftr: _File, source: Source, shift_ps: int, rows: dict[str, int]) -> None:
    """Bursts and frames, and which bursts are which frame's."""
    assert source.frames is not None
    burst_ids: dict[tuple[str, int], tuple[int, int]] = {}
    for bus in source.buses:
        if bus.name in source.frames.hosts:
            bursts = source.frames.hosts[bus.name].bursts
            stream = ftr.stream(f"{bus.name} bursts", "DMA bursts")
            spans = bursts["start_us"], bursts["last_data_us"].fillna(bursts["start_us"])
            first = _rows(
                ftr, stream, bursts, spans, "kind", ("burst", "address", "bytes", "pieces", "frame"), shift_ps
            )
            rows["bursts"] += len(bursts)
            burst_ids |= {(bus.name, nth): (stream, first + nth) for nth in range(len(bursts))}
    table = source.frames.table
    times = table[[name for name in table.columns if name.endswith("_us") and name.split("_")[0] in _PLACES]]
    table = table[times.notna().any(axis=1).to_numpy(dtype=bool)]
    times = times.loc[table.index].astype(float)
    stream = ftr.stream("frames", "frames from memory to memory")
    spans = times.min(axis=1), times.max(axis=1)
    first = _rows(ftr, stream, table, spans, "sender", ("frame", "sequence", "length_bytes"), shift_ps)
    rows["frames"] = len(table)
    pairs: dict[str, list[tuple[tuple[int, int], tuple[int, int]]]] = {"sent": [], "received": []}
    for nth, row in enumerate(table.to_dict("records")):
        for name, role, burst in (("sent", "sender", "send_burst"), ("received", "receiver", "receive_burst")):
            if not pd.isna(row[burst]) and (row[role], int(row[burst])) in burst_ids:
                place = burst_ids[row[role], int(row[burst])]
                frame = (stream, first + nth)
                pairs[name].append((place, frame) if name == "sent" else (frame, place))
    for name, some in pairs.items():
        if some:
            ftr.relations(name, some)
            rows["relations"] += len(some)


_PLACES = ("csr", "dma", "wire", "rx", "status")


def _rows(
    ftr: _File,
    stream: int,
    table: pd.DataFrame,
    spans: tuple[Any, Any],
    generator: str,
    attributes: Sequence[str],
    shift_ps: int,
) -> int:
    """Write the rows of a table as transactions; return the number of the first."""
    first = ftr.next_id
    if not len(table):
        return first
    names = [str(name).encode() for name in table[generator].fillna("unknown")]
    numbers = {name: ftr.generator(stream, name) for name in dict.fromkeys(names)}
    start, end = (_picoseconds(span.to_numpy(dtype=float), shift_ps) for span in spans)
    there = [table[name].notna().to_numpy(dtype=bool) for name in attributes]
    packed = _begun(ftr, np.array([numbers[name] for name in names]), start, end, np.sum(there, axis=0))
    for name, known in zip(attributes, there, strict=True):
        packed.fixed(cbor(6, _BEGIN_ATTRIBUTE) + cbor(4, 3) + cbor(0, ftr.string(name.encode())), known)
        packed.fixed(cbor(0, _UNSIGNED), known)
        add_unsigned(packed, table[name].fillna(0).to_numpy(dtype=np.uint64), known)
    ftr.block(stream, _Block(packed.joined(), int(start.min()), int(end.max())))
    return first
