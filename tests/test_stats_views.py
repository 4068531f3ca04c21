"""The views of ``pcitrace stats``, traffic of a bare capture with several GNT#, and whose a stream's violations are."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

import pcitrace
from pcitrace.cli import main, text
from pcitrace.cli.statslines import view_lines
from pcitrace.instrument.burstlengths import burst_lengths, logical
from pcitrace.instrument.judged import check, check_stream
from pcitrace.instrument.latencies import KINDS
from pcitrace.instrument.views import terminations
from pcitrace.schema import Termination

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
SEQ6 = FIXTURES / "traces" / "blue33_seq6" / "bus.vcd.gz"
RETRY = FIXTURES / "faults" / "endless-retry.sr"
PARITY = FIXTURES / "faults" / "bad-parity.sr"


def printed(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    assert main([str(one) for one in args]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("options", [(), ("--top", "12", "--by", "bytes"), ("--window-us", "100")])
def test_it_fits_100_columns(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "stats", SEQ6, *options).splitlines()
    assert max(map(len, lines)) <= 100
    for title in ("initiator ", "target ", "command ", "address window", "ended, at target", "latency us",
                  "latency clocks", "bursts of", "waits of", "retried", "over time"):  # fmt: skip
        assert any(line.startswith(f"  {title}") for line in lines), title


def test_no_column_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """All six latencies, and more kinds of endings than there is room for."""
    told = {
        "views": {"initiators": [], "targets": [], "commands": [], "places": [], "slowest": []},
        "terminations_by": {"initiators": {"a": dict(zip(Termination, range(10, 19), strict=True))}, "targets": {}},
        "latency_us": {kind: {"n": 0} for kind in KINDS},
        "latency_histogram": [{"from_clks": 1, "to_clks": 2, **dict.fromkeys(KINDS, 1234567)}],
        "burst_lengths": [],
        "waits": {"pairs": [], "held_up": None},
        "delayed": None,
    }
    lines = view_lines(told, 10, False)
    [counts] = [line for line in lines if line.startswith("    1 to 2")]
    assert counts.count("1234567") == len(KINDS)
    ended = [line.split()[1:] for line in lines if line.startswith("    a ")]
    assert sum(map(int, [count for counts in ended for count in counts])) == sum(range(10, 19))
    assert max(map(len, lines)) <= 100


def test_endings_come_in_one_order() -> None:
    """Threads grouped them, and which came first was chance: a pipe printed other bytes than its file, 1 time in 75."""
    ended = [one.value for one in Termination]
    parts = [
        pa.table({"initiator_name": ["a"] * 900, "target": ["b"] * 900, "termination": 100 * (ended[n:] + ended[:n])})
        for n in range(len(ended))
    ]
    whole = pa.concat_tables(parts)
    assert len({json.dumps(terminations(whole)) for _ in range(300)}) == 1


def test_what_is_as_much_comes_by_its_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, "stats", SEQ6, "--json", "--by", "retries"))
    for view in ("commands", "places", "initiators"):
        [rows] = [bus["views"][view] for bus in told.values()]
        order = [(-(one["retries"] or 0), -one["clocks"]) for one in rows]
        assert len(order) > len({first for first, _ in order}) or view == "initiators"
        assert order == sorted(order)


@pytest.mark.parametrize("columns", [60, 80, 97])
def test_a_narrow_terminal_gets_the_same_numbers(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no room beside the others follows below, behind the same names; nothing is cut."""
    rows = [("memory_read_line", *range(1000, 1008)), ("memory_read_multiple", *range(2000, 2008)), ("a", *range(8))]
    heads = [f"column {n}" for n in range(8)]
    whole = list(text.table("command", heads, rows))
    monkeypatch.setattr(text, "width", lambda: columns)
    narrow = list(text.table("command", heads, rows))
    assert max(map(len, narrow)) <= columns
    assert len(whole) == len(rows) + 1
    assert (len(narrow) > len(whole)) == (columns < 97)
    for n, row in enumerate(rows, 1):
        shown = [line.split() for line in narrow[n :: len(rows) + 1]]
        assert [int(cell) for cells in shown for cell in cells[1:]] == list(row[1:])
        assert {cells[0][:3] for cells in shown} <= {row[0][:3]}
    # Names that have to be cut are still different.
    assert len({line.split()[0] for line in narrow[1 : len(rows) + 1]}) == len(rows)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(171_312.4, "171,300"), (2_449_789, "2,450,000"), (1e12, "1,000,000,000,000"), (9999.4, "9999"), (0.05, "0.05"),
     (0, "0"), (31.5567, "31.56"), (None, "unknown")],
)  # fmt: skip
def test_numbers_are_written_as_people_do(value: float | None, shown: str) -> None:
    assert text.number(value) == shown


