"""The rules: against a slow oracle on legal and broken traffic, on clean traces, and on single faults."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from random import Random

import buses
import numpy as np
import oracle
import pyarrow as pa
import pytest
import rule_oracle
import rule_traffic
import slow_vcd
import waveforms
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_oracle import Clk

import pcitrace
from pcitrace import _kernel
from pcitrace.cli import main
from pcitrace.errors import ConfigurationError, DecodeError
from pcitrace.instrument import rules
from pcitrace.instrument.causes import Look
from pcitrace.instrument.judged import Judged, check, check_stream
from pcitrace.instrument.judging import not_kept
from pcitrace.wiring import resolve_wiring

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "traces"
ORACLE = {
    *(f"M{n:02}" for n in range(1, 23) if n != 17), *(f"T{n:02}" for n in range(1, 16)), "A01", "A02", "A03", "A06",
    "P01", "P02", "P03", "P04", "P05", "W01", "W02", "L01", "L02",
}  # fmt: skip
AGENTS = rule_traffic.AGENTS


def judged(path: Path, bus: str | None = None, **options: object) -> Counter:
    """Rule and clock of every violation that the kernel finds."""
    capture = _kernel.open(str(path))
    stated = {"clock_mhz": options["clock_mhz"]} if "clock_mhz" in options else None
    spec = resolve_wiring(capture.channels, stated).bus(bus).spec()
    [decoded] = _kernel.decode(capture, [spec], rules=sorted(rules.catalogue()), **options)
    table = pa.table(decoded.violations)
    return Counter(zip(table["rule"].to_pylist(), table["clk"].to_pylist(), strict=True))


def of_oracle(clocks: list[Clk]) -> Counter:
    return Counter(rule_oracle.violations(clocks))


def assert_equal(got: Counter, wanted: Counter) -> None:
    got = Counter({key: count for key, count in got.items() if key[0] in ORACLE})
    assert got.keys() == wanted.keys(), (
        f"only kernel {sorted(got - wanted)[:8]}, only oracle {sorted(wanted - got)[:8]}"
    )


def converted(clocks: list[oracle.Clock], rng: Random) -> list[Clk]:
    """Clocks of the decoder's tests, with the lines that only rules look at."""
    lock, found = False, []
    for c in clocks:
        lock = lock ^ (rng.random() < 0.05)
        found.append(
            Clk(
                f=c.frame == 0, i=c.irdy == 0, t=c.trdy == 0, s=c.stop == 0, d=c.devsel == 0, known=c.rst != 0,
                ad=c.ad, cbe=c.cbe, par=c.par, perr=c.perr == 0, serr=c.serr == 0, lock=lock, req64=c.req64 == 0,
                ack64=c.ack64 == 0, gnt=tuple(level == 0 for level in c.gnt),
                req=tuple(rng.random() < 0.5 for _ in c.gnt),
            )
        )  # fmt: skip
    return found


def test_the_catalogue_is_the_kernels() -> None:
    assert list(_kernel.RULES) == list(rules.catalogue())
    assert len(rules.catalogue()) == 53
    assert all(rule.section and rule.needs and rule.sentence.endswith(".") for rule in rules.catalogue().values())


@settings(max_examples=25)
@given(buses.legal(), st.integers(0, 2**32), st.integers(0, 12), st.booleans())
def test_kernel_equals_oracle(
    tmp_path_factory: pytest.TempPathFactory, traffic: buses.Traffic, seed: int, flips: int, timing: bool
) -> None:
    rng = Random(seed)
    clocks = converted(waveforms.settle(buses.disturb(traffic.clocks, rng, False, flips), rng), rng)
    if timing:
        clocks = [Clk(ad=0, cbe=0, par=0, gnt=(False,) * AGENTS, req=(False,) * AGENTS), *clocks]
    path = tmp_path_factory.getbasetemp() / "rules.sr"
    waveforms.write_sr(path, rule_traffic.sampled(clocks, rng if timing else None))
    assert_equal(judged(path) if timing else judged(path, clock_mhz=33.0), of_oracle(clocks))


def noise(rng: Random, count: int, sticky: float) -> list[Clk]:
    """Clocks with no protocol at all; a line keeps its level with this probability."""
    share = {line: rng.choice((0.1, 0.3, 0.5, 0.7)) for line in "fitsd"}
    lines = [*share, "ad", "cbe", "gnt", "req", "lock", "req64", "ack64"]

    def on(probability: float) -> bool:
        return rng.random() < probability

    clocks: list[Clk] = []
    for _ in range(count):
        clock = Clk(
            **{line: on(one) for line, one in share.items()}, known=not on(0.01),
            ad=rng.choice((0, 1, rng.getrandbits(32))),
            cbe=rng.choice((6, 7, 13, 13, 1, 0, 15, 12, rng.randrange(16))), par=rng.getrandbits(1), perr=on(0.2),
            serr=on(0.1), lock=on(0.3), req64=on(0.3), ack64=on(0.3), gnt=tuple(on(0.3) for _ in range(AGENTS)),
            req=tuple(on(0.5) for _ in range(AGENTS)),
        )  # fmt: skip
        for line in lines:
            if clocks and on(sticky):
                setattr(clock, line, getattr(clocks[-1], line))
        clocks.append(clock)
    return clocks


