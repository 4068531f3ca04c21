"""Descriptors, status writes and doorbells: how long they are and how many frames each serves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcitrace.columns import Floats, Integers, floats
from pcitrace.frames import Frames
from pcitrace.learning.evidence import LEAST, MISS, Fact, Value, chosen, unseen
from pcitrace.traffic import Traffic
from pcitrace.traffic.dma import Kind

__all__ = ["descriptors", "doorbells", "statuses"]

APART = 4096
"""Bytes between two rings, at least: what lies nearer is one."""

SIZES = tuple(range(4, 129, 4))
"""Sizes of descriptors, in bytes."""

GROUPS = tuple(range(1, 65))
"""Frames that one doorbell, read or status write may serve."""

RARE = 0.05
"""Share of a ring's status writes that may have another size than the rest."""

FULL = 0.8
"""Share of the reads with more behind them that must be as long as the longest; and of all that must lie apart.
A judgement: most, but for what the end of a ring or of a capture cuts."""

HEAD_US = 1.0
"""What is written so soon before a frame may be its header."""

TIMER_US = 5.0
"""A status write that comes sooner than this after its frame began was not put off by a timer."""


@dataclass(frozen=True)
class _Moved:
    """Bursts of one kind in order of time, with the ring that each is in."""

    time_us: Floats
    address: Integers
    bytes: Integers
    ring: Integers

    @classmethod
    def of(cls, traffic: Traffic, kind: Kind) -> _Moved:
        joined = traffic.joined
        rows = np.flatnonzero((joined.kind == kind) & (joined.data_phases > 0) & (joined.address >= 0))
        rows = rows[np.argsort(joined.first_data_us[rows], kind="stable")]
        address = joined.address[rows].astype(np.int64)
        order = np.argsort(address, kind="stable")
        ring = np.zeros(len(rows), np.int64)
        ring[order] = np.cumsum(np.diff(address[order], prepend=address[order][:1]) > APART)
        return cls(joined.first_data_us[rows], address, joined.bytes[rows].astype(np.int64), ring)


UNTOLD = "where many frames lie in memory is not known"


def _frame_times(frames: Frames, host: str) -> tuple[Floats, Floats]:
    """Return when the frames that a host sends and receives begin in its memory, of those known at both edges."""

    def whole(way: str, first: str, last: str) -> Floats:
        mine = frames.table[frames.table[way] == host]
        begin, end = floats(mine, first), floats(mine, last)
        return np.sort(begin[~np.isnan(begin + end)])

    return whole("sender", "dma_start_us", "dma_end_us"), whole("receiver", "rx_dma_start_us", "rx_dma_end_us")


def _told(frames: Frames, host: str, times: tuple[Floats, Floats]) -> bool:
    """Return whether so many frames of a host are known that most neighbours are."""
    count = int(((frames.table["sender"] == host) | (frames.table["receiver"] == host)).sum())
    return 2 * sum(map(len, times)) ** 2 >= count**2


def descriptors(frames: Frames, host: str, one_buffer: tuple[Value, Value]) -> dict[str, Value]:
    """Learn how long the descriptors of frames sent and received are, and how many the card reads at once.

    `one_buffer` says in how many buffers frames sent and received lie.
    """
    names = ("send_descriptor_bytes", "receive_descriptor_bytes", "send_fetch_max", "receive_fetch_max")
    fetched = _Moved.of(frames.hosts[host], Kind.DESCRIPTOR_FETCH)
    if len(fetched.time_us) < LEAST:
        return dict.fromkeys(names, unseen("no descriptor reads whose addresses are known", len(fetched.time_us)))
    out = dict.fromkeys(names, unseen("no ring is read as often as frames go this way", len(fetched.time_us)))
    times = _frame_times(frames, host)
    if not _told(frames, host, times):
        # What is between two reads is mostly more than one descriptor.
        return dict.fromkeys(names, unseen(UNTOLD, len(fetched.time_us)))
    accesses_us = frames.hosts[host].csr.first_attempt_us
    for ring in np.unique(fetched.ring):
        rows = np.flatnonzero(fetched.ring == ring)
        found = [_stride(fetched.address[rows], fetched.time_us[rows], mine) for mine in times]
        sure = [one.value is not None for one in found]
        side = _served(fetched.time_us[rows], times)
        if side < 0 or not sure[side]:
            continue
        name = names[side]
        if one_buffer[side].value != 1:
            out[name] = unseen("frames may lie in several buffers, and take as many descriptors", found[side].n)
        elif out[name].value is None or out[name].n < found[side].n:
            out[name] = found[side]
            out[names[2 + side]] = _most(fetched, rows, found[side], accesses_us, times[side])
    return out


def _served(fetch_us: Floats, times: tuple[Floats, Floats]) -> int:
    """Return whether what a ring's reads are followed by are sends (0) or receives (1); -1 if neither, mostly."""
    following = []
    for mine in times:
        at = np.searchsorted(mine, fetch_us, side="right")
        following.append(np.append(mine, np.inf)[at])
    known = np.isfinite(following[0]) | np.isfinite(following[1])
    first = following[0] < following[1]
    count = int(known.sum())
    if count < LEAST:
        return -1
    share = float(first[known].mean())
    return 0 if share > 0.9 else 1 if share < 0.1 else -1


def _stride(address: Integers, fetch_us: Floats, frame_us: Floats) -> Value:
    """Return the bytes by which a ring is read on a frame."""
    # Several reads with no frame between them are one: a card reads what it needs in as many as it takes.
    before = np.searchsorted(frame_us, fetch_us)
    first = np.append(True, np.diff(before) > 0)
    on, served = np.diff(address[first]), np.diff(before[first])
    use = (on > 0) & (served > 0)
    n = int(use.sum())
    if n < LEAST:
        return unseen("the ring is read too seldom", n)
    return chosen({size: int((on[use] != size * served[use]).sum()) for size in SIZES}, n)


