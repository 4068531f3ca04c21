"""What a recording writes into run.toml."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcicap import latency, runfolder
from pcicap.analysers.base import Analyser, Outcome, Settings
from pcicap.companions import Together
from pcicap.errors import CaptureFileError
from pcicap.hostfacts import host_facts, versions
from pcicap.plan import HostPlan, Plan
from pcicap.plan_frames import is_ipv4
from pcicap.srfile import salvage
from pcicap.sync import align, line_edges

_START_SIGMA_US = 100_000.0
"""How well the time is known at which an analyser really begins after libsigrok says so: not to better than this."""
UNPREFIXED_BUS = "PCI"

UDP_HEADER_BYTES = 28
"""IPv4 without options, and UDP: what lies between Ethernet header and user data."""
"""What a bus is called whose lines have no prefix (docs/run-folder.md)."""
_TEST_KEYS = ("kind", "sizes", "count", "seconds", "spacing_us", "arrivals", "seed", "burst", "request_bytes")


def nic_name(host: HostPlan) -> str | None:
    """What run.toml calls the NIC profile of a host: a name, or the copy in the folder."""
    return f"nics/{host.name}.toml" if isinstance(host.nic, Path) else host.nic


def capture_file(name: str) -> str:
    """Where in the folder the capture of an analyser is."""
    return f"captures/{name}.sr"


def run_toml(
    plan: Plan,
    analysers: Sequence[tuple[Analyser, Settings, Mapping[str, Any]]],
    sweep: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What is known before the first sample.

    Parameters
    ----------
    plan : Plan
        What was asked for.
    analysers : sequence of (Analyser, Settings, mapping)
        Each with its settings and, where it is a replay, the facts of its source.
    sweep : mapping or None
        ``[sweep]``.
    """
    run: dict[str, Any] = {"format": runfolder.FORMAT, "title": plan.title or None, "created": runfolder.now()}
    run.update(_origin(plan, [facts for _, _, facts in analysers]))
    run["versions"] = versions()
    run["captures"] = [_capture(analyser, settings) for analyser, settings, _ in analysers]
    lines = [set(analyser.spec.channels.values()) for analyser, _, _ in analysers]
    run["hosts"] = {}
    for host in plan.hosts:
        if host.analyser is None:
            run["hosts"][host.name] = _host(host, (), {})
        else:
            run["hosts"][host.name] = _host(host, lines[host.analyser], analysers[host.analyser][2])
    for node, name in enumerate(plan.nodes):
        peer = plan.addresses[node - 1] if node else None
        run["hosts"].setdefault(name, _addressed(peer))["node"] = node
    if plan.path:
        run["path"] = dict(plan.path)
    # the captures of a replay show frames that took the source's link
    link = next((facts["link"] for _, _, facts in analysers if facts.get("link")), plan.link)
    if link:
        run["link"] = dict(link)
    if plan.test:
        parameters = {"command": plan.test.arguments(), "link": dict(plan.link) or None}
        run["test"] = {"kind": plan.test.kind, "parameters": parameters}
        if plan.test.options.get("udp"):
            run["test"] |= {"transport": "udp", "header_bytes": UDP_HEADER_BYTES}
    if sweep:
        run["sweep"] = dict(sweep)
    return run


def add_outcomes(run: dict[str, Any], folder: Path, outcomes: Sequence[Outcome], settings: Sequence[Settings]) -> None:
    """Add what came of the captures; one that delivered nothing becomes a file without samples."""
    begun = [outcome.started_ns for outcome in outcomes if outcome.started_ns is not None]
    for capture, outcome, setting in zip(run["captures"], outcomes, settings, strict=True):
        file = folder / capture["file"]
        if file.exists():
            salvage(file)  # a full disk may have had no room for the last bytes of a file
        else:
            runfolder.empty_capture(file, setting.bits, capture.get("rate_hz"))
        capture.update(
            sha256=runfolder.sha256(file),
            samples=outcome.samples,
            complete=outcome.reason is None,
            reason=outcome.reason,
            trigger_sample=outcome.trigger_sample,
            started_ns=outcome.started_ns,
        )
        if len(outcomes) > 1 and outcome.started_ns is not None:
            capture["offset_us"] = (outcome.started_ns - begun[0]) / 1e3
            capture["offset_sigma_us"] = _START_SIGMA_US


