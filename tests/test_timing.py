"""Constants of simulated benches, of the published presets, and of the reference traces of two NICs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import nicruns
import numpy as np
import pandas as pd
import pytest
import simulated
from conftest import shared_dir

import pcitrace
from pcitrace import results, timing
from pcitrace.errors import FitError, FrameMatchError
from pcitrace.estimate import line
from pcitrace.results import Results
from pcitrace.simulate import Simulation, random_bench, simulate
from pcitrace.timing import Forwarding, usage
from pcitrace.timing.frametimes import Clockwork, FrameTimes, period_of
from pcitrace.uncertainty import Errors

LENGTHS = (64, 256, 512, 1000, 1500)
NONE = np.zeros(0)


@pytest.fixture(scope="module")
def figure_3_1(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return the numbers of the preset of figure 3.1."""
    run = tmp_path_factory.mktemp("figure") / "run"
    simulate("acenic-fig3.1", run)
    return results.of_run(pcitrace.open(run))


def bench(folder: Path, preset: str | Simulation | None = None, **values: object) -> Results:
    """Simulate a bench and work out its numbers."""
    simulate(preset or Simulation(), folder, seed=5, values=values)
    return results.of_run(pcitrace.open(folder))


def edit(run: Path, old: str, new: str) -> None:
    """Change run.toml."""
    file = run / "run.toml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


# --- figure 3.1


def test_figure_3_1_gives_the_published_constants(figure_3_1: Results) -> None:
    constants = figure_3_1.constants
    assert constants["R_PCI_send_us_per_byte"].value == pytest.approx(0.00758, rel=0.01)
    assert constants["R_PCI_recv_us_per_byte"].value == pytest.approx(0.00792, rel=0.01)
    at = figure_3_1.timing.transit.at.set_index("length_bytes")["value"]
    assert (at[64] + at[1500]) / 2 == pytest.approx(4.25, rel=0.01)
    assert constants["t_sw_us"].value == pytest.approx(8.70, rel=0.01)
    assert constants["t_sw_us"].source == "derived"
    assert figure_3_1.model is not None
    assert figure_3_1.model.slope_us_per_byte.value == pytest.approx(0.0235, rel=0.01)
    for length in (64, 1500):
        latency = figure_3_1.model.latency_us(length)
        assert latency.value == pytest.approx(26.32 + 0.0235 * length, rel=0.01)


def test_figure_3_1_gaps_and_t_nic_by_length(figure_3_1: Results) -> None:
    table = figure_3_1.timing.by_length
    short = table[table["length_bytes"].between(60, 70)]
    long = table[table["length_bytes"].between(1490, 1510)]
    for rows, gap_us, t_nic_us in ((short, 9.4, 4.34), (long, 20.56, 4.18)):
        assert np.average(rows["gap_us"], weights=rows["n"]) == pytest.approx(gap_us, rel=0.005)
        assert np.average(rows["t_nic_us"], weights=rows["n"]) == pytest.approx(t_nic_us, rel=0.01)


def test_figure_3_1_is_not_strictly_store_and_forward_and_t_nic_is_a_line(figure_3_1: Results) -> None:
    measured = figure_3_1.timing
    assert measured.forwarding is Forwarding.DEVIATES
    assert measured.gap.slope.value == pytest.approx(0.00777, rel=0.01)
    assert measured.t_nic.value is None
    assert re.match(r"it depends on the length: 4\.3\d* us at 64 bytes, 4\.1\d* at 1500;", measured.t_nic.reason)
    told = figure_3_1.as_dict()["constants"]["t_nic_us"]
    line, at = told["line"], told["at"]
    lengths = figure_3_1.frames.table["length_bytes"].astype(int)
    assert [one["length_bytes"] for one in at] == sorted(set(lengths))
    for one in at:
        assert abs(line["intercept"] + line["slope"] * one["length_bytes"] - one["value"]) < 4.5 * one["sigma"]
    (a, b), (c, d) = line["covariance"]
    assert (a, d) == (measured.t_nic_line.intercept.sigma**2, measured.t_nic_line.slope.sigma**2)
    assert b == c
    # The line is known best in the middle of its lengths: at 0 bytes what makes it steeper makes it lower.
    assert -np.sqrt(a * d) < b < 0
    assert measured.t_nic_line.slope.value == pytest.approx((0.00777 - 0.008) / 2, rel=0.1)
    assert any("not strictly store and forward" in finding for finding in figure_3_1.findings)


