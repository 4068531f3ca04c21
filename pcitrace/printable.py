"""Texts that came from files, as a terminal may have them."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return text as a terminal may have it: a name in a file may hold anything, sequences that move its cursor too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
