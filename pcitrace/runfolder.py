"""The run folder: ``run.toml`` beside captures and frame logs, the contract with the capture tooling.

What each key means is in ``docs/run-folder.md``; the schema is ``run-folder.schema.json``.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from pcitrace import configuration
from pcitrace.errors import ConfigurationError
from pcitrace.profiles import Profile
from pcitrace.profiles import load as load_profile

__all__ = [
    "CLOCK_EXCHANGES",
    "FRAME_LOG",
    "HISTOGRAM",
    "RunFolder",
    "load",
    "read_clock_exchanges",
    "read_frame_log",
    "read_histogram",
    "write",
]

SCHEMA = "run-folder.schema.json"

FRAME_LOG = np.dtype(
    [
        ("sequence", "<u4"),
        ("stream", "<u2"),
        ("node", "<u2"),
        ("length_bytes", "<u4"),
        ("flags", "<u4"),
        ("send_ns", "<i8"),
        ("receive_ns", "<i8"),
        ("lateness_ns", "<i4"),
    ]
)
"""One record of a frame log; a time that is not known is the smallest number of its type."""

CLOCK_EXCHANGES = np.dtype(
    [
        ("request_sent_ns", "<i8"),
        ("request_received_ns", "<i8"),
        ("reply_sent_ns", "<i8"),
        ("reply_received_ns", "<i8"),
    ]
)
"""One exchange of frames between two clocks: the first and the last time are the reference's, the others the host's."""

HISTOGRAM = np.dtype(
    [
        ("point", "<u4"),
        ("length_bytes", "<u4"),
        ("node", "<u2"),
        ("stream", "<u2"),
        ("low_ns", "<i8"),
        ("count", "<u8"),
    ]
)
"""One bin of a histogram that is not empty: it begins at ``low_ns`` and is ``bin_ns`` (of ``[[histograms]]``) wide."""

_SINCE_2 = (
    "path",
    "companions",
    "clock_exchanges",
    "histograms",
    "host_states",
    "pauses",
    "tool_outputs",
    "switch",
)


@dataclass(frozen=True)
class RunFolder:
    """A validated run folder.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    run : dict
        The content of ``run.toml`` with the defaults of the schema filled in.
    """

    path: Path
    run: dict[str, Any]

    def __repr__(self) -> str:
        hosts = ", ".join(self.run["hosts"])
        whole = "" if self.run["complete"] else ", incomplete"
        return f"<RunFolder {self.path.name}: {self.run['origin']}{whole}, hosts {hosts}>"

    @property
    def simulated(self) -> bool:
        """Whether no real bus stands behind the captures, also where a simulated capture was played back."""
        return "simulated" in (self.run["origin"], self.run.get("source_origin"))

    @property
    def bus_hosts(self) -> list[str]:
        """Hosts whose bus was recorded."""
        return [name for name, host in self.run["hosts"].items() if "capture" in host]

    @property
    def capture_paths(self) -> list[Path]:
        """Files of the captures in their order."""
        return [self.path / capture["file"] for capture in self.run["captures"]]

    def profile(self, host: str) -> Profile:
        """Return the NIC profile of a host."""
        try:
            return load_profile(self.run["hosts"][host]["nic"], folder=self.path)
        except ConfigurationError as error:
            if error.key:
                raise
            raise ConfigurationError(f"{self.path / 'run.toml'}: hosts.{host}.nic: {error}", error.path) from error

    def run_time_us(self, capture: int, time_us: Any) -> Any:
        """Return times of one capture on the run's time axis (us, scalar or array).

        One whose offset is not known is left on its own axis: see `placed`.
        """
        entry = self.run["captures"][capture]
        offset_us, drift_ppm = entry.get("offset_us", 0.0), entry.get("drift_ppm", 0.0)
        return time_us if offset_us == drift_ppm == 0 else time_us * (1 + drift_ppm * 1e-6) + offset_us

    def placed(self, capture: int) -> bool:
        """Return whether it is known where a capture is on the run's time axis."""
        return "offset_us" in self.run["captures"][capture]

    def with_offset(self, capture: int, offset_us: float, drift_ppm: float, **sigmas: float) -> RunFolder:
        """Return the folder with another place of a capture on the run's time axis.

        Parameters
        ----------
        capture : int
        offset_us, drift_ppm : float
        **sigmas : float
            ``offset_sigma_us`` at the time ``about_us``, ``drift_sigma_ppm``.
        """
        captures = list(self.run["captures"])
        captures[capture] = {**captures[capture], "offset_us": offset_us, "drift_ppm": drift_ppm, **sigmas}
        return replace(self, run={**self.run, "captures": captures})

    def verify(self) -> list[str]:
        """Compare captures with their SHA-256 in ``run.toml``; return the names of the files that differ."""
        return [
            entry["file"]
            for entry, path in zip(self.run["captures"], self.capture_paths, strict=True)
            if "sha256" in entry and _sha256(path) != entry["sha256"]
        ]


