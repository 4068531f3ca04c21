"""Sends through the emulated switch and a cable, and prints what the difference gives back of the switch.

usage: demo_network.py FOLDER     writes FOLDER/direct, FOLDER/switch (the runs) and FOLDER/network.html (their page)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pcitrace import network
from pcitrace.analysed import bus_constants
from pcitrace.report import network as report

HOSTS = """
format = 1
[[nodes]]
name = "A"
send_us = 10
send_us_per_byte = 0.0155
receive_us = 14.112
jitter_us = 0.05
[[nodes]]
name = "B"
send_us = 10
send_us_per_byte = 0.0155
receive_us = 14.112
respond_us = 4
jitter_us = 0.05
[[tests]]
kind = "request-response"
steering = "A"
peers = ["B"]
sizes = "64:1500:12"
request_bytes = 64
count = 100
"""
SWITCH = '[switch]\nname = "Alteon"\nlatency_us = 5.911\nbackplane_mbit_s = 2285.7\n'
PUBLISHED = (
    ("direct", "26.32 + 0.0235 b"),
    ("through the switch", "32.436 + 0.0351 b"),
    ("the switch", "6.119 + 0.0115 b"),
)
"""R. Hughes-Jones and F. Saka, ATLAS note, 2000: figure 3.2. The last is the difference of the first two, rounded."""


def main(folder: Path) -> None:
    """Send, analyse, print."""
    runs = [sent(folder, "direct", HOSTS), sent(folder, "switch", HOSTS + SWITCH)]
    found = network.of_paths(runs, bus_constants=bus_constants)
    report.write(found, folder / "network.html")
    print(f"  {'one way, µs of b bytes':<26}{'recovered':<40}published")
    for (name, published), result in zip(PUBLISHED, found.results, strict=True):
        line = [result.parameters[key] for key in ("intercept_us", "slope_us_per_byte")]
        text = " + ".join(f"{one.value:.5f}±{one.sigma:.5f}" if one.value is not None else "unknown" for one in line)
        print(f"  {name:<26}{text + ' b':<40}{published}")
    print(f"\n  Simulated: the switch was fed the published constants.\n  -> {folder / 'network.html'}")


def sent(folder: Path, name: str, plan: str) -> Path:
    """Carry out a virtual plan; its run folder."""
    shutil.rmtree(folder / name, ignore_errors=True)
    file = folder / f"{name}.toml"
    file.write_text(plan)
    framegen = Path(sys.executable).with_name("framegen")
    command = [str(framegen), "switch", "--plan", str(file), "--virtual", "-o", str(folder / name)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
