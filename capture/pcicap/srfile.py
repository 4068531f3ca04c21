"""The sigrok v2 session file (``.sr``): written as a stream, read back for a replay.

A ``.sr`` file is a zip with ``version`` ("2"), ``metadata`` (ini) and the samples in ``logic-1-1``, ``logic-1-2`` ...
sigrok-cli itself rewrites the whole zip for every packet, so the members are written here, each one complete before
the next begins: local header with the sizes and CRC known, then the data. Whatever happens to the process, all that
was written can be found again by walking the local headers (`salvage`).

Ref: PKWARE APPNOTE.TXT 6.3, sections 4.3.7 (local header), 4.3.12 (central directory), 4.3.14-16 (zip64, end).
"""

from __future__ import annotations

import configparser
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from pcicap.errors import CaptureFileError

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_LIMIT32 = 0xFFFFFFFF
_DOS_DATE = 0x21  # 1980-01-01: the time of a recording is in run.toml, equal samples give equal files
_STORED, _DEFLATED = 0, 8


@dataclass(frozen=True)
class _Member:
    name: bytes
    method: int
    crc: int
    packed: int
    size: int
    offset: int


def format_rate(rate_hz: float) -> str:
    """Sample rate as sigrok writes it in ``metadata``.

    Examples
    --------
    >>> format_rate(100e6), format_rate(33333333), format_rate(10)
    ('100 MHz', '33.333333 MHz', '10 Hz')
    """
    for factor, unit in ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz")):
        if rate_hz >= factor:
            return f"{rate_hz / factor:.9f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{rate_hz:g} Hz"


def parse_rate(text: str) -> float:
    """Sample rate in Hz from a ``metadata`` value.

    Raises
    ------
    ValueError
        The text is not a number with an optional unit.

    Examples
    --------
    >>> parse_rate("33.333333 MHz"), parse_rate("500 kHz"), parse_rate("250")
    (33333333.0, 500000.0, 250.0)
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?\d+)?)\s*([kMG]?)(?:Hz)?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"not a sample rate: {text!r}")
    factor = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}[match[2].upper()]
    return round(float(match[1]) * factor, 3)


class SrFile:
    """A ``.sr`` file being written; close it to make it a complete zip.

    Parameters
    ----------
    path : Path
        File to create.
    channels : mapping of int to str
        Bit of a sample -> name, for the bits that have one.
    unit_size : int
        Bytes a sample.
    rate_hz : float or None
        Sample rate; None leaves it out (state mode: the clock of the bus, which run.toml gives).
    """

    def __init__(self, path: Path, channels: Mapping[int, str], unit_size: int, rate_hz: float | None) -> None:
        self.path = path
        self._file = path.open("xb", buffering=0)
        self._members: list[_Member] = []
        self._chunks = 0
        self._add(b"version", b"2", _STORED)
        self._add(b"metadata", metadata(channels, unit_size, rate_hz).encode(), _STORED)

    @staticmethod
    def pack(data: bytes, compress: bool = True) -> tuple[bytes, int, int, int]:
        """Chunk ready to be written: bytes, method, CRC and size. Free of state, so that threads can share the work."""
        crc = zlib.crc32(data)
        if compress:
            deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
            packed = deflate.compress(data) + deflate.flush()
            if len(packed) < len(data):
                return packed, _DEFLATED, crc, len(data)
        return data, _STORED, crc, len(data)

    def write(self, chunk: tuple[bytes, int, int, int]) -> None:
        """Append one packed chunk of whole samples and hand it to the operating system."""
        self._chunks += 1
        try:
            self._append(b"logic-1-%d" % self._chunks, *chunk)
        except OSError:
            self._chunks -= 1
            raise

    def close(self) -> None:
        """Write the central directory; the file is then a complete zip, on the disk."""
        if self._file.closed:
            return
        _write_all(self._file, _directory(self._members, self._file.tell()))
        os.fsync(self._file.fileno())
        self._file.close()

    def _add(self, name: bytes, data: bytes, method: int) -> None:
        self._append(name, data, method, zlib.crc32(data), len(data))

    def _append(self, name: bytes, packed: bytes, method: int, crc: int, size: int) -> None:
        offset = self._file.tell()
        header = _LOCAL.pack(b"PK\3\4", 20, 0, method, 0, _DOS_DATE, crc, len(packed), size, len(name), 0)
        try:
            _write_all(self._file, header + name)
            _write_all(self._file, packed)
        except OSError:
            # Half a member is none. Giving its space back also leaves room for the directory on a full disk.
            self._file.seek(offset)
            self._file.truncate()
            raise
        self._members.append(_Member(name, method, crc, len(packed), size, offset))


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def metadata(channels: Mapping[int, str], unit_size: int, rate_hz: float | None) -> str:
    """Text of the ``metadata`` member. Readers want ``total probes`` before the probes."""
    lines = ["[global]", "sigrok version=0.5.2", "", "[device 1]", "capturefile=logic-1"]
    lines.append(f"total probes={max(channels) + 1}")
    if rate_hz is not None:
        lines.append(f"samplerate={format_rate(rate_hz)}")
    lines.append("total analog=0")
    lines += [f"probe{bit + 1}={name}" for bit, name in sorted(channels.items())]
    lines.append(f"unitsize={unit_size}")
    return "\n".join(lines) + "\n"


def _directory(members: Sequence[_Member], start: int) -> bytes:
    """Central directory and end record, with the zip64 forms where an offset needs them."""
    out = bytearray()
    for m in members:
        extra = struct.pack("<HHQ", 1, 8, m.offset) if m.offset >= _LIMIT32 else b""
        offset = min(m.offset, _LIMIT32)
        version = 45 if extra else 20
        out += _CENTRAL.pack(
            b"PK\1\2", version, version, 0, m.method, 0, _DOS_DATE, m.crc, m.packed, m.size,
            len(m.name), len(extra), 0, 0, 0, 0, offset,
        )  # fmt: skip
        out += m.name + extra
    size = len(out)
    if start >= _LIMIT32 or len(members) >= 0xFFFF:
        out += _END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, len(members), len(members), size, start)
        out += _LOCATOR64.pack(b"PK\6\7", 0, start + size, 1)
    count = min(len(members), 0xFFFF)
    out += _END.pack(b"PK\5\6", 0, 0, count, count, min(size, _LIMIT32), min(start, _LIMIT32), 0)
    return bytes(out)


def salvage(path: Path) -> int:
    """Complete a ``.sr`` file whose writer died: keep every whole chunk and write the central directory.

    Does nothing to a file that is already complete.

    Returns
    -------
    int
        Bytes of samples in the file.

    Raises
    ------
    CaptureFileError
        Not even the names of the channels were written.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return sum(i.file_size for i in archive.infolist() if i.filename.startswith("logic-1"))
    with path.open("r+b") as file:
        members, end = _walk(file)
        if len(members) < 2:
            raise CaptureFileError(f"{path}: ends before its metadata; no sample had been written, delete the file")
        file.seek(end)
        file.truncate()
        file.write(_directory(members, end))
        file.flush()
        os.fsync(file.fileno())
    return sum(m.size for m in members if m.name.startswith(b"logic-1"))


