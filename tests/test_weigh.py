"""Cards that the rules do not know: their DMA is read at the least cost, and what is not sure is null."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from cardbench import Bench, score, write

import pcitrace
from pcitrace import analysis, frames
from pcitrace.frames import again, margins
from pcitrace.frames.margins import _by_rules as margins_of
from pcitrace.lattice import ALONE, BEGINS, CLOSER, ENDS, STATES, Learner, Limits, Reading, Sequence, bins, read
from pcitrace.profiles import Descriptor, Profile
from pcitrace.traffic import beginnings, contest, costs, doubts, goals, reader, ways, weigh
from pcitrace.traffic.asked import AGREED, FAR, STATED, SURE
from pcitrace.traffic.content import FCS, HEAD, Heads, begins_alike, behind_us, lies_inside, unlike
from pcitrace.traffic.goals import (
    BUFFERS,
    MISFIT,
    RECEIVE,
    SEND,
    Layout,
    Target,
    goals_of,
    layouts,
    may_be_parted,
    unknown_layout,
)
from pcitrace.traffic.phases import Phases
from pcitrace.traffic.pieces import Pieces
from pcitrace.traffic.reader import NOTHING, How, Reader, _read_on, only
from pcitrace.traffic.stated import MISSING, OTHERWISE, Stated
from pcitrace.traffic.weigh import Found, Problem

EDGES = ("dma_start", "dma_end", "rx_dma_start", "rx_dma_end")


def analysed(bench: Bench, folder: Path, profile: str = "generic") -> analysis.Frames:
    """Frames of a generated card from 16 channels."""
    write(bench, folder, vcd=False)
    stated = (folder / "run-control16.toml").read_text().replace('"card.toml"', f'"{profile}"')
    run = folder / "run"
    run.mkdir()
    for name in ("control16.sr", "card.toml"):
        (run / name).symlink_to(folder / name)
    (run / "run.toml").write_text(stated)
    return analysis.frames(pcitrace.open(str(run)))


@pytest.mark.parametrize(
    ("family", "seed", "least"), [("reread", 2, 90), ("cacheline", 2, 45), ("other-master", 2, 90)]
)
def test_a_doubted_reading_is_read_again(family: str, seed: int, least: int, tmp_path: Path) -> None:
    # With the rules alone 17, 41 and 6 of these edges are wrong.
    bench = Bench(family, seed, frames=30)
    found = analysed(bench, tmp_path)
    assert (found.table["margin_send"].notna() | found.table["margin_receive"].notna()).any()
    scored = score(bench, found.table, "control16")
    edges = scored.total(*EDGES)
    assert edges["wrong"] == 0
    assert edges["right"] >= least
    assert (scored.extra, scored.crossed, scored.lost_rx) == (0, 0, 0)


@pytest.mark.parametrize(
    ("family", "seed", "profile", "least"),
    [
        ("padding", 801, "generic", 60),
        ("padding", 901, "card.toml", 80),
        ("reread", 901, "generic", 60),
        ("reread", 903, "card.toml", 25),
        ("padding", 912, "card.toml", 20),
        ("wide66", 916, "card.toml", 60),
        ("ring", 916, "generic", 40),
        ("equal-lengths", 1141, "card.toml", 50),
        ("cut-through", 1140, "card.toml", 60),
        ("cut-through", 1142, "card.toml", 30),
        ("mixed", 1194, "card.toml", 17),
    ],
    ids=[
        "to the end of a block",
        "block",
        "read again",
        "lost frames",
        "descriptors as long as frames",
        "ends of short frames",
        "as likely",
        "status as long as a check sequence",
        "a word left over long after what was looked at",
        "a frame among those of another",
        "more frames than the rules found",
    ],
)
def test_cards_on_which_nothing_was_tuned(family: str, seed: int, profile: str, least: int, tmp_path: Path) -> None:
    """Before, 19, 46, 4, (in between) 10, 24, 11, 12, 12, 12 and 3 values were wrong, and 2 rows were of two frames."""
    bench = Bench(family, seed, frames=24)
    scored = score(bench, analysed(bench, tmp_path, profile).table, "control16")
    edges = scored.total(*EDGES)
    assert edges["wrong"] == 0
    assert edges["right"] >= least
    assert (scored.extra, scored.crossed, scored.lost_rx) == (0, 0, 0)


def test_a_send_that_is_null_tells_no_length(tmp_path: Path) -> None:
    """Two sends of 32 bytes were taken for descriptors of 24: their edges were null, and 10 bytes their lengths."""
    bench = Bench("tiny", 83)
    scored = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    assert scored.total()["wrong"] == 0
    assert scored.fields["length"]["right"] >= 50


@pytest.mark.parametrize(
    ("family", "seed", "kind", "profile", "least"),
    [
        ("mixed", 1173, "vcd", "card.toml", 140),
        ("scatter-gather", 1170, "vcd", "generic", 118),
        ("mid-stream", 1170, "vcd", "generic", 45),
        ("mixed", 1174, "vcd", "card.toml", 120),
        ("reread", 1174, "vcd", "card.toml", 140),
        ("wide66", 1172, "vcd", "card.toml", 115),
        ("ring", 1170, "control16", "card.toml", 110),
        ("latency-timer", 1171, "control16", "generic", 130),
        ("mixed", 1181, "control16", "card.toml", 150),
        ("ring", 1183, "control16", "card.toml", 130),
        ("mixed", 1187, "control16", "card.toml", 130),
        ("scatter-gather", 1189, "control16", "card.toml", 130),
        ("cut-through", 1194, "control16", "card.toml", 95),
        ("cut-through", 1217, "control16", "card.toml", 100),
        ("overload", 1217, "vcd", "generic", 105),
        ("mixed", 1230, "vcd", "card.toml", 60),
        ("mixed", 1241, "control16", "card.toml", 118),
        ("cacheline", 71, "control16", "card.toml", 135),
        ("batched-status", 70, "control16", "card.toml", 115),
    ],
    ids=[
        "a header of its own, read again",
        "a fast crystal",
        "which frame on the wire a known send is",
        "the last frame on the wire was read",
        "cut and read again at once",
        "no length field",
        "as likely as the frame before",
        "descriptors as a buffer of their own",
        "many pieces while the wire goes on",
        "last words one by one, of all lengths",
        "last words one by one, and two buffers",
        "as the other host is read",
        "descriptors as long as a status",
        "read as soon as the frame before leaves",
        "as regular as the frame before",
        "nothing seems to be received",
        "one frame seems to be received",
        "what is left of a line",
        "a status that no frame needs",
    ],
)
def test_cards_drawn_later(family: str, seed: int, kind: str, profile: str, least: int, tmp_path: Path) -> None:
    """39, 23, 32, 36, 1, 1, 14, 24, 44, 45, 43, 0, 12, 26, 28, 23, 2, 23, 3 of their values were wrong (0: 59 null)."""
    bench = Bench(family, seed, frames=24)
    if kind == "vcd":
        write(bench, tmp_path)
        table = analysis.frames(
            pcitrace.open(tmp_path), profile=profile if profile == "generic" else str(tmp_path / profile)
        ).table
    else:
        table = analysed(bench, tmp_path, profile).table
    scored = score(bench, table, kind)
    values = scored.total(*EDGES, "wire_start", "wire_end", "length")
    assert values["wrong"] == 0
    assert values["right"] >= least
    assert (scored.extra, scored.crossed, scored.lost_rx) == (0, 0, 0)


@pytest.mark.parametrize(
    ("single", "lost", "nats", "margins"),
    [
        (False, False, [20.0, 3.0, 20.0], [np.nan, 3.0, np.nan]),
        (False, True, [20.0, 3.0, 20.0], [0.0, 0.0, 0.0]),
        (False, True, [20.0, 9.0, 20.0], [np.nan, np.nan, np.nan]),
        (True, False, [20.0], [0.0]),
    ],
    ids=["all found", "few", "none doubted", "a single one of many"],
)
def test_what_rules_found_is_as_sure_as_they_found_frames(
    single: bool, lost: bool, nats: list[float], margins: list[float]
) -> None:
    edges = np.array(nats)[:, None].repeat(2, axis=1)
    found = margins_of(edges, np.append(np.arange(len(nats)), -1), single, lost)
    np.testing.assert_array_equal(found[:, 1], [*margins, np.nan])


def test_where_rules_found_few_and_one_is_doubted_none_is_sure(tmp_path: Path) -> None:
    """A card that writes what it receives word by word: 10 of 30 receives were found, and 4 edges were wrong."""
    bench = Bench("cut-through", 71, frames=30)
    scored = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    assert scored.total(*EDGES)["wrong"] == 0
    assert scored.total("dma_start", "dma_end")["right"] == 60


def test_the_rules_are_held_against_readings_that_forget_half_of_what_is_alike(tmp_path: Path) -> None:
    """Each descriptor made the next one look like a frame's end: 24 edges were wrong, with the card's own profile."""
    bench = Bench("overload", 921, frames=24)
    scored = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    assert scored.total(*EDGES)["wrong"] == 0
    assert scored.total("wire_start", "wire_end")["right"] == 2 * scored.frames
    assert (scored.extra, scored.crossed, scored.lost_rx) == (0, 0, 0)


def test_a_card_that_reads_on_to_the_end_of_a_block_says_less_of_lengths(tmp_path: Path) -> None:
    """All its reads have one rest by eight bytes: frames that end at any byte of a block are read alike."""
    bench = Bench("padding", 914, frames=24)
    lengths = score(bench, analysed(bench, tmp_path).table, "control16").fields["length"]
    assert lengths["wrong"] == 0
    assert lengths["right"] == 24


@pytest.mark.parametrize("seed", [1142, 1144])
def test_where_header_and_data_begin_inside_words_says_less_of_lengths(seed: int, tmp_path: Path) -> None:
    """With one buffer a frame has up to 3 bytes more in memory, with two up to 9: these lengths were one too long."""
    bench = Bench("scatter-gather", seed, frames=24)
    lengths = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16").fields["length"]
    assert lengths["wrong"] == 0
    assert lengths["right"] >= 18


def test_what_the_target_stopped_is_read_again_though_the_card_had_ended_it(tmp_path: Path) -> None:
    """A STOP# came with the last data before another device got the bus: the send began with the second read."""
    bench = Bench("reread", 1233, frames=36)
    write(bench, tmp_path)
    scored = score(bench, analysis.frames(pcitrace.open(tmp_path), profile="generic").table, "vcd")
    assert scored.clean
    assert scored.total(*EDGES)["right"] == 4 * scored.frames