def test_figure_3_1_equals_its_own_truth(figure_3_1: Results) -> None:
    truth = simulated.truth(figure_3_1.run.path)["constants"]
    for name in ("R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte"):
        measured = figure_3_1.constants[name]
        assert measured.n == truth[name]["n"]
        assert abs(measured.value - truth[name]["value"]) < 4 * measured.sigma_measurement
    frames = pd.read_csv(figure_3_1.run.path / "truth" / "frames.csv").groupby("length_bytes")["t_nic_us"].mean()
    at = figure_3_1.timing.transit.at
    assert at["length_bytes"].tolist() == frames.index.tolist()
    assert (np.abs(at["value"] - frames.to_numpy()) < 4 * at["sigma_measurement"]).all()
    line, wanted = figure_3_1.timing.t_nic_line, figure_3_1.run.folder.run["simulation"]["parameters"]["bench"]["a"]
    true = wanted["nic"]["receive_transit_us_per_byte"] / 2
    assert abs(line.slope.value - true) < 3 * line.slope.sigma < 0.1 * abs(true)
    for side, rate in (("send", figure_3_1.timing.send), ("recv", figure_3_1.timing.receive)):
        assert rate.burst.n == truth[f"burst_rate_{side}_us_per_byte"]["n"]
        assert (
            abs(rate.burst.value - truth[f"burst_rate_{side}_us_per_byte"]["value"]) < 4 * rate.burst.sigma_measurement
        )


def test_figure_3_1_csr_costs(figure_3_1: Results) -> None:
    costs = figure_3_1.timing.csr_costs.set_index(["host", "what"])["value"]
    # About 1 us of CSR writes, the DMA 5 us later, an update 6 us after it; receive: CSR access after 5.3 us.
    assert costs["B", "send_csr"] == pytest.approx(1.0, abs=0.1)
    for host in "AB":
        assert costs[host, "csr_to_dma"] == pytest.approx(5.0, abs=0.1)
        assert costs[host, "dma_to_update"] == pytest.approx(6.0, abs=0.1)
        assert costs[host, "receive_to_csr"] == pytest.approx(5.3, abs=0.1)


def costs_without(found: Results, every: int) -> pd.DataFrame:
    """Return the costs where it is not known of every so many frames of B which accesses started them."""
    table = found.frames.table.copy()
    mine = table.index[table["sender"] == "B"]
    table.loc[mine[every - 1 :: every], ["csr_first_us", "csr_last_us"]] = None
    measured = timing.measure(found.run, replace(found.frames, table=table))
    return measured.csr_costs.set_index(["host", "what"])


def test_a_cost_over_frames_that_are_no_fair_choice_is_not_known(figure_3_1: Results) -> None:
    """The frames that waited longest are those whose accesses are hard to tell: without them the mean is too short."""
    whole = costs_without(figure_3_1, 1000)
    # B queues its frames while it answers: no access of its own says when that begins.
    known = whole["value"].notna()
    assert known.drop(("B", "csr_to_queue")).all()
    assert not known["B", "csr_to_queue"]
    few, many = costs_without(figure_3_1, 60), costs_without(figure_3_1, 5)
    for what in ("send_csr", "csr_to_dma"):
        assert np.isnan(many.loc[("B", what), "value"])
        assert "45 of 225 frames cannot be told" in many.loc[("B", what), "reason"]
        assert many.loc[("A", what), "value"] == whole.loc[("A", what), "value"]
        one, true = few.loc[("B", what)], whole.loc[("B", what)]
        assert one["n"] == true["n"] - 3
        assert abs(one["value"] - true["value"]) < 2 * one["sigma_measurement"]
        assert one["sigma_measurement"] > true["sigma_measurement"]
    # What lies before or after the capture is missing whatever it took.
    table = figure_3_1.frames.table.copy()
    table.loc[table.index[:40], ["csr_first_us", "csr_last_us"]] = None
    measured = timing.measure(figure_3_1.run, replace(figure_3_1.frames, table=table))
    costs = measured.csr_costs.set_index(["host", "what"])["value"]
    assert costs.drop(("B", "csr_to_queue")).notna().all()


def test_an_edge_of_the_wire_may_always_lie_at_one_place_between_the_samples(figure_3_1: Results) -> None:
    """Of TX_EN a mean is no better known than one edge, however many frames there are."""
    tx = figure_3_1.timing.t_nic_tx
    assert tx.n == 450
    # There are two probes of a wire: each may be wrong by itself.
    assert 0.01 / np.sqrt(24) <= tx.sigma_measurement < 0.01 / np.sqrt(12)


