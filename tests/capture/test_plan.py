"""Plans: the example is one, and every mistake is named with its key and what to write instead."""

from __future__ import annotations

import contextlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import REPOSITORY, TwoHosts, bus_samples, pcicap, write_sr
from pcicap import tomlfile
from pcicap.analysers.base import Timeouts
from pcicap.errors import PlanError
from pcicap.plan import NICS, load, parse, points

EXAMPLE = (REPOSITORY / "capture/pcicap/example-plan.toml").read_text()
GOOD = """
format = 1
title = "t"
[[analysers]]
name = "la"
driver = "demo"
rate_hz = 100_000_000
samples = 1000
[analysers.channels]
D0 = "A_CLK"
D1 = "A_FRAME#"
D2 = "A_IRDY#"
D3 = "A_TRDY#"
[hosts.A]
interface = "eth1"
clock_mhz = 33.333
width = 32
[hosts.B]
mac = "02:00:00:00:00:0b"
analyser = "la"
wiring = { CLK = "A_CLK" }
[link]
rate_mbit_s = 1000
[test]
kind = "stream"
sizes = [64, 512]
count = 10
spacing_us = 100
"""


def test_good(tmp_path: Path) -> None:
    plan = parse(GOOD, tmp_path)
    assert plan.warnings == ()
    assert plan.analysers[0].spec.samples == 1000
    assert plan.test
    assert plan.test.arguments() == ["stream", "--sizes", "64,512", "--count", "10", "--spacing-us", "100.0"]
    assert plan.peers == ("02:00:00:00:00:0b",)


