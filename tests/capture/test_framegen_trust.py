"""What a peer or a stranger says is not simply believed, and what a lost master leaves can still be fetched."""

from __future__ import annotations

import json
import signal
import struct
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hostile import LOG, SYNC, Raw, hello, protected, user_data
from lab import SCHEMA
from network import Host, hosts
from test_framegen_hostile import REPLY, Impostor, report


@pytest.fixture
def pair() -> Iterator[tuple[Host, Host]]:
    with hosts() as (a, b):
        yield a, b


COUNTS = {"received": 1000, "duplicated": 0, "reordered": 0, "corrupt": 0, "unplanned": 0}


def received(count: int, first_ns: int, last_ns: int) -> list[dict[str, Any]]:
    counts = {**COUNTS, "received": count}
    return [{"stream": 1, "counts": counts, "first_ns": first_ns, "last_ns": last_ns}]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (received(1000, 0, 10**6), "1000 frames received of 10 sent"),
        (received(10, 0, -5), "10 frames in"),
        (received(10, -(2**63), 2**63 - 1), "10 frames in"),
    ],
)
def test_a_report_that_cannot_be_true_is_refused(pair: tuple[Host, Host], said: Any, words: str) -> None:
    a, b = pair
    with Raw(b) as raw:
        run = a.start("stream", "-p", b.mac, "--count", 10)
        Impostor(raw, a, {"stop": {"stopped": report(received=said)}}).serve(run)
    done = run.end()
    assert done.status == 1
    assert f"peer {b.mac}: implausible: {words}" in done.summary["reason"]
    flow = done.summary["points"][0]["flows"][0]
    assert (flow["received"], flow["lost"], flow["received_rate"]) == (None, None, None)


