"""Signals as something that ends a recording in order: what has arrived is kept."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pcicap.errors import PcicapError


class InterruptionError(PcicapError):
    """Somebody wants the recording to end now."""


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Turn SIGINT, SIGTERM and SIGHUP into `InterruptionError`, raised where the recording looks for it.

    Yields
    ------
    callable
        Raises `InterruptionError` once a signal has come.
    """
    seen: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        seen.append(number)

    def check() -> None:
        if seen:
            raise InterruptionError(f"interrupted by {signal.Signals(seen[0]).name}")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, note) for number in numbers]
    try:
        yield check
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
