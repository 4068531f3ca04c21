"""Short units at the ends of frames: the frames that can be cut in one way only tell what belongs to the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcitrace.columns import Integers
from pcitrace.traffic.ahead import Expected, Units
from pcitrace.traffic.tails import settle

SHORT = 2


def units(sizes: list[list[int]], pauses: list[list[float]]) -> Units:
    """Lay out frames 100 us apart: data phases of their pieces, and the pause ahead of each piece but the first."""
    asked, last, count = [], [], []
    for number, (frame, between) in enumerate(zip(sizes, pauses, strict=True)):
        now = 100.0 * number
        for size, pause in zip(frame, [0.0, *between], strict=True):
            asked.append(now + pause)
            now = asked[-1] + 0.03 * size
            last.append(now)
            count.append(size)
    asked_us, last_us, phases = np.array(asked), np.array(last), np.array(count)
    none = np.zeros(len(phases), dtype=np.int64)
    period = np.arange(len(phases))
    return Units(phases, none, none > 0, phases == SHORT, asked_us, asked_us, last_us, period)


def frames_of(least: Integers, most: Integers, sending: bool = False) -> Expected:
    """Frames of so many data phases, at any time."""
    ever = np.full(len(least), np.inf)
    return Expected(least, most, least, -ever, ever, frozenset([SHORT]), sending)


def settled(
    sizes: list[list[int]],
    pauses: list[list[float]],
    number: list[int],
    totals: list[tuple[int, int]],
    sending: bool = False,
) -> list[int]:
    """Settle frames of which the bounds of the data phases are given."""
    least, most = np.array(totals).T
    found, either = settle(units(sizes, pauses), np.array(number), frames_of(least, most, sending))
    assert not either.any()
    return found.tolist()


def test_a_descriptor_ahead_is_not_taken_for_the_tail_behind() -> None:
    """Both have two phases and the sum fits either way; descriptors of the other frames stand 0.25 us ahead of them."""
    sizes = [[2, 10, 7], [2, 10, 2], [2, 10, 9]]
    pauses = [[0.25, 0.14], [0.25, 0.14], [0.25, 0.14]]
    number = [-1, 0, 0, 1, 1, -1, -1, 2, 2]
    assert settled(sizes, pauses, number, [(17, 17), (12, 12), (19, 19)]) == [-1, 0, 0, -1, 1, 1, -1, 2, 2]


def test_a_tail_that_comes_as_soon_as_the_other_pieces_belongs_to_the_frame() -> None:
    """The length is known to two phases; a status follows every frame later than its pieces follow each other."""
    sizes = [[10, 10, 7, 2], [10, 10, 2, 2], [10, 10, 9, 2]]
    pauses = [[0.14, 0.14, 0.4], [0.14, 0.14, 0.4], [0.14, 0.14, 0.4]]
    number = [0, 0, 0, -1, 1, 1, -1, -1, 2, 2, 2, -1]
    totals = [(27, 27), (20, 22), (29, 29)]
    assert settled(sizes, pauses, number, totals) == [0, 0, 0, -1, 1, 1, 1, -1, 2, 2, 2, -1]


def test_the_only_short_unit_between_frames_stays_the_status() -> None:
    """It comes as soon as a piece would, but each of the other frames has one behind it."""
    sizes = [[10, 7, 2], [10, 9, 2], [10, 10, 2], [10, 5, 2]]
    pauses = [[0.14, 0.4], [0.14, 0.4], [0.14, 0.14], [0.14, 0.4]]
    number = [0, 0, -1, 1, 1, -1, 2, 2, -1, 3, 3, -1]
    assert settled(sizes, pauses, number, [(17, 17), (19, 19), (20, 22), (15, 15)]) == number


def test_frames_of_one_length_tell_once_how_often_something_short_comes_last() -> None:
    """Two lengths seen 100 times each say no more about a third one than two lengths do."""
    sizes = [[10, 7], [10, 9]] * 100 + [[10, 2]]
    pauses = [[0.14]] * len(sizes)
    number = [row // 2 for row in range(400)] + [200, -1]
    totals = [(17, 17), (19, 19)] * 100 + [(10, 12)]
    assert settled(sizes, pauses, number, totals)[-2:] == [200, 200]


def test_what_follows_a_piece_that_is_not_full_is_of_no_frame() -> None:
    """Pieces are cut at 10. Something short comes as soon as a piece would: behind 10 it may be one, behind 7 not.

    Once two that are of no frame come.
    """
    sizes = [[10, 10, 5, 2, 2], [10, 10, 9, 2], [10, 10, 6, 2], [10, 7, 2, 2], [10, 10, 2, 2]]
    pauses = [[0.14, 0.14, 0.4, 0.4]] + [[0.14, 0.14, 0.4]] * 4
    number = [0, 0, 0, -1, -1, 1, 1, 1, -1, 2, 2, 2, -1, 3, 3, -1, -1, 4, 4, -1, -1]
    totals = [(25, 25), (29, 29), (26, 26), (17, 19), (20, 22)]
    assert settled(sizes, pauses, number, totals)[-8:] == [3, 3, -1, -1, 4, 4, 4, -1]


def test_a_status_that_comes_sooner_than_a_piece_can_is_not_the_tail() -> None:
    """Pieces follow each other after 0.14 us; behind the last frame's 10 a status of another one waited for the bus."""
    sizes = [[10, 2, 2]] * 6 + [[10, 2, 2, 2]]
    pauses = [[0.14, 0.4]] * 6 + [[0.03, 0.05, 0.4]]
    number = [frame for frame in range(6) for frame in (frame, frame, -1)] + [6, 6, -1, -1]
    assert settled(sizes, pauses, number, [(12, 12)] * 7) == [*number[:-3], -1, 6, -1]


