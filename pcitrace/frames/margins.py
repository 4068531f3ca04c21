"""How sure each frame is: what was found is weighed against everything else that the pieces could be.

Where the frames that were found first do not account for the frames on a wire, the pieces of both hosts are read again
at the least cost (`pcitrace.traffic.weigh`). That reading has margins; an edge of a frame whose margin is below
`SURE` is null: another reading is about as likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.frames.proved import proved
from pcitrace.frames.rung import rung_for
from pcitrace.frames.unseen import shown_by
from pcitrace.freed import give_back
from pcitrace.lattice import COST, Reading
from pcitrace.sidebyside import each
from pcitrace.traffic.asked import AGREED, FAR, STATED, SURE
from pcitrace.traffic.content import HEADER, briefly, keys, once, own_keys
from pcitrace.traffic.contest import alike, contested
from pcitrace.traffic.dma import Dma, Kind
from pcitrace.traffic.goals import RECEIVE, SEND, Target
from pcitrace.traffic.named import Words
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.plan import WORD, fetch_sizes
from pcitrace.traffic.weigh import Found, Problem

if TYPE_CHECKING:
    from pcitrace.frames.ends import Ends, HostTraffic, Link

__all__ = ["burst_margins", "doubted", "in_turn", "judge", "moves_data", "problem", "silent", "wired"]

TOLD = 0.25
"""Where a smaller share of a host's frames of one direction are sure at both edges, none is; nor where the data of a
smaller share of the frames on a wire were found in its memory. And of a smaller share of the sends nothing is known of
what rang for them. A judgement."""

LEARNED = 0.6
"""The same share without addresses, but with the wires of these frames: the table has not learned this card. Of
generated cards (`cardbench` 80 to 86, 16 channels, three profiles) 15 of 1,703 edges that stood out so were wrong, of
five of 52 hosts; where more frames were sure, none of 33,741. On the ten cards of another maker it
takes 28 edges, all of them right."""

STANDS_OUT = 0.5
"""Beginnings, or ends, that are sure in a smaller share of a host's frames of one direction stand out among what is
doubted: none is. On three of 138 hosts of a stranger's generated cards (16 channels, reread) 18 of 38 that did were
wrong; on three others 24 were right. A judgement."""

BY_THEMSELVES = 0.8
"""Beginnings that are sure in a smaller share where no end is told, or ends where no beginning is: none is, for all
frames may lie elsewhere and be as long. On two hosts of a stranger's generated cards (16 channels, reread and
scatter-gather) no end was told, and 55 and 72 % of the beginnings were sure: all 24 were wrong. In 13 other directions
of hosts, of nine cards, 90 % or more were sure, all right. So were those of two strangers' cards with 80 and 87 %, and
of one of ours with 83 % (`cardbench`, cut-through 1140); and of a stranger's with 78 %, which are null."""

MOST = 0.5
"""Where the rules found a smaller share of the frames on a wire in a host's memory, what they left over is this share
of the others at least, and an edge of any is doubted, none is sure. On two generated hosts that write what they receive
word by word (`cardbench`, cut-through 71) they found 10 of 32 receives each; 4 of these 40 edges were wrong."""

COMPLETE, FEW = 0.95, 1
"""Where a smaller share of the frames on the wire and of the sends are each other's, the first reading is doubted; one
that the capture cuts is no reason."""


EDGES = {SEND: ("dma_start_us", "dma_end_us"), RECEIVE: ("rx_dma_start_us", "rx_dma_end_us")}
"""The columns of a frame's edges, by direction."""

COLUMNS = {SEND: ("sender", "send_burst", "margin_send"), RECEIVE: ("receiver", "receive_burst", "margin_receive")}
"""The columns of a frame's host, burst and margin, by direction."""


