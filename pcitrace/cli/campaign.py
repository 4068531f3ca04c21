"""``pcitrace campaign``: many runs, on one machine or on many."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcitrace.cli.options import add_grants, add_json, counting, positive, print_json

if TYPE_CHECKING:
    from pcitrace.campaign import Campaign, Limits

_EPILOG = """\
examples:
  pcitrace campaign run 'runs/*' -o results            every run once, on all cores of this machine
  pcitrace campaign run s3://bucket/runs -o s3://bucket/results --scheduler tcp://head:8786
  pcitrace campaign status results                     what is done, what failed and why
  pcitrace campaign retry results                      what failed once more, with the options and limits it had
  pcitrace campaign collect results -o constants.csv   one table of all numbers
  pcitrace campaign report results -o pages            pages/index.html: what failed, findings, a row a run
  pcitrace campaign one runs/7 -o results              one run, without Dask: for Slurm arrays and Snakemake

What is done is never done again: the same command goes on where it was ended. docs/campaigns.md has the layout.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    run_ = steps.add_parser("run", help="analyse what is not done")
    one = steps.add_parser("one", help="analyse one run here, without a cluster")
    retry = steps.add_parser("retry", help="analyse what failed once more")
    for step in (run_, one):
        step.add_argument("patterns", metavar="PATTERN" if step is run_ else "RUN", nargs="+" if step is run_ else 1,
                          help="run folder, capture, or folder of such; path or URL, with * where wanted")  # fmt: skip
        _add_destination(step)
        _add_options(step)
    retry.add_argument("destination", metavar="DEST", help="destination of a campaign")
    for step in (run_, one, retry):
        _add_limits(step)
    for step in (run_, retry):
        where = step.add_mutually_exclusive_group()
        where.add_argument("--scheduler", metavar="ADDRESS", help="Dask scheduler: tcp://host:8786")
        where.add_argument(
            "--workers", metavar="N", type=counting, help="processes of this machine (default: all cores)"
        )
    status = steps.add_parser("status", help="say what is pending, running, done, failed, and why")
    status.add_argument("destination", metavar="DEST", help="destination of a campaign")
    add_json(status, "print as JSON")
    collect = steps.add_parser("collect", help="write all numbers of all runs as one table")
    collect.add_argument("destination", metavar="DEST", help="destination of a campaign")
    collect.add_argument(
        "-o", "--output", metavar="FILE", required=True, help=".csv, .parquet or .json (a row a number)"
    )
    collect.add_argument("--combined", metavar="FILE", help="write each constant, put together over the runs, too")
    report = steps.add_parser("report", help="write an overview as a page, and a page a run")
    report.add_argument("destination", metavar="DEST", help="destination of a campaign")
    report.add_argument("-o", "--output", metavar="FOLDER", required=True, help="folder for index.html and runs/")


def _add_destination(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", dest="destination", metavar="DEST", required=True, help="folder or URL")


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how runs are analysed."""
    parser.add_argument("--pages", action="store_true", help="write each run's whole report, too (some seconds a run)")
    parser.add_argument("--wiring", metavar="W.toml", help="of captures without a run.toml")
    add_grants(parser)
    parser.add_argument("--rate", metavar="HZ", type=positive, help="of captures that state no rate")
    parser.add_argument("--clock-mhz", metavar="MHZ", type=positive, help="of captures in state mode")
    parser.add_argument("--recover-clock", action="store_true", help="as for `pcitrace decode`")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Add what a run may take."""
    again = parser.prog.endswith(" retry")

    def default(value: float) -> str:
        return "(default: as it was)" if again else f"(default: {value:g})"

    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=positive,
        help=f"seconds a run, without those in which no processor is free for it {default(3600)}",
    )
    parser.add_argument("--memory-limit", metavar="MIB", type=positive, help=f"memory a run {default(4096)}")
    parser.add_argument(
        "--scratch-mib", metavar="MIB", type=positive, help=f"local disk a run for remote files {default(20480)}"
    )
    parser.add_argument("--scratch", metavar="FOLDER", help="where temporary files go (default: TMPDIR)")


def run(args: argparse.Namespace) -> int:
    """Do the step."""
    steps = {"run": _run, "one": _one, "retry": _retry, "status": _status, "collect": _collect, "report": _report}
    return steps[args.step](args)


def _limits(args: argparse.Namespace, before: Limits) -> Limits:
    """Return what a run may take: what is said, else what it was before."""
    said = {"seconds": args.time_limit, "memory_mib": args.memory_limit, "scratch_mib": args.scratch_mib}
    return replace(before, **{name: value for name, value in said.items() if value is not None})


