"""What bad logs get from `pcitrace network`: a finding or one clear line, and no number that they do not support."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import netlogs
import numpy as np
import pytest
from test_network_switch import asked, hosts, switch

from pcitrace import network
from pcitrace.cli import main
from pcitrace.errors import ConfigurationError
from pcitrace.network.steps import clock_jump

JUMPS_NS = (1_000_000, -1_000_000, 10**9, -(10**9), 5 * 10**17)


@pytest.fixture(scope="module")
def virtual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ping-pong of three sizes with background load beside it, over a switch."""
    background = '[[tests]]\nname = "load"\nrole = "background"\nkind = "background"\nsteering = "C"\npeers = ["D"]\n'
    test = asked("ping-pong", [64, 700, 1500], 60)
    return switch(tmp_path_factory.mktemp("virtual"), "run", hosts("ABCD") + test + "[switch]\n" + background)


@pytest.mark.parametrize("jump", JUMPS_NS)
@pytest.mark.parametrize("arrivals", ["regular", "poisson"])
def test_a_clock_that_jumps_gives_no_times(jump: int, arrivals: str, tmp_path: Path) -> None:
    points = [netlogs.Stream(1000, 40.0, 400, arrivals=arrivals)]
    folder = netlogs.stream(tmp_path / "run", points, clock=(50.0, 3.0))
    log = folder / "p000-node1-received.npy"
    frames = np.load(log)
    frames["receive_ns"][217:] += jump
    np.save(log, frames)
    [result] = network.of_paths([folder]).results
    for name in ("latency_us", "spacing_us", "user_mbit_s", "wire_mbit_s", "fwhm_us", "sigma_us", "floor_us"):
        assert result.parameters[name].value is None, name
    assert "a clock jumped" in result.parameters["latency_us"].reason
    assert [result.parameters[name].value for name in ("sent", "received", "lost")] == [400, 400, 0]
    assert any(f"at frame {217}" in text for text in result.findings)


@pytest.mark.parametrize("seed", range(8))
def test_queues_and_losses_are_no_clock_that_jumps(seed: int, tmp_path: Path) -> None:
    """A stream that is faster than its path, and one that stands still for a while."""
    held = netlogs.Stream(1000, 20.0, 800, least_us=20.5 + seed / 4)
    folder = netlogs.stream(tmp_path / "run", [held], seed=seed)
    [result] = network.of_paths([folder]).results
    assert result.parameters["latency_us"].value is not None
    log = folder / "p000-node1-received.npy"
    frames = np.load(log)
    waits = slice(300, 300 + 40 * seed)
    frames["receive_ns"][waits] = np.maximum(
        frames["receive_ns"][waits], frames["receive_ns"][300] + 3_000_000 + 8000 * np.arange(40 * seed)
    )
    frames["receive_ns"] = np.maximum.accumulate(frames["receive_ns"])
    np.save(log, frames)
    [result] = network.of_paths([folder]).results
    assert result.parameters["latency_us"].value is not None, result.findings


@pytest.mark.parametrize("seed", [15, 19, 28, 45, *range(4)])
def test_a_queue_that_stays_full_is_no_clock_that_jumps(seed: int) -> None:
    """A port takes 14 us for a frame and keeps 50; frames come every 10: as where loss is measured against spacing."""
    random = np.random.default_rng(seed)
    free, waiting, passed = 0.0, [], []
    for sent in np.cumsum(random.exponential(10.0, 5000)):
        waiting = [start for start in waiting if start > sent]
        if len(waiting) <= 50:
            waiting.append(max(sent, free))
            free = waiting[-1] + 14
            passed.append((sent, free + 20 + abs(random.normal(0, 0.5))))
    departure, arrival = np.rint(1000 * np.array(passed).T).astype(np.int64)
    assert clock_jump((arrival - departure) / 1e3, departure, arrival, True) is None
    arrival[700:] += 5_000_000
    assert clock_jump((arrival - departure) / 1e3, departure, arrival, True) == (700, pytest.approx(5000, rel=0.1))