def doubted(ends: Mapping[str, Ends], columns: dict[str, Any], link: Link | None) -> dict[str, Floats] | None:
    """Return the edges that are doubted of the frames found so far; None if all are, and the DMA is to be read again.

    They are where the frames do not account for what was seen elsewhere. Else a host's edges are doubted one by one:
    see :func:`pcitrace.traffic.contest.contested`.
    """
    moving = [end for end in ends.values() if moves_data(end)]
    if moving and all(_untold(end) for end in moving):
        # Two memories may confirm each other's mistake.
        return None
    if not all(map(_are_frames, moving)) or any(map(_answered, moving)):
        return None
    names = [name for name in ends if moves_data(ends[name])]
    problems = dict(zip(names, each(lambda name: problem(name, ends, columns, link), names), strict=True))
    if not all(_complete(columns, name, ends) and _heard_of(columns, name, ends) for name in ends):
        return None
    if not all(map(alike, problems.values())):
        return None
    described = {name: _described(ends[name].host) for name in names}
    # Addresses tell the rules more than these costs know. Without a wire a profile does, where no frame is missing in
    # either memory, and nothing is left over that frames do not have.
    told = in_turn(ends) and all(_arrived(columns, name, ends) and _accounted(ends[name]) for name in ends)
    names = [name for name, one in problems.items() if not (one.dma.bus.has_address or (told and described[name]))]
    give_back()
    nats = each(lambda name: contested(problems[name], described[name]), names)
    found = {name: one for name, one in zip(names, nats, strict=True) if one is not None}
    if len(found) < len(names):
        return None
    for name in found if len(moving) == 1 else ():
        if _looks_alike(ends[name]):
            found[name][ends[name].sends] = 0.0
    return found


def _untold(end: Ends) -> bool:
    """Return whether nothing but rules says what a host's DMA is: no profile, no address, no wire."""
    return _unseen(end) and not _described(end.host)


def _unseen(end: Ends) -> bool:
    """Return whether neither a wire nor addresses show what a host's DMA is."""
    return end.wire is None and not end.host.traffic.dma.bus.has_address


def _looks_alike(end: Ends) -> bool:
    """Return whether nothing tells sends from descriptors: no address, no wire, and the card reads descriptors.

    Of eight such hosts with their own profiles (`cardbench`, one-host 1201 to 1208, control lines alone) the rules had
    wrong frames on four: fetches of several descriptors, or parts of such a fetch, were sends or their beginnings.
    """
    return _unseen(end) and bool(fetch_sizes(end.host.profile, WORD))


def _arrived(columns: dict[str, Any], name: str, ends: Mapping[str, Ends]) -> bool:
    """Return whether all that one of two hosts sent was received, and all that was received was sent.

    Of hosts that lost frames the rules took others for these (`cardbench`, control lines alone, their own profiles:
    overload 1249, fcs 1253), and a fetch of descriptors shifted all sends of padded frames by one (tiny 1206).
    """
    theirs = next(end for one, end in ends.items() if one != name)
    both = (columns["sender"] == name) & (columns["send_row"] >= 0) & (columns["receive_row"] >= 0)
    return bool(both.sum() == max(len(ends[name].sends), len(theirs.receives)))


def _accounted(end: Ends) -> bool:
    """Return whether no more descriptors were read, and no more statuses written, than a host has frames.

    From its first frame to its last; but for one fetch, which may be of frames behind it, and one status, of a frame
    before. More of them are parts of frames: of a card whose frames had 16 data phases and 4, as many as a descriptor
    and a status, the rules left the second piece over in both memories (`cardbench`, control lines alone: other-master
    1257). Of 16 hosts of that generator whose rules were right, and of ten of the simulator, none has more.
    """
    joined, frames = end.host.traffic.joined, np.concatenate([end.sends, end.receives])
    if not len(frames):
        return True
    first_us, last_us = joined.first_data_us[frames].min(), joined.last_data_us[frames].max()
    there = (joined.first_data_us >= first_us) & (joined.last_data_us <= last_us)
    profile = end.host.profile
    known = [one for one in (profile.send_descriptor, profile.receive_descriptor) if one is not None]
    least_bytes = min((one.size_bytes for one in known), default=np.inf)
    read = joined.bytes[there & (joined.kind == Kind.DESCRIPTOR_FETCH)].sum() / least_bytes
    written = np.count_nonzero(there & (joined.kind == Kind.STATUS_WRITE))
    at_once = max((one.fetch_max for one in known), default=1)
    return bool(read <= len(frames) + at_once and written <= len(frames) + 1)


def _are_frames(end: Ends) -> bool:
    """Return whether all that was taken for frames could be: none is shorter than a header, but what the capture cuts.

    Of a card whose first data were taken for a descriptor this alone tells, where no wire was captured.
    """
    size = end.host.traffic.joined.bytes
    return all(bool((size[rows[1:-1]] >= HEADER).all()) for rows in (end.sends, end.receives))


