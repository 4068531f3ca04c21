"""The frames of a recording: framegen as a supervised child that waits for the analyser between its steps."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pcicap import children
from pcicap.errors import FrameError, PlanError
from pcicap.plan_frames import FrameTest

_READY_SECONDS = 30.0
_AFTER_SECONDS = 60.0
_STOP_GRACE_S = 5.0
_TICK_S = 0.05


def find_program() -> str:
    """Path of framegen: beside the pcicap that runs, or on PATH.

    Raises
    ------
    FrameError
        Neither.
    """
    scripts = Path(sysconfig.get_path("scripts"))
    for folder in (Path(sys.argv[0]).parent, scripts):
        if os.access(folder / "framegen", os.X_OK) and (folder / "framegen").is_file():
            return str(folder / "framegen")
    program = shutil.which("framegen")
    if program is None:
        raise FrameError("framegen: not found beside pcicap nor on PATH; install pcicap with pip, which builds it")
    return program


def version() -> str | None:
    """Version of framegen; None where it is not installed."""
    try:
        done = subprocess.run([find_program(), "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (FrameError, OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.split()[-1] if done.stdout.split() else None


def interfaces() -> list[dict[str, Any]]:
    """Network interfaces as ``framegen interfaces --json`` describes them.

    Raises
    ------
    FrameError
        framegen is missing or failed.
    """
    done = subprocess.run(
        [find_program(), "interfaces", "--json"], capture_output=True, text=True, timeout=10, check=False
    )
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["interfaces"]
    except (ValueError, KeyError):
        raise FrameError(f"framegen interfaces: {done.stderr.strip() or 'no answer'}") from None
    return found


def absent(named: Mapping[str, str]) -> list[PlanError]:
    """Faults of those interfaces that this machine does not have; they are given by the key that names them."""
    here = [str(one["name"]) for one in interfaces()] if named else []
    return [
        PlanError(key, f"no interface {name} here", f"write one of {', '.join(here)}")
        for key, name in named.items()
        if name not in here
    ]


def dry_run(key: str, test: FrameTest, interface: str, peers: tuple[str, ...]) -> list[str]:
    """What framegen would send, in its words; nothing is sent. `key` is that of the test in the plan.

    Raises
    ------
    PlanError
        It would refuse.
    """
    command = [find_program(), *test.arguments(), "-i", interface, "--dry-run"]
    for peer in peers:
        command += ["-p", peer]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        return done.stdout.splitlines()
    said = done.stderr.strip().removeprefix("framegen: ") or f"status {done.returncode}"
    raise PlanError(key, f"framegen would refuse it: {said}", "change the plan")


@dataclass(frozen=True)
class Progress:
    """Where the test is: frames sent, received and planned, and for how long it has been going on."""

    sent: int = 0
    received: int = 0
    planned: int | None = None
    elapsed_s: float = 0.0

    @property
    def missing(self) -> int:
        """Frames sent and not received so far: lost, under way, or not reported yet."""
        return max(0, self.sent - self.received)

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None while nothing tells."""
        if not self.planned or not self.sent:
            return None
        return max(0.0, self.elapsed_s * (self.planned - self.sent) / self.sent)


