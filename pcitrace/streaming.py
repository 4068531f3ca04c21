"""``pcitrace.stream()``: samples are pushed as they come from the analyser, rows come out as they are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pcitrace import _kernel
from pcitrace.decode import to_arrow
from pcitrace.errors import DecodeError, WiringError
from pcitrace.wiring import BusWiring, WiringSource, resolve_wiring

if TYPE_CHECKING:
    import pyarrow as pa

    from pcitrace.columns import Integers

__all__ = ["Found", "Holders", "Stream", "stream"]


class Found(NamedTuple):
    """Rows that are complete, of all buses of a stream; each row comes once.

    Attributes
    ----------
    transactions, data_phases, problems, clocks, events : pyarrow.Table
        As ``schema`` describes them. A transaction comes when its last clock and what may still be said of it are over;
        a problem when it cannot go on; a window of the clocks when the next one is well under way.
    """

    transactions: pa.Table
    data_phases: pa.Table
    problems: pa.Table
    clocks: pa.Table
    events: pa.Table


def stream(
    channels: Sequence[str],
    rate_hz: float | None = None,
    *,
    wiring: WiringSource | None = None,
    clock_mhz: float | None = None,
    unit_size: int | None = None,
    bus: str | None = None,
    data_phases: bool = False,
    window_us: float | None = None,
    rules: bool = False,
    bus_mhz: int | None = None,
    columns: Sequence[str] | None = None,
) -> Stream:
    """Decode samples while they come.

    Parameters
    ----------
    channels : sequence of str
        Names of the channels from bit 0 of a sample on; an empty name is a bit that nobody looks at.
    rate_hz : float, optional
        Samples a second; not needed in state mode.
    wiring : path or mapping, optional
        Which channel is which line, as in :func:`pcitrace.open`.
    clock_mhz : float, optional
        State mode: every sample is one clock of this frequency, in MHz.
    unit_size : int, optional
        Bytes a sample, little endian; as many as the channels need by default.
    bus : str, optional
        Only this bus; all that are complete by default.
    data_phases : bool
        List the data phases, too.
    window_us : float, optional
        Length of the windows of the clock accounting; one over the whole stream by default.
    rules : bool
        Judge every clock by the rules of the bus: :func:`pcitrace.instrument.judged.check_stream` tells how they were
        kept, while the stream runs and when it is over.
    bus_mhz : int, optional
        33 or 66: whose limits CLK has to keep (rule E01); without it that rule is not evaluated.
    columns : sequence of str, optional
        Of the transactions only these, names as dictionaries, in less time; all by default. In which transactions rules
        were broken is noted where ``transaction``, ``start_clk``, ``clocks`` and ``initiator`` are among them.

    Returns
    -------
    Stream

    Raises
    ------
    WiringError
        No bus is complete.
    DecodeError
        There is no rate, or the channels do not fit into the samples.

    Examples
    --------
    >>> names = ["FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#"]
    >>> live = stream(names, clock_mhz=33.33)
    >>> live.feed(bytes([0b11111, 0b11110, 0b11100, 0b10100, 0b10001])).transactions.num_rows
    0
    >>> live.feed(bytes([0b11111] * 80)).transactions["termination"].to_pylist()
    ['completion']
    """
    names = [name or f"D{bit}" for bit, name in enumerate(channels)]
    resolved = resolve_wiring([(name, 1) for name in names], wiring, clock_mhz)
    if not resolved.complete or bus is not None:
        buses = [resolved.bus(bus)]
    else:
        buses = [resolved.buses[name] for name in resolved.complete]
    least = -(-len(names) // 8)
    if unit_size is not None and unit_size < least:
        raise DecodeError(f"{len(names)} channels need samples of {least} bytes, not of {unit_size}")
    options = {"rate_hz": rate_hz or resolved.rate_hz, "clock_mhz": resolved.clock_mhz, "window_us": window_us}
    judging = {"rules": list(_kernel.RULES) if rules else None, "bus_mhz": bus_mhz}
    wanted = None if columns is None else list(dict.fromkeys(["bus", *columns]))
    return Stream(buses, unit_size or least, {**options, **judging, "data_phases": data_phases, "columns": wanted})


class Stream:
    """Some buses whose samples come piece by piece; made by :func:`pcitrace.stream`.

    The rows are those that :func:`pcitrace.open` would give of all samples at once, wherever the pieces are cut.

    Attributes
    ----------
    buses : tuple of str
        Names of the buses.
    unit_size : int
        Bytes a sample.
    lines : dict of str to tuple of str
        The lines of each bus.
    options : dict
        How it decodes, as the kernel takes it.
    holders : dict of str to Holders
        Of each bus the transactions in which rules were broken first; empty where that is not noted.
    """

    def __init__(self, buses: Sequence[BusWiring], unit_size: int, options: dict[str, Any]) -> None:
        if not buses:
            raise WiringError("a stream needs a bus")
        self.buses = tuple(bus.name for bus in buses)
        self.unit_size = unit_size
        self.lines = {bus.name: tuple(bus.pci) for bus in buses}
        self.options = options
        self._kernel = _kernel.Stream([bus.spec() for bus in buses], unit_size, **options)
        wanted = options["columns"]
        holds = options["rules"] is not None and (wanted is None or set(_HOLDING) <= set(wanted))
        self.holders = {bus: Holders() for bus in self.buses} if holds else {}

    def feed(self, samples: bytes | bytearray | memoryview) -> Found:
        """Take the next bytes, which may end within a sample; return the rows that are complete now."""
        return self._found(self._kernel.feed(bytes(samples)))

    def gap(self, samples: int = 0) -> Found:
        """Samples are missing here: so many, if that is known, else the times behind are early by as much.

        What is on the bus is cut (``truncated``), a problem ``gap`` says where, and the next bytes begin a sample.
        """
        return self._found(self._kernel.gap(samples))

    def finish(self) -> Found:
        """Nothing more comes: return the rows that were not complete, and the accounting of the clocks."""
        return self._found(self._kernel.finish())

    def judged(self) -> list[tuple[pa.Table, dict[str, Any]]]:
        """Of each bus the clocks so far at which rules were broken, and their counts; empty without `rules`."""
        return [(to_arrow(violations), counts) for violations, counts in self._kernel.judged()]

    def counted(self) -> list[dict[str, Any]]:
        """Of each bus how often each rule was broken so far, and over what; empty without `rules`."""
        return self._kernel.counted()

    def _found(self, tables: tuple[_kernel.Table, ...]) -> Found:
        import pyarrow.compute as pc

        found = Found(*map(to_arrow, tables))
        if self.holders:
            for bus, (violations, _) in zip(self.buses, self.judged(), strict=False):
                rows = found.transactions
                mine = rows if len(self.buses) == 1 else rows.filter(pc.equal(rows["bus"], bus))
                self.holders[bus].see(violations, mine.select(_HOLDING))
        return found

    def __repr__(self) -> str:
        return f"<Stream of {', '.join(self.buses)}: samples of {self.unit_size} bytes>"


_HOLDING = ["transaction", "start_clk", "clocks", "initiator"]
"""What is looked at of a transaction."""

_FIRST = 100
"""Places of a rule whose transactions are noted."""

_KEPT = 64
"""Transactions that may still hold a violation that is told later."""

_AFTERWARDS = 2
"""Clocks after a transaction that still speak of it: PERR#, released lines."""


