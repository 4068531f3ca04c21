"""Frames that lie like those found before: taken at once, they are the ones that would be found one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from units import units as units_of

from pcitrace.traffic.ahead import Ahead, Bounds, Expected, Known
from pcitrace.traffic.parser import Parser

FULL = 8
unit = st.tuples(st.sampled_from([1, 2, 3, 4, FULL, FULL, FULL]), st.sampled_from([0.1, 0.1, 1.0, 3.0, 9.0]))
frame = st.lists(unit, min_size=1, max_size=4)
test = st.lists(st.tuples(frame, st.integers(1, 8)), min_size=1, max_size=12)
"""Kinds of frames, and how many of each follow one another."""


class Forgetful(Known):
    """Knows nothing, so that everything is looked at anew."""

    def like(self, ahead: Ahead, at: int, bounds: Bounds) -> tuple[bytes, Sequence[int] | None]:
        return b"", None

    def frame(self, ahead: Ahead, at: int, bounds: Bounds) -> Sequence[int] | None:
        return None


@settings(max_examples=300)
@given(test, st.sets(st.sampled_from([1, 2, 4]), max_size=2), st.booleans(), st.integers(0, 1), st.data())
def test_what_is_known_is_what_is_found(
    stretches: list[tuple[list[tuple[int, float]], int]],
    optional: set[int],
    sending: bool,
    slack: int,
    data: st.DataObject,
) -> None:
    count, first, last, size, at_us = [], [], [], [], []
    now = 0.0
    for units, times in stretches:
        for nth in range(times):
            at_us.append(now + 20 * sending)
            for phases, pause_us in units:
                # Pauses that are alike, but two of them may be long enough to part frames.
                first.append(now + (5.0 if pause_us == 3.0 and nth % 3 == 2 else pause_us))
                now = first[-1] + 0.03 * phases
                last.append(now)
                count.append(phases)
            # Short units are of the frame, or between frames.
            size.append(sum(phases for phases, _ in units if phases not in optional) or 1)
    foreign, ending = np.zeros(len(count), dtype=np.int64), np.zeros(len(count), dtype=bool)
    rows = st.lists(st.integers(0, len(count) - 1), max_size=3)
    foreign[[row for row in data.draw(rows) if count[row] > 1]] = 1
    ending[data.draw(rows)] = True
    none = np.full(len(size), np.inf)
    expected = Expected(
        np.array(size) - slack,
        np.array(size) + slack,
        np.array(size) - slack,
        -none if sending else np.array(at_us),
        np.array(at_us) if sending else none,
        frozenset(optional),
        sending,
    )
    found = []
    for known in (Known, Forgetful):
        short = np.isin(count, list(optional))
        own = units_of(np.array(count), np.array(first), np.array(last), foreign=foreign, ending=ending, short=short)
        parser = Parser(own, expected)
        parser.known = known(sending)
        parser.go(len(own), len(own))
        found.append((parser.numbers(len(own)).tolist(), parser.found, parser.parted.tolist()))
    assert found[0] == found[1]


def test_pauses_that_decisions_tell_apart() -> None:
    """Up to 2 us a unit is likely to be of the frame before it; from 8 us on it is tried as another one first."""
    gaps_us = np.array([1.0, 1.5, 3.0, 6.0, 10.0, 20.0])
    first = np.concatenate([[0.0], np.cumsum(1.0 + gaps_us)])
    none = np.zeros(len(first), dtype=np.int64)
    codes = units_of(none, first, first + 1.0).codes()
    assert codes.tolist() == [1, 1, 0, 0, 2, 2, 0]