def load(path: str | Path) -> RunFolder:
    """Read and check a run folder.

    Parameters
    ----------
    path : str or pathlib.Path
        The folder, or its ``run.toml``.

    Returns
    -------
    RunFolder

    Raises
    ------
    ConfigurationError
        ``run.toml`` is missing or wrong, or a file it names is not there; the message names the key.
    """
    file = Path(path)
    if file.name != "run.toml":
        file = file / "run.toml"
    run = configuration.load(file, SCHEMA)
    _fill_defaults(run)
    _check(run, file)
    _leave_out_empty(run)
    return RunFolder(file.parent, run)


def write(path: str | Path, run: Mapping[str, Any]) -> RunFolder:
    """Check a run's description and write it as ``run.toml`` into a folder that holds the files it names.

    Parameters
    ----------
    path : str or pathlib.Path
        The folder; it exists.
    run : mapping
        What ``run.toml`` shall say.

    Returns
    -------
    RunFolder
        The folder, read back.

    Raises
    ------
    ConfigurationError
        As :func:`load`; nothing is written then.
    """
    import tomli_w

    file = Path(path) / "run.toml"
    configuration.validate(dict(run), SCHEMA, file)
    filled = copy.deepcopy(dict(run))
    _fill_defaults(filled)
    _check(filled, file)
    file.write_text(tomli_w.dumps(dict(run)), encoding="utf-8")
    return load(file)


def read_frame_log(path: str | Path) -> npt.NDArray[np.void]:
    """Read a frame log.

    Parameters
    ----------
    path : str or pathlib.Path
        A ``.npy`` file.

    Returns
    -------
    numpy.ndarray
        Records of type :data:`FRAME_LOG`, shape (frames,).

    Raises
    ------
    ConfigurationError
        The file is not a frame log.
    """
    return _read_records(Path(path), FRAME_LOG, "frame log")


def read_clock_exchanges(path: str | Path) -> npt.NDArray[np.void]:
    """Read the raw exchanges between two clocks: records of type :data:`CLOCK_EXCHANGES`, shape (exchanges,).

    Raises a ConfigurationError if the file is none.
    """
    return _read_records(Path(path), CLOCK_EXCHANGES, "file of clock exchanges")


def read_histogram(path: str | Path) -> npt.NDArray[np.void]:
    """Read histograms: records of type :data:`HISTOGRAM`, shape (bins,); a ConfigurationError if the file is none."""
    return _read_records(Path(path), HISTOGRAM, "file of histograms")


def _read_records(file: Path, record: np.dtype[np.void], what: str) -> npt.NDArray[np.void]:
    try:
        found = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, TokenError) as error:
        raise ConfigurationError(f"{file}: not a {what}: no NumPy .npy file of records, or cut off", file) from error
    except OSError as error:
        raise ConfigurationError(f"{file}: not a {what}: {error}", file) from error
    if found.dtype != record or found.ndim != 1:
        names = ", ".join(record.names or ())
        raise ConfigurationError(f"{file}: not a {what}: records are {found.dtype}; expected the fields {names}", file)
    return np.asarray(found)


def _fill_defaults(run: dict[str, Any]) -> None:
    run.setdefault("complete", True)
    run.setdefault("frames_on_bus", True)
    # The first capture is the run's time axis. Where others are on it nobody knows who does not say so.
    for capture in run.setdefault("captures", [])[:1]:
        capture.setdefault("offset_us", 0.0)
    for name, host in run["hosts"].items():
        if run["format"] == 1:
            host.setdefault("capture", 0)
        if "capture" in host:
            host.setdefault("bus", name)
        host.setdefault("nic", "generic")
    if "link" in run:
        run["link"].setdefault("preamble_bytes", 8)
        run["link"].setdefault("gap_bytes", 12)


