"""Frames of the simulated bench against its own event log, both ways: batches, losses, cut-through, retries."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from cardbench import Bench, score, write
from cardbench.files import profile as card_profile
from conftest import shared_dir

import pcitrace
from pcitrace import analysis
from pcitrace.cli import main
from pcitrace.errors import FrameMatchError
from pcitrace.frames import Frames, build
from pcitrace.schema import FRAMES
from pcitrace.simulate import random_bench, simulate
from pcitrace.simulate.config import Simulation
from pcitrace.traffic import Nic, analyse
from pcitrace.traffic.asked import SURE

RINGS = {
    "host.nic.descriptor_bytes": 16,
    "host.nic.descriptors_per_fetch": 4,
    "host.nic.status_bytes": 4,
    "host.nic.send_status": True,
    "host.nic.receive_status": True,
}
ROUGH = {
    "host.bus.retry_probability": 0.1,
    "host.bus.disconnect_probability": 0.01,
    "host.bus.wait_probability": 0.05,
    "host.bus.initiator_wait_probability": 0.05,
}
BENCHES: dict[str, dict[str, Any]] = {
    "request-response": {"test.count": 40},
    "stream with losses": {
        "test.kind": "stream",
        "test.spacing_us": 20.0,
        "test.count": 120,
        "link.loss": 0.05,
        "host.nic.burst_limit_bytes": 380,
        **RINGS,
        **ROUGH,
    },
    "both directions": {
        "test.kind": "bidirectional",
        "test.spacing_us": 25.0,
        "test.count": 80,
        "link.loss": 0.05,
        "host.nic.burst_limit_bytes": 64,
        **RINGS,
        **ROUGH,
    },
    "groups": {
        "test.kind": "stream",
        "test.spacing_us": 20.0,
        "test.count": 100,
        "test.sizes": (1500,),
        "host.driver.group_frames": 25,
        "host.nic.burst_limit_bytes": 380,
        "link.loss": 0.03,
        **ROUGH,
    },
    "cut-through": {
        "test.kind": "stream",
        "test.spacing_us": 150.0,
        "test.count": 80,
        "link.rate_mbit_s": 100.0,
        "link.loss": 0.05,
        "host.nic.cut_through_send_bytes": 128,
        "host.nic.cut_through_receive_bytes": 192,
        "host.nic.burst_limit_bytes": 64,
        "host.nic.receive_fcs": True,
        "host.nic.csr_read_retries": (1, 3),
        **ROUGH,
    },
    "66 MHz, 64 bit": {
        "test.kind": "bidirectional",
        "test.spacing_us": 30.0,
        "test.count": 60,
        "link.loss": 0.02,
        "host.bus.clock_mhz": 66.0,
        "host.bus.width": 64,
        "host.nic.bus_width": 64,
        "analyser.rate_mhz": 400.0,
        **RINGS,
        **ROUGH,
    },
}
TIMES = ("dma_start_us", "dma_end_us", "wire_start_us", "wire_end_us", "rx_dma_start_us", "rx_dma_end_us")
HEADER = 'format = 1\nname = "simulated"\ntitle = "simulated bench"\nsources = ["the bench\'s own parameters"]\n'


def profile(values: dict[str, Any], folder: Path) -> str:
    """Write the NIC profile of a bench: what its maker would state."""
    cut = "cut_through" if "host.nic.cut_through_send_bytes" in values else "store_and_forward"
    fcs = "true" if values.get("host.nic.receive_fcs") else "false"
    text = f'{HEADER}[dma]\nsend = "{cut}"\nreceive = "{cut}"\nreceive_fcs = {fcs}\n'
    if "host.nic.descriptor_bytes" in values:
        one = "size_bytes = 16\nfetch_max = 4\n"
        text += '[descriptors]\nplace = "host_memory"\nstatus_bytes = [4]\n'
        text += f"[descriptors.send]\n{one}[descriptors.receive]\n{one}"
    else:
        text += '[descriptors]\nplace = "card"\n'
    path = folder / "nic.toml"
    path.write_text(text)
    return str(path)


def analysed(folder: Path, values: dict[str, Any], wires: str, seed: int = 1) -> tuple[Frames, pd.DataFrame, float]:
    simulate(Simulation(), folder / "run", seed, values={**values, "analyser.wires": wires})
    run = pcitrace.open(folder / "run")
    frames = analysis.frames(run, profile=profile(values, folder) if wires != "full" else None)
    step_us = 1e6 / run.captures[0].rate_hz
    clock_us = max(1 / run[host].clock_mhz for host in "AB")
    return frames, pd.read_csv(folder / "run" / "truth" / "frames.csv"), clock_us + step_us


def compare(frames: Frames, truth: pd.DataFrame, within_us: float) -> None:
    """Every sent frame has one row and every row one frame; all times agree, nulls included."""
    found = frames.table
    assert len(found) == len(truth)
    for sender, wanted in truth.sort_values("dma_start_us").groupby("sender"):
        rows = found[found["sender"] == sender]
        assert len(rows) == len(wanted)
        for name in TIMES:
            a, b = rows[name].to_numpy(dtype=float, na_value=np.nan), wanted[name].to_numpy(dtype=float)
            assert (np.isnan(a) == np.isnan(b)).all(), name
            assert np.nanmax(np.abs(a - b)) <= within_us, name
        assert np.abs(rows["length_bytes"].to_numpy(dtype=float) - wanted["length_bytes"]).max() <= 2


@pytest.mark.parametrize("name", BENCHES)
def test_with_all_lines(tmp_path: Path, name: str) -> None:
    frames, truth, within_us = analysed(tmp_path, BENCHES[name], "full")
    compare(frames, truth, within_us)
    assert frames.table["sequence"].tolist() == truth.sort_values("dma_start_us")["sequence"].tolist()
    lost = int(truth["rx_dma_start_us"].isna().sum())
    assert len(frames.drop_log) == lost
    assert frames.drop_log["reason"].str.startswith("not received").all()
    for name_csr in ("csr_last_us", "rx_csr_us"):
        wanted = truth.sort_values("dma_start_us")[name_csr].to_numpy(dtype=float)
        got = frames.table[name_csr].to_numpy(dtype=float, na_value=np.nan)
        assert np.nanmax(np.abs(got - wanted)) <= within_us, name_csr


@pytest.mark.parametrize("name", BENCHES)
def test_with_control_lines_only(tmp_path: Path, name: str) -> None:
    frames, truth, within_us = analysed(tmp_path, BENCHES[name], "control16")
    compare(frames, truth, within_us)
    assert set(frames.table["sequence_source"]) == {"log"}
    assert frames.table["sequence"].tolist() == truth.sort_values("dma_start_us")["sequence"].tolist()


@pytest.mark.parametrize(
    ("preset", "values"),
    [
        ("acenic-fig4.2b", {}),  # back to back, and none is cut
        ("pro1000-370dle-11us", {}),  # cut into pieces that 32 descriptors would fill
        ("pro1000-p4dp6-8us", {"test.kind": "request-response", "test.sizes": (64, 900, 1428)}),
    ],
)
def test_with_control_lines_and_no_wire(tmp_path: Path, preset: str, values: dict[str, Any]) -> None:
    simulate(preset, tmp_path / "run", values={**values, "analyser.wires": "control14", "test.count": 60})
    run = pcitrace.open(tmp_path / "run")
    truth = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv").sort_values("dma_start_us")
    found = run.frames.table
    for name in ("dma_start_us", "dma_end_us", "rx_dma_start_us", "rx_dma_end_us"):
        assert np.abs(found[name].to_numpy(dtype=float) - truth[name].to_numpy()).max() < 0.03, name
    bound = found["length_bytes"].to_numpy(dtype=float) - truth["length_bytes"].to_numpy()
    assert ((bound >= 0) & (bound < 8)).all()
    # Exact are those that the sender's log tells.
    assert (bound[found["length_exact"].to_numpy(dtype=bool)] == 0).all()


def test_padded_frames(tmp_path: Path) -> None:
    """Frames shorter than 46 bytes are read as they are, and written as they come: padded."""
    values = {"test.sizes": (1, 10, 30, 46, 47, 100), "test.request_bytes": 1, "test.count": 24}
    simulate("acenic-fig3.1", tmp_path / "run", values=values)
    truth = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv").sort_values("dma_start_us")
    found = pcitrace.open(tmp_path / "run").frames.table
    for name in ("dma_start_us", "dma_end_us", "rx_dma_start_us", "rx_dma_end_us"):
        assert np.abs(found[name].to_numpy(dtype=float) - truth[name].to_numpy()).max() < 0.04, name
    assert np.abs(found["length_bytes"].to_numpy(dtype=float) - truth["length_bytes"].to_numpy()).max() <= 3
    bursts = pd.read_csv(tmp_path / "run" / "truth" / "bursts.csv")
    assert bursts[bursts["kind"] == "receive"]["bytes"].min() == 60


@pytest.mark.parametrize("seed", [0, 2, 6, 11])
def test_an_overloaded_receiver_is_given_no_wrong_frame(tmp_path: Path, seed: int) -> None:
    """Queues of 100 us on both buses, cut into pieces by each other: what cannot be told is null."""
    values = {**BENCHES["both directions"], "test.spacing_us": 8.0, "host.nic.burst_limit_bytes": 380}
    frames, truth, within_us = analysed(tmp_path, values, "control16", seed)
    given = unclear = 0
    for sender, wanted in truth.sort_values("dma_start_us").groupby("sender"):
        rows = frames.table[frames.table["sender"] == sender]
        assert np.abs(rows["dma_start_us"].to_numpy(dtype=float) - wanted["dma_start_us"]).max() <= within_us
        got = rows["rx_dma_start_us"].to_numpy(dtype=float, na_value=np.nan)
        there = ~np.isnan(got)
        assert np.abs(got - wanted["rx_dma_start_us"].to_numpy())[there].max(initial=0.0) <= within_us
        given += int(there.sum())
        # Where another reading of the pieces is likelier the margin says so; that is of few: 10 of 80 with one of these
        # seeds, where another one is cheaper by 2 nats a frame, and none to 4 with the others.
        null = ~there & wanted["rx_dma_start_us"].notna().to_numpy()
        doubted = null & (rows["margin_receive"].to_numpy(dtype=float, na_value=np.inf) < SURE)
        assert doubted.sum() <= 0.15 * len(rows)
        unclear += int((null & ~doubted).sum())
    assert given > 10
    reasons = frames.drop_log["reason"]
    assert not unclear or reasons.isin(["not received, or a receive that may be another frame's as well"]).any()


@pytest.mark.parametrize("arrivals", ["regular", "poisson"])
def test_equal_frames_of_which_some_are_lost(tmp_path: Path, arrivals: str) -> None:
    """Control lines only, one size, several frames under way at once: none is given the receive of another."""
    values = {"test.kind": "stream", "test.sizes": (500,), "test.spacing_us": 10.0, "test.arrivals": arrivals}
    told = 0
    for seed in range(4):
        bench = random_bench(seed, wires=("control16",)).with_values(values | {"link.loss": 0.05})
        simulate(bench, tmp_path / str(seed), seed=seed)
        found = pcitrace.open(tmp_path / str(seed)).frames.table
        true = pd.read_csv(tmp_path / str(seed) / "truth" / "frames.csv")
        assert len(found) == len(true)
        off = found["rx_dma_start_us"].to_numpy(dtype=float) - true["rx_dma_start_us"].to_numpy()
        assert not (np.abs(off) > 0.05).any()
        # Which of equal frames got lost is hardly told: then those beside it are not, or nothing is. Of regular ones,
        # all of which may be the next as well, two benches are told; 1.4 and 2 nats speak against what is right of
        # another.
        told += int((np.isnan(off) & ~true["lost"].to_numpy(dtype=bool)).sum()) <= 0.1 * len(true)
    assert told >= (2 if arrivals == "regular" else 3)


@pytest.mark.parametrize("seed", [9, 10, 24])
def test_a_status_between_the_pieces_of_a_receive(tmp_path: Path, seed: int) -> None:
    """Control lines only, both directions: a send's status comes between the pieces of a receive."""
    values = {
        "test.kind": "bidirectional",
        "test.spacing_us": 30.0,
        "link.loss": 0.02,
        "host.bus.disconnect_probability": 0.01,
        "host.nic.send_status": True,
        "host.nic.receive_status": True,
    }
    simulate(random_bench(seed, wires=("control16",)).with_values(values), tmp_path / "run", seed=seed)
    run = pcitrace.open(tmp_path / "run")
    within_us = max(1 / run[host].clock_mhz for host in "AB") + 1e6 / run.captures[0].rate_hz
    compare(run.frames, pd.read_csv(tmp_path / "run" / "truth" / "frames.csv"), within_us)


