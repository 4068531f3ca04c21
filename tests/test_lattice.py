"""The lattice decoder against every reading that there is: none is cheaper, and margins are what they say."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcitrace.lattice import (
    ALONE,
    BINS,
    BROAD,
    CONTEXTS,
    Goals,
    Learner,
    Limits,
    Reading,
    Sequence,
    Table,
    Track,
    bins,
    cheapest_within,
    in_nats,
    in_time,
    read,
    segment_units,
)
from pcitrace.traffic import costs

ITEMS = 4
OTHER = (0, "other", -1)


@dataclass
class Problem:
    sequence: Sequence
    goals: tuple[Goals, Goals]
    table: Table


def problem(seed: int, items: int = ITEMS, each: int = 2) -> Problem:
    """A sequence with random costs, such that readings differ widely; with so many targets of each track.

    From seed 4 on no places are known, and what was cut in track 0 is moved again from its beginning.
    """
    rng = np.random.default_rng(seed)

    def cost(*shape: int) -> np.ndarray:
        return rng.uniform(0, 6, shape).astype(np.float32)

    begin = np.cumsum(rng.uniform(0.5, 3.0, items))
    place = rng.integers(0, 4, items) * 8
    sequence = Sequence(
        begin,
        begin - rng.uniform(0, 0.3, items),
        begin + 0.2,
        rng.integers(1, 4, items).astype(np.uint32),
        rng.integers(0, 2, items).astype(np.uint8),
        place,
        place + 8 * rng.integers(0, 2, items),
        cost(items, ALONE),
    )
    goals = tuple(
        Goals(
            np.sort(rng.uniform(0, begin[-1] + 1, each)),
            np.full(each, 2, np.uint32),
            np.full(each, 3, np.uint32),
            rng.integers(0, 2, each).astype(np.uint8),
            cost(each),
            after,
            at_begin,
            rng.uniform(0, begin[-1] + 1, each),
            beyond=float(rng.uniform(1, 6)),
        )
        for after, at_begin in ((False, bool(seed % 2)), (True, True))
    )
    tracks = tuple(
        Track(
            cost(2, BINS),
            cost(2, BINS),
            cost(BINS),
            cost(CONTEXTS, BINS),
            cost(2, BINS),
            cost(2, 8),
            3,
            cost(2, 8),
            cost(8),
            cost(3),
            singles=seed % 3 == track,
            header=seed % 3 + 1,
        )
        for track in range(2)
    )
    table = Table(
        (tracks[0], tracks[1]),
        cost(2 * CONTEXTS, BINS),
        cost(CONTEXTS, 16),
        cost(4 * CONTEXTS, 5),
        back=8,
        unit=4,
        apart=float(rng.uniform(1, 6)),
        joined=int(rng.integers(4, 20)),
    )
    for track in tracks:
        track.middle = np.concatenate([track.middle, cost(1, 8)])
    if seed >= 4:
        sequence.place[:] = sequence.next_place[:] = -1
        goals[0].again = (2, 3, 1 << 20)[seed % 3]
    return Problem(sequence, (goals[0], goals[1]), table)


def within(table: np.ndarray, low_us: float, high_us: float) -> float:
    low, high = (int(bins(np.array([us]))[0]) for us in (low_us, high_us))
    return float(table[min(low, high) : high + 1].min())


def behind_left_over(context: int, cut: bool) -> int:
    """The context behind an item that is left over."""
    if cut:
        return 13
    if 1 <= context <= 4:
        return 3 + 2 * context
    return context + 1 if context in (5, 7, 9, 11) else 0


def slow_size(costs: Track, apart: float, cut: bool, before: int, so_far: int, units: int) -> float:
    """What it costs how large an item was that is not its segment's last, of so many units, where another goes on."""
    size = min(before, 7)
    if costs.singles and not cut:
        if before > 1 and units <= 1:
            return float(costs.middle[0][1])
        if before <= 1 and units > 1:
            return float(costs.middle[0][size]) + (0.0 if so_far == costs.header else apart)
    return float(costs.middle[1 if cut else 2 if so_far == before else 0][size])


