"""The presets: the kernel decodes them to their truth, and the truth holds the published figures.

The figures went into the presets, so this shows that the bench does what it was told, nothing more.
"""

from __future__ import annotations

import csv
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest
import simulated

import pcitrace
from pcitrace.simulate import PRESETS, Simulation, random_bench, simulate

EXACT = (
    "clocks", "data_phases", "wait_clks", "target_wait_clks", "initiator_wait_clks", "devsel_clks", "termination",
)  # fmt: skip
CLASSES = ("total", "idle", "address", "data", "stop", "abort", "decode", "both", "target", "initiator", "busy")


def same_as_truth(run: Path) -> int:
    """Compare every transaction, data phase, clock count and wire interval with the truth; return how many rows."""
    opened = pcitrace.open(run)
    described = simulated.run_toml(run)
    truth, known = simulated.truth(run), pd.read_csv(run / "truth" / "transactions.csv")
    frames = pd.read_csv(run / "truth" / "frames.csv")
    compared = 0
    for name in ("A", "B"):
        first_clk = truth["clocks"][name]["first_clk"]
        bus, want = opened[name], known[(known["bus"] == name) & (known["start_clk"] >= first_clk)]
        got = bus.transactions
        assert len(got) == len(want)
        assert got["start_clk"].tolist() == (want["start_clk"] - first_clk).tolist()
        for column in EXACT:
            assert got[column].tolist() == want[column].tolist(), column
        assert got["initiator"].notna().tolist() == (want["initiator"] == "nic").tolist()
        # Asynchronous sampling sees a rise up to a sample late, jitter apart.
        entry = described["captures"][described["hosts"][name]["capture"]]
        start_us = got["start_us"].to_numpy(float) * (1 + entry.get("drift_ppm", 0.0) * 1e-6)
        late = start_us + entry.get("offset_us", 0.0) - want["start_us"].to_numpy()
        step_us = 1e6 / entry["rate_hz"] if "rate_hz" in entry else 0.0
        assert late.min() > -0.002
        assert late.max() < step_us + 0.003
        if "full" in described["simulation"]["parameters"]["bench"]["analyser"]["wires"]:
            phases = pd.read_csv(run / "truth" / "data_phases.csv", dtype={"data": "uint64"})
            phases = phases[(phases["bus"] == name) & phases["transaction"].isin(want["transaction"])]
            assert got["address"].tolist() == want["address"].tolist()
            assert got["command"].tolist() == want["command"].tolist()
            assert got["bytes"].tolist() == want["bytes"].tolist()
            assert bus.data_phases["data"].tolist() == phases["data"].tolist()
            assert bus.data_phases["byte_enables"].tolist() == phases["byte_enables"].tolist()
            assert bus.data_phases["parity_ok"].all()
            assert got["address_parity_ok"].all()
        clocks = bus.clocks().iloc[0]
        for column in CLASSES:
            assert clocks[column] == truth["clocks"][name][column], column
        assert bus.problems.empty
        if "TXEN" in bus.lines:
            sent = frames[frames["sender"] == name].sort_values("wire_start_us")
            assert len(bus.wire) == len(sent)
            for column in ("start_us", "end_us"):
                seen_us = bus.wire[column].to_numpy(float) * (1 + entry.get("drift_ppm", 0.0) * 1e-6)
                error = seen_us + entry.get("offset_us", 0.0) - sent[f"wire_{column}"].to_numpy()
                assert abs(error).max() < step_us + 0.003
        compared += len(got)
    return compared


@pytest.mark.parametrize("seed", range(8))
def test_random_benches_decode_to_their_truth(seed: int, tmp_path: Path) -> None:
    assert same_as_truth(simulate(random_bench(seed, count=25), tmp_path / "run", seed)) > 200


@pytest.mark.parametrize(
    "values",
    [
        {"analyser.wires": "full", "host.bus.width": 64, "host.nic.bus_width": 64},
        {"analyser.wires": "full", "link.loss": 0.2, "test.kind": "bidirectional", "host.bus.latency_timer_clks": 16},
        {"analyser.wires": "full", "analyser.rate_mhz": 500.0, "host.nic.send_burst_limit_bytes": 64},
        {"analyser.wires": "full", "analyser.mode": "state", "analyser.offset_us": 4.5},
        {"analyser.separate": True, "analyser.offset_us": 4.5, "analyser.drift_ppm": -40.0},
    ],
)
def test_captures_of_all_kinds_decode_to_their_truth(values: dict, tmp_path: Path) -> None:
    run = simulate(Simulation(), tmp_path / "run", values=values | {"test.count": 40})
    assert same_as_truth(run) > 200