def test_a_share_is_not_torn(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "stats", SEQ6.parents[1] / "nic_g_a" / "control16.sr").splitlines()
    assert not any(line.lstrip().startswith("%") for line in lines)


@pytest.mark.parametrize(
    ("small", "large"), [(1.5e-1, 12), (0.00003971, 123_456_789), (0.0009932, 98_765_432_109), (1.234567e-9, 10**14)]
)
def test_no_two_numbers_run_together(small: float, large: int) -> None:
    row = {"name": "config_read", "transactions": 3, "throughput_mb_s": small, "utilisation": small / 100}
    row |= {"efficiency": small, **dict.fromkeys(("bytes", "clocks", "wait_clks", "retries"), large)}
    told = {
        "views": {"initiators": [], "targets": [], "commands": [row], "places": [], "slowest": []},
        "terminations_by": {"initiators": {}, "targets": {}},
        "latency_us": {},
        "latency_histogram": [],
        "burst_lengths": [],
        "waits": {"pairs": [], "held_up": None},
        "delayed": None,
    }
    shown = [line.replace(" %", "").split() for line in view_lines(told, 10, False) if line.startswith("    ")]
    assert {name for name, *_ in shown} <= {"config_read", "con...read"}
    numbers = [number.replace(",", "") for _, *numbers in shown for number in numbers]
    wanted = (3, large, small, large, small, 100 * small, large, large)
    assert [float(number) for number in numbers] == [pytest.approx(one, rel=0.01) for one in wanted]


def test_views_account_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, "stats", SEQ6, "--json"))["pci"]
    for view in ("initiators", "targets", "commands", "places", "terminations"):
        rows = told["views"][view]
        assert sum(one["transactions"] for one in rows) == told["transactions"]
        assert sum(one["clocks"] for one in rows) == told["clocks"]["busy"]
        assert sum(one["bytes"] for one in rows) == told["clocks"]["bytes"]
    assert sum(one["utilisation"] for one in told["views"]["initiators"]) == pytest.approx(told["clocks"]["occupancy"])
    for kind in ("first_data", "next_data", "acquisition"):
        assert sum(row[kind] for row in told["latency_histogram"]) == told["latency_us"][kind]["n"]
    by_target = [sum(ended.values()) for ended in told["terminations_by"]["targets"].values()]
    assert sum(by_target) == sum(one["transactions"] for one in told["views"]["targets"] if one["name"] is not None)
    pairs = told["waits"]["pairs"]
    assert sum(one["transactions"] for one in pairs) == told["transactions"]
    assert {(one["waiting"], one["for"]) for one in told["waits"]["held_up"]} == {
        ("GNT0#", "GNT1#"),
        ("GNT1#", "GNT0#"),
    }


def test_configuration_is_no_address_window(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, "stats", SEQ6, "--json"))["pci"]
    of_config = [one for one in told["views"]["places"] if one["name"] and one["name"].endswith(" configuration")]
    commands = {one["name"]: one["transactions"] for one in told["views"]["commands"]}
    assert sum(one["transactions"] for one in of_config) == commands["config_read"] + commands["config_write"]
    [nowhere] = [one for one in told["views"]["places"] if one["name"] is None]
    assert nowhere["transactions"] == commands["special_cycle"] + commands["interrupt_acknowledge"]


