"""The tables a decoder makes of a capture, made without one: same rows, same columns, same numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from pcitrace.schema import COMMAND_NAMES, DATA_PHASES, TRANSACTIONS, Table

from .bus import COMMANDS, DEVSEL, IRDY, STOP, TRDY, Transaction

if TYPE_CHECKING:
    from .bench import Bench
    from .host import Host

Ints = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]

KINDS = ("vcd", "control16", "control14")


class Axis:
    """From times of the bench (ns) to ticks of a VCD or samples of an analyser, and to the capture's microseconds."""

    def __init__(self, bench: Bench, kind: str) -> None:
        if kind not in KINDS:
            raise ValueError(f"no capture {kind}; there are {', '.join(KINDS)}")
        drawn = bench.drawn
        self.bench, self.sampled = bench, kind != "vcd"
        self.step = drawn["vcd_unit"]
        if self.sampled:
            self.step = 1e3 / drawn["sr_rate"] * (1 + drawn["sr_ppm"] * 1e-6)
            self.rate = drawn["sr_rate"]
        self.ticks = int((bench.end - bench.begin) / self.step)

    def at(self, times: Times, channel: str) -> Ints:
        """Tick or first sample at or after each change of a channel; an analyser's edges jitter."""
        apart = np.asarray(times, np.float64) - self.bench.begin
        if not self.sampled:
            return np.rint(apart / self.step).astype(np.int64)
        seed = np.random.default_rng([self.bench.drawn["seed"], *channel.encode()])
        jitter = seed.uniform(-1, 1, len(apart)) * self.bench.drawn["jitter"]
        return np.ceil((apart + jitter) / self.step).astype(np.int64)

    def us(self, ticks: Ints) -> Times:
        return ticks / self.rate if self.sampled else ticks * (self.step * 1e-3)


@dataclass(frozen=True)
class Edges:
    """Rising edges of one CLK: clock number of the first one in the capture, and the tick of each from there."""

    first: int
    ticks: Ints

    @classmethod
    def of(cls, axis: Axis, host: Host) -> Edges:
        bus, bench = host.bus, axis.bench
        start = int((bench.begin - bus.phase) / bus.period) - 1
        clocks = np.arange(start, int((bench.end - bus.phase) / bus.period) + 2)
        ticks = axis.at(bus.time(clocks), f"{host.name}_CLK")
        seen = (ticks >= 1) & (ticks < axis.ticks)
        return cls(int(clocks[seen][0]), ticks[seen])

    def tick(self, clocks: Ints) -> Ints:
        return self.ticks[clocks - self.first]


@dataclass(frozen=True)
class HostTables:
    """What a decoder gives of one bus and its wire."""

    transactions: pd.DataFrame
    data_phases: pd.DataFrame
    wire: pd.DataFrame | None


def tables(bench: Bench, kind: str = "vcd") -> dict[str, HostTables]:
    """Tables of each captured host.

    Parameters
    ----------
    bench : Bench
    kind : str
        ``vcd`` (AD, C/BE#, wire), ``control16`` (control lines, GNT#, wire, sampled) or ``control14`` (the same
        without the wire).
    """
    axis = Axis(bench, kind)
    return {name: _host(axis, bench.hosts[name], kind) for name in bench.drawn["hosts"]}


def _arrow(schema: Table, values: dict[str, Any], count: int) -> pd.DataFrame:
    arrays = {}
    for column in schema.columns:
        given = values.get(column.name)
        kind = pa.type_for_alias(column.dtype)
        if given is None:
            arrays[column.name] = pa.nulls(count, kind)
        elif isinstance(given, np.ma.MaskedArray):
            arrays[column.name] = pa.array(given.data, mask=np.ma.getmaskarray(given)).cast(kind)
        else:
            arrays[column.name] = pa.array(given).cast(kind)
    frame: pd.DataFrame = pa.table(arrays).to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def _termination(txn: Transaction) -> str:
    stop = txn.plan.stop if txn.plan else None
    if stop == "TS":
        return "disconnect_with_data"
    return "completion" if stop is None else "disconnect_without_data" if txn.moved else "retry"


def initiators(bench: Bench, host: Host, kind: str) -> dict[str, str]:
    """Captured GNT# line of each owner that has one."""
    if kind != "vcd":
        return {"NIC": "GNT#"}
    other = {"X": "GNT_X#"} if bench.drawn["other_rate"] and bench.drawn["other_grant"] else {}
    return {"NIC": "GNT_NIC#", **other}


