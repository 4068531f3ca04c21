"""Every cost is needed: with any one of them broken, the frames of a kept capture are others.

What is kept is in `golden_frames/`. A cost without which nothing there changes is superfluous, or nothing tests it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from cardbench import Bench, write
from test_frozen_frames import FRAMES, GOLDEN, SEED, in_a_way, lines

from pcitrace import _kernel, lattice, releases
from pcitrace.frames import doorbellcosts
from pcitrace.frames.doorbellcosts import Reader
from pcitrace.lattice import ALONE, Goals, Learner, Table, Track
from pcitrace.traffic import alone

Broken = Callable[[], AbstractContextManager[Any]]
"""Gives what a cost is broken within."""


def level(costs: Any) -> Any:
    """Return costs that tell nothing: all are as the one in the middle."""
    known = costs[np.isfinite(costs)]
    return np.full_like(costs, np.median(known) if len(known) else 0)


def none(cost: Any) -> Any:
    return np.zeros_like(cost) if isinstance(cost, np.ndarray) else type(cost)()


class _Kernel:
    """The kernel, but what one of its readings is given is changed on the way."""

    def __init__(self, reading: str, change: Callable[..., Any]) -> None:
        self.reading, self.change = reading, change

    def __getattr__(self, name: str) -> Any:
        real = getattr(_kernel, name)
        return (lambda *given, **how: real(*self.change(*given), **how)) if name == self.reading else real


def changed(one: Any, to: dict[str, Callable[[Any], Any]]) -> Any:
    return replace(one, **{name: by(getattr(one, name)) for name, by in to.items()})


def of_dma(part: type, **to: Callable[[Any], Any]) -> Broken:
    """Break costs of the reading of a host's DMA."""

    def change(sequence: Any, goals: tuple[Goals, Goals], table: Table) -> Any:
        if part is Goals:
            goals = changed(goals[0], to), changed(goals[1], to)
        elif part is Track:
            table = replace(table, tracks=(changed(table.tracks[0], to), changed(table.tracks[1], to)))
        else:
            table = changed(table, to)
        return sequence, goals, table

    return partial(patch.object, lattice, "_kernel", _Kernel("read_lattice", change))


def of_doorbells(part: type, **to: Callable[[Any], Any]) -> Broken:
    """Break costs of the reading of a host's accesses."""

    def change(*args: Any) -> Any:
        return [changed(one, to) if isinstance(one, part) else one for one in args]

    return partial(patch.object, releases, "_kernel", _Kernel("read_releases", change))


def instead(of: Any, name: str, other: Any) -> Broken:
    return partial(patch.object, of, name, other)


