"""What a view shows: the tables of a run, put on one time axis, as columns that a page can hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace import __version__, _kernel, schema
from pcitrace.analysis import frames as frames_of
from pcitrace.analysis import on_axis
from pcitrace.errors import PciTraceError
from pcitrace.view.packing import Packer, Part

if TYPE_CHECKING:
    from pcitrace.run import Bus, Run

__all__ = ["KINDS", "contents"]

_NOT_SHOWN = ("bus", "command_name")
"""The bus is the lane's, the command's name follows from its number."""

_DRAWN = ("start_sample", "clocks", "end_sample", "command", "termination")
"""What of transactions is drawn before their details are there."""

_MOVED = ("transaction", "time_us")
"""The same of data phases."""

Waves = dict[str, tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]]
"""Of each line the samples at which it changes, and its levels from there on."""

_ROWS_A_BIN = 32
_BINS = (11, 17)
"""Of the overview: powers of two, the least and the most."""

_MEMORY, _READS = (6, 7, 12, 14, 15), (0, 2, 6, 10, 12, 14)
KINDS = np.array([(0 if code in _MEMORY else 2) + (0 if code in _READS else 1) for code in range(16)])
"""Of each command: 0 memory read, 1 memory write, 2 other read, 3 other write."""

_NO_COMMAND = 4
_WORDS = re.compile(r"(AD|CBE|PAR)\d*#?")
_MOST_EDGES = 2_000_000


def _expected(clock_samples: float) -> dict[str, dict[str, float]]:
    """Return what each column of transactions is likely to be, from the ones before it."""
    return {
        "start_clk": {"start_sample": 1 / clock_samples},
        "end_sample": {"start_sample": 1, "clocks": clock_samples},
        "wait_clks": {"clocks": 1, "data_phases": -1},
        "bytes": {"data_phases": 4},
        "last_data": {"end_sample": 1},
        "first_data": {"last_data": 1, "data_phases": -clock_samples},
    }


def contents(run: Run, *, lines: bool = True, data: bool = False) -> tuple[dict[str, Any], str]:
    """Gather what the page shows.

    Parameters
    ----------
    run : Run
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
        The columns' bytes, gzipped, as base64: the parts of :class:`pcitrace.view.packing.Part`, commas between them.

    Raises
    ------
    WiringError
        There is no bus: nothing could be shown.
    """
    if not run.buses:
        _ = run.bus  # says what is missing
    packer = Packer()
    notes: list[str] = []
    # The frames come first: they put captures without a stated offset on the run's axis.
    frames = _or_reason(lambda: frames_of(run), "frames, DMA bursts and register accesses", notes)
    waves = {bus.name: _waves(bus, notes) for bus in run.buses.values()} if lines else {}
    buses = [_bus(run, bus, packer, data, waves.get(bus.name, {})) for bus in run.buses.values()]
    notes += [
        f"On {bus['name']} there is no transaction in this capture." for bus in buses if bus["transactions"]["n"] == 0
    ]
    for bus in buses:
        if frames is not None:
            traffic = frames.hosts[bus["name"]]
            bus["bursts"] = _frame(packer, traffic.bursts, schema.BURSTS)
            bus["pieces"] = _frame(packer, traffic.pieces[["burst", "transaction"]], schema.PIECES)
            bus["csr_accesses"] = _frame(packer, traffic.csr_accesses, schema.CSR_ACCESSES)
        if lines:
            bus["waves"] = _packed_waves(waves[bus["name"]], bus["overview"], packer)
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
        "kinds": KINDS.tolist(),
    }
    return about, packer.text()


def _or_reason(make: Callable[[], Any], what: str, notes: list[str]) -> Any:
    """Return what is made, or None with the reason among the notes."""
    try:
        return make()
    except PciTraceError as error:
        notes.append(f"Not shown: {what}. {error}")
        return None


def _bus(run: Run, bus: Bus, packer: Packer, data: bool, waves: Waves) -> dict[str, Any]:
    """Return what is shown of one bus whether or not a NIC is known on it."""
    table = bus.arrow("transactions")
    us_per_sample = _us_per_sample(bus)
    for name in ("last_data", "first_data"):
        table = table.append_column(name, _samples(table[f"{name}_us"], us_per_sample))
    stored = table.drop_columns([*_NOT_SHOWN, "transaction", "start_us", "end_us", "first_data_us", "last_data_us"])
    order = ["start_sample", "start_clk", "clocks", "end_sample", "data_phases"]
    stored = stored.select([*order, *(name for name in stored.column_names if name not in order)])
    overview = _overview(bus, table, waves, packer)
    clock_samples = 1 / (bus.mean_clock_mhz * us_per_sample) if bus.mean_clock_mhz else 1.0
    described = replace(
        schema.TRANSACTIONS,
        columns=(
            *schema.TRANSACTIONS.columns,
            schema.Column("first_data", "uint64", "samples", "Sample of the first clock in which data moved.", True),
            schema.Column("last_data", "uint64", "samples", "Sample of the last clock in which data moved.", True),
        ),
    )
    start, slope = _axis(run, bus.name)
    problems = bus.arrow("problems")
    seen = _samples(problems["time_us"], us_per_sample)
    problems = problems.append_column("sample", seen).drop_columns(["bus", "time_us"])
    about_problems = replace(
        schema.PROBLEMS,
        columns=(
            *schema.PROBLEMS.columns,
            schema.Column("sample", "uint64", "samples", "Sample at which it was first seen.", True),
        ),
    )
    return {
        "name": bus.name,
        "clock_mhz": bus.mean_clock_mhz,
        "us_per_sample": us_per_sample,
        "axis": {"start_us": start, "slope": slope},
        "lines": list(bus.lines),
        "overview": overview,
        "transactions": packer.table(stored, described, _expected(clock_samples), _DRAWN),
        "problems": packer.table(
            problems, about_problems, {"sample": {"first_clk": clock_samples}, "last_clk": {"first_clk": 1}}
        ),
        "data_phases": _frame(packer, on_axis(run, bus.name, bus.data_phases), schema.DATA_PHASES, _MOVED)
        if data
        else None,
    }


def _samples(times_us: pa.ChunkedArray, us_per_sample: float) -> pa.Array:
    """Return times as the samples that they are of."""
    return pc.round(pc.divide(times_us.combine_chunks(), us_per_sample)).cast(pa.int64())


def _overview(bus: Bus, table: pa.Table, waves: Waves, packer: Packer) -> dict[str, Any]:
    """Return the time that transactions cover, of each kind, in equal bins of all the time that is shown."""
    start, end = (np.asarray(table[name]).astype(np.uint64) for name in ("start_sample", "end_sample"))
    whole = max(round((bus.capture.duration_s or 0) * 1e6 / _us_per_sample(bus)), 1)
    begins = [int(stamps[0]) for stamps, _ in waves.values() if len(stamps)]
    if begins or not len(start):
        # What lines do before the first transaction and after the last one is shown, too.
        first, last = min(begins, default=0), max(whole, *(int(one.max(initial=0)) + 1 for one in (start, end)))
    else:
        first, last = int(start[0]), int(end.max()) + 1
    count = 1 << min(max((len(start) // _ROWS_A_BIN).bit_length(), _BINS[0]), _BINS[1])
    kind = np.append(KINDS, _NO_COMMAND)[table["command"].fill_null(len(KINDS)).to_numpy()].astype(np.uint8)
    covered = _kernel.coverage(start, end, kind, _NO_COMMAND + 1, (first, last, count))
    planes = np.frombuffer(covered, dtype=np.uint8).reshape(-1, 2).T.tobytes()
    return {"first": first, "last": last, "bins": count, "at": packer.take(planes, Part.OVERVIEW)}


def _waves(bus: Bus, notes: list[str]) -> Waves:
    """Return the changes of the lines that are drawn: all but AD, C/BE# and PAR, whose words are in the tables."""
    wiring = bus.wiring
    shown = [name for name in bus.lines if name in wiring.lines and not _WORDS.fullmatch(name)]
    if bus.clock_mhz is not None and bus.capture.clock_mhz is None:
        edges = 2 * bus.clock_mhz * (bus.capture.duration_s or 0) * 1e6
        if edges > _MOST_EDGES:
            shown.remove("CLK")
            notes.append(f"Not shown: {bus.name}'s CLK, which changes more than {_MOST_EDGES:,} times.")
    return dict(zip(shown, bus.capture.waves(wiring, shown), strict=True))


