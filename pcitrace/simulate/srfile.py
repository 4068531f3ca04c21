"""Writes a sigrok capture (.sr, version 2) piece by piece."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path


class SrWriter:
    """A sigrok session file; `write` takes whole samples.

    Parameters
    ----------
    path : pathlib.Path
    names : sequence of str
        Channel names, bit 0 first.
    unit_bytes : int
        Bytes a sample.
    rate_mhz : float
        Samples per microsecond; in a state-mode capture the rate of the clock, which is only nominal.
    """

    def __init__(self, path: Path, names: Sequence[str], unit_bytes: int, rate_mhz: float) -> None:
        # A date of its own keeps two runs of one seed equal byte for byte.
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._members = 0
        rate_hz = round(rate_mhz * 1e6)
        probes = [f"probe{number}={name}" for number, name in enumerate(names, start=1)]
        metadata = [
            "[global]",
            "sigrok version=0.5.2",
            "",
            "[device 1]",
            "capturefile=logic-1",
            f"total probes={len(names)}",
            f"samplerate={rate_hz} Hz",
            "total analog=0",
            *probes,
            f"unitsize={unit_bytes}",
            "",
        ]
        self._add("version", b"2")
        self._add("metadata", "\n".join(metadata).encode())

    def write(self, samples: bytes) -> None:
        """Add samples."""
        if samples:
            self._members += 1
            self._add(f"logic-1-{self._members}", samples)

    def _add(self, name: str, content: bytes) -> None:
        info = zipfile.ZipInfo(name, date_time=(2000, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(info, content, compresslevel=1)

    def close(self) -> None:
        """Finish the file."""
        self._zip.close()
