"""Parquet and Arrow files: a table of :mod:`pcitrace.schema` with unit and meaning of every column beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from pcitrace import schema
from pcitrace.export.kinds import Exported, Options
from pcitrace.export.source import Source
from pcitrace.export.whole import appearing

__all__ = ["described", "write"]

_STREAMED = ("transactions", "data_phases")
_OF_FRAMES = ("frames", "drop_log")


def described(table: schema.Table, about: dict[str, str]) -> pa.Schema:
    """The Arrow schema of a table: each field with ``unit`` and ``description``, the whole with what a row is."""
    fields = [
        pa.field(
            column.name,
            pa.type_for_alias(column.dtype),
            metadata={"description": column.meaning, **({"unit": column.unit} if column.unit else {})},
        )
        for column in table.columns
    ]
    return pa.schema(fields, metadata={"table": table.name, "description": table.row, **about})


def write(source: Source, path: Path, options: Options, to: str) -> Exported:
    """Write one table to Parquet or to an Arrow IPC file."""
    made = described(schema.TABLES[options.table], _about(source))
    with appearing(path) as temporary, _writer(temporary, made, to) as writer:
        rows = _write(source, options.table, made, writer)
    return Exported((path,), {options.table: rows}, tuple(source.left_out), (f"duckdb -c \"from '{path}'\"",))


def _writer(path: Path, made: pa.Schema, to: str) -> Any:
    if to == "parquet":
        return pa.parquet.ParquetWriter(path, made, compression="zstd")
    return pa.ipc.new_file(path, made)


def _write(source: Source, table: str, made: pa.Schema, writer: Any) -> int:
    rows = 0
    for some in _tables(source, table, made):
        writer.write_table(some.cast(made))
        rows += len(some)
    return rows


def _about(source: Source) -> dict[str, str]:
    import pcitrace

    return {"source": source.run.path.name, "made_by": f"pcitrace {pcitrace.__version__}"}


def _tables(source: Source, table: str, made: pa.Schema) -> Iterator[pa.Table]:
    if table in _STREAMED:
        source.need_bus()
        for capture in source.captures:
            for rows in source.rows(capture):
                yield getattr(rows, table)
    elif table in ("problems", "clocks", "events"):
        source.need_bus()
        for bus in source.buses:
            yield bus.arrow(table)
    else:
        yield from _analysed(source, table, made)


def _analysed(source: Source, table: str, made: pa.Schema) -> Iterator[pa.Table]:
    """Tables of the analysis: there is no empty file without a word where it cannot be done."""
    from pcitrace import analysis

    source.need_bus()
    if table in _OF_FRAMES:
        frames = analysis.frames(source.run, profile=source.profile)
        found = [frames.table if table == "frames" else frames.drop_log]
    else:
        traffic = [analysis.traffic(source.run, bus.name, profile=source.profile) for bus in source.buses]
        if source.frames is not None:
            # With the frames that its rows belong to.
            traffic = [source.frames.hosts.get(one.bus, one) for one in traffic]
        found = [getattr(one, table) for one in traffic]
    for frame in found:
        yield pa.Table.from_pandas(frame, preserve_index=False).select(made.names)
