"""Everything that goes wrong with an analyser, a disk or the recorder: bounded in time, nothing lost, nothing left."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import textwrap
import time
from pathlib import Path

import pytest
from lab import Pcicap, bus_samples, needed, noise, pcicap, read_run, record, replay_plan, sr_bytes, write_sr
from pcicap.runfolder import KILLED
from pcicap.srfile import read_info

SAMPLES = bus_samples(300_000)
TIMEOUTS = "[analysers.timeouts]\nfirst_data_s = 3.0\nidle_s = 3.0\ntotal_s = 40.0\n"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sr(tmp_path_factory.mktemp("source") / "bus.sr", SAMPLES.tobytes())


@pytest.mark.parametrize(
    ("fault", "samples", "reason"),
    [
        ("stall-before", 0, "no data within 3 s"),
        ("stall", 150_000, "no data for 3 s"),
        ("close", 150_000, "150000 of 300000 samples"),
        ("reset", None, "no data|of 300000 samples"),
        ("short", 299_998, "299998 of 300000 samples"),
    ],
)
def test_faulty_analyser(tmp_path: Path, capture: Path, fault: str, samples: int | None, reason: str) -> None:
    done, folder = record(tmp_path, replay_plan(capture, analyser=TIMEOUTS, replay=f'fault = "{fault}"'), timeout=60)
    assert (done.status, folder.exists()) == (4, True), done.err
    run = read_run(folder)
    assert run["complete"] is False
    assert re.search(reason, run["reason"])
    assert run["reason"] in done.err
    (entry,) = run["captures"]
    assert entry["complete"] is False
    kept = sr_bytes(folder / "captures/la.sr")
    assert kept == SAMPLES.tobytes()[: len(kept)]
    assert entry["samples"] * 2 == len(kept)
    if samples is not None:
        assert entry["samples"] == samples
    else:
        assert entry["samples"] <= 150_000, "a reset may take what was not read yet"


def test_odd_pieces_are_no_fault(tmp_path: Path, capture: Path) -> None:
    done, folder = record(tmp_path, replay_plan(capture, replay='fault = "odd"'))
    assert done.status == 0, done.err
    assert sr_bytes(folder / "captures/la.sr") == SAMPLES.tobytes()


def test_refusing_analyser_leaves_no_folder(tmp_path: Path, capture: Path) -> None:
    done, _ = record(tmp_path, replay_plan(capture, replay='fault = "refuse"'), timeout=60)
    assert done.status == 4
    assert "is it plugged in" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.toml"]


def test_a_capture_that_is_too_fast(tmp_path: Path) -> None:
    path = write_sr(tmp_path / "fast.sr", SAMPLES[:100].tobytes(), rate="200 MHz")
    done, _ = record(tmp_path, replay_plan(path))
    assert done.status == 4
    assert "200 MS/s" in done.err


def test_no_sigrok_cli(tmp_path: Path, capture: Path) -> None:
    done, _ = record(tmp_path, replay_plan(capture), path="/nowhere")
    assert done.status == 4
    assert "apt install sigrok-cli" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    source = write_sr(tmp_path / "slow.sr", noise(8_000_000).tobytes(), rate="1 MHz")
    (tmp_path / "plan.toml").write_text(replay_plan(source, replay="paced = true"))
    running = Pcicap("record", tmp_path / "plan.toml", "-o", tmp_path / "run")
    _wait_for_samples(tmp_path / "run.partial/captures/la.sr")
    running.kill(number)
    done = running.done()
    assert done.status == 4
    run = read_run(tmp_path / "run")
    assert run["reason"] == f"interrupted by {number.name}"
    kept = sr_bytes(tmp_path / "run/captures/la.sr")
    assert len(kept) >= 100_000
    assert noise(8_000_000).tobytes().startswith(kept)


def _wait_for_samples(path: Path) -> None:
    until = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > 400_000):
        assert time.monotonic() < until, "no samples came"
        time.sleep(0.01)


def test_recover(tmp_path: Path) -> None:
    """The recorder and its warden killed at once, as by a power cut."""
    source = write_sr(tmp_path / "slow.sr", noise(8_000_000).tobytes(), rate="1 MHz")
    (tmp_path / "plan.toml").write_text(replay_plan(source, replay="paced = true"))
    running = Pcicap("record", tmp_path / "plan.toml", "-o", tmp_path / "run")
    _wait_for_samples(tmp_path / "run.partial/captures/la.sr")
    for pid in sorted(running.left(), reverse=True):
        os.kill(pid, signal.SIGKILL)
    assert running.done().status == -signal.SIGKILL
    again = pcicap("record", tmp_path / "plan.toml", "-o", tmp_path / "run")
    assert again.status == 4
    assert f"pcicap recover {tmp_path / 'run.partial'}" in again.err
    done = pcicap("recover", tmp_path / "run.partial")
    assert done.status == 0, done.err
    run = read_run(tmp_path / "run")
    assert (run["complete"], run["reason"]) == (False, KILLED)
    kept = sr_bytes(tmp_path / "run/captures/la.sr")
    assert len(kept) == 2 * run["captures"][0]["samples"] > 200_000
    assert noise(8_000_000).tobytes().startswith(kept)
    assert pcicap("recover", tmp_path / "run").status == 4


def _private_mounts() -> list[str]:
    unshare = needed("unshare")
    return [unshare, "--mount"] if os.geteuid() == 0 else [unshare, "--mount", "--map-root-user"]


def test_disk_full(tmp_path: Path) -> None:
    data = noise(8_000_000).tobytes()
    source = write_sr(tmp_path / "big.sr", data, rate="20 MHz")
    (tmp_path / "plan.toml").write_text(replay_plan(source, analyser=TIMEOUTS))
    small = tmp_path / "small"
    small.mkdir()
    mount, keep = f'mount -t tmpfs -o size=11m tmpfs "{small}"', f'cp -a "{small}/run" "{tmp_path}/kept"'
    script = f'{mount}; "$@"; status=$?; {keep}; exit $status'
    done = pcicap(
        "record", tmp_path / "plan.toml", "-o", small / "run", before=[*_private_mounts(), "sh", "-c", script, "sh"]
    )
    assert done.status == 4
    assert "No space left" in done.err
    run = read_run(tmp_path / "kept")
    assert "No space left" in run["reason"]
    kept = sr_bytes(tmp_path / "kept/captures/la.sr")
    assert len(kept) == 2 * run["captures"][0]["samples"]
    assert len(kept) >= 4_000_000, "what had found room is kept"
    assert data.startswith(kept)


def fake_sigrok(folder: Path, acquisition: str) -> str:
    """A PATH with a sigrok-cli whose device is clocked from outside, and whose acquisition is this Python code."""
    program = folder / "bin/sigrok-cli"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent("""
        import os, signal, sys, time
        arguments = sys.argv[1:]
        if "--version" in arguments:
            print("sigrok-cli 0.7.2")
        elif "--show" in arguments:
            print("Driver functions:\\n    Logic analyzer")
            print("box - Clocked Box with 8 channels: 0 1 2 3 4 5 6 7")
            print("Supported configuration options:\\n    continuous: on, off\\n    external_clock: on, off (current)")
            print("    clock_edge: r (current), f")
        elif "--get" in arguments:
            print("90909090")
        else:
            say = lambda text: print(text, file=sys.stderr, flush=True)
            logic = "cli: Received SR_DF_LOGIC (%d bytes, unitsize = 1)."
            data = lambda part: (say(logic % len(part)), os.write(1, part))
            with open(os.path.join(os.path.dirname(__file__), "arguments"), "w") as file:
                file.write("\\n".join(arguments))
        """)
        + textwrap.indent(textwrap.dedent(acquisition), "    ")
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"{program.parent}:{os.environ['PATH']}"


STATE_MODE = (
    """
