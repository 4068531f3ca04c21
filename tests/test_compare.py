"""`pcitrace diff` and the alignment under it: what was put in is what is found."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from buses import Phase, Transaction, drive, transaction
from conftest import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st
from waveforms import state_mode, wires, write_sr

import pcitrace
from pcitrace.cli import main
from pcitrace.instrument.alignment import align, refined
from pcitrace.instrument.compare import compare

TRACES = REPOSITORY / "fixtures" / "traces"
SEQ6 = TRACES / "blue33_seq6" / "bus.vcd.gz"
PLAIN = Transaction(
    command=7, address=0, dac=False, wide="no", agent=0, idle_before=3, stepping=0, devsel=1, phases=[],
    ending="completion", burst=False, tail_clks=0, bad_address_parity=False, serr=False,
)  # fmt: skip
keys = st.lists(st.integers(0, 6), max_size=30)


def pairs_of(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in align(np.array(a, dtype=np.uint64), np.array(b, dtype=np.uint64)).tolist()]


@given(keys, keys)
def test_pairs_are_equal_and_in_order(a: list[int], b: list[int]) -> None:
    pairs = pairs_of(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    for (i, j), (k, m) in itertools.pairwise(pairs):
        assert i < k
        assert j < m


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_what_is_taken_out_is_what_is_missing(seed: int, count: int) -> None:
    rng = Random(seed)
    a = [rng.randrange(10**6) for _ in range(400)]
    gone = set(rng.sample(range(400), count))
    b = [key for place, key in enumerate(a) if place not in gone]
    assert {i for i, _ in pairs_of(a, b)} == set(range(400)) - gone
    assert {j for _, j in pairs_of(b, a)} == set(range(400)) - gone


@pytest.mark.parametrize("kinds", [2, 3])
def test_long_stretches_without_a_key_of_their_own(kinds: int) -> None:
    """Runs of keys are anchors there: 50 are lost early, and 7 others come late."""
    rng = Random(1)
    a = [rng.randrange(kinds) for _ in range(20_000)]
    b = a[:2000] + a[2050:17_000] + [rng.randrange(kinds) for _ in range(7)] + a[17_000:]
    pairs = pairs_of(a, b)
    assert len(pairs) >= len(a) - 50
    assert all(a[i] == b[j] for i, j in pairs)


@given(st.lists(st.integers(0, 40), max_size=30), st.lists(st.integers(0, 40), max_size=30))
def test_what_lies_between_pairs_is_aligned_by_less(a: list[int], b: list[int]) -> None:
    """Pairs of the whole stay, and what is alone between two of them is paired if the last digit is the same."""
    whole = align(np.array(a, np.uint64), np.array(b, np.uint64))
    less_a, less_b = np.array(a, np.uint64) % 10, np.array(b, np.uint64) % 10
    pairs = [tuple(pair) for pair in refined(whole, less_a, less_b).tolist()]
    assert {tuple(pair) for pair in whole.tolist()} <= set(pairs)
    assert all(a[i] % 10 == b[j] % 10 for i, j in pairs)
    for (i, j), (k, m) in itertools.pairwise([(-1, -1), *pairs, (len(a), len(b))]):
        assert i < k
        assert j < m
        if k - i == m - j == 2:
            assert a[i + 1] % 10 != b[j + 1] % 10


def test_a_part_without_addresses_is_found_in_the_whole(tmp_path: Path) -> None:
    """What it moved tells where it belongs, though hardly any other thing is known of a transaction."""
    whole = TRACES / "nic_g_a" / "control16.sr"
    part = str(tmp_path / "part.sr")
    assert main(["cut", str(whole), "--from", "300us", "--to", "600us", "-o", part]) == 0
    found = compare(pcitrace.open(whole)["A"], pcitrace.open(part)["A"])
    assert (found.inserted, found.changed) == ([], [])
    assert 800 < len(found.missing) < 877


def test_a_capture_equals_itself_and_its_analyser_capture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(SEQ6), str(SEQ6)]) == 0
    assert capsys.readouterr().out.startswith("equal: ")
    assert main(["diff", str(SEQ6), str(SEQ6), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"equal": True, "first": None, "inserted": [], "missing": [], "changed": []}


def test_other_lines_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(SEQ6), str(SEQ6.with_name("ctl_250MSs.sr"))]) == 3
    assert "AD (AD0) was not captured" in capsys.readouterr().err


def drawn(seed: int, count: int = 40) -> list[Transaction]:
    """Transactions that move data, all with an address of their own."""
    rng = Random(seed)
    found: list[Transaction] = []
    while len(found) < count:
        one = transaction(rng, rng)
        if one.phases and one.ending == "completion" and one.wide == "no":
            found.append(replace(one, address=one.address & ~0xFFC | len(found) << 4, bad_address_parity=False))
    return found


def bus_of(path: Path, transactions: list[Transaction]) -> pcitrace.Bus:
    """Their capture, by an analyser clocked by the bus."""
    traffic = drive(transactions, Random(1), parked=False)
    return pcitrace.open(write_sr(path, state_mode(wires(traffic.clocks))), clock_mhz=33.0).bus


@pytest.mark.parametrize("seed", range(4))
def test_what_was_changed_is_what_is_found(seed: int, tmp_path: Path) -> None:
    before = drawn(seed)
    a = bus_of(tmp_path / "a.sr", before)
    assert compare(a, bus_of(tmp_path / "same.sr", before)).equal
    lost = bus_of(tmp_path / "lost.sr", before[:7] + before[8:])
    found = compare(a, lost)
    assert [row["transaction"] for row in found.missing] == [7]
    assert (found.inserted, found.first["what"], found.first["b"]) == ([], ["missing"], None)
    back = compare(lost, a)
    assert [row["transaction"] for row in back.inserted] == [7]
    assert (back.missing, back.first["what"]) == ([], ["inserted"])
    phase = before[11].phases[0]
    waits = [*before[11].phases[1:]]
    slow = replace(before[11], phases=[replace(phase, target_waits=phase.target_waits + 2), *waits])
    found = compare(a, bus_of(tmp_path / "slow.sr", [*before[:11], slow, *before[12:]]))
    assert [(row["a"]["transaction"], row["what"]) for row in found.changed] == [(11, ["waits"])]
    assert compare(a, bus_of(tmp_path / "slow.sr", [*before[:11], slow, *before[12:]]), ignore_time=True).equal
    other = replace(before[11], phases=[replace(phase, data=phase.data ^ 0xFFFFFFFF, enables=0), *waits])
    found = compare(a, bus_of(tmp_path / "data.sr", [*before[:11], other, *before[12:]]))
    assert [(row["a"]["transaction"], row["what"]) for row in found.changed] == [(11, ["data"])]
    seen = found.changed[0]["phase"]
    assert (seen["number"], seen["b"]) == (0, {"data": phase.data ^ 0xFFFFFFFF, "byte_enables": 0})
    assert seen["a"]["byte_enables"] == phase.enables
    assert found.first == found.changed[0]
    address = before[11].address
    assert compare(
        a, bus_of(tmp_path / "data.sr", [*before[:11], other, *before[12:]]), masks=[(address, address)]
    ).equal


def write(address: int, data: list[int], ending: str = "completion") -> Transaction:
    """A write to memory; disconnected without data before the last word of `data`."""
    phases = [Phase(0, 0, one, 0) for one in data]
    return replace(PLAIN, address=address, phases=phases, ending=ending, burst=ending != "completion")


def test_what_only_time_decides(tmp_path: Path) -> None:
    """A burst that the target cut twice, and retried, is the burst."""
    whole = bus_of(tmp_path / "a.sr", [write(0x1000, [1, 2, 3, 4, 5]), write(0x2000, [6])])
    again = [write(0x1000, [1, 2], "disconnect_a"), write(0x1008, [3, 4, 0], "disconnect_without_data")]
    cut = [*again, write(0x1010, [5], "retry"), write(0x1010, [5]), write(0x2000, [6])]
    assert compare(whole, bus_of(tmp_path / "cut.sr", cut), ignore_time=True).equal
    assert not compare(whole, bus_of(tmp_path / "cut.sr", cut)).equal
    other = compare(whole, bus_of(tmp_path / "o.sr", [again[0], write(0x1008, [3, 9, 5]), cut[-1]]), ignore_time=True)
    [changed] = other.changed
    assert changed["phase"] == {"number": 3, "a": word(4), "b": word(9)}
    assert [changed[side]["bytes"] for side in "ab"] == [20, 20]
    short = compare(whole, bus_of(tmp_path / "s.sr", [again[0], cut[-1]]), ignore_time=True)
    assert [row["phase"] for row in short.changed] == [{"number": 2, "a": word(3), "b": None}]


def word(data: int) -> dict[str, int]:
    return {"data": data, "byte_enables": 0}


def test_text_says_what_was_and_what_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bus_of(tmp_path / "a.sr", [write(0x1000, [1, 2, 3]), write(0x2000, [6]), write(0x3000, [7, 8])])
    slow = replace(write(0x3000, [7, 8]), devsel=2)
    masked = replace(write(0x1000, [1, 2, 3]), phases=[Phase(0, 0, 1, 0), Phase(0, 0, 2, 0b1010), Phase(0, 0, 3, 0)])
    bus_of(tmp_path / "b.sr", [masked, write(0x2000, [6, 9]), slow])
    assert main(["diff", str(tmp_path / "a.sr"), str(tmp_path / "b.sr"), "--clock-mhz", "33"]) == 1
    shown = capsys.readouterr().out
    assert "first: data phase 1: 00000002 -> ..00..02\n" in shown
    assert "  data phases 1 -> 2\n" in shown
    assert "DEVSEL# after 1 -> 2 clocks" in shown
    assert "memory write 00001000  12 bytes  " in shown


def test_text_json_and_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = drawn(9)
    bus_of(tmp_path / "a.sr", before)
    bus_of(tmp_path / "b.sr", before[:7] + before[8:])
    arguments = ["diff", str(tmp_path / "a.sr"), str(tmp_path / "b.sr"), "--clock-mhz", "33"]
    assert main(arguments) == 1
    assert capsys.readouterr().out.startswith("1 missing, 0 inserted, 0 changed\nfirst: missing\n")
    assert main([*arguments, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"equal", "first", "inserted", "missing", "changed"}
    assert (told["equal"], [row["transaction"] for row in told["missing"]]) == (False, [7])
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--mask", "7-3"])
    assert stop.value.code == 2


def test_both_captures_are_read_as_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A VCD without a time unit is compared with itself, given one."""
    text = gzip.decompress((TRACES / "blue33_seq1" / "bus.vcd.gz").read_bytes()).decode()
    path = tmp_path / "unit.vcd"
    path.write_text(re.sub(r"\$timescale.*?\$end", "", text, count=1, flags=re.DOTALL))
    assert main(["diff", str(path), str(path), "--timescale", "1 ps", "--threads", "1"]) == 0
    assert capsys.readouterr().out.startswith("equal")


