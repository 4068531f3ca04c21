"""What CSR accesses cost: the time between a frame's DMA and the accesses that start, follow and acknowledge it.

A cost is the mean over all frames, so it needs the accesses of all of them. Without AD an access is told by its usual
delay; frames that waited long are therefore the ones whose accesses cannot be told. A mean over the rest is too short:
1.0 us for 2.7 us on a loaded bus. Where more than a few are missing the cost is not known.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pcitrace.columns import Booleans, Floats, floats
from pcitrace.estimate import Estimate, mean, unknown
from pcitrace.frames import Frames
from pcitrace.freed import give_back
from pcitrace.timing.frametimes import FrameTimes

__all__ = ["INTERVALS", "csr_costs", "queue_updates"]

INTERVALS = {
    "send_csr": ("csr_first_us", "csr_last_us", "dma_start_us"),
    "csr_to_dma": ("csr_last_us", "dma_start_us", "dma_start_us"),
    "dma_to_update": ("dma_end_us", "csr_done_us", "dma_end_us"),
    "send_whole": ("csr_first_us", "csr_done_us", "dma_end_us"),
    "receive_to_csr": ("rx_dma_end_us", "rx_csr_us", "rx_dma_end_us"),
    "csr_to_queue": ("rx_csr_us", "rx_queue_us", "rx_dma_end_us"),
}
"""Costs of CSR accesses: from one column of `frames` to another, for each frame that has a third."""

FEW = 0.02
"""Share of the frames whose accesses may be missing: sigma then covers that each lies as far off as any known one."""


def csr_costs(times: FrameTimes) -> pd.DataFrame:
    """Return what the CSR accesses cost on each host.

    Returns
    -------
    pandas.DataFrame
        One row a host and interval: ``host``, ``what``, and ``value``, ``sigma``, ``sigma_measurement``,
        ``sigma_frames``, ``scatter`` (us), ``n``, ``reason``.
    """
    times.us["rx_queue_us"] = queue_updates(times.frames)
    found = []
    for what, (begin, end, dma) in INTERVALS.items():
        give_back()
        took, errors = times.us[end] - times.us[begin], times.errors(begin, end)
        host, there = times.host(end), ~np.isnan(times.us[dma])
        for number, name in enumerate(times.hosts):
            mine = there & (host == number)
            rows = np.flatnonzero(mine & ~np.isnan(took))
            without = mine & np.isnan(took)
            hidden = int((without & _inside(times.us[dma], took, mine, begin == dma)).sum())
            far = _far(took[rows], int(without.sum()))
            one = _unfair(len(rows), hidden) or mean(took[rows], errors[rows], unclear=far)
            found.append({"host": name, "what": what, **one.as_dict()})
    columns = ["host", "what", "value", "sigma", "sigma_measurement", "sigma_frames", "scatter", "n", "reason"]
    return pd.DataFrame(found).reindex(columns=columns)


def queue_updates(frames: Frames, rows: pd.DataFrame | None = None) -> Floats:
    """Return when the receive queue was updated: the access that comes next after the first one that follows a receive.

    Parameters
    ----------
    frames : Frames
    rows : pandas.DataFrame, optional
        Rows of their table; default: all.

    Returns
    -------
    array of float
        us, one a row; NaN where the next access belongs to a send or to another receive: then the update cannot be
        told from it.
    """
    table = frames.table
    rows = table if rows is None else rows
    first = floats(rows, "rx_csr_us")
    found = np.full(len(rows), np.nan)
    for name, traffic in frames.hosts.items():
        sent = (table["sender"] == name).fillna(False).to_numpy(dtype=bool)
        received = (rows["receiver"] == name).fillna(False).to_numpy(dtype=bool) & ~np.isnan(first)
        if not received.any():
            continue
        at = traffic.csr.last_attempt_us
        at = np.sort(at[at > first[received].min(initial=np.inf)])
        place = np.searchsorted(at, first[received], side="right")
        following = np.append(at, np.nan)[place]
        begun, ended = (floats(table, column)[sent] for column in ("csr_first_us", "csr_last_us"))
        order = np.argsort(begun[~np.isnan(begun)])
        begun, ended = begun[~np.isnan(begun)][order], ended[~np.isnan(begun)][order]
        before = np.searchsorted(begun, following, side="right") - 1
        of_send = (before >= 0) & (following <= np.append(ended, np.nan)[before])
        other = np.isin(following, floats(table, "csr_done_us")[sent]) | np.isin(following, first[received])
        found[received] = np.where(of_send | other, np.nan, following)
    return found


def _unfair(known: int, missing: int) -> Estimate | None:
    """Return an unknown cost where too many frames are missing from its mean."""
    total = known + missing
    if missing <= FEW * total or not known:
        return None
    return unknown(
        f"the accesses of {missing} of {total} frames cannot be told; a mean over the others would be wrong, because "
        "long times are the ones that are hard to tell",
        known,
    )


def _inside(dma_us: Floats, took: Floats, mine: Booleans, after: bool) -> Booleans:
    """Return which frames have their accesses within the capture.

    A capture that begins in a stream does not show what started the first frames, one that ends in it not what followed
    the last ones. That they are missing has nothing to do with how long they took.
    """
    known = dma_us[mine & ~np.isnan(took)]
    if not len(known):
        return mine
    return np.asarray(dma_us < known.max() if after else dma_us > known.min())


def _far(known: Floats, missing: int) -> Floats:
    """Return as many values as frames are missing, each as far off the mean as any that is known."""
    if not len(known) or not missing:
        return np.zeros(0)
    off = known - known.mean()
    return np.full(missing, known.mean() + off[np.abs(off).argmax()])