def _host(axis: Axis, host: Host, kind: str) -> HostTables:
    bench = axis.bench
    edges = Edges.of(axis, host)
    done = [txn for txn in host.bus.done if txn.clock >= edges.first]
    clock = np.array([txn.clock for txn in done], np.int64)
    length = np.array([len(txn.lines) for txn in done], np.int64)
    moved = np.array([txn.moved for txn in done], np.int64)
    lines = np.concatenate([txn.lines for txn in done])
    row = np.repeat(np.arange(len(done)), length)
    offset = np.arange(len(lines)) - np.repeat(np.cumsum(length) - length, length)
    irdy, trdy, stop = lines & IRDY > 0, lines & TRDY > 0, lines & STOP > 0
    claimed = np.flatnonzero(lines & DEVSEL)
    devsel = offset[claimed[np.searchsorted(row[claimed], np.arange(len(done)))]]
    data_clock = np.concatenate([txn.clock + txn.data_clocks for txn in done])
    data_tick = edges.tick(data_clock)
    data_us = axis.us(data_tick)
    first = np.cumsum(moved) - moved
    at_first = np.ma.masked_array(np.append(data_us, 0)[np.minimum(first, len(data_us))], moved == 0)
    at_last = np.ma.masked_array(np.append(data_us, 0)[np.maximum(first + moved - 1, 0)], moved == 0)
    grants = initiators(bench, host, kind)
    values: dict[str, Any] = {
        "bus": [host.name] * len(done),
        "transaction": np.arange(len(done)),
        "start_us": axis.us(edges.tick(clock)),
        "end_us": axis.us(edges.tick(clock + length - 1)),
        "start_sample": edges.tick(clock),
        "end_sample": edges.tick(clock + length - 1),
        "start_clk": clock - edges.first,
        "clocks": length,
        "data_phases": moved,
        "bytes": moved * (8 if bench.drawn["width"] == 64 else 4),
        "bytes_exact": moved == 0,
        "wait_clks": length - 1 - moved,
        "target_wait_clks": np.bincount(row[irdy & ~trdy & ~stop & (offset > 0)], minlength=len(done)),
        "initiator_wait_clks": np.bincount(row[~irdy & (offset > 0)], minlength=len(done)),
        "devsel_clks": devsel,
        "termination": [_termination(txn) for txn in done],
        "initiator": pa.array([grants.get(txn.owner) for txn in done], pa.string()),
        "fast_back_to_back": np.zeros(len(done), bool),
        "first_data_us": at_first,
        "last_data_us": at_last,
    }
    phases: dict[str, Any] = {
        "bus": [host.name] * len(data_us),
        "transaction": np.repeat(np.arange(len(done)), moved),
        "time_us": data_us,
    }
    if kind == "vcd":
        _with_addresses(done, moved, values, phases)
    else:
        values["suspect"] = np.zeros(len(done), bool)
    wire = None if kind == "control14" else _wire(axis, host)
    return HostTables(_arrow(TRANSACTIONS, values, len(done)), _arrow(DATA_PHASES, phases, len(data_us)), wire)


def _with_addresses(done: list[Transaction], moved: Ints, values: dict[str, Any], phases: dict[str, Any]) -> None:
    """Add what AD, C/BE# and PAR tell."""
    words = np.concatenate([txn.words[: txn.moved] for txn in done])
    enables = np.concatenate([txn.enables[: txn.moved] for txn in done])
    wide = np.repeat([txn.wide for txn in done], moved)
    carried = np.where(wide, 8, 4) - np.bitwise_count(enables)
    command = [COMMANDS[txn.command] for txn in done]
    yes = np.ones(len(done), bool)
    values.update(
        command=np.array(command),
        command_name=[COMMAND_NAMES[code] for code in command],
        dac=~yes,
        address=np.array([txn.address for txn in done], np.uint64),
        bytes=np.bincount(np.repeat(np.arange(len(done)), moved), carried, len(done)).astype(np.int64),
        bytes_exact=yes,
        address_parity_ok=yes,
        device=pa.array([_device(code, txn.address) for code, txn in zip(command, done, strict=True)], pa.uint8()),
    )
    phases.update(data=words, byte_enables=enables, parity_ok=np.ones(len(words), bool))


def _device(command: int, address: int) -> int | None:
    """Return the device of a configuration access. Ref: PCI 2.2, 3.2.2.3.5 and figure 3-2."""
    if COMMAND_NAMES[command] not in ("config_read", "config_write"):
        return None
    if address & 3:
        return address >> 11 & 31
    lines = [line for line in range(11, 32) if address >> line & 1]
    return lines[0] - 11 if len(lines) == 1 else None


def wire_times(bench: Bench, host: Host) -> Times:
    """Rise and fall of TX_EN of each frame that the host sends."""
    mine = [f for f in bench.frames if f.sender == host.name and f.wire_start is not None]
    return np.array(sorted((f.wire_start, f.wire_end) for f in mine), np.float64).reshape(-1, 2)


def _wire(axis: Axis, host: Host) -> pd.DataFrame:
    times = wire_times(axis.bench, host)
    ticks = axis.at(times.ravel(), f"{host.name}_TXEN").reshape(-1, 2)
    ticks = ticks[(ticks[:, 0] >= 1) & (ticks[:, 1] < axis.ticks)]
    arrays = {
        "start_us": pa.array(axis.us(ticks[:, 0]), pa.float64()),
        "end_us": pa.array(axis.us(ticks[:, 1]), pa.float64()),
        "bytes": pa.nulls(len(ticks), pa.binary()),
    }
    frame: pd.DataFrame = pa.table(arrays).to_pandas(types_mapper=pd.ArrowDtype)
    return frame