def in_turn(ends: Mapping[str, Ends]) -> bool:
    """Return whether each of two hosts is held against the other: a wire was not captured, and no addresses were."""
    if len(ends) != 2 or all(end.wire is not None for end in ends.values()):
        return False
    return all(moves_data(end) and not end.host.traffic.dma.bus.has_address for end in ends.values())


def moves_data(end: Ends) -> bool:
    """Return whether a host's NIC moved any data."""
    return bool((end.host.traffic.dma.bus.data_phases > 0).any())


def _described(host: HostTraffic) -> bool:
    """Return whether the profile says anything of the card's DMA."""
    return host.profile != host.profile.registers_only()


def problem(name: str, ends: Mapping[str, Ends], columns: dict[str, Any], link: Link | None) -> Problem:
    """Return a host's DMA, the frames found in it so far, and what they are elsewhere."""
    found: list[Found] = []
    targets: list[Target | None] = []
    dma = ends[name].host.traffic.dma
    other = next((one for one in ends if one != name), None)
    for side in (SEND, RECEIVE):
        rows = _rows(columns, name, side)
        certain = np.zeros(len(rows), dtype=bool)
        if side == RECEIVE and other is not None:
            certain = _sent_by_content(columns, ends, other)[rows]
        found.append(Found(columns[COLUMNS[side][1]][rows], _target(ends, columns, side)[rows], certain))
        sender = name if side == SEND else other
        wire = ends[sender].wire if sender is not None else None
        if wire is not None:
            targets.append(Target.on_wire(wire))
        else:
            shown = shown_by(ends[other], side, link) if other is not None and in_turn(ends) else None
            # Where nothing was found yet it is not known what there is to find.
            targets.append(shown if shown is not None and len(shown) else None)
    host = ends[name].host
    phases = host.data_phases if dma.bus.has_address else None
    words = Words(phases, host.traffic.csr) if phases is not None and len(phases) else None
    return Problem(dma, (found[SEND], found[RECEIVE]), (targets[SEND], targets[RECEIVE]), host.profile, words)


def _target(ends: Mapping[str, Ends], columns: dict[str, Any], side: int) -> Integers:
    """Return what each frame is elsewhere: on its wire, or, where that was not captured, in the other memory."""
    elsewhere = columns["receive_row" if side == SEND else "send_row"]
    return np.asarray(np.where(np.isin(columns["sender"], wired(ends)), columns["wire_row"], elsewhere))


def wired(ends: Mapping[str, Ends]) -> list[str]:
    """Return the hosts whose wires were captured."""
    return [name for name, end in ends.items() if end.wire is not None]


def _by_content(columns: dict[str, Any], ends: Mapping[str, Ends]) -> Booleans:
    """Return which frames were received with the content with which they were sent, and no other has it.

    That says which send a receive is; which frame on a wire it is, if it is sure which one that send is.
    """
    out = np.zeros(len(columns["sender"]), dtype=bool)
    for name in ends:
        out |= _sent_by_content(columns, ends, name)
    return out


def _sent_by_content(columns: dict[str, Any], ends: Mapping[str, Ends], name: str) -> Booleans:
    """Return which frames these are of those that one host sent."""
    out, end = np.zeros(len(columns["sender"]), dtype=bool), ends[name]
    other = next((ends[one] for one in ends if one != name), None)
    head = other.receive_head if other is not None else None
    if end.send_head is None or head is None:
        return out
    sent = briefly(own_keys(end.send_head, keys(head), len(end.sends)), end.send_head, head)
    received = own_keys(head, sent, len(head))
    rows = np.flatnonzero((columns["sender"] == name) & (columns["send_row"] >= 0) & (columns["receive_row"] >= 0))
    mine, theirs = sent[columns["send_row"][rows]], received[columns["receive_row"][rows]]
    alone = np.isin(mine, once(sent)[0]) & np.isin(theirs, once(received)[0])
    out[rows] = (mine == theirs) & (mine != 0) & alone
    return out


def _rows(columns: dict[str, Any], name: str, side: int) -> Integers:
    return np.flatnonzero(columns[COLUMNS[side][0]] == name)


