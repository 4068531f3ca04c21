"""How the runs of a campaign are analysed, and what they may take."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Limits", "Options"]


@dataclass(frozen=True)
class Options:
    """How each run is analysed: part of the key of its result.

    Attributes
    ----------
    wiring : str or None
        Content of a wiring file, for captures without a run folder.
    rate_hz, clock_mhz : float or None
        As in :func:`pcitrace.open`.
    recover_clock : bool
        As there.
    grants : tuple of str
        Which initiator is the NIC, ``NAME=GNT2#``: of captures without a run folder.
    pages : bool
        Write each run's whole report, too.
    """

    wiring: str | None = None
    rate_hz: float | None = None
    clock_mhz: float | None = None
    recover_clock: bool = False
    grants: tuple[str, ...] = ()
    pages: bool = False

    def by(self, version: str) -> str:
        """Return the name under which results of this version and these options stand."""
        told = json.dumps(asdict(self), sort_keys=True)
        return f"{version}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    def opening(self) -> dict[str, Any]:
        """Return what :func:`pcitrace.open` is told, besides the wiring."""
        return {"rate_hz": self.rate_hz, "clock_mhz": self.clock_mhz, "recover_clock": self.recover_clock}


@dataclass(frozen=True)
class Limits:
    """What one run may take.

    Attributes
    ----------
    seconds : float
        Time from start to end, with the transfer of its files, without that in which it waits for a processor.
    memory_mib : float
        Memory of its process.
    scratch_mib : float
        Local disk for files that come from a remote place.
    long_samples : float
        A run with a longer capture is analysed by all workers of a cluster, one such run at a time.
    """

    seconds: float = 3600.0
    memory_mib: float = 4096.0
    scratch_mib: float = 20480.0
    long_samples: float = 4e9
