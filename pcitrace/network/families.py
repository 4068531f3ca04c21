"""Families of streams: throughput, loss and latency against spacing and size; floor, knee and least spacing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pcitrace.network.parameter import Parameter, measured, unknown
from pcitrace.network.result import PointResult

__all__ = ["calculated_minimum_us", "family", "knees", "patterns"]

LATE = 0.01
"""By how much, relatively, frames must arrive farther apart than they were planned to be held up."""

CLEARLY = 1.1
"""How much farther apart than planned frames are that wait in a queue which never empties, also where they are sent at
random."""

FAR = 2.0
"""Times the least spacing from which on no frame waits for the one before."""

SURELY = 3.0
"""Standard deviations by which they must, besides: Poisson frames are farther apart by chance."""

GAP_US_AT_1_MBIT = 96.0
"""Twelve bytes between two frames."""


def family(points: Sequence[PointResult]) -> pd.DataFrame:
    """Return one row a stream and point.

    Returns
    -------
    pandas.DataFrame
        ``length_bytes``, ``spacing_us`` (planned), ``stream``, ``source``, ``to``, ``received_spacing_us`` and its
        sigma, ``next_spacing_us`` (of frames that were sent one after the other: lost ones do not lengthen it),
        ``busy_spacing_us`` (of the later half) and its sigma,
        ``user_mbit_s``, ``latency_us`` (median) and its sigma, ``rested_us`` (of frames that wait for no other) and its
        sigma, ``sent``, ``received``, ``lost``, ``duplicated``,
        ``reordered``,
        ``loss_ratio``, ``loss_low``, ``loss_high`` (95 %), ``ipdv_us``, ``pdv_p999_us``.
    """
    rows = []
    for point in points:
        for one in point.flows:
            row = {"length_bytes": one.flow.length_bytes, "spacing_us": point.spacing_us}
            row |= {"stream": one.flow.stream, "source": one.flow.source, "to": one.flow.to}
            row |= {name: one.counts[name] for name in ("sent", "received", "lost", "duplicated", "reordered")}
            if one.spacing is not None:
                row |= {"received_spacing_us": one.spacing.mean_us, "received_spacing_sigma_us": one.spacing.sigma_us}
                row["next_spacing_us"] = one.next_us
                busy = one.busy or one.spacing
                row |= {"busy_spacing_us": busy.mean_us, "busy_spacing_sigma_us": busy.sigma_us}
                row["user_mbit_s"] = one.flow.length_bytes * 8 / one.spacing.mean_us
            if one.losses is not None:
                ratio = one.losses.ratio
                row |= {"loss_ratio": ratio.value, "loss_low": ratio.low, "loss_high": ratio.high}
            refused = len(point.flows) == 1 and point.parameters["latency_us"].value is None
            if one.delay is not None and not refused:
                row |= {
                    "latency_us": one.delay.median_us[0],
                    "latency_sigma_us": math.hypot(one.delay.median_us[1], one.clock_sigma_us),
                }
                value, sigma = one.rested_us or one.delay.median_us
                row |= {"rested_us": value, "rested_sigma_us": math.hypot(sigma, one.clock_sigma_us)}
                row |= {"ipdv_us": one.delay.between_us, "pdv_p999_us": one.delay.variation_p999_us}
            rows.append(row)
    return pd.DataFrame(rows)


def patterns(points: Sequence[PointResult]) -> pd.DataFrame:
    """Return how losses and late frames of each stream stand together.

    Returns
    -------
    pandas.DataFrame
        A row a stream and point: ``length_bytes``, ``spacing_us``, ``stream``, ``source``, ``to``; of the losses
        ``loss_periods``, how many runs of lost frames there are, ``mean_period_frames`` and ``longest_period_frames``,
        ``median_distance_frames`` from one lost frame to the next (RFC 3357); ``independent_p``, the probability that
        independent losses stand together as much, and where they do not ``to_bad``, ``to_good`` and ``loss_in_bad`` of
        Gilbert and Elliott's channel; of frames that a later one overtook ``reordered``, ``largest_extent``, and
        ``reordered_by_3``, those that three in a row overtook (RFC 4737).
    """
    rows = []
    for point in points:
        for one in point.flows:
            row: dict[str, Any] = {"length_bytes": one.flow.length_bytes, "spacing_us": point.spacing_us}
            row |= {"stream": one.flow.stream, "source": one.flow.source, "to": one.flow.to}
            if one.losses is not None:
                periods, distances, model = one.losses.periods, one.losses.distances, one.losses.model
                row |= {"loss_periods": len(periods), "independent_p": one.losses.ratio.independent_p}
                row["mean_period_frames"] = float(periods.mean()) if len(periods) else None
                row["longest_period_frames"] = int(periods.max()) if len(periods) else None
                row["median_distance_frames"] = float(np.median(distances)) if len(distances) else None
                row |= {name: None if model is None else getattr(model, name) for name in CHANNEL}
            if one.order is not None:
                row |= {"reordered": one.order.reordered, "largest_extent": one.order.largest_extent}
                row["reordered_by_3"] = one.order.n_reordering.get(3, 0)
            rows.append(row)
    return pd.DataFrame(rows)


CHANNEL = ("to_bad", "to_good", "loss_in_bad")
"""The probabilities of Gilbert and Elliott's channel, as the loss model names them."""


