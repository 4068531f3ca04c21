"""``pcitrace compare``: runs side by side, with what differs in their set-ups."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pcitrace.cli.options import add_json, print_json
from pcitrace.errors import PciTraceError

if TYPE_CHECKING:
    import pandas as pd

_EPILOG = """\
examples:
  pcitrace compare runs/monday runs/tuesday
  pcitrace compare runs/* --constant t_nic_tx_us -o t_nic.svg
  pcitrace compare sweep --constant R_PCI_send_us_per_byte -o curve.pdf     points of a sweep: against the swept key
  pcitrace compare results --json                                           of a campaign that is there

RUN is a run folder, a capture, a folder of such, or the destination of a campaign, whose numbers are taken as they are.
"""


FIGURES = (".svg", ".png", ".pdf")
"""Ends of the names of figures, which say their formats."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folder, capture, sweep, or results of a campaign")
    parser.add_argument("--constant", metavar="NAME", action="append", help="only this number; may be given again")
    parser.add_argument("--against", metavar="KEY", help="parameter on the x axis, such as test.count")
    parser.add_argument("-o", "--output", metavar="FIGURE", type=Path, help="draw the numbers: .svg, .png, .pdf")
    add_json(parser, "print JSON")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Compare."""
    from pcitrace.campaign import compare

    if args.output is not None and args.output.suffix not in FIGURES:
        raise PciTraceError(f"{args.output}: end the name in {', '.join(FIGURES)}, by the format that is wanted")
    table = _numbers(args.runs)
    numbers, differ = compare.side_by_side(table, args.constant), compare.differences(table)
    if args.json:
        print_json({"numbers": _records(numbers), "differences": _records(differ), "swept": compare.swept(table)})
    else:
        print("what differs in the set-ups")
        print(differ.to_string(index=False) if len(differ) else "  nothing that is stated")
        print()
        print(numbers.to_string(index=False, float_format=lambda value: f"{value:.6g}", na_rep="unknown"))
    if args.output is not None:
        _draw(table, args.constant or list(dict.fromkeys(numbers["constant"])), args)
        print(f"-> {args.output}", file=sys.stderr)
    return 0


def _numbers(runs: list[str]) -> pd.DataFrame:
    """Return the numbers of all, those of a campaign as they are there."""
    import pandas as pd

    from pcitrace.campaign import Campaign, CampaignError
    from pcitrace.campaign.storage import Store

    tables, left = [], []
    for one in runs:
        if Store(one).info("campaigns") is not None:
            tables.append(Campaign(destination=one).constants)
        else:
            left.append(one)
    if left:
        with tempfile.TemporaryDirectory() as folder:
            campaign = Campaign(left, folder)
            for status in campaign.one():
                if status["state"] == "failed":
                    raise CampaignError(status["reason"])
            tables.append(campaign.constants)
    joined: pd.DataFrame = pd.concat(tables, ignore_index=True)
    if joined.empty:
        raise CampaignError(f"{' '.join(runs)}: no run is done; `pcitrace campaign status` says why")
    return joined


def _draw(table: pd.DataFrame, constants: list[str], args: argparse.Namespace) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PciTraceError(f"figures need matplotlib: pip install 'pcitrace[plot]' ({error})") from error
    from pcitrace.campaign import compare

    against = None if args.against is None else f"test.{args.against.removeprefix('test.')}"
    against = args.against if args.against in table else against
    if against is not None and against not in table:
        raise PciTraceError(f"--against {args.against}: no run states it")
    known = [one for one in constants if table.loc[table["constant"] == one, "value"].notna().any()]
    if not known:
        raise PciTraceError(f"nothing to draw: no run knows {', '.join(constants)}")
    columns = min(len(known), 3)
    lines = -(-len(known) // columns)
    page = Figure(figsize=(4.6 * columns, 3.2 * lines), layout="constrained")
    for place, constant in zip(page.subplots(lines, columns, squeeze=False).flat, known, strict=False):
        compare.plot(table, constant, ax=place, against=against)
    for place in page.axes[len(known) :]:
        place.remove()
    page.savefig(args.output)


def _records(table: pd.DataFrame) -> list[dict[str, object]]:
    told = table.astype("object").where(table.notna(), None)
    return [{str(key): value for key, value in one.items()} for one in told.to_dict("records")]
