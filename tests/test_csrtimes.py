"""Which accesses start which send: what rules and the cheapest reading agree on, and what is null."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cardbench import Bench, score, write

import pcitrace
from pcitrace import analysis, profiles
from pcitrace.frames import csrtimes, doorbells
from pcitrace.frames.accesskinds import as_often, commands, in_array, in_turn, of_lanes
from pcitrace.frames.believed import never_rings
from pcitrace.frames.csrtimes import _learned, _of_a_rare_kind, _of_a_rare_value, _of_another, _Said
from pcitrace.frames.doorbellcosts import LONGEST, MOST, Known, Reader, Usual, _as_a_tail, heads, waiting
from pcitrace.frames.doorbells import Doorbells, find
from pcitrace.frames.doorbellstarts import ALIKE, RULED_OUT, _doubts, _leading
from pcitrace.frames.reads import reads_back, slow
from pcitrace.frames.sends import Sends, with_unread
from pcitrace.lattice import BINS, bins
from pcitrace.releases import Items, Released, Table, Targets, read
from pcitrace.traffic.csr import LookedAt


@pytest.mark.parametrize(("family", "seed"), [("latency-timer", 3), ("reread", 3)])
def test_no_csr_time_is_wrong_that_the_rules_had_wrong(tmp_path: Path, family: str, seed: int) -> None:
    """Of these runs 62 and 4 values were another send's doorbell, because a send had been read in parts."""
    bench = Bench(family, seed)
    write(bench, tmp_path, vcd=True)
    frames = pcitrace.open(tmp_path).frames
    found = score(bench, frames.table, "vcd").total("csr_first", "csr_last")
    assert not found["wrong"]
    assert found["right"] > 0
    given = frames.table["csr_last_us"].notna()
    assert frames.table["margin_csr"][given].notna().all()
    margins = frames.hosts["A"].csr_accesses["margin"]
    assert (margins.dropna().astype(float) >= 0).all()
    assert margins.notna().any()


def items(times: list[float]) -> Items:
    count = len(times)
    zeros = np.zeros(count, np.float32)
    return Items(
        np.array(times), zeros, zeros, np.zeros((count, 4), np.float32), zeros, np.zeros(count, np.uint32),
        np.zeros(count, np.uint64),
    )  # fmt: skip


def targets(times: list[float]) -> Targets:
    count = len(times)
    us, zeros = np.array(times), np.zeros(count, np.float32)
    return Targets(us, us, np.full(count, -np.inf), zeros, np.full(count, 9, np.float32), np.zeros(count, np.uint64))


def test_margin_is_what_the_next_best_reading_costs_more() -> None:
    """Two items may release one target: the later one costs 1, the earlier one 3, none of them 9."""
    table = Table(np.zeros(BINS, np.float32), np.zeros((1, 1), np.float32), before=20.0)
    here = items([1.0, 2.0])
    here.place[0], here.place[1] = 3.0, 1.0
    found = read(here, targets([3.0]), table)
    assert found.last.tolist() == [1]
    assert found.cost == pytest.approx(1.0)
    assert found.margins.tolist() == [[2.0, 2.0]]
    assert found.item.tolist() == [2.0, 2.0]


def test_that_both_agree_on_other_sends_does_not_make_what_the_rules_do_not_know_surer() -> None:
    rule, found = np.array([1, 2, 3, 4, 5, -1, -1]), np.array([1, 2, 3, 4, 5, 6, 7])
    margin = np.array([9.0, 9.0, 9.0, 9.0, 9.0, 12.0, 11.9])
    once = np.ones(len(rule), dtype=bool)
    kept, taken = _Said(rule, found, ~once, once, False).given(margin)
    assert kept.tolist() == [True] * 5 + [False] * 2
    assert taken.tolist() == [False] * 5 + [True, False]
    # That they disagree on one says nothing of the others.
    kept, taken = _Said(np.where(rule == 5, 9, rule), found, rule == 5, once, False).given(margin)
    assert kept.tolist() == [True] * 4 + [False] * 3
    assert taken.tolist() == [False] * 5 + [True, False]


def test_a_send_that_answered_at_once_is_surer_where_the_rules_know_few() -> None:
    rule, found = np.array([1, -1, -1, -1]), np.array([1, 2, 3, 4])
    margin, once = np.array([9.0, 8.0, 7.9, 8.1]), np.array([True, True, True, False])
    _, taken = _Said(rule, found, rule == 9, once, False).given(margin)
    assert taken.tolist() == [False, True, False, False]
    # Another answer of the rules is contradicted from as much on only where registers are seen.
    other = np.array([1, 9, -1, -1])
    assert not _Said(other, found, other == 9, once, False).given(margin)[1].any()
    assert _Said(other, found, other == 9, once, True).given(margin)[1].tolist() == [False, True, False, False]


def test_an_answer_needs_less_where_values_count_the_sends() -> None:
    rule, found, once = np.full(3, -1), np.array([1, 1, 2]), np.zeros(3, dtype=bool)
    for counted in (False, True):
        _, taken = _Said(rule, found, once, once, True, counted).given(np.full(3, 9.0))
        assert taken.tolist() == [counted] * 3


def test_what_is_written_more_often_than_the_others_is_no_entry_of_an_array() -> None:
    """Entries are written in turn. What is written often is none, and says nothing of those that are not."""
    entries = np.array([0x1000, 0x1010, 0x1020, 0x1000, 0x1010], np.int64)
    bell, often = np.repeat(0x1030, 4), np.repeat(0x1040, 9)
    assert in_array(entries, 4.0).all()
    both = np.concatenate([entries, bell, often])
    assert in_array(both, 4.0).tolist() == [True] * 5 + [False] * 13
    assert not in_array(both, 1.0)[:2].any(), "written twice"


