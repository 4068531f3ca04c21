"""Which accesses start a send and which follow it, from control lines alone, where many sends are under way at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import shared_dir
from nicruns import run_folder
from nicruns import truth as truth_rows

import pcitrace
from pcitrace import analysis
from pcitrace.frames.sendstart import sends_of
from pcitrace.simulate import PRESETS, Simulation, random_bench, simulate

SENT = ("csr_first_us", "csr_last_us", "csr_done_us")


def right_and_unknown(found: pd.Series, true: pd.Series) -> tuple[int, int]:
    """Count values within a sample of truth, and nulls."""
    off = np.abs(found.to_numpy(dtype=float) - true.to_numpy(dtype=float))
    return int((off < 0.012).sum()), int(np.isnan(off).sum())


@pytest.mark.parametrize(
    ("preset", "unknown"),
    [
        ("acenic-fig3.1", 0),
        ("acenic-fig4.2a", 5),
        ("acenic-fig4.2b", 0),
        ("acenic-fig4.2c", 0),
        ("acenic-fig4.2d", 2),
        ("sk9843-100us", 0),
        ("sk9843-10us", 10),
        ("pro1000-370dle-11us", 0),
        ("pro1000-p4dp6-8us", 5),
    ],
)
def test_accesses_of_queued_sends_are_right_or_unknown(tmp_path: Path, preset: str, unknown: int) -> None:
    """Batches, doorbells that run ahead of the line, interrupts right behind one: an access may be another send's.

    Two or three sends are null because the cheapest reading of all accesses has another access for them.
    """
    simulate(PRESETS[preset], tmp_path / "run", seed=1)
    found = pcitrace.open(tmp_path / "run").frames.table
    true = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv")
    found, true = (table[table["sender"] == "A"].sort_values("dma_start_us") for table in (found, true))
    assert len(found) == len(true) >= 70
    for column in SENT:
        right, null = right_and_unknown(found[column], true[column])
        assert right + null == len(true), column
        assert null <= unknown, column


@pytest.mark.parametrize(
    ("ahead", "sends", "of"),
    [
        ([1, 1, 3, 1], 6, [1, 1, 3, 1]),
        ([1, 2, 4, 2], 5, [1, 1, 2, 1]),
        ([1, 2, 3, 3], 4, [0, 0, 0, 0]),
    ],
    ids=["one descriptor a send", "two", "two or three"],
)
def test_tails_count_descriptors(ahead: list[int], sends: int, of: list[int]) -> None:
    for kind in (np.int64, np.uint32):
        assert sends_of(np.array(ahead, kind), sends).tolist() == of


def counted(folder: Path, bench: Simulation, seed: int = 1, profile: str | None = None) -> tuple[int, int, int]:
    """Count the CSR times of frames that are right, null, and another access's.

    Frames whose DMA is not that of a frame in truth are not counted; nor are times that truth does not have either.
    """
    simulate(bench, folder, seed=seed)
    run = pcitrace.open(folder)
    truth = pd.read_csv(folder / "truth" / "frames.csv").dropna(subset=["dma_start_us"]).sort_values("dma_start_us")
    assert not (truth["rx_csr_us"] <= truth["rx_dma_end_us"]).any()
    columns = ["dma_end_us", *SENT, "rx_csr_us"]
    found = analysis.frames(run, profile=profile).table.dropna(subset=["dma_start_us"])
    found = found[["sender", "dma_start_us", *columns]].astype(dict.fromkeys(["dma_start_us", *columns], "float64"))
    clock_us = 1 / run["A"].clock_mhz
    both = pd.merge_asof(
        found.astype({"sender": object}).sort_values("dma_start_us"),
        truth[["sender", "dma_start_us", *columns]].astype({"sender": object}),
        on="dma_start_us",
        by="sender",
        direction="nearest",
        tolerance=clock_us,
        suffixes=("", "_true"),
    )
    both = both[(both["dma_end_us"] - both["dma_end_us_true"]).abs() <= clock_us]
    right = null = wrong = 0
    for column in columns[1:]:
        got, true = both[column], both[f"{column}_true"]
        right += int(((got - true).abs() <= clock_us).sum())
        null += int((got.isna() & true.notna()).sum())
        wrong += int((got.notna() & ~((got - true).abs() <= clock_us)).sum())
    return right, null, wrong


@pytest.mark.parametrize("seed", [2100, 2104, 2121, 2125, 2130, 2134, 2146, 2156])
def test_with_registers_every_access_is_known(tmp_path: Path, seed: int) -> None:
    """An update right before a doorbell, or behind the next DMA; a read first tried before the end of the receive."""
    right, null, wrong = counted(tmp_path / "run", random_bench(seed, wires=("full",)), seed)
    assert (null, wrong) == (0, 0)
    assert right > 200


@pytest.mark.parametrize("seed", [2100, 2121, 2134])
def test_registers_that_no_profile_names(tmp_path: Path, seed: int) -> None:
    """Doorbell, update and what belongs to receives are told by how often and when their registers are accessed."""
    right, null, wrong = counted(tmp_path / "run", random_bench(seed, wires=("full",)), seed, "generic")
    assert wrong == 0
    assert null <= 0.01 * right


BIDIRECTIONAL = {"test.kind": "bidirectional", "test.arrivals": "poisson", "test.spacing_us": 60.0, "test.count": 100}


def test_writes_of_one_send_that_a_busy_bus_parts(tmp_path: Path) -> None:
    bench = PRESETS["acenic-fig4.2a"].with_values({**BIDIRECTIONAL, "analyser.wires": "full"})
    assert counted(tmp_path / "run", bench)[1:] == (0, 0)


def test_an_interrupt_register_for_sends_and_receives(tmp_path: Path) -> None:
    """One register is read for both: a read that a receive may have caused is no known update."""
    bench = PRESETS["sk9843-100us"].with_values({**BIDIRECTIONAL, "analyser.wires": "full"})
    right, null, wrong = counted(tmp_path / "run", bench)
    assert wrong == 0
    assert null <= 0.5 * 200 < right


@pytest.mark.parametrize(
    ("seed", "wires"),
    [
        (2109, "control16"),  # a doorbell at the usual delay of an update that has to wait for the bus
        (2125, "control16"),  # an update right behind a DMA, and the card goes on by itself
        (7016, "control16"),  # accesses that a long receive holds up
        (7024, "control16"),  # a doorbell with an access of the receive side right behind it
        (7050, "control16"),  # doorbells while the card is busy
        (7142, "control16"),  # a read that is retried, and the update right behind it
        (2057, "control16"),  # an access of a receive that had to wait, about as long before a DMA as a doorbell
        (9045, "control16"),  # a stream: a doorbell right behind an update, and the update before had to wait
        (30179, "command"),  # a stream: doorbell and update wait for the same DMA
        (12048, "control16"),  # an update that is left over, sooner before the DMA than any doorbell
        (73099, "command"),  # the same with an access of a receive
        (110748, "control16"),  # an update that had to wait, nearly as long before the next DMA as a doorbell
        (10, "command"),  # an access that comes late because the read before it did
        (104188, "control16"),  # an update that waits for the end of a read that is retried
        (120458, "command"),  # an update about as long before the next DMA as a doorbell, but not before the fetch
        (2111, "control14"),
        (2147, "control14"),
    ],
)
def test_control_lines_give_no_access_of_another_frame(tmp_path: Path, seed: int, wires: str) -> None:
    bench = random_bench(seed, wires=(wires,))
    if wires == "control14":
        bench = bench.with_values({"test.count": 20})  # what no wire tells takes longest
    right, null, wrong = counted(tmp_path / "run", bench, seed)
    assert wrong == 0
    assert null <= right / 3


def test_a_read_is_no_update_where_updates_are_writes(tmp_path: Path) -> None:
    """It comes behind a receive, at the usual delay of an update; the cards are busy, and much is not known."""
    right, _, wrong = counted(tmp_path / "run", random_bench(130069, wires=("command",)), 130069)
    assert wrong == 0
    assert right > 300


@pytest.mark.parametrize(
    ("preset", "values"),
    [
        ("acenic-fig4.2a", {"analyser.duration_us": 3011.0}),  # the capture ends between the accesses of a send
        ("acenic-fig4.2a", {"test.arrivals": "poisson"}),  # updates between the accesses of sends, two sends in a group
        ("acenic-fig4.2b", {"test.kind": "bidirectional"}),
        ("sk9843-100us", {"host.driver.blocking": True, "test.spacing_us": 10.0}),  # each update with the next doorbell
        (
            "sk9843-100us",
            {**BIDIRECTIONAL, "test.spacing_us": 40.0},
        ),  # a doorbell behind the descriptor of the send before
        ("acenic-fig3.1", {"host.driver.sent_update_us": None}),  # what waits for the DMA's end is no update
    ],
)
def test_streams_in_which_order_alone_misleads(tmp_path: Path, preset: str, values: dict[str, object]) -> None:
    assert counted(tmp_path / "run", PRESETS[preset].with_values(values))[2] == 0


FULL_RING = PRESETS["sk9843-10us"].with_values(
    {"test.count": 210, "analyser.duration_us": 1755.0, "analyser.wires": "full"}
)
"""The card sends more slowly than it is asked to: 14 doorbells wait at the end."""


def test_doorbells_that_wait_at_the_end_are_given_to_no_other_send(tmp_path: Path) -> None:
    """Each was given to a later send, so that none was left over: the rules were contradicted, and half was null."""
    right, null, wrong = counted(tmp_path / "run", FULL_RING)
    assert (null, wrong) == (0, 0)
    assert right > 500


def test_doorbells_that_wait_at_the_end_are_no_updates(tmp_path: Path) -> None:
    bench = FULL_RING.with_values({"analyser.wires": "control16"})
    right, _, wrong = counted(tmp_path / "run", bench)
    assert wrong == 0
    assert right > 100


@pytest.mark.parametrize(
    ("preset", "count", "unknown"),
    [
        ("acenic-fig4.2a", 150, 0),
        # Of starts that end alike by then all are kept: one of them ends elsewhere later, and makes a wrong one unsure.
        ("acenic-fig4.2b", 300, 9),
    ],
)
def test_what_the_first_sends_rule_out_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str, count: int, unknown: int
) -> None:
    values = {"test.kind": "stream", "test.count": count, "analyser.wires": "full"}
    simulate(PRESETS[preset].with_values(values), tmp_path / "run")
    csr = ["csr_first_us", "csr_last_us", "csr_done_us"]
    fast = analysis.frames(pcitrace.open(tmp_path / "run"), profile="generic").table[csr]
    monkeypatch.setattr("pcitrace.frames.doorbellstarts.FIRST", 10**9)
    every = analysis.frames(pcitrace.open(tmp_path / "run"), profile="generic").table[csr]
    pd.testing.assert_frame_equal(fast, every)
    assert len(fast) == count
    assert fast["csr_last_us"].isna().sum() <= unknown


@pytest.mark.parametrize(
    ("name", "file", "profile", "unknown"),
    [
        ("nic_g_a", "control16.sr", None, 2),  # the pair of a receive's accesses is no send's
        ("nic_ocg_a_sf", "control16.sr", None, 2),
        # Nor is an access of its register, however well it comes; on one both agree, at less than 6 nats.
        ("nic_g_d", "bus.vcd.gz", "generic", 62),
    ],
)
def test_doorbells_of_the_reference_traces(
    tmp_path: Path, name: str, file: str, profile: str | None, unknown: int
) -> None:
    trace = shared_dir() / "traces" / name
    table = analysis.frames(pcitrace.open(run_folder(tmp_path / "run", trace, file)), profile=profile).table
    last_us = table.sort_values("dma_start_us")["csr_last_us"].to_numpy(dtype=float, na_value=np.nan)
    wanted = sorted(truth_rows(trace, "truth", "frame"), key=lambda one: one["tx_dma_first_ns"])
    off = np.abs(last_us - np.array([one["doorbell_first_attempt_ns"] for one in wanted]) / 1000)
    assert not (off > 0.04).any()
    assert np.isnan(off).sum() <= unknown
