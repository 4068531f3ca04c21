"""framegen between two namespaces joined by veth: every test, its counts, its logs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from network import INTERFACE, Host, framegen, hosts, mac, read_log, run

UNKNOWN_NS = -(2**63)
UNKNOWN_LATENESS = -(2**31)
PATIENT = ("--timeout-ms", 10_000)


@pytest.fixture
def pair() -> Iterator[tuple[Host, Host]]:
    with hosts() as (a, b):
        yield a, b


def counts(flow: dict[str, int]) -> tuple[int, ...]:
    return tuple(flow[name] for name in ("sent", "received", "lost", "duplicated", "reordered", "corrupt"))


def test_request_response_over_a_sweep(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    summary = a.test("request-response", b, "--sizes", "64,500:502:1,1497+-3", "--count", 200, *PATIENT, "-o", tmp_path)
    sizes = [64, 500, 501, 502, 1494, 1497, 1500]
    assert [point["length_bytes"] for point in summary["points"]] == sizes
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    for index, size in enumerate(sizes):
        requests, responses = summary["points"][index]["flows"]
        assert (requests["from"], requests["to"], requests["length_bytes"]) == (0, 1, 64)
        assert (responses["from"], responses["to"], responses["length_bytes"]) == (1, 0, size)
        assert counts(requests) == counts(responses) == (200, 200, 0, 0, 0, 0)
        asked = read_log(tmp_path, summary, 0, "sent", index)
        answered = read_log(tmp_path, summary, 0, "received", index)
        served = read_log(tmp_path, summary, 1, "received", index)
        assert [len(log) for log in (asked, answered, served)] == [200] * 3
        for log in (asked, answered, served):
            assert np.array_equal(log["sequence"], np.arange(200))
        assert set(answered["length_bytes"]) == {size}
        assert set(served["length_bytes"]) == {64}
        assert set(asked["receive_ns"]) == {UNKNOWN_NS}
        assert set(answered["lateness_ns"]) == {UNKNOWN_LATENESS}
        # The peer logs what the request's header says; it is what the asking side logged.
        assert np.array_equal(served["send_ns"], asked["send_ns"])
        trips = (answered["receive_ns"] - asked["send_ns"]) / 1e3
        published = summary["points"][index]["round_trip_us"][0]
        assert published["n"] == 200
        assert published["p50"] == pytest.approx(np.quantile(trips, 0.5))
        assert published["p99"] == pytest.approx(np.quantile(trips, 0.99))
        assert published["mean"] == pytest.approx(trips.mean())
        assert published["sigma"] == pytest.approx(trips.std(ddof=1))


def test_ping_pong_has_equal_lengths(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    for flow in a.test("ping-pong", b, "--sizes", 777, "--count", 100, *PATIENT)["points"][0]["flows"]:
        assert (flow["length_bytes"], *counts(flow)) == (777, 100, 100, 0, 0, 0, 0)


@pytest.mark.parametrize("receive", ["busy", "batch", "ring"])
@pytest.mark.parametrize("transmit", ["send", "batch", "ring"])
@pytest.mark.parametrize("framing", [[], ["--ethertype"]])
def test_stream_by_every_way(
    pair: tuple[Host, Host], tmp_path: Path, receive: str, transmit: str, framing: list[str]
) -> None:
    a, b = pair
    b.serve()
    summary = a.test(
        "stream", b, "--sizes", 1000, "--count", 500, "--spacing-us", 50,
        "--receive", receive, "--transmit", transmit, "-o", tmp_path, *framing,
    )  # fmt: skip
    (flow,) = summary["points"][0]["flows"]
    assert counts(flow) == (500, 500, 0, 0, 0, 0)
    assert flow["loss"] == {"sender": 0, "network": 0, "kernel": 0, "application": 0}
    sent, received = read_log(tmp_path, summary, 0, "sent"), read_log(tmp_path, summary, 1, "received")
    assert np.array_equal(sent["send_ns"], received["send_ns"])
    assert np.all(np.diff(sent["send_ns"]) > 0)
    # slip: a frame never leaves much before its interval is over.
    assert np.diff(sent["send_ns"]).min() >= 50_000 - 600
    assert flow["send_spacing_us"]["p50"] == pytest.approx(np.quantile(np.diff(sent["send_ns"]) / 1e3, 0.5))
    assert flow["lateness_us"]["p50"] == pytest.approx(np.quantile(sent["lateness_ns"] / 1e3, 0.5))
    seconds = (sent["send_ns"][-1] - sent["send_ns"][0]) / 1e9
    rate = flow["sent_rate"]
    assert rate["intervals"] == 499
    assert rate["frames_per_s"] == pytest.approx(499 / seconds)
    assert rate["user_mbit_s"] == pytest.approx(499 * 8000 / seconds / 1e6)
    assert rate["wire_mbit_s"] == pytest.approx(499 * 8 * (1000 + 38) / seconds / 1e6)
    # One host, one clock: what is measured lies between nothing and a scheduling delay.
    (clock,) = summary["clocks"]
    assert abs(clock["offset_us"]) <= clock["asymmetry_bound_us"]


@pytest.mark.parametrize("framing", [[], ["--ethertype"]])
def test_frames_come_before_llc_takes_them(pair: tuple[Host, Host], framing: list[str]) -> None:
    """Linux hands a frame with a length field to its own LLC before sockets of 802.2, which are 4; all protocols, 3,
    come before both.
    """
    a, b = pair
    b.serve()
    waiting = a.start("stream", "-p", b.mac, "--count", 5, "--step", "--receive", "batch", *framing)
    waiting.event("ready")
    table = subprocess.run(b.command("cat", "/proc/net/packet"), capture_output=True, text=True, check=True).stdout
    protocols = [line.split()[3] for line in table.splitlines()[1:]]
    assert "0003" in protocols
    assert "0004" not in protocols
    for _ in range(2):
        waiting.answer()
    done = waiting.end()
    assert done.status == 0, done.err
    assert counts(done.summary["points"][0]["flows"][0]) == (5, 5, 0, 0, 0, 0)


def test_frames_on_the_wire_are_as_documented(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    listener = (
        "import socket, struct, sys\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n"
        "s.bind(('fg0', 3)); print('on', flush=True)\n"
        "while True:\n"
        "    f = s.recv(2048)\n"
        "    if f[14:18] == bytes.fromhex('6c4647b1') and f[19] >= 16: print(f.hex(), flush=True)\n"
    )
    watch = subprocess.Popen(b.command(sys.executable, "-c", listener), stdout=subprocess.PIPE, text=True)
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "on\n"
        for words in (["--payload", "ramp"], ["--payload", "constant", "--ethertype"]):
            a.test("stream", b, "--sizes", 100, "--count", 5, "--marks", 2, *words)
        frames = [bytes.fromhex(watch.stdout.readline()) for _ in range(18)]
    finally:
        watch.kill()
        watch.communicate()
    for index, frame in enumerate(frames):
        run_number, position = divmod(index, 9)
        user = frame[14:]
        assert frame[:12] == bytes.fromhex(b.mac.replace(":", "") + a.mac.replace(":", ""))
        assert int.from_bytes(frame[12:14], "big") == (100, 0x88B5)[run_number]
        assert user[4] == 1
        assert int.from_bytes(user[28:30], "big") == len(user) == 100
        assert int.from_bytes(user[32:36], "big") == zlib.crc32(user[:32])
        marked = position < 2 or position >= 7
        assert user[5] == (19 if marked else 16)
        sequence = int.from_bytes(user[16:20], "big")
        if marked:
            assert user[36:] == bytes.fromhex("a55ac33c") * 16
        else:
            assert sequence == position - 2
            expected = bytes((sequence + i) % 256 for i in range(64)) if run_number == 0 else b"\x55" * 64
            assert user[36:] == expected
        # No service access point that Linux treats apart.
        assert user[0] not in (0x00, 0x42, 0xAA, 0xE0, 0xFE, 0xFF)


def test_poisson_is_the_same_for_the_same_seed(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    planned = []
    for run_number, seed in enumerate((7, 7, 8)):
        folder = tmp_path / str(run_number)
        words = ["--count", 800, "--spacing-us", 60, "--arrivals", "poisson", "--seed", seed, "--late", "catch-up"]
        summary = a.test("stream", b, *words, "-o", folder)
        sent = read_log(folder, summary, 0, "sent")
        # With catch-up the plan is what was sent less its lateness.
        plan = sent["send_ns"] - sent["lateness_ns"]
        planned.append(np.diff(plan))
    assert np.abs(planned[0] - planned[1]).max() <= 2
    assert np.abs(planned[0] - planned[2]).max() > 1000
    assert planned[0].mean() == pytest.approx(60_000, rel=0.15)  # 4 sigma of 800 intervals
    # Exponential: the deviation equals the mean, and e^-1 of the intervals are longer than it.
    assert planned[0].std() == pytest.approx(60_000, rel=0.25)
    assert np.mean(planned[0] > 60_000) == pytest.approx(np.exp(-1), abs=0.07)


def test_bursts_and_a_file_of_times(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    words = ["--late", "catch-up", "-o", tmp_path / "burst"]
    summary = a.test("stream", b, "--count", 50, "--arrivals", "burst", "--burst", 5, "--spacing-us", 2000, *words)
    sent = read_log(tmp_path / "burst", summary, 0, "sent")
    plan = sent["send_ns"] - sent["lateness_ns"]
    assert np.array_equal(np.round((plan - plan[0]) / 1e3), np.repeat(np.arange(10) * 2000, 5))

    times = [0, 10, 10, 500.5, 4000, 4000.25]
    (tmp_path / "times").write_text("# microseconds\n" + "\n".join(map(str, times)))
    words = ["--late", "catch-up", "-o", tmp_path / "file"]
    summary = a.test("stream", b, "--times", tmp_path / "times", *words)
    sent = read_log(tmp_path / "file", summary, 0, "sent")
    plan = (sent["send_ns"] - sent["lateness_ns"]).astype(float)
    assert np.abs((plan - plan[0]) / 1e3 - times).max() <= 0.002


def test_skip_leaves_slots_empty_and_sequences_whole(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve("--max-rate-mbit", 8000)
    # A spacing no sender can keep: most slots pass before their frame.
    words = ["--count", 4000, "--spacing-us", 0.2, "--late", "skip", "--max-rate-mbit", 8000, "-o", tmp_path]
    summary = a.test("stream", b, *words)
    (flow,) = summary["points"][0]["flows"]
    assert flow["skipped"] > 0
    assert flow["sent"] + flow["skipped"] == 4000
    assert counts(flow)[1:] == (flow["sent"], 0, 0, 0, 0)
    assert np.array_equal(read_log(tmp_path, summary, 0, "sent")["sequence"], np.arange(flow["sent"]))


def test_both_directions_at_once(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    summary = a.test("stream", b, "--direction", "both", "--count", 400, "--spacing-us", 100, "-o", tmp_path)
    there, back = summary["points"][0]["flows"]
    assert ((there["from"], there["to"]), (back["from"], back["to"])) == ((0, 1), (1, 0))
    assert counts(there) == counts(back) == (400, 400, 0, 0, 0, 0)
    for node in (0, 1):
        for kind in ("sent", "received"):
            assert len(read_log(tmp_path, summary, node, kind)) == 400


def test_max_rate_and_background(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    (flow,) = a.test("max-rate", b, "--seconds", 0.3, "--sizes", 64)["points"][0]["flows"]
    assert flow["planned"] is None
    assert flow["sent"] > 0
    assert flow["sent"] == flow["received"] + flow["lost"]
    assert sum(flow["loss"].values()) == flow["lost"]
    summary = a.test("background", b, "--seconds", 0.3, "-o", tmp_path)
    (flow,) = summary["points"][0]["flows"]
    assert (flow["length_bytes"], summary["test"]["spacing_us"]) == (1500, 28)
    assert flow["sent"] == flow["received"] + flow["lost"] > 0
    assert flow["loss"]["network"] == 0
    assert summary["points"][0]["frame_logs"] == []
    # A run folder of its own, with what each node says of itself, but no log of frames.
    names = {path.name for path in tmp_path.iterdir()}
    assert {"summary.json", "run.toml"} <= names
    assert not [name for name in names if name.endswith(".npy") and "clock" not in name]


def test_a_rate_ceiling_holds(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    words = ["--seconds", 0.5, "--sizes", 1000, "--max-rate-mbit", 50]
    (flow,) = a.test("max-rate", b, *words)["points"][0]["flows"]
    # From the first frame to the last, a window of 1 ms, and one frame.
    seconds = flow["sent_rate"]["intervals"] / flow["sent_rate"]["frames_per_s"]
    assert flow["sent"] * 8 * 1038 <= 50e6 * (seconds + 0.001) + 8 * 1038


def test_one_to_many_and_many_to_one(tmp_path: Path) -> None:
    with hosts(4) as (master, *peers):
        for peer in peers:
            peer.serve("--allow-multicast")
        words = [word for peer in peers[1:] for word in ("-p", peer.mac)]
        group = ["--allow-multicast", *PATIENT, "-o", tmp_path / "o"]
        summary = master.test("one-to-many", peers[0], *words, *group, "--sizes", 500, "--count", 100)
        flows = summary["points"][0]["flows"]
        assert [(flow["from"], flow["to"]) for flow in flows] == [(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0)]
        for flow in flows:
            assert counts(flow) == (100, 100, 0, 0, 0, 0)
        answers = read_log(tmp_path / "o", summary, 0, "received")
        assert {node: int((answers["node"] == node).sum()) for node in (1, 2, 3)} == {1: 100, 2: 100, 3: 100}
        assert [trip["node"] for trip in summary["points"][0]["round_trip_us"]] == [1, 2, 3]

        summary = master.test(
            "many-to-one", peers[0], *words, "--count", 300, "--spacing-us", 200, "-o", tmp_path / "m"
        )
        flows = summary["points"][0]["flows"]
        assert [(flow["from"], flow["to"]) for flow in flows] == [(1, 0), (2, 0), (3, 0)]
        for flow in flows:
            assert counts(flow) == (300, 300, 0, 0, 0, 0)
        assert [clock["node"] for clock in summary["clocks"]] == [1, 2, 3]


def test_clock_comparison_finds_a_synthetic_error(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve("--clock-offset-us", -250_000, "--clock-drift-ppm", 80)
    summary = a.test("clock", b, "--seconds", 1.5)
    (clock,) = summary["clocks"]
    # Both hosts are this one: the truth is the error itself.
    truth_us = -250_000 + 80e-6 * clock["reference_ns"] / 1e3
    assert abs(clock["offset_us"] - truth_us) <= clock["asymmetry_bound_us"]
    assert abs(clock["drift_ppm"] - 80) <= clock["drift_bound_ppm"]
    assert clock["exchanges"] > 400, "200 before, 200 after, and some in between"


def test_latency_is_on_one_clock_whatever_the_peers_says(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve("--clock-offset-us", 1e9, "--clock-drift-ppm", -150)
    for direction in ("to-peer", "from-peer"):
        words = ["--direction", direction, "--count", 500, "--spacing-us", 500]
        (flow,) = a.test("stream", b, *words)["points"][0]["flows"]
        # Without the correction it would be 1000 s.
        assert abs(flow["latency_us"]["p50"]) < 100e6


def test_steps_wait_for_the_one_who_records(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    run_ = a.start("stream", "-p", b.mac, "--count", 10, "--step")
    run_.event("ready")
    time.sleep(2.5)  # longer than a silence: the session is kept alive meanwhile
    assert not any('"progress"' in line for line in run_.lines)
    run_.answer()
    run_.event("sent")
    assert not any('"summary"' in line for line in run_.lines)
    run_.answer()
    done = run_.end()
    assert done.status == 0, done.err
    assert counts(done.summary["points"][0]["flows"][0]) == (10, 10, 0, 0, 0, 0)
    assert [event["event"] for event in done.events if event["event"] != "progress"] == [
        "peer", "clock", "ready", "sent", "clock", "summary",
    ]  # fmt: skip


def test_interrupted_keeps_what_there_is(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    server = b.serve("--once")
    run_ = a.start("stream", "-p", b.mac, "--seconds", 30, "--spacing-us", 1000, "-o", tmp_path)
    run_.event("progress", received=100)
    run_.signal(signal.SIGINT)
    done = run_.end()
    assert done.status == 1
    assert done.summary["complete"] is False
    assert done.summary["reason"] == "interrupted"
    (flow,) = done.summary["points"][0]["flows"]
    assert flow["sent"] == flow["received"] == len(read_log(tmp_path, done.summary, 0, "sent"))
    assert np.array_equal(
        read_log(tmp_path, done.summary, 0, "sent")["sequence"],
        read_log(tmp_path, done.summary, 1, "received")["sequence"],
    )
    assert server.end().status == 0


def test_killed_leaves_readable_logs(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    run_ = a.start("stream", "-p", b.mac, "--seconds", 30, "--spacing-us", 200, "-o", tmp_path)
    path, until, written = tmp_path / "p000-node0-sent.npy", time.monotonic() + 20, 0
    while written < 100:
        assert time.monotonic() < until, "no records were written"
        time.sleep(0.05)
        written = len(np.load(path)) if path.exists() else 0
    run_.signal(signal.SIGKILL)
    run_.end(10)
    log = np.load(path)
    assert len(log) >= written
    assert np.array_equal(log["sequence"], np.arange(len(log)))
    assert not (tmp_path / "summary.json").exists()


def test_dry_run_sends_nothing(pair: tuple[Host, Host]) -> None:
    a, b = pair
    before = a.ip("-s", "-j", "link", "show", INTERFACE)
    done = a.framegen("stream", "-p", b.mac, "--sizes", "64,1500", "--count", 1000, "--spacing-us", 10, "--dry-run")
    assert done.status == 0, done.err
    (small, large) = done.events
    assert (small["event"], small["frames_at_most"], small["wire_bytes_at_most"]) == ("would_send", 1000, 102_000)
    assert (large["length_bytes"], large["wire_bytes_at_most"]) == (1500, 1_538_000)
    assert large["least_seconds"] == pytest.approx(1.538e6 * 8 / 1e9)
    after = a.ip("-s", "-j", "link", "show", INTERFACE)
    assert json.loads(before)[0]["stats64"]["tx"] == json.loads(after)[0]["stats64"]["tx"]


def test_interfaces_and_hello(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    said = json.loads(run(*a.command(framegen(), "interfaces", "--json")))["interfaces"]
    by_name = {interface["name"]: interface for interface in said}
    assert by_name["lo"]["usable"] is False
    assert by_name[INTERFACE]["usable"] is True
    assert (by_name[INTERFACE]["mac"], by_name[INTERFACE]["mtu"]) == (a.mac, 1500)
    assert by_name[INTERFACE]["driver"] == "veth"
    (event,) = a.framegen("hello", "-p", b.mac).events
    assert (event["mac"], event["host"]) == (b.mac, socket.gethostname())


def test_nothing_goes_to_who_was_not_asked_for(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    for words, says in [
        (["stream", "-p", "ff:ff:ff:ff:ff:ff"], "--allow-broadcast"),
        (["stream", "-p", "01:00:5e:00:00:01"], "--allow-multicast"),
        (["stream", "-p", "01:00:5e:00:00:01", "--allow-multicast"], "--allow-unknown"),
        (["stream", "-p", mac(77)], "no answer"),
        (["stream", "-p", a.mac], "itself"),
        (["one-to-many", "-p", b.mac], "--allow-multicast"),
        (["one-to-many", "-p", b.mac, "--allow-multicast"], "--allow-multicast"),
    ]:
        done = a.framegen(*words)
        assert done.status == 3, words
        assert says in done.err, done.err
        assert done.err.count("\n") == 1


def test_the_default_route_is_left_alone(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    a.ip("address", "add", "192.0.2.1/24", "dev", INTERFACE)
    a.ip("route", "add", "default", "via", "192.0.2.2")
    for words in (["stream", "-p", b.mac], ["serve", "--seconds", "1"]):
        done = a.framegen(*words)
        assert (done.status, "default route" in done.err) == (3, True), done.err
    a.test("stream", b, "--count", 5, "--allow-default-route")
    a.ip("route", "del", "default")
    # Nor when the route is in another table, or on an interface above this one.
    a.ip("route", "add", "default", "via", "192.0.2.2", "table", "77")
    assert "default route" in a.framegen("stream", "-p", b.mac).err
    a.ip("route", "flush", "table", "77")
    a.test("stream", b, "--count", 5)
    a.ip("link", "add", "link", INTERFACE, "name", "above", "type", "macvlan")
    a.ip("address", "add", "198.51.100.1/24", "dev", "above")
    a.ip("link", "set", "above", "up")
    a.ip("route", "add", "default", "via", "198.51.100.2")
    assert "default route" in a.framegen("stream", "-p", b.mac).err
    a.ip("link", "del", "above")
    a.ip("link", "add", "switch", "type", "bridge")
    a.ip("link", "set", INTERFACE, "master", "switch")
    a.ip("address", "add", "203.0.113.1/24", "dev", "switch")
    a.ip("link", "set", "switch", "up")
    a.ip("route", "add", "default", "via", "203.0.113.2")
    assert "default route" in a.framegen("stream", "-p", b.mac).err


def test_raw_frames_need_one_capability_and_no_root(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    words = [framegen(), "stream", "-i", INTERFACE, "-p", b.mac, "--count", "50", "--json"]
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    one = ["--inh-caps", "-all,+net_raw", "--ambient-caps", "-all,+net_raw", "--bounding-set", "-all,+net_raw"]
    none = ["--inh-caps", "-all", "--ambient-caps", "-all", "--bounding-set", "-all"]
    done = subprocess.run(a.command(*nobody, *one, *words), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])["summary"]
    assert counts(summary["points"][0]["flows"][0]) == (50, 50, 0, 0, 0, 0)
    done = subprocess.run(a.command(*nobody, *none, *words), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "cap_net_raw" in done.stderr) == (3, True), done.stderr


def test_a_stream_to_somebody_unknown_is_explicit(pair: tuple[Host, Host]) -> None:
    a, _ = pair
    summary = a.framegen("stream", "-p", mac(77), "--count", 20, "--allow-unknown").summary
    (flow,) = summary["points"][0]["flows"]
    assert (flow["sent"], flow["received"], flow["lost"]) == (20, None, None)
    assert summary["clocks"] == []


def test_bounds_of_time_frames_and_bytes(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    for words, says in [
        (["--count", 1000, "--spacing-us", 1e5], "--max-seconds"),
        (["--count", 1000, "--max-frames", 999], "frames"),
        (["--count", 1000, "--max-bytes", 50_000], "bytes"),
    ]:
        done = a.framegen("stream", "-p", b.mac, *words)
        assert done.status == 2, done.err
        assert says in done.err


def test_the_peer_has_bounds_of_its_own(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve("--max-rate-mbit", 100, "--max-frames", 5000)
    done = a.framegen("stream", "-p", b.mac, "--direction", "from-peer", "--count", 10)
    assert (done.status, "the ceiling is 100" in done.err) == (3, True), done.err
    done = a.framegen("stream", "-p", b.mac, "--count", 6000)
    assert (done.status, "5000" in done.err) == (3, True), done.err
    a.test("stream", b, "--count", 4000, "--spacing-us", 20)