def _complete(columns: dict[str, Any], name: str, ends: Mapping[str, Ends]) -> bool:
    """Return whether nearly all frames on a host's wire were read on its bus, and hardly anything else was.

    Where the wire was not captured, what the other host received tells: that must have been sent. What was sent and
    not received may have been lost, or have been no frame; a profile that describes the card tells, if most arrived.
    """
    end, mine = ends[name], columns["sender"] == name
    other = next((ends[one] for one in ends if one != name), None)
    if end.wire is not None:
        claims, count = columns["wire_row"], len(end.wire)
    elif other is not None and in_turn(ends):
        claims, count = columns["receive_row"], len(other.receives)
    else:
        return True
    if silent(end):
        return True
    known = np.sort(claims[mine & (claims >= 0) & (columns["send_row"] >= 0)])
    claimed = len(known)
    lossy = end.wire is None and _described(end.host)
    most = count if lossy and 2 * claimed >= len(end.sends) else max(count, len(end.sends))
    # What is missing between others on the wire the capture did not cut.
    between = end.wire is not None and claimed > 0 and known[-1] - known[0] >= claimed
    return most - claimed <= max(0 if between else FEW, (1 - COMPLETE) * most)


def silent(end: Ends) -> bool:
    """Return whether a captured wire says that a host sent nothing: what seems to be sent are descriptors, and few."""
    few = max(FEW, (1 - COMPLETE) * len(end.receives))
    return end.wire is not None and not len(end.wire) and len(end.sends) <= few


def _heard_of(columns: dict[str, Any], name: str, ends: Mapping[str, Ends]) -> bool:
    """Return whether what a host received is on the wire, or what was on the wire was received, but for a few; asked
    where addresses say what belongs together.

    Receives of two hosts lay in two buffers, so that they were as long as no frame: 83 and 100 of 100 were not given
    (`cardbench`, scatter-gather 41, wide66 43). Only those count that came while frames were on the wire.
    """
    end, other = ends[name], next((ends[one] for one in ends if one != name), None)
    if other is None or other.wire is None or not end.host.traffic.dma.bus.has_address:
        return True
    frames = columns["receiver"] == name
    rows = columns["receive_row"][frames]
    ended_us = other.wire.end_us[np.isfinite(other.wire.end_us)]
    begun_us = end.host.traffic.joined.first_data_us[end.receives]
    meanwhile = np.flatnonzero((begun_us > ended_us.min(initial=np.inf)) & (begun_us < ended_us.max(initial=-np.inf)))
    left, lost = meanwhile[~np.isin(meanwhile, rows)], rows < 0
    if np.count_nonzero(lost) <= max(FEW, (1 - COMPLETE) * len(rows)):
        return True
    # A card that writes frame behind frame into one ring leaves one burst: it may be all of them.
    left_bytes = end.host.traffic.joined.bytes[end.receives[left]].sum()
    few = len(left) <= max(FEW, (1 - COMPLETE) * len(meanwhile))
    return bool(few and left_bytes < MOST * np.maximum(columns["length_bytes"][frames][lost], 0).sum())


