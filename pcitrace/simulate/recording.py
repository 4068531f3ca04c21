"""Lets a bench run and records it, slice by slice, so that memory does not grow with the capture."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from pcitrace.simulate.accounting import Accounting
from pcitrace.simulate.analyser import Recorder
from pcitrace.simulate.bench import Bench
from pcitrace.simulate.bus import Bus
from pcitrace.simulate.srfile import SrWriter
from pcitrace.simulate.truth import Truth

SLICE_SAMPLES = 1 << 22  # about one member of the capture file
WINDOW_US = 1000.0  # of the accounting in truth/clocks.csv
TX_EN = ("control16", "command", "full")  # sets of wires with TX_EN of both hosts


class _Capture:
    """One capture file, of one bus or of both."""

    def __init__(self, path: Path, recorder: Recorder, rate_mhz: float) -> None:
        self.path = path
        self.recorder = recorder
        self.rate_mhz = rate_mhz
        self.writer = SrWriter(path, recorder.names, recorder.unit_bytes, rate_mhz)


class Recording:
    """The captures of one run, and the clock accounting of what is in them."""

    def __init__(self, bench: Bench, seed: int, folder: Path) -> None:
        self._bench = bench
        self._analyser = analyser = bench.simulation.analyser
        self._folder = folder
        self._random = Random(f"{seed} analyser")
        self.recorded_us = 0.0
        # Two captures start at different times; the first is what the run's time axis begins with.
        self._start_ns = {bus.name: 0.0 for bus in bench.buses}
        if analyser.mode == "state" or analyser.separate:
            self._start_ns["B"] = analyser.offset_us * 1e3
            self._captures = {bus.name: self._capture(f"{bus.name}.sr", [bus]) for bus in bench.buses}
        else:
            self._captures = dict.fromkeys(("A", "B"), self._capture("bus.sr", bench.buses))
        first_clk = {bus.name: bus.next_clk(self._start_ns[bus.name]) for bus in bench.buses}
        self._accounts = {bus.name: Accounting(bus, WINDOW_US, first_clk[bus.name]) for bus in bench.buses}
        self._first_clk = first_clk

    def _capture(self, file: str, buses: list[Bus]) -> _Capture:
        analyser, name = self._analyser, buses[0].name
        state = analyser.mode == "state"  # the bus clocks the analyser, which sees no wire then
        recorder = Recorder(
            buses,
            analyser,
            self._random,
            wire=analyser.wires in TX_EN and not state,
            start_ns=self._start_ns[name],
            drift_ppm=analyser.drift_ppm if name == "B" and not state else 0.0,
        )
        rate_mhz = buses[0].parameters.clock_mhz if state else analyser.rate_mhz
        return _Capture(self._folder / file, recorder, rate_mhz)

    def run(self, truth: Truth, progress: Callable[[float], None] | None) -> None:
        """Run the bench to its end and write captures and truth."""
        analyser = self._analyser
        limit_us = float("inf") if analyser.duration_us is None else analyser.duration_us
        slice_us = SLICE_SAMPLES / max(capture.rate_mhz for capture in self._captures.values())
        now_us, running = 0.0, True
        try:
            while running and now_us < limit_us:
                now_us = min(now_us + slice_us, limit_us)
                running = self._bench.run(now_us)
                if not running:
                    now_us = min(self._bench.scheduler.now_ns / 1e3 + analyser.tail_us, limit_us)
                    self._bench.run(now_us)
                self._record(now_us * 1e3)
                truth.settle(now_us * 1e3)
                if progress is not None:
                    progress(now_us)
        finally:
            for capture in set(self._captures.values()):
                capture.writer.close()
            truth.close()
        self._write_clocks()

    def _record(self, now_ns: float) -> None:
        """Record what can no longer change."""
        settled = {bus.name: bus.settled_clk(now_ns) for bus in self._bench.buses}
        settled_ns = min(bus.edge_ns(settled[bus.name] - 1) for bus in self._bench.buses)
        histories = {}
        for bus in self._bench.buses:
            recorder = self._captures[bus.name].recorder
            nic = self._bench.hosts[bus.name].nic
            edges, nic.wire_edges_ns = nic.wire_edges_ns, []
            recorder.take_wire(bus, edges)
            histories[bus.name] = bus.take_history(settled[bus.name])
            recorder.take(bus, histories[bus.name])
        for capture in dict.fromkeys(self._captures.values()):
            capture.writer.write(capture.recorder.samples_until(settled_ns))
        for bus in self._bench.buses:
            until_clk = self._captures[bus.name].recorder.clocks(bus)
            self._accounts[bus.name].add(histories[bus.name].runs, until_clk)
        self.recorded_us = settled_ns / 1e3

    def captures(self) -> list[dict[str, Any]]:
        """Return the entries of ``run.toml``."""
        analyser, entries = self._analyser, []
        for name, capture in self._captures.items():
            entry: dict[str, Any] = {
                "file": capture.path.name,
                "sha256": _sha256(capture.path),
                "samples": capture.recorder.samples,
            }
            entries.append(entry)
            start_ns = self._start_ns[name]
            if analyser.mode == "state":
                bus = self._bench.hosts[name].bus
                start_ns = bus.edge_ns(self._first_clk[name])
                entry["clock_mhz"] = capture.rate_mhz
            else:
                entry["rate_hz"] = capture.rate_mhz * 1e6
                entry["skew_us"] = analyser.skew_ns / 1e3
            if len(self._captures) > len(set(self._captures.values())):
                break
            entry["offset_us"] = start_ns / 1e3
            if name == "B":
                # What a user would have measured: the true values, each with an error.
                entry["offset_us"] += self._random.gauss(0.0, analyser.offset_sigma_us)
                entry["offset_sigma_us"] = analyser.offset_sigma_us
                if analyser.mode == "timing":
                    entry["drift_ppm"] = analyser.drift_ppm + self._random.gauss(0.0, analyser.drift_sigma_ppm)
                    entry["drift_sigma_ppm"] = analyser.drift_sigma_ppm
        return entries

    def clock_totals(self) -> dict[str, Any]:
        """Return the accounting of each bus over its whole capture."""
        return {
            name: account.total() | {"first_clk": self._first_clk[name]} for name, account in self._accounts.items()
        }

    def _write_clocks(self) -> None:
        rows = [row for account in self._accounts.values() for row in account.rows()]
        with (self._folder / "truth" / "clocks.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["bus"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
