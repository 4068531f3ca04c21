"""What framegen does when something goes wrong: it ends in bounded time, says why, and counts what there was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hostile import Raw, hello
from network import INTERFACE, Host, Running, framegen, hosts, mac, read_log

KILLS = int(os.environ.get("KILLS", "40"))
"""How often a sender is killed; `make kills` does it 200 times."""


@pytest.fixture
def pair() -> Iterator[tuple[Host, Host]]:
    with hosts() as (a, b):
        yield a, b


def test_peer_absent(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    done = a.framegen("stream", "-p", b.mac, "-o", tmp_path)
    assert (done.status, done.out) == (3, "")
    assert f"peer {b.mac}: no answer" in done.err


def test_one_of_two_peers_absent_releases_the_other() -> None:
    with hosts(3) as (master, first, _):
        server = first.serve("--once")
        done = master.framegen("many-to-one", "-p", first.mac, "-p", mac(99))
        assert (done.status, mac(99) in done.err) == (3, True)
        assert [json.loads(line)["event"] for line in server.lines] == ["listening"]
        master.test("stream", first, "--count", 5)
        assert server.end().status == 0


@pytest.mark.parametrize("kind", ["stream", "ping-pong"])
def test_peer_dies_half_way(pair: tuple[Host, Host], tmp_path: Path, kind: str) -> None:
    a, b = pair
    server = b.serve()
    run = a.start(kind, "-p", b.mac, "--seconds", 30, "--spacing-us", 1000, "-o", tmp_path)
    run.event("progress", received=100)
    server.signal(signal.SIGKILL)
    done = run.end()
    assert done.status == 1
    assert done.summary["complete"] is False
    assert "no longer answers" in done.summary["reason"]
    first = done.summary["points"][0]["flows"][0]
    # What this side knows stays; what only the peer knew is unknown, not 0.
    assert first["sent"] == len(read_log(tmp_path, done.summary, 0, "sent"))
    assert (first["received"], first["lost"], first["loss"]) == (None, None, None)


def test_peer_stopped_half_way_says_so(pair: tuple[Host, Host]) -> None:
    a, b = pair
    server = b.serve()
    run = a.start("stream", "-p", b.mac, "--seconds", 30, "--spacing-us", 1000)
    run.event("progress", received=100)
    server.signal(signal.SIGTERM)
    ended = server.end()
    assert ended.status == 1
    assert ended.events[-1]["event"] == "lost"
    assert ended.events[-1]["report"]["received"][0]["counts"]["received"] >= 100
    assert run.end().status == 1


def test_sender_dies_and_the_receiver_ends_and_reports(pair: tuple[Host, Host]) -> None:
    a, b = pair
    server = b.serve("--once")
    run = a.start("stream", "-p", b.mac, "--seconds", 30, "--spacing-us", 500)
    run.event("progress", received=100)
    run.signal(signal.SIGKILL)
    run.end(5)
    ended = server.end()
    assert ended.status == 1
    last = ended.events[-1]
    assert (last["event"], last["master"]) == ("lost", a.mac)
    assert "silent" in last["report"]["fault"]
    counts = last["report"]["received"][0]["counts"]
    assert counts["received"] >= 100
    assert (counts["duplicated"], counts["reordered"], counts["corrupt"]) == (0, 0, 0)


def test_a_sending_peer_stops_when_its_master_dies(pair: tuple[Host, Host]) -> None:
    a, b = pair
    server = b.serve("--once")
    run = a.start("stream", "-p", b.mac, "--direction", "from-peer", "--seconds", 30, "--spacing-us", 500)
    run.event("progress", received=100)
    run.signal(signal.SIGKILL)
    run.end(5)
    last = server.end().events[-1]
    assert (last["event"], last["report"]["sent"]["sent"] >= 100) == ("lost", True)


def test_after_a_lost_master_the_next_is_served(pair: tuple[Host, Host]) -> None:
    a, b = pair
    server = b.serve()
    run = a.start("stream", "-p", b.mac, "--seconds", 30, "--spacing-us", 500)
    run.event("progress", received=100)
    run.signal(signal.SIGKILL)
    run.end(5)
    server.event("lost")
    a.test("stream", b, "--count", 50)


def test_two_masters() -> None:
    with hosts(3) as (one, two, peer):
        peer.serve()
        run = one.start("stream", "-p", peer.mac, "--count", 2000, "--spacing-us", 2000)
        run.event("progress", received=100)
        done = two.framegen("stream", "-p", peer.mac)
        assert done.status == 3
        assert "busy" in done.err
        assert one.mac in done.err
        first = run.end()
        assert first.status == 0, first.err
        assert first.summary["points"][0]["flows"][0]["received"] == 2000
        two.test("stream", peer, "--count", 10)


def test_two_masters_on_one_host(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    run = a.start("stream", "-p", b.mac, "--count", 2000, "--spacing-us", 2000)
    run.event("progress", received=100)
    done = a.framegen("ping-pong", "-p", b.mac)
    assert (done.status, "busy" in done.err) == (3, True), done.err
    assert run.end().status == 0


def test_wrong_version_on_either_side(pair: tuple[Host, Host]) -> None:
    a, b = pair
    with Raw(b) as peer:
        run = a.start("stream", "-p", b.mac)
        request = peer.receive()
        peer.send(a.mac, hello(session=1, number=0, flags=1, version=2))
        assert request[18] == 1
        done = run.end()
    assert done.status == 3
    assert "speaks protocol version 2, this is 1" in done.err
    server = b.serve()
    with Raw(a) as master:
        master.send(b.mac, hello(session=0, number=1, version=9))
        answer = master.receive()
        assert answer[18] == 1
        assert b"this node speaks version 1, not 9" in answer
    assert server.process.poll() is None
    a.test("stream", b, "--count", 5)


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_link_down_during_a_stream(pair: tuple[Host, Host], tmp_path: Path, side: str) -> None:
    a, b = pair
    b.serve("--once")
    run = a.start("stream", "-p", b.mac, "--seconds", 30, "--spacing-us", 1000, "-o", tmp_path)
    run.event("progress", received=100)
    (a if side == "sender" else b).ip("link", "set", INTERFACE, "down")
    done = run.end()
    assert done.status == 1
    assert done.summary["complete"] is False
    # The peer's interface is the other end of the wire: all this side can see of it is the carrier.
    cause = ["went down"] if side == "sender" else ["lost its carrier", "has no carrier"]
    assert done.summary["reason"].startswith(tuple(f"{INTERFACE} {words}" for words in cause))
    assert done.summary["points"][0]["flows"][0]["received"] is None
    assert len(read_log(tmp_path, done.summary, 0, "sent")) >= 100
    served = b.running[0].end()
    assert served.status == 1
    assert served.events[-1]["report"]["received"][0]["counts"]["received"] >= 100


@pytest.mark.parametrize("kind", ["stream", "ping-pong"])
def test_a_link_that_comes_back_in_time_is_reported(pair: tuple[Host, Host], kind: str) -> None:
    a, b = pair
    b.serve()
    run = a.start(kind, "-p", b.mac, "--count", 3000, "--spacing-us", 1000)
    run.event("progress", received=100)
    b.ip("link", "set", INTERFACE, "down")
    for _ in range(2):
        run.event("progress", after=len(run.lines))
    b.ip("link", "set", INTERFACE, "up")
    done = run.end()
    flow = done.summary["points"][0]["flows"][0]
    # Both sides noticed: the run is not called complete.
    assert done.status == 1
    assert done.summary["reason"] == f"{INTERFACE} lost its carrier; node 1: {INTERFACE} went down"
    # A frame without a carrier is refused or dropped, as the kernel's queue happens to stand.
    assert flow["failed"] + flow["lost"] > 0
    assert flow["lost"] == flow["sent"] - flow["received"] == sum(flow["loss"].values())
    assert flow["sent"] + flow["failed"] == 3000, "it went on to the end"


def test_nobody_answers_a_step(pair: tuple[Host, Host]) -> None:
    a, b = pair
    server = b.serve("--once")
    done = a.framegen("stream", "-p", b.mac, "--step", "--step-seconds", 1)
    assert done.status == 3
    assert "nobody answered" in done.err
    assert server.end().status == 0


def test_full_disk_is_named(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    done = a.framegen("stream", "-p", b.mac, "--count", 100, "-o", "/dev/full/x")
    assert done.status == 3
    assert "/dev/full/x" in done.err


def test_disk_full_while_it_runs(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    server = b.serve()
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    script = f'mount -t tmpfs -o size=64k tmpfs "{small}"; "$@"; status=$?; cp -a "{small}/run" "{kept}"; exit $status'
    stream = [framegen(), "stream", "-i", INTERFACE, "-p", b.mac, "--seconds", 30, "--spacing-us", 500, "--json"]
    command = a.command("unshare", "--mount", "sh", "-c", script, "sh", *map(str, stream), "-o", f"{small}/run")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    summary = json.loads(done.stdout.splitlines()[-1])["summary"]
    assert summary["complete"] is False
    assert f"{small}/run/p000-node0-sent.npy: No space left" in summary["reason"]
    # What found room is there, and all the rest is still counted.
    sent = read_log(kept, summary, 0, "sent")
    assert np.array_equal(sent["sequence"], np.arange(len(sent)))
    (flow,) = summary["points"][0]["flows"]
    assert 0 < len(sent) < flow["sent"] == flow["received"]
    server.event("released")


def test_frames_the_receiver_had_no_room_for_are_the_kernels(pair: tuple[Host, Host]) -> None:
    a, b = pair
    server = b.serve()
    run = a.start("stream", "-p", b.mac, "--count", 100_000, "--spacing-us", 20, "--receive", "busy")
    run.event("progress", received=100)
    server.signal(signal.SIGSTOP)
    # Well beyond the 4096 frames of its ring, and soon enough not to be taken for dead.
    stopped = run.event("progress", after=len(run.lines))["sent"]
    run.event("progress", sent=stopped + 6000)
    server.signal(signal.SIGCONT)
    done = run.end()
    assert done.status == 0, done.err
    (flow,) = done.summary["points"][0]["flows"]
    assert flow["lost"] > 0
    assert flow["loss"] == {"application": 0, "sender": 0, "kernel": flow["lost"], "network": 0}
    assert done.summary["suspect"] is True


@pytest.mark.timeout(120 + 10 * KILLS)
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Deaths between the first message and the middle of the stream: every log there is can be read, and what the
    receiver that lives on had received can be fetched to the last record.
    """
    chance = np.random.default_rng(5)
    moments = chance.uniform(0, 1, (4, KILLS // 4))

    def deaths(number: int) -> list[int]:
        lengths = []
        with hosts() as (a, b):
            # As long as a stream takes to come in sight, and as much again.
            begun = time.monotonic()
            b.serve()
            run = a.start("stream", "-p", b.mac, "--seconds", 20, "--spacing-us", 3500)
            run.event("progress", received=100)
            span = 2 * (time.monotonic() - begun)
            run.signal(signal.SIGKILL)
            run.end(5)
            b.running[0].signal(signal.SIGKILL)
            b.running[0].end(5)
            for attempt, moment in enumerate(moments[number] * span):
                server = b.serve()
                folder = tmp_path / f"{number}-{attempt}"
                run = a.start("stream", "-p", b.mac, "--seconds", 20, "--spacing-us", 3500, "-o", folder)
                if attempt % 2:
                    time.sleep(moment)
                else:
                    recorded(folder / "p000-node0-sent.npy", 1 + round(200 * moment / span))
                run.signal(signal.SIGKILL)
                run.end(5)
                assert server.process.poll() is None
                if attempt % 5 == 0:
                    all_fetched(a, b, server, folder)
                server.signal(signal.SIGKILL)
                server.end(5)
                for path in folder.glob("*.npy"):
                    log = np.load(path)
                    assert np.array_equal(log["sequence"], np.arange(len(log)))
                    lengths.append(len(log))
        return lengths

    with ThreadPoolExecutor(4) as pool:
        lengths = [length for some in pool.map(deaths, range(4)) for length in some]
    assert sum(length > 0 for length in lengths) >= KILLS // 2


def recorded(log: Path, count: int) -> None:
    """Wait until so many records are on disk."""
    until = time.monotonic() + 60
    while not log.exists() or len(np.load(log)) < count:
        assert time.monotonic() < until, "no records were written"
        time.sleep(0.02)


def all_fetched(a: Host, b: Host, server: Running, folder: Path) -> None:
    """Fetch what a receiver kept of a master that was killed; it is all that it had received."""
    if not any(path.stat().st_size > 200 for path in folder.glob("p000-node0-sent.npy")):
        return  # it died before the first frame
    lost = server.event("lost")
    done = a.framegen("fetch", "-p", b.mac, "-o", folder / "fetched")
    assert done.status == 0, done.err
    received = np.load(folder / "fetched/p000-node1-received.npy")
    assert len(received) == lost["report"]["received_records"]
    assert np.array_equal(received["sequence"], np.arange(len(received)))
    # What the sender's log had on disk when it died had been sent, and nothing of it was lost on the wire.
    assert len(received) >= len(np.load(folder / "p000-node0-sent.npy"))