def judge(
    ends: Mapping[str, Ends],
    columns: dict[str, Any],
    readings: Mapping[str, tuple[Pieces, Reading]],
    before: dict[str, Any],
    contests: Mapping[str, Floats],
) -> None:
    """Add the margins of frames to their columns, and make null what is not sure.

    Parameters
    ----------
    ends : mapping of str to Ends
    columns : dict of str to arrays
        The frames of all hosts; `margin_send`, `margin_receive` and `margin_match` are added, NaN where nothing was
        weighed; and `margin_place`: how much dearer it is that no data of this send is where its data were found,
        whatever its edges are.
    readings : mapping of str to Pieces and Reading
        Of each host that was read again.
    before : dict of str to arrays
        The frames as the rules found them.
    contests : mapping of str to array
        Of each host that was not read again: how much dearer it is that an edge of a burst is elsewhere. Below `AGREED`
        it is null.
    """
    count = len(columns["sender"])
    margins, rivals = ({side: np.full((count, 2), np.nan) for side in EDGES} for _ in range(2))
    place = {side: np.full(count, np.nan) for side in EDGES}
    told = _by_content(columns, ends) if readings else np.zeros(count, dtype=bool)
    for side in EDGES:
        for name, (pieces, reading) in readings.items():
            rows = _rows(columns, name, side)
            found = Found(columns[COLUMNS[side][1]][rows], _target(ends, columns, side)[rows], told[rows])
            margins[side][rows], rivals[side][rows] = _of_host(ends[name], found, (pieces, reading), side)
            if side == RECEIVE and reading.by_content is not None:
                # Of a receive that is known by its content it is as sure which frame on the wire it is as of its send.
                sure = found.certain & ~(margins[SEND][rows] < SURE).any(axis=1)
                kept = _of_host(ends[name], found, (pieces, reading.by_content), side)
                margins[side][rows[sure]], rivals[side][rows[sure]] = (one[sure] for one in kept)
            of_piece = ends[name].host.traffic.dma.burst[pieces.rows]
            place[side][rows] = _places(found, of_piece, reading, side)
        for name, nats in contests.items():
            rows = _rows(columns, name, side)
            burst = columns[COLUMNS[side][1]][rows]
            lost = _share_heard(columns, name, side) < MOST and _left_over(columns, ends, name, side)
            single = np.count_nonzero(burst >= 0) == 1 and not _heard(columns, name, side)
            margins[side][rows] = _by_rules(nats, burst, single, lost)
    for side, sure in proved(ends, columns, told).items() if readings else ():
        for one in (margins[side], rivals[side], place[side]):
            # As sure as a search says of anything at most.
            one[sure] = COST
    unseen = ~np.isin(columns["sender"], wired(ends))
    for side in EDGES if in_turn(ends) else ():
        # What is in one memory alone got lost, or is no frame: some descriptors are as long as a piece of one.
        margins[side][unseen & (_target(ends, columns, side) < 0)] = 0.0
    # Each edge is one of this frame elsewhere: a reading in which the segment is another frame's differs in both.
    same = {side: np.zeros((count, 2), dtype=bool) for side in EDGES}
    if readings:
        same = {side: _found_before(before, columns, EDGES[side]) for side in EDGES}
    least = _thresholds(ends, unseen, rivals, same)
    _only_where_far(margins, unseen, rivals, same)
    held = _as_held_against(margins, unseen)
    for one in place.values():
        one[unseen] = np.minimum(one[unseen], held[unseen])
    deaf = any(_share_heard(columns, name, side) < 1 - COMPLETE for name in readings for side in EDGES)
    for name in readings:
        heard = not deaf and all(_heard(columns, name, side) for side in EDGES) and not _answered(ends[name])
        for side in EDGES:
            rows = _rows(columns, name, side)
            share = TOLD if unseen[rows].any() or ends[name].host.traffic.dma.bus.has_address else LEARNED
            _only_where_told(margins[side], least[side], place[side], (rows, share))
            if not heard:
                margins[side][rows] = np.minimum(margins[side][rows], 0.0)
    match = _as_held_against(margins, unseen)
    for side in EDGES:
        for edge, column in enumerate(EDGES[side]):
            columns[column] = np.where(margins[side][:, edge] < least[side][:, edge], np.nan, columns[column])
        columns[COLUMNS[side][2]] = np.fmin(*margins[side].T)
    columns["margin_match"], columns["margin_place"] = match, place[SEND]


def _by_rules(nats: Floats, burst: Integers, single: bool, lost: bool) -> Floats:
    """Return the margins of both edges of frames that rules found; NaN where none is doubted.

    An overloaded card drops most; but a single frame of many on the wire is like no other that was found. And where any
    is doubted and most may be there, not found, none is sure.
    """
    some = burst >= 0
    dearer = np.where(some[:, None], nats[burst], np.inf)
    out = np.where(dearer < AGREED, dearer, np.nan)
    if single or (lost and (dearer[some] < AGREED).any()):
        out[some] = 0.0
    return out


def _left_over(columns: dict[str, Any], ends: Mapping[str, Ends], name: str, side: int) -> bool:
    """Return whether what is part of no frame in a host's memory may be most of the frames that lack there."""
    host, burst, _ = COLUMNS[side]
    lacking = (columns[host] == name) & (columns["wire_row"] >= 0) & (columns[burst] < 0)
    dma = ends[name].host.traffic.dma
    left = dma.bus.bytes[~np.isin(dma.kind, (Kind.SEND_DATA, Kind.RECEIVE_DATA))].sum()
    return bool(left >= MOST * np.maximum(columns["length_bytes"][lacking], 0).sum())


