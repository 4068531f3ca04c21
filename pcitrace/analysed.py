"""``open()``: a run with everything that the analysis makes of it, each made when it is asked for first.

What is here is a facade. The work is in the modules below: :mod:`pcitrace.analysis` (traffic, frames)
and :mod:`pcitrace.results` (constants).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pcitrace import schema
from pcitrace.decode import to_pandas
from pcitrace.errors import WiringError
from pcitrace.run import Bus, Capture, Run
from pcitrace.wiring import WiringSource

if TYPE_CHECKING:
    import pandas as pd

    from pcitrace.estimate import Estimate
    from pcitrace.frames import Frames
    from pcitrace.instrument.search import Matches
    from pcitrace.learning import Learned
    from pcitrace.network import Network
    from pcitrace.network.budget import BusConstants
    from pcitrace.network.timebase import BusFrames
    from pcitrace.results import Results
    from pcitrace.traffic import Traffic

__all__ = ["AnalysedRun", "open"]


def open(
    path: str | os.PathLike[str],
    *,
    wiring: WiringSource | None = None,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
    recover_clock: bool = False,
    strict: bool = False,
    threads: int = 0,
    timescale: str | None = None,
    channels: Sequence[str] | None = None,
    unit_size: int | None = None,
) -> AnalysedRun:
    """Open a capture file or a run folder.

    Parameters
    ----------
    path : str or path
        A capture: sigrok ``.sr``, VCD, FST or GHW (also gzipped), CSV as sigrok or Saleae export it, DSView ``.dsl``,
        Saleae ``.bin``; told by its content, not by its name. Or a folder with a ``run.toml``.
    wiring : path or mapping, optional
        Which channel is which line, where their names do not say it; see ``pcitrace.wiring.overrides``.
    rate_hz : float, optional
        Sampling rate in Hz, where the file states none or a wrong one.
    clock_mhz : float, optional
        State mode: every sample is one clock of this frequency, in MHz.
    recover_clock : bool
        Recover CLK from its noisy samples (timing mode, at least 6 samples a clock) instead of trusting every edge.
    strict : bool
        Raise a DecodeError if decoding finds any problem, instead of listing it in ``problems``.
    threads : int
        Decode on so many threads; 0 for as many as the machine runs at once. The tables are the same.
    timescale : str, optional
        Time unit of a VCD that states none, such as ``1 ns``.
    channels : sequence of str, optional
        The file holds raw samples, as ``sigrok-cli -O binary`` writes them: names of the channels from bit 0 of a
        sample on (an empty name: nothing is there). Then `path` may be a pipe, or ``-`` for standard input; a pipe is
        read once, so all its tables come from the first that is asked for.
    unit_size : int, optional
        Bytes a raw sample; as many as the channels need by default.

    Returns
    -------
    AnalysedRun

    Raises
    ------
    CaptureFormatError
        The file cannot be read; the message names the place.
    WiringError
        `wiring` names a line or channel that does not exist. That a bus is incomplete is an error only when the bus is
        asked for: any readable capture can be opened.
    ConfigurationError
        The folder's ``run.toml`` is not valid.
    DecodeError
        `rate_hz` or `clock_mhz` is not a positive number, or `threads` is negative.
    """
    options: dict[str, Any] = {
        "rate_hz": rate_hz,
        "clock_mhz": clock_mhz,
        "recover_clock": recover_clock,
        "strict": strict,
        "threads": threads,
        "timescale": timescale,
    }
    place = Path(path)
    if channels is not None:
        names = [name or f"D{bit}" for bit, name in enumerate(channels)]
        options["raw"] = (unit_size or max(-(-len(names) // 8), 1), names)
    elif place.is_dir() or place.name == "run.toml":
        return _open_folder(place, wiring, options)
    captures = [Capture(place, wiring, **options)]
    # A sigrok session of several devices: each is a capture of its own, with its own rate.
    captures += [Capture(place, wiring, **options, device=number) for number in range(1, captures[0].count)]
    sources: dict[str, tuple[Capture, str]] = {}
    for number, capture in enumerate(captures, 1):
        for name in capture.wiring.complete:
            sources[f"{name}{number}" if name in sources else name] = (capture, name)
    return AnalysedRun(place, captures, sources)


def _open_folder(path: Path, wiring: WiringSource | None, options: dict[str, Any]) -> AnalysedRun:
    """A run with the buses of its hosts; options that are given win over what run.toml says."""
    from pcitrace import runfolder

    if wiring is not None:
        raise WiringError(f"{path}: the wiring of a run folder stands in its run.toml (hosts.NAME.wiring)")
    folder = runfolder.load(path)
    hosts: Mapping[str, Any] = folder.run["hosts"]
    captures = []
    for number, (entry, file) in enumerate(zip(folder.run["captures"], folder.capture_paths, strict=True)):
        stated = {}
        for host in hosts.values():
            said = {**host.get("wiring", {}), **({"width": host["width"]} if "width" in host else {})}
            if host.get("capture") == number and said:
                stated[host["bus"]] = said
        given = {key: value for key, value in options.items() if value is not None}
        rates = {key: entry[key] for key in ("rate_hz", "clock_mhz") if key in entry}
        captures.append(Capture(file, {"bus": stated} if stated else None, **(rates | given)))
    sources = {name: (captures[hosts[name]["capture"]], hosts[name]["bus"]) for name in folder.bus_hosts}
    return AnalysedRun(folder.path, captures, sources, folder)


def bus_constants(folder: Path) -> Mapping[str, Estimate]:
    """Return the constants that the buses of a run folder tell, by name; t_nic as Equation 2.1 takes it, one for all
    lengths.
    """
    return _constants(open(folder))


def _constants(run: AnalysedRun) -> Mapping[str, Estimate]:
    from pcitrace.results import t_nic_of_equation

    found = run.results
    return {**found.constants, "t_nic_us": t_nic_of_equation(found.timing)}


def buses() -> tuple[BusConstants, BusFrames]:
    """Return what gives the constants that the buses of a run folder tell, and the frames that they show; both from one
    analysis of a folder.
    """
    opened = lru_cache(maxsize=1)(open)
    return (lambda folder: _constants(opened(folder))), (lambda folder: opened(folder).frames.table)


_OF_TRAFFIC = ("bursts", "pieces", "csr_accesses")
"""Tables of a bus that the analysis makes."""


class AnalysedBus(Bus):
    """A bus with what an instrument finds on it; ``run["A"]`` of :func:`pcitrace.open`."""

    def find(self, *steps: str) -> Matches:
        """Find sequences of transactions, as a trigger would.

        Parameters
        ----------
        *steps : str
            What has to happen, in this order: ``"write BAR0+0x18"``, ``"dma read within 5us"``, or any condition;
            see :func:`pcitrace.instrument.steps.step`.

        Returns
        -------
        pcitrace.instrument.search.Matches
            Every match with its transactions and the times between them.

        Raises
        ------
        ConditionError
            A step cannot be read, or asks for what was not captured.
        """
        from pcitrace.instrument.search import find

        return find(self, steps)

    def where(self, condition: str, table: str = "transactions") -> pd.DataFrame:
        """Choose rows of a table.

        Parameters
        ----------
        condition : str
            A Python expression over its columns, such as ``0xe8000000 <= address < 0xe8001000 and not dac``; see
            :func:`pcitrace.instrument.conditions.condition`. Null fulfils none. Of transactions ``target`` is one, too:
            the device that is addressed, as configuration accesses had named it by then.
        table : str
            ``transactions``, ``data_phases``, ``problems``, ``events``, ``bursts``, ``pieces`` or ``csr_accesses``.

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
        from pcitrace.instrument import conditions, stream

        if table in _OF_TRAFFIC and self._traffic is not None:
            rows: pd.DataFrame = getattr(self._traffic(self.name), table)
            return rows[conditions.condition(condition, schema.TABLES[table]).fulfilled(rows)]
        if table != "transactions":
            return super().where(condition, table)
        chosen = conditions.condition(condition, stream.TRANSACTIONS)
        transactions = self.arrow(table)
        if stream.TARGET.name not in chosen.columns:
            return to_pandas(chosen.filter(transactions))
        from pcitrace.instrument.names import of_bus

        targets = of_bus(self).targets(transactions).cast("string")
        return to_pandas(chosen.filter(transactions.append_column(stream.TARGET.name, targets)))


