"""Facts about this host that a measurement depends on: kernel, CPU, driver and settings of the NIC, its interrupts."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from pcicap import __version__, framegen
from pcicap.analysers import sigrok_cli

_ETHTOOL = {"coalescing": "-c", "rings": "-g", "offloads": "-k", "pause": "-a"}


def versions() -> dict[str, str]:
    """Versions of all that takes part."""
    found = {"pcicap": __version__, **sigrok_cli.versions(), "kernel": os.uname().release}
    found["python"] = platform.python_version()
    if sender := framegen.version():
        found["framegen"] = sender
    return found


def host_facts(interface: str | None) -> dict[str, Any]:
    """What can be read without privileges; what this machine does not tell is not there.

    Parameters
    ----------
    interface : str or None
        The interface that sends; its driver, settings and interrupts are added.
    """
    uname = os.uname()
    facts: dict[str, Any] = {"host": uname.nodename, "kernel": f"{uname.release} {uname.version}"}
    facts["machine"] = uname.machine
    facts["cpus"] = os.cpu_count()
    cpuinfo = _read("/proc/cpuinfo")
    if match := re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.MULTILINE):
        facts["cpu"] = match[1].strip()
    for key, path in (
        ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        ("isolated_cpus", "/sys/devices/system/cpu/isolated"),
        ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ):
        if value := _read(path).strip():
            facts[key] = value
    if interface:
        facts["interface"] = _interface_facts(interface)
    return facts


def _interface_facts(interface: str) -> dict[str, Any]:
    folder = Path("/sys/class/net") / interface
    facts: dict[str, Any] = {"name": interface}
    for key, kind in (("address", str), ("mtu", int), ("speed", int), ("operstate", str), ("tx_queue_len", int)):
        if value := _read(folder / key).strip():
            facts[key] = kind(value)
    if (folder / "device").exists():
        facts["device"] = (folder / "device").resolve().name
        for key in ("vendor", "device"):
            if value := _read(folder / "device" / key).strip():
                facts[f"pci_{key}"] = value
    if (folder / "device/driver").exists():
        facts["driver"] = (folder / "device/driver").resolve().name
    if ethtool := shutil.which("ethtool", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        if driver := _ethtool(ethtool, "-i", interface):
            facts["driver_info"] = driver
        for key, option in _ETHTOOL.items():
            if settings := _ethtool(ethtool, option, interface):
                facts[key] = settings
    if interrupts := _interrupts(interface):
        facts["interrupt_affinity"] = interrupts
    return facts


def _ethtool(program: str, option: str, interface: str) -> dict[str, str]:
    """``key: value`` lines of ethtool; nothing where the driver does not know the option."""
    try:
        done = subprocess.run([program, option, interface], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode != 0:
        return {}
    pairs = re.findall(r"^\s*([\w -]+?):[ \t]+(\S.*?)\s*$", done.stdout, re.MULTILINE)
    return {key.strip().replace(" ", "_"): value for key, value in pairs if value != "n/a"}


def _interrupts(interface: str) -> dict[str, str]:
    """Interrupt number -> CPUs that may take it, for the interrupts named after the interface."""
    found = {}
    for line in _read("/proc/interrupts").splitlines():
        if (match := re.match(r"\s*(\d+):", line)) and re.search(rf"\b{re.escape(interface)}\b", line):
            found[match[1]] = _read(f"/proc/irq/{match[1]}/smp_affinity_list").strip()
    return found


def _read(path: str | Path) -> str:
    """Text of a small file; empty where it cannot be read, as much of /sys cannot."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