def test_a_frame_in_one_piece_lies_in_one_buffer(tmp_path: Path) -> None:
    """In two, each receive without its header had the length of the frame before: 30 and 61 values were wrong."""
    bench = Bench("scatter-gather", 1234, frames=36)
    write(bench, tmp_path)
    for profile in (str(tmp_path / "card.toml"), "generic"):
        scored = score(bench, analysis.frames(pcitrace.open(tmp_path), profile=profile).table, "vcd")
        assert scored.clean
        assert scored.total(*EDGES)["right"] >= 60


def test_a_send_does_not_begin_where_what_was_cut_is_read_again(tmp_path: Path) -> None:
    """Reads of 31 data phases were cut, and begun again at the same address: three beginnings were the second ones."""
    bench = Bench("reread", 1160, frames=24)
    write(bench, tmp_path)
    edges = score(bench, pcitrace.open(tmp_path).frames.table, "vcd").total(*EDGES)
    assert edges["wrong"] == 0
    assert edges["right"] >= 55


def test_frames_of_many_pieces_are_tried_as_shorter_too(tmp_path: Path) -> None:
    """Bursts of 8 data phases: a host has over 1,000 pieces, and each status was taken for the end of its receive."""
    bench = Bench("cacheline", 100)
    edges = score(bench, analysed(bench, tmp_path).table, "control16").total(*EDGES)
    assert edges["wrong"] == 0
    assert edges["right"] >= 120


def test_a_descriptor_for_the_first_piece_of_all_frames_is_put_right(tmp_path: Path) -> None:
    """Each send began with its descriptor, and its own first piece was left over: 97 nats dearer than the truth."""
    bench = Bench("cacheline", 1257, 40)
    starts = score(bench, analysed(bench, tmp_path).table, "control16").total("dma_start")
    assert starts["wrong"] == 0, "33 were; one was left until what is doubted was read otherwise"
    assert starts["right"] >= 25


def test_a_mistake_in_every_eighth_frame_is_found_out(tmp_path: Path) -> None:
    """Descriptors read between the first pieces of a send were its beginning: 36 wrong, most surer than is asked."""
    bench = Bench("equal-lengths", 1257, 300)
    found = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    assert found.total(*EDGES)["wrong"] == 0
    assert found.total("dma_start")["right"] >= 225
    assert found.total(*EDGES)["right"] >= 1150


def test_sends_behind_a_mistake_are_not_given_as_other_frames(tmp_path: Path) -> None:
    """Of 300 frames the last 20 sends got out of step with the wire: four rows had a send and another frame's wire."""
    bench = Bench("overload", 1258, 300)
    found = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    assert found.crossed == 0
    edges = found.total(*EDGES)
    assert edges["wrong"] == 0
    assert edges["null"] <= 45


def test_where_one_host_seems_to_receive_nothing_the_other_is_not_believed(tmp_path: Path) -> None:
    """Frames of one length, sent both ways at once: pieces of sends and receives look alike and take turns."""
    bench = Bench("overload", 1260, 40)
    found = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    assert found.total(*EDGES)["wrong"] == 0, "18 receives began with a piece of a send"
    assert found.total("length")["right"] >= 35, "the wire still tells"


def test_what_is_looked_at_has_frames_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written four words at a time, the first 300 pieces have few frames; of all a third were wrong: 44 values."""

    def told(problem: Problem, described: bool) -> None:
        raise RuntimeError(described, contest.contested(problem, described))

    monkeypatch.setattr(margins, "contested", told)
    with pytest.raises(RuntimeError) as stopped:
        analysed(Bench("cut-through", 1259, 300), tmp_path, "card.toml")
    assert stopped.value.args == (True, None)


def _sends(there: list[bool], cost: float, margin: float = 20.0) -> Reading:
    """A reading of pieces each of which is a send or left over."""
    some, count = np.array(there), len(there)
    margins = np.full((count, 4), margin, np.float32)
    numbers = np.where(some, np.arange(count), -1)
    return Reading(np.where(some, SEND, -1), some, some, numbers, margins, cost, bound=np.full(count, 30.0, np.float32))


def test_what_leaves_most_frames_out_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now, half, fewer = (_sends([True] * some + [False] * (4 - some), -float(4 - some)) for some in (4, 2, 1))
    monkeypatch.setattr(doubts, "_otherwise", lambda _, one: [half, fewer] if one is now else [])
    assert doubts.doubted_otherwise(Any, now) == [half]


@pytest.mark.parametrize(
    ("gone", "margin", "doubted"),
    [({0}, 20.0, {0}), ({0}, 11.0, {0}), ({0, 1, 2, 3}, 20.0, set()), (set(), 20.0, set())],
    ids=["few elsewhere", "unsure of all", "many elsewhere", "none elsewhere"],
)
def test_what_a_likelier_reading_says_is_doubted(gone: set[int], margin: float, doubted: set[int]) -> None:
    """30 sends; those elsewhere in a reading that is 100 nats cheaper are doubted, if they are few."""
    assert _doubted_by(_sends([at not in gone for at in range(30)], -100.0, margin)) == doubted


@pytest.mark.parametrize(("bound", "doubted"), [(12.0, {0, 5}), (11.0, {0})], ids=["a rival", "the search's end"])
def test_where_the_search_ends_nothing_is_doubted_for_it(bound: float, doubted: set[int]) -> None:
    other = _sends([at > 0 for at in range(30)], -100.0)
    other.margins[5], other.bound[5] = 11.0, bound
    assert _doubted_by(other) == doubted


def _doubted_by(other: Reading) -> set[int]:
    """The sends whose edges are both doubted, of which all were found."""
    count = len(other.track)
    first = _sends([True] * count, 0.0)
    tried: Any = SimpleNamespace(settle=lambda one, **_: one)
    nats = np.full((count, 2), 15.0)
    with patch.object(contest, "doubted_otherwise", lambda *_: [other]):
        contest._where_doubted(nats, np.arange(count), first, first, tried)
    return set(np.flatnonzero((nats == 0.0).all(axis=1)).tolist())


def test_what_is_read_otherwise_is_what_another_reading_is_near_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A margin of 5 that the search bounds is no doubt. What is left over is doubted, too, but begins nothing."""
    now = _sends([True, True, False, True], 0.0)
    now.margins[:3, :2], now.bound[1] = 5.0, 5.0
    zeros, none = np.zeros(4), np.zeros(4, np.int64)
    sequence = Sequence(zeros, zeros, zeros, none, none, none, none, np.zeros((4, ALONE), np.float32))
    seen = []

    def captured(changed: Sequence, *_: Any, **__: Any) -> Reading:
        seen.append(
            {
                (int(item), int(column)): float(changed.alone[item, column])
                for item, column in np.argwhere(changed.alone)
            }
        )
        return now

    monkeypatch.setattr(doubts, "read", captured)
    asked: Any = SimpleNamespace(
        settle=lambda one, *_, **__: one,
        lying=lambda *_: None,
        taught=lambda *_: (sequence, None, None),
        limits=lambda _: None,
        wide=0,
    )
    assert len(list(doubts._otherwise(asked, now))) == len(seen) == 4
    whose, begins = {(0, 1), (2, 0)}, {(0, 3)}
    asked_for = [(whose, AGREED), (whose, SURE), (begins, SURE), (begins, FAR)]
    assert seen == [dict.fromkeys(columns, nats) for columns, nats in asked_for]


