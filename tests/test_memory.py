"""Memory does not grow with the capture: members are inflated as a stream, tables are written as they come."""

from __future__ import annotations

import gzip
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

import buses
import oracle
import pyarrow as pa
import pytest
import waveforms
from conftest import peak_memory
from idle_captures import stretch

import pcitrace
from pcitrace.cli import main
from pcitrace.instrument.rules import catalogue
from pcitrace.instrument.stream import parts

SAMPLES = 100_000_000  # of 2 bytes


def write_long(path: Path, members: int) -> int:
    """A capture of SAMPLES samples, mostly idle, in so many members; returns the number of transactions in it."""
    traffic = buses.long_run(seed=3, count=20)
    quiet = [oracle.Clock(gnt=(1, 1, 1))] * 5000
    clocks = waveforms.settle(quiet + traffic.clocks + quiet, Random(1))
    captured = oracle.CONTROL | {"C/BE#", "GNT#", "PERR#", "SERR#"}
    sampled, _ = waveforms.timing_mode(waveforms.wires(clocks, captured), Random(2))
    small = waveforms.write_sr(path.with_name("small.sr"), sampled)
    with zipfile.ZipFile(small) as archive:
        metadata, piece = archive.read("metadata"), archive.read("logic-1-1")
    repeats = 2 * SAMPLES // len(piece)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("version", "2")
        archive.writestr("metadata", metadata)
        for number in range(members):
            with archive.open("logic-1" if members == 1 else f"logic-1-{number + 1}", "w", force_zip64=True) as out:
                for _ in range(repeats * number // members, repeats * (number + 1) // members):
                    out.write(piece)
    return repeats * len(traffic.transactions)


@pytest.mark.parametrize("members", [1, 25])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_is_bounded(members: int, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "long.sr"
    transactions = write_long(path, members)
    out = tmp_path / f"t.{suffix}"
    status, stdout, kib = peak_memory(["decode", str(path), "-o", str(out)])
    assert status == 0
    assert f": {transactions} transactions" in stdout
    assert kib < 150_000, "the samples are 200 MB"


TRACE = Path(__file__).parent.parent / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"


def repeated(path: Path, times: int) -> int:
    """The fixture's VCD so many times in a row; its bytes."""
    head, body = gzip.decompress(TRACE.read_bytes()).split(b"$enddefinitions $end", 1)
    span = int(re.findall(rb"(?m)^#(\d+)", body)[-1])
    with path.open("wb") as out:
        out.write(head + b"$enddefinitions $end")
        for nth in range(times):
            later = re.sub(rb"(?m)^#(\d+)", lambda stamp, by=nth * span: b"#%d" % (int(stamp[1]) + by), body)
            out.write(later.rstrip() + b"\n")
    return path.stat().st_size


def test_a_vcd_needs_less_memory_than_it_is_long(tmp_path: Path) -> None:
    """What is kept of the check at opening is a fraction of it; the changes themselves are never all there."""
    needed = []
    for times in (1, 9):
        size = repeated(tmp_path / "bus.vcd", times)
        status, _, kib = peak_memory(["decode", str(tmp_path / "bus.vcd"), "-o", str(tmp_path / "t.parquet")])
        assert status == 0
        needed.append((size, 1024 * kib))
    (short, of_short), (long, of_long) = needed
    assert of_long - of_short < 0.75 * (long - short)


@pytest.fixture(scope="module")
def mostly_idle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two hosts, three times in 100 and in 200 million samples (200 and 400 MB)."""
    folder = tmp_path_factory.mktemp("sparse")
    command = ["simulate", "acenic-fig3.1", "-o", str(folder / "once"), "--set", "test.count=2", "sweep.loops=2"]
    assert main(command) == 0
    for name, samples in (("half", 100_000_000), ("long", 200_000_000)):
        assert 0.99 * samples < stretch(folder / "once", folder / name, samples, 3) <= samples
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["list", "{long}"],
        ["check", "{long}", "--json"],
        ["export", "{long}", "-o", "{out}.json", "--to", "perfetto"],
        ["report", "{long}", "--json"],
    ],
    ids=lambda command: command[0],
)
def test_memory_does_not_grow_with_idle_time(command: list[str], mostly_idle: Path, tmp_path: Path) -> None:
    """Beside what the same command needs for half of it: blocks that are under way need memory in both."""
    needed = {}
    for which in ("half", "long"):
        filled = [one.format(long=mostly_idle / which, out=tmp_path / which) for one in command]
        status, _, needed[which] = peak_memory(filled)
        assert status == 0
    assert needed["long"] < needed["half"] + 60_000, "the samples are 200 MB more"


NAMES = ("FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "PERR#", "SERR#", "GNT0#")


def write_clocks(path: Path, members: Iterable[bytes], names: Sequence[str] = NAMES) -> None:
    """Clocks in state mode, as many bytes each as there are lines for."""
    probes = "".join(f"probe{number}={name}\n" for number, name in enumerate(names, 1))
    unit = -(-len(names) // 8)
    head = f"[device 1]\ncapturefile=logic-1\ntotal probes={len(names)}\nsamplerate=33 MHz\nunitsize={unit}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "2")
        archive.writestr("metadata", head + probes)
        for number, clocks in enumerate(members, 1):
            archive.writestr(f"logic-1-{number}", clocks)


def noise_of(members: int, high: int = 0, low: int = 0) -> Iterator[bytes]:
    """So many times 20,000 clocks of lines that are noise, but for those that are high or low."""
    return (bytes((one | high) & ~low for one in Random(number).randbytes(20_000)) for number in range(members))


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bus in state mode whose lines are noise: nearly every clock breaks a rule; a million and three."""
    folder = tmp_path_factory.mktemp("noise")
    for name, members in (("short", 50), ("long", 150)):
        write_clocks(folder / f"{name}.sr", noise_of(members))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["decode", "-o", "{out}.parquet"],
        ["decode", "-o", "{out}.parquet", "--problems", "{out}.csv"],
        ["decode", "-o", "{out}.parquet", "--rules", "all", "--problems", "{out}.csv"],
        ["list", "--where", "transaction < 20"],
        ["check", "--json"],
    ],
    ids=" ".join,
)
def test_memory_does_not_grow_with_what_is_wrong(command: list[str], noise: Path, tmp_path: Path) -> None:
    needed = {}
    for which in ("short", "long"):
        filled = [one.format(out=tmp_path / which) for one in command]
        status, out, needed[which] = peak_memory([*filled, str(noise / f"{which}.sr"), "--clock-mhz", "33"])
        assert status == 0
        assert len(out) > 50
    assert needed["long"] < needed["short"] + 120_000, "2 M clocks more, with several problems each by the rules"


