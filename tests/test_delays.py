"""Usual delays, against counting them one by one."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pcitrace.frames import delays
from pcitrace.frames.delays import AT_ONCE_US, LAG_US, as_after, crowded, usual

times = st.lists(st.integers(0, 60).map(lambda tick: tick / 8), max_size=30)


@given(times, st.integers(1, 6))
def test_crowded_times(values: list[float], least: int) -> None:
    values.sort()
    begins, count = crowded(np.array(values), least)
    within = [sum(one <= other <= one + LAG_US for other in values[row:]) for row, one in enumerate(values)]
    assert begins.tolist() == [row for row, many in enumerate(within) if many >= least]
    assert count.tolist() == [within[row] for row in begins]


@given(
    st.lists(st.lists(st.sampled_from([0.1, 0.75, 1.0, 1.25, 3.0, 3.5, np.inf]), min_size=3, max_size=3), max_size=9)
)
def test_the_usual_delay_is_the_shortest_that_half_have(rows: list[list[float]]) -> None:
    delay_us = np.array(rows).reshape(len(rows), 3)
    own = sorted(one for row in rows for one in row if AT_ONCE_US <= one < np.inf)
    within = {low: sum(low <= one <= low + LAG_US for one in own[bisect_left(own, low) :]) for low in own}
    enough = [low for low in own if within[low] >= len(rows) / 2]
    near = [low for low in enough if low <= enough[0] + LAG_US]
    low = max(near, key=within.__getitem__, default=None)
    assert usual(delay_us, 0.5) == (None if low is None else (low, low + LAG_US))


@given(times, times, st.lists(st.booleans(), min_size=30, max_size=30))
def test_accesses_as_late_as_known_ones(access: list[float], sends: list[float], known: list[bool]) -> None:
    access.sort()
    sends.sort()

    def since(at: float) -> list[float]:
        return [at - one for one in reversed(sends) if one < at][: delays.NEXT]

    others = [since(at)[:1] for at, one in zip(access, known, strict=False) if one]
    expected = [
        any(
            sum(back - LAG_US / 2 <= other < back + LAG_US / 2 for one in others for other in one)
            > delays.FEW * len(sends)
            for back in since(at)
        )
        for at in access
    ]
    found = as_after(np.array(access), np.array(known[: len(access)], dtype=bool), np.array(sends))
    assert found.tolist() == expected


def test_an_access_that_comes_at_once_behind_the_card_had_waited() -> None:
    """Half a microsecond tells: 0.3 us behind the card's last transaction is waiting, 0.7 us is not."""
    freed_us = np.array([10.0, 20.0])
    access_us, end_us = np.array([10.3, 20.7]), np.array([10.4, 20.8])
    assert delays.waited(access_us, end_us, freed_us).tolist() == [True, False]