def slow_apart(one: Problem, labels: tuple[tuple[int, str, int], ...]) -> float:
    """What it costs that items are no part of what they begin just behind."""
    s, total = one.sequence, 0.0
    for item, (t, part, _) in enumerate(labels):
        goes_on = part in ("goes on", "ends")
        for track in (0, 1):
            mine = [at for at in range(item) if labels[at][1] != "other" and labels[at][0] == track]
            is_open = bool(mine) and labels[mine[-1]][1] in ("begins", "goes on")
            joins = is_open and 0 <= s.place[item] == s.next_place[mine[-1]]
            total += one.table.apart * (joins and not (goes_on and t == track))
        behind = item > 0 and 0 <= s.place[item] == s.next_place[item - 1]
        if behind:
            before = labels[item - 1][1]
            goes_on_as_other = before in ("only", "ends") and part == "other"
            total += one.table.apart * ((before == "other" and goes_on) or goes_on_as_other)
    return total


def slow_cost(one: Problem, table: Table, labels: tuple[tuple[int, str, int], ...]) -> float:
    """What a whole reading costs by the table with densities in time, label by label; inf if it is none."""
    s, total, context = one.sequence, slow_apart(one, labels), 0
    open_ = [None, None]  # items, units, whether cut before, target
    last: list[int | None] = [None, None]
    after_target = [0, 0]
    for item, (t, part, target) in enumerate(labels):
        begin, ready = s.begin_us[item], s.ready_us[item]
        for track, goals in enumerate(one.goals):
            while not goals.after and after_target[track] < len(goals) and goals.time_us[after_target[track]] < begin:
                total += goals.skip[after_target[track]]
                after_target[track] += 1
        since = s.end_us[item - 1] if item else begin
        follows = table.follows[4 * context + (open_[0] is not None) + 2 * (open_[1] is not None)]
        if part == "other":
            total += s.alone[item, 0] + follows[0]
            kinds = []
            for kind in (0, 1):
                paused = within(table.other[2 * context + kind], ready - since, begin - since) if item else 0.0
                size = table.other_units[context, 2 * min(int(s.units[item]), 7) + kind]
                kinds.append(size + s.alone[item, 7 + kind] + min(paused, s.alone[item, 9 + kind]))
            total += min(kinds)
            context = behind_left_over(context, bool(s.cut[item]))
            continue
        costs, goals = table.tracks[t], one.goals[t]
        if part in ("only", "begins"):
            if open_[t] is not None:
                return np.inf
            total += s.alone[item, 1 + t] + s.alone[item, 3 + t] + follows[1 + t]
            paused = within(costs.begins[context], ready - since, begin - since) if item else 0.0
            if target < 0:
                total += paused + s.alone[item, 5 + t]
            else:
                if target < after_target[t] or (goals.after and goals.time_us[target] > begin + 1.0):
                    return np.inf
                total += goals.skip[after_target[t] : target].sum()
                after_target[t] = target + 1
                if goals.at_begin and goals.after:
                    by_pause = paused + slow_lag(one, costs.claims, t, target, item, last[t])
                    total += min(slow_lag(one, costs.lag, t, target, item, last[t]), by_pause)
                elif goals.at_begin:
                    total += paused + slow_lag(one, costs.lag, t, target, item, last[t])
                else:
                    total += paused
            open_[t] = (int(s.units[item]), False, target)
        else:
            if open_[t] is None or open_[t][2] != target:
                return np.inf
            units, was_cut, _ = open_[t]
            before = last[t]
            cut = int(s.cut[before])
            own = s.end_us[before]
            total += s.alone[item, 1 + t] + follows[3 + t]
            if before == item - 1:
                total += within(costs.goes_on[cut], max(ready, own) - own, begin - own)
            else:
                total += within(costs.resumes[cut], max(ready, own) - own, begin - own)
                total += within(costs.after_others, ready - since, begin - since)
            total += slow_size(costs, one.table.apart, bool(cut), int(s.units[before]), units, int(s.units[item]))
            back = int(s.next_place[before] - s.place[item])
            gone = back // 4 if 0 < back <= 8 else 0
            if s.place[item] >= 0:
                total += costs.places[0 if back == 0 else 1 if 0 < back <= 8 else 2]
                total += one.table.apart * (not 0 <= back <= 8 and units * 4 < one.table.joined)
            elif goals.again and cut:
                gone = min(units % goals.again, int(s.units[before]))
            open_[t] = (max(units + int(s.units[item]) - gone, 1), was_cut or bool(cut), target)
        last[t] = item
        context = 1 + 2 * t
        if part in ("only", "ends"):
            units, was_cut, _ = open_[t]
            total += s.alone[item, 11 + t]
            if target >= 0:
                off = units - int(np.clip(units, goals.least[target], goals.most[target])) + 3
                if not 0 <= off < 8:
                    return np.inf
                total += costs.excess[int(was_cut)][off]
                if not goals.at_begin:
                    lag = goals.time_us[target] - s.end_us[item]
                    total += costs.lag[int(goals.held[target])][bins(np.array([lag]))[0]]
                past = goals.bound_us[target] - s.end_us[item]
                total += goals.beyond if (past > 0 if goals.after else past < 0) else 0.0
            else:
                total += costs.unclaimed[min(units, 7)]
            open_[t] = None
            context += 1
        elif target >= 0 and open_[t][0] >= goals.most[target] + 8:
            return np.inf
    for track, goals in enumerate(one.goals):
        total += goals.skip[after_target[track] :].sum() + (2.0 if open_[track] is not None else 0.0)
    return total