class AnalysedRun(Run):
    """A run with its frames and constants; made by :func:`pcitrace.open`."""

    bus_type = AnalysedBus

    def __getitem__(self, name: str) -> AnalysedBus:
        """Return a bus by its name: that of its host, or of its channels."""
        return cast(AnalysedBus, super().__getitem__(name))

    @property
    def bus(self) -> AnalysedBus:
        """The only bus."""
        return cast(AnalysedBus, super().bus)

    @property
    def frames(self) -> Frames:
        """Every frame on its way from memory to memory: see :func:`pcitrace.analysis.frames`."""
        from pcitrace.analysis import frames

        return frames(self)

    @cached_property
    def results(self) -> Results:
        """All constants of the run, each with its uncertainty: see :func:`pcitrace.results.of_run`."""
        from pcitrace.results import of_run

        return of_run(self)

    @cached_property
    def learned(self) -> Learned:
        """What the traffic shows of the cards, with counts and margins: see :func:`pcitrace.analysis.learned`."""
        from pcitrace.analysis import learned

        return learned(self)

    @cached_property
    def network(self) -> Network:
        """What the frame logs of a run folder say; see :func:`pcitrace.network.of_paths`.

        Latency, loss, throughput, buffers. A capture file has none: ConfigurationError.
        """
        from pcitrace import network

        return network.of_paths(
            [self.path], bus_constants=lambda _: _constants(self), bus_frames=lambda _: self.frames.table
        )

    def view(self, *, lines: bool = True, data: bool = False) -> Any:
        """Show the run in Jupyter, to zoom into: see :func:`pcitrace.view.widget`; ``pcitrace view`` writes a page."""
        from pcitrace.view import widget

        return widget(self, lines=lines, data=data)

    def traffic(self, bus: str) -> Traffic:
        """CSR accesses and DMA bursts of a bus, with the frames that they belong to where frames are followed."""
        from pcitrace import analysis

        if self.folder is not None and bus in self.folder.bus_hosts[:2]:
            return self.frames.hosts[bus]
        return self.once(f"traffic of {bus}", lambda: analysis.traffic(self, bus))
