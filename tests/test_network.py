"""The network half: frame logs whose constants are known give them back, and nothing that they do not hold."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import netlogs
import numpy as np
import pytest

import pcitrace
from pcitrace import network
from pcitrace.cli import main
from pcitrace.errors import ConfigurationError
from pcitrace.network.delays import delay

ATLAS = partial(netlogs.one_way_us, a=26.32, b=0.0235)
BLADE = partial(netlogs.one_way_us, a=6.243, b=0.0519, cell=64, d=0.035)
SIZES = (64, 128, 256, 512, 768, 1024, 1280, 1500)


def pull(one: Any, truth: float) -> float:
    assert one.value is not None, one.reason
    return float((one.value - truth) / one.sigma)


def told(capsys: pytest.CaptureFixture[str], *paths: Path) -> dict[str, Any]:
    assert main(["network", *map(str, paths), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("kind", ["request-response", "ping-pong"])
def test_a_line_is_one_way_whatever_the_loop(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = netlogs.loops(tmp_path / "run", kind, SIZES, ATLAS, way={"kind": "direct"}, lost=(3, 5))
    [result] = told(capsys, folder)["results"]
    assert (result["kind"], result["path"]) == (kind, "direct")
    found = result["parameters"]
    assert set(found["intercept_us"]) == {"value", "sigma", "unit", "n", "reason"}
    for name, truth in (("intercept_us", 26.32), ("slope_us_per_byte", 0.0235)):
        assert abs(found[name]["value"] - truth) < 4 * found[name]["sigma"], name
    assert found["intercept_us"]["sigma"] < 0.02
    assert found["step_bytes"]["value"] is None
    assert "no step" in found["step_bytes"]["reason"]
    assert (found["sent"]["value"], found["received"]["value"], found["lost"]["value"]) == (800, 784, 16)
    assert found["t_sw_us"]["value"] is None
    assert "bus" in found["t_sw_us"]["reason"]


def test_one_size_is_no_line(tmp_path: Path) -> None:
    [result] = network.of_paths([netlogs.loops(tmp_path / "run", "ping-pong", [64], ATLAS)]).results
    assert result.parameters["intercept_us"].value is None
    assert "measure two or more" in result.parameters["intercept_us"].reason
    fwhm, sigma = result.parameters["fwhm_us"], result.parameters["sigma_us"]
    assert abs(pull(fwhm, 0.1 * 2.3548)) < 4
    assert fwhm.value / sigma.value == pytest.approx(2.3548, abs=1e-4), "of a normal peak"


def test_cells_of_a_switch_are_seen_and_none_where_there_are_none(tmp_path: Path) -> None:
    sizes = range(64, 700, 3)
    stepped = netlogs.loops(tmp_path / "step", "ping-pong", sizes, BLADE, count=30, sigma_us=0.1)
    smooth = netlogs.loops(tmp_path / "none", "ping-pong", sizes, ATLAS, count=30, sigma_us=0.1)
    with_step, without = network.of_paths([stepped, smooth]).results
    assert with_step.parameters["step_bytes"].value == 64
    for name, truth in (("step_us", 0.035), ("intercept_us", 6.243), ("slope_us_per_byte", 0.0519)):
        assert abs(pull(with_step.parameters[name], truth)) < 4, name
    assert without.parameters["step_bytes"].value is None


def test_sizes_in_steps_of_the_cell_do_not_tell_it(tmp_path: Path) -> None:
    [result] = network.of_paths([netlogs.loops(tmp_path / "run", "ping-pong", range(64, 1500, 64), BLADE)]).results
    assert result.parameters["step_bytes"].value is None
    assert "64" in result.parameters["step_bytes"].reason


def test_what_waits_in_queues_hardly_moves_the_median(tmp_path: Path) -> None:
    folder = netlogs.loops(
        tmp_path / "run", "ping-pong", SIZES, ATLAS, count=1000, sigma_us=0.5, queueing=(0.1, 50.0), seed=3
    )
    [result] = network.of_paths([folder]).results
    assert result.latency is not None
    lines = {name: line.intercept_us.nominal_value for name, line in result.latency.lines.items()}
    assert abs(lines["median"] - 26.32) < 0.15
    assert lines["mean"] - 26.32 > 1


def test_every_frame_of_a_stream_is_accounted_for(tmp_path: Path) -> None:
    one = netlogs.Stream(1000, 22.0, 5000, lost=[7, 8, 9, 400, 4999], duplicated=[20, 30], late={100: 3, 200: 1})
    [result] = network.of_paths([netlogs.stream(tmp_path / "run", [one], clock=(123456.7, 12.0))]).results
    found = result.parameters
    counts = {name: found[name].value for name in ("sent", "received", "lost", "duplicated", "reordered")}
    assert counts == {"sent": 5000, "received": 4995, "lost": 5, "duplicated": 2, "reordered": 2}
    [flow] = result.points[0].flows
    assert flow.losses is not None
    assert flow.losses.periods.tolist() == [3, 1, 1]
    assert flow.losses.distances.tolist() == [1, 1, 391, 4599]
    assert flow.order is not None
    assert (flow.order.largest_extent, flow.order.n_reordering) == (3, {1: 2, 2: 1, 3: 1})
    assert abs(found["latency_us"].value - 30.0) < 0.1
    assert abs(pull(found["sigma_us"], 0.3)) < 5


def test_throughput_is_of_what_arrived(tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1472, 12.5, 4000, sigma_us=0.1)])
    [result] = network.of_paths([folder]).results
    assert abs(pull(result.parameters["spacing_us"], 12.5)) < 4
    assert abs(pull(result.parameters["user_mbit_s"], 1472 * 8 / 12.5)) < 4
    assert abs(pull(result.parameters["wire_mbit_s"], 1510 * 8 / 12.5)) < 4


def test_a_latency_below_what_the_clocks_may_hide_is_refused(tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(64, 22.0, latency_us=1.5, sigma_us=0.05)])
    [result] = network.of_paths([folder]).results
    assert result.parameters["latency_us"].value is None
    assert "clocks" in result.parameters["latency_us"].reason


def test_runs_of_a_sweep_are_one_measurement(tmp_path: Path) -> None:
    for number, spacing in enumerate((10.0, 20.0, 40.0)):
        netlogs.stream(
            tmp_path / "sweep" / f"{number}-{spacing:g}", [netlogs.Stream(1000, spacing, 500, least_us=16.0)]
        )
    [result] = network.of_paths([tmp_path / "sweep"]).results
    assert [point.spacing_us for point in result.points] == [10.0, 20.0, 40.0]
    assert result.parameters["sent"].value == 1500
    assert abs(result.parameters["spacing_us"].value - 16.0) < 0.05


def test_a_log_that_was_cut_loses_no_frame_it_did_not_lose(tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 22.0, 5000)])
    log = folder / "p000-node1-received.npy"
    log.write_bytes(log.read_bytes()[:100_001])
    [result] = network.of_paths([folder]).results
    assert result.parameters["lost"].value is None
    assert any("cut off" in finding for finding in result.findings)


@pytest.mark.parametrize("damage", ["header", "other", "empty"])
def test_what_is_no_log_is_said(damage: str, tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 22.0, 100)])
    log = folder / "p000-node1-received.npy"
    if damage == "other":
        np.save(log, np.zeros(10))
    else:
        log.write_bytes(log.read_bytes()[: 50 if damage == "header" else 0])
    with pytest.raises(ConfigurationError, match=r"p000-node1-received\.npy"):
        network.of_paths([folder])


def test_a_damaged_log_hides_nothing_else(tmp_path: Path) -> None:
    flows = [{"stream": 1, "from": 0, "to": 1, "length_bytes": 1000, "sent": 100, "received": 100, "lost": 0}]
    summary = {"format": 1, "complete": True, "test": {"kind": "stream"}, "nodes": [], "clocks": []}
    summary["points"] = [{"point": 0, "length_bytes": 1000, "flows": flows, "frame_logs": []}]
    folder = tmp_path / "run"
    netlogs.stream(folder, [netlogs.Stream(1000, 22.0, 100)], extra={"frame_summary": "summary.json"})
    (folder / "summary.json").write_text(json.dumps(summary))
    log = folder / "p000-node1-received.npy"
    log.write_bytes(b"")
    [result] = network.of_paths([folder]).results
    assert result.parameters["received"].value == 100
    assert result.parameters["loss_ratio"].value is None
    assert any(str(log) in finding for finding in result.findings)


def test_times_of_few_loops_make_no_steps(tmp_path: Path) -> None:
    folders = [
        netlogs.loops(tmp_path / f"{seed}", "ping-pong", range(64, 300, 3), ATLAS, count=20, seed=seed)
        for seed in range(10)
    ]
    found = [result.parameters["step_bytes"].value for result in network.of_paths(folders).results]
    assert sum(one is not None for one in found) <= 1


def test_no_frames_are_no_numbers(tmp_path: Path) -> None:
    [result] = network.of_paths([netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 22.0, 0)])]).results
    assert result.parameters["spacing_us"].value is None
    assert result.parameters["sent"].value == 0


def test_a_run_has_its_network(tmp_path: Path) -> None:
    run = pcitrace.open(netlogs.loops(tmp_path / "run", "ping-pong", SIZES, ATLAS))
    assert run.network is run.network
    assert run.network["ping-pong"].parameters["slope_us_per_byte"].value is not None


def test_what_is_no_measurement_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", str(tmp_path)]) == 3
    assert "run.toml" in capsys.readouterr().err
    assert main(["network", str(tmp_path / "none")]) == 3


def test_what_a_frame_costs_its_hosts(tmp_path: Path) -> None:
    run = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 22.0, 1000, lost=[3])])
    told = {"unix_ns": 0, "cpu_ms": {"user": 100, "idle": 500, "softirq": 10}, "interrupts_total": 1000}
    told |= {"interrupts": {"24": {"count": 5, "name": "eth1-rx-0"}}, "facts": {"interface": {"name": "eth1"}}}
    later = {"unix_ns": 10**9, "cpu_ms": {"user": 130, "idle": 900, "softirq": 30}, "interrupts_total": 3000}
    later |= {"interrupts": {"24": {"count": 505, "name": "eth1-rx-0"}}, "interface": {"rx_missed": 0}}
    for name, state in (("before", told), ("after", later)):
        (run / f"{name}.json").write_text(json.dumps(state))
    with (run / "run.toml").open("a") as file:
        file.write('[[host_states]]\nhost = "node1"\nbefore = "before.json"\nafter = "after.json"\n')
    [result] = network.of_paths([run]).results
    assert result.parameters["cpu_us_per_frame"].value == pytest.approx(50_000 / 999)
    assert result.parameters["interrupts_per_frame"].value == pytest.approx(2000 / 999)
    [row] = result.tables["hosts"].to_dict("records")
    assert (row["seconds"], row["nic_interrupts"]) == (1.0, 500)
    (run / "after.json").write_text(json.dumps(told))  # nothing grew: no frame cost anything
    [result] = network.of_paths([run]).results
    assert result.parameters["cpu_us_per_frame"].value == 0
    (run / "after.json").write_text(json.dumps(told | {"interrupts_total": 10}))  # it was started anew
    [result] = network.of_paths([run]).results
    assert result.parameters["interrupts_per_frame"].value is None


@pytest.mark.parametrize("name", ["median", "q10"])
def test_the_error_of_a_quantile_of_many_equal_times_is_its_scatter(name: str) -> None:
    """A clock of 1 ns, more frames than it has steps: within their error all are alike."""
    random = np.random.default_rng(4)
    found = []
    for _ in range(100):
        times = np.round(random.normal(5000, 60, 40_000)) / 1e3
        one = delay(times, 0.001)
        assert one is not None
        found.append(one.statistic(name))
    values, sigma = np.array(found).T
    assert 0.8 < values.std(ddof=1) / np.sqrt((sigma**2).mean()) < 1.25
    assert sigma.min() > 0.5 * sigma.mean(), "each error, not only their mean"
