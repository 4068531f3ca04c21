"""Writing TOML: what a run folder needs of it, no more. Reading is `tomllib`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def dumps(values: Mapping[str, Any]) -> str:
    """TOML text of nested mappings and lists; keys whose value is None are left out.

    Examples
    --------
    >>> print(dumps({"format": 1, "captures": [{"file": "a.sr"}], "link": {"rate_mbit_s": 1000}}))
    format = 1
    <BLANKLINE>
    [[captures]]
    file = "a.sr"
    <BLANKLINE>
    [link]
    rate_mbit_s = 1000
    <BLANKLINE>
    """
    lines: list[str] = []
    _table(lines, values, "")
    return "\n".join(lines).lstrip("\n") + "\n"


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Replace a file by the TOML text of `values`, in one step and on the disk: a reader sees the old or the new."""
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(dumps(values))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _table(lines: list[str], values: Mapping[str, Any], path: str) -> None:
    below: list[tuple[str, Any]] = []
    for key, value in values.items():
        if value is None:
            continue
        if isinstance(value, Mapping) or _is_tables(value):
            below.append((key, value))
        else:
            lines.append(f"{_key(key)} = {_value(value)}")
    for key, value in below:
        name = f"{path}.{_key(key)}" if path else _key(key)
        for item in [value] if isinstance(value, Mapping) else value:
            lines += ["", f"[{name}]" if isinstance(value, Mapping) else f"[[{name}]]"]
            _table(lines, item, name)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value) + "]"
        case Mapping():
            return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    raise TypeError(f"no TOML for {type(value).__name__}")


def _string(text: str) -> str:
    escaped = "".join(_ESCAPES.get(char, char if char.isprintable() else f"\\u{ord(char):04x}") for char in text)
    return f'"{escaped}"'
