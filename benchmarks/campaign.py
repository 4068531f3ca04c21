"""What a campaign costs: over shell loops with as many jobs, and Dask's scheduler a task.

    python benchmarks/campaign.py [--runs 40]
    python benchmarks/campaign.py --runs 200 --frames 54 --beside

The same runs go through `pcitrace campaign run --workers 2`, through `xargs -P 2 pcitrace campaign one`, and through
`xargs -P 2 pcitrace report --json`, which has no limits and writes nothing, alternately. The campaign may need 10 %
more than the cheaper of the loops. With `--beside` the campaign and the loop of reports run at the same time, so that
whatever else the machine does slows both: who ends first costs less. Then tasks that do nothing go through a scheduler:
its processor time a task says how many workers it can keep busy with runs of a second.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pcitrace.cli import main as cli

LIMIT = 1.10
BIN = Path(sys.executable).parent
TASKS = """\
import distributed, time
if __name__ == "__main__":
    with distributed.Client({address!r}) as client:
        client.submit(abs, -1).result()
        futures = [client.submit(abs, number, key=f"run-{{number}}", pure=False) for number in range({count})]
        distributed.wait(futures)
"""


def generate(folder: Path, count: int, frames: int) -> Path:
    """Write runs that are equal but for their titles."""
    values = [f"test.count={frames}", "sweep.loops=2"]
    assert cli(["simulate", "acenic-fig3.1", "-o", str(folder / "base"), "--set", *values]) == 0
    text = (folder / "base" / "run.toml").read_text()
    for number in range(count):
        shutil.copytree(folder / "base", folder / "runs" / f"run{number:03}")
        (folder / "runs" / f"run{number:03}" / "run.toml").write_text(
            text.replace('title = "', f'title = "{number} ', 1)
        )
    return folder / "runs"


def used(command: str) -> tuple[float, float]:
    """Run a shell command; return its seconds and those of processors."""
    began, before = time.monotonic(), os.times()
    subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, cpu


def beside(ways: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Run shell commands at the same time; return of each its seconds and those of processors."""
    began = time.monotonic()
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    left = {subprocess.Popen(["sh", "-c", command], **silent).pid: what for what, command in ways.items()}
    found = {}
    while left:
        process, status, usage = os.wait3(0)
        assert status == 0, left[process]
        found[left.pop(process)] = (time.monotonic() - began, usage.ru_utime + usage.ru_stime)
    return found


def scheduler_us(count: int) -> float:
    """Return the processor time of the scheduler a task (us)."""
    address = "tcp://127.0.0.1:18787"
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = ["--host", "127.0.0.1", "--port", "18787", "--no-dashboard"]
    scheduler = subprocess.Popen([BIN / "dask", "scheduler", *options], **silent)
    options = ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
    worker = subprocess.Popen([BIN / "dask", "worker", address, *options], **silent)
    try:
        found = []
        for tasks in (1, count):
            subprocess.run([sys.executable, "-c", TASKS.format(address=address, count=tasks)], check=True)
            ticks = Path(f"/proc/{scheduler.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            found.append(sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"))
        return (found[1] - found[0]) / count * 1e6
    finally:
        for one in (worker, scheduler):
            one.kill()
            one.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--frames", type=int, default=225, help="of each run")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--beside", action="store_true", help="campaign and loop of reports at the same time, once")
    parser.add_argument("--tasks", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        runs = generate(Path(name), args.runs, args.frames)
        loop = f"ls -d {runs}/* | xargs -P 2 -I{{}} {BIN}/pcitrace"
        ways = {
            "report in a loop": f"{loop} report {{}} --json",
            "campaign one in a loop": f"{loop} campaign one {{}} -o {name}/O",
            "campaign": f"{BIN}/pcitrace campaign run {runs} -o {name}/O --workers 2",
        }
        if args.beside:
            told = beside({what: ways[what] for what in ("report in a loop", "campaign")})
            for what, (seconds, cpu) in told.items():
                print(f"{what}: {args.runs} runs in {seconds:.1f} s, {cpu:.1f} s of processors")
            sys.exit(told["campaign"][0] > LIMIT * told["report in a loop"][0])
        took: dict[str, list[tuple[float, float]]] = {what: [] for what in ways}
        for number in range(args.times):
            for what, command in ways.items():
                took[what].append(used(command.replace(f"{name}/O", f"{name}/{what.replace(' ', '-')}{number}")))
    best = {what: tuple(min(column) for column in zip(*found, strict=True)) for what, found in took.items()}
    for what, (seconds, cpu) in best.items():
        print(f"{what}: {args.runs} runs in {seconds:.1f} s, {cpu:.1f} s of processors")
    ratio = best["campaign"][1] / min(cpu for what, (_, cpu) in best.items() if what != "campaign")
    cost_us = scheduler_us(args.tasks)
    print(f"processors: {ratio:.2f} of the cheaper loop (limit {LIMIT})")
    print(f"scheduler: {cost_us:.0f} us a task, so {1e6 / cost_us:.0f} runs a second")
    if ratio > LIMIT:
        sys.exit("the limit is not kept")


if __name__ == "__main__":
    main()