@pytest.mark.parametrize("wires", ["control16", "full"])
def test_a_log_that_disagrees_is_a_finding(tmp_path: Path, wires: str) -> None:
    frames, _, _ = analysed(tmp_path, {"test.count": 8, "test.kind": "stream"}, wires)
    assert frames.findings == ()
    assert set(frames.table["sequence_source"]) == {"frame" if wires == "full" else "log"}
    run = pcitrace.open(tmp_path / "run")
    files = {(one["host"], one["kind"]): tmp_path / "run" / one["file"] for one in run.folder.run["frame_logs"]}
    log = np.load(files["A", "sent"])

    def found(key: tuple[str, str], records: np.ndarray) -> str:
        kept = files[key].read_bytes()
        np.save(files[key], records)
        frames = analysis.frames(pcitrace.open(tmp_path / "run"))
        files[key].write_bytes(kept)
        assert set(frames.table["sequence_source"]) == {"frame" if wires == "full" else "order"}
        [finding] = frames.findings
        return finding

    assert found(("A", "sent"), log[1:]).startswith("A: its frame log has 7 frames, the trace 8; they are not joined")
    longer = log.copy()
    longer["length_bytes"][2] += 1 if wires == "full" else 100
    assert found(("A", "sent"), longer).startswith("A: 1 frames of its log have other lengths")
    if wires == "full":
        turned = log.copy()
        turned["sequence"] = log["sequence"][::-1]
        assert found(("A", "sent"), turned).startswith("A: 8 frames carry other numbers than in its log")
    np.save(files["B", "received"], np.load(files["B", "received"])[:-2])
    assert analysis.frames(run).findings == (
        "B: its log has 6 frames received, the trace 8: frames were lost in the host, or it is the log of another run "
        "or host",
    )


