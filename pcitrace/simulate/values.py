"""Fields of a bench by their dotted names: set from code or from text, and checked."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from pcitrace.errors import PciTraceError

PROBABILITIES = ("loss", "probability")  # how names of fields end that hold one
SIGNED = ("receive_transit_us_per_byte", "drift_ppm")


class SimulationError(PciTraceError):
    """The bench cannot be set up as asked."""


def check_numbers(owner: Any, path: str = "") -> None:
    """Refuse numbers that no field of their kind can have.

    Raises
    ------
    SimulationError
    """
    for item in fields(owner):
        value, name = getattr(owner, item.name), f"{path}{item.name}"
        if is_dataclass(value):
            check_numbers(value, f"{name}.")
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if not isinstance(number, int | float) or isinstance(number, bool):
                continue
            require(math.isfinite(number), name, value, "finite")
            if item.name.endswith(PROBABILITIES):
                require(0 <= number < 1, name, value, "0 to below 1")
            elif item.name not in SIGNED:
                require(number >= 0, name, value, "0 or more")
        if len(numbers) == 2 and "..." not in str(item.type) and all(isinstance(n, int | float) for n in numbers):
            require(numbers[0] <= numbers[1], name, value, "the smaller first")


def require(good: bool, name: str, found: object, allowed: str) -> None:
    """Raise unless a field is as it must be."""
    if not good:
        raise SimulationError(f"{name} = {found!r}: it must be {allowed}")


def set_value(owner: Any, path: list[str], value: Any, whole: str) -> Any:
    """Return a copy of a nest of dataclasses with one field changed; `whole` is the name as the user gave it."""
    name = path[0]
    names = [item.name for item in fields(owner)]
    if name not in names:
        near = get_close_matches(name, names, n=3, cutoff=0.4) or names
        raise SimulationError(f"{whole}: there is no {name!r} here; nearest: {', '.join(near)}")
    current = getattr(owner, name)
    if len(path) > 1:
        if not is_dataclass(current):
            raise SimulationError(f"{whole}: {name!r} has no parts")
        return replace(owner, **{name: set_value(current, path[1:], value, whole)})
    if is_dataclass(current):
        if not isinstance(value, type(current)):
            raise SimulationError(f"{whole}: name one of its fields: {', '.join(f.name for f in fields(current))}")
        return replace(owner, **{name: value})
    return replace(owner, **{name: _convert(value, get_type_hints(type(owner))[name], current, whole)})


def _convert(value: Any, wanted: Any, current: Any, whole: str) -> Any:
    """Accept what the field holds, or its text as written after ``--set``."""
    text = str(wanted)
    if isinstance(value, str) and wanted is not str:
        value = _parse(value, whole, listed="tuple" in text)
    if isinstance(value, list):
        value = tuple(value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not _fits(value, wanted):
        name = wanted.__name__ if isinstance(wanted, type) else text.replace("pcitrace.simulate.config.", "")
        raise SimulationError(f"{whole} = {value!r}: it must be {name}, such as {current!r}")
    return value


def _parse(text: str, whole: str, *, listed: bool) -> Any:
    if text == "none":
        return None
    try:
        return tomllib.loads(f"v = [{text}]" if listed and not text.startswith("[") else f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        raise SimulationError(f"{whole} = {text}: not a number, true, false, none or a list of numbers") from None


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value is of an annotated type (those that occur here)."""
    if isinstance(wanted, UnionType):
        return any(_fits(value, part) for part in get_args(wanted))
    if get_origin(wanted) is tuple:
        parts = get_args(wanted)
        if not isinstance(value, tuple):
            return False
        if parts[-1] is Ellipsis:
            return all(_fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if get_origin(wanted) is not None:
        return isinstance(value, get_origin(wanted))
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, (int, float) if wanted is float else wanted)


def plain(value: Any) -> Any:
    """Return nested dictionaries and lists as TOML takes them, without what is None."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
