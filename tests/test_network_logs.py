"""Frame logs as columns, and sums over them, a piece at a time: the same as of the whole at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from netlogs import LOG

from pcitrace.network import logs, pieces


@pytest.mark.parametrize("changes_at", [None, 0, 1, logs.CHUNK - 1, logs.CHUNK, 2 * logs.CHUNK + 5])
@pytest.mark.parametrize("rows", [2 * logs.CHUNK + 7])
def test_columns_are_those_of_the_file(tmp_path: Path, rows: int, changes_at: int | None) -> None:
    random = np.random.default_rng(1)
    written = np.zeros(rows, LOG)
    written["sequence"] = random.permutation(rows)
    written["stream"], written["node"], written["length_bytes"] = 3, 2, 1000
    written["send_ns"], written["receive_ns"] = random.integers(0, 1 << 60, rows), np.iinfo(np.int64).min
    if changes_at is not None:
        for name, value in (("stream", 4), ("node", 1), ("length_bytes", 64), ("flags", 2), ("receive_ns", 5)):
            written[name][changes_at] = value
    np.save(tmp_path / "log.npy", written)
    log = logs.read(tmp_path / "log.npy")
    for name in logs.COLUMNS:
        assert np.array_equal(getattr(log, name), written[name]), name
    other = [] if changes_at is None else [(4, 1, 64)]
    assert logs.streams(tmp_path / "log.npy") == [(3, 2, 1000), *other]
    mine = written[(written["stream"] == 3) & (written["node"] == 2)]
    assert np.array_equal(log.of(3, 2).send_ns, mine["send_ns"])
    assert len(log.of(4, 1)) == len(other)
    assert len(log.of(4, 2)) == 0


@pytest.mark.parametrize("count", [2, 3, pieces.PIECE, pieces.PIECE + 1, 2 * pieces.PIECE + 9])
def test_sums_are_those_of_the_whole(count: int) -> None:
    random = np.random.default_rng(count)
    times = np.cumsum(random.integers(-5, 1000, count)) + 10**15
    values = random.normal(5, 2, count)
    steps = np.diff(times)
    assert np.array_equal(pieces.differences_us(times), steps / 1e3)
    assert pieces.least_difference(times) == (steps.min(), steps.argmin())
    assert pieces.squares(values, 4.0) == pytest.approx(((values - 4) ** 2).sum(), rel=1e-12)
    assert pieces.absolute_change(values) == pytest.approx(np.abs(np.diff(values)).mean(), rel=1e-12)
    for lag in {1, count // 2}:
        apart = (times[lag:] - times[:-lag]).astype(float) - 450.0 * lag
        assert pieces.squares_apart(times, lag, 450.0 * lag) == pytest.approx((apart**2).sum(), rel=1e-12)
