"""Runs put together and side by side: known truths come back."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pcitrace
from pcitrace.campaign import Campaign, CampaignError, combine, compare
from pcitrace.campaign import numbers as rows_of
from pcitrace.cli import main


def numbers(values: np.ndarray, sigma: float, **columns: object) -> pd.DataFrame:
    """Rows as a campaign has them."""
    count = len(values)
    table = pd.DataFrame(
        {
            "run": [f"/runs/r{number}" for number in range(count)],
            "host": None,
            "card": "acenic",
            "constant": "t_nic_tx_us",
            "value": values,
            "sigma": sigma,
            "n": 10,
            "source": "measured",
            "findings": [[] for _ in range(count)],
            "unit": "us",
            "reason": None,
            "bench": [f"bench {number}" for number in range(count)],
            "sigma_measurement": 0.0,
            "sigma_frames": sigma,
        }
    )
    return table.assign(**columns)


def test_runs_that_differ_are_put_together_with_their_heterogeneity() -> None:
    random = np.random.default_rng(1)
    pulls, taus = [], []
    for _ in range(200):
        values = 4.3 + random.normal(0, 0.05, 25) + random.normal(0, 0.02, 25)
        [row] = combine.combined(numbers(values, 0.02)).to_dict("records")
        pulls.append((row["value"] - 4.3) / row["sigma"])
        taus.append(row["tau"])
    assert stats.kstest(pulls, "norm").pvalue > 0.01
    assert np.mean(taus) == pytest.approx(0.05, rel=0.05)


def test_what_a_bench_shares_does_not_get_smaller_with_its_runs() -> None:
    values = 4.3 + np.random.default_rng(2).normal(0, 0.01, 40)
    alone = combine.combined(numbers(values, 0.01)).iloc[0]
    shared = numbers(values, 0.01, bench="one", sigma_measurement=0.05)
    [row] = combine.combined(shared).to_dict("records")
    assert alone["sigma"] < 0.01
    assert row["sigma"] == pytest.approx(0.05, rel=0.1)
    assert (row["benches"], row["runs"]) == (1, 40)


def test_an_outlier_is_named_with_what_is_different() -> None:
    values = np.full(10, 4.3) + np.random.default_rng(3).normal(0, 0.01, 10)
    values[4] += 0.2
    speeds = [33.0] * 10
    speeds[4] = 66.0
    [row] = combine.combined(numbers(values, 0.01, **{"test.clock_mhz": speeds})).to_dict("records")
    [told] = row["outliers"]
    assert told.startswith("/runs/r4: ")
    assert "sigma above the mean" in told
    assert "test.clock_mhz is 66.0, not 33.0" in told


def test_a_drift_is_found_where_there_is_one() -> None:
    days = np.arange(20)
    created = [f"2026-01-{day + 1:02}T12:00:00Z" for day in days]
    noise = np.random.default_rng(4).normal(0, 0.01, 20)
    drifting = combine.combined(numbers(4.3 + 0.01 * days + noise, 0.01, **{"test.created": created})).iloc[0]
    assert drifting["drift_per_day"] == pytest.approx(0.01, abs=4 * drifting["drift_sigma_per_day"])
    steady = combine.combined(numbers(4.3 + noise, 0.01, **{"test.created": created})).iloc[0]
    assert steady["drift_p_value"] > 0.01
    assert steady["drift_reason"] is None


@pytest.mark.parametrize(
    ("created", "reason"),
    [
        ({}, "no run says when it was"),
        ({"test.created": ["2026-01-01T12:00:00Z"] * 3 + [None] * 5}, "3 runs say when they were: a drift needs 4"),
        ({"test.created": ["2026-01-01T12:00:00Z"] * 8}, "all runs were at one time"),
    ],
)
def test_no_drift_has_its_reason(created: dict[str, object], reason: str) -> None:
    values = 4.3 + np.random.default_rng(4).normal(0, 0.01, 8)
    [row] = combine.combined(numbers(values, 0.01, **created)).to_dict("records")
    assert row["drift_per_day"] is None
    assert row["drift_reason"] == reason


def test_equal_runs_far_from_zero_do_not_differ() -> None:
    """Squares of a billion sigma leave nothing of Q: -512 and 512 came of it."""
    for seed in range(20):
        values = np.full(4, np.random.default_rng(seed).uniform(1e6, 1e7))
        [row] = combine.combined(numbers(values, 0.01)).to_dict("records")
        assert (row["q"], row["tau"], row["p_value"]) == (pytest.approx(0, abs=1e-6), 0.0, pytest.approx(1))
    close = 9.8e6 + np.array([0.0, 0.01, 0.02, 0.03])
    [row] = combine.combined(numbers(close, 0.01)).to_dict("records")
    assert row["q"] == pytest.approx(5.0, rel=1e-3)


def test_what_nobody_knows_has_its_reason() -> None:
    table = numbers(np.full(3, np.nan), np.nan, reason="no link")
    [row] = combine.combined(table).to_dict("records")
    assert (row["reason"], row["unit"]) == ("no link", "us")
    assert row["runs"] == 0


def test_one_run_and_equal_runs() -> None:
    [row] = combine.combined(numbers(np.array([4.3]), 0.1)).to_dict("records")
    assert (row["value"], row["sigma"]) == (4.3, 0.1)
    [row] = combine.combined(numbers(np.full(5, 4.3), 0.1)).to_dict("records")
    assert (row["value"], row["tau"]) == (pytest.approx(4.3), 0.0)


def test_the_table_has_every_number_of_a_report(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["simulate", "acenic-fig3.1", "-o", str(run), "--set", "test.count=18", "sweep.loops=2"]) == 0
    profile = (Path(pcitrace.__file__).parent / "nics" / "acenic.toml").read_text()
    (run / "card.toml").write_text(profile.replace('name = "acenic"', 'name = "card-2000"', 1))
    text = (run / "run.toml").read_text()
    (run / "run.toml").write_text(text.replace('nic = "acenic"', 'nic = "card.toml"'))
    campaign = Campaign(run, tmp_path / "out")
    campaign.one()
    table = campaign.constants
    # The card is what its profile is called, not the file: two benches may both have a card.toml.
    assert set(table["card"]) == {"card-2000"}
    assert table["bench"].iloc[0].count("card-2000") == 2
    told = table.set_index(["constant", table["host"].fillna("")])["value"]
    assert not told.index.duplicated().any()
    found = pcitrace.open(run).results.as_dict()
    for cost in found["timing"]["csr_costs_us"]:
        value = told[f"csr_costs_us.{cost['what']}", cost["host"]]
        assert value == cost["value"] if cost["value"] is not None else pd.isna(value)
    for point in found["timing"]["by_length"]:
        for name in ("gap_us", "t_nic_us", "t_nic_tx_us", "t_nic_rx_us"):
            assert told[f"{name}.at_{point['length_bytes']}", ""] == point[name]
    for host, bus in found["buses"].items():
        assert told["send_periods.occupancy", host] == bus["send_periods"]["occupancy"]
        assert told["groups.groups", host] == bus["groups"]["groups"]
    assert told["model.intercept_us", ""] == found["model"]["intercept_us"]
    assert told["model.measured.slope_us_per_byte", ""] == found["model"]["measured"]["slope_us_per_byte"]


def test_companions_are_no_second_run_of_the_same_number() -> None:
    one = {"kind": "stream", "parameters": {"lost": {"value": 1.0, "sigma": None, "unit": "frames", "n": 9}}}
    found = [row["constant"] for row in rows_of.rows({}, {"results": [one, {**one, "kind": "burst"}, one]})]
    assert found == ["network.stream.lost", "network.burst.lost", "network.stream-2.lost"]


def test_side_by_side(tmp_path: Path) -> None:
    table = numbers(np.array([4.1, 4.2, 4.3]), 0.01, **{"test.count": [10, 20, 30], "test.origin": "simulated"})
    table.loc[1, ["value", "sigma"]] = np.nan
    found = compare.side_by_side(table)
    assert list(found.columns) == ["constant", "host", "unit", "r0", "r0 sigma", "r1", "r1 sigma", "r2", "r2 sigma"]
    assert found.loc[0, "r0"] == 4.1
    assert np.isnan(found.loc[0, "r1"])
    differ = compare.differences(table).set_index("parameter")
    assert differ.loc["test.count"].tolist() == [10, 20, 30]
    assert compare.swept(table) == "test.count"
    with mpl.rc_context({"backend": "agg"}):
        ax = compare.plot(table, "t_nic_tx_us")
        assert ax.get_ylabel() == "t_nic_tx_us (µs)"
    [line] = ax.get_lines()[:1]
    assert line.get_xdata().tolist() == [10, 30]
    assert ax.get_xlabel() == "count"
    assert ax.get_title("right") == "simulated"
    with pytest.raises(CampaignError, match="no such number"):
        compare.plot(table, "nothing")


def test_a_list_of_one_is_swept_too_and_text_is_not() -> None:
    values = np.array([4.1, 4.2, 4.3])
    sizes = {"test.sizes": ["[64]", "[512]", "[1500]"], "test.simulation.test.sizes": ["64", "512", "1500"]}
    table = numbers(values, 0.01, **sizes, **{"test.kind": ["a", "b", "c"], "test.some": ["[1, 2]", "[3]", "[4]"]})
    assert compare.swept(table) == "test.sizes"
    with mpl.rc_context({"backend": "agg"}):
        [line] = compare.plot(table, "t_nic_tx_us").get_lines()[:1]
        assert line.get_xdata().tolist() == [64, 512, 1500]
        for name, text in (("test.kind", "a"), ("test.some", "[1, 2]")):
            with pytest.raises(CampaignError, match=re.escape(f"{name} is no number: {text}")):
                compare.plot(table, "t_nic_tx_us", against=name)
