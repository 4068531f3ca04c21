"""The .sr writer: what sigrok-cli and zipfile read is what was written, whatever ended the writing."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import bus_samples, noise, sigrok_bytes, sr_bytes, write_sr
from pcicap import srfile
from pcicap.errors import CaptureFileError
from pcicap.samplewriter import SampleWriter
from pcicap.srfile import SrFile, format_rate, parse_rate, read_info, read_samples, salvage


def _write(path: Path, data: bytes, unit_size: int, pieces: list[int], rate: float | None = 100e6) -> SampleWriter:
    channels = {bit: f"L{bit}" for bit in range(0, 8 * unit_size, 3)}
    writer = SampleWriter(SrFile(path, channels, unit_size, rate), unit_size)
    for size in pieces:
        writer.feed(data[:size])
        data = data[size:]
    writer.feed(data)
    return writer


@pytest.mark.parametrize("unit_size", [1, 2, 3, 5, 17])
def test_sigrok_reads_what_was_written(tmp_path: Path, unit_size: int) -> None:
    samples = noise(1_500_000).tobytes()[: 2_400_000 // unit_size * unit_size]
    writer = _write(tmp_path / "a.sr", samples, unit_size, [1, 4095, 70_001, 1_000_003])
    assert writer.close() == 0
    assert sr_bytes(tmp_path / "a.sr") == samples
    assert sigrok_bytes(tmp_path / "a.sr") == samples
    info = read_info(tmp_path / "a.sr")
    assert (info.unit_size, info.rate_hz, info.samples) == (unit_size, 100e6, len(samples) // unit_size)
    assert info.channels == {bit: f"L{bit}" for bit in range(0, 8 * unit_size, 3)}


def test_many_chunks_and_the_rest_of_a_sample(tmp_path: Path) -> None:
    samples = bus_samples(9_000_000).tobytes()
    writer = _write(tmp_path / "a.sr", samples + b"\x01", 2, [5_000_001, 5_000_001])
    assert writer.close() == 1, "the odd byte is told, not written"
    assert writer.written == len(samples)
    assert sr_bytes(tmp_path / "a.sr") == samples
    with zipfile.ZipFile(tmp_path / "a.sr") as archive:
        members = [entry for entry in archive.infolist() if entry.filename.startswith("logic")]
    assert len(members) >= 4
    assert sum(entry.compress_size for entry in members) < len(samples) / 2
    assert all(entry.file_size % 2 == 0 for entry in members)


def test_no_rate_in_state_mode(tmp_path: Path) -> None:
    _write(tmp_path / "a.sr", b"\0\1" * 50, 1, [], rate=None).close()
    assert read_info(tmp_path / "a.sr").rate_hz is None


def test_an_existing_file_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.sr").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        SrFile(tmp_path / "a.sr", {0: "CLK"}, 1, None)


def test_a_directory_beyond_4_gib_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(srfile, "_LIMIT32", 1000)  # the same code, without the 4 GiB
    members = [srfile._Member(b"version", 0, 0, 1, 1, 0), srfile._Member(b"logic-1-1", 0, 0, 5, 5, 2000)]
    directory = srfile._directory(members, 3000)
    assert struct.pack("<HHQ", 1, 8, 2000) in directory
    assert directory[-22 - 20 - 56 :].startswith(b"PK\6\6")
    assert struct.unpack("<Q", directory[-22 - 20 - 56 :][48:56]) == (3000,)


@given(cut=st.floats(0, 1), seed=st.integers(0, 100))
def test_salvage_keeps_every_whole_chunk(tmp_path_factory: pytest.TempPathFactory, cut: float, seed: int) -> None:
    path = tmp_path_factory.mktemp("salvage") / "a.sr"
    file = SrFile(path, {0: "CLK", 9: "FRAME#"}, 2, 1e6)
    ends, chunks = [path.stat().st_size], []
    for number in range(4):
        chunks.append(noise(500, seed + number).tobytes() if number % 2 else bus_samples(700, seed).tobytes())
        file.write(SrFile.pack(chunks[-1], compress=number != 3))
        ends.append(path.stat().st_size)
    size = int(cut * (ends[-1] + 200))
    file.close()
    with path.open("r+b") as handle:
        handle.truncate(min(size, path.stat().st_size - 1))
    if size < ends[0]:
        with pytest.raises(CaptureFileError, match="before its metadata"):
            salvage(path)
        return
    whole = b"".join(chunk for chunk, end in zip(chunks, ends[1:], strict=True) if end <= size)
    assert salvage(path) == len(whole)
    assert salvage(path) == len(whole), "a complete file stays as it is"
    assert sr_bytes(path) == whole


@pytest.mark.parametrize(
    ("text", "rate"), [("100 MHz", 1e8), ("33.333333 MHz", 33333333.0), ("500 kHz", 5e5), ("250", 250.0), ("1e6", 1e6)]
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate
    assert parse_rate(format_rate(rate)) == rate


@pytest.mark.parametrize("text", ["", "fast", "1.2.3 MHz", "-5 MHz", "nan"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|float"):
        parse_rate(text)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.sr").write_text("hello")
    damaged = write_sr(tmp_path / "damaged.sr", noise(1000).tobytes())
    raw = bytearray(damaged.read_bytes())
    raw[raw.index(b"logic-1-1") + 200] ^= 0x55
    damaged.write_bytes(raw)
    empty = write_sr(tmp_path / "empty.sr", b"")
    narrow = write_sr(tmp_path / "narrow.sr", b"\0" * 10, unit_size=1)
    for path, said in (
        (tmp_path / "absent.sr", "cannot be read"),
        (tmp_path / "text.sr", "not a sigrok v2 file"),
        (empty, "no logic sample"),
        (narrow, "unit size 1 does not hold the 14 channels"),
    ):
        with pytest.raises(CaptureFileError, match=said):
            read_info(path)
    with pytest.raises(CaptureFileError, match="damaged"):
        list(read_samples(damaged))
