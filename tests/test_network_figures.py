"""Figures of the network half: what is drawn is what was measured."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import numpy as np
import pytest
from matplotlib import pyplot
from test_network_switch import SWITCH, asked, hosts, switch

from pcitrace import network
from pcitrace.cli import main
from pcitrace.errors import FitError
from pcitrace.network.budget import slope_budget
from pcitrace.network.delays import delay
from pcitrace.network.hosts import widths
from pcitrace.network.importers import _number, varied
from pcitrace.plot import network as draw
from pcitrace.report import network as report

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "network"
WINDOWS = FIXTURES.parent / "network-windows"
SLOW = "[switch]\n[[ports]]\n[[ports]]\nrate_mbit_s = 500\n"


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def test_a_histogram_holds_every_frame(tmp_path: Path) -> None:
    run = switch(tmp_path, "run", hosts(jitter=0.5) + SWITCH + asked("ping-pong", [64, 500], 400))
    [result] = network.of_paths([run]).results
    delay = result.points[1].loops[0].delay
    assert delay is not None
    assert delay.bins.counts.sum() == 400
    middle = delay.bins.edges_us[np.searchsorted(delay.bins.counts.cumsum(), 200)]
    assert abs(middle - delay.median_us[0]) < 0.1
    ax = draw.histogram([result], 1)
    assert sum(ax.patches[0].get_data().values) == pytest.approx(1)
    with pytest.raises(FitError, match="time of 500 bytes"):
        draw.histogram([network.of_paths([_silent(run)]).results[0]], 1)


def _silent(run: Path) -> Path:
    for file in run.glob("p*-received.npy"):
        content = file.read_bytes()
        file.write_bytes(content[:128])
    return run


def test_latencies_against_spacing_and_their_probability(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    for number, spacing in enumerate((18, 24, 40)):
        test = asked("stream", [1000], 400, f'spacing_us = {spacing}\narrivals = "poisson"\n')
        switch(tmp_path / "sweep", str(number), hosts() + SLOW + test, seed=number + 1)
    found = network.of_paths([tmp_path / "sweep"])
    [result] = found.results
    image = np.nan_to_num(draw.probability(result).collections[0].get_array().filled(0)).reshape(80, 3)
    assert (image.sum(axis=0) > 0.97).all()
    assert (image.sum(axis=0) < 1 + 1e-9).all()
    medians = (image.cumsum(axis=0) < 0.5).sum(axis=0)
    assert medians[0] > medians[1] > medians[2] - 1
    both = draw.latency_against_spacing(result, [replace(result, path="two pairs")])
    assert both.get_legend_handles_labels()[1] == ["1000 bytes, stream, switch", "1000 bytes, stream, two pairs"]
    with pytest.raises(FitError, match="1 spacings"):
        draw.probability(network.of_paths([tmp_path / "sweep" / "0"]).results[0])
    with pytest.raises(FitError, match="the hosts of no sweep"):
        draw.host_load(result)
    assert draw.order(result).get_ylabel() == "frames overtaken"


def test_three_senders_widen_what_one_does_not(tmp_path: Path) -> None:
    runs = []
    for count in (1, 3):
        peers = ", ".join(f'"{name}"' for name in "BCD"[:count])
        rest = 'spacing_us = 30\narrivals = "poisson"\n'
        test = asked("many-to-one", [1000], 500, rest, peers)
        runs.append(switch(tmp_path, str(count), hosts("ABCD"[: count + 1], jitter=0.5) + "[switch]\n" + test))
    results = network.of_paths(runs).results
    mean = widths(results).groupby("senders")["fwhm_us"].mean()
    assert mean[3] > 3 * mean[1]
    ax = draw.width_against_senders(results)
    assert ax.lines[-1].get_ydata().tolist() == mean.tolist()
    with pytest.raises(FitError, match="width of no stream"):
        draw.width_against_senders([])


def test_calculated_times_are_made_equal_at_a_size(tmp_path: Path) -> None:
    run = switch(tmp_path, "run", hosts() + "[switch]\n" + asked("max-rate", [200, 800, 1400], 200))
    [result] = network.of_paths([run]).results
    ax = draw.spacing(result, "length_bytes", calculated=(0.008, 0.00758, 800))
    measured, calculated = (line.get_ydata() for line in ax.lines[:2])
    assert calculated[1] == pytest.approx(measured[1])
    assert calculated[2] / calculated[0] == pytest.approx(
        (1438 * 0.008 + 1414 * 0.00758) / (238 * 0.008 + 214 * 0.00758)
    )
    with pytest.raises(FitError, match="500 bytes were not measured: 200, 800, 1400 were"):
        draw.spacing(result, "length_bytes", calculated=(0.008, 0.00758, 500))


def test_throughput_of_several_paths_is_a_colour_each(tmp_path: Path) -> None:
    test = asked("max-rate", [200, 1000], 300)
    runs = [
        switch(tmp_path, "direct", hosts() + test),
        switch(tmp_path, "slow", hosts() + SLOW.replace("[switch]", '[switch]\nname = "slow one"') + test),
    ]
    direct, slow = (one for one in network.of_paths(runs).results if one.kind == "max-rate")
    ax = draw.throughput(direct, "length_bytes", [slow])
    assert [line.get_label() for line in ax.lines] == [
        f"stream 1, max-rate, {direct.path}",
        "stream 1, max-rate, slow one",
    ]
    for line, result in zip(ax.lines, (direct, slow), strict=True):
        assert list(line.get_xdata()) == [200, 1000]
        rates = [point.parameters["user_mbit_s"].value for point in result.points]
        assert list(line.get_ydata()) == pytest.approx(rates)


def test_terms_of_a_slope_stand_one_behind_the_other() -> None:
    ax = draw.slope_budget(slope_budget({"wire": 0.08, "switch": 0.0099, "bus": 0.00775}))
    ends = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert ends == [pytest.approx(one) for one in ((0, 0.08), (0.08, 0.0099), (0.0899, 0.00775), (0, 0.09765))]


def test_calls_with_several_windows_are_one_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", str(WINDOWS), "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["results"]
    [found] = network.of_paths([WINDOWS]).results
    table = found.tables["calls"]
    assert table["value"].tolist() == [2**n * 1024 for n in (5, 6, 7, 8, 9, 10)]
    best = table["user_mbit_s"].max()
    assert told["parameters"]["user_mbit_s"]["value"] == pytest.approx(best)
    assert "largest of 6 calls: 256K" in told["parameters"]["user_mbit_s"]["reason"]
    assert table["bandwidth_delay_bytes"].tolist() == pytest.approx((best * table["rtt_us"] / 8).tolist())
    assert set(table["varied"]) == {"window"}
    ax = draw.tcp([found])
    assert ax.get_xlabel() == "window (bytes)"
    assert [line.get_linestyle() for line in ax.lines].count(":") == 1


@pytest.mark.parametrize(
    ("command", "value", "what"),
    [
        (["iperf3", "-c", "b", "-w", "32K", "-l", "1M"], "32K", "window"),
        (["nuttcp", "-w2m", "-l64k", "b"], "64k", "block"),
        (["iperf3", "--parallel", "4"], 4, "streams"),
        (["iperf3", "-C", "cubic"], "cubic", None),
        (["iperf3", "-w", "1M", "-l", "1M"], "1M", None),
        ([], None, None),
    ],
)
def test_what_was_varied_is_told_by_the_command(command: list[str], value: object, what: str | None) -> None:
    assert varied(command, value) == what


@pytest.mark.parametrize(("text", "value"), [("64", 64), ("64K", 65536), ("1.5m", 1.5 * 2**20), ("cubic", "cubic")])
def test_values_of_calls(text: str, value: object) -> None:
    assert _number(text) == value


def test_pings_of_several_sizes_are_a_line() -> None:
    found = network.of_paths([FIXTURES / "ping-64.txt", FIXTURES / "ping-1024.txt"])
    ax = draw.ping(found.results)
    intercept, slope = (found.results[0].parameters[name].value for name in ("intercept_us", "slope_us_per_byte"))
    assert intercept is not None
    assert slope is not None
    assert ax.lines[-1].get_ydata().tolist() == pytest.approx([2 * (intercept + slope * size) for size in (64, 1024)])


def test_each_line_is_told_by_its_statistic(tmp_path: Path) -> None:
    run = switch(tmp_path, "run", hosts() + SWITCH + asked("ping-pong", [64, 500, 1000, 1500], 100))
    [result] = network.of_paths([run]).results
    lines = result.as_dict()["lines"]
    assert list(lines) == ["median", "mean", "q10"]
    assert lines["median"]["intercept_us"]["value"] == result.parameters["intercept_us"].value
    assert lines["q10"]["intercept_us"]["value"] < lines["mean"]["intercept_us"]["value"]


def test_the_page_draws_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    for number, spacing in enumerate((18, 40)):
        test = asked("stream", [1000], 200, f"spacing_us = {spacing}\n")
        switch(tmp_path / "sweep", str(number), hosts() + SLOW + test, seed=number + 1)
    places = {
        tmp_path / "sweep": ["planned time between frames", "one way (µs)"],
        FIXTURES.parent / "network-windows": ["user data (Mbit/s, decimal)", "window (bytes)"],
        FIXTURES / "ping-64.txt": ["ping's user bytes"],
    }
    for place, words in places.items():
        text = html.unescape(report.page(network.of_paths([place])))
        for word in words:
            assert word in text, (place, word)


@pytest.mark.parametrize("step_us", [0.001, 0.02, 1.0])
def test_peaks_of_a_distribution(step_us: float) -> None:
    """Two answers apart are two peaks, at their places and with their counts; one is one, whatever the clock."""
    several = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        begin = random.uniform(0, 1e6, 2000)
        one = random.normal(50.0, 1.0, 2000)
        two = np.concatenate([one[:1200], one[1200:] + 12.0])
        for number, true in ((1, one), (2, two)):
            read = (np.floor((begin + true) / step_us) - np.floor(begin / step_us)) * step_us
            found = delay(read, step_us)
            assert found is not None
            several += len(found.peaks) != number
            if len(found.peaks) == 2:
                assert [peak.at_us for peak in found.peaks] == pytest.approx([50.0, 62.0], abs=0.6)
                assert 1.2 < found.peaks[0].count / found.peaks[1].count < 1.8
    assert several <= 2