@pytest.mark.parametrize(
    ("stated", "instead", "said"),
    [
        ("clock_mhz = 33.333", "clock_mhz = 66", "A: run.toml says a bus clock of 66 MHz, the capture shows 33.33"),
        (
            "rate_hz = 100000000.0",
            "rate_hz = 200e6",
            "A: run.toml says a bus clock of 33.333 MHz, the capture shows 66",
        ),
        ("samples = ", "samples = 1", "samples, run.toml says 1"),
    ],
)
def test_a_capture_that_is_not_what_is_stated_is_a_finding(
    tmp_path: Path, stated: str, instead: str, said: str
) -> None:
    simulate(Simulation(), tmp_path / "run", values={"test.count": 5})
    file = tmp_path / "run" / "run.toml"
    text = file.read_text()
    assert stated in text
    file.write_text(text.replace(stated, instead))
    assert any(said in finding for finding in pcitrace.open(tmp_path / "run").frames.findings)


def test_bursts_and_accesses_equal_truth(tmp_path: Path) -> None:
    """Kinds, pieces and data phases of every burst, and the frame it belongs to; every CSR access."""
    frames, _, within_us = analysed(tmp_path, BENCHES["both directions"], "full")
    kinds = {
        "descriptor": "descriptor_fetch",
        "send": "send_data",
        "receive": "receive_data",
        "send_status": "status_write",
        "receive_status": "status_write",
    }
    bursts = pd.read_csv(tmp_path / "run" / "truth" / "bursts.csv")
    csr = pd.read_csv(tmp_path / "run" / "truth" / "csr.csv")
    for host in "AB":
        wanted = bursts[bursts["bus"] == host].sort_values("first_data_us")
        found = frames.hosts[host].bursts.sort_values("first_data_us")
        assert found["kind"].tolist() == [kinds[kind] for kind in wanted["kind"]]
        assert found["data_phases"].tolist() == wanted["data_phases"].tolist()
        assert found["address"].tolist() == wanted["address"].tolist()
        assert np.abs(found["first_data_us"].to_numpy(dtype=float) - wanted["first_data_us"]).max() <= within_us
        wanted = csr[csr["bus"] == host].sort_values("first_attempt_us")
        found = frames.hosts[host].csr_accesses
        assert found["attempts"].tolist() == wanted["attempts"].tolist()
        assert found["address"].tolist() == wanted["address"].tolist()
        assert np.abs(found["first_attempt_us"].to_numpy(dtype=float) - wanted["first_attempt_us"]).max() <= within_us


