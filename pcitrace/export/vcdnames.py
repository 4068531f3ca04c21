"""What things are called in a VCD, and so in the save file of GTKWave beside it."""

from __future__ import annotations

import re

__all__ = ["TEXTS", "ranged", "reference", "text_scope"]

TEXTS = ("transaction", "data", "burst", "frame", "problem")
"""The texts of a bus, in the order of :class:`pcitrace.export.annotations.Kind`."""


def reference(name: str) -> str:
    """A channel's name as a VCD may have it: without blanks."""
    return re.sub(r"\s", "_", name) or "_"


def ranged(name: str, width: int) -> str:
    """A channel's name with the range of its bits, if it has several."""
    return reference(name) if width == 1 or name.endswith("]") else f"{reference(name)}[{width - 1}:0]"


def text_scope(bus: str) -> str:
    """The scope with the texts of a bus: no bus of the lines has this name."""
    return f"{reference(bus)}_decoded"
