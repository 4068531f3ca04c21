"""Two captures with clocks of their own: the offset that frames give, what is not known, what they contradict."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import simulated
from hypothesis import given, settings
from hypothesis import strategies as st

import pcitrace
from pcitrace.frames.offsets import Passing, coarse
from pcitrace.results import Results, of_run
from pcitrace.simulate import Simulation, simulate

SIZES = (64, 256, 512, 1000, 1500)
STATED = r"(offset_us|offset_sigma_us|drift_ppm|drift_sigma_ppm) = .*\n"


def two_captures(folder: Path, *, forget: str = STATED, **values: object) -> Results:
    """Return the numbers of a bench with an analyser a host, of which run.toml does not say how far they are apart."""
    bench = {"test.kind": "ping-pong", "test.sizes": SIZES, "test.count": 40, "analyser.separate": True, **values}
    simulate(Simulation(), folder, seed=3, values=bench)
    text = (folder / "run.toml").read_text()
    assert re.search(forget, text)
    (folder / "run.toml").write_text(re.sub(forget, "", text))
    return of_run(pcitrace.open(folder))


@pytest.mark.parametrize("wires", ["control14", "control16", "full"])
def test_frames_both_ways_tell_the_offset(tmp_path: Path, wires: str) -> None:
    found = two_captures(tmp_path / "run", **{"analyser.offset_us": 123.4, "analyser.wires": wires})
    first, second = found.as_dict()["captures"]
    assert first["offset_us"]["value"] == 0
    told = second["offset_us"]
    assert told["source"] == "estimated"
    assert abs(told["value"] - 123.4) < 3.5 * told["sigma"] < 0.05
    assert any("if they take equally long both ways" in finding for finding in found.findings)
    truth = simulated.truth(found.run.path)["constants"]["t_nic_us"]["value"]
    t_nic = found.constants["t_nic_us"]
    assert abs(t_nic.value - truth) < 4 * t_nic.sigma_measurement
    assert found.as_dict()["frames"]["matched"] >= 70
    # What the offset is not known to is in whatever lies between the captures, frame by frame.
    assert found.timing.t_nic_rx.n == 0 or found.timing.t_nic_rx.sigma_measurement > t_nic.sigma_measurement


def test_the_drift_of_the_clocks_is_told_too(tmp_path: Path) -> None:
    found = two_captures(tmp_path / "run", **{"analyser.offset_us": 22.3, "analyser.drift_ppm": 40.0})
    told = found.as_dict()["captures"][1]["offset_us"]
    assert abs(told["value"] - 22.3) < 3.5 * told["sigma"] < 0.05
    assert found.run.folder.run["captures"][1]["drift_ppm"] == pytest.approx(40.0, abs=3.0)
    # A drift that is stated is taken.
    forget = r"(offset_us|offset_sigma_us) = .*\n"
    kept = two_captures(tmp_path / "kept", forget=forget, **{"analyser.offset_us": 22.3, "analyser.drift_ppm": 40.0})
    assert kept.run.folder.run["captures"][1]["drift_ppm"] == pytest.approx(40.0, abs=1e-3)
    told = kept.as_dict()["captures"][1]["offset_us"]
    assert abs(told["value"] - 22.3) < 3.5 * told["sigma"] < 0.05


def test_frames_one_way_do_not_tell_it(tmp_path: Path) -> None:
    found = two_captures(tmp_path / "run", **{"test.kind": "stream", "analyser.offset_us": 12.0})
    told = found.as_dict()
    assert told["captures"][1]["offset_us"]["value"] is None
    assert "one way only" in told["captures"][1]["offset_us"]["reason"]
    assert told["constants"]["t_nic_us"]["value"] is None
    assert "offset" in told["constants"]["t_nic_us"]["reason"]
    table = found.frames.table
    for name in ("rx_dma_start_us", "rx_dma_end_us", "gap_us", "t_nic_us", "t_nic_rx_us"):
        assert table[name].isna().all(), name
    assert table["t_nic_tx_us"].notna().all()
    # A time on one capture's clock needs no offset.
    truth = simulated.truth(found.run.path)["constants"]["R_PCI_recv_us_per_byte"]["value"]
    rate = found.constants["R_PCI_recv_us_per_byte"]
    assert abs(rate.value - truth) < 4 * rate.sigma_measurement


@pytest.mark.parametrize("wrong_us", [-123.0, 7.0])
def test_a_stated_offset_that_frames_contradict_is_a_finding(tmp_path: Path, wrong_us: float) -> None:
    stated = r"offset_us = 123.4\n"
    two_captures(tmp_path / "run", forget=r"NOTHING|offset_sigma_us = .*\n|\Z", **{"analyser.offset_us": 123.4})
    text = (tmp_path / "run" / "run.toml").read_text()
    right = of_run(pcitrace.open(tmp_path / "run"))
    assert not any("offset" in finding for finding in right.findings)
    assert right.as_dict()["captures"][1]["offset_us"]["value"] == 123.4
    (tmp_path / "run" / "run.toml").write_text(re.sub(stated, f"offset_us = {123.4 + wrong_us}\n", text))
    found = of_run(pcitrace.open(tmp_path / "run"))
    [finding] = [one for one in found.findings if "offset_us of" in one]
    assert "before they were sent" in finding
    assert float(re.search(r"with ([\d.]+) us frames take equally long", finding)[1]) == pytest.approx(123.4, abs=0.3)
    assert found.constants["t_nic_us"].value is None
    assert "waited" not in found.constants["t_nic_us"].reason


def test_cards_that_differ_make_the_offset_less_certain(tmp_path: Path) -> None:
    """Equal transit is assumed; where the wire shows that the sending sides differ, sigma has as much."""
    found = two_captures(tmp_path / "run", **{"analyser.offset_us": 50.0, "a.nic.send_transit_us": 3.0})
    told = found.as_dict()["captures"][1]["offset_us"]
    assert told["sigma"] > 0.5
    assert abs(told["value"] - 50.0) < 3 * told["sigma"]


def exchange(
    random: np.random.Generator, n: int, offset_us: float, drift_ppm: float, period_us: float
) -> list[Passing]:
    """Return frames there and back, those of the second capture on its own clock; some are lost."""
    length = random.choice([60, 200, 900, 1514], n)
    sent = np.cumsum(random.uniform(0.2, 1.8, n) * period_us)
    left = sent + length * 0.008
    arrived = left + 2.0 + random.exponential(0.1, n)
    answered = arrived + random.uniform(5.0, 15.0, n)
    answer_left = answered + 60 * 0.008
    back = answer_left + 2.0 + random.exponential(0.1, n)
    own = lambda us: (us - offset_us) / (1 + drift_ppm * 1e-6)  # noqa: E731
    there, returned = random.random(n) < 0.95, random.random(n) < 0.95
    small = np.full(n, 60)
    return [
        Passing(left, length, own(arrived)[there], length[there]),
        Passing(own(answer_left), small, back[returned], small[returned]),
    ]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(30, 400),
    offset_us=st.floats(-5e4, 5e4),
    drift_ppm=st.floats(-80, 80),
)
def test_the_offset_lies_between_its_bounds(seed: int, n: int, offset_us: float, drift_ppm: float) -> None:
    there, back = exchange(np.random.default_rng(seed), n, offset_us, drift_ppm, 100.0)
    found = coarse(there, back)
    assert found is not None
    assert found.both_ways
    middle_us = float(np.median(there.arrived_us))
    true_us = offset_us + drift_ppm * 1e-6 * middle_us
    moved_us = found.drift_ppm * 1e-6 * middle_us
    assert found.least_us + moved_us - 0.5 < true_us < found.most_us + moved_us + 0.5
    assert found.most_us - found.least_us < 6.0
    only = coarse(there, None)
    assert only is not None
    assert not only.both_ways


def test_what_repeats_is_told_by_how_many_frames_fit() -> None:
    """A regular exchange fits a period later nearly as well: all frames but one."""
    at = np.arange(60) * 100.0
    size = np.full(60, 1000)
    there = Passing(at, size, at + 2.0 - 4321.0, size)
    back = Passing(at + 30.0 - 4321.0, size, at + 32.0, size)
    found = coarse(there, back)
    assert found is not None
    assert found.offset_us == pytest.approx(4321.0, abs=0.01)
    assert coarse(Passing(at[:0], size[:0], at, size), None) is None