def test_a_forged_frame_of_another_version_stops_no_handshake(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    over = threading.Event()
    with Raw(b) as raw:

        def forge() -> None:
            while not over.is_set():
                raw.send(a.mac, hello(session=0, number=0, flags=REPLY, version=2))
                time.sleep(0.0005)

        forging = threading.Thread(target=forge)
        forging.start()
        try:
            a.test("stream", b, "--count", 50)
        finally:
            over.set()
            forging.join()


def test_a_name_with_line_ends_forges_no_line(pair: tuple[Host, Host]) -> None:
    a, b = pair
    identity = {"program": "0", "host": "x\ncomplete\r", "kernel": "k", "interface": "i\n", "mtu": 1500}
    with Raw(b) as raw:
        run = a.start("stream", "-p", b.mac, "--count", 10)
        Impostor(raw, a, {"hello": {"welcome": identity}}).serve(run)
    done = run.end()
    peer = next(event for event in done.events if event["event"] == "peer")
    assert (peer["host"], peer["interface"]) == ("x?complete?", "i?")


def test_a_flood_of_hellos_locks_nobody_out(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    over = threading.Event()
    with Raw(a) as raw:

        def flood() -> None:
            number = 0
            while not over.is_set():
                number += 1
                raw.send(b.mac, hello(session=0, number=number), source=f"02:00:00:00:01:{number % 8:02x}")
                time.sleep(0.0002)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            for _ in range(3):
                a.test("stream", b, "--count", 20, "--spacing-us", 1000)
        finally:
            over.set()
            flooding.join()


def test_a_peer_that_never_ends_is_ended(pair: tuple[Host, Host]) -> None:
    a, b = pair
    with Raw(b) as raw:
        run = a.start("stream", "-p", b.mac, "--direction", "from-peer", "--count", 10, "--max-seconds", 1)
        Impostor(raw, a, {}).serve(run)
    done = run.end()
    assert done.status == 1
    assert "--max-seconds" in done.summary["reason"]


def test_a_signal_ends_a_fetch_that_dawdles(pair: tuple[Host, Host]) -> None:
    a, b = pair
    asked: list[int] = []

    def one_record(number: int) -> bytes:
        asked.append(number)
        return user_data(LOG, protected(bytes(36)), flags=REPLY, session=7, number=number)

    stopped = report(received_records=9000, received=received(10, 0, 10**6))
    with Raw(b) as raw:
        run = a.start("stream", "-p", b.mac, "--count", 8000, "--spacing-us", 10)
        peer = Impostor(raw, a, {"stop": {"stopped": stopped}, "fetch": one_record})
        serving = threading.Thread(target=peer.serve, args=(run,))
        serving.start()
        until = time.monotonic() + 20
        while len(asked) < 5:
            assert time.monotonic() < until
            time.sleep(0.01)
        run.signal(signal.SIGINT)
        done = run.end()
        serving.join()
    assert (done.status, "interrupted" in done.summary["reason"]) == (1, True)


def test_records_outlive_their_master(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    server = b.serve()
    run = a.start("stream", "-p", b.mac, "--seconds", 30, "--spacing-us", 500, "-o", tmp_path / "killed")
    run.event("progress", received=200)
    run.signal(signal.SIGKILL)
    run.end(5)
    lost = server.event("lost")
    done = a.framegen("fetch", "-p", b.mac, "-o", tmp_path / "fetched")
    assert done.status == 0, done.err
    log = np.load(tmp_path / "fetched/p000-node1-received.npy")
    assert len(log) == lost["report"]["received_records"] >= 200
    sent = np.load(tmp_path / "killed/p000-node0-sent.npy")
    assert np.array_equal(sent["send_ns"], log["send_ns"][: len(sent)])
    kept = json.loads((tmp_path / "fetched/p000-node1-recalled.json").read_text())
    assert (kept["node"], kept["report"]["fault"]) == (1, "the master has been silent")
    # It is kept until it was fetched, and the node is free for the next test.
    again = a.framegen("fetch", "-p", b.mac, "-o", tmp_path / "again")
    assert (again.status, "no records" in again.err) == (3, True)
    a.test("stream", b, "--count", 50)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("a key of more than sixteen bytes\n")
    return path


def test_with_a_key_the_test_is_the_same(pair: tuple[Host, Host], key: Path, tmp_path: Path) -> None:
    a, b = pair
    b.serve("--key", key)
    summary = a.test("stream", b, "--count", 3000, "--spacing-us", 50, "--key", key, "-o", tmp_path / "run")
    assert summary["points"][0]["flows"][0]["received"] == 3000
    assert len(np.load(tmp_path / "run/p000-node1-received.npy")) == 3000
    a.test("ping-pong", b, "--count", 50, "--key", key)


def test_without_the_key_nobody_is_answered(pair: tuple[Host, Host], key: Path, tmp_path: Path) -> None:
    a, b = pair
    server = b.serve("--key", key)
    other = tmp_path / "other"
    other.write_text("another key, as long as it must be")
    for options in ([], ["--key", other]):
        done = a.framegen("stream", "-p", b.mac, "--count", 5, *options)
        assert (done.status, "no answer" in done.err) == (3, True)
    with Raw(a) as raw:
        for version in (1, 2):
            raw.send(b.mac, hello(session=0, number=1, version=version))
        with pytest.raises(TimeoutError):
            raw.receive(timeout=0.5)
    assert [json.loads(line)["event"] for line in server.lines] == ["listening"]
    (tmp_path / "short").write_text("short")
    assert a.framegen("stream", "-p", b.mac, "--key", tmp_path / "short").status == 2


def test_a_session_is_not_hijacked_by_who_hears_it(pair: tuple[Host, Host], key: Path) -> None:
    """Its number goes in clear: with a key, knowing it is not enough, and what was heard cannot be said again."""
    a, b = pair
    b.serve("--key", key)
    run = a.start("stream", "-p", b.mac, "--count", 1500, "--spacing-us", 1000, "--key", key)
    with Raw(b) as listening, Raw(a) as raw:
        run.event("progress", received=50)
        heard = []
        while len(heard) < 2:
            frame = listening.receive()
            if frame[19] == SYNC:
                heard.append(frame)
        session, number = struct.unpack(">I", heard[-1][22:26])[0], struct.unpack(">I", heard[-1][30:34])[0]
        for later in range(1, 2000, 13):
            content = protected(b'"stop"')
            raw.send(b.mac, user_data(1, content, session=session, number=number + later))
            raw.send(b.mac, user_data(1, content + bytes(16), session=session, number=number + later))
        for frame in heard:
            raw.socket.send(frame)
    done = run.end()
    assert done.status == 0, done.err
    assert done.summary["points"][0]["flows"][0]["received"] == 1500


def test_an_output_folder_is_a_run_folder(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    a.test("ping-pong", b, "--count", 50, "--sizes", "64,1500", "--timeout-ms", 10_000, "-o", tmp_path)
    described = tomllib.loads((tmp_path / "run.toml").read_text())
    jsonschema.validate(described, SCHEMA)
    assert [host["node"] for host in described["hosts"].values()] == [0, 1]
    assert len(described["frame_logs"]) == 8
    exchanges = np.load(tmp_path / described["clock_exchanges"][0]["file"])
    assert len(exchanges) >= 400
    trip = (exchanges["reply_received_ns"] - exchanges["request_sent_ns"]) - (
        exchanges["reply_sent_ns"] - exchanges["request_received_ns"]
    )
    assert np.median(trip) > 0


def test_every_host_says_what_it_is_and_counts(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    a.test("stream", b, "--count", 400, "--spacing-us", 50, "-o", tmp_path)
    described = tomllib.loads((tmp_path / "run.toml").read_text())
    assert [entry["host"] for entry in described["host_states"]] == ["node0", "node1"]
    for node, entry in enumerate(described["host_states"]):
        before, after = (json.loads((tmp_path / entry[key]).read_text()) for key in ("before", "after"))
        assert before["facts"]["interface"]["mac"] == (a, b)[node].mac
        assert before["facts"]["kernel"]
        assert "facts" not in after
        assert sum(after["cpu_ms"].values()) >= sum(before["cpu_ms"].values())
        assert after["interrupts_total"] >= before["interrupts_total"]
        packets = ("tx_packets", "rx_packets")[node]
        assert after["interface"][packets] - before["interface"][packets] >= 400


def test_round_trips_as_histograms(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    b.serve()
    words = ["--count", 2000, "--sizes", "64,1000", "--histogram-ns", 20, "--timeout-ms", 10_000, "-o", tmp_path]
    summary = a.test("request-response", b, *words)
    described = tomllib.loads((tmp_path / "run.toml").read_text())
    jsonschema.validate(described, SCHEMA)
    assert described["frame_logs"] == []
    assert described["histograms"] == [{"file": "histograms.npy", "quantity": "round_trip", "bin_ns": 20}]
    bins = np.load(tmp_path / "histograms.npy")
    assert bins.dtype.names == ("point", "length_bytes", "node", "stream", "low_ns", "count")
    assert (bins["low_ns"] % 20 == 0).all()
    for point in summary["points"]:
        mine = bins[bins["point"] == point["point"]]
        assert mine["count"].sum() == point["flows"][1]["received"] == 2000
        # Between the two in the middle, each somewhere in its bin.
        low, high = mine["low_ns"][np.searchsorted(np.cumsum(mine["count"]), [1000, 1001])] / 1e3
        assert low - 0.001 <= point["round_trip_us"][0]["p50"] <= high + 0.021
        assert not any("unlogged" in reason for node in point["quality"] for reason in node["reasons"])
    assert a.framegen("stream", "-p", b.mac, "--histogram-ns", 20).status == 2
