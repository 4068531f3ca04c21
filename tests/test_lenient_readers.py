"""What others read is read here too, and what had to be settled is said; the rest is refused with the way out."""

from __future__ import annotations

import gzip
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import bad_files
import numpy as np
import pytest
import waveforms
from conftest import REPOSITORY
from decoding import assert_same_rows, decode

import pcitrace
from pcitrace import _kernel
from pcitrace.cli import main


@pytest.fixture(scope="module")
def sampled() -> waveforms.Sampled:
    return bad_files.sampled()


@pytest.mark.parametrize(("width", "first"), [(100, 60), (65, 59), (66, 60), (129, 123), (193, 60), (128, 122)])
def test_bits_beyond_64_of_a_vector(width: int, first: int, tmp_path: Path) -> None:
    """The control lines within a wide vector, also where one bit is beyond a limb: as wires they say the same."""
    text = bad_files.good_vcd(tmp_path)
    names = ["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#"]
    lines = {name: bit for bit, name in enumerate(names, first)}
    head, body = text.split("$enddefinitions $end", 1)
    codes = {}
    for line in head.splitlines():
        words = line.split()
        if words[:1] == ["$var"] and words[4].split("[")[0] in lines:
            codes[words[3]] = lines[words[4]]
    assert len(codes) == len(lines)
    bits, out = ["x"] * width, []
    for time, changes in re.findall(r"^#(\d+)$(.*?)(?=^#\d|\Z)", body, re.DOTALL | re.MULTILINE):
        for change in changes.split():
            if change[1:] in codes and change[0] in "01xz":
                bits[width - 1 - codes[change[1:]]] = change[0]
        out.append(f"#{time}\nb{''.join(bits)} !\n")
    wide = tmp_path / "wide.vcd"
    head = f"$timescale 1 ps $end\n$scope module PCI $end\n$var wire {width} ! v [{width - 1}:0] $end\n$upscope $end\n"
    wide.write_text(head + "$enddefinitions $end\n" + "".join(out))
    narrow = bad_files.written(tmp_path / "narrow.vcd", text)
    wiring = {line: f"PCI.v[{width - 1}:0][{bit}]" for line, bit in lines.items()}
    wanted, got = decode(narrow, bus="PCI"), decode(wide, wiring={"bus": {"PCI": wiring}})
    control = ["start_sample", "end_sample", "clocks", "data_phases", "termination", "devsel_clks", "target_wait_clks"]
    assert [[row[key] for key in control] for row in got.transactions] == [
        [row[key] for key in control] for row in wanted.transactions
    ]
    assert len({row["termination"] for row in got.transactions}) > 2


@pytest.mark.parametrize("rate_hz", [625e3, 24e6, 1e6, 33_333_333.0])
@pytest.mark.parametrize("dedup", [False, True])
def test_the_rate_of_a_sigrok_csv_counts_and_not_its_truncated_step(
    rate_hz: float, dedup: bool, sampled: waveforms.Sampled, tmp_path: Path
) -> None:
    bits = np.asarray(sampled.bits)
    unit, per_second = ("microseconds", 10**6) if rate_hz <= 1e6 else ("nanoseconds", 10**9)
    step = int(per_second / rate_hz)
    text = f"; Channels ({len(sampled.names)}/{len(sampled.names)}): {', '.join(sampled.names)}\n"
    text += f"; Samplerate: {rate_hz / 1e3:.10g} kHz\n{unit}{',logic' * len(sampled.names)}\n"
    for number, row in enumerate(bits):
        if not dedup or number == 0 or (bits[number - 1] != row).any():
            text += ",".join(map(str, [(number + 1) * step, *row])) + "\n"
    (tmp_path / "a.csv").write_text(text)
    same = waveforms.Sampled(sampled.names, bits, rate_hz)
    wanted, got = decode(waveforms.write_sr(tmp_path / "a.sr", same)), decode(tmp_path / "a.csv")
    leave = {"suspect"} if dedup else set()
    assert_same_rows(
        [{key: row[key] for key in row if key not in leave} for row in got.transactions],
        [{key: row[key] for key in row if key not in leave} for row in wanted.transactions],
    )


