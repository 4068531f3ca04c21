"""A bench as files: VCD, sigrok captures, run.toml, the card's profile and the truth."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from .bench import Bench
from .bus import COMMANDS, DEVSEL, FRAME, IRDY, STOP, TRDY, Bus, Transaction
from .host import Host
from .tables import Axis, wire_times

Ints = npt.NDArray[np.int64]
CONTROL = {"FRAME": FRAME, "IRDY": IRDY, "TRDY": TRDY, "DEVSEL": DEVSEL, "STOP": STOP}


class Signals:
    """What each line of one host's bus carries at each clock: only clocks in which something may change."""

    def __init__(self, bench: Bench, host: Host) -> None:
        self.bench, self.host = bench, host
        self.done = [txn for txn in host.bus.done if host.bus.time(txn.clock) > bench.begin]
        self.first = int((bench.begin - host.bus.phase) / host.bus.period) - 1
        lines, clocks = [np.zeros(1, np.uint8)], [np.array([self.first])]
        for txn in self.done:
            lines.append(np.append(txn.lines, 0).astype(np.uint8))
            clocks.append(np.arange(txn.clock, txn.clock + len(txn.lines) + 1))
        self.lines, self.clocks = np.concatenate(lines), np.concatenate(clocks)

    def control(self, bit: int) -> tuple[Ints, Ints]:
        """Clocks and values (1 is high, deasserted)."""
        return self.clocks, 1 - (self.lines & bit > 0).astype(np.int64)

    def grant(self, owner: str) -> tuple[Ints, Ints]:
        """GNT# of one owner: low a clock before each of its address phases, high there for the others'."""
        spans: list[list[int]] = []
        before = self.first
        for i, txn in enumerate(self.done):
            if txn.owner == owner:
                start = max(before, txn.clock - 2 - txn.clock % 3)
                following = self.done[i + 1].clock if i + 1 < len(self.done) else txn.last_clock + 9
                parked = self.bench.drawn["park"] == "last"
                stop = max(txn.clock, following - 2) if parked else txn.clock + txn.clock % 2
                if spans and start <= spans[-1][1]:
                    spans[-1][1] = stop
                else:
                    spans.append([start, stop])
            before = txn.clock
        edges = np.array(spans, np.int64).reshape(-1, 2)
        clocks = np.concatenate([[self.first], edges.ravel()])
        return clocks, np.concatenate([[1], np.tile([0, 1], len(edges))])

    def address(self) -> tuple[Ints, npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        """Clocks, AD and C/BE# of every clock of every transaction."""
        clocks, ad, cbe = [], [], []
        for txn in self.done:
            inside = np.arange(len(txn.lines))
            index = np.minimum(np.searchsorted(txn.data_clocks, inside), len(txn.words) - 1)
            words, enables = txn.words[index], txn.enables[index].copy()
            words[0], enables[0] = txn.address, COMMANDS[txn.command]
            if not txn.write:
                words[1:2] = txn.address
            clocks.append(inside + txn.clock)
            ad.append(words)
            cbe.append(enables)
        return np.concatenate(clocks), np.concatenate(ad), np.concatenate(cbe)


def _wide(signals: Signals, of: str) -> tuple[Ints, Ints]:
    """REQ64# follows FRAME#, ACK64# follows DEVSEL#, in transactions of 64 bit."""
    bit = FRAME if of == "REQ64" else DEVSEL
    clocks, values = signals.control(bit)
    wide = np.concatenate([[False], *(np.full(len(txn.lines) + 1, txn.wide) for txn in signals.done)])
    return clocks, np.where(wide, values, 1)


class _Changes:
    """Changes of all channels of a VCD."""

    def __init__(self) -> None:
        self.ticks: list[Ints] = []
        self.texts: list[list[str]] = []
        self.names: list[str] = []

    def add(self, name: str, width: int, ticks: Ints, values: Any) -> None:
        """A channel: its value from each tick on; the last value at or before 0 is the first one."""
        code = "".join(chr(33 + d) for d in divmod(len(self.names), 90))
        self.names.append(f"$var wire {width} {code} {name}{f' [{width - 1}:0]' if width > 1 else ''} $end")
        values = np.asarray(values)
        start = max(int(np.searchsorted(ticks, 0, "right")) - 1, 0)
        ticks, values = np.maximum(ticks[start:], 0), values[start:]
        kept = np.concatenate([[True], values[1:] != values[:-1]])
        ticks, values = ticks[kept], values[kept]
        self.ticks.append(ticks)
        numbers = values.tolist()
        self.texts.append([f"{v}{code}" for v in numbers] if width == 1 else [f"b{v:b} {code}" for v in numbers])

    def write(self, path: Path, unit: str, end: int) -> None:
        ticks = np.concatenate(self.ticks)
        texts = np.array([text for part in self.texts for text in part], object)
        order = np.argsort(ticks, kind="stable")
        order = order[ticks[order] < end]
        ticks = ticks[order]
        first = np.concatenate([[True], ticks[1:] != ticks[:-1]])
        # Lists: element by element they are several times faster than arrays.
        lines = [
            f"#{tick}\n{text}" if new else text
            for tick, text, new in zip(ticks.tolist(), texts[order].tolist(), first.tolist(), strict=True)
        ]
        head = [
            f"$timescale {unit} $end",
            "$scope module bus $end",
            *self.names,
            "$upscope $end",
            "$enddefinitions $end",
        ]
        with gzip.open(path, "wt", compresslevel=1) as file:
            file.write("\n".join([*head, *lines, f"#{end}\n"]))


def _after(axis: Axis, bus: Bus, clocks: Ints) -> Ints:
    """When the lines of each clock change: a little after the edge before it."""
    return axis.at(bus.time(clocks - 1) + 0.14 * bus.period, "")


def write_vcd(bench: Bench, path: Path) -> None:
    axis, changes = Axis(bench, "vcd"), _Changes()
    drawn = bench.drawn
    wide = drawn["width"] == 64
    for name in drawn["hosts"]:
        host = bench.hosts[name]
        bus, signals = host.bus, Signals(bench, host)
        for line, bit in CONTROL.items():
            clocks, values = signals.control(bit)
            changes.add(f"{name}_{line}", 1, _after(axis, bus, clocks), values)
        grants = ["NIC", "X"] if drawn["other_rate"] and drawn["other_grant"] else ["NIC"]
        for owner in grants:
            clocks, values = signals.grant(owner)
            changes.add(f"{name}_GNT_{owner}", 1, _after(axis, bus, clocks), values)
        if wide:
            for line in ("REQ64", "ACK64"):
                clocks, values = _wide(signals, line)
                changes.add(f"{name}_{line}", 1, _after(axis, bus, clocks), values)
        clocks, ad, cbe = signals.address()
        changes.add(f"{name}_AD", 64 if wide else 32, _after(axis, bus, clocks), ad)
        changes.add(f"{name}_CBE", 8 if wide else 4, _after(axis, bus, clocks), cbe)
        parity = np.bitwise_count(ad & np.uint64(0xFFFFFFFF)) + np.bitwise_count(cbe & 15)
        changes.add(f"{name}_PAR", 1, _after(axis, bus, clocks + 1), parity % 2)
        edges = np.arange(signals.first, int((bench.end - bus.phase) / bus.period) + 1)
        both = np.stack([axis.at(bus.time(edges), ""), axis.at(bus.time(edges + 0.5), "")], 1).ravel()
        changes.add(f"{name}_CLK", 1, both, np.tile([1, 0], len(edges)))
        wire = axis.at(wire_times(bench, host).ravel(), "")
        changes.add(
            f"{name}_TXEN", 1, np.concatenate([[-1 << 40], wire]), np.append([0], np.tile([1, 0], len(wire) // 2))
        )
    changes.write(path, {1.0: "1ns", 0.1: "100ps", 0.001: "1ps"}[drawn["vcd_unit"]], axis.ticks)


def write_sr(bench: Bench, path: Path, kind: str) -> None:
    """A sigrok session file of an analyser whose clock is its own."""
    axis, drawn = Axis(bench, kind), bench.drawn
    samples = np.zeros(axis.ticks, np.uint16)
    names: list[str] = []

    def channel(name: str, first: int, toggles: Ints) -> None:
        inside = toggles[toggles < axis.ticks]
        first ^= int((inside <= 0).sum() & 1)
        level = np.zeros(axis.ticks, np.uint8)
        np.add.at(level, inside[inside > 0], 1)
        level[0] += first
        np.bitwise_or(samples, (np.cumsum(level, dtype=np.uint8) & 1).astype(np.uint16) << len(names), out=samples)
        names.append(name)

    for name in drawn["hosts"]:
        host = bench.hosts[name]
        bus, signals = host.bus, Signals(bench, host)
        late = 5.0 if drawn["mhz"] == 33.0 else 2.5
        edges = np.arange(signals.first, int((bench.end - bus.phase) / bus.period) + 1)
        start = edges[0]
        rises = axis.at(bus.time(np.arange(start, edges[-1] + 2)), f"{name}_CLK")[: len(edges)]
        falls = axis.at(bus.time(edges + 0.5), f"{name}_CLK low")
        channel(f"{name}_CLK", 0, np.concatenate([rises, falls]))
        for line, (clocks, values) in [
            *((f"{key}#", signals.control(bit)) for key, bit in CONTROL.items()),
            ("GNT#", signals.grant("NIC")),
        ]:
            turns = np.flatnonzero(values[1:] != values[:-1]) + 1
            channel(f"{name}_{line}", 1, axis.at(bus.time(clocks[turns] - 1) + late, f"{name}_{line}"))
    if kind == "control16":
        for name in drawn["hosts"]:
            wire = wire_times(bench, bench.hosts[name]).ravel()
            channel(f"{name}_TXEN", 0, axis.at(wire, f"{name}_TXEN"))
    meta = [
        "[global]",
        "sigrok version=0.5.2",
        "",
        "[device 1]",
        "capturefile=logic-1",
        f"total probes={len(names)}",
        f"samplerate={drawn['sr_rate']} MHz",
        "total analog=0",
        *(f"probe{i}={name}" for i, name in enumerate(names, 1)),
        "unitsize=2",
        "",
    ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("version", "2")
        file.writestr("metadata", "\n".join(meta))
        file.writestr("logic-1-1", samples.astype("<u2").tobytes())


def profile(bench: Bench) -> dict[str, Any]:
    """The card as somebody with its data sheet would write it down."""
    drawn = bench.drawn
    offsets = bench.hosts["A"].registers
    ways = ("store_and_forward", "cut_through")
    bell = {"kick": "COMMAND", "read": "COMMAND", "descriptor": ""}.get(drawn["doorbell"], "TX_TAIL")
    roles = {
        "INTERRUPT": "interrupt",
        "ACK": "interrupt",
        "MASK": "interrupt",
        bell: "send_doorbell",
        "RX_TAIL": "receive_doorbell",
    }
    registers: list[dict[str, Any]] = []
    on_card = drawn["place"] == "card"
    for name, offset in offsets.items():
        if on_card and name in ("TX_BASE", "TX_SIZE", "RX_BASE", "RX_SIZE"):
            continue
        entry: dict[str, Any] = {"name": name, "offset": offset}
        if name in roles:
            entry["role"] = roles[name]
        if name == "TX_TAIL" and bell == name:
            entry["value"] = "tail"
        ring = {"TX": "send_ring", "RX": "receive_ring"}[name[:2]] if name[3:] in ("BASE", "SIZE") else ""
        if ring:
            entry["role"] = ring + ("_size" if name.endswith("SIZE") else "")
            if name.endswith("SIZE"):
                entry["unit_bytes"] = drawn["descriptor"]
        registers.append(entry)
    if on_card:
        array = {"stride": 8, "count": drawn["slots"]}
        control = {"name": "TX_BD{}_CTRL", "offset": 0x400, **array}
        if drawn["doorbell"] == "descriptor":
            control.update(role="send_doorbell", mask=0x8000)
        registers += [control, {"name": "TX_BD{}_ADDR", "offset": 0x404, **array, "role": "send_buffer"}]
    stated: dict[str, Any] = {
        "format": 1,
        "name": f"card-{drawn['seed']}",
        "title": f"drawn card {drawn['family']} {drawn['seed']}",
        "sources": ["its data sheet"],
        "device": {"vendor_id": drawn["vendor"], "device_ids": [drawn["device"]]},
        "dma": {
            "send": ways[drawn["tx_threshold"] > 0],
            "receive": ways[drawn["rx_chunk"] > 0],
            "burst_limit_bytes": drawn["burst"],
            "receive_fcs": drawn["fcs"],
        },
        "descriptors": {"place": drawn["place"]},
        "windows": [{"name": "csr", "bar": 0, "base": drawn["base"], "size_bytes": 4096, "space": "memory"}],
        "registers": registers,
    }
    sizes = sorted({drawn["tx_status"], drawn["rx_status"]} - {0})
    if sizes:
        stated["descriptors"]["status_bytes"] = sizes
    if not on_card:
        for side, key in (("send", "fetch"), ("receive", "rx_fetch")):
            double = 2 if drawn["split" if side == "send" else "rx_split"] and drawn["descriptor"] < 16 else 1
            stated["descriptors"][side] = {
                "size_bytes": drawn["descriptor"] * double,
                "fetch_max": drawn[key],
                "address_offset": drawn["address_at"],
            }
    return stated


def run(bench: Bench, capture: str, nic: str = "card.toml") -> dict[str, Any]:
    """What `run.toml` says of a capture."""
    drawn = bench.drawn
    host = {"nic": nic, **({"width": 64} if drawn["width"] == 64 else {})}
    stated: dict[str, Any] = {
        "format": 1,
        "origin": "imported",
        "captures": [{"file": capture}],
        "hosts": {name: dict(host) for name in drawn["hosts"]},
        "link": {"rate_mbit_s": drawn["rate"]},
    }
    if drawn["sequence"]:
        stated["frames"] = {"sequence": {"offset": 2, "bytes": 2, "byte_order": "big"}}
    return stated


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def _bus_truth(bench: Bench, host: Host, txn: Transaction) -> dict[str, Any]:
    return {
        "type": "dma" if txn.owner == "NIC" else "other",
        "pc": host.name,
        "addr_phase_ns": bench.stamp(host, txn.clock),
        "last_data_ns": bench.stamp(host, txn.clock + int(txn.data_clocks[-1])) if txn.moved else None,
        "addr": f"0x{txn.address:08x}",
        "cmd": txn.command,
        "n": txn.moved,
        "kind": txn.kind,
    }


def card(bench: Bench) -> dict[str, Any]:
    """What was drawn, with the keys that scoring needs."""
    return {
        **bench.drawn,
        "period": {name: host.bus.period for name, host in bench.hosts.items()},
        "length_ns": bench.end - bench.begin,
        "frames_sent": len(bench.frames),
    }


def write(bench: Bench, folder: Path, vcd: bool = True, control14: bool = False) -> None:
    """Write the run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.json").write_text(json.dumps(card(bench), indent=1))
    (folder / "card.toml").write_text(tomli_w.dumps(profile(bench)))
    captures = [("run-control16.toml", "control16.sr")]
    write_sr(bench, folder / "control16.sr", "control16")
    if control14:
        write_sr(bench, folder / "control14.sr", "control14")
        captures.append(("run-control14.toml", "control14.sr"))
    if vcd:
        write_vcd(bench, folder / "bus.vcd.gz")
    captures.append(("run.toml", "bus.vcd.gz" if vcd else "control16.sr"))
    for name, capture in captures:
        (folder / name).write_text(tomli_w.dumps(run(bench, capture)))
    _lines(folder / "truth.jsonl.gz", bench.truth())
    hosts = bench.hosts.values()
    accesses = [
        {key: bench.moment(value) if key.endswith("_ns") else value for key, value in row.items()}
        for host in hosts
        for row in host.csr_log
    ]
    _lines(folder / "truth_csr.jsonl.gz", accesses)
    rows = [_bus_truth(bench, host, txn) for host in hosts for txn in host.bus.done if txn.kind != "csr"]
    _lines(folder / "truth_dma.jsonl.gz", [row for row in rows if row["type"] == "dma"])
    _lines(folder / "truth_other.jsonl.gz", [row for row in rows if row["type"] == "other"])
