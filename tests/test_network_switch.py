"""From the emulated switch to results: a plan with known constants, `framegen switch --virtual`, `pcitrace network`.

Times are computed, not waited for, so this needs no interface and no right; the truth of each frame is in switch.csv.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcitrace import network
from pcitrace.cli import main

NODE = """
[[nodes]]
name = "{name}"
send_us = 3.0
send_us_per_byte = 0.0076
receive_us = 1.5
respond_us = 0.7
jitter_us = {jitter}
{rest}
"""
CLOCK = "clock_offset_us = 12345.678\nclock_drift_ppm = 12.5"
SWITCH = '[switch]\nname = "blade"\nlatency_us = 2.0\n'
CELLS = "backplane_mbit_s = 14629\ncell_bytes = 64\n"
CELL_US = 64 * 8 / 14629


def asked(kind: str, sizes: Sequence[int] | str, count: int, rest: str = "", peers: str = '"B"') -> str:
    return (
        f'[[tests]]\nkind = "{kind}"\nsteering = "A"\npeers = [{peers}]\n'
        f"sizes = {json.dumps(sizes)}\ncount = {count}\n{rest}\n"
    )


def hosts(names: str = "AB", jitter: float = 0.03) -> str:
    return "".join(NODE.format(name=name, jitter=jitter, rest="" if name == "A" else CLOCK) for name in names)


def switch(folder: Path, name: str, plan: str, seed: int = 1) -> Path:
    """Carry out a virtual plan; its run folder."""
    program = Path(sys.executable).with_name("framegen")
    assert program.exists(), "framegen is not installed: pip install --editable capture"
    file = folder / f"{name}.toml"
    file.write_text(f"format = 1\nseed = {seed}\n{plan}")
    command = [str(program), "switch", "--plan", str(file), "--virtual", "-o", str(folder / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder / name


def told(capsys: pytest.CaptureFixture[str], *paths: Path) -> list[dict[str, Any]]:
    assert main(["network", *map(str, paths), "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["results"])


def truth(run: Path, point: int = 0) -> list[dict[str, str]]:
    """Rows of switch.csv of a point."""
    number = json.loads((run / "summary.json").read_text())["points"][point]["test_id"]
    with (run / "switch.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["test_id"] == str(number)]


def near(one: dict[str, Any], expected: float, sigmas: float = 4.0) -> None:
    assert one["value"] is not None, one["reason"]
    assert abs(one["value"] - expected) <= sigmas * one["sigma"], (one, expected)


@pytest.mark.parametrize(("kind", "rest"), [("ping-pong", ""), ("request-response", "request_bytes = 64\n")])
def test_a_switch_by_subtraction(kind: str, rest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The constants of hosts, switch and cells are those of the plan."""
    test = asked(kind, "64:1500:13", 60, rest)
    direct = switch(tmp_path, "direct", hosts() + test)
    through = switch(tmp_path, "switch", hosts() + SWITCH + CELLS + test, seed=2)
    by_cable, by_switch, alone = (one["parameters"] for one in told(capsys, direct, through))
    serial_us = 26 * 0.008
    near(by_cable["intercept_us"], 3.0 + 1.5 + serial_us + 0.7 / 2)
    near(by_cable["slope_us_per_byte"], 0.0076 + 0.008)
    assert by_cable["step_bytes"]["value"] is None
    assert by_switch["step_bytes"]["value"] == alone["step_bytes"]["value"] == 64
    near(alone["intercept_us"], 2.0 + serial_us + CELL_US)
    near(alone["slope_us_per_byte"], 0.008)
    near(alone["step_us"], CELL_US)


def test_both_definitions_of_what_a_switch_takes(tmp_path: Path) -> None:
    test = asked("ping-pong", [64, 200, 500, 1000, 1500], 400)
    folders = [
        switch(tmp_path, "direct", hosts() + test),
        switch(tmp_path, "switch", hosts() + SWITCH + test, seed=2),
    ]
    table = network.of_paths(folders)["subtraction"].tables["switch_latency"]
    assert table["switch_us"].to_numpy() == pytest.approx(2.0 + (table["length_bytes"] + 26) * 0.008, abs=0.02)
    assert table["rfc1242_us"].to_numpy() == pytest.approx(2.0, abs=0.02)


