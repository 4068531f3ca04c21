"""What is learned of a card is what it is, or null: counted against every other value, never taken from a profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cardbench import Bench, write
from conftest import shared_dir

import pcitrace
from pcitrace import analysis, profiles
from pcitrace.cli import main
from pcitrace.learning import Learned
from pcitrace.learning.evidence import MISS, SURE, chosen
from pcitrace.simulate import find_preset, simulate

REREAD = {"continue": "cut", "line": "line", "piece": "piece", "cut": "line"}


def truth(drawn: dict[str, Any]) -> dict[str, Any]:
    """What a generated card is, by the names of what is learned; status sizes are those of both directions."""
    unit = drawn["width"] // 8
    twice = {way: 2 if drawn[key] and drawn["descriptor"] < 16 else 1 for way, key in WAYS.items()}
    return {
        "send": "cut_through" if drawn["tx_threshold"] else "store_and_forward",
        "receive": "cut_through" if drawn["rx_chunk"] else "store_and_forward",
        "burst_limit_bytes": drawn["burst"] // unit * unit,  # a burst has whole data phases
        "cut_bytes": drawn["cut"],
        "timer_cuts": drawn["latency_timer"] > 0,
        "reread": REREAD[drawn["reread"]],
        "reread_line_bytes": drawn["cut"] if drawn["reread"] == "cut" else drawn["line"],
        "send_shift_bytes": drawn["tx_offset"] % unit,
        "receive_shift_bytes": drawn["rx_offset"] % unit,
        "send_offset_bytes": drawn["tx_offset"],
        "receive_offset_bytes": drawn["rx_offset"],
        "padding_bytes": drawn["pad"] if drawn["pad"] > unit else 0,
        "receive_fcs": drawn["fcs"],
        "send_buffers": 2 if drawn["split"] else 1,
        "receive_buffers": 2 if drawn["rx_split"] else 1,
        "send_descriptor_bytes": drawn["descriptor"] * twice["send"],
        "receive_descriptor_bytes": drawn["descriptor"] * twice["receive"],
        "send_fetch_max": drawn["fetch"],
        "receive_fetch_max": drawn["rx_fetch"],
        "status_bytes": {drawn["tx_status"], drawn["rx_status"]},
        "send_frames_per_status": drawn["tx_batch"],
        "receive_frames_per_status": drawn["rx_batch"],
        "frames_per_doorbell": drawn["together"],
    }


WAYS = {"send": "split", "receive": "rx_split"}


def learned(bench: Bench, folder: Path, capture: str, nic: str = "generic") -> Learned:
    write(bench, folder, vcd=capture == "run.toml", control14=capture == "run-control14.toml")
    stated = (folder / capture).read_text().replace('"card.toml"', f'"{nic}"')
    (folder / "run.toml").write_text(stated)
    return pcitrace.open(folder).learned


def wrong(found: Learned, bench: Bench) -> list[str]:
    """What was learned and is not so."""
    known = truth(bench.drawn)
    out = []
    for host, values in found.hosts.items():
        for key, one in values.items():
            assert (one.value is None) == bool(one.reason)
            right = set(one.value) <= known[key] if isinstance(one.value, tuple) else one.value == known[key]
            if one.value is not None and not right:
                out.append(f"{host} {key}: {one}, true {known[key]}")
    return out


def right(bench: Bench, folder: Path, capture: str) -> set[str]:
    """What is learned of either host, none of it wrong."""
    found = learned(bench, folder, capture)
    assert not wrong(found, bench)
    return {key for values in found.hosts.values() for key, one in values.items() if one.value is not None}


LEARNED = {
    ("ring", 1): {"burst_limit_bytes", "cut_bytes", "send_fetch_max", "padding_bytes", "send_offset_bytes", "send"},
    ("ring", 3): {"burst_limit_bytes", "padding_bytes", "receive_fetch_max", "send_frames_per_status", "status_bytes"},
    ("groups", 12): {"frames_per_doorbell", "receive"},
    ("batched-status", 1): {"send_frames_per_status", "status_bytes", "frames_per_doorbell"},
    ("batched-status", 4): {"send_descriptor_bytes", "receive_descriptor_bytes", "send_fetch_max", "receive_fcs"},
    ("cut-through", 13): {"send", "receive", "send_descriptor_bytes", "receive_descriptor_bytes", "send_offset_bytes"},
    ("scatter-gather", 6): {"send_buffers", "receive_buffers", "reread"},
    ("reread", 2): {"reread", "reread_line_bytes", "cut_bytes"},
    ("reread", 7): {"reread_line_bytes", "send_buffers", "receive_buffers"},
    ("padding", 1): {"receive_shift_bytes", "receive_offset_bytes", "receive_frames_per_status"},
    ("latency-timer", 1): {"timer_cuts", "receive_shift_bytes", "send_shift_bytes"},
    ("fcs", 1): {"receive_fcs", "send_shift_bytes", "receive_offset_bytes"},
    ("wide66", 1): {"receive_fcs", "receive_frames_per_status"},
    ("cacheline", 2): {"receive_fetch_max"},
    ("batched-status", 32): {"receive_frames_per_status"},
}
"""What is learned of some cards from AD, by family and seed."""


def test_every_value_is_told_from_another() -> None:
    """So that a value which is no longer learned, or always the same, makes the next test fail."""
    seen: dict[str, set[str]] = {}
    for (family, seed), keys in LEARNED.items():
        drawn = truth(Bench(family, seed).drawn)
        for key in keys:
            seen.setdefault(key, set()).add(str(drawn[key]))
    assert set(seen) == set(truth(Bench("ring", 1, 4).drawn))
    # That no timer ends a burst cannot be learned.
    assert {key for key, values in seen.items() if len(values) == 1} == {"timer_cuts"}


@pytest.mark.parametrize(("family", "seed"), LEARNED)
def test_from_ad_no_value_is_wrong(family: str, seed: int, tmp_path: Path) -> None:
    assert right(Bench(family, seed), tmp_path, "run.toml") >= LEARNED[family, seed]


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("cut-through", 9),
        ("csr-descriptors", 11),
        ("mixed", 9),
        ("reread", 17),
        ("ring", 14),
        ("batched-status", 16),
        ("scatter-gather", 7),
        ("scatter-gather", 20),
    ],
)
def test_what_looks_like_another_value_is_not_given(family: str, seed: int, tmp_path: Path) -> None:
    """Of each one value was wrong: a threshold or a timer was a limit, two reads of four descriptors were of two."""
    right(Bench(family, seed), tmp_path, "run.toml")


FROM_CONTROL_LINES = {
    ("ring", 3): {"burst_limit_bytes", "cut_bytes", "receive_fcs"},
    ("groups", 2): {"frames_per_doorbell", "padding_bytes", "receive_fcs"},
    ("latency-timer", 1): {"timer_cuts", "send_shift_bytes", "frames_per_doorbell"},
    ("fcs", 1): {"receive_shift_bytes", "receive_fcs", "timer_cuts"},
}
"""What is learned of some cards from control lines and wires."""


@pytest.mark.parametrize(("family", "seed"), FROM_CONTROL_LINES)
def test_from_control_lines_no_value_is_wrong(family: str, seed: int, tmp_path: Path) -> None:
    assert right(Bench(family, seed), tmp_path, "run-control16.toml") >= FROM_CONTROL_LINES[family, seed]


def test_shared_cards(tmp_path: Path) -> None:
    """Cards of another maker: what their data sheets say, where it is learned."""
    seen = 0
    for name in ("csr-descriptors", "wide66", "tiny"):
        folder = shared_dir() / "traces" / f"card_{name}"
        drawn = json.loads((folder / "card.json").read_text())
        for values in pcitrace.open(folder / "run.toml").learned.hosts.values():
            for key, true in (("receive_fcs", drawn["rx_fcs"]), ("burst_limit_bytes", drawn["burst"])):
                assert values[key].value in (None, true)
                seen += values[key].value is not None
            assert values["send"].value in (None, "store_and_forward")
            assert values["send_buffers"].value in (None, 1)
    assert seen >= 2


def test_what_is_learned_is_never_the_profile(tmp_path: Path) -> None:
    """With the true profile, another card's and none the same is learned."""
    bench = Bench("fcs", 2)
    found = [learned(bench, tmp_path / nic, "run.toml", nic).as_json() for nic in ("generic", "card.toml", "acenic")]
    without = [{host: {key: one["value"] for key, one in values.items() if "doorbell" not in key}
                for host, values in one["hosts"].items()} for one in found]  # fmt: skip
    assert without[0] == without[1] == without[2]


