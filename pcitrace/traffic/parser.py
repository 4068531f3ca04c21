"""Units and frames side by side: the units that add up to each frame that is due, in their order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pcitrace.columns import Booleans, Integers
from pcitrace.traffic.ahead import APART_US, AT_ONCE_US, ITEM, LONGEST, WIDTHS, Ahead, Expected, Known, Units

__all__ = ["AHEAD", "PENDING", "Parser"]

AHEAD = 4
"""Frames on the wire that a send may be one of, if those before it were not found."""

PENDING = 64
"""Frames that have come and may still wait for their DMA."""

STRETCH = 32
"""Frames that are tried at once where one follows the other; doubled as long as they fit."""

SPAN = 4 * LONGEST
"""Units that are put into lists at a time."""


class Parser:
    """Goes through units and frames side by side. Frames keep their order: the earliest one that is due and fits."""

    def __init__(self, units: Units, expected: Expected) -> None:
        self.units, self.count, self.first, self.last = units, units.count, units.first_us, units.last_us
        self.parted = np.zeros(len(units), dtype=bool)
        self.expected, self.optional, self.sending = expected, expected.optional, expected.sending
        self.frames = len(expected)
        self.full = int(self.count.max())
        self.known = Known(self.sending)
        self.base, self.ahead = 0, Ahead.of(units.part(0, SPAN), self.optional, self.full)
        self.out = np.full(len(units), -1, dtype=np.int32)
        # Runs: full units and what ends them, one unit or single data phases, nothing optional between. Most frames
        # are one run.
        self.short = units.short
        self.solid = np.flatnonzero(~self.short).astype(np.int32)
        self.next_solid = np.append(0, np.cumsum(~self.short, dtype=np.int32)).astype(np.int32, copy=False)
        size = self.count[self.solid]
        new = np.ones(len(self.solid), dtype=bool)
        new[1:] = (size[:-1] < self.full) & ~((size[:-1] == 1) & (size[1:] == 1)) | (np.diff(self.solid) > 1)
        new[1:] |= self.first[self.solid[1:]] - self.last[self.solid[:-1]] > APART_US
        self.run_start = np.flatnonzero(new)
        self.run_of = np.cumsum(new, dtype=np.int32) - 1
        self.run_size = np.add.reduceat(size, self.run_start) if len(size) else size
        # By the number of the next unit that is not optional: its own size, and that of its run.
        self.next_size = np.append(size, -1).astype(np.int32)
        self.next_run = np.append(self.run_size, -1).astype(np.int32)[np.append(self.run_of, -1)]
        self.run_head = self.solid[self.run_start]
        self.run_tail = self.solid[np.r_[self.run_start[1:], len(self.solid)] - 1] if len(size) else self.solid
        self.run_number = np.full(len(self.run_start), -1, dtype=np.int32)
        # Runs that were compared with frames, how many they are ahead of them, and which of them do not fit.
        self.compared, self.compared_ahead, self.misfits = range(0), 0, list[int]()
        self.at = 0
        self.reset(0)

    def reset(self, head: int) -> None:
        """Forget what was found, to begin at a unit."""
        self.out[: self.at] = self.run_number[: np.searchsorted(self.run_head, self.at)] = -1
        self.parted[: self.at] = False
        self.found: list[int] = []
        self.at, self.frame, self.due = head, 0, 0

    def numbers(self, stop: int) -> Integers:
        """Return the numbers of the first units."""
        out = self.out[:stop].copy()
        solid = self.solid[: np.searchsorted(self.solid, stop)]
        in_run = out[solid] < 0
        out[solid[in_run]] = self.run_number[self.run_of[: len(solid)][in_run]]
        return out

    def go(self, stop: int, spare: float) -> None:
        """Find the frames that begin before a unit, as long as no more than so many units are passed over."""
        self.stop, self.run_stop, self.spare = stop, int(np.searchsorted(self.run_head, stop)), spare
        stretch = STRETCH
        while self._more():
            fitted = self._runs() or self._singles(stretch)
            stretch = 2 * stretch if fitted == stretch else STRETCH
            if fitted < stretch and self._more():
                self._step()
                many = STRETCH
                while self._more() and self._irregular(self.at, self.frame):
                    stretch, fitted = STRETCH, self._again(many)
                    many = 2 * many if fitted == many else STRETCH
                    if not fitted:
                        self._step()

    def _more(self) -> bool:
        return self.at < self.stop and self.spare >= 0 and self.frame < self.frames

    def _runs(self) -> int:
        """Take runs as frames as long as each fits the next one; return how many."""
        solid = self.next_solid.item(self.at)
        if solid == len(self.solid):
            return 0
        run = begin = self.run_of.item(solid)
        if self.run_head[run] != self.solid[solid]:
            return 0
        ahead = run - self.frame
        stop = min(max(self.run_stop, run + 1), self.frames + ahead)
        while run < stop:
            if ahead != self.compared_ahead or not self.compared.start <= run < self.compared.stop:
                self._compare(run, ahead, stop)
            misfit = bisect_left(self.misfits, run)
            if misfit < len(self.misfits):
                run = stop = self.misfits[misfit]
            else:
                run = self.compared.stop
        fitted = run - begin
        if fitted:
            self.run_number[begin:run] = self._take(fitted, self.run_tail.item(run - 1) + 1)
        return fitted

    def _take(self, fitted: int, at: int) -> Integers:
        """Take the next frames for found, go on at a unit, and return their numbers."""
        numbers = len(self.found) + np.arange(fitted)
        self.found += range(self.frame, self.frame + fitted)
        self.frame, self.at = self.frame + fitted, at
        return numbers

    def _compare(self, run: int, ahead: int, stop: int) -> None:
        """Find the runs, from one on, that do not fit the frames of which they are so many ahead.

        What lies between such runs is looked at one by one, but the frames behind are mostly as many ahead as before.
        """
        more = 2 * len(self.compared) if ahead == self.compared_ahead and run == self.compared.stop else 0
        many = min(max(more, STRETCH), SPAN)
        self.compared, self.compared_ahead = range(run, min(run + many, stop)), ahead
        runs = slice(run, self.compared.stop)
        frames = slice(run - ahead, self.compared.stop - ahead)
        size, tail = self.run_size[runs], self.run_tail[runs]
        fits = self.expected.allow(frames, size, self.first[self.run_head[runs]], self.last[tail])
        fits &= ~self._goes_on(tail, size, frames)
        self.misfits = (run + np.flatnonzero(~fits)).tolist()

    def _singles(self, most: int) -> int:
        """Take units as frames as long as each by itself is the next one that is sent; return how many.

        Where frames fill the longest piece one behind the other, no run ends between them.
        """
        begin = self.next_solid.item(self.at)
        many = min(most, len(self.solid) - begin, self.frames - self.frame) if self.sending else 0
        if not many or not self.expected.least[self.frame] <= self.count[self.solid[begin]]:
            return 0
        units, frames = self.solid[begin : begin + many], slice(self.frame, self.frame + many)
        size, first = self.count[units], self.first[units]
        fits = self.expected.allow(frames, size, first, self.last[units]) & (first < self.expected.latest[frames])
        # The run that it begins may be the frame.
        run = self.run_of[begin : begin + many]
        whole = self.run_size[run]
        fits &= (whole == size) | (whole > self.expected.most[frames]) | (self.run_head[run] != units)
        fits &= ~self._goes_on(units, size, frames)
        fitted = many if fits.all() else int(fits.argmin())
        if fitted:
            self.out[units[:fitted]] = self._take(fitted, int(units[fitted - 1]) + 1)
        return fitted

    def _goes_on(self, tail: Integers, size: Integers, frames: slice) -> Booleans:
        """Whether frames that end with these units may go on: bounds are not exact, so what follows at once belongs."""
        behind = np.minimum(tail + 1, len(self.count) - 1)
        fits = (behind > tail) & ~self.short[behind] & (size + self.count[behind] <= self.expected.most[frames])
        fits &= self.last[behind] <= self.expected.latest[frames]
        return np.asarray(fits & (self.first[behind] - self.last[tail] < AT_ONCE_US))

    def _irregular(self, at: Any, frame: Any) -> Any:
        """Return whether frames are neither runs nor single units, by the sizes of what comes next."""
        solid = self.next_solid[at]
        size, whole = self.next_size[solid], self.next_run[solid]
        least, most = self.expected.least[frame], self.expected.most[frame]
        regular = (least <= whole) & (whole <= most) | self.sending & (least <= size) & (size <= most)
        return np.logical_not(regular)

    def _again(self, most: int) -> int:
        """Take units as frames as long as they lie like units that were found to be one; return how many."""
        expected, ahead = self.expected, self._look()
        bounds = expected.bounds(self.frame)
        code, members = self.known.like(ahead, self.at - self.base, bounds)
        if not members:
            return 0
        step, width = members[-1] + 1, len(code) // ITEM
        many = min(most, self.frames - self.frame, (len(self.count) - 1 - width - self.at) // step + 1)
        if many < 2 or not len(self.solid) or ahead.alike(self.at + step - self.base, width) != code:
            return 0
        begin = self.at + step * np.arange(many)
        frame = np.arange(self.frame, self.frame + many)
        codes = self.units.part(self.at, begin[-1].item() + width + 1).codes()[:-1]
        fits = (sliding_window_view(codes, width)[::step] == np.frombuffer(code, codes.dtype)).all(axis=1)
        fits &= self._irregular(begin, frame)
        for value, values in zip(bounds, (expected.least, expected.most, expected.shortest), strict=True):
            fits &= values[frame] == value
        fits &= expected.earliest[frame] <= self.first[begin + members[0]]
        fits &= self.last[begin + members[-1]] <= expected.latest[frame]
        if self.sending:
            fits &= self.first[begin] < expected.latest[frame]
            if len(members) > 1:
                fits &= self.first[begin + members[1]] - self.last[begin + members[0]] <= APART_US
        else:
            solid = self.next_solid[begin]
            now = self.first[self.solid[np.minimum(solid, len(self.solid) - 1)]]
            fits &= (solid < len(self.solid)) & (expected.earliest[frame] <= now)
            pending = np.minimum(frame + PENDING, self.frames - 1)
            fits &= (frame + PENDING >= self.frames) | (now < expected.earliest[pending])
        fitted = many if fits.all() else int(fits.argmin())
        self.out[begin[:fitted, None] + np.array(members)] = self._take(fitted, self.at + fitted * step)[:, None]
        return fitted

    def _step(self) -> None:
        """Find one frame that is no plain run, or pass over one unit.

        Of sends it is the earliest that fits; of receives, which may be lost, the earliest with the fewest seams.
        """
        expected = self.expected
        if self.sending:
            now = self.first.item(self.at)
            while self.frame < self.frames and expected.latest.item(self.frame) <= now:
                self.frame += 1
            self.due = min(self.frame + AHEAD, self.frames)
        else:
            self._come(self.at)
            self.frame = max(self.frame, self.due - PENDING)
        ahead = self._look()
        found, chosen, seams = self._best(ahead, self.known)
        if ahead.foreign and (not found or self.units.foreign[self.at + np.array(found)].any()):
            foreign = ahead.foreign[self.at - self.base :]
            parted, other, fewer = self._best(ahead.parted(), None)
            if found:
                # A unit that is passed over is of no frame, and no status either.
                begin = self.at + found[0]
                seams += 2 * int(self.next_solid[begin] - self.next_solid[self.at])
            # What was cut short goes on: it does not end the frame.
            if parted and fewer + sum(foreign[one] > 0 for one in parted) < seams and not foreign[parted[-1]]:
                found, chosen = parted, other
                self.parted[[self.at + one for one in found if foreign[one]]] = True
        if found and not self.sending and seams >= 2 and self._shifted([self.at + one for one in found]):
            self.spare -= not self.short[self.at + found[0]]
            self.at += found[0] + 1
        elif found:
            for one in found:
                self.out[self.at + one] = len(self.found)
            self.found.append(chosen)
            self.at, self.frame = self.at + found[-1] + 1, chosen + 1
        else:
            self.spare -= not self.short[self.at]
            self.at += 1

    def _shifted(self, found: Sequence[int]) -> bool:
        """Return whether a frame that goes on at its end has taken units of the next one for some that it misses.

        Then the next one, of which it has a part, is a frame without a seam, and what is behind this one is none: so it
        would be with all that follow, for what is missing is always taken from the next.
        """
        tail = found[-1]
        # Among single data phases any could be where the next one begins.
        if self.full == 1 or not self._goes_on_at_once(tail) or self._seamless(tail + 1, tail + 1):
            return False
        return any(self._seamless(begin, tail + 1) for begin in found[1:])

    def _seamless(self, begin: int, end: int) -> bool:
        """Return whether a frame without a seam begins at a unit and goes on to at least another."""
        self._come(begin)
        at, self.at = self.at, begin
        found, _, seams = self._best(self._look(), self.known)
        self.at = at
        return bool(found) and seams < 1 and begin + found[-1] >= end

    def _come(self, at: int) -> None:
        """Count the frames that have come when the next unit that is not optional, from one on, is written."""
        solid = self.next_solid.item(at)
        now = self.first.item(self.solid.item(solid) if solid < len(self.solid) else at)
        self.due = max(self.due, self.frame)
        while self.due < self.frames and self.expected.earliest.item(self.due) <= now:
            self.due += 1

    def _goes_on_at_once(self, tail: int) -> bool:
        behind = tail + 1
        if behind == len(self.count) or self.count[tail] < self.full or self.short[behind]:
            return False
        return bool(self.first[behind] - self.last[tail] < AT_ONCE_US)

    def _look(self) -> Ahead:
        """Return the units from the one at hand on, and more."""
        end = self.base + len(self.ahead.count)
        if self.at < self.base or self.at + WIDTHS[-1] >= end < len(self.count):
            self.base = self.at
            units = self.units.part(self.at, self.at + SPAN)
            self.ahead = Ahead.of(units, self.optional, self.full)
        return self.ahead

    def _best(self, ahead: Ahead, known: Known | None) -> tuple[Sequence[int], int, float]:
        """Return the units that are a frame which is due, counted from the one at hand, which frame, and its seams."""
        expected, at = self.expected, self.at - self.base
        window = min(at + LONGEST, len(ahead.count))
        found: Sequence[int] = []
        chosen, fewest = -1, float(LONGEST)
        tried = set()
        for one in range(self.frame, self.due):
            bounds, latest = expected.bounds(one), expected.latest.item(one)
            if (bounds, latest) in tried:
                continue
            tried.add((bounds, latest))
            fit = known.frame(ahead, at, bounds) if known else None
            seams = 0.0
            late = fit and ahead.last[at + fit[-1]] > latest
            if fit is None or late or (self.sending and len(fit) > 1 and ahead.apart(at + fit[0], at + fit[1])):
                stop = bisect_right(ahead.last, latest, at, window)
                members, _ = ahead.frame(at, stop, bounds)
                if self.sending and len(members) > 1 and ahead.apart(*members[:2]):
                    # What is read long before the others is none of theirs if they are as good a frame without it.
                    others = ahead.adding_up(members[0] + 1, stop, bounds.least, bounds.most)[0]
                    if others and ahead.seams(others, window) <= ahead.seams(members, window):
                        break
                elif members and not self.sending:
                    # Every frame on the wire was read before; of those that arrived some may never be written.
                    seams = ahead.seams(members, window)
                fit = [row - at for row in members]
            if found and fit:
                # Of what is known, only that it has no seam is; and what makes one frame is less likely a later one in
                # a buffer that begins within a data phase.
                members = [at + row for row in fit]
                seams = ahead.seams(members, window) + (sum(ahead.count[row] for row in members) > bounds.most)
            if fit and expected.earliest.item(one) <= ahead.first[at + fit[0]] and seams < fewest:
                found, chosen, fewest = fit, one, seams
                if seams < 1:
                    break
        return found, chosen, fewest
