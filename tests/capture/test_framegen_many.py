"""More than two hosts: answers to a group, their order, a sink that never sends, who overhears, a common start."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import numpy as np
import pytest
from network import INTERFACE, Host, hosts, mac, read_log, run

from pcitrace import network

GROUP = "03:00:00:46:47:01"
PATIENT = ("--timeout-ms", "10000")
LISTENER = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(4))
s.bind((sys.argv[1], 4))
s.settimeout(20)
print("ready", flush=True)
seen = 0
while seen < int(sys.argv[4]):
    frame = s.recv(2000)
    seen += frame[:6].hex(":") == sys.argv[2] and frame[6:12].hex(":") == sys.argv[3] and frame[19] == 18
print(seen)
"""


def test_answers_to_a_group_go_to_the_group() -> None:
    with hosts(3) as (a, b, c):
        refused = b.serve("--once")
        done = a.framegen("one-to-many", "-p", b.mac, "--answers", "group", "--allow-multicast")
        assert done.status == 3
        assert "--allow-multicast" in done.err
        refused.end()
        b.serve("--once", "--allow-multicast")
        heard = Popen(c.command(sys.executable, "-c", LISTENER, INTERFACE, GROUP, b.mac, "50"), stdout=PIPE, text=True)
        assert heard.stdout
        heard.stdout.readline()
        words = ("--answers", "group", "--allow-multicast", "--count", "50", "--sizes", "200", *PATIENT)
        summary = a.test("one-to-many", b, *words)
        assert [flow["received"] for flow in summary["points"][0]["flows"]] == [50, 50]
        assert summary["test"]["answers"] == "group"
        assert int(heard.communicate(timeout=30)[0]) == 50


def test_broadcasts_are_answered_with_broadcasts_where_both_ends_allow_it() -> None:
    words = ("--answers", "group", "--group", "ff:ff:ff:ff:ff:ff", "--allow-broadcast", "--count", "20", *PATIENT)
    with hosts() as (a, b):
        server = b.serve("--allow-multicast", "--once")
        done = a.framegen("one-to-many", "-p", b.mac, *words)
        assert done.status == 3
        assert "--allow-broadcast" in done.err
        server.end()
        b.serve("--allow-multicast", "--allow-broadcast", "--once")
        summary = a.test("one-to-many", b, *words)
        assert [flow["received"] for flow in summary["points"][0]["flows"]] == [20, 20]


def test_the_order_of_answers_is_told_while_they_come(tmp_path: Path) -> None:
    with hosts(3) as (a, *others):
        for other in others:
            other.serve("--allow-multicast", "--once")
        peers = [word for other in others for word in ("-p", other.mac)]
        count = ("--count", "150", "--spacing-us", "4000", *PATIENT)
        done = a.framegen("one-to-many", *peers, "--allow-multicast", *count, "-o", tmp_path / "run")
    places = np.array(done.summary["points"][0]["places"])
    assert places.shape == (2, 2)
    assert places.sum(axis=0).tolist() == places.sum(axis=1).tolist() == [150, 150]
    live = [event["places"][0] for event in done.events if event["event"] == "progress" and "places" in event]
    assert live
    assert all(sum(first) <= 150 for first in live)
    # the same as the log of what came
    log = read_log(tmp_path / "run", done.summary, 0, "received")
    first = {int(record["sequence"]): int(record["node"]) for record in log[::-1]}
    assert places[0].tolist() == [list(first.values()).count(node) for node in (1, 2)]


def _second(host: Host, switch: str, address: str) -> None:
    """A second interface of a host at the same switch."""
    words = ["ip", "link", "add", "fg1", "netns", host.namespace, "address", address, "type", "veth"]
    run(*words, "peer", "name", "port9", "netns", switch)
    for name, namespace in (("fg1", host.namespace), ("port9", switch)):
        run("ip", "netns", "exec", namespace, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
        run("ip", "-n", namespace, "link", "set", name, "up")
    run("ip", "-n", switch, "link", "set", "port9", "master", "switch")


@pytest.mark.parametrize("never_sends", [True, False], ids=["sink", "learned"])
def test_frames_for_a_sink_are_flooded_and_overheard(never_sends: bool, tmp_path: Path) -> None:
    with hosts(3) as (a, b, c):
        switch = f"{a.namespace.rsplit('-', 1)[0]}-{int(a.namespace.rsplit('-', 1)[1]) + 3}"
        _second(b, switch, mac(9))
        server = b.serve(*(("--sink", "fg1") if never_sends else ()), "--once")
        c.serve("--once")
        words = ("--bystander", c.mac, "--count", "400", "--sizes", "200", "-o", tmp_path / "run")
        summary = a.test("stream", b, *words)
        sent = b.ip("-j", "-s", "link", "show", "fg1")
        assert '"tx":{"bytes":0,"packets":0' in sent
        assert server.event("listening")["sink"] == (mac(9) if never_sends else None)
    [flow] = summary["points"][0]["flows"]
    assert (flow["sent"], flow["received"], flow["to"]) == (400, 400, 1)
    [result] = network.of_paths([tmp_path / "run"]).results
    assert result.parameters["lost"].value == 0
    if never_sends:
        [row] = result.tables["flooding"].to_dict("records")
        assert (row["bystander"], row["frames"]) == (2, 400)
    else:
        assert "flooding" not in result.tables


def test_a_sink_answers_nothing_and_is_another_interface() -> None:
    with hosts(3) as (a, b, _):
        switch = f"{a.namespace.rsplit('-', 1)[0]}-{int(a.namespace.rsplit('-', 1)[1]) + 3}"
        _second(b, switch, mac(9))
        same = b.framegen("serve", "--sink", INTERFACE)
        assert same.status == 2
        assert "another interface" in same.err
        b.serve("--sink", "fg1")
        done = a.framegen("ping-pong", "-p", b.mac)
        assert done.status == 3
        assert "is a sink" in done.err


def test_tests_that_are_told_a_time_begin_together(tmp_path: Path) -> None:
    with hosts(3) as (a, b, c):
        running = []
        for other in (b, c):
            other.serve("--once")
            words = ("stream", "-p", other.mac, "--count", "20", "--step", "-o", tmp_path / other.mac.replace(":", ""))
            running.append(a.start(*words))
        for one in running:
            one.event("ready")
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + 400_000_000
        for one in running:
            assert one.process.stdin
            one.process.stdin.write(f"at {begin}\ngo\n")
            one.process.stdin.flush()
        for one, other in zip(running, (b, c), strict=True):
            done = one.end()
            assert done.status == 0, done.err
            log = read_log(tmp_path / other.mac.replace(":", ""), done.summary, 0, "sent")
            assert int(log["send_ns"][0]) >= begin, "late on a busy machine, never early"


@pytest.mark.parametrize(
    ("line", "said"), [("at noon", "CLOCK_MONOTONIC_RAW"), ("at 9000000000000000000", "at most 1 s")]
)
def test_a_time_that_is_none_or_far_off_is_refused(line: str, said: str) -> None:
    with hosts() as (a, b):
        b.serve("--once")
        waiting = a.start("stream", "-p", b.mac, "--step")
        waiting.event("ready")
        assert waiting.process.stdin
        waiting.process.stdin.write(f"{line}\ngo\n")
        waiting.process.stdin.flush()
        done = waiting.end()
        assert done.status == 3
        assert said in done.err
