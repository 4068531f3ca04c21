"""Decode with the kernel and put its rows beside those of the oracle."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oracle
import pyarrow as pa
import pytest
from buses import GRANTS

from pcitrace import _kernel
from pcitrace.wiring import resolve_wiring


@dataclass
class Tables:
    """The four tables of one bus, as lists of rows."""

    transactions: list[dict]
    data_phases: list[dict]
    problems: list[dict]
    clocks: list[dict]


def decode(path: Path, bus: str | None = None, wiring: Mapping[str, Any] | None = None, **options: Any) -> Tables:
    """Decode one bus of a capture file with the kernel; options as of `_kernel.decode`."""
    capture = _kernel.open(str(path))
    stated = {"clock_mhz": options["clock_mhz"]} if "clock_mhz" in options else {}  # then there need be no CLK
    spec = resolve_wiring(capture.channels, {**stated, **(wiring or {})}).bus(bus).spec()
    options.setdefault("data_phases", True)
    [decoded] = _kernel.decode(capture, [spec], **options)
    names = ("transactions", "data_phases", "problems", "clocks")
    return Tables(*(pa.table(getattr(decoded, name)).to_pylist() for name in names))


def expected(
    decoded: oracle.Decoded,
    stamps: Sequence[int],
    tick_us: float,
    suspect: Sequence[bool] | None = None,
    bus: str = "PCI",
) -> tuple[list[dict], list[dict]]:
    """What the kernel's transactions and data phases must be: `stamps` of the clocks, each `tick_us` long."""
    rows = []
    for row in decoded.transactions:
        first, last = row["start_clk"], row["start_clk"] + row["clocks"] - 1
        moved = [row["first_data_clk"], row["last_data_clk"]]
        rows.append(
            {
                **{key: value for key, value in row.items() if not key.endswith("_data_clk")},
                "bus": bus,
                "start_sample": stamps[first],
                "end_sample": stamps[last],
                "start_us": stamps[first] * tick_us,
                "end_us": stamps[last] * tick_us,
                "first_data_us": None if moved[0] is None else stamps[moved[0]] * tick_us,
                "last_data_us": None if moved[1] is None else stamps[moved[1]] * tick_us,
                "suspect": None if suspect is None else any(suspect[first : last + 1]),
            }
        )
    phases = [
        {
            "bus": bus,
            **{key: value for key, value in phase.items() if key != "clk"},
            "time_us": stamps[phase["clk"]] * tick_us,
        }
        for phase in decoded.data_phases
    ]
    return rows, phases


def assert_same_rows(got: Sequence[Mapping], wanted: Sequence[Mapping]) -> None:
    """Rows equal in every column; times to within a thousandth of a ns and a double's rounding."""
    for number, (a, b) in enumerate(zip(got, wanted, strict=False)):
        assert a.keys() == b.keys()
        differs = {key: (a[key], b[key]) for key in a if not same(a[key], b[key])}
        assert not differs, f"row {number} (got, wanted): {differs}; wanted {dict(b)}"
    assert len(got) == len(wanted), f"{len(got)} rows, wanted {len(wanted)}"


def same(a: object, b: object) -> bool:
    """Equal, None and booleans told from numbers; doubles up to rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=1e-12, abs=1e-6)
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def assert_equals_oracle(
    tables: Tables,
    clocks: Sequence[oracle.Clock],
    captured: frozenset[str],
    stamps: Sequence[int],
    tick_us: float,
    suspect: Sequence[bool] | None = None,
    width: int | None = None,
) -> None:
    """The kernel's tables are what the oracle says of these clocks."""
    decoded = oracle.decode(clocks, captured, GRANTS, width)
    rows, phases = expected(decoded, stamps, tick_us, suspect)
    assert_same_rows(tables.transactions, rows)
    assert_same_rows(tables.data_phases, phases)
    counts = oracle.account(decoded.classes, captured)
    [window] = tables.clocks
    assert {key: window[key] for key in counts} == counts
    assert_illegal_rows([p for p in tables.problems if p["kind"] == "illegal_sequence"], decoded, stamps, tick_us)


def assert_illegal_rows(
    rows: Sequence[Mapping], decoded: oracle.Decoded, stamps: Sequence[int], tick_us: float
) -> None:
    """Each illegal clock is in one row, and a row tells its first and last clock and how many they are."""
    left = sorted(decoded.illegal)
    begins = [row["start_clk"] for row in decoded.transactions]
    for row in rows:
        first, last = row["first_clk"], row["last_clk"]
        assert same(row["time_us"], stamps[first] * tick_us)
        assert {first, last} <= set(left)
        assert row["count"] > 1 or first == last
        assert row["transaction"] is None or row["count"] == 1
        assert not any(first < clk < last for clk in begins), "a row ends where a transaction begins"
    assert sum(row["count"] for row in rows) == len(left)
    texts_and_spans = {(row["text"], row["transaction"], bisect(begins, row["first_clk"])) for row in rows}
    assert len(texts_and_spans) == len(rows), "what repeats is one row"
