"""Captures to tables: calls the kernel, remembers what it gave, and hands it on as Arrow and pandas."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pcitrace import _kernel, stretches
from pcitrace.errors import DecodeError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Decoder", "describe_problems", "progress", "to_arrow", "to_pandas"]


class Decoder:
    """Decodes buses of one capture, each table once.

    Parameters
    ----------
    capture : pcitrace._kernel.Capture
        As the kernel opened it.
    path : pathlib.Path
        For messages.
    rate_hz, clock_mhz, recover_clock, strict, threads
        As in :func:`pcitrace.open`.

    Attributes
    ----------
    together : sequence of dict
        Buses that are decoded with whichever is asked for: those of a pipe, which gives its samples once.
    wires : dict
        By name the wires whose frames are read in the same pass as the transactions of an analysis.
    wire_lines : dict
        By name the lines of each.
    frames : dict
        By name the frames on wires that were read in stretches.
    spread : pcitrace.stretches.Spread or None
        Who decodes a long capture for an analysis, in stretches; None: this process, at once.
    """

    def __init__(
        self,
        capture: _kernel.Capture,
        path: Path,
        rate_hz: float | None,
        clock_mhz: float | None,
        recover_clock: bool,
        strict: bool,
        threads: int,
    ) -> None:
        self.capture = capture
        self.path = path
        self.strict = strict
        self.together: Sequence[Mapping[str, Any]] = ()
        self.wires: dict[str, _kernel.Wire] = {}
        self.wire_lines: dict[str, stretches.Lines] = {}
        self.frames: dict[str, pa.Table] = {}
        self.spread: stretches.Spread | None = None
        self.device = 0
        self.options: dict[str, Any] = {
            "rate_hz": rate_hz,
            "clock_mhz": clock_mhz,
            "recover_clock": recover_clock,
            "threads": threads,
        }
        # By bus, table and window: what has that table as its attribute.
        self._sources: dict[tuple[str, str, float | None], Any] = {}

    def table(self, spec: Mapping[str, Any], table: str, window_us: float | None = None) -> Any:
        """One table of one bus, with ``__arrow_c_stream__``.

        Problems and the accounting of the whole capture come from whatever was decoded first; rows are kept of those
        tables only that were asked for.
        """
        if window_us is not None and not 0 < window_us < float("inf"):
            raise DecodeError(f"window_us = {window_us!r}; it must be a positive number of microseconds")
        key = (spec["name"], table, window_us if table == "clocks" else None)
        if key not in self._sources:
            # Who looks at data phases looks at the transactions, too.
            rows = (
                table in ("transactions", "data_phases") and (spec["name"], "transactions", None) not in self._sources
            )
            self._decode([spec], None if rows else (), table == "data_phases", window_us, events=table == "events")
        return getattr(self._sources[key], table)

    def transactions(
        self, specs: Sequence[Mapping[str, Any]], columns: Sequence[str], data_phases: bool
    ) -> list[tuple[pa.RecordBatchReader, int]]:
        """Some columns of the transactions of buses in parts that are not kept, and how many rows there are of each.

        All come from one pass through the capture, and so do the frames on its wires. Text is dictionary encoded. With
        `data_phases` that table of each bus, which is kept, is made of the same pass.
        """
        import pyarrow as pa

        made: dict[str, Any] = {}
        decoded: Sequence[Any] | None
        if missing := [spec for spec in specs if (spec["name"], "transactions", None) not in self._sources]:
            # In state mode samples are clocks of the bus, not of the wire.
            wires = [*self.wires] if self.options["clock_mhz"] is None else []
            decoded = self._in_stretches(missing, columns, data_phases, wires)
            if decoded is None:
                decoded = self._decode(missing, columns, data_phases, wires=[self.wires[name] for name in wires])
            made = {spec["name"]: one.transactions for spec, one in zip(missing, decoded, strict=True)}
        tables = [made[spec["name"]] if spec["name"] in made else self.table(spec, "transactions") for spec in specs]
        return [(pa.RecordBatchReader.from_stream(table), table.num_rows) for table in tables]

    def columns(self, spec: Mapping[str, Any], names: Sequence[str]) -> Any:
        """Some columns of the transactions of one bus: nothing of the others is made. They are not remembered."""
        if self.together or (spec["name"], "transactions", None) in self._sources:
            return to_arrow(self.table(spec, "transactions")).select(list(names))
        [decoded] = self._decode([spec], names, False, coded=False)
        return decoded.transactions

    def parts(
        self,
        specs: Sequence[Mapping[str, Any]],
        columns: Sequence[str] | None = None,
        data_phases: bool = False,
        **more: Any,
    ) -> _kernel.Parts:
        """The tables of some buses in parts, in order of time, while they are decoded; memory stays bounded.

        With `columns` only these of transactions. With `rules` and `bus_mhz` broken rules are problems, too; with
        `clocks` (stamps from, to, clocks from, to) the parts have a line for each of these clocks; `until` ends it
        about there. Of each transaction come `most_phases` data phases: what goes on and on takes no memory.
        """
        return _kernel.parts(self.capture, specs, columns=columns, data_phases=data_phases, **more, **self.options)

    def clock_mhz(self, spec: Mapping[str, Any]) -> float | None:
        """Mean frequency of CLK over the whole capture in MHz; None where it has no two clocks."""
        self.table(spec, "clocks")
        mhz: float | None = self._sources[spec["name"], "clocks", None].clock_mhz
        return mhz

    def _decode(
        self,
        specs: Sequence[Mapping[str, Any]],
        columns: Sequence[str] | None,
        data_phases: bool,
        window_us: float | None = None,
        coded: bool = True,
        events: bool = False,
        wires: Sequence[_kernel.Wire] = (),
    ) -> list[_kernel.Decoded]:
        """Decode buses in one pass and remember their tables, those of transactions if they have all columns.

        The texts of some columns are dictionary encoded if `coded` says so.
        """
        asked = [spec["name"] for spec in specs]
        if self.together:
            # A pipe is read once: everything that may be asked for later comes now.
            specs, columns, data_phases, events = self.together, None, True, True
        with progress(f"decode {self.path.name}") as report:
            found = _kernel.decode(
                self.capture,
                specs,
                columns=columns,
                coded=coded,
                data_phases=data_phases,
                events=events,
                window_us=window_us,
                progress=report,
                wires=[wire for wire in wires if wire.frames is None],
                **self.options,
            )
        kept = ["data_phases"] * data_phases + ["events"] * events + ["transactions"] * (columns is None)
        for spec, decoded in zip(specs, found, strict=True):
            self._remember(spec, decoded, kept, window_us)
        by_name = {spec["name"]: decoded for spec, decoded in zip(specs, found, strict=True)}
        return [by_name[name] for name in asked]

    def _in_stretches(
        self, specs: Sequence[Mapping[str, Any]], columns: Sequence[str], data_phases: bool, wires: Sequence[str]
    ) -> Sequence[Any] | None:
        """Have a long capture decoded in stretches; None where nobody does that, or it cannot be cut."""
        spread = self.spread
        if spread is None or self.together or self.options["recover_clock"]:
            return None
        begins = stretches.edges(self.capture, spread.many)
        if len(begins) == 1:
            return None
        options = {name: self.options[name] for name in ("rate_hz", "clock_mhz")}
        lines, stamp = [self.wire_lines[name] for name in wires], stretches.stamp(self.path)
        whole = stretches.Stretch(
            self.path.absolute(), self.device, stamp, specs, lines, columns, data_phases, options, (0, None)
        )
        spans = zip(begins, [*begins[1:], None], strict=True)
        found = list(spread.do([replace(whole, span=span) for span in spans]))
        buses, frames = stretches.join(self.capture, specs, options, found)
        self.frames.update(zip(wires, frames, strict=True))
        for spec, decoded in zip(specs, buses, strict=True):
            self._remember(spec, decoded, ["data_phases"] * data_phases, None)
        return buses

    def _remember(
        self,
        spec: Mapping[str, Any],
        decoded: Any,
        kept: Sequence[str],
        window_us: float | None,
    ) -> None:
        """Keep these tables of what a bus was decoded to, and those that are always there."""
        if self.strict and decoded.problems.num_rows:
            found = to_arrow(decoded.problems)
            problems = describe_problems(found.slice(0, 1).to_pylist()[0], found.num_rows)
            raise DecodeError(f"{self.path}, bus {spec['name']}: {problems}")
        tables = ["problems", "clocks", *kept]
        # What has few columns is not kept here.
        source = SimpleNamespace(**{one: getattr(decoded, one) for one in ("clock_mhz", *tables)})
        for table in tables:
            self._sources.setdefault((spec["name"], table, window_us if table == "clocks" else None), source)
        if window_us is not None:
            # The windows as one, too: a pipe cannot be asked again.
            whole = SimpleNamespace(clock_mhz=decoded.clock_mhz, clocks=decoded.all_clocks)
            self._sources.setdefault((spec["name"], "clocks", None), whole)

    def judge(
        self,
        spec: Mapping[str, Any],
        rules: Sequence[str],
        bus_mhz: int | None,
        columns: Sequence[str],
        *,
        data_phases: bool,
        parameters: tuple[int, float] | None = None,
        every: Sequence[str] = (),
        until: int | None = None,
    ) -> Any:
        """Decode some columns of the transactions of a bus, and judge every clock by these rules in the same pass.

        The first 20,000 violations of a rule are kept, of the rules in `every` all. With `until` no further than about
        this sample or tick. Other problems than broken rules are not kept.
        """
        with progress(f"check {self.path.name}") as report:
            [decoded] = _kernel.decode(
                self.capture,
                [spec],
                columns=columns,
                data_phases=data_phases,
                rules=rules,
                every=every,
                bus_mhz=bus_mhz,
                parameters=parameters,
                until=until,
                problems=False,
                progress=report,
                **self.options,
            )
        return decoded

    def requests(self, spec: Mapping[str, Any]) -> tuple[dict[int, int], dict[int, int], dict[tuple[str, str], int]]:
        """Clocks -> how often it took so many, from REQ# to GNT#, and from there to the address phase.

        Then who asked for the bus and who had it, by their GNT# -> for how many clocks.
        """
        with progress(f"REQ# of {self.path.name}") as report:
            [decoded] = _kernel.decode(
                self.capture, [spec], columns=["transaction"], rules=[], requests=True, progress=report, **self.options
            )
        assert decoded.requests is not None  # they were asked for
        return decoded.requests

    def write(
        self,
        specs: Sequence[Mapping[str, Any]],
        *,
        transactions: Path,
        data_phases: Path | None = None,
        problems: Path | None = None,
        events: Path | None = None,
    ) -> dict[str, Any]:
        """Decode straight into files (CSV, Parquet or JSON lines by suffix), in bounded memory.

        Returns ``transactions`` and ``problems`` (counts), ``first_problem``, ``clock_mhz`` and ``duration_us`` by bus.
        """
        with progress(f"decode {self.path.name}") as report:
            return _kernel.decode_to_files(
                self.capture,
                specs,
                transactions=str(transactions),
                data_phases=None if data_phases is None else str(data_phases),
                problems=None if problems is None else str(problems),
                events=None if events is None else str(events),
                progress=report,
                **self.options,
            )


def describe_problems(first: Mapping[str, Any], count: int) -> str:
    """The first of the problems of a bus in words, and how many more there are."""
    more = count - 1
    when = "" if first["time_us"] is None else f" at {first['time_us']:.3f} us"
    often = "" if first["count"] == 1 else f" ({first['count']} times)"
    rule = f" ({first['rule']})" if first.get("rule") not in (None, first["kind"]) else ""
    return f"{first['kind']}{rule}{when}: {first['text']}{often}" + (f", and {more} more problems" if more else "")


def to_arrow(table: Any) -> pa.Table:
    """A table of the kernel as a pyarrow Table that shares its memory."""
    import pyarrow as pa

    return pa.table(table)


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A DataFrame on the memory of an Arrow table: integers stay integers, unknown values stay null."""
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


@contextmanager
def progress(title: str) -> Iterator[Callable[[float], None] | None]:
    """A hook for the kernel that shows a bar once a second has gone by; None where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    started, bar = time.monotonic(), None

    def report(fraction: float) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - started > 1:
            from tqdm import tqdm

            bar = tqdm(
                total=100,
                initial=int(100 * fraction),
                desc=title,
                bar_format="{l_bar}{bar}| {remaining} left",
                leave=False,
            )
        if bar is not None:
            bar.update(100 * fraction - bar.n)

    try:
        yield report
    finally:
        if bar is not None:
            bar.close()
