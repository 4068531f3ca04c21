"""Which channel of a capture is which line of which bus: guessed from the names, overridden by what the user states.

How buses are told apart: the scopes and the prefix of a name (``top.pc1.FRAME``, ``A_FRAME#``) make its group, and a
group with any of FRAME# IRDY# TRDY# is a bus. A bus is called after the last part of its group (``A``, ``pc1``), or
``PCI`` where the names have neither scope nor prefix; ends that several buses share (``pc1.pci``, ``pc2.pci``) are left
out. What the user states over that is read by ``pcitrace.wiring.overrides``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pcitrace.errors import WiringError
from pcitrace.wiring.linenames import MINIMUM_LINES, LineName, normal_active_low, parse_name

__all__ = ["BusWiring", "Channel", "Line", "Wiring", "WiringSource", "resolve_wiring"]

WiringSource = str | os.PathLike[str] | Mapping[str, Any]
"""What ``wiring=`` takes: the path of a TOML file, or a mapping of the same form."""

SINGLE_BUS = "PCI"
_MAKE_A_BUS = frozenset(("FRAME#", "IRDY#", "TRDY#"))
SHARED_LINES = ("CLK", "RST#")
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
            raise WiringError(
                f"no PCI bus: none of the channels {listed(names)} is named {' '.join(MINIMUM_LINES)} or alike; "
                "state which is which with a wiring",
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


def resolve_wiring(
    channels: Iterable[tuple[str, int]], given: WiringSource | None = None, clock_mhz: float | None = None
) -> Wiring:
    """Find the buses of a capture.

    Parameters
    ----------
    channels : iterable of (name, width)
        As the capture has them.
    given : path, mapping or None
        What the user states, over what is guessed from the names; ``pcitrace.wiring.overrides`` describes the form.
    clock_mhz : float or None
        State mode: the frequency of the clock that took the samples, over what `given` says of it.

    Returns
    -------
    Wiring
        Complete or not: what is missing is an error only when a bus is asked for.

    Raises
    ------
    WiringError
        If `given` names a line or a channel that does not exist, or one channel for two lines.

    Examples
    --------
    >>> names = ["CLK", "A_FRAME#", "A_IRDY#", "A_TRDY#", "B_FRAME#", "B_IRDY#", "B_TRDY#"]
    >>> wiring = resolve_wiring([(name, 1) for name in names])
    >>> list(wiring.buses), wiring.buses["B"].lines["CLK"].source
    (['A', 'B'], 'shared')
    """
    known = tuple(Channel(name, width) for name, width in channels)
    guessed = _guess(known)
    if given is None:
        wiring = Wiring(known, guessed.buses)
    else:
        from pcitrace.wiring.overrides import Overrides

        wiring = Overrides(known, given).apply(guessed)
    clock_mhz = clock_mhz or wiring.clock_mhz
    if clock_mhz is None:
        return wiring
    buses = {name: replace(bus, state_mode=True) for name, bus in wiring.buses.items()}
    return replace(wiring, buses=buses, clock_mhz=clock_mhz)


@dataclass(frozen=True, slots=True)
class Guess:
    """What the names of the channels say: buses, and loose lines that only become one by what the user states."""

    buses: dict[str, BusWiring]
    loose: dict[str, BusWiring]


def _guess(channels: Sequence[Channel]) -> Guess:
    claims: dict[tuple[str, ...], dict[str, list[tuple[Channel, Line]]]] = {}
    parsed = [(number, item) for number, channel in enumerate(channels) for item in parse_name(*channel)]
    bus_groups = {item.group for _, item in parsed if item.line in _MAKE_A_BUS}
    for number, item in parsed:
        group, name = _adopted(item, bus_groups)
        line = Line(number, item.bit, item.active_low, "name")
        claims.setdefault(group, {}).setdefault(name, []).append((channels[number], line))
    groups = [group for group, lines in claims.items() if group in bus_groups or "TXEN" in lines]
    named = _names(groups)
    buses = {
        named[group]: _claimed(named[group], claims[group], _shared(group, claims, bus_groups)) for group in groups
    }
    loose = {(group[-1] if group else SINGLE_BUS): lines for group, lines in claims.items() if group not in groups}
    return Guess(buses, {name: _claimed(name, lines, {}) for name, lines in loose.items() if name not in buses})


def _adopted(item: LineName, bus_groups: set[tuple[str, ...]]) -> tuple[tuple[str, ...], str]:
    """Group and line; `A_NIC_GNT#` is the line GNT_NIC# of bus A where there is no bus A_NIC."""
    if item.group in bus_groups or not item.group or item.line not in ("GNT#", "REQ#", "IDSEL"):
        return item.group, item.line
    *scope, prefix = item.group
    host, _, agent = prefix.rpartition("_")
    group = (*scope, host) if host else tuple(scope)
    base = item.line.rstrip("#")
    return (group, f"{base}_{agent}{item.line[len(base) :]}") if group in bus_groups else (item.group, item.line)


def _shared(
    group: tuple[str, ...],
    claims: Mapping[tuple[str, ...], Mapping[str, list[tuple[Channel, Line]]]],
    bus_groups: set[tuple[str, ...]],
) -> dict[str, list[tuple[Channel, Line]]]:
    """CLK and RST# for a bus that has none of its own: of the nearest scope around it, else the only free one."""
    found = {}
    if group not in bus_groups:
        return {}
    for name in SHARED_LINES:
        free = {other: lines[name] for other, lines in claims.items() if other not in bus_groups and name in lines}
        around = [other for other in free if other == group[: len(other)]]
        if around:
            found[name] = free[max(around, key=len)]
        elif len(free) == 1:
            found[name] = next(iter(free.values()))
    return found


def _claimed(
    name: str,
    own: Mapping[str, list[tuple[Channel, Line]]],
    shared: Mapping[str, list[tuple[Channel, Line]]],
) -> BusWiring:
    """A bus of the lines that one channel claims; the others are ambiguous."""
    lines: dict[str, Line] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    for line_name, candidates in (*own.items(), *((key, value) for key, value in shared.items() if key not in own)):
        # CLK beside CLK_N is a differential pair, of which CLK is the line.
        plain = [claim for claim in candidates if claim[1].active_low == normal_active_low(line_name)] or candidates
        if len(plain) == 1:
            source = "name" if line_name in own else "shared"
            lines[line_name] = replace(plain[0][1], source=source)
        else:
            ambiguous[line_name] = tuple(channel.name for channel, _ in plain)
    return BusWiring(name, dict(sorted(lines.items(), key=lambda entry: line_order(entry[0]))), None, ambiguous)


def _names(groups: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A short name for each group: its last part that tells it from the others."""
    stems = {group: group for group in groups}
    if len(groups) > 1:
        while all(stems.values()) and len({stem[-1] for stem in stems.values()}) == 1:
            stems = {group: stem[:-1] for group, stem in stems.items()}
    last = {group: stem[-1] if stem else SINGLE_BUS for group, stem in stems.items()}
    unique = len(set(last.values())) == len(last)
    return last if unique else {group: ".".join(group) or SINGLE_BUS for group in groups}


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
