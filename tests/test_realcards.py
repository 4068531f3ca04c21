"""Cards that exist, with the drivers of their time: none of their values is wrong where the bus shows what they do."""

from __future__ import annotations

from pathlib import Path

import pytest
from cardbench.score import CSR, TIMES
from realcards import DESIGNS, RealBench
from realcards.trial import analyse, write


def of_design(design: str, seed: int, folder: Path, kind: str = "vcd") -> tuple[int, int, int]:
    """How many values are right, and wrong, of the DMA, the wire and the length; and right of the accesses."""
    bench = RealBench(DESIGNS[design], seed)
    write(bench, folder, (kind,))
    trial = analyse(bench, folder, kind)
    assert not trial.failed
    assert not trial.unlike, "the decoded transactions are not those of the bus"
    assert trial.scored is not None
    dma, csr = trial.scored.total(*TIMES, "length"), trial.scored.total(*CSR)
    assert trial.scored.extra == trial.scored.crossed == trial.scored.lost_rx == 0
    assert csr["wrong"] == 0
    return dma["right"], dma["wrong"], csr["right"]


@pytest.mark.parametrize("design", sorted(DESIGNS))
def test_no_value_of_a_card_that_exists_is_wrong(design: str, tmp_path: Path) -> None:
    right, wrong, rung = of_design(design, 1, tmp_path)
    assert right > 100
    assert wrong == 0
    # A 3C905 is stalled while something is added to its queue: which write lets it go on is not told here.
    assert rung > 0 or design == "boomerang"


@pytest.mark.parametrize(
    ("design", "seed"), [("boomerang", 3), ("boomerang", 55), ("rtl8139", 14), ("rtl8139", 46), ("sk98", 14)]
)
def test_what_rings_beside_other_uses_of_its_register(design: str, seed: int, tmp_path: Path) -> None:
    """Of these most times of accesses were wrong once: the rules knew one register for one use only."""
    assert of_design(design, seed, tmp_path)[1] == 0


@pytest.mark.parametrize(("design", "seed"), [("rtl8139", 4), ("rtl8139", 26), ("tg3", 1), ("rhine", 2), ("rhine", 21)])
def test_what_is_read_behind_a_ring_to_flush_it_rings_for_nothing(design: str, seed: int, tmp_path: Path) -> None:
    """Without AD the read was given as the last access, once for each frame of these.

    Of the RTL8139 26 reads are as fast as writes; before the 15th send of the Rhine 21 there are 2,000 accesses of
    others.
    """
    assert of_design(design, seed, tmp_path, "control16")[2] == 0


@pytest.mark.parametrize(
    ("design", "seed", "kind", "right"),
    [
        ("r8169", 29, "vcd", 210),
        ("r8169", 37, "control16", 142),
        ("tg3", 32, "control16", 223),
        ("eepro100", 39, "control16", 220),
        ("dp83820", 38, "control16", 278),
        ("dp83815", 59, "control16", 110),
        ("rhine", 62, "control16", 150),
    ],
)
def test_what_seemed_likelier_than_the_truth_is_null(
    design: str, seed: int, kind: str, right: int, tmp_path: Path
) -> None:
    """Of the RTL8169 the acknowledgements of interrupts seemed to ring; each send of the BCM570x and of the 82557
    seemed to begin with its descriptor; frames of the DP83820 were a byte too short, a word in their middle missing;
    those of the DP83815 seemed to begin with the third piece of the frame before. Of the Rhine a read seemed to ring.
    """
    found = of_design(design, seed, tmp_path, kind)
    assert found[1] == 0
    assert found[0] >= right


def test_a_frame_begins_behind_the_header_of_the_card(tmp_path: Path) -> None:
    """An RTL8139 writes frame behind frame into one ring, a header of four bytes before each: all were one burst."""
    right, wrong, _ = of_design("rtl8139", 33, tmp_path)
    assert wrong == 0
    assert right >= 260


def test_a_header_that_no_line_shows_leaves_the_beginning_open(tmp_path: Path) -> None:
    """Of 36 receives the second word of five came later than the two clocks that are the same here: nine may have."""
    right, wrong, _ = of_design("rtl8139", 56, tmp_path, "control16")
    assert wrong == 0
    assert right >= 243


def test_descriptors_fetched_last_are_no_frame(tmp_path: Path) -> None:
    """An Intel 8254x fetched 384 bytes of them, and its bus went on for 50 us; no frame had waited for more than 22."""
    right, wrong, _ = of_design("e1000", 55, tmp_path)
    assert wrong == 0
    assert right >= 217


def test_a_frame_that_is_longer_than_its_own_on_the_wire_is_another(tmp_path: Path) -> None:
    """An RTL8139 gives frames of up to 256 bytes to memory when they are whole, longer ones as they come."""
    bench = RealBench(DESIGNS["rtl8139"], 27)
    write(bench, tmp_path, ("control16",))
    scored = analyse(bench, tmp_path, "control16", check=False).scored
    assert scored is not None
    assert scored.total()["wrong"] == 0
    # A row that is no frame is of one at its edges that are given: its receive is null.
    assert scored.extra == 0
