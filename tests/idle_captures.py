"""Long captures with little traffic: a simulated run, again and again, with idle time between."""

from __future__ import annotations

import shutil
import tomllib
import zipfile
import zlib
from pathlib import Path

import numpy as np
import tomli_w

import pcitrace
from pcitrace.instrument.excerpt import write_session

PERIOD, CLOCKS = 100, 33
"""Samples and clocks after which 33 MHz at 100 MS/s repeats."""

BLOCK = 1 << 24
"""Samples of an idle member, about."""


def stretch(source: Path, folder: Path, samples: int, again: int) -> int:
    """Write a run folder whose capture is that of `source`, so often, over so many samples; return how many it has.

    The idle members are the same bytes, compressed once.
    """
    shutil.copytree(source, folder)
    run = tomllib.loads((source / "run.toml").read_text())
    with zipfile.ZipFile(source / "bus.sr") as archive:
        kept = {name: archive.read(name) for name in ("version", "metadata")}
        names = sorted((name for name in archive.namelist() if name.startswith("logic-1")), key=lambda one: len(one))
        busy = b"".join(archive.read(name) for name in names)
    channels = [line.partition("=")[2] for line in kept["metadata"].decode().splitlines() if line.startswith("probe")]
    idle = _idle(channels).tobytes()
    each = (samples - again * (len(busy) // 2)) // again
    blocks = max(each // BLOCK, 1)
    idle *= each // blocks // PERIOD
    with zipfile.ZipFile(folder / "bus.sr", "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
        members = [_packed(busy), *[_packed(idle)] * blocks] * again
        for number, (content, check, size) in enumerate(members, 1):
            _add(archive, f"logic-1-{number}", content, check, size)
    count = again * (len(busy) + blocks * len(idle)) // 2
    for key in ("frame_logs", "latency"):
        run.pop(key, None)
    run["captures"] = [{"file": "bus.sr", "samples": count, "rate_hz": run["captures"][0]["rate_hz"]}]
    (folder / "run.toml").write_text(tomli_w.dumps(run))
    return count


def repeat(source: Path, folder: Path, again: int, idle_us: float) -> Path:
    """Write a run folder whose captures are those of `source`, so often, with as much idle time behind each."""
    shutil.copytree(source, folder)
    run = tomllib.loads((source / "run.toml").read_text())
    for number, capture in enumerate(pcitrace.open(source).captures):
        samples = capture.samples()
        idle = np.tile(samples[-PERIOD:], (int(idle_us * capture.rate_hz / 1e6) // PERIOD, 1))
        pieces = [samples, idle] * again
        write_session(
            folder / run["captures"][number]["file"], pieces, samples.shape[1], capture.channels, capture.rate_hz
        )
        run["captures"][number]["samples"] = sum(map(len, pieces))
    for key in ("frame_logs", "latency"):
        run.pop(key, None)
    (folder / "run.toml").write_text(tomli_w.dumps(run))
    return folder


def _idle(channels: list[str]) -> np.ndarray:
    """Return the samples after which an idle bus repeats."""
    clock = (np.arange(PERIOD) * CLOCKS % PERIOD) * 2 < PERIOD
    found = np.zeros(PERIOD, dtype="<u2")
    for bit, name in enumerate(channels):
        high = clock if name.endswith("CLK") else np.full(PERIOD, not name.endswith("TXEN"))
        found |= high.astype("<u2") << bit
    return found


def _packed(content: bytes) -> tuple[bytes, int, int]:
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    return deflate.compress(content) + deflate.flush(), zlib.crc32(content), len(content)


def _add(archive: zipfile.ZipFile, name: str, content: bytes, check: int, size: int) -> None:
    """Add a member that is compressed already."""
    one = zipfile.ZipInfo(name)
    one.compress_type, one.CRC, one.file_size, one.compress_size = zipfile.ZIP_DEFLATED, check, size, len(content)
    one.header_offset = archive.fp.tell()
    archive.fp.write(one.FileHeader())
    archive.fp.write(content)
    archive.filelist.append(one)
    archive.NameToInfo[name] = one
    archive.start_dir = archive.fp.tell()
    archive._didModify = True
