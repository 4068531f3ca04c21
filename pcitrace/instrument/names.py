"""Who is who on a bus: targets by the windows that configuration accesses placed, initiators by what they do.

Nothing is guessed: a target outside all windows has no name, and an initiator of whom nothing tells is called by its
GNT#.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pcitrace.columns import Booleans, Integers, integers, strings
from pcitrace.errors import WiringError
from pcitrace.instrument.configspace import IDENTITY, WINDOWS, Place
from pcitrace.instrument.devices import ConfigAccess, ConfigurationSpace, accesses

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["Names", "Window", "check_grants", "of_bus"]

_IO = (0x2, 0x3)
_MEMORY = (0x6, 0x7, 0xC, 0xE, 0xF)
_CONFIG = (0xA, 0xB)
_WRITES = (0x3, 0x7, 0xF)
# Interrupt acknowledge, special cycles and configuration: what only a host bridge gives.
_HOST = (0x0, 0x1, *_CONFIG)

_ALL = 1 << 64
"""Bytes that an address of 64 bits can name."""

_LARGEST_GUESSED = {"memory": 1 << 20, "io": 256}
"""Bytes; a window whose size was not read is taken to be no larger (PCI 2.3, 6.2.5.1: 256 bytes of I/O at most)."""

# A device's own initiator is the next one after writes to its window; so often at least, and in this share of them.
_FOLLOWS, _SHARE = 3, 0.9


@dataclass(frozen=True)
class Window:
    """Addresses that one base address register claims.

    Attributes
    ----------
    device : str
        Name of the device: ``eth0``.
    name : str
        ``BAR0`` to ``BAR5``, or ``ROM``.
    base, size : int
        In bytes; where the size was not read, what the base's alignment allows.
    size_known : bool
    space : str
        ``memory`` or ``io``.
    since : int
        Number of the transaction that placed it.
    until : int or None
        Number of the transaction that moved it elsewhere.
    """

    device: str
    name: str
    base: int
    size: int
    size_known: bool
    space: str
    since: int
    until: int | None = None


class Names:
    """Names of targets and initiators of one bus, learned as its transactions come.

    Parameters
    ----------
    grants : mapping of str to str, optional
        GNT# line -> name, as the user states it.

    Attributes
    ----------
    space : ConfigurationSpace
        The devices.
    windows : list of Window
        All windows there were, in the order in which they were placed.
    """

    def __init__(self, grants: Mapping[str, str] | None = None) -> None:
        self.space = ConfigurationSpace()
        self.windows: list[Window] = []
        # Those that are nowhere else yet: base, space and the transaction that placed them -> index.
        self._current: dict[tuple[int, str, int], int] = {}
        self._claimed: dict[Place, dict[tuple[Place, str], Window]] = {}
        # Devices whose windows or names may be others than `_claimed` says.
        self._changed: set[Place] = set()
        self._stated = dict(grants or {})
        self._host: dict[str, int] = {}
        # By device and GNT#: how often it was the next one after a write, and how often it accessed the device itself.
        self._follows: dict[tuple[str, str], int] = {}
        self._accesses: dict[tuple[str, str], int] = {}
        # What the last access said of each dword that tells a name; of others that there was one.
        self._said: dict[tuple[Place, int, int | None], tuple[bool, int, int, int] | None] = {}
        # Writes to windows that nobody has followed yet.
        self._open: pa.Table | None = None

    def learn(self, transactions: pa.Table | pa.RecordBatch, data_phases: pa.Table | pa.RecordBatch) -> None:
        """Learn from the next transactions and their data phases."""
        self.place(transactions, data_phases)
        self.watch(transactions)

    def place(
        self, transactions: pa.Table | pa.RecordBatch, data_phases: pa.Table | pa.RecordBatch
    ) -> list[ConfigAccess]:
        """Learn only where windows are and who is there; return the accesses that said something new."""
        found = [one for one in accesses(transactions, data_phases, of_names=True) if self._is_news(one)]
        for access in found:
            self.see(access)
        return found

    def _is_news(self, access: ConfigAccess) -> bool:
        tells = access.offset in WINDOWS or access.offset in IDENTITY
        key = (access.place, access.offset, None if tells else access.select)
        said = (access.write, access.data, access.mask, access.select) if tells else None
        if key in self._said and self._said[key] == said:
            return False
        self._said[key] = said
        return True

    def see(self, access: ConfigAccess) -> None:
        """Learn from one dword that a configuration access moved."""
        if self.space.see([access]):
            self._changed.add(access.place)
        if access.place in self._changed and (access.offset in WINDOWS or access.offset in IDENTITY):
            self._changed.remove(access.place)
            self._place(access.place, access.transaction)

    def _place(self, place: Place, now: int) -> None:
        """Bring the windows up to what the base address registers of a device say."""
        claimed = self._claimed_by(place)
        if claimed == self._claimed.get(place, {}):
            return
        self._claimed[place] = claimed
        wanted: dict[tuple[Place, str], Window] = {}
        for device in self.space.devices:
            wanted |= self._claimed.get(device.place, {})
        self._within_each_other(wanted)
        left, self._current = self._current, {}
        for window in wanted.values():
            where = (window.base, window.space, window.since)
            n = left.pop(where, None)
            if n is None:
                n = len(self.windows)
                self.windows.append(window)
            # The name or the size may have become known since.
            self.windows[n] = window
            self._current[where] = n
        for n in left.values():
            self.windows[n] = replace(self.windows[n], until=now)

    def _claimed_by(self, place: Place) -> dict[tuple[Place, str], Window]:
        """The windows of one device, each as large as its own registers allow."""
        claimed: dict[tuple[Place, str], Window] = {}
        device = self.space.device(place)
        if device is None or not device.is_there:
            return claimed
        name = device.name
        for bar in device.bars:
            if bar.base is not None and bar.kind is not None:
                space = "io" if bar.kind == "io" else "memory"
                size = bar.bytes or min(bar.base & -bar.base, _LARGEST_GUESSED[space])
                known = bar.bytes is not None
                claimed[place, bar.name] = Window(name, bar.name, bar.base, size, known, space, bar.transaction)
        return claimed

    @staticmethod
    def _within_each_other(windows: dict[tuple[Place, str], Window]) -> None:
        """A window whose size is not known ends before the next one begins."""
        for key, one in windows.items():
            if not one.size_known:
                above = [other.base for other in windows.values() if other.space == one.space and other.base > one.base]
                size = min([one.size, *(base - one.base for base in above)])
                windows[key] = replace(one, size=size)

    def locate(self, transactions: pa.Table | pa.RecordBatch, everywhere: bool = False) -> tuple[Integers, Integers]:
        """Tell which window each transaction addresses.

        Parameters
        ----------
        transactions : pyarrow.Table
            In order, with the columns `transaction`, `command` and `address`.
        everywhere : bool
            Also before the window was placed, as far as it was never elsewhere.

        Returns
        -------
        window, offset : arrays of int
            Index into `windows`, -1 for none; bytes from its base.
        """
        number, command = integers(transactions, "transaction"), integers(transactions, "command")
        # Addresses have 64 bits, and base address registers may place a window at any of them.
        address = integers(transactions, "address").view(np.uint64)
        window, offset = np.full(len(number), -1), np.zeros(len(number), dtype=np.int64)
        kinds = {"memory": np.isin(command, _MEMORY), "io": np.isin(command, _IO)}
        placed = np.searchsorted(number, [one.since for one in self.windows])
        moved = np.searchsorted(number, [np.inf if one.until is None else one.until for one in self.windows])
        first: set[tuple[str, str]] = set()
        for n, one in enumerate(self.windows):
            key = (one.device, one.name)
            there = slice(0 if everywhere and key not in first else placed[n], moved[n])
            first.add(key)
            # What lies below the base is far above it, for the difference wraps.
            above = address[there] - np.uint64(one.base)
            inside = (above < np.uint64(min(one.size, _ALL - 1))) & kinds[one.space][there]
            window[there][inside], offset[there][inside] = n, above[inside]
        return window, offset

    def targets(self, transactions: pa.Table | pa.RecordBatch, everywhere: bool = False) -> pa.DictionaryArray:
        """Name the device that each transaction addresses; null where no window and no IDSEL tells.

        Parameters are those of :meth:`locate`.
        """
        window, _ = self.locate(transactions, everywhere)
        names = [one.device for one in self.windows]
        code = window.copy()
        command = integers(transactions, "command")
        rows = np.flatnonzero(np.isin(command, _CONFIG))
        address = integers(transactions, "address")[rows]
        places: dict[int, int] = {}
        for key in np.unique(address[address >= 0] & ~0xFC):
            place = Place.of(int(key))
            if place is not None:
                device = self.space.device(place)
                places[int(key)] = len(names)
                names.append(place.bdf() if device is None else device.name)
        code[rows] = [places.get(int(key), -1) for key in address & ~0xFC]
        unique = sorted(set(names))
        renumber = np.array([unique.index(name) for name in names] + [-1], dtype=np.int32)
        chosen = renumber[code]
        return pa.DictionaryArray.from_arrays(
            pa.array(chosen, pa.int32(), mask=chosen < 0), pa.array(unique, pa.string())
        )

    def describe(self, command: int, address: int, transaction: int | None = None) -> str | None:
        """Say what an address is: ``eth0 BAR1+0x18``, in configuration space ``00:09.0 BAR0``; None if not known."""
        if command in _CONFIG:
            return self.space.register(address)
        # Without a number: as it is at the end.
        number = np.iinfo(np.int64).max if transaction is None else transaction
        columns = {"transaction": [number], "command": [command], "address": pa.array([address], pa.uint64())}
        [window], [offset] = self.locate(pa.table(columns))
        return None if window < 0 else f"{self.windows[window].device} {self.windows[window].name}+0x{offset:x}"

    @property
    def initiators(self) -> dict[str, str]:
        """GNT# line -> name, for those of whom something tells: stated, ``host``, or the device whose DMA it is."""
        named = dict(self._stated)
        if len(self._host) == 1:
            named.setdefault(next(iter(self._host)), "host")
        totals: dict[str, int] = {}
        for (device, _), count in self._follows.items():
            totals[device] = totals.get(device, 0) + count
        found: dict[str, list[str]] = {}
        for (device, grant), count in self._follows.items():
            itself = self._accesses.get((device, grant), 0)
            if count >= _FOLLOWS and count >= _SHARE * totals[device] and not itself and grant not in self._host:
                found.setdefault(grant, []).append(device)
        for grant, devices in found.items():
            if len(devices) == 1 and devices[0] not in named.values():
                named.setdefault(grant, devices[0])
        return named

    def initiator(self, grant: str | None) -> str | None:
        """Name of the initiator with this GNT#, else the line; None for None."""
        return None if grant is None else self.initiators.get(grant, grant)

    def watch(self, transactions: pa.Table | pa.RecordBatch) -> None:
        """Learn only what tells initiators apart: commands of the host alone, who follows writes to a device."""
        transactions = transactions.select(["transaction", "command", "address", "initiator"])
        if isinstance(transactions, pa.RecordBatch):
            transactions = pa.Table.from_batches([transactions])
        if self._open is not None:
            transactions = pa.concat_tables([self._open, transactions])
        code, lines = strings(transactions, "initiator")
        command = integers(transactions, "command")
        for n in np.unique(code[np.isin(command, _HOST) & (code >= 0)]):
            line = lines[n]
            self._host[line] = self._host.get(line, 0) + 1
        window, _ = self.locate(transactions)
        others: dict[int, Integers] = {}
        rows = np.flatnonzero((window >= 0) & (code >= 0))
        rows = rows[np.argsort(window[rows], kind="stable")]
        for of_window in np.split(rows, np.flatnonzero(np.diff(window[rows])) + 1) if len(rows) else ():
            device = self.windows[window[of_window[0]]].device
            for grant in np.unique(code[of_window]):
                key = (device, lines[grant])
                self._accesses[key] = self._accesses.get(key, 0) + 1
                if grant not in others:
                    others[grant] = np.flatnonzero((code >= 0) & (code != grant))
                writes = of_window[(code[of_window] == grant) & np.isin(command[of_window], _WRITES)]
                place = np.searchsorted(others[grant], writes)
                # Of writes in a row only the last one is followed by somebody.
                after = others[grant][np.unique(place[place < len(others[grant])])]
                for other, count in zip(*np.unique(code[after], return_counts=True), strict=True):
                    key = (device, lines[other])
                    self._follows[key] = self._follows.get(key, 0) + int(count)
        self._open = transactions.take(pa.array(_open(window, code, np.isin(command, _WRITES))))


