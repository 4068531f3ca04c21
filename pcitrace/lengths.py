"""Which pieces are one frame, told by their lengths alone: pieces that add up to a frame that is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.tails import Units, settle

__all__ = ["Expected", "parse"]

AHEAD = 4
"""Frames on the wire that a send may be one of, if those before it were not found."""

PENDING = 64
"""Frames that have come and may still wait for their DMA."""

REACH = 40
"""Pieces that are looked at to find those of one frame, where some may be descriptors or status."""

LONGEST = 400
"""The same where none may."""

AT_ONCE_US = 2.0
"""A unit that comes sooner behind another is likely to be of the same frame."""

APART_US = 8.0
"""Units with a longer pause between them are tried as different frames first."""

STRETCH = 32
"""Frames that are tried at once where one follows the other; doubled as long as they fit."""


@dataclass(frozen=True)
class Expected:
    """Frames to be found: bounds of their data phases, and of the time of their DMA.

    `shortest` is how few phases a frame can have that is padded on the wire; for others it is `least`.
    """

    least: Integers
    most: Integers
    shortest: Integers
    earliest: Floats
    latest: Floats

    def until(self, time_us: float, most: int) -> Expected:
        """Return the first frames, of those whose DMA is known to begin or end by then."""
        due = np.where(np.isfinite(self.latest), self.latest, self.earliest) <= time_us
        count = min(int(np.count_nonzero(due)), most)
        return Expected(*(values[:count] for values in vars(self).values()))


def parse(
    pieces: BusTable,
    asked_us: Floats,
    expected: Expected,
    optional: frozenset[int],
    sending: bool,
) -> Integers:
    """Number the pieces by the frame they make up.

    Parameters
    ----------
    pieces : BusTable
        Transactions of one direction in which data moved, in order of time.
    asked_us : array of float
        First attempt of each.
    expected : Expected
        Frames on the wire, in order of time.
    optional : frozenset of int
        Data phases that a piece of no frame can have: descriptors or status.
    sending : bool
        Whether the pieces are reads of frames before the wire, else writes after it.

    Returns
    -------
    array of int
        Ascending number of the frame, -1 for pieces of none. It says only which pieces are one frame; which frame it
        is where some were lost is for :mod:`pcitrace.align` to find.
    """
    if not len(pieces):
        return np.zeros(0, dtype=np.int64)
    # What the target cut short goes on in the next transaction: together they are one unit.
    unit = np.cumsum(np.r_[False, ~pieces.cut[:-1]])
    heads = np.flatnonzero(np.r_[True, unit[1:] != unit[:-1]])
    tails = np.r_[heads[1:] - 1, len(pieces) - 1]
    count = np.add.reduceat(pieces.data_phases, heads)
    first, last = pieces.first_data_us[heads], pieces.last_data_us[tails]
    # But a descriptor or status may come in between, and then the unit's end may be none of the frame's.
    final, short = pieces.data_phases[tails], list(optional)
    foreign = np.where((tails > heads) & np.isin(final, short) & ~np.isin(count - final, short), final, 0)
    parser = _Parser(count, foreign, first, last, expected, optional, sending)
    number, frame, parted = parser.run(), np.array(parser.found, dtype=np.int64), parser.parted
    del parser
    if optional:
        units = Units(count - foreign * parted, asked_us[heads], first, last, np.isin(count, short))
        number = settle(units, number, expected.least[frame], expected.most[frame], expected.latest[frame])
    out = number[unit]
    out[tails[parted]] = -1
    return np.asarray(out)


class _Parser:
    """Goes through units and frames side by side. Frames keep their order: the earliest one that is due and fits."""

    def __init__(
        self,
        count: Integers,
        foreign: Integers,
        first: Floats,
        last: Floats,
        expected: Expected,
        optional: frozenset[int],
        sending: bool,
    ) -> None:
        self.count, self.foreign, self.first, self.last = count, foreign, first, last
        self.parted = np.zeros(len(count), dtype=bool)
        self.expected, self.optional, self.sending = expected, optional, sending
        self.frames = len(expected.least)
        self.full = int(count.max())
        self.out = np.full(len(count), -1)
        self.found: list[int] = []
        self.at = self.frame = self.due = 0
        # Runs: full units and what ends them, one unit or single data phases, nothing optional between. Most frames
        # are one run.
        self.short = np.isin(count, list(optional))
        self.solid = np.flatnonzero(~self.short)
        size = count[self.solid]
        new = np.ones(len(self.solid), dtype=bool)
        new[1:] = (size[:-1] < self.full) & ~((size[:-1] == 1) & (size[1:] == 1)) | (np.diff(self.solid) > 1)
        new[1:] |= first[self.solid[1:]] - last[self.solid[:-1]] > APART_US
        self.run_start = np.flatnonzero(new)
        self.run_of = np.cumsum(new) - 1
        self.run_size = np.add.reduceat(size, self.run_start) if len(size) else size
        self.run_head = self.solid[self.run_start]
        self.run_tail = self.solid[np.r_[self.run_start[1:], len(self.solid)] - 1] if len(size) else self.solid
        self.run_number = np.full(len(self.run_start), -1)

    def run(self) -> Integers:
        """Return the number of the frame of every unit."""
        stretch = STRETCH
        while self.at < len(self.count) and self.frame < self.frames:
            fitted = self._stretch(stretch) or self._singles(stretch)
            stretch = 2 * stretch if fitted == stretch else STRETCH
            if fitted < stretch and self.at < len(self.count) and self.frame < self.frames:
                self._step()
        in_run = self.out[self.solid] < 0
        self.out[self.solid[in_run]] = self.run_number[self.run_of[in_run]]
        return self.out

    def _stretch(self, most: int) -> int:
        """Take runs as frames as long as each fits the next one; return how many."""
        next_solid = int(np.searchsorted(self.solid, self.at))
        if next_solid == len(self.solid):
            return 0
        run = int(self.run_of[next_solid])
        if self.run_head[run] != self.solid[next_solid]:
            return 0
        many = min(most, len(self.run_head) - run, self.frames - self.frame)
        runs, frames = slice(run, run + many), slice(self.frame, self.frame + many)
        size = self.run_size[runs]
        fits = (size >= self.expected.least[frames]) & (size <= self.expected.most[frames])
        fits &= self.last[self.run_tail[runs]] <= self.expected.latest[frames]
        fits &= self.expected.earliest[frames] <= self.first[self.run_head[runs]]
        fits &= ~self._goes_on(self.run_tail[runs], size, frames)
        fitted = many if fits.all() else int(fits.argmin())
        if fitted:
            self.run_number[run : run + fitted] = len(self.found) + np.arange(fitted)
            self.found += range(self.frame, self.frame + fitted)
            self.frame += fitted
            self.at = int(self.run_tail[run + fitted - 1]) + 1
        return fitted

    def _singles(self, most: int) -> int:
        """Take units as frames as long as each by itself is the next one that is sent; return how many.

        Where frames fill the longest piece one behind the other, no run ends between them.
        """
        begin = int(np.searchsorted(self.solid, self.at))
        many = min(most, len(self.solid) - begin, self.frames - self.frame) if self.sending else 0
        if not many or not self.expected.least[self.frame] <= self.count[self.solid[begin]]:
            return 0
        units, frames = self.solid[begin : begin + many], slice(self.frame, self.frame + many)
        least, longest, latest = self.expected.least[frames], self.expected.most[frames], self.expected.latest[frames]
        size, first, last = self.count[units], self.first[units], self.last[units]
        fits = (size >= least) & (size <= longest) & (last <= latest) & (first < latest)
        fits &= self.expected.earliest[frames] <= first
        # The run that it begins may be the frame.
        run = self.run_of[begin : begin + many]
        whole = self.run_size[run]
        fits &= (whole == size) | (whole > longest) | (self.run_head[run] != units)
        fits &= ~self._goes_on(units, size, frames)
        fitted = many if fits.all() else int(fits.argmin())
        if fitted:
            self.out[units[:fitted]] = len(self.found) + np.arange(fitted)
            self.found += range(self.frame, self.frame + fitted)
            self.frame += fitted
            self.at = int(units[fitted - 1]) + 1
        return fitted

    def _goes_on(self, tail: Integers, size: Integers, frames: slice) -> Booleans:
        """Whether frames that end with these units may go on: bounds are not exact, so what follows at once belongs."""
        behind = np.minimum(tail + 1, len(self.count) - 1)
        fits = (behind > tail) & ~self.short[behind] & (size + self.count[behind] <= self.expected.most[frames])
        fits &= self.last[behind] <= self.expected.latest[frames]
        return np.asarray(fits & (self.first[behind] - self.last[tail] < AT_ONCE_US))

    def _step(self) -> None:
        """Find one frame that is no plain run, or pass over one unit.

        Of sends it is the earliest that fits; of receives, which may be lost, the earliest with the fewest seams.
        """
        expected = self.expected
        if self.sending:
            while self.frame < self.frames and expected.latest[self.frame] <= self.first[self.at]:
                self.frame += 1
            self.due = min(self.frame + AHEAD, self.frames)
        else:
            solid = int(np.searchsorted(self.solid, self.at))
            now = self.first[self.solid[solid] if solid < len(self.solid) else self.at]
            self.due = max(self.due, self.frame)
            while self.due < self.frames and expected.earliest[self.due] <= now:
                self.due += 1
            self.frame = max(self.frame, self.due - PENDING)
        count, foreign = self.count[self.at : self.at + LONGEST], self.foreign[self.at : self.at + LONGEST]
        found, chosen, seams = self._best(count.tolist())
        if foreign.any() and (not found or foreign[found].any()):
            parted, other, fewer = self._best((count - foreign).tolist())
            # What was cut short goes on: it does not end the frame.
            if parted and fewer + np.count_nonzero(foreign[parted]) < seams and not foreign[parted[-1]]:
                found, chosen = parted, other
                self.parted[self.at + np.array(found)] = foreign[found] > 0
        if found and not self.found and self._rest_of_cut(found):
            found = []
        if found:
            self.out[self.at + np.array(found)] = len(self.found)
            self.found.append(chosen)
            self.at, self.frame = self.at + found[-1] + 1, chosen + 1
        else:
            self.at += 1

    def _rest_of_cut(self, found: list[int]) -> bool:
        """Whether the capture began in the middle of a frame: what is left of it would only fit with some of the next.

        Then a frame that begins at a later one of these units has fewer seams.
        """
        at, seams = self.at, self._seams(self.count[self.at : self.at + LONGEST].tolist(), found)
        for row in found[1:]:
            self.at = at + row
            count = self.count[self.at : self.at + LONGEST].tolist()
            other, _, _ = self._best(count)
            if other and self._seams(count, other) <= seams - 1:
                break
            self.at = at
        self.at, moved = at, self.at != at
        return moved

    def _best(self, count: Sequence[int]) -> tuple[list[int], int, float]:
        """Return the units that are a frame which is due, counted from the one at hand, which frame, and its seams."""
        expected = self.expected
        first = self.first[self.at : self.at + LONGEST].tolist()
        last = self.last[self.at : self.at + LONGEST].tolist()
        found: list[int] = []
        chosen, fewest = -1, float(LONGEST)
        tried = set()
        for one in range(self.frame, self.due):
            least, most, shortest = int(expected.least[one]), int(expected.most[one]), int(expected.shortest[one])
            latest = float(expected.latest[one])
            if (least, most, latest) in tried:
                continue
            tried.add((least, most, latest))
            fit = _fit(count, first, last, least, most, latest, self.optional)
            if not fit and most >= least:
                # A buffer that is not aligned takes one data phase more.
                fit = _fit(count, first, last, most + 1, most + 1, latest, self.optional)
            if not fit and shortest < least:
                fit = _fit(count, first, last, shortest, least - 1, latest, self.optional)
            if not fit or self.first[self.at + fit[0]] < expected.earliest[one]:
                continue
            if self.sending and len(fit) > 1 and first[fit[1]] - last[fit[0]] > APART_US:
                # What is read long before the others is none of theirs if they are a frame without it.
                rest = slice(fit[0] + 1, None)
                if _fit(count[rest], first[rest], last[rest], least, most, latest, self.optional):
                    break
            # Every frame on the wire was read before; of those that arrived some may never be written.
            seams = 0.0 if self.sending else self._seams(count, fit)
            if seams < fewest:
                found, chosen, fewest = fit, one, seams
            if seams < 1:
                break
        return found, chosen, fewest

    def _seams(self, count: Sequence[int], members: list[int]) -> float:
        """Count what speaks against these units being one frame.

        Descriptors, status or long pauses in between, or units as short before the end; a next unit that follows at
        once, or an end at a full unit; and, as a share, longer units behind shorter ones.
        """
        sizes = [count[row] for row in members]
        longer = sum(after > before for before, after in pairwise(sizes)) / len(sizes)
        between = members[-1] - members[0] + 1 - len(members) + sum(size in self.optional for size in sizes[:-1])
        between += sum(bool(self.first[self.at + b] - self.last[self.at + a] > APART_US) for a, b in pairwise(members))
        behind = members[-1] + 1
        if behind == len(count) or count[behind] in self.optional:
            return between + longer
        pause_us = self.first[self.at + behind] - self.last[self.at + members[-1]]
        return float(between + longer + (pause_us < AT_ONCE_US) + (sizes[-1] == self.full))


def _fit(
    count: Sequence[int],
    first: Sequence[float],
    last: Sequence[float],
    least: int,
    most: int,
    latest: float,
    optional: frozenset[int],
) -> list[int]:
    """Return the units, from the first on, that add up to a frame; none if there are none.

    Descriptors and status between them are left out where that fits; among the first `REACH` units they are taken in
    where it is needed.
    """
    total = 0
    members = []
    for row, size in enumerate(count):
        if size in optional:
            continue
        total += size
        if total > most or last[row] > latest:
            break
        members.append(row)
        behind = row + 1
        if total >= least and not (
            # Bounds are not exact: what follows at once and still fits belongs to it.
            behind < len(count)
            and count[behind] not in optional
            and total + count[behind] <= most
            and last[behind] <= latest
            and first[behind] - last[row] < AT_ONCE_US
        ):
            return members
    # Some unit is as short as a descriptor: try with such units taken in. For each sum the units in it, as bits.
    sums = {0: 0}
    for row, size in enumerate(count[:REACH]):
        if last[row] > latest:
            return []
        grown = {total + size: units | 1 << row for total, units in sums.items() if total + size <= most}
        whole = [units for total, units in grown.items() if total >= least]
        if whole:
            # The latest beginning: what comes before is then left out.
            units = max(whole, key=lambda units: units & -units)
            members = [one for one in range(row + 1) if units >> one & 1]
            return _own_tail(members, count, first, last, least, most, latest, optional)
        if size in optional:
            for total, units in sums.items():
                if total not in grown or units & -units > grown[total] & -grown[total]:
                    grown[total] = units
        if not grown:
            return []
        sums = grown
    return []


def _own_tail(
    members: list[int],
    count: Sequence[int],
    first: Sequence[float],
    last: Sequence[float],
    least: int,
    most: int,
    latest: float,
    optional: frozenset[int],
) -> list[int]:
    """Take the short unit behind for the one ahead, if it is nearer: what ends a frame is as short as a status word."""
    begin, end = members[0], members[-1]
    behind = end + 1
    if len(members) < 2 or behind == len(count) or not {count[begin], count[behind]} <= optional:
        return members
    total = sum(count[one] for one in members[1:]) + count[behind]
    if not least <= total <= most or last[behind] > latest:
        return members
    nearer = first[behind] - last[end] < first[members[1]] - last[begin]
    return [*members[1:], behind] if nearer else members
