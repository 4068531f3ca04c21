"""Timing diagrams: what is drawn is what the listing of the clocks says."""

from __future__ import annotations

import re

import matplotlib as mpl
import pytest
from conftest import REPOSITORY
from matplotlib import pyplot
from matplotlib.axes import Axes

import pcitrace
from pcitrace import plot
from pcitrace.errors import DecodeError
from pcitrace.instrument.clocklist import clock_lines
from pcitrace.instrument.moments import moment

mpl.use("agg")
START, END = 26.2, 26.62
LETTERS = {"FRAME#": "F", "IRDY#": "I", "TRDY#": "T", "STOP#": "S", "DEVSEL#": "D"}


@pytest.fixture(scope="module")
def run() -> pcitrace.Run:
    return pcitrace.open(REPOSITORY / "fixtures" / "traces" / "nic_g_a" / "bus.vcd.gz")


@pytest.fixture
def ax(run: pcitrace.Run) -> Axes:
    yield plot.waveform(run, START, END, bus="A")
    pyplot.close("all")


def listed(run: pcitrace.Run) -> list[list[str]]:
    text = b"".join(clock_lines(run["A"], moment(f"{START}us"), moment(f"{END}us"))).decode()
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def test_levels_at_each_clock_are_those_of_the_listing(run: pcitrace.Run, ax: Axes) -> None:
    rows = [label.get_text() for label in ax.get_yticklabels()]
    clocks = listed(run)
    assert len(clocks) == 14
    for line, letter in LETTERS.items():
        row = rows.index(line)
        [drawn] = [one for one in ax.lines if -row - 0.31 < min(one.get_ydata()) and max(one.get_ydata()) < -row + 0.31]
        for time, _, _, asserted, *_ in clocks:
            before = [y for x, y in zip(*drawn.get_data(), strict=True) if x < float(time) - 1e-4]
            assert (before[-1] < -row) == (letter in asserted), (line, time)


def test_each_clock_says_what_it_is(run: pcitrace.Run, ax: Axes) -> None:
    rows = run["A"].transactions
    [one] = [row for row in rows.itertuples() if START < row.start_us < END]
    said = [text.get_text() for text in ax.texts]
    assert said.count("address") == 1
    assert said.count("data") == one.data_phases == 4
    assert said.count("wait") == one.wait_clks == 6
    assert "202000" in said, "AD as a word"


def test_what_cannot_be_drawn_is_said(run: pcitrace.Run) -> None:
    with pytest.raises(DecodeError, match=r"more than 400 cannot be read"):
        plot.waveform(run, 0, 100, bus="A")
    with pytest.raises(DecodeError, match=re.escape("LOCK# of bus A: not captured; there are AD, ")):
        plot.waveform(run, START, END, bus="A", lines=["LOCK#"])
