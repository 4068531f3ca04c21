"""Cards that the rules do not know: their DMA is read at the least cost, and what is not sure is null."""

from __future__ import annotations

from pathlib import Path

import pytest
from cardbench import Bench, score, write

import pcitrace
from pcitrace import analysis
from pcitrace.frames.margins import SURE

EDGES = ("dma_start", "dma_end", "rx_dma_start", "rx_dma_end")


def analysed(bench: Bench, folder: Path) -> analysis.Frames:
    """Frames of a generated card from 16 channels, with the generic profile."""
    write(bench, folder, vcd=False)
    stated = (folder / "run-control16.toml").read_text().replace('"card.toml"', '"generic"')
    run = folder / "run"
    run.mkdir()
    (run / "control16.sr").symlink_to(folder / "control16.sr")
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
    assert edges["right"] >= 48
