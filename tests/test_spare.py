"""Pieces at an edge that a frame does not need, and first pieces that are what is left of a line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pcitrace.lattice import Goals, Learner, Reading
from pcitrace.traffic.costs import FIRST, _before_last, first
from pcitrace.traffic.goals import RECEIVE, SEND
from pcitrace.traffic.spare import not_needed, unlike_others

BEGIN, END = 1, 2


def _reading(frames: list[list[int]], track: int) -> tuple[Any, Reading]:
    """Pieces and a reading of frames, each of which has pieces of so many data phases; all edges are sure."""
    sizes = np.concatenate([np.array(frame, np.int64) for frame in frames])
    segment = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
    begins = np.diff(segment, prepend=-1) > 0
    ends = np.append(begins[1:], True)
    bus = SimpleNamespace(data_phases=sizes, has_address=False)
    pieces = SimpleNamespace(bus=bus, cut=np.zeros(len(sizes), dtype=bool))
    margins = np.full((len(sizes), 4), 20.0, np.float32)
    return pieces, Reading(np.full(len(sizes), track), begins, ends, segment, margins, 0.0, segment)


@pytest.mark.parametrize(
    ("frames", "column", "doubted"),
    [
        ([[20], [20, 1], [20], [20, 1]], END, [2, 5]),
        ([[20], [20, 1], [18, 2]], END, [2]),
        ([[20], [20, 1], [19, 1]], END, []),
        ([[1, 20], [1, 20]], BEGIN, [0, 2]),
        ([[21], [20]], END, []),
    ],
    ids=["a status", "others end otherwise", "another frame needs one", "before all frames", "whole frames"],
)
@pytest.mark.parametrize("track", [SEND, RECEIVE])
def test_an_edge_that_no_frame_needs_is_not_sure(
    frames: list[list[int]], column: int, doubted: list[int], track: int
) -> None:
    pieces, reading = _reading(frames, track)
    goals: Any = SimpleNamespace(least=np.full(len(frames), 20), most=np.full(len(frames), 21), again=0)
    found = not_needed(pieces, reading, track, (goals, goals), 0)
    assert np.flatnonzero(found.margins[:, column] == 0).tolist() == doubted
    assert not_needed(pieces, reading, 1 - track, (goals, goals), 0) is reading


@pytest.mark.parametrize(
    ("frames", "again", "doubted"),
    [
        ([[1, 20], [1, 20], [1, 20]], 0, [0, 2, 4]),
        ([[1, 20], [10, 11], [10, 11]], 0, []),
        ([[1, 20], [1, 20], [2, 19]], 0, []),
        ([[1, 20], [1, 20], [1, 19]], 0, []),
        ([[4, 16, 4], [4, 16, 4], [4, 16, 4]], 8, [0, 3, 6]),
    ],
    ids=[
        "of most",
        "of one",
        "others have more in a larger piece",
        "a frame needs one",
        "what makes it seem to be read again",
    ],
)
def test_what_only_a_layout_needs_is_not_sure(frames: list[list[int]], again: int, doubted: list[int]) -> None:
    """The reading says that all frames have a data phase more than their bytes, or that what was cut is read again."""
    pieces, reading = _reading(frames, RECEIVE)
    pieces.cut[np.append(reading.begins[1:], True)] = False
    pieces.cut[1::3] = again > 0
    least = 21 - (again > 0)
    goals: Any = SimpleNamespace(least=np.full(len(frames), least), most=np.full(len(frames), least), again=again)
    bare: Any = SimpleNamespace(least=np.full(len(frames), 20), most=np.full(len(frames), 20), again=0)
    found = not_needed(pieces, reading, RECEIVE, (goals, bare), 0)
    assert np.flatnonzero(found.margins[:, BEGIN] == 0).tolist() == doubted


@pytest.mark.parametrize(
    ("frames", "cut", "track", "doubted"),
    [
        ([[20]] * 4 + [[26]], [], RECEIVE, [4]),
        ([[20]] * 4 + [[18]], [], RECEIVE, [4]),
        ([[20]] * 4 + [[21]], [], RECEIVE, []),
        ([[20]] * 3 + [[26]], [], RECEIVE, [0, 1, 2, 3]),
        ([[20]] * 4 + [[13, 14]], [], SEND, [4, 5]),
        ([[20]] * 4 + [[13, 14]], [4], SEND, []),
        ([[20]] * 4 + [[13, 14]], [4], RECEIVE, [4, 5]),
        ([[20]] * 4 + [[13, 9]], [4], RECEIVE, []),
    ],
    ids=[
        "longer", "shorter", "as long as may be", "many", "a send", "a send that was cut", "a receive that was cut",
        "and wrote a word again",
    ],
)  # fmt: skip
def test_frames_that_are_unlike_the_others_are_not_sure(
    frames: list[list[int]], cut: list[int], track: int, doubted: list[int]
) -> None:
    pieces, reading = _reading(frames, track)
    pieces.cut[cut] = True
    goals: Any = SimpleNamespace(least=np.full(len(frames), 20), most=np.full(len(frames), 21), again=0)
    found = unlike_others(pieces, reading, track, goals)
    assert np.flatnonzero((found.margins[:, [BEGIN, END]] == 0).any(axis=1)).tolist() == doubted
    assert unlike_others(pieces, reading, 1 - track, goals) is reading
    pieces.bus.has_address = True
    assert unlike_others(pieces, reading, track, goals) is reading


@pytest.mark.parametrize(("header", "doubted"), [(0, [0, 5]), (4, []), (3, [0, 5])])
def test_a_header_read_word_by_word_needs_its_first_word(header: int, doubted: list[int]) -> None:
    """Four words hold 14 bytes, three do not. The word at the end may be none of the frame's, whatever the header."""
    pieces, reading = _reading([[1, 1, 1, 1, 16]] * 2, SEND)
    goals: Any = SimpleNamespace(least=np.full(2, 19), most=np.full(2, 20), again=0)
    found = not_needed(pieces, reading, SEND, (goals, goals), header)
    assert np.flatnonzero(found.margins[:, BEGIN] == 0).tolist() == doubted
    pieces, reading = _reading([[1, 1, 1, 1, 16, 1]] * 2, SEND)
    found = not_needed(pieces, reading, SEND, (goals, goals), header)
    assert np.flatnonzero(found.margins[:, END] == 0).tolist() == [5, 11]