def test_which_frames_waited(tmp_path: Path) -> None:
    frames, _, _ = analysed(tmp_path, BENCHES["request-response"], "full")
    assert not frames.table["queued"].any()
    values = {**BENCHES["groups"], "link.loss": 0.0}
    folder = tmp_path / "groups"
    folder.mkdir()
    frames, truth, _ = analysed(folder, values, "full")
    told = frames.table["queued"].to_numpy(dtype=bool)
    waited = truth.sort_values("dma_start_us")["waited"].to_numpy(dtype=bool)
    assert (told | ~waited).all(), "a frame that waited must be told"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    folder = tmp_path_factory.mktemp("small")
    return analysed(folder, {"test.count": 8, "test.sizes": (64, 1500)}, "full")[0]


def test_selection(small: Frames) -> None:
    large = small["length_bytes >= 1000"]
    assert set(large.table["length_bytes"]) == {1500}
    assert len(large) + len(small["length_bytes < 1000"]) == len(small)
    assert repr(large) == f"<Frames: {len(large)} frames, {len(large)} received; 0 dropped>"
    assert len(small["status_us > 0"]) == 0, "null fulfils no condition"
    with pytest.raises(FrameMatchError, match="neither true nor false"):
        small["length_bytes + 1"]
    with pytest.raises(FrameMatchError, match=r"'size > 3' is no condition on frames: .*length_bytes"):
        small["size > 3"]


