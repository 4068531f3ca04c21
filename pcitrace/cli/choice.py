"""Which rows a subcommand is asked for: ``--where``, ``--from``, ``--to`` and ``--around``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from pcitrace.instrument.conditions import Condition
    from pcitrace.instrument.moments import Moment
    from pcitrace.instrument.stream import Choice
    from pcitrace.run import Run
    from pcitrace.schema import Table

__all__ = ["add_choice", "check", "choice", "chosen", "limits", "tell_why_none"]


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("which rows")
    group.add_argument(
        "--where", metavar="CONDITION", help="only these: 'command in (config_read, config_write) and not dac'"
    )
    group.add_argument(
        "--from", dest="start", metavar="TIME", help="from here on: 1.5ms, 3000clk, 120000sample; a bare number is us"
    )
    group.add_argument("--to", dest="stop", metavar="TIME", help="before this, likewise")
    group.add_argument("--around", metavar="TIME", help="near it: 1.5ms for 10 us either way, 1.5ms,50us for 50 us")


def choice(args: argparse.Namespace, table: Table) -> Condition | None:
    """The condition that the arguments make, or None where they choose nothing: then no table is imported for it."""
    if args.where is None and args.around is None and args.start is None and args.stop is None:
        return None
    return _choice(args, table, limits(args))


def limits(args: argparse.Namespace) -> list[Moment | None]:
    """What --from and --to say."""
    from pcitrace.instrument.moments import moment

    start, stop = (moment(text) if text is not None else None for text in (args.start, args.stop))
    if start is not None and stop is not None and start.unit is stop.unit and stop.value <= start.value:
        raise argparse.ArgumentError(None, f"--to {args.stop} is not after --from {args.start}")
    return [start, stop]


def tell_why_none(choice: Choice) -> None:
    """Say so where nothing was chosen, and why: what was not captured fulfils no condition."""
    if choice.why_none is not None:
        print(f"pcitrace: {choice.why_none}", file=sys.stderr)


def check(args: argparse.Namespace, table: Table) -> Condition | None:
    """The condition before any work, so that what is wrong is said; :func:`chosen` places clocks and samples later."""
    from pcitrace.instrument.moments import Moment, Unit

    return _choice(args, table, [None if one is None else Moment(0.0, Unit.TIME) for one in limits(args)])


def _choice(args: argparse.Namespace, table: Table, stated: list[Moment | None]) -> Condition | None:
    if not (args.where or args.around) and stated == [None, None]:
        return None
    from pcitrace.instrument.conditions import condition
    from pcitrace.instrument.moments import around, between

    if args.around is not None and stated != [None, None]:
        raise argparse.ArgumentError(None, "--around says from where to where; leave out --from and --to")
    placed = around(table, args.around) if args.around is not None else between(table, *stated)
    where = condition(args.where, table) if args.where is not None else None
    return where & placed if where is not None else placed


def chosen(rows: pd.DataFrame, args: argparse.Namespace, table: Table, run: Run | None = None) -> pd.DataFrame:
    """The rows that were asked for; `run` tells when a clock or a sample was, where the table does not.

    Where there are none it is said why: what was not captured fulfils no condition.
    """
    found = _fulfilling(rows, args, table, run)
    if len(rows) and not len(found):
        condition = check(args, table)
        looked_at = sorted(condition.columns) if args.where is not None and condition is not None else []
        unknown = ", ".join(name for name in looked_at if rows[name].isna().all())
        why = f"; {unknown}: not known in any row" if unknown else ": no row fulfils the condition"
        print(f"pcitrace: {table.name}: nothing was chosen{why}", file=sys.stderr)
    return found


def _fulfilling(rows: pd.DataFrame, args: argparse.Namespace, table: Table, run: Run | None) -> pd.DataFrame:
    import pandas as pd

    from pcitrace.instrument.moments import Unit

    stated = limits(args)
    units = {limit.unit for limit in stated if limit is not None} - {Unit.TIME, *table.column_names}
    if run is None or not units:
        condition = _choice(args, table, stated)
        return rows if condition is None else rows[condition.fulfilled(rows)]
    parts = [rows[:0]]
    for name in rows["bus"].unique():
        condition = _choice(args, table, [_when(run, name, limit) for limit in stated])
        mine = rows[rows["bus"] == name]
        parts.append(mine if condition is None else mine[condition.fulfilled(mine)])
    return pd.concat(parts)


def _when(run: Run, name: str, limit: Moment | None) -> Moment | None:
    """A clock or sample of a bus as a time on the run's axis; exact where a transaction begins."""
    import numpy as np

    from pcitrace.analysis import on_axis
    from pcitrace.instrument.moments import Moment, Unit

    if limit is None or limit.unit is Unit.TIME:
        return limit
    bus = next(one for one in run.buses if name == one or name.startswith(f"{one} "))
    table = on_axis(run, bus, run[bus].transactions)
    places = table[limit.unit.value].to_numpy(dtype=float)
    times = table["start_us"].to_numpy(dtype=float)
    if len(places) < 2:
        return Moment(0.0, Unit.TIME)
    slope = (times[-1] - times[0]) / (places[-1] - places[0])
    if limit.value > places[-1]:
        return Moment(times[-1] + slope * (limit.value - places[-1]), Unit.TIME)
    return Moment(float(np.interp(limit.value, places, times)), Unit.TIME)