def _thresholds(
    ends: Mapping[str, Ends], unseen: Booleans, rivals: dict[int, Floats], same: dict[int, Booleans]
) -> dict[int, Floats]:
    """Return from which margin on each edge is given; where the rules had found the same it need not be as sure."""
    least = {side: np.where(same[side] & ~(rivals[side] < SURE), AGREED, SURE) for side in EDGES}
    confirmed = STATED if all(_described(end.host) for end in ends.values()) else SURE
    without = np.where(np.logical_and(*same.values()), confirmed, SURE)
    return {side: np.where(unseen[:, None], without, one) for side, one in least.items()}


def _only_where_far(
    margins: dict[int, Floats], unseen: Booleans, rivals: dict[int, Floats], same: dict[int, Booleans]
) -> None:
    """Make the margins 0 of edges without a wire where another way to explain all frames is near: see `FAR`."""
    agreed = np.logical_and(*same.values())
    for side, nearest in _with_the_other(rivals).items():
        near = unseen[:, None] & (nearest < FAR) & ~agreed
        margins[side][near] = np.minimum(margins[side], 0.0)[near]


def _as_held_against(margins: dict[int, Floats], unseen: Booleans) -> Floats:
    """Make edges of frames without a wire no surer than both edges in the other memory; return how sure the match is.

    Where a frame begins and ends rests on how much the other memory has of it. Where the header was left out there, it
    was left out here, by 9 to 11 nats; where a descriptor was its first piece there, a status of the same size was its
    last one here, by 14 (`cardbench`, control lines alone: scatter-gather 1251, equal-lengths 1252).
    """
    match: Floats = np.fmin(*(np.maximum(*margins[side].T) for side in EDGES))
    for side, both in _with_the_other(margins).items():
        margins[side][unseen] = both[unseen]
    return match


def _with_the_other(nats: dict[int, Floats]) -> dict[int, Floats]:
    """Return for each edge the least of what is said of it and of both edges of the frame in the other memory."""
    least = {side: np.fmin(*one.T)[:, None] for side, one in nats.items()}
    return {side: np.fmin(nats[side], least[other]) for side, other in ((SEND, RECEIVE), (RECEIVE, SEND))}


def _of_host(end: Ends, found: Found, reading: tuple[Pieces, Reading], side: int) -> tuple[Floats, Floats]:
    """Return the margins of both edges of some frames of one host, and those against other ways to explain them all."""
    (pieces, whole), dma = reading, end.host.traffic.dma
    others = replace(whole, margins=whole.rivals)
    out, against = (_margins(found, pieces.rows, dma, one, side) for one in (whole, others))
    if not dma.bus.has_address:
        # What nothing else shows is not told.
        for one in (out, against):
            one[found.target < 0] = np.minimum(one[found.target < 0], 0.0)
    return out, against


def _heard(columns: dict[str, Any], name: str, side: int) -> bool:
    """Return whether a reading has the data of so many frames on a wire that it may be right: see `TOLD`.

    One that has nearly none took for something else what they are in memory; what it has of the other direction may be
    wrong, too. On two hosts whose cards moved more than the frames' bytes in two buffers each (`cardbench`, mixed 1230)
    each send seemed to begin with its descriptor, and nothing seemed to be received.

    One that has hardly any says as much of the other host, whose card is mostly of the same kind. Of two hosts that
    sent frames of one length to each other at once (overload 1260) one had pieces of receives in its sends and nothing
    that was received, and the other began 18 of 20 receives with a piece of a send; of 150 frames one had one.
    """
    return _share_heard(columns, name, side) >= TOLD


def _answered(end: Ends) -> bool:
    """Return whether what a host seems to send is what it received: it rang before most that it seems to receive, and
    before hardly any that it seems to send.

    Where nothing shows which way data go, a host that answers each frame with one of its length may be read like that:
    what it received seems to be sent, and its answer received. On such a host (`cardbench`, padding 74, control lines
    alone, its own profile) that was 155 nats cheaper than the truth.
    """
    if not _unseen(end):
        return False
    sends, receives = rung_for(end)
    return sends < 1 - COMPLETE and receives >= MOST


