"""nuttcp ``-fparse``: one line of key=value.

Ref: nuttcp 6.1.2. ``megabytes`` are of 2**20 bytes, ``rate_Mbps`` is decimal.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from pcitrace.errors import ConfigurationError
from pcitrace.network.parameter import counted, measured, unknown
from pcitrace.network.result import Result

__all__ = ["result"]

AGREE = 0.02
"""How far rate, amount and time may be apart: the time is printed with two digits."""


def result(path: Path, text: Any) -> Result:
    """Return what the last line says: the total, where there were intervals before (``real_sec``)."""
    if not str(text).endswith("\n"):
        raise ConfigurationError(f"{path}: nuttcp's last line has no end: cut", path)
    lines = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in str(text).splitlines() if "megabytes=" in line]
    try:
        said = {name: float(value) for name, value in lines[-1].items()}
        amount, seconds, rate = said["megabytes"] * 2**20, said["real_seconds"], said["rate_Mbps"]
    except (IndexError, KeyError, ValueError) as error:
        raise ConfigurationError(f"{path}: not nuttcp -fparse: {error} missing; was it cut?", path) from error
    if seconds <= 0 or abs(amount * 8e-6 / seconds / rate - 1) > AGREE + 0.01 / seconds:
        raise ConfigurationError(f"{path}: megabytes, real_seconds and rate_Mbps do not agree", path)
    totals = sum("real_seconds" in one for one in lines)
    if totals > 1:
        raise ConfigurationError(f"{path}: {totals} calls of nuttcp: give each its own file", path)
    parameters = {"user_mbit_s": measured("user_mbit_s", (rate, rate * 0.005 / seconds), 1, "received")}
    if "pkt" in said:
        count, dropped = int(said["pkt"]), int(said["drop"])
        parameters |= {
            "sent": counted("sent", count, count),
            "received": counted("received", count - dropped, count),
            "lost": counted("lost", dropped, count),
            "duplicated": unknown("duplicated", "nuttcp does not count copies", count),
            "reordered": unknown("reordered", "nuttcp does not count it", count),
        }
    names = {"tx_cpu": "cpu_percent", "rx_cpu": "peer_cpu_percent", "retrans": "retransmits", "rtt_ms": "rtt_ms"}
    table = pd.DataFrame({title: [said.get(name)] for name, title in names.items()})
    return Result("nuttcp", path.stem, path, parameters, tables={"call": table})
