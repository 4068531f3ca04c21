"""Live progress on stderr: one line that is rewritten at a terminal, a line a step elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_REDRAW_S = 0.2
_LOG_S = 10.0


def count(number: int) -> str:
    """A count, short.

    Examples
    --------
    >>> count(512), count(12_345_678)
    ('512', '12.3 M')
    """
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= factor:
            return f"{number / (1e3 if unit == 'k' else factor):.1f} {unit}"
    return str(number)


class Progress:
    """Says what happens.

    Parameters
    ----------
    quiet : bool
        Say nothing.
    stream : file, optional
        stderr by default.
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._drawn = 0
        self._last = 0.0

    def step(self, text: str) -> None:
        """One step is done or begins."""
        if not self._quiet:
            self._stream.write(f"{self._wipe()}{text}\n")
            self._stream.flush()

    def update(self, text: str) -> None:
        """How far it is."""
        now = time.monotonic()
        if self._quiet or now - self._last < (_REDRAW_S if self._live else _LOG_S):
            return
        self._last = now
        self._stream.write(f"{self._wipe()}{text}" if self._live else f"{text}\n")
        self._drawn = len(text) if self._live else 0
        self._stream.flush()

    def _wipe(self) -> str:
        wiped = "\r" + " " * self._drawn + "\r" if self._drawn else ""
        self._drawn = 0
        return wiped
