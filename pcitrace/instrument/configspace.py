"""Facts about configuration space: where an address leads, what each register is called, which capabilities there are.

Ref: PCI Local Bus Specification 2.3, section 3.2.2.3 (configuration addresses) and chapter 6 (the header; appendix H:
the capabilities); PCI-to-PCI Bridge Architecture Specification 1.1, chapter 3 (header type 1); PC Card Standard,
PCI-to-CardBus bridges (header type 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "BRIDGE",
    "CAPABILITIES",
    "CARDBUS",
    "CLASSES",
    "COMMAND_BITS",
    "STATUS_BITS",
    "Place",
    "bars_of",
    "register_name",
]

BRIDGE = 1
"""Header type of a PCI-to-PCI bridge."""

CARDBUS = 2
"""Header type of a PCI-to-CardBus bridge."""

_FIRST_IDSEL = 11
# AD[31:11] may carry IDSEL, and host bridges of the time drove AD[11 + n] for device n (Intel 440BX datasheet, 3.2.2).

_COMMON = {
    0x00: "vendor/device ID",
    0x04: "command/status",
    0x08: "revision/class",
    0x0C: "cache line size/latency timer/header type/BIST",
    0x34: "capabilities pointer",
    0x3C: "interrupt line/pin",
}
_DEVICE = {
    **_COMMON,
    **{0x10 + 4 * n: f"BAR{n}" for n in range(6)},
    0x28: "CardBus CIS pointer",
    0x2C: "subsystem ID",
    0x30: "expansion ROM",
}
_BRIDGE = {
    **_COMMON,
    0x10: "BAR0",
    0x14: "BAR1",
    0x18: "bus numbers",
    0x1C: "I/O window/secondary status",
    0x20: "memory window",
    0x24: "prefetchable window",
    0x28: "prefetchable base, upper half",
    0x2C: "prefetchable limit, upper half",
    0x30: "I/O window, upper halves",
    0x38: "expansion ROM",
}
_CARDBUS = {
    **{offset: name for offset, name in _COMMON.items() if offset != 0x34},
    0x10: "BAR0",
    0x14: "capabilities pointer/secondary status",
    0x18: "bus numbers",
    **{0x1C + 8 * n: f"memory base {n}" for n in range(2)},
    **{0x20 + 8 * n: f"memory limit {n}" for n in range(2)},
    **{0x2C + 8 * n: f"I/O base {n}" for n in range(2)},
    **{0x30 + 8 * n: f"I/O limit {n}" for n in range(2)},
    0x40: "subsystem ID",
    0x44: "legacy mode base",
}
_REGISTERS = {BRIDGE: _BRIDGE, CARDBUS: _CARDBUS}

CAPABILITIES = {
    0x01: "power management",
    0x02: "AGP",
    0x03: "vital product data",
    0x04: "slot identification",
    0x05: "message signalled interrupts",
    0x06: "CompactPCI hot swap",
    0x07: "PCI-X",
    0x08: "HyperTransport",
    0x09: "vendor specific",
    0x0A: "debug port",
    0x0B: "CompactPCI resource control",
    0x0C: "hot plug",
    0x0D: "bridge subsystem ID",
    0x0E: "AGP 8x",
    0x10: "PCI Express",
    0x11: "MSI-X",
}
"""Capability names by ID."""

COMMAND_BITS = (
    "I/O space", "memory space", "bus master", "special cycles", "memory write and invalidate", "VGA palette snoop",
    "parity error response", "stepping", "SERR# enable", "fast back-to-back enable", "interrupt disable",
)  # fmt: skip
"""Bits of the command register from bit 0 on."""

STATUS_BITS = {
    3: "interrupt", 4: "capabilities", 5: "66 MHz capable", 7: "fast back-to-back capable",
    8: "master data parity error", 11: "signalled target abort", 12: "received target abort",
    13: "received master abort", 14: "signalled system error", 15: "detected parity error",
}  # fmt: skip
"""Bits of the status register that say something by themselves."""

CLASSES = {
    0x0101: "ide", 0x0100: "scsi", 0x0106: "sata", 0x0200: "eth", 0x0300: "vga", 0x0400: "video", 0x0401: "audio",
    0x0600: "host", 0x0601: "isa", 0x0604: "bridge", 0x0607: "cardbus", 0x0700: "serial", 0x0701: "parallel",
    0x0C00: "firewire", 0x0C03: "usb", 0x0C05: "smbus",
}  # fmt: skip
"""Short names for devices, by base class and subclass; numbered as they are met: `eth0`."""


CONFIG_READ, CONFIG_WRITE = 0xA, 0xB
"""The commands."""

IDENTITY = frozenset({0x00, 0x08, 0x0C})
"""Dwords that say who is there: vendor and device, class, header type."""

WINDOWS = frozenset({*range(0x10, 0x28, 4), 0x30, 0x38})
"""Dwords that may place a window: base address registers and expansion ROM of every header type."""

DWORDS = 64
"""Of the 256 bytes that one function has (PCI Local Bus 3.0, 6.1): an access goes no further."""

MASKS = tuple(sum(0xFF << 8 * lane for lane in range(4) if not enables >> lane & 1) for enables in range(16))
"""Bits of a dword whose byte lanes C/BE# enables, by C/BE#."""


class Place(NamedTuple):
    """Where a configuration access leads.

    Attributes
    ----------
    bus : int or None
        Bus number; None for type 0, which is of the bus that was captured.
    device : int
        Type 1: the device number. Type 0: the highest AD line that is high as IDSEL, less 11.
    function : int
    """

    bus: int | None
    device: int
    function: int

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, address: int) -> Place | None:
        """Place that an address means; None for a reserved type, or if no line carries IDSEL."""
        function = address >> 8 & 7
        if address & 3 == 1:
            return cls(address >> 16 & 0xFF, address >> 11 & 31, function)
        select = address >> _FIRST_IDSEL & 0x1FFFFF
        if address & 3 or not select:
            return None
        return cls(None, select.bit_length() - 1, function)

    def bdf(self) -> str:
        """Name as ``lspci`` writes it: bus, device, function."""
        return f"{self.bus or 0:02x}:{self.device:02x}.{self.function}"


_BARS = {BRIDGE: {0x10: 0, 0x14: 1, 0x38: 6}, CARDBUS: {0x10: 0}}
_BARS_OF_DEVICE = {**{0x10 + 4 * n: n for n in range(6)}, 0x30: 6}


def bars_of(header_type: int | None) -> Mapping[int, int]:
    """Offsets of the base address registers and the expansion ROM (index 6) -> index."""
    return _BARS_OF_DEVICE if header_type is None else _BARS.get(header_type, _BARS_OF_DEVICE)


def register_name(offset: int, header_type: int | None = None) -> str:
    """Name of the configuration register at a byte offset: ``BAR0``, or ``config+0x40`` beyond the header."""
    dword = offset & 0xFC
    names = _DEVICE if header_type is None else _REGISTERS.get(header_type, _DEVICE)
    return names.get(dword, f"config+0x{dword:02x}")
