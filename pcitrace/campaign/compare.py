"""Runs side by side: their numbers, and what differs in their set-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pcitrace.campaign.errors import CampaignError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["differences", "plot", "side_by_side", "swept"]

IGNORED = ("test.created", "test.title")
"""Differ in every run, and say nothing of the set-up."""

SEEDS = ("test.seed", "test.simulation.seed")
"""What makes simulated runs differ by chance alone: nothing is drawn against it."""


def side_by_side(table: pd.DataFrame, constants: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a row a number and a column a run.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`pcitrace.campaign.collect.constants` gives it.
    constants : sequence of str, optional
        Only these; default: those with an uncertainty in any run, or without a value in all.

    Returns
    -------
    pandas.DataFrame
        ``constant``, ``host``, ``unit``, and of each run ``RUN`` and ``RUN sigma``; null where it is not known.
    """
    if constants is not None:
        unknown = set(constants) - set(table["constant"])
        if unknown:
            raise CampaignError(f"no run has the number {', '.join(sorted(unknown))}")
        table = table[table["constant"].isin(constants)]
    else:
        has_sigma = table.groupby("constant")["sigma"].transform("count") > 0
        table = table[has_sigma]
    names = short(list(dict.fromkeys(table["run"])))
    keyed = table.assign(host=table["host"].fillna(""), run=table["run"].map(names))
    told = keyed.pivot_table(
        index=["constant", "host"], columns="run", values=["value", "sigma"], aggfunc="first", sort=False
    )
    units = keyed.dropna(subset=["unit"]).groupby("constant")["unit"].first()
    found = pd.DataFrame({"unit": [units.get(name, "") for name, _ in told.index]}, index=told.index)
    for name in names.values():
        for what in ("value", "sigma"):
            column = told[(what, name)].astype("float64") if (what, name) in told else math.nan
            found[name if what == "value" else f"{name} sigma"] = column
    return found.reset_index()


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return what differs in the set-ups: a row a parameter, a column a run.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`pcitrace.campaign.collect.constants` gives it.
    """
    runs = table.drop_duplicates("run").set_index("run")
    names = short(list(runs.index))
    columns = [name for name in runs.columns if str(name).startswith("test.") and name not in IGNORED]
    columns += [name for name in ("card", "bench") if name in runs]
    rows = []
    for name in columns:
        told = runs[name].astype("object")
        if told.nunique(dropna=False) > 1:
            rows.append({"parameter": name} | {names[str(run)]: value for run, value in told.items()})
    return pd.DataFrame(rows, columns=["parameter", *names.values()])


def swept(table: pd.DataFrame) -> str | None:
    """Return the one number that was swept: the column of [sweep], or the only numeric one that differs everywhere."""
    runs = table.drop_duplicates("run")
    candidates: dict[tuple[float, ...], str] = {}
    for name in sorted((str(one) for one in runs.columns), key=len):
        if name.startswith("test.") and name not in (*IGNORED, *SEEDS):
            numbers = _plain(runs[name])
            if numbers.notna().all() and numbers.nunique() == len(runs) > 1:
                # What a simulation was told stands there twice.
                candidates.setdefault(tuple(numbers), name)
                if name == "test.sweep.value":
                    return name
    return next(iter(candidates.values())) if len(candidates) == 1 else None


def _plain(column: pd.Series[Any]) -> pd.Series[float]:
    """Return a column as numbers; a list of one is its number, what is none is NaN."""
    plain = [one[1:-1] if isinstance(one, str) and one[:1] + one[-1:] == "[]" else one for one in column]
    found: pd.Series[float] = pd.to_numeric(pd.Series(plain, column.index, object), errors="coerce")
    return found


def plot(table: pd.DataFrame, constant: str, ax: Axes | None = None, against: str | None = None) -> Axes:
    """Draw one number over the runs, with its uncertainty; against what was swept where something was.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`pcitrace.campaign.collect.constants` gives it.
    constant : str
    ax : matplotlib.axes.Axes, optional
    against : str, optional
        Column of the parameter on the x axis; default: :func:`swept`, else the runs side by side.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    CampaignError
        No run knows the number, or what it shall be drawn against is none.
    """
    from pcitrace.plot.style import axes_for

    known = table[(table["constant"] == constant) & table["value"].notna()]
    if known.empty:
        reasons = table.loc[table["constant"] == constant, "reason"].dropna().unique()
        raise CampaignError(f"{constant}: no run knows it: {'; '.join(map(str, reasons[:2])) or 'no such number'}")
    ax = axes_for(ax, (6.0, 3.4))
    against = against or swept(table)
    names = short(list(dict.fromkeys(table["run"])))
    all_hosts = "all" if known["host"].notna().any() else None
    for marker, (host, rows) in zip(cycle("os^v"), known.groupby(known["host"].fillna("")), strict=False):
        if against is not None:
            rows = rows.assign(x=_plain(rows[against])).sort_values("x")
            if (rows["x"].isna() & rows[against].notna()).any():
                raise CampaignError(f"{against} is no number: {rows.loc[rows['x'].isna(), against].iloc[0]}")
            x: Any = rows["x"].to_numpy()
        else:
            x = [list(names).index(run) for run in rows["run"]]
        y = rows["value"].to_numpy("float64")
        sigma = rows["sigma"].fillna(0.0).to_numpy("float64")
        ax.errorbar(x, y, sigma, fmt=marker + "-" * bool(against), label=host or all_hosts, capsize=3, ms=4)
    if against is None:
        ax.set_xticks(range(len(names)), list(names.values()), rotation=30, ha="right")
    else:
        ax.set_xlabel(_key(table, against))
    unit = next(iter(known["unit"].dropna()), "").replace("us", "µs")
    ax.set_ylabel(f"{constant} ({unit})" if unit else constant)
    if all_hosts:
        ax.legend(title="host", frameon=False)
    if "test.origin" in table and (table["test.origin"] == "simulated").any():
        ax.set_title("simulated", loc="right", color="#9a5b00", fontsize=9)
    return ax


def short(runs: Sequence[str]) -> dict[str, str]:
    """Return short names of runs that are still different: the last parts of their places."""
    for parts in range(1, 20):
        names = {run: "/".join(Path(run).parts[-parts:]) for run in runs}
        if len(set(names.values())) == len(names):
            return names
    return {run: run for run in runs}


def _key(table: pd.DataFrame, against: str) -> str:
    """What a sweep calls the number that it sweeps."""
    if against == "test.sweep.value" and "test.sweep.key" in table:
        return str(table["test.sweep.key"].dropna().iloc[0])
    return against.removeprefix("test.")
