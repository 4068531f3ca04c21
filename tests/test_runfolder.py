"""run.toml: what is accepted, and that what is wrong is named."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from conftest import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st

import pcitrace
from pcitrace import ConfigurationError, FrameMatchError, WiringError, configuration, runfolder

GOOD: dict[str, Any] = {
    "format": 1,
    "origin": "captured",
    "captures": [{"file": "a.sr", "rate_hz": 100e6}],
    "hosts": {"A": {}, "B": {"bus": "pc2", "nic": "acenic"}},
    "link": {"rate_mbit_s": 1000},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.sr").write_bytes(b"capture")
    return tmp_path


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return GOOD with one key set, by dotted path; None removes it."""
    run = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    place: Any = run
    for part in parents:
        place = place[int(part)] if part.isdigit() else place.setdefault(part, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return run


def test_written_and_read_again(folder: Path) -> None:
    written = runfolder.write(folder, GOOD)
    read = runfolder.load(folder)
    assert read == written
    assert runfolder.load(folder / "run.toml") == read
    assert read.run["hosts"]["A"] == {"capture": 0, "bus": "A", "nic": "generic"}
    assert read.run["hosts"]["B"]["bus"] == "pc2"
    assert read.run["link"] == {"rate_mbit_s": 1000, "preamble_bytes": 8, "gap_bytes": 12}
    assert read.run["complete"] is True
    assert read.profile("B").name == "acenic"
    assert repr(read) == f"<RunFolder {folder.name}: captured, hosts A, B>"


@pytest.mark.parametrize(
    ("path", "value", "key", "words"),
    [
        ("orgin", "captured", "orgin", "did you mean origin"),
        ("hosts.A.nick", "acenic", "hosts.A.nick", "did you mean nic"),
        ("captures.0.file", None, "captures[0].file", "missing"),
        ("origin", None, "origin", "missing"),
        ("origin", "measured", "origin", "allowed: 'captured'"),
        ("format", 3, "format", "allowed: 1, 2"),
        ("captures", [], "captures", "at least 1"),
        ("path", {"kind": "direct"}, "path", "came with format 2"),
        ("link.rate_mbit_s", "fast", "link.rate_mbit_s", "'fast': must be number"),
        ("captures.0.rate_hz", 100.0, "captures[0].rate_hz", "100 MS/s is 100e6"),
        ("hosts.A.clock_mhz", 33e6, "hosts.A.clock_mhz", "33 MHz is 33.0"),
        ("link.rate_mbit_s", 1e9, "link.rate_mbit_s", "gigabit Ethernet is 1000"),
        ("captures.0.clock_mhz", 33.0, "captures[0].clock_mhz", "state mode"),
        ("captures.0.file", "b.sr", "captures[0].file", "b.sr is not in the run folder"),
        ("hosts.A.capture", 1, "hosts.A.capture", "there are 1 captures"),
        ("hosts.A.bus", "pc2", "hosts", "same bus pc2"),
        ("hosts.A.width", 16, "hosts.A.width", "allowed: 32, 64"),
        ("complete", False, "reason", "missing"),
        ("frame_logs", [{"file": "a.sr", "host": "C", "kind": "sent"}], "frame_logs[0].host", "none of the hosts A, B"),
        ("frame_logs", [{"file": "x.npy", "host": "A", "kind": "sent"}], "frame_logs[0].file", "not in the run folder"),
        ("latency", [{"file": "l.csv"}], "latency[0].file", "not in the run folder"),
        ("hosts", {"A": {}, "B": {}, "C": {}}, "hosts", "2 properties"),
        ("hosts", {"a b": {}}, "hosts", "'a b' is not a name that can be used here"),
        ("hosts.A.memory", {"send_buffers": [[0, 0]]}, "hosts.A.memory.send_buffers[0][1]", "0: must be bigger"),
        ("hosts.A.memory", {"send_buffers": [[0]]}, "hosts.A.memory.send_buffers[0]", "at least 2 items"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, path: str, value: Any, key: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        runfolder.write(folder, changed(path, value))
    assert caught.value.key == key
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(folder / "run.toml"))
    assert "\n" not in str(caught.value)
    assert not (folder / "run.toml").exists()


EXAMPLE = {
    **GOOD,
    "complete": False,
    "reason": "cut",
    "frame_logs": [{"file": "sent.npy", "host": "A", "kind": "sent"}],
    "frames": {"sequence": {"offset": 14, "bytes": 4}},
    "test": {"kind": "stream", "sizes": [64, 1500], "spacing_us": 100.0},
}
SCHEMA = json.loads((REPOSITORY / "pcitrace" / runfolder.SCHEMA).read_text())
VALUES = [None, True, -1, 0, 1, 2, 1.5, 1e9, "", "A", "simulated", "replayed", [], [0], [[0, 4]], {}, {"x": 1}]


def places(content: Any) -> list[tuple[Any, Any]]:
    """Every dict or list in the content with every key of it."""
    keys = list(content) if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    return [(content, key) for key in keys] + [place for key in keys for place in places(content[key])]


@given(st.data(), st.integers(1, 3))
def test_what_the_schema_allows_is_what_another_validator_allows(data: st.DataObject, changes: int) -> None:
    run = copy.deepcopy(EXAMPLE)
    for _ in range(changes):
        parent, key = data.draw(st.sampled_from(places(run)))
        value = copy.deepcopy(data.draw(st.sampled_from(VALUES)))
        if isinstance(parent, dict) and data.draw(st.booleans()):
            del parent[key]
        else:
            parent[key] = value
        if not run:
            break
    allowed = jsonschema.Draft7Validator(SCHEMA).is_valid(run)
    try:
        configuration.validate(run, runfolder.SCHEMA, Path("run.toml"))
    except ConfigurationError:
        assert not allowed
    else:
        assert allowed


@pytest.mark.parametrize("origin", ["simulated", "replayed"])
def test_an_origin_must_be_explained(folder: Path, origin: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        runfolder.write(folder, changed("origin", origin))
    assert caught.value.key in ("simulation", "frames_on_bus")


def test_replayed_and_simulated(folder: Path) -> None:
    replayed = changed("origin", "replayed") | {
        "frames_on_bus": False,
        "source_origin": "simulated",
        "source_sha256": "0" * 64,
    }
    assert runfolder.write(folder, replayed).simulated
    assert not runfolder.write(folder, GOOD).simulated


def test_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"run\.toml: cannot be read: No such file"):
        runfolder.load(tmp_path)
    (tmp_path / "run.toml").write_text("format = ")
    with pytest.raises(ConfigurationError, match="not a TOML file"):
        runfolder.load(tmp_path)
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not a TOML file"):
        runfolder.load(tmp_path)


def test_a_date_may_be_written_as_one(folder: Path) -> None:
    runfolder.write(folder, GOOD)
    file = folder / "run.toml"
    file.write_text("created = 2000-06-01T12:00:00Z\n" + file.read_text())
    assert runfolder.load(folder).run["created"] == "2000-06-01T12:00:00+00:00"


def test_an_unknown_profile_names_the_host(folder: Path) -> None:
    run = runfolder.write(folder, changed("hosts.A.nic", "acenik"))
    with pytest.raises(ConfigurationError, match=r"hosts\.A\.nic: no NIC profile 'acenik'"):
        run.profile("A")


def test_times_of_several_captures(folder: Path) -> None:
    run = changed("captures.0.offset_us", 12.5)
    run["captures"][0]["drift_ppm"] = 20.0
    read = runfolder.write(folder, run)
    assert read.run_time_us(0, np.array([0.0, 1e6])) == pytest.approx([12.5, 1e6 + 20 + 12.5], abs=1e-9)


def test_a_changed_capture_is_noticed(folder: Path) -> None:
    import hashlib

    run = changed("captures.0.sha256", hashlib.sha256(b"capture").hexdigest())
    read = runfolder.write(folder, run)
    assert read.verify() == []
    (folder / "a.sr").write_bytes(b"another")
    assert read.verify() == ["a.sr"]


def test_frame_logs(tmp_path: Path) -> None:
    log = np.zeros(3, dtype=runfolder.FRAME_LOG)
    log["sequence"] = [0, 1, 2]
    np.save(tmp_path / "sent.npy", log)
    assert (runfolder.read_frame_log(tmp_path / "sent.npy") == log).all()
    np.save(tmp_path / "other.npy", np.zeros(3))
    with pytest.raises(ConfigurationError, match="not a frame log: records are float64"):
        runfolder.read_frame_log(tmp_path / "other.npy")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "sent.npy").read_bytes()[:40])
    with pytest.raises(ConfigurationError, match="not a frame log"):
        runfolder.read_frame_log(tmp_path / "cut.npy")


def test_every_key_is_documented() -> None:
    """Each key of the schema stands in docs/run-folder.md."""
    schema = json.loads((REPOSITORY / "pcitrace" / "run-folder.schema.json").read_text())
    text = (REPOSITORY / "docs" / "run-folder.md").read_text()
    words = set(re.findall(r"[A-Za-z_0-9]+", text))

    def keys(node: Any) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(keys, node)) if node else set()
        if not isinstance(node, dict):
            return set()
        own = set(node["properties"]) if isinstance(node.get("properties"), dict) else set()
        return own.union(*(keys(value) for value in node.values()))

    assert keys(schema) - words == set()


