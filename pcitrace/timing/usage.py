"""How busy a bus is: over any window, as a series, for each frame; where it idles; how sends come in groups.

The kernel counts every clock exactly (`Bus.clocks`); this counts from the transactions, so that windows can be chosen
afterwards, by frame for instance, without decoding again. A window is exact to a clock at each of its edges; how much
of a transaction's data lies inside is interpolated where an edge cuts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pandas as pd

from pcitrace.analysis import on_axis
from pcitrace.bustable import BusTable
from pcitrace.columns import Floats, Integers, floats, integers
from pcitrace.errors import FrameMatchError
from pcitrace.frames import Frames
from pcitrace.run import Run

__all__ = ["Usage", "groups", "of_bus", "per_frame", "whole_periods"]


AT_ONCE = 1 << 16
"""Transactions whose times are looked at together."""


@dataclass(frozen=True)
class Usage:
    """Busy and data clocks of one bus over time.

    Attributes
    ----------
    bus : str
    clock_us : float
        Period of CLK.
    start_us, end_us : float
        The capture, on the run's axis.
    transactions : BusTable
        Of the bus, times on the run's axis.
    """

    bus: str
    clock_us: float
    start_us: float
    end_us: float
    transactions: BusTable

    def __repr__(self) -> str:
        busy = float(self.busy_us(np.array([self.start_us]), np.array([self.end_us]))[0])
        return f"<Usage of bus {self.bus}: {busy:.1f} of {self.end_us - self.start_us:.1f} us busy>"

    @property
    def begin_us(self) -> Floats:
        """Begin of each address phase."""
        return self.transactions.start_us

    @property
    def done_us(self) -> Floats:
        """End of each transaction's last clock."""
        return self.transactions.end_us + self.clock_us

    @property
    def first_us(self) -> Floats:
        """Begin of each transaction's first data phase; NaN where no data moved."""
        return self.transactions.first_data_us

    @property
    def last_us(self) -> Floats:
        """End of each transaction's last data phase; NaN where no data moved."""
        return self.transactions.last_data_us + self.clock_us

    @property
    def data_us(self) -> Floats:
        """Data clocks of each transaction, as time."""
        return np.asarray(self.transactions.data_phases * self.clock_us, dtype=np.float64)

    def busy_us(self, start_us: Floats, end_us: Floats) -> Floats:
        """Return the time for which the bus was busy in each window (us)."""
        return self._within(start_us, end_us)[0]

    def moving_us(self, start_us: Floats, end_us: Floats) -> Floats:
        """Return the time of the clocks in which data moved in each window (us)."""
        return self._within(start_us, end_us)[1]

    def _within(self, start_us: Floats, end_us: Floats) -> tuple[Floats, Floats]:
        """Return the time for which the bus was busy in each window, and that of the clocks in which data moved."""
        if (start_us[1:] == end_us[:-1]).all():
            # Of windows that follow each other every edge is looked up once.
            busy, moving = self._until(np.append(start_us, end_us[-1:]))
            return busy[1:] - busy[:-1], moving[1:] - moving[:-1]
        count = len(start_us)
        busy, moving = self._until(np.concatenate([start_us, end_us]))
        return busy[count:] - busy[:count], moving[count:] - moving[:count]

    def _until(self, time_us: Floats) -> tuple[Floats, Floats]:
        """Return the busy clocks before each time, and those with data, as time.

        A clock is where its rising edge is, as in the kernel; the data of a transaction are spread evenly over it.
        """
        busy, moving = np.zeros(len(time_us)), np.zeros(len(time_us))
        if not len(time_us):
            return busy, moving
        clks, phases = 0.0, 0
        # Some at a time: of all transactions, columns of times would be much memory.
        edges = np.arange(0, len(self.transactions), AT_ONCE, dtype=np.int32)
        first_us = self.transactions.take(edges).start_us
        sides = (_shared_out(first_us, time_us, "left"), _shared_out(first_us, time_us, "right"))
        for edge, before, after in zip(edges.tolist(), *sides, strict=True):
            rows = np.arange(edge, min(edge + AT_ONCE, len(self.transactions)), dtype=np.int32)
            some = self.transactions.take(rows)
            begin_us = some.start_us
            each = np.rint((some.end_us + self.clock_us - begin_us) / self.clock_us)
            last = np.searchsorted(begin_us, time_us[before], side="left") - 1
            until, own = np.cumsum(each), each[last]
            inside = np.clip(np.ceil((time_us[before] - begin_us[last]) / self.clock_us), 0.0, own)
            busy[before] = clks + until[last] - own + inside
            clks += until[-1]
            last = np.searchsorted(begin_us, time_us[after], side="right") - 1
            moved, one = np.cumsum(some.data_phases, dtype=np.int64), some.take(last)
            own = one.data_phases
            begin, end = one.first_data_us, one.last_data_us + self.clock_us
            share = np.clip((time_us[after] - begin) / np.maximum(end - begin, 1e-12), 0.0, 1.0)
            moving[after] = phases + moved[last] - own + np.where(own > 0, share * own, 0.0)
            phases += int(moved[-1])
        return busy * self.clock_us, moving * self.clock_us

    def over(self, start_us: Floats | float, end_us: Floats | float) -> pd.DataFrame:
        """Return the use of the bus in windows.

        Parameters
        ----------
        start_us, end_us : float or array of float
            The windows, on the run's axis.

        Returns
        -------
        pandas.DataFrame
            ``start_us``, ``end_us``, ``busy_us``, ``data_us``, ``occupancy``, ``data_occupancy``; the last two are
            null for an empty window.
        """
        start, end = np.atleast_1d(np.asarray(start_us, float)), np.atleast_1d(np.asarray(end_us, float))
        busy, data = self._within(start, end)
        # Clocks whose rise is in the window; the one at an edge may be found on either side of it.
        clocks = (self._clocks_until(end) - self._clocks_until(start)) * self.clock_us
        span = np.where(clocks > 0, clocks, np.nan)
        return pd.DataFrame(
            {
                "start_us": start,
                "end_us": end,
                "busy_us": busy,
                "data_us": data,
                "occupancy": np.minimum(busy / span, 1.0),
                "data_occupancy": np.minimum(data / span, 1.0),
            },
            copy=False,
        )

    def _clocks_until(self, time_us: Floats) -> Floats:
        """Return how many clocks rise before each time, from some clock on."""
        first = self.transactions.take(np.zeros(1, np.int32)).start_us[0] if len(self.transactions) else self.start_us
        return np.asarray(np.ceil((time_us - first) / self.clock_us))

    def series(self, window_us: float) -> pd.DataFrame:
        """Return the use of the bus window by window; the last one ends with the capture."""
        edges = np.arange(self.start_us, self.end_us, window_us)
        return self.over(edges, np.append(edges[1:], self.end_us))

    def idle_gaps(self, at_least_us: float = 0.0) -> pd.DataFrame:
        """Return the times between transactions: ``start_us``, ``end_us``, ``length_us``."""
        start, end = self.done_us[:-1], self.begin_us[1:]
        long = (end - start) >= max(at_least_us, self.clock_us / 2)
        return pd.DataFrame({"start_us": start[long], "end_us": end[long], "length_us": (end - start)[long]})


