"""Command line of pcicap.

Exit status: 0 the run is complete; 2 wrong use; 3 bad input (plan, capture); 4 not recorded, or incomplete.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from pcicap import __version__, devices, framegen, runfolder
from pcicap.errors import PcicapError, PlanError, collected, raise_all
from pcicap.plan import Plan, interfaces_of, load
from pcicap.plan import points as sweep_points
from pcicap.progress import Progress, count
from pcicap.record import record
from pcicap.replay_server import Fault, ReplayServer
from pcicap.replay_source import open_source
from pcicap.sweep import record_sweep
from pcicap.tools import PINGS, TOOLS, Drive, drive


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    # what follows a -- is for the program that is driven
    words = list(sys.argv[1:] if arguments is None else arguments)
    cut = words.index("--") if "--" in words else len(words)
    parser = _parser()
    options = parser.parse_args(words[:cut])
    if words[cut + 1 :] and options.run is not _drive:
        parser.error(f"unrecognized arguments: {' '.join(words[cut:])}")
    options.rest = tuple(words[cut + 1 :])
    try:
        return int(options.run(options))
    except PcicapError as error:
        for line in str(error).splitlines():
            print(f"pcicap: {line}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 4
    except BrokenPipeError:
        sys.stderr.close()
        return 4


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pcicap",
        description="Record the PCI buses of two hosts while raw Ethernet frames pass between them.",
        epilog="Start with 'pcicap devices', then 'pcicap plan --example > plan.toml'.",
    )
    parser.add_argument("--version", action="version", version=f"pcicap {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    command = commands.add_parser("record", help="carry out a plan and write a run folder")
    command.add_argument("plan", type=Path, help="plan (TOML)")
    command.add_argument("-o", "--output", type=Path, metavar="RUN", help="run folder to make")
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    command.add_argument("-q", "--quiet", action="store_true", help="no progress")
    command.set_defaults(run=_record)

    command = commands.add_parser("plan", help="check a plan, or print an example")
    command.add_argument("plan", type=Path, nargs="?", help="plan (TOML)")
    command.add_argument("--check", action="store_true", help="check the plan and say what it would do (the default)")
    command.add_argument("--example", action="store_true", help="print a plan with every key explained")
    command.set_defaults(run=_plan)

    command = commands.add_parser("replay", help="serve a capture as an analyser (BeagleLogic on loopback)")
    command.add_argument("capture", type=Path, help=".sr file or run folder, up to 100 MS/s")
    command.add_argument("--channels", metavar="NAME,...", help="channels to serve, in this order (at most 14)")
    command.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1 (a free one by default)")
    command.add_argument(
        "--paced", action="store_true", help="at the capture's own rate instead of as fast as possible"
    )
    command.add_argument("--loop", action="store_true", help="begin again at the end")
    command.add_argument("--rate-hz", type=float, help="sample rate, for a capture that states none")
    command.add_argument(
        "--fault", choices=[fault.value for fault in Fault], default="none", help="go wrong on purpose"
    )
    command.add_argument("--json", action="store_true", help="say what is served as one line of JSON")
    command.set_defaults(run=_replay)

    command = commands.add_parser("devices", help="analysers and network interfaces, and what suits PCI")
    command.add_argument(
        "--device", action="append", default=[], metavar="DRIVER:conn=CONN", help="ask this one too (may be repeated)"
    )
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(run=_devices)

    for name, tools in (("tcp", [tool for tool in TOOLS if tool not in PINGS]), ("ping", list(PINGS))):
        command = commands.add_parser(
            name,
            help=f"drive {', '.join(tools)} and keep what it says in a run folder",
            epilog="Options of the program follow behind --.",
        )
        command.add_argument("peer", help="the other end; there the tool's server runs")
        command.add_argument("-o", "--output", type=Path, required=True, metavar="RUN", help="run folder to make")
        command.add_argument("--tool", choices=tools, default=tools[0], help="which program")
        command.add_argument("--values", default="", metavar="V,...", help="one call for each; {} in options is it")
        command.add_argument("--max-seconds", type=float, default=60.0, help="for each call")
        command.add_argument(
            "--interface", metavar="NAME", help="by which the other end is reached; default: its route"
        )
        command.add_argument(
            "--serving", metavar="MAC", help="where framegen serve runs at the other end: its state is kept, too"
        )
        command.set_defaults(run=_drive)

    command = commands.add_parser("recover", help="make a run folder of one whose recording was killed")
    command.add_argument("folder", type=Path, help="NAME.partial")
    command.set_defaults(run=_recover)
    return parser


def _record(options: argparse.Namespace) -> int:
    if options.dry_run:
        return _say(options.plan)
    plan = load(options.plan)
    if options.output is None:
        print("pcicap: record: -o RUN is missing: the run folder to make", file=sys.stderr)
        return 2
    progress = Progress(options.quiet)
    for warning in plan.warnings:
        progress.step(f"warning: {warning}")
    if plan.sweep:
        reason = record_sweep(plan, options.plan.parent, options.output, progress)
    else:
        reason = record(plan, options.output, progress)
    if reason is None:
        return 0
    print(f"pcicap: {options.output}: incomplete: {reason}", file=sys.stderr)
    return 4


def _plan(options: argparse.Namespace) -> int:
    if options.example:
        print(resources.files("pcicap").joinpath("example-plan.toml").read_text(encoding="utf-8"), end="")
        return 0
    if options.plan is None:
        print("pcicap: plan: give a plan to check, or --example", file=sys.stderr)
        return 2
    return _say(options.plan)


def _say(path: Path) -> int:
    """What a plan would do, and that it can be done here; otherwise all that is wrong with it."""
    faults: list[PlanError] = []
    plan = None
    with collected(faults):
        plan = load(path)
    faults += framegen.absent(interfaces_of(path))
    if plan is None or faults:
        raise_all(faults)
    assert plan
    points = [point for _, point in sweep_points(plan, path.parent)] if plan.sweep else [plan]
    would = {line: None for point in points for line in _frames(point, faults)}
    if faults:
        raise_all(list({str(fault): fault for fault in faults}.values()))
    for line in (*_describe(plan), *would):
        print(line)
    if plan.sweep:
        print(f"sweep: {plan.sweep.key} over {len(points)} values, a run folder each")
    for warning in plan.warnings:
        print(f"warning: {warning}")
    print(f"{path}: ok")
    return 0


def _frames(plan: Plan, faults: list[PlanError]) -> list[str]:
    """What framegen would send; what it would refuse is collected."""
    if plan.test is None or plan.steering is None or plan.steering.interface is None:
        return []
    here, said = plan.steering.interface, []
    with collected(faults):
        said += framegen.dry_run("test", plan.test, here, plan.peers)
    for index, one in enumerate(plan.companions):
        with collected(faults):
            would = framegen.dry_run(f"companions[{index}].test", one.test, one.interface or here, one.peers)
            said += [f"companion {one.name} ({one.role}): {line}" for line in would]
    return said


def _describe(plan: Plan) -> list[str]:
    lines = []
    for analyser in plan.analysers:
        spec = analyser.spec
        if analyser.replay:
            lines.append(f"analyser {spec.name}: a replay of {analyser.replay.source}")
            continue
        rate = f"at {spec.rate_hz / 1e6:g} MS/s" if spec.rate_hz else f"clocked by the bus at {spec.clock_mhz:g} MHz"
        length = f"{count(spec.samples)} samples" if spec.samples else "until the frames are through"
        lines.append(f"analyser {spec.name}: {spec.driver}, {len(spec.channels)} lines, {rate}, {length}")
    for host in plan.hosts:
        where = plan.analysers[host.analyser].spec.name if host.analyser is not None else "not recorded"
        lines.append(f"host {host.name}: bus {host.bus} on {where}")
    if plan.test and plan.steering:
        command = " ".join(plan.test.arguments())
        lines.append(f"frames: {command} from {plan.steering.interface} to {', '.join(plan.peers)}")
        if plan.pause:
            words = f"{plan.pause.seconds:g} s, {plan.pause.after_ms:g} ms after the first frame"
            lines.append(f"pause: {plan.steering.interface} for {words}")
    else:
        lines.append("frames: none")
    return lines


def _replay(options: argparse.Namespace) -> int:
    names = options.channels.split(",") if options.channels else ()
    source = open_source(options.capture, names, options.rate_hz)
    try:
        server = ReplayServer(source, options.port, paced=options.paced, loop=options.loop, fault=Fault(options.fault))
    except (OSError, OverflowError) as error:
        print(f"pcicap: port {options.port}: {error}; leave --port out to take a free one", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({"conn": server.conn, **source.facts()}), flush=True)
    else:
        print(
            f"beaglelogic:conn={server.conn}  {len(source.channels)} channels at {source.rate_hz / 1e6:g} MS/s, "
            f"{count(source.info.samples)} samples; Ctrl-C ends it",
            flush=True,
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.serve()
    except KeyboardInterrupt:
        server.close()
    return 0


def _devices(options: argparse.Namespace) -> int:
    specs = []
    for text in options.device:
        driver, _, conn = text.partition(":conn=")
        specs.append((driver, conn))
    found = devices.report(specs)
    print(json.dumps(found, indent=2) if options.json else devices.text(found))
    return 0


def _drive(options: argparse.Namespace) -> int:
    values = tuple(filter(None, options.values.split(",")))
    where = (options.interface, options.serving)
    plan = Drive(options.tool, options.peer, options.rest, values, options.max_seconds, *where)
    reason = drive(plan, options.output)
    if reason is None:
        print(f"{options.output}: complete")
        return 0
    print(f"pcicap: {options.output}: incomplete: {reason}", file=sys.stderr)
    return 4


def _recover(options: argparse.Namespace) -> int:
    folder = runfolder.recover(options.folder)
    print(f"{folder}: readable, marked incomplete" if folder else f"{options.folder}: nothing was recorded; removed")
    return 0
