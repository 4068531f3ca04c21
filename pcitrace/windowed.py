"""The frames of a run in windows: cut where both hosts rest, each window analysed on its own, then put together.

A window is a task that any process can do. What all transactions together tell (where the card's registers are, who
began what, the accesses of each send, what waited, how sure a reading is) is worked out before and after; so the
frames are those of the whole. Where the end of a window cuts a frame, that window and the next become one. Where the
rules do not know a card its DMA is read at the least cost, of the whole at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.analysis import Source, followed, sequence, source, whole
from pcitrace.columns import Floats, Integers, floats, next_us
from pcitrace.frames import Frames, HostTraffic, Link, Matched, SequenceField, build, match_hosts, stands
from pcitrace.frames.ends import Ends
from pcitrace.run import Run
from pcitrace.traffic import Agents, agents_of
from pcitrace.traffic.csr import CONFIGURATION, Accesses
from pcitrace.traffic.dma import Dma, Kind

__all__ = ["QUIET_US", "Found", "Window", "cuts", "frames", "match_windows", "pauses"]

Do = Callable[[list["Window"]], Iterable["Found"]]
"""Does windows, and gives what each finds, in order."""

QUIET_US = 1000.0
"""Where buses and wires rest for so long nothing is under way: more than a card keeps a frame or a status word."""

TEACHING = ("send_ring", "send_ring_size", "receive_ring", "receive_ring_size", "send_buffer", "receive_buffer")
"""Roles of registers whose values hold on: every window needs all accesses to them."""

CUT = ("the capture ends before", "before the capture ends", "before the capture began", "before that capture begins")
"""What the drop log says of frames that an edge cuts."""


@dataclass(frozen=True)
class Side:
    """One host in one window.

    Attributes
    ----------
    source : Source
        With what lies in the window.
    agents : Agents
        The same; `csr` are the accesses that teach, of the whole capture.
    accesses : Accesses
        Those in the window.
    """

    source: Source
    agents: Agents
    accesses: Accesses


@dataclass(frozen=True)
class Window:
    """What a window's analysis needs; it is done by calling it.

    Attributes
    ----------
    sides : dict of str to Side
        By host.
    link : Link or None
    sequence : SequenceField or None
    """

    sides: dict[str, Side]
    link: Link | None
    sequence: SequenceField | None

    def __call__(self) -> Found:
        """Analyse it."""
        hosts, dma = {}, {}
        for name, side in self.sides.items():
            one = side.source
            dma[name] = side.agents.dma(one.beside_wires)
            traffic = replace(side.agents, csr=side.accesses).traffic(name, dma[name])
            hosts[name] = HostTraffic(
                traffic, traffic.windows.profile, side.agents.phases, one.sent, one.step_us, one.begin_us
            )
        ends, columns, drops = match_hosts(hosts, self.link, self.sequence)
        counts = {
            name: (
                len(one.sends),
                len(one.receives),
                0 if one.wire is None else len(one.wire),
                len(hosts[name].traffic.joined),
            )
            for name, one in ends.items()
        }
        bare = {name: (one.write, one.kind, one.reason, one.burst) for name, one in dma.items()}
        return Found(bare, counts, columns, drops)


@dataclass(frozen=True)
class Found:
    """What a window's analysis gives.

    Attributes
    ----------
    dma : dict of str to arrays
        Of each host: `write`, `kind`, `reason`, `burst` of its NIC's transactions, as in Dma.
    counts : dict of str to ints
        Of each host: sends, receives, frames on its wire, bursts.
    columns, drops
        As in Matched.
    """

    dma: Mapping[str, tuple[Integers, Integers, Integers, Integers]]
    counts: dict[str, tuple[int, int, int, int]]
    columns: dict[str, Any]
    drops: list[dict[str, Any]]

    def cut(self) -> tuple[bool, bool]:
        """Return whether its begin, and its end, cut a frame."""
        reasons = [str(reason) for dropped in self.drops for reason in dropped["reason"]]
        ends = [reason for reason in reasons if any(text in reason for text in CUT[:2])]
        return any(text in reason for reason in reasons for text in CUT[2:]), bool(ends)


def frames(run: Run, do: Do, transactions: int) -> Frames:
    """Follow every frame of a run in windows; what :func:`pcitrace.analysis.frames` gives from then on.

    Parameters
    ----------
    run : Run
    do : callable
        Does the windows, wherever; gives what each finds, in their order.
    transactions : int
        About so many a window.

    Returns
    -------
    Frames
        Equal to those of the whole.

    Raises
    ------
    FrameMatchError
        As :func:`pcitrace.analysis.frames`.
    """

    def follow(names: Sequence[str]) -> tuple[dict[str, HostTraffic], Frames]:
        sources = {name: source(run, name) for name in names}
        hosts, matched = match_windows(sources, cuts([*sources.values()], transactions), sequence(run), do)
        link = next(iter(sources.values())).link
        if matched is None or not stands(hosts, link, matched):
            # Where the rules do not know a card, what they found in windows depends on these.
            return whole(run, names)
        return hosts, build(hosts, link=link, sequence=sequence(run), matched=matched)

    return run.once("frames", lambda: followed(run, follow))


def pauses(sources: Iterable[Source], least_us: float = QUIET_US) -> Floats:
    """Return the middles of all times in which no bus and no wire moved for so long."""
    starts, ends = [np.zeros(0)], [np.zeros(0)]
    for one in sources:
        starts.append(one.transactions.start_us)
        ends.append(one.transactions.end_us)
        if one.sent is not None:
            begin, end = floats(one.sent, "start_us"), floats(one.sent, "end_us")
            starts.append(np.where(np.isnan(begin), end, begin))
            ends.append(np.where(np.isnan(end), begin, end))
    start_us, end_us = np.concatenate(starts), np.concatenate(ends)
    order = np.argsort(start_us, kind="stable")
    begun, done = start_us[order][1:], np.maximum.accumulate(end_us[order])[:-1]
    rests = begun - done >= least_us
    return np.asarray((begun[rests] + done[rests]) / 2)


def cuts(sources: Sequence[Source], transactions: int, least_us: float = QUIET_US) -> list[float]:
    """Choose pauses such that windows have about so many transactions of all buses, or as many more as it takes."""
    at_us = pauses(sources, least_us)
    before = np.zeros(len(at_us), dtype=np.int64)
    for one in sources:
        before += np.searchsorted(one.transactions.start_us, at_us)
    chosen, since = [], 0
    for time_us, count in zip(at_us.tolist(), before.tolist(), strict=True):
        if count - since >= transactions:
            chosen.append(time_us)
            since = count
    return chosen


def match_windows(
    sources: Mapping[str, Source],
    cuts_us: Sequence[float],
    field: SequenceField | None,
    do: Do,
) -> tuple[dict[str, HostTraffic], Matched | None]:
    """Analyse a run in windows.

    Parameters
    ----------
    sources : mapping of str to Source
        Of one or two hosts.
    cuts_us : sequence of float
        Where windows end: in pauses, ascending.
    field : SequenceField, optional
        Where frames carry their number.
    do : callable

    Returns
    -------
    hosts : dict of str to HostTraffic
        Of the whole run.
    matched : Matched or None
        For :func:`pcitrace.frames.build`; None where the windows number their frames in different ways, so that all
        have to be matched together.
    """
    agents = {name: agents_of(one.transactions, one.data_phases, one.nic) for name, one in sources.items()}
    edges = [-np.inf, *cuts_us, np.inf]
    found: dict[tuple[float, float], Found] = {}
    while missing := [window for window in pairwise(edges) if window not in found]:
        made = do([_window(sources, agents, begin, end, field) for begin, end in missing])
        found.update(zip(missing, made, strict=True))
        edges = _uncut(edges, found)
    parts = [found[window] for window in pairwise(edges)]
    hosts = {name: _host(name, one, agents[name], parts) for name, one in sources.items()}
    return hosts, _joined(sources, hosts, parts)


def _uncut(edges: list[float], found: Mapping[tuple[float, float], Found]) -> list[float]:
    """Leave out the edges that cut a frame."""
    windows = list(pairwise(edges))
    cut = [found[window].cut() for window in windows]
    kept = [
        edge for edge, before, behind in zip(edges[1:-1], cut, cut[1:], strict=False) if not (before[1] or behind[0])
    ]
    return [edges[0], *kept, edges[-1]]


def _window(
    sources: Mapping[str, Source], agents: Mapping[str, Agents], begin: float, end: float, field: SequenceField | None
) -> Window:
    """Take out of everything what lies in a window."""
    sides, link = {}, None
    for name, one in sources.items():
        link = one.link
        first, last = np.searchsorted(one.transactions.start_us, [begin, end]).tolist()
        table = one.transactions.part(first, last)
        of_all = agents[name]
        rows = of_all.nics.rows
        nics = table.take(rows[slice(*np.searchsorted(rows, [first, last]))] - first)
        phases = None
        if of_all.phases is not None:
            number = one.transactions.transaction
            phases = of_all.phases.part(*((int(number[first]), int(number[last - 1]) + 1) if last > first else (0, 0)))
        accesses = of_all.csr.take(_inside(of_all.csr.first_attempt_us, begin, end))
        teaching = of_all.csr.take(np.flatnonzero(of_all.csr.plays(*TEACHING)))
        inside = replace(
            one,
            transactions=table,
            data_phases=phases,
            sent=_frames(one.sent, begin, end),
            received=_frames(one.received, begin, end),
        )
        mine = replace(of_all, nics=nics, csr=teaching, phases=phases, unknown={}, other=0)
        sides[name] = Side(inside, mine, accesses)
    return Window(sides, link, field)


def _inside(time_us: Floats, begin: float, end: float) -> Integers:
    return np.flatnonzero((time_us >= begin) & (time_us < end))


def _frames(wire: pd.DataFrame | None, begin: float, end: float) -> pd.DataFrame | None:
    """Return the frames on a wire that lie in a window."""
    if wire is None:
        return None
    start_us, end_us = floats(wire, "start_us"), floats(wire, "end_us")
    return wire.iloc[_inside(np.where(np.isnan(start_us), end_us, start_us), begin, end)].reset_index(drop=True)


def _host(name: str, one: Source, agents: Agents, parts: Sequence[Found]) -> HostTraffic:
    """Put the DMA of a host together."""
    write, kind, reason = (np.concatenate([part.dma[name][which] for part in parts]) for which in range(3))
    before = _before(name, 3, parts)
    burst = np.concatenate([part.dma[name][3] + base for part, base in zip(parts, before, strict=True)])
    dma = Dma(agents.nics, write, kind, reason, burst.astype(np.int32))
    traffic = agents.traffic(name, dma)
    return HostTraffic(traffic, traffic.windows.profile, one.data_phases, one.sent, one.step_us, one.begin_us)


def _before(name: str, which: int, parts: Sequence[Found]) -> list[int]:
    """Return how many of what `counts` has there were before each window."""
    counts = [part.counts[name][which] for part in parts]
    return [sum(counts[:at]) for at in range(len(counts))]


SHIFTED = {"send_row": ("sender", 0), "wire_row": ("sender", 2), "send_burst": ("sender", 3)} | {
    "receive_row": ("receiver", 1),
    "receive_burst": ("receiver", 3),
}
"""Columns that number what a host has: whose, and which of its counts."""


def _joined(sources: Mapping[str, Source], hosts: Mapping[str, HostTraffic], parts: Sequence[Found]) -> Matched | None:
    """Put the frames of all windows together."""
    by = {str(one) for part in parts for one in part.columns["sequence_source"]}
    if len(by) > 1:
        return None
    before = {name: [_before(name, which, parts) for which in range(4)] for name in hosts}
    numbered = dict.fromkeys(hosts, 0)
    shifted = []
    for at, part in enumerate(parts):
        columns = dict(part.columns)
        for column, (whose, which) in SHIFTED.items():
            base = np.zeros(len(columns[column]), dtype=np.int64)
            for name in hosts:
                base[columns[whose] == name] = before[name][which][at]
            columns[column] = np.where(columns[column] >= 0, columns[column] + base, -1)
        if by == {"order"}:
            columns["sequence"] = columns["sequence"].copy()
            for name in hosts:
                mine = columns["sender"] == name
                columns["sequence"][mine] += numbered[name]
                # Also of those that were left out again: what is on no wire has been read.
                numbered[name] += part.counts[name][0] + int((columns["send_row"][mine] < 0).sum())
        shifted.append(columns)
    columns = {key: np.concatenate([one[key] for one in shifted]) for key in shifted[0]}
    order_us = np.where(np.isnan(columns["dma_start_us"]), columns["wire_start_us"], columns["dma_start_us"])
    order = np.argsort(order_us, kind="stable")
    columns = {key: values[order] for key, values in columns.items()}
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    bases = np.cumsum([0, *(len(part.columns["sender"]) for part in parts[:-1])]).tolist()
    drops = []
    for which in range(len(parts[0].drops)):
        dropped = {key: np.concatenate([part.drops[which][key] for part in parts]) for key in parts[0].drops[which]}
        frame = [
            np.where(part.drops[which]["frame"] >= 0, part.drops[which]["frame"] + base, -1)
            for part, base in zip(parts, bases, strict=True)
        ]
        numbers = np.concatenate(frame)
        dropped["frame"] = np.where(numbers >= 0, rank[np.maximum(numbers, 0)] if len(rank) else numbers, -1)
        drops.append(dropped)
    for name, host in hosts.items():
        _follow(columns, name, host)
    link = next(iter(sources.values())).link
    return {name: Ends.of(host, link) for name, host in hosts.items()}, columns, drops


def _follow(columns: dict[str, Any], name: str, host: HostTraffic) -> None:
    """Add what follows the last frames of a window only in a later one: status words and accesses."""
    traffic = host.traffic
    joined, csr = traffic.joined, traffic.csr
    status = joined.begins_us(Kind.STATUS_WRITE)
    accesses = csr.first_attempt_us[csr.reason != CONFIGURATION]
    sent_us = columns["dma_end_us"]
    if host.profile.send == "store_and_forward":
        sent_us = np.fmax(sent_us, columns["wire_end_us"])
    open_ = columns["open"]
    for column, whose, times, after in (
        ("status_us", "sender", status, sent_us),
        ("rx_status_us", "receiver", status, columns["rx_dma_end_us"]),
        ("rx_csr_us", "receiver", accesses, columns["rx_dma_end_us"]),
    ):
        lacks = (columns[whose] == name) & np.isnan(columns[column])
        if whose == "receiver":
            lacks &= ~open_
        columns[column] = np.where(lacks, next_us(times, after), columns[column])
