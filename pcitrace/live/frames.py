"""Frames and t_nic of the last samples, worked out by a process of its own meanwhile."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tomli_w

from pcitrace import configuration, runfolder
from pcitrace.errors import ConfigurationError
from pcitrace.live.recent import Recent
from pcitrace.live.sources import recorded

__all__ = ["Bench"]

EVERY_S = 2.0
DROPPED = (
    "frame_logs",
    "latency",
    "companions",
    "clock_exchanges",
    "histograms",
    "tool_outputs",
    "sweep",
)
"""Of run.toml: what belongs to other samples than the last."""


class Bench:
    """Two hosts as a run folder describes them.

    Parameters
    ----------
    folder : pathlib.Path
        Its run.toml says which buses, cards and link there are; its captures are not looked at.
    recent_us : float
        How much of the last samples is analysed.

    Raises
    ------
    ConfigurationError
        There is no run.toml, it is wrong, or its hosts are not on one capture.
    """

    def __init__(self, folder: Path, recent_us: float) -> None:
        folder = recorded(folder)
        path = folder / "run.toml"
        self._run = configuration.load(path, runfolder.SCHEMA)
        places = {host.get("capture", 0) for host in self._run["hosts"].values()}
        if len(self._run["hosts"]) < 2 or len(places) != 1:
            raise ConfigurationError(f"{path}: frames need two hosts whose buses are in one capture", path, "hosts")
        self._recent_us = recent_us
        self._folder = tempfile.TemporaryDirectory(prefix="pcitrace-watch-")
        for one in (*folder.glob("*.toml"), *folder.glob("nics/*.toml")):  # profiles; the latter are pcicap's
            copy = Path(self._folder.name) / "run" / one.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(one, copy)
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = -EVERY_S
        self._said: dict[str, Any] | None = None

    def look(self, recent: Recent, over: bool) -> dict[str, Any] | None:
        """Return what is known of the frames, and have the last samples analysed from time to time, and at the end."""
        if self._process is not None and (over or self._process.poll() is not None):
            self._take()
        if self._process is None and (over or time.monotonic() - self._begun > EVERY_S):
            self._begin(recent)
            if over:
                self._take()
        return self._said

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def _begin(self, recent: Recent) -> None:
        self._begun = time.monotonic()
        place = Path(self._folder.name) / "run"
        last = int(recent.time_us * recent.rate_hz / 1e6)
        if not recent.save(place / "recent.sr", max(last - int(self._recent_us * recent.rate_hz / 1e6), 0), last):
            return
        run = {key: value for key, value in self._run.items() if key not in DROPPED}
        run["captures"] = [{"file": "recent.sr"}]
        for host in run["hosts"].values():
            if "capture" in host:
                host["capture"] = 0
        (place / "run.toml").write_text(tomli_w.dumps(run))
        words = (place.parent / "words").open("wb")
        with (place.parent / "report.json").open("wb") as told, words:
            command = [sys.executable, "-m", "pcitrace", "report", str(place), "--json"]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=told, stderr=words)

    def _take(self) -> None:
        """Take what the process found, when it has ended."""
        if self._process is None:
            return
        status, self._process = self._process.wait(), None
        folder = Path(self._folder.name)
        if status:
            words = (folder / "words").read_text(errors="replace").strip().splitlines()
            self._said = {"frames": None, "reason": words[-1] if words else f"exit status {status}"}
            return
        found = json.loads((folder / "report.json").read_text())
        constants = found["constants"] | found["timing"]
        keys = ("value", "sigma", "n", "reason")
        self._said = {"frames": found["frames"]["rows"], "matched": found["frames"]["matched"]}
        for name in ("t_nic_us", "t_nic_tx_us", "t_nic_rx_us"):
            self._said[name] = {key: constants[name].get(key) for key in keys}
