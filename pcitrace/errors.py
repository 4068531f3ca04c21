"""What can go wrong, by type. Every message says where, what was found, and what to do about it.

Bad traffic on a bus is not an error: it becomes rows of the table ``problems``. An exception means that
pcitrace cannot go on, or that ``strict`` was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "CaptureFormatError",
    "ConditionError",
    "ConfigurationError",
    "DecodeError",
    "FitError",
    "FrameMatchError",
    "PciTraceError",
    "WiringError",
]


class PciTraceError(Exception):
    """Any error that pcitrace raises on purpose."""


class CaptureFormatError(PciTraceError):
    """A file cannot be read as the capture it claims to be.

    Attributes
    ----------
    path : pathlib.Path or None
        The file.
    offset : int or None
        The byte at which reading failed, where there is one such place.
    """

    def __init__(self, message: str, path: str | Path | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.path = None if path is None else Path(path)
        self.offset = offset


class ConfigurationError(PciTraceError):
    """A run.toml or a NIC profile is not valid.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    key : str
        The offending key with dots between its parts, such as ``hosts.A.nic``; empty for the file as a whole.
    """

    def __init__(self, message: str, path: str | Path, key: str = "") -> None:
        super().__init__(message)
        self.path = Path(path)
        self.key = key


class WiringError(PciTraceError):
    """Channels cannot be assigned to the lines of a bus.

    Attributes
    ----------
    missing : tuple of str
        What was needed and is not there: PCI lines, channels, or buses.
    available : tuple of str
        What there is to choose from.
    """

    def __init__(self, message: str, missing: Iterable[str] = (), available: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.missing = tuple(missing)
        self.available = tuple(available)


class DecodeError(PciTraceError):
    """A bus cannot be decoded as asked, or ``strict`` was asked for and there are problems."""


class ConditionError(PciTraceError):
    """A text is no condition on the rows of a table.

    Attributes
    ----------
    text : str
        The condition as it was written.
    """

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class FrameMatchError(PciTraceError):
    """Frames cannot be matched between the buses of a run."""


class FitError(PciTraceError):
    """A fit is degenerate; the message names the terms that the data do not determine."""