def _most(moved: _Moved, rows: Integers, descriptor: Value, accesses_us: Floats, frame_us: Floats) -> Value:
    """Return the most descriptors in one read: where the driver did nothing until the next, more were waiting.

    What was read before and after an access says nothing: a driver that hands over two at a time makes every card read
    two. Nor do reads with no frame between them: a card that ends its bursts at lines of 64 bytes reads four in two.
    """
    assert isinstance(descriptor.value, int)
    many, time_us = moved.bytes[rows] // descriptor.value, moved.time_us[rows]
    undone, apart = (np.diff(np.searchsorted(one, time_us)) for one in (accesses_us, frame_us))
    most, longest = int(many.max()), many[:-1] == many.max()
    full, more = int(longest[undone == 0].sum()), int((undone == 0).sum())
    if full < LEAST or full <= FULL * more:
        return unseen(f"up to {most} in one read, but nothing shows that more were waiting", len(many))
    if (apart[longest] > 0).mean() <= FULL:
        return unseen(f"up to {most} in one burst, but several follow each other: they may be one read", len(many))
    return Value(most, more, MISS * (2 * full - more))


def statuses(frames: Frames, host: str) -> dict[str, Value]:
    """Learn how long status writes are, and how many frames each tells of.

    What is written to a ring is a status only where the writes count as the frames do: remains of frames that the
    capture cut, and what another device writes, do not.
    """
    names = ("send_frames_per_status", "receive_frames_per_status")
    written, times = _Moved.of(frames.hosts[host], Kind.STATUS_WRITE), _frame_times(frames, host)
    n = len(written.time_us)
    if not _told(frames, host, times):
        # What is left over of each frame is written as often, too.
        return dict.fromkeys(("status_bytes", *names), unseen(UNTOLD, n))
    out = dict.fromkeys(names, unseen("no status writes that count as the frames do", n))
    begins_us = frames.hosts[host].joined.begins_us(Kind.RECEIVE_DATA)
    rings = [np.flatnonzero(written.ring == ring) for ring in np.unique(written.ring)]
    rings = [rows for rows in rings if not _heads(written.time_us[rows], begins_us)]
    batches = [[_batch(written.time_us[rows], one) for one in times] for rows in rings]
    found: dict[int, int] = {}
    for side, name in enumerate(names):
        counting = [at for at, both in enumerate(batches) if both[side].value is not None]
        for rows in (rings[at] for at in counting):
            size, count = _usual(written.bytes[rows])
            if count >= (1 - RARE) * len(rows):
                found[size] = max(found.get(size, 0), count)
        # Where sends and receives take turns what counts one counts the other.
        mine = [at for at in counting if batches[at][1 - side].value is None] or counting
        if len({batches[at][side].value for at in mine}) > 1:
            out[name] = unseen("rings that count sends and receives alike are written a different number of times", n)
        elif mine:
            at = max(mine, key=lambda one: batches[one][side].n)
            batch = batches[at][side]
            out[name] = batch if _counts(batch, written.time_us[rings[at]], times[side]) else unseen(TIMED, batch.n)
    if not found:
        status = unseen("no status writes of one size that count as the frames do", n)
    elif not frames.hosts[host].dma.bus.bytes_exact:
        status = unseen("without C/BE# the bytes of a status are not known", n)
    else:
        status = Value(tuple(sorted(found)), sum(found.values()), MISS * min(found.values()))
    return {"status_bytes": status, **out}


TIMED = "one a frame, but so late that it may be a timer's: frames come too seldom to tell"


def _usual(values: Integers) -> tuple[int, int]:
    """Return the most frequent value and how often it is there."""
    seen, counts = np.unique(values, return_counts=True)
    return int(seen[counts.argmax()]), int(counts.max())


def _batch(status_us: Floats, frame_us: Floats) -> Value:
    """Return how many frames a status write of one ring tells of."""
    count = np.diff(np.searchsorted(frame_us, status_us))
    if len(count) < LEAST:
        return unseen("too few status writes", len(count))
    return chosen({many: int((count != many).sum()) for many in GROUPS}, len(count))


def _heads(status_us: Floats, begins_us: Floats) -> bool:
    """Return whether frames begin just behind these writes: then they may be their headers, in buffers of their own."""
    at = np.searchsorted(begins_us, status_us)
    soon = np.append(begins_us, np.inf)[at] - status_us < HEAD_US
    return bool(soon.mean() > 1 / 2)


def _counts(batch: Value, status_us: Floats, frame_us: Floats) -> bool:
    """Return whether the card counted the frames: not a timer wrote the status of the only one that there was."""
    if batch.value != 1:
        return True
    at = np.searchsorted(frame_us, status_us) - 1
    waited = (status_us - frame_us[at])[at >= 0]
    return len(waited) > 0 and float(np.median(waited)) < TIMER_US


def doorbells(frames: Frames, host: str) -> Value:
    """Learn how many frames one doorbell starts, as a rule."""
    mine = frames.table[frames.table["sender"] == host]
    bell = floats(mine, "csr_last_us")
    bell = np.sort(bell[~np.isnan(bell)])
    if len(bell) < LEAST:
        return unseen("no frames whose doorbell is known", len(bell))
    _, count = np.unique(bell, return_counts=True)
    misses: dict[Fact | None, int] = {many: int((count != many).sum()) for many in GROUPS}
    return chosen(misses, len(count))
