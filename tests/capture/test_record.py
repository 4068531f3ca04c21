"""Recording without frames: every sample arrives, and the folder says what it is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lab import LINES, bus_samples, read_run, record, replay_plan, sr_bytes, write_sr
from pcicap.replay_server import ReplayServer
from pcicap.replay_source import open_source

SAMPLES = bus_samples(300_000)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sr(tmp_path_factory.mktemp("source") / "bus.sr", SAMPLES.tobytes())


def test_byte_for_byte(tmp_path: Path, capture: Path) -> None:
    done, run_folder = record(tmp_path, replay_plan(capture))
    assert done.status == 0, done.err
    assert sr_bytes(run_folder / "captures/la.sr") == SAMPLES.tobytes()
    run = read_run(run_folder)
    assert run["complete"] is True
    assert (run["origin"], run["source_origin"], run["frames_on_bus"]) == ("replayed", "unknown", False)
    (entry,) = run["captures"]
    assert (entry["samples"], entry["rate_hz"], entry["complete"]) == (300_000, 100_000_000, True)
    assert list(entry["analyser"]["settings"]["bits"].values()) == LINES
    assert run["hosts"]["B"] == {"capture": 0, "bus": "B"}
    assert {"pcicap", "sigrok_cli", "libsigrok", "kernel"} <= set(run["versions"])
    assert sorted(path.name for path in run_folder.iterdir()) == ["captures", "plan.toml", "run.toml"]
    assert list(tmp_path.glob("*.partial")) == []


def test_an_existing_folder_is_not_written_over(tmp_path: Path, capture: Path) -> None:
    (tmp_path / "run").mkdir()
    done, _ = record(tmp_path, replay_plan(capture))
    assert done.status == 4
    assert "exists" in done.err


@contextlib.contextmanager
def served(path: Path) -> Iterator[str]:
    server = ReplayServer(open_source(path))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server.conn
    finally:
        server.close()
        thread.join()


NAMES = [
    "P8_45",
    "P8_46",
    "P8_43",
    "P8_44",
    "P8_41",
    "P8_42",
    "P8_39",
    "P8_40",
    "P8_27",
    "P8_29",
    "P8_28",
    "P8_30",
    "P8_21",
    "P8_20",
]


def device(conn: str, more: str, name: str = "la", rate: int = 100_000_000) -> str:
    channels = "\n".join(f'{name} = "{line}"' for name, line in zip(NAMES, LINES, strict=True))
    return f"""
[[analysers]]
name = "{name}"
driver = "beaglelogic"
conn = "{conn}"
rate_hz = {rate}
{more}
[analysers.channels]
{channels}
"""


def test_a_replay_somewhere_else_is_known_as_one(tmp_path: Path, capture: Path) -> None:
    with served(capture) as conn:
        done, folder = record(tmp_path, f"format = 1\n{device(conn, 'samples = 1000')}\n[hosts.A]\n")
    assert done.status == 0, done.err
    run = read_run(folder)
    assert (run["origin"], run["source"]) == ("replayed", "bus.sr")
    assert sr_bytes(folder / "captures/la.sr") == SAMPLES[:1000].tobytes()


def test_trigger_searched_with_what_came_before(tmp_path: Path, capture: Path) -> None:
    frame = SAMPLES >> 1 & 1
    falls = np.flatnonzero((frame[1:] == 0) & (frame[:-1] == 1)) + 1
    late = int(falls[falls > 200][0])
    table = '[analysers.trigger]\ncondition = "A_FRAME#=f"\npre_samples = 200\n'
    samples = SAMPLES.copy()
    samples[:late] |= 2  # FRAME# stays high until then
    path = write_sr(tmp_path / "late.sr", samples.tobytes())
    done, folder = record(tmp_path, replay_plan(path, analyser=f"samples = 5000\n{table}"))
    assert done.status == 0, done.err
    (entry,) = read_run(folder)["captures"]
    assert (entry["trigger_sample"], entry["samples"]) == (200, 5000)
    assert sr_bytes(folder / "captures/la.sr") == samples[late - 200 : late + 4800].tobytes()


def test_a_trigger_that_never_comes(tmp_path: Path, capture: Path) -> None:
    table = '[analysers.trigger]\ncondition = "A_FRAME#=000000000000,A_CLK=000000000000"\npre_samples = 100\n'
    timeouts = "[analysers.timeouts]\nidle_s = 3.0\n"
    done, folder = record(tmp_path, replay_plan(capture, analyser=f"samples = 5000\n{table}{timeouts}"))
    assert done.status == 4
    run = read_run(folder)
    assert run["complete"] is False
    assert "trigger_sample" not in run["captures"][0]
    kept = sr_bytes(folder / "captures/la.sr")
    assert len(kept) >= 200
    assert SAMPLES.tobytes().endswith(kept), "the last samples are kept"


def test_a_trigger_of_the_device(tmp_path: Path) -> None:
    # 4000 samples: libsigrok's demo device ends after 4096 once it has a trigger, without an error
    plan = """