def test_a_part_has_few_broken_rules(noise: Path) -> None:
    """However many there are in each transaction: parts that wait to be taken are counted."""
    bus = pcitrace.open(noise / "short.sr", clock_mhz=33).bus
    found = [len(pa.table(part.problems)) for part in parts([bus], ["transaction"], rules=[*catalogue()])]
    assert max(found) < 20_000
    assert sum(found) > 500_000


def test_broken_rules_do_not_wait_where_no_transaction_begins(tmp_path: Path) -> None:
    """FRAME# is never asserted, and IRDY# is noise: a million clocks, and six."""
    needed = {}
    for name, members in (("short", 50), ("long", 300)):
        write_clocks(tmp_path / f"{name}.sr", noise_of(members, high=1))
        command = ["decode", "-o", str(tmp_path / "t.parquet"), "--rules", "all", "--problems", str(tmp_path / "p.csv")]
        status, _, needed[name] = peak_memory([*command, str(tmp_path / f"{name}.sr"), "--clock-mhz", "33"])
        assert status == 0
    assert needed["long"] < needed["short"] + 30_000


def test_what_broken_rules_leave_of_a_part_is_enough_for_a_transaction(tmp_path: Path) -> None:
    """A transaction comes after so many broken rules that they would fill a part, if they were not one row each."""
    access = bytes([0xFF, 0xFF, 0xFE, 0xF5, 0xF1, *[0xFF] * 9])
    write_clocks(tmp_path / "a.sr", [*noise_of(5, high=1), access])
    bus = pcitrace.open(tmp_path / "a.sr", clock_mhz=33).bus
    found = [(len(part), len(pa.table(part.problems))) for part in parts([bus], ["transaction"], rules=[*catalogue()])]
    assert sum(rows for rows, _ in found) == 1
    assert 1 < sum(problems for _, problems in found) < 20


