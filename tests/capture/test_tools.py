"""Other programs, driven for real over loopback: their output is kept, with what was called."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from lab import Pcicap, needed, pcicap, read_run
from network import INTERFACE
from network import hosts as network_of

from pcitrace import network


def test_ping_is_kept_as_it_is(tmp_path: Path) -> None:
    needed("ping")
    words = ["--values", "56,1000", "--", "-c", "3", "-i", "0.01", "-s", "{}"]
    done = pcicap("ping", "127.0.0.1", "-o", tmp_path / "run", *words)
    assert done.status == 0, done.err
    run = read_run(tmp_path / "run")
    assert (run["complete"], run["test"]) == (True, {"kind": "ping", "transport": "icmp"})
    first, second = run["tool_outputs"]
    assert (first["value"], second["value"], second["status"]) == ("56", "1000", 0)
    assert second["command"] == ["ping", "-D", "-c", "3", "-i", "0.01", "-s", "1000", "127.0.0.1"]
    assert "iputils" in first["version"]
    assert "1000(1028) bytes of data" in (tmp_path / "run" / second["file"]).read_text()


def test_both_hosts_tell_before_and_after(tmp_path: Path) -> None:
    """The other one where framegen serve runs there; what its CPU did for each frame is in the result."""
    with network_of(2) as (a, b):
        for number, host in enumerate((a, b), 1):
            host.ip("address", "add", f"10.0.0.{number}/24", "dev", INTERFACE)
        b.serve()
        words = ["--serving", b.mac, "--", "-c", "40", "-i", "0.01"]
        done = pcicap("ping", "10.0.0.2", "-o", tmp_path / "run", *words, before=a.command())
        assert done.status == 0, done.err
        nobody = ["--serving", "02:00:00:00:00:77", "--", "-c", "1"]
        refused = pcicap("ping", "10.0.0.2", "-o", tmp_path / "other", *nobody, before=a.command())
    assert (refused.status, "no answer" in refused.err) == (4, True), refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    run = read_run(tmp_path / "run")
    assert (run["hosts"]["here"]["interface"], len(run["host_states"])) == (INTERFACE, 2)
    for entry in run["host_states"]:
        before, after = (json.loads((tmp_path / "run" / entry[when]).read_text()) for when in ("before", "after"))
        assert after["unix_ns"] > before["unix_ns"]
        assert before["facts"]["interface"]["name"] == INTERFACE
        assert after["interface"]["rx_packets"] - before["interface"]["rx_packets"] >= 40
    (result,) = network.of_paths([tmp_path / "run"]).results
    table = result.tables["hosts"].set_index("host")
    assert sorted(table.index) == ["here", "peer"]
    assert all(frames >= 80 for frames in table["frames"])
    assert result.parameters["cpu_us_per_frame"].value == table["cpu_us_per_frame"].max()


def test_irtt_is_kept_and_read(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen([needed("irtt"), "server", "-i", "0", "-b", there], stdout=subprocess.DEVNULL)
    try:
        words = ["--values", "64,1000", "--", "-d", "300ms", "-i", "3ms", "-l", "{}"]
        done = pcicap("ping", there, "-o", tmp_path / "run", "--tool", "irtt", *words)
    finally:
        server.kill()
        server.wait()
    assert done.status == 0, done.err
    run = read_run(tmp_path / "run")
    assert run["test"] == {"kind": "ping", "transport": "udp"}
    assert [entry["value"] for entry in run["tool_outputs"]] == ["64", "1000"]
    assert "0.9" in run["tool_outputs"][0]["version"]
    results = network.of_paths([tmp_path / "run"]).results
    assert [one.kind for one in results] == ["irtt", "irtt"]
    assert all(0 < (one.parameters["received"].value or 0) <= 101 for one in results)


def test_iperf3_is_kept_as_it_is(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen(
        [needed("iperf3"), "-s", "-1", "--forceflush", "-p", port], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout
        while "listening" not in server.stdout.readline():
            assert server.poll() is None
        done = pcicap("tcp", "127.0.0.1", "-o", tmp_path / "run", "--", "-t", "1", "-p", port)
    finally:
        server.kill()
        server.communicate()
    assert done.status == 0, done.err
    (entry,) = read_run(tmp_path / "run")["tool_outputs"]
    said = json.loads((tmp_path / "run" / entry["file"]).read_text())
    assert said["end"]["sum_received"]["bits_per_second"] > 0
    assert entry["version"].startswith("iperf 3")


def listening(port: int) -> None:
    """Wait until somebody of this host listens at a TCP port."""
    until = time.monotonic() + 60
    while not any(
        words[1].endswith(f":{port:04X}") and words[3] == "0A"
        for table in ("tcp", "tcp6")
        for words in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
    ):
        assert time.monotonic() < until, f"nobody listens at {port}"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("tool", "server", "options", "kind"),
    [
        ("nuttcp", ["-S", "--nofork", "-P{0}"], ["-P{0}", "-p{1}", "-T0.5"], "nuttcp"),
        ("nptcp", ["-P", "{0}"], ["-P", "{0}", "-u", "100", "-n", "5"], "nptcp"),
    ],
)
def test_nuttcp_and_netpipe_are_kept_and_read(
    tmp_path: Path, tool: str, server: list[str], options: list[str], kind: str
) -> None:
    with socket.socket() as one, socket.socket() as two:
        for free in (one, two):
            free.bind(("127.0.0.1", 0))
        ports = [free.getsockname()[1] for free in (one, two)]
    program = needed({"nuttcp": "nuttcp", "nptcp": "NPtcp"}[tool])
    serving = subprocess.Popen([program, *(word.format(*ports) for word in server)], stdout=subprocess.DEVNULL)
    try:
        listening(ports[0])  # neither says when it does
        words = [word.format(*ports) for word in options]
        done = pcicap("tcp", "127.0.0.1", "-o", tmp_path / "run", "--tool", tool, "--max-seconds", "20", "--", *words)
    finally:
        serving.kill()
        serving.wait()
    assert done.status == 0, done.err
    (entry,) = read_run(tmp_path / "run")["tool_outputs"]
    assert (entry["tool"], entry["status"]) == (tool, 0)
    (result,) = network.of_paths([tmp_path / "run"]).results
    assert result.kind == kind
    assert (result.parameters["user_mbit_s"].value or 0) > 0


def test_what_fails_is_kept_and_told(tmp_path: Path) -> None:
    done = pcicap("tcp", "127.0.0.1", "-o", tmp_path / "run", "--", "-p", "1")
    said = "iperf3: unable to connect to server"
    assert (done.status, said in done.err) == (4, True), done.err
    run = read_run(tmp_path / "run")
    assert run["complete"] is False
    assert "error" in json.loads((tmp_path / "run/iperf3.json").read_text())
    again = pcicap("ping", "127.0.0.1", "-o", tmp_path / "run")
    assert (again.status, "exists" in again.err) == (4, True)


def _ping(folder: Path, *words: str) -> Pcicap:
    return Pcicap("ping", "127.0.0.1", "-o", folder, *words)


def test_calls_with_one_value_have_an_output_each(tmp_path: Path) -> None:
    """Of five the best: and values that are written alike as names of files are not the same."""
    words = ["--values", "56,56,+56", "--", "-c", "6", "-i", "0.01", "-s", "{}"]
    assert _ping(tmp_path / "run", *words).done().status == 0
    files = [entry["file"] for entry in read_run(tmp_path / "run")["tool_outputs"]]
    assert len(set(files)) == 3
    assert all("6 packets transmitted" in (tmp_path / "run" / file).read_text() for file in files)
    (result,) = network.of_paths([tmp_path / "run"]).results
    assert result.parameters["sent"].value == 18


def _answered(file: Path, count: int) -> None:
    """Wait until so many answers are in the output of a ping that is under way."""
    until = time.monotonic() + 60
    while not file.exists() or file.read_text().count(" time=") < count:
        assert time.monotonic() < until, "the output does not come as the program writes it"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_calls_and_keeps_what_was_said(tmp_path: Path, number: signal.Signals) -> None:
    words = ["--values", "56,100,200", "--", "-i", "0.02", "-c", "{}000", "-s", "{}"]
    running = _ping(tmp_path / "run", *words)
    _answered(tmp_path / "run.partial/ping-56.txt", 6)
    running.kill(number)
    done = running.done()
    assert (done.status, f"interrupted by {number.name}" in done.err) == (4, True), done.err
    run = read_run(tmp_path / "run")
    assert (run["complete"], len(run["tool_outputs"])) == (False, 1)
    found = network.of_paths([tmp_path / "run"])
    assert (found["ping"].parameters["received"].value or 0) > 3
    assert any("interrupted by" in text for text in found.findings)


def test_killed_calls_leave_a_folder_that_can_be_recovered(tmp_path: Path) -> None:
    running = _ping(tmp_path / "run", "--values", "3,30000", "--", "-i", "0.02", "-c", "{}")
    _answered(tmp_path / "run.partial/ping-30000.txt", 6)
    running.kill(signal.SIGKILL)
    running.done()
    assert pcicap("recover", tmp_path / "run.partial").status == 0
    run = read_run(tmp_path / "run")
    assert (run["complete"], [entry["value"] for entry in run["tool_outputs"]]) == (False, ["3", "30000"])
    _answered(tmp_path / "run/ping-30000.txt", 6)
    found = network.of_paths([tmp_path / "run"])
    assert found["ping"].parameters["sent"].value == 3
    assert any("its statistics: stopped before the end" in text for text in found.findings)


def test_a_call_that_failed_hides_no_other(tmp_path: Path) -> None:
    words = ["--values", "56,wrong", "--", "-c", "6", "-i", "0.01", "-s", "{}"]
    assert _ping(tmp_path / "run", *words).done().status == 4
    found = network.of_paths([tmp_path / "run"])
    assert found["ping"].parameters["received"].value == 6
    assert any("is empty: the program wrote nothing; left out" in text for text in found.findings)
    assert any("incomplete: ping (wrong)" in text for text in found.findings)
