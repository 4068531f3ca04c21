"""What a result has beside its numbers: tables, the same in Python, in the JSON, on the page and in a terminal."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import netlogs
import numpy as np
import pytest
from test_network_switch import asked, hosts, switch

from pcitrace import network
from pcitrace.cli import main
from pcitrace.report.network import page

LOST = [10, 11, 12, 40, 90, 91]


def told(capsys: pytest.CaptureFixture[str], *paths: Path) -> list[dict[str, Any]]:
    assert main(["network", *map(str, paths), "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["results"])


def test_loss_patterns_and_reordering_are_in_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: runs of 3, 1 and 2 lost; distances 1, 1, 28, 50, 1; frame 60 comes behind 64, frame 70 behind 71."""
    run = netlogs.stream(tmp_path / "run", [netlogs.Stream(500, 40.0, 200, lost=LOST, late={60: 4, 70: 1})])
    [result] = told(capsys, run)
    [row] = result["tables"]["patterns"]
    assert (row["loss_periods"], row["mean_period_frames"], row["longest_period_frames"]) == (3, 2.0, 3)
    assert row["median_distance_frames"] == 1
    assert (row["reordered"], row["largest_extent"], row["reordered_by_3"]) == (2, 4, 1)
    assert row["independent_p"] < 0.01
    assert row["to_bad"] is None, "six losses tell no channel"
    [streamed] = result["tables"]["streams"]
    assert (streamed["lost"], streamed["received"]) == (6, 194)
    assert streamed["pdv_p999_us"] > 0
    [found] = network.of_paths([run]).results
    losses = found.points[0].flows[0].losses
    assert losses is not None
    assert losses.distances.tolist() == [1, 1, 28, 50, 1]
    assert losses.between.tolist() == [28, 50]


def test_the_channel_of_bursts_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(5)
    bad, lost = False, []
    for frame in range(200_000):
        bad = random.random() < (0.9 if bad else 0.002)
        if bad and random.random() < 0.7:
            lost.append(frame)
    run = netlogs.stream(tmp_path / "run", [netlogs.Stream(500, 40.0, 200_000, lost=lost)])
    [row] = told(capsys, run)[0]["tables"]["patterns"]
    assert row["to_bad"] == pytest.approx(0.002, rel=0.15)
    assert row["to_good"] == pytest.approx(0.1, rel=0.15)
    assert row["loss_in_bad"] == pytest.approx(0.7, rel=0.1)


def test_the_slope_of_each_path_has_its_terms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hosts 0.0076 us/byte, each wire 0.008, the backplane of 2000 Mbit/s 0.004."""
    test = asked("ping-pong", "64:1500:100", 200)
    paths = [switch(tmp_path, "direct", hosts() + test)]
    paths.append(switch(tmp_path, "through", hosts() + test + '[switch]\nname = "blade"\nbackplane_mbit_s = 2000\n'))
    direct, through, _ = told(capsys, *paths)
    for one, terms in ((direct, {"wire": 0.008}), (through, {"wire": 0.008, "blade": 0.012})):
        rows = {row["term"]: row for row in one["tables"]["slope_budget"]}
        assert list(rows) == [*terms, "sum", "measured", "difference"]
        for name, value in {**terms, "sum": sum(terms.values()), "difference": 0.0076}.items():
            assert rows[name]["slope_us_per_byte"] == pytest.approx(value, abs=4 * rows[name]["sigma"] + 1e-12), name
        assert rows["measured"]["slope_us_per_byte"] == one["parameters"]["slope_us_per_byte"]["value"]
    # A call that has no direct path does not know the switch's part: no budget, and no guess.
    [alone] = told(capsys, paths[1])
    assert "slope_budget" not in alone["tables"]


def test_counters_that_grew_are_told(tmp_path: Path) -> None:
    run = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 22.0, 1000)])
    before = {"unix_ns": 0, "snmp": {"Udp": {"InErrors": 5, "InDatagrams": 10}}, "ethtool": {"rx_pause": 2, "odd": 9}}
    after = {"unix_ns": 1, "snmp": {"Udp": {"InErrors": 12, "InDatagrams": 10}}, "ethtool": {"rx_pause": 40, "odd": 1}}
    for name, state in (("before", before), ("after", after)):
        (run / f"{name}.json").write_text(json.dumps(state))
    with (run / "run.toml").open("a") as file:
        file.write('[[host_states]]\nhost = "node1"\nbefore = "before.json"\nafter = "after.json"\n')
    [result] = network.of_paths([run]).results
    assert result.tables["counters"].to_dict("split")["data"] == [
        ["node1", "snmp", "Udp.InErrors", 7],
        ["node1", "ethtool", "rx_pause", 38],
    ]


def test_tables_are_on_the_page_and_small_ones_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = netlogs.stream(tmp_path / "run", [netlogs.Stream(500, 40.0, 200, lost=LOST)], way={"kind": "direct"})
    assert main(["network", str(run)]) == 0
    assert "tables beside (--json, -o): streams, patterns" in capsys.readouterr().out
    html = page(network.of_paths([run]))
    assert "<summary>patterns</summary>" in html
    assert re.search(r"<th[^>]*>longest_period_frames</th>", html)
    [result] = told(capsys, run)
    for table in result["tables"].values():
        assert all(not isinstance(value, float) or math.isfinite(value) for row in table for value in row.values())


def test_a_table_that_fits_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = switch(tmp_path, "direct", hosts() + asked("ping-pong", [64, 700, 1500], 100))
    assert main(["network", str(run)]) == 0
    out = capsys.readouterr().out
    assert "  slope_budget:\n" in out
    assert "          wire              0.008           0\n" in out