def test_the_documented_run_folder_is_valid(folder: Path) -> None:
    text = (REPOSITORY / "docs" / "run-folder.md").read_text()
    with_capture, without = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    for name in ("bus.vcd.gz", "summary.json", "p000-node0-received.npy", "node1-clock.npy"):
        (folder / name).write_bytes(b"")
    (folder / "run.toml").write_text(with_capture)
    assert runfolder.load(folder).bus_hosts == ["A", "B"]
    (folder / "run.toml").write_text(without)
    assert list(runfolder.load(folder).run["hosts"]) == ["node0", "node1"]


TWO: dict[str, Any] = {
    "format": 2,
    "origin": "captured",
    "hosts": {f"node{node}": {"node": node} for node in range(8)},
    "path": {"kind": "switch", "name": "other module", "devices": ["BATM"], "modules": [["1", "2"]]},
    "clock_exchanges": [{"file": "clock.npy", "host": "node1", "reference": "node0"}],
    "companions": [{"folder": "load", "role": "background", "lag_us": 12.5}],
}


def two(folder: Path) -> Path:
    (folder / "load").mkdir()
    np.save(folder / "clock.npy", np.zeros(4, runfolder.CLOCK_EXCHANGES))
    return folder


def test_format_2_needs_no_capture_and_takes_many_hosts(tmp_path: Path) -> None:
    read = runfolder.write(two(tmp_path), TWO)
    assert read.bus_hosts == []
    assert len(read.run["hosts"]) == 8
    run = pcitrace.open(tmp_path)
    assert (run.captures, run.buses) == ([], {})
    with pytest.raises(WiringError, match="no bus was recorded"):
        run.bus  # noqa: B018
    with pytest.raises(FrameMatchError):
        run.frames  # noqa: B018
    assert len(runfolder.read_clock_exchanges(tmp_path / "clock.npy")) == 4
    with pytest.raises(ConfigurationError, match="not a frame log"):
        runfolder.read_frame_log(tmp_path / "clock.npy")


