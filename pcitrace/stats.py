"""What happened on a bus, counted: its use, commands, terminations, bursts, latencies, retries and throughput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pcitrace.records import records
from pcitrace.schema import Termination

if TYPE_CHECKING:
    import pandas as pd

    from pcitrace.run import Bus
    from pcitrace.traffic import Traffic

__all__ = ["bus_statistics", "over_time", "traffic_statistics", "why_no_retries", "window_records"]

_WINDOWS = 10
"""About so many windows show how the use of a bus changes."""


def bus_statistics(bus: Bus, chosen: pd.DataFrame | None = None) -> dict[str, Any]:
    """Count what happened on a bus.

    Parameters
    ----------
    bus : pcitrace.Bus
    chosen : pandas.DataFrame, optional
        Only these of its transactions; problems and clocks are those of all.

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
    transactions = bus.transactions if chosen is None else chosen
    problems = bus.problems
    [clocks] = records(bus.clocks())
    moved = transactions[transactions["data_phases"] > 0]
    # A transaction is its own ruler: this is exact where the clock drifts, and needs no frequency.
    span = moved["end_us"] - moved["start_us"]
    first_data_clks = ((moved["first_data_us"] - moved["start_us"]) / span * (moved["clocks"] - 1)).round()
    return {
        "transactions": len(transactions),
        "problems": len(problems),
        "clocks": clocks,
        "commands": _counts(transactions["command_name"]),
        "terminations": _counts(transactions["termination"]),
        "initiators": _counts(transactions["initiator"]),
        "problem_kinds": {str(k): int(n) for k, n in problems.groupby("kind")["count"].sum().items()},
        "burst_data_phases": _distribution(moved["data_phases"]),
        "burst_bytes": _distribution(moved["bytes"]),
        "first_data_clks": _distribution(first_data_clks),
        "retry_rate": _retry_rate(transactions, clocks),
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
    accesses, bursts = traffic.csr_accesses, traffic.bursts
    sums = bursts.groupby("kind")[["bytes", "pieces"]].sum().to_dict("index")
    return {
        "csr_accesses": len(accesses),
        "csr_attempts": int(accesses["attempts"].sum()),
        "registers": _counts(accesses["register"]),
        "bursts": {
            kind: {"n": n, "bytes": int(sums[kind]["bytes"]), "pieces": int(sums[kind]["pieces"])}
            for kind, n in _counts(bursts["kind"]).items()
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


def _retry_rate(transactions: pd.DataFrame, clocks: Mapping[str, Any]) -> dict[str, float | None]:
    """The three ways in which retry rates are published."""
    if why_no_retries(clocks) is not None:
        return dict.fromkeys(("per_attempt", "per_completed", "per_second"))
    retries = int((transactions["termination"] == Termination.RETRY).sum())
    completed = int((transactions["data_phases"] > 0).sum())
    seconds = (clocks["end_us"] - clocks["start_us"]) * 1e-6
    return {
        "per_attempt": _ratio(retries, len(transactions)),
        "per_completed": _ratio(retries, completed),
        "per_second": _ratio(retries, seconds),
    }


def _ratio(count: float, of: float) -> float | None:
    return count / of if of > 0 else None


def _counts(column: pd.Series[Any]) -> dict[str, int]:
    counted = column.dropna().value_counts()
    return {str(value): int(count) for value, count in counted.items()}


def _distribution(column: pd.Series[Any]) -> dict[str, float | int] | None:
    known = column.dropna()
    if known.empty:
        return None
    return {
        "n": len(known),
        "min": int(known.min()),
        "median": float(known.median()),
        "mean": float(known.mean()),
        "max": int(known.max()),
    }
