"""pcitrace against the truth of every reference trace: every field, both ways."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import truth
from conftest import REPOSITORY, shared_dir

import pcitrace

FIELDS = [
    "clocks", "command", "dac", "data_phases", "wait_clks", "devsel_clks", "termination", "fast_back_to_back", "perr",
    "serr", "initiator",
]  # fmt: skip


def rows(frame: pd.DataFrame, columns: list[str]) -> list[dict]:
    """Rows as plain Python, nulls as None."""
    return [
        {key: None if pd.isna(value) else value for key, value in row.items()}
        for row in frame[columns].to_dict("records")
    ]


def ps(column: pd.Series) -> list[int]:
    """Times in us as whole ps; an error of half a ps fails."""
    values = (column * 1e6).to_numpy("float64")
    assert (abs(values - values.round()) < 0.5).all()
    return [int(value) for value in values.round()]


def folders() -> list[str]:
    """All traces with a row a transaction: the shared ones, and those among the fixtures."""
    return [f"shared/{name}" for name in truth.BLUE] + ["fixtures/blue33_seq1", "fixtures/blue66_seq1"]


def find(name: str) -> Path:
    """The folder of a trace."""
    place, trace = name.split("/")
    return (shared_dir() if place == "shared" else REPOSITORY / "fixtures") / "traces" / trace


@pytest.mark.parametrize("name", folders())
def test_vcd_equals_truth(name: str) -> None:
    folder = find(name)
    wanted = truth.transactions(folder)
    bus = pcitrace.open(folder / "bus.vcd.gz").bus
    table = bus.transactions
    assert len(table) == len(wanted)
    assert ps(table["start_us"]) == [row["start_ps"] for row in wanted]
    assert ps(table["end_us"]) == [row["end_ps"] for row in wanted]
    fields = [*FIELDS, "address", "address_parity_ok"]
    assert rows(table, fields) == [{key: row[key] for key in fields} for row in wanted]

    phases = bus.data_phases
    beats = [(number, *beat) for number, row in enumerate(wanted) for beat in row["beats"]]
    assert phases["transaction"].tolist() == [beat[0] for beat in beats]
    assert ps(phases["time_us"]) == [beat[1] for beat in beats]
    assert phases["data"].tolist() == [beat[2] for beat in beats]
    assert phases["byte_enables"].tolist() == [beat[3] for beat in beats]
    assert phases["parity_ok"].tolist() == [beat[4] for beat in beats]

    exact = [sum(4 - beat[2].bit_count() for beat in row["beats"]) for row in wanted]
    assert table["bytes"].tolist() == exact
    assert table["bytes_exact"].all()


@pytest.mark.parametrize(
    ("name", "capture"),
    [(name, capture) for name in folders() for capture in ((100, 250) if "blue33" in name else (250, 500))],
)
def test_sampled_equals_truth(name: str, capture: int) -> None:
    folder = find(name)
    wanted = truth.sampled_transactions(folder)
    bus = pcitrace.open(folder / f"ctl_{capture}MSs.sr").bus
    table = bus.transactions
    assert len(table) == len(wanted)
    assert rows(table, FIELDS) == [{key: row[key] for key in FIELDS} for row in wanted]
    assert len({a - b["start_clk"] for a, b in zip(table["start_clk"], wanted, strict=True)}) == 1
    assert bus.data_phases["byte_enables"].tolist() == [beat[2] for row in wanted for beat in row["beats"]]
    # Neither AD nor PAR was recorded.
    assert table["address"].isna().all()
    assert table["address_parity_ok"].isna().all()
    assert bus.data_phases["data"].isna().all()


@pytest.mark.parametrize("name", folders())
def test_clock_classes_sum_to_the_clocks(name: str) -> None:
    folder = find(name)
    for path in [*sorted(folder.glob("*.sr")), folder / "bus.vcd.gz"]:
        bus = pcitrace.open(path).bus
        for table in (bus.clocks(), bus.clocks(window_us=7.0)):
            classes = table[["unknown", "idle", "address", "data", "stop", "abort", "wait"]].sum(axis=1)
            assert (classes == table["total"]).all()
            waits = table[["turnaround", "decode", "both", "target", "initiator"]].sum(axis=1)
            assert (waits == table["wait"]).all()
        whole, windows = bus.clocks(), bus.clocks(window_us=7.0)
        assert whole["total"][0] == windows["total"].sum()
        assert whole["data"][0] == bus.transactions["data_phases"].sum()
        assert whole["busy"][0] == bus.transactions["clocks"].sum()


@pytest.mark.parametrize("name", truth.NIC)
@pytest.mark.parametrize("host", ["A", "B"])
def test_nic_vcd_equals_truth(name: str, host: str) -> None:
    """Every DMA transaction and every CSR access of a host; nothing else is on its bus."""
    folder = shared_dir() / "traces" / name
    run = pcitrace.open(folder / "bus.vcd.gz")
    assert list(run.buses) == ["A", "B"]
    bus = run[host]
    table = bus.transactions
    number = {time: n for n, time in enumerate((table["start_us"] * 1000).round().astype("int64"))}
    data = bus.data_phases.groupby("transaction")["data"].first()

    def at(time_ns: float) -> int:
        """The transaction that began then; truth is exact, the dump is rounded to 1 ns."""
        [found] = {number[t] for t in range(round(time_ns) - 1, round(time_ns) + 2) if t in number}
        return found

    known = set()
    for row in truth.lines(folder / "truth_dma.jsonl.gz"):
        if row["pc"] == host:
            got = table.iloc[at(row["addr_phase_ns"])]
            assert (got["command"], got["address"]) == (truth.COMMANDS[row["cmd"]], int(row["addr"], 16))
            assert (got["data_phases"], got["termination"]) == (row["n"], "completion")
            assert abs(got["last_data_us"] * 1000 - row["last_data_ns"]) < 1
            known.add(int(got["transaction"]))
    for row in truth.lines(folder / "truth_csr.jsonl.gz"):
        if row["pc"] == host and row["type"] == "csr":
            first, last = at(row["first_attempt_ns"]), at(row["last_attempt_ns"])
            got = table.iloc[last]
            assert (got["command"], got["address"]) == (truth.COMMANDS[row["cmd"]], int(row["addr"], 16))
            assert got["data_phases"] == 1
            assert got["termination"] in ("completion", "disconnect_with_data")  # truth does not say which
            assert data[last] == int(row["value"], 16)
            between = table.iloc[first:last]
            retries = between[(between["termination"] == "retry") & (between["address"] == int(row["addr"], 16))]
            assert len(retries) == row["retries"]
            known |= {last, *map(int, retries["transaction"])}
    assert known == set(range(len(table)))


@pytest.mark.parametrize("name", ["nic_g_a", "nic_ocg_a_sf"])
@pytest.mark.parametrize("host", ["A", "B"])
def test_nic_sampled_equals_vcd(name: str, host: str) -> None:
    """What a 16-channel analyser saw of the same run: the same transactions, as far as its lines go."""
    folder = shared_dir() / "traces" / name
    exact = pcitrace.open(folder / "bus.vcd.gz")[host].transactions
    seen = pcitrace.open(folder / "control16.sr")[host].transactions
    assert len(seen) == len(exact)
    fields = ["clocks", "data_phases", "wait_clks", "target_wait_clks", "devsel_clks", "termination"]
    assert rows(seen, fields) == rows(exact, fields)
    assert len(set(seen["start_clk"] - exact["start_clk"])) == 1
    # Sample k was taken at k x 10 ns of the simulation.
    late = seen["start_us"] - exact["start_us"]
    assert late.between(-0.001, 0.0101).all()
