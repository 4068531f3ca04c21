"""NIC profiles: what is known about a card, kept apart from the code that uses it.

A profile is a TOML file; ``docs/nic-profiles.md`` explains its keys, ``nic-profile.schema.json`` checks them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pcitrace import configuration
from pcitrace.errors import ConfigurationError

__all__ = ["Descriptor", "Profile", "Register", "Window", "built_in", "load"]

SCHEMA = "nic-profile.schema.json"


@dataclass(frozen=True, slots=True)
class Window:
    """A range of addresses in which the card answers."""

    name: str
    size_bytes: int
    bar: int | None = None
    base: int | None = None
    space: str = "memory"


@dataclass(frozen=True, slots=True)
class Register:
    """A register of a window, or an array of them."""

    name: str
    window: str
    offset: int
    count: int = 1
    stride: int = 4
    role: str | None = None
    mask: int | None = None
    value: str | None = None
    unit_bytes: int = 1

    def label(self, index: int) -> str:
        """Return the name of one register of the array."""
        return self.name.replace("{}", str(index)) if "{}" in self.name or self.count == 1 else f"{self.name}[{index}]"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """How a descriptor in host memory looks."""

    size_bytes: int
    fetch_max: int = 1
    address_offset: int | None = None


@dataclass(frozen=True)
class Profile:
    """One card. Whatever the file does not say is None: not known.

    Attributes
    ----------
    name, title : str
    sources : tuple of str
    device : dict or None
        ``vendor_id`` and ``device_ids``.
    send, receive : str or None
        ``store_and_forward`` or ``cut_through``.
    burst_limit_bytes : int or None
        Longest DMA transaction.
    receive_fcs : bool or None
        Whether the frame check sequence is written to memory.
    descriptors : str or None
        Where they are: ``host_memory``, ``card``, ``none``.
    status_bytes : tuple of int
        Sizes of status writes; empty: not known.
    send_descriptor, receive_descriptor : Descriptor or None
    windows : tuple of Window
    registers : tuple of Register
    """

    name: str
    title: str
    sources: tuple[str, ...]
    device: dict[str, Any] | None = None
    send: str | None = None
    receive: str | None = None
    burst_limit_bytes: int | None = None
    receive_fcs: bool | None = None
    descriptors: str | None = None
    status_bytes: tuple[int, ...] = ()
    send_descriptor: Descriptor | None = None
    receive_descriptor: Descriptor | None = None
    windows: tuple[Window, ...] = field(default=())
    registers: tuple[Register, ...] = field(default=())

    def registers_only(self) -> Profile:
        """Return the profile without what it says of DMA and descriptors: windows and registers are left."""
        return Profile(self.name, self.title, self.sources, self.device, windows=self.windows, registers=self.registers)

    def __repr__(self) -> str:
        return f"<Profile {self.name}: {self.title}, {len(self.registers)} registers>"


@cache
def built_in() -> tuple[str, ...]:
    """Return the names of the profiles that come with pcitrace."""
    folder = resources.files("pcitrace").joinpath("nics")
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load(name: str | Path, folder: Path | None = None) -> Profile:
    """Read a NIC profile.

    Parameters
    ----------
    name : str or pathlib.Path
        Name of a profile that comes with pcitrace, or the path of a ``.toml`` file.
    folder : pathlib.Path, optional
        What a relative path is relative to; default: the working directory.

    Returns
    -------
    Profile

    Raises
    ------
    ConfigurationError
        There is no such profile, or it is not valid; the message names the key.
    """
    text = str(name)
    if text in built_in():
        return _built_in(text)
    path = (folder or Path()) / text
    if not path.is_file():
        raise ConfigurationError(
            f"no NIC profile {text!r}: neither the file {path} nor one of {', '.join(built_in())}", path
        )
    return _read(path)


@cache
def _built_in(name: str) -> Profile:
    with resources.as_file(resources.files("pcitrace").joinpath("nics", f"{name}.toml")) as path:
        return _read(path)


def _read(path: Path) -> Profile:
    content = configuration.load(path, SCHEMA)
    windows = tuple(Window(**window) for window in content.get("windows", ()))
    names = [window.name for window in windows]
    registers = []
    for i, entry in enumerate(content.get("registers", ())):
        key = f"registers[{i}]"
        if not windows:
            raise ConfigurationError(f"{path}: {key}: a register needs a window; add [[windows]]", path, key)
        register = Register(**{"window": names[0], **entry})
        if register.window not in names:
            text = f"{register.window!r} is none of the windows {', '.join(names)}"
            raise ConfigurationError(f"{path}: {key}.window: {text}", path, f"{key}.window")
        size = windows[names.index(register.window)].size_bytes
        if register.offset + (register.count - 1) * register.stride >= size:
            text = f"{register.name} ends outside its window of {size} bytes"
            raise ConfigurationError(f"{path}: {key}.offset: {text}", path, f"{key}.offset")
        registers.append(register)
    dma = content.get("dma", {})
    descriptors = content.get("descriptors", {})
    return Profile(
        name=content["name"],
        title=content["title"],
        sources=tuple(content["sources"]),
        device=content.get("device"),
        send=dma.get("send"),
        receive=dma.get("receive"),
        burst_limit_bytes=dma.get("burst_limit_bytes"),
        receive_fcs=dma.get("receive_fcs"),
        descriptors=descriptors.get("place"),
        status_bytes=tuple(descriptors.get("status_bytes", ())),
        send_descriptor=Descriptor(**descriptors["send"]) if "send" in descriptors else None,
        receive_descriptor=Descriptor(**descriptors["receive"]) if "receive" in descriptors else None,
        windows=windows,
        registers=tuple(registers),
    )
