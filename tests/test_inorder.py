"""Frames arrive in the order in which they were on the wire."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cardbench import Bench, score, write

import pcitrace
from pcitrace.frames.inorder import Followed
from pcitrace.frames.sides import UNDER_WAY, Side, whenever


def side(start_us: list[float], length: list[int], key: list[int]) -> Side:
    """Frames that begin so; each takes 2 us."""
    count = len(start_us)
    bytes_ = np.array(length, np.int64)
    no = np.zeros(count, dtype=bool)
    start = np.array(start_us, float)
    content, free_us = np.array(key, np.uint64), np.full(count, np.nan)
    return Side(start, start + 2.0, bytes_, bytes_, content, no, free_us, whenever(count))


def followed(found: list[int], wires: list[int], receives: list[int]) -> Followed:
    """Five frames in step, of which some sends were found."""
    return Followed(
        side([10.0 * one for one in found], [64] * len(found), [one + 1 for one in found]),
        side([10.0 * one + 5 for one in range(5)], [64] * 5, [0] * 5),
        side([10.0 * one + 8 for one in range(5)], [64] * 5, [1, 2, 3, 4, 5]),
        np.array(wires),
        np.array(receives),
    )


def numbers(found: Followed) -> tuple[list[int], list[int]]:
    return found.wire_of_send.tolist(), found.receive_of_wire.tolist()


@pytest.mark.parametrize(
    ("found", "wires", "receives"),
    [
        ([0, 2, 3, 4], [0, 1, 3, 4], [0, 2, -1, 3, 4]),
        ([0, 2, 3, 4], [0, 1, 2, 4], [0, 2, 3, -1, 4]),
        ([0, 1, 2, 4], [0, 2, 3, 4], [0, -1, 1, 2, 4]),
        ([0, 2, 3, 4], [0, 1, 2, 3], [0, 2, 3, 4, -1]),
    ],
    ids=[
        "one is the frame before",
        "two are",
        "two are the frame behind",
        "all up to the last are the frame before",
    ],
)
def test_sends_near_one_that_is_missing_are_the_frames_of_their_receives(
    found: list[int], wires: list[int], receives: list[int]
) -> None:
    assert numbers(followed(found, wires, receives).in_order()) == (found, [0, 1, 2, 3, 4])


def test_of_two_that_are_missing_one_after_the_other_the_next_send_has_neither_frame() -> None:
    crossed = followed([0, 3, 4], [0, 1, 4], [0, 3, -1, -1, 4])
    early_us = np.array([0.0, 1.0, 2.0])
    early = replace(crossed, send=replace(crossed.send, start_us=early_us, end_us=early_us + 1.0))
    assert numbers(early.in_order()) == ([0, 3, 4], [0, 1, 2, 3, 4])


CROSSED = followed([0, 2, 3, 4], [0, 1, 3, 4], [0, 2, -1, 3, 4])
LENGTHS = np.array([64, 64, 68, 64, 64])
KEYS = np.array([1, 3, 3, 4, 5], np.uint64)
SOON_US = np.array([8.0, 14.0, 28.0, 38.0, 48.0])


@pytest.mark.parametrize(
    "found",
    [
        followed([0, 2, 3, 4], [0, 1, 3, 4], [0, 2, 1, 3, 4]),
        followed([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 2, -1, 3, 4]),
        replace(CROSSED, on_wire=replace(CROSSED.on_wire, shortest=LENGTHS, longest=LENGTHS)),
        replace(CROSSED, receive=replace(CROSSED.receive, key=KEYS)),
        replace(CROSSED, receive=replace(CROSSED.receive, start_us=SOON_US, end_us=SOON_US + 2.0)),
    ],
    ids=["every receive has a frame", "every send was found", "it does not fit", "contents are alike", "it was sooner"],
)
def test_nothing_moves_without_a_reason(found: Followed) -> None:
    assert numbers(found.in_order()) == numbers(found)


def in_step(wires: list[int], receives: list[int], keys: list[int]) -> Followed:
    """As many frames on the wire as receives seem to be, and sends long before them."""
    count = len(receives)
    return Followed(
        side([-500.0 + one for one in range(len(wires))], [64] * len(wires), keys),
        side([10.0 * one for one in range(count)], [64] * count, [0] * count),
        side([500.0 + 10.0 * one for one in range(count + 1)], [64] * (count + 1), list(range(1, count + 2))),
        np.array(wires),
        np.array(receives),
    )


def test_a_frame_that_arrived_is_not_left_to_a_send() -> None:
    found = in_step([0, 1, 3], [0, 2, 3, 4], [1, 3, 5])
    assert numbers(found.in_order()) == numbers(found)


@pytest.mark.parametrize(("count", "moves"), [(UNDER_WAY, True), (UNDER_WAY + 1, False)])
def test_no_more_sends_move_than_may_be_under_way(count: int, moves: bool) -> None:
    """Behind the first frame so many have the one before their own, and the last but one seems not to have arrived."""
    wires = [*range(count + 1), count + 2]
    found = in_step(wires, [0, *range(2, count + 2), -1, count + 2], [1, *range(3, count + 4)])
    right = [0, *range(2, count + 3)], list(range(count + 3))
    assert numbers(found.in_order()) == (right if moves else numbers(found))


def test_where_two_ways_would_do_nothing_moves() -> None:
    """The first and the last of four frames have no send; what was received between the others may be either's."""
    either = Followed(
        side([0.0, 1.0], [64] * 2, [1, 3]),
        side([5.0, 15.0, 25.0, 35.0], [64] * 4, [0] * 4),
        side([40.0, 50.0, 60.0], [64] * 3, [1, 2, 3]),
        np.array([1, 2]),
        np.array([-1, 0, 2, -1]),
    )
    assert numbers(either.in_order()) == numbers(either)
    late = np.array([30.0, 31.0])
    one_way = replace(either, on_wire=replace(either.on_wire, start_us=np.array([5.0, 15.0, 25.0, 61.0])))
    assert numbers(one_way.in_order()) == ([0, 2], [0, 1, 2, -1])
    assert numbers(replace(one_way, send=replace(one_way.send, start_us=late)).in_order()) == numbers(either)


def test_a_send_that_is_not_found_leaves_its_frame_to_no_other(tmp_path: Path) -> None:
    """One send of two in sixty is missing; the one behind it was given its frame on the wire, of the same length."""
    bench = Bench("reread", 3)
    write(bench, tmp_path)
    scored = score(bench, pcitrace.open(tmp_path).frames.table, "vcd")
    assert scored.total()["wrong"] == scored.extra == scored.crossed == 0
    assert scored.fields["wire_start"]["null"] == scored.fields["rx_dma_start"]["null"] == 0
