"""Samples as they come, from a thread that never waits for who takes them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

__all__ = ["Block", "Intake", "Source"]

GATHER, GATHER_S = 4 << 20, 0.02
"""What comes within so long is decoded together, up to so many bytes: each turn costs a millisecond, however short."""


class Block(NamedTuple):
    """Samples that came together.

    Attributes
    ----------
    samples : bytes
    missing : int or None
        Samples that are left out before these; None: so many as nobody knows.
    came : float
        When the first of them came (``time.monotonic``).
    """

    samples: bytes
    missing: int | None
    came: float


class Source(Protocol):
    """Where samples come from."""

    @property
    def patient(self) -> bool:
        """Whether nothing is lost where it is read later."""
        ...

    def blocks(self) -> Iterator[bytes | int | None]:
        """Yield bytes as they come; how many are left out; None for a break of unknown length, at a whole sample."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Intake:
    """Takes what a source gives and keeps it until it is asked for, up to a bound.

    Parameters
    ----------
    source : Source
    unit : int
        Bytes a sample.
    bound : int
        Bytes that may wait. Where more would, all that wait are left out: what is shown goes on with what is new.
    """

    def __init__(self, source: Source, unit: int, bound: int = 64 << 20) -> None:
        self._source, self._unit, self._bound = source, unit, bound
        # Where they begin since the last break, the bytes, when they came; no bytes: a break.
        self._waiting: deque[tuple[int, bytes, float]] = deque()
        self._waiting_bytes = self._came = self._taken = 0
        self._changed = threading.Condition()
        self._over = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._take, name="intake", daemon=True)
        self.skipped = 0
        """Samples that were left out."""

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """End the source."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._source.close()

    def next(self, timeout: float) -> Block | None:
        """Return what has come; None where nothing did in so many seconds.

        Raises
        ------
        EOFError
            Nothing more comes.
        PciTraceError, OSError
            The source broke.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over, timeout)
            if not self._waiting:
                if self._error is not None:
                    raise self._error
                if self._over:
                    raise EOFError
                return None
            self._changed.wait_for(lambda: self._waiting_bytes >= GATHER or self._over, GATHER_S)
            at, some, came = self._gathered()
            self._changed.notify_all()
        if not some:
            self._taken = 0
            return Block(b"", None, came)
        missing = 0
        if at != self._taken:
            cut = -at % self._unit
            missing = (at + cut) // self._unit - self._taken // self._unit
            at, some = at + cut, some[cut:]
            self.skipped += missing
        self._taken = at + len(some)
        return Block(some, missing, came)

    def _gathered(self) -> tuple[int, bytes, float]:
        """Take what waits first, with what goes on behind it."""
        at, first, came = self._waiting.popleft()
        pieces, size = [first], len(first)
        while first and size < GATHER and self._waiting and self._waiting[0][:2] != (0, b""):
            if self._waiting[0][0] != at + size:
                break
            pieces.append(self._waiting.popleft()[1])
            size += len(pieces[-1])
        self._waiting_bytes -= size
        return at, b"".join(pieces), came

    def _take(self) -> None:
        try:
            for some in self._source.blocks():
                if self._over:
                    return
                self._put(some)
        except Exception as error:  # an end that is none must not pass for one
            self._error = error
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()
            with contextlib.suppress(OSError):
                self._source.close()

    def _put(self, some: bytes | int | None) -> None:
        with self._changed:
            now = time.monotonic()
            if some is None:
                self._came = 0
                self._waiting.append((0, b"", now))
            elif isinstance(some, int):
                self._came += some
            elif some:
                if self._source.patient:
                    self._changed.wait_for(lambda: self._waiting_bytes < self._bound or self._over)
                elif self._waiting_bytes + len(some) > self._bound:
                    breaks = [one for one in self._waiting if not one[1]]
                    self._waiting.clear()
                    self._waiting.extend(breaks[-1:])
                    self._waiting_bytes = 0
                self._waiting.append((self._came, some, now))
                self._waiting_bytes += len(some)
                self._came += len(some)
            self._changed.notify_all()
