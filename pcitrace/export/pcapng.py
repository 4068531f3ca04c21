"""For Wireshark: frames as Ethernet, transactions as packets that the dissector ``pcibus`` reads.

Ref: draft-ietf-opsawg-pcapng, sections 4.1 to 4.3. The packets of transactions (link type USER0) are ours; their layout
is in :data:`HEAD`, and `programs/pcibus.lua` reads it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pcitrace.export.kinds import Exported, Options
from pcitrace.export.merge import Timed, in_order
from pcitrace.export.packed import Packed, codes, glued, joined, values
from pcitrace.export.packets import Packet, memory_packets, wire_packets
from pcitrace.export.phrases import add_transaction
from pcitrace.export.source import Rows, Source
from pcitrace.export.whole import written
from pcitrace.schema import Termination

__all__ = ["HEAD", "KNOWN", "write"]

_USER0, _ETHERNET = 147, 1
_SNAPLEN = 0
_NANOSECONDS = 9
_OUTBOUND, _INBOUND = 2, 1

HEAD = np.dtype(
    [
        ("kind", "u1"),  # 1 a transaction, 2 a problem of no transaction
        ("termination", "u1"),  # index into Termination
        ("known", "<u2"),  # which of the fields in KNOWN are
        ("flags", "<u2"),  # values of the bools among KNOWN, at the same bits; bit 0 fast_back_to_back, 1 bytes_exact
        ("command", "u1"),
        ("devsel_clks", "u1"),
        ("transaction", "<u8"),
        ("start_clk", "<u8"),
        ("clocks", "<u8"),
        ("address", "<u8"),
        ("data_phases", "<u4"),
        ("bytes", "<u4"),
        ("wait_clks", "<u4"),
        ("target_wait_clks", "<u4"),
        ("initiator_wait_clks", "<u4"),
    ]
)
"""What a packet begins with; bus and initiator (of a problem: kind), each with its length, and data phases follow."""

KNOWN = (
    "", "", "command", "address", "bytes", "target_wait_clks", "devsel_clks", "initiator", "dac", "address_parity_ok",
    "perr", "serr", "suspect",
)  # fmt: skip
"""Bits of `known`: the columns that may be null."""

PHASE = np.dtype([("offset_ns", "<u4"), ("known", "u1"), ("byte_enables", "u1"), ("data", "<u8")])
"""A data phase: nanoseconds after the address phase; bit 0 of `known` data, bit 1 byte enables, bit 2 wrong parity."""


def write(source: Source, path: Path, options: Options, to: str) -> Exported:
    """Write transactions, and where a run is analysed the frames in memory and on the wire."""
    source.need_bus()
    rows = {"transactions": 0, "problems": 0, "frames": 0, "wire": 0}
    packets = sorted([*memory_packets(source), *wire_packets(source)], key=lambda packet: packet.time_us)
    rows["wire"] = sum(packet.where == "wire" for packet in packets)
    rows["frames"] = len(packets) - rows["wire"]
    shift_s = _shift_s(source)
    interfaces = [(bus.name, _USER0) for bus in source.buses]
    for suffix, places in (("memory", ("sent", "received")), ("wire", ("wire",))):
        hosts = {packet.host for packet in packets if packet.where in places}
        interfaces += [(f"{bus.name} {suffix}", _ETHERNET) for bus in source.buses if bus.name in hosts]
    with written(path) as file:
        file.write(_section(source))
        for name, link in interfaces:
            file.write(_interface(name, link, -shift_s))
        sources = [_transactions(source, capture, shift_s, rows) for capture in source.captures]
        names = [name for name, _ in interfaces]
        sources.append(iter([_frames(packets, names, shift_s)] if packets else []))
        for records in in_order(sources):
            file.write(joined(records))
    hint = f"tshark -r {path} -z io,stat,0   (after --install-wireshark-dissector; not as root, who loads no Lua)"
    return Exported((path,), rows, tuple(source.left_out), (hint,))


def _shift_s(source: Source) -> int:
    """Whole seconds by which times are put off, so that none is negative."""
    folder = source.run.folder
    starts = [0.0]
    if folder is not None:
        starts += [float(folder.run_time_us(number, 0.0)) for number in range(len(source.run.captures))]
    return math.ceil(-min(starts) / 1e6)


def _block(kind: int, body: bytes) -> bytes:
    total = len(body) + 12
    return struct.pack("<II", kind, total) + body + struct.pack("<I", total)


def _option(code: int, content: bytes) -> bytes:
    return struct.pack("<HH", code, len(content)) + content + bytes(-len(content) % 4)


def _section(source: Source) -> bytes:
    import pcitrace

    about = f"PCI buses of {source.run.path.name}; times count from the run's start"
    options = _option(1, about.encode()) + _option(4, f"pcitrace {pcitrace.__version__}".encode()) + _option(0, b"")
    return _block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options)


def _interface(name: str, link: int, offset_s: int) -> bytes:
    options = _option(2, name.encode()) + _option(9, bytes([_NANOSECONDS]))
    if link == _ETHERNET and name.endswith(" wire"):
        options += _option(13, b"\x04")  # frames end with their check sequence
    if offset_s:
        options += _option(14, struct.pack("<q", offset_s))
    return _block(1, struct.pack("<HHI", link, 0, _SNAPLEN) + options + _option(0, b""))


def _transactions(source: Source, capture: Any, shift_s: int, counts: dict[str, int]) -> Iterator[Timed]:
    names = [bus.name for bus in source.buses]
    waiting = _none()
    for rows in source.rows(capture, on_axis=True):
        counts["transactions"] += len(rows.transactions)
        alone = _problems(rows, names, shift_s)
        # Those of a transaction are in its comment.
        counts["problems"] += len(alone[0]) + rows.problems["transaction"].drop_null().length()
        every = [_of_rows(rows, names, shift_s), waiting, alone]
        times, records = np.concatenate([time for time, _ in every]), pa.concat_arrays([one for _, one in every])
        order = np.argsort(times, kind="stable")
        # What is later than these transactions may come between the next ones.
        until = int(np.searchsorted(times[order], every[0][0].max(initial=-np.inf), side="right"))
        waiting = times[order[until:]], records.take(pa.array(order[until:]))
        yield times[order[:until]], records.take(pa.array(order[:until]))
    yield waiting


def _none() -> Timed:
    return np.zeros(0), pa.array([], pa.large_binary())


def _of_rows(rows: Rows, names: list[str], shift_s: int) -> Timed:
    """The blocks of some transactions."""
    transactions = rows.transactions
    if not len(transactions):
        return _none()
    time = values(transactions, "start_us")
    texts, code, _ = codes(transactions, "bus")
    interface = np.array([names.index(text.decode()) if text.decode() in names else 0 for text in texts])[code]
    head = Packed(len(time)).add(_heads(transactions).view(np.uint8).reshape(len(time), -1))
    for name in ("bus", "initiator"):
        texts, code, known = codes(transactions, name)
        head.number(np.where(known, np.array([len(text) for text in texts])[code], 0), "u1").text(texts, code, known)
    content = glued(head.array(), _data(rows, time))
    comments = _comments(rows)
    return time, _packets(time, interface, content, comments, shift_s)


def _problems(rows: Rows, names: list[str], shift_s: int) -> Timed:
    """The blocks of problems that belong to no transaction; those of one are among its comment."""
    alone = rows.problems["transaction"].is_null()
    problems = rows.problems.filter(alone).filter(rows.problems.filter(alone)["time_us"].is_valid())
    if not len(problems):
        return _none()
    time = values(problems, "time_us")
    heads = np.zeros(len(time), dtype=HEAD)
    heads["kind"] = 2
    heads["start_clk"] = values(problems, "first_clk")
    head = Packed(len(time)).add(heads.view(np.uint8).reshape(len(time), -1))
    for name in ("bus", "kind"):
        texts, code, _ = codes(problems, name)
        head.number(np.array([len(text) for text in texts])[code], "u1").text(texts, code)
    texts, code, _ = codes(problems, "bus")
    interface = np.array([names.index(text.decode()) if text.decode() in names else 0 for text in texts])[code]
    said = zip(problems["kind"].to_pylist(), problems["text"].to_pylist(), strict=True)
    comments = pa.array([f"{kind}: {text}".encode() for kind, text in said], pa.large_binary())
    return time, _packets(time, interface, head.array(), comments, shift_s)


def _heads(rows: pa.Table) -> npt.NDArray[Any]:
    heads = np.zeros(len(rows), dtype=HEAD)
    heads["kind"] = 1
    for name in HEAD.names or ():
        if name in rows.column_names and name != "termination":
            heads[name] = values(rows, name)
    texts, code, _ = codes(rows, "termination")
    order = [str(one) for one in Termination]
    heads["termination"] = np.array([order.index(text.decode()) if text else 0 for text in texts])[code]
    for bit, name in enumerate(KNOWN):
        if name:
            known = np.asarray(rows[name].is_valid())
            heads["known"] |= (known << bit).astype(np.uint16)
            if pa.types.is_boolean(rows[name].type):
                heads["flags"] |= (np.asarray(rows[name].fill_null(False)) << bit).astype(np.uint16)
    for bit, name in enumerate(("fast_back_to_back", "bytes_exact")):
        heads["flags"] |= (np.asarray(rows[name].fill_null(False)) << bit).astype(np.uint16)
    return heads


def _data(rows: Rows, start_us: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    """The data phases of each transaction as bytes."""
    transactions, phases = rows.transactions, rows.data_phases
    made = np.zeros(len(phases), dtype=PHASE)
    if not len(phases):
        return pa.array([b""] * len(transactions), pa.large_binary())
    key = _keys(transactions, transactions)
    order = np.argsort(key, kind="stable")
    of = _keys(phases, transactions)
    if (of[1:] < of[:-1]).any():
        phases = phases.take(pa.array(np.argsort(of, kind="stable")))
        of = np.sort(of)
    begin, end = np.searchsorted(of, key, side="left"), np.searchsorted(of, key, side="right")
    row = order[np.searchsorted(key[order], of)]
    made["offset_ns"] = np.rint(np.clip((values(phases, "time_us") - start_us[row]) * 1e3, 0, 2**32 - 1))
    made["data"] = values(phases, "data")
    made["byte_enables"] = values(phases, "byte_enables")
    wrong = ~np.asarray(phases["parity_ok"].fill_null(True))
    known = np.asarray(phases["data"].is_valid()), np.asarray(phases["byte_enables"].is_valid()), wrong
    made["known"] = sum(flag.astype(np.uint8) << bit for bit, flag in enumerate(known))
    size = PHASE.itemsize
    if (begin[1:] == end[:-1]).all() and len(begin) and begin[0] == 0 and end[-1] == len(phases):
        ends = np.r_[begin, end[-1:]].astype(np.int64) * size
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(begin), [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(made.tobytes())]
        )
    content = made.tobytes()
    parts = [content[first * size : last * size] for first, last in zip(begin.tolist(), end.tolist(), strict=True)]
    return pa.array(parts, pa.large_binary())


def _keys(table: pa.Table, transactions: pa.Table) -> npt.NDArray[Any]:
    """Bus and number of the transaction of each row as one number."""
    order = {text: number for number, text in enumerate(codes(transactions, "bus")[0])}
    texts, code, _ = codes(table, "bus")
    bus = np.array([order.get(text, 0) for text in texts], dtype=np.uint64)[code]
    return np.asarray(values(table, "transaction").astype(np.uint64) | bus << np.uint64(56))


def _comments(rows: Rows) -> pa.LargeBinaryArray:
    """What is said of each transaction, its problems included."""
    made = add_transaction(Packed(len(rows.transactions)), rows.transactions).array()
    problems = rows.problems.filter(rows.problems["transaction"].is_valid())
    if not len(problems):
        return made
    place = {key: row for row, key in enumerate(_keys(rows.transactions, rows.transactions).tolist())}
    texts = made.to_pylist()
    said = zip(
        _keys(problems, rows.transactions).tolist(),
        problems["kind"].to_pylist(),
        problems["text"].to_pylist(),
        strict=True,
    )
    for key, kind, text in said:
        if key in place:
            texts[place[key]] += f"; {kind}: {text}".encode()
    return pa.array(texts, pa.large_binary())


def _frames(packets: list[Packet], names: list[str], shift_s: int) -> Timed:
    time = np.array([packet.time_us for packet in packets])
    suffix = {"sent": "memory", "received": "memory", "wire": "wire"}
    interface = np.array([names.index(f"{packet.host} {suffix[packet.where]}") for packet in packets])
    content = pa.array([packet.content for packet in packets], pa.large_binary())
    comments = pa.array([packet.text.encode() for packet in packets], pa.large_binary())
    way = np.array([_INBOUND if packet.where == "received" else _OUTBOUND for packet in packets], dtype="<u4")
    return time, _packets(time, interface, content, comments, shift_s, way)


def _packets(
    time_us: npt.NDArray[Any],
    interface: npt.NDArray[Any],
    content: pa.LargeBinaryArray,
    comments: pa.LargeBinaryArray,
    shift_s: int,
    way: npt.NDArray[Any] | None = None,
) -> pa.LargeBinaryArray:
    """Enhanced packet blocks."""
    count = len(time_us)
    size, said = _lengths(content), _lengths(comments)
    pad, said_pad = -size % 4, -said % 4
    flags = 0 if way is None else 8
    total = 32 + size + pad + 4 + said + said_pad + flags + 4
    stamp = np.rint(time_us * 1e3).astype(np.int64) + shift_s * 1_000_000_000
    head = Packed(count).fixed(struct.pack("<I", 6)).number(total, "<u4").number(interface, "<u4")
    head.number(stamp >> 32, "<u4").number(stamp & 0xFFFFFFFF, "<u4").number(size, "<u4").number(size, "<u4")
    middle = _padding(Packed(count), pad).fixed(struct.pack("<H", 1)).number(said, "<u2")
    tail = _padding(Packed(count), said_pad)
    if way is not None:
        tail.fixed(struct.pack("<HH", 2, 4)).number(way, "<u4")
    tail.fixed(bytes(4)).number(total, "<u4")
    return glued(head.array(), content, middle.array(), comments, tail.array())


def _padding(packed: Packed, count: npt.NDArray[Any]) -> Packed:
    return packed.add(np.zeros((len(count), 3), dtype=np.uint8), np.arange(3) < count[:, None])


def _lengths(array: pa.LargeBinaryArray) -> npt.NDArray[Any]:
    ends = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset :][: len(array) + 1]
    return np.asarray(np.diff(ends))
