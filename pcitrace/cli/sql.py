"""``pcitrace sql``: a question about a capture in SQL."""

from __future__ import annotations

import argparse
from functools import cache
from typing import TYPE_CHECKING

from pcitrace.cli.options import add_capture, add_grants, choose_buses, open_run
from pcitrace.cli.tables import add_output, emit
from pcitrace.cli.traffic import frames_of, of_buses, rows

if TYPE_CHECKING:
    import pandas as pd

    from pcitrace.frames import Frames
    from pcitrace.traffic import Traffic

_EPILOG = """\
examples:
  pcitrace sql bus.vcd.gz "select command_name, count(*) n, sum(bytes) from transactions group by 1 order by n desc"
  pcitrace sql RUN "select length_bytes, median(t_nic_us) from frames group by 1" -o t_nic.parquet

Every table of the table reference is there under its name; transactions and data phases are decoded while they are
read. Needs DuckDB: pip install duckdb.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument("query", metavar="QUERY", help="in DuckDB's SQL")
    parser.add_argument("--profile", metavar="NIC", help="NIC profile, for bursts, csr_accesses and frames")
    add_grants(parser)
    add_output(parser, "the answer")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Ask, write the answer."""
    from pcitrace.decode import to_pandas
    from pcitrace.errors import ConditionError
    from pcitrace.instrument.sql import query

    run = open_run(args)

    @cache
    def traffic() -> dict[str, Traffic]:
        return of_buses(run, args)

    @cache
    def frames() -> Frames:
        return frames_of(run, args)

    def analysed(table: str) -> pd.DataFrame:
        if table == "frames":
            return frames().table
        return frames().drop_log if table == "drop_log" else rows(traffic(), table)

    answer = query(run, args.query, buses=choose_buses(run, args.bus), analysed=analysed)
    import duckdb  # is there: query() has asked it

    try:
        found = answer.to_arrow_table()
    except duckdb.Error as error:
        raise ConditionError(f"{args.query!r} fails: {str(error).splitlines()[0]}", args.query) from error
    emit(to_pandas(found), args)
    return 0
