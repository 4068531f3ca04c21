"""Which accesses start which send where nothing names them: told by when they come and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers, pick, pick_us
from pcitrace.facts import WRITES
from pcitrace.frames.delays import (
    AT_ONCE_US,
    BEFORE_CAPTURE,
    LAG_US,
    MOST,
    NEARLY_ALL,
    SET_UP,
    as_after,
    crowded,
    filled,
    following,
    in_step,
    usual,
    waited,
)
from pcitrace.frames.starts import GROUP_US, CardTimes, Starts, started
from pcitrace.traffic.csr import CONFIGURATION, Accesses

__all__ = ["by_group", "by_lag", "by_run"]

PAUSES_US = (0.8, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
"""Pauses that may part the runs of accesses of one send from the next and from others, tried in this order."""

CLOCKS_US = 0.06
"""Two clocks at 33 MHz: an access and a DMA begin with a clock each."""


def by_run(csr: Accesses, card: CardTimes) -> Starts | None:
    """Nothing names the registers, but each send is started by a run of equally many accesses in quick succession.

    The runs are told from other accesses by their number: with some pause between runs and some length of theirs there
    is one for each send, in order, each before its DMA. None if there are no such pause and length. Where another
    access stands with a run and its pause does not tell on which side, neither end of the run is known.
    """
    usable, dma_start_us = _usable(csr), card.dma_start_us
    if len(usable) < 2:
        return None
    start_us, end_us, pause = csr.first_attempt_us, csr.end_us, np.full(len(usable) + 1, np.inf)
    if len(usable) < len(csr):
        start_us, end_us = start_us[usable], end_us[usable]
    np.subtract(start_us[1:], end_us[:-1], out=pause[1:-1])
    del end_us  # as long as all accesses
    for limit in PAUSES_US:
        heads = np.flatnonzero(pause[:-1] >= limit)
        size = np.diff(np.r_[heads, len(usable)])
        place = np.arange(len(usable), dtype=np.int32)
        place -= np.repeat(heads.astype(np.int32), size)
        best, least = None, (BEFORE_CAPTURE + 1, False)
        for length in np.unique(size[size > 1]).tolist():
            # Another access may stand right before or behind a run: beyond a pause as there is none within runs.
            joined = size == length + 1
            runs = joined | (size == length)
            if len(dma_start_us) - np.count_nonzero(runs) >= least[0]:
                continue
            within = np.repeat(runs, size) & (place > np.repeat(joined, size)) & (place < length)
            odd = pause < pause[:-1].min(where=within, initial=np.inf)
            odd |= pause > pause[:-1].max(where=within, initial=-np.inf)
            ahead, behind = odd[heads + 1], odd[np.minimum(heads + length, len(usable))]
            first = (heads + (joined & ahead))[runs]
            first = first[start_us[np.minimum(first + length, len(usable)) - 1] <= dma_start_us[-1]]
            unclear = heads[joined & (ahead == behind)]
            del within, odd, ahead, behind  # as long as all accesses
            missing = len(dma_start_us) - len(first)
            # Runs too many are no sends but what came first, such as the set-up of the card.
            first = first[max(-missing, 0) :]
            last = first + length - 1
            late = start_us[last] > dma_start_us[max(missing, 0) :]
            if (abs(missing), missing > 0) >= least or late.any() or not _settled(start_us, card, first, last):
                continue
            either = np.r_[unclear, unclear + length]
            best, least = (first, last, either), (abs(missing), missing > 0)
        if best is not None:
            break
    else:
        return None
    del start_us, pause, heads, size, place, joined, runs  # as long as all accesses
    first, last, either = best
    unknown = np.full(len(dma_start_us) - len(first), -1)
    return _among(csr, usable, np.r_[unknown, first], np.r_[unknown, last], either)


def _settled(access_us: Floats, card: CardTimes, first: Integers, last: Integers) -> bool:
    """Whether accesses that are in no run are the updates of the sends, or at least do not come between runs and DMA.

    A send without a run was started before the capture: no access comes before it as the runs do.
    """
    early, begun = np.split(card.dma_start_us, [len(card.dma_start_us) - len(last)])
    window = usual((begun - access_us[last])[:, None], MOST) if len(early) else None
    if window is not None and np.diff(np.searchsorted(access_us, early[:, None] - window[::-1])).any():
        return False
    if not len(begun):
        return False
    if (np.searchsorted(access_us, begun, side="right") - 1 == last).mean() >= MOST:
        return True
    others = access_us[(started(len(access_us), first, last) < 0) & (access_us > card.dma_end_us[0])]
    return in_step(others, card.dma_end_us) is not None


def by_lag(csr: Accesses, card: CardTimes) -> Starts | None:
    """Each send is started by one access and completed by another, always about as long after it.

    Those that complete sends are told by that; the others start one send each, in order, before its DMA. None if that
    does not come out, or in more than one way.
    """
    usable = np.flatnonzero(csr.reason != CONFIGURATION)
    access_us, count = csr.first_attempt_us[usable], len(card.dma_end_us)
    behind, lag = following(access_us, card.dma_end_us)
    lags = np.sort(lag[np.isfinite(lag)])
    # Those that complete none start one each, but for a few.
    begins, within = crowded(lags, max(ceil(NEARLY_ALL * count), len(usable) - count - SET_UP, 1))
    found: Starts | None = None
    while within.any():
        low = lags[begins[within.argmax()]]
        high = low + LAG_US
        within[(lags[begins] > low - LAG_US) & (lags[begins] <= high)] = 0
        hit = (lag >= low) & (lag <= high)
        completed = hit.any(axis=1)
        surplus = len(usable) - int(np.count_nonzero(completed)) - count
        if not -BEFORE_CAPTURE <= surplus <= SET_UP:
            continue
        nearest = np.where(hit, np.abs(lag - np.median(lag[hit])), np.inf).argmin(axis=1)
        completes = behind[np.arange(count), nearest][completed]
        if (np.diff(completes) <= 0).any():
            continue
        both = np.zeros(len(access_us), dtype=bool)
        both[behind[hit & (hit.sum(axis=1) > 1)[:, None]]] = True
        either = np.flatnonzero(both)
        starts = np.delete(np.arange(len(usable)), completes)[max(surplus, 0) :]
        first = np.r_[np.full(max(-surplus, 0), -1), usable[starts]]
        if (access_us[starts] <= card.dma_start_us[max(-surplus, 0) :]).all():
            if found is not None:
                return None
            send = np.full(len(csr), -1)
            send[usable[starts]] = np.arange(max(-surplus, 0), count)
            # Of two that came at such a time one starts a send.
            first[np.isin(first, usable[either])] = -1
            found = Starts(first, first.copy(), send, usable[either])
    return found


def by_group(csr: Accesses, card: CardTimes) -> Starts:
    """The access before the DMA starts it, or the group of accesses; a batch shares its group evenly.

    Unknown where the last one does not come as long before the DMA as it usually does, where there are not as many as
    before most, and where one may be the update of a send or belong to a receive.
    """
    usable = _usable(csr)
    groups = _Groups.of(csr.first_attempt_us[usable], csr.end_us[usable], card)
    if groups is None:
        return Starts.unknown(len(card.dma_start_us), len(csr))
    before, last, clear = groups.before, groups.last, _clear(groups, card)
    if groups.normal == 1:
        # One that came late makes those behind it late, reads too.
        late = np.diff(np.cumsum(waited(csr.first_attempt_us, csr.end_us, card.freed_us))[usable], prepend=0) > 0
        last = _one_each(groups, card, clear, late)
        # Where registers are known, what starts nearly all sends starts the others.
        register = np.where(last >= 0, csr.address[usable][last], -1)
        named, often = np.unique(register[last >= 0], return_counts=True)
        if len(often) and often.max() >= NEARLY_ALL * often.sum():
            last = np.where(register == named[often.argmax()], last, -1)
        clear = last >= 0
    last = np.where(clear, last, -1)
    # A send of which that is not known may have begun with any access since the last one that is known. If the card
    # and the bus were free, not with one before the end of the DMA before: that would have led to its DMA sooner.
    since = np.r_[0, np.maximum.accumulate(last)[:-1] + 1]
    if groups.window is not None and not len(card.received_us):
        idle = card.dma_start_us - card.before_us > groups.window[1]
        since = np.where(idle, np.maximum(since, np.searchsorted(groups.access_us, card.before_us)), since)
    ends = np.zeros(len(usable) + 1, dtype=np.int64)
    np.add.at(ends, since[~clear], 1)
    np.add.at(ends, np.maximum(before + 1, since)[~clear], -1)
    last = np.where(~clear & groups.alone, before, last)
    first = np.where(last >= 0, last + 1 - groups.normal, -1)
    return _among(csr, usable, first, last, np.flatnonzero(np.cumsum(ends)[:-1]))


@dataclass(frozen=True)
class _Groups:
    """Groups of accesses, one right behind the other, before the sends that they start.

    Of each send the last access before its DMA (-1 for none), where the group of that begins, and the last one that is
    the send's if all that have this group share it evenly; whether it has the group for itself, and as many accesses as
    most sends, `normal`; how long before its DMA that access came, and the `window` in which it usually comes.
    """

    access_us: Floats
    before: Integers
    begin: Integers
    last: Integers
    alone: Booleans
    even: Booleans
    normal: int
    lead_us: Floats
    window: tuple[float, float] | None

    @classmethod
    def of(cls, access_us: Floats, end_us: Floats, card: CardTimes) -> _Groups | None:
        """Find them among accesses, given by when they come and end; None if all come behind the DMA."""
        before = np.searchsorted(access_us, card.dma_start_us, side="right") - 1
        if (before < 0).all():
            return None
        group_start = np.flatnonzero(np.r_[True, access_us[1:] - end_us[:-1] >= GROUP_US])
        begin = pick(group_start, np.searchsorted(group_start, before, side="right") - 1)
        # Sends of one group, in order: the k-th of n has the k-th n-th part of it.
        head = np.flatnonzero(np.r_[True, begin[1:] != begin[:-1]])
        many = np.diff(np.r_[head, len(begin)])
        size, many = np.repeat(before[head] + 1 - begin[head], many), np.repeat(many, many)
        part = size // many
        normal = int(np.bincount(part[(before >= 0) & (part > 0)], minlength=2).argmax())
        shared = begin + part * (np.arange(len(begin)) - np.repeat(head, many[head]) + 1) - 1
        lead_us = card.dma_start_us - access_us[before]
        even = (before >= 0) & (part * many == size) & (part == normal)
        # A batch has its accesses behind those of the send before it, with nothing between.
        even &= (many == 1) | (begin == np.repeat(np.r_[-1, before[head[1:] - 1]], many[head]) + 1)
        alone = many == 1
        window = usual(lead_us[alone][:, None], MOST)
        return cls(access_us, before, begin, np.where(alone, before, shared), alone, even, normal, lead_us, window)


def _clear(groups: _Groups, card: CardTimes) -> Booleans:
    """Return which sends are started by the accesses before them: these come as usual, and no other may be the last."""
    access_us, before, lead_us = groups.access_us, groups.before, groups.lead_us
    batch, clear = ~groups.alone, groups.even.copy()
    if groups.window is None:
        clear &= batch
    else:
        least_us, most_us = groups.window
        clear &= batch | ((lead_us >= least_us) & (lead_us <= most_us))
        # Another access may have come between the last one and the DMA.
        low = np.searchsorted(access_us, card.dma_start_us - most_us - GROUP_US)
        clear &= batch | (before + 1 - np.minimum(low, groups.begin) == groups.normal)
        # One right behind the DMA before had waited for the bus, and the card may have gone on by itself.
        clear &= batch | (access_us[before] - card.before_us > AT_ONCE_US)
    # What a card fetches for a send it fetches behind the access that starts it: not sooner than it usually does, but
    # where it was busy with the send before and went on by itself.
    fetch_us = pick_us(card.fetched_us, np.searchsorted(card.fetched_us, card.dma_start_us) - 1) - access_us[before]
    single = clear & groups.alone
    if np.count_nonzero(fetch_us[single] > 0) >= NEARLY_ALL * np.count_nonzero(single):
        soonest_us, _ = usual(fetch_us[single, None], MOST) or (0.0, 0.0)
        soon = fetch_us < np.where(access_us[before] > card.before_us, soonest_us - CLOCKS_US, 0.0)
        clear &= batch | (fetch_us > 0) & ~soon
    if groups.normal > 1 and not clear[np.argmax(before >= 0)]:
        # The first send has no update before it: what only the others have may be that.
        clear[:] = False
    return clear


def _one_each(groups: _Groups, card: CardTimes, clear: Booleans, late: Booleans) -> Integers:
    """Return the one access that starts each send; -1 where it is not known.

    `clear` is of each send whether it is the one before it, `late` of each access whether it had to wait for the bus.
    """
    access_us, before, lead_us = groups.access_us, groups.before, groups.lead_us
    clear, behind_late = clear & groups.alone, late[before]
    # Any access may come late; one that starts a send leads it as those do that came when they had to.
    timely = lead_us[clear & ~behind_late]
    least_us, most_us = timely.min(initial=np.inf) - CLOCKS_US, timely.max(initial=-np.inf) + CLOCKS_US
    clear &= ~behind_late | ((lead_us >= least_us) & (lead_us <= most_us))
    # Which of a group starts which of several sends is not told by one each.
    rows = np.where(clear, before, -1)
    usual_us = np.quantile(timely, NEARLY_ALL) if len(timely) else -np.inf
    unlike = behind_late & (lead_us > usual_us + CLOCKS_US)
    mine = np.zeros(len(access_us), dtype=bool)
    mine[before[before >= 0]] = True
    behind, lag = following(access_us, card.dma_end_us)
    others = np.where(np.append(mine, True)[np.minimum(behind, len(mine))], np.inf, lag)
    window, update = usual(others, MOST), np.zeros(len(access_us), dtype=bool)
    if window is not None:
        update[behind[(lag >= window[0]) & (lag <= window[1])]] = True
    received = as_after(access_us, ~mine & ~update, card.received_us)
    # An access of a receive, or one that waited and leads the DMA by more than others do, can stand in for a start only
    # where that one came earlier than usual.
    strange = np.cumsum(~mine & ~update & ~received)
    since = np.diff(strange[np.maximum(before, 0)], prepend=0) > 0
    rows = np.where((rows >= 0) & ~update[rows] & ~((received[rows] | unlike) & since), rows, -1)
    left = ~update & ~received & (np.arange(len(access_us)) <= before[-1])
    found = filled(rows, left, late)
    began_us = pick_us(access_us, found)
    # None does it sooner, whatever is left over; only a card that was busy with the send before had it waiting.
    soon = (began_us > card.before_us) & (card.dma_start_us - began_us < least_us)
    return np.where((began_us <= card.dma_start_us) & ~soon, found, -1)


def _usable(csr: Accesses) -> Integers:
    """Return the accesses that may start a send: a send is started by writes, where the command was captured."""
    usable = (csr.reason != CONFIGURATION) & ((csr.command < 0) | np.isin(csr.command, WRITES))
    return np.flatnonzero(usable).astype(np.int32)


def _among(csr: Accesses, usable: Integers, first: Integers, last: Integers, undecided: Integers) -> Starts:
    """Return the starts of sends that were found among the usable accesses.

    A send that may begin or end with an undecided one is not known to begin or end anywhere.
    """
    send = started(len(usable), first, last)
    if len(usable) < len(csr):
        of_usable, send = send, np.full(len(csr), -1, dtype=np.int32)
        send[usable] = of_usable
    unknown = np.isin(first, undecided) | np.isin(last, undecided)
    first, last = np.where(unknown, -1, first), np.where(unknown, -1, last)
    return Starts(pick(usable, first), pick(usable, last), send, usable[undecided])
