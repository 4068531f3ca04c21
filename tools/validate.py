"""Recovery of constants drawn at random: simulated runs against their own truth, as a table in docs/validation.md.

    python tools/validate.py --runs 200 --jobs 2 -o docs/validation.md

Every run has its own bench (`pcitrace.simulate.random_bench`). The truth is what its event log says happened in that
run, so a pull (measured - true)/sigma tests the measurement and its stated error, not whether the run was typical.
Exits with 1 if a limit is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pandas as pd

import pcitrace
from pcitrace import results
from pcitrace.frames import Frames
from pcitrace.simulate import random_bench, simulate
from pcitrace.timing import usage

CONSTANTS = {
    "t_nic_us": "t_nic",
    "R_PCI_send_us_per_byte": "R_PCI send",
    "R_PCI_recv_us_per_byte": "R_PCI receive",
}
PULL_MEAN, PULL_WIDTH, MATCHED = 0.2, (0.8, 1.2), 0.995
SHOWN = ("control16", "command", "full")
"""Wires of the main runs: TX_EN of both hosts is among them."""

UNSHOWN_RUNS = 40
"""Runs with control lines only and no wire, reported apart: some frames are not to be told there."""

CLASSES = ("total", "idle", "address", "data", "busy")
FRAME_TIMES = ("dma_start_us", "dma_end_us", "rx_dma_start_us", "rx_dma_end_us")
CSR_TIMES = {"csr_first_us": FRAME_TIMES[:2], "csr_last_us": FRAME_TIMES[:2], "csr_done_us": FRAME_TIMES[:2]}
CSR_TIMES |= {"rx_csr_us": FRAME_TIMES[2:]}
"""Times of a frame's CSR accesses, and those of the DMA whose accesses they are."""


@dataclass
class Run:
    """What one run gave, beside its truth."""

    seed: int
    bench: str
    pulls: dict[str, float] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    frames: int = 0
    matched: int = 0
    wrong: int = 0
    clocks_off: int = 0
    csr_off: int = 0
    csr_clks: float = 0.0
    csr_right: int = 0
    csr_null: int = 0
    csr_wrong: int = 0
    frame_clks: float = 0.0
    occupancy_clks: float = 0.0
    failed: str = ""

    @property
    def bad(self) -> str:
        """What does not keep its limit, in words."""
        said = [self.failed] if self.failed else []
        if self.wrong:
            said.append(f"{self.wrong} frames wrong")
        if self.clocks_off:
            said.append(f"clock counts off by {self.clocks_off}")
        if self.csr_off:
            said.append(f"CSR counts off by {self.csr_off}")
        if self.csr_clks > 1:
            said.append(f"CSR times off by {self.csr_clks:.1f} clocks")
        if self.csr_wrong:
            said.append(f"{self.csr_wrong} CSR times of frames are those of other accesses")
        if self.occupancy_clks > 2:
            said.append(f"a window's busy clocks off by {self.occupancy_clks:.1f}")
        return ", ".join(said)


def one_run(seed: int, wires: tuple[str, ...] = SHOWN) -> Run:
    """Simulate a bench, analyse it, and compare with its truth."""
    bench = random_bench(seed, wires=wires)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        simulate(bench, path, seed=seed)
        try:
            return compare(path, seed)
        except Exception as error:  # that a run cannot be analysed is a result, and the other runs go on
            return Run(seed, bench.name, failed=f"{type(error).__name__}: {error}")


def compare(path: Path, seed: int) -> Run:
    """Compare a run with its truth."""
    truth = json.loads((path / "truth" / "truth.json").read_text(encoding="utf-8"))
    opened = pcitrace.open(path)
    found = results.of_run(opened)
    assert opened.folder is not None
    described = opened.folder.run
    a, bench = described["hosts"]["A"], described["simulation"]["parameters"]["bench"]
    run = Run(
        seed,
        f"{described['test']['kind']}, {a['clock_mhz']:g} MHz, {a['width']} bit, "
        f"{bench['analyser']['rate_mhz']:g} MS/s, {bench['analyser']['wires']}",
    )
    for name in CONSTANTS:
        measured, true = found.constants[name], truth["constants"][name]["value"]
        if measured.value is None or true is None or not measured.sigma_measurement:
            run.unknown[name] = measured.reason or "no truth"
        else:
            run.pulls[name] = (measured.value - true) / measured.sigma_measurement
    clock_us = 1 / a["clock_mhz"]
    frames_against(found.frames, pd.read_csv(path / "truth" / "frames.csv"), clock_us, run)
    known_csr = pd.read_csv(path / "truth" / "csr.csv")
    windows = pd.read_csv(path / "truth" / "clocks.csv")
    for host, traffic in found.frames.hosts.items():
        [counted] = opened[host].clocks().to_dict("records")
        run.clocks_off += sum(abs(int(counted[key]) - truth["clocks"][host][key]) for key in CLASSES)
        accesses = np.sort(traffic.csr.first_attempt_us)
        true_us = np.sort(known_csr.loc[known_csr["bus"] == host, "first_attempt_us"].to_numpy())
        run.csr_off += abs(len(accesses) - len(true_us))
        if len(accesses) == len(true_us) and len(true_us):
            run.csr_clks = max(run.csr_clks, float(np.abs(accesses - true_us).max()) / clock_us)
        mine = windows[windows["bus"] == host]
        used = usage.of_bus(opened, host).over(mine["start_us"].to_numpy(), mine["end_us"].to_numpy())
        off = np.abs(used["busy_us"].to_numpy() / clock_us - mine["busy"].to_numpy())
        run.occupancy_clks = max(run.occupancy_clks, float(off.max()))
    return run


