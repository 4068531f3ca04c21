"""The views of ``pcitrace stats``: who uses a bus, how long things take, how transactions end, who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.errors import DecodeError
from pcitrace.instrument.burstlengths import burst_lengths
from pcitrace.instrument.latencies import KINDS, latencies, measure
from pcitrace.instrument.views import VIEWS, named, views
from pcitrace.instrument.views import terminations as terminations_by
from pcitrace.plot.style import DATA, FAINT, INK, WIRE, axes_for, finish
from pcitrace.records import records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pcitrace.run import Bus, Run

__all__ = ["bursts", "delayed", "held_up", "latency", "shares", "terminations", "waits"]

_MOST = 12
"""Rows of a bar chart."""

_COLOURS = {
    "completion": "#0072b2",
    "disconnect_with_data": "#56b4e9",
    "disconnect_without_data": "#009e73",
    "retry": "#e69f00",
    "target_abort": "#d55e00",
    "master_abort": "#000000",
    "special_cycle": "#999999",
}
"""Of Okabe and Ito (2008): told apart without red and green, too."""


def _bus(run: Run, bus: str | None) -> Bus:
    return run.bus if bus is None else run[bus]


def _bars(ax: Axes, names: Sequence[str], parts: Mapping[str, Sequence[float]], colours: Mapping[str, str]) -> None:
    """Draw horizontal bars, each of several parts, the first one on top."""
    left = np.zeros(len(names))
    places = np.arange(len(names))
    for label, lengths in parts.items():
        ax.barh(places, lengths, left=left, color=colours.get(label, INK), label=label.replace("_", " "), height=0.7)
        left += np.asarray(lengths, dtype=float)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    if len(parts) > 1:
        ax.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4)


def shares(run: Run, bus: str | None = None, *, by: str = "initiators", ax: Axes | None = None) -> Axes:
    """Draw who uses the bus: clocks with data and without, by initiator, target, command, place or termination.

    Parameters
    ----------
    run : Run
    bus : str, optional
        Default: the only one.
    by : str
        ``initiators``, ``targets``, ``commands``, ``places`` (windows of addresses) or ``terminations``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    if by not in VIEWS:
        raise DecodeError(f"there is no view {by}; there are {', '.join(VIEWS)}")
    chosen = _bus(run, bus)
    [clocks] = records(chosen.clocks())
    rows = views(named(chosen, chosen.arrow("transactions")), clocks)[by][:_MOST]
    ax = axes_for(ax, (7.0, 1.0 + 0.32 * max(len(rows), 1)))
    parts = {
        "data": [one["data_phases"] for one in rows],
        "waits": [one["wait_clks"] for one in rows],
        "addresses": [max(one["clocks"] - one["data_phases"] - one["wait_clks"], 0) for one in rows],
    }
    names = [one["name"] or "unknown" for one in rows]
    _bars(ax, names, parts, {"data": DATA, "waits": "#e3a49c", "addresses": FAINT})
    ax.set_xlabel("clocks")
    return finish(run, ax)


def latency(run: Run, bus: str | None = None, *, kind: str = "first_data", ax: Axes | None = None) -> Axes:
    """Draw how often something took how many clocks, with its median and its 99th percentile.

    Parameters
    ----------
    run : Run
    bus : str, optional
        Default: the only one.
    kind : str
        ``arbitration``, ``acquisition``, ``first_data``, ``next_data``, ``retry_to_completion`` or
        ``doorbell_to_dma``.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    DecodeError
        There is no such kind, or nothing was measured: the message says why.
    """
    if kind not in KINDS:
        raise DecodeError(f"there is no latency {kind}; there are {', '.join(KINDS)}")
    chosen = _bus(run, bus)
    found = measure(chosen)
    if kind not in found.values_us:
        raise DecodeError(f"{chosen.name}: no {kind.replace('_', ' ')}: {found.reasons[kind]}")
    ax = axes_for(ax, (7.0, 3.0))
    values = found.values_us[kind]
    if found.clock_mhz is not None and np.ptp(found.clks(kind)) < 200:
        clks, counts = np.unique(found.clks(kind), return_counts=True)
        ax.bar(clks / found.clock_mhz, counts, width=0.8 / found.clock_mhz, color=WIRE)
    else:
        ax.hist(values, bins=100, color=WIRE)
    for share, text in ((50, "median"), (99, "p99")):
        at = float(np.percentile(values, share))
        ax.axvline(at, color=INK, lw=0.8, ls=":" if share == 99 else "-", label=f"{text} {at:.3g} µs")
    ax.legend(frameon=False, fontsize="small")
    ax.set_yscale("log")
    ax.set_xlabel(f"{kind.replace('_', ' ')} (µs)")
    ax.set_ylabel("how often")
    return finish(run, ax)