def test_both_captures_may_be_raw_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second has its channels in another order, or in a wider unit."""
    lines = ["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#"]
    words = [0b111110, 0b111100, 0b100000, 0b000000, 0b111110, 0b111110]  # one read of one dword
    clocks = [word | high for word in [0b111110] * 3 + words * 4 for high in (0, 0, 1, 1)]
    (tmp_path / "a.bin").write_bytes(bytes(clocks))
    (tmp_path / "same.bin").write_bytes(b"".join(word.to_bytes(2, "little") for word in clocks))
    (tmp_path / "turned.bin").write_bytes(
        bytes(sum((word >> bit & 1) << 5 - bit for bit in range(6)) for word in clocks)
    )
    one = ["diff", str(tmp_path / "a.bin"), "--format", "binary", "--channels", ",".join(lines), "--rate", "100e6"]
    raw = [*one, "--other-format", "binary"]
    assert main([*raw, str(tmp_path / "a.bin")]) == 0
    assert main([*raw, str(tmp_path / "same.bin"), "--other-unit-size", "2"]) == 0
    assert main([*raw, str(tmp_path / "turned.bin"), "--other-channels", ",".join(reversed(lines))]) == 0
    assert main([*raw, str(tmp_path / "turned.bin")]) != 0
    assert main([*raw, str(tmp_path / "a.bin"), "--other-rate", "50e6"]) == 0
    capsys.readouterr()
    for wrong in (["--other-channels", "CLK"], ["--other-unit-size", "2"]):
        with pytest.raises(SystemExit) as stop:
            main([*one, str(tmp_path / "a.bin"), *wrong])
        assert stop.value.code == 2
    with pytest.raises(SystemExit) as stop:
        main(["diff", str(SEQ6), str(tmp_path / "a.bin"), "--other-format", "binary"])
    assert stop.value.code == 2
    assert "needs --other-channels" in capsys.readouterr().err