def _open(window: Integers, code: Integers, writes: Booleans) -> Integers:
    """The last write to each window that no other initiator has followed yet."""
    known = np.flatnonzero(code >= 0)
    if not len(known):
        return known
    others = known[code[known] != code[known[-1]]]
    rest = np.arange(others[-1] + 1 if len(others) else 0, len(code))
    rest = rest[(code[rest] >= 0) & (window[rest] >= 0) & writes[rest]]
    _, last = np.unique(window[rest][::-1], return_index=True)
    return np.sort(rest[::-1][last])


def check_grants(stated: Sequence[str], lines: Sequence[str]) -> dict[str, str]:
    """Read what ``--grant NAME=GNT2#`` states; WiringError if the line was not captured or is named twice."""
    captured = [line for line in lines if line.startswith("GNT")]
    named: dict[str, str] = {}
    for text in stated:
        name, _, line = text.partition("=")
        if not name or line not in captured or line in named:
            why = f"was not captured; there are {', '.join(captured) or 'no GNT# lines'}"
            why = f"{line} {'is named twice' if line in named else why}" if name and line else "that is not NAME=GNT#"
            raise WiringError(f"--grant {text}: {why}; say it as NAME=GNT2#", [line], captured)
        named[line] = name
    return named


def of_bus(bus: Bus, grants: Mapping[str, str] | None = None) -> Names:
    """Learn the names of a whole bus.

    Parameters
    ----------
    bus : pcitrace.Bus
    grants : mapping of str to str, optional
        GNT# line -> name, as the user states it.
    """
    names = Names(grants)
    names.learn(bus.arrow("transactions"), bus.arrow("data_phases"))
    return names