class Holders:
    """The transactions that hold the first violations of each rule on one bus, noted as both come.

    Attributes
    ----------
    rows : dict of int to tuple
        Clock of a violation -> number and GNT# of the transaction in which it lies.
    """

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, str | None]] = {}
        self._counted = 0
        self._waiting: Integers | None = None
        self._recent: pa.Table | None = None

    def see(self, violations: pa.Table, transactions: pa.Table) -> None:
        """Take all violations so far, and the transactions that are new."""
        import numpy as np
        import pyarrow as pa

        from pcitrace.columns import integers

        recent = transactions if self._recent is None else pa.concat_tables([self._recent, transactions])
        if violations.num_rows != self._counted:
            self._counted = violations.num_rows
            clk = integers(violations, "clk")
            rule = violations["rule"].to_numpy(zero_copy_only=False)
            firsts = [clk[rule == one][:_FIRST] for one in np.unique(rule)]
            wanted = np.unique(np.concatenate(firsts))
            self._waiting = wanted[[int(one) not in self.rows for one in wanted]]
        if self._waiting is not None and len(self._waiting) and recent.num_rows:
            start, clocks = integers(recent, "start_clk"), integers(recent, "clocks")
            row = np.searchsorted(start, self._waiting, side="right") - 1
            inside = (row >= 0) & (self._waiting < (start + clocks)[row] + _AFTERWARDS)
            number, owner = integers(recent, "transaction"), recent["initiator"].to_pylist()
            for clk, at in zip(self._waiting[inside].tolist(), row[inside].tolist(), strict=True):
                self.rows[clk] = (int(number[at]), owner[at])
            # What lies before all that may still come is in no transaction.
            self._waiting = self._waiting[~inside & (self._waiting >= start[-1])]
        self._recent = recent.slice(max(recent.num_rows - _KEPT, 0))
