"""NICs that this project did not make: every frame, CSR access and DMA transaction against the truth, both ways.

The profiles are those that docs/nic-profiles.md shows, so the documentation is tested with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import shared_dir
from nicruns import PROFILES, RATES, run_folder, truth

import pcitrace
from pcitrace import analysis
from pcitrace.bustable import BusTable
from pcitrace.frames import Frames, build
from pcitrace.frames.ends import HostTraffic, Link
from pcitrace.run import Run
from pcitrace.traffic import Nic, analyse
from pcitrace.traffic.content import wire_frames
from pcitrace.traffic.phases import Phases

CLOCK_US = 0.031
SYMBOL_US = {1000: 0.009, 100: 0.041}
CASES = [(name, nic) for name in PROFILES for nic in (None, "generic")]


_OPENED: dict[tuple[str, str, str | None], tuple[Run, Frames, Path]] = {}


def opened(tmp_path: Path, name: str, file: str, nic: str | None = None) -> tuple[Run, Frames, Path]:
    """Analyse a trace once for all tests of this module."""
    if (name, file, nic) not in _OPENED:
        trace = shared_dir() / "traces" / name
        run = pcitrace.open(run_folder(tmp_path / "run", trace, file, nic))
        _OPENED[name, file, nic] = run, analysis.frames(run), trace
    return _OPENED[name, file, nic]


def close(found: Any, wanted: float | None, within: float) -> bool:
    return wanted is not None and found == found and abs(found - wanted / 1000) <= within


def check_frames(frames: Frames, trace: Path, dma_us: float, wire_us: float, exact_lengths: bool) -> int:
    """Match rows with truth one to one by host and time of the send's DMA; return how many are equal."""
    table = frames.table
    wanted = truth(trace, "truth", "frame")
    assert len(table) == len(wanted)
    equal = 0
    for sender in "AB":
        rows = table[table["sender"] == sender].to_dict("records")
        sent = [row for row in wanted if row["dir"].startswith(sender)]
        assert len(rows) == len(sent)
        for row, true in zip(rows, sorted(sent, key=lambda one: one["tx_dma_first_ns"]), strict=True):
            limit = 0 if exact_lengths else 2
            equal += (
                close(row["dma_start_us"], true["tx_dma_first_ns"], dma_us)
                and close(row["dma_end_us"], true["tx_dma_last_ns"], dma_us)
                and close(row["rx_dma_start_us"], true["rx_dma_first_ns"], dma_us)
                and close(row["rx_dma_end_us"], true["rx_dma_last_ns"], dma_us)
                and close(row["wire_start_us"], true["wire_start_ns"], wire_us)
                and close(row["wire_end_us"], true["wire_end_ns"], wire_us)
                and abs(row["length_bytes"] - true["user_bytes"]) <= limit
                and row["sequence"] == true["seq"]
            )
    return equal


@pytest.mark.parametrize(("name", "nic"), CASES)
def test_every_frame_from_the_vcd(tmp_path: Path, name: str, nic: str | None) -> None:
    _, frames, trace = opened(tmp_path, name, "bus.vcd.gz", nic)
    equal = check_frames(frames, trace, CLOCK_US, SYMBOL_US[RATES[name]], exact_lengths=True)
    assert equal == len(frames)
    assert len(frames.drop_log) == 0
    assert frames.findings == ()
    assert set(frames.table["sequence_source"]) == {"frame"}
    assert frames.table["length_exact"].all()
    assert frames.table["fcs_ok"].all()


@pytest.mark.parametrize(("name", "nic"), CASES)
def test_every_csr_access_from_the_vcd(tmp_path: Path, name: str, nic: str | None) -> None:
    _, frames, trace = opened(tmp_path, name, "bus.vcd.gz", nic)
    for host in "AB":
        found = frames.hosts[host].csr_accesses
        wanted = [row for row in truth(trace, "truth_csr", "csr") if row["pc"] == host]
        assert len(found) == len(wanted)
        for name_found, key in (
            ("first_attempt_us", "first_attempt_ns"),
            ("last_attempt_us", "last_attempt_ns"),
            ("data_us", "data_phase_ns"),
        ):
            times = np.array([row[key] for row in wanted]) / 1000
            assert np.abs(found[name_found].to_numpy(dtype=float) - times).max() < 0.001
        assert found["address"].tolist() == [int(row["addr"], 16) for row in wanted]
        assert found["value"].tolist() == [int(row["value"], 16) for row in wanted]
        assert found["attempts"].tolist() == [row["retries"] + 1 for row in wanted]


