"""Which channel is which line of which bus, as far as their names tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pcitrace.wiring.linenames import LineName, normal_active_low, parse_name
from pcitrace.wiring.lines import BusWiring, Channel, Line, line_order

__all__ = ["SHARED_LINES", "SINGLE_BUS", "Guess", "guess"]

SINGLE_BUS = "PCI"
"""Name of a bus whose channels have neither scope nor prefix."""

SHARED_LINES = ("CLK", "RST#")
"""Lines that several buses may share."""

_MAKE_A_BUS = frozenset(("FRAME#", "IRDY#", "TRDY#"))


@dataclass(frozen=True, slots=True)
class Guess:
    """What the names of the channels say: buses, and loose lines that only become one by what the user states."""

    buses: dict[str, BusWiring]
    loose: dict[str, BusWiring]


def guess(channels: Sequence[Channel]) -> Guess:
    """Tell buses and loose lines by the names of the channels."""
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
