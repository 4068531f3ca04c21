"""What a wiring is: channels, the lines found on them, the buses that they make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pcitrace.errors import WiringError
from pcitrace.wiring.linenames import MINIMUM_LINES

__all__ = ["BusWiring", "Channel", "Line", "Wiring", "line_order", "listed", "nearest"]

_WIRE = re.compile(r"TXEN|TXCLK|TXDATA\d")


class Channel(NamedTuple):
    """A channel of a capture: its name and its number of bits."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Line:
    """Where a line of a bus is found.

    Attributes
    ----------
    channel : int
        Number of the channel in the capture.
    bit : int
        Bit of a vector channel, 0 the least significant; 0 for a wire.
    active_low : bool
        Polarity at the probe.
    source : str
        ``name`` (guessed from the channel's name), ``shared`` (so guessed, and shared by several buses) or ``given``.
    """

    channel: int
    bit: int
    active_low: bool
    source: str


@dataclass(frozen=True, slots=True)
class BusWiring:
    """The lines of one bus, and of the wire behind its NIC.

    Attributes
    ----------
    name : str
        Of the bus.
    lines : mapping of str to Line
        By line name, as in ``pcitrace.wiring.linenames``.
    width : int or None
        32 or 64 if stated.
    ambiguous : mapping of str to tuple of str
        Lines for which several channels have the name; none is taken.
    state_mode : bool
        Whether the analyser was clocked by the bus, so that CLK is not needed.
    """

    name: str
    lines: Mapping[str, Line]
    width: int | None = None
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    state_mode: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of CLK FRAME# IRDY# TRDY# that were not found; in state mode every sample is a clock without CLK."""
        needed = MINIMUM_LINES[1:] if self.state_mode else MINIMUM_LINES
        return tuple(line for line in needed if line not in self.lines)

    @property
    def wire(self) -> dict[str, Line]:
        """The lines of the wire: TXEN, TXCLK, TXDATA0 ..."""
        return {name: line for name, line in self.lines.items() if _WIRE.fullmatch(name)}

    @property
    def pci(self) -> dict[str, Line]:
        """The lines of the bus, without those of the wire."""
        return {name: line for name, line in self.lines.items() if not _WIRE.fullmatch(name)}

    def require(self, channels: Sequence[Channel]) -> None:
        """Raise WiringError unless the bus can be decoded."""
        if self.ambiguous:
            line, names = next(iter(self.ambiguous.items()))
            raise WiringError(
                f"bus {self.name}: {line} may be any of the channels {', '.join(names)}; say which with a wiring "
                f'("{line}" = "{names[0]}")',
                available=names,
            )
        if self.missing:
            names = tuple(channel.name for channel in channels)
            raise WiringError(
                f"bus {self.name}: no channel for {' '.join(self.missing)}; found {listed(names)}. "
                "State the line with a wiring, or record it",
                missing=self.missing,
                available=names,
            )

    def spec(self) -> dict[str, Any]:
        """The bus as the kernel takes it."""
        lines = {name: (line.channel, line.bit, line.active_low) for name, line in self.pci.items()}
        return {"name": self.name, "width": self.width, "lines": lines}


@dataclass(frozen=True, slots=True)
class Wiring:
    """All buses of one capture.

    Attributes
    ----------
    channels : tuple of Channel
        As the capture has them.
    buses : mapping of str to BusWiring
        Every group of lines that belongs together, complete or not; a wire without a bus too.
    rate_hz, clock_mhz : float or None
        As stated.
    """

    channels: tuple[Channel, ...]
    buses: Mapping[str, BusWiring]
    rate_hz: float | None = None
    clock_mhz: float | None = None

    @property
    def complete(self) -> tuple[str, ...]:
        """Names of the buses that can be decoded."""
        return tuple(name for name, bus in self.buses.items() if not bus.missing and not bus.ambiguous)

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of the channels that belong to no line."""
        used = {line.channel for bus in self.buses.values() for line in bus.lines.values()}
        return tuple(channel.name for number, channel in enumerate(self.channels) if number not in used)

    def bus(self, name: str | None = None) -> BusWiring:
        """Return the bus called `name`, or the only one; WiringError if there is none such or it cannot be decoded."""
        names = tuple(channel.name for channel in self.channels)
        candidates = {key: bus for key, bus in self.buses.items() if bus.pci}
        if name is None and len(self.complete) == 1:
            name = self.complete[0]
        if name is None and len(candidates) == 1:
            name = next(iter(candidates))
        if name is not None and name in candidates:
            candidates[name].require(self.channels)
            return candidates[name]
        if not candidates:
            none = f"none of the channels {listed(names)} is" if names else "there is no channel, and so none"
            raise WiringError(
                f"no PCI bus: {none} named {' '.join(MINIMUM_LINES)} or alike; state which is which with a wiring",
                missing=MINIMUM_LINES,
                available=names,
            )
        if name is None:
            raise WiringError(f"several buses: {', '.join(candidates)}; name one", available=candidates)
        raise WiringError(
            f"no bus {name}; there are {', '.join(candidates)}{nearest(name, candidates)}",
            missing=(name,),
            available=candidates,
        )


def line_order(line: str) -> tuple[int, str, int]:
    """Clock and control lines first, then the vectors in order of their numbers."""
    control = ("CLK", "RST#", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#")
    if line in control:
        return control.index(line), "", 0
    match = re.fullmatch(r"(AD|CBE|TXDATA|GNT|REQ|IDSEL)(\d+)#?", line)
    return (len(control), match[1], int(match[2])) if match else (len(control), line, 0)


def nearest(name: str, available: Iterable[str]) -> str:
    """A hint at names that look like `name`, or nothing."""
    import difflib

    close = difflib.get_close_matches(name, list(available), n=3)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def listed(names: Sequence[str], limit: int = 24) -> str:
    """Names in a sentence, the first `limit` of them."""
    shown = ", ".join(names[:limit]) or "no channels"
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
