"""Depth of a port's buffer, in frames and in bytes, from bursts into a port that was paused.

While the port is paused the switch keeps what it can and drops the rest. Kept frames arrive when the pause ends, back
to back: those behind the longest silence and before the longest run of losses. A switch that counts frames keeps as
many of every size, one that counts bytes fewer of the long ones; several sizes tell which limit is which. Source: LHCb
switch benchmark, 2001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcitrace.network.account import Account
from pcitrace.network.parameter import Parameter, measured, unknown

__all__ = ["Held", "depth", "held"]

SILENCE = 5.0
"""How many times the usual time between frames a silence must last to be a pause."""

LEAST_USER_BYTES = 46

COUNTINGS = {"frames with their check sequence": 18, "frames without their check sequence": 14, "user bytes": 0}
"""What a switch may count as the bytes of a frame, and what that adds to the padded user bytes; the last takes them
bare."""

ROUNDER = 8
"""How many times as round as any other a number of the interval must be to be taken for the limit."""


@dataclass(frozen=True)
class Held:
    """What the buffer kept of one burst.

    Attributes
    ----------
    length_bytes : int
        User bytes.
    frames : int
        All of them, those that compare clocks included.
    others : int
        Frames among them that compare clocks: they wait in the same buffer.
    full : bool
        Whether frames behind them were lost: else the buffer holds more than these.
    lost_first : int
        How many frames were lost before the first that was kept.
    """

    length_bytes: int
    frames: int
    others: int
    full: bool
    lost_first: int


def held(found: Account, length_bytes: int, compared_ns: npt.NDArray[np.int64]) -> Held | None:
    """Return what was kept while the port was paused; None where no pause is seen.

    Parameters
    ----------
    found : Account
        With the sender's log.
    length_bytes : int
        User bytes.
    compared_ns : array of int64, shape (2, n)
        When the sender sent frames to the same host that compare clocks, its own clock, and when they arrived, that
        host's.
    """
    if len(found.arrival_ns) < 3 or found.sent is None:
        return None
    waited = _first_that_waited(found)
    if waited is None:
        return None
    first, silent_ns = waited
    behind = found.sequence[first:].astype(np.int64)
    lost = found.lost_at[found.lost_at > behind.min()]
    before = int(found.sequence[:first].max(initial=0)) if first else -1
    early = int(((found.lost_at < behind.min()) & (found.lost_at > before)).sum())
    if not len(lost):
        return Held(length_bytes, len(behind), 0, False, early)
    ends = np.flatnonzero(np.diff(lost) > 1)
    starts = np.concatenate([[0], ends + 1])
    lengths = np.diff(np.concatenate([starts, [len(lost)]]))
    first_lost = int(lost[starts[int(lengths.argmax())]])
    kept = int((behind < first_lost).sum())
    early += int((found.lost_at < first_lost).sum()) - int((found.lost_at < behind.min()).sum())
    # They may be the first that waited, or what filled the buffer: before the next frame left, the first one lost.
    end = found.departure_ns[first + kept - 1] + np.median(np.diff(found.departure_ns))
    others = int(((compared_ns[1] > found.arrival_ns[first] - silent_ns // 2) & (compared_ns[0] < end)).sum())
    return Held(length_bytes, kept + others, others, True, early)


def _first_that_waited(found: Account) -> tuple[int, int] | None:
    """Return the place, in the order of arrival, of the first frame that a pause held, and for how many ns nothing came
    before it; None where none shows.

    It follows a silence and was under way longer than the frame before it: a silence that only lost frames leave delays
    nothing. Where the port was paused before the first frame there is no frame before; those that waited then came
    faster than they were sent, so that the first of them was under way longest.
    """
    silent = np.diff(found.arrival_ns)
    usual = max(float(np.median(silent)), 1.0)
    at = int(silent.argmax())
    if silent[at] >= SILENCE * usual and found.delay_ns[at + 1] - found.delay_ns[at] > silent[at] / 2:
        return at + 1, int(silent[at])
    waited = int(found.delay_ns[0]) - int(found.delay_ns.min())
    return (0, waited) if waited > SILENCE * usual and found.delay_ns[0] == found.delay_ns.max() else None


def depth(bursts: Sequence[Held]) -> dict[str, Parameter]:
    """Return the depth of the buffer in frames and in bytes.

    Parameters
    ----------
    bursts : sequence of Held
        Of several sizes.

    Returns
    -------
    dict of str to Parameter
        ``buffer_frames``, ``buffer_bytes``.
    """
    full = sorted((one for one in bursts if one.full), key=lambda one: one.length_bytes)
    n = len(bursts)
    if not full:
        most = max((one.frames for one in bursts), default=0)
        why = f"the buffer was never full: it holds more than {most} frames"
        if not bursts:
            why = "no pause shows in the arrivals: pause the port while frames are sent"
        return {name: unknown(name, why, n) for name in ("buffer_frames", "buffer_bytes")}
    user = np.array([one.length_bytes for one in full], dtype=np.float64)
    kept = np.array([one.frames for one in full])
    others = np.array([one.others for one in full])
    limit = int(kept.max())
    same = kept == limit
    parameters = {}
    if same.sum() > 1 or (same.all() and len(set(user.tolist())) > 1):
        parameters["buffer_frames"] = measured("buffer_frames", (limit, 0.0), int(same.sum()), _first(full))
    else:
        why = (
            f"{limit} frames of {user[same][0]:g} bytes at most: two sizes of which as many fit tell frames from bytes"
        )
        parameters["buffer_frames"] = unknown("buffer_frames", why, n)
    if len(set(user.tolist())) == 1:
        why = f"{limit} frames of {user[0]:g} bytes, the only size: several tell frames from bytes"
        return {name: unknown(name, why, n) for name in ("buffer_frames", "buffer_bytes")}
    # Longer frames of which fewer fit meet the limit in bytes; beside shorter ones waited frames that nobody counted.
    known = parameters["buffer_frames"].value is not None
    fewer = user > user[same].max() if known else np.ones(len(user), np.bool_)
    parameters["buffer_bytes"] = _bytes(user[fewer], kept[fewer], others[fewer], n)
    return parameters


def _bytes(
    user: npt.NDArray[np.float64], kept: npt.NDArray[np.int64], others: npt.NDArray[np.int64], n: int
) -> Parameter:
    """Return the limit in bytes that explains how many frames of each size fit."""
    if len(user) == 0:
        return unknown("buffer_bytes", "as many frames of every size fit: the limit is in frames; try longer ones", n)
    for what, added in COUNTINGS.items():
        each = np.maximum(user, LEAST_USER_BYTES) + added if added else user
        small = others * float(LEAST_USER_BYTES + added)
        filled = small + (kept - others) * each
        low, high = float(filled.max()), float((filled + each).min())
        if low >= high:
            continue
        told, sigma = f"between {low:.0f} and {high - 1:.0f}, of {what}", (high - low) / np.sqrt(12)
        limit = _roundest(int(low), int(high) - 1)
        if limit is not None:
            return measured("buffer_bytes", (float(limit), sigma), n, f"{told}: by far the roundest number there")
        return measured("buffer_bytes", ((low + high - 1) / 2, sigma), n, told)
    return unknown("buffer_bytes", "no limit in bytes explains how many frames of each size fit", n)


def _roundest(low: int, high: int) -> int | None:
    """Return the number from `low` to `high` that the largest power of two or of ten divides; None where another is
    about as round.

    >>> _roundest(65006, 65699), _roundest(299_597, 300_462), _roundest(1001, 1003)
    (65536, 300000, None)
    """
    found: dict[int, int] = {}
    for unit in sorted([2**k for k in range(41)] + [10**k for k in range(1, 13)]):
        found |= dict.fromkeys(range(-(-low // unit) * unit, high + 1, unit)[:2], unit)
    ranked = sorted(found.items(), key=lambda one: -one[1])
    if not ranked or (len(ranked) > 1 and ranked[0][1] < ROUNDER * ranked[1][1]):
        return None
    return ranked[0][0]


def _first(full: Sequence[Held]) -> str:
    lost = max(one.lost_first for one in full)
    return f"{lost} frames were lost before the first that was kept" if lost else "the first frames were kept"
