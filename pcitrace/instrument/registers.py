"""Registers by name: what NIC profiles and register files say, put over the windows of a bus.

A register file is TOML (``register-file.schema.json``; a NIC profile is one, too), CMSIS-SVD or SystemRDL. Addresses of
the latter two are those of the bus, unless the file is placed: ``card.svd@BAR1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcitrace import configuration, profiles
from pcitrace.errors import ConfigurationError
from pcitrace.instrument.blocks import Block, Field, Register

if TYPE_CHECKING:
    from pcitrace.instrument.names import Names, Window

__all__ = ["Block", "Field", "Register", "Registers"]

_LAST = 2**64 - 1
_DWORD = 4


class Registers:
    """What is known about registers."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = list(blocks)

    @classmethod
    def load(cls, profile: str | None, files: Sequence[str]) -> Registers:
        """Read a NIC profile and register files, each ``FILE``, ``FILE@BAR1`` or ``FILE@0xe8000000``.

        Raises
        ------
        ConfigurationError
            A file cannot be read, or two of its registers overlap.
        """
        blocks = _of_profile(profiles.load(profile)) if profile is not None else []
        for text in files:
            blocks += _placed(text)
        return cls(blocks)

    def fixed_windows(self) -> Iterator[tuple[Any, ...]]:
        """Blocks whose place is known by themselves, as windows of the kernel."""
        for block in self.blocks:
            if block.base is not None and block.registers:
                last = block.registers[-1]
                size = last.offset + (last.size or _DWORD)
                yield block.space == "io", block.base, size, True, block.name, 0, _LAST, block.as_tuples()

    def of_window(self, names: Names, window: Window) -> list[tuple[Any, ...]]:
        """The registers of a window, as the kernel takes them; of files that name the same bytes the last counts."""
        device = next((one for one in names.space.devices if one.name == window.device), None)
        ids = (device.vendor_id, device.device_id) if device is not None else (None, None)
        found: list[tuple[Any, ...]] = []
        taken: set[int] = set()
        for block in reversed(self.blocks):
            if block.bar is None or window.name != f"BAR{block.bar}" or window.space != block.space:
                continue
            stated = block.vendor_id is not None and None not in ids
            if stated and (ids[0] != block.vendor_id or ids[1] not in block.device_ids):
                continue
            free = [one for one in block.as_tuples() if taken.isdisjoint(range(one[0], one[0] + one[1]))]
            taken.update(*(range(one[0], one[0] + one[1]) for one in free))
            found += free
        return sorted(found, key=lambda one: int(one[0]))


def _of_profile(profile: profiles.Profile) -> list[Block]:
    device = profile.device or {}
    blocks = []
    for window in profile.windows:
        registers = tuple(
            Register(one.label(index), one.offset + index * one.stride)
            for one in profile.registers
            if one.window == window.name
            for index in range(one.count)
        )
        ids = (device.get("vendor_id"), tuple(device.get("device_ids", ())))
        block = Block(window.name, registers, window.bar, window.base, window.space, *ids)
        blocks.append(block.sized(Path(profile.name)))
    return blocks


def _placed(text: str) -> list[Block]:
    """The blocks of a register file, where its place is stated at that place."""
    found = re.fullmatch(r"(.+)@(?:BAR([0-5])|(0x[0-9a-fA-F]+))", text)
    path = Path(found[1] if found else text)
    if path.suffix == ".toml":
        blocks = _of_toml(path)
    else:
        from pcitrace.instrument import registerfiles

        blocks = registerfiles.read(path)
    if found is not None:
        if len({block.base for block in blocks}) > 1:
            low = min(block.base or 0 for block in blocks)
        else:
            low = blocks[0].base or 0 if blocks else 0
        blocks = [_moved(block, low, found) for block in blocks]
        blocks = [_together(blocks)] if found[2] else blocks
    return [block.sized(path) for block in blocks]


def _moved(block: Block, low: int, found: re.Match[str]) -> Block:
    """A block of a file whose lowest block begins at `low`, at the place that is stated."""
    offset = (block.base or 0) - low
    if found[3]:
        return replace(block, bar=None, base=int(found[3], 16) + offset)
    registers = tuple(replace(one, offset=one.offset + offset) for one in block.registers)
    return replace(block, bar=int(found[2]), base=None, registers=registers)


def _together(blocks: list[Block]) -> Block:
    """Several blocks behind one base address register as one."""
    if len(blocks) == 1:
        return blocks[0]
    named = (replace(one, name=f"{block.name}.{one.name}") for block in blocks for one in block.registers)
    return replace(blocks[0], registers=tuple(named))


def _of_toml(path: Path) -> list[Block]:
    content = configuration.load(path, "register-file.schema.json")
    windows = content["windows"]
    device = content.get("device", {})
    registers: dict[str, list[Register]] = {window["name"]: [] for window in windows}
    for entry in content["registers"]:
        window = entry.get("window", windows[0]["name"])
        if window not in registers:
            raise ConfigurationError(
                f"{path}: register {entry['name']}: {window!r} is none of the windows {', '.join(registers)}", path
            )
        fields = tuple(
            Field(
                field["name"],
                field["bit"],
                field.get("width", 1),
                tuple((value, name) for name, value in field.get("values", {}).items()),
            )
            for field in entry.get("fields", ())
        )
        array = profiles.Register(entry["name"], window, entry["offset"], entry.get("count", 1), entry.get("stride", 4))
        registers[window] += [
            Register(array.label(index), array.offset + index * array.stride, entry.get("size_bytes"), fields)
            for index in range(array.count)
        ]
    return [
        Block(
            window["name"],
            tuple(registers[window["name"]]),
            window.get("bar"),
            window.get("base"),
            window.get("space", "memory"),
            device.get("vendor_id"),
            tuple(device.get("device_ids", ())),
        )
        for window in windows
    ]
