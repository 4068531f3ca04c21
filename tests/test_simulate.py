"""The simulated bench: its waveforms keep the rules of the bus and decode to its own truth."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import oracle
import pytest
import simulated
from hypothesis import given
from hypothesis import strategies as st

from pcitrace import cli, runfolder
from pcitrace.simulate import PRESETS, Simulation, SimulationError, recording, simulate
from pcitrace.simulate.pci import Clock, Wait, shape

BENCHES = {
    "control": {},
    "control14": {"analyser.wires": "control14"},
    "command": {"analyser.wires": "command"},
    "full 32": {"analyser.wires": "full"},
    "full 64": {
        "analyser.wires": "full",
        "host.bus.width": 64,
        "host.nic.bus_width": 64,
        "host.bus.clock_mhz": 66.0,
        "host.bus.tval_ns": 4.0,
        "analyser.rate_mhz": 250.0,
    },
    "full, A 32 and B 64": {"analyser.wires": "full", "b.bus.width": 64, "b.nic.bus_width": 64},
    "full, A 64 and B 32": {"analyser.wires": "full", "a.bus.width": 64, "a.nic.bus_width": 64},
    "state": {"analyser.mode": "state", "analyser.wires": "full"},
    "state, started later": {"analyser.mode": "state", "analyser.offset_us": 4.5},
    "two analysers": {
        "analyser.separate": True,
        "analyser.offset_us": 4.321,
        "analyser.drift_ppm": 35.0,
        "analyser.offset_sigma_us": 0.01,
        "analyser.drift_sigma_ppm": 0.1,
        "analyser.rate_mhz": 200.0,
    },
    "cut-through": {
        "host.nic.cut_through_send_bytes": 128,
        "host.nic.cut_through_receive_bytes": 192,
        "host.nic.send_burst_limit_bytes": 64,
        "host.nic.burst_limit_bytes": 64,
        "host.nic.receive_fcs": True,
        "link.rate_mbit_s": 100.0,
        "test.kind": "ping-pong",
    },
    "everything goes wrong": {
        "analyser.wires": "full",
        "host.bus.wait_probability": 0.05,
        "host.bus.initiator_wait_probability": 0.03,
        "host.bus.retry_probability": 0.2,
        "host.bus.disconnect_probability": 0.01,
        "host.bus.latency_timer_clks": 32,
        "host.nic.csr_read_retries": (0, 3),
        "host.nic.burst_limit_bytes": 380,
        "host.nic.send_burst_limit_bytes": 512,
        "host.nic.descriptor_bytes": 16,
        "host.nic.status_bytes": 4,
        "host.nic.send_status": True,
        "host.nic.receive_status": True,
        "host.bus.park": "none",
        "link.loss": 0.1,
        "test.kind": "bidirectional",
        "test.spacing_us": 40.0,
        "test.sizes": (1, 64, 511, 1500),
    },
    "parked on the host, slow probes": {
        "analyser.wires": "full",
        "host.bus.park": "host",
        "host.bus.clock_jitter_ns": 0.3,
        "analyser.skew_ns": 1.0,
        "analyser.jitter_ns": 0.3,
        "analyser.rate_mhz": 200.0,
        "host.bus.memory_devsel_clks": 4,
        "host.bus.memory_write_first_clks": 1,
    },
}
COMPARED = (
    "start_clk", "clocks", "data_phases", "wait_clks", "target_wait_clks", "initiator_wait_clks", "devsel_clks",
    "termination",
)  # fmt: skip


@pytest.fixture(scope="module", params=BENCHES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "run"
    return simulate(Simulation(), folder, seed=3, test__count=12, values=BENCHES[request.param])


def captures(run: Path) -> dict[str, tuple[Path, int]]:
    """Return the capture of each bus, and the bench's number of its first clock."""
    described = simulated.run_toml(run)
    totals = simulated.truth(run)["clocks"]
    return {
        name: (run / described["captures"][host["capture"]]["file"], totals[name]["first_clk"])
        for name, host in described["hosts"].items()
    }


