"""One measurement: a test between hosts, its points and flows, wherever its description stands.

A run folder (``run.toml``, format 1 or 2) says most; a folder that only framegen wrote is described by its
``summary.json``. Logs are read flow by flow when they are asked for, so memory does not grow with the number of points.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcitrace import configuration, runfolder
from pcitrace.errors import ConfigurationError
from pcitrace.network.logs import Log, read, read_exchanges, streams

__all__ = ["ASKING", "Flow", "Measurement", "Point", "Way", "Wire", "open_folder"]

ASKING = ("request-response", "ping-pong", "one-to-many")
"""Tests in which node 0 asks and the others answer."""

LEAST_USER_BYTES = 46
OVERHEAD_BYTES = 38
"""Preamble 8, header 14, check sequence 4, gap 12."""


@dataclass(frozen=True)
class Way:
    """What lay between the hosts.

    Attributes
    ----------
    name : str
        What results call it.
    kind : str
        ``direct``, ``switch``, ``other``, or ``""`` where nothing says it.
    devices : tuple of str
        The switches in their order.
    """

    name: str
    kind: str = ""
    devices: tuple[str, ...] = ()

    @property
    def stated(self) -> bool:
        """Whether anything says what lay between."""
        return self.kind != ""


@dataclass(frozen=True)
class Wire:
    """The link.

    Attributes
    ----------
    rate_mbit_s : float or None
        Decimal Mbit/s; None where nothing says it.
    header_bytes : int
        Between Ethernet header and user data: 28 for UDP over IPv4.
    """

    rate_mbit_s: float | None = None
    header_bytes: int = 0

    def frame_bytes(self, user_bytes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return what a frame takes of the wire: preamble, padding, check sequence and gap included."""
        inside = np.asarray(user_bytes, dtype=np.float64) + self.header_bytes
        return np.asarray(np.maximum(inside, LEAST_USER_BYTES) + OVERHEAD_BYTES)

    @property
    def us_per_byte(self) -> float | None:
        """R_net."""
        return None if self.rate_mbit_s is None else 8 / self.rate_mbit_s


@dataclass(frozen=True)
class Flow:
    """One stream of a point in one direction.

    Attributes
    ----------
    stream, source, to : int
        Number of the stream, nodes.
    length_bytes : int
        User bytes.
    stated : mapping
        What the sender's summary says of it.
    """

    stream: int
    source: int
    to: int
    length_bytes: int
    stated: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """What findings call it."""
        return f"stream {self.stream}, node {self.source} to {self.to}"


