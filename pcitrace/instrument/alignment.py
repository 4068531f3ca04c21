"""Two sequences of keys aligned: which elements are the same, which are only in one of them.

Equal stretches go together as a whole; between them, keys that occur once in both are anchors (patience), and where no
key does, ever longer runs of keys. What lies between anchors is small enough for difflib. Nothing here knows what the
keys mean.
"""

from __future__ import annotations

import bisect
from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["align", "refined"]

Keys = npt.NDArray[np.uint64]
Pairs = npt.NDArray[np.int64]

_SMALL = 4000
"""Elements on both sides together that difflib takes: some milliseconds at worst, for its time is quadratic."""

_RUNS = (1, 4, 16, 64, 256)
"""So many keys in a row are an anchor where they occur once in both."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
"""Multiplier of a hash of keys in a row (odd: nothing is lost)."""


def align(a: Keys, b: Keys) -> Pairs:
    """Align two sequences.

    Parameters
    ----------
    a, b : array of uint64
        Keys; equal ones are the same thing.

    Returns
    -------
    array of int, shape (pairs, 2)
        Places in `a` and `b` that go together, both ascending.
    """
    found: list[Pairs] = []
    todo = [(0, len(a), 0, len(b))]
    while todo:
        a_from, a_to, b_from, b_to = todo.pop()
        head = _equal(a[a_from:a_to], b[b_from:b_to])
        found.append(_run(a_from, b_from, head))
        a_from, b_from = a_from + head, b_from + head
        tail = _equal(a[a_from:a_to][::-1], b[b_from:b_to][::-1])
        found.append(_run(a_to - tail, b_to - tail, tail))
        a_to, b_to = a_to - tail, b_to - tail
        if a_from == a_to or b_from == b_to:
            continue
        anchors = _any_anchors(a[a_from:a_to], b[b_from:b_to]) + np.array([a_from, b_from])
        if len(anchors):
            found.append(anchors)
            limits = [(a_from - 1, b_from - 1), *map(tuple, anchors.tolist()), (a_to, b_to)]
            todo += [
                (low[0] + 1, high[0], low[1] + 1, high[1])
                for low, high in pairwise(limits)
                if high[0] - low[0] > 1 and high[1] - low[1] > 1
            ]
        elif a_to - a_from + b_to - b_from <= _SMALL:
            found.append(_by_difflib(a[a_from:a_to], b[b_from:b_to]) + np.array([a_from, b_from]))
        else:
            # Two long stretches in which nothing occurs once: their middles are the best place to cut there is.
            a_middle, b_middle = (a_from + a_to) // 2, (b_from + b_to) // 2
            todo += [(a_from, a_middle, b_from, b_middle), (a_middle, a_to, b_middle, b_to)]
    pairs = np.concatenate(found)
    return pairs[np.argsort(pairs[:, 0], kind="stable")]


def refined(pairs: Pairs, a: Keys, b: Keys) -> Pairs:
    """Align what lies between pairs by other keys.

    Parameters
    ----------
    pairs : array of int, shape (pairs, 2)
        Places that go together already, both ascending.
    a, b : array of uint64
        Keys for what lies between.

    Returns
    -------
    array of int, shape (pairs, 2)
        These and all between them.
    """
    limits = np.concatenate([[[-1, -1]], pairs, [[len(a), len(b)]]])
    low, between = limits[:-1] + 1, np.diff(limits, axis=0) - 1
    # Of most, one element on each side was changed.
    single = (between == 1).all(axis=1)
    other = (between > 0).all(axis=1) & ~single
    changed = low[single]
    found = [pairs, changed[a[changed[:, 0]] == b[changed[:, 1]]]]
    for (a_from, b_from), (in_a, in_b) in zip(low[other].tolist(), between[other].tolist(), strict=True):
        found.append(align(a[a_from : a_from + in_a], b[b_from : b_from + in_b]) + np.array([a_from, b_from]))
    whole = np.concatenate(found)
    return whole[np.argsort(whole[:, 0], kind="stable")]


def _equal(a: Keys, b: Keys) -> int:
    """How many elements are equal from the start."""
    least = min(len(a), len(b))
    done = 0
    step = 64
    while done < least:
        some = slice(done, min(done + step, least))
        different = np.flatnonzero(a[some] != b[some])
        if len(different):
            return done + int(different[0])
        done, step = some.stop, step * 4
    return least


def _run(a: int, b: int, length: int) -> Pairs:
    places = np.arange(length)
    return np.column_stack([places + a, places + b])


def _any_anchors(a: Keys, b: Keys) -> Pairs:
    """Places of keys that occur once in both, else of the shortest runs of keys that do; few elements need no runs."""
    found = _anchors(a, b)
    for length in _RUNS[1:]:
        if len(found) or len(a) + len(b) <= _SMALL or min(len(a), len(b)) < length:
            break
        found = _anchors(_in_a_row(a, length), _in_a_row(b, length))
    return found


def _in_a_row(keys: Keys, length: int) -> Keys:
    """A hash of each run of so many keys; `length` is a power of 2."""
    hashes, step = keys, 1
    while step < length:
        hashes = (hashes[:-step] * _MIX ^ hashes[:-step] >> np.uint64(29)) + hashes[step:]
        step *= 2
    return hashes


def _anchors(a: Keys, b: Keys) -> Pairs:
    """Places of keys that occur once in both, in an order that both keep: the longest there is."""
    once_a, at_a, count_a = np.unique(a, return_index=True, return_counts=True)
    once_b, at_b, count_b = np.unique(b, return_index=True, return_counts=True)
    _, in_a, in_b = np.intersect1d(once_a[count_a == 1], once_b[count_b == 1], assume_unique=True, return_indices=True)
    pairs = np.column_stack([at_a[count_a == 1][in_a], at_b[count_b == 1][in_b]])
    pairs = pairs[np.argsort(pairs[:, 0])]
    order = pairs[:, 1]
    if (np.diff(order) > 0).all():
        return pairs
    # Longest increasing subsequence (Fredman 1975): the last element of each length, and who came before whom.
    ends: list[int] = []
    rows: list[int] = []
    before = np.full(len(order), -1)
    for row, place in enumerate(order.tolist()):
        length = bisect.bisect_left(ends, place)
        before[row] = rows[length - 1] if length else -1
        ends[length : length + 1], rows[length : length + 1] = [place], [row]
    chosen = []
    row = rows[-1]
    while row >= 0:
        chosen.append(row)
        row = int(before[row])
    return pairs[chosen[::-1]]


def _by_difflib(a: Keys, b: Keys) -> Pairs:
    blocks = SequenceMatcher(None, a.tolist(), b.tolist(), autojunk=False).get_matching_blocks()
    return np.concatenate([_run(*block) for block in blocks])
