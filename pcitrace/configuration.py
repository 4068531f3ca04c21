"""TOML files with a published schema: read, checked, and refused with the key that is wrong.

``run.toml`` and NIC profiles share this; what they mean is in :mod:`pcitrace.runfolder` and :mod:`pcitrace.profiles`.
"""

from __future__ import annotations

import datetime
import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pcitrace.errors import ConfigurationError

__all__ = ["load", "validate"]


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
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}", path) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: not a TOML file: {error}", path) from error
    plain: dict[str, Any] = _plain(content)
    validate(plain, schema, path)
    return plain


def validate(content: Mapping[str, Any], schema: str, path: Path) -> None:
    """Check content against a schema of this package; raise a ConfigurationError that names the first wrong key."""
    from jsonschema.exceptions import best_match

    error = best_match(_validator(schema).iter_errors(content))
    if error is not None:
        key, text = _explain(error)
        raise ConfigurationError(f"{path}: {text}", path, key)


@cache
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(resources.files("pcitrace").joinpath(schema).read_text(encoding="utf-8")))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value


def dotted(parts: Iterable[str | int]) -> str:
    """Return a key as people write it: ``captures[0].file``."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _explain(error: Any) -> tuple[str, str]:
    """Return the offending key and one sentence about it."""
    where = list(error.absolute_path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))[0]
        key = dotted([*where, unknown])
        near = difflib.get_close_matches(unknown, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
        return key, f"unknown key {key}; {hint}"
    if error.validator == "required":
        missing = sorted(set(error.validator_value) - set(error.instance))[0]
        key = dotted([*where, missing])
        return key, f"key {key} is missing"
    key = dotted(where)
    meaning = error.schema.get("description")
    if error.validator in ("enum", "const"):
        allowed = error.validator_value if error.validator == "enum" else [error.validator_value]
        text = f"{key} = {error.instance!r}; allowed: {', '.join(map(repr, allowed))}"
    elif error.validator == "pattern" and "propertyNames" in error.absolute_schema_path:
        text = f"{key}: {error.instance!r} is not a name that can be used here"
    else:
        text = f"{key}: {error.message}"
    return key, text + (f" ({meaning.rstrip('.')})" if meaning else "")
