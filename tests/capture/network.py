"""Two hosts for the tests of framegen: network namespaces joined by veth, or by the impairment bridge."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

INTERFACE = "fg0"
_numbers = itertools.count()


def framegen() -> str:
    """Path of the framegen under test: $FRAMEGEN, or the installed one."""
    beside = Path(sys.executable).parent / "framegen"
    path = os.environ.get("FRAMEGEN") or (str(beside) if beside.exists() else shutil.which("framegen"))
    if path is None:
        pytest.fail("framegen is not installed: `pip install ./capture` builds it, or name one with FRAMEGEN")
    return path


def run(*command: str) -> str:
    """Run a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}: {done.stderr.strip()} (these tests need root or CAP_NET_ADMIN)")
    return done.stdout


def mac(number: int) -> str:
    """Ethernet address of host ``number``."""
    return f"02:00:00:00:00:{number:02x}"


@dataclass
class Ended:
    """A framegen that has ended."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it said, with --json."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of a test."""
        last = self.events[-1]
        assert last["event"] == "summary", (last, self.err)
        result: dict[str, Any] = last["summary"]
        return result


class Running:
    """A framegen under way; its output is collected line by line."""

    def __init__(self, command: list[str]) -> None:
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._errors: list[str] = []
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self._errors), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._news:
                lines.append(line)
                self._news.notify_all()

    def event(self, name: str, timeout: float = 20, after: int = 0, **least: int) -> dict[str, Any]:
        """Wait for the first event of that name, in the lines from `after` on, whose counts are at least these."""
        until = time.monotonic() + timeout
        with self._news:
            while True:
                for line in self.lines[after:]:
                    found: dict[str, Any] = json.loads(line)
                    if found["event"] == name and all(found[key] >= count for key, count in least.items()):
                        return found
                if not self._news.wait(max(0.0, until - time.monotonic())):
                    pytest.fail(f"no event {name} within {timeout} s: {self.lines} {self._errors}")

    def answer(self) -> None:
        """Write the line that --step waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, timeout: float = 60) -> Ended:
        """Wait until it has ended."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"framegen still ran after {timeout} s: {self.lines}")
        seconds = time.monotonic() - self.begun
        for reader in self._readers:
            reader.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return Ended(status, "".join(self.lines), "".join(self._errors), seconds)


@dataclass
class Host:
    """One network namespace."""

    namespace: str
    mac: str
    running: list[Running] = field(default_factory=list)

    def command(self, *words: str) -> list[str]:
        """A command inside the namespace."""
        return ["ip", "netns", "exec", self.namespace, *words]

    def ip(self, *words: str) -> str:
        """`ip` inside the namespace."""
        return run("ip", "-n", self.namespace, *words)

    def start(self, *words: str | Path | float) -> Running:
        """Start framegen with --json; the interface is added."""
        arguments = [str(word) for word in words]
        here = Running(self.command(framegen(), *arguments, "-i", INTERFACE, "--json"))
        self.running.append(here)
        return here

    def framegen(self, *words: str | Path | float, timeout: float = 60) -> Ended:
        """Run framegen to its end."""
        return self.start(*words).end(timeout)

    def serve(self, *words: str | float) -> Running:
        """Start `framegen serve` and wait until it listens."""
        server = self.start("serve", *words)
        server.event("listening")
        return server

    def test(self, kind: str, peer: Host, *words: str | Path | float, timeout: float = 60) -> dict[str, Any]:
        """Run a test that must be complete; its summary."""
        done = self.framegen(kind, "-p", peer.mac, *words, timeout=timeout)
        assert done.status == 0, done.err
        assert done.summary["complete"] is True
        return done.summary


@contextmanager
def hosts(count: int = 2) -> Iterator[list[Host]]:
    """Hosts on one wire: two joined directly, more by a Linux bridge."""
    with _namespaces(count) as made:
        if count == 2:
            _pair(made[0], INTERFACE, made[1], INTERFACE)
        else:
            with _namespaces(1) as (switch,):
                switch.ip("link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
                switch.ip("link", "set", "switch", "up")
                for number, host in enumerate(made):
                    _pair(host, INTERFACE, switch, f"port{number}")
                    switch.ip("link", "set", f"port{number}", "master", "switch")
                yield made
                return
        yield made


@dataclass
class Impaired:
    """Two hosts with the impairment bridge between them."""

    left: Host
    right: Host
    process: subprocess.Popen[str]

    def truth(self) -> dict[str, Any]:
        """End the bridge; what it did."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, err
        result: dict[str, Any] = json.loads(out)
        return result


@contextmanager
def impaired(to_right: Mapping[str, Any], to_left: Mapping[str, Any], seed: int = 1) -> Iterator[Impaired]:
    """Two hosts joined by bridge.py, with the impairments of either direction."""
    with _namespaces(2) as (left, right), _namespaces(1) as (middle,):
        _pair(left, INTERFACE, middle, "left")
        _pair(right, INTERFACE, middle, "right")
        settings = json.dumps({"seed": seed, "to_right": dict(to_right), "to_left": dict(to_left)})
        script = Path(__file__).with_name("bridge.py")
        process = subprocess.Popen(
            middle.command(sys.executable, str(script), settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate(timeout=5)
            yield Impaired(left, right, process)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate(timeout=5)


@contextmanager
def _namespaces(count: int) -> Iterator[list[Host]]:
    made: list[Host] = []
    try:
        for number in range(count):
            name = f"framegen-{os.getpid()}-{next(_numbers)}"
            run("ip", "netns", "add", name)
            made.append(Host(name, mac(number + 1)))
        yield made
    finally:
        for host in made:
            for running in host.running:
                if running.process.poll() is None:
                    running.process.kill()
                running.end(5)
            subprocess.run(["ip", "netns", "del", host.namespace], check=False, capture_output=True, timeout=30)


def _pair(a: Host, a_name: str, b: Host, b_name: str) -> None:
    """Join two namespaces by a veth pair; an end called INTERFACE gets its host's address."""
    words = ["ip", "link", "add", a_name, "netns", a.namespace, "address", a.mac, "type", "veth"]
    words += ["peer", "name", b_name, "netns", b.namespace]
    run(*words, *(["address", b.mac] if b_name == INTERFACE else []))
    for host, name in ((a, a_name), (b, b_name)):
        # No frames but ours: IPv6 would send its own when the link comes up.
        run("ip", "netns", "exec", host.namespace, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
        host.ip("link", "set", name, "up")


def read_log(folder: Path, summary: Mapping[str, Any], node: int, kind: str, point: int = 0) -> NDArray[Any]:
    """A frame log by its node and kind, as the summary names it."""
    entry = [log for log in summary["points"][point]["frame_logs"] if (log["node"], log["kind"]) == (node, kind)]
    assert len(entry) == 1, summary["points"][point]["frame_logs"]
    log: NDArray[Any] = np.load(folder / entry[0]["file"])
    assert len(log) == entry[0]["records"]
    return log