def add_alignment(run: dict[str, Any], folder: Path, line: str) -> list[str]:
    """Put all captures on the time axis of the first, by a line that all of them recorded.

    Returns
    -------
    list of str
        Why a capture could not be; it keeps the offset that the computer's clock gives.
    """
    problems = []
    reference, *others = run["captures"]
    rates = [capture.get("rate_hz") or capture["clock_mhz"] * 1e6 for capture in run["captures"]]
    try:
        edges = [
            line_edges(folder / capture["file"], line, rate)
            for capture, rate in zip(run["captures"], rates, strict=True)
        ]
    except (ValueError, CaptureFileError) as error:
        return [f"sync: {error}"]
    reference.update(offset_us=0.0, offset_sigma_us=0.0, drift_ppm=0.0, drift_sigma_ppm=0.0)
    for capture, rate, own in zip(others, rates[1:], edges[1:], strict=True):
        found = align(own, edges[0], 1e6 / rate, 1e6 / rates[0])
        if found is None:
            problems.append(f"sync: {line} does not tell how {capture['file']} and {reference['file']} relate in time")
            continue
        capture.update(
            offset_us=found.offset_us,
            offset_sigma_us=found.offset_sigma_us,
            drift_ppm=found.drift_ppm,
            drift_sigma_ppm=found.drift_sigma_ppm,
        )
    return problems


def add_frames(run: dict[str, Any], folder: Path, plan: Plan, tests: Together) -> None:
    """Add the frame logs, the test as it was carried out, its companions, and the facts of the other hosts."""
    framegen = tests.own
    if beside := tests.entries():
        run["companions"] = beside
    steering = plan.steering
    assert steering
    others = list(plan.nodes[1:])
    run |= runfolder.frame_tables(folder, plan.nodes)
    if framegen.summary is None:
        return
    if latency.write(folder / "latency.csv", framegen.summary) and run["origin"] == "captured":
        # the latency of this link and these cards goes with this bus; beside a replayed one it is only a table
        entry = {"file": "latency.csv", "method": plan.test.kind if plan.test else None}
        run["latency"] = [{**entry, "sender": steering.name, "receiver": others[0] if others else None}]
    test = dict(framegen.summary["test"])
    planned = run["test"]["parameters"]
    run["test"] = {key: value for key in _TEST_KEYS if (value := test.pop(key, None)) is not None}
    run["test"]["parameters"] = {**planned, **{key: value for key, value in test.items() if value is not None}}
    for name, node in zip(others, framegen.summary["nodes"][1:], strict=False):
        keep = ("host", "kernel", "program", "interface", "mtu")
        run["hosts"][name]["facts"] = {key: node[key] for key in keep if node.get(key) is not None}


def _origin(plan: Plan, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    replayed = [entry for entry in facts if entry]
    if replayed:
        # several replays: the first one's source stands for them, their origin is the least real one
        origins = [str(entry["source_origin"]) for entry in replayed]
        origin = next((known for known in ("simulated", "unknown", "replayed") if known in origins), origins[0])
        return {
            "origin": "replayed",
            "frames_on_bus": False,
            "source": replayed[0]["source"],
            "source_origin": origin,
            "source_sha256": replayed[0]["source_sha256"],
        }
    if any(analyser.spec.driver == "demo" for analyser in plan.analysers):
        # sigrok's demo device makes its samples up
        return {"origin": "simulated", "frames_on_bus": False, "simulation": {"preset": "sigrok demo driver"}}
    return {"origin": "captured"}


def _capture(analyser: Analyser, settings: Settings) -> dict[str, Any]:
    spec = analyser.spec
    details: dict[str, Any] = {
        "bits": {str(bit): line for bit, line in sorted(settings.bits.items())},
        "channels": dict(spec.channels),
        "config": dict(spec.config),
        "options": dict(spec.options),
        "requested_rate_hz": spec.rate_hz,
        "rate_read_back": settings.rate_read_back,
    }
    if spec.trigger:
        details["trigger"] = spec.trigger.condition
        details["trigger_by"] = spec.trigger.by.value
        details["pre_samples"] = spec.trigger.pre_samples
    return {
        "file": capture_file(spec.name),
        "rate_hz": settings.rate_hz,
        "clock_mhz": spec.clock_mhz,
        "analyser": {
            "name": spec.name,
            "driver": spec.driver,
            "model": settings.model,
            "conn": spec.conn or None,
            "settings": details,
        },
    }


def _addressed(address: str | None) -> dict[str, Any]:
    """The address of a host: where frames go by UDP it is among the facts."""
    if address is not None and is_ipv4(address):
        return {"facts": {"address": address}}
    return {"mac": address}


def _host(host: HostPlan, lines: Collection[str], replayed: Mapping[str, Any]) -> dict[str, Any]:
    """``[hosts.X]``; what the plan leaves open about a replayed bus is as its source says."""
    bus = host.bus if any(line.startswith(f"{host.bus}_") for line in lines) else UNPREFIXED_BUS
    recorded = host.analyser is not None
    source = replayed.get("hosts", {}).get(host.name, {}) if recorded else {}
    entry: dict[str, Any] = {
        "capture": host.analyser,
        "bus": bus if recorded else None,
        "clock_mhz": host.clock_mhz or source.get("clock_mhz"),
        "width": host.width or source.get("width"),
        "nic": nic_name(host) or source.get("nic"),
        "interface": host.interface,
        **_addressed(host.mac),
    }
    if host.wiring:
        entry["wiring"] = dict(host.wiring)
    if host.interface:
        entry["facts"] = host_facts(host.interface)
    return entry
