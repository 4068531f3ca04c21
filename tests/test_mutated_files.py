"""Damaged files of every format are read or refused, never anything else.

A smoke run with a fixed seed; `FUZZ_SEED=2 FUZZ_ROUNDS=100000 pytest tests/test_mutated_files.py` goes on for longer.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from random import Random

import pytest
import waveforms
from bad_files import READERS, good_vcd, saleae, sampled

import pcitrace


def valid_files(folder: Path) -> dict[str, bytes]:
    """One small good file of every format."""
    small = sampled(4)
    return {
        "f.sr": waveforms.write_sr(folder / "f.sr", small, chunk_bytes=[301, 40]).read_bytes(),
        "f.dsl": waveforms.write_dsl(folder / "f.dsl", small).read_bytes(),
        "sigrok.csv": waveforms.write_sigrok_csv(folder / "g.csv", small).read_bytes(),
        "saleae.csv": waveforms.write_saleae_csv(folder / "s.csv", small).read_bytes(),
        "f.vcd": good_vcd(folder).encode(),
        "f.vcd.gz": gzip.compress(good_vcd(folder).encode()),
        "f.fst": (READERS / "bus.fst").read_bytes(),
        "f.ghw": gzip.decompress((READERS / "bus.ghw.gz").read_bytes()),
        "digital_0.bin": saleae(folder).read_bytes(),
    }


SEED, ROUNDS = os.environ.get("FUZZ_SEED", ""), int(os.environ.get("FUZZ_ROUNDS", "150"))
FORMATS = ["f.sr", "f.dsl", "sigrok.csv", "saleae.csv", "f.vcd", "f.vcd.gz", "f.fst", "f.ghw", "digital_0.bin"]


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_are_read_or_refused(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Anything but an answer or one of our errors is a bug (a panic is no Exception and fails here)."""
    good = valid_files(tmp_path)[name]
    rng = Random(name + SEED)
    folder = tmp_path / "fuzz"
    folder.mkdir()
    path = folder / name
    refusals = []
    for _ in range(ROUNDS):
        path.write_bytes(mutated(good, rng))
        try:
            run = pcitrace.open(path)
            for bus in run.buses.values():
                assert len(bus.arrow("data_phases")) >= 0
        except pcitrace.PciTraceError as error:
            refusals.append(str(error))
    assert refusals
    assert [text for text in refusals if str(path) not in text or "\n" in text] == []
    streams = capfd.readouterr()
    assert streams.err == streams.out == ""


def mutated(data: bytes, rng: Random) -> bytes:
    """Flip, overwrite, delete, repeat or insert a few pieces."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out))
        length = rng.choice((1, 1, 2, 8, rng.randrange(1, 200)))
        match rng.randrange(6):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + length] = rng.randbytes(length)
            case 2:
                del out[at : at + length]
            case 3:
                out[at:at] = out[at : at + length]
            case 4:
                out[at : at + length] = bytes(rng.choice((0, 0xFF, 0x30)) for _ in range(length))
            case _:
                del out[at:]
        if not out:
            out = bytearray(b"x")
    return bytes(out)