def test_edges_that_are_not_sure_by_far_are_doubted_the_least_sure_first() -> None:
    """Also what is null anyhow; not what no answer doubts, or where the search ended. Both edges for one reading if
    they are as sure. What is left over is no edge.
    """
    now = _sends([True, True, True, True, True, False], 0.0, margin=FAR)
    now.margins[:, 1:3] = [(13.0, 13.0), (7.0, 5.9), (FAR, 19.0), (8.0, 8.5), (12.0, FAR), (12.0, 12.0)]
    now.bound[3] = 8.0
    assert doubts._doubts(now) == [(1, ENDS), (1, BEGINS), (4, BEGINS), (0, BEGINS), (2, ENDS)]


def test_what_is_doubted_by_itself_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many pieces are read at most; again where that was cheaper, and no further."""
    now = _sends([True] * 50, 0.0, margin=13.0)
    zeros, none = np.zeros(50), np.zeros(50, np.int64)
    sequence = Sequence(zeros, zeros, zeros, none, none, none, none, np.zeros((50, ALONE), np.float32))
    seen = list[tuple[int, ...]]()

    def captured(changed: Sequence, *_: Any, **__: Any) -> Reading:
        seen.append(tuple(np.argwhere(changed.alone).ravel().tolist()))
        return replace(now, cost=now.cost - float(len(seen)))

    monkeypatch.setattr(doubts, "read", captured)
    monkeypatch.setattr(doubts, "READ_AGAIN", 50 * 60)
    asked: Any = SimpleNamespace(
        settle=lambda one, *_, **__: one,
        cheapest=lambda tried: min(tried, key=lambda one: one.cost),
        lying=lambda *_: None,
        taught=lambda *_: (sequence, None, None),
        limits=lambda _: None,
        pieces=range(50),
    )
    assert len(doubts.each_otherwise(asked, [now])) == len(seen) == 60
    assert seen[:2] == [(0, BEGINS), (1, BEGINS)]


def test_many_pieces_are_read_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first are read from many beginnings; all of them only as often as that leaves ways to explain them."""
    pieces, whole = list[int](), list[Limits]()

    def counted(sequence: Sequence, *args: Any, **kwargs: Any) -> Reading:
        limits = args[2]
        if len(sequence) > reader.SMALL:
            whole.append(limits)
        else:
            pieces.append(len(sequence))
            assert limits.nats > CLOSER
        return read(sequence, *args, **kwargs)

    for module in (reader, beginnings, doubts):
        monkeypatch.setattr(module, "read", counted)
    monkeypatch.setattr(reader, "SMALL", 800)
    bench = Bench("tiny", 1257, 300)
    found = score(bench, analysed(bench, tmp_path).table, "control16").total(*EDGES)
    assert found["wrong"] == 0
    assert found["right"] >= 550
    assert pieces, "the first ones are read"
    assert 2 <= len(whole) <= 50, "of two hosts; before that they were read 53 times"
    closer = [limits for limits in whole if limits.states != reader.FORCED]
    assert {limits.nats for limits in closer} == {CLOSER}


