"""Updates after sends where nothing but their order tells them."""

from __future__ import annotations

import numpy as np

from pcitrace.columns import Floats
from pcitrace.frames.sendupdate import _alone
from pcitrace.frames.starts import CardTimes

NONE = np.zeros(0)


def card(ends: Floats, received: Floats = NONE, freed: Floats = NONE) -> CardTimes:
    return CardTimes(NONE, ends, received, NONE, freed)


def test_without_a_usual_delay_it_is_the_next_access() -> None:
    ends, accesses = np.array([0.0, 100.0, 200.0]), np.array([10.0, 130.0, 260.0])
    np.testing.assert_array_equal(_alone(accesses, accesses, card(ends)), accesses)


def test_one_access_behind_two_sends_is_the_first_ones() -> None:
    ends, accesses = np.array([0.0, 100.0, 200.0]), np.array([10.0, 230.0])
    np.testing.assert_array_equal(_alone(accesses, accesses, card(ends)), [10.0, 230.0, np.nan])


def test_an_access_that_a_receive_may_have_caused_is_none() -> None:
    ends, accesses = np.array([0.0, 100.0, 200.0]), np.array([10.0, 130.0, 260.0])
    np.testing.assert_array_equal(_alone(accesses, accesses, card(ends, np.array([120.0]))), [10.0, np.nan, 260.0])


def test_what_comes_at_once_had_waited_for_the_bus() -> None:
    ends, accesses = np.array([0.0, 100.0, 200.0]), np.array([10.0, 100.1, 260.0])
    np.testing.assert_array_equal(_alone(accesses, accesses, card(ends)), [10.0, np.nan, 260.0])


def test_what_waits_for_the_end_of_a_read_that_may_be_an_update_leaves_both_open() -> None:
    """Updates come 6.2 us after sends, what receives cause 5 us after these: once that is retried for 0.55 us."""
    ends, received = np.arange(0.0, 1000.0, 100.0), np.arange(50.0, 1000.0, 100.0)
    updated, caused = ends + 6.2, received + 5
    received[4], caused[4], updated[4] = 400.9, 405.9, 406.5
    accesses = np.sort(np.r_[updated, caused])
    done = accesses + np.where(accesses == 405.9, 0.55, 0.1)
    wanted = updated.copy()
    wanted[4] = np.nan
    np.testing.assert_array_equal(_alone(accesses, done, card(ends, np.sort(received), np.array([390.0]))), wanted)