class Framegen:
    """One test, in steps: `start`, `wait_ready` (peers met, clocks compared), `go`, `wait_sent`, `finish`.

    Parameters
    ----------
    test : FrameTest
        What to send.
    interface : str
        Interface on this machine.
    peers : tuple of str
        Addresses of the other ends.
    folder : Path
        Where the frame logs and ``summary.json`` go.
    step_seconds : float
        How long framegen waits for the next step before it takes pcicap for dead.
    """

    def __init__(
        self, test: FrameTest, interface: str, peers: tuple[str, ...], folder: Path, step_seconds: float
    ) -> None:
        self._test = test
        self._folder = folder
        self._command = [find_program(), *test.arguments(), "-i", interface]
        for peer in peers:
            self._command += ["-p", peer]
        self._command += ["-o", str(folder), "--json", "--step", "--step-seconds", f"{step_seconds:g}"]
        self._child: subprocess.Popen[bytes] | None = None
        self._events: set[str] = set()
        self._errors: list[str] = []
        self.progress = Progress()
        self.summary: dict[str, Any] | None = None

    def start(self) -> None:
        """Start the child; call from the main thread (see `children.spawn`)."""
        self._child = children.spawn(self._command, parent=os.getpid(), stdin=subprocess.PIPE)
        assert self._child.stdout
        assert self._child.stderr
        self._threads = [
            threading.Thread(target=self._follow, args=(self._child.stdout,), daemon=True),
            threading.Thread(target=self._complain, args=(self._child.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wait_ready(self, keep_going: Callable[[], None]) -> None:
        """Wait until the peers have answered and the clocks have been compared.

        Parameters
        ----------
        keep_going : callable
            Called several times a second; what it raises ends the wait.

        Raises
        ------
        FrameError
            framegen refused or its peer is absent.
        """
        self._wait("ready", _READY_SECONDS, keep_going)

    def go(self, at_ns: int | None = None) -> None:
        """Send the frames, at once or from a time of CLOCK_MONOTONIC_RAW on."""
        self._say("go" if at_ns is None else f"at {at_ns}")

    def wait_sent(self, keep_going: Callable[[], None]) -> None:
        """Wait until all frames are through."""
        self._wait("sent", self._test.max_seconds + _AFTER_SECONDS, keep_going)

    def finish(self, keep_going: Callable[[], None]) -> None:
        """Let it compare the clocks again, fetch the peers' logs and write; returns when it has ended."""
        self._say()
        assert self._child
        until = time.monotonic() + _AFTER_SECONDS
        while self._child.poll() is None and time.monotonic() < until:
            keep_going()
            time.sleep(_TICK_S)
        self._end()

    def stop(self) -> None:
        """End it early: it still fetches and writes what it can."""
        if self._child:
            children.stop(self._child, _STOP_GRACE_S)
            self._end()

    def reason(self) -> str | None:
        """Why the test is not complete; None when it is."""
        status = self._child.returncode if self._child else None
        if self.summary is None or status != 0 or not self.summary.get("complete"):
            said = (self.summary or {}).get("reason")
            return str(said or "") or (self._errors[-1] if self._errors else f"framegen ended with status {status}")
        return None

    def _wait(self, event: str, seconds: float, keep_going: Callable[[], None]) -> None:
        assert self._child
        until = time.monotonic() + seconds
        while event not in self._events:
            keep_going()
            if self._child.poll() is not None:
                self._end()
                if event in self._events:
                    return
                raise FrameError(self.reason() or "framegen ended before its frames were sent")
            if time.monotonic() > until:
                raise FrameError(f"framegen: not {event} after {seconds:g} s")
            time.sleep(_TICK_S / 5)

    def _say(self, line: str = "go") -> None:
        assert self._child
        assert self._child.stdin
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(f"{line}\n".encode())

    def _end(self) -> None:
        assert self._child
        children.stop(self._child)
        for thread in self._threads:
            thread.join()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe:
                pipe.close()

    def _follow(self, stdout: IO[bytes]) -> None:
        for line in _lines(stdout):
            try:
                event = json.loads(line)
            except ValueError:
                continue  # not ours to judge: what counts is the summary
            if not isinstance(event, dict):
                continue
            match event.get("event"):
                case "progress":
                    self.progress = Progress(event["sent"], event["received"], event.get("planned"), event["elapsed_s"])
                case "summary":
                    self.summary = event["summary"]
                case str(name):
                    self._events.add(name)

    def _complain(self, stderr: IO[bytes]) -> None:
        for line in _lines(stderr):
            if line:
                self._errors.append(line)


def _lines(pipe: IO[bytes]) -> Iterator[str]:
    rest = b""
    while data := pipe.read(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode("utf-8", "replace").strip() for line in lines)
    yield rest.decode("utf-8", "replace").strip()