format = 1
[[analysers]]
name = "la"
driver = "demo"
options = { logic_channels = 8, analog_channels = 0 }
rate_hz = 1_000_000
samples = 4000
[analysers.channels]
D0 = "CLK"
D1 = "FRAME#"
D2 = "IRDY#"
D3 = "TRDY#"
[analysers.trigger]
condition = "CLK=r"
by = "device"
[hosts.A]
"""
    done, folder = record(tmp_path, plan)
    assert done.status == 0, done.err
    run = read_run(folder)
    assert (run["origin"], run["simulation"]["preset"]) == ("simulated", "sigrok demo driver")
    assert run["hosts"]["A"]["bus"] == "PCI"
    assert run["captures"][0]["samples"] == 4000
    data = np.frombuffer(sr_bytes(folder / "captures/la.sr"), np.uint8)
    at = run["captures"][0]["trigger_sample"]
    assert (data[at - 1] & 1, data[at] & 1) == (0, 1)


def test_two_analysers_at_once(tmp_path: Path, capture: Path) -> None:
    other = bus_samples(250_000, seed=9)
    path = write_sr(tmp_path / "other.sr", other.tobytes())
    plan = replay_plan(capture, name="one").replace(
        "[hosts.A]\n[hosts.B]",
        f'[[analysers]]\nname = "two"\n[analysers.replay]\nsource = "{path}"\n'
        '[hosts.A]\nanalyser = "one"\n[hosts.B]\nanalyser = "two"',
    )
    done, folder = record(tmp_path, plan)
    assert done.status == 0, done.err
    run = read_run(folder)
    assert [entry["file"] for entry in run["captures"]] == ["captures/one.sr", "captures/two.sr"]
    assert (run["hosts"]["A"]["capture"], run["hosts"]["B"]["capture"]) == (0, 1)
    assert sr_bytes(folder / "captures/one.sr") == SAMPLES.tobytes()
    assert sr_bytes(folder / "captures/two.sr") == other.tobytes()
    offsets = [entry["offset_us"] for entry in run["captures"]]
    assert offsets[0] == 0
    assert isinstance(offsets[1], float)
    assert all(entry["offset_sigma_us"] >= 1000 for entry in run["captures"]), "two clocks that nobody compared"


def test_sweep_is_resumed(tmp_path: Path, capture: Path) -> None:
    sweep = '[sweep]\nkey = "analysers.0.samples"\nvalues = [1000, 2000, 3000]\n'
    plan = replay_plan(capture, analyser="samples = 1", rest=sweep)
    done, folder = record(tmp_path, plan)
    assert done.status == 0, done.err
    points = ["0-1000", "1-2000", "2-3000"]
    assert sorted(path.name for path in folder.iterdir()) == [*points, "plan.toml"]
    for number, name in enumerate(points):
        run = read_run(folder / name)
        assert run["sweep"] == {
            "key": "analysers.0.samples", "value": 1000 * (number + 1), "point": number, "points": 3,
        }  # fmt: skip
        assert run["captures"][0]["samples"] == 1000 * (number + 1)
    # one point is spoilt, one was killed while it was written
    spoilt = folder / "1-2000/run.toml"
    spoilt.write_text(spoilt.read_text().replace("complete = true", 'complete = false\nreason = "spoilt"', 1))
    killed = folder / "2-3000/run.toml"
    killed.write_text(killed.read_text().replace("complete = true", 'complete = false\nreason = "killed"', 1))
    (folder / "2-3000").rename(folder / "2-3000.partial")
    first = (folder / "0-1000/run.toml").read_bytes()
    done, _ = record(tmp_path, plan)
    assert done.status == 0, done.err
    assert (folder / "0-1000/run.toml").read_bytes() == first, "what is complete is left alone"
    assert read_run(folder / "1-2000")["complete"] is True
    assert read_run(folder / "1-2000.incomplete-1")["reason"] == "spoilt"
    assert read_run(folder / "2-3000")["complete"] is True
    assert read_run(folder / "2-3000.incomplete-1")["complete"] is False
    done, _ = record(tmp_path, plan.replace("3000", "4000"))
    assert done.status == 4
    assert "another plan" in done.err
