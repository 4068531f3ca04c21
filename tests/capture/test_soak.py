"""Hostile frames for as long as one likes (``make soak``: an hour): no test ends, no stranger is sent a frame."""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from pathlib import Path

import pytest
from hostile import Raw, control, hello
from network import hosts
from test_framegen_hostile import garbage

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
STRANGERS = [f"02:00:00:00:00:{number:02x}" for number in range(0x60, 0x70)]


def nasty(chance: random.Random, heard: list[bytes]) -> bytes:
    """Noise, what was heard said again, and control messages for a session whose number was heard."""
    match chance.randrange(4):
        case 0:
            return garbage(chance)
        case 1:
            return hello(session=chance.getrandbits(32), number=chance.getrandbits(32), version=chance.choice([1, 2]))
        case 2 if heard:
            return chance.choice(heard)[14:]
        case _:
            frame = chance.choice(heard) if heard else bytes(64)
            session, number = struct.unpack(">I", frame[22:26])[0], struct.unpack(">I", frame[30:34])[0]
            words = chance.choice(["stop", "start", "release", "claim", "recall"])
            return control(words, session=session, number=(number + chance.randrange(-2, 50)) % 2**32)


@pytest.mark.timeout(SECONDS + 240)
def test_a_soak_in_hostile_frames(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(random.Random(1).randbytes(32))
    over = threading.Event()
    for_strangers: list[bytes] = []
    with hosts() as (a, b):
        server = b.serve("--key", key)
        addresses = {bytes.fromhex(mac.replace(":", "")) for mac in STRANGERS}
        heard: list[bytes] = []

        def listen(raw: Raw) -> None:
            while not over.is_set():
                try:
                    frame = raw.receive(timeout=0.2)
                except TimeoutError:
                    continue
                if frame[:6] in addresses:
                    for_strangers.append(frame)
                elif frame[19] < 16:
                    heard[:] = [*heard[-200:], frame]

        def attack(raw: Raw, other: str, seed: int) -> None:
            chance = random.Random(seed)
            while not over.is_set():
                raw.send(other, nasty(chance, heard), source=chance.choice([*STRANGERS, None]))
                time.sleep(0.0005)

        with Raw(a) as at_b, Raw(b) as at_a:
            threads = [
                threading.Thread(target=listen, args=(at_b,)),
                threading.Thread(target=attack, args=(at_b, b.mac, 1)),
                threading.Thread(target=attack, args=(at_a, a.mac, 2)),
            ]
            for thread in threads:
                thread.start()
            tests = 0
            try:
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:
                    kind = ("stream", "ping-pong")[tests % 2]
                    summary = a.test(kind, b, "--count", 500, "--spacing-us", 500, "--key", key)
                    for flow in summary["points"][0]["flows"]:
                        assert flow["loss"]["network"] == 0
                    tests += 1
            finally:
                over.set()
                for thread in threads:
                    thread.join()
        assert server.process.poll() is None
    assert tests > 0
    assert for_strangers == []
