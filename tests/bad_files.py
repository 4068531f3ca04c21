"""Bad files of every kind: each case writes one and says what the error must be about.

`CASES` maps the name of a case to its writer and to a pattern that the message must match.
"""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import buses
import oracle
import waveforms
from conftest import REPOSITORY

CONTROL = oracle.CONTROL | {"C/BE#", "GNT#"}
READERS = REPOSITORY / "fixtures" / "readers"


def sampled(count: int = 20) -> waveforms.Sampled:
    """A good capture of 13 channels."""
    clocks = waveforms.settle(buses.long_run(seed=1, count=count).clocks, Random(1))
    capture, _ = waveforms.timing_mode(waveforms.wires(clocks, CONTROL), Random(2))
    return capture


def good_vcd(folder: Path) -> str:
    """The text of a good VCD."""
    traffic = buses.long_run(seed=1, count=5)
    changes, _ = waveforms.waves(waveforms.wires(traffic.clocks, CONTROL), Random(2))
    return waveforms.write_vcd(folder / "good.vcd", changes).read_text()


def archive(path: Path, members: dict[str, bytes], level: int = 6) -> Path:
    """A zip file of these members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return path


def members(path: Path) -> dict[str, bytes]:
    """The members of a zip file."""
    with zipfile.ZipFile(path) as source:
        return {name: source.read(name) for name in source.namelist()}


def edited_sr(folder: Path, **replaced: str | None) -> Path:
    """A good session file with lines of its metadata replaced, or removed where None."""
    path = waveforms.write_sr(folder / "edited.sr", sampled())
    parts = members(path)
    lines = []
    for line in parts["metadata"].decode().splitlines():
        key = line.partition("=")[0].replace(" ", "_")
        if key in replaced:
            if replaced[key] is not None:
                lines.append(f"{line.partition('=')[0]}={replaced[key]}")
        else:
            lines.append(line)
    return archive(path, parts | {"metadata": "\n".join(lines).encode()})


CASES: dict[str, tuple[Callable[[Path], Path], str]] = {}


def case(message: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Register a bad file under its function's name."""

    def register(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        CASES[make.__name__] = (make, message)
        return make

    return register


def written(path: Path, data: bytes | str) -> Path:
    """The path, after writing it."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@case("empty")
def empty_file(folder: Path) -> Path:
    return written(folder / "bad.sr", b"")


@case("No such file|not found")
def missing_file(folder: Path) -> Path:
    return folder / "bad.sr"


@case("not a regular file")
def named_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "bad.sr")
    return folder / "bad.sr"


@case("format|not a capture|recogni")
def wrong_magic(folder: Path) -> Path:
    return written(folder / "bad.sr", Random(3).randbytes(5000))


@case("format|not a capture|recogni|column|row")
def prose(folder: Path) -> Path:
    return written(folder / "bad.txt", "This is not a capture.\nIt is a letter, with commas.\n")


@case("truncated|cut|end|directory")
def truncated_zip(folder: Path) -> Path:
    data = waveforms.write_sr(folder / "bad.sr", sampled()).read_bytes()
    return written(folder / "bad.sr", data[: len(data) // 2])


@case("directory|corrupt|header|member")
def corrupt_zip_directory(folder: Path) -> Path:
    data = bytearray(waveforms.write_sr(folder / "bad.sr", sampled()).read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at : at + 60] = bytes(60)
    return written(folder / "bad.sr", bytes(data))


@case("CRC|checksum|corrupt|inflate|deflate")
def corrupt_member(folder: Path) -> Path:
    path = waveforms.write_sr(folder / "bad.sr", sampled())
    with zipfile.ZipFile(path) as source:
        info = source.getinfo("logic-1-1")
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len(info.filename) + info.compress_size // 2] ^= 0x10
    return written(path, bytes(data))


@case("CRC|checksum")
def wrong_crc(folder: Path) -> Path:
    path = folder / "bad.sr"
    parts = members(waveforms.write_sr(path, sampled()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        for name, data in parts.items():
            out.writestr(name, data)
    with zipfile.ZipFile(path) as source:
        info = source.getinfo("logic-1-1")
    raw = bytearray(path.read_bytes())
    raw[info.header_offset + 30 + len(info.filename) + 100] ^= 1
    return written(path, bytes(raw))


@case("logic-1-2.*missing|no.*logic-1-2|logic-1-2")
def chunk_missing(folder: Path) -> Path:
    path = waveforms.write_sr(folder / "bad.sr", sampled(), chunk_bytes=[500, 500])
    parts = members(path)
    del parts["logic-1-2"]
    return archive(path, parts)


@case("holds samples, and so does logic-1; which of them count cannot be told")
def samples_whole_and_in_chunks(folder: Path) -> Path:
    parts = members(waveforms.write_sr(folder / "bad.sr", sampled(), chunk_bytes=[500, 500]))
    return archive(folder / "bad.sr", parts | {"logic-1": parts["logic-1-1"]})


@case("holds samples, and so does logic-1-1; which of them count cannot be told")
def chunk_numbered_twice(folder: Path) -> Path:
    parts = members(waveforms.write_sr(folder / "bad.sr", sampled()))
    return archive(folder / "bad.sr", parts | {"logic-1-01": parts["logic-1-1"]})


@case("several devices have the same capturefile=logic-1")
def devices_share_their_samples(folder: Path) -> Path:
    parts = members(waveforms.write_sr(folder / "bad.sr", sampled()))
    device = parts["metadata"].split(b"[device 1]")[1]
    return archive(folder / "bad.sr", parts | {"metadata": parts["metadata"] + b"\n[device 2]" + device})


@case("probe-1=STOP# does not fit into samples")
def probe_without_a_place(folder: Path) -> Path:
    parts = members(waveforms.write_sr(folder / "bad.sr", sampled()))
    return archive(folder / "bad.sr", parts | {"metadata": parts["metadata"] + b"\nprobe-1=STOP#\n"})


@case("metadata")
def metadata_missing(folder: Path) -> Path:
    path = waveforms.write_sr(folder / "bad.sr", sampled())
    parts = members(path)
    del parts["metadata"]
    return archive(path, parts)


@case("version")
def version_unknown(folder: Path) -> Path:
    return waveforms.write_sr(folder / "bad.sr", sampled(), version=9)


@case("unit ?size.*0|0.*unit ?size")
def unit_size_zero(folder: Path) -> Path:
    return edited_sr(folder, unitsize="0")


@case("samples of 1 byte")
def unit_size_too_small(folder: Path) -> Path:
    return edited_sr(folder, unitsize="1")


@case("rate")
def rate_zero(folder: Path) -> Path:
    return edited_sr(folder, samplerate="0 Hz")


@case("rate")
def rate_negative(folder: Path) -> Path:
    return edited_sr(folder, samplerate="-100 MHz")


@case("rate")
def rate_garbage(folder: Path) -> Path:
    return edited_sr(folder, samplerate="fast")


@case("--rate|--clock-mhz|rate_hz|clock_mhz")
def rate_absent(folder: Path) -> Path:
    return edited_sr(folder, samplerate=None)


@case("FRAME#")
def names_repeat(folder: Path) -> Path:
    return edited_sr(folder, probe3="FRAME#")


@case("IRDY#.*")
def line_missing(folder: Path) -> Path:
    return edited_sr(folder, probe3="FOO")


@case("CLK")
def no_clock_channel(folder: Path) -> Path:
    return edited_sr(folder, probe1="FOO")


@case("no PCI bus|FRAME#")
def no_pci_at_all(folder: Path) -> Path:
    return waveforms.write_sr(folder / "bad.sr", waveforms.Sampled(["SDA", "SCL"], sampled().bits[:, :2], 1e6))


@case("0 samples|no samples|empty")
def no_samples(folder: Path) -> Path:
    empty = sampled()
    return waveforms.write_sr(folder / "bad.sr", waveforms.Sampled(empty.names, empty.bits[:0], empty.rate_hz))


@case("CLK.*(edge|rise|move|change)|(edge|rise).*CLK")
def no_clock_edge(folder: Path) -> Path:
    still = sampled()
    still.bits[:, 0] = 0
    return waveforms.write_sr(folder / "bad.sr", still)


@case("CLK.*(edge|rise|move|change)|(edge|rise).*CLK")
def no_clock_edge_in_vcd(folder: Path) -> Path:
    lines = [line for line in good_vcd(folder).splitlines() if line not in ("0!", "1!")]
    return written(folder / "bad.vcd", "\n".join(lines) + "\n")


@case("CLK")
def vcd_without_clock(folder: Path) -> Path:
    return written(folder / "bad.vcd", good_vcd(folder).replace(" CLK ", " FOO "))


@case("time.*(back|before|earlier|decreas)")
def vcd_time_backwards(folder: Path) -> Path:
    text = good_vcd(folder)
    at = text.index("\n#", len(text) // 2)
    return written(folder / "bad.vcd", text[:at] + "\n#17" + text[at:])


@case("18446744073709551615 ticks")
def vcd_time_beyond_all_reason(folder: Path) -> Path:
    return written(folder / "bad.vcd", good_vcd(folder) + "#18446744073709551615\n0!\n")


@case("cut|end|truncated|incomplete|value")
def vcd_cut_off_in_a_value(folder: Path) -> Path:
    text = good_vcd(folder)
    at = text.index("\nb", len(text) // 2)
    return written(folder / "bad.vcd", text[: at + 3])


@case("timescale")
def vcd_without_timescale(folder: Path) -> Path:
    return written(folder / "bad.vcd", good_vcd(folder).replace("$timescale 1 ps $end\n", ""))


@case("names of its nets, with their scopes, take more than 128 MiB")
def vcd_with_long_names(folder: Path) -> Path:
    scopes = f"$scope module {1000 * 's'} $end\n" * 1000
    nets = "".join(f"$var wire 1 n{net} n $end\n" for net in range(200))
    return written(folder / "bad.vcd", f"$timescale 1 ns $end\n{scopes}{nets}$enddefinitions $end\n#0\n")


@case("byte [0-9]+: zeros stand here instead of text")
def vcd_with_a_hole(folder: Path) -> Path:
    """As a file system leaves it that lost a block of the file: between two times, so that all the rest makes sense."""
    text = good_vcd(folder).encode()
    middle = text.index(b"\n#", len(text) // 2)
    end = text.index(b"\n#", middle + 1)
    return written(folder / "bad.vcd", text[:middle] + bytes(end - middle) + text[end:])


@case("byte [0-9]+: zeros stand here instead of text")
def vcd_with_a_hole_in_the_header(folder: Path) -> Path:
    return written(folder / "bad.vcd", good_vcd(folder).replace("$upscope", 8 * "\0" + "$upscope", 1))


@case("declar|unknown|identifier|code")
def vcd_undeclared_code(folder: Path) -> Path:
    text = good_vcd(folder)
    at = text.index("\n#", len(text) // 2)
    return written(folder / "bad.vcd", text[:at] + "\n1~~~" + text[at:])


@case("header|enddefinitions|cut|end")
def vcd_cut_off_in_the_header(folder: Path) -> Path:
    return written(folder / "bad.vcd", good_vcd(folder)[:200])


@case("gzip|truncated|cut|end|corrupt")
def gzip_cut_off(folder: Path) -> Path:
    data = gzip.compress(good_vcd(folder).encode())
    return written(folder / "bad.vcd.gz", data[: len(data) * 2 // 3])


@case("gzip|CRC|checksum|corrupt")
def gzip_wrong_crc(folder: Path) -> Path:
    data = bytearray(gzip.compress(good_vcd(folder).encode()))
    data[-6] ^= 1
    return written(folder / "bad.vcd.gz", bytes(data))


@case("FST|corrupt|cut|end|truncated")
def fst_cut_off(folder: Path) -> Path:
    data = (READERS / "bus.fst").read_bytes()
    return written(folder / "bad.fst", data[: len(data) // 2])


@case("GHW|corrupt|cut|end|truncated")
def ghw_cut_off(folder: Path) -> Path:
    data = gzip.decompress((READERS / "bus.ghw.gz").read_bytes())
    return written(folder / "bad.ghw", data[: len(data) // 2])


@case("line 5[0-9]|row 5[0-9]")
def csv_ragged(folder: Path) -> Path:
    lines = waveforms.write_sigrok_csv(folder / "bad.csv", sampled()).read_text().splitlines()
    lines[50] = lines[50][:-2]
    return written(folder / "bad.csv", "\n".join(lines) + "\n")


@case("line 5[0-9]|row 5[0-9]")
def csv_not_a_level(folder: Path) -> Path:
    lines = waveforms.write_sigrok_csv(folder / "bad.csv", sampled()).read_text().splitlines()
    lines[50] = "7" + lines[50][1:]
    return written(folder / "bad.csv", "\n".join(lines) + "\n")


@case("sample|row|empty")
def csv_without_rows(folder: Path) -> Path:
    lines = waveforms.write_sigrok_csv(folder / "bad.csv", sampled()).read_text().splitlines()
    return written(folder / "bad.csv", "\n".join(lines[:5]) + "\n")


@case("time.*(back|before|earlier|decreas|order)|(line|row) 2[0-9]")
def saleae_csv_time_backwards(folder: Path) -> Path:
    lines = waveforms.write_saleae_csv(folder / "bad.csv", sampled()).read_text().splitlines()
    lines[20], lines[21] = lines[21], lines[20]
    return written(folder / "bad.csv", "\n".join(lines) + "\n")


def saleae(folder: Path) -> Path:
    """One good digital_0.bin."""
    return waveforms.write_saleae_binary(folder / "bad", sampled(), 0) / "digital_0.bin"


@case("cut|end|truncated|transitions|bytes")
def saleae_cut_off(folder: Path) -> Path:
    path = saleae(folder)
    return written(path, path.read_bytes()[:-11])


@case("version")
def saleae_version_unknown(folder: Path) -> Path:
    path = saleae(folder)
    data = path.read_bytes()
    return written(path, data[:8] + struct.pack("<i", 7) + data[12:])


@case("analog|type")
def saleae_analog(folder: Path) -> Path:
    path = saleae(folder)
    data = path.read_bytes()
    return written(path, data[:12] + struct.pack("<i", 1) + data[16:])


@case("cut|end|truncated|transitions|bytes")
def saleae_absurd_count(folder: Path) -> Path:
    path = saleae(folder)
    data = path.read_bytes()
    return written(path, data[:36] + struct.pack("<Q", 1 << 60) + data[44:])


@case("L-3/0|block")
def dsl_block_missing(folder: Path) -> Path:
    path = waveforms.write_dsl(folder / "bad.dsl", sampled())
    parts = members(path)
    del parts["L-3/0"]
    return archive(path, parts)


@case("L-3/0|length|bytes|samples")
def dsl_block_short(folder: Path) -> Path:
    path = waveforms.write_dsl(folder / "bad.dsl", sampled())
    parts = members(path)
    return archive(path, parts | {"L-3/0": parts["L-3/0"][:-5]})


@case("rate")
def dsl_rate_zero(folder: Path) -> Path:
    path = waveforms.write_dsl(folder / "bad.dsl", sampled())
    parts = members(path)
    return archive(path, parts | {"header": parts["header"].replace(b"100 MHz", b"0 MHz")})


@case("metadata|size|large|bytes")
def zip_bomb_in_metadata(folder: Path) -> Path:
    path = waveforms.write_sr(folder / "bad.sr", sampled())
    return archive(path, members(path) | {"metadata": bytes(100_000_000)}, level=1)


@case("size|declare|larger|more|bytes|corrupt|end")
def zip_member_larger_than_declared(folder: Path) -> Path:
    path = waveforms.write_sr(folder / "bad.sr", sampled())
    path = archive(path, members(path) | {"logic-1-1": bytes(50_000_000)}, level=1)
    data = path.read_bytes()
    big, small = struct.pack("<I", 50_000_000), struct.pack("<I", 2000)
    assert data.count(big) == 2
    return written(path, data.replace(big, small))
