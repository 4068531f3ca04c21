"""NPtcp ``-o``: rows of block size, throughput, time of one block.

Ref: NetPIPE 3.7.2. Its Mbps are of 2**20 bits: here they are worked out anew, decimal, from size and time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.errors import ConfigurationError
from pcitrace.network.parameter import measured, unknown
from pcitrace.network.result import Result

__all__ = ["result", "row"]

DROP = 0.8
"""Share of the throughput of smaller blocks below which a block is a drop."""


def row(line: str) -> tuple[int, float, float] | None:
    """Return bytes, Mbps of 2**20 bits and seconds of a line; None for any other."""
    words = line.split()
    try:
        size, mbps, seconds = int(words[0]), float(words[1]), float(words[2])
    except (IndexError, ValueError):
        return None
    return (size, mbps, seconds) if len(words) == 3 and size > 0 and seconds > 0 else None


def result(path: Path, text: Any) -> Result:
    """Return throughput and signature."""
    lines = [line for line in str(text).splitlines() if line.strip()]
    rows = [row(line) for line in lines]
    if not str(text).endswith("\n"):
        rows[-1] = None  # its last number may be cut
    whole = [one for one in rows if one is not None]
    if len(whole) < len(rows) - 1 or not whole:
        bad = next(number for number, one in enumerate(rows, 1) if one is None)
        raise ConfigurationError(f"{path}: line {bad}: not NPtcp's bytes, Mbps, seconds", path)
    size, mbps, seconds = (np.array(column, dtype=np.float64) for column in zip(*whole, strict=True))
    if np.median(np.abs(mbps * 2**20 * seconds / (8 * size) - 1)) > 0.02:
        raise ConfigurationError(f"{path}: bytes, Mbps and seconds do not agree: not of NetPIPE 3.7", path)
    back = np.flatnonzero(np.diff(size) < 0)
    if len(back):
        raise ConfigurationError(
            f"{path}: the blocks begin anew at {int(size[back[0] + 1])} bytes: several calls? give each its own file",
            path,
        )
    findings = () if len(whole) == len(rows) else (f"{path}: the last line is cut; left out",)
    rate = 8e-6 * size / seconds
    before = np.maximum.accumulate(np.concatenate([[0.0], rate[:-1]]))
    table = pd.DataFrame({"block_bytes": size.astype(int), "time_us": 1e6 * seconds, "user_mbit_s": rate})
    table["drop"] = rate < DROP * before
    largest = int(rate.argmax())
    latency = f"first point, a block of {int(size[0])} bytes"
    top = f"largest of {len(size)} points: {int(size[largest])} bytes"
    parameters = {
        "latency_us": measured("latency_us", (float(1e6 * seconds[0]), 0.0), 1, latency),
        "user_mbit_s": measured("user_mbit_s", (float(rate[largest]), 0.0), 1, top),
        "sent": unknown("sent", "NetPIPE counts blocks, not frames"),
    }
    return Result("nptcp", path.stem, path, parameters, tables={"netpipe": table}, findings=findings)