def frames_against(found: Frames, truth: pd.DataFrame, clock_us: float, run: Run) -> None:
    """Compare every frame with the true one whose sending DMA begins where its own does."""
    good = truth[~truth["lost"] & truth["rx_dma_start_us"].notna()]
    run.frames = len(good)
    columns = [*FRAME_TIMES, *CSR_TIMES]
    table = found.table[["sender", *columns]].astype(dict.fromkeys(columns, "float64"))
    for sender, mine in table.groupby("sender"):
        true = truth[truth["sender"] == sender].sort_values("dma_start_us")
        starts = true["dma_start_us"].to_numpy()
        both = mine[mine["dma_start_us"].notna() & mine["rx_dma_start_us"].notna()]
        near = np.searchsorted((starts[1:] + starts[:-1]) / 2, both["dma_start_us"].to_numpy())
        off = np.column_stack(
            [np.abs(both[name].to_numpy() - true[name].to_numpy()[near]) / clock_us for name in FRAME_TIMES]
        )
        # A frame that was lost has no receiving DMA: NaN, and any match of it is wrong.
        right = (off <= 1).all(axis=1)
        run.matched += int(right.sum())
        run.wrong += int((~(off[:, 2] <= 1.5)).sum())
        if right.any():
            run.frame_clks = max(run.frame_clks, float(off[right].max()))
        csr_against(mine[mine["dma_start_us"].notna()], true, clock_us, run)


def csr_against(mine: pd.DataFrame, true: pd.DataFrame, clock_us: float, run: Run) -> None:
    """Compare the CSR times of one sender's frames with those of the true frame that has the same DMA.

    What is null in truth too, for there is no such access, is not counted.
    """
    starts = true["dma_start_us"].dropna().to_numpy()
    wanted = true.iloc[np.searchsorted((starts[1:] + starts[:-1]) / 2, mine["dma_start_us"].to_numpy())]
    off = np.abs(
        mine[[*FRAME_TIMES, *CSR_TIMES]].reset_index(drop=True) - wanted[[*FRAME_TIMES, *CSR_TIMES]].to_numpy()
    )
    for name, dma in CSR_TIMES.items():
        same = (off[list(dma)] <= clock_us).all(axis=1).to_numpy()
        null, none = mine[name].isna().to_numpy(), wanted[name].isna().to_numpy()
        right = (off[name] <= clock_us).to_numpy()
        run.csr_right += int((same & right).sum())
        run.csr_null += int((same & null & ~none).sum())
        run.csr_wrong += int((same & ~null & ~right).sum())


def failures(runs: Sequence[Run]) -> list[str]:
    """Return which limits are not kept."""
    said = [f"seed {run.seed} ({run.bench}): {run.bad}" for run in runs if run.bad]
    frames, matched = sum(run.frames for run in runs), sum(run.matched for run in runs)
    if matched < MATCHED * frames:
        said.append(f"{matched} of {frames} frames matched")
    for name, title in CONSTANTS.items():
        pulls = [run.pulls[name] for run in runs if name in run.pulls]
        mean, width = fmean(pulls), pstdev(pulls)
        if abs(mean) > PULL_MEAN or not PULL_WIDTH[0] <= width <= PULL_WIDTH[1]:
            said.append(f"{title}: pulls with mean {mean:+.2f} and width {width:.2f}")
    return said