def knees(table: pd.DataFrame) -> pd.DataFrame:
    """Return what bounds the spacing of each size.

    Parameters
    ----------
    table : pandas.DataFrame
        From :func:`family`.

    Returns
    -------
    pandas.DataFrame
        A row a size: ``length_bytes``; ``least_spacing_us`` with sigma, the time between frames where they come as
        fast as they can (null where none was sent faster: ``reason``); ``floor_us`` with sigma, the latency of frames
        far enough apart;
        ``points``.
    """
    rows = []
    planned = table.dropna(subset=["spacing_us", "received_spacing_us"])
    for length, mine in planned.groupby("length_bytes"):
        least = mine["spacing_us"] * (1 + LATE) + SURELY * mine["received_spacing_sigma_us"]
        held = (mine["next_spacing_us"] > least).astype(bool)
        row: dict[str, Any] = {"length_bytes": length, "points": len(mine), "reason": ""}
        if held.any():
            each = mine[held]
            clear = each["busy_spacing_us"] > CLEARLY * each["spacing_us"]
            each = each[clear] if clear.any() else each
            row |= _weighted("least_spacing", each["busy_spacing_us"], each["busy_spacing_sigma_us"])
        else:
            row["reason"] = f"frames every {mine['spacing_us'].min():g} us still came as they were sent: send faster"
        if "latency_us" in mine and (~held).any():
            free = mine[~held].dropna(subset=["rested_us"])
            far = free["spacing_us"] >= FAR * row.get("least_spacing_us", 0.0)
            free = free[far] if far.any() else free
            row |= _weighted("floor", free["rested_us"], free["rested_sigma_us"]) if len(free) else {}
        rows.append(row)
    columns = [
        "length_bytes",
        "points",
        "least_spacing_us",
        "least_spacing_sigma_us",
        "floor_us",
        "floor_sigma_us",
        "reason",
    ]
    return pd.DataFrame(rows).reindex(columns=columns)


def knee_parameters(table: pd.DataFrame) -> dict[str, Parameter]:
    """Return floor and least spacing where there is one size."""
    found = knees(table) if "received_spacing_us" in table else pd.DataFrame()
    if len(found) != 1:
        planned = len(table) and table["spacing_us"].notna().any()
        none = "no time between frames is known" if planned else "no spacing was planned"
        why = f"{len(found)} sizes: each has its own" if len(found) else none
        return {name: unknown(name, why) for name in ("floor_us", "knee_us")}
    [row] = found.to_dict("records")
    n, parameters = int(row["points"]), {}
    for name, column in (("knee_us", "least_spacing"), ("floor_us", "floor")):
        if pd.isna(row[f"{column}_us"]):
            slower = "no latency is known of frames that come as they were sent"
            parameters[name] = unknown(name, row["reason"] if name == "knee_us" else slower, n)
        else:
            parameters[name] = measured(name, (row[f"{column}_us"], row[f"{column}_sigma_us"]), n)
    return parameters


def calculated_minimum_us(
    length_bytes: npt.ArrayLike, r_net_us_per_byte: float, r_pci_us_per_byte: float
) -> npt.NDArray[np.float64]:
    """Return the least time between frames if wire and bus take turns: Table 4.1's calculated column.

    ``(b + 26) R_net + 12 R_net + (b + 14) R_PCI``: the ATLAS note of 2000 adds the gap as 0.096 us, at 1 Gbit/s.
    """
    b = np.asarray(length_bytes, dtype=np.float64)
    return np.asarray((b + 38) * r_net_us_per_byte + (b + 14) * r_pci_us_per_byte)


def _weighted(name: str, values: pd.Series, sigma: pd.Series) -> dict[str, float]:
    """Return the weighted mean; its error is widened where the values scatter more than theirs."""
    x, s = values.to_numpy(np.float64), np.maximum(sigma.to_numpy(np.float64), 1e-9)
    weight = 1 / s**2
    mean = float((x * weight).sum() / weight.sum())
    chi2 = float((((x - mean) / s) ** 2).sum())
    wide = max(1.0, chi2 / (len(x) - 1)) if len(x) > 1 else 1.0
    return {f"{name}_us": mean, f"{name}_sigma_us": float(np.sqrt(wide / weight.sum()))}
