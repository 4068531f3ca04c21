"""The names that a notebook wants: lazy, one line as text, numbers with unit and source as HTML."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import pcitrace
from pcitrace import plot, report, results
from pcitrace.errors import DecodeError
from pcitrace.estimate import Estimate, unknown
from pcitrace.run import Run
from pcitrace.simulate import Simulation, simulate


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pcitrace.Run:
    folder = tmp_path_factory.mktemp("notebook") / "run"
    simulate(Simulation(), folder, values={"test.kind": "ping-pong", "test.count": 30, "test.sizes": (64, 512, 1500)})
    return pcitrace.open(folder)


def test_everything_shows_itself_in_one_line_and_as_numbers(run: pcitrace.Run) -> None:
    for thing in (run.results, run["A"].bursts, run["A"].csr, run.frames, run.results.constants["t_nic_us"]):
        assert "\n" not in repr(thing)
        assert re.fullmatch(r"<.*>", repr(thing))
        html = thing._repr_html_()
        assert " ± " in html
        assert "measured" in html
        assert re.search(r"\bus\b", html)
    assert "simulated" in run.results._repr_html_()


def test_values_have_as_many_digits_as_they_are_known_to() -> None:
    one = Estimate(4.30727, 0.0013, 450, sigma_frames=0.0, unit="us")
    assert repr(one) == "<Estimate 4.3073±0.0013 us, measured, n = 450>"
    assert one._repr_html_() == "4.3073 ± 0.0013 us <small>(measured, n = 450)</small>"
    assert unknown("a < b")._repr_html_() == "unknown <small>(a &lt; b)</small>"


def test_names_are_lazy_and_made_once(run: pcitrace.Run) -> None:
    opened = pcitrace.open(run.path)
    assert not opened._made
    assert opened.frames is opened.frames
    assert opened.results is opened.results
    assert opened["A"].bursts is opened["A"].bursts
    assert opened.results.frames is opened.frames
    with pytest.raises(DecodeError, match=r"open it with pcitrace.open"):
        Run(run.path, run.captures, {}).traffic("A")


def test_bursts_and_csr_are_tables_like_any_other(run: pcitrace.Run) -> None:
    bursts, csr = run["A"].bursts, run["A"].csr
    pd.testing.assert_frame_equal(bursts.table, run.frames.hosts["A"].bursts)
    pd.testing.assert_frame_equal(csr.table, run.frames.hosts["A"].csr_accesses)
    chosen = bursts[bursts["kind"] == "send_data"]
    assert type(chosen) is pd.DataFrame
    assert len(chosen) == 30
    assert "frame" in bursts.columns
    bare = pcitrace.open(run.captures[0].path)
    assert len(bare["A"].csr) == len(csr)


def test_dir_shows_what_is_meant_to_be_used() -> None:
    names = dir(pcitrace)
    assert {"open", "Run", "Bus", "Estimate", "LatencyModel", "plot", "results", "timing", "simulate"} <= set(names)
    assert not {"import_module", "TYPE_CHECKING", "Any"} & set(names)
    for name in names:
        assert getattr(pcitrace, name) is not None
    program = "import sys, pcitrace; dir(pcitrace); assert 'pandas' not in sys.modules; pcitrace.results; pcitrace.plot"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_figures_and_pages_take_the_frames_they_are_given(run: pcitrace.Run, tmp_path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    some = run.frames["length_bytes == 64"]
    axes = plot.histogram(run, "t_nic_us", frames=some)
    assert any(text.get_text().startswith(f"n {len(some)}, ") for text in axes.texts)
    axes = plot.exchange(run, frames=some)
    assert "64 bytes" in axes.get_title(loc="left")
    assert "1500" not in axes.get_title(loc="left")
    page = report.page(results.of_run(run, some))
    assert f"Some of the frames: {len(some)} of {len(run.frames)}." in page
    assert f"{len(some)} of {len(some)}" in page
    assert f"n {len(some)}" in page
    assert f"n {len(run.frames)}" not in page
    mpl.pyplot.close("all")
