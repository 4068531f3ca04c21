"""TOML files with a published schema: read, checked, and refused with the key that is wrong.

``run.toml`` and NIC profiles share this; what they mean is in :mod:`pcitrace.runfolder` and :mod:`pcitrace.profiles`.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pcitrace.errors import ConfigurationError, PciTraceError

__all__ = ["load", "read_toml", "validate"]


def load(path: Path, schema: str) -> dict[str, Any]:
    """Read a TOML file and check it against a schema of this package.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    schema : str
        Name of the schema's file, such as ``run-folder.schema.json``.

    Returns
    -------
    dict
        The content; dates are ISO 8601 strings.

    Raises
    ------
    ConfigurationError
        The file cannot be read, is not TOML, or does not follow the schema; the message names the key.
    """
    content = read_toml(path, lambda text: ConfigurationError(f"{path}: {text}", path))
    plain: dict[str, Any] = _plain(content)
    validate(plain, schema, path)
    return plain


def read_toml(path: Path, error: Callable[[str], PciTraceError]) -> dict[str, Any]:
    """Read a TOML file; raise the error that is made of the text that says what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as wrong:
        raise error(f"cannot be read: {wrong.strerror}") from wrong
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as wrong:
        raise error(f"not a TOML file: {wrong}") from wrong


def validate(content: Mapping[str, Any], schema: str, path: Path) -> None:
    """Check content against a schema of this package; raise a ConfigurationError that names the first wrong key."""
    from fastjsonschema import JsonSchemaValueException

    try:
        _validator(schema)(content)
    except JsonSchemaValueException as error:
        key, text = _explain(error)
        raise ConfigurationError(f"{path}: {text}", path, key) from None


@cache
def _validator(schema: str) -> Any:
    import fastjsonschema

    content = json.loads(resources.files("pcitrace").joinpath(schema).read_text(encoding="utf-8"))
    return fastjsonschema.compile(content, use_default=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value


def _explain(error: Any) -> tuple[str, str]:
    """Return the offending key, written ``captures[0].file``, and one sentence about it."""
    key = error.name.removeprefix("data").removeprefix(".")
    inside = f"{key}." if key else ""
    if error.rule == "additionalProperties":
        known = sorted(error.definition.get("properties", {}))
        unknown = sorted(set(error.value) - set(known))[0]
        near = difflib.get_close_matches(unknown, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
        return inside + unknown, f"unknown key {inside}{unknown}; {hint}"
    if error.rule == "required":
        missing = sorted(set(error.rule_definition) - set(error.value))[0]
        return inside + missing, f"key {inside}{missing} is missing"
    meaning = error.definition.get("description")
    if error.rule in ("enum", "const"):
        allowed = error.rule_definition if error.rule == "enum" else [error.rule_definition]
        text = f"{key} = {error.value!r}; allowed: {', '.join(map(repr, allowed))}"
    elif error.rule == "propertyNames":
        wrong = next(name for name in error.value if not re.search(error.rule_definition["pattern"], name))
        text = f"{key}: {wrong!r} is not a name that can be used here"
    else:
        given = "" if isinstance(error.value, dict | list) else f" = {error.value!r}"
        text = f"{key}{given}: {error.message.removeprefix(error.name).strip()}"
    return key, text + (f" ({meaning.rstrip('.')})" if meaning else "")