def test_everything_can_be_printed_as_json(figure_3_1: Results) -> None:
    told = json.loads(json.dumps(figure_3_1.as_dict(), allow_nan=False))
    assert set(told) >= {"constants", "buses", "frames", "model", "findings"}
    for name in ("R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte", "t_sw_us"):
        one = told["constants"][name]
        assert one["value"] > 0
        assert one["sigma"] == pytest.approx(np.hypot(one["sigma_measurement"], one["sigma_frames"] or 0), rel=1e-12)
        assert one["sigma"] > 0
    truth = simulated.truth(figure_3_1.run.path)
    for bus in ("A", "B"):
        assert told["buses"][bus]["transactions"] == truth["counts"][bus]["transactions"]
        assert told["buses"][bus]["occupancy"] == pytest.approx(truth["clocks"][bus]["occupancy"], abs=1e-12)
        assert told["buses"][bus]["data_occupancy"] == pytest.approx(truth["clocks"][bus]["data_occupancy"], abs=1e-12)
    assert told["frames"] == {"rows": 450, "matched": 450, "queued": 0, "dropped": {}}
    assert told["simulated"] is True
    assert told["model"]["intercept_us"] == pytest.approx(26.32, rel=0.01)
    assert told["model"]["slope_us_per_byte"] == pytest.approx(0.0235, rel=0.01)


def test_a_selection_of_frames_has_constants_of_its_own(figure_3_1: Results) -> None:
    chosen = figure_3_1.frames["length_bytes == 64"]
    measured = timing.measure(figure_3_1.run, chosen)
    assert measured.t_nic.n == len(chosen) < len(figure_3_1.frames)
    at = figure_3_1.timing.transit.at.set_index("length_bytes").loc[64]
    assert measured.t_nic.value == pytest.approx(at["value"], rel=1e-12)
    assert measured.t_nic.sigma == pytest.approx(at["sigma"], rel=0.1)
    # A standard deviation is that of one frame; a standard error that of their mean.
    single = figure_3_1.frames.table.loc[lambda table: table["length_bytes"] == 64, "t_nic_us"].astype(float).std()
    assert measured.t_nic.scatter == pytest.approx(single, rel=0.03)
    assert measured.t_nic.sigma_frames == pytest.approx(measured.t_nic.scatter / np.sqrt(len(chosen)), rel=1e-9)


# --- presets: use of the bus, groups


@pytest.mark.parametrize(
    ("preset", "busy_us", "low", "high"),
    [("pro1000-370dle-11us", 4.7, 0.43, 0.45), ("pro1000-p4dp6-8us", 5.14, 0.67, 0.68)],
)
def test_slides_sending_bus_over_whole_periods(
    tmp_path: Path, preset: str, busy_us: float, low: float, high: float
) -> None:
    found = bench(tmp_path / "run", preset)
    periods = usage.whole_periods(found.usage["A"], found.frames, "send")
    assert periods["busy_us"] == pytest.approx(busy_us, rel=0.01)
    assert low <= periods["occupancy"] <= high


def test_figure_4_2b_comes_in_groups(tmp_path: Path) -> None:
    found = bench(tmp_path / "run", "acenic-fig4.2b")
    groups = usage.groups(found.frames, "A")
    assert groups["frames"].median() == pytest.approx(25, abs=1)
    assert groups["csr_us"].median() == pytest.approx(40, rel=0.1)
    assert groups["idle_us"].between(60, 80.5).all()


def test_regular_streaming_has_groups_of_one(tmp_path: Path) -> None:
    found = bench(tmp_path / "run", "acenic-fig4.2a", **{"test.count": 50})
    groups = usage.groups(found.frames, "A")
    assert groups["frames"].tolist() == [1] * 50
    # One length: no slope, so neither R_PCI nor a test of store and forward, and both are said.
    assert found.constants["R_PCI_send_us_per_byte"].value is None
    assert found.timing.forwarding is Forwarding.UNKNOWN
    assert sum("slope needs" in finding for finding in found.findings) == 3
    assert found.constants["t_nic_us"].value is not None
    assert found.t_sw.value is None
    assert "latency" in found.t_sw.reason


# --- use of the bus against the truth


def test_use_of_the_bus_in_windows_equals_the_truth(figure_3_1: Results) -> None:
    windows = pd.read_csv(figure_3_1.run.path / "truth" / "clocks.csv")
    for name, mine in windows.groupby("bus"):
        found = figure_3_1.usage[str(name)]
        got = found.over(mine["start_us"].to_numpy(), mine["end_us"].to_numpy())
        assert np.abs(got["busy_us"] / found.clock_us - mine["busy"].to_numpy()).max() <= 2
        # Data is interpolated where an edge cuts a burst.
        assert np.abs(got["data_us"] / found.clock_us - mine["data"].to_numpy()).max() <= 4