def rung(frames: Frames, trace: Path, within_us: float) -> tuple[int, int]:
    """How many sends have the doorbell of the truth, and how many another one."""
    right = wrong = 0
    for sender in "AB":
        rows = frames.table[frames.table["sender"] == sender]["csr_last_us"].to_numpy(dtype=float, na_value=np.nan)
        sent = [row for row in truth(trace, "truth", "frame") if row["dir"].startswith(sender)]
        for found, true in zip(rows, sorted(sent, key=lambda one: one["tx_dma_first_ns"]), strict=True):
            equal = close(found, true["doorbell_first_attempt_ns"], within_us)
            right, wrong = right + equal, wrong + (not equal and not np.isnan(found))
    return right, wrong


@pytest.mark.parametrize(("name", "nic"), CASES)
def test_what_rings_is_never_another_access(tmp_path: Path, name: str, nic: str | None) -> None:
    """A card that nobody described shows it, too; of a stream, where sends wait for each other, not of each."""
    _, frames, trace = opened(tmp_path, name, "bus.vcd.gz", nic)
    right, wrong = rung(frames, trace, CLOCK_US)
    assert wrong == 0
    assert right >= len(frames) * (0.8 if (name, nic) == ("nic_g_d", "generic") else 1)


@pytest.mark.parametrize("name", ["nic_g_a", "nic_ocg_a_sf"])
def test_what_rings_is_never_another_access_without_addresses(tmp_path: Path, name: str) -> None:
    _, frames, trace = opened(tmp_path, name, "control16.sr", "generic")
    right, wrong = rung(frames, trace, 2 * CLOCK_US)
    assert wrong == 0
    assert right >= len(frames) / 2


@pytest.mark.parametrize(("name", "nic"), CASES)
def test_every_dma_transaction_from_the_vcd(tmp_path: Path, name: str, nic: str | None) -> None:
    _, frames, trace = opened(tmp_path, name, "bus.vcd.gz", nic)
    for host in "AB":
        found = frames.hosts[host].pieces
        wanted = [row for row in truth(trace, "truth_dma", "dma") if row["pc"] == host]
        assert len(found) == len(wanted)
        start = np.array([row["addr_phase_ns"] for row in wanted]) / 1000
        assert np.abs(found["start_us"].to_numpy(dtype=float) - start).max() < 0.001
        last = np.array([row["last_data_ns"] for row in wanted]) / 1000
        assert np.abs(found["last_data_us"].to_numpy(dtype=float) - last).max() < 0.001
        assert found["address"].tolist() == [int(row["addr"], 16) for row in wanted]
        assert found["data_phases"].tolist() == [row["n"] for row in wanted]
        assert found["direction"].str[0].str.upper().tolist() == [row["dir"] for row in wanted]
        assert frames.hosts[host].unknown == {}


@pytest.mark.parametrize("name", PROFILES)
def test_bursts_of_a_frame_are_its_pieces(tmp_path: Path, name: str) -> None:
    _, frames, trace = opened(tmp_path, name, "bus.vcd.gz")
    for true, row in zip(
        sorted(truth(trace, "truth", "frame"), key=lambda one: one["tx_dma_first_ns"]),
        frames.table.to_dict("records"),
        strict=True,
    ):
        assert row["pieces"] == len(true["tx_dma_bursts"])
        assert row["rx_pieces"] == true["rx_dma_bursts_n"]


@pytest.mark.parametrize("name", PROFILES)
def test_the_doorbell_starts_the_send(tmp_path: Path, name: str) -> None:
    _, frames, trace = opened(tmp_path, name, "bus.vcd.gz")
    wanted = sorted(truth(trace, "truth", "frame"), key=lambda one: one["tx_dma_first_ns"])
    for true, last in zip(wanted, frames.table["csr_last_us"], strict=True):
        assert close(last, true["doorbell_first_attempt_ns"], CLOCK_US)


