"""Names of vendors, devices and classes, from the list of the PCI ID project.

``pci.ids.gz`` is version 2023.04.10 of https://pci-ids.ucw.cz, as Debian's package pci.ids 0.0~2023.04.11-1 has it.
Licence: BSD-3-Clause (or GPL-2 or later, at choice), copyright Martin Mares and Albert Pool; its head says so itself.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib import resources

__all__ = ["VERSION", "class_name", "device_name", "vendor_name"]

VERSION = "2023.04.10"
"""Of the list."""


@cache
def _names() -> tuple[dict[int, str], dict[tuple[int, int], str], dict[int, str], dict[tuple[int, int], str]]:
    """Vendors, devices, classes and subclasses by number."""
    vendors: dict[int, str] = {}
    devices: dict[tuple[int, int], str] = {}
    classes: dict[int, str] = {}
    subclasses: dict[tuple[int, int], str] = {}
    text = gzip.decompress((resources.files("pcitrace.instrument") / "pci.ids.gz").read_bytes()).decode("utf-8")
    number, names, below = 0, vendors, devices
    for line in text.splitlines():
        if not line or line.startswith(("#", "\t\t")):
            continue
        if line.startswith("\t"):
            code, _, name = line[1:].partition("  ")
            below[number, int(code, 16)] = name
            continue
        if line.startswith("C "):
            line, names, below = line[2:], classes, subclasses
        code, _, name = line.partition("  ")
        number = int(code, 16)
        names[number] = name
    return vendors, devices, classes, subclasses


def vendor_name(vendor_id: int | None) -> str | None:
    """Name of a vendor; None if the list does not have it."""
    return None if vendor_id is None else _names()[0].get(vendor_id)


def device_name(vendor_id: int | None, device_id: int | None) -> str | None:
    """Name of a device; None if the list does not have it."""
    return None if vendor_id is None or device_id is None else _names()[1].get((vendor_id, device_id))


def class_name(class_code: int | None) -> str | None:
    """Name of a class by its 24 bits: the subclass's, else the base class's; None if the list has neither."""
    if class_code is None:
        return None
    _, _, classes, subclasses = _names()
    base, sub = class_code >> 16, class_code >> 8 & 0xFF
    return subclasses.get((base, sub)) or classes.get(base)
