"""What lies on a path: several paths in one fit, so that what they share is determined once.

At sizes that all paths have in common the hosts' part is free at each size: it needs not be a line, and its scatter
does not count. A path of two equal switches holds that switch's terms twice. Source: R. Hughes-Jones and F. Saka,
ATLAS note, 2000, section 3 (subtraction), which subtracts fits and adds their errors in quadrature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from uncertainties import UFloat

from pcitrace.errors import FitError
from pcitrace.latency import Points
from pcitrace.network.lines import step, widening
from pcitrace.network.measurement import Wire
from pcitrace.network.parameter import Parameter, measured, unknown
from pcitrace.network.result import Result

__all__ = ["devices", "store_and_forward", "subtraction"]

Floats = npt.NDArray[np.float64]

COMMON = 3
"""Sizes that paths must share for the hosts' part to be free at each."""

GAP_BYTES = 12


def subtraction(results: Sequence[Result]) -> list[Result]:
    """Return what each device adds one way, of all paths together.

    Parameters
    ----------
    results : sequence of Result
        Latencies against size; those of one kind of loop are put together.

    Returns
    -------
    list of Result
        One a device, of the kind ``subtraction``; none where no two paths differ.
    """
    alike: dict[tuple[object, ...], list[Result]] = {}
    for one in results:
        if (
            one.latency is not None
            and len(one.latency.table)
            and one.measurement is not None
            and one.measurement.path.stated
        ):
            asked = (one.measurement.test.get("group"), one.measurement.test.get("answers"))
            alike.setdefault((one.kind, one.measurement.request_bytes or 0, *asked), []).append(one)
    found = []
    for same in alike.values():
        if len({devices(one) for one in same}) > 1:
            found += _of_paths(same)
    return found


def devices(one: Result) -> tuple[str, ...]:
    """Return the devices on a path, sorted; a switch without a name is called as its path."""
    assert one.measurement is not None
    way = one.measurement.path
    if way.kind == "direct":
        return ()
    return tuple(sorted(way.devices)) or (way.name,)


def store_and_forward(sizes: npt.ArrayLike, intercept: UFloat, slope: UFloat, wire: Wire) -> pd.DataFrame:
    """Return what a switch takes by two definitions.

    Returns
    -------
    pandas.DataFrame
        A row a size: ``length_bytes``; ``switch_us``, the papers' T_s: how much later a frame arrives than without the
        switch, which holds its second way over a wire; ``rfc1242_us``: last bit in to first bit out (RFC 1242, section
        3.8), without it; each with ``_sigma_us``. RFC 1242's is null where the rate of the link is not known.
    """
    lengths = np.asarray(sizes, dtype=np.float64)
    taken = [intercept + slope * length for length in lengths.tolist()]
    rate = wire.us_per_byte
    serial = None if rate is None else (wire.frame_bytes(lengths) - GAP_BYTES) * rate
    table = pd.DataFrame({"length_bytes": lengths, "switch_us": [one.nominal_value for one in taken]})
    table["switch_sigma_us"] = [one.std_dev for one in taken]
    table["rfc1242_us"] = np.nan if serial is None else table["switch_us"] - serial
    return table


def _of_paths(same: Sequence[Result]) -> list[Result]:
    names = sorted({name for one in same for name in devices(one)})
    sizes, values, sigma, counts = _stacked(same, names)
    columns, shared = _columns(sizes, counts, len(same))
    told = [f"{what} of {name}" for name in names for what in ("intercept", "slope")]
    titles = (*(f"hosts {number}" for number in range(columns.shape[1] - len(told))), *told)
    try:
        points = Points.of(sizes.sum(axis=1), values, sigma)
        found, chi2, _ = points.fit(columns, titles)
    except FitError as error:
        return [_unknown(name, str(error)) for name in names]
    widened, _ = widening(chi2, len(values) - len(titles))
    terms = [one.nominal_value + widened * (one - one.nominal_value) for one in found[-len(told) :]]
    how = f"{len(same)} paths in one fit, hosts {'free at each size' if shared else 'a line'}"
    return [_result(name, same, terms[2 * i], terms[2 * i + 1], how) for i, name in enumerate(names)]


