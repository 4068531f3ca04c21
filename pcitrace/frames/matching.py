"""The frames that one host sends, matched with the wire and with what the other host receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pcitrace.columns import Floats, Integers, alike, next_us, pick, pick_us
from pcitrace.facts import LEAST_FRAME_BYTES
from pcitrace.frames.align import match
from pcitrace.frames.droplog import Received, dropped
from pcitrace.frames.ends import Ends, HostTraffic, Link
from pcitrace.frames.identity import SequenceField, other_lengths, sequence_numbers, user_lengths
from pcitrace.frames.inorder import Followed
from pcitrace.frames.sides import ALIKE_US, Matches, Side, whenever
from pcitrace.frames.strays import Loose, certain, timely
from pcitrace.frames.turns import receives_first
from pcitrace.freed import give_back
from pcitrace.sidebyside import each
from pcitrace.traffic import Bursts
from pcitrace.traffic.content import FCS, Keys, WireFrames, briefly, fcs_in_memory, in_common, keys, own_keys
from pcitrace.traffic.csr import CONFIGURATION
from pcitrace.traffic.dma import SHORTEST_RECEIVED, Kind
from pcitrace.traffic.goals import BLOCK, RECEIVE, SEND

__all__ = ["Matched", "match_hosts"]

STRAY = 0.1
"""Share of the sends that may be on no wire and are then no frames; a read on no wire is a descriptor."""

MUCH_LONGER = 2.0
"""A read that was not on the wire after so many times the longest that any other took is no frame. A judgement."""

LACKING = 0.1
"""Share of frames that must have a partner only if wire and DMA overlap."""

NONE: Integers = np.zeros(0, dtype=np.int64)

RECEIVED_TIMES = ("rx_dma_start_us", "rx_dma_end_us", "rx_status_us", "rx_csr_us")
RECEIVED_NUMBERS = ("rx_pieces", "receive_burst", "receive_bytes", "receive_phases")
"""Columns of the receiver."""


Matched = tuple[dict[str, Ends], dict[str, Any], list[dict[str, Any]]]
"""The ends of all hosts, the columns of all frames in order of time, what was dropped of each host's sends."""


def match_hosts(hosts: Mapping[str, HostTraffic], link: Link | None, sequence: SequenceField | None) -> Matched:
    """Match what all hosts show; return their ends, the columns of all frames in order of time, what was dropped."""
    names = list(hosts)
    ends = dict(zip(names, each(lambda name: Ends.of(hosts[name], link), names), strict=True))
    give_back()
    others = [next((one for one in names if one != name), None) for name in names]
    found = each(lambda pair: _one_direction(*pair, ends, sequence), zip(names, others, strict=True))
    parts, drops = [part for part, _ in found], [drop_log for _, drop_log in found]
    bases = np.cumsum([0, *(len(part["order_us"]) for part in parts[:-1])]).tolist()
    order = np.argsort(np.concatenate([part.pop("order_us") for part in parts]), kind="stable")
    columns = {key: np.concatenate([part.pop(key) for part in parts])[order] for key in list(parts[0])}
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    for one, base in zip(drops, bases, strict=True):
        one["frame"] = pick(rank, np.where(one["frame"] >= 0, one["frame"] + base, -1))
    return ends, columns, drops


@dataclass(frozen=True)
class _Rows:
    """The frames of one sender: every send, then every frame on its wire whose send was not seen.

    Which send, which frame on the wire and which receive each is, -1 for none; the frames on the wire and receives that
    may be the same frame, or another; and what the receiver's card wrote beside frames, None if that was not looked at.
    """

    send: Integers
    wire: Integers
    receive: Integers
    doubtful_wire: Integers = field(default_factory=lambda: NONE)
    doubtful: Integers = field(default_factory=lambda: NONE)
    loose: Loose | None = None

    @classmethod
    def of(cls, wire_of_send: Integers, receive_of_wire: Integers) -> _Rows:
        """Put together which frame on the wire each send is, and which receive each of these is; -1 for none."""
        wire = np.r_[wire_of_send, np.setdiff1d(np.arange(len(receive_of_wire)), wire_of_send)]
        send = np.arange(len(wire))
        return cls(np.where(send < len(wire_of_send), send, -1), wire, pick(receive_of_wire, wire))


