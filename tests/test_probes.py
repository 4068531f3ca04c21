"""Wires that are another host's are a finding, also where all frames have one length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cardbench import Bench, write

import pcitrace
from pcitrace import analysis
from pcitrace.frames.probes import on_other_wire
from pcitrace.simulate import Simulation, simulate

KINDS = {
    "ping-pong": {"test.kind": "ping-pong"},
    "request-response": {"test.kind": "request-response", "test.request_bytes": 1000},
    "stream": {"test.kind": "stream"},
    "bidirectional": {"test.kind": "bidirectional", "test.arrivals": "poisson"},
}


def rewired(run: Path, a: str, b: str) -> tuple[str, ...]:
    """Return the findings with other channels for TX_EN."""
    text = (run / "run.toml").read_text()
    for host, channel in (("A", a), ("B", b)):
        text = text.replace(f"[hosts.{host}]\n", f'[hosts.{host}]\nwiring = {{ TXEN = "{channel}" }}\n')
    (run / "run.toml").write_text(text)
    return pcitrace.open(run).frames.findings


@pytest.mark.parametrize("kind", KINDS)
def test_swapped_probes_are_a_finding(tmp_path: Path, kind: str) -> None:
    simulate(Simulation(), tmp_path / "run", seed=2, values={"test.sizes": (1000,), "test.count": 30, **KINDS[kind]})
    assert not any("TX_EN" in finding for finding in pcitrace.open(tmp_path / "run").frames.findings)
    findings = rewired(tmp_path / "run", "B_TXEN", "A_TXEN")
    if kind == "stream":
        # Only one host sends, and without AD the wires say which: its log contradicts them.
        assert any("A: its frame log has 30 frames, the trace 0" in finding for finding in findings)
    else:
        assert any("TX_EN of A and B are swapped" in finding for finding in findings)


def test_both_probes_on_one_wire_are_a_finding(tmp_path: Path) -> None:
    simulate(
        Simulation(), tmp_path / "run", seed=2, values={"test.sizes": (1000,), "test.count": 30, **KINDS["ping-pong"]}
    )
    hosts, _ = analysis.whole(pcitrace.open(tmp_path / "run"), ("A", "B"))
    assert on_other_wire(hosts) == []
    [finding] = on_other_wire({"A": replace(hosts["A"], wire=hosts["B"].wire), "B": hosts["B"]})
    assert finding.startswith("TX_EN of A is the other host's")


def test_that_the_other_host_sends_often_does_not_make_a_wire_its_own(tmp_path: Path) -> None:
    """Some send of B was always near, closer than the frames of A were to theirs; but B's wire has other frames."""
    write(Bench("wide66", 1218, frames=36), tmp_path, vcd=False)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control16.toml").read_text())
    assert not any("TX_EN" in finding for finding in pcitrace.open(tmp_path).frames.findings)