def _share_heard(columns: dict[str, Any], name: str, side: int) -> float:
    """Return the share of the frames on a wire that were found in a host's memory; 1 if there are none."""
    host, burst, _ = COLUMNS[side]
    seen = (columns[host] == name) & (columns["wire_row"] >= 0)
    return float((columns[burst][seen] >= 0).mean()) if seen.any() else 1.0


def _only_where_told(margins: Floats, least: Floats, place: Floats, asked: tuple[Integers, float]) -> None:
    """Make the margins of some frames 0 where a smaller share of them is sure: see `LEARNED`.

    A table that is sure of nearly all where they are has learned this card, though one edge of each may be doubted.
    Then of beginnings, and of ends, that are sure in a small share (`STANDS_OUT`) none is; nor those that are in fewer
    than nearly all (`BY_THEMSELVES`, or all but `FEW`) where none of the other edges is then.
    """
    (rows, share), mine = asked, margins[asked[0]]
    some = ~np.isnan(mine).any(axis=1)
    if not some.any():
        return
    told = mine[some] >= least[rows][some]
    of_all, few = told.mean(axis=0), min(share, STANDS_OUT)
    alone = (of_all[::-1] < few) & (share > TOLD)
    nearly = min(BY_THEMSELVES, 1 - FEW / len(told))
    stand_out = told.any(axis=0) & (of_all < np.where(alone, nearly, few))
    if told.all(axis=1).mean() < share and (place[rows][some] >= SURE).mean() < COMPLETE:
        stand_out[:] = True
    margins[rows] = np.where(stand_out, np.minimum(mine, 0.0), mine)


def _found_before(before: dict[str, Any], columns: dict[str, Any], names: tuple[str, str]) -> Booleans:
    """Return which edges were found at that time before: of the same frame on the wire, if that is seen."""
    out = np.zeros((len(columns["sender"]), 2), dtype=bool)
    for edge, name in enumerate(names):
        was, now = (zip(one["sender"], one["wire_row"], one[name], strict=True) for one in (before, columns))
        known = set(was)
        out[:, edge] = np.fromiter((key in known for key in now), bool, len(out))
    return out


def burst_margins(dma: Dma, pieces: Pieces, reading: Reading) -> Floats:
    """Return the margin of each burst: of what its pieces are, and of where a frame begins and ends."""
    edges = np.where(reading.begins, reading.margins[:, 1], np.inf)
    edges = np.minimum(edges, np.where(reading.ends, reading.margins[:, 2], np.inf))
    out = np.full(int(dma.burst.max(initial=-1)) + 1, np.inf)
    np.minimum.at(out, dma.burst[pieces.rows], np.minimum(reading.margins[:, 0], edges))
    return np.where(np.isfinite(out), out, np.nan)


def _places(found: Found, of_piece: Integers, reading: Reading, side: int) -> Floats:
    """Return how sure it is that any pieces of some frames are this frame's: as sure as the surest of them.

    Parameters
    ----------
    found : Found
    of_piece : array of int
        The burst of each piece that was read.
    """
    burst, target = found.burst, found.target
    target_of, surest = np.full((2, int(of_piece.max(initial=burst.max(initial=0))) + 1), -1.0)
    target_of[burst[burst >= 0]] = target[burst >= 0]
    same = (reading.track == side) & (reading.target >= 0) & (reading.target == target_of[of_piece])
    np.maximum.at(surest, of_piece[same], reading.margins[same, 3])
    return np.where(burst >= 0, surest[burst], np.nan)


def _margins(found: Found, rows: Integers, dma: Dma, reading: Reading, side: int) -> Floats:
    """Return the margins of both edges of each frame; 0 where the reading has another edge, NaN without a burst."""
    burst, order = dma.burst[rows], np.arange(len(rows))
    count = int(dma.burst.max()) + 1
    edges = np.full(count, len(rows)), np.full(count, -1)
    np.minimum.at(edges[0], burst, order)
    np.maximum.at(edges[1], burst, order)
    out = np.full((len(found.burst), 2), np.nan)
    some = np.flatnonzero(found.burst >= 0)
    for column, (at, is_edge) in enumerate(zip(edges, (reading.begins, reading.ends), strict=True)):
        row = at[found.burst[some]]
        same = (reading.track[row] == side) & is_edge[row] & (reading.target[row] == found.target[some])
        out[some, column] = np.where(same, reading.margins[row, 1 + column], 0.0)
    return out
