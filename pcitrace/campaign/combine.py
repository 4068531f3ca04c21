"""One number of many runs: a random-effects mean, how much the runs differ, drifts, outliers.

Runs on one bench share what its analyser gets wrong (``sigma_measurement``), and only ``sigma_frames`` is their own.
So the runs of a bench are put together by what is their own, what they share is added to their mean, and then benches
are put together. Source: R. DerSimonian and N. Laird, Controlled Clinical Trials 7 (1986) 177;
statsmodels ``combine_effects``, with the estimate of Paule and Mandel for the variance between runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from pcitrace.campaign.errors import needs

__all__ = ["Mean", "combined", "mean"]

Floats = npt.NDArray[np.float64]

FEW = 4
"""Runs from which on one of them can be told from the others."""

UNLIKELY = 0.01
"""Probability, over all runs of a constant, from which on one is called an outlier, or a drift a drift."""

BY = ["constant", "host", "card"]


@dataclass(frozen=True)
class Mean:
    """A random-effects mean.

    Attributes
    ----------
    value, sigma : float
    tau : float or None
        Standard deviation between the runs, without their own errors; None of a single run.
    q, p_value : float or None
        Cochran's Q, and how likely one as large is if the runs do not differ.
    i2 : float or None
        Share of the variance that is between the runs.
    """

    value: float
    sigma: float
    tau: float | None = None
    q: float | None = None
    p_value: float | None = None
    i2: float | None = None


def mean(values: Floats, sigma: Floats) -> Mean:
    """Return the random-effects mean of independent values.

    Parameters
    ----------
    values, sigma : arrays of float, shape (runs,)
        The errors are positive.
    """
    if len(values) == 1:
        return Mean(float(values[0]), float(sigma[0]))
    with needs("putting runs together"):
        from statsmodels.stats.meta_analysis import combine_effects
    scale = float(np.median(sigma))
    # Its Q is a difference of squares: far from 0 nothing would be left of small differences.
    apart = (values - np.average(values)) / scale
    with np.errstate(divide="ignore", invalid="ignore"):  # its I2 of runs that are equal
        found = combine_effects(apart, (sigma / scale) ** 2, method_re="iterated")
    tau2 = max(float(found.tau2), 0.0)
    weights = 1 / ((sigma / scale) ** 2 + tau2)
    q = max(float(found.q), 0.0)
    return Mean(
        float(np.sum(weights * values) / np.sum(weights)),
        float(scale / np.sqrt(np.sum(weights))),
        float(np.sqrt(tau2)) * scale,
        q,
        float(stats.chi2.sf(q, len(values) - 1)),
        max(0.0, 1 - (len(values) - 1) / q) if q > 0 else 0.0,
    )


def combined(table: pd.DataFrame) -> pd.DataFrame:
    """Put every constant of a campaign together over its runs.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`pcitrace.campaign.collect.constants` gives it.

    Returns
    -------
    pandas.DataFrame
        A row a constant of a host and card: ``value``, ``sigma``, ``runs``, ``benches``, ``tau`` (how much the runs
        differ beyond their errors), ``q``, ``p_value``, ``i2``, ``drift_per_day`` with ``drift_sigma_per_day`` and
        ``drift_p_value``, or ``drift_reason``, why there is none, ``outliers`` (a line each, with the reason),
        ``reason`` (why there is no value). Numbers without an uncertainty, such as counts, are left out.
    """
    rows = []
    for names, group in table.groupby(BY, dropna=False, sort=True):
        known = group[group["value"].notna() & (group["sigma"].fillna(0.0) > 0)]
        unit = next(iter(group.sort_values("value", key=pd.isna, kind="stable")["unit"].dropna()), None)
        told: dict[str, Any] = dict(zip(BY, names, strict=True)) | {
            "unit": unit,
            "runs": len(known),
            "of_runs": len(group),
        }
        if len(known):
            rows.append(told | _together(known))
        elif group["value"].isna().all():
            reasons = group["reason"].dropna().unique()
            rows.append(told | {"outliers": [], "reason": "; ".join(map(str, reasons[:3])) or "no run knows it"})
    return pd.DataFrame(rows)


def _together(known: pd.DataFrame) -> dict[str, Any]:
    values = known["value"].to_numpy(np.float64)
    total = known["sigma"].to_numpy(np.float64)
    own, shared = _parts(known, total)
    bench = known["bench"].fillna(known["run"]).to_numpy(str)
    means = [(mean(values[at], own[at]), _common(own[at], shared[at])) for at in (bench == b for b in np.unique(bench))]
    if len(means) == 1:
        found, common = means[0]
        sigma = float(np.hypot(found.sigma, common))
    else:
        of_benches = np.array([[one.value, np.hypot(one.sigma, common)] for one, common in means])
        sigma = (found := mean(of_benches[:, 0], of_benches[:, 1])).sigma
    spread = mean(values, own)
    return {
        "value": found.value,
        "sigma": sigma,
        "benches": len(means),
        "tau": spread.tau,
        "q": spread.q,
        "p_value": spread.p_value,
        "i2": spread.i2,
        **_drift(known, values, np.hypot(own, spread.tau or 0.0)),
        "outliers": _outliers(known, values, own),
        "reason": None,
    }


def _parts(known: pd.DataFrame, total: Floats) -> tuple[Floats, Floats]:
    """Return each run's own error and that which it shares with others of its bench; where they are not told apart the
    whole is its own.
    """
    own = known["sigma_frames"].to_numpy(np.float64, na_value=np.nan)
    apart = np.isfinite(own) & (own > 0)
    shared = known["sigma_measurement"].to_numpy(np.float64, na_value=0.0)
    return np.where(apart, own, total), np.where(apart, shared, 0.0)


def _common(own: Floats, shared: Floats) -> float:
    weights = 1 / own**2
    return float(np.sum(weights * shared) / np.sum(weights))


def _drift(known: pd.DataFrame, values: Floats, sigma: Floats) -> dict[str, Any]:
    """Return the slope over time, where three runs say when they were."""
    names = ("drift_per_day", "drift_sigma_per_day", "drift_p_value", "drift_reason")

    def nothing(reason: str) -> dict[str, Any]:
        return dict.fromkeys(names) | {"drift_reason": reason}

    if "test.created" not in known:
        return nothing("no run says when it was")
    times = pd.to_datetime(known["test.created"].astype("object"), utc=True, errors="coerce", format="ISO8601")
    dated = times.notna().to_numpy()
    days = (times - times.min()).dt.total_seconds().to_numpy(np.float64) / 86400
    if dated.sum() < FEW:
        return nothing(f"{dated.sum()} runs say when they were: a drift needs {FEW}")
    if np.ptp(days[dated]) == 0:
        return nothing("all runs were at one time")
    weights = 1 / sigma[dated] ** 2
    far = days[dated] - np.average(days[dated], weights=weights)
    spread = float(np.sum(weights * far**2))
    slope, error = float(np.sum(weights * far * values[dated])) / spread, spread**-0.5
    found = (slope, error, 2 * float(stats.norm.sf(abs(slope / error))), None)
    return dict(zip(names, found, strict=True))


def _outliers(known: pd.DataFrame, values: Floats, own: Floats) -> list[str]:
    """Say which runs are far from all the others, and what is different about them."""
    if len(values) < FEW:
        return []
    told = []
    for at in range(len(values)):
        others = np.arange(len(values)) != at
        rest = mean(values[others], own[others])
        off = values[at] - rest.value
        error = float(np.sqrt(own[at] ** 2 + rest.sigma**2 + (rest.tau or 0.0) ** 2))
        if 2 * stats.norm.sf(abs(off) / error) < UNLIKELY / len(values):
            side = "above" if off > 0 else "below"
            told.append(
                f"{known['run'].iloc[at]}: {abs(off) / error:.1f} sigma {side} the mean {rest.value:.6g} of the other "
                f"{len(values) - 1}{_different(known, at)}"
            )
    return told


def _different(known: pd.DataFrame, at: int) -> str:
    """Say in what a run differs from all others."""
    reasons = []
    for name in [name for name in known.columns if str(name).startswith("test.") or name == "bench"]:
        column = known[name].astype("object")
        rest = column.drop(column.index[at])
        if name not in ("test.created", "test.title") and rest.nunique(dropna=False) == 1:
            here, there = column.iloc[at], rest.iloc[0]
            if not (here == there or (pd.isna(here) and pd.isna(there))):
                reasons.append(f"{name} is {here}, not {there}")
    findings = list(known["findings"].iloc[at])
    reasons += [f"it has findings: {findings[0]}"] if findings else []
    return "; " + "; ".join(reasons) if reasons else "; nothing in its set-up differs"