@pytest.mark.parametrize("name", PROFILES)
def test_transit_times(tmp_path: Path, name: str) -> None:
    """t_nic, and its sending and receiving side, within two clocks; the cut-through receiver overlaps the wire."""
    _, frames, trace = opened(tmp_path, name, "bus.vcd.gz")
    wanted = sorted(truth(trace, "truth", "frame"), key=lambda one: one["tx_dma_first_ns"])
    ns_per_byte = 80 if name == "nic_ocg_a_sf" else 8
    for true, row in zip(wanted, frames.table.to_dict("records"), strict=True):
        gap_ns = true["rx_dma_first_ns"] - true["tx_dma_last_ns"]
        wire_ns = (max(true["user_bytes"], 46) + 26) * ns_per_byte
        assert close(row["t_nic_us"], (gap_ns - wire_ns) / 2, CLOCK_US)
        assert close(row["t_nic_tx_us"], true["wire_start_ns"] - true["tx_dma_last_ns"], 2 * CLOCK_US)
        assert close(row["t_nic_rx_us"], true["rx_dma_first_ns"] - true["wire_end_ns"], 2 * CLOCK_US)
        if name == "nic_ocg_a_sf" and true["user_bytes"] >= 512:
            assert row["t_nic_rx_us"] < 0


@pytest.mark.parametrize("name", ["nic_g_a", "nic_ocg_a_sf"])
def test_control_lines_only(tmp_path: Path, name: str) -> None:
    """No AD, no C/BE#, 100 MS/s: every frame, DMA within two clocks; host and NIC told apart."""
    run, frames, trace = opened(tmp_path, name, "control16.sr")
    equal = check_frames_without_data(frames, trace)
    assert equal == len(frames)
    assert len(frames.drop_log) == 0
    for host in "AB":
        wanted = sum(row["pc"] == host for row in truth(trace, "truth_dma", "dma"))
        accesses = sum(row["pc"] == host for row in truth(trace, "truth_csr", "csr"))
        assert len(frames.hosts[host].pieces) == wanted
        assert len(frames.hosts[host].csr_accesses) == accesses
        assert len(run[host].transactions) == wanted + frames.hosts[host].csr_accesses["attempts"].sum()


@pytest.mark.parametrize("name", PROFILES)
def test_control_lines_of_the_vcd(tmp_path: Path, name: str) -> None:
    """AD, C/BE# and the bytes on the wire left out: streams in both directions are still told apart."""
    run, _, trace = opened(tmp_path, name, "bus.vcd.gz")
    link = Link(RATES[name])
    wires = {host: run[host].wire.assign(bytes=None).astype({"bytes": "binary[pyarrow]"}) for host in "AB"}
    step_us = 0.001
    on_wire = {host: wire_frames(wires[host], link.byte_us, link.preamble_bytes, step_us) for host in "AB"}
    hosts = {}
    for host, other in ("AB", "BA"):
        table = run[host].transactions
        table = table.assign(address=None, command=None, command_name=None, bytes=4 * table["data_phases"])
        traffic = analyse(
            table.assign(bytes_exact=False),
            bus=host,
            nic=Nic(
                run.folder.profile(host),
                ["GNT_NIC#", "GNT_HOST#"],
                sent=on_wire[host],
                received=on_wire[other],
            ),
        )
        hosts[host] = HostTraffic(traffic, run.folder.profile(host), None, wires[host], step_us)
    frames = build(hosts, link=link)
    assert check_frames_without_data(frames, trace) == len(frames)
    assert len(frames.drop_log) == 0


@pytest.mark.parametrize("name", PROFILES)
def test_addresses_but_no_commands(tmp_path: Path, name: str) -> None:
    """AD without C/BE#: no address says which way its data went, so the lengths tell, as they do without AD."""
    run, _, trace = opened(tmp_path, name, "bus.vcd.gz")
    link = Link(RATES[name])
    on_wire = {host: wire_frames(run[host].wire, link.byte_us, link.preamble_bytes, 0.0) for host in "AB"}
    for host, other in ("AB", "BA"):
        bus, profile = run[host], run.folder.profile(host)
        table = bus.transactions.assign(command=None, command_name=None)
        lines = [line for line in bus.lines if not line.startswith("CBE")]
        traffic = analyse(
            table,
            bus.data_phases,
            bus=host,
            nic=Nic(profile, lines, sent=on_wire[host], received=on_wire[other]),
        )
        wanted = truth(trace, "truth_dma", "dma")
        assert traffic.pieces["direction"].str[0].str.upper().tolist() == [
            row["dir"] for row in wanted if row["pc"] == host
        ]
        assert traffic.unknown == {}