@pytest.mark.parametrize("seed", range(60))
def test_noise_equals_oracle(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    clocks = noise(rng, rng.randint(20, 400), rng.choice((0.0, 0.5, 0.8, 0.9)))
    path = waveforms.write_sr(tmp_path / "noise.sr", rule_traffic.sampled(clocks))
    assert_equal(judged(path, clock_mhz=33.0), of_oracle(clocks))


@pytest.mark.parametrize("seed", range(8))
def test_dense_traffic_equals_oracle(seed: int, tmp_path: Path) -> None:
    """Transactions with hardly a clock between them, now and then one line wrong."""
    rng = Random(seed)
    some = [buses.transaction(rng, rng) for _ in range(40)]
    for one in some:
        one.idle_before = rng.choice((0, 0, 0, 1))
    traffic = buses.drive(some, rng)
    clocks = converted(waveforms.settle(buses.disturb(traffic.clocks, rng, False, rng.choice((0, 3, 30))), rng), rng)
    path = waveforms.write_sr(tmp_path / "dense.sr", rule_traffic.sampled(clocks))
    assert_equal(judged(path, clock_mhz=33.0), of_oracle(clocks))


def blue(path: Path) -> list[Clk]:
    """Clocks of a blue* trace; undriven control lines are pulled up."""
    level = {"0": True, "1": False, "z": False}

    def number(value: str) -> int | None:
        return int(value, 2) if set(value) <= {"0", "1"} else None

    clocks = []
    for _, v in slow_vcd.edges(path, "CLK"):
        control = [level.get(v[name]) for name in ("FRAME", "IRDY", "TRDY", "STOP", "DEVSEL")]
        known = None not in control and v["RST"] != "0"
        f, i, t, s, d = (bool(one) for one in control)
        clocks.append(
            Clk(
                f, i, t, s, d, known, ad=number(v["AD"]), cbe=number(v["CBE"]), par=number(v["PAR"]),
                perr=level.get(v["PERR"]), serr=level.get(v["SERR"]), lock=bool(level.get(v["LOCK"])),
                gnt=tuple(level.get(bit) for bit in reversed(v["GNT"])),
                req=tuple(bool(level.get(bit)) for bit in reversed(v["REQ"])),
            )
        )  # fmt: skip
    return clocks


@pytest.mark.parametrize(("name", "count"), [("blue33_seq1", 2000), ("blue33_seq6", 12000)])
def test_traces_equal_oracle(name: str, count: int) -> None:
    """The first clocks of real traffic, with levels that are not known or not driven."""
    path = FIXTURES / name / "bus.vcd.gz"
    near = count - 10
    got = Counter({key: n for key, n in judged(path).items() if key[0] not in ("W01", "W02") and key[1] < near})
    wanted = of_oracle(blue(path)[:count])
    assert len(got) > 10
    assert_equal(got, Counter({key: n for key, n in wanted.items() if key[1] < near}))


def broken(path: Path, bus: str | None = None) -> set[str]:
    opened = pcitrace.open(path)
    return {one.rule.id for one in check(opened[bus] if bus else opened.bus) if one.state == "violated"}


def test_clean_traces_break_what_is_truly_there_only() -> None:
    """Masters of the test bench go on at once after a STOP#, and keep FRAME# and REQ# a clock too long.

    Its random mix makes bad parity, partial memory writes and invalidates, other I/O addresses on purpose. Cards and
    hosts break nothing.
    """
    stimulus = {"M18", "M19", "P01", "P02", "P03"}
    assert broken(FIXTURES / "blue33_seq1" / "bus.vcd.gz") == {"M12", "P01", "P02", "P03"}
    assert broken(FIXTURES / "blue33_seq6" / "bus.vcd.gz") == {"M10", "M12", "M16"} | stimulus
    for bus in ("A", "B"):
        assert broken(FIXTURES / "nic_g_a" / "bus.vcd.gz", bus) == set()
        assert broken(FIXTURES / "nic_g_a" / "control16.sr", bus) == set()


def test_every_capture_of_a_run_says_the_same() -> None:
    """The analyser's captures have fewer lines; what they can evaluate they count alike."""
    counts = []
    for file in ("bus.vcd.gz", "ctl_100MSs.sr", "ctl_250MSs.sr"):
        found = check(pcitrace.open(FIXTURES / "blue33_seq6" / file).bus)
        counts.append({one.rule.id: one.count for one in found if one.state != "not_evaluated"})
    for fewer in counts[1:]:
        assert len(fewer) > 25
        same = {id for id in fewer if id not in ("E01", "M16")}
        assert {id: fewer[id] for id in same} == {id: counts[0][id] for id in same}


def test_the_clean_traffic_is_clean(tmp_path: Path) -> None:
    clocks = rule_traffic.clean().finish()
    path = waveforms.write_sr(tmp_path / "clean.sr", rule_traffic.sampled(clocks))
    assert judged(path, clock_mhz=33.0) == Counter()
    assert of_oracle(clocks) == Counter()


@pytest.mark.parametrize("rule", rule_traffic.FAULTS)
def test_a_single_fault_is_found(rule: str, tmp_path: Path) -> None:
    edit, implied = rule_traffic.FAULTS[rule]
    bus = rule_traffic.clean()
    clocks = bus.finish()
    edit(clocks, bus.marks)
    found = judged(waveforms.write_sr(tmp_path / "fault.sr", rule_traffic.sampled(clocks)), clock_mhz=33.0)
    ids = {id for id, _ in found}
    assert rule in ids
    assert ids <= {rule} | implied


@pytest.mark.parametrize("quiet", [12, 57, 58, 59, 60, 61])
def test_the_message_of_a_special_cycle_has_parity(quiet: int, tmp_path: Path) -> None:
    """It is data of a write, and what is wrong with it SERR# reports; wherever the clocks are cut into words."""
    bus = rule_traffic.Traffic()
    bus.idle(quiet)
    bus.put("special", 0x1, 0, devsel=None)
    bus.idle(20)
    clocks = bus.finish()
    first = next(n for n, clock in enumerate(clocks) if clock.i)
    clocks[first].ad ^= 1 << 20
    clocks[first + 2].serr = True
    found = judged(waveforms.write_sr(tmp_path / "bad.sr", rule_traffic.sampled(clocks)), clock_mhz=33.0)
    assert found == Counter({("P02", first): 1})
    assert_equal(found, of_oracle(clocks))
    clocks[first].ad ^= 1 << 20
    found = judged(waveforms.write_sr(tmp_path / "good.sr", rule_traffic.sampled(clocks)), clock_mhz=33.0)
    assert found == Counter({("P05", first + 2): 1})
    assert_equal(found, of_oracle(clocks))


@pytest.mark.parametrize("line", ["f", "i"])
def test_what_changes_as_the_target_answers_is_no_master_abort(line: str, tmp_path: Path) -> None:
    """M05 and M06 from the clock on in which DEVSEL# is first seen."""
    bus = rule_traffic.Traffic()
    bus.put("write", 0x7, 0x2000, 3, devsel=2, initiator_waits=0, target_waits=2)
    clocks = bus.finish()
    at = next(n for n, clock in enumerate(clocks) if clock.d)
    assert (clocks[at - 1].i, clocks[at].i, clocks[at].f, clocks[at].t) == (True, True, True, False)
    setattr(clocks[at], line, False)
    found = judged(waveforms.write_sr(tmp_path / "early.sr", rule_traffic.sampled(clocks)), clock_mhz=33.0)
    assert ("M05" if line == "f" else "M06", at) in found
    assert "M11" not in {rule for rule, _ in found}
    assert_equal(found, of_oracle(clocks))


def test_par_that_floats_in_a_turnaround_excuses_nobody(tmp_path: Path) -> None:
    """SERR# and PERR# need a cause where PAR was to be judged."""
    bus = rule_traffic.Traffic()
    bus.idle(12)
    bus.put("read", 0x6, 0x1000, 1, target_waits=4)
    clocks = bus.finish()
    at = bus.marks["read"] + 4
    clocks[at].serr = clocks[at].perr = True
    capture = rule_traffic.sampled(clocks, Random(1))
    each = len(capture.bits) // len(clocks)
    # What is driven after the address, the target does not drive yet.
    capture.bits[each * (at - 2) : each * (at - 1), capture.names.index("PAR")] = 3
    path = waveforms.write_vcd(tmp_path / "floats.vcd", waveforms.sampled_changes(capture, 10_000), tick_ps=10_000)
    assert judged(path) == Counter({("P04", at): 1, ("P05", at): 1})


@pytest.mark.parametrize("command", [0x6, 0xC, 0xE, 0x7, 0xF, 0xA])
def test_who_may_take_lock(command: int, tmp_path: Path) -> None:
    """L02: a memory read does, and who holds it goes on with any command; wherever the clocks are cut into words."""
    for quiet in range(130, 194, 3 if command != 0x6 else 1):
        bus = rule_traffic.Traffic()
        bus.idle(quiet)
        bus.put("taken", command, 0x2000, lock=True)
        held = bus.marks["taken"]
        bus.put("goes on", 0x7, 0x2000, lock=True)
        clocks = bus.finish()
        for n in range(held + 1, bus.marks["goes on"]):
            clocks[n].lock = True
        found = judged(waveforms.write_sr(tmp_path / "lock.sr", rule_traffic.sampled(clocks)), clock_mhz=33.0)
        assert {key for key in found if key[0] == "L02"} == (
            set() if command in (0x6, 0xC, 0xE) else {("L02", held + 1)}
        )
        assert_equal(found, of_oracle(clocks))


@pytest.mark.parametrize("command", [0x6, 0xC, 0xE, 0x7])
@pytest.mark.parametrize("after", [1, 2])
def test_lock_is_taken_after_either_address_phase_of_a_dual_address_cycle(
    after: int, command: int, tmp_path: Path
) -> None:
    for quiet in range(130, 194, 1 if command == 0x6 else 5):
        bus = rule_traffic.Traffic()
        bus.idle(quiet)
        bus.put("dual", command, 1 << 33 | 0x2000, 2, dual=True)
        clocks = bus.finish()
        first = bus.marks["dual"]
        ends = next(n for n in range(first + 1, len(clocks)) if not (clocks[n].f or clocks[n].i))
        for n in range(first + after, ends):
            clocks[n].lock = True
        found = judged(waveforms.write_sr(tmp_path / "lock.sr", rule_traffic.sampled(clocks)), clock_mhz=33.0)
        assert found == Counter({("L02", first + after): 1} if command == 0x7 else {})
        assert_equal(found, of_oracle(clocks))


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("M16", "REQ# asserted"), ("M17", "GNT# gone since the clock after the address"), ("M23", "other byte enables"),
        ("A02", "another GNT# than in the clock before"), ("A03", "no GNT# in the clock before"),
        ("A06", "REQ# and GNT# asserted for 17 clocks"), ("P04", "PERR# asserted"), ("P05", "SERR# asserted"),
        ("L01", "LOCK# asserted"), ("L02", "LOCK# asserted"), ("L03", "LOCK# asserted"),
        ("W01", "REQ64# not asserted"), ("W02", "ACK64# not asserted"),
    ],
)  # fmt: skip
def test_what_is_seen_names_the_line_that_broke_the_rule(rule: str, shown: str, tmp_path: Path) -> None:
    bus = rule_traffic.clean()
    clocks = bus.finish()
    rule_traffic.FAULTS[rule][0](clocks, bus.marks)
    path = waveforms.write_sr(tmp_path / "fault.sr", rule_traffic.sampled(clocks))
    [found] = [one for one in check(pcitrace.open(path, clock_mhz=33.0).bus) if one.rule.id == rule]
    assert found.first[0].seen.startswith(f"{shown}; asserted: ")