def _leave_out_empty(run: dict[str, Any]) -> None:
    """Take out captures without a sample, as an analyser that never delivered any leaves: they hide no logs."""
    kept = [number for number, capture in enumerate(run["captures"]) if capture.get("samples") != 0]
    run["captures"] = [run["captures"][number] for number in kept]
    for host in run["hosts"].values():
        if host.get("capture") in kept:
            host["capture"] = kept.index(host["capture"])
        else:
            # no bus of it was recorded
            host.pop("capture", None)
            host.pop("bus", None)


def _check(run: dict[str, Any], file: Path) -> None:
    """Check what a schema cannot say."""

    def refuse(key: str, text: str) -> None:
        raise ConfigurationError(f"{file}: {key}: {text}", file, key)

    if run["format"] == 1 and (newer := next((name for name in _SINCE_2 if name in run), None)):
        refuse(newer, "came with format 2; write format = 2, and `capture = 0` where a host's bus was recorded")
    for i, capture in enumerate(run["captures"]):
        key = f"captures[{i}]"
        if not (file.parent / capture["file"]).is_file():
            refuse(f"{key}.file", f"{capture['file']} is not in the run folder")
        if "rate_hz" in capture and "clock_mhz" in capture:
            refuse(f"{key}.clock_mhz", "state mode (clock_mhz) has no sampling rate; give rate_hz or clock_mhz")
        _check_unit(capture, "rate_hz", key, 1e5, 1e11, "samples a second: 100 MS/s is 100e6", refuse)
        _check_unit(capture, "clock_mhz", key, 0.1, 200, "MHz: 33 MHz is 33.0", refuse)
    for name, host in run["hosts"].items():
        key = f"hosts.{name}"
        if host.get("capture", -1) >= len(run["captures"]):
            refuse(f"{key}.capture", f"{host['capture']}, but there are {len(run['captures'])} captures, from 0")
        _check_unit(host, "clock_mhz", key, 0.1, 200, "MHz: 33 MHz is 33.0", refuse)
    buses = [(host["capture"], host["bus"]) for host in run["hosts"].values() if "capture" in host]
    if len(set(buses)) < len(buses):
        refuse("hosts", f"two hosts have the same bus {buses[0][1]}; give each its own `bus`")
    if "link" in run:
        _check_unit(run["link"], "rate_mbit_s", "link", 10, 1e6, "Mbit/s: gigabit Ethernet is 1000", refuse)
    for table in ("frame_logs", "latency", "clock_exchanges", "histograms", "host_states", "pauses", "tool_outputs"):
        for i, entry in enumerate(run.get(table, ())):
            _check_entry(entry, f"{table}[{i}]", run["hosts"], file.parent, refuse)
    for i, companion in enumerate(run.get("companions", ())):
        if not (file.parent / companion["folder"]).is_dir():
            refuse(f"companions[{i}].folder", f"{companion['folder']} is not in the run folder")
    for key in ("truth", "plan"):
        name = run.get("switch", {}).get(key)
        if name is not None and not (file.parent / name).is_file():
            refuse(f"switch.{key}", f"{name} is not in the run folder")


def _check_entry(entry: dict[str, Any], key: str, hosts: dict[str, Any], folder: Path, refuse: Any) -> None:
    """Check that the hosts that an entry names exist, and its files."""
    for name in ("host", "reference"):
        if name in entry and entry[name] not in hosts:
            refuse(f"{key}.{name}", f"{entry[name]!r} is none of the hosts {', '.join(hosts)}")
    for name in ("file", "before", "after"):
        if name in entry and not (folder / entry[name]).is_file():
            refuse(f"{key}.{name}", f"{entry[name]} is not in the run folder")


def _check_unit(table: dict[str, Any], name: str, key: str, low: float, high: float, unit: str, refuse: Any) -> None:
    """Refuse a value that can only be in another unit."""
    if name in table and not low <= table[name] <= high:
        refuse(f"{key}.{name}", f"{table[name]:g} cannot be right; the unit is {unit}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
