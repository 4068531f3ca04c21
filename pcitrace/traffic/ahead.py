"""What lies ahead: which of the next units of one direction add up to a frame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from pcitrace.columns import Booleans, Floats, Integers

__all__ = ["APART_US", "AT_ONCE_US", "LONGEST", "Ahead", "Bounds", "Expected", "Known", "Units"]

REACH = 40
"""Units that are looked at to find those of one frame, where some may be descriptors or status."""

LONGEST = 400
"""The same where none may."""

AT_ONCE_US = 2.0
"""A unit that comes sooner behind another is likely to be of the same frame."""

APART_US = 8.0
"""Units with a longer pause between them are tried as different frames first."""

WIDTHS = (4, 8, 16, 48, LONGEST + 2)
"""Units by which situations are told apart: as few as what was found rests on."""

CODE = np.dtype(np.uint32)
ITEM = CODE.itemsize


class Bounds(NamedTuple):
    """Data phases of a frame; `shortest` is how few it can have that is padded on the wire."""

    least: int
    most: int
    shortest: int

    def tries(self) -> Iterator[tuple[int, int]]:
        """Go through the ranges to look for, the likeliest first."""
        yield self.least, self.most
        if self.most >= self.least:
            # A buffer that is not aligned takes one data phase more.
            yield self.most + 1, self.most + 1
        if self.shortest < self.least:
            yield self.shortest, self.least - 1


@dataclass(frozen=True)
class Expected:
    """Frames on the wire whose DMA, of one direction, is to be found, in order of time.

    Attributes
    ----------
    least, most : arrays of int
        Bounds of their data phases.
    shortest : array of int
        How few a frame can have that is padded on the wire; for others it is `least`.
    earliest, latest : arrays of float
        Bounds of the time of their DMA (us).
    optional : frozenset of int
        Data phases that a piece of no frame can have: a descriptor or a status.
    sending : bool
        Whether they are read before the wire, else written after it.
    """

    least: Integers
    most: Integers
    shortest: Integers
    earliest: Floats
    latest: Floats
    optional: frozenset[int]
    sending: bool

    def __len__(self) -> int:
        return len(self.least)

    def take(self, frames: Integers | slice) -> Expected:
        """Return some of the frames."""
        columns: dict[str, Any] = {name: one for name, one in vars(self).items() if isinstance(one, np.ndarray)}
        return replace(self, **{name: values[frames] for name, values in columns.items()})

    def bounds(self, frame: int) -> Bounds:
        """Return the bounds of one frame."""
        return Bounds(self.least.item(frame), self.most.item(frame), self.shortest.item(frame))

    def allow(self, frames: slice, size: Integers, first_us: Floats, last_us: Floats) -> Booleans:
        """Return which of some frames may have so many data phases, from one time to another."""
        out = (self.least[frames] <= size) & (size <= self.most[frames])
        return np.asarray(out & (self.earliest[frames] <= first_us) & (last_us <= self.latest[frames]))

    def until(self, time_us: float, most: int) -> Expected:
        """Return the first frames, of those whose DMA is known to begin or end by then."""
        count = min(int(np.count_nonzero(self._due_us() <= time_us)), most)
        return self.take(slice(count))

    def time_us(self, count: int) -> float:
        """Return by when the DMA of so many frames is known to begin or end; infinite if there are not as many."""
        return float(self._due_us()[:count].max()) if count <= len(self) else np.inf

    def _due_us(self) -> Floats:
        return np.where(np.isfinite(self.latest), self.latest, self.earliest)


@dataclass(frozen=True)
class Units:
    """Pieces of one direction in order of time, those that the target cut short put together.

    Attributes
    ----------
    count, foreign : arrays of int
        Data phases, and how many of them, at the end, may be of no frame.
    ending : array of bool
        Whether some bytes of the last one are seen to be disabled: no frame goes on behind that.
    short : array of bool
        Whether it may be a descriptor or a status.
    asked_us, first_us, last_us : arrays of float
        First attempt, first and last data phase.
    period : array of int
        Number of the time in which the bus went from one transaction to the next without a rest.
    """

    count: Integers
    foreign: Integers
    ending: Booleans
    short: Booleans
    asked_us: Floats
    first_us: Floats
    last_us: Floats
    period: Integers

    def __len__(self) -> int:
        return len(self.count)

    def part(self, begin: int, end: int) -> Units:
        """Return some of the units."""
        return Units(*(values[begin:end] for values in vars(self).values()))

    def codes(self) -> Integers:
        """Return for each unit, as one number, what decisions rest on that no exact pause decides."""
        code: Integers = 16 * self.count + 8 * self.ending + 4 * (self.foreign > 0)
        pause_us = self.first_us[1:] - self.last_us[:-1]
        code[:-1] += (pause_us < AT_ONCE_US) + 2 * (pause_us > APART_US)
        return code.astype(CODE)


@dataclass(frozen=True)
class Ahead:
    """Some units one behind the other, as lists; `foreign` and `ending` are empty if no unit has any.

    `code` is :meth:`Units.codes`, `optional` the data phases that a unit of no frame can have, `full` the most of any.
    """

    count: Sequence[int]
    foreign: Sequence[int]
    ending: Sequence[bool]
    first: Sequence[float]
    last: Sequence[float]
    code: bytes
    optional: frozenset[int]
    full: int

    @classmethod
    def of(cls, units: Units, optional: frozenset[int], full: int) -> Ahead:
        """Put units into lists."""
        foreign, ending = (one.tolist() if one.any() else [] for one in (units.foreign, units.ending))
        count, first, last = units.count.tolist(), units.first_us.tolist(), units.last_us.tolist()
        return cls(count, foreign, ending, first, last, units.codes().tobytes(), optional, full)

    def parted(self) -> Ahead:
        """Return the same without what may be of no frame."""
        return replace(self, count=[count - foreign for count, foreign in zip(self.count, self.foreign, strict=True)])

    def alike(self, at: int, units: int) -> bytes:
        """Return what is equal wherever so many units lie in the same way."""
        return self.code[at * ITEM : (at + units) * ITEM]

    def frame(self, at: int, stop: int, bounds: Bounds) -> tuple[list[int], int]:
        """Return the units, from `at` on, that are such a frame, if any, and up to where that rests on them."""
        seen, window = at, min(at + LONGEST, len(self.count))
        for least, most in bounds.tries():
            members, row = self.adding_up(at, stop, least, most)
            seen = max(seen, row)
            if members:
                members, row = self._own_tail(members, stop, least, most)
                seen = max(seen, row)
            if len(members) > 1 and self.count[members[0]] in self.optional:
                # What is as short as descriptors is none of its own if the frame is a better one without it.
                others, row = self.adding_up(members[0] + 1, stop, least, most)
                seen = max(seen, row)
                if others and self.seams(others, window) < self.seams(members, window):
                    members = others
            if members:
                return members, seen
        return [], seen

    def adding_up(self, at: int, stop: int, least: int, most: int) -> tuple[list[int], int]:
        """Return the units, from `at` on, that add up to so many data phases, and up to where that rests on them.

        Descriptors and status between them are left out where that fits; among the first `REACH` units they are
        taken in where it is needed.
        """
        count, optional = self.count, self.optional
        total, row = 0, at - 1
        members = []
        for row in range(at, stop):
            size = count[row]
            if size in optional:
                continue
            total += size
            if total > most:
                break
            members.append(row)
            behind = row + 1
            # Nothing goes on behind disabled bytes, but for a first unit: its buffer may not be aligned.
            ends = bool(self.ending) and self.ending[row] and len(members) > 1
            if total >= least and (
                ends
                or behind == stop
                or count[behind] in optional
                or total + count[behind] > most
                # Bounds are not exact: what follows at once and still fits belongs to it.
                or self.first[behind] - self.last[row] >= AT_ONCE_US
            ):
                return members, row + 2
            if ends:
                break
        seen, reach = row + 1, min(at + REACH, stop)
        if sum(count[at:reach]) < least:
            return [], max(seen, reach)
        # Some unit is as short as a descriptor: try with such units taken in. For each sum the units in it, as bits.
        sums, long = {0: 0}, 0
        for row in range(at, reach):
            size = count[row]
            if row > at and self.apart(row - 1, row):
                # Such units alone, so far apart, are none of a frame: card and target do not cut one so small.
                sums = {total: units for total, units in sums.items() if units & long or not units}
            long |= (size not in optional or size == self.full) << row - at
            grown = {total + size: units | 1 << row - at for total, units in sums.items() if total + size <= most}
            whole = [units for total, units in grown.items() if total >= least]
            if whole:
                # The latest beginning: what comes before is then left out.
                units = max(whole, key=lambda units: units & -units)
                return [one for one in range(at, row + 1) if units >> one - at & 1], max(seen, row + 2)
            if self.ending and self.ending[row]:
                # The buffer of a frame that begins with it may not be aligned.
                grown = {total: units for total, units in grown.items() if units == 1 << row - at}
            if size in optional:
                for total, units in sums.items():
                    if total not in grown or units & -units > grown[total] & -grown[total]:
                        grown[total] = units
            if not grown:
                break
            sums = grown
        return [], max(seen, row + 1)

    def apart(self, before: int, after: int) -> bool:
        """Return whether two units are so far apart that they are tried as different frames first."""
        return self.first[after] - self.last[before] > APART_US

    def _own_tail(self, members: list[int], stop: int, least: int, most: int) -> tuple[list[int], int]:
        """Take short units behind for those ahead: cards cut frames at a limit, so that what is short comes last."""
        early, behind = self._exchangeable(members, stop, least, most), members[-1] + 1
        if early < 0:
            return members, behind + 1
        seen = behind + 2
        if early == members[0]:
            long = [row for row in members if self.count[row] not in self.optional]
            other, row = self.adding_up(long[0], stop, least, most) if long else ([], seen)
            seen = max(seen, row)
            if other and all(self.count[row] in self.optional for row in range(behind, other[-1] + 1)):
                return other, seen
        return [*(row for row in members if row != early), behind], seen

    def _exchangeable(self, members: list[int], stop: int, least: int, most: int) -> int:
        """Return which short unit the one behind would do for: the first, or one among pieces that are full without it.

        All of them have one size; or where something else cuts them too, what is cut is then completed more often.
        """
        behind = members[-1] + 1
        if len(members) < 2 or behind >= stop or self.count[behind] not in self.optional:
            return -1
        short = [row for row in members if self.count[row] in self.optional]
        if not short or short[0] == members[-1]:
            return -1
        sizes = {self.count[row] for row in members if self.count[row] not in self.optional}
        others = [row for row in (*members, behind) if row != short[0]]
        if not least <= sum(self.count[row] for row in others) <= most:
            return -1
        likely = short[0] == members[0] or len(sizes) == 1 or self._limits(others) > self._limits(members)
        return short[0] if likely else -1

    def _limits(self, members: list[int]) -> int:
        """Count the units that end where a card's limit, counted from the first data of the frame, ends its pieces."""
        return sum(total % self.full == 0 for total in accumulate(self.count[row] for row in members))

    def seams(self, members: Sequence[int], stop: int) -> float:
        """Count what speaks against these units being one frame.

        Descriptors, status or long pauses in between, or units as short before the end; a next unit that follows at
        once, or an end at a full unit; and, as a share, longer units behind shorter ones.
        """
        sizes = [self.count[row] for row in members]
        longer = sum(after > before for before, after in pairwise(sizes)) / len(sizes)
        between = members[-1] - members[0] + 1 - len(members) + sum(size in self.optional for size in sizes[:-1])
        between += sum(self.apart(before, after) for before, after in pairwise(members))
        behind = members[-1] + 1
        if behind == stop or self.count[behind] in self.optional:
            return between + longer
        pause_us = self.first[behind] - self.last[members[-1]]
        return between + longer + (pause_us < AT_ONCE_US) + (sizes[-1] == self.full)