def slow_lag(one: Problem, table: np.ndarray, t: int, target: int, item: int, before: int | None) -> float:
    goals, s = one.goals[t], one.sequence
    time = goals.time_us[target]
    if not goals.after:
        return float(table[int(goals.held[target])][bins(np.array([time - s.begin_us[item]]))[0]])
    held = bool(goals.held[target]) or (before is not None and s.end_us[before] > time)
    return within(table[int(held)], s.ready_us[item] - time, s.begin_us[item] - time)


def every_reading() -> list[tuple[tuple[int, str, int], ...]]:
    labels = [OTHER]
    labels += [(t, part, k) for t in (0, 1) for part in ("only", "begins", "goes on", "ends") for k in (-1, 0, 1)]
    return labels


@functools.cache
def all_costs(seed: int) -> dict[tuple[tuple[int, str, int], ...], float]:
    """Every reading of a problem that is one, with its cost; prefixes that cannot go on are not followed."""
    one = problem(seed)
    table, labels, found = in_time(one.table, one.goals), every_reading(), {}

    def follow(prefix: tuple[tuple[int, str, int], ...], open_: tuple[int | None, int | None]) -> None:
        if len(prefix) == ITEMS:
            cost = slow_cost(one, table, prefix)
            if np.isfinite(cost):
                found[prefix] = cost
            return
        for t, part, k in labels:
            now = list(open_)
            if part == "other":
                follow((*prefix, OTHER), open_)
                continue
            if (part in ("only", "begins")) != (open_[t] is None) or (open_[t] is not None and open_[t] != k):
                continue
            now[t] = k if part in ("begins", "goes on") else None
            follow((*prefix, (t, part, k)), (now[0], now[1]))

    follow((), (None, None))
    return found


def differences(a: tuple[int, str, int], b: tuple[int, str, int]) -> list[bool]:
    def track(x: tuple[int, str, int]) -> int | None:
        return None if x[1] == "other" else x[0]

    def edge(x: tuple[int, str, int], parts: tuple[str, str]) -> tuple[int, int] | None:
        return (x[0], x[2]) if x[1] in parts else None

    begin, end = ("only", "begins"), ("only", "ends")
    whole = (*begin, "goes on", "ends")
    edges = [edge(a, parts) != edge(b, parts) for parts in (begin, end, whole)]
    return [track(a) != track(b), *edges]


