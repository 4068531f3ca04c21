"""Sequences of transactions: equal to a slow search, and what the words of a step mean."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st

import pcitrace
from pcitrace.cli import main
from pcitrace.errors import ConditionError
from pcitrace.instrument.search import sequences
from pcitrace.instrument.steps import step

NIC = REPOSITORY / "fixtures" / "traces" / "nic_g_a" / "bus.vcd.gz"
CONTROL = NIC.with_name("control16.sr")


def slowly(fulfilled: list[list[bool]], start_us: list[float], within_us: list[float | None]) -> list[list[int]]:
    """Every first row, and the earliest rows after it that fulfil the rest: tried one by one."""

    def rest(steps: int, row: int) -> list[int] | None:
        if steps == len(fulfilled):
            return []
        for after in range(row + 1, len(start_us)):
            limit = within_us[steps]
            if limit is not None and start_us[after] - start_us[row] > limit:
                return None
            if fulfilled[steps][after] and (found := rest(steps + 1, after)) is not None:
                return [after, *found]
        return None

    firsts = [row for row, one in enumerate(fulfilled[0]) if one]
    return [[row, *found] for row in firsts if (found := rest(1, row)) is not None]


@given(
    st.lists(st.tuples(st.integers(0, 6), *[st.booleans()] * 4), max_size=25),
    st.lists(st.none() | st.integers(0, 12), min_size=1, max_size=4),
)
def test_sequences_equal_a_slow_search(
    rows: list[tuple[int, bool, bool, bool, bool]], within: list[int | None]
) -> None:
    start_us = np.cumsum([row[0] for row in rows], dtype=float)
    fulfilled = [[row[1 + n] for row in rows] for n in range(len(within))]
    limits = [None if one is None else float(one) for one in within]
    found = sequences([np.array(one, dtype=bool) for one in fulfilled], start_us, limits)
    assert found.reshape(-1, len(within)).tolist() == slowly(fulfilled, start_us.tolist(), limits)


def test_doorbell_to_dma() -> None:
    bus = pcitrace.open(NIC)["A"]
    found = bus.find("write BAR0+0x2c", "dma read within 5us")
    rows = bus.transactions.set_index("transaction")
    assert len(found) > 50
    for match in found.as_list():
        first, second = (rows.loc[number] for number in match["parts"])
        assert (first["address"], first["command_name"]) == (0xE800002C, "memory_write")
        assert second["command_name"].startswith("memory_read")
        assert second["initiator"] == "GNT_NIC#"
        assert match["start_us"] == first["start_us"]
        assert match["times_us"] == [round(second["start_us"] - first["start_us"], 6)]
        assert match["times_us"][0] <= 5
    counts, edges = found.histogram(1)
    assert counts.sum() == len(found)
    assert edges[0] == found.times_us.min()


def test_words_and_conditions_say_the_same() -> None:
    bus = pcitrace.open(NIC)["A"]
    for words, condition in (
        ("config write", "command == config_write"),
        ("memory_read", "command == 6"),
        ("disconnect_with_data", "termination == 'disconnect_with_data'"),
        ("write eth0", "target == 'eth0' and command in (memory_write, config_write)"),
        ("eth0.BAR0+0x10", "address == 0xe8000010"),
        ("0xe8000010 read", "address == 0xe8000010 and command == memory_read"),
    ):
        assert bus.find(words).transactions.tolist() == bus.find(condition).transactions.tolist(), words
        assert len(bus.find(words)) > 1


def test_an_address_is_a_word_as_the_listing_writes_it() -> None:
    for written, address in (("e8000018", 0xE8000018), ("00100000", 0x100000), ("0000000100000010", 0x100000010)):
        assert step(f"write {written}").condition.text == step(f"write 0x{address:x}").condition.text
    with pytest.raises(ConditionError):
        step("write 100000")


def test_json_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["find", str(NIC), "--bus", "A", "write BAR0+0x2c", "dma read within 5us"]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == pcitrace.open(NIC)["A"].find(*arguments[-2:]).as_list()
    # Times to the ps, without the digits that the difference of two floats makes up.
    assert all(time == round(time, 6) for one in told for time in one["times_us"])
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert f"bus A: {len(told)} matches" in text
    assert "times to 'dma read within 5us'" in text


def test_where_nothing_matches_each_step_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", str(NIC), "--bus", "A", "config_write", "config_read within 1ns"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "bus A: 0 matches",
        "  'config_write' alone: 3 transactions",
        "  'config_read within 1ns' alone: 3 transactions",
    ]


def test_control_lines_know_no_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", str(CONTROL), "--bus", "A", "clocks > 3", "initiator == 'GNT_NIC#' within 2us"]) == 0
    assert "matches" in capsys.readouterr().out
    assert main(["find", str(CONTROL), "--bus", "A", "write BAR0+0x10"]) == 3
    assert "cannot be told without AD and C/BE#" in capsys.readouterr().err


def test_what_is_known_of_no_transaction_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", str(CONTROL), "--bus", "A", "read", "wait_clks >= 0"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "  'read' alone: 0 transactions; command: not known of any transaction"
    assert "known" not in told[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("writ BAR0", "'writ' is none of the words read, write, config"),
        ("write BAR9", "'BAR9' is none of the words"),
        ("write 00:09.0.BAR0+0x18", r"'00:09.0.BAR0\+0x18' is none of the words"),
        ("read f2:0c.0", "'f2:0c.0' is none of the words"),
        ("read within", "is none of the words"),
        ("read within 5clk", "no length of time"),
        ("bytes >", "no condition on transactions"),
        ("nonsense", "there is no column 'nonsense'"),
    ],
)
def test_what_is_no_step_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        step(text)


def test_a_search_needs_a_step() -> None:
    with pytest.raises(ConditionError, match="needs a step"):
        pcitrace.open(NIC)["A"].find()


def test_registers_of_a_profile_are_words(tmp_path: Path) -> None:
    file = tmp_path / "card.toml"
    file.write_text(
        'format = 1\n[[windows]]\nname = "csr"\nbar = 0\nsize_bytes = 256\n'
        '[[registers]]\nname = "DOORBELL"\noffset = 0x2c\n'
    )
    from pcitrace.instrument.registers import Registers
    from pcitrace.instrument.search import find

    bus = pcitrace.open(NIC)["A"]
    found = find(bus, ["write DOORBELL"], registers=Registers.load(None, [str(file)]))
    assert found.transactions.tolist() == bus.find("write BAR0+0x2c").transactions.tolist()


def test_the_first_step_is_within_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", str(NIC), "--bus", "A", "write within 5us", "read"]) == 3
    assert "'write within 5us' is the first" in capsys.readouterr().err


def test_exactly_so_long_is_within() -> None:
    """The clock has 30 ns, so many times are exactly as long as a limit that people write."""
    bus = pcitrace.open(NIC)["A"]
    rows = bus.transactions
    for clocks in (5, 7, 9, 11, 13):
        found = bus.find("command is not None", f"command is not None within {30 * clocks}ns")
        after = rows["start_clk"].diff().iloc[1:]
        assert len(found) == (after <= clocks).sum()


def test_times_that_are_all_the_same_are_one_bin(capsys: pytest.CaptureFixture[str]) -> None:
    capture = str(REPOSITORY / "fixtures" / "faults" / "missing-turnaround.sr")
    found = pcitrace.open(capture).bus.find("0xe8000008", "read BAR0+0x14 within 1us")
    assert len(found) == 1
    counts, edges = found.histogram(1)
    assert (counts.tolist(), edges.tolist()) == ([len(found)], [found.times_us.min(), found.times_us.max()])
    assert main(["find", capture, "0xe8000008", "read BAR0+0x14 within 1us"]) == 0
    assert "-" not in capsys.readouterr().out.split("times to")[1]


def test_beside_config_a_register_of_configuration_is_meant() -> None:
    """Not the window that it places: `config write BAR0` and `write BAR0`."""
    bus = pcitrace.open(REPOSITORY / "fixtures" / "faults" / "missing-turnaround.sr").bus
    rows = bus.transactions
    writes = [n for n, row in rows.iterrows() if row["command_name"] == "config_write" and row["address"] % 256 == 0x10]
    assert len(writes) == 2
    assert bus.find("config write BAR0").transactions[:, 0].tolist() == writes
    assert bus.find("config_write eth0.BAR0").transactions[:, 0].tolist() == writes
    assert bus.find("config write BAR1").transactions[:, 0].tolist() == []
    assert bus.find("register == 'command/status'").transactions[:, 0].tolist() == [8]
    windows = bus.find("write BAR0").transactions[:, 0]
    assert len(windows) > 2
    assert set(rows.loc[windows, "command_name"]) == {"memory_write"}
