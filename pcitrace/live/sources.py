"""Where samples come from: a pipe, a file that grows, a recording that is being made, a program."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shlex
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from pcitrace.errors import CaptureFormatError, PciTraceError

__all__ = ["Command", "Follower", "GrowingFile", "GrowingSession", "Pipe", "SessionHead", "recorded"]

PIECE = 1 << 20
LOOK_S = 0.05
LATE = 256 << 20
"""Bytes that a file may have grown by and that are not yet read."""


def recorded(path: Path) -> Path:
    """Return where a run folder stands, or a file in it, that pcicap is recording: NAME.partial until it is whole."""
    for folder in (path, *path.parents) if not path.exists() else ():
        partial = folder.parent / f"{folder.name}.partial"
        if partial.is_dir():
            return partial / path.relative_to(folder)
    return path


def _widen(pipe: int) -> None:
    """Have a pipe hold as much as is read at once, so that who writes waits less; ref: pipe(7)."""
    with contextlib.suppress(OSError, AttributeError):  # no pipe, or another system
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIECE)


class Pipe:
    """A pipe, or standard input."""

    patient = False
    """Who writes would have to wait."""

    def __init__(self, path: str) -> None:
        self._file = sys.stdin.fileno() if path == "-" else os.open(path, os.O_RDONLY)
        _widen(self._file)
        self._closed = threading.Event()

    def blocks(self) -> Iterator[bytes | None]:
        """Yield what comes until the other end is closed."""
        while not self._closed.is_set():
            if select.select([self._file], [], [], LOOK_S)[0]:
                some = os.read(self._file, PIECE)
                if not some:
                    return
                yield some

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()


class Follower:
    """A file that somebody else writes; it ends when nothing has come for so long.

    Parameters
    ----------
    path : pathlib.Path
    idle_s : float or None
        None: it never ends by itself.
    """

    def __init__(self, path: Path, idle_s: float | None) -> None:
        self._path, self._idle_s = path, idle_s
        self._closed = threading.Event()
        self._there: int | None = None

    patient = True
    """What is in a file can be read later."""

    def _late(self, file: IO[bytes]) -> int:
        """Return how many bytes to leave out: all until now, where too much has come since the watch began."""
        size = os.fstat(file.fileno()).st_size
        if self._there is None:
            self._there = size
        left = size - file.tell()
        return left if size - max(file.tell(), self._there) > LATE else 0

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()

    def is_at(self, path: Path) -> bool:
        """Whether this is the file at a place."""
        return path.exists() and self._path.exists() and path.samefile(self._path)

    def _open(self) -> IO[bytes]:
        return self._path.open("rb")

    def _read(self, file: IO[bytes], count: int) -> bytes | None:
        """Return so many bytes, or as many as there will ever be; None if it was ended."""
        found = b""
        since = time.monotonic()
        while len(found) < count:
            some = file.read(count - len(found))
            if some:
                found += some
                since = time.monotonic()
            elif self._closed.is_set() or (self._idle_s is not None and time.monotonic() - since > self._idle_s):
                return None
            else:
                self._look(file)
                self._closed.wait(LOOK_S)
        return found

    def _look(self, file: IO[bytes]) -> None:
        """See that more may come. A file that is renamed goes on, as what pcicap records does at the end."""
        told = os.fstat(file.fileno())
        if file.tell() > told.st_size:
            raise CaptureFormatError(f"{self._path}: it got shorter while it was read", self._path)
        if not told.st_nlink:
            raise CaptureFormatError(f"{self._path}: it was removed while it was read", self._path)
        with contextlib.suppress(FileNotFoundError):
            if not os.path.samestat(told, self._path.stat()):
                raise CaptureFormatError(
                    f"{self._path}: another file has its name now; watch that one anew", self._path
                )


class GrowingFile(Follower):
    """A file of raw samples that grows."""

    def blocks(self) -> Iterator[bytes | int | None]:
        """Yield what is there, and what comes; a number of bytes that are left out where it is too late for them."""
        with self._open() as file:
            while not self._closed.is_set():
                if late := self._late(file):
                    file.seek(late, os.SEEK_CUR)
                    yield late
                some = file.read(PIECE) or self._read(file, 1)
                if some is None:
                    return
                yield some


class SessionHead:
    """What the beginning of a sigrok session says: rate, channels, bytes a sample."""

    def __init__(self, text: str, path: Path) -> None:
        import configparser

        parser = configparser.ConfigParser(strict=False, interpolation=None)
        try:
            parser.read_string(text)
            device = parser["device 1"]
            self.unit_size = int(device["unitsize"])
            count = int(device["total probes"])
            self.channels = [device.get(f"probe{bit + 1}", "") for bit in range(count)]
        except (configparser.Error, KeyError, ValueError) as error:
            raise CaptureFormatError(f"{path}: metadata is not that of a sigrok session: {error}", path) from error
        self.rate_hz = _rate(device.get("samplerate", ""))


def _rate(text: str) -> float | None:
    """Ref: libsigrok, sr_samplerate_string."""
    number, _, unit = text.strip().partition(" ")
    try:
        return float(number) * {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9, "": 1.0}[unit]
    except (ValueError, KeyError):
        return None


class Member(NamedTuple):
    """One member of a session: what stands in the file, and how many bytes that is."""

    name: str
    packed: bytes
    size: int
    check: int
    deflated: bool

    def content(self) -> bytes:
        """Return what it holds; ValueError if that is damaged."""
        try:
            found = zlib.decompress(self.packed, -15) if self.deflated else self.packed
        except zlib.error as error:
            raise ValueError(f"{self.name} is damaged: {error}") from error
        if (len(found), zlib.crc32(found)) != (self.size, self.check):
            raise ValueError(f"{self.name} is damaged: its check sum is another one")
        return found


class GrowingSession(Follower):
    """A sigrok session (.sr) while it is recorded by pcicap: members one after the other, each whole.

    Ref: PKWARE APPNOTE.TXT 6.3, section 4.3.7 (local header).
    """

    LOCAL = struct.Struct("<4s5H3L2H")

    def head(self) -> SessionHead:
        """Return what is known before the first sample; waits until it is written."""
        with self._open() as file:
            for member in self._members(file):
                if member.name == "metadata":
                    return SessionHead(self._content(member).decode(errors="replace"), self._path)
        raise CaptureFormatError(f"{self._path}: a sigrok session without metadata", self._path)

    def blocks(self) -> Iterator[bytes | int | None]:
        """Yield the samples of each member; how many bytes they are where it is too late for them."""
        with self._open() as file:
            for member in self._members(file):
                if member.name.startswith("logic-1"):
                    yield member.size if self._late(file) else self._content(member)

    def _content(self, member: Member) -> bytes:
        try:
            return member.content()
        except ValueError as error:
            raise CaptureFormatError(f"{self._path}: {error}", self._path) from error

    def _members(self, file: IO[bytes]) -> Iterator[Member]:
        while (head := self._read(file, 4)) is not None and head == b"PK\3\4":
            rest = self._read(file, self.LOCAL.size - 4)
            if rest is None:
                return
            _, _, flags, method, _, _, check, packed, size, name_bytes, extra = self.LOCAL.unpack(head + rest)
            if flags & 8 or packed == 0xFFFFFFFF:
                raise CaptureFormatError(
                    f"{self._path}: its members do not say their sizes: not recorded by pcicap; open it when it is "
                    "complete",
                    self._path,
                )
            name = self._read(file, name_bytes + extra)
            content = self._read(file, packed) if packed else b""
            if name is None or content is None:
                return
            yield Member(name[:name_bytes].decode(errors="replace"), content, size, check, method == 8)


class Command:
    """A program that writes raw samples to its output, such as sigrok-cli.

    Parameters
    ----------
    command : str
        As for a shell, but none is started.
    repeat : bool
        Start it again when it ends: bursts, each with a trigger of its own, and a break of unknown length between.

    Raises
    ------
    PciTraceError
        It names no program.
    """

    patient = False

    def __init__(self, command: str, repeat: bool) -> None:
        try:
            self._command, self._repeat = shlex.split(command), repeat
        except ValueError as error:
            raise PciTraceError(f"--command {command!r}: {error}") from error
        if not self._command:
            raise PciTraceError("--command: name a program that writes raw samples")
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = threading.Event()

    def blocks(self) -> Iterator[bytes | None]:
        """Yield what it writes."""
        while not self._closed.is_set():
            came = 0
            # sigrok-cli --continuous ends when its input does: it is kept open.
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._process.stdout is not None
            _widen(self._process.stdout.fileno())
            while some := os.read(self._process.stdout.fileno(), PIECE):
                came += len(some)
                yield some
            status = self._process.wait()
            if self._closed.is_set():
                return
            if status or not came:
                raise CaptureFormatError(
                    f"{self._command[0]}: ended with exit status {status} after {came} bytes; its words are above"
                )
            if not self._repeat:
                return
            yield None

    def close(self) -> None:
        """End the program."""
        self._closed.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
