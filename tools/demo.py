"""Simulates figure 3.1, analyses it, and prints the constants beside the published ones.

usage: demo.py FOLDER     writes the run fig3.1, its report fig3.1.html, and view.html to zoom into, there
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pcitrace
from pcitrace import report, results, view
from pcitrace.simulate import simulate

PUBLISHED = {
    "t_nic_us": "4.34 at 64 bytes, 4.18 at 1500",
    "R_PCI_send_us_per_byte": "0.00758",
    "R_PCI_recv_us_per_byte": "0.00792",
    "t_sw_us": "8.70",
    "intercept_us": "26.32",
    "slope_us_per_byte": "0.0235",
}
"""R. Hughes-Jones and F. Saka, ATLAS note, 2000: figure 3.1 and the fits beside it."""


def main(folder: Path) -> None:
    """Go through the steps, saying how long each took."""
    run_folder = folder / "fig3.1"
    shutil.rmtree(run_folder, ignore_errors=True)
    step("simulating two hosts, their cards and an analyser", lambda: simulate("acenic-fig3.1", run_folder))
    run = pcitrace.open(run_folder)
    frames = step("decoding both buses, following the frames", lambda: run.frames)
    found = step("working out the constants", lambda: results.of_run(run, frames))
    page = folder / "fig3.1.html"
    step("writing the report", lambda: report.write(found, page))
    look = folder / "view.html"
    step("writing the view", lambda: view.write(run, look))
    told = found.as_dict()
    values = {name: str(one) for name, one in found.constants.items()}
    at = found.timing.transit.at.set_index("length_bytes")["value"]
    values["t_nic_us"] = f"{at[64]:.2f} at 64, {at[1500]:.2f} at 1500"
    values |= {name: f"{told['model'][name]:.5g}" for name in ("intercept_us", "slope_us_per_byte")}
    print(f"\n  {'simulated':<26}{'recovered':<26}published")
    for name, published in PUBLISHED.items():
        print(f"  {name:<26}{values[name]:<26}{published}")
    print("\n  The simulation was fed these constants: that they come back shows that the analysis is right,")
    print(f"  not that the constants are.\n  {frames}\n  -> {page}\n  -> {look}")


def step(what, work):
    """Do a piece of work; say what and how long."""
    print(f"  {what:<54}", end="", flush=True)
    begin = time.monotonic()
    result = work()
    print(f"{time.monotonic() - begin:5.1f} s", flush=True)
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]))
