"""`pcitrace list`: goldens to the letter, every row in it, retries folded, and names as they are known at a line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import rule_traffic
from buses import Phase, drive, transaction
from conftest import REPOSITORY
from waveforms import state_mode, wires, write_sr

import pcitrace
from pcitrace.cli import main
from pcitrace.instrument.devices import access_of
from pcitrace.instrument.listing import Layer, Settings, lines
from pcitrace.instrument.names import Names
from pcitrace.instrument.rules import select
from pcitrace.instrument.stream import parts

GOLDEN = Path(__file__).parent / "golden_listings"
TRACES = REPOSITORY / "fixtures" / "traces"
SEQ1, SEQ6, NIC = (TRACES / name / "bus.vcd.gz" for name in ("blue33_seq1", "blue33_seq6", "nic_g_a"))
SR = TRACES / "blue33_seq1" / "ctl_250MSs.sr"

LISTINGS = {
    "seq1": [SEQ1],
    "seq1-data": [SEQ1, "--layer", "data", "--to", "3us"],
    "seq1-delta-all": [SEQ1, "--time", "delta", "--data", "all", "--around", "6us,1us"],
    "seq1-control-lines": [SR, "--to", "4us"],
    "nic-start": [NIC, "--to", "60us"],
    "nic-accesses": [NIC, "--bus", "A", "--layer", "accesses", "--to", "60us", "--grant", "eth0=GNT_NIC#"],
    "nic-two-pass-colour": [NIC, "--bus", "B", "--two-pass", "--colour", "always", "--to", "6us"],
    "seq6-problems": [SEQ6, "--around", "200us,5us", "--raw"],
}


def listed(capsysbinary: pytest.CaptureFixture[bytes], *arguments: object) -> str:
    assert main(["list", *map(str, arguments)]) == 0
    return capsysbinary.readouterr().out.decode()


@pytest.mark.parametrize("name", list(LISTINGS))
def test_listings_equal_golden(name: str, capsysbinary: pytest.CaptureFixture[bytes], update_golden: bool) -> None:
    text = listed(capsysbinary, *LISTINGS[name])
    file = GOLDEN / f"{name}.txt"
    if update_golden:
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines()


def test_every_golden_is_compared() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(LISTINGS)


def test_parts_are_the_tables() -> None:
    run = pcitrace.open(NIC)
    buses = list(run.buses.values())
    together = list(parts(buses, None, data_phases=True))
    for name in ("transactions", "data_phases", "problems"):
        rows = pa.concat_tables([pa.table(getattr(part, name)) for part in together]).to_pylist()
        for bus in buses:
            assert [row for row in rows if row["bus"] == bus.name] == bus.arrow(name).to_pylist()
    for part in together:
        transactions, phases = (pa.table(getattr(part, name)).to_pylist() for name in ("transactions", "data_phases"))
        expected = [(row["bus"], row["transaction"]) for row in transactions for _ in range(row["data_phases"])]
        assert [(row["bus"], row["transaction"]) for row in phases] == expected
        starts = [row["start_us"] for row in transactions]
        assert starts == sorted(starts)


def test_a_part_keeps_the_data_of_what_is_chosen() -> None:
    [part, *_] = parts([pcitrace.open(SEQ1).bus], None, data_phases=True)
    wanted = [number % 3 == 1 for number in range(len(part))]
    chosen = part.choose(bytes(wanted))
    numbers = pa.table(part.transactions)["transaction"].to_pylist()
    kept = {number for number, one in zip(numbers, wanted, strict=True) if one}
    assert pa.table(chosen.transactions)["transaction"].to_pylist() == sorted(kept)
    expected = [row for row in pa.table(part.data_phases).to_pylist() if row["transaction"] in kept]
    assert pa.table(chosen.data_phases).to_pylist() == expected
    with pytest.raises(ValueError, match="a byte for each"):
        part.choose(b"")


def test_raw_lists_every_transaction_and_problem() -> None:
    bus = pcitrace.open(SEQ6).bus
    text = b"".join(lines([bus], Settings(raw=True))).decode()
    times = [line[:15].strip() for line in text.splitlines() if not line.startswith("!")]
    assert times == [f"{time:.3f}" for time in bus.transactions["start_us"]]
    problems = [line for line in text.splitlines() if line.startswith("!") and "nobody claims" not in line]
    assert len(problems) == len(bus.problems) > 100


def test_retries_of_one_access_are_one_line(tmp_path: Path) -> None:
    rng = Random(2)
    read = transaction(rng, rng)
    while read.command != 6 or len(read.phases) != 1 or read.ending != "completion" or read.wide != "no":
        read = transaction(rng, rng)
    other = replace(read, address=read.address ^ 0x10000, agent=1)
    read = replace(read, agent=0)
    asked = replace(read, ending="retry")
    traffic = drive([asked, other, asked, asked, read, asked, other], Random(1), parked=False)
    path = write_sr(tmp_path / "retried.sr", state_mode(wires(traffic.clocks)))
    bus = pcitrace.open(path, clock_mhz=33.0).bus
    assert [row["termination"] for row in bus.arrow("transactions").to_pylist()].count("retry") == 4
    text = [line for line in b"".join(lines([bus])).decode().splitlines() if not line.startswith("!")]
    assert [line.split("  ")[-1].split(" in ")[0] for line in text] == [
        "completion", "completion, 4 attempts", "completion", "retry",
    ]  # fmt: skip
    assert float(text[1][:15]) == pytest.approx(bus.transactions["start_us"].iloc[4], abs=1e-3)
    raw = [line for line in b"".join(lines([bus], Settings(raw=True))).decode().splitlines() if line[0] != "!"]
    assert len(raw) == 7


def test_a_data_phase_is_as_wide_as_its_burst(tmp_path: Path) -> None:
    """Where the upper half is 0 the digits are there all the same."""
    rng = Random(3)
    write = transaction(rng, rng)
    while write.command != 7 or write.dac or write.ending != "completion":
        write = transaction(rng, rng)
    phases = [Phase(0, 0, data, 0) for data in (0x0123456789ABCDEF, 1)]
    write = replace(write, wide="yes", address=0x1000, phases=phases)
    path = write_sr(tmp_path / "wide.sr", state_mode(wires(drive([write], rng, wide_bus=True, parked=False).clocks)))
    bus = pcitrace.open(path, clock_mhz=33.0).bus
    text = b"".join(lines([bus], Settings(layer=Layer.DATA))).decode().splitlines()
    shown = [line.split(" = ")[1].split()[:2] for line in text if not line.startswith("!")]
    assert shown == [["0123456789abcdef", "8"], ["0000000000000001", "8"]]


def test_each_bus_keeps_the_limits_of_its_own_clock(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Of two buses on one analyser one runs at 33 MHz and the other at 66."""
    names = ("CLK", "FRAME#", "IRDY#", "TRDY#")
    header, idle, edges = ["$timescale 1ps $end"], [], []
    for bus, half_ps in (("a", 15_000), ("b", 7_500)):
        header += [f"$scope module {bus} $end", *(f"$var wire 1 {bus}{n} {name} $end" for n, name in enumerate(names))]
        header += ["$upscope $end"]
        idle += [f"1{bus}{n}" for n in (1, 2, 3)]
        edges += [(n * half_ps, f"{n % 2}{bus}0") for n in range(2_400_000 // half_ps)]
    changes = [f"#{at}\n{level}" for at, level in sorted(edges)]
    path = tmp_path / "two.vcd"
    path.write_text("\n".join([*header, "$enddefinitions $end", "#0", *idle, *changes, ""]))
    assert not listed(capsysbinary, path)
    assert main(["decode", str(path), "--rules", "all", "--problems", "-"]) == 0
    assert len(capsysbinary.readouterr().out.splitlines()) == 1


def test_of_an_access_in_part_the_outcome_is_not_told(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """What was not chosen may be the attempt that completed it."""
    text = listed(capsysbinary, SEQ6, "--where", "termination == retry")
    assert "retry, 2 times in" in text
    assert "not completed" not in text
    text = listed(capsysbinary, REPOSITORY / "fixtures" / "faults" / "endless-retry.sr", "--to", "108us")
    assert "retry, 150 times in" in text
    assert "completed" not in text.splitlines()[-1]


@pytest.mark.parametrize("command", ["list", "decode", "stats"])
def test_a_condition_on_what_was_not_captured_is_said(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(SR), "--where", "address > 0 and bytes >= 0"]) == 0
    told = capfd.readouterr()
    assert told.err.startswith("pcitrace: nothing was chosen; address: not known of any transaction")
    assert command == "stats" or len(told.out.splitlines()) == (command == "decode")
    assert main([command, str(SR), "--where", "address is None and bytes > 9999"]) == 0
    assert main([command, str(SR), "--where", "bytes > 9999"]) == 0
    told = capfd.readouterr().err.splitlines()
    assert told[-1] == "pcitrace: nothing was chosen: no transaction fulfils the condition"
    assert main([command, str(SR), "--where", "bytes > 0"]) == 0
    assert "nothing was chosen" not in capfd.readouterr().err


def test_where_no_row_of_a_table_is_chosen_it_is_said_why(capfd: pytest.CaptureFixture[str]) -> None:
    control = [str(NIC.with_name("control16.sr")), "--bus", "A"]
    assert main(["bursts", *control, "--where", "address > 0"]) == 0
    assert capfd.readouterr().err == "pcitrace: bursts: nothing was chosen; address: not known in any row\n"
    assert main(["csr", *control, "--where", "attempts > 999"]) == 0
    assert capfd.readouterr().err == "pcitrace: csr_accesses: nothing was chosen: no row fulfils the condition\n"
    assert main(["bursts", *control, "--where", "bytes > 0"]) == 0
    assert capfd.readouterr().err == ""


def test_special_cycles_and_locks_are_words(tmp_path: Path) -> None:
    """Of LOCK# each change is a line; `locked` are the accesses that take it or go on with it, none beside."""
    bus = rule_traffic.Traffic()
    messages = {0: "shutdown", 1: "halt", 2: "x86 architecture specific", 0x12340002: "x86", 0x1234: "reserved message"}
    for number, message in enumerate(messages):
        bus.put(f"special {number}", 0x1, 0xABCD, devsel=None)
        for clock in bus.clocks[bus.marks[f"special {number}"] + 1 :]:
            clock.ad = message
    bus.put("before", 0x6, 0x1000)
    bus.put("taken", 0x6, 0x2000, lock=True, gap=0)
    bus.put("free", 0x7, 0x3000)
    path = write_sr(tmp_path / "locked.sr", rule_traffic.sampled(bus.finish()))
    settings = Settings(masks=select(["L", "M20", "M11"]))
    text = b"".join(lines([pcitrace.open(path, clock_mhz=33.0).bus], settings)).decode().splitlines()
    special = [line for line in text if "special cycle" in line]
    for line, (message, words) in zip(special, messages.items(), strict=True):
        assert f"special cycle {words}" in line
        assert f"({message:08x})" in line
    assert [line.split()[-1] == "locked" for line in text if " memory " in line] == [False, True, False]
    assert [line[line.index("LOCK#") :] for line in text if "LOCK#" in line] == [
        "LOCK# asserted: the target is locked", "LOCK# released",
    ]  # fmt: skip
    assert not [line for line in text if line.startswith("!")]


@pytest.mark.parametrize("path", [SEQ1, SEQ6, NIC])
def test_every_line_is_named_as_if_all_accesses_before_it_were_learned(path: Path) -> None:
    """The listing learns from those accesses only that may change a name."""
    for bus in pcitrace.open(path).buses.values():
        rows = bus.arrow("transactions").select(["transaction", "command", "address"]).to_pylist()
        moved: dict[int, list[tuple[float, int, int]]] = {}
        for phase in bus.arrow("data_phases").to_pylist():
            if phase["data"] is not None and phase["byte_enables"] is not None:
                moved.setdefault(phase["transaction"], []).append(
                    (phase["time_us"], phase["data"], phase["byte_enables"])
                )
        names, expected = Names(), []
        for row in rows:
            if row["command"] in (0xA, 0xB) and row["address"] is not None:
                for nth, (time_us, data, enables) in enumerate(moved.get(row["transaction"], ())):
                    access = access_of(row["transaction"], time_us, row["command"], row["address"], nth, data, enables)
                    if access is not None:
                        names.see(access)
                expected.append(names.space.register(row["address"]) or f"{row['address']:08x}")
        text = b"".join(lines([bus], Settings(raw=True))).decode()
        found = re.findall(r"config (?:read|write) (.*?)(?: =|   )", text)
        assert len(expected) > 3
        assert found == [name.removesuffix(" ") for name in expected]


def test_names_are_those_of_the_configuration_accesses_before(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    text = listed(capsysbinary, NIC, "--bus", "A").splitlines()
    placed = next(n for n, line in enumerate(text) if "config write 00:09.0 BAR0 = e8000000" in line)
    named = [n for n, line in enumerate(text) if "eth0 BAR0+0x" in line]
    assert placed < min(named)
    assert len(named) > 100
    chosen = listed(capsysbinary, NIC, "--bus", "A", "--where", 'target == "eth0" and command == memory_write')
    assert all(" memory write e80000" in line for line in chosen.splitlines())
    assert len(chosen.splitlines()) > 50


@pytest.mark.parametrize("width", [40, 60, 80, 100, 130, 200])
@pytest.mark.parametrize("file", [SEQ1, NIC, REPOSITORY / "fixtures" / "faults" / "endless-retry.sr"])
def test_a_terminal_gets_lines_as_wide_as_it_is(file: Path, width: int) -> None:
    """None is wider; what a line begins with stays, and how it ended, for which the data give way."""
    buses = list(pcitrace.open(file).buses.values())
    plain = b"".join(lines(buses)).decode().splitlines()
    narrow = b"".join(lines(buses, Settings(width=width, colour=True))).decode()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", narrow).splitlines()
    assert "\x1b[" in narrow
    rows = 0
    for line, cut in zip(plain, shown, strict=True):
        assert len(cut) <= width
        assert cut.split()[0:2] == line.split()[0:2]
        if line.startswith("!") or "bytes" not in line:
            continue
        rows += 1
        ended = line.split("  ")[-1].strip()
        if width >= 80 and len(ended) <= len("disconnect without data"):
            assert cut.endswith(f"  {ended}"), cut
        address = re.search(r"memory [a-z ]*([0-9a-f]{8})", line)
        assert address is None or width < 60 or address[1] in cut
    assert rows > 20


def test_a_wide_terminal_shows_what_a_file_has() -> None:
    buses = list(pcitrace.open(NIC).buses.values())
    assert b"".join(lines(buses, Settings(width=250))) == b"".join(lines(buses))


def test_the_trigger_and_what_it_needs(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    first = listed(capsysbinary, SEQ1, "--time", "trigger", "--trigger", "1us").splitlines()[0]
    start = pcitrace.open(SEQ1).bus.transactions["start_us"].iloc[0]
    assert float(first[:15]) == pytest.approx(start - 1, abs=1e-3)
    assert main(["list", str(SEQ1), "--time", "trigger"]) == 3
    assert b"does not say when its trigger was" in capsysbinary.readouterr().err


def test_it_streams_into_head_and_imports_little() -> None:
    program = Path(sys.executable).with_name("pcitrace")
    command = f"set -o pipefail; {program} list {SEQ6} | head -n 3"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (3, "")
    script = "import sys; from pcitrace.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script, "list", SR], capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & {"numpy", "pandas", "pyarrow"}


def test_no_colour_where_nobody_wants_it(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert "\x1b" not in listed(capsysbinary, SEQ1)
    assert "\x1b" in listed(capsysbinary, SEQ1, "--colour", "always")
    script = (
        "import os, pty, sys; from pcitrace.cli import main; "
        "pid, fd = pty.fork()\n"
        "if pid == 0: sys.exit(main(sys.argv[1:]))\n"
        "text = b''\n"
        "try:\n"
        "    while True: text += os.read(fd, 65536)\n"
        "except OSError: pass\n"
        "sys.stdout.buffer.write(text)"
    )
    for no_colour, expected in (("", True), ("1", False)):
        environment = {**os.environ, "NO_COLOR": no_colour, "COLUMNS": "80"}
        command = [sys.executable, "-c", script, "list", str(SEQ1), "--to", "2us"]
        done = subprocess.run(command, capture_output=True, env=environment, check=True)
        assert (b"\x1b[" in done.stdout) is expected


@pytest.mark.parametrize("layer", list(Layer))
def test_a_capture_in_which_nothing_happens(layer: Layer, tmp_path: Path) -> None:
    path = tmp_path / "idle.csv"
    path.write_text("FRAME#,IRDY#,TRDY#\n" + "1,1,1\n" * 100)
    bus = pcitrace.open(path, clock_mhz=33.0).bus
    assert b"".join(lines([bus], Settings(layer=layer))) == b""


def test_a_reader_of_ascii_gets_ascii() -> None:
    """A terminal of 60 columns whose encoding has no mark of a cut: three points, and no line is wider for that."""
    script = "import os, pty, sys; os.environ['COLUMNS'] = '60'; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    program = Path(sys.executable).with_name("pcitrace")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, program, "list", SR, "--to", "20us"],
        capture_output=True, env=environment, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    shown = done.stdout.decode("ascii").splitlines()
    assert len(shown) > 10
    assert max(map(len, shown)) <= 60
    assert any("..." in line for line in shown)
