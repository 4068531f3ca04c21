"""A run for other programs: PulseView, Wireshark, GTKWave, Surfer, Perfetto, DuckDB.

Each format is a module that writes while the kernel decodes, so memory does not grow with the capture. What a format
cannot hold is said, in :attr:`Exported.left_out`.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pcitrace.errors import ConfigurationError
from pcitrace.export.kinds import Exported, Format, Options

if TYPE_CHECKING:
    from pcitrace.run import Run

__all__ = ["FORMATS", "Exported", "Format", "Options", "export"]


FORMATS = {
    "sigrok": Format("sigrok", ".sr", "PulseView"),
    "pcapng": Format("pcapng", ".pcapng", "Wireshark"),
    "vcd": Format("vcd", ".vcd", "GTKWave"),
    "fst": Format("fst", ".fst", "GTKWave"),
    "ftr": Format("ftr", ".ftr", "Surfer"),
    "perfetto": Format("perfetto", ".pftrace", "Perfetto (ui.perfetto.dev)"),
    "parquet": Format("arrowfile", ".parquet", "DuckDB, polars, pandas"),
    "arrow": Format("arrowfile", ".arrow", "DuckDB, polars, pandas"),
}
"""What ``--to`` names."""


def export(
    run: Run,
    to: str,
    path: Path,
    *,
    bus: str | None = None,
    profile: str | None = None,
    options: Options | None = None,
) -> Exported:
    """Write a run in the format of another program.

    Parameters
    ----------
    run : Run
    to : str
        One of :data:`FORMATS`.
    path : pathlib.Path
        The file.
    bus : str, optional
        Only this bus.
    profile : str, optional
        NIC profile, where the run does not name one: bursts and frames need it.
    options : Options, optional
        What only some formats are asked.

    Returns
    -------
    Exported

    Raises
    ------
    ConfigurationError
        There is no such format.
    WiringError
        There is no bus, or the buses are in several captures and the format has the lines of one.
    """
    from pcitrace.export.source import Source

    if to not in FORMATS:
        raise ConfigurationError(f"there is no format {to}; there are {', '.join(FORMATS)}", path)
    chosen = FORMATS[to]
    source = Source(run, bus, profile)
    made: Exported = import_module(f"pcitrace.export.{chosen.module}").write(source, path, options or Options(), to)
    if 0 in (made.rows.get("transactions"), made.rows.get("transaction")) and source.buses:
        names = ", ".join(bus.name for bus in source.buses)
        made = replace(made, left_out=(*made.left_out, f"transactions: on {names} there is none in this capture"))
    return made
