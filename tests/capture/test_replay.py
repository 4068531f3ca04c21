"""The emulated BeagleLogic: acquired by the real sigrok-cli, and talked to by strangers."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lab import LINES, bus_samples, needed, noise, pcicap, read_run, replay_plan, write_sr
from pcicap.analysers import sigrok_cli
from pcicap.errors import CaptureFileError
from pcicap.replay_server import Fault, ReplayServer
from pcicap.replay_source import ReplaySource, open_source

SAMPLES = bus_samples(200_000)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sr(tmp_path_factory.mktemp("replay") / "bus.sr", SAMPLES.tobytes(), chunks=[1001, 130_003])


@contextlib.contextmanager
def serving(source: ReplaySource, **options: object) -> Iterator[str]:
    server = ReplayServer(source, **options)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server.conn
    finally:
        server.close()
        thread.join()


def acquire(conn: str, count: int, *options: str) -> bytes:
    """What sigrok-cli acquires, without pcicap."""
    command = [
        needed("sigrok-cli"),
        "-d",
        f"beaglelogic:conn={conn}",
        *options,
        "--samples",
        str(count),
        "-O",
        "binary",
    ]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True).stdout


def test_sigrok_acquires_every_byte_every_time(capture: Path) -> None:
    with serving(open_source(capture)) as conn:
        for _ in range(100):
            assert acquire(conn, len(SAMPLES)) == SAMPLES.tobytes()


def test_odd_pieces_are_no_fault(capture: Path) -> None:
    with serving(open_source(capture), fault=Fault.ODD) as conn:
        assert acquire(conn, len(SAMPLES)) == SAMPLES.tobytes()


def test_channels_are_chosen_and_ordered(tmp_path: Path) -> None:
    wide = np.random.default_rng(5).integers(0, 256, (30_000, 5), np.uint8)
    names = [f"L{bit}" for bit in range(40)]
    path = write_sr(tmp_path / "wide.sr", wide.tobytes(), names=names, unit_size=5, chunks=[7, 10_001])
    chosen = [39, 0, 17, 8, 25, 1, 33, 7, 16, 31, 12]
    bits = np.unpackbits(wide, axis=1, bitorder="little")
    expected = sum(bits[:, bit].astype(np.uint16) << position for position, bit in enumerate(chosen))
    with serving(open_source(path, [names[bit] for bit in chosen])) as conn:
        assert acquire(conn, len(wide)) == np.asarray(expected, "<u2").tobytes()
    with serving(open_source(path, [names[bit] for bit in chosen[:8]])) as conn:
        data = acquire(conn.replace("127.0.0.1/", "127.0.0.1/") + ":logic_channels=8", len(wide))
        assert data == (np.asarray(expected) & 0xFF).astype(np.uint8).tobytes()
    with pytest.raises(CaptureFileError, match="40 channels and a BeagleLogic 14; choose"):
        open_source(path)
    with pytest.raises(CaptureFileError, match="no channel X"):
        open_source(path, ["L1", "X"])
    with pytest.raises(CaptureFileError, match="twice"):
        open_source(path, ["L1", "L1"])


@pytest.mark.parametrize(
    ("rate", "said"),
    [("200 MHz", "200 MS/s.*100 MS/s or less"), (None, "no sample rate; give it with --rate-hz"), ("0", "positive")],
)
def test_rates_that_cannot_be_served(tmp_path: Path, rate: str | None, said: str) -> None:
    path = write_sr(tmp_path / "a.sr", SAMPLES[:100].tobytes(), rate=rate)
    with pytest.raises(CaptureFileError, match=said):
        open_source(path)
    done = pcicap("replay", path)
    assert done.status == 3
    assert len(done.err.splitlines()) == 1


def test_a_rate_can_be_given(tmp_path: Path) -> None:
    path = write_sr(tmp_path / "a.sr", SAMPLES[:100].tobytes(), rate=None)
    assert open_source(path, rate_hz=33_333_333).rate_hz == 33_333_333


def test_run_folder_tells_the_origin(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    path = write_sr(tmp_path / "captures/a.sr", SAMPLES[:100].tobytes(), rate=None)
    (tmp_path / "run.toml").write_text(
        'format = 1\norigin = "simulated"\n[[captures]]\nfile = "captures/a.sr"\nclock_mhz = 33.0\n'
    )
    for given in (tmp_path, path):
        source = open_source(given)
        assert (source.origin, source.rate_hz, source.clock_mhz) == ("simulated", 33_000_000, 33.0)
    (tmp_path / "plan.toml").write_text(replay_plan(tmp_path))
    assert pcicap("record", tmp_path / "plan.toml", "-o", tmp_path / "again").status == 0
    (entry,) = read_run(tmp_path / "again")["captures"]
    assert entry["clock_mhz"] == 33.0, "samples that are clocks stay that"
    assert "rate_hz" not in entry
    (tmp_path / "run.toml").write_text("format = 1")
    with pytest.raises(CaptureFileError, match="not a run folder"):
        open_source(tmp_path)


def test_paced(tmp_path: Path) -> None:
    path = write_sr(tmp_path / "a.sr", noise(250_000).tobytes(), rate="1 MHz")
    with serving(open_source(path), paced=True) as conn:
        begun = time.monotonic()
        assert len(acquire(conn, 250_000, "-c", "samplerate=1000000")) == 500_000
        assert time.monotonic() - begun > 0.2


def test_loop_goes_on(capture: Path) -> None:
    with serving(open_source(capture), loop=True) as conn:
        assert acquire(conn, 450_000) == (SAMPLES.tobytes() * 3)[:900_000]


def test_the_command_line_says_where(capture: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pcicap", "replay", str(capture), "--json", "--channels", "A_CLK,A_FRAME#"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        facts = json.loads(process.stdout.readline())
        conn = facts.pop("conn")
        assert facts["channels"] == ["A_CLK", "A_FRAME#"]
        assert facts["samples"] == len(SAMPLES)
        assert facts["source_origin"] == "unknown"
        assert len(acquire(conn + ":logic_channels=8", 1000)) == 1000
        process.terminate()
        assert process.wait(60) == 0


def _talk(conn: str, sent: bytes, ends: bytes | int = b"\n", silence_s: float = 60) -> bytes:
    """What is answered until it ends so, or is so long; what comes then for a moment is heard, too."""
    _, host, port = conn.split("/")
    with socket.create_connection((host, int(port)), 60) as peer:
        heard = b""
        with contextlib.suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
            peer.sendall(sent)
            while True:
                over = len(heard) >= ends if isinstance(ends, int) else heard.endswith(ends)
                peer.settimeout(min(0.3, silence_s) if over else silence_s)
                if not (data := peer.recv(1 << 16)):
                    break
                heard += data
    return heard


def test_the_protocol(capture: Path) -> None:
    with serving(open_source(capture)) as conn:
        assert _talk(conn, b"version\n").startswith(b"BeagleLogic 1.0")
        assert (
            _talk(conn, b"samplerate\nsampleunit\nsampleunit 1\nsampleunit\n", b"ok\n1\n") == b"100000000\n0\nok\n1\n"
        )
        assert _talk(conn, b"samplerate 50000000\n").startswith(b"error")
        assert int(_talk(conn, b"memalloc\n")) > 1 << 30
        assert json.loads(_talk(conn, b"replay\n"))["channels"] == LINES
        stopped = _talk(conn, b"get\nclose\nversion\n", b"pcicap-replay\n")
        assert stopped.endswith(b"BeagleLogic 1.0 pcicap-replay\n"), (
            "close ends the samples, the device goes on listening"
        )


def test_strangers_do_no_harm(capture: Path) -> None:
    chance = random.Random(7)
    with serving(open_source(capture)) as conn:
        for _ in range(60):
            words = [
                b"get",
                b"close",
                b"samplerate",
                b"sampleunit",
                b"\xff\x00",
                b"9" * 50,
                b" ",
                b"\n",
                b"\r\n",
                b"version",
            ]
            _talk(conn, b"".join(chance.choice(words) for _ in range(chance.randrange(12))) + b"\n", silence_s=0.02)
        assert _talk(conn, b"x" * 100_000) == b"", "a line that never ends is cut off"
        assert acquire(conn, len(SAMPLES)) == SAMPLES.tobytes()


def test_a_device_that_answers_late_is_asked_again(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reply, delays = ReplayServer._reply, [1.5]

    def late(server: ReplayServer, values: dict[str, int], command: str, argument: str) -> str:
        if delays:
            time.sleep(delays.pop())
        return reply(server, values, command, argument)

    monkeypatch.setattr(ReplayServer, "_reply", late)
    with serving(open_source(capture)) as conn:
        assert sigrok_cli.show("beaglelogic", conn, {}).model.startswith("BeagleLogic")
    assert delays == [], "libsigrok's second was over"


@pytest.mark.parametrize("fault", ["stall-before", "stall", "close", "reset", "short"])
def test_faults_send_what_they_say(capture: Path, fault: str) -> None:
    total = 2 * len(SAMPLES)
    expected = {"stall-before": 0, "stall": total // 2, "close": total // 2, "short": total - 3}
    with serving(open_source(capture), fault=Fault(fault)) as conn:
        heard = _talk(conn, b"get\n", expected.get(fault, total))
    assert heard == SAMPLES.tobytes()[: len(heard)]
    if fault == "reset":  # what the reader had not taken yet is gone with the connection
        assert len(heard) <= total // 2
    else:
        assert len(heard) == expected[fault]
