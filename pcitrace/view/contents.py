"""What a view shows: the tables of a run, put on one time axis, as columns that a page can hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from pcitrace import __version__, schema
from pcitrace.analysis import on_axis
from pcitrace.errors import PciTraceError
from pcitrace.view.packing import Packer

if TYPE_CHECKING:
    from pcitrace.analysed import AnalysedRun
    from pcitrace.run import Bus

__all__ = ["contents"]

_NOT_SHOWN = ("bus", "command_name")
"""The bus is the lane's, the command's name follows from its number."""

_WORDS = re.compile(r"(AD|CBE|PAR)\d*#?")
_MOST_EDGES = 2_000_000

_PLUS = {"end_sample": "start_sample", "first_data": "start_sample", "last_data": "start_sample"}


def contents(run: AnalysedRun, *, lines: bool = True, data: bool = False) -> tuple[dict[str, Any], str]:
    """Gather what the page shows.

    Parameters
    ----------
    run : AnalysedRun
        A capture or a run folder.
    lines : bool
        With the control lines as waveforms.
    data : bool
        With the data words of all data phases.

    Returns
    -------
    about : dict
        Names, axes and columns of the tables, and what is not shown and why.
    packed : str
        The columns' bytes, gzipped, as base64.
    """
    packer = Packer()
    notes: list[str] = []
    # The frames come first: they put captures without a stated offset on the run's axis.
    frames = _or_reason(lambda: run.frames, "frames, DMA bursts and register accesses", notes)
    buses = [_bus(run, bus, packer, data) for bus in run.buses.values()]
    for bus in buses:
        if frames is not None:
            traffic = frames.hosts[bus["name"]]
            bus["bursts"] = _frame(packer, traffic.bursts, schema.BURSTS)
            bus["pieces"] = _frame(packer, traffic.pieces[["burst", "transaction"]], schema.PIECES)
            bus["csr_accesses"] = _frame(packer, traffic.csr_accesses, schema.CSR_ACCESSES)
        if lines:
            bus["waves"] = _waves(run[bus["name"]], packer, notes)
    about = {
        "format": 1,
        "version": __version__,
        "title": run.path.name,
        "simulated": run.folder is not None and run.folder.simulated,
        "buses": buses,
        "frames": _frame(packer, frames.table, schema.FRAMES) if frames is not None and len(frames) else None,
        "findings": list(frames.findings) if frames is not None else [],
        "notes": notes,
        "commands": list(schema.COMMAND_NAMES),
    }
    return about, packer.text()


def _or_reason(make: Callable[[], Any], what: str, notes: list[str]) -> Any:
    """Return what is made, or None with the reason among the notes."""
    try:
        return make()
    except PciTraceError as error:
        notes.append(f"Not shown: {what}. {error}")
        return None


def _bus(run: AnalysedRun, bus: Bus, packer: Packer, data: bool) -> dict[str, Any]:
    """Return what is shown of one bus whether or not a NIC is known on it."""
    table = bus.arrow("transactions")
    us_per_sample = _us_per_sample(bus)
    for name in ("first_data", "last_data"):
        samples = pa.array(
            pd.Series(table[f"{name}_us"].to_pandas() / us_per_sample).round(), pa.int64(), from_pandas=True
        )
        table = table.append_column(name, samples)
    stored = table.drop_columns([*_NOT_SHOWN, "transaction", "start_us", "end_us", "first_data_us", "last_data_us"])
    described = schema.Table(
        "transactions",
        schema.TRANSACTIONS.row,
        (
            *schema.TRANSACTIONS.columns,
            schema.Column("first_data", "uint64", "samples", "Sample of the first clock in which data moved.", True),
            schema.Column("last_data", "uint64", "samples", "Sample of the last clock in which data moved.", True),
        ),
    )
    start, slope = _axis(run, bus.name)
    problems = on_axis(run, bus.name, bus.problems)
    return {
        "name": bus.name,
        "clock_mhz": bus.mean_clock_mhz,
        "us_per_sample": us_per_sample,
        "axis": {"start_us": start, "slope": slope},
        "lines": list(bus.lines),
        "transactions": packer.table(stored, described, _PLUS),
        "problems": _frame(packer, problems, schema.PROBLEMS),
        "data_phases": _frame(packer, on_axis(run, bus.name, bus.data_phases), schema.DATA_PHASES) if data else None,
    }


def _waves(bus: Bus, packer: Packer, notes: list[str]) -> list[dict[str, Any]]:
    """Return the lines that are drawn: all but AD, C/BE# and PAR, whose words are in the tables."""
    wiring = bus.capture.wiring.bus(bus.name)
    shown = [name for name in bus.lines if name in wiring.lines and not _WORDS.fullmatch(name)]
    if bus.clock_mhz is not None and bus.capture.clock_mhz is None:
        edges = 2 * bus.clock_mhz * (bus.capture.duration_s or 0) * 1e6
        if edges > _MOST_EDGES:
            shown.remove("CLK")
            notes.append(f"Not shown: {bus.name}'s CLK, which changes more than {_MOST_EDGES:,} times.")
    waves = bus.capture.waves(wiring, shown)
    return [
        {"line": name, "changes": packer.column(pa.array(stamps)), "levels": packer.column(pa.array(levels))}
        for name, (stamps, levels) in zip(shown, waves, strict=True)
    ]


def _us_per_sample(bus: Bus) -> float:
    """Return the time of a sample, or of a tick of a capture that lists changes."""
    if bus.capture.tick_s is not None:
        return bus.capture.tick_s * 1e6
    rate = bus.capture.clock_mhz * 1e6 if bus.capture.clock_mhz else bus.capture.rate_hz
    assert rate is not None, "without a rate nothing is decoded"
    return 1e6 / rate


def _axis(run: AnalysedRun, name: str) -> tuple[float, float]:
    """Return where a bus's time 0 is on the run's axis (us), and how fast its time runs there."""
    if run.folder is None:
        return 0.0, 1.0
    number = run.folder.run["hosts"][name]["capture"]
    start, million = run.folder.run_time_us(number, pd.Series([0.0, 1e6]))
    return float(start), float((million - start) / 1e6)


def _frame(packer: Packer, frame: pd.DataFrame, described: schema.Table) -> dict[str, Any]:
    shown = frame.drop(columns=[name for name in ("bus",) if name in frame])
    return packer.table(pa.Table.from_pandas(shown, preserve_index=False), described)
