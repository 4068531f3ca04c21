"""The DMA of hosts read again, at the least cost, where the frames that were found first are doubted.

Where the wires were captured each host is read by itself. Where not, each is held against what was found in the other's
memory, in turn, until both say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pcitrace.frames.ends import HostTraffic, Link
from pcitrace.frames.identity import SequenceField
from pcitrace.frames.margins import burst_margins, in_turn, moves_data, problem
from pcitrace.frames.matching import match_hosts
from pcitrace.lattice import Reading
from pcitrace.sidebyside import each
from pcitrace.traffic import join
from pcitrace.traffic.goals import RECEIVE, SEND
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.reading import Claims, as_read, claims
from pcitrace.traffic.weigh import Problem, as_likely, lengthened, weigh

__all__ = ["Readings", "read_again"]

TURNS = 3
"""Times that each of two hosts is read, at most, while what the other shows still changes. Of ten pairs of generated
hosts (`cardbench` 1204, control lines alone, their own profiles) three said the same after two, six after three, eight
after five; of those two no edge was sure."""

Readings = dict[str, tuple[Pieces, Reading]]


def read_again(
    hosts: Mapping[str, HostTraffic], link: Link | None, sequence: SequenceField | None
) -> tuple[dict[str, HostTraffic], Readings]:
    """Return the hosts with the DMA of their cheapest readings, and these.

    Where two hosts never come to say the same, nothing is sure: all margins are 0.
    """
    ends, columns, _ = match_hosts(hosts, link, sequence)
    if not in_turn(ends):
        moving = {name: problem(name, ends, columns, link) for name in hosts if moves_data(ends[name])}
        return _at_once(hosts, moving)
    if len(columns["sender"]):
        return _in_turn(hosts, link, sequence)
    # Where nothing that is sent was found in either memory, there is nothing to hold the other against.
    bare = {name: replace(problem(name, ends, columns, link), targets=(None, None)) for name in hosts}
    return dict(hosts), {name: weigh(one) for name, one in bare.items()}


def _at_once(
    hosts: Mapping[str, HostTraffic], problems: Mapping[str, Problem]
) -> tuple[dict[str, HostTraffic], Readings]:
    """Read each host by itself; then hold it against how the other one was read."""
    alone = dict(zip(problems, each(weigh, problems.values()), strict=True))

    def compared(name: str) -> tuple[Pieces, Reading]:
        return as_likely(problems[name], alone[name], _other(name, problems, alone))

    readings = dict(zip(problems, each(compared, problems), strict=True))
    return dict(hosts) | {name: _as_read(hosts[name], one) for name, one in readings.items()}, readings


def _in_turn(
    hosts: Mapping[str, HostTraffic], link: Link | None, sequence: SequenceField | None
) -> tuple[dict[str, HostTraffic], Readings]:
    """Hold each host against what was found in the other's memory, until both say the same."""
    now, problems, readings = dict(hosts), dict[str, Problem](), Readings()
    unseen = [name for name, host in hosts.items() if host.wire is None]
    for _ in range(TURNS):
        for name, host in hosts.items():
            ends, columns, _ = match_hosts(now, link, sequence)
            if not moves_data(ends[name]):
                continue
            problems[name] = problem(name, ends, columns, link)
            before, readings[name] = readings.get(name), weigh(problems[name], _other(name, problems, readings))
            now = {one: _outdated(other, one in unseen, name in unseen) for one, other in now.items()}
            now[name] = _as_read(host, readings[name])
            if before is not None and before[1].same(readings[name][1]):
                return _as_sure(now, _no_surer(now, readings, link, sequence))
    nothing = {name: (pieces, replace(one, margins=one.margins * 0)) for name, (pieces, one) in readings.items()}
    return _as_sure(now, nothing)


def _other(name: str, problems: Mapping[str, Problem], readings: Readings) -> tuple[Problem, Reading] | None:
    """Return how another host than one was read, if it was."""
    return next(((problems[one], readings[one][1]) for one in readings if one != name), None)


def _as_sure(hosts: dict[str, HostTraffic], readings: Readings) -> tuple[dict[str, HostTraffic], Readings]:
    """Return the hosts with bursts as sure as readings that became less sure, and these."""
    out = dict(hosts)
    for name, reading in readings.items():
        traffic = hosts[name].traffic
        margin = burst_margins(traffic.dma, *reading)
        out[name] = replace(hosts[name], traffic=replace(traffic, burst_margin=margin))
    return out, readings


def _no_surer(
    hosts: Mapping[str, HostTraffic], readings: Readings, link: Link | None, sequence: SequenceField | None
) -> Readings:
    """Return the readings of two hosts that say the same, no surer than that both are wrong in the same way.

    Where all frames could be longer by a descriptor in one memory and by a status of the same size in the other, each
    would confirm the other. What speaks against it in both is not counted twice: costs are wrong alike in both.
    """
    ends, columns, _ = match_hosts(hosts, link, sequence)
    longer = {name: lengthened(problem(name, ends, columns, link)) for name in readings}
    out = dict(readings)
    for sender in readings:
        receiver = next(name for name in ends if name != sender)
        sent, received = longer[sender][SEND], longer.get(receiver, ({}, {}))[RECEIVE]
        both = sent.keys() & received.keys()
        nats = min((max(sent[more], received[more]) for more in both), default=np.inf)
        for name, side in ((sender, SEND), (receiver, RECEIVE)):
            pieces, reading = out[name]
            mine = (reading.track == side)[:, None]
            out[name] = (
                pieces,
                replace(reading, margins=np.where(mine, np.minimum(reading.margins, nats), reading.margins)),
            )
    return out


def _as_read(host: HostTraffic, reading: tuple[Pieces, Reading]) -> HostTraffic:
    """Return a host with the DMA of a reading."""
    dma = as_read(host.traffic.dma, *reading)
    margins = burst_margins(dma, *reading)
    traffic = replace(host.traffic, dma=dma, joined=join(dma), claims=claims(dma, *reading), burst_margin=margins)
    return replace(host, traffic=traffic)


def _outdated(host: HostTraffic, sent: bool, received: bool) -> HostTraffic:
    """Return a host without what it claims of another one that is read again."""
    known = host.traffic.claims
    left = Claims(None if sent else known.sent, None if received else known.received)
    return replace(host, traffic=replace(host.traffic, claims=left))
