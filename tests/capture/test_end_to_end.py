"""From a simulated capture to a report: replayed to the real sigrok-cli while frames pass between two namespaces."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import Pcicap, TwoHosts, bus_samples, needed, noise, pcicap, read_run, record, replay_plan, sr_bytes, write_sr
from pcicap.errors import CaptureFileError
from pcicap.runfolder import KILLED
from pcicap.srfile import read_info, salvage

SAMPLES = bus_samples(300_000)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sr(tmp_path_factory.mktemp("source") / "bus.sr", SAMPLES.tobytes())


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    hosts = TwoHosts()
    try:
        yield hosts
    finally:
        hosts.close()


def frames_plan(source: Path, mac: str, test: str, **options: str) -> str:
    rest = f"[link]\nrate_mbit_s = 10_000\n[test]\nmax_seconds = 20\n{test}\n"
    text = replay_plan(source, rest=rest, **options)
    return text.replace("[hosts.A]", '[hosts.A]\ninterface = "left"').replace("[hosts.B]", f'[hosts.B]\nmac = "{mac}"')


def logs(folder: Path, run: dict[str, Any]) -> dict[tuple[str, str], np.ndarray]:
    return {(entry["host"], entry["kind"]): np.load(folder / entry["file"]) for entry in run["frame_logs"]}


def test_stream(tmp_path: Path, capture: Path, hosts: TwoHosts) -> None:
    _, mac = hosts.serve()
    test = 'kind = "stream"\nsizes = [512]\ncount = 4000\nspacing_us = 50'
    done, folder = record(tmp_path, frames_plan(capture, mac, test), before=hosts.a)
    assert done.status == 0, done.err
    run = read_run(folder)
    assert sr_bytes(folder / "captures/la.sr") == SAMPLES.tobytes()
    assert (run["origin"], run["frames_on_bus"], run["complete"]) == ("replayed", False, True)
    assert (run["test"]["kind"], run["test"]["sizes"], run["test"]["count"]) == ("stream", [512], 4000)
    summary = json.loads((folder / run["frame_summary"]).read_text())
    (flow,) = summary["points"][0]["flows"]
    assert [flow[key] for key in ("sent", "received", "lost", "duplicated", "reordered", "corrupt")] == [
        4000,
        4000,
        0,
        0,
        0,
        0,
    ]
    found = logs(folder, run)
    assert set(found) == {("A", "sent"), ("B", "received")}
    for log in found.values():
        assert np.array_equal(log["sequence"], np.arange(4000))
        assert set(log["length_bytes"]) == {512}
    assert len(summary["clocks"]) == 1, "the clocks were compared"
    assert run["hosts"]["A"]["facts"]["interface"]["name"] == "left"
    assert run["hosts"]["B"]["facts"]["interface"] == "right"


def test_request_response(tmp_path: Path, capture: Path, hosts: TwoHosts) -> None:
    _, mac = hosts.serve()
    test = 'kind = "request-response"\nsizes = [64, 1000]\ncount = 200\ntimeout_ms = 10_000'
    done, folder = record(tmp_path, frames_plan(capture, mac, test), before=hosts.a)
    assert done.status == 0, done.err
    run = read_run(folder)
    assert sr_bytes(folder / "captures/la.sr") == SAMPLES.tobytes()
    summary = json.loads((folder / run["frame_summary"]).read_text())
    assert [point["length_bytes"] for point in summary["points"]] == [64, 1000]
    for point in summary["points"]:
        assert [(flow["sent"], flow["received"], flow["lost"]) for flow in point["flows"]] == [(200, 200, 0)] * 2
        assert point["round_trip_us"][0]["n"] == 200


def test_until_the_frames_are_through(tmp_path: Path, hosts: TwoHosts) -> None:
    """An analyser that is not told how much: it ends when the frames do."""
    source = write_sr(tmp_path / "long.sr", noise(100_000).tobytes(), rate="1 MHz")
    _, mac = hosts.serve()
    test = 'kind = "stream"\ncount = 1000\nspacing_us = 300'
    plan = frames_plan(source, mac, test, replay="paced = true", analyser="samples = 4_000_000")
    server = Pcicap("replay", source, "--paced", "--loop", "--json", before=hosts.a)
    assert server.process.stdout
    facts = json.loads(server.process.stdout.readline())
    channels = ["P8_45", "P8_46", "P8_43", "P8_44", "P8_41", "P8_42", "P8_39", "P8_40"]
    lines = "\n".join(f'{channel} = "{line}"' for channel, line in zip(channels, facts["channels"], strict=False))
    device = (
        f'driver = "beaglelogic"\nconn = "{facts["conn"]}"\noptions = {{ logic_channels = 8 }}\nrate_hz = 1_000_000\n'
    )
    head, _, tail = plan.partition("samples = 4_000_000")
    tail = tail[tail.index("[hosts.A]") :].replace("[hosts.B]", '[hosts.B]\nwiring = { CLK = "B_CLK" }')
    done, folder = record(tmp_path, f"{head}{device}[analysers.channels]\n{lines}\n{tail}", before=hosts.a)
    server.kill(signal.SIGTERM)
    assert server.done().status == 0
    assert done.status == 0, done.err
    samples = read_run(folder)["captures"][0]["samples"]
    low = (noise(100_000) & 0xFF).astype(np.uint8).tobytes()
    assert samples > 0
    assert sr_bytes(folder / "captures/la.sr") == (low * (samples // len(low) + 1))[:samples]


def test_peer_absent(tmp_path: Path, capture: Path, hosts: TwoHosts) -> None:
    test = 'kind = "stream"\ncount = 10'
    done, folder = record(tmp_path, frames_plan(capture, "02:00:00:00:00:77", test), before=hosts.a, timeout=60)
    assert done.status == 4
    assert done.err.count("\n") <= 4
    assert not folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.toml"]


def under_way(partial: Path) -> bool:
    """A thousand frames are sent, and the first chunk of samples is in its file: it is held for up to 0.25 s."""
    sent = any(len(np.load(log)) > 1000 for log in partial.glob("frames/*sent.npy"))
    return sent and (partial / "captures/la.sr").stat().st_size > 100_000


@pytest.mark.parametrize("death", ["peer", "link", "analyser", "interrupted", "killed"])
def test_death_half_way(tmp_path: Path, hosts: TwoHosts, death: str) -> None:
    source = write_sr(tmp_path / "slow.sr", noise(12_000_000).tobytes(), rate="1 MHz")
    server, mac = hosts.serve()
    test = 'kind = "stream"\ncount = 40_000\nspacing_us = 250'
    replay = 'fault = "close"' if death == "analyser" else "paced = true"
    (tmp_path / "plan.toml").write_text(frames_plan(source, mac, test, replay=replay))
    running = Pcicap("record", tmp_path / "plan.toml", "-o", tmp_path / "run", before=hosts.a)
    until = time.monotonic() + 60
    while death != "analyser" and not under_way(tmp_path / "run.partial"):
        assert time.monotonic() < until
        time.sleep(0.01)
    match death:
        case "peer":
            server.kill()
        case "link":
            hosts.link("down")
        case "interrupted":
            running.kill(signal.SIGINT)
        case "killed":
            running.kill(signal.SIGKILL)
    done = running.done(60)
    run = read_run(tmp_path / "run")
    assert run["complete"] is False
    if death == "killed":
        assert (done.status, run["reason"]) == (-signal.SIGKILL, KILLED)
    else:
        assert done.status == 4, done.err
        assert run["reason"] in done.err
    if death != "analyser":  # which may have gone before the first look at how far things are
        assert re.search(r"la \S+.* samples \(.*frames \d+ sent, \d+ received, \d+ lost .* \d+ s left", done.err)
    kept = sr_bytes(tmp_path / "run/captures/la.sr")
    assert len(kept) == 2 * run["captures"][0]["samples"] > 0
    assert noise(12_000_000).tobytes().startswith(kept)
    sent = logs(tmp_path / "run", run)["A", "sent"]
    # a link that is down takes no frame: those numbers are missing, none is there twice or out of order
    assert np.all(np.diff(sent["sequence"].astype(np.int64)) == 1) or death == "link"
    assert np.all(np.diff(sent["sequence"].astype(np.int64)) >= 1)
    assert 0 < len(sent) <= 40_000


def test_disk_full_half_way(tmp_path: Path, hosts: TwoHosts) -> None:
    """Samples fill the disk; the frame records that are under way still find room."""
    data = noise(8_000_000).tobytes()
    source = write_sr(tmp_path / "big.sr", data, rate="4 MHz")
    _, mac = hosts.serve()
    test = 'kind = "stream"\ncount = 10_000\nspacing_us = 1000'
    (tmp_path / "plan.toml").write_text(frames_plan(source, mac, test, replay="paced = true"))
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    script = f'mount -t tmpfs -o size=8m tmpfs "{small}"; "$@"; status=$?; cp -a "{small}/run" "{kept}"; exit $status'
    private = [*hosts.a, needed("unshare"), "--mount", "sh", "-c", script, "sh"]
    done = pcicap("record", tmp_path / "plan.toml", "-o", small / "run", before=private)
    assert done.status == 4
    run = read_run(kept)
    assert run["complete"] is False
    assert run["reason"] == "la: the samples cannot be written: No space left on device"
    samples = sr_bytes(kept / "captures/la.sr")
    assert len(samples) == 2 * run["captures"][0]["samples"] >= 4_000_000
    assert data.startswith(samples)
    summary = json.loads((kept / run["frame_summary"]).read_text())
    (flow,) = summary["points"][0]["flows"]
    found = logs(kept, run)
    assert 0 < len(found["A", "sent"]) == flow["sent"] == flow["received"] == len(found["B", "received"]) <= 10_000


def test_a_hundred_random_deaths(tmp_path: Path) -> None:
    """Killed at any moment: whole, or marked incomplete and readable, or never begun; what was written is kept."""
    data = noise(840_000).tobytes()
    source = write_sr(tmp_path / "source.sr", data, rate="1 MHz")
    chance = np.random.default_rng(2024)
    moments = chance.uniform(0, 1.1, (4, 25))
    signals = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT], (4, 25))

    def deaths(number: int) -> list[str]:
        hosts = TwoHosts()
        try:
            folder = tmp_path / str(number)
            folder.mkdir()
            # A frame every 3.5 ms leaves the CPUs to the others, and all take as long as the samples.
            mac = hosts.right_mac()
            plan = frames_plan(source, mac, 'kind = "stream"\ncount = 240\nspacing_us = 3500', replay="paced = true")
            (folder / "plan.toml").write_text(plan)
            begun = time.monotonic()
            assert _die(folder, "whole", hosts, data) == "complete"
            whole_seconds = time.monotonic() - begun
            return [
                _die(folder, f"run{attempt}", hosts, data, moment * whole_seconds, int(with_signal))
                for attempt, (moment, with_signal) in enumerate(zip(moments[number], signals[number], strict=True))
            ]
        finally:
            hosts.close()

    with ThreadPoolExecutor(4) as pool:
        ends = [end for some in pool.map(deaths, range(4)) for end in some]
    assert len(ends) == 100


def _die(folder: Path, name: str, hosts: TwoHosts, data: bytes, after_s: float = 120, with_signal: int = 0) -> str:
    """Record, and die of a signal meanwhile; how it ended."""
    server, _ = hosts.serve()
    target = folder / name
    running = Pcicap("record", folder / "plan.toml", "-o", target, before=hosts.a)
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.process.wait(after_s)
    partial = target.with_name(f"{name}.partial")
    before = written(partial)
    running.kill(with_signal)
    done = running.done()  # the warden is among the processes whose end it waits for
    server.kill()  # it would be held for another 3 s
    server.wait()
    assert not partial.exists()
    if not target.exists():
        assert (done.status != 0, before) == (True, (0, 0))
        return "nothing"
    run = read_run(target)
    kept = sr_bytes(target / "captures/la.sr")
    assert data.startswith(kept)
    assert run["captures"][0].get("samples", 0) * 2 == len(kept)
    records = 0
    for log in logs(target, run).values():
        assert np.array_equal(log["sequence"], np.arange(len(log)))
        records = max(records, len(log))
    assert len(kept) // 2 >= before[0]
    assert records >= before[1]
    shutil.rmtree(target)
    if run["complete"]:
        assert (len(kept), records) == (len(data), 240)
        return "complete"
    assert run["reason"]
    assert done.status != 0
    return "incomplete"


def written(partial: Path) -> tuple[int, int]:
    """Samples and frame records that are in a folder while it is written."""
    samples, records = 0, 0
    with contextlib.suppress(FileNotFoundError, CaptureFileError):
        copy = shutil.copy(partial / "captures/la.sr", partial.parent / "copy.sr")
        samples = read_info(Path(copy)).samples if salvage(Path(copy)) else 0
    with contextlib.suppress(FileNotFoundError):
        records = len(np.load(partial / "frames/p000-node0-sent.npy"))
    return samples, records


def test_two_masters(tmp_path: Path, hosts: TwoHosts) -> None:
    """The peer does one test at a time, and says so to the second master."""
    source = write_sr(tmp_path / "slow.sr", noise(3_000_000).tobytes(), rate="1 MHz")
    _, mac = hosts.serve()
    test = 'kind = "stream"\ncount = 50_000\nspacing_us = 1000\n'
    plan = frames_plan(source, mac, test, replay="paced = true").replace("max_seconds = 20", "max_seconds = 60")
    (tmp_path / "plan.toml").write_text(plan)
    first = Pcicap("record", tmp_path / "plan.toml", "-o", tmp_path / "first", before=hosts.a)
    until = time.monotonic() + 60
    while not list((tmp_path / "first.partial/frames").glob("*sent.npy")):
        assert time.monotonic() < until
        time.sleep(0.01)
    done, folder = record(tmp_path, plan, "second", before=hosts.a)
    assert done.status == 4
    assert "busy" in done.err
    assert not folder.exists()
    first.kill(signal.SIGINT)
    assert first.done().status == 4
    assert read_run(tmp_path / "first")["reason"] == "interrupted by SIGINT"


PCITRACE = [sys.executable, "-m", "pcitrace"]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figure 3.1 on the fourteen lines that fit the emulated analyser."""
    folder = tmp_path_factory.mktemp("figure") / "simulated"
    words = ["simulate", "acenic-fig3.1", "-o", str(folder), "--set", "analyser.wires=control14"]
    subprocess.run([*PCITRACE, *words], check=True, capture_output=True, timeout=120)
    return folder


