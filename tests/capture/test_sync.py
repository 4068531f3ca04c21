"""Two analysers on one time axis, from a line that both recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lab import LINES, read_run, record, replay_plan, write_sr
from numpy.typing import NDArray
from pcicap.sync import align, line_edges


def changes(seed: int, count: int = 3000, span_us: float = 20_000.0) -> NDArray[np.float64]:
    """True times of a line's edges: bursts and pauses, as on a bus."""
    random = np.random.default_rng(seed)
    gaps = random.choice([0.06, 0.12, 0.3, 1.0, 20.0], count) * random.uniform(1, 3, count)
    times = np.cumsum(gaps)
    return times * (span_us / times[-1])


def sampled(times: NDArray[np.float64], offset_us: float, drift_ppm: float, step_us: float, end_us: float) -> bytes:
    """Samples of the line on bit 1, by an analyser that began late and runs wrong."""
    own = (times - offset_us) / (1 + drift_ppm * 1e-6)
    at = np.arange(0, end_us, step_us)
    level = np.searchsorted(own, at, side="right") % 2
    return (level.astype(np.uint16) << 1).tobytes()


def test_offset_and_drift_come_back(tmp_path: Path) -> None:
    pulls = []
    for seed in range(30):
        chance = np.random.default_rng(1000 + seed)
        offset, drift = chance.uniform(-3000, 3000), chance.uniform(-100, 100)
        times = changes(seed)
        one = write_sr(tmp_path / "one.sr", sampled(times, 0, 0, 0.01, 20_000))
        two = write_sr(tmp_path / "two.sr", sampled(times, offset, drift, 0.02, 20_000), rate="50 MHz")
        found = align(line_edges(two, "A_FRAME#", 50e6), line_edges(one, "A_FRAME#", 100e6), 0.02, 0.01)
        assert found
        assert found.edges > 2000
        assert found.offset_sigma_us < 0.01
        pulls += [(found.offset_us - offset) / found.offset_sigma_us, (found.drift_ppm - drift) / found.drift_sigma_ppm]
    assert abs(np.mean(pulls)) < 0.5
    assert 0.6 < np.std(pulls) < 1.4


def test_a_clock_tells_nothing(tmp_path: Path) -> None:
    """It fits at every period."""
    path = write_sr(tmp_path / "a.sr", sampled(np.arange(0, 1000, 0.5), 0, 0, 0.01, 1000))
    edges = line_edges(path, "A_FRAME#", 100e6)
    assert align(edges, edges, 0.01, 0.01) is None


def test_lines_that_have_nothing_in_common(tmp_path: Path) -> None:
    one = write_sr(tmp_path / "one.sr", sampled(changes(1), 0, 0, 0.01, 5000))
    two = write_sr(tmp_path / "two.sr", sampled(changes(2), 0, 0, 0.01, 5000))
    edges = [line_edges(path, "A_FRAME#", 100e6) for path in (one, two)]
    assert align(edges[0], edges[1], 0.01, 0.01) is None
    assert align(edges[0][:5], edges[0], 0.01, 0.01) is None


def test_two_analysers_with_a_common_line(tmp_path: Path) -> None:
    times = changes(5)
    one = write_sr(tmp_path / "one.sr", sampled(times, 0, 0, 0.01, 9000), names=LINES)
    two = write_sr(tmp_path / "two.sr", sampled(times, 1234.567, 25, 0.01, 9000), names=LINES)
    plan = replay_plan(one, name="one").replace(
        "[hosts.A]\n[hosts.B]",
        f'[[analysers]]\nname = "two"\n[analysers.replay]\nsource = "{two}"\n'
        '[sync]\nline = "A_FRAME#"\n[hosts.A]\nanalyser = "one"\n[hosts.B]\nanalyser = "two"',
    )
    done, folder = record(tmp_path, plan)
    assert done.status == 0, done.err
    first, second = read_run(folder)["captures"]
    assert (first["offset_us"], first["drift_ppm"]) == (0, 0)
    assert second["offset_us"] == pytest.approx(1234.567, abs=5 * second["offset_sigma_us"])
    assert second["drift_ppm"] == pytest.approx(25, abs=5 * second["drift_sigma_ppm"])
    assert second["offset_sigma_us"] < 0.01
    # a line that does not tell leaves what the computer's clock says, and says so
    done, folder = record(tmp_path, plan.replace('line = "A_FRAME#"', 'line = "A_CLK"'), "silent")
    assert done.status == 0, done.err
    assert "A_CLK does not tell" in done.err
    assert read_run(folder)["captures"][1]["offset_sigma_us"] > 1000
