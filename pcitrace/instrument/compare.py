"""Two captures of the same thing: what happens in one and not in the other, with other data, or with other waits.

Transactions are aligned by what happens (command, address, who), not by time: from a simulation of an FPGA core and
from its silicon alike. Then the data, the end and the waits of those that go together are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pcitrace.columns import integers, strings
from pcitrace.errors import WiringError
from pcitrace.instrument.alignment import align, refined
from pcitrace.instrument.burstlengths import joined

if TYPE_CHECKING:
    import pyarrow as pa

    from pcitrace.columns import Booleans, Integers
    from pcitrace.run import Bus

__all__ = ["Comparison", "compare"]

_COLUMNS = (
    "transaction", "start_us", "clocks", "command", "command_name", "dac", "address", "data_phases", "bytes",
    "wait_clks", "devsel_clks", "termination", "initiator",
)  # fmt: skip
_TOLD = (
    "transaction", "start_us", "command_name", "address", "data_phases", "bytes", "wait_clks", "devsel_clks",
    "termination", "initiator",
)  # fmt: skip
_NEEDED = ("AD0", "AD32", "CBE0#", "CBE4#", "STOP#", "DEVSEL#")
"""Lines that say what happened, one for each group: both captures have to have the same."""

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Comparison:
    """How two captures differ.

    Attributes
    ----------
    first : dict or None
        The first difference: ``what`` (``inserted``, ``missing`` or what changed), ``a`` and ``b``.
    inserted, missing : list of dict
        Transactions of B without a counterpart in A, and of A without one in B.
    changed : list of dict
        ``a``, ``b`` and ``what``: of ``data``, ``termination``, ``waits``, ``devsel``. Where data differ and AD was
        captured, ``phase``: the first data phase that does, with its ``number`` and ``data`` and ``byte_enables`` in
        ``a`` and ``b``, None where there was none.
    """

    inserted: list[dict[str, Any]]
    missing: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    first: dict[str, Any] | None

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.first is None

    def as_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {
            "equal": self.equal,
            "first": self.first,
            "inserted": self.inserted,
            "missing": self.missing,
            "changed": self.changed,
        }


def compare(a: Bus, b: Bus, *, ignore_time: bool = False, masks: Sequence[tuple[int, int]] = ()) -> Comparison:
    """Compare what happens on two buses.

    Parameters
    ----------
    a, b : pcitrace.Bus
    ignore_time : bool
        Leave out what only time decides: waits, DEVSEL# speed, retries, how transactions ended, and where disconnects
        cut: what they cut is one transaction then.
    masks : sequence of (int, int)
        Addresses, first and last, whose transactions are left out.

    Raises
    ------
    WiringError
        They cannot be compared: one has lines that the other has not.
    """
    _check_lines(a, b)
    with_grants = {line for line in a.lines if line.startswith("GNT")} == {
        line for line in b.lines if line.startswith("GNT")
    }
    sides = [_Side(bus, ignore_time, masks, with_grants) for bus in (a, b)]
    (first_a, *more_a), (first_b, *more_b) = sides[0].by, sides[1].by
    pairs = align(first_a, first_b)
    for keys_a, keys_b in zip(more_a, more_b, strict=True):
        pairs = refined(pairs, keys_a, keys_b)
    rows_a, rows_b = sides[0].kept[pairs[:, 0]], sides[1].kept[pairs[:, 1]]
    differs = {name: sides[0].values[name][rows_a] != sides[1].values[name][rows_b] for name in sides[0].values}
    any_differs = np.logical_or.reduce(list(differs.values()))
    names = np.array(list(differs))
    which = np.column_stack([different[any_differs] for different in differs.values()])
    changed = [
        {"a": row_a, "b": row_b, "what": names[one].tolist()}
        for row_a, row_b, one in zip(
            sides[0].told(rows_a[any_differs]), sides[1].told(rows_b[any_differs]), which, strict=True
        )
    ]
    if sides[0].phases is not None and sides[1].phases is not None:
        others = differs["data"]
        phases = _first_phases(sides[0].phases, sides[1].phases, rows_a[others], rows_b[others])
        for one, phase in zip((one for one in changed if "data" in one["what"]), phases, strict=True):
            one["phase"] = phase
    missing, inserted = (
        side.told(side.kept[_others(len(side.kept), of)]) for side, of in zip(sides, pairs.T, strict=True)
    )
    return Comparison(inserted, missing, changed, _first(inserted, missing, changed, (rows_a, rows_b), sides))


def _check_lines(a: Bus, b: Bus) -> None:
    for line in _NEEDED:
        if (line in a.lines) != (line in b.lines):
            have, lack = (a, b) if line in a.lines else (b, a)
            group = line.rstrip("0123456789#") if line[-1].isdigit() or line.startswith("CBE") else line
            what = {"AD": "AD", "CBE": "C/BE#"}.get(group, line)
            raise WiringError(
                f"{lack.capture.path}, bus {lack.name}: {what} ({line}) was not captured, and in {have.capture.path} "
                "it was: these cannot be compared; capture the same lines, or leave the line out of the other's wiring",
                (line,),
                lack.lines,
            )


class _Side:
    """One capture: keys by which its transactions are aligned, and values that are compared then."""

    def __init__(self, bus: Bus, ignore_time: bool, masks: Sequence[tuple[int, int]], with_grants: bool) -> None:
        [(batches, _)] = bus.capture.decoder.transactions([bus.spec], _COLUMNS, "AD0" in bus.lines)

        self.rows: pa.Table = batches.read_all()
        # The row with which each one counts: its own, or the first of those that disconnects cut.
        self.head: Integers = _heads(self.rows) if ignore_time else np.arange(len(self.rows))
        self.phases = _Phases(bus, self.rows, self.head) if "AD0" in bus.lines and len(self.rows) else None
        self.ends, lines = _texts(self.rows, "termination")
        address = integers(self.rows, "address")
        keep = ~_masked(address, masks) & (self.head == np.arange(len(self.head)))
        if ignore_time:
            keep &= ~np.isin(self.ends, [lines.get(name, -2) for name in ("retry",)])
        self.kept: Integers = np.flatnonzero(keep)
        key = _mixed(address, integers(self.rows, "command"))
        if with_grants:
            codes, grants = strings(self.rows, "initiator")
            key = _mixed(key, _stable(grants)[codes] if grants else codes)
        keys: Hashes = key[self.kept].astype(np.uint64)
        self.values = self._values(ignore_time, _stable(list(lines)))
        # What moved the same data goes together before what only has the same address, and where no address tells
        # anything, what took as long.
        with_data = _mixed(keys, self.values["data"][self.kept])
        self.by: list[Hashes] = [with_data, keys]
        if "AD0" not in bus.lines:
            whole = with_data
            for values in self.values.values():
                whole = _mixed(whole, values[self.kept])
            self.by.insert(0, whole)

    def _values(self, ignore_time: bool, ends: Hashes) -> dict[str, npt.NDArray[Any]]:
        # Without AD how many data phases there were.
        data = integers(self.rows, "data_phases") if self.phases is None else self.phases.hashes()
        values: dict[str, npt.NDArray[Any]] = {"data": data}
        if not ignore_time:
            values["termination"] = ends[self.ends]
            values["waits"] = integers(self.rows, "wait_clks")
            values["devsel"] = integers(self.rows, "devsel_clks")
        return values

    def told(self, rows: Integers) -> list[dict[str, Any]]:
        """Transactions, as people see them."""
        columns = [self.rows[name].take(rows).to_pylist() for name in _TOLD]
        told = [dict(zip(_TOLD, one, strict=True)) for one in zip(*columns, strict=True)]
        for name in ("data_phases", "bytes"):
            whole = np.zeros(len(self.head), dtype=np.int64)
            np.add.at(whole, self.head, integers(self.rows, name))
            for one, value in zip(told, whole[rows].tolist(), strict=True):
                one[name] = value
        return told


class _Phases:
    """The data phases of one capture, those of each transaction together.

    Attributes
    ----------
    data, enables : array of uint64, of int
        Disabled bytes are 0; -1 for byte enables that are not known.
    first, counts : array of int, of each row
        Where the data phases of the transactions begin of which this row is the first, and how many there are.
    """

    def __init__(self, bus: Bus, rows: pa.Table, head: Integers) -> None:
        phases = bus.arrow("data_phases")
        of_row = head[integers(phases, "transaction")]
        order = np.argsort(of_row, kind="stable")
        self.enables: Integers = integers(phases, "byte_enables")[order]
        self.data: Hashes = integers(phases, "data").view(np.uint64)[order] & _enabled(self.enables)
        self.counts: Integers = np.bincount(of_row, minlength=len(rows))
        self.first: Integers = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self._nth = np.arange(len(order)) - self.first[of_row[order]]

    def hashes(self) -> Hashes:
        """A number for the data phases of each row: the same for the same ones in the same order."""
        each = _mixed(_mixed(self.data, self.enables), self._nth).astype(np.uint64)
        sums = np.concatenate([[np.uint64(0)], np.cumsum(each, dtype=np.uint64)])
        whole: Hashes = sums[self.first + self.counts] - sums[self.first]
        return whole

    def at(self, row: int, number: int) -> dict[str, int | None] | None:
        """A data phase of a row; None if it has fewer."""
        if number >= self.counts[row]:
            return None
        place = self.first[row] + number
        enables = int(self.enables[place])
        return {"data": int(self.data[place]), "byte_enables": None if enables < 0 else enables}


def _heads(rows: pa.Table) -> Integers:
    head = np.arange(len(rows))
    order, begins = joined(rows)
    head[order] = np.repeat(order[begins], np.diff(np.append(begins, len(order))))
    return head


def _first_phases(a: _Phases, b: _Phases, rows_a: Integers, rows_b: Integers) -> list[dict[str, Any]]:
    """The first data phase in which each of these pairs differs."""
    number = np.zeros(len(rows_a), dtype=np.int64)
    shorter = np.minimum(a.counts[rows_a], b.counts[rows_b])
    equal = np.flatnonzero(shorter > 0)
    while len(equal):
        in_a, in_b = a.first[rows_a[equal]] + number[equal], b.first[rows_b[equal]] + number[equal]
        equal = equal[(a.data[in_a] == b.data[in_b]) & (a.enables[in_a] == b.enables[in_b])]
        number[equal] += 1
        equal = equal[number[equal] < shorter[equal]]
    return [
        {"number": n, "a": a.at(row_a, n), "b": b.at(row_b, n)}
        for n, row_a, row_b in zip(number.tolist(), rows_a.tolist(), rows_b.tolist(), strict=True)
    ]


def _others(count: int, some: Integers) -> Integers:
    """The numbers below `count` that are not among these."""
    others = np.ones(count, dtype=bool)
    others[some] = False
    return np.flatnonzero(others)


def _first(
    inserted: list[dict[str, Any]],
    missing: list[dict[str, Any]],
    changed: list[dict[str, Any]],
    pairs: tuple[Integers, Integers],
    sides: Sequence[_Side],
) -> dict[str, Any] | None:
    """The difference that comes first, in the order in which both captures go."""
    found: list[tuple[float, dict[str, Any]]] = []
    for what, side, rows in (("missing", 0, missing), ("inserted", 1, inserted)):
        if rows:
            # A transaction of one side stands between two that go together.
            number = int(rows[0]["transaction"])
            place = np.searchsorted(pairs[side], number) - 0.5
            at = {"a": rows[0], "b": None} if side == 0 else {"a": None, "b": rows[0]}
            found.append((float(place), {"what": [what], **at}))
    if changed:
        number = int(changed[0]["a"]["transaction"])
        found.append((float(np.searchsorted(pairs[0], number)), changed[0]))
    return min(found, key=lambda one: one[0])[1] if found else None


def _masked(address: Integers, masks: Sequence[tuple[int, int]]) -> Booleans:
    masked = np.zeros(len(address), dtype=bool)
    unsigned = address.view(np.uint64)
    for first, last in masks:
        masked |= (unsigned >= np.uint64(first)) & (unsigned <= np.uint64(last)) & (address != -1)
    return masked


def _texts(rows: pa.Table, name: str) -> tuple[Integers, dict[str, int]]:
    codes, texts = strings(rows, name)
    return codes, {text: code for code, text in enumerate(texts)}


def _stable(texts: Sequence[str]) -> Hashes:
    """A number for each text, the same in every capture; 0 behind them for null."""
    import zlib

    return np.array([*(zlib.crc32(text.encode()) + 1 for text in texts), 0], dtype=np.uint64)


def _mixed(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Hashes:
    """Two numbers as one (the finaliser of splitmix64, Steele et al. 2014): equal ones stay equal."""
    with np.errstate(over="ignore"):
        mixed = a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + b.astype(np.uint64) + np.uint64(1)
        mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


def _enabled(enables: Integers) -> Hashes:
    """Mask of the bits whose bytes are enabled; all where that is not known."""
    lanes = np.zeros(256, dtype=np.uint64)
    for value in range(256):
        lanes[value] = sum(0xFF << 8 * lane for lane in range(8) if not value >> lane & 1)
    return np.where(enables < 0, np.uint64(2**64 - 1), lanes[enables & 0xFF])