def test_waveforms_decode_to_the_truth(run: Path) -> None:
    for bus, (path, first_clk) in captures(run).items():
        clocks, _, captured = simulated.bus_clocks(simulated.read_sr(path)[0], bus)
        assert simulated.broken_rules(clocks) == []
        decoded = oracle.decode(clocks, captured, ["GNT_NIC#"])
        wanted = [
            row
            for row in simulated.rows(run, "transactions")
            if row["bus"] == bus and int(row["start_clk"]) >= first_clk
        ]
        assert decoded.illegal == []
        assert len(decoded.transactions) == len(wanted) > 20
        for got, want in zip(decoded.transactions, wanted, strict=True):
            for column in COMPARED:
                value = int(want[column]) if want[column].isdigit() else want[column]
                assert got[column] == (value - first_clk if column == "start_clk" else value), (column, want)
            assert got["initiator"] == ("GNT_NIC#" if want["initiator"] == "nic" else None)
            if "C/BE#" in captured:
                assert got["command"] == int(want["command"])
            if "AD" in captured:
                assert got["bytes"] == int(want["bytes"])
                assert got["address"] == int(want["address"])
                assert got["address_parity_ok"]
        if "AD" in captured:
            phases = [row for row in simulated.rows(run, "data_phases") if row["bus"] == bus]
            assert [(p["transaction"], p["data"], p["byte_enables"]) for p in decoded.data_phases] == [
                (int(p["transaction"]), int(p["data"]), int(p["byte_enables"])) for p in phases
            ]
            # Without PAR64 a 64-bit phase is half known.
            wide = any(phase["byte_enables"] > 0xF or phase["data"] >> 32 for phase in decoded.data_phases)
            known = [phase["parity_ok"] for phase in decoded.data_phases if phase["parity_ok"] is not None]
            assert all(known)
            assert wide or len(known) == len(decoded.data_phases) > 0
        counted = oracle.account(decoded.classes, captured)
        total = simulated.truth(run)["clocks"][bus]
        for name, count in counted.items():
            if name in total:
                unknown = name == "turnaround" and "C/BE#" not in captured
                assert count == (None if unknown else total[name]), name
        assert counted["unknown"] == 0


@pytest.mark.parametrize(
    ("rule", "wave"),
    [
        # One letter a clock and line: F I T S D asserted, in the order of the words.
        ("M01", ["F", "FID", "D"]),
        ("M02", ["FI", "ITD"]),
        ("M03", ["I"]),
        ("M04", ["F", "ID", "FITD"]),
        ("M05", ["F", "FI", "ID", "ITD"]),
        ("M06", ["F", "FI", "F"]),
        ("M07", ["F", "ITD", "ITD"]),
        ("M08", ["F"] * 9 + ["FITD", "ITD"]),
        ("M09", ["F", "FITD", *["FID"] * 8, "ITD"]),
        ("M10", ["F", "FISD", "FISD", "ISD"]),
        ("T01", ["F", *["FI"] * 4, "FITD", "ITD"]),
        ("T02", ["F", "IT"]),
        ("T03", ["F", "IS"]),
        ("T04", ["F", "FID", "FI", "ITD"]),
        ("T05", ["F", "FISD", "ID"]),
        ("T07", ["F", "FTD", "FID", "ITD"]),
        ("T08", ["F", "ITD", "D"]),
        ("T09", ["F", "FITSD", "ITSD"]),
        ("T10", ["F", "ITD"]),
        ("T11", ["F", *["ID"] * 16, "ITD"]),
    ],
)
def test_the_checker_finds_each_breach(rule: str, wave: list[str]) -> None:
    def clock(asserted: str) -> oracle.Clock:
        levels = {name: 0 for name, letter in zip(simulated.CONTROL, "FITSD", strict=True) if letter in asserted}
        return oracle.Clock(cbe=0x6 if rule == "T10" else 0x7, **levels)

    found = simulated.broken_rules([clock(""), *map(clock, wave), clock("")])
    assert any(rule in each.partition(": ")[2].partition(":")[0] for each in found), found


