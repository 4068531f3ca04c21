"""What a background does to a latency: the same test by itself and with companions, size by size.

Source: the ATLAS note, figures 3.3 and 3.5: histograms of round trips with and without background.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from pcitrace.network.extremes import alike, no_different
from pcitrace.network.hosts import alone_and_beside
from pcitrace.network.measurement import ASKING
from pcitrace.network.parameter import measured
from pcitrace.network.result import Result

__all__ = ["shift", "shifts"]


def shift(results: Sequence[Result]) -> list[Result]:
    """Return by how much latencies are longer beside others.

    Parameters
    ----------
    results : sequence of Result

    Returns
    -------
    list of Result
        One a pair of tests, of the kind ``shift``, with the table ``shift``; none where no latency was
        measured both ways.
    """
    found = []
    for alone, beside in alone_and_beside(results, (*ASKING, "stream")):
        table = shifts(alone, beside)
        if len(table):
            found.append(_result(beside, table))
    return found


def shifts(alone: Result, beside: Result) -> pd.DataFrame:
    """Return the medians with and without companions.

    Parameters
    ----------
    alone, beside : Result
        Of one test, with the same points.

    Returns
    -------
    pandas.DataFrame
        A row a point whose latency is known both ways: ``length_bytes``; ``alone_us``, ``beside_us``; ``shift_us``, the
        difference, and its ``shift_sigma_us``; ``n``, of both; ``alone_fwhm_us``, ``beside_fwhm_us``, null where there
        is none; ``alone_peaks``, ``beside_peaks``, how many.
    """
    rows = []
    for first, second in zip(alone.points, beside.points, strict=True):
        one, two = first.parameters["latency_us"], second.parameters["latency_us"]
        if one.value is None or two.value is None:
            continue
        rows.append(
            {
                "length_bytes": first.length_bytes,
                "alone_us": one.value,
                "beside_us": two.value,
                "shift_us": two.value - one.value,
                "shift_sigma_us": math.hypot(one.sigma or 0.0, two.sigma or 0.0),
                "n": one.n + two.n,
                "alone_fwhm_us": first.parameters["fwhm_us"].value,
                "beside_fwhm_us": second.parameters["fwhm_us"].value,
                "alone_peaks": len(first.peaks),
                "beside_peaks": len(second.peaks),
            }
        )
    return pd.DataFrame(rows)


def _result(beside: Result, table: pd.DataFrame) -> Result:
    longer = table["shift_us"].mean() >= 0
    ranked = table.sort_values("shift_us", ascending=not longer, ignore_index=True)
    many, value, sigma = alike(ranked["shift_us"], ranked["shift_sigma_us"])
    where = f"largest of {len(table)} points: {int(ranked['length_bytes'][0])} bytes{no_different(many)}"
    where += "; median beside the others less alone"
    most = measured("shift_us", (value, sigma), int(ranked["n"][:many].sum()), where)
    return Result("shift", beside.path, None, {"shift_us": most}, tables={"shift": table})