def test_bursts_equal_a_slow_count() -> None:
    table = pcitrace.open(SEQ6).bus.arrow("transactions")
    wanted, last = [], {}
    for row in table.to_pylist():
        if not row["data_phases"]:
            continue
        key, write = row["initiator"], row["command"] in (3, 7, 11, 15)
        before = last.get(key)
        goes_on = before is not None and (before["write"], before["next"]) == (write, row["address"]) and before["cut"]
        if goes_on:
            wanted[before["at"]] += row["bytes"]
        else:
            wanted.append(row["bytes"])
        last[key] = {
            "write": write, "cut": row["termination"].startswith("disconnect"),
            "next": (row["address"] & ~3) + 4 * row["data_phases"],
            "at": before["at"] if goes_on else len(wanted) - 1,
        }  # fmt: skip
    assert sorted(logical(table)[1].tolist()) == sorted(wanted)
    rows = burst_lengths(table)
    assert sum(row["logical_bytes"] for row in rows) == len(wanted)
    for row in rows:
        assert row["bytes"] == sum(
            row["from"] <= one["bytes"] <= row["to"] and one["data_phases"] > 0 for one in table.to_pylist()
        )


def test_a_retried_access_and_what_went_on_between(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, "stats", RETRY, "--json"))
    [delayed] = [bus["delayed"] for bus in told.values()]
    assert (delayed["accesses"], delayed["never_completed"], delayed["completed"]) == (1, 1, 0)
    [longest] = delayed["longest"]
    assert longest["attempts"] == delayed["attempts"] >= 100
    assert (longest["outcome"], longest["changed"], longest["took_us"]) == ("never_completed", False, None)
    assert (longest["initiator"], longest["target"]) == ("host", "eth0")


@pytest.mark.parametrize("command", ["bursts", "csr"])
def test_several_grants_are_no_dead_end(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each agent has its traffic; whom --grant names alone, what else is the host's."""
    each = printed(capsys, command, SEQ6)
    buses = {line.split(",")[0] for line in each.splitlines()[1:]}
    assert buses <= {'"pci GNT0#"', '"pci GNT1#"'}
    assert buses or command == "csr"
    if command == "bursts":
        # The agents of this bench configure each other: that is no DMA.
        moved = pcitrace.open(SEQ6).bus.where("command in (config_read, config_write)")["start_us"]
        assert len(moved)
        assert not {float(line.split(",")[2]) for line in each.splitlines()[1:]} & set(moved)
    named = printed(capsys, command, SEQ6, "--grant", "card=GNT1#", "--grant", "host=GNT0#").splitlines()[1:]
    assert {line.split(",")[0] for line in named} == {'"pci"'}
    assert main([command, str(SEQ6), "--grant", "card=GNT9#"]) == 3
    assert "GNT9# was not captured" in capsys.readouterr().err


def test_clocks_choose_csr_accesses(capsys: pytest.CaptureFixture[str]) -> None:
    nic = FIXTURES / "traces" / "nic_g_a" / "bus.vcd.gz"
    rows = printed(capsys, "csr", nic, "--bus", "A").splitlines()[1:]
    clocks = dict(pcitrace.open(nic)["A"].transactions[["start_us", "start_clk"]].itertuples(index=False))
    starts = [float(row.split(",")[1]) for row in rows]
    wanted = [row for row, at in zip(rows, starts, strict=True) if 3000 <= clocks[at] < 6000]
    got = printed(capsys, "csr", nic, "--bus", "A", "--from", "3000clk", "--to", "6000clk").splitlines()[1:]
    assert got == wanted
    assert got


@pytest.mark.parametrize("size", [4099, 1 << 20])
def test_a_stream_says_whose_violations_are(size: int) -> None:
    """As `check` of the same file says it."""
    capture = pcitrace.open(PARITY)
    bus = capture.bus
    channels = list(capture.captures[0].channels)
    data = bytes(samples_of(PARITY))
    live = pcitrace.stream(channels, capture.captures[0].rate_hz, rules=True, bus_mhz=33)
    for start in range(0, len(data), size):
        live.feed(data[start : start + size])
    live.finish()
    [found] = check_stream(live).values()
    wanted = {one.rule.id: one for one in check(bus) if one.state == "violated"}
    got = {one.rule.id: one for one in found if one.state == "violated"}
    assert got.keys() == wanted.keys()
    seen = defaultdict(list)
    for id, one in got.items():
        assert [place.transaction for place in one.first] == [place.transaction for place in wanted[id].first]
        seen[id] += [place.initiator for place in one.first]
    assert all(name is not None for names in seen.values() for name in names)


def samples_of(path: Path) -> bytes:
    """All samples of a session, one after the other."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        parts = [name for name in archive.namelist() if name.startswith("logic-1")]
        return b"".join(archive.read(name) for name in sorted(parts, key=lambda name: int(name.rsplit("-", 1)[1])))