@dataclass(frozen=True)
class Point:
    """What was measured with one size (and one spacing).

    Attributes
    ----------
    length_bytes : int
    spacing_us : float or None
        Planned mean time between frames; None where frames were not planned.
    flows : tuple of Flow
    files : mapping of (node, kind) to Path
        Frame logs; kind is ``sent`` or ``received``.
    suspect : str
        Why the times may be disturbed.
    counts : mapping of int to arrays
        Histograms of round trips instead of logs: by node, ``low_ns`` and ``count``.
    bin_ns : int
    requests : Flow or None
        Where one log holds the answers of several sizes: the requests of all of them. This point is of the answers of
        `length_bytes`.
    """

    length_bytes: int
    spacing_us: float | None
    flows: tuple[Flow, ...]
    files: Mapping[tuple[int, str], Path]
    suspect: str = ""
    counts: Mapping[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = field(default_factory=dict)
    bin_ns: int = 1
    requests: Flow | None = None

    def log(self, node: int, kind: str) -> Log | None:
        """Return a whole log; None where there is none."""
        file = self.files.get((node, kind))
        return None if file is None else read(file)

    def by_answers(self) -> list[Point]:
        """Return a point for each size of the answers that node 0 received; itself where there is one size."""
        out = next((flow for flow in self.flows if flow.source == 0), None)
        back = [flow for flow in self.flows if flow.to == 0]
        log = self.log(0, "received") if len(back) == 1 else None
        sizes = [] if log is None else np.unique(log.of(back[0].stream, back[0].source).length_bytes).tolist()
        if out is None or len(sizes) < 2:
            return [self]
        return [
            replace(self, length_bytes=size, flows=(replace(back[0], length_bytes=size),), requests=out)
            for size in sizes
        ]


@dataclass(frozen=True)
class Measurement:
    """A test between hosts.

    Attributes
    ----------
    folder : Path
    kind : str
        As in ``run.toml`` [test]: ``request-response``, ``stream`` ...
    path : Way
    wire : Wire
    test : mapping
        Options of the test.
    points : tuple of Point
    clocks : tuple of mapping
        The sender's own fits of the peers' clocks.
    exchanges : mapping of int to array
        Raw clock exchanges with a node.
    run : mapping
        All of ``run.toml``; empty without one.
    companions : tuple of (Path, mapping)
        Folders of what was under way at the same time, and what ``run.toml`` says of each.
    parts : tuple of Measurement
        The runs of a sweep, each with its own clocks and hosts; empty for one run.
    simulated : bool
        No real wire stands behind it.
    findings : tuple of str
    """

    folder: Path
    kind: str
    path: Way
    wire: Wire
    test: Mapping[str, Any]
    points: tuple[Point, ...]
    clocks: tuple[Mapping[str, Any], ...] = ()
    exchanges: Mapping[int, npt.NDArray[np.void]] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    companions: tuple[tuple[Path, Mapping[str, Any]], ...] = ()
    parts: tuple[Measurement, ...] = field(default=(), repr=False)
    simulated: bool = False
    findings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Measurement {self.folder.name}: {self.kind} over {self.path.name}, {len(self.points)} points>"

    @property
    def request_bytes(self) -> int | None:
        """User bytes of a request; None: as long as its answer."""
        value = self.test.get("request_bytes")
        return None if value is None else int(value)


def open_folder(folder: Path) -> Measurement:
    """Read what a folder says of its measurement.

    Parameters
    ----------
    folder : Path
        With ``run.toml``, or with framegen's ``summary.json`` alone.

    Returns
    -------
    Measurement

    Raises
    ------
    ConfigurationError
        There is neither, or what is there is wrong; the message names the key.
    """
    if (folder / "run.toml").is_file():
        return _of_run(runfolder.load(folder))
    if (folder / "summary.json").is_file():
        summary = _summary(folder / "summary.json")
        nodes = {int(one["node"]): int(one["node"]) for one in summary["nodes"]}
        files = {
            (number, int(log["node"]), str(log["kind"])): folder / str(log["file"])
            for number, point in enumerate(summary["points"])
            for log in point["frame_logs"]
        }
        return _assembled(folder, {}, summary, files, len(nodes))
    raise ConfigurationError(f"{folder}: neither run.toml nor summary.json: not a measurement of frames", folder)


def _of_run(opened: runfolder.RunFolder) -> Measurement:
    run, folder = opened.run, opened.path
    named = run.get("frame_summary")
    summary = _summary(folder / named) if named is not None and (folder / named).is_file() else None
    node = {name: int(host.get("node", number)) for number, (name, host) in enumerate(run["hosts"].items())}
    files = {}
    for log in run.get("frame_logs", ()):
        point = log.get("point", _point_of(str(log["file"])))
        files[int(point), node[log["host"]], str(log["kind"])] = folder / str(log["file"])
    found = _assembled(folder, run, summary, files, len(node))
    exchanges, findings = {}, list(found.findings)
    for entry in run.get("clock_exchanges", ()):
        if node[entry["reference"]] != 0:
            continue
        try:
            exchanges[node[entry["host"]]], cut = read_exchanges(folder / entry["file"])
            findings += cut
        except ConfigurationError as error:
            findings.append(f"{error}; left out, so that what the sender said of the clocks counts")
    points = found.points
    for entry in run.get("histograms", ()):
        file = folder / entry["file"]
        points, wrong = _with_counts(points, runfolder.read_histogram(file), int(entry["bin_ns"]))
        findings += [f"{file}: {text}" for text in wrong]
    beside = tuple((folder / entry["folder"], entry) for entry in run.get("companions", ()))
    found = replace(found, points=points, exchanges=exchanges, companions=beside, findings=tuple(findings))
    return replace(found, simulated=opened.simulated)


def _point_of(name: str) -> int:
    """Return the point that the name of a log of format 1 says: pPPP-nodeN-sent.npy."""
    head = Path(name).name.split("-")[0]
    return int(head[1:]) if head[:1] == "p" and head[1:].isdigit() else 0


def _assembled(
    folder: Path,
    run: Mapping[str, Any],
    summary: Mapping[str, Any] | None,
    files: Mapping[tuple[int, int, str], Path],
    hosts: int,
) -> Measurement:
    findings = []
    test = dict(run.get("test", {})) | dict((summary or {}).get("test", {}))
    for name in ("kind", "transport", "header_bytes"):
        if name in run.get("test", {}):
            test[name] = run["test"][name]
    if not run.get("complete", True) or not (summary or {}).get("complete", True):
        why = run.get("reason") or (summary or {}).get("reason") or "no reason stated"
        findings.append(f"{folder}: incomplete: {why}; the numbers are of what is there")
    wire = Wire(run.get("link", {}).get("rate_mbit_s"), int(test.get("header_bytes") or 0))
    points = _stated(summary, test, files) if summary is not None else _logged(test, files, hosts)
    findings += [f"{folder}: {point.length_bytes} bytes: suspect: {point.suspect}" for point in points if point.suspect]
    findings += [
        f"{folder}: {flow.name}: its frames are of {flow.length_bytes} bytes, not of {point.length_bytes} as planned"
        for point in points
        for flow in point.flows
        if (test.get("kind") not in ASKING or flow.to == 0) and flow.length_bytes not in (0, point.length_bytes)
    ]
    clocks = tuple((summary or {}).get("clocks", ()))
    path = _path(run, folder)
    return Measurement(
        folder, str(test.get("kind", "other")), path, wire, test, points, clocks, run=run, findings=tuple(findings)
    )


def _path(run: Mapping[str, Any], folder: Path) -> Way:
    said = run.get("path")
    if said is None:
        return Way(str(folder))
    kind = str(said["kind"])
    return Way(str(said.get("name", kind)), kind, tuple(said.get("devices", ())))


def _summary(file: Path) -> Mapping[str, Any]:
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file}: not framegen's summary: {error}", file) from error
    if not isinstance(summary, dict):
        raise ConfigurationError(f"{file}: not framegen's summary: it is no JSON object", file)
    configuration.validate(summary, "network/frame-summary.schema.json", file)
    return summary


