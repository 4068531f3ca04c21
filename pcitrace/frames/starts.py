"""What is found out about the accesses that start sends, and what all ways of finding it share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.frames.delays import BEFORE_CAPTURE
from pcitrace.traffic.csr import Accesses

__all__ = ["GROUP_US", "CardTimes", "Starts", "once_each", "started"]

GROUP_US = 1.0
"""Accesses of the host with shorter pauses between them belong to one group."""


AT_ONCE = 1 << 14
"""Sends whose accesses are numbered at a time: those of all would be much memory."""


@dataclass(frozen=True)
class CardTimes:
    """When a card did what accesses hang on (us); all ascending.

    Attributes
    ----------
    dma_start_us, dma_end_us : arrays of float
        First and last data phase of each send.
    received_us : array of float
        Last data phase of each receive.
    fetched_us : array of float
        First data phase of each descriptor fetch.
    freed_us : array of float
        End of each transaction for which another one had to wait noticeably.
    """

    dma_start_us: Floats
    dma_end_us: Floats
    received_us: Floats
    fetched_us: Floats
    freed_us: Floats

    @property
    def before_us(self) -> Floats:
        """When the DMA of the send before each had ended."""
        return np.append(-np.inf, self.dma_end_us[:-1])


@dataclass(frozen=True)
class Starts:
    """The CSR accesses that start sends.

    Attributes
    ----------
    first, last : arrays of int
        For each send the first and last access that start it, as rows of `Accesses`; -1 if not known.
    send : array of int
        For each access the send it starts, the first of them if it starts several; -1 for none.
    undecided : array of int
        Accesses of which nothing tells whether they start a send; `send` says of some which one it would be.
    """

    first: Integers
    last: Integers
    send: Integers
    undecided: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def unknown(cls, sends: int, accesses: int) -> Starts:
        """Return that nothing is known of so many sends and accesses."""
        return cls(np.full(sends, -1), np.full(sends, -1), np.full(accesses, -1, dtype=np.int32))


def started(count: int, first: Integers, last: Integers) -> Integers:
    """Return for each of `count` accesses the first send of whose accesses, from `first` to `last`, it is; else -1."""
    known = np.flatnonzero(last >= 0)
    send = np.full(count, -1, dtype=np.int32)
    # Some at a time, from the end: of values for one place numpy keeps the last.
    for begin in range(0, len(known), AT_ONCE)[::-1]:
        some = known[begin : begin + AT_ONCE]
        length = last[some] - first[some] + 1
        owner = np.repeat(some.astype(np.int32), length)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length - first[some], length)
        send[place[::-1]] = owner[::-1]
    return send


def once_each(csr: Accesses, usable: Booleans, time_us: Floats) -> Integers | None:
    """Return the accesses of the register that is accessed once before each of the given times; None if there is none.

    Of several registers the one that comes closest. What comes first and is too many sets the card up.
    """
    best, least = None, np.inf
    for address in np.unique(csr.address[usable]):
        rows = np.flatnonzero(usable & (csr.address == address))
        if not 0 <= len(rows) - len(time_us) <= BEFORE_CAPTURE:
            continue
        rows = rows[len(rows) - len(time_us) :]
        lead = time_us - csr.first_attempt_us[rows]
        if (lead > 0).all() and np.median(lead) < least:
            best, least = rows, float(np.median(lead))
    return best