def _one_direction(
    sender: str, receiver: str | None, ends: Mapping[str, Ends], sequence: SequenceField | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Match what one host sends with what is on the wire and what the other host receives."""
    mine, wire = ends[sender], ends[sender].wire
    theirs = ends[receiver] if receiver is not None else None
    found = _followed(mine, theirs)
    give_back()
    count = len(found.send)
    rows: dict[str, Any] = {"sender": alike(count, sender), "receiver": alike(count, receiver)}
    rows |= _sent(mine, found) | _received(theirs, found)
    read = _inside(mine, SEND, rows["dma_start_us"], rows["dma_end_us"])
    written = _inside(theirs, RECEIVE, rows["rx_dma_start_us"], rows["rx_dma_end_us"])
    if wire is not None and theirs is not None and not theirs.host.traffic.dma.bus.has_address:
        inside = written if found.loose is not None else np.zeros_like(written)
        other, rows["open"] = other_lengths(rows, wire, inside, mine.host.traffic.dma, theirs.host.traffic.dma)
        rows |= {name: np.where(other, -1, rows[name]) for name in ("receive_bytes", "receive_phases")}
        rows |= {name: np.where(rows["open"], np.nan, rows[name]) for name in RECEIVED_TIMES}
    user_lengths(rows, mine, theirs, (read == 0, written == 0))
    sequence_numbers(rows, mine, theirs, sequence)
    rows["doubtful"] = np.isin(rows["wire_row"], found.doubtful_wire)
    if wire is not None:
        rows = _on_wire(rows, wire, mine.host.traffic.dma.bus.last_data_us)
    end, used = (mine, NONE) if theirs is None else (theirs, found.receive)
    unused = end.receives[~np.isin(np.arange(len(end.receives)), used)]
    received = Received(end.host.traffic.joined, end.receives, unused, end.receives[found.doubtful], end.host.begin_us)
    return rows, dropped(sender, receiver, rows, wire, received)


def _inside(end: Ends | None, side: int, start_us: Floats, end_us: Floats) -> Integers:
    """Return how many data phases of no frame lie between some times in a memory, where bytes do not tell what is."""
    if end is None or end.host.traffic.dma.bus.bytes_exact:
        return np.zeros(len(start_us), np.int64)
    return Loose.of(end.host.traffic.joined, side).within(start_us, end_us)


def _followed(mine: Ends, theirs: Ends | None) -> _Rows:
    """Follow what one host sends over its wire to the other host.

    A reading of data phases may take a send for a shorter frame, of which some was read twice. Where addresses show
    that nothing was, it is not that frame: one of 1411 bytes was one of 974 (`cardbench`, mid-stream 59).
    """
    count = len(mine.sends)
    key = own_keys(mine.send_head, _reference_keys(mine.wire, theirs), count)
    key = briefly(key, mine.send_head, theirs.receive_head if theirs is not None else None)
    send, sends = _memory_side(mine.host.traffic.joined, mine.sends, (0, 0), key), np.arange(count)
    if mine.wire is None:
        receive = _received_of_send(mine, theirs, send) if theirs is not None else np.full(count, -1)
        return _Rows(sends, np.full(count, -1), receive)
    on_wire = _wire_side(mine.wire, mine.wire_busy_us)
    received = None if theirs is None else _receive_side(theirs, np.union1d(send.key, on_wire.key))
    if theirs is not None and received is not None and count != len(on_wire):
        send = replace(send, ended_us=_ended_us(send, on_wire, received, theirs))
    if mine.host.traffic.claims.sent is not None:
        i, j = _claimed(mine.host.traffic.claims.sent, mine.sends)
        if mine.host.traffic.dma.bus.bytes_exact:
            # Cards may read blocks of memory whole, at either end.
            holds = send.shortest[i] - 2 * BLOCK[-1] <= on_wire.longest[j]
            i, j = i[holds], j[holds]
    else:
        send, i, j = _went_out(send, on_wire, mine.host.profile.send == "store_and_forward")
    wire_of_send, send_of_wire = np.full(count, -1), np.full(len(on_wire), -1)
    wire_of_send[i], send_of_wire[j] = j, i
    receive_of_wire = np.full(len(on_wire), -1)
    if theirs is None or received is None:
        return _Rows.of(wire_of_send, receive_of_wire)
    # A wire whose bytes were not captured has the content of what was read for it.
    key, known = on_wire.key.copy(), (on_wire.key == 0) & (send_of_wire >= 0)
    key[known] = send.key[send_of_wire[known]]
    on_wire = replace(on_wire, key=key)
    if theirs.host.traffic.claims.received is not None:
        j, i = _claimed(theirs.host.traffic.claims.received, theirs.receives)
        sure = timely(Matches.of(on_wire, received, i, j))
        receive_of_wire[i[sure]] = j[sure]
        found = Followed(send, on_wire, received, wire_of_send, receive_of_wire).as_received()
        rows = _Rows.of(found.wire_of_send, receive_of_wire)
        return replace(rows, doubtful_wire=i[~sure], doubtful=j[~sure])
    i, j = _arrived(on_wire, received, theirs)
    loose = Loose.of(theirs.host.traffic.joined, RECEIVE)
    sure = certain(Matches.of(on_wire, received, i, j), loose)
    receive_of_wire[i[sure]] = j[sure]
    found = Followed(send, on_wire, received, wire_of_send, receive_of_wire).in_order()
    rows = _Rows.of(found.wire_of_send, found.receive_of_wire)
    return replace(rows, doubtful_wire=i[~sure], doubtful=j[~sure], loose=loose)


def _went_out(send: Side, on_wire: Side, after_end: bool) -> tuple[Side, Integers, Integers]:
    """Match sends with the frames on their wire; return the sends with the lengths that they have then.

    A card may read on to the end of a block of memory, if all its sends are on the wire then and were not before. One
    that does so by 8 bytes had read 72 for a frame of 65, and the send behind it was received as that (`cardbench`,
    tiny 63).
    """
    i, j = _match(send, on_wire, after_end, lossless=True)
    for block in BLOCK:
        if len(i) == len(send) or len(send) > len(on_wire):
            break
        longer = replace(send, shortest=np.maximum(send.shortest - 2 * block, SHORTEST_RECEIVED))
        all_i, all_j = _match(longer, on_wire, after_end, lossless=True)
        if len(all_i) == len(send):
            send, i, j = longer, all_i, all_j
    return send, i, j


def _ended_us(send: Side, on_wire: Side, receive: Side, theirs: Ends) -> Floats:
    """Return since when and until when each send ended on the wire, as its receive shows if that has its content.

    It was in the other memory after that, but for its last word and the check sequence. And where a send was not found,
    it was not left lying if some frame on the wire was not either (`Pair.idle_us`): where none is missing their order
    tells more, for cards do leave some (`cardbench`, batched-status 1).
    """
    ended_us, (i, j) = whenever(len(send)).copy(), in_common(send.key, receive.key)
    if not len(i):
        return ended_us
    lasted_us = on_wire.end_us - on_wire.start_us
    word_us = 2 * FCS / LEAST_FRAME_BYTES * np.max(lasted_us[np.isfinite(lasted_us)], initial=0.0)
    ended_us[1, i] = receive.end_us[j] + word_us
    if len(send) > len(on_wire):
        return ended_us
    found = Matches.of(on_wire, receive, *_arrived(on_wire, receive, theirs))
    lags_us = found.lag_us[np.isfinite(found.lag_us)]
    if len(lags_us):
        lag_us = float(np.median(lags_us))
        busy_us = theirs.busy_us[0]
        pair = replace(found.pair, later=replace(receive, busy_us=busy_us))
        prompt = np.isin(j, found.j[pair.idle_us(found.i, found.j, lag_us) == 0])
        ended_us[0, i[prompt]] = busy_us[j[prompt]] - lag_us - ALIKE_US
    return ended_us


def _received_of_send(mine: Ends, theirs: Ends, send: Side) -> Integers:
    """Return which receive each send is, where its wire was not captured."""
    if theirs.host.traffic.claims.received is not None:
        j, i = _claimed(theirs.host.traffic.claims.received, theirs.receives)
    elif mine.host.traffic.claims.sent is not None:
        i, j = _claimed(mine.host.traffic.claims.sent, mine.sends)
    else:
        after_end = mine.host.profile.send == theirs.host.profile.receive == "store_and_forward"
        i, j = _match(send, _receive_side(theirs, send.key), after_end)
    receive = np.full(len(send), -1)
    receive[i] = j
    return receive


def _arrived(on_wire: Side, receive: Side, theirs: Ends) -> tuple[Integers, Integers]:
    """Match frames on a wire with receives: once more if the receiver's own sends tell which of them were pending."""
    if not len(on_wire):
        return NONE, NONE
    after_end = theirs.host.profile.receive == "store_and_forward"
    received_busy_us, send_busy_us = theirs.busy_us
    arriving, receive = _arriving(on_wire, after_end), replace(receive, busy_us=received_busy_us)
    i, j = _match(arriving, receive, after_end)
    if len(i) < len(on_wire):
        send_us = theirs.host.traffic.joined.start_us[theirs.sends]
        busy_us = receives_first(Matches.of(arriving, receive, i, j), send_us, send_busy_us)
        if (busy_us > receive.busy_us).any():
            i, j = _match(arriving, replace(receive, busy_us=busy_us), after_end)
    return i, j


def _on_wire(rows: dict[str, Any], wire: WireFrames, moved_us: Floats) -> dict[str, Any]:
    """Leave out the few reads that became no frame on the wire although later ones did: descriptors, not frames.

    Also those after which this bus went on for so long, as `moved_us` says, that any other frame would have been on
    the wire: the last descriptors that a host fetched for what it receives (`realcards`, e1000 55) had 384 bytes.
    Where many became none, the wire is another's or the reading of the bus is wrong, and all is shown.
    """
    last_us = np.nanmax(wire.start_us, initial=-np.inf)
    sent = (rows["send_row"] >= 0) & (rows["wire_row"] >= 0)
    waited_us = wire.start_us[rows["wire_row"][sent]] - rows["dma_start_us"][sent]
    free_us = np.fmax(rows["dma_start_us"], np.nanmax(wire.end_us, initial=-np.inf))
    late_us = np.nanmax(moved_us, initial=-np.inf) - MUCH_LONGER * np.nanmax(waited_us, initial=0.0)
    idle = (rows["send_row"] >= 0) & (rows["wire_row"] < 0) & (rows["receive_row"] < 0)
    idle &= (rows["dma_start_us"] < last_us) | (free_us < late_us) & (waited_us > 0).any()
    if not idle.any() or idle.sum() > max(1.0, STRAY * len(idle)):
        return rows
    return {name: values[~idle] for name, values in rows.items()}


def _claimed(claims: Integers, bursts: Integers) -> tuple[Integers, Integers]:
    """Return which of some bursts claim a frame, and which."""
    rows = np.flatnonzero(claims[bursts] >= 0)
    return rows, claims[bursts[rows]]


def _match(earlier: Side, later: Side, after_end: bool, lossless: bool = False) -> tuple[Integers, Integers]:
    """Match two sides; where wire and DMA overlap although the profile says they do not, the trace is right.

    It shows in more frames that match or, without contents, in as many that come much sooner; or, between memory and
    wire of the sender, where none is lost, in every one having a partner, of which a good share had none.
    """
    i, j = match(earlier, later, after_end)
    by_content = bool((earlier.key != 0).any() and (later.key != 0).any())
    if lossless and not after_end and 0 < len(i) < min(len(earlier), len(later)):
        # None is lost here: that each has a partner tells more than that some are on the wire sooner.
        other_i, other_j = match(earlier, later, True)
        return (other_i, other_j) if len(other_i) == min(len(earlier), len(later)) else (i, j)
    if not after_end or (by_content and len(i) == min(len(earlier), len(later))):
        return i, j
    other_i, other_j = match(earlier, later, False)
    if by_content or len(other_i) < len(i) or not len(other_i):
        return (other_i, other_j) if len(other_i) > len(i) else (i, j)
    if lossless and len(j) and other_j[-1] < j[-1]:
        # What went over the wire last was read, too.
        return i, j
    if lossless and len(other_i) == min(len(earlier), len(later)) and len(i) < (1 - LACKING) * len(other_i):
        return other_i, other_j
    sooner = float(np.median(later.end_us[other_j] - earlier.end_us[other_i]))
    if not len(i) or sooner < 0.5 * float(np.median(later.end_us[j] - earlier.end_us[i])):
        return other_i, other_j
    return i, j


def _memory_side(joined: Bursts, bursts: Integers, fcs_bytes: tuple[int, int], key: Keys) -> Side:
    """Describe DMA bursts for matching; their lengths are those the frames have on the wire."""
    size, phases = (one[bursts] for one in joined.once)
    spare = 2 * (np.where(size > 4 * phases, 8, 4) - 1)
    fcs_least, fcs_most = fcs_bytes
    return Side(
        start_us=joined.first_data_us[bursts],
        end_us=joined.last_data_us[bursts],
        shortest=np.maximum(size - spare - fcs_most, SHORTEST_RECEIVED),
        longest=np.maximum(size - fcs_least, SHORTEST_RECEIVED),
        key=key,
        damaged=np.zeros(len(bursts), dtype=bool),
        busy_us=np.full(len(bursts), np.nan),
        ended_us=whenever(len(bursts)),
    )


def _receive_side(theirs: Ends, known: Keys) -> Side:
    """Describe the receives of a host; `known` are the keys of what may have arrived."""
    key = own_keys(theirs.receive_head, known, len(theirs.receives))
    return _memory_side(theirs.host.traffic.joined, theirs.receives, fcs_in_memory(theirs.host.profile), key)


def _wire_side(wire: WireFrames, busy_us: Floats) -> Side:
    known = wire.length >= 0
    return Side(
        start_us=np.where(np.isnan(wire.start_us), -np.inf, wire.start_us),
        end_us=np.where(np.isnan(wire.end_us), np.inf, wire.end_us),
        shortest=np.where(known, wire.least, 0),
        longest=np.where(known, wire.most, np.iinfo(np.int64).max),
        key=keys(wire.head) if wire.head is not None else np.zeros(len(wire), dtype=np.uint64),
        damaged=wire.fcs_ok == 0,
        busy_us=busy_us,
        ended_us=whenever(len(wire)),
    )


def _arriving(wire: Side, after_end: bool) -> Side:
    """Let a cut-through receiver be done with a frame's data before its check sequence has gone by."""
    if after_end:
        return wire
    length = np.where(wire.longest < np.iinfo(np.int64).max, wire.longest, 0)
    byte_us = np.where(length > 0, (wire.end_us - wire.start_us) / np.maximum(length, 1), 0.0)
    return replace(wire, end_us=wire.end_us - 2 * FCS * np.where(np.isfinite(byte_us), byte_us, 0.0))


def _reference_keys(wire: WireFrames | None, theirs: Ends | None) -> Keys:
    parts = [np.zeros(0, dtype=np.uint64)]
    if wire is not None and wire.head is not None:
        parts.append(keys(wire.head))
    if theirs is not None and theirs.receive_head is not None:
        parts.append(keys(theirs.receive_head))
    return np.concatenate(parts)


def _sent(mine: Ends, found: _Rows) -> dict[str, Any]:
    """Return the columns of the sender and its wire."""
    joined, wire, send = mine.host.traffic.joined, mine.wire, found.send
    store_and_forward = mine.host.profile.send == "store_and_forward"
    burst = pick(mine.sends, send)
    size, phases = (pick(one, burst) for one in joined.once)
    dma_end = pick_us(joined.known_last_us, burst)
    begin = end = np.full(len(send), np.nan)
    if wire is not None:
        begin, end = pick_us(wire.start_us, found.wire), pick_us(wire.end_us, found.wire)
    done_us = np.fmax(dma_end, end) if store_and_forward else dma_end
    status_us = next_us(joined.begins_us(Kind.STATUS_WRITE), done_us)
    dma_start = pick_us(joined.first_data_us, burst)
    last = len(mine.sends) - 1
    if wire is not None and last >= 0 and np.isnan((begin if store_and_forward else end)[last]):
        # The capture may have ended before all of it was read. Of those before it the next one tells.
        dma_end[last], size[last], phases[last] = np.nan, -1, -1
    return {
        "dma_start_us": dma_start,
        "dma_end_us": dma_end,
        "status_us": status_us,
        "wire_start_us": begin,
        "wire_end_us": end,
        "fcs_ok": pick(wire.fcs_ok if wire is not None else NONE, found.wire),
        "pieces": pick(joined.pieces, burst),
        "send_burst": burst,
        "send_bytes": size,
        "send_phases": phases,
        "wire_row": found.wire,
        "send_row": send,
        "receive_row": found.receive,
        "order_us": np.where(np.isnan(dma_start), begin, dma_start),
        "open": np.zeros(len(send), dtype=bool),
    }


def _received(theirs: Ends | None, found: _Rows) -> dict[str, Any]:
    """Return the columns of the receiver."""
    if theirs is None:
        count = len(found.send)
        unknown, none = np.full(count, np.nan), np.full(count, -1)
        return dict.fromkeys(RECEIVED_TIMES, unknown) | {name: none.copy() for name in RECEIVED_NUMBERS}
    joined, csr = theirs.host.traffic.joined, theirs.host.traffic.csr
    burst = pick(theirs.receives, found.receive)
    end = pick_us(joined.known_last_us, burst)
    times = (
        pick_us(joined.first_data_us, burst),
        end,
        next_us(joined.begins_us(Kind.STATUS_WRITE), end),
        next_us(csr.first_attempt_us[csr.reason != CONFIGURATION], end),
    )
    numbers = (pick(joined.pieces, burst), burst, *(pick(one, burst) for one in joined.once))
    return dict(zip((*RECEIVED_TIMES, *RECEIVED_NUMBERS), (*times, *numbers), strict=True))
