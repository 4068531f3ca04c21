"""What one measurement says: every number with its uncertainty, or why it is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pcitrace.network.flows import FlowResult, LoopResult
from pcitrace.network.latency import Latency
from pcitrace.network.measurement import Measurement
from pcitrace.network.parameter import Parameter
from pcitrace.network.width import Peak
from pcitrace.records import records

__all__ = ["PointResult", "Result"]


@dataclass(frozen=True)
class PointResult:
    """One size (and spacing) of a measurement.

    Attributes
    ----------
    length_bytes : int
    spacing_us : float or None
        As planned.
    flows : tuple of FlowResult
    loops : tuple of LoopResult
        Of the nodes that answer, in a test that asks.
    parameters : dict of str to Parameter
    """

    length_bytes: int
    spacing_us: float | None
    flows: tuple[FlowResult, ...]
    loops: tuple[LoopResult, ...]
    parameters: Mapping[str, Parameter]

    @property
    def peaks(self) -> tuple[Peak, ...]:
        """Of its latencies, where they are of one stream or of one node's answers; none where there are too few."""
        one = self.loops or self.flows
        return one[0].delay.peaks if len(one) == 1 and one[0].delay is not None else ()


@dataclass(frozen=True)
class Result:
    """What a measurement, or several together, say.

    Attributes
    ----------
    kind : str
        Of the test (``request-response``, ``stream`` ...), ``subtraction`` of paths, or the name of another program.
    path : str
        What lay between the hosts, as ``run.toml`` [path] calls it; else the folder.
    source : Path or None
        Folder or file.
    parameters : dict of str to Parameter
    points : tuple of PointResult
    latency : Latency or None
    measurement : Measurement or None
    tables : dict of str to pandas.DataFrame
        What has more than a number: shares of senders, latencies of a switch ...
    findings : tuple of str
    """

    kind: str
    path: str
    source: Path | None
    parameters: Mapping[str, Parameter]
    points: tuple[PointResult, ...] = ()
    latency: Latency | None = None
    measurement: Measurement | None = None
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        known = sum(one.value is not None for one in self.parameters.values())
        return f"<Result {self.kind} over {self.path}: {len(self.points)} points, {known} numbers>"

    @property
    def all_tables(self) -> dict[str, pd.DataFrame]:
        """Tables that have rows, with that of latencies against size; the names of rows are a column."""
        latency = {} if self.latency is None else {"latency": self.latency.table}
        named = latency | dict(self.tables)
        return {
            name: table if isinstance(table.index, pd.RangeIndex) else table.reset_index(names="term")
            for name, table in named.items()
            if len(table)
        }

    def as_dict(self) -> dict[str, Any]:
        """Return what ``pcitrace network --json`` prints."""
        told: dict[str, Any] = {
            "kind": self.kind,
            "path": self.path,
            "parameters": {name: one.as_dict() for name, one in self.parameters.items()},
        }
        if self.source is not None:
            told["source"] = str(self.source)
        if self.latency is not None and self.latency.lines:
            told["lines"] = {
                name: {
                    key: {"value": value.nominal_value, "sigma": value.std_dev}
                    for key, value in (
                        ("intercept_us", line.intercept_us),
                        ("slope_us_per_byte", line.slope_us_per_byte),
                    )
                }
                for name, line in self.latency.lines.items()
            }
        if any(len(point.peaks) > 1 for point in self.points):
            told["peaks"] = [
                {"length_bytes": point.length_bytes, "spacing_us": point.spacing_us, **asdict(peak)}
                for point in self.points
                for peak in point.peaks
            ]
        if self.all_tables:
            told["tables"] = {name: records(table) for name, table in self.all_tables.items()}
        if len(self.points) > 1:
            told["points"] = [
                {
                    "length_bytes": point.length_bytes,
                    "spacing_us": point.spacing_us,
                    "parameters": {name: one.as_dict() for name, one in point.parameters.items()},
                }
                for point in self.points
            ]
        return told