@given(
    phases=st.integers(0, 12),
    read=st.booleans(),
    devsel_clks=st.integers(1, 4),
    target_first_clks=st.integers(0, 16),
    initiator_first_clks=st.integers(1, 8),
    waits=st.dictionaries(st.integers(1, 11), st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=4),
    termination=st.sampled_from(("completion", "retry", "disconnect_with_data", "disconnect_without_data")),
    single=st.booleans(),
)
def test_every_shape_is_legal_and_decodes_to_what_it_was_made_of(
    phases: int,
    read: bool,
    devsel_clks: int,
    target_first_clks: int,
    initiator_first_clks: int,
    waits: dict[int, tuple[int, int]],
    termination: str,
    single: bool,
) -> None:
    if termination == "retry":
        phases = 0
    elif phases == 0 or termination != "completion":
        # To be cut short there must have been more to come.
        phases, single = max(phases, 1), False
    single = single and phases <= 1
    made = shape(
        phases,
        read=read,
        devsel_clks=devsel_clks,
        target_first_clks=target_first_clks,
        initiator_first_clks=initiator_first_clks,
        waits=tuple(Wait(phase, *waits[phase]) for phase in sorted(waits) if phase < phases),
        termination=termination,
        single=single,
    )
    starts = [run[0] for run in made.runs]
    codes = np.repeat([run[1] for run in made.runs], np.diff([*starts, made.clocks])).tolist()
    classes = np.repeat([run[2] for run in made.runs], np.diff([*starts, made.clocks])).tolist()
    command = 0x6 if read else 0x7
    idle = oracle.Clock(cbe=command)
    levels = [[1 - (code >> bit & 1) for bit in range(5)] for code in codes]
    busy = [oracle.Clock(frame=f, irdy=i, trdy=t, stop=s, devsel=d, cbe=command) for f, i, t, s, d in levels]
    clocks = [idle, *busy, idle]
    assert simulated.broken_rules(clocks) == []
    decoded = oracle.decode(clocks, frozenset({*oracle.CONTROL, "C/BE#"}))
    assert decoded.illegal == []
    (row,) = decoded.transactions
    assert (row["clocks"], row["data_phases"], row["termination"]) == (made.clocks, phases, termination)
    assert row["devsel_clks"] == made.devsel_clks == devsel_clks
    assert row["wait_clks"] == made.wait_clks
    assert row["target_wait_clks"] == made.target_wait_clks
    assert row["initiator_wait_clks"] == made.initiator_wait_clks
    assert [Clock(kind).name.lower() for kind in classes] == decoded.classes[1:-1]