def test_in_format_2_a_host_without_a_capture_has_no_bus(folder: Path) -> None:
    hosts = {"A": {"capture": 0}, "B": {}, "C": {}}
    read = runfolder.write(folder, {**GOOD, "format": 2, "hosts": hosts})
    assert read.bus_hosts == ["A"]
    assert "bus" not in read.run["hosts"]["B"]


def test_an_empty_capture_does_not_hide_the_rest(folder: Path) -> None:
    """An analyser that never delivered a sample leaves a file that nothing can read."""
    (folder / "b.vcd").write_bytes(b"")
    captures = [{"file": "a.sr", "samples": 0}, {"file": "b.vcd"}]
    hosts = {"A": {"capture": 0}, "B": {"capture": 1}}
    read = runfolder.write(folder, {**GOOD, "format": 2, "captures": captures, "hosts": hosts})
    assert (read.bus_hosts, read.run["hosts"]["B"]["capture"]) == (["B"], 0)
    assert [path.name for path in read.capture_paths] == ["b.vcd"]
    runfolder.write(folder, {**GOOD, "captures": captures[:1], "hosts": {"A": {}}})
    assert pcitrace.open(folder).buses == {}


@pytest.mark.parametrize(
    ("key", "entry", "words"),
    [
        ("clock_exchanges", [{"file": "no.npy", "host": "node1", "reference": "node0"}], "no.npy is not in"),
        ("clock_exchanges", [{"file": "clock.npy", "host": "node1", "reference": "B"}], "'B' is none of the hosts"),
        ("host_states", [{"host": "node1", "before": "gone.json"}], "gone.json is not in"),
        ("companions", [{"folder": "nowhere", "role": "pair"}], "nowhere is not in"),
        ("switch", {"truth": "switch.csv"}, "switch.csv is not in"),
    ],
)
def test_what_format_2_names_must_be_there(tmp_path: Path, key: str, entry: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        runfolder.write(two(tmp_path), {**TWO, key: entry})
