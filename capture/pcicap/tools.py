"""``pcicap tcp`` and ``pcicap ping``: other programs, driven; what they said is kept as it is, in a run folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcicap import runfolder
from pcicap.errors import FrameError, RunFolderError
from pcicap.hostfacts import host_facts, versions


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
    """

    tool: str
    peer: str
    options: tuple[str, ...]
    values: tuple[str, ...]
    max_seconds: float


def drive(plan: Drive, target: Path) -> str | None:
    """Call the tool and write a run folder.

    Returns
    -------
    str or None
        Why it is incomplete; None when every call ended well.

    Raises
    ------
    FrameError
        The tool is not installed.
    RunFolderError
        The folder exists.
    """
    tool = TOOLS[plan.tool]
    if shutil.which(tool.program) is None:
        raise FrameError(f"{tool.program}: not installed; install it, on the other host as well")
    if target.exists():
        raise RunFolderError(f"{target}: exists; choose another name, a recording is never written over")
    path = runfolder.partial(target)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be made ({error.strerror}); choose another place") from None
    kind = "ping" if plan.tool in PINGS else "tcp"
    run: dict[str, Any] = {
        "format": runfolder.FORMAT,
        "origin": "captured",
        "created": runfolder.now(),
        "versions": versions(),
        "hosts": {"here": {"facts": host_facts(None)}, "peer": {"facts": {"address": plan.peer}}},
        "test": {"kind": kind, "transport": PINGS.get(plan.tool, "tcp")},
        "tool_outputs": [],
    }
    reason = None
    for value in plan.values or ("",):
        entry, failed = _call(plan, tool, value, path)
        run["tool_outputs"].append(entry)
        reason = reason or failed
    runfolder.close(path, target, {**run, "complete": reason is None, "reason": reason})
    return reason


def _call(plan: Drive, tool: Tool, value: str, folder: Path) -> tuple[dict[str, Any], str | None]:
    """One call: its entry in run.toml, and what went wrong."""
    slug = re.sub(r"[^A-Za-z0-9.+-]+", "_", value)
    file = folder / f"{plan.tool}{f'-{slug}' if slug else ''}.{tool.suffix}"
    fill = {"{peer}": plan.peer, "{output}": str(file)}
    given = [word.replace("{}", value) for word in plan.options]
    command = [tool.program, *(fill.get(word, word) for word in tool.before), *given]
    command += [fill.get(word, word) for word in tool.after]
    started = time.time_ns()
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=plan.max_seconds, check=False
        )
        said, errors, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as ended:
        said, errors, status = ended.stdout or b"", f"longer than {plan.max_seconds:g} s".encode(), -1
    if "{output}" not in tool.before or not file.exists():
        file.write_bytes(said)
    entry = {
        "file": file.name,
        "tool": plan.tool,
        "host": "here",
        "peer": plan.peer,
        "version": _version(tool),
        "command": command,
        "started_unix_ns": started,
        "status": status,
        "value": value or None,
    }
    if status == 0 and not (plan.tool == "iperf3" and b'"error"' in said):
        return entry, None  # iperf3 -J ends with 0 also where it could not connect, and says so in its JSON
    words = (errors or said).decode("utf-8", "replace").strip().splitlines()
    return entry, f"{tool.program}{f' ({value})' if value else ''}: {words[-1] if words else f'status {status}'}"


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
