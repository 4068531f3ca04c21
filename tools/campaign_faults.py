"""Run a campaign whose workers and scheduler are killed: nothing is lost, and nothing done twice.

    python tools/campaign_faults.py FOLDER --runs 200 --every 5

Generates runs, five of them poisonous (crash, hang, memory, damaged, empty), starts Dask's scheduler and two workers,
kills a worker every few seconds and the scheduler once, runs the campaign again as its message says, then `retry`. In
the end exactly the poisonous runs have failed, each with its reason; every other result is that of a single
`pcitrace report --json`; no more analyses were begun than runs and kills; and the same once more begins none.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from pcitrace.cli import main as cli

BIN = Path(sys.executable).parent
POISON = {
    "crash": "crashed: signal SIGSEGV",
    "hang.sr": "took longer than",
    "memory": "memory: needs more than",
    "damaged": "cut off",
    "empty": "an empty run",
}
HOOK = """
import os, signal, sys
BEGUN = os.environ["CAMPAIGN_BEGUN"]
def look(event, args):
    if event != "open" or "pcitrace.campaign" not in sys.orig_argv or not str(args[0]).endswith("run.toml"):
        return
    with os.fdopen(os.open(BEGUN, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as file:
        file.write(f"{os.getpid()} {args[0]}\\n")
    if "/crash/" in args[0]:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "/memory/" in args[0]:
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1 << 20)) * 16)
sys.addaudithook(look)
"""


def generate(folder: Path, count: int, frames: int) -> Path:
    """Write the runs: copies of a simulated one, each with a title of its own; return their folder."""
    base, runs = folder / "base", folder / "runs"
    command = ["simulate", "acenic-fig3.1", "-o", str(base), "--set", f"test.count={frames}", "sweep.loops=2"]
    subprocess.run([BIN / "pcitrace", *command], check=True, stdout=subprocess.DEVNULL)
    runs.mkdir()
    text = (base / "run.toml").read_text()
    names = [f"run{number:03}" for number in range(count - len(POISON))] + ["crash", "memory", "damaged"]
    for name in names:
        shutil.copytree(base, runs / name)
        (runs / name / "run.toml").write_text(text.replace('title = "', f'title = "{name}: ', 1))
    cut = runs / "damaged" / "bus.sr"
    cut.write_bytes(cut.read_bytes()[:-2000])
    (runs / "empty").mkdir()
    os.mkfifo(runs / "hang.sr")
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)
    return runs


class Cluster:
    """A scheduler and workers that are killed now and then."""

    def __init__(self, port: int, workers: int, environment: dict[str, str], log: Path) -> None:
        self.address, self._environment, self._log = f"tcp://127.0.0.1:{port}", environment, log.open("ab")
        self._scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        self._nannies = [
            self._start("worker", self.address, "--nthreads", "1", "--no-dashboard") for _ in range(workers)
        ]
        self.kills = 0

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([BIN / "dask", *arguments], env=self._environment, stdout=self._log, stderr=self._log)

    def kill_worker(self) -> None:
        """Kill a process that works; its nanny starts another."""
        nanny = self._nannies[self.kills % len(self._nannies)]
        for child in psutil.Process(nanny.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends or is started just now
                if "resource_tracker" not in " ".join(child.cmdline()):
                    child.send_signal(signal.SIGKILL)
                    self.kills += 1

    def kill_scheduler(self) -> None:
        """Kill it, with no chance to say goodbye."""
        self._scheduler.kill()
        self._scheduler.wait()

    def close(self) -> None:
        """End what is left."""
        for one in [*self._nannies, self._scheduler]:
            for child in psutil.Process(one.pid).children(recursive=True) if one.poll() is None else []:
                child.kill()
            one.kill()
            one.wait()
        self._log.close()


def campaign(*arguments: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a step of the campaign."""
    command = [str(BIN / "pcitrace"), "campaign", *arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class Trial:
    """The whole of it, in a folder."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options, self.out = folder, options, folder / "results"
        self.runs = generate(folder, options.runs, options.frames)
        self.begun = folder / "begun"
        self.environment = os.environ | {"CAMPAIGN_BEGUN": str(self.begun)}
        before = os.environ.get("PYTHONPATH")
        self.environment["PYTHONPATH"] = str(folder / "hook") + (f"{os.pathsep}{before}" if before else "")
        self.environment |= {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20"}
        self.kills = 0
        self.limits = ["--time-limit", str(options.limit), "--memory-limit", "700"]

    def go(self, step: list[str], kill_scheduler: bool) -> tuple[int, str]:
        """Do a step on a fresh cluster, killing meanwhile; return its exit status and what it said."""
        cluster = Cluster(self.options.port, 2, self.environment, self.folder / "dask.log")
        process = campaign(*step, "--scheduler", cluster.address, *self.limits, environment=self.environment)
        over = threading.Event()

        def kill() -> None:
            killed, before = not kill_scheduler, 0
            while not over.wait(self.options.every):
                done = len(list(self.out.glob("markers/*/*.json")))
                if not killed and done >= self.options.runs // 3:
                    cluster.kill_scheduler()
                    killed = True
                elif done > before:
                    # On a machine that is too slow for a run between two kills nothing would ever be done.
                    cluster.kill_worker()
                    before = done

        with ThreadPoolExecutor(1) as pool:
            killer = pool.submit(kill)
            try:
                said = process.communicate(timeout=self.options.patience)[1]
            finally:
                process.kill()
                over.set()
                killer.exception()
                cluster.close()
        killer.result()
        self.kills += cluster.kills + 2 * kill_scheduler
        return process.returncode, said

    def run(self) -> dict[str, object]:
        """Do all steps and check what is there; return the figures."""
        begin = ["run", f"{self.runs}/*", "-o", str(self.out)]
        started = time.monotonic()
        status, said = self.go(begin, kill_scheduler=True)
        assert status == 3, said
        assert "the scheduler went away" in said, said
        status, said = self.go(begin, kill_scheduler=False)
        assert status == 0, said
        seconds = time.monotonic() - started
        status, said = self.go(["retry", str(self.out)], kill_scheduler=False)
        assert status == 0, said
        told = json.loads(campaign("status", str(self.out), "--json", environment=self.environment).communicate()[0])
        self._check(told)
        begun = len(set(self.begun.read_text().splitlines()))
        campaign(*begin, *self.limits, environment=self.environment).communicate()
        assert len(set(self.begun.read_text().splitlines())) == begun, "what was done was begun again"
        # The hang and the empty run have no run.toml; crash, memory and damaged are begun once more by `retry`.
        expected = self.options.runs - 2
        assert begun <= expected + self.kills + 3, (begun, expected, self.kills)
        return {"runs": self.options.runs, "kills": self.kills, "analyses": begun, "seconds": round(seconds, 1)}

    def _check(self, told: dict) -> None:
        assert (told["pending"], told["running"]) == (0, 0), told
        failed = {Path(one["run"]).name: one["reason"] for one in told["runs"] if one["state"] == "failed"}
        assert set(failed) == set(POISON), failed
        for name, words in POISON.items():
            assert words in failed[name], failed[name]
        names = sorted({Path(one["run"]).name for one in told["runs"]} - set(POISON))
        assert len(names) == self.options.runs - len(POISON)
        for name in names[:: max(len(names) // self.options.compared, 1)]:
            [stored] = self.out.glob(f"results/*/{name}-*.json")
            here = json.loads(stored.read_text())
            here.pop("network")
            assert alone(self.runs / name) == here, name


def alone(run: Path) -> object:
    """Return what `pcitrace report --json` prints of a run."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        assert cli(["report", str(run), "--json"]) == 0
    return json.loads(said.getvalue())


def main() -> None:
    """Do it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="new folder")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--frames", type=int, default=300, help="of each run")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between kills, or as a run needs")
    parser.add_argument("--limit", type=float, default=3.0, help="seconds a run may take")
    parser.add_argument("--compared", type=int, default=200, help="runs compared with a single report")
    parser.add_argument("--patience", type=float, default=1200.0, help="seconds a step may take")
    parser.add_argument("--port", type=int, default=18786)
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    print(json.dumps(Trial(options.folder, options).run()))


if __name__ == "__main__":
    main()
