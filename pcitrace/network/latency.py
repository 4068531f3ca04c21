"""Latency against size of a measurement: its points as a table, and what is laid through them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from pcitrace.errors import FitError
from pcitrace.network.changes import Bend, Jump, bend, jump
from pcitrace.network.delays import COARSE_US
from pcitrace.network.flows import FlowResult, LoopResult
from pcitrace.network.lines import LatencyLine, Step, line, step
from pcitrace.network.sizes import STATISTICS

__all__ = ["Latency", "of_points"]

Floats = npt.NDArray[np.float64]

NEIGHBOURS = 10
"""Sizes on either side whose standard errors are averaged."""

DISTURBED = 4.0
"""How many times as much as usual the times of a size follow one another where something else went on."""

LASTING = 2.0
"""Effect from which on batches are too short rather than too few: then Student's factor stays in it."""

STEP_TERMS = 4
"""Of a line with a step every so many bytes."""

LEAST_USER_BYTES = 46
"""Shorter frames are padded on the wire: they do not lie on the line of the longer ones. Requests count as so long."""


@dataclass(frozen=True)
class Latency:
    """Latency against size.

    Attributes
    ----------
    table : pandas.DataFrame
        A row a size: ``length_bytes``, ``n``, and of each statistic ``median_us``, ``median_sigma_us`` ... of whole
        loops (or one way, where that was measured), with ``least_us``, ``p999_us``.
    legs : array of float, shape (sizes, legs)
        Sizes with which a loop crosses the path.
    lines : dict of str to LatencyLine
        One-way lines through ``median``, ``mean`` and ``q10``; each says which.
    step : Step or None
    change : Bend, Jump or None
        From which size on the line is another one; None where steps explain the times better.
    one_way : str
        How one way follows from what was measured.
    reason : str
        Why there is no line.
    """

    table: pd.DataFrame
    legs: Floats
    lines: Mapping[str, LatencyLine]
    step: Step | None
    change: Bend | Jump | None
    one_way: str
    reason: str = ""

    def loop(self, statistic: str = "median") -> tuple[Floats, Floats]:
        """Return a statistic of all sizes and its standard errors, these as smooth in size as they are known."""
        values, sigma = (self.table[f"{statistic}{part}"].to_numpy(np.float64) for part in ("_us", "_sigma_us"))
        return values, _smooth(sigma)

    @property
    def best(self) -> LatencyLine | None:
        """The line through the medians; with its step where there is one, of the shorter frames where it changes."""
        if self.step is not None and self.step.line is not None:
            return self.step.line
        if self.change is not None:
            return self.change.line
        return self.lines.get("median")


def of_points(
    kind: str, request_bytes: int | None, found: Sequence[tuple[int, FlowResult | LoopResult]], header_bytes: int = 0
) -> Latency:
    """Lay lines through the latencies of many sizes.

    Parameters
    ----------
    kind : str
        Of the test.
    request_bytes : int or None
        Size of the requests; None: as long as the answers.
    found : sequence of (int, FlowResult or LoopResult)
        Size and what was measured with it.
    header_bytes : int
        Between Ethernet header and user data.

    Returns
    -------
    Latency
    """
    rows, legs, effects, batched, coarse_us = [], [], [], [], 0.0
    for length, one in found:
        if one.delay is None:
            continue
        row: dict[str, float] = {"length_bytes": length, "n": one.delay.n}
        for name in STATISTICS:
            row[f"{name}_us"], row[f"{name}_sigma_us"] = one.delay.statistic(name)
        row |= {"least_us": one.delay.least_us, "p999_us": one.delay.p999_us}
        coarse_us = max(coarse_us, one.delay.step_us if one.delay.alike else 0.0)
        rows.append(row)
        effects.append(1.0 if one.delay.alike else one.delay.effect)
        batched.append(1.0 if one.delay.alike else one.delay.batched)
        legs.append(_legs(kind, request_bytes, length))
    padded = max(0, LEAST_USER_BYTES - header_bytes)
    columns = [
        "length_bytes",
        "n",
        *(f"{name}{part}" for name in STATISTICS for part in ("_us", "_sigma_us")),
        "least_us",
        "p999_us",
    ]
    table = pd.DataFrame(rows, columns=columns)
    table["median_sigma_us"] *= _together(np.array(effects), np.array(batched))
    sizes = np.array(legs, dtype=np.float64).reshape(len(rows), len(_legs(kind, request_bytes, 0)))
    return _fitted(table, np.maximum(sizes, padded), padded, _how(kind, request_bytes), coarse_us)


