"""What was told to a card: a host rings for what it sends, and for nothing that it receives."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Booleans
from pcitrace.frames.ends import Ends
from pcitrace.traffic.csr import CONFIGURATION

__all__ = ["rung_for"]


def rung_for(end: Ends) -> tuple[float, float]:
    """Return the shares of a host's sends and of its receives before which it had accessed the card since the frame
    before began; NaN where there are none.

    Of a host that answers each frame with another (`cardbench`, padding 74) all 29 sends have such accesses, and none
    of its 29 receives. Not since that frame ended: what is joined to it by mistake may last until the frames behind.
    """
    joined, csr = end.host.traffic.joined, end.host.traffic.csr
    bursts = np.concatenate([end.sends, end.receives])
    order = np.argsort(joined.first_data_us[bursts], kind="stable")
    begin_us = joined.first_data_us[bursts]
    before_us = np.empty(len(bursts))
    before_us[order] = np.append(-np.inf, begin_us[order])[: len(bursts)]
    access_us = np.sort(csr.first_attempt_us[csr.reason != CONFIGURATION])
    rung = np.searchsorted(access_us, begin_us) > np.searchsorted(access_us, before_us)
    sends, receives = np.split(rung, [len(end.sends)])
    return _share(sends), _share(receives)


def _share(rung: Booleans) -> float:
    return float(rung.mean()) if len(rung) else np.nan
