"""Reading a TOML table strictly: every key is known, of the right type and in range, or named in the error."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from pcicap.errors import PlanError

_T = TypeVar("_T")
_SOME: dict[Any, Any] = {str: "?", bool: False, list: [], dict: {}, object: None}
"""Instead of a value that is wrong, where errors are collected; 1 for numbers."""


class Fields:
    """A table whose keys are taken one by one; `end` refuses what nobody took.

    Parameters
    ----------
    values : mapping
        As `tomllib` gives it.
    path : str
        Where the table is in the plan, for errors.
    faults : list of PlanError, optional
        Where errors are collected; whoever asked gets some value of the right type instead, and the reading goes on.
        Without it the first error is raised.
    """

    def __init__(self, values: Mapping[str, Any], path: str = "", faults: list[PlanError] | None = None) -> None:
        self._values = dict(values)
        self._path = path
        self._faults = faults
        self._known: list[str] = []

    def refuse(self, name: str, found: str, remedy: str) -> None:
        """Collect, or raise, what is wrong with a key."""
        self._fault(PlanError(self.key(name), found, remedy))

    def _fault(self, error: PlanError) -> None:
        if self._faults is None:
            raise error
        self._faults.append(error)

    def key(self, name: str) -> str:
        """Full key, as an error names it."""
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        """Whether the key is in the plan; makes it a known one."""
        self._known.append(name)
        return name in self._values

    def end(self) -> None:
        """Refuse keys that nobody asked for."""
        for name in self._values:
            if name not in self._known:
                near = difflib.get_close_matches(name, self._known, 1)
                remedy = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(self._known))}"
                self.refuse(name, "unknown key", remedy)

    def text(self, name: str, default: str | None = None) -> str:
        """A non-empty string."""
        value: str = self._take(name, str, "a string", default)
        if not value and default != "":
            self.refuse(name, "is empty", "write a string")
        return value

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """One of some strings."""
        value: str = self._take(name, str, "a string", default)
        if value not in choices:
            near = difflib.get_close_matches(value, choices, 1)
            hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(choices)}"
            self.refuse(name, f"{value!r} is not known", hint)
            return next(iter(choices), "")
        return value

    def integer(self, name: str, default: int | None = None, least: int = 0) -> int:
        """An integer of at least `least`."""
        value: int = self._take(name, int, "an integer", default)
        if value < least:
            self.refuse(name, f"is {value}", f"write an integer of at least {least}")
            return least
        return value

    def number(self, name: str, default: float | None = None, positive: bool = True) -> float:
        """A finite number; positive, or at least 0."""
        value = float(self._take(name, (int, float), "a number", default))
        if not (0 < value < float("inf") if positive else 0 <= value < float("inf")):
            self.refuse(name, f"is {value:g}", f"write a {'positive number' if positive else 'number >= 0'}")
            return 1.0
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value: bool = self._take(name, bool, "true or false", default)
        return value

    def texts(self, name: str, default: list[str] | None = None) -> list[str]:
        """A list of strings."""
        values: list[Any] = self._take(name, list, "a list of strings", default)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                self.refuse(f"{name}[{index}]", f"is {value!r}", "write a string")
        return [value for value in values if isinstance(value, str)]

    def anything(self, name: str) -> list[Any]:
        """A list of anything."""
        values: list[Any] = self._take(name, list, "a list", None)
        return values

    def raw(self, name: str, default: Any = None) -> Any:
        """Whatever is there."""
        return self._take(name, object, "a value", default)

    def table(self, name: str) -> Fields:
        """A table; an empty one where the key is missing."""
        return Fields(self._take(name, dict, "a table", {}), self.key(name), self._faults)

    def tables(self, name: str) -> list[Fields]:
        """An array of tables, ``[[name]]``."""
        values = self._take(name, list, f"tables headed [[{self.key(name)}]]", [])
        for index, value in enumerate(values):
            if not isinstance(value, dict):
                self.refuse(f"{name}[{index}]", f"is {value!r}", f"write a table headed [[{self.key(name)}]]")
        tables = enumerate(values)
        return [Fields(v, f"{self.key(name)}[{index}]", self._faults) for index, v in tables if isinstance(v, dict)]

    def named_tables(self, name: str) -> Iterator[tuple[str, Fields]]:
        """The tables ``[name.X]``, each with its X."""
        for label, value in self._take(name, dict, f"tables headed [{self.key(name)}.NAME]", {}).items():
            path = f"{self.key(name)}.{label}"
            if not isinstance(value, dict):
                self._fault(PlanError(path, f"is {value!r}", f"write a table headed [{path}]"))
                continue
            yield label, Fields(value, path, self._faults)

    def strings(self, name: str) -> dict[str, str]:
        """A table of scalars, each as text."""
        out = {}
        for key, value in self._take(name, dict, "a table", {}).items():
            if not isinstance(value, (str, int, float)):
                self.refuse(f"{name}.{key}", f"is {value!r}", "write a string or a number")
                continue
            out[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return out

    def _take(self, name: str, kind: type[_T] | tuple[type, ...], words: str, default: Any) -> Any:
        self._known.append(name)
        if name not in self._values:
            if default is None:
                self.refuse(name, "is missing", f"give {words}")
                return _SOME.get(kind, 1)
            return default
        value = self._values[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool and kind is not object):
            self.refuse(name, f"is {value!r}", f"write {words}")
            return _SOME.get(kind, 1) if default is None else default
        return value
