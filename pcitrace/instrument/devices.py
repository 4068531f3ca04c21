"""What the configuration accesses of a bus show: the devices on it, their base address registers, who they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pcitrace.instrument.configspace import (
    CAPABILITIES,
    CARDBUS,
    CLASSES,
    CONFIG_READ,
    CONFIG_WRITE,
    IDENTITY,
    MASKS,
    WINDOWS,
    Place,
    bars_of,
    register_name,
)
from pcitrace.instrument.pciids import class_name, device_name, vendor_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from pcitrace.run import Bus

__all__ = ["HEADER_TYPE", "Bar", "ConfigAccess", "ConfigurationSpace", "Device", "access_of", "accesses", "of_bus"]

_ONES = 0xFFFFFFFF
HEADER_TYPE = 0x0E
"""Offset of its byte."""

_COMMAND, _REVISION, _HEADER, _SUBSYSTEM, _CAPABILITIES, _INTERRUPT = 0x04, 0x08, 0x0C, 0x2C, 0x34, 0x3C
_CARDBUS_CAPABILITIES = 0x14
_ROM = 6
_IO_SPACE = 1 << 16
# Bits that software sets and a read gives back: command; cache line size and latency timer; interrupt line.
_SETTABLE = {_COMMAND: 0xFFFF, _HEADER: 0xFFFF, _INTERRUPT: 0xFF}


class ConfigAccess(NamedTuple):
    """One dword that a configuration access moved.

    Attributes
    ----------
    transaction : int
    time_us : float
        Its data phase.
    write : bool
    place : Place
    offset : int
        Byte offset of the dword.
    data : int
    mask : int
        Bits whose byte lanes were enabled.
    select : int
        AD[31:11] of a type 0 access, which carries IDSEL; 0 for type 1.
    """

    transaction: int
    time_us: float
    write: bool
    place: Place
    offset: int
    data: int
    mask: int
    select: int


@dataclass(frozen=True)
class Bar:
    """One base address register.

    Attributes
    ----------
    index : int
        0 to 5; 6 for the expansion ROM.
    base : int or None
        Where it was placed; None if that was not seen.
    bytes : int or None
        From the sizing sequence (all ones written, then read: PCI 2.3, 6.2.5.1); None where none was seen.
    kind : str or None
        ``memory``, ``io`` or ``rom``; None where the register was written only, with what may be a place of either.
    bits : int or None
        Width of a memory address, 32 or 64; None where the register was never read.
    prefetchable : bool or None
        None where the register was never read.
    transaction : int
        Transaction that placed or showed it.
    """

    index: int
    base: int | None
    bytes: int | None
    kind: str | None
    bits: int | None
    prefetchable: bool | None
    transaction: int

    @property
    def name(self) -> str:
        """``BAR0`` to ``BAR5``, or ``ROM``."""
        return "ROM" if self.index == _ROM else f"BAR{self.index}"


@dataclass
class _Register:
    """One dword of configuration space, as far as accesses showed it; `*_known` are masks of bits."""

    read: int = 0
    read_known: int = 0
    written: int = 0
    written_known: int = 0
    # As last read, or written since.
    left: int = 0
    # A base address register: what it read while all ones stood in it, and what it held otherwise.
    sizing: bool = False
    size_read: int | None = None
    base: int | None = None
    base_transaction: int = 0
    type_read: int | None = None


@dataclass
class Device:
    """One function of a device, as its configuration accesses show it; what was not read is None.

    Attributes
    ----------
    place : Place
    short : str or None
        By its class and numbered (``eth0``); None where the class was not read or has no short name.
    selects : int
        AD[31:11] as far as they were high in all its type 0 accesses.
    history : list of ConfigAccess
        Accesses to command and status.
    """

    place: Place
    short: str | None = None
    selects: int = 0x1FFFFF
    history: list[ConfigAccess] = field(default_factory=list)
    _command: tuple[int, int] = (0, 0)
    _registers: dict[int, _Register] = field(default_factory=dict)

    @property
    def bdf(self) -> str | None:
        """Bus, device and function; None if not exactly one AD line was high as IDSEL."""
        return None if self.place.bus is None and self.selects.bit_count() != 1 else self.place.bdf()

    @property
    def where(self) -> str:
        """Where it is: ``00:09.0``, or ``AD23+AD25.0`` where several lines were high as IDSEL."""
        return self.bdf or f"{'+'.join(self.idsel)}.{self.place.function}"

    @property
    def name(self) -> str:
        """What it is called: ``eth0``, else where it is."""
        return self.short or self.where

    @property
    def idsel(self) -> list[str]:
        """The AD lines that were high as IDSEL in all its type 0 accesses."""
        lines = [] if self.place.bus is not None else range(21)
        return [f"AD{n + 11}" for n in lines if self.selects >> n & 1]

    @property
    def is_there(self) -> bool:
        """Whether somebody answered, as far as accesses show: where the vendor ID reads ffff nobody does."""
        return self.vendor_id != 0xFFFF

    @property
    def vendor_id(self) -> int | None:
        """Vendor ID."""
        return self._field(0x00, 0, 16)

    @property
    def device_id(self) -> int | None:
        """Device ID."""
        return self._field(0x00, 16, 16)

    @property
    def class_code(self) -> int | None:
        """Base class, subclass and interface: 24 bits."""
        return self._field(_REVISION, 8, 24)

    @property
    def revision(self) -> int | None:
        """Revision ID."""
        return self._field(_REVISION, 0, 8)

    @property
    def header_type(self) -> int | None:
        """0 for a device, 1 for a PCI-to-PCI bridge, 2 for CardBus."""
        return self._field(_HEADER, 16, 7)

    @property
    def subsystem(self) -> tuple[int | None, int | None]:
        """Vendor and device ID of the subsystem."""
        return self._field(_SUBSYSTEM, 0, 16), self._field(_SUBSYSTEM, 16, 16)

    @property
    def command(self) -> int | None:
        """The command register, as last read or written."""
        value, known = self._command
        return value & 0xFFFF if known & 0xFFFF == 0xFFFF else None

    @property
    def status(self) -> int | None:
        """The status register as last read."""
        return self._field(_COMMAND, 16, 16)

    @property
    def interrupt_pin(self) -> str | None:
        """``INTA#`` to ``INTD#``; ``none`` where the device says that it has none."""
        pin = self._field(_INTERRUPT, 8, 8)
        names = ("none", "INTA#", "INTB#", "INTC#", "INTD#")
        return None if pin is None else names[pin] if pin < len(names) else f"reserved ({pin})"

    @property
    def bars(self) -> list[Bar]:
        """The base address registers that are there, as far as accesses show."""
        offsets = {offset: index for offset, index in bars_of(self.header_type).items() if offset in self._registers}
        bars, upper = [], None
        for offset, index in offsets.items():
            if offset == upper:
                continue
            bar = self._bar(offset, index)
            if bar is not None:
                bars.append(bar)
                upper = offset + 4 if bar.bits == 64 else None
        return bars

    @property
    def capabilities(self) -> list[str]:
        """Names of the capabilities in the linked list, as far as it was read."""
        found: list[str] = []
        pointer = self._field(_CARDBUS_CAPABILITIES if self.header_type == CARDBUS else _CAPABILITIES, 0, 8)
        seen: set[int] = set()
        while pointer and pointer >= 0x40 and pointer not in seen:
            seen.add(pointer)
            at = pointer & 0xFC
            number = self._field(at, 0, 8)
            if number is None:
                break
            found.append(CAPABILITIES.get(number, f"capability 0x{number:02x}"))
            pointer = self._field(at, 8, 8)
        return found

    def bytes(self) -> dict[int, int]:
        """The bytes of configuration space that were read, by offset, as the accesses left them.

        What software sets and did not read again is as it was written, and so is a command that was never read; a base
        address register holds its place, also where its size was read last.
        """
        placed = self._placed()
        command = self._command[1] & 0xFFFF
        return {
            at + lane: placed.get(at, register.left) >> 8 * lane & 0xFF
            for at, register in self._registers.items()
            for lane in range(4)
            if (register.read_known | (command if at == _COMMAND else 0)) >> 8 * lane & 0xFF
        }

    def _placed(self) -> dict[int, int]:
        """What the base address registers hold, by offset."""
        offsets = {index: offset for offset, index in bars_of(self.header_type).items()}
        held = {}
        for bar in self.bars:
            register, base = self._registers[offsets[bar.index]], bar.base or 0
            flags = (register.base or 0) & 1 if bar.index == _ROM else register.type_read or 0
            held[offsets[bar.index]] = base & _ONES | flags
            if bar.bits == 64:
                held[offsets[bar.index] + 4] = base >> 32
        return held

    def see(self, access: ConfigAccess) -> bool:
        """Take note of an access; return whether it may have changed its name, or where its windows are."""
        register = self._registers.setdefault(access.offset, _Register())
        before = self._telling(register, access.offset)
        if access.place.bus is None:
            self.selects &= access.select
        if access.offset == _COMMAND:
            self.history.append(access)
            value, known = self._command
            self._command = (value & ~access.mask | access.data & access.mask, known | access.mask)
        if access.write:
            register.written = register.written & ~access.mask | access.data & access.mask
            register.written_known |= access.mask
            settable = access.mask & _SETTABLE.get(access.offset, 0)
        else:
            settable = access.mask
            register.read = register.read & ~access.mask | access.data & access.mask
            register.read_known |= access.mask
        register.left = register.left & ~settable | access.data & settable
        index = bars_of(self.header_type).get(access.offset)
        if index is not None:
            self._see_bar(register, access, 0x7FF if index == _ROM else 0xF)
        return before != self._telling(register, access.offset)

    def _telling(self, register: _Register, offset: int) -> tuple[object, ...]:
        """What a register says of the name, and of windows."""
        identity = (register.read, register.read_known) if offset in IDENTITY else None
        window = (register.base, register.base_transaction, register.size_read, register.type_read)
        return self.selects, identity, window

    def _see_bar(self, register: _Register, access: ConfigAccess, low: int) -> None:
        """All ones written ask for the size; what is read then says it, and is not where the window is."""
        if access.write:
            if register.written_known == _ONES:
                register.sizing = register.written | low == _ONES
                if not register.sizing:
                    register.base, register.base_transaction = register.written, access.transaction
        elif access.mask == _ONES and register.sizing and register.size_read in (None, access.data):
            register.type_read, register.size_read = access.data & 0xF, access.data
        # All ones here are what nobody drives: a register never holds them. Another size than before was a reset.
        elif access.mask == _ONES and access.data != _ONES:
            register.type_read = access.data & 0xF
            if register.base is None or (register.base ^ access.data) & ~low:
                register.base, register.base_transaction = access.data, access.transaction

    def _bar(self, offset: int, index: int) -> Bar | None:
        register = self._registers[offset]
        if register.size_read == 0 or (register.size_read is None and not register.base and not register.type_read):
            return None  # not implemented, as far as accesses tell
        shown = register.type_read if register.type_read is not None else register.base or 0
        kind: str | None
        if index == _ROM:
            kind, flags = "rom", 0x7FF
        elif shown & 1:
            kind, flags = "io", 0x3
        else:
            told = register.type_read is not None or shown >= _IO_SPACE
            kind, flags = "memory" if told else None, 0xF
        bits = prefetchable = None
        if kind == "memory" and register.type_read is not None:
            bits = 64 if register.type_read & 0x6 == 0x4 else 32
            prefetchable = bool(register.type_read & 0x8)
        base = None if register.base is None else register.base & ~flags
        mask = None if register.size_read is None else register.size_read & ~flags
        if bits == 64:
            upper = self._registers.get(offset + 4, _Register())
            high = upper.base if upper.base is not None else 0
            base = None if base is None else base | high << 32
            if mask == 0:
                mask = None if upper.size_read is None else upper.size_read << 32
        if kind is None and shown & flags:
            base = None
        size = mask & -mask if mask else None
        return Bar(index, base or None, size, kind, bits, prefetchable, register.base_transaction)

    def _field(self, offset: int, shift: int, width: int) -> int | None:
        """Bits of a register as last read; None where one of them was not."""
        register = self._registers.get(offset, _Register())
        mask = ((1 << width) - 1) << shift
        return (register.read & mask) >> shift if register.read_known & mask == mask else None

    def as_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        vendor, device = self.vendor_id, self.device_id
        return {
            "bdf": self.bdf,
            "name": self.name,
            "idsel": self.idsel,
            "vendor_id": vendor,
            "device_id": device,
            "vendor": vendor_name(vendor),
            "device": device_name(vendor, device),
            "class": self.class_code,
            "class_name": class_name(self.class_code),
            "revision": self.revision,
            "header_type": self.header_type,
            "bars": [
                {
                    "index": bar.index,
                    "base": bar.base,
                    "bytes": bar.bytes,
                    "kind": bar.kind,
                    "bits": bar.bits,
                    "prefetchable": bar.prefetchable,
                }
                for bar in self.bars
            ],
            "interrupt_pin": self.interrupt_pin,
            "command": self.command,
            "status": self.status,
            "capabilities": self.capabilities,
            "history": [
                {
                    "time_us": one.time_us,
                    "transaction": one.transaction,
                    "access": "write" if one.write else "read",
                    "command": one.data & 0xFFFF if one.mask & 0xFFFF == 0xFFFF else None,
                    "status": one.data >> 16 if one.mask >> 16 == 0xFFFF else None,
                }
                for one in self.history
            ],
        }


