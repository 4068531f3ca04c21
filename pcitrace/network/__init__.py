"""Frame logs to lines, histograms, loss and buffers: the network half of the published work.

    folder or file -> Measurement -> points and flows -> Result -> Network

Nothing of a bus is needed; where one was recorded with the frames its constants stand beside the network's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pcitrace.errors import ConfigurationError
from pcitrace.network import importers
from pcitrace.network.analysis import analyse
from pcitrace.network.budget import BusConstants, with_bus, with_paths
from pcitrace.network.hostload import with_hosts
from pcitrace.network.hosts import blocking
from pcitrace.network.measurement import Measurement, open_folder
from pcitrace.network.parameter import Parameter
from pcitrace.network.paths import subtraction
from pcitrace.network.result import Result
from pcitrace.network.shift import shift
from pcitrace.network.timebase import BusFrames, with_timebase

__all__ = ["Measurement", "Network", "Parameter", "Result", "analyse", "of_paths", "open_folder"]


@dataclass(frozen=True)
class Network:
    """What the measurements of a network say.

    Attributes
    ----------
    results : tuple of Result
    findings : tuple of str
        What a user must not overlook.
    """

    results: tuple[Result, ...]
    findings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Network: {', '.join(f'{one.kind} over {one.path}' for one in self.results)}>"

    def __getitem__(self, kind: str) -> Result:
        """Return the first result of a kind; KeyError if there is none."""
        found = next((one for one in self.results if one.kind == kind), None)
        if found is None:
            raise KeyError(f"no result {kind!r}; there are {', '.join(one.kind for one in self.results)}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return what ``pcitrace network --json`` prints."""
        return {"results": [one.as_dict() for one in self.results], "findings": list(self.findings)}


def of_paths(
    paths: Iterable[str | Path],
    *,
    clock_method: str = "hull",
    bus_constants: BusConstants | None = None,
    bus_frames: BusFrames | None = None,
) -> Network:
    """Analyse folders and files.

    Parameters
    ----------
    paths : iterable of path
        Run folders, folders that framegen wrote, folders of such folders (a sweep), outputs of iperf3, NPtcp, nuttcp,
        ping and irtt.
    clock_method : str
        ``hull``, or ``midpoints`` for the papers' method.
    bus_constants : callable, optional
        Gives the constants of the buses of a run folder, such as :func:`pcitrace.analysed.bus_constants`; without it
        t_sw and the budget of the slope are not worked out.
    bus_frames : callable, optional
        Gives the frames that the buses show, such as the second of :func:`pcitrace.analysed.buses`; without it clocks
        are not held against the analyser.

    Returns
    -------
    Network

    Raises
    ------
    ConfigurationError
        A path is none of these.
    """
    results: list[Result] = []
    for path in map(Path, paths):
        if path.is_file():
            results.append(importers.read(path))
        else:
            results += [
                one for part in _measurements(path) for one in _results(part, clock_method, bus_constants, bus_frames)
            ]
    results = importers.together(results)
    companions = [other for one in results for other in _companions(one, clock_method)]
    compared = subtraction([one for one in results if one.latency is not None])
    compared += blocking(results) + shift(results)
    results = with_paths(results, compared) + compared + companions
    findings = tuple(dict.fromkeys(text for one in results for text in one.findings))
    return Network(tuple(results), findings)


def _results(
    one: Measurement, clock_method: str, bus_constants: BusConstants | None, bus_frames: BusFrames | None
) -> list[Result]:
    """Return what the frames of a folder say, and the outputs of other programs in it."""
    read, faults = _outputs(one)
    told, outputs = (*one.findings, *faults), importers.calls(read)
    if outputs and not one.points:
        first, *others = importers.together(outputs)
        first = replace(first, findings=(*told, *first.findings))
        return [with_hosts(first, one) if one.run.get("host_states") else first, *others]
    found = with_bus(analyse(replace(one, findings=told), clock_method=clock_method), bus_constants)
    return [with_timebase(found, bus_frames, clock_method), *outputs]


def _outputs(one: Measurement) -> tuple[list[tuple[str | None, Result]], list[str]]:
    """Return what other programs wrote, with the value of each call, and what of it cannot be read.

    Raises
    ------
    ConfigurationError
        Nothing in the folder can be read: a call that failed hides no other, and no frame log.
    """
    read: list[tuple[str | None, Result]] = []
    faults: list[ConfigurationError] = []
    for entry in one.run.get("tool_outputs", ()):
        try:
            found = importers.read(one.folder / entry["file"], entry["tool"])
        except ConfigurationError as error:
            faults.append(error)
        else:
            if "call" in found.tables:
                varied = importers.varied(entry.get("command", ()), entry.get("value"))
                found = replace(found, tables={**found.tables, "call": found.tables["call"].assign(varied=varied)})
            read.append((entry.get("value"), replace(found, path=one.path.name)))
    if faults and not read and not one.points:
        raise faults[0]
    return read, [f"{error}; left out" for error in faults]


def _companions(one: Result, clock_method: str) -> Iterator[Result]:
    """Yield what was under way at the same time."""
    if one.measurement is None:
        return
    alike: dict[str, list[Measurement]] = {}
    for folder, entry in one.measurement.companions:
        found = open_folder(folder)
        lag = f", its first frame {entry['lag_us']:.6g} us after" if "lag_us" in entry else ""
        said = f"{folder.parent.parent}: {entry['folder']} was under way at the same time ({entry['role']}{lag})"
        where = found.path.name if found.path.stated else entry["folder"]
        name = f"{where}, {entry['role']} of {one.path}"
        found = replace(found, path=replace(found.path, name=name), findings=(said, *found.findings))
        alike.setdefault(entry["folder"], []).append(found)
    for same in alike.values():
        yield analyse(_sweep(same, same[0].folder), clock_method=clock_method)


def _measurements(path: Path) -> Iterator[Measurement]:
    """Yield what a path holds; the runs of a sweep are one measurement."""
    if not path.exists():
        raise ConfigurationError(f"{path}: no such file or folder", path)
    if any((path / name).is_file() for name in ("run.toml", "summary.json")):
        yield open_folder(path)
        return
    parts = [open_folder(part) for part in sorted(path.iterdir()) if _is_run(part)]
    if not parts:
        raise ConfigurationError(f"{path}: neither a run folder (run.toml, summary.json) nor a folder of such", path)
    alike: dict[tuple[str, str], list[Measurement]] = {}
    for part in parts:
        name = part.path.name if part.path.stated else str(path)
        alike.setdefault((part.kind, name), []).append(part)
    for (_, name), same in alike.items():
        yield replace(_sweep(same, path), path=replace(same[0].path, name=name))


def _sweep(same: Sequence[Measurement], folder: Path) -> Measurement:
    """Return runs of one kind over one path as one measurement."""
    points = tuple(point for one in same for point in one.points)
    findings = tuple(text for one in same for text in one.findings)
    beside = tuple(entry for one in same for entry in one.companions)
    parts = tuple(same) if len(same) > 1 else ()
    return replace(same[0], folder=folder, points=points, companions=beside, parts=parts, findings=findings)


def _is_run(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in ("run.toml", "summary.json"))