def _packed_waves(waves: Waves, overview: dict[str, Any], packer: Packer) -> list[dict[str, Any]]:
    bins = overview["first"], overview["last"], overview["bins"]
    return [
        {
            "line": name,
            "overview": packer.take(_kernel.line_levels(stamps, levels, bins), Part.OVERVIEW),
            "changes": packer.column(pa.array(stamps), Part.LINES),
            "levels": packer.column(pa.array(levels), Part.LINES),
        }
        for name, (stamps, levels) in waves.items()
    ]


def _us_per_sample(bus: Bus) -> float:
    """Return the time of a sample, or of a tick of a capture that lists changes."""
    if bus.capture.tick_s is not None:
        return bus.capture.tick_s * 1e6
    rate = bus.capture.clock_mhz * 1e6 if bus.capture.clock_mhz else bus.capture.rate_hz
    assert rate is not None, "without a rate nothing is decoded"
    return 1e6 / rate


def _axis(run: Run, name: str) -> tuple[float, float]:
    """Return where a bus's time 0 is on the run's axis (us), and how fast its time runs there."""
    if run.folder is None:
        return 0.0, 1.0
    number = run.folder.run["hosts"][name]["capture"]
    start, million = run.folder.run_time_us(number, pd.Series([0.0, 1e6]))
    return float(start), float((million - start) / 1e6)


def _frame(
    packer: Packer, frame: pd.DataFrame, described: schema.Table, drawn: Collection[str] | None = None
) -> dict[str, Any]:
    shown = frame.drop(columns=[name for name in ("bus",) if name in frame])
    return packer.table(pa.Table.from_pandas(shown, preserve_index=False), described, drawn=drawn)
