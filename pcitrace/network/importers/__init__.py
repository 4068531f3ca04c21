"""What other programs measured, as results beside those of frame logs; each program's format is one file here."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from pcitrace.errors import ConfigurationError
from pcitrace.network.importers import iperf3, irtt, netpipe, nuttcp, ping
from pcitrace.network.parameter import counted
from pcitrace.network.result import Result

__all__ = ["TOOLS", "calls", "read", "together", "varied"]

TOOLS: Mapping[str, Callable[[Path, Any], Result]] = {
    "iperf3": iperf3.result,
    "irtt": irtt.result,
    "nptcp": netpipe.result,
    "nuttcp": nuttcp.result,
    "ping": ping.result,
}
"""Programs by their names in ``run.toml`` [[tool_outputs]], and what reads the output of each."""


def read(path: Path, tool: str | None = None) -> Result:
    """Read the output of another program.

    Parameters
    ----------
    path : Path
        iperf3 ``-J``, NPtcp ``-o``, nuttcp ``-fparse``, ping (iputils), irtt ``-o`` (``.json`` or ``.json.gz``).
    tool : str, optional
        One of :data:`TOOLS`; default: as its content shows.

    Returns
    -------
    Result

    Raises
    ------
    ConfigurationError
        The file is cut, of another version, or of none of these.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8", "replace")
    except (EOFError, OSError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}", path) from error
    if not text.strip():
        raise ConfigurationError(f"{path}: is empty: the program wrote nothing", path)
    if text.lstrip()[0] == "{":
        return _of_json(path, text, tool)
    known = tool or _by_text(text)
    if known is None or known in ("iperf3", "irtt"):
        raise ConfigurationError(
            f"{path}: not an output of {tool or 'iperf3 -J, NPtcp, nuttcp -fparse, ping or irtt'}", path
        )
    return _result(path, known, text)


def together(results: Iterable[Result]) -> list[Result]:
    """Return results with those of several ping sizes to one host made one, with a line through them."""
    found = list(results)
    pings = [one for one in found if one.kind == "ping"]
    merged = [one for one in found if one.kind != "ping"]
    hosts: dict[str, list[Result]] = {}
    for one in pings:
        hosts.setdefault(one.path, []).append(one)
    return merged + [ping.line(same) if len(same) > 1 else same[0] for same in hosts.values()]


def calls(outputs: Sequence[tuple[str | None, Result]]) -> list[Result]:
    """Return the calls of one program with different values (windows, blocks, streams) as one result.

    Its table ``calls`` has a row a call: ``value``, and what that is where the command tells (``varied``: ``window``,
    ``block`` or ``streams``); ``user_mbit_s`` and its sigma; what the program told beside them;
    ``bandwidth_delay_bytes``, the largest throughput times the round trip: the least window that fills this path.
    """
    found = [one for value, one in outputs if value is None or "call" not in one.tables]
    alike: dict[str, list[tuple[str, Result]]] = {}
    for value, one in outputs:
        if value is not None and "call" in one.tables:
            alike.setdefault(one.kind, []).append((value, one))
    return found + [same[0][1] if len(same) == 1 else _of_calls(same) for same in alike.values()]


_OPTIONS = {
    "-w": "window", "--window": "window", "-l": "block", "--length": "block",
    "-P": "streams", "--parallel": "streams", "-N": "streams",
}  # fmt: skip
"""Of iperf3 and nuttcp, what is varied most."""


def varied(command: Sequence[str], value: object) -> str | None:
    """Return what the value of a call is, by the option that it was given to; None for any other."""
    given = {(before, word) for before, word in pairwise(command)} | {(word[:2], word[2:]) for word in command}
    named = {name for option, name in _OPTIONS.items() if (option, str(value)) in given}
    return named.pop() if len(named) == 1 else None


def _of_calls(same: Sequence[tuple[str, Result]]) -> Result:
    rows = [
        {"value": _number(value)}
        | {f"user_mbit_s{end}": getattr(one.parameters["user_mbit_s"], name) for end, name in _ENDS}
        | one.tables["call"].iloc[0].to_dict()
        for value, one in same
    ]
    table = pd.DataFrame(rows)
    rtt = table["rtt_us"] if "rtt_us" in table else table["rtt_ms"] * 1e3
    table["bandwidth_delay_bytes"] = table["user_mbit_s"].max() * pd.to_numeric(rtt) / 8
    known = [one for _, one in same if one.parameters["user_mbit_s"].value is not None]
    best = max(known, key=lambda one: one.parameters["user_mbit_s"].value or 0.0, default=same[0][1])
    value = next(value for value, one in same if one is best)
    top = replace(best.parameters["user_mbit_s"], reason=f"largest of {len(same)} calls: {value}")
    counts = {
        name: counted(name, int(sum(one.parameters[name].value or 0 for _, one in same)), len(same))
        for name in ("sent", "received", "lost")
        if all(name in one.parameters and one.parameters[name].value is not None for _, one in same)
    }
    findings = tuple(text for _, one in same for text in one.findings)
    return replace(best, parameters={"user_mbit_s": top} | counts, tables={"calls": table}, findings=findings)


_ENDS = (("", "value"), ("_sigma", "sigma"))
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def _number(value: str) -> float | str:
    """Return a value such as ``64K`` as a number; programs count in powers of 2."""
    found = re.fullmatch(r"([\d.]+)([KMG]?)", value.upper())
    return value if found is None else float(found[1]) * _UNITS[found[2]]


def _of_json(path: Path, text: str, tool: str | None) -> Result:
    try:
        content = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ConfigurationError(
            f"{path}: not the JSON of one call: {error}; was the program stopped, or are these several calls?", path
        ) from error
    version = content.get("version")
    known = "irtt" if isinstance(version, dict) and "irtt" in version else "iperf3" if "start" in content else None
    if known is None or tool not in (None, known):
        raise ConfigurationError(f"{path}: JSON, but not of {tool or 'iperf3 or irtt'}", path)
    return _result(path, known, content)


def _result(path: Path, tool: str, content: Any) -> Result:
    """Read an output in the form of its program; what is no number, or cannot be, says that the file is damaged."""
    try:
        found = TOOLS[tool](path, content)
    except ConfigurationError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{path}: {tool}'s output has something else where a number should be ({error}): damaged, or of another "
            "version",
            path,
        ) from error
    values = {name: one.value for name, one in found.parameters.items() if one.value is not None}
    wrong = {name: value for name, value in values.items() if not (math.isfinite(value) and value >= 0)}
    if values.get("received", 0) > values.get("sent", math.inf):
        wrong["received"] = values["received"]
    for name, value in wrong.items():
        raise ConfigurationError(f"{path}: {name} is {value:g}, which cannot be: damaged, or of another version", path)
    return found


def _by_text(text: str) -> str | None:
    first = text.lstrip().splitlines()[0]
    if first.startswith("PING "):
        return "ping"
    if "megabytes=" in text:
        return "nuttcp"
    return "nptcp" if netpipe.row(first) is not None else None