def test_one_host_tells_what_it_can(small: Frames, tmp_path: Path) -> None:
    simulate(Simulation(), tmp_path / "run", 1, values={"test.count": 8, "analyser.wires": "full"})
    toml = tmp_path / "run" / "run.toml"
    run = pcitrace.open(tmp_path / "run")
    host = analysis._host(run, "A", None)
    frames = build({"A": host}, link=analysis._link(run))
    assert toml.is_file()
    assert len(frames) == 8
    assert frames.table["dma_start_us"].notna().all()
    assert frames.table["wire_start_us"].notna().all()
    assert frames.table["rx_dma_start_us"].isna().all()
    assert frames.table["receiver"].isna().all()
    assert frames.table["t_nic_tx_us"].notna().all()


def test_a_receiver_alone_has_no_frames_but_says_why(tmp_path: Path) -> None:
    """The sender's bus shows no NIC traffic: its receives are in the drop log, and that is a finding."""
    simulate(
        Simulation(), tmp_path / "run", 1, values={"test.count": 4, "test.kind": "stream", "analyser.wires": "full"}
    )
    run = pcitrace.open(tmp_path / "run")
    hosts = {name: replace(analysis._host(run, name, None), wire=None) for name in "AB"}
    bus, profile = run["A"], run.folder.profile("A")
    table, phases = bus.transactions, bus.data_phases
    silent = table[table["initiator"].isna() | (table["initiator"] != "GNT_NIC#")]
    phases = phases[phases["transaction"].isin(silent["transaction"])]
    traffic = analyse(silent, phases, bus="A", nic=Nic(profile, bus.lines))
    frames = build(hosts | {"A": replace(hosts["A"], traffic=traffic)}, link=analysis._link(run))
    assert len(frames) == 0
    assert frames.drop_log["kind"].tolist() == ["receive_data"] * 4
    assert any("no transaction was begun by the NIC" in finding for finding in frames.findings)


