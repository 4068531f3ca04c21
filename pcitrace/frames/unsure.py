"""What is not told of frames that are not sure: lengths that nothing measures, edges that contents or bytes deny."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import Booleans, Integers
from pcitrace.facts import LEAST_FRAME_BYTES, LEAST_USER_BYTES
from pcitrace.frames.margins import COLUMNS, EDGES, wired
from pcitrace.traffic.asked import SURE
from pcitrace.traffic.content import FCS, HEAD, HEADER, UNALIGNED, Heads, begins_alike, behind_us, lies_inside, unlike
from pcitrace.traffic.dma import Dma
from pcitrace.traffic.goals import RECEIVE, SEND

if TYPE_CHECKING:
    from pcitrace.frames.ends import Ends

__all__ = ["beginnings", "headers", "late", "lengths", "padding", "parts"]

NEARLY_ALL = 0.9
"""Share of a host's receives that have a data phase more than their bytes on the wire fill, if something is written
around each. All had, of ten RTL8139 (`realcards` 46 to 58). A judgement."""

FIRST, LAST = 0, 1
"""Which of the columns in `EDGES` says where a frame begins, and where it ends."""

SIZES = {SEND: "send_bytes", RECEIVE: "receive_bytes"}
"""The columns of what a frame has in memory, by direction."""


def beginnings(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Make null where frames begin whose first data were found later in the other memory: they began before.

    But where a memory has all bytes that were on the wire, nothing is missing: what is before them in the other memory,
    which has so many more, is no part of the frame, and it begins behind that. An RTL8139 writes a header of four bytes
    before each frame. A card that reads on to the end of a block has more bytes than a frame, too; what it lacks at the
    beginning the other memory has, and no more.

    And both edges of a receive that begins with the addresses of another frame than its send: it is not that frame. Two
    hosts wrote the first 72 bytes in pieces of their own (`cardbench`, scatter-gather 10, 40 frames), and the rest of
    each receive was as long as the frame three before.

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts, judged.
    """
    for name, sent, received in _first_bytes(ends):
        both = (columns["sender"] == name) & (columns["send_row"] >= 0) & (columns["receive_row"] >= 0)
        rows = np.flatnonzero(both)
        sent, received = sent.take(columns["send_row"][rows]), received.take(columns["receive_row"][rows])
        strange = unlike(received, sent)
        for side, before in ((SEND, lies_inside(sent, received)), (RECEIVE, lies_inside(received, sent))):
            inside = before > 0
            whole = inside & (_more(ends, columns, name, side)[rows] >= 0)
            whole &= _more(ends, columns, name, 1 - side)[rows] >= before
            _untell(columns, side, rows[inside & ~whole], FIRST)
            _begin_behind(ends, columns, 1 - side, rows[whole], before[whole])
            strange &= ~inside
        _untell(columns, RECEIVE, rows[strange], FIRST, LAST)


