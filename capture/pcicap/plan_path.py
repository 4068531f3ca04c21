"""``[path]`` of a plan: what lies between the hosts. It goes to run.toml as it is."""

from __future__ import annotations

from typing import Any

from pcicap.fields import Fields

_KINDS = ("direct", "switch", "other")


def read_path(fields: Fields) -> dict[str, Any]:
    """Check ``[path]``: kind, name, devices, ports, modules, uplink (docs/run-folder.md)."""
    path: dict[str, Any] = {"kind": fields.choice("kind", _KINDS)}
    if fields.has("name"):
        path["name"] = fields.text("name")
    if fields.has("devices"):
        path["devices"] = fields.texts("devices")
    for key in ("ports", "modules"):
        if fields.has(key):
            path[key] = _pairs(fields, key)
    if fields.has("uplink"):
        path["uplink"] = fields.flag("uplink")
    fields.end()
    return path


def _pairs(fields: Fields, key: str) -> list[list[str]]:
    """Of each device the way in and out."""
    pairs = fields.anything(key)
    for index, pair in enumerate(pairs):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, str) for end in pair)):
            fields.refuse(f"{key}[{index}]", f"is {pair!r}", 'write a pair, in and out: ["1/1", "2/3"]')
    return pairs