def test_nothing_arrived_is_a_loss_of_all(tmp_path: Path) -> None:
    plan = hosts() + "[switch]\n[[ports]]\nloss = 1.0\n[[ports]]\n"
    stream, loops = network.of_paths(
        [
            switch(tmp_path, "stream", plan + asked("stream", [1000], 100, "spacing_us = 30\n")),
            switch(tmp_path, "loops", plan + asked("ping-pong", [64, 1000], 20)),
        ]
    ).results
    assert [stream.parameters[name].value for name in ("sent", "received", "lost")] == [100, 0, 100]
    assert stream.parameters["loss_ratio"].value == 1
    assert [loops.parameters[name].value for name in ("sent", "received", "lost")] == [40, 0, 40]
    assert loops.parameters["intercept_us"].value is None


def test_one_frame_has_its_own_reason(tmp_path: Path) -> None:
    run = switch(tmp_path, "one", hosts() + asked("stream", [1000], 1, "spacing_us = 30\n"))
    found = network.of_paths([run]).results[0].parameters
    assert "1 frames arrived" in found["latency_us"].reason
    assert "no spacing was planned" not in found["knee_us"].reason


def test_what_was_under_way_at_the_same_time_is_told(virtual: Path) -> None:
    found = network.of_paths([virtual])
    assert [one.kind for one in found.results] == ["ping-pong", "background"]
    assert "background of" in found.results[1].path
    assert any("under way at the same time (background" in text for text in found.findings)


def _damaged(folder: Path, number: int, random: np.random.Generator) -> str:
    """Damage one file; what was done."""
    files = sorted(one for one in folder.rglob("*") if one.suffix in (".npy", ".json", ".toml"))
    file = files[int(random.integers(len(files)))]
    content = bytearray(file.read_bytes())
    if number % 3 == 0:
        del content[int(random.integers(len(content))) :]
    elif number % 3 == 1:
        at = int(random.integers(min(len(content), 200)))
        content[at] = int(random.integers(256))
    else:
        content = bytearray(_wrong_json(content, random) if file.suffix == ".json" else content[:-1])
    file.write_bytes(content)
    return f"{number % 3} {file.name}"


def _wrong_json(content: bytes | bytearray, random: np.random.Generator) -> bytes:
    """Replace one value, anywhere, by one of another kind."""
    whole = json.loads(content)
    places: list[tuple[Any, Any]] = []
    waiting = [whole]
    while waiting:
        one = waiting.pop()
        for key in list(one if isinstance(one, dict) else range(len(one))):
            places.append((one, key))
            if isinstance(one[key], dict | list):
                waiting.append(one[key])
    where, key = places[int(random.integers(len(places)))]
    where[key] = [None, -1, 1e300, "x", [], {}][int(random.integers(6))]
    return json.dumps(whole).encode()


