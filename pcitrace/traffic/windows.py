"""Where a NIC's registers are on a bus: windows placed by the trace's own configuration writes, or by the profile."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Integers
from pcitrace.facts import WRITES
from pcitrace.profiles import Profile, Register, load
from pcitrace.traffic.phases import Phases

__all__ = ["Placed", "Windows", "place"]

CONFIG_READ, CONFIG_WRITE = 0xA, 0xB
IO_COMMANDS = (0x2, 0x3)
MEMORY_COMMANDS = (0x6, 0x7, 0xC, 0xE, 0xF)
ALL_ONES = 0xFFFFFFFF
BAR_0, BAR_5 = 0x10, 0x24

LARGEST_UNNAMED = 1 << 20
"""Bytes; size taken for a window that the profile does not name, if its base allows it."""

STAYS = 3
"""Writes of the same value, and of no other, that no tail of a ring gets: each that releases frames moves it. A
judgement: two may be a driver that rings again."""


@dataclass(frozen=True)
class Placed:
    """One window with its base address and where that came from."""

    name: str
    base: int
    size_bytes: int
    space: str
    why: str


@dataclass(frozen=True)
class Windows:
    """The windows of one NIC on one bus.

    Attributes
    ----------
    profile : Profile
        The one that is used.
    placed : tuple of Placed
    findings : tuple of str
        What does not agree, in words.
    """

    profile: Profile
    placed: tuple[Placed, ...]
    findings: tuple[str, ...] = ()
    _registers: dict[int, tuple[Register, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bases = {window.name: window.base for window in self.placed}
        for register in self.profile.registers:
            if register.window in bases:
                for index in range(register.count):
                    offset = register.offset + index * register.stride
                    self._registers[bases[register.window] + offset] = (register, index)

    def tried(self, bus: BusTable, phases: Phases) -> Windows:
        """Return these, or none where the traffic of the bus shows that the profile is of another card.

        Its doorbell would be written the tail of a ring, and what is written there never moves. It was an argument of
        the one there is (`cardbench`, other-master 35): all accesses that rang were those just before.
        """
        for address, (register, _) in self._registers.items():
            if register.role == "send_doorbell" and register.value == "tail":
                rows = np.flatnonzero((bus.address == address) & np.isin(bus.command, WRITES) & (bus.data_phases > 0))
                value = phases.first(bus.transaction[rows])
                if len(rows) >= STAYS and value[0] >= 0 and (value == value[0]).all():
                    told = f"0x{value[0]:x} is written to the tail {register.name}, {len(rows)} times"
                    finding = f"profile {self.profile.name} is of another card: {told}"
                    return Windows(load("generic"), (), (*self.findings, finding))
        return self

    def contain(self, bus: BusTable) -> Booleans | None:
        """Return which transactions address one of the windows; None if none has a known place."""
        if not self.placed or not bus.has_address:
            return None
        inside = np.zeros(len(bus), dtype=bool)
        io = np.isin(bus.command, IO_COMMANDS)
        memory = np.isin(bus.command, MEMORY_COMMANDS) | (bus.command < 0)
        for window in self.placed:
            hit = (bus.address >= window.base) & (bus.address < window.base + window.size_bytes)
            inside |= hit & (io if window.space == "io" else memory)
        return inside

    def register(self, address: int, byte_enables: int = 0) -> tuple[Register, int] | None:
        """Return the register at an address, and its index in its array.

        The first enabled byte decides where several registers share a dword; `byte_enables` is active low.
        """
        lane = next((lane for lane in range(4) if not byte_enables >> lane & 1), 0)
        for candidate in (address + lane, address):
            if candidate in self._registers:
                return self._registers[candidate]
        return None

    def label(self, address: int, byte_enables: int = 0) -> str | None:
        """Return the name of what is at an address: a register, or `window+0xoffset`; None outside the windows."""
        found = self.register(address, byte_enables)
        if found is not None:
            return found[0].label(found[1])
        for window in self.placed:
            if window.base <= address < window.base + window.size_bytes:
                return f"{window.name}+0x{address - window.base:x}"
        return None


def place(profile: Profile, bus: BusTable, data: Integers) -> Windows:
    """Place the windows of a profile on a bus.

    Parameters
    ----------
    profile : Profile
    bus : BusTable
        Configuration accesses of the bus.
    data : array of int
        First data of each, -1 where unknown.

    Returns
    -------
    Windows
        With what was found to disagree. A base written in the trace is taken before one that the profile states. A
        profile of another card is not used at all, but as if none were known: its doorbell may be where this one
        acknowledges interrupts, and a check sequence in its memory made frames here those before them.
    """
    findings: list[str] = []
    device = _device(profile, bus, data, findings)
    if findings and device is not None:  # the one device there is, and it is another card
        profile = load("generic")
    bars = _bars(bus, data, device)
    placed = []
    for window in profile.windows:
        if window.bar is not None and window.bar in bars:
            base, why = bars[window.bar], "base address register written in the trace"
            if window.base is not None and window.base != base:
                told = f"0x{base:x}, profile {profile.name} says 0x{window.base:x}"
                findings.append(f"window {window.name}: the trace places it at {told}")
        elif window.base is not None:
            base, why = window.base, f"profile {profile.name}"
        else:
            continue
        placed.append(Placed(window.name, base, window.size_bytes, window.space, why))
    named = {window.bar for window in profile.windows}
    for bar, base in bars.items():
        if bar not in named:
            # A window is aligned to its size, so it is no larger than the lowest bit of its base.
            size = min(base & -base, LARGEST_UNNAMED)
            placed.append(Placed(f"BAR{bar}", base, size, "memory", "base address register written in the trace"))
    return Windows(profile, tuple(placed), tuple(findings))


def _device(profile: Profile, bus: BusTable, data: Integers, findings: list[str]) -> int | None:
    """Return AD[31:11] of configuration accesses to the NIC (its IDSEL); None if the trace does not tell."""
    config = np.isin(bus.command, (CONFIG_READ, CONFIG_WRITE)) & (bus.address & 3 == 0) & (bus.data_phases > 0)
    devices = np.unique(bus.address[config] >> 11)
    identity = config & (bus.command == CONFIG_READ) & (bus.address & 0xFC == 0) & (data >= 0)
    seen = {int(bus.address[row]) >> 11: int(data[row]) for row in np.flatnonzero(identity)}
    if profile.device is not None:
        for select, value in seen.items():
            if value & 0xFFFF == profile.device["vendor_id"] and value >> 16 in profile.device["device_ids"]:
                return select
        present = sorted(
            f"{value & 0xFFFF:04x}:{value >> 16:04x}" for value in seen.values() if value & ALL_ONES != ALL_ONES
        )
        if present:
            findings.append(f"profile {profile.name} is of another card: the trace shows {', '.join(present)}")
    return int(devices[0]) if len(devices) == 1 else None


def _bars(bus: BusTable, data: Integers, device: int | None) -> dict[int, int]:
    """Return the base addresses last written, by number of the base address register; sizing writes do not count."""
    if device is None:
        return {}
    number = bus.address & 0xFC
    written = (bus.command == CONFIG_WRITE) & (bus.address >> 11 == device) & (bus.address & 0x700 == 0)
    written &= (number >= BAR_0) & (number <= BAR_5) & (data >= 0) & (data != ALL_ONES)
    bars = {}
    for row in np.flatnonzero(written):
        value = int(data[row])
        base = value & ~0x3 if value & 1 else value & ~0xF
        if base:
            bars[(int(number[row]) - BAR_0) // 4] = base
    return bars