def test_use_of_the_bus_adds_up(figure_3_1: Results) -> None:
    found = figure_3_1.usage["A"]
    whole = found.over(found.start_us, found.end_us)
    for window_us in (1.0, 37.3, 1000.0, 1e9):
        series = found.series(window_us)
        assert series["busy_us"].sum() == pytest.approx(whole["busy_us"].item())
        assert series["data_us"].sum() == pytest.approx(whole["data_us"].item())
        assert series["occupancy"].between(0, 1).all()
        assert series["end_us"].iloc[-1] == found.end_us
    gaps = found.idle_gaps()
    edges = found.begin_us[0] - found.start_us + found.end_us - found.done_us[-1]
    idle = gaps["length_us"].sum() + edges
    assert idle + whole["busy_us"].item() == pytest.approx(
        found.end_us - found.start_us, abs=len(gaps) * found.clock_us
    )


def test_per_frame_knows_two_sides(figure_3_1: Results) -> None:
    found = usage.per_frame(figure_3_1.usage["A"], figure_3_1.frames, "receive")
    table = figure_3_1.frames.table
    assert len(found) == (table["receiver"] == "A").sum() - 1
    with pytest.raises(FrameMatchError, match="no side"):
        usage.per_frame(figure_3_1.usage["A"], figure_3_1.frames, "both")


# --- store and forward, cut-through


@pytest.mark.parametrize("wires", ["control16", "full"])
def test_cut_through_is_overlap_and_gives_no_t_nic(tmp_path: Path, wires: str) -> None:
    found = bench(
        tmp_path / "run",
        **{
            "test.sizes": LENGTHS,
            "test.count": 60,
            "analyser.wires": wires,
            "host.nic.cut_through_send_bytes": 128,
            "host.nic.cut_through_receive_bytes": 64,
            "host.nic.burst_limit_bytes": 64,
            "host.nic.send_transit_us": 0.2,
            "host.nic.receive_transit_us": 0.2,
        },
    )
    assert found.timing.forwarding is Forwarding.OVERLAP
    assert found.constants["t_nic_us"].value is None
    assert found.constants["t_nic_us"].reason == "wire and DMA overlap"
    assert found.model is None
    assert (found.frames.table["t_nic_rx_us"] < 0).any()
    assert any("receiving side" in finding for finding in found.findings)


def test_store_and_forward_is_told(tmp_path: Path) -> None:
    found = bench(tmp_path / "run", **{"test.sizes": LENGTHS, "test.count": 60, "host.nic.transit_jitter_us": 0.05})
    assert found.timing.forwarding in (Forwarding.STORE_AND_FORWARD, Forwarding.DEVIATES)
    assert found.timing.gap.slope.value == pytest.approx(0.008, rel=0.01)
    tx, rx = found.timing.t_nic_tx, found.timing.t_nic_rx
    assert (tx.value + rx.value) / 2 == pytest.approx(found.timing.t_nic.value, abs=0.005)


# --- what the errors are made of


def test_two_analysers_share_the_error_of_their_offset(tmp_path: Path) -> None:
    found = bench(
        tmp_path / "run",
        **{
            "test.kind": "stream",
            "test.sizes": LENGTHS,
            "test.count": 40,
            "analyser.separate": True,
            "analyser.offset_us": 100.0,
            "analyser.offset_sigma_us": 0.5,
            "analyser.drift_sigma_ppm": 0.0,
        },
    )
    truth = simulated.truth(found.run.path)["constants"]["t_nic_us"]
    t_nic = found.constants["t_nic_us"]
    # One direction only: half of the offset's error is the error of t_nic, whatever the number of frames.
    assert t_nic.sigma_measurement == pytest.approx(0.25, rel=0.01)
    assert abs(t_nic.value - truth["value"]) < 4 * t_nic.sigma_measurement
    assert found.constants["R_PCI_send_us_per_byte"].sigma_measurement < 1e-4


def test_the_error_of_an_offset_cancels_between_both_directions(tmp_path: Path) -> None:
    values = {"test.kind": "ping-pong", "test.sizes": LENGTHS, "test.count": 40, "analyser.separate": True}
    found = bench(tmp_path / "run", **values, **{"analyser.offset_sigma_us": 0.5, "analyser.drift_sigma_ppm": 0.0})
    truth = simulated.truth(found.run.path)["constants"]["t_nic_us"]
    t_nic = found.constants["t_nic_us"]
    assert t_nic.sigma_measurement < 0.01
    assert abs(t_nic.value - truth["value"]) < 4 * t_nic.sigma_measurement


