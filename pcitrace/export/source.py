"""What is exported: the rows of a run while they are decoded, and what the analysis makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.errors import ConfigurationError, PciTraceError, WiringError

if TYPE_CHECKING:
    import pandas as pd

    from pcitrace.frames import Frames
    from pcitrace.run import Bus, Capture, Run

__all__ = ["Rows", "Source"]

_ROWS = 1 << 14
"""Transactions that are worked on together: so many that what is done once a batch costs nothing."""

_TIMES = ("start_us", "end_us", "first_data_us", "last_data_us", "time_us")


@dataclass(frozen=True)
class Rows:
    """Some rows of a capture: transactions in order of time, their data phases, and problems.

    Attributes
    ----------
    transactions, data_phases, problems : pyarrow.Table
    """

    transactions: pa.Table
    data_phases: pa.Table
    problems: pa.Table


class Source:
    """A run as it is exported.

    Parameters
    ----------
    run : Run
    bus : str, optional
        Only this bus.
    profile : str, optional
        NIC profile, for the tables of the analysis.

    Attributes
    ----------
    left_out : list of str
        What cannot be in the file, in a sentence each; grows while it is written.
    """

    def __init__(self, run: Run, bus: str | None = None, profile: str | None = None) -> None:
        self.run = run
        self.bus = bus
        self.profile = profile
        self.left_out: list[str] = []
        self.buses: list[Bus] = [run[bus]] if bus is not None else list(run.buses.values())

    @property
    def captures(self) -> list[Capture]:
        """The captures in which the buses are, each once."""
        return list({id(bus.capture): bus.capture for bus in self.buses}.values())

    def only_capture(self) -> Capture:
        """The one capture whose lines are exported.

        Raises
        ------
        WiringError
            There are several, or none.
        """
        captures = self.captures or self.run.captures
        if len(captures) == 1:
            return captures[0]
        names = ", ".join(bus.name for bus in self.buses)
        raise WiringError(
            f"{self.run.path}: the buses {names} are in several captures; name one with --bus"
            if captures
            else f"{self.run.path}: no bus was recorded with this run; there are no lines to export"
        )

    def say_without_bus(self) -> None:
        """Say so where there are lines, but nothing to tell of a bus."""
        if not self.buses:
            self.left_out.append(
                "annotations: there is no PCI bus in this capture, or not all of it; pcitrace info says what is missing"
            )

    def need_bus(self) -> None:
        """Raise a WiringError that says what is missing if no bus can be decoded."""
        if not self.buses:
            _ = self.run.bus

    def rows(self, capture: Capture, columns: Sequence[str] | None = None, *, on_axis: bool = False) -> Iterator[Rows]:
        """Decode the buses of one capture.

        Parameters
        ----------
        capture : Capture
        columns : sequence of str, optional
            Of the transactions; all without it.
        on_axis : bool
            Times on the run's axis instead of the capture's own.
        """
        buses = [bus for bus in self.buses if bus.capture is capture]
        if not buses:
            return
        has_data = any("AD0" in bus.lines for bus in buses)
        waiting: list[Any] = []
        count = 0
        for part in capture.decoder.parts([bus.spec for bus in buses], columns, has_data):
            waiting.append(part)
            count += len(part)
            if count >= _ROWS:
                yield self._together(waiting, capture, on_axis)
                waiting, count = [], 0
        if waiting:
            yield self._together(waiting, capture, on_axis)

    def _together(self, parts: list[Any], capture: Capture, on_axis: bool) -> Rows:
        tables = []
        for name in ("transactions", "data_phases", "problems"):
            table = pa.concat_tables([pa.table(getattr(part, name)) for part in parts]).combine_chunks()
            tables.append(self._moved(table, capture) if on_axis else table)
        return Rows(*tables)

    def _moved(self, table: pa.Table, capture: Capture) -> pa.Table:
        """The table with its times on the run's axis."""
        folder = self.run.folder
        if folder is None:
            return table
        number = self.run.captures.index(capture)
        scale, offset = (
            folder.run_time_us(number, 1.0) - folder.run_time_us(number, 0.0),
            folder.run_time_us(number, 0.0),
        )
        if (scale, offset) == (1.0, 0.0):
            return table
        for name in set(_TIMES) & set(table.column_names):
            moved = pc.add(pc.multiply(table[name], scale), offset)
            table = table.set_column(table.column_names.index(name), name, moved)
        return table

    @cached_property
    def frames(self) -> Frames | None:
        """The frames of the run with the traffic of its hosts; None where nothing says which card it is.

        What the analysis cannot do is a sentence of `left_out`.
        """
        from pcitrace import analysis

        if self.run.folder is None and self.profile is None:
            self.left_out.append(
                "bursts and frames: a bare capture does not say which card is on it; give a run folder, or --profile"
            )
            return None
        try:
            return analysis.frames(self.run, profile=self.profile)
        except ConfigurationError:
            raise  # there is no such profile
        except PciTraceError as error:
            self.left_out.append(f"bursts and frames: {error}")
            return None

    def bursts(self, name: str) -> pd.DataFrame | None:
        """The DMA bursts of a bus on the run's axis, or None."""
        return None if self.frames is None or name not in self.frames.hosts else self.frames.hosts[name].bursts
