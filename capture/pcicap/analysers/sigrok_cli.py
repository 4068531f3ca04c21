"""Command lines for sigrok-cli 0.7, and what it says.

Facts about it that shape this module: its exit status says nothing; what happens is seen only on stderr at
``-l 4``; ``--continuous`` ends when its stdin does, or with a byte on it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pcicap.errors import AnalyserError

_SCANS = 3
_QUERY_SECONDS = 20.0


@dataclass(frozen=True)
class Device:
    """A device as ``sigrok-cli --show`` describes it.

    Attributes
    ----------
    driver, model : str
        Driver and the device's own name.
    conn : str
        How to reach it; empty where the driver needs nothing.
    channels : tuple of str
        Logic channels, in order: the n-th is bit n of a sample.
    options : dict of str to str
        Option -> the rest of its line (range, values, current).
    max_rate_hz : float or None
        Fastest rate; None where the driver does not list any.
    triggers : str
        The characters of ``01rfe`` the driver takes; empty without triggers.
    logic : bool
        Whether it is a logic analyser at all.
    """

    driver: str
    model: str
    conn: str
    channels: tuple[str, ...]
    options: dict[str, str]
    max_rate_hz: float | None
    triggers: str
    logic: bool


def device_argument(driver: str, conn: str, options: Mapping[str, str]) -> str:
    """Value of ``-d``."""
    parts = [driver]
    if conn:
        parts.append(f"conn={conn}")
    parts += [f"{key}={value}" for key, value in options.items()]
    return ":".join(parts)


def query(arguments: list[str], timeout_s: float = _QUERY_SECONDS) -> tuple[str, str]:
    """Run sigrok-cli for something that ends soon; returns stdout and stderr.

    Raises
    ------
    AnalyserError
        Not installed, or no answer in time.
    """
    program = find_program()
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, text=True, errors="replace", check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise AnalyserError(
            f"sigrok-cli {' '.join(arguments)}: no answer in {timeout_s:g} s; unplug the device and plug it in again"
        ) from None
    return done.stdout, done.stderr


def find_program() -> str:
    """Path of sigrok-cli."""
    program = shutil.which("sigrok-cli")
    if program is None:
        raise AnalyserError("sigrok-cli: not found on PATH; install it (Debian: apt install sigrok-cli)")
    return program


def versions() -> dict[str, str]:
    """Versions of sigrok-cli and the libsigrok it runs with."""
    out, _ = query(["--version"])
    found = {}
    if match := re.search(r"^sigrok-cli (\S+)", out, re.MULTILINE):
        found["sigrok_cli"] = match[1]
    if match := re.search(r"libsigrok (\S+?)/", out):
        found["libsigrok"] = match[1]
    return found


def show(driver: str, conn: str, options: Mapping[str, str]) -> Device:
    """Ask a device what it is and what it can do.

    Raises
    ------
    AnalyserError
        No such device.
    """
    argument = device_argument(driver, conn, options)
    # libsigrok gives a device that it reaches over the network 1 s to answer; on a busy machine that can be too short.
    for _ in range(_SCANS):
        out, err = query(["-d", argument, "--show"])
        if device := parse_show(out, driver, conn):
            break
    else:
        why = last_line(err) or "no device found"
        raise AnalyserError(
            f"{argument}: {why}; is it plugged in and switched on? 'pcicap devices' lists what is found"
        )
    return device


def parse_show(text: str, driver: str, conn: str) -> Device | None:
    """`Device` from the output of ``--show``; None where it describes none."""
    match = re.search(r"^(\S+) - (.*?) with \d+ channels?: (.*)$", text, re.MULTILINE)
    if not match:
        return None
    logic = re.search(r"^    Logic: channels? (.*)$", text, re.MULTILINE)  # without analog ones, where there are both
    options: dict[str, str] = {}
    triggers, in_options = "", False
    for line in text.splitlines():
        if line.startswith("Supported configuration options"):
            in_options = True
        elif in_options and line.startswith("    "):
            if found := re.match(r"\s+Supported triggers: (.*)", line):
                triggers = "".join(found[1].split())
            elif found := re.match(r"    ([a-z_]+)(?: ?[:(] ?| - |$)(.*)", line):
                options[found[1]] = found[2]
    rates = re.findall(r"([\d.]+) ([kMG]?)Hz", _rate_text(text))
    steps = "in steps of" in _rate_text(text)
    listed = [float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit] for number, unit in rates]
    if steps:
        listed = listed[:2]
    return Device(
        driver=driver,
        model=match[2].strip(),
        conn=conn,
        channels=tuple((logic[1] if logic else match[3]).split()),
        options=options,
        max_rate_hz=max(listed, default=None),
        triggers=triggers,
        logic="Logic analyzer" in text,
    )


def _rate_text(text: str) -> str:
    """The lines about the sample rate: one with a range, or one a rate."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.match(r"    samplerate\b", line):
            following = []
            for more in lines[number + 1 :]:
                if not re.match(r"      +[\d.]+ [kMG]?Hz", more):
                    break
                following.append(more)
            return "\n".join([line, *following])
    return ""


def effective_rate(argument: str, rate_hz: int, config: Mapping[str, str]) -> int | None:
    """Rate the device takes when asked for `rate_hz`; None where the driver does not tell.

    Raises
    ------
    AnalyserError
        The device refuses the rate.
    """
    settings = ":".join([f"samplerate={rate_hz}", *(f"{key}={value}" for key, value in config.items())])
    out, err = query(["-d", argument, "-c", settings, "--get", "samplerate"])
    if "Failed to set" in err:
        raise AnalyserError(f"{argument}: {last_line(err)}; 'pcicap devices' shows the rates and options it takes")
    match = re.fullmatch(r"\s*(\d+)\s*", out)
    return int(match[1]) if match else None


def last_line(text: str) -> str:
    """Last line that says something, without sigrok's time stamps."""
    lines = [re.sub(r"^sr: (\[[\d:.]+\] )?", "", line).strip() for line in text.splitlines()]
    useful = [line for line in lines if line and line != "No devices found."]
    return useful[-1].rstrip(".") if useful else ""


class Log:
    """Follows the stderr of an acquisition.

    Attributes
    ----------
    header_ns : int or None
        CLOCK_REALTIME when libsigrok said that the acquisition begins.
    end : bool
        Whether it said that it has ended.
    unit_size : int or None
        Bytes a sample.
    logic_bytes : int
        Bytes announced so far.
    trigger_byte : int or None
        Offset at which the device's trigger was met.
    complaint : str
        Last line that reads like an error; empty without one.
    """

    _LOGIC = re.compile(r"cli: Received SR_DF_LOGIC \((\d+) bytes, unitsize = (\d+)\)")
    _COMPLAINT = re.compile(
        r"(?i)\b(fail|error|unable|timed? ?out|cannot|could not|invalid|no devices?|not found|overflow)"
    )

    def __init__(self) -> None:
        self.header_ns: int | None = None
        self.end = False
        self.unit_size: int | None = None
        self.logic_bytes = 0
        self.trigger_byte: int | None = None
        self.complaint = ""

    def line(self, text: str) -> None:
        """Take one line."""
        if match := self._LOGIC.match(text):
            self.unit_size = int(match[2])
            self.logic_bytes += int(match[1])
        elif text.startswith("cli: Received SR_DF_HEADER"):
            self.header_ns = time.time_ns()
        elif text.startswith("cli: Received SR_DF_TRIGGER"):
            self.trigger_byte = self.logic_bytes
        elif text.startswith("cli: Received SR_DF_END"):
            self.end = True
        elif self._COMPLAINT.search(text):
            self.complaint = last_line(text)
