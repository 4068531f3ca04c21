"""iperf3 ``-J``: TCP and UDP.

Ref: iperf 3.12. In UDP ``end.sum`` has the rate that was sent; ``end.sum_received``, from the server, what arrived.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from pcitrace.errors import ConfigurationError
from pcitrace.network.parameter import Parameter, counted, measured, unknown
from pcitrace.network.result import Result

__all__ = ["result"]


def result(path: Path, content: Any) -> Result:
    """Return what one call measured."""
    if "error" in content:
        raise ConfigurationError(f"{path}: iperf3 says: {content['error']}", path)
    version = str(content.get("start", {}).get("version", ""))
    if not version.startswith("iperf 3."):
        raise ConfigurationError(f"{path}: version {version!r}; this reads iperf 3.x", path)
    try:
        test = content["start"]["test_start"]
        end, intervals = content["end"], content["intervals"]
        rates = [float(one["sum"]["bits_per_second"]) / 1e6 for one in intervals if not one["sum"].get("omitted")]
        parameters = _udp(end, test) if test["protocol"] == "UDP" else _tcp(end, rates)
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"{path}: iperf3's output has no {error}: cut, or of another version", path) from error
    used = end.get("cpu_utilization_percent", {})
    table = pd.DataFrame(
        {
            "protocol": [test["protocol"]],
            "streams": [int(test["num_streams"])],
            "block_bytes": [int(test["blksize"])],
            "retransmits": [_told(end["sum_sent"].get("retransmits"))],
            "cpu_percent": [_told(used.get("host_total"))],
            "peer_cpu_percent": [_told(used.get("remote_total"))],
            # 0: the data came from the server (-R), which keeps it to itself.
            "rtt_us": [_told(end["streams"][0].get("sender", {}).get("mean_rtt") or None)],
        }
    )
    remote = content["start"].get("connecting_to", {}).get("host", path.stem)
    other = end.get("sum_received_bidir_reverse")
    findings: tuple[str, ...] = ()
    if other is not None:
        rate = float(other["bits_per_second"]) / 1e6
        what = f"the numbers are of the one to the server, back came {rate:.5g} Mbit/s"
        findings = (f"{path}: both directions at once: {what}",)
    return Result("iperf3", str(remote), path, parameters, tables={"call": table}, findings=findings)


def _told(value: Any) -> float | None:
    """Return a number that a version may leave out."""
    return None if value is None else float(value)


def _tcp(end: Any, rates: list[float]) -> dict[str, Parameter]:
    value = float(end["sum_received"]["bits_per_second"]) / 1e6
    return {"user_mbit_s": measured("user_mbit_s", (value, _scatter(rates)), len(rates), "received, TCP payload")}


def _udp(end: Any, test: Any) -> dict[str, Parameter]:
    total = end["sum"]
    sent, lost = int(total["packets"]), int(total["lost_packets"])
    order = [one["udp"].get("out_of_order") for one in end["streams"]]
    parameters = {
        "sent": counted("sent", sent, sent),
        "received": counted("received", sent - lost, sent),
        "lost": counted("lost", lost, sent),
        "duplicated": unknown("duplicated", "iperf3 does not count copies", sent),
        "reordered": counted(
            "reordered", None if None in order else sum(order), sent, "this version does not count it"
        ),
    }
    if "sum_received" not in end:
        why = "the server's account is missing (--get-server-output): the rate in end.sum is what was sent"
        return parameters | {"user_mbit_s": unknown("user_mbit_s", why, sent)}
    seconds = float(end["sum_received"]["seconds"])
    value = (sent - lost) * int(test["blksize"]) * 8e-6 / seconds
    sigma = value / math.sqrt(12) / max(sent, 1)
    return parameters | {"user_mbit_s": measured("user_mbit_s", (value, sigma), sent - lost, "received, UDP payload")}


def _scatter(rates: list[float]) -> float:
    """Return the standard error of the mean of the intervals' rates."""
    if not all(math.isfinite(one) for one in rates):
        raise ValueError("a rate of an interval is not finite")
    if len(rates) < 2:
        return 0.0
    mean = sum(rates) / len(rates)
    return math.sqrt(sum((one - mean) ** 2 for one in rates) / (len(rates) - 1) / len(rates))
