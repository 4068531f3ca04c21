"""A capture as lines for people: one line a transaction, a data phase or an access.

The kernel writes the lines; here is who is who. Names are those that are known at a line, learned from the
configuration accesses before it, or with ``two_pass`` those of the whole capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pcitrace import _kernel
from pcitrace.instrument.configspace import IDENTITY, WINDOWS, Place
from pcitrace.instrument.stream import Choice, parts

if TYPE_CHECKING:
    from pcitrace.instrument.exceptions import Exceptions
    from pcitrace.instrument.names import Names
    from pcitrace.instrument.registers import Registers
    from pcitrace.instrument.rules import Masks
    from pcitrace.run import Bus

__all__ = ["Layer", "Settings", "lines"]

_LAST = 2**64 - 1
"""Beyond the number of any transaction."""

_PHASES = 4096
"""Data phases of one transaction that a line may tell of; it shows four."""


class Layer(StrEnum):
    """What one line is."""

    TRANSACTIONS = "transactions"
    DATA = "data"
    ACCESSES = "accesses"


@dataclass(frozen=True)
class Settings:
    """How a listing looks.

    Attributes
    ----------
    layer : Layer
    zero_us : float or None
        What the times count from, in us; None: the line before.
    width : int or None
        Columns of the terminal; longer lines are cut. None: as wide as they are.
    colour : bool
    all_data : bool
        Every data phase, not only the first four of a line.
    raw : bool
        Each retry by itself, instead of one line for an access that was retried.
    two_pass : bool
        Decode twice: name everything in each line as it is known at the end.
    grants : mapping of str to mapping
        Names of initiators as the user states them: bus -> GNT# line -> name.
    registers : Registers, optional
        What profiles and register files know.
    problems_of_us : tuple of float, optional
        Where not all transactions are listed: problems of those that are, and those of no transaction from here to
        there.
    problems_of_clks : tuple of float, optional
        The same in clocks of the bus.
    masks : Masks, optional
        Judge every clock by these rules: where one is broken is a line, and so is what is wrong with the lines
        themselves.
    """

    layer: Layer = Layer.TRANSACTIONS
    zero_us: float | None = 0.0
    width: int | None = None
    colour: bool = False
    all_data: bool = False
    raw: bool = False
    two_pass: bool = False
    grants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    registers: Registers | None = None
    problems_of_us: tuple[float, float] | None = None
    problems_of_clks: tuple[float, float] | None = None
    masks: Masks | None = None


def lines(buses: Sequence[Bus], settings: Settings | None = None, choice: Choice | None = None) -> Iterator[bytes]:
    """List what happened on some buses of one capture.

    Parameters
    ----------
    buses : sequence of Bus
    settings : Settings, optional
    choice : Choice, optional
        Which transactions are listed.

    Yields
    ------
    bytes
        Some lines, UTF-8, each with its end.
    """
    settings = settings or Settings()
    grants = [line for bus in buses for line in bus.lines if line.startswith("GNT")]
    named = [name for of_bus in settings.grants.values() for name in of_bus.values()]
    listing = _kernel.Listing(
        layer=settings.layer,
        zero_us=settings.zero_us,
        width=settings.width,
        colour=settings.colour,
        all_data=settings.all_data,
        raw=settings.raw,
        bus_width=max(len(bus.name) for bus in buses) if len(buses) > 1 else 0,
        problems_of_us=settings.problems_of_us,
        problems_of_clks=settings.problems_of_clks,
        initiator_width=max((len(name) for name in [*grants, *named]), default=0),
    )
    has_data = any("AD0" in bus.lines for bus in buses)
    news = _kernel.News(sorted(WINDOWS), sorted(IDENTITY))
    known = {bus.name: _Known(bus, settings, listing) for bus in buses}
    rules, bus_mhz = None, None
    exceptions = _exceptions(buses, settings)
    if settings.masks is not None:
        judged = [_Judged(bus, settings, listing) for bus in buses]
        rules = sorted({id for one in judged for id in one.how.possible})
        bus_mhz = [one.how.bus_mhz for one in judged]
        yield b"".join(one.causes(listing) for one in judged)
    columns = _kernel.Listing.columns()
    choice = choice or Choice()
    most_phases = None if settings.all_data or settings.layer == Layer.DATA else _PHASES
    every = parts(
        buses, columns, choice=choice, data_phases=has_data, rules=rules, bus_mhz=bus_mhz, whole=True,
        most_phases=most_phases,
    )  # fmt: skip
    for whole in every:
        part = whole if exceptions is None else exceptions.out_of(whole)
        wanted = choice.wanted(part)
        shown = part if wanted is None else part.choose(wanted)
        written = 0
        listing.begin(shown)
        # Names are learned from all accesses, also from those that are not listed.
        row = 0
        while has_data and (told := news.next(part, row)) is not None:
            row, bus, transaction, command, address, moved = told
            # What is learned from this access is known in its own line, and not before.
            place = row if wanted is None else wanted.count(1, 0, row)
            if place > written:
                yield listing.lines(shown, written, place)
                written = place
            if known[bus].learn(transaction, command, address, moved):
                news.renamed(bus, address)
            row += 1
        yield listing.lines(shown, written, len(shown))
    yield listing.finish()


def _exceptions(buses: Sequence[Bus], settings: Settings) -> Exceptions | None:
    """What the masks say of single initiators and targets."""
    if settings.masks is None or not settings.masks.excepted:
        return None
    from pcitrace.instrument.exceptions import Exceptions

    return Exceptions(buses, settings.masks, settings.grants)


class _Judged:
    """How a bus is judged in a listing."""

    def __init__(self, bus: Bus, settings: Settings, listing: _kernel.Listing) -> None:
        from pcitrace.instrument.judging import judging
        from pcitrace.instrument.rules import catalogue

        self.bus = bus
        self.how = judging(bus, settings.masks)
        listing.set_rules(bus.name, {id: catalogue()[id].sentence for id in self.how.wanted})

    def causes(self, listing: _kernel.Listing) -> bytes:
        """The lines that say what is wrong with the control lines themselves."""
        return b"".join(listing.cause(self.bus.name, cause.time_us, cause.text) for cause in self.how.causes)


class _Known:
    """What is known of one bus, kept up to date in a listing."""

    def __init__(self, bus: Bus, settings: Settings, listing: _kernel.Listing) -> None:
        self.bus = bus
        self.listing = listing
        self.registers = settings.registers
        self.stated = settings.grants.get(bus.name, {})
        self.names: Names | None = None
        self.finished = settings.two_pass
        # What stands at each place, and the names that configuration addresses have in lines.
        self.who: dict[Place, tuple[str, int | None] | None] = {}
        self.places: dict[int, str] = {}
        self.windows: list[tuple[Any, ...]] = []
        for line, name in self.stated.items():
            listing.set_initiator(bus.name, line, name)
        if settings.two_pass:
            from pcitrace.instrument.names import of_bus

            self.names = of_bus(bus, self.stated)
            for line, name in self.names.initiators.items():
                listing.set_initiator(bus.name, line, name)
        self._set_windows()

    def learn(self, transaction: int, command: int, address: int, moved: list[tuple[float, int, int]]) -> bool:
        """Learn from a configuration access; whether its device is called otherwise since."""
        from pcitrace.instrument.devices import access_of
        from pcitrace.instrument.names import Names

        if self.names is None:
            self.names = Names(self.stated)
        if not self.finished:
            for nth, (time_us, data, enables) in enumerate(moved):
                access = access_of(transaction, time_us, command, address, nth, data, enables)
                if access is not None:
                    self.names.see(access)
            self._set_windows()
        place = Place.of(address)
        if place is None:
            return False
        device = self.names.space.device(place)
        who = None if device is None else (device.where, device.header_type)
        renamed = self.who.get(place) != who
        self.who[place] = who
        name = self.names.space.register(address)
        if name is not None and self.places.get(address) != name:
            self.places[address] = name
            self.listing.set_place(self.bus.name, address, name)
        return renamed

    def _set_windows(self) -> None:
        """Tell the listing about the windows, if they changed."""
        windows = list(self.registers.fixed_windows()) if self.registers is not None else []
        first: set[tuple[str, str]] = set()
        for one in self.names.windows if self.names is not None else ():
            key = (one.device, one.name)
            since = 0 if self.finished and key not in first else one.since
            first.add(key)
            until = _LAST if one.until is None else one.until
            described = self.registers.of_window(self.names, one) if self.registers and self.names else []
            name = f"{one.device} {one.name}"
            windows.append((one.space == "io", one.base, one.size, one.size_known, name, since, until, described))
        if windows != self.windows:
            self.windows = windows
            self.listing.set_windows(self.bus.name, windows)
