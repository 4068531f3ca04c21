"""What is done side by side is as if it were done one after the other."""

from __future__ import annotations

import time
from threading import Event

import pytest

from pcitrace.sidebyside import each


def test_results_come_in_order() -> None:
    waited = [Event() for _ in range(3)]

    def work(number: int) -> int:
        if number < 2:
            assert waited[number + 1].wait(10)
        waited[number].set()
        return number * number

    assert each(work, range(3)) == [0, 1, 4]
    assert each(work, []) == []


def test_the_error_of_the_first_thing_is_raised() -> None:
    def work(number: int) -> int:
        time.sleep(0.02 * (3 - number))
        raise ValueError(f"thing {number}")

    with pytest.raises(ValueError, match="thing 0"):
        each(work, range(3))


def test_an_interrupt_waits_for_nobody() -> None:
    over = Event()

    def work(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt
        over.wait(10)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        each(work, range(2))
    over.set()
    assert time.monotonic() - began < 0.2