def labelled(got: Reading) -> tuple[tuple[int, str, int], ...]:
    names = {(True, True): "only", (True, False): "begins", (False, False): "goes on", (False, True): "ends"}
    return tuple(
        OTHER if track < 0 else (int(track), names[bool(begins), bool(ends)], int(target))
        for track, begins, ends, target in zip(got.track, got.begins, got.ends, got.target, strict=True)
    )


@pytest.mark.parametrize("seed", range(7))
def test_the_best_of_all_readings_and_its_margins(seed: int) -> None:
    one = problem(seed)
    costs = all_costs(seed)
    best = min(costs, key=costs.__getitem__)
    # With nothing left out of the search both are exact.
    got = read(one.sequence, one.goals, one.table, Limits(1 << 20, 1e6))
    assert got.cost == pytest.approx(costs[best], abs=1e-3)
    labels = labelled(got)
    assert slow_cost(one, in_time(one.table, one.goals), labels) == pytest.approx(costs[best], abs=1e-3)
    for item, which in itertools.product(range(ITEMS), range(4)):
        others = [cost for one_, cost in costs.items() if differences(one_[item], labels[item])[which]]
        margin = min(others, default=np.inf) - costs[best]
        assert got.margins[item, which] == pytest.approx(min(margin, 1e6), abs=1e-3)


@given(st.integers(0, 1 << 32), st.integers(1, 40), st.sampled_from([2, 8, 40]), st.sampled_from([4.0, 12.0, 30.0]))
def test_without_margins_the_reading_is_the_same(seed: int, items: int, states: int, most: float) -> None:
    one = problem(seed, items, each=items // 2)
    limits = Limits(states, most)
    sure = read(one.sequence, one.goals, one.table, limits)
    same = read(one.sequence, one.goals, one.table, limits, margins=False)
    assert sure.margins.max() <= np.float32(most)
    assert same.labels() == sure.labels()
    assert same.cost == sure.cost
    assert not same.margins.any()
    assert not same.bound.any(), "nothing is below a bound that was not told"


@pytest.mark.parametrize("seed", range(7))
def test_a_margin_below_its_bound_is_that_of_a_reading(seed: int) -> None:
    """Where the search leaves states out a margin may end there; below that bound a reading is as near as it says."""
    one = problem(seed)
    costs = all_costs(seed)
    for states in (6, 30):
        got = read(one.sequence, one.goals, one.table, Limits(states, 8.0))
        assert (got.margins <= got.bound[:, None]).all()
        assert (got.bound <= np.float32(8.0)).all()
        assert states == 30 or (got.bound < np.float32(8.0)).all(), "what was left out of so few was nearer"
        labels = labelled(got)
        assert (got.margins < got.bound[:, None]).any()
        for item, which in itertools.product(range(ITEMS), range(4)):
            others = [cost for one_, cost in costs.items() if differences(one_[item], labels[item])[which]]
            if got.margins[item, which] < got.bound[item]:
                assert min(others) - got.cost <= got.margins[item, which] + 1e-3
    exact = read(one.sequence, one.goals, one.table, Limits(1 << 20, 1e6))
    assert (exact.bound == np.float32(1e6)).all(), "nothing was left out"


def test_a_shorter_table_is_refused() -> None:
    one = problem(0)
    one.table.follows = one.table.follows[:-1].copy()
    with pytest.raises(ValueError, match="follows has"):
        read(one.sequence, one.goals, one.table)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30))
def test_contexts_are_those_of_the_search(items: list[tuple[int, bool]]) -> None:
    is_now = np.array([one for one, _ in items], np.int64)
    context, expected = 0, []
    for one, cut in items:
        context = one or behind_left_over(context, cut)
        expected.append(context)
    assert costs._contexts(is_now, np.array([cut for _, cut in items], bool)).tolist() == expected