def test_registers_that_are_written_in_turn_are_one() -> None:
    """Four of an RTL8139 hold an address each, the four behind them release what lies there."""
    place = np.arange(24) % 4
    address = np.column_stack([0x20 + 4 * place, 0x10 + 4 * place]).ravel()
    time_us = np.column_stack([100.0 * np.arange(24), 100.0 * np.arange(24) + 0.3]).ravel()
    assert in_turn(address, time_us, as_often(24)).tolist() == [0x20, 0x10] * 24
    assert (in_turn(address, time_us, 20.0) == address).all(), "more often than doorbells"
    # Two at once are words of one doorbell; and what is not written in turn is no bank.
    both = np.column_stack([0x20 + 0 * place, 0x24 + 0 * place]).ravel()
    assert (in_turn(both, time_us, as_often(48)) == both).all()
    mixed = np.random.default_rng(1).permutation(address)
    assert (in_turn(mixed, time_us, as_often(24)) == mixed).all()
    # What acknowledges each receive comes in turn with what releases each answer, but both are twice as many.
    answered_us = np.column_stack([100.0 * np.arange(24), 100.0 * np.arange(24) + 5.0]).ravel()
    assert (in_turn(both, answered_us, as_often(24)) == both).all()


def test_bytes_of_a_double_word_are_registers_of_their_own() -> None:
    """Of a PCnet whose registers are words in memory 234 times were wrong: two of them share a double word."""
    memory = of_lanes(np.full(5, 0x1010), np.array([0b0000, 0b1100, 0b0011, 0b0111, -1]))
    assert memory.tolist() == [0x1010, 0x1010, 0x1012, 0x1013, 0x1010]
    assert of_lanes(np.array([0x12, -1]), np.array([0b0011, 0b0011])).tolist() == [0x12, -1]


def test_a_command_is_known_by_its_value() -> None:
    register = np.tile([7, 7, 9], 24)
    value = np.tile([0x3002, 0x3003, 5], 24)
    kinds = commands(register, value, as_often(24))
    assert len(set(kinds[0::3])) == len(set(kinds[1::3])) == len(set(kinds[2::3])) == 1
    assert len(set(kinds)) == 3
    assert (commands(register, value, 48.0) == register).all(), "no more often than a doorbell"
    values = np.arange(72)
    assert (commands(register, values, as_often(24)) == register).all(), "each value once"


def frames_from_ad(bench: Bench, folder: Path) -> Any:
    """The score of all frames of a card that nobody described."""
    write(bench, folder)
    found = analysis.frames(pcitrace.open(folder), profile="generic")
    return score(bench, found.table, "vcd")


@pytest.mark.parametrize(
    ("family", "seed", "right"),
    [
        ("overload", 4, 48),  # one ring for several frames, all of which wait for the wire: nothing else tells
        ("overload", 2, 23),  # surer than 11 nats, not 12
        ("groups", 4, 12),  # sends come more regularly after the one before than after their doorbells
    ],
)
def test_values_that_go_on_by_the_sends_tell_what_rings(family: str, seed: int, right: int, tmp_path: Path) -> None:
    found = frames_from_ad(Bench(family, seed, 24), tmp_path)
    assert found.clean, found.cases
    assert found.total("csr_first", "csr_last")["right"] >= right


@pytest.mark.parametrize(
    ("values", "many", "told"),
    [
        ((4, 8, 12), (4, 4, 4), True),
        ((16, 32, 80, 0, 48), (1, 1, 3, 5, 3), True),  # it begins again
        ((4, 8, 11), (4, 4, 4), False),
        ((4, 8, 12), (4, 4, 2), False),
        ((7, 7, 7), (1, 1, 1), False),
        ((4, 8), (4, 4), False),  # one step agrees with itself
        ((0x20000, 0x20800, 0x21000), (1, 1, 1), False),  # where buffers are
    ],
)
def test_values_that_count_the_sends(values: tuple[int, ...], many: tuple[int, ...], told: bool) -> None:
    reader: Any = SimpleNamespace(named=True, kind=np.zeros(len(values), int), value=np.array(values))
    found: Any = SimpleNamespace(last=np.repeat(np.arange(len(values)), many))
    assert Reader.in_step(reader, found) is told
    reader.kind[-1] = 1
    assert not Reader.in_step(reader, found), "of several registers"


@pytest.mark.parametrize(
    ("family", "seed", "right"),
    [
        ("groups", 2, 46),  # four doorbells, each for six: registers that are written once seemed to ring, too
        ("padding", 7, 48),  # three registers that are written once seemed to ring for eight each
        ("csr-descriptors", 2, 12),  # where buffers are goes on by as much a send, and is no place in a ring
    ],
)
def test_what_sets_a_card_up_does_not_ring(family: str, seed: int, right: int, tmp_path: Path) -> None:
    found = frames_from_ad(Bench(family, seed, 24), tmp_path)
    assert found.clean, found.cases
    assert found.total("csr_first", "csr_last")["right"] >= right


def test_nothing_releases_what_came_before_it() -> None:
    table = Table(np.zeros(BINS, np.float32), np.zeros((1, 1), np.float32), before=20.0)
    found = read(items([5.0]), targets([3.0]), table)
    assert found.last.tolist() == [-1]
    assert found.first.tolist() == [-1]


def test_what_waited_for_the_target_before_is_told_by_that_and_not_by_the_item() -> None:
    """The second target waited for the first: its item may be any that came before, at the same cost."""
    lag = np.zeros(BINS, np.float32)
    lag[bins(np.array([8.0]))] = 6.0
    both = targets([3.0, 10.0])
    both.free_us[1], both.waited[1] = 9.0, 0.5
    found = read(items([1.0, 2.0]), both, Table(lag, np.zeros((1, 1), np.float32)))
    assert found.last.tolist() == [0, 1]
    assert found.cost == pytest.approx(0.5)
    both.free_us[1], both.waited[:] = 1.5, 40.0
    assert read(items([1.0, 2.0]), both, Table(lag, np.zeros((1, 1), np.float32))).cost == pytest.approx(6.0)


