"""PAR64 is checked beside PAR; PCI-X is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import waveforms

import pcitrace
from pcitrace import _kernel
from pcitrace.cli import main
from pcitrace.errors import DecodeError
from pcitrace.wiring import resolve_wiring

CONTROL = ["FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "REQ64#", "ACK64#", "RST#"]
DATA = [f"AD{n}" for n in range(64)] + [f"CBE{n}#" for n in range(8)] + ["PAR", "PAR64"]


def clock(asserted: str = "", ad: int = 0, cbe: int = 0, par: int = 0, par64: int = 0) -> list[int]:
    """The levels of one clock; `asserted` has the first letters of the lines, and 6 for REQ64# and ACK64#."""
    low = {"FRAME#": "F", "IRDY#": "I", "TRDY#": "T", "DEVSEL#": "D", "STOP#": "S", "RST#": "R"}
    control = [int(low.get(line, "6") not in asserted) for line in CONTROL]
    return control + [ad >> n & 1 for n in range(64)] + [cbe >> n & 1 for n in range(8)] + [par, par64]


def decode(clocks: list[list[int]], names: list[str], data_phases: bool = True) -> dict[str, list[dict[str, Any]]]:
    keep = [n for n, name in enumerate([*CONTROL, *DATA]) if name in names]
    bits = np.array(clocks, np.uint8)[:, keep]
    samples = np.packbits(bits, axis=1, bitorder="little")
    capture = _kernel.from_samples(samples.tobytes(), samples.shape[1], [[*CONTROL, *DATA][n] for n in keep])
    spec = resolve_wiring(capture.channels, None, 33.0).bus().spec()
    [decoded] = _kernel.decode(capture, [spec], clock_mhz=33.0, data_phases=data_phases)
    return {name: pa.table(getattr(decoded, name)).to_pylist() for name in ("transactions", "data_phases", "problems")}


def write64(wrong: str, idle: int) -> list[list[int]]:
    """A 64-bit write of one data phase, whose PAR or PAR64 is wrong."""
    data = 0x8000_0001_0000_0003
    even = {"par": (data & 0xFFFFFFFF).bit_count() & 1, "par64": (data >> 32).bit_count() & 1}
    if wrong:
        even[wrong] ^= 1
    address = clock("F6", ad=0x1000, cbe=0x07)
    return [
        *[clock()] * idle,
        address,
        clock("FID6", ad=data, par=(0x1007).bit_count() & 1),
        clock("ITD6", ad=data),
        clock(par=even["par"], par64=even["par64"]),
        *[clock()] * 3,
    ]


@pytest.mark.parametrize("idle", [3, 60, 61])
@pytest.mark.parametrize("data_phases", [False, True])
@pytest.mark.parametrize(("wrong", "ok"), [("", True), ("par", False), ("par64", False)])
def test_both_halves_of_a_64_bit_phase_have_their_parity(wrong: str, ok: bool, data_phases: bool, idle: int) -> None:
    tables = decode(write64(wrong, idle), [*CONTROL, *DATA], data_phases)
    assert [row["kind"] for row in tables["problems"]] == ([] if ok else ["data_parity"])
    if data_phases:
        [phase] = tables["data_phases"]
        assert (phase["data"], phase["parity_ok"]) == (0x8000_0001_0000_0003, ok)


@pytest.mark.parametrize(("wrong", "ok"), [("", None), ("par", False), ("par64", None)])
def test_without_par64_half_of_it_is_not_known(wrong: str, ok: bool | None) -> None:
    [phase] = decode(write64(wrong, 3), [*CONTROL, *DATA[:-1]])["data_phases"]
    assert phase["parity_ok"] is ok


def test_a_clock_shows_par64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = waveforms.Sampled([*CONTROL, *DATA], np.array(write64("par64", 3), np.uint8), None)
    path = waveforms.write_sr(tmp_path / "wide.sr", capture)
    assert main(["list", str(path), "--layer", "clocks", "--clock-mhz", "33"]) == 0
    told = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[2] for line in told if "PAR64" in line] == ["6"]


PCI_WRITE = [clock(asserted) for asserted in ("F", "FID", "FITD", "ITD", "", "")]
PCIX_WRITE = [clock(asserted) for asserted in ("F", "F", "FD", "FID", "FITD", "FITD", "ITD", "ITD", "", "", "")]
"""Address, attributes, response; FRAME# is released a data phase before the last."""


def test_several_attribute_phases_are_pcix() -> None:
    with pytest.raises(DecodeError, match=r"PCI-X, not PCI: 3 of 3 bursts have an attribute phase"):
        decode([clock()] * 3 + PCIX_WRITE * 3, CONTROL)


def test_one_odd_burst_is_a_problem() -> None:
    tables = decode([clock()] * 3 + PCI_WRITE * 5 + PCIX_WRITE + PCI_WRITE * 5, CONTROL)
    assert len(tables["transactions"]) == 11
    assert [row["kind"] for row in tables["problems"]] == ["illegal_sequence"]


@pytest.mark.parametrize(("pattern", "pcix"), [("R", False), ("RT", True), ("RS", True), ("RSTD", True), ("RF", False)])
def test_the_mode_is_said_at_reset(pattern: str, pcix: bool) -> None:
    clocks = [clock()] * 3 + [clock(pattern)] * 12 + [clock()] * 5 + PCI_WRITE * 3
    if pcix:
        with pytest.raises(DecodeError, match=r"PCI-X, not PCI: .* when RST# rises"):
            decode(clocks, CONTROL)
    else:
        assert len(decode(clocks, CONTROL)["transactions"]) == 3


@pytest.mark.parametrize(("wide", "enables", "step"), [("6", 0, 8), ("6", 0xF0, 8), ("", 0, 4)])
def test_accesses_of_64_bits_are_8_bytes_apart(wide: str, enables: int, step: int, tmp_path: Path) -> None:
    word = 0x1234_0000_0005 if wide else 5
    body = [clock(f"FITD{wide}", ad=word, cbe=enables), clock(f"ITD{wide}", ad=word, cbe=enables)]
    clocks = [*[clock()] * 4, clock(f"F{wide}", ad=0x1000, cbe=0x07), *body, *[clock()] * 4]
    levels = np.array([[*one, 1] for one in clocks], np.uint8)
    path = waveforms.write_sr(tmp_path / "wide.sr", waveforms.Sampled([*CONTROL, *DATA, "GNT#"], levels, 33e6))
    assert pcitrace.open(path, clock_mhz=33.0).bus.csr["address"].tolist() == [0x1000, 0x1000 + step]
