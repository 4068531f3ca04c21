"""SQL over the tables of a run, by DuckDB where that is installed.

Every table of :mod:`pcitrace.schema` is there under its name. Transactions and data phases are decoded while the query
reads them, so memory does not grow with the capture; tables of the analysis need a run folder or a profile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pcitrace import schema
from pcitrace.errors import ConditionError, ConfigurationError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from pcitrace.run import Bus, Run

__all__ = ["query"]

_DECODED = ("transactions", "data_phases", "problems", "events", "clocks")


class _Streamed:
    """A table that is decoded anew whenever it is read."""

    def __init__(self, read: Callable[[], pa.RecordBatchReader]) -> None:
        self._read = read

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._read().__arrow_c_stream__(requested_schema)


def query(
    run: Run,
    text: str,
    *,
    profile: str | None = None,
    buses: Sequence[Bus] | None = None,
    analysed: Callable[[str], pd.DataFrame] | None = None,
) -> duckdb.DuckDBPyRelation:
    """Ask a question about a run in SQL.

    Parameters
    ----------
    run : Run
    text : str
        A query over the tables `transactions`, `data_phases`, `problems`, `events`, `clocks`, and with a card `bursts`,
        `pieces`, `csr_accesses`, `frames` and `drop_log`.
    profile : str, optional
        NIC profile for the tables of the analysis.
    buses : sequence of pcitrace.Bus, optional
        Whose tables these are; default: all of the run. Frames are those of all.
    analysed : callable, optional
        Makes the tables of the analysis by their names, of one initiator or several; default: of each bus's card.

    Returns
    -------
    duckdb.DuckDBPyRelation
        ``.arrow()``, ``.df()``, ``.fetchall()`` ...

    Raises
    ------
    ConfigurationError
        DuckDB is not installed.
    ConditionError
        It is no query that DuckDB can answer.
    """
    import pyarrow as pa

    try:
        import duckdb
    except ImportError as error:
        raise ConfigurationError("sql needs DuckDB, which is not installed: pip install duckdb", run.path) from error
    buses = buses or list(run.buses.values()) or [run.bus]
    connection = duckdb.connect()
    try:
        # A table is made where its name stands in the query: the analysis takes its time.
        for name in schema.TABLES:
            if not re.search(rf"\b{name}\b", text, re.IGNORECASE):
                continue
            if name not in _DECODED and analysed is not None:
                connection.register(name, pa.Table.from_pandas(analysed(name), preserve_index=False))
            else:
                connection.register(name, _table(run, buses, name, profile))
        answer = connection.sql(text)
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise ConditionError(
            f"{text!r} is no query: {first}; the tables are {', '.join(schema.TABLES)}", text
        ) from error
    if answer is None:
        raise ConditionError(f"{text!r} asks for no rows: begin with select", text)
    return answer


def _table(run: Run, buses: Sequence[Bus], name: str, profile: str | None) -> Any:
    import pyarrow as pa

    if name in ("transactions", "data_phases"):
        return _Streamed(lambda: _reader(buses, name))
    if name in _DECODED:
        return pa.concat_tables([bus.arrow(name) for bus in buses])
    from pcitrace import analysis

    if name in ("frames", "drop_log"):
        frames = analysis.frames(run, profile=profile)
        return pa.Table.from_pandas(frames.table if name == "frames" else frames.drop_log, preserve_index=False)
    traffic = [analysis.traffic(run, bus.name, profile=profile) for bus in buses]
    return pa.concat_tables([pa.Table.from_pandas(getattr(one, name), preserve_index=False) for one in traffic])


def _reader(buses: Sequence[Bus], name: str) -> pa.RecordBatchReader:
    """The rows of some buses, capture by capture, as they are decoded."""
    import pyarrow as pa

    kinds = [(column.name, pa.type_for_alias(column.dtype)) for column in schema.TABLES[name].columns]
    captures = {id(bus.capture): bus.capture for bus in buses}

    def batches() -> Iterator[pa.RecordBatch]:
        for capture in captures.values():
            specs = [bus.spec for bus in buses if bus.capture is capture]
            for part in capture.decoder.parts(specs, None, name == "data_phases"):
                yield from pa.table(getattr(part, name)).cast(pa.schema(kinds)).to_batches()

    return pa.RecordBatchReader.from_batches(pa.schema(kinds), batches())