format = 1
[[analysers]]
name = "la"
driver = "box"
clock_mhz = 33.333
config = { external_clock = "on", clock_edge = "r" }
samples = 1000
"""
    + TIMEOUTS
    + """
[analysers.channels]
0 = "CLK"
1 = "FRAME#"
2 = "IRDY#"
3 = "TRDY#"
[hosts.A]
clock_mhz = 33.333
"""
)
HEADER = 'say("cli: Received SR_DF_HEADER.")\n'
END = 'say("cli: Received SR_DF_END.")\n'


def test_state_mode(tmp_path: Path) -> None:
    path = fake_sigrok(tmp_path, HEADER + "data(bytes(600)); data(bytes(400))\n" + END)
    done, folder = record(tmp_path, STATE_MODE, path=path)
    assert done.status == 0, done.err
    (entry,) = read_run(folder)["captures"]
    assert entry["clock_mhz"] == 33.333
    assert "rate_hz" not in entry
    arguments = (tmp_path / "bin/arguments").read_text().splitlines()
    assert arguments[arguments.index("-c") + 1] == "external_clock=on:clock_edge=r"
    assert arguments[arguments.index("-C") + 1] == "0=CLK,1=FRAME#,2=IRDY#,3=TRDY#"


def test_the_rate_that_is_taken_is_the_rate_that_is_written(tmp_path: Path) -> None:
    path = fake_sigrok(tmp_path, HEADER + "data(bytes(1000))\n" + END)
    timing = STATE_MODE.replace("clock_mhz = 33.333\nconfig", "rate_hz = 100_000_000\nconfig", 1)
    done, folder = record(tmp_path, timing, path=path)
    assert done.status == 0, done.err
    assert "at 90.9091 MS/s (100 MS/s were asked for)" in done.err
    (entry,) = read_run(folder)["captures"]
    assert entry["rate_hz"] == 90909090
    assert entry["analyser"]["settings"]["requested_rate_hz"] == 100_000_000
    assert read_info(folder / "captures/la.sr").rate_hz == 90909090


def test_an_option_the_device_does_not_have(tmp_path: Path) -> None:
    path = fake_sigrok(tmp_path, "")
    done, _ = record(tmp_path, STATE_MODE.replace("clock_edge", "clock_egde"), path=path)
    assert done.status == 4
    assert "no option clock_egde" in done.err


@pytest.mark.parametrize(
    ("acquisition", "samples", "reason"),
    [
        (HEADER + "data(bytes(1000))\n", 1000, "the analyser went away"),
        (HEADER + "data(bytes(999))\n" + END, 999, "999 of 1000 samples"),
        (
            HEADER + 'data(bytes(10)); say("sr: [00:00.1] box: USB transfer failed.")\n',
            10,
            "10 of 1000 samples: box: USB transfer failed",
        ),
        (HEADER + "data(bytes(1000))\n" + END + "time.sleep(60)\n", 1000, "ended by force"),
        (HEADER + "data(bytes(1000))\nos.write(1, b'x')\n" + END, 1001, "1000 bytes were announced and 1001 arrived"),
        (HEADER + "os.write(1, bytes(1000))\ntime.sleep(60)\n", 0, "without saying how many bytes"),
        (HEADER + "signal.signal(2, signal.SIG_IGN)\ndata(bytes(500))\nwhile True: pass\n", 500, "no data for 3 s"),
        (HEADER + "while True: data(bytes(10)); time.sleep(0.1)\n", None, "not finished after 4 s"),
    ],
)
def test_a_child_that_lies(tmp_path: Path, acquisition: str, samples: int | None, reason: str) -> None:
    path = fake_sigrok(tmp_path, acquisition)
    plan = STATE_MODE.replace("total_s = 40.0", "total_s = 4.0") if samples is None else STATE_MODE
    done, folder = record(tmp_path, plan, path=path, timeout=60)
    assert done.status == 4
    run = read_run(folder)
    assert reason in run["reason"]
    assert samples in (None, run["captures"][0]["samples"])
    assert len(sr_bytes(folder / "captures/la.sr")) == run["captures"][0]["samples"]


def test_a_child_that_never_starts(tmp_path: Path) -> None:
    path = fake_sigrok(tmp_path, 'say("sr: [00:00.2] box: Firmware upload failed.")\n')
    done, folder = record(tmp_path, STATE_MODE, path=path, timeout=60)
    assert done.status == 4
    assert "Firmware upload failed" in read_run(folder)["reason"]
