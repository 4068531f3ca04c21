"""What a replay serves: the samples of a recorded capture, with the chosen channels on bits 0, 1, ..."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcicap.errors import CaptureFileError
from pcicap.srfile import SrInfo, read_info, read_samples

MAX_RATE_HZ = 100_000_000
"""Fastest rate the BeagleLogic driver of libsigrok offers."""
MAX_CHANNELS = 14
"""Channels of a BeagleLogic; eight of them in one-byte samples."""

HOST_KEYS = ("clock_mhz", "width", "nic")
"""What belongs to the bus that is replayed, and not to the host that sends while it is."""


@dataclass(frozen=True)
class ReplaySource:
    """A capture chosen for a replay.

    Attributes
    ----------
    path : Path
        The ``.sr`` file.
    info : SrInfo
        What the file says of itself.
    channels : tuple of (int, str)
        Bit in the file and name, in the order in which they are served.
    rate_hz : int
        Samples a second.
    clock_mhz : float or None
        The clock of the bus, where each sample is one clock of it (state mode).
    origin : str
        The capture's own origin (``simulated``, ``captured``, ``imported``), or ``unknown`` where nothing says it.
    sha256 : str
        Of the file.
    hosts : mapping
        Of each host on the capture what its run folder says of the bus: clock, width, NIC profile.
    link : mapping
        ``[link]`` of its run folder: the link of the frames that the capture shows.
    """

    path: Path
    info: SrInfo
    channels: tuple[tuple[int, str], ...]
    rate_hz: int
    clock_mhz: float | None
    origin: str
    sha256: str
    hosts: Mapping[str, Mapping[str, Any]]
    link: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        """What the recorder writes into run.toml about a replay; JSON-ready."""
        return {
            "source": self.path.name,
            "source_origin": self.origin,
            "source_sha256": self.sha256,
            "samples": self.info.samples,
            "rate_hz": self.rate_hz,
            "clock_mhz": self.clock_mhz,
            "channels": [name for _, name in self.channels],
            "hosts": self.hosts,
            "link": self.link,
        }

    def stream(self, unit_size: int) -> Iterator[bytes]:
        """Samples of `unit_size` bytes (1 or 2) with the chosen channels on bits 0, 1, ...; whole samples a block."""
        tables = self._tables(unit_size)
        rest = b""
        for block in read_samples(self.path):
            block = rest + block
            whole = len(block) - len(block) % self.info.unit_size
            block, rest = block[:whole], block[whole:]
            columns = np.frombuffer(block, np.uint8).reshape(-1, self.info.unit_size)
            out = np.zeros(len(columns), f"<u{unit_size}")
            for byte, table in tables.items():
                out |= table[columns[:, byte]]
            yield out.tobytes()

    def _tables(self, unit_size: int) -> dict[int, NDArray[np.unsignedinteger]]:
        """For each byte of a stored sample that carries chosen channels: its 256 values -> bits served."""
        values = np.arange(256)
        tables: dict[int, NDArray[np.unsignedinteger]] = {}
        for served, (bit, _) in enumerate(self.channels[: 8 * unit_size]):
            table = tables.setdefault(bit // 8, np.zeros(256, f"<u{unit_size}"))
            table |= (((values >> bit % 8) & 1) << served).astype(table.dtype)
        return tables


def open_source(path: Path, channels: Sequence[str] = (), rate_hz: float | None = None) -> ReplaySource:
    """Capture to be served: a ``.sr`` file, or a run folder that holds one.

    Parameters
    ----------
    path : Path
        ``.sr`` file or run folder.
    channels : sequence of str
        Names to serve, in this order; all of them by default.
    rate_hz : float, optional
        Rate of a file that states none.

    Raises
    ------
    CaptureFileError
        Not readable, faster than 100 MS/s, more than 14 channels and none chosen, or an unknown channel.
    """
    found = _locate(path)
    file = found.file
    info = read_info(file)
    clock_hz = found.clock_mhz * 1e6 if found.clock_mhz else None  # in state mode a rate in the file is only nominal
    rate = next((known for known in (rate_hz, clock_hz, found.rate_hz, info.rate_hz) if known is not None), None)
    if rate is None:
        raise CaptureFileError(f"{file}: states no sample rate; give it with --rate-hz")
    if rate > MAX_RATE_HZ:
        raise CaptureFileError(
            f"{file}: recorded at {rate / 1e6:g} MS/s, but the BeagleLogic that a replay stands for ends at "
            f"{MAX_RATE_HZ / 1e6:g} MS/s and leaving samples out would move the clock edges; record or simulate at "
            "100 MS/s or less"
        )
    if not rate > 0:
        raise CaptureFileError(f"{file}: sample rate {rate:g} Hz is not positive; give it with --rate-hz")
    with file.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    chosen = _choose(file, info, channels)
    return ReplaySource(file, info, chosen, round(rate), found.clock_mhz, found.origin, digest, found.hosts, found.link)


def _choose(file: Path, info: SrInfo, names: Sequence[str]) -> tuple[tuple[int, str], ...]:
    if not names:
        if len(info.channels) > MAX_CHANNELS:
            listed = ", ".join(info.channels[bit] for bit in sorted(info.channels))
            raise CaptureFileError(
                f"{file}: has {len(info.channels)} channels and a BeagleLogic {MAX_CHANNELS}; choose some of {listed} "
                "with --channels"
            )
        return tuple(sorted(info.channels.items()))
    if len(names) > MAX_CHANNELS:
        raise CaptureFileError(f"--channels: {len(names)} given, a BeagleLogic has {MAX_CHANNELS}; choose fewer")
    if len(set(names)) < len(names):
        raise CaptureFileError("--channels: a name is given twice; name each channel once")
    bits = {name: bit for bit, name in info.channels.items()}
    if missing := [name for name in names if name not in bits]:
        raise CaptureFileError(f"{file}: has no channel {', '.join(missing)}; it has {', '.join(bits)}")
    return tuple((bits[name], name) for name in names)


@dataclass(frozen=True)
class _Found:
    """A capture file and what its run folder says of it, if there is one."""

    file: Path
    origin: str = "unknown"
    rate_hz: float | None = None
    clock_mhz: float | None = None
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    link: Mapping[str, Any] = field(default_factory=dict)


def _locate(path: Path) -> _Found:
    if path.is_dir():
        try:
            run = tomllib.loads((path / "run.toml").read_text())
            files = [path / capture["file"] for capture in run["captures"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CaptureFileError(
                f"{path}: not a run folder ({error!r}); give a .sr file or a folder with run.toml"
            ) from None
        readable = [file for file in files if file.suffix == ".sr"]
        if len(readable) != 1:
            raise CaptureFileError(f"{path}: holds {len(readable)} .sr captures; name the one file to replay")
        return _in_folder(path, readable[0]) or _Found(readable[0])
    folders = (parent for parent in path.resolve().parents[:2] if (parent / "run.toml").is_file())
    return next((found for folder in folders if (found := _in_folder(folder, path))), _Found(path))


def _in_folder(folder: Path, file: Path) -> _Found | None:
    """What a run folder says of one of its captures; None if it does not list the file."""
    try:
        run = tomllib.loads((folder / "run.toml").read_text())
    except (OSError, ValueError):
        return None
    for index, capture in enumerate(run.get("captures", [])):
        if (folder / capture.get("file", "")).resolve() == file.resolve():
            hosts = {
                name: {key: host[key] for key in HOST_KEYS if key in host and not (folder / str(host[key])).is_file()}
                for name, host in run.get("hosts", {}).items()
                if host.get("capture", 0) == index
            }
            # A replay of a replay is still of the first source.
            origin = str(run.get("source_origin", run.get("origin", "unknown")))
            return _Found(file, origin, capture.get("rate_hz"), capture.get("clock_mhz"), hosts, run.get("link", {}))
    return None
