"""Sends whose lengths come again on the wire: whether they may as well be later frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cardbench import Bench, score, write

import pcitrace
from pcitrace.traffic.goals import Target
from pcitrace.traffic.period import as_well_later


def wire(lengths: list[int], gap_us: float = 1.0, cut: bool = True) -> Target:
    """Frames one behind the other, a microsecond for 10 bytes; the capture begins within the first."""
    size = np.array(lengths)
    end_us = np.cumsum(size / 10 + gap_us) - gap_us
    start_us = end_us - size / 10
    start_us[0] = -np.inf if cut else 0.0
    return Target(start_us, end_us, size, size)


def later(target: Target, at: np.ndarray, lead_us: float, rests_us: float = 0.0) -> bool:
    """Sends of some frames, each so long before it is on the wire; the bus is seen so long after the last frame."""
    begun_us = target.start_us[at] - lead_us
    seen_us = (min(0.0, *begun_us), max(target.end_us[-1] + rests_us, *begun_us)) if len(at) else (0.0, 0.0)
    return as_well_later(target, at, begun_us, seen_us)


THREE = [60, 200, 900] * 6
AT = np.arange(3, 15)
"""Of 18 frames the first were sent before the capture; when the last are, it is over."""


@pytest.mark.parametrize(
    ("target", "at", "lead_us", "may"),
    [
        (wire(THREE), AT, 40.0, True),
        (wire([100] * 18), AT, 40.0, True),
        (wire(THREE, cut=False), AT, 40.0, False),
        (wire([60, 70, 80, 90, 100, 110] * 3), AT, 40.0, True),
        (wire(list(range(60, 78))), AT, 40.0, False),
        (wire(THREE), AT[:9], 40.0, True),
        (wire(THREE), np.arange(6, 18), 40.0, False),
        (wire(THREE), AT, -150.0, False),
    ],
    ids=[
        "three in turn", "of one length", "the beginning is there", "six in turn", "none comes again",
        "the last sends are not there", "sent within the capture", "after that is on the wire",
    ],
)  # fmt: skip
def test_what_the_ends_of_a_capture_do_not_tell(target: Target, at: np.ndarray, lead_us: float, may: bool) -> None:
    assert later(target, at, lead_us) == may


def test_where_the_wire_rests_nothing_waits_for_it() -> None:
    target = wire(THREE)
    target.start_us[1::2] += 5.0
    target.end_us[1::2] += 5.0
    assert not later(target, AT, 40.0)


def test_what_would_have_been_seen_on_the_wire_was_not_sent_then() -> None:
    """The wire rests at the end of the capture: three frames more would have been on it."""
    assert later(wire(THREE), np.arange(3, 18), 40.0)
    assert not later(wire(THREE), np.arange(3, 18), 40.0, rests_us=200.0)


def test_few_sends_tell_nothing() -> None:
    target = wire(THREE)
    assert not later(target, AT[:3], 40.0)
    assert not later(target, AT[:0], 40.0)


def test_sends_from_the_middle_of_a_stream_are_not_the_nearest_frames(tmp_path: Path) -> None:
    """Ten were six frames too soon on the wire, and no row was of one frame."""
    bench = Bench("mid-stream", 81)
    write(bench, tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    scored = score(bench, pcitrace.open(tmp_path).frames.table, "control16")
    assert scored.total()["wrong"] == scored.extra == scored.crossed == 0
    assert scored.total()["right"] > 60