def test_a_step_that_denies_the_rate_is_said(sampled: waveforms.Sampled, tmp_path: Path) -> None:
    text = "; Channels (1/1): CLK\n; Samplerate: 1 MHz\nmicroseconds,logic\n"
    path = bad_files.written(tmp_path / "a.csv", text + "3,0\n6,0\n9,1\n12,0\n")
    [capture] = pcitrace.open(path).captures
    assert (capture.rate_hz, capture.sample_count) == (1e6, 4)
    assert capture.notes
    assert "rate of 1000000 Hz" in capture.notes[0]


def test_names_that_repeat_are_numbered_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bad_files.edited_sr(tmp_path, probe7="NC", probe8="NC")
    [capture] = pcitrace.open(path).captures
    assert [name for name in capture.channels if name.startswith("NC")] == ["NC@1", "NC@2"]
    assert main(["info", str(path)]) == 0
    assert 'several channels are called "NC"' in capsys.readouterr().err


def test_a_probe_beyond_the_samples_is_left_out_and_said(tmp_path: Path) -> None:
    path = waveforms.write_sr(tmp_path / "a.sr", bad_files.sampled())
    members = bad_files.members(path)
    bad_files.archive(path, {**members, "metadata": members["metadata"] + b"\nprobe99=D98\n"})
    [capture] = pcitrace.open(path).captures
    assert "D98" not in capture.channels
    assert "have no bit for 1 of the channels" in capture.notes[0]


