"""A plan without an analyser: frames, their logs, and nothing of a bus."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import network
import numpy as np
import pytest
from lab import REPOSITORY, TwoHosts, needed_framegen, pcicap, read_run, record
from test_switch import stop, switched, truth

import pcitrace


@pytest.fixture
def net() -> Iterator[TwoHosts]:
    made = TwoHosts()
    try:
        yield made
    finally:
        made.close()


def plan(mac: str, interface: str = "left", rest: str = "") -> str:
    return f"""
format = 1
[hosts.A]
interface = "{interface}"
[hosts.B]
mac = "{mac}"
[path]
kind = "switch"
name = "other module"
devices = ["BATM"]
modules = [["1", "2"]]
[test]
kind = "ping-pong"
sizes = [64, 1500]
count = 30
timeout_ms = 10_000
{rest}
"""


def test_frames_alone_are_a_run(net: TwoHosts, tmp_path: Path) -> None:
    _, mac = net.serve()
    done, folder = record(tmp_path, plan(mac), before=net.a)
    assert done.status == 0, done.err
    run = read_run(folder)
    assert (run["format"], run["captures"], run["path"]["name"]) == (2, [], "other module")
    assert {name: host["node"] for name, host in run["hosts"].items()} == {"A": 0, "B": 1}
    assert len(run["frame_logs"]) == 8
    exchanges = np.load(folder / run["clock_exchanges"][0]["file"])
    assert len(exchanges) >= 400
    assert (folder / "latency.csv").is_file()
    opened = pcitrace.open(folder)
    assert opened.buses == {}
    assert opened.folder is not None
    assert opened.folder.bus_hosts == []


def test_hosts_and_histograms_are_in_run_toml(net: TwoHosts, tmp_path: Path) -> None:
    _, mac = net.serve()
    done, folder = record(tmp_path, plan(mac, rest="histogram_ns = 100"), before=net.a)
    assert done.status == 0, done.err
    run = read_run(folder)
    (entry,) = run["histograms"]
    assert (entry["file"], entry["bin_ns"]) == ("frames/histograms.npy", 100)
    assert {state["host"] for state in run["host_states"]} == {"A", "B"}
    result = pcitrace.open(folder).network["ping-pong"]
    assert (result.parameters["sent"].value, result.parameters["received"].value) == (60, 60)
    assert list(result.tables["hosts"]["frames"]) == [120, 120]


def test_a_paused_port_is_in_the_plan(tmp_path: Path) -> None:
    """What the switch says was lost at a paused output is what comes of the recording."""
    words = 'kind = "stream"\nsizes = [1000]\ncount = 1200\nspacing_us = 1000\ndirection = "from-peer"\n'
    text = f'format = 1\n[hosts.A]\ninterface = "{network.INTERFACE}"\n[hosts.B]\nmac = "%s"\n[test]\n{words}'
    text += "[pause]\nallow = true\nseconds = 0.4\nafter_ms = 200\n"
    with switched(tmp_path, 2, top="port_frames = 40") as ((a, b), switch):
        b.serve()
        said = tmp_path / "said.toml"
        said.write_text(text % b.mac)
        checked = pcicap("plan", "--check", said, before=a.command())
        assert f"pause: {network.INTERFACE} for 0.4 s, 200 ms after the first frame" in checked.out, checked.err
        done, folder = record(tmp_path, text % b.mac, before=a.command())
        stop(switch)
    assert done.status == 0, done.err
    run = read_run(folder)
    assert run["pauses"] == [{"host": "A", "file": "frames/pauses.csv"}]
    assert (folder / "frames/pauses.csv").read_text().splitlines()[-1].endswith(",0")
    drops = [row for row in truth(tmp_path) if row["action"] == "drop" and row["sequence"]]
    result = pcitrace.open(folder).network["stream"]
    assert result.parameters["lost"].value == len(drops)


def test_a_dry_run_says_everything_and_does_nothing(net: TwoHosts, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan("02:00:00:00:00:0b"))
    done = pcicap("record", tmp_path / "plan.toml", "--dry-run", before=net.a)
    assert done.status == 0, done.err
    assert "would run ping-pong over left with 02:00:00:00:00:0b: 1500 bytes" in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]
    assert pcicap("record", tmp_path / "plan.toml", before=net.a).status == 2


def test_a_check_refuses_what_recording_would(net: TwoHosts, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    for interface, rest, said in (
        ("none0", "", "no interface none0"),
        ("left", 'cpu = "9999"\n', "--cpu 9999"),
        ("left", 'cpu = "1000"\n', "cannot run on CPU 1000"),
        ("left", "priority = 200\n", "no SCHED_FIFO 200"),
        ("left", 'receive = "hardware"\n', "left does not stamp received frames"),
        ("left", "spacing_us = 5e6\n", "the limit is --max-seconds 60"),
    ):
        path.write_text(plan("02:00:00:00:00:0b", interface, rest))
        done = pcicap("plan", "--check", path, before=net.a)
        assert (done.status, said in done.err) == (3, True), done.err
    path.write_text(plan("03:00:00:00:00:0b").replace("[64, 1500]", "[64, 1501]").replace("count = 30", "count = 0"))
    done = pcicap("plan", "--check", path, before=net.a)
    assert done.status == 3
    assert _keys(done.err) == ["hosts.B.mac", "test.count", "test.sizes"]


def test_a_check_says_all_that_is_wrong_at_once(net: TwoHosts, tmp_path: Path) -> None:
    """What the plan itself shows beside interfaces that are not there; then all that framegen would refuse."""
    beside = '[[companions]]\nname = "load"\nrole = "background"\npeers = ["02:00:00:00:00:0c"]\n'
    path = tmp_path / "plan.toml"
    rest = f'{beside}interface = "none1"\ntest = {{ kind = "background", seconds = 100 }}\n'
    path.write_text(plan("02:00:00:00:00:0b", "none0", rest).replace("count = 30", "count = 0"))
    done = pcicap("plan", "--check", path, before=net.a)
    assert (done.status, _keys(done.err)) == (3, ["test.count", "hosts.A.interface", "companions[0].interface"])
    rest = f'{beside}test = {{ kind = "background", seconds = 100 }}\n'
    path.write_text(plan("02:00:00:00:00:0b", rest=rest).replace("count = 30", "seconds = 40"))
    for command in (("plan", "--check"), ("record", "--dry-run")):
        done = pcicap(*command, path, before=net.a)
        assert (done.status, _keys(done.err)) == (3, ["test", "companions[0].test"]), done.err


def _keys(said: str) -> list[str]:
    return [line.split(":")[1].strip() for line in said.splitlines()]


def test_the_words_of_the_documentation(net: TwoHosts) -> None:
    """Every framegen command of docs/capture/two-hosts.md works on interfaces that were set up as it says."""
    text = (REPOSITORY / "docs/capture/two-hosts.md").read_text()
    set_up = re.findall(r"^((?:ip|sysctl) .*eth1.*)$", text, re.MULTILINE)
    assert [line.split()[0] for line in set_up] == ["ip", "ip", "sysctl"]
    for host, name in ((net.a, "left"), (net.b, "right")):
        for line in set_up:
            subprocess.run([*host, *line.replace("eth1", name).split()], check=True, timeout=20)
    _, mac = net.serve()
    commands = re.findall(r"^A\$ framegen (.*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        words = command.replace("eth1", "left").replace("02:00:00:00:00:0b", mac).replace("--seconds 10", "--seconds 1")
        done = subprocess.run([*net.a, needed_framegen(), *words.split()], capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


COMPANIONS = """
format = 1
[hosts.A]
interface = "{here}"
[hosts.B]
mac = "{b}"
[test]
kind = "stream"
sizes = [1000]
count = 1000
spacing_us = 1000
[[companions]]
name = "load"
role = "background"
peers = ["{c}"]
test = {{ kind = "background", seconds = 1, spacing_us = 1000, sizes = [1000] }}
"""


def test_companions_begin_together_and_are_runs(tmp_path: Path) -> None:
    with network.hosts(3) as (a, b, c):
        b.serve("--once")
        c.serve("--once")
        text = COMPANIONS.format(here=network.INTERFACE, b=b.mac, c=c.mac)
        done, folder = record(tmp_path, text, before=a.command())
    assert done.status == 0, done.err
    [entry] = read_run(folder)["companions"]
    assert (entry["folder"], entry["role"]) == ("companions/load", "background")
    assert isinstance(entry["lag_us"], float)
    measured = pcitrace.network.of_paths([folder])
    own, beside = measured.results
    assert (own.kind, own.parameters["received"].value) == ("stream", 1000)
    assert beside.kind == "background"
    assert beside.parameters["sent"].value > 0
    assert any("at the same time (background" in text for text in measured.findings)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"background"\npeers', '"bakground"\npeers', "companions[0].role: 'bakground' is not known; did you mean"),
        ('peers = ["02:00:00:00:00:03"]', "peers = []", "companions[0].peers: is empty"),
        ("seconds = 1", "seconds = 1, count = 5", "companions[0].test.seconds: given beside count"),
        ('name = "load"', 'name = "../load"', "companions[0].name: is '../load'"),
    ],
)
def test_what_is_wrong_with_a_companion_is_said(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = COMPANIONS.format(here="fg0", b="02:00:00:00:00:02", c="02:00:00:00:00:03")
    assert old in text
    (tmp_path / "plan.toml").write_text(text.replace(old, new))
    done = pcicap("plan", "--check", tmp_path / "plan.toml")
    assert done.status == 3
    assert said in done.err
