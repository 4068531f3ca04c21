"""``pcitrace watch``: the bus while it runs."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pcitrace.cli.options import positive, whole
from pcitrace.errors import PciTraceError

if TYPE_CHECKING:
    from pcitrace.live.frames import Bench
    from pcitrace.live.metrics import Metrics
    from pcitrace.live.recent import Recent
    from pcitrace.live.until import Trigger
    from pcitrace.live.watcher import Status

_EPILOG = """\
examples:
  pcitrace watch --command 'sigrok-cli -d fx2lafw -c samplerate=24m --continuous -O binary' --channels .. --rate 24e6
  pcitrace watch --command 'sigrok-cli -d dreamsourcelab-dslogic --samples 16m -t FRAME#=f -O binary' --repeat ...
  pcitrace watch runs/7                                    what pcicap records there now
  pcitrace watch samples.bin --channels .. --rate 100e6 --json --idle 2
  pcitrace watch - --channels .. --rate 100e6 --until 'kind == "data_parity"' --pre 1ms --post 1ms -o parity.sr
  pcitrace watch runs/7 --metrics 9437                     numbers for Prometheus, on this machine only

The source is never held up: what the decoder is too slow for is left out, counted and marked as a gap.
"""


_FRAMES_US = 200_000.0
"""Last samples whose frames are followed, in us."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="pipe, -, growing raw samples, .vcd or .sr, run folder")
    parser.add_argument("--command", dest="program", metavar="CMD", help="start this; it writes raw samples")
    parser.add_argument("--repeat", action="store_true", help="start it again when it ends: triggered bursts")
    parser.add_argument("--channels", metavar="A,B,..", help="of raw samples: names from bit 0 on")
    parser.add_argument("--rate", metavar="HZ", type=positive, help="sampling rate: 100e6")
    parser.add_argument("--clock-mhz", metavar="MHZ", type=positive, help="state mode: every sample is one clock")
    parser.add_argument("--unit-size", metavar="BYTES", type=whole, help="a sample (default: as channels need)")
    parser.add_argument("--format", choices=["binary"], default="binary", help="raw samples")
    parser.add_argument("--wiring", metavar="W.toml", help="which channel is which line, over what the names say")
    parser.add_argument("--bus", metavar="NAME", help="only this bus (default: all that are complete)")
    parser.add_argument("--json", action="store_true", help="a line of JSON every so often, the last one at the end")
    parser.add_argument("--every", metavar="S", type=positive, default=0.2, help="seconds between (default: 0.2)")
    parser.add_argument("--seconds", metavar="S", type=positive, default=5.0, help="what is recent (default: 5)")
    parser.add_argument("--idle", metavar="S", type=positive, help="end when a file has not grown for so long")
    parser.add_argument("--bench", metavar="RUN", type=Path, help="run folder with two hosts: follow their frames")
    parser.add_argument("--no-rules", action="store_true", help="do not judge clocks by the rules of the bus")
    parser.add_argument(
        "--metrics",
        metavar="PORT",
        type=whole,
        nargs="?",
        const=9437,
        help="Prometheus text on 127.0.0.1 (default port: 9437; 0: any)",
    )
    parser.add_argument("--until", metavar="CONDITION", help="end at a transaction, or a problem, like this")
    parser.add_argument("--pre", metavar="TIME", default="1ms", help="what is kept before it (default: 1ms)")
    parser.add_argument("--post", metavar="TIME", default="1ms", help="what is kept after it (default: 1ms)")
    parser.add_argument("-o", "--output", metavar="FILE.sr", type=Path, help="where that is written")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Watch."""
    from pcitrace.live import session
    from pcitrace.live.intake import Intake
    from pcitrace.live.sources import Follower

    if (args.file is None) == (args.program is None):
        raise argparse.ArgumentError(None, "name a FILE (- for standard input), or a program with --command")
    if args.output is not None and args.until is None:
        raise argparse.ArgumentError(None, "-o keeps what --until waits for: give both")
    channels = args.channels.split(",") if args.channels else ()
    samples = session.Samples(channels, args.rate, args.clock_mhz, args.unit_size, args.wiring, args.bus)
    if args.program is not None:
        if not channels:
            raise argparse.ArgumentError(None, "raw samples need --channels A,B,..")
        source = session.command(args.program, args.repeat)
    else:
        source, samples = session.open_source(args.file, samples, args.idle)
        if args.output is not None and isinstance(source, Follower) and source.is_at(args.output):
            raise PciTraceError(f"{args.output}: this is what is watched; choose another name for what is kept")
    trigger = _trigger(args)
    keep_us = trigger.pre_us + trigger.post_us + 1e6 * args.every if trigger is not None else 0.0
    keep_us = max(keep_us, _FRAMES_US) if args.bench is not None else keep_us
    watched = session.watcher(
        samples, rules=not args.no_rules, keep_us=keep_us, seconds=args.seconds, trigger=trigger is not None
    )
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, frame: stopped.append(signum))
    intake = Intake(source, watched.stream.unit_size)
    with _metrics(args.metrics) as metrics, _bench(args.bench) as bench, _shown(args) as show:
        for status in session.watch(
            intake, watched, every_s=args.every, trigger=trigger, bench=bench, stop=lambda: bool(stopped)
        ):  # fmt: skip
            show(status)
            if metrics is not None:
                metrics.show(status)
    unknown = getattr(source, "unknown", 0)
    if unknown:
        print(f"pcitrace: {args.file}: {unknown} changes to x were read as 1", file=sys.stderr)
    if trigger is not None:
        _say_trigger(trigger, args, watched.recent)
    return 0


def _trigger(args: argparse.Namespace) -> Trigger | None:
    from pcitrace.instrument.moments import duration_us
    from pcitrace.live.until import Trigger

    if args.until is None:
        return None
    return Trigger(args.until, duration_us(args.pre), duration_us(args.post), args.output)


def _say_trigger(trigger: Trigger, args: argparse.Namespace, recent: Recent) -> None:
    if trigger.fired_us is None:
        print(f"pcitrace: {args.until}: did not happen", file=sys.stderr)
        return
    count = trigger.save(recent)
    kept = "" if count is None else f"; {count} samples around it -> {args.output}"
    print(f"pcitrace: {args.until}: at {trigger.fired_us:.3f} us{kept}", file=sys.stderr)


@contextmanager
def _metrics(port: int | None) -> Iterator[Metrics | None]:
    if port is None:
        yield None
        return
    from pcitrace.live.metrics import Metrics

    metrics = Metrics(port)
    print(f"pcitrace: metrics: http://127.0.0.1:{metrics.port}/metrics", file=sys.stderr)
    try:
        yield metrics
    finally:
        metrics.close()


@contextmanager
def _bench(folder: Path | None) -> Iterator[Bench | None]:
    if folder is None:
        yield None
        return
    from pcitrace.live.frames import Bench

    bench = Bench(folder, _FRAMES_US)
    try:
        yield bench
    finally:
        bench.close()


@contextmanager
def _shown(args: argparse.Namespace) -> Iterator[Callable[[Status], None]]:
    """Give what shows a status: lines of JSON, or a view that is drawn anew."""
    if args.json:

        def line(status: Status) -> None:
            print(json.dumps(status.as_dict(), allow_nan=False), flush=True)

        yield line
        return
    from pcitrace.live.show import render

    title = args.file or args.program
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError as error:
        raise PciTraceError(f"the view needs rich: pip install 'pcitrace[live]', or use --json ({error})") from error
    with Live(console=Console(), auto_refresh=False, transient=False) as live:
        yield lambda status: live.update(render(status, title), refresh=True)