def test_each_loss_is_attributed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults = "[[ports]]\nloss = 0.02\nloss_burst = 3\nduplicate = 0.005\nreorder = 0.005\nreorder_us = 70\n[[ports]]\n"
    run = switch(tmp_path, "run", hosts() + SWITCH + faults + asked("stream", [1000], 20000, "spacing_us = 20\n"))
    [result] = told(capsys, run)
    rows = truth(run)
    dropped = sorted(int(row["sequence"]) for row in rows if row["action"] == "drop")
    copies = sum(row["action"] == "duplicate" for row in rows)
    found = result["parameters"]
    assert [found[name]["value"] for name in ("sent", "lost", "duplicated")] == [20000, len(dropped), copies]
    assert found["received"]["value"] == 20000 - len(dropped)
    [flow] = network.of_paths([run]).results[0].points[0].flows
    assert flow.losses is not None
    assert flow.losses.distances.tolist() == np.diff(dropped).tolist()
    left = [int(row["sequence"]) for row in rows if row["action"] == "forward"]
    first = list(dict.fromkeys(left))
    overtaken = sum(number < most for number, most in zip(first[1:], np.maximum.accumulate(first), strict=False))
    assert found["reordered"]["value"] == overtaken > 20
    assert found["loss_ratio"]["sigma"] > math.sqrt(0.02 * 0.98 / 20000) * 1.3, "losses in bursts say less"
    assert "blocks" in found["loss_ratio"]["reason"]
    assert found["knee_us"]["value"] is None, "losses are no bottleneck"
    # one way through cable, switch and cable; clocks through the same switch
    near(found["latency_us"], 3 + 0.0076 * 1000 + 2 * 1026 * 0.008 + 2.0 + 1.5)


SIZES = [64, 200, 500, 900, 1100, 1200, 1300, 1400, 1500]


