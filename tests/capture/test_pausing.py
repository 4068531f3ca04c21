"""PAUSE frames that the other host of a stream sends, on request: the port to it is held."""

from __future__ import annotations

import csv
from pathlib import Path

import network
from lab import pcicap, read_run, record
from network import hosts
from test_switch import stop, switched, truth

import pcitrace

PAUSE = ("--allow-pause", "--pause-seconds", 0.4, "--pause-after-ms", 200)


def pauses(file: Path) -> list[tuple[int, int]]:
    with file.open(newline="") as rows:
        return [(int(row["time_ns"]), int(row["quanta"])) for row in csv.DictReader(rows)]


def test_the_port_to_a_peer_holds_what_the_switch_says(tmp_path: Path) -> None:
    """Two sizes in one run, a pause each: every loss is the switch's, and the pauses are told."""
    with switched(tmp_path, 2, top="port_frames = 40") as ((a, b), switch):
        b.serve("--allow-pause")
        words = ("--sizes", "200,1000", "--count", 1000, "--spacing-us", 1000)
        summary = a.test("stream", b, *words, *PAUSE, "-o", tmp_path / "run")
        stop(switch)
    run = read_run(tmp_path / "run")
    assert run["pauses"] == [{"file": "node1-pauses.csv", "host": "node1"}]
    sent = pauses(tmp_path / "run/node1-pauses.csv")
    assert [quanta for _, quanta in sent].count(0) == 2
    assert [time for time, _ in sent] == sorted(time for time, _ in sent)
    first = [quanta for _, quanta in sent].index(0)
    assert sent[first][0] - sent[0][0] >= 390_000_000
    [result] = pcitrace.network.of_paths([tmp_path / "run"]).results
    drops = [row for row in truth(tmp_path) if row["action"] == "drop" and row["sequence"]]
    assert result.parameters["lost"].value == len(drops) > 0
    assert sum(flow["lost"] for point in summary["points"] for flow in point["flows"]) == len(drops)


def test_both_ends_must_allow_it() -> None:
    with hosts() as (a, b):
        b.serve()
        done = a.framegen("stream", "-p", b.mac, *PAUSE)
        assert done.status != 0
        assert "this node sends no PAUSE frames: it was started without --allow-pause" in done.err
        done = a.framegen("stream", "-p", b.mac, "--pause-seconds", 0.4)
        assert (done.status, "--allow-pause if that is meant" in done.err) == (2, True)
        done = a.framegen("stream", "-p", b.mac, "--allow-pause", "--pause-seconds", 5)
        assert (done.status, "it is at most 1 s" in done.err) == (2, True)
        done = a.framegen("ping-pong", "-p", b.mac, *PAUSE)
        assert (done.status, "--pause-seconds does nothing in ping-pong" in done.err) == (2, True)


def test_a_companion_to_a_paused_port_holds_up_nobody_else(tmp_path: Path) -> None:
    """The head-of-line test of a plan: a stream to B beside one to C, whose port is paused."""
    text = f'format = 1\n[path]\nkind = "switch"\n[hosts.A]\ninterface = "{network.INTERFACE}"\n'
    text += '[hosts.B]\nmac = "{b}"\n[test]\nkind = "stream"\nsizes = [500]\ncount = 1000\nspacing_us = 1000\n'
    beside = '[[companions]]\nname = "held"\nrole = "other"\npeers = ["{c}"]\n[companions.test]\nkind = "stream"\n'
    beside += "sizes = [500]\ncount = 900\nspacing_us = 1000\nallow = ['pause']\n"
    beside += "pause_seconds = 0.4\npause_after_ms = 300\n"
    with switched(tmp_path, 3, top="port_frames = 40") as ((a, b, c), switch):
        b.serve()
        c.serve("--allow-pause")
        plans = {name: (text + more).format(b=b.mac, c=c.mac) for name, more in (("alone", ""), ("beside", beside))}
        (tmp_path / "said.toml").write_text(plans["beside"])
        checked = pcicap("plan", "--check", tmp_path / "said.toml", before=a.command())
        assert checked.status == 0, checked.err
        done = [record(tmp_path, plan, name, before=a.command()) for name, plan in plans.items()]
        stop(switch)
    for one, _ in done:
        assert one.status == 0, one.err
    held = read_run(tmp_path / "beside/companions/held")
    assert [entry["file"] for entry in held["pauses"]] == ["node1-pauses.csv"]
    found = pcitrace.network.of_paths([tmp_path / "alone", tmp_path / "beside"])
    assert found["head-of-line"].parameters["beside_ratio"].value is not None
    own = next(one for one in found.results if one.measurement and one.measurement.companions)
    assert own.parameters["lost"].value == 0
    # By the switch's own account frames to B left while the port to C was paused.
    rows = truth(tmp_path)
    paused = [int(row["time_ns"]) for row in rows if row["action"] == "pause"]
    while_paused = [row for row in rows if min(paused) < int(row["time_ns"]) < max(paused) and row["sequence"]]
    assert sum((row["action"], row["port_out"]) == ("forward", "1") for row in while_paused) > 20
    companion = next(one for one in found.results if "other of" in one.path)
    assert companion.parameters["lost"].value > 0