TOGGLING = bytes([0b11110010, 0b11101010, 0b11110010, 0b11111010, 0b11011000, 0b11110010, 0b10110010] * 3000)
"""FRAME# is low; IRDY#, TRDY#, DEVSEL#, STOP#, PERR# and SERR# change at nearly every clock."""


@pytest.mark.parametrize("shape", ["noise", "toggling"])
@pytest.mark.parametrize(
    "command",
    [["decode", "-o", "{out}.parquet", "--rules", "all", "--problems", "{out}.csv"], ["list"], ["check", "--json"]],
    ids=lambda command: command[0],
)
def test_broken_rules_do_not_wait_for_a_transaction_that_goes_on(
    shape: str, command: list[str], tmp_path: Path
) -> None:
    """FRAME# falls and is stuck: a million clocks, and four."""
    needed = {}
    for name, members in (("short", 50), ("long", 200)):
        stuck = noise_of(members, low=1) if shape == "noise" else [TOGGLING] * members
        write_clocks(tmp_path / f"{name}.sr", [bytes([*[0xFF] * 10, 0xFE, 0xFE]), *stuck])
        filled = [one.format(out=tmp_path / name) for one in command]
        status, _, needed[name] = peak_memory([*filled, str(tmp_path / f"{name}.sr"), "--clock-mhz", "33"])
        assert status == 0
    assert needed["long"] < needed["short"] + 30_000


@pytest.mark.parametrize("command", [["list"], ["check", "--json"]], ids=lambda command: command[0])
def test_data_phases_do_not_wait_for_a_burst_that_goes_on(command: list[str], tmp_path: Path) -> None:
    """FRAME#, IRDY#, TRDY# and DEVSEL# are stuck, as on a bus without power: a million clocks, and three."""
    names = [*NAMES, *(f"AD{n}" for n in range(32)), *(f"C/BE{n}#" for n in range(4)), "PAR"]
    idle, address, data = (bytes([low, 0, 0, 0, 0, 0x16]) for low in (0xFF, 0xFE, 0xF0))
    needed = {}
    for name, members in (("short", 50), ("long", 150)):
        write_clocks(tmp_path / f"{name}.sr", [10 * idle + address, *[data * 20_000] * members], names)
        status, _, needed[name] = peak_memory([*command, str(tmp_path / f"{name}.sr"), "--clock-mhz", "33"])
        assert status == 0
    assert needed["long"] < needed["short"] + 30_000


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, int]]:
    """A bus on which one transaction follows the other, 1200 and 3600 times the same 200; and how many there are."""
    traffic = buses.long_run(seed=3, count=200)
    quiet = [oracle.Clock(gnt=(1, 1, 1))] * 4
    clocks = waveforms.settle(quiet + traffic.clocks + quiet, Random(1))
    captured = oracle.CONTROL | {"C/BE#", "GNT#", "PERR#", "SERR#", "AD", "PAR"}
    sampled, _ = waveforms.timing_mode(waveforms.wires(clocks, captured), Random(2))
    folder = tmp_path_factory.mktemp("busy")
    small = waveforms.write_sr(folder / "small.sr", sampled)
    with zipfile.ZipFile(small) as archive:
        metadata, piece = archive.read("metadata"), archive.read("logic-1-1")
    found = {}
    for name, members in (("short", 30), ("long", 90)):
        found[name] = (folder / f"{name}.sr", 40 * members * len(traffic.transactions))
        with zipfile.ZipFile(folder / f"{name}.sr", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("version", "2")
            archive.writestr("metadata", metadata)
            for number in range(members):
                archive.writestr(f"logic-1-{number + 1}", piece * 40)
    return found


def test_check_keeps_no_transactions(busy: dict[str, tuple[Path, int]]) -> None:
    """But places of broken rules, of which 20,000 are kept of each."""
    needed = {}
    for which, (path, _) in busy.items():
        status, out, needed[which] = peak_memory(["check", str(path), "--json"])
        assert status == 0
        assert len(out) > 1000
    more = busy["long"][1] - busy["short"][1]
    assert 1024 * (needed["long"] - needed["short"]) < 80 * more
