"""The switch whose times are computed: the logs of its nodes against what the plan says, and against its own truth."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from lab import SCHEMA
from network import framegen

HOSTS = """
format = 1
seed = 3
[[nodes]]
name = "A"
send_us = 3.0
send_us_per_byte = 0.0076
receive_us = 1.5
[[nodes]]
name = "B"
send_us = 3.0
send_us_per_byte = 0.0076
receive_us = 1.5
respond_us = 0.7
clock_offset_us = -12345.678
clock_drift_ppm = 12.5
"""
PING_PONG = """
[[tests]]
kind = "ping-pong"
steering = "A"
peers = ["B"]
sizes = [64, 65, 128, 129, 1000, 1500]
count = 20
"""
STREAM = """
[[tests]]
kind = "stream"
steering = "A"
peers = ["B"]
sizes = [1400, 100]
count = 2000
spacing_us = 15
"""


def switch(folder: Path, plan: str, *options: str) -> Path:
    """Carry out a virtual plan; its run folder."""
    (folder / "plan.toml").write_text(plan)
    command = [framegen(), "switch", "--plan", str(folder / "plan.toml"), "--virtual", "-o", str(folder / "run")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    jsonschema.validate(tomllib.loads((folder / "run/run.toml").read_text()), SCHEMA)
    return folder / "run"


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def truth(run: Path) -> list[dict[str, str]]:
    with (run / "switch.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("joined", ["cable", "switch"])
def test_times_are_those_of_the_plan(tmp_path: Path, joined: str) -> None:
    fabric = "[switch]\nlatency_us = 2.0\nbackplane_mbit_s = 512\ncell_bytes = 64\n" if joined == "switch" else ""
    run = switch(tmp_path, HOSTS + fabric + PING_PONG)
    for point in summary(run)["points"]:
        x = point["length_bytes"]
        wire = (26 + x) * 0.008
        inside = 2.0 + math.ceil(x / 64) * 1.0 + wire if joined == "switch" else 0.0
        one_way = 3.0 + 0.0076 * x + wire + inside + 1.5
        trips = point["round_trip_us"][0]
        assert trips["n"] == 20
        # to the nanoseconds in which the logs are written, and B's clock is 12.5 ppm fast
        assert trips["p50"] == pytest.approx(2 * one_way + 0.7, abs=0.0025)
        assert point["flows"][0]["latency_us"]["p50"] == pytest.approx(one_way, abs=0.005)


def test_clocks_are_compared_through_the_switch(tmp_path: Path) -> None:
    run = switch(tmp_path, HOSTS + "[switch]\n" + PING_PONG)
    exchanges = np.load(run / "node1-clock.npy")
    assert len(exchanges) >= 400
    assert exchanges.dtype.names == ("request_sent_ns", "request_received_ns", "reply_sent_ns", "reply_received_ns")
    clock = summary(run)["clocks"][0]
    # request and reply are equally long: both ways take equally long
    truth_us = -12345.678 + (clock["reference_ns"] - 1e12) * 12.5e-9
    assert clock["offset_us"] == pytest.approx(truth_us, abs=0.002)
    assert clock["asymmetry_bound_us"] > 5
    assert clock["drift_ppm"] == pytest.approx(12.5, abs=0.05)


def test_every_loss_is_in_the_truth(tmp_path: Path) -> None:
    faults = "loss = 0.05\nloss_burst = 3\nduplicate = 0.02\nreorder = 0.02\nreorder_us = 50\n"
    ports = f"[switch]\n[[ports]]\n{faults}[[ports]]\n"
    run = switch(tmp_path, HOSTS + ports + STREAM)
    rows = truth(run)
    for point in summary(run)["points"]:
        mine = [row for row in rows if row["test_id"] == str(point["test_id"])]
        dropped = {int(row["sequence"]) for row in mine if row["action"] == "drop" and row["reason"] == "loss"}
        received = np.load(run / f"p{point['point']:03}-node1-received.npy")
        assert set(range(2000)) - set(received["sequence"].tolist()) == dropped
        flow = point["flows"][0]
        assert flow["lost"] == len(dropped) > 50
        assert flow["duplicated"] == sum(row["action"] == "duplicate" for row in mine) > 10
        assert flow["loss"]["network"] == flow["lost"]
        assert flow["reordered"] > 10
        leaves = [row for row in mine if row["action"] == "forward"]
        assert [int(row["sequence"]) for row in leaves] == received["sequence"].tolist()
    times = [int(row["time_ns"]) for row in rows]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("limit", "depths"),
    [("port_frames = 40", [40, 40]), ("port_bytes = 60000", [42, 508]), ("shared_bytes = 60000", [42, 508])],
)
def test_a_paused_output_shows_the_depth_of_its_buffer(tmp_path: Path, limit: str, depths: list[int]) -> None:
    pause = '[[pauses]]\nnode = "B"\nstart_us = 0\nduration_us = 60000\n'
    run = switch(tmp_path, HOSTS + f"[switch]\n{limit}\n" + STREAM + pause)
    reason = limit.split(" ")[0]
    for point, depth in zip(summary(run)["points"], depths, strict=True):
        assert point["flows"][0]["received"] == depth
        assert point["flows"][0]["lost"] == 2000 - depth
        drops = [
            row["reason"] for row in truth(run) if row["action"] == "drop" and row["test_id"] == str(point["test_id"])
        ]
        assert drops == [reason] * (2000 - depth)
    lines = (run / "pauses-B.csv").read_text().splitlines()
    assert lines[0] == "time_ns,quanta"
    # twice repeated, and let go in the end, at each size
    assert [line.split(",")[1] for line in lines[1:]] == ["65535", "65535", "65535", "0"] * 2


def test_equal_seeds_give_equal_runs(tmp_path: Path) -> None:
    ports = "[switch]\n[[ports]]\nloss = 0.1\njitter_us = 5\n[[ports]]\n"
    stream = STREAM + 'arrivals = "poisson"\n'
    runs = []
    for name, seed in (("one", "5"), ("same", "5"), ("other", "6")):
        (tmp_path / name).mkdir()
        runs.append(switch(tmp_path / name, HOSTS + ports + stream, "--seed", seed))
    files = sorted(file.name for file in runs[0].iterdir() if file.suffix in (".npy", ".csv"))
    assert len(files) == 6
    one, same, other = ([(run / file).read_bytes() for file in files] for run in runs)
    assert one == same
    assert one[-1] != other[-1]


THREE = HOSTS + '[[nodes]]\nname = "C"\n[[nodes]]\nname = "D"\n[switch]\n'


def test_fan_in_is_bound_by_the_output(tmp_path: Path) -> None:
    test = '[[tests]]\nkind = "many-to-one"\nsteering = "A"\npeers = ["B", "C", "D"]\nsizes = [1000]\ncount = 500\n'
    test += "spacing_us = 0\n"
    run = switch(tmp_path, THREE + "port_frames = 30\n" + test)
    point = summary(run)["points"][0]
    flows = point["flows"]
    assert sum(flow["received"] for flow in flows) + sum(flow["lost"] for flow in flows) == 1500
    drops = sum(row["reason"] == "port_frames" for row in truth(run))
    assert drops == sum(flow["lost"] for flow in flows) > 300
    received = np.load(run / "p000-node0-received.npy")
    spacing = np.diff(received["receive_ns"])
    assert np.median(spacing) == pytest.approx(1038 * 8, abs=1)


def test_a_group_answers_in_turn(tmp_path: Path) -> None:
    test = (
        '[[tests]]\nkind = "one-to-many"\nsteering = "A"\npeers = ["B", "C", "D"]\nsizes = [1000]\ncount = 50\n'
        'group = "03:00:00:46:47:01"\nallow = ["multicast"]\n'
    )
    run = switch(tmp_path, THREE + test)
    received = np.load(run / "p000-node0-received.npy")
    assert len(received) == 150
    assert sorted(received["node"][:3].tolist()) == [1, 2, 3]
    assert sum(row["reason"] == "multicast" for row in truth(run)) == 50 * 3


def test_companions_run_at_the_same_time(tmp_path: Path) -> None:
    load = (
        '[[tests]]\nkind = "background"\nname = "load"\nrole = "background"\nsteering = "C"\npeers = ["D"]\n'
        "spacing_us = 20\nseconds = 0.02\nstart_us = 250\n"
    )
    run = switch(tmp_path, THREE + "backplane_mbit_s = 700\n" + PING_PONG + load)
    described = tomllib.loads((run / "run.toml").read_text())
    assert described["companions"][0]["folder"] == "companions/load"
    assert described["companions"][0]["lag_us"] == pytest.approx(250, abs=1)
    companion = tomllib.loads((run / "companions/load/run.toml").read_text())
    jsonschema.validate(companion, SCHEMA)
    assert (run / "companions/load" / companion["switch"]["truth"]).is_file()
    assert summary(run / "companions/load")["points"][0]["flows"][0]["received"] > 900


def test_a_wrong_plan_is_told_whole(tmp_path: Path) -> None:
    wrong = HOSTS + "[switch]\nlatency_us = -1\n" + PING_PONG.replace('["B"]', '["E"]')
    (tmp_path / "plan.toml").write_text(wrong)
    command = [framegen(), "switch", "--plan", str(tmp_path / "plan.toml"), "--virtual", "-o", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "latency_us" in done.stderr
    assert "no node E" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
