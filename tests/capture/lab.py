"""What the tests of pcicap share: captures made from a seed, plans, and a pcicap that is watched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from numpy.typing import NDArray

REPOSITORY = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((REPOSITORY / "pcitrace/run-folder.schema.json").read_text())
LINES = [f"{host}_{line}" for host in "AB" for line in ("CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "GNT#")]
"""The two buses that fit a BeagleLogic."""


def needed(program: str) -> str:
    """Path of a program without which there is no test; it fails then, and does not skip."""
    path = shutil.which(program)
    if path is None:
        pytest.fail(f"{program} is not installed; the tests of pcicap need it (apt-get install {program})")
    return path


def bus_samples(count: int, seed: int = 1) -> NDArray[np.uint16]:
    """Two clocks and twelve lines that change now and then, as a bus does."""
    random = np.random.default_rng(seed)
    time_ns = np.arange(count) * 10.0
    samples = np.zeros(count, np.uint16)
    for bit, name in enumerate(LINES):
        if name.endswith("CLK"):
            level = (time_ns / (30.0 + bit * 0.001)) % 1.0 < 0.5
        else:
            edges = random.random(count) < 0.01
            level = np.cumsum(edges) % 2 == 0
        samples |= (level.astype(np.uint16)) << bit
    return samples


def noise(count: int, seed: int = 2) -> NDArray[np.uint16]:
    """Samples that cannot be compressed, on 14 lines."""
    return np.random.default_rng(seed).integers(0, 1 << 14, count, np.uint16)


def write_sr(
    path: Path,
    data: bytes,
    *,
    names: Sequence[str] = LINES,
    unit_size: int = 2,
    rate: str | None = "100 MHz",
    chunks: Iterable[int] = (),
) -> Path:
    """A ``.sr`` file written with zipfile, in chunks of the given sizes and a last one with the rest."""
    lines = ["[global]", "sigrok version=0.5.2", "", "[device 1]", "capturefile=logic-1", f"total probes={len(names)}"]
    lines += [f"samplerate={rate}"] if rate else []
    lines += ["total analog=0", *(f"probe{bit + 1}={name}" for bit, name in enumerate(names)), f"unitsize={unit_size}"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("version", "2")
        archive.writestr("metadata", "\n".join(lines) + "\n")
        number = 1
        for size in (*chunks, len(data)):
            archive.writestr(f"logic-1-{number}", data[:size])
            data, number = data[size:], number + 1
    return path


def sr_bytes(path: Path) -> bytes:
    """All samples of a ``.sr`` file, read with zipfile; it checks the CRCs."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("logic-1")]
        return b"".join(archive.read(name) for name in sorted(names, key=lambda name: int(name[8:] or 0)))


def sigrok_bytes(path: Path) -> bytes:
    """The same, read by sigrok-cli."""
    command = [needed("sigrok-cli"), "-i", str(path), "-O", "binary"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True).stdout


def replay_plan(source: Path, *, analyser: str = "", replay: str = "", rest: str = "", name: str = "la") -> str:
    """Text of a plan with one replayed analyser."""
    return f"""
format = 1
[[analysers]]
name = "{name}"
{analyser}
[analysers.replay]
source = "{source}"
{replay}
[hosts.A]
[hosts.B]
{rest}
"""


@dataclass
class Done:
    """A pcicap that has ended."""

    status: int
    out: str
    err: str
    seconds: float


