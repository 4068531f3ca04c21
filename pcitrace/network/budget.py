"""Where a slope comes from: the terms of wires, switches and buses beside the measured one, and Equation 2.1's t_sw.

Source: R. Hughes-Jones and F. Saka, ATLAS note, 2000, equation 2.1 and section 3: 0.08 + 0.0099 + 0.008 + 0.00775
us/byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from uncertainties import UFloat

from pcitrace.errors import PciTraceError
from pcitrace.network.lines import LatencyLine
from pcitrace.network.parameter import Parameter, measured, unknown
from pcitrace.network.paths import devices
from pcitrace.network.result import Result

if TYPE_CHECKING:
    from pcitrace.estimate import Estimate

__all__ = ["BUS_CONSTANTS", "BusConstants", "slope_budget", "with_bus", "with_paths"]

BUS_CONSTANTS = ("t_nic_us", "R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte")
"""Terms of Equation 2.1 that the buses tell."""

HEADER_AND_CHECK_BYTES = 26
"""Preamble 8, header 14, check sequence 4: what Equation 2.1 adds to the user bytes on the wire."""

ON_BUS_BYTES = 14


def slope_budget(terms: Mapping[str, UFloat | float], line: LatencyLine | None = None) -> pd.DataFrame:
    """Return contributions to a slope beside the measured one.

    Parameters
    ----------
    terms : mapping of str to number
        Contributions in us/byte, in the order of the path: each wire's rate, each switch, each bus.
    line : LatencyLine, optional
        What was measured.

    Returns
    -------
    pandas.DataFrame
        Rows: the terms, ``sum``, and with a line ``measured`` and ``difference``; columns ``slope_us_per_byte``,
        ``sigma``.

    Examples
    --------
    >>> table = slope_budget({"sending bus": 0.00775, "gigabit": 0.008, "switch": 0.0099, "100 Mbit": 0.08})
    >>> print(f"{table.loc['sum', 'slope_us_per_byte']:.5f}")
    0.10565
    """
    from uncertainties import ufloat

    parts = {name: one if isinstance(one, UFloat) else ufloat(one, 1e-15) for name, one in terms.items()}
    parts["sum"] = sum(parts.values())
    if line is not None:
        parts["measured"] = line.slope_us_per_byte
        parts["difference"] = line.slope_us_per_byte - parts["sum"]
    rows = {name: (one.nominal_value, one.std_dev if one.std_dev > 1e-12 else 0.0) for name, one in parts.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["slope_us_per_byte", "sigma"])


BusConstants = Callable[[Path], Mapping[str, "Estimate"]]
"""Gives the constants that the buses of a run folder tell; PciTraceError if they tell none."""


def with_bus(one: Result, bus_constants: BusConstants | None) -> Result:
    """Return a result with what the buses that were recorded with it add: t_sw, and the budget of the slope.

    The table `bus_constants` keeps what they told.
    """
    measurement = one.measurement
    if measurement is None or one.latency is None or one.latency.best is None or not measurement.run.get("captures"):
        return one
    if not measurement.run.get("frames_on_bus", True):
        return _without(one, "the captures do not show these frames")
    rate = measurement.wire.us_per_byte
    if rate is None:
        return _without(one, "the rate of the link is not known: run.toml [link] rate_mbit_s")
    if measurement.path.kind not in ("", "direct"):
        return _without(one, "a switch lies on the path: its part is not the hosts' software; measure the direct path")
    if bus_constants is None:
        return _without(one, "the buses were not analysed")
    try:
        found = bus_constants(measurement.folder)
    except PciTraceError as error:
        return _without(one, f"the buses tell no constants: {error}")
    missing = [name for name in BUS_CONSTANTS if found[name].value is None]
    if missing:
        return _without(one, f"the buses do not tell {', '.join(missing)}: {found[missing[0]].reason}")
    return _derived(one, found, rate)


def with_paths(results: Sequence[Result], compared: Sequence[Result]) -> list[Result]:
    """Return results with the budget of their slope as far as the paths tell it: the wire, each switch by subtraction
    (its second wire in it), and the buses where a direct path of the same call has them.

    What is left, the row ``difference``, is the hosts'.
    """
    switches = {one.path: one.parameters["slope_us_per_byte"] for one in compared if one.kind == "subtraction"}
    told = [one.tables["bus_constants"] for one in results if "bus_constants" in one.tables]
    buses = told[0] if len(told) == 1 else None
    return [_with_path(one, switches, buses) for one in results]


def _with_path(one: Result, switches: Mapping[str, Parameter], buses: pd.DataFrame | None) -> Result:
    from uncertainties import ufloat

    measurement, latency = one.measurement, one.latency
    if measurement is None or latency is None or latency.best is None or "slope_budget" in one.tables:
        return one
    rate = measurement.wire.us_per_byte
    if rate is None or one.parameters["slope_us_per_byte"].value is None or not measurement.path.stated:
        return one
    terms: dict[str, UFloat | float] = {"wire": rate}
    for name in devices(one):
        known = switches.get(name)
        if known is None or known.value is None:
            return one
        # A path of two equal switches has it twice.
        terms[name] = terms.get(name, 0.0) + ufloat(known.value, known.sigma or 0.0)
    if buses is not None:
        send, receive = (ufloat(*buses.loc[name, ["value", "sigma"]]) for name in BUS_CONSTANTS[1:])
        terms = {"sending bus": send, **terms, "receiving bus": receive}
    return replace(one, tables={**one.tables, "slope_budget": slope_budget(terms, latency.best)})


def _derived(one: Result, found: Mapping[str, Estimate], rate: float) -> Result:
    line = one.latency.best if one.latency is not None else None
    assert line is not None
    t_nic, send, receive = (_number(found[name]) for name in BUS_CONSTANTS)
    rest = 2 * t_nic + HEADER_AND_CHECK_BYTES * rate + ON_BUS_BYTES * (send + receive)
    t_sw = (line.intercept_us - rest) / 2
    table = slope_budget({"sending bus": send, "wire": rate, "receiving bus": receive}, line)
    parameters = {**one.parameters, "t_sw_us": measured("t_sw_us", t_sw, line.n, "Equation 2.1, from the intercept")}
    rows = {name: (found[name].value, found[name].sigma) for name in BUS_CONSTANTS}
    told = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "sigma"])
    return replace(one, parameters=parameters, tables={**one.tables, "slope_budget": table, "bus_constants": told})


def _without(one: Result, reason: str) -> Result:
    return replace(one, parameters={**one.parameters, "t_sw_us": unknown("t_sw_us", reason)})


def _number(estimate: Estimate) -> UFloat:
    from uncertainties import ufloat

    assert estimate.value is not None
    return ufloat(estimate.value, max(estimate.sigma or 0.0, 1e-12))
