"""Bursts and CSR accesses of all hosts -> one row a frame, on one time axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans, Floats, Integers, floats, pick, table
from pcitrace.errors import ConditionError, FrameMatchError
from pcitrace.facts import LEAST_FRAME_BYTES, LEAST_USER_BYTES
from pcitrace.frames import csrtimes, unsure
from pcitrace.frames.again import Readings, read_again
from pcitrace.frames.ends import Ends, HostTraffic, Link
from pcitrace.frames.identity import SequenceField
from pcitrace.frames.margins import doubted, judge, silent
from pcitrace.frames.matching import Matched, match_hosts
from pcitrace.frames.queueing import queued
from pcitrace.freed import give_back
from pcitrace.instrument.conditions import condition
from pcitrace.schema import DROP_LOG, FRAMES
from pcitrace.traffic import Traffic
from pcitrace.traffic.content import FCS, HEADER

__all__ = ["Frames", "HostTraffic", "Link", "Matched", "SequenceField", "build", "match_hosts", "stands"]


@dataclass(frozen=True, repr=False)
class Frames:
    """The frames of a run.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a frame: the table `frames`.
    drop_log : pandas.DataFrame
        What belongs to no frame, and frames that stay incomplete, with the reason.
    hosts : dict of str to Traffic
        Traffic of each host; `bursts` and `csr_accesses` say which frame each row belongs to.
    findings : tuple of str
        What the user should know, in words.
    logged : tuple of str
        Hosts whose frames are those of their frame logs, so that the lengths of the logs are theirs.
    link : Link or None
        The link between the hosts; None where it is not described, or where the wires disprove what is said of it.

    Examples
    --------
    >>> frames["length_bytes >= 1000"]                        # doctest: +SKIP
    <Frames: 60 frames, 60 received; 0 dropped>
    """

    table: pd.DataFrame
    drop_log: pd.DataFrame
    hosts: dict[str, Traffic]
    findings: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    link: Link | None = None

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        received = int(self.table["rx_dma_start_us"].notna().sum())
        return f"<Frames: {len(self)} frames, {received} received; {len(self.drop_log)} dropped>"

    def _repr_html_(self) -> str:
        from pcitrace.notebook import frames

        return frames(self.table, repr(self)[1:-1])

    def __getitem__(self, query: str) -> Frames:
        """Return the frames that fulfil a condition on the columns; null fulfils none.

        FrameMatchError if it is no such condition.
        """
        return replace(self, table=self.table[self.fulfil(query)])

    def fulfil(self, query: str) -> Booleans:
        """Return which frames fulfil a condition on the columns; FrameMatchError if it is no such condition."""
        try:
            return condition(query, FRAMES).fulfilled(self.table)
        except ConditionError as error:
            raise FrameMatchError(str(error)) from error


def build(
    hosts: Mapping[str, HostTraffic],
    *,
    link: Link | None = None,
    sequence: SequenceField | None = None,
    matched: Matched | None = None,
) -> Frames:
    """Follow every frame from the sender's memory to the receiver's.

    Parameters
    ----------
    hosts : mapping of str to HostTraffic
        One or two hosts, by name.
    link : Link, optional
        Without it, wire times and what depends on them are null.
    sequence : SequenceField, optional
        Where frames carry their number.
    matched : Matched, optional
        What :func:`match_hosts` found of these hosts, where that is known.

    Returns
    -------
    Frames
    """
    disproved = _disproved(hosts, link) if link is not None else ()
    if disproved:
        link = matched = None
    ends, columns, drops = matched or match_hosts(hosts, link, sequence)
    give_back()
    by_rule = dict(columns)
    readings: Readings = {}
    contests = doubted(ends, columns, link)
    if contests is None:
        hosts, readings = read_again(hosts, link, sequence)
        ends, columns, drops = match_hosts(hosts, link, sequence)
    judge(ends, columns, readings, by_rule, contests or {})
    del by_rule, contests  # a long capture's are a tenth of its memory
    unsure.late(ends, columns)
    unsure.beginnings(ends, columns)
    unsure.headers(ends, columns)
    unsure.parts(ends, columns)
    unsure.padding(ends, columns)
    unsure.lengths(ends, columns)
    columns = _only(~_never_sent(ends, columns), columns, drops)
    all_rows = len(columns["sender"])
    columns = _only(_supported(columns), columns, drops)
    untold = _untold(hosts, all_rows - len(columns["sender"]))
    columns["wire_us"] = _wire_us(columns["length_bytes"], link)
    give_back()
    columns["queued"] = queued(columns, hosts, link)
    give_back()
    drop_log = {key: np.concatenate([dropped[key] for dropped in drops]) for key in drops[0]}
    drop_order = np.argsort(drop_log["time_us"], kind="stable")
    traffic = _with_frames(hosts, columns, csrtimes.add(ends, columns))
    give_back()
    _timing(columns)
    found = (*disproved, *untold, *_findings(hosts, ends, columns, drop_log))
    columns["frame"] = np.arange(len(columns["sender"]))
    told = {column.name: _nullable(column.name, columns[column.name]) for column in FRAMES.columns}
    del ends, columns, drops  # of a long capture what is in no table is much memory
    return Frames(
        table(FRAMES, told),
        table(
            DROP_LOG,
            {key: _nullable(key, values[drop_order]) for key, values in drop_log.items()},
        ),
        traffic,
        found,
        link=link,
    )


def stands(hosts: Mapping[str, HostTraffic], link: Link | None, matched: Matched) -> bool:
    """Return whether what the rules found of hosts is what :func:`build` goes on with: the link is as described, and
    the DMA need not be read again.
    """
    ends, columns, _ = matched
    return not (link is not None and _disproved(hosts, link)) and doubted(ends, columns, link) is not None


def _disproved(hosts: Mapping[str, HostTraffic], link: Link) -> tuple[str, ...]:
    """Say of which wires the frames do not fit the link as described: most of them would be shorter than a frame is.

    A link that its own wire disproves is as one that is not described: no length and no time rests on it. Half a byte
    less is no shorter frame: a fast crystal makes it a little shorter, and a waveform's times are rounded.
    """
    least = link.preamble_bytes + LEAST_FRAME_BYTES + FCS - 0.5
    found = []
    for name, host in hosts.items():
        lasted_us = np.zeros(0) if host.wire is None else floats(host.wire, "end_us") - floats(host.wire, "start_us")
        lasted_us = lasted_us[~np.isnan(lasted_us)]
        short = int((lasted_us + host.step_us < least * link.byte_us).sum())
        if 2 * short > len(lasted_us):
            found.append(
                f"{name}: {short} of the {len(lasted_us)} frames on its wire would be shorter than any frame "
                f"({LEAST_FRAME_BYTES + FCS} bytes): is the wire the other host's, are link.rate_mbit_s and the width "
                "of the bus right? Nothing is computed from the link"
            )
    return tuple(found)


def _never_sent(ends: Mapping[str, Ends], columns: dict[str, Any]) -> Booleans:
    """Return the rows that a captured wire disproves: what seemed to be sent, while nothing was on it all the time.

    A card that only receives reads descriptors, one after the other, as if they were one frame. It stays in the drop
    log. Where more seem to be sent, it is the wire that is doubtful, and a finding says so.
    """
    names = [name for name, end in ends.items() if silent(end)]
    return np.asarray(np.isin(columns["sender"], names) & (columns["receive_row"] < 0))


def _supported(columns: dict[str, Any]) -> Booleans:
    """Return the rows of which anything is sure, or that are on a wire: of others nothing says that they are frames."""
    keep = columns["wire_row"] >= 0
    for name in ("dma_start_us", "dma_end_us", "rx_dma_start_us", "rx_dma_end_us"):
        keep |= ~np.isnan(columns[name])
    return np.asarray(keep)


def _only(keep: Booleans, columns: dict[str, Any], drops: list[dict[str, Any]]) -> dict[str, Any]:
    """Leave out the other rows, in what was dropped too."""
    if keep.all():
        return columns
    number = np.where(keep, np.cumsum(keep) - 1, -1)
    for dropped in drops:
        dropped["frame"] = pick(number, dropped["frame"])
    return {name: values[keep] for name, values in columns.items()}


def _untold(hosts: Mapping[str, HostTraffic], left_out: int) -> tuple[str, ...]:
    """Say that frames were left out, and what would tell them."""
    if not left_out:
        return ()
    names = ", ".join(hosts)
    if all(host.wire is not None for host in hosts.values()):
        return (f"{names}: {left_out} possible frames are left out: they are on no wire, and no edge of them is sure",)
    wanted = "TX_EN of both hosts or AD would tell"
    if len(hosts) == 1:
        why = "no wire and no other host was captured, and nothing else tells frames from descriptors and status"
    else:
        why = "the wires were not captured, and what may be frames in one memory does not account for the other"
    return (f"{names}: {why}: {left_out} possible frames are left out, for nothing says that they are; {wanted}",)


def _wire_us(user: Integers, link: Link | None) -> Floats:
    """Return how long frames of so many user bytes are on the wire; NaN where that is not known."""
    if link is None:
        return np.full(len(user), np.nan)
    return np.where(user >= 0, link.wire_us(np.maximum(user, LEAST_USER_BYTES) + HEADER), np.nan)


def _timing(columns: dict[str, Any]) -> None:
    """Add durations and transit times: at last, for of a long capture they are much memory."""
    dma_end, rx_start = columns["dma_end_us"], columns["rx_dma_start_us"]
    columns["dma_us"] = dma_end - columns["dma_start_us"]
    columns["gap_us"] = rx_start - dma_end
    columns["rx_dma_us"] = columns["rx_dma_end_us"] - rx_start
    columns["t_nic_us"] = (columns["gap_us"] - columns["wire_us"]) / 2
    columns["t_nic_tx_us"] = columns["wire_start_us"] - dma_end
    columns["t_nic_rx_us"] = rx_start - columns["wire_end_us"]


def _with_frames(
    hosts: Mapping[str, HostTraffic], columns: dict[str, Any], labels: Mapping[str, csrtimes.Labels]
) -> dict[str, Traffic]:
    """Return the traffic of each host with the frame that each burst and each CSR access belongs to."""
    out = {}
    for name, label in labels.items():
        traffic = hosts[name].traffic
        burst_frame = np.full(len(traffic.joined), -1, dtype=np.int32)
        for whose, bursts in (("sender", columns["send_burst"]), ("receiver", columns["receive_burst"])):
            rows = np.flatnonzero((columns[whose] == name) & (bursts >= 0))
            burst_frame[bursts[rows]] = rows
        margin: Any = label.margin.astype(np.float32, copy=False)
        out[name] = replace(traffic, burst_frame=burst_frame, csr_frame=label.frame, csr_margin=margin)
    return out


def _findings(
    hosts: Mapping[str, HostTraffic], ends: Mapping[str, Ends], columns: dict[str, Any], drop_log: dict[str, Any]
) -> tuple[str, ...]:
    """Say in words what a user must not overlook."""
    found = [f"{name}: {text}" for name, host in hosts.items() for text in host.traffic.findings]
    for name, end in ends.items():
        if not len(end.host.traffic.dma.bus):
            found.append(f"{name}: no transaction was begun by the NIC: no NIC traffic, or its GNT# is another line")
        sent = columns["sender"] == name
        fitting = int((sent & (columns["send_row"] >= 0) & (columns["wire_row"] >= 0)).sum())
        if end.wire is not None and 2 * fitting < max(len(end.sends), len(end.wire)):
            text = (
                f"{name}: of its {len(end.sends)} sends and the {len(end.wire)} frames on its wire only {fitting} fit"
            )
            found.append(f"{text}: is the wire the other host's, are link.rate_mbit_s and the width of the bus right?")
        for side, whose, early, late in (
            ("send", "sender", "dma_end_us", "wire_start_us"),
            ("receive", "receiver", "wire_end_us", "rx_dma_start_us"),
        ):
            known = (columns[whose] == name) & ~np.isnan(columns[early]) & ~np.isnan(columns[late])
            overlap = int((columns[late][known] < columns[early][known]).sum())
            if getattr(end.host.profile, side) == "store_and_forward" and 2 * overlap > known.sum():
                text = f"{name}: wire and {side} DMA overlap in {overlap} of {known.sum()} frames"
                found.append(f"{text}; profile {end.host.profile.name} says store_and_forward")
    spans = [_span(end) for end in ends.values() if len(end.host.traffic.dma.bus)]
    if len(spans) == 2 and (spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]):
        (first, last), (begin, end_us) = spans
        found.append(
            f"the captures do not overlap in time: {first:.1f} to {last:.1f} us and {begin:.1f} to {end_us:.1f} us; "
            "see offset_us of the captures in run.toml"
        )
    received = int((~np.isnan(columns["rx_dma_start_us"])).sum())
    if len(ends) == 2 and len(columns["sender"]) and 2 * received < len(columns["sender"]):
        dropped = int((drop_log["kind"] == "receive_data").sum())
        found.append(
            f"only {received} of {len(columns['sender'])} frames were matched between the hosts, and {dropped} "
            "receives fit no frame: do the captures overlap in time, is the wiring of the hosts right, and are "
            "link.rate_mbit_s and the width of the bus right?"
        )
    return tuple(found)


def _span(end: Ends) -> tuple[float, float]:
    """Return when the first DMA of a host begins and the last one ends."""
    bus = end.host.traffic.dma.bus
    return float(bus.start_us.min()), float(bus.end_us.max())


def _nullable(name: str, values: Any) -> Any:
    column = next(one for one in (*FRAMES.columns, *DROP_LOG.columns) if one.name == name)
    if column.dtype == "bool" and values.dtype != bool:
        return np.ma.masked_array(values > 0, mask=values < 0)
    if values.dtype == object:
        return values.tolist()
    return np.ma.masked_array(values, mask=values < 0) if column.dtype == "uint64" else values
