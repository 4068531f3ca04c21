"""A hostile peer does no harm: garbage, floods, replays, wrong lengths, wrong answers."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import CONTROL, DATA, LOG, RESPONSE, SYNC, Raw, control, hello, message, protected, user_data
from network import Host, Running, hosts

REPLY = 1


@pytest.fixture
def pair() -> Iterator[tuple[Host, Host]]:
    with hosts() as (a, b):
        yield a, b


def events(server: Running) -> list[str]:
    return [json.loads(line)["event"] for line in server.lines]


def garbage(chance: random.Random) -> bytes:
    """User data that is wrong in one way or another."""
    payload = chance.randbytes(chance.randrange(0, 1400))
    kind = chance.choice([CONTROL, SYNC, LOG, DATA, RESPONSE, 0, 77, 255])
    session, number = chance.getrandbits(32), chance.getrandbits(32)
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(46, 1500))
        case 1:
            return user_data(kind, payload, session=session, number=number, good_crc=False)
        case 2:
            return user_data(kind, payload, session=session, number=number, length=chance.getrandbits(16))
        case 3:
            return user_data(kind, payload, session=session, number=number, flags=chance.getrandbits(16))
        case 4:
            nested = b"[" * 1300
            return control(
                chance.choice([nested, b"{}", b"null", b'{"prepare":{}}', b'"claim"x', payload]), number=number
            )
        case _:
            return user_data(kind, protected(payload), session=session, number=number, version=chance.getrandbits(8))


def test_garbage_and_floods_at_an_idle_server(pair: tuple[Host, Host]) -> None:
    a, b = pair
    server = b.serve()
    chance = random.Random(1)
    with Raw(a) as raw:
        for _ in range(20_000):
            user = garbage(chance)
            raw.send(b.mac, user, field=chance.choice([None, None, len(user) ^ 1, 0, 1500]))
        for number in range(20_000):
            raw.send(b.mac, hello(session=number, number=number))
    assert events(server) == ["listening"]
    a.test("stream", b, "--count", 50)
    (memory,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert int(memory) < 100_000


def test_answers_to_strangers_are_limited(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    with Raw(a) as raw:
        begin = time.monotonic()
        for number in range(30_000):
            raw.send(b.mac, hello(session=0, number=number))
        answers = 0
        try:
            while True:
                raw.receive(timeout=0.5)
                answers += 1
        except TimeoutError:
            pass
        seconds = time.monotonic() - begin
    assert 0 < answers <= 1000 * (seconds + 2)


def test_a_flood_during_a_test_changes_no_count(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    run = a.start("stream", "-p", b.mac, "--count", 3000, "--spacing-us", 1000)
    run.event("progress", received=100)
    chance = random.Random(2)
    sent = 0
    # From a third address, at both ends.
    with Raw(a) as at_b, Raw(b) as at_a:
        while '"summary"' not in "".join(run.lines[-1:]) and sent < 12_000:
            user = garbage(chance)
            at_b.send(b.mac, user, source="02:00:00:00:00:66")
            at_a.send(a.mac, user, source="02:00:00:00:00:66")
            sent += 1
            if sent % 20 == 0:
                time.sleep(0.001)
    done = run.end()
    assert done.status == 0, done.err
    (flow,) = done.summary["points"][0]["flows"]
    assert flow["sent"] == flow["received"] + flow["lost"] == 3000
    assert (flow["duplicated"], flow["reordered"]) == (0, 0)
    # A receiver without a CPU has no room for a flood; what it did not take is its own loss.
    assert flow["loss"]["kernel"] == flow["lost"]
    quality = done.summary["points"][0]["quality"][1]
    assert quality["foreign"] + quality["damaged"] > 0


def test_frames_replayed_change_nothing(pair: tuple[Host, Host]) -> None:
    a, b = pair
    server = b.serve()
    with Raw(b) as listening:
        a.test("stream", b, "--count", 20)
        a.test("ping-pong", b, "--count", 20)
        recorded = []
        try:
            while True:
                recorded.append(listening.receive(timeout=0.3))
        except TimeoutError:
            pass
    assert len(recorded) > 60
    before = events(server)
    with Raw(a) as raw:
        for frame in recorded:
            raw.socket.send(frame)
        time.sleep(0.5)
        # What asks for a job again binds nobody and starts nothing.
        assert events(server) == before
        run = a.start("stream", "-p", b.mac, "--count", 2000, "--spacing-us", 1500)
        run.event("progress", received=100)
        for frame in recorded:
            raw.socket.send(frame)
        # And the frames of this very test, doubled, are counted as such.
    done = run.end()
    assert done.status == 0, done.err
    (flow,) = done.summary["points"][0]["flows"]
    assert (flow["received"], flow["duplicated"], flow["lost"]) == (2000, 0, 0)


def test_frames_from_who_is_not_the_peer_are_foreign(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.serve()
    with Raw(b) as listening:
        run = a.start("stream", "-p", b.mac, "--count", 3000, "--spacing-us", 1000)
        run.event("progress", received=100)
        frame = listening.receive()
        while frame[19] != DATA:
            frame = listening.receive()
        with Raw(a) as raw:
            for _ in range(10):
                raw.send(b.mac, frame[14:], source="02:00:00:00:00:66")
            # The same frame from the right address is a copy; damaged it is corrupt.
            raw.send(b.mac, frame[14:])
            raw.send(b.mac, frame[14:-1] + bytes([frame[-1] ^ 1]))
            raw.send(b.mac, frame[14:30] + b"\xff\xff" + frame[32:])
    done = run.end()
    (flow,) = done.summary["points"][0]["flows"]
    assert (flow["received"], flow["duplicated"], flow["corrupt"], flow["lost"]) == (3000, 1, 2, 0)
    assert done.summary["points"][0]["quality"][1]["foreign"] == 10


class Impostor:
    """Answers like `framegen serve`, but with what the test gives it."""

    def __init__(self, raw: Raw, master: Host, answers: dict[str, Any]) -> None:
        self.raw, self.master, self.answers = raw, master, answers

    def serve(self, run: Running) -> None:
        """Answer until the master ends."""
        identity = {"program": "0", "host": "x\x1b[2J", "kernel": "k", "interface": "i", "mtu": 1500}
        good: dict[str, Any] = {
            "hello": {"welcome": identity}, "claim": "claimed", "prepare": "ready", "start": "started",
            "release": "released", "stop": {"stopped": report()},
        }  # fmt: skip
        until = time.monotonic() + 60
        while run.process.poll() is None:
            assert time.monotonic() < until
            try:
                frame = self.raw.receive(timeout=0.2)
            except TimeoutError:
                continue
            number, kind = int.from_bytes(frame[30:34], "big"), frame[19]
            if kind == SYNC:
                answer = self.answers.get("sync", protected(frame[34:42] + frame[34:42] + bytes(24)))
                self.raw.send(self.master.mac, user_data(SYNC, answer, flags=REPLY, session=7, number=number))
            elif kind == CONTROL:
                asked = message(frame)
                word = asked if isinstance(asked, str) else next(iter(asked))
                answer = self.answers.get(word, good.get(word))
                for part in answer if isinstance(answer, list) else [answer]:
                    if callable(part):
                        self.raw.send(self.master.mac, part(number))
                    elif part is not None:
                        self.raw.send(self.master.mac, control(part, flags=REPLY, session=7, number=number))


def report(**changes: Any) -> dict[str, Any]:
    """A report that says nothing was received."""
    interface = dict.fromkeys(
        [
            "rx_packets",
            "tx_packets",
            "rx_errors",
            "tx_errors",
            "rx_dropped",
            "tx_dropped",
            "rx_missed",
            "carrier_changes",
        ],
        0,
    )
    quality = {
        "involuntary_switches": 0, "stolen_ms": 0, "socket_drops": 0, "unstamped": 0,
        "interface": interface, "unlogged": 0, "clock": "x",
    }  # fmt: skip
    return {
        "sent": None, "received": [], "damaged": 0, "foreign": 0, "marks": 0, "quality": quality,
        "sent_records": 0, "received_records": 0, "fault": None, **changes,
    }  # fmt: skip


def pieces(number: int) -> bytes:
    """A piece of log that is no whole number of records."""
    return user_data(LOG, protected(bytes(37)), flags=REPLY, session=7, number=number)


HUGE = 2**63
COUNTS = {"received": HUGE, "duplicated": HUGE, "reordered": HUGE, "corrupt": HUGE, "unplanned": HUGE}
RECEIVED = [{"stream": 1, "counts": COUNTS, "first_ns": -(2**63), "last_ns": 2**63 - 1}]


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ({}, 0),
        ({"hello": b"\xff" * 50}, 3),
        ({"hello": "claimed"}, 3),
        ({"hello": {"refused": {"why": "busy", "text": "\x1b]0;title\x07"}}}, 3),
        ({"claim": "released"}, 3),
        ({"prepare": "started"}, 3),
        ({"start": [None]}, 3),
        ({"sync": b""}, 3),
        ({"sync": protected(b"\xff" * 40)}, 3),
        ({"stop": {"stopped": report(sent_records=HUGE, received_records=HUGE)}}, 1),
        ({"stop": {"stopped": report(received_records=1000)}, "fetch": [pieces, pieces]}, 1),
        ({"stop": {"stopped": report(received=RECEIVED)}}, 1),
        ({"stop": {"stopped": report(fault="\x1b[31m")}}, 1),
    ],
)
def test_wrong_answers_end_the_run_in_time(pair: tuple[Host, Host], answers: dict[str, Any], status: int) -> None:
    a, b = pair
    with Raw(b) as raw:
        run = a.start("stream", "-p", b.mac, "--count", 10)
        Impostor(raw, a, answers).serve(run)
    done = run.end()
    assert done.status == status, done.err
    assert "panicked" not in done.err
    assert "\x1b" not in done.err
    assert done.err.count("\n") <= 1