@given(st.lists(st.integers(0, 4), max_size=25))
def test_learning_costs_what_was_dearer_before_the_table_was_known(values: list[int]) -> None:
    prior = np.array([0.5, 0.3, 0.19, 0.01, 1e-7])
    learner, counts, one_by_one = Learner(), np.zeros(5), 0.0
    table = learner.density(np.array(values, np.int64), in_nats(prior), smooth=False)
    for value in values:
        one_by_one -= np.log((counts[value] + BROAD * prior[value]) / (counts.sum() + BROAD * prior.sum()))
        counts[value] += 1
    assert learner.nats == pytest.approx(one_by_one - float(table[values].sum()), abs=1e-3)
    # A second table is paid for too.
    before = learner.nats
    learner.density(np.array(values, np.int64), in_nats(prior), smooth=False)
    assert learner.nats == pytest.approx(2 * before)


@given(
    st.lists(st.floats(0, 9, width=32), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=20),
)
def test_the_least_of_a_span(values: list[float], spans: list[tuple[int, int]]) -> None:
    table = np.array(values, np.float32)
    low, high = (np.array([min(one[at], len(table) - 1) for one in spans], np.int64) for at in (0, 1))
    expected = [table[a : max(a, b) + 1].min() for a, b in zip(low, high, strict=True)]
    assert cheapest_within(table, low, high).tolist() == expected


@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), min_size=1, max_size=60),
    st.sampled_from([0, 4, 8, 1 << 18]),
)
def test_units_of_segments_that_were_moved_again(items: list[tuple[int, bool, bool]], again: int) -> None:
    units, cut, begins = (np.array(column) for column in zip(*items, strict=True))
    begins[0] = True
    wanted: list[int] = []
    for at, (count, _, _) in enumerate(items):
        if begins[at]:
            wanted.append(count)
            continue
        if again and cut[at - 1]:
            # From the beginning of the line that the cut is in, or of the item that was cut.
            wanted[-1] = max(wanted[-1] - units[at - 1], wanted[-1] // again * again)
        wanted[-1] += count
    assert segment_units(units, cut, begins, again).tolist() == wanted


def test_a_time_is_dearer_where_a_bin_is_wider() -> None:
    """A pause of 27 us, as usual as one of 3 us, is told less well: bins are a share of their time."""
    table = in_time(problem(0).table, problem(0).goals)
    plain = problem(0).table
    short, long = bins(np.array([3.0, 27.0]))
    more = table.other[0] - plain.other[0]
    assert more[long] - more[short] == pytest.approx(np.log(27 / 3), abs=0.1)
    assert np.array_equal(table.tracks[0].claims, plain.tracks[0].lag), "which target it is, is no time"


def test_each_group_learns_from_its_own_row_of_the_prior() -> None:
    values, group = np.array([0, 1, 1], np.int64), np.array([0, 0, 1], np.int64)
    rows = in_nats(np.array([[0.9, 0.1], [0.2, 0.8]]))
    together, alone = Learner(), [Learner(), Learner()]
    found = together.densities(values, group, rows, smooth=False)
    each = [one.density(values[group == at], rows[at], smooth=False) for at, one in enumerate(alone)]
    assert np.array_equal(found, each)
    assert together.nats == pytest.approx(alone[0].nats + alone[1].nats)
    # One row for all is the same row twice.
    broadcast, repeated = Learner(), Learner()
    one_row = broadcast.densities(values, group, np.broadcast_to(rows[0], (2, 2)), smooth=False)
    assert np.array_equal(one_row, repeated.densities(values, group, rows[[0, 0]], smooth=False))
    assert broadcast.nats == repeated.nats


def test_what_was_thought_impossible_is_dear_once() -> None:
    prior = np.array([1 - 1e-6, 1e-6])
    usual, strange = Learner(), Learner()
    usual.density(np.zeros(20, np.int64), in_nats(prior), smooth=False)
    table = strange.density(np.ones(20, np.int64), in_nats(prior), smooth=False)
    assert table[1] < 0.2
    assert usual.nats < 0.01
    assert 12 < strange.nats < 20