@dataclass(frozen=True)
class Known:
    """What was found before, for units that lie in the same way: most frames of a test are like the one before."""

    sending: bool
    _found: defaultdict[Bounds, dict[bytes, Sequence[int] | None]] = field(default_factory=lambda: defaultdict(dict))

    def like(self, ahead: Ahead, at: int, bounds: Bounds) -> tuple[bytes, Sequence[int] | None]:
        """Return the code of a situation that is known and lies there too, and what was found; empty if none."""
        found, begin = self._found[bounds], ITEM * at
        for width in WIDTHS:
            code = ahead.code[begin : begin + ITEM * width]
            if code in found:
                return code, found[code]
        return b"", None

    def frame(self, ahead: Ahead, at: int, bounds: Bounds) -> Sequence[int] | None:
        """Return which of the units from `at` on, counted from it, are such a frame, if it ends in time.

        None where that rests on exact times or is not certain; empty where they are not such a frame at any time.
        """
        found = self._found[bounds]
        code, members = self.like(ahead, at, bounds)
        if code:
            return members
        members, seen = self._decide(ahead, at, bounds)
        width = next(width for width in WIDTHS if width >= seen - at)
        if at + width < len(ahead.count):
            found[ahead.alike(at, width)] = members
        return members

    def _decide(self, ahead: Ahead, at: int, bounds: Bounds) -> tuple[Sequence[int] | None, int]:
        stop = min(at + LONGEST, len(ahead.count))
        members, seen = ahead.frame(at, stop, bounds)
        if not members:
            return (), seen
        if ahead.foreign and any(ahead.foreign[one] for one in members):
            return None, seen
        certain = self.sending or ahead.seams(members, stop) < 1
        return (tuple(one - at for one in members) if certain else None), seen