def test_of_two_behind_a_full_piece_one_belongs_to_the_frame_if_there_is_only_one_elsewhere() -> None:
    """The pauses are all alike; one other frame ends with a full piece, and none with something short."""
    sizes = [[10, size, 2] for size in (3, 4, 5, 6, 7, 8, 9, 3, 4, 10)] + [[10, 10, 2, 2], [10, 9, 2]]
    number = [owner for frame in range(10) for owner in (frame, frame, -1)] + [10, 10, -1, -1, 11, 11, -1]
    totals = [(sum(one[:2]),) * 2 for one in sizes[:10]] + [(20, 22), (19, 19)]
    found = settled(sizes, [[0.14] * (len(one) - 1) for one in sizes], number, totals)
    assert found == [*number[:30], 10, 10, 10, -1, 11, 11, -1]


def test_a_frame_that_begins_with_the_only_one_before_it_took_the_status_of_the_frame_ahead() -> None:
    """Two are left behind it, where every other has one: what comes last of them is a status, the other its tail."""
    sizes = [[10, size, 2] for size in (3, 4, 5, 6, 7, 8, 9, 3, 4)] + [[10, 5, 2, 10, 10, 2, 2], [10, 7, 2]]
    pauses = [[0.3, 0.4]] * 9 + [[0.3, 0.4, 0.3, 0.3, 0.34, 0.4], [0.3, 0.4]]
    number = [owner for frame in range(9) for owner in (frame, frame, -1)] + [9, 9, 10, 10, 10, -1, -1, 11, 11, -1]
    totals = [(sum(one[:2]),) * 2 for one in sizes[:10]] + [(22, 22), (17, 17)]
    assert settled(sizes, pauses, number, totals) == [*number[:29], -1, 10, 10, 10, -1, 11, 11, -1]


def test_a_frame_that_has_none_behind_it_took_the_one_that_every_other_has() -> None:
    """It is one phase shorter than one that was lost, for which it was taken with its status."""
    sizes = [[10, 5, 2], [10, 9, 2], [10, 7, 2]] * 5
    number = [owner for frame in range(15) for owner in (frame, frame, -1)]
    totals = [(15, 15), (19, 19), (17, 17)] * 5
    number[8], totals[2] = 2, (19, 19)
    assert settled(sizes, [[0.14, 0.14]] * 15, number, totals) == [*number[:8], -1, *number[9:]]
    # What is read is on the wire: no frame was taken for another.
    assert settled(sizes, [[0.14, 0.14]] * 15, number, totals, sending=True) == number


def test_where_no_other_frame_tells_what_is_short_comes_last() -> None:
    """Every frame has a descriptor ahead that is as short as its tail; one of them comes as late as most tails do."""
    sizes, pauses = [[2, 10, 10, 2]] * 20, [[0.16, 0.15, 0.15]] * 19 + [[0.15, 0.15, 0.16]]
    number = [owner for frame in range(20) for owner in (-1, frame, frame, frame)]
    assert settled(sizes, pauses, number, [(22, 22)] * 20) == number