@pytest.mark.parametrize(
    ("command", "enables", "flipped", "shown"),
    [
        (7, 1, 0, "byte enables"),
        (7, 0, 16, "data"),
        (15, 0, 16, "command and data"),
        (15, 1, 16, "command and byte enables"),
    ],
)
def test_a_repeated_access_that_differs_says_in_what(
    command: int, enables: int, flipped: int, shown: str, tmp_path: Path
) -> None:
    bus = rule_traffic.Traffic()
    bus.put("first", 0x7, 0x2000, ending="retry")
    bus.put("again", command, 0x2000, enables=enables)
    clocks = bus.finish()
    again = bus.marks["again"]
    for clock in clocks[again + 1 :]:
        clock.ad = (clocks[bus.marks["first"] + 1].ad or 0) ^ flipped
    path = waveforms.write_sr(tmp_path / "other.sr", rule_traffic.sampled(clocks))
    [found] = [one for one in check(pcitrace.open(path, clock_mhz=33.0).bus) if one.rule.id == "M23"]
    assert [one.seen.split(";")[0] for one in found.first] == [f"other {shown}"]


@pytest.mark.parametrize("unit", ["clk", "sample"])
@pytest.mark.parametrize("timing", [False, True])
def test_a_breach_between_transactions_is_listed_by_clocks_and_samples(
    unit: str, timing: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bus = rule_traffic.clean()
    clocks = bus.finish()
    rule_traffic.FAULTS["A02"][0](clocks, bus.marks)
    path = waveforms.write_sr(tmp_path / "fault.sr", rule_traffic.sampled(clocks, Random(3) if timing else None))
    how = [] if timing else ["--clock-mhz", "33"]
    [found] = [
        one for one in check(pcitrace.open(path, clock_mhz=None if timing else 33.0).bus) if one.rule.id == "A02"
    ]
    [first] = found.first
    place = first.clk
    if unit == "sample" and timing:
        rate_hz = pcitrace.open(path).captures[0].rate_hz
        assert rate_hz is not None
        place = round(first.time_us * rate_hz / 1e6)
    for limits, listed in (
        (["--from", f"{place}{unit}", "--to", f"{place + 1}{unit}"], True),
        (["--from", f"{place + 1}{unit}"], False),
        (["--to", f"{place}{unit}"], False),
    ):
        assert main(["list", str(path), *how, *limits]) == 0
        assert ("A02: " in capfd.readouterr().out) is listed


def test_every_rule_has_a_fault() -> None:
    assert rule_traffic.FAULTS.keys() | {"E01"} == rules.catalogue().keys()


def test_a_short_clock_is_found(tmp_path: Path) -> None:
    clocks = rule_traffic.clean().finish()
    levels = [0] * 15 + [1] * 15
    bits = np.repeat(rule_traffic.sampled(clocks).bits, 30, axis=0)
    clk = np.array(levels * len(clocks), np.uint8)[:, None]
    capture = waveforms.Sampled(["CLK", *rule_traffic.sampled(clocks).names], np.hstack([clk, bits]), 1e9)
    assert not [1 for rule, _ in judged(waveforms.write_sr(tmp_path / "a.sr", capture), bus_mhz=33) if rule == "E01"]
    short = waveforms.Sampled(capture.names, np.delete(capture.bits, range(30 * 40 + 20, 30 * 40 + 30), axis=0), 1e9)
    found = judged(waveforms.write_sr(tmp_path / "b.sr", short), bus_mhz=33)
    assert {key for key in found if key[0] == "E01"} == {("E01", 40), ("E01", 41)}
    [told] = [one for one in check(pcitrace.open(tmp_path / "b.sr").bus, bus_mhz=33) if one.rule.id == "E01"]
    assert [one.seen for one in told.first] == ["5 ns between edges of CLK", "20 ns between edges of CLK"]


@pytest.mark.parametrize("cut", [1, 777, 10**6])
def test_a_stream_is_judged_like_its_file(cut: int, tmp_path: Path) -> None:
    rng = Random(5)
    clocks = noise(rng, 900, 0.8)
    capture = rule_traffic.sampled(clocks)
    path = waveforms.write_sr(tmp_path / "noise.sr", capture)
    bus = pcitrace.open(path, clock_mhz=33.0).bus
    unit = -(-len(capture.names) // 8)
    data = capture.units(unit, range(len(capture.names)))
    live = pcitrace.stream(capture.names, clock_mhz=33.0, rules=True)
    for start in range(0, len(data), cut * unit):
        live.feed(data[start : start + cut * unit])
        if cut == 777:
            assert check_stream(live)[live.buses[0]][0].rule.id == "M01"
    live.finish()
    [found] = check_stream(live).values()
    for one, whole in zip(found, check(bus), strict=True):
        assert (one.rule, one.state, one.count, one.reason) == (whole.rule, whole.state, whole.count, whole.reason)
        assert [place.clk for place in one.first] == [place.clk for place in whole.first]
    with pytest.raises(DecodeError, match="rules=True"):
        check_stream(pcitrace.stream(capture.names, clock_mhz=33.0))


@pytest.mark.parametrize("name", ["blue33_seq1", "blue33_seq6"])
def test_problems_and_rules_are_one_concept(name: str, tmp_path: Path) -> None:
    """What the decoder says of itself and by a rule's id, that rule says of the same transaction."""
    path = FIXTURES / name / "bus.vcd.gz"
    bus = pcitrace.open(path).bus
    by_rules = {one.rule.id: {place.transaction for place in one.first} for one in check(bus)}
    problems = bus.problems[bus.problems["rule"].notna()]
    assert {"P01", "P02", "P03"} <= set(problems["rule"])
    for row in problems.itertuples():
        # The first 100 places are told.
        told = by_rules[row.rule]
        assert row.transaction in told or row.transaction > max(told)
    assert main(["decode", str(path), "--problems", str(tmp_path / "p.jsonl"), "--rules", "all"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    counted = Counter()
    for row in rows:
        counted[row["rule"]] += row["count"]
        assert row["rule"] in (row["kind"], None)
        assert row["text"]
    del counted[None]
    assert counted == {one.rule.id: one.count for one in check(bus) if one.state == "violated"}


@pytest.mark.parametrize("seed", range(12))
def test_the_decoder_tells_rules_of_torn_traffic(seed: int, tmp_path: Path) -> None:
    """At the same clock as the rule does, or at the last one of the transaction that was given up (M06)."""
    rng = Random(seed)
    clocks = noise(rng, 300, rng.choice((0.0, 0.5, 0.8)))
    path = waveforms.write_sr(tmp_path / "noise.sr", rule_traffic.sampled(clocks))
    by_rules = judged(path, clock_mhz=33.0)
    problems = pcitrace.open(path, clock_mhz=33.0).bus.problems
    for row in problems[problems["rule"].str.match("[MT]", na=False)].itertuples():
        assert (row.rule, row.first_clk + (row.rule == "M06")) in by_rules


def test_parameters_are_those_of_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The test bench of seq6 gives up retried accesses, and uses the address of one 38 transactions later."""
    path = str(FIXTURES / "blue33_seq6" / "bus.vcd.gz")
    for within, state in ((16, "ok"), (100, "violated")):
        assert main(["check", path, "--rules", "M23", "--repeat-within", str(within), "--json"]) == 0
        [found] = [one for one in json.loads(capsys.readouterr().out)["pci"]["rules"] if one["id"] == "M23"]
        assert (found["state"], found["count"]) == (state, int(within == 100))
    short = str(FIXTURES.parent / "faults" / "clk-ringing.sr")
    assert main(["check", short, "--rules", "E01", "--clock-tolerance", "990000", "--strict"]) == 0


def test_missing_lines_are_not_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(FIXTURES / "nic_g_a" / "control16.sr"), "--bus", "A", "--json"]) == 0
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)["A"]["rules"]}
    assert list(found) == list(rules.catalogue())
    assert found["P02"]["state"] == "not_evaluated"
    assert "AD" in found["P02"]["reason"]
    assert found["P02"]["needs"] == ["FRAME#", "IRDY#", "C/BE#", "AD", "PAR"]
    assert found["M07"]["state"] == "ok"
    assert found["A03"]["reason"] == "only GNT# was captured, not those of the others"


def test_json_of_a_violation(capsys: pytest.CaptureFixture[str]) -> None:
    path = FIXTURES / "blue33_seq1" / "bus.vcd.gz"
    assert main(["check", str(path), "--json"]) == 0
    [found] = [one for one in json.loads(capsys.readouterr().out)["pci"]["rules"] if one["id"] == "P01"]
    assert (found["state"], found["count"], len(found["first"])) == ("violated", 3, 3)
    assert found["first"][0].keys() == {"clk", "time_us", "transaction", "initiator", "target", "expected", "seen"}
    bad = [t for t in pcitrace.open(path).bus.transactions.itertuples() if t.address_parity_ok is False]
    assert [(one["clk"], one["transaction"]) for one in found["first"]] == [(t.start_clk, t.transaction) for t in bad]


def test_what_is_seen_of_lines_beside_the_control_lines() -> None:
    bus = pcitrace.open(FIXTURES / "blue33_seq6" / "bus.vcd.gz").bus
    phases = {round(one.time_us, 3): one for one in bus.data_phases.itertuples()}
    found = {one.rule.id: one for one in check(bus)}
    moved = [(one, phases[round(one.time_us, 3)]) for one in found["P02"].first if round(one.time_us, 3) in phases]
    assert len(moved) > 50
    for one, phase in moved:
        even = (phase.data.bit_count() + phase.byte_enables.bit_count()) % 2
        assert one.seen.startswith(f"PAR in the next clock is {1 - even}, even parity needs {even}; asserted: ")
        assert "the clock before" not in one.seen, "it is not at hand a clock late"
    for one in found["M18"].first:
        assert one.seen.startswith(f"C/BE# {phases[round(one.time_us, 3)].byte_enables:04b}; ")
    [grants] = [one for one in check(pcitrace.open(FIXTURES.parent / "faults" / "two-grants.sr").bus) if one.first]
    assert grants.first[0].seen.startswith("2 GNT# asserted; ")


@pytest.mark.parametrize("name", ["endless-retry", "wrong-bar"])
def test_a_cause_beyond_the_rules_is_a_problem_to_strict(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(FIXTURES.parent / "faults" / f"{name}.sr"), "--strict"]) == 1
    assert "causes found (--strict)" in capsys.readouterr().err


def test_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FIXTURES / "blue33_seq1" / "bus.vcd.gz")
    assert main(["check", path, "--strict"]) == 1
    assert main(["check", path, "--strict", "--ignore", "P,M12"]) == 0
    assert main(["check", path, "--strict", "--rules", "T"]) == 0
    masks = tmp_path / "bench.toml"
    masks.write_text('ignore = ["P"]\n[[except]]\nrule = "M12"\ninitiator = "GNT1#"\n', encoding="utf-8")
    assert main(["check", path, "--strict", "--masks", str(masks)]) == 0
    masks.write_text('ignore = ["P"]\n[[except]]\nrule = "M12"\ninitiator = "GNT0#"\n', encoding="utf-8")
    assert main(["check", path, "--strict", "--masks", str(masks)]) == 1
    capsys.readouterr()
    assert main(["check", path, "--rules", "M99"]) == 3
    assert "there is no rule M99; the nearest are" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="there is no rule X"):
        rules.select(["X"])


def counted(path: Path, masks: Path, capfd: pytest.CaptureFixture[str]) -> list[dict[str, int]]:
    """Violations by rule as `check`, `decode` and `list` tell them."""
    arguments = [str(path), "--masks", str(masks)]
    assert main(["check", *arguments, "--json"]) == 0
    [bus] = json.loads(capfd.readouterr().out).values()
    checked = {one["id"]: one["count"] for one in bus["rules"] if one["state"] == "violated"}
    assert main(["decode", *arguments, "--problems", "-"]) == 0
    decoded, listed = Counter(), Counter()
    for row in csv.DictReader(io.StringIO(capfd.readouterr().out)):
        decoded[row["kind"]] += int(row["count"]) if row["kind"] in rules.catalogue() else 0
    assert main(["list", *arguments]) == 0
    line = r"^!.* ([A-Z]\d\d): .*?(?: \((\d+) times\))?(?: \[.*\])?$"
    for id, times in re.findall(line, capfd.readouterr().out, re.MULTILINE):
        listed[id] += int(times or 1)
    return [checked, dict(+decoded), dict(listed)]


def test_masks_of_agents_are_heeded_everywhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, masks = FIXTURES / "blue33_seq6" / "bus.vcd.gz", tmp_path / "bench.toml"
    masks.write_text("", encoding="utf-8")
    [every, *others] = counted(path, masks, capfd)
    assert others == [every, every]
    found = {one.rule.id: one for one in check(pcitrace.open(path).bus)}
    target = next(iter(found["P02"].targets))
    # By GNT#, by a name, of a target, of both.
    masks.write_text(
        '[[except]]\nrule = "M12"\ninitiator = "GNT1#"\n[[except]]\nrule = "M18"\ninitiator = "GNT0#"\n'
        f'[[except]]\nrule = "P02"\ntarget = "{target}"\n',
        encoding="utf-8",
    )
    wanted = every | {
        "M12": every["M12"] - found["M12"].initiators["GNT1#"],
        "M18": every["M18"] - found["M18"].initiators["GNT0#"],
        "P02": every["P02"] - found["P02"].targets[target],
    }
    assert wanted["P02"] < every["P02"]
    assert counted(path, masks, capfd) == [wanted, wanted, wanted]


def test_an_initiator_is_masked_by_its_name_or_its_grant(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, masks = FIXTURES.parent / "faults" / "bad-parity.sr", tmp_path / "bench.toml"
    for name in ("host", "GNT_HOST#"):
        masks.write_text(f'[[except]]\nrule = "P03"\ninitiator = "{name}"\n', encoding="utf-8")
        assert counted(path, masks, capfd) == [{}, {}, {}]
    masks.write_text('[[except]]\nrule = "P03"\ninitiator = "eth0"\n', encoding="utf-8")
    assert [one.keys() for one in counted(path, masks, capfd)] == [{"P03"}] * 3


def test_what_is_excepted_and_no_longer_kept_is_not_known() -> None:
    rows = pa.table({"rule": ["M12"] * 2, "grant": ["GNT1#"] * 2, "initiator": ["GNT1#"] * 2, "target": [None] * 2})
    judged = Judged(rows, {id: 5 if id == "M12" else 0 for id in rules.catalogue()}, Look({}, 9, 9, 0, {}), [])
    masks = rules.Masks(frozenset(rules.catalogue()), (("M12", "GNT1#", None),))
    found = {one.rule.id: one for one in judged.results(dict.fromkeys(rules.catalogue()), masks, [])}
    assert found["M12"].state is rules.State.NOT_EVALUATED
    assert (
        found["M12"].reason == "2 of the first 2 violations are excepted, and of 3 more it is not known whose they are"
    )


def several_agents() -> rule_traffic.Traffic:
    """Two initiators: retried accesses and writes that follow each other at once, parking."""
    bus = rule_traffic.Traffic(3)
    for agent in (0, 1):
        bus.put(f"retry {agent}", 0x7, 0x4000, ending="retry", agent=agent)
        bus.put(f"repeat {agent}", 0x7, 0x4000, agent=agent)
        rule_traffic.same_data(bus, f"retry {agent}", f"repeat {agent}")
        bus.put(f"write {agent}", 0x7, 0x5000, agent=agent)
        bus.put(f"at once {agent}", 0x7, 0x5004, agent=agent)
    return bus


@pytest.mark.parametrize(
    ("without", "unknown"),
    [
        ((), set()),
        (("GNT2#", "REQ2#"), set()),
        (("REQ1#",), {"M16", "A06"}),
        (("REQ0#", "REQ1#", "REQ2#"), {"M16", "A06"}),
        (("GNT1#", "REQ1#", "GNT2#", "REQ2#"), {"A01", "A02", "A03", "M13", "M16", "M23"}),
        (("GNT1#", "REQ1#"), {"A01", "A02", "A03", "M13", "M16", "M23"}),
    ],
)
def test_what_a_missing_agent_hides(without: tuple[str, ...], unknown: set[str], tmp_path: Path) -> None:
    """No rule is said to be kept that a transaction of this agent may have broken."""
    bus = several_agents()
    clocks = bus.finish()
    for clock in clocks[-4:]:
        clock.gnt = (False, True, False)
    clocks += [clocks[-1]] * 20
    for agent in (1, 0):
        rule_traffic.at_once(f"write {agent}", f"at once {agent}")(clocks, bus.marks)
    whole = rule_traffic.sampled(clocks)
    chosen = [n for n, name in enumerate(whole.names) if name not in without]
    capture = waveforms.Sampled([whole.names[n] for n in chosen], whole.bits[:, chosen], None)
    path = waveforms.write_sr(tmp_path / "few.sr", capture)
    found = {one.rule.id: one for one in check(pcitrace.open(path, clock_mhz=33.0).bus)}
    assert {id for id, one in found.items() if one.state == "violated"} == set()
    assert {id for id, one in found.items() if one.state == "not_evaluated"} == unknown | {"E01"}
    assert all(found[id].reason for id in unknown)


def test_only_rules_about_requests_need_them() -> None:
    """M23 could not be judged at one place, because two had GNT#, not because of a missing REQ#."""
    seen = Look({}, 9, 9, 0, {}, {"M13": 0, "M16": 2, "M23": 1, "A06": 0})
    lines = ["GNT0#", "GNT1#", "REQ0#"]
    text = "could not be judged: GNT# or REQ# of whose they are was not captured"
    assert not_kept(seen, lines) == {"M16": f"2 places {text}"}
    assert not_kept(seen, [*lines, "REQ1#"]) == {}
    assert not_kept(seen, ["GNT0#", "REQ0#"]) == {"M16": f"2 places {text}", "M23": f"1 place {text}"}


def test_every_violation_is_counted_whose_initiator_may_be_excepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More than are kept of a rule that nobody excepts from."""
    bus = rule_traffic.Traffic()
    for agent in (0, 1, 1):
        bus.put(f"{agent}", 0x7, 0x1000, agent=agent)
    clocks = bus.finish()
    for n, clock in enumerate(clocks):
        clock.par ^= n > 0 and clocks[n - 1].i and clocks[n - 1].t
    once = rule_traffic.sampled(clocks)
    times = 8_000
    capture = waveforms.Sampled(once.names, np.tile(once.bits, (times, 1)), None)
    opened = pcitrace.open(waveforms.write_sr(tmp_path / "many.sr", capture), clock_mhz=33.0).bus
    for excepted, left in (("GNT0#", {"GNT1#": 2 * times}), ("GNT1#", {"GNT0#": times})):
        masks = rules.Masks(frozenset(rules.catalogue()), (("P02", excepted, None),))
        found = {one.rule.id: one for one in check(opened, masks)}["P02"]
        assert (found.state, found.count, found.initiators) == ("violated", sum(left.values()), left)
    whole = {one.rule.id: one for one in check(opened)}["P02"]
    assert (whole.count, whole.kept, sum(whole.initiators.values())) == (3 * times, 20_000, 20_000)
    assert main(["check", str(opened.capture.path), "--clock-mhz", "33"]) == 0
    assert "initiators of the first 20000: GNT1# 13333, GNT0# 6667" in capsys.readouterr().out
    masks = rules.Masks(frozenset(rules.catalogue()), (("P02", None, None),))
    assert {one.rule.id: one for one in check(opened, masks)}["P02"].state == "ok"


@pytest.mark.parametrize("command", ["check", "list"])
def test_a_pipe_is_judged(command: str, tmp_path: Path) -> None:
    """What cannot be known of a pipe, which has no beginning to look at first, is not evaluated."""
    file = FIXTURES.parent / "faults" / "bad-parity.sr"
    with zipfile.ZipFile(file) as session:
        samples = session.read("logic-1-1")
        channels = re.findall(r"^probe\d+=(.*)", session.read("metadata").decode(), re.MULTILINE)
    raw = ["--format", "binary", "--channels", ",".join(channels), "--rate", "200e6"]
    arguments = [sys.executable, "-m", "pcitrace", command]
    piped = subprocess.run([*arguments, "-", *raw], input=samples, capture_output=True, check=True).stdout.decode()
    read = subprocess.run([*arguments, file, "--ignore", "E01"], capture_output=True, check=True).stdout.decode()
    if command == "list":
        assert piped == read
    else:
        assert [line for line in piped.splitlines() if "E01" not in line][:9] == read.splitlines()[:9]
        assert "E01: a pipe is read once" in piped


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--explain", "M07"]) == 0
    assert "IRDY# is released in the clock after the last data phase." in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["check"])


def test_frame_is_not_said_to_come_back_where_it_was_not_there(tmp_path: Path) -> None:
    """M04 is about one transaction: IRDY# from before the address phase on is M03 and M02."""
    bus = rule_traffic.Traffic()
    bus.put("read", 0x6, 0x1000, 2)
    clocks = bus.finish()
    for n in (-1, 0):
        clocks[bus.marks["read"] + n].i = True
    found = judged(waveforms.write_sr(tmp_path / "early.sr", rule_traffic.sampled(clocks)), clock_mhz=33.0)
    assert {"M02", "M03"} <= {id for id, _ in found}
    assert "M04" not in {id for id, _ in found}
    assert_equal(found, of_oracle(clocks))


@pytest.mark.parametrize("quiet", [0, 70_000, 1_500_000])
def test_a_clock_that_begins_late_is_judged(quiet: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine that is switched on while the analyser records: the first look goes on until CLK runs."""
    bus = rule_traffic.Traffic()
    for number in range(40):
        bus.put(f"{number}", 0x6, 0x1000, 2)
    capture = rule_traffic.sampled(bus.finish(), Random(1))
    # DEVSEL# is stuck.
    capture.bits[:, capture.names.index("DEVSEL#")] = 0
    capture.bits = np.concatenate([np.zeros((quiet, len(capture.names)), np.uint8), capture.bits])
    path = waveforms.write_sr(tmp_path / "late.sr", capture)
    for command in ("check", "list"):
        assert main([command, str(path)]) == 0
        assert "DEVSEL# is asserted in every clock" in capsys.readouterr().out
