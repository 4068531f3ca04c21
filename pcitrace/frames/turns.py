"""Whose turn it is on a bus: since when something was in the way, and what a receive that is pending waits for."""

from __future__ import annotations

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Floats, Integers
from pcitrace.frames.delays import AT_ONCE_US, LAG_US
from pcitrace.frames.sides import ALIKE_US, Matches, densest
from pcitrace.traffic.csr import Accesses

__all__ = ["PAUSE_US", "bus_busy", "busy_since", "freed", "receives_first"]

PAUSE_US = 0.6
"""What is busy makes no longer pauses, beside the gap between frames on the wire."""

ENOUGH = 4
"""So many receives that had waited, and sends that were pending meanwhile, are no chance."""


def freed(start_us: Floats, end_us: Floats) -> Floats:
    """Return when a card freed the bus that it had used, with short pauses, for so long that delays are not usual then.

    Parameters
    ----------
    start_us, end_us : array of float
        Of each of its transactions, in order.
    """
    return end_us[end_us - busy_since(start_us, end_us, AT_ONCE_US) > LAG_US]


def busy_since(start_us: Floats, end_us: Floats, pause_us: float, rows: Integers | None = None) -> Floats:
    """Return since when what does one thing after the other had done so as each began, with shorter pauses only.

    Of all, or of some rows.
    """
    ended_us = np.fmax.accumulate(end_us)[:-1]
    heads = np.flatnonzero(np.r_[True, np.subtract(start_us[1:], ended_us, out=ended_us) >= pause_us][: len(start_us)])
    if rows is None:
        return np.repeat(start_us[heads], np.diff(np.append(heads, len(start_us))))
    return start_us[heads[np.searchsorted(heads, rows, side="right") - 1]]


def bus_busy(bus: BusTable, csr: Accesses, at_us: Floats) -> Floats:
    """Return since when a bus had been busy at some times: with what the card did, or the host.

    The card, as long as it has work, makes pauses about as long as most of its short ones.
    """
    bus = bus.in_time
    start_us, end_us = bus.start_us, bus.end_us
    pause_us = start_us[1:] - end_us[:-1]
    short = pause_us[pause_us < PAUSE_US]
    usual_us = min(2 * float(np.median(short)), PAUSE_US) if len(short) else PAUSE_US
    del pause_us, short  # as long as all that happens in a capture, as is each of what follows
    start_us = np.r_[start_us, csr.first_attempt_us]
    end_us = np.r_[end_us, np.fmax(csr.first_attempt_us, csr.data_us)]
    order = np.argsort(start_us, kind="stable")
    start_us = start_us[order]
    end_us = end_us[order]
    del order
    return busy_since(start_us, end_us, usual_us, np.searchsorted(start_us, at_us, side="right") - 1)


def receives_first(matches: Matches, send_us: Floats, send_busy_us: Floats) -> Floats:
    """Return since when something was in the way of each receive; later than known if no send is put before them.

    Cards that have little room for what arrives write it first: then no receive was pending when the last send was
    begun before it. That a card does so is seen where both were pending: the receive had waited, and a send was begun
    behind it without a pause, in no case before.

    Parameters
    ----------
    matches : Matches
        Of frames on the wire with receives.
    send_us, send_busy_us : arrays of float
        When each send of the receiver was begun, in order, and since when its bus had been busy then.
    """
    starts, later, usual = matches.start_us, matches.pair.later, densest(matches.lag_us)
    if not len(send_us) or np.isnan(usual):
        return later.busy_us
    due_us = matches.pair.begins_us[matches.i] + usual + ALIKE_US
    begun = np.append(-np.inf, send_us)
    behind = np.searchsorted(send_us, starts)
    next_one = np.minimum(behind, len(send_us) - 1)
    both = (starts > due_us) & (behind < len(send_us)) & (send_busy_us[next_one] <= starts)
    if (begun[behind] > due_us).any() or len(np.unique(behind[both])) < ENOUGH:
        return later.busy_us
    return np.asarray(np.fmax(later.busy_us, begun[np.searchsorted(send_us, later.start_us)]))