def test_swapped_wiring_is_a_finding(tmp_path: Path) -> None:
    """Host A's bus with host B's wire: nothing fits, and that is said."""
    simulate(Simulation(), tmp_path / "run", 1, values={"test.count": 8, "analyser.wires": "full"})
    run = pcitrace.open(tmp_path / "run")
    hosts = {name: analysis._host(run, name, None) for name in "AB"}
    swapped = {name: replace(hosts[name], wire=hosts[other].wire) for name, other in ("AB", "BA")}
    frames = build(swapped, link=analysis._link(run))
    assert any("is the wire the other host's" in finding for finding in frames.findings)


def test_a_receive_before_its_capture_begins_is_not_said_to_be_none(tmp_path: Path) -> None:
    """The second analyser begins later: the first frames may have been received."""
    values = {"analyser.separate": True, "analyser.offset_us": 400.0, "test.count": 20}
    frames, truth, _ = analysed(tmp_path, {**values, "test.kind": "stream"}, "control16")
    early = truth[truth["rx_dma_end_us"] < 400]
    log = frames.drop_log
    assert 2 <= len(early) < len(truth) - 2
    assert set(log["reason"][log["time_us"] < early["rx_dma_end_us"].max()]) == {
        "its receive may be before that capture begins"
    }
    assert not (log["reason"] == "not received").any()


