"""Times kept as samples are the very same times; what is at no sample stays a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pcitrace.samples import TIMES, Samples, Times

RATE = 1e8 / 3
"""No time of it is a round number."""


def moved(us: Any) -> Any:
    return us * (1 + 3e-6) + 12.5


def parts(*starts: int, length: int = 40) -> list[dict[str, Any]]:
    """A part of three transactions at each start; no data moved in the last."""
    found = []
    for start in starts:
        samples = start + np.array([0, length, 3 * length])
        no_data = np.array([0.0, 0.0, np.nan])
        columns = (samples, samples + length, samples + 3 + no_data, samples + 5 + no_data)
        found.append({name: column * 1e6 / RATE for name, column in zip(TIMES, columns, strict=True)})
    return found


@pytest.mark.parametrize("axis", [None, moved])
@pytest.mark.parametrize(
    ("given", "bits"),
    [
        (parts(7, 900), (16, 16)),
        (parts(7, 900, 1_000_000), (32, 16)),
        (parts(7, 1 << 40), (64, 16)),
        (parts(7, 100_000, length=40_000), (32, 32)),
    ],
)
def test_times_at_samples_come_back_exactly(given: list[dict[str, Any]], bits: tuple[int, int], axis: Any) -> None:
    count = 3 * len(given)
    times = Times(count, Samples(RATE, axis), axis)
    for nth, part in enumerate(given):
        times.add(3 * nth, part)
    assert times.samples is not None
    assert tuple(8 * times.columns[name].itemsize for name in TIMES[:2]) == bits
    for name in TIMES:
        whole = np.concatenate([part[name] for part in given])
        later = None if name == "start_us" else times.columns[name]
        again = times.samples.us(times.columns["start_us"], later)
        assert np.array_equal(again, axis(whole) if axis else whole, equal_nan=True)


@pytest.mark.parametrize("odd", [0.001, -1e6, np.nan, np.inf])
def test_one_time_at_no_sample_makes_all_of_them_times(odd: float) -> None:
    first, second = parts(7, 900)
    second["start_us"][1] += odd
    times = Times(6, Samples(RATE, moved), moved)
    times.add(0, first)
    times.add(3, second)
    assert times.samples is None
    for name in TIMES:
        whole = moved(np.concatenate([first[name], second[name]]))
        assert np.array_equal(times.columns[name], whole, equal_nan=True)
