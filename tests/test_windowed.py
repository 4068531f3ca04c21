"""Windows of a run's analysis: cut wherever it rests, put together, they are the whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from idle_captures import repeat

import pcitrace
from pcitrace import analysis, windowed
from pcitrace.cli import main
from pcitrace.frames import Frames, build
from pcitrace.simulate import PRESETS
from pcitrace.traffic import agents_of

AGAIN = 5
WIRES = {"acenic-fig4.2a": "command", "acenic-fig4.2c": "control14"}
"""What is captured of some presets; of the others everything, which is analysed soonest."""


def here(windows: list[windowed.Window]) -> list[windowed.Found]:
    """Do windows one after the other."""
    return [window() for window in windows]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write a run folder of a preset that happens several times, with idle time between."""

    def write(preset: str, *values: str) -> Path:
        folder = tmp_path_factory.mktemp("windowed")
        wires = f"analyser.wires={WIRES.get(preset, 'full')}"
        command = ["simulate", preset, "-o", str(folder / "once"), "--set", "test.count=6", wires, *values]
        assert main(command) == 0
        return repeat(folder / "once", folder / "run", AGAIN, 1.5 * windowed.QUIET_US)

    return write


def sources_of(run: pcitrace.AnalysedRun) -> dict[str, analysis.Source]:
    """What the analysis of each host begins with, on the run's axis."""
    analysis.offsets(run)
    return {name: analysis.source(run, name) for name in run.folder.bus_hosts}


def windows_of(
    sources: dict[str, analysis.Source], cuts: list[float], run: pcitrace.AnalysedRun, done: Callable[..., Any] = here
) -> Frames:
    """The frames of a run in these windows."""
    sequence = analysis.sequence(run)
    hosts, matched = windowed.match_windows(sources, cuts, sequence, done)
    assert matched is not None
    return build(hosts, link=sources[next(iter(sources))].link, sequence=sequence, matched=matched)


def assert_same(found: Frames, whole: Frames) -> None:
    """Every row of every table."""
    pd.testing.assert_frame_equal(found.table, whole.table)
    pd.testing.assert_frame_equal(found.drop_log, whole.drop_log)
    assert found.findings == whole.findings
    for name, traffic in whole.hosts.items():
        for table in ("bursts", "pieces", "csr_accesses"):
            pd.testing.assert_frame_equal(getattr(found.hosts[name], table), getattr(traffic, table))
        assert (found.hosts[name].unknown, found.hosts[name].other) == (traffic.unknown, traffic.other)


@pytest.mark.parametrize("preset", PRESETS)
def test_windows_of_a_preset_are_the_whole(preset: str, repeated: Callable[..., Path]) -> None:
    run = pcitrace.open(repeated(preset))
    whole, sources = run.frames, sources_of(run)
    pauses = windowed.pauses(sources.values()).tolist()
    assert len(pauses) == AGAIN - 1
    assert len(whole) >= 5 * AGAIN
    # The drop log and the findings of a run folder are more than those of its buses.
    plain = windows_of(sources, [], run)
    assert_same(windows_of(sources, pauses, run), plain)
    pd.testing.assert_frame_equal(plain.table, whole.table)


def test_a_hundred_random_cuts(repeated: Callable[..., Path]) -> None:
    """Of frames that are lost, too; in pauses of any length that is longer than what is under way."""
    random = Random(16)
    for preset, loss in (("acenic-fig4.2b", 0.0), ("acenic-fig4.2d", 0.1), ("sk9843-100us", 0.0), ("sk9843-10us", 0.1)):
        run = pcitrace.open(repeated(preset, f"link.loss={loss}", "test.count=5", "analyser.wires=full"))
        sources = sources_of(run)
        whole = plain(*windowed.match_windows(sources, [], None, here))
        pauses = windowed.pauses(sources.values(), 60.0).tolist()
        for _ in range(25):
            cuts = sorted(random.sample(pauses, random.randint(1, min(4, len(pauses)))))
            found = plain(*windowed.match_windows(sources, cuts, None, here))
            assert found.keys() == whole.keys()
            for name, values in whole.items():
                np.testing.assert_array_equal(found[name], values, name)


def plain(hosts: dict[str, windowed.HostTraffic], matched: windowed.Matched | None) -> dict[str, Any]:
    """All that is known of hosts and frames before what all frames tell together is worked out of it."""
    assert matched is not None
    _, columns, drops = matched
    found = dict(columns)
    for number, dropped in enumerate(drops):
        found |= {f"dropped {number} {key}": values for key, values in dropped.items()}
    for name, host in hosts.items():
        dma = host.traffic.dma
        found |= {f"{name} {key}": getattr(dma, key) for key in ("write", "kind", "reason", "burst")}
    return found


