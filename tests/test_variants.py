"""Readings that differ from one alike in every frame: each is a reading, and differs as it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcitrace.lattice import Reading
from pcitrace.traffic.variants import ALIKE_WAYS, Able, read_again, shifts, variants

TARGETS = 3


def reading(labels: str) -> Reading:
    """A reading in letters: a send's pieces are S, a receive's R, the first of each in upper case; `.` is left over."""
    track = np.array([-1 if one == "." else "sr".index(one.lower()) for one in labels], np.int64)
    begins = np.array([one.isupper() for one in labels], dtype=bool)
    segment, target = np.full(len(labels), -1), np.full(len(labels), -1)
    ends = np.zeros(len(labels), dtype=bool)
    number = 0
    for side in (0, 1):
        rows = np.flatnonzero(track == side)
        for count, row in enumerate(rows):
            number += bool(begins[row])
            segment[row] = number - 1
            target[row] = int(begins[rows[: count + 1]].sum()) - 1
            ends[row] = count + 1 == len(rows) or begins[rows[count + 1]]
    return Reading(track, begins, ends, target, np.zeros((len(labels), 4), np.float32), 0.0, segment)


def able(labels: str, *stays: int) -> Able:
    """Every piece could be of the frame before its own, and of the one behind it; but some not of that."""
    return np.ones(len(labels), dtype=bool), ~np.isin(np.arange(len(labels)), stays)


def letters(one: Reading) -> str:
    """The same letters of a reading."""
    names = {-1: "..", 0: "sS", 1: "rR"}
    return "".join(names[int(track)][bool(begin)] for track, begin in zip(one.track, one.begins, strict=True))


def is_reading(one: Reading) -> bool:
    """Whether each segment has one beginning, before all, one end, behind all, one track and one target."""
    inside = one.segment >= 0
    if not np.array_equal(inside, one.track >= 0) or (one.begins & ~inside).any() or (one.ends & ~inside).any():
        return False
    for number in np.unique(one.segment[inside]):
        rows = np.flatnonzero(one.segment == number)
        if not (
            one.begins[rows].nonzero()[0].tolist() == [0] and one.ends[rows].nonzero()[0].tolist() == [len(rows) - 1]
        ):
            return False
        if len(set(one.track[rows])) > 1 or len(set(one.target[rows])) > 1:
            return False
    return True


@given(st.text(alphabet="SsRr.", max_size=14))
def test_each_is_a_reading(labels: str) -> None:
    """Whatever the reading is: segments begin with their first piece."""
    started = {"s": False, "r": False}
    clean = ""
    for one in labels:
        clean += one.upper() if one != "." and not started[one.lower()] else one
        if one != ".":
            started[one.lower()] = True
    first = reading(clean)
    assert is_reading(first)
    pause_us = np.linspace(0.1, 3.0, len(clean))
    for side in (0, 1):
        for one in variants(first, side, TARGETS, pause_us, able(clean)):
            assert is_reading(one), (clean, letters(one))
            other = 1 - side
            assert np.array_equal(one.track == other, first.track == other), "the other track stays as it is"


@pytest.mark.parametrize(
    ("labels", "number", "expected"),
    [
        (".Ss..S.", 0, ".SsssSs"),
        ("..Ss.", 1, ".Sss."),
        (".Sss.", 2, "..Ss."),
        (".Sss.", 3, ".S.s."),
        (".Ss..", 4, ".Sss."),
        (".Sss.", 5, ".Ss.."),
        (".Ssss", 6, ".Ss.s"),
        (".S.s.", 7, ".Sss."),
        ("S.s..", 8, ".Ss.."),
        ("S.s..", 9, "Ss..."),
        (".Ss..S.", 10, "..Sss.S"),
        (".Ss..S.", 11, "..Ss..S"),
        ("..S..", 12, ".S..."),
        ("..Ss.", 13, ".Ss.."),
        ("..Ss.", 14, ".S.s."),
        ("..S..", 15, "...S."),
        (".Ss..", 16, "..Ss."),
        (".Ss..", 17, ".S.s."),
    ],
    ids=[
        "stretched",
        "longer before",
        "shorter before",
        "hollow",
        "longer",
        "shorter",
        "hollow at the end",
        "filled",
        "filled, without its edge",
        "filled, without its end",
        "later and longer",
        "later",
        "a single piece earlier",
        "earlier",
        "begun by an earlier one",
        "a single piece later",
        "later by one",
        "ended by a later one",
    ],
)
def test_each_by_itself(labels: str, number: int, expected: str) -> None:
    pause_us = np.full(len(labels), 0.1)
    found = list(variants(reading(labels), 0, TARGETS, pause_us, able(labels)))
    assert letters(found[number]) == expected


def test_another_frame() -> None:
    first = reading("Ss.S.")
    earlier, later, *_ = (one.target.tolist() for one in shifts(first, 0, TARGETS, able("Ss.S.")))
    assert later == [1, 1, -1, 2, -1]
    assert earlier == [-1, -1, -1, 0, -1]


def test_what_came_too_soon_to_be_the_next_frame_stays() -> None:
    """Only what is behind the last such one may be a frame later: here S of frame 1 came before frame 2 had gone."""
    first = reading("SSSS")
    later = list(shifts(first, 0, 5, able("SSSS", 1)))[1]
    assert later.target.tolist() == [0, 1, 3, 4]
    nothing = list(shifts(first, 0, 5, able("SSSS", 3)))[1]
    assert nothing.target.tolist() == [0, 1, 2, 3]


def test_another_frame_was_lost() -> None:
    """Of five frames the third got lost; it may have been the first, the second, the fourth or the last."""
    first = reading("SSSS")
    first.target[2:] += 1
    found = [one.target.tolist() for one in shifts(first, 0, 5, able("SSSS"))][2:]
    assert [1, 2, 3, 4] in found
    assert [0, 1, 2, 3] in found
    assert all(len(set(one)) == 4 for one in found)


def test_what_was_cut_just_before_a_segment_is_read_again_with_it() -> None:
    cut = np.array([one == "x" for one in "x.xx.x.xx."])
    before = reading("..S.S.s.RS")
    joined = read_again(before, 0, cut)
    assert is_reading(joined)
    # The piece before each S was cut, but for the first: before that it was not. That before R is no send's.
    assert letters(joined) == "..SSs.s.RS"
    assert (joined.ends == before.ends).all()
    several = read_again(reading("...S.R"), 0, np.array([False, True, True, False, True, False]))
    assert letters(several) == ".Sss.R"


@pytest.mark.parametrize("labels", ["S", "Ss..S.Ss", "Rr.R.Ss.R"])
def test_the_ways_come_in_one_order_whatever_is_read(labels: str) -> None:
    """What is cheapest of the first pieces is found again among those of all by its place."""
    one = reading(labels)
    side = 0 if "S" in labels[:1] else 1
    ways = [letters(other) for other in variants(one, side, TARGETS, np.full(len(labels), 0.1), able(labels))]
    moved = [letters(other) for other in shifts(one, side, TARGETS, able(labels))]
    assert ways[ALIKE_WAYS:] == moved
    assert len(ways) == ALIKE_WAYS + len(moved)