def test_captures_that_do_not_overlap_are_a_finding(tmp_path: Path) -> None:
    simulate(Simulation(), tmp_path / "run", 1, values={"test.count": 4, "analyser.wires": "full"})
    file = tmp_path / "run" / "run.toml"
    text = file.read_text()
    capture = text[text.index("[[captures]]") :].split("[[captures]]")[1].split("\n[")[0]
    second = f"[[captures]]{capture}".replace("offset_us = 0.0\n", "") + "\noffset_us = 1e6\n"
    text = text.replace(f"[[captures]]{capture}", f"[[captures]]{capture}\n{second}", 1)
    text = re.sub(r"(\[hosts\.B\]\n(?:capture = \d+\n)?)", "[hosts.B]\ncapture = 1\n", text)
    file.write_text(text)
    frames = analysis.frames(pcitrace.open(tmp_path / "run"))
    assert frames.table["rx_dma_start_us"].isna().all()
    assert any("do not overlap in time" in finding for finding in frames.findings)
    assert frames.table["dma_start_us"].notna().any(), "what one bus tells is still given"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(Simulation(), tmp_path / "run", 1, values={"test.count": 6, "analyser.wires": "full"})
    out, dropped = tmp_path / "frames.parquet", tmp_path / "dropped.csv"
    arguments = ["frames", str(tmp_path / "run"), "-o", str(out), "--drop-log", str(dropped), "--json"]
    assert main(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == {"frames": 12, "received": 12, "dropped": {}, "findings": []}
    assert tuple(pd.read_parquet(out).columns) == FRAMES.column_names
    assert len(pd.read_csv(dropped)) == 0
    assert main(["frames", str(tmp_path / "run"), "--where", "sender == 'A'"]) == 0
    assert set(pd.read_csv(io.StringIO(capsys.readouterr().out))["sender"]) == {"A"}
    assert main(["frames", str(tmp_path / "run"), "--where", "nonsense > 1"]) == 3
    assert "is no condition on frames" in capsys.readouterr().err
    (tmp_path / "run" / "run.toml").write_text("format = 2\n")
    assert main(["frames", str(tmp_path / "run"), "-o", str(tmp_path / "none.csv")]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_written_tables_are_those_of_the_library(tmp_path: Path, suffix: str) -> None:
    simulate(Simulation(), tmp_path / "run", 1, values={"test.count": 6, "analyser.wires": "full"})
    frames = pcitrace.open(tmp_path / "run").frames
    hosts = frames.hosts.values()
    tables = {
        "frames": frames.table,
        "bursts": pd.concat([traffic.bursts for traffic in hosts], ignore_index=True),
        "csr": pd.concat([traffic.csr_accesses for traffic in hosts], ignore_index=True),
    }
    read = {".csv": pd.read_csv, ".jsonl": partial(pd.read_json, lines=True), ".parquet": pd.read_parquet}[suffix]
    for command, table in tables.items():
        out = tmp_path / f"{command}{suffix}"
        assert main([command, str(tmp_path / "run"), "-o", str(out)]) == 0
        written = read(out)
        assert list(written.columns) == list(table.columns)
        assert len(written) == len(table) > 10
        for column in table.columns:
            left, right = table[column], written[column]
            assert right.isna().tolist() == left.isna().tolist(), column
            if pd.api.types.is_float_dtype(left.dtype):
                # As the number that the column's own type holds: text has the fewest digits that say it.
                own = np.float32 if left.dtype == "float[pyarrow]" else np.float64
                np.testing.assert_allclose(right.astype(own), left.astype(own), rtol=1e-12)
            else:
                there = left.notna()
                assert right[there].astype(left.dtype).tolist() == left[there].tolist(), column


def test_no_link_no_wire_times(tmp_path: Path, small: Frames) -> None:
    simulate(Simulation(), tmp_path / "run", 1, values={"test.count": 8, "analyser.wires": "full"})
    run = pcitrace.open(tmp_path / "run")
    frames = build({name: analysis._host(run, name, None) for name in "AB"})
    assert frames.table["wire_us"].isna().all()
    assert frames.table["t_nic_us"].isna().all()
    assert frames.table["t_nic_tx_us"].notna().all()


def test_a_card_that_only_receives_sends_nothing() -> None:
    """It reads a descriptor after each frame, each where the one before ended: 141 reads in 4.4 ms were one frame."""
    found = pcitrace.open(shared_dir() / "traces" / "card_ring" / "run.toml").frames
    assert set(found.table["sender"]) == {"A"}
    left = found.drop_log.query("host == 'B'")
    assert len(left) > 0
    assert left["frame"].isna().all()


def test_a_profile_of_another_card_changes_nothing(tmp_path: Path) -> None:
    """It said that check sequences are in memory: 4 received frames were others, and 18 none."""
    bench = Bench("tiny", 8)
    write(bench, tmp_path)
    other = tmp_path / "other.toml"
    other.write_text(tomli_w.dumps(card_profile(Bench("ring", 1008, frames=2))))
    run = pcitrace.open(tmp_path)
    found, without = (analysis.frames(run, profile=name) for name in (str(other), "generic"))
    pd.testing.assert_frame_equal(found.table, without.table)
    scored = score(bench, found.table, "vcd")
    assert scored.total()["wrong"] == scored.total()["null"] == scored.extra == scored.crossed == 0
    assert found.findings[0].startswith("A: profile card-1008 is of another card")