@pytest.mark.parametrize(
    ("old", "new", "key", "said"),
    [
        ("format = 1", "format = 2", "format", "is 2"),
        ("format = 1", "", "format", "is missing"),
        ('title = "t"', 'tilte = "t"', "tilte", "did you mean title"),
        ("rate_hz", "rate_mhz", "analysers[0].rate_hz or clock_mhz", "neither"),
        ("rate_hz = 100_000_000", 'rate_hz = "100 MHz"', "analysers[0].rate_hz", "write an integer"),
        ("rate_hz = 100_000_000", "rate_hz = 0", "analysers[0].rate_hz", "at least 1"),
        ("rate_hz = 100_000_000", "rate_hz = true", "analysers[0].rate_hz", "write an integer"),
        ("rate_hz = 100_000_000", "rate_hz = 50_000_000", "hosts.A.clock_mhz", "misses edges"),
        ("rate_hz = 100_000_000", "clock_mhz = 33.3", "analysers[0].clock_mhz", 'external_clock = "on"'),
        ("samples = 1000", "samples = 1000\nduration_ms = 1", "analysers[0].duration_ms", "one of them"),
        ("samples = 1000", "samples = -1", "analysers[0].samples", "at least 1"),
        ('name = "la"', 'name = "../la"', "analysers[0].name", "file name"),
        ('D1 = "A_FRAME#"', 'D1 = "A_CLK"', "analysers[0].channels.D1", "already on D0"),
        ('D1 = "A_FRAME#"', 'D1 = "A,FRAME"', "analysers[0].channels.D1", "without"),
        ('D1 = "A_FRAME#"', "", "analysers[0].channels", "without A_FRAME#"),
        ('D1 = "A_FRAME#"', "D1 = []", "analysers[0].channels.D1", "string"),
        ("width = 32", "width = 16", "hosts.A.width", "32 or 64"),
        ("02:00:00:00:00:0b", "02:00", "hosts.B.mac", "six bytes"),
        ('mac = "02:00:00:00:00:0b"', "", "hosts", "framegen serve"),
        ('interface = "eth1"', "", "hosts", "have an interface"),
        ('analyser = "la"', 'analyser = "al"', "hosts.B.analyser", "write one of la"),
        ("[hosts.B]", "[hosts.C]\n[hosts.D]\n[hosts.B]", "hosts", "4 hosts"),
        ("sizes = [64, 512]", "sizes = [64, 1501]", "test.sizes", "36 to 1500"),
        ("sizes = [64, 512]", 'sizes = "20:1500:4"', "test.sizes", "36 to 1500"),
        ("count = 10", "count = 20_000_000", "test.count", "max_frames"),
        ("02:00:00:00:00:0b", "03:00:00:00:00:0b", "hosts.B.mac", "group's"),
        ("02:00:00:00:00:0b", "00:00:00:00:00:00", "hosts.B.mac", "nobody's"),
        ("rate_mbit_s = 1000", "rate_mbit_s = 1000\nspeed = 1", "link.speed", "unknown key"),
        ('kind = "stream"', 'kind = "strem"', "test.kind", "did you mean stream"),
        ("sizes = [64, 512]", "sizes = [64, -1]", "test.sizes", "user bytes"),
        ("sizes = [64, 512]", 'sizes = "64-512"', "test.sizes", "64:1500:1"),
        ("count = 10", "count = 10\nseconds = 1", "test.seconds", "one of them"),
        ("count = 10", 'arrivals = "file"', "test.times", "both or neither"),
        ("count = 10", 'allow = ["everything"]', "test.allow[0]", "default-route"),
        ("count = 10", 'extra_peers = ["x"]', "test.extra_peers[0]", "no address"),
        ("spacing_us = 100", "spacing_us = nan", "test.spacing_us", "is nan"),
        ("[link]", '[sweep]\nkey = "test.size"\nvalues = [1]\n[link]', "sweep.key", "not in the plan"),
        ("[link]", '[sweep]\nkey = "test.count"\nvalues = []\n[link]', "sweep.values", "is empty"),
        ("[link]", '[sweep]\nkey = "test.count"\nvalues = [1, 0]\n[link]', "test.count", "at least 1"),
        ("[link]", "link = 3\n[x]", "hosts.B.link", "unknown key"),
        ("[test]", '[test]\nmax_seconds = "x"', "test.max_seconds", "a number"),
        ("[hosts.A]", '[hosts.A]\nnic = "acenik"', "hosts.A.nic", "did you mean acenic"),
        ("[hosts.A]", '[hosts.A]\nnic = "mine.toml"', "hosts.A.nic", "nor a file"),
        ("[link]", "[pause]\nseconds = 1\n[link]", "pause.allow", "stop whatever is behind this cable"),
        ("[link]", "[pause]\nallow = true\n[link]", "pause.seconds", "missing"),
        ("[link]", "[pause]\nallow = true\nseconds = 1\n[link]", "pause", "goes to the peer"),
        ("[[analysers]]", "[[analysers]]\nkey without value", "plan", "not TOML"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, key: str, said: str) -> None:
    assert old in GOOD
    path = tmp_path / "plan.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(PlanError) as caught:
        load(path)
    assert caught.value.key == key
    assert said in str(caught.value)
    assert caught.value.remedy


def test_trigger_and_replay_mistakes(tmp_path: Path) -> None:
    source = write_sr(tmp_path / "a.sr", bus_samples(10).tobytes())
    for text, key in (
        (
            GOOD.replace("[hosts.A]", '[analysers.trigger]\ncondition = "A_IRDY=f"\n[hosts.A]'),
            "analysers[0].trigger.condition",
        ),
        (GOOD.replace("[hosts.A]", '[analysers.replay]\nsource = "a.sr"\n[hosts.A]'), "analysers[0].driver"),
        (
            f'format = 1\n[[analysers]]\n[analysers.replay]\nsource = "{source}x"\n[hosts.A]',
            "analysers[0].replay.source",
        ),
        (
            'format = 1\n[[analysers]]\nduration_ms = 1\n[analysers.replay]\nsource = "a.sr"\n[hosts.A]',
            "analysers[0].duration_ms",
        ),
        (GOOD.replace("samples = 1000", "").split("[test]")[0], "analysers[0]"),
    ):
        with pytest.raises(PlanError) as caught:
            parse(text, tmp_path)
        assert caught.value.key == key


ANYTHING = st.recursive(
    st.booleans() | st.integers(-3, 10**12) | st.floats() | st.text(max_size=5) | st.just("on"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _places(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


@given(data=st.data())
def test_any_value_anywhere_is_a_plan_or_a_named_mistake(data: st.DataObject) -> None:
    full = tomllib.loads(re.sub(r"(?m)^# (?=\[[a-z.]+\]|[a-z_]+ = )", "", EXAMPLE))
    del full["analysers"][0][data.draw(st.sampled_from(["replay", "clock_mhz"]))]
    place = data.draw(st.sampled_from(_places(full)[1:]))
    here = full
    for step in place[:-1]:
        here = here[step]
    value = data.draw(st.none() | ANYTHING)
    if value is None:
        del here[place[-1]]
    else:
        here[place[-1]] = value
    with contextlib.suppress(PlanError):
        parse(tomlfile.dumps(full), Path("/nowhere"))


def test_three_samples_a_clock_are_asked_for(tmp_path: Path) -> None:
    plan = parse(GOOD.replace("100_000_000", "90_000_000"), tmp_path)
    assert "under 3 samples a clock" in plan.warnings[0]


def test_sweep_points(tmp_path: Path) -> None:
    plan = parse(GOOD + '[sweep]\nkey = "analysers.0.samples"\nvalues = [10, 20]\n', tmp_path)
    assert [(value, point.analysers[0].spec.samples) for value, point in points(plan, tmp_path)] == [(10, 10), (20, 20)]


def test_the_example_is_a_plan_and_its_comments_too(tmp_path: Path) -> None:
    example = pcicap("plan", "--example")
    assert example.status == 0
    # an interface that this machine does not have is a mistake, the only one
    (tmp_path / "plan.toml").write_text(example.out.replace('"eth1"', '"none0"'))
    refused = pcicap("plan", "--check", tmp_path / "plan.toml")
    assert (refused.status, refused.err.count("\n")) == (3, 1)
    assert "no interface none0" in refused.err
    (tmp_path / "plan.toml").write_text(example.out.replace('"eth1"', '"left"'))
    net = TwoHosts()
    try:
        checked = pcicap("plan", "--check", tmp_path / "plan.toml", before=net.a)
    finally:
        net.close()
    assert checked.status == 0, checked.err
    assert "host B: bus B on analyser" in checked.out
    # every key that is commented out is a key
    text = re.sub(r"(?m)^# (?=\[[a-z.]+\]|[a-z_]+ = )", "", example.out)
    values = tomllib.loads(text)
    (analyser,) = values["analysers"]
    replay, clock_mhz = analyser.pop("replay"), analyser.pop("clock_mhz")
    assert set(replay) == {"source", "channels", "paced", "fault"}
    assert clock_mhz == values["hosts"]["A"]["clock_mhz"]
    plan = parse(tomlfile.dumps(values), tmp_path)
    assert plan.sweep
    assert plan.analysers[0].spec.trigger
    assert plan.analysers[0].spec.timeouts == Timeouts(), "the defaults are what the comments say"


def test_the_plan_of_the_documentation(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/capture/plan.md").read_text()
    plan, sweep = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert parse(plan, tmp_path).analysers[0].spec.driver == "dreamsourcelab-dslogic"
    assert len(points(parse(f"{plan}\n{sweep}", tmp_path), tmp_path)) == 4
    # every key that a plan has is explained
    for key in ("group", "drain_ms", "extra_peers", "first_data_s", "margin_ms", "pre_samples", "wiring", "options"):
        assert f"`{key}`" in text


def test_a_mistake_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(GOOD.replace("samples", "smaples").replace('"eth1"', '"lo"'))
    done = pcicap("plan", "--check", tmp_path / "plan.toml")
    assert (done.status, done.out) == (3, "")
    assert done.err == "pcicap: analysers[0].smaples: unknown key; did you mean samples?\n"
    assert pcicap("plan").status == 2
    assert pcicap("plan", "--check", tmp_path / "absent.toml").status == 3


@pytest.mark.parametrize(
    "values",
    [
        {"a": 1, "b": 2.5, "c": True, "d": 'x"\\\n\té\x01', "e": [1, "two", [3.0]]},
        {"t": {"x y": 1, "u": {"v": []}}, "s": [{"a": 1, "b": {"c": 2}}, {"a": 3}]},
        {"f": [{}], "g": {}},
    ],
)
def test_toml_comes_back(values: dict[str, Any]) -> None:
    assert tomllib.loads(tomlfile.dumps(values)) == values


def test_toml_leaves_unknowns_out() -> None:
    assert tomllib.loads(tomlfile.dumps({"a": None, "b": {"c": None}})) == {"b": {}}


UDP = """
format = 1
[hosts.A]
interface = "lo"
[hosts.B]
address = "10.0.0.2"
[test]
kind = "ping-pong"
udp = true
[link]
rate_mbit_s = 1000
"""


def test_hosts_have_addresses_where_frames_go_by_udp(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(UDP)
    read = load(file)
    assert read.peers == ("10.0.0.2",)
    assert read.test is not None
    assert "--udp" in read.test.arguments()
    for wrong, said in (
        (UDP.replace("udp = true", "udp = false"), "hosts.B.address"),
        (UDP.replace('address = "10.0.0.2"', 'mac = "02:00:00:00:00:0b"'), "hosts.B.mac"),
        (UDP.replace("10.0.0.2", "10.0.0.256"), "no IPv4 address"),
    ):
        file.write_text(wrong)
        with pytest.raises(PlanError, match=said):
            load(file)


def test_the_profiles_are_those_of_pcitrace(tmp_path: Path) -> None:
    """No code of it is imported: its folder is looked into."""
    here = sorted(file.stem for file in (REPOSITORY / "pcitrace/nics").glob("*.toml"))
    assert sorted(NICS) == here
    (tmp_path / "mine.toml").write_text("")
    plan = parse(GOOD.replace("[hosts.A]", '[hosts.A]\nnic = "mine.toml"'), tmp_path)
    assert plan.hosts[0].nic == tmp_path / "mine.toml"
