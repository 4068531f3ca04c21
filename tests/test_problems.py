"""Problems that repeat are one row with its count, so their table does not grow with the capture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pcitrace import _kernel

LINES = ("FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#")
SPEC = {"name": "A", "width": None, "lines": {line: (bit, 0, True) for bit, line in enumerate(LINES)}}


def decode(clocks: np.ndarray, threads: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Decode levels of LINES (bit 0 is FRAME#), one byte a clock; the tables as rows."""
    capture = _kernel.from_samples(clocks.astype(np.uint8).tobytes(), 1, LINES)
    [decoded] = _kernel.decode(capture, [SPEC], clock_mhz=33.0, threads=threads)
    return {name: pa.table(getattr(decoded, name)).to_pylist() for name in ("transactions", "problems", "clocks")}


def levels(asserted: str) -> int:
    """The byte of a clock in which the lines with these first letters are asserted."""
    return 0b11111 ^ sum(1 << bit for bit, line in enumerate(LINES) if line[0] in asserted)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_line_that_toggles_is_one_row(threads: int) -> None:
    clocks = np.full(4_000_000, levels(""))
    clocks[1::2] = levels("I")
    [row] = decode(clocks, threads)["problems"]
    assert row["kind"] == "illegal_sequence"
    assert (row["count"], row["first_clk"], row["last_clk"]) == (2_000_000, 1, 3_999_999)
    assert (row["transaction"], row["time_us"]) == (None, pytest.approx(1 / 33))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_transaction_ends_a_row(threads: int) -> None:
    idle, noise = [levels("")] * 4, [levels("I"), levels("")] * 50
    read = [levels(asserted) for asserted in ("F", "FI", "FID", "ITD")]
    tables = decode(np.array([*idle, *noise, *idle, *read, *idle, *noise]), threads)
    [transaction] = tables["transactions"]
    assert transaction["termination"] == "completion"
    assert [(row["count"], row["first_clk"], row["last_clk"]) for row in tables["problems"]] == [
        (50, 4, 102),
        (50, 116, 214),
    ]


def test_an_inverted_line_is_few_rows() -> None:
    read = [levels(asserted) for asserted in ("F", "FI", "FID", "FITD", "ITD", "", "")]
    clocks = np.tile(np.array(read, np.uint8) ^ 0b10, 200_000)
    tables = decode(clocks)
    assert len(tables["problems"]) <= 2 + len(tables["transactions"])
    [window] = tables["clocks"]
    assert sum(row["count"] for row in tables["problems"]) >= 200_000
    assert window["total"] == len(clocks)
