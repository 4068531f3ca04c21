"""Configuration space as text that ``lspci -vv -F FILE`` takes.

Ref: pciutils 3.9, lib/dump.c: a line ``00:09.0 text``, then lines ``00: xx xx ...`` of the bytes from an offset on,
then an empty line. A byte that was never read is left out; lspci shows it as ff, with two exceptions here. Of a header
type of ff it shows nothing more: without one it is 00, a device. Where fewer than 64 bytes are there it shows neither
command nor status, and every window as one of 32 bits: with a status the last of them is said to be ff.
"""

from __future__ import annotations

from collections.abc import Iterable

from pcitrace.instrument.devices import HEADER_TYPE, Device
from pcitrace.instrument.pciids import class_name

__all__ = ["dump"]

_STATUS = {0x06, 0x07}
_LAST = 0x3F
"""Of the header."""


def dump(devices: Iterable[Device]) -> str:
    """Write the bytes of configuration space that were read, as accesses left them; without those of unknown place."""
    return "\n".join(_device(device) for device in devices if device.bdf is not None)


def _device(device: Device) -> str:
    # Without a text after the place lspci shows nothing.
    lines = [f"{device.bdf} {class_name(device.class_code) or 'seen on the bus'}"]
    known = device.bytes()
    shown = {HEADER_TYPE: 0, **known}
    if known.keys() >= _STATUS and max(known) < _LAST:
        shown[_LAST] = 0xFF
    for offset, value in sorted(shown.items()):
        if offset % 16 == 0 or offset - 1 not in known:
            lines.append(f"{offset:02x}:")
        lines[-1] += f" {value:02x}"
    return "\n".join(lines) + "\n"
