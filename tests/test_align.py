"""Matching two sequences that keep their order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcitrace.frames import matching
from pcitrace.frames.align import match
from pcitrace.frames.sides import Matches, Side, whenever
from pcitrace.frames.strays import Loose, _cut_off, _due, _undisturbed, timely
from pcitrace.frames.turns import receives_first


def side(times: list[float], lengths: list[int], keys: list[int] | None = None, took: float = 1.0) -> Side:
    start = np.array(times, dtype=float)
    size = np.array(lengths, dtype=np.int64)
    return Side(
        start_us=start,
        end_us=start + took,
        shortest=size,
        longest=size,
        key=np.array(keys if keys is not None else [0] * len(times), dtype=np.uint64),
        damaged=np.zeros(len(times), dtype=bool),
        busy_us=start,
        ended_us=whenever(len(times)),
    )


def loose(time_us: list[float], size: list[int]) -> Loose:
    """Pieces of no frame; those of more than a word are no status."""
    bytes_ = np.array(size)
    return Loose(np.array(time_us), bytes_, bytes_ // 4, bytes_ > 4)


def pairs(earlier: Side, later: Side, after_end: bool = True) -> list[tuple[int, int]]:
    i, j = match(earlier, later, after_end)
    return list(zip(i.tolist(), j.tolist(), strict=True))


def test_one_to_one() -> None:
    assert pairs(side([0, 10, 20], [60, 60, 60]), side([3, 13, 23], [60, 60, 60])) == [(0, 0), (1, 1), (2, 2)]


def test_a_lost_frame_among_equal_ones_is_told_by_time() -> None:
    sent = side([0, 20, 40, 60, 80], [500] * 5)
    assert pairs(sent, side([3, 43, 63, 83], [500] * 4)) == [(0, 0), (2, 1), (3, 2), (4, 3)]


def test_a_lost_frame_is_told_by_content() -> None:
    sent = side([0, 1, 2, 3], [500] * 4, [1, 2, 3, 4], took=0.5)
    assert pairs(sent, side([9, 10, 11], [500] * 3, [1, 3, 4])) == [(0, 0), (2, 1), (3, 2)]


def test_a_lost_frame_is_told_by_length() -> None:
    sent = side([0, 1, 2, 3], [64, 1500, 512, 64], took=0.5)
    assert pairs(sent, side([9, 10, 11], [64, 512, 64])) == [(0, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize("busy", [False, True])
def test_frames_that_would_have_waited_for_nothing_are_other_ones(busy: bool) -> None:
    """As many were sent as came, but the first is lost and the last of them was sent after the capture.

    In order they would all match, each as late as the next one was sent. Only where something was in the way of all is
    that as likely as not.
    """
    times = [0.0, 37.0, 61.0, 118.0, 143.0, 197.0, 229.0, 290.0, 317.0, 371.0]
    came = side([time + 5 for time in [*times[1:], 402.0]], [500] * 10)
    if busy:
        came = replace(came, busy_us=np.zeros(10))
    found = pairs(side(times, [500] * 10), came)
    if busy:
        assert found == [(row, row) for row in range(10)]
    else:
        assert found == [(row + 1, row) for row in range(9)]


def test_frames_of_one_length_in_step_are_matched_so_that_none_is_left_out() -> None:
    """Each may as well be the one before it, sent while that was read: that is as regular, but leaves the first out."""
    times = [10.1, 25.6, 40.1, 55.0, 70.1, 85.0, 99.3, 114.9, 129.5, 144.4, 160.1]
    came = side([31.0, 43.9, 58.5, 75.8, 88.1, 104.7, 120.8, 136.0, 150.3, 164.8, 178.6], [1500] * 11, took=12.2)
    assert pairs(side(times, [1500] * 11, took=13.9), came, after_end=False) == [(row, row) for row in range(11)]


def test_many_under_way_are_matched_by_the_usual_lag_and_not_the_shortest() -> None:
    """Every frame takes 45 us and three more are sent meanwhile; the second, fifth and sixth are lost."""
    times = [0.0, 12.0, 27.0, 36.0, 51.0, 60.0, 77.0, 85.0, 99.0, 113.0]
    kept = [0, 2, 3, 6, 7, 8, 9]
    jitter = [0.0, 0.2, 0.1, 0.3, 0.0, 0.2, 0.1]
    sent = side(times, [500] * 10)
    got = side([times[one] + 46.0 + late for one, late in zip(kept, jitter, strict=True)], [500] * 7)
    assert pairs(sent, got) == list(zip(kept, range(7), strict=True))


def test_what_may_have_two_partners_has_none() -> None:
    """Of two frames sent close together one is lost, and the receive waited: it may be either."""
    sent = side([0, 100, 200, 202, 300, 400], [500] * 6)
    assert pairs(sent, side([3, 103, 207, 303, 403], [500] * 5)) == [(0, 0), (1, 1), (4, 3), (5, 4)]
    # Without a loss both are there.
    assert pairs(sent, side([3, 103, 205, 207, 303, 403], [500] * 6)) == [(one, one) for one in range(6)]
    # With another length there is no doubt.
    sent = side([0, 100, 200, 202, 300, 400], [500, 500, 500, 600, 500, 500])
    assert pairs(sent, side([3, 103, 207, 303, 403], [500, 500, 600, 500, 500]))[2] == (3, 2)


def test_the_usual_lag_is_that_of_frames_with_a_partner_of_their_own() -> None:
    """Equal frames about every 5.4 us in two batches, the first not received: most fit the next one about as well."""
    first = [3.2, 9.9, 14.8, 20.8, 25.8, 32.4, 37.8, 43.7, 48.9]
    second = [337.9, 342.5, 347.4, 352.5, 359.2, 364.5, 369.8, 375.1, 381.6, 387.3, 392.1, 397.0]
    first_got = [10.3, 15.9, 21.2, 26.4, 32.8, 38.8, 44.0, 49.4]
    second_got = [338.4, 344.0, 349.0, 353.8, 359.7, 365.6, 370.9, 376.1, 382.1, 388.1, 393.2, 398.1]
    sent = side([time - 1 for time in first + second], [526] * 21)
    got = side(first_got + second_got, [526] * 20, took=4.5)
    assert pairs(sent, got) == [(n + 1, n) for n in range(20)]


def test_what_comes_as_soon_as_the_receiver_is_done_may_have_waited() -> None:
    """One of two equal frames was lost; both had come when the one before was written, the second just then."""
    sent = side([0.0, 20.0, 24.0, 30.0, 60.0, 65.0], [1514, 1514, 526, 526, 1514, 526])
    got = side([1.5, 21.5, 31.5, 61.5, 71.5], [1514, 1514, 526, 1514, 526], took=9.8)
    assert pairs(sent, got) == [(0, 0), (1, 1), (4, 3), (5, 4)]


def test_what_came_while_something_else_was_in_the_way_may_have_waited() -> None:
    """Of three equal frames two are received, when the card is done with something else: as if the first was lost.

    With the card idle that is how it was, for it leaves no frame lying. Frames do wait for so long: the second did.
    """
    sent = side([0.0, 20.0, 40.0, 48.97, 54.5, 80.0], [500] * 6)
    got = side([1.5, 26.5, 50.0, 56.0, 81.5], [500] * 5, took=5.5)
    assert pairs(sent, got) == [(0, 0), (1, 1), (3, 2), (4, 3), (5, 4)]
    assert pairs(sent, replace(got, busy_us=np.array([1.5, 20.0, 41.0, 41.0, 81.5]))) == [(0, 0), (1, 1), (5, 4)]


def test_what_nothing_was_in_the_way_of_was_not_left_lying() -> None:
    """One of two equal frames is received when the card is done with something else, begun when the first was due.

    If that was begun later the first would have been written before; it is so with all others.
    """
    sent = side([0.0, 20.0, 40.0, 44.0, 80.0], [500] * 5)
    got = side([1.5, 21.5, 52.0, 81.5], [500] * 4)
    assert pairs(sent, replace(got, busy_us=np.array([1.5, 21.5, 41.0, 81.5]))) == [(0, 0), (1, 1), (4, 3)]
    assert pairs(sent, replace(got, busy_us=np.array([1.5, 21.5, 44.5, 81.5]))) == [(0, 0), (1, 1), (3, 2), (4, 3)]


@pytest.mark.parametrize("passed", [False, True])
def test_a_send_begun_while_a_receive_was_pending_tells_whose_turn_it_is(passed: bool) -> None:
    """Four receives wait, and a send is begun behind each: so none was pending when the last one was begun.

    Unless a send was begun, once, while a receive was.
    """
    wire = side([0.0, 100.0, 200.0, 300.0, 400.0, 500.0], [500] * 6)
    got = side([1.5, 103.0, 204.0, 305.0, 406.0, 520.0], [500] * 6)
    got = replace(got, busy_us=np.array([1.5, 99.0, 199.0, 299.0, 399.0, 490.0]))
    sends = [104.5, 205.5, 306.5, 407.5, 510.0]
    if passed:
        sends[3:3] = [405.0]
    rows = np.arange(5)
    busy = receives_first(Matches.of(wire, got, rows, rows), np.array(sends), np.array(sends) - 8.0)
    assert busy.tolist() == [1.5, 99.0, 199.0, 299.0, 399.0, 490.0 if passed else 510.0]


def test_frames_that_came_in_step_with_others_may_have_waited_for_each_other() -> None:
    """Of four equal frames three are received: each when the next one was due, but as soon as the card was done."""
    sent = side([0.0, 20.0, 21.2, 40.0, 41.2, 42.4, 43.6, 80.0], [500] * 8)
    got = side([1.5, 21.5, 23.5, 42.7, 43.9, 45.1, 81.5], [500] * 7)
    queued = replace(got, busy_us=np.array([1.5, 21.5, 21.5, 40.0, 40.0, 40.0, 81.5]))
    assert pairs(sent, queued) == [(0, 0), (1, 1), (2, 2), (7, 6)]


def test_one_frame_that_is_not_seen_right_moves_none_behind_it() -> None:
    """The fifth was read one word too long, as long as the sixth is on the wire at most; every frame has a lag of 1 us.

    Each but one would have a partner if all waited for the time until the next.
    """
    sent = side([30.0 * n for n in range(20)], [500] * 4 + [504] + [500] * 15)
    wire = side([30.0 * n + 2 for n in range(20)], [500] * 20)
    wire = replace(wire, longest=np.where(np.arange(20) == 5, 504, 500))
    others = [(n, n) for n in range(20) if n != 4]
    assert pairs(sent, wire) == others


def test_queued_frames_keep_their_order() -> None:
    sent = side([0, 1, 2, 3], [64] * 4, took=0.5)
    assert pairs(sent, side([20, 30, 40, 50], [64] * 4)) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_equal_contents_are_matched_in_order() -> None:
    sent = side([0, 10, 20], [64] * 3, [7, 7, 7])
    assert pairs(sent, side([5, 15, 25], [64] * 3, [7, 7, 7])) == [(0, 0), (1, 1), (2, 2)]


def test_other_contents_are_never_matched() -> None:
    assert pairs(side([0, 10], [64] * 2, [1, 2]), side([5, 15], [64] * 2, [3, 4])) == []


def test_nothing_comes_before_it_was_sent() -> None:
    assert pairs(side([10.0], [64]), side([5.0], [64])) == []
    assert pairs(side([10.0], [64]), side([10.5], [64]), after_end=True) == []
    assert pairs(side([10.0], [64]), side([10.5], [64]), after_end=False) == [(0, 0)]


def test_a_capture_that_begins_in_the_middle() -> None:
    """What is seen first was sent before; the rest is matched to its own."""
    sent = side([20, 40, 60], [64] * 3)
    assert pairs(sent, side([3, 23, 43, 63], [64] * 4)) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("empty", ["earlier", "later", "both"])
def test_nothing_to_match(empty: str) -> None:
    some, none = side([0.0], [64]), side([], [])
    earlier = none if empty in ("earlier", "both") else some
    later = none if empty in ("later", "both") else some
    assert pairs(earlier, later) == []


@given(
    st.lists(st.tuples(st.floats(12.5, 60), st.sampled_from([64, 512, 1024, 1500]), st.booleans()), max_size=120),
    st.floats(0.5, 4),
    st.booleans(),
)
def test_random_losses(frames: list[tuple[float, int, bool]], lag: float, keyed: bool) -> None:
    """Frames with a steady lag, some lost: every one that came is matched to itself, with contents or without."""
    times = np.cumsum([gap for gap, _, _ in frames]).tolist()
    keys = [n + 1 for n in range(len(frames))] if keyed else None
    sent = side(times, [size for _, size, _ in frames], keys)
    came = [n for n, (_, _, lost) in enumerate(frames) if not lost]
    got = side(
        [times[n] + 1 + lag for n in came], [frames[n][1] for n in came], [keys[n] for n in came] if keys else None
    )
    assert pairs(sent, got) == [(n, j) for j, n in enumerate(came)]


@given(st.data())
def test_long_queues_with_losses(data: st.DataObject) -> None:
    """Contents known: a queue of any length and any losses change nothing."""
    count = data.draw(st.integers(1, 600))
    lost = data.draw(st.sets(st.integers(0, count - 1), max_size=count // 4))
    came = [n for n in range(count) if n not in lost]
    sent = side([float(n) for n in range(count)], [64] * count, list(range(1, count + 1)), took=0.5)
    got = side([count + 5.0 + 2 * n for n in range(len(came))], [64] * len(came), [n + 1 for n in came])
    assert pairs(sent, got) == [(n, j) for j, n in enumerate(came)]


def test_where_pieces_are_of_no_frame_no_match_holds_until_none_is_pending() -> None:
    """The lag grows while the receiver is behind; stray pieces come at 155 us, and from 223 us on it has caught up."""
    times = list(range(0, 300, 20))
    lags = [3, 3, 3, 3, 9, 18, 30, 42, 30, 15, 3, 3, 3, 3, 3]
    sent = side([float(time) for time in times], [500] * 15)
    got = side([float(time + 1 + lag) for time, lag in zip(times, lags, strict=True)], [500] * 15, took=8.0)
    rows = np.arange(15)
    matches = Matches.of(sent, got, rows, rows)
    assert _undisturbed(matches, np.array([])).all()
    kept = _undisturbed(matches, np.array([155.0]))
    assert np.flatnonzero(~kept).tolist() == [4, 5, 6, 7, 8, 9, 10]
    # A receive that has no match stands between pieces and the next match: they are not of that one.
    apart = _undisturbed(Matches.of(sent, got, rows[1:], rows[1:]), np.array([3.5]))
    assert apart.all()
    # Without a row of frames for which none was pending nothing tells where it is right again.
    assert not _undisturbed(Matches.of(sent, got, rows[4:11], rows[4:11]), np.array([155.0])).any()


@pytest.mark.parametrize(
    ("came_us", "behind", "holds"),
    [(104.0, 16, False), (104.0, 8, True), (84.0, 16, True)],
    ids=["cut", "too short for the other", "not when the other was due"],
)
def test_what_comes_when_a_longer_frame_was_due_may_be_that_one_cut(came_us: float, behind: int, holds: bool) -> None:
    """The frames at 60 and 100 us have no other partner; one of 192 bytes comes, with something short behind it."""
    sent = side([0.0, 20.0, 40.0, 60.0, 100.0, 120.0], [500, 600, 500, 192, 208, 600])
    got = side([4.0, 24.0, 44.0, came_us, 124.0], [500, 600, 500, 192, 600])
    i, j = match(sent, got, True)
    assert i.tolist() == [0, 1, 2, 3, 5]
    behind_them = loose([5.5, came_us + 2], [16, behind])
    kept = _due(Matches.of(sent, got, i, j), behind_them)
    assert kept.tolist() == [True, True, True, holds, True]
    known = replace(got, key=np.arange(1, 6, dtype=np.uint64))
    assert _due(Matches.of(sent, known, i, j), behind_them).all()


@pytest.mark.parametrize("mixed", [True, False])
def test_where_pieces_are_of_no_frame_lengths_tell_where_matches_hold_again(mixed: bool) -> None:
    """Two frames are always pending, so that none has the usual lag; what is behind the pieces has its own lengths.

    The pieces are of one of the two that they stand between, so that the edges of these are not certain.
    """
    lengths = [526, 78, 1514, 526, 1038, 78, 78, 526, 1514, 1038, 526, 78] if mixed else [526] * 12
    sent = side([10.0 * n for n in range(12)], lengths)
    lags = [21, 14, 18, 25, 12, 23, 16, 20, 13, 24, 17, 22]
    got = side([10.0 * n + lag for n, lag in enumerate(lags)], lengths, took=6.0)
    rows = np.arange(12)
    kept = _undisturbed(Matches.of(sent, got, rows, rows), np.array([49.0]))
    assert np.flatnonzero(~kept).tolist() == ([2, 3] if mixed else rows.tolist())


def test_pieces_of_frames_that_the_capture_cuts_off_disturb_no_match() -> None:
    """Frames of 500 bytes are on the wire from 0, 20 and 40 us on; the first two are received from 30 us on."""
    sent, got = side([0.0, 20.0, 40.0], [500] * 3, took=10.0), side([30.0, 50.0], [500] * 2, took=8.0)
    rows = np.arange(2)

    def cut(loose_us: list[float], size: list[int]) -> list[bool]:
        return [bool(one) for one in _cut_off(Matches.of(sent, got, rows, rows), loose(loose_us, size))]

    assert cut([1.0, 8.0, 12.0, 70.0], [380, 380, 200, 380]) == [True] * 4
    # As much as a frame that was seen has, and a piece between frames, are of none that was cut off.
    assert cut([1.0, 12.0, 14.0, 40.0], [380, 380, 120, 4]) == [False] * 4
    # Nor is what no frame was on the wire for, and what is too much.
    assert cut([45.0, 59.0], [64, 500]) == [False] * 2
    # A status before the last frame arrives is none of its pieces.
    assert cut([48.5, 58.5, 70.0], [4, 4, 380]) == [False, True, True]


def test_what_the_capture_begins_in_is_received_no_sooner_than_others() -> None:
    """The first frame was under way when the capture began, so it may have any length; the others take 8 us."""
    wire = side([-np.inf, 20.0, 40.0], [64] * 3, took=2.0)
    wire = replace(wire, end_us=np.array([2.0, 22.0, 42.0]))
    rows = np.arange(3)

    def holds(first_us: float, key: int = 0) -> list[bool]:
        got = replace(side([first_us, 30.0, 50.5], [64] * 3), key=np.array([key, 0, 0], np.uint64))
        sent = replace(wire, key=np.array([key, 0, 0], np.uint64))
        return [bool(one) for one in timely(Matches.of(sent, got, rows, rows))]

    assert holds(9.0) == [False, True, True], "it is of the one before"
    assert holds(10.0) == holds(15.0) == holds(9.0, key=7) == [True, True, True]


def test_what_is_on_the_wire_last_was_read() -> None:
    """The capture begins when the first frame was read already: each next one would begin before it was read whole."""
    begins = 2.4 * np.arange(12)
    wire = replace(side(begins.tolist(), [64] * 12), end_us=begins + 0.7)
    read = side((begins[:-1] - 1.5).tolist(), [64] * 11, took=1.7)
    i, j = matching._match(read, wire, True, lossless=True)
    assert (j - i).tolist() == [1] * 11


def test_every_frame_has_a_partner_if_the_card_cuts_through() -> None:
    """Short frames are read before the wire begins; of the long ones each would be the one before it on the wire."""
    length = [60, 60, 60, 1500, 60, 60, 1500, 60, 60, 60, 1500]
    begins = 200.0 * np.arange(len(length))
    takes = np.where(np.array(length) == 60, 5.0, 100.0)
    sent = replace(side(begins.tolist(), length), end_us=begins + takes)
    wire = replace(side((begins + 8).tolist(), length), end_us=begins + 10 + 1.2 * takes)
    i, j = matching._match(sent, wire, True, lossless=True)
    assert i.tolist() == j.tolist() == list(range(len(length)))


def test_what_was_read_beside_frames_moves_none_of_them() -> None:
    """Descriptors seem to be a long frame; nobody knows that the card stores and forwards. Where wire and DMA overlap,
    each frame from the third on would be the one before it on the wire (a drawn card, overload g104).
    """
    begins = [14.3, 23.0, 29.6, 36.8, 43.4, 49.1, 54.7, 59.7, 64.6, 70.2, 75.5, 80.4]
    ends = np.array([22.5, 29.2, 36.3, 43.0, 48.6, 53.5, 59.2, 64.1, 69.8, 75.0, 79.9, 84.7])
    sent = side([begins[0], 15.0, *begins[1:]], [526, 928, *[526] * 11])
    sent = replace(sent, end_us=np.array([ends[0], 310.0, *ends[1:]]))
    wire = replace(side((ends + 2.66).tolist(), [526] * 12), end_us=ends + 6.96)
    i, j = matching._match(sent, wire, False, lossless=True)
    assert (i.tolist(), j.tolist()) == ([0, *range(2, 13)], list(range(12)))