def _shared_out(first_us: Floats, time_us: Floats, side: Literal["left", "right"]) -> Iterator[Integers]:
    """Give for each of some times, which ascend, the others that come behind it but not behind the next one."""
    part = np.searchsorted(first_us, time_us, side=side) - 1
    order = np.argsort(part, kind="stable")
    places = np.searchsorted(part[order], np.arange(len(first_us) + 1))
    return (order[first:stop] for first, stop in pairwise(places.tolist()))


def of_bus(run: Run, name: str) -> Usage:
    """Return how busy a bus of a run is.

    Parameters
    ----------
    run : Run
    name : str
        Host or bus.

    Returns
    -------
    Usage
    """
    clocks = on_axis(run, name, run[name].clocks())
    start_us, end_us = float(clocks["start_us"].iloc[0]), float(clocks["end_us"].iloc[0])
    clock_mhz = run[name].mean_clock_mhz
    clock_us = 1 / clock_mhz if clock_mhz else (end_us - start_us) / max(int(clocks["total"].iloc[0]), 1)
    return Usage(name, clock_us, start_us, end_us, run.table(name))


def per_frame(usage: Usage, frames: Frames, side: str = "send") -> pd.DataFrame:
    """Return how busy the bus was in the period of each frame, from its DMA to that of the next.

    Parameters
    ----------
    usage : Usage
        Of a host's bus.
    frames : Frames
    side : str
        ``send``: frames that this host sends, by `dma_start_us`; ``receive``: those it receives, by
        `rx_dma_start_us`.

    Returns
    -------
    pandas.DataFrame
        As :meth:`Usage.over`, with ``frame``; the last frame has no period.

    Raises
    ------
    FrameMatchError
        There is no such side.
    """
    try:
        who, column = {"send": ("sender", "dma_start_us"), "receive": ("receiver", "rx_dma_start_us")}[side]
    except KeyError:
        raise FrameMatchError(f"no side {side!r}; there are send and receive") from None
    table = frames.table
    times = floats(table, column)
    rows = np.flatnonzero((table[who] == usage.bus).fillna(False).to_numpy(dtype=bool) & ~np.isnan(times))
    rows = rows[np.argsort(times[rows], kind="stable")]
    found = usage.over(times[rows[:-1]], times[rows[1:]]) if len(rows) > 1 else usage.over(np.zeros(0), np.zeros(0))
    found.insert(0, "frame", integers(table, "frame")[rows[:-1]])
    return found


