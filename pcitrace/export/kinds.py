"""What an export is asked for, and what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Exported", "Format", "Options"]


@dataclass(frozen=True)
class Format:
    """A format that is written.

    Attributes
    ----------
    module : str
        What writes it: its ``write(source, path, options, to)``.
    suffix : str
        Of its files.
    program : str
        Who reads it.
    """

    module: str
    suffix: str
    program: str


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes
    ----------
    files : tuple of pathlib.Path
        The file that was asked for first, and what lies beside it.
    rows : dict of str to int
        How much of what is in it.
    left_out : tuple of str
        What the format or the run cannot give, in a sentence each.
    hints : tuple of str
        How to open it.
    """

    files: tuple[Path, ...]
    rows: dict[str, int]
    left_out: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """What only some formats are asked.

    Attributes
    ----------
    table : str
        Which table, of ``parquet`` and ``arrow``.
    sample_rate_hz : int or None
        Samples a second, of ``sigrok``, where the capture lists changes.
    """

    table: str = "transactions"
    sample_rate_hz: int | None = None
