"""A simulated test bench: two hosts with PCI bus, NIC and driver, and a link; writes run folders with truth."""

from __future__ import annotations

from pcitrace.simulate.config import Simulation
from pcitrace.simulate.draw import random_bench
from pcitrace.simulate.presets import PRESETS
from pcitrace.simulate.run import find_preset, simulate
from pcitrace.simulate.values import SimulationError

__all__ = ["PRESETS", "Simulation", "SimulationError", "find_preset", "random_bench", "simulate"]
