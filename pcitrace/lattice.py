"""Sequences read at the least cost: the tables of costs, and what the kernel's decoder makes of them.

A sequence of items (the DMA pieces of a host) is read as segments of two tracks (what it sends, what it receives) and
what is left over. A segment may claim a target (a frame on the wire), in order. Every cost is the negative logarithm of
a probability, every probability a smoothed histogram that is learned from the reading of the round before (Viterbi
training; hidden semi-Markov models: Yu, Artificial Intelligence 174, 2010). The margin of a label is how much more the
best reading costs that differs in it (max-marginals: Wainwright and Jordan 2008, chapter 8), in nats.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pcitrace import _kernel
from pcitrace.columns import Booleans, Floats, Integers

__all__ = [
    "ALONE",
    "BEGINS",
    "BINS",
    "BROAD",
    "CLOSER",
    "CONTEXTS",
    "COST",
    "CUT",
    "ENDS",
    "KIND",
    "KIND_TIME",
    "STATES",
    "STRAY",
    "WHOSE",
    "Goals",
    "Learner",
    "Limits",
    "Reading",
    "Sequence",
    "Table",
    "Track",
    "bins",
    "cheapest_within",
    "even",
    "in_nats",
    "in_time",
    "likeliest",
    "read",
    "segment_units",
    "widths",
]

Costs = npt.NDArray[np.float32]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]

BINS: int = _kernel.LATTICE_BINS
ZERO = BINS // 2
"""The bin of times about zero; later ones are positive, eight an octave."""

CONTEXTS, CUT = 14, 13
"""What was before: left over for long; inside a segment of track 0, the end of one; the same of track 1; then the first
and the second left-over item behind each of these; one left over that was cut."""

ALONE, WHOSE, BEGINS, KIND, KIND_TIME, ENDS = 13, 1, 3, slice(7, 9), slice(9, 11), 11
"""Columns of what each item costs by itself (`Sequence.alone`); the first of those of being in a track, behind that of
being left over, and of beginning in one; those of the two kinds of what is left over, and of the times of these; the
first of those of ending in a track."""

STRAY = 1e-7
"""Share of segments that claim nothing, where all that there was to claim is known. A judgement."""

ALIKE, FITTED = 6.0, 2.5
"""Segments that differ alike count as so many; what differs in several segments is worth this part less.