def test_the_file_is_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench("ring", 2)
    write(bench, tmp_path)
    out = tmp_path / "learned card.toml"
    assert main(["learn", str(tmp_path), "-o", str(out)]) == 0
    assert f"-> {out}" in capsys.readouterr().out
    text = out.read_text()
    assert "receive_fcs = " in text
    assert "margin" in text.split("receive_fcs = ")[1].splitlines()[0]
    profile = profiles.load(out)
    assert profile.name == "learned-card"
    assert profile.receive_fcs == bench.drawn["fcs"]
    assert profile.send_descriptor is not None
    assert profile.send_descriptor.size_bytes == bench.drawn["descriptor"]
    assert profile.registers == profiles.load(tmp_path / "card.toml").registers
    assert profile.windows == profiles.load(tmp_path / "card.toml").windows
    assert main(["frames", str(tmp_path), "--profile", str(out), "-o", str(tmp_path / "frames.csv")]) == 0


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench("fcs", 1, frames=12)
    write(bench, tmp_path)
    assert main(["learn", str(tmp_path), "--json"]) == 0
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    assert set(hosts) == {"A", "B"}
    for values in hosts.values():
        assert set(values) == set(truth(bench.drawn))
        for one in values.values():
            assert set(one) == (
                {"value", "n", "margin", "reason"} if one["value"] is None else {"value", "n", "margin"}
            )
            assert one["value"] is None or one["margin"] >= SURE
    assert main(["learn", str(tmp_path), "--bus", "B", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["hosts"]) == {"B"}
    assert main(["learn", str(tmp_path), "--bus", "C"]) == 3
    assert "no host 'C'; there are A, B" in capsys.readouterr().err
    assert main(["learn", str(tmp_path)]) == 0
    assert "host A" in capsys.readouterr().out


def test_repr(tmp_path: Path) -> None:
    found = learned(Bench("fcs", 1, frames=20), tmp_path, "run-control16.toml")
    assert repr(found).startswith("<Learned: A ")
    assert "\n" not in repr(found)
    html = found._repr_html_()
    assert "receive_fcs" in html
    assert "unknown: " in html


@pytest.mark.parametrize("capture", ["run.toml", "run-control16.toml"])
def test_a_profile_that_the_traffic_contradicts_is_a_finding(capture: str, tmp_path: Path) -> None:
    bench = Bench("fcs", 2)
    write(bench, tmp_path)
    (tmp_path / "run.toml").write_text((tmp_path / capture).read_text())
    right = profiles.load(tmp_path / "card.toml")
    text = (tmp_path / "card.toml").read_text()
    assert not [one for one in analysis.frames(pcitrace.open(tmp_path)).findings if "profile" in one]
    (tmp_path / "card.toml").write_text(
        text.replace(f"burst_limit_bytes = {right.burst_limit_bytes}", "burst_limit_bytes = 16")
    )
    found = analysis.frames(pcitrace.open(tmp_path)).findings
    assert any("longer than 16 bytes" in one and "says burst_limit_bytes = 16" in one for one in found), found


def test_a_wrong_check_sequence_is_a_finding(tmp_path: Path) -> None:
    bench = Bench("fcs", 2)
    write(bench, tmp_path)
    text = (tmp_path / "card.toml").read_text()
    (tmp_path / "card.toml").write_text(text.replace("receive_fcs = true", "receive_fcs = false"))
    found = analysis.frames(pcitrace.open(tmp_path)).findings
    assert any("receive_fcs = true" in one and "says false" in one for one in found), found


def test_own_bench(tmp_path: Path) -> None:
    """The simulated bench of the project itself: nothing wrong is learned of its card."""
    simulate(find_preset("acenic-fig3.1"), tmp_path / "run", seed=1)
    for values in pcitrace.open(tmp_path / "run").learned.hosts.values():
        assert values["receive_fcs"].value in (None, False)
        assert values["send"].value in (None, "store_and_forward")


def test_the_margin_counts_what_the_next_best_value_leaves() -> None:
    found = chosen({4: 1, 8: 9, 16: 10}, 10)
    assert (found.value, found.n, found.margin) == (4, 10, 8 * MISS)
    assert chosen({4: 0, 8: 1}, 10).value is None
    assert "4 and 8 explain the traffic alike" in chosen({4: 0, 8: 1}, 10).reason
    assert chosen({4: 5, 8: 10}, 10).value is None
    assert chosen({4: 0, 8: 4}, 4).value is None
    assert np.isclose(chosen({True: 0, False: 2}, 10).margin or 0, 2 * MISS)
