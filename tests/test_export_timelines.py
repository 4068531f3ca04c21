"""FTR and Perfetto, read back by readers that share nothing with the writers, and compared row by row, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cbor2
import pytest
from conftest import REPOSITORY, shared_dir
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

import pcitrace
from pcitrace.cli import main

TRACE = REPOSITORY / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"


def exported(source: Path, to: str, folder: Path, *arguments: str) -> Path:
    path = folder / f"x.{to}"
    assert main(["export", str(source), "--to", to, "-o", str(path), *arguments]) == 0
    return path


def nic() -> Path:
    return shared_dir() / "traces" / "nic_g_a" / "bus.vcd.gz"


# ---- FTR


class Ftr:
    """An FTR file as its specification says: streams, generators, transactions and relations."""

    def __init__(self, path: Path) -> None:
        self.strings: dict[int, str] = {}
        self.streams: dict[int, tuple[str, str]] = {}
        self.generators: dict[int, tuple[str, int]] = {}
        self.transactions: dict[int, list[dict[str, Any]]] = {}
        self.relations: list[tuple[str, int, int, int, int]] = []
        content = path.read_bytes()
        assert content[:4] == bytes.fromhex("d9d9f79f")  # self-described CBOR, which cbor2 takes off; an open array
        for chunk in cbor2.loads(content):
            getattr(self, f"chunk_{chunk.tag}")(chunk.value)

    def chunk_6(self, content: bytes) -> None:
        assert cbor2.loads(content)[0] == -12

    def chunk_8(self, content: bytes) -> None:
        new = cbor2.loads(content)
        assert not set(new) & set(self.strings)
        self.strings |= new

    def chunk_10(self, content: bytes) -> None:
        for entry in cbor2.loads(content):
            number, name, last = entry.value
            if entry.tag == 16:
                self.streams[number] = self.strings[name], self.strings[last]
            else:
                assert entry.tag == 17
                self.generators[number] = self.strings[name], last

    def chunk_12(self, chunk: list[Any]) -> None:
        stream, first, last, content = chunk
        for head, *attributes in cbor2.loads(content):
            assert head.tag == 6
            number, generator, start, end = head.value
            assert self.generators[generator][1] == stream
            assert first <= start <= end <= last
            row = {"id": number, "generator": self.generators[generator][0], "start": start, "end": end}
            for attribute in attributes:
                assert attribute.tag in (7, 8, 9)
                name, kind, value = attribute.value
                row[self.strings[name]] = self.strings[value] if kind == 10 else value
            self.transactions.setdefault(stream, []).append(row)

    def chunk_14(self, content: bytes) -> None:
        for name, source, sink, source_stream, sink_stream in cbor2.loads(content):
            self.relations.append((self.strings[name], source_stream, source, sink_stream, sink))


def test_ftr_has_every_transaction(tmp_path: Path) -> None:
    read = Ftr(exported(TRACE, "ftr", tmp_path))
    assert read.streams == {1: ("pci", "PCI bus")}
    wanted = []
    for row in pcitrace.open(TRACE).bus.arrow("transactions").to_pylist():
        one = {"generator": row["command_name"] or "transaction"}
        one |= {"start": round(row["start_us"] * 1e6), "end": round(row["end_us"] * 1e6)}
        names = ("transaction", "address", "data_phases", "bytes", "wait_clks", "initiator", "termination")
        wanted.append(one | {name: row[name] for name in names if row[name] is not None})
    found = [{key: value for key, value in row.items() if key != "id"} for row in read.transactions[1]]
    assert found == wanted
    numbers = [row["id"] for row in read.transactions[1]]
    assert len(set(numbers)) == len(numbers)


def test_ftr_has_bursts_and_frames(tmp_path: Path) -> None:
    read = Ftr(exported(nic(), "ftr", tmp_path, "--profile", "generic"))
    by_name = {name: number for number, (name, _) in read.streams.items()}
    frames = pcitrace.analysis.frames(pcitrace.open(nic()), profile="generic")
    found = {row["id"]: row["frame"] for row in read.transactions[by_name["frames"]]}
    assert sorted(found.values()) == frames.table["frame"].tolist()
    bursts = {}
    for host in ("A", "B"):
        stream = by_name[f"{host} bursts"]
        rows = read.transactions[stream]
        assert [row["generator"] for row in rows] == frames.hosts[host].bursts["kind"].tolist()
        bursts |= {(stream, row["id"]): (host, row["burst"]) for row in rows}
    sent = {
        (found[sink], *bursts[stream, source]) for name, stream, source, _, sink in read.relations if name == "sent"
    }
    columns = ("frame", "sender", "send_burst")
    assert sent == set(frames.table[list(columns)].itertuples(index=False, name=None))


# ---- Perfetto


class Perfetto:
    """A trace as the protobuf definitions of Perfetto read it: slices by track, counters, flows."""

    def __init__(self, path: Path) -> None:
        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        self.tracks: dict[int, str] = {}
        self.parents: dict[int, int] = {}
        self.slices: list[dict[str, Any]] = []
        self.counters: dict[str, list[tuple[int, float]]] = {}
        names: dict[int, str] = {}
        arguments: dict[int, str] = {}
        values: dict[int, str] = {}
        open_slices: dict[int, list[dict[str, Any]]] = {}
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            data = packet.interned_data
            names |= {one.iid: one.name for one in data.event_names}
            arguments |= {one.iid: one.name for one in data.debug_annotation_names}
            values |= {one.iid: one.str.decode() for one in data.debug_annotation_string_values}
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                assert track.uuid not in self.tracks
                self.tracks[track.uuid] = track.name
                self.parents[track.uuid] = track.parent_uuid
            if not packet.HasField("track_event"):
                continue
            assert packet.sequence_flags == TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            event = packet.track_event
            name = self.tracks[event.track_uuid]
            if event.type == TrackEvent.TYPE_COUNTER:
                self.counters.setdefault(name, []).append((packet.timestamp, event.double_counter_value))
            elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
                one = {"track": event.track_uuid, "name": names[event.name_iid], "start": packet.timestamp}
                for argument in event.debug_annotations:
                    value = argument.uint_value
                    if argument.HasField("string_value_iid"):
                        value = values[argument.string_value_iid]
                    one[arguments[argument.name_iid]] = value
                one["flows"] = list(event.flow_ids)
                # Slices of a track follow each other.
                assert not open_slices.setdefault(event.track_uuid, [])
                open_slices[event.track_uuid].append(one)
            else:
                one = open_slices[event.track_uuid].pop()
                self.slices.append({**one, "end": packet.timestamp})
        assert not any(open_slices.values())

    def titles(self, track: int) -> tuple[str, ...]:
        """Names from the outermost track to this one."""
        above = self.titles(self.parents[track]) if self.parents[track] else ()
        return (*above, self.tracks[track])


def test_perfetto_has_every_transaction(tmp_path: Path) -> None:
    read = Perfetto(exported(TRACE, "perfetto", tmp_path))
    rows = pcitrace.open(TRACE).bus.arrow("transactions").to_pylist()
    assert len(read.slices) == len(rows)
    for found, row in zip(read.slices, rows, strict=True):
        assert read.titles(found["track"]) == ("bus pci", row["initiator"] or "initiator not known")
        assert found["name"] == (row["command_name"] or "transaction")
        assert found["start"] == round(row["start_us"] * 1e3)
        assert abs(found["end"] - (row["end_us"] * 1e3 + 30)) <= 1
        for name in ("transaction", "address", "data_phases", "bytes", "wait_clks", "termination"):
            assert found.get(name) == row[name]
    clocks = pcitrace.open(TRACE).bus.clocks(100.0)
    occupancy = clocks["occupancy"].dropna().tolist()
    assert [value for _, value in read.counters["occupancy (%)"]] == pytest.approx([100 * one for one in occupancy])


def test_perfetto_follows_frames(tmp_path: Path) -> None:
    """From the doorbell to DMA, wire and memory, in this order."""
    read = Perfetto(exported(nic(), "perfetto", tmp_path, "--profile", "generic"))
    frames = pcitrace.analysis.frames(pcitrace.open(nic()), profile="generic")
    for row in frames.table.to_dict("records"):
        way = sorted((one for one in read.slices if row["frame"] + 1 in one["flows"]), key=lambda one: one["start"])
        places = [(read.titles(one["track"])[0], read.titles(one["track"])[-1]) for one in way]
        sender, receiver = f"bus {row['sender']}", f"bus {row['receiver']}"
        assert (sender, "wire") in places
        assert places[-1] == (receiver, "DMA bursts")
        assert places.index((sender, "DMA bursts")) < places.index((sender, "wire"))
        assert places[0] == (sender, "register accesses")
