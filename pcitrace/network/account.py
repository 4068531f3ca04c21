"""What became of the frames of one flow: counted from its logs, not taken from the sender's summary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcitrace.network.logs import CORRUPT, DUPLICATE, UNKNOWN_NS, Log, untimed
from pcitrace.network.pieces import least_difference, pieces

__all__ = ["Account", "account"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Account:
    """The frames of one flow.

    Attributes
    ----------
    sent, received, lost, duplicated, reordered, corrupt : int or None
        ``received``: different sequence numbers that arrived undamaged. ``lost`` = sent - received. ``reordered``:
        first copies that a later number overtook (RFC 4737, section 3.3). None where the log that tells it is not
        there.
    lost_at : array of int64
        Places of the lost frames in the order of sending.
    extents : array of int64
        Of each reordered frame: how many places back in the order of arrival the first frame is that overtook it
        (RFC 4737, section 4.2.1).
    arrival_ns : array of int64
        Arrival times of first copies, in the order of arrival, the receiver's clock.
    delay_ns : array of int64
        Of the same frames: arrival minus departure, each on its own host's clock.
    departure_ns : array of int64
        Of the same frames: when they were sent, the sender's clock.
    sequence : array of uint32
        Of the same frames.
    strange : int
        Frames that were received and that the sender's log does not have.
    findings : tuple of str
        What cannot be.
    """

    sent: int | None
    received: int | None
    lost: int | None
    duplicated: int | None
    reordered: int | None
    corrupt: int | None
    lost_at: Integers
    extents: Integers
    arrival_ns: Integers
    delay_ns: Integers
    departure_ns: Integers
    sequence: npt.NDArray[np.uint32]
    strange: int = 0
    findings: tuple[str, ...] = ()


def account(sent: Log | None, received: Log | None, name: str = "") -> Account:
    """Count what became of the frames of a flow.

    Parameters
    ----------
    sent, received : Log or None
        Records of this flow alone.
    name : str
        Of the flow, for findings.

    Returns
    -------
    Account
    """
    none = np.empty(0, np.int64)
    findings = [*(sent.findings if sent is not None else ()), *(received.findings if received is not None else ())]
    if received is None:
        count = None if sent is None else len(sent)
        return Account(
            count,
            None,
            None,
            None,
            None,
            None,
            none,
            none,
            none,
            none,
            none,
            none.astype(np.uint32),
            0,
            tuple(findings),
        )
    first, corrupt, copies_seen = received, 0, 0
    if received.flags.any():
        damaged, copies = (received.flags & CORRUPT) != 0, (received.flags & DUPLICATE) != 0
        first, corrupt, copies_seen = received[~damaged & ~copies], int(damaged.sum()), int((copies & ~damaged).sum())
    again = _repeated(first.sequence)
    if again is not None:
        findings.append(f"{name}: {int(again.sum())} frames arrived again, not marked as copies; counted as such")
        first = first[~again]
        copies_seen += int(again.sum())
    overtaken = _overtaken(first.sequence)
    lost_at, strange = none, 0
    if sent is not None:
        twice = _repeated(sent.sequence)
        if twice is not None:
            findings.append(f"{name}: {int(twice.sum())} records of frames sent have the number of another; left out")
            sent = sent[~twice]
        lost_at, strange = _missing(sent.sequence, first.sequence)
        if strange:
            findings.append(f"{name}: {strange} frames were received that the sender's log does not have")
    findings += _clock_findings(first, name)
    kept = first
    if any(untimed(times) for times in (first.receive_ns, first.send_ns)):
        kept = first[(first.receive_ns != UNKNOWN_NS) & (first.send_ns != UNKNOWN_NS)]
    return Account(
        sent=None if sent is None else len(sent),
        received=len(first),
        lost=None if sent is None else len(lost_at),
        duplicated=copies_seen,
        reordered=len(overtaken),
        corrupt=corrupt,
        lost_at=lost_at,
        extents=_extents(first.sequence, overtaken),
        arrival_ns=kept.receive_ns,
        delay_ns=kept.receive_ns - kept.send_ns,
        departure_ns=kept.send_ns,
        sequence=kept.sequence,
        strange=strange,
        findings=tuple(findings),
    )


def _repeated(sequence: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_] | None:
    """Return which frames came before already; None where none did, the usual case, which is seen at once."""
    if not len(sequence) or bool((sequence[1:] > sequence[:-1]).all()):
        return None
    _, at = np.unique(sequence, return_index=True)
    if len(at) == len(sequence):
        return None
    again = np.ones(len(sequence), np.bool_)
    again[at] = False
    return again


def _overtaken(sequence: npt.NDArray[np.uint32]) -> Integers:
    """Return the places of frames that a later number overtook."""
    if len(sequence) < 2 or bool((sequence[1:] > sequence[:-1]).all()):
        return np.empty(0, np.int64)
    return np.flatnonzero(sequence[1:] < np.maximum.accumulate(sequence)[:-1]) + 1


def _extents(sequence: npt.NDArray[np.uint32], overtaken: Integers) -> Integers:
    if not len(overtaken):
        return overtaken
    # The first place at which a larger number had come: the running largest never falls.
    return overtaken - np.searchsorted(np.maximum.accumulate(sequence), sequence[overtaken], side="right")


def _missing(sent: npt.NDArray[np.uint32], arrived: npt.NDArray[np.uint32]) -> tuple[Integers, int]:
    """Return the places, in the order of sending, of frames that did not arrive, and how many arrived that were not
    sent.
    """
    if len(sent) == len(arrived) and bool((sent == arrived).all()):
        return np.empty(0, np.int64), 0
    highest = int(max(sent.max(initial=0), arrived.max(initial=0)))
    if highest < 8 * (len(sent) + len(arrived)) + 1024:
        there, known = np.zeros(highest + 1, np.bool_), np.zeros(highest + 1, np.bool_)
        for marks, numbers in ((there, arrived), (known, sent)):
            for here in pieces(len(numbers)):
                marks[numbers[here]] = True
        came = np.concatenate([there[sent[here]] for here in pieces(len(sent))] or [np.empty(0, np.bool_)])
        return np.flatnonzero(~came), int((there & ~known).sum())
    return np.flatnonzero(~np.isin(sent, arrived)), int((~np.isin(arrived, sent)).sum())


def _clock_findings(log: Log, name: str) -> list[str]:
    """Return where times cannot be those of a clock."""
    if len(log) < 2:
        return []
    if untimed(log.receive_ns):
        return [f"{name}: {int((log.receive_ns == UNKNOWN_NS).sum())} frames have no time of arrival"]
    back, at = least_difference(log.receive_ns)
    if back >= -BACK_NS:
        return []
    return [f"{name}: the receiver's clock goes back by {-back / 1e3:.3f} us at frame {int(log.sequence[at + 1])}"]


BACK_NS = 1000
"""How far back in time the next record of a log may be: two processors take time stamps at once."""
