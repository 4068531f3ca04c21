"""The wire behind a NIC: TXEN, TXCLK, TXDATA to the bytes of each frame, against the truth of the nic_* traces."""

from __future__ import annotations

import zlib

import numpy as np
import pandas as pd
import pytest
import truth
from conftest import REPOSITORY, shared_dir

import pcitrace
from pcitrace.traffic.content import wire_frames


@pytest.mark.parametrize("host", ["A", "B"])
@pytest.mark.parametrize("name", truth.NIC)
def test_frames_on_the_wire_equal_truth(name: str, host: str) -> None:
    folder = shared_dir() / "traces" / name
    frames = [row for row in truth.lines(folder / "truth.jsonl.gz") if row.get("type") == "frame"]
    wanted = sorted((row for row in frames if row["dir"].startswith(host)), key=lambda row: row["wire_start_ns"])
    wire = pcitrace.open(folder / "bus.vcd.gz")[host].wire
    assert len(wire) == len(wanted)
    for got, row in zip(wire.to_dict("records"), wanted, strict=True):
        assert abs(got["start_us"] * 1000 - row["wire_start_ns"]) < 1  # the dump is rounded to 1 ns
        assert abs(got["end_us"] * 1000 - row["wire_end_ns"]) < 1
        data = got["bytes"]
        assert len(data) == row["wire_bytes_incl_preamble"]
        assert data[:8] == b"\x55" * 7 + b"\xd5"
        frame, fcs = data[8:-4], data[-4:]
        assert (zlib.crc32(frame).to_bytes(4, "little") == fcs) == row["fcs_ok"]
        assert len(frame) == row["frame_bytes_no_fcs"]
        assert frame[14:16] == host.encode() + b"\x01"
        assert int.from_bytes(frame[16:18], "big") == row["seq"]
        assert int.from_bytes(frame[18:20], "big") == row["user_bytes"]


def test_without_data_lines_the_bytes_are_null() -> None:
    """control16.sr has TXEN only, at 100 MS/s."""
    folder = REPOSITORY / "fixtures" / "traces" / "nic_g_a"
    exact = pcitrace.open(folder / "bus.vcd.gz")["A"].wire
    seen = pcitrace.open(folder / "control16.sr")["A"].wire
    assert len(seen) == len(exact)
    assert seen["bytes"].isna().all()
    for column in ("start_us", "end_us"):
        assert (seen[column] - exact[column]).between(-0.001, 0.0101).all()


def test_without_txen_there_is_no_wire() -> None:
    with pytest.raises(pcitrace.WiringError, match="TXEN"):
        _ = pcitrace.open(REPOSITORY / "fixtures" / "traces" / "blue33_seq1" / "bus.vcd.gz").bus.wire


@pytest.mark.parametrize("step_us", [0.0, 0.002, 0.005, 0.010, 0.041])
def test_the_edges_leave_the_true_length_and_few_others(step_us: float) -> None:
    """1 Gbit/s, each edge seen at the next sample: a byte of 8 ns is a part of a step, or several."""
    rng = np.random.default_rng(5)
    length = rng.integers(60, 1515, 2000)
    start = rng.uniform(0, 1e6, 2000)
    edges = np.column_stack([start, start + (length + 12) * 0.008 * (1 + 100e-6)])
    if step_us:
        edges = np.ceil(edges / step_us) * step_us
    wire = pd.DataFrame({"start_us": edges[:, 0], "end_us": edges[:, 1], "bytes": [None] * 2000})
    found = wire_frames(wire, 0.008, 8, step_us)
    assert ((found.least <= length) & (length <= found.most)).all()
    assert ((found.least <= found.length) & (found.length <= found.most)).all()
    assert (found.most - found.least).max() <= 2 * step_us / 0.008 + 0.5
