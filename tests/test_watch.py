"""The bus while it runs: what `pcitrace watch` says in the end is what the recording says afterwards."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import REPOSITORY, needed_program

import pcitrace
from pcitrace.analysed import AnalysedRun
from pcitrace.cli import main
from pcitrace.errors import CaptureFormatError
from pcitrace.instrument.judged import check, judge
from pcitrace.live import session
from pcitrace.live.intake import Intake
from pcitrace.live.show import squeezed
from pcitrace.live.sources import GrowingFile
from pcitrace.records import records

VCD = REPOSITORY / "fixtures" / "traces" / "nic_g_a" / "bus.vcd.gz"
ONE_BUS = REPOSITORY / "fixtures" / "traces" / "blue33_seq1" / "bus.vcd.gz"
LINES = "CLK,FRAME#,IRDY#,TRDY#,DEVSEL#,STOP#"
PROGRAM = str(Path(sys.executable).with_name("pcitrace"))


def expected(run: AnalysedRun, name: str) -> dict[str, Any]:
    """What the whole recording says of a bus."""
    bus = run[name]
    [clocks] = records(bus.clocks())
    rows = bus.transactions
    return {
        "transactions": len(rows),
        "commands": {str(key): int(n) for key, n in rows["command_name"].value_counts().sort_index().items()},
        "terminations": {str(key): int(n) for key, n in rows["termination"].value_counts().sort_index().items()},
        "clocks": {key: clocks[key] or 0 for key in ("total", "idle", "address", "data", "wait", "busy", "bytes")},
        "problems": {str(k): int(n) for k, n in bus.problems.groupby("kind")["count"].sum().items()},
        "violations": {one.rule.id: one.count for one in check(bus) if one.count and one.rule.id != "E01"},
    }


def agrees(run: AnalysedRun, line: dict[str, Any]) -> None:
    """Compare what `watch` said last with the whole."""
    assert line["end"]
    assert line["skipped_samples"] == 0
    for name, bus in line["buses"].items():
        wanted, total = expected(run, name), bus["total"]
        assert {key: total[key] for key in ("transactions", "commands", "terminations")} == {
            key: wanted[key] for key in ("transactions", "commands", "terminations")
        }
        assert {key: total["clocks"][key] for key in wanted["clocks"]} == wanted["clocks"]
        assert (bus["problems"], bus["violations"]) == (wanted["problems"], wanted["violations"])


class Recording:
    """A simulated capture as raw samples."""

    def __init__(self, folder: Path, wires: str = "full") -> None:
        command = ["simulate", "acenic-fig3.1", "-o", str(folder / "run"), "--set", "test.count=40", "sweep.loops=2"]
        assert main([*command, f"analyser.wires={wires}", "test.configure=false"]) == 0
        self.session = folder / "run" / "bus.sr"
        self.run = pcitrace.open(self.session)
        [capture] = self.run.captures
        self.raw = capture.samples().tobytes()
        self.unit = capture.samples().shape[1]
        self.options = ["--channels", ",".join(capture.channels), "--rate", f"{capture.rate_hz:g}"]

    def expected(self, name: str) -> dict[str, Any]:
        """What the whole recording says of a bus."""
        return expected(self.run, name)

    def agrees(self, line: dict[str, Any]) -> None:
        """Compare what `watch` said last with the whole."""
        agrees(self.run, line)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(tmp_path_factory.mktemp("watched"))


def last(output: str) -> dict[str, Any]:
    return json.loads(output.splitlines()[-1])


def test_a_pipe(recording: Recording) -> None:
    watching = [PROGRAM, "watch", "-", *recording.options, "--json", "--every", "0.05"]
    done = subprocess.run(watching, input=recording.raw, capture_output=True, check=True)
    recording.agrees(last(done.stdout.decode()))
    listed = subprocess.run([PROGRAM, "list", recording.session], capture_output=True, check=True, text=True).stdout
    lines = [line for line in listed.splitlines() if " us " in line]
    assert set(last(done.stdout.decode())["last"]) <= set(lines)


def test_a_file_that_grows(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "growing.bin"
    path.touch()
    watching = subprocess.Popen(
        [PROGRAM, "watch", path, *recording.options, "--json", "--idle", "6"], stdout=subprocess.PIPE, text=True
    )
    with path.open("ab", buffering=0) as file:
        step = len(recording.raw) // 7 + 1
        for begin in range(0, len(recording.raw), step):
            file.write(recording.raw[begin : begin + step])
            time.sleep(0.05)
    recording.agrees(last(watching.communicate(timeout=120)[0]))


def test_a_vcd_that_grows(tmp_path: Path) -> None:
    text = gzip.decompress(VCD.read_bytes())
    path = tmp_path / "growing.vcd"
    path.write_bytes(text[:700])  # within the names of its variables
    command = [PROGRAM, "watch", path, "--json", "--idle", "6"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with path.open("ab", buffering=0) as file:
        step = len(text) // 5
        for begin in range(700, len(text), step):
            file.write(text[begin : begin + step])
            time.sleep(0.1)
    line = last(watching.communicate(timeout=120)[0])
    run = pcitrace.open(VCD)
    # The last change is seen at the next sample, which lasts as long as any: 2 ns each.
    assert line["time_us"] == pytest.approx(run.captures[0].duration_s * 1e6, abs=0.004)
    agrees(run, line)


def test_a_vcd_whose_changes_stand_in_the_line_of_their_time(tmp_path: Path) -> None:
    """As sigrok-cli -O vcd writes it."""
    text = gzip.decompress(ONE_BUS.read_bytes())
    found = []
    for name, form in (("split.vcd", text), ("lines.vcd", re.sub(rb"\n(#\d+)\n(?!#)", rb"\n\1 ", text))):
        (tmp_path / name).write_bytes(form)
        source, samples = session.open_source(str(tmp_path / name), session.Samples(()), 0.1)
        watched = session.watcher(samples)
        *_, line = session.watch(Intake(source, watched.stream.unit_size), watched)
        found.append(line.as_dict()["buses"]["pci"]["total"])
    assert b"\n#" in text
    assert re.search(rb"\n#\d+ \S", form)
    assert found[0] == found[1]
    assert found[0]["transactions"] == len(pcitrace.open(ONE_BUS)["pci"].transactions)


def test_a_program_that_ctrl_c_ends_is_no_error(recording: Recording) -> None:
    """A terminal gives it to the program that writes the samples, too."""

    class Ends:
        patient = False

        def blocks(self) -> Iterator[bytes]:
            yield recording.raw
            raise CaptureFormatError("ended with exit status -2")

        def close(self) -> None:
            pass

    [capture] = recording.run.captures
    for stopped in (True, False):
        watched = session.watcher(session.Samples(capture.channels, capture.rate_hz))
        intake = Intake(Ends(), recording.unit)
        watching = session.watch(intake, watched, stop=lambda: sys.exc_info()[0] is not None and stopped)  # noqa: B023
        if stopped:
            *_, line = watching
            recording.agrees(line.as_dict())
        else:
            with pytest.raises(CaptureFormatError, match="exit status -2"):
                list(watching)


def test_the_only_bus_of_a_vcd_keeps_its_name(tmp_path: Path) -> None:
    path = tmp_path / "head.vcd"
    path.write_bytes(gzip.decompress(ONE_BUS.read_bytes()).partition(b"#0")[0])
    source, samples = session.open_source(str(path), session.Samples(()), 0.1)
    list(source.blocks())  # to its end, so that it is closed
    assert session.watcher(samples).stream.buses == tuple(pcitrace.open(ONE_BUS).buses) == ("pci",)


def test_what_pcicap_records_while_it_records(recording: Recording, tmp_path: Path) -> None:
    from pcicap.samplewriter import SampleWriter
    from pcicap.srfile import SrFile

    [capture] = recording.run.captures
    path = tmp_path / "bus.sr"
    channels = dict(enumerate(capture.channels))
    writer = SampleWriter(SrFile(path, channels, recording.unit, capture.rate_hz), recording.unit)
    watching = subprocess.Popen(
        [PROGRAM, "watch", tmp_path, "--json", "--idle", "6"], stdout=subprocess.PIPE, text=True
    )
    for begin in range(0, len(recording.raw), 1 << 18):
        writer.feed(recording.raw[begin : begin + (1 << 18)])
        time.sleep(0.05)
    writer.close()
    recording.agrees(last(watching.communicate(timeout=120)[0]))


@pytest.mark.parametrize("place", ["7", "7/captures/bus.sr", "7.partial"])
def test_a_recording_is_found_by_its_last_name_and_followed_when_it_gets_it(
    place: str, recording: Recording, tmp_path: Path
) -> None:
    """pcicap calls the folder NAME.partial, and renames it when it is whole."""
    from pcicap import describe
    from pcicap.samplewriter import SampleWriter
    from pcicap.srfile import SrFile

    [capture] = recording.run.captures
    folder = tmp_path / "7.partial"
    path = folder / describe.capture_file("bus")
    path.parent.mkdir(parents=True)
    channels = dict(enumerate(capture.channels))
    writer = SampleWriter(SrFile(path, channels, recording.unit, capture.rate_hz), recording.unit)
    size = 3 << 22
    raw = (recording.raw * (size // len(recording.raw) + 1))[:size]
    writer.feed(raw)
    writer.close()
    source, _ = session.open_source(str(tmp_path / place), session.Samples(()), None)
    blocks = source.blocks()
    found = [next(blocks)]
    folder.rename(tmp_path / "7")
    found += blocks
    assert len(found) > 1
    assert b"".join(found) == raw


def change(path: Path, how: str) -> None:
    """Do to a file what ends its growing."""
    if how == "rotated":
        path.rename(path.with_suffix(".1"))
        path.write_bytes(bytes(9000))
    elif how == "replaced":
        other = path.with_suffix(".new")
        other.write_bytes(bytes(9000))
        other.replace(path)
    elif how == "removed":
        path.unlink()
    else:
        os.truncate(path, 10)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("rotated", "another file has its name now; watch that one anew"),
        ("replaced", "another file has its name now; watch that one anew|removed while it was read"),
        ("removed", "it was removed while it was read"),
        ("truncated", "it got shorter while it was read"),
    ],
)
def test_a_file_that_goes_is_said(how: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.bin"
    path.write_bytes(bytes(1000))
    blocks = GrowingFile(path, None).blocks()
    assert next(blocks) == bytes(1000)
    change(path, how)
    with pytest.raises(CaptureFormatError, match=words):
        next(blocks)


@pytest.mark.parametrize("place", ["run", "run/bus.sr"])
def test_what_is_watched_is_not_written_over(
    place: str, recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    path = shutil.copy(recording.session, tmp_path / "run" / "bus.sr")
    assert main(["watch", str(tmp_path / place), "--until", "clocks > 0", "-o", str(path)]) == 3
    assert "this is what is watched" in capsys.readouterr().err
    assert path.read_bytes() == recording.session.read_bytes()


def test_a_damaged_recording_is_no_end(recording: Recording, tmp_path: Path) -> None:
    """Neither one that cannot be unpacked, nor one that gives other samples."""
    whole = recording.session.read_bytes()
    with zipfile.ZipFile(recording.session) as archive:
        [member] = [one for one in archive.infolist() if one.filename.startswith("logic-1")]
    begin = member.header_offset + zipfile.sizeFileHeader + len(member.filename)
    for at, byte, words in ((begin, 7, "invalid block type"), (begin + member.compress_size // 2, None, "check sum")):
        damaged = bytearray(whole)
        damaged[at] = damaged[at] ^ 0x10 if byte is None else byte
        (tmp_path / "bus.sr").write_bytes(damaged)
        source, samples = session.open_source(str(tmp_path), session.Samples(()), 0.1)
        watched = session.watcher(samples)
        with pytest.raises(CaptureFormatError, match=rf"bus\.sr: logic-1-1 is damaged: .*{words}"):
            list(session.watch(Intake(source, watched.stream.unit_size), watched))


def test_a_defect_of_a_source_is_no_end() -> None:
    def broken() -> Iterator[bytes]:
        yield b"\1"
        raise ZeroDivisionError

    intake = Intake(SimpleNamespace(patient=True, blocks=broken, close=lambda: None), 1)
    intake.start()
    assert intake.next(5).samples == b"\1"
    with pytest.raises(ZeroDivisionError):
        intake.next(5)


def test_bursts_of_a_program(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "burst.bin"
    path.write_bytes(recording.raw)
    command = [
        PROGRAM,
        "watch",
        "--command",
        f"sh -c 'cat {path}; sleep 1'",
        "--repeat",
        *recording.options,
        "--json",
        "--every",
        "0.05",
    ]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    for line in watching.stdout:
        if json.loads(line)["gaps"] >= 2:
            watching.terminate()
            break
    end = last(watching.communicate(timeout=60)[0])
    assert end["buses"]["A"]["problems"]["gap"] >= 2
    assert end["buses"]["A"]["total"]["transactions"] >= 2 * recording.expected("A")["transactions"] - 2


def test_sigrok_cli_runs_continuously() -> None:
    needed_program("sigrok-cli")
    names = ",".join(["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "", ""])
    program = "sigrok-cli -d demo -c samplerate=100k --continuous -O binary"
    command = [PROGRAM, "watch", "--command", program, "--channels", names, "--rate", "100e3", "--json"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    told = [json.loads(next(watching.stdout)) for _ in range(6)]
    watching.terminate()
    watching.communicate(timeout=30)
    assert watching.returncode in (0, 3)
    assert told[-1]["time_us"] > told[0]["time_us"]


def test_until_keeps_what_was_before_and_after(recording: Recording, tmp_path: Path) -> None:
    rows = recording.run["A"].transactions
    most = int(rows["bytes"].max())
    wanted = rows[rows["bytes"] == most].iloc[0]
    path = tmp_path / "kept.sr"
    condition = ["--until", f"bytes == {most}", "--pre", "20us", "--post", "30us", "-o", path, "--bus", "A"]
    watching = [PROGRAM, "watch", "-", *recording.options, "--json", *condition]
    done = subprocess.run(watching, input=recording.raw, capture_output=True, check=True)
    assert f"at {wanted['start_us']:.3f} us" in done.stderr.decode()
    kept = pcitrace.open(path)
    found = kept["A"].transactions
    assert found.loc[found["bytes"] == most, "start_us"].iloc[0] == pytest.approx(20, abs=0.02)


@pytest.fixture(scope="module")
def faulty() -> AnalysedRun:
    """A bus on which rules are broken."""
    return pcitrace.open(REPOSITORY / "fixtures/traces/blue33_seq6/ctl_100MSs.sr")


def broken(run: AnalysedRun) -> list[dict[str, Any]]:
    """Where rules are broken, by those that its lines tell."""
    rules = [one.rule.id for one in check(run.bus) if one.state != "not_evaluated"]
    return judge(run.bus, rules, None, None).violations.to_pylist()


def test_problems_and_broken_rules_come_one_by_one(faulty: AnalysedRun) -> None:
    [capture] = faulty.captures
    samples = capture.samples()
    watched = session.watcher(session.Samples(capture.channels, capture.rate_hz))
    came = []
    for begin in range(0, len(samples), 7001):
        found = watched.feed(samples[begin : begin + 7001].tobytes(), time.monotonic())
        came += found.problems.to_pylist()
    came += watched.finish().problems.to_pylist()
    violations = {(row["rule"], row["time_us"]) for row in came if row["kind"] == row["rule"]}
    whole = broken(faulty)
    assert len(whole) > 100
    assert violations == {(row["rule"], row["time_us"]) for row in whole}
    assert sum(row["kind"] == row["rule"] for row in came) == len(whole)
    problems = faulty.bus.problems
    assert sorted(row["time_us"] for row in came if row["kind"] != row["rule"]) == sorted(problems["time_us"])
    times = sorted(row["time_us"] for row in came)
    assert [row["time_us"] for row in watched.status().wrong] == times[-12:]


def test_what_a_rule_says_is_told_once(tmp_path: Path) -> None:
    """Wrong parity is a problem, and a rule that is broken."""
    path = tmp_path / "bus.vcd"
    path.write_bytes(gzip.decompress((REPOSITORY / "fixtures/traces/blue33_seq1/bus.vcd.gz").read_bytes()))
    told = {}
    for options in ((), ("--no-rules",)):
        watching = [PROGRAM, "watch", path, "--json", "--idle", "0.3", *options]
        line = last(subprocess.run(watching, capture_output=True, check=True, text=True).stdout)
        assert line["buses"]["pci"]["problems"]["data_parity"] == 6
        told[options] = {row["kind"] for row in line["wrong"]}
    assert told[()] & {"P01", "P02", "P03"}
    assert not told[()] & {"data_parity", "address_parity"}
    assert told["--no-rules",] & {"data_parity", "address_parity"}
    assert not told["--no-rules",] & {"P01", "P02", "P03"}


def test_until_waits_for_a_broken_rule(faulty: AnalysedRun) -> None:
    [capture] = faulty.captures
    [first, *_] = [row for row in broken(faulty) if row["rule"] == "M12"]
    options = ["--channels", ",".join(capture.channels), "--rate", f"{capture.rate_hz:g}", "--json"]
    watching = [PROGRAM, "watch", "-", *options, "--until", 'rule == "M12"']
    done = subprocess.run(watching, input=capture.samples().tobytes(), capture_output=True, check=True)
    assert f"at {first['time_us']:.3f} us" in done.stderr.decode()


def test_a_line_shows_what_is_in_it() -> None:
    lines = ("  1.0 us          read   4", "  2.0 us          write 24")
    assert squeezed(lines) == ["  1.0 us  read   4", "  2.0 us  write 24"]
    assert squeezed(()) == []


def test_frames_where_two_hosts_are_there(recording: Recording) -> None:
    watching = [PROGRAM, "watch", "-", *recording.options, "--json", "--bench", str(recording.session.parent)]
    done = subprocess.run(watching, input=recording.raw, capture_output=True, check=True)
    frames = last(done.stdout.decode())["frames"]
    alone = pcitrace.open(recording.session.parent).results.as_dict()
    assert frames["matched"] == alone["frames"]["matched"]
    assert frames["t_nic_tx_us"]["value"] == pytest.approx(alone["timing"]["t_nic_tx_us"]["value"], rel=1e-6)


def test_frames_of_a_run_that_pcicap_is_recording(recording: Recording, tmp_path: Path) -> None:
    """Its folder has another name until then, and copies of NIC profiles in a folder of their own."""
    folder = tmp_path / "7.partial"
    (folder / "nics").mkdir(parents=True)
    shutil.copy(REPOSITORY / "pcitrace" / "nics" / "acenic.toml", folder / "nics" / "A.toml")
    text = (recording.session.parent / "run.toml").read_text()
    (folder / "run.toml").write_text(text.replace('nic = "acenic"', 'nic = "nics/A.toml"'))
    watching = [PROGRAM, "watch", "-", *recording.options, "--json", "--bench", str(tmp_path / "7")]
    done = subprocess.run(watching, input=recording.raw, capture_output=True, check=True)
    assert last(done.stdout.decode())["frames"]["matched"] > 0


def test_metrics_are_there_for_this_machine_only(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "samples.bin"
    path.write_bytes(recording.raw)
    command = [PROGRAM, "watch", path, *recording.options, "--json", "--metrics", "0"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stderr is not None
    address = watching.stderr.readline().split("metrics: ")[1].strip()
    assert address.startswith("http://127.0.0.1:")
    until = time.monotonic() + 60
    text = ""
    kind, count = max(recording.expected("A")["commands"].items(), key=lambda one: one[1])
    expected = f'pcitrace_transactions_total{{bus="A",kind="{kind}"}} {count}.0'
    while expected not in text and time.monotonic() < until:
        text = urllib.request.urlopen(address).read().decode()
        time.sleep(0.1)
    watching.terminate()
    watching.communicate(timeout=30)
    assert expected in text


class Slowly:
    """Gives samples faster than they are taken."""

    patient = False

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces, self.given = pieces, threading.Event()

    def blocks(self) -> Any:
        yield from self.pieces
        self.given.set()

    def close(self) -> None:
        pass


def test_what_is_too_much_is_left_out_counted_and_marked() -> None:
    unit, pieces = 3, [bytes([number]) * 10 for number in range(100)]
    source = Slowly(pieces)
    intake = Intake(source, unit, bound=40)
    intake.start()
    assert source.given.wait(60)
    whole = b"".join(pieces)
    got, at = [], 0
    while at < len(whole):
        block = intake.next(60.0)
        assert block is not None
        assert block.missing is not None
        at = at - at % unit + block.missing * unit if block.missing else at
        assert whole[at : at + len(block.samples)] == block.samples
        at += len(block.samples)
        got.append(block)
    with pytest.raises(EOFError):
        intake.next(60.0)
    assert at == len(whole)
    assert intake.skipped == sum(block.missing or 0 for block in got) > 0


def test_a_file_is_read_whole_unless_it_grows_too_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcitrace.live.sources.LATE", 5000)
    path, there = tmp_path / "samples.bin", bytes(range(250)) * 40
    path.write_bytes(there)
    source = GrowingFile(path, 3.0)
    intake = Intake(source, 3, bound=100)
    intake.start()
    first = intake.next(60.0)
    assert first is not None
    assert (first.samples, first.missing) == (there, 0)
    grown = bytes(range(251)) * 30
    with path.open("ab") as file:
        file.write(grown)
    time.sleep(0.2)
    with path.open("ab") as file:
        file.write(b"abcdefgh")
    whole, at, missing = there + grown + b"abcdefgh", len(there), 0
    while True:
        try:
            block = intake.next(60.0)
        except EOFError:
            break
        assert block is not None
        if block.missing:
            at = at - at % 3 + block.missing * 3
            missing += block.missing
        assert whole[at : at + len(block.samples)] == block.samples
        at += len(block.samples)
    assert at == len(whole)
    assert intake.skipped == missing > 0


def test_a_view_for_a_terminal(recording: Recording) -> None:
    watching = [PROGRAM, "watch", "-", *recording.options]
    environment = os.environ | {"COLUMNS": "140"}
    done = subprocess.run(watching, input=recording.raw, capture_output=True, check=True, env=environment)
    text = done.stdout.decode()
    assert "occupancy" in text
    assert "memory_write" in text
    assert "completion" in text


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["watch"], 2, "name a FILE"),
        (["watch", "/nowhere/none", "--channels", "CLK", "--rate", "1e6"], 3, "/nowhere/none"),
        (["watch", "-"], 3, "--channels"),
        (["watch", "-", "--channels", "CLK,FRAME#", "--rate", "1e6"], 3, "IRDY#"),
        (["watch", "-", "--channels", "CLK", "--rate", "1e6", "-o", "x.sr"], 2, "--until"),
        (["watch", "-", "--channels", "CLK", "--rate", "1e6", "--until", "nonsense ="], 3, "nonsense"),
        (["watch", "--command", "false", "--channels", "CLK,FRAME#,IRDY#,TRDY#,DEVSEL#,STOP#", "--rate", "1e6"], 3,
         "exit status 1"),
        (["watch", "--command", "", "--channels", "CLK", "--rate", "1e6"], 3, "name a program"),
        (["watch", "--command", "cat 'x", "--channels", "CLK", "--rate", "1e6"], 3, "No closing quotation"),
        (["watch", "-", "--channels", LINES, "--rate", "1e6", "--metrics", "70000"], 3, "--metrics 70000: "),
        (["watch", "-", "--channels", LINES, "--rate", "1e6", "--until", "clocks > 3", "-o", "/nowhere/x.sr"], 3,
         "no folder /nowhere"),
        (["watch", "-", "--channels", LINES, "--rate", "1e6", "--until", "clocks > 3", "-o", "/sys/class/x.sr"], 3,
         "nothing can be written there"),
        (["watch", "-", "--channels", LINES, "--rate", "1e6", "--json"], 3, "no samples came"),
        (["watch", str(VCD), "--json"], 3, "open it when it is complete"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(arguments: list[str], status: int, words: str) -> None:
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