@pytest.mark.parametrize("start_us", [0, 5000], ids=["paused from the start", "paused later"])
@pytest.mark.parametrize(("frames", "room"), [(300, 300_000), (128, 65536)])
def test_a_buffer_is_exact_in_frames_and_bytes(
    start_us: int, frames: int, room: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = hosts() + f"[switch]\nport_frames = {frames}\nport_bytes = {room}\n"
    plan += asked("stream", SIZES, 1500, "spacing_us = 20\n")
    plan += f'[[pauses]]\nnode = "B"\nstart_us = {start_us}\nduration_us = 50000\n'
    run = switch(tmp_path, "run", plan)
    [result] = told(capsys, run)
    assert result["parameters"]["buffer_frames"]["value"] == frames
    assert result["parameters"]["buffer_bytes"]["value"] == room
    for point, size in enumerate(SIZES):
        reasons = {row["reason"] for row in truth(run, point) if row["action"] == "drop"}
        assert reasons == {"port_frames" if (size + 18) * frames < room else "port_bytes"}


def test_a_pause_that_nothing_waited_for_tells_no_depth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults = "[switch]\n[[ports]]\nloss = 0.05\nloss_burst = 20\n[[ports]]\n"
    plan = hosts() + faults + asked("stream", [64, 1000], 2000, "spacing_us = 20\n")
    plan += '[[pauses]]\nnode = "B"\nstart_us = 0\nduration_us = 1\nquanta = 1\n'
    [result] = told(capsys, switch(tmp_path, "run", plan))
    for name in ("buffer_frames", "buffer_bytes"):
        assert result["parameters"][name]["value"] is None
        assert "no pause shows" in result["parameters"][name]["reason"]


def test_a_sweep_of_spacings_has_floor_and_knee(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The least time between frames is that of the slower cable behind the switch; below it the buffer overflows."""
    ports = "[[ports]]\n[[ports]]\nrate_mbit_s = 500\n"
    for number, spacing in enumerate((9, 14, 20, 30, 60)):
        plan = hosts() + "[switch]\nport_frames = 20\n" + ports
        plan += asked("stream", [1000], 2000, f"spacing_us = {spacing}\n")
        switch(tmp_path / "sweep" if number else _made(tmp_path / "sweep"), f"{number}", plan, seed=number + 1)
    [result] = told(capsys, tmp_path / "sweep")
    near(result["parameters"]["knee_us"], 1038 * 0.016, 5)
    near(result["parameters"]["floor_us"], 3 + 7.6 + 1026 * 0.008 + 1026 * 0.016 + 1.5)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_senders_share_the_port_they_meet_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = "".join("[[ports]]\n" + ("rate_mbit_s = 100\n" if number else "") for number in range(4))
    plan = hosts("ABCD") + SWITCH + slow + asked("many-to-one", [1500], 500, "spacing_us = 130\n", '"B", "C", "D"')
    [result] = told(capsys, switch(tmp_path, "run", plan))
    near(result["parameters"]["user_mbit_s"], 3 * 1500 * 8 / 130, 10)
    assert result["parameters"]["lost"]["value"] == 0


def test_who_answers_a_group_first(tmp_path: Path) -> None:
    late = "".join(
        NODE.format(name=name, jitter=0.03, rest=CLOCK).replace("respond_us = 0.7", f"respond_us = {respond}")
        for name, respond in (("B", 6), ("C", 20), ("D", 40))
    )
    plan = hosts("A") + late + SWITCH + asked("one-to-many", [1024], 200, "request_bytes = 64\n", '"B", "C", "D"')
    [result] = network.of_paths([switch(tmp_path, "run", plan)]).results
    answers = result.tables["answers"].set_index("node")["median_us"]
    assert answers.diff().dropna().tolist() == pytest.approx([14, 20], abs=0.1)


def test_each_run_of_a_sweep_has_its_own_clocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A host that was started anew between two runs: its clock is another one."""
    again = CLOCK.replace("12345.678", "-777.0")
    assert again != CLOCK
    for number, (spacing, clock) in enumerate(((30, CLOCK), (60, again))):
        ends = "".join(NODE.format(name=name, jitter=0.03, rest=clock if name == "B" else "") for name in "AB")
        plan = ends + asked("stream", [1000], 300, f"spacing_us = {spacing}\n")
        switch(tmp_path / "sweep" if number else _made(tmp_path / "sweep"), f"{number}", plan, seed=number + 1)
    [result] = told(capsys, tmp_path / "sweep")
    for point in result["points"]:
        near(point["parameters"]["latency_us"], 3 + 7.6 + 1026 * 0.008 + 1.5)


PAIR = """[[tests]]
kind = "stream"
steering = "C"
peers = ["D"]
name = "other"
role = "pair"
sizes = [1000]
count = 200
spacing_us = 25
"""


def test_companions_of_a_sweep_are_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, spacing in enumerate((25, 50)):
        plan = hosts("ABCD") + "[switch]\n" + asked("stream", [1000], 200, f"spacing_us = {spacing}\n") + PAIR
        switch(tmp_path / "sweep" if number else _made(tmp_path / "sweep"), f"{number}", plan, seed=number + 1)
    own, pair = told(capsys, tmp_path / "sweep")
    assert [point["spacing_us"] for point in own["points"]] == [25, 50]
    assert len(pair["points"]) == 2
    assert "pair of" in pair["path"]
    assert pair["parameters"]["received"]["value"] == 400


@pytest.mark.parametrize("pauses", [True, False], ids=["the switch pauses the sender", "it drops"])
def test_a_stream_is_held_up_by_another_one(pauses: bool, tmp_path: Path) -> None:
    """A sends to B, and to C whose port is paused: a switch that sends PAUSE to A stops both streams."""
    fabric = "[switch]\nport_frames = 50\n" + ("pause_above_frames = 20\n" if pauses else "")
    free = asked("stream", [1000], 1000, "spacing_us = 40\n")
    held = free.replace('peers = ["B"]', 'peers = ["C"]\nname = "held"\nrole = "other"')
    pause = '[[pauses]]\nnode = "C"\nstart_us = 5000\nduration_us = 20000\n'
    alone = switch(tmp_path, "alone", hosts("ABC") + fabric + free)
    beside = switch(tmp_path, "beside", hosts("ABC") + fabric + free + held + pause, seed=2)
    found = network.of_paths([alone, beside])
    ratio = found["head-of-line"].parameters["beside_ratio"].value
    assert ratio is not None
    if pauses:
        assert 0.6 < ratio < 0.75  # 40 ms of sending, 20 of them stopped
    else:
        assert ratio == pytest.approx(1, abs=0.002)
    assert any("held up" in text for text in found.findings) == pauses


def test_frames_for_nobody_known_are_overheard(tmp_path: Path) -> None:
    stream = asked("stream", [500], 100, 'bystanders = ["C"]\n')
    for name, fabric in (("floods", "[switch]\nlearn = false\n"), ("learns", "[switch]\n")):
        [result] = network.of_paths([switch(tmp_path, name, hosts("ABC") + fabric + stream)]).results
        assert result.parameters["received"].value == 100
        rows = result.tables["flooding"].to_dict("records") if "flooding" in result.tables else []
        assert [(row["bystander"], row["frames"]) for row in rows] == ([(2, 100)] if name == "floods" else [])


def test_a_group_is_answered_as_a_group(tmp_path: Path) -> None:
    """Request and answer by multicast: the line is that of the path, and the switch floods both."""
    test = asked("one-to-many", "64:1500:200", 50, 'request_bytes = "same"\nanswers = "group"\n')
    run = switch(tmp_path, "run", hosts("ABC") + SWITCH + test)
    [result] = network.of_paths([run]).results
    slope, intercept = (result.parameters[name] for name in ("slope_us_per_byte", "intercept_us"))
    assert abs(slope.value - (0.0076 + 0.016)) < 4 * slope.sigma  # type: ignore[operator]
    assert abs(intercept.value - (3 + 2 + 1.5 + 0.35 + 2 * 26 * 0.008)) < 4 * intercept.sigma  # type: ignore[operator]
    copies = [row for row in truth(run) if row["action"] == "forward"]
    assert len(copies) == 50 * 2 * 2  # two ports each way


LOAD = """[[tests]]
kind = "background"
steering = "C"
peers = ["D"]
name = "load"
role = "background"
sizes = [1500]
spacing_us = 28
seconds = 0.2
"""


@pytest.mark.parametrize("shared", [True, False], ids=["one backplane", "ports of their own"])
def test_a_background_shifts_latencies_where_it_is_in_the_way(
    shared: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frames meet on the backplane of 2.286 Gbit/s; a switch without that limit keeps them apart."""
    fabric = SWITCH + ("backplane_mbit_s = 2286\n" if shared else "")
    test = asked("request-response", [256, 1024], 1500, "request_bytes = 64\n")
    alone = switch(tmp_path, "alone", hosts("ABCD", 0.2) + fabric + test)
    beside = switch(tmp_path, "beside", hosts("ABCD", 0.2) + fabric + test + LOAD, seed=2)
    found = network.of_paths([alone, beside])
    table = found["shift"].tables["shift"]
    pulls = table["shift_us"] / table["shift_sigma_us"]
    assert table["length_bytes"].tolist() == [256, 1024]
    assert (pulls > 6).all() if shared else (pulls.abs() < 4).all(), table
    for row, one, two in zip(table.to_dict("records"), found.results[0].points, found.results[1].points, strict=True):
        medians = [point.parameters["latency_us"].value for point in (one, two)]
        assert [row["alone_us"], row["beside_us"]] == medians
        assert row["shift_us"] == pytest.approx(medians[1] - medians[0])
    shift = next(one for one in told(capsys, alone, beside) if one["kind"] == "shift")["parameters"]["shift_us"]
    assert table["shift_us"].min() <= shift["value"] <= table["shift_us"].max()
    assert (shift["value"] > 6 * shift["sigma"]) if shared else (abs(shift["value"]) < 3 * shift["sigma"])


def test_what_differs_is_not_compared(tmp_path: Path) -> None:
    alone = switch(tmp_path, "alone", hosts("ABCD") + SWITCH + asked("ping-pong", [256], 100))
    beside = switch(tmp_path, "beside", hosts("ABCD") + SWITCH + asked("ping-pong", [512], 100) + LOAD)
    assert "shift" not in [one.kind for one in network.of_paths([alone, beside]).results]
