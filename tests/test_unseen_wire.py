"""Control lines alone: what one memory shows is held against the other's, and what neither shows is not told."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cardbench import Bench, Score, score, write

import pcitrace
from pcitrace import analysis, frames
from pcitrace.frames import again, margins
from pcitrace.frames.matching import match_hosts
from pcitrace.frames.unseen import _one_by_one
from pcitrace.profiles import Descriptor, Profile
from pcitrace.simulate import PRESETS, simulate
from pcitrace.traffic import reader
from pcitrace.traffic.asked import AGREED, FAR, STATED, SURE
from pcitrace.traffic.dma import Kind
from pcitrace.traffic.goals import RECEIVE, SEND

EDGES = ("dma_start", "dma_end", "rx_dma_start", "rx_dma_end")


def analysed(bench: Bench, folder: Path, profile: str = "generic") -> tuple[Score, analysis.Frames]:
    """Frames of a generated card from 14 channels, and what is right of them."""
    if not (folder / "run-control14.toml").exists():
        write(bench, folder, vcd=False, control14=True)
    stated = (folder / "run-control14.toml").read_text().replace('"card.toml"', f'"{profile}"')
    (folder / "run.toml").write_text(stated)
    found = analysis.frames(pcitrace.open(folder))
    return score(bench, found.table, "control14"), found


@pytest.mark.parametrize("family", ["ring", "cacheline"])
def test_two_memories_alone_tell_nothing_that_is_wrong(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(family, 601, frames=18)
    scored, found = analysed(bench, tmp_path)
    assert scored.total(*EDGES)["wrong"] == 0
    assert scored.total("length")["wrong"] == 0
    assert (scored.extra, scored.crossed, scored.lost_rx) == (0, 0, 0)
    assert any("possible frames are left out" in text for text in found.findings)
    # By the rules alone they are wrong, without a word.
    monkeypatch.setattr(frames, "doubted", lambda *_: False)
    monkeypatch.setattr(margins, "in_turn", lambda _: False)
    by_rule, found = analysed(bench, tmp_path)
    assert by_rule.total(*EDGES)["wrong"] + by_rule.extra > 0
    assert not any("left out" in text for text in found.findings)


def test_frames_of_one_host_that_nothing_tells_are_left_out(tmp_path: Path) -> None:
    scored, found = analysed(Bench("one-host", 601, frames=12), tmp_path)
    assert len(found.table) == 0
    assert scored.total()["right"] == scored.total()["wrong"] == 0
    [text] = [one for one in found.findings if "left out" in one]
    assert text.startswith("A: no wire and no other host was captured")
    assert "TX_EN" in text


def test_a_profile_does_not_tell_descriptors_of_one_host_from_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("one-host", 1203, frames=24)
    _, found = analysed(bench, tmp_path, "card.toml")
    assert len(found.table) == 0
    assert any("left out" in text for text in found.findings)
    monkeypatch.setattr(margins, "_looks_alike", lambda _: False)
    before, _ = analysed(bench, tmp_path, "card.toml")
    assert before.extra > 0


def test_what_is_shorter_than_a_header_is_no_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(margins, "_looks_alike", lambda _: False)
    bench = Bench("one-host", 991, frames=24)
    scored, _ = analysed(bench, tmp_path, "card.toml")
    assert scored.total()["wrong"] == 0
    assert (scored.extra, scored.crossed, scored.lost_rx) == (0, 0, 0)
    monkeypatch.setattr(margins, "_are_frames", lambda _: True)
    before, _ = analysed(bench, tmp_path, "card.toml")
    assert before.total(*EDGES)["wrong"] + before.extra > 0


def test_what_is_behind_the_last_frame_does_not_part_it(tmp_path: Path) -> None:
    """Its last two pieces were two frames in both memories: the longest pause behind them counted."""
    scored, found = analysed(Bench("ring", 1204, frames=24), tmp_path, "card.toml")
    assert scored.total()["wrong"] == scored.extra == 0
    assert len(found.table) == 24


@pytest.mark.parametrize(
    ("sure", "placed", "share", "told"),
    [
        (2, 2, margins.TOLD, False),
        (3, 0, margins.TOLD, True),
        (0, 10, margins.TOLD, True),
        (5, 2, margins.LEARNED, False),
        (6, 0, margins.LEARNED, True),
    ],
)
def test_where_few_frames_are_sure_none_is(sure: int, placed: int, share: float, told: bool) -> None:
    """So many must be sure at both edges, or nearly all of where they lie; else the table has not learned the card."""
    nats = np.full((10, 2), 3.0)
    nats[:sure] = SURE
    place, least = np.full(10, 3.0), np.full((10, 2), SURE)
    place[:placed] = SURE
    found = nats.copy()
    margins._only_where_told(found, least, place, (np.arange(10), share))
    assert (found == (nats if told else np.zeros_like(nats))).all()


COMMON = {"test.kind": "request-response", "test.sizes": "64,900,1428", "test.count": 24, "analyser.wires": "control14"}


def test_two_memories_do_not_confirm_each_other_s_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors of 16 bytes at both ends: each frame may be four data phases longer in both memories."""
    simulate(PRESETS["pro1000-p4dp6-8us"].with_values(COMMON), tmp_path / "run", seed=1)
    truth = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv")
    stated = tmp_path / "run" / "run.toml"
    stated.write_text(re.sub(r"frame_logs = \[.*?\]\n", "", stated.read_text(), flags=re.DOTALL))
    run = pcitrace.open(tmp_path / "run")

    def wrong(table: pd.DataFrame) -> int:
        found = 0
        for name in EDGES:
            true = np.sort(truth[f"{name}_us"].dropna().to_numpy(float))
            given = table[f"{name}_us"].dropna().to_numpy(float)
            found += int(sum(np.abs(true - one).min() > 0.1 for one in given))
        return found

    found = analysis.frames(run, profile="generic")
    assert wrong(found.table) == 0
    # Nor is a length told of which no segment is sure.
    both = found.table[["dma_start_us", "dma_end_us"]].notna().all(axis=1)
    either = both | found.table[["rx_dma_start_us", "rx_dma_end_us"]].notna().all(axis=1)
    assert found.table["length_bytes"][~either].isna().all()
    # What speaks against four more in one memory counts, not the sum: here neither is sure any more.
    monkeypatch.setattr(again, "lengthened", lambda one: ({4: SURE - 1}, {4: 3.0}))
    assert found.table["dma_start_us"].notna().any()
    assert len(analysis.frames(run, profile="generic").table) == 0


