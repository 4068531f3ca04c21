"""The traffic of a bus by initiator, by target, by command and by place, and what waited longest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.columns import integers, strings
from pcitrace.facts import PAGE_BYTES
from pcitrace.instrument.names import Names
from pcitrace.stats import why_no_retries

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["ORDERS", "VIEWS", "named", "terminations", "views"]

VIEWS = ("initiators", "targets", "commands", "places", "terminations")
"""What transactions are put together by."""

ORDERS = ("clocks", "transactions", "bytes", "wait_clks", "retries")
"""What the rows of a view may be ordered by."""

_INTERRUPT_ACKNOWLEDGE, _SPECIAL_CYCLE, _CONFIG = 0x0, 0x1, (0xA, 0xB)


def named(bus: Bus, table: pa.Table, grants: Mapping[str, str] | None = None) -> pa.Table:
    """Return transactions of a bus with ``initiator_name``, ``target`` and ``place``.

    Parameters
    ----------
    bus : pcitrace.Bus
    table : pyarrow.Table
        Some of its transactions.
    grants : mapping of str to str, optional
        GNT# line -> name of the initiator.
    """
    names = Names(grants)
    has_address = {"AD0", "CBE0#"} <= set(bus.lines)
    if has_address:
        names.learn(bus.arrow("transactions"), bus.arrow("data_phases"))
    code, lines = strings(table, "initiator")
    called = pa.array([names.initiator(line) for line in lines], pa.string())
    initiator = pa.DictionaryArray.from_arrays(pa.array(code, mask=code < 0), called).cast(pa.string())
    target = names.targets(table, everywhere=True).cast(pa.string())
    return (
        table.append_column("initiator_name", initiator)
        .append_column("target", target)
        .append_column("place", _places(names, table, target))
    )


def _places(names: Names, table: pa.Table, target: pa.Array) -> pa.Array:
    """The window of each address, ``eth0 BAR0``; where none is known the page, ``00300000``; ``eth0 configuration``."""
    window, _ = names.locate(table, everywhere=True)
    address, command = integers(table, "address"), integers(table, "command")
    # What AD carries in their address phase means nothing (PCI 2.3, section 3.2.2).
    nowhere = np.isin(command, (_INTERRUPT_ACKNOWLEDGE, _SPECIAL_CYCLE))
    page = np.where((address >= 0) & ~nowhere, address & ~(PAGE_BYTES - 1), -1)
    unique, number = np.unique(page, return_inverse=True)
    pages = [None if one < 0 else f"{int(one):08x}" for one in unique]
    windows = [f"{one.device} {one.name}" for one in names.windows]
    code = np.where(window >= 0, window, len(windows) + number)
    places = pa.array([*windows, *pages], pa.string()).take(pa.array(code))
    configuration = pc.binary_join_element_wise(target, "configuration", " ")
    return pc.if_else(pa.array(np.isin(command, _CONFIG)), configuration, places)


def views(table: pa.Table, clocks: Mapping[str, Any], by: str = "clocks") -> dict[str, list[dict[str, Any]]]:
    """Put transactions together.

    Parameters
    ----------
    table : pyarrow.Table
        Of :func:`named`.
    clocks : mapping
        The accounting of the whole capture (``schema.CLOCKS``): shares are of its clocks, rates of its time.
    by : str
        What the rows are ordered by (:data:`ORDERS`), most first.

    Returns
    -------
    dict
        By view (:data:`VIEWS`) rows with ``name`` (None: whose they are is not known; no row at all where nothing is
        known), ``transactions``, ``data_phases``, ``bytes``, ``clocks``,
        ``wait_clks``, ``retries`` (None where STOP# or DEVSEL# was not captured), ``utilisation`` (clocks of these
        transactions over all clocks whose state is known),
        ``efficiency`` (clocks with data over these), ``throughput_mb_s``.
        ``slowest``: the transactions that waited longest, with ``transaction``, ``time_us``, ``initiator``, ``target``,
        ``command``, ``address``, ``wait_clks``.
    """
    retried = pc.equal(table["termination"], "retry").cast(pa.int64())
    if why_no_retries(clocks) is not None:
        retried = pa.nulls(len(table), pa.int64())
    table = table.append_column("retried", retried)
    keys = ("initiator_name", "target", "command_name", "place", "termination")
    known = clocks["total"] - clocks["unknown"]
    time_us = clocks["end_us"] - clocks["start_us"]
    found = {
        view: sorted(_grouped(table, key, known, time_us), key=lambda one: (-(one[by] or 0), -(one["clocks"] or 0)))
        for view, key in zip(VIEWS, keys, strict=True)
    }
    return {**found, "slowest": _slowest(table)}


def _grouped(table: pa.Table, key: str, known: int, time_us: float) -> list[dict[str, Any]]:
    sums = [(name, "sum") for name in ("data_phases", "bytes", "clocks", "wait_clks", "retried")]
    plain = table.set_column(table.column_names.index(key), key, table[key].cast(pa.string()))
    rows = plain.group_by(key, use_threads=False).aggregate([([], "count_all"), *sums]).to_pylist()
    return [
        {
            "name": one[key],
            "transactions": one["count_all"],
            "data_phases": one["data_phases_sum"],
            "bytes": one["bytes_sum"],
            "clocks": one["clocks_sum"],
            "wait_clks": one["wait_clks_sum"],
            "retries": one["retried_sum"],
            "utilisation": one["clocks_sum"] / known if known else None,
            "efficiency": one["data_phases_sum"] / one["clocks_sum"] if one["clocks_sum"] else None,
            "throughput_mb_s": one["bytes_sum"] / time_us if time_us > 0 else None,
        }
        for one in rows
        if any(other[key] is not None for other in rows)
    ]


def terminations(table: pa.Table) -> dict[str, dict[str, dict[str, int]]]:
    """How transactions ended, by initiator and by target: name -> termination -> count.

    Parameters
    ----------
    table : pyarrow.Table
        Of :func:`named`.
    """
    found: dict[str, dict[str, dict[str, int]]] = {"initiators": {}, "targets": {}}
    for view, key in (("initiators", "initiator_name"), ("targets", "target")):
        plain = pa.table({"name": table[key].cast(pa.string()), "ended": table["termination"].cast(pa.string())})
        for one in plain.group_by(["name", "ended"], use_threads=False).aggregate([([], "count_all")]).to_pylist():
            if one["name"] is not None:
                found[view].setdefault(one["name"], {})[one["ended"]] = one["count_all"]
    return found


def _slowest(table: pa.Table) -> list[dict[str, Any]]:
    """All with any wait, the longest first; at most a thousand."""
    order = pc.sort_indices(table, [("wait_clks", "descending"), ("start_us", "ascending")])[:1000]
    columns = ["transaction", "start_us", "initiator_name", "target", "command_name", "address", "wait_clks"]
    rows = table.select(columns).take(order).to_pylist()
    return [
        {
            "transaction": one["transaction"],
            "time_us": one["start_us"],
            "initiator": one["initiator_name"],
            "target": one["target"],
            "command": one["command_name"],
            "address": one["address"],
            "wait_clks": one["wait_clks"],
        }
        for one in rows
        if one["wait_clks"]
    ]
