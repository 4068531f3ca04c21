"""The switch between real interfaces: what it says it did is what the hosts saw."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network import INTERFACE, Host, Running, _namespaces, _pair, framegen, read_log, run
from test_framegen_bridge import reordered

FAULTS = "delay_us = 200\nloss = 0.03\nduplicate = 0.02\nreorder = 0.02\nreorder_us = 3000\n"


@contextmanager
def switched(folder: Path, count: int, top: str = "", first: str = "") -> Iterator[tuple[list[Host], Running]]:
    """Hosts joined by `framegen switch`; `first` is what the plan says of the first port."""
    with _namespaces(count) as made, _namespaces(1) as (middle,):
        plan = f"format = 1\nseed = 5\n[switch]\n{top}\n"
        for number, host in enumerate(made):
            _pair(host, INTERFACE, middle, f"port{number}")
            plan += f'[[ports]]\ninterface = "port{number}"\n{first if number == 0 else ""}\n'
        (folder / "plan.toml").write_text(plan)
        words = ["switch", "--plan", str(folder / "plan.toml"), "-o", str(folder / "switch"), "--json"]
        switch = Running(middle.command(framegen(), *words))
        middle.running.append(switch)
        switch.event("switching")
        yield made, switch


def truth(folder: Path) -> list[dict[str, str]]:
    with (folder / "switch/switch.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def stop(switch: Running) -> dict[str, Any]:
    switch.signal(signal.SIGTERM)
    done = switch.end()
    assert done.status == 0, done.err
    last: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return last


def test_every_frame_that_was_lost_is_in_the_truth(tmp_path: Path) -> None:
    with switched(tmp_path, 2, first=FAULTS) as ((a, b), switch):
        b.serve()
        summary = a.test("stream", b, "--count", 3000, "--spacing-us", 200, "-o", tmp_path / "run")
        stop(switch)
    (point,) = summary["points"]
    (flow,) = point["flows"]
    mine = [row for row in truth(tmp_path) if row["test_id"] == str(point["test_id"])]
    dropped = {int(row["sequence"]) for row in mine if row["action"] == "drop"}
    log = read_log(tmp_path / "run", summary, 1, "received")
    assert set(range(3000)) - set(log["sequence"].tolist()) == dropped
    assert {row["reason"] for row in mine if row["action"] == "drop"} == {"loss"}
    assert flow["lost"] == len(dropped) > 40
    assert flow["duplicated"] == sum(row["action"] == "duplicate" for row in mine) > 20
    leaves = [int(row["sequence"]) for row in mine if row["action"] == "forward"]
    assert leaves == log["sequence"].tolist()
    assert flow["reordered"] == reordered(leaves)
    times = [int(row["time_ns"]) for row in mine]
    assert times == sorted(times)
    # one machine, one clock: a frame enters, waits for its delay, and leaves
    arrival = np.array([int(row["arrival_ns"]) for row in mine if row["action"] == "forward"])
    assert np.median(arrival - log["send_ns"]) >= 0
    assert np.median(log["receive_ns"] - log["send_ns"]) > 200_000


def test_addresses_are_learned_and_groups_reach_all(tmp_path: Path) -> None:
    with switched(tmp_path, 3) as ((a, b, c), switch):
        b.serve("--allow-multicast")
        c.serve("--allow-multicast")
        options = ["--count", 40, "--allow-multicast", "-p", c.mac]
        summary = a.test("one-to-many", b, *options)
        # nobody has ever heard of this one
        unknown = ["--count", 25, "--spacing-us", 500, "--allow-unknown"]
        done = a.framegen("stream", "-p", "02:00:00:00:00:77", *unknown)
        assert done.status == 0, done.err
        stop(switch)
    rows = truth(tmp_path)
    for flow in summary["points"][0]["flows"]:
        assert flow["received"] == 40
    floods = [row for row in rows if row["action"] == "flood" and row["sequence"]]
    assert sum(row["reason"] == "multicast" for row in floods) == 40 * 2
    assert sum(row["reason"] == "unknown" for row in floods) == 25 * 2
    answers = [row for row in rows if row["action"] == "forward" and row["node"] in ("1", "2")]
    assert {row["port_out"] for row in answers} == {"0"}


def test_frames_of_others_pass_as_they_are(tmp_path: Path) -> None:
    """IPv4 among them: a switch that learns is tried by ping, and by tests that go by UDP."""
    with switched(tmp_path, 2, top="latency_us = 200") as ((a, b), switch):
        for number, host in enumerate((a, b), 1):
            host.ip("address", "add", f"10.0.0.{number}/24", "dev", INTERFACE)
        b.serve()
        words = ["ping", "-c", "5", "-i", "0.05", "-W", "20", "-p", "a55a", "10.0.0.2"]
        assert " 5 received" in run(*a.command(*words))
        done = a.framegen("stream", "--udp", "-p", "10.0.0.2", "--count", 50, "--spacing-us", 1000, "--sizes", 300)
        assert done.status == 0, done.err
        stop(switch)
    (flow,) = done.summary["points"][0]["flows"]
    mine = [row for row in truth(tmp_path) if row["test_id"] == str(done.summary["points"][0]["test_id"])]
    assert (flow["received"], sum(row["action"] == "forward" for row in mine)) == (50, 50)
    assert {row["length_bytes"] for row in mine} == {"300"}
    assert not any(row["action"] == "drop" for row in truth(tmp_path))


Held = list[tuple[int, int, int, int]]
"""Frames that waited at an output: when they came and left, and between how many and how many bytes they are long."""


def length_bytes(row: dict[str, str]) -> tuple[int, int]:
    """Least and most bytes of a frame, its check sequence included; frames of others are of any length."""
    if not row["length_bytes"]:
        return 64, 1518
    length = max(64, int(row["length_bytes"]) + 18)
    return length, length


def waiting(held: Held, time_ns: int) -> tuple[int, int, int, int]:
    """Frames and bytes at an output before anything came at this time: the least of both, and the most.

    What came or left in this very nanosecond may have done so before or after.
    """
    sure = [one for one in held if one[0] < time_ns < one[1]]
    maybe = [one for one in held if one[0] <= time_ns <= one[1]]
    return len(sure), sum(one[2] for one in sure), len(maybe), sum(one[3] for one in maybe)


@pytest.mark.parametrize(("limit", "most"), [("port_frames", 30), ("port_bytes", 30_000)])
def test_an_output_holds_what_the_limit_says(tmp_path: Path, limit: str, most: int) -> None:
    """How many wait while it is paused depends on who has the CPU: never more than fit, and none is lost before."""
    with switched(tmp_path, 2, top=f"{limit} = {most}") as ((a, b), switch):
        b.serve()
        run = a.start("stream", "-p", b.mac, "--count", 4000, "--spacing-us", 400, "--sizes", 1000)
        run.event("progress", sent=100)
        pause = b.start("pause", "--allow-pause", "--seconds", 0.3, "-o", tmp_path / "pause")
        assert pause.end().status == 0
        done = run.end()
        stop(switch)
    assert done.status == 0, done.err
    (flow,) = done.summary["points"][0]["flows"]
    rows = [row for row in truth(tmp_path) if row["port_out"] == "1"]
    drops = [row for row in rows if row["action"] == "drop"]
    assert flow["lost"] == sum(row["sequence"] != "" and row["test_id"] != "0" for row in drops)
    assert {row["reason"] for row in drops} <= {limit}
    held = [
        (int(row["arrival_ns"]), int(row["time_ns"]), *length_bytes(row)) for row in rows if row["action"] == "forward"
    ]
    for came, *_ in held:
        frames, size, _, _ = waiting(held, came)
        assert (frames if limit == "port_frames" else size) <= most
    for row in drops:
        _, _, frames, size = waiting(held, int(row["time_ns"]))
        assert (frames + 1 if limit == "port_frames" else size + length_bytes(row)[1]) > most
    lines = (tmp_path / "pause/pauses.csv").read_text().splitlines()
    assert lines[0] == "time_ns,quanta"
    assert len(lines) > 2
    assert lines[-1].endswith(",0")


def test_it_is_bounded_and_safe(tmp_path: Path) -> None:
    with switched(tmp_path, 2) as ((a, _), _):
        done = a.framegen("pause", "--seconds", 1)
        assert (done.status, "--allow-pause" in done.err) == (3, True)
        assert a.framegen("pause", "--allow-pause", "--seconds", 100).status == 2
        (tmp_path / "other.toml").write_text('format = 1\n[switch]\n[[ports]]\ninterface = "none0"\n[[ports]]\n')
        done = a.framegen("switch", "--plan", tmp_path / "other.toml")
        assert (done.status, "interface is missing" in done.err) == (2, True)
