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

ROUND = 1024


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
    compared_ns : array of int64
        When the sender sent frames to the same host that compare clocks, its own clock.
    """
    if len(found.arrival_ns) < 3 or found.sent is None:
        return None
    silent = np.diff(found.arrival_ns)
    at = int(silent.argmax())
    if silent[at] < SILENCE * max(float(np.median(silent)), 1.0):
        return None
    behind = found.sequence[at + 1 :].astype(np.int64)
    lost = found.lost_at[found.lost_at > behind.min()]
    early = int(((found.lost_at < behind.min()) & (found.lost_at > int(found.sequence[: at + 1].max(initial=0)))).sum())
    if not len(lost):
        return Held(length_bytes, len(behind), 0, False, early)
    ends = np.flatnonzero(np.diff(lost) > 1)
    starts = np.concatenate([[0], ends + 1])
    lengths = np.diff(np.concatenate([starts, [len(lost)]]))
    first_lost = int(lost[starts[int(lengths.argmax())]])
    kept = int((behind < first_lost).sum())
    early += int((found.lost_at < first_lost).sum()) - int((found.lost_at < behind.min()).sum())
    begin, end = found.departure_ns[at + 1], found.departure_ns[at + kept] + 1
    others = int(((compared_ns > begin) & (compared_ns < end)).sum())
    return Held(length_bytes, kept + others, others, True, early)


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
        why = f"the buffer was never full: it holds more than {most} frames" if bursts else "no port was paused"
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
    fewer = ~same if parameters["buffer_frames"].value is not None else np.ones(len(user), np.bool_)
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
        step_up = np.ceil(low / ROUND) * ROUND
        told = f"between {low:.0f} and {high - 1:.0f}, of {what}"
        if step_up < high <= step_up + ROUND:
            sigma = (high - low) / np.sqrt(12)
            return measured("buffer_bytes", (float(step_up), sigma), n, f"{told}: the only multiple of {ROUND} there")
        return measured("buffer_bytes", ((low + high - 1) / 2, (high - low) / np.sqrt(12)), n, told)
    return unknown("buffer_bytes", "no limit in bytes explains how many frames of each size fit", n)


def _first(full: Sequence[Held]) -> str:
    lost = max(one.lost_first for one in full)
    return f"{lost} frames were lost before the first that was kept" if lost else "the first frames were kept"
