"""The published measurements as benches."""

from __future__ import annotations

from pcitrace.simulate.config import Access, HostParameters, Simulation

PRESETS: dict[str, Simulation] = {"custom": Simulation()}
