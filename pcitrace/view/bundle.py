"""The view's JavaScript as one module: its files in the order of their imports, without imports and exports."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["asset", "script"]

_IMPORT = re.compile(r'^import [^;]*? from "\./(\w+)\.js";\n', re.MULTILINE)


def asset(name: str) -> str:
    """Return a file of the view."""
    return files("pcitrace.view").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the module whose function ``show(home, about, packed)`` shows a run in an element."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        text = asset(f"{name}.js")
        for needed in _IMPORT.findall(text):
            add(needed)
        done[name] = re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)

    add("view")
    return "".join(done.values())
