"""What other programs measured, as results beside those of frame logs; each program's format is one file here."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pcitrace.errors import ConfigurationError
from pcitrace.network.importers import iperf3, irtt, netpipe, nuttcp, ping
from pcitrace.network.result import Result

__all__ = ["TOOLS", "read", "together"]

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
    return TOOLS[known](path, text)


def together(results: Iterable[Result]) -> list[Result]:
    """Return results with those of several ping sizes to one host made one, with a line through them."""
    found = list(results)
    pings = [one for one in found if one.kind == "ping"]
    merged = [one for one in found if one.kind != "ping"]
    hosts: dict[str, list[Result]] = {}
    for one in pings:
        hosts.setdefault(one.path, []).append(one)
    return merged + [ping.line(same) if len(same) > 1 else same[0] for same in hosts.values()]


def _of_json(path: Path, text: str, tool: str | None) -> Result:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{path}: no whole JSON: {error}; was the program stopped?", path) from error
    version = content.get("version")
    known = "irtt" if isinstance(version, dict) and "irtt" in version else "iperf3" if "start" in content else None
    if known is None or tool not in (None, known):
        raise ConfigurationError(f"{path}: JSON, but not of {tool or 'iperf3 or irtt'}", path)
    return TOOLS[known](path, content)


def _by_text(text: str) -> str | None:
    first = text.lstrip().splitlines()[0]
    if first.startswith("PING "):
        return "ping"
    if "megabytes=" in text:
        return "nuttcp"
    return "nptcp" if netpipe.row(first) is not None else None
