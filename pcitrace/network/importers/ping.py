"""ping of iputils, with or without its lines for each packet.

Ref: iputils 20221126. Times have steps of 1 us; ``mdev`` is a standard deviation. BSD and BusyBox say ``packets
received``, and BusyBox no deviation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.errors import ConfigurationError, FitError
from pcitrace.network.delays import delay
from pcitrace.network.lines import line as fit_line
from pcitrace.network.parameter import Parameter, counted, measured, unknown
from pcitrace.network.result import Result
from pcitrace.network.sizes import LEAST

__all__ = ["line", "result"]

_TOTAL = r"(\d+) packets transmitted, (\d+) (?:packets )?received(?:, \+?(\d+) duplicates)?.* packet loss"

STEP_US = 1.0
"""What ping rounds times to."""


def result(path: Path, text: Any) -> Result:
    """Return what one call measured."""
    head = re.match(r"PING (\S+).*? (\d+)(?:\(\d+\))? (?:data )?bytes", str(text).lstrip())
    totals = list(re.finditer(_TOTAL, str(text)))
    if head is None or not totals:
        missing = "its first line" if head is None else "its statistics: stopped before the end"
        raise ConfigurationError(
            f"{path}: ping's output lacks {missing}, or is of another version or language (LC_ALL=C ping ...)", path
        )
    if len(totals) > 1:
        raise ConfigurationError(f"{path}: {len(totals)} calls of ping: give each its own file", path)
    [total] = totals
    sent, received = int(total[1]), int(total[2])
    parameters = {
        "sent": counted("sent", sent, sent),
        "received": counted("received", received, sent),
        "lost": counted("lost", max(0, sent - received), sent),
        "duplicated": counted("duplicated", int(total[3] or 0), sent),
        "reordered": unknown("reordered", "ping does not count it", sent),
    }
    parameters["latency_us"] = _latency(str(text), received)
    table = pd.DataFrame({"length_bytes": [int(head[2])], "latency_us": [parameters["latency_us"].value]})
    table["sigma_us"], table["n"] = parameters["latency_us"].sigma, received
    return Result("ping", head[1], path, parameters, tables={"ping": table})


def line(same: Sequence[Result]) -> Result:
    """Return the results of several sizes to one host as one, with the line through them, one way."""
    table = pd.concat([one.tables["ping"] for one in same]).dropna().sort_values("length_bytes", ignore_index=True)
    parameters = {
        name: counted(name, int(sum(one.parameters[name].value or 0 for one in same)), len(same))
        for name in ("sent", "received", "lost", "duplicated")
    }
    sizes = table["length_bytes"].to_numpy(np.float64)
    try:
        found = fit_line(np.column_stack([sizes, sizes]), table["latency_us"], np.maximum(table["sigma_us"], 1e-3))
        why = "one way, half of the round trip; user bytes are ping's, without its header of 8"
        parameters["intercept_us"] = measured("intercept_us", found.intercept_us, found.n, why)
        parameters["slope_us_per_byte"] = measured("slope_us_per_byte", found.slope_us_per_byte, found.n, why)
    except FitError as error:
        parameters |= {name: unknown(name, str(error)) for name in ("intercept_us", "slope_us_per_byte")}
    findings = tuple(text for one in same for text in one.findings)
    return Result("ping", same[0].path, same[0].source, parameters, tables={"ping": table}, findings=findings)


def _latency(text: str, received: int) -> Parameter:
    times = np.array(re.findall(r"time=([\d.]+) ms(?! \(DUP)", text), dtype=np.float64) * 1e3
    found = delay(times, STEP_US)
    if found is not None:
        return measured("latency_us", found.median_us, found.n, "round trip, median")
    said = re.search(r"= [\d.]+/([\d.]+)/[\d.]+/([\d.]+) ms", text)
    if said is None or received < 1:
        return unknown("latency_us", "no answer came, or ping was stopped before it said how long they took", received)
    if received < LEAST:
        return unknown("latency_us", f"{received} answers: a latency needs six", received)
    sigma = math.hypot(float(said[2]) * 1e3, STEP_US / math.sqrt(12)) / math.sqrt(received)
    return measured("latency_us", (float(said[1]) * 1e3, sigma), received, "round trip, mean")
