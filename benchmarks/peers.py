"""Other ways to get transactions out of a capture, for comparison: numpy, pandas on a CSV, sigrok, pywellen."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def with_numpy(samples: NDArray[np.uint16]) -> int:
    """Vectorised: transactions of control lines in bits 0-5; the number of them."""
    clk = samples & 1
    edges = np.flatnonzero((clk[:-1] == 0) & (clk[1:] == 1))
    lines = samples[edges]
    frame, irdy, trdy = (lines & bit == 0 for bit in (2, 4, 8))
    busy = frame | irdy
    before = np.concatenate(([False], busy[:-1]))
    starts = np.flatnonzero(frame & ~before)
    ends = np.flatnonzero(before & ~busy)
    data = np.cumsum(irdy & trdy)
    count = min(len(starts), len(ends))
    phases = data[ends[:count] - 1] - data[starts[:count]]
    stopped = np.add.reduceat((irdy & (lines & 32 == 0)).astype(np.int64), starts[:count])
    return len(np.stack([edges[starts[:count]], edges[ends[:count]], phases, stopped]).T)


def with_pandas(csv: Path) -> int:
    """The script that one writes first: pandas on the CSV that sigrok exports; the number of transactions."""
    import pandas as pd

    table = pd.read_csv(
        csv, comment=";", header=0, usecols=range(6), names=["clk", "frame", "irdy", "trdy", "devsel", "stop"]
    )
    clocks = table[(table.clk == 0) & (table.clk.shift(-1) == 1)]
    busy = (clocks.frame == 0) | (clocks.irdy == 0)
    number = (busy & ~busy.shift(fill_value=False)).cumsum()
    rows = (
        clocks[busy]
        .groupby(number[busy])
        .agg(
            clocks=("clk", "size"),
            data=("trdy", lambda trdy: int(((trdy == 0) & (clocks.loc[trdy.index, "irdy"] == 0)).sum())),
        )
    )
    return len(rows)


def with_sigrok(capture: Path) -> int:
    """A Python protocol decoder in sigrok-cli; the number of its annotations."""
    decoders = Path(__file__).parent
    lines = ":".join(
        f"{line.rstrip('#').lower()}={line}" for line in ("CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#")
    )
    done = subprocess.run(
        ["sigrok-cli", "-i", str(capture), "-P", f"sigrok_pci:{lines}", "-A", "sigrok_pci"],
        env={**os.environ, "SIGROKDECODE_DIR": str(decoders)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.count("\n")


def with_pywellen(vcd: Path, scope: str) -> int:
    """A decoder in Python on pywellen, of the lines just before each rise of CLK; transactions and data phases."""
    import pywellen

    nets = {net.full_name: net for net in pywellen.Waveform(str(vcd)).all_vars()}
    changes = {line: list(nets[f"{scope}.{line}"].tv) for line in ("CLK", "FRAME", "IRDY", "TRDY", "STOP", "AD", "CBE")}
    at = dict.fromkeys(changes, 0)
    now: dict[str, object] = dict.fromkeys(changes, None)
    transactions = phases = 0
    open_ = False
    for time, level in changes.pop("CLK"):
        if level != 1:
            continue
        for line, steps in changes.items():
            i = at[line]
            while i < len(steps) and steps[i][0] < time:
                now[line] = steps[i][1]
                i += 1
            at[line] = i
        if not open_:
            open_ = now["FRAME"] == 0
            transactions += open_
        elif now["IRDY"] == 0 and now["TRDY"] == 0:
            phases += 1
        elif now["FRAME"] == 1 and now["IRDY"] == 1:
            open_ = False
    return transactions + phases