def bursts(run: Run, bus: str | None = None, *, of: str = "bytes", ax: Axes | None = None) -> Axes:
    """Draw how long bursts are, as transactions and as what disconnects cut.

    Parameters
    ----------
    run : Run
    bus : str, optional
        Default: the only one.
    of : str
        ``bytes`` or ``data_phases``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    if of not in ("bytes", "data_phases"):
        raise DecodeError(f"bursts have bytes and data_phases, no {of}")
    rows = burst_lengths(_bus(run, bus).arrow("transactions"))
    ax = axes_for(ax, (7.0, 3.0))
    places = np.arange(len(rows))
    ax.bar(places - 0.2, [one[of] for one in rows], width=0.4, color=DATA, label="transactions")
    ax.bar(places + 0.2, [one[f"logical_{of}"] for one in rows], width=0.4, color=WIRE, label="joined over disconnects")
    names = [str(one["from"]) if one["from"] == one["to"] else f"{one['from']}–{one['to']}" for one in rows]
    ax.set_xticks(places, names)
    ax.set_xlabel(of.replace("_", " "))
    ax.set_ylabel("how many")
    ax.legend(frameon=False, fontsize="small")
    return finish(run, ax)


def terminations(run: Run, bus: str | None = None, *, by: str = "targets", ax: Axes | None = None) -> Axes:
    """Draw how transactions ended, by target or by initiator.

    Parameters
    ----------
    run : Run
    bus : str, optional
        Default: the only one.
    by : str
        ``targets`` or ``initiators``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    chosen = _bus(run, bus)
    found = terminations_by(named(chosen, chosen.arrow("transactions")))
    if by not in found:
        raise DecodeError(f"terminations are by {' or '.join(found)}, not by {by}")
    rows = dict(sorted(found[by].items(), key=lambda one: -sum(one[1].values()))[:_MOST])
    kinds = sorted({kind for ended in rows.values() for kind in ended}, key=[*_COLOURS, "truncated", "unknown"].index)
    ax = axes_for(ax, (7.0, 1.0 + 0.32 * max(len(rows), 1)))
    _bars(ax, list(rows), {kind: [ended.get(kind, 0) for ended in rows.values()] for kind in kinds}, _COLOURS)
    ax.set_xlabel("transactions")
    return finish(run, ax)


def waits(run: Run, bus: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw who waited for whom once a transaction was on the bus: clocks by initiator and target.

    Parameters
    ----------
    run : Run
    bus : str, optional
        Default: the only one.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    found = latencies(_bus(run, bus))["waits"]["pairs"][:_MOST]
    pairs = [one for one in found if one["target_wait_clks"] or one["initiator_wait_clks"]]
    ax = axes_for(ax, (7.0, 1.0 + 0.32 * max(len(pairs), 1)))
    parts = {
        "for the target": [one["target_wait_clks"] or 0 for one in pairs],
        "for the initiator": [one["initiator_wait_clks"] for one in pairs],
    }
    names = [f"{one['initiator'] or 'unknown'} → {one['target'] or 'unknown'}" for one in pairs]
    _bars(ax, names, parts, {"for the target": "#d9822b", "for the initiator": WIRE})
    ax.set_xlabel("clocks waited")
    return finish(run, ax)


def held_up(run: Run, bus: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw who asked for the bus while another one's transaction was on it, in clocks.

    Parameters
    ----------
    run : Run
    bus : str, optional
        Default: the only one.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    DecodeError
        REQ# was not captured.
    """
    chosen = _bus(run, bus)
    rows = latencies(chosen)["waits"]["held_up"]
    if rows is None:
        raise DecodeError(f"{chosen.name}: who held whom up cannot be told: REQ# or GNT# not captured")
    ax = axes_for(ax, (7.0, 1.0 + 0.32 * max(len(rows[:_MOST]), 1)))
    names = [f"{one['waiting']} for {one['for']}" for one in rows[:_MOST]]
    _bars(ax, names, {"clks": [one["clks"] for one in rows[:_MOST]]}, {"clks": "#d9822b"})
    ax.set_xlabel("clocks with REQ# while the other had the bus")
    return finish(run, ax)


def delayed(run: Run, bus: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw retried accesses: when each began, how long it took to its data, and those that never had any.

    Parameters
    ----------
    run : Run
    bus : str, optional
        Default: the only one.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    DecodeError
        AD, C/BE#, STOP# or DEVSEL# was not captured.
    """
    chosen = _bus(run, bus)
    found = measure(chosen)
    accesses: Any = found.delayed
    if accesses is None:
        raise DecodeError(f"{chosen.name}: {found.reasons['retry_to_completion']}")
    ax = axes_for(ax, (7.0, 3.0))
    start = accesses.table["start_us"].to_numpy()
    lasted = start[accesses.last] - start[accesses.first]
    took = np.where(np.isnan(accesses.took_us), lasted, accesses.took_us)
    for outcome, colour, marker in (
        ("completed", _COLOURS["completion"], "o"),
        ("aborted", _COLOURS["target_abort"], "x"),
        ("never_completed", _COLOURS["retry"], "v"),
    ):
        some = accesses.outcome == outcome
        if some.any():
            label = f"{outcome.replace('_', ' ')} ({int(some.sum())})"
            ax.plot(start[accesses.first[some]], took[some], marker, color=colour, ms=3.5, label=label)
    if len(took):
        ax.legend(frameon=False, fontsize="small")
    ax.set_xlabel("first attempt (µs)")
    ax.set_ylabel("to the data, or the last attempt (µs)")
    return finish(run, ax)
