"""Figures: what they show is what the tables say, and where it comes from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgba

import pcitrace
from pcitrace import plot
from pcitrace.errors import FrameMatchError
from pcitrace.plot.style import CONTROL, DATA, WIRE
from pcitrace.simulate import simulate


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pcitrace.Run:
    folder = tmp_path_factory.mktemp("plot") / "run"
    simulate("acenic-fig3.1", folder, test__count=18, analyser__wires="full")
    return pcitrace.open(folder)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def texts(ax: mpl.axes.Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def bars(ax: mpl.axes.Axes, colour: str) -> list[tuple[float, float]]:
    """Begin and end of every bar of one colour, in order."""
    found = []
    for collection in ax.collections:
        faces = collection.get_facecolor()
        if len(faces) and np.allclose(faces[0], to_rgba(colour)):
            found += [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in collection.get_paths()]
    return sorted(found)


DRAWN = {
    "lanes": lambda run, ax: plot.lanes(run, ax=ax),
    "exchange": lambda run, ax: plot.exchange(run, ax=ax),
    "timeline": lambda run, ax: plot.timeline(run, ax=ax),
    "occupancy": lambda run, ax: plot.occupancy(run, ax=ax),
    "histogram": lambda run, ax: plot.histogram(run, ax=ax),
    "bursts": lambda run, ax: plot.bursts(run, "A", ax=ax),
    "delayed": lambda run, ax: plot.delayed(run, "A", ax=ax),
    "held_up": lambda run, ax: plot.held_up(run, "A", ax=ax),
    "latency": lambda run, ax: plot.latency(run, "A", ax=ax),
    "shares": lambda run, ax: plot.shares(run, "A", by="places", ax=ax),
    "terminations": lambda run, ax: plot.terminations(run, "A", ax=ax),
    "waits": lambda run, ax: plot.waits(run, "A", ax=ax),
    "waveform": lambda run, ax: plot.waveform(run, 0.0, 5.0, bus="A", ax=ax),
    "line": lambda run, ax: plot.line(run, [1, 2, 3], [2, 4, 6.5], [0.1] * 3, intercept=0, slope=2, ax=ax),
    "budget": lambda run, ax: plot.budget(run, pd.Series({"a": 1.0, "b": 2.0}), 3.1, unit="us", ax=ax),
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_on_the_axes_given_and_says_simulated(run: pcitrace.Run, name: str) -> None:
    ax = pyplot.subplots()[1]
    assert DRAWN[name](run, ax) is ax
    assert texts(ax).count("simulated") == 1
    own = DRAWN[name](run, None)
    assert own is not ax
    assert own.figure is not ax.figure


def test_all_public_plots_are_tested() -> None:
    assert set(DRAWN) == set(plot.__all__)


def test_what_is_not_simulated_is_not_marked(run: pcitrace.Run, tmp_path: Path) -> None:
    (tmp_path / "bus.sr").symlink_to(run.path / "bus.sr")
    (tmp_path / "run.toml").write_text('format = 1\norigin = "captured"\n[[captures]]\nfile = "bus.sr"\n[hosts.A]\n')
    assert "simulated" not in texts(plot.lanes(pcitrace.open(tmp_path)))


def test_lanes_are_the_transactions_and_the_dma(run: pcitrace.Run) -> None:
    ax = plot.lanes(run)
    both = pd.concat([run[name].transactions for name in run.buses])
    expected = sorted(zip(both["start_us"], both["end_us"], strict=True))
    assert bars(ax, CONTROL) == pytest.approx(np.array(expected))
    pieces = pd.concat([traffic.pieces for traffic in run.frames.hosts.values()]).dropna(subset=["first_data_us"])
    expected = sorted(zip(pieces["first_data_us"], pieces["last_data_us"], strict=True))
    assert bars(ax, DATA) == pytest.approx(np.array(expected))


def test_bars_of_the_wire_are_as_long_as_the_wire_was_busy(run: pcitrace.Run) -> None:
    table = run.frames.table.dropna(subset=["wire_start_us", "wire_end_us"]).sort_values("wire_start_us")
    drawn = bars(plot.lanes(run), WIRE)
    assert np.array(drawn) == pytest.approx(table[["wire_start_us", "wire_end_us"]].to_numpy(dtype=float), abs=1e-6)


def test_full_width_is_that_at_half_of_the_maximum(run: pcitrace.Run) -> None:
    """Of values that lie in a triangle 4 us wide it is 2 us; at a third it would be 2.7."""
    n = 20_000
    spread = np.sort(np.random.default_rng(1).triangular(8.0, 10.0, 12.0, n))
    rows = run.frames.table.iloc[np.zeros(n, dtype=int)].reset_index(drop=True).assign(gap_us=spread)
    ax = plot.histogram(run, "gap_us", frames=replace(run.frames, table=rows))
    [told] = [text for text in texts(ax) if "FWHM" in text]
    assert float(told.split("FWHM ")[1].split()[0]) == pytest.approx(2.0, abs=0.2)


def test_lanes_show_only_what_was_asked_for(run: pcitrace.Run) -> None:
    ax = plot.lanes(run, 100, 200)
    assert ax.get_xlim() == (100, 200)
    shown = bars(ax, CONTROL)
    assert 0 < len(shown) < len(run["A"].transactions)
    assert all(end >= 100 and start <= 200 for start, end in shown)


def test_exchange_marks_the_times_of_its_frames(run: pcitrace.Run) -> None:
    rows = run.frames.table.iloc[4:6]
    marked = texts(plot.exchange(run, 4))
    for _, row in rows.iterrows():
        assert f"gap {row['gap_us']:.2f}" in marked
        assert f"{row['t_nic_tx_us']:.2f}" in marked
        assert f"{row['dma_start_us'] - row['csr_last_us']:.2f}" in marked
        assert f"{row['rx_csr_us'] - row['rx_dma_end_us']:.2f}" in marked


def test_exchange_begins_with_the_request_of_the_longest_response(run: pcitrace.Run) -> None:
    longest = int(run.frames.table["length_bytes"].to_numpy().argmax())
    assert f"from frame {longest - 1}: A: 64 bytes, B: 1500 bytes" in plot.exchange(run).get_title(loc="left")


def test_exchange_of_no_frame(run: pcitrace.Run) -> None:
    with pytest.raises(FrameMatchError, match="no frame 999; there are 36"):
        plot.exchange(run, 999)


def test_timeline_writes_more_the_closer_one_looks(run: pcitrace.Run) -> None:
    start = float(run.frames.table["csr_first_us"].iloc[0])
    ax = plot.timeline(run, start, start + 50)
    far = set(texts(ax))
    ax.set_xlim(start, start + 0.3)
    near = set(texts(ax))
    assert any("WinBase" in text and "memory write" in text and "0xe8000068" in text for text in near - far)
    written = run["A"].data_phases.query("time_us >= @start")["data"].iloc[0]
    assert f"{written:08x}" in near


def test_occupancy_adds_up_to_that_of_the_whole(run: pcitrace.Run) -> None:
    ax = plot.occupancy(run, 50)
    heights = [patch.get_data() for patch in ax.patches if not patch.get_fill()]
    for (name, bus), steps in zip(run.buses.items(), heights, strict=True):
        whole = 100 * float(bus.clocks()["occupancy"].iloc[0])
        mean = float((np.abs(steps.values) * np.diff(steps.edges)).sum() / (steps.edges[-1] - steps.edges[0]))
        assert mean == pytest.approx(whole, rel=2e-3), name


def test_histogram_counts_every_frame(run: pcitrace.Run) -> None:
    ax = plot.histogram(run, "t_nic_us", "length_bytes == 64")
    values = run.frames["length_bytes == 64"].table["t_nic_us"].dropna()
    [steps] = [patch.get_data() for patch in ax.patches]
    assert steps.values.sum() == len(values)
    assert f"n {len(values)}, mean {values.mean():.3f}" in "".join(texts(ax))


def test_histogram_of_an_expression(run: pcitrace.Run) -> None:
    table = run.frames.table
    ax = plot.histogram(run, "rx_dma_end_us - csr_first_us")
    mean = (table["rx_dma_end_us"] - table["csr_first_us"]).mean()
    assert f"mean {mean:.3f}" in "".join(texts(ax))
    with pytest.raises(FrameMatchError, match="no time of frames"):
        plot.histogram(run, "nonsense_us")


def test_residuals_are_what_the_points_are_off_the_line(run: pcitrace.Run) -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.1, 3.9, 6.2])
    ax = plot.line(run, x, y, intercept=0.5, slope=1.8)
    below = ax.figure.axes[-1]
    [drawn] = [line for line in below.lines if line.get_marker() == "o"]
    assert drawn.get_ydata() == pytest.approx(y - 0.5 - 1.8 * x)


def test_line_needs_a_place_that_it_can_divide(run: pcitrace.Run) -> None:
    ax = pyplot.figure().add_axes((0, 0, 1, 1))
    with pytest.raises(ValueError, match="made by subplots"):
        plot.line(run, [1, 2], [1, 2], intercept=0, slope=1, ax=ax)


def test_budget_bars_follow_each_other(run: pcitrace.Run) -> None:
    ax = plot.budget(run, pd.Series({"a": 2.0, "b": -0.5, "c": 1.0}), unit="us")
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    assert spans == [(0, 2), (2, 1.5), (1.5, 2.5), (0, 2.5)]


def test_without_matplotlib_the_error_says_what_to_install() -> None:
    program = "import sys; sys.modules['matplotlib'] = None; import pcitrace.plot"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "figures need matplotlib: pip install 'pcitrace[plot]'" in told.stderr
