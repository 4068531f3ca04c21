"""irtt ``-o``: round trips with four times each.

Ref: irtt 0.9, JSON format 1. Times are in ns; of the two directions only the sum is free of the clocks' offset.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcitrace.errors import ConfigurationError, FitError
from pcitrace.network.delays import delay
from pcitrace.network.parameter import counted, measured, unknown
from pcitrace.network.result import Result
from pcitrace.network.width import width

__all__ = ["result"]

STEP_US = 0.001
"""irtt writes ns."""


def result(path: Path, content: Any) -> Result:
    """Return what one call measured."""
    if content["version"].get("json_format") != 1:
        raise ConfigurationError(f"{path}: JSON format {content['version'].get('json_format')}; this reads 1", path)
    try:
        stats, trips, config = content["stats"], content["round_trips"], content["config"]
        sent, received = int(stats["packets_sent"]), int(stats["packets_received"])
        times = np.array([one["delay"]["rtt"] for one in trips if one["lost"] == "false"], dtype=np.float64) / 1e3
        copies, length = int(stats["duplicates"]), int(config["params"]["length"])
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"{path}: irtt's output has no {error}: cut, or of another version", path) from error
    if not (np.isfinite(times) & (times >= 0)).all():
        raise ConfigurationError(f"{path}: a round trip is null or negative: damaged, or of another version", path)
    parameters = {
        "sent": counted("sent", sent, sent),
        "received": counted("received", received, sent),
        "lost": counted("lost", max(0, sent - received), sent),
        "duplicated": counted("duplicated", copies, sent),
        "reordered": counted("reordered", int(stats["late_packets"]), sent, "irtt calls them late"),
    }
    trip = delay(times, STEP_US)
    parameters["latency_us"] = (
        unknown("latency_us", f"{len(times)} answers: a latency needs six", len(times))
        if trip is None
        else measured("latency_us", trip.median_us, trip.n, "round trip, median")
    )
    try:
        found = width(times)
        parameters["fwhm_us"] = measured("fwhm_us", found.fwhm_us, found.n)
        parameters["sigma_us"] = measured("sigma_us", found.sigma_us, found.n)
    except FitError as error:
        parameters |= {name: unknown(name, str(error), len(times)) for name in ("fwhm_us", "sigma_us")}
    table = pd.DataFrame({"length_bytes": length, "round_trip_us": times})
    remote = str(config["remote_address"]).rpartition(":")[0]
    return Result("irtt", remote, path, parameters, tables={"round_trips": table})
