"""What other things than margins say of the edges of frames."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from pcitrace.frames import unsure


def test_no_send_is_read_when_its_frame_has_left() -> None:
    """Sends end before their frames do on the wire, and begin before these; what lies behind is other data."""
    wire = SimpleNamespace(start_us=np.array([10.0, 30.0, 50.0]), end_us=np.array([20.0, 40.0, np.nan]))
    ends = {"A": SimpleNamespace(wire=wire), "B": SimpleNamespace(wire=None)}
    columns = {
        "sender": np.array(["A"] * 5 + ["B"]),
        "wire_row": np.array([0, 0, 1, 2, -1, 0]),
        "dma_start_us": np.array([8.0, 8.0, 31.0, 45.0, 60.0, 60.0]),
        "dma_end_us": np.array([19.0, 21.0, 35.0, 55.0, 70.0, 70.0]),
        "margin_send": np.full(6, 30.0),
    }
    unsure.late(ends, columns)  # type: ignore[arg-type]  # of an end only its wire is asked
    given = np.array([True, False, False, True, True, True])
    for column in ("dma_start_us", "dma_end_us"):
        assert (~np.isnan(columns[column])).tolist() == given.tolist()
    assert (columns["margin_send"] > 0).tolist() == given.tolist()
