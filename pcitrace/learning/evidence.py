"""A value that the traffic shows: counted against every other value that it could be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = ["MISS", "SURE", "Fact", "Value", "chosen", "unseen"]

Fact = int | bool | str | tuple[int, ...]

MISS = 4.0
"""Nats that an observation costs which a value does not explain: one frame in 50 may be read wrongly."""

SURE = 6.0
"""Nats from which on a value is given, as for the edges of frames."""

FIT = 0.2
"""Share of observations that even the best value may leave unexplained; beyond it none of the values is the card's."""

LEAST = 5
"""Observations without which nothing is said."""


@dataclass(frozen=True)
class Value:
    """What was learned of one property.

    Attributes
    ----------
    value : int, bool, str, tuple of int or None
        None: not known; `reason` says why.
    n : int
        Observations that could tell: pieces, frames or reads.
    margin : float or None
        How much more the next-best value costs, in nats; None where nothing was counted.
    reason : str
        Why the value is not known.
    """

    value: Fact | None
    n: int = 0
    margin: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown: {self.reason}"
        shown = ", ".join(map(str, self.value)) if isinstance(self.value, tuple) else str(self.value)
        return f"{shown} (n {self.n}, margin {self.margin:.0f} nats)"


def unseen(reason: str, n: int = 0) -> Value:
    """Return a value that nothing tells."""
    return Value(None, n, None, reason)


def chosen(misses: Mapping[Fact | None, int], n: int) -> Value:
    """Choose the value that leaves the fewest observations unexplained.

    Parameters
    ----------
    misses : mapping
        Of every value that could be: observations that it does not explain. The value None stands for one that cannot
        be written down, such as a limit that was never reached.
    n : int
        Observations.

    Returns
    -------
    Value
        Its margin is what the next-best value costs more; below `SURE` the value is null, and it is where even the
        best one explains too little.
    """
    if n < LEAST:
        return unseen(f"{n} observations, {LEAST} are needed", n)
    ranked = sorted(misses.items(), key=lambda item: item[1])
    (best, least), (other, more) = ranked[0], ranked[1]
    found = Value(best, n, MISS * (more - least))
    if least > FIT * n:
        return replace(found, value=None, reason=f"no value explains it: {least} of {n} observations are off")
    if MISS * (more - least) < SURE:
        names = " and ".join("none" if one is None else str(one) for one in (best, other))
        return replace(found, value=None, reason=f"{names} explain the traffic alike")
    return found