def test_what_was_queued_before_the_first_item_follows_what_went_before() -> None:
    """That sends were queued costs what waiting costs each, so it is no cheap way out."""
    queued = targets([float(10 + n) for n in range(9)])
    queued.waited[:] = 2.0
    queued.skip[:] = 30.0
    found = read(items([5.0]), queued, Table(np.zeros(BINS, np.float32), np.full((1, 1), 100.0, np.float32)))
    assert found.last.tolist() == [-1] * 9
    assert found.cost == pytest.approx(9 * (1.0 + 2.0))


def test_the_search_does_not_drop_a_reading_whose_gain_comes_later() -> None:
    """Queued sends that follow each other well gain at the beginning; doorbells of each gain as much, later."""
    times = [float(20 * n) for n in range(1, 31)]
    each = targets([one + 1.0 for one in times])
    each.free_us[1:] = each.time_us[:-1]
    each.waited[:] = -2.9
    lag = np.full(BINS, 50.0, np.float32)
    lag[bins(np.array([1.0]))] = -4.0
    found = read(items(times), each, Table(lag, np.zeros((1, 1), np.float32)))
    assert found.last.tolist() == list(range(30))


@pytest.mark.parametrize(("family", "seed"), [("wide66", 502), ("mixed", 501), ("fcs", 801)])
def test_what_an_interrupt_handler_did_before_it_answered_is_no_part_of_the_doorbell(
    tmp_path: Path, family: str, seed: int
) -> None:
    """B answers from its handler, which masks interrupts just before: once its sends seemed to begin there."""
    bench = Bench(family, seed, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    frames = pcitrace.open(tmp_path).frames
    found = {name: score(bench, frames.table, "control16").total(name) for name in ("csr_first", "csr_last")}
    assert not found["csr_first"]["wrong"] + found["csr_last"]["wrong"]
    # On wide66 the reading tells of some when their doorbells begin; on the others all of B's are null.
    fewer = found["csr_last"]["right"] - found["csr_first"]["right"]
    assert found["csr_first"]["right"] > 0
    assert 0 <= fewer < 12 if family == "wide66" else fewer > 0


def test_what_the_host_that_asks_has_more_of_may_ring_or_not(tmp_path: Path) -> None:
    """A writes twice for each request, B once for each answer: no handler did that, so either may be A's doorbell.

    B does something else 1.5 us before, as regularly: a reading in which that rings is a nat cheaper.
    """
    bench = Bench("fcs", 981, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    frames = pcitrace.open(tmp_path).frames
    found = score(bench, frames.table, "control16").total("csr_first", "csr_last")
    assert found["wrong"] == 0
    assert frames.table.loc[frames.table["sender"] == "A", "csr_last_us"].isna().all()


@pytest.mark.parametrize(
    ("family", "seed", "least"), [("groups", 1120, 0), ("cut-through", 1121, 0), ("other-master", 1121, 19)]
)
def test_rules_that_do_not_know_all_sends_are_held_against_every_way_to_ring(
    family: str, seed: int, least: int, tmp_path: Path
) -> None:
    """Two cards ring once for two sends; rules and reading gave each the handler's accesses before: 10 and 18 wrong."""
    bench = Bench(family, seed, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    found = score(bench, pcitrace.open(tmp_path).frames.table, "control16").total("csr_first", "csr_last")
    assert found["wrong"] == 0
    assert found["right"] >= least


def test_of_accesses_that_come_one_after_the_other_time_tells_none(tmp_path: Path) -> None:
    """The driver writes three words a send; the first was taken for the ring of 11 sends."""
    bench = Bench("csr-descriptors", 1121, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    found = score(bench, pcitrace.open(tmp_path).frames.table, "control16").total("csr_first", "csr_last")
    assert found["wrong"] == 0


@pytest.mark.parametrize(("family", "seed"), [("csr-descriptors", 901), ("groups", 902)])
def test_few_doorbells_before_many_sends_that_wait_are_null(tmp_path: Path, family: str, seed: int) -> None:
    """One doorbell of three, or of four, was answered at once. 10 and 4 times were those of another send."""
    bench = Bench(family, seed, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    table = pcitrace.open(tmp_path).frames.table
    assert not score(bench, table, "control16").total("csr_first", "csr_last")["wrong"]
    assert table["dma_start_us"].notna().sum() >= 20


def test_doorbells_of_sends_that_wait_for_each_other_are_told(tmp_path: Path) -> None:
    """When a queued send begins says nothing of its doorbell, but of the send before; once 57 of these 60 were null."""
    bench = Bench("groups", 702, 30)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    found = score(bench, pcitrace.open(tmp_path).frames.table, "control16").total("csr_first", "csr_last")
    assert (found["right"], found["null"], found["wrong"]) == (60, 0, 0)


def test_what_follows_a_ring_here_and_there_makes_it_unsure(tmp_path: Path) -> None:
    """Rules and reading agree on one doorbell behind which an access comes at once, as behind few: it may ring."""
    bench = Bench("equal-lengths", 1195, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    found = score(bench, pcitrace.open(tmp_path).frames.table, "control16").total("csr_first", "csr_last")
    assert (found["right"], found["null"], found["wrong"]) == (20, 28, 0)


def test_a_handler_that_does_as_many_accesses_as_a_doorbell_has_is_none(tmp_path: Path) -> None:
    """Some doorbells of one host were its handler's, just before; 10 of these values were wrong."""
    bench = Bench("scatter-gather", 1198, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    found = score(bench, analysis.frames(pcitrace.open(tmp_path), profile="generic").table, "control16")
    assert found.total("csr_first", "csr_last")["wrong"] == 0
    assert found.total("csr_last")["right"] > 0


def test_something_rang_for_a_send_that_only_the_wire_shows() -> None:
    """Without it its doorbell was the next one's, and so on: 8 values of a generated card (tiny 1211), with AD.

    It began behind the send before, and before the next one and its own wire. Nothing is added before the first send.
    """
    start_us, end_us = np.array([10.0, 40.0]), np.array([12.0, 43.0])
    none, found = np.full(2, -1), np.ones(2, dtype=bool)
    sends = Sends(start_us, start_us, end_us, none, np.full(2, np.nan), found)
    columns = {
        "sender": np.array(["A", "A", "A", "A", "B"]),
        "send_row": np.array([-1, 0, -1, 1, 0]),
        "wire_start_us": np.array([5.0, 15.0, 45.0, 48.0, 30.0]),
    }
    both, place = with_unread(sends, "A", columns)
    assert place.tolist() == [0, 2]
    assert both.found.tolist() == [True, False, True]
    assert (both.ready_us[1], both.start_us[1], both.end_us[1]) == (12.0, 40.0, 12.0)
    assert both.start_us[[0, 2]].tolist() == [10.0, 40.0]


def test_of_two_hosts_each_makes_surer_what_the_other_one_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More values are given, and all are right; not of doorbells that have more accesses than most."""
    bench = Bench("latency-timer", 1212, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    found = score(bench, pcitrace.open(tmp_path).frames.table, "control16").total("csr_first", "csr_last")
    monkeypatch.setattr(csrtimes, "_ordinary", lambda read, *_: np.zeros(len(read.last), dtype=bool))
    alone = score(bench, pcitrace.open(tmp_path).frames.table, "control16").total("csr_first", "csr_last")
    assert found["wrong"] == alone["wrong"] == 0
    assert found["right"] > alone["right"]


def test_who_sends_first_asks_though_its_first_doorbell_is_not_known() -> None:
    """A's second doorbell has an access more than B's. A asks, so no handler did that, and either may ring."""
    rung_us = np.array([5.0, 30.0, 30.3, 60.0, 60.3])
    columns = {
        "sender": np.array(["A", "B", "A", "B"]),
        "send_row": np.array([0, 0, 1, 1]),
        "csr_first_us": np.array([np.nan, 20.0, 30.0, 40.0]),
        "csr_last_us": np.array([np.nan, 20.0, 30.3, 40.0]),
    }
    asked, answers = {}, {}
    for name, start_us, accesses_us in (("A", [10.0, 31.0], rung_us), ("B", [21.0, 41.0], np.array([20.0, 40.0]))):
        sends = SimpleNamespace(start_us=np.array(start_us))
        traffic = SimpleNamespace(csr=accesses(accesses_us))
        end = SimpleNamespace(host=SimpleNamespace(traffic=traffic), wire=None, sends=np.arange(2))
        asked[name] = SimpleNamespace(end=end, sends=sends)
        answers[name] = SimpleNamespace(by_itself=np.ones(2, dtype=bool))
    csrtimes._as_the_other(asked, answers, columns)  # type: ignore[arg-type]
    assert np.isnan(columns["csr_last_us"]).tolist() == [True, False, True, False]
    assert np.isnan(columns["csr_first_us"]).tolist() == [True, False, True, False]


def test_the_other_host_makes_only_doorbells_surer_that_are_like_those_that_both_agree_on() -> None:
    """Of five the fourth has an access more than most, and the fifth is eight times as long before its send."""
    first, last = np.array([0, 2, 4, 6, 9]), np.array([1, 3, 5, 8, 10])
    rung_us = 10.0 * np.arange(11)
    start_us = rung_us[last] + np.array([1.0, 1.5, 0.6, 1.0, 12.0])
    none, there, agreed = np.full(5, -1), np.ones(5, dtype=bool), np.array([True, True, False, False, False])
    sends = Sends(start_us, start_us, start_us + 1.0, none, np.full(5, np.nan), there)
    read = Doorbells(first, last, np.zeros((5, 2)), none, np.zeros(11), sends, Usual.anything())
    assert csrtimes._ordinary(read, accesses(rung_us), agreed).tolist() == [True, True, True, False, False]
    # And one of which a descriptor was fetched long before its data.
    lead_us = np.array([0.5, np.nan, 3.9, 0.5, 0.5])
    fetched = dataclasses.replace(read, sends=dataclasses.replace(sends, lead_us=lead_us))
    assert csrtimes._ordinary(fetched, accesses(rung_us), agreed).tolist() == [True, True, False, False, False]


def test_that_rules_and_reading_agree_is_not_enough_where_the_rules_know_few_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six sends had a doorbell each, where one had rung for several: the reading agreed at 1 to 3 nats."""
    bench = Bench("groups", 961, 24)
    write(bench, tmp_path)
    assert not score(bench, pcitrace.open(tmp_path).frames.table, "vcd").total("csr_first", "csr_last")["wrong"]
    monkeypatch.setattr(csrtimes, "AGREED", 0.0)
    believed = score(bench, pcitrace.open(tmp_path).frames.table, "vcd").total("csr_first", "csr_last")
    assert believed["wrong"] > 0
    assert believed["right"] > 0


def test_accesses_of_a_handler_are_no_doorbells_where_sends_are_more_regular_without_them(tmp_path: Path) -> None:
    """The queue is full: each send starts when a frame has left, and the handler of the send before runs between.

    Its accesses were taken for doorbells, 40 times, by the rules and by the reading.
    """
    bench = Bench("reread", 1104, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    table = pcitrace.open(tmp_path).frames.table
    assert not score(bench, table, "control16").total("csr_first", "csr_last")["wrong"]
    assert table["dma_start_us"].notna().sum() >= 22


def test_what_sends_come_more_regularly_after_is_what_rings(tmp_path: Path) -> None:
    """The card was polled while it fetched descriptors: four sends seemed to be rung for by the poll."""
    bench = Bench("other-master", 1232, frames=24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    found = analysis.frames(pcitrace.open(tmp_path), profile=str(tmp_path / "card.toml"))
    csr = score(bench, found.table, "control16").total("csr_first", "csr_last")
    assert csr["wrong"] == 0
    assert csr["right"] >= 18


def test_one_send_on_which_both_agree_shows_no_driver(tmp_path: Path) -> None:
    rule, found = np.array([1, -1, -1, -1, -1]), np.array([1, -1, -1, -1, -1])
    once = np.ones(5, dtype=bool)
    kept, _ = _Said(rule, found, ~once, once, False).given(np.full(5, 7.0))
    assert not kept.any()
    bench = Bench("overload", 1101, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    table = pcitrace.open(tmp_path).frames.table
    assert not score(bench, table, "control16").total("csr_first", "csr_last")["wrong"]


def test_a_doorbell_hangs_on_where_a_send_is_and_not_on_where_it_begins(tmp_path: Path) -> None:
    """Every edge of the 24 sends could be another piece's as well; that their data lie between is sure."""
    bench = Bench("reread", 1110, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    table = pcitrace.open(tmp_path).frames.table
    found = score(bench, table, "control16").total("csr_first", "csr_last")
    assert table["dma_start_us"].isna().all()
    assert found["wrong"] == 0
    assert found["right"] >= 40


def test_a_reading_that_has_no_ring_for_most_sends_is_not_believed(tmp_path: Path) -> None:
    """With data captured the rules knew all doorbells; the reading had others for the last three of twelve sends."""
    bench = Bench("wide66", 1229, 24)
    write(bench, tmp_path, vcd=True)
    found = score(bench, analysis.frames(pcitrace.open(tmp_path), profile="generic").table, "vcd")
    doorbells_ = found.total("csr_first", "csr_last")
    assert doorbells_["wrong"] == 0
    assert doorbells_["right"] >= 20


def test_what_came_inside_a_send_may_have_rung_for_it_if_it_looks_like_a_ring() -> None:
    """Of the three sends the second has an access inside that looks like a ring, the third one that does not."""
    csr = dataclasses.replace(accesses(np.array([1.0, 11.0, 14.0, 21.0, 24.0])), devsel_clks=np.array([1, 1, 1, 1, 2]))
    joined = SimpleNamespace(first_data_us=np.array([2.0, 12.0, 22.0]), last_data_us=np.array([8.0, 18.0, 28.0]))
    traffic = SimpleNamespace(joined=joined, csr=csr)
    end = SimpleNamespace(host=SimpleNamespace(traffic=traffic), sends=np.arange(3))
    read = SimpleNamespace(send=np.array([0, 1, -1, 2, -1]))
    asked, answer = SimpleNamespace(end=end, head=csr), SimpleNamespace(read=read, last=np.array([0, 1, -1]))
    assert csrtimes._rung_inside(asked, answer).tolist() == [False, True, False]  # type: ignore[arg-type]


def test_a_send_that_came_as_soon_as_those_that_waited_may_have_waited(tmp_path: Path) -> None:
    """Four doorbells rang for four sends each. That two of them rang just when the card was free told nothing."""
    bench = Bench("overload", 1112, 24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    table = pcitrace.open(tmp_path).frames.table
    assert score(bench, table, "control16").total("csr_first", "csr_last")["wrong"] == 0
    assert table["dma_start_us"].notna().sum() >= 20


def test_registers_do_not_tell_what_rang_for_sends_that_all_waited(tmp_path: Path) -> None:
    """The queue was filled at once; later a handler ran after each frame, and was taken for the next one's doorbell."""
    bench = Bench("cut-through", 1113, 24)
    write(bench, tmp_path)
    (tmp_path / "run.toml").write_text((tmp_path / "run.toml").read_text().replace("card.toml", "generic"))
    assert score(bench, pcitrace.open(tmp_path).frames.table, "vcd").total("csr_first", "csr_last")["wrong"] == 0


@pytest.mark.parametrize(("family", "seed"), [("csr-descriptors", 1114), ("tiny", 1115)])
def test_when_a_doorbell_begins_is_null_where_the_answers_differ(tmp_path: Path, family: str, seed: int) -> None:
    """The driver filled the receive ring just before. The rules took that for the doorbell, or for its first access.

    The reading had another doorbell that began there, or was hardly surer that it did not: 11 and 7 were wrong.
    """
    bench = Bench(family, seed, 24)
    write(bench, tmp_path)
    (tmp_path / "run.toml").write_text((tmp_path / "run.toml").read_text().replace("card.toml", "generic"))
    found = score(bench, pcitrace.open(tmp_path).frames.table, "vcd").total("csr_first", "csr_last")
    assert found["wrong"] == 0
    assert found["right"] >= 12


@pytest.mark.parametrize(("seed", "kind"), [(1143, "vcd"), (1145, "vcd"), (1145, "control16")])
def test_a_driver_goes_on_with_a_doorbell_when_the_bus_lets_it(seed: int, kind: str, tmp_path: Path) -> None:
    """It wrote a descriptor's address and its control word up to 1.6 us apart: of each pair the first was the ring."""
    bench = Bench("csr-descriptors", seed, frames=24)
    write(bench, tmp_path, vcd=kind == "vcd")
    if kind != "vcd":
        (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    table = analysis.frames(pcitrace.open(tmp_path), profile="generic").table
    assert not score(bench, table, kind).total("csr_first", "csr_last")["wrong"]


def test_a_send_begins_with_the_fetch_of_its_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver wrote behind the fetch came 0.51 us before each send, more regularly than the doorbell.

    Rules took it for the ring. The reading takes it for a part of the doorbell before; it is sure of nothing, and where
    they differ nothing is given.
    """
    bench = Bench("tiny", 1142, frames=24)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    read = []

    def find(*args: Any, **others: Any) -> Doorbells:
        read.append(csrtimes_find(*args, **others))
        return read[-1]

    csrtimes_find = doorbells.find
    monkeypatch.setattr(csrtimes, "find", find)
    frames = pcitrace.open(tmp_path).frames
    assert not score(bench, frames.table, "control16").total("csr_first", "csr_last")["wrong"]
    sends = next(one for one in read if len(one.sends))
    assert not np.isnan(sends.sends.lead_us).any()
    rung_us = frames.hosts["A"].csr.first_attempt_us[sends.last]
    true_us = [row["doorbell_last_attempt_ns"] / 1e3 for row in bench.truth()]
    wrong = np.abs(rung_us - true_us) > 0.05
    assert (sends.margins[wrong] < csrtimes.ANSWERED).all()


def test_what_goes_on_with_a_doorbell_need_not_be_rare() -> None:
    """Of accesses that all look alike two are each doorbell: the second surely goes on, however many others there are.

    What it cost that it is neither another access nor the first of a doorbell was counted, too: a driver that writes
    two words was taken for one that writes the second only, and on control lines most of its accesses were null.
    """
    count = 12
    ring_us = 50.0 * np.arange(1, count + 1)
    others_us = np.setdiff1d(np.arange(5.0, 50.0 * (count + 1), 7.3), ring_us)
    others_us = others_us[(np.abs(others_us[:, None] - ring_us[None]) > 2.0).all(axis=1)]
    csr = accesses(np.sort(np.concatenate([ring_us - 0.3, ring_us, others_us])))
    start_us = ring_us + 1.5
    none, there = np.full(count, -1), np.ones(count, dtype=bool)
    sends = Sends(start_us, start_us, start_us + 5.0, none, np.full(count, np.nan), there)
    found = find(Known(csr, profiles.load("generic"), np.zeros(0), Usual.anything()), [sends], none, none)
    assert np.allclose(csr.first_attempt_us[found.last], ring_us)
    assert np.allclose(csr.first_attempt_us[found.first], ring_us - 0.3)


def accesses(times_us: np.ndarray) -> LookedAt:
    """Accesses of which nothing was captured but when they were."""
    count = len(times_us)
    none = np.full(count, -1)
    known: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(LookedAt)), none)
    known |= dict.fromkeys(("first_attempt_us", "last_attempt_us", "ready_us"), times_us)
    known["data_us"] = times_us + 0.09
    known |= {"attempts": none + 2, "data_phases": none + 2, "registers": (), "roles": (), "doorbell": none > 0}
    return LookedAt(**known)


def test_the_first_access_of_a_doorbell_is_another_send_s_where_there_is_one_for_each() -> None:
    """The driver writes two words for each of two sends, then rings; of the next two it only rings once for both."""
    first, last = np.array([0, 0, 5, 5, 7]), np.array([4, 4, 6, 6, 9])
    assert _of_another(first, last).tolist() == [False, True, False, False, False]
    # Where each has a doorbell of its own all of it is its own.
    assert not _of_another(np.array([0, 3, -1, 6]), np.array([2, 5, -1, 8])).any()


def test_what_is_of_no_frame_has_no_doorbell(tmp_path: Path) -> None:
    """What the card read for 96 us behind the second frame was a send; that frame had the doorbell of the first."""
    bench = Bench("fcs", 1236, 30)
    write(bench, tmp_path, vcd=True)
    found = score(bench, pcitrace.open(tmp_path).frames.table, "vcd").total("csr_first", "csr_last")
    assert found["wrong"] == 0
    assert found["right"] > 50


def test_a_descriptor_of_another_send_is_no_beginning(tmp_path: Path) -> None:
    """One ring for several sends, each with a descriptor written before: 14 of 36 beginnings were another send's."""
    bench = Bench("mixed", 1236, 30)
    write(bench, tmp_path, vcd=True)
    found = score(bench, pcitrace.open(tmp_path).frames.table, "vcd").total("csr_first", "csr_last")
    assert found["wrong"] == 0
    assert found["right"] > 20


def test_what_the_cheapest_end_rules_out_leads_nowhere() -> None:
    """One that is too dear for each doorbell in which it differs, or for none; not one that is 10 nats dearer."""
    first = np.arange(6)
    ends = {
        ("cheapest",): (first, 0.0),
        ("the same",): (first, 50.0),
        ("near",): (first + 1, 10.0),
        ("far",): (first + 1, RULED_OUT * 6 / ALIKE + 10.0),
    }
    margins, item = np.zeros((6, 2), np.float32), np.zeros(7, np.float32)
    found = {start: Released(one, one, margins, item, cost) for start, (one, cost) in ends.items()}
    assert _leading(found) == {("cheapest",), ("near",)}


def test_rings_that_are_given_but_not_by_far_are_doubted_the_least_sure_first() -> None:
    """One that rings for two sends once; none that is null, none that no answer doubts."""
    last, sure = np.array([3, 3, 5, 8, 9, -1]), np.array([12.0, 11.0, 4.0, RULED_OUT, 3.9, 9.0])
    margins = np.column_stack([np.zeros(6), sure]).astype(np.float32)
    assert _doubts(Released(last, last, margins, np.zeros(10, np.float32), 0.0)) == [(5, 4.0), (3, 11.0)]


def ringing(count: int, every_us: float, wait_us: float) -> Reader:
    """Accesses that come as regularly as the sends, each so long after one."""
    rung_us = every_us * np.arange(1.0, count + 1)
    start_us, there = rung_us + wait_us, np.ones(count, dtype=bool)
    sends = Sends(start_us, start_us, start_us + 1.0, np.full(count, -1), np.full(count, np.nan), there)
    rows, generic = np.arange(count), profiles.load("generic")
    return Reader(Known(accesses(rung_us), generic, np.zeros(0), Usual.anything()), rows, sends)


def test_many_that_wait_each_have_their_own_where_all_that_can_ring_do() -> None:
    """A driver rings 40 times within 60 us; the card sends a frame each 130 us."""
    rng = np.random.default_rng(1)
    count = 40
    rung_us = 10.0 + np.cumsum(rng.uniform(0.5, 2.5, count))
    start_us = rung_us[0] + 3.0 + np.cumsum(rng.uniform(130.0, 131.0, count)) - 130.0
    sends = Sends(
        start_us, start_us, start_us + 9.0, np.full(count, -1), np.full(count, np.nan), np.ones(count, dtype=bool)
    )
    known = Known(accesses(rung_us), profiles.load("generic"), np.zeros(0), Usual.anything())
    none = np.full(count, -1)
    found = find(known, [sends], none, none)
    assert found.last.tolist() == found.first.tolist() == list(range(count))


def test_as_many_doorbells_wait_as_there_were_on_average() -> None:
    """One every 10 us, each 25 us before its send: 2.5 wait, but for those before the first."""
    reader = ringing(400, 10.0, 25.0)
    own = Released(np.arange(400), np.arange(400), np.zeros((400, 2), np.float32), np.zeros(400, np.float32), 0.0)
    assert heads(np.array([-1, 0, 0, 2, -1, 2])).tolist() == [False, True, False, True, False, True]
    assert waiting(own.last, reader.time_us, reader.sends) == pytest.approx(2.5, rel=0.01)
    # One more that waits at the end costs little then; much before any was seen to.
    assert reader._pending(own) == pytest.approx(np.log1p(1 / 2.5), rel=0.02)
    assert reader._pending(None) == pytest.approx(np.log1p(10.0))


def test_a_reading_is_taken_once_for_each_way_to_begin() -> None:
    reader = ringing(12, 50.0, 1.5)
    pairs = np.full((MOST, LONGEST), 1e-4)
    pairs[1] = 1.0
    free, two = reader.after(None), reader.after(None, pairs)
    assert reader.after(None) is free
    assert reader.after(None, pairs) is two
    assert free.cost != two.cost
    assert reader.after(free) is reader.after(dataclasses.replace(free, cost=0.0))


def test_where_registers_tell_the_reading_must_say_what_the_rules_say() -> None:
    rule, found, margin = np.array([5, 5, 5, -1]), np.array([5, 5, 6, 5]), np.array([4.0, 3.9, 40.0, 1.0])
    no, yes = np.zeros(4, dtype=bool), np.ones(4, dtype=bool)
    assert _Said(rule, found, no, yes, True).weak(margin).tolist() == [False, True, True, False]
    assert not _Said(rule, found, no, yes, False).weak(margin).any()


def rings(clks: list[tuple[int, int]], address: int = -1, pause_us: float = 0.1) -> tuple[Any, np.ndarray]:
    """Doorbells of two accesses each, which take so many clocks; and the last access of each."""
    first_us = np.arange(len(clks)) * 10.0
    begin_us = np.column_stack([first_us, first_us + 0.1 + pause_us]).ravel()
    count = 2 * len(clks)
    seen = SimpleNamespace(
        address=np.full(count, address), first_attempt_us=begin_us, end_us=begin_us + 0.1,
        latency_clks=np.array(clks).ravel(), attempts=np.ones(count, np.int64),
    )  # fmt: skip
    seen_ = type("Seen", (SimpleNamespace,), {"__len__": lambda self: count})(**vars(seen))
    return seen_, np.arange(1, count, 2)


@pytest.mark.parametrize(
    ("clks", "may"),
    [
        ([(3, 8)] * 6, [True] * 6),
        ([(3, 3)] * 6, [False] * 6),
        ([(3, 3)] * 5 + [(3, 8)], [False] * 5 + [True]),
        ([(3, 3)] * 4 + [(3, 2)] * 2, [True] * 6),
        ([(7, 3), (8, 3), (5, 3), (6, 3)], [False] * 4),
        ([(3, 8)] * 5 + [(3, -1)], [True] * 5 + [False]),
        ([(3, 3)] * 4 + [(-1, 8)], [False] * 5),
    ],
    ids=["longer", "as long", "one", "now so and now so", "the one before is read", "cut", "the one before is cut"],
)
def test_a_last_access_that_takes_its_time_may_be_a_read(clks: list[tuple[int, int]], may: list[bool]) -> None:
    seen, last = rings(clks)
    assert reads_back(last, seen).tolist() == may
    assert not reads_back(last, rings(clks, address=64)[0]).any()
    assert not reads_back(last, rings(clks, pause_us=5.0)[0]).any()
    beyond = np.append(last, [-1, len(seen), len(seen) + 5])
    assert reads_back(beyond, seen).tolist() == [*may, False, False, False]


@pytest.mark.parametrize(
    ("clks", "may"),
    [
        ([1] * 8 + [5], [False] * 8 + [True]),
        ([1, 2, 1, 2, 1], [True] * 5),
        ([2] * 8 + [1], [False] * 9),
        ([-1] * 3 + [1] * 2 + [5] + [1] * 3, [False] * 5 + [True] + [False] * 3),
        ([-1], [False]),
    ],
    ids=["one is slow", "any may be", "one is fast", "no data of three", "no data"],
)
def test_what_takes_longer_than_other_rings_may_be_a_read(clks: list[int], may: list[bool]) -> None:
    seen: Any = type("Seen", (SimpleNamespace,), {"__len__": lambda self: len(clks)})(latency_clks=np.array(clks))
    assert slow(np.append(np.arange(len(clks)), [-1, len(clks)]), seen).tolist() == [*may, False, False]


def test_rings_of_a_kind_that_few_are_of_are_none() -> None:
    kind = np.array([0, 0, 0, 1, 2, 0, 1])
    assert _of_a_rare_kind(np.array([0, 1, 2, 3, -1, 99]), kind).tolist() == [False] * 3 + [True] + [False] * 2
    assert _of_a_rare_kind(np.array([0, 3]), kind).tolist() == [False] * 2
    assert _of_a_rare_kind(np.array([-1, -1]), kind).tolist() == [False] * 2


def test_what_is_written_once_does_not_ring_where_one_value_does() -> None:
    # 19 sends; a 1 was written 19 times, a 4 once, just before the last send.
    rings, command = np.arange(1, 20), np.r_[[1] * 19, 4]
    assert _of_a_rare_value(rings, command).tolist() == [False] * 18 + [True]
    # Where values vary, none is another's.
    assert not _of_a_rare_value(rings, np.arange(20) % 2).any()
    assert not _of_a_rare_value(np.array([-1, 99]), command).any()


@pytest.mark.parametrize(
    ("steps", "received", "counts"),
    [
        ([1] * 8, 0, True),
        # What counts the receives is never ahead of them.
        ([1] * 8, 8, False),
        # As many were received when most rang.
        ([1] * 8, 5, False),
        ([1, 2, 1, 3, 1], 8, True),
    ],
)
def test_a_rings_tail_goes_on_now_more_now_fewer_or_is_ahead_of_the_receives(
    steps: list[int], received: int, counts: bool
) -> None:
    """Each send came 10 us behind its doorbell; what was received, if anything, before all but the first doorbell."""
    reader = object.__new__(Reader)
    reader.time_us = 100.0 * np.arange(len(steps)) + 100
    reader.bell, reader.count = np.ones(len(steps), dtype=bool), np.append(0, steps[1:]).astype(np.uint32)
    start_us = np.repeat(reader.time_us, steps) + 10
    none, found = np.full(len(start_us), -1), np.ones(len(start_us), dtype=bool)
    reader.sends = Sends(start_us, start_us, start_us, none, np.full(len(none), np.nan), found)
    reader.received_us = np.arange(received) + 100.5
    assert reader.counts == counts


def test_a_card_that_sends_what_it_had_read_has_more_in_its_queue() -> None:
    """The first frame on its wire is in no memory: see `csrtimes._adrift`."""
    columns = {
        "sender": np.array(["B", "A", "A", "A"]),
        "wire_start_us": np.array([1.0, 20.0, 5.0, np.nan]),
        "send_row": np.array([-1, 0, -1, 1]),
    }
    assert csrtimes._first_is_unread("A", columns)
    columns["wire_start_us"][2] = 30.0
    assert not csrtimes._first_is_unread("A", columns)
    assert not csrtimes._first_is_unread("C", columns)


def test_values_that_go_on_as_a_rings_end_count_the_sends() -> None:
    # 4 sends by the first ring, of which nothing before tells how many it was for; then 2, 5, 1 and 1.
    value = np.array([4, 6, 11, 12, 13])
    assert _as_a_tail(value, 13).tolist() == [0, 2, 5, 1, 1]
    # Two descriptors a send.
    assert _as_a_tail(2 * value, 13).tolist() == [0, 2, 5, 1, 1]
    # The ring begins again: how far it went then is not told.
    assert _as_a_tail(np.array([4, 6, 11, 12, 1, 4, 6]), 17).tolist() == [0, 2, 5, 1, 0, 3, 2]
    for other in (value + (1 << 20), np.array([255, 0, 255, 0, 255]), np.array([4, 4, 4, 4, 4])):
        assert not _as_a_tail(other, 13).any(), "an address, a mask, a command"
    assert not _as_a_tail(value, 130).any()


def test_rules_and_reading_that_mostly_differ_agree_by_chance() -> None:
    # The rules know 9 of 10.
    rule, found = np.r_[np.arange(9), -1], np.array([0, 0, 2, 2, 1, 1, 3, 3, 4, 4])
    none, sure = np.zeros(10, dtype=bool), np.full(10, 6.0)
    assert not _Said(rule, found, rule != found, none, tells=True).given(sure)[0].any()
    most = np.where(rule == 8, 7, rule)
    kept = _Said(rule, most, rule != most, none, tells=True).given(sure)[0]
    assert kept.tolist() == [True] * 8 + [False] * 2


@pytest.mark.parametrize(
    ("rings", "at_once", "learned"),
    [(5, 1, True), (4, 1, False), (3, 2, True), (3, 1, False), (2, 2, True)],
)
def test_few_doorbells_teach_nothing_but_where_they_were_answered(rings: int, at_once: int, learned: bool) -> None:
    """Each rings for one send: the first when nothing is under way, the others while the one before is sent."""
    number = np.arange(rings)
    start_us = 100.0 * number + 10.0
    rung_us = np.where(number < at_once, 100.0 * number, 100.0 * number - 50.0)
    end_us = np.where(number < at_once - 1, start_us + 5.0, start_us + 85.0)
    sends = SimpleNamespace(end_us=end_us, ready_us=start_us)
    read_now, csr = SimpleNamespace(last=number), SimpleNamespace(first_attempt_us=rung_us)
    assert csrtimes._at_once(read_now, csr, sends).sum() == at_once  # type: ignore[arg-type]
    assert _learned(read_now, csr, sends) == learned  # type: ignore[arg-type]


@pytest.mark.parametrize("sends", [4, 5])
def test_a_doorbell_that_rings_for_none_of_some_sends_is_none(sends: int) -> None:
    """Of fewer sends it may have rung before the capture."""
    profile = SimpleNamespace(registers=(SimpleNamespace(role="send_doorbell"),))
    csr = SimpleNamespace(role=np.array([3, 3]), plays=lambda *roles: np.zeros(2, dtype=bool))
    assert never_rings(csr, profile, sends) == (sends == 5)  # type: ignore[arg-type]
