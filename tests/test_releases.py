"""Which accesses release which sends, against every reading there is: none is cheaper, margins are what they say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pcitrace.lattice import BINS, bins
from pcitrace.releases import LIMIT, PLACES, Items, Table, Targets, read

ITEMS, TARGETS, MOST, LONGEST = 5, 4, 2, 3

Segments = tuple[tuple[int, int, int, int], ...]
"""First and last item, first target, and how many."""


def problem(seed: int) -> tuple[Items, Targets, Table]:
    """Some items and targets with random costs, such that readings differ widely.

    Every second says for some items how many they release; of every third keys name the targets.
    """
    rng = np.random.default_rng(seed)

    def cost(*shape: int, least: float = -2.0) -> np.ndarray:
        return rng.uniform(least, 6, shape).astype(np.float32)

    time_us = np.sort(rng.uniform(0, 20, ITEMS))
    target_us = np.sort(rng.uniform(2, 25, TARGETS))
    keys = rng.integers(0, 3, ITEMS + TARGETS).astype(np.uint64) * np.uint64(seed % 3 == 0)
    count = rng.integers(0, 4, ITEMS).astype(np.uint32) * np.uint32(seed % 2)
    items = Items(time_us, cost(ITEMS), cost(ITEMS), cost(ITEMS, PLACES), cost(ITEMS), count, keys[:ITEMS])
    free_us = np.append(-np.inf, target_us[:-1] + rng.uniform(0, 3, TARGETS - 1))
    ready_us = target_us - rng.uniform(0, 4, TARGETS)
    targets = Targets(target_us, ready_us, free_us, cost(TARGETS), cost(TARGETS, least=0.0), keys[ITEMS:])
    return items, targets, Table(cost(BINS), cost(MOST, LONGEST), (0.1, 4.0), miscount=3.0, before=1.5)


def readings(items: Items, targets: Targets, table: Table) -> Iterator[tuple[float, Segments]]:
    """Give what each reading costs, and its segments."""
    begun = int((targets.time_us < items.time_us[0]).sum())
    for queued in range(TARGETS - begun + 1):
        cost = queued * table.before + float(targets.waited[begun : begun + queued].sum())
        yield from following(items, targets, table, 0, begun + queued, cost, ())


def following(
    items: Items, targets: Targets, table: Table, at: int, dealt: int, cost: float, before: Segments
) -> Iterator[tuple[float, Segments]]:
    now = items.time_us[at] if at < ITEMS else np.inf
    while dealt < TARGETS and targets.time_us[dealt] < now:
        cost += float(targets.skip[dealt])
        dealt += 1
    if at == ITEMS:
        yield cost, before
        return
    other = float((items.beyond if dealt == TARGETS else items.other)[at])
    yield from following(items, targets, table, at + 1, dealt, cost + other, before)
    for last in range(at, min(at + LONGEST, ITEMS)):
        most = max(MOST, int(items.count[last]))
        for count in range(1, min(most, TARGETS - dealt) + 1):
            if items.time_us[last] <= targets.time_us[dealt]:
                more = segment_cost(items, targets, table, at, last, dealt, count)
                mine = (*before, (at, last, dealt, count))
                yield from following(items, targets, table, last + 1, dealt + count, cost + more, mine)


def segment_cost(items: Items, targets: Targets, table: Table, first: int, last: int, target: int, count: int) -> float:
    cost = sum(float(items.place[item, min(last - item, PLACES - 1)]) for item in range(first, last + 1))
    cost += float(items.joins[first + 1 : last + 1].sum() + targets.waited[target + 1 : target + count].sum())
    cost += float(table.shape[min(count, MOST) - 1, last - first])
    cost += table.miscount * (items.count[last] not in (0, count))
    for key in targets.key[target : target + count]:
        cost += 0.0 if key == 0 else table.keys[int(key not in items.key[first : last + 1])]
    now = items.time_us[last]
    spans = np.array([max(targets.ready_us[target] - now, 0.0), targets.time_us[target] - now])
    low, high = bins(spans)
    at_once = float(table.lag[min(low, high) : high + 1].min())
    waits = targets.free_us[target] > now
    return cost + (min(at_once, float(targets.waited[target])) if waits else at_once)


def labels(segments: Segments) -> tuple[np.ndarray, np.ndarray]:
    """First and last item of each target, a row each; and of each item the first target of its segment."""
    edges, of_item = np.full((TARGETS, 2), -1), np.full(ITEMS, -1)
    for first, last, target, count in segments:
        edges[target : target + count] = first, last
        of_item[first : last + 1] = target
    return edges, of_item


def test_what_cannot_be_is_in_no_reading() -> None:
    """Costs that are infinite, or no numbers, leave no way through: once the search never ended."""
    for never in (np.inf, np.nan):
        items, targets, table = problem(1)
        items.other[:] = items.beyond[:] = items.place[:] = never
        found = read(items, targets, table)
        assert found.last.tolist() == [-1] * TARGETS


def test_a_shape_that_no_step_holds_is_refused() -> None:
    items, targets, table = problem(1)
    for shape in ((1, 70_000), (70_000, 1)):
        table.shape = np.zeros(shape, np.float32)
        with pytest.raises(ValueError, match="at most 65535 items"):
            read(items, targets, table)


@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_readings_and_its_margins(seed: int) -> None:
    items, targets, table = problem(seed)
    every = sorted(readings(items, targets, table))
    (least, segments), *others = every
    assert len(others) > 20
    edges, of_item = labels(segments)
    margins, item = np.full((TARGETS, 2), LIMIT), np.full(ITEMS, LIMIT)
    for cost, segments in others:
        other_edges, other_item = labels(segments)
        margins[other_edges != edges] = np.minimum(margins[other_edges != edges], cost - least)
        item[other_item != of_item] = np.minimum(item[other_item != of_item], cost - least)
    found = read(items, targets, table)
    assert found.cost == pytest.approx(least, abs=1e-4)
    assert np.stack([found.first, found.last], axis=1).tolist() == edges.tolist()
    assert found.margins == pytest.approx(margins, abs=1e-4)
    assert found.item == pytest.approx(item, abs=1e-4)


@pytest.mark.parametrize("seed", range(40))
def test_without_margins_the_reading_is_the_same(seed: int) -> None:
    surely, soon = (read(*problem(seed), margins=margins) for margins in (True, False))
    assert (soon.first.tolist(), soon.last.tolist(), soon.cost) == (
        surely.first.tolist(),
        surely.last.tolist(),
        surely.cost,
    )
    assert not soon.margins.any()