def _of(args: argparse.Namespace) -> Campaign:
    from pcitrace.campaign import Campaign, Limits, Options

    wiring = None if args.wiring is None else Path(args.wiring).read_text(encoding="utf-8")
    options = Options(wiring, args.rate, args.clock_mhz, args.recover_clock, tuple(args.grant), args.pages)
    return Campaign(args.patterns, args.destination, options=options, limits=_limits(args, Limits()))


def _run(args: argparse.Namespace) -> int:
    return _go(args, _of(args))


def _retry(args: argparse.Namespace) -> int:
    from pcitrace.campaign import Campaign

    campaign = Campaign(destination=args.destination)
    campaign.limits = _limits(args, campaign.limits)
    again = campaign.retry()
    _say(f"{len(again)} failed runs are pending again")
    return _go(args, campaign)


def _go(args: argparse.Namespace, campaign: Campaign) -> int:
    _say(f"{len(campaign.runs)} runs -> {campaign.store.url}")
    bar = Progress(len(campaign.runs))
    found = campaign.run(args.scheduler, args.workers, scratch=args.scratch, progress=bar.at, say=bar.say)
    bar.close()
    counts = ", ".join(f"{found[name]} {name}" for name in ("done", "failed", "running", "pending") if found[name])
    print(f"{counts} -> {campaign.store.url}")
    if found["failed"]:
        _say(f"pcitrace campaign status {args.destination} says why; `retry` tries them again")
    return 0


class Progress:
    """How far it is, with the time left: a bar on a terminal, a line now and then elsewhere."""

    EVERY_S = 5.0

    def __init__(self, total: int) -> None:
        self._bar: Any = None
        self._begun, self._first, self._said = time.monotonic(), -1, 0.0
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit="run", file=sys.stderr)

    def at(self, done: int, total: int) -> None:
        """So many are over."""
        if self._bar is not None:
            if self._first < 0:
                self._bar.initial = done
            self._bar.update(done - self._bar.n)
        self._first = done if self._first < 0 else self._first
        now = time.monotonic()
        if self._bar is None and done > self._first and (now - self._said > self.EVERY_S or done == total):
            self._said = now
            left = (now - self._begun) / (done - self._first) * (total - done)
            _say(f"{done} of {total} runs, about {left:.0f} s left")

    def say(self, line: str) -> None:
        """Print a line without harm to the bar."""
        if self._bar is None:
            _say(line)
        else:
            self._bar.write(f"pcitrace: {line}", file=sys.stderr)

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()


def _one(args: argparse.Namespace) -> int:
    from pcitrace.campaign.errors import failure

    failed = 0
    for status in _of(args).one(scratch=args.scratch):
        print(f"{status['state']}: {status['run']} ({status['seconds']:.2f} s)")
        if status["state"] == "failed":
            failed = 3
            _say(failure(status["run"], status["reason"]))
    return failed


def _status(args: argparse.Namespace) -> int:
    from pcitrace.campaign import Campaign
    from pcitrace.campaign.errors import failure

    found = Campaign(destination=args.destination).status()
    if args.json:
        print_json(found)
        return 0
    print(", ".join(f"{found[name]} {name}" for name in ("pending", "running", "done", "failed")))
    for one in found["runs"]:
        took = "" if one["seconds"] is None else f"{one['seconds']:8.2f} s"
        held = "" if one["peak_mib"] is None else f"{one['peak_mib']:7.0f} MiB"
        which = failure(one["run"], one["reason"]) if one["reason"] else one["run"]
        print(f"{one['state']:<8}{took:>11}{held:>12}  {which}")
    return 0


def _collect(args: argparse.Namespace) -> int:
    from pcitrace.campaign import Campaign, collect, combine

    table = Campaign(destination=args.destination).constants
    collect.write(table, args.output)
    print(f"{len(table)} numbers of {table['run'].nunique()} runs -> {args.output}")
    if args.combined is not None:
        together = combine.combined(table)
        collect.write(together, args.combined)
        print(f"{len(together)} constants put together -> {args.combined}")
    return 0


def _report(args: argparse.Namespace) -> int:
    from pcitrace.campaign import Campaign, page

    print(f"-> {page.write(Campaign(destination=args.destination), Path(args.output))}")
    return 0


def _say(line: str) -> None:
    print(f"pcitrace: {line}", file=sys.stderr)
