"""What happened on a bus, counted: its use, commands, terminations, bursts, latencies, retries and throughput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pcitrace.records import records
from pcitrace.schema import Termination

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from pcitrace.columns import Floats, Integers
    from pcitrace.run import Bus
    from pcitrace.traffic import Traffic

__all__ = ["bus_statistics", "over_time", "traffic_statistics", "why_no_retries", "window_records"]

_WINDOWS = 10
"""About so many windows show how the use of a bus changes."""


COLUMNS = (
    "start_us",
    "end_us",
    "first_data_us",
    "clocks",
    "data_phases",
    "bytes",
    "command_name",
    "termination",
    "initiator",
)
"""Columns of transactions that are counted."""


def bus_statistics(bus: Bus, chosen: pa.Table | None = None) -> dict[str, Any]:
    """Count what happened on a bus.

    Parameters
    ----------
    bus : pcitrace.Bus
    chosen : pyarrow.Table, optional
        Only these of its transactions (:data:`COLUMNS`); problems and clocks are those of all.

    Returns
    -------
    dict
        ``transactions``, ``problems``: rows of these tables.
        ``clocks``: the accounting of the whole capture (``schema.CLOCKS``).
        ``commands``, ``terminations``, ``initiators``: value -> count.
        ``problem_kinds``: kind -> how often it was seen, over all its rows.
        ``burst_data_phases``, ``burst_bytes``, ``first_data_clks``: n, min, median, mean, max over the transactions
        that moved data; the last counts from the address phase to the first data phase.
        ``retry_rate``: retries over all transactions (``per_attempt``), over those that moved data
        (``per_completed``), and ``per_second``; null where retries cannot be told (:func:`why_no_retries`).
        ``throughput_is_upper_bound``: whether bytes had to be counted without C/BE#.
    """
    import numpy as np
    import pyarrow as pa

    from pcitrace.columns import floats, integers

    if chosen is None:
        chosen = pa.table(bus.capture.decoder.columns(bus.spec, COLUMNS, coded=True))
    problems = bus.problems
    [clocks] = records(bus.clocks())
    moved = integers(chosen, "data_phases") > 0
    start_us = floats(chosen, "start_us")[moved]
    # A transaction is its own ruler: this is exact where the clock drifts, and needs no frequency.
    share = floats(chosen, "first_data_us")[moved] - start_us
    with np.errstate(invalid="ignore", divide="ignore"):
        share /= floats(chosen, "end_us")[moved] - start_us
    first_data_clks = np.round(share * (integers(chosen, "clocks")[moved] - 1))
    terminations = _counts(chosen["termination"])
    completed = int(np.count_nonzero(moved))
    return {
        "transactions": chosen.num_rows,
        "problems": len(problems),
        "clocks": clocks,
        "commands": _counts(chosen["command_name"]),
        "terminations": terminations,
        "initiators": _counts(chosen["initiator"]),
        "problem_kinds": {str(k): int(n) for k, n in problems.groupby("kind")["count"].sum().items()},
        "burst_data_phases": _distribution(integers(chosen, "data_phases")[moved]),
        "burst_bytes": _distribution(integers(chosen, "bytes")[moved]),
        "first_data_clks": _distribution(first_data_clks),
        "retry_rate": _retry_rate(terminations.get(Termination.RETRY, 0), chosen.num_rows, completed, clocks),
        "throughput_is_upper_bound": not clocks["bytes_exact"],
    }


def window_records(bus: Bus, window_us: float) -> list[dict[str, Any]]:
    """The clock accounting of every window of a bus, as plain values (``schema.CLOCKS``)."""
    return records(bus.clocks(window_us=window_us))


def over_time(bus: Bus) -> list[dict[str, Any]]:
    """The clock accounting of about ten windows of a bus, of a clock at least; none of a pipe, which is read once."""
    [whole] = records(bus.clocks())
    span = whole["end_us"] - whole["start_us"]
    windows = min(_WINDOWS, whole["total"])
    if bus.capture.decoder.together or span <= 0 or not windows:
        return []
    # A little longer: the last clock is no window of its own.
    return window_records(bus, span / windows * (1 + 1e-9))


def traffic_statistics(traffic: Traffic) -> dict[str, Any]:
    """Count what a NIC had to do with the traffic of a bus.

    Parameters
    ----------
    traffic : pcitrace.traffic.Traffic

    Returns
    -------
    dict
        ``csr_accesses``, ``csr_attempts``: counts.
        ``registers``: name -> accesses.
        ``bursts``: kind -> ``n``, ``bytes``, ``pieces``.
        ``unknown``: reason -> transactions that could not be told.
    """
    import pyarrow as pa

    def texts(column: pd.Series[Any]) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(column, pa.string(), from_pandas=True)])

    accesses, bursts = traffic.csr_accesses, traffic.bursts
    sums = bursts.groupby("kind")[["bytes", "pieces"]].sum().to_dict("index")
    return {
        "csr_accesses": len(accesses),
        "csr_attempts": int(accesses["attempts"].sum()),
        "registers": _counts(texts(accesses["register"])),
        "bursts": {
            kind: {"n": n, "bytes": int(sums[kind]["bytes"]), "pieces": int(sums[kind]["pieces"])}
            for kind, n in _counts(texts(bursts["kind"])).items()
        },
        "unknown": dict(traffic.unknown),
    }


def why_no_retries(clocks: Mapping[str, Any]) -> str | None:
    """Say which line is missing to tell a retry from other ends; None where all were captured.

    Parameters
    ----------
    clocks : mapping
        The accounting of the whole capture (``schema.CLOCKS``), in which what a missing line hides is null.
    """
    missing = [line for line, counted in (("STOP#", "stop"), ("DEVSEL#", "decode")) if clocks[counted] is None]
    return f"{', '.join(missing)} not captured" if missing else None


def _retry_rate(retries: int, attempts: int, completed: int, clocks: Mapping[str, Any]) -> dict[str, float | None]:
    """The three ways in which retry rates are published."""
    if why_no_retries(clocks) is not None:
        return dict.fromkeys(("per_attempt", "per_completed", "per_second"))
    seconds = (clocks["end_us"] - clocks["start_us"]) * 1e-6
    return {
        "per_attempt": _ratio(retries, attempts),
        "per_completed": _ratio(retries, completed),
        "per_second": _ratio(retries, seconds),
    }


def _ratio(count: float, of: float) -> float | None:
    return count / of if of > 0 else None


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    """How often each text is there, what is there most often first."""
    rows = column.cast("string").drop_null().value_counts().to_pylist()
    return {one["values"]: one["counts"] for one in sorted(rows, key=lambda one: -one["counts"])}


def _distribution(values: Floats | Integers) -> dict[str, float | int] | None:
    """How whole numbers are spread; NaN is not known."""
    import numpy as np

    known = values[~np.isnan(values)]
    if not len(known):
        return None
    return {
        "n": len(known),
        "min": int(known.min()),
        "median": float(np.median(known)),
        "mean": float(known.mean()),
        "max": int(known.max()),
    }
