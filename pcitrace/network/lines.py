"""Latency against size: straight lines, lines with steps, and what a switch adds.

A loop crosses the path once for each of its *legs*: a stream's frame once, a ping-pong twice with the same size, a
request-response with the request's size and with the response's. One way takes ``T(b) = a + k b``, so a loop takes
``legs a + k (sum of sizes)``: that is how the request is allowed for, without subtracting anything beforehand.

Source: R. Hughes-Jones and F. Saka, ATLAS note, 2000, sections 2 and 3; the step ``a + b x + int((x - 1)/c) d``: LHCb
switch benchmark, 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from uncertainties import UFloat

from pcitrace.errors import FitError
from pcitrace.latency import Points
from pcitrace.network.cells import early
from pcitrace.network.scan import Scan, scan
from pcitrace.network.sizes import WIDE

__all__ = ["LARGEST_STEP", "LatencyLine", "Step", "as_legs", "base_of", "fitted", "line", "step", "widening"]

Floats = npt.NDArray[np.float64]

SMALLEST_STEP, LARGEST_STEP = 2, 512
"""Bytes of a cell that are tried."""

POOR = 0.01
"""Probability of a larger chi-square below which it is no chance that points scatter more than their errors say."""


@dataclass(frozen=True)
class LatencyLine:
    """One-way latency against size.

    Attributes
    ----------
    intercept_us, slope_us_per_byte : uncertainties.UFloat
        Correlated with each other.
    chi2, ndof : float, int
    p_value : float or None
        Probability of a larger chi-square; None without degrees of freedom.
    widened : float
        Factor by which the errors were enlarged because the points scatter more; 1 where they do not.
    scatter : float
        How many times as much as their errors say they scatter, where that is no chance; else 1.
    n : int
        Sizes.
    """

    intercept_us: UFloat
    slope_us_per_byte: UFloat
    chi2: float
    ndof: int
    p_value: float | None
    widened: float
    scatter: float
    n: int

    def at(self, length_bytes: float) -> UFloat:
        """Return the latency at a size, in us."""
        return self.intercept_us + self.slope_us_per_byte * length_bytes


@dataclass(frozen=True)
class Step:
    """A line with a step every few bytes, or that there is none.

    Attributes
    ----------
    found : bool
    p_value : float or None
        Probability that sizes without a step show one as clear; None where it could not be tried.
    reason : str
        Why there is no step, or no single one.
    step_bytes : uncertainties.UFloat or None
        Its sigma is 0 where one length is far likelier than all others.
    step_us : uncertainties.UFloat or None
    line : LatencyLine or None
        The rest of the fit; None where no step was found.
    alike : tuple of int
        Lengths of the step that describe these sizes equally well.
    early_bytes : int
        How far before the first user byte the cells begin.
    gain : array of float
        What each length of the step takes off chi-square, from :data:`SMALLEST_STEP` on.
    """

    found: bool
    p_value: float | None
    reason: str = ""
    step_bytes: UFloat | None = None
    step_us: UFloat | None = None
    line: LatencyLine | None = None
    alike: tuple[int, ...] = ()
    gain: Floats | None = None
    early_bytes: int = 0


def line(legs: npt.ArrayLike, loop_us: npt.ArrayLike, sigma_us: npt.ArrayLike) -> LatencyLine:
    """Fit a line by weighted least squares.

    Parameters
    ----------
    legs : array of float, shape (n, legs)
        Sizes with which each loop crosses the path, in user bytes.
    loop_us, sigma_us : arrays of float, shape (n,)
        Time of the whole loop and its standard error.

    Returns
    -------
    LatencyLine

    Raises
    ------
    FitError
        Fewer than two sizes, or errors that are not positive.

    Examples
    --------
    >>> found = line([[64, 64], [64, 512], [64, 1500]], [55.648, 66.176, 89.394], [0.01] * 3)
    >>> print(f"{found.intercept_us:.1uS} + {found.slope_us_per_byte:.1uS} b")
    26.320(5) + 0.02350(1) b
    """
    sizes = as_legs(legs)
    lengths = len(np.unique(sizes, axis=0))
    if lengths < 2:
        raise FitError(f"intercept and slope are not determined by {lengths} size: measure two or more")
    return fitted(base_of(sizes), loop_us, sigma_us, ("intercept", "slope"))[0]


def step(legs: npt.ArrayLike, loop_us: npt.ArrayLike, sigma_us: npt.ArrayLike, *, seed: int = 1) -> Step:
    """Look for a step every c bytes: ``a + b x + int((x - 1)/c) d``, c from 2 to 512.

    Parameters
    ----------
    legs, loop_us, sigma_us
        As for :func:`line`.
    seed : int
        Of the bootstrap.

    Returns
    -------
    Step
        That there is none is a result: the probability is that of a parametric bootstrap of the line without steps.
    """
    sizes = as_legs(legs)
    y, sigma = np.asarray(loop_us, dtype=np.float64), np.asarray(sigma_us, dtype=np.float64)
    lengths = np.arange(SMALLEST_STEP, LARGEST_STEP + 1)
    columns = np.stack([((sizes - 1) // c).sum(axis=1) for c in lengths])
    base = base_of(sizes)
    few = len(np.unique(sizes, axis=0))
    tried = scan(base, columns, y, sigma, seed) if few > 3 else None
    if tried is None:
        return Step(False, None, f"{few} sizes do not tell a step from the line: measure in steps of a byte or a few")
    hidden = lengths[~tried.told]
    if (before := _early(tried, base, sizes, lengths, (y, sigma))) is not None:
        return before
    if not tried.found:
        reason = f"no step: a line without one looks as good with probability {tried.p_value:.2g}"
        if len(hidden):
            reason += f"; these sizes do not tell one every {_few(hidden)} bytes from the slope"
        return Step(False, tried.p_value, reason, gain=tried.gain)
    return _step(tried, lengths, base, columns, (y, sigma))


def _early(
    tried: Scan, base: Floats, sizes: Floats, lengths: npt.NDArray[np.int64], data: tuple[Floats, Floats]
) -> Step | None:
    """Return cells that begin before the first user byte, where they explain the times clearly better than others."""
    from uncertainties import ufloat

    found = early(base, sizes, lengths, data, float(tried.gain[tried.best]))
    if found is None or found.early_bytes[0] == 0:
        return None
    stepped, terms = fitted(np.column_stack([base, found.counted(sizes)]), *data, ("intercept", "slope", "step"))
    if terms[2].nominal_value < 0:
        return None
    if found.alike > 1:
        reason = f"these sizes tell no difference between {found.alike} lengths of a cell"
        return Step(True, found.p_value, reason, None, None, stepped, (), tried.gain)
    every = ufloat(float(found.cell_bytes), 1e-9)
    least, most = found.early_bytes
    reason = f"the first cell has {least if least == most else f'{least} to {most}'} bytes before the user bytes"
    return Step(True, found.p_value, reason, every, terms[2], stepped, (), tried.gain, least)


def _step(
    tried: Scan, lengths: npt.NDArray[np.int64], base: Floats, columns: Floats, data: tuple[Floats, Floats]
) -> Step:
    """Return the step that was found, with its errors."""
    from uncertainties import ufloat

    same = tuple(lengths[tried.alike].tolist())
    stepped, found = fitted(np.column_stack([base, columns[tried.best]]), *data, ("intercept", "slope", "step"))
    at = float(lengths[tried.best])
    scatter = float(np.sqrt((tried.weights * (lengths - at) ** 2).sum()))
    every = ufloat(at, max(scatter, 1e-9))
    if found[2].nominal_value < 0:
        return Step(False, tried.p_value, "the clearest step is one down, which no cell makes", gain=tried.gain)
    if len(same) > 1:
        reason = f"these sizes tell no difference between steps every {_few(np.array(same))} bytes"
        return Step(True, tried.p_value, reason, None, None, stepped, same, tried.gain)
    return Step(True, tried.p_value, "", every, found[2], stepped, same, tried.gain)


def as_legs(legs: npt.ArrayLike) -> Floats:
    """Return the sizes with which each loop crosses the path, a row a loop."""
    sizes = np.asarray(legs, dtype=np.float64)
    return sizes[:, None] if sizes.ndim == 1 else sizes


def base_of(sizes: Floats) -> Floats:
    """Return the columns of a and k in a linear model."""
    return np.column_stack([np.full(len(sizes), float(sizes.shape[1])), sizes.sum(axis=1)])


def fitted(
    columns: Floats, loop_us: npt.ArrayLike, sigma_us: npt.ArrayLike, names: tuple[str, ...]
) -> tuple[LatencyLine, tuple[UFloat, ...]]:
    """Fit columns, the first two of them those of :func:`base_of`; return the line and all terms."""
    points = Points.of(columns[:, 1], loop_us, sigma_us)
    found, chi2, _ = points.fit(columns, names)
    ndof = len(points.length) - len(names)
    p_value = points.p_value(chi2, ndof)
    widened, scatter = widening(chi2, ndof)
    found = tuple(one.nominal_value + widened * (one - one.nominal_value) for one in found)
    return LatencyLine(found[0], found[1], chi2, ndof, p_value, widened, scatter, len(points.length)), found


def widening(chi2: float, ndof: int) -> tuple[float, float]:
    """Return by what the errors of a fit are multiplied because its points scatter, and by how much they scatter more
    than their errors say where that is no chance.

    By the points' scatter where that exceeds their errors (Particle Data Group, Review of Particle Physics, section
    5.2.2). Where it clearly does, the errors rest on the scatter alone, and few points tell that badly: Student's
    factor for 95 %.
    """
    from scipy.special import chdtrc, stdtrit

    if ndof < 1:
        return 1.0, 1.0
    scale = max(1.0, float(np.sqrt(chi2 / ndof)))
    if chdtrc(ndof, chi2) >= POOR:
        return scale, 1.0
    return scale * float(stdtrit(ndof, 0.975)) / WIDE, scale


def _few(numbers: npt.NDArray[np.int64]) -> str:
    """Return numbers as text, the first ten of many."""
    shown = ", ".join(str(one) for one in numbers[:10].tolist())
    return shown if len(numbers) <= 10 else f"{shown} ... ({len(numbers)} lengths)"
