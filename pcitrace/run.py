"""The three nouns: a run has captures, and captures have buses. Everything is decoded when asked for.

:func:`pcitrace.open` makes them, with what the analysis makes of them on top: :mod:`pcitrace.analysed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pcitrace import _kernel
from pcitrace.decode import Decoder, to_arrow, to_pandas
from pcitrace.errors import CaptureFormatError, DecodeError, WiringError
from pcitrace.freed import given_back
from pcitrace.printable import printable
from pcitrace.sidebyside import each
from pcitrace.wiring import BusWiring, Wiring, WiringSource, resolve_wiring

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

    from pcitrace.bustable import BusTable
    from pcitrace.notebook import Rows
    from pcitrace.runfolder import RunFolder
    from pcitrace.traffic import Traffic

__all__ = ["Bus", "Capture", "Run"]

T = TypeVar("T")


class Run:
    """Captures that belong together, and the buses in them; made by :func:`pcitrace.open`.

    Attributes
    ----------
    path : pathlib.Path
        The file or folder.
    captures : list of Capture
        In the order of ``run.toml``; for a file usually one, for a sigrok session one a device.
    folder : pcitrace.runfolder.RunFolder or None
        What ``run.toml`` says; None for a capture file.
    """

    bus_type: type[Bus]
    """What its buses are."""

    def __init__(
        self,
        path: Path,
        captures: list[Capture],
        sources: Mapping[str, tuple[Capture, str]],
        folder: RunFolder | None = None,
    ) -> None:
        self.path = path
        self.captures = captures
        self.folder = folder
        self._sources = sources
        self._tables: dict[str, BusTable] = {}
        self._made: dict[str, Any] = {}

    @cached_property
    def buses(self) -> dict[str, Bus]:
        """The buses that can be decoded, by name; in a run folder by the name of the host."""
        complete = {name: source for name, source in self._sources.items() if source[1] in source[0].wiring.complete}
        return {name: self.bus_type(capture, bus, name, self.traffic) for name, (capture, bus) in complete.items()}

    def traffic(self, bus: str) -> Traffic:
        """CSR accesses and DMA bursts of a bus; a run made by :func:`pcitrace.open` has them."""
        raise DecodeError(f"{self.path}: the traffic of bus {bus} takes the analysis: open it with pcitrace.open")

    def once(self, what: str, make: Callable[[], T]) -> T:
        """Return what was made under this name: made when it is asked for first."""
        if what not in self._made:
            self._made[what] = make()
        made: T = self._made[what]
        return made

    def move(self, folder: RunFolder) -> None:
        """Take a folder in which captures have other places on the time axis; forget what was read on the old one."""
        self.folder = folder
        self._tables.clear()

    def table(self, name: str, data_phases: bool = False) -> BusTable:
        """Transactions of a bus as arrays on the run's time axis: what the analysis works with, put together once.

        The other buses of its capture are put together with it: the capture is gone through once. Who needs
        ``data_phases`` as well says so, and gets them from the same pass.
        """
        from pcitrace.bustable import BusTable

        if name not in self._tables:
            capture = self[name].capture
            others = [bus for one, bus in self.buses.items() if one != name and bus.capture is capture]
            us = partial(self.folder.run_time_us, self.folder.run["hosts"][name]["capture"]) if self.folder else None
            try:
                buses = [self[name], *(bus for bus in others if bus.name not in self._tables)]
                read = self._read(buses, data_phases)
            except DecodeError:
                if not others:
                    raise
                # It may be another bus that cannot be decoded; what is wrong with this one is told anyhow.
                read = self._read(buses := [self[name]], data_phases)
            # At once: what the kernel decoded together is given back together.
            rate_hz = buses[0].capture.samples_hz
            made = each(lambda one: BusTable.of_parts(given_back(one[0]), one[1], us, rate_hz), read)
            self._tables.update(zip((bus.name for bus in buses), made, strict=True))
        return self._tables[name]

    @staticmethod
    def _read(buses: list[Bus], data_phases: bool) -> list[tuple[pa.RecordBatchReader, int]]:
        """The columns that the analysis reads, of buses of one capture."""
        from pcitrace.bustable import wanted

        columns = dict.fromkeys(column for bus in buses for column in wanted(bus.lines))
        return buses[0].capture.decoder.transactions([bus.spec for bus in buses], list(columns), data_phases)

    @property
    def bus(self) -> Bus:
        """The only bus; WiringError if there is none or there are several."""
        if len(self.buses) == 1:
            return next(iter(self.buses.values()))
        if self.buses:
            raise WiringError(f"{self.path}: several buses: {', '.join(self.buses)}; name one", available=self.buses)
        for name in self._sources:
            self[name]
        if not self.captures:
            raise WiringError(f"{self.path}: no bus was recorded with this run; it has frame logs only")
        return self.bus_type(self.captures[0], None, None, self.traffic)

    def __getitem__(self, name: str) -> Bus:
        if name in self.buses:
            return self.buses[name]
        if name in self._sources:
            return self.bus_type(*self._sources[name], name, self.traffic)
        if self.folder is not None:
            hosts = ", ".join(self._sources) or "no host whose bus was recorded"
            raise WiringError(f"{self.path}: no host {name}; there are {hosts}", (name,), self._sources)
        return self.bus_type(self.captures[0], name, None, self.traffic)

    def __repr__(self) -> str:
        what = ", ".join(self.buses) or "no PCI bus"
        captures = "; ".join(capture.summary for capture in self.captures) or "no capture"
        return f"<Run {self.path.name}: {captures}; {what}>"


class Capture:
    """One capture file.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    wiring : pcitrace.wiring.Wiring
        Its buses, complete or not.
    notes : list of str
        What the reader had to settle by itself, such as names that repeat.
    """

    def __init__(
        self,
        path: Path,
        wiring: WiringSource | None = None,
        *,
        rate_hz: float | None = None,
        clock_mhz: float | None = None,
        recover_clock: bool = False,
        strict: bool = False,
        threads: int = 0,
        timescale: str | None = None,
        device: int = 0,
        raw: tuple[int, list[str]] | None = None,
    ) -> None:
        if threads < 0:
            raise DecodeError(f"{path}: threads = {threads!r}; it must be a number of threads, or 0 for all cores")
        for name, value in (("rate_hz", rate_hz), ("clock_mhz", clock_mhz)):
            if value is not None and not 0 < value < float("inf"):
                raise DecodeError(f"{path}: {name} = {value!r}; it must be a positive number")
        self.path = path
        self._wires: dict[str, pd.DataFrame] = {}
        if raw is None:
            self._kernel = _kernel.open(str(path), timescale=timescale and printable(timescale), device=device)
        else:
            self._kernel = _kernel.open_raw(str(path), *raw)
        self.count = self._kernel.captures
        self.notes = self._kernel.notes
        try:
            self.wiring: Wiring = resolve_wiring(self._kernel.channels, wiring, clock_mhz)
        except WiringError as error:
            raise WiringError(f"{path}: {error}", error.missing, error.available) from None
        self._rate_hz = rate_hz or self.wiring.rate_hz
        self.notes += self._notes_on_rate()
        self.clock_mhz = self.wiring.clock_mhz
        self.decoder = Decoder(self._kernel, path, self._rate_hz, self.clock_mhz, recover_clock, strict, threads)
        self.decoder.device = device
        for name, bus in self.wiring.buses.items():
            if "TXEN" in bus.lines:
                lines = {key: (line.channel, line.bit, line.active_low) for key, line in bus.wire.items()}
                self.decoder.wires[name] = _kernel.Wire(self._kernel, lines)
                self.decoder.wire_lines[name] = lines
        if raw is not None and self.sample_count is None:
            self.decoder.together = [self.wiring.bus(name).spec() for name in self.wiring.complete]

    def _notes_on_rate(self) -> list[str]:
        """Say where a rate was given over that of the file."""
        given, stated = self._rate_hz, self._kernel.rate_hz
        if given and self._kernel.unit_size is None:
            return [f"a rate of {given:.10g} Hz was given; the file says itself when lines change, so it was not used"]
        if given and stated and given != stated:
            return [f"its rate is {stated:.10g} Hz, but {given:.10g} Hz was given: that was taken"]
        return []

    @property
    def format(self) -> str:
        """``sigrok``, ``vcd``, ``fst``, ``ghw``, ``csv``, ``dsview`` or ``saleae``."""
        return self._kernel.format

    @property
    def channels(self) -> list[str]:
        """Names of the channels as in the file, with their scopes; their widths are in ``wiring.channels``."""
        return [channel.name for channel in self.wiring.channels]

    @property
    def rate_hz(self) -> float | None:
        """Samples a second: as given to ``open``, else as the file says. None: not known, or a capture of changes."""
        return self._rate_hz or self._kernel.rate_hz

    @property
    def samples_hz(self) -> float | None:
        """What the kernel makes times of samples with; in state mode a sample is a clock. None: as for `rate_hz`."""
        return self.clock_mhz * 1e6 if self.clock_mhz else self.rate_hz

    @property
    def tick_s(self) -> float | None:
        """Unit of the times of a capture of changes in seconds; None in a sampled one."""
        return self._kernel.tick_s

    @property
    def sample_count(self) -> int | None:
        """Number of samples; None in a capture of changes."""
        return self._kernel.sample_count

    @property
    def duration_s(self) -> float | None:
        """Length of the capture in seconds; None if the file has no rate and none was given."""
        if self.sample_count is None:
            return self._kernel.duration_s
        rate = self.clock_mhz * 1e6 if self.clock_mhz else self.rate_hz
        return self.sample_count / rate if rate else None

    def samples(self, first: int = 0, last: int | None = None) -> npt.NDArray[np.uint8]:
        """Read samples.

        Parameters
        ----------
        first, last : int, optional
            Only those from number `first` to before `last`; no more than these are kept in memory.

        Returns
        -------
        numpy.ndarray of uint8, shape (samples, unit size)
            The bytes of each sample as in the file; channel 0 is usually bit 0 of byte 0.

        Raises
        ------
        CaptureFormatError
            The capture lists changes (VCD, FST, GHW, Saleae) instead of samples.
        """
        import numpy as np

        if self._kernel.unit_size is None:
            raise CaptureFormatError(
                f"{self.path}: a {self.format} capture lists changes and has no samples; decode its buses instead",
                self.path,
            )
        return np.frombuffer(self._kernel.read_samples(first, last), np.uint8).reshape(-1, self._kernel.unit_size)

    def wire(self, name: str) -> pd.DataFrame:
        """Frames on the wire that host `name` sends: ``start_us`` and ``end_us`` (rise and fall of TXEN), ``bytes``.

        ``bytes`` is null where TXCLK and TXDATA were not captured; a time is null where the capture cut the frame.
        """
        bus = self.wiring.buses.get(name)
        if bus is None or "TXEN" not in bus.lines:
            raise WiringError(f"{self.path}: no channel for TXEN of {name}", ("TXEN",), self.channels)
        if name not in self._wires:
            wire = self.decoder.wires[name]
            frames = self.decoder.frames.get(name) or wire.frames or wire.read(self._kernel, rate_hz=self.rate_hz)
            self._wires[name] = to_pandas(to_arrow(frames))
        return self._wires[name]

    def waves(self, bus: BusWiring, lines: Sequence[str]) -> list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]]:
        """Read when single lines of a bus change.

        Returns
        -------
        list of (stamps, levels)
            Of each line, in the order asked: the samples (in a capture of changes the ticks) at which it changes, the
            first with what it begins at, and the level of the pin from then on: 0 low, 1 high, 2 unknown.
        """
        import numpy as np

        places = [(bus.lines[name].channel, bus.lines[name].bit) for name in lines]
        table = to_arrow(_kernel.waves(self._kernel, places))
        stamps, levels = table["stamp"].to_numpy(), table["level"].to_numpy()
        ends = np.searchsorted(table["line"].to_numpy(), np.arange(len(places) + 1))
        return [(stamps[a:b], levels[a:b]) for a, b in pairwise(ends.tolist())]

    def measure_clock_mhz(self, bus: BusWiring) -> float | None:
        """Frequency of CLK in MHz: as stated in state mode, else from its first edges."""
        if self.clock_mhz is not None:
            return self.clock_mhz
        clk = bus.lines["CLK"]
        return _kernel.measure_clock(self._kernel, (clk.channel, clk.bit, clk.active_low), rate_hz=self.rate_hz)

    @property
    def summary(self) -> str:
        """Format, channels, rate and length in a few words."""
        parts = [self.format, f"{len(self.channels)} channels"]
        if self.clock_mhz is not None:
            parts.append(f"state mode at {self.clock_mhz:g} MHz")
        elif self.sample_count is not None:
            parts.append(f"{self.rate_hz / 1e6:g} MS/s" if self.rate_hz else "no rate")
        if self.sample_count is not None:
            parts.append(f"{self.sample_count} samples")
        if self.duration_s is not None:
            parts.append(format_duration(self.duration_s))
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<Capture {printable(self.path.name)}: {self.summary}>"


class Bus:
    """One PCI bus of a capture; made by ``run["A"]`` or ``run.bus``.

    Attributes
    ----------
    name : str
        As in the column ``bus``: the host's name in a run folder, else the bus's own.
    capture : Capture
        Where it was recorded.
    wiring : pcitrace.wiring.BusWiring
        Its lines.
    spec : dict
        The bus as the kernel takes it.
    """

    def __init__(
        self,
        capture: Capture,
        bus: str | None,
        name: str | None = None,
        traffic: Callable[[str], Traffic] | None = None,
    ) -> None:
        self.capture = capture
        self._traffic = traffic
        try:
            self.wiring = capture.wiring.bus(bus)
        except WiringError as error:
            raise WiringError(f"{capture.path}: {error}", error.missing, error.available) from None
        self.name = name or self.wiring.name
        self.spec = {**self.wiring.spec(), "name": self.name}
        self._frames: dict[tuple[str, float | None], pd.DataFrame] = {}

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that were captured, such as ``FRAME#`` and ``AD31``."""
        return tuple(self.wiring.pci)

    @cached_property
    def clock_mhz(self) -> float | None:
        """Frequency of CLK in MHz: as stated in state mode, else measured; None if CLK does not move."""
        return self.capture.measure_clock_mhz(self.wiring)

    @property
    def mean_clock_mhz(self) -> float | None:
        """Frequency of CLK in MHz over the whole capture; None where it has no two clocks."""
        return self.capture.decoder.clock_mhz(self.spec)

    @property
    def transactions(self) -> pd.DataFrame:
        """One row a transaction (``schema.TRANSACTIONS``)."""
        return self._frame("transactions")

    @property
    def data_phases(self) -> pd.DataFrame:
        """One row a data phase in which data moved (``schema.DATA_PHASES``)."""
        return self._frame("data_phases")

    @property
    def problems(self) -> pd.DataFrame:
        """What was wrong on the bus or in the capture (``schema.PROBLEMS``)."""
        return self._frame("problems")

    @property
    def events(self) -> pd.DataFrame:
        """Changes of INTA# to INTD# and LOCK# (``schema.EVENTS``)."""
        return self._frame("events")

    @cached_property
    def bursts(self) -> Rows:
        """DMA bursts of the NIC, pieces joined (``schema.BURSTS``)."""
        return self._analysed("bursts")

    @cached_property
    def csr(self) -> Rows:
        """Accesses of the host to the NIC's registers (``schema.CSR_ACCESSES``)."""
        return self._analysed("csr")

    def _analysed(self, what: str) -> Rows:
        from pcitrace import notebook

        if self._traffic is None:
            raise DecodeError(f"bus {self.name} stands alone: take it from a run that pcitrace.open gave")
        traffic = self._traffic(self.name)
        return notebook.bursts(traffic) if what == "bursts" else notebook.csr(traffic)

    @property
    def wire(self) -> pd.DataFrame:
        """The frames that this host sends: see :meth:`Capture.wire`."""
        return self.capture.wire(self.wiring.name)

    def where(self, condition: str, table: str = "transactions") -> pd.DataFrame:
        """Choose rows of a table.

        Parameters
        ----------
        condition : str
            A Python expression over its columns, such as ``0xe8000000 <= address < 0xe8001000 and not dac``; see
            :func:`pcitrace.instrument.conditions.condition`. Null fulfils none.
        table : str
            ``transactions``, ``data_phases``, ``problems`` or ``events``.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ConditionError
            It is no condition on this table; the message names the place and what is allowed.
        DecodeError
            There is no such table.
        """
        from pcitrace import schema
        from pcitrace.instrument.conditions import condition as read

        if table not in ("transactions", "data_phases", "problems", "events"):
            names = "transactions, data_phases, problems, events, bursts, pieces or csr_accesses"
            raise DecodeError(f"where() chooses of {names}, not of {table!r}")
        chosen = read(condition, schema.TABLES[table])
        return to_pandas(chosen.filter(self.arrow(table)))

    def clocks(self, window_us: float | None = None) -> pd.DataFrame:
        """Account for every clock of the bus (``schema.CLOCKS``).

        Parameters
        ----------
        window_us : float, optional
            Length of a window in us; one row a window in which CLK rises. Without it one row for the whole capture.
        """
        return self._frame("clocks", window_us)

    def arrow(self, table: str, window_us: float | None = None, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table as the kernel made it, without a copy.

        Parameters
        ----------
        table : str
            ``transactions``, ``data_phases``, ``problems``, ``events`` or ``clocks``.
        window_us : float, optional
            As for :meth:`clocks`.
        columns : sequence of str, optional
            Only these, in this order. Of `transactions` the others are not even made.

        Returns
        -------
        pyarrow.Table
            Takes part in the Arrow C stream protocol: ``polars.from_arrow(table)`` and DuckDB read it as it is.
        """
        if columns is None:
            return to_arrow(self.capture.decoder.table(self.spec, table, window_us))
        _check_columns(table, columns)
        if table == "transactions":
            return to_arrow(self.capture.decoder.columns(self.spec, columns))
        return self.arrow(table, window_us).select(list(columns))

    def _frame(self, table: str, window_us: float | None = None) -> pd.DataFrame:
        """The DataFrame of a table, made once; a shallow copy, so that added columns do not come back."""
        key = (table, window_us)
        if key not in self._frames:
            self._frames[key] = to_pandas(self.arrow(table, window_us))
        return self._frames[key].copy(deep=False)

    def __repr__(self) -> str:
        clock = "no clock" if self.clock_mhz is None else f"{self.clock_mhz:.4g} MHz"
        lines = " ".join(joined(self.lines))
        where = printable(f"{self.name} of {self.capture.path.name}")
        return f"<Bus {where}: {clock}, {self.capture.summary}; {lines}>"


def _check_columns(table: str, columns: Sequence[str]) -> None:
    """Refuse columns that a table does not have."""
    from pcitrace import schema

    there = schema.TABLES[table].column_names if table in schema.TABLES else ()
    for name in columns:
        if name not in there:
            raise DecodeError(f"{table} has no column {name!r}; it has {', '.join(there)}")


def format_duration(seconds: float) -> str:
    """Format a length of time with the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def format_bytes(count: int) -> str:
    """Format a number of bytes, a power of two: ``4 KiB``."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} bytes"


def joined(lines: Iterable[str]) -> list[str]:
    """Line names with runs of numbers drawn together: ``AD0-31``, ``CBE0-3#``."""
    import re

    runs: list[list[Any]] = []
    for line in lines:
        match = re.fullmatch(r"([A-Z]+?)(\d+)(#?)", line) if not line.startswith(("REQ64", "ACK64", "PAR64")) else None
        stem, number, suffix = (match[1], int(match[2]), match[3]) if match else (line, None, "")
        if runs and number is not None and runs[-1][0] == stem and runs[-1][2] + 1 == number:
            runs[-1][2] = number
        else:
            runs.append([stem, number, number, suffix])
    return [
        f"{stem}{'' if first is None else first}{'' if first == last else f'-{last}'}{suffix}"
        for stem, first, last, suffix in runs
    ]


Run.bus_type = Bus