def digests(run: Path) -> dict[str, str]:
    """Return the hash of every file of a run."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_one_seed_one_run(tmp_path: Path) -> None:
    values = {"analyser.wires": "full", "host.bus.retry_probability": 0.2, "test.count": 10, "sweep.sizes": (64, 700)}
    first, again, other = (
        digests(simulate(Simulation(), tmp_path / name, seed, values=values))
        for name, seed in (("first", 7), ("again", 7), ("other", 8))
    )
    assert first == again
    assert first["bus.sr"] != other["bus.sr"]
    assert first["latency.csv"] != other["latency.csv"]


@pytest.mark.parametrize("mode", ["timing", "state"])
def test_samples_do_not_depend_on_how_they_are_written(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"analyser.wires": "full", "analyser.jitter_ns": 0.3, "analyser.skew_ns": 1.0, "analyser.mode": mode}
    values |= {"test.count": 10, "test.kind": "bidirectional", "host.bus.latency_timer_clks": 24}
    whole = simulate(Simulation(), tmp_path / "whole", values=values)
    monkeypatch.setattr(recording, "SLICE_SAMPLES", 777)
    pieces = simulate(Simulation(), tmp_path / "pieces", values=values)
    for file in sorted(whole.glob("*.sr")):
        one, _ = simulated.read_sr(file)
        many, _ = simulated.read_sr(pieces / file.name)
        length = min(len(level) for level in (*one.values(), *many.values()))
        assert length > 10_000
        assert all(np.array_equal(one[name][:length], many[name][:length]) for name in one)
    for table in ("transactions", "data_phases", "csr", "bursts", "frames"):
        assert simulated.rows(whole, table) == simulated.rows(pieces, table)
    for bus, total in simulated.truth(whole)["clocks"].items():
        in_pieces = simulated.truth(pieces)["clocks"][bus]
        assert total["busy"] == in_pieces["busy"] > 0
        assert total["data"] == in_pieces["data"] > 0


def test_windows_sum_to_the_total(tmp_path: Path) -> None:
    run = simulate(Simulation(), tmp_path / "run", test__count=60)
    for bus, total in simulated.truth(run)["clocks"].items():
        windows = [row for row in simulated.rows(run, "clocks") if row["bus"] == bus]
        assert len(windows) > 2
        for name in ("total", "idle", "data", "target", "busy"):
            assert sum(int(row[name]) for row in windows) == total[name]


def test_truth_of_a_frame_is_consistent(tmp_path: Path) -> None:
    run = simulate(Simulation(), tmp_path / "run", values={"test.count": 40, "link.loss": 0.15})
    rows = simulated.rows(run, "frames")
    lost = [row for row in rows if row["lost"] == "True"]
    assert 0 < len(lost) < len(rows) / 2
    order = ("call_us", "csr_first_us", "csr_last_us", "dma_start_us", "dma_end_us", "wire_start_us", "wire_end_us")
    for row in rows:
        times = [float(row[name]) for name in order]
        assert times == sorted(times)
        if row["lost"] == "True":
            assert row["rx_dma_start_us"] == row["t_nic_us"] == row["deliver_us"] == ""
        else:
            wire_us = (max(int(row["length_bytes"]), 46) + 26) * 0.008
            gap_us = float(row["rx_dma_start_us"]) - float(row["dma_end_us"])
            assert float(row["t_nic_us"]) == pytest.approx((gap_us - wire_us) / 2, abs=2e-6)
            assert float(row["rx_dma_start_us"]) < float(row["rx_dma_end_us"]) < float(row["rx_csr_us"])
    logs = {log["kind"] + log["host"]: log["file"] for log in simulated.run_toml(run)["frame_logs"]}
    assert len(runfolder.read_frame_log(run / logs["sentA"])) == sum(row["sender"] == "A" for row in rows)
    received = runfolder.read_frame_log(run / logs["receivedB"])
    assert len(received) == sum(row["receiver"] == "B" and row["lost"] == "False" for row in rows)


def test_a_sent_queue_is_updated_in_its_order(tmp_path: Path) -> None:
    # Sends follow each other sooner than what may be between their DMA and their updates varies.
    values = {"test.kind": "bidirectional", "test.spacing_us": 2.0, "test.sizes": (46,), "test.count": 60}
    run = simulate(Simulation(), tmp_path / "run", values={**values, "host.driver.jitter_us": 3.0})
    for bus in "AB":
        updates = [row for row in simulated.rows(run, "csr") if (row["bus"], row["register"]) == (bus, "TX_CONSUMER")]
        frames = [int(row["frame"]) for row in updates]
        assert len(frames) == 60
        assert frames == sorted(frames)


def test_measured_relation_of_two_timebases(tmp_path: Path) -> None:
    values = {**BENCHES["two analysers"], "test.count": 30}
    run = simulate(Simulation(), tmp_path / "run", values=values)
    first, second = simulated.run_toml(run)["captures"]
    assert (first["offset_us"], first.get("drift_ppm", 0.0)) == (0.0, 0.0)
    assert second["offset_us"] == pytest.approx(4.321, abs=0.05)
    assert second["drift_ppm"] == pytest.approx(35.0, abs=0.5)
    levels, rate_mhz = simulated.read_sr(run / "B.sr")
    _, rises, _ = simulated.bus_clocks(levels, "B")
    # The bus's clock as an analyser sees it whose second is 35 ppm too long.
    seen_mhz = (len(rises) - 1) / (rises[-1] - rises[0]) * rate_mhz
    assert seen_mhz == pytest.approx(33.333 * (1 + 35e-6), rel=2 / len(rises))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"host.nic.burst_limit": 4}, ("host.nic.burst_limit", "burst_limit_bytes")),
        ({"nonsense": 1}, ("nonsense", "there is no")),
        ({"test.count.x": 1}, ("test.count.x", "has no parts")),
        ({"host": 1}, ("host", "name one of its fields")),
        ({"test.count": "many"}, ("test.count", "many")),
        ({"test.count": 1.5}, ("test.count", "int")),
        ({"test.kind": "flood"}, ("test.kind", "request-response")),
        ({"test.sizes": ()}, ("test.sizes", "user bytes")),
        ({"host.driver.send": (1, 2)}, ("driver.send",)),
        ({"host.bus.width": 16}, ("bus.width", "32 or 64")),
        ({"a.nic.bus_width": 64}, ("a.nic.bus_width",)),
        ({"link.loss": 1.0}, ("link.loss",)),
        ({"analyser.wires": "all"}, ("analyser.wires", "control16")),
        ({"analyser.rate_mhz": 0}, ("analyser.rate_mhz",)),
        ({"host.bus.clock_mhz": float("nan")}, ("clock_mhz",)),
        ({"analyser.duration_us": -1}, ("analyser.duration_us",)),
        ({"test.spacing_us": -1}, ("test.spacing_us",)),
        ({"test.sizes": "64, 2000"}, ("test.sizes", "2000")),
        ({"host.nic.csr_read_retries": (3, 1)}, ("csr_read_retries", "smaller first")),
        ({"host.bus.memory_devsel_clks": 5}, ("memory_devsel_clks", "subtractive")),
        ({"host.driver.receive": ()}, ("driver.receive",)),
    ],
)
def test_what_cannot_be_built_is_refused(values: dict, words: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(SimulationError) as caught:
        simulate(Simulation(), tmp_path / "run", values=values)
    assert all(word in str(caught.value) for word in words), caught.value
    assert list(tmp_path.iterdir()) == []


def test_a_wire_that_runs_out_of_data_is_refused(tmp_path: Path) -> None:
    values = {"host.nic.cut_through_send_bytes": 64, "host.nic.send_burst_limit_bytes": 64}
    values |= {"host.nic.piece_pause_us": 2.0, "test.sizes": (1500,)}
    with pytest.raises(SimulationError, match="ran out of data"):
        simulate(Simulation(), tmp_path / "run", values=values)
    assert list(tmp_path.iterdir()) == []


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    arguments = ["simulate", "acenic-fig4.2a", "-o", str(run), "--seed", "5"]
    arguments += ["--set", "test.count=7", "test.sizes=64,100", "--set", "analyser.wires=control14"]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "simulated" in said
    assert "3.03 samples a clock" in said
    described = simulated.run_toml(run)
    assert described["origin"] == "simulated"
    assert described["simulation"]["seed"] == 5
    assert described["test"]["sizes"] == [64, 100]
    assert len(simulated.rows(run, "frames")) == 7
    assert len(simulated.read_sr(run / "bus.sr")[0]) == 14
    before = digests(run)
    assert cli.main(arguments) == 3
    assert "something in it already" in capsys.readouterr().err
    assert digests(run) == before
    assert cli.main(["simulate", "acenic", "-o", str(tmp_path / "other")]) == 3
    assert "acenic-fig3.1" in capsys.readouterr().err
    assert cli.main(["simulate", "acenic-fig3.1", "-o", str(tmp_path / "other"), "--set", "test.count"]) == 3
    assert "KEY=VALUE" in capsys.readouterr().err
    assert cli.main(["simulate"]) == 2
    assert cli.main(["simulate", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed and preset.title in listed for name, preset in PRESETS.items())


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pcitrace", "simulate", "acenic-fig4.2a", "-o", str(tmp_path / "run")]
    # Tests that a shell started in the background ignore Ctrl-C, and so does all that they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    child = subprocess.Popen([*command, "--set", "test.count=1000000"], stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".run.*/bus.sr")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert errors.strip() == "pcitrace: interrupted"
    assert list(tmp_path.iterdir()) == []