class ConfigurationSpace:
    """The devices of one bus, learned from its configuration accesses as they come."""

    def __init__(self) -> None:
        self._devices: dict[Place, Device] = {}
        self._numbers: dict[str, int] = {}

    def see(self, seen: Iterable[ConfigAccess]) -> bool:
        """Take note of accesses, in order of time; return whether one may have changed a name, or where windows are."""
        changed = False
        for access in seen:
            device = self._devices.get(access.place)
            if device is None:
                device = self._devices[access.place] = Device(access.place)
            changed = device.see(access) or changed
            if device.short is None and (code := device.class_code) is not None:
                stem = CLASSES.get(code >> 8)
                if stem is not None:
                    number = self._numbers.get(stem, 0)
                    self._numbers[stem] = number + 1
                    device.short = f"{stem}{number}"
        return changed

    @property
    def devices(self) -> list[Device]:
        """The devices that answered, in order of their places; where the vendor ID reads ffff there is none."""
        there = (one for one in self._devices.values() if one.is_there)
        return sorted(there, key=lambda one: (one.place.bus or 0, one.place.device, one.place.function))

    def device(self, place: Place) -> Device | None:
        """The device at a place, if it was accessed."""
        return self._devices.get(place)

    def register(self, address: int) -> str | None:
        """Name what a configuration address leads to: ``00:09.0 BAR0``; None for a reserved address."""
        place = Place.of(address)
        if place is None:
            return None
        device = self._devices.get(place)
        where = place.bdf() if device is None else device.where
        return f"{where} {register_name(address & 0xFC, device.header_type if device else None)}"