def test_the_skew_of_the_probes_is_the_error_of_one_direction(tmp_path: Path) -> None:
    values = {"test.sizes": LENGTHS, "test.count": 40, "analyser.rate_mhz": 500.0, "analyser.skew_ns": 4.0}
    one = bench(tmp_path / "one", **values, **{"test.kind": "stream"})
    truth = simulated.truth(one.run.path)["constants"]["t_nic_us"]
    t_nic = one.constants["t_nic_us"]
    # Each bus clock comes late by up to 4 ns, evenly: half of the difference of two such delays.
    assert t_nic.sigma_measurement == pytest.approx(0.004 * np.sqrt(2 / 12) / 2, rel=0.03)
    assert abs(t_nic.value - truth["value"]) < 3 * t_nic.sigma_measurement
    # Every frame of the other direction is wrong by as much the other way.
    both = bench(tmp_path / "both", **values, **{"test.kind": "ping-pong"})
    assert both.constants["t_nic_us"].sigma_measurement < t_nic.sigma_measurement / 5
    assert both.timing.t_nic_tx.sigma_measurement > t_nic.sigma_measurement, (
        "the probe of the wire has a skew of its own"
    )


def test_finer_sampling_makes_sigma_smaller(tmp_path: Path) -> None:
    sigma = {}
    for rate in (100.0, 400.0):
        values = {"test.sizes": LENGTHS, "test.count": 20, "analyser.rate_mhz": rate, "analyser.wires": "full"}
        found = bench(tmp_path / str(rate), **values)
        sigma[rate] = found.constants["t_nic_us"].sigma_measurement
        times = FrameTimes(found.frames, {name: Clockwork.of(found.run, name, NONE) for name in "AB"}, 0.008)
        errors = times.errors("dma_end_us", "rx_dma_start_us")
        assert errors.variance == pytest.approx(2 / 12 / rate**2)
    assert sigma[400.0] < sigma[100.0] / 2


def test_where_edges_lie_between_the_samples() -> None:
    # 3.25 samples a clock: four places, which sampled times tell although they are late by up to a step.
    clocks = np.array([0, 1, 2, 3, 4, 9, 40003])
    seen_us = np.ceil(clocks * 3.25 + 0.1) * 0.01
    place = Clockwork(0.01, clock_us=0.0325).place(np.r_[seen_us, np.nan], seen_us[3])
    assert (place[:-1] - place[0]) % 1 == pytest.approx(clocks * 0.25 % 1)
    assert np.isnan(place[-1])


def test_the_period_of_clk_is_one_with_which_all_edges_are_seen_at_the_next_sample() -> None:
    """Two sampled edges give it to a step over the capture, here 0.9 of one; 400 to less than a tenth of that."""
    period_us, step_us = 1 / 32.7, 0.01
    clocks = np.sort(np.random.default_rng(1).integers(0, 200_000, 400))
    seen_us = np.ceil(clocks * period_us / step_us) * step_us
    guess_us = period_us + 0.9 * step_us / 200_000
    assert abs(period_of(seen_us, guess_us, step_us) - period_us) < 0.1 * step_us / 200_000
    assert period_of(seen_us[:1], guess_us, step_us) == period_of(seen_us[:0], guess_us, step_us) == guess_us
    # Edges that all lie alike between the samples leave it open by a step: the guess is as good as any.
    alike_us = np.arange(0.0, 6000.0)
    assert period_of(alike_us, 1 / 33, step_us) == pytest.approx(1 / 33, abs=0.01 * step_us / 200_000)


def test_lengths_that_are_bounds_widen_sigma(figure_3_1: Results) -> None:
    frames = figure_3_1.frames
    table = frames.table.assign(length_exact=False, wire_start_us=np.nan, wire_end_us=np.nan)
    chosen = frames["length_bytes > 0"]
    bounded = replace(chosen, table=table, logged=())
    measured = timing.measure(figure_3_1.run, bounded)
    known, blurred = figure_3_1.timing.transit.at, measured.transit.at
    assert (blurred["sigma_measurement"] > known["sigma_measurement"]).all()
    assert blurred["sigma_measurement"].min() > 0.004
    assert (blurred["value"] - known["value"]).tolist() == pytest.approx([1.5 * 0.008 / 2] * len(known))
    assert measured.t_nic_line.intercept.sigma > 2 * figure_3_1.timing.t_nic_line.intercept.sigma
    assert any("upper bounds" in finding for finding in measured.findings)


def test_lengths_that_the_wire_tells_to_a_byte_are_not_rounded(tmp_path: Path) -> None:
    # 752 and 11408 ns, sampled every 10 ns: whole bytes would be 0.2 too many for the short frames and 0.2 too few for
    # the long ones, however many there are; the data phases leave either.
    values = {"test.kind": "stream", "test.arrivals": "poisson", "test.sizes": (68, 1400), "test.count": 600}
    found = bench(tmp_path / "run", **values, **{"analyser.rate_mhz": 100.0})
    truth = simulated.truth(found.run.path)["constants"]
    for name in ("R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte"):
        constant = found.constants[name]
        assert abs(constant.value - truth[name]["value"]) < 3 * constant.sigma_measurement