@pytest.mark.parametrize("kind", ["csv", "vcd"])
def test_a_byte_order_mark_is_no_text(kind: str, sampled: waveforms.Sampled, tmp_path: Path) -> None:
    if kind == "csv":
        path = waveforms.write_sigrok_csv(tmp_path / "a.csv", sampled)
    else:
        path = bad_files.written(tmp_path / "a.vcd", bad_files.good_vcd(tmp_path))
    wanted = decode(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert_same_rows(decode(path).transactions, wanted.transactions)


@pytest.mark.parametrize("form", ["commas", "iso", "unit", "groups"])
def test_times_of_csv_in_other_forms(form: str, sampled: waveforms.Sampled, tmp_path: Path) -> None:
    path = waveforms.write_saleae_csv(tmp_path / "a.csv", sampled)
    wanted = decode(path)
    head, *lines = path.read_text().splitlines()
    begin = float(lines[0].split(",")[0])
    out = []
    for line in lines:
        time, cells = line.split(",", 1)
        if form == "commas":
            out.append(f"{time.replace('.', ',')};{cells.replace(',', ';')}")
        elif form == "unit":
            out.append(f"{float(time) * 1e9:.6f} ns,{cells}")
        elif form == "groups":  # ScanaStudio: a first `0 ns`, then digits by threes.
            ps = round((float(time) - begin) * 1e12)
            grouped = f"{ps // 10**9}.{ps % 10**9 // 10**6:03} {ps % 10**6 // 10**3:03} {ps % 10**3:03} ms"
            out.append(f"{grouped if ps else '0 ns'};{cells.replace(',', ';')}")
        else:
            ps = round((float(time) - begin) * 1e12)
            out.append(f"2024-02-29T12:00:{7 + ps // 10**12:02}.{ps % 10**12:012}+00:00,{cells}")
    if form in ("commas", "groups"):
        head = head.replace(",", ";")
    path.write_text("\n".join([head, *out]) + "\n")
    keys = ["clocks", "data_phases", "termination", "devsel_clks", "bytes"]
    got = decode(path).transactions
    assert [[row[key] for key in keys] for row in got] == [[row[key] for key in keys] for row in wanted.transactions]
    assert got[1]["start_us"] - got[0]["start_us"] == pytest.approx(
        wanted.transactions[1]["start_us"] - wanted.transactions[0]["start_us"], abs=1e-5
    )


def test_a_clock_that_is_put_on_within_a_capture_takes_no_hour(sampled: waveforms.Sampled, tmp_path: Path) -> None:
    """Local times jump where summer time begins; how far they are ahead of UTC is written beside them."""
    path = waveforms.write_saleae_csv(tmp_path / "a.csv", sampled)
    wanted = decode(path)
    head, *lines = path.read_text().splitlines()
    first = float(lines[0].split(",")[0])
    middle = float(lines[len(lines) // 2].split(",")[0])
    out = []
    for line in lines:
        time, cells = line.split(",", 1)
        ps = round((float(time) - middle) * 1e12)
        local = f"01:59:59.{10**12 + ps:012}+01:00" if ps < 0 else f"03:00:00.{ps:012}+0200"
        out.append(f"2026-03-29T{local},{cells}")
    assert first < middle < first + 1
    path.write_text("\n".join([head, *out]) + "\n")
    starts = [[row["start_us"] for row in tables.transactions] for tables in (decode(path), wanted)]
    apart = [[later - times[0] for later in times] for times in starts]
    assert apart[0] == pytest.approx(apart[1], abs=1e-5)


@pytest.mark.parametrize("time", ["2026-02-29T12:00:00Z", "2026-02-28T12:00:61Z", "2026-02-28T12:00:00+0é0"])
def test_a_time_that_there_is_not_is_refused(time: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bad_files.written(tmp_path / "a.csv", f"Time [s],A\n2026-02-28T00:00:00Z,0\n{time},1\n")
    assert main(["info", str(path)]) == 3
    error = capsys.readouterr().err
    assert "line 3" in error
    assert "is not a time" in error


def test_a_vcd_without_timescale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = bad_files.good_vcd(tmp_path)
    whole = bad_files.written(tmp_path / "whole.vcd", text)
    bare = bad_files.written(tmp_path / "bare.vcd", text.replace("$timescale 1 ps $end\n", ""))
    wanted = pcitrace.open(whole).bus.transactions
    assert pcitrace.open(bare, timescale="1 ps").bus.transactions.equals(wanted)
    assert main(["info", str(bare)]) == 3
    assert "--timescale" in capsys.readouterr().err
    assert main(["info", str(bare), "--timescale", "1ps"]) == 0
    assert main(["info", str(bare), "--timescale", "soon"]) == 3
    capsys.readouterr()
    assert main(["info", str(whole), "--timescale", "1ps"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["info", str(whole), "--timescale", "1ns"]) == 0
    assert "`$timescale` is 1/1000000000000 s, but 1ns was given: that was taken" in capsys.readouterr().err
    half = bad_files.written(tmp_path / "half.vcd", text.replace("$timescale 1 ps $end", "$timescale 1 $end"))
    assert main(["info", str(half)]) == 3
    assert "`$timescale 1` is not a number and a unit" in (said := capsys.readouterr().err)
    assert "--timescale" in said
    assert pcitrace.open(half, timescale="1 ps").bus.transactions.equals(wanted)


def test_times_of_a_vcd_with_a_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As whole as without it, or refused with the way out: rounded, two edges might be one."""
    text = bad_files.good_vcd(tmp_path)
    wanted = pcitrace.open(bad_files.written(tmp_path / "whole.vcd", text)).bus.transactions
    pointed = bad_files.written(tmp_path / "point.vcd", re.sub(r"(?m)^#(\d+)$", r"#\1.0", text))
    assert pcitrace.open(pointed).bus.transactions.equals(wanted)
    part = bad_files.written(tmp_path / "part.vcd", re.sub(r"(?m)^#(\d+)$", r"#\1.2", text))
    assert main(["info", str(part)]) == 3
    assert ".2` is not a whole number of `$timescale`; write the file with a finer one" in capsys.readouterr().err


def test_a_ghw_array_of_several_dimensions_is_refused_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(gzip.decompress((REPOSITORY / "fixtures" / "readers" / "bus.ghw.gz").read_bytes()))
    types = data.index(b"TYP\0")
    # Kind 31 is an array; its name, its element, and of how many indices, each a byte here.
    array = next(at for at in range(types + 12, data.index(b"WKT\0")) if data[at] == 31 and data[at + 3] == 1)
    data[array + 3] = 2
    path = tmp_path / "grid.ghw"
    path.write_bytes(data)
    assert main(["info", str(path)]) == 3
    said = capsys.readouterr().err
    assert "an array of several dimensions" in said
    assert "damaged" not in said


def test_a_rate_over_that_of_the_file_is_said(sampled: waveforms.Sampled, tmp_path: Path) -> None:
    samples = waveforms.write_sr(tmp_path / "a.sr", sampled)
    changes = waveforms.write_saleae_csv(tmp_path / "a.csv", sampled)
    for path, rate_hz, said in (
        (samples, sampled.rate_hz, []),
        (samples, 1e6, [f"its rate is {sampled.rate_hz:.10g} Hz, but 1000000 Hz was given: that was taken"]),
        (changes, 1e6, ["a rate of 1000000 Hz was given; the file says itself when lines change, so it was not used"]),
    ):
        [capture] = pcitrace.open(path, rate_hz=rate_hz).captures
        assert capture.notes == said


def test_only_a_vcd_takes_a_timescale(
    sampled: waveforms.Sampled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marked = bad_files.written(tmp_path / "a.csv", "\ufeffTime [s],A\n0,1\n1,0\n")
    for path in (waveforms.write_sr(tmp_path / "a.sr", sampled), marked):
        assert main(["info", str(path), "--timescale", "1ns"]) == 3
        assert "only of a VCD the timescale can be given" in capsys.readouterr().err


def test_spellings_of_other_vcd_writers(tmp_path: Path) -> None:
    text = bad_files.good_vcd(tmp_path)
    wanted = decode(bad_files.written(tmp_path / "a.vcd", text))
    text = text.replace("\nb", "\nb0b").replace("$upscope", "$var wire 0 ~~ nothing $end\n$upscope", 1)
    for value in ("b ~~", "b0 ~~", "0~~", "bx ~~"):
        text = text.replace("\n#", f"\n{value}\n#", 2)
    assert_same_rows(decode(bad_files.written(tmp_path / "b.vcd", text)).transactions, wanted.transactions)


def varint_end(data: bytes, at: int) -> int:
    """Behind the variable-length number at a place."""
    while data[at] & 0x80:
        at += 1
    return at + 1


def test_an_fst_as_nvc_writes_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It says of each frame of values that it has one net; nothing that the library below prints of it is seen."""
    source = REPOSITORY / "fixtures" / "readers" / "bus.fst"
    data = bytearray(source.read_bytes())
    at, patched = 0, 0
    while at < len(data):
        kind, length = data[at], int.from_bytes(data[at + 1 : at + 9], "big")
        if kind in {1, 5, 8}:  # Value changes: begin, end, memory; lengths of the frame, then its nets.
            nets = varint_end(data, varint_end(data, at + 9 + 24))
            end = varint_end(data, nets)
            data[nets:end] = bytes([0x81, *[0x80] * (end - nets - 2), 0]) if end - nets > 1 else b"\x01"
            patched += 1
        at += 1 + length
    assert patched
    assert data != source.read_bytes()
    changed = bad_files.written(tmp_path / "a.fst", bytes(data))
    assert_same_rows(decode(changed).transactions, decode(source).transactions)
    assert capfd.readouterr().out == ""


def test_several_devices_are_several_captures(sampled: waveforms.Sampled, tmp_path: Path) -> None:
    bits = np.asarray(sampled.bits)
    one = waveforms.write_sr(tmp_path / "one.sr", sampled)
    two = waveforms.write_sr(tmp_path / "two.sr", waveforms.Sampled(sampled.names, bits[: len(bits) // 2], 50e6))
    first, second = bad_files.members(one), bad_files.members(two)
    device = second["metadata"].decode().split("[device 1]\n")[1].replace("logic-1", "logic-2")
    members = {
        **first,
        "metadata": first["metadata"] + b"\n[device 2]\n" + device.encode(),
        **{name.replace("logic-1", "logic-2"): data for name, data in second.items() if name.startswith("logic")},
    }
    both = pcitrace.open(bad_files.archive(tmp_path / "both.sr", members))
    assert [capture.rate_hz for capture in both.captures] == [sampled.rate_hz, 50e6]
    assert len(both.buses) == 2
    for bus, alone in zip(both.buses.values(), (one, two), strict=True):
        wanted = pcitrace.open(alone).bus.transactions.drop(columns="bus")
        assert bus.transactions.drop(columns="bus").equals(wanted)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "without a mark"])
def test_utf16_is_refused_with_the_way_out(encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    encoding = "utf-16-le" if encoding == "without a mark" else encoding
    (tmp_path / "a.csv").write_bytes(mark + "A,B\n0,1\n".encode(encoding))
    assert main(["info", str(tmp_path / "a.csv")]) == 3
    assert "UTF-16; save it as UTF-8" in capsys.readouterr().err


def test_a_saleae_project_is_refused_with_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.sal", "w") as archive:
        archive.writestr("meta.json", "{}")
        archive.writestr("digital-0.bin", b"")
    assert main(["info", str(tmp_path / "a.sal")]) == 3
    assert "export the raw data" in capsys.readouterr().err


def test_samples_take_no_second_copy(tmp_path: Path) -> None:
    quiet = np.zeros((8_000_000, 2), np.uint8)
    names = [f"D{n}" for n in range(16)]
    capture = _kernel.from_samples(quiet.tobytes(), 2, names, 1e6)
    tracemalloc.start()
    try:
        samples = capture.read_samples()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(samples) == quiet.nbytes
    assert peak < 1.1 * quiet.nbytes


def test_names_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bad_files.edited_sr(tmp_path, probe8="evil\x1b[2J\\nname")
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert r"evil\x1b[2J\nname" in out


@pytest.mark.parametrize(
    "command", ["info", "decode", "decode --json", "stats", "stats --json", "list", "devices", "check"]
)
def test_names_of_buses_cannot_either(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In a VCD ESC ends a word; what terminals take for ESC [ does not.
    names = ["CLK", "FRAME#", "IRDY#", "TRDY#"]
    header = "".join(f"$var wire 1 {code} {name} $end\n" for code, name in zip("cfit", names, strict=True))
    said = {3: "0f", 4: "1f 0i 0t", 5: "1i 1t"}
    changes = "".join(f"#{20 * clk} 0c {said.get(clk, '')}\n#{20 * clk + 10} 1c\n" for clk in range(9))
    text = f"$timescale 1 ns $end\n$scope module e\x9b2J[0]vil $end\n{header}$enddefinitions $end\n1f 1i 1t\n{changes}"
    (tmp_path / "a.vcd").write_text(text, "utf-8")
    main([*command.split(), str(tmp_path / "a.vcd")])
    shown = capsys.readouterr()
    assert "\x9b" not in shown.out + shown.err
    assert command == "list" or "e\\x9b2J[0]vil" in (shown.out + shown.err).replace("\\\\", "\\")
    assert list(pcitrace.open(tmp_path / "a.vcd").buses) == ["e\\x9b2J[0]vil"]


def test_names_in_commands_to_be_copied_cannot_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bad_files.edited_sr(tmp_path, probe1="\x1b[2J_CLK")
    assert main(["export", str(path), "--to", "sigrok", "-o", str(tmp_path / "b.sr")]) == 0
    assert "clk=\\x1b[2J" in capsys.readouterr().out


def test_a_hundred_thousand_names_take_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = 100_000
    (tmp_path / "a.csv").write_text(",".join(f"n{n}" for n in range(count)) + "\n" + ",".join("0" * count) + "\n")
    assert main(["info", str(tmp_path / "a.csv")]) == 0
    out = capsys.readouterr().out
    assert len(out) < 10_000
    assert "and 99900 more" in out


def test_a_block_of_another_size_than_dsview_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = (
        "[version]\nversion = 3\n[header]\ndevice mode = 0\ntotal samples = 100000000\ntotal probes = 1\n"
        "total blocks = 1\nsamplerate = 1 MHz\nprobe0 = CLK\n"
    )
    path = bad_files.archive(tmp_path / "a.dsl", {"header": header.encode(), "L-0/0": bytes(12_500_000)})
    assert main(["info", str(path)]) == 3
    assert "DSView's have 2 MiB" in capsys.readouterr().err


def test_saleae_version_1_with_gaps_as_documented(tmp_path: Path) -> None:
    """Ref: Saleae, "Binary and CSV Export Formats - 2025 Update": chunks with their own rate, begin and end."""
    chunk = struct.Struct("<IdddQ")
    times = [(0.0, 1e-3, [2e-4, 5e-4]), (2e-3, 3e-3, [2.5e-3])]
    data = b"<SALEAE>" + struct.pack("<iiQ", 1, 0, len(times))
    for begin, end, toggles in times:
        data += chunk.pack(1, 1e8, begin, end, len(toggles)) + struct.pack(f"<{len(toggles)}d", *toggles)
    (tmp_path / "digital_0.bin").write_bytes(data)
    capture = _kernel.open(str(tmp_path / "digital_0.bin"))
    assert (capture.format, capture.duration_s) == ("saleae", pytest.approx(3e-3))