@pytest.mark.parametrize(
    ("test", "frames"),
    [
        ('kind = "request-response"\nsizes = [64, 1500]\ncount = 100\ntimeout_ms = 10_000', 400),
        ('kind = "stream"\nsizes = [64, 1500]\ncount = 300\nspacing_us = 100', 600),
    ],
    ids=["request-response", "stream"],
)
def test_from_simulation_to_report(tmp_path: Path, simulated: Path, hosts: TwoHosts, test: str, frames: int) -> None:
    _, mac = hosts.serve()
    done, folder = record(tmp_path, frames_plan(simulated, mac, test), before=hosts.a)
    assert done.status == 0, done.err
    run = read_run(folder)
    assert run["source_origin"] == "simulated"
    for kind in ("sent", "received"):
        assert sum(len(np.load(folder / log["file"])) for log in run["frame_logs"] if log["kind"] == kind) == frames
    assert {run["hosts"][name]["nic"] for name in "AB"} == {"acenic"}, "the replayed buses are the source's"
    assert run["link"]["rate_mbit_s"] == 1000, "and so is the link of the frames on them"
    assert run["test"]["parameters"]["link"]["rate_mbit_s"] == 10_000
    (source,) = simulated.rglob("*.sr")
    assert sr_bytes(folder / "captures/la.sr") == sr_bytes(source)
    done_report = subprocess.run(
        [*PCITRACE, "report", str(folder), "--json"], check=True, capture_output=True, text=True, timeout=120
    )
    report = json.loads(done_report.stdout)
    assert set(report["buses"]) == {"A", "B"}
    assert report["buses"]["A"]["transactions"] > 0
    assert (report["origin"], report["simulated"]) == ("replayed", True)
    # the whole way round, the constants are those that the simulation was given
    constants = report["constants"]
    assert constants["R_PCI_send_us_per_byte"]["value"] == pytest.approx(0.00758, rel=0.01)
    assert constants["R_PCI_recv_us_per_byte"]["value"] == pytest.approx(0.00792, rel=0.01)
    # frames of the replay are in no log, so their lengths are bounds: what counts is the line through them
    line = constants["t_nic_us"]["line"]
    assert line["intercept"] + 64 * line["slope"] == pytest.approx(4.34, rel=0.01)