class Run:
    """The truth of a preset's run, as numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truth = simulated.truth(path)
        self.frames = [Row(row) for row in simulated.rows(path, "frames")]
        self.csr = [Row(row) for row in simulated.rows(path, "csr")]
        self.transactions = [Row(row) for row in simulated.rows(path, "transactions")]

    def of_bytes(self, length: int) -> list[Row]:
        """Frames of a length."""
        return [frame for frame in self.frames if frame.length_bytes == length]

    def busy_us_per_frame(self, bus: str, clock_mhz: float) -> tuple[float, float]:
        """Busy clocks a frame of a sending bus over whole periods, and the period."""
        starts = [frame.dma_start_us for frame in self.frames[5:-5]]
        clocks = sum(t.clocks for t in self.transactions if t.bus == bus and starts[0] <= t.start_us < starts[-1])
        return clocks / clock_mhz / (len(starts) - 1), (starts[-1] - starts[0]) / (len(starts) - 1)


class Row:
    """One row of the truth; what is empty is None."""

    def __init__(self, fields: dict[str, str]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> float | str | None:
        text = self._fields[name]
        try:
            return float(text)
        except ValueError:
            return text or None


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    """Return the run of a preset, made once."""
    folder = tmp_path_factory.mktemp("presets")

    @cache
    def made(name: str) -> Run:
        return Run(simulate(name, folder / name))

    return made


@pytest.mark.parametrize("name", PRESETS)
def test_presets_decode_to_their_truth(name: str, runs) -> None:
    run = runs(name)
    assert same_as_truth(run.path) > 200
    described = simulated.run_toml(run.path)
    assert described["origin"] == "simulated"
    assert described["simulation"]["preset"] == name
    assert all(entry["source"] == "given" for entry in run.truth["given"].values())
    assert run.truth["given"]
    assert not any(frame.lost == "True" for frame in run.frames)


def gaps(frames: list[Row]) -> float:
    return fmean(frame.rx_dma_start_us - frame.dma_end_us for frame in frames)


def test_figure_3_1(runs) -> None:
    run = runs("acenic-fig3.1")
    assert gaps(run.of_bytes(64)) == pytest.approx(9.40, abs=0.01)
    assert gaps(run.of_bytes(1500)) == pytest.approx(20.56, abs=0.01)
    assert fmean(f.t_nic_us for f in run.of_bytes(64)) == pytest.approx(4.34, abs=0.005)
    assert fmean(f.t_nic_us for f in run.of_bytes(1500)) == pytest.approx(4.18, abs=0.005)
    constants = run.truth["constants"]
    assert constants["R_PCI_send_us_per_byte"]["value"] == pytest.approx(0.00758, rel=0.002)
    assert constants["R_PCI_recv_us_per_byte"]["value"] == pytest.approx(0.00792, rel=0.005)
    assert fmean(f.csr_last_us - f.csr_first_us for f in run.frames) == pytest.approx(1.0, abs=0.05)
    assert fmean(f.dma_start_us - f.csr_last_us for f in run.frames) == pytest.approx(5.0, abs=0.05)
    assert fmean(f.csr_done_us - f.dma_end_us for f in run.frames) == pytest.approx(6.0, abs=0.05)
    # On the responding host a reply's send goes before the receive queue's update.
    served = [row.data_us for row in run.csr if row.bus == "A" and row.register == "Mb0Lo"]
    updated = [row.data_us for row in run.csr if row.bus == "A" and row.register == "RxStdPrd"]
    received = [frame.rx_dma_end_us for frame in run.frames if frame.receiver == "A"]
    assert fmean(a - b for a, b in zip(served, received, strict=True)) == pytest.approx(5.3, abs=0.05)
    assert fmean(a - b for a, b in zip(updated, served, strict=True)) == pytest.approx(6.6, abs=0.05)
    requests = [frame for frame in run.frames if frame.sender == "A"]
    after_1500 = [
        later.csr_first_us - request.csr_first_us
        for (request, later), reply in zip(pairwise(requests), run.frames[1::2], strict=False)
        if reply.length_bytes == 1500
    ]
    assert fmean(after_1500) == pytest.approx(90.9, abs=0.2)
    pieces = [t for t in run.transactions if t.purpose == "receive"]
    assert max(piece.bytes for piece in pieces) == 380
    sends = [t for t in run.transactions if t.purpose == "send"]
    assert len(sends) == len(run.frames)
    assert all(send.clocks == send.data_phases + send.wait_clks + 1 and send.target_wait_clks <= 5 for send in sends)


def test_figure_3_1_latency(runs) -> None:
    with (runs("acenic-fig3.1").path / "latency.csv").open(newline="") as file:
        points = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    assert list(points[0]) == ["length_bytes", "latency_us", "sigma_us", "n"]
    at = {point["length_bytes"]: point["latency_us"] for point in points}
    for length in (64, 1500):
        assert at[length] == pytest.approx(26.32 + 0.0235 * length, rel=0.01)
    assert all(0 < point["sigma_us"] < 0.2 for point in points)


@pytest.mark.parametrize(("name", "spacing_us"), [("acenic-fig4.2a", 22.4), ("acenic-fig4.2c", 20.56)])
def test_regular_streams(name: str, spacing_us: float, runs) -> None:
    starts = [frame.dma_start_us for frame in runs(name).frames]
    steps = [later - earlier for earlier, later in pairwise(starts)]
    assert fmean(steps) == pytest.approx(spacing_us, abs=0.01)
    assert max(steps) - min(steps) < 0.5


@pytest.mark.parametrize(("name", "idle_us"), [("acenic-fig4.2b", (60, 81)), ("acenic-fig4.2d", (76, 85))])
def test_groups(name: str, idle_us: tuple[float, float], runs) -> None:
    run = runs(name)
    doorbells = [row.data_us for row in run.csr if row.bus == "A" and row.register == "TxPrd"]
    starts = [0] + [n for n in range(1, len(doorbells)) if doorbells[n] - doorbells[n - 1] > 10]
    groups = [doorbells[a:b] for a, b in pairwise([*starts, len(doorbells)])][:-1]
    assert fmean(len(group) for group in groups) == pytest.approx(25, abs=1.5)
    assert fmean(group[-1] - group[0] for group in groups) == pytest.approx(40, abs=3)
    busy = sorted(t.start_us for t in run.transactions if t.bus == "A")
    idle = [next(start for start in busy if start > group[-1] + 0.1) - group[-1] for group in groups]
    long = [us for us in idle if us > 600]
    assert all(idle_us[0] <= us <= idle_us[1] for us in idle if us not in long)
    assert len(long) < 0.3 * len(idle)
    assert bool(long) == (name == "acenic-fig4.2d")
    assert all(us == pytest.approx(635, abs=2) for us in long)


def test_sk9843(runs) -> None:
    slow, fast = runs("sk9843-100us"), runs("sk9843-10us")
    for run in (slow, fast):
        assert fmean(f.dma_end_us - f.dma_start_us for f in run.frames) == pytest.approx(8.0, abs=1.0)
        assert fmean(f.rx_dma_end_us - f.rx_dma_start_us for f in run.frames) == pytest.approx(8.0, abs=1.0)
        assert fmean(f.wire_end_us - f.wire_start_us for f in run.frames) == pytest.approx(11.63, abs=0.01)
    starts = [f.wire_start_us for f in fast.frames]
    assert (starts[-1] - starts[0]) / (len(starts) - 1) == pytest.approx(11.73, abs=0.01)
    starts = [f.wire_start_us for f in slow.frames]
    assert (starts[-1] - starts[0]) / (len(starts) - 1) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize(
    ("name", "busy_us", "share"),
    [("pro1000-370dle-11us", 4.7, (0.43, 0.45)), ("pro1000-p4dp6-8us", 5.14, (0.67, 0.685))],
)
def test_pro1000(name: str, busy_us: float, share: tuple[float, float], runs) -> None:
    busy, period = runs(name).busy_us_per_frame("A", 66.0)
    assert busy == pytest.approx(busy_us, rel=0.02)
    assert share[0] <= busy / period <= share[1]
