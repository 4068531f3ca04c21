"""framegen --udp: every test with addresses instead of MACs, same header and accounting, analysed like the raw ones."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from network import INTERFACE, Host, hosts, read_log

from pcitrace import network

TESTS = {
    "request-response": ("--sizes", "64,1472", "--count", "60", "--timeout-ms", "10000"),
    "ping-pong": ("--sizes", "64,1472", "--count", "60", "--timeout-ms", "10000"),
    "stream": ("--sizes", "1000", "--count", "150", "--spacing-us", "200", "--direction", "both"),
    "max-rate": ("--sizes", "1472", "--count", "300"),
    "background": ("--count", "100"),
    "many-to-one": ("--sizes", "500", "--count", "100"),
    "one-to-many": ("--sizes", "64,500", "--count", "50", "--allow-multicast", "--timeout-ms", "10000"),
    "clock": (),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host, Path]]:
    """Two hosts with addresses, the second serving with a key."""
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_bytes(bytes(range(32)))
    with hosts() as (a, b):
        for number, host in enumerate((a, b), 1):
            host.ip("address", "add", f"10.9.0.{number}/24", "dev", INTERFACE)
        b.serve("--allow-multicast", "--key", key)
        yield a, b, key


@pytest.mark.parametrize("kind", TESTS)
def test_every_kind_goes_by_udp(kind: str, pair: tuple[Host, Host, Path], tmp_path: Path) -> None:
    a, _, key = pair
    done = a.framegen(kind, "-p", "10.9.0.2", "--udp", "--key", key, *TESTS[kind], "-o", tmp_path / "run")
    assert done.status == 0, done.err
    assert done.summary["complete"] is True
    run = tomllib.loads((tmp_path / "run/run.toml").read_text())
    assert (run["test"]["transport"], run["test"]["header_bytes"]) == ("udp", 28)
    assert [host["facts"]["address"] for host in run["hosts"].values()] == ["10.9.0.1", "10.9.0.2"]
    assert not any("mac" in host for host in run["hosts"].values())
    for point in done.summary["points"]:
        for flow in point["flows"]:
            assert flow["received"] == flow["sent"] > 0
            assert flow["duplicated"] == flow["corrupt"] == 0
            rate = flow["received_rate"]
            if rate is not None:
                wire = 8 + max(64, 18 + 28 + flow["length_bytes"]) + 12
                assert rate["wire_mbit_s"] == pytest.approx(rate["user_mbit_s"] * wire / flow["length_bytes"])
    if kind == "stream":
        log = read_log(tmp_path / "run", done.summary, 1, "received")
        assert np.median(log["receive_ns"] - log["send_ns"]) > 0
    [result] = network.of_paths([tmp_path / "run"]).results
    assert result.kind == kind
    if kind != "clock":
        sent, received = (result.parameters[name].value for name in ("sent", "received"))
        assert sent == received
        assert received


def test_nobody_says_that_the_port_is_closed(pair: tuple[Host, Host, Path], tmp_path: Path) -> None:
    """The kernels answer no frame, and it is UDP that they are sent as."""
    a, b, key = pair

    def counters(host: Host) -> dict[str, int]:
        lines = subprocess.run(host.command("cat", "/proc/net/snmp"), capture_output=True, text=True, check=True).stdout
        pairs = [line.split() for line in lines.splitlines()]
        return {
            f"{names[0]}{name}": int(value)
            for names, values in zip(pairs[::2], pairs[1::2], strict=True)
            for name, value in zip(names[1:], values[1:], strict=True)
        }

    before = counters(a)
    options = ("--count", 40, "--spacing-us", 300, "--key", key, "-o", tmp_path / "run")
    done = a.framegen("stream", "-p", "10.9.0.2", "--udp", *options)
    assert done.status == 0, done.err
    assert counters(a)["Udp:OutDatagrams"] >= before["Udp:OutDatagrams"] + 40
    for host in (a, b):
        assert counters(host)["Icmp:OutDestUnreachs"] == counters(host)["Udp:NoPorts"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-p", "02:00:00:00:00:02", "--udp"), "with --udp -p is an IPv4 address"),
        (("-p", "10.9.0.2"), "an IPv4 address needs --udp"),
        (("-p", "10.9.0.2", "--udp", "--sizes", "1473"), "takes at most 1472"),
        (("-p", "10.9.0.2", "--udp", "--transmit", "ring"), "raw frames only"),
        (("-p", "10.9.0.2", "--udp", "--transmit", "batch"), "raw frames only"),
    ],
)
def test_what_does_not_go_together(options: tuple[str, ...], said: str, pair: tuple[Host, Host, Path]) -> None:
    done = pair[0].framegen("stream", *options)
    assert done.status == 2
    assert said in done.err


def test_an_interface_without_an_address(tmp_path: Path) -> None:
    with hosts() as (a, _):
        done = a.framegen("stream", "-p", "10.9.0.2", "--udp")
    assert done.status == 3
    assert "has no IPv4 address" in done.err