def _together(effects: Floats, batched: Floats) -> Floats:
    """Return by what errors are multiplied for all sizes to share how much their times follow one another.

    Of one size that is known to a third or worse, and a size that seems far more certain than it is looks like a step
    or a bend. A size with far more of it than the others was disturbed: it keeps its own.
    """
    if len(effects) < 2:
        return np.ones(len(effects))
    usual = batched <= DISTURBED * np.median(batched)
    shared = max(1.0, float(batched[usual].mean()))
    if shared > LASTING:
        shared = float(effects[usual].mean())
    return np.where(usual, np.sqrt(shared / effects), 1.0)


def _smooth(sigma: Floats) -> Floats:
    """Return standard errors that change with size only as far as neighbours agree.

    That of one size is itself known to a tenth or worse. Of a thousand sizes some seem far more certain than they are,
    and a point off the line with a sixth of its error looks like a step.
    """
    if len(sigma) < 2 * NEIGHBOURS + 1:
        return sigma
    square = np.minimum(sigma**2, 9 * np.median(sigma**2))
    padded = np.pad(square, NEIGHBOURS, mode="reflect")
    around = np.convolve(padded, np.full(2 * NEIGHBOURS + 1, 1 / (2 * NEIGHBOURS + 1)), "valid")
    return np.asarray(np.maximum(np.sqrt(around), np.where(sigma**2 > square, sigma, 0.0)))


def _legs(kind: str, request_bytes: int | None, length: int) -> tuple[int, ...]:
    if kind in ("request-response", "one-to-many"):
        return (length if request_bytes is None else request_bytes, length)
    return (length, length) if kind == "ping-pong" else (length,)


def _how(kind: str, request_bytes: int | None) -> str:
    if kind == "ping-pong" or (kind in ("request-response", "one-to-many") and request_bytes is None):
        return "half of the round trip"
    if kind in ("request-response", "one-to-many"):
        return f"the round trip, allowing for the request of {request_bytes} bytes"
    return "arrival minus departure, clocks compared"


def _fitted(table: pd.DataFrame, legs: Floats, padded: int, how: str, coarse_us: float) -> Latency:
    long = table["length_bytes"].to_numpy(np.float64) >= padded
    lines: dict[str, LatencyLine] = {}
    reason = "" if len(table) else "no time of any loop or frame is known"
    stepped, changed = None, None
    if not reason:
        for name in STATISTICS:
            values = table[f"{name}_us"].to_numpy(np.float64)[long]
            sigma = table[f"{name}_sigma_us"].to_numpy(np.float64)[long]
            told = np.isfinite(sigma)
            sizes, values, sigma = legs[long][told], values[told], _smooth(sigma[told])
            try:
                lines[name] = line(sizes, values, sigma)
            except FitError as error:
                reason = str(error)
                continue
            if name == STATISTICS[0] and coarse_us > COARSE_US:
                why = f"the clock's own step of {coarse_us:g} us, over which the times do not scatter, looks like one"
                stepped = Step(False, None, why)
            elif name == STATISTICS[0]:
                times = sizes, values, sigma
                stepped, changed = _one_of(step(*times), (bend(*times), jump(*times)))
    return Latency(table, legs, lines, stepped, changed, how, reason)


def _one_of(stepped: Step, changes: Sequence[Bend | Jump | None]) -> tuple[Step, Bend | Jump | None]:
    """Return the step or the change of the line, whichever explains the times best: by Schwarz's criterion, with errors
    known but for a factor.
    """
    known = [one for one in changes if one is not None]
    if not known:
        return stepped, None
    best = min(known, key=lambda one: _unlikely(one.line, one.TERMS))
    if stepped.line is None:
        return stepped, best
    if _unlikely(stepped.line, STEP_TERMS) <= _unlikely(best.line, best.TERMS):
        return stepped, None
    return Step(False, stepped.p_value, f"no step: that {best} explains these times better", gain=stepped.gain), best


def _unlikely(one: LatencyLine, terms: int) -> float:
    """Return Schwarz's criterion: the least is the likeliest."""
    return one.n * math.log(max(one.chi2, np.finfo(float).tiny)) + terms * math.log(one.n)