def tables(runs: Sequence[Run]) -> list[str]:
    """Return the lines of the tables of some runs."""
    frames, matched = sum(run.frames for run in runs), sum(run.matched for run in runs)
    low, high = PULL_WIDTH
    null = sum(run.csr_null for run in runs)
    csr = null + sum(run.csr_right + run.csr_wrong for run in runs)
    lines = ["| constant | runs | mean of pulls | width | largest | limit |", "|---|---|---|---|---|---|"]
    for name, title in CONSTANTS.items():
        pulls = [run.pulls[name] for run in runs if name in run.pulls]
        lines.append(
            f"| {title} | {len(pulls)} | {fmean(pulls):+.3f} | {pstdev(pulls):.3f} | {max(map(abs, pulls)):.1f} | "
            f"mean within ±{PULL_MEAN}, width {low} to {high} |"
        )
    return [
        *lines,
        "",
        "| what | found | limit |",
        "|---|---|---|",
        f"| frames that arrived and were matched | {matched} of {frames} ({matched / frames:.3%}) | {MATCHED:.1%} |",
        f"| frames given to a wrong one | {sum(run.wrong for run in runs)} | 0 |",
        f"| frame times, largest difference | {max(run.frame_clks for run in runs):.2f} clocks | 1 |",
        f"| clocks of all classes, total difference | {sum(run.clocks_off for run in runs)} | 0 |",
        f"| CSR accesses, total difference of counts | {sum(run.csr_off for run in runs)} | 0 |",
        f"| CSR times, largest difference | {max(run.csr_clks for run in runs):.2f} clocks | 1 |",
        f"| CSR times of frames that are those of another access | {sum(run.csr_wrong for run in runs)} | 0 |",
        f"| CSR times of frames that are null: more than one may be it | {null} of {csr} ({null / csr:.2%}) | |",
        f"| busy clocks of a window of 1 ms, largest difference | {max(run.occupancy_clks for run in runs):.2f} | "
        "2 (one at each edge) |",
        "",
    ]


def markdown(runs: Sequence[Run], unshown: Sequence[Run]) -> str:
    """Return the page."""
    lines = [
        "# Validation",
        "",
        f"{len(runs)} simulated runs, each with a bench of its own drawn at random (`pcitrace.simulate.random_bench`):",
        "t_nic 1 to 30 us, wait states, burst limits 64 to 1514 bytes, 33 or 66 MHz, 32 or 64 bit, at least 3 samples",
        "a clock, jitter, retries, loss up to 5 %. Captured are the control lines and TX_EN of both hosts, in a third",
        "of the runs C/BE# too, in a third everything. Each run is analysed as a user would, and compared with what",
        "its own event log says happened. This shows that the analysis is right, not that any card has such constants.",
        "Written by `make validate`.",
        "",
        "A pull is (measured - true)/sigma. The truth is that of the run's own frames, and sigma the uncertainty of",
        "the measurement (the sampling step, the skew of the probes, lengths known to a few bytes). With the right",
        "sigma pulls have mean 0 and width 1.",
        "",
        *tables(runs),
    ]
    unknown = [(run, name) for run in runs for name in run.unknown]
    if unknown:
        lines += ["Constants that were not given:", ""]
        lines += [f"- seed {run.seed} ({run.bench}), {CONSTANTS[name]}: {run.unknown[name]}" for run, name in unknown]
        lines.append("")
    said = failures(runs)
    lines += ["All limits are kept."] if not said else ["Limits that are not kept:", "", *(f"- {one}" for one in said)]
    if unshown:
        lines += [
            "",
            "## Control lines only, no wire",
            "",
            f"{len(unshown)} runs of the same kind with seven lines a bus (`control14`): nothing shows where a frame",
            "ends or which way a burst goes but its length and time. Frames that cannot be told are left out with the",
            "reason; constants are then those of the others, so that their pulls against all frames are wide.",
            "",
            *tables(unshown),
        ]
        failed = [f"- seed {run.seed} ({run.bench}): {run.failed}" for run in unshown if run.failed]
        lines += ["Runs that could not be analysed:", "", *failed, ""] if failed else []
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Run, write, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-o", "--output", type=Path, help="where the page goes; default: standard output")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.runs)
    apart = range(args.first, args.first + min(UNSHOWN_RUNS, args.runs))
    runs: list[Run] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        wires = [SHOWN] * len(seeds) + [("control14",)] * len(apart)
        for run in pool.map(one_run, [*seeds, *apart], wires):
            runs.append(run)
            pulls = ", ".join(f"{CONSTANTS[name]} {pull:+.2f}" for name, pull in run.pulls.items())
            print(f"{len(runs)}/{len(wires)} seed {run.seed} ({run.bench}): {pulls} {run.bad}", file=sys.stderr)
    runs, unshown = runs[: args.runs], runs[args.runs :]
    page = markdown(runs, unshown)
    if args.output is None:
        print(page, end="")
    else:
        args.output.write_text(page, encoding="utf-8")
    said = failures(runs)
    print("\n".join(said) or "all limits are kept", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
