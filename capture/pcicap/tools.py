"""``pcicap tcp`` and ``pcicap ping``: other programs, driven; what they said is kept as it is, in a run folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcicap import children, runfolder, tomlfile
from pcicap.errors import FrameError, RunFolderError
from pcicap.hostfacts import host_facts, versions
from pcicap.hoststates import HostStates, interface_to
from pcicap.interruption import InterruptionError, interruptible

_TICK_S = 0.05
_GRACE_S = 2.0
"""For the last words of a program that is asked to end: ping and iperf3 say then what they have so far."""


@dataclass(frozen=True)
class Tool:
    """A program and how it is called; ``{peer}`` and ``{output}`` are filled in.

    ``output`` is where a program writes its result itself; otherwise standard output is the result.
    """

    program: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    version: str
    suffix: str


PINGS = {"ping": "icmp", "irtt": "udp"}
"""Those that ask for an answer, and what their frames are."""

TOOLS = {
    "iperf3": Tool("iperf3", ("-c", "{peer}", "-J", "--get-server-output"), (), "--version", "json"),
    "nuttcp": Tool("nuttcp", ("-fparse",), ("{peer}",), "-V", "txt"),
    "nptcp": Tool("NPtcp", ("-h", "{peer}", "-o", "{output}"), (), "", "out"),
    "ping": Tool("ping", ("-D",), ("{peer}",), "-V", "txt"),
    "irtt": Tool("irtt", ("client", "-Q", "-o", "{output}"), ("{peer}",), "version", "json.gz"),
}


@dataclass(frozen=True)
class Drive:
    """Calls of one tool.

    Attributes
    ----------
    tool : str
        One of `TOOLS`.
    peer : str
        The other end: an address or a name.
    options : tuple of str
        Further options of the tool; ``{}`` in them stands for the value.
    values : tuple of str
        One call for each; empty: one call.
    max_seconds : float
        A call that takes longer is ended.
    interface : str or None
        By which this host reaches the other; None: as its routes say.
    serving : str or None
        Address of the other host's interface where ``framegen serve`` runs: its state is asked for, too.
    """

    tool: str
    peer: str
    options: tuple[str, ...]
    values: tuple[str, ...]
    max_seconds: float
    interface: str | None = None
    serving: str | None = None


def drive(plan: Drive, target: Path) -> str | None:
    """Call the tool and write a run folder.

    Returns
    -------
    str or None
        Why it is incomplete; None when every call ended well.

    Raises
    ------
    FrameError
        The tool is not installed, or the hosts' state cannot be asked for.
    RunFolderError
        The folder exists.
    """
    tool = TOOLS[plan.tool]
    if shutil.which(tool.program) is None:
        raise FrameError(f"{tool.program}: not installed; install it, on the other host as well")
    if target.exists():
        raise RunFolderError(f"{target}: exists; choose another name, a recording is never written over")
    interface = plan.interface or interface_to(plan.peer)
    path = runfolder.partial(target)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be made ({error.strerror}); choose another place") from None
    states = HostStates(interface, plan.serving, ("here", "peer"), path)
    try:
        states.ask("before")
    except BaseException:
        shutil.rmtree(path)  # nothing was measured yet
        raise
    kind = "ping" if plan.tool in PINGS else "tcp"
    run: dict[str, Any] = {
        "format": runfolder.FORMAT,
        "origin": "captured",
        "created": runfolder.now(),
        "versions": versions(),
        "hosts": {
            "here": {"interface": interface, "facts": host_facts(interface)},
            "peer": {"facts": {"address": plan.peer}},
        },
        "test": {"kind": kind, "transport": PINGS.get(plan.tool, "tcp")},
        "host_states": states.entries,
        "tool_outputs": [],
    }
    reason = None
    with interruptible() as check:
        for value in plan.values or ("",):
            call = _Call.of(plan, tool, value, path)
            run["tool_outputs"].append(call.entry)
            _note(path, run)
            failed = call.carry_out(plan.max_seconds, check)
            reason = reason or failed
            if _ended_by(check):
                break
        try:
            states.ask("after")
        except FrameError as error:
            reason = reason or str(error)
        runfolder.close(path, target, {**run, "complete": reason is None, "reason": reason})
    return reason


def _note(path: Path, run: dict[str, Any]) -> None:
    """Write run.toml as it will be read should pcicap be killed: with the call under way, where its file is there."""
    there = [entry for entry in run["tool_outputs"] if (path / entry["file"]).exists()]
    tomlfile.write(path / "run.toml", {**run, "tool_outputs": there, "complete": False, "reason": runfolder.KILLED})


@dataclass
class _Call:
    """One call: its entry in run.toml, which is there before it begins, and what comes of it."""

    tool: Tool
    file: Path
    entry: dict[str, Any]

    @classmethod
    def of(cls, plan: Drive, tool: Tool, value: str, folder: Path) -> _Call:
        """What is to be called for a value of the plan."""
        file = _file(folder, plan.tool, value, tool.suffix)
        if "{output}" not in tool.before:
            file.touch()
        fill = {"{peer}": plan.peer, "{output}": str(file)}
        given = [word.replace("{}", value) for word in plan.options]
        command = [tool.program, *(fill.get(word, word) for word in tool.before), *given]
        command += [fill.get(word, word) for word in tool.after]
        entry = {
            "file": file.name,
            "tool": plan.tool,
            "host": "here",
            "peer": plan.peer,
            "version": _version(tool),
            "command": command,
            "started_unix_ns": time.time_ns(),
            "value": value or None,
        }
        return cls(tool, file, entry)

    def carry_out(self, max_seconds: float, check: Callable[[], None]) -> str | None:
        """Call it, its output in its file as it comes; what went wrong."""
        command = ["env", "LC_ALL=C", *self.entry["command"]]  # words that can be read again
        if "{output}" in self.tool.before:
            child = children.spawn(command, parent=os.getpid())
            said, errors, ended = _heard(child, max_seconds, check)
            if not self.file.exists():
                self.file.write_bytes(said)
        else:
            with self.file.open("wb") as out:
                child = children.spawn(command, parent=os.getpid(), stdout=out)
            _, errors, ended = _heard(child, max_seconds, check)
            said = self.file.read_bytes()
        self.entry["status"] = child.returncode
        complaint = _complaint(said) if self.entry["tool"] == "iperf3" else None
        if child.returncode == 0 and not ended and complaint is None:
            return None
        why = ended or complaint or _last_line(errors or said) or f"status {child.returncode}"
        value = self.entry["value"]
        return f"{self.tool.program}{f' ({value})' if value else ''}: {why}"


def _file(folder: Path, tool: str, value: str, suffix: str) -> Path:
    """A file for what a call says; calls with one value, or with values that are written alike, have one each."""
    slug = re.sub(r"[^A-Za-z0-9.+-]+", "_", value)
    stem = f"{tool}{f'-{slug}' if slug else ''}"
    file, number = folder / f"{stem}.{suffix}", 1
    while file.exists():
        number += 1
        file = folder / f"{stem}_{number}.{suffix}"
    return file


def _heard(child: subprocess.Popen[bytes], max_seconds: float, check: Callable[[], None]) -> tuple[bytes, bytes, str]:
    """What a program says to us until its end, and why it was ended before, if it was."""
    until, ended = time.monotonic() + max_seconds, ""
    while True:
        try:
            return *child.communicate(timeout=_GRACE_S if ended else _TICK_S), ended
        except subprocess.TimeoutExpired:
            if ended:
                child.kill()
                return *child.communicate(), ended
        ended = _ended_by(check) or (f"longer than {max_seconds:g} s" if time.monotonic() > until else "")
        if ended:
            child.send_signal(signal.SIGINT)


def _ended_by(check: Callable[[], None]) -> str:
    """Which signal wants an end; empty: none."""
    try:
        check()
    except InterruptionError as interruption:
        return str(interruption)
    return ""


def _complaint(said: bytes) -> str | None:
    """What iperf3 says went wrong; with -J it does so in its JSON, and ends with 0 also where it could not connect."""
    try:
        content = json.loads(said)
    except ValueError:
        return None
    return str(content["error"]) if isinstance(content, dict) and "error" in content else None


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def _version(tool: Tool) -> str | None:
    """First line of what it says of itself; None where it says nothing."""
    if not tool.version:
        return None
    try:
        done = subprocess.run([tool.program, tool.version], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else None
