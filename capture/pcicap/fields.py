"""Reading a TOML table strictly: every key is known, of the right type and in range, or named in the error."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from pcicap.errors import PlanError

_T = TypeVar("_T")


class Fields:
    """A table whose keys are taken one by one; `end` refuses what nobody took.

    Parameters
    ----------
    values : mapping
        As `tomllib` gives it.
    path : str
        Where the table is in the plan, for errors.
    """

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = dict(values)
        self._path = path
        self._known: list[str] = []

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
                raise PlanError(self.key(name), "unknown key", remedy)

    def text(self, name: str, default: str | None = None) -> str:
        """A non-empty string."""
        value: str = self._take(name, str, "a string", default)
        if not value and default != "":
            raise PlanError(self.key(name), "is empty", "write a string")
        return value

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """One of some strings."""
        value: str = self._take(name, str, "a string", default)
        if value not in choices:
            near = difflib.get_close_matches(value, choices, 1)
            hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(choices)}"
            raise PlanError(self.key(name), f"{value!r} is not known", hint)
        return value

    def integer(self, name: str, default: int | None = None, least: int = 0) -> int:
        """An integer of at least `least`."""
        value: int = self._take(name, int, "an integer", default)
        if value < least:
            raise PlanError(self.key(name), f"is {value}", f"write an integer of at least {least}")
        return value

    def number(self, name: str, default: float | None = None, positive: bool = True) -> float:
        """A finite number; positive, or at least 0."""
        value = float(self._take(name, (int, float), "a number", default))
        if not (0 < value < float("inf") if positive else 0 <= value < float("inf")):
            raise PlanError(
                self.key(name), f"is {value:g}", f"write a {'positive number' if positive else 'number >= 0'}"
            )
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value: bool = self._take(name, bool, "true or false", default)
        return value

    def texts(self, name: str, default: list[str] | None = None) -> list[str]:
        """A list of strings."""
        values: list[str] = self._take(name, list, "a list of strings", default)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise PlanError(f"{self.key(name)}[{index}]", f"is {value!r}", "write a string")
        return values

    def anything(self, name: str) -> list[Any]:
        """A list of anything."""
        values: list[Any] = self._take(name, list, "a list", None)
        return values

    def raw(self, name: str, default: Any = None) -> Any:
        """Whatever is there."""
        return self._take(name, object, "a value", default)

    def table(self, name: str) -> Fields:
        """A table; an empty one where the key is missing."""
        return Fields(self._take(name, dict, "a table", {}), self.key(name))

    def tables(self, name: str) -> list[Fields]:
        """An array of tables, ``[[name]]``."""
        values = self._take(name, list, f"tables headed [[{self.key(name)}]]", [])
        for index, value in enumerate(values):
            if not isinstance(value, dict):
                raise PlanError(
                    f"{self.key(name)}[{index}]", f"is {value!r}", f"write a table headed [[{self.key(name)}]]"
                )
        return [Fields(value, f"{self.key(name)}[{index}]") for index, value in enumerate(values)]

    def named_tables(self, name: str) -> Iterator[tuple[str, Fields]]:
        """The tables ``[name.X]``, each with its X."""
        for label, value in self._take(name, dict, f"tables headed [{self.key(name)}.NAME]", {}).items():
            path = f"{self.key(name)}.{label}"
            if not isinstance(value, dict):
                raise PlanError(path, f"is {value!r}", f"write a table headed [{path}]")
            yield label, Fields(value, path)

    def strings(self, name: str) -> dict[str, str]:
        """A table of scalars, each as text."""
        out = {}
        for key, value in self._take(name, dict, "a table", {}).items():
            if not isinstance(value, (str, int, float)):
                raise PlanError(f"{self.key(name)}.{key}", f"is {value!r}", "write a string or a number")
            out[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return out

    def _take(self, name: str, kind: type[_T] | tuple[type, ...], words: str, default: Any) -> Any:
        self._known.append(name)
        if name not in self._values:
            if default is None:
                raise PlanError(self.key(name), "is missing", f"give {words}")
            return default
        value = self._values[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool and kind is not object):
            raise PlanError(self.key(name), f"is {value!r}", f"write {words}")
        return value