@pytest.mark.parametrize(
    ("cheaper", "tried"),
    [
        ((), ["earlier send", "earlier receive"]),
        (("shorter send",), ["shorter send", "earlier send", "earlier receive"]),
        (("longer receive",), ["earlier send", "longer receive", "earlier receive"]),
        (("joined from 32",), ["earlier send", "earlier receive", "joined from 32"]),
    ],
    ids=["nothing", "sends", "receives", "read again"],
)
def test_all_pieces_are_read_as_is_cheapest_of_the_first(
    cheaper: tuple[str, ...], tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as other frames whatever these say. What is not cheaper by more than nothing is not tried."""
    names = {SEND: "send", RECEIVE: "receive"}

    class Ways:
        """What there is to try, of the first pieces or of all; its readings are words."""

        def settle(self, one: str, way: str = "", rounds: int = 0) -> SimpleNamespace:
            assert rounds or way
            cost = 0.0 if one == "first" else -2 * NOTHING if one + way in cheaper else -NOTHING
            return SimpleNamespace(name=one + way, cost=cost)

        def count(self, _: int) -> int:
            return 0

        def head(self, _: str) -> tuple[Ways, str]:
            return Ways(), "first"

    alike: dict[str, Any] = {
        "shifts": lambda _best, _side, _count, able: [f"earlier {able}"],
        "_able": lambda _reader, _best, side: names[side],
        "_varied": lambda _reader, _best, side: [f"{one} {names[side]}" for one in ("longer", "shorter")],
        "_cut_and_read_again": lambda _reader, _best: [("joined", " from 16"), ("joined", " from 32")],
    }
    for name, one in alike.items():
        monkeypatch.setattr(ways, name, one)
    found = ways._as_in_the_head(Ways(), "best")  # type: ignore[arg-type]
    assert [one.name for one in found] == tried


def test_a_search_that_lost_its_way_looks_again_among_dearer_states_too() -> None:
    """Of few pieces: of many only more states are kept. What was before is given where no look finds it."""
    before, dear = (SimpleNamespace(cost=cost) for cost in (0.0, 9.0))
    for limits, least, found in ((Limits(96), 60.0, True), (Limits(96), 1e3, False), (Limits(96, CLOSER), 60.0, False)):
        looks = list[Limits]()

        def read_within(limits: Limits, least: float = least, looks: list[Limits] = looks) -> Any:
            looks.append(limits)
            return SimpleNamespace(cost=0.0) if limits.nats >= least else dear

        now = reader._read_on(read_within, before, limits)  # type: ignore[arg-type]
        assert (now is not before) == found
        assert [one.states for one in looks] == [96, 384, 1536][: len(looks)]
        assert now.cost == 0.0


def test_no_answer_asks_for_a_larger_margin_than_is_looked_for() -> None:
    assert max(FAR, SURE, STATED) < CLOSER


def test_layouts_have_one_buffer_or_two() -> None:
    plain = [lies for lies in layouts(SEND, True, 4, True) if not lies.block and not lies.again]
    assert [(lies.buffers, lies.added) for lies in plain] == [(1 + (added > 3), added) for added in range(10)]
    assert Layout(4, 0, True, buffers=2).cost == BUFFERS


@pytest.mark.parametrize("compared", [1, 7, 1 << 13])
def test_which_segments_fit_which_layout(compared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are compared at once: the data phases of the bytes from the first word's shift to the last's end."""
    monkeypatch.setattr(goals, "COMPARED", compared)
    phases = np.array([16, 9, 16, 16, 3])
    segment = np.array([0, 0, 1, 1, 1])
    begins = np.diff(segment, prepend=-1) > 0
    pieces = SimpleNamespace(bus=SimpleNamespace(data_phases=phases), cut=np.zeros(5, dtype=bool))
    reading = Reading(np.full(5, SEND), begins, np.roll(begins, -1), segment, np.zeros((5, 4)), 0.0, segment)
    length = np.array([98, 140])
    target = Target(np.zeros(2), np.zeros(2), length, length)
    some = [lies for lies in layouts(SEND, True, 4, True) if not lies.again]
    claimed = goals.Claimed(SEND, pieces, reading, target, 4)  # type: ignore[arg-type]
    fits = claimed.fitting(some)
    for row, lies in zip(fits, some, strict=True):
        block = lies.block or 4
        words = [
            (-(-(size + lies.added) // block) * block - lies.added // 4 * 4 * bool(lies.block)) // 4 for size in length
        ]
        assert row.tolist() == [words == moved for words, moved in zip(words, (25, 35), strict=True)]
    assert fits.any()
    assert not fits.all()
    assert claimed.fitting([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("pieces", "buffers", "block"),
    [
        ([1, 1, 1, 1, 16, 1], 2, 0),
        ([4, 16, 1], 1, 8),
        ([4, 15, 1, 1], 1, 0),
    ],
    ids=["a header word by word", "any pieces", "only the end word by word"],
)
def test_what_is_read_word_by_word_is_no_block_and_what_is_behind_in_another_buffer(
    pieces: list[int], buffers: int, block: int
) -> None:
    """78 bytes in 21 words: from an odd byte, in two buffers, or on to the end of a block, which costs the least."""
    phases = np.array(pieces * 2)
    segment = np.repeat([0, 1], len(pieces))
    begins = np.diff(segment, prepend=-1) > 0
    bus = SimpleNamespace(
        data_phases=phases, has_address=False, first_data_us=np.zeros(len(phases)), last_data_us=np.zeros(len(phases))
    )
    of_host = SimpleNamespace(bus=bus, cut=np.zeros(len(phases), dtype=bool))
    reading = Reading(
        np.full(len(phases), SEND), begins, np.roll(begins, -1), segment, np.zeros((len(phases), 4)), 0.0, segment
    )
    length = np.full(2, 78)
    target = Target(np.ones(2), np.full(2, 2.0), length, length)
    lies = goals.Claimed(SEND, of_host, reading, target, 4).layout(lambda _: 0.0)  # type: ignore[arg-type]
    assert (lies.buffers, lies.block) == (buffers, block)


@pytest.mark.parametrize(("pieces", "units"), [([1, 1, 1, 1, 16], 4), ([1, 1], 2), ([4, 1, 1], 4), ([1, 9], 1)])
def test_a_segment_begins_with_a_piece_or_single_ones(pieces: list[int], units: int) -> None:
    begins = np.arange(2 * len(pieces)) % len(pieces) == 0
    assert goals.first_units(np.array(pieces * 2), begins).tolist() == [units, units]


@pytest.mark.parametrize(
    ("first", "unit", "second_at", "expected"),
    [
        (2, 4, None, False),
        (2, 4, 0x2000, True),
        (2, 4, 0x1008, False),
        (4, 4, None, True),
        (2, 8, None, True),
    ],
)
def test_two_buffers_only_where_a_piece_lies_elsewhere(
    first: int, unit: int, second_at: int | None, expected: bool
) -> None:
    """Of frames that begin with 2 data phases of 4 bytes nothing but addresses tells that these are no descriptors."""
    begins = np.array([True, False, True, False])
    reading = Reading(np.zeros(4), begins, ~begins, np.array([0, 0, 1, 1]), np.zeros((4, 4)), 0.0)
    addresses = np.full(4, -1) if second_at is None else np.array([0x1000, second_at] * 2)
    phases = np.array([first, 9] * 2)
    bus = SimpleNamespace(
        data_phases=phases, address=addresses, behind=addresses + unit * phases, has_address=second_at is not None
    )
    pieces = SimpleNamespace(bus=bus)
    assert may_be_parted(SEND, pieces, reading, unit) == expected  # type: ignore[arg-type]
    alone = Reading(np.zeros(4), np.full(4, True), np.full(4, True), np.arange(4), np.zeros((4, 4)), 0.0)
    assert not may_be_parted(SEND, pieces, alone, unit)  # type: ignore[arg-type]


def test_what_is_as_long_as_descriptors_is_status_if_there_are_more_of_it() -> None:
    """Nothing shows which way data went; as many as there are frames are those frames' descriptors."""
    ends = {"send_descriptor": Descriptor(size_bytes=16), "receive_descriptor": Descriptor(size_bytes=16)}
    stated = Stated(Profile("own", "", (), status_bytes=(4,), **ends))
    receives = Reading(*(np.zeros(0) for _ in range(4)), margins=np.zeros((0, 4)), cost=0.0)

    def missing(left: list[int], write: int) -> float:
        count = len(left) + 1
        reading = replace(
            receives,
            track=np.array([RECEIVE] + [-1] * len(left)),
            begins=np.arange(count) == 0,
            ends=np.arange(count) == 0,
            target=np.where(np.arange(count) == 0, 0, -1),
        )
        return stated.missing(reading, np.array([60, *left]), np.full(count, write), 4)

    assert missing([4], -1) == MISSING
    assert missing([4, 4], -1) == missing([4, 1], -1) == missing([4], 1) == 0.0


def test_another_way_to_explain_everything_is_no_single_doubt() -> None:
    count = 8
    order, edges = np.arange(count), np.ones(count, bool)
    best = Reading(np.zeros(count, np.int64), edges, edges, order, np.full((count, 4), 30, np.float32), 100.0)
    one, all_ = (
        Reading(np.where(order < many, -1, 0), order >= many, order >= many, order, best.margins, 110.0)
        for many in (1, count)
    )
    doubted = best.against(one)
    assert doubted.margins[0].tolist() == [10.0] * 4
    assert np.isinf(doubted.rivals).all()
    rivalled = best.against(all_)
    assert (rivalled.margins == 10.0 / 2.5).all()
    assert (rivalled.rivals == rivalled.margins).all()


def test_a_profile_says_what_is_no_part_of_a_frame(tmp_path: Path) -> None:
    """All frames are as long and each comes behind a descriptor: with it they are 16 bytes longer, and look alike."""
    bench = Bench("equal-lengths", 901, frames=24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    run = pcitrace.open(tmp_path)
    dma = analysis.traffic(run, "A").dma
    pieces = Pieces.of(dma.bus)
    nothing = Found(*(np.zeros(0, kind) for kind in (np.int64, np.int64, bool)))
    stated = Profile("own", "", (), descriptors="host_memory", send_descriptor=Descriptor(size_bytes=16))
    first, reader = weigh.started(pieces, Problem(dma, (nothing, nothing), (None, None), stated))

    def missing(reading: Reading) -> float:
        return reader.stated.missing(reading, pieces.bus.data_phases, reader.write, 4)

    assert missing(first) == 0.0
    everything = Reading(
        track=np.zeros(len(pieces), np.int64),
        begins=np.ones(len(pieces), bool),
        ends=np.ones(len(pieces), bool),
        target=np.arange(len(pieces)),
        margins=first.margins,
        cost=0.0,
    )
    assert missing(everything) == MISSING * (len(pieces) - 1)
    # No frame of these is received: of status that is written for those nothing is missing.
    reader = replace(reader, stated=Stated(Profile("own", "", (), status_bytes=(4,))))
    assert missing(everything) == 0.0
    assert missing(replace(everything, track=np.ones(len(pieces), np.int64))) == MISSING * len(pieces)
    left = np.ones(len(pieces), np.int64)
    left[np.flatnonzero(reader.write != 0)[0]] = -1
    assert missing(replace(everything, track=left)) == 0.0


def test_a_layout_that_the_profile_does_not_state_is_rare() -> None:
    plain, checked, overlapping = Layout(0, 0, True), Layout(FCS, 0, True), Layout(0, 0, False)

    def cost(sends: Layout, receives: Layout, **says: object) -> float:
        stated = Stated(Profile("own", "", (), **says))
        return stated.otherwise(SEND, sends) + stated.otherwise(RECEIVE, receives)

    assert cost(plain, checked) == cost(overlapping, plain) == 0.0
    assert cost(plain, checked, receive_fcs=True) == cost(plain, plain, receive_fcs=False) == 0.0
    assert cost(plain, plain, receive_fcs=True) == cost(plain, checked, receive_fcs=False) == OTHERWISE
    assert cost(overlapping, plain, send="store_and_forward") == cost(plain, plain, send="cut_through") == OTHERWISE
    # What a profile states is not rare.
    assert cost(overlapping, plain, send="cut_through") + overlapping.cost == 0.0


def test_an_edge_below_the_threshold_is_null(tmp_path: Path) -> None:
    table = analysed(Bench("cacheline", 2, frames=30), tmp_path).table
    sure = table["margin_receive"] >= SURE
    both = table["rx_dma_start_us"].notna() & table["rx_dma_end_us"].notna()
    known = table["margin_receive"].notna()
    assert not (both & ~sure)[known].any()
    assert (both & sure)[known].any()
    assert 0 < sure[known].sum() < len(table)


def test_where_the_rules_account_for_the_wire_nothing_is_weighed(tmp_path: Path) -> None:
    table = analysed(Bench("latency-timer", 3, frames=30), tmp_path).table
    assert table["margin_send"].isna().all()
    assert table["margin_receive"].isna().all()
    assert table["dma_start_us"].notna().any()


def test_what_the_rules_found_is_held_against_the_cheapest_reading_near_it(tmp_path: Path) -> None:
    # The rules account for this wire, and 16 of their edges are wrong.
    bench = Bench("equal-lengths", 402, frames=24)
    found = analysed(bench, tmp_path)
    assert found.table["margin_send"].notna().any()
    edges = score(bench, found.table, "control16").total(*EDGES)
    assert edges["wrong"] == 0
    # On one host another way to read all sends, and all receives, is about as likely.
    assert edges["right"] >= 30


def test_which_way_data_went_is_no_fact_where_no_line_shows_it(tmp_path: Path) -> None:
    """The rules tell a direction for every piece; taken for certain it cost 16 nats wherever they were wrong."""
    write(Bench("ring", 3, frames=6), tmp_path)
    nothing = Found(*(np.zeros(0, kind) for kind in (np.int64, np.int64, bool)))
    stated = {name: (tmp_path / name).read_text() for name in ("run-control16.toml", "run.toml")}
    for name, known in (("run-control16.toml", False), ("run.toml", True)):
        (tmp_path / "run.toml").write_text(stated[name])
        dma = analysis.traffic(pcitrace.open(tmp_path), "A", profile="generic").dma
        assert (dma.write[dma.bus.data_phases > 0] >= 0).all()
        _, reader = weigh.started(Pieces.of(dma.bus), Problem(dma, (nothing, nothing), (None, None)))
        assert (reader.write >= 0).all() == known
        assert (reader.write >= 0).any() == known


def test_contents_say_which_frame_a_receive_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(Bench("equal-lengths", 3, frames=6), tmp_path)
    seen = []
    monkeypatch.setattr(
        frames, "doubted", lambda ends, columns, link: bool(seen.append(margins._by_content(columns, ends)))
    )
    found = analysis.frames(pcitrace.open(tmp_path), profile="generic").table
    received = found["rx_dma_start_us"].notna().to_numpy()
    assert received.sum() >= 5
    assert (seen[0][: len(received)] == received).all()


@pytest.mark.parametrize(
    ("family", "profile", "field"),
    [
        ("equal-lengths", "generic", "rx_dma_end"),  # a status was the end of each, a nat a frame cheaper
        ("batched-status", "card.toml", "length"),  # of a frame that lay otherwise than the others, a byte too long
    ],
)
def test_what_is_as_likely_otherwise_is_not_given(family: str, profile: str, field: str, tmp_path: Path) -> None:
    bench = Bench(family, 961, frames=24)
    found = score(bench, analysed(bench, tmp_path, profile).table, "control16")
    assert found.total(field)["wrong"] == 0
    assert found.total("wire_start")["right"] >= 22


def test_frames_are_doubted_edge_by_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One frame that a host receives may as well begin a piece later: that beginning is null, and nothing else is."""
    bench = Bench("batched-status", 961, frames=24)
    found = analysed(bench, tmp_path).table
    scored = score(bench, found, "control16")
    assert scored.total()["wrong"] == 0
    assert scored.total("rx_dma_start")["null"] == found["margin_receive"].notna().sum() == 1
    assert scored.total("dma_start", "dma_end", "rx_dma_end")["null"] == 0

    def nothing(problem: Problem, described: bool) -> np.ndarray:
        return np.full((int(problem.dma.burst.max()) + 1, 2), np.inf)

    monkeypatch.setattr(margins, "contested", nothing)
    again = pcitrace.open(tmp_path / "run").frames.table
    assert score(bench, again, "control16").total("rx_dma_start")["wrong"] > 0


def test_a_single_frame_is_doubted_where_another_begins_as_likely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of descriptors is read just before a frame, or in its middle: which is not told by any line."""
    bench = Bench("cacheline", 991, frames=24)
    scored = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    assert scored.total()["wrong"] == 0
    assert scored.total(*EDGES)["right"] >= 90
    monkeypatch.setattr(contest, "TINY", 0)
    by_rule = pcitrace.open(tmp_path / "run").frames.table
    assert score(bench, by_rule, "control16").total("dma_start")["wrong"] > 0


@pytest.mark.parametrize(("family", "seed", "nulls"), [("cacheline", 1247, 3), ("overload", 1243, 6)])
def test_an_edge_that_a_reading_has_elsewhere_is_doubted(family: str, seed: int, nulls: int, tmp_path: Path) -> None:
    """By the rules one edge was a piece beside where it was."""
    bench = Bench(family, seed)
    scored = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    edges = scored.total(*EDGES)
    assert (edges["wrong"], edges["null"]) == (0, nulls)


@pytest.mark.parametrize(
    ("side", "count", "doubted"),
    [(RECEIVE, 20, [(2, 0), (3, 1)]), (SEND, 30, [(2, 0), (3, 1), (4, 0), (4, 1)]), (RECEIVE, 9, []), (SEND, 9, [])],
    ids=["few receives", "few sends", "many receives", "many sends"],
)
def test_a_reading_that_has_few_edges_elsewhere_doubts_these(
    side: int, count: int, doubted: list[tuple[int, int]]
) -> None:
    """A receive that is another frame in the same place is nowhere else; all sends are on the wire, each as itself."""
    order, edges, no = np.arange(count), np.ones(count, bool), np.zeros(count, bool)
    first = Reading(np.full(count, side), edges, edges, order, np.full((count, 4), 20), 0.0, order)
    begins, ends = (np.where(order == at, no, edges) for at in (2, 3))
    other = replace(first, begins=begins, ends=ends, target=np.where(order == 4, 5, order))
    nats = np.full((count, 2), 15.0)
    contest._where_elsewhere(nats, order, first.edges(), other)
    assert [tuple(at) for at in np.argwhere(nats == 0.0)] == doubted
    assert (nats[nats > 0] == 15.0).all()


def test_that_a_single_frame_was_found_says_nothing_of_the_others(tmp_path: Path) -> None:
    table = analysed(Bench("mixed", 1241, frames=24), tmp_path, "card.toml").table
    assert table["rx_dma_start_us"].isna().all()
    assert table["margin_receive"].dropna().tolist() == [0.0]
    assert not (table["margin_match"] == 0.0).iloc[1:].any()


def test_a_frame_that_lies_otherwise_than_most_is_doubted(tmp_path: Path) -> None:
    """Two receives of 40 ended a word too soon, by the rules; all others lie two bytes behind the beginning of one."""
    bench = Bench("ring", 1242, frames=40)
    scored = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    assert scored.total(*EDGES) == {"right": 156, "null": 4}


@pytest.mark.parametrize(
    ("side", "units", "doubted"),
    [
        (SEND, [16, 16, 15, 16], [2]),
        (SEND, [16, 16, 30, 16], []),
        (RECEIVE, [16, 16, 15, 16], [2]),
        (RECEIVE, [16, 16, 17, 16], []),
        (RECEIVE, [16, 16, 18, 16], [2]),
        (RECEIVE, [16, 15, 15, 18], []),
    ],
    ids=["shorter", "read again", "shorter", "begins inside a word", "longer", "most do not agree"],
)
def test_what_is_as_long_as_others_must_be(
    side: int, units: list[int], doubted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(units)
    order, none = np.arange(count), np.full(count, -1)
    first = Reading(np.full(count, side), order >= 0, order >= 0, order, np.zeros((count, 4)), 0.0, order)
    time_us = 1e3 * order + (100.0 if side == RECEIVE else -100.0)
    bus = SimpleNamespace(data_phases=np.array(units), first_data_us=time_us, last_data_us=time_us, has_address=False)
    no = np.zeros(count, dtype=bool)
    bus.cut = bus.moved_again = no
    pieces = Pieces(order, bus, time_us, time_us)  # type: ignore[arg-type]
    on_wire = Target(1e3 * order, 1e3 * order + 1, np.full(count, 64), np.full(count, 64))
    targets = (on_wire, None) if side == SEND else (None, on_wire)
    real = Reader(pieces, none, targets, 4, Stated(), None)
    monkeypatch.setattr(contest, "started", lambda *_: (first, real))
    problem = Problem(SimpleNamespace(burst=order), (Found(none, none, none >= 0),) * 2, targets)  # type: ignore[arg-type]
    nats = np.full((count, 2), np.inf)
    contest._as_long_as_others(nats, pieces, problem)
    assert np.flatnonzero(nats[:, 0] == 0.0).tolist() == np.flatnonzero(nats[:, 1] == 0.0).tolist() == doubted


@pytest.mark.parametrize("side", [SEND, RECEIVE])
def test_a_frame_moves_before_it_is_sent_and_after_it_has_come(side: int) -> None:
    target = Target(np.array([0.0, -np.inf]), np.array([10.0, 20.0]), np.full(2, 76), np.full(2, 76))
    bound_us = goals_of(side, target, Layout(0, 0, whole=False), 4).bound_us
    # 80 bytes in 10 us; the last word and the check sequence may still be on the wire. Of one cut off nothing is known.
    assert bound_us.tolist() == ([10.0, 20.0] if side == SEND else [9.0, -np.inf])
    unseen = goals_of(side, replace(target, seen=False), Layout(0, 0, whole=False), 4).bound_us
    assert np.isinf(unseen).all()


def test_that_frames_are_longer_than_their_layout_is_never_learned_to_be_usual() -> None:
    """Else any reading explains any lengths: each excess costs only what learning it does."""
    count = 40
    sequence = Sequence(
        np.arange(count) * 10.0,
        np.arange(count) * 10.0,
        np.arange(count) * 10.0 + 1.0,
        np.full(count, 20, np.uint32),
        np.zeros(count, np.uint8),
        np.full(count, -1),
        np.full(count, -1),
        np.zeros((count, ALONE), np.float32),
    )
    target = Target(np.arange(count) * 10.0 + 3.0, np.arange(count) * 10.0 + 5.0, *[np.full(count, 64)] * 2)
    goals = goals_of(SEND, target, Layout(0, 0, whole=True), 4), goals_of(RECEIVE, None, Layout(0, 0, True), 4)
    all_of_them = np.ones(count, dtype=bool)
    longer = Reading(
        np.zeros(count, np.int64),
        all_of_them,
        all_of_them,
        np.arange(count),
        np.zeros((count, 4), np.float32),
        0.0,
        np.arange(count),
    )
    start = costs.first(sequence.units, 64, 4)
    excess = costs.learned(sequence, goals, longer, start, Learner()).tracks[SEND].excess[0]
    assert excess[costs.EXCESS_BELOW + 4] == pytest.approx(MISFIT)
    fits = costs.learned(replace(sequence, units=sequence.units - 4), goals, longer, start, Learner())
    assert fits.tracks[SEND].excess[0][costs.EXCESS_BELOW] < 0.5


@pytest.mark.parametrize(("first", "header"), [([], 0), ([1] * 3, 0), ([1] * 4, 4), ([12, 1, 1], 14)])
def test_what_ends_in_single_words_may_be_a_header(first: list[int], header: int) -> None:
    """Four of four bytes hold one, or 14. Then larger pieces come behind single words; and all are as long."""
    larger = [24, 31, 18, 44, 52, 9, 61, 35]
    size = np.array([one for many in larger for one in (*first, many, 1)])
    count = len(first) + 2
    begins, ends = (np.arange(len(size)) % count == at for at in (0, count - 1))
    cut = np.zeros(len(size), dtype=bool)
    told = costs._one_by_one(size, cut, (begins, ends), costs.first(size, 64, 4))
    assert told is not None
    assert told[1] == header
    # What is left of a buffer teaches nothing, of either.
    assert (told[0] == 1).all()
    if len(first) == 4:
        # Of eight bytes two do.
        told = costs._one_by_one(size, cut, (begins, ends), costs.first(size, 64, 8))
        assert told is not None
        assert told[1] == 4
    # Where it is said, nothing needs to show it.
    told = costs._one_by_one(size, cut, (begins, ends), costs.first(size, 64, 4, header=7))
    assert told is not None
    assert told[1] == 7


def test_a_piece_of_any_size_before_larger_ones_is_no_header() -> None:
    larger = [24, 31, 18, 44, 52, 9, 61, 35]
    size = np.array([one for many in larger for one in (many + 3, 1, many, 1)])
    begins, ends = (np.arange(len(size)) % 4 == at for at in (0, 3))
    told = costs._one_by_one(size, np.zeros(len(size), dtype=bool), (begins, ends), costs.first(size, 64, 4))
    assert told is not None
    assert told[1] == 0


@pytest.mark.parametrize(
    ("larger", "singles"),
    [([24, 31, 18, 44, 52, 9, 61, 35], True), ([16] * 8, False), ([24, 31, 18, 44, 16, 16, 16, 16], False)],
    ids=["of all lengths", "of one length", "few frames"],
)
def test_what_is_before_single_words_has_the_size_that_is_left(larger: list[int], singles: bool) -> None:
    """Of a card that reads the last word by itself: each size is another and teaches nothing."""
    size = np.array([one for many in larger for one in (many, 1)])
    begins, ends = (np.arange(len(size)) % 2 == at for at in (0, 1))
    if not singles and larger[0] != 16:
        # Of most frames the last is no single word.
        size[ends & (np.arange(len(size)) >= 6)] = 7
    cut = np.zeros(len(size), dtype=bool)
    told = costs._one_by_one(size, cut, (begins, ends), costs.first(size, 64, 4))
    assert (told is not None) == singles
    assert told is None or (told[0].tolist() == [1] * len(size) and told[1] == 0)
    # What is written behind a received frame is its status.
    us, number = np.arange(len(size)) * 1.0, np.cumsum(begins) - 1
    lone = np.full(len(size), -1)
    alone = np.zeros((len(size), ALONE), np.float32)
    sequence = Sequence(us, us, us + 0.5, size.astype(np.uint32), cut.astype(np.uint8), lone, lone, alone)
    goals = goals_of(SEND, None, Layout(0, 0, True), 4), goals_of(RECEIVE, None, Layout(0, 0, True), 4)
    for side in (SEND, RECEIVE):
        reading = Reading(
            np.full(len(size), side), begins, ends, lone, np.zeros((len(size), 4), np.float32), 0.0, number
        )
        table = costs.learned(sequence, goals, reading, costs.first(sequence.units, 64, 4), Learner())
        assert table.tracks[side].singles == (singles and side == SEND)


def test_a_host_is_read_again_where_the_other_ones_reading_is_cheaper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one host receives was left over; read as the other host was, it is not."""
    read: list[tuple[Problem, tuple[Pieces, Reading]]] = []

    def weighed(problem: Problem, like: tuple[Problem, Reading] | None = None) -> tuple[Pieces, Reading]:
        found = weigh.weigh(problem, like)
        read.append((problem, found))
        return found

    monkeypatch.setattr(again, "weigh", weighed)
    monkeypatch.setattr(again, "each", lambda work, things: [work(one) for one in things])  # in their order
    analysed(Bench("cut-through", 1198, frames=12), tmp_path, "card.toml")
    (problem, best), (other, (_, taught)) = read
    first, reader = weigh.started(best[0], problem)
    sent = first.track == SEND
    poor = reader.as_it_is(
        replace(
            first,
            track=np.where(sent, first.track, -1),
            begins=first.begins & sent,
            ends=first.ends & sent,
            target=np.where(sent, first.target, -1),
            segment=np.where(sent, first.segment, -1),
        )
    )
    pieces, found = weigh.as_likely(problem, (best[0], poor), (other, taught))
    assert found.cost < poor.cost - NOTHING
    assert found.cost == pytest.approx(best[1].cost, abs=NOTHING)
    # Nothing is to be learned of a bus of another width.
    bus = copy(other.dma.bus)
    bus.bytes, bus.bytes_exact = 8 * bus.data_phases, True
    wide = replace(other, dma=replace(other.dma, bus=bus))
    assert weigh.as_likely(problem, (best[0], poor), (wide, taught))[1] is poor
    assert len(pieces) == len(found.track)


def test_what_is_left_over_is_told_by_what_is_before_it() -> None:
    """A descriptor is read before each frame, and a status as long is written behind it, each after its own pause."""
    frames = 20
    count, order = 3 * frames, np.arange(3 * frames)
    us, is_frame = order * 10.0 - (order % 3 == 2) * 8.0, order % 3 == 1
    alone = np.zeros((count, ALONE), np.float32)
    alone[:, 7], alone[:, 8] = np.where(order % 3 == 2, 5.0, 0.0), np.where(order % 3 == 0, 5.0, 0.0)
    # Of one piece in three its first data do not tell which way it went.
    alone[::9, 7:9] = alone[2::9, 7:9] = 0.7
    alone[:, 9:] = np.inf
    lone, size = np.full(count, -1), np.where(is_frame, 20, 4).astype(np.uint32)
    sequence = Sequence(us, us, us + 0.5, size, np.zeros(count, np.uint8), lone, lone, alone)
    reading = Reading(
        np.where(is_frame, SEND, -1),
        is_frame,
        is_frame,
        lone,
        np.zeros((count, 4), np.float32),
        0.0,
        np.where(is_frame, order, -1),
    )
    goals = goals_of(SEND, None, Layout(0, 0, True), 4), goals_of(RECEIVE, None, Layout(0, 0, True), 4)
    table = costs.learned(sequence, goals, reading, costs.first(size, 64, 4), Learner())
    behind_frame, behind_status = 2, 7
    read, write = table.other_units[:, 8], table.other_units[:, 9]
    assert read[behind_frame] - write[behind_frame] > 2.0
    assert write[behind_status] - read[behind_status] > 2.0
    soon, late = bins(np.array([1.5, 17.5]))
    assert table.other[2 * behind_frame + 1][soon] < table.other[2 * behind_frame + 1][late] - 1.0
    assert table.other[2 * behind_status][late] < table.other[2 * behind_status][soon] - 1.0


def test_a_frame_begins_before_what_lies_later_in_the_other_memory(tmp_path: Path) -> None:
    """Headers lie in buffers that no descriptor names: all sends seemed to begin behind them."""
    bench = Bench("mixed", 1113, frames=24)
    write(bench, tmp_path)
    scored = score(bench, pcitrace.open(tmp_path).frames.table, "vcd")
    assert scored.fields["dma_start"]["wrong"] == 0
    assert sum(scored.fields[edge]["right"] for edge in EDGES) >= 66


def test_no_length_is_told_where_wire_and_memory_are_not_believed(tmp_path: Path) -> None:
    """The rate of the wire is contradicted, and neither end of 12 frames is sure: they had 46 bytes instead of 128."""
    bench = Bench("mixed", 1110, frames=24)
    write(bench, tmp_path)
    lengths = score(bench, pcitrace.open(tmp_path).frames.table, "vcd").fields["length"]
    assert lengths["wrong"] == 0


def test_first_bytes_are_found_inside_others_beyond_the_first_data_phase() -> None:
    whole = np.arange(HEAD, dtype=np.uint8)
    rows = [whole, whole[14:], whole[3:], whole[::-1].copy(), np.zeros(HEAD, np.uint8), whole[50:]]
    data = np.zeros((len(rows), HEAD), np.uint8)
    for row, one in zip(data, rows, strict=True):
        row[: len(one)] = one
    some = Heads(data, np.array([len(one) for one in rows]))
    first = Heads(np.tile(whole, (len(rows), 1)), np.full(len(rows), HEAD))
    assert lies_inside(some, first).tolist() == [0, 14, 0, 0, 0, 0]
    assert begins_alike(some, first).tolist() == [True, False, True, False, False, False]
    assert not lies_inside(first, some).any()
    # What was read again after eight bytes begins as it is.
    again = Heads(np.concatenate([whole[:8], whole[: HEAD - 8]])[None], np.array([HEAD]))
    assert not lies_inside(first.take(np.array([0])), again).any()
    zeros = Heads(np.zeros((1, HEAD), np.uint8), np.array([HEAD]))
    assert not lies_inside(zeros, zeros).any()


@pytest.mark.parametrize(("offset", "late_us"), [(0, 0.0), (3, 0.0), (4, 0.03), (14, 0.3), (16, np.nan), (40, np.nan)])
@pytest.mark.parametrize("lanes", [0b0000, 0b1100], ids=["whole words", "two bytes of the first"])
def test_what_is_behind_so_many_bytes_comes_later(offset: int, late_us: float, lanes: int) -> None:
    """In the second of two bursts, of which one attempt moved nothing and the last data phase waited."""
    time_us = np.array([1.0, 9.0, 9.03, 9.06, 9.3, 20.0])
    phases = Phases.of(
        pd.DataFrame({"time_us": time_us, "data": np.arange(6), "byte_enables": [0, lanes, 0, 0, 0, 0]}),
        SimpleNamespace(transaction=np.arange(4), data_phases=np.array([1, 0, 4, 1])),  # type: ignore[arg-type]
    )
    bus = SimpleNamespace(transaction=np.arange(4), data_phases=np.array([1, 0, 4, 1]), wide=np.zeros(4, dtype=bool))
    dma: Any = SimpleNamespace(bus=bus, burst=np.array([0, 1, 1, 1]))
    missing = 2 if lanes else 0
    given = behind_us(dma, phases, np.array([1, 1]), np.array([max(offset - missing, 0)] * 2))
    assert given == pytest.approx([late_us] * 2, nan_ok=True)


@pytest.mark.parametrize(("family", "seed"), [("cacheline", 1116), ("ring", 1112)])
def test_a_length_is_not_exact_because_of_memory_that_is_not_sure(family: str, seed: int, tmp_path: Path) -> None:
    """One and three lengths were said to be exact, and were one or two bytes off: the wire with pieces of another."""
    bench = Bench(family, seed, frames=24)
    lengths = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16").fields["length"]
    assert lengths["wrong"] == 0
    assert lengths["right"] >= 20


def test_what_pads_a_short_frame_only_memory_tells_from_data(tmp_path: Path) -> None:
    """Three frames of fewer bytes were said to have 46, exactly: the wire has no fewer."""
    bench = Bench("tiny", 1113, frames=24)
    write(bench, tmp_path)
    lengths = score(bench, analysis.frames(pcitrace.open(tmp_path), profile="generic").table, "vcd").fields["length"]
    assert lengths["wrong"] == 0
    assert lengths["right"] >= 20


def test_a_frame_is_as_surely_there_as_the_surest_of_its_pieces() -> None:
    reading = Reading(
        cost=0.0,
        track=np.array([SEND, SEND, RECEIVE, SEND, SEND]),
        target=np.array([4, 4, 4, 5, -1]),
        begins=np.ones(5, dtype=bool),
        ends=np.ones(5, dtype=bool),
        margins=np.array([[0.0, 0.0, 0.0, sure] for sure in (3.0, 7.0, 20.0, 30.0, 40.0)]),
        rivals=np.zeros((5, 4)),
    )
    of_piece = np.array([0, 0, 0, 1, 2])
    # The second frame is another one than its piece, the last has no burst.
    frames_ = Found(np.array([0, 1, 2, -1]), np.array([4, 6, -1, 4]), np.zeros(4, dtype=bool))
    found = margins._places(frames_, of_piece, reading, SEND)
    np.testing.assert_array_equal(found, [7.0, -1.0, -1.0, np.nan])


def test_a_search_that_lost_its_way_keeps_more_states_and_then_says_what_was_known() -> None:
    asked: list[int] = []
    nothing = np.zeros(3, np.int64)
    none = nothing > 0
    before = Reading(nothing - 1, none, none, nothing - 1, np.zeros((3, 4), np.float32), 40.0)

    def costing(cost: float) -> Reading:
        return replace(before, cost=cost)

    def dear(limits: Limits) -> Reading:
        assert limits.nats == CLOSER
        asked.append(limits.states)
        return costing(before.cost + 2 * NOTHING)

    few = Limits(STATES, CLOSER)
    assert _read_on(dear, before, few) is before
    assert asked == [STATES, 4 * STATES, 16 * STATES]
    near = costing(before.cost + NOTHING)
    assert _read_on(lambda _: near, before, few) is near
    # Where more states find it, that is the reading.
    assert _read_on(lambda limits: near if limits.states > STATES else dear(limits), before, few) is near


def test_a_reading_that_is_known_is_that_of_its_layouts_and_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many starts come to one reading, from which is learned once: the same again only if all was the same."""
    problems: list[Problem] = []
    monkeypatch.setattr(again, "each", lambda work, things: [work(one) for one in things])  # in their order
    monkeypatch.setattr(again, "weigh", lambda problem, like=None: (
        problems.append(problem), weigh.weigh(problem, like))[1])  # fmt: skip
    analysed(Bench("reread", 2, frames=12), tmp_path)
    problem = problems[0]

    def started() -> tuple[Reading, Reader]:
        return weigh.started(Pieces.of(problem.dma.bus), problem)

    first, reader = started()
    other = only(SEND, replace(reader.layout(SEND, first), added=3))
    ways = How(firm=False, given=False, margins=False), How(firm=False, given=True, margins=False)
    asked = [(fixed, how) for fixed in ((None, None), other) for how in ways]
    costs_ = []
    for fixed, how in asked:
        found = reader.after(first, fixed, how)
        assert reader.after(first, fixed, how) is found
        anew = started()[1].after(first, fixed, how)
        assert found.cost == anew.cost
        assert found.labels() == anew.labels()
        costs_.append(found.cost)
    assert len(set(costs_)) == len(asked)


@pytest.mark.parametrize("many", [False, True])
def test_what_is_doubted_where_one_looked_is_doubted_everywhere(many: bool) -> None:
    """All beginnings behind the four that were looked at, as the most doubted of these; no end, for none is doubted.

    Only where many are, if that is asked for: of these four one is not enough, but three are.
    """
    none = np.array([], dtype=int)
    sends, receives = Found(np.arange(10), np.arange(10), np.zeros(10, bool)), Found(none, none, np.array([], bool))
    nats, seen = np.full((10, 2), np.inf), np.zeros((10, 2), dtype=bool)
    doubts = (5.0, 3.0, np.inf, 4.0) if many else (np.inf, 3.0, np.inf, np.inf)
    nats[:4, 0], seen[:4] = doubts, True
    host = SimpleNamespace(found=(sends, receives))
    most = nats.copy()
    contest._as_in_the_head(most, host, seen, contest.MOST)  # type: ignore[arg-type]
    assert np.isfinite(most[4:, 0]).all() == many
    contest._as_in_the_head(nats, host, seen, contest.MOST if many else 1 - contest.CONFIRMED)  # type: ignore[arg-type]
    assert nats[:, 0].tolist() == [*doubts, *[3.0] * 6]
    assert np.isinf(nats[:, 1]).all()


def test_a_frame_that_is_missing_between_others_was_not_cut_by_the_capture(tmp_path: Path) -> None:
    """Of equal frames one send had two pieces too many and was given the next wire, and so on to the end: 10 wrong."""
    bench = Bench("other-master", 1215, frames=24)
    scored = score(bench, analysed(bench, tmp_path, "card.toml").table, "control16")
    edges = scored.total(*EDGES)
    assert edges["wrong"] == 0
    assert edges["right"] >= 85
    assert (scored.extra, scored.crossed, scored.lost_rx) == (0, 0, 0)


def test_sends_and_receives_that_overlap_with_the_wire_are_tried_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a card that does both (`cardbench`, cut-through 1219) neither alone was likely: 70 values were wrong."""
    whole, overlapping = (unknown_layout(SEND, kind, 4) for kind in (True, False))
    guesses = [beginnings._Guess(whole, None), beginnings._Guess(whole, 300), beginnings._Guess(overlapping, 310)]
    tried = []

    def tried_from(_reader: Reader, _longest: Any, *pair: beginnings._Guess) -> SimpleNamespace:
        tried.append(pair)
        return SimpleNamespace(cost=float(len(tried)))

    monkeypatch.setattr(beginnings, "_guesses", lambda *_: guesses)
    monkeypatch.setattr(beginnings, "_from_guess", tried_from)
    monkeypatch.setattr(beginnings, "_valley_us", lambda _: np.inf)
    beginnings.from_peaks(SimpleNamespace(pieces=None, settle=lambda one: one))  # type: ignore[arg-type]
    assert (guesses[2], guesses[2]) in tried
    assert (guesses[1], guesses[1]) not in tried
    assert len(tried) == len(set(tried))


def with_addresses(addresses: list[bytes], before: int = 0) -> Heads:
    """First bytes of frames: addresses, behind so many others, and what differs from frame to frame."""
    rng = np.random.default_rng(7)
    data = rng.integers(0, 256, (len(addresses), HEAD), np.uint8)
    for row, one in zip(data, addresses, strict=True):
        row[before : before + len(one)] = np.frombuffer(one, np.uint8)
    return Heads(data, np.full(len(addresses), HEAD))


def test_first_bytes_with_other_addresses_are_of_another_frame() -> None:
    mine, theirs = bytes(range(12)), bytes(range(12, 24))
    some = with_addresses([mine, theirs, mine])
    assert unlike(some, with_addresses([mine, mine, mine])).tolist() == [False, True, False]
    # Where a buffer begins inside a word, or what is seen is too short, nothing speaks against it.
    assert not unlike(with_addresses([mine] * 3, before=7), with_addresses([mine] * 3, before=1)).any()
    assert not unlike(Heads(some.data, np.full(3, 12)), with_addresses([mine] * 3)).any()


def test_what_is_behind_a_header_is_no_frame_of_another_length(tmp_path: Path) -> None:
    """The first 72 bytes of each receive were left over, and what was behind them was as long as the frame before."""
    bench = Bench("scatter-gather", 10, frames=24)
    write(bench, tmp_path)
    scored = score(bench, analysis.frames(pcitrace.open(tmp_path), profile="generic").table, "vcd")
    assert scored.total(*EDGES, "length", "csr_first", "csr_last")["wrong"] == 0
    assert (scored.extra, scored.crossed, scored.lost_rx) == (0, 0, 0)