def _stacked(same: Sequence[Result], names: Sequence[str]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return legs, loop times, errors, and how often each device is on the path, of all points."""
    legs, values, sigma, counts = [], [], [], []
    for one in same:
        assert one.latency is not None
        loop, error = one.latency.loop()
        many = Counter(devices(one))
        legs.append(one.latency.legs)
        values.append(loop)
        sigma.append(error)
        counts.append(np.tile([float(many[name]) for name in names], (len(loop), 1)))
    return np.concatenate(legs), np.concatenate(values), np.concatenate(sigma), np.concatenate(counts)


def _columns(sizes: Floats, counts: Floats, paths: int) -> tuple[Floats, bool]:
    """Return the columns of the fit, the devices' last, and whether the hosts' part is free at each size."""
    total = np.column_stack([np.full(len(sizes), float(sizes.shape[1])), sizes.sum(axis=1)])
    device = np.concatenate([counts[:, [i]] * total for i in range(counts.shape[1])], axis=1)
    _, which, many = np.unique(sizes, axis=0, return_inverse=True, return_counts=True)
    if len(many) >= COMMON and (many >= paths).all():
        return np.column_stack([np.eye(len(many))[which.ravel()], device]), True
    return np.column_stack([total, device]), False


def _result(name: str, same: Sequence[Result], intercept: UFloat, slope: UFloat, how: str) -> Result:
    alone = next((one for one in same if devices(one) == (name,)), None)
    direct = next((one for one in same if not devices(one)), None)
    n = sum(len(one.latency.table) for one in same if one.latency is not None)
    parameters = {
        "intercept_us": measured("intercept_us", intercept, n, how),
        "slope_us_per_byte": measured("slope_us_per_byte", slope, n, how),
    }
    parameters |= {
        key: unknown(key, "no path with this device alone beside a direct one") for key in ("step_bytes", "step_us")
    }
    findings: tuple[str, ...] = ()
    if alone is not None and direct is not None:
        found = _step(alone, direct)
        if found is not None:
            parameters |= found
            if found["step_bytes"].value is not None:
                findings = (
                    f"{name}: a step every {found['step_bytes'].value:g} bytes: slope and intercept are beside it",
                )
    first, latency = same[0].measurement, same[0].latency
    wire = first.wire if first is not None else Wire()
    table = store_and_forward([] if latency is None else latency.table["length_bytes"], intercept, slope, wire)
    return Result("subtraction", name, None, parameters, tables={"switch_latency": table}, findings=findings)


def _step(alone: Result, direct: Result) -> dict[str, Parameter] | None:
    """Return the numbers of a step in what a device adds; None where the sizes are not the same."""
    if alone.latency is None or direct.latency is None or not np.array_equal(alone.latency.legs, direct.latency.legs):
        return None
    (with_it, one), (without, two) = alone.latency.loop(), direct.latency.loop()
    found = step(alone.latency.legs, with_it - without, np.hypot(one, two))
    if found.step_bytes is None or found.step_us is None or found.line is None:
        return {key: unknown(key, found.reason, len(one)) for key in ("step_bytes", "step_us")}
    line = {"intercept_us": found.line.intercept_us, "slope_us_per_byte": found.line.slope_us_per_byte}
    every = line | {"step_bytes": found.step_bytes, "step_us": found.step_us}
    why = "of the difference of two paths" + (f"; {found.reason}" if found.reason else "")
    return {key: measured(key, value, len(one), why) for key, value in every.items()}


def _unknown(name: str, reason: str) -> Result:
    keys = ("intercept_us", "slope_us_per_byte", "step_bytes", "step_us")
    return Result("subtraction", name, None, {key: unknown(key, reason) for key in keys})
