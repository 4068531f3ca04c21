"""Runs a bench and writes the run folder: captures, truth, frame logs, latency sweep, ``run.toml``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from pcitrace import runfolder
from pcitrace.simulate import sweep
from pcitrace.simulate.bench import Bench
from pcitrace.simulate.config import HostParameters, Simulation
from pcitrace.simulate.frame import MAC, SEQUENCE
from pcitrace.simulate.presets import PRESETS
from pcitrace.simulate.profile import nic_profile
from pcitrace.simulate.recording import Recording
from pcitrace.simulate.truth import Truth, write_json
from pcitrace.simulate.values import SimulationError, plain


def simulate(
    preset: str | Simulation,
    out: str | Path,
    seed: int = 1,
    *,
    progress: Callable[[float], None] | None = None,
    values: dict[str, Any] | None = None,
    **overrides: Any,
) -> Path:
    """Simulate a test on two hosts and write its run folder.

    Parameters
    ----------
    preset : str or Simulation
        Name of a preset (see `PRESETS`), or a whole bench.
    out : str or pathlib.Path
        The run folder; it must not exist or be empty.
    seed : int
        One seed, one run: the captures are equal byte for byte.
    progress : callable, optional
        Called with the simulated time so far in us.
    values : dict, optional
        Fields to change, by dotted name: ``{"host.nic.burst_limit_bytes": 256}``.
    **overrides
        The same with double underscores for dots: ``test__count=50``.

    Returns
    -------
    pathlib.Path
        The run folder.

    Raises
    ------
    SimulationError
        Unknown preset or field, a value out of range, or a folder that holds something.
    """
    simulation = preset if isinstance(preset, Simulation) else find_preset(preset)
    changes = dict(values or {}) | {name.replace("__", "."): value for name, value in overrides.items()}
    simulation = simulation.with_values(changes)
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SimulationError(f"{folder}: there is something in it already; give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(simulation, seed, work, changes, progress)
        work.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        work.rename(folder)  # a run folder is there whole, or not at all
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return folder


def find_preset(name: str) -> Simulation:
    """Return a preset.

    Raises
    ------
    SimulationError
        There is none of that name.
    """
    if name not in PRESETS:
        raise SimulationError(f"no preset is called {name!r}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]


def _write(
    simulation: Simulation, seed: int, folder: Path, changes: dict[str, Any], progress: Callable[[float], None] | None
) -> None:
    truth = Truth(folder / "truth", simulation)
    bench = Bench(simulation, seed, truth)
    recording = Recording(bench, seed, folder)
    recording.run(truth, progress)
    captures = recording.captures()
    run: dict[str, Any] = {
        "format": 1,
        "origin": "simulated",
        "complete": True,
        "title": simulation.title,
        "captures": captures,
        "hosts": {
            name: {
                "capture": min(number, len(captures) - 1),
                "bus": name,
                "clock_mhz": host.bus.clock_mhz,
                "width": host.bus.width,
                "nic": _profile(folder, name, host),
                "mac": MAC[name],
            }
            for number, (name, host) in enumerate((("A", simulation.a), ("B", simulation.b)))
        },
        "link": {
            "rate_mbit_s": simulation.link.rate_mbit_s,
            "medium": simulation.link.medium,
            "preamble_bytes": simulation.link.preamble_bytes,
            "gap_bytes": simulation.link.gap_bytes,
        },
        "frames": {"sequence": dict(SEQUENCE)},
        "test": _test(simulation, seed),
        "frame_logs": _frame_logs(folder, truth),
        "simulation": {
            "preset": simulation.name,
            "seed": seed,
            "truth": "truth/",
            "parameters": {
                "changed": plain(changes),
                "given": dict(simulation.given),
                "bench": simulation.parameters(),
            },
        },
    }
    latency = None
    if simulation.sweep.sizes:
        latency = sweep.write(simulation, seed, folder / "latency.csv")
        run["latency"] = [{"file": "latency.csv", "method": "request-response", "sender": "B", "receiver": "A"}]
    write_json(
        folder / "truth" / "truth.json",
        {
            "origin": "simulated",
            "preset": simulation.name,
            "seed": seed,
            "constants": truth.constants(),
            "latency_sweep": latency,
            "given": {name: {"value": value, "source": "given"} for name, value in simulation.given.items()},
            "counts": {bus: dict(sorted(counts.items())) for bus, counts in truth.counts.items()},
            "clocks": recording.clock_totals(),
            "recorded_us": recording.recorded_us,
        },
    )
    runfolder.write(folder, run)


def _profile(folder: Path, name: str, host: HostParameters) -> str:
    """Return what run.toml calls the NIC; where it is no product, write its profile."""
    if host.nic.profile != "none":
        return host.nic.profile
    file = f"nic-{name}.toml"
    (folder / file).write_text(tomli_w.dumps(nic_profile(host, f"bench-{name.lower()}")), encoding="utf-8")
    return file


def _test(simulation: Simulation, seed: int) -> dict[str, Any]:
    test = simulation.test
    described: dict[str, Any] = {"kind": test.kind, "sizes": list(test.sizes), "count": test.count, "seed": seed}
    if test.kind in ("stream", "bidirectional"):
        described |= {"spacing_us": test.spacing_us, "arrivals": test.arrivals}
    if test.kind == "request-response":
        described["request_bytes"] = test.request_bytes
    return described


def _frame_logs(folder: Path, truth: Truth) -> list[dict[str, Any]]:
    if not truth.frame_logs:
        return []
    (folder / "frames").mkdir()
    entries = []
    for (host, kind), records in sorted(truth.frame_logs.items()):
        file = f"frames/{host}-{kind}.npy"
        np.save(folder / file, np.frombuffer(bytes(records), runfolder.FRAME_LOG))
        entries.append({"file": file, "host": host, "kind": kind})
    return entries
