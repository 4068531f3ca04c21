"""Frames as they are in memory and on the wire, byte by byte, where a run shows all of them.

A frame in memory is what the pieces of its DMA burst moved, each byte at its address, so that what a card reads again
is there once. Where the burst moved more than the frame, as cards do that read whole dwords, its place in there is told
by the other end or the wire; where nothing tells, the frame is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.export.source import Source

__all__ = ["Packet", "memory_packets", "wire_packets"]

HEADER = 14
FCS = 4
_START_OF_FRAME = 0xD5


@dataclass(frozen=True)
class Packet:
    """A frame at one place.

    Attributes
    ----------
    host : str
    where : str
        ``sent`` (read from memory), ``received`` (written to memory) or ``wire`` (as the host sends it).
    time_us : float
        First data phase, or the rise of TX_EN, on the run's axis.
    content : bytes
        From the destination address on; on the wire with the frame check sequence.
    text : str
        About it, in words.
    """

    host: str
    where: str
    time_us: float
    content: bytes
    text: str


def memory_packets(source: Source) -> Iterator[Packet]:
    """The frames in the memories of the hosts; how many are left out, and why, goes to `source.left_out`."""
    frames = source.frames
    if frames is None:
        return
    stores = {bus.name: _Store(source, bus.name) for bus in source.buses if bus.name in frames.hosts}
    wires = {name: _on_wire(source, name) for name in stores}
    missing = {"sent": 0, "received": 0}
    for row in frames.table.to_dict("records"):
        ends = {
            "sent": ("sender", "send_burst", "dma_start_us"),
            "received": ("receiver", "receive_burst", "rx_dma_start_us"),
        }
        moved = {}
        for where, (role, burst, time) in ends.items():
            store = stores.get(row[role]) if not pd.isna(row[role]) else None
            if store is not None and not pd.isna(row[burst]) and not pd.isna(row[time]):
                moved[where] = (row[role], float(row[time]), store.content(int(row[burst])))
        wire = None if pd.isna(row["wire_start_us"]) else wires.get(row["sender"], {}).get(float(row["wire_start_us"]))
        found = _within(row, {where: content for where, (_, _, content) in moved.items()}, wire)
        for where, (host, time_us, _) in moved.items():
            if where in found:
                text = (
                    f"frame {int(row['frame'])} {where} by {host}: {int(row['length_bytes'])} user bytes, from DMA data"
                )
                yield Packet(host, where, time_us, found[where], text)
            else:
                missing[where] += 1
    for where, count in missing.items():
        if count:
            source.left_out.append(
                f"frames {where}: of {count} the bytes or the length are not all known (AD, C/BE# or the wire's data "
                "were not captured, or several places in the burst fit)"
            )


def _within(row: Mapping[Any, Any], moved: dict[str, bytes | None], wire: bytes | None) -> dict[str, bytes]:
    """The frame itself, of what each end moved."""
    if pd.isna(row["length_bytes"]) or not row["length_exact"]:
        return {}
    size = HEADER + int(row["length_bytes"])
    there = {where: content for where, content in moved.items() if content is not None and len(content) >= size}
    if wire is not None and len(wire) >= size:
        return {where: wire[:size] for where, content in there.items() if wire[:size] in content}
    found = {where: content for where, content in there.items() if len(content) == size}
    if not found and len(there) == 2:
        one, other = there.values()
        shared = {one[at : at + size] for at in range(len(one) - size + 1)}
        shared &= {other[at : at + size] for at in range(len(other) - size + 1)}
        return dict.fromkeys(there, shared.pop()) if len(shared) == 1 else {}
    known = set(found.values())
    for where, content in there.items():
        # The other end says what the frame is.
        if where not in found and len(known) == 1 and next(iter(known)) in content:
            found[where] = next(iter(known))
    return found


class _Store:
    """The bytes that the DMA bursts of a bus moved."""

    def __init__(self, source: Source, name: str) -> None:
        [bus] = [one for one in source.buses if one.name == name]
        assert source.frames is not None
        pieces = source.frames.hosts[name].pieces
        pieces = pieces[pieces["data_phases"] > 0].sort_values(["burst", "start_us"], kind="stable")
        self._burst = pieces["burst"].to_numpy(dtype=np.int64)
        self._transaction = pieces["transaction"].to_numpy(dtype=np.int64)
        self._placed = pieces["address"].notna().to_numpy(dtype=bool)
        self._address = pieces["address"].fillna(0).to_numpy(dtype=np.uint64)
        self._wide = (pieces["bytes"].fillna(0) > 4 * pieces["data_phases"]).to_numpy(dtype=bool)
        phases = bus.arrow("data_phases") if "AD0" in bus.lines else None
        self._of = None
        if phases is not None:
            self._of = np.asarray(phases["transaction"])
            known = pc.and_(phases["data"].is_valid(), phases["byte_enables"].is_valid())
            self._known = np.asarray(known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known)
            self._data = np.asarray(phases["data"].fill_null(0)).astype("<u8")
            self._enables = np.asarray(phases["byte_enables"].fill_null(0)).astype(np.uint8)

    def content(self, burst: int) -> bytes | None:
        """What a burst moved, each enabled byte at its address; None where it is not all known."""
        if self._of is None:
            return None
        first, last = np.searchsorted(self._burst, [burst, burst + 1])
        parts: list[tuple[int, bytearray, bytearray]] = []  # base, bytes, which of them are there
        for piece in range(first, last):
            begin, end = np.searchsorted(self._of, [self._transaction[piece], self._transaction[piece] + 1])
            if not self._known[begin:end].all() or not self._placed[piece]:
                return None
            lanes = 8 if self._wide[piece] else 4
            data = self._data[begin:end].view(np.uint8).reshape(-1, 8)[:, :lanes].tobytes()
            enabled = ((self._enables[begin:end, None] >> np.arange(lanes) & 1) == 0).astype(np.uint8).tobytes()
            _place(parts, int(self._address[piece]) & -4, data, enabled)
        return b"".join(bytes(np.frombuffer(data, np.uint8)[np.frombuffer(there, bool)]) for _, data, there in parts)


def _place(parts: list[tuple[int, bytearray, bytearray]], address: int, data: bytes, enabled: bytes) -> None:
    """Put what a piece moved where it belongs: behind or over what is there, or in another buffer."""
    for base, content, there in reversed(parts):
        at = address - base
        if 0 <= at <= len(content):
            grown = at + len(data) - len(content)
            if grown > 0:
                content.extend(bytes(grown))
                there.extend(bytes(grown))
            for nth, on in enumerate(enabled):
                if on:
                    content[at + nth] = data[nth]
                    there[at + nth] = 1
            return
    parts.append((address, bytearray(data), bytearray(enabled)))


def _on_wire(source: Source, name: str) -> dict[float, bytes]:
    """The frames that a host sends on the wire, by the rise of TX_EN: without preamble, with check sequence."""
    table = _wire_table(source, name)
    found = {}
    for start, content in () if table is None else zip(table["start_us"], table["bytes"], strict=True):
        if not pd.isna(start) and not pd.isna(content):
            at = content.find(_START_OF_FRAME, 0, 16)
            if at >= 0:
                found[float(start)] = content[at + 1 :]
    return found


def _wire_table(source: Source, name: str) -> pd.DataFrame | None:
    from pcitrace import analysis

    [bus] = [one for one in source.buses if one.name == name]
    if "TXEN" not in bus.wiring.lines:
        return None
    return analysis.on_axis(source.run, name, bus.capture.wire(bus.wiring.name))


def wire_packets(source: Source) -> Iterator[Packet]:
    """The frames on the wires whose bytes were captured."""
    for bus in source.buses:
        table = _wire_table(source, bus.name)
        if table is None:
            continue
        found = _on_wire(source, bus.name)
        if len(found) < len(table):
            source.left_out.append(
                f"frames on the wire of {bus.name}: of {len(table) - len(found)} the bytes were not captured "
                "(TXCLK and TXDATA), or the capture cuts them"
            )
        for nth, (time_us, content) in enumerate(found.items()):
            if content:
                yield Packet(bus.name, "wire", time_us, content, f"frame {nth} that {bus.name} sends, on the wire")
