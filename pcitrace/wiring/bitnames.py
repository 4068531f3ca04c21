"""A name for every bit of the channels, where vectors are written bit after bit."""

from __future__ import annotations

import re

from pcitrace.wiring.linenames import normal_active_low
from pcitrace.wiring.lines import Channel, Wiring

__all__ = ["bit_names"]


def bit_names(wiring: Wiring, *, with_bus: bool = False) -> list[str]:
    """Return a name for every bit: those of channels of one bit as they are, those of vectors by the line they are.

    The bus is named where there are several, or always.
    """
    names: dict[tuple[int, int], str] = {}
    for bus in wiring.buses.values():
        prefix = f"{bus.name}_" if with_bus or len(wiring.buses) > 1 else ""
        for line, place in bus.lines.items():
            if place.active_low == normal_active_low(line) and (place.source != "shared" or not prefix):
                names.setdefault((place.channel, place.bit), prefix + line)
    return [
        names.get((number, bit), _bit_name(channel, bit))
        for number, channel in enumerate(wiring.channels)
        for bit in range(channel.width)
    ]


def _bit_name(channel: Channel, bit: int) -> str:
    """The name of one bit of a channel: of ``x[7:4]`` bit 0 is ``x[4]``."""
    if channel.width == 1:
        return channel.name
    stated = re.fullmatch(r"(.*?)\s*\[(\d+):(\d+)\]", channel.name)
    if stated is None:
        return f"{channel.name}[{bit}]"
    left, right = int(stated[2]), int(stated[3])
    return f"{stated[1]}[{right + bit if left >= right else right - bit}]"
