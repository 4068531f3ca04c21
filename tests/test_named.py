"""What addresses and data name: held against a slow search, and against cards that cannot be told without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cardbench import Bench, score, write

import pcitrace
from pcitrace import analysis
from pcitrace.bustable import BusTable
from pcitrace.facts import WRITES
from pcitrace.lattice import ALONE, Goals, Learner, Reading
from pcitrace.traffic import alone
from pcitrace.traffic.dma import Kind, directions
from pcitrace.traffic.named import Naming, Words, goes_on, last_named_us
from pcitrace.traffic.phases import Phases
from pcitrace.traffic.pieces import Pieces

EDGES = ("dma_start", "dma_end", "rx_dma_start", "rx_dma_end")


def opened(bench: Bench, folder: Path) -> pcitrace.Run:
    write(bench, folder)
    return pcitrace.open(folder)


@pytest.mark.parametrize("family", ["tiny", "reread"])
def test_what_named_an_address_last_is_what_a_slow_search_finds(family: str, tmp_path: Path) -> None:
    run = opened(Bench(family, 3, frames=8), tmp_path)
    for name, host in analysis.frames(run).hosts.items():
        dma, phases = host.dma, Phases.of(run[name].data_phases, BusTable.of(run[name].transactions))
        sends = np.flatnonzero((dma.kind == Kind.SEND_DATA) & (dma.bus.data_phases > 0))
        asked, before_us = dma.bus.address[sends], dma.bus.start_us[sends]
        told = []
        for row in np.flatnonzero((dma.write == 0) & (dma.kind != Kind.SEND_DATA)):
            begin, length = (int(one[0]) for one in phases.ranges(dma.bus.transaction[row : row + 1]))
            for value in phases.data[np.arange(begin, begin + length)].astype(np.int64).tolist():
                told += [(word & 0xFFFFFFFC, float(dma.bus.start_us[row])) for word in (value, value >> 32)]
        wanted = [
            max((us for word, us in told if word == int(address) & ~3 and us <= before), default=np.nan)
            for address, before in zip(asked, before_us, strict=True)
        ]
        found = last_named_us(dma, phases, asked, before_us)
        assert np.array_equal(found, wanted, equal_nan=True)
        assert np.isfinite(found).any() or not len(sends)


@pytest.mark.parametrize("family", ["ring", "csr-descriptors", "scatter-gather", "wide66"])
def test_what_is_named_is_what_a_slow_search_finds(family: str, tmp_path: Path) -> None:
    run = opened(Bench(family, 3, frames=8), tmp_path)
    seen = 0
    for name, host in analysis.frames(run).hosts.items():
        csr, pieces = host.csr, Pieces.of(host.dma.bus)
        phases = Phases.of(run[name].data_phases, BusTable.of(run[name].transactions))
        write_ = directions(pieces.bus)
        naming = Words(phases, csr).naming(pieces, write_)
        told = [
            (int(value), float(time), None)
            for value, time, command in zip(csr.value, csr.first_attempt_us, csr.command, strict=True)
            if command in WRITES and value >= 0
        ]
        for piece in np.flatnonzero(write_ == 0):
            begin, length = phases.ranges(pieces.bus.transaction[piece : piece + 1])
            for row in range(int(begin[0]), int(begin[0] + length[0])):
                value = int(phases.data[np.array([row])][0])
                told += [(value, float(pieces.bus.last_data_us[piece]), piece)]
        words = [(word & ~3 & 0xFFFFFFFF, time, by) for value, time, by in told for word in (value, value >> 32)]
        named = np.zeros(len(pieces), dtype=bool)
        names = np.zeros(len(pieces), dtype=bool)
        for piece, (address, begin_us) in enumerate(zip(pieces.bus.address, pieces.begin_us, strict=True)):
            for word, time, by in words:
                if address > 0 and word == int(address) & ~3 & 0xFFFFFFFF and time <= begin_us:
                    named[piece] = True
                    if by is not None:
                        names[by] = True
        assert (naming.named == named).all()
        assert (naming.names == names).all()
        assert (naming.named ^ naming.apart ^ naming.on).all()
        assert not (naming.apart & naming.on).any()
        seen += int(named.sum())
    assert seen > 0


def test_the_page_of_what_goes_on_in_place_is_told_by_what_it_goes_on_from(tmp_path: Path) -> None:
    """It says nothing of what such a piece is; that of any other piece does."""
    host = analysis.frames(opened(Bench("cacheline", 3, frames=8), tmp_path)).hosts["A"]
    pieces = Pieces.of(host.dma.bus)
    write_ = directions(pieces.bus)
    nothing = Goals.none(True)

    def costs(page: np.ndarray) -> np.ndarray:
        priced = alone.Alone(pieces, write_, (None, None))
        priced.page = page
        return priced.costs(reading, (nothing, nothing), Learner())

    priced = alone.Alone(pieces, write_, (None, None))
    count, in_place = len(pieces), goes_on(pieces, write_)
    track = np.where(write_ == 0, 0, -1)
    reading = Reading(track, track == 0, track == 0, np.full(count, -1), np.zeros((count, 4), np.float32), 0.0)
    assert in_place[track == 0].sum() > 5
    assert priced.pages > 2
    np.testing.assert_array_equal(costs(np.where(in_place, 0, priced.page)), costs(priced.page))
    assert (costs(np.where(in_place, priced.page, 0)) != costs(priced.page)).any()


def test_a_frame_begins_where_it_was_named_until_most_are_seen_to_begin_elsewhere(tmp_path: Path) -> None:
    """Nine in ten, at first; a card that was told before the capture shows that it is otherwise."""
    host = analysis.frames(opened(Bench("cacheline", 3, frames=8), tmp_path)).hosts["A"]
    pieces = Pieces.of(host.dma.bus)
    count, no = len(pieces), np.zeros(len(pieces), dtype=bool)
    write_ = directions(pieces.bus)

    def dearer(begins: np.ndarray) -> float:
        """What a beginning costs more that was not named than one that was, where none of some others was."""
        track = np.where(begins, 0, -1)
        reading = Reading(track, begins, begins, np.full(count, -1), np.zeros((count, 4), np.float32), 0.0)
        named = np.arange(count) == 0
        priced = alone.Alone(pieces, write_, (None, None), Naming(named, no, no, no))
        found = priced.costs(reading, (Goals.none(True), Goals.none(True)), Learner())[:, 3]
        return float(found[1] - found[0])

    assert dearer(no) == pytest.approx(np.log(9))
    assert dearer(np.arange(count) > count // 2) < 0.0


def edges(bench: Bench, folder: Path) -> dict[str, int]:
    return score(bench, analysis.frames(pcitrace.open(folder)).table, "vcd").total(*EDGES)


@pytest.mark.parametrize(("family", "seed"), [("scatter-gather", 942), ("padding", 985)])
def test_a_card_is_told_where_its_buffers_begin(
    family: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without it a descriptor and the header behind it are as long as the header and the data.
    bench = Bench(family, seed, frames=24)
    write(bench, tmp_path)
    with_names = edges(bench, tmp_path)
    monkeypatch.setattr(
        alone.Alone, "_told", lambda self, naming, *rest: np.zeros((len(naming.named), ALONE), np.float32)
    )
    without = edges(bench, tmp_path)
    assert with_names["wrong"] == 0
    assert with_names["right"] >= 90
    assert without["right"] <= with_names["right"] - 24


def test_what_only_an_unsure_send_tells_is_no_length(tmp_path: Path) -> None:
    # A re-read piece was taken for the frame: it said exactly 0 bytes.
    bench = Bench("reread", 941, frames=24)
    found = score(bench, analysis.frames(opened(bench, tmp_path)).table, "vcd")
    assert found.total("length")["wrong"] == 0
