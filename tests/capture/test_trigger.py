"""The trigger search against a slow one, whatever the blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pcicap.trigger import TriggerSearch, parse_trigger


def slow_search(samples: list[int], stages: tuple[tuple[tuple[int, str], ...], ...]) -> int | None:
    """First sample at which stage 0 is met, stage 1 at the next, and so on; the first sample has no edge."""

    def met(at: int, bit: int, match: str) -> bool:
        now = samples[at] >> bit & 1
        before = samples[at - 1] >> bit & 1 if at else now
        return {"0": now == 0, "1": now == 1, "r": now > before, "f": now < before, "e": now != before}[match]

    for start in range(len(samples) - len(stages) + 1):
        if all(met(start + n, bit, match) for n, stage in enumerate(stages) for bit, match in stage):
            return start
    return None


@given(
    samples=st.lists(st.integers(0, 7), min_size=1, max_size=60),
    wanted=st.lists(st.sampled_from("01rfe"), min_size=1, max_size=4),
    other=st.text("01rfe", max_size=2),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    pre=st.integers(0, 12),
    unit_size=st.sampled_from([1, 2, 3]),
)
def test_same_as_slow(
    samples: list[int], wanted: list[str], other: str, cuts: list[int], pre: int, unit_size: int
) -> None:
    text = f"A={''.join(wanted)}" + (f",B={other}" if other else "")
    condition = parse_trigger(text, {"A": 8 * unit_size - 8, "B": 8 * unit_size - 7})
    shifted = [sample << (8 * unit_size - 8) for sample in samples]
    data = b"".join(sample.to_bytes(unit_size, "little") for sample in shifted)
    expected = slow_search(shifted, condition)
    search = TriggerSearch(condition, unit_size, pre)
    edges = sorted({0, len(samples), *(cut for cut in cuts if cut < len(samples))})
    for begin, end in itertools.pairwise(edges):
        found = search.feed(data[begin * unit_size : end * unit_size])
        if found:
            before, kept = found
            assert expected is not None
            assert before == min(pre, expected)
            assert kept == data[(expected - before) * unit_size : end * unit_size]
            return
    assert expected is None
    assert data.endswith(search.kept())
    assert len(search.kept()) >= min(len(data), pre * unit_size)


def test_memory_is_bounded() -> None:
    search = TriggerSearch(parse_trigger("A=1", {"A": 0}), 2, 1000)
    for _ in range(100):
        assert search.feed(np.zeros(500, np.uint16).tobytes()) is None
    assert len(search.kept()) <= (1000 + 2 * 500) * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [("A", "not CHANNEL=chars"), ("A=", "not CHANNEL=chars"), ("C=1", "no channel 'C'"), ("A=2", "'2'")],
)
def test_what_is_no_trigger(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_trigger(text, {"A": 0, "B": 1})