def late(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Make both edges null of sends that begin, or end, later than their frame does on the wire: some data are not its.

    Of a capture that began inside a send (a stranger's card, cut-through 102, 16 channels) the rest of this send ended
    53 us behind its frame, by 21 nats: with the descriptors of the next one.

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts, judged.
    """
    for name, end in ends.items():
        if end.wire is None:
            continue
        rows = np.flatnonzero((columns["sender"] == name) & (columns["wire_row"] >= 0))
        at, (first, last) = columns["wire_row"][rows], EDGES[SEND]
        strange = (columns[first][rows] > end.wire.start_us[at]) | (columns[last][rows] > end.wire.end_us[at])
        _untell(columns, SEND, rows[strange], FIRST, LAST)


def _untell(columns: dict[str, Any], side: int, rows: Integers, *edges: int) -> None:
    """Make some edges of frames null, and nothing of these sure in that memory."""
    for edge in edges:
        columns[EDGES[side][edge]][rows] = np.nan
    columns[COLUMNS[side][2]][rows] = 0.0


def _more(ends: Mapping[str, Ends], columns: dict[str, Any], name: str, side: int) -> Integers:
    """Return how many bytes more than were on its wire a memory has of each frame that a host sent, check sequence
    apart; -1 for fewer, or where that is not told.
    """
    wire, host = ends[name].wire, name if side == SEND else next(one for one in ends if one != name)
    more = np.full(len(columns["sender"]), -1)
    if wire is not None and ends[host].host.traffic.dma.bus.bytes_exact:
        rows = np.flatnonzero((columns["sender"] == name) & (columns["wire_row"] >= 0))
        fcs = FCS if side == RECEIVE and ends[host].host.profile.receive_fcs is not False else 0
        more[rows] = columns[SIZES[side]][rows] - wire.least[columns["wire_row"][rows]] - fcs
    return more


def _begin_behind(
    ends: Mapping[str, Ends], columns: dict[str, Any], side: int, rows: Integers, before: Integers
) -> None:
    """Let frames begin behind so many bytes in a memory."""
    host, burst, _ = COLUMNS[side]
    for name, end in ends.items():
        mine = columns[host][rows] == name
        if mine.any() and end.host.data_phases is not None:
            late_us = behind_us(end.host.traffic.dma, end.host.data_phases, columns[burst][rows[mine]], before[mine])
            columns[EDGES[side][0]][rows[mine]] += late_us


def _first_bytes(ends: Mapping[str, Ends]) -> Iterator[tuple[str, Heads, Heads]]:
    """Give each host of whose frames both memories show the first bytes: what it sends, and what the other receives."""
    for name, end in ends.items():
        other = next((one for one in ends if one != name), None)
        received = ends[other].receive_head if other is not None else None
        if end.send_head is not None and received is not None and len(received):
            yield name, end.send_head, received


def parts(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Make both edges null of frames of which a memory shows fewer bytes than the wire: a piece is missing at either.

    Data phases do not tell where buffers begin and end inside words. 62 of 64 bytes were read after a header of 14,
    then the last two, a word more; all frames were as long, and each had the data phases of a whole one without it
    (`cardbench`, scatter-gather 50). Where a frame begins at the address at which such a one ended, or one on no wire,
    it may be the piece: of 1040 bytes the first 512 were taken for one and the rest for another (mid-stream 45).

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts, judged.
    """
    for name in wired(ends):
        wire, other = ends[name].wire, next((one for one in ends if one != name), None)
        for side, host in ((SEND, name), (RECEIVE, other)):
            if wire is None or host is None or not ends[host].host.traffic.dma.bus.bytes_exact:
                continue
            rows = np.flatnonzero((columns["sender"] == name) & (columns["wire_row"] >= 0))
            rows = rows[columns[SIZES[side]][rows] > 0]
            least = wire.least[columns["wire_row"][rows]]
            short = (least > LEAST_FRAME_BYTES) & (columns[SIZES[side]][rows] < least)
            joined, bursts = ends[host].host.traffic.joined, columns[COLUMNS[side][1]][rows]
            left = np.setdiff1d(ends[host].sends if side == SEND else ends[host].receives, bursts[~short])
            left = left[joined.address[left] >= 0]
            rows = rows[short | np.isin(joined.address[bursts], joined.address[left] + joined.bytes[left])]
            _untell(columns, side, rows, FIRST, LAST)


def headers(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Make null where receives begin that have a data phase more than they need, if the second one came late.

    The one more may be a header, and then the frame begins with the second. Where that came a clock after the first it
    is the same to a clock. An RTL8139 writes a header of four bytes before each frame; the times given were wrong of
    those that were disconnected behind it, or whose second word had to wait (20 on nine of 26 hosts, `realcards` 46 to
    58, 16 channels). With addresses contents tell: see :func:`beginnings`.

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts, judged.
    """
    for name in wired(ends):
        wire, other = ends[name].wire, next((ends[one] for one in ends if one != name), None)
        if wire is None or other is None or other.host.traffic.dma.bus.has_address:
            continue
        joined = other.host.traffic.joined
        rows = np.flatnonzero((columns["sender"] == name) & (columns["wire_row"] >= 0) & (columns["receive_row"] >= 0))
        burst, least = columns[COLUMNS[RECEIVE][1]][rows], wire.least[columns["wire_row"][rows]]
        width = np.where(joined.bytes[burst] > 4 * joined.data_phases[burst], 8, 4)
        more = (least > 0) & (joined.data_phases[burst] > -(-(least + FCS) // width))
        if more.sum() >= NEARLY_ALL * np.count_nonzero(least > 0):
            _untell(columns, RECEIVE, rows[more & _second_late(other.host.traffic.dma, burst)], FIRST)


def _second_late(dma: Dma, bursts: Integers) -> Booleans:
    """Return of which bursts the second data phase may be later than a clock after the first: that transaction has
    no other, or took longer than its data phases.
    """
    moved = np.flatnonzero(dma.bus.data_phases > 0)
    _, first = np.unique(dma.burst[moved], return_index=True)
    head = dma.bus.take(moved[first[np.searchsorted(dma.burst[moved][first], bursts)]])
    clks = np.rint((head.last_data_us - head.first_data_us) / head.clock_us)
    return np.asarray((head.data_phases == 1) | (clks >= head.data_phases))


def padding(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Make null where short sends end that were received with more than zeros behind their data: a piece is missing.

    What a card adds to a short frame is zeros. Of 60 bytes 42 were read, then the others in a second buffer; the first
    44 were taken for a frame that the card had filled up (`cardbench`, scatter-gather 66). How much of such a frame is
    data is not told either. Where one lacks a piece, those may that were not received. A frame that was received with
    other first bytes does not even begin there (mixed 69).

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts, judged.
    """
    for name, sent, received in _first_bytes(ends):
        rows = np.flatnonzero((columns["sender"] == name) & (columns["send_row"] >= 0))
        rows = rows[sent.length[columns["send_row"][rows]] < LEAST_FRAME_BYTES]
        at = columns["receive_row"][rows]
        sent, theirs = sent.take(columns["send_row"][rows]), received.take(np.maximum(at, 0))
        begin, until = sent.length + UNALIGNED, np.minimum(theirs.length, LEAST_FRAME_BYTES)
        added = (np.arange(HEAD) >= begin[:, None]) & (np.arange(HEAD) < until[:, None])
        missing = (at >= 0) & (added & (theirs.data != 0)).any(axis=1)
        strange = np.flatnonzero(missing)
        strange = strange[~begins_alike(sent.take(strange), theirs.take(strange))]
        _untell(columns, SEND, rows[strange], FIRST)
        rows = rows[missing | (missing.any() & (at < 0))]
        _untell(columns, SEND, rows, LAST)
        columns["length_bytes"][rows], columns["length_exact"][rows] = LEAST_USER_BYTES, False


def lengths(ends: Mapping[str, Ends], columns: dict[str, Any]) -> None:
    """Take back what only memory that is not sure says of lengths.

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts, read again and judged; `length_bytes` becomes -1 and `length_exact` false where so.
    """
    weighed = ~np.isnan(columns["margin_match"])
    whole = [~np.isnan(columns[first]) & ~np.isnan(columns[last]) for first, last in EDGES.values()]
    measured = _measured(ends, columns)
    # Where the wire does not, only a whole segment tells how long a frame is.
    untold = ~measured & weighed & ~(whole[SEND] | whole[RECEIVE])
    columns["length_bytes"] = np.where(untold, -1, columns["length_bytes"])
    columns["length_exact"] = columns["length_exact"] & ~untold
    _as_on_the_wire(ends, columns, measured & weighed & ~(whole[SEND] & whole[RECEIVE]))
    # How much of a short frame is data only its send tells.
    short = (columns["length_bytes"] >= 0) & (columns["length_bytes"] <= LEAST_USER_BYTES)
    cut = ~np.isnan(columns["margin_send"]) & ~whole[SEND]
    columns["length_exact"] = columns["length_exact"] & ~(short & cut)
    loose = short & weighed & ~columns["length_exact"] & ~(columns["margin_send"] >= SURE)
    columns["length_bytes"] = np.where(loose, LEAST_USER_BYTES, columns["length_bytes"])


def _measured(ends: Mapping[str, Ends], columns: dict[str, Any]) -> Booleans:
    """Return of which frames the wire tells the length: it does not where its rate is not known, or not believed."""
    out = np.zeros(len(columns["sender"]), dtype=bool)
    for name in wired(ends):
        wire = ends[name].wire
        rows = np.flatnonzero((columns["sender"] == name) & (columns["wire_row"] >= 0))
        if wire is not None:
            out[rows] = wire.length[columns["wire_row"][rows]] >= 0
    return out


def _as_on_the_wire(ends: Mapping[str, Ends], columns: dict[str, Any], loose: Booleans) -> None:
    """Give the lengths of some frames as the times of their wires tell them: where they lie in memory is not sure."""
    for name in wired(ends):
        wire = ends[name].wire
        rows = np.flatnonzero(loose & (columns["sender"] == name))
        if wire is not None and wire.head is None:
            # Of a short frame the wire does not tell data from padding.
            rows = rows[wire.length[columns["wire_row"][rows]] > HEADER + LEAST_USER_BYTES]
            at = columns["wire_row"][rows]
            columns["length_bytes"][rows] = wire.length[at] - HEADER
            columns["length_exact"][rows] = wire.least[at] == wire.most[at]