def test_damage_anywhere_is_a_finding_or_one_line(
    virtual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, whatever a file became; and what could be read is read."""
    random = np.random.default_rng(5)
    ends = []
    for number in range(45):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(virtual, folder)
        done = _damaged(folder, number, random)
        ends.append(main(["network", str(folder), "--json"]))
        out, err = capsys.readouterr()
        assert ends[-1] in (0, 3), done
        assert "NaN" not in out, done
        if ends[-1] == 3:
            assert err.startswith("pcitrace: "), (done, err)
            assert err.count("\n") == 1, (done, err)
    assert ends.count(0) > 15


def test_a_cut_comparison_of_clocks_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 40.0, 400)], clock=(50.0, 3.0))
    log = folder / "node1-clock.npy"
    log.write_bytes(log.read_bytes()[:-1000])
    [result] = network.of_paths([folder]).results
    assert any("cut off: 368 of 400 exchanges" in text for text in result.findings)
    assert result.parameters["latency_us"].value == pytest.approx(30, abs=0.2)
    log.write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': (]    ")
    [result] = network.of_paths([folder]).results
    assert result.parameters["latency_us"].value is None


def test_a_summary_that_names_a_missing_log_leaves_it_out(virtual: Path, tmp_path: Path) -> None:
    """framegen's folder alone, without run.toml."""
    folder = tmp_path / "run"
    shutil.copytree(virtual, folder)
    (folder / "run.toml").unlink()
    (folder / "p001-node0-received.npy").unlink()
    [result] = network.of_paths([folder]).results
    assert any("p001-node0-received.npy: cannot be read" in text for text in result.findings)
    assert result.parameters["slope_us_per_byte"].value is not None
    assert result.parameters["received"].value == 180
    summary = folder / "summary.json"
    summary.write_text(summary.read_text().replace('"stream": 1', '"stream": "one"', 1))
    with pytest.raises(ConfigurationError, match=r"points\[0\]\.flows\[0\]\.stream"):
        network.of_paths([folder])


def test_a_line_that_falls_is_none(tmp_path: Path) -> None:
    """What a busy host leaves: the first size waited for a processor, the others did not."""
    folder = netlogs.loops(tmp_path / "run", "ping-pong", [64, 700, 1500], lambda length: 9000 - 5 * length)
    [result] = network.of_paths([folder]).results
    for name in ("intercept_us", "slope_us_per_byte"):
        assert result.parameters[name].value is None
        assert "no path is quicker for longer frames" in result.parameters[name].reason


def test_a_histogram_says_what_logs_say(tmp_path: Path) -> None:
    """Round trips counted in bins of the virtual switch, and the same from its logs."""
    test = asked("ping-pong", [64, 700, 1500], 300)
    logged = switch(tmp_path, "logged", hosts() + test)
    counted = switch(tmp_path, "counted", hosts() + test.rstrip() + "\nhistogram_ns = 10\n")
    assert not list(counted.glob("p00*"))
    from_logs, from_bins = (one.parameters for one in network.of_paths([logged, counted]).results[:2])
    assert [from_bins[name].value for name in ("sent", "received", "lost")] == [900, 900, 0]
    for name in ("intercept_us", "slope_us_per_byte"):
        assert from_bins[name].value == pytest.approx(from_logs[name].value, abs=4 * from_logs[name].sigma)


@pytest.mark.parametrize("count", [0, 7, 2**40, 2**63 + 1])
def test_a_histogram_that_does_not_add_up_is_left_out(count: int, tmp_path: Path) -> None:
    """One of its counts took more memory than there is; the other sizes stay."""
    test = asked("ping-pong", [64, 700, 1500], 300)
    folder = switch(tmp_path, "run", hosts() + test.rstrip() + "\nhistogram_ns = 10\n")
    [whole] = network.of_paths([folder]).results
    bins = np.load(folder / "histograms.npy")
    bins["count"][0] = count
    np.save(folder / "histograms.npy", bins)
    [result] = network.of_paths([folder]).results
    [text] = [one for one in result.findings if "one is damaged; left out" in one]
    assert "64 bytes, node 1: it counts" in text
    assert text.endswith("answers, the summary 300: one is damaged; left out")
    assert result.parameters["received"].value == 900
    for name in ("intercept_us", "slope_us_per_byte"):
        known, told = (one.parameters[name] for one in (whole, result))
        assert told.value == pytest.approx(known.value, abs=4 * told.sigma)
    assert [point.parameters["latency_us"].value is None for point in result.points] == [True, False, False]


def _stepped(path: Path, step_ns: int, between_ns: int) -> Path:
    """A stream of 400 frames every 40 us, 30 us under way, during which the receiver's clock steps; exchanges every
    `between_ns`.
    """
    folder = netlogs.stream(path, [netlogs.Stream(1000, 40.0, 400)])
    at = netlogs.START_NS + 8_000_000
    log = folder / "p000-node1-received.npy"
    frames = np.load(log)
    frames["receive_ns"] += np.where(frames["receive_ns"] >= at, step_ns, 0)
    np.save(log, frames)
    exchanges = netlogs.exchanges(np.random.default_rng(2), 2_000_000_000 // between_ns, (0.0, 0.0))
    for name, after_ns in zip(exchanges.dtype.names or (), (0, 2000, 3500, 5500), strict=True):
        exchanges[name][0] = netlogs.START_NS + after_ns
    for name in ("request_received_ns", "reply_sent_ns"):
        exchanges[name] += np.where(exchanges[name] >= at, step_ns, 0)
    np.save(folder / "node1-clock.npy", exchanges)
    return folder


@pytest.mark.parametrize("step_ns", [100_000, -100_000, 10**9, -(10**9)])
def test_frames_on_either_side_of_a_step_have_their_times(step_ns: int, tmp_path: Path) -> None:
    """Also of a clock that steps back and shows every time twice; what was under way while it stepped has none."""
    [result] = network.of_paths([_stepped(tmp_path / "often", step_ns, 200_000)]).results
    found = result.parameters["latency_us"]
    assert found.value == pytest.approx(30, abs=4 * found.sigma)
    assert found.sigma < 0.5
    assert any("the clock of node 1 steps by" in text for text in result.findings)
    [result] = network.of_paths([_stepped(tmp_path / "seldom", step_ns, 100_000_000)]).results
    for name in ("latency_us", "sigma_us", "floor_us"):
        assert result.parameters[name].value is None, name


def test_clocks_that_run_apart_are_not_compared(tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 40.0, 400)], clock=(0.0, 700.0))
    [result] = network.of_paths([folder]).results
    assert result.parameters["latency_us"].value is None
    assert sum("runs apart" in text for text in result.findings) == 1


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63) + 1, 2**61])
def test_times_that_no_clock_shows_are_not_known(value: int, tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 40.0, 400)])
    log = folder / "p000-node1-received.npy"
    frames = np.load(log)
    frames["receive_ns"] = value
    np.save(log, frames)
    exchanges = np.load(folder / "node1-clock.npy")
    exchanges["reply_sent_ns"][::2] = value
    np.save(folder / "node1-clock.npy", exchanges)
    [result] = network.of_paths([folder]).results
    assert any("400 times (receive_ns) that no clock shows" in text for text in result.findings)
    assert [result.parameters[name].value for name in ("received", "latency_us", "spacing_us")] == [400, None, None]


