"""The rules on the upper half of a 64-bit bus: PAR64, C/BE[7:4]#, AD[63:32]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from test_parity64 import CONTROL, DATA

from pcitrace import _kernel
from pcitrace.instrument import rules
from pcitrace.wiring import resolve_wiring

LINES = [*CONTROL, *DATA]
LETTERS = {"FRAME#": "F", "IRDY#": "I", "TRDY#": "T", "DEVSEL#": "D", "STOP#": "S", "RST#": "R", "REQ64#": "Q",
           "ACK64#": "K"}  # fmt: skip
HIGH = 0x1234_5678 << 32


class Clocks:
    """Levels clock by clock; parity is made at the end, so that a change is not bad parity."""

    def __init__(self, command: int, body: list[str], enables: int = 0) -> None:
        self.asserted = ["", "", "", "FQ", *body, *[""] * 6]
        count = len(body)
        self.ad = [0] * 3 + [HIGH | 0x1000] + [HIGH | 0xCAFE] * count + [0] * 6
        self.cbe = [0] * 3 + [command] + [enables] * count + [0] * 6
        self.wrong: set[tuple[int, str]] = set()

    def judged(self) -> set[tuple[str, int]]:
        rows = []
        for n, letters in enumerate(self.asserted):
            ad, cbe = (self.ad[n - 1], self.cbe[n - 1]) if n else (0, 0)
            low = ((ad & 0xFFFFFFFF).bit_count() + (cbe & 15).bit_count()) & 1 ^ ((n, "PAR") in self.wrong)
            high = ((ad >> 32).bit_count() + (cbe >> 4).bit_count()) & 1 ^ ((n, "PAR64") in self.wrong)
            lines = [int(LETTERS[line] not in letters) for line in CONTROL]
            bits = [self.ad[n] >> k & 1 for k in range(64)] + [self.cbe[n] >> k & 1 for k in range(8)]
            rows.append([*lines, *bits, int(low), int(high)])
        samples = np.packbits(np.array(rows, np.uint8), axis=1, bitorder="little")
        capture = _kernel.from_samples(samples.tobytes(), samples.shape[1], LINES)
        spec = resolve_wiring(capture.channels, None, 33.0).bus().spec()
        [decoded] = _kernel.decode(capture, [spec], clock_mhz=33.0, rules=sorted(rules.catalogue()))
        table = pa.table(decoded.violations)
        return set(zip(table["rule"].to_pylist(), table["clk"].to_pylist(), strict=True))


WRITE = (0x7, ["FQ", "FIQDK", "FIQDK", "FITQDK", "IDK", "ITDK"])
READ = (0x6, ["FQ", "FQDK", "FTQDK", "FITQDK", "FTQDK", "ITDK"])
REFUSED = (0x7, ["FQ", "FIQD", "FIQD", "FITQD", "ID", "ITD"])
INVALIDATE = (0xF, WRITE[1])


def parity(line: str) -> Callable[[Clocks, int], None]:
    return lambda clocks, n: clocks.wrong.add((n + 1, line))


def enables(clocks: Clocks, n: int) -> None:
    clocks.cbe[n] ^= 0x40


def data(clocks: Clocks, n: int) -> None:
    clocks.ad[n] ^= 1 << 45


@pytest.mark.parametrize("kind", [WRITE, READ, REFUSED, INVALIDATE])
def test_clean_transactions_break_nothing(kind: tuple[int, list[str]]) -> None:
    assert Clocks(*kind).judged() == set()


@pytest.mark.parametrize(
    ("kind", "edit", "clk", "rule"),
    [
        (WRITE, parity("PAR64"), 3, "P01"),
        (WRITE, parity("PAR64"), 7, "P02"),
        (WRITE, parity("PAR"), 7, "P02"),
        (READ, parity("PAR64"), 6, "P03"),
        (WRITE, enables, 6, "M14"),
        (WRITE, data, 6, "M15"),
        (READ, data, 7, "T14"),
    ],
)
def test_a_fault_of_the_upper_half_is_found(
    kind: tuple[int, list[str]], edit: Callable[[Clocks, int], None], clk: int, rule: str
) -> None:
    clocks = Clocks(*kind)
    edit(clocks, clk)
    assert {id for id, _ in clocks.judged()} == {rule}
    assert (rule, clk) in clocks.judged()


@pytest.mark.parametrize(("edit", "clk"), [(parity("PAR64"), 7), (enables, 6), (data, 6)])
def test_the_upper_half_counts_only_where_the_target_takes_64_bits(
    edit: Callable[[Clocks, int], None], clk: int
) -> None:
    clocks = Clocks(*REFUSED)
    edit(clocks, clk)
    assert clocks.judged() == set()


def test_memory_write_and_invalidate_enables_the_upper_bytes_too() -> None:
    assert {id for id, _ in Clocks(*INVALIDATE, enables=0x20).judged()} == {"M18"}
