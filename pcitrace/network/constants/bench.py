"""Two hosts and a switch in SimPy, driven by a model file; its logs are run folders that the analysis takes like any
other.

That the analysis gives the constants back shows that export, simulation and analysis agree, not that the constants are
right. Everything it writes says ``origin = "simulated"``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

from pcitrace.network.constants import Constants
from pcitrace.network.constants.render import simpy_parameters
from pcitrace.runfolder import FRAME_LOG

if TYPE_CHECKING:
    import simpy

__all__ = ["Bench", "simulate"]

OVERHEAD_BYTES = 26
LEAST_USER_BYTES = 46
START_NS = 1_000_000_000


@dataclass
class Bench:
    """The parameters of the bench; see :func:`pcitrace.network.constants.render.simpy_parameters`."""

    rate_us_per_byte: float
    send_us: float
    receive_us: float
    send_us_per_byte: float = 0.0
    receive_us_per_byte: float = 0.0
    jitter_us: float = 0.0
    switch_us: float | None = None
    switch_us_per_byte: float = 0.0
    cell_bytes: float | None = None
    cell_us: float | None = None
    buffer_frames: float | None = None
    buffer_bytes: float | None = None

    def wire_us(self, length: int) -> float:
        """Return the time of a frame on a wire."""
        return (max(length, LEAST_USER_BYTES) + OVERHEAD_BYTES) * self.rate_us_per_byte

    def inside_us(self, length: int) -> float:
        """Return the time of a frame inside the switch."""
        cells = (length - 1) // int(self.cell_bytes) if self.cell_bytes else 0
        return (self.switch_us or 0.0) + self.switch_us_per_byte * length + cells * (self.cell_us or 0.0)


def simulate(
    constants: Constants,
    folder: str | Path,
    *,
    sizes: Sequence[int],
    count: int = 200,
    switch: bool = True,
    seed: int = 1,
) -> Path:
    """Simulate a ping-pong and write its run folder.

    Parameters
    ----------
    constants : Constants
    folder : path
        Made here.
    sizes : sequence of int
        User bytes.
    count : int
        Loops a size.
    switch : bool
        Whether the frames pass the switch.
    seed : int

    Returns
    -------
    Path
        The run folder, format 2.

    Raises
    ------
    ConfigurationError
        A constant that is needed is not known.
    """
    import simpy

    bench = Bench(**simpy_parameters(constants))  # type: ignore[arg-type]
    if not switch or bench.switch_us is None:
        bench.switch_us = None
    place = Path(folder)
    place.mkdir(parents=True)
    random = np.random.default_rng(seed)
    logs = []
    for point, size in enumerate(sizes):
        environment = simpy.Environment()
        sent, received = (np.zeros(count, FRAME_LOG) for _ in range(2))
        environment.process(_loops(environment, bench, int(size), (sent, received), random))
        environment.run()
        for kind, log in (("sent", sent), ("received", received)):
            name = f"p{point:03}-node0-{kind}.npy"
            np.save(place / name, log)
            logs.append({"file": name, "host": "node0", "kind": kind, "point": point})
    run = {
        "format": 2,
        "origin": "simulated",
        "simulation": {"preset": "model.json", "seed": seed},
        "hosts": {f"node{node}": {"node": node} for node in range(2)},
        "link": {"rate_mbit_s": 8 / bench.rate_us_per_byte},
        "path": {"kind": "direct"} if bench.switch_us is None else {"kind": "switch", "devices": ["switch"]},
        "test": {"kind": "ping-pong", "sizes": [int(size) for size in sizes], "count": count},
        "frame_logs": logs,
    }
    (place / "run.toml").write_text(tomli_w.dumps(run), encoding="utf-8")
    return place


def _loops(
    environment: simpy.Environment, bench: Bench, size: int, logs: tuple[Any, Any], random: np.random.Generator
) -> Generator[Any, Any, None]:
    """Send, wait for the answer, and write both down: the asking host."""
    sent, received = logs
    for log, node in ((sent, 0), (received, 1)):
        log["stream"], log["node"], log["length_bytes"] = 1, node, size
        log["sequence"], log["lateness_ns"] = np.arange(len(log)), np.iinfo(np.int32).min
    sent["receive_ns"] = received["send_ns"] = np.iinfo(np.int64).min
    for number in range(len(sent)):
        sent["send_ns"][number] = START_NS + round(environment.now * 1e3)
        yield environment.process(_way(environment, bench, size, random))
        received["send_ns"][number] = START_NS + round(environment.now * 1e3)
        yield environment.process(_way(environment, bench, size, random))
        received["receive_ns"][number] = START_NS + round(environment.now * 1e3)
        yield environment.timeout(10.0 + 10.0 * random.random())


def _way(
    environment: simpy.Environment, bench: Bench, size: int, random: np.random.Generator
) -> Generator[Any, Any, None]:
    """Take a frame from one host to the other."""
    for fixed, each in ((bench.send_us, bench.send_us_per_byte), (bench.receive_us, bench.receive_us_per_byte)):
        yield environment.timeout(max(0.0, fixed + each * size + random.normal(0.0, bench.jitter_us)))
    yield environment.timeout(bench.wire_us(size))
    if bench.switch_us is not None:
        yield environment.timeout(bench.inside_us(size))
        yield environment.timeout(bench.wire_us(size))