def test_sigma_of_a_slope_has_what_wrong_lengths_do_to_points_off_the_line() -> None:
    x, blur = np.array([46.0, 300.0, 700.0, 1100.0, 1500.0]), np.full(5, 0.5)
    y = 0.01 * x + np.array([0.0, 8.0, -5.0, 6.0, -9.0])
    slope = np.polyfit(x, y, 1)[0]
    found = line(x, y, Errors((slope * blur) ** 2), x_sigma=blur)
    moved = [
        [np.polyfit(x + each, y, 1)[at] - np.polyfit(x - each, y, 1)[at] for each in 1e-3 * np.eye(5)] for at in (0, 1)
    ]
    assert found.slope.sigma_measurement == pytest.approx(np.linalg.norm(moved[0]) / 2e-3 * 0.5, rel=1e-4)
    assert found.intercept.sigma_measurement == pytest.approx(np.linalg.norm(moved[1]) / 2e-3 * 0.5, rel=1e-4)


def test_a_capture_of_changes_has_the_tick_as_its_step(tmp_path: Path) -> None:
    run = pcitrace.open(nicruns.run_folder(tmp_path / "run", shared_dir() / "traces" / "nic_g_a", "bus.vcd.gz"))
    clockwork = Clockwork.of(run, "A", NONE)
    assert clockwork.step_us == pytest.approx(1e-3)
    times = FrameTimes(run.frames, {name: Clockwork.of(run, name, NONE) for name in "AB"}, 0.008)
    errors = times.errors("dma_end_us", "rx_dma_start_us")
    assert errors.variance == pytest.approx(2e-6 / 12)


# --- NICs that this project did not make


@pytest.mark.parametrize(
    ("trace", "file"),
    [
        ("nic_g_a", "bus.vcd.gz"),
        ("nic_g_a", "control16.sr"),
        ("nic_g_d", "bus.vcd.gz"),
        ("nic_ocg_a_sf", "bus.vcd.gz"),
        ("nic_ocg_a_sf", "control16.sr"),
    ],
)
def test_reference_traces(tmp_path: Path, trace: str, file: str) -> None:
    source = shared_dir() / "traces" / trace
    measured = results.of_run(pcitrace.open(nicruns.run_folder(tmp_path / "run", source, file))).timing
    # A data phase a clock of 30 ns and 4 bytes is the fastest there is; 2 % of them waited 1 to 3 clocks.
    for rate in (measured.send.burst, measured.receive.burst):
        assert 0.0075 < rate.value < 0.0085
    if trace == "nic_ocg_a_sf":
        # Its receive side is cut-through: the gap does not grow with the wire.
        assert measured.forwarding is Forwarding.OVERLAP
        assert measured.t_nic.value is None
        assert measured.t_nic_tx.value > 0 > measured.t_nic_rx.value
    else:
        assert measured.forwarding is Forwarding.STORE_AND_FORWARD
        # As its README says: 0.5 us +- 0.2 to the wire, 0.3 to 0.5 us from it, and a bus to wait for.
        assert measured.t_nic_tx.value == pytest.approx(0.58, abs=0.1)
        assert measured.t_nic_rx.value == pytest.approx(0.43, abs=0.1)
        tx_rx = (measured.t_nic_tx.value + measured.t_nic_rx.value) / 2
        assert measured.t_nic.value == pytest.approx(tx_rx, abs=0.002)


# --- what cannot be known


def test_without_a_link_there_is_no_t_nic(tmp_path: Path) -> None:
    bench(tmp_path / "run", **{"test.count": 10, "test.sizes": LENGTHS})
    text = (tmp_path / "run" / "run.toml").read_text(encoding="utf-8")
    head, _, rest = text.partition("[link]")
    (tmp_path / "run" / "run.toml").write_text(head + rest[rest.index("\n[") :], encoding="utf-8")
    found = results.of_run(pcitrace.open(tmp_path / "run"))
    assert found.constants["t_nic_us"].value is None
    assert "[link]" in found.constants["t_nic_us"].reason
    assert found.constants["R_PCI_send_us_per_byte"].value is not None
    assert found.as_dict()["model"]["slope_us_per_byte"] is None


def test_one_host_tells_what_its_bus_tells(tmp_path: Path) -> None:
    bench(tmp_path / "run", **{"test.kind": "stream", "test.count": 20, "test.sizes": LENGTHS})
    text = (tmp_path / "run" / "run.toml").read_text(encoding="utf-8")
    head, _, rest = text.partition("[hosts.B]")
    text = head + rest[rest.index("\n[") :]
    logs = text[text.index("frame_logs") : text.index("]\n", text.index("frame_logs")) + 2]
    (tmp_path / "run" / "run.toml").write_text(text.replace(logs, ""), encoding="utf-8")
    found = results.of_run(pcitrace.open(tmp_path / "run"))
    assert "one host" in found.constants["t_nic_us"].reason
    assert found.constants["R_PCI_send_us_per_byte"].value > 0
    assert found.constants["R_PCI_recv_us_per_byte"].value is None
    assert found.timing.t_nic_tx.n == 20
    json.dumps(found.as_dict(), allow_nan=False)