def test_frames_that_all_end_with_something_short_took_nothing() -> None:
    """All but two have the same length and nothing behind them; that is not too few because two others have more."""
    sizes = [[10, 10, 2]] * 12 + [[10, 7, 2], [10, 7, 2]]
    number = [owner for frame in range(12) for owner in [frame] * 3] + [12, 12, -1, 13, 13, -1]
    totals = [(22, 22)] * 12 + [(17, 17)] * 2
    assert settled(sizes, [[0.14, 0.14]] * 14, number, totals) == number


def test_no_tail_comes_behind_a_data_phase_with_bytes_disabled() -> None:
    """What follows as soon as a piece would is the tail of the last frame; with its last byte disabled it is not."""
    sizes, pauses = [[10, 7, 2], [10, 10, 2, 2]], [[0.14, 0.4], [0.14, 0.14, 0.4]]
    frames = units(sizes, pauses)
    number, least, most = np.array([0, 0, -1, 1, 1, -1, -1]), np.array([17, 20]), np.array([17, 22])
    for disabled, last in ((False, 1), (True, -1)):
        own = replace(frames, ending=np.arange(7) == (4 if disabled else 1))
        assert settle(own, number, frames_of(least, most))[0].tolist() == [0, 0, -1, 1, 1, last, -1]


def test_of_two_that_wait_for_the_bus_either_may_be_the_tail() -> None:
    """Once there is one more than the status that every frame has. If the bus rests before it, it was not there yet."""
    sizes, pauses = [[10, 2, 2]] * 6 + [[10, 2, 2, 2]], [[0.14, 0.4]] * 6 + [[0.2, 0.05, 0.4]]
    frames = units(sizes, pauses)
    number = np.array([frame for frame in range(6) for frame in (frame, frame, -1)] + [6, 6, -1, -1])
    frames_12 = frames_of(np.full(7, 12), np.full(7, 12))
    for same, expected in ((False, [False] * 7), (True, [False] * 6 + [True])):
        own = replace(frames, period=np.where(same & (np.arange(22) == 20), 19, frames.period))
        found, either = settle(own, number, frames_12)
        assert found.tolist() == number.tolist()
        assert either.tolist() == expected
    # Where as many are behind it as everywhere, both have their place.
    rows = np.arange(21)
    fewer = Units(*(values[rows] for values in vars(own).values()))
    assert not settle(fewer, number[rows], frames_12)[1].any()


def test_what_comes_between_pieces_may_be_of_no_frame_and_what_is_behind_them_the_tail() -> None:
    """Behind the frame are two, as if one of them were its tail, and the first follows as soon as pieces do."""
    sizes, pauses = [[10, 10, 2, 2]] * 6 + [[10, 2, 10, 2, 2]], [[0.14, 0.14, 0.4]] * 6 + [[0.14, 0.14, 0.14, 0.4]]
    number = np.array([owner for frame in range(6) for owner in (frame, frame, frame, -1)] + [6, 6, 6, -1, -1])
    expected = frames_of(np.full(7, 22), np.full(7, 22))
    found, either = settle(units(sizes, pauses), number, expected)
    assert (found.tolist(), np.flatnonzero(either).tolist()) == (number.tolist(), [6])
    # The same where the target had cut the first piece after 4, which goes on with 6, and that was taken for its rest.
    sizes[6] = [6, 6, 10, 2, 2]
    foreign = np.where(np.arange(29) == 24, 2, 0)
    found, either = settle(replace(units(sizes, pauses), foreign=foreign), number, expected)
    assert (found.tolist(), np.flatnonzero(either).tolist()) == (number.tolist(), [6])
    # Not where it is a whole piece with it, nor where what is behind comes as late as a status.
    sizes[6] = [10, 10, 2, 2, 2]
    assert not settle(replace(units(sizes, pauses), foreign=foreign), number, expected)[1].any()
    sizes[6], pauses[6] = [6, 6, 10, 2, 2], [0.14, 0.14, 0.4, 0.4]
    assert not settle(replace(units(sizes, pauses), foreign=foreign), number, expected)[1].any()


def test_no_frames() -> None:
    assert settled([[2, 10]], [[0.2]], [-1, -1], [(1, 1)]) == [-1, -1]