def _stated(
    summary: Mapping[str, Any], test: Mapping[str, Any], files: Mapping[tuple[int, int, str], Path]
) -> tuple[Point, ...]:
    """Return the points as the sender's summary lists them."""
    points = []
    for number, one in enumerate(summary["points"]):
        flows = tuple(
            Flow(int(each["stream"]), int(each["from"]), int(each["to"]), int(each["length_bytes"]), each)
            for each in one["flows"]
        )
        mine = {(node, kind): file for (point, node, kind), file in files.items() if point == one.get("point", number)}
        reasons = [text for node in one.get("quality", ()) for text in (node or {}).get("reasons", ())]
        suspect = ("; ".join(reasons) or "no reason stated") if one.get("suspect") else ""
        points.append(Point(int(one["length_bytes"]), _planned(test), flows, mine, suspect))
    return tuple(points)


def _logged(test: Mapping[str, Any], files: Mapping[tuple[int, int, str], Path], hosts: int) -> tuple[Point, ...]:
    """Return the points as the logs show them, where no summary does: sent logs name the streams."""
    points = []
    sizes = test.get("sizes", ())
    for number in sorted({point for point, _, _ in files}):
        mine = {(node, kind): file for (point, node, kind), file in files.items() if point == number}
        flows = tuple(_flows_of(mine, hosts))
        length = int(sizes[number]) if number < len(sizes) else max((flow.length_bytes for flow in flows), default=0)
        point = Point(length, _planned(test), flows, mine)
        points += point.by_answers() if test.get("kind") in ASKING and len(sizes) > 1 else [point]
    return tuple(points)


def _flows_of(files: Mapping[tuple[int, str], Path], hosts: int) -> Iterator[Flow]:
    """Yield the streams that received logs show, then those of which only a sent log tells."""
    seen = set()
    for (to, kind), file in sorted(files.items()):
        for stream, source, length in streams(file) if kind == "received" else ():
            seen.add((stream, source))
            yield Flow(stream, source, to, length)
    for (source, kind), file in sorted(files.items()):
        others = [node for node in range(hosts) if node != source]
        listeners = [node for node, other in files if other == "received" and node != source]
        to = (listeners or others or [source])[0]
        if kind != "sent":
            continue
        for stream, _, length in streams(file) or ([] if seen else [(1, source, 0)]):
            if (stream, source) not in seen:
                yield Flow(stream, source, to, length)


def _planned(test: Mapping[str, Any]) -> float | None:
    """Return the spacing of streams; loops have none, and frames as fast as they go neither."""
    if test.get("kind") in (*ASKING, "max-rate", "clock") or test.get("spacing_us") is None:
        return None
    return float(test["spacing_us"])


def _with_counts(
    points: tuple[Point, ...], bins: npt.NDArray[np.void], bin_ns: int
) -> tuple[tuple[Point, ...], list[str]]:
    """Return the points with their histograms, and which of these were left out: they do not add up to the answers."""
    found, wrong = [], []
    for number, point in enumerate(points):
        mine = bins[bins["point"] == number]
        counts = {}
        for node in np.unique(mine["node"]).tolist():
            of_node = mine[mine["node"] == node]
            answers = sum(of_node["count"].tolist())
            back = next((flow for flow in point.flows if (flow.source, flow.to) == (node, 0)), None)
            stated = None if back is None else back.stated.get("received")
            if answers > MOST_ANSWERS or int(of_node["low_ns"].min()) < 0 or stated not in (None, answers):
                said = "" if stated is None else f", the summary {stated}"
                what = f"{point.length_bytes} bytes, node {node}: it counts {answers} answers{said}"
                wrong.append(f"{what}: one is damaged; left out")
                continue
            counts[node] = of_node["low_ns"], of_node["count"].astype(np.int64)
        found.append(replace(point, counts=counts, bin_ns=bin_ns))
    return tuple(found), wrong


MOST_ANSWERS = 100_000_000
"""Of a size: more would take days."""
