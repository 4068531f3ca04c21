"""``pcicap devices``: the analysers and network interfaces of this host, and what they are good for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pcicap import framegen
from pcicap.analysers import sigrok_cli
from pcicap.analysers.sigrok_cli import Device
from pcicap.errors import AnalyserError, FrameError

_MINIMUM_LINES = 4
_CLOCKS = ((33, 100e6, 200e6), (66, 200e6, 400e6))
"""PCI clock in MHz, the least rate that shows every edge of it, and the rate to prefer (samples a second).

Ref: PCI Local Bus Specification 2.2, table 4-5 and 7-3: CLK is high and low for at least 11 ns at 33 MHz, 6 ns at 66.
"""


@dataclass(frozen=True)
class Verdict:
    """Whether an analyser suits a PCI clock (MHz), and why."""

    clock_mhz: int
    suits: bool
    why: str


def judge(device: Device) -> list[Verdict]:
    """Whether an analyser suits 33 and 66 MHz PCI."""
    lines = len(device.channels)
    external = "external_clock" in device.options
    verdicts = []
    for clock, least, better in _CLOCKS:
        rate = device.max_rate_hz
        if not device.logic:
            verdicts.append(Verdict(clock, False, "no logic analyser"))
        elif device.driver == "demo":
            verdicts.append(Verdict(clock, False, "no real device: it makes its samples up"))
        elif lines < _MINIMUM_LINES:
            verdicts.append(Verdict(clock, False, f"{lines} channels; CLK FRAME# IRDY# TRDY# need {_MINIMUM_LINES}"))
        elif external:
            verdicts.append(
                Verdict(clock, True, f"takes CLK as its clock (state mode); check that it goes to {clock} MHz")
            )
        elif rate is None:
            verdicts.append(Verdict(clock, False, "does not tell its rates; try it on a known bus first"))
        elif rate < least:
            verdicts.append(Verdict(clock, False, f"{rate / 1e6:g} MS/s; {least / 1e6:g} are the least"))
        else:
            note = "" if rate >= better else f"; {better / 1e6:g} would be better"
            verdicts.append(Verdict(clock, True, f"{rate / 1e6:g} MS/s, {lines} channels{note}"))
    return verdicts


def scan(specs: list[tuple[str, str]]) -> tuple[list[Device], list[str]]:
    """Analysers that sigrok-cli finds by itself, and those asked for.

    Parameters
    ----------
    specs : list of (str, str)
        Driver and ``conn=`` of devices that no scan finds (network, serial port).

    Returns
    -------
    list of Device
        With channels and options.
    list of str
        What went wrong with single devices.
    """
    out, _ = sigrok_cli.query(["--scan"], timeout_s=60.0)
    listed = re.findall(r"^(\S+?)(?::conn=(\S+))? - .* with \d+ channels?:", out, re.MULTILINE)
    devices, problems = [], []
    for driver, conn in [*specs, *listed]:
        try:
            devices.append(sigrok_cli.show(driver, conn, {}))
        except AnalyserError as error:
            problems.append(str(error))
    return [device for device in devices if device.logic], problems


def report(specs: list[tuple[str, str]]) -> dict[str, Any]:
    """Everything ``pcicap devices`` tells; JSON-ready."""
    problems: list[str] = []
    devices: list[Device] = []
    try:
        devices, problems = scan(specs)
    except AnalyserError as error:
        problems.append(str(error))
    try:
        interfaces = framegen.interfaces()
    except FrameError as error:
        interfaces = []
        problems.append(str(error))
    return {
        "analysers": [
            {
                "driver": device.driver,
                "conn": device.conn,
                "model": device.model,
                "channels": list(device.channels),
                "max_rate_hz": device.max_rate_hz,
                "triggers": device.triggers,
                "external_clock": "external_clock" in device.options,
                "options": device.options,
                "pci": [
                    {"clock_mhz": verdict.clock_mhz, "suits": verdict.suits, "why": verdict.why}
                    for verdict in judge(device)
                ],
            }
            for device in devices
        ],
        "interfaces": interfaces,
        "problems": problems,
    }


def text(found: dict[str, Any]) -> str:
    """The report for people."""
    lines = ["Logic analysers"]
    for device in found["analysers"]:
        rate = f"{device['max_rate_hz'] / 1e6:g} MS/s" if device["max_rate_hz"] else "rates unknown"
        traits = [f"{len(device['channels'])} channels", rate]
        traits.append(f"triggers {' '.join(device['triggers'])}" if device["triggers"] else "no triggers")
        traits.append("external clock" if device["external_clock"] else "no external clock")
        where = f" {device['conn']}" if device["conn"] else ""
        lines += ["", f"  {device['driver']}{where}: {device['model']}", f"    {', '.join(traits)}"]
        for verdict in device["pci"]:
            lines.append(f"    PCI {verdict['clock_mhz']} MHz: {'yes' if verdict['suits'] else 'no'}, {verdict['why']}")
    if not found["analysers"]:
        lines += ["", "  none found; a networked one is asked for with --device driver:conn=..."]
    lines += ["", "Network interfaces", ""]
    for entry in found["interfaces"]:
        speed = f"{entry['speed_mbit_s']} Mbit/s" if entry.get("speed_mbit_s") else "speed unknown"
        stamps = [name.replace("_", " ") for name, there in entry["timestamping"].items() if there is True]
        allowed = "raw frames allowed" if entry["raw_frames"] else "raw frames not allowed"
        usable = "usable" if entry["usable"] else f"not usable: {entry['why']}"
        address = entry["mac"] or "no Ethernet address"
        lines.append(f"  {entry['name']}: {address}, {speed}, timestamps: {', '.join(stamps) or 'none'}")
        lines.append(f"    {allowed}; {usable}")
    if not found["interfaces"]:
        lines.append("  none could be listed")
    if found["problems"]:
        lines += ["", *(f"problem: {problem}" for problem in found["problems"])]
    return "\n".join(lines)