def test_windows_are_about_as_long_as_asked(repeated: Callable[..., Path]) -> None:
    sources = sources_of(pcitrace.open(repeated("acenic-fig3.1")))
    total = sum(len(one.transactions) for one in sources.values())
    pauses = windowed.pauses(sources.values()).tolist()
    both = list(sources.values())
    assert windowed.cuts(both, 1) == pauses
    assert windowed.cuts(both, total) == []
    assert windowed.cuts(both, total // AGAIN + 1) == [pauses[1], pauses[3]]
    assert windowed.cuts(both, 1, 2 * windowed.QUIET_US) == []


def test_an_edge_that_cuts_a_frame_is_given_up(repeated: Callable[..., Path]) -> None:
    run = pcitrace.open(repeated("acenic-fig4.2d"))
    sources = sources_of(run)
    whole = windows_of(sources, [], run)
    sent, got = whole.table[["dma_end_us", "rx_dma_start_us"]].iloc[7]
    [clean, *_] = windowed.pauses(sources.values()).tolist()
    asked: list[int] = []

    def counted(windows: list[windowed.Window]) -> list[windowed.Found]:
        asked.append(len(windows))
        return here(windows)

    assert_same(windows_of(sources, sorted([clean, (sent + got) / 2]), run, counted), whole)
    assert asked == [3, 1]


def test_what_comes_in_a_later_window_is_added(repeated: Callable[..., Path]) -> None:
    """Status words and accesses that follow a frame."""
    sources = sources_of(pcitrace.open(repeated("sk9843-100us")))
    hosts, matched = windowed.match_windows(sources, [], None, here)
    assert matched is not None
    columns = matched[1]
    told = ("status_us", "rx_status_us", "rx_csr_us")
    assert all(np.isfinite(columns[name]).any() for name in told)
    without = columns | {name: np.full(len(columns["sender"]), np.nan) for name in told}
    for name, host in hosts.items():
        windowed._follow(without, name, host)
    for name in told:
        np.testing.assert_array_equal(without[name], columns[name], name)


def test_registers_that_hold_on_are_known_in_every_window(repeated: Callable[..., Path]) -> None:
    sources = sources_of(pcitrace.open(repeated("sk9843-100us")))
    agents = {}
    for name, one in sources.items():
        found = agents_of(one.transactions, one.data_phases, one.nic)
        ring = replace(found.csr, roles=("send_ring",), role=np.arange(len(found.csr)) % 2 - 1)
        agents[name] = replace(found, csr=ring)
    _, pause, *_ = windowed.pauses(sources.values()).tolist()
    window = windowed._window(sources, agents, pause, np.inf, None)
    for name, side in window.sides.items():
        every = agents[name].csr
        assert side.agents.csr.first_attempt_us.tolist() == every.first_attempt_us[every.role == 0].tolist()
        assert (
            side.accesses.first_attempt_us.tolist() == every.first_attempt_us[every.first_attempt_us > pause].tolist()
        )
        assert side.source.transactions.start_us.min() > pause > side.agents.csr.first_attempt_us.min()


def test_frames_that_are_numbered_in_different_ways_are_matched_together(repeated: Callable[..., Path]) -> None:
    sources = sources_of(pcitrace.open(repeated("acenic-fig4.2d")))
    done: list[windowed.Found] = []

    def other(windows: list[windowed.Window]) -> list[windowed.Found]:
        done.extend(here(windows))
        by_number = {"sequence_source": np.full(len(done[0].columns["sender"]), "frame", dtype=object)}
        return [replace(done[0], columns=done[0].columns | by_number), *done[1:]]

    hosts, matched = windowed.match_windows(sources, windowed.pauses(sources.values()).tolist(), None, other)
    assert matched is None
    assert hosts.keys() == sources.keys()


def test_what_does_not_stand_in_windows_is_not_gone_on_with(repeated: Callable[..., Path]) -> None:
    """What the rules find of a card that they do not know depends on the windows, and what is read again on that."""
    folder = repeated("sk9843-100us", "analyser.wires=control16")

    def none_matched(windows: list[windowed.Window]) -> list[windowed.Found]:
        def without(columns: dict[str, Any]) -> dict[str, Any]:
            return {name: values[:0] for name, values in columns.items()}

        return [
            replace(one, columns=without(one.columns), drops=list(map(without, one.drops))) for one in here(windows)
        ]

    assert_same(windowed.frames(pcitrace.open(folder), none_matched, 1), pcitrace.open(folder).frames)


def test_on_workers_a_report_is_the_same(repeated: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = str(repeated("acenic-fig3.1", "test.count=2"))
    capsys.readouterr()
    assert main(["report", path, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["report", path, "--json", "--workers", "1"]) == 0
    out = capsys.readouterr()
    assert "dashboard: http://" in out.err
    assert json.loads(out.out) == alone


def test_what_no_worker_could_do_is_done_here() -> None:
    import distributed

    from pcitrace.campaign import windows

    def result() -> None:
        raise distributed.scheduler.KilledWorker("window", SimpleNamespace(address="tcp://there"), 3)

    future = SimpleNamespace(result=result, release=lambda: None)
    client = SimpleNamespace(scatter=lambda one: one, submit=lambda *args, **options: future)
    said: list[str] = []
    assert list(windows._done(client, [lambda: np.int64(7)], said.append)) == [7]
    assert said[0].startswith("1 of 1 parts were done here: ")