def _walk(file: BinaryIO) -> tuple[list[_Member], int]:
    """Whole members from the start of the file, and where the last of them ends."""
    members: list[_Member] = []
    end = 0
    while True:
        file.seek(end)
        header = file.read(_LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != b"PK\3\4":
            return members, end
        _, _, _, method, _, _, crc, packed, size, name_size, extra = _LOCAL.unpack(header)
        name = file.read(name_size)
        file.seek(extra, os.SEEK_CUR)
        data = file.read(packed)
        try:
            whole = zlib.decompress(data, -15) if method == _DEFLATED else data
        except zlib.error:
            return members, end
        if len(data) < packed or len(whole) != size or zlib.crc32(whole) != crc:
            return members, end
        members.append(_Member(name, method, crc, packed, size, end))
        end += _LOCAL.size + name_size + extra + packed


@dataclass(frozen=True)
class SrInfo:
    """What a ``.sr`` file says of itself.

    Attributes
    ----------
    channels : dict of int to str
        Bit of a sample -> name; only the bits that have one.
    unit_size : int
        Bytes a sample.
    rate_hz : float or None
        None where the file does not say.
    size : int
        Bytes of samples.
    """

    channels: dict[int, str]
    unit_size: int
    rate_hz: float | None
    size: int

    @property
    def samples(self) -> int:
        """Whole samples in the file."""
        return self.size // self.unit_size


def read_info(path: Path) -> SrInfo:
    """Channels, rate and length of a ``.sr`` file.

    Raises
    ------
    CaptureFileError
        No such file, not a sigrok v2 file, or one without logic samples.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read("metadata").decode("utf-8")
            size = sum(archive.getinfo(name).file_size for name in _logic_members(archive.namelist()))
    except OSError as error:
        raise CaptureFileError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise CaptureFileError(f"{path}: not a sigrok v2 file ({error}); give a .sr file or a run folder") from None
    ini = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    try:
        ini.read_string(text)
        device = ini["device 1"]
        unit_size = int(device["unitsize"])
        rate = parse_rate(device["samplerate"]) if "samplerate" in device else None
    except (configparser.Error, KeyError, ValueError) as error:
        raise CaptureFileError(f"{path}: metadata is not as sigrok writes it ({error})") from None
    channels = {int(key[5:]) - 1: name for key, name in device.items() if re.fullmatch(r"probe[1-9]\d*", key)}
    if unit_size < 1 or not channels or max(channels) >= 8 * unit_size:
        raise CaptureFileError(f"{path}: unit size {unit_size} does not hold the {len(channels)} channels named in it")
    if size < unit_size:
        raise CaptureFileError(f"{path}: holds no logic sample")
    return SrInfo(channels, unit_size, rate, size)


def read_samples(path: Path, block: int = 1 << 22) -> Iterator[bytes]:
    """Bytes of the samples, in order, in blocks of any length; CRCs are checked on the way."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in _logic_members(archive.namelist()):
                with archive.open(name) as member:
                    while data := member.read(block):
                        yield data
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise CaptureFileError(f"{path}: damaged ({error}); copy it again from where it was recorded") from None


def _logic_members(names: Sequence[str]) -> list[str]:
    chunks = [name for name in names if re.fullmatch(r"logic-1(-\d+)?", name)]
    return sorted(chunks, key=lambda name: int(name[8:] or 0))
