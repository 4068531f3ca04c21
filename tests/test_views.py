"""The state listing, and what is counted of a bus by view: against the tables and a slow count of our own."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import slow_vcd
import waveforms
from conftest import REPOSITORY

import pcitrace
from pcitrace.cli import main

TRACES = REPOSITORY / "fixtures" / "traces"
SEQ1, SEQ6, NIC = (TRACES / name / "bus.vcd.gz" for name in ("blue33_seq1", "blue33_seq6", "nic_g_a"))
FAULTS = REPOSITORY / "fixtures" / "faults"
CONTROL_LINES = ["FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_a_clock_is_a_line_with_all_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Against the slow reader of VCD files, clock by clock."""
    rows = printed(capsys, "list", SEQ1, "--layer", "clocks").splitlines()
    assert [row[0] for row in rows[:2]] == ["#", "#"]
    edges = list(slow_vcd.edges(SEQ1, "CLK"))
    assert len(rows) - 2 == len(edges) > 500
    asserted = {"0": True, "1": False, "z": False}
    for number, (row, (_, v)) in enumerate(zip(rows[2:], edges, strict=True)):
        _, _, clk, control, ad, cbe, par, *others = row.split()
        assert int(clk) == number
        levels = [asserted.get(v[name]) for name in ("FRAME", "IRDY", "TRDY", "STOP", "DEVSEL")]
        if None not in levels[:4]:
            shown = "".join(name if on else "." for name, on in zip("FITSD", levels, strict=True))
            assert control == shown
        known = set(v["AD"]) <= {"0", "1"}
        assert ad == (f"{int(v['AD'], 2):08x}" if known else "????????")
        assert cbe == (f"{int(v['CBE'], 2):x}" if set(v["CBE"]) <= {"0", "1"} else "?")
        assert par == (v["PAR"] if v["PAR"] in ("0", "1") else "?")
        assert ("RST#" in others) is (v["RST"] == "0")


def test_clocks_are_chosen_by_time_clock_and_sample(capsys: pytest.CaptureFixture[str]) -> None:
    capture = FAULTS / "missing-turnaround.sr"
    whole = printed(capsys, "list", capture, "--layer", "clocks").splitlines()[2:]
    for arguments, wanted in (
        (["--from", "5us", "--to", "6us"], lambda us, clk: 5 <= us < 6),
        (["--from", "100clk", "--to", "110clk"], lambda us, clk: 100 <= clk < 110),
        (["--from", "1000sample", "--to", "1200sample"], lambda us, clk: 5 <= us < 6),
        (["--around", "5us,0.2us"], lambda us, clk: 4.8 <= us < 5.2),
    ):
        rows = printed(capsys, "list", capture, "--layer", "clocks", *arguments).splitlines()[2:]
        assert rows == [row for row in whole if wanted(float(row.split()[0]), int(row.split()[2]))]
        assert rows
    with pytest.raises(SystemExit, match="2"):
        main(["list", str(NIC), "--layer", "clocks"])
    assert "one bus; name one of A, B with --bus" in capsys.readouterr().err


