"""A watch from its first sample to its end: intake, watcher, trigger, put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pcitrace.errors import CaptureFormatError, DecodeError
from pcitrace.live.frames import Bench
from pcitrace.live.intake import Intake, Source
from pcitrace.live.recent import Recent
from pcitrace.live.sources import Command, GrowingFile, GrowingSession, Pipe, recorded
from pcitrace.live.until import Trigger
from pcitrace.live.vcd import GrowingVcd
from pcitrace.live.watcher import COUNTED, Status, Watcher
from pcitrace.streaming import stream
from pcitrace.wiring import WiringSource, resolve_wiring

__all__ = ["Samples", "open_source", "watch"]

TURN_S = 0.05
WINDOW_US = 10_000.0
"""Windows of the clock accounting, of which the last seconds are made."""


WHOLE = (".gz", ".fst", ".ghw", ".csv", ".dsl")
"""Ends of names of captures that can be read when they are complete."""


@dataclass
class Samples:
    """What the samples are.

    Attributes
    ----------
    channels : sequence of str
        From bit 0 on.
    rate_hz, clock_mhz : float or None
    unit_size : int or None
    wiring : WiringSource or None
    bus : str or None
    """

    channels: Sequence[str]
    rate_hz: float | None = None
    clock_mhz: float | None = None
    unit_size: int | None = None
    wiring: WiringSource | None = None
    bus: str | None = None


def open_source(place: str, samples: Samples, idle_s: float | None) -> tuple[Source, Samples]:
    """Open a pipe, a file of raw samples, or a session or VCD that is being written, which says what its samples are.

    Raises
    ------
    DecodeError
        It is not said which channels raw samples have.
    CaptureFormatError
        It is a file of another kind.
    """
    path = recorded(Path(place))
    if path.is_dir():
        found = (*path.glob("*.sr"), *path.glob("captures/*.sr"))  # the latter are pcicap's
        sessions = sorted(found, key=lambda one: one.stat().st_mtime)
        if not sessions:
            raise DecodeError(f"{path}: no capture (.sr) is recorded in this folder")
        path = sessions[-1]
    if path.is_file() and path.suffix == ".sr":
        session = GrowingSession(path, idle_s)
        head = session.head()
        rate_hz = samples.rate_hz or head.rate_hz
        return session, replace(samples, channels=head.channels, rate_hz=rate_hz, unit_size=head.unit_size)
    if path.is_file() and path.suffix == ".vcd":
        changes = GrowingVcd(path, idle_s, samples.rate_hz, samples.wiring)
        # Its wiring is in the names by now.
        return changes, Samples(changes.channels, changes.rate_hz, None, changes.unit_size, None, samples.bus)
    if path.is_file() and path.name.endswith(WHOLE):
        raise CaptureFormatError(
            f"{path}: cannot be followed while it grows (raw samples, a VCD and pcicap's .sr can): open it when it is "
            "complete",
            path,
        )
    if not samples.channels:
        raise DecodeError(f"{place}: raw samples need --channels A,B,.. and --rate HZ or --clock-mhz MHZ")
    return (GrowingFile(path, idle_s) if path.is_file() else Pipe(place)), samples


def command(line: str, repeat: bool) -> Source:
    """Return a program as a source."""
    return Command(line, repeat)


def watcher(
    samples: Samples, *, rules: bool = True, keep_us: float = 0.0, seconds: float = 5.0, trigger: bool = False
) -> Watcher:
    """Return what decodes and counts such samples, and keeps the last of them; for a trigger all of each row."""
    names = [name or f"D{bit}" for bit, name in enumerate(samples.channels)]
    resolved = resolve_wiring([(name, 1) for name in names], samples.wiring, samples.clock_mhz)
    clock_mhz, rate_hz = resolved.clock_mhz, samples.rate_hz or resolved.rate_hz
    live = stream(
        names,
        rate_hz,
        wiring=samples.wiring,
        clock_mhz=samples.clock_mhz,
        unit_size=samples.unit_size,
        bus=samples.bus,
        window_us=WINDOW_US,
        rules=rules,
        columns=None if trigger else COUNTED,
    )
    per_second = clock_mhz * 1e6 if clock_mhz else rate_hz
    assert per_second is not None
    specs = [resolved.bus(name).spec() for name in live.buses]
    kept = int(keep_us * per_second / 1e6) + 1
    recent = Recent(names, live.unit_size, per_second, specs, state=clock_mhz is not None, bound=kept)
    return Watcher(live, recent, seconds)


def watch(
    intake: Intake,
    watched: Watcher,
    *,
    every_s: float = 0.5,
    trigger: Trigger | None = None,
    bench: Bench | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Status]:
    """Yield what is known, every so often and at the end.

    Parameters
    ----------
    intake : Intake
    watched : Watcher
    every_s : float
    trigger : Trigger, optional
        Ends the watch, when what is to be kept after it is there.
    bench : Bench, optional
        Two hosts, whose frames are followed.
    stop : callable, optional
        Asked whether to end.

    Raises
    ------
    DecodeError
        No samples came, or they cannot be decoded.
    PciTraceError, OSError
        The source broke.
    """
    intake.start()
    told = time.monotonic()
    try:
        while not stop() and not (trigger is not None and trigger.over(watched.recent.time_us)):
            for found in _turn(intake, watched):
                if trigger is not None:
                    trigger.see(found)
            if time.monotonic() - told >= every_s:
                told = time.monotonic()
                yield watched.status(bench)
    except EOFError:
        pass
    except CaptureFormatError:
        if not stop():  # Ctrl-C ends the program, too, that gives the samples
            raise
    finally:
        intake.close()
    if not watched.recent.time_us:
        raise DecodeError("no samples came")
    found = watched.finish()
    if trigger is not None:
        trigger.see(found)
    yield watched.status(bench)


def _turn(intake: Intake, watched: Watcher) -> Iterator[Any]:
    """Take what has come next."""
    block = intake.next(TURN_S)
    if block is None:
        return
    if block.missing is None or block.missing:
        yield watched.gap(block.missing)
    if block.samples:
        yield watched.feed(block.samples, block.came)
