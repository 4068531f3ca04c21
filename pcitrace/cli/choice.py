"""Which rows a subcommand is asked for: ``--where``, ``--from``, ``--to`` and ``--around``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from pcitrace.instrument.conditions import Condition
    from pcitrace.schema import Table

__all__ = ["add_choice", "choice", "chosen"]


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
    """The condition that the arguments make, or None where they choose nothing."""
    if not (args.where or args.start or args.stop or args.around):
        return None
    from pcitrace.instrument.conditions import condition
    from pcitrace.instrument.moments import around, between, moment

    if args.around is not None and (args.start is not None or args.stop is not None):
        raise argparse.ArgumentError(None, "--around says from where to where; leave out --from and --to")
    limits = [moment(text) if text is not None else None for text in (args.start, args.stop)]
    placed = around(table, args.around) if args.around is not None else between(table, *limits)
    where = condition(args.where, table) if args.where is not None else None
    return where & placed if where is not None else placed


def chosen(rows: pd.DataFrame, args: argparse.Namespace, table: Table) -> pd.DataFrame:
    """The rows that were asked for."""
    condition = choice(args, table)
    return rows if condition is None else rows[condition.fulfilled(rows)]