class Pcicap:
    """A running pcicap; its descendants are found by a mark in their environment."""

    def __init__(self, *arguments: str | Path, before: Sequence[str] = (), path: str | None = None) -> None:
        self._mark = uuid.uuid4().hex
        environment = {**os.environ, "PCICAP_TEST": self._mark}
        if path:
            environment["PATH"] = path
        self._begun = time.monotonic()
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "pcicap", *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def done(self, timeout: float = 60) -> Done:
        """Wait for the end, and for every descendant's."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for pid in self.left():
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"pcicap still ran after {timeout} s")
        seconds = time.monotonic() - self._begun
        until = time.monotonic() + 5
        while left := self.left():
            assert time.monotonic() < until, f"processes left: {[_command(pid) for pid in left]}"
            time.sleep(0.02)
        return Done(self.process.returncode, out, err, seconds)

    def left(self) -> list[int]:
        """Processes that this pcicap started and that still run."""
        mark = f"PCICAP_TEST={self._mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes() and b"\nState:\tZ" not in (folder / "status").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
        return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return "gone"


def pcicap(*arguments: str | Path, timeout: float = 60, before: Sequence[str] = (), path: str | None = None) -> Done:
    """Run pcicap to its end."""
    return Pcicap(*arguments, before=before, path=path).done(timeout)


def record(folder: Path, plan: str, name: str = "run", **options: Any) -> tuple[Done, Path]:
    """Record a plan into ``folder/name``."""
    (folder / "plan.toml").write_text(plan)
    return pcicap("record", folder / "plan.toml", "-o", folder / name, **options), folder / name


def read_run(folder: Path) -> dict[str, Any]:
    """run.toml of a folder, checked against the published schema."""
    run = tomllib.loads((folder / "run.toml").read_text())
    jsonschema.validate(run, SCHEMA)
    return run


class TwoHosts:
    """Two network namespaces joined by a veth pair; they end with the processes that hold them.

    Without root the namespaces lie in a user namespace of this user's own.
    """

    def __init__(self) -> None:
        unshare, nsenter = needed("unshare"), needed("nsenter")
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        keep = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        hold = ["sh", "-c", "echo; read _"]
        self._holders = [self._hold([unshare, *user, "--net", *hold])]
        self.a = [nsenter, "--target", str(self._holders[0].pid), *keep, "--net"]
        # the second one in the first one's user namespace
        enter = [nsenter, "--target", str(self._holders[0].pid), *keep] if keep else []
        self._holders.append(self._hold([*enter, unshare, "--net", *hold]))
        self.b = [nsenter, "--target", str(self._holders[1].pid), *keep, "--net"]
        ip = needed("ip")
        _run(
            *self.a,
            ip,
            "link",
            "add",
            "left",
            "type",
            "veth",
            "peer",
            "name",
            "right",
            "netns",
            str(self._holders[1].pid),
        )
        for host, name in ((self.a, "left"), (self.b, "right")):
            _run(*host, ip, "link", "set", "lo", "up")
            _run(*host, ip, "link", "set", name, "up")
        self._servers: list[subprocess.Popen[str]] = []

    @staticmethod
    def _hold(command: list[str]) -> subprocess.Popen[str]:
        holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert holder.stdout
        if not holder.stdout.readline():
            pytest.fail(f"no network namespace can be made here: {holder.communicate()[1]}")
        return holder

    def serve(self) -> tuple[subprocess.Popen[str], str]:
        """Start ``framegen serve`` on host B; the process and its address."""
        server = subprocess.Popen(
            [*self.b, needed_framegen(), "serve", "-i", "right", "--json"], stdout=subprocess.PIPE, text=True
        )
        self._servers.append(server)
        assert server.stdout
        return server, json.loads(server.stdout.readline())["mac"]

    def right_mac(self) -> str:
        """Address of host B."""
        words = [*self.b, needed("ip"), "-j", "link", "show", "right"]
        found: str = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=20).stdout)[0]["address"]
        return found

    def link(self, state: str) -> None:
        """Set B's end of the link up or down."""
        _run(*self.b, needed("ip"), "link", "set", "right", state)

    def close(self) -> None:
        """End servers and namespaces."""
        for server in self._servers:
            server.terminate()
            server.communicate(timeout=10)
        for holder in self._holders:
            holder.communicate("\n", timeout=10)


def needed_framegen() -> str:
    """framegen beside this Python, where installing pcicap has put it."""
    program = Path(sys.executable).with_name("framegen")
    if not program.exists():
        pytest.fail("framegen is not installed; pip install ./capture")
    return str(program)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=20)