def check_frames_without_data(frames: Frames, trace: Path) -> int:
    """As check_frames, where frames can only be numbered in their order: those of the traces are sent in order."""
    assert set(frames.table["sequence_source"]) == {"order"}
    return check_frames(frames, trace, 2 * CLOCK_US, SYMBOL_US[RATES[trace.name]] + 0.02, exact_lengths=False)


@pytest.mark.parametrize("name", PROFILES)
def test_without_grant_lines(tmp_path: Path, name: str) -> None:
    """GNT# not captured: windows and addresses tell host from NIC, and nothing changes."""
    run, _, _ = opened(tmp_path, name, "bus.vcd.gz")
    for host in "AB":
        bus, profile = run[host], run.folder.profile(host)
        lines = [line for line in bus.lines if not line.startswith("GNT")]
        blind = analyse_without_grants(bus, profile, lines)
        told = analysis.traffic(run, host)
        assert blind.pieces["transaction"].tolist() == told.pieces["transaction"].tolist()
        assert blind.pieces["kind"].tolist() == told.pieces["kind"].tolist()
        assert len(blind.csr_accesses) == len(told.csr_accesses)
        assert blind.unknown == {}


def analyse_without_grants(bus: Any, profile: Any, lines: list[str]) -> Any:
    transactions = bus.transactions.assign(initiator=None)
    return analyse(transactions, bus.data_phases, bus=bus.name, nic=Nic(profile, lines))


@pytest.mark.parametrize("name", PROFILES)
def test_a_capture_that_begins_and_ends_in_the_middle(tmp_path: Path, name: str) -> None:
    """Cut at both ends: the frames that are whole are those of the whole run, and no other is made up."""
    run, whole, _ = opened(tmp_path, name, "bus.vcd.gz")
    begin, end = whole.table["dma_start_us"].quantile([0.31, 0.68])
    hosts = {host: cut(run, host, begin, end) for host in "AB"}
    part = build(hosts, link=Link(RATES[name]))
    columns = ["dma_start_us", "dma_end_us", "wire_start_us", "rx_dma_start_us", "rx_dma_end_us"]
    inside = whole.table[(whole.table["dma_start_us"] > begin + 30) & (whole.table["rx_dma_end_us"] < end - 1)]
    known = {tuple(row) for row in whole.table[columns].to_numpy(dtype=float).tolist()}
    found = part.table[columns].dropna()
    assert {tuple(row) for row in inside[columns].to_numpy(dtype=float).tolist()} <= {
        tuple(row) for row in found.to_numpy(dtype=float).tolist()
    }
    # A send that the cut went through begins later than it did, so only its wire and its receive must be the true ones.
    later = {row[2:] for row in known}
    assert {tuple(row)[2:] for row in found.to_numpy(dtype=float).tolist()} <= later


@pytest.mark.parametrize("name", PROFILES)
def test_a_send_that_the_capture_ends_within_has_no_end(tmp_path: Path, name: str) -> None:
    run, whole, _ = opened(tmp_path, name, "bus.vcd.gz")
    last = whole.table[whole.table["pieces"] > 2].iloc[20]
    pieces = whole.hosts[last["sender"]].pieces
    within = pieces[(pieces["start_us"] > last["dma_start_us"]) & (pieces["direction"] == "read")]["start_us"].iloc[1]
    hosts = {host: cut(run, host, 0.0, within) for host in "AB"}
    part = build(hosts, link=Link(RATES[name])).table
    row = part[part["dma_start_us"] == last["dma_start_us"]]
    assert len(row) == 1
    assert row[["dma_end_us", "length_bytes", "t_nic_us", "wire_start_us", "rx_dma_start_us"]].isna().all(axis=None)
    before = part[(part["sender"] == last["sender"]) & (part["dma_start_us"] < last["dma_start_us"])]
    assert before["dma_end_us"].notna().all()


def cut(run: Run, host: str, begin: float, end: float) -> Any:
    bus, profile = run[host], run.folder.profile(host)
    table = bus.transactions
    table = table[(table["start_us"] > begin) & (table["end_us"] < end)]
    phases = bus.data_phases
    phases = phases[phases["transaction"].isin(table["transaction"])]
    wire = bus.wire
    wire = wire[(wire["start_us"] > begin) & (wire["end_us"] < end)]
    traffic = analyse(table, phases, bus=host, nic=Nic(profile, bus.lines))
    return HostTraffic(traffic, profile, Phases.of(phases, BusTable.of(table)), wire)