They are not independent evidence, and each reading has a table of costs that was fitted to it. On two hosts of network
card RTL that send frames of one length a reading that took the descriptor before each frame for its beginning was
cheaper than the true one by 1.2 nats a segment; on 37 hosts of generated cards (`tests/cardbench`, seed 101, and ten
others) one wrong in all frames by up to 0.98, or in short captures by up to 27 nats in all. A margin of 12 is therefore
2 nats a segment and 30 nats in all."""

SEVERAL = 3
"""Segments from which on a reading that differs in them is another way to explain everything, and no single doubt."""

BEYOND = 12.0
"""Nats for a segment that ends when it cannot: of what has not arrived nothing is written, and what has gone is not
read. Not more, for two captures may lie otherwise on one axis than is stated. A judgement."""

STATES, COST, BLOCK = 96, 30.0, 4096
"""Bounds of the search: states an item, nats beyond the best, items until a decision."""

CLOSER = 22.0
"""Nats beyond the best where items are many: no answer asks for a larger margin (`traffic.asked.FAR`). Of 4,168 pieces
of a host that was read right (`cardbench`, tiny 1257) each took 2.0 us instead of 13.5, and no label changed."""


class Limits(NamedTuple):
    """What the search keeps: states an item, none of them dearer than the best by more nats. No margin is larger."""

    states: int = STATES
    nats: float = COST


USUAL = Limits()


@dataclass
class Sequence:
    """Items in order of time; one value an item in each column.

    Attributes
    ----------
    begin_us, ready_us, end_us : arrays of float
        When it begins; when it could have begun, had the bus been free; its last data.
    units : array of uint32
        Data phases.
    cut : array of uint8
        Whether the other side ended it.
    place, next_place : arrays of int
        Where it begins in memory and where what follows would; -1 if unknown.
    alone : array of float32, shape (items, 13)
        Cost of being left over, in track 0, 1, beginning in track 0, 1, claiming no target in 0, 1; left over and of
        kind 0, 1; of its time then, where something else than the items tells it (else infinite); ending in 0, 1.
    """

    begin_us: Floats
    ready_us: Floats
    end_us: Floats
    units: Unsigned
    cut: Unsigned
    place: Integers
    next_place: Integers
    alone: Costs

    def __len__(self) -> int:
        return len(self.begin_us)


@dataclass
class Goals:
    """Targets of one track, in order of time.

    Attributes
    ----------
    time_us : array of float
    least, most : arrays of uint32
        Bounds of the units of what claims it.
    held : array of uint8
        Whether it had to wait for the target before.
    skip : array of float32
        Cost of claiming it with nothing.
    after : bool
        Whether segments come after their targets.
    at_begin : bool
        Whether lags are to the beginnings of segments, or to their ends.
    bound_us : array of float
        Where a segment ends before it that comes after its target, or after it that comes before, it costs `beyond`
        more.
    stray : float
        Share of segments that claim nothing, among the targets; 1 where it is not known what there was to claim.
    longest_us : float
        The longest pause that is expected inside a segment.
    again : int
        What goes on after a cut begins at the last multiple of so many units of its segment, but not before the item
        that was cut; 0: at the cut.
    """

    time_us: Floats
    least: Unsigned
    most: Unsigned
    held: Unsigned
    skip: Costs
    after: bool
    at_begin: bool
    bound_us: Floats
    stray: float = STRAY
    longest_us: float = np.inf
    again: int = 0
    beyond: float = BEYOND

    def __len__(self) -> int:
        return len(self.time_us)

    @classmethod
    def none(cls, after: bool, stray: float = STRAY) -> Goals:
        """A track that has no targets, or none that are known."""
        empty = np.zeros(0, np.uint32)
        no_cost = np.zeros(0, np.float32)
        return cls(np.zeros(0), empty, empty, np.zeros(0, np.uint8), no_cost, after, after, np.zeros(0), stray=stray)


@dataclass
class Track:
    """Costs of one track; the shapes are those of the kernel's `TrackCosts`.

    Tables over times have shares of bins; but `resumes` is what it costs that a segment goes on so long after its last
    item if others came between, and `after_others` says how long after these.
    """

    goes_on: Costs
    resumes: Costs
    after_others: Costs
    begins: Costs
    lag: Costs
    excess: Costs
    excess_zero: int
    middle: Costs
    unclaimed: Costs
    places: Costs
    singles: bool = False
    """Whether the last units of segments come one by one: then what is before them has the size that is left."""
    header: int = 0
    """Units of the first of two buffers, which may end like that, too; 0 if there is one."""
    claims: Costs = field(default_factory=lambda: np.zeros(0, np.float32))
    """Lags as shares of bins, where `lag` has them in time."""


@dataclass
class Table:
    """All costs of a sequence.

    What is left over is of one of two kinds, whichever is cheaper: `other` has a row a context and kind, `other_units`
    a row a context and a column a size and kind.
    """

    tracks: tuple[Track, Track]
    other: Costs
    other_units: Costs
    follows: Costs
    back: int = 0
    unit: int = 4
    apart: float = BEYOND
    joined: int = 0
    """Places that a segment begins with and that lie together: to go on elsewhere before costs `apart`."""


@dataclass
class Reading:
    """What each item is.

    Attributes
    ----------
    track : array of int
        0 or 1; -1 for what is left over.
    begins, ends : arrays of bool
        Whether it begins or ends a segment.
    target : array of int
        The target its segment claims; -1 for none.
    margins : array of float32, shape (items, 4)
        Nats by which any reading is worse in which the track, the beginning, the end, or track and target differ; 0
        where that was not asked for.
    cost : float
    """

    track: Integers
    begins: Booleans
    ends: Booleans
    target: Integers
    margins: Costs
    cost: float
    segment: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    """Number of the segment; -1 for what is left over."""
    rivals: Costs = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    """Of the margins, those against other ways to explain everything: readings that differ in `SEVERAL` segments."""
    bound: Costs = field(default_factory=lambda: np.zeros(0, np.float32))
    """The largest margin of each item that the search could tell, 0 where none was asked for. A smaller one is what a
    reading costs more that was found; one that is as large may be larger or, where few states are kept, smaller."""
    by_content: Reading | None = None
    """The same, as sure as it is against those readings alone that keep to what the contents of frames say."""

    def __post_init__(self) -> None:
        if len(self.rivals) != len(self.track):
            self.rivals = np.full((len(self.track), 4), np.inf, np.float32)
        if len(self.bound) != len(self.track):
            self.bound = np.zeros(len(self.track), np.float32)
        if len(self.segment) == len(self.track):
            return
        self.segment = np.full(len(self.track), -1)
        base = 0
        for track in (0, 1):
            mine = self.track == track
            self.segment[mine] = base + np.cumsum(self.begins[mine]) - 1
            base += int(self.begins[mine].sum())

    def against(self, other: Reading) -> Reading:
        """Return this reading with no margin larger than what another way to explain everything costs more.

        Where that differs in many segments, what counts is how much more it costs a segment: a table of costs is no
        truth, and what is a nat too cheap in every segment is not proven by their number.
        """
        differs, nats = self._differs(other), self.against_by(other)
        margins, rivals = (
            np.where(differs, np.minimum(one, nats), one).astype(np.float32) for one in (self.margins, self.rivals)
        )
        alone = self._segments_of(differs) < SEVERAL
        return replace(self, margins=margins, rivals=self.rivals if alone else rivals)

    def against_by(self, other: Reading) -> float:
        """Return how much more another reading costs, in nats that count: see :meth:`against`."""
        count = self._segments_of(self._differs(other))
        return max(other.cost - self.cost, 0.0) / max(min(count, FITTED), count / ALIKE, 1.0)

    def edges(self) -> set[tuple[int, int, int, bool]]:
        """Return all beginnings and ends of segments that claim a target: item, track, target, whether it begins."""
        found = set[tuple[int, int, int, bool]]()
        for begins, there in ((True, self.begins), (False, self.ends)):
            item = np.flatnonzero(there & (self.target >= 0))
            columns = (one.tolist() for one in (item, self.track[item], self.target[item]))
            found.update(zip(*columns, repeat(begins)))
        return found

    def first(self, count: int) -> Reading:
        """Return what it says of the first items; not what that costs."""
        columns = {name: column[:count] for name, column in vars(self).items() if name not in ("cost", "by_content")}
        return Reading(**columns, cost=np.inf)

    def last_target(self, track: int) -> int:
        """Return the last target that a track's segments claim; -1 for none."""
        return int(self.target[self.track == track].max(initial=-1))

    def labels(self) -> bytes:
        """Return all that it says of every item, to know it again."""
        said = (self.track, self.begins, self.ends, self.target, self.segment)
        return b"".join(column.astype(np.int64).tobytes() for column in said)

    def labels_of(self, track: int) -> bytes:
        """Return all that it says of the items of one track, to know it again."""
        rows = np.flatnonzero(self.track == track)
        said = (self.begins, self.ends, self.target, self.segment)
        return b"".join(column.astype(np.int64).tobytes() for column in (rows, *(one[rows] for one in said)))

    def same(self, other: Reading) -> bool:
        """Return whether both say the same of every item."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("track", "begins", "ends", "target")
        )

    def _differs(self, other: Reading) -> Booleans:
        return np.stack(
            [
                self.track != other.track,
                self._whose(self.begins) != other._whose(other.begins),
                self._whose(self.ends) != other._whose(other.ends),
                self._whose(self.track >= 0) != other._whose(other.track >= 0),
            ],
            axis=1,
        )

    def _segments_of(self, differs: Booleans) -> int:
        return len(np.unique(self.segment[differs.any(axis=1)]))

    def _whose(self, there: Booleans) -> Integers:
        return np.where(there & (self.track >= 0), 2 * self.target + self.track, -3)


def read(
    sequence: Sequence,
    goals: tuple[Goals, Goals],
    table: Table,
    limits: Limits = USUAL,
    margins: bool = True,
) -> Reading:
    """Read a sequence at the least cost; without margins the reading is the same, and found sooner."""
    states, cost = limits
    label, target, nats, bound, cost = _kernel.read_lattice(
        sequence, goals, in_time(table, goals), states=states, cost=cost, block=BLOCK, margins=margins
    )
    code = np.frombuffer(label, np.uint8).astype(np.int64)
    part = np.where(code > 0, (code - 1) % 4, -1)
    return Reading(
        track=np.where(code > 0, (code - 1) // 4, -1),
        begins=(part == 0) | (part == 1),
        ends=(part == 0) | (part == 3),
        target=np.frombuffer(target, np.int64),
        margins=np.frombuffer(nats, np.float32).reshape(-1, 4),
        cost=cost,
        bound=np.frombuffer(bound, np.float32),
    )


def in_time(table: Table, goals: tuple[Goals, Goals]) -> Table:
    """Return the table with densities in time where it has shares of bins.

    A bin is 9 % of its time, so one at 100 us says less of when something comes than one at 3 us. Each time is told
    once, by a pause or by a lag: what tells it from nearer tells it better.
    """
    wide = widths()
    tracks = tuple(
        replace(
            track,
            goes_on=track.goes_on + wide,
            after_others=track.after_others + wide,
            begins=track.begins + wide,
            lag=track.lag + np.stack([wide, wide if goal.after else _waited(goal)]),
            claims=track.lag,
        )
        for track, goal in zip(table.tracks, goals, strict=True)
    )
    return replace(table, tracks=(tracks[0], tracks[1]), other=table.other + wide)


def _waited(goals: Goals) -> Costs:
    """Return what makes a density of the lags of targets that waited for the one before, which tells their time.

    How long such a one waited after its segment says nothing of it. That it came just after the end of its segment
    does. But that it came just after a beginning does not: a card that begins to read whenever a frame leaves it begins
    as regularly before the next target, which is another frame (`cardbench`, cut-through 1217: 48 values were wrong).
    """
    return np.zeros_like(widths()) if goals.at_begin else np.minimum(widths(), 0)


def segment_units(units: Integers, cut: Booleans, begins: Booleans, again: int) -> Integers:
    """Return the units of segments whose items lie one behind the other, without what was moved again after cuts.

    Parameters
    ----------
    units, cut, begins : arrays
        Of each item.
    again : int
        As `Goals.again`.
    """
    count = np.ascontiguousarray(units, np.uint32)
    is_cut, is_first = (np.ascontiguousarray(one, np.uint8) for one in (cut, begins))
    return np.frombuffer(_kernel.segment_units(count, is_cut, is_first, again), np.int64)


def likeliest(nats: Costs, group: Integers) -> Integers:
    """Return which of two kinds each item is: by what either costs, and by which kind those of its group mostly are.

    Parameters
    ----------
    nats : array, shape (items, 2)
    group : array of int
        Items of one group look alike.
    """
    costs = np.ascontiguousarray(nats, np.float32)
    return np.frombuffer(_kernel.likeliest_kinds(costs, np.ascontiguousarray(group, np.int64)), np.uint8).astype(
        np.int64
    )


def bins(times_us: Floats) -> Integers:
    """Return the bins of times in tables over times."""
    return np.frombuffer(_kernel.lattice_bins(np.ascontiguousarray(times_us, np.float64)), np.uint16).astype(np.int64)


def cheapest_within(table: Costs, low: Integers, high: Integers) -> Costs:
    """Return the least entry of a table between two bins each, both included."""
    least = [table]
    while 2 ** len(least) <= len(table):
        half = 2 ** (len(least) - 1)
        least.append(np.minimum(least[-1][:-half], least[-1][half:]))
    high = np.maximum(low, high)
    level = np.log2(high - low + 1).astype(np.int64)
    out = np.empty(len(low), table.dtype)
    for one in np.unique(level):
        rows = level == one
        out[rows] = np.minimum(least[one][low[rows]], least[one][high[rows] - 2**one + 1])
    return out


HALF = 0.5
"""Share of what was seen that is kept where a learner forgets: as much is told without each observation as with it."""

BROAD = 3.0
"""Observations that a first guess is worth."""

CLOCK_US = 0.03
"""No time is known better than this: a clock of a bus of 33 MHz. A judgement."""


@dataclass
class Learner:
    """Learns tables of costs from what a reading shows, and keeps account of what that costs.

    A reading is compared with others by all that it takes to describe the capture with it: what its pieces cost by its
    tables, and the tables. Else a reading could learn for nothing that the strangest thing is usual.

    Attributes
    ----------
    nats : float
        What learning cost so far: by so much were the observations dearer while the tables were not known (the
        marginal likelihood under a Dirichlet prior against the learned table: MacKay, Information Theory, Inference and
        Learning Algorithms, 2003, chapter 28).
    forgets : random generator, optional
        Forgets half of all that was seen: what a reading says of few pieces then has to hold without them.
    """

    nats: float = 0.0
    forgets: np.random.Generator | None = None

    def density(self, values: Integers, prior: Costs, smooth: bool = True, weight: float = BROAD) -> Costs:
        """Return costs of a histogram, of which the prior costs are worth so many observations."""
        found: Costs = self.densities(values, np.zeros(len(values), np.int64), prior[None], smooth, weight)[0]
        return found

    def densities(
        self, values: Integers, group: Integers, prior: Costs, smooth: bool = True, weight: float = BROAD
    ) -> Costs:
        """Return costs of a histogram a group of values, with a row of the prior for each group.

        Where all groups have one row it may be broadcast: then it is looked at once.
        """
        kept = None if self.forgets is None else (self.forgets.random(prior.shape) < HALF).view(np.uint8)
        costs, nats = _kernel.learn_costs(
            np.ascontiguousarray(values, np.int64),
            np.ascontiguousarray(group, np.int64),
            np.ascontiguousarray(prior[:1] if prior.strides[0] == 0 else prior, np.float32),
            rows=len(prior),
            columns=prior.shape[1],
            weight=weight,
            times=smooth,
            kept=kept,
        )
        self.nats += nats
        return np.frombuffer(costs, np.float32).reshape(prior.shape)


def in_nats(share: Floats) -> Costs:
    """Return what is as likely as this costs, in nats; infinite where it cannot be."""
    with np.errstate(divide="ignore"):
        return -np.log(share).astype(np.float32)


def even(count: int) -> Costs:
    """Return the costs of as many entries, of which one is as likely as the other."""
    return np.full(count, np.log(count), np.float32)


@cache
def centres_us() -> Floats:
    """The times at the centres of bins."""
    steps = np.arange(BINS) - ZERO
    return np.asarray(np.sign(steps) * 0.008 * 2.0 ** (np.abs(steps) / 8))


@cache
def widths() -> Costs:
    """The logarithm of how much time is in each bin, in us; at least a clock."""
    wide: Costs = np.log(np.maximum(np.abs(centres_us()) * np.log(2) / 8, CLOCK_US)).astype(np.float32)
    return wide