def test_frames_that_arrive_before_they_were_sent_have_no_times(tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 40.0, 400)])
    log = folder / "p000-node1-received.npy"
    frames = np.load(log)
    frames["receive_ns"] -= 10**9
    np.save(log, frames)
    [result] = network.of_paths([folder]).results
    for name in ("latency_us", "sigma_us", "fwhm_us"):
        assert "before they were sent" in result.parameters[name].reason
    assert result.parameters["floor_us"].value is None


def test_a_frame_is_sent_once(tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 40.0, 400)])
    log = folder / "p000-node0-sent.npy"
    frames = np.load(log)
    np.save(log, np.concatenate([frames, frames[:10]]))
    [result] = network.of_paths([folder]).results
    assert [result.parameters[name].value for name in ("sent", "received", "lost")] == [400, 400, 0]
    assert any("10 records of frames sent have the number of another" in text for text in result.findings)


def test_what_was_logged_as_nothing_is_none_and_what_was_not_logged_is_unknown(tmp_path: Path) -> None:
    for kind in ("ping-pong", "stream"):
        folder = netlogs.Folder(tmp_path / kind, {"kind": kind, "sizes": [64, 500]})
        for point in range(2):
            folder.log(point, 0, "sent", netlogs.records(0, 64))
            folder.log(point, 0 if kind == "ping-pong" else 1, "received", netlogs.records(0, 64))
        [result] = network.of_paths([folder.write()]).results
        assert [result.parameters[name].value for name in ("sent", "received", "lost")] == [0, 0, 0], kind
        empty = netlogs.Folder(tmp_path / f"{kind}-unlogged", {"kind": kind, "sizes": [64, 500]}).write()
        [result] = network.of_paths([empty]).results
        assert [result.parameters[name].value for name in ("sent", "received", "lost")] == [None] * 3
        assert any("nothing was measured" in text for text in result.findings)


def test_frames_of_another_size_than_planned_are_told(tmp_path: Path) -> None:
    folder = netlogs.stream(tmp_path / "run", [netlogs.Stream(1000, 40.0, 400)])
    run = folder / "run.toml"
    run.write_text(run.read_text().replace("1000,", "900,", 1))
    [result] = network.of_paths([folder]).results
    assert any("of 1000 bytes, not of 900 as planned" in text for text in result.findings)