def whole_periods(usage: Usage, frames: Frames, side: str = "send") -> dict[str, float | int | None]:
    """Return the use of a bus over whole periods between frames.

    Returns
    -------
    dict
        ``periods``; mean ``period_us``, ``busy_us``, ``data_us`` of one; ``occupancy``, ``data_occupancy`` over all of
        them. None where there are fewer than two frames.
    """
    found = per_frame(usage, frames, side)
    n = len(found)
    names = ("period_us", "busy_us", "data_us", "occupancy", "data_occupancy")
    if not n:
        return {"periods": 0} | dict.fromkeys(names)
    span = float((found["end_us"] - found["start_us"]).sum())
    busy, data = float(found["busy_us"].sum()), float(found["data_us"].sum())
    return {"periods": n} | dict(zip(names, (span / n, busy / n, data / n, busy / span, data / span), strict=True))


def groups(frames: Frames, host: str) -> pd.DataFrame:
    """Find sends that were handed to the card together.

    A group is what the driver hands over before the card starts the DMA of the group's first frame; where the card
    keeps up, every group is one frame.

    Parameters
    ----------
    frames : Frames
    host : str
        The sender.

    Returns
    -------
    pandas.DataFrame
        One row a group: ``first_frame``, ``frames``, ``csr_first_us``, ``csr_last_us``, ``csr_us`` (from its first to
        its last CSR access), ``dma_start_us`` (of its first frame), ``idle_us`` (from its last CSR access to that DMA).
    """
    table = frames.table
    mine = table[["frame", "csr_first_us", "csr_last_us", "dma_start_us"]][(table["sender"] == host).fillna(False)]
    first, last = floats(mine, "csr_first_us"), floats(mine, "csr_last_us")
    dma = floats(mine, "dma_start_us")
    number = integers(mine, "frame")
    known = np.flatnonzero(~np.isnan(first) & ~np.isnan(dma))
    known = known[np.argsort(first[known], kind="stable")]
    # Where the next group begins, if one begins at each.
    following = np.searchsorted(first[known], dma[known])
    behind = np.maximum(following, np.arange(1, len(known) + 1)).data
    begins = bytearray(len(known))
    place = 0
    while place < len(known):
        begins[place] = 1
        place = behind[place]
    starts = np.flatnonzero(np.frombuffer(begins, bool))
    ends = np.append(starts[1:], len(known))[: len(starts)]
    first_row, last_row = known[starts], known[ends - 1]
    return pd.DataFrame(
        {
            "first_frame": number[first_row],
            "frames": ends - starts,
            "csr_first_us": first[first_row],
            "csr_last_us": last[last_row],
            "csr_us": last[last_row] - first[first_row],
            "dma_start_us": dma[first_row],
            "idle_us": dma[first_row] - last[last_row],
        },
        copy=False,
    )