def either_way(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return how pieces cost by themselves if it is not known which way they go."""

    def costs(self: alone.Alone, *args: Any) -> Any:
        other = copy(self)
        other.write = np.full_like(self.write, -1)
        return real(other, *args)

    return costs


def unsized(goals: Any) -> Any:
    """Return bounds of what claims a target that bound nothing."""
    return np.full_like(goals, 1 << 15)


def no_account(learner: Learner, nats: float) -> None:
    """Learning costs nothing."""


BROKEN: dict[str, tuple[str, Broken]] = {
    # Of a host's DMA, by the tables.
    "lattice.Track.goes_on": ("batched-status.control16-own", of_dma(Track, goes_on=level)),
    "lattice.Track.resumes": ("reread.control16-own", of_dma(Track, resumes=level)),
    "lattice.Track.after_others": ("ring.control16-own", of_dma(Track, after_others=level)),
    "lattice.Track.begins": ("batched-status.control16-own", of_dma(Track, begins=level)),
    "lattice.Track.lag": ("csr-descriptors.control16-own", of_dma(Track, lag=level, claims=level)),
    "lattice.Track.excess": ("csr-descriptors.control16-own", of_dma(Track, excess=level)),
    "lattice.Track.middle": ("batched-status.control16-own", of_dma(Track, middle=level)),
    "lattice.Track.singles": ("ring.control16-own", of_dma(Track, singles=none)),
    "lattice.Track.places": ("scatter-gather.vcd-generic", of_dma(Track, places=level)),
    "lattice.Table.other": ("batched-status.control16-own", of_dma(Table, other=level)),
    "lattice.Table.other_units": ("batched-status.control16-own", of_dma(Table, other_units=level)),
    "lattice.Table.follows": ("latency-timer.control16-own", of_dma(Table, follows=level)),
    "lattice.Table.apart": ("padding.vcd-generic", of_dma(Table, apart=none)),
    "lattice.Goals.skip": ("csr-descriptors.control16-own", of_dma(Goals, skip=none)),
    "lattice.Goals.held": ("csr-descriptors.control16-own", of_dma(Goals, held=none)),
    "lattice.Goals.least": ("cut-through.control16-own", of_dma(Goals, least=none, most=unsized)),
    "lattice.Goals.again": ("reread.control16-own", of_dma(Goals, again=none)),
    # What each piece costs by itself, and what it costs to learn all this.
    "way": ("mid-stream.vcd-generic", instead(alone.Alone, "costs", either_way(alone.Alone.costs))),
    "first data": (
        "reread.control16-own",
        instead(alone.Alone, "_first_data", lambda *_: np.zeros(alone.SLOWEST_CLKS, np.float32)),
    ),
    "page": ("batched-status.vcd-generic", instead(alone.Alone, "_placed", lambda *_: None)),
    "named": (
        "scatter-gather.vcd-generic",
        instead(alone.Alone, "_told", lambda _, naming, *__: np.zeros((len(naming.named), ALONE), np.float32)),
    ),
    "since a frame": (
        "latency-timer.control16-own",
        instead(alone._Since, "costs", lambda _, size, *__: np.full(len(size), np.inf)),
    ),
    "claims nothing": (
        "csr-descriptors.control16-own",
        instead(alone, "_unclaimed", lambda _, begin_us: np.zeros(len(begin_us))),
    ),
    "learning": ("batched-status.control16-own", instead(Learner, "nats", property(lambda _: 0.0, no_account))),
    # Of the accesses that start a send.
    "releases.Table.lag": ("latency-timer.vcd-generic", of_doorbells(releases.Table, lag=level)),
    "releases.Table.shape": ("mid-stream.vcd-generic", of_doorbells(releases.Table, shape=level)),
    "releases.Table.keys": ("mixed.vcd-generic", of_doorbells(releases.Table, keys=lambda _: (0.0, 0.0))),
    "releases.Targets.waited": ("overload.control16-own", of_doorbells(releases.Targets, waited=level)),
    "releases.Targets.skip": ("latency-timer.control16-own", of_doorbells(releases.Targets, skip=none)),
    "times of accesses": (
        "latency-timer.control16-own",
        instead(Reader, "_times", lambda reader, *_: (np.zeros(len(reader.time_us)),) * 3),
    ),
    "looks of accesses": (
        "fcs.vcd-generic",
        instead(Reader, "_looks", lambda reader, _: doorbellcosts._Looks(*[np.zeros(len(reader.kind))] * 5)),
    ),
    "edges of doorbells": (
        "mixed.vcd-generic",
        instead(Reader, "_edges", lambda reader, _: (np.zeros(len(reader.time_us)),) * 2),
    ),
    "idle doorbells": ("cacheline.vcd-generic", instead(doorbellcosts, "IDLE_BELL", 0.0)),
    "pending": ("cacheline.vcd-generic", instead(Reader, "_pending", lambda *_: 100.0)),
}
"""Where what is missing shows, and how it is broken; where a table has the cost, its field names it."""

ELSEWHERE = {
    "lattice.Track.claims",  # is broken with `lag`
    "lattice.Goals.most",  # with `least`
    "lattice.Goals.beyond", "lattice.Goals.bound_us",  # `test_lattice` compares with all readings; no capture has it
    "lattice.Goals.stray",  # in what each piece costs by itself
    "lattice.Goals.longest_us",  # bounds what `goes_on` and `resumes` learn
    "lattice.Table.back", "lattice.Track.unclaimed",  # `test_lattice` compares with all readings; no capture has it
    "lattice.Track.header",  # `test_drawn_cards` (scatter-gather_f4)
    "lattice.Table.joined",  # and tiny_n4
    "releases.Table.before", "releases.Table.miscount",  # so does `test_releases`
}  # fmt: skip
"""Costs that have no line of their own."""

NO_COSTS = {"tracks", "excess_zero", "after", "at_begin", "unit", "time_us", "ready_us", "free_us", "key"}
"""Fields that say what there is, not what it costs."""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Return what writes a capture of a family, each once, and gives its folder."""
    folder = tmp_path_factory.mktemp("captured")

    def of(family: str, seed: int) -> Path:
        path = folder / f"{family}-{seed}"
        if not path.exists():
            write(Bench(family, seed, FRAMES), path)
        return path

    return of


NOT_KEPT = "way", "idle doorbells", "pending"
"""What the kept captures show no more: contents, or the values of doorbells, prove their frames whatever this costs."""

ANOTHER = SEED + 1
"""The next captures of the same families show it."""


@pytest.mark.parametrize("name", [name for name in BROKEN if name not in NOT_KEPT])
def test_without_a_cost_kept_frames_are_others(name: str, captured: Callable[[str, int], Path], tmp_path: Path) -> None:
    run, broken = BROKEN[name]
    family, way = run.rsplit(".", 1)
    kept = (GOLDEN / f"cardbench-{run}.csv").read_text(encoding="utf-8").splitlines()
    with broken():
        assert lines(in_a_way(captured(family, SEED), tmp_path, way)) != kept


@pytest.mark.parametrize("name", NOT_KEPT)
def test_without_a_cost_frames_that_are_not_kept_are_others(
    name: str, captured: Callable[[str, int], Path], tmp_path: Path
) -> None:
    run, broken = BROKEN[name]
    family, way = run.rsplit(".", 1)
    whole = lines(in_a_way(captured(family, ANOTHER), tmp_path / "whole", way))
    with broken():
        assert lines(in_a_way(captured(family, ANOTHER), tmp_path / "broken", way)) != whole


def test_no_cost_is_forgotten() -> None:
    tables = Track, Table, Goals, releases.Table, releases.Targets
    there = {
        f"{table.__module__.removeprefix('pcitrace.')}.{table.__name__}.{one.name}"
        for table in tables
        for one in fields(table)
        if one.name not in NO_COSTS
    }
    assert there - set(BROKEN) == ELSEWHERE
