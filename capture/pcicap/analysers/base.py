"""The interface of an analyser: what a plan asks of it, what it was really set to, what came of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pcicap.samplewriter import SampleWriter


class TriggerBy(enum.Enum):
    """Who looks for the trigger."""

    SEARCH = "search"
    DEVICE = "device"


@dataclass(frozen=True)
class Trigger:
    """What to wait for: `condition` as `pcicap.trigger` reads it, and how many samples before it to keep."""

    condition: str
    pre_samples: int = 0
    by: TriggerBy = TriggerBy.SEARCH


@dataclass(frozen=True)
class Timeouts:
    """Bounds in seconds: arming to the first data, between two pieces of data, arming to the end."""

    first_data_s: float = 10.0
    idle_s: float = 5.0
    total_s: float = 120.0


@dataclass(frozen=True)
class AnalyserSpec:
    """What a plan asks of one analyser.

    Attributes
    ----------
    name : str
        Names the capture file.
    driver, conn : str
        libsigrok driver and ``conn=`` of the device; `conn` may be empty.
    options : mapping
        Further scan options of the driver.
    channels : mapping of str to str
        Channel of the device -> PCI line.
    rate_hz : int or None
        Sample rate; None in state mode.
    clock_mhz : float or None
        State mode: the analyser is clocked by this PCI clock.
    config : mapping
        Device options passed on as they are, e.g. ``external_clock = "on"``.
    samples : int or None
        Samples to keep; None records until the frames are through.
    margin_s : float
        How much longer, then.
    trigger : Trigger or None
        None records from the start.
    timeouts : Timeouts
        See there.
    """

    name: str
    driver: str
    conn: str
    channels: Mapping[str, str]
    rate_hz: int | None
    clock_mhz: float | None
    samples: int | None
    options: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    margin_s: float = 0.01
    trigger: Trigger | None = None
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True)
class Settings:
    """What the device was found to be and is really set to.

    Attributes
    ----------
    model : str
        As the driver calls it.
    bits : dict of int to str
        Bit of a sample -> PCI line.
    rate_hz : int or None
        Effective rate as read back; None in state mode.
    rate_read_back : bool
        False where the driver does not tell, and `rate_hz` is what was asked for.
    """

    model: str
    bits: dict[int, str]
    rate_hz: int | None
    rate_read_back: bool


@dataclass(frozen=True)
class Outcome:
    """How an acquisition ended.

    Attributes
    ----------
    samples : int
        Whole samples in the file.
    trigger_sample : int or None
        Sample at which the trigger was met; None without a trigger, or where it was not met.
    started_ns : int or None
        CLOCK_REALTIME when the analyser was armed.
    reason : str or None
        Why the capture is incomplete; None when it is whole.
    """

    samples: int
    trigger_sample: int | None
    started_ns: int | None
    reason: str | None


OpenWriter = Callable[[int], SampleWriter]
"""Opens the capture file once the bytes a sample are known."""


class Analyser(Protocol):
    """A logic analyser. Order: `configure`, `start`, `wait_armed`, (frames), `stop` or nothing, `wait`."""

    @property
    def spec(self) -> AnalyserSpec:
        """What was asked for."""

    @property
    def samples(self) -> int:
        """Samples that have arrived so far."""

    def configure(self) -> Settings:
        """Find the device, check that it can do what is asked, read its settings back."""

    def start(self, open_writer: OpenWriter) -> None:
        """Begin to acquire."""

    def wait_armed(self) -> None:
        """Return once the device acquires; raise `AnalyserError` if it does not."""

    def running(self) -> bool:
        """Whether it still acquires."""

    def stop(self) -> None:
        """Ask it to end now; what has arrived counts as the whole recording unless `AnalyserSpec.samples` is set."""

    def wait(self) -> Outcome:
        """Wait for the end, which the timeouts bound, and for the last sample to be written."""