def test_interrupts_are_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    bus = pcitrace.open(SEQ6).bus
    events = bus.arrow("events").to_pylist()
    text = printed(capsys, "list", SEQ6)
    told = [line for line in text.splitlines() if re.search(r"INT[A-D]# |LOCK# (asserted|released)", line)]
    told = [line for line in told if not line.startswith("!")]
    assert len(told) == len(events)
    assert all(line.startswith(" ") for line in told)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_decode_chooses(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, phases, problems = (tmp_path / f"{name}{suffix}" for name in ("t", "d", "p"))
    condition = "command in (memory_read, io_read) and bytes > 0"
    printed(
        capsys, "decode", SEQ6, "--where", condition, "--to", "500us", "-o", out, "--data-phases", phases,
        "--problems", problems,
    )  # fmt: skip
    read = {".csv": pd.read_csv, ".jsonl": lambda p: pd.read_json(p, lines=True), ".parquet": pd.read_parquet}[suffix]
    bus = pcitrace.open(SEQ6).bus
    rows = bus.where(condition)
    numbers = rows[rows["start_us"] < 500]["transaction"].tolist()
    assert read(out)["transaction"].tolist() == numbers
    assert len(numbers) > 50
    wanted = bus.data_phases[bus.data_phases["transaction"].isin(numbers)]
    assert read(phases)["transaction"].tolist() == wanted["transaction"].tolist()
    told = bus.problems[bus.problems["transaction"].isin(numbers)]
    assert read(problems)["first_clk"].tolist() == told["first_clk"].tolist()


def test_problems_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed(capsys, "decode", SEQ1, "--problems", "-").splitlines()
    assert rows[0].startswith('"bus"') or rows[0].startswith("bus,")
    assert len(rows) - 1 == len(pcitrace.open(SEQ1).bus.problems)


def test_what_keeps_the_bus_busy(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "stats", NIC, "--bus", "A", "--top", 2, "--grant", "eth0=GNT_NIC#")
    assert max(map(len, text.splitlines())) <= 100
    top = json.loads(printed(capsys, "stats", NIC, "--bus", "A", "--top", 2, "--json"))["A"]["top"]
    rows = pcitrace.open(NIC)["A"].transactions
    commands = rows.groupby("command_name")["clocks"].sum().sort_values(ascending=False)
    assert [(one["name"], one["clocks"]) for one in top["commands"]] == list(commands.items())
    assert sum(one["transactions"] for one in top["terminations"]) == len(rows)
    assert {one["name"] for one in top["targets"]} >= {"eth0"}
    waits = rows["wait_clks"].max()
    assert top["slowest"][0]["wait_clks"] == waits


def test_statistics_of_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, "stats", SEQ6, "--where", "command == memory_write", "--from", "100us", "--json"))
    rows = pcitrace.open(SEQ6).bus.where("command == memory_write and start_us >= 100")
    assert told["pci"]["transactions"] == len(rows)
    assert told["pci"]["commands"] == {"memory_write": len(rows)}
    assert told["pci"]["latency_us"]["first_data"]["n"] == int(rows["first_data_us"].notna().sum())


def waited(path: Path) -> tuple[Counter[int], Counter[int]]:
    """Clocks from REQ# to GNT#, and from there to the address phase, counted slowly."""
    arbitration: Counter[int] = Counter()
    acquisition: Counter[int] = Counter()
    clocks = [v for _, v in slow_vcd.edges(path, "CLK")]
    agents = len(clocks[0]["GNT"])

    def on(n: int, bus: str, agent: int) -> bool:
        return clocks[n][bus][agents - 1 - agent] == "0"

    frame = [v["FRAME"] == "0" for v in clocks]
    for agent in range(agents):
        asked = granted = None
        for n in range(1, len(clocks)):
            alone = [k for k in range(agents) if on(n - 1, "GNT", k)] == [agent]
            if frame[n] and not frame[n - 1] and alone and granted is not None:
                acquisition[n - granted] += 1
                granted = None
            if on(n - 1, "GNT", agent) and not on(n, "GNT", agent) and granted is not None:
                granted = None
                asked = n if on(n, "REQ", agent) else asked
            if on(n, "REQ", agent) and not on(n - 1, "REQ", agent):
                asked = n
            if on(n, "GNT", agent) and asked is not None:
                arbitration[n - asked] += 1
                asked, granted = None, n
    return arbitration, acquisition


def test_arbitration_and_acquisition() -> None:
    bus = pcitrace.open(SEQ1).bus
    slow = waited(SEQ1)
    for counts, wanted in zip(bus.capture.decoder.requests(bus.spec)[:2], slow, strict=True):
        assert sum(wanted.values()) > 10
        assert counts == dict(wanted)


def test_latencies_of_the_arbiter(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, "stats", SEQ1, "--json"))["pci"]["latency_us"]
    assert told["arbitration"]["n"] > 10
    assert told["acquisition"]["min"] >= 0.03 - 1e-3
    missing = json.loads(printed(capsys, "stats", NIC, "--bus", "A", "--json"))["A"]["latency_us"]["arbitration"]
    assert missing["n"] or "not captured" in missing["reason"]


@pytest.mark.parametrize("clocks", [1, 5, 40])
def test_a_capture_in_which_nothing_happens(clocks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told so; none of the commands stops at it."""
    capture = waveforms.Sampled(CONTROL_LINES, np.ones((clocks, len(CONTROL_LINES)), np.uint8), None)
    path = waveforms.write_sr(tmp_path / "idle.sr", capture)
    state = ("--clock-mhz", "33")
    for command in ("stats", "list", "check", "devices", "decode", "bursts"):
        printed(capsys, command, path, *state)
    assert printed(capsys, "find", path, "retry", *state).startswith("bus PCI: 0 matches")
    assert printed(capsys, "diff", path, path, *state).startswith("equal")