def test_where_no_length_is_known_none_tells_what_is_needed() -> None:
    pieces, reading = _reading([[20], [20, 1]], SEND)
    goals: Any = SimpleNamespace(least=np.full(2, 4), most=np.full(2, 1 << 14), again=0)
    assert not_needed(pieces, reading, SEND, (goals, goals), 0).margins.min() == 20.0


def test_addresses_tell_what_is_part_of_a_frame() -> None:
    pieces, reading = _reading([[20], [20, 1]], SEND)
    pieces.bus.has_address = True
    goals: Any = Goals.none(after=False, stray=0.1)
    assert not_needed(pieces, reading, SEND, (goals, goals), 0) is reading


@pytest.mark.parametrize(
    ("frames", "apart"),
    [
        ([[1, 4, 4, 4, 2]] * 20, True),
        ([[4, 4, 4, 4, 2]] * 20, False),
        ([[4, 16, 1]] * 20, False),
        ([[1, 5, 5, 5, 2]] * 20, False),
    ],
    ids=["what is left of a line", "whole lines", "one piece between two others", "no power of two"],
)
def test_first_pieces_tell_by_themselves_where_a_card_cuts_at_lines(frames: list[list[int]], apart: bool) -> None:
    pieces, reading = _reading(frames, SEND)
    before_last = ~reading.ends
    prior = first(pieces.bus.data_phases, 0, 4).tracks[SEND].middle
    sizes, cut = pieces.bus.data_phases[before_last], pieces.cut[before_last]
    middle = _before_last(sizes, cut, reading.begins[before_last], prior, Learner())
    assert (middle[FIRST] != middle[0]).any() == apart
    if apart:
        assert middle[FIRST, 1] < 0.2 < middle[0, 1]