def test_hosts_that_differ_are_reported(tmp_path: Path) -> None:
    values = {"test.kind": "ping-pong", "test.sizes": LENGTHS, "test.count": 60, "analyser.wires": "full"}
    found = bench(tmp_path / "run", **values, **{"b.nic.burst_limit_bytes": 64})
    assert any("the hosts differ: R_PCI (receive)" in finding for finding in found.findings)
    by_host = found.timing.receive.by_host
    assert by_host["B"].value > 1.1 * by_host["A"].value


def test_a_latency_file_that_is_no_table_is_an_error(tmp_path: Path) -> None:
    simulate("acenic-fig3.1", tmp_path / "run", values={"test.count": 9})
    (tmp_path / "run" / "latency.csv").write_text("length_bytes,latency_us\n64,1\n")
    with pytest.raises(FitError, match="sigma_us"):
        results.of_run(pcitrace.open(tmp_path / "run"))


def test_latencies_that_are_no_line_are_reported(tmp_path: Path) -> None:
    simulate("acenic-fig3.1", tmp_path / "run", values={"test.count": 18})
    latency = tmp_path / "run" / "latency.csv"
    table = pd.read_csv(latency)
    table.assign(latency_us=table["latency_us"] + (table["length_bytes"] / 400) ** 2).to_csv(latency, index=False)
    findings = results.of_run(pcitrace.open(tmp_path / "run")).findings
    assert any("no straight line" in finding for finding in findings)
    assert any("something else depends on the length" in finding for finding in findings)
    latency.write_text("length_bytes,latency_us,sigma_us,n\n64,28,0.1,10\n")
    found = results.of_run(pcitrace.open(tmp_path / "run"))
    assert found.t_sw.value is None
    assert any("no line through latency.csv" in finding for finding in found.findings)


@pytest.mark.parametrize("seed", [7005, 7020, 7021])
def test_frames_that_only_one_host_shows_so_are_not_in_its_rate(tmp_path: Path, seed: int) -> None:
    """No wire: two sends with the pause of pieces between them come out as one, of twice the length.

    It is left out, or its receive does not say so, and the rate is right.
    """
    simulate(random_bench(seed, wires=("control14",)), tmp_path / "run", seed=seed)
    found = results.of_run(pcitrace.open(tmp_path / "run"))
    truth = json.loads((tmp_path / "run" / "truth" / "truth.json").read_text())["constants"]["R_PCI_send_us_per_byte"]
    rate = found.timing.send.effective
    assert 0 < rate.n < truth["n"]
    assert abs(rate.value - truth["value"]) < 3 * rate.sigma_measurement


def test_what_is_loose_may_be_longer_by_what_is_short_behind_it(tmp_path: Path) -> None:
    """A receive is of no frame, for its tail, which had to wait, was taken for a status: sigma covers that too."""
    simulate(random_bench(96006, wires=("control16",)), tmp_path / "run", seed=96006)
    found = results.of_run(pcitrace.open(tmp_path / "run"))
    truth = json.loads((tmp_path / "run" / "truth" / "truth.json").read_text())["constants"]["R_PCI_recv_us_per_byte"]
    rate = found.timing.receive.effective
    assert abs(rate.value - truth["value"]) < 2 * rate.sigma_measurement < 2e-5


def test_t_sw_and_its_error_are_those_of_the_bench(tmp_path: Path) -> None:
    """Retries make round trips differ by more than their noise: the sweep's errors say so."""
    rough = {"host.bus.retry_probability": 0.2, "host.bus.wait_probability": 0.1, "sweep.noise_us": 0.01}
    found = bench(tmp_path / "run", "acenic-fig3.1", **rough)
    assert (found.latency["sigma_us"] > 5 * 0.01 / np.sqrt(found.latency["n"])).all()
    assert found.fit.p_value > 0.001
    truth = json.loads((tmp_path / "run" / "truth" / "truth.json").read_text())["constants"]["t_sw_us"]["value"]
    assert abs(found.t_sw.value - truth) < 3 * found.t_sw.sigma < 0.2


