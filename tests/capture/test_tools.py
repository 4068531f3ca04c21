"""Other programs, driven for real over loopback: their output is kept, with what was called."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

from lab import needed, pcicap, read_run


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


def test_what_fails_is_kept_and_told(tmp_path: Path) -> None:
    done = pcicap("tcp", "127.0.0.1", "-o", tmp_path / "run", "--", "-p", "1")
    assert (done.status, "incomplete: iperf3" in done.err) == (4, True), done.err
    run = read_run(tmp_path / "run")
    assert run["complete"] is False
    assert "error" in json.loads((tmp_path / "run/iperf3.json").read_text())
    again = pcicap("ping", "127.0.0.1", "-o", tmp_path / "run")
    assert (again.status, "exists" in again.err) == (4, True)
