"""What the user states about the wiring, put over what was guessed from the channels' names.

It comes as a TOML file or a mapping. Lines that are not named in it stay as guessed::

    clock_mhz = 33.0                # state mode: every sample is one clock
    rate_hz = 100e6                 # timing mode: the sampling rate, where the file has none or a wrong one

    [bus.A]                         # or, if there is only one bus, the lines at the top, without [bus.A]
    "CLK" = "D0"                    # line = channel
    "AD" = "P4[31:0]"               # a whole vector channel; or a list of channels, AD0 first
    "GNT_NIC#" = "P5[2]"            # a bit of a vector channel
    "FRAME#" = { channel = "D1", active_low = false }   # a probe that inverts
    "PERR#" = false                 # not captured, whatever the names say
    width = 64                      # the bus is 64 bits wide although AD32-AD63 were not captured
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcitrace.configuration import read_toml
from pcitrace.errors import WiringError
from pcitrace.wiring.guess import SHARED_LINES, SINGLE_BUS, Guess
from pcitrace.wiring.linenames import LineName, describe_lines, normal_active_low, parse_name
from pcitrace.wiring.lines import BusWiring, Channel, Line, Wiring, line_order, listed, nearest

__all__ = ["Overrides"]

_VECTORS = {
    "AD": ("AD", ""),
    "CBE#": ("CBE", "#"),
    "TXDATA": ("TXDATA", ""),
    "GNT#": ("GNT", "#"),
    "REQ#": ("REQ", "#"),
}


class Overrides:
    """What the user states, read against the channels of a capture."""

    def __init__(self, channels: tuple[Channel, ...], given: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        self.channels = channels
        self.numbers = {channel.name: number for number, channel in enumerate(channels)}
        self.where, self.given = _load(given)

    def apply(self, guessed: Guess) -> Wiring:
        """The guessed buses with what is stated put over them."""
        top = dict(self.given)
        rates = {key: self._positive(key, top.pop(key)) for key in ("rate_hz", "clock_mhz") if key in top}
        stated = top.pop("bus", {})
        if not isinstance(stated, Mapping) or not all(isinstance(bus, Mapping) for bus in stated.values()):
            raise WiringError(f"{self.where}: bus must be tables [bus.NAME] of lines")
        if top and stated:
            raise WiringError(f"{self.where}: {next(iter(top))} belongs into one of [bus.{'], [bus.'.join(stated)}]")
        if top:
            stated = {self._only(guessed.buses): top}
        buses = dict(guessed.buses)
        known = {**guessed.loose, **guessed.buses}
        for name, entries in stated.items():
            buses[name] = self._bus(name, entries, known.get(name, BusWiring(name, {})))
        return Wiring(self.channels, self._without_taken(buses), **rates)

    def _only(self, guessed: Mapping[str, BusWiring]) -> str:
        pci = [name for name, bus in guessed.items() if bus.pci]
        if len(pci) > 1:
            raise WiringError(
                f"{self.where}: there are several buses ({', '.join(pci)}); say which with [bus.{pci[0]}]",
                available=pci,
            )
        return pci[0] if pci else SINGLE_BUS

    def _bus(self, name: str, entries: Mapping[str, Any], bus: BusWiring) -> BusWiring:
        where = f"{self.where}, bus {name}"
        lines, ambiguous, width = dict(bus.lines), dict(bus.ambiguous), bus.width
        given: dict[str, Line] = {}
        said: dict[str, str] = {}
        for key, value in entries.items():
            if key == "width":
                if value not in (32, 64):
                    raise WiringError(f"{where}: width = {value!r}; a PCI bus is 32 or 64 bits wide")
                width = value
                continue
            for line_name, entry in self._lines_of(where, key, value):
                other = said.setdefault(line_name, key)
                if other != key:
                    raise WiringError(f"{where}: both {other} and {key} say what {line_name} is; keep one of them")
                ambiguous.pop(line_name, None)
                lines.pop(line_name, None)
                if entry is not False:
                    given[line_name] = self._line(f"{where}: {key}", line_name, entry, bus.lines.get(line_name))
        taken: dict[tuple[int, int], str] = {}
        for line_name, line in given.items():
            other = taken.setdefault((line.channel, line.bit), line_name)
            if other != line_name:
                channel = self.channels[line.channel].name
                raise WiringError(f"{where}: both {other} and {line_name} claim channel {channel}; give each its own")
        lines = {key: line for key, line in lines.items() if (line.channel, line.bit) not in taken} | given
        return BusWiring(name, dict(sorted(lines.items(), key=lambda entry: line_order(entry[0]))), width, ambiguous)

    def _lines_of(self, where: str, key: str, value: Any) -> list[tuple[str, Any]]:
        """Single lines and what is stated of each; `AD` and the like stand for all of them."""
        stem = "CBE#" if re.fullmatch(r"C[/_]?BE#?", key, re.IGNORECASE) else key.upper()
        stem = f"{stem}#" if f"{stem}#" in _VECTORS else stem
        if stem in _VECTORS and (isinstance(value, list) or self._vector(value) is not None):
            base, suffix = _VECTORS[stem]
            values = value if isinstance(value, list) else self._vector(value)
            return [
                (line.line, entry)
                for number, entry in enumerate(values or ())
                for line in self._named(where, f"{base}{number}{suffix}")
            ]
        if stem in ("AD", "CBE#", "TXDATA") and value is False:
            base, suffix = _VECTORS[stem]
            return [(f"{base}{number}{suffix}", False) for number in range(64 if base == "AD" else 8)]
        return [(line.line, value) for line in self._named(where, key)]

    def _named(self, where: str, key: str) -> list[LineName]:
        """The line that a key names."""
        found = [line for line in parse_name(key) if not line.group]
        if not found:
            raise WiringError(f"{where}: {key} is no line; lines are {describe_lines()}", missing=(key,))
        return found

    def _vector(self, value: Any) -> list[dict[str, Any]] | None:
        """The bits of a whole vector channel from the least significant, or None if `value` is not one."""
        entry = value if isinstance(value, Mapping) else {"channel": value}
        name = entry.get("channel")
        if not isinstance(name, str) or name not in self.numbers or "bit" in entry:
            return None
        width = self.channels[self.numbers[name]].width
        return [{**entry, "bit": bit} for bit in range(width)] if width > 1 else None

    def _line(self, where: str, line: str, value: Any, guessed: Line | None) -> Line:
        entry = dict(value) if isinstance(value, Mapping) else {"channel": value}
        unknown = set(entry) - {"channel", "bit", "active_low"}
        if unknown:
            raise WiringError(f"{where}: unknown key {min(unknown)}; there are channel, bit, active_low")
        active_low = entry.get("active_low", normal_active_low(line))
        if not isinstance(active_low, bool):
            raise WiringError(f"{where}: active_low = {active_low!r}; it is true or false")
        if "channel" not in entry:
            if guessed is None:
                raise WiringError(
                    f"{where}: no channel is stated, and none has this name{self._found()}", missing=(line,)
                )
            return replace(guessed, active_low=active_low, source="given")
        number, bit = self._channel(where, entry["channel"])
        return Line(number, self._bit(where, number, entry.get("bit", bit)), active_low, "given")

    def _channel(self, where: str, name: Any) -> tuple[int, int | None]:
        """Number of a channel, and its bit if the name says one."""
        if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(self.channels):
            return name, None
        if name in self.numbers:
            return self.numbers[name], None
        indexed = re.fullmatch(r"(.+)\[(\d+)\]", name) if isinstance(name, str) else None
        if indexed:
            stem, index = indexed[1], int(indexed[2])
            for number, channel in enumerate(self.channels):
                ranged = re.fullmatch(re.escape(stem) + r"\s*(?:\[(\d+):(\d+)\])?", channel.name)
                if ranged and channel.width > 1:
                    left, right = (int(ranged[1]), int(ranged[2])) if ranged[1] else (channel.width - 1, 0)
                    return number, index - right if left >= right else right - index
        raise WiringError(
            f"{where} = {name!r}: no such channel{nearest(str(name), self.numbers)}{self._found()}",
            missing=(str(name),),
            available=self.numbers,
        )

    def _bit(self, where: str, number: int, bit: Any) -> int:
        channel = self.channels[number]
        if bit is None and channel.width == 1:
            return 0
        if not isinstance(bit, int) or isinstance(bit, bool) or not 0 <= bit < channel.width:
            raise WiringError(
                f"{where}: channel {channel.name} has {channel.width} bits, 0 to {channel.width - 1}; "
                f"{'say which' if bit is None else f'there is no bit {bit!r}'}"
            )
        return bit

    def _without_taken(self, buses: dict[str, BusWiring]) -> dict[str, BusWiring]:
        """Guesses give way to what is stated; a channel stated for two buses is an error, but for CLK and RST#."""
        owner: dict[tuple[int, int], tuple[str, str]] = {}
        for name, bus in buses.items():
            for line_name, line in bus.lines.items():
                if line.source == "given" and line_name not in SHARED_LINES:
                    other = owner.setdefault((line.channel, line.bit), (name, line_name))
                    if other != (name, line_name):
                        raise WiringError(
                            f"{self.where}: both {other[1]} of bus {other[0]} and {line_name} of bus {name} claim "
                            f"channel {self.channels[line.channel].name}; give each its own"
                        )
        kept = {}
        for name, bus in buses.items():
            lines = {
                key: line
                for key, line in bus.lines.items()
                if line.source == "given" or (line.channel, line.bit) not in owner
            }
            if lines or bus.ambiguous:
                kept[name] = replace(bus, lines=lines)
        return kept

    def _positive(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise WiringError(f"{self.where}: {key} = {value!r}; it must be a positive number")
        return float(value)

    def _found(self) -> str:
        return f"; found {listed(tuple(self.numbers))}"


def _load(given: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """What is stated, and what to call its place in messages."""
    if isinstance(given, Mapping):
        return "wiring", given
    path = Path(given)
    return str(path), read_toml(path, lambda text: WiringError(f"{path}: {text}"))