@pytest.mark.parametrize("wires", ["control14", "control16", "full"])
def test_one_host_tells_how_it_receives(tmp_path: Path, wires: str) -> None:
    simulate("acenic-fig3.1", tmp_path / "run", values={"analyser.wires": wires})
    file = tmp_path / "run" / "run.toml"
    text = re.sub(r"\[hosts\.B\].*?(?=\[link\])", "", file.read_text(), flags=re.DOTALL)
    text = re.sub(r'    \{ file = "frames/B.*\n', "", text)
    file.write_text(re.sub(r"latency = \[.*?\]\n", "", text, flags=re.DOTALL))
    found = results.of_run(pcitrace.open(tmp_path / "run"))
    frames = pd.read_csv(tmp_path / "run" / "truth" / "frames.csv")
    mine = frames[frames["receiver"] == "A"]
    true = np.polyfit(mine["length_bytes"], mine["rx_dma_end_us"] - mine["rx_dma_start_us"], 1)[0]
    rate = found.timing.receive.effective
    assert rate.n == len(mine)
    assert abs(rate.value - true) < 3 * rate.sigma_measurement < 3e-5
    dropped = found.frames.drop_log
    assert len(dropped) == len(mine)
    assert set(dropped["reason"]) == {"the bus of its sender was not captured"}


def test_groups_of_figure_4_2b(tmp_path: Path) -> None:
    told = bench(tmp_path / "run", "acenic-fig4.2b").as_dict()["buses"]
    assert told["B"]["groups"] == {"groups": 0, "of_several": 0}
    groups = told["A"]["groups"]
    assert groups["groups"] == groups["of_several"] == 20
    assert groups["frames"] == pytest.approx(25, abs=1.5)
    assert groups["csr_us"] == pytest.approx(40, abs=2)
    assert 60 < groups["idle_us"] < 80


def edited(run: Path, stated: str, instead: str) -> Results:
    """Return the numbers of a run with something else in its run.toml."""
    text = (run / "run.toml").read_text()
    assert stated in text
    (run / "run.toml").write_text(text.replace(stated, instead))
    return results.of_run(pcitrace.open(run))


def test_a_wrong_offset_shows_in_the_two_directions(tmp_path: Path) -> None:
    values = {"analyser.separate": True, "analyser.offset_us": 3.0, "test.count": 45}
    simulate("acenic-fig3.1", tmp_path / "run", seed=6, values=values)
    assert not any("directions" in finding for finding in results.of_run(pcitrace.open(tmp_path / "run")).findings)
    found = edited(tmp_path / "run", "offset_us = 3.0", "offset_us = 4.0")
    [finding] = [one for one in found.findings if "the directions differ" in one]
    assert float(finding.split("wrong by ")[1].split()[0]) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("wrong_us", [5.0, 30.0])
def test_with_an_impossible_offset_frames_arrive_before_they_were_sent(tmp_path: Path, wrong_us: float) -> None:
    values = {"analyser.separate": True, "analyser.offset_us": 3.0, "test.count": 45}
    simulate("acenic-fig3.1", tmp_path / "run", values=values)
    found = edited(tmp_path / "run", "offset_us = 3.0", f"offset_us = {3.0 + wrong_us}")
    assert any("before they were sent" in finding for finding in found.findings)
    assert found.timing.t_nic.value is None
    assert found.t_sw.value is None


def test_hosts_that_differ_at_the_one_length_of_one_of_them(tmp_path: Path) -> None:
    fast = {"b.bus.clock_mhz": 66, "b.bus.width": 64, "b.nic.bus_width": 64, "analyser.rate_mhz": 200.0}
    found = bench(tmp_path / "run", "acenic-fig3.1", **fast)
    [finding] = [one for one in found.findings if "the send DMA of a frame takes" in one]
    assert "more on A than of one as long on B" in finding
    assert "B alone has 0.0018" in finding


@pytest.mark.parametrize("rate", ["100.0", "1100.0"])
def test_a_wrong_rate_of_the_link_is_a_finding(tmp_path: Path, rate: str) -> None:
    simulate("acenic-fig3.1", tmp_path / "run", values={"test.count": 18})
    found = edited(tmp_path / "run", "rate_mbit_s = 1000.0", f"rate_mbit_s = {rate}")
    assert any("are link.rate_mbit_s and the width of the bus right" in finding for finding in found.findings)
    assert found.timing.t_nic.value is None


def test_a_latency_sweep_that_tells_nothing(tmp_path: Path) -> None:
    simulate("acenic-fig3.1", tmp_path / "run", values={"test.count": 18})
    file = tmp_path / "run" / "latency.csv"
    file.write_text("length_bytes,latency_us,sigma_us,n\n64,28,0.1,40\n")
    found = results.of_run(pcitrace.open(tmp_path / "run"))
    assert found.t_sw.value is None
    assert "it has no line" in found.t_sw.reason
    file.write_text("length_bytes,latency_us,sigma_us,n\n64,-28,0.1,40\n512,38,0.1,40\n")
    with pytest.raises(FitError, match="latency_us: -28 is negative"):
        results.of_run(pcitrace.open(tmp_path / "run"))
