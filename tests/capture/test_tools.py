"""Other programs, driven for real over loopback: their output is kept, with what was called."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path

import pytest
from lab import needed, pcicap, read_run

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
    assert all(50 < (one.parameters["received"].value or 0) <= 101 for one in results)


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
    assert said["end"]["sum_received"]["bits_per_second"] > 1e6
    assert entry["version"].startswith("iperf 3")


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
        time.sleep(0.3)  # neither says when it listens
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
    assert (result.parameters["user_mbit_s"].value or 0) > 1


def test_what_fails_is_kept_and_told(tmp_path: Path) -> None:
    done = pcicap("tcp", "127.0.0.1", "-o", tmp_path / "run", "--", "-p", "1")
    assert (done.status, "incomplete: iperf3" in done.err) == (4, True), done.err
    run = read_run(tmp_path / "run")
    assert run["complete"] is False
    assert "error" in json.loads((tmp_path / "run/iperf3.json").read_text())
    again = pcicap("ping", "127.0.0.1", "-o", tmp_path / "run")
    assert (again.status, "exists" in again.err) == (4, True)
