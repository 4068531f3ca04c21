"""What a register file says: blocks of registers, their fields, and where they lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pcitrace.errors import ConfigurationError

__all__ = ["Block", "Field", "Register"]

_LAST = 2**64 - 1
_DWORD = 4


@dataclass(frozen=True)
class Field:
    """Bits of a register: the lowest one, how many, and values that have names."""

    name: str
    bit: int
    width: int = 1
    values: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Register:
    """A register: bytes from the start of its block, its size (None: up to the next one, at most 4), its fields."""

    name: str
    offset: int
    size: int | None = None
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Block:
    """Registers that lie together, and where.

    Attributes
    ----------
    name : str
    registers : tuple of Register
    bar : int or None
        The base address register that places them.
    base : int or None
        Where they are, if no base address register does.
    space : str
        ``memory`` or ``io``.
    vendor_id : int or None
    device_ids : tuple of int
        Whose they are, where that is known.
    """

    name: str
    registers: tuple[Register, ...]
    bar: int | None = None
    base: int | None = None
    space: str = "memory"
    vendor_id: int | None = None
    device_ids: tuple[int, ...] = ()

    def sized(self, path: Path) -> Block:
        """Return the block with the size of every register, in order; ConfigurationError where two overlap."""
        ordered = sorted(self.registers, key=lambda one: one.offset)
        sized = []
        for register, behind in zip(ordered, [*ordered[1:], None], strict=True):
            room = behind.offset - register.offset if behind is not None else _DWORD
            size = register.size or min(room, _DWORD)
            if (behind is not None and size > room) or size == 0:
                other = behind.name if behind is not None else register.name
                raise ConfigurationError(
                    f"{path}: {self.name}: the registers {register.name} and {other} overlap at 0x{register.offset:x}",
                    path,
                )
            sized.append(replace(register, size=size))
        return replace(self, registers=tuple(sized))

    def as_tuples(self) -> list[tuple[Any, ...]]:
        """The registers as the kernel takes them."""
        return [
            (one.offset, one.size, one.name, [(f.name, f.bit, f.width, list(f.values)) for f in one.fields])
            for one in self.registers
        ]