def test_what_is_in_one_memory_alone_is_no_frame(tmp_path: Path) -> None:
    """Four descriptors are as long as a frame: a send that the other host never received."""
    scored, found = analysed(Bench("fcs", 1206, frames=24), tmp_path, "card.toml")
    assert scored.total()["wrong"] == scored.extra == 0
    assert len(found.table) >= 11
    assert any("left out" in text for text in found.findings)


@pytest.mark.parametrize(("family", "seed"), [("fcs", 1253), ("tiny", 1206), ("other-master", 1257)])
def test_a_profile_does_not_make_the_rules_right(
    family: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the card's own profile the rules took frames for others, where one got lost or a fetch looked like one.

    And left the last pieces of all frames over, in both memories, where these were as long as a descriptor.
    """
    bench = Bench(family, seed, frames=24)
    scored, _ = analysed(bench, tmp_path, "card.toml")
    assert scored.total()["wrong"] == scored.extra == scored.crossed == 0
    monkeypatch.setattr(frames, "doubted", lambda *_: {})
    before, _ = analysed(bench, tmp_path, "card.toml")
    assert before.total()["wrong"] + before.crossed > 0


@pytest.mark.parametrize(
    ("reads", "statuses", "fetch_max", "accounted"),
    [
        ([16] * 4, 4, 1, True),
        ([16] * 5, 4, 1, True),
        ([16] * 6, 4, 1, False),
        ([64] * 2, 4, 4, True),
        ([64] * 3, 4, 4, False),
        ([16] * 4, 5, 1, True),
        ([16] * 4, 6, 1, False),
    ],
    ids=["one each", "one ahead", "more", "four at once", "more at once", "a status before", "more statuses"],
)
def test_what_is_left_over_is_no_more_than_frames_have(
    reads: list[int], statuses: int, fetch_max: int, accounted: bool
) -> None:
    """Two sends and two receives from 0 to 100 us; what was before or behind these says nothing."""
    outside = [(Kind.DESCRIPTOR_FETCH, 160, -5.0), (Kind.STATUS_WRITE, 4, 105.0), (Kind.STATUS_WRITE, 4, 106.0)]
    between = [(Kind.DESCRIPTOR_FETCH, size, 10.0) for size in reads] + [(Kind.STATUS_WRITE, 4, 20.0)] * statuses
    data = [(Kind.SEND_DATA, 64, 0.0), (Kind.SEND_DATA, 64, 50.0), (Kind.RECEIVE_DATA, 64, 60.0)]
    kind, size, time_us = map(np.array, zip(*data, (Kind.RECEIVE_DATA, 64, 100.0), *between, *outside, strict=True))
    joined = SimpleNamespace(kind=kind, bytes=size, first_data_us=time_us, last_data_us=time_us)
    card = Profile("card", "", (), send_descriptor=Descriptor(16, fetch_max), receive_descriptor=Descriptor(32))
    host = SimpleNamespace(traffic=SimpleNamespace(joined=joined), profile=card)
    end = SimpleNamespace(host=host, sends=np.array([0, 1]), receives=np.array([2, 3]))
    assert margins._accounted(end) == accounted  # type: ignore[arg-type]
    end.sends = end.receives = np.zeros(0, np.int64)
    assert margins._accounted(end)  # type: ignore[arg-type]


@pytest.mark.parametrize("unseen", [True, False])
def test_without_a_wire_an_edge_is_no_surer_than_both_in_the_other_memory(unseen: bool) -> None:
    nats = {SEND: np.array([[13.0, 12.0]]), RECEIVE: np.array([[0.4, 14.0]])}
    match = margins._as_held_against(nats, np.array([unseen]))
    assert match.tolist() == [13.0], "an edge of each is sure"
    assert nats[SEND].tolist() == ([[0.4, 0.4]] if unseen else [[13.0, 12.0]])
    assert nats[RECEIVE].tolist() == ([[0.4, 12.0]] if unseen else [[0.4, 14.0]])


@pytest.mark.parametrize(("family", "seed"), [("scatter-gather", 1251), ("equal-lengths", 1252)])
def test_what_is_left_out_or_taken_in_in_both_memories_is_not_given(family: str, seed: int, tmp_path: Path) -> None:
    profile = "card.toml" if family == "scatter-gather" else "generic"
    scored, _ = analysed(Bench(family, seed, frames=30), tmp_path, profile)
    assert scored.total()["wrong"] == scored.extra == scored.crossed == 0


def test_what_two_cards_fetch_alike_is_no_frame(tmp_path: Path) -> None:
    """Eight descriptors each at the beginning, as long as a frame: neither edge of it is sure in the other memory."""
    bench = Bench("padding", 1206, frames=24)
    scored, found = analysed(bench, tmp_path, "card.toml")
    assert scored.total()["wrong"] == scored.extra == 0
    assert len(found.table) > 0


def test_what_the_rules_had_not_must_be_surer_without_a_wire(tmp_path: Path) -> None:
    """Header and data lie in two buffers, and the header is left out in both memories: wrong by 12.3 nats."""
    scored, _ = analysed(Bench("scatter-gather", 1205, frames=24), tmp_path, "card.toml")
    assert scored.total()["wrong"] == scored.extra == 0


def test_a_host_whose_frames_are_left_out_still_shows_how_doorbells_look(tmp_path: Path) -> None:
    """Those of the other have an access more: an interrupt handler's, which was given as their beginning."""
    scored, found = analysed(Bench("other-master", 1207, frames=24), tmp_path, "card.toml")
    assert set(found.table["sender"]) == {"B"}
    assert scored.total("csr_first", "csr_last")["wrong"] == 0


@pytest.mark.parametrize("profile", ["card.toml", "generic"])
def test_as_sure_as_the_wire_is_seen_and_the_card_is_described(profile: str, tmp_path: Path) -> None:
    """Edges that the rules had too are given from fewer nats on, or, without a wire, where another way is near."""
    write(Bench("fcs", 1204, frames=4), tmp_path, vcd=False, control14=True)
    stated = (tmp_path / "run-control14.toml").read_text().replace('"card.toml"', f'"{profile}"')
    (tmp_path / "run.toml").write_text(stated)
    run = pcitrace.open(tmp_path)
    ends, columns, _ = match_hosts({name: analysis._host(run, name, None) for name in "AB"}, None, None)
    count = len(columns["sender"])
    received = ~np.isnan(columns["rx_dma_end_us"])
    agreed = STATED if profile == "card.toml" else SURE

    def least(unseen: bool, before: dict[str, Any]) -> list[float]:
        same = {side: margins._found_before(before, columns, margins.EDGES[side]) for side in margins.EDGES}
        rivals = {SEND: np.full((count, 2), 40.0), RECEIVE: np.full((count, 2), FAR)}
        found = margins._thresholds(ends, np.full(count, unseen), rivals, same)[SEND][received]
        assert (found == found[:1]).all()
        return found[0].tolist()

    elsewhere = {**columns, "dma_end_us": columns["dma_end_us"] + 1}
    assert least(False, columns) == [AGREED, AGREED]
    assert least(False, elsewhere) == [AGREED, SURE], "its beginning is where it was"
    assert least(True, columns) == [agreed, agreed]
    assert least(True, elsewhere) == [agreed, SURE]


@pytest.mark.parametrize(("rival", "in_both", "unseen", "told"), [
    (FAR, False, True, True),
    (FAR - 0.1, False, True, False),
    (FAR - 0.1, True, True, True),
    (0.0, False, False, True),
])  # fmt: skip
def test_where_another_way_to_explain_all_frames_is_near_two_memories_may_share_a_mistake(
    rival: float, in_both: bool, unseen: bool, told: bool
) -> None:
    nats = {side: np.full((1, 2), 15.0) for side in (SEND, RECEIVE)}
    rivals = {SEND: np.full((1, 2), 40.0), RECEIVE: np.full((1, 2), rival)}
    same = {SEND: np.ones((1, 2), dtype=bool), RECEIVE: np.full((1, 2), in_both)}
    margins._only_where_far(nats, np.array([unseen]), rivals, same)
    assert all((one == (15.0 if told else 0.0)).all() for one in nats.values())


def test_margins_do_not_end_where_the_search_left_states_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("batched-status", 1249, frames=30)
    scored, _ = analysed(bench, tmp_path, "card.toml")
    assert scored.total()["wrong"] == 0
    monkeypatch.setattr(reader, "SURELY", reader.WIDE)
    before, _ = analysed(bench, tmp_path, "card.toml")
    assert before.total(*EDGES)["right"] < scored.total(*EDGES)["right"]


def test_a_wire_takes_frames_one_by_one() -> None:
    ready_us = np.array([0.0, 1.0, 2.0, 50.0, 51.0])
    each_us = np.array([10.0, 5.0, 1.0, 3.0, 1.0])
    # Each as soon as it is ready, or as the one before is through.
    assert _one_by_one(ready_us, each_us).tolist() == [0.0, 10.0, 15.0, 50.0, 53.0]
