"""The simulated bench: its waveforms keep the rules of the bus and decode to its own truth."""

from __future__ import annotations

from pathlib import Path

import oracle
import pytest
import simulated

from pcitrace.simulate import Simulation, simulate

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
    "state": {"analyser.mode": "state", "analyser.wires": "full"},
    "state, started later": {"analyser.mode": "state", "analyser.offset_us": 3.0},
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
            assert all(phase["parity_ok"] for phase in decoded.data_phases)
        counted = oracle.account(decoded.classes, captured)
        total = simulated.truth(run)["clocks"][bus]
        for name, count in counted.items():
            if name in total:
                assert count in (None, total[name]) and (count is not None or name == "turnaround"), name
        assert counted["unknown"] == 0