def accesses(
    transactions: pa.Table | pa.RecordBatch, data_phases: pa.Table | pa.RecordBatch, of_names: bool = False
) -> Iterator[ConfigAccess]:
    """The dwords that configuration accesses moved, in order of time.

    Parameters
    ----------
    transactions, data_phases : pyarrow.Table
        Of one bus, with the columns `transaction`, `command`, `address`, and those of ``schema.DATA_PHASES``.
    of_names : bool
        Only those that may change what a device or a window is called: not those that say of a dword what the last one
        said already, and of the dwords that say nothing of it the first.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    command = transactions["command"]
    is_config = pc.is_in(command, value_set=pa.array([CONFIG_READ, CONFIG_WRITE], command.type))
    wanted = pc.and_(is_config, pc.is_valid(transactions["address"]))
    config = transactions.select(["transaction", "command", "address"]).filter(wanted)
    number, code, address = (np.asarray(config[name]) for name in ("transaction", "command", "address"))
    columns = ["transaction", "time_us", "data", "byte_enables"]
    phases = data_phases.select(columns).filter(pc.is_in(data_phases["transaction"], value_set=pa.array(number)))
    # Which of its transaction's data phases each is, those whose data is not known among them.
    of = np.asarray(phases["transaction"])
    nth = np.arange(len(of)) - np.searchsorted(of, of)
    known = np.asarray(pc.and_(pc.is_valid(phases["data"]), pc.is_valid(phases["byte_enables"])))
    phases, of, nth = phases.filter(pa.array(known)), of[known], nth[known]
    row = np.searchsorted(number, of)
    if of_names:
        dword = address[row] + np.uint64(4) * nth.astype(np.uint64)
        new = _news(dword, code[row], np.asarray(phases["data"]), np.asarray(phases["byte_enables"]))
        phases, row, nth = phases.filter(pa.array(new)), row[new], nth[new]
    told = (phases[name].to_pylist() for name in ("time_us", "data", "byte_enables"))
    for at, n, time_us, data, enables in zip(row.tolist(), nth.tolist(), *told, strict=True):
        access = access_of(int(number[at]), time_us, int(code[at]), int(address[at]), n, data, enables)
        if access is not None:
            yield access


def _news(address: npt.NDArray[np.uint64], *said: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether an access to a dword may tell a name: the first to its address, or one unlike the last."""
    import numpy as np

    new = np.zeros(len(address), dtype=bool)
    unique, first, nth = np.unique(address, return_index=True, return_inverse=True)
    new[first] = True
    # Of a device that is selected by other lines than before it is the same dword.
    numbers: dict[tuple[Place | None, int], int] = {}
    dwords = [numbers.setdefault((Place.of(one), one & 0xFC), len(numbers)) for one in unique.tolist()]
    tells = np.array([one & 0xFC in WINDOWS | IDENTITY for one in unique.tolist()], dtype=bool)
    dword = np.array(dwords, dtype=np.int64)[nth]
    order = np.argsort(dword, kind="stable")
    here, before = order[1:], order[:-1]
    other = np.any([one[here] != one[before] for one in (dword, *said)], axis=0)
    new[here[tells[nth[here]] & other]] = True
    return new


def access_of(
    transaction: int, time_us: float, command: int, address: int, nth: int, data: int, enables: int
) -> ConfigAccess | None:
    """What the `nth` data phase of a configuration access moved; None for a reserved address."""
    place = Place.of(address)
    if place is None or address & 0xFC > 0xFC - 4 * nth:
        return None
    select = 0 if address & 3 else address >> 11 & 0x1FFFFF
    offset = (address & 0xFC) + 4 * nth
    return ConfigAccess(
        transaction, time_us, command == CONFIG_WRITE, place, offset, data & _ONES, MASKS[enables & 0xF], select
    )


def of_bus(bus: Bus) -> ConfigurationSpace:
    """The devices that the configuration accesses of a bus show.

    Parameters
    ----------
    bus : pcitrace.Bus

    Returns
    -------
    ConfigurationSpace
        Without devices where AD or C/BE# was not captured, or nobody accessed configuration space.

    Notes
    -----
    PCI Local Bus Specification 2.3, section 3.2.2.3 (addresses) and chapter 6 (registers; sizing: 6.2.5.1).
    """
    space = ConfigurationSpace()
    space.see(accesses(bus.arrow("transactions"), bus.arrow("data_phases")))
    return space
